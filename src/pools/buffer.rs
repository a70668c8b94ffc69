//! Memory of queues.

use super::arena::{Arena, Kind, Run};
use super::map::map;
use crate::{
    error::{Error, ErrorKind},
    link::Link,
};
use mlx5_uapi::{DeviceFile, Errno, HugePages, Mapping, MemoryRequest, numa, page_size};
use std::{
    ops::Range,
    ptr::NonNull,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

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
/// [`QueueAllocator::allocate`] returns `len` writable bytes, aligned to `align`, and
/// [`QueueAllocator::allocate_record`] eight or none. Only the queue and the device read or write
/// them until they are passed to [`QueueAllocator::free`], or [`QueueAllocator::free_record`]. If
/// they are never passed there, they stay mapped forever: memory of a queue that the kernel did not
/// destroy is never freed, see [`leaked`](crate::leaked). A child process does not use them after a
/// fork.
pub unsafe trait QueueAllocator: Send + Sync {
    /// Allocates memory for a ring, or returns `None`. `align` is a power of two and at least the
    /// page size; `len` is a multiple of the page size.
    fn allocate(&self, len: usize, align: usize) -> Option<NonNull<u8>>;

    /// Frees memory that no queue uses any more.
    ///
    /// # Safety
    /// `start` was returned by [`QueueAllocator::allocate`] for the same `len`, and is passed here
    /// only once.
    unsafe fn free(&self, start: NonNull<u8>, len: usize);

    /// Allocates a doorbell record of a queue. By default the driver allocates its own.
    fn allocate_record(&self) -> RecordMemory {
        RecordMemory::Driver
    }

    /// Frees a doorbell record that no queue uses any more.
    ///
    /// # Safety
    /// `record` was returned by [`QueueAllocator::allocate_record`], and is passed here only once.
    unsafe fn free_record(&self, record: NonNull<u8>) {
        let _ = record;
    }
}

/// The place of a queue's doorbell record: eight bytes for counters that the device reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordMemory {
    /// In memory of the driver.
    Driver,
    /// At this address, aligned to eight bytes.
    At(NonNull<u8>),
    /// Nowhere: there is no memory.
    Unavailable,
}

/// Memory from a [`QueueAllocator`]. Dropping it returns it there.
struct Allocated {
    allocator: Arc<dyn QueueAllocator>,
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: `start` is only passed back to the allocator, which is Send and Sync, so any thread may
// call it.
unsafe impl Send for Allocated {}
// SAFETY: a shared reference gives no access to any field.
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
    // SAFETY: an implementation of [`QueueAllocator`] promises that the `len` bytes are writable,
    // and stay mapped and unused by anything else until they are freed, which dropping `owner`
    // does.
    unsafe {
        start.write_bytes(0, len);
        Ok(Mapping::new(start, len, owner))
    }
}

/// The source of the memory of rings.
#[derive(Clone, Default)]
pub(crate) struct MemorySource {
    /// The page size.
    pub(crate) huge_pages: HugePages,
    /// The preferred NUMA node.
    pub(crate) numa_node: Option<u32>,
    /// The allocator that provides it, if not the kernel.
    pub(crate) allocator: Option<Arc<dyn QueueAllocator>>,
}

impl MemorySource {
    /// Returns the kinds of pages to try, in order.
    fn kinds(&self) -> impl Iterator<Item = Kind> {
        let near = if self.numa_node.is_none() { numa::local_node() } else { 0 };
        let sizes = match &self.huge_pages {
            HugePages::Prefer => &[HugePages::TwoMiB, HugePages::None],
            one => std::slice::from_ref(one),
        };
        sizes.iter().map(move |size| Kind { huge_pages: *size, numa_node: self.numa_node, near })
    }
}

const OPERATION: &str = "allocate queue memory";

/// The memory of the rings of a context.
pub(crate) struct Buffers {
    arena: Mutex<Arena>,
    link: Arc<Link>,
}

// SAFETY: an arena has addresses of memory that it owns, and never dereferences them here. Code
// that does is responsible for the access.
unsafe impl Send for Buffers {}
// SAFETY: a mutex protects the arena, whose addresses are never dereferenced here.
unsafe impl Sync for Buffers {}

impl Buffers {
    pub(crate) fn new(link: &Arc<Link>) -> Arc<Self> {
        Arc::new(Self { arena: Mutex::default(), link: Arc::clone(link) })
    }

    fn arena(&self) -> MutexGuard<'_, Arena> {
        self.arena.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes zeroed pages.
    fn take(&self, len: usize, source: &MemorySource) -> Result<Run, Error> {
        let mut refused = Errno::EINVAL.into();
        for kind in source.kinds() {
            let taken = self.arena().take(&*self.link.file, kind, len);
            match taken {
                Ok((run, dirty)) => {
                    // SAFETY: the pages are mapped, and from now on only the ring uses them.
                    unsafe { dirty.zero(run.start()) };
                    return Ok(run);
                }
                Err(error) => refused = error,
            }
        }
        Err(Error::allocate(OPERATION, len, refused))
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        let arena = self.arena.get_mut().unwrap_or_else(PoisonError::into_inner);
        let (kept, others) = arena.take_all();
        if self.link.forked() {
            // The ranges may hold other mappings.
            kept.into_iter().chain(others).for_each(Mapping::leak);
        } else {
            kept.into_iter().for_each(|chunk| self.link.keep_page(chunk));
        }
    }
}

/// The memory of a ring, by its source.
enum Memory {
    Pooled(Run),
    /// From a [`QueueAllocator`], which would reuse it.
    Borrowed(Mapping),
}

/// Page-aligned, zeroed memory for a ring. Dropping it makes it available to the next ring: code
/// that passed it to the device must either have destroyed the device's object or call
/// [`QueueBuffer::keep`].
pub(crate) struct QueueBuffer {
    buffers: Arc<Buffers>,
    /// `Some` until the value is dropped.
    memory: Option<Memory>,
    start: NonNull<u8>,
    /// The bytes that may have been written.
    written: [Range<usize>; 2],
}

// SAFETY: `start` is an address inside `memory`, which the value owns. It is never dereferenced
// here; code that does is responsible for the access.
unsafe impl Send for QueueBuffer {}
// SAFETY: `start` is never dereferenced here; code that does is responsible for the access.
unsafe impl Sync for QueueBuffer {}

impl QueueBuffer {
    /// Allocates `len` bytes. A length of zero counts as one, so that there is always an address.
    pub(crate) fn new(
        buffers: &Arc<Buffers>,
        len: usize,
        source: &MemorySource,
    ) -> Result<Self, Error> {
        let len = len.max(1);
        let MemorySource { huge_pages, numa_node, allocator } = source;
        let memory = match allocator {
            Some(_) if numa_node.is_some() || *huge_pages != HugePages::None => {
                let cause =
                    "the queue allocator chooses NUMA node and page size: give one or the other";
                return Err(Error::invalid(OPERATION, cause.into()));
            }
            Some(allocator) => Memory::Borrowed(allocate_from(allocator, len)?),
            None => Memory::Pooled(buffers.take(len, source)?),
        };
        let start = match &memory {
            Memory::Pooled(run) => run.start(),
            Memory::Borrowed(mapping) => mapping.as_non_null(),
        };
        // All bytes, until `only_wrote` is called.
        let written = [0..usize::MAX, 0..0];
        Ok(Self { buffers: Arc::clone(buffers), memory: Some(memory), start, written })
    }

    /// Notes that only these bytes were written since the memory was allocated. The next ring
    /// relies on zeros everywhere else.
    pub(crate) fn only_wrote(&mut self, written: [Range<usize>; 2]) {
        self.written = written;
    }

    /// Returns the first byte.
    pub(crate) fn as_non_null(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the address of the first byte, for the kernel.
    pub(crate) fn addr(&self) -> u64 {
        self.start.as_ptr().expose_provenance() as u64
    }

    /// Keeps the memory, because the device may still use it, and counts it. Memory of the pool is
    /// kept until the context closes, memory of an allocator until the process ends.
    pub(crate) fn keep(mut self) {
        let link = &self.buffers.link;
        match self.memory.take() {
            Some(Memory::Borrowed(mapping)) => link.keep_until_exit(mapping),
            // After a fork, a thread that does not exist in the child may hold the lock.
            Some(Memory::Pooled(run)) if !link.forked() => {
                self.buffers.arena().keep(run);
                link.count_kept();
            }
            _ => {}
        }
    }
}

impl Drop for QueueBuffer {
    fn drop(&mut self) {
        match self.memory.take() {
            // In a child the range may not be mapped, or may hold another mapping, and a thread
            // that does not exist here may hold the lock.
            Some(Memory::Borrowed(mapping)) if self.buffers.link.forked() => mapping.leak(),
            Some(Memory::Pooled(run)) if !self.buffers.link.forked() => {
                let unused = self.buffers.arena().give_back(run, &self.written);
                // Unmapped without holding the lock.
                drop(unused);
            }
            _ => {}
        }
    }
}

/// Adds the options of queue memory to a builder. `$memory` is the path to its [`MemorySource`],
/// `$what` names the queue in the documentation.
macro_rules! memory_options {
    ($what:literal, $($memory:ident).+) => {
        #[doc = concat!("NUMA node of ", $what, ": its pages come from there as long as the node has \
            free memory.")]
        /// Default: `None`, the process's policy. Refused together with
        /// [`allocator`](Self::allocator), which chooses the node itself. Creating the queue fails
        /// if the node does not exist, or the kernel has no NUMA support.
        pub fn numa_node(mut self, node: impl Into<Option<u32>>) -> Self {
            self.$($memory).+.numa_node = node.into();
            self
        }

        #[doc = concat!("Page size of ", $what, ".")]
        /// Default: [`HugePages::None`](crate::HugePages::None), ordinary pages, which the kernel
        /// backs by huge ones if there are many queues and it can. Queues of one context share
        /// pages of 2 MiB. With [`HugePages::TwoMiB`](crate::HugePages::TwoMiB) and
        /// [`HugePages::OneGiB`](crate::HugePages::OneGiB) creating the queue fails if the pool has
        /// too few pages; refused together with [`allocator`](Self::allocator).
        pub fn huge_pages(mut self, huge_pages: $crate::HugePages) -> Self {
            self.$($memory).+.huge_pages = huge_pages;
            self
        }

        #[doc = concat!("Allocates the memory of ", $what, ".")]
        /// Default: anonymous memory of this process, from a pool of the context. Refused together
        /// with [`numa_node`](Self::numa_node) and [`huge_pages`](Self::huge_pages): the allocator
        /// chooses node and page size itself. Creating the queue fails with
        /// [`ErrorKind::OutOfMemory`](crate::ErrorKind::OutOfMemory) if it returns `None`.
        pub fn allocator(
            mut self,
            allocator: &std::sync::Arc<dyn $crate::QueueAllocator>,
        ) -> Self {
            self.$($memory).+.allocator = Some(std::sync::Arc::clone(allocator));
            self
        }
    };
}

pub(crate) use memory_options;

#[cfg(test)]
mod tests {
    use super::*;
    use mlx5_uapi::{Access, AllocateError, EventFile, ioctl::IoctlHeader};
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
