//! From an error back to work: the error state, quiescing, and a reset with or without the
//! completions that wait to be polled.

use super::shared::MODIFY;
use super::{ControlHalf, QpAttributes, QpInner, QueuePair, QueuePairTransport, SharedQueuePair};
use crate::cq::{CompletionQueue, PollError};
use crate::error::Error;
use crate::pools::ReceiveSide;
use mlx5_cq::{CompletionError, CompletionOpcode, WorkCompletion};
use mlx5_wqe::{QueueState, ReceiveQueue, SendQueue};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A request that was not executed when a queue pair was quiesced. See [`QueuePair::quiesce`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotDone {
    /// The identifier of the request.
    pub wr_id: u64,
    /// Whether it is a receive request.
    pub receive: bool,
    /// Why it was not executed.
    pub why: WhyNotDone,
}

/// Why a request was not executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum WhyNotDone {
    /// It failed, or was flushed: see [`CompletionError::is_flushed`]. A request that was flushed
    /// while in flight may have reached the peer.
    Failed(CompletionError),
    /// It was cancelled.
    Cancelled,
    /// Unknown, for lack of a completion: the device is gone, the completion queue failed, the
    /// queue pair was reset before, or the time limit expired.
    Unknown,
}

/// Quiescing failed. The list of requests that were not executed includes those without a
/// completion.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QuiesceError {
    /// Why it failed.
    pub error: QuiesceFault,
    /// The requests that were not executed, or whose result is unknown.
    pub not_done: Vec<NotDone>,
}

/// The step of quiescing that failed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum QuiesceFault {
    /// The change to the error state failed, or the arguments are wrong.
    Call(Error),
    /// Polling failed.
    Poll(PollError),
    /// After this time some requests had no completion. The device still owns them.
    TimedOut(Duration),
}

impl fmt::Display for QuiesceFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(error) => error.fmt(f),
            Self::Poll(error) => error.fmt(f),
            Self::TimedOut(limit) => write!(
                f,
                "the device did not complete every flushed request within {limit:?}: quiesce again \
                 to wait longer, or reset the queue pair, which makes the device forget them"
            ),
        }
    }
}

impl fmt::Display for QuiesceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {} requests are not done or unknown", self.error, self.not_done.len())
    }
}

impl std::error::Error for QuiesceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.error {
            QuiesceFault::Call(error) => Some(error),
            QuiesceFault::Poll(error) => Some(error),
            QuiesceFault::TimedOut(_) => None,
        }
    }
}

impl QpInner {
    /// Empties the queues after a reset.
    pub(super) fn start_over<T: QueuePairTransport>(
        &self,
        send: &mut SendQueue<T>,
        receive: Option<&mut ReceiveQueue>,
    ) -> Result<(), Error> {
        let mut cqs = [&self.send_cq, &self.recv_cq].into_iter();
        if cqs.any(|cq| cq.holds_after_reset(&self.index)) {
            let what = "the completion queue still has completions from before the reset: poll \
                        them first, or remove them with `purge`";
            return Err(Error::busy(MODIFY, what));
        }
        send.reset();
        if let Some(receive) = receive {
            receive.reset();
        }
        Ok(())
    }

    /// Whether a completion queue has completions of the queue pair.
    fn has_completions(&self) -> bool {
        [&self.send_cq, &self.recv_cq].into_iter().any(|cq| cq.holds(&self.index))
    }

    /// Whether a request of its own queues has no completion yet.
    pub(super) fn is_busy(&self) -> bool {
        let records = self.index.records();
        let receives = match &records.receive {
            ReceiveSide::Own(receives) => receives.in_flight(),
            ReceiveSide::Shared(_) | ReceiveSide::Striding(_) => 0,
        };
        !records.send.is_idle() || receives != 0
    }

    /// Adds the requests without a completion to `list`.
    pub(super) fn add_unknown(&self, list: &mut Vec<NotDone>) {
        let records = self.index.records();
        let unknown = |wr_id, receive| NotDone { wr_id, receive, why: WhyNotDone::Unknown };
        list.extend(records.send.wr_ids_in_flight().map(|wr_id| unknown(wr_id, false)));
        if let ReceiveSide::Own(receives) = &records.receive {
            list.extend(receives.wr_ids_in_flight().map(|wr_id| unknown(wr_id, true)));
        }
    }

    /// Adds a request of this queue pair to `list` if the completion shows that it was not
    /// executed.
    fn note(&self, completion: &WorkCompletion<'_>, list: &mut Vec<NotDone>) {
        // Not by its number: that of a packet is its flow tag, and that of a flushed one its
        // receive queue's.
        if !completion.is_of(self.index.user_tag()) {
            return;
        }
        let why = match completion.status() {
            // Flushed or not: the device did not begin it.
            _ if completion.cancelled() => WhyNotDone::Cancelled,
            Err(error) => WhyNotDone::Failed(error),
            Ok(()) => return,
        };
        let receive = completion.opcode() == CompletionOpcode::Receive;
        list.push(NotDone { wr_id: completion.wr_id(), receive, why });
    }
}

impl ControlHalf {
    /// Moves the queue pair to the error state. See [`QueuePair::to_error`].
    pub fn to_error(&mut self) -> Result<(), Error> {
        self.modify(&QpAttributes::new().qp_state(QueueState::Error))
    }

    /// Resets the queue pair. See [`QueuePair::reset`].
    pub fn reset(&mut self) -> Result<(), Error> {
        self.modify(&QpAttributes::new().qp_state(QueueState::Reset))
    }

    /// Removes the completions of the queue pair, which must be in RESET, from `cq`. See
    /// [`QueuePair::purge`].
    pub fn purge(&mut self, cq: &mut CompletionQueue) -> Result<u32, Error> {
        self.purger()?.purge(cq)
    }

    /// Returns a handle that purges completion queues, for callers that do not hold this half
    /// meanwhile: a thread that holds a completion queue may wait for this half. The queue pair
    /// must be in RESET, and stay there until all queues are purged.
    pub fn purger(&self) -> Result<Purger, Error> {
        if self.state != QueueState::Reset {
            let what = "the queue pair is not in RESET: reset it first, or the device still writes \
                        its completions";
            return Err(Error::invalid(Purger::VERB, what.into()));
        }
        Ok(Purger(Arc::clone(&self.inner)))
    }

    /// Whether the kernel has the queue pair in RESET, because a reset was carried out and failed
    /// only afterwards. If so, notes that state here, too.
    #[cold]
    fn finds_reset(&mut self) -> bool {
        let found = self.query().is_ok_and(|info| info.qp_state == QueueState::Reset);
        if found {
            self.note_state(QueueState::Reset);
        }
        found
    }

    /// See [`QueuePair::quiesce_within`]; `None` is no limit.
    fn quiesce(
        &mut self,
        cqs: &mut [&mut CompletionQueue],
        limit: Option<Duration>,
        mut each: impl FnMut(WorkCompletion<'_>),
    ) -> Result<Vec<NotDone>, QuiesceError> {
        let mut not_done = Vec::new();
        let inner = Arc::clone(&self.inner);
        let given = |own| cqs.iter().any(|cq| Arc::ptr_eq(own, &cq.inner));
        let started = if !given(&inner.send_cq) || !given(&inner.recv_cq) {
            let what = "a completion queue of the queue pair is missing: pass both";
            Err(Error::invalid("quiesce", what.into()))
        } else if self.state == QueueState::Reset {
            Ok(())
        } else {
            self.to_error().or_else(|error| if self.finds_reset() { Ok(()) } else { Err(error) })
        };
        let mut failed = started.err().map(QuiesceFault::Call);
        // Outside the error state, requests need not complete, but some may have.
        let flushed = failed.is_none() && self.state != QueueState::Reset;
        let end = limit.and_then(|limit| Some((limit, Instant::now().checked_add(limit)?)));
        let room: usize = cqs.iter().map(|cq| cq.capacity() as usize).sum();
        let mut late = 0;
        while flushed && inner.is_busy() || inner.has_completions() {
            let mut count = 0;
            for cq in &mut *cqs {
                let polled = cq.poll(usize::MAX, |completion| {
                    inner.note(&completion, &mut not_done);
                    each(completion);
                });
                match polled {
                    Ok(polled) => count += polled,
                    Err(error) => failed = failed.or(Some(QuiesceFault::Poll(error))),
                }
            }
            if count == 0 && failed.is_some() {
                break;
            }
            if let Some((limit, end)) = end
                && Instant::now() >= end
            {
                // Completions that are already in the queues are still polled, at most as many as
                // the queues hold: others may keep arriving.
                late += count;
                if count == 0 || late >= room {
                    failed = failed.or(Some(QuiesceFault::TimedOut(limit)));
                    break;
                }
            }
            if count == 0 {
                std::thread::yield_now();
            }
        }
        inner.add_unknown(&mut not_done);
        match failed {
            None => Ok(not_done),
            Some(error) => Err(QuiesceError { error, not_done }),
        }
    }
}

/// Removes the completions of a queue pair that was reset. See [`ControlHalf::purger`].
pub struct Purger(Arc<QpInner>);

impl fmt::Debug for Purger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Purger").finish_non_exhaustive()
    }
}

impl Purger {
    const VERB: &str = "purge";

    /// Removes the completions from `cq`. See [`QueuePair::purge`].
    pub fn purge(&self, cq: &mut CompletionQueue) -> Result<u32, Error> {
        let Self(inner) = self;
        inner.context.check_process(Self::VERB)?;
        if ![&inner.send_cq, &inner.recv_cq].into_iter().any(|own| Arc::ptr_eq(own, &cq.inner)) {
            let what = "the queue pair does not complete on this completion queue";
            return Err(Error::invalid(Self::VERB, what.into()));
        }
        Ok(cq.purge(&inner.index))
    }
}

/// # From an error back to work
/// When a request fails, the device moves the queue pair to the error state and completes all other
/// requests with [`CompletionError::is_flushed`]. To use the queue pair again:
/// [`quiesce`](QueuePair::quiesce) it, which returns the requests that were not executed;
/// [`reset`](QueuePair::reset) it; connect it again, as the peer must, too; then post the
/// unfinished requests again, if it is harmless to execute them twice. `docs/STATES.md` has all
/// steps.
///
/// ```
/// use mlx5::{Access, ConnectOptions, Psn, QueueState, RemoteAddress, SendFlags, transport::Rc};
/// use mlx5_sim::{SimConfig, Simulator};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let simulator = Simulator::new(SimConfig::new());
/// let context = mlx5::devices_on(simulator.kernel())?[0].open()?;
/// let pd = context.alloc_pd()?;
/// let mut cq = context.create_cq(64).build()?;
/// let memory = pd.memory(4096).access(Access::LOCAL_WRITE | Access::REMOTE_WRITE).register()?;
/// let mut near = pd.create_qp::<Rc>(&cq, &cq).max_inline_data(8).build()?;
/// let mut far = pd.create_qp::<Rc>(&cq, &cq).build()?;
/// let (port, psn) = (context.local_port(1, None)?, Psn::default());
/// let options = ConnectOptions::default();
/// let (here, there) = (near.endpoint(&port, psn, &options), far.endpoint(&port, psn, &options));
/// near.connect(&port, psn, &there, &options)?;
/// far.connect(&port, psn, &here, &options)?;
///
/// // The first of three has a wrong key: it fails, and the others are flushed.
/// let good = memory.remote(0..)?;
/// let mut wrong = good;
/// wrong.rkey = !good.rkey;
/// for (wr_id, to) in [(1, wrong), (2, good), (3, good)] {
///     let mut batch = near.wr_start();
///     batch.wr(wr_id, SendFlags::SIGNALED).rdma_write(to).inline_data(b"8 bytes!");
///     batch.complete()?;
/// }
/// let mut completions = 0;
/// let not_done = near.quiesce(&mut [&mut cq], |_| completions += 1)?;
/// assert_eq!(not_done.iter().map(|one| one.wr_id).collect::<Vec<_>>(), [1, 2, 3]);
/// assert_eq!(completions, 3);
///
/// // The peer's side has nothing to finish.
/// far.quiesce(&mut [&mut cq], |_| {})?;
/// for qp in [&mut near, &mut far] {
///     qp.reset()?;
/// }
/// // New sequence numbers, so that packets of the former connection are not taken for its own.
/// let psn = Psn::wrapping(psn.get() + 0x1000);
/// let (here, there) = (near.endpoint(&port, psn, &options), far.endpoint(&port, psn, &options));
/// near.connect(&port, psn, &there, &options)?;
/// far.connect(&port, psn, &here, &options)?;
/// let mut batch = near.wr_start();
/// batch.wr(4, SendFlags::SIGNALED).rdma_write(good).inline_data(b"8 bytes!");
/// batch.complete()?;
/// while cq.poll(1, |completion| assert_eq!((completion.wr_id(), completion.status()), (4, Ok(()))))? == 0 {}
/// # Ok(())
/// # }
/// ```
impl<T: QueuePairTransport> QueuePair<T> {
    /// Moves the queue pair to the error state: the device completes every request that is or will
    /// be posted with [`CompletionError::is_flushed`]. Not possible in RESET, where nothing can be
    /// posted.
    pub fn to_error(&mut self) -> Result<(), Error> {
        self.control.to_error()
    }

    /// Resets the queue pair, from any state. The device drops the posted requests without
    /// completing them.
    ///
    /// The next polls still return completions that are already in a completion queue. The queue
    /// pair can leave RESET only when none is left: poll them, or remove them with
    /// [`QueuePair::purge`].
    pub fn reset(&mut self) -> Result<(), Error> {
        self.modify(&QpAttributes::new().qp_state(QueueState::Reset))
    }

    /// Removes the completions of the queue pair, which must be in RESET, from a completion queue,
    /// and returns their number. Completions of other queue pairs stay, in order. Receive requests
    /// of a shared receive queue that the removed completions name become free.
    ///
    /// libmlx5 does this when it resets a queue pair. If sends and receives complete on two queues,
    /// purge both. After that the requests are forgotten: [`QueuePair::quiesce`] does not return
    /// them.
    pub fn purge(&mut self, cq: &mut CompletionQueue) -> Result<u32, Error> {
        let count = self.control.purge(cq)?;
        if self.was_reset && !self.control.inner.has_completions() {
            self.start_over()?;
        }
        Ok(count)
    }

    /// Forgets the requests from before a reset. Fails while a completion queue still has
    /// completions of them, as [`QueuePair::modify`] does when leaving RESET. In another state it
    /// does nothing.
    pub fn forget(&mut self) -> Result<(), Error> {
        if self.was_reset { self.start_over() } else { Ok(()) }
    }

    /// Polls `cqs`, the completion queues of a queue pair in RESET that have completions of no
    /// other one. Passes each completion to `each` with the index of its queue, then
    /// [forgets](QueuePair::forget) the requests without a completion and returns them: no
    /// completion can name them any more, and no other call returns them again.
    ///
    /// Each request is either passed to `each` or returned. On an error nothing is forgotten. An
    /// error of polling is returned with the requests if none of their completions is left.
    pub(crate) fn forget_unfinished<const N: usize>(
        &mut self,
        mut cqs: [&mut CompletionQueue; N],
        mut each: impl FnMut(usize, WorkCompletion<'_>),
    ) -> Result<(Vec<NotDone>, Result<(), PollError>), Error> {
        let mut unfinished = Vec::new();
        let mut found_nothing = false;
        loop {
            let (mut count, mut polled) = (0, Ok(()));
            for (place, cq) in cqs.iter_mut().enumerate() {
                match cq.poll(usize::MAX, |completion| each(place, completion)) {
                    Ok(more) => count += more,
                    Err(error) => polled = polled.and(Err(error)),
                }
            }
            unfinished.clear();
            if self.was_reset {
                self.control.inner.add_unknown(&mut unfinished);
            }
            match self.forget() {
                Ok(()) => return Ok((unfinished, polled)),
                // A completion arrived after they were polled. Each is of another request.
                Err(_) if count != 0 || !found_nothing => found_nothing = count == 0,
                Err(error) => {
                    return Err(match polled {
                        Ok(()) => error,
                        Err(polled) => Error::invalid("restart", polled.to_string()),
                    });
                }
            }
        }
    }

    /// Stops the queue pair: moves it to the error state, and polls `cqs`, its completion queues,
    /// until every request has completed. Returns the requests that were not executed, in order of
    /// completion. `each` gets every completion that is polled, also those of other queue pairs.
    ///
    /// In RESET, also if a failed reset was nevertheless carried out, it returns the requests from
    /// before the reset that have no completion. On an error, the list in the error also has the
    /// requests whose result is unknown.
    ///
    /// It waits without a limit: use [`QueuePair::quiesce_within`] for a device that may withhold
    /// completions.
    ///
    /// Requests of a shared receive queue are not flushed, because they do not belong to the queue
    /// pair. A message that was arriving completes later, at the latest before
    /// [`AsyncEvent::QpLastWqeReached`](crate::AsyncEvent::QpLastWqeReached).
    pub fn quiesce(
        &mut self,
        cqs: &mut [&mut CompletionQueue],
        each: impl FnMut(WorkCompletion<'_>),
    ) -> Result<Vec<NotDone>, QuiesceError> {
        self.quiesce_until(cqs, None, each)
    }

    /// Like [`QueuePair::quiesce`], but waits for at most `timeout` ([`QuiesceFault::TimedOut`]).
    ///
    /// After that, the device still owns the requests that the error lists as
    /// [`WhyNotDone::Unknown`], and may use their memory. Another call waits for them, and returns
    /// requests in addition to this list. [`QueuePair::reset`] makes the device drop them; then a
    /// call returns them as unknown.
    pub fn quiesce_within(
        &mut self,
        cqs: &mut [&mut CompletionQueue],
        timeout: Duration,
        each: impl FnMut(WorkCompletion<'_>),
    ) -> Result<Vec<NotDone>, QuiesceError> {
        self.quiesce_until(cqs, Some(timeout), each)
    }

    fn quiesce_until(
        &mut self,
        cqs: &mut [&mut CompletionQueue],
        limit: Option<Duration>,
        each: impl FnMut(WorkCompletion<'_>),
    ) -> Result<Vec<NotDone>, QuiesceError> {
        let quiesced = self.control.quiesce(cqs, limit, each);
        self.was_reset |= self.control.state == QueueState::Reset;
        quiesced
    }
}

impl<T: QueuePairTransport> SharedQueuePair<T> {
    /// Moves the queue pair to the error state. See [`QueuePair::to_error`].
    pub fn to_error(&self) -> Result<(), Error> {
        self.own_control(MODIFY)?.to_error()
    }

    /// Resets the queue pair. See [`QueuePair::reset`].
    pub fn reset(&self) -> Result<(), Error> {
        self.own_control(MODIFY)?.reset()
    }

    /// Removes the completions of the queue pair, which must be in RESET, from `cq`. See
    /// [`QueuePair::purge`]. All halves are locked meanwhile.
    pub fn purge(&self, cq: &mut CompletionQueue) -> Result<u32, Error> {
        let mut control = self.own_control(Purger::VERB)?;
        let count = control.purge(cq)?;
        if !control.inner.has_completions() {
            self.start_over(&control)?;
        }
        Ok(count)
    }

    /// Stops the queue pair. See [`QueuePair::quiesce`]. All halves are locked meanwhile: posting
    /// threads wait, and `each` must not use the queue pair.
    pub fn quiesce(
        &self,
        cqs: &mut [&mut CompletionQueue],
        each: impl FnMut(WorkCompletion<'_>),
    ) -> Result<Vec<NotDone>, QuiesceError> {
        self.quiesce_until(cqs, None, each)
    }

    /// Stops the queue pair, waiting for at most `timeout`. See [`QueuePair::quiesce_within`].
    pub fn quiesce_within(
        &self,
        cqs: &mut [&mut CompletionQueue],
        timeout: Duration,
        each: impl FnMut(WorkCompletion<'_>),
    ) -> Result<Vec<NotDone>, QuiesceError> {
        self.quiesce_until(cqs, Some(timeout), each)
    }

    fn quiesce_until(
        &self,
        cqs: &mut [&mut CompletionQueue],
        limit: Option<Duration>,
        each: impl FnMut(WorkCompletion<'_>),
    ) -> Result<Vec<NotDone>, QuiesceError> {
        const VERB: &str = "quiesce";
        let own = self.own_control(VERB).and_then(|control| Ok((control, self.own_posters(VERB)?)));
        match own {
            Ok((mut control, _posters)) => control.quiesce(cqs, limit, each),
            Err(error) => {
                Err(QuiesceError { error: QuiesceFault::Call(error), not_done: Vec::new() })
            }
        }
    }
}
