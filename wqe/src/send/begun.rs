//! Requests that are begun by one call and finished by another (`ibv_wr_*` as a C program calls
//! them): one names the operation, the other gives the data.
//!
//! Control and remote segment of a usual request are written into the ring at once, so that
//! nothing is kept for the call that gives the data.

use crate::request::data::{Data, DataKind, InlineSges};
use crate::request::flags::SendFlags;
use crate::request::operation::{Inline, SendOps};
use crate::request::segment::Segment;
use crate::request::sge::Sge;
use crate::request::transport::Transport;
use crate::send::batch::{Batch, RequestFields, blocks_of, write_segments};
use crate::send::post::UNITS_AT;
use crate::send::queue::{Position, SendQueue};
use mlx5_prm::wqe::{BLOCK, UNIT};

/// A request whose control and remote segment are in the ring, at the position of its batch. Its
/// data follows.
#[derive(Clone, Copy, Debug)]
#[must_use = "a request is part of the batch once its data is set"]
pub struct Begun {
    /// Units of control and remote segment.
    units: u8,
}

impl<T: Transport> Batch<'_, T> {
    /// Begins a request by writing its control and remote segment. Nothing is written, and nothing
    /// returned, for a transport whose requests have an address, and for a request that must be
    /// checked: then another method adds it when its data is known. The batch may be
    /// [paused](Batch::pause) before the request is finished.
    #[inline(always)]
    pub fn begin<O: Inline>(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        immediate: [u8; 4],
        remote: O::Remote,
    ) -> Option<Begun> {
        let units = const {
            let units = 1 + O::Remote::UNITS;
            assert!(units < BLOCK / UNIT);
            units
        };
        let can = const { SendOps::of::<T>().contains(O::BIT) && T::ADDRESS_UNITS == 0 };
        let (queue, at) = (&mut *self.queue, self.at);
        if !can || queue.is_slow || !T::FLAGS.intersection(O::FLAGS).contains(flags) {
            return None;
        }
        if !queue.has_room(at, 1, flags.contains(SendFlags::SIGNALED)) {
            return None;
        }
        let (slot, fields) = (queue.ring.at(at.block), RequestFields { wr_id, flags, immediate });
        // SAFETY: the block is free, and the two segments are shorter.
        let info = unsafe {
            write_segments(slot, (), remote);
            queue.write_control::<O>(slot, at, fields, units, 0)
        };
        queue.ring.stage(at.sequence, wr_id, info);
        Some(Begun { units: units as u8 })
    }

    /// Gives a request one piece of local memory, and makes it part of the batch.
    ///
    /// # Safety
    /// [`Batch::begin`] of this batch returned `begun`, and since then the batch was only paused
    /// and resumed: no request was added, begun or refused, and no handle was asked for.
    #[inline(always)]
    pub unsafe fn finish_sge(&mut self, begun: Begun, sge: Sge) {
        // SAFETY: by the contract.
        unsafe { self.finish(begun, sge) };
    }

    /// Gives a request a list of pieces of local memory, and makes it part of the batch.
    ///
    /// # Safety
    /// As for [`Batch::finish_sge`].
    pub unsafe fn finish_sges(&mut self, begun: Begun, sges: &[Sge]) {
        // SAFETY: by the contract.
        unsafe { self.finish(begun, sges) };
    }

    /// Gives a request bytes that are copied into it, and makes it part of the batch.
    ///
    /// # Safety
    /// As for [`Batch::finish_sge`].
    #[inline(always)]
    pub unsafe fn finish_inline(&mut self, begun: Begun, pieces: InlineSges<'_>) {
        // SAFETY: by the contract.
        unsafe { self.finish(begun, pieces) };
    }

    /// # Safety
    /// As for [`Batch::finish_sge`].
    #[inline(always)]
    unsafe fn finish(&mut self, begun: Begun, data: impl Data) {
        let before = usize::from(begun.units);
        if let Some(more) = data.fast_units(DataKind::Message, &self.queue.limits)
            && before + more <= BLOCK / UNIT
        {
            let slot = self.queue.ring.at(self.at.block);
            // SAFETY: the request has a block, of which `before` units are written, by the
            // contract.
            unsafe {
                data.write_fast(slot.byte_add(before * UNIT));
                slot.byte_add(UNITS_AT).write((before + more) as u8);
            }
            self.at = self.at.after(1);
            return;
        }
        // SAFETY: by the contract.
        self.at = unsafe { self.queue.finish_slow(self.at, begun, data) };
    }
}

impl<T: Transport> SendQueue<T> {
    /// Finishes a request of several blocks, or whose data is to be checked.
    ///
    /// # Safety
    /// As for [`Batch::finish_sge`].
    #[inline(never)]
    unsafe fn finish_slow(&mut self, at: Position, begun: Begun, data: impl Data) -> Position {
        let before = usize::from(begun.units);
        let (slot, scratch) = (self.ring.at(at.block), self.scratch());
        // SAFETY: the scratch buffer has room for a request of the largest size, and the two
        // segments are in the ring, by the contract.
        let written = unsafe {
            scratch.copy_from_nonoverlapping(slot, before * UNIT);
            data.write(scratch.byte_add(before * UNIT), DataKind::Message, &self.limits)
        };
        let info = self.ring.info(at.sequence);
        match written.and_then(|more| {
            let blocks = blocks_of(before + more);
            self.check_room(at, blocks, info.signaled())?;
            Ok((before + more, blocks))
        }) {
            Ok((units, blocks)) => {
                // SAFETY: the blocks are free, and the scratch buffer holds the request.
                unsafe {
                    scratch.byte_add(UNITS_AT).write(units as u8);
                    self.ring.copy_in(at.block, scratch, blocks);
                }
                self.ring.restage(at.sequence, info.with_blocks(blocks));
                self.is_slow |= blocks > self.ring.blocks_to_end(at.block) || units == 1;
                at.after(blocks)
            }
            Err(error) => {
                self.refuse(at, error);
                at
            }
        }
    }
}
