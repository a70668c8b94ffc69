//! The package's metadata.

use std::collections::BTreeSet;
use std::env::consts::ARCH;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{NAME, SWITCH, read, says, variable};
use crate::elf::Elf;
use crate::failure::Failure;

/// Debian's revision of a version.
const REVISION: u32 = 1;

const DESCRIPTION: &str = "\
Description: userspace driver for ConnectX NICs in Rust: command and libraries
 The mlx5 command lists, describes, checks and measures NVIDIA/Mellanox ConnectX
 devices (InfiniBand and RoCE), and decodes their queues. On a machine without a
 device it uses a simulated one.
 .
 Programs written for libibverbs and libmlx5 run over this driver, as far as it
 has what they use: the package has libraries of these names in Rust. No program
 uses them until the administrator says so for the whole system
 (mlx5-verbs-switch rust; back with mlx5-verbs-switch c), or for one program by
 LD_LIBRARY_PATH.
";

/// Names of an architecture.
#[derive(Clone, Copy, Debug)]
pub(super) struct Architecture {
    /// Debian's name.
    pub(super) debian: &'static str,
    /// Name in the loader's cache.
    pub(super) abi: &'static str,
}

/// Metadata that does not depend on the installed files.
#[derive(Debug)]
pub(super) struct About {
    /// The version without Debian's revision.
    pub(super) upstream: &'static str,
    pub(super) architecture: Architecture,
    maintainer: String,
    /// Seconds since 1970.
    pub(super) time: u64,
    depends: String,
}

impl About {
    /// Metadata of a package with these programs and libraries.
    pub(super) fn new<'a>(files: impl IntoIterator<Item = &'a PathBuf>) -> Result<Self, Failure> {
        let mut packages = BTreeSet::new();
        let mut oldest = Vec::new();
        for file in files {
            let bytes = read(file)?;
            let elf = Elf::new(&bytes).ok_or_else(|| wrong(file, "no ELF".into()))?;
            for library in elf.needed() {
                let package =
                    of(library).ok_or_else(|| wrong(file, format!("need of {library}")))?;
                packages.insert(package);
            }
            oldest = oldest.max(c_library(elf));
        }
        let numbers: Vec<String> = oldest.iter().map(u32::to_string).collect();
        let depends = packages.into_iter().map(|package| match package {
            "libc6" => format!("libc6 (>= {})", numbers.join(".")),
            other => other.to_owned(),
        });
        Ok(Self {
            upstream: env!("CARGO_PKG_VERSION"),
            architecture: architecture()?,
            maintainer: maintainer()?,
            time: time()?,
            depends: depends.collect::<Vec<_>>().join(", "),
        })
    }

    fn version(&self) -> String {
        format!("{}-{REVISION}", self.upstream)
    }

    /// Name of the package's file, in Debian's form.
    pub(super) fn file_name(&self) -> String {
        format!("{NAME}_{}_{}.deb", self.version(), self.architecture.debian)
    }

    /// The file `control` of a package whose files take `kilobytes` KiB.
    pub(super) fn control(&self, kilobytes: u64) -> String {
        format!(
            "Package: {NAME}\nVersion: {}\nArchitecture: {}\nMaintainer: {}\n\
             Installed-Size: {kilobytes}\nDepends: {}\nSuggests: ibverbs-utils, libibverbs1\n\
             Section: net\nPriority: optional\n{DESCRIPTION}",
            self.version(),
            self.architecture.debian,
            self.maintainer,
            self.depends,
        )
    }

    /// Debian's own changelog.
    pub(super) fn changelog(&self) -> Result<String, Failure> {
        let at = format!("--date=@{}", self.time);
        let date = says(Command::new("date").args(["--utc", "--rfc-email", &at]))?;
        Ok(format!(
            "{NAME} ({}) unstable; urgency=medium\n\n  * The command, {SWITCH} and the libraries of this \
             version.\n    changelog.gz says what changed.\n\n -- {}  {date}",
            self.version(),
            self.maintainer,
        ))
    }
}

/// The file `copyright`, in the machine-readable form.
pub(super) fn copyright() -> Result<String, Failure> {
    let mit = String::from_utf8_lossy(&read(Path::new("LICENSE-MIT"))?).into_owned();
    let holder = mit.lines().find_map(|line| line.strip_prefix("Copyright (c) "));
    let holder = holder.ok_or_else(|| wrong("LICENSE-MIT", "no copyright".into()))?;
    let (_, terms) = mit.split_once("\n\nPermission ").unwrap_or(("", &mit));
    let terms: String = format!("Permission {terms}")
        .lines()
        .map(|line| if line.is_empty() { " .\n".to_owned() } else { format!(" {line}\n") })
        .collect();
    Ok(format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Upstream-Name: {NAME}\n\
         Comment: The program and the library are linked from packages of others as well.\n \
         /usr/share/doc/{NAME}/licences.gz has their names, versions and licences.\n\n\
         Files: *\nCopyright: {holder}\nLicense: Expat or Apache-2.0\n\n\
         License: Expat\n{terms}\n\
         License: Apache-2.0\n On Debian systems, /usr/share/common-licenses/Apache-2.0 has its text.\n"
    ))
}

/// Debian's package of a library that a program needs; `None` for a library that no program of this
/// package may need.
fn of(library: &str) -> Option<&'static str> {
    match library {
        "libc.so.6" | "libm.so.6" => Some("libc6"),
        "libgcc_s.so.1" => Some("libgcc-s1"),
        other if other.starts_with("ld-linux") => Some("libc6"),
        _ => None,
    }
}

/// The newest version of the C library that a file needs.
fn c_library(elf: Elf<'_>) -> Vec<u32> {
    let needed = elf.needed_nodes().unwrap_or_default();
    let numbers = |node: &str| {
        let version = node.strip_prefix("GLIBC_")?;
        version.split('.').map(|number| number.parse().ok()).collect::<Option<Vec<u32>>>()
    };
    needed.into_iter().filter_map(numbers).max().unwrap_or_default()
}

/// This machine's architecture.
fn architecture() -> Result<Architecture, Failure> {
    match ARCH {
        "x86_64" => Ok(Architecture { debian: "amd64", abi: "x86-64" }),
        "aarch64" => Ok(Architecture { debian: "arm64", abi: "AArch64" }),
        _ => Err(Failure::Packages(format!("the libraries are not for {ARCH}"))),
    }
}

fn maintainer() -> Result<String, Failure> {
    match (variable("DEBFULLNAME"), variable("DEBEMAIL")) {
        (Some(name), Some(mail)) => Ok(format!("{name} <{mail}>")),
        _ => of_last_commit("%an <%ae>"),
    }
}

fn time() -> Result<u64, Failure> {
    let said = variable("SOURCE_DATE_EPOCH").map_or_else(|| of_last_commit("%ct"), Ok)?;
    said.parse().map_err(|_| wrong("SOURCE_DATE_EPOCH", format!("no number of seconds: {said}")))
}

fn of_last_commit(what: &str) -> Result<String, Failure> {
    let said =
        super::build::says(Command::new("git").args(["log", "-1", &format!("--format={what}")]));
    said.map(|said| said.trim().to_owned()).map_err(|_| {
        Failure::Packages(
            "git does not name the author and time of the last commit: set DEBFULLNAME, DEBEMAIL and \
             SOURCE_DATE_EPOCH"
                .into(),
        )
    })
}

fn wrong(program: impl AsRef<Path>, what: String) -> Failure {
    Failure::Output { program: program.as_ref().display().to_string(), what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_depends_on_what_its_programs_need() {
        let this = PathBuf::from("/proc/self/exe");
        let about = About {
            maintainer: "A <a@b.example>".into(),
            ..About::new([&this]).expect("the libraries of a test are known")
        };
        assert!(about.depends.starts_with("libc6 (>= 2."), "{}", about.depends);
        assert!(about.depends.contains("libgcc-s1"), "{}", about.depends);
        let control = about.control(7);
        assert!(control.contains("\nInstalled-Size: 7\n") && control.contains("A <a@b.example>"));
    }

    #[test]
    fn a_library_that_no_program_should_need_is_in_no_package() {
        assert_eq!(of("libibverbs.so.1"), None);
        assert_eq!(of("ld-linux-aarch64.so.1"), Some("libc6"));
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!([vec![2, 9], vec![2, 34]].into_iter().max() == Some(vec![2, 34]));
    }
}
