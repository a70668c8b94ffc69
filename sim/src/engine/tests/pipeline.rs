//! Queue pairs that drain after a signature error.

use mlx5_prm::cqe::CqeOpcode;
use mlx5_prm::event::EventType;
use mlx5_prm::wqe::{Opcode, control_flags};

use super::rig::{Wqe, data};
use super::signed::{Bench, Kind, Plan, error};
use crate::SimConfig;
use crate::engine::{Event, QpState};

const PLAN: Plan = Plan { memory: Some((Kind::Crc32c, 512)), wire: None, check: 0xff, copy: None };

/// A queue pair with the option, and a key over memory that has no good signature.
fn bench(config: SimConfig) -> Bench {
    let mut bench = Bench::with(config);
    let qpn = bench.p.a.qpn;
    bench.rig.lock().device_mut(0).qp_attributes_mut(qpn).expect("a QP").drain_sigerr = true;
    bench.plan(&PLAN, 516, 0);
    for _ in 0..4 {
        let plain = (bench.plain.at(1024), bench.plain.key);
        bench.p.b.post_receive(&[data(plain.0, 64, plain.1)]);
    }
    bench
}

fn fenced(mut wqe: Wqe) -> Wqe {
    wqe.flags |= control_flags::FENCE;
    wqe
}

fn response(text: &[u8]) -> Wqe {
    fenced(Wqe::new(Opcode::Send).inline(text))
}

#[track_caller]
fn stands_at(bench: &Bench, block: u16) {
    let now = bench.rig.query(&bench.p.a);
    assert_eq!((now.state, now.hw_sq_wqebb_counter), (QpState::SqDrained, block));
    let drained = Event::Qp { qpn: bench.p.a.qpn, kind: EventType::SQ_DRAINED };
    assert_eq!(bench.rig.events(0).iter().filter(|event| **event == drained).count(), 1);
}

#[test]
fn the_response_behind_a_bad_transfer_is_not_sent_and_can_be_replaced() {
    let mut bench = bench(SimConfig::new());
    bench.p.a.post(&bench.write(512).unsignaled());
    let plain = Wqe::new(Opcode::Nop);
    let between = bench.p.a.post(&plain);
    let good = bench.p.a.post(&response(b"good"));
    let behind = bench.p.a.post(&plain);
    bench.rig.run();
    // Everything up to the fence is executed.
    error(bench.p.cq_a.poll());
    assert_eq!(bench.p.cq_a.expect().wqe(), between);
    bench.p.cq_a.expect_none();
    bench.p.cq_b.expect_none();
    stands_at(&bench, good);

    // The response becomes a NOP; another one is posted while the queue is drained.
    bench.p.a.write_unit(usize::from(good) * 4, &(u32::from(good) << 8).to_be_bytes());
    let bad = bench.p.a.post(&response(b"bad"));
    assert_eq!(bench.rig.run(), 0);
    bench.rig.set_state(&bench.p.a, QpState::Rts);
    bench.rig.run();
    for wqe in [good, behind, bad] {
        let done = bench.p.cq_a.expect();
        assert_eq!((done.opcode, done.wqe()), (CqeOpcode::Requester, wqe));
    }
    assert_eq!(bench.p.cq_b.expect().bytes(), 3);
    assert_eq!(bench.plain.memory.read(1024, 3), b"bad");
    bench.p.cq_b.expect_none();
    assert_eq!(bench.rig.query(&bench.p.a).state, QpState::Rts);
}

#[test]
fn a_good_transfer_drains_nothing() {
    let mut bench = bench(SimConfig::new());
    let signed = Kind::Crc32c.sign(512, &[7; 512]);
    bench.memory.memory.write(0, &signed);
    bench.p.a.post(&bench.write(512).unsignaled());
    bench.p.a.post(&response(b"good"));
    bench.rig.run();
    assert_eq!(bench.p.cq_a.expect().opcode, CqeOpcode::Requester);
    assert_eq!(bench.p.cq_b.expect().bytes(), 4);
    assert_eq!(bench.rig.query(&bench.p.a).state, QpState::Rts);
}

#[test]
fn without_the_option_nothing_drains() {
    let mut bench = bench(SimConfig::new());
    let qpn = bench.p.a.qpn;
    bench.rig.lock().device_mut(0).qp_attributes_mut(qpn).expect("a QP").drain_sigerr = false;
    bench.p.a.post(&bench.write(512).unsignaled());
    bench.p.a.post(&response(b"good"));
    bench.rig.run();
    error(bench.p.cq_a.poll());
    assert_eq!(bench.p.cq_b.expect().bytes(), 4);
}

#[test]
fn an_error_at_the_end_of_the_queue_drains_it_there() {
    let mut bench = bench(SimConfig::new());
    bench.p.a.post(&bench.write(512).unsignaled());
    bench.rig.run();
    stands_at(&bench, bench.p.a.posted);
    let late = bench.p.a.post(&response(b"late"));
    bench.rig.run();
    assert_eq!(bench.rig.query(&bench.p.a).hw_sq_wqebb_counter, late);
    bench.p.cq_b.expect_none();
    bench.rig.set_state(&bench.p.a, QpState::Rts);
    bench.rig.run();
    assert_eq!(bench.p.cq_b.expect().bytes(), 4);
}

#[test]
fn the_device_can_be_told_to_stop_earlier_but_never_beyond_a_fence() {
    for (more, executed) in [(Some(0), 0), (Some(1), 1), (Some(2), 2), (Some(9), 3), (None, 3)] {
        let mut bench = bench(SimConfig::new().signature_drain(more));
        bench.p.a.post(&bench.write(512).unsignaled());
        let first = bench.p.a.posted;
        for _ in 0..3 {
            bench.p.a.post(&Wqe::new(Opcode::Nop).unsignaled());
        }
        bench.p.a.post(&response(b"never"));
        bench.rig.run();
        stands_at(&bench, first + executed);
    }
}

#[test]
fn several_transfers_fail_in_one_drain() {
    let mut bench = bench(SimConfig::new());
    // The second transfer has another key, with PSVs of its own.
    let mut other = Bench::key_beside(&bench);
    std::mem::swap(&mut bench.key, &mut other.0);
    std::mem::swap(&mut bench.psvs, &mut other.1);
    bench.plan(&PLAN, 516, 0);
    let second = bench.write(512).unsignaled();
    std::mem::swap(&mut bench.key, &mut other.0);
    std::mem::swap(&mut bench.psvs, &mut other.1);
    let first = bench.write(512).unsignaled();
    bench.p.a.post(&first);
    bench.p.a.post(&second);
    let one = bench.p.a.post(&response(b"one"));
    bench.p.a.post(&response(b"two"));
    bench.rig.run();
    let keys = [0; 2].map(|_| error(bench.p.cq_a.poll()).mkey.get());
    assert_eq!(keys, [bench.key, other.0]);
    bench.p.cq_b.expect_none();
    stands_at(&bench, one);
}

#[test]
fn an_error_that_the_peer_causes_does_not_drain() {
    let mut bench = bench(SimConfig::new());
    let plain = (bench.plain.at(0), bench.plain.key);
    let read = Wqe::new(Opcode::RdmaRead).remote(0, bench.key).data(plain.0, 512, plain.1);
    bench.p.b.post(&read);
    bench.rig.run();
    error(bench.p.cq_a.poll());
    assert_eq!(bench.rig.query(&bench.p.a).state, QpState::Rts);
    assert_eq!(bench.p.cq_b.expect().opcode, CqeOpcode::Requester);
}
