//! A kernel that forwards calls and mutates their results.

use crate::numbers::Numbers;
use mlx5_uapi::ioctl::{AttrFlags, IoctlAttr, IoctlHeader};
use mlx5_uapi::{
    Access, AllocateError, CmFile, DeviceFile, Errno, EventFile, Kernel, Mapping, MemoryRequest,
};
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The first number of driver-specific objects.
const DRIVER: u16 = 0x1000;

/// Selects the results to mutate, and the frequency.
pub(crate) struct Mutator {
    pub(crate) numbers: Numbers,
    /// Mutate only results of firmware commands: those of driver-specific objects.
    pub(crate) firmware: bool,
    /// Mutate one result in this many.
    pub(crate) one_in: usize,
}

pub(crate) struct MutatingKernel {
    inner: Arc<dyn Kernel>,
    mutator: Arc<Mutex<Mutator>>,
}

impl MutatingKernel {
    pub(crate) fn new(inner: Arc<dyn Kernel>, mutator: Mutator) -> Self {
        Self { inner, mutator: Arc::new(Mutex::new(mutator)) }
    }
}

impl Kernel for MutatingKernel {
    fn sysfs_list(&self, path: &str) -> Result<Vec<String>, Errno> {
        self.inner.sysfs_list(path)
    }

    fn sysfs_read(&self, path: &str) -> Result<String, Errno> {
        self.inner.sysfs_read(path)
    }

    fn sysfs_link(&self, path: &str) -> Result<String, Errno> {
        self.inner.sysfs_link(path)
    }

    fn open(&self, node: &str, dev: (u32, u32)) -> Result<Arc<dyn DeviceFile>, Errno> {
        let inner = self.inner.open(node, dev)?;
        Ok(Arc::new(MutatingFile { inner, mutator: Arc::clone(&self.mutator) }))
    }

    fn uevents(&self) -> Result<Box<dyn EventFile>, Errno> {
        self.inner.uevents()
    }

    fn rdma_cm(&self) -> Result<Arc<dyn CmFile>, Errno> {
        self.inner.rdma_cm()
    }
}

struct MutatingFile {
    inner: Arc<dyn DeviceFile>,
    mutator: Arc<Mutex<Mutator>>,
}

impl MutatingFile {
    fn mutator(&self) -> MutexGuard<'_, Mutator> {
        self.mutator.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DeviceFile for MutatingFile {
    unsafe fn ioctl(&self, header: *mut IoctlHeader) -> Result<(), Errno> {
        // SAFETY: the caller's promises about `header` are those that the inner call needs.
        let answer = unsafe { self.inner.ioctl(header) };
        let mut mutator = self.mutator();
        let Mutator { numbers, firmware, one_in } = &mut *mutator;
        if !numbers.one_in(*one_in) {
            return answer;
        }
        if numbers.one_in(8) {
            let errnos = [Errno::EINVAL, Errno::ENOMEM, Errno::EREMOTEIO, Errno::EIO];
            return Err(numbers.pick(&errnos));
        }
        // SAFETY: the caller promises that `header` points to a header, followed by `num_attrs`
        // attributes.
        let (object, count, attributes) = unsafe {
            let head = header.read();
            (head.object_id, usize::from(head.num_attrs), header.add(1).cast::<IoctlAttr>())
        };
        if *firmware && object < DRIVER {
            return answer;
        }
        for number in 0..count {
            // SAFETY: `number < num_attrs`, so the attribute is in the caller's array. A valid
            // output attribute has `len` writable bytes at the address in `data`; the inner call
            // has returned and does not use them any more.
            unsafe {
                let attribute = attributes.add(number).read();
                if attribute.flags & AttrFlags::VALID_OUTPUT.bits() == 0 || attribute.data == 0 {
                    continue;
                }
                let start = std::ptr::with_exposed_provenance_mut::<u8>(attribute.data as usize);
                let mut bytes = vec![0; attribute.len.into()];
                start.copy_to(bytes.as_mut_ptr(), bytes.len());
                if numbers.one_in(2) {
                    numbers.spoil(&mut bytes);
                }
                start.copy_from(bytes.as_ptr(), bytes.len());
            }
        }
        answer
    }

    fn map(&self, offset: u64, len: usize, access: Access) -> Result<Mapping, Errno> {
        self.inner.map(offset, len, access)
    }

    fn allocate(&self, request: &MemoryRequest) -> Result<Mapping, AllocateError> {
        self.inner.allocate(request)
    }

    unsafe fn event_file(&self, fd: RawFd) -> Result<Box<dyn EventFile>, Errno> {
        // SAFETY: the simulated kernel only looks up `fd` in its table, so any number is valid.
        unsafe { self.inner.event_file(fd) }
    }
}
