//! What software remembers of a memory key because of a request, until it is known whether the
//! device executes that.
//!
//! A request that configures a key changes what its owner takes the key to be: how long it is, how it
//! is signed. The change is made when the request is built. It must be unmade when the batch is
//! aborted or refused, and when the request is cancelled; and it is only then certain when a
//! completion has passed the request.

use alloc::collections::VecDeque;
use alloc::sync::Arc;

/// Whoever remembers something because of requests.
pub trait Changed: Send + Sync {
    /// The request behind `change` will never be executed.
    fn undo(&self, change: u64);
    /// It was executed.
    fn settle(&self, change: u64);
    /// Nobody will ever know: its queue was reset or destroyed with the request outstanding.
    fn lose(&self, change: u64);
}

/// A change that a request makes. Dropping it undoes it.
#[must_use = "dropping a change undoes it"]
pub struct Change {
    whose: Arc<dyn Changed>,
    number: u64,
}

impl Change {
    /// The change of `whose` that it calls `number`.
    #[inline]
    pub fn new(whose: Arc<dyn Changed>, number: u64) -> Self {
        Self { whose, number }
    }

    /// Takes it apart, so that it is not undone.
    #[inline(always)]
    fn into_parts(self) -> (Arc<dyn Changed>, u64) {
        let this = core::mem::ManuallyDrop::new(self);
        // SAFETY: read once; what it is read from is never used or dropped again.
        (unsafe { core::ptr::read(&this.whose) }, this.number)
    }

    #[inline(always)]
    fn settle(self) {
        let (whose, number) = self.into_parts();
        whose.settle(number);
    }

    #[cold]
    fn lose(self) {
        let (whose, number) = self.into_parts();
        whose.lose(number);
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        self.whose.undo(self.number);
    }
}

/// The changes of a queue's requests that are built and not known to be executed, in order.
#[derive(Default)]
pub(crate) struct Journal {
    changes: VecDeque<(u32, Option<Change>)>,
    /// The request of the first, if there is one.
    first: u32,
}

impl Journal {
    /// Notes the change of request `sequence`, the latest.
    #[inline(always)]
    pub(crate) fn push(&mut self, sequence: u32, change: Change) {
        if self.changes.is_empty() {
            self.first = sequence;
        }
        self.changes.push_back((sequence, Some(change)));
    }

    /// Whether the first, if there is one, is before `sequence`.
    #[inline(always)]
    pub(crate) fn starts_before(&self, sequence: u32) -> bool {
        (self.first.wrapping_sub(sequence) as i32) < 0
    }

    /// All before `retired` completed; if `failed`, some with an error.
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
            if failed { change.lose() } else { change.settle() }
        }
    }

    /// All from `sequence` on were never posted.
    pub(crate) fn undo_from(&mut self, sequence: u32) {
        // The latest first, so that each finds what it changed.
        while self.changes.pop_back_if(|(at, _)| (at.wrapping_sub(sequence) as i32) >= 0).is_some()
        {
        }
    }

    /// Those requests for which `cancelled` says so will not be executed.
    pub(crate) fn undo_where(&mut self, cancelled: impl Fn(u32) -> bool) {
        for (sequence, change) in self.changes.iter_mut().rev() {
            if change.is_some() && cancelled(*sequence) {
                *change = None;
            }
        }
    }

    /// Nobody will ever know of any that is left.
    pub(crate) fn lose(&mut self) {
        self.changes.drain(..).filter_map(|(_, change)| change).for_each(Change::lose);
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.lose();
    }
}
