//! A kernel that lies a little: it stands before another one, and answers some things itself.

use mlx5::{Errno, Kernel};
use mlx5_uapi::ioctl::{IoctlAttr, IoctlHeader, Method};
use mlx5_uapi::{Access, AllocateError, CmFile, DeviceFile, EventFile, Mapping, MemoryRequest};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// What becomes of a call: `None` lets it through.
type Judge = dyn Fn(Method) -> Option<Errno> + Send + Sync;

/// Changes what a call answered.
type Twist = dyn Fn(Method, &[IoctlAttr]) + Send + Sync;

/// What is different from the kernel behind.
#[derive(Default)]
pub(super) struct Lies {
    /// More sysfs attributes: path below `/sys`, and contents. Directories follow from them.
    pub(super) sysfs: Vec<(String, String)>,
    /// Answers opening a device.
    pub(super) open: Option<Errno>,
    /// Answers calls.
    pub(super) calls: Option<Box<Judge>>,
    /// Changes answers.
    pub(super) answers: Option<Box<Twist>>,
    /// Records that event files hand out before their own.
    pub(super) events: Mutex<VecDeque<Vec<u8>>>,
    /// Bytes of memory that were allocated and are not given back.
    pub(super) allocated: AtomicUsize,
}

/// The kernel before the kernel.
pub(super) struct Warp {
    behind: Arc<dyn Kernel>,
    lies: Arc<Lies>,
}

impl Warp {
    /// A kernel with lies before `behind`, and the lies.
    pub(super) fn before(behind: Arc<dyn Kernel>, lies: Lies) -> (Arc<dyn Kernel>, Arc<Lies>) {
        let lies = Arc::new(lies);
        (Arc::new(Self { behind, lies: Arc::clone(&lies) }), lies)
    }
}

impl Kernel for Warp {
    fn sysfs_list(&self, path: &str) -> Result<Vec<String>, Errno> {
        let below = format!("{path}/");
        let mut names: Vec<String> = self
            .lies
            .sysfs
            .iter()
            .filter_map(|(path, _)| path.strip_prefix(&below)?.split('/').next().map(str::to_owned))
            .collect();
        match self.behind.sysfs_list(path) {
            Ok(found) => names.extend(found),
            Err(errno) if names.is_empty() => return Err(errno),
            Err(_) => {}
        }
        names.sort();
        names.dedup();
        Ok(names)
    }

    fn sysfs_read(&self, path: &str) -> Result<String, Errno> {
        match self.lies.sysfs.iter().find(|(mine, _)| mine == path) {
            Some((_, contents)) => Ok(contents.clone()),
            None => self.behind.sysfs_read(path),
        }
    }

    fn sysfs_link(&self, path: &str) -> Result<String, Errno> {
        match self.lies.sysfs.iter().find(|(mine, _)| mine == path) {
            Some((_, target)) => Ok(target.clone()),
            None => self.behind.sysfs_link(path),
        }
    }

    fn open(&self, node: &str, dev: (u32, u32)) -> Result<Arc<dyn DeviceFile>, Errno> {
        match self.lies.open {
            Some(errno) => Err(errno),
            None => {
                let file = self.behind.open(node, dev)?;
                Ok(Arc::new(WarpedFile { file, lies: Arc::clone(&self.lies) }))
            }
        }
    }

    fn uevents(&self) -> Result<Box<dyn EventFile>, Errno> {
        self.behind.uevents()
    }

    fn rdma_cm(&self) -> Result<Arc<dyn CmFile>, Errno> {
        self.behind.rdma_cm()
    }
}

struct WarpedFile {
    file: Arc<dyn DeviceFile>,
    lies: Arc<Lies>,
}

impl DeviceFile for WarpedFile {
    unsafe fn ioctl(&self, header: *mut IoctlHeader) -> Result<(), Errno> {
        // SAFETY: the caller's contract: a header is there.
        let method = Method::of(unsafe { &*header });
        match self.lies.calls.as_ref().and_then(|judge| judge(method)) {
            Some(errno) => Err(errno),
            None => {
                // SAFETY: handed down.
                unsafe { self.file.ioctl(header) }?;
                if let Some(twist) = &self.lies.answers {
                    // SAFETY: the attributes are the call's, and nobody writes them any more.
                    twist(method, unsafe { &*IoctlHeader::attributes(header) });
                }
                Ok(())
            }
        }
    }

    fn map(&self, offset: u64, len: usize, access: Access) -> Result<Mapping, Errno> {
        self.file.map(offset, len, access)
    }

    fn allocate(&self, request: &MemoryRequest) -> Result<Mapping, AllocateError> {
        let mapping = self.file.allocate(request)?;
        let (start, len) = (mapping.as_non_null(), mapping.len());
        self.lies.allocated.fetch_add(len, Relaxed);
        let owner = Box::new(Counted { mapping, lies: Arc::clone(&self.lies) });
        // SAFETY: the bytes are those of the mapping, which the owner keeps.
        Ok(unsafe { Mapping::new(start, len, owner) })
    }

    unsafe fn event_file(&self, fd: RawFd) -> Result<Box<dyn EventFile>, Errno> {
        // SAFETY: whatever number stood in the answer, the simulated kernel only looks it up.
        let file = unsafe { self.file.event_file(fd) }?;
        Ok(Box::new(WarpedEvents { file, lies: Arc::clone(&self.lies) }))
    }
}

/// Memory, and where it is counted.
struct Counted {
    mapping: Mapping,
    lies: Arc<Lies>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.lies.allocated.fetch_sub(self.mapping.len(), Relaxed);
    }
}

struct WarpedEvents {
    file: Box<dyn EventFile>,
    lies: Arc<Lies>,
}

impl AsFd for WarpedEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl EventFile for WarpedEvents {
    fn read(&self, buf: &mut [u8]) -> Result<usize, Errno> {
        let mut events = self.lies.events.lock().unwrap_or_else(PoisonError::into_inner);
        match events.pop_front() {
            Some(record) => {
                buf[..record.len()].copy_from_slice(&record);
                Ok(record.len())
            }
            None => self.file.read(buf),
        }
    }
}
