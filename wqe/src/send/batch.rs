//! The typed builder (`ibv_wr_*`): a batch of requests, each finished by its data setter.

use crate::request::batch_error::BatchError;
use crate::request::data::{Data, Inline as InlineBytes, InlineList, InlineSges, OneSge};
use crate::request::error::PostError;
use crate::request::ethernet::{
    Entry, Ethernet, HeadedData, InlineHeader, InlinePackets, Segmented, SegmentedData,
    SeveralPackets, VlanTag,
};
use crate::request::flags::SendFlags;
use crate::request::operation::{self, Inline, SendOperation, Supports};
use crate::request::raw::RawWqe;
use crate::request::remote::RemoteAddress;
use crate::request::segment::{Atomic, Datagram, MaskedAtomic, MaskedOperands, RemoteSrq, Segment};
use crate::request::sge::Sge;
use crate::request::transport::{NeedsAddress, NeedsData, NeedsSrqn, RawPacket, Transport, Which};
use crate::request::window::{Binding, UmrHead};
use crate::send::build::{Cursor, Parts};
use crate::send::cancel::RequestHandle;
use crate::send::journal::Change;
use crate::send::queue::SendQueue;
use core::cell::Cell;
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use mlx5_prm::U32;
use mlx5_prm::ethernet::L2_INLINE;
use mlx5_prm::wqe::AddressVector;

/// A batch of requests under construction. [`Batch::complete`] posts all of it. Nothing is posted
/// if a request was refused or the batch is dropped.
///
/// A batch can be sent to another thread, so a future may hold one across an `.await`. It cannot be
/// shared by threads.
#[must_use = "a batch that is dropped posts nothing"]
pub struct Batch<'q, T: Transport> {
    queue: &'q mut SendQueue<T>,
    /// The queue's position.
    start: Cursor,
    /// The position behind the last request built.
    cursor: Cursor,
    /// The address of the last request, if the fast path built it.
    last: Option<InRing>,
    /// The handle number of the request that is added next; zero if it has no handle.
    name: u32,
}

/// Where a batch that was lent has come to.
pub(crate) struct ComeTo {
    cursor: Cursor,
    last: Option<InRing>,
    name: u32,
}

/// The address of a request in the ring of the queue that a batch borrows.
#[derive(Clone, Copy)]
struct InRing(NonNull<u8>);

// SAFETY: the address is in the ring that only the batch's queue reaches. The batch has it together
// with the exclusive borrow of that queue, and uses it only in `complete`, with that borrow. So the
// thread that has the address has the queue, which is `Send`. What was written to the ring by the
// thread that had the batch before happens before its use, as for every value that is sent; the
// barriers before the doorbell run in the thread that rings it, and order all that it has seen.
unsafe impl Send for InRing {}

impl<T: Transport> fmt::Debug for Batch<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_as(f, "Batch")
    }
}

impl<'q, T: Transport> Batch<'q, T> {
    #[inline(always)]
    pub(crate) fn new(queue: &'q mut SendQueue<T>) -> Self {
        let start = queue.here();
        Self::at(queue, start)
    }

    /// A batch whose next request is at `cursor`.
    #[inline(always)]
    pub(crate) fn at(queue: &'q mut SendQueue<T>, cursor: Cursor) -> Self {
        queue.look_at_gate();
        Self { queue, start: cursor, cursor, last: None, name: 0 }
    }

    /// Starts a request. Its operation follows.
    #[inline(always)]
    pub fn wr(&mut self, wr_id: u64, flags: SendFlags) -> Wr<'_, 'q, T> {
        Wr { batch: self, wr_id, flags }
    }

    /// Returns the number of requests in the batch.
    pub fn len(&self) -> usize {
        let (_, requests) = self.cursor.since(self.start);
        if requests == 0 {
            return 0;
        }
        requests as usize - self.queue.more_wqes as usize - usize::from(self.queue.error.is_some())
    }

    /// Returns a handle of the request that is added next, by which it can be cancelled. If that
    /// request is not posted (the batch is refused or aborted, or no request follows), the handle
    /// refers to nothing.
    pub fn handle(&mut self) -> RequestHandle {
        if self.name == 0 {
            self.name = self.queue.next_name();
        }
        RequestHandle {
            sequence: self.cursor.sequence,
            name: self.name,
            generation: self.queue.generation,
        }
    }

    /// Gives the request at `sequence`, which was just added or refused, the handle number that was
    /// asked for.
    #[inline(always)]
    fn give_name(&mut self, sequence: u32) {
        if self.name != 0 {
            if self.cursor.sequence != sequence && self.error().is_none() {
                self.queue.name(sequence, self.name);
            }
            self.name = 0;
        }
    }

    /// Whether the batch has no requests.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Posts the batch (`ibv_wr_complete`): all of it, or nothing if a request was refused.
    #[inline(always)]
    pub fn complete(self) -> Result<(), BatchError> {
        let last = self.last.map(|last| last.0);
        let (queue, start, cursor) = self.into_parts();
        queue.complete(start, cursor, last)
    }

    /// Posts the batch if it is one request of the usual size (a message with one SGE), which the fast
    /// path built and which goes to the queue's own BlueFlame register. Otherwise returns it: then [`Batch::complete`] posts it.
    #[inline(always)]
    pub fn complete_fast(self) -> Result<(), Self> {
        if self.last.is_none() || !self.queue.complete_usual(self.cursor) {
            return Err(self);
        }
        let _posted = ManuallyDrop::new(self);
        Ok(())
    }

    /// Discards the batch (`ibv_wr_abort`), as dropping it does.
    pub fn abort(self) {
        drop(self);
    }

    /// Formats the batch, of the named type.
    pub(crate) fn fmt_as(&self, f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
        f.debug_struct(name)
            .field("transport", &format_args!("{}", self.which().name()))
            .field("qp_num", &format_args!("{:#x}", self.queue.qp_num()))
            .field("requests", &self.len())
            .field("refused", &self.queue.error)
            .finish_non_exhaustive()
    }

    /// Returns the transport of the queue.
    #[inline(always)]
    pub(crate) fn which(&self) -> Which {
        self.queue.which
    }

    /// As [`Batch::which`], read again. The compiler need not keep what was read first in a register.
    #[inline(always)]
    pub(crate) fn which_again(&self) -> Which {
        // SAFETY: it is a field of the queue that the batch borrows.
        unsafe { (&raw const self.queue.which).read_volatile() }
    }

    /// The same batch, whose type says another transport. Only adding requests depends on it:
    /// [`Batch::lend`] is for that.
    ///
    /// # Safety
    /// No request is added but to what [`Batch::lend`] returns.
    #[inline(always)]
    pub(crate) unsafe fn of_transport<U: Transport>(self) -> Batch<'q, U> {
        let this = ManuallyDrop::new(self);
        // SAFETY: the value is read once; the source is in a `ManuallyDrop` and never used again.
        let queue = unsafe { core::ptr::read(&this.queue) };
        // SAFETY: by the caller's contract.
        let queue = unsafe { queue.of_transport::<U>() };
        let Self { start, cursor, last, name, .. } = *this;
        Batch { queue, start, cursor, last, name }
    }

    /// The batch as one of another transport, to add requests to. [`Batch::take_back`] follows.
    ///
    /// # Safety
    /// The queue is of transport `U`.
    #[inline(always)]
    pub(crate) unsafe fn lend<U: Transport>(&mut self) -> Batch<'_, U> {
        let Self { start, cursor, last, name, .. } = *self;
        // SAFETY: by the caller's contract.
        let queue = unsafe { self.queue.of_transport::<U>() };
        Batch { queue, start, cursor, last, name }
    }

    /// Where a lent batch has come to.
    #[inline(always)]
    pub(crate) fn come_to(self) -> ComeTo {
        // It goes on, so it is not dropped.
        let Self { cursor, last, name, .. } = *ManuallyDrop::new(self);
        ComeTo { cursor, last, name }
    }

    /// Goes on where the batch that was lent has come to.
    #[inline(always)]
    pub(crate) fn take_back(&mut self, ComeTo { cursor, last, name }: ComeTo) {
        (self.cursor, self.last, self.name) = (cursor, last, name);
    }

    /// Takes the batch apart without dropping it.
    #[inline(always)]
    pub(crate) fn into_parts(self) -> (&'q mut SendQueue<T>, Cursor, Cursor) {
        let this = ManuallyDrop::new(self);
        // SAFETY: the value is read once; the source is in a `ManuallyDrop` and never used again.
        (unsafe { core::ptr::read(&this.queue) }, this.start, this.cursor)
    }

    /// Returns the first refusal.
    #[inline(always)]
    pub(crate) fn error(&self) -> Option<BatchError> {
        self.queue.error()
    }

    /// Adds a request by `push`, which is never on the fast path.
    pub(crate) fn push_slow_request(
        &mut self,
        push: impl FnOnce(&mut SendQueue<T>, Cursor) -> Cursor,
    ) {
        let sequence = self.cursor.sequence;
        self.last = None;
        self.push_by(push);
        self.give_name(sequence);
    }

    /// Lets `push`, which is out of line, add or refuse a request.
    #[inline(always)]
    fn push_by(&mut self, push: impl FnOnce(&mut SendQueue<T>, Cursor) -> Cursor) {
        self.cursor = push(self.queue, self.cursor);
    }

    /// A request that configures a key is to be added at the cursor that this returns. It leaves
    /// [`SendQueue::fast_blueflame_blocks`] nonzero only if it is one WQE in one piece in the ring.
    /// [`Batch::end_keyed`] follows.
    // Two functions, not one that is given a closure: that might not be inlined.
    #[inline(always)]
    pub(crate) fn begin_keyed(&mut self) -> (&mut SendQueue<T>, Cursor) {
        self.last = Some(InRing(self.queue.at(self.cursor.head)));
        // Wherever there is room.
        self.queue.records().open();
        (&mut *self.queue, self.cursor)
    }

    /// It ends at the cursor.
    #[inline(always)]
    pub(crate) fn end_keyed(&mut self, cursor: Cursor) {
        let sequence = self.cursor.sequence;
        self.cursor = cursor;
        self.give_name(sequence);
    }

    /// Refuses the request under construction by `refuse`, which is out of line and needs no memory
    /// of the caller's for the error.
    #[inline(always)]
    pub(crate) fn refuse_by(&mut self, refuse: impl FnOnce(&mut SendQueue<T>, Cursor) -> Cursor) {
        self.last = None;
        self.push_by(refuse);
    }

    /// Refuses the request under construction, and so the batch.
    pub(crate) fn refuse(&mut self, error: PostError) {
        self.last = None;
        self.push_by(|queue, cursor| queue.refuse(cursor, error));
    }
}

impl<T: Transport> Drop for Batch<'_, T> {
    // Out of line, so that the batch itself need not be in memory for the unwinding path.
    #[inline(always)]
    fn drop(&mut self) {
        self.queue.abort_dropped();
    }
}

impl<T: Transport> SendQueue<T> {
    /// Starts a batch of requests (`ibv_wr_start`). Nothing reaches the device before
    /// [`Batch::complete`]. Dropping the batch aborts it.
    #[inline(always)]
    pub fn wr_start(&mut self) -> Batch<'_, T> {
        Batch::new(self)
    }
}

/// A request with identifier and flags. Its operation follows.
#[must_use = "a request is part of the batch once its data is set"]
pub struct Wr<'b, 'q, T: Transport> {
    pub(crate) batch: &'b mut Batch<'q, T>,
    pub(crate) wr_id: u64,
    pub(crate) flags: SendFlags,
}

impl<T: Transport> fmt::Debug for Wr<'_, '_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wr")
            .field("wr_id", &self.wr_id)
            .field("flags", &self.flags)
            .finish_non_exhaustive()
    }
}

/// One operation per line: name, arguments, remote side, immediate data.
macro_rules! builders {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*) = $operation:ident, $remote:expr, $immediate:expr;)*) => {
        impl<'b, 'q, T: Transport> Wr<'b, 'q, T> {
            $(
                $(#[$doc])*
                #[inline(always)]
                pub fn $name(
                    self,
                    $($arg: $ty),*
                ) -> Request<'b, 'q, T, operation::$operation, T::Start>
                where
                    T: Supports<operation::$operation>,
                {
                    let Self { batch, wr_id, flags } = self;
                    let immediate = U32::from_bytes($immediate);
                    Request { batch, wr_id, flags, immediate, remote: $remote, state: PhantomData }
                }
            )*
        }
    };
}

builders! {
    /// Send (`ibv_wr_send`).
    send() = Send, (), [0; 4];
    /// Send with immediate data (`ibv_wr_send_imm`); the receiver gets the same four bytes.
    send_imm(immediate: [u8; 4]) = SendImm, (), immediate;
    /// RDMA write (`ibv_wr_rdma_write`).
    rdma_write(remote: RemoteAddress) = RdmaWrite, remote, [0; 4];
    /// RDMA write with immediate data (`ibv_wr_rdma_write_imm`). It takes a receive request of the
    /// peer, and nothing is written to that request's buffers: it needs none. Its completion has
    /// the immediate data and the number of bytes written.
    rdma_write_imm(remote: RemoteAddress, immediate: [u8; 4]) = RdmaWriteImm, remote, immediate;
    /// RDMA read (`ibv_wr_rdma_read`).
    rdma_read(remote: RemoteAddress) = RdmaRead, remote, [0; 4];
    /// Send, and invalidate `rkey` at the peer before its completion is reported there
    /// (`ibv_wr_send_inv`).
    send_inv(rkey: u32) = SendInvalidate, (), rkey.to_be_bytes();
    /// Atomic compare and swap of eight bytes (`ibv_wr_atomic_cmp_swp`): if they equal `compare`,
    /// they become `swap`. The data, one SGE of eight bytes, receives the previous value. Atomic
    /// with respect to other atomics of the same device, not to the CPU.
    atomic_cmp_swp(remote: RemoteAddress, compare: u64, swap: u64) =
        CompareSwap, Atomic { remote, swap_or_add: swap, compare }, [0; 4];
    /// Atomic addition to eight bytes (`ibv_wr_atomic_fetch_add`); otherwise as
    /// [`Wr::atomic_cmp_swp`].
    atomic_fetch_add(remote: RemoteAddress, add: u64) =
        FetchAdd, Atomic { remote, swap_or_add: add, compare: 0 }, [0; 4];
    /// [`Wr::atomic_cmp_swp`] of selected bits: the bits of `compare_mask` are compared; if they
    /// are equal, the bits of `swap_mask` are swapped in.
    masked_cmp_swp(remote: RemoteAddress, operands: MaskedOperands) =
        MaskedCompareSwap, MaskedAtomic { remote, operands }, [0; 4];
    /// [`Wr::atomic_fetch_add`] to several fields at once, with no carry between them. `boundary`
    /// has the highest bit of each field set; the last field ends at the highest bit of the word.
    masked_fetch_add(remote: RemoteAddress, add: u64, boundary: u64) =
        MaskedFetchAdd, Atomic { remote, swap_or_add: add, compare: boundary }, [0; 4];
}

/// Operations without data. They are added to the batch at once.
impl<T: Transport> Wr<'_, '_, T> {
    /// Binds a memory window (`ibv_wr_bind_mw`).
    pub fn bind_mw(self, binding: Binding)
    where
        T: Supports<operation::BindWindow>,
    {
        self.batch.add_binding(self.wr_id, self.flags, binding);
    }

    /// Binds a memory window, with a change of the driver's view of a key.
    pub fn bind_mw_with(self, binding: Binding, change: Change)
    where
        T: Supports<operation::BindWindow>,
    {
        let sequence = self.batch.cursor.sequence;
        self.batch.add_binding(self.wr_id, self.flags, binding);
        self.batch.queue.note_change(sequence, change);
    }

    /// Invalidates a memory window of type 2 that is bound to this queue pair (`ibv_wr_local_inv`).
    pub fn local_inv(self, rkey: u32)
    where
        T: Supports<operation::LocalInvalidate>,
    {
        self.batch.add_invalidation(self.wr_id, self.flags, rkey);
    }

    /// Does nothing. Completes in order.
    pub fn nop(self)
    where
        T: Supports<operation::Nop>,
    {
        self.batch.add_bare::<operation::Nop>(self.wr_id, self.flags, 0, (), ());
    }

    /// Sends a packet that the device cuts into segments (`ibv_wr_send_tso`). The device fills in
    /// the lengths, the sequence numbers and, with [`SendFlags::IP_CSUM`], the checksums of each
    /// segment's headers. One completion.
    pub fn send_tso(self, packet: Segmented<'_>)
    where
        T: Supports<operation::Tso>,
    {
        self.batch.add_segmented(self.wr_id, self.flags, packet);
    }

    /// Sends several packets by one request (enhanced multi-packet write): one SGE for each, at most as many
    /// as a request of the queue has (`max_send_sge`). [`SendFlags::IP_CSUM`] is for all of them. One
    /// completion, of opcode send. For devices with that capability, and not for those that need headers
    /// in the request.
    #[inline(always)]
    pub fn send_packets(self, packets: &[Sge])
    where
        T: Supports<operation::MultiPacket>,
    {
        self.batch.add_packets(self.wr_id, self.flags, packets);
    }

    /// The same, of a list in cells.
    #[doc(hidden)]
    #[inline(always)]
    pub fn send_packets_in(self, packets: &[Cell<Sge>])
    where
        T: Supports<operation::MultiPacket>,
    {
        self.batch.add_packets(self.wr_id, self.flags, packets);
    }

    /// As [`send_packets`](Self::send_packets), with the packets' bytes in the request: their memory needs
    /// no registration and can be reused when this returns, and the device reads nothing else. Each packet
    /// takes its length and four bytes, rounded up to 16; the sum, less four, is the inline data of the request, of which a queue
    /// has so much as it was created with (`max_inline_data`). For short packets.
    ///
    /// ```
    /// # use mlx5_wqe::{Batch, RawPacket, SendFlags};
    /// # fn f(batch: &mut Batch<'_, RawPacket>) {
    /// let frames = [[0x33; 60], [0x44; 60]];
    /// // 2 × 64 bytes, less 4: fits into `max_inline_data(124)`.
    /// batch.wr(1, SendFlags::SIGNALED).send_packets_inline(&[&frames[0], &frames[1]]);
    /// # }
    /// ```
    pub fn send_packets_inline(self, packets: &[&[u8]])
    where
        T: Supports<operation::MultiPacket>,
    {
        self.batch.add_inline_packets(self.wr_id, self.flags, packets);
    }

    /// Posts a WQE unchanged but for queue pair number, block index and flags
    /// (`mlx5dv_wr_raw_wqe`).
    pub fn raw_wqe(self, wqe: RawWqe<'_>)
    where
        T: Supports<operation::Raw>,
    {
        self.batch.add_raw(self.wr_id, self.flags, wqe);
    }
}

/// Adding requests to the batch.
impl<T: Transport> Batch<'_, T> {
    /// Adds a request with data and without a handle.
    #[inline(always)]
    pub(crate) fn add<O: SendOperation, A: Segment, D: Data>(
        &mut self,
        parts: Parts<A, O::Remote>,
        data: D,
    ) {
        if self.queue.is_fast::<O, D>(self.cursor, parts.flags, &data) {
            // SAFETY: just checked.
            return unsafe { self.add_built::<O, A, D>(parts, data) };
        }
        let Parts { wr_id, flags, immediate, address, remote } = parts;
        self.last = None;
        self.push_by(|queue, cursor| {
            queue.push_slow::<O, A, D>(cursor, wr_id, flags, immediate, address, remote, data)
        });
    }

    /// Adds a request, by the fast path.
    ///
    /// # Safety
    /// [`SendQueue::is_fast`] is true of it.
    #[inline(always)]
    unsafe fn add_built<O: SendOperation, A: Segment, D: Data>(
        &mut self,
        parts: Parts<A, O::Remote>,
        data: D,
    ) {
        // SAFETY: by the contract.
        let (blocks, slot) = unsafe { self.queue.build_fast::<O, A, D>(self.cursor, parts, data) };
        (self.cursor, self.last) = (self.cursor.after(blocks), Some(InRing(slot)));
    }

    /// As [`Batch::add`], if the fast path can build the request. Otherwise nothing is added.
    #[inline(always)]
    pub(crate) fn add_fast<O: SendOperation, A: Segment, D: Data>(
        &mut self,
        parts: Parts<A, O::Remote>,
        data: D,
    ) -> bool {
        let takes = self.queue.is_fast::<O, D>(self.cursor, parts.flags, &data);
        if takes {
            // SAFETY: just checked.
            unsafe { self.add_built::<O, A, D>(parts, data) };
        }
        takes
    }

    /// Adds a request without address; its data, if any, belongs to the operation.
    pub(crate) fn add_bare<O: SendOperation>(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        immediate: u32,
        remote: O::Remote,
        data: impl Data,
    ) {
        let immediate = U32::new(immediate);
        self.push_slow_request(|queue, cursor| {
            queue.push_slow::<O, (), _>(cursor, wr_id, flags, immediate, (), remote, data)
        });
    }

    pub(crate) fn add_binding(&mut self, wr_id: u64, flags: SendFlags, binding: Binding) {
        if let Err(error) = binding.check() {
            return self.refuse(error);
        }
        let (window, translation) = (binding.window(), binding.translation());
        let head = binding.head(self.queue.qp_num());
        self.add_bare::<operation::BindWindow>(wr_id, flags, window, head, translation);
    }

    pub(crate) fn add_invalidation(&mut self, wr_id: u64, flags: SendFlags, rkey: u32) {
        let head = UmrHead::free(0, true);
        self.add_bare::<operation::LocalInvalidate>(wr_id, flags, rkey, head, ());
    }

    pub(crate) fn add_segmented(&mut self, wr_id: u64, flags: SendFlags, packet: Segmented<'_>) {
        let checksums = flags.contains(SendFlags::IP_CSUM);
        let data = SegmentedData { packet, checksums, limits: self.queue.tso };
        self.add_bare::<operation::Tso>(wr_id, flags, 0, (), data);
    }

    fn add_headed(&mut self, wr_id: u64, flags: SendFlags, headers: &[u8], rest: &[Sge]) {
        let checksums = flags.contains(SendFlags::IP_CSUM);
        let data = HeadedData { checksums, headers, rest };
        self.add_bare::<operation::Send>(wr_id, flags, 0, (), data);
    }

    #[inline(always)]
    pub(crate) fn add_packets(&mut self, wr_id: u64, flags: SendFlags, packets: &[impl Entry]) {
        self.add_several(wr_id, flags, SeveralPackets(packets));
    }

    pub(crate) fn add_inline_packets(&mut self, wr_id: u64, flags: SendFlags, packets: &[&[u8]]) {
        self.add_several(wr_id, flags, InlinePackets(packets));
    }

    #[inline(always)]
    fn add_several(&mut self, wr_id: u64, flags: SendFlags, packets: impl Data) {
        let segment = Ethernet::new(flags);
        self.push_slow_request(|queue, cursor| {
            queue.push_slow::<operation::MultiPacket, Ethernet, _>(
                cursor,
                wr_id,
                flags,
                U32::new(0),
                segment,
                (),
                packets,
            )
        });
    }

    pub(crate) fn add_raw(&mut self, wr_id: u64, flags: SendFlags, wqe: RawWqe<'_>) {
        self.push_slow_request(|queue, cursor| queue.push_raw(cursor, wr_id, flags, wqe));
    }
}

/// A request with its operation. Its address or its data follows.
#[must_use = "a request is part of the batch once its data is set"]
pub struct Request<'b, 'q, T: Transport, O: SendOperation, S> {
    batch: &'b mut Batch<'q, T>,
    wr_id: u64,
    flags: SendFlags,
    immediate: U32,
    remote: O::Remote,
    state: PhantomData<S>,
}

impl<T: Transport, O: SendOperation, S> fmt::Debug for Request<'_, '_, T, O, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("wr_id", &self.wr_id)
            .field("flags", &self.flags)
            .finish_non_exhaustive()
    }
}

impl<'b, 'q, T: Transport, O: SendOperation> Request<'b, 'q, T, O, NeedsAddress> {
    /// Sets the receiver (`ibv_wr_set_ud_addr`).
    #[inline(always)]
    pub fn ud_addr<'a>(
        self,
        to: &'a AddressVector,
        qp_num: u32,
        qkey: u32,
    ) -> Addressed<'b, 'q, T, O, Datagram<'a>> {
        Addressed { request: self.of(), address: Datagram { vector: to, qp_num, qkey } }
    }
}

impl<'b, 'q, T: Transport, O: SendOperation> Request<'b, 'q, T, O, NeedsSrqn> {
    /// Sets the peer's shared receive queue (`ibv_wr_set_xrc_srqn`).
    #[inline(always)]
    pub fn xrc_srqn(self, srqn: u32) -> Addressed<'b, 'q, T, O, RemoteSrq> {
        Addressed { request: self.of(), address: RemoteSrq(srqn) }
    }
}

impl<'b, 'q> Request<'b, 'q, RawPacket, operation::Send, NeedsData> {
    /// Lets the device insert a VLAN tag behind the packet's source address. For devices with that
    /// capability, and not together with an inline header: write the tag into that one.
    #[inline(always)]
    pub fn insert_vlan(
        self,
        tag: VlanTag,
    ) -> Addressed<'b, 'q, RawPacket, operation::Send, Ethernet> {
        let address = Ethernet::new(self.flags).insert(tag);
        Addressed { request: self, address }
    }

    /// Copies the first bytes of the packet into the request; the data is the rest. For devices
    /// that need it: see [`SendQueue::require_inline_header`].
    #[inline(always)]
    pub fn inline_header<'a>(
        self,
        header: &'a [u8; L2_INLINE],
    ) -> Addressed<'b, 'q, RawPacket, operation::Send, InlineHeader<'a>> {
        let checksums = self.flags.contains(SendFlags::IP_CSUM);
        Addressed { request: self, address: InlineHeader { checksums, header } }
    }

    /// Copies the first bytes of the packet into the request, as many as they are, and sets the data to the
    /// rest. For devices that need more headers than [`inline_header`](Self::inline_header) takes: VLAN tags, or
    /// those of IP, TCP and UDP. A queue that was created with `max_inline_data(n)` takes `n` bytes, and one SGE
    /// behind them.
    pub fn inline_headers(self, headers: &[u8], rest: &[Sge]) {
        self.batch.add_headed(self.wr_id, self.flags, headers, rest);
    }
}

impl<'b, 'q, T: Transport, O: SendOperation, S> Request<'b, 'q, T, O, S> {
    /// Converts the request to the state in which it takes its data.
    #[inline(always)]
    fn of(self) -> Request<'b, 'q, T, O, NeedsData> {
        let Self { batch, wr_id, flags, immediate, remote, .. } = self;
        Request { batch, wr_id, flags, immediate, remote, state: PhantomData }
    }
}

/// A request with its operation and its receiver `A`. Its data follows.
#[must_use = "a request is part of the batch once its data is set"]
pub struct Addressed<'b, 'q, T: Transport, O: SendOperation, A: Segment> {
    request: Request<'b, 'q, T, O, NeedsData>,
    address: A,
}

impl<T: Transport, O: SendOperation, A: Segment> fmt::Debug for Addressed<'_, '_, T, O, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Addressed")
            .field("wr_id", &self.request.wr_id)
            .field("flags", &self.request.flags)
            .finish_non_exhaustive()
    }
}

/// The data setters, which finish a request; the same for requests with and without an address.
macro_rules! data_setters {
    (($($generics:tt)*) $type:ty, |$this:ident| $request:expr, $address:expr) => {
        impl<$($generics)*> $type {
            #[inline(always)]
            fn finish(self, data: impl Data) {
                let $this = self;
                let address = $address;
                let Request { batch, wr_id, flags, immediate, remote, .. } = $request;
                let sequence = batch.cursor.sequence;
                batch.add::<O, _, _>(Parts { wr_id, flags, immediate, address, remote }, data);
                batch.give_name(sequence);
            }

            /// Sets the data to one piece of local memory (`ibv_wr_set_sge`).
            #[inline(always)]
            pub fn sge(self, sge: Sge) {
                self.finish(OneSge::from(sge));
            }

            /// Sets the data to a list of pieces of local memory (`ibv_wr_set_sge_list`). With an
            /// empty list the message has no data.
            #[inline]
            pub fn sge_list(self, sges: &[Sge]) {
                self.finish(sges);
            }

            /// Copies the data into the request (`ibv_wr_set_inline_data`). Its memory needs no
            /// registration and can be reused when this returns.
            #[inline(always)]
            pub fn inline_data(self, bytes: &[u8])
            where
                O: Inline,
            {
                self.finish(InlineBytes(bytes));
            }

            /// Copies the data into the request from a list of slices
            /// (`ibv_wr_set_inline_data_list`).
            #[inline]
            pub fn inline_data_list(self, pieces: &[&[u8]])
            where
                O: Inline,
            {
                self.finish(InlineList(pieces));
            }

            /// Sets the data: bytes that are copied into the WQE from the addresses of SGEs. See
            /// [`InlineSges`].
            #[inline(always)]
            pub fn inline_data_at(self, pieces: InlineSges<'_>)
            where
                O: Inline,
            {
                match pieces.single() {
                    Some(piece) => self.finish(piece),
                    None => self.finish(pieces),
                }
            }
        }
    };
}

data_setters!(
    (T: Transport, O: SendOperation) Request<'_, '_, T, O, NeedsData>,
    |this| this, T::bare(this.flags)
);
data_setters!(
    (T: Transport, O: SendOperation, A: Segment) Addressed<'_, '_, T, O, A>,
    |this| this.request, this.address
);
