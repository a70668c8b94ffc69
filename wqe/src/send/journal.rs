//! The journal: what outstanding requests change in the driver's view of memory keys.
//!
//! A request that configures a key changes the driver's view of it: its length and its signature.
//! The change is applied when the request is built. It is undone if the batch is aborted or
//! refused, or if the request is cancelled. It is final once a completion has retired the request.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::fmt;

/// The owner of a view that requests change.
pub trait ChangeObserver: Send + Sync {
    /// The request behind `change` will never be executed.
    fn undo(&self, change: u64);
    /// The request was executed.
    fn settle(&self, change: u64);
    /// It will never be known whether the request was executed: its queue was reset or destroyed,
    /// or the request failed.
    fn mark_unknown(&self, change: u64);
}

/// A change that a request makes. Dropping it undoes it.
#[must_use = "dropping a change undoes it"]
pub struct Change {
    observer: Arc<dyn ChangeObserver>,
    id: u64,
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Change").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Change {
    /// Creates the change that `observer` knows as `id`.
    #[inline]
    pub fn new(observer: Arc<dyn ChangeObserver>, id: u64) -> Self {
        Self { observer, id }
    }

    /// Takes the value apart without undoing the change.
    #[inline(always)]
    fn into_parts(self) -> (Arc<dyn ChangeObserver>, u64) {
        let this = core::mem::ManuallyDrop::new(self);
        // SAFETY: the value is read once; the source is in a `ManuallyDrop` and never used or
        // dropped again.
        (unsafe { core::ptr::read(&this.observer) }, this.id)
    }

    #[inline(always)]
    fn settle(self) {
        let (observer, id) = self.into_parts();
        observer.settle(id);
    }

    #[cold]
    fn mark_unknown(self) {
        let (observer, id) = self.into_parts();
        observer.mark_unknown(id);
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        self.observer.undo(self.id);
    }
}

/// The changes of a queue's requests that are not known to be executed, in posting order.
#[derive(Default)]
pub(crate) struct Journal {
    changes: VecDeque<(u32, Option<Change>)>,
    /// Sequence number of the first change, if there is one.
    first: u32,
}

impl Journal {
    /// Adds the change of request `sequence`, the latest one.
    #[inline(always)]
    pub(crate) fn push(&mut self, sequence: u32, change: Change) {
        if self.changes.is_empty() {
            self.first = sequence;
        }
        self.changes.push_back((sequence, Some(change)));
    }

    /// Whether the first change, if there is one, belongs to a request before `sequence`.
    #[inline(always)]
    pub(crate) fn starts_before(&self, sequence: u32) -> bool {
        (self.first.wrapping_sub(sequence) as i32) < 0
    }

    /// Settles the changes of all requests before `retired`. If `failed`, some of them completed
    /// with an error, so their changes are marked unknown.
    #[inline(never)]
    pub(crate) fn settle(&mut self, retired: u32, failed: bool) {
        while let Some((sequence, change)) = self.changes.front_mut() {
            self.first = *sequence;
            if (self.first.wrapping_sub(retired) as i32) >= 0 {
                break;
            }
            let change = change.take();
            self.changes.pop_front();
            let Some(change) = change else { continue };
            if failed { change.mark_unknown() } else { change.settle() }
        }
    }

    /// Undoes the changes of all requests from `sequence` on, which were never posted.
    pub(crate) fn undo_from(&mut self, sequence: u32) {
        // Latest first, so that each change finds the state that it made.
        let unposted = |(at, _): &(u32, _)| (at.wrapping_sub(sequence) as i32) >= 0;
        while self.changes.back().is_some_and(unposted) {
            self.changes.pop_back();
        }
    }

    /// Undoes the changes of the requests for which `cancelled` returns true.
    pub(crate) fn undo_where(&mut self, cancelled: impl Fn(u32) -> bool) {
        for (sequence, change) in self.changes.iter_mut().rev() {
            if change.is_some() && cancelled(*sequence) {
                *change = None;
            }
        }
    }

    /// Marks all remaining changes unknown.
    pub(crate) fn mark_unknown(&mut self) {
        self.changes.drain(..).filter_map(|(_, change)| change).for_each(Change::mark_unknown);
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.mark_unknown();
    }
}
