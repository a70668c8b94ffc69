//! Building requests off the fast path: one call that gets everything as arguments, so that the fast
//! path keeps nothing alive for it.

use crate::request::data::Data;
use crate::request::data::DataKind;
use crate::request::error::PostError;
use crate::request::ethernet::Ethernet;
use crate::request::flags::SendFlags;
use crate::request::operation::SendOperation;
use crate::request::raw::RawWqe;
use crate::request::segment::Segment;
use crate::request::transport::Transport;
use crate::send::queue::SendQueue;
use crate::send::records::RequestInfo;
use core::mem::{offset_of, size_of};
use core::ptr::NonNull;
use mlx5_prm::U32;
use mlx5_prm::wqe::{BLOCK, ControlSegment, MAX_BLOCKS, Opcode, UNIT, control_flags};

/// A position in the queue.
#[derive(Clone, Copy)]
pub(crate) struct Cursor {
    /// Producer index in blocks.
    pub(crate) head: u32,
    /// Requests. The first refused request counts, though it has no blocks.
    pub(crate) sequence: u32,
}

/// The parts of a request other than its data.
#[derive(Clone, Copy)]
pub(crate) struct Parts<A, R> {
    pub(crate) wr_id: u64,
    pub(crate) flags: SendFlags,
    pub(crate) immediate: U32,
    pub(crate) address: A,
    pub(crate) remote: R,
}

/// The control segment is stored as two words: first opcode modifier, block index, opcode, queue
/// pair number and units; then signature, stream, flags and immediate data.
const _: () = {
    assert!(size_of::<ControlSegment>() == 2 * size_of::<u64>());
    assert!(offset_of!(ControlSegment, fm_ce_se) == 8 + RequestInfo::CONTROL_SHIFT as usize / 8);
    assert!(offset_of!(ControlSegment, immediate) == 12);
};

/// The control segment and the record of a request at block `head`, with so many units and blocks. It has
/// at least `least` units, which the compiler knows. `flags` is its `fm_ce_se` byte; `qpn` and `default_flags` are those of the queue.
// What depends on `head` is added last to what a batch has in common.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "numbers of one formula")]
pub(crate) fn control_of<O: SendOperation>(
    head: u32,
    least: usize,
    units: usize,
    blocks: u32,
    flags: u8,
    immediate: U32,
    qpn: u64,
    default_flags: u32,
) -> ([[u8; 8]; 2], RequestInfo) {
    let modifier = (O::MODIFIER as u64) << RequestInfo::MODIFIER_SHIFT;
    let opcode = modifier | (O::OPCODE as u64) << RequestInfo::OPCODE_SHIFT;
    let recorded = modifier | (O::RECORD as u64) << RequestInfo::OPCODE_SHIFT;
    let place = u64::from(head as u16) << RequestInfo::FIRST_SHIFT;
    let control = default_flags | u32::from(flags) << RequestInfo::CONTROL_SHIFT;
    let immediate = u64::from(u32::from_le_bytes(immediate.to_bytes())) << 32;
    // Both contain the same large constant, which the compiler would build twice. Sums, although no two
    // have a bit in common: there are more instructions for them.
    let common = opaque_word(place | opcode | least as u64);
    let rest =
        u64::from(blocks).wrapping_sub(least as u64).wrapping_add(recorded.wrapping_sub(opcode));
    let info = opaque_word(common.wrapping_add(control.into()).wrapping_add(rest));
    let first = common.wrapping_add((units - least) as u64).wrapping_add(qpn);
    let second = u64::from(control) | immediate;
    ([first.to_be_bytes(), second.to_le_bytes()], RequestInfo::of_bits(info))
}

/// Writes what is between the control segment of a request and its data.
///
/// # Safety
/// `slot` has room for a request of an operation that has these segments.
#[inline(always)]
pub(crate) unsafe fn write_head<A: Segment, R: Segment>(slot: NonNull<u8>, address: A, remote: R) {
    // SAFETY: address and remote address follow the control segment, inside the request.
    unsafe {
        address.write(slot.byte_add(UNIT));
        remote.write(slot.byte_add((1 + A::UNITS) * UNIT));
    }
}

impl<T: Transport> SendQueue<T> {
    /// Returns the queue's position.
    #[inline(always)]
    pub(crate) fn here(&self) -> Cursor {
        Cursor { head: self.head, sequence: self.sequence }
    }

    /// Builds a request off the fast path: little room, the end of the ring, a list of data, or a
    /// refusal.
    #[cold]
    #[inline(never)]
    #[expect(clippy::too_many_arguments, reason = "one by one, they stay in registers")]
    pub(crate) fn push_slow<O: SendOperation, A: Segment, D: Data>(
        &mut self,
        cursor: Cursor,
        wr_id: u64,
        flags: SendFlags,
        immediate: U32,
        address: A,
        remote: O::Remote,
        data: D,
    ) -> Cursor {
        let refused = flags.intersection(SendFlags::all()).difference(T::FLAGS & O::FLAGS);
        if let Err(refused) = self.takes(cursor, refused) {
            return refused;
        }
        if self.needs_inline_header && A::UNITS == Ethernet::UNITS {
            return self.refuse(cursor, PostError::InlineHeaderMissing);
        }
        let (slot, in_ring) = self.slow_slot(cursor, const { most_blocks::<O, A>() });
        let units = 1 + A::UNITS + O::Remote::UNITS;
        // SAFETY: there is room for a request of the largest size, or for this one if it is larger,
        // in memory that the device does not own.
        let written = unsafe {
            write_head(slot, address, remote);
            data.write_checked(slot.byte_add(units * UNIT), O::DATA, &self.limits)
        };
        let units = match written {
            Ok(more) => units + more,
            Err(error) => return self.refuse(cursor, error),
        };
        let fence = self.fence_for(flags.bits());
        let flags = flags.intersection(SendFlags::CONTROL).bits() | fence;
        let (words, info) = control_of::<O>(
            cursor.head,
            0,
            units,
            blocks_of(units),
            flags,
            immediate,
            self.qpn,
            self.default_flags,
        );
        // SAFETY: as above.
        unsafe { slot.cast().write(words) };
        self.settle(cursor, wr_id, info, in_ring)
    }

    /// Adds a WQE that the caller has built.
    #[inline(never)]
    pub(crate) fn push_raw(
        &mut self,
        cursor: Cursor,
        wr_id: u64,
        flags: SendFlags,
        wqe: RawWqe<'_>,
    ) -> Cursor {
        let refused = flags.intersection(SendFlags::all()).difference(T::FLAGS);
        if let Err(refused) = self.takes(cursor, refused) {
            return refused;
        }
        let units = wqe.bytes().len() / UNIT;
        let blocks = blocks_of(units);
        let (slot, in_ring) = self.slow_slot(cursor, blocks);
        let own = wqe.control();
        let fence = self.fence_for(own | flags.bits());
        let flags = flags.intersection(SendFlags::CONTROL).bits() | own | fence;
        let control = self.default_flags | u32::from(flags) << RequestInfo::CONTROL_SHIFT;
        let place = u64::from(wqe.modifier()) << RequestInfo::MODIFIER_SHIFT
            | u64::from(cursor.head as u16) << RequestInfo::FIRST_SHIFT
            | u64::from(wqe.opcode()) << RequestInfo::OPCODE_SHIFT;
        let word = (place | self.qpn | units as u64).to_be_bytes();
        let control_byte = (control >> RequestInfo::CONTROL_SHIFT) as u8;
        // SAFETY: there is room for `blocks` blocks, in memory that the device does not own.
        unsafe {
            let bytes = wqe.bytes();
            slot.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            slot.cast().write(word);
            slot.byte_add(offset_of!(ControlSegment, fm_ce_se)).write(control_byte);
        }
        let told = u64::from(wqe.opcode() ^ wqe.told()) << RequestInfo::OPCODE_SHIFT;
        let info = RequestInfo::new(place ^ told, control, blocks);
        let next = self.settle(cursor, wr_id, info, in_ring);
        if told != 0 && self.error.is_none() && rewrites_key(wqe.opcode()) {
            self.let_next_wait(cursor.sequence);
        }
        next
    }

    /// Checks whether a request can be built; refuses it if not, and returns the cursor behind it.
    /// `refused` are its flags that are not allowed.
    fn takes(&mut self, cursor: Cursor, refused: SendFlags) -> Result<(), Cursor> {
        self.forget_leaked(cursor);
        if self.error.is_some() {
            return Err(cursor);
        }
        let error = if !self.gate.may_send() {
            self.refusal()
        } else if !refused.is_empty() {
            PostError::Flags { refused }
        } else {
            return Ok(());
        };
        Err(self.refuse(cursor, error))
    }

    /// Returns the small fence if a request with `control` in its `fm_ce_se` byte needs one: the
    /// request before it rewrites a key, and it has no fence of its own.
    pub(crate) fn fence_for(&self, control: u8) -> u8 {
        let needed = self.fence_next && control & control_flags::FENCE_MASK == 0;
        if needed { control_flags::SMALL_FENCE } else { 0 }
    }

    /// Notes that request `sequence`, which was just built, rewrites a key: the next one needs a
    /// small fence.
    pub(crate) fn let_next_wait(&mut self, sequence: u32) {
        self.fence_next = true;
        self.noted = sequence;
        // All requests that follow take the slow path, and so does completing the batch.
        self.fast_limit = self.head.wrapping_sub(1);
        self.fast_blueflame_blocks = 0;
        self.forget_list_limit();
    }

    /// Moves a request into the ring if it was built in the scratch buffer, and writes its record.
    fn settle(&mut self, cursor: Cursor, wr_id: u64, info: RequestInfo, in_ring: bool) -> Cursor {
        if !in_ring && let Err(error) = self.copy_into_ring(cursor, info) {
            return self.refuse(cursor, error);
        }
        if self.signed {
            self.sign(cursor.head);
        }
        // SAFETY: the records are alive, and were created for this ring.
        unsafe { self.slots.stage(self.mask, cursor.sequence, wr_id, info) };
        self.fence_next = false;
        if rewrites_key(info.opcode_bits()) {
            self.let_next_wait(cursor.sequence);
        }
        cursor.after(u32::from(info.blocks()))
    }
}

/// Returns the blocks of a request of `units` units.
#[inline(always)]
#[expect(clippy::manual_div_ceil, reason = "`div_ceil` takes three instructions more")]
pub(crate) const fn blocks_of(units: usize) -> u32 {
    const UNITS_PER_BLOCK: u32 = (BLOCK / UNIT) as u32;
    (units as u32 + UNITS_PER_BLOCK - 1) / UNITS_PER_BLOCK
}

/// Whether a request of this operation can exceed the largest size that the queue was created for.
pub(crate) const fn is_large<O: SendOperation>() -> bool {
    matches!(O::DATA, DataKind::Own(_))
        || matches!(O::OPCODE, Opcode::AtomicMaskedCs | Opcode::AtomicMaskedFa)
}

/// Returns the maximum number of blocks of an operation whose size does not depend on data; zero
/// for others.
const fn most_blocks<O: SendOperation, A: Segment>() -> u32 {
    let blocks = match O::DATA {
        DataKind::Message => 0,
        DataKind::Result => blocks_of(2 + A::UNITS + O::Remote::UNITS),
        DataKind::Own(units) => blocks_of(1 + A::UNITS + O::Remote::UNITS + units),
    };
    assert!(blocks <= MAX_BLOCKS as u32);
    blocks
}

/// Whether a request of this opcode rewrites a memory key or a signature of one, so that the next
/// request must not overtake it.
const fn rewrites_key(opcode: u8) -> bool {
    const OPCODES: [Opcode; 4] =
        [Opcode::Umr, Opcode::SetPsv, Opcode::Fmr, Opcode::LocalInvalidate];
    let mut i = 0;
    while i < OPCODES.len() {
        if OPCODES[i] as u8 == opcode {
            return true;
        }
        i += 1;
    }
    false
}

impl Cursor {
    /// Returns the blocks and requests from `start` to this position.
    #[inline(always)]
    pub(crate) fn since(self, start: Self) -> (u32, u32) {
        (self.head.wrapping_sub(start.head), self.sequence.wrapping_sub(start.sequence))
    }

    /// Returns the position behind a request of `blocks` blocks.
    #[inline(always)]
    pub(crate) fn after(self, blocks: u32) -> Self {
        Self { head: self.head.wrapping_add(blocks), sequence: self.sequence.wrapping_add(1) }
    }
}

/// Returns the same address, hidden from the optimizer, which would otherwise keep base and offset
/// in two registers.
#[inline(always)]
#[cfg_attr(
    not(miri),
    expect(clippy::pointers_in_nomem_asm_block, reason = "nothing is read there")
)]
pub(crate) fn opaque(pointer: NonNull<u8>) -> NonNull<u8> {
    #[cfg(not(miri))]
    let pointer = {
        let mut address = pointer.as_ptr();
        // SAFETY: the assembly has no instruction, so the pointer keeps its value and is not null.
        unsafe {
            core::arch::asm!("/* {0} */", inout(reg) address, options(pure, nomem, nostack, preserves_flags));
            NonNull::new_unchecked(address)
        }
    };
    pointer
}

/// Returns the same word, hidden from the optimizer.
#[inline(always)]
fn opaque_word(word: u64) -> u64 {
    #[cfg(not(miri))]
    let word = {
        let mut word = word;
        // SAFETY: the assembly has no instruction.
        unsafe {
            core::arch::asm!("/* {0} */", inout(reg) word, options(pure, nomem, nostack, preserves_flags));
        }
        word
    };
    word
}
