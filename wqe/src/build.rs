//! Building requests in the ring, and posting them.
//!
//! The ordinary case — room enough, ordinary data — is inlined into the caller and makes no call.
//! All else leaves it at one point, with everything it needs as arguments, so that the ordinary
//! case keeps nothing alive for it.

use crate::data::Data;
use crate::error::{BatchError, PostError};
use crate::operation::{DataKind, SendFlags, SendOperation};
use crate::raw::RawWqe;
use crate::records::RequestInfo;
use crate::segment::Segment;
use crate::send::SendQueue;
use crate::transport::Transport;
use core::mem::{offset_of, size_of};
use core::ptr::NonNull;
use mlx5_prm::U32;
use mlx5_prm::wqe::{BLOCK, ControlSegment, MAX_BLOCKS, Opcode, UNIT, control_flags};

/// How far a batch has come.
#[derive(Clone, Copy)]
pub(crate) struct Cursor {
    /// Blocks.
    pub(crate) head: u32,
    /// Requests.
    pub(crate) sequence: u32,
}

/// What a request is made of, besides its data.
#[derive(Clone, Copy)]
pub(crate) struct Parts<A, R> {
    pub(crate) wr_id: u64,
    pub(crate) flags: SendFlags,
    pub(crate) immediate: U32,
    pub(crate) address: A,
    pub(crate) remote: R,
}

/// The control segment is stored as two words: opcode modifier, block index, opcode, queue pair
/// number and units; signature, stream, flags and immediate data.
const _: () = {
    assert!(size_of::<ControlSegment>() == 2 * size_of::<u64>());
    assert!(offset_of!(ControlSegment, fm_ce_se) == 8 + RequestInfo::CONTROL_SHIFT as usize / 8);
    assert!(offset_of!(ControlSegment, immediate) == 12);
};

impl<T: Transport> SendQueue<T> {
    /// Where the queue stands.
    #[inline(always)]
    pub(crate) fn here(&self) -> Cursor {
        Cursor { head: self.head, sequence: self.sequence }
    }

    /// Whether a largest request can be built at `head`, in one piece, without a closer look.
    #[inline(always)]
    fn has_room(&self, head: u32) -> bool {
        self.stop.wrapping_sub(head) as i32 >= 0
    }

    /// Adds a request to a batch, and says where it stands if it was built in its place without a
    /// closer look. A refusal is remembered; nothing of the batch is posted then.
    /// `open` says that posting is allowed: before that is known, nothing is written to the ring,
    /// which a forked process may not even have.
    #[inline(always)]
    pub(crate) fn push<O: SendOperation, A: Segment, D: Data>(
        &mut self,
        cursor: Cursor,
        open: bool,
        parts: Parts<A, O::Remote>,
        data: D,
    ) -> (Cursor, Option<NonNull<u8>>) {
        let allowed = T::FLAGS.intersection(O::FLAGS).union(SendFlags::all().complement());
        if !const { is_large::<O>() }
            && data.is_ordinary(O::DATA, &self.limits)
            && allowed.contains(parts.flags)
            && open
            && self.has_room(cursor.head)
        {
            let slot = opaque(self.at(cursor.head));
            // SAFETY: the slot has room for a largest request, and is not the device's.
            let units = unsafe {
                Self::write_head::<O, A>(slot, parts.address, parts.remote);
                let units = 1 + A::UNITS + O::Remote::UNITS;
                units + data.write(slot.byte_add(units * UNIT))
            };
            let blocks = blocks_of(units);
            // SAFETY: as above.
            let info =
                unsafe { self.write_control::<O, _>(slot, cursor, &parts, units, blocks, 0) };
            // SAFETY: the records are alive, and were made for this ring.
            unsafe { self.slots.stage(self.mask, cursor.sequence, parts.wr_id, info) };
            return (cursor.after(blocks), Some(slot));
        }
        core::hint::cold_path();
        let Parts { wr_id, flags, immediate, address, remote } = parts;
        (self.push_slow::<O, A, D>(cursor, wr_id, flags, immediate, address, remote, data), None)
    }

    /// # Safety
    /// `slot` has room for a largest request.
    #[inline(always)]
    unsafe fn write_head<O: SendOperation, A: Segment>(
        slot: NonNull<u8>,
        address: A,
        remote: O::Remote,
    ) {
        // SAFETY: address and remote address follow the control segment.
        unsafe {
            address.write(slot.byte_add(UNIT));
            remote.write(slot.byte_add((1 + A::UNITS) * UNIT));
        }
    }

    /// Writes the control segment of the request at `cursor`, which takes `units`; `fence` is what
    /// stands in its `fm_ce_se` byte besides.
    ///
    /// # Safety
    /// `slot` has room for it.
    #[inline(always)]
    unsafe fn write_control<O: SendOperation, A>(
        &self,
        slot: NonNull<u8>,
        cursor: Cursor,
        parts: &Parts<A, O::Remote>,
        units: usize,
        blocks: u32,
        fence: u8,
    ) -> RequestInfo {
        let place = (O::MODIFIER as u64) << RequestInfo::MODIFIER_SHIFT
            | u64::from(cursor.head as u16) << RequestInfo::FIRST_SHIFT
            | (O::OPCODE as u64) << RequestInfo::OPCODE_SHIFT;
        let flags = parts.flags.intersection(SendFlags::CONTROL).bits() | fence;
        let control = self.always | u32::from(flags) << RequestInfo::CONTROL_SHIFT;
        let immediate = u64::from(u32::from_le_bytes(parts.immediate.to_bytes())) << 32;
        let words: [[u8; 8]; 2] = [
            (place | self.qpn | units as u64).to_be_bytes(),
            (u64::from(control) | immediate).to_le_bytes(),
        ];
        // SAFETY: by the contract.
        unsafe { slot.cast().write(words) };
        let other = (O::OPCODE as u64 ^ O::RECORD as u64) << RequestInfo::OPCODE_SHIFT;
        RequestInfo::new(place ^ other, control, blocks)
    }

    /// [`SendQueue::push`] where something is out of the ordinary: little room, the end of the ring,
    /// a list of data, or something to refuse.
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
        if !self.takes(cursor, refused) {
            return cursor;
        }
        let (slot, in_ring) = self.slow_slot(cursor, const { most_blocks::<O, A>() });
        let units = 1 + A::UNITS + O::Remote::UNITS;
        // SAFETY: the slot has room for a largest request, or for this one, if that is larger; it is
        // not the device's.
        let written = unsafe {
            Self::write_head::<O, A>(slot, address, remote);
            data.write_checked(slot.byte_add(units * UNIT), O::DATA, &self.limits)
        };
        let units = match written {
            Ok(more) => units + more,
            Err(error) => {
                self.refuse(cursor, error);
                return cursor;
            }
        };
        let parts = Parts { wr_id, flags, immediate, address, remote };
        let blocks = blocks_of(units);
        let fence = self.fence_for(flags.bits());
        // SAFETY: as above.
        let info =
            unsafe { self.write_control::<O, _>(slot, cursor, &parts, units, blocks, fence) };
        self.settle(cursor, wr_id, info, in_ring)
    }

    /// Adds a WQE that the caller has put together.
    #[inline(never)]
    pub(crate) fn push_raw(
        &mut self,
        cursor: Cursor,
        wr_id: u64,
        flags: SendFlags,
        wqe: RawWqe<'_>,
    ) -> Cursor {
        let refused = flags.intersection(SendFlags::all()).difference(T::FLAGS);
        if !self.takes(cursor, refused) {
            return cursor;
        }
        let units = wqe.bytes().len() / UNIT;
        let blocks = blocks_of(units);
        let (slot, in_ring) = self.slow_slot(cursor, blocks);
        let own = wqe.control();
        let fence = self.fence_for(own | flags.bits());
        let flags = flags.intersection(SendFlags::CONTROL).bits() | own | fence;
        let control = self.always | u32::from(flags) << RequestInfo::CONTROL_SHIFT;
        let place = u64::from(wqe.modifier()) << RequestInfo::MODIFIER_SHIFT
            | u64::from(cursor.head as u16) << RequestInfo::FIRST_SHIFT
            | u64::from(wqe.opcode()) << RequestInfo::OPCODE_SHIFT;
        let word = (place | self.qpn | units as u64).to_be_bytes();
        let control_byte = (control >> RequestInfo::CONTROL_SHIFT) as u8;
        // SAFETY: the slot has room for so many blocks, and is not the device's.
        unsafe {
            let bytes = wqe.bytes();
            slot.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            slot.cast().write(word);
            slot.byte_add(offset_of!(ControlSegment, fm_ce_se)).write(control_byte);
        }
        self.settle(cursor, wr_id, RequestInfo::new(place, control, blocks), in_ring)
    }

    /// Whether a request can be built at all; refuses it if not. `refused` are flags of it that mean
    /// nothing here.
    fn takes(&mut self, cursor: Cursor, refused: SendFlags) -> bool {
        if self.error.is_some() {
            return false;
        }
        let error = if !self.gate.may_send() {
            self.refusal()
        } else if !refused.is_empty() {
            PostError::Flags { refused }
        } else {
            return true;
        };
        self.refuse(cursor, error);
        false
    }

    /// The small fence that a request needs which has `control` in its `fm_ce_se` byte: none, if the
    /// one before it rewrites no key, or if it has a fence of its own.
    pub(crate) fn fence_for(&self, control: u8) -> u8 {
        let needed = self.fence_next && control & control_flags::FENCE_MASK == 0;
        if needed { control_flags::SMALL_FENCE } else { 0 }
    }

    /// The request that was just built rewrites a key: the next one waits for it.
    pub(crate) fn let_next_wait(&mut self) {
        self.fence_next = true;
        // So that all that follows goes the slow way, and the batch with it.
        self.stop = self.head.wrapping_sub(1);
        self.blueflame_now = 0;
    }

    /// Brings a request to its place, if it was built aside, and writes its record.
    fn settle(&mut self, cursor: Cursor, wr_id: u64, info: RequestInfo, in_ring: bool) -> Cursor {
        if !in_ring && let Err(error) = self.copy_into_ring(cursor, info) {
            self.refuse(cursor, error);
            return cursor;
        }
        if self.signed {
            self.sign(cursor.head);
        }
        // SAFETY: the records are alive, and were made for this ring.
        unsafe { self.slots.stage(self.mask, cursor.sequence, wr_id, info) };
        self.fence_next = false;
        if rewrites_key(info.opcode_bits()) {
            self.let_next_wait();
        }
        cursor.after(u32::from(info.blocks()))
    }

    /// Where the request at `head` can be built, which takes `blocks` at most if that is more than a
    /// largest one: in the ring, if there is room for it in one piece and for a largest one after it;
    /// else aside.
    fn slow_slot(&mut self, cursor: Cursor, blocks: u32) -> (NonNull<u8>, bool) {
        let head = cursor.head;
        if blocks <= self.worst_blocks && self.has_room(head) {
            return (self.at(head), true);
        }
        // The batch has passed the stop. It stays where it is, for the batch may be aborted; what
        // completes the batch finds the next one.
        self.blueflame_now = 0;
        if self.span(cursor) >= self.worst_blocks.max(blocks) {
            return (self.at(head), true);
        }
        (NonNull::from(&mut self.scratch.0).cast(), false)
    }

    /// Blocks at `cursor` that are free, lie in one piece, and leave room for another largest request:
    /// as long as that is there, no run of unsignaled requests can have filled the queue.
    fn span(&self, Cursor { head, sequence }: Cursor) -> u32 {
        let to_end = self.mask + 1 - (head & self.mask);
        self.free_at(head, sequence).saturating_sub(self.worst_blocks).min(to_end)
    }

    /// Copies a request that was built aside to its place in the ring, if there is room for it.
    fn copy_into_ring(&mut self, cursor: Cursor, info: RequestInfo) -> Result<(), PostError> {
        self.check_room(cursor, info.blocks().into(), info.signaled())?;
        // SAFETY: there is room for it.
        unsafe { self.copy_aside(cursor, info.blocks().into()) };
        Ok(())
    }

    /// Whether there is room for a request of so many blocks at `cursor`.
    pub(crate) fn check_room(
        &self,
        Cursor { head, sequence }: Cursor,
        blocks: u32,
        signaled: bool,
    ) -> Result<(), PostError> {
        let free = self.free_at(head, sequence);
        if blocks > free {
            return Err(PostError::QueueFull { free, needed: blocks });
        }
        let stays_open = free - blocks >= self.worst_blocks;
        if !signaled && !stays_open {
            let run = self.unsignaled_run(sequence as u16) + blocks;
            if run + self.worst_blocks > self.mask + 1 {
                return Err(PostError::UnsignaledRun);
            }
        }
        Ok(())
    }

    /// Copies what was built aside to its place in the ring.
    ///
    /// # Safety
    /// `blocks` blocks at `cursor` are free, and no more than a largest WQE has.
    pub(crate) unsafe fn copy_aside(&mut self, cursor: Cursor, blocks: u32) {
        let head = cursor.head;
        let to_end = self.mask + 1 - (head & self.mask);
        let first = blocks.min(to_end) as usize * BLOCK;
        let rest = blocks as usize * BLOCK - first;
        let (slot, scratch) = (self.at(head), self.scratch.0.as_ptr());
        // SAFETY: `blocks` free blocks start at `head`: `first` bytes up to the end of the ring, the
        // rest at its start. The scratch holds a largest WQE and is not part of the ring.
        unsafe {
            slot.as_ptr().copy_from_nonoverlapping(scratch, first);
            self.ring.as_ptr().copy_from_nonoverlapping(scratch.add(first), rest);
        }
    }

    /// Blocks of the outstanding requests before `sequence`, those of the batch under construction
    /// included, that follow the last one that will complete: what stays once that has.
    fn unsignaled_run(&self, mut sequence: u16) -> u32 {
        let (retired, _) = self.records().outstanding();
        let mut run = 0;
        while sequence != retired {
            sequence = sequence.wrapping_sub(1);
            let info = self.records().get(sequence).info;
            if info.signaled() {
                break;
            }
            run += u32::from(info.blocks());
        }
        run
    }

    /// Refuses the request at `cursor`, and so the batch, unless an earlier one was refused.
    #[cold]
    pub(crate) fn refuse(&mut self, cursor: Cursor, error: PostError) {
        let index = cursor.since(self.here()).1.saturating_sub(self.more_wqes);
        self.error.get_or_insert(BatchError { index, error });
        self.blueflame_now = 0;
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
        match self.error {
            Some(error) => {
                self.abort();
                // A queue that may not be posted to says that: a full one of a device that is gone
                // is never going to have room.
                let open = self.gate.may_send();
                Err(if open { error } else { BatchError { index: 0, error: self.refusal() } })
            }
            None => self.complete_good(cursor),
        }
    }

    /// Posts what was built up to `cursor`.
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

    /// Nothing that a batch found out matters any more.
    fn forget_batch(&mut self) {
        self.error = None;
        self.more_wqes = 0;
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

/// Blocks that a request of `units` units takes.
#[inline(always)]
#[expect(clippy::manual_div_ceil, reason = "`div_ceil` takes three instructions more")]
pub(crate) const fn blocks_of(units: usize) -> u32 {
    const UNITS_PER_BLOCK: u32 = (BLOCK / UNIT) as u32;
    (units as u32 + UNITS_PER_BLOCK - 1) / UNITS_PER_BLOCK
}

/// Whether a request of an operation may be larger than what a queue is made for.
const fn is_large<O: SendOperation>() -> bool {
    matches!(O::DATA, DataKind::Own(_))
        || matches!(O::OPCODE, Opcode::AtomicMaskedCs | Opcode::AtomicMaskedFa)
}

/// The most blocks that a request takes whose size does not depend on its data; none, of others.
const fn most_blocks<O: SendOperation, A: Segment>() -> u32 {
    let blocks = match O::DATA {
        DataKind::Message => 0,
        DataKind::Result => blocks_of(2 + A::UNITS + O::Remote::UNITS),
        DataKind::Own(units) => blocks_of(1 + A::UNITS + O::Remote::UNITS + units),
    };
    assert!(blocks <= MAX_BLOCKS as u32);
    blocks
}

/// Whether a request of this opcode rewrites a memory key, or a signature that belongs to one: the
/// next request must not overtake it.
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
    /// Blocks and requests from `start` to here.
    #[inline(always)]
    pub(crate) fn since(self, start: Self) -> (u32, u32) {
        (self.head.wrapping_sub(start.head), self.sequence.wrapping_sub(start.sequence))
    }

    /// Behind a request of `blocks` blocks.
    #[inline(always)]
    pub(crate) fn after(self, blocks: u32) -> Self {
        Self { head: self.head.wrapping_add(blocks), sequence: self.sequence.wrapping_add(1) }
    }
}

/// The same address, which the compiler does not know to be: it would keep base and offset apart.
#[inline(always)]
#[cfg_attr(
    not(miri),
    expect(clippy::pointers_in_nomem_asm_block, reason = "nothing is read there")
)]
fn opaque(pointer: NonNull<u8>) -> NonNull<u8> {
    #[cfg(not(miri))]
    let pointer = {
        let mut address = pointer.as_ptr();
        // SAFETY: no instruction; the pointer stays what it was, and so not null.
        unsafe {
            core::arch::asm!("/* {0} */", inout(reg) address, options(pure, nomem, nostack, preserves_flags));
            NonNull::new_unchecked(address)
        }
    };
    pointer
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::{
        Gate, PostError, QueueState, Rc, SendFlags, SendLayout, SendParts, SendQueue, SendRecords,
    };
    use core::ptr::NonNull;
    use mlx5_doorbell::{QueuePairRecord, SendRegister};

    #[repr(align(64))]
    struct Aligned([u8; 8 * 64]);

    /// What tells that there is room is a comparison with a counter of 32 bits, which comes round. A
    /// queue that is full all the time must find itself full through all of it.
    #[test]
    fn a_queue_that_is_always_full_stays_so_when_its_counter_wraps() {
        let layout = SendLayout::new::<Rc>(8, 1, 0).unwrap();
        assert_eq!((layout.blocks, layout.worst_blocks), (8, 1));
        let records = SendRecords::new(layout.blocks);
        let mut memory = [Aligned([0; 512]), Aligned([0; 512]), Aligned([0; 512])];
        let [ring, uar, words] =
            memory.each_mut().map(|part| NonNull::from(&mut part.0).cast::<u8>());
        // SAFETY: each has a part of the memory to itself, aligned, as long as the queue lives.
        let mut queue = unsafe {
            let gate = Gate::new(words.byte_add(64).cast());
            gate.set_state(QueueState::ReadyToSend);
            SendQueue::<Rc>::new(SendParts {
                ring,
                layout,
                qpn: 1,
                max_message: 1 << 30,
                signal_all: true,
                atomics: true,
                gate,
                record: QueuePairRecord::new(words),
                register: SendRegister::doorbell(uar),
                records: NonNull::from(&records),
            })
        };
        let post = |queue: &mut SendQueue<Rc>| {
            let mut batch = queue.wr_start();
            batch.wr(0, SendFlags::empty()).send().inline_data(b"x");
            batch.complete().map_err(|error| error.error)
        };
        let full = Err(PostError::QueueFull { free: 0, needed: 1 });
        for _ in 0..8 {
            post(&mut queue).unwrap();
        }
        for _ in 0..32 {
            for _ in 0..3 {
                assert_eq!(post(&mut queue), full);
                let oldest = queue.producer().wrapping_sub(8);
                records.retire(oldest).unwrap();
                assert_eq!(post(&mut queue), Ok(()));
            }
            // As many requests later; the counters that the device and the records have are of 16
            // bits, and the same then.
            queue.head = queue.head.wrapping_add(1 << 28);
        }
    }
}
