//! What is kept when the kernel would not destroy an object, until closing the file ends it.
//!
//! The last close of the file destroys every object that was made through it, whatever the kernel
//! answered before, and gives back their pages; one that is under way because the device went is
//! waited for. So memory of ours is unmapped once the file is closed, and not before:
//!
//! * Pages of the device that this process has mapped keep the file open: they are unmapped first.
//! * A child of a fork may have the file open, too. Then the objects go on, and the device may go on
//!   writing. But the kernel holds every page that the device was told of by a reference of its own:
//!   to unmap the memory gives back its addresses only, and the pages follow when the objects end. For
//!   ordinary anonymous memory, which is what [`mlx5_uapi::DeviceFile::allocate`] gives, that is as
//!   good as the other case.
//! * Memory of a [`QueueAllocator`](crate::QueueAllocator) is not unmapped but used again, with the same
//!   pages. It is never given back.

use crate::user_index::UserIndex;
use mlx5_uapi::Mapping;
use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

/// Pieces of memory that stay until the process ends.
static FOR_GOOD: AtomicUsize = AtomicUsize::new(0);

/// How many pieces of memory this process keeps until it ends, of whichever device: the kernel would
/// not destroy what the device uses them for, and closing the file is no proof for them. That is
/// memory of a [`QueueAllocator`](crate::QueueAllocator).
pub fn leaked() -> usize {
    FOR_GOOD.load(Relaxed)
}

/// Counts pieces that stay until the process ends.
pub(crate) fn count_for_good(pieces: usize) {
    FOR_GOOD.fetch_add(pieces, Relaxed);
}

/// What a context keeps. Dropping it frees all that, and is for after the file was closed.
#[derive(Default)]
pub(crate) struct Kept {
    memory: Mutex<Vec<Mapping>>,
    /// Queues that pollers may still be led to.
    indexes: Mutex<Vec<Arc<UserIndex>>>,
    pieces: AtomicUsize,
}

impl Kept {
    /// Keeps memory that the device may use.
    pub(crate) fn memory(&self, memory: Mapping) {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).push(memory);
        self.count();
    }

    /// Keeps what completions may name.
    pub(crate) fn index(&self, index: Arc<UserIndex>) {
        self.indexes.lock().unwrap_or_else(PoisonError::into_inner).push(index);
    }

    /// Keeps memory until the process ends: to close the file is no proof for it.
    pub(crate) fn for_good(&self, memory: Mapping) {
        memory.leak();
        self.count();
        count_for_good(1);
    }

    fn count(&self) {
        self.pieces.fetch_add(1, Relaxed);
    }

    /// How many pieces of memory are kept.
    pub(crate) fn pieces(&self) -> usize {
        self.pieces.load(Relaxed)
    }

    /// The file stays open elsewhere: keeps everything until the process ends.
    pub(crate) fn never_free(&mut self) {
        count_for_good(self.abandon());
    }

    /// Frees nothing, in a child process: the addresses may be others'. How much memory that is.
    pub(crate) fn abandon(&mut self) -> usize {
        let memory = self.memory.get_mut().unwrap_or_else(PoisonError::into_inner);
        let indexes = self.indexes.get_mut().unwrap_or_else(PoisonError::into_inner);
        let pieces = memory.len();
        memory.drain(..).for_each(Mapping::leak);
        indexes.drain(..).for_each(std::mem::forget);
        pieces
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").field("pieces", &self.pieces()).finish_non_exhaustive()
    }
}
