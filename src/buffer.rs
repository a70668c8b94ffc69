//! Memory of queues.

use crate::{context::Inner, error::Error};
use mlx5_uapi::{DeviceFile, Errno, HugePages, Mapping, MemoryRequest, page_size};
use std::{ptr::NonNull, sync::Arc};

/// Asks for memory, and looks whether it is as asked for: whoever implements the seam does so in safe
/// code, so that an answer proves nothing.
pub(crate) fn allocate(file: &dyn DeviceFile, request: &MemoryRequest) -> Result<Mapping, Errno> {
    let mapping = file.allocate(request)?;
    let align = request.align.max(page_size());
    let sound = mapping.len() >= request.len && mapping.as_ptr().addr().is_multiple_of(align);
    if sound { Ok(mapping) } else { Err(Errno::EPROTO) }
}

/// Gives queues their memory: the rings of queue pairs, completion queues and shared receive queues.
///
/// # Safety
/// [`QueueAllocator::allocate`] answers `len` writable bytes, aligned to `align`, which nobody reads
/// or writes but the queue and the device until they are given to [`QueueAllocator::free`], and which
/// stay mapped for ever if they never are: memory of a queue that the kernel would not destroy is not
/// given back, see [`leaked`](crate::leaked). A child process after a fork does not use them.
pub unsafe trait QueueAllocator: Send + Sync {
    /// Memory for a queue; `None` if there is none. `align` is a power of two, a page at least.
    fn allocate(&self, len: usize, align: usize) -> Option<NonNull<u8>>;

    /// Takes memory back that no queue uses any more.
    ///
    /// # Safety
    /// [`QueueAllocator::allocate`] answered it, asked for so many bytes, and it is given back once.
    unsafe fn free(&self, start: NonNull<u8>, len: usize);
}

/// Memory that an allocator gave, and takes back.
struct Allocated {
    allocator: Arc<dyn QueueAllocator>,
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: an address, which the allocator takes back on whichever thread.
unsafe impl Send for Allocated {}
// SAFETY: as above; nothing is done through a shared reference.
unsafe impl Sync for Allocated {}

impl Drop for Allocated {
    fn drop(&mut self) {
        // SAFETY: it was allocated so, and this is dropped once.
        unsafe { self.allocator.free(self.start, self.len) };
    }
}

/// Asks an allocator for `len` bytes of memory, which are zero then.
fn allocate_from(allocator: &Arc<dyn QueueAllocator>, len: usize) -> Result<Mapping, Errno> {
    let align = page_size();
    let len = len.next_multiple_of(align);
    let start = allocator.allocate(len, align).ok_or(Errno::ENOMEM)?;
    let owner = Box::new(Allocated { allocator: Arc::clone(allocator), start, len });
    if !start.addr().get().is_multiple_of(align) {
        return Err(Errno::EPROTO);
    }
    // SAFETY: the allocator answers for the bytes, which are the owner's.
    unsafe {
        start.write_bytes(0, len);
        Ok(Mapping::new(start, len, owner))
    }
}

/// Page-aligned, zeroed memory for rings. It is unmapped when dropped: whoever told the device of
/// it either made the device forget it, or keeps it.
pub(crate) struct QueueBuffer {
    context: Arc<Inner>,
    /// There until the value is dropped.
    mapping: Option<Mapping>,
    /// Whether an allocator gave it, who would use it again.
    borrowed: bool,
    start: NonNull<u8>,
}

// SAFETY: `start` is an address in `mapping`, which is Send; whoever uses it answers for it.
unsafe impl Send for QueueBuffer {}
// SAFETY: as above.
unsafe impl Sync for QueueBuffer {}

impl QueueBuffer {
    /// `len` bytes, which `allocator` gives, if there is one; none becomes one page, so that there is
    /// always an address.
    pub(crate) fn new(
        context: &Arc<Inner>,
        len: usize,
        huge_pages: HugePages,
        allocator: Option<&Arc<dyn QueueAllocator>>,
    ) -> Result<Self, Error> {
        let len = len.max(1);
        let request = MemoryRequest::new(len).align(page_size()).huge(huge_pages);
        let mapping = match allocator {
            Some(allocator) => allocate_from(allocator, len),
            None => allocate(&*context.file, &request),
        };
        let mapping = mapping.map_err(|errno| context.fail("allocate queue memory", errno))?;
        let start = mapping.as_non_null();
        let borrowed = allocator.is_some();
        Ok(Self { context: Arc::clone(context), mapping: Some(mapping), borrowed, start })
    }

    /// The first byte.
    pub(crate) fn as_non_null(&self) -> NonNull<u8> {
        self.start
    }

    /// The first byte's address, as the kernel is told.
    pub(crate) fn addr(&self) -> u64 {
        self.start.expose_provenance().get() as u64
    }

    /// Keeps the memory, for the device may still use it, and counts it: until the context closes if
    /// it is ours, and for good if an allocator gave it.
    pub(crate) fn keep(mut self) {
        match self.mapping.take() {
            Some(mapping) if self.borrowed => self.context.keep_for_good(mapping),
            Some(mapping) => self.context.keep(mapping),
            None => {}
        }
    }
}

impl Drop for QueueBuffer {
    fn drop(&mut self) {
        // In a child the range may not be mapped, or by now be someone else's.
        if let Some(mapping) = self.mapping.take()
            && self.context.forked()
        {
            mapping.leak();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlx5_uapi::{Access, EventFile, ioctl::IoctlHeader};
    use std::os::fd::RawFd;

    #[repr(align(65536))]
    struct Block([u8; 1 << 16]);

    /// Gives less than it is asked for, or at another place.
    struct Stingy {
        skip: usize,
        len: usize,
    }

    impl DeviceFile for Stingy {
        unsafe fn ioctl(&self, _: *mut IoctlHeader) -> Result<(), Errno> {
            Err(Errno::ENOTTY)
        }

        fn map(&self, _: u64, _: usize, _: Access) -> Result<Mapping, Errno> {
            Err(Errno::ENOTTY)
        }

        fn allocate(&self, _: &MemoryRequest) -> Result<Mapping, Errno> {
            let mut block = Box::new(Block([0; 1 << 16]));
            let ptr = NonNull::from(&mut block.0[self.skip]);
            // SAFETY: the block lives until the mapping is dropped, which nobody looks into.
            Ok(unsafe { Mapping::new(ptr, self.len, block) })
        }

        fn event_file(&self, _: RawFd) -> Result<Box<dyn EventFile>, Errno> {
            Err(Errno::ENOTTY)
        }
    }

    #[test]
    fn memory_that_is_not_as_asked_for_is_not_used() {
        let request = MemoryRequest::new(page_size());
        let ask = |skip, len, request| allocate(&Stingy { skip, len }, request).map(drop);
        assert_eq!(ask(0, page_size(), &request), Ok(()));
        assert_eq!(ask(0, page_size() - 1, &request), Err(Errno::EPROTO));
        assert_eq!(ask(64, page_size(), &request), Err(Errno::EPROTO));
        let aligned = request.align(2 * page_size());
        assert_eq!(ask(page_size(), page_size(), &aligned), Err(Errno::EPROTO));
    }
}
