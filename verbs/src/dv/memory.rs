//! Memory of queues from a program's functions, for all queues of a context
//! (`mlx5dv_set_context_attr`).

use super::{State, lock};
use crate::abi::mlx5dv::mlx5dv_ctx_allocators;
use mlx5::QueueAllocator;
use std::ptr::NonNull;
use std::sync::Arc;

/// The functions of a program that provide the memory of queues.
#[derive(Clone, Copy)]
pub(super) struct Allocators(pub(super) mlx5dv_ctx_allocators);

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

impl State {
    /// Who provides the memory of queues that have no other provider.
    pub(crate) fn allocator(&self) -> Option<Arc<dyn QueueAllocator>> {
        let Allocators(functions) = (*lock(&self.allocators))?;
        let both = functions.alloc.is_some() && functions.free.is_some();
        both.then(|| Arc::new(Allocators(functions)) as Arc<dyn QueueAllocator>)
    }
}
