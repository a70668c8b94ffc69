//! A minimal Debian in a folder, with a dpkg database. A package is installed there as on a real
//! machine, and the machine itself does not change.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::build;
use crate::debian::apt::{Apt, codename};
use crate::debian::cache::{Cache, files, in_file, make, remove};
use crate::failure::Failure;

/// Packages whose dependencies include the rest: a shell and the few programs of every Debian, and
/// programs that use rdma-core's libraries.
const PACKAGES: [&str; 10] = [
    "base-files",
    "coreutils",
    "dash",
    "dpkg",
    "grep",
    "ibverbs-providers",
    "ibverbs-utils",
    "libc-bin",
    "perftest",
    "sed",
];

/// A minimal Debian.
#[derive(Debug)]
pub(super) struct Bare {
    root: PathBuf,
}

impl Bare {
    /// Creates it in a folder. Its packages come from this machine's release, and are fetched
    /// unless they are in the cache.
    pub(super) fn lay(root: &Path) -> Result<Self, Failure> {
        let release = codename();
        let cache = Cache::open("mlx5-deb")?;
        // The list is a part of the name, so a changed list is fetched again.
        let part = format!("{release}-{}", PACKAGES.join("-"));
        let kept = cache.part(&part, |folder| {
            eprintln!("deb: fetching a bare Debian of {release}");
            let apt = Apt::new(&folder.join("apt"), &[&*release])?;
            apt.download(&PACKAGES, &folder.join("packages"))?;
            remove(&folder.join("apt"))
        })?;
        remove(root)?;
        make(root)?;
        let bare = Self { root: root.to_owned() };
        let mut status = String::new();
        let information = root.join("var/lib/dpkg/info");
        for package in files(&kept.join("packages"))? {
            let dpkg = |what: &str| build::says(Command::new("dpkg-deb").arg(what).arg(&package));
            let record = dpkg("--field")?;
            let (first, rest) = record.split_once('\n').unwrap_or((&record, ""));
            status += &format!("{first}\nStatus: install ok installed\n{rest}\n");
            build::says(Command::new("dpkg-deb").arg("--extract").arg(&package).arg(root))?;
            make(&information)?;
            let list = information.join(format!("{}.list", name(&record)));
            let paths = build::says(Command::new("dpkg-deb").arg("--contents").arg(&package))?;
            fs::write(&list, paths_of(&paths)).map_err(in_file(&list))?;
        }
        for folder in ["var/lib/dpkg/updates", "var/lib/dpkg/triggers", "tmp", "dev"] {
            make(&root.join(folder))?;
        }
        // Files that the packages' own scripts would write.
        for (path, text) in [
            ("var/lib/dpkg/status", &*status),
            ("var/lib/dpkg/available", ""),
            ("etc/ld.so.conf", "include /etc/ld.so.conf.d/*.conf\n"),
            ("dev/null", ""),
        ] {
            let path = root.join(path);
            fs::write(&path, text).map_err(in_file(&path))?;
        }
        bare.run(&["/sbin/ldconfig"])?;
        Ok(bare)
    }

    /// Runs this machine's dpkg on it.
    pub(super) fn dpkg(&self, arguments: &[&str]) -> Result<(), Failure> {
        let mut command = as_root("dpkg");
        command.arg("--root").arg(&self.root).args(arguments);
        // The path in which dpkg and the packages' scripts look for programs.
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C");
        succeeded("dpkg", output(command)?).map(drop)
    }

    /// Runs a program in it; returns the output, or fails.
    pub(super) fn run(&self, words: &[&str]) -> Result<String, Failure> {
        succeeded(words[0], self.output(words)?)
    }

    /// Runs a program in it; returns output and status.
    pub(super) fn output(&self, words: &[&str]) -> Result<Output, Failure> {
        let mut command = as_root("chroot");
        command.arg(&self.root).args(words);
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C");
        output(command)
    }

    /// Whether it has a file.
    pub(super) fn has(&self, path: &str) -> bool {
        self.root.join(path).symlink_metadata().is_ok()
    }

    /// Paths of all files below the folders of packages and of settings, except for the data of
    /// dpkg and of the loader.
    pub(super) fn paths(&self) -> Result<Vec<String>, Failure> {
        let mut find = Command::new("find");
        find.args(["usr", "etc", "-not", "-path", "etc/ld.so.cache"]).current_dir(&self.root);
        let mut paths: Vec<String> = build::says(&mut find)?.lines().map(str::to_owned).collect();
        paths.sort();
        Ok(paths)
    }
}

/// A command that runs as root: the real one, or the root of a user namespace.
fn as_root(program: &str) -> Command {
    if nix::unistd::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", program]);
    command
}

fn output(mut command: Command) -> Result<Output, Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.output().map_err(|error| Failure::Run { program, error })
}

fn succeeded(program: &str, output: Output) -> Result<String, Failure> {
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok(said(&output.stdout));
    }
    Err(Failure::Packages(format!(
        "{program} ended with {} in the bare Debian:\n{}{}",
        output.status,
        said(&output.stdout),
        said(&output.stderr).trim()
    )))
}

/// Name of a package in dpkg's database: with the architecture, if several may be installed.
fn name(record: &str) -> String {
    let field = |name: &str| {
        let mut lines = record.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).unwrap_or_default()
    };
    match field("Multi-Arch") {
        "same" => format!("{}:{}", field("Package"), field("Architecture")),
        _ => field("Package").to_owned(),
    }
}

/// The list of a package's paths in dpkg's database.
fn paths_of(contents: &str) -> String {
    let path = |line: &str| {
        let path = line.split_whitespace().nth(5)?.strip_prefix('.')?.trim_end_matches('/');
        Some(if path.is_empty() { "/.\n".to_owned() } else { format!("{path}\n") })
    };
    contents.lines().filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dpkg_keeps_packages_of_several_architectures_by_both() {
        let record = "Package: libc6\nArchitecture: amd64\nMulti-Arch: same\n";
        assert_eq!(name(record), "libc6:amd64");
        assert_eq!(name("Package: dash\nArchitecture: amd64\n"), "dash");
    }

    #[test]
    fn dpkg_keeps_paths_as_they_are_in_the_system() {
        let contents = "drwxr-xr-x root/root 0 2026-11-23 06:34 ./\n\
                        drwxr-xr-x root/root 0 2026-11-23 06:34 ./bin/\n\
                        lrwxrwxrwx root/root 0 2026-11-23 06:34 ./bin/sh -> dash\n";
        assert_eq!(paths_of(contents), "/.\n/bin\n/bin/sh\n");
    }
}
