//! Memory of queues.

use crate::{
    error::{Error, ErrorKind},
    link::Link,
};
use mlx5_uapi::{AllocateError, DeviceFile, Errno, HugePages, Mapping, MemoryRequest, page_size};
use std::{ptr::NonNull, sync::Arc};

/// Allocates memory and checks its length and alignment. The check is needed because [`DeviceFile`]
/// can be implemented in safe code: unsafe code must not rely on what it returns.
pub(crate) fn map(
    file: &dyn DeviceFile,
    request: &MemoryRequest,
) -> Result<Mapping, AllocateError> {
    let mapping = file.allocate(request)?;
    let align = request.align.max(page_size());
    let sound = mapping.len() >= request.len && mapping.as_ptr().addr().is_multiple_of(align);
    if sound { Ok(mapping) } else { Err(Errno::EPROTO.into()) }
}

/// Allocates memory for an operation.
pub(crate) fn allocate(
    operation: &'static str,
    file: &dyn DeviceFile,
    request: &MemoryRequest,
) -> Result<Mapping, Error> {
    map(file, request).map_err(|error| Error::allocate(operation, request.len, error))
}

/// Provides the memory of rings: of queue pairs, completion queues and shared receive queues.
///
/// # Safety
/// [`QueueAllocator::allocate`] returns `len` writable bytes, aligned to `align`. Only the queue
/// and the device read or write them until they are passed to [`QueueAllocator::free`]. If they are
/// never passed there, they stay mapped forever: memory of a queue that the kernel did not destroy
/// is never freed, see [`leaked`](crate::leaked). A child process does not use them after a fork.
pub unsafe trait QueueAllocator: Send + Sync {
    /// Allocates memory for a ring, or returns `None`. `align` is a power of two and at least the
    /// page size; `len` is a multiple of the page size.
    fn allocate(&self, len: usize, align: usize) -> Option<NonNull<u8>>;

    /// Frees memory that no queue uses any more.
    ///
    /// # Safety
    /// `start` was returned by [`QueueAllocator::allocate`] for the same `len`, and is passed here
    /// once.
    unsafe fn free(&self, start: NonNull<u8>, len: usize);
}

/// Memory from a [`QueueAllocator`], to which dropping it returns it.
struct Allocated {
    allocator: Arc<dyn QueueAllocator>,
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: `start` is only passed back to the allocator, which is Send and Sync and so may be called
// on any thread.
unsafe impl Send for Allocated {}
// SAFETY: a shared reference gives access to nothing.
unsafe impl Sync for Allocated {}

impl Drop for Allocated {
    fn drop(&mut self) {
        // SAFETY: `allocate` of this allocator returned `start` for `len`, and `drop` runs once.
        unsafe { self.allocator.free(self.start, self.len) };
    }
}

/// Allocates `len` bytes, rounded up to whole pages, from `allocator` and zeroes them.
fn allocate_from(allocator: &Arc<dyn QueueAllocator>, len: usize) -> Result<Mapping, Error> {
    let align = page_size();
    let len = len.next_multiple_of(align);
    let start = allocator.allocate(len, align).ok_or_else(|| {
        let cause = format!("the queue allocator has no memory: it was asked for {len} bytes");
        Error::new(OPERATION, ErrorKind::OutOfMemory, cause)
    })?;
    let owner = Box::new(Allocated { allocator: Arc::clone(allocator), start, len });
    if !start.addr().get().is_multiple_of(align) {
        let cause = format!("the queue allocator returned {start:p}, not aligned to {align} bytes");
        return Err(Error::invalid(OPERATION, cause));
    }
    // SAFETY: by the contract of [`QueueAllocator`] the `len` bytes are writable, and stay mapped
    // and used by nothing else until they are freed, which dropping `owner` does.
    unsafe {
        start.write_bytes(0, len);
        Ok(Mapping::new(start, len, owner))
    }
}

/// Where the memory of rings comes from.
#[derive(Clone, Default)]
pub(crate) struct MemorySource {
    /// The page size.
    pub(crate) huge_pages: HugePages,
    /// The preferred NUMA node.
    pub(crate) numa_node: Option<u32>,
    /// Who provides it, if not the kernel.
    pub(crate) allocator: Option<Arc<dyn QueueAllocator>>,
}

const OPERATION: &str = "allocate queue memory";

/// Page-aligned, zeroed memory for a ring. Dropping it unmaps it: code that passed it to the device
/// must either have destroyed the device's object or call [`QueueBuffer::keep`].
pub(crate) struct QueueBuffer {
    link: Arc<Link>,
    /// `Some` until the value is dropped.
    mapping: Option<Mapping>,
    /// Whether the memory is a [`QueueAllocator`]'s, which would use it again.
    borrowed: bool,
    start: NonNull<u8>,
}

// SAFETY: `start` is an address inside `mapping`, which is Send. Nothing here dereferences it;
// code that does upholds the safety of that access.
unsafe impl Send for QueueBuffer {}
// SAFETY: as above.
unsafe impl Sync for QueueBuffer {}

impl QueueBuffer {
    /// Allocates `len` bytes. A length of zero
    /// counts as one, so that there is always an address.
    pub(crate) fn new(link: &Arc<Link>, len: usize, source: &MemorySource) -> Result<Self, Error> {
        let len = len.max(1);
        let MemorySource { huge_pages, numa_node, allocator } = source;
        let mapping = match allocator {
            Some(_) if numa_node.is_some() || *huge_pages != HugePages::None => {
                let cause =
                    "the queue allocator chooses NUMA node and page size: give one or the other";
                return Err(Error::invalid(OPERATION, cause.into()));
            }
            Some(allocator) => allocate_from(allocator, len)?,
            None => {
                let request = MemoryRequest::new(len).align(page_size());
                let request = request.huge(*huge_pages).numa_node(*numa_node);
                allocate(OPERATION, &*link.file, &request)?
            }
        };
        let start = mapping.as_non_null();
        let borrowed = allocator.is_some();
        Ok(Self { link: Arc::clone(link), mapping: Some(mapping), borrowed, start })
    }

    /// Returns the first byte.
    pub(crate) fn as_non_null(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the address of the first byte, for the kernel.
    pub(crate) fn addr(&self) -> u64 {
        self.start.as_ptr().expose_provenance() as u64
    }

    /// Keeps the memory, because the device may still use it, and counts it. Memory of ours is kept
    /// until the context closes, memory of an allocator until the process ends.
    pub(crate) fn keep(mut self) {
        match self.mapping.take() {
            Some(mapping) if self.borrowed => self.link.keep_until_exit(mapping),
            Some(mapping) => self.link.keep(mapping),
            None => {}
        }
    }
}

impl Drop for QueueBuffer {
    fn drop(&mut self) {
        // In a child the range may not be mapped, or may hold another mapping: do not unmap it.
        if let Some(mapping) = self.mapping.take()
            && self.link.forked()
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

    /// Returns mappings that are too short or misaligned.
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

        fn allocate(&self, _: &MemoryRequest) -> Result<Mapping, AllocateError> {
            let mut block = Box::new(Block([0; 1 << 16]));
            let ptr = NonNull::from(&mut block.0[self.skip]);
            // SAFETY: the block lives until the mapping is dropped, and nothing accesses its bytes.
            Ok(unsafe { Mapping::new(ptr, self.len, block) })
        }

        unsafe fn event_file(&self, _: RawFd) -> Result<Box<dyn EventFile>, Errno> {
            Err(Errno::ENOTTY)
        }
    }

    #[test]
    fn memory_that_is_not_as_asked_for_is_not_used() {
        let request = MemoryRequest::new(page_size());
        let ask = |skip, len, request| map(&Stingy { skip, len }, request).map(drop);
        let wrong = Err(AllocateError::from(Errno::EPROTO));
        assert_eq!(ask(0, page_size(), &request), Ok(()));
        assert_eq!(ask(0, page_size() - 1, &request), wrong);
        assert_eq!(ask(64, page_size(), &request), wrong);
        let aligned = request.align(2 * page_size());
        assert_eq!(ask(page_size(), page_size(), &aligned), wrong);
    }
}
