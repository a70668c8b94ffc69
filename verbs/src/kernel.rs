//! The kernel as programs of libibverbs expect it: they choose themselves whether event files
//! block.

use mlx5_uapi::ioctl::IoctlHeader;
use mlx5_uapi::{
    Access, AllocateError, CmFile, DeviceFile, Errno, EventFile, Kernel, LinuxKernel, Mapping,
    MemoryRequest,
};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, RawFd};
use std::sync::Arc;

/// Linux, with event files that block until the program changes that.
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

/// A device file with event files that block until the program changes that.
pub(crate) struct BlockingFile(Arc<dyn DeviceFile>);

impl BlockingFile {
    pub(crate) fn over(file: Arc<dyn DeviceFile>) -> Arc<dyn DeviceFile> {
        Arc::new(Self(file))
    }
}

impl DeviceFile for BlockingFile {
    unsafe fn ioctl(&self, header: *mut IoctlHeader) -> Result<(), Errno> {
        // SAFETY: the caller promises a valid `header` and attributes, which are passed on
        // unchanged.
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
        // SAFETY: the caller promises that an ioctl just created `fd`, and that nothing else owns
        // it.
        Ok(Box::new(Events(unsafe { File::from_raw_fd(fd) })))
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.as_fd()
    }
}

/// Reads from a descriptor, and may wait. The caller must own nothing meanwhile: see
/// [`crate::waiting`].
pub(crate) fn read(fd: RawFd, to: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: `to` is writable for its length. Another thread may close the descriptor before or
    // during the call: then the kernel refuses the call, or ends it, or it keeps waiting.
    let length = unsafe { libc::read(fd, to.as_mut_ptr().cast(), to.len()) };
    usize::try_from(length).map_err(|_| Errno::last())
}

/// An event file as the kernel created it. A signal ends a read with `EINTR`, which programs rely
/// on.
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
