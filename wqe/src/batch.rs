//! The typed builder (`ibv_wr_*`): a batch of requests, each finished by its data setter.

use crate::error::{BatchError, PostError};
use crate::operation::{self, Inline, SendFlags, SendOperation, Supports};
use crate::records::RequestInfo;
use crate::send::SendQueue;
use crate::sge::{RemoteAddress, Sge};
use crate::transport::{Setup, Transport};
use core::marker::PhantomData;
use core::mem::{offset_of, size_of};
use core::ptr::NonNull;
use mlx5_prm::wqe::{
    AddressVector, BLOCK, ControlSegment, DataSegment, EXTENDED_UD_AV, INLINE, MAX_SGE_LENGTH,
    RemoteAddressSegment, UNIT,
};
use mlx5_prm::{U32, U64};

/// How far a batch has come. It is handed to the slow paths by value, so that the fast one keeps it
/// in registers.
#[derive(Clone, Copy)]
struct Cursor {
    head: u32,
    sequence: u32,
    stop: u32,
}

impl Cursor {
    /// Whether a largest request can be built at `head`, in one piece, without a closer look.
    #[inline(always)]
    const fn has_room(self) -> bool {
        self.stop.wrapping_sub(self.head) as i32 >= 0
    }

    /// The same cursor, which sends the next request the slow way.
    #[inline(always)]
    const fn stopped(self) -> Self {
        Self { stop: self.head.wrapping_sub(1), ..self }
    }
}

/// A batch of requests under construction. It is posted whole by [`Batch::complete`], or, when one
/// of its requests was refused or when it is dropped, not at all.
#[must_use = "a batch that is dropped posts nothing"]
pub struct Batch<'q, T: Transport> {
    pub(crate) queue: &'q mut SendQueue<T>,
    cursor: Cursor,
}

impl<'q, T: Transport> Batch<'q, T> {
    #[inline(always)]
    pub(crate) fn new(queue: &'q mut SendQueue<T>) -> Self {
        queue.error = None;
        let mut cursor = Cursor { head: queue.head, sequence: queue.sequence, stop: queue.stop };
        if !queue.gate.may_send() {
            queue.refuse_all();
            cursor = cursor.stopped();
        }
        Self { queue, cursor }
    }

    /// Starts a request; what it does is said next.
    #[inline(always)]
    pub fn wr(&mut self, wr_id: u64, flags: SendFlags) -> Wr<'_, 'q, T> {
        let slot = if self.cursor.has_room() {
            self.queue.at(self.cursor.head)
        } else {
            let (slot, stop) = self.queue.slow_slot(self.cursor.head);
            self.cursor.stop = stop;
            slot
        };
        Wr { batch: self, slot, wr_id, flags }
    }

    /// How many requests the batch holds.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.cursor.sequence.wrapping_sub(self.queue.sequence) as usize
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Posts the batch (`ibv_wr_complete`): all of it, or, if a request was refused, nothing.
    #[inline(always)]
    pub fn complete(self) -> Result<(), BatchError> {
        if let Some(error) = self.queue.error {
            return Err(error);
        }
        self.commit();
        Ok(())
    }

    /// Discards the batch (`ibv_wr_abort`), as dropping it does.
    pub fn abort(self) {}

    /// Posts what was built so far.
    #[inline(always)]
    pub(crate) fn commit(self) {
        let Self { queue, cursor } = self;
        let requests = cursor.sequence.wrapping_sub(queue.sequence);
        let first = queue.head;
        let blocks = cursor.head.wrapping_sub(first);
        queue.head = cursor.head;
        queue.sequence = cursor.sequence;
        queue.stop = cursor.stop;
        // Before the doorbell: the completion may be polled, elsewhere, before `ring` returns.
        queue.records().publish(cursor.sequence as u16);
        if requests == 1 && blocks <= queue.register.blueflame_blocks() && cursor.has_room() {
            // SAFETY: the request at `first` was just built, in one piece, of this many blocks.
            return unsafe {
                queue.register.ring(queue.record, cursor.head as u16, queue.at(first), blocks)
            };
        }
        queue.ring_several(first, requests);
    }

    /// Remembers the first error. Requests after it are built, where there is room, but nothing of
    /// the batch is posted.
    #[inline(always)]
    pub(crate) fn refuse(&mut self, error: PostError) {
        self.queue.refuse(error, self.cursor.sequence);
    }

    /// Finishes the request whose segments stand at `slot`.
    #[inline(always)]
    fn finish<O: SendOperation>(
        &mut self,
        slot: NonNull<u8>,
        wr_id: u64,
        flags: SendFlags,
        immediate: U32,
        units: usize,
    ) {
        let allowed = T::FLAGS.intersection(O::FLAGS);
        let flags = flags.intersection(SendFlags::all());
        if !allowed.contains(flags) {
            return self.refuse(PostError::Flags { refused: flags.difference(allowed) });
        }
        let cursor = &mut self.cursor;
        let queue = &mut *self.queue;
        let blocks = (units as u32 + 3) / (BLOCK / UNIT) as u32;
        // The control segment in two words, each stored at once: opcode modifier, block index,
        // opcode, queue pair number and units; signature, stream, flags and immediate data.
        let place = u64::from(cursor.head as u16) << RequestInfo::FIRST_SHIFT
            | (O::OPCODE as u64) << RequestInfo::OPCODE_SHIFT;
        let control = queue.always | u64::from(flags.bits()) << RequestInfo::CONTROL_SHIFT;
        let immediate = u64::from(u32::from_le_bytes(immediate.to_bytes())) << 32;
        let words: [[u8; 8]; 2] =
            [(place | queue.qpn | units as u64).to_be_bytes(), (control | immediate).to_le_bytes()];
        // SAFETY: the slot has room for a largest WQE, and is not the device's.
        unsafe { slot.cast().write(words) };
        let info = RequestInfo::new(place, control, blocks);
        if !cursor.has_room() {
            *cursor = queue.finish_slow(*cursor, wr_id, info);
            return;
        }
        // SAFETY: the records are alive, and were made for this ring.
        unsafe { queue.slots.stage(queue.mask, cursor.sequence, cursor.head, wr_id, info) };
        cursor.head = cursor.head.wrapping_add(blocks);
        cursor.sequence = cursor.sequence.wrapping_add(1);
    }
}

const _: () = {
    assert!(size_of::<ControlSegment>() == 2 * size_of::<u64>());
    assert!(offset_of!(ControlSegment, fm_ce_se) == 8 + RequestInfo::CONTROL_SHIFT as usize / 8);
    assert!(offset_of!(ControlSegment, immediate) == 12);
};

/// The paths that are not taken as long as there is room enough, and lists of data.
impl<T: Transport> SendQueue<T> {
    /// Checks a list and writes it; refuses the batch, or returns the units that it takes.
    ///
    /// # Safety
    /// `at` has room for `max_sge` entries.
    #[inline(never)]
    unsafe fn write_sges(
        &mut self,
        at: NonNull<u8>,
        sges: &[Sge],
        sequence: u32,
    ) -> Option<usize> {
        // SAFETY: handed down.
        let units = unsafe { write_sge_list(at, sges, self.max_sge, self.max_message) };
        units.map_err(|error| self.refuse(error, sequence)).ok()
    }

    /// Checks inline data and copies it; refuses the batch, or returns the units that it takes.
    ///
    /// # Safety
    /// `at` has room for `max_inline` bytes behind their header.
    #[inline(never)]
    unsafe fn write_inlines(
        &mut self,
        at: NonNull<u8>,
        pieces: &[&[u8]],
        sequence: u32,
    ) -> Option<usize> {
        // SAFETY: handed down.
        let units = unsafe { write_inline_list(at, pieces, self.max_inline as usize) };
        units.map_err(|error| self.refuse(error, sequence)).ok()
    }

    #[cold]
    #[inline(never)]
    fn refuse(&mut self, error: PostError, sequence: u32) {
        let index = sequence.wrapping_sub(self.sequence) as usize;
        self.error.get_or_insert(BatchError { index, error });
    }

    #[cold]
    #[inline(never)]
    fn refuse_all(&mut self) {
        self.refuse(self.refusal(), self.sequence);
    }

    /// Finds out afresh how much room there is at `head`; where it is not enough for a largest
    /// request in one piece, the request is built aside. Returns where, and the next stop.
    #[cold]
    #[inline(never)]
    fn slow_slot(&mut self, head: u32) -> (NonNull<u8>, u32) {
        if self.error.is_none() {
            let to_end = self.mask + 1 - (head & self.mask);
            // What stays free besides is room for one more request: as long as it is there, no run
            // of unsignaled requests can have filled the queue.
            let span = self.free_at(head).saturating_sub(self.worst_blocks).min(to_end);
            if let Some(more) = span.checked_sub(self.worst_blocks) {
                return (self.at(head), head.wrapping_add(more));
            }
        }
        (NonNull::from(&mut self.scratch.0).cast(), head.wrapping_sub(1))
    }

    /// Takes a request that was built aside, if there is room for it.
    #[cold]
    #[inline(never)]
    fn finish_slow(&mut self, cursor: Cursor, wr_id: u64, info: RequestInfo) -> Cursor {
        let Cursor { head, sequence, .. } = cursor;
        if self.error.is_some() {
            return cursor;
        }
        let blocks = u32::from(info.blocks());
        let free = self.free_at(head);
        if blocks > free {
            self.refuse(PostError::QueueFull { free, needed: blocks }, sequence);
            return cursor;
        }
        let stays_open = free - blocks >= self.worst_blocks;
        if !info.signaled() && !stays_open && !self.signaled_outstanding(sequence as u16) {
            self.refuse(PostError::UnsignaledRun, sequence);
            return cursor;
        }
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
        // SAFETY: the records are alive, and were made for this ring.
        unsafe { self.slots.stage(self.mask, sequence, head, wr_id, info) };
        Cursor { head: head.wrapping_add(blocks), sequence: sequence.wrapping_add(1), stop: 0 }
            .stopped()
    }

    /// Whether any request that is outstanding before `sequence`, those of the batch under
    /// construction included, will complete.
    fn signaled_outstanding(&self, mut sequence: u16) -> bool {
        let (retired, _) = self.records().outstanding();
        while sequence != retired {
            sequence = sequence.wrapping_sub(1);
            if self.records().get(sequence).info.signaled() {
                return true;
            }
        }
        false
    }

    /// Rings for the `requests` requests from `first` on, or for a single one that is not copied in
    /// one piece to the register.
    #[inline(never)]
    fn ring_several(&mut self, first: u32, requests: u32) {
        if requests == 0 {
            return;
        }
        let (record, head) = (self.record, self.head as u16);
        let last = self.records().get(self.sequence.wrapping_sub(1) as u16).info;
        let blocks = u32::from(last.blocks());
        let wqe = self.at(last.first().into());
        if requests > 1 || blocks > self.register.blueflame_blocks() {
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

/// A request that has its identifier and flags; an operation comes next.
#[must_use = "a request is part of the batch once its data is set"]
pub struct Wr<'b, 'q, T: Transport> {
    batch: &'b mut Batch<'q, T>,
    slot: NonNull<u8>,
    wr_id: u64,
    flags: SendFlags,
}

impl<'b, 'q, T: Transport> Wr<'b, 'q, T> {
    #[inline(always)]
    fn begin<O: SendOperation>(self, immediate: U32) -> Request<'b, 'q, T, O, T::Start> {
        Request { wr: self, immediate, state: PhantomData }
    }

    #[inline(always)]
    fn begin_remote<O: SendOperation>(
        self,
        remote: RemoteAddress,
        immediate: U32,
    ) -> Request<'b, 'q, T, O, T::Start> {
        let segment = RemoteAddressSegment {
            address: U64::new(remote.addr),
            rkey: U32::new(remote.rkey),
            reserved: U32::ZERO,
        };
        // SAFETY: the slot has room for a largest WQE, this segment included.
        unsafe { self.slot.byte_add((1 + T::ADDRESS_UNITS) * UNIT).cast().write(segment) };
        self.begin(immediate)
    }

    /// Send (`ibv_wr_send`).
    #[inline(always)]
    pub fn send(self) -> Request<'b, 'q, T, operation::Send, T::Start>
    where
        T: Supports<operation::Send>,
    {
        self.begin(U32::ZERO)
    }

    /// Send with immediate data (`ibv_wr_send_imm`); the receiver gets the same four bytes.
    #[inline(always)]
    pub fn send_imm(self, immediate: [u8; 4]) -> Request<'b, 'q, T, operation::SendImm, T::Start>
    where
        T: Supports<operation::SendImm>,
    {
        self.begin(U32::from_bytes(immediate))
    }

    /// RDMA write (`ibv_wr_rdma_write`).
    #[inline(always)]
    pub fn rdma_write(
        self,
        remote: RemoteAddress,
    ) -> Request<'b, 'q, T, operation::RdmaWrite, T::Start>
    where
        T: Supports<operation::RdmaWrite>,
    {
        self.begin_remote(remote, U32::ZERO)
    }

    /// RDMA write with immediate data (`ibv_wr_rdma_write_imm`).
    #[inline(always)]
    pub fn rdma_write_imm(
        self,
        remote: RemoteAddress,
        immediate: [u8; 4],
    ) -> Request<'b, 'q, T, operation::RdmaWriteImm, T::Start>
    where
        T: Supports<operation::RdmaWriteImm>,
    {
        self.begin_remote(remote, U32::from_bytes(immediate))
    }

    /// RDMA read (`ibv_wr_rdma_read`).
    #[inline(always)]
    pub fn rdma_read(
        self,
        remote: RemoteAddress,
    ) -> Request<'b, 'q, T, operation::RdmaRead, T::Start>
    where
        T: Supports<operation::RdmaRead>,
    {
        self.begin_remote(remote, U32::ZERO)
    }
}

/// State of a request that is to be given the receiver's address.
pub enum NeedsAddress {}
/// State of a request that is to be given its data.
pub enum NeedsData {}

/// A request that has its operation.
#[must_use = "a request is part of the batch once its data is set"]
pub struct Request<'b, 'q, T: Transport, O: SendOperation, S: Setup> {
    wr: Wr<'b, 'q, T>,
    immediate: U32,
    state: PhantomData<(O, S)>,
}

impl<'b, 'q, T: Transport, O: SendOperation> Request<'b, 'q, T, O, NeedsAddress> {
    /// Says who is to receive it (`ibv_wr_set_ud_addr`).
    #[inline(always)]
    pub fn ud_addr(
        self,
        to: &AddressVector,
        qp_num: u32,
        qkey: u32,
    ) -> Request<'b, 'q, T, O, NeedsData> {
        let segment = AddressVector {
            qkey: U32::new(qkey),
            dqp_dct: U32::new(qp_num | EXTENDED_UD_AV),
            ..*to
        };
        // SAFETY: the slot has room for a largest WQE, whose address follows the control segment.
        unsafe { self.wr.slot.byte_add(UNIT).cast().write(segment) };
        Request { wr: self.wr, immediate: self.immediate, state: PhantomData }
    }
}

impl<T: Transport, O: SendOperation> Request<'_, '_, T, O, NeedsData> {
    const HEAD: usize = 1 + T::ADDRESS_UNITS + O::UNITS;

    #[inline(always)]
    fn data(&self) -> NonNull<u8> {
        // SAFETY: the slot has room for a largest WQE; data follows the head.
        unsafe { self.wr.slot.byte_add(Self::HEAD * UNIT) }
    }

    #[inline(always)]
    fn finish(self, units: usize) {
        let Wr { batch, slot, wr_id, flags } = self.wr;
        batch.finish::<O>(slot, wr_id, flags, self.immediate, units);
    }

    /// The data is one piece of local memory (`ibv_wr_set_sge`).
    #[inline(always)]
    pub fn sge(self, sge: Sge) {
        // One comparison finds the length of zero, too.
        if sge.length.wrapping_sub(1) >= self.wr.batch.queue.max_single_sge {
            return self.sge_list(&[sge]);
        }
        // SAFETY: the slot has room for a largest WQE, which has an entry.
        unsafe { write_sge(self.data(), sge) };
        self.finish(Self::HEAD + 1);
    }

    /// The data is a list of pieces of local memory, one after the other
    /// (`ibv_wr_set_sge_list`). An empty list sends nothing but the message.
    #[inline]
    pub fn sge_list(self, sges: &[Sge]) {
        let (data, sequence) = (self.data(), self.wr.batch.cursor.sequence);
        // SAFETY: the slot has room for a largest WQE.
        let units = unsafe { self.wr.batch.queue.write_sges(data, sges, sequence) };
        if let Some(units) = units {
            self.finish(Self::HEAD + units);
        }
    }

    /// The data is copied into the request (`ibv_wr_set_inline_data`); its memory needs no
    /// registration and is free again when this returns.
    #[inline(always)]
    pub fn inline_data(self, bytes: &[u8])
    where
        O: Inline,
    {
        let data = self.data();
        // One comparison finds the length of zero, too.
        let units = if bytes.len().wrapping_sub(1) < self.wr.batch.queue.max_inline as usize {
            // SAFETY: the slot has room for a largest WQE, which holds this much inline data.
            unsafe { write_inline(data, bytes) }
        } else {
            let sequence = self.wr.batch.cursor.sequence;
            // SAFETY: the slot has room for a largest WQE.
            match unsafe { self.wr.batch.queue.write_inlines(data, &[bytes], sequence) } {
                Some(units) => units,
                None => return,
            }
        };
        self.finish(Self::HEAD + units);
    }

    /// The data is copied into the request from several places, one after the other
    /// (`ibv_wr_set_inline_data_list`).
    #[inline]
    pub fn inline_data_list(self, pieces: &[&[u8]])
    where
        O: Inline,
    {
        let (data, sequence) = (self.data(), self.wr.batch.cursor.sequence);
        // SAFETY: the slot has room for a largest WQE.
        let units = unsafe { self.wr.batch.queue.write_inlines(data, pieces, sequence) };
        if let Some(units) = units {
            self.finish(Self::HEAD + units);
        }
    }
}

/// # Safety
/// `at` has 16 writable bytes.
#[inline(always)]
pub(crate) unsafe fn write_sge(at: NonNull<u8>, sge: Sge) {
    let segment = DataSegment {
        byte_count: U32::new(sge.length),
        lkey: U32::new(sge.lkey),
        address: U64::new(sge.addr),
    };
    // SAFETY: by the contract; a segment needs no alignment.
    unsafe { at.cast().write(segment) };
}

/// Checks a list and writes those of its entries that are not empty; returns how many.
///
/// # Safety
/// `at` has room for `max_sge` entries.
pub(crate) unsafe fn write_sge_list(
    at: NonNull<u8>,
    sges: &[Sge],
    max_sge: u32,
    max_message: u32,
) -> Result<usize, PostError> {
    if sges.len() > max_sge as usize {
        return Err(PostError::TooManySges { given: sges.len(), max: max_sge as usize });
    }
    let mut units = 0;
    let mut total = 0;
    for (index, &sge) in sges.iter().enumerate() {
        if sge.length > MAX_SGE_LENGTH {
            return Err(PostError::SgeTooLong { index, length: sge.length });
        }
        if sge.length == 0 {
            continue;
        }
        total += u64::from(sge.length);
        // SAFETY: `units` is at most `index`, which is less than `max_sge`.
        unsafe { write_sge(at.byte_add(units * UNIT), sge) };
        units += 1;
    }
    if total > u64::from(max_message) {
        return Err(PostError::MessageTooLong { length: total, max: max_message });
    }
    Ok(units)
}

/// Writes inline data behind its header, and returns the units that both take.
///
/// # Safety
/// `bytes` is not empty; `at`, aligned to 16, has room for header and data, padded to 16.
#[inline(always)]
unsafe fn write_inline(at: NonNull<u8>, bytes: &[u8]) -> usize {
    let header = U32::new(bytes.len() as u32 | INLINE);
    // SAFETY: by the contract.
    unsafe {
        at.cast().write(header);
        copy_inline(at.byte_add(4), bytes);
    }
    (4 + bytes.len() + UNIT - 1) / UNIT
}

/// Copies a few bytes without a call: by words that may overlap, never beyond either end.
///
/// # Safety
/// `to` has room for `bytes`, which is not empty.
#[inline(always)]
unsafe fn copy_inline(to: NonNull<u8>, bytes: &[u8]) {
    let (to, from, length) = (to.as_ptr(), bytes.as_ptr(), bytes.len());
    // SAFETY: a width is copied only at offsets that leave room for it before `length`.
    unsafe {
        if length >= 8 {
            let mut offset = 0;
            while offset + 8 < length {
                copy_word::<u64>(to, from, offset);
                offset = opaque(offset + 8);
            }
            copy_word::<u64>(to, from, length - 8);
        } else if length >= 4 {
            copy_word::<u32>(to, from, 0);
            copy_word::<u32>(to, from, length - 4);
        } else {
            copy_word::<u8>(to, from, 0);
            copy_word::<u8>(to, from, length / 2);
            copy_word::<u8>(to, from, length - 1);
        }
    }
}

/// # Safety
/// Both places have a `W` at `offset`.
#[inline(always)]
unsafe fn copy_word<W>(to: *mut u8, from: *const u8, offset: usize) {
    // SAFETY: by the contract; no alignment is needed.
    unsafe { to.add(offset).cast::<W>().write_unaligned(from.add(offset).cast::<W>().read_unaligned()) }
}

/// The same number, which the compiler does not know to be: it would make a call of a loop that
/// copies.
#[inline(always)]
fn opaque(number: usize) -> usize {
    #[cfg(not(miri))]
    let number = {
        let mut number = number;
        // SAFETY: no instruction.
        unsafe {
            core::arch::asm!("/* {0} */", inout(reg) number, options(pure, nomem, nostack, preserves_flags));
        }
        number
    };
    number
}

/// [`write_inline`] for data in several places.
///
/// # Safety
/// `at` has room for a header and `max` bytes.
pub(crate) unsafe fn write_inline_list(
    at: NonNull<u8>,
    pieces: &[&[u8]],
    max: usize,
) -> Result<usize, PostError> {
    let length = pieces.iter().fold(0usize, |sum, piece| sum.saturating_add(piece.len()));
    if length > max {
        return Err(PostError::InlineTooLong { length, max });
    }
    if length == 0 {
        return Ok(0);
    }
    let mut offset = 4;
    // SAFETY: header and `length` bytes are within the room that the caller gives.
    unsafe {
        at.cast().write(U32::new(length as u32 | INLINE));
        for piece in pieces {
            at.byte_add(offset).as_ptr().copy_from_nonoverlapping(piece.as_ptr(), piece.len());
            offset += piece.len();
        }
    }
    Ok(offset.div_ceil(UNIT))
}
