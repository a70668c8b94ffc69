//! Identifiers, groups and timers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mlx5_uapi::Errno;
use mlx5_uapi::rdma_cm::{ConnParam, Ece, EventResp, EventType, PortSpace, UdParam};
use mlx5_uapi::verbs::QpType;
use zerocopy::IntoBytes;

use crate::config::CmConfig;
use crate::kernel::cm::address::Address;
use crate::kernel::cm::channel::{Channel, Pending};
use crate::kernel::cm::network::Place;

/// The state of an identifier (`enum rdma_cm_state`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Idle,
    AddrQuery,
    AddrResolved,
    RouteResolved,
    Connect,
    Disconnect,
    AddrBound,
    Listen,
    DeviceRemoval,
}

/// The state of an identifier's connection (`enum ib_cm_state`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Link {
    /// No connection.
    None,
    /// It was rejected, timed out or has ended.
    Idle,
    ReqSent,
    ReqReceived,
    RepSent,
    RepReceived,
    Established,
    DreqSent,
    DreqReceived,
    Timewait,
    SidrReqSent,
    SidrReqReceived,
}

/// A message of the connection manager.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CmMessage {
    /// Asks for a connection.
    Req,
    /// Accepts.
    Rep,
    /// Reports that the connecting side is ready.
    Rtu,
    /// Rejects, or gives up.
    Rej,
    /// Ends a connection.
    Dreq,
    /// Confirms the end of a connection.
    Drep,
    /// Asks for the number of a datagram queue pair.
    SidrReq,
    /// Answers.
    SidrRep,
}

/// Numbers of the manager's objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CmCounts {
    /// Open event channels.
    pub channels: usize,
    /// Identifiers.
    pub ids: usize,
    /// Identifiers that listen.
    pub listeners: usize,
    /// Multicast groups that were joined.
    pub groups: usize,
    /// Services that are in use.
    pub services: usize,
}

/// The purpose of an identifier's timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wait {
    /// The address.
    Address,
    /// The answer to a message, the tries that are left, and the time of each.
    Answer { message: CmMessage, left: u32, each: u64 },
    /// Packets that may be in flight.
    Timewait,
}

/// Options.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options {
    pub(super) tos: u8,
    pub(super) reuse: bool,
    /// Whether a wildcard address is bound for its own family only, if the program has set this.
    pub(super) af_only: Option<bool>,
    pub(super) ack_timeout: Option<u8>,
}

impl Options {
    /// Whether `address` is bound for its own family only; an IPv4 address always is.
    pub(super) fn is_af_only(&self, address: &Address) -> bool {
        self.af_only.unwrap_or(address.is_ipv4())
    }
}

/// An identifier.
#[derive(Debug)]
pub(super) struct Id {
    pub(super) channel: Arc<Channel>,
    pub(super) uid: u64,
    pub(super) space: PortSpace,
    pub(super) qp_type: QpType,
    pub(super) state: State,
    pub(super) link: Link,
    pub(super) source: Option<Address>,
    pub(super) destination: Option<Address>,
    /// The service that it occupies.
    pub(super) service: Option<u64>,
    pub(super) place: Option<Place>,
    /// The port of the other end.
    pub(super) remote: Option<Place>,
    pub(super) options: Options,
    /// Requests that may still wait.
    pub(super) backlog: u32,
    pub(super) peer: Option<u32>,
    /// The parameters that it sent the peer, and those that the peer sent it.
    pub(super) own: ConnParam,
    pub(super) own_ece: Ece,
    pub(super) other: ConnParam,
    pub(super) other_ece: Ece,
    /// Retries of either end, as the connecting side set them.
    pub(super) retry_count: u8,
    /// The first sequence number to receive.
    pub(super) psn: u32,
    pub(super) other_psn: u32,
    pub(super) reported: u32,
    pub(super) timer: Option<(u64, Wait)>,
}

impl Id {
    pub(super) fn new(channel: &Arc<Channel>, uid: u64, space: PortSpace, kind: QpType) -> Self {
        Self {
            channel: Arc::clone(channel),
            uid,
            space,
            qp_type: kind,
            state: State::Idle,
            link: Link::None,
            source: None,
            destination: None,
            service: None,
            place: None,
            remote: None,
            options: Options::default(),
            backlog: 0,
            peer: None,
            own: ConnParam::default(),
            own_ece: Ece::default(),
            other: ConnParam::default(),
            other_ece: Ece::default(),
            retry_count: 0,
            psn: 0,
            other_psn: 0,
            reported: 0,
            timer: None,
        }
    }

    /// Whether it is for datagrams.
    pub(super) fn is_ud(&self) -> bool {
        self.qp_type == QpType::Ud
    }

    /// Whether private data follows a header with IP addresses.
    pub(super) fn has_ip_header(&self) -> bool {
        matches!(self.destination.or(self.source), Some(Address::Ip(_)))
    }
}

/// A multicast group that an identifier joined.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) id: u32,
    pub(super) reported: u32,
}

/// The parameters of an event.
pub(super) enum Param {
    None,
    Conn(ConnParam),
    Ud(UdParam),
}

/// Time as the manager sees it.
#[derive(Debug)]
pub(super) struct Clock {
    /// `None` in virtual time.
    began: Option<Instant>,
    now: u64,
}

impl Clock {
    pub(super) fn new(is_virtual: bool) -> Self {
        Self { began: (!is_virtual).then(Instant::now), now: 0 }
    }

    pub(super) fn now(&self) -> u64 {
        self.began.map_or(self.now, |began| began.elapsed().as_nanos() as u64).max(self.now)
    }
}

/// All state of the manager.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) config: CmConfig,
    pub(super) ids: BTreeMap<u32, Id>,
    pub(super) groups: BTreeMap<u32, Group>,
    pub(super) timers: BTreeSet<(u64, u32)>,
    pub(super) clock: Clock,
    /// Messages to lose, with their number.
    pub(super) losing: BTreeMap<CmMessage, u32>,
    next_port: u16,
    next_psn: u32,
}

/// The ports that the kernel chooses from (`ip_local_port_range`).
const FIRST_PORT: u16 = 32768;
const LAST_PORT: u16 = 60999;

impl Table {
    pub(super) fn new(config: CmConfig, virtual_time: bool) -> Self {
        Self {
            config,
            ids: BTreeMap::new(),
            groups: BTreeMap::new(),
            timers: BTreeSet::new(),
            clock: Clock::new(virtual_time),
            losing: BTreeMap::new(),
            next_port: FIRST_PORT,
            next_psn: 0x1000,
        }
    }

    /// The number of the next group.
    pub(super) fn next_group(&self) -> u32 {
        lowest_free(&self.groups)
    }

    pub(super) fn add(&mut self, mut id: Id) -> u32 {
        let number = lowest_free(&self.ids);
        self.next_psn = (self.next_psn + 0x0010_1001) & 0xff_ffff;
        id.psn = self.next_psn;
        self.ids.insert(number, id);
        number
    }

    /// An identifier of a channel. Fails if its device is gone.
    pub(super) fn own(&mut self, channel: &Arc<Channel>, number: u32) -> Result<&mut Id, Errno> {
        match self.of_channel(channel, number)? {
            id if id.state == State::DeviceRemoval => Err(Errno::EIO),
            id => Ok(id),
        }
    }

    /// An identifier of a channel, even if its device is gone; then it can only be destroyed.
    pub(super) fn of_channel(
        &mut self,
        channel: &Arc<Channel>,
        number: u32,
    ) -> Result<&mut Id, Errno> {
        match self.ids.get_mut(&number) {
            None => Err(Errno::ENOENT),
            Some(id) if !Arc::ptr_eq(&id.channel, channel) => Err(Errno::EINVAL),
            Some(id) => Ok(id),
        }
    }

    /// A port number that is free in a port space.
    pub(super) fn free_port(&mut self, address: &Address, space: PortSpace) -> Option<u16> {
        for _ in FIRST_PORT..=LAST_PORT {
            let port = self.next_port;
            self.next_port = if port == LAST_PORT { FIRST_PORT } else { port + 1 };
            let service = address.with_port(port).service(space);
            if !self.ids.values().any(|id| id.service == Some(service)) {
                return Some(port);
            }
        }
        None
    }

    /// Reports an event to the program. Events of a connection that the program has not accepted
    /// are dropped: accepting it fails then.
    pub(super) fn tell(&self, number: u32, event: EventType, status: i32, param: &Param) {
        let Some(id) = self.ids.get(&number).filter(|id| id.uid != 0) else { return };
        let record = record(id.uid, number, event, status, param, Ece::default());
        let record = match event {
            EventType::ConnectResponse => EventResp { ece: id.other_ece, ..record },
            _ => record,
        };
        id.channel.push(Pending { record, owner: number, request: None, group: None });
    }

    /// Reports a request to its listener.
    pub(super) fn tell_request(&self, listener: u32, request: u32, param: &Param, ece: Ece) {
        let Some(id) = self.ids.get(&listener) else { return };
        let record = record(id.uid, request, EventType::ConnectRequest, 0, param, ece);
        id.channel.push(Pending { record, owner: listener, request: Some(request), group: None });
    }

    /// Sets an identifier's timer, in place of another.
    pub(super) fn wait(&mut self, number: u32, after: Duration, wait: Wait) {
        self.stop_waiting(number);
        let due = self.clock.now() + after.as_nanos() as u64;
        if let Some(id) = self.ids.get_mut(&number) {
            id.timer = Some((due, wait));
            self.timers.insert((due, number));
        }
    }

    pub(super) fn stop_waiting(&mut self, number: u32) {
        if let Some((due, _)) = self.ids.get_mut(&number).and_then(|id| id.timer.take()) {
            self.timers.remove(&(due, number));
        }
    }

    /// Takes the next timer, if it is due at `by`.
    pub(super) fn due(&mut self, by: u64) -> Option<(u32, Wait)> {
        let (due, number) = *self.timers.first().filter(|(due, _)| *due <= by)?;
        self.timers.remove(&(due, number));
        self.clock.now = self.clock.now.max(due);
        let (_, wait) = self.ids.get_mut(&number)?.timer.take()?;
        Some((number, wait))
    }
}

/// The lowest free number, as the kernel allocates them (`xa_alloc`): freed numbers are used again.
fn lowest_free<T>(table: &BTreeMap<u32, T>) -> u32 {
    let used = table.keys().zip(0..).take_while(|(number, at)| **number == *at);
    used.count() as u32
}

/// An event as it is read.
pub(super) fn record(
    uid: u64,
    id: u32,
    event: EventType,
    status: i32,
    param: &Param,
    ece: Ece,
) -> EventResp {
    let mut record = EventResp {
        uid,
        id,
        event: event.raw(),
        status: status.cast_unsigned(),
        ece,
        ..EventResp::default()
    };
    match param {
        Param::None => {}
        Param::Conn(conn) => {
            record.param[..size_of::<ConnParam>()].copy_from_slice(conn.as_bytes())
        }
        Param::Ud(ud) => record.param.copy_from_slice(ud.as_bytes()),
    }
    record
}
