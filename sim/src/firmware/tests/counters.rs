//! Counters of ports and functions.

use mlx5_prm::cmd::alloc::QueryQCounterIn;
use mlx5_prm::cmd::port::{
    AccessRegIn, AccessRegMode, QueryVportCounterIn, RegisterId, TrafficCounterPair,
};
use mlx5_prm::cmd::{CommandInput, CommandStatus};
use mlx5_prm::fields::get_bits;

use super::Rig;
use crate::engine::{FramesTo, RetryCounts, Traffic};
use crate::{PortConfig, SimConfig};

fn frames(first: u64) -> FramesTo {
    let traffic = |n| Traffic { frames: first + n, bytes: 100 * (first + n) };
    FramesTo { one: traffic(1), group: traffic(2), all: traffic(3) }
}

/// A device that has counted.
fn rig() -> Rig {
    let rig = Rig::new(SimConfig::new().ports([PortConfig::ROCE]));
    let mut engine = rig.fabric.lock();
    let counts = &mut engine.device_mut(0).ethernet.counts;
    counts.sent_to = frames(10);
    counts.received_to = frames(20);
    counts.to_wire = frames(30);
    counts.from_wire = frames(40);
    (counts.oversize, counts.out_of_buffer, counts.not_sent) = (5, 6, 7);
    drop(engine);
    rig
}

fn group(rig: &mut Rig, group: u8) -> Vec<u64> {
    let mut input = AccessRegIn::request();
    input.set_op_mod(AccessRegMode::READ.0).set_register_id(RegisterId::PPCNT.0);
    let mut mailbox = input.as_bytes().to_vec();
    mailbox.extend([0, 1, 0, group]);
    mailbox.extend([0; 0x100 - 4]);
    let mut answer = vec![0; 16 + 0x100];
    assert_eq!(rig.raw(&mailbox, &mut answer), (CommandStatus::OK, 0));
    assert_eq!(answer[16..20], [0, 1, 0, group], "what was asked for");
    (0..13).map(|place| get_bits(&answer[16..], 64 + 64 * place, 64)).collect()
}

/// Octets of a port have check sequences, of four bytes each.
#[test]
fn a_port_counts_what_the_wire_carried() {
    let mut rig = rig();
    let (sent, received) = (31 + 32 + 33, 41 + 42 + 43);
    let ieee = [sent, received, 0, 0, 104 * sent, 104 * received, 32, 33, 42, 43, 0, 0, 5];
    assert_eq!(group(&mut rig, 0), ieee);
    let rfc = [104 * received, 41, 6, 5, 0, 104 * sent, 31, 7, 0, 42, 43, 32, 33];
    assert_eq!(group(&mut rig, 1), rfc);
    assert_eq!(group(&mut rig, 2), [0; 13]);
}

#[test]
fn a_counter_set_has_what_its_queue_pairs_sent_again() {
    let mut rig = Rig::new(SimConfig::new());
    let counted = RetryCounts {
        out_of_sequence: 1,
        duplicate_request: 2,
        rnr_nak_retry_err: 3,
        packet_seq_err: 4,
        local_ack_timeout_err: 5,
        req_transport_retries_exceeded: 6,
        req_rnr_retries_exceeded: 7,
    };
    for set in [0, 1] {
        *rig.fabric.lock().device_mut(0).retries.of(1, set) = counted;
    }
    let mut query = QueryQCounterIn::request();
    query.set_clear(true);
    let out = rig.run(&query);
    assert_eq!(
        [out.out_of_sequence(), out.duplicate_request(), out.rnr_nak_retry_err()],
        [1, 2, 3]
    );
    assert_eq!([out.packet_seq_err(), out.local_ack_timeout_err()], [4, 5]);
    assert_eq!(out.req_transport_retries_exceeded(), 6);
    assert_eq!(rig.run(&query).packet_seq_err(), 0, "it was cleared");
    assert_eq!(rig.fabric.lock().device(0).retry_counts_of_set(1), counted, "and no other");
}

#[test]
fn a_function_counts_what_it_sent_and_received() {
    let mut rig = rig();
    let out = rig.run(&QueryVportCounterIn::request());
    let of = |pair: &TrafficCounterPair| {
        [
            pair.received_packets(),
            pair.received_octets(),
            pair.transmitted_packets(),
            pair.transmitted_octets(),
        ]
    };
    assert_eq!(of(out.eth_unicast()), [21, 2100, 11, 1100]);
    assert_eq!(of(out.eth_multicast()), [22, 2200, 12, 1200]);
    assert_eq!(of(out.eth_broadcast()), [23, 2300, 13, 1300]);
    assert_eq!(of(out.ib_unicast()), [0; 4]);
    // `mlx5_ifc_query_vport_counter_out_bits`: where Linux reads how many frames it got for itself.
    assert_eq!(get_bits(out.as_bytes(), 0x480, 64), 21);
    let mut other = QueryVportCounterIn::request();
    other.set_other_vport(true);
    assert!(rig.try_run(&other).is_err());
}
