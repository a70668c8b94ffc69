//! Receiving frames: the path to a queue, the buffer, the completion.

use mlx5_prm::cmd::flow::{FlowTableType, MatchParameters};
use mlx5_prm::cmd::steering::self_lb_block;
use mlx5_prm::cqe::{Cqe, CqeOpcode, hds_ip_ext, l4_l3_hdr_type};
use mlx5_prm::ethernet::{
    FLOW_TAG_MASK, FRAME_CHECK, header_type, path_flags, striding, tunnel_flags,
};

use crate::engine::ethernet::hash::{self, Hashed};
use crate::engine::state::codes::{self, Code};
use crate::engine::state::ethernet::{Strides, TirConfig};
use crate::engine::state::mkey::Side;
use crate::engine::state::qp::QpState;
use crate::engine::state::receive::Receive;
use crate::engine::state::signature::crc::crc32;
use crate::engine::{Device, complete};
use crate::frame::headers::{Headers, Layers, Protocol, Version, is_multicast};
use crate::frame::{checksum, matching, tag};

/// The send queue of this device that sent a frame that loops back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender {
    pub(crate) sqn: u32,
    pub(crate) domain: Option<u32>,
}

/// Place of a packet in its receive WQE.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Offsets of its first byte and of the end of its room.
    start: u64,
    end: u64,
    /// Index in its completion: that of the WQE, or of its first stride.
    counter: u16,
    /// Strides that it takes; zero if WQEs have no strides.
    strides: u32,
    /// The WQE has no room for another packet and is retired.
    last: bool,
}

impl Strides {
    /// Bytes before a packet in its first stride.
    fn shift(self) -> usize {
        if self.shifted { 2 } else { 0 }
    }

    /// Strides that a packet takes; `None` if a WQE has fewer.
    fn needed(self, bytes: usize) -> Option<u32> {
        let needed = (bytes + self.shift()).div_ceil(1 << self.log_bytes).max(1);
        (needed <= 1 << self.log_count).then_some(needed as u32)
    }
}

/// Flags of TCP.
const ACK: u8 = 0x10;
/// ECN value of a datagram that met congestion.
const CONGESTION: u8 = 3;

/// A frame in delivery to queues.
struct Arrival<'a> {
    frame: &'a [u8],
    headers: Headers,
    sender: Option<Sender>,
}

impl Device {
    /// Takes a frame at a port, from the wire or from its own `sender`.
    pub(crate) fn take_frame(&mut self, port: u8, frame: &[u8], sender: Option<Sender>) {
        let Some(longest) = self.port(port).map(|port| port.frame as usize) else { return };
        let Some(headers) = Headers::of(frame) else { return };
        let counts = &mut self.ethernet.counts;
        if frame.len() + FRAME_CHECK > longest {
            counts.oversize += 1;
            return;
        }
        if sender.is_none() {
            counts.from_wire.count(frame);
            // It has reached the port but not the function, so neither flow tables nor sniffers see
            // it.
            if self.config.vport_filter && !self.ethernet.vport.is_for(frame) {
                counts.filtered += 1;
                return;
            }
        }
        counts.received += 1;
        counts.received_bytes += frame.len() as u64;
        counts.received_to.count(frame);
        let sqn = sender.map(|sender| sender.sqn);
        let packet = matching::parameters(frame, &headers, sqn);
        let arrival = Arrival { frame, headers, sender };
        // Sniffers get a copy regardless of the frame's fate.
        let mut tirs = self.sniffed(FlowTableType::SNIFFER_RX, &packet, frame);
        let bytes = frame.len() as u64;
        let way = self.ethernet.steering.follow(FlowTableType::NIC_RX.0 as u8, &packet, bytes);
        self.ethernet.counts.missed += u64::from(way.missed);
        self.ethernet.counts.dropped += u64::from(way.dropped);
        tirs.extend(way.tirs);
        for (tir, tag) in tirs {
            self.dispatch(tir, tag, &arrival);
        }
    }

    /// Gives sniffers a copy of a frame that leaves a port. It does not count as a loopback:
    /// interfaces that reject loopback frames get it, too.
    pub(crate) fn copy_sent(&mut self, frame: &[u8], sqn: u32) {
        if !self.sniffs(FlowTableType::SNIFFER_TX) {
            return;
        }
        let Some(headers) = Headers::of(frame) else { return };
        let packet = matching::parameters(frame, &headers, Some(sqn));
        let arrival = Arrival { frame, headers, sender: None };
        for (tir, tag) in self.sniffed(FlowTableType::SNIFFER_TX, &packet, frame) {
            self.dispatch(tir, tag, &arrival);
        }
    }

    fn sniffs(&self, kind: FlowTableType) -> bool {
        self.ethernet.steering.roots.contains_key(&(kind.0 as u8))
    }

    /// Transport interfaces that get a copy of a frame, each with its tag.
    fn sniffed(
        &mut self,
        kind: FlowTableType,
        packet: &MatchParameters,
        frame: &[u8],
    ) -> Vec<(u32, u32)> {
        if !self.sniffs(kind) {
            return Vec::new();
        }
        self.ethernet.steering.follow(kind.0 as u8, packet, frame.len() as u64).tirs
    }

    /// Delivers a frame from a transport interface to a queue.
    fn dispatch(&mut self, tir: u32, tag: u32, arrival: &Arrival<'_>) {
        let Some(tir) = self.ethernet.tirs.get(tir).copied() else { return };
        if let Some(sender) = arrival.sender
            && sender.domain == Some(tir.domain)
        {
            let kind = match is_multicast(arrival.frame) {
                true => self_lb_block::MULTICAST,
                false => self_lb_block::UNICAST,
            };
            if tir.own_frames & kind == 0 {
                return;
            }
        }
        let hashed = hash::of(&tir.hash, arrival.frame, &arrival.headers);
        let Some(rqn) = self.ethernet.queue(&tir, hashed.hash) else {
            self.ethernet.counts.not_ready += 1;
            return;
        };
        self.deliver(rqn, &tir, tag, hashed, arrival);
    }

    /// Puts a frame into the next buffer of a queue.
    fn deliver(
        &mut self,
        rqn: u32,
        tir: &TirConfig,
        flow_tag: u32,
        hashed: Hashed,
        arrival: &Arrival<'_>,
    ) {
        let config = self.ethernet.rqs.get(&rqn).copied().unwrap_or_default();
        if !self.qps.get(rqn).is_some_and(|rq| rq.state == QpState::Rtr) {
            self.ethernet.counts.not_ready += 1;
            return;
        }
        let mut bytes = arrival.frame.to_vec();
        let stripped = if config.strip_vlan { tag::strip(&mut bytes) } else { None };
        if config.scatter_fcs {
            bytes.extend(crc32(u32::MAX, arrival.frame).to_le_bytes());
        }
        let place = match config.strides {
            None => self.take_receive(rqn).map(|receive| {
                self.retire_receive(rqn, &receive);
                let (counter, end) = (receive.index, bytes.len() as u64);
                (receive, Place { start: 0, end, counter, strides: 0, last: true })
            }),
            Some(strides) => match strides.needed(bytes.len()) {
                Some(needed) => self.take_strides(rqn, strides, needed),
                // No WQE is large enough.
                None => return self.ethernet.counts.too_long += 1,
            },
        };
        let Some((receive, place)) = place else {
            self.ethernet.counts.out_of_buffer += 1;
            let count = self.ethernet.out_of_buffer.entry(config.counter_set).or_default();
            *count = count.wrapping_add(1);
            return;
        };
        if place.end > receive.capacity() {
            // The packet is lost together with its strides, and the next one takes those after
            // them: mlx5e and DPDK count the strides of such a completion, and leave the WQE to the
            // device until all are taken.
            self.ethernet.counts.too_long += 1;
            return self.receive_error(rqn, &receive, codes::LENGTH, place.strides);
        }
        let Some(user) = self.qps.get(rqn).map(|rq| rq.user(rqn, Side::Responder)) else { return };
        if let Err(error) = self.scatter(user, &receive.entries, place.start, &bytes) {
            // The queue fails, and is done with the WQE: those behind it are flushed.
            if !place.last {
                self.end_strides(rqn, &receive);
            }
            let code = Code::scatter(error);
            self.receive_error(rqn, &receive, code, place.strides);
            return self.fail_with(rqn, code, None);
        }
        self.ethernet.counts.delivered += 1;
        let mut cqe = self.entry(rqn, CqeOpcode::ResponderSend, 0, place.counter);
        if config.strides.is_some() {
            cqe.wqe_id.set(receive.index);
        }
        cqe.byte_count.set(place.strides << striding::STRIDES_SHIFT | bytes.len() as u32);
        cqe.sop_drop_qpn.set(flow_tag & FLOW_TAG_MASK);
        cqe.rss_hash_result.set(hashed.hash);
        cqe.rss_hash_type = hashed.kind;
        if let Some(control) = stripped {
            cqe.vlan_info.set(control);
            cqe.l4_l3_hdr_type |= l4_l3_hdr_type::VLAN_STRIPPED;
        }
        describe(&mut cqe, arrival, tir.tunneled);
        self.complete(rqn, true, complete::bytes(&cqe), &[], false);
    }

    /// Takes strides of a queue's first WQE, or of the next one if too few are left. The device
    /// then skips the rest of the first one, with a completion. `None` if there is no WQE.
    fn take_strides(
        &mut self,
        rqn: u32,
        strides: Strides,
        needed: u32,
    ) -> Option<(Receive, Place)> {
        let count = 1_u32 << strides.log_count;
        let mut receive = self.take_receive(rqn)?;
        let mut first = self.ethernet.taken.get(&rqn).copied().unwrap_or(0);
        if first + needed > count {
            self.end_strides(rqn, &receive);
            let mut cqe = self.entry(rqn, CqeOpcode::ResponderSend, 0, first as u16);
            cqe.wqe_id.set(receive.index);
            cqe.byte_count.set(striding::FILLER | (count - first) << striding::STRIDES_SHIFT);
            self.complete(rqn, true, complete::bytes(&cqe), &[], false);
            receive = self.take_receive(rqn)?;
            first = 0;
        }
        let end = first + needed;
        let last = end == count;
        if last {
            self.end_strides(rqn, &receive);
        } else {
            self.ethernet.taken.insert(rqn, end);
        }
        let bytes = |strides_before: u32| u64::from(strides_before) << strides.log_bytes;
        let start = bytes(first) + strides.shift() as u64;
        let place = Place { start, end: bytes(end), counter: first as u16, strides: needed, last };
        Some((receive, place))
    }

    /// Retires the first WQE of a queue, even if strides are left.
    fn end_strides(&mut self, rqn: u32, receive: &Receive) {
        self.ethernet.taken.remove(&rqn);
        self.retire_receive(rqn, receive);
    }

    fn receive_error(&mut self, rqn: u32, receive: &Receive, code: Code, strides: u32) {
        let opcode = CqeOpcode::ResponderError;
        self.complete_error_of(rqn, opcode, 0, receive.index, code, strides);
    }
}

/// Sets the fields of an entry that describe a frame's headers and its checksums.
fn describe(cqe: &mut Cqe, arrival: &Arrival<'_>, tunneled: bool) {
    let Arrival { frame, headers, .. } = arrival;
    let mut layers = &headers.outer;
    if let Some(inner) = headers.inner.as_ref().filter(|_| tunneled) {
        layers = inner;
        cqe.head[0] |= tunnel_flags::TUNNELED;
    }
    cqe.hds_ip_ext = hds_ip_ext::L2_OK;
    let verdict = checksum::verdict(frame, layers);
    if verdict.network {
        cqe.hds_ip_ext |= hds_ip_ext::L3_OK;
    }
    if verdict.transport {
        cqe.hds_ip_ext |= hds_ip_ext::L4_OK;
    }
    if let Some(network) = &layers.network {
        let kind = match network.version {
            Version::V4 => header_type::L3_IPV4,
            Version::V6 => header_type::L3_IPV6,
        };
        cqe.l4_l3_hdr_type |= kind << header_type::L3_SHIFT;
        cqe.l4_l3_hdr_type |= transport_kind(frame, layers) << header_type::L4_SHIFT;
    }
    if let Some(network) = &headers.outer.network {
        // Without `cqe_checksum_full` drivers add the bytes after the datagram themselves.
        cqe.check_sum.set(checksum::sum(&frame[network.start..network.payload.end]));
        let class = match network.version {
            Version::V4 => frame[network.start + 1],
            Version::V6 => frame[network.start + 1] >> 4,
        };
        if class & CONGESTION == CONGESTION {
            cqe.ml_path |= path_flags::CONGESTION;
        }
    }
}

fn transport_kind(frame: &[u8], layers: &Layers) -> u8 {
    let (Some(network), Some(transport)) = (&layers.network, layers.transport) else {
        return header_type::L4_NONE;
    };
    match transport.protocol {
        Protocol::Udp => header_type::L4_UDP,
        Protocol::Tcp if frame[transport.start + 13] & ACK == 0 => header_type::L4_TCP,
        Protocol::Tcp if transport.end == network.payload.end => header_type::L4_TCP_EMPTY_ACK,
        Protocol::Tcp => header_type::L4_TCP_ACK,
        Protocol::Esp => header_type::L4_NONE,
    }
}
