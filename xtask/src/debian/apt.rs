//! Debian's packages, fetched by apt into folders of our own: nothing is installed, and the
//! machine's own apt is not touched.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::cache::{in_file, make};
use crate::failure::Failure;

/// What apt checks the archive's signature with.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// A private apt that knows some suites of the archive, and of no package installed.
#[derive(Debug)]
pub(crate) struct Apt {
    folder: PathBuf,
}

impl Apt {
    /// Fetches the lists of `suites` from the mirror that this machine uses.
    pub(crate) fn new(folder: &Path, suites: &[&str]) -> Result<Self, Failure> {
        if !Path::new(KEYRING).exists() {
            return Err(Failure::Missing("apt-get install debian-archive-keyring".into()));
        }
        let mirror = mirror()?;
        for part in ["lists/partial", "cache/archives/partial"] {
            make(&folder.join(part))?;
        }
        let lines: String = suites
            .iter()
            .map(|suite| format!("deb [signed-by={KEYRING}] {mirror} {suite} main\n"))
            .collect();
        for (name, text) in [("sources.list", lines.as_str()), ("status", "")] {
            let path = folder.join(name);
            fs::write(&path, text).map_err(in_file(&path))?;
        }
        let apt = Self { folder: folder.to_owned() };
        apt.run("apt-get", ["update", "--quiet=2", "--error-on=any"])?;
        Ok(apt)
    }

    /// The package that a package without content of its own stands for.
    pub(crate) fn behind(&self, package: &str, begins: &str) -> Result<String, Failure> {
        let record = self.run("apt-cache", ["show", "--no-all-versions", package])?;
        let depends = record.lines().find_map(|line| line.strip_prefix("Depends: "));
        let names = depends.unwrap_or_default().split(", ").filter_map(|one| one.split(' ').next());
        names.into_iter().find(|name| name.starts_with(begins)).map(str::to_owned).ok_or_else(
            || Failure::Output {
                program: "apt-cache".into(),
                what: format!("no {begins}* that {package} depends on"),
            },
        )
    }

    /// Fetches a package alone, and unpacks it into `root`.
    pub(crate) fn unpack_one(&self, package: &str, root: &Path) -> Result<(), Failure> {
        let folder = self.folder.join("alone").join(package);
        make(&folder)?;
        let mut command = self.command("apt-get");
        run(command.args(["download", "--quiet=2", package]).current_dir(&folder))?;
        unpack(&folder, root)
    }

    /// Fetches packages with all that they depend on, and unpacks them into `root`.
    pub(crate) fn unpack(
        &self,
        release: Option<&str>,
        packages: &[&str],
        root: &Path,
    ) -> Result<(), Failure> {
        let mut command = self.command("apt-get");
        command.args(["--quiet=2", "--yes", "--no-install-recommends", "--download-only"]);
        if let Some(release) = release {
            command.args(["--target-release", release]);
        }
        run(command.arg("install").args(packages))?;
        unpack(&self.folder.join("cache/archives"), root)
    }

    fn run<'a>(
        &self,
        program: &str,
        arguments: impl IntoIterator<Item = &'a str>,
    ) -> Result<String, Failure> {
        run(self.command(program).args(arguments))
    }

    /// A program of apt that looks into our folder alone.
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
            ("APT::Architectures", "amd64"),
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

/// Where this machine fetches Debian's packages from.
fn mirror() -> Result<String, Failure> {
    const OURS: [&str; 3] = ["indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)"];
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let codename = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let codename = codename.unwrap_or_default().trim_matches('"');
    let targets = run(Command::new("apt-get").args(OURS).arg("Created-By: Packages"))?;
    debian(&targets, codename).map(str::to_owned).ok_or_else(|| {
        Failure::Packages(format!(
            "this machine's apt knows no archive of {codename} with a component main: what is needed \
             are Debian's packages, fetched from where this machine's are"
        ))
    })
}

/// The address of the archive that has a release whole, not its updates alone.
fn debian<'a>(targets: &'a str, codename: &str) -> Option<&'a str> {
    targets.lines().find_map(|line| match line.split(' ').collect::<Vec<_>>()[..] {
        [uri, release, "main"] if release == codename && !codename.is_empty() => Some(uri),
        _ => None,
    })
}

/// Runs a program to its end, and gives what it wrote.
fn run(command: &mut Command) -> Result<String, Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output =
        command.output().map_err(|error| Failure::Run { program: program.clone(), error })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Failure::Packages(format!("{program} ended with {}:\n{}", output.status, said.trim_end())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_that_of_the_release_itself() {
        let targets = "http://a/security/ one-security main\nhttp://b/ one contrib\n\
                       http://c/debian/ one main\nhttp://d/ two main\n";
        assert_eq!(debian(targets, "one"), Some("http://c/debian/"));
        assert_eq!(debian(targets, "three"), None);
        assert_eq!(debian("http://a/  main\n", ""), None);
    }
}
