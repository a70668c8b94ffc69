//! The requester: executing the next send WQE of a queue pair.

use mlx5_prm::cqe::CqeOpcode;
use mlx5_prm::event::EventType;
use mlx5_prm::wqe::{AddressVector, EXTENDED_UD_AV, Opcode};

use crate::config::LinkLayer;
use crate::engine::complete;
use crate::engine::respond::{Answer, Nak, Packet};
use crate::engine::route::{Destination, Origin};
use crate::engine::state::codes::{self, Code};
use crate::engine::state::drain::{Drain, DrainAt};
use crate::engine::state::mkey::Side;
use crate::engine::state::qp::{AddressPath, MIN_MTU, Qp, QpState, Transport, Wait};
use crate::engine::wqe::Request;
use crate::engine::{Device, DeviceId, Engine};

/// The result of executing a request.
pub(crate) enum Outcome {
    /// It is done; a read or an atomic brought this number of bytes.
    Done(u64),
    /// It failed for good.
    Failed(Code),
    /// It goes on later.
    Later,
}

/// Nanoseconds for each code of the RNR timer (InfiniBand specification, table "Encoding for RNR
/// NAK Timer Field"), in units of 10 µs.
const RNR_TIMER: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];
/// Nanoseconds in a unit of [`RNR_TIMER`].
const RNR_UNIT: u64 = 10_000;
/// Nanoseconds in a unit of the acknowledgement timeout.
const ACK_UNIT: u64 = 4096;
/// Shorter acknowledgement timeouts act as this one.
const SHORTEST_TIMEOUT: u8 = 16;
/// The largest retry count.
const MOST_RETRIES: u8 = 7;
/// The retry count that has no end.
const INFINITE: u8 = 7;
/// Packets of a message that leave before the answer to one of them arrives.
const UNDER_WAY: u32 = 64;

impl Engine {
    fn qp(&self, device: DeviceId, qpn: u32) -> Option<&Qp> {
        self.devices[device].qps.get(qpn)
    }

    fn qp_mut(&mut self, device: DeviceId, qpn: u32) -> Option<&mut Qp> {
        self.devices[device].qps.get_mut(qpn)
    }

    /// Executes the next send WQE of a queue pair in RTS, as far as possible. Returns whether
    /// anything changed.
    pub(crate) fn send_one(&mut self, device: DeviceId, qpn: u32) -> bool {
        let request = match self.devices[device].fetch(qpn) {
            Ok(request) => request,
            Err(bad) => {
                let Some(qp) = self.qp(device, qpn) else { return false };
                let index = qp.sq_executed;
                self.fail(device, qpn, bad.opcode, index, bad.blocks, bad.code);
                return true;
            }
        };
        if self.is_too_early(device, qpn) || self.travels(device, qpn, &request) {
            return true;
        }
        self.devices[device].begin(qpn, &request);
        let before = self.qp(device, qpn).map(|qp| (qp.packets_done, qp.wait, qp.rnr_retries));
        let outcome = match self.forced_failure(device, qpn) {
            Some(failure) => failure,
            None => self.execute(device, qpn, &request),
        };
        match outcome {
            Outcome::Done(bytes) => self.succeed(device, qpn, &request, bytes),
            Outcome::Failed(code) => {
                let Request { opcode, index, blocks, .. } = request;
                self.fail(device, qpn, opcode as u8, index, blocks, code);
            }
            Outcome::Later => {
                let after =
                    self.qp(device, qpn).map(|qp| (qp.packets_done, qp.wait, qp.rnr_retries));
                return before != after;
            }
        }
        true
    }

    fn forced_failure(&mut self, device: DeviceId, qpn: u32) -> Option<Outcome> {
        let failures = &mut self.devices[device].faults.fail_requests;
        let at = failures.iter().position(|failure| failure.qpn.is_none_or(|n| n == qpn))?;
        let failure = failures.remove(at);
        Some(Outcome::Failed(Code::forced(failure.syndrome, failure.vendor)))
    }

    fn execute(&mut self, device: DeviceId, qpn: u32, request: &Request) -> Outcome {
        let longest = 1 << self.devices[device].config.limits.log_message;
        if request.length > longest {
            return Outcome::Failed(codes::LENGTH);
        }
        let Some(qp) = self.qp(device, qpn) else { return Outcome::Later };
        match (request.opcode, qp.config.transport) {
            (Opcode::Nop, _) => Outcome::Done(0),
            (Opcode::Umr, _) => registered(self.devices[device].umr(qpn, request)),
            (Opcode::SetPsv, _) => registered(self.devices[device].set_psv(qpn, request)),
            (Opcode::LocalInvalidate, _) => {
                registered(self.devices[device].invalidate_local(qpn, request))
            }
            (Opcode::TagMatching, _) => match self.devices[device].operate_on_tags(qpn, request) {
                Ok(()) => Outcome::Done(0),
                Err(code) => Outcome::Failed(code),
            },
            (_, Transport::Ethernet) => self.send_frames(device, qpn, request),
            (_, Transport::Ud) => self.send_datagram(device, qpn, request),
            (Opcode::RdmaRead, _) => self.read(device, qpn, request),
            _ if request.atomic.is_some() => self.atomic(device, qpn, request),
            (_, transport) => self.send_message(device, qpn, transport, request),
        }
    }

    /// Sends a SEND or an RDMA WRITE on a connection, packet by packet.
    pub(super) fn send_message(
        &mut self,
        device: DeviceId,
        qpn: u32,
        transport: Transport,
        request: &Request,
    ) -> Outcome {
        let Some(qp) = self.qp(device, qpn) else { return Outcome::Later };
        let (user, mtu, path) = (
            qp.user(qpn, Side::Requester),
            u64::from(qp.attributes.mtu.max(MIN_MTU)),
            qp.attributes.path,
        );
        let origin = self.origin(device, qpn, &path);
        let peer = origin.as_ref().and_then(|origin| self.peer(origin));
        let packets = request.length.div_ceil(mtu).max(1) as u32;
        let mut buffer = std::mem::take(&mut self.packet);
        loop {
            let Some(qp) = self.qp(device, qpn) else { return Outcome::Later };
            let (number, psn) = (qp.packets_done, qp.send_psn);
            if number == packets {
                break;
            }
            let offset = u64::from(number) * mtu;
            let length = (request.length - offset).min(mtu) as usize;
            buffer.resize(length, 0);
            if let Err(error) = self.devices[device].gather(user, request, offset, &mut buffer) {
                self.packet = buffer;
                return Outcome::Failed(Code::gather(error));
            }
            self.devices[device].corrupt_packet(&mut buffer);
            let lost = peer.is_some_and(|(target, _)| self.is_lost(device, target));
            let answer = match (&origin, peer) {
                (Some(origin), Some(peer)) if lost && transport.is_reliable() => {
                    self.show_gap(device, peer, transport.peer(), origin, packets - number - 1)
                }
                (Some(origin), Some((target, remote))) if !lost => {
                    let packet = Packet {
                        origin,
                        request,
                        psn,
                        first: number == 0,
                        last: number + 1 == packets,
                        offset,
                        data: &buffer,
                    };
                    self.devices[target].take_packet(remote, transport.peer(), &packet)
                }
                _ => Answer::Silence,
            };
            if transport.is_reliable() && answer != Answer::Ack {
                self.packet = buffer;
                return self.unanswered(device, qpn, answer);
            }
            self.advance(device, qpn, 1);
        }
        self.packet = buffer;
        Outcome::Done(0)
    }

    /// A packet was lost: sends the next ones of the message and returns the receiver's answer,
    /// which reports the gap if one of them arrives.
    fn show_gap(
        &mut self,
        device: DeviceId,
        (target, remote): (DeviceId, u32),
        listener: Transport,
        origin: &Origin,
        after: u32,
    ) -> Answer {
        let arrives = (0..after.min(UNDER_WAY)).any(|_| !self.is_lost(device, target));
        if !arrives || !self.devices[target].listens(remote, listener, origin) {
            return Answer::Silence;
        }
        self.count(target, remote, |counts| counts.out_of_sequence += 1);
        Answer::Gap
    }

    pub(super) fn read(&mut self, device: DeviceId, qpn: u32, request: &Request) -> Outcome {
        let (target, remote) = match self.ask(device, qpn) {
            Ok(peer) => peer,
            Err(outcome) => return outcome,
        };
        let Some(qp) = self.qp(device, qpn) else { return Outcome::Later };
        let mut user = qp.user(qpn, Side::Requester);
        user.pd = request.pd.unwrap_or(user.pd);
        let mtu = u64::from(qp.attributes.mtu.max(MIN_MTU));
        let entries = request.entries();
        let packets = request.length.div_ceil(mtu).max(1);
        let inline = self.answers_inline(device, qpn, request, request.length);
        let mut buffer = std::mem::take(&mut self.packet);
        let mut outcome = Outcome::Done(request.length);
        for number in 0..packets {
            let offset = number * mtu;
            buffer.resize((request.length - offset).min(mtu) as usize, 0);
            match self.devices[target].take_read(remote, request, offset, &mut buffer) {
                Answer::Ack => self.devices[target].corrupt_packet(&mut buffer),
                answer => {
                    outcome = self.unanswered(device, qpn, answer);
                    break;
                }
            }
            if inline {
                self.devices[device].answer.clone_from(&buffer);
            } else if let Err(error) = self.devices[device].scatter(user, &entries, offset, &buffer)
            {
                outcome = Outcome::Failed(Code::scatter(error));
                break;
            }
        }
        self.packet = buffer;
        if matches!(outcome, Outcome::Done(_)) {
            self.answered(device, qpn, target, remote, packets as u32);
        }
        outcome
    }

    fn atomic(&mut self, device: DeviceId, qpn: u32, request: &Request) -> Outcome {
        let (target, remote) = match self.ask(device, qpn) {
            Ok(peer) => peer,
            Err(outcome) => return outcome,
        };
        let old = match self.devices[target].take_atomic(remote, request) {
            Ok(old) => old,
            Err(answer) => return self.unanswered(device, qpn, answer),
        };
        self.answered(device, qpn, target, remote, 1);
        let Some(qp) = self.qp(device, qpn) else { return Outcome::Later };
        let user = qp.user(qpn, Side::Requester);
        if self.answers_inline(device, qpn, request, request.length) {
            self.devices[device].answer = old;
            return Outcome::Done(request.length);
        }
        let scattered = self.devices[device].scatter(user, &request.entries(), 0, &old);
        match scattered {
            Ok(()) => Outcome::Done(request.length),
            Err(error) => Outcome::Failed(Code::scatter(error)),
        }
    }

    /// Whether a response of `bytes` bytes goes into the completion.
    fn answers_inline(&self, device: DeviceId, qpn: u32, request: &Request, bytes: u64) -> bool {
        let limit = self.qp(device, qpn).map_or(0, |qp| qp.config.completion.inline_answers);
        request.completes() && bytes <= limit as u64
    }

    /// Sends a read or atomic request to the peer, which answers if it listens and nothing is lost.
    fn ask(&mut self, device: DeviceId, qpn: u32) -> Result<(DeviceId, u32), Outcome> {
        let Some(qp) = self.qp(device, qpn) else { return Err(Outcome::Later) };
        let (path, psn) = (qp.attributes.path, qp.send_psn);
        let listener = qp.config.transport.peer();
        if let Some(origin) = self.origin(device, qpn, &path)
            && let Some((target, remote)) = self.peer(&origin)
            && !self.is_lost(device, target)
            && self.devices[target].listens(remote, listener, &origin)
            && self.qp(target, remote).is_some_and(|qp| qp.receive_psn == psn)
        {
            return Ok((target, remote));
        }
        Err(self.unanswered(device, qpn, Answer::Silence))
    }

    /// Counts the packets of a response on both sides.
    fn answered(
        &mut self,
        device: DeviceId,
        qpn: u32,
        target: DeviceId,
        remote: u32,
        packets: u32,
    ) {
        self.advance(device, qpn, packets);
        if let Some(peer) = self.qp_mut(target, remote) {
            peer.receive_psn = (peer.receive_psn + packets) & 0xff_ffff;
        }
    }

    fn advance(&mut self, device: DeviceId, qpn: u32, packets: u32) {
        if let Some(qp) = self.qp_mut(device, qpn) {
            qp.packets_done += packets;
            qp.send_psn = (qp.send_psn + packets) & 0xff_ffff;
            qp.retries = 0;
            qp.rnr_retries = 0;
        }
    }

    /// Whether a fault loses the packet that is about to leave.
    pub(crate) fn loses_packet(&mut self, device: DeviceId) -> bool {
        let left = &mut self.devices[device].faults.drop_packets;
        let loses = *left > 0;
        *left = left.saturating_sub(1);
        loses
    }

    /// Handles a request of a reliable requester that was not acknowledged.
    fn unanswered(&mut self, device: DeviceId, qpn: u32, answer: Answer) -> Outcome {
        let now = self.now_ns;
        let retries = self.devices[device].retries(qpn);
        let longest = self.devices[device].config.longest_timer_us * 1000;
        let Some(qp) = self.qp_mut(device, qpn) else { return Outcome::Later };
        let attributes = qp.attributes;
        match answer {
            Answer::Nak(Nak::RemoteAccess) => Outcome::Failed(codes::ACCESS),
            Answer::Nak(Nak::InvalidRequest) => Outcome::Failed(codes::INVALID),
            Answer::Nak(Nak::RemoteOperation) => Outcome::Failed(codes::OPERATION),
            Answer::NotReady(_) if attributes.rnr_retry == INFINITE => {
                qp.wait = Wait::Ready;
                self.devices[device].watched.insert(qpn);
                self.count(device, qpn, |counts| counts.rnr_nak_retry_err += 1);
                Outcome::Later
            }
            Answer::NotReady(code) => {
                if qp.rnr_retries >= attributes.rnr_retry {
                    self.count(device, qpn, |counts| counts.req_rnr_retries_exceeded += 1);
                    return Outcome::Failed(codes::RNR);
                }
                qp.rnr_retries += 1;
                self.count(device, qpn, |counts| counts.rnr_nak_retry_err += 1);
                let timer = u64::from(RNR_TIMER[usize::from(code & 31)]) * RNR_UNIT;
                self.retry_at(device, qpn, now + timer.min(longest))
            }
            Answer::Ack | Answer::Silence | Answer::Gap => {
                let gap = answer == Answer::Gap;
                if attributes.ack_timeout == 0 && !gap {
                    qp.wait = Wait::Forever;
                    return Outcome::Later;
                }
                // Requests that were executed before it without acknowledgement are sent again with
                // it; then their retries count instead.
                if qp.executed.is_empty() {
                    if qp.retries >= retries {
                        self.count(device, qpn, |counts| {
                            counts.req_transport_retries_exceeded += 1
                        });
                        return Outcome::Failed(codes::RETRY);
                    }
                    qp.retries += 1;
                }
                if gap {
                    self.count(device, qpn, |counts| counts.packet_seq_err += 1);
                    return self.retry_at(device, qpn, now);
                }
                self.count(device, qpn, |counts| counts.local_ack_timeout_err += 1);
                let timer = ack_timer(attributes.ack_timeout);
                self.retry_at(device, qpn, now + timer.min(longest))
            }
        }
    }

    fn retry_at(&mut self, device: DeviceId, qpn: u32, time: u64) -> Outcome {
        if let Some(qp) = self.qp_mut(device, qpn) {
            qp.wait = Wait::Until(time);
            self.timers.insert((time, device, qpn));
        }
        Outcome::Later
    }

    fn send_datagram(&mut self, device: DeviceId, qpn: u32, request: &Request) -> Outcome {
        let vector = &request.vector;
        let Some(qp) = self.qp(device, qpn) else { return Outcome::Later };
        let Some(port) = self.devices[device].port(qp.attributes.port) else {
            return Outcome::Failed(codes::VECTOR);
        };
        let ethernet = port.link_layer == LinkLayer::Ethernet;
        // A compact vector has no room for what Ethernet needs.
        if ethernet && vector.dqp_dct.get() & EXTENDED_UD_AV == 0 {
            return Outcome::Failed(codes::VECTOR);
        }
        if request.length > u64::from(port.mtu) {
            return Outcome::Failed(codes::LENGTH);
        }
        let (user, quiet) = (qp.user(qpn, Side::Requester), qp.config.block_multicast_loopback);
        // A Q_Key with the high bit set is privileged: the queue pair's own replaces it.
        let qkey = match vector.qkey.get() {
            key if key >> 31 == 1 => qp.attributes.qkey,
            key => key,
        };
        let path = vector_path(vector, ethernet);
        let psn = qp.send_psn;
        let from = (device, qp.attributes.port);
        let mut buffer = std::mem::take(&mut self.packet);
        buffer.resize(request.length as usize, 0);
        if let Err(error) = self.devices[device].gather(user, request, 0, &mut buffer) {
            self.packet = buffer;
            return Outcome::Failed(Code::gather(error));
        }
        if let Some(origin) = self.origin(device, qpn, &path)
            && !self.loses_packet(device)
            && let Some(destination) = self.route(&origin)
        {
            let origin = Origin { qpn: self.devices[device].wire_number(qpn), ..origin };
            let header = super::header::global(&origin, request, buffer.len());
            for (target, remote) in self.receivers(destination, vector, &origin) {
                if quiet && (target, remote) == (device, qpn) || self.wire.loses(device, target) {
                    continue;
                }
                let (request, data) = (request.clone(), buffer.clone());
                self.deliver(from, target, buffer.len() as u64, move |target| {
                    let packet = Packet {
                        origin: &origin,
                        request: &request,
                        psn,
                        first: true,
                        last: true,
                        offset: 0,
                        data: &data,
                    };
                    target.take_datagram(remote, qkey, &header, &packet);
                });
            }
        }
        self.packet = buffer;
        self.advance(device, qpn, 1);
        Outcome::Done(0)
    }

    /// The queue pairs that a datagram reaches.
    fn receivers(
        &self,
        destination: Destination,
        vector: &AddressVector,
        origin: &Origin,
    ) -> Vec<(DeviceId, u32)> {
        let ethernet = origin.gid.is_some_and(|gid| gid.kind != super::GidType::Ib);
        let on_wire = |device: DeviceId, qpn: u32| {
            let this = &self.devices[device];
            let port = this.qps.get(qpn).and_then(|qp| this.port(qp.attributes.port));
            port.is_some_and(|port| {
                port.active && (port.link_layer == LinkLayer::Ethernet) == ethernet
            })
        };
        match destination {
            Destination::Port { device, port } => {
                let number = vector.dqp_dct.get() & 0xff_ffff;
                let target = self.devices[device].datagram_target(port, number);
                target.map(|qpn| (device, qpn)).into_iter().collect()
            }
            Destination::Group(gid) => self
                .devices
                .iter()
                .flat_map(|device| {
                    let members = device.groups.get(&gid).into_iter().flatten();
                    members.map(move |qpn| (device.id, *qpn))
                })
                .filter(|(device, qpn)| on_wire(*device, *qpn))
                .collect(),
        }
    }

    fn succeed(&mut self, device: DeviceId, qpn: u32, request: &Request, bytes: u64) {
        let this = &mut self.devices[device];
        if let Some(qp) = this.qps.get_mut(qpn) {
            // A queue pair that is connected to itself may have failed as a responder meanwhile;
            // its request was still answered.
            qp.sq_executed = request.index.wrapping_add(request.blocks);
            qp.packets_done = 0;
            if let Some(Drain { at: DrainAt::After(left), .. }) = &mut qp.drain {
                *left = left.saturating_sub(1);
            }
        }
        if self.awaits_answer(device, qpn, request, bytes) {
            return;
        }
        let this = &mut self.devices[device];
        if request.completes() {
            let answer = std::mem::take(&mut this.answer);
            this.complete_request(qpn, request.opcode as u8, request.index, bytes, &answer);
        }
        this.reach_drain(qpn);
    }

    pub(super) fn fail(
        &mut self,
        device: DeviceId,
        qpn: u32,
        opcode: u8,
        index: u16,
        blocks: u16,
        code: Code,
    ) {
        let this = &mut self.devices[device];
        this.acknowledge_all(qpn);
        let Some(qp) = this.qps.get_mut(qpn) else { return };
        qp.sq_executed = index.wrapping_add(blocks);
        let reliable = qp.config.transport.is_reliable();
        let runs = matches!(qp.state, QpState::Rts | QpState::SqDraining);
        this.complete_error(qpn, CqeOpcode::RequesterError, opcode, index, code);
        if reliable {
            let event = code.is_outside().then_some(EventType::WQ_ACCESS_ERROR);
            this.fail_with(qpn, code, event);
        } else if runs {
            this.fail_sq(qpn, code);
        }
    }
}

impl Device {
    /// The number of times that a queue pair sends a request again without acknowledgement. On
    /// Ethernet a count of 0 acts as the largest (`fr-counters` and its study, 20.40).
    pub(super) fn retries(&self, qpn: u32) -> u8 {
        let Some(qp) = self.qps.get(qpn) else { return 0 };
        let count = qp.attributes.retry_count;
        let port = self.port(qp.attributes.port);
        let ethernet = port.is_some_and(|port| port.link_layer == LinkLayer::Ethernet);
        if count == 0 && ethernet { MOST_RETRIES } else { count }
    }

    /// Completes a request that succeeded.
    pub(super) fn complete_request(
        &mut self,
        qpn: u32,
        opcode: u8,
        index: u16,
        bytes: u64,
        answer: &[u8],
    ) {
        let mut cqe = self.entry(qpn, CqeOpcode::Requester, opcode, index);
        cqe.byte_count.set(bytes as u32);
        self.complete(qpn, false, complete::bytes(&cqe), answer, false);
    }

    /// Flips a bit in the middle of a packet's data, if a fault says so.
    pub(crate) fn corrupt_packet(&mut self, data: &mut [u8]) {
        let middle = data.len() / 2;
        if self.faults.corrupt_packets > 0
            && let Some(byte) = data.get_mut(middle)
        {
            self.faults.corrupt_packets -= 1;
            *byte ^= 1;
        }
    }
}

/// The time until a missing acknowledgement is asked for, in nanoseconds, of a timeout that is not
/// 0: twice the timeout. Specifications allow up to four times.
pub(super) fn ack_timer(timeout: u8) -> u64 {
    (2 * ACK_UNIT) << (timeout & 31).max(SHORTEST_TIMEOUT)
}

/// The outcome of a request that changes a memory key.
fn registered(result: Result<(), Code>) -> Outcome {
    result.map_or_else(Outcome::Failed, |()| Outcome::Done(0))
}

/// The path that an address vector describes.
fn vector_path(vector: &AddressVector, ethernet: bool) -> AddressPath {
    let grh = vector.grh_gid_fl.get();
    AddressPath {
        grh: ethernet || grh & AddressVector::GRH != 0,
        dlid: if ethernet { 0 } else { vector.rlid.get() },
        dgid: vector.rgid,
        dmac: vector.rmac,
        sgid_index: (grh >> AddressVector::GID_INDEX_SHIFT) as u8,
        sl: vector.stat_rate_sl & 0xf,
        source_path_bits: vector.fl_mlid & 0x7f,
        traffic_class: vector.tclass,
        hop_limit: vector.hop_limit,
        flow_label: grh & AddressVector::FLOW_LABEL_MASK,
        udp_sport: if ethernet { vector.rlid.get() } else { 0 },
    }
}
