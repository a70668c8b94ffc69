//! The state of a context for the verbs of libmlx5.

use crate::abi::c_void;
use crate::abi::mlx5dv::mlx5dv_ctx_allocators;
use mlx5::QueueAllocator;
use mlx5_uapi::Mapping;
use std::any::Any;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The state of a context for the verbs of libmlx5. Mapped pages keep the device open, so this is
/// dropped before the context.
#[derive(Default)]
pub(crate) struct DvState {
    /// The page that `mlx5dv_get_clock_info` reads, if the kernel has one.
    pub(crate) clock: OnceLock<Option<mlx5::Clock>>,
    /// The page with the device's clock.
    pub(crate) core_clock: OnceLock<Option<Mapping>>,
    /// The page without BlueFlame that all users of the context share: the object of `dv::uar`.
    pub(crate) shared_uar: Mutex<Option<Box<dyn Any + Send>>>,
    /// The page on which completion queues are armed; programs of old headers get the address of
    /// this field.
    cq_page: AtomicPtr<c_void>,
    /// The program's functions for the memory of all queues of the context, if it set any
    /// (`mlx5dv_set_context_attr`).
    pub(crate) allocators: Mutex<Option<Allocators>>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The program's functions that provide the memory of queues.
#[derive(Clone, Copy)]
pub(crate) struct Allocators(pub(crate) mlx5dv_ctx_allocators);

// SAFETY: the program that set the functions allows any thread to call them with its data.
unsafe impl Send for Allocators {}
// SAFETY: the program that set the functions allows any thread to call them with its data.
unsafe impl Sync for Allocators {}

// SAFETY: the program's `alloc` returns writable bytes, which belong to the queue until they are
// passed to `free`. The code that uses them checks that they are aligned to pages.
unsafe impl QueueAllocator for Allocators {
    fn allocate(&self, len: usize, _align: usize) -> Option<NonNull<u8>> {
        // SAFETY: the program that set the function accepts any length, with its own `data`.
        NonNull::new(unsafe { self.0.alloc?(len, self.0.data) }.cast())
    }

    unsafe fn free(&self, start: NonNull<u8>, _len: usize) {
        if let Some(free) = self.0.free {
            // SAFETY: the program's `alloc` returned `start`, and `free` accepts it once, with the
            // program's `data`.
            unsafe { free(start.as_ptr().cast(), self.0.data) };
        }
    }
}

impl DvState {
    /// Stores the address of the page on which completion queues are armed, and returns the address
    /// of that pointer.
    pub(crate) fn cq_page(&self, page: *mut c_void) -> *const *mut c_void {
        self.cq_page.store(page, Relaxed);
        self.cq_page.as_ptr().cast_const()
    }

    /// The program's functions for the memory of queues without other functions.
    pub(crate) fn allocator(&self) -> Option<Arc<dyn QueueAllocator>> {
        let Allocators(functions) = (*lock(&self.allocators))?;
        let both = functions.alloc.is_some() && functions.free.is_some();
        both.then(|| Arc::new(Allocators(functions)) as Arc<dyn QueueAllocator>)
    }
}
