//! The commands, checked and executed as in the kernel.

use std::mem::offset_of;
use std::sync::Arc;
use std::time::Duration;

use mlx5_uapi::Errno;
use mlx5_uapi::rdma_cm::{
    Accept, Bind, BindIp, CommandId, ConnParam, Connect, CreateId, CreateIdResp, DestroyId,
    DestroyIdResp, Disconnect, EventResp, EventType, GetEvent, IdOption, InitQpAttr, JoinFlag,
    JoinIpMcast, JoinMcast, Listen, MigrateId, MigrateResp, Notify, OptionLevel, PathData,
    PortSpace, Query, QueryAddrResp, QueryOption, QueryPathResp, QueryRouteResp, Reject,
    ResolveAddr, ResolveIp, ResolveRoute, SetOption, private_data, reject_reason,
};
use mlx5_uapi::verbs::{EventType as VerbsEvent, QpType};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::config::LinkLayer;
use crate::kernel::cm::address::{Address, ib_address};
use crate::kernel::cm::attributes;
use crate::kernel::cm::channel::Channel;
use crate::kernel::cm::connect::{Ends, Rejection};
use crate::kernel::cm::multicast;
use crate::kernel::cm::network::Network;
use crate::kernel::cm::state::{CmMessage, Id, Link, Options, Param, State, Table, Wait};
use crate::kernel::current;

/// The longest queue of requests (`net.rdma_ucm.max_backlog`).
const MAX_BACKLOG: u32 = 1024;
/// The longest value of an option.
const LONGEST_OPTION: u32 = 4096;

/// One call of a channel.
pub(super) struct Call<'a> {
    pub(super) table: &'a mut Table,
    pub(super) network: &'a Network,
    pub(super) channel: &'a Arc<Channel>,
    pub(super) command: &'a [u8],
    /// Room for the response.
    pub(super) room: usize,
}

/// The kernel's number of a device, counted from zero.
fn place_number(id: &Id) -> u32 {
    id.place.map_or(0, |place| place.device as u32)
}

impl Call<'_> {
    /// Executes a command.
    pub(super) fn run(&mut self, command: CommandId) -> Result<(), Errno> {
        match command {
            CommandId::CreateId => self.create_id(),
            CommandId::DestroyId => self.destroy_id(),
            CommandId::BindIp => {
                let BindIp { id, addr, .. } = self.read()?;
                self.bind(id, &addr)
            }
            CommandId::Bind => {
                let Bind { id, addr, addr_size, reserved } = self.read()?;
                zero(reserved.into())?;
                self.bind(id, sized(&addr, addr_size)?)
            }
            CommandId::ResolveIp => {
                let ResolveIp { id, src_addr, dst_addr, timeout_ms } = self.read()?;
                self.resolve_addr(id, &src_addr, &dst_addr, timeout_ms)
            }
            CommandId::ResolveAddr => {
                let it: ResolveAddr = self.read()?;
                zero(it.reserved)?;
                let source = match it.src_size {
                    0 => &[0; 4],
                    size => sized(&it.src_addr, size)?,
                };
                self.resolve_addr(it.id, source, sized(&it.dst_addr, it.dst_size)?, it.timeout_ms)
            }
            CommandId::ResolveRoute => self.resolve_route(),
            CommandId::QueryRoute => self.query_route(),
            CommandId::Query => self.query(),
            CommandId::Connect => self.connect(),
            CommandId::Listen => self.listen(),
            CommandId::Accept => self.accept(),
            CommandId::Reject => self.reject(),
            CommandId::Disconnect => self.disconnect(),
            CommandId::InitQpAttr => self.init_qp_attr(),
            CommandId::GetEvent => self.get_event(),
            CommandId::SetOption => self.set_option(),
            CommandId::Notify => self.notify(),
            CommandId::JoinIpMcast => {
                let it: JoinIpMcast = self.read()?;
                self.join(it.response, it.uid, it.id, &it.addr, JoinFlag::FullMember)
            }
            CommandId::JoinMcast => {
                let it: JoinMcast = self.read()?;
                let flag = JoinFlag::from_raw(it.join_flags).ok_or(Errno::EINVAL)?;
                self.join(it.response, it.uid, it.id, sized(&it.addr, it.addr_size)?, flag)
            }
            CommandId::LeaveMcast => self.leave(),
            CommandId::MigrateId => self.migrate(),
            CommandId::GetOption | CommandId::ResolveIbService | CommandId::WriteCmEvent => {
                Err(Errno::ENOSYS)
            }
        }
    }

    /// The command's structure. Older programs have shorter ones; the missing fields are zero.
    fn read<T: FromBytes + IntoBytes>(&self) -> Result<T, Errno> {
        let mut command = T::new_zeroed();
        let bytes = command.as_mut_bytes();
        let length = bytes.len().min(self.command.len());
        bytes[..length].copy_from_slice(&self.command[..length]);
        Ok(command)
    }

    /// Writes a response; older programs have less room.
    fn answer<T: IntoBytes + Immutable>(&self, to: u64, response: &T) -> Result<(), Errno> {
        let bytes = response.as_bytes();
        let length = bytes.len().min(self.room);
        // SAFETY: the caller of `write` promises that the response's address is writable for `room`
        // bytes; `length` is at most that.
        unsafe { current::copy_to(to, &bytes[..length]) }
    }

    /// Fails if there is less room for a response.
    fn need(&self, room: usize) -> Result<(), Errno> {
        if self.room < room { Err(Errno::ENOSPC) } else { Ok(()) }
    }

    fn id(&mut self, number: u32) -> Result<&mut Id, Errno> {
        self.table.own(self.channel, number)
    }

    fn ends(&mut self) -> Ends<'_> {
        Ends { table: self.table, network: self.network }
    }

    fn create_id(&mut self) -> Result<(), Errno> {
        self.need(size_of::<CreateIdResp>())?;
        let it: CreateId = self.read()?;
        let space = PortSpace::from_raw(it.ps).ok_or(Errno::EINVAL)?;
        let kind = match space {
            PortSpace::Tcp => QpType::Rc,
            PortSpace::Udp | PortSpace::IpoIb => QpType::Ud,
            PortSpace::Ib => QpType::from_raw(it.qp_type).ok_or(Errno::EINVAL)?,
        };
        let id = self.table.add(Id::new(self.channel, it.uid, space, kind));
        let made = self.answer(it.response, &CreateIdResp { id });
        if made.is_err() {
            self.table.ids.remove(&id);
        }
        made
    }

    fn destroy_id(&mut self) -> Result<(), Errno> {
        self.need(size_of::<DestroyIdResp>())?;
        let it: DestroyId = self.read()?;
        let events_reported = self.table.of_channel(self.channel, it.id)?.reported;
        self.ends().destroy(it.id);
        self.answer(it.response, &DestroyIdResp { events_reported })
    }

    /// Binds an identifier to an address and a port.
    fn take_address(&mut self, number: u32, address: Address) -> Result<(), Errno> {
        let space = self.id(number)?.space;
        let place = match address.is_any() {
            true => None,
            false => Some(self.network.place_of(&address.gid()).ok_or(Errno::EADDRNOTAVAIL)?),
        };
        let address = match address.needs_port() {
            true => address
                .with_port(self.table.free_port(&address, space).ok_or(Errno::EADDRNOTAVAIL)?),
            false => address,
        };
        let service = address.service(space);
        let options = self.id(number)?.options;
        self.check_port(number, address, service, options)?;
        let id = self.id(number)?;
        (id.source, id.service) = (Some(address), Some(service));
        (id.place, id.state) = (place, State::AddrBound);
        Ok(())
    }

    /// Returns an error if another identifier has the port and does not share it. As in
    /// `cma_check_port`, the error is another one if either address is the wildcard.
    fn check_port(
        &self,
        number: u32,
        address: Address,
        service: u64,
        options: Options,
    ) -> Result<(), Errno> {
        let conflict = |(other, id): (&u32, &Id)| {
            let shared = options.reuse && id.options.reuse;
            if *other == number || id.service != Some(service) || shared {
                return None;
            }
            let source = id.source?;
            let apart = options.is_af_only(&address) && id.options.is_af_only(&source);
            if apart && !address.is_of_family(&source) {
                return None;
            }
            if address.is_any() || source.is_any() {
                return Some(Errno::EADDRNOTAVAIL);
            }
            (source.gid() == address.gid()).then_some(Errno::EADDRINUSE)
        };
        self.table.ids.iter().find_map(conflict).map_or(Ok(()), Err)
    }

    fn bind(&mut self, number: u32, address: &[u8]) -> Result<(), Errno> {
        let address = Address::read(address)?.ok_or(Errno::EINVAL)?;
        if self.id(number)?.state != State::Idle {
            return Err(Errno::EINVAL);
        }
        self.take_address(number, address)
    }

    fn resolve_addr(
        &mut self,
        number: u32,
        source: &[u8],
        destination: &[u8],
        timeout_ms: u32,
    ) -> Result<(), Errno> {
        let source = Address::read(source)?;
        let destination = Address::read(destination)?.ok_or(Errno::EINVAL)?;
        match self.id(number)?.state {
            State::Idle => self.take_address(number, source.unwrap_or(destination.any()))?,
            State::AddrBound => {}
            _ => return Err(Errno::EINVAL),
        }
        let group = multicast::is_group(&destination);
        let remote = self.network.place_of(&destination.gid());
        if remote.is_none() && !group && !self.network.is_near(&destination.gid()) {
            return Err(Errno::ENETUNREACH);
        }
        let way = match remote {
            Some(remote) => self.network.way_to(remote),
            None => self.network.first(),
        };
        let id = self.table.own(self.channel, number)?;
        id.destination = Some(destination);
        if remote.is_none() && !group {
            // A host might still answer for the address.
            id.state = State::AddrQuery;
            let time = Duration::from_millis(timeout_ms.into());
            self.table.wait(number, time, Wait::Address);
            return Ok(());
        }
        id.place = id.place.or(way);
        id.remote = remote;
        let place = id.place.ok_or(Errno::ENETUNREACH)?;
        if let Some(source) = id.source.filter(Address::is_any) {
            let gid = match remote {
                Some(remote) if remote == place => Some(destination.gid()),
                _ => self.network.address(place, &destination.gid()),
            };
            id.source = Some(source.at(gid.ok_or(Errno::ENODEV)?));
        }
        let layer = |place| self.network.facts(place).map(|facts| facts.link_layer);
        if let Some(remote) = remote
            && layer(place) != layer(remote)
        {
            return Err(Errno::ENETUNREACH);
        }
        id.state = State::AddrResolved;
        self.table.tell(number, EventType::AddrResolved, 0, &Param::None);
        Ok(())
    }

    fn resolve_route(&mut self) -> Result<(), Errno> {
        let it: ResolveRoute = self.read()?;
        let id = self.id(it.id)?;
        if id.state != State::AddrResolved {
            return Err(Errno::EINVAL);
        }
        id.state = State::RouteResolved;
        self.table.tell(it.id, EventType::RouteResolved, 0, &Param::None);
        Ok(())
    }

    fn query_route(&mut self) -> Result<(), Errno> {
        self.need(offset_of!(QueryRouteResp, ibdev_index))?;
        let it: Query = self.read()?;
        let network = self.network;
        let id = self.id(it.id)?;
        let mut response = QueryRouteResp {
            src_addr: id.source.map_or([0; 28], |address| address.write()),
            dst_addr: id.destination.map_or([0; 28], |address| address.write()),
            ..QueryRouteResp::default()
        };
        if let Some((place, facts)) = id.place.and_then(|at| Some((at, network.facts(at)?))) {
            response.node_guid = facts.node_guid.to_be_bytes();
            response.port_num = place.port;
            response.ibdev_index = place_number(id);
            if let Some(record) = attributes::path_record(network, id) {
                response.ib_route[0] = record;
                response.num_paths = u32::from(has_route(id));
            }
        }
        self.answer(it.response, &response)
    }

    fn query(&mut self) -> Result<(), Errno> {
        let it: Query = self.read()?;
        let option = QueryOption::from_raw(it.option);
        self.need(match option {
            Some(QueryOption::Path) => offset_of!(QueryPathResp, path_data),
            _ => offset_of!(QueryAddrResp, ibdev_index),
        })?;
        let (network, room) = (self.network, self.room);
        let id = self.id(it.id)?;
        let facts = id.place.and_then(|place| network.facts(place));
        let pkey = facts.map_or([0; 2], |facts| facts.pkey.to_be_bytes());
        let mut response = QueryAddrResp {
            node_guid: facts.map_or([0; 8], |facts| facts.node_guid.to_be_bytes()),
            port_num: id.place.map_or(0, |place| place.port),
            pkey,
            ibdev_index: place_number(id),
            ..QueryAddrResp::default()
        };
        match option {
            Some(QueryOption::Addr) => {
                response.src_size = id.source.map_or(0, |address| address.size() as u16);
                response.dst_size = id.destination.map_or(0, |address| address.size() as u16);
                response.src_addr = id.source.map_or([0; 128], |address| address.write());
                response.dst_addr = id.destination.map_or([0; 128], |address| address.write());
                self.answer(it.response, &response)
            }
            Some(QueryOption::Gid) => {
                let (own, other) = attributes::gids(network, id).unwrap_or_default();
                let as_ib = |address: Option<Address>, gid| {
                    let service = address.map_or(0, |address| address.service(id.space));
                    let ib = ib_address(gid, pkey, service, u64::MAX);
                    let mut bytes = [0; 128];
                    bytes[..size_of_val(&ib)].copy_from_slice(ib.as_bytes());
                    bytes
                };
                response.src_addr = as_ib(id.source, own);
                response.dst_addr = as_ib(id.destination, other);
                (response.src_size, response.dst_size) = (48, 48);
                self.answer(it.response, &response)
            }
            Some(QueryOption::Path) => {
                let record = attributes::path_record(network, id).filter(|_| has_route(id));
                let mut response =
                    QueryPathResp { num_paths: record.is_some().into(), ..Default::default() };
                // `ucma_query_path` stops if the remaining room is no more than a path.
                let header = offset_of!(QueryPathResp, path_data);
                let record = record.filter(|_| room - header > size_of::<PathData>());
                if let Some(record) = &record {
                    response.path_data[0] = attributes::path_data(record);
                }
                let length = header + record.map_or(0, |_| size_of::<PathData>());
                // SAFETY: the caller of `write` promises that the response's address is writable
                // for `room` bytes; a response with a path has at most that.
                unsafe { current::copy_to(it.response, &response.as_bytes()[..length]) }
            }
            Some(QueryOption::IbService) | None => Err(Errno::ENOSYS),
        }
    }

    /// Checks that a message has room for private data.
    fn check_data(id: &Id, param: &ConnParam, asks: bool) -> Result<(), Errno> {
        let header = if asks && id.has_ip_header() { private_data::IP_HEADER } else { 0 };
        let room = match (asks, id.is_ud()) {
            (true, false) => private_data::REQUEST,
            (true, true) => private_data::SIDR_REQUEST,
            (false, false) => private_data::REPLY,
            (false, true) => private_data::SIDR_REPLY,
        };
        let fits = header + usize::from(param.private_data_len) <= room;
        if fits { Ok(()) } else { Err(Errno::EINVAL) }
    }

    fn connect(&mut self) -> Result<(), Errno> {
        let it: Connect = self.read()?;
        let id = self.id(it.id)?;
        if it.conn_param.valid == 0 || id.state != State::RouteResolved {
            return Err(Errno::EINVAL);
        }
        Self::check_data(id, &it.conn_param, true)?;
        (id.own, id.own_ece) = (it.conn_param, it.ece);
        // As the kernel does, which takes larger ones.
        id.retry_count = it.conn_param.retry_count.min(attributes::MOST_RETRIES);
        id.state = State::Connect;
        let (link, message) = match id.is_ud() {
            true => (Link::SidrReqSent, CmMessage::SidrReq),
            false => (Link::ReqSent, CmMessage::Req),
        };
        id.link = link;
        self.ends().ask(it.id, message);
        Ok(())
    }

    fn listen(&mut self) -> Result<(), Errno> {
        let it: Listen = self.read()?;
        if self.id(it.id)?.state == State::Idle {
            let any = std::net::SocketAddr::from((std::net::Ipv4Addr::UNSPECIFIED, 0));
            self.take_address(it.id, Address::Ip(any))?;
        }
        let id = self.id(it.id)?;
        if id.state != State::AddrBound {
            return Err(Errno::EINVAL);
        }
        // A listener shares its address with no other identifier, not even with one that is only
        // bound.
        if let (true, Some(service), Some(source)) = (id.options.reuse, id.service, id.source) {
            let alone = Options { reuse: false, ..id.options };
            self.check_port(it.id, source, service, alone)?;
        }
        let id = self.id(it.id)?;
        (id.state, id.options.reuse) = (State::Listen, false);
        id.backlog = if (1..MAX_BACKLOG).contains(&it.backlog) { it.backlog } else { MAX_BACKLOG };
        Ok(())
    }

    fn accept(&mut self) -> Result<(), Errno> {
        let it: Accept = self.read()?;
        if self.id(it.id)?.state != State::Connect {
            return Err(Errno::EINVAL);
        }
        let accepted = match it.conn_param.valid {
            0 => self.be_ready(it.id),
            _ => self.answer_request(&it),
        };
        if accepted.is_err() {
            // `rdma_accept` gives the connection up.
            let reason = reject_reason::CONSUMER_DEFINED;
            self.ends().turn_down(it.id, &Rejection { reason, data: &[] });
        }
        accepted
    }

    fn be_ready(&mut self, number: u32) -> Result<(), Errno> {
        let id = self.id(number)?;
        if id.link != Link::RepReceived {
            return Err(Errno::EINVAL);
        }
        id.link = Link::Established;
        self.ends().tell_ready(number);
        Ok(())
    }

    fn answer_request(&mut self, it: &Accept) -> Result<(), Errno> {
        let id = self.id(it.id)?;
        Self::check_data(id, &it.conn_param, false)?;
        match id.link {
            Link::ReqReceived => {
                (id.own, id.own_ece) = (it.conn_param, it.ece);
                (id.uid, id.link) = (it.uid, Link::RepSent);
                self.ends().ask(it.id, CmMessage::Rep);
            }
            Link::SidrReqReceived => {
                id.own = it.conn_param;
                id.uid = it.uid;
                self.ends().datagram_answered(it.id);
            }
            _ => return Err(Errno::EINVAL),
        }
        Ok(())
    }

    fn reject(&mut self) -> Result<(), Errno> {
        let it: Reject = self.read()?;
        let reason = match u32::from(it.reason) {
            0 => reject_reason::CONSUMER_DEFINED,
            reason @ (reject_reason::CONSUMER_DEFINED
            | reject_reason::VENDOR_OPTION_NOT_SUPPORTED) => reason,
            _ => return Err(Errno::EINVAL),
        };
        let data = &it.private_data[..usize::from(it.private_data_len)];
        let id = self.id(it.id)?;
        let room = if id.is_ud() { private_data::SIDR_REPLY } else { private_data::REJECT };
        if data.len() > room {
            return Err(Errno::EINVAL);
        }
        match id.link {
            Link::SidrReqReceived | Link::ReqReceived | Link::RepReceived => {
                self.ends().turn_down(it.id, &Rejection { reason, data });
                Ok(())
            }
            _ => Err(Errno::EINVAL),
        }
    }

    fn disconnect(&mut self) -> Result<(), Errno> {
        let it: Disconnect = self.read()?;
        if self.id(it.id)?.link == Link::None {
            return Err(Errno::EINVAL);
        }
        self.ends().disconnect(it.id);
        Ok(())
    }

    fn init_qp_attr(&mut self) -> Result<(), Errno> {
        self.need(size_of::<mlx5_uapi::verbs::QpAttr>())?;
        let it: InitQpAttr = self.read()?;
        let network = self.network;
        let attr = attributes::attributes(network, self.id(it.id)?, it.qp_state)?;
        self.answer(it.response, &attr)
    }

    fn get_event(&mut self) -> Result<(), Errno> {
        // Older programs lack the fields from the reserved one on, among them ECE.
        self.need(offset_of!(EventResp, reserved))?;
        let it: GetEvent = self.read()?;
        let event = self.channel.first().ok_or(Errno::EAGAIN)?;
        self.answer(it.response, &event.record)?;
        self.channel.pop();
        if let Some(group) = event.group.and_then(|group| self.table.groups.get_mut(&group)) {
            group.reported += 1;
        }
        if let Some(id) = self.table.ids.get_mut(&event.owner) {
            id.reported += 1;
            id.backlog += u32::from(event.request.is_some());
        }
        Ok(())
    }

    fn set_option(&mut self) -> Result<(), Errno> {
        let it: SetOption = self.read()?;
        self.id(it.id)?;
        if it.optlen > LONGEST_OPTION {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the caller of `write` promises that `optlen` bytes at `optval` can be read.
        let value = unsafe { current::copy_from(it.optval, it.optlen as usize) }?;
        let byte = || <[u8; 1]>::try_from(&*value).map(|[byte]| byte).map_err(|_| Errno::EINVAL);
        let flag = || {
            let bytes = <[u8; 4]>::try_from(&*value).map_err(|_| Errno::EINVAL)?;
            Ok::<_, Errno>(u32::from_ne_bytes(bytes) != 0)
        };
        let id = self.id(it.id)?;
        match (OptionLevel::from_raw(it.level), IdOption::from_raw(it.optname)) {
            (Some(OptionLevel::Id), Some(IdOption::Tos)) => id.options.tos = byte()?,
            (Some(OptionLevel::Id), Some(IdOption::ReuseAddr)) => {
                // The option cannot be cleared any more once the identifier is bound.
                if !flag()? && id.state != State::Idle {
                    return Err(Errno::EINVAL);
                }
                id.options.reuse = flag()?;
            }
            (Some(OptionLevel::Id), Some(IdOption::AfOnly)) => {
                if !matches!(id.state, State::Idle | State::AddrBound) {
                    return Err(Errno::EINVAL);
                }
                id.options.af_only = Some(flag()?);
            }
            (Some(OptionLevel::Id), Some(IdOption::AckTimeout)) => {
                // The field has five bits.
                let timeout = byte()?;
                if timeout > 31 {
                    return Err(Errno::EINVAL);
                }
                id.options.ack_timeout = Some(timeout);
            }
            _ => return Err(Errno::ENOSYS),
        }
        Ok(())
    }

    fn notify(&mut self) -> Result<(), Errno> {
        let it: Notify = self.read()?;
        let link = self.id(it.id)?.link;
        if VerbsEvent::from_raw(it.event) != Some(VerbsEvent::CommunicationEstablished) {
            return Err(Errno::EINVAL);
        }
        match link {
            Link::RepSent => {
                self.ends().established(it.id);
                Ok(())
            }
            Link::Established => Err(Errno::EISCONN),
            _ => Err(Errno::EINVAL),
        }
    }

    fn join(
        &mut self,
        response: u64,
        uid: u64,
        number: u32,
        address: &[u8],
        flag: JoinFlag,
    ) -> Result<(), Errno> {
        self.need(size_of::<CreateIdResp>())?;
        let network = self.network;
        let address = Address::read(address)?.ok_or(Errno::EINVAL)?;
        let id = self.id(number)?;
        let bound = [State::AddrBound, State::AddrResolved, State::RouteResolved];
        if !id.is_ud() || !bound.contains(&id.state) {
            return Err(Errno::EINVAL);
        }
        let place = id.place.ok_or(Errno::ENODEV)?;
        let facts = network.facts(place).ok_or(Errno::ENODEV)?;
        // Only the subnet administrator knows members that only send.
        if flag == JoinFlag::SendOnlyFullMember && facts.link_layer == LinkLayer::Ethernet {
            return Err(Errno::EOPNOTSUPP);
        }
        let event = multicast::joined(network, id, place, &facts, &address);
        let group = self.table.next_group();
        self.answer(response, &CreateIdResp { id: group })?;
        multicast::add(self.table, number, group, uid, event);
        Ok(())
    }

    fn leave(&mut self) -> Result<(), Errno> {
        self.need(size_of::<DestroyIdResp>())?;
        let it: DestroyId = self.read()?;
        let group = self.table.groups.get(&it.id).ok_or(Errno::ENOENT)?;
        let (id, events_reported) = (group.id, group.reported);
        // It goes with its identifier.
        self.id(id).map_err(|errno| if errno == Errno::EIO { Errno::ENXIO } else { errno })?;
        self.table.groups.remove(&it.id);
        self.channel.take(|event| event.group == Some(it.id));
        self.answer(it.response, &DestroyIdResp { events_reported })
    }

    fn migrate(&mut self) -> Result<(), Errno> {
        self.need(size_of::<MigrateResp>())?;
        let it: MigrateId = self.read()?;
        let id = self.table.ids.get_mut(&it.id).ok_or(Errno::ENOENT)?;
        if id.channel.fd().cast_unsigned() != it.fd {
            return Err(Errno::EINVAL);
        }
        if id.state == State::DeviceRemoval {
            return Err(Errno::EIO);
        }
        let before = std::mem::replace(&mut id.channel, Arc::clone(self.channel));
        let events_reported = id.reported;
        for event in before.take(|event| event.owner == it.id) {
            self.channel.push(event);
        }
        self.answer(it.response, &MigrateResp { events_reported })
    }
}

/// Whether the route of an identifier is known.
fn has_route(id: &Id) -> bool {
    !matches!(id.state, State::Idle | State::AddrBound | State::AddrQuery | State::AddrResolved)
}

/// Checks a reserved field.
fn zero(reserved: u32) -> Result<(), Errno> {
    if reserved == 0 { Ok(()) } else { Err(Errno::EINVAL) }
}

/// The bytes of an address that a command gives, which must be all that its family needs.
fn sized(bytes: &[u8; 128], size: u16) -> Result<&[u8], Errno> {
    let size = usize::from(size);
    let address = Address::read(bytes)?.ok_or(Errno::EINVAL)?;
    if address.size() == size { Ok(&bytes[..size]) } else { Err(Errno::EINVAL) }
}
