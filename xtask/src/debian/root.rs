//! Programs of packages that were unpacked and not installed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where packages for this architecture have their libraries.
const LIBRARIES: [&str; 2] = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"];

/// A folder below which packages lie.
#[derive(Debug)]
pub(crate) struct Root(PathBuf);

impl Root {
    /// That folder.
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// A path of the packages.
    pub(crate) fn join(&self, path: impl AsRef<Path>) -> PathBuf {
        self.0.join(path)
    }

    /// Where a program is.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        let [first, second] = ["usr/bin", "bin"].map(|folder| self.join(folder).join(name));
        if first.exists() { first } else { second }
    }

    /// A command that runs a program with the libraries that it came with.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.loader());
        command.arg("--library-path").arg(self.libraries()).arg(self.program(program));
        command
    }

    /// What loads a program and its libraries.
    pub(crate) fn loader(&self) -> PathBuf {
        const LOADER: &str = "ld-linux-x86-64.so.2";
        let folders = LIBRARIES.iter().map(|folder| self.join(folder));
        let mut paths = folders.map(|folder| folder.join(LOADER));
        paths.find(|path| Path::exists(path)).unwrap_or_else(|| PathBuf::from(LOADER))
    }

    /// Where the loader finds libraries.
    pub(crate) fn libraries(&self) -> OsString {
        LIBRARIES.map(|folder| self.join(folder).into_os_string()).join(":".as_ref())
    }
}
