//! Cancelling posted work (`mlx5dv_qp_cancel_posted_send_wrs`).
//!
//! A send queue that the device has drained stands still. [`QueuePair::drained`] asks the device
//! where, and only its answer lets requests be cancelled: those that were committed and not executed
//! become NOPs of the same size. [`QueuePair::resume`] lets the queue go on.

use crate::error::Error;
use crate::qp::{ControlHalf, QpAttributes, QpInner, QueuePair, QueuePairTransport, SendHalf};
use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::qp::{QpState, QueryQpIn, QueryQpOut};
use mlx5_wqe::{
    Cancelled, DrainPoint, Mode, NotPending, PendingRequest, QueueState, RequestHandle, SendQueue,
};
use std::fmt;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Proof that a queue pair's send queue is drained, and where it stands. It is good until the queue
/// pair goes on.
#[derive(Clone, Copy, Debug)]
pub struct Drained {
    drain: Drain,
    counter: u16,
}

impl Drained {
    /// The block, counted freely in 16 bits, at which the device will go on.
    pub const fn block(&self) -> u16 {
        self.counter
    }
}

/// Why nothing can be cancelled.
#[derive(Debug)]
#[non_exhaustive]
pub enum CancelError {
    /// The device does not say that the send queue is drained, but this.
    NotDrained {
        /// The state that it says.
        state: QpState,
    },
    /// The device stands inside a request, or at one that is not pending.
    NotAtRequest {
        /// Where it stands.
        block: u16,
    },
    /// The proof is of another queue pair, or the queue pair has gone on since.
    Outdated,
    /// Not all of a set that was to be cancelled whole is pending.
    NotPending(NotPending),
    /// The device could not be asked.
    Query(Error),
}

impl fmt::Display for CancelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotDrained { state } => write!(
                f,
                "the send queue is not drained: the device has the queue pair in state {state:?}; \
                 wait for the event SqDrained"
            ),
            Self::NotAtRequest { block } => write!(
                f,
                "the device stands at block {block:#x}, at which no pending request starts"
            ),
            Self::Outdated => f.write_str("the queue pair has gone on since it was found drained"),
            Self::NotPending(missing) => missing.fmt(f),
            Self::Query(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CancelError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Query(error) => Some(error),
            Self::NotPending(missing) => Some(missing),
            _ => None,
        }
    }
}

/// Names the time from one change of a queue pair's state to the next. No two queue pairs of the
/// process have the same, whatever context or device they are of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Drain(u64);

impl Drain {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Relaxed))
    }
}

/// Tells an old proof from a good one, and keeps a queue pair from going on while requests of it
/// are cancelled, on another thread maybe.
pub(crate) struct Drains {
    /// Written with the lock only.
    current: AtomicU64,
    lock: Mutex<()>,
}

impl Default for Drains {
    fn default() -> Self {
        Self { current: AtomicU64::new(Drain::new().0), lock: Mutex::new(()) }
    }
}

impl Drains {
    fn lock(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No proof is good any more. To be called before the device is told to go on.
    pub(crate) fn end(&self) {
        let _lock = self.lock();
        self.current.store(Drain::new().0, Release);
    }

    fn current(&self) -> Drain {
        Drain(self.current.load(Acquire))
    }

    /// Checks a proof, which stays good as long as the answer is held.
    fn hold(&self, drained: &Drained) -> Result<MutexGuard<'_, ()>, CancelError> {
        let lock = self.lock();
        if self.current() == drained.drain { Ok(lock) } else { Err(CancelError::Outdated) }
    }
}

impl ControlHalf {
    /// Asks the device whether the send queue is drained, and where it stands. Needs a context with
    /// DEVX. Posting goes on meanwhile.
    pub fn drained(&self) -> Result<Drained, CancelError> {
        const VERB: &str = "query_qp (DEVX)";
        let inner = &self.inner;
        let drain = inner.drains.current();
        let handle = inner.live_handle(VERB).map_err(CancelError::Query)?;
        let mut query = QueryQpIn::request();
        query.set_qpn(inner.qp_num);
        let mut answer = QueryQpOut::default();
        inner
            .context
            .devx_query(VERB, handle, query.as_bytes(), answer.as_bytes_mut())
            .map_err(CancelError::Query)?;
        let state = QpState(answer.qpc().state());
        if state != QpState::SQD {
            return Err(CancelError::NotDrained { state });
        }
        let counter = answer.qpc().hw_sq_wqebb_counter() as u16;
        Ok(Drained { drain, counter })
    }

    /// Lets a drained send queue go on: back to RTS.
    ///
    /// The device drained the queue by itself; whatever the kernel takes its state to be, it is told
    /// that it was SQD.
    pub fn resume(&mut self) -> Result<(), Error> {
        self.inner.context.check("modify_qp")?;
        let attributes = QpAttributes::new()
            .qp_state(QueueState::ReadyToSend)
            .cur_qp_state(QueueState::SendQueueDrained);
        self.modify_unchecked(&attributes, QueueState::ReadyToSend)
    }
}

impl<T: QueuePairTransport> SendHalf<T> {
    /// Where a proof says that the queue stands. It is good as long as the lock is held.
    fn hold<'a>(
        inner: &'a QpInner,
        queue: &SendQueue<T>,
        drained: &Drained,
    ) -> Result<(DrainPoint, MutexGuard<'a, ()>), CancelError> {
        // In a child the ring may not be mapped.
        inner.context.check_process("cancel").map_err(CancelError::Query)?;
        let held = inner.drains.hold(drained)?;
        let point = queue.drain_point(drained.counter);
        Ok((point.ok_or(CancelError::NotAtRequest { block: drained.counter })?, held))
    }

    /// The requests that were posted and not executed, in order.
    pub fn pending(
        &self,
        drained: &Drained,
    ) -> Result<impl Iterator<Item = PendingRequest> + '_, CancelError> {
        let (point, held) = Self::hold(&self.inner, &self.queue, drained)?;
        drop(held);
        Ok(self.queue.pending(point))
    }

    /// Cancels every pending request whose identifier is `wr_id`. None is no error.
    pub fn cancel(&mut self, drained: &Drained, wr_id: u64) -> Result<Cancelled, CancelError> {
        let (point, _held) = Self::hold(&self.inner, &self.queue, drained)?;
        // SAFETY: `drained` proves that the device stands there, and that the queue pair has not
        // been told to go on, nor is as long as the proof is held; while it is drained, the device
        // does not read the ring.
        Ok(unsafe { self.queue.cancel(point, wr_id) })
    }

    /// Cancels every pending request whose identifier is in `wr_ids`, in one pass.
    pub fn cancel_set(
        &mut self,
        drained: &Drained,
        wr_ids: &[u64],
        mode: Mode,
    ) -> Result<Cancelled, CancelError> {
        let (point, _held) = Self::hold(&self.inner, &self.queue, drained)?;
        // SAFETY: as in `cancel`.
        unsafe { self.queue.cancel_set(point, wr_ids, mode) }.map_err(CancelError::NotPending)
    }

    /// Cancels the request with this handle, if it is pending, whatever else has its identifier. See
    /// [`Batch::handle`](crate::Batch::handle).
    pub fn cancel_request(
        &mut self,
        drained: &Drained,
        handle: RequestHandle,
    ) -> Result<Cancelled, CancelError> {
        let (point, _held) = Self::hold(&self.inner, &self.queue, drained)?;
        // SAFETY: as in `cancel`.
        Ok(unsafe { self.queue.cancel_handle(point, handle) })
    }

    /// Cancels every pending request for which `wanted` says so. All are looked at before any is
    /// cancelled.
    pub fn cancel_where(
        &mut self,
        drained: &Drained,
        mut wanted: impl FnMut(&PendingRequest) -> bool,
    ) -> Result<Cancelled, CancelError> {
        // The caller's code is not called with the proof held: it may want the queue pair to go on.
        let wanted: Vec<bool> = self.pending(drained)?.map(|one| wanted(&one)).collect();
        let mut wanted = wanted.into_iter();
        let (point, _held) = Self::hold(&self.inner, &self.queue, drained)?;
        // SAFETY: as in `cancel`.
        Ok(unsafe { self.queue.cancel_where(point, |_| wanted.next().unwrap_or(false)) })
    }
}

impl<T: QueuePairTransport> QueuePair<T> {
    /// Asks the device whether the send queue is drained, and where it stands. See
    /// [`ControlHalf::drained`].
    pub fn drained(&self) -> Result<Drained, CancelError> {
        self.control.drained()
    }

    /// Lets a drained send queue go on. See [`ControlHalf::resume`].
    pub fn resume(&mut self) -> Result<(), Error> {
        self.control.resume()
    }

    /// The requests that were posted and not executed, in order.
    pub fn pending(
        &self,
        drained: &Drained,
    ) -> Result<impl Iterator<Item = PendingRequest> + '_, CancelError> {
        self.send.pending(drained)
    }

    /// Cancels every pending request whose identifier is `wr_id`. See [`SendHalf::cancel`].
    pub fn cancel(&mut self, drained: &Drained, wr_id: u64) -> Result<Cancelled, CancelError> {
        self.send.cancel(drained, wr_id)
    }

    /// Cancels every pending request whose identifier is in `wr_ids`. See
    /// [`SendHalf::cancel_set`].
    pub fn cancel_set(
        &mut self,
        drained: &Drained,
        wr_ids: &[u64],
        mode: Mode,
    ) -> Result<Cancelled, CancelError> {
        self.send.cancel_set(drained, wr_ids, mode)
    }

    /// Cancels the request with this handle, if it is pending. See [`SendHalf::cancel_request`].
    pub fn cancel_request(
        &mut self,
        drained: &Drained,
        handle: RequestHandle,
    ) -> Result<Cancelled, CancelError> {
        self.send.cancel_request(drained, handle)
    }

    /// Cancels every pending request for which `wanted` says so. See [`SendHalf::cancel_where`].
    pub fn cancel_where(
        &mut self,
        drained: &Drained,
        wanted: impl FnMut(&PendingRequest) -> bool,
    ) -> Result<Cancelled, CancelError> {
        self.send.cancel_where(drained, wanted)
    }
}
