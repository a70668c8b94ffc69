//! Connections that come about.

use mlx5::transport::{Ud, XrcSend};
use mlx5::{QpType, QueueState};
use mlx5_cm::{ConnectParam, EventKind, Listener, PortSpace, connect_on};
use mlx5_sim::PortConfig;

use crate::rig::{ADDRESS, LIMIT, Machine, address, event};

#[test]
fn messages_go_both_ways_over_either_kind_of_port() {
    for port in [PortConfig::ROCE, PortConfig::INFINIBAND] {
        let machine = Machine::new(port);
        let [(mut client, mut ours), (mut server, mut theirs)] = machine.connected();
        assert!(server.private_data().starts_with(b"hello\0"));
        assert!(client.private_data().starts_with(b"welcome\0"));
        assert_eq!(server.remote().qp_num, client.qp().qp_num());
        // Both name the vendor, and no option: as the driver's queue pairs have none.
        let ece = |remote: &mlx5_cm::Remote| (remote.ece_vendor, remote.ece_options);
        assert_eq!([ece(server.remote()), ece(client.remote())], [(0x15b3, 0); 2]);
        ours.send(client.qp_mut(), "ping");
        assert_eq!(theirs.receive(), "ping");
        theirs.send(server.qp_mut(), "pong");
        assert_eq!(ours.receive(), "pong");
        drop((client, server, ours, theirs));
        machine.end();
    }
}

#[test]
fn whoever_ends_a_connection_waits_until_the_other_agrees() {
    let machine = Machine::roce();
    let [(mut client, ours), (mut server, theirs)] = machine.connected();
    assert!(!server.has_ended().expect("no error"));
    client.disconnect().expect("disconnected");
    assert_eq!(client.qp().state(), QueueState::Error);
    assert!(!client.has_ended().expect("no error"), "the server has not agreed");
    server.wait_disconnected(Some(LIMIT)).expect("the end");
    assert_eq!(server.qp().state(), QueueState::Error);
    client.wait_disconnected(Some(LIMIT)).expect("agreed");
    // It stays so.
    server.wait_disconnected(None).expect("the end");
    drop((client, server, ours, theirs));
    machine.end();
}

#[test]
fn a_listener_takes_one_request_after_the_other() {
    let machine = Machine::roce();
    let mut listener = Listener::bind_on(machine.kernel(), "10.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("an address");
    assert_ne!(address.port(), 0);
    for number in 0..3_u8 {
        std::thread::scope(|scope| {
            let client = scope.spawn(|| {
                let peer = connect_on(machine.kernel(), address).expect("resolved");
                let (objects, qp) = crate::rig::Objects::new(&peer.device().expect("a device"));
                let connection = peer.timeout(LIMIT).connect(qp, &[number]).expect("connected");
                (connection, objects)
            });
            let request = listener.next(Some(LIMIT)).expect("a request");
            assert_eq!(request.private_data()[0], number);
            assert_eq!(
                request.peer_addr().expect("asked").map(|from| from.ip()),
                Some(address.ip())
            );
            let (objects, qp) = crate::rig::Objects::new(&request.device().expect("a device"));
            let server = request.timeout(LIMIT).accept(qp, b"").expect("accepted");
            drop((client.join().expect("the client"), server, objects));
        });
    }
    drop(listener);
    machine.end();
}

#[test]
fn datagram_queue_pairs_find_each_other() {
    let machine = Machine::roce();
    let (server, client) = (machine.channel(), machine.channel());
    let listener = server.create_id(PortSpace::Udp).expect("created");
    listener.bind(address()).expect("bound");
    listener.listen(1).expect("listening");
    let id = client.create_id(PortSpace::Udp).expect("created");
    id.resolve_addr(None, address(), LIMIT).expect("resolving");
    assert!(matches!(event(&client), EventKind::AddressResolved));
    id.resolve_route(LIMIT).expect("resolving");
    assert!(matches!(event(&client), EventKind::RouteResolved));
    let context = machine.device().open().expect("a context");
    let (pd, cq) =
        (context.alloc_pd().expect("a domain"), context.create_cq(4).build().expect("a queue"));
    let mut here = pd.create_qp::<Ud>(&cq, &cq).build().expect("a queue pair");
    let mut there = pd.create_qp::<Ud>(&cq, &cq).build().expect("a queue pair");
    id.to_rts(&mut here).expect("RTS");
    id.connect(&ConnectParam::new(here.qp_num()).private_data(b"hello")).expect("asked");
    let EventKind::DatagramRequest { id: request, private_data } = event(&server) else {
        panic!("no request")
    };
    assert!(private_data.starts_with(b"hello\0"));
    request.to_rts(&mut there).expect("RTS");
    request.accept(&ConnectParam::new(there.qp_num())).expect("accepted");
    let EventKind::DatagramEstablished(peer) = event(&client) else { panic!("no answer") };
    assert_eq!(peer.qp_num, there.qp_num());
    pd.create_ah(&peer.path).expect("a path that leads there");
    // A program that refuses.
    let other = client.create_id(PortSpace::Udp).expect("created");
    other.resolve_addr(None, address(), LIMIT).expect("resolving");
    event(&client);
    other.resolve_route(LIMIT).expect("resolving");
    event(&client);
    other.connect(&ConnectParam::new(here.qp_num())).expect("asked");
    drop(event(&server));
    assert!(matches!(event(&client), EventKind::Unreachable(reason) if reason > 0));
    drop((id, other, request, listener, here, there, cq, pd, context));
    drop((server, client));
    machine.end();
}

#[test]
fn extended_connections_connect_a_sender_to_a_target() {
    let machine = Machine::roce();
    let (server, client) = (machine.channel(), machine.channel());
    let context = machine.device().open().expect("a context");
    let (pd, cq) =
        (context.alloc_pd().expect("a domain"), context.create_cq(4).build().expect("a queue"));
    let domain = context.open_xrcd().expect("a domain");
    let listener = server.create_ib_id(QpType::XrcTgt).expect("created");
    listener.bind(address()).expect("bound");
    listener.listen(1).expect("listening");
    let id = client.create_ib_id(QpType::XrcIni).expect("created");
    id.resolve_addr(None, address(), LIMIT).expect("resolving");
    assert!(matches!(event(&client), EventKind::AddressResolved));
    id.resolve_route(LIMIT).expect("resolving");
    assert!(matches!(event(&client), EventKind::RouteResolved));
    let mut sender = pd.create_qp::<XrcSend>(&cq, &cq).build().expect("a queue pair");
    let mut target = domain.create_target().expect("a target");
    id.connect(&ConnectParam::new(sender.qp_num())).expect("asked");
    let EventKind::ConnectRequest { id: request, remote } = event(&server) else {
        panic!("no request")
    };
    assert_eq!(remote.qp_num, sender.qp_num());
    request.to_rts(&mut target).expect("RTS");
    request.accept(&ConnectParam::new(target.qp_num())).expect("accepted");
    let EventKind::ConnectResponse(remote) = event(&client) else { panic!("no answer") };
    assert_eq!(remote.qp_num, target.qp_num());
    id.to_rts(&mut sender).expect("RTS");
    id.ready().expect("ready");
    assert!(matches!(event(&server), EventKind::Established));
    assert_eq!(
        (sender.state(), target.state()),
        (QueueState::ReadyToSend, QueueState::ReadyToSend)
    );
    drop((id, request, listener, sender, target, domain, cq, pd, context));
    drop((server, client));
    machine.end();
}

#[test]
fn addresses_of_either_family_are_found() {
    let machine = Machine::roce();
    let gid = machine.device().open().expect("a context").gid_table().expect("GIDs")[0].gid;
    let link_local = std::net::SocketAddr::new(gid.ip(), 7471);
    let mut listener = Listener::bind_on(machine.kernel(), "[::]:7471").expect("a listener");
    for target in [link_local, ADDRESS.parse().expect("an address")] {
        let peer = connect_on(machine.kernel(), target).expect("resolved");
        assert_eq!(peer.device().expect("a device").name(), "mlx5_0");
        drop(peer);
    }
    // Of IPv6 alone, if that is wanted.
    assert!(listener.next(Some(std::time::Duration::ZERO)).is_err());
    drop(listener);
    machine.end();
}
