//! The device tree on disk: sysfs and the device nodes.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Component, Path, PathBuf};

use mlx5_sim::kernel::SysfsEntry;
use mlx5_uapi::queues::Noted;
use mlx5_uapi::rdma_cm;

/// The network interfaces of a device. They are left out: programs ask the machine's own network
/// for what is named there (`ip addr show eth2`), which knows nothing of a simulated device.
const INTERFACES: &str = "/device/net/";
/// The counters of a port. They are left out: the files say what was true when they were written.
const COUNTERS: &str = "/hw_counters/";

/// What the names of the directories begin with; a number follows.
const PREFIX: &str = Noted::TREE;
/// A file in each directory that is locked while somebody uses it.
const LOCK: &str = "lock";
/// Where the verbs nodes are described.
const VERBS: &str = "class/infiniband_verbs";
/// Where the nodes are.
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
    /// Its name: `uverbs0`.
    pub(crate) name: String,
    /// Its major and minor number.
    pub(crate) numbers: (u32, u32),
    /// The empty file that stands for it.
    file: Identity,
}

/// The directory.
pub(crate) struct Tree {
    root: PathBuf,
    /// Directories of the devices below `/sys/devices`.
    devices: Vec<String>,
    nodes: Vec<Node>,
    _lock: File,
}

impl Tree {
    /// Writes the tree of a machine, of which the paths are sorted.
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
        // Links come before what lies behind them, for they are sorted.
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

    /// Makes a link, and the directory that it names.
    fn link(&mut self, sys: &Path, place: &Path, target: &str) -> io::Result<()> {
        // Two ways may lead to the same link.
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

    /// The file for tracers, of the queues that there are.
    pub(crate) fn notes(&self) -> PathBuf {
        self.root.join(Noted::FILE)
    }

    /// The device directories in `/sys/devices`.
    pub(crate) fn devices(&self) -> &[String] {
        &self.devices
    }

    /// The node that a file stands for.
    pub(crate) fn node_of(&self, file: Identity) -> Option<&Node> {
        self.nodes.iter().find(|node| node.file == file)
    }

    /// Where the file is that stands for a node.
    pub(crate) fn place_of(&self, node: &Node) -> PathBuf {
        self.root.join(NODES).join(&node.name)
    }

    /// Removes it from the disk.
    pub(crate) fn remove(&self) {
        // What cannot be removed now is when another process sweeps.
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn make_root(above: &Path) -> io::Result<(PathBuf, File)> {
    let above = fs::canonicalize(above)?;
    let id = std::process::id();
    let mut number = 0;
    loop {
        let root = above.join(format!("{PREFIX}{id}-{number}"));
        match fs::create_dir(&root) {
            Ok(()) => {
                let file = File::create(root.join(LOCK))?;
                try_lock(&file);
                return Ok((root, file));
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error),
        }
    }
}

fn try_lock(file: &File) -> bool {
    // SAFETY: the descriptor is open.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 }
}

/// Removes the directories of processes that had no chance to.
fn sweep(above: &Path) {
    let Ok(entries) = fs::read_dir(above) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX)
            && let Ok(lock) = File::open(entry.path().join(LOCK))
            && try_lock(&lock)
        {
            // Somebody else's directory stays.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
