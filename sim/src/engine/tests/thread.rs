//! A fabric with a thread of its own.

use mlx5_prm::cqe::CqeOpcode;
use mlx5_prm::wqe::Opcode;

use super::rig::{Rig, Wqe, data};
use crate::config::SimConfig;
use crate::engine::{Event, QpState, Transport};
use crate::fabric::Fabric;

#[test]
fn two_devices_play_ping_pong_by_themselves() {
    let rig = Rig::with_fabric(Fabric::new(SimConfig::new().devices(2)));
    let mut p = rig.pair_of(Transport::Rc, 0, 1);
    let (at_a, at_b) = (rig.region(0, 64), rig.region(1, 64));
    for round in 0..200u64 {
        p.b.post_receive(&[data(at_b.at(0), 64, at_b.key)]);
        p.a.post(&Wqe::new(Opcode::Send).inline(&round.to_be_bytes()));
        assert_eq!(p.cq_b.wait().opcode, CqeOpcode::ResponderSend);
        assert_eq!(at_b.memory.read(0, 8), round.to_be_bytes());
        p.a.post_receive(&[data(at_a.at(0), 64, at_a.key)]);
        p.b.post(&Wqe::new(Opcode::Send).data(at_b.at(0), 8, at_b.key));
        let mut received = false;
        for _ in 0..2 {
            received |= p.cq_a.wait().opcode == CqeOpcode::ResponderSend;
        }
        assert!(received);
        assert_eq!(p.cq_b.wait().opcode, CqeOpcode::Requester);
        assert_eq!(at_a.memory.read(0, 8), round.to_be_bytes());
    }
}

#[test]
fn commands_and_events_pass_while_the_thread_works() {
    let rig = Rig::with_fabric(Fabric::new(SimConfig::new()));
    let mut p = rig.pair(Transport::Rc);
    p.a.post_receive(&[]);
    rig.set_state(&p.a, QpState::Error);
    assert_eq!(p.cq_a.wait().opcode, CqeOpcode::ResponderError);
    rig.lock().device_mut(0).inject(crate::Fault::Fatal);
    assert_eq!(rig.next_event(0), Event::DeviceFatal);
}

#[test]
fn the_thread_ends_with_the_last_handle() {
    let fabric = Fabric::new(SimConfig::new());
    let other = fabric.clone();
    drop(fabric);
    assert!(!other.lock().devices().is_empty());
    // `drop` returns only after the thread has ended.
    drop(other);
}
