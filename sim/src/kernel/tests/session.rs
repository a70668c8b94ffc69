//! From opening the device to traffic.

use std::os::fd::AsFd;

use mlx5_prm::cqe::CqeOpcode;
use mlx5_prm::wqe::Opcode;
use mlx5_uapi::cmd::qp;
use mlx5_uapi::verbs::{QpAttrMask, QpState, QpType};
use mlx5_uapi::{Errno, cmd};
use zerocopy::IntoBytes;

use super::rig::{Session, TestCqOptions, data, init, remote, rtr, rts, to};
use crate::{Fault, PortConfig, SimConfig, Simulator};

#[test]
fn a_send_goes_from_one_connected_queue_pair_to_another() {
    for port in [PortConfig::INFINIBAND, PortConfig::ROCE] {
        let session = Session::with(SimConfig::new().ports([port]));
        let mut cq = session.cq();
        let (mut one, mut other) = (session.qp(QpType::Rc, &cq), session.qp(QpType::Rc, &cq));
        session.connect(&one, &other);
        let (from, into) = (session.region(4096), session.region(4096));
        from.memory.write(0, b"over the simulated wire");
        other.receive(&into, 4096);
        let wqe = one.wqe(Opcode::Send, &[data(&from, 0, 23).as_bytes()]);
        session.post(&mut one, &wqe);

        let (receive, got) = cq.expect();
        let (send, _) = cq.expect();
        assert_eq!((receive, send), (CqeOpcode::ResponderSend, CqeOpcode::Requester));
        assert_eq!(got.byte_count.get(), 23);
        assert_eq!(got.srqn_uidx.get() & 0xff_ffff, 0x77);
        assert_eq!(into.memory.read(0, 23), b"over the simulated wire");
        assert_eq!(session.sim.violations(), []);
    }
}

#[test]
fn a_write_and_a_read_cross_two_devices() {
    let sim = Simulator::new(SimConfig::new().devices(2).step(true));
    let here = Session::on(&sim, 0).expect("a session");
    let there = Session::on(&sim, 1).expect("a session");
    let (mut cq, far_cq) = (here.cq(), there.cq());
    let mut near = here.qp(QpType::Rc, &cq);
    let far = there.qp(QpType::Rc, &far_cq);
    for (session, qp, peer, path) in
        [(&here, &near, &far, there.path()), (&there, &far, &near, here.path())]
    {
        session.modify(&init(qp)).expect("INIT");
        session.modify(&rtr(qp, peer.qp.qp_num, path)).expect("RTR");
        session.modify(&rts(qp)).expect("RTS");
    }
    let (local, target) = (here.region(4096), there.region(4096));
    local.memory.write(0, &[0xa5; 1000]);
    let wqe = near
        .wqe(Opcode::RdmaWrite, &[remote(&target).as_bytes(), data(&local, 0, 1000).as_bytes()]);
    here.post(&mut near, &wqe);
    assert_eq!(cq.expect().0, CqeOpcode::Requester);
    assert_eq!(target.memory.read(0, 1001)[999..], [0xa5, 0]);

    target.memory.write(0, &[0x3c; 16]);
    let wqe = near
        .wqe(Opcode::RdmaRead, &[remote(&target).as_bytes(), data(&local, 2000, 16).as_bytes()]);
    here.post(&mut near, &wqe);
    assert_eq!(cq.expect().0, CqeOpcode::Requester);
    assert_eq!(local.memory.read(2000, 16), [0x3c; 16]);
    assert_eq!(sim.violations(), []);
}

#[test]
fn the_engine_s_thread_works_without_being_asked() {
    let sim = Simulator::new(SimConfig::new());
    let session = Session::on(&sim, 0).expect("a session");
    let channel = cmd::event::create_comp_channel(&*session.file).expect("a channel");
    let options = TestCqOptions { channel: Some(channel.as_fd()), ..Default::default() };
    let mut cq = session.try_cq(&options).expect("a CQ");
    let mut qp = session.qp(QpType::Rc, &cq);
    session.connect(&qp, &qp);
    session.arm(&cq, 0);
    let first = qp.write(&qp.wqe(Opcode::Nop, &[]));
    session.ring(mlx5_prm::doorbell::BLUEFLAME, first);
    let patience = Some(std::time::Duration::from_secs(20));
    assert!(mlx5_uapi::wait::wait_readable(channel.as_fd(), patience).expect("poll"));
    assert!(cmd::event::next_completion(&*channel).expect("open").is_some());
    assert_eq!(cq.expect().0, CqeOpcode::Requester);
}

#[test]
fn query_tells_what_modify_told() {
    let session = Session::with(SimConfig::new().ports([PortConfig::ROCE]));
    let cq = session.cq();
    let (one, other) = (session.qp(QpType::Rc, &cq), session.qp(QpType::Rc, &cq));
    session.connect(&one, &other);
    let answer = qp::query(&*session.file, one.qp.handle, QpAttrMask::all()).expect("a QP");
    assert_eq!(answer.qp_state, QpState::Rts.raw());
    assert_eq!(answer.dest_qp_num, other.qp.qp_num);
    assert_eq!((answer.rq_psn, answer.sq_psn), (0x77, 0x77));
    assert_eq!((answer.timeout, answer.retry_cnt, answer.rnr_retry), (8, 3, 3));
    assert_eq!((answer.max_rd_atomic, answer.max_dest_rd_atomic), (4, 4));
    assert_eq!(answer.dest.dgid, session.path().dgid);
    assert_eq!(answer.qp_access_flags, 0b110);
    assert_eq!((answer.max_recv_wr, answer.max_recv_sge), (8, 2));
    assert_eq!((answer.max_send_wr, answer.port_num), (0, 1));
}

#[test]
fn attributes_must_fit_the_transition() {
    let session = Session::new();
    let cq = session.cq();
    let qp = session.qp(QpType::Rc, &cq);
    let refused = |request| assert_eq!(session.modify(&request), Err(Errno::EINVAL));
    refused(to(&qp, QpState::Init));
    refused(to(&qp, QpState::Rtr));
    let mut request = init(&qp);
    request.port_num = 2;
    refused(request);
    request.port_num = 1;
    request.pkey_index = 128;
    refused(request);
    session.modify(&init(&qp)).expect("INIT");

    // The path must be of the queue pair's port, its MTU one of the port's, its depth the device's.
    let good = rtr(&qp, 0x48, session.path());
    let mut request = good;
    request.dest.port_num = 2;
    refused(request);
    request = good;
    request.path_mtu = 6;
    refused(request);
    request = good;
    request.max_dest_rd_atomic = 17;
    refused(request);
    session.modify(&good).expect("RTR");
    session.modify(&rts(&qp)).expect("RTS");

    // The driver cannot drain, and an unknown attribute is not understood.
    refused(to(&qp, QpState::Sqd));
    request = to(&qp, QpState::Rts);
    request.attr_mask |= 1 << 25;
    assert_eq!(session.modify(&request), Err(Errno::EOPNOTSUPP));
    session.modify(&to(&qp, QpState::Err)).expect("ERR");
    session.modify(&to(&qp, QpState::Reset)).expect("RESET");
    session.modify(&to(&qp, QpState::Reset)).expect("still RESET");
}

#[test]
fn a_path_mtu_beyond_the_port_s_is_refused_by_the_device() {
    let session = Session::with(SimConfig::new().ports([PortConfig::ROCE]));
    let cq = session.cq();
    let qp = session.qp(QpType::Rc, &cq);
    session.modify(&init(&qp)).expect("INIT");
    let mut request = rtr(&qp, 0x48, session.path());
    request.path_mtu = 5;
    assert_eq!(session.modify(&request), Err(Errno::EINVAL));
    // No neighbour answers for this address.
    request = rtr(&qp, 0x48, session.path());
    request.dest.dgid[15] ^= 0x55;
    assert_eq!(session.modify(&request), Err(Errno::EHOSTUNREACH));
    // A device that does nothing at the moment keeps its address.
    session.sim.inject(0, Fault::Stall);
    session.modify(&rtr(&qp, 0x48, session.path())).expect("RTR");
}

#[test]
fn an_address_handle_on_ethernet_comes_with_the_resolved_mac() {
    let session = Session::with(SimConfig::new().ports([PortConfig::ROCE]));
    let path = session.path();
    let mut attr = mlx5_uapi::verbs::AhAttr { is_global: 1, port_num: 1, ..Default::default() };
    attr.grh.dgid = path.dgid;
    attr.grh.sgid_index = path.sgid_index;
    let (handle, mac) = cmd::ah::create(&*session.file, session.pd.handle, &attr).expect("an AH");
    let expected = session.sim.fabric().lock().device(0).port(1).expect("a port").mac;
    assert_eq!(mac, expected);
    session.destroy_ah(handle);
    attr.is_global = 0;
    let refused = cmd::ah::create(&*session.file, session.pd.handle, &attr);
    assert_eq!(refused, Err(Errno::EINVAL));
}
