//! A device file that has memory and nothing else.

use mlx5_uapi::{
    Access, DeviceFile, Errno, EventFile, Mapping, MemoryRequest, ioctl::IoctlHeader, page_size,
};
use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    os::fd::RawFd,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
};

/// Gives memory, unless told not to, and counts it.
#[derive(Default)]
pub(crate) struct Memory {
    live: Arc<AtomicUsize>,
    refuse: AtomicBool,
}

impl Memory {
    /// Mappings that were not dropped.
    pub(crate) fn live(&self) -> usize {
        self.live.load(Relaxed)
    }

    pub(crate) fn refuse(&self, refuse: bool) {
        self.refuse.store(refuse, Relaxed);
    }
}

struct Block {
    ptr: NonNull<u8>,
    layout: Layout,
    live: Arc<AtomicUsize>,
}

// SAFETY: owns its memory, and touches it only to free it.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Drop for Block {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Relaxed);
        // SAFETY: allocated with this layout, and freed once.
        unsafe { dealloc(self.ptr.as_ptr(), self.layout) };
    }
}

impl DeviceFile for Memory {
    unsafe fn ioctl(&self, _: *mut IoctlHeader) -> Result<(), Errno> {
        Err(Errno::ENOTTY)
    }

    fn map(&self, _: u64, len: usize, _: Access) -> Result<Mapping, Errno> {
        self.allocate(&MemoryRequest::new(len))
    }

    fn allocate(&self, request: &MemoryRequest) -> Result<Mapping, Errno> {
        if self.refuse.load(Relaxed) {
            return Err(Errno::ENOMEM);
        }
        let page = page_size();
        let len = request.len.next_multiple_of(page);
        let layout = Layout::from_size_align(len, request.align.max(page)).unwrap();
        // SAFETY: the length is not zero.
        let ptr = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(Errno::ENOMEM)?;
        self.live.fetch_add(1, Relaxed);
        let owner = Box::new(Block { ptr, layout, live: Arc::clone(&self.live) });
        // SAFETY: the block is nobody else's, and lives until `owner` is dropped.
        Ok(unsafe { Mapping::new(ptr, len, owner) })
    }

    fn event_file(&self, _: RawFd) -> Result<Box<dyn EventFile>, Errno> {
        Err(Errno::ENOTTY)
    }
}
