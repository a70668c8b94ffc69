//! Counters of the port and of the function.

use mlx5_prm::cmd::port::{
    QueryVnicEnvIn, QueryVnicEnvOut, QueryVportCounterIn, QueryVportCounterOut, TrafficCounterPair,
};
use mlx5_prm::ethernet::FRAME_CHECK;
use mlx5_prm::fields::{get_bits, set_bits};

use crate::engine::{Device, FrameCounts, Traffic};
use crate::firmware::{Answer, Failure, syndrome};

/// `mlx5_ifc_ppcnt_reg_bits`: the group of counters, and the start of the counters, of eight bytes
/// each.
const GROUP: (usize, usize) = (0x1a, 6);
const COUNTERS: usize = 0x40;
const COUNTER: usize = 64;
/// `MLX5_IEEE_802_3_COUNTERS_GROUP`.
const IEEE_802_3: u64 = 0;
/// `MLX5_RFC_2863_COUNTERS_GROUP`.
const RFC_2863: u64 = 1;

/// Bytes on the wire, which include check sequences.
fn octets(traffic: Traffic) -> u64 {
    traffic.bytes + traffic.frames * FRAME_CHECK as u64
}

/// The first counters of `mlx5_ifc_eth_802_3_cntrs_grp_data_layout_bits`.
fn ieee_802_3(counts: &FrameCounts) -> Vec<u64> {
    let (sent, received) = (counts.to_wire.sum(), counts.from_wire.sum());
    // On this wire no check sequence and no alignment is wrong.
    let (check, alignment) = (0, 0);
    // The device ignores the length in a header of IEEE 802.3.
    let (range, out_of_range) = (0, 0);
    vec![
        sent.frames,
        received.frames,
        check,
        alignment,
        octets(sent),
        octets(received),
        counts.to_wire.group.frames,
        counts.to_wire.all.frames,
        counts.from_wire.group.frames,
        counts.from_wire.all.frames,
        range,
        out_of_range,
        counts.oversize,
    ]
}

/// The counters of `mlx5_ifc_eth_2863_cntrs_grp_data_layout_bits`.
fn rfc_2863(counts: &FrameCounts) -> Vec<u64> {
    let unknown_protocols = 0;
    vec![
        octets(counts.from_wire.sum()),
        counts.from_wire.one.frames,
        counts.out_of_buffer,
        counts.oversize,
        unknown_protocols,
        octets(counts.to_wire.sum()),
        counts.to_wire.one.frames,
        counts.not_sent,
        0,
        counts.from_wire.group.frames,
        counts.from_wire.all.frames,
        counts.to_wire.group.frames,
        counts.to_wire.all.frames,
    ]
}

/// Fills in the register PPCNT. Other groups of counters are zero.
pub(super) fn of_port(device: &Device, register: &mut [u8]) {
    let counts = device.frame_counts();
    let counters = match get_bits(register, GROUP.0, GROUP.1) {
        IEEE_802_3 => ieee_802_3(&counts),
        RFC_2863 => rfc_2863(&counts),
        _ => Vec::new(),
    };
    for (place, counter) in counters.into_iter().enumerate() {
        set_bits(register, COUNTERS + place * COUNTER, COUNTER, counter);
    }
}

fn set(pair: &mut TrafficCounterPair, received: Traffic, sent: Traffic) {
    pair.set_received_packets(received.frames)
        .set_received_octets(received.bytes)
        .set_transmitted_packets(sent.frames)
        .set_transmitted_octets(sent.bytes);
}

/// QUERY_VPORT_COUNTER. RDMA is not counted.
pub(super) fn of_vport(
    device: &Device,
    input: &QueryVportCounterIn,
    out: &mut QueryVportCounterOut,
) -> Answer {
    // Drivers do not clear the counters here: they take differences.
    if input.other_vport() || input.clear() {
        return Err(Failure::param(syndrome::INVALID_VALUE));
    }
    let FrameCounts { received_to, sent_to, .. } = device.frame_counts();
    set(out.eth_broadcast_mut(), received_to.all, sent_to.all);
    set(out.eth_unicast_mut(), received_to.one, sent_to.one);
    set(out.eth_multicast_mut(), received_to.group, sent_to.group);
    Ok(())
}

/// QUERY_VNIC_ENV: frames that reached the function and matched no entry of a flow table.
pub(super) fn of_steering(
    device: &Device,
    input: &QueryVnicEnvIn,
    out: &mut QueryVnicEnvOut,
) -> Answer {
    if input.other_vport() {
        return Err(Failure::param(syndrome::NO_SWITCH));
    }
    out.vport_env_mut().set_nic_receive_steering_discard(device.frame_counts().missed);
    Ok(())
}
