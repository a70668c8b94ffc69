//! Queue pairs that several threads use: one critical section for each batch or list.

use super::post::NO_RECEIVES;
use super::{
    ControlHalf, QpAttributes, QpInfo, QpInner, QueuePair, QueuePairCaps, QueuePairTransport,
    ReceiveHalf, SendHalf,
};
use crate::context::Context;
use crate::error::Error;
use crate::link::QpId;
use mlx5_doorbell::{Lock, LockGuard};
use mlx5_wqe::{
    Batch, BatchError, ListError, ListTransport, PostError, QueueState, ReceiveWr, SendWr, Sge,
};
use std::borrow::Borrow;
use std::sync::Arc;

/// Name of the verb in errors of state changes.
pub(super) const MODIFY: &str = "modify_qp";

/// A queue pair that several threads post to.
///
/// Each half has its own lock: posting sends does not wait for posting receives. The requests of
/// one call stay together. The locks are spin locks, held while a batch is built and its doorbell
/// rung: do nothing slow while one is held.
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
// The field order gives queue pair and send queue the same address: posting needs no second
// register.
#[repr(C)]
pub struct SharedQueuePair<T: QueuePairTransport> {
    send: Lock<SendHalf<T>>,
    receive: Option<Lock<ReceiveHalf>>,
    control: Lock<ControlHalf>,
    pub(super) inner: Arc<QpInner>,
}

impl<T: QueuePairTransport> QueuePair<T> {
    /// Makes the queue pair usable by several threads.
    pub fn into_shared(self) -> SharedQueuePair<T> {
        let inner = Arc::clone(&self.control.inner);
        let (send, receive, control) = self.split();
        SharedQueuePair {
            send: Lock::new(send),
            receive: receive.map(Lock::new),
            control: Lock::new(control),
            inner,
        }
    }
}

impl<T: QueuePairTransport> SharedQueuePair<T> {
    /// Posts the requests that `build` adds to a batch (`ibv_wr_start` to `ibv_wr_complete`): all
    /// of them, or nothing if a request was refused or `build` panics.
    ///
    /// The send half is locked while `build` runs, so `build` must not post to the same queue pair
    /// otherwise.
    #[inline]
    pub fn post(&self, build: impl FnOnce(&mut Batch<'_, T>)) -> Result<(), BatchError> {
        let mut half = self.send.lock();
        let mut batch = half.wr_start();
        build(&mut batch);
        batch.complete()
    }

    /// Like [`SharedQueuePair::post`], but `build` may fail: nothing is posted then. See
    /// [`QueuePair::try_post`].
    #[inline]
    pub fn try_post<R, E: From<BatchError>>(
        &self,
        build: impl FnOnce(&mut Batch<'_, T>) -> Result<R, E>,
    ) -> Result<R, E> {
        self.send.lock().try_post(build)
    }

    /// Posts a list of requests (`ibv_post_send`). See [`QueuePair::post_send`].
    #[inline]
    pub fn post_send(&self, list: &[SendWr<'_>]) -> Result<(), ListError>
    where
        T: ListTransport,
    {
        self.send.lock().post_send(list)
    }

    /// Posts the requests that `requests` yields. See [`QueuePair::post_send_iter`].
    ///
    /// The send half is locked while the iterator runs.
    #[inline]
    pub fn post_send_iter<'a, W: Borrow<SendWr<'a>>>(
        &self,
        requests: impl IntoIterator<Item = W>,
    ) -> Result<usize, ListError>
    where
        T: ListTransport,
    {
        self.send.lock().post_send_iter(requests)
    }

    /// Posts a list of receive requests (`ibv_post_recv`). See [`QueuePair::post_recv`].
    #[inline]
    pub fn post_recv(&self, list: &[ReceiveWr<'_>]) -> Result<(), ListError> {
        match &self.receive {
            Some(receive) => receive.lock().post_recv(list),
            None if list.is_empty() => Ok(()),
            None => Err(NO_RECEIVES),
        }
    }

    /// Posts one receive request with one buffer. See [`QueuePair::recv`].
    #[inline]
    pub fn recv(&self, wr_id: u64, sge: Sge) -> Result<(), PostError> {
        match &self.receive {
            Some(receive) => receive.lock().recv(wr_id, sge),
            None => Err(PostError::Unsupported),
        }
    }

    /// Locks the send half: for several batches that must follow each other, or to cancel requests.
    ///
    /// The guards of the halves give `&mut`. A program that swaps the halves of two queue pairs
    /// posts to the wrong one. Calls that change a queue pair's state fail until the halves are
    /// back in place.
    #[inline]
    pub fn lock_send(&self) -> LockGuard<'_, SendHalf<T>> {
        self.send.lock()
    }

    /// Locks the receive half, if there is one.
    #[inline]
    pub fn lock_receive(&self) -> Option<LockGuard<'_, ReceiveHalf>> {
        self.receive.as_ref().map(Lock::lock)
    }

    /// Locks the half that changes and queries the state. Posting may continue meanwhile.
    pub fn lock_control(&self) -> LockGuard<'_, ControlHalf> {
        self.control.lock()
    }

    /// Changes state and attributes (`ibv_modify_qp`). See [`QueuePair::modify`]. The other halves
    /// are locked while the queue pair leaves RESET.
    pub fn modify(&self, attributes: &QpAttributes) -> Result<(), Error> {
        self.modify_locked(&mut self.own_control(MODIFY)?, attributes)
    }

    /// Locks the control half, for `verb`. A guard gives `&mut`, so safe code may have put the half
    /// of another queue pair there. Fails then: its state says nothing about this queue pair's
    /// other halves.
    pub(super) fn own_control(
        &self,
        verb: &'static str,
    ) -> Result<LockGuard<'_, ControlHalf>, Error> {
        let control = self.lock_control();
        self.check_own(verb, &control.inner)?;
        Ok(control)
    }

    /// Locks the halves that post, with the same check as [`SharedQueuePair::own_control`].
    #[expect(clippy::type_complexity, reason = "two guards")]
    pub(super) fn own_posters(
        &self,
        verb: &'static str,
    ) -> Result<(LockGuard<'_, SendHalf<T>>, Option<LockGuard<'_, ReceiveHalf>>), Error> {
        let (send, receive) = (self.lock_send(), self.lock_receive());
        self.check_own(verb, &send.inner)?;
        if let Some(receive) = &receive {
            self.check_own(verb, &receive.inner)?;
        }
        Ok((send, receive))
    }

    fn check_own(&self, verb: &'static str, half: &Arc<QpInner>) -> Result<(), Error> {
        if Arc::ptr_eq(half, &self.inner) {
            return Ok(());
        }
        let what = format!(
            "a half of queue pair {:#x} is in the place of a half of {:#x}: swap them back, as their \
             locks let the program swap them",
            half.qp_num, self.inner.qp_num
        );
        Err(Error::invalid(verb, what))
    }

    /// Changes state and attributes, with the control half locked.
    pub(super) fn modify_locked(
        &self,
        control: &mut LockGuard<'_, ControlHalf>,
        attributes: &QpAttributes,
    ) -> Result<(), Error> {
        let (from, to) = control.check(attributes)?;
        if from == QueueState::Reset && to == QueueState::Init {
            self.start_over(control)?;
        }
        control.modify_unchecked(attributes, to)
    }

    /// Empties the queues after a reset. The control half is locked, so the state does not change.
    pub(super) fn start_over(&self, _: &LockGuard<'_, ControlHalf>) -> Result<(), Error> {
        let (mut send, mut receive) = self.own_posters(MODIFY)?;
        let receive = receive.as_mut().map(|half| &mut half.queue);
        self.inner.start_over(&mut send.queue, receive)
    }

    /// Whether the send half, the receive half and the control half are locked.
    #[cfg(test)]
    pub(crate) fn is_locked(&self) -> [bool; 3] {
        let receive = self.receive.as_ref().is_some_and(|half| half.try_lock().is_none());
        [self.send.try_lock().is_none(), receive, self.control.try_lock().is_none()]
    }

    /// Queries the kernel (`ibv_query_qp`).
    pub fn query(&self) -> Result<QpInfo, Error> {
        self.own_control("query_qp")?.query()
    }

    /// Returns the state that was last set.
    pub fn state(&self) -> QueueState {
        self.lock_control().state()
    }

    /// Returns the number of the queue pair.
    pub fn qp_num(&self) -> u32 {
        self.inner.qp_num
    }

    /// Returns the identifier that events use.
    pub fn id(&self) -> QpId {
        self.inner.id()
    }

    /// Returns the sizes, as created.
    pub fn caps(&self) -> QueuePairCaps {
        self.inner.caps
    }

    /// Returns the context.
    pub fn context(&self) -> Context {
        Context { inner: Arc::clone(&self.inner.context) }
    }

    /// Unwraps the queue pair, which is no longer shared.
    pub fn into_inner(self) -> QueuePair<T> {
        QueuePair::join(
            self.send.into_inner(),
            self.receive.map(Lock::into_inner),
            self.control.into_inner(),
        )
    }
}
