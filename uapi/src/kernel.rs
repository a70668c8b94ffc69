//! The seam: everything that the provider asks of an operating system, in three traits.

use core::{fmt, ptr::NonNull};
use std::{
    os::fd::{AsFd, RawFd},
    sync::{Arc, OnceLock},
};

use crate::{Errno, ioctl::IoctlHeader};

/// A kernel: a sysfs tree and the device files that it names.
pub trait Kernel: Send + Sync + 'static {
    /// Names in a directory of the sysfs tree, sorted; `path` is relative to `/sys`
    /// (`"class/infiniband_verbs"`).
    fn sysfs_list(&self, path: &str) -> Result<Vec<String>, Errno>;

    /// Contents of a sysfs attribute, not trimmed.
    fn sysfs_read(&self, path: &str) -> Result<String, Errno>;

    /// Target of a sysfs symbolic link.
    fn sysfs_link(&self, path: &str) -> Result<String, Errno>;

    /// Opens `/dev/infiniband/<node>`, and answers `ENXIO` if that is not the character device
    /// with the numbers (major, minor) `dev`.
    fn open(&self, node: &str, dev: (u32, u32)) -> Result<Arc<dyn DeviceFile>, Errno>;
}

/// An open uverbs device. Closing it destroys every object that was made through it.
pub trait DeviceFile: Send + Sync + 'static {
    /// One `RDMA_VERBS_IOCTL`. `EINTR` is handed up; [`crate::call::Call::run`] repeats the call.
    ///
    /// # Safety
    /// `header` is followed by `num_attrs` attributes, `length` covers both, and every address in
    /// them is valid for its length: readable for inputs, writable for outputs.
    unsafe fn ioctl(&self, header: *mut IoctlHeader) -> Result<(), Errno>;

    /// Maps a device page (UAR, clock, device memory) at the offset that the kernel gave.
    fn map(&self, offset: u64, len: usize, access: Access) -> Result<Mapping, Errno>;

    /// Anonymous memory of which the device may be told: zeroed, page aligned, and of no harm to
    /// the device's work when the process forks.
    fn allocate(&self, request: &MemoryRequest) -> Result<Mapping, Errno>;

    /// Takes over a descriptor which an ioctl returned: completion channel, asynchronous events.
    fn event_file(&self, fd: RawFd) -> Result<Box<dyn EventFile>, Errno>;
}

/// A file of events. Its descriptor is readable when an event waits.
pub trait EventFile: Send + Sync + AsFd {
    /// Takes events, as many whole ones as `buf` has room for; `EAGAIN` if there is none, for this
    /// never blocks.
    fn read(&self, buf: &mut [u8]) -> Result<usize, Errno>;
}

/// What a mapped device page is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading only (clock pages).
    Read,
    /// Writing (UAR pages, device memory).
    Write,
}

/// Which page size anonymous memory should have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// Ordinary pages.
    #[default]
    None,
    /// 2 MiB pages if the pool has them, ordinary pages otherwise.
    Prefer,
    /// 2 MiB pages or failure.
    TwoMiB,
    /// 1 GiB pages or failure.
    OneGiB,
}

/// A wish for anonymous memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRequest {
    /// Bytes wanted; the mapping has at least these, rounded up to whole pages.
    pub len: usize,
    /// Alignment of the first byte, a power of two; at least a page is given.
    pub align: usize,
    /// Page size.
    pub huge: HugePages,
}

impl MemoryRequest {
    /// `len` bytes of ordinary pages.
    pub const fn new(len: usize) -> Self {
        Self { len, align: 1, huge: HugePages::None }
    }

    /// The same with this alignment.
    pub const fn align(self, align: usize) -> Self {
        Self { align, ..self }
    }

    /// The same with this page size.
    pub const fn huge(self, huge: HugePages) -> Self {
        Self { huge, ..self }
    }
}

/// Memory that is mapped for as long as this value lives.
///
/// It hands out a raw pointer only: a device may write the memory at any time, so no reference to
/// it can be sound.
pub struct Mapping {
    ptr: NonNull<u8>,
    len: usize,
    owner: Box<dyn Send + Sync>,
}

// SAFETY: `ptr` is an address inside what `owner` keeps mapped, and `owner` itself is Send. The
// mapping reads and writes nothing; whoever uses the pointer answers for it.
unsafe impl Send for Mapping {}
// SAFETY: as above; shared access gives out the address and the length only.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// A mapping of `len` bytes at `ptr` that ends when `owner` is dropped.
    ///
    /// # Safety
    /// The bytes stay mapped, and used by nobody else, until `owner` is dropped.
    pub unsafe fn new(ptr: NonNull<u8>, len: usize, owner: Box<dyn Send + Sync>) -> Self {
        Self { ptr, len, owner }
    }

    /// The first byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.ptr.as_ptr()
    }

    /// The first byte.
    pub fn as_non_null(&self) -> NonNull<u8> {
        self.ptr
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Keeps the memory mapped until the process ends: the answer when a device may still hold it.
    pub fn leak(self) {
        core::mem::forget(self.owner);
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapping").field("ptr", &self.ptr).field("len", &self.len).finish()
    }
}

/// The size of an ordinary page of this machine.
pub fn page_size() -> usize {
    static SIZE: OnceLock<usize> = OnceLock::new();
    *SIZE.get_or_init(|| {
        nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)
            .ok()
            .flatten()
            .and_then(|size| usize::try_from(size).ok())
            .unwrap_or(4096)
    })
}
