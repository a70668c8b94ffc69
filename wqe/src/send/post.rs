//! Posting what was built, or forgetting it.
//!
//! A single request that was built without a closer look goes to a register of the queue's own
//! without a call; all else leaves the caller at one point.

use crate::request::error::{BatchError, PostError};
use crate::request::transport::Transport;
use crate::send::build::Cursor;
use crate::send::queue::SendQueue;
use core::mem::offset_of;
use core::ptr::NonNull;
use mlx5_prm::wqe::ControlSegment;

impl<T: Transport> SendQueue<T> {
    /// Refuses the request at `cursor`, and so the batch, unless an earlier one was refused. Returns
    /// where the batch is then: past the request, so that it is not taken for one that is empty.
    #[cold]
    pub(crate) fn refuse(&mut self, cursor: Cursor, error: PostError) -> Cursor {
        self.forget_leaked(cursor);
        let index = cursor.since(self.here()).1.saturating_sub(self.more_wqes);
        self.error.get_or_insert(BatchError { index, error });
        self.noted = cursor.sequence;
        // So that all that follows goes the slow way, in the next batch too if this one is leaked.
        self.stop = self.head.wrapping_sub(1);
        self.blueflame_now = 0;
        cursor.after(0)
    }

    /// The first refusal of the batch under construction.
    #[inline(always)]
    pub(crate) fn error(&self) -> Option<BatchError> {
        self.error
    }

    /// Posts what was built from `start`, where the queue stands, up to `cursor`, unless something
    /// was refused. `single` is the request, if no more than one was added, and that one built in its
    /// place without a closer look.
    #[inline(always)]
    pub(crate) fn complete(
        &mut self,
        start: Cursor,
        cursor: Cursor,
        single: Option<NonNull<u8>>,
    ) -> Result<(), BatchError> {
        let (blocks, _) = cursor.since(start);
        // Of a refused request there are no blocks, which is no room for one either.
        let Some(wqe) =
            single.filter(|_| blocks.wrapping_sub(1) < self.blueflame_now && self.gate.may_send())
        else {
            return self.complete_slow(cursor);
        };
        self.commit(cursor);
        // SAFETY: the request at `start` was just built, in one piece, of this many blocks.
        unsafe {
            self.register.ring_blueflame(self.record, cursor.head as u16, wqe, blocks);
        }
        Ok(())
    }

    /// [`SendQueue::complete`] for anything but a single request that goes to a BlueFlame register
    /// of the queue's own and was built without a closer look.
    #[inline(never)]
    fn complete_slow(&mut self, cursor: Cursor) -> Result<(), BatchError> {
        let (_, requests) = cursor.since(self.here());
        if requests == 0
            || !self.has_room(cursor.head)
            || self.error.is_some()
            || !self.gate.may_send()
        {
            return self.complete_unusual(cursor);
        }
        let first = self.head;
        self.commit(cursor);
        self.ring_doorbell(first, requests);
        Ok(())
    }

    /// [`SendQueue::complete`] when a request was refused, or the queue has to find out afresh how
    /// much room there is, or a single request needs more than its copy in a register.
    #[inline(never)]
    fn complete_unusual(&mut self, cursor: Cursor) -> Result<(), BatchError> {
        self.forget_leaked(cursor);
        if self.error.is_some() {
            return self.complete_refused();
        }
        self.complete_good(cursor)
    }

    /// [`SendQueue::complete`] when a request was refused.
    #[cold]
    #[inline(never)]
    fn complete_refused(&mut self) -> Result<(), BatchError> {
        let error = self.error;
        self.abort();
        // A queue that may not be posted to says that: a full one of a device that is gone is never
        // going to have room.
        match error {
            Some(error) if self.gate.may_send() => Err(error),
            _ => Err(BatchError { index: 0, error: self.refusal() }),
        }
    }

    /// Posts what was built up to `cursor`.
    #[inline(always)]
    pub(crate) fn complete_good(&mut self, cursor: Cursor) -> Result<(), BatchError> {
        let fence = self.fence_next;
        self.forget_batch();
        if !self.gate.may_send() {
            self.abort();
            return Err(BatchError { index: 0, error: self.refusal() });
        }
        let (first, requests) = (self.head, cursor.since(self.here()).1);
        if requests != 0 {
            self.commit(cursor);
            self.ring_doorbell(first, requests);
            (self.fence, self.fence_next) = (fence, fence);
        }
        if self.fence || self.signed {
            self.stop = self.head.wrapping_sub(1);
        } else if !self.has_room(self.head) {
            // Without room the stop stays close behind, for half the counter later it would be ahead.
            self.stop = match self.span(cursor).checked_sub(self.worst_blocks) {
                Some(more) => self.head.wrapping_add(more),
                None => self.head.wrapping_sub(1),
            };
        }
        Ok(())
    }

    /// Forgets what a batch left behind that is not posted.
    pub(crate) fn abort(&mut self) {
        if !self.journal.is_empty() {
            self.undo_changes();
        }
        self.forget_batch();
    }

    /// The batch is at `cursor`. If it has no request yet, what is noted here was left by one that was
    /// leaked, so neither posted nor dropped, and is not this one's.
    #[inline(always)]
    pub(crate) fn forget_leaked(&mut self, cursor: Cursor) {
        if cursor.sequence == self.sequence && self.noted.wrapping_sub(self.sequence) as i32 >= 0 {
            core::hint::cold_path();
            self.abort_dropped();
        }
    }

    /// [`SendQueue::abort`] for a batch that is dropped.
    #[inline(never)]
    pub(crate) fn abort_dropped(&mut self) {
        self.abort();
    }

    /// Keys are no longer taken for what requests that are not posted would have made of them.
    #[cold]
    #[inline(never)]
    fn undo_changes(&mut self) {
        self.journal.undo_from(self.sequence);
    }

    /// One request alone that configures a key may have been posted without more being noted than
    /// where it ends.
    #[inline(always)]
    pub(crate) fn note_fence(&mut self) {
        self.fence |= self.head == self.fence_at;
    }

    /// Nothing that a batch found out matters any more.
    fn forget_batch(&mut self) {
        self.noted = self.sequence.wrapping_sub(1);
        self.error = None;
        self.more_wqes = 0;
        self.note_fence();
        self.fence_next = self.fence;
        self.blueflame_now = self.register.own_blueflame_blocks();
    }

    /// Makes what was built up to `cursor` part of the queue.
    #[inline(always)]
    fn commit(&mut self, cursor: Cursor) {
        self.head = cursor.head;
        self.sequence = cursor.sequence;
        // Before the doorbell: the completion may be polled, elsewhere, before that returns.
        self.records().publish(cursor.sequence as u16);
    }

    /// Rings for the `requests` requests from `first` on. One alone is copied to the register, if it
    /// fits there and is more than a control segment, all of which is in a doorbell.
    #[inline(always)]
    fn ring_doorbell(&mut self, first: u32, requests: u32) {
        let (record, head) = (self.record, self.head as u16);
        let last = self.records().info(self.sequence.wrapping_sub(1) as u16);
        let blocks = u32::from(last.blocks());
        let wqe = self.at(last.first().into());
        // SAFETY: a control segment in the ring.
        let units = || unsafe { units_of(wqe) };
        if requests > 1 || blocks > self.register.blueflame_blocks() || units() == 1 {
            // SAFETY: a WQE in the ring has at least one block.
            return unsafe { self.register.ring(record, head, wqe, 0) };
        }
        let before_end = self.mask + 1 - (first & self.mask);
        if blocks <= before_end {
            // SAFETY: so many blocks follow before the end of the ring.
            return unsafe { self.register.ring(record, head, wqe, blocks) };
        }
        // SAFETY: `before_end` blocks up to the end of the ring, less than `blocks`, and the rest at
        // its start.
        unsafe { self.register.ring_wrapped(record, head, wqe, before_end, self.ring, blocks) };
    }
}

/// Units of the WQE at `wqe`.
///
/// # Safety
/// A control segment stands there.
#[inline(always)]
unsafe fn units_of(wqe: NonNull<u8>) -> u8 {
    /// The last byte of `qpn_ds`, of which six bits count units.
    const UNITS_AT: usize = offset_of!(ControlSegment, qpn_ds) + 3;
    // SAFETY: handed down.
    unsafe { wqe.byte_add(UNITS_AT).read() & 0x3f }
}
