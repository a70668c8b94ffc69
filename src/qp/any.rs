//! Queue pairs of any transport, for mixed collections.

use super::cancel::{CancelError, Drained};
use super::{ControlHalf, QpAttributes, QpInfo, QueuePair, QueuePairCaps, ReceiveHalf, SendHalf};
use super::{NotDone, QuiesceError};
use crate::context::Context;
use crate::cq::CompletionQueue;
use crate::error::{DestroyError, Error};
use crate::link::QpId;
use crate::pools::DoorbellMode;
use mlx5_cq::WorkCompletion;
use mlx5_wqe::transport::{RawPacket, Rc, Uc, Ud, XrcSend};
use mlx5_wqe::{
    AnyBatch, BatchError, Cancelled, ListError, Mode, PendingRequest, PostError, QueueState,
    ReceiveWr, RequestHandle, SendWr, Sge,
};
use std::borrow::Borrow;
use std::time::Duration;

/// The transports, with the declarations for each.
macro_rules! any {
    ($d:tt $($transport:ident),+) => {
        /// A queue pair of any transport. Requests are checked against the transport when they are
        /// posted.
        ///
        /// ```no_run
        /// use mlx5::{AnyQueuePair, CompletionQueue, Error, ProtectionDomain, SendFlags, SendWr};
        /// use mlx5::{Data, Operation, transport::{Rc, Uc}};
        ///
        /// # fn f(pd: &ProtectionDomain, cq: &CompletionQueue) -> Result<(), Error> {
        /// let mut queues: Vec<AnyQueuePair> = vec![
        ///     pd.create_qp::<Rc>(cq, cq).max_inline_data(16).build()?.into(),
        ///     pd.create_qp::<Uc>(cq, cq).max_inline_data(16).build()?.into(),
        /// ];
        /// for qp in &mut queues {
        ///     let wr = SendWr {
        ///         wr_id: 1,
        ///         flags: SendFlags::SIGNALED,
        ///         operation: Operation::Send,
        ///         data: Data::Inline(&[b"to all"]),
        ///         ..SendWr::default()
        ///     };
        ///     if let Err(refused) = qp.post_send(&[wr]) {
        ///         println!("queue pair {:#x}: {refused}", qp.qp_num());
        ///     }
        /// }
        /// for qp in queues {
        ///     qp.destroy()?;
        /// }
        /// # Ok(())
        /// # }
        /// ```
        #[derive(Debug)]
        pub enum AnyQueuePair {
            $(
                #[doc = concat!("Of transport [`", stringify!($transport), "`].")]
                $transport(QueuePair<$transport>),
            )+
        }

        /// The half of a queue pair of any transport that posts send requests. See
        /// [`AnyQueuePair::split`].
        #[derive(Debug)]
        pub enum AnySendHalf {
            $(
                #[doc = concat!("Of transport [`", stringify!($transport), "`].")]
                $transport(SendHalf<$transport>),
            )+
        }

        $(
            impl From<QueuePair<$transport>> for AnyQueuePair {
                fn from(qp: QueuePair<$transport>) -> Self {
                    Self::$transport(qp)
                }
            }

            impl From<SendHalf<$transport>> for AnySendHalf {
                fn from(half: SendHalf<$transport>) -> Self {
                    Self::$transport(half)
                }
            }
        )+

        /// Evaluates `$body` with the queue pair or half inside `$any`.
        macro_rules! of_any {
            ($d any:expr, $d one:ident => $d body:expr) => {
                match $d any { $(Self::$transport($d one) => $d body,)+ }
            };
        }

        impl AnyQueuePair {
            /// Joins halves that were split.
            ///
            /// # Panics
            /// If they are not all the halves of one queue pair.
            pub fn join(
                send: AnySendHalf,
                receive: Option<ReceiveHalf>,
                control: ControlHalf,
            ) -> Self {
                match send {
                    $(AnySendHalf::$transport(send) => {
                        Self::$transport(QueuePair::join(send, receive, control))
                    })+
                }
            }
        }
    };
}

any!($ Rc, Uc, Ud, XrcSend, RawPacket);

impl AnyQueuePair {
    /// Starts a batch of requests (`ibv_wr_start`), whose operations are chosen at run time. See
    /// [`QueuePair::wr_start`].
    ///
    /// ```no_run
    /// # use mlx5::{AnyQueuePair, BatchError, Data, Operation, RemoteAddress, SendFlags, Sge};
    /// # use mlx5::SendWr;
    /// # fn f(qp: &mut AnyQueuePair, to: RemoteAddress, sge: Sge) -> Result<(), BatchError> {
    /// let mut batch = qp.wr_start();
    /// let (operation, data) = (Operation::RdmaWrite(to), Data::Sges(&[sge]));
    /// batch.push(&SendWr { wr_id: 1, operation, data, ..SendWr::default() });
    /// let (flags, data) = (SendFlags::SIGNALED, Data::Inline(&[b"done"]));
    /// batch.push(&SendWr { wr_id: 2, flags, data, ..SendWr::default() });
    /// batch.complete()
    /// # }
    /// ```
    #[inline(always)]
    pub fn wr_start(&mut self) -> AnyBatch<'_> {
        of_any!(self, qp => qp.wr_start().into())
    }

    /// Posts the requests that `build` adds to a batch: all of them, or nothing if a request was
    /// refused or `build` panics. See [`QueuePair::post`].
    #[inline]
    pub fn post(&mut self, build: impl FnOnce(&mut AnyBatch<'_>)) -> Result<(), BatchError> {
        let mut batch = self.wr_start();
        build(&mut batch);
        batch.complete()
    }

    /// Like [`AnyQueuePair::post`], but `build` may fail. See [`QueuePair::try_post`].
    #[inline]
    pub fn try_post<R, E: From<BatchError>>(
        &mut self,
        build: impl FnOnce(&mut AnyBatch<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        let mut batch = self.wr_start();
        let built = build(&mut batch)?;
        batch.complete()?;
        Ok(built)
    }

    /// See [`QueuePair::post_send_iter`].
    pub fn post_send_iter<'a, W: Borrow<SendWr<'a>>>(
        &mut self,
        requests: impl IntoIterator<Item = W>,
    ) -> Result<usize, ListError> {
        of_any!(self, qp => qp.post_send_iter(requests))
    }

    /// See [`QueuePair::post_recv_iter`].
    pub fn post_recv_iter<'a, W: Borrow<ReceiveWr<'a>>>(
        &mut self,
        requests: impl IntoIterator<Item = W>,
    ) -> Result<usize, ListError> {
        of_any!(self, qp => qp.post_recv_iter(requests))
    }

    /// See [`QueuePair::recv`].
    pub fn recv(&mut self, wr_id: u64, sge: Sge) -> Result<(), PostError> {
        of_any!(self, qp => qp.recv(wr_id, sge))
    }

    /// See [`QueuePair::post_send`].
    pub fn post_send(&mut self, list: &[SendWr<'_>]) -> Result<(), ListError> {
        of_any!(self, qp => qp.post_send(list))
    }

    /// See [`QueuePair::post_recv`].
    pub fn post_recv(&mut self, list: &[ReceiveWr<'_>]) -> Result<(), ListError> {
        of_any!(self, qp => qp.post_recv(list))
    }

    /// See [`QueuePair::free_send_blocks`].
    pub fn free_send_blocks(&self) -> u32 {
        of_any!(self, qp => qp.free_send_blocks())
    }

    /// See [`QueuePair::free_receives`].
    pub fn free_receives(&self) -> u32 {
        of_any!(self, qp => qp.free_receives())
    }

    /// See [`QueuePair::modify`].
    pub fn modify(&mut self, attributes: &QpAttributes) -> Result<(), Error> {
        of_any!(self, qp => qp.modify(attributes))
    }

    /// See [`QueuePair::to_error`].
    pub fn to_error(&mut self) -> Result<(), Error> {
        self.modify(&QpAttributes::new().qp_state(QueueState::Error))
    }

    /// See [`QueuePair::reset`].
    pub fn reset(&mut self) -> Result<(), Error> {
        self.modify(&QpAttributes::new().qp_state(QueueState::Reset))
    }

    /// See [`QueuePair::purge`].
    pub fn purge(&mut self, cq: &mut CompletionQueue) -> Result<u32, Error> {
        of_any!(self, qp => qp.purge(cq))
    }

    /// See [`QueuePair::quiesce`].
    pub fn quiesce(
        &mut self,
        cqs: &mut [&mut CompletionQueue],
        each: impl FnMut(WorkCompletion<'_>),
    ) -> Result<Vec<NotDone>, QuiesceError> {
        of_any!(self, qp => qp.quiesce(cqs, each))
    }

    /// See [`QueuePair::quiesce_within`].
    pub fn quiesce_within(
        &mut self,
        cqs: &mut [&mut CompletionQueue],
        timeout: Duration,
        each: impl FnMut(WorkCompletion<'_>),
    ) -> Result<Vec<NotDone>, QuiesceError> {
        of_any!(self, qp => qp.quiesce_within(cqs, timeout, each))
    }

    /// See [`QueuePair::query`].
    pub fn query(&self) -> Result<QpInfo, Error> {
        of_any!(self, qp => qp.query())
    }

    /// See [`QueuePair::qp_num`].
    pub fn qp_num(&self) -> u32 {
        of_any!(self, qp => qp.qp_num())
    }

    /// See [`QueuePair::id`].
    pub fn id(&self) -> QpId {
        of_any!(self, qp => qp.id())
    }

    /// See [`QueuePair::user_tag`].
    pub fn user_tag(&self) -> u64 {
        of_any!(self, qp => qp.user_tag())
    }

    /// See [`QueuePair::set_user_tag`].
    pub fn set_user_tag(&self, tag: u64) {
        of_any!(self, qp => qp.set_user_tag(tag));
    }

    /// See [`QueuePair::caps`].
    pub fn caps(&self) -> QueuePairCaps {
        of_any!(self, qp => qp.caps())
    }

    /// See [`QueuePair::doorbell_mode`].
    pub fn doorbell_mode(&self) -> DoorbellMode {
        of_any!(self, qp => qp.doorbell_mode())
    }

    /// See [`QueuePair::state`].
    pub fn state(&self) -> QueueState {
        of_any!(self, qp => qp.state())
    }

    /// See [`QueuePair::context`].
    pub fn context(&self) -> Context {
        of_any!(self, qp => qp.context())
    }

    /// See [`QueuePair::has_srq`].
    pub fn has_srq(&self) -> bool {
        of_any!(self, qp => qp.has_srq())
    }

    /// See [`QueuePair::data_in_order`].
    pub fn data_in_order(&self) -> Result<bool, Error> {
        of_any!(self, qp => qp.data_in_order())
    }

    /// See [`QueuePair::drained`].
    pub fn drained(&self) -> Result<Drained, CancelError> {
        of_any!(self, qp => qp.drained())
    }

    /// See [`QueuePair::resume`].
    pub fn resume(&mut self) -> Result<(), Error> {
        of_any!(self, qp => qp.resume())
    }

    /// See [`QueuePair::split`].
    pub fn split(self) -> (AnySendHalf, Option<ReceiveHalf>, ControlHalf) {
        of_any!(self, qp => {
            let (send, receive, control) = qp.split();
            (send.into(), receive, control)
        })
    }

    /// Destroys the queue pair (`ibv_destroy_qp`). If the kernel refuses, the error returns the
    /// queue pair. See [`QueuePair::destroy`].
    pub fn destroy(self) -> Result<Vec<NotDone>, DestroyError<Self>> {
        of_any!(self, qp => qp.destroy().map_err(|error| error.map(Into::into)))
    }
}

impl AnySendHalf {
    /// See [`AnyQueuePair::wr_start`].
    #[inline(always)]
    pub fn wr_start(&mut self) -> AnyBatch<'_> {
        of_any!(self, half => half.wr_start().into())
    }

    /// See [`AnyQueuePair::post`].
    #[inline]
    pub fn post(&mut self, build: impl FnOnce(&mut AnyBatch<'_>)) -> Result<(), BatchError> {
        let mut batch = self.wr_start();
        build(&mut batch);
        batch.complete()
    }

    /// See [`AnyQueuePair::try_post`].
    #[inline]
    pub fn try_post<R, E: From<BatchError>>(
        &mut self,
        build: impl FnOnce(&mut AnyBatch<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        let mut batch = self.wr_start();
        let built = build(&mut batch)?;
        batch.complete()?;
        Ok(built)
    }

    /// See [`QueuePair::post_send_iter`].
    pub fn post_send_iter<'a, W: Borrow<SendWr<'a>>>(
        &mut self,
        requests: impl IntoIterator<Item = W>,
    ) -> Result<usize, ListError> {
        of_any!(self, half => half.post_send_iter(requests))
    }

    /// See [`SendHalf::post_send`].
    pub fn post_send(&mut self, list: &[SendWr<'_>]) -> Result<(), ListError> {
        of_any!(self, half => half.post_send(list))
    }

    /// See [`SendHalf::free_blocks`].
    pub fn free_blocks(&self) -> u32 {
        of_any!(self, half => half.free_blocks())
    }

    /// See [`SendHalf::qp_num`].
    pub fn qp_num(&self) -> u32 {
        of_any!(self, half => half.qp_num())
    }
}

/// Defines cancelling, for queue pairs and their send halves.
macro_rules! cancels {
    ($any:ident, $one:ident) => {
        impl $any {
            #[doc = concat!("See [`", stringify!($one), "::pending`].")]
            pub fn pending(&self, drained: &Drained) -> Result<Vec<PendingRequest>, CancelError> {
                of_any!(self, half => Ok(half.pending(drained)?.collect()))
            }

            #[doc = concat!("See [`", stringify!($one), "::cancel`].")]
            pub fn cancel(&mut self, drained: &Drained, wr_id: u64) -> Result<Cancelled, CancelError> {
                of_any!(self, half => half.cancel(drained, wr_id))
            }

            #[doc = concat!("See [`", stringify!($one), "::cancel_set`].")]
            pub fn cancel_set(
                &mut self,
                drained: &Drained,
                wr_ids: &[u64],
                mode: Mode,
            ) -> Result<Cancelled, CancelError> {
                of_any!(self, half => half.cancel_set(drained, wr_ids, mode))
            }

            #[doc = concat!("See [`", stringify!($one), "::cancel_request`].")]
            pub fn cancel_request(
                &mut self,
                drained: &Drained,
                handle: RequestHandle,
            ) -> Result<Cancelled, CancelError> {
                of_any!(self, half => half.cancel_request(drained, handle))
            }

            #[doc = concat!("See [`", stringify!($one), "::cancel_where`].")]
            pub fn cancel_where(
                &mut self,
                drained: &Drained,
                wanted: impl FnMut(&PendingRequest) -> bool,
            ) -> Result<Cancelled, CancelError> {
                of_any!(self, half => half.cancel_where(drained, wanted))
            }
        }
    };
}

cancels!(AnyQueuePair, QueuePair);
cancels!(AnySendHalf, SendHalf);
