//! Memory for queues between pages without access.

use mlx5::QueueAllocator;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

const PAGE: usize = 4096;

/// Allocates such memory. An access beyond it, or after it was freed, ends the process.
#[derive(Default)]
pub(crate) struct Fenced {
    live: Mutex<Vec<(usize, usize)>>,
}

impl Fenced {
    fn live(&self) -> MutexGuard<'_, Vec<(usize, usize)>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Address and length of the most recent allocation that was not freed.
    pub(crate) fn latest(&self) -> Option<(NonNull<u8>, usize)> {
        let (start, len) = *self.live().last()?;
        Some((NonNull::new(std::ptr::with_exposed_provenance_mut(start))?, len))
    }
}

// SAFETY: `allocate` returns new pages of at least `len` bytes that stay mapped until `free`, and
// no other allocation shares them. The fuzzer does not fork.
unsafe impl QueueAllocator for Fenced {
    fn allocate(&self, len: usize, _: usize) -> Option<NonNull<u8>> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let all = len + 2 * PAGE;
        // SAFETY: the kernel chooses the address of new pages, so no existing mapping changes.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), all, libc::PROT_NONE, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        let inside = start.wrapping_byte_add(PAGE);
        // SAFETY: `inside` and `len` lie in the pages that were mapped above, and the caller does
        // not have them yet.
        if unsafe { libc::mprotect(inside, len, libc::PROT_READ | libc::PROT_WRITE) } != 0 {
            return None;
        }
        self.live().push((inside.expose_provenance(), len));
        NonNull::new(inside.cast())
    }

    unsafe fn free(&self, start: NonNull<u8>, len: usize) {
        self.live().retain(|live| live.0 != start.addr().get());
        let start = start.as_ptr().wrapping_byte_sub(PAGE);
        // SAFETY: `allocate` mapped these pages, one before and one after the memory; the caller
        // promises that `start` and `len` are those of an allocation that it does not use any more.
        unsafe { libc::munmap(start.cast(), len + 2 * PAGE) };
    }
}
