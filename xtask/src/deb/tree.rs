//! Lays out the package's files for dpkg-deb.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::control::About;
use super::{read, says};
use crate::debian::cache::in_file;
use crate::failure::Failure;

/// A folder that becomes a package.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) root: PathBuf,
    /// Paths of all files, relative to the root.
    files: Vec<String>,
    /// Their size in KiB, in Debian's way of counting: each file rounded up, and one for each
    /// folder.
    kilobytes: u64,
}

impl Tree {
    /// An empty tree in a folder that does not exist yet.
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root, files: Vec::new(), kilobytes: 1 }
    }

    /// Adds a program.
    pub(super) fn program(&mut self, path: &str, bytes: &[u8]) -> Result<(), Failure> {
        self.add(path, bytes, 0o755)
    }

    /// Adds a data file.
    pub(super) fn file(&mut self, path: &str, bytes: &[u8]) -> Result<(), Failure> {
        self.add(path, bytes, 0o644)
    }

    /// Adds a file as `PATH.gz`, without a name or a time in its header.
    pub(super) fn compressed(&mut self, path: &str, bytes: &[u8]) -> Result<(), Failure> {
        self.add(path, bytes, 0o644)?;
        self.files.pop();
        self.kilobytes -= kilobytes(bytes.len());
        says(Command::new("gzip").args(["-9", "--no-name"]).arg(self.root.join(path)))?;
        let path = format!("{path}.gz");
        self.kilobytes += kilobytes(read(&self.root.join(&path))?.len());
        self.files.push(path);
        Ok(())
    }

    /// Adds a link to a file in the same folder. dpkg has no checksum of it.
    pub(super) fn link(&mut self, path: &str, target: &str) -> Result<(), Failure> {
        self.folders(path)?;
        let path = self.root.join(path);
        self.kilobytes += 1;
        symlink(target, &path).map_err(in_file(&path))
    }

    /// Adds dpkg's control files, after all other files.
    pub(super) fn control(&mut self, about: &About) -> Result<(), Failure> {
        self.files.sort();
        let mut sums = Command::new("md5sum");
        sums.args(&self.files).current_dir(&self.root);
        let sums = says(&mut sums)?;
        let control = about.control(self.kilobytes);
        self.lay("DEBIAN/control", control.as_bytes(), 0o644)?;
        self.lay("DEBIAN/md5sums", sums.as_bytes(), 0o644)?;
        self.lay("DEBIAN/prerm", include_bytes!("prerm.sh"), 0o755)
    }

    fn add(&mut self, path: &str, bytes: &[u8], mode: u32) -> Result<(), Failure> {
        self.lay(path, bytes, mode)?;
        self.kilobytes += kilobytes(bytes.len());
        self.files.push(path.to_owned());
        Ok(())
    }

    fn lay(&mut self, path: &str, bytes: &[u8], mode: u32) -> Result<(), Failure> {
        self.folders(path)?;
        let path = self.root.join(path);
        fs::write(&path, bytes).map_err(in_file(&path))?;
        set_mode(&path, mode)
    }

    /// Creates the parent folders of a path, with a fixed mode, whatever the umask is.
    fn folders(&mut self, path: &str) -> Result<(), Failure> {
        let mut above: Vec<&Path> = Path::new(path).ancestors().skip(1).collect();
        above.reverse();
        for folder in above {
            let folder = self.root.join(folder);
            if !folder.exists() {
                fs::create_dir_all(&folder).map_err(in_file(&folder))?;
                set_mode(&folder, 0o755)?;
                let is_control = folder.ends_with("DEBIAN");
                self.kilobytes += u64::from(!is_control && folder != self.root);
            }
        }
        Ok(())
    }
}

fn kilobytes(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(1024)
}

fn set_mode(path: &Path, mode: u32) -> Result<(), Failure> {
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(in_file(path))
}
