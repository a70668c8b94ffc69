//! The typed builder (`ibv_wr_*`): a batch of requests, each finished by its data setter.

use crate::error::{BatchError, PostError};
use crate::operation::{self, Inline, SendFlags, SendOperation, Supports};
use crate::records::RequestInfo;
use crate::send::SendQueue;
use crate::sge::{RemoteAddress, Sge};
use crate::transport::{Setup, Transport};
use core::marker::PhantomData;
use core::ptr::NonNull;
use mlx5_prm::wqe::{
    AddressVector, BLOCK, ControlSegment, DataSegment, EXTENDED_UD_AV, INLINE,
    MAX_SGE_LENGTH, Opcode, RemoteAddressSegment, UNIT,
};
use mlx5_prm::{U16, U32, U64};

/// Marks a WQE that crosses the end of the ring and is copied to the register in two pieces.
const WRAPPED: u32 = u32::MAX;

/// A batch of requests under construction. It is posted whole by [`Batch::complete`], or, when one
/// of its requests was refused or when it is dropped, not at all.
#[must_use = "a batch that is dropped posts nothing"]
pub struct Batch<'q, T: Transport> {
    pub(crate) queue: &'q mut SendQueue<T>,
    head: u32,
    sequence: u32,
    span: u32,
    /// The WQE built last, in the ring.
    last: NonNull<u8>,
    /// Its blocks, or [`WRAPPED`].
    last_blocks: u32,
    pub(crate) error: Option<PostError>,
}

impl<'q, T: Transport> Batch<'q, T> {
    #[inline(always)]
    pub(crate) fn new(queue: &'q mut SendQueue<T>) -> Self {
        let mut batch = Self {
            head: queue.head,
            sequence: queue.sequence,
            span: queue.span,
            last: queue.ring,
            last_blocks: 0,
            error: None,
            queue,
        };
        if !batch.queue.gate.may_send() {
            batch.refuse(batch.queue.refusal());
        }
        batch
    }

    /// Starts a request; what it does is said next.
    #[inline(always)]
    pub fn wr(&mut self, wr_id: u64, flags: SendFlags) -> Wr<'_, 'q, T> {
        let slot = if self.span >= self.queue.worst_blocks {
            self.queue.at(self.head)
        } else {
            self.slow_slot()
        };
        Wr { batch: self, slot, wr_id, flags }
    }

    /// How many requests the batch holds.
    pub fn len(&self) -> usize {
        self.sequence.wrapping_sub(self.queue.sequence) as usize
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Posts the batch (`ibv_wr_complete`): all of it, or, if a request was refused, nothing.
    #[inline(always)]
    pub fn complete(self) -> Result<(), BatchError> {
        if let Some(error) = self.error {
            return Err(BatchError { index: self.len(), error });
        }
        self.commit();
        Ok(())
    }

    /// Discards the batch (`ibv_wr_abort`), as dropping it does.
    pub fn abort(self) {}

    /// Posts what was built so far.
    #[inline(always)]
    pub(crate) fn commit(self) {
        let Self { queue, head, sequence, span, last, last_blocks, .. } = self;
        let requests = sequence.wrapping_sub(queue.sequence);
        if requests == 0 {
            return;
        }
        let first = queue.head;
        queue.head = head;
        queue.sequence = sequence;
        queue.span = span;
        // Before the doorbell: the completion may be polled, elsewhere, before `ring` returns.
        queue.records.publish(sequence as u16);
        let copy = if requests == 1 && last_blocks <= queue.register.blueflame_blocks() {
            last_blocks
        } else if requests == 1 && last_blocks == WRAPPED {
            return Self::ring_wrapped(queue, first);
        } else {
            0
        };
        // SAFETY: `last` is a WQE in the ring, of at least `copy` blocks that do not wrap.
        unsafe { queue.register.ring(queue.record, head as u16, last, copy) };
    }

    /// Rings for a single WQE at `first` that crosses the end of the ring.
    #[cold]
    fn ring_wrapped(queue: &mut SendQueue<T>, first: u32) {
        let (wqe, blocks) = (queue.at(first), queue.head.wrapping_sub(first));
        let before_end = queue.mask + 1 - (first & queue.mask);
        // SAFETY: `first..head` was just built: `before_end` blocks up to the end of the ring, less
        // than `blocks`, and the rest at its start.
        unsafe {
            if blocks <= queue.register.blueflame_blocks() {
                let (record, head, ring) = (queue.record, queue.head as u16, queue.ring);
                queue.register.ring_wrapped(record, head, wqe, before_end, ring, blocks);
            } else {
                queue.register.ring(queue.record, queue.head as u16, wqe, 0);
            }
        }
    }

    /// Remembers the first error; no request is taken after it.
    #[cold]
    pub(crate) fn refuse(&mut self, error: PostError) {
        self.error.get_or_insert(error);
        self.span = 0;
    }

    /// Finds out afresh how much room there is; where it is not enough for a largest request in one
    /// piece, the request is built aside.
    #[cold]
    fn slow_slot(&mut self) -> NonNull<u8> {
        if self.error.is_none() {
            let free = self.queue.free_at(self.head);
            let to_end = self.queue.mask + 1 - (self.head & self.queue.mask);
            // What stays free besides is room for one more request: as long as it is there, no run
            // of unsignaled requests can have filled the queue.
            self.span = free.saturating_sub(self.queue.worst_blocks).min(to_end);
            if self.span >= self.queue.worst_blocks {
                return self.queue.at(self.head);
            }
        }
        NonNull::from(&mut self.queue.scratch.0).cast()
    }

    /// Finishes the request whose segments stand at `slot`.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "inlined; each is a word of the WQE")]
    fn finish(
        &mut self,
        slot: NonNull<u8>,
        opcode: Opcode,
        wr_id: u64,
        flags: SendFlags,
        immediate: U32,
        units: usize,
        allowed: SendFlags,
    ) {
        if flags.bits() & !allowed.bits() & SendFlags::all().bits() != 0 {
            return self.refuse(PostError::Flags { refused: flags.difference(allowed) });
        }
        let index = self.head as u16;
        let blocks = (units as u32).div_ceil((BLOCK / UNIT) as u32);
        let control = flags.bits() | self.queue.always;
        let segment = ControlSegment {
            opmod_index_opcode: U32::new(u32::from(index) << 8 | opcode as u32),
            qpn_ds: U32::new(self.queue.qpn << 8 | units as u32),
            signature: 0,
            dci_stream: U16::ZERO,
            fm_ce_se: control,
            immediate,
        };
        // SAFETY: the slot has room for a largest WQE, and is not the device's.
        unsafe { slot.cast::<ControlSegment>().write(segment) };
        let info = RequestInfo::new(index, blocks, opcode, control);
        if self.span < self.queue.worst_blocks {
            return self.finish_slow(wr_id, info);
        }
        self.queue.records.stage(self.sequence as u16, wr_id, info);
        self.last = slot;
        self.last_blocks = blocks;
        self.span -= blocks;
        self.head = self.head.wrapping_add(blocks);
        self.sequence = self.sequence.wrapping_add(1);
    }

    /// Takes a request that was built aside, if there is room for it.
    #[cold]
    fn finish_slow(&mut self, wr_id: u64, info: RequestInfo) {
        if self.error.is_some() {
            return;
        }
        let blocks = u32::from(info.blocks());
        let free = self.queue.free_at(self.head);
        if blocks > free {
            return self.refuse(PostError::QueueFull { free, needed: blocks });
        }
        let stays_open = free - blocks >= self.queue.worst_blocks;
        if !info.signaled() && !stays_open && !self.signaled_outstanding() {
            return self.refuse(PostError::UnsignaledRun);
        }
        let to_end = self.queue.mask + 1 - (self.head & self.queue.mask);
        let first = blocks.min(to_end) as usize * BLOCK;
        let rest = blocks as usize * BLOCK - first;
        let slot = self.queue.at(self.head);
        let scratch = self.queue.scratch.0.as_ptr();
        // SAFETY: `blocks` free blocks start at `head`: `first` bytes up to the end of the ring, the
        // rest at its start. The scratch holds a largest WQE and is not part of the ring.
        unsafe {
            slot.as_ptr().copy_from_nonoverlapping(scratch, first);
            self.queue.ring.as_ptr().copy_from_nonoverlapping(scratch.add(first), rest);
        }
        self.queue.records.stage(self.sequence as u16, wr_id, info);
        self.last = slot;
        self.last_blocks = if rest == 0 { blocks } else { WRAPPED };
        self.span = 0;
        self.head = self.head.wrapping_add(blocks);
        self.sequence = self.sequence.wrapping_add(1);
    }

    /// Whether any request that is outstanding, those of this batch included, will complete.
    fn signaled_outstanding(&self) -> bool {
        let (retired, _) = self.queue.records.outstanding();
        let mut sequence = self.sequence as u16;
        while sequence != retired {
            sequence = sequence.wrapping_sub(1);
            if self.queue.records.get(sequence).info.signaled() {
                return true;
            }
        }
        false
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
    const FLAGS: SendFlags = T::FLAGS.intersection(O::FLAGS);

    #[inline(always)]
    fn data(&self) -> NonNull<u8> {
        // SAFETY: the slot has room for a largest WQE; data follows the head.
        unsafe { self.wr.slot.byte_add(Self::HEAD * UNIT) }
    }

    #[inline(always)]
    fn finish(self, units: usize) {
        let Wr { batch, slot, wr_id, flags } = self.wr;
        batch.finish(slot, O::OPCODE, wr_id, flags, self.immediate, units, Self::FLAGS);
    }

    /// The data is one piece of local memory (`ibv_wr_set_sge`).
    #[inline(always)]
    pub fn sge(self, sge: Sge) {
        // One comparison finds the length of zero, too.
        if sge.length.wrapping_sub(1) >= self.wr.batch.queue.max_message {
            return self.sge_list(&[sge]);
        }
        if self.wr.batch.queue.max_sge == 0 {
            return self.wr.batch.refuse(PostError::TooManySges { given: 1, max: 0 });
        }
        // SAFETY: the slot has room for a largest WQE, which has an entry.
        unsafe { write_sge(self.data(), sge) };
        self.finish(Self::HEAD + 1);
    }

    /// The data is a list of pieces of local memory, one after the other
    /// (`ibv_wr_set_sge_list`). An empty list sends nothing but the message.
    pub fn sge_list(self, sges: &[Sge]) {
        let queue = &*self.wr.batch.queue;
        let data = self.data();
        // SAFETY: the slot has room for a largest WQE, which has `max_sge` entries.
        match unsafe { write_sge_list(data, sges, queue.max_sge, queue.max_message) } {
            Ok(units) => self.finish(Self::HEAD + units),
            Err(error) => self.wr.batch.refuse(error),
        }
    }

    /// The data is copied into the request (`ibv_wr_set_inline_data`); its memory needs no
    /// registration and is free again when this returns.
    #[inline(always)]
    pub fn inline_data(self, bytes: &[u8])
    where
        O: Inline,
    {
        let max = self.wr.batch.queue.max_inline as usize;
        if bytes.len() > max {
            return self
                .wr
                .batch
                .refuse(PostError::InlineTooLong { length: bytes.len(), max });
        }
        // SAFETY: the slot has room for a largest WQE, which holds `max` bytes of inline data.
        let units = unsafe { write_inline(self.data(), bytes) };
        self.finish(Self::HEAD + units);
    }

    /// The data is copied into the request from several places, one after the other
    /// (`ibv_wr_set_inline_data_list`).
    pub fn inline_data_list(self, pieces: &[&[u8]])
    where
        O: Inline,
    {
        let max = self.wr.batch.queue.max_inline as usize;
        // SAFETY: the slot has room for a largest WQE, which holds `max` bytes of inline data.
        match unsafe { write_inline_list(self.data(), pieces, max) } {
            Ok(units) => self.finish(Self::HEAD + units),
            Err(error) => self.wr.batch.refuse(error),
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
/// `at`, aligned to 16, has room for header and data, padded to 16.
#[inline(always)]
pub(crate) unsafe fn write_inline(at: NonNull<u8>, bytes: &[u8]) -> usize {
    if bytes.is_empty() {
        return 0;
    }
    let header = U32::new(bytes.len() as u32 | INLINE);
    // SAFETY: by the contract.
    unsafe {
        at.cast().write(header);
        copy_inline(at.byte_add(4), bytes);
    }
    (4 + bytes.len()).div_ceil(UNIT)
}

/// Copies a few bytes without a call: by words that may overlap, never beyond either end.
///
/// # Safety
/// `to` has room for `bytes`, which is not empty.
#[inline(always)]
unsafe fn copy_inline(to: NonNull<u8>, bytes: &[u8]) {
    let (to, from, length) = (to.as_ptr(), bytes.as_ptr(), bytes.len());
    // SAFETY: every offset plus the width of the copy is at most `length`.
    unsafe {
        if length >= 8 {
            let mut offset = 0;
            while offset + 8 < length {
                to.add(offset).cast::<u64>().write_unaligned(from.add(offset).cast::<u64>().read_unaligned());
                offset += 8;
            }
            let tail = length - 8;
            to.add(tail).cast::<u64>().write_unaligned(from.add(tail).cast::<u64>().read_unaligned());
        } else if length >= 4 {
            let tail = length - 4;
            to.cast::<u32>().write_unaligned(from.cast::<u32>().read_unaligned());
            to.add(tail).cast::<u32>().write_unaligned(from.add(tail).cast::<u32>().read_unaligned());
        } else {
            to.write(*from);
            to.add(length / 2).write(*from.add(length / 2));
            to.add(length - 1).write(*from.add(length - 1));
        }
    }
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
