//! Completion queues: ownership, overrun, arming, resizing.

use mlx5_prm::cqe::CqeOpcode;
use mlx5_prm::event::EventType;
use mlx5_prm::wqe::Opcode;

use super::rig::{Cq, Rig, Wqe, data, poke};
use crate::Fault;
use crate::dma::Buffer;
use crate::engine::{Event, QpState, Transport};

const SOLICITED_ONLY: u32 = 1 << 24;

fn arm(rig: &Rig, cq: &Cq, sequence: u32, consumed: u32, command: u32) {
    let word = sequence << 28 | command | consumed;
    cq.arm_record(word);
    let doorbell = u64::from(word) << 32 | u64::from(cq.cqn);
    poke(rig.uar_address(cq.device) + 0x20, &doorbell.to_be_bytes());
    rig.run();
}

#[test]
fn the_owner_bit_alternates_over_many_laps_of_both_sizes() {
    for entry in [64, 128] {
        let rig = Rig::one_device();
        let mut cq = rig.cq(0, 2, entry);
        let mut qp = rig.qp(0, Transport::Rc, &cq, None, 3);
        rig.connect(&qp, &qp);
        for _ in 0..50 {
            let index = qp.post(&Wqe::new(Opcode::Nop));
            rig.run();
            assert_eq!(cq.expect().wqe(), index);
            cq.expect_none();
        }
    }
}

#[test]
fn an_overrun_breaks_the_queue_and_those_who_report_to_it() {
    let rig = Rig::one_device();
    let mut cq = rig.cq(0, 1, 64);
    let mut qp = rig.qp(0, Transport::Rc, &cq, None, 3);
    rig.connect(&qp, &qp);
    for _ in 0..4 {
        qp.post(&Wqe::new(Opcode::Nop));
    }
    rig.run();
    assert_eq!(cq.peek_produced(&rig), 2);
    let events = rig.events(0);
    assert_eq!(events[0], Event::CqError { cqn: cq.cqn, syndrome: 1 });
    assert_eq!(events[1], Event::Qp { qpn: qp.qpn, kind: EventType::WQ_CATAS_ERROR });
    assert_eq!(events.len(), 2);
    assert_eq!(rig.query(&qp).state, QpState::Error);
    cq.expect();
    cq.expect();
    cq.expect_none();
}

#[test]
fn a_consumer_that_counts_in_16_bits_makes_room_for_as_many_as_one_that_counts_in_24() {
    for bits in [16, 24] {
        let rig = Rig::one_device();
        let mut cq = rig.cq(0, 1, 64);
        let mut qp = rig.qp(0, Transport::Rc, &cq, None, 3);
        rig.connect(&qp, &qp);
        cq.count_on(&rig, 0x1_0002, bits);
        for _ in 0..3 {
            qp.post(&Wqe::new(Opcode::Nop));
        }
        rig.run();
        // The queue has two entries: the third is one too many.
        assert_eq!(cq.peek_produced(&rig), 0x1_0004, "{bits} bits");
        assert_eq!(rig.query(&qp).state, QpState::Error);
    }
}

#[test]
fn each_arm_is_counted_once() {
    let rig = Rig::one_device();
    let cq = rig.cq(0, 2, 64);
    for (sequence, arms) in [(0, 1), (0, 2), (1, 3)] {
        arm(&rig, &cq, sequence, 0, 0);
        assert_eq!(rig.lock().devices()[0].arms(), arms);
    }
}

#[test]
fn a_queue_that_is_to_overrun_does_so_at_its_first_completion() {
    let rig = Rig::one_device();
    let first = rig.cq(0, 2, 64).cqn;
    let rig = Rig::one_device();
    rig.lock().device_mut(0).inject(Fault::OverrunCq(first));
    let mut cq = rig.cq(0, 2, 64);
    assert_eq!(cq.cqn, first);
    let mut qp = rig.qp(0, Transport::Rc, &cq, None, 3);
    rig.connect(&qp, &qp);
    assert!(rig.events(0).is_empty());
    qp.post(&Wqe::new(Opcode::Nop));
    rig.run();
    cq.expect_none();
    assert_eq!(rig.events(0)[0], Event::CqError { cqn: first, syndrome: 1 });
}

#[test]
fn an_armed_queue_reports_one_event_and_must_be_armed_again() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    let event = Event::Completion { cqn: p.cq_a.cqn, eqn: 7 };
    p.a.post(&Wqe::new(Opcode::Nop));
    rig.run();
    assert_eq!(rig.events(0), []);
    p.cq_a.expect();

    arm(&rig, &p.cq_a, 0, 1, 0);
    assert_eq!(rig.events(0), []);
    for _ in 0..2 {
        p.a.post(&Wqe::new(Opcode::Nop));
        rig.run();
    }
    assert_eq!(rig.events(0), [event]);

    // The same arm again has no effect; a new one is due at once.
    arm(&rig, &p.cq_a, 0, 1, 0);
    assert_eq!(rig.events(0), []);
    arm(&rig, &p.cq_a, 1, 1, 0);
    assert_eq!(rig.events(0), [event]);
}

#[test]
fn a_solicited_arm_waits_for_a_solicited_completion_or_an_error() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    let to = rig.region(0, 64);
    for _ in 0..3 {
        p.b.post_receive(&[data(to.at(0), 64, to.key)]);
    }
    let event = Event::Completion { cqn: p.cq_b.cqn, eqn: 7 };
    arm(&rig, &p.cq_b, 0, 0, SOLICITED_ONLY);
    p.a.post(&Wqe::new(Opcode::Send).inline(b"x"));
    rig.run();
    assert_eq!(rig.events(0), []);
    p.a.post(&Wqe::new(Opcode::Send).inline(b"x").solicited());
    rig.run();
    assert_eq!(rig.events(0), [event]);
    arm(&rig, &p.cq_b, 1, 2, SOLICITED_ONLY);
    rig.set_state(&p.b, QpState::Error);
    rig.run();
    assert_eq!(rig.events(0), [event]);
}

#[test]
fn two_arms_that_meet_on_a_page_both_count() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    // The second doorbell overwrites the first before the device looks.
    for cq in [&p.cq_a, &p.cq_b] {
        cq.arm_record(0);
        poke(rig.uar_address(0) + 0x20, &u64::from(cq.cqn).to_be_bytes());
    }
    p.a.post(&Wqe::new(Opcode::Nop));
    p.b.post(&Wqe::new(Opcode::Nop));
    rig.run();
    let both = [p.cq_a.cqn, p.cq_b.cqn].map(|cqn| Event::Completion { cqn, eqn: 7 });
    assert_eq!(rig.events(0), both);
}

#[test]
fn a_resized_queue_ends_its_old_ring_with_a_mark() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    p.a.post(&Wqe::new(Opcode::Nop));
    rig.run();
    let larger = super::rig::Memory::new(64 << 6);
    let buffer = Buffer::contiguous(larger.at(0));
    rig.lock().device_mut(0).resize_cq(p.cq_a.cqn, buffer, 6).expect("a CQ");
    let index = p.a.post(&Wqe::new(Opcode::Nop));
    rig.run();
    assert_eq!(p.cq_a.expect().opcode, CqeOpcode::Requester);
    assert_eq!(p.cq_a.expect().opcode, CqeOpcode::Resize);
    // It was the second entry; the third is in the new ring.
    assert_eq!(larger.read(2 * 64 + 60, 2), index.to_be_bytes());
    drop(rig);
}

#[test]
fn a_hostile_completion_has_the_bytes_it_was_told() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    let patch = vec![(60, 0xab), (61, 0xcd)];
    rig.lock().device_mut(0).inject(Fault::CorruptCqe { cqn: None, patch });
    p.a.post(&Wqe::new(Opcode::Nop));
    p.a.post(&Wqe::new(Opcode::Nop));
    rig.run();
    assert_eq!(p.cq_a.expect().wqe(), 0xabcd);
    assert_eq!(p.cq_a.expect().wqe(), 1);
}

#[test]
fn objects_in_use_are_not_destroyed_and_memory_knows_its_holder() {
    use crate::engine::{Error, Holder};
    let rig = Rig::one_device();
    let p = rig.pair(Transport::Rc);
    let region = rig.region(0, 64);
    let mut engine = rig.lock();
    let device = engine.device_mut(0);
    assert_eq!(device.destroy_cq(p.cq_a.cqn), Err(Error::Busy));
    assert_eq!(device.holder(region.at(63), 1), Some(Holder::Mkey(region.key)));
    assert_eq!(device.holder(p.a.memory.at(0), 1), Some(Holder::Qp(p.a.qpn)));
    assert_eq!(device.holder(p.cq_b.memory.at(0), 1), Some(Holder::Cq(p.cq_b.cqn)));
    device.destroy_qp(p.a.qpn).expect("a QP");
    device.destroy_cq(p.cq_a.cqn).expect("unused");
    device.destroy_mkey(region.key >> 8).expect("a key");
    assert_eq!(device.holder(region.at(0), 64), None);
    assert_eq!(device.holder(p.a.memory.at(0), 64), None);
    let census = device.census();
    assert_eq!((census.qps, census.cqs, census.mkeys), (1, 1, 0));
}
