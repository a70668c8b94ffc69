//! A cache of fetched and unpacked packages, outside the tree.

use std::env;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

use crate::failure::Failure;

/// A folder in the user's cache that one process changes at a time.
#[derive(Debug)]
pub(crate) struct Cache {
    root: PathBuf,
    /// Holds the lock as long as this value lives.
    _lock: Flock<File>,
}

impl Cache {
    /// Opens the cache of this name: `$XDG_CACHE_HOME/NAME`, or XDG's default. Waits while another
    /// process has it open.
    pub(crate) fn open(name: &str) -> Result<Self, Failure> {
        let root = base()?.join(name);
        make(&root)?;
        let path = root.join("lock");
        let file = File::create(&path).map_err(in_file(&path))?;
        let lock = Flock::lock(file, FlockArg::LockExclusive)
            .map_err(|(_, errno)| in_file(&path)(errno.into()))?;
        Ok(Self { root, _lock: lock })
    }

    /// Path of the part of this name. `fill` makes it in an empty folder if it is not there yet.
    ///
    /// A part is complete or absent.
    pub(crate) fn part(
        &self,
        name: &str,
        fill: impl FnOnce(&Path) -> Result<(), Failure>,
    ) -> Result<PathBuf, Failure> {
        let done = self.root.join(name);
        if done.is_dir() {
            return Ok(done);
        }
        let partial = self.root.join(format!("{name}.partial"));
        remove(&partial)?;
        make(&partial)?;
        fill(&partial)?;
        fs::rename(&partial, &done).map_err(in_file(&done))?;
        Ok(done)
    }

    /// Deletes all parts.
    pub(crate) fn clear(&self) -> Result<(), Failure> {
        for entry in fs::read_dir(&self.root).map_err(in_file(&self.root))? {
            let path = entry.map_err(in_file(&self.root))?.path();
            if path.is_dir() {
                remove(&path)?;
            }
        }
        Ok(())
    }
}

/// Folder of the user's caches.
fn base() -> Result<PathBuf, Failure> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    base.ok_or_else(|| {
        Failure::Packages(
            "neither XDG_CACHE_HOME nor HOME says where to keep what is fetched".into(),
        )
    })
}

/// Creates a folder and its parents.
pub(crate) fn make(folder: &Path) -> Result<(), Failure> {
    fs::create_dir_all(folder).map_err(in_file(folder))
}

/// Removes a folder and its contents, if there is one.
pub(crate) fn remove(folder: &Path) -> Result<(), Failure> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(in_file(folder)(error)),
        _ => Ok(()),
    }
}

/// Paths in a folder, sorted.
pub(crate) fn files(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(in_file(folder))? {
        paths.push(entry.map_err(in_file(folder))?.path());
    }
    paths.sort();
    Ok(paths)
}

/// The last part of a path.
pub(crate) fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Wraps an error with the path it is about.
pub(crate) fn in_file(path: &Path) -> impl FnOnce(io::Error) -> Failure {
    let path = path.to_owned();
    move |error| Failure::File { path, error }
}
