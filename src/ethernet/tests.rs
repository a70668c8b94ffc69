//! Queues of packets whose completion queues fail.

use super::*;
use mlx5_sim::{Fault, PortConfig, SimConfig, Simulator};
use std::collections::BTreeSet;

#[test]
fn a_restart_that_fails_twice_gives_each_buffer_back_once() {
    let simulator = Simulator::new(SimConfig::new().ports([PortConfig::ROCE]).raw_packets(true));
    let context = crate::devices_on(simulator.kernel()).unwrap().remove(0).open().unwrap();
    let builder = context.create_ethernet_queue(1).receives(8).frames(4).sends(8).burst(8);
    let mut queue = builder.build().unwrap();
    let with_device = queue.qp().caps().max_recv_wr - queue.qp().free_receives();
    let all = queue.free_buffers() + with_device as usize;
    let mut frames: Vec<Frame> = (0..4).map(|_| queue.frame().unwrap()).collect();
    simulator.inject(0, Fault::OverrunCq(queue.recv_cq.cqn()));
    let events = context.async_events();
    assert!(events.next().unwrap().is_some(), "the device tells of the overrun");
    for _ in 0..2 {
        queue.restart().expect_err("a completion queue that has overrun");
    }
    let mut seen: BTreeSet<*const u8> = frames.iter().map(|frame| frame.as_ptr()).collect();
    while let Some(frame) = queue.frame() {
        assert!(seen.insert(frame.as_ptr()), "a buffer was given out twice");
        frames.push(frame);
    }
    assert_eq!(frames.len(), all);
}
