//! Queue pairs that several threads use at once: a critical section per batch or list.

use super::{
    ControlHalf, QpAttributes, QpInfo, QueuePair, QueuePairTransport, ReceiveHalf, SendHalf,
};
use crate::error::Error;
use crate::link::QpId;
use mlx5_doorbell::{Lock, Locked};
use mlx5_wqe::{
    Batch, BatchError, ListError, ListTransport, PostError, QueueState, ReceiveWr, SendWr,
};

/// A queue pair that several threads post to.
///
/// Its halves are locked apart: who posts sends waits for nobody who posts receives. What is posted
/// with one call stays together. The locks are held for as long as a batch is built and rung, and
/// who waits for one spins: nothing slow is to be done with one held.
///
/// ```no_run
/// # use mlx5::{QueuePair, RemoteAddress, SendFlags, transport::Rc};
/// # fn f(qp: QueuePair<Rc>, to: RemoteAddress) -> Result<(), mlx5::BatchError> {
/// let qp = qp.into_shared();
/// std::thread::scope(|scope| {
///     for thread in 0..4 {
///         let qp = &qp;
///         scope.spawn(move || {
///             qp.post(|batch| {
///                 let wr = batch.wr(thread, SendFlags::SIGNALED);
///                 wr.rdma_write(to).inline_data(b"one of four");
///             })
///         });
///     }
/// });
/// let qp: QueuePair<Rc> = qp.into_inner();
/// # Ok(())
/// # }
/// ```
// In this order, a poster needs no second register for the queue pair and its send queue.
#[repr(C)]
pub struct SharedQueuePair<T: QueuePairTransport> {
    send: Lock<SendHalf<T>>,
    receive: Option<Lock<ReceiveHalf>>,
    control: Lock<ControlHalf>,
    qp_num: u32,
    id: QpId,
}

impl<T: QueuePairTransport> QueuePair<T> {
    /// Makes the queue pair one that several threads use.
    pub fn into_shared(self) -> SharedQueuePair<T> {
        let (qp_num, id) = (self.qp_num(), self.id());
        let (send, receive, control) = self.split();
        SharedQueuePair {
            send: Lock::new(send),
            receive: receive.map(Lock::new),
            control: Lock::new(control),
            qp_num,
            id,
        }
    }
}

impl<T: QueuePairTransport> SharedQueuePair<T> {
    /// Posts what `build` adds to a batch (`ibv_wr_start` to `ibv_wr_complete`): all of it, or, if a
    /// request was refused or `build` panics, nothing.
    ///
    /// It is built with the send half locked, and must not post to the same queue pair otherwise.
    #[inline]
    pub fn post(&self, build: impl FnOnce(&mut Batch<'_, T>)) -> Result<(), BatchError> {
        let mut half = self.send.lock();
        let mut batch = half.wr_start();
        build(&mut batch);
        batch.complete()
    }

    /// Posts a list of requests (`ibv_post_send`). See [`QueuePair::post_send`].
    #[inline]
    pub fn post_send(&self, list: &[SendWr<'_>]) -> Result<(), ListError>
    where
        T: ListTransport,
    {
        self.send.lock().post_send(list)
    }

    /// Posts a list of receive requests (`ibv_post_recv`). See [`QueuePair::post_recv`].
    #[inline]
    pub fn post_recv(&self, list: &[ReceiveWr<'_>]) -> Result<(), ListError> {
        match &self.receive {
            Some(receive) => receive.lock().post_recv(list),
            None if list.is_empty() => Ok(()),
            None => Err(ListError { index: 0, error: PostError::Unsupported }),
        }
    }

    /// The send half, of which others wait until this is dropped: for several batches that are to
    /// follow each other, or to cancel requests.
    #[inline]
    pub fn lock_send(&self) -> Locked<'_, SendHalf<T>> {
        self.send.lock()
    }

    /// The receive half, if there is one.
    #[inline]
    pub fn lock_receive(&self) -> Option<Locked<'_, ReceiveHalf>> {
        self.receive.as_ref().map(Lock::lock)
    }

    /// The half that changes the state and asks for it. It is held while the kernel is asked;
    /// posting goes on meanwhile.
    pub fn lock_control(&self) -> Locked<'_, ControlHalf> {
        self.control.lock()
    }

    /// Changes state and attributes (`ibv_modify_qp`). See [`ControlHalf::modify`]: a queue pair
    /// leaves RESET only when it is not shared.
    pub fn modify(&self, attributes: &QpAttributes) -> Result<(), Error> {
        self.lock_control().modify(attributes)
    }

    /// Asks the kernel about the queue pair (`ibv_query_qp`).
    pub fn query(&self) -> Result<QpInfo, Error> {
        self.lock_control().query()
    }

    /// The state that it was last brought to.
    pub fn state(&self) -> QueueState {
        self.lock_control().state()
    }

    /// Number of the queue pair.
    pub fn qp_num(&self) -> u32 {
        self.qp_num
    }

    /// What events call this queue pair.
    pub fn id(&self) -> QpId {
        self.id
    }

    /// The queue pair, when it is not shared any more.
    pub fn into_inner(self) -> QueuePair<T> {
        QueuePair::join(
            self.send.into_inner(),
            self.receive.map(Lock::into_inner),
            self.control.into_inner(),
        )
    }
}
