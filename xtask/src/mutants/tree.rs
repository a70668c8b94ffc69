//! A copy of the working tree with planted bugs.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::draw;
use super::packages::PACKAGES;
use crate::failure::Failure;

/// Prefixes of the files that determine a mutant's outcome: the packages that are built, and their
/// tests.
const DEPENDED_ON: [&str; 13] = [
    "Cargo.",
    "src/",
    "wqe/",
    "cq/",
    "cm/",
    "async/",
    "verbs/",
    "prm/",
    "doorbell/",
    "uapi/",
    "sim/",
    "tests/src/",
    "tests/suite/",
];

/// The package that selects the active bug.
const SWITCH: &str = "mlx5-mutant";

/// The files of the working tree.
pub(super) struct Sources {
    files: Vec<(String, Vec<u8>)>,
}

impl Sources {
    /// Reads all files that git tracks or would add.
    pub(super) fn of(root: &Path) -> Result<Self, Failure> {
        let mut command = Command::new("git");
        command.arg("-C").arg(root);
        command.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let output = command.output();
        let output = output.map_err(|error| Failure::Run { program: "git".into(), error })?;
        if !output.status.success() {
            return Err(Failure::Status { program: "git ls-files".into(), status: output.status });
        }
        let names = String::from_utf8_lossy(&output.stdout);
        let mut names: Vec<&str> = names.split('\0').filter(|name| !name.is_empty()).collect();
        names.sort_unstable();
        names.dedup();
        let mut files = Vec::new();
        for name in names {
            let path = root.join(name);
            match fs::read(&path) {
                Ok(bytes) => files.push((name.to_owned(), bytes)),
                // The file is deleted, and git's index still has it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(Failure::File { path, error }),
            }
        }
        Ok(Self { files })
    }

    /// Contents of a file.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        let (_, bytes) = self.files.iter().find(|(file, _)| file == name)?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    }

    /// A hash of everything that an outcome depends on.
    pub(super) fn hash(&self) -> u64 {
        let counts = |name: &str| DEPENDED_ON.iter().any(|prefix| name.starts_with(prefix));
        self.files.iter().filter(|(name, _)| counts(name)).fold(0, |hash, (name, bytes)| {
            let file = draw::hash(&format!("{name}\0{}", String::from_utf8_lossy(bytes)));
            hash ^ file.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        })
    }
}

/// The copy.
pub(super) struct Tree {
    root: PathBuf,
    built: PathBuf,
}

impl Tree {
    /// Makes the copy from the sources, and adds the package of the switch. A file with the same
    /// contents stays untouched, so that Cargo rebuilds little; so do the planted files, which are
    /// written later.
    pub(super) fn lay(
        sources: &Sources,
        folder: &Path,
        planted: &HashSet<&str>,
    ) -> Result<Self, Failure> {
        let tree = Self { root: folder.join("tree"), built: folder.join("build") };
        let mut files: Vec<(String, String)> = Vec::new();
        for (name, bytes) in &sources.files {
            let text = String::from_utf8_lossy(bytes).into_owned();
            files.push((name.clone(), text));
        }
        for package in PACKAGES {
            let path = format!("{}Cargo.toml", package.folder);
            if let Some((_, text)) = files.iter_mut().find(|(name, _)| *name == path) {
                let up = package.up();
                let line = format!("\n[dependencies]\n{SWITCH} = {{ path = \"{up}mutant\" }}\n");
                *text = text.replacen("\n[dependencies]\n", &line, 1);
                *text = text.replacen("members = [", "members = [\"mutant\", ", 1);
            }
        }
        let manifest =
            format!("[package]\nname = \"{SWITCH}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n");
        files.push(("mutant/Cargo.toml".to_owned(), manifest));
        files.push(("mutant/src/lib.rs".to_owned(), include_str!("switch.rs.txt").to_owned()));
        for (name, text) in &files {
            // Cargo adds the switch's package to it.
            let is_there = name == "Cargo.lock" && tree.root.join(name).exists();
            if !is_there && !planted.contains(name.as_str()) {
                tree.write(name, text)?;
            }
        }
        let names: HashSet<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        tree.remove_others(&tree.root, &names)?;
        Ok(tree)
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Cargo's target folder.
    pub(super) fn built(&self) -> &Path {
        &self.built
    }

    pub(super) fn read(&self, name: &str) -> Result<String, Failure> {
        let path = self.root.join(name);
        fs::read_to_string(&path).map_err(|error| Failure::File { path, error })
    }

    /// Writes a file unless it already has this text.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<(), Failure> {
        let path = self.root.join(name);
        if fs::read(&path).is_ok_and(|bytes| bytes == text.as_bytes()) {
            return Ok(());
        }
        let folder = path.parent().unwrap_or(&self.root);
        let written = fs::create_dir_all(folder).and_then(|()| fs::write(&path, text));
        written.map_err(|error| Failure::File { path, error })
    }

    /// Removes files that the sources do not have any more.
    fn remove_others(&self, folder: &Path, names: &HashSet<&str>) -> Result<(), Failure> {
        let failed = |error| Failure::File { path: folder.to_owned(), error };
        for entry in fs::read_dir(folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name =
                path.strip_prefix(&self.root).unwrap_or(&path).to_string_lossy().into_owned();
            if path.is_dir() {
                self.remove_others(&path, names)?;
            } else if !names.contains(name.as_str()) && name != "Cargo.lock" {
                fs::remove_file(&path).map_err(failed)?;
            }
        }
        Ok(())
    }
}
