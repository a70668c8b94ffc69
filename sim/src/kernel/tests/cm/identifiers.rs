//! Identifiers: addresses, channels, and refused calls.

use mlx5_uapi::rdma_cm::{
    BindIp, Command, CommandId, Header, IdOption, JoinMcast, Query, QueryOption, leave_mcast,
    query_addr, set_option,
};
use zerocopy::{Immutable, IntoBytes};

use super::*;

#[test]
fn an_address_is_one_identifiers_unless_both_share_it() {
    let machine = machine(PortConfig::ROCE);
    let program = Program::start(&machine);
    let ids: Vec<u32> = (1..=4).map(|uid| program.create(uid, PortSpace::Tcp)).collect();
    program.bind(ids[0], HERE, 9).expect("bound");
    assert_eq!(program.bind(ids[1], HERE, 9), Err(Errno::EADDRINUSE));
    // Linux returns this error if one of the addresses is the wildcard.
    assert_eq!(program.bind(ids[1], "0.0.0.0", 9), Err(Errno::EADDRNOTAVAIL));
    program.bind(ids[1], "0.0.0.0", 11).expect("another port");
    let udp = program.create(5, PortSpace::Udp);
    program.bind(udp, HERE, 9).expect("another port space");
    for id in &ids[2..] {
        set_option(&*program.0, *id, IdOption::ReuseAddr, &1_u32.to_ne_bytes()).expect("set");
        program.bind(*id, HERE, 10).expect("shared");
    }
    // A listener shares its address with no other identifier.
    assert_eq!(program.listen(ids[2], 1), Err(Errno::EADDRINUSE));
    program.destroy(ids[3]).expect("destroyed");
    program.listen(ids[2], 1).expect("listening");
    let late = program.create(6, PortSpace::Tcp);
    set_option(&*program.0, late, IdOption::ReuseAddr, &1_u32.to_ne_bytes()).expect("set");
    assert_eq!(program.bind(late, HERE, 10), Err(Errno::EADDRINUSE));
    assert_eq!(program.bind(late, HERE, 11), Err(Errno::EADDRNOTAVAIL));
}

/// An IPv6 wildcard address includes IPv4, unless the program sets it to IPv6 alone.
#[test]
fn families_that_are_kept_apart_share_a_port() {
    let machine = machine(PortConfig::ROCE);
    let program = Program::start(&machine);
    let ids: Vec<u32> = (1..=5).map(|uid| program.create(uid, PortSpace::Tcp)).collect();
    let only = |id, only: u32| {
        set_option(&*program.0, id, IdOption::AfOnly, &only.to_ne_bytes()).expect("set");
    };
    program.bind(ids[0], "0.0.0.0", 9).expect("bound");
    assert_eq!(program.bind(ids[1], "::", 9), Err(Errno::EADDRNOTAVAIL));
    only(ids[1], 1);
    program.bind(ids[1], "::", 9).expect("apart");
    only(ids[2], 1);
    assert_eq!(program.bind(ids[2], "::", 9), Err(Errno::EADDRNOTAVAIL), "the same family");
    // Of IPv4, and not for it alone: the program has said so.
    only(ids[3], 0);
    program.bind(ids[3], "0.0.0.0", 10).expect("bound");
    only(ids[4], 1);
    assert_eq!(program.bind(ids[4], "::", 10), Err(Errno::EADDRNOTAVAIL));
}

#[test]
fn an_address_of_nobody_is_refused_or_not_answered_for() {
    let machine = machine(PortConfig::ROCE);
    let program = Program::start(&machine);
    let id = program.create(CLIENT, PortSpace::Tcp);
    assert_eq!(program.bind(id, "10.0.0.77", 1), Err(Errno::EADDRNOTAVAIL));
    assert_eq!(program.resolve_addr(id, "192.168.9.9", 1), Err(Errno::ENETUNREACH));
    program.resolve_addr(id, "10.0.0.77", 1).expect("resolving");
    assert!(program.event().is_none());
    assert!(machine.pass_cm_time());
    let event = program.expect(EventType::AddrError);
    assert_eq!(event.status(), -(Errno::ETIMEDOUT as i32));
    // It may be tried again.
    program.resolve_addr(id, HERE, 1).expect("resolving");
    program.expect(EventType::AddrResolved);
}

#[test]
fn ports_have_the_addresses_that_they_are_given() {
    let given = ["10.7.0.3", "192.168.5.1"];
    for link in [PortConfig::ROCE, PortConfig::INFINIBAND] {
        let config = SimConfig::new().devices(2).ports([link, link]).step(true);
        let machine = Simulator::new(config.ipv4(given.map(|one| one.parse().expect("IPv4"))));
        let program = Program::start(&machine);
        // Those of the second device are its own by its place.
        for (address, port) in given.into_iter().chain(["10.0.0.3", "10.0.0.4"]).zip(1..) {
            let id = program.create(CLIENT + port, PortSpace::Tcp);
            program.bind(id, address, 9).unwrap_or_else(|errno| panic!("{address}: {errno}"));
        }
        let id = program.create(CLIENT, PortSpace::Tcp);
        assert_eq!(program.bind(id, HERE, 9), Err(Errno::EADDRNOTAVAIL));
        program.resolve_addr(id, given[1], 9).expect("resolving");
        program.expect(EventType::AddrResolved);
    }
}

/// The devices of a machine stand for hosts that a wire connects.
#[test]
fn an_address_is_reached_from_another_device_unless_the_source_says_otherwise() {
    let (here, there) = ("10.0.0.1", "10.0.0.3");
    for link in [PortConfig::ROCE, PortConfig::INFINIBAND] {
        let config = |devices| SimConfig::new().devices(devices).ports([link]).step(true);
        let resolve = |machine: &Simulator, source: Option<&str>, destination: &str| {
            let program = Program::start(machine);
            let id = program.create(CLIENT, PortSpace::Tcp);
            if let Some(source) = source {
                program.bind(id, source, 0).expect("bound");
            }
            program.resolve_addr(id, destination, 9)?;
            program.expect(EventType::AddrResolved);
            let bound = query_addr(&*program.0, id, QueryOption::Addr).expect("bound");
            Ok((bound.ibdev_index, <[u8; 4]>::try_from(&bound.src_addr[4..8]).expect("IPv4")))
        };
        let machine = Simulator::new(config(3));
        assert_eq!(resolve(&machine, None, here), Ok((1, [10, 0, 0, 3])));
        assert_eq!(resolve(&machine, Some("0.0.0.0"), here), Ok((1, [10, 0, 0, 3])));
        assert_eq!(resolve(&machine, None, there), Ok((0, [10, 0, 0, 1])));
        assert_eq!(resolve(&machine, Some("10.0.0.5"), here), Ok((2, [10, 0, 0, 5])));
        assert_eq!(resolve(&machine, Some(here), here), Ok((0, [10, 0, 0, 1])));
        machine.remove_device(1);
        assert_eq!(resolve(&machine, None, here), Ok((2, [10, 0, 0, 5])));
        // A wire that leads nowhere is not taken for a way within the device.
        machine.remove_device(2);
        assert_eq!(resolve(&machine, None, here), Err(Errno::ENETUNREACH));
        assert_eq!(resolve(&machine, Some(here), here), Ok((0, [10, 0, 0, 1])));
        let alone = Simulator::new(config(1));
        assert_eq!(resolve(&alone, None, here), Ok((0, [10, 0, 0, 1])));
    }
}

#[test]
fn calls_come_in_their_order() {
    let machine = machine(PortConfig::ROCE);
    let program = Program::start(&machine);
    let id = program.create(CLIENT, PortSpace::Tcp);
    assert_eq!(program.resolve_route(id), Err(Errno::EINVAL));
    assert_eq!(program.connect(id, b""), Err(Errno::EINVAL));
    assert_eq!(program.accept(id, b""), Err(Errno::EINVAL));
    assert_eq!(program.ready(id), Err(Errno::EINVAL));
    assert_eq!(program.reject(id, b""), Err(Errno::EINVAL));
    assert_eq!(program.disconnect(id), Err(Errno::EINVAL));
    assert_eq!(program.attributes(id, QpState::Init).map(drop), Err(Errno::EINVAL));
    assert_eq!(program.destroy(id + 1), Err(Errno::ENOENT));
    let other = Program::start(&machine);
    assert_eq!(other.destroy(id), Err(Errno::EINVAL));
}

#[test]
fn private_data_that_no_message_has_room_for_is_refused() {
    let pair = Pair::new(PortSpace::Tcp);
    assert_eq!(pair.client.connect(pair.id, &[1; 57]), Err(Errno::EINVAL));
    pair.client.connect(pair.id, &[1; 56]).expect("asked");
    let request = pair.server.expect(EventType::ConnectRequest).0.id;
    assert_eq!(pair.server.reject(request, &[2; 149]), Err(Errno::EINVAL));
    pair.server.accept(request, &[2; 196]).expect("accepted");
    let response = pair.client.expect(EventType::ConnectResponse).conn();
    assert_eq!(response.private_data[..196], [2; 196]);
    pair.end();
}

#[test]
fn destroying_counts_what_was_read_and_forgets_the_rest() {
    let machine = machine(PortConfig::ROCE);
    let program = Program::start(&machine);
    let id = program.create(CLIENT, PortSpace::Tcp);
    program.resolve_addr(id, HERE, 1).expect("resolving");
    program.expect(EventType::AddrResolved);
    program.resolve_route(id).expect("resolving");
    assert_eq!(program.destroy(id), Ok(1));
    assert!(program.event().is_none());
}

#[test]
fn an_identifier_takes_its_events_to_another_channel() {
    let pair = Pair::new(PortSpace::Tcp);
    let other = Program::start(&pair.machine);
    let request = pair.ask();
    pair.server.reject(request, b"").expect("rejected");
    assert_eq!(other.migrate(pair.id, &pair.server), Err(Errno::EINVAL));
    assert_eq!(other.migrate(pair.id, &pair.client), Ok(2));
    assert!(pair.client.event().is_none());
    other.expect(EventType::Rejected);
    assert_eq!(pair.client.destroy(pair.id), Err(Errno::EINVAL));
    assert_eq!(other.destroy(pair.id), Ok(3));
    drop(other);
    pair.end();
}

#[test]
fn a_channel_that_is_closed_ends_its_identifiers() {
    let pair = Pair::new(PortSpace::Tcp);
    pair.connect();
    let Pair { machine, server, client, .. } = pair;
    assert_eq!(
        machine.cm_counts(),
        CmCounts { channels: 2, ids: 3, listeners: 1, groups: 0, services: 2 }
    );
    drop(server);
    client.expect(EventType::Disconnected);
    drop(client);
    assert_eq!(machine.cm_counts(), CmCounts::default());
}

#[test]
fn a_group_is_joined_and_left() {
    let machine = machine(PortConfig::ROCE);
    let program = Program::start(&machine);
    let id = program.create(CLIENT, PortSpace::Udp);
    program.bind(id, HERE, 0).expect("bound");
    let (addr, addr_size) = storage("239.1.2.3:0".parse().expect("an address"));
    let join = JoinMcast { uid: 9, id, addr, addr_size, ..Default::default() };
    let group = call(&*program.0, join).expect("joining").id;
    let joined = program.expect(EventType::MulticastJoin);
    assert_eq!((joined.0.uid, joined.0.id), (9, group));
    let param = joined.ud();
    assert_eq!((param.qp_num, param.qkey), (0xff_ffff, 0x0123_4567));
    assert_eq!(param.ah_attr.grh.dgid[10..], [0xff, 0xff, 239, 1, 2, 3]);
    assert_eq!(machine.cm_counts().groups, 1);
    assert_eq!(leave_mcast(&*program.0, group).map(|left| left.events_reported), Ok(1));
    assert_eq!(leave_mcast(&*program.0, group).map(drop), Err(Errno::ENOENT));
    assert_eq!(machine.cm_counts().groups, 0);
}

#[test]
fn numbers_are_given_out_again_the_lowest_first() {
    let machine = machine(PortConfig::ROCE);
    let program = Program::start(&machine);
    let ids = [1, 2, 3].map(|uid| program.create(uid, PortSpace::Udp));
    assert_eq!(ids, [0, 1, 2]);
    program.destroy(1).expect("destroyed");
    assert_eq!(program.create(4, PortSpace::Udp), 1);
    assert_eq!(program.create(5, PortSpace::Udp), 3);
    // Groups have numbers of their own.
    program.bind(0, HERE, 0).expect("bound");
    let (addr, addr_size) = storage("239.1.2.3:0".parse().expect("an address"));
    let join = JoinMcast { uid: 9, id: 0, addr, addr_size, ..Default::default() };
    assert_eq!(call(&*program.0, join).expect("joining").id, 0);
}

/// A call with a response, and a buffer of `room` bytes for it.
fn call_with_room<C: Command>(
    program: &Program,
    id: CommandId,
    mut command: C,
    room: usize,
) -> Result<(), Errno> {
    let mut response = [0_u8; 512];
    command.respond_at(response.as_mut_ptr() as u64);
    let in_len = size_of::<C>() as u16;
    let header = Header { cmd: id.raw(), in_len, out_len: room as u16 };
    let bytes = [header.as_bytes(), command.as_bytes()].concat();
    // SAFETY: the response has more room than the call says.
    unsafe { program.0.write(&bytes) }
}

#[derive(Clone, Copy, IntoBytes, Immutable)]
#[repr(transparent)]
struct Ask(Query);

// SAFETY: `response` is the only address, and `call_with_room` sets it to memory of at least `room`
// bytes.
unsafe impl Command for Ask {
    const ID: CommandId = CommandId::Query;
    type Response = ();
    fn respond_at(&mut self, address: u64) {
        self.0.response = address;
    }
}

#[test]
fn a_response_that_has_too_little_room_is_refused() {
    let pair = Pair::new(PortSpace::Tcp);
    pair.client.connect(pair.id, b"").expect("asked");
    let client = &pair.client;
    let query = |option: QueryOption| {
        Ask(Query { id: pair.id, option: option.raw(), ..Default::default() })
    };
    // The least of each, as the kernels before the newest had it.
    for (id, command, least) in [
        (CommandId::Query, query(QueryOption::Addr), 272),
        (CommandId::Query, query(QueryOption::Gid), 272),
        (CommandId::Query, query(QueryOption::Path), 8),
        (CommandId::QueryRoute, query(QueryOption::Addr), 200),
    ] {
        assert_eq!(call_with_room(client, id, command, least - 1), Err(Errno::ENOSPC), "{id:?}");
        call_with_room(client, id, command, least).expect("enough room");
    }
    let event = |room| call_with_room(&pair.server, CommandId::GetEvent, GetEvent::default(), room);
    assert_eq!(event(323), Err(Errno::ENOSPC));
    event(324).expect("the event was kept");
    let migrate = MigrateId { id: pair.id, ..Default::default() };
    assert_eq!(call_with_room(client, CommandId::MigrateId, migrate, 3), Err(Errno::ENOSPC));
    pair.end();
}

/// C's library has room for six paths. With room for one, the kernel reports one path, but leaves
/// it out.
#[test]
fn a_path_is_filled_in_where_there_is_room_for_more() {
    let pair = Pair::new(PortSpace::Tcp);
    let ask = |room: u16| {
        let mut response = [0_u8; 512];
        let option = QueryOption::Path.raw();
        let at = response.as_mut_ptr() as u64;
        let query = Query { id: pair.id, option, response: at };
        let in_len = size_of::<Query>() as u16;
        let header = Header { cmd: CommandId::Query.raw(), in_len, out_len: room };
        let bytes = [header.as_bytes(), query.as_bytes()].concat();
        // SAFETY: the response has more room than the call says.
        unsafe { pair.client.0.write(&bytes) }.expect("a path");
        (response[0], response[8..].iter().any(|byte| *byte != 0))
    };
    assert_eq!(
        [ask(8), ask(80), ask(81), ask(440)],
        [(1, false), (1, false), (1, true), (1, true)]
    );
    pair.end();
}

#[test]
fn what_is_reserved_is_zero_and_addresses_have_a_family() {
    let machine = machine(PortConfig::ROCE);
    let program = Program::start(&machine);
    let id = program.create(CLIENT, PortSpace::Tcp);
    let (addr, addr_size) = storage((std::net::Ipv4Addr::new(10, 0, 0, 1), 9).into());
    let bind = Bind { id, addr, addr_size, ..Default::default() };
    assert_eq!(call(&*program.0, Bind { reserved: 1, ..bind }), Err(Errno::EINVAL));
    assert_eq!(call(&*program.0, Bind { addr: [0; 128], ..bind }), Err(Errno::EINVAL));
    let none = BindIp { id, ..Default::default() };
    assert_eq!(call(&*program.0, none), Err(Errno::EINVAL));
    let resolve = ResolveAddr { id, dst_addr: addr, dst_size: addr_size, ..Default::default() };
    assert_eq!(call(&*program.0, ResolveAddr { reserved: 1, ..resolve }), Err(Errno::EINVAL));
    call(&*program.0, bind).expect("bound");
}
