//! The list form (`ibv_post_send`): operations chosen at run time.

use crate::request::data::{Inline as InlineBytes, InlineList, InlineSges};
use crate::request::error::{BatchError, ListError, PostError, UnsupportedOperation};
use crate::request::flags::SendFlags;
use crate::request::operation::{self, Inline, SendOperation, SendOps};
use crate::request::raw::RawWqe;
use crate::request::remote::RemoteAddress;
use crate::request::segment::{Atomic, Datagram, MaskedAtomic, MaskedOperands, RemoteSrq, Segment};
use crate::request::sge::Sge;
use crate::request::transport::{Rc, Transport, Uc, Ud, XrcSend};
use crate::request::window::Binding;
use crate::send::batch::Batch;
use crate::send::build::Parts;
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
}

/// The data of a request.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// A list of pieces of local memory.
    Sges(&'a [Sge]),
    /// Bytes that are copied into the request (`IBV_SEND_INLINE`), from a list of slices.
    Inline(&'a [&'a [u8]]),
    /// Bytes that are copied into the request, from the addresses of a list of pieces.
    InlineAt(InlineSges<'a>),
    /// The whole WQE, for [`Operation::Raw`].
    Wqe(RawWqe<'a>),
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
    fn address<'a>(wr: &SendWr<'a>) -> Result<Self::Address<'a>, PostError>;
}

/// One transport per line: its address segment, and where a request has it.
macro_rules! addresses {
    ($($transport:ident: $address:ty, |$wr:pat_param| $found:expr;)+) => {$(
        impl ListTransport for $transport {
            type Address<'a> = $address;

            #[inline(always)]
            fn address<'a>($wr: &SendWr<'a>) -> Result<$address, PostError> {
                $found
            }
        }
    )+};
}

addresses! {
    Rc: (), |_| Ok(());
    Uc: (), |_| Ok(());
    Ud: Datagram<'a>, |wr| wr.address.ok_or(PostError::AddressMissing);
    XrcSend: RemoteSrq, |wr| wr.xrc_srqn.map(RemoteSrq).ok_or(PostError::SrqnMissing);
}

impl<T: ListTransport> Batch<'_, T> {
    /// Adds a request of the list form: its operation is chosen at run time.
    #[inline(always)]
    pub fn push(&mut self, wr: &SendWr<'_>) {
        match wr.operation {
            Operation::Send => self.message::<operation::Send>(wr, [0; 4], ()),
            Operation::SendImm(imm) => self.message::<operation::SendImm>(wr, imm, ()),
            Operation::RdmaWrite(to) => self.message::<operation::RdmaWrite>(wr, [0; 4], to),
            Operation::RdmaWriteImm(to, imm) => {
                self.message::<operation::RdmaWriteImm>(wr, imm, to);
            }
            Operation::RdmaRead(from) => self.entries::<operation::RdmaRead>(wr, from),
            _ => self.push_rare(wr),
        }
    }

    #[inline(never)]
    fn push_rare(&mut self, wr: &SendWr<'_>) {
        match wr.operation {
            Operation::SendInvalidate(rkey) => {
                self.message::<operation::SendInvalidate>(wr, rkey.to_be_bytes(), ());
            }
            Operation::CompareSwap { remote, compare, swap } => {
                let what = Atomic { remote, swap_or_add: swap, compare };
                self.entries::<operation::CompareSwap>(wr, what);
            }
            Operation::FetchAdd { remote, add } => {
                let what = Atomic { remote, swap_or_add: add, compare: 0 };
                self.entries::<operation::FetchAdd>(wr, what);
            }
            Operation::MaskedCompareSwap { remote, operands } => {
                let what = MaskedAtomic { remote, operands };
                self.entries::<operation::MaskedCompareSwap>(wr, what);
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
            Operation::Unsupported(which) => self.refuse(PostError::UnsupportedByDevice(which)),
            // Handled by `push`.
            Operation::Send
            | Operation::SendImm(_)
            | Operation::RdmaWrite(_)
            | Operation::RdmaWriteImm(..)
            | Operation::RdmaRead(_) => self.push(wr),
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
        let Some(parts) = self.parts::<O>(wr, immediate, remote) else { return };
        match wr.data {
            Data::Sges(&[sge]) => self.add::<O, _, _>(parts, sge),
            Data::Sges(sges) => self.add::<O, _, _>(parts, sges),
            Data::Inline(&[bytes]) => self.add::<O, _, _>(parts, InlineBytes(bytes)),
            Data::Inline(pieces) => self.add::<O, _, _>(parts, InlineList(pieces)),
            Data::InlineAt(pieces) => match pieces.single() {
                Some(piece) => self.add::<O, _, _>(parts, piece),
                None => self.add::<O, _, _>(parts, pieces),
            },
            Data::Wqe(_) => self.refuse(PostError::DataNotAllowed),
        }
    }

    /// Adds an operation whose data is SGEs only.
    #[inline(always)]
    fn entries<O: SendOperation>(&mut self, wr: &SendWr<'_>, remote: O::Remote) {
        let Some(parts) = self.parts::<O>(wr, [0; 4], remote) else { return };
        match wr.data {
            Data::Sges(&[sge]) => self.add::<O, _, _>(parts, sge),
            Data::Sges(sges) => self.add::<O, _, _>(parts, sges),
            Data::Inline(_) | Data::InlineAt(_) => self.refuse(PostError::InlineNotAllowed),
            Data::Wqe(_) => self.refuse(PostError::DataNotAllowed),
        }
    }

    /// Returns the parts of a request. Refuses it if the transport lacks the operation.
    #[inline(always)]
    fn parts<'a, O: SendOperation>(
        &mut self,
        wr: &SendWr<'a>,
        immediate: [u8; 4],
        remote: O::Remote,
    ) -> Option<Parts<T::Address<'a>, O::Remote>> {
        if !self.has::<O>() {
            return None;
        }
        match T::address(wr) {
            Ok(address) => {
                let immediate = U32::from_bytes(immediate);
                Some(Parts { wr_id: wr.wr_id, flags: wr.flags, immediate, address, remote })
            }
            Err(error) => {
                self.refuse(error);
                None
            }
        }
    }
}

impl<T: ListTransport> SendQueue<T> {
    /// Posts a list of requests (`ibv_post_send`). Requests before the first bad one are posted,
    /// with one doorbell. The error has the index of the bad request and what is wrong with it.
    #[inline]
    pub fn post_send(&mut self, list: &[SendWr<'_>]) -> Result<(), ListError> {
        // A refusal in a batch that was leaked does not concern this list.
        self.abort();
        let mut batch = self.wr_start();
        for wr in list {
            batch.push(wr);
            if let Some(BatchError { index, error }) = batch.error() {
                batch.complete_good().map_err(ListError::from)?;
                return Err(ListError { index, error });
            }
        }
        batch.complete().map_err(ListError::from)
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
        self.abort();
        let mut batch = self.wr_start();
        for wr in requests {
            batch.push(wr.borrow());
            if let Some(BatchError { index, error }) = batch.error() {
                batch.complete_good().map_err(ListError::from)?;
                return Err(ListError { index, error });
            }
        }
        let count = batch.len();
        batch.complete().map_err(ListError::from)?;
        Ok(count)
    }
}
