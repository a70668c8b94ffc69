//! The cross toolchain: compiler, linker and emulator.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::debian::apt::Apt;
use crate::debian::cache::{Cache, files, in_file, make, name_of, remove};
use crate::debian::root::Root;
use crate::failure::Failure;

/// Target of the builds.
const TARGET: &str = "aarch64-unknown-linux-gnu";

/// Prefix of the names of programs for the target, and the folder of its C library.
const PREFIX: &str = "aarch64-linux-gnu";

/// Suites with a Rust that is new enough: Debian's backports together with their release, or the
/// next release. apt prefers the last suite of each.
const SUITES: [&[&str]; 2] = [&["trixie", "trixie-backports"], &["forky"]];

/// Packages to unpack with all their dependencies.
const PACKAGES: [&str; 4] =
    ["rustc", "gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross", "qemu-user"];

/// Rust's own library for the target, in the compiler's version. Its dependencies are in
/// [`PACKAGES`].
const LIBRARY: &str = "libstd-rust-dev:arm64";

/// The emulator. It is statically linked.
const EMULATOR: &str = "qemu-aarch64";

/// Selects the symbol names of our crates that the checks of the machine code look for. Rust 1.97
/// has other names by default, and calls the option for these unstable.
const NAMES: &str = "\
case \" $* \" in
*\" --crate-name mlx5\"*)
    export RUSTC_BOOTSTRAP=1
    set -- \"$@\" -C symbol-mangling-version=legacy -Z unstable-options
    ;;
esac
";

/// Compiler, linker and emulator, unpacked in the cache.
#[derive(Debug)]
pub(super) struct Toolchain {
    root: PathBuf,
    /// Folder of the builds and of the scripts that start compiler and linker.
    folder: PathBuf,
}

impl Toolchain {
    /// Fetches the packages that are not in the cache.
    pub(super) fn fetch(cache: &Cache) -> Result<Self, Failure> {
        let root = cache.part("toolchain", |folder| {
            let lists = folder.join("apt");
            let (apt, suite) = first(|suites, suite| {
                remove(&lists)?;
                let apt = Apt::foreign(&lists, suites, &["arm64"])?;
                let versions = (apt.version(suite, PACKAGES[0])?, apt.version(suite, LIBRARY)?);
                Ok((apt, versions))
            })?;
            eprintln!("aarch64: fetching compiler, linker and emulator of {suite}");
            apt.unpack(Some(suite), &PACKAGES, folder)?;
            apt.unpack_one(Some(suite), LIBRARY, folder)?;
            remove(&lists)?;
            // The package has an emulator for each of thirty architectures.
            for path in files(&folder.join("usr/bin"))? {
                let name = name_of(&path);
                if name.starts_with("qemu-") && name != EMULATOR {
                    fs::remove_file(&path).map_err(in_file(&path))?;
                }
            }
            Ok(())
        })?;
        let toolchain = Self { root, folder: target().join("aarch64") };
        toolchain.write_scripts()?;
        Ok(toolchain)
    }

    /// Writes the scripts that start compiler and linker with their own libraries.
    ///
    /// The option `-wrapper` has gcc start its subprocess (collect2) in the same way; collect2
    /// finds ld among the scripts.
    fn write_scripts(&self) -> Result<(), Failure> {
        make(&self.scripts())?;
        let root = Root::new(self.root.clone());
        let loader = format!("{} --library-path {}", shown(root.loader()), shown(root.libraries()));
        let program = |name: &str| shown(root.program(name));
        let gcc = program(&format!("{PREFIX}-gcc"));
        let lines = [
            ("rustc", NAMES, format!("{loader} {} \"$@\"", program("rustc"))),
            ("ld", "", format!("{loader} {} \"$@\"", program(&format!("{PREFIX}-ld")))),
            (
                "gcc",
                "",
                format!(
                    "{loader} --argv0 {gcc} {gcc} -wrapper {} -B {}/ --sysroot={} \"$@\"",
                    loader.replace(' ', ","),
                    shown(self.scripts()),
                    shown(&self.root),
                ),
            ),
        ];
        for (name, before, line) in lines {
            let path = self.scripts().join(name);
            let text = format!("#!/bin/sh\n{before}exec {line}\n");
            if fs::read_to_string(&path).is_ok_and(|there| there == text) {
                continue;
            }
            fs::write(&path, text).map_err(in_file(&path))?;
            let mode = fs::Permissions::from_mode(0o755);
            fs::set_permissions(&path, mode).map_err(in_file(&path))?;
        }
        Ok(())
    }

    fn scripts(&self) -> PathBuf {
        self.folder.join("tools")
    }

    /// A cargo command that builds for the target in the release profile.
    pub(super) fn cargo(&self, command: &str) -> Command {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut cargo = Command::new(cargo);
        cargo.args([command, "--release", "--target", TARGET]);
        cargo.arg("--message-format=json-render-diagnostics");
        cargo.env("CARGO_TARGET_DIR", &self.folder).env("CARGO_INCREMENTAL", "0");
        cargo.env("RUSTC", self.scripts().join("rustc"));
        let variable = TARGET.replace('-', "_").to_uppercase();
        cargo.env(format!("CARGO_TARGET_{variable}_LINKER"), self.scripts().join("gcc"));
        for foreign in ["RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "RUSTFLAGS", LIBRARIES] {
            cargo.env_remove(foreign);
        }
        cargo
    }

    /// A command that runs a program for the target.
    pub(super) fn emulate(&self, program: &Path) -> Command {
        let mut command = Command::new(self.root.join("usr/bin").join(EMULATOR));
        command.arg("-L").arg(self.root.join("usr").join(PREFIX)).arg(program);
        command.env_remove(LIBRARIES);
        command
    }

    /// A command that runs a program of the target's binutils.
    pub(super) fn binutils(&self) -> impl Fn(&str) -> Command + 'static {
        let root = Root::new(self.root.clone());
        move |name| root.command(&format!("{PREFIX}-{name}"))
    }
}

/// Tries suites until one has the compiler and the library in one version. Debian builds each
/// architecture separately, so for days one may have a newer Rust than another.
fn first<T>(
    ask: impl Fn(&[&str], &str) -> Result<(T, (String, String)), Failure>,
) -> Result<(T, &'static str), Failure> {
    let mut found_versions = Vec::new();
    for suites in SUITES {
        let suite = suites[suites.len() - 1];
        match ask(suites, suite) {
            Ok((found, (compiler, library))) if compiler == library => return Ok((found, suite)),
            Ok((_, (compiler, library))) => {
                found_versions
                    .push(format!("{suite} has rustc {compiler} and {LIBRARY} {library}"));
            }
            Err(failure) => found_versions.push(format!("{suite}: {failure}")),
        }
    }
    let found_versions = found_versions.join("; ");
    Err(Failure::Packages(format!(
        "Debian has no Rust of one version for both architectures today, try again in some days: {found_versions}"
    )))
}

/// Variable that Cargo sets to this machine's toolchain libraries when it starts this program.
const LIBRARIES: &str = "LD_LIBRARY_PATH";

fn shown(path: impl Into<OsString>) -> String {
    path.into().to_string_lossy().into_owned()
}

/// Folder of this workspace's builds.
fn target() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a folder of the workspace");
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root.join("target"), |target| root.join(target))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(one: &str, other: &str) -> Result<((), (String, String)), Failure> {
        Ok(((), (one.to_owned(), other.to_owned())))
    }

    #[test]
    fn a_suite_whose_architectures_differ_is_passed_over() {
        let same = first(|_, _| versions("2", "2"));
        assert_eq!(same.expect("the first").1, "trixie-backports");
        let next = first(|_, suite| versions("2", if suite == "forky" { "2" } else { "1" }));
        assert_eq!(next.expect("the second").1, "forky");
        let next = first(|_, suite| match suite {
            "forky" => versions("2", "2"),
            _ => Err(Failure::Unfetched("404".into())),
        });
        assert_eq!(next.expect("the second").1, "forky");
        let none = first(|_, _| versions("2", "1")).expect_err("they differ").to_string();
        assert!(none.contains("forky has rustc 2 and libstd-rust-dev:arm64 1"), "{none}");
    }
}
