//! Paths and file attributes. Paths are redirected into the tree on the way in; results look like
//! the machine's on the way out.

use std::ffi::{CStr, CString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;

use crate::descriptors::Entry;
use crate::door::Door;
use crate::tree::Identity;

const CLASSES: &[u8] = b"/sys/class/infiniband";
const NODES: &[u8] = b"/dev/infiniband";
const CHANNELS: &[u8] = b"/sys/class/misc/rdma_cm";
const DEVICES: &[u8] = b"/sys/devices/";

/// A path for libc.
pub(crate) enum Redirected {
    /// The program's path.
    Same(*const c_char),
    /// A path in the tree.
    Tree(CString),
}

impl Redirected {
    pub(crate) fn as_ptr(&self) -> *const c_char {
        match self {
            Self::Same(path) => *path,
            Self::Tree(path) => path.as_ptr(),
        }
    }
}

/// Redirects a path of the devices into the tree.
///
/// # Safety
/// The path is null, or a string of C that outlives the result.
pub(crate) unsafe fn redirected(path: *const c_char) -> Redirected {
    if path.is_null() {
        return Redirected::Same(path);
    }
    // SAFETY: the path is not null, and the caller promises that it is then a string of C.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    let below = is_below(bytes, NODES) || is_below(bytes, CHANNELS);
    let door = if below || bytes.starts_with(CLASSES) {
        Door::open()
    } else if bytes.starts_with(DEVICES) {
        Door::if_open().filter(|door| {
            door.tree.devices().iter().any(|device| is_below(bytes, device.as_bytes()))
        })
    } else {
        None
    };
    let full = door.map(|door| [door.tree.root().as_os_str().as_bytes(), bytes].concat());
    match full.and_then(|full| CString::new(full).ok()) {
        Some(full) => Redirected::Tree(full),
        None => Redirected::Same(path),
    }
}

fn is_below(path: &[u8], directory: &[u8]) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// The length of the prefix of a path that is the tree's own place on the disk.
fn hidden(path: &[u8]) -> usize {
    let Some(door) = Door::if_open() else { return 0 };
    let root = door.tree.root().as_os_str().as_bytes();
    if is_below(path, root) && path.len() > root.len() { root.len() } else { 0 }
}

/// Shows a path of `length` bytes without the tree's place on the disk.
///
/// # Safety
/// Unless `length` is negative, that number of bytes at `path` must be readable and writable.
pub(crate) unsafe fn shown(path: *mut c_char, length: isize) -> isize {
    let Ok(bytes) = usize::try_from(length) else { return length };
    // SAFETY: the caller promises that `length` bytes can be read and written; the slice ends
    // before anything is written.
    let hide = hidden(unsafe { std::slice::from_raw_parts(path.cast::<u8>(), bytes) });
    if hide > 0 {
        // SAFETY: both ranges lie in the bytes of the path.
        unsafe { std::ptr::copy(path.add(hide), path, bytes - hide) };
    }
    (bytes - hide) as isize
}

/// Shows a whole path without the tree's place on the disk.
///
/// # Safety
/// The path is null or a string of C that can be written.
pub(crate) unsafe fn shown_whole(path: *mut c_char) -> *mut c_char {
    if !path.is_null() {
        // SAFETY: the caller promises that the path is a string of C that can be written; its zero
        // at the end moves along.
        unsafe {
            let bytes = CStr::from_ptr(path).to_bytes_with_nul().len();
            let hide = hidden(CStr::from_ptr(path).to_bytes());
            std::ptr::copy(path.add(hide), path, bytes - hide);
        }
    }
    path
}

/// File attributes in one of libc's structures.
pub(crate) trait Description {
    /// The identity of the file, if it can be that of a node.
    fn identity(&self) -> Option<Identity>;
    /// Makes them those of a character device.
    fn become_device(&mut self, major: u32, minor: u32);
}

macro_rules! plain_description {
    ($($type:ty),*) => {$(
        impl Description for $type {
            fn identity(&self) -> Option<Identity> {
                let candidate = self.st_mode & libc::S_IFMT == libc::S_IFREG && self.st_size == 0;
                candidate.then(|| Identity { device: self.st_dev, inode: self.st_ino })
            }

            fn become_device(&mut self, major: u32, minor: u32) {
                self.st_mode = libc::S_IFCHR | 0o666;
                self.st_rdev = libc::makedev(major, minor);
            }
        }
    )*};
}

plain_description!(libc::stat, libc::stat64);

impl Description for libc::statx {
    fn identity(&self) -> Option<Identity> {
        let kind = u32::from(self.stx_mode) & libc::S_IFMT;
        let device = libc::makedev(self.stx_dev_major, self.stx_dev_minor);
        let candidate = kind == libc::S_IFREG && self.stx_size == 0;
        candidate.then_some(Identity { device, inode: self.stx_ino })
    }

    fn become_device(&mut self, major: u32, minor: u32) {
        self.stx_mode = (libc::S_IFCHR | 0o666) as u16;
        (self.stx_rdev_major, self.stx_rdev_minor) = (major, minor);
    }
}

/// Corrects the attributes of an open file: a channel of the connection manager looks like its
/// node, and a node's file like its device.
///
/// # Safety
/// If the answer is zero, the structure can be read and written.
pub(crate) unsafe fn described_open<T: Description>(fd: c_int, answer: c_int, to: *mut T) -> c_int {
    if answer == 0
        && let Some((_, Entry::Channel(channel))) = Door::find(fd)
        // SAFETY: libc has just written it.
        && let Some(to) = unsafe { to.as_mut() }
    {
        let (major, minor) = channel.node;
        to.become_device(major, minor);
        return answer;
    }
    // SAFETY: the caller promises that the structure can be read and written if the answer is zero.
    unsafe { described(answer, to) }
}

/// The same for a path below a directory. If the path is empty, it means the descriptor.
///
/// # Safety
/// The path is null or a string of C. If the answer is zero, the structure can be read and written.
pub(crate) unsafe fn described_at<T: Description>(
    dir: c_int,
    path: *const c_char,
    answer: c_int,
    to: *mut T,
) -> c_int {
    // SAFETY: the caller promises that the path is null or a string of C, and that the structure
    // can be read and written if the answer is zero.
    unsafe {
        match path.is_null() || *path == 0 {
            true => described_open(dir, answer, to),
            false => described(answer, to),
        }
    }
}

/// Corrects the attributes of a node's file to those of its device.
///
/// # Safety
/// If the answer is zero, the structure can be read and written.
pub(crate) unsafe fn described<T: Description>(answer: c_int, to: *mut T) -> c_int {
    if answer == 0
        && let Some(door) = Door::if_open()
        // SAFETY: libc has just written it.
        && let Some(to) = unsafe { to.as_mut() }
        && let Some(node) = to.identity().and_then(|file| door.tree.node_of(file))
    {
        let (major, minor) = node.numbers;
        to.become_device(major, minor);
    }
    answer
}
