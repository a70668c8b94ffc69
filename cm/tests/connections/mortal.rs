//! A process that is killed at one of its system calls: the kernel closes its files, and its
//! program stops. Here the program continues, and every call of it fails.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use mlx5::Kernel;
use mlx5_uapi::ioctl::IoctlHeader;
use mlx5_uapi::{
    Access, AllocateError, CmFile, DeviceFile, Errno, EventFile, Mapping, MemoryRequest,
};

/// Number of calls that a process makes before it is killed.
pub(crate) struct Life {
    /// Calls until it is killed.
    left: AtomicU64,
    /// Its open files.
    files: Mutex<Vec<Arc<dyn Close>>>,
}

impl Life {
    pub(crate) fn of(calls: u64) -> Arc<Self> {
        Arc::new(Self { left: AtomicU64::new(calls), files: Mutex::default() })
    }

    pub(crate) fn is_over(&self) -> bool {
        self.left.load(Ordering::SeqCst) == 0
    }

    /// One step of the program, such as a call.
    #[allow(deprecated, reason = "the new name, `try_update`, is younger than the oldest compiler")]
    pub(crate) fn step(&self) -> Result<(), Errno> {
        let lives = |left: u64| left.checked_sub(1);
        match self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, lives) {
            Ok(2..) => Ok(()),
            before => {
                if before == Ok(1) {
                    let files = std::mem::take(&mut *self.files.lock().expect("the files"));
                    files.iter().for_each(|file| file.close());
                }
                Err(Errno::EIO)
            }
        }
    }

    fn open<F: ?Sized + Send + Sync + 'static>(self: &Arc<Self>, file: Arc<F>) -> Arc<Open<F>> {
        let open = Arc::new(Open { file: Mutex::new(Some(file)), life: Arc::clone(self) });
        self.files.lock().expect("the files").push(Arc::clone(&open) as _);
        open
    }
}

trait Close: Send + Sync {
    fn close(&self);
}

struct Open<F: ?Sized> {
    file: Mutex<Option<Arc<F>>>,
    life: Arc<Life>,
}

impl<F: ?Sized> Open<F> {
    fn file(&self) -> MutexGuard<'_, Option<Arc<F>>> {
        self.file.lock().expect("the file")
    }

    /// Returns the file for a call.
    fn call(&self) -> Result<Arc<F>, Errno> {
        self.life.step()?;
        self.file().clone().ok_or(Errno::EIO)
    }
}

impl<F: ?Sized + Send + Sync> Close for Open<F> {
    fn close(&self) {
        drop(self.file().take());
    }
}

/// The kernel of such a process.
pub(crate) struct Mortal {
    pub(crate) kernel: Arc<dyn Kernel>,
    pub(crate) life: Arc<Life>,
}

impl Kernel for Mortal {
    fn sysfs_list(&self, path: &str) -> Result<Vec<String>, Errno> {
        self.kernel.sysfs_list(path)
    }

    fn sysfs_read(&self, path: &str) -> Result<String, Errno> {
        self.kernel.sysfs_read(path)
    }

    fn sysfs_link(&self, path: &str) -> Result<String, Errno> {
        self.kernel.sysfs_link(path)
    }

    fn open(&self, node: &str, dev: (u32, u32)) -> Result<Arc<dyn DeviceFile>, Errno> {
        self.life.step()?;
        Ok(Arc::new(Device(self.life.open(self.kernel.open(node, dev)?))))
    }

    fn uevents(&self) -> Result<Box<dyn EventFile>, Errno> {
        self.kernel.uevents()
    }

    fn rdma_cm(&self) -> Result<Arc<dyn CmFile>, Errno> {
        self.life.step()?;
        let file = self.kernel.rdma_cm()?;
        let number = file.as_fd().as_raw_fd();
        let other = file.as_fd().try_clone_to_owned().expect("a descriptor");
        Ok(Arc::new(Channel { open: self.life.open(file), number, other }))
    }
}

/// Closing the file closes its descriptors.
struct Device(Arc<Open<dyn DeviceFile>>);

impl Drop for Device {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl DeviceFile for Device {
    unsafe fn ioctl(&self, header: *mut IoctlHeader) -> Result<(), Errno> {
        // SAFETY: the caller promises a valid `header` and attributes; they pass on unchanged.
        unsafe { self.0.call()?.ioctl(header) }
    }

    fn map(&self, offset: u64, len: usize, access: Access) -> Result<Mapping, Errno> {
        self.0.call()?.map(offset, len, access)
    }

    fn allocate(&self, request: &MemoryRequest) -> Result<Mapping, AllocateError> {
        self.0.call()?.allocate(request)
    }

    unsafe fn event_file(&self, fd: RawFd) -> Result<Box<dyn EventFile>, Errno> {
        // SAFETY: the caller promises that an ioctl of this file, which passed on too, created
        // `fd`. If the process is killed, the descriptor is closed with the device's file.
        unsafe { self.0.call()?.event_file(fd) }
    }
}

struct Channel {
    open: Arc<Open<dyn CmFile>>,
    /// The descriptor of the file.
    number: RawFd,
    /// A descriptor that stays valid when the file is closed.
    other: OwnedFd,
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.open.close();
    }
}

impl CmFile for Channel {
    unsafe fn write(&self, call: &[u8]) -> Result<(), Errno> {
        // SAFETY: the caller promises that the addresses in `call` are valid; the call passes on
        // unchanged.
        unsafe { self.open.call()?.write(call) }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &*self.open.file() {
            // SAFETY: the file is open, and only the thread that waits for it closes it.
            Some(_) => unsafe { BorrowedFd::borrow_raw(self.number) },
            None => self.other.as_fd(),
        }
    }
}
