//! Listening for reliable connections, and accepting them.

use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use mlx5::transport::Rc;
use mlx5::{Device, Kernel, LinuxKernel, QueuePair, RetryCount};
use mlx5_uapi::rdma_cm::PortSpace;

use crate::channel::EventChannel;
use crate::connection::{Connection, ConnectionFailed};
use crate::data::PrivateData;
use crate::error::{Error, ErrorKind};
use crate::event::EventKind;
use crate::id::{Id, ip};
use crate::param::Remote;
use crate::settings::{Settings, each, setters};
use crate::wait::{Deadline, failure, late};

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

    /// Makes a listener of a bound and listening identifier that is alone on its channel: for
    /// options that this type does not set, such as the backlog.
    pub fn from_parts(channel: EventChannel, id: Id) -> Self {
        Self { channel, id }
    }

    /// Returns the address at which it listens.
    pub fn local_addr(&self) -> Result<SocketAddr, Error> {
        let what = "the identifier is not bound to an IP address";
        let none = || Error::new("local_addr", ErrorKind::WrongState, what);
        ip(self.id.local_addr()?).ok_or_else(none)
    }

    /// Returns the device that has the address. For the unspecified address there is none: each
    /// request has its own device.
    pub fn device(&self) -> Result<Device, Error> {
        self.id.device()
    }

    /// Returns the identifier, for what this type does not do.
    pub fn id(&self) -> &Id {
        &self.id
    }

    /// Waits for the next request, for at most `timeout`; `None` stands for no limit.
    pub fn next(&mut self, timeout: Option<Duration>) -> Result<Request, Error> {
        let deadline = Deadline::within(timeout);
        loop {
            if let Some(request) = self.try_next()? {
                return Ok(request);
            }
            if !self.channel.wait_readable(deadline.left())? {
                return Err(Error::timed_out("next", "no request came in the given time"));
            }
        }
    }

    /// Returns the next request, or `None` if there is none yet.
    pub fn try_next(&mut self) -> Result<Option<Request>, Error> {
        while let Some(event) = self.channel.poll()? {
            match event.kind {
                EventKind::ConnectRequest { id, remote } => {
                    return Ok(Some(Request { id, remote, settings: Settings::default() }));
                }
                // The listener keeps listening; each request has its own device.
                EventKind::AddressChange => {}
                other => {
                    if let Some(error) = failure("next", other) {
                        return Err(error);
                    }
                }
            }
        }
        Ok(None)
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
    settings: Settings,
}

impl Request {
    setters!();

    /// Returns the device where the queue pair is to be created.
    pub fn device(&self) -> Result<Device, Error> {
        self.id.device()
    }

    /// Returns the peer's private data, followed by zeros.
    pub fn private_data(&self) -> &PrivateData {
        &self.remote.private_data
    }

    /// Returns the peer's parameters.
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
    ///
    /// If the peer never becomes ready, the call takes the whole time limit. A server with several
    /// clients calls [`Request::begin_accept`] instead.
    pub fn accept(
        self,
        qp: QueuePair<Rc>,
        private_data: &[u8],
    ) -> Result<Connection, ConnectionFailed> {
        self.begin_accept(qp, private_data)?.finish()
    }

    /// Accepts without waiting until the peer is ready.
    pub fn begin_accept(
        mut self,
        mut qp: QueuePair<Rc>,
        private_data: &[u8],
    ) -> Result<Accepting, ConnectionFailed> {
        let deadline = Deadline::after(self.settings.timeout);
        match self.accept_with(&mut qp, private_data) {
            Ok(channel) => {
                let Self { id, remote, .. } = self;
                Ok(Accepting { id, qp, channel, remote, deadline, outcome: None })
            }
            Err(error) => Err(ConnectionFailed::new(error, qp)),
        }
    }

    fn accept_with(
        &mut self,
        qp: &mut QueuePair<Rc>,
        private_data: &[u8],
    ) -> Result<EventChannel, Error> {
        // The connection gets its own channel: the listener's is for requests.
        let channel = EventChannel::open_on(Arc::clone(self.id.kernel()))?;
        self.id.migrate(&channel)?;
        self.id.accept_qp(qp, &self.settings.param(qp).private_data(private_data))?;
        Ok(channel)
    }

    /// Rejects, with private data of at most
    /// [`private_data::REJECT`](mlx5_uapi::rdma_cm::private_data::REJECT) bytes.
    pub fn reject(self, private_data: &[u8]) -> Result<(), Error> {
        self.id.reject(private_data)
    }
}

/// An accepted request whose peer has not reported yet that it is ready. Dropping it ends the
/// connection.
#[derive(Debug)]
#[must_use = "dropping it ends the connection"]
pub struct Accepting {
    // Dropped in this order: the peer learns of the end before the queue pair is destroyed.
    id: Id,
    qp: QueuePair<Rc>,
    channel: EventChannel,
    remote: Remote,
    deadline: Deadline,
    outcome: Option<Result<(), Error>>,
}

impl Accepting {
    /// Whether [`Accepting::finish`] returns at once: the peer is ready, the connection failed, or
    /// the time limit is over. If not, call it again when the descriptor is readable.
    pub fn is_settled(&mut self) -> bool {
        while self.outcome.is_none() {
            const OPERATION: &str = "accept";
            self.outcome = match self.channel.poll() {
                Ok(Some(event)) => match event.kind {
                    EventKind::Established => Some(Ok(())),
                    other => failure(OPERATION, other).map(Err),
                },
                Ok(None) if self.deadline.left() == Some(Duration::ZERO) => {
                    let late = late("the peer's word that it is ready");
                    Some(Err(Error::timed_out(OPERATION, late)))
                }
                Ok(None) => return false,
                Err(error) => Some(Err(error)),
            };
        }
        true
    }

    /// Waits until the peer is ready, within the time limit of the request.
    pub fn finish(mut self) -> Result<Connection, ConnectionFailed> {
        while !self.is_settled() {
            if let Err(error) = self.channel.wait_readable(self.deadline.left()) {
                self.outcome = Some(Err(error));
            }
        }
        let Self { id, qp, channel, remote, outcome, .. } = self;
        match outcome {
            Some(Err(error)) => Err(ConnectionFailed::new(error, qp)),
            _ => Ok(Connection::new(id, qp, channel, remote)),
        }
    }
}

/// Readable when an event of the peer is pending.
impl AsFd for Accepting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}
