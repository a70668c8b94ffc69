//! The files that a command reads or writes: `-` is stdin or stdout.

use crate::failure::Failure;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Whether this is stdin or stdout.
pub(crate) fn is_dash(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Where results go.
pub(crate) enum Output {
    /// To stdout.
    Stdout,
    /// To a file, by its name.
    File(PathBuf, BufWriter<File>),
}

impl Output {
    /// Creates the file, so that one that cannot be written is told before there is anything to lose.
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        if is_dash(path) {
            return Ok(Self::Stdout);
        }
        let file = File::create(path).map_err(|error| cannot(path, &error))?;
        Ok(Self::File(path.to_owned(), BufWriter::new(file)))
    }

    /// The same if there is a path, and stdout if there is none.
    pub(crate) fn create_or_stdout(path: Option<&Path>) -> Result<Self, Failure> {
        path.map_or(Ok(Self::Stdout), Self::create)
    }

    /// What to write to, where `out` is stdout.
    pub(crate) fn writer<'a>(&'a mut self, out: &'a mut dyn Write) -> &'a mut dyn Write {
        match self {
            Self::Stdout => out,
            Self::File(_, file) => file,
        }
    }

    /// Writes what is left of a file.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        match &mut self {
            Self::Stdout => Ok(()),
            Self::File(path, file) => file.flush().map_err(|error| cannot(path, &error)),
        }
    }
}

fn cannot(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("cannot write {}: {error}", path.display()))
}
