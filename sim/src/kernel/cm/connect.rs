//! The messages between both ends, and the time limits.
//!
//! A message arrives at once, or is lost. A message that needs an answer is sent again until one
//! arrives or the sender gives up.

use std::time::Duration;

use mlx5_uapi::Errno;
use mlx5_uapi::rdma_cm::{ConnParam, EventType, UdParam, private_data, reject_reason};
use mlx5_uapi::verbs::{AhAttr, GlobalRoute, QpType};

use crate::kernel::cm::address::Address;
use crate::kernel::cm::attributes::{path, qkey};
use crate::kernel::cm::network::Network;
use crate::kernel::cm::state::{CmMessage, Id, Link, Param, State, Table, Wait};

/// The further time that the connecting side waits after a message that its request has arrived and
/// the program is deciding (`CMA_CM_MRA_SETTING`).
const PATIENCE: u64 = 16;

/// `IB_SIDR_REJECT`, `IB_SIDR_UNSUPPORTED`: why a request for datagrams is refused.
const SIDR_REJECT: i32 = 2;
const SIDR_UNSUPPORTED: i32 = 1;

/// The contents of a rejection.
pub(super) struct Rejection<'a> {
    pub(super) reason: u32,
    pub(super) data: &'a [u8],
}

/// The manager's table, and the network that its messages go over.
pub(super) struct Ends<'a> {
    pub(super) table: &'a mut Table,
    pub(super) network: &'a Network,
}

fn failed(errno: Errno) -> i32 {
    -(errno as i32)
}

/// Parameters as the other end receives them, with private data of the message's length: the
/// program's bytes, then zeros.
fn seen(own: &ConnParam, room: usize) -> ConnParam {
    let mut seen = *own;
    (seen.responder_resources, seen.initiator_depth) =
        (own.initiator_depth, own.responder_resources);
    seen.private_data_len = room as u8;
    seen.private_data[usize::from(own.private_data_len).min(room)..].fill(0);
    seen.valid = 0;
    seen
}

impl Ends<'_> {
    fn id(&self, number: u32) -> Option<&Id> {
        self.table.ids.get(&number)
    }

    fn id_mut(&mut self, number: u32) -> Option<&mut Id> {
        self.table.ids.get_mut(&number)
    }

    fn set(&mut self, number: u32, link: Link) {
        if let Some(id) = self.id_mut(number) {
            id.link = link;
        }
    }

    /// Whether a message of an identifier reaches the other end.
    fn arrives(&mut self, from: u32, message: CmMessage) -> bool {
        if let Some(planned) = self.table.losing.get_mut(&message).filter(|planned| **planned > 0) {
            *planned -= 1;
            return false;
        }
        let Some(id) = self.id(from) else { return false };
        let (Some(here), Some(there)) = (id.place, id.remote) else { return false };
        self.network.reaches(here, there)
    }

    /// Sends a message that needs an answer, and sends it again if none arrives.
    pub(super) fn ask(&mut self, from: u32, message: CmMessage) {
        let config = self.table.config;
        let each = u64::from(config.response_ms) * 1_000_000;
        let wait = Wait::Answer { message, left: config.retries, each };
        self.table.wait(from, Duration::from_nanos(each), wait);
        self.send(from, message);
    }

    /// Sends a message.
    fn send(&mut self, from: u32, message: CmMessage) {
        if !self.arrives(from, message) {
            return;
        }
        match message {
            CmMessage::Req | CmMessage::SidrReq => self.request(from),
            CmMessage::Rep => self.reply(from),
            CmMessage::Rtu => self.ready(from),
            CmMessage::Dreq => self.disconnect_request(from),
            CmMessage::Drep => self.disconnect_reply(from),
            // These have contents of their own.
            CmMessage::Rej | CmMessage::SidrRep => {}
        }
    }

    /// The peer of an identifier, if that names this one as its peer, too.
    fn peer(&self, of: u32) -> Option<u32> {
        let peer = self.id(of)?.peer?;
        (self.id(peer)?.peer == Some(of)).then_some(peer)
    }

    /// Finds the listener for a request: one at its very address before one at any address.
    fn listener(&self, from: u32) -> Option<u32> {
        let asking = self.id(from)?;
        let to = asking.destination?;
        let service = to.service(asking.space);
        let listens = |id: &Id| {
            let Some(at) = id.source else { return 0 };
            if id.state != State::Listen || id.service != Some(service) {
                return 0;
            }
            let family = matches!(
                (at, to),
                (Address::Ip(_), Address::Ip(_)) | (Address::Ib { .. }, Address::Ib { .. })
            );
            let covers =
                at.is_ipv4() == to.is_ipv4() || at.is_ipv6() && !id.options.is_af_only(&at);
            match at.is_any() {
                true if family && covers => 1,
                false if at.gid() == to.gid() => 2,
                _ => 0,
            }
        };
        let best = self.table.ids.iter().max_by_key(|(_, id)| listens(id));
        best.filter(|(_, id)| listens(id) > 0).map(|(number, _)| *number)
    }

    fn request(&mut self, from: u32) {
        if let Some(peer) = self.peer(from) {
            // The request is a repeated one: send the lost answer again.
            match self.id(peer).map(|id| id.link) {
                Some(Link::ReqReceived) => self.be_patient(from),
                Some(Link::RepSent) => self.send(peer, CmMessage::Rep),
                _ => {}
            }
            return;
        }
        if self.is_of_an_older_one(from, from) {
            return;
        }
        let Some(asking) = self.id(from) else { return };
        let is_ud = asking.is_ud();
        let Some(listener) = self.listener(from) else {
            return match is_ud {
                true => self.datagram_refused(from, SIDR_UNSUPPORTED, &[]),
                false => self.rejected(
                    from,
                    &Rejection { reason: reject_reason::INVALID_SERVICE_ID, data: &[] },
                ),
            };
        };
        // The other end of an extended connection is a target.
        let kind = match asking.qp_type {
            QpType::XrcIni => QpType::XrcTgt,
            kind => kind,
        };
        let Some(listening) = self.id_mut(listener) else { return };
        if listening.qp_type != kind {
            let other = Rejection { reason: reject_reason::CONSUMER_DEFINED, data: &[] };
            return self.rejected(from, &other);
        }
        if listening.backlog == 0 {
            // Without an answer the connecting side tries again.
            return;
        }
        listening.backlog -= 1;
        let listening = self.id(listener);
        let (Some(listening), Some(asking)) = (listening, self.id(from)) else { return };
        let mut new = Id::new(&listening.channel, 0, listening.space, kind);
        new.options = listening.options;
        new.state = State::Connect;
        new.link = if is_ud { Link::SidrReqReceived } else { Link::ReqReceived };
        (new.source, new.destination) = (asking.destination, asking.source);
        (new.place, new.remote) = (asking.remote, asking.place);
        new.peer = Some(from);
        let header = if asking.has_ip_header() { private_data::IP_HEADER } else { 0 };
        let room = if is_ud { private_data::SIDR_REQUEST } else { private_data::REQUEST };
        new.other = seen(&asking.own, room - header);
        // Until the program sets other limits, they are those that the other end asked for.
        new.own.responder_resources = new.other.responder_resources;
        new.own.initiator_depth = new.other.initiator_depth;
        new.retry_count = asking.own.retry_count;
        new.other_psn = asking.psn;
        let ece = asking.own_ece;
        new.other_ece = ece;
        let param = match is_ud {
            true => Param::Ud(UdParam {
                private_data: new.other.private_data,
                private_data_len: new.other.private_data_len,
                ..UdParam::default()
            }),
            false => Param::Conn(new.other),
        };
        let new = self.table.add(new);
        if let Some(asking) = self.id_mut(from) {
            asking.peer = Some(new);
        }
        self.table.tell_request(listener, new, &param, ece);
        if !is_ud {
            self.be_patient(from);
        }
    }

    /// Whether another identifier has a connection with the queue pair that the sender of a message
    /// names, and has not yet received the message that ends it. If so, the message is rejected and
    /// that connection ends (`cm_insert_remote_qpn`).
    fn is_of_an_older_one(&mut self, from: u32, to: u32) -> bool {
        let Some(sender) = self.id(from).filter(|id| !id.is_ud()) else { return false };
        let (qp_num, device) = (sender.own.qp_num, sender.place.map(|place| place.device));
        let has_it = |id: &Id| {
            let knows_it = matches!(
                id.link,
                Link::ReqReceived
                    | Link::RepSent
                    | Link::RepReceived
                    | Link::Established
                    | Link::DreqSent
                    | Link::DreqReceived
            );
            let there = id.remote.map(|place| place.device);
            knows_it && id.other.qp_num == qp_num && there == device
        };
        let mut others = self.table.ids.iter().filter(|(number, _)| **number != to);
        let Some((&older, _)) = others.find(|(_, id)| has_it(id)) else { return false };
        if self.arrives(older, CmMessage::Rej) {
            let stale = Rejection { reason: reject_reason::STALE_CONNECTION, data: &[] };
            self.rejected(from, &stale);
        }
        if self.id(older).is_some_and(|id| id.link == Link::Established) {
            self.disconnect(older);
        }
        true
    }

    /// The request has arrived: waits longer for its answer.
    fn be_patient(&mut self, from: u32) {
        let each = u64::from(self.table.config.response_ms) * 1_000_000 * PATIENCE;
        if let Some((_, Wait::Answer { message, left, .. })) = self.id(from).and_then(|id| id.timer)
        {
            let wait = Wait::Answer { message, left, each };
            self.table.wait(from, Duration::from_nanos(each), wait);
        }
    }

    fn reply(&mut self, from: u32) {
        let Some(to) = self.peer(from) else {
            let unknown = Rejection { reason: reject_reason::INVALID_COMM_ID, data: &[] };
            return self.rejected(from, &unknown);
        };
        let waits = self.id(to).is_some_and(|id| id.link == Link::ReqSent);
        if waits && self.is_of_an_older_one(from, to) {
            return;
        }
        let Some(accepting) = self.id(from) else { return };
        let (other, psn) = (seen(&accepting.own, private_data::REPLY), accepting.psn);
        let ece = accepting.own_ece;
        let Some(id) = self.id_mut(to) else { return };
        match id.link {
            Link::ReqSent => {
                id.link = Link::RepReceived;
                (id.other, id.other_psn, id.other_ece) = (other, psn, ece);
                // The peer's limits bound those of this side.
                id.own.initiator_depth = other.initiator_depth;
                id.own.responder_resources = other.responder_resources;
                self.table.stop_waiting(to);
                self.table.tell(to, EventType::ConnectResponse, 0, &Param::Conn(other));
            }
            Link::Established => self.send(to, CmMessage::Rtu),
            _ => {}
        }
    }

    /// Sends the peer the message that this side is ready.
    pub(super) fn tell_ready(&mut self, from: u32) {
        self.send(from, CmMessage::Rtu);
    }

    fn ready(&mut self, from: u32) {
        if let Some(to) = self.peer(from) {
            self.established(to);
        }
    }

    /// The connecting side is ready: its message says so, or its first packet.
    pub(super) fn established(&mut self, number: u32) {
        if self.id(number).is_some_and(|id| id.link == Link::RepSent) {
            self.table.stop_waiting(number);
            self.set(number, Link::Established);
            self.table.tell(number, EventType::Established, 0, &Param::None);
        }
    }

    /// Rejects a request, for a connection or for datagrams.
    pub(super) fn turn_down(&mut self, from: u32, rejection: &Rejection<'_>) {
        match self.id(from).map(|id| id.link) {
            Some(Link::SidrReqReceived) => self.datagram_reject(from, rejection.data),
            Some(Link::ReqSent | Link::ReqReceived | Link::RepReceived | Link::RepSent) => {
                self.reject(from, rejection);
            }
            _ => {}
        }
    }

    /// Rejects or gives up the connection, with a message to the peer.
    pub(super) fn reject(&mut self, from: u32, rejection: &Rejection<'_>) {
        let peer = self.peer(from);
        self.table.stop_waiting(from);
        let arrives = self.arrives(from, CmMessage::Rej);
        if let Some(id) = self.id_mut(from) {
            (id.link, id.peer) = (Link::Idle, None);
        }
        if let Some(peer) = peer.filter(|_| arrives) {
            self.rejected(peer, rejection);
        }
    }

    /// An identifier receives a rejection.
    fn rejected(&mut self, number: u32, rejection: &Rejection<'_>) {
        let Some(id) = self.id_mut(number) else { return };
        let waits = matches!(
            id.link,
            Link::ReqSent | Link::RepSent | Link::RepReceived | Link::ReqReceived
        );
        if !waits {
            return;
        }
        (id.link, id.peer) = (Link::Idle, None);
        self.table.stop_waiting(number);
        let mut param =
            ConnParam { private_data_len: private_data::REJECT as u8, ..Default::default() };
        let data = &rejection.data[..rejection.data.len().min(private_data::REJECT)];
        param.private_data[..data.len()].copy_from_slice(data);
        let reason = rejection.reason as i32;
        self.table.tell(number, EventType::Rejected, reason, &Param::Conn(param));
        if rejection.reason == reject_reason::STALE_CONNECTION {
            self.linger(number);
        }
    }

    /// Answers a request for datagrams.
    pub(super) fn datagram_answered(&mut self, from: u32) {
        let arrives = self.arrives(from, CmMessage::SidrRep);
        let peer = self.peer(from);
        let Some(id) = self.id_mut(from) else { return };
        (id.link, id.peer) = (Link::Idle, None);
        let own = seen(&id.own, private_data::SIDR_REPLY);
        let qkey = if id.own.qkey == 0 { qkey(id) } else { id.own.qkey };
        let Some(to) = peer.filter(|_| arrives) else { return };
        if self.id(to).is_none_or(|id| id.link != Link::SidrReqSent) {
            return;
        }
        self.table.stop_waiting(to);
        let ah_attr = self.id(to).and_then(|id| path(self.network, id)).unwrap_or_default();
        let Some(id) = self.id_mut(to) else { return };
        (id.link, id.peer) = (Link::Idle, None);
        let param = UdParam {
            qp_num: own.qp_num,
            qkey,
            ah_attr,
            private_data: own.private_data,
            private_data_len: own.private_data_len,
            reserved: [0; 7],
        };
        self.table.tell(to, EventType::Established, 0, &Param::Ud(param));
    }

    /// Refuses a request for datagrams.
    fn datagram_reject(&mut self, from: u32, data: &[u8]) {
        let arrives = self.arrives(from, CmMessage::SidrRep);
        let peer = self.peer(from);
        if let Some(id) = self.id_mut(from) {
            (id.link, id.peer) = (Link::Idle, None);
        }
        if let Some(to) = peer.filter(|_| arrives) {
            self.datagram_refused(to, SIDR_REJECT, data);
        }
    }

    fn datagram_refused(&mut self, number: u32, status: i32, data: &[u8]) {
        let Some(id) = self.id_mut(number).filter(|id| id.link == Link::SidrReqSent) else {
            return;
        };
        (id.link, id.peer) = (Link::Idle, None);
        self.table.stop_waiting(number);
        let mut param =
            UdParam { private_data_len: private_data::SIDR_REPLY as u8, ..Default::default() };
        param.private_data[..data.len()].copy_from_slice(data);
        self.table.tell(number, EventType::Unreachable, status, &Param::Ud(param));
    }

    /// Ends a connection, or agrees to its end.
    pub(super) fn disconnect(&mut self, number: u32) {
        match self.id(number).map(|id| id.link) {
            Some(Link::Established) => {
                self.set(number, Link::DreqSent);
                self.ask(number, CmMessage::Dreq);
            }
            Some(Link::DreqReceived) => {
                self.send(number, CmMessage::Drep);
                self.linger(number);
            }
            _ => {}
        }
    }

    fn disconnect_request(&mut self, from: u32) {
        let Some(to) = self.peer(from) else {
            // An end without the connection confirms its end.
            return self.agreed(from);
        };
        match self.id(to).map(|id| id.link) {
            Some(Link::Established | Link::RepSent | Link::DreqSent | Link::RepReceived) => {
                self.table.stop_waiting(to);
                self.set(to, Link::DreqReceived);
                self.ended(to, 0);
            }
            Some(Link::DreqReceived) => {}
            _ => self.agreed(from),
        }
    }

    fn disconnect_reply(&mut self, from: u32) {
        if let Some(to) = self.peer(from) {
            self.agreed(to);
        }
    }

    /// The peer confirmed the end.
    fn agreed(&mut self, number: u32) {
        if self.id(number).is_some_and(|id| id.link == Link::DreqSent) {
            self.linger(number);
            self.ended(number, 0);
        }
    }

    /// Reports the end of the connection to the program, once.
    fn ended(&mut self, number: u32, status: i32) {
        let Some(id) = self.id_mut(number).filter(|id| id.state == State::Connect) else { return };
        id.state = State::Disconnect;
        self.table.tell(number, EventType::Disconnected, status, &Param::None);
    }

    /// Waits until no packet of the connection is in flight.
    fn linger(&mut self, number: u32) {
        self.set(number, Link::Timewait);
        let time = Duration::from_millis(self.table.config.timewait_ms.into());
        self.table.wait(number, time, Wait::Timewait);
    }

    /// Ends an identifier, with a message to its peer.
    pub(super) fn destroy(&mut self, number: u32) {
        let Some(id) = self.id(number) else { return };
        let give_up = |reason| Rejection { reason, data: &[] };
        match id.link {
            Link::ReqSent => self.reject(number, &give_up(reject_reason::TIMEOUT)),
            Link::ReqReceived | Link::RepSent | Link::RepReceived => {
                self.reject(number, &give_up(reject_reason::CONSUMER_DEFINED));
            }
            Link::SidrReqReceived => self.datagram_reject(number, &[]),
            // These messages are not sent again; if one is lost, the peer's own time limit ends its
            // side.
            Link::Established => self.send(number, CmMessage::Dreq),
            Link::DreqReceived => self.send(number, CmMessage::Drep),
            _ => {}
        }
        self.table.stop_waiting(number);
        let Some(id) = self.table.ids.remove(&number) else { return };
        self.table.groups.retain(|_, group| group.id != number);
        // Requests that its program has not seen end with it.
        for event in id.channel.take(|event| event.owner == number) {
            if let Some(request) = event.request {
                self.destroy(request);
            }
        }
    }

    /// A timer is due.
    pub(super) fn expired(&mut self, number: u32, wait: Wait) {
        match wait {
            Wait::Address => {
                if let Some(id) = self.id_mut(number) {
                    id.state = State::AddrBound;
                    let status = failed(Errno::ETIMEDOUT);
                    self.table.tell(number, EventType::AddrError, status, &Param::None);
                }
            }
            Wait::Answer { message, left: 0, .. } => self.unanswered(number, message),
            Wait::Answer { message, left, each } => {
                let wait = Wait::Answer { message, left: left - 1, each };
                self.table.wait(number, Duration::from_nanos(each), wait);
                self.send(number, message);
            }
            Wait::Timewait => {
                if let Some(id) = self.id_mut(number) {
                    (id.link, id.peer) = (Link::Idle, None);
                }
                self.table.tell(number, EventType::TimewaitExit, 0, &Param::None);
            }
        }
    }

    /// No try was answered.
    fn unanswered(&mut self, number: u32, message: CmMessage) {
        let status = failed(Errno::ETIMEDOUT);
        if message == CmMessage::Dreq {
            self.linger(number);
            return self.ended(number, status);
        }
        if message == CmMessage::Req {
            self.reject(number, &Rejection { reason: reject_reason::TIMEOUT, data: &[] });
        }
        if let Some(id) = self.id_mut(number) {
            (id.link, id.peer) = (Link::Idle, None);
        }
        self.table.tell(number, EventType::Unreachable, status, &Param::None);
    }

    /// The identifiers that are bound to a device.
    fn bound_to(&self, device: usize) -> Vec<u32> {
        let of = |id: &Id| id.place.is_some_and(|place| place.device == device);
        self.table.ids.iter().filter(|(_, id)| of(id)).map(|(number, _)| *number).collect()
    }

    /// Reports that the addresses of a device have moved to another one, as when the interface of a
    /// bond changes. Identifiers that are bound to the device stay bound to it.
    pub(super) fn addresses_moved(&mut self, device: usize) {
        for number in self.bound_to(device) {
            self.table.tell(number, EventType::AddrChange, 0, &Param::None);
        }
    }

    /// The device of some identifiers is gone.
    pub(super) fn device_gone(&mut self, device: usize) {
        for number in self.bound_to(device) {
            self.table.stop_waiting(number);
            if let Some(id) = self.id_mut(number) {
                (id.state, id.link, id.peer) = (State::DeviceRemoval, Link::Idle, None);
                // The kernel frees its service.
                id.service = None;
            }
            self.table.tell(number, EventType::DeviceRemoval, 0, &Param::None);
        }
    }
}

/// The path of packets to a multicast group.
pub(super) fn group_path(dgid: [u8; 16], sgid_index: u8, port: u8, mlid: u16, tos: u8) -> AhAttr {
    AhAttr {
        grh: GlobalRoute {
            dgid,
            sgid_index,
            hop_limit: 1,
            traffic_class: tos,
            ..Default::default()
        },
        dlid: mlid,
        is_global: 1,
        port_num: port,
        ..AhAttr::default()
    }
}
