//! Connecting to a listener.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use mlx5::transport::Rc;
use mlx5::{Device, Kernel, LinuxKernel, QueuePair, QueueState, RetryCount};
use mlx5_uapi::rdma_cm::PortSpace;

use crate::channel::EventChannel;
use crate::connection::{Connection, ConnectionFailed};
use crate::error::Error;
use crate::event::EventKind;
use crate::id::Id;
use crate::param::Remote;
use crate::settings::{Settings, each, setters};
use crate::wait::{DEFAULT_TIMEOUT, Deadline, late, wait_for};

/// Finds the device that leads to a listener, and the route.
pub fn connect(address: impl ToSocketAddrs) -> Result<Resolved, Error> {
    connect_on(Arc::new(LinuxKernel::new()), address)
}

/// Finds the device of `kernel` that leads to a listener, and the route.
pub fn connect_on(kernel: Arc<dyn Kernel>, address: impl ToSocketAddrs) -> Result<Resolved, Error> {
    connect_until(&kernel, address, Deadline::within(None))
}

/// As [`connect_on`], with a time limit for this and for the connection, whatever the settings are.
pub(crate) fn connect_until(
    kernel: &Arc<dyn Kernel>,
    address: impl ToSocketAddrs,
    end: Deadline,
) -> Result<Resolved, Error> {
    each("connect", address, |address| {
        let channel = EventChannel::open_on(Arc::clone(kernel))?;
        let id = channel.create_id(PortSpace::Tcp)?;
        Resolved::resolve_until(channel, id, address, DEFAULT_TIMEOUT, end)
    })
}

/// A listener whose device and route are resolved.
#[derive(Debug)]
#[must_use]
pub struct Resolved {
    channel: EventChannel,
    id: Id,
    settings: Settings,
    /// No wait lasts longer, whatever the settings are.
    end: Deadline,
}

impl Resolved {
    /// Resolves address and route with an identifier of one's own, alone on its channel: for
    /// options that [`connect`] does not set, such as a source address or the type of service.
    pub fn resolve(
        channel: EventChannel,
        id: Id,
        address: SocketAddr,
        timeout: Duration,
    ) -> Result<Self, Error> {
        Self::resolve_until(channel, id, address, timeout, Deadline::within(None))
    }

    fn resolve_until(
        channel: EventChannel,
        id: Id,
        address: SocketAddr,
        timeout: Duration,
        end: Deadline,
    ) -> Result<Self, Error> {
        let deadline = Deadline::after(timeout).or(end);
        id.resolve_addr(None, address, deadline.left().unwrap_or(timeout))?;
        let what = ("resolve_addr", &*late("the address"));
        wait_for(&channel, deadline, what, |event| {
            matches!(event, EventKind::AddressResolved).then_some(())
        })?;
        id.resolve_route(deadline.left().unwrap_or(timeout))?;
        let what = ("resolve_route", &*late("the route"));
        wait_for(&channel, deadline, what, |event| {
            matches!(event, EventKind::RouteResolved).then_some(())
        })?;
        Ok(Self { channel, id, settings: Settings { timeout, ..Settings::default() }, end })
    }

    setters!();

    /// Sets how often both ends send again without an acknowledgement. Default: 7.
    pub fn retry_count(mut self, count: RetryCount) -> Self {
        self.settings.param = self.settings.param.retry_count(count);
        self
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
                let Self { channel, id, .. } = self;
                Ok(Connection::new(id, qp, channel, remote))
            }
            Err(error) => Err(ConnectionFailed::new(error, qp)),
        }
    }

    fn connect_with(&self, qp: &mut QueuePair<Rc>, private_data: &[u8]) -> Result<Remote, Error> {
        let deadline = Deadline::after(self.settings.timeout).or(self.end);
        self.id.check_device("connect", qp)?;
        if qp.state() == QueueState::Reset {
            self.id.init(qp)?;
        }
        let device = qp.context().query_device();
        let wanted = self.settings.param(qp).private_data(private_data);
        let param = wanted
            .responder_resources(
                wanted.responder_resources.min(device.max_qp_rd_atom.min(255) as u8),
            )
            .initiator_depth(wanted.initiator_depth.min(device.max_qp_init_rd_atom.min(255) as u8));
        self.id.connect(&param)?;
        let what = ("connect", &*late("the peer's answer"));
        let remote = wait_for(&self.channel, deadline, what, |event| match event {
            EventKind::ConnectResponse(remote) => Some(*remote),
            _ => None,
        })?;
        self.id.to_rts_with(qp, &param)?;
        self.id.ready()?;
        Ok(remote)
    }
}
