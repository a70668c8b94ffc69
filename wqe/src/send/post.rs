//! Completing and aborting batches.
//!
//! A single request that the fast path built is copied to the queue's own BlueFlame register
//! without a call. Everything else leaves the inlined code at one point.

use crate::request::batch_error::BatchError;
use crate::request::error::PostError;
use crate::request::operation::head_units;
use crate::request::transport::Transport;
use crate::send::build::{Cursor, blocks_of};
use crate::send::queue::SendQueue;
use core::mem::offset_of;
use core::ptr::NonNull;
use mlx5_prm::wqe::{ControlSegment, Opcode};

impl<T: Transport> SendQueue<T> {
    /// Refuses the request at `cursor`, and so the batch, unless an earlier request was refused.
    /// The returned cursor counts the refused request, so that the batch does not look empty.
    #[cold]
    pub(crate) fn refuse(&mut self, cursor: Cursor, error: PostError) -> Cursor {
        self.forget_leaked(cursor);
        let index = cursor.since(self.here()).1.saturating_sub(self.more_wqes);
        self.error.get_or_insert(BatchError::new(index, error));
        self.noted = cursor.sequence;
        // Everything that follows takes the slow path, also in the next batch if this one is
        // leaked.
        self.fast_limit = self.head.wrapping_sub(1);
        self.fast_blueflame_blocks = 0;
        self.forget_list_limit();
        cursor.after(0)
    }

    /// The first refusal of the batch under construction.
    #[inline(always)]
    pub(crate) fn error(&self) -> Option<BatchError> {
        self.error
    }

    /// Posts the requests from `start`, the queue's position, up to `cursor`, unless one was
    /// refused. `last` is the last request of the batch, if the fast path built it.
    #[inline(always)]
    pub(crate) fn complete(
        &mut self,
        start: Cursor,
        cursor: Cursor,
        last: Option<NonNull<u8>>,
    ) -> Result<(), BatchError> {
        let (blocks, requests) = cursor.since(start);
        let Some(wqe) = last else { return self.complete_slow(cursor) };
        if requests != 1 {
            return self.complete_many(cursor, wqe);
        }
        if blocks != Self::USUAL_BLOCKS {
            return self.complete_large(cursor, wqe, blocks);
        }
        if !self.copies_usual() || !self.gate.may_send() {
            return self.complete_slow(cursor);
        }
        self.commit(cursor);
        // SAFETY: the request at `start` was just built, in one piece, of this many blocks.
        unsafe {
            self.register.ring_blueflame::<2>(
                self.record,
                cursor.head as u16,
                wqe,
                Self::USUAL_BLOCKS,
            );
        }
        Ok(())
    }

    /// Posts the only request of a batch, up to `cursor`, if it was built in one piece and goes to the
    /// queue's own BlueFlame register. Otherwise returns false, and does nothing.
    #[inline(always)]
    pub(crate) fn complete_single(&mut self, cursor: Cursor) -> bool {
        let (blocks, requests) = cursor.since(self.here());
        // A refused request has no blocks: zero minus one exceeds every limit.
        let fits = blocks.wrapping_sub(1) < self.fast_blueflame_blocks;
        if requests != 1 || !fits || !self.gate.may_send() {
            return false;
        }
        let wqe = self.at(self.head);
        self.commit(cursor);
        // Three blocks are a key with up to four entries.
        // SAFETY: the request was built in one piece, of this many blocks, or `fast_blueflame_blocks`
        // would be zero.
        unsafe {
            self.register.ring_blueflame::<3>(self.record, cursor.head as u16, wqe, blocks);
        }
        true
    }

    /// [`SendQueue::complete`] of several requests, of which the fast path built the last one, at `wqe`. So
    /// none was refused.
    #[inline(never)]
    fn complete_many(&mut self, cursor: Cursor, wqe: NonNull<u8>) -> Result<(), BatchError> {
        if !self.has_fast_room(cursor.head) || !self.gate.may_send() {
            return self.complete_unusual(cursor);
        }
        self.commit(cursor);
        // SAFETY: a WQE in the ring has at least one block.
        unsafe { self.register.ring(self.record, cursor.head as u16, wqe, 0) };
        Ok(())
    }

    /// [`SendQueue::complete`] of a single request at `wqe` that the fast path built, and that has not
    /// the usual size.
    #[inline(always)]
    fn complete_large(
        &mut self,
        cursor: Cursor,
        wqe: NonNull<u8>,
        blocks: u32,
    ) -> Result<(), BatchError> {
        // A refused request has no blocks: zero minus one exceeds every limit.
        if blocks.wrapping_sub(1) >= self.fast_blueflame_blocks || !self.gate.may_send() {
            return self.complete_slow(cursor);
        }
        self.commit(cursor);
        // A datagram has two blocks. A third here would take a register from the loops of batches.
        // SAFETY: the request was just built, in one piece, of this many blocks.
        unsafe { self.register.ring_blueflame::<2>(self.record, cursor.head as u16, wqe, blocks) };
        Ok(())
    }

    /// Blocks of a message with one SGE: a constant of the transport.
    pub(crate) const USUAL_BLOCKS: u32 = blocks_of(head_units::<T>() + 1);

    /// Posts the only request of a batch, up to `cursor`, if it is of the usual size, was built by the
    /// fast path, and goes to the queue's own BlueFlame register. Otherwise returns false, and does
    /// nothing.
    #[inline(always)]
    pub(crate) fn complete_usual(&mut self, cursor: Cursor) -> bool {
        let (blocks, requests) = cursor.since(self.here());
        let one = requests == 1 && blocks == Self::USUAL_BLOCKS && self.copies_usual();
        if !one || !self.gate.may_send() {
            return false;
        }
        // SAFETY: the request was just built, of this many blocks, which may be copied.
        unsafe { self.post_usual(cursor) };
        true
    }

    /// Whether a request of the usual size goes to the queue's own BlueFlame register.
    #[inline(always)]
    pub(crate) fn copies_usual(&self) -> bool {
        self.fast_blueflame_blocks >= Self::USUAL_BLOCKS
    }

    /// Posts the only request of a batch, up to `cursor`.
    ///
    /// # Safety
    /// The fast path built it; it has [`SendQueue::USUAL_BLOCKS`], and [`SendQueue::copies_usual`].
    #[inline(always)]
    pub(crate) unsafe fn post_usual(&mut self, cursor: Cursor) {
        let wqe = self.at(self.head);
        self.commit(cursor);
        // SAFETY: by the contract; the fast path builds in one piece.
        unsafe {
            let counter = cursor.head as u16;
            self.register.ring_blueflame::<2>(self.record, counter, wqe, Self::USUAL_BLOCKS);
        }
    }

    /// [`SendQueue::complete`] for everything but a single request that the fast path built and
    /// that goes to the queue's own BlueFlame register.
    #[inline(never)]
    pub(crate) fn complete_slow(&mut self, cursor: Cursor) -> Result<(), BatchError> {
        if self.complete_built(cursor) { Ok(()) } else { self.complete_unusual(cursor) }
    }

    /// Posts a batch of which nothing was refused and the room need not be computed again. Otherwise
    /// returns false, and does nothing.
    #[inline(always)]
    pub(crate) fn complete_built(&mut self, cursor: Cursor) -> bool {
        let (_, requests) = cursor.since(self.here());
        // Behind a refused request there is no fast room.
        if requests == 0 || !self.has_fast_room(cursor.head) || !self.gate.may_send() {
            return false;
        }
        let first = self.head;
        self.commit(cursor);
        self.ring_doorbell(first, requests);
        true
    }

    /// [`SendQueue::complete`] if a request was refused, the room must be computed again, or a
    /// single request needs more than a BlueFlame copy.
    #[inline(never)]
    fn complete_unusual(&mut self, cursor: Cursor) -> Result<(), BatchError> {
        self.forget_leaked(cursor);
        if self.error.is_some() {
            return self.complete_refused();
        }
        self.complete_good(cursor)
    }

    /// [`SendQueue::complete`] if a request was refused.
    #[cold]
    #[inline(never)]
    fn complete_refused(&mut self) -> Result<(), BatchError> {
        let error = self.error;
        self.abort();
        // A closed gate takes precedence: a full queue of a device that is gone never gets room.
        match error {
            Some(error) if self.gate.may_send() => Err(error),
            _ => Err(BatchError::new(0, self.refusal())),
        }
    }

    /// Posts the requests built up to `cursor`.
    #[inline(always)]
    pub(crate) fn complete_good(&mut self, cursor: Cursor) -> Result<(), BatchError> {
        let fence = self.fence_next;
        self.forget_batch();
        if !self.gate.may_send() {
            self.abort();
            return Err(BatchError::new(0, self.refusal()));
        }
        let (first, requests) = (self.head, cursor.since(self.here()).1);
        if requests != 0 {
            self.commit(cursor);
            self.ring_doorbell(first, requests);
            (self.fence, self.fence_next) = (fence, fence);
        }
        if self.fence || self.always_slow {
            self.fast_limit = self.head.wrapping_sub(1);
            self.come_around();
        } else if !self.has_fast_room(self.head) {
            self.records().open();
            self.come_around();
            // Without room the limit stays just behind `head`: further back it would appear ahead
            // after half the range of the counter.
            self.fast_limit = match self.span(cursor).checked_sub(self.max_request_blocks) {
                Some(more) => self.head.wrapping_add(more),
                None => self.head.wrapping_sub(1),
            };
        }
        Ok(())
    }

    /// Brings up to date what numbers of 32 bits tell. Called at least once for each time around the ring,
    /// by a queue that posts other requests than those that configure keys: these do it themselves.
    #[inline(always)]
    fn come_around(&mut self) {
        // One that is ahead is reached within this time around: until then it holds, as it does for the next
        // list of a queue that uses each key at once.
        if !self.has_list_room(self.head, 1) {
            self.forget_list_limit();
        }
        if !self.journal.is_empty() {
            self.settle_old_changes();
        }
    }

    #[cold]
    #[inline(never)]
    fn settle_old_changes(&mut self) {
        self.settle_changes();
    }

    /// Forgets the state of a batch that is not posted.
    pub(crate) fn abort(&mut self) {
        if !self.journal.is_empty() {
            self.undo_changes();
        }
        self.forget_list_limit();
        self.forget_batch();
    }

    /// Aborts a leaked batch. If the batch at `cursor` has no request yet, the state noted here was
    /// left by an earlier batch that was neither posted nor dropped.
    #[inline(always)]
    pub(crate) fn forget_leaked(&mut self, cursor: Cursor) {
        if cursor.sequence == self.sequence && self.noted.wrapping_sub(self.sequence) as i32 >= 0 {
            self.abort_dropped();
        }
    }

    /// [`SendQueue::abort`] for a dropped batch.
    #[cold]
    #[inline(never)]
    pub(crate) fn abort_dropped(&mut self) {
        self.abort();
    }

    /// A single request that configures a key may have been posted by the fast path, which notes
    /// only where it ends.
    #[inline(always)]
    pub(crate) fn note_fence(&mut self) {
        self.fence |= self.head == self.fence_at;
    }

    /// Clears the per-batch state.
    fn forget_batch(&mut self) {
        self.noted = self.sequence.wrapping_sub(1);
        self.error = None;
        self.more_wqes = 0;
        self.note_fence();
        self.fence_next = self.fence;
        self.fast_blueflame_blocks = self.register.own_blueflame_blocks();
    }

    /// Commits the requests up to `cursor`.
    #[inline(always)]
    fn commit(&mut self, cursor: Cursor) {
        self.head = cursor.head;
        self.sequence = cursor.sequence;
        // Before the doorbell: another thread may poll the completion before the doorbell call
        // returns.
        self.records().publish(cursor.sequence as u16);
    }

    /// Rings the doorbell for the `requests` requests from `first` on. A single request is copied
    /// to the BlueFlame register if it fits and is more than a control segment; a doorbell carries
    /// a whole control segment anyway. One of several packets is not copied ([`RUNG`]).
    #[inline(always)]
    fn ring_doorbell(&mut self, first: u32, requests: u32) {
        let (record, head) = (self.record, self.head as u16);
        if requests > 1 {
            // By its own pointer: the shared half would be another cache line.
            // SAFETY: the records are alive, and were created for this ring.
            let last = unsafe { self.slots.info(self.mask, self.sequence.wrapping_sub(1)) };
            let wqe = self.at(last.first().into());
            // SAFETY: a WQE in the ring has at least one block.
            return unsafe { self.register.ring(record, head, wqe, 0) };
        }
        let (wqe, blocks) = (self.at(first), self.head.wrapping_sub(first));
        // SAFETY: the WQE in the ring starts with a control segment.
        let is_rung = || unsafe { units_of(wqe) == 1 || opcode_of(wqe) == RUNG };
        if blocks > self.register.blueflame_blocks() || is_rung() {
            // SAFETY: a WQE in the ring has at least one block.
            return unsafe { self.register.ring(record, head, wqe, 0) };
        }
        let before_end = self.mask + 1 - (first & self.mask);
        if blocks <= before_end {
            // SAFETY: `blocks` blocks follow before the end of the ring.
            return unsafe { self.register.ring(record, head, wqe, blocks) };
        }
        // SAFETY: `before_end` blocks, fewer than `blocks`, follow up to the end of the ring; the
        // rest is at the start of the ring.
        unsafe { self.register.ring_wrapped(record, head, wqe, before_end, self.ring, blocks) };
    }
}

/// The last byte of `qpn_ds`; its low six bits are the number of units.
pub(crate) const UNITS_AT: usize = offset_of!(ControlSegment, qpn_ds) + 3;

/// Offset of the opcode in a control segment.
const OPCODE_AT: usize = offset_of!(ControlSegment, opmod_index_opcode) + 3;

/// The opcode of a request of several packets, which is rung and not copied: the drivers that run such requests on
/// silicon only ring. These are DPDK's PMD (`mlx5_tx_burst_tmpl`, `mlx5_doorbell_ring`) and Linux' mlx5e
/// (`mlx5e_xdp_mpwqe_complete`, `mlx5e_notify_hw`). A packet alone is copied, as libmlx5 does it
/// (`post_send_db` of `mlx5_post_send`).
const RUNG: u8 = Opcode::EnhancedMpw as u8;

/// Returns the opcode of the WQE at `wqe`.
///
/// # Safety
/// A control segment is at `wqe`.
#[inline(always)]
unsafe fn opcode_of(wqe: NonNull<u8>) -> u8 {
    // SAFETY: by the caller's contract.
    unsafe { wqe.byte_add(OPCODE_AT).read() }
}

/// Returns the units of the WQE at `wqe`.
///
/// # Safety
/// A control segment is at `wqe`.
#[inline(always)]
unsafe fn units_of(wqe: NonNull<u8>) -> u8 {
    // SAFETY: by the caller's contract.
    unsafe { wqe.byte_add(UNITS_AT).read() & 0x3f }
}
