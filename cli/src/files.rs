//! The files that a command reads or writes: `-` is stdin or stdout.

use crate::failure::Failure;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Whether this is stdin or stdout.
pub(crate) fn is_dash(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Whether two paths name one file, which may not exist yet.
pub(crate) fn is_same(one: &Path, other: &Path) -> bool {
    let whole = |path: &Path| path.canonicalize().or_else(|_| std::path::absolute(path)).ok();
    one == other || whole(one).is_some_and(|path| Some(path) == whole(other))
}

/// Destination of results.
pub(crate) enum Output {
    Stdout,
    File(Named),
}

impl Output {
    /// Creates the file, so that a path that cannot be written is an error before there are results
    /// to lose.
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        if is_dash(path) {
            return Ok(Self::Stdout);
        }
        let file = File::create(path).map_err(|error| named(path, &error))?;
        Ok(Self::File(Named { path: path.to_owned(), file: BufWriter::new(file) }))
    }

    /// The same if there is a path, and stdout if there is none.
    pub(crate) fn create_or_stdout(path: Option<&Path>) -> Result<Self, Failure> {
        path.map_or(Ok(Self::Stdout), Self::create)
    }

    /// The writer of results, where `out` is stdout.
    pub(crate) fn writer<'a>(&'a mut self, out: &'a mut dyn Write) -> &'a mut dyn Write {
        match self {
            Self::Stdout => out,
            Self::File(file) => file,
        }
    }

    /// Writes the buffered rest of a file.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        match self {
            Self::Stdout => Ok(()),
            Self::File(mut file) => Ok(file.flush()?),
        }
    }
}

/// A file whose errors have its name.
pub(crate) struct Named {
    path: PathBuf,
    file: BufWriter<File>,
}

impl Write for Named {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes).map_err(|error| named(&self.path, &error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush().map_err(|error| named(&self.path, &error))
    }
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display()))
}
