//! The kernel, as programs of libibverbs see it: they read event files by the flags that they set
//! themselves.

use mlx5_uapi::ioctl::IoctlHeader;
use mlx5_uapi::{
    Access, AllocateError, CmFile, DeviceFile, Errno, EventFile, Kernel, LinuxKernel, Mapping,
    MemoryRequest,
};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, RawFd};
use std::sync::Arc;

/// Linux, whose event files block until the program says otherwise.
#[derive(Debug)]
pub(crate) struct BlockingKernel(LinuxKernel);

impl BlockingKernel {
    pub(crate) fn new() -> Self {
        Self(LinuxKernel::new())
    }
}

impl Kernel for BlockingKernel {
    fn sysfs_list(&self, path: &str) -> Result<Vec<String>, Errno> {
        self.0.sysfs_list(path)
    }

    fn sysfs_read(&self, path: &str) -> Result<String, Errno> {
        self.0.sysfs_read(path)
    }

    fn sysfs_link(&self, path: &str) -> Result<String, Errno> {
        self.0.sysfs_link(path)
    }

    fn open(&self, node: &str, dev: (u32, u32)) -> Result<Arc<dyn DeviceFile>, Errno> {
        Ok(BlockingFile::over(self.0.open(node, dev)?))
    }

    fn uevents(&self) -> Result<Box<dyn EventFile>, Errno> {
        self.0.uevents()
    }

    fn rdma_cm(&self) -> Result<Arc<dyn CmFile>, Errno> {
        self.0.rdma_cm()
    }
}

/// A device file whose event files block until the program says otherwise.
pub(crate) struct BlockingFile(Arc<dyn DeviceFile>);

impl BlockingFile {
    pub(crate) fn over(file: Arc<dyn DeviceFile>) -> Arc<dyn DeviceFile> {
        Arc::new(Self(file))
    }
}

impl DeviceFile for BlockingFile {
    unsafe fn ioctl(&self, header: *mut IoctlHeader) -> Result<(), Errno> {
        // SAFETY: by the caller's contract, which is the same.
        unsafe { self.0.ioctl(header) }
    }

    fn map(&self, offset: u64, len: usize, access: Access) -> Result<Mapping, Errno> {
        self.0.map(offset, len, access)
    }

    fn allocate(&self, request: &MemoryRequest) -> Result<Mapping, AllocateError> {
        self.0.allocate(request)
    }

    unsafe fn event_file(&self, fd: RawFd) -> Result<Box<dyn EventFile>, Errno> {
        if fd < 0 {
            return Err(Errno::EBADF);
        }
        // SAFETY: by the contract, the descriptor is new, and nothing else owns it.
        Ok(Box::new(Events(unsafe { File::from_raw_fd(fd) })))
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.as_fd()
    }
}

/// Reads from a descriptor, and may wait there. The caller owns nothing meanwhile: see [`crate::waiting`].
pub(crate) fn read(fd: RawFd, to: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: so many bytes are writable. Another thread may close the descriptor before or meanwhile: then the
    // kernel refuses the call, or ends it, or it waits on.
    let length = unsafe { libc::read(fd, to.as_mut_ptr().cast(), to.len()) };
    usize::try_from(length).map_err(|_| Errno::last())
}

/// An event file as the kernel made it. A signal ends a read with `EINTR`: programs wait for that.
struct Events(File);

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl EventFile for Events {
    fn read(&self, buf: &mut [u8]) -> Result<usize, Errno> {
        read(self.0.as_raw_fd(), buf)
    }
}
