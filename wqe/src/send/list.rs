//! The run-time form of requests, and lists of them (`ibv_post_send`).

use crate::request::batch_error::ListError;
use crate::request::data::{Data as AnyData, InlineBytes, InlineList, InlineSges};
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
use crate::send::batch::{Batch, RequestFields};
use crate::send::queue::{Position, SendQueue};
use core::borrow::Borrow;

/// The operation of a request in the list form.
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
    /// The operation of the request.
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

    /// The error of a request without a receiver.
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

const NO_IMMEDIATE: [u8; 4] = [0; 4];

impl<T: ListTransport> Batch<'_, T> {
    /// Adds a request whose operation is chosen at run time. It is refused if the transport lacks
    /// the operation.
    ///
    /// Most operations are inlined into the caller, so one that is known there costs what the typed
    /// builder costs.
    #[inline(always)]
    pub fn push(&mut self, wr: &SendWr<'_>) {
        match wr.operation {
            Operation::Send => self.message::<operation::Send>(wr, NO_IMMEDIATE, ()),
            Operation::SendImm(imm) => self.message::<operation::SendImm>(wr, imm, ()),
            Operation::RdmaWrite(to) => self.message::<operation::RdmaWrite>(wr, NO_IMMEDIATE, to),
            Operation::RdmaWriteImm(to, imm) => {
                self.message::<operation::RdmaWriteImm>(wr, imm, to);
            }
            Operation::RdmaRead(from) => self.entries::<operation::RdmaRead>(wr, from),
            Operation::CompareSwap { remote, compare, swap } => {
                let what = Atomic { remote, swap_or_add: swap, compare };
                self.entries::<operation::CompareSwap>(wr, what);
            }
            Operation::FetchAdd { remote, add } => {
                let what = Atomic { remote, swap_or_add: add, compare: 0 };
                self.entries::<operation::FetchAdd>(wr, what);
            }
            _ => self.at = push_rare(self.queue, self.at, wr),
        }
    }

    /// [`Batch::push`] of the operations that are not inlined.
    fn push_rare(&mut self, wr: &SendWr<'_>) {
        match wr.operation {
            Operation::SendInvalidate(rkey) => {
                self.message::<operation::SendInvalidate>(wr, rkey.to_be_bytes(), ());
            }
            Operation::MaskedCompareSwap { remote, operands } => {
                self.entries::<operation::MaskedCompareSwap>(wr, MaskedAtomic { remote, operands });
            }
            Operation::MaskedFetchAdd { remote, add, boundary } => {
                let what = Atomic { remote, swap_or_add: add, compare: boundary };
                self.entries::<operation::MaskedFetchAdd>(wr, what);
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
                    self.add_bare::<operation::Nop>(wr.wr_id, wr.flags, NO_IMMEDIATE, (), ());
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
            // Those that are inlined.
            _ => self.refuse(PostError::Unsupported),
        }
    }

    /// Whether the transport has the operation; refuses the request if not.
    #[inline(always)]
    fn has<O: SendOperation>(&mut self) -> bool {
        let has = const { SendOps::of::<T>().contains(O::BIT) };
        if !has {
            self.refuse(PostError::Unsupported);
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

    /// Adds an operation whose data is SGEs or inline.
    #[inline(always)]
    fn message<O: Inline>(&mut self, wr: &SendWr<'_>, immediate: [u8; 4], remote: O::Remote) {
        match wr.data {
            Data::Sges([sge]) => self.add_with::<O>(wr, immediate, remote, *sge),
            Data::Sges(sges) => self.add_with::<O>(wr, immediate, remote, sges),
            Data::Inline([bytes]) => self.add_with::<O>(wr, immediate, remote, InlineBytes(bytes)),
            Data::Inline(pieces) => self.add_with::<O>(wr, immediate, remote, InlineList(pieces)),
            Data::InlineAt(pieces) => self.add_with::<O>(wr, immediate, remote, pieces),
            Data::Wqe(_) | Data::Segmented(_) => self.refuse(Self::wrong_data::<O>(wr, false)),
        }
    }

    /// Adds an operation whose data is SGEs only.
    #[inline(always)]
    fn entries<O: SendOperation>(&mut self, wr: &SendWr<'_>, remote: O::Remote) {
        match wr.data {
            Data::Sges([sge]) => self.add_with::<O>(wr, NO_IMMEDIATE, remote, *sge),
            Data::Sges(sges) => self.add_with::<O>(wr, NO_IMMEDIATE, remote, sges),
            Data::Inline(_) | Data::InlineAt(_) => self.refuse(Self::wrong_data::<O>(wr, true)),
            Data::Wqe(_) | Data::Segmented(_) => self.refuse(Self::wrong_data::<O>(wr, false)),
        }
    }

    #[inline(always)]
    fn add_with<O: SendOperation>(
        &mut self,
        wr: &SendWr<'_>,
        immediate: [u8; 4],
        remote: O::Remote,
        data: impl AnyData,
    ) {
        if !self.has::<O>() {
            return;
        }
        let Some(address) = T::address(wr) else { return self.refuse(T::ADDRESS_MISSING) };
        let fields = RequestFields { wr_id: wr.wr_id, flags: wr.flags, immediate };
        self.add::<O, _>(fields, address, remote, data);
    }

    /// Returns why a request is refused whose data is of the wrong kind.
    #[cold]
    fn wrong_data<O: SendOperation>(wr: &SendWr<'_>, is_inline: bool) -> PostError {
        if !const { SendOps::of::<T>().contains(O::BIT) } {
            return PostError::Unsupported;
        }
        match (T::address(wr), is_inline) {
            (None, _) => T::ADDRESS_MISSING,
            (Some(_), true) => PostError::InlineNotAllowed,
            (Some(_), false) => PostError::DataNotAllowed,
        }
    }
}

/// [`Batch::push_rare`] out of line, so that the caller keeps the batch in registers.
#[inline(never)]
fn push_rare<T: ListTransport>(
    queue: &mut SendQueue<T>,
    at: Position,
    wr: &SendWr<'_>,
) -> Position {
    let mut batch = Batch { queue, at };
    batch.push_rare(wr);
    batch.pause()
}

impl<T: ListTransport> SendQueue<T> {
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
        let mut batch = self.wr_start();
        for wr in requests {
            batch.push(wr.borrow());
            if batch.is_refused() {
                break;
            }
        }
        let count = batch.len();
        batch.complete_list()?;
        Ok(count)
    }
}
