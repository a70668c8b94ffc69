//! Memory of destroyed queue pairs, for the next ones.
//!
//! A queue pair is larger than an allocator's cached sizes, and starts at a cache line: allocating
//! and freeing one took a third of the instructions that creating and destroying it takes.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Number of blocks that are kept.
const SPARES: usize = 4;

/// Unused memory from the allocator.
struct Block {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the block owns its memory, which belongs to no thread.
unsafe impl Send for Block {}

impl Block {
    fn new(layout: Layout) -> Self {
        // SAFETY: the layout is not empty: `put` refuses types of size 0.
        let start = NonNull::new(unsafe { alloc(layout) });
        Self { start: start.unwrap_or_else(|| handle_alloc_error(layout)), layout }
    }

    fn free(self) {
        // SAFETY: the block is from the allocator, with this layout, and nothing uses it.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// The memory of the last few objects that were dropped.
pub(crate) struct Spares(Mutex<Vec<Block>>);

/// Not part of a context: another thread may free the context as soon as its last queue pair is
/// dropped.
pub(crate) static QUEUE_PAIRS: Spares = Spares::new();

impl Spares {
    const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Locks the blocks, unless another thread has the lock: in a forked child that may last
    /// forever.
    fn blocks(&self) -> Option<MutexGuard<'_, Vec<Block>>> {
        match self.0.try_lock() {
            Ok(blocks) => Some(blocks),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Moves an object into its own memory.
    pub(crate) fn put<T>(&self, object: T) -> *mut T {
        const { assert!(size_of::<T>() != 0) };
        let layout = Layout::new::<T>();
        let spare = self.blocks().and_then(|mut blocks| {
            let fits = blocks.iter().position(|block| block.layout == layout)?;
            Some(blocks.swap_remove(fits))
        });
        let block = spare.unwrap_or_else(|| Block::new(layout));
        let place: *mut T = block.start.as_ptr().cast();
        // SAFETY: the memory has the layout of the object, and nothing else uses it.
        unsafe { place.write(object) };
        place
    }

    /// Drops an object, and keeps its memory or frees it.
    ///
    /// # Safety
    /// It is from [`Spares::put`], and used no more.
    pub(crate) unsafe fn drop<T>(&self, object: *mut T) {
        // SAFETY: the caller promises that `object` is from `put` and is used no more.
        let start = unsafe {
            object.drop_in_place();
            NonNull::new_unchecked(object.cast())
        };
        let block = Block { start, layout: Layout::new::<T>() };
        match self.blocks() {
            Some(mut blocks) if blocks.len() < SPARES => blocks.push(block),
            _ => block.free(),
        }
    }
}

impl Drop for Spares {
    fn drop(&mut self) {
        let blocks = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        blocks.drain(..).for_each(Block::free);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[repr(align(64))]
    struct Large(#[expect(dead_code, reason = "counts owners")] Rc<()>, [u64; 100]);

    fn kept(spares: &Spares) -> usize {
        spares.0.lock().unwrap().len()
    }

    #[test]
    fn an_object_takes_the_memory_of_one_like_it_that_is_gone() {
        let (spares, owner) = (Spares::new(), Rc::new(()));
        let former = spares.put(Large(Rc::clone(&owner), [1; 100]));
        // SAFETY: each object is used only until it is dropped.
        unsafe {
            spares.drop(former);
            assert_eq!((Rc::strong_count(&owner), kept(&spares)), (1, 1));
            let other = spares.put([0_u64; 100]);
            assert_ne!(other.cast(), former, "of another layout");
            let next = spares.put(Large(Rc::clone(&owner), [2; 100]));
            assert_eq!((next, kept(&spares)), (former, 0));
            assert_eq!((*next).1, [2; 100]);
            spares.drop(next);
            spares.drop(other);
        }
        assert_eq!((Rc::strong_count(&owner), kept(&spares)), (1, 2));
    }

    #[test]
    fn a_few_are_kept() {
        let spares = Spares::new();
        let objects: Vec<_> =
            (0..SPARES as u64 + 2).map(|number| spares.put([number; 9])).collect();
        for object in objects {
            // SAFETY: it is used no more.
            unsafe { spares.drop(object) };
        }
        assert_eq!(kept(&spares), SPARES);
    }

    /// In a child, the lock may be held as a thread of its parent left it.
    #[test]
    fn drop_does_not_wait_for_a_held_lock() {
        let spares = Spares::new();
        let held = spares.0.lock().unwrap();
        let object = spares.put(7_u64);
        // SAFETY: it is used no more.
        unsafe {
            assert_eq!(*object, 7);
            spares.drop(object);
        }
        assert_eq!(held.len(), 0);
    }
}
