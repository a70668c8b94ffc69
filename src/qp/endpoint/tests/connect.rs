use super::*;
use crate::address::AhAttr;
use crate::qp::{
    attributes::{AckTimeout, QpAttributes, RetryCount, RnrTimer},
    transitions::check_attributes,
};
use mlx5_uapi::verbs::AccessFlags;
use mlx5_wqe::QueueState;

const PSN: Psn = Psn::wrapping(0x55);

fn roce_port() -> LocalPort {
    LocalPort {
        port_num: 1,
        link_layer: LinkLayer::Ethernet,
        lid: 0,
        active_mtu: Mtu::Mtu4096,
        grh_required: false,
        gid: Gid::from_bytes([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 1, 1]),
        gid_type: GidType::RoceV2,
        gid_index: 3,
    }
}

fn ib_port() -> LocalPort {
    LocalPort {
        port_num: 2,
        link_layer: LinkLayer::InfiniBand,
        lid: 0x11,
        active_mtu: Mtu::Mtu2048,
        gid: Gid::from_bytes([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1]),
        gid_type: GidType::InfiniBand,
        gid_index: 0,
        ..roce_port()
    }
}

fn options() -> ConnectOptions {
    ConnectOptions::default()
}

fn ib_path(remote: Endpoint) -> AhAttr {
    path_to(&ib_port(), &remote, &options()).unwrap()
}

/// The three transitions of a connection.
fn connection(
    transport: QpType,
    local: &LocalPort,
    remote: &Endpoint,
    options: &ConnectOptions,
) -> [QpAttributes; 3] {
    [
        to_init(transport, local, options),
        to_rtr(transport, local, remote, options).unwrap(),
        to_rts(transport, PSN, remote, options),
    ]
}

/// Walks from RESET as a queue pair would, and checks that it ends in RTS.
fn walk(transport: QpType, steps: [QpAttributes; 3]) {
    let end = steps.iter().fold(QueueState::Reset, |state, attributes| {
        check_attributes(transport, state, attributes).expect("a refused transition")
    });
    assert_eq!(end, QueueState::ReadyToSend);
}

#[test]
fn every_transport_reaches_rts_on_every_link() {
    for (local, remote) in [(roce_port(), roce()), (ib_port(), infiniband())] {
        for transport in [QpType::Rc, QpType::Uc] {
            let remote = Endpoint { transport, qkey: None, ..remote };
            walk(transport, connection(transport, &local, &remote, &options()));
        }
        let datagram =
            [to_init(QpType::Ud, &local, &options()), datagram_to_rtr(), datagram_to_rts(PSN)];
        walk(QpType::Ud, datagram);
    }
}

#[test]
fn a_reliable_connection_gets_the_defaults() {
    let [init, rtr, rts] = connection(QpType::Rc, &roce_port(), &roce(), &options());
    assert_eq!((init.port_num, init.pkey_index), (Some(1), Some(0)));
    let all = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_ATOMIC;
    assert_eq!(init.qp_access_flags, Some(all));
    assert_eq!(rtr.dest_qp_num, Some(roce().qp_num));
    assert_eq!((rtr.rq_psn, rts.sq_psn), (Some(roce().psn), Some(PSN)));
    assert_eq!(rtr.min_rnr_timer, RnrTimer::new(12).ok());
    assert_eq!((rtr.max_dest_rd_atomic, rts.max_rd_atomic), (Some(16), Some(16)));
    assert_eq!(rts.timeout, AckTimeout::new(14).ok());
    assert_eq!((rts.retry_cnt, rts.rnr_retry), (Some(RetryCount::MAX), Some(RetryCount::MAX)));
}

#[test]
fn options_replace_the_defaults() {
    let options = options()
        .pkey_index(5)
        .access_flags(Some(AccessFlags::REMOTE_READ))
        .timeout(AckTimeout::MAX)
        .retry_cnt(RetryCount::default())
        .rnr_retry(RetryCount::default())
        .min_rnr_timer(RnrTimer::MAX)
        .max_rd_atomic(2)
        .max_dest_rd_atomic(3);
    let [init, rtr, rts] = connection(QpType::Rc, &roce_port(), &roce(), &options);
    assert_eq!(init.pkey_index, Some(5));
    assert_eq!(init.qp_access_flags, Some(AccessFlags::REMOTE_READ));
    assert_eq!((rtr.max_dest_rd_atomic, rtr.min_rnr_timer), (Some(3), Some(RnrTimer::MAX)));
    assert_eq!((rts.timeout, rts.max_rd_atomic), (Some(AckTimeout::MAX), Some(2)));
    assert_eq!(rts.retry_cnt, Some(RetryCount::default()));
    assert_eq!(rts.rnr_retry, Some(RetryCount::default()));
}

#[test]
fn an_unreliable_connection_grants_writes_only() {
    let init = to_init(QpType::Uc, &roce_port(), &options());
    assert_eq!(init.qp_access_flags, Some(AccessFlags::REMOTE_WRITE));
}

#[test]
fn datagram_queue_pair_has_its_key_and_reports_it() {
    let options = options().qkey(0x42);
    assert_eq!(to_init(QpType::Ud, &ib_port(), &options).qkey, Some(0x42));
    let sent = ib_port().endpoint(QpType::Ud, QpNumber::MAX, PSN, &options);
    assert_eq!(sent.qkey, Some(0x42));
    assert_eq!(ib_port().endpoint(QpType::Rc, QpNumber::MAX, PSN, &options).qkey, None);
}

#[test]
fn endpoint_survives_conversion_to_bytes_and_text() {
    for port in [roce_port(), ib_port()] {
        for transport in [QpType::Rc, QpType::Uc, QpType::Ud] {
            let sent = port.endpoint(transport, QpNumber::MAX, PSN, &options());
            assert_eq!(Endpoint::from_bytes(&sent.to_bytes()), Ok(sent));
            assert_eq!(sent.to_string().parse(), Ok(sent));
            assert_eq!(sent.link_layer(), port.link_layer);
        }
    }
}

#[test]
fn the_packet_size_is_the_least_of_both_ports_and_the_option() {
    let mtu = |remote, limit: Option<Mtu>| {
        let options = ConnectOptions { path_mtu: limit, ..options() };
        let remote = Endpoint { mtu: remote, ..roce() };
        to_rtr(QpType::Rc, &roce_port(), &remote, &options).unwrap().path_mtu.unwrap()
    };
    assert_eq!(mtu(Mtu::Mtu1024, None), Mtu::Mtu1024);
    assert_eq!(mtu(Mtu::Mtu4096, None), Mtu::Mtu4096);
    assert_eq!(mtu(Mtu::Mtu4096, Some(Mtu::Mtu512)), Mtu::Mtu512);
    assert_eq!(mtu(Mtu::Mtu256, Some(Mtu::Mtu512)), Mtu::Mtu256);
    let small = LocalPort { active_mtu: Mtu::Mtu256, ..roce_port() };
    let rtr = to_rtr(QpType::Rc, &small, &roce(), &options()).unwrap();
    assert_eq!(rtr.path_mtu, Some(Mtu::Mtu256));
}

#[test]
fn reported_packet_size_respects_the_option() {
    let options = options().path_mtu(Some(Mtu::Mtu512));
    assert_eq!(roce_port().endpoint(QpType::Rc, QpNumber::MAX, PSN, &options).mtu, Mtu::Mtu512);
}

#[test]
fn no_more_reads_are_outstanding_than_the_peer_answers() {
    let depth = |remote| {
        to_rts(QpType::Rc, PSN, &Endpoint { rd_atomic: remote, ..roce() }, &options()).max_rd_atomic
    };
    assert_eq!((depth(4), depth(0), depth(64)), (Some(4), Some(0), Some(16)));
}

#[test]
fn ethernet_always_has_a_global_route_and_no_lid() {
    let options = options().sl(3).traffic_class(0x68).flow_label(0x12345).static_rate(9);
    let path = path_to(&roce_port(), &roce(), &options).unwrap();
    assert_eq!((path.port_num, path.dlid, path.sl, path.static_rate), (1, 0, 3, 9));
    let grh = path.grh.expect("a global route");
    assert_eq!((grh.dgid, grh.sgid_index, grh.hop_limit), (IPV4, 3, 64));
    assert_eq!((grh.traffic_class, grh.flow_label), (0x68, 0x12345));
}

#[test]
fn one_infiniband_subnet_needs_no_global_route() {
    let path = ib_path(infiniband());
    assert_eq!((path.port_num, path.dlid, path.grh), (2, 0x17, None));
    let unknown = Endpoint { gid: Gid::from_bytes([0; 16]), ..infiniband() };
    assert_eq!(ib_path(unknown).grh, None);
}

#[test]
fn infiniband_has_a_global_route_when_the_port_demands_it() {
    let port = LocalPort { grh_required: true, ..ib_port() };
    let path = path_to(&port, &infiniband(), &options()).unwrap();
    assert_eq!(path.grh.map(|grh| grh.dgid), Some(LINK_LOCAL));
    assert_eq!(path.dlid, 0x17);
}

#[test]
fn infiniband_has_a_global_route_to_a_peer_without_lid() {
    let path = ib_path(Endpoint { lid: 0, ..infiniband() });
    assert_eq!((path.dlid, path.grh.is_some()), (0, true));
}

#[test]
fn infiniband_has_a_global_route_into_another_subnet_by_way_of_the_router() {
    let remote = Endpoint { gid: GLOBAL, ..infiniband() };
    let path = ib_path(remote);
    assert_eq!((path.dlid, path.grh.map(|grh| grh.dgid)), (0x17, Some(GLOBAL)));
    let options = options().router_lid(Some(0x99));
    assert_eq!(path_to(&ib_port(), &remote, &options).unwrap().dlid, 0x99);
    let near = path_to(&ib_port(), &infiniband(), &options).unwrap();
    assert_eq!(near.dlid, 0x17, "the router is not on the way within a subnet");
}

#[test]
fn incompatible_sides_give_distinct_errors() {
    let rtr = |transport, local: &LocalPort, remote: &Endpoint| {
        to_rtr(transport, local, remote, &options()).unwrap_err()
    };
    assert_eq!(
        rtr(QpType::Ud, &roce_port(), &roce()),
        ConnectError::NotConnected { transport: QpType::Ud }
    );
    assert_eq!(
        rtr(QpType::Uc, &roce_port(), &roce()),
        ConnectError::Transport { local: QpType::Uc, remote: QpType::Rc }
    );
    let rc_on_ib = Endpoint { transport: QpType::Rc, qkey: None, ..infiniband() };
    assert_eq!(
        rtr(QpType::Rc, &roce_port(), &rc_on_ib),
        ConnectError::LinkLayer { local: LinkLayer::Ethernet, remote: LinkLayer::InfiniBand }
    );
    let v1 = Endpoint { gid_type: GidType::RoceV1, ..roce() };
    assert_eq!(
        rtr(QpType::Rc, &roce_port(), &v1),
        ConnectError::GidType { local: GidType::RoceV2, remote: GidType::RoceV1 }
    );
    let nowhere = Gid::from_bytes([0; 16]);
    assert_eq!(
        rtr(QpType::Rc, &LocalPort { gid: nowhere, ..roce_port() }, &roce()),
        ConnectError::NoLocalGid
    );
    assert_eq!(
        rtr(QpType::Rc, &roce_port(), &Endpoint { gid: nowhere, ..roce() }),
        ConnectError::NoRemoteGid
    );
}

#[test]
fn errors_read_as_advice() {
    let error = ConnectError::GidType { local: GidType::RoceV2, remote: GidType::RoceV1 };
    assert_eq!(
        error.to_string(),
        "this side's GID is roce-v2 and the peer's is roce-v1; choose GID indices of the same type"
    );
    let error = ConnectError::Transport { local: QpType::Rc, remote: QpType::Ud };
    assert_eq!(error.to_string(), "this queue pair is RC and the peer's is UD");
}

#[test]
fn the_default_gid_routes_farthest() {
    use GidType::{RoceV1, RoceV2};
    // From the best to the worst, at falling indices, so that the index alone never decides.
    let order = [
        (IPV4, RoceV2),
        (GLOBAL, RoceV2),
        (LINK_LOCAL, RoceV2),
        (IPV4, RoceV1),
        (GLOBAL, RoceV1),
        (LINK_LOCAL, RoceV1),
    ];
    let rows: Vec<(u32, Gid, GidType)> =
        (0..).zip(order.into_iter().rev()).map(|(index, (gid, kind))| (index, gid, kind)).collect();
    for end in 1..=rows.len() {
        assert_eq!(default_gid_index(rows[..end].iter().copied()), Some(end as u8 - 1));
    }
}

#[test]
fn among_equal_gids_the_first_row_counts() {
    let rows = [(7, IPV4, GidType::RoceV2), (3, IPV4, GidType::RoceV2), (5, IPV4, GidType::RoceV2)];
    assert_eq!(default_gid_index(rows), Some(3));
    let rows = [(0, LINK_LOCAL, GidType::InfiniBand), (1, GLOBAL, GidType::InfiniBand)];
    assert_eq!(default_gid_index(rows), Some(0));
}

#[test]
fn empty_rows_and_rows_that_no_path_can_name_are_no_choice() {
    assert_eq!(default_gid_index([]), None);
    assert_eq!(default_gid_index([(0, Gid::from_bytes([0; 16]), GidType::RoceV2)]), None);
    assert_eq!(default_gid_index([(256, IPV4, GidType::RoceV2)]), None);
    let rows = [(256, IPV4, GidType::RoceV2), (4, LINK_LOCAL, GidType::RoceV1)];
    assert_eq!(default_gid_index(rows), Some(4));
}
