//! The traits through which the driver uses the operating system.

use core::{fmt, ptr::NonNull};
use std::{
    os::fd::{AsFd, BorrowedFd, RawFd},
    sync::{Arc, OnceLock},
};

use crate::{AllocateError, Errno, ioctl::IoctlHeader};

/// A kernel: its sysfs tree and the device files that the tree names.
pub trait Kernel: Send + Sync + 'static {
    /// Lists a directory of the sysfs tree, sorted by name. `path` is relative to `/sys`
    /// (`"class/infiniband_verbs"`).
    fn sysfs_list(&self, path: &str) -> Result<Vec<String>, Errno>;

    /// Reads a sysfs attribute, without trimming it.
    fn sysfs_read(&self, path: &str) -> Result<String, Errno>;

    /// Returns the target of a sysfs symbolic link.
    fn sysfs_link(&self, path: &str) -> Result<String, Errno>;

    /// Opens `/dev/infiniband/<node>`. Fails with `ENXIO` if that is not the character device with
    /// the numbers (major, minor) `dev`.
    fn open(&self, node: &str, dev: (u32, u32)) -> Result<Arc<dyn DeviceFile>, Errno>;

    /// Opens a file of uevents, about all devices that appear, disappear or change from now on. A
    /// read returns one message, which [`Uevent::parse`](crate::uevent::Uevent::parse) understands,
    /// and fails with `ENOBUFS` if messages were lost.
    fn uevents(&self) -> Result<Box<dyn EventFile>, Errno>;

    /// Opens `/dev/infiniband/rdma_cm`: an event channel of the connection manager. Fails with
    /// `ENOENT` on a kernel without one.
    fn rdma_cm(&self) -> Result<Arc<dyn CmFile>, Errno>;
}

/// An open uverbs device. Closing it destroys every object created through it.
pub trait DeviceFile: Send + Sync + 'static {
    /// Makes one `RDMA_VERBS_IOCTL`. Returns `EINTR` to the caller; [`crate::call::Call::run`]
    /// repeats the call.
    ///
    /// # Safety
    /// `num_attrs` attributes follow `header`, `length` covers both, and every address in the
    /// attributes is valid for its length: readable for inputs, writable for outputs.
    unsafe fn ioctl(&self, header: *mut IoctlHeader) -> Result<(), Errno>;

    /// Maps device pages (UAR, clock, device memory) at an offset that the kernel returned.
    fn map(&self, offset: u64, len: usize, access: Access) -> Result<Mapping, Errno>;

    /// Maps anonymous memory for use by the device: zeroed, page aligned, and unaffected by a fork
    /// of the process.
    fn allocate(&self, request: &MemoryRequest) -> Result<Mapping, AllocateError>;

    /// Takes ownership of a file descriptor that an ioctl created: a completion channel or an
    /// asynchronous event file.
    ///
    /// # Safety
    /// An ioctl of this file returned `fd` as a descriptor that it created, and nothing has taken
    /// ownership of it since.
    unsafe fn event_file(&self, fd: RawFd) -> Result<Box<dyn EventFile>, Errno>;

    /// The descriptor of the device node, if the file belongs to a real kernel.
    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// An open `/dev/infiniband/rdma_cm`, which does not block: an event channel of the connection
/// manager. Its descriptor is readable while an event is pending. Closing it destroys the
/// identifiers on it.
pub trait CmFile: Send + Sync + AsFd + 'static {
    /// Makes one call, as [`crate::rdma_cm`] encodes it. Fails with `EAGAIN` if an event is to be
    /// read and none is pending. Returns `EINTR` to the caller; [`crate::rdma_cm::call`] repeats
    /// the call.
    ///
    /// # Safety
    /// Every address in the call is valid for its length: readable for inputs, writable for
    /// outputs.
    unsafe fn write(&self, call: &[u8]) -> Result<(), Errno>;
}

/// An event file. Its descriptor is readable while an event is pending.
pub trait EventFile: Send + Sync + AsFd {
    /// Reads as many whole events as fit in `buf`. Never blocks: fails with `EAGAIN` if no event is
    /// pending.
    fn read(&self, buf: &mut [u8]) -> Result<usize, Errno>;
}

/// The access to a mapped device page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read only (clock pages).
    Read,
    /// Read and write (UAR pages, device memory).
    Write,
}

/// The page size of anonymous memory.
///
/// A forked child reads zeros in ordinary pages of its parent. Huge pages are not mapped there
/// (`MADV_DONTFORK`), because the kernel cannot wipe them: an access ends the child by SIGSEGV
/// (`SEGV_MAPERR`). In both cases, a call that copies bytes of a region fails in a child; reads
/// without a call, as through frames, atomics and pointers, fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// Ordinary pages. This is the default.
    #[default]
    None,
    /// 2 MiB pages if the pool has enough, else ordinary pages.
    Prefer,
    /// 2 MiB pages; fails if the pool has too few.
    TwoMiB,
    /// 1 GiB pages; fails if the pool has too few.
    OneGiB,
}

/// A request for anonymous memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRequest {
    /// Length in bytes. The mapping is rounded up to whole pages.
    pub len: usize,
    /// Alignment of the first byte, a power of two. The alignment is at least a page.
    pub align: usize,
    /// Page size.
    pub huge: HugePages,
    /// The NUMA node that pages come from as long as it has free memory; `None` leaves it to the
    /// process's policy.
    pub numa_node: Option<u32>,
    /// Asks the kernel to back ordinary pages by huge ones where it can, without a pool
    /// (`MADV_HUGEPAGE`). Advice only: a kernel that cannot is not an error.
    pub transparent_huge: bool,
}

impl MemoryRequest {
    /// Creates a request for `len` bytes of ordinary pages, page aligned.
    pub const fn new(len: usize) -> Self {
        Self { len, align: 1, huge: HugePages::None, numa_node: None, transparent_huge: false }
    }

    /// Sets the alignment, a power of two. Default: 1, that is, page aligned.
    pub const fn align(self, align: usize) -> Self {
        Self { align, ..self }
    }

    /// Sets the page size. Default: [`HugePages::None`].
    pub const fn huge(self, huge: HugePages) -> Self {
        Self { huge, ..self }
    }

    /// Sets the NUMA node. Default: `None`.
    pub const fn numa_node(self, numa_node: Option<u32>) -> Self {
        Self { numa_node, ..self }
    }

    /// Sets whether ordinary pages are to be backed by huge ones. Default: false.
    pub const fn transparent_huge(self, transparent_huge: bool) -> Self {
        Self { transparent_huge, ..self }
    }
}

/// Memory that stays mapped as long as this value lives.
///
/// Gives out raw pointers only: a device may write the memory at any time, so a reference to it
/// could not be sound.
pub struct Mapping {
    ptr: NonNull<u8>,
    len: usize,
    owner: Box<dyn Send + Sync>,
}

// SAFETY: `ptr` is an address in memory that `owner` keeps mapped, and `owner` is `Send`. The
// mapping itself does not access the memory; code that uses the pointer has its own obligations.
unsafe impl Send for Mapping {}
// SAFETY: a shared mapping gives out only the address and the length.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Creates a mapping of `len` bytes at `ptr`, which ends when `owner` is dropped.
    ///
    /// # Safety
    /// The bytes stay mapped, and nothing else uses them, until `owner` is dropped.
    pub unsafe fn new(ptr: NonNull<u8>, len: usize, owner: Box<dyn Send + Sync>) -> Self {
        Self { ptr, len, owner }
    }

    /// Returns the address of the first byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.ptr.as_ptr()
    }

    /// Returns the address of the first byte.
    pub fn as_non_null(&self) -> NonNull<u8> {
        self.ptr
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Keeps the memory mapped until the process ends, for when a device may still access it.
    pub fn leak(self) {
        core::mem::forget(self.owner);
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapping").field("ptr", &self.ptr).field("len", &self.len).finish()
    }
}

/// Returns the size of an ordinary page of this machine.
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
