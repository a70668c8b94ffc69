//! A network that takes time, loses packets and is cut.

use std::time::Duration;

use mlx5_prm::cqe::{CqeOpcode, Syndrome};
use mlx5_prm::event::EventType;
use mlx5_prm::wqe::{AddressVector, EXTENDED_UD_AV, Opcode};

use super::rig::{Pair, Region, Rig, Wqe, data};
use crate::config::SimConfig;
use crate::engine::{DrainAt, Event, QpState, Transport};
use crate::network::Network;

const LATENCY: u64 = 10_000;
/// Time of a message in addition to the network: the engine's units of work.
const WORK: u64 = 2_000;

fn nanoseconds(time: u64) -> Duration {
    Duration::from_nanos(time)
}

fn far() -> Network {
    Network::INSTANT.latency(nanoseconds(LATENCY))
}

fn rig(network: Network) -> Rig {
    Rig::new(SimConfig::new().devices(2).network(network).seed(5))
}

fn write(to: &Region, at: usize, bytes: &[u8]) -> Wqe {
    Wqe::new(Opcode::RdmaWrite).remote(to.at(at), to.key).inline(bytes)
}

fn add(rig: &Rig, to: &Region) -> (Wqe, Region) {
    let old = rig.region(0, 8);
    let wqe = Wqe::new(Opcode::AtomicFa).remote(to.at(0), to.key).atomic(1, 0);
    (wqe.data(old.at(0), 8, old.key), old)
}

fn run_for(rig: &Rig, time: u64) {
    rig.fabric.run_for(nanoseconds(time));
}

fn now(rig: &Rig) -> u64 {
    rig.lock().now_ns()
}

/// Two devices and a region of the second.
fn two(network: Network) -> (Rig, Pair, Region) {
    let rig = rig(network);
    let pair = rig.pair_of(Transport::Rc, 0, 1);
    let to = rig.region(1, 8192);
    (rig, pair, to)
}

#[test]
fn a_write_arrives_after_one_way_and_completes_after_both() {
    let (rig, mut p, to) = two(far());
    p.a.post(&write(&to, 0, b"far"));
    run_for(&rig, LATENCY - WORK);
    assert_eq!(to.memory.read(0, 3), [0; 3]);
    run_for(&rig, 2 * WORK);
    assert_eq!(to.memory.read(0, 3), b"far");
    p.cq_a.expect_none();
    run_for(&rig, LATENCY - 2 * WORK);
    p.cq_a.expect_none();
    run_for(&rig, 2 * WORK);
    assert_eq!(p.cq_a.expect().opcode, CqeOpcode::Requester);
    assert_eq!(rig.run(), 0, "nothing is left on its way");
}

#[test]
fn a_device_reaches_itself_at_once() {
    let rig = rig(far());
    let mut p = rig.pair_of(Transport::Rc, 0, 0);
    let to = rig.region(0, 64);
    p.a.post(&write(&to, 0, b"near"));
    run_for(&rig, WORK);
    p.cq_a.expect();
}

#[test]
fn a_link_has_a_network_of_its_own_one_way() {
    let rig = Rig::new(SimConfig::new().devices(3).link(0, 1, far()).seed(5));
    let mut p = rig.pair_of(Transport::Rc, 0, 1);
    let to = rig.region(1, 64);
    p.a.post(&write(&to, 0, b"far"));
    run_for(&rig, LATENCY - WORK);
    assert_eq!(to.memory.read(0, 3), [0; 3]);
    run_for(&rig, 2 * WORK);
    assert_eq!(to.memory.read(0, 3), b"far");
    // The way back takes no time.
    p.cq_a.expect();

    let mut p = rig.pair_of(Transport::Rc, 1, 0);
    let to = rig.region(0, 64);
    p.a.post(&write(&to, 0, b"near"));
    run_for(&rig, WORK);
    assert_eq!(to.memory.read(0, 4), b"near");
    // The acknowledgement travels over the link.
    p.cq_a.expect_none();
    run_for(&rig, LATENCY);
    p.cq_a.expect();

    let mut p = rig.pair_of(Transport::Rc, 0, 2);
    let to = rig.region(2, 64);
    p.a.post(&write(&to, 0, b"near"));
    run_for(&rig, WORK);
    p.cq_a.expect();
}

#[test]
fn a_way_that_is_cut_from_the_start_carries_nothing() {
    let rig = Rig::new(SimConfig::new().devices(2).cut(0, 1).seed(5));
    let is_cut = |from, to| rig.lock().is_cut(from, to);
    assert!(is_cut(0, 1) && !is_cut(1, 0));
    let mut p = rig.pair_of(Transport::Rc, 0, 1);
    let to = rig.region(1, 64);
    let lost = p.a.post(&write(&to, 0, b"lost"));
    rig.run();
    assert_eq!(p.cq_a.expect_error(), (lost, Syndrome::RetryExceeded));
    assert_eq!(to.memory.read(0, 4), [0; 4]);
}

#[test]
fn requests_follow_each_other_on_the_wire() {
    // One byte per nanosecond.
    let (rig, mut p, to) = two(far().gigabits(8));
    let from = rig.region(0, 4096);
    let began = now(&rig);
    for _ in 0..4 {
        let wqe = Wqe::new(Opcode::RdmaWrite).remote(to.at(0), to.key);
        p.a.post(&wqe.data(from.at(0), 4096, from.key));
    }
    rig.run();
    for _ in 0..4 {
        p.cq_a.expect();
    }
    let took = now(&rig) - began;
    let least = 4 * 4096 + 2 * LATENCY;
    assert!((least..least + WORK).contains(&took), "{took} for {least}");
}

/// A request that was posted while another was in flight left when it was posted.
#[test]
fn a_request_does_not_wait_for_the_one_before_it_to_arrive() {
    let (rig, mut p, to) = two(far());
    p.a.post(&write(&to, 0, b"1"));
    run_for(&rig, LATENCY / 2);
    p.a.post(&write(&to, 1, b"2"));
    run_for(&rig, LATENCY + WORK);
    assert_eq!(to.memory.read(0, 2), b"12");
}

#[test]
fn what_a_read_brings_travels_back() {
    let (rig, mut p, to) = two(far().gigabits(8));
    let into = rig.region(0, 4096);
    let began = now(&rig);
    let wqe = Wqe::new(Opcode::RdmaRead).remote(to.at(0), to.key);
    p.a.post(&wqe.data(into.at(0), 4096, into.key));
    rig.run();
    assert_eq!(p.cq_a.expect().bytes(), 4096);
    let took = now(&rig) - began;
    assert!((24_096..24_096 + WORK).contains(&took), "{took}");
}

#[test]
fn completions_stay_in_order_also_of_requests_that_stay_here() {
    let (rig, mut p, to) = two(far());
    let first = p.a.post(&write(&to, 0, b"1"));
    let second = p.a.post(&Wqe::new(Opcode::Nop));
    let third = p.a.post(&write(&to, 1, b"2"));
    rig.run();
    for wqe in [first, second, third] {
        assert_eq!(p.cq_a.expect().wqe(), wqe);
    }
}

#[test]
fn a_cut_way_fails_a_request_that_was_not_executed() {
    let (rig, mut p, to) = two(far());
    rig.lock().set_cut(0, 1, true);
    let lost = p.a.post(&write(&to, 0, b"lost"));
    rig.run();
    assert_eq!(p.cq_a.expect_error(), (lost, Syndrome::RetryExceeded));
    assert_eq!(to.memory.read(0, 4), [0; 4]);
}

/// The sender cannot know whether the request was executed; it was.
#[test]
fn a_request_fails_whose_acknowledgement_is_lost_and_what_follows_is_flushed() {
    let (rig, mut p, to) = two(far());
    rig.lock().set_cut(1, 0, true);
    let posted =
        [b"1", b"2", b"3"].map(|byte| p.a.post(&write(&to, usize::from(byte[0] - b'1'), byte)));
    rig.run();
    assert_eq!(to.memory.read(0, 3), b"123");
    assert_eq!(p.cq_a.expect_error(), (posted[0], Syndrome::RetryExceeded));
    assert_eq!(p.cq_a.expect_error(), (posted[1], Syndrome::WorkRequestFlushed));
    assert_eq!(p.cq_a.expect_error(), (posted[2], Syndrome::WorkRequestFlushed));
    p.cq_a.expect_none();
}

/// Both directions are cut between two requests: the first is the one that fails.
#[test]
fn the_first_request_without_acknowledgement_fails() {
    let (rig, mut p, to) = two(far());
    let first = p.a.post(&write(&to, 0, b"1"));
    run_for(&rig, LATENCY + WORK);
    {
        let mut engine = rig.lock();
        engine.set_cut(0, 1, true);
        engine.set_cut(1, 0, true);
    }
    let second = p.a.post(&write(&to, 1, b"2"));
    rig.run();
    assert_eq!(to.memory.read(0, 2), [b'1', 0]);
    assert_eq!(p.cq_a.expect_error(), (first, Syndrome::RetryExceeded));
    assert_eq!(p.cq_a.expect_error(), (second, Syndrome::WorkRequestFlushed));
}

#[test]
fn an_atomic_whose_answer_is_lost_is_executed_once() {
    let (rig, mut p, to) = two(far());
    let (wqe, old) = add(&rig, &to);
    to.memory.write(0, &41u64.to_ne_bytes());
    rig.lock().set_cut(1, 0, true);
    p.a.post(&wqe);
    // The sender asks for the acknowledgement again after 64 microseconds.
    run_for(&rig, 3 * LATENCY);
    p.cq_a.expect_none();
    rig.lock().mend();
    rig.run();
    assert_eq!(p.cq_a.expect().bytes(), 8);
    assert_eq!(to.memory.read(0, 8), 42u64.to_ne_bytes());
    assert_eq!(old.memory.read(0, 8), 41u64.to_ne_bytes());
}

#[test]
fn a_queue_pair_that_fails_flushes_what_was_not_acknowledged() {
    let (rig, mut p, to) = two(far());
    let posted = [0, 1].map(|n| p.a.post(&write(&to, n, b"x")));
    run_for(&rig, LATENCY + WORK);
    assert_eq!(to.memory.read(0, 2), b"xx");
    rig.set_state(&p.a, QpState::Error);
    rig.run();
    for wqe in posted {
        assert_eq!(p.cq_a.expect_error(), (wqe, Syndrome::WorkRequestFlushed));
    }
    p.cq_a.expect_none();
}

/// After a drain the result of every request is known.
#[test]
fn a_drain_waits_for_acknowledgements_and_lets_nothing_more_out() {
    let (rig, mut p, to) = two(far());
    p.a.post(&write(&to, 0, b"1"));
    run_for(&rig, LATENCY + WORK);
    p.a.post(&write(&to, 1, b"2"));
    rig.lock().device_mut(0).drain_qp(p.a.qpn, DrainAt::Now).expect("RTS");
    assert_eq!(rig.query(&p.a).state, QpState::SqDraining);
    assert_eq!(rig.events(0), []);
    rig.run();
    assert_eq!(rig.query(&p.a).state, QpState::SqDrained);
    assert_eq!(rig.events(0), [Event::Qp { qpn: p.a.qpn, kind: EventType::SQ_DRAINED }]);
    p.cq_a.expect();
    p.cq_a.expect_none();
    assert_eq!(to.memory.read(0, 2), [b'1', 0]);
    rig.set_state(&p.a, QpState::Rts);
    rig.run();
    p.cq_a.expect();
    assert_eq!(to.memory.read(0, 2), b"12");
}

/// A request that a drain caught in flight starts over: the time of its first attempt does not
/// count.
#[test]
fn a_request_that_was_changed_while_it_stood_travels_anew() {
    let (rig, mut p, to) = two(far());
    let wqe = p.a.post(&write(&to, 0, b"1"));
    run_for(&rig, WORK);
    rig.lock().device_mut(0).drain_qp(p.a.qpn, DrainAt::Now).expect("RTS");
    run_for(&rig, 4 * LATENCY);
    assert_eq!(rig.query(&p.a).hw_sq_wqebb_counter, wqe, "it had not arrived");
    rig.set_state(&p.a, QpState::Rts);
    run_for(&rig, LATENCY - WORK);
    assert_eq!(to.memory.read(0, 1), [0]);
    run_for(&rig, 2 * WORK);
    assert_eq!(to.memory.read(0, 1), b"1");
}

/// With a tenth of the packets lost, each request is executed once and in its order.
#[test]
fn a_reliable_connection_hides_loss() {
    let (rig, mut p, to) = two(far().loss(100_000));
    rig.lock().device_mut(0).qp_attributes_mut(p.a.qpn).expect("a QP").retry_count = 7;
    let into = rig.region(0, 64);
    for count in 0..50u64 {
        let wqe = Wqe::new(Opcode::AtomicFa).remote(to.at(0), to.key).atomic(1, 0);
        p.a.post(&wqe.data(into.at(0), 8, into.key));
        rig.run();
        assert_eq!(p.cq_a.expect().opcode, CqeOpcode::Requester);
        assert_eq!(into.memory.read(0, 8), count.to_ne_bytes());
    }
    assert_eq!(to.memory.read(0, 8), 50u64.to_ne_bytes());
    let engine = rig.lock();
    let [sender, receiver] = [0, 1].map(|device| engine.device(device).retry_counts(1));
    assert!(sender.local_ack_timeout_err > 0, "{sender:?}");
    // Some of the lost packets were acknowledgements.
    let again = receiver.duplicate_request;
    assert!(again > 0 && again <= sender.local_ack_timeout_err, "{receiver:?}");
}

/// Sends eight datagrams and returns the numbers of those that arrived, in order.
fn datagrams(network: Network, seed: u64) -> Vec<u8> {
    let rig = Rig::new(SimConfig::new().devices(2).network(network).seed(seed));
    let make = |device: usize| {
        let cq = rig.cq(device, 5, 64);
        let qp = rig.qp(device, Transport::Ud, &cq, None, 6);
        rig.activate(&qp);
        (qp, cq)
    };
    let ((mut a, mut cq_a), (mut b, mut cq_b)) = (make(0), make(1));
    let (path, to) = (rig.path_to(1, 0), rig.region(1, 64 * 8));
    for slot in 0..8 {
        b.post_receive(&[data(to.at(64 * slot), 64, to.key)]);
    }
    for number in 0..8u8 {
        let vector = AddressVector {
            dqp_dct: (b.qpn | EXTENDED_UD_AV).into(),
            rlid: path.dlid.into(),
            ..AddressVector::default()
        };
        a.post(&Wqe::new(Opcode::Send).segment(&vector).inline(&[number]));
    }
    rig.run();
    for _ in 0..8 {
        assert_eq!(cq_a.expect().opcode, CqeOpcode::Requester, "seed {seed}");
    }
    let mut arrived = Vec::new();
    while cq_b.poll().is_some() {
        arrived.push(to.memory.read(64 * arrived.len() + 40, 1)[0]);
    }
    arrived
}

#[test]
fn datagrams_arrive_in_any_order_but_once() {
    let mut arrived = datagrams(far().jitter(nanoseconds(LATENCY)), 5);
    assert!(!arrived.is_sorted(), "{arrived:?}");
    arrived.sort_unstable();
    assert_eq!(arrived, [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn the_same_seed_loses_the_same_and_another_one_does_not() {
    let network = Network::INSTANT.loss(400_000);
    let first = datagrams(network, 1);
    assert!((2..8).contains(&first.len()), "{first:?}");
    assert!(first.is_sorted(), "a network without jitter keeps the order: {first:?}");
    assert_eq!(first, datagrams(network, 1));
    assert!((2..5).any(|seed| datagrams(network, seed) != first));
}

#[test]
fn nothing_happens_beyond_the_time_that_passes() {
    let (rig, mut p, to) = two(far());
    let began = now(&rig);
    run_for(&rig, 123);
    assert_eq!(now(&rig), began + 123, "time passes also where there is nothing to do");
    p.a.post(&write(&to, 0, b"1"));
    run_for(&rig, LATENCY / 2);
    assert!(now(&rig) - began - 123 - LATENCY / 2 < WORK);
    p.cq_a.expect_none();
}
