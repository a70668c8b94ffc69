//! Draining on command, and changes of WQEs in a drained queue.

use mlx5_prm::cqe::CqeOpcode;
use mlx5_prm::event::EventType;
use mlx5_prm::wqe::Opcode;

use super::rig::{Rig, Wqe};
use crate::engine::{DrainAt, Event, QpState, Transport};

#[test]
fn a_drained_queue_stands_still_and_resumes_from_memory() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    let to = rig.region(0, 64);
    let write =
        |n: usize| Wqe::new(Opcode::RdmaWrite).remote(to.at(n), to.key).inline(&[n as u8 + 1]);
    rig.lock().device_mut(0).drain_qp(p.a.qpn, DrainAt::After(2)).expect("RTS");
    let posted: Vec<u16> = (0..4).map(|n| p.a.post(&write(n))).collect();
    rig.run();
    assert_eq!(rig.query(&p.a).state, QpState::SqDrained);
    assert_eq!(rig.query(&p.a).hw_sq_wqebb_counter, posted[2]);
    assert_eq!(rig.query(&p.a).sw_sq_wqebb_counter, p.a.posted);
    assert_eq!(rig.events(0), [Event::Qp { qpn: p.a.qpn, kind: EventType::SQ_DRAINED }]);
    assert_eq!(to.memory.read(0, 4), [1, 2, 0, 0]);
    p.cq_a.expect();
    p.cq_a.expect();
    p.cq_a.expect_none();

    // The third becomes a NOP of the same length; one more is posted while the queue is drained.
    let opcode_word = (u32::from(posted[2]) << 8).to_be_bytes();
    p.a.write_unit(usize::from(posted[2]) * 4, &opcode_word);
    p.a.post(&write(4));
    assert_eq!(rig.run(), 0);
    rig.set_state(&p.a, QpState::Rts);
    rig.run();
    assert_eq!(to.memory.read(0, 5), [1, 2, 0, 4, 5]);
    let nop = p.cq_a.expect();
    assert_eq!((nop.opcode, nop.wqe()), (CqeOpcode::Requester, posted[2]));
    assert_eq!(nop.cqe.sop_drop_qpn.get() >> 24, 0);
    p.cq_a.expect();
    p.cq_a.expect();
}

#[test]
fn a_drain_can_name_its_block() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    rig.lock().device_mut(0).drain_qp(p.a.qpn, DrainAt::Block(3)).expect("RTS");
    p.a.post(&Wqe::new(Opcode::Nop));
    p.a.post(&Wqe::new(Opcode::Nop).pad(6));
    p.a.post(&Wqe::new(Opcode::Nop));
    rig.run();
    assert_eq!(rig.query(&p.a).state, QpState::SqDrained);
    assert_eq!(rig.query(&p.a).hw_sq_wqebb_counter, 3);
}

#[test]
fn an_idle_queue_drains_at_once_and_only_rts_can_be_drained() {
    let rig = Rig::one_device();
    let p = rig.pair(Transport::Rc);
    rig.lock().device_mut(0).drain_qp(p.a.qpn, DrainAt::Now).expect("RTS");
    assert_eq!(rig.query(&p.a).state, QpState::SqDrained);
    rig.set_state(&p.b, QpState::Error);
    assert!(rig.lock().device_mut(0).drain_qp(p.b.qpn, DrainAt::Now).is_err());
}

#[test]
fn a_drained_queue_still_receives_and_flushes_on_error() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    let to = rig.region(0, 64);
    rig.lock().device_mut(0).drain_qp(p.a.qpn, DrainAt::Now).expect("RTS");
    p.a.post(&Wqe::new(Opcode::Nop).unsignaled());
    p.b.post(&Wqe::new(Opcode::RdmaWrite).remote(to.at(0), to.key).inline(b"in"));
    rig.run();
    assert_eq!(p.cq_b.expect().opcode, CqeOpcode::Requester);
    rig.set_state(&p.a, QpState::Error);
    rig.run();
    assert_eq!(p.cq_a.expect_error().0, 0);
}

#[test]
fn a_request_that_waits_for_its_receiver_can_be_drained_and_replaced() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    rig.lock().device_mut(0).qp_attributes_mut(p.a.qpn).expect("a QP").rnr_retry = 7;
    p.a.post(&Wqe::new(Opcode::Send).inline(b"never"));
    rig.run();
    rig.lock().device_mut(0).drain_qp(p.a.qpn, DrainAt::Now).expect("RTS");
    assert_eq!(rig.query(&p.a).hw_sq_wqebb_counter, 0);
    p.a.write_unit(0, &[0; 4]);
    rig.set_state(&p.a, QpState::Rts);
    rig.run();
    assert_eq!(p.cq_a.expect().cqe.sop_drop_qpn.get() >> 24, 0);
}

#[test]
fn a_drain_by_modify_reports_its_end_only_when_asked_to() {
    let rig = Rig::one_device();
    let p = rig.pair(Transport::Rc);
    rig.set_state(&p.a, QpState::SqDraining);
    assert_eq!(rig.query(&p.a).state, QpState::SqDrained);
    assert_eq!(rig.events(0), []);
    rig.lock().device_mut(0).qp_attributes_mut(p.b.qpn).expect("a QP").notify_drained = true;
    rig.set_state(&p.b, QpState::SqDraining);
    assert_eq!(rig.events(0).len(), 1);
}
