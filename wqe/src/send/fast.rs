//! The fast path of building: enough room, simple data. It is inlined into the caller and makes no
//! call.

use crate::request::data::Data;
use crate::request::flags::SendFlags;
use crate::request::operation::SendOperation;
use crate::request::segment::Segment;
use crate::request::transport::Transport;
use crate::send::build::{Cursor, Parts, blocks_of, control_of, is_large, opaque, write_head};
use crate::send::queue::SendQueue;
use core::ptr::NonNull;
use mlx5_prm::wqe::UNIT;

impl<T: Transport> SendQueue<T> {
    /// Makes every request take the slow path if posting is not allowed, where it is refused. The ring is
    /// not written then: a forked child may not have it mapped.
    #[inline(always)]
    pub(crate) fn look_at_gate(&mut self) {
        if !self.gate.may_send() {
            self.fast_limit = self.head.wrapping_sub(1);
        }
    }

    /// Whether a request can be built in the ring in one piece, with nothing left to check.
    #[inline(always)]
    pub(crate) fn is_fast<O: SendOperation, D: Data>(
        &self,
        cursor: Cursor,
        flags: SendFlags,
        data: &D,
    ) -> bool {
        !const { is_large::<O>() }
            && data.is_fast(O::DATA, &self.limits)
            && allowed::<T, O>().contains(flags)
            && self.has_fast_room(cursor.head)
    }

    /// Builds a request in the ring and stages its record. Returns its blocks, and its address.
    ///
    /// # Safety
    /// [`SendQueue::is_fast`] is true of the same arguments.
    #[inline(always)]
    pub(crate) unsafe fn build_fast<O: SendOperation, A: Segment, D: Data>(
        &self,
        cursor: Cursor,
        parts: Parts<A, O::Remote>,
        data: D,
    ) -> (u32, NonNull<u8>) {
        let slot = opaque(self.at(cursor.head));
        let before = 1 + A::UNITS + O::Remote::UNITS;
        // SAFETY: there is room for a request of the largest size, in blocks that the device does not
        // own.
        unsafe {
            write_head(slot, parts.address, parts.remote);
            data.write(slot.byte_add(before * UNIT));
        }
        let units = before + data.units();
        let (least, blocks) = (before + D::LEAST, blocks_of(units));
        // SAFETY: as above.
        unsafe { self.build_control::<O, _>(slot, cursor, &parts, least, units, blocks) };
        (blocks, slot)
    }

    /// Builds the control segment of a request, whose address is `slot`, and stages its record. See
    /// [`control_of`].
    ///
    /// # Safety
    /// There is room for a request at the cursor, where `slot` is. Its flags are [`allowed`].
    #[inline(always)]
    pub(crate) unsafe fn build_control<O: SendOperation, A>(
        &self,
        slot: NonNull<u8>,
        cursor: Cursor,
        parts: &Parts<A, O::Remote>,
        least: usize,
        units: usize,
        blocks: u32,
    ) {
        // What this takes of the queue is loaded only here: before, it would take registers of what is
        // written then.
        in_order();
        let flags = match const { SendFlags::CONTROL.contains(allowed::<T, O>()) } {
            true => parts.flags,
            false => parts.flags.intersection(SendFlags::CONTROL),
        };
        let (words, info) = control_of::<O>(
            cursor.head,
            least,
            units,
            blocks,
            flags.bits(),
            parts.immediate,
            self.qpn,
            self.default_control(),
        );
        // SAFETY: by the contract; the records are alive, and were created for this ring.
        unsafe {
            slot.cast().write(words);
            self.slots.stage(self.mask, cursor.sequence, parts.wr_id, info);
        }
    }
}

/// The flags that a request of the fast path may have. One with bits that are no flags, which are passed
/// over, takes the slow path.
#[inline(always)]
pub(crate) const fn allowed<T: Transport, O: SendOperation>() -> SendFlags {
    T::FLAGS.intersection(O::FLAGS)
}

/// Keeps the compiler from moving loads and stores across it.
#[inline(always)]
fn in_order() {
    #[cfg(not(miri))]
    // SAFETY: the assembly has no instruction.
    unsafe {
        core::arch::asm!("", options(nostack, preserves_flags));
    }
}
