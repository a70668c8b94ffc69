//! Requests whose operation, or whose transport, is chosen at run time.

use crate::request::batch_error::BatchError;
use crate::request::flags::SendFlags;
use crate::request::segment::Datagram;
use crate::request::sge::Sge;
use crate::request::transport::{RawPacket, Rc, Uc, Ud, Which, XrcSend};
use crate::send::batch::{Batch, Wr};
use crate::send::build::opaque;
use crate::send::cancel::RequestHandle;
use crate::send::list::{Data, ListTransport, Operation, SendWr};
use crate::send::queue::SendQueue;
use core::fmt;
use core::ptr::NonNull;
use mlx5_prm::wqe::AddressVector;

mod sealed {
    /// A batch to which a request of the list form can be added.
    pub trait Takes {
        fn take(&mut self, wr: &super::SendWr<'_>);
    }
}

use sealed::Takes;

impl<T: ListTransport> Takes for Batch<'_, T> {
    #[inline(always)]
    fn take(&mut self, wr: &SendWr<'_>) {
        self.push(wr);
    }
}

impl Takes for AnyBatch<'_> {
    #[inline(always)]
    fn take(&mut self, wr: &SendWr<'_>) {
        self.push(wr);
    }
}

impl<'b, 'q, T: ListTransport> Wr<'b, 'q, T> {
    /// An operation that is chosen at run time. The request is refused if the transport lacks it.
    #[inline(always)]
    pub fn operation(self, operation: Operation) -> ChosenRequest<'b, 'static, Batch<'q, T>> {
        let Self { batch, wr_id, flags } = self;
        ChosenRequest { batch, wr: SendWr { wr_id, flags, operation, ..SendWr::default() } }
    }
}

/// A request whose operation was chosen at run time. Its receiver, if the transport requires one,
/// and its data follow.
///
/// It is checked as a request of the list form is: what the typed builder does not compile is
/// refused here.
#[must_use = "a request is part of the batch once its data is set"]
pub struct ChosenRequest<'b, 'a, B> {
    batch: &'b mut B,
    wr: SendWr<'a>,
}

impl<B> fmt::Debug for ChosenRequest<'_, '_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.wr, f)
    }
}

impl<'b, 'a, B: Takes> ChosenRequest<'b, 'a, B> {
    /// Sets the receiver (`ibv_wr_set_ud_addr`). Required on datagram queue pairs, ignored on
    /// others.
    #[inline(always)]
    pub fn ud_addr(
        self,
        to: &'a AddressVector,
        qp_num: u32,
        qkey: u32,
    ) -> ChosenRequest<'b, 'a, B> {
        let address = Some(Datagram { vector: to, qp_num, qkey });
        Self { wr: SendWr { address, ..self.wr }, ..self }
    }

    /// Sets the peer's shared receive queue (`ibv_wr_set_xrc_srqn`). Required on extended
    /// connections, ignored on others.
    #[inline(always)]
    pub fn xrc_srqn(self, srqn: u32) -> Self {
        Self { wr: SendWr { xrc_srqn: Some(srqn), ..self.wr }, ..self }
    }

    /// Sets the data to one piece of local memory (`ibv_wr_set_sge`).
    #[inline(always)]
    pub fn sge(self, sge: Sge) {
        self.data(Data::Sges(&[sge]));
    }

    /// Sets the data to a list of pieces of local memory (`ibv_wr_set_sge_list`). With an empty
    /// list the message has no data.
    #[inline]
    pub fn sge_list(self, sges: &[Sge]) {
        self.data(Data::Sges(sges));
    }

    /// Copies the data into the request (`ibv_wr_set_inline_data`). Refused for operations that
    /// take no inline data.
    #[inline(always)]
    pub fn inline_data(self, bytes: &[u8]) {
        self.data(Data::Inline(&[bytes]));
    }

    /// Copies the data into the request from a list of slices (`ibv_wr_set_inline_data_list`).
    #[inline]
    pub fn inline_data_list(self, pieces: &[&[u8]]) {
        self.data(Data::Inline(pieces));
    }

    /// Finishes a request of an operation without data, or a message of no bytes.
    #[inline]
    pub fn no_data(self) {
        self.data(Data::Sges(&[]));
    }

    /// Sets data of any form, also the WQE of [`Operation::Raw`].
    #[inline(always)]
    pub fn data(self, data: Data<'_>) {
        let Self { batch, wr } = self;
        batch.take(&SendWr { data, ..wr });
    }
}

/// A [`Batch`] of a queue pair of any transport.
///
/// Adding requests is all that depends on the transport, which the queue knows.
#[must_use = "a batch that is dropped posts nothing"]
pub struct AnyBatch<'q>(Batch<'q, Rc>);

impl fmt::Debug for AnyBatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt_as(f, "AnyBatch")
    }
}

impl<'q, T: ListTransport> From<Batch<'q, T>> for AnyBatch<'q> {
    #[inline(always)]
    fn from(batch: Batch<'q, T>) -> Self {
        // SAFETY: requests are added by `push` alone.
        Self(unsafe { batch.of_transport() })
    }
}

impl<T: ListTransport> SendQueue<T> {
    /// As [`SendQueue::wr_start`], for requests that are built where the transport is not known.
    #[inline(always)]
    pub fn wr_start_any(&mut self) -> AnyBatch<'_> {
        // SAFETY: requests are added by `AnyBatch::push` alone.
        let queue = unsafe { self.of_transport::<Rc>() };
        // SAFETY: the address is the same. The compiler cannot derive it from that of the value which
        // the queue is part of, so it does not keep both in registers.
        let queue = unsafe { opaque(NonNull::from(queue).cast()).cast().as_mut() };
        AnyBatch(Batch::new(queue))
    }
}

/// Adds a request to a batch, whose type says another transport than its queue has.
///
/// # Safety
/// The queue is of transport `T`.
#[inline(always)]
unsafe fn push_to<T: ListTransport>(batch: &mut Batch<'_, Rc>, wr: &SendWr<'_>) {
    // SAFETY: by the caller's contract.
    let mut own = unsafe { batch.lend::<T>() };
    own.push(wr);
    let to = own.come_to();
    batch.take_back(to);
}

impl<'q> AnyBatch<'q> {
    /// Starts a request. Its operation follows.
    #[inline(always)]
    pub fn wr(&mut self, wr_id: u64, flags: SendFlags) -> AnyWr<'_, 'q> {
        AnyWr { batch: self, wr_id, flags }
    }

    /// See [`Batch::push`].
    ///
    /// A reliable connection takes one branch, another transport two or three.
    #[inline(always)]
    pub fn push(&mut self, wr: &SendWr<'_>) {
        let Self(batch) = self;
        if batch.which() == Which::Rc {
            return batch.push(wr);
        }
        // SAFETY: the queue is of this transport.
        unsafe {
            match batch.which_again() {
                Which::Uc => push_to::<Uc>(batch, wr),
                Which::Ud => push_to::<Ud>(batch, wr),
                Which::RawPacket => push_to::<RawPacket>(batch, wr),
                Which::Rc | Which::XrcSend => push_to::<XrcSend>(batch, wr),
            }
        }
    }

    /// See [`Batch::handle`].
    pub fn handle(&mut self) -> RequestHandle {
        self.0.handle()
    }

    /// See [`Batch::len`].
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// See [`Batch::is_empty`].
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// See [`Batch::complete`].
    #[inline(always)]
    pub fn complete(self) -> Result<(), BatchError> {
        self.0.complete()
    }

    /// See [`Batch::abort`].
    pub fn abort(self) {
        drop(self);
    }
}

/// A request of an [`AnyBatch`], with identifier and flags. Its operation follows.
#[must_use = "a request is part of the batch once its data is set"]
pub struct AnyWr<'b, 'q> {
    batch: &'b mut AnyBatch<'q>,
    wr_id: u64,
    flags: SendFlags,
}

impl fmt::Debug for AnyWr<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyWr")
            .field("wr_id", &self.wr_id)
            .field("flags", &self.flags)
            .finish_non_exhaustive()
    }
}

impl<'b, 'q> AnyWr<'b, 'q> {
    /// The operation. The request is refused if the transport of the queue pair lacks it.
    #[inline(always)]
    pub fn operation(self, operation: Operation) -> ChosenRequest<'b, 'static, AnyBatch<'q>> {
        let Self { batch, wr_id, flags } = self;
        ChosenRequest { batch, wr: SendWr { wr_id, flags, operation, ..SendWr::default() } }
    }
}
