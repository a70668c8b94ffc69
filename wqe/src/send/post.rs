//! Starting, completing and discarding a batch.

use crate::request::batch_error::{BatchError, ListError};
use crate::request::error::PostError;
use crate::request::operation::{MultiPacket, SendOperation, SendOps};
use crate::request::transport::Transport;
use crate::send::queue::{BatchState, Position, SendQueue};
use core::mem::offset_of;
use core::ptr::NonNull;
use mlx5_prm::wqe::{ControlSegment, Opcode};

impl<T: Transport> SendQueue<T> {
    /// Starts a batch. Returns the position of its first request.
    #[inline(always)]
    pub(crate) fn start(&mut self) -> Position {
        // While the gate is shut, no batch writes the ring: a forked child may not have it mapped.
        // A batch that started before the gate shut may still write, and is refused at its end.
        if self.is_slow || !self.gate.may_send() {
            self.start_slow();
        }
        self.posted
    }

    /// [`SendQueue::start`], if the gate is shut or an earlier batch took the slow path. While the
    /// gate is shut, `takes` refuses each request before it writes the ring.
    #[cold]
    #[inline(never)]
    fn start_slow(&mut self) {
        self.reset_batch();
        self.is_slow |= !self.gate.may_send();
    }

    /// Refuses the request at `at`, and so the batch, unless an earlier request was refused.
    #[cold]
    #[inline(never)]
    pub(crate) fn refuse(&mut self, at: Position, error: PostError) {
        let (_, wqes) = at.since(self.posted);
        let index = wqes - self.batch.more_wqes;
        self.is_slow = true;
        self.batch.error.get_or_insert(BatchError::new(index, error));
    }

    /// Posts the requests up to `at`: all of them, or nothing if one was refused.
    ///
    /// If `is_slow` is false, every WQE of the batch is contiguous and has at least two units. A
    /// single one is copied to a BlueFlame register that no other queue uses, so no lock is taken,
    /// unless it has several packets.
    #[inline(always)]
    pub(crate) fn complete(&mut self, at: Position) -> Result<(), BatchError> {
        let (blocks, wqes) = at.since(self.posted);
        let fits = blocks <= self.doorbell.register.own_blueflame_blocks();
        let wqe = self.ring.at(self.posted.block);
        if wqes != 1 || !fits || self.is_slow || !self.gate.may_send() || Self::skips_blueflame(wqe)
        {
            return self.complete_slow(at);
        }
        self.commit(at);
        let (record, counter) = (self.doorbell.record, at.block as u16);
        // SAFETY: the WQE has this many blocks, in one piece, which the register takes.
        unsafe { self.doorbell.register.ring_blueflame::<2>(record, counter, wqe, blocks) };
        Ok(())
    }

    /// [`SendQueue::complete`] of any batch.
    #[inline(never)]
    fn complete_slow(&mut self, at: Position) -> Result<(), BatchError> {
        // `is_slow` first: `batch` is in a cache line that other posts do not use.
        if self.is_slow && self.batch.error.is_some() || !self.gate.may_send() {
            return Err(self.discard_refused());
        }
        let first = self.posted;
        if at.sequence != first.sequence {
            self.commit(at);
            self.ring_doorbell(first, at);
        }
        // The next batch forgets what was unusual about this one.
        if self.is_slow {
            self.fence = self.batch.fence;
            // A batch that ends with a key settled when the change was noted.
            if !self.fence {
                self.settle_key_changes();
            }
        }
        Ok(())
    }

    /// Discards a batch. Returns why it was refused.
    #[cold]
    fn discard_refused(&mut self) -> BatchError {
        let error = self.batch.error;
        self.reset_batch();
        match error {
            // A shut gate takes precedence: a full queue of a device that is gone never gets room.
            Some(error) if self.gate.may_send() => error,
            _ => BatchError::new(0, self.refusal()),
        }
    }

    /// Posts the requests up to `at`, which are those before the first refused one. Returns why
    /// that one was refused.
    #[inline(always)]
    pub(crate) fn complete_list(&mut self, at: Position) -> Result<(), ListError> {
        let refused = if self.is_slow { self.batch.error.take() } else { None };
        self.complete(at)?;
        refused.map_or(Ok(()), |refused| Err(refused.into()))
    }

    /// Moves the queue's position after the batch.
    #[inline(always)]
    fn commit(&mut self, at: Position) {
        self.posted = at;
        // Before the doorbell: another thread may poll the completion before the doorbell call
        // returns.
        self.records().publish(at.sequence as u16);
    }

    /// Rings the doorbell for the requests from `first` to `at`. A single one is copied to the
    /// BlueFlame register if it fits and is more than a control segment, which is in every
    /// doorbell.
    fn ring_doorbell(&mut self, first: Position, at: Position) {
        let (ring, record, counter) = (self.ring, self.doorbell.record, at.block as u16);
        let (blocks, wqes) = at.since(first);
        let last_wqe = match wqes {
            1 => first.block,
            _ => ring.info(at.sequence.wrapping_sub(1)).first().into(),
        };
        let (wqe, to_end) = (ring.at(last_wqe), ring.blocks_to_end(last_wqe));
        let register = &mut self.doorbell.register;
        // SAFETY: a WQE starts with a control segment and has at least one block. If it is alone,
        // it has `blocks`, `to_end` of them before the end of the ring if that is less.
        unsafe {
            if wqes != 1
                || blocks > register.blueflame_blocks()
                || units_of(wqe) == 1
                || Self::skips_blueflame(wqe)
            {
                register.ring(record, counter, wqe, 0);
            } else if blocks <= to_end.min(register.own_blueflame_blocks()) {
                register.ring_blueflame::<3>(record, counter, wqe, blocks);
            } else if blocks <= to_end {
                register.ring(record, counter, wqe, blocks);
            } else {
                register.ring_wrapped(record, counter, wqe, to_end, ring.at(0), blocks);
            }
        }
    }

    /// Whether the WQE at `wqe`, in the ring, has several packets: then it is not copied to the
    /// BlueFlame register. The drivers that send such WQEs on silicon only ring the doorbell for
    /// them: DPDK's PMD (`mlx5_tx_burst_tmpl`, `mlx5_doorbell_ring`) and Linux's mlx5e
    /// (`mlx5e_xdp_mpwqe_complete`). libmlx5 copies a single packet (`post_send_db`).
    #[inline(always)]
    fn skips_blueflame(wqe: NonNull<u8>) -> bool {
        let may_be = const { SendOps::of::<T>().contains(MultiPacket::BIT) };
        // SAFETY: a WQE starts with a control segment.
        may_be && unsafe { opcode_of(wqe) } == Opcode::EnhancedMpw as u8
    }
}

impl<T> SendQueue<T> {
    /// Clears the state of a batch that took the slow path and was completed or is discarded.
    /// Changes of keys by requests that were not posted are undone.
    #[cold]
    #[inline(never)]
    pub(crate) fn reset_batch(&mut self) {
        if self.journal.reaches(self.posted.sequence) {
            self.undo_changes();
        }
        self.batch = BatchState { fence: self.fence, ..BatchState::default() };
        let common = &self.common;
        self.is_slow = self.fence || common.is_signed || common.needs_inline_header;
    }
}

/// The last byte of `qpn_ds`; its low six bits are the number of units.
pub(crate) const UNITS_AT: usize = offset_of!(ControlSegment, qpn_ds) + 3;

/// The last byte of `opmod_index_opcode`: the opcode.
pub(crate) const OPCODE_AT: usize = offset_of!(ControlSegment, opmod_index_opcode) + 3;

/// Returns the opcode of the WQE at `wqe`.
///
/// # Safety
/// A control segment is at `wqe`.
#[inline(always)]
unsafe fn opcode_of(wqe: NonNull<u8>) -> u8 {
    // SAFETY: the caller promises a control segment, which this byte is in.
    unsafe { wqe.byte_add(OPCODE_AT).read() }
}

/// Returns the number of units of the WQE at `wqe`.
///
/// # Safety
/// A control segment is at `wqe`.
pub(crate) unsafe fn units_of(wqe: NonNull<u8>) -> usize {
    // SAFETY: the caller promises a control segment, which this byte is in.
    usize::from(unsafe { wqe.byte_add(UNITS_AT).read() & 0x3f })
}
