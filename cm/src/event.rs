//! Events that the kernel reports on a channel.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mlx5::{AhAttr, Errno, QpType};
use mlx5_uapi::rdma_cm::{
    ConnParam, CreateId, EventResp, EventType, GetEvent, PortSpace, UdParam, call,
};
use mlx5_uapi::wait::wait_readable;
use zerocopy::FromBytes;

use crate::attributes::decode_path;
use crate::channel::{Channel, EventChannel, IdKey};
use crate::data::PrivateData;
use crate::error::{Error, Rejection};
use crate::id::Id;
use crate::param::Remote;

impl EventChannel {
    /// Creates an identifier: for connections in the port space [`PortSpace::Tcp`], for datagrams
    /// in [`PortSpace::Udp`] and [`PortSpace::IpoIb`], for reliable connections in
    /// [`PortSpace::Ib`].
    pub fn create_id(&self, space: PortSpace) -> Result<Id, Error> {
        let kind = match space {
            PortSpace::Tcp | PortSpace::Ib => QpType::Rc,
            PortSpace::Udp | PortSpace::IpoIb => QpType::Ud,
        };
        self.create(space, kind)
    }

    /// Creates an identifier in the port space of InfiniBand, for queue pairs of a transport: RC,
    /// UC, UD, or either side of XRC.
    pub fn create_ib_id(&self, transport: QpType) -> Result<Id, Error> {
        self.create(PortSpace::Ib, transport)
    }

    fn create(&self, space: PortSpace, kind: QpType) -> Result<Id, Error> {
        let key = IdKey::next();
        let command = CreateId {
            uid: Id::tag(key, kind),
            ps: space.raw(),
            qp_type: kind.raw(),
            ..CreateId::default()
        };
        const OPERATION: &str = "create_id";
        let made = call(self.channel.file(OPERATION)?, command)
            .map_err(|errno| Error::kernel(OPERATION, errno))?;
        Ok(Id::new(&self.channel, made.id, key, kind))
    }

    /// Returns the next event, or `None` if there is none.
    pub fn poll(&self) -> Result<Option<Event>, Error> {
        const OPERATION: &str = "get_event";
        let file = self.channel.file(OPERATION)?;
        loop {
            match call(file, GetEvent::default()) {
                Ok(record) => {
                    if let Some(event) = Event::decode(&self.channel, &record) {
                        return Ok(Some(event));
                    }
                }
                Err(Errno::EAGAIN) => return Ok(None),
                Err(errno) => return Err(Error::kernel(OPERATION, errno)),
            }
        }
    }

    /// Waits for the next event, for at most `timeout` (`None`: without limit). Returns `None` if
    /// none arrives in time.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<Event>, Error> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            if let Some(event) = self.poll()? {
                return Ok(Some(event));
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if !self.wait_readable(left)? {
                return Ok(None);
            }
        }
    }

    /// Waits until an event is pending; returns whether one is.
    pub(crate) fn wait_readable(&self, timeout: Option<Duration>) -> Result<bool, Error> {
        wait_readable(self.as_fd(), timeout).map_err(|errno| Error::kernel("wait", errno))
    }
}

/// An event of an identifier.
#[derive(Debug)]
pub struct Event {
    /// The identifier that the event is about: the listener for a request, the group for a
    /// multicast group.
    pub key: IdKey,
    /// The kind of the event.
    pub kind: EventKind,
}

/// Address of a datagram queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdPeer {
    /// Number of the queue pair.
    pub qp_num: u32,
    /// The Q_Key that datagrams to it must carry.
    pub qkey: u32,
    /// The path to the queue pair.
    pub path: AhAttr,
    /// The private data of the peer's program, followed by zeros.
    pub private_data: PrivateData,
}

/// The kind of an event.
#[derive(Debug)]
#[non_exhaustive]
pub enum EventKind {
    /// The address was resolved.
    AddressResolved,
    /// The address could not be resolved.
    AddressError(Errno),
    /// The route was resolved.
    RouteResolved,
    /// The route could not be resolved.
    RouteError(Errno),
    /// A peer asks for a connection. Dropping the identifier rejects.
    ConnectRequest {
        /// The identifier of the connection.
        id: Id,
        /// The peer's parameters.
        remote: Remote,
    },
    /// A peer asks for the number of a datagram queue pair. Dropping the identifier refuses.
    DatagramRequest {
        /// The identifier of the request.
        id: Id,
        /// The peer's private data, followed by zeros.
        private_data: PrivateData,
    },
    /// The peer accepted. Connect the queue pair ([`Id::to_rts`]), then call [`Id::ready`].
    ConnectResponse(Remote),
    /// The connection is established.
    Established,
    /// The peer sent the address of its datagram queue pair.
    DatagramEstablished(UdPeer),
    /// The connection failed.
    ConnectError(Errno),
    /// The peer does not answer.
    Unreachable(Errno),
    /// The peer refused datagrams, or no program listens there.
    DatagramRefused {
        /// The reason (`enum ib_cm_sidr_status`): 1 if no program listens there, 2 if the program
        /// at the other end refused.
        status: u32,
        /// The private data of the program at the other end, followed by zeros.
        private_data: PrivateData,
    },
    /// The peer rejected, or gave up.
    Rejected(Rejection),
    /// The connection has ended. With an errno, the peer did not agree in time.
    Disconnected(Option<Errno>),
    /// The device is going: drop what belongs to it.
    DeviceRemoval,
    /// The group was joined; datagrams to it go to this address.
    MulticastJoined(UdPeer),
    /// The group could not be joined.
    MulticastError(Errno),
    /// The address moved to another device: connect again.
    AddressChange,
    /// No packet of the ended connection is in flight any more.
    TimewaitExit,
}

impl Event {
    /// Decodes an event; `None` for a kind that this version does not know.
    fn decode(channel: &Arc<Channel>, record: &EventResp) -> Option<Self> {
        let kind = EventType::from_raw(record.event)?;
        let status = record.status.cast_signed();
        let errno = Errno::from_raw(status.saturating_neg());
        let conn = || ConnParam::read_from_prefix(&record.param).map(|(param, _)| param).ok();
        let ud = || UdParam::read_from_bytes(&record.param).ok();
        let remote = || Some(Remote::decode(&conn()?, record.ece));
        let peer = || {
            let param = ud()?;
            Some(UdPeer {
                qp_num: param.qp_num,
                qkey: param.qkey,
                path: decode_path(&param.ah_attr),
                private_data: PrivateData::new(param.private_data, param.private_data_len),
            })
        };
        let (key, transport) = Id::of_event(record.uid);
        let is_ud = transport == Some(QpType::Ud);
        let new = || {
            let transport = transport.unwrap_or(QpType::Rc);
            let id = Id::new(channel, record.id, IdKey::next(), transport);
            id.asked_by(record.ece.vendor_id)
        };
        let kind = match kind {
            EventType::AddrResolved => EventKind::AddressResolved,
            EventType::AddrError => EventKind::AddressError(errno),
            EventType::RouteResolved => EventKind::RouteResolved,
            EventType::RouteError => EventKind::RouteError(errno),
            EventType::ConnectRequest if is_ud => {
                EventKind::DatagramRequest { id: new(), private_data: peer()?.private_data }
            }
            EventType::ConnectRequest => EventKind::ConnectRequest { id: new(), remote: remote()? },
            EventType::ConnectResponse => EventKind::ConnectResponse(remote()?),
            EventType::ConnectError => EventKind::ConnectError(errno),
            EventType::Unreachable if is_ud && status > 0 => EventKind::DatagramRefused {
                status: record.status,
                private_data: peer()?.private_data,
            },
            EventType::Unreachable => EventKind::Unreachable(errno),
            EventType::Rejected => EventKind::Rejected(Rejection {
                reason: record.status,
                private_data: remote()?.private_data,
            }),
            EventType::Established if is_ud => EventKind::DatagramEstablished(peer()?),
            EventType::Established => EventKind::Established,
            EventType::Disconnected => EventKind::Disconnected((status != 0).then_some(errno)),
            EventType::DeviceRemoval => EventKind::DeviceRemoval,
            EventType::MulticastJoin => EventKind::MulticastJoined(peer()?),
            EventType::MulticastError => EventKind::MulticastError(errno),
            EventType::AddrChange => EventKind::AddressChange,
            EventType::TimewaitExit => EventKind::TimewaitExit,
            EventType::AddrinfoResolved
            | EventType::AddrinfoError
            | EventType::User
            | EventType::Internal => return None,
        };
        Some(Self { key, kind })
    }
}
