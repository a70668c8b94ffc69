//! The typed builder (`ibv_wr_*`): requests that are finished by their data setter.

use crate::request::data::{Data, InlineBytes, InlineList, InlineSges};
use crate::request::ethernet::{
    Ethernet, HeadedData, InlineHeader, InlinePackets, Segmented, SegmentedData, SeveralPackets,
    Tagged, VlanTag,
};
use crate::request::flags::SendFlags;
use crate::request::operation::{self, Inline, SendOperation, Supports};
use crate::request::raw::RawWqe;
use crate::request::remote::RemoteAddress;
use crate::request::segment::{Atomic, Datagram, MaskedAtomic, MaskedOperands, RemoteSrq, Segment};
use crate::request::sge::Sge;
use crate::request::transport::{NeedsAddress, NeedsData, NeedsSrqn, RawPacket, Transport};
use crate::request::window::{Binding, UmrHead};
use crate::send::batch::{Batch, RequestFields};
use crate::send::journal::Change;
use core::cell::Cell;
use core::fmt;
use core::marker::PhantomData;
use mlx5_prm::ethernet::L2_INLINE;
use mlx5_prm::wqe::AddressVector;

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
                #[inline]
                pub fn $name(
                    self,
                    $($arg: $ty),*
                ) -> Request<'b, 'q, T, operation::$operation, T::Bare, T::Start>
                where
                    T: Supports<operation::$operation>,
                {
                    let Self { batch, wr_id, flags } = self;
                    let fields = RequestFields { wr_id, flags, immediate: $immediate };
                    let address = T::bare(flags);
                    Request { batch, fields, address, remote: $remote, state: PhantomData }
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
        let sequence = self.batch.at.sequence;
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
        self.batch.add_bare::<operation::Nop>(self.wr_id, self.flags, [0; 4], (), ());
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

    /// Sends several packets by one request (enhanced multi-packet write): one SGE for each, at
    /// most as many as a request of the queue has (`max_send_sge`). [`SendFlags::IP_CSUM`] is for
    /// all of them. One completion, of opcode send. For devices with that capability, and not for
    /// those that need headers in the request.
    #[inline]
    pub fn send_packets(self, packets: &[Sge])
    where
        T: Supports<operation::MultiPacket>,
    {
        self.batch.add_packets(self.wr_id, self.flags, SeveralPackets(packets));
    }

    /// The same, of a list in cells.
    #[doc(hidden)]
    #[inline]
    pub fn send_packets_in(self, packets: &[Cell<Sge>])
    where
        T: Supports<operation::MultiPacket>,
    {
        self.batch.add_packets(self.wr_id, self.flags, SeveralPackets(packets));
    }

    /// As [`send_packets`](Self::send_packets), with the packets' bytes in the request: their
    /// memory needs no registration and can be reused when this returns, and the device reads
    /// nothing else. Each packet takes its length and four bytes, rounded up to 16; the sum, less
    /// four, is the inline data of the request, of which a queue has so much as it was created with
    /// (`max_inline_data`). For short packets.
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
        self.batch.add_packets(self.wr_id, self.flags, InlinePackets(packets));
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

impl<'q, T: Transport> Batch<'q, T> {
    /// Starts a request. Its operation follows.
    #[inline]
    pub fn wr(&mut self, wr_id: u64, flags: SendFlags) -> Wr<'_, 'q, T> {
        Wr { batch: self, wr_id, flags }
    }
}

/// Requests without address. Their data, if any, belongs to the operation.
impl<T: Transport> Batch<'_, T> {
    pub(crate) fn add_bare<O: SendOperation>(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        immediate: [u8; 4],
        remote: O::Remote,
        data: impl Data,
    ) {
        self.add::<O, ()>(RequestFields { wr_id, flags, immediate }, (), remote, data);
    }

    pub(crate) fn add_binding(&mut self, wr_id: u64, flags: SendFlags, binding: Binding) {
        if let Err(error) = binding.check() {
            return self.refuse(error);
        }
        let (window, translation) = (binding.window().to_be_bytes(), binding.translation());
        let head = binding.head(self.queue.qp_num());
        self.add_bare::<operation::BindWindow>(wr_id, flags, window, head, translation);
    }

    pub(crate) fn add_invalidation(&mut self, wr_id: u64, flags: SendFlags, rkey: u32) {
        let (rkey, head) = (rkey.to_be_bytes(), UmrHead::free(0, true));
        self.add_bare::<operation::LocalInvalidate>(wr_id, flags, rkey, head, ());
    }

    pub(crate) fn add_segmented(&mut self, wr_id: u64, flags: SendFlags, packet: Segmented<'_>) {
        let checksums = flags.contains(SendFlags::IP_CSUM);
        let data = SegmentedData { packet, checksums };
        self.add_bare::<operation::Tso>(wr_id, flags, [0; 4], (), data);
    }

    fn add_headed(&mut self, wr_id: u64, flags: SendFlags, headers: &[u8], rest: &[Sge]) {
        let checksums = flags.contains(SendFlags::IP_CSUM);
        let data = HeadedData { checksums, headers, rest };
        self.add_bare::<operation::Send>(wr_id, flags, [0; 4], (), data);
    }

    #[inline]
    fn add_packets(&mut self, wr_id: u64, flags: SendFlags, packets: impl Data) {
        let (fields, segment) =
            (RequestFields { wr_id, flags, immediate: [0; 4] }, Ethernet::new(flags));
        self.add::<operation::MultiPacket, Ethernet>(fields, segment, (), packets);
    }
}

/// A request with its operation, and what lies between control segment and operation. Its address
/// or its data follows.
#[must_use = "a request is part of the batch once its data is set"]
pub struct Request<'b, 'q, T: Transport, O: SendOperation, A, S> {
    batch: &'b mut Batch<'q, T>,
    fields: RequestFields,
    address: A,
    remote: O::Remote,
    state: PhantomData<S>,
}

impl<T: Transport, O: SendOperation, A, S> fmt::Debug for Request<'_, '_, T, O, A, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("wr_id", &self.fields.wr_id)
            .field("flags", &self.fields.flags)
            .finish_non_exhaustive()
    }
}

impl<'b, 'q, T: Transport, O: SendOperation, A, S> Request<'b, 'q, T, O, A, S> {
    /// Sets the address. The data follows.
    #[inline(always)]
    fn to<B>(self, address: B) -> Request<'b, 'q, T, O, B, NeedsData> {
        let Self { batch, fields, remote, .. } = self;
        Request { batch, fields, address, remote, state: PhantomData }
    }
}

impl<'b, 'q, T: Transport, O: SendOperation, A> Request<'b, 'q, T, O, A, NeedsAddress> {
    /// Sets the receiver (`ibv_wr_set_ud_addr`).
    #[inline(always)]
    pub fn ud_addr<'a>(
        self,
        to: &'a AddressVector,
        qp_num: u32,
        qkey: u32,
    ) -> Request<'b, 'q, T, O, Datagram<'a>, NeedsData> {
        self.to(Datagram { vector: to, qp_num, qkey })
    }
}

impl<'b, 'q, T: Transport, O: SendOperation, A> Request<'b, 'q, T, O, A, NeedsSrqn> {
    /// Sets the peer's shared receive queue (`ibv_wr_set_xrc_srqn`).
    #[inline(always)]
    pub fn xrc_srqn(self, srqn: u32) -> Request<'b, 'q, T, O, RemoteSrq, NeedsData> {
        self.to(RemoteSrq(srqn))
    }
}

impl<'b, 'q> Request<'b, 'q, RawPacket, operation::Send, Ethernet, NeedsData> {
    /// Lets the device insert a VLAN tag after the packet's source address. For devices with that
    /// capability, and not together with an inline header: write the tag into that one.
    #[inline]
    pub fn insert_vlan(
        self,
        tag: VlanTag,
    ) -> Request<'b, 'q, RawPacket, operation::Send, Tagged, NeedsData> {
        let segment = self.address;
        self.to(Tagged { segment, tag })
    }

    /// Copies the first bytes of the packet into the request; the data is the rest. For devices
    /// that need it: see
    /// [`SendQueue::require_inline_header`](crate::SendQueue::require_inline_header).
    #[inline]
    pub fn inline_header<'a>(
        self,
        header: &'a [u8; L2_INLINE],
    ) -> Request<'b, 'q, RawPacket, operation::Send, InlineHeader<'a>, NeedsData> {
        let checksums = self.fields.flags.contains(SendFlags::IP_CSUM);
        self.to(InlineHeader { checksums, header })
    }

    /// Copies the first bytes of the packet into the request, as many as they are, and sets the
    /// data to the rest. For devices that need more headers than
    /// [`inline_header`](Self::inline_header) takes: VLAN tags, or those of IP, TCP and UDP. A
    /// queue that was created with `max_inline_data(n)` takes `n` bytes, and one SGE after them.
    pub fn inline_headers(self, headers: &[u8], rest: &[Sge]) {
        self.batch.add_headed(self.fields.wr_id, self.fields.flags, headers, rest);
    }
}

/// The data setters, which finish a request.
impl<T: Transport, O: SendOperation, A: Segment> Request<'_, '_, T, O, A, NeedsData> {
    #[inline(always)]
    fn finish(self, data: impl Data) {
        self.batch.add::<O, A>(self.fields, self.address, self.remote, data);
    }

    /// Sets the data to one piece of local memory (`ibv_wr_set_sge`).
    #[inline(always)]
    pub fn sge(self, sge: Sge) {
        self.finish(sge);
    }

    /// Sets the data to a list of pieces of local memory (`ibv_wr_set_sge_list`). With an empty
    /// list the message has no data.
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

    /// Copies the data into the request from a list of slices (`ibv_wr_set_inline_data_list`).
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
        self.finish(pieces);
    }
}
