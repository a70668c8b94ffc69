//! The device tree on disk: sysfs and the device nodes.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use mlx5_sim::kernel::SysfsEntry;
use mlx5_uapi::queues::Noted;
use mlx5_uapi::rdma_cm;

/// Part of the paths of a device's network interfaces. These paths are left out: a program would
/// look for an interface by its name in the machine's own network (`ip addr show eth2`), where a
/// simulated device has none.
const INTERFACES: &str = "/device/net/";
/// Part of the paths of a port's counters. These paths are left out: a file would keep the value
/// that the counter had when the file was written.
const COUNTERS: &str = "/hw_counters/";

/// Prefix of the names of the trees' directories. The number of the process and a count follow.
const PREFIX: &str = Noted::TREE;
/// Suffix of the name of a directory's lock: a file beside the directory, which is locked while the
/// directory is in use.
const LOCK: &str = ".lock";
/// Directory in `/sys` that describes the verbs nodes.
const VERBS: &str = "class/infiniband_verbs";
/// Directory of the device nodes.
const NODES: &str = "dev/infiniband";

/// A file's identity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

/// A device node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Node {
    /// Name, for example `uverbs0`.
    pub(crate) name: String,
    /// Major and minor number.
    pub(crate) numbers: (u32, u32),
    /// The empty file that stands for the node.
    file: Identity,
}

/// The device tree of a machine, in a directory on disk.
pub(crate) struct Tree {
    root: PathBuf,
    /// Paths of the devices' directories, below `/sys/devices`.
    devices: Vec<String>,
    nodes: Vec<Node>,
    _lock: File,
}

impl Tree {
    /// Writes the tree of a machine. The paths of `entries` are sorted.
    pub(crate) fn write(entries: &[(String, SysfsEntry)]) -> io::Result<Self> {
        let above = std::env::temp_dir();
        sweep(&above);
        let (root, lock) = make_root(&above)?;
        let mut tree = Self { root, devices: Vec::new(), nodes: Vec::new(), _lock: lock };
        let written = tree.fill(entries);
        if written.is_err() {
            tree.remove();
        }
        written.map(|()| tree)
    }

    fn fill(&mut self, entries: &[(String, SysfsEntry)]) -> io::Result<()> {
        let nodes = self.root.join(NODES);
        fs::create_dir_all(&nodes)?;
        File::create(self.notes())?;
        let sys = self.root.join("sys");
        fs::create_dir_all(sys.join("class/infiniband"))?;
        let mut made = PathBuf::new();
        // The paths are sorted, so a link precedes the paths below it.
        let is_left_out = |path: &str| path.contains(INTERFACES) || path.contains(COUNTERS);
        for (path, entry) in entries.iter().filter(|(path, _)| !is_left_out(path)) {
            let place = sys.join(path);
            let above = place.parent().unwrap_or(&sys).to_owned();
            if made != above {
                fs::create_dir_all(&above)?;
                made.clone_from(&above);
            }
            match entry {
                SysfsEntry::File(contents) => {
                    fs::write(&place, contents)?;
                    if path.strip_prefix(rdma_cm::SYSFS) == Some("/dev") {
                        self.node(&nodes, rdma_cm::NODE, contents)?;
                    }
                    if let Some(name) =
                        path.strip_prefix(VERBS).and_then(|rest| rest.strip_suffix("/dev"))
                    {
                        self.node(&nodes, name.trim_matches('/'), contents)?;
                    }
                }
                SysfsEntry::Link(target) => self.link(&sys, &place, target)?,
            }
        }
        Ok(())
    }

    /// Makes a link, and the directory to which it leads.
    fn link(&mut self, sys: &Path, place: &Path, target: &str) -> io::Result<()> {
        // Two of the paths may lead to the same link.
        if fs::symlink_metadata(place).is_ok() {
            return Ok(());
        }
        let above = fs::canonicalize(place.parent().unwrap_or(sys))?;
        let mut full = above;
        for part in Path::new(target).components() {
            match part {
                Component::ParentDir => _ = full.pop(),
                part => full.push(part),
            }
        }
        fs::create_dir_all(&full)?;
        symlink(target, place)?;
        if let Ok(shown) = full.strip_prefix(&self.root)
            && let Some(shown) = shown.to_str().map(|shown| format!("/{shown}"))
            && shown.starts_with("/sys/devices/")
            && place.ends_with("device")
            && !self.devices.contains(&shown)
        {
            self.devices.push(shown);
        }
        Ok(())
    }

    fn node(&mut self, nodes: &Path, name: &str, numbers: &str) -> io::Result<()> {
        let place = nodes.join(name);
        let file = File::create(&place)?.metadata()?;
        let file = Identity { device: file.dev(), inode: file.ino() };
        let numbers = numbers
            .trim()
            .split_once(':')
            .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        let numbers = numbers.ok_or(io::ErrorKind::InvalidData)?;
        self.nodes.push(Node { name: name.to_owned(), numbers, file });
        Ok(())
    }

    /// The directory in which `/sys` and `/dev` are found.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Path of the file with the notes about queues, which tracers read.
    pub(crate) fn notes(&self) -> PathBuf {
        self.root.join(Noted::FILE)
    }

    /// Paths of the devices' directories, below `/sys/devices`.
    pub(crate) fn devices(&self) -> &[String] {
        &self.devices
    }

    /// The node that a file stands for.
    pub(crate) fn node_of(&self, file: Identity) -> Option<&Node> {
        self.nodes.iter().find(|node| node.file == file)
    }

    /// Path of the file that stands for a node.
    pub(crate) fn place_of(&self, node: &Node) -> PathBuf {
        self.root.join(NODES).join(&node.name)
    }

    /// Removes the tree from the disk.
    pub(crate) fn remove(&self) {
        // If this fails, another process removes the tree when it sweeps.
        let _ = remove(&self.root);
    }
}

fn make_root(above: &Path) -> io::Result<(PathBuf, File)> {
    let above = fs::canonicalize(above)?;
    let id = std::process::id();
    let mut number = 0;
    loop {
        let root = above.join(format!("{PREFIX}{id}-{number}"));
        let path = lock_of(&root);
        match File::options().write(true).create_new(true).open(&path) {
            // The sweep of another process may have locked or removed the file meanwhile: try
            // again.
            Ok(lock) if !try_lock(&lock) || !is_at(&lock, &path) => {}
            Ok(lock) => match fs::create_dir(&root) {
                Ok(()) => return Ok((root, lock)),
                Err(error) => {
                    fs::remove_file(path)?;
                    if error.kind() != io::ErrorKind::AlreadyExists {
                        return Err(error);
                    }
                    number += 1;
                }
            },
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Path of a directory's lock. The lock is a file beside the directory, so that it can exist longer
/// than the directory.
fn lock_of(root: &Path) -> PathBuf {
    let mut name = root.as_os_str().to_owned();
    name.push(LOCK);
    name.into()
}

/// Removes a directory, and then its lock. If the process is killed in between, the next sweep
/// removes the rest.
fn remove(root: &Path) -> io::Result<()> {
    match fs::remove_dir_all(root) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => fs::remove_file(lock_of(root)),
    }
}

fn try_lock(file: &File) -> bool {
    // SAFETY: the descriptor is open.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 }
}

/// Whether the open file is still the one at the path: meanwhile another process may have made a
/// file there.
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |of: fs::Metadata| (of.dev(), of.ino());
    let one = file.metadata().map(identity);
    let other = fs::symlink_metadata(path).map(identity);
    one.is_ok_and(|one| other.is_ok_and(|other| one == other))
}

/// Removes the directories that processes left when they were killed.
fn sweep(above: &Path) {
    let Ok(entries) = fs::read_dir(above) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let Some(root) = name.strip_suffix(LOCK).filter(|root| root.starts_with(PREFIX)) else {
            continue;
        };
        let lock = File::options().read(true).custom_flags(libc::O_NOFOLLOW).open(&path);
        if lock.is_ok_and(|lock| try_lock(&lock) && is_at(&lock, &path)) {
            // A directory of another user cannot be removed, and stays.
            let _ = remove(&above.join(root));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes an empty directory, in which the test makes the directories of processes.
    fn above(name: &str) -> PathBuf {
        let name = format!("mlx5-tree-{name}-{}", std::process::id());
        let above = std::env::temp_dir().join(name);
        fs::create_dir(&above).expect("a directory");
        above
    }

    #[test]
    fn what_killed_processes_left_is_swept_and_what_is_used_stays() {
        let above = above("sweep");
        let (used, lock) = make_root(&above).expect("a directory");
        let (left, killed) = make_root(&above).expect("a directory");
        fs::create_dir_all(left.join("sys/class")).expect("a directory");
        drop(killed);
        // The lock of a process that was killed before it made its directory, or after it removed
        // the directory.
        let early = lock_of(&above.join(format!("{PREFIX}1-0")));
        File::create(&early).expect("a file");
        // A lock that is a link to another place: the sweep leaves the link and that place alone.
        let (elsewhere, link) =
            (above.join("elsewhere.lock"), above.join(format!("{PREFIX}2-0.lock")));
        File::create(&elsewhere).expect("a file");
        symlink(&elsewhere, &link).expect("a link");
        fs::create_dir(above.join(format!("{PREFIX}2-0"))).expect("a directory");
        sweep(&above);
        assert_eq!([used.exists(), lock_of(&used).exists()], [true, true]);
        assert_eq!([left.exists(), lock_of(&left).exists(), early.exists()], [false; 3]);
        assert!(above.join(format!("{PREFIX}2-0")).exists() && elsewhere.exists());
        drop(lock);
        sweep(&above);
        assert_eq!([used.exists(), lock_of(&used).exists()], [false, false]);
        fs::remove_dir_all(&above).expect("it can be removed");
    }

    #[test]
    fn a_directory_that_is_there_is_not_taken() {
        let above = above("taken");
        let first = above.join(format!("{PREFIX}{}-0", std::process::id()));
        fs::create_dir(&first).expect("a directory");
        let (root, _lock) = make_root(&above).expect("another one");
        assert_ne!(root, first.canonicalize().expect("it is there"));
        assert!(!lock_of(&first).exists());
        fs::remove_dir_all(&above).expect("it can be removed");
    }

    #[test]
    fn a_lock_that_was_removed_is_nobodys() {
        let above = above("lock");
        let (root, lock) = make_root(&above).expect("a directory");
        let path = lock_of(&root);
        assert!(is_at(&lock, &path));
        fs::remove_file(&path).expect("it is there");
        assert!(!is_at(&lock, &path));
        File::create(&path).expect("another process's");
        assert!(!is_at(&lock, &path));
        fs::remove_dir_all(&above).expect("it can be removed");
    }
}
