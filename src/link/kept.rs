//! Memory kept for objects that the kernel did not destroy, until closing the file destroys them.
//!
//! The last close of the file destroys every object created through it, whatever the kernel
//! answered before, and releases their pages. If the removal of the device is already destroying
//! the objects, the close waits for it. So the driver unmaps its memory after the file is closed,
//! not before:
//!
//! * Mapped device pages keep the file open: they are unmapped first.
//! * A forked child may have the file open too. Then the objects live on, and the device may
//!   continue to write. But the kernel holds its own reference to every page that was registered
//!   with the device: unmapping the memory frees only its addresses, and the pages are freed when
//!   the objects are destroyed. For ordinary anonymous memory, which
//!   [`mlx5_uapi::DeviceFile::allocate`] returns, this is as safe as the first case.
//! * The memory of a [`QueueAllocator`](crate::QueueAllocator) would not be unmapped but reused,
//!   with the same pages. So it is never freed.

use mlx5_uapi::Mapping;
use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

/// Memory areas that stay until the process ends.
static UNTIL_EXIT: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of memory areas that this process keeps until it ends, for all devices. The
/// kernel did not destroy the object for which the device uses them, and closing the file does not
/// prove that their pages are unused: they belong to a [`QueueAllocator`](crate::QueueAllocator),
/// or the file stays open elsewhere.
pub fn leaked() -> usize {
    UNTIL_EXIT.load(Relaxed)
}

/// Counts memory areas that stay until the process ends.
fn count_until_exit(pieces: usize) {
    UNTIL_EXIT.fetch_add(pieces, Relaxed);
}

/// The memory and records that a link keeps. Dropping it frees everything; the file must be closed
/// before.
#[derive(Default)]
pub(super) struct Kept {
    memory: Mutex<Vec<Mapping>>,
    /// Records of queues that CQEs may still name.
    records: Mutex<Vec<Arc<dyn Send + Sync>>>,
    pieces: AtomicUsize,
}

impl Kept {
    /// Keeps memory that the device may still use.
    pub(super) fn memory(&self, memory: Mapping) {
        self.page(memory);
        self.count();
    }

    /// Keeps a page of which the device may still use a part. Does not count it.
    pub(super) fn page(&self, page: Mapping) {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).push(page);
    }

    /// Keeps the records of a queue that CQEs may still name.
    pub(super) fn records(&self, records: Arc<dyn Send + Sync>) {
        self.records.lock().unwrap_or_else(PoisonError::into_inner).push(records);
    }

    /// Keeps memory until the process ends: closing the file does not prove that it is unused.
    pub(super) fn keep_until_exit(&self, memory: Mapping) {
        memory.leak();
        self.count();
        count_until_exit(1);
    }

    /// Counts a memory area.
    pub(super) fn count(&self) {
        self.pieces.fetch_add(1, Relaxed);
    }

    /// Returns the number of memory areas kept.
    pub(super) fn pieces(&self) -> usize {
        self.pieces.load(Relaxed)
    }

    /// Keeps everything until the process ends, because the file stays open elsewhere.
    pub(super) fn keep_all_until_exit(&mut self) {
        count_until_exit(self.forget_mappings());
    }

    /// Drops the memory areas without unmapping them, in a child process, where the ranges may hold
    /// other mappings. Returns their number.
    pub(super) fn forget_mappings(&mut self) -> usize {
        let memory = self.memory.get_mut().unwrap_or_else(PoisonError::into_inner);
        let records = self.records.get_mut().unwrap_or_else(PoisonError::into_inner);
        let pieces = memory.len();
        memory.drain(..).for_each(Mapping::leak);
        records.drain(..).for_each(std::mem::forget);
        pieces
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").field("pieces", &self.pieces()).finish_non_exhaustive()
    }
}
