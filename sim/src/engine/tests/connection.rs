//! Messages over reliable and unreliable connections.

use mlx5_prm::cqe::{CqeOpcode, SOLICITED};
use mlx5_prm::wqe::Opcode;

use super::rig::{Rig, Wqe, data, pattern};
use crate::config::{PortConfig, SimConfig};
use crate::engine::{QpState, Transport};

#[test]
fn a_send_arrives_and_both_sides_complete() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    let (from, to) = (rig.region(0, 1000), rig.region(0, 1000));
    from.memory.write(0, &pattern(1000));
    p.b.post_receive(&[data(to.at(0), 300, to.key), data(to.at(300), 700, to.key)]);
    let wqe = Wqe::new(Opcode::Send).data(from.at(0), 999, from.key).solicited();
    assert_eq!(p.a.post(&wqe), 0);
    assert_eq!(rig.run(), 1);

    let sent = p.cq_a.expect();
    assert_eq!(sent.opcode, CqeOpcode::Requester);
    assert_eq!(sent.cqe.sop_drop_qpn.get(), 0x0a << 24 | p.a.qpn);
    assert_eq!(sent.cqe.srqn_uidx.get(), 0x1234);
    let received = p.cq_b.expect();
    assert_eq!(received.opcode, CqeOpcode::ResponderSend);
    assert_eq!(received.bytes(), 999);
    assert_eq!(received.wqe(), 0);
    assert_eq!(received.cqe.flags_rqpn.get(), p.a.qpn);
    assert_eq!(received.cqe.sop_drop_qpn.get(), p.b.qpn);
    assert_eq!(received.cqe.op_own & SOLICITED, SOLICITED);
    assert_eq!(to.memory.read(0, 1000), [&pattern(999)[..], &[0]].concat());
    assert_eq!(rig.lock().device_mut(0).take_violations(), []);
}

#[test]
fn immediate_data_arrives_with_sends_and_writes() {
    let rig = Rig::one_device();
    for transport in [Transport::Rc, Transport::Uc] {
        let mut p = rig.pair(transport);
        let to = rig.region(0, 600);
        p.b.post_receive(&[data(to.at(0), 16, to.key)]);
        p.b.post_receive(&[]);
        p.a.post(&Wqe::new(Opcode::SendImm).immediate(0x0102_0304).inline(b"hello"));
        p.a.post(
            &Wqe::new(Opcode::RdmaWriteImm)
                .immediate(5)
                .remote(to.at(100), to.key)
                .inline(b"world"),
        );
        rig.run();
        let first = p.cq_b.expect();
        assert_eq!(first.opcode, CqeOpcode::ResponderSendImm);
        assert_eq!(first.cqe.imm_inval_pkey.get(), 0x0102_0304);
        let second = p.cq_b.expect();
        assert_eq!(second.opcode, CqeOpcode::ResponderWriteImm);
        assert_eq!((second.bytes(), second.wqe()), (5, 1));
        assert_eq!(to.memory.read(0, 5), b"hello");
        assert_eq!(to.memory.read(100, 5), b"world");
    }
}

#[test]
fn a_read_brings_remote_bytes_in_many_packets() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    let (here, there) = (rig.region(0, 2000), rig.region(0, 2000));
    there.memory.write(0, &pattern(2000));
    let wqe = Wqe::new(Opcode::RdmaRead)
        .remote(there.at(10), there.key)
        .data(here.at(0), 700, here.key)
        .data(here.at(1000), 801, here.key);
    p.a.post(&wqe);
    rig.run();
    assert_eq!(p.cq_a.expect().bytes(), 1501);
    assert_eq!(here.memory.read(0, 700), pattern(2000)[10..710]);
    assert_eq!(here.memory.read(1000, 801), pattern(2000)[710..1511]);
    // Both sides count the response packets.
    assert_eq!(rig.query(&p.a).next_send_psn, 6);
    assert_eq!(rig.query(&p.b).next_rcv_psn, 6);
}

#[test]
fn atomics_answer_what_the_word_held() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    let (here, there) = (rig.region(0, 64), rig.region(0, 64));
    there.memory.write(8, &40u64.to_ne_bytes());
    let op = |opcode, value, compare| {
        Wqe::new(opcode).remote(there.at(8), there.key).atomic(value, compare).data(
            here.at(0),
            8,
            here.key,
        )
    };
    for (wqe, old, new) in [
        (op(Opcode::AtomicFa, 2, 0), 40u64, 42u64),
        (op(Opcode::AtomicCs, 7, 41), 42, 42),
        (op(Opcode::AtomicCs, 7, 42), 42, 7),
    ] {
        p.a.post(&wqe);
        rig.run();
        assert_eq!(p.cq_a.expect().bytes(), 8);
        assert_eq!(here.memory.read(0, 8), old.to_ne_bytes());
        assert_eq!(there.memory.read(8, 8), new.to_ne_bytes());
    }
}

#[test]
fn wqes_of_every_length_wrap_at_every_unit() {
    // A ring of 8 blocks; gathers of 1 to 24 entries wrap the ring at each of its units.
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    let (from, to) = (rig.region(0, 64), rig.region(0, 64));
    from.memory.write(0, &pattern(64));
    let mut expected_index = 0;
    for round in 0..120 {
        let entries = 1 + round % 24;
        let mut wqe = Wqe::new(Opcode::RdmaWrite).remote(to.at(0), to.key);
        for n in 0..entries {
            wqe = wqe.data(from.at((n + round) % 64), 1, from.key);
        }
        assert_eq!(p.a.post(&wqe), expected_index);
        rig.run();
        let done = p.cq_a.expect();
        assert_eq!((done.opcode, done.wqe()), (CqeOpcode::Requester, expected_index));
        let expected: Vec<u8> = (0..entries).map(|n| pattern(64)[(n + round) % 64]).collect();
        assert_eq!(to.memory.read(0, entries), expected);
        expected_index = p.a.posted;
    }
    assert_eq!(rig.lock().device_mut(0).take_violations(), []);
}

#[test]
fn inline_data_splits_at_the_end_of_the_ring() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    let to = rig.region(0, 512);
    for round in 0..40 {
        let bytes = pattern(100 + round * 7);
        p.a.post(&Wqe::new(Opcode::RdmaWrite).remote(to.at(0), to.key).inline(&bytes));
        rig.run();
        p.cq_a.expect();
        assert_eq!(to.memory.read(0, bytes.len()), bytes);
    }
}

#[test]
fn only_requested_completions_are_written() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    let to = rig.region(0, 64);
    let write = Wqe::new(Opcode::RdmaWrite).remote(to.at(0), to.key).inline(b"x");
    p.a.post(&write.clone().unsignaled());
    p.a.post(&Wqe::new(Opcode::Nop).pad(6).unsignaled());
    p.a.post(&write);
    assert_eq!(rig.run(), 3);
    assert_eq!(p.cq_a.expect().wqe(), 3);
    p.cq_a.expect_none();
}

#[test]
fn devices_reach_each_other_over_infiniband_and_roce() {
    for port in [PortConfig::INFINIBAND, PortConfig::ROCE] {
        let rig = Rig::new(SimConfig::new().devices(2).ports([port]));
        let mut p = rig.pair_of(Transport::Rc, 0, 1);
        let to = rig.region(1, 64);
        p.b.post_receive(&[data(to.at(0), 64, to.key)]);
        p.a.post(&Wqe::new(Opcode::Send).inline(b"across"));
        rig.run();
        assert_eq!(p.cq_a.expect().opcode, CqeOpcode::Requester);
        assert_eq!(p.cq_b.expect().bytes(), 6);
        assert_eq!(to.memory.read(0, 6), b"across");
    }
}

#[test]
fn an_unreliable_message_that_loses_a_packet_is_lost_whole() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Uc);
    let (from, to) = (rig.region(0, 1024), rig.region(0, 1024));
    p.b.post_receive(&[data(to.at(0), 1024, to.key)]);
    rig.lock().device_mut(0).inject(crate::Fault::DropPackets(1));
    for _ in 0..2 {
        p.a.post(&Wqe::new(Opcode::Send).data(from.at(0), 1000, from.key));
    }
    rig.run();
    p.cq_a.expect();
    p.cq_a.expect();
    assert_eq!(p.cq_b.expect().wqe(), 0);
    p.cq_b.expect_none();
    assert_eq!(rig.query(&p.b).state, QpState::Rts);
}

#[test]
fn a_queue_pair_can_talk_to_itself() {
    let rig = Rig::one_device();
    let mut cq = rig.cq(0, 4, 64);
    let mut qp = rig.qp(0, Transport::Rc, &cq, None, 3);
    rig.connect(&qp, &qp);
    let to = rig.region(0, 64);
    qp.post_receive(&[data(to.at(0), 64, to.key)]);
    qp.post(&Wqe::new(Opcode::Send).inline(b"me"));
    rig.run();
    assert_eq!(cq.expect().opcode, CqeOpcode::ResponderSend);
    assert_eq!(cq.expect().opcode, CqeOpcode::Requester);
    assert_eq!(to.memory.read(0, 2), b"me");
}
