//! Connections that succeed.

use std::time::{Duration, Instant};

use mlx5::transport::{Ud, XrcSend};
use mlx5::{QpType, QueueState, ReceiveWr, SendFlags};
use mlx5_cm::{ConnectParam, ErrorKind, EventKind, Listener, PortSpace, connect_on};
use mlx5_sim::PortConfig;

use crate::rig::{ADDRESS, LIMIT, Machine, Objects, address, event, resolved};
use crate::spaces::done;

#[test]
fn messages_go_both_ways_over_either_kind_of_port() {
    for port in [PortConfig::ROCE, PortConfig::INFINIBAND] {
        let machine = Machine::new(port);
        let [(mut client, mut ours), (mut server, mut theirs)] = machine.connected();
        assert!(server.private_data().starts_with(b"hello\0"));
        assert!(client.private_data().starts_with(b"welcome\0"));
        assert_eq!(server.remote().qp_num, client.qp().qp_num());
        // Both name the vendor and no option, because the driver's queue pairs have none.
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
fn disconnect_waits_until_the_peer_agrees() {
    let machine = Machine::roce();
    let [(mut client, ours), (mut server, theirs)] = machine.connected();
    assert!(!server.has_ended().expect("no error"));
    client.disconnect().expect("disconnected");
    assert_eq!(client.qp().state(), QueueState::Error);
    assert!(!client.has_ended().expect("no error"), "the server has not agreed");
    server.wait_disconnected(Some(LIMIT)).expect("the end");
    assert_eq!(server.qp().state(), QueueState::Error);
    client.wait_disconnected(Some(LIMIT)).expect("agreed");
    // The result stays.
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
                let (objects, qp) = Objects::new(&peer.device().expect("a device"));
                let connection = peer.timeout(LIMIT).connect(qp, &[number]).expect("connected");
                (connection, objects)
            });
            let request = listener.next(Some(LIMIT)).expect("a request");
            assert_eq!(request.private_data()[0], number);
            assert_eq!(
                request.peer_addr().expect("asked").map(|from| from.ip()),
                Some(address.ip())
            );
            let (objects, qp) = Objects::new(&request.device().expect("a device"));
            let server = request.timeout(LIMIT).accept(qp, b"").expect("accepted");
            drop((client.join().expect("the client"), server, objects));
        });
    }
    drop(listener);
    machine.end();
}

/// A server with several clients continues while one of them is not ready yet.
#[test]
fn a_request_is_accepted_without_waiting_for_the_peer() {
    let machine = Machine::roce();
    let mut listener = machine.listener();
    let ask = |qp_num| {
        let channel = machine.channel();
        let id = resolved(&channel, PortSpace::Tcp, |_| {});
        id.connect(&ConnectParam::new(qp_num)).expect("asked");
        (channel, id)
    };
    // No queue pair of the device has these numbers.
    let clients = [ask(1), ask(2)];
    let [mut first, mut second] = [(); 2].map(|()| {
        let request = listener.next(Some(LIMIT)).expect("a request");
        let (objects, qp) = Objects::new(&request.device().expect("a device"));
        let accepting = request.timeout(LIMIT).begin_accept(qp, b"").expect("accepted");
        (accepting, objects)
    });
    assert!(!first.0.is_settled() && !second.0.is_settled());
    // The second becomes ready, and the first never does.
    for (channel, _) in &clients {
        assert!(matches!(event(channel), EventKind::ConnectResponse(_)));
    }
    let [(first_channel, first_id), (second_channel, second_id)] = clients;
    second_id.ready().expect("ready");
    assert!(second.0.is_settled() && !first.0.is_settled());
    let connection = second.0.finish().expect("connected");
    drop(first_id);
    assert!(first.0.is_settled());
    let failed = first.0.finish().expect_err("given up");
    assert_eq!(failed.error().kind(), ErrorKind::Rejected);
    drop((failed, first.1, connection, second.1, second_id, first_channel, second_channel));
    drop(listener);
    machine.end();
}

#[test]
fn a_peer_that_is_never_ready_is_waited_for_until_the_time_limit() {
    let machine = Machine::roce();
    let mut listener = machine.listener();
    let mut accept = |limit| {
        let channel = machine.channel();
        let id = resolved(&channel, PortSpace::Tcp, |_| {});
        id.connect(&ConnectParam::new(1)).expect("asked");
        let request = listener.next(Some(LIMIT)).expect("a request");
        let (objects, qp) = Objects::new(&request.device().expect("a device"));
        let start = Instant::now();
        let accepting = request.timeout(limit).begin_accept(qp, b"").expect("accepted");
        (start, accepting, (objects, id))
    };
    let (_, mut over, peer) = accept(Duration::ZERO);
    assert!(over.is_settled(), "its time limit is over");
    let failed = over.finish().expect_err("it is not ready");
    assert_eq!(failed.error().kind(), ErrorKind::TimedOut);
    drop((failed, peer));
    let limit = Duration::from_millis(20);
    let (start, accepting, peer) = accept(limit);
    let failed = accepting.finish().expect_err("it is not ready");
    assert_eq!(failed.error().kind(), ErrorKind::TimedOut);
    assert!(start.elapsed() >= limit, "before its time limit is over");
    drop((failed, peer, listener));
    machine.end();
}

#[test]
fn retries_without_a_receive_are_limited_by_either_end() {
    let count = |retries| mlx5::RetryCount::new(retries).expect("a count");
    let machine = Machine::roce();
    let mut listener = machine.listener();
    let [(client, ours), (server, theirs)] = std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let request = listener.next(Some(LIMIT)).expect("a request");
            let (objects, qp) = Objects::new(&request.device().expect("a device"));
            // At most five, for any number that the client sends.
            let request = request.timeout(LIMIT).own_rnr_retry_count(count(5));
            (request.accept(qp, b"").expect("accepted"), objects)
        });
        let peer = connect_on(machine.kernel(), ADDRESS).expect("resolved");
        let (objects, qp) = Objects::new(&peer.device().expect("a device"));
        let peer = peer.timeout(LIMIT).own_rnr_retry_count(count(3)).retry_count(count(4));
        let client = peer.connect(qp, b"").expect("connected");
        [(client, objects), server.join().expect("the server")]
    });
    let of = |connection: &mlx5_cm::Connection| {
        let now = connection.qp().query().expect("queried");
        (now.rnr_retry.get(), now.retry_cnt.get())
    };
    assert_eq!([of(&client), of(&server)], [(3, 4), (5, 4)]);
    drop((client, ours, server, theirs, listener));
    machine.end();
}

#[test]
fn an_answer_names_the_vendor_that_the_request_named() {
    let machine = Machine::roce();
    let (server, client) = (machine.channel(), machine.channel());
    let listener = server.create_id(PortSpace::Tcp).expect("created");
    listener.bind(address()).expect("bound");
    listener.listen(1).expect("listening");
    for (asked, answers, heard) in [
        (None, None, (0x15b3, 0)),
        (Some((0x77, 5)), None, (0x77, 0)),
        (Some((0x77, 5)), Some((0x77, 4)), (0x77, 4)),
    ] {
        let with = |qp_num, ece: Option<(u32, u32)>| {
            let param = ConnectParam::new(qp_num);
            ece.map_or(param, |(vendor, options)| param.ece(vendor, options))
        };
        let id = resolved(&client, PortSpace::Tcp, |_| {});
        id.connect(&with(1, asked)).expect("asked");
        let EventKind::ConnectRequest { id: request, remote } = event(&server) else {
            panic!("no request")
        };
        assert_eq!((remote.ece_vendor, remote.ece_options), asked.unwrap_or((0x15b3, 0)));
        request.accept(&with(2, answers)).expect("accepted");
        let EventKind::ConnectResponse(remote) = event(&client) else { panic!("no answer") };
        assert_eq!((remote.ece_vendor, remote.ece_options), heard);
        id.ready().expect("ready");
        assert!(matches!(event(&server), EventKind::Established));
        drop(id);
        assert!(matches!(event(&server), EventKind::Disconnected(None)));
    }
    // A program that does not support the options reports that.
    let id = resolved(&client, PortSpace::Tcp, |_| {});
    id.connect(&ConnectParam::new(1)).expect("asked");
    let EventKind::ConnectRequest { id: request, .. } = event(&server) else {
        panic!("no request")
    };
    let error = request.reject_because(300, b"").expect_err("no reason");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let reason = mlx5_cm::reject_reason::VENDOR_OPTION_NOT_SUPPORTED;
    request.reject_because(reason, b"").expect("rejected");
    assert!(matches!(event(&client), EventKind::Rejected(why) if why.reason == reason));
    drop((id, request, listener, server, client));
    machine.end();
}

#[test]
fn datagram_queue_pairs_find_each_other() {
    let machine = Machine::roce();
    let (server, client) = (machine.channel(), machine.channel());
    let listener = server.create_id(PortSpace::Udp).expect("created");
    listener.bind(address()).expect("bound");
    listener.listen(1).expect("listening");
    let id = resolved(&client, PortSpace::Udp, |_| {});
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
    let param = ConnectParam::new(there.qp_num());
    request.accept_qp(&mut there, &param).expect("accepted");
    let EventKind::DatagramEstablished(peer) = event(&client) else { panic!("no answer") };
    assert_eq!(peer.qp_num, there.qp_num());
    pd.create_ah(&peer.path).expect("a path that leads there");
    // A program that refuses.
    let other = resolved(&client, PortSpace::Udp, |_| {});
    other.connect(&ConnectParam::new(here.qp_num())).expect("asked");
    let EventKind::DatagramRequest { id: refused, .. } = event(&server) else {
        panic!("no request")
    };
    let error = refused.reject(&[1; 137]).expect_err("more than an answer has room for");
    assert_eq!(error.kind(), ErrorKind::PrivateDataTooLong);
    refused.reject(b"full").expect("rejected");
    let EventKind::DatagramRefused { status, private_data } = event(&client) else {
        panic!("not refused")
    };
    assert!(status == 2 && private_data.starts_with(b"full\0"), "{status} {private_data:?}");
    // No listener is left.
    drop((listener, refused, other));
    let other = resolved(&client, PortSpace::Udp, |_| {});
    other.connect(&ConnectParam::new(here.qp_num())).expect("asked");
    assert!(matches!(event(&client), EventKind::DatagramRefused { status: 1, .. }));
    drop((id, other, request, here, there, cq, pd, context));
    drop((server, client));
    machine.end();
}

#[test]
fn an_extended_connection_carries_a_message_to_the_queue_that_it_names() {
    for port in [PortConfig::ROCE, PortConfig::INFINIBAND] {
        extended(Machine::new(port));
    }
}

fn extended(machine: Machine) {
    let (server, client) = (machine.channel(), machine.channel());
    let context = machine.device().open().expect("a context");
    let pd = context.alloc_pd().expect("a domain");
    let mut cq = context.create_cq(4).build().expect("a queue");
    let domain = context.open_xrcd().expect("a domain");
    let listener = server.create_ib_id(QpType::XrcTgt).expect("created");
    listener.bind(address()).expect("bound");
    listener.listen(1).expect("listening");
    let id = client.create_ib_id(QpType::XrcIni).expect("created");
    id.resolve_addr(None, address(), LIMIT).expect("resolving");
    assert!(matches!(event(&client), EventKind::AddressResolved));
    id.resolve_route(LIMIT).expect("resolving");
    assert!(matches!(event(&client), EventKind::RouteResolved));
    let mut sender =
        pd.create_qp::<XrcSend>(&cq, &cq).max_inline_data(16).build().expect("a queue pair");
    let mut target = domain.create_target().expect("a target");
    id.connect(&ConnectParam::new(sender.qp_num())).expect("asked");
    let EventKind::ConnectRequest { id: request, remote } = event(&server) else {
        panic!("no request")
    };
    assert_eq!(remote.qp_num, sender.qp_num());
    let param = ConnectParam::new(target.qp_num());
    request.accept_qp(&mut target, &param).expect("accepted");
    let EventKind::ConnectResponse(remote) = event(&client) else { panic!("no answer") };
    assert_eq!(remote.qp_num, target.qp_num());
    id.to_rts(&mut sender).expect("RTS");
    id.ready().expect("ready");
    assert!(matches!(event(&server), EventKind::Established));
    assert_eq!(
        (sender.state(), target.state()),
        (QueueState::ReadyToSend, QueueState::ReadyToSend)
    );
    let inbox = pd.allocate(64).expect("a region");
    let mut queue = pd.create_srq(4).xrc(&domain, &cq).build().expect("a shared queue");
    let sges = [inbox.whole().expect("an entry")];
    queue.post_recv(&[ReceiveWr { wr_id: 1, sges: &sges }]).expect("posted");
    let mut batch = sender.wr_start();
    let message = batch.wr(2, SendFlags::SIGNALED).send();
    message.xrc_srqn(queue.srqn()).inline_data(b"by number");
    batch.complete().expect("posted");
    done(&mut cq, 2, |_| {});
    let mut text = [0; 9];
    inbox.read_at(0, &mut text).expect("read");
    assert_eq!(&text, b"by number");
    drop((id, request, listener, queue, sender, target, domain, inbox, cq, pd, context));
    drop((server, client));
    machine.end();
}

#[test]
fn addresses_of_either_family_are_found() {
    let machine = Machine::roce();
    let gid = machine.device().open().expect("a context").gid_table().expect("GIDs")[0].gid;
    let link_local = std::net::SocketAddr::new(gid.ip(), 7471);
    let listener = Listener::bind_on(machine.kernel(), "[::]:7471").expect("a listener");
    for target in [link_local, ADDRESS.parse().expect("an address")] {
        let peer = connect_on(machine.kernel(), target).expect("resolved");
        assert_eq!(peer.device().expect("a device").name(), "mlx5_0");
        drop(peer);
    }
    drop(listener);
    machine.end();
}
