//! Identifiers: addresses, channels, and what is refused.

use mlx5_uapi::rdma_cm::{IdOption, JoinMcast, leave_mcast, set_option};

use super::*;

#[test]
fn an_address_is_one_identifiers_unless_both_share_it() {
    let machine = machine(PortConfig::ROCE);
    let program = Program::start(&machine);
    let ids: Vec<u32> = (1..=4).map(|uid| program.create(uid, PortSpace::Tcp)).collect();
    program.bind(ids[0], HERE, 9).expect("bound");
    assert_eq!(program.bind(ids[1], HERE, 9), Err(Errno::EADDRINUSE));
    assert_eq!(program.bind(ids[1], "0.0.0.0", 9), Err(Errno::EADDRINUSE));
    let udp = program.create(5, PortSpace::Udp);
    program.bind(udp, HERE, 9).expect("another port space");
    for id in &ids[2..] {
        set_option(&*program.0, *id, IdOption::ReuseAddr, &1_u32.to_ne_bytes()).expect("set");
        program.bind(*id, HERE, 10).expect("shared");
    }
    program.listen(ids[2], 1).expect("listening");
    assert_eq!(program.listen(ids[3], 1), Err(Errno::EADDRINUSE));
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
    assert_eq!(pair.server.accept(request, &[2; 197]), Err(Errno::EINVAL));
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
