//! The list form (`ibv_post_send`): operations chosen at run time.

use crate::request::batch_error::ListError;
use crate::request::data::{
    Data as AnyData, Inline as InlineBytes, InlineList, InlineSges, OneSge,
};
use crate::request::error::{PostError, UnsupportedOperation};
use crate::request::ethernet::{Ethernet, Segmented};
use crate::request::flags::SendFlags;
use crate::request::operation::{self, Inline, SendOperation, SendOps};
use crate::request::raw::RawWqe;
use crate::request::remote::RemoteAddress;
use crate::request::segment::{Atomic, Datagram, MaskedAtomic, MaskedOperands, RemoteSrq, Segment};
use crate::request::sge::Sge;
use crate::request::transport::{RawPacket, Rc, Transport, Uc, Ud, XrcSend};
use crate::request::window::Binding;
use crate::send::batch::Batch;
use crate::send::build::{Cursor, Parts};
use crate::send::queue::SendQueue;
use core::borrow::Borrow;
use mlx5_prm::U32;

/// What a request of the list form does.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub enum Operation {
    /// Send.
    #[default]
    Send,
    /// Send with immediate data.
    SendImm([u8; 4]),
    /// Send, and invalidate this key at the peer.
    SendInvalidate(u32),
    /// RDMA write.
    RdmaWrite(RemoteAddress),
    /// RDMA write with immediate data.
    RdmaWriteImm(RemoteAddress, [u8; 4]),
    /// RDMA read.
    RdmaRead(RemoteAddress),
    /// Atomic compare and swap.
    CompareSwap {
        /// The remote address.
        remote: RemoteAddress,
        /// The value to compare with.
        compare: u64,
        /// The value to swap in.
        swap: u64,
    },
    /// Atomic fetch and add.
    FetchAdd {
        /// The remote address.
        remote: RemoteAddress,
        /// The value to add.
        add: u64,
    },
    /// Atomic compare and swap of selected bits.
    MaskedCompareSwap {
        /// The remote address.
        remote: RemoteAddress,
        /// The values and masks.
        operands: MaskedOperands,
    },
    /// Atomic addition to several fields.
    MaskedFetchAdd {
        /// The remote address.
        remote: RemoteAddress,
        /// The value to add.
        add: u64,
        /// The highest bit of each field.
        boundary: u64,
    },
    /// Bind a memory window; without data.
    BindWindow(Binding),
    /// Invalidate a memory window by its key; without data.
    LocalInvalidate(u32),
    /// No operation; without data.
    Nop,
    /// The request is the WQE given as data.
    Raw,
    /// An operation that is refused on every transport.
    Unsupported(UnsupportedOperation),
    /// Send a packet that the device cuts into segments; its data is [`Data::Segmented`].
    Tso,
}

/// The data of a request.
#[derive(Clone, Copy, Debug)]
// The tag in a byte of its own: every request of a list is asked for it.
#[repr(u8)]
pub enum Data<'a> {
    /// A list of pieces of local memory.
    Sges(&'a [Sge]),
    /// Bytes that are copied into the request (`IBV_SEND_INLINE`), from a list of slices.
    Inline(&'a [&'a [u8]]),
    /// Bytes that are copied into the request, from the addresses of a list of pieces.
    InlineAt(InlineSges<'a>),
    /// The whole WQE, for [`Operation::Raw`].
    Wqe(RawWqe<'a>),
    /// The packet of [`Operation::Tso`].
    Segmented(&'a Segmented<'a>),
}

impl Default for Data<'_> {
    fn default() -> Self {
        Self::Sges(&[])
    }
}

/// A request of the list form (`struct ibv_send_wr`).
#[derive(Clone, Copy, Debug, Default)]
pub struct SendWr<'a> {
    /// Returned with the completion.
    pub wr_id: u64,
    /// Flags.
    pub flags: SendFlags,
    /// What the request does.
    pub operation: Operation,
    /// The data.
    pub data: Data<'a>,
    /// The receiver. Required on datagram queue pairs, ignored on others.
    pub address: Option<Datagram<'a>>,
    /// The peer's shared receive queue. Required on extended connections by operations that consume
    /// a receive, ignored otherwise.
    pub xrc_srqn: Option<u32>,
}

/// A transport whose requests can be posted in the list form.
pub trait ListTransport: Transport {
    /// The segment that names the receiver.
    #[doc(hidden)]
    type Address<'a>: Segment;

    /// Returns the receiver of a request.
    #[doc(hidden)]
    fn address<'a>(wr: &SendWr<'a>) -> Option<Self::Address<'a>>;

    /// What is wrong with a request without a receiver.
    #[doc(hidden)]
    const ADDRESS_MISSING: PostError;
}

/// One transport per line: its address segment, and where a request has it.
macro_rules! addresses {
    ($($transport:ident: $address:ty, |$wr:pat_param| $found:expr, or $missing:ident;)+) => {$(
        impl ListTransport for $transport {
            type Address<'a> = $address;
            const ADDRESS_MISSING: PostError = PostError::$missing;

            #[inline(always)]
            fn address<'a>($wr: &SendWr<'a>) -> Option<$address> {
                $found
            }
        }
    )+};
}

addresses! {
    Rc: (), |_| Some(()), or AddressMissing;
    Uc: (), |_| Some(()), or AddressMissing;
    Ud: Datagram<'a>, |wr| wr.address, or AddressMissing;
    XrcSend: RemoteSrq, |wr| wr.xrc_srqn.map(RemoteSrq), or SrqnMissing;
    RawPacket: Ethernet, |wr| Some(Ethernet::new(wr.flags)), or AddressMissing;
}

/// Adds the request that `wr` makes at `cursor`. Returns the position behind it.
#[inline(never)]
pub(crate) fn push_out_of_line<'a, T: ListTransport>(
    queue: &mut SendQueue<T>,
    cursor: Cursor,
    wr: impl FnOnce() -> SendWr<'a>,
) -> Cursor {
    let wr = wr();
    let mut batch = Batch::at(queue, cursor);
    batch.push_any(&wr);
    batch.into_parts().2
}

impl<T: ListTransport> Batch<'_, T> {
    /// Adds a request of the list form: its operation is chosen at run time.
    #[inline(always)]
    pub fn push(&mut self, wr: &SendWr<'_>) {
        if !self.push_common::<false>(wr) {
            self.push_with(|| *wr);
        }
    }

    /// Adds a request of the list form, if that takes no more than the fast path: one SGE or one piece
    /// of inline data, with room in the ring. Otherwise returns false and adds nothing: then
    /// [`Batch::push`] adds or refuses it. For callers that keep all else out of line.
    #[inline(always)]
    pub fn push_fast(&mut self, wr: &SendWr<'_>) -> bool {
        self.push_common::<true>(wr)
    }

    /// Adds a request of a common operation; with `FAST`, if the fast path can build it. Returns
    /// whether it was added or refused.
    #[inline(always)]
    fn push_common<const FAST: bool>(&mut self, wr: &SendWr<'_>) -> bool {
        match wr.operation {
            Operation::Send => self.message::<operation::Send, FAST>(wr, [0; 4], ()),
            Operation::SendImm(imm) => self.message::<operation::SendImm, FAST>(wr, imm, ()),
            Operation::RdmaWrite(to) => self.message::<operation::RdmaWrite, FAST>(wr, [0; 4], to),
            Operation::RdmaWriteImm(to, imm) => {
                self.message::<operation::RdmaWriteImm, FAST>(wr, imm, to)
            }
            Operation::RdmaRead(from) => self.entries::<operation::RdmaRead, FAST>(wr, from),
            Operation::CompareSwap { remote, compare, swap } if FAST => {
                let what = Atomic { remote, swap_or_add: swap, compare };
                self.entries::<operation::CompareSwap, FAST>(wr, what)
            }
            Operation::FetchAdd { remote, add } if FAST => {
                let what = Atomic { remote, swap_or_add: add, compare: 0 };
                self.entries::<operation::FetchAdd, FAST>(wr, what)
            }
            _ => false,
        }
    }

    /// Adds the request of the list form that `wr` makes. All of that is out of line, so that the
    /// caller keeps the batch in registers: for operations that are rare.
    #[inline(always)]
    pub fn push_with<'a>(&mut self, wr: impl FnOnce() -> SendWr<'a>) {
        self.push_slow_request(|queue, cursor| push_out_of_line(queue, cursor, wr));
    }

    /// [`Batch::push`] of any operation, in one place.
    #[inline(always)]
    fn push_any(&mut self, wr: &SendWr<'_>) {
        if self.push_common::<false>(wr) {
            return;
        }
        match wr.operation {
            Operation::SendInvalidate(rkey) => {
                self.message::<operation::SendInvalidate, false>(wr, rkey.to_be_bytes(), ());
            }
            Operation::CompareSwap { remote, compare, swap } => {
                let what = Atomic { remote, swap_or_add: swap, compare };
                self.entries::<operation::CompareSwap, false>(wr, what);
            }
            Operation::FetchAdd { remote, add } => {
                let what = Atomic { remote, swap_or_add: add, compare: 0 };
                self.entries::<operation::FetchAdd, false>(wr, what);
            }
            Operation::MaskedCompareSwap { remote, operands } => {
                let what = MaskedAtomic { remote, operands };
                self.entries::<operation::MaskedCompareSwap, false>(wr, what);
            }
            Operation::MaskedFetchAdd { remote, add, boundary } => {
                let what = Atomic { remote, swap_or_add: add, compare: boundary };
                self.entries::<operation::MaskedFetchAdd, false>(wr, what);
            }
            Operation::BindWindow(binding) => {
                if self.is_bare::<operation::BindWindow>(wr) {
                    self.add_binding(wr.wr_id, wr.flags, binding);
                }
            }
            Operation::LocalInvalidate(rkey) => {
                if self.is_bare::<operation::LocalInvalidate>(wr) {
                    self.add_invalidation(wr.wr_id, wr.flags, rkey);
                }
            }
            Operation::Nop => {
                if self.is_bare::<operation::Nop>(wr) {
                    self.add_bare::<operation::Nop>(wr.wr_id, wr.flags, 0, (), ());
                }
            }
            Operation::Raw => match wr.data {
                Data::Wqe(wqe) if self.has::<operation::Raw>() => {
                    self.add_raw(wr.wr_id, wr.flags, wqe);
                }
                Data::Wqe(_) => {}
                _ => self.refuse(PostError::RawWqeRequired),
            },
            Operation::Tso => match wr.data {
                Data::Segmented(packet) if self.has::<operation::Tso>() => {
                    self.add_segmented(wr.wr_id, wr.flags, *packet);
                }
                Data::Segmented(_) => {}
                _ => self.refuse(PostError::DataNotAllowed),
            },
            Operation::Unsupported(which) => self.refuse(PostError::UnsupportedByDevice(which)),
            // Added already.
            Operation::Send
            | Operation::SendImm(_)
            | Operation::RdmaWrite(_)
            | Operation::RdmaWriteImm(..)
            | Operation::RdmaRead(_) => {}
        }
    }

    /// Whether the transport has the operation; refuses the request if not.
    #[inline(always)]
    fn has<O: SendOperation>(&mut self) -> bool {
        let has = const { SendOps::of::<T>().contains(O::BIT) };
        if !has {
            self.refuse_by(SendQueue::refuse_unsupported);
        }
        has
    }

    /// [`Batch::has`] for an operation without data; refuses the request if it has data.
    fn is_bare<O: SendOperation>(&mut self, wr: &SendWr<'_>) -> bool {
        let has = self.has::<O>();
        let bare = matches!(wr.data, Data::Sges([]));
        if has && !bare {
            self.refuse(PostError::DataNotAllowed);
        }
        has && bare
    }

    /// Adds an operation whose data is SGEs or inline. See [`Batch::push_common`].
    #[inline(always)]
    fn message<O: Inline, const FAST: bool>(
        &mut self,
        wr: &SendWr<'_>,
        immediate: [u8; 4],
        remote: O::Remote,
    ) -> bool {
        let Some(parts) = self.parts::<O, FAST>(wr, immediate, remote) else { return !FAST };
        match wr.data {
            Data::Sges(&[sge]) => self.add_if::<O, _, _, FAST>(parts, OneSge::from(sge)),
            Data::Inline(&[bytes]) => self.add_if::<O, _, _, FAST>(parts, InlineBytes(bytes)),
            Data::InlineAt(pieces) => match pieces.single() {
                Some(piece) => self.add_if::<O, _, _, FAST>(parts, piece),
                None if FAST => false,
                None => self.add_if::<O, _, _, false>(parts, pieces),
            },
            _ if FAST => false,
            Data::Sges(sges) => self.add_if::<O, _, _, false>(parts, sges),
            Data::Inline(pieces) => self.add_if::<O, _, _, false>(parts, InlineList(pieces)),
            Data::Wqe(_) | Data::Segmented(_) => {
                self.refuse(PostError::DataNotAllowed);
                true
            }
        }
    }

    /// Adds an operation whose data is SGEs only. See [`Batch::push_common`].
    #[inline(always)]
    fn entries<O: SendOperation, const FAST: bool>(
        &mut self,
        wr: &SendWr<'_>,
        remote: O::Remote,
    ) -> bool {
        let Some(parts) = self.parts::<O, FAST>(wr, [0; 4], remote) else { return !FAST };
        match wr.data {
            Data::Sges(&[sge]) => self.add_if::<O, _, _, FAST>(parts, OneSge::from(sge)),
            _ if FAST => false,
            Data::Sges(sges) => self.add_if::<O, _, _, false>(parts, sges),
            Data::Inline(_) | Data::InlineAt(_) => {
                self.refuse(PostError::InlineNotAllowed);
                true
            }
            Data::Wqe(_) | Data::Segmented(_) => {
                self.refuse(PostError::DataNotAllowed);
                true
            }
        }
    }

    #[inline(always)]
    fn add_if<O: SendOperation, A: Segment, D: AnyData, const FAST: bool>(
        &mut self,
        parts: Parts<A, O::Remote>,
        data: D,
    ) -> bool {
        if FAST {
            return self.add_fast::<O, A, D>(parts, data);
        }
        self.add::<O, A, D>(parts, data);
        true
    }

    /// Returns the parts of a request. Refuses it if the transport lacks the operation.
    #[inline(always)]
    fn parts<'a, O: SendOperation, const FAST: bool>(
        &mut self,
        wr: &SendWr<'a>,
        immediate: [u8; 4],
        remote: O::Remote,
    ) -> Option<Parts<T::Address<'a>, O::Remote>> {
        if FAST && !const { SendOps::of::<T>().contains(O::BIT) } || !FAST && !self.has::<O>() {
            return None;
        }
        match T::address(wr) {
            Some(address) => {
                let immediate = U32::from_bytes(immediate);
                Some(Parts { wr_id: wr.wr_id, flags: wr.flags, immediate, address, remote })
            }
            None if FAST => None,
            None => {
                self.refuse_by(SendQueue::refuse_without_address);
                None
            }
        }
    }
}

impl<T: Transport> SendQueue<T> {
    /// Posts the requests that `add` adds to a batch, until it returns false or a request is
    /// refused. Requests before the first refused one are posted, with one doorbell. The error has
    /// the index of the refused request and what is wrong with it. If `add` panics, nothing is
    /// posted.
    #[inline(always)]
    pub fn post_while(
        &mut self,
        mut add: impl FnMut(&mut Batch<'_, T>) -> bool,
    ) -> Result<(), ListError> {
        if self.error.is_some() {
            // A refusal in a batch that was leaked does not concern this list.
            self.abort_dropped();
        }
        let mut batch = self.wr_start();
        loop {
            let more = add(&mut batch);
            if batch.error().is_some() {
                let (queue, _, cursor) = batch.into_parts();
                return queue.complete_before_refused(cursor);
            }
            if !more {
                break;
            }
        }
        batch.complete().map_err(ListError::from)
    }

    /// Posts the requests of a batch before its first refused one, behind which is `cursor`. Returns
    /// why that one was refused.
    #[cold]
    #[inline(never)]
    fn complete_before_refused(&mut self, cursor: Cursor) -> Result<(), ListError> {
        let refused = self.error().map(ListError::from);
        let sequence = cursor.sequence.wrapping_sub(1);
        self.complete_good(Cursor { sequence, ..cursor }).map_err(ListError::from)?;
        refused.map_or(Ok(()), Err)
    }
}

impl<T: ListTransport> SendQueue<T> {
    /// Refuses the request at `cursor`, whose operation the transport lacks.
    #[cold]
    #[inline(never)]
    fn refuse_unsupported(&mut self, cursor: Cursor) -> Cursor {
        self.refuse(cursor, PostError::Unsupported)
    }

    /// Refuses the request at `cursor`, which has no receiver.
    #[cold]
    #[inline(never)]
    fn refuse_without_address(&mut self, cursor: Cursor) -> Cursor {
        self.refuse(cursor, T::ADDRESS_MISSING)
    }

    /// Posts a list of requests (`ibv_post_send`). Requests before the first bad one are posted,
    /// with one doorbell. The error has the index of the bad request and what is wrong with it.
    #[inline]
    pub fn post_send(&mut self, list: &[SendWr<'_>]) -> Result<(), ListError> {
        self.post_send_iter(list).map(|_| ())
    }

    /// Posts the requests that `requests` yields and returns their number. Requests before the
    /// first bad one are posted, with one doorbell; nothing is taken from the iterator after it.
    /// The error has the index of the bad request and what is wrong with it. If the iterator
    /// panics, nothing is posted.
    #[inline]
    pub fn post_send_iter<'a, W: Borrow<SendWr<'a>>>(
        &mut self,
        requests: impl IntoIterator<Item = W>,
    ) -> Result<usize, ListError> {
        let mut requests = requests.into_iter();
        let mut count = 0;
        self.post_while(|batch| match requests.next() {
            Some(wr) => {
                batch.push(wr.borrow());
                count += 1;
                true
            }
            None => false,
        })?;
        Ok(count)
    }
}
