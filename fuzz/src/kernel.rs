//! A kernel that answers calls, and then changes what it answered.

use crate::numbers::Numbers;
use mlx5_uapi::ioctl::{AttrFlags, IoctlAttr, IoctlHeader};
use mlx5_uapi::{Access, DeviceFile, Errno, EventFile, Kernel, Mapping, MemoryRequest};
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Objects of drivers have numbers from here on.
const DRIVER: u16 = 0x1000;

/// Which answers are changed, and how often.
pub(crate) struct Liar {
    pub(crate) numbers: Numbers,
    /// The firmware's alone: those of the driver's own objects.
    pub(crate) firmware: bool,
    /// One answer in so many.
    pub(crate) rarity: usize,
}

pub(crate) struct LyingKernel {
    honest: Arc<dyn Kernel>,
    liar: Arc<Mutex<Liar>>,
}

impl LyingKernel {
    pub(crate) fn new(honest: Arc<dyn Kernel>, liar: Liar) -> Self {
        Self { honest, liar: Arc::new(Mutex::new(liar)) }
    }
}

impl Kernel for LyingKernel {
    fn sysfs_list(&self, path: &str) -> Result<Vec<String>, Errno> {
        self.honest.sysfs_list(path)
    }

    fn sysfs_read(&self, path: &str) -> Result<String, Errno> {
        self.honest.sysfs_read(path)
    }

    fn sysfs_link(&self, path: &str) -> Result<String, Errno> {
        self.honest.sysfs_link(path)
    }

    fn open(&self, node: &str, dev: (u32, u32)) -> Result<Arc<dyn DeviceFile>, Errno> {
        let honest = self.honest.open(node, dev)?;
        Ok(Arc::new(LyingFile { honest, liar: Arc::clone(&self.liar) }))
    }

    fn uevents(&self) -> Result<Box<dyn EventFile>, Errno> {
        self.honest.uevents()
    }
}

struct LyingFile {
    honest: Arc<dyn DeviceFile>,
    liar: Arc<Mutex<Liar>>,
}

impl LyingFile {
    fn liar(&self) -> MutexGuard<'_, Liar> {
        self.liar.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DeviceFile for LyingFile {
    unsafe fn ioctl(&self, header: *mut IoctlHeader) -> Result<(), Errno> {
        // SAFETY: handed down.
        let answer = unsafe { self.honest.ioctl(header) };
        let mut liar = self.liar();
        let Liar { numbers, firmware, rarity } = &mut *liar;
        if !numbers.one_in(*rarity) {
            return answer;
        }
        if numbers.one_in(8) {
            let errnos = [Errno::EINVAL, Errno::ENOMEM, Errno::EREMOTEIO, Errno::EIO];
            return Err(numbers.pick(&errnos));
        }
        // SAFETY: the caller's header, and the attributes behind it.
        let (object, count, attributes) = unsafe {
            let head = header.read();
            (head.object_id, usize::from(head.num_attrs), header.add(1).cast::<IoctlAttr>())
        };
        if *firmware && object < DRIVER {
            return answer;
        }
        for number in 0..count {
            // SAFETY: one of the attributes; what is marked as written is an output, which has so
            // many bytes at that address.
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
        self.honest.map(offset, len, access)
    }

    fn allocate(&self, request: &MemoryRequest) -> Result<Mapping, Errno> {
        self.honest.allocate(request)
    }

    unsafe fn event_file(&self, fd: RawFd) -> Result<Box<dyn EventFile>, Errno> {
        // SAFETY: whatever number stood in the answer, the simulated kernel only looks it up.
        unsafe { self.honest.event_file(fd) }
    }
}
