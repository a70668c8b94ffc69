//! Cancelling posted requests (`mlx5dv_qp_cancel_posted_send_wrs`).
//!
//! A drained send queue starts nothing new. [`QueuePair::drained`] queries where the device
//! stopped. Requests can be cancelled only with that answer: those that were committed and not
//! executed become NOPs of the same size. [`QueuePair::resume`] resumes the queue.

use super::{
    ControlHalf, DeviceState, QpAttributes, QpInner, QueuePair, QueuePairTransport, SendHalf,
};
use crate::error::Error;
use mlx5_prm::cmd::qp::QpState;
use mlx5_wqe::{
    Cancelled, DrainPoint, Mode, NotPending, PendingRequest, QueueState, RequestHandle, SendQueue,
};
use std::fmt;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Proof that a send queue is drained, and where it stopped. It is valid until the state of the
/// queue pair changes.
#[derive(Clone, Copy, Debug)]
pub struct Drained {
    epoch: Epoch,
    counter: u16,
}

impl Drained {
    /// The block, free-running in 16 bits, at which the device will resume.
    pub const fn block(&self) -> u16 {
        self.counter
    }
}

/// Why nothing was cancelled.
#[derive(Debug)]
#[non_exhaustive]
pub enum CancelError {
    /// The device does not report the send queue as drained.
    NotDrained {
        /// The state that it reports.
        state: QpState,
    },
    /// The device stopped inside a request, or at one that is not pending.
    NotAtRequest {
        /// The block at which it stopped.
        block: u16,
    },
    /// The proof is of another queue pair, or the state of the queue pair changed after it.
    Outdated,
    /// [`Mode::AllOrNothing`] was requested, and some identifiers are not pending.
    NotPending(NotPending),
    /// The query of the device failed.
    Query(Error),
}

impl fmt::Display for CancelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotDrained { state } => write!(
                f,
                "the send queue is not drained: the device reports state {state:?}; wait for the \
                 event SqDrained"
            ),
            Self::NotAtRequest { block } => write!(
                f,
                "the device stopped at block {block:#x}, where no pending request starts: nothing \
                 was cancelled"
            ),
            Self::Outdated => f.write_str(
                "the proof is of another queue pair, or the state changed after `drained()`: call it \
                 again",
            ),
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

/// The time between two changes of a queue pair's state. Unique among all queue pairs of the
/// process, of all contexts and devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Epoch(u64);

impl Epoch {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Relaxed))
    }
}

/// Detects outdated proofs, and prevents a queue pair from resuming while its requests are
/// cancelled, possibly on another thread.
pub(crate) struct DrainEpoch {
    /// Written only with the lock held.
    current: AtomicU64,
    lock: Mutex<()>,
}

impl Default for DrainEpoch {
    fn default() -> Self {
        Self { current: AtomicU64::new(Epoch::new().0), lock: Mutex::new(()) }
    }
}

impl DrainEpoch {
    fn lock(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes all proofs invalid. Must be called before the command that resumes the queue.
    pub(crate) fn advance(&self) {
        let _lock = self.lock();
        self.current.store(Epoch::new().0, Release);
    }

    /// Calls `ask`, which queries the device, and returns the proof. The proof has the epoch from
    /// before the query, so a state change during the query invalidates it.
    fn prove(
        &self,
        ask: impl FnOnce() -> Result<u16, CancelError>,
    ) -> Result<Drained, CancelError> {
        let epoch = self.current();
        Ok(Drained { epoch, counter: ask()? })
    }

    fn current(&self) -> Epoch {
        Epoch(self.current.load(Acquire))
    }

    /// Checks a proof. It stays valid while the guard is held.
    fn lock_valid(&self, drained: &Drained) -> Result<MutexGuard<'_, ()>, CancelError> {
        let lock = self.lock();
        if self.current() == drained.epoch { Ok(lock) } else { Err(CancelError::Outdated) }
    }
}

impl ControlHalf {
    /// Queries whether the send queue is drained, and where it stopped. Needs a context with DEVX.
    /// Posting may continue meanwhile.
    pub fn drained(&self) -> Result<Drained, CancelError> {
        self.inner.drain_epoch.prove(|| {
            let DeviceState { state, counter, .. } =
                self.device_state("query_qp (DEVX)").map_err(CancelError::Query)?;
            if state == QpState::SQD { Ok(counter) } else { Err(CancelError::NotDrained { state }) }
        })
    }

    /// Resumes a drained send queue: back to RTS.
    ///
    /// The device drained the queue without notifying the kernel, so this passes SQD to the kernel
    /// as the current state. If the device is in another state, nothing changes, and the error
    /// ([`ErrorKind::WrongState`](crate::ErrorKind::WrongState)) names that state.
    pub fn resume(&mut self) -> Result<(), Error> {
        self.inner.context.check("modify_qp")?;
        let attributes = QpAttributes::new()
            .qp_state(QueueState::ReadyToSend)
            .cur_qp_state(QueueState::SendQueueDrained);
        self.modify_unchecked(&attributes, QueueState::ReadyToSend)
    }
}

impl<T: QueuePairTransport> SendHalf<T> {
    /// Calls `work` with the queue and the point where it stopped. The queue pair cannot resume
    /// until `work` returns.
    #[inline]
    fn with_valid<R>(
        &mut self,
        drained: &Drained,
        work: impl FnOnce(&mut SendQueue<T>, DrainPoint) -> R,
    ) -> Result<R, CancelError> {
        let point = Self::point(&self.inner, &self.queue, drained)?;
        let _held = self.inner.drain_epoch.lock_valid(drained)?;
        Ok(work(&mut self.queue, point))
    }

    /// Returns the request boundary at which the queue stopped.
    fn point(
        inner: &QpInner,
        queue: &SendQueue<T>,
        drained: &Drained,
    ) -> Result<DrainPoint, CancelError> {
        // In a forked child the ring may not be mapped.
        inner.context.check_process("cancel").map_err(CancelError::Query)?;
        let _held = inner.drain_epoch.lock_valid(drained)?;
        let point = queue.drain_point(drained.counter);
        point.ok_or(CancelError::NotAtRequest { block: drained.counter })
    }

    /// Iterates over the requests that were posted and not executed, in posting order. Cancelled
    /// ones are included: see [`RequestInfo::cancelled`].
    ///
    /// [`RequestInfo::cancelled`]: crate::RequestInfo::cancelled
    pub fn pending(
        &self,
        drained: &Drained,
    ) -> Result<impl Iterator<Item = PendingRequest> + '_, CancelError> {
        let point = Self::point(&self.inner, &self.queue, drained)?;
        Ok(self.queue.pending(point))
    }

    /// Cancels every pending request with identifier `wr_id`. It is not an error if there is none.
    pub fn cancel(&mut self, drained: &Drained, wr_id: u64) -> Result<Cancelled, CancelError> {
        // SAFETY: `drained` proves that the device stopped at `point`, and that the queue pair was
        // not resumed. It is not resumed while the proof is held, and a drained device does not
        // read the ring.
        self.with_valid(drained, |queue, point| unsafe { queue.cancel(point, wr_id) })
    }

    /// Cancels every pending request whose identifier is in `wr_ids`, in one pass.
    pub fn cancel_set(
        &mut self,
        drained: &Drained,
        wr_ids: &[u64],
        mode: Mode,
    ) -> Result<Cancelled, CancelError> {
        // SAFETY: the held proof shows that the device stopped at `point`; it does not read the
        // ring until the queue pair resumes, which the proof's lock prevents.
        self.with_valid(drained, |queue, point| unsafe { queue.cancel_set(point, wr_ids, mode) })?
            .map_err(CancelError::NotPending)
    }

    /// Cancels the request of this handle, if it is pending. Other requests with its identifier are
    /// not affected. See [`Batch::handle`](crate::Batch::handle).
    pub fn cancel_request(
        &mut self,
        drained: &Drained,
        handle: RequestHandle,
    ) -> Result<Cancelled, CancelError> {
        // SAFETY: the held proof shows that the device stopped at `point`; it does not read the
        // ring until the queue pair resumes, which the proof's lock prevents.
        self.with_valid(drained, |queue, point| unsafe { queue.cancel_handle(point, handle) })
    }

    /// Cancels every pending request for which `wanted` returns true. `wanted` is called for all
    /// before any is cancelled.
    pub fn cancel_where(
        &mut self,
        drained: &Drained,
        mut wanted: impl FnMut(&PendingRequest) -> bool,
    ) -> Result<Cancelled, CancelError> {
        // The caller's code must not run with the proof held: it might resume the queue pair.
        let wanted: Vec<bool> = self.pending(drained)?.map(|one| wanted(&one)).collect();
        let mut wanted = wanted.into_iter();
        self.with_valid(drained, |queue, point| {
            // SAFETY: the held proof shows that the device stopped at `point`; it does not read the
            // ring until the queue pair resumes, which the proof's lock prevents.
            unsafe { queue.cancel_where(point, |_| wanted.next().unwrap_or(false)) }
        })
    }
}

impl<T: QueuePairTransport> QueuePair<T> {
    /// Queries whether the send queue is drained, and where it stopped. See
    /// [`ControlHalf::drained`].
    pub fn drained(&self) -> Result<Drained, CancelError> {
        self.control.drained()
    }

    /// Resumes a drained send queue. See [`ControlHalf::resume`].
    pub fn resume(&mut self) -> Result<(), Error> {
        self.control.resume()
    }

    /// Iterates over the requests that were posted and not executed, in posting order. Cancelled
    /// ones are included: see [`RequestInfo::cancelled`].
    ///
    /// [`RequestInfo::cancelled`]: crate::RequestInfo::cancelled
    pub fn pending(
        &self,
        drained: &Drained,
    ) -> Result<impl Iterator<Item = PendingRequest> + '_, CancelError> {
        self.send.pending(drained)
    }

    /// Cancels every pending request with identifier `wr_id`. See [`SendHalf::cancel`].
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

    /// Cancels the request of this handle, if it is pending. See [`SendHalf::cancel_request`].
    pub fn cancel_request(
        &mut self,
        drained: &Drained,
        handle: RequestHandle,
    ) -> Result<Cancelled, CancelError> {
        self.send.cancel_request(drained, handle)
    }

    /// Cancels every pending request for which `wanted` returns true. See
    /// [`SendHalf::cancel_where`].
    pub fn cancel_where(
        &mut self,
        drained: &Drained,
        wanted: impl FnMut(&PendingRequest) -> bool,
    ) -> Result<Cancelled, CancelError> {
        self.send.cancel_where(drained, wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices_on;
    use crate::transport::Rc;
    use mlx5_sim::{SimConfig, Simulator};
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    fn outdated<R>(result: Result<R, CancelError>) -> bool {
        matches!(result, Err(CancelError::Outdated))
    }

    #[test]
    fn a_proof_is_of_the_time_before_the_device_is_asked() {
        let epoch = DrainEpoch::default();
        let proof = epoch.prove(|| Ok(7)).unwrap();
        assert_eq!(proof.block(), 7);
        assert!(epoch.lock_valid(&proof).is_ok());
        // The state changes during the query.
        let late = epoch.prove(|| {
            epoch.advance();
            Ok(7)
        });
        assert!(outdated(epoch.lock_valid(&late.unwrap())));
        assert!(outdated(epoch.lock_valid(&proof)));
    }

    #[test]
    fn no_request_is_posted_while_a_proof_is_held() {
        let epoch = DrainEpoch::default();
        let proof = epoch.prove(|| Ok(0)).unwrap();
        let held = epoch.lock_valid(&proof).unwrap();
        std::thread::scope(|scope| {
            let (begins, begun) = channel();
            let epoch = &epoch;
            let goes_on = scope.spawn(move || {
                begins.send(()).unwrap();
                epoch.advance();
            });
            begun.recv().unwrap();
            // It must not finish while the proof is held.
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(100) {
                assert!(!goes_on.is_finished());
                assert_eq!(epoch.current(), proof.epoch);
                std::thread::yield_now();
            }
            drop(held);
            goes_on.join().unwrap();
        });
        assert!(outdated(epoch.lock_valid(&proof)));
    }

    #[test]
    fn the_proof_is_held_while_requests_are_cancelled() {
        let simulator = Simulator::new(SimConfig::new().step(true));
        let context = devices_on(simulator.kernel()).unwrap()[0].open().unwrap();
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(4).build().unwrap();
        let mut qp = pd.create_qp::<Rc>(&cq, &cq).build().unwrap();
        let inner = std::sync::Arc::clone(&qp.send.inner);
        let is_held = || inner.drain_epoch.lock.try_lock().is_err();
        let proof = inner.drain_epoch.prove(|| Ok(0)).unwrap();
        assert!(qp.send.with_valid(&proof, |_, _| is_held()).unwrap());
        assert!(!is_held());
        inner.drain_epoch.advance();
        assert!(outdated(qp.send.with_valid(&proof, |_, _| panic!("nothing is done"))));
    }
}
