//! The implementation of the [`kernel`](crate::kernel) traits for Linux.

mod rdma_cm;
mod uevents;

use core::ptr::NonNull;
use std::{
    fs::{self, File, OpenOptions},
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
        unix::fs::{FileTypeExt, MetadataExt},
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use memmap2::{Advice, MmapMut, MmapOptions};
use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    sys::{
        mman::{MmapAdvise, madvise},
        stat::{SFlag, major, minor},
    },
};

use crate::{
    AllocateError, AllocateStep, Errno,
    call::MAX_EINTR_RETRIES,
    ioctl::{IoctlHeader, RDMA_VERBS_IOCTL},
    kernel::{
        Access, CmFile, DeviceFile, EventFile, HugePages, Kernel, Mapping, MemoryRequest, page_size,
    },
    numa::prefer_node,
};

/// The running Linux kernel.
#[derive(Clone, Debug)]
pub struct LinuxKernel {
    sysfs: PathBuf,
    dev: PathBuf,
}

impl LinuxKernel {
    /// Creates the kernel with the roots `/sys` and `/dev`.
    pub fn new() -> Self {
        Self::with_roots("/sys", "/dev")
    }

    /// Creates the kernel with other directories in place of `/sys` and `/dev`.
    pub fn with_roots(sysfs: impl Into<PathBuf>, dev: impl Into<PathBuf>) -> Self {
        Self { sysfs: sysfs.into(), dev: dev.into() }
    }
}

impl LinuxKernel {
    /// Takes a device file that is already open, for example one that another process has sent. The
    /// first call shows whether it is one.
    pub fn adopt(fd: OwnedFd) -> Arc<dyn DeviceFile> {
        Arc::new(UverbsFile { file: File::from(fd) })
    }

    /// Major and minor number of the device node that a descriptor has open.
    pub fn node_number(fd: impl AsFd) -> Result<(u32, u32), Errno> {
        let found = nix::sys::stat::fstat(fd)?;
        if found.st_mode & SFlag::S_IFMT.bits() != SFlag::S_IFCHR.bits() {
            return Err(Errno::ENXIO);
        }
        let number = |number: u64| u32::try_from(number).map_err(|_| Errno::ENXIO);
        Ok((number(major(found.st_rdev))?, number(minor(found.st_rdev))?))
    }
}

impl Default for LinuxKernel {
    fn default() -> Self {
        Self::new()
    }
}

impl Kernel for LinuxKernel {
    fn sysfs_list(&self, path: &str) -> Result<Vec<String>, Errno> {
        let entries = fs::read_dir(self.sysfs.join(path)).map_err(errno)?;
        let mut names = entries
            .map(|entry| Ok(entry.map_err(errno)?.file_name().to_string_lossy().into_owned()))
            .collect::<Result<Vec<_>, Errno>>()?;
        names.sort();
        Ok(names)
    }

    fn sysfs_read(&self, path: &str) -> Result<String, Errno> {
        let bytes = fs::read(self.sysfs.join(path)).map_err(errno)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn sysfs_link(&self, path: &str) -> Result<String, Errno> {
        let target = fs::read_link(self.sysfs.join(path)).map_err(errno)?;
        Ok(target.to_string_lossy().into_owned())
    }

    fn open(&self, node: &str, dev: (u32, u32)) -> Result<Arc<dyn DeviceFile>, Errno> {
        if Path::new(node).file_name() != Some(node.as_ref()) {
            return Err(Errno::EINVAL);
        }
        let path = self.dev.join("infiniband").join(node);
        // A writable mapping of device pages needs a writable file. std sets O_CLOEXEC.
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(errno)?;
        let found = file.metadata().map_err(errno)?;
        let numbers = (major(found.rdev()), minor(found.rdev()));
        if !found.file_type().is_char_device() || numbers != (dev.0.into(), dev.1.into()) {
            return Err(Errno::ENXIO);
        }
        Ok(Arc::new(UverbsFile { file }))
    }

    fn uevents(&self) -> Result<Box<dyn EventFile>, Errno> {
        Ok(Box::new(uevents::UeventSocket::new()?))
    }

    fn rdma_cm(&self) -> Result<Arc<dyn CmFile>, Errno> {
        Ok(Arc::new(rdma_cm::RdmaCmFile::open(&self.dev.join("infiniband"))?))
    }
}

/// An open `/dev/infiniband/uverbsN`.
#[derive(Debug)]
struct UverbsFile {
    file: File,
}

nix::ioctl_readwrite!(
    /// `RDMA_VERBS_IOCTL`.
    rdma_verbs_ioctl,
    0x1b,
    1,
    IoctlHeader
);

const _: () = assert!(
    nix::request_code_readwrite!(0x1b, 1, size_of::<IoctlHeader>()) as u32 == RDMA_VERBS_IOCTL
);

impl DeviceFile for UverbsFile {
    unsafe fn ioctl(&self, header: *mut IoctlHeader) -> Result<(), Errno> {
        // SAFETY: the descriptor is open as long as `self.file` lives; `header` is valid for the
        // ioctl by the caller's contract.
        unsafe { rdma_verbs_ioctl(self.file.as_raw_fd(), header) }.map(drop)
    }

    fn map(&self, offset: u64, len: usize, access: Access) -> Result<Mapping, Errno> {
        if len == 0 {
            return Err(Errno::EINVAL);
        }
        let mut options = MmapOptions::new();
        options.offset(offset).len(len);
        let map = match access {
            Access::Read => options.map_raw_read_only(&self.file),
            Access::Write => options.map_raw(&self.file),
        }
        .map_err(errno)?;
        // A child must not reach these pages: the device takes its doorbells for the parent's.
        map.advise(Advice::DontFork).map_err(errno)?;
        let ptr = NonNull::new(map.as_mut_ptr()).ok_or(Errno::EFAULT)?;
        // SAFETY: `map` keeps `len` bytes at `ptr` mapped until dropped. It moves into the mapping,
        // so nothing else uses them.
        Ok(unsafe { Mapping::new(ptr, len, Box::new(map)) })
    }

    fn allocate(&self, request: &MemoryRequest) -> Result<Mapping, AllocateError> {
        allocate(request)
    }

    unsafe fn event_file(&self, fd: RawFd) -> Result<Box<dyn EventFile>, Errno> {
        if fd < 0 {
            return Err(Errno::EBADF);
        }
        // SAFETY: the caller promises that an ioctl of this file created the descriptor for this
        // process, and that nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let flags = OFlag::from_bits_retain(fcntl(&fd, FcntlArg::F_GETFL)?);
        fcntl(&fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        Ok(Box::new(UverbsEvents { fd }))
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }
}

/// A completion channel or an asynchronous event file.
#[derive(Debug)]
struct UverbsEvents {
    fd: OwnedFd,
}

impl AsFd for UverbsEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl EventFile for UverbsEvents {
    fn read(&self, buf: &mut [u8]) -> Result<usize, Errno> {
        let mut interruptions = 0;
        loop {
            match nix::unistd::read(&self.fd, buf) {
                Err(Errno::EINTR) if interruptions < MAX_EINTR_RETRIES => interruptions += 1,
                result => return result,
            }
        }
    }
}

/// Maps anonymous memory as [`DeviceFile::allocate`] specifies.
pub fn allocate(request: &MemoryRequest) -> Result<Mapping, AllocateError> {
    if request.len == 0 || !request.align.is_power_of_two() {
        return Err(Errno::EINVAL.into());
    }
    match request.huge {
        HugePages::None => map_anonymous(request, page_size().trailing_zeros(), false),
        HugePages::TwoMiB => map_anonymous(request, 21, true),
        HugePages::OneGiB => map_anonymous(request, 30, true),
        HugePages::Prefer => map_anonymous(request, 21, true)
            .or_else(|_| map_anonymous(request, page_size().trailing_zeros(), false)),
    }
}

/// Maps ordinary pages that read as zeros in a child; fails if the kernel cannot do that.
pub(crate) fn wiped_in_children(request: &MemoryRequest) -> Result<Mapping, Errno> {
    let len = request.len.checked_next_multiple_of(page_size()).ok_or(Errno::ENOMEM)?;
    let mut map = MmapOptions::new().len(len).map_anon().map_err(errno)?;
    wipe_in_children(&mut map)?;
    let ptr = NonNull::new(map.as_mut_ptr()).ok_or(Errno::EFAULT)?;
    // SAFETY: `map` keeps `len` bytes mapped until dropped. It moves into the mapping, so nothing
    // else uses them.
    Ok(unsafe { Mapping::new(ptr, len, Box::new(map)) })
}

fn map_anonymous(
    request: &MemoryRequest,
    page_bits: u32,
    huge: bool,
) -> Result<Mapping, AllocateError> {
    let step = if huge { AllocateStep::MapHuge { page_bits } } else { AllocateStep::Map };
    let page = 1_usize << page_bits;
    let none = || step.failed(Errno::ENOMEM);
    let len = request.len.checked_next_multiple_of(page).ok_or_else(none)?;
    // mmap aligns to a page. For a larger alignment, map more and skip to an aligned address.
    let spare = request.align.saturating_sub(page);
    let mut options = MmapOptions::new();
    options.len(len.checked_add(spare).ok_or_else(none)?);
    if huge {
        options.huge(Some(page_bits as u8));
    }
    let mut map = options.map_anon().map_err(|error| step.failed(errno(error)))?;
    keep_from_children(&mut map, huge).map_err(|errno| AllocateStep::Advise.failed(errno))?;
    let start = map.as_mut_ptr();
    if let (Some(node), Some(start)) = (request.numa_node, NonNull::new(start)) {
        // SAFETY: the range is exactly the mapping, which this function has just created.
        unsafe { prefer_node(start, map.len(), node) }
            .map_err(|errno| AllocateStep::Bind { node }.failed(errno))?;
    }
    if request.transparent_huge && !huge {
        // Advice: a kernel without it maps ordinary pages.
        let _ = map.advise(Advice::HugePage);
    }
    let skip = start.align_offset(request.align);
    // SAFETY: `start` is page aligned, so at most `spare` bytes are skipped, and `len + spare`
    // bytes are mapped.
    let ptr = unsafe { start.add(skip) };
    let ptr = NonNull::new(ptr).ok_or(Errno::EFAULT)?;
    // SAFETY: `map` keeps `len` bytes at `ptr` mapped until dropped. It moves into the mapping, so
    // nothing else uses them.
    Ok(unsafe { Mapping::new(ptr, len, Box::new(map)) })
}

/// Returns the physical pages of anonymous memory to the kernel (`MADV_DONTNEED`). The addresses
/// stay mapped, and read as zeros.
///
/// # Safety
/// The `len` bytes at `start` are whole ordinary pages of one mapping of the caller, and nothing
/// uses their content any more.
pub unsafe fn discard(start: NonNull<u8>, len: usize) -> Result<(), Errno> {
    // SAFETY: the caller promises whole ordinary pages of one mapping, whose content nothing uses
    // any more.
    unsafe { madvise(start.cast(), len, MmapAdvise::MADV_DONTNEED) }
}

/// Protects the pages from a fork: the parent keeps the physical pages that the device uses.
///
/// Pages with `MADV_WIPEONFORK` are never shared with the child, so a write of the parent does not
/// copy them. A child that reads them gets zeros, where `MADV_DONTFORK` would make it fault. The
/// kernel does not wipe huge pages; they get `MADV_DONTFORK`, as do all pages where the kernel does
/// not know `MADV_WIPEONFORK`.
fn keep_from_children(map: &mut MmapMut, huge: bool) -> Result<(), Errno> {
    let wiped = if huge { Err(Errno::EINVAL) } else { wipe_in_children(map) };
    wiped.or_else(|_| map.advise(Advice::DontFork).map_err(errno))
}

fn wipe_in_children(map: &mut MmapMut) -> Result<(), Errno> {
    let start = NonNull::new(map.as_mut_ptr()).ok_or(Errno::EFAULT)?.cast();
    // SAFETY: the range is exactly the mapping, and the advice changes nothing in this process.
    unsafe { madvise(start, map.len(), MmapAdvise::MADV_WIPEONFORK) }
}

fn errno(error: io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

#[cfg(test)]
mod tests;
