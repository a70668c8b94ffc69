//! Reliable connections: listening, connecting, and what both come to.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mlx5::transport::Rc;
use mlx5::{Device, Errno, Kernel, LinuxKernel, QueuePair, QueueState};
use mlx5_uapi::rdma_cm::PortSpace;

use crate::attributes::Prepare;
use crate::channel::EventChannel;
use crate::data::PrivateData;
use crate::error::{Error, ErrorKind};
use crate::event::EventKind;
use crate::id::{Id, ip};
use crate::param::{ConnectParam, Remote};

/// The time limit of a wait for which none was set.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// When a wait ends.
#[derive(Clone, Copy)]
struct Deadline(Option<Instant>);

impl Deadline {
    fn after(timeout: Duration) -> Self {
        Self(Instant::now().checked_add(timeout))
    }

    fn left(self) -> Option<Duration> {
        self.0.map(|at| at.saturating_duration_since(Instant::now()))
    }
}

/// Waits for an event of a channel that has one identifier: what `wanted` returns of it. Any other
/// one that ends the connection is an error.
fn wait_for<R>(
    channel: &EventChannel,
    deadline: Deadline,
    (operation, what): (&'static str, &'static str),
    mut wanted: impl FnMut(&EventKind) -> Option<R>,
) -> Result<R, Error> {
    loop {
        let Some(event) = channel.wait(deadline.left())? else {
            return Err(Error::timed_out(operation, what));
        };
        if let Some(result) = wanted(&event.kind) {
            return Ok(result);
        }
        if let Some(error) = failure(operation, event.kind) {
            return Err(error);
        }
    }
}

/// The error that an event stands for.
fn failure(operation: &'static str, event: EventKind) -> Option<Error> {
    Some(match event {
        EventKind::AddressError(errno)
        | EventKind::RouteError(errno)
        | EventKind::ConnectError(errno) => Error::kernel(operation, errno),
        EventKind::Unreachable(status) if status < 0 => {
            Error::kernel(operation, Errno::from_raw(-status))
        }
        EventKind::Unreachable(_) => {
            let what = "the program at the other end refused, or nobody listens there";
            Error::new(operation, ErrorKind::Unreachable, what)
        }
        EventKind::Rejected(rejection) => Error::rejected(operation, rejection),
        EventKind::Disconnected(_) => {
            Error::new(operation, ErrorKind::Disconnected, "the peer ended the connection")
        }
        EventKind::DeviceRemoval => {
            let what = "the device is gone: drop what belongs to it, and connect anew";
            Error::new(operation, ErrorKind::DeviceGone, what)
        }
        EventKind::AddressChange => {
            let what = "the address moved to another device: connect anew";
            Error::new(operation, ErrorKind::Disconnected, what)
        }
        _ => return None,
    })
}

/// Tries each address that a name has; returns the error of the last.
fn each<A: ToSocketAddrs, R>(
    operation: &'static str,
    addresses: A,
    mut attempt: impl FnMut(SocketAddr) -> Result<R, Error>,
) -> Result<R, Error> {
    let invalid = |what: String| Error::new(operation, ErrorKind::InvalidArgument, what);
    let addresses = addresses
        .to_socket_addrs()
        .map_err(|error| invalid(format!("the address cannot be understood or found: {error}")))?;
    let mut last = None;
    for address in addresses {
        match attempt(address) {
            Ok(result) => return Ok(result),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| invalid("the name has no address".into())))
}

/// Listens for reliable connections.
#[derive(Debug)]
pub struct Listener {
    channel: EventChannel,
    id: Id,
}

impl Listener {
    /// Listens at an address of this machine. Port 0 lets the kernel choose one; the unspecified
    /// address stands for all.
    pub fn bind(address: impl ToSocketAddrs) -> Result<Self, Error> {
        Self::bind_on(Arc::new(LinuxKernel::new()), address)
    }

    /// Listens at an address of `kernel`, for example a simulated one.
    pub fn bind_on(kernel: Arc<dyn Kernel>, address: impl ToSocketAddrs) -> Result<Self, Error> {
        each("bind", address, |address| {
            let channel = EventChannel::open_on(Arc::clone(&kernel))?;
            let id = channel.create_id(PortSpace::Tcp)?;
            id.bind(address)?;
            id.listen(0)?;
            Ok(Self { channel, id })
        })
    }

    /// Listens with an identifier that is bound and listens, alone on its channel: for options that
    /// this type does not set, such as the backlog.
    pub fn from_parts(channel: EventChannel, id: Id) -> Self {
        Self { channel, id }
    }

    /// Returns the address that it listens at.
    pub fn local_addr(&self) -> Result<SocketAddr, Error> {
        let what = "the identifier is not bound to an IP address";
        let none = || Error::new("local_addr", ErrorKind::WrongState, what);
        ip(self.id.local_addr()?).ok_or_else(none)
    }

    /// Waits for the next request, for at most `timeout`; `None` stands for
    /// [`DEFAULT_TIMEOUT`].
    pub fn next(&mut self, timeout: Option<Duration>) -> Result<Request, Error> {
        const OPERATION: &str = "accept";
        let deadline = Deadline::after(timeout.unwrap_or(DEFAULT_TIMEOUT));
        loop {
            let Some(event) = self.channel.wait(deadline.left())? else {
                return Err(Error::timed_out(OPERATION, "a request"));
            };
            match event.kind {
                EventKind::ConnectRequest { id, remote } => {
                    return Ok(Request { id, remote, timeout: DEFAULT_TIMEOUT });
                }
                other => {
                    if let Some(error) = failure(OPERATION, other) {
                        return Err(error);
                    }
                }
            }
        }
    }
}

/// Readable while a request waits.
impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

/// A request for a connection. Dropping it rejects.
#[derive(Debug)]
#[must_use = "dropping a request rejects it"]
pub struct Request {
    id: Id,
    remote: Remote,
    timeout: Duration,
}

impl Request {
    /// Sets the time limit of accepting. Default: [`DEFAULT_TIMEOUT`].
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Returns the device where the queue pair is to be created.
    pub fn device(&self) -> Result<Device, Error> {
        self.id.device()
    }

    /// Returns the peer's private data, followed by zeros.
    pub fn private_data(&self) -> &PrivateData {
        &self.remote.private_data
    }

    /// Returns what the peer said of itself.
    pub fn remote(&self) -> &Remote {
        &self.remote
    }

    /// Returns the peer's address.
    pub fn peer_addr(&self) -> Result<Option<SocketAddr>, Error> {
        Ok(ip(self.id.peer_addr()?))
    }

    /// Returns the identifier, for what this type does not do.
    pub fn id(&self) -> &Id {
        &self.id
    }

    /// Brings the queue pair to INIT, where receives can be posted before the peer may send.
    pub fn init(&self, qp: &mut QueuePair<Rc>) -> Result<(), Error> {
        self.id.init(qp)
    }

    /// Accepts: connects the queue pair, which is in RESET or INIT, and waits until the peer is
    /// ready. `private_data` has at most
    /// [`private_data::REPLY`](mlx5_uapi::rdma_cm::private_data::REPLY) bytes.
    pub fn accept(
        mut self,
        mut qp: QueuePair<Rc>,
        private_data: &[u8],
    ) -> Result<Connection, ConnectionFailed> {
        match self.accept_with(&mut qp, private_data) {
            Ok(channel) => {
                let Self { id, remote, timeout } = self;
                Ok(Connection { channel, id, qp, remote, timeout, has_ended: false })
            }
            Err(error) => Err(ConnectionFailed::new(error, qp)),
        }
    }

    fn accept_with(
        &mut self,
        qp: &mut QueuePair<Rc>,
        private_data: &[u8],
    ) -> Result<EventChannel, Error> {
        let deadline = Deadline::after(self.timeout);
        let kernel = Arc::clone(self.id.kernel());
        // A channel of its own: the listener's is for requests.
        let channel = EventChannel::open_on(kernel)?;
        self.id.migrate(&channel)?;
        self.id.to_rts(qp)?;
        let mut param = parameters(qp).private_data(private_data);
        param = param
            .responder_resources(self.remote.responder_resources)
            .initiator_depth(self.remote.initiator_depth);
        // The answer names the vendor that the request named.
        param.ece_vendor = self.remote.ece_vendor;
        self.id.accept(&param)?;
        let what = ("accept", "the peer's word that it is ready");
        wait_for(&channel, deadline, what, |event| {
            matches!(event, EventKind::Established).then_some(())
        })?;
        Ok(channel)
    }

    /// Rejects, with private data of at most
    /// [`private_data::REJECT`](mlx5_uapi::rdma_cm::private_data::REJECT) bytes.
    pub fn reject(self, private_data: &[u8]) -> Result<(), Error> {
        self.id.reject(private_data)
    }
}

/// The parameters of a queue pair.
fn parameters(qp: &QueuePair<Rc>) -> ConnectParam<'static> {
    ConnectParam::new(qp.number()).srq(qp.is_shared())
}

/// Finds the device that leads to a listener, and the route.
pub fn connect(address: impl ToSocketAddrs) -> Result<Resolved, Error> {
    connect_on(Arc::new(LinuxKernel::new()), address)
}

/// Finds the device of `kernel` that leads to a listener, and the route.
pub fn connect_on(kernel: Arc<dyn Kernel>, address: impl ToSocketAddrs) -> Result<Resolved, Error> {
    each("connect", address, |address| {
        let channel = EventChannel::open_on(Arc::clone(&kernel))?;
        let id = channel.create_id(PortSpace::Tcp)?;
        Resolved::resolve(channel, id, address, DEFAULT_TIMEOUT)
    })
}

/// A listener that is known how to reach.
#[derive(Debug)]
pub struct Resolved {
    channel: EventChannel,
    id: Id,
    timeout: Duration,
}

impl Resolved {
    /// Resolves address and route with an identifier of one's own, alone on its channel: for options
    /// that [`connect`] does not set, such as a source address or the type of service.
    pub fn resolve(
        channel: EventChannel,
        id: Id,
        address: SocketAddr,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let deadline = Deadline::after(timeout);
        id.resolve_addr(None, address, timeout)?;
        wait_for(&channel, deadline, ("resolve_addr", "the address"), |event| {
            matches!(event, EventKind::AddressResolved).then_some(())
        })?;
        id.resolve_route(deadline.left().unwrap_or(timeout))?;
        wait_for(&channel, deadline, ("resolve_route", "the route"), |event| {
            matches!(event, EventKind::RouteResolved).then_some(())
        })?;
        Ok(Self { channel, id, timeout })
    }

    /// Sets the time limit of connecting. Default: [`DEFAULT_TIMEOUT`].
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Returns the device where the queue pair is to be created.
    pub fn device(&self) -> Result<Device, Error> {
        self.id.device()
    }

    /// Returns the identifier, for what this type does not do.
    pub fn id(&self) -> &Id {
        &self.id
    }

    /// Brings the queue pair to INIT, where receives can be posted before the peer may send.
    pub fn init(&self, qp: &mut QueuePair<Rc>) -> Result<(), Error> {
        self.id.init(qp)
    }

    /// Connects the queue pair, which is in RESET or INIT. `private_data` has at most 56 bytes.
    pub fn connect(
        self,
        mut qp: QueuePair<Rc>,
        private_data: &[u8],
    ) -> Result<Connection, ConnectionFailed> {
        match self.connect_with(&mut qp, private_data) {
            Ok(remote) => {
                let Self { channel, id, timeout } = self;
                Ok(Connection { channel, id, qp, remote, timeout, has_ended: false })
            }
            Err(error) => Err(ConnectionFailed::new(error, qp)),
        }
    }

    fn connect_with(&self, qp: &mut QueuePair<Rc>, private_data: &[u8]) -> Result<Remote, Error> {
        let deadline = Deadline::after(self.timeout);
        if qp.state() == QueueState::Reset {
            self.id.init(qp)?;
        }
        let device = qp.context().query_device();
        let param = parameters(qp)
            .private_data(private_data)
            .responder_resources(device.max_qp_rd_atom.min(16) as u8)
            .initiator_depth(device.max_qp_init_rd_atom.min(16) as u8);
        self.id.connect(&param)?;
        let what = ("connect", "the peer's answer");
        let remote = wait_for(&self.channel, deadline, what, |event| match event {
            EventKind::ConnectResponse(remote) => Some(*remote),
            _ => None,
        })?;
        self.id.to_rts(qp)?;
        self.id.ready()?;
        Ok(remote)
    }
}

/// A connection did not come about. The queue pair is returned; bring it back to RESET to use it
/// again.
pub struct ConnectionFailed {
    inner: Box<Failed>,
}

// The lock is never contended: it makes the error `Sync`, so that it converts to
// `Box<dyn std::error::Error + Send + Sync>`.
struct Failed {
    error: Error,
    qp: Mutex<QueuePair<Rc>>,
}

impl ConnectionFailed {
    fn new(error: Error, qp: QueuePair<Rc>) -> Self {
        Self { inner: Box::new(Failed { error, qp: Mutex::new(qp) }) }
    }

    /// Returns the error.
    pub fn error(&self) -> &Error {
        &self.inner.error
    }

    /// Returns the error and the queue pair.
    pub fn into_parts(self) -> (Error, QueuePair<Rc>) {
        let Failed { error, qp } = *self.inner;
        (error, qp.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for ConnectionFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionFailed").field("error", self.error()).finish_non_exhaustive()
    }
}

impl fmt::Display for ConnectionFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error().fmt(f)
    }
}

impl std::error::Error for ConnectionFailed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.error())
    }
}

impl From<ConnectionFailed> for Error {
    fn from(failed: ConnectionFailed) -> Self {
        failed.into_parts().0
    }
}

/// A connected queue pair. Dropping it ends the connection, which the peer is told.
#[derive(Debug)]
pub struct Connection {
    // Destroyed in this order: the peer hears of the end before the queue pair is gone.
    id: Id,
    qp: QueuePair<Rc>,
    channel: EventChannel,
    remote: Remote,
    timeout: Duration,
    has_ended: bool,
}

impl Connection {
    /// Returns the queue pair.
    pub fn qp(&self) -> &QueuePair<Rc> {
        &self.qp
    }

    /// Returns the queue pair, to post and to change it.
    pub fn qp_mut(&mut self) -> &mut QueuePair<Rc> {
        &mut self.qp
    }

    /// Returns the peer's private data, followed by zeros.
    pub fn private_data(&self) -> &PrivateData {
        &self.remote.private_data
    }

    /// Returns what the peer said of itself.
    pub fn remote(&self) -> &Remote {
        &self.remote
    }

    /// Returns the identifier.
    pub fn id(&self) -> &Id {
        &self.id
    }

    /// Whether the connection has ended, without waiting.
    pub fn has_ended(&mut self) -> Result<bool, Error> {
        match self.wait(Deadline::after(Duration::ZERO)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::TimedOut => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Ends the connection: brings the queue pair to the error state, which flushes it, and tells the
    /// peer. [`Connection::wait_disconnected`] then waits until the peer agrees.
    pub fn disconnect(&mut self) -> Result<(), Error> {
        self.qp.to_error().map_err(|error| Error::driver("disconnect", error))?;
        self.id.disconnect()
    }

    /// Waits until the connection has ended, for at most `timeout`; `None` stands for the time limit
    /// with which it was connected. If the peer ended it, this side agrees, and the queue pair is in
    /// the error state.
    pub fn wait_disconnected(&mut self, timeout: Option<Duration>) -> Result<(), Error> {
        self.wait(Deadline::after(timeout.unwrap_or(self.timeout)))
    }

    fn wait(&mut self, deadline: Deadline) -> Result<(), Error> {
        if self.has_ended {
            return Ok(());
        }
        let what = ("disconnect", "the end of the connection");
        wait_for(&self.channel, deadline, what, |event| {
            matches!(event, EventKind::Disconnected(_)).then_some(())
        })?;
        self.has_ended = true;
        self.disconnect()
    }

    /// Returns the queue pair, the identifier and its channel, whose events are now the caller's.
    pub fn into_parts(self) -> (QueuePair<Rc>, Id, EventChannel) {
        (self.qp, self.id, self.channel)
    }
}

/// Readable when the connection has ended.
impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}
