//! A kernel that answers some calls itself, and passes the others on to another one.

use mlx5::{Errno, Kernel};
use mlx5_uapi::ioctl::{IoctlAttr, IoctlHeader, Method};
use mlx5_uapi::{Access, AllocateError, CmFile, DeviceFile, EventFile, Mapping, MemoryRequest};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// Decides about a call: `None` lets it through.
type Refuse = dyn Fn(Method) -> Option<Errno> + Send + Sync;

/// Changes the answer of a call.
type Alter = dyn Fn(Method, &[IoctlAttr]) + Send + Sync;

/// The differences from the inner kernel.
#[derive(Default)]
pub(super) struct Overrides {
    /// Additional sysfs attributes: path below `/sys`, and contents. Their directories exist, too.
    pub(super) sysfs: Vec<(String, String)>,
    /// The error of opening a device.
    pub(super) open: Option<Errno>,
    /// Decides which calls fail.
    pub(super) calls: Option<Box<Refuse>>,
    /// Changes the answers of calls.
    pub(super) answers: Option<Box<Alter>>,
    /// Records that event files return before their own.
    pub(super) events: Mutex<VecDeque<Vec<u8>>>,
    /// Number of reads of event files.
    pub(super) reads: AtomicUsize,
    /// Bytes of memory that were allocated and are not freed yet.
    pub(super) allocated: AtomicUsize,
}

/// The outer kernel.
pub(super) struct AlteredKernel {
    behind: Arc<dyn Kernel>,
    overrides: Arc<Overrides>,
}

impl AlteredKernel {
    /// Wraps `behind` in a kernel with overrides; returns it and the overrides.
    pub(super) fn before(
        behind: Arc<dyn Kernel>,
        overrides: Overrides,
    ) -> (Arc<dyn Kernel>, Arc<Overrides>) {
        let overrides = Arc::new(overrides);
        (Arc::new(Self { behind, overrides: Arc::clone(&overrides) }), overrides)
    }
}

impl Kernel for AlteredKernel {
    fn sysfs_list(&self, path: &str) -> Result<Vec<String>, Errno> {
        let below = format!("{path}/");
        let mut names: Vec<String> = self
            .overrides
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
        match self.overrides.sysfs.iter().find(|(mine, _)| mine == path) {
            Some((_, contents)) => Ok(contents.clone()),
            None => self.behind.sysfs_read(path),
        }
    }

    fn sysfs_link(&self, path: &str) -> Result<String, Errno> {
        match self.overrides.sysfs.iter().find(|(mine, _)| mine == path) {
            Some((_, target)) => Ok(target.clone()),
            None => self.behind.sysfs_link(path),
        }
    }

    fn open(&self, node: &str, dev: (u32, u32)) -> Result<Arc<dyn DeviceFile>, Errno> {
        match self.overrides.open {
            Some(errno) => Err(errno),
            None => {
                let file = self.behind.open(node, dev)?;
                Ok(Arc::new(AlteredFile { file, overrides: Arc::clone(&self.overrides) }))
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

struct AlteredFile {
    file: Arc<dyn DeviceFile>,
    overrides: Arc<Overrides>,
}

impl DeviceFile for AlteredFile {
    unsafe fn ioctl(&self, header: *mut IoctlHeader) -> Result<(), Errno> {
        // SAFETY: the caller of `ioctl` promises a valid header.
        let method = Method::of(unsafe { &*header });
        match self.overrides.calls.as_ref().and_then(|refuse| refuse(method)) {
            Some(errno) => Err(errno),
            None => {
                // SAFETY: the caller's promise for `ioctl` holds for the inner file.
                unsafe { self.file.ioctl(header) }?;
                if let Some(alter) = &self.overrides.answers {
                    // SAFETY: the caller promises a valid header, followed by its attributes. The
                    // call has returned, so nothing writes them while the reference lives.
                    alter(method, unsafe { &*IoctlHeader::attributes(header) });
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
        self.overrides.allocated.fetch_add(len, Relaxed);
        let owner = Box::new(Counted { mapping, overrides: Arc::clone(&self.overrides) });
        // SAFETY: the bytes are those of `mapping`, which `owner` keeps mapped.
        Ok(unsafe { Mapping::new(start, len, owner) })
    }

    unsafe fn event_file(&self, fd: RawFd) -> Result<Box<dyn EventFile>, Errno> {
        // SAFETY: the simulated kernel only looks the number up, whatever the answer contained.
        let file = unsafe { self.file.event_file(fd) }?;
        Ok(Box::new(AlteredEvents { file, overrides: Arc::clone(&self.overrides) }))
    }
}

/// Allocated memory, and the counter that includes it.
struct Counted {
    mapping: Mapping,
    overrides: Arc<Overrides>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.overrides.allocated.fetch_sub(self.mapping.len(), Relaxed);
    }
}

struct AlteredEvents {
    file: Box<dyn EventFile>,
    overrides: Arc<Overrides>,
}

impl AsFd for AlteredEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl EventFile for AlteredEvents {
    fn read(&self, buf: &mut [u8]) -> Result<usize, Errno> {
        self.overrides.reads.fetch_add(1, Relaxed);
        let mut events = self.overrides.events.lock().unwrap_or_else(PoisonError::into_inner);
        match events.pop_front() {
            Some(record) => {
                buf[..record.len()].copy_from_slice(&record);
                Ok(record.len())
            }
            None => self.file.read(buf),
        }
    }
}
