//! Requests whose operation, or whose transport, is chosen at run time.

use crate::request::error::BatchError;
use crate::request::flags::SendFlags;
use crate::request::segment::Datagram;
use crate::request::sge::Sge;
use crate::request::transport::{Rc, Uc, Ud, XrcSend};
use crate::send::batch::{Batch, Wr};
use crate::send::cancel::RequestHandle;
use crate::send::list::{Data, ListTransport, Operation, SendWr};
use core::fmt;
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

/// The transports, with the declarations for each.
macro_rules! any_batch {
    ($d:tt $($transport:ident),+) => {
        /// A [`Batch`] of a queue pair of any transport.
        #[must_use = "a batch that is dropped posts nothing"]
        #[derive(Debug)]
        pub enum AnyBatch<'q> {
            $(
                #[doc = concat!("Of transport [`", stringify!($transport), "`].")]
                $transport(Batch<'q, $transport>),
            )+
        }

        $(
            impl<'q> From<Batch<'q, $transport>> for AnyBatch<'q> {
                #[inline(always)]
                fn from(batch: Batch<'q, $transport>) -> Self {
                    Self::$transport(batch)
                }
            }
        )+

        /// Evaluates `$body` with the batch inside `$any`.
        macro_rules! of_any {
            ($d any:expr, $d one:ident => $d body:expr) => {
                match $d any { $(Self::$transport($d one) => $d body,)+ }
            };
        }
    };
}

any_batch!($ Rc, Uc, Ud, XrcSend);

impl<'q> AnyBatch<'q> {
    /// Starts a request. Its operation follows.
    #[inline(always)]
    pub fn wr(&mut self, wr_id: u64, flags: SendFlags) -> AnyWr<'_, 'q> {
        AnyWr { batch: self, wr_id, flags }
    }

    /// See [`Batch::push`].
    #[inline(always)]
    pub fn push(&mut self, wr: &SendWr<'_>) {
        of_any!(self, batch => batch.push(wr));
    }

    /// See [`Batch::handle`].
    pub fn handle(&mut self) -> RequestHandle {
        of_any!(self, batch => batch.handle())
    }

    /// See [`Batch::len`].
    pub fn len(&self) -> usize {
        of_any!(self, batch => batch.len())
    }

    /// See [`Batch::is_empty`].
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// See [`Batch::complete`].
    #[inline(always)]
    pub fn complete(self) -> Result<(), BatchError> {
        of_any!(self, batch => batch.complete())
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
