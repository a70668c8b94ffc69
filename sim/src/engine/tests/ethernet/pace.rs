//! Send queues with a rate limit.

use std::time::Duration;

use super::*;
use crate::engine::{Error, QpState, RateLimit};
use crate::frame::samples::plain;
use crate::network::Network;

/// Bytes of the frames.
const BYTES: usize = 1000;
/// Kilobits per second at which such a frame takes a millisecond.
const RATE: u32 = 8_000;
const MS: u64 = 1_000_000;
/// Time of the engine's units of work.
const WORK: u64 = 5_000;

fn slow(burst: u32) -> RateLimit {
    RateLimit { rate: RATE, burst, typical_packet: 0 }
}

fn limit(rig: &Rig, nic: &Nic, index: u16, limit: Option<RateLimit>) {
    let mut engine = rig.lock();
    let device = engine.device_mut(0);
    if index != 0 {
        device.set_rate_limit(index, limit).expect("an entry");
    }
    device.limit_sq(nic.sq.qpn, index).expect("a limit");
}

/// Number of frames sent in `time` nanoseconds.
fn sent(rig: &Rig, nic: &mut Nic, time: u64) -> usize {
    rig.fabric.run_for(Duration::from_nanos(time));
    std::iter::from_fn(|| nic.send_cq.poll()).count()
}

fn post(nic: &mut Nic, count: usize) {
    for _ in 0..count {
        nic.post(&plain(BYTES));
    }
}

#[test]
fn frames_leave_no_faster_than_their_queue_may() {
    let rig = rig(1);
    let mut nic = Nic::new(&rig, 0);
    limit(&rig, &nic, 3, Some(slow(0)));
    post(&mut nic, 6);
    // The first frame leaves at once, each further one when the one before has passed.
    assert_eq!(sent(&rig, &mut nic, MS - WORK), 1);
    for _ in 0..3 {
        assert_eq!(sent(&rig, &mut nic, MS), 1);
    }
    // Twice the rate, also for frames that wait already.
    rig.lock()
        .device_mut(0)
        .set_rate_limit(3, Some(RateLimit { rate: 2 * RATE, ..slow(0) }))
        .unwrap();
    assert_eq!(sent(&rig, &mut nic, MS / 2 - WORK), 1);
    assert_eq!(sent(&rig, &mut nic, MS / 2), 1);
    // An idle queue does not save up time.
    assert_eq!(sent(&rig, &mut nic, 50 * MS), 0);
    post(&mut nic, 4);
    assert_eq!(sent(&rig, &mut nic, MS / 2 - WORK), 1);
    // Without a limit the rest leaves at once.
    limit(&rig, &nic, 0, None);
    assert_eq!(sent(&rig, &mut nic, WORK), 3);
}

#[test]
fn a_burst_leaves_at_line_rate() {
    let rig = rig(1);
    let mut nic = Nic::new(&rig, 0);
    limit(&rig, &nic, 1, Some(slow(3 * BYTES as u32)));
    post(&mut nic, 8);
    assert_eq!(sent(&rig, &mut nic, WORK), 4);
    assert_eq!(sent(&rig, &mut nic, MS), 1);
    assert_eq!(sent(&rig, &mut nic, 3 * MS), 3);
    // The burst is available again after some time.
    sent(&rig, &mut nic, 50 * MS);
    post(&mut nic, 8);
    assert_eq!(sent(&rig, &mut nic, WORK), 4);
}

#[test]
fn a_limit_holds_on_a_network_that_takes_time() {
    let network = Network::INSTANT.gigabits(10).latency(Duration::from_micros(2));
    let config = SimConfig::new().ports([PortConfig::ROCE]).devices(2).network(network);
    let rig = Rig::new(config);
    let (mut nic, mut far) = (Nic::new(&rig, 0), Nic::new(&rig, 1));
    far.fill(8);
    limit(&rig, &nic, 1, Some(slow(0)));
    post(&mut nic, 4);
    let mut received = |time| {
        rig.fabric.run_for(Duration::from_nanos(time));
        std::iter::from_fn(|| far.cq.poll()).count()
    };
    assert_eq!(received(MS - WORK), 1);
    assert_eq!(received(MS), 1);
    assert_eq!(received(2 * MS), 2);
}

#[test]
fn a_limit_is_of_one_queue_and_an_error_does_not_wait_for_it() {
    let rig = rig(1);
    let (mut one, mut two) = (Nic::new(&rig, 0), Nic::new(&rig, 0));
    limit(&rig, &one, 1, Some(slow(0)));
    post(&mut one, 4);
    post(&mut two, 4);
    assert_eq!(sent(&rig, &mut one, 2 * WORK), 1);
    assert_eq!(sent(&rig, &mut two, 0), 4);
    rig.lock().device_mut(0).set_queue_state(one.sq.qpn, QpState::Error).expect("a state");
    assert_eq!(sent(&rig, &mut one, 2 * WORK), 3, "flushed");
}

#[test]
fn the_table_has_only_what_the_device_can_do() {
    let rig = rig(1);
    let nic = Nic::new(&rig, 0);
    let mut engine = rig.lock();
    let device = engine.device_mut(0);
    for (index, rate) in [(0, RATE), (128, RATE), (1, 0), (1, 100_000_001)] {
        let set = device.set_rate_limit(index, Some(RateLimit { rate, ..slow(0) }));
        assert!(matches!(set, Err(Error::Invalid(_))), "{index} {rate}");
    }
    assert_eq!(device.limit_sq(nic.sq.qpn, 1), Err(Error::NotFound));
    device.set_rate_limit(127, Some(slow(1))).expect("an entry");
    device.limit_sq(nic.sq.qpn, 127).expect("a limit");
    assert_eq!(device.rate_limit(nic.sq.qpn), Some(slow(1)));
    device.set_rate_limit(127, None).expect("no entry");
    assert_eq!(device.rate_limit(nic.sq.qpn), None);
}
