//! Identifiers of the connection manager.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mlx5::{Device, Errno, Guid, Kernel, Psn, QpAttributes, QpType, QueueState};
use mlx5_uapi::process::Origin;
use mlx5_uapi::rdma_cm::{
    Accept, Bind, Command, Connect, DestroyId, Disconnect, IdOption, InitQpAttr, JoinFlag,
    JoinMcast, Listen, MigrateId, Notify, QueryOption, Reject, ResolveAddr, ResolveRoute, call,
    leave_mcast, private_data, query_addr, reject_reason, set_option,
};
use mlx5_uapi::verbs::EventType;

use crate::address::Address;
use crate::attributes::{Prepare, decode};
use crate::channel::{Channel, EventChannel, IdKey};
use crate::error::{Error, ErrorKind};
use crate::param::{ConnectParam, VENDOR};

/// An identifier (`struct rdma_cm_id`): a listener, a connection, or a pair of addresses.
///
/// Dropping it destroys it: a listener stops listening, a request is rejected, a connection ends.
/// Calls return at once; the channel reports their outcome as an [`Event`](crate::Event).
///
/// To use a queue pair of one's own on the side that asks: after
/// [`RouteResolved`](crate::EventKind::RouteResolved), [`Id::init`] it on the
/// [`device`](Id::device), post receives, and [`Id::connect`]; after
/// [`ConnectResponse`](crate::EventKind::ConnectResponse), [`Id::to_rts`] and [`Id::ready`]. On the
/// side that is asked: after [`ConnectRequest`](crate::EventKind::ConnectRequest), [`Id::init`] it,
/// post receives, and [`Id::accept_qp`].
pub struct Id {
    channel: Arc<Channel>,
    number: u32,
    key: IdKey,
    transport: QpType,
    /// The vendor that an answer names for ECE: the one that the request named.
    ece_vendor: u32,
    listens: AtomicBool,
    home: Arc<Home>,
}

/// The state that an identifier shares with its groups: the channel that knows both, while the
/// identifier exists. The kernel reuses their numbers afterwards.
struct Home {
    origin: Origin,
    channel: Mutex<Option<Arc<Channel>>>,
}

impl Home {
    /// Locks the channel. Returns `None` once the identifier is destroyed, and in a forked child,
    /// where a thread of the parent may have held the lock during the fork.
    fn lock(&self) -> Option<MutexGuard<'_, Option<Arc<Channel>>>> {
        let here = !self.origin.left();
        here.then(|| self.channel.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Number of bits of the kernel's tag that hold the transport.
const TRANSPORT_BITS: u32 = 8;

impl Id {
    /// Whether this process is a forked child of the one that created the identifier.
    pub(crate) fn left(&self) -> bool {
        self.home.origin.left()
    }

    pub(crate) fn new(channel: &Arc<Channel>, number: u32, key: IdKey, transport: QpType) -> Self {
        let home = Mutex::new(Some(Arc::clone(channel)));
        Self {
            channel: Arc::clone(channel),
            number,
            key,
            transport,
            ece_vendor: VENDOR,
            listens: AtomicBool::new(false),
            home: Arc::new(Home { origin: channel.origin, channel: home }),
        }
    }

    /// Marks the identifier as that of a request that named a vendor of ECE.
    pub(crate) fn asked_by(mut self, ece_vendor: u32) -> Self {
        self.ece_vendor = ece_vendor;
        self
    }

    /// The tag that the kernel returns with each event of an identifier.
    pub(crate) fn tag(key: IdKey, transport: QpType) -> u64 {
        key.0 << TRANSPORT_BITS | u64::from(transport.raw())
    }

    /// Splits a tag into its key and its transport.
    pub(crate) fn of_event(tag: u64) -> (IdKey, Option<QpType>) {
        (IdKey(tag >> TRANSPORT_BITS), QpType::from_raw(tag as u8))
    }

    /// Returns the key by which events name the identifier.
    pub fn key(&self) -> IdKey {
        self.key
    }

    /// Returns the transport of its queue pairs.
    pub fn transport(&self) -> QpType {
        self.transport
    }

    /// Returns the kernel on which the identifier exists.
    pub(crate) fn kernel(&self) -> &Arc<dyn Kernel> {
        &self.channel.kernel
    }

    fn call<C: Command>(&self, operation: &'static str, command: C) -> Result<C::Response, Error> {
        call(self.channel.file(operation)?, command)
            .map_err(|errno| Error::kernel(operation, errno))
    }

    /// Binds the identifier to an address of this machine. Port 0 lets the kernel choose one; the
    /// unspecified address stands for all.
    pub fn bind(&self, address: impl Into<Address>) -> Result<(), Error> {
        let (addr, addr_size) = address.into().encode();
        self.call("bind", Bind { id: self.number, addr, addr_size, ..Bind::default() })
    }

    /// Finds the port that leads to an address, and binds the identifier to it. With `source`, it
    /// is bound to that address first. The channel reports the outcome within `timeout`.
    pub fn resolve_addr(
        &self,
        source: Option<Address>,
        destination: impl Into<Address>,
        timeout: Duration,
    ) -> Result<(), Error> {
        let (dst_addr, dst_size) = destination.into().encode();
        let (src_addr, src_size) = source.map_or(([0; 128], 0), |source| source.encode());
        let command = ResolveAddr {
            id: self.number,
            timeout_ms: milliseconds(timeout),
            src_size,
            dst_size,
            reserved: 0,
            src_addr,
            dst_addr,
        };
        self.call("resolve_addr", command)
    }

    /// Resolves the route to the address.
    pub fn resolve_route(&self, timeout: Duration) -> Result<(), Error> {
        let timeout_ms = milliseconds(timeout);
        self.call("resolve_route", ResolveRoute { id: self.number, timeout_ms })
    }

    /// Listens for requests. At most `backlog` of them wait; 0 stands for as many as the kernel
    /// allows.
    pub fn listen(&self, backlog: u32) -> Result<(), Error> {
        self.call("listen", Listen { id: self.number, backlog })?;
        self.listens.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Asks for a connection, or for the peer's datagram queue pair.
    pub fn connect(&self, param: &ConnectParam<'_>) -> Result<(), Error> {
        let room = match self.transport {
            QpType::Ud => private_data::SIDR_REQUEST,
            _ => private_data::REQUEST,
        };
        // IP addresses occupy a part of the private data, InfiniBand addresses none.
        let is_ip = matches!(self.peer_addr()?, Some(Address::Ip(_)));
        let header = if is_ip { private_data::IP_HEADER } else { 0 };
        let (conn_param, ece) = param.encode("connect", room - header, VENDOR)?;
        self.call("connect", Connect { conn_param, id: self.number, reserved: 0, ece })
    }

    /// Connects a queue pair, which is in RESET or INIT and belongs to the [`device`](Id::device),
    /// and accepts a request with it. This also works for datagrams.
    ///
    /// The depths of `param` are the maximum: the queue pair gets no more than the peer asks for
    /// and the device supports, and the peer learns the resulting depths. The number is that of the
    /// queue pair, not the one in `param`.
    pub fn accept_qp(&self, qp: &mut impl Prepare, param: &ConnectParam<'_>) -> Result<(), Error> {
        let param = param.of(qp.number(), qp.is_shared());
        self.accept(&self.connect_qp(qp, param)?)
    }

    /// Accepts a request with a queue pair that was not connected by [`accept_qp`](Id::accept_qp)
    /// and has the depths of `param`. The peer may send as soon as it has the answer.
    ///
    /// If it fails, the kernel has rejected the request.
    pub fn accept(&self, param: &ConnectParam<'_>) -> Result<(), Error> {
        let room = match self.transport {
            QpType::Ud => private_data::SIDR_REPLY,
            _ => private_data::REPLY,
        };
        let (conn_param, ece) = param.encode("accept", room, self.ece_vendor)?;
        let uid = Self::tag(self.key, self.transport);
        self.call("accept", Accept { uid, conn_param, id: self.number, reserved: 0, ece })
    }

    /// Reports to the peer, which has accepted, that this side can receive (`rdma_establish`).
    pub fn ready(&self) -> Result<(), Error> {
        self.call("ready", Accept { id: self.number, ..Accept::default() })
    }

    /// Rejects a request, with private data.
    pub fn reject(&self, data: &[u8]) -> Result<(), Error> {
        self.reject_because(reject_reason::CONSUMER_DEFINED, data)
    }

    /// Rejects a request for a reason: [`reject_reason::CONSUMER_DEFINED`], or
    /// [`reject_reason::VENDOR_OPTION_NOT_SUPPORTED`] for ECE options that the program does not
    /// support. A peer that asks for datagrams does not learn the reason.
    pub fn reject_because(&self, reason: u32, data: &[u8]) -> Result<(), Error> {
        const OPERATION: &str = "reject";
        let room = match self.transport {
            QpType::Ud => private_data::SIDR_REPLY,
            _ => private_data::REJECT,
        };
        if data.len() > room {
            return Err(Error::too_long(OPERATION, data.len(), room));
        }
        let reason = u8::try_from(reason).map_err(|_| {
            let what = format!("{reason} is not a reason for which a program rejects");
            Error::new(OPERATION, ErrorKind::InvalidArgument, what)
        })?;
        let private_data_len = data.len() as u8;
        let mut command = Reject { id: self.number, private_data_len, reason, ..Reject::default() };
        command.private_data[..data.len()].copy_from_slice(data);
        self.call(OPERATION, command)
    }

    /// Ends the connection, or agrees to its end. Bring the queue pair to the error state first.
    pub fn disconnect(&self) -> Result<(), Error> {
        self.call("disconnect", Disconnect { id: self.number })
    }

    /// Reports to the kernel that a message arrived before the peer's message that it is ready
    /// (`IBV_EVENT_COMM_EST`): the connection is established.
    pub fn communication_established(&self) -> Result<(), Error> {
        let event = EventType::CommunicationEstablished.raw();
        match self.call("notify", Notify { id: self.number, event }) {
            // The peer's message arrived first.
            Err(error) if error.errno() == Some(Errno::EISCONN) => Ok(()),
            result => result,
        }
    }

    /// Returns the attributes with which a queue pair enters a state: INIT and, once the peer is
    /// known, RTR and RTS.
    pub fn qp_attributes(&self, state: QueueState) -> Result<QpAttributes, Error> {
        const OPERATION: &str = "init_qp_attr";
        let qp_state = state as u32;
        let command = InitQpAttr { id: self.number, qp_state, ..InitQpAttr::default() };
        let attr = self.call(OPERATION, command)?;
        decode(&attr, state).ok_or_else(|| {
            let what = "the kernel returned an attribute that no queue pair can have";
            Error::new(OPERATION, ErrorKind::Protocol, what)
        })
    }

    /// Brings a queue pair to INIT, where receives can be posted. Fails if it is not on the
    /// identifier's [`device`](Id::device).
    pub fn init(&self, qp: &mut impl Prepare) -> Result<(), Error> {
        let attributes = self.qp_attributes(QueueState::Init)?;
        self.check_device("init", qp)?;
        qp.modify(&attributes).map_err(|error| Error::driver("init", error))
    }

    /// Brings a queue pair, which is in RESET or INIT, to RTS: on the side that asked, or for
    /// datagrams. It gets the depths of the peer's answer, or the device's limits where those are
    /// lower.
    pub fn to_rts(&self, qp: &mut impl Prepare) -> Result<(), Error> {
        let all = ConnectParam::new(qp.number());
        self.to_rts_with(qp, &all.initiator_depth(u8::MAX).responder_resources(u8::MAX))
    }

    /// As [`Id::to_rts`], with at most the depths and the retries of `param`.
    pub fn to_rts_with(
        &self,
        qp: &mut impl Prepare,
        param: &ConnectParam<'_>,
    ) -> Result<(), Error> {
        self.connect_qp(qp, *param).map(drop)
    }

    /// Brings a queue pair to RTS; returns the parameters with the depths that it got.
    fn connect_qp<'a>(
        &self,
        qp: &mut impl Prepare,
        param: ConnectParam<'a>,
    ) -> Result<ConnectParam<'a>, Error> {
        // The access that the peer gets is known only now.
        self.init(qp)?;
        let modify = |qp: &mut _, step: &QpAttributes| {
            Prepare::modify(qp, step).map_err(|error| Error::driver("to_rts", error))
        };
        if self.transport == QpType::Ud {
            modify(qp, &QpAttributes::new().qp_state(QueueState::ReadyToReceive))?;
            let rts = QpAttributes::new().qp_state(QueueState::ReadyToSend);
            modify(qp, &rts.sq_psn(Psn::default()))?;
            return Ok(param);
        }
        let mut rtr = self.qp_attributes(QueueState::ReadyToReceive)?;
        let mut rts = self.qp_attributes(QueueState::ReadyToSend)?;
        let device = qp.context().query_device();
        let responder = param.responder_resources.min(device.max_qp_rd_atom.min(255) as u8);
        let responder = rtr.max_dest_rd_atomic.map_or(responder, |asked| asked.min(responder));
        let initiator = param.initiator_depth.min(device.max_qp_init_rd_atom.min(255) as u8);
        let initiator = rts.max_rd_atomic.map_or(initiator, |asked| asked.min(initiator));
        // The device would round up to a power of two and start more requests than the peer
        // answers.
        let initiator = initiator.checked_ilog2().map_or(0, |log| 1 << log);
        rtr.max_dest_rd_atomic = rtr.max_dest_rd_atomic.and(Some(responder));
        rts.max_rd_atomic = rts.max_rd_atomic.and(Some(initiator));
        rts.rnr_retry = rts.rnr_retry.map(|count| count.min(param.own_rnr_retry_count));
        modify(qp, &rtr)?;
        modify(qp, &rts)?;
        Ok(param.initiator_depth(initiator).responder_resources(responder))
    }

    /// Sets the type of service, before the route is resolved.
    pub fn set_tos(&self, tos: u8) -> Result<(), Error> {
        self.set(IdOption::Tos, &[tos])
    }

    /// Sets whether the identifier may share its address with others that set this, too; call it
    /// before binding.
    pub fn set_reuse_addr(&self, reuse: bool) -> Result<(), Error> {
        self.set(IdOption::ReuseAddr, &u32::from(reuse).to_ne_bytes())
    }

    /// Sets whether an unspecified IPv6 address excludes IPv4 addresses; call it before listening.
    pub fn set_af_only(&self, only: bool) -> Result<(), Error> {
        self.set(IdOption::AfOnly, &u32::from(only).to_ne_bytes())
    }

    /// Sets the acknowledge timeout of the queue pair, before it is connected.
    pub fn set_ack_timeout(&self, timeout: mlx5::AckTimeout) -> Result<(), Error> {
        self.set(IdOption::AckTimeout, &[timeout.get()])
    }

    fn set(&self, option: IdOption, value: &[u8]) -> Result<(), Error> {
        const OPERATION: &str = "set_option";
        set_option(self.channel.file(OPERATION)?, self.number, option, value)
            .map_err(|errno| Error::kernel(OPERATION, errno))
    }

    /// Moves the identifier, its groups and its pending events to another channel.
    ///
    /// A listening identifier cannot be moved: its requests would arrive on the other channel, but
    /// could only be accepted on this one.
    pub fn migrate(&mut self, to: &EventChannel) -> Result<(), Error> {
        const OPERATION: &str = "migrate_id";
        if self.listens.load(Ordering::Relaxed) {
            let what = "an identifier that listens cannot be moved: move it before it listens";
            return Err(Error::new(OPERATION, ErrorKind::WrongState, what));
        }
        let file = to.channel.file(OPERATION)?;
        let from = self.channel.file(OPERATION)?.as_fd().as_raw_fd().cast_unsigned();
        let command = MigrateId { id: self.number, fd: from, ..MigrateId::default() };
        // The lock blocks a concurrent drop of a group: it must leave on the channel that knows the
        // group.
        let mut home = self.home.lock().ok_or_else(|| Error::forked(OPERATION))?;
        call(file, command).map_err(|errno| Error::kernel(OPERATION, errno))?;
        *home = Some(Arc::clone(&to.channel));
        drop(home);
        self.channel = Arc::clone(&to.channel);
        Ok(())
    }

    /// Joins a multicast group, for datagrams. The event on the channel has the address to send to;
    /// to receive, attach the queue pair to the group.
    pub fn join_multicast(
        &self,
        group: impl Into<Address>,
        flag: JoinFlag,
    ) -> Result<Group, Error> {
        let (addr, addr_size) = group.into().encode();
        let key = IdKey::next();
        let command = JoinMcast {
            uid: Self::tag(key, self.transport),
            id: self.number,
            addr_size,
            join_flags: flag.raw(),
            addr,
            ..JoinMcast::default()
        };
        let number = self.call("join_multicast", command)?.id;
        Ok(Group { home: Arc::clone(&self.home), number, key })
    }

    /// Returns the identifier's own address, if it is bound.
    pub fn local_addr(&self) -> Result<Option<Address>, Error> {
        Ok(Address::decode(&self.query(QueryOption::Addr)?.src_addr))
    }

    /// Returns the peer's address, if it is known.
    pub fn peer_addr(&self) -> Result<Option<Address>, Error> {
        Ok(Address::decode(&self.query(QueryOption::Addr)?.dst_addr))
    }

    /// Returns the identifier's port of the device, if it is bound to one.
    pub fn port_num(&self) -> Result<Option<u8>, Error> {
        let port = self.query(QueryOption::Addr)?.port_num;
        Ok((port != 0).then_some(port))
    }

    /// Returns the device that the identifier is bound to; create the queue pair there.
    pub fn device(&self) -> Result<Device, Error> {
        const OPERATION: &str = "device";
        let bound = self.query(QueryOption::Addr)?;
        let guid = u64::from_be_bytes(bound.node_guid);
        let none = |what: &'static str| Error::new(OPERATION, ErrorKind::AddressNotAvailable, what);
        if guid == 0 {
            return Err(none(
                "the identifier is not bound to a device: bind it to the address of a port, or resolve an \
                 address first",
            ));
        }
        let driver = |error| Error::driver(OPERATION, error);
        let devices = mlx5::devices_on(Arc::clone(&self.channel.kernel)).map_err(driver)?;
        let mut devices = devices.into_iter().filter(|device| device.guid() == Guid(guid));
        match (devices.next(), devices.next()) {
            (Some(device), None) => Ok(device),
            (None, _) => Err(none("the address belongs to a device of another driver")),
            // The kernel names the device by its GUID alone.
            (Some(_), Some(_)) => Err(none(
                "several devices have the GUID of the one that the identifier is bound to: give each \
                 its own (`ip link set ... vf N node_guid`, `devlink port function set`)",
            )),
        }
    }

    /// Fails if a queue pair belongs to a device other than the identifier's.
    pub(crate) fn check_device(
        &self,
        operation: &'static str,
        qp: &impl Prepare,
    ) -> Result<(), Error> {
        let Some(bound) = self.other_device(qp)? else { return Ok(()) };
        let what = format!(
            "a queue pair of {}, where the address leads over {bound}: create it on the device that \
             `device()` returns",
            qp.context().name()
        );
        Err(Error::new(operation, ErrorKind::InvalidArgument, what))
    }

    /// Returns the name of the identifier's device if the queue pair belongs to another.
    pub(crate) fn other_device(&self, qp: &impl Prepare) -> Result<Option<String>, Error> {
        let own = qp.context().query_device().node_guid;
        let bound = Guid(u64::from_be_bytes(self.query(QueryOption::Addr)?.node_guid));
        // The kernel names the device by its GUID alone.
        let name = || self.device().map_or_else(|_| bound.to_string(), |it| it.name().to_owned());
        Ok((bound != own).then(name))
    }

    fn query(&self, option: QueryOption) -> Result<mlx5_uapi::rdma_cm::QueryAddrResp, Error> {
        const OPERATION: &str = "query";
        query_addr(self.channel.file(OPERATION)?, self.number, option)
            .map_err(|errno| Error::kernel(OPERATION, errno))
    }
}

/// The IP address in the result of [`Id::local_addr`] or [`Id::peer_addr`].
pub(crate) fn ip(address: Option<Address>) -> Option<SocketAddr> {
    address.and_then(|address| address.ip())
}

impl Drop for Id {
    fn drop(&mut self) {
        if let Some(mut home) = self.home.lock()
            && let Some(channel) = home.take()
            && let Ok(file) = channel.file("destroy_id")
        {
            let command = DestroyId { id: self.number, ..DestroyId::default() };
            // It fails if the kernel no longer knows the identifier.
            let _: Result<_, Errno> = call(file, command);
        }
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Id")
            .field("key", &self.key)
            .field("transport", &self.transport)
            .finish_non_exhaustive()
    }
}

/// A joined multicast group. Dropping it, or the identifier, leaves the group.
pub struct Group {
    home: Arc<Home>,
    number: u32,
    key: IdKey,
}

impl Group {
    /// Returns the key by which events name the group.
    pub fn key(&self) -> IdKey {
        self.key
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Destroying the identifier left the group, and another group may have its number by now.
        if let Some(home) = self.home.lock()
            && let Some(channel) = &*home
            && let Ok(file) = channel.file("leave_multicast")
        {
            let _: Result<_, Errno> = leave_mcast(file, self.number);
        }
    }
}

/// Converts a time limit for the kernel: rounded up, and at least one.
fn milliseconds(time: Duration) -> u32 {
    u32::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_has_key_and_transport() {
        let tag = Id::tag(IdKey(7), QpType::Ud);
        assert_eq!(Id::of_event(tag), (IdKey(7), Some(QpType::Ud)));
        assert_ne!(IdKey::next(), IdKey::next());
    }

    #[test]
    fn a_time_limit_is_rounded_up_and_limited() {
        assert_eq!(milliseconds(Duration::ZERO), 1);
        assert_eq!(milliseconds(Duration::from_micros(1001)), 2);
        assert_eq!(milliseconds(Duration::MAX), u32::MAX);
    }
}
