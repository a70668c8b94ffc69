//! Runs programs of packages that are unpacked, not installed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders of libraries in packages for this architecture.
const LIBRARIES: [&str; 2] = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"];

/// A folder in which packages are unpacked.
#[derive(Debug)]
pub(crate) struct Root(PathBuf);

impl Root {
    /// The packages in `folder`.
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// Path of a file of the packages.
    pub(crate) fn join(&self, path: impl AsRef<Path>) -> PathBuf {
        self.0.join(path)
    }

    /// Path of a program.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        let [first, second] = ["usr/bin", "bin"].map(|folder| self.join(folder).join(name));
        if first.exists() { first } else { second }
    }

    /// A command that runs a program with the packages' libraries.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.loader());
        command.arg("--library-path").arg(self.libraries()).arg(self.program(program));
        command
    }

    /// The dynamic loader.
    pub(crate) fn loader(&self) -> PathBuf {
        const LOADER: &str = "ld-linux-x86-64.so.2";
        let folders = LIBRARIES.iter().map(|folder| self.join(folder));
        let mut paths = folders.map(|folder| folder.join(LOADER));
        paths.find(|path| Path::exists(path)).unwrap_or_else(|| PathBuf::from(LOADER))
    }

    /// The loader's library path.
    pub(crate) fn libraries(&self) -> OsString {
        LIBRARIES.map(|folder| self.join(folder).into_os_string()).join(":".as_ref())
    }
}
