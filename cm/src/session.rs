//! Connections that are established again after a loss.

use std::fmt;
use std::mem;
use std::net::ToSocketAddrs;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use mlx5::transport::Rc;
use mlx5::{
    CompletionQueue, ErrorKind as DriverErrorKind, Kernel, NotDone, QueuePair, QueueState,
    QuiesceError, QuiesceFault, WhyNotDone, WorkCompletion,
};
use mlx5_uapi::rdma_cm::reject_reason;

use crate::connect::{Resolved, connect_until};
use crate::connection::{Connection, ConnectionFailed};
use crate::error::{Error, ErrorKind};
use crate::listen::Request;
use crate::wait::{DEFAULT_TIMEOUT, Deadline};

/// The shortest and the longest pause between two attempts to connect.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(200));

/// State of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SessionState {
    /// The queue pair is in RESET: [`Session::connect`] or [`Session::accept`] connects it.
    Idle,
    /// The queue pair was connected. [`Connection::has_ended`] says whether it still is.
    Connected,
    /// Connecting or stopping failed, or the session was made of a queue pair that was not in
    /// RESET: call [`Session::stop`] next.
    Stopping,
    /// The device is gone, and the queue pair with it: open the device again, and make another
    /// session.
    Lost,
}

/// A queue pair with its current connection, if it has one. The session connects the queue pair,
/// stops it after an error or after the peer has left, and reconnects it, to the same peer or
/// another.
///
/// A session never posts. If a posted request succeeds, an earlier poll or the closure of
/// [`Session::stop`] gets its completion. If not, [`Session::stop`] returns the request, once, as
/// not done. A request that was flushed may nevertheless have reached the peer: only the program
/// knows whether the request may be repeated.
///
/// ```
/// # use mlx5::{SendFlags, transport::Rc};
/// # use mlx5_cm as cm;
/// # use std::{net::SocketAddr, thread, time::Duration};
/// # type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
/// # let config = mlx5_sim::SimConfig::new().ports([mlx5_sim::PortConfig::ROCE]);
/// # let simulator = mlx5_sim::Simulator::new(config);
/// # let kernel = simulator.kernel();
/// # let mut listener = cm::Listener::bind_on(kernel.clone(), "10.0.0.1:7472")?;
/// # let address: SocketAddr = listener.local_addr()?;
/// # let server = thread::spawn(move || -> Result<()> {
/// #     let context = listener.device()?.open()?;
/// #     let pd = context.alloc_pd()?;
/// #     let cq = context.create_cq(16).build()?;
/// #     for _ in 0..2 {
/// #         let qp = pd.create_qp::<Rc>(&cq, &cq).build()?;
/// #         drop(listener.next(None)?.accept(qp, b"")?);
/// #     }
/// #     Ok(())
/// # });
/// let context = mlx5::devices_on(kernel.clone())?.remove(0).open()?;
/// let pd = context.alloc_pd()?;
/// let mut cq = context.create_cq(16).build()?;
/// let qp = pd.create_qp::<Rc>(&cq, &cq).max_inline_data(8).build()?;
///
/// let mut session = cm::Session::new(qp);
/// for _ in 0..2 {
///     let patience = Duration::from_secs(10);
///     let not_done = session.reconnect(
///         &kernel,
///         address,
///         patience,
///         &mut [&mut cq],
///         |peer, qp| peer.connect(qp, b"it is me again"),
///         |completion| println!("{completion:?}"),
///     )?;
///     println!("{} requests of the former connection were not done", not_done.len());
///     let connection = session.connection().ok_or("it is connected")?;
///     // The peer leaves.
///     connection.wait_disconnected(None)?;
/// }
/// let not_done = session.stop(&mut [&mut cq], |completion| println!("{completion:?}"))?;
/// assert!(not_done.is_empty());
/// # server.join().unwrap()?;
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[derive(Debug)]
pub struct Session {
    state: State,
    /// Requests that were not done and are not reported yet.
    not_done: Vec<NotDone>,
    /// Time that the device has to flush the queue pair.
    stop_timeout: Duration,
}

#[derive(Debug)]
enum State {
    Idle(QueuePair<Rc>),
    Connected(Box<Connection>),
    Stopping(QueuePair<Rc>),
    Lost,
}

/// Stopping failed.
#[derive(Debug)]
pub struct StopFailed {
    /// The reason.
    pub error: Error,
    /// If the device is gone, the requests that were not done, and those whose outcome is unknown.
    /// Otherwise the list is empty, and a later [`Session::stop`] returns the requests.
    pub not_done: Vec<NotDone>,
}

impl fmt::Display for StopFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for StopFailed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl From<StopFailed> for Error {
    fn from(failed: StopFailed) -> Self {
        failed.error
    }
}

impl Session {
    /// Makes a session of a queue pair. If it is not in RESET, call [`Session::stop`] first.
    pub fn new(qp: QueuePair<Rc>) -> Self {
        let state = match qp.state() {
            QueueState::Reset => State::Idle(qp),
            _ => State::Stopping(qp),
        };
        Self { state, not_done: Vec::new(), stop_timeout: DEFAULT_TIMEOUT }
    }

    /// Sets how long stopping waits until the device has completed the posted requests. Default:
    /// [`DEFAULT_TIMEOUT`].
    #[must_use]
    pub fn stop_timeout(mut self, timeout: Duration) -> Self {
        self.stop_timeout = timeout;
        self
    }

    /// Returns the session's state.
    pub fn state(&self) -> SessionState {
        match self.state {
            State::Idle(_) => SessionState::Idle,
            State::Connected(_) => SessionState::Connected,
            State::Stopping(_) => SessionState::Stopping,
            State::Lost => SessionState::Lost,
        }
    }

    /// Returns the connection, if there is one.
    pub fn connection(&mut self) -> Option<&mut Connection> {
        match &mut self.state {
            State::Connected(connection) => Some(connection),
            _ => None,
        }
    }

    /// Returns the queue pair, unless the device is gone, and the requests that were not done and
    /// are not reported yet, because a [`Session::stop`] or [`Session::reconnect`] failed. Requests
    /// that are still posted on the queue pair are not among them.
    #[must_use = "the requests are reported here for the last time"]
    pub fn into_queue_pair(self) -> (Option<QueuePair<Rc>>, Vec<NotDone>) {
        let qp = match self.state {
            State::Idle(qp) | State::Stopping(qp) => Some(qp),
            State::Connected(connection) => Some(connection.into_parts().0),
            State::Lost => None,
        };
        (qp, self.not_done)
    }

    /// Connects to the listener at the resolved address, in one attempt. After a failure call
    /// [`Session::stop`], because receives may be posted.
    pub fn connect(
        &mut self,
        peer: Resolved,
        private_data: &[u8],
    ) -> Result<&mut Connection, Error> {
        self.with("connect", |qp| peer.connect(qp, private_data))
    }

    /// Accepts a connection request, in one attempt. After a failure call [`Session::stop`],
    /// because receives may be posted.
    pub fn accept(
        &mut self,
        request: Request,
        private_data: &[u8],
    ) -> Result<&mut Connection, Error> {
        self.with("accept", |qp| request.accept(qp, private_data))
    }

    fn with(
        &mut self,
        operation: &'static str,
        connect: impl FnOnce(QueuePair<Rc>) -> Result<Connection, ConnectionFailed>,
    ) -> Result<&mut Connection, Error> {
        let (state, error) = match mem::replace(&mut self.state, State::Lost) {
            State::Idle(qp) => match connect(qp) {
                Ok(connection) => (State::Connected(Box::new(connection)), None),
                Err(failed) => {
                    let (error, qp) = failed.into_parts();
                    (State::Stopping(qp), Some(error))
                }
            },
            State::Lost => (State::Lost, Some(gone(operation))),
            other => {
                let what = "the queue pair is not idle: stop the session first";
                (other, Some(Error::new(operation, ErrorKind::WrongState, what)))
            }
        };
        self.state = state;
        match (error, &mut self.state) {
            (None, State::Connected(connection)) => Ok(connection),
            (error, _) => Err(error.unwrap_or_else(|| gone(operation))),
        }
    }

    /// Ends the connection, if there is one: disconnects, which notifies the peer, flushes the
    /// queue pair, polls its completion queues `cqs` until every request has completed, and resets
    /// the queue pair. Returns the requests that were not done and are not reported yet. `each`
    /// gets every completion that is polled, also those of other queue pairs.
    ///
    /// The call waits at most [`Session::stop_timeout`] for the completions, and then fails with
    /// [`ErrorKind::TimedOut`]: the device still has requests and may use their memory until a
    /// later call succeeds, or the queue pair is dropped.
    ///
    /// In an idle session there is nothing to end. After an error, either the session is in
    /// [`SessionState::Stopping`] and the program may call `stop` again, or the device is gone.
    pub fn stop(
        &mut self,
        cqs: &mut [&mut CompletionQueue],
        each: impl FnMut(WorkCompletion<'_>),
    ) -> Result<Vec<NotDone>, StopFailed> {
        self.end(cqs, each, false)
    }

    /// Ends the connection like [`Session::stop`], but does not wait for the device: resets the
    /// queue pair, which makes the device forget the posted requests. Requests without a completion
    /// are returned as [`WhyNotDone::Unknown`]. Use this call if the device does not complete the
    /// requests in time.
    pub fn stop_now(
        &mut self,
        cqs: &mut [&mut CompletionQueue],
        each: impl FnMut(WorkCompletion<'_>),
    ) -> Result<Vec<NotDone>, StopFailed> {
        self.end(cqs, each, true)
    }

    fn end(
        &mut self,
        cqs: &mut [&mut CompletionQueue],
        each: impl FnMut(WorkCompletion<'_>),
        now: bool,
    ) -> Result<Vec<NotDone>, StopFailed> {
        const OPERATION: &str = "stop";
        let mut qp = match mem::replace(&mut self.state, State::Lost) {
            State::Idle(qp) => {
                self.state = State::Idle(qp);
                return Ok(mem::take(&mut self.not_done));
            }
            State::Lost => {
                let not_done = mem::take(&mut self.not_done);
                return Err(StopFailed { error: gone(OPERATION), not_done });
            }
            State::Stopping(qp) => qp,
            State::Connected(connection) => {
                let (qp, id, _channel) = connection.into_parts();
                // Notify the peer before this side waits. `disconnect` fails if the connection has
                // ended already; dropping the identifier ends the connection in any case.
                let _ = id.disconnect();
                qp
            }
        };
        // If the device is gone, continue: quiescing detects that as well, and returns the requests
        // with an unknown outcome.
        let reset = if now { qp.reset() } else { Ok(()) };
        let reset = reset.or_else(|error| match error.kind() {
            DriverErrorKind::DeviceGone => Ok(()),
            _ => Err(QuiesceError { error: QuiesceFault::Call(error), not_done: Vec::new() }),
        });
        let quiesced = reset.and_then(|()| qp.quiesce_within(cqs, self.stop_timeout, each));
        let failed = match quiesced {
            Ok(not_done) => {
                self.not_done.extend(not_done);
                // After a reset, quiescing returns the unknown requests until they are forgotten.
                // Do not reset again: if that failed, the next stop would report them twice.
                let reset = if qp.state() == QueueState::Reset { Ok(()) } else { qp.reset() };
                reset.and_then(|()| qp.forget()).err().map(QuiesceFault::Call)
            }
            Err(QuiesceError { error, not_done }) => {
                let is_lost = is_lost(&error);
                // Unless the device is lost, the unknown requests may still complete: a later stop
                // reports them.
                let known = |one: &NotDone| is_lost || one.why != WhyNotDone::Unknown;
                self.not_done.extend(not_done.into_iter().filter(known));
                Some(error)
            }
        };
        let Some(fault) = failed else {
            self.state = State::Idle(qp);
            return Ok(mem::take(&mut self.not_done));
        };
        let not_done = if is_lost(&fault) {
            mem::take(&mut self.not_done)
        } else {
            self.state = State::Stopping(qp);
            Vec::new()
        };
        let error = match fault {
            QuiesceFault::Call(error) => Error::driver(OPERATION, error),
            QuiesceFault::TimedOut(limit) => {
                let what = format!(
                    "the device did not complete every flushed request within {limit:?}: stop again \
                     to wait longer, or call `stop_now`, which makes the device forget them"
                );
                Error::timed_out(OPERATION, what)
            }
            QuiesceFault::Poll(error) => {
                let what = format!("{error}: open the device again, and make another session");
                Error::new(OPERATION, ErrorKind::DeviceGone, what)
            }
            _ => gone(OPERATION),
        };
        Err(StopFailed { error, not_done })
    }

    /// Stops the former connection, if that has not been done, and connects again.
    ///
    /// The call resolves `address`, and passes the result and the queue pair to `attempt`, which
    /// connects them. It tries this again, after pauses that grow to 200 ms, until an attempt
    /// succeeds or `patience` is over. The time of `patience` starts when the former connection has
    /// been stopped. An attempt takes at most [`DEFAULT_TIMEOUT`] to resolve each address, at most
    /// as long to connect unless [`Resolved::timeout`] sets another limit, and no longer than the
    /// rest of `patience`. The call may exceed `patience` by [`Session::stop_timeout`], each time
    /// that it stops the queue pair, and by the time limits of the resolver that looks up a name.
    ///
    /// Returns the requests that were not done and are not reported yet, including receives of
    /// attempts that failed. If the call fails, a later [`Session::stop`] returns these requests.
    ///
    /// The call fails at once if another attempt would fail, too: the device is gone or does not
    /// complete the posted requests within [`Session::stop_timeout`], the peer's program rejects
    /// and gives a reason in its private data, or an argument is wrong. After a rejection without
    /// private data it tries again: the peer's program may have been killed before it could answer,
    /// so that the peer's kernel rejected.
    pub fn reconnect(
        &mut self,
        kernel: &Arc<dyn Kernel>,
        address: impl ToSocketAddrs + Clone,
        patience: Duration,
        cqs: &mut [&mut CompletionQueue],
        mut attempt: impl FnMut(Resolved, QueuePair<Rc>) -> Result<Connection, ConnectionFailed>,
        mut each: impl FnMut(WorkCompletion<'_>),
    ) -> Result<Vec<NotDone>, Error> {
        let (mut deadline, mut pause) = (None, PAUSE.0);
        let mut failure = None;
        loop {
            // Keep the requests that were not done until an attempt has succeeded.
            match self.stop(cqs, &mut each) {
                Ok(not_done) => self.not_done = not_done,
                Err(StopFailed { error, not_done }) => {
                    self.not_done.extend(not_done);
                    return Err(error);
                }
            }
            let deadline = *deadline.get_or_insert_with(|| Deadline::after(patience));
            if deadline.is_over()
                && let Some(error) = failure
            {
                return Err(error);
            }
            let error = match connect_until(kernel, address.clone(), deadline) {
                Err(error) => error,
                Ok(peer) => {
                    let connected = self.with("connect", |qp| match same_device(&peer, &qp) {
                        Ok(()) => attempt(peer, qp),
                        Err(error) => Err(ConnectionFailed::new(error, qp)),
                    });
                    match connected.map(drop) {
                        Ok(()) => return Ok(mem::take(&mut self.not_done)),
                        Err(error) => error,
                    }
                }
            };
            // If the deadline cut this attempt short, the error of the attempt before it says more.
            let was_cut = deadline.is_over() && error.kind() == ErrorKind::TimedOut;
            let error = failure.take().filter(|_| was_cut).unwrap_or(error);
            if deadline.left().is_some_and(|left| left < pause) || !may_pass(&error) {
                return Err(error);
            }
            failure = Some(error);
            thread::sleep(pause);
            pause = (pause * 2).min(PAUSE.1);
        }
    }
}

/// Fails if the route to the peer leads over a device other than the queue pair's.
fn same_device(peer: &Resolved, qp: &QueuePair<Rc>) -> Result<(), Error> {
    let Some(other) = peer.id().other_device(qp)? else { return Ok(()) };
    let what = format!(
        "the address is reached over {other} now, and the queue pair is one of {}: make another \
         session there",
        qp.context().name()
    );
    Err(Error::new("reconnect", ErrorKind::DeviceGone, what))
}

fn gone(operation: &'static str) -> Error {
    let what = "the device is gone: open it again, and make another session";
    Error::new(operation, ErrorKind::DeviceGone, what)
}

/// Whether the queue pair can never complete anything again.
fn is_lost(fault: &QuiesceFault) -> bool {
    match fault {
        QuiesceFault::Call(error) => error.kind() == DriverErrorKind::DeviceGone,
        QuiesceFault::TimedOut(_) => false,
        _ => true,
    }
}

/// Whether another attempt may succeed.
fn may_pass(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::Rejected => error.rejection().is_none_or(|rejection| {
            rejection.reason != reject_reason::CONSUMER_DEFINED
                || rejection.private_data.iter().all(|byte| *byte == 0)
        }),
        ErrorKind::DeviceGone
        | ErrorKind::Forked
        | ErrorKind::InvalidArgument
        | ErrorKind::NoConnectionManager
        | ErrorKind::PermissionDenied
        | ErrorKind::PrivateDataTooLong => false,
        _ => true,
    }
}
