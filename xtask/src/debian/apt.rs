//! Fetches Debian's packages by apt into folders of our own: nothing is installed, and the
//! machine's own apt is not touched.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::cache::{files, in_file, make, name_of};
use crate::failure::Failure;

/// The key with which apt checks the archive's signature.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// A private apt that knows some suites of the archive, and no installed package.
#[derive(Debug)]
pub(crate) struct Apt {
    folder: PathBuf,
    /// Architectures of the packages that it knows: this machine's first.
    architectures: String,
}

impl Apt {
    /// Fetches the lists of `suites` from the archive that this machine's apt uses.
    pub(crate) fn new(folder: &Path, suites: &[&str]) -> Result<Self, Failure> {
        Self::foreign(folder, suites, &[])
    }

    /// The same, with packages for other architectures.
    pub(crate) fn foreign(
        folder: &Path,
        suites: &[&str],
        others: &[&str],
    ) -> Result<Self, Failure> {
        if !Path::new(KEYRING).exists() {
            return Err(Failure::Missing("apt-get install debian-archive-keyring".into()));
        }
        let archives = Archives::of_this_machine()?;
        let mut lines = String::new();
        for suite in suites {
            let archive = archives.of(suite)?;
            lines.push_str(&format!("deb [signed-by={KEYRING}] {archive} {suite} main\n"));
        }
        Self::with_sources(folder, &lines, [&["amd64"], others].concat().join(","))
    }

    /// Fetches the lists that these lines of a `sources.list` name.
    fn with_sources(folder: &Path, lines: &str, architectures: String) -> Result<Self, Failure> {
        for part in ["lists/partial", "cache/archives/partial"] {
            make(&folder.join(part))?;
        }
        for (name, text) in [("sources.list", lines), ("status", "")] {
            let path = folder.join(name);
            fs::write(&path, text).map_err(in_file(&path))?;
        }
        let apt = Self { folder: folder.to_owned(), architectures };
        fetch(apt.command("apt-get").args(["update", "--quiet=2", "--error-on=any"]))?;
        Ok(apt)
    }

    /// Names of the packages that a package depends on.
    pub(crate) fn depends(&self, package: &str) -> Result<Vec<String>, Failure> {
        let record = run(self.command("apt-cache").args(["show", "--no-all-versions", package]))?;
        Ok(depends(&record))
    }

    /// The version of a package that apt would fetch.
    pub(crate) fn version(&self, release: &str, package: &str) -> Result<String, Failure> {
        let mut command = self.command("apt-get");
        command.arg(format!("--target-release={release}"));
        let uris = run(command.args(["download", "--quiet=2", "--print-uris", package]))?;
        version(&uris).ok_or_else(|| {
            Failure::Packages(format!("apt-get names no file of {package}:\n{}", uris.trim()))
        })
    }

    /// Fetches one package without its dependencies, and unpacks it into `root`. A package that the
    /// lists do not have is another failure than one that cannot be fetched.
    pub(crate) fn unpack_one(
        &self,
        release: Option<&str>,
        package: &str,
        root: &Path,
    ) -> Result<(), Failure> {
        let folder = self.folder.join("alone").join(package);
        make(&folder)?;
        let download = || {
            let mut command = self.command("apt-get");
            command.args(release.map(|release| format!("--target-release={release}")));
            command.args(["download", "--quiet=2", package]).current_dir(&folder);
            command
        };
        run(download().arg("--print-uris"))?;
        fetch(&mut download())?;
        unpack(&folder, root)
    }

    /// Fetches packages with all their dependencies, and unpacks them into `root`. Packages that
    /// the lists do not have, or dependencies that contradict each other, are another failure than
    /// packages that cannot be fetched.
    pub(crate) fn unpack(
        &self,
        release: Option<&str>,
        packages: &[&str],
        root: &Path,
    ) -> Result<(), Failure> {
        self.fetch_with_dependencies(release, packages)?;
        unpack(&self.folder.join("cache/archives"), root)
    }

    /// Fetches packages with all their dependencies into a folder.
    pub(crate) fn download(&self, packages: &[&str], folder: &Path) -> Result<(), Failure> {
        self.fetch_with_dependencies(None, packages)?;
        make(folder)?;
        for path in files(&self.folder.join("cache/archives"))? {
            if path.extension().is_some_and(|extension| extension == "deb") {
                fs::rename(&path, folder.join(name_of(&path))).map_err(in_file(&path))?;
            }
        }
        Ok(())
    }

    /// Fetches packages with all their dependencies into apt's cache.
    fn fetch_with_dependencies(
        &self,
        release: Option<&str>,
        packages: &[&str],
    ) -> Result<(), Failure> {
        let install = || {
            let mut command = self.command("apt-get");
            command.args(release.map(|release| format!("--target-release={release}")));
            command.args(["--yes", "--no-install-recommends", "install"]).args(packages);
            command
        };
        run(install().args(["--quiet", "--simulate"]))?;
        fetch(install().args(["--quiet=2", "--download-only"])).map(drop)
    }

    /// A command that runs one of apt's programs on our folder only.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("LC_ALL", "C");
        let mut option = |name: &str, value: OsString| {
            let mut whole = OsString::from(name);
            whole.push("=");
            whole.push(value);
            command.arg("-o").arg(whole);
        };
        for (name, part) in [
            ("Dir::State", ""),
            ("Dir::State::lists", "lists"),
            ("Dir::State::status", "status"),
            ("Dir::Cache", "cache"),
            ("Dir::Etc::sourcelist", "sources.list"),
        ] {
            option(name, self.folder.join(part).into());
        }
        for (name, value) in [
            ("Dir::Etc::sourceparts", "/dev/null"),
            ("Dir::Etc::preferences", "/dev/null"),
            ("Dir::Etc::preferencesparts", "/dev/null"),
            ("APT::Architecture", "amd64"),
            ("APT::Architectures", &self.architectures),
            ("APT::Sandbox::User", ""),
            ("Debug::NoLocking", "1"),
        ] {
            option(name, value.into());
        }
        command
    }
}

/// Unpacks every package of a folder.
fn unpack(folder: &Path, root: &Path) -> Result<(), Failure> {
    make(root)?;
    for entry in fs::read_dir(folder).map_err(in_file(folder))? {
        let path = entry.map_err(in_file(folder))?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            run(Command::new("dpkg-deb").arg("--extract").arg(&path).arg(root))?;
        }
    }
    Ok(())
}

/// The version in the name of the file that apt would fetch. A line has the address, then
/// `NAME_VERSION_ARCHITECTURE.deb`.
fn version(uris: &str) -> Option<String> {
    let file = uris.split_whitespace().nth(1)?;
    file.strip_suffix(".deb")?.split('_').nth(1).map(str::to_owned)
}

/// Names in the dependencies of a package's record; of alternatives the first.
fn depends(record: &str) -> Vec<String> {
    let line = record.lines().find_map(|line| line.strip_prefix("Depends: "));
    let names = line.unwrap_or_default().split(", ").filter_map(|one| one.split(' ').next());
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Archives from which this machine fetches Debian's packages.
struct Archives {
    /// Address, release and component of every source of this machine's apt, one per line.
    targets: String,
    /// This machine's release.
    codename: String,
}

impl Archives {
    fn of_this_machine() -> Result<Self, Failure> {
        const OURS: [&str; 3] = ["indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)"];
        let codename = codename();
        let targets = run(Command::new("apt-get").args(OURS).arg("Created-By: Packages"))?;
        Ok(Self { targets, codename })
    }

    /// Address of the archive that has a suite: the one that this machine's apt has for it, since
    /// an old release may have left the mirrors, or else the archive of the machine's own release.
    fn of(&self, suite: &str) -> Result<&str, Failure> {
        let archive = archive_of(&self.targets, suite);
        archive.or_else(|| archive_of(&self.targets, &self.codename)).ok_or_else(|| {
            Failure::Packages(format!(
                "this machine's apt knows no archive of {} with a component main: what is \
                 needed are Debian's packages, fetched from where this machine's are",
                self.codename
            ))
        })
    }
}

/// Codename of this machine's Debian release; empty on another system.
pub(crate) fn codename() -> String {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let codename = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    codename.unwrap_or_default().trim_matches('"').to_owned()
}

/// Address of the archive that has a whole release, not only its updates.
fn archive_of<'a>(targets: &'a str, codename: &str) -> Option<&'a str> {
    targets.lines().find_map(|line| match line.split(' ').collect::<Vec<_>>()[..] {
        [uri, release, "main"] if release == codename && !codename.is_empty() => Some(uri),
        _ => None,
    })
}

/// Runs one of apt's programs that can fail only if the archive does not answer.
fn fetch(command: &mut Command) -> Result<String, Failure> {
    run(command).map_err(|failure| match failure {
        Failure::Packages(what) => Failure::Unfetched(what),
        other => other,
    })
}

/// Runs a program to its end; returns its output.
fn run(command: &mut Command) -> Result<String, Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output =
        command.output().map_err(|error| Failure::Run { program: program.clone(), error })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    // apt prints unmet dependencies on its standard output.
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    Err(Failure::Packages(format!("{program} ended with {}:\n{}", output.status, said.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;

    const TARGETS: &str = "http://a/security/ one-security main\nhttp://b/ one contrib\n\
                           http://c/debian/ one main\nhttp://d/ two main\n";

    #[test]
    fn an_archive_is_one_that_has_the_release_itself() {
        assert_eq!(archive_of(TARGETS, "one"), Some("http://c/debian/"));
        assert_eq!(archive_of(TARGETS, "three"), None);
        assert_eq!(archive_of("http://a/  main\n", ""), None);
    }

    #[test]
    fn a_suite_comes_from_where_apt_has_it_and_else_from_where_the_machines_release_does() {
        let archives = Archives { targets: TARGETS.into(), codename: "one".into() };
        assert_eq!(archives.of("two").ok(), Some("http://d/"));
        assert_eq!(archives.of("three").ok(), Some("http://c/debian/"));
        let nowhere = Archives { targets: TARGETS.into(), codename: "four".into() };
        assert!(nowhere.of("three").is_err());
    }

    #[test]
    fn the_version_of_a_package_is_in_the_name_of_its_file() {
        let uris =
            "'http://a/rustc_1.97.1%2bdfsg1_amd64.deb' rustc_1.97.1+dfsg1_amd64.deb 1 SHA256:0\n";
        assert_eq!(version(uris).as_deref(), Some("1.97.1+dfsg1"));
        assert_eq!((version(""), version("'http://a/b' b.txt 1")), (None, None));
    }

    #[test]
    fn dependencies_of_a_package_are_listed_by_name() {
        let record = "Package: a\nDepends: b (= 1), c | d (>= 2), e\n";
        assert_eq!(depends(record), ["b", "c", "e"]);
        assert_eq!(depends("Package: a\n"), [""; 0]);
    }

    /// An archive in a folder; its packages have a record and no file.
    fn archive(folder: &Path) -> Result<Apt, Failure> {
        let record = |name: &str, more: &str| {
            let sum = "0".repeat(64);
            format!(
                "Package: {name}\nVersion: 1\nArchitecture: amd64\nMaintainer: nobody\n{more}\
                 Filename: ./{name}.deb\nSize: 1\nSHA256: {sum}\n\n"
            )
        };
        let records = record("whole", "") + &record("broken", "Depends: nowhere (>= 2)\n");
        fs::write(folder.join("Packages"), records).expect("a file");
        let line = format!("deb [trusted=yes] file:{} ./\n", folder.display());
        Apt::with_sources(&folder.join("apt"), &line, "amd64".into())
    }

    #[test]
    fn package_missing_from_the_lists_is_not_taken_for_a_missing_archive() {
        let folder = std::env::temp_dir().join(format!("mlx5-apt-{}", std::process::id()));
        make(&folder).expect("a folder");
        let apt = match archive(&folder) {
            // Not a Debian system.
            Err(Failure::Run { error, .. }) if error.kind() == ErrorKind::NotFound => return,
            apt => apt.expect("lists"),
        };
        let root = folder.join("root");
        for (package, says) in [("broken", "nowhere"), ("unknown", "unknown")] {
            let answer = apt.unpack(None, &["whole", package], &root);
            assert!(
                matches!(&answer, Err(Failure::Packages(what)) if what.contains(says)),
                "{answer:?}"
            );
        }
        for answer in [apt.unpack_one(None, "unknown", &root), apt.depends("unknown").map(drop)] {
            assert!(matches!(answer, Err(Failure::Packages(_))), "{answer:?}");
        }
        let one = apt.unpack_one(None, "whole", &root);
        for answer in [apt.unpack(None, &["whole"], &root), one] {
            assert!(
                matches!(&answer, Err(Failure::Unfetched(what)) if what.contains("whole.deb")),
                "{answer:?}"
            );
        }
        fs::remove_file(folder.join("Packages")).expect("a file");
        let gone = Apt::with_sources(
            &folder.join("other"),
            &format!("deb [trusted=yes] file:{} ./\n", folder.display()),
            "amd64".into(),
        );
        assert!(matches!(gone, Err(Failure::Unfetched(_))), "{gone:?}");
        fs::remove_dir_all(&folder).expect("a folder");
    }

    #[test]
    fn a_program_that_fails_to_fetch_has_not_fetched_and_one_that_is_not_there_is_missing() {
        let failed = fetch(Command::new("sh").args(["-c", "echo 404 >&2; exit 1"]));
        assert!(matches!(failed, Err(Failure::Unfetched(what)) if what.contains("404")));
        let absent = fetch(&mut Command::new("/nonexistent/apt-get"));
        assert!(matches!(absent, Err(Failure::Run { .. })));
    }
}
