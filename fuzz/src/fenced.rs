//! Memory for queues, with pages around it that nobody may touch.

use mlx5::QueueAllocator;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

const PAGE: usize = 4096;

/// Gives such memory. A step beyond it, or to what was given back, ends the process.
#[derive(Default)]
pub(crate) struct Fenced {
    live: Mutex<Vec<(usize, usize)>>,
}

impl Fenced {
    fn live(&self) -> MutexGuard<'_, Vec<(usize, usize)>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The memory that was given last, and not given back: where it starts, and its bytes.
    pub(crate) fn latest(&self) -> Option<(NonNull<u8>, usize)> {
        let (start, len) = *self.live().last()?;
        Some((NonNull::new(std::ptr::with_exposed_provenance_mut(start))?, len))
    }
}

// SAFETY: pages of their own, mapped until they are given back; nobody forks here.
unsafe impl QueueAllocator for Fenced {
    fn allocate(&self, len: usize, _: usize) -> Option<NonNull<u8>> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let all = len + 2 * PAGE;
        // SAFETY: new pages, wherever there is room.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), all, libc::PROT_NONE, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        let inside = start.wrapping_byte_add(PAGE);
        // SAFETY: some of these pages.
        if unsafe { libc::mprotect(inside, len, libc::PROT_READ | libc::PROT_WRITE) } != 0 {
            return None;
        }
        self.live().push((inside.expose_provenance(), len));
        NonNull::new(inside.cast())
    }

    unsafe fn free(&self, start: NonNull<u8>, len: usize) {
        self.live().retain(|live| live.0 != start.addr().get());
        let start = start.as_ptr().wrapping_byte_sub(PAGE);
        // SAFETY: the pages that `allocate` mapped.
        unsafe { libc::munmap(start.cast(), len + 2 * PAGE) };
    }
}
