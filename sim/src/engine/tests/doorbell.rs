//! Doorbells: those that the device notices in plain memory, and those that need exact doorbells.

use mlx5_prm::cqe::{CqeOpcode, Syndrome};
use mlx5_prm::wqe::Opcode;

use super::rig::{Rig, Wqe, data, peek};
use crate::config::SimConfig;
use crate::engine::fault::Violation;
use crate::engine::{Access, MkeyConfig, QpState, Translation, Transport};

fn exact() -> Rig {
    Rig::new(SimConfig::new().exact_doorbells(true))
}

#[test]
fn a_doorbell_makes_every_queue_of_its_page_looked_at() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    p.b.write(&Wqe::new(Opcode::Nop));
    p.b.write_record(p.b.posted);
    assert_eq!(rig.run(), 0);
    p.a.post(&Wqe::new(Opcode::Nop));
    assert_eq!(rig.run(), 2);
}

#[test]
fn an_exact_doorbell_concerns_one_queue_only() {
    let rig = exact();
    let mut p = rig.pair(Transport::Rc);
    p.b.write(&Wqe::new(Opcode::Nop));
    p.b.write_record(p.b.posted);
    p.a.post(&Wqe::new(Opcode::Nop));
    assert_eq!(rig.run(), 1);
    p.cq_a.expect();
    p.cq_b.expect_none();
}

#[test]
fn a_doorbell_ahead_of_its_record_executes_what_it_announces_and_shows() {
    let rig = exact();
    let mut p = rig.pair(Transport::Rc);
    let doorbell = p.a.write(&Wqe::new(Opcode::Nop));
    p.a.ring(doorbell);
    rig.run();
    assert_eq!(p.cq_a.expect().wqe(), 0);
    let qpn = p.a.qpn;
    let expected = Violation::DoorbellBeyondRecord { qpn, announced: 1, record: 0 };
    assert_eq!(rig.lock().device_mut(0).take_violations(), [expected]);
    // The record that lags takes nothing back, and goes on from there once it is there.
    p.a.ring(doorbell);
    rig.run();
    p.cq_a.expect_none();
    p.a.post(&Wqe::new(Opcode::Nop));
    rig.run();
    assert_eq!(p.cq_a.expect().wqe(), 1);
    rig.lock().device_mut(0).take_violations();
}

#[test]
fn a_doorbell_of_a_queue_that_was_reset_is_passed_over() {
    let rig = exact();
    let mut p = rig.pair(Transport::Rc);
    rig.set_state(&p.a, QpState::Reset);
    let doorbell = p.a.write(&Wqe::new(Opcode::Nop));
    p.a.ring(doorbell);
    assert_eq!(rig.run(), 0);
    assert_eq!(rig.lock().device_mut(0).take_violations(), []);
}

#[test]
fn doorbells_for_nobody_and_records_beyond_the_ring_show() {
    let rig = exact();
    let mut p = rig.pair(Transport::Rc);
    p.a.ring(0x77_7777 << 8 | 1);
    rig.run();
    p.a.write(&Wqe::new(Opcode::Nop));
    p.a.write_record(9);
    p.a.ring(u64::from(p.a.qpn) << 8 | 1);
    assert_eq!(rig.run(), 0);
    let violations = rig.lock().device_mut(0).take_violations();
    assert_eq!(violations[0], Violation::UnknownQp(0x77_7777));
    let beyond = Violation::RecordBeyondRing { number: p.a.qpn, record: 9, executed: 0 };
    assert!(violations.contains(&beyond));
}

#[test]
fn blueflame_bytes_are_compared_with_the_ring_but_never_executed() {
    let rig = exact();
    let mut p = rig.pair(Transport::Rc);
    let to = rig.region(0, 64);
    let wqe = Wqe::new(Opcode::RdmaWrite).remote(to.at(0), to.key).inline(b"ring");
    for (register, spoil) in [(0x800, false), (0x900, true)] {
        let start = usize::from(p.a.posted) * 64;
        p.a.write(&wqe);
        p.a.write_record(p.a.posted);
        let ring = 512;
        let mut bytes = p.a.memory.read(ring + start, 64);
        if spoil {
            bytes[36] ^= 0xff;
        }
        p.a.ring_at(register, &bytes);
        rig.run();
        p.cq_a.expect();
        assert_eq!(to.memory.read(0, 4), b"ring");
        let violations = rig.lock().device_mut(0).take_violations();
        let expected = Violation::BlueFlame { qpn: p.a.qpn, index: 1, byte: 36 };
        assert_eq!(violations, if spoil { vec![expected] } else { vec![] });
    }
    assert_eq!(peek(rig.uar_address(0) + 0x800, 512), [0; 512]);
}

#[test]
fn a_wqe_with_a_wrong_index_is_executed_and_shows() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    let qpn = p.a.qpn;
    p.a.posted = 5;
    let doorbell = p.a.write(&Wqe::new(Opcode::Nop));
    p.a.write_unit(0, &p.a.read_unit(20));
    p.a.write_record(1);
    p.a.ring(doorbell);
    rig.run();
    let done = p.cq_a.expect();
    assert_eq!((done.opcode, done.wqe()), (CqeOpcode::Requester, 0));
    let expected = Violation::WqeIndex { qpn, expected: 0, found: 5 };
    assert_eq!(rig.lock().device_mut(0).take_violations(), [expected]);
}

#[test]
fn a_wqe_with_another_queue_pairs_number_fails_and_shows() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    let (qpn, found) = (p.a.qpn, p.b.qpn);
    p.a.qpn = found;
    p.a.write(&Wqe::new(Opcode::Nop));
    p.a.qpn = qpn;
    p.a.write_record(1);
    p.a.ring(u64::from(qpn) << 8 | 1);
    rig.run();
    let error = p.cq_a.expect().error;
    let codes = [error.syndrome, error.vendor_err_synd, error.hw_err_synd];
    assert_eq!(codes, [Syndrome::LocalQpOperation as u8, 0x68, 0x01]);
    let expected = Violation::WqeQpn { qpn, found };
    assert_eq!(rig.lock().device_mut(0).take_violations(), [expected]);
    assert_eq!(rig.query(&p.a).state, QpState::Error);
}

#[test]
fn a_wqe_longer_than_what_was_posted_is_rejected() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    let doorbell = p.a.write(&Wqe::new(Opcode::Nop).pad(4));
    p.a.write_record(1);
    p.a.ring(doorbell);
    rig.run();
    assert_eq!(p.cq_a.expect_error().0, 0);
}

#[test]
fn unmapped_memory_is_a_violation_with_checked_memory() {
    let rig = Rig::new(SimConfig::new().checked_memory(true));
    let mut p = rig.pair(Transport::Rc);
    let nowhere = MkeyConfig {
        tag: 0,
        pd: rig.pds[0],
        access: Access::all(),
        start: 0x1000,
        length: 64,
        translation: Translation::Physical,
        ..MkeyConfig::default()
    };
    let key = rig.lock().device_mut(0).create_mkey(nowhere).expect("a key");
    p.b.post_receive(&[data(0x1000, 8, key)]);
    p.a.post(&Wqe::new(Opcode::Send).inline(b"x"));
    rig.run();
    p.cq_a.expect_error();
    let expected = Violation::Memory { address: 0x1000, length: 1 };
    assert_eq!(rig.lock().device_mut(0).take_violations(), [expected]);
}
