//! Shared receive queues.

use mlx5_prm::cqe::{CqeOpcode, Syndrome};
use mlx5_prm::event::EventType;
use mlx5_prm::wqe::Opcode;

use super::rig::{Cq, Qp, Rig, Srq, Wqe, data};
use crate::engine::fault::Violation;
use crate::engine::{Event, QpState, Transport};

/// A sender, and a receiver that takes from a shared receive queue.
fn shared(rig: &Rig) -> (Qp, Cq, Qp, Cq, Srq) {
    let srq = rig.srq(0);
    let (cq_a, cq_b) = (rig.cq(0, 5, 64), rig.cq(0, 5, 64));
    let a = rig.qp(0, Transport::Rc, &cq_a, None, 3);
    let b = rig.qp(0, Transport::Rc, &cq_b, Some(srq.srqn), 3);
    rig.connect(&a, &b);
    (a, cq_a, b, cq_b, srq)
}

#[test]
fn the_list_is_walked_in_the_order_of_its_links() {
    let rig = Rig::one_device();
    let (mut a, _cq_a, _b, mut cq_b, mut srq) = shared(&rig);
    let to = rig.region(0, 64);
    for (index, next) in [(0, 3), (3, 1), (1, 5)] {
        srq.write(index, next, &[data(to.at(usize::from(index) * 8), 8, to.key)]);
    }
    srq.post(3);
    for text in [b"one", b"two", b"six"] {
        a.post(&Wqe::new(Opcode::Send).inline(text));
    }
    rig.run();
    for (index, text) in [(0u16, b"one"), (3, b"two"), (1, b"six")] {
        let received = cq_b.expect();
        assert_eq!((received.wqe(), received.cqe.srqn_uidx.get()), (index, 0x1234));
        assert_eq!(to.memory.read(usize::from(index) * 8, 3), text);
    }
    // The next one is number 5, when it is posted.
    a.post(&Wqe::new(Opcode::Send).inline(b"end"));
    assert!(rig.fabric.step());
    srq.write(5, 0, &[data(to.at(40), 8, to.key)]);
    srq.post(1);
    rig.run();
    assert_eq!(cq_b.expect().wqe(), 5);
}

#[test]
fn the_limit_event_comes_once_when_fewer_wait() {
    let rig = Rig::one_device();
    let (mut a, _cq_a, _b, _cq_b, mut srq) = shared(&rig);
    for index in 0..4 {
        srq.write(index, index + 1, &[]);
    }
    srq.post(4);
    rig.lock().device_mut(0).arm_srq(srq.srqn, 3).expect("an SRQ");
    a.post(&Wqe::new(Opcode::Send));
    rig.run();
    assert_eq!(rig.events(0), []);
    a.post(&Wqe::new(Opcode::Send));
    a.post(&Wqe::new(Opcode::Send));
    rig.run();
    let limit = Event::Srq { srqn: srq.srqn, kind: EventType::SRQ_RQ_LIMIT };
    assert_eq!(rig.events(0), [limit]);
    assert_eq!(rig.lock().device(0).srq_limit(srq.srqn), Some(0));
}

#[test]
fn a_failed_queue_pair_reports_its_last_wqe() {
    let rig = Rig::one_device();
    let (_a, _cq_a, b, mut cq_b, mut srq) = shared(&rig);
    srq.write(0, 1, &[]);
    srq.post(1);
    rig.set_state(&b, QpState::Error);
    rig.run();
    // Receives that wait in the shared queue remain for the other queue pairs.
    cq_b.expect_none();
    let last = Event::Qp { qpn: b.qpn, kind: EventType::SRQ_LAST_WQE };
    assert_eq!(rig.events(0), [last]);
}

#[test]
fn a_receive_in_use_is_flushed_with_its_queue_pair() {
    let rig = Rig::one_device();
    let (mut a, mut cq_a, b, mut cq_b, mut srq) = shared(&rig);
    let (from, to) = (rig.region(0, 256), rig.region(0, 1024));
    srq.write(0, 1, &[data(to.at(0), 1024, to.key)]);
    srq.post(1);
    // The first packet arrives; the second cannot be gathered.
    a.post(&Wqe::new(Opcode::Send).data(from.at(0), 300, from.key));
    rig.run();
    assert_eq!(cq_a.expect_error().1, Syndrome::LocalProtection);
    cq_b.expect_none();
    rig.set_state(&b, QpState::Error);
    rig.run();
    let flushed = cq_b.expect();
    assert_eq!(flushed.opcode, CqeOpcode::ResponderError);
    assert_eq!((flushed.wqe(), flushed.syndrome()), (0, Syndrome::WorkRequestFlushed));
    cq_b.expect_none();
}

#[test]
fn a_list_that_leads_astray_fails_the_queue() {
    let rig = Rig::one_device();
    let (mut a, mut cq_a, _b, _cq_b, mut srq) = shared(&rig);
    srq.write(0, 99, &[]);
    srq.post(2);
    a.post(&Wqe::new(Opcode::Send));
    a.post(&Wqe::new(Opcode::Send));
    rig.run();
    assert_eq!(cq_a.expect().opcode, CqeOpcode::Requester);
    assert_eq!(cq_a.expect_error().1, Syndrome::RnrRetryExceeded);
    let astray = Violation::SrqList { srqn: srq.srqn, index: 99 };
    assert_eq!(rig.lock().device_mut(0).take_violations(), [astray]);
    let failed = Event::Srq { srqn: srq.srqn, kind: EventType::SRQ_CATAS_ERROR };
    assert_eq!(rig.events(0), [failed]);
}
