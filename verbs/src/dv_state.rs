//! What the verbs of libmlx5 keep of a context.

use crate::abi::c_void;
use crate::abi::mlx5dv::mlx5dv_ctx_allocators;
use mlx5::QueueAllocator;
use mlx5_uapi::Mapping;
use std::any::Any;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// What the verbs of libmlx5 keep of a context. Pages that are mapped keep the device open, so this
/// goes before the context does.
#[derive(Default)]
pub(crate) struct DvState {
    /// The page that `mlx5dv_get_clock_info` reads, if the kernel has one.
    pub(crate) clock: OnceLock<Option<mlx5::Clock>>,
    /// The page with the device's clock.
    pub(crate) core_clock: OnceLock<Option<Mapping>>,
    /// The page without BlueFlame that all users of the context share: the object of `dv::uar`.
    pub(crate) shared_uar: Mutex<Option<Box<dyn Any + Send>>>,
    /// The page on which completion queues are armed, whose place programs of old headers get.
    cq_page: AtomicPtr<c_void>,
    /// Who provides the memory of queues, if the program does, for all queues of a context
    /// (`mlx5dv_set_context_attr`).
    pub(crate) allocators: Mutex<Option<Allocators>>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The functions of a program that provide the memory of queues.
#[derive(Clone, Copy)]
pub(crate) struct Allocators(pub(crate) mlx5dv_ctx_allocators);

// SAFETY: C's contract is that any thread may call the functions with the program's data.
unsafe impl Send for Allocators {}
// SAFETY: as above.
unsafe impl Sync for Allocators {}

// SAFETY: the first function returns writable bytes, by C's contract, and gives them to the queue until
// they are passed to the second. That they are aligned to pages is checked where they are used.
unsafe impl QueueAllocator for Allocators {
    fn allocate(&self, len: usize, _align: usize) -> Option<NonNull<u8>> {
        // SAFETY: C's contract of the function.
        NonNull::new(unsafe { self.0.alloc?(len, self.0.data) }.cast())
    }

    unsafe fn free(&self, start: NonNull<u8>, _len: usize) {
        if let Some(free) = self.0.free {
            // SAFETY: C's contract of the function; the other one allocated the memory.
            unsafe { free(start.as_ptr().cast(), self.0.data) };
        }
    }
}

impl DvState {
    /// Where the address of the page is on which completion queues are armed.
    pub(crate) fn cq_page(&self, page: *mut c_void) -> *const *mut c_void {
        self.cq_page.store(page, Relaxed);
        self.cq_page.as_ptr().cast_const()
    }

    /// Who provides the memory of queues that have no other provider.
    pub(crate) fn allocator(&self) -> Option<Arc<dyn QueueAllocator>> {
        let Allocators(functions) = (*lock(&self.allocators))?;
        let both = functions.alloc.is_some() && functions.free.is_some();
        both.then(|| Arc::new(Allocators(functions)) as Arc<dyn QueueAllocator>)
    }
}
