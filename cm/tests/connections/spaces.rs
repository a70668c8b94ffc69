//! Port spaces other than TCP's: a connection or a pair of datagram queue pairs, and a message.

use std::time::Instant;

use mlx5::transport::Ud;
use mlx5::{CompletionQueue, Gid, SendFlags, WorkCompletion};
use mlx5_cm::{
    Address, ConnectParam, ErrorKind, EventChannel, EventKind, IbAddress, Id, PortSpace,
};
use mlx5_sim::PortConfig;
use mlx5_uapi::rdma_cm::service_id;

use crate::rig::{LIMIT, Machine, Objects, address, event, resolved};

/// Polls until `count` requests are done.
pub(crate) fn done(
    cq: &mut CompletionQueue,
    count: usize,
    mut each: impl FnMut(WorkCompletion<'_>),
) {
    let (start, mut found) = (Instant::now(), 0);
    while found < count {
        let found_one = |completion: WorkCompletion<'_>| {
            completion.status().expect("no error");
            found += 1;
            each(completion);
        };
        cq.poll(1, found_one).expect("polled");
        assert!(start.elapsed() < LIMIT, "{found} of {count} requests are done");
        std::thread::yield_now();
    }
}

/// An address of InfiniBand, with the service of a port.
fn ib_address(gid: Gid, port: u16) -> Address {
    IbAddress { gid, service_id: service_id(PortSpace::Ib, port), pkey: 0xffff }.into()
}

/// An identifier of InfiniBand's port space with a resolved route to an InfiniBand address.
fn ib_resolved(channel: &EventChannel, to: Address) -> Id {
    let id = channel.create_id(PortSpace::Ib).expect("created");
    id.resolve_addr(None, to, LIMIT).expect("resolving");
    assert!(matches!(event(channel), EventKind::AddressResolved));
    id.resolve_route(LIMIT).expect("resolving");
    assert!(matches!(event(channel), EventKind::RouteResolved));
    id
}

#[test]
fn a_connection_by_addresses_of_infiniband_has_room_for_longer_private_data() {
    let machine = Machine::new(PortConfig::INFINIBAND);
    let (server, client) = (machine.channel(), machine.channel());
    let device = machine.device();
    let gid = device.open().expect("a context").gid_table().expect("GIDs")[0].gid;
    let listener = server.create_id(PortSpace::Ib).expect("created");
    listener.bind(ib_address(gid, 7471)).expect("bound");
    listener.listen(1).expect("listening");
    assert_eq!(listener.local_addr().expect("asked"), Some(ib_address(gid, 7471)));

    let id = ib_resolved(&client, ib_address(gid, 7471));
    assert_eq!(id.peer_addr().expect("asked"), Some(ib_address(gid, 7471)));
    let (mut ours, mut here) = Objects::new(&id.device().expect("a device"));
    let (mut theirs, mut there) = Objects::new(&device);
    // No IP addresses precede the data.
    let number = here.qp_num();
    let with = |data| ConnectParam::new(number).private_data(data);
    let error = id.connect(&with(&[7; 93])).expect_err("too long");
    assert_eq!(error.kind(), ErrorKind::PrivateDataTooLong);
    id.connect(&with(&[7; 92])).expect("asked");
    let EventKind::ConnectRequest { id: request, remote } = event(&server) else {
        panic!("no request")
    };
    assert_eq!((remote.qp_num, &remote.private_data[..]), (number, &[7; 92][..]));
    request.init(&mut there).expect("INIT");
    theirs.post(&mut there);
    let param = ConnectParam::new(there.qp_num());
    request.accept_qp(&mut there, &param).expect("accepted");
    assert!(matches!(event(&client), EventKind::ConnectResponse(_)));
    id.init(&mut here).expect("INIT");
    ours.post(&mut here);
    id.to_rts(&mut here).expect("RTS");
    id.ready().expect("ready");
    assert!(matches!(event(&server), EventKind::Established));
    ours.send(&mut here, "ping");
    assert_eq!(theirs.receive(), "ping");
    theirs.send(&mut there, "pong");
    assert_eq!(ours.receive(), "pong");
    drop((id, request, listener, here, there, ours, theirs, device));
    drop((server, client));
    machine.end();
}

/// Bytes of the route header before each datagram.
const ROUTE: usize = 40;

#[test]
fn a_datagram_is_taken_with_the_q_key_of_its_port_space() {
    let places = [
        (PortConfig::ROCE, PortSpace::Udp, 0x0123_4567),
        (PortConfig::INFINIBAND, PortSpace::Udp, 0x0123_4567),
        (PortConfig::INFINIBAND, PortSpace::IpoIb, 0xb1b),
    ];
    for (port, space, qkey) in places {
        let machine = Machine::new(port);
        let (server, client) = (machine.channel(), machine.channel());
        let listener = server.create_id(space).expect("created");
        listener.bind(address()).expect("bound");
        listener.listen(1).expect("listening");
        let id = resolved(&client, space, |_| {});
        let context = id.device().expect("a device").open().expect("a context");
        let pd = context.alloc_pd().expect("a domain");
        let mut cq = context.create_cq(4).build().expect("a queue");
        let inbox = pd.allocate(2 * ROUTE).expect("a region");
        let queue_pair = || pd.create_qp::<Ud>(&cq, &cq).max_inline_data(8).build();
        let [mut here, mut there] = [(); 2].map(|()| queue_pair().expect("a queue pair"));
        id.to_rts(&mut here).expect("RTS");
        id.connect(&ConnectParam::new(here.qp_num())).expect("asked");
        let EventKind::DatagramRequest { id: request, .. } = event(&server) else {
            panic!("no request")
        };
        let param = ConnectParam::new(there.qp_num());
        request.accept_qp(&mut there, &param).expect("accepted");
        let EventKind::DatagramEstablished(peer) = event(&client) else { panic!("no answer") };
        assert_eq!((peer.qp_num, peer.qkey), (there.qp_num(), qkey));
        there.recv(1, inbox.whole().expect("an entry")).expect("posted");
        let way = pd.create_ah(&peer.path).expect("a path");
        let mut batch = here.wr_start();
        let datagram = batch.wr(2, SendFlags::SIGNALED).send();
        datagram.ud_addr(way.vector(), peer.qp_num, peer.qkey).inline_data(b"by name");
        batch.complete().expect("posted");
        let mut length = None;
        done(&mut cq, 2, |completion| {
            if completion.wr_id() == 1 {
                length = completion.byte_len();
            }
        });
        let mut text = [0; 7];
        inbox.read_at(ROUTE, &mut text).expect("read");
        assert_eq!((length, &text), (Some(ROUTE as u32 + 7), b"by name"), "{space:?}");
        drop((id, request, listener, here, there, way, inbox, cq, pd, context));
        drop((server, client));
        machine.end();
    }
}
