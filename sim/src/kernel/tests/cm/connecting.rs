//! Connections that come about, and that end.

use mlx5_uapi::rdma_cm::{QueryOption, query_addr, query_path, query_route, reject_reason};
use mlx5_uapi::verbs::QpAttrMask;

use super::*;

#[test]
fn both_ends_hear_what_the_other_says_in_the_room_of_the_messages() {
    let pair = Pair::new(PortSpace::Tcp);
    pair.client.connect(pair.id, b"hello").expect("asked");
    let request = pair.server.expect(EventType::ConnectRequest);
    assert_eq!(request.0.uid, LISTENER);
    let heard = request.conn();
    assert_eq!((heard.qp_num, heard.private_data_len), (0x11, 56));
    assert_eq!(&heard.private_data[..6], b"hello\0");
    // The depth of one end as initiator is that of the other as responder.
    assert_eq!((heard.responder_resources, heard.initiator_depth), (2, 4));
    assert_eq!((heard.retry_count, heard.rnr_retry_count), (5, 6));
    pair.server.accept(request.0.id, b"welcome").expect("accepted");
    let response = pair.client.expect(EventType::ConnectResponse);
    let heard = response.conn();
    assert_eq!((response.0.uid, heard.qp_num, heard.private_data_len), (CLIENT, 0x22, 196));
    assert_eq!(&heard.private_data[..8], b"welcome\0");
    assert!(pair.server.event().is_none());
    pair.client.ready(pair.id).expect("ready");
    let established = pair.server.expect(EventType::Established);
    assert_eq!((established.0.uid, established.0.id), (SERVER, request.0.id));
    pair.end();
}

#[test]
fn the_attributes_of_both_ends_fit_together() {
    for port in [PortConfig::ROCE, PortConfig::INFINIBAND] {
        let pair = Pair::on(machine(port), PortSpace::Tcp);
        let request = pair.ask();
        let server = |state| pair.server.attributes(request, state).expect("attributes");
        let (server_rtr, server_rts) = (server(QpState::Rtr), server(QpState::Rts));
        pair.server.accept(request, b"").expect("accepted");
        pair.client.expect(EventType::ConnectResponse);
        let client = |state| pair.client.attributes(pair.id, state).expect("attributes");
        let (init, rtr, rts) = (client(QpState::Init), client(QpState::Rtr), client(QpState::Rts));
        assert_eq!(init.port_num, 1);
        assert_eq!((rtr.dest_qp_num, server_rtr.dest_qp_num), (0x22, 0x11));
        assert_eq!((rtr.rq_psn, rts.sq_psn), (server_rts.sq_psn, server_rtr.rq_psn));
        assert_ne!(rtr.rq_psn, rts.sq_psn);
        assert_eq!(rtr.ah_attr.is_global == 1, port == PortConfig::ROCE);
        assert_eq!((rts.retry_cnt, server_rts.retry_cnt), (5, 5));
        assert_eq!(rtr.max_dest_rd_atomic, 2);
        let mask = QpAttrMask::from_bits_truncate(rtr.qp_attr_mask);
        assert!(mask.contains(QpAttrMask::AV | QpAttrMask::MIN_RNR_TIMER));
        pair.end();
    }
}

#[test]
fn addresses_and_the_route_can_be_queried() {
    let pair = Pair::new(PortSpace::Tcp);
    let file = &*pair.client.0;
    let route = query_route(file, pair.id).expect("a route");
    assert_eq!((route.num_paths, route.port_num), (1, 1));
    assert_eq!(route.dst_addr[..8], [2, 0, 0x1d, 0x2f, 10, 0, 0, 1]);
    assert_eq!(route.src_addr[4..8], [10, 0, 0, 1]);
    assert_ne!(route.src_addr[2..4], [0, 0], "a port was chosen");
    let addresses = query_addr(file, pair.id, QueryOption::Addr).expect("addresses");
    assert_eq!((addresses.src_size, addresses.dst_size), (16, 16));
    assert_eq!(addresses.node_guid, route.node_guid);
    let gids = query_addr(file, pair.id, QueryOption::Gid).expect("GIDs");
    assert_eq!(gids.dst_addr[8..24], route.ib_route[0].dgid);
    let path = query_path(file, pair.id).expect("a path");
    assert_eq!(path.num_paths, 1);
    assert_eq!(path.path_data[0].path_rec[8..24], route.ib_route[0].dgid);
    pair.end();
}

#[test]
fn whoever_disconnects_hears_it_once_the_other_agrees() {
    let pair = Pair::new(PortSpace::Tcp);
    let request = pair.connect();
    pair.client.disconnect(pair.id).expect("disconnected");
    pair.server.expect(EventType::Disconnected);
    assert!(pair.client.event().is_none());
    pair.server.disconnect(request).expect("agreed");
    assert_eq!(pair.client.expect(EventType::Disconnected).status(), 0);
    while pair.machine.pass_cm_time() {}
    pair.client.expect(EventType::TimewaitExit);
    pair.server.expect(EventType::TimewaitExit);
    pair.end();
}

#[test]
fn a_program_rejects_with_private_data() {
    let pair = Pair::new(PortSpace::Tcp);
    let request = pair.ask();
    pair.server.reject(request, b"full").expect("rejected");
    let rejected = pair.client.expect(EventType::Rejected);
    assert_eq!(rejected.status() as u32, reject_reason::CONSUMER_DEFINED);
    assert_eq!(rejected.conn().private_data_len, 148);
    assert_eq!(&rejected.conn().private_data[..5], b"full\0");
    pair.end();
}

#[test]
fn datagram_queue_pairs_learn_each_others_numbers() {
    let pair = Pair::new(PortSpace::Udp);
    pair.client.connect(pair.id, b"hello").expect("asked");
    let request = pair.server.expect(EventType::ConnectRequest);
    assert_eq!(request.ud().private_data_len, 180);
    pair.server.accept(request.0.id, b"here").expect("accepted");
    let answer = pair.client.expect(EventType::Established).ud();
    assert_eq!((answer.qp_num, answer.qkey), (0x22, 0x0123_4567));
    assert_eq!((answer.ah_attr.is_global, answer.ah_attr.port_num), (1, 1));
    assert_eq!(&answer.private_data[..5], b"here\0");
    pair.end();
}

#[test]
fn datagrams_of_ipoib_have_the_q_key_of_the_interface() {
    let pair = Pair::on(machine(PortConfig::INFINIBAND), PortSpace::IpoIb);
    pair.client.connect(pair.id, b"").expect("asked");
    let request = pair.server.expect(EventType::ConnectRequest);
    let init = pair.server.attributes(request.0.id, QpState::Init).expect("attributes");
    pair.server.accept(request.0.id, b"").expect("accepted");
    assert_eq!((pair.client.expect(EventType::Established).ud().qkey, init.qkey), (0xb1b, 0xb1b));
    pair.end();
}

#[test]
fn a_refused_datagram_request_is_unreachable_and_says_why() {
    let pair = Pair::new(PortSpace::Udp);
    pair.client.connect(pair.id, b"").expect("asked");
    let request = pair.server.expect(EventType::ConnectRequest).0.id;
    assert_eq!(
        pair.server.reject(request, &[1; 137]),
        Err(Errno::EINVAL),
        "more than an answer has"
    );
    pair.server.reject(request, b"full").expect("rejected");
    let refused = pair.client.expect(EventType::Unreachable);
    assert!(refused.status() > 0);
    assert_eq!(refused.ud().private_data_len, 136);
    assert_eq!(&refused.ud().private_data[..5], b"full\0");
    pair.end();
}

#[test]
fn a_request_is_gone_once_accepting_it_has_failed() {
    let pair = Pair::new(PortSpace::Tcp);
    let request = pair.ask();
    assert_eq!(pair.server.accept(request, &[2; 197]), Err(Errno::EINVAL));
    let rejected = pair.client.expect(EventType::Rejected);
    assert_eq!(rejected.status() as u32, reject_reason::CONSUMER_DEFINED);
    assert_eq!(pair.server.accept(request, b""), Err(Errno::EINVAL));
    assert!(pair.client.event().is_none());
    pair.end();
    // The same if the client says that it is ready before it has an answer.
    let pair = Pair::new(PortSpace::Tcp);
    let request = pair.ask();
    assert_eq!(pair.client.ready(pair.id), Err(Errno::EINVAL));
    assert_eq!(pair.server.accept(request, b""), Err(Errno::EINVAL), "who asked has given up");
    pair.end();
}

#[test]
fn the_end_of_a_connection_that_is_there_is_said_apart_from_none() {
    let pair = Pair::new(PortSpace::Tcp);
    let request = pair.ask();
    let notify = |id| {
        let event = mlx5_uapi::verbs::EventType::CommunicationEstablished.raw();
        call(&*pair.server.0, mlx5_uapi::rdma_cm::Notify { id, event })
    };
    assert_eq!(notify(request), Err(Errno::EINVAL), "not accepted");
    pair.server.accept(request, b"").expect("accepted");
    notify(request).expect("established");
    pair.server.expect(EventType::Established);
    assert_eq!(notify(request), Err(Errno::EISCONN));
    pair.end();
}
