//! Requests and packets that take time: computes their arrival and that of their acknowledgements.
//!
//! A request leaves when its port has sent everything before it, and is executed when it arrives.
//! Meanwhile the queue pair continues with the next one, so that requests follow each other as
//! closely as the port sends them. On a reliable transport the request completes when the
//! acknowledgement arrives. A lost acknowledgement is handled like a lost request, so a request
//! that was executed may fail at its sender.

use mlx5_prm::wqe::Opcode;

use crate::engine::route::Destination;
use crate::engine::send::ack_timer;
use crate::engine::state::codes;
use crate::engine::state::qp::{Transport, Wait};
use crate::engine::state::wire::Executed;
use crate::engine::wqe::Request;
use crate::engine::{Device, DeviceId, Engine};

/// Whether a request leaves its device.
fn leaves(opcode: Opcode) -> bool {
    !matches!(
        opcode,
        Opcode::Nop | Opcode::Umr | Opcode::SetPsv | Opcode::LocalInvalidate | Opcode::TagMatching
    )
}

impl Engine {
    /// The device and port of the peer of a connection, if it can be reached.
    fn other_side(&self, device: DeviceId, qpn: u32) -> Option<(DeviceId, u8)> {
        let path = self.devices[device].qps.get(qpn)?.attributes.path;
        let origin = self.origin(device, qpn, &path)?;
        match self.route(&origin)? {
            Destination::Port { device, port } => Some((device, port)),
            Destination::Group(_) => None,
        }
    }

    /// Whether a request is still in flight or has not left; then its queue pair waits for it to
    /// arrive.
    pub(crate) fn travels(&mut self, device: DeviceId, qpn: u32, request: &Request) -> bool {
        if !self.wire.takes_time() || !leaves(request.opcode) {
            return false;
        }
        let now = self.now_ns;
        let limited = self.devices[device].next_departure(qpn);
        let Some(qp) = self.devices[device].qps.get_mut(qpn) else { return false };
        if qp.arrival.take().is_some_and(|arrival| arrival <= now) {
            return false;
        }
        let (transport, port) = (qp.config.transport, qp.attributes.port);
        let alone = matches!(transport, Transport::Ud | Transport::Ethernet);
        // A request that is sent again reaches the port now.
        let again = qp.departed.replace(request.index) == Some(request.index);
        let given = if again { now } else { qp.posted_at(request.index).unwrap_or(now) };
        let given = given.max(limited.unwrap_or(0));
        let done = u64::from(qp.packets_done) * u64::from(qp.attributes.mtu);
        // The data of a read travels the other way.
        let bytes = match request.opcode {
            Opcode::RdmaRead => 0,
            _ => request.length.saturating_sub(done),
        };
        let other = if alone { None } else { self.other_side(device, qpn).map(|(other, _)| other) };
        if other == Some(device) {
            return false;
        }
        let left = self.wire.leaves((device, port), other, given, bytes);
        // A datagram's travel starts later, once its destination is known. A request to an
        // unreachable peer takes the fabric's usual time.
        let way = if alone { 0 } else { self.wire.way_ns(device, other.unwrap_or(device)) };
        let arrival = left.saturating_add(way);
        if arrival <= now {
            return false;
        }
        if let Some(qp) = self.devices[device].qps.get_mut(qpn) {
            qp.arrival = Some(arrival);
            qp.wait = Wait::Until(arrival);
        }
        self.timers.insert((arrival, device, qpn));
        true
    }

    /// Whether a packet between two devices is lost, by a fault of the sender or in flight.
    pub(crate) fn is_lost(&mut self, from: DeviceId, to: DeviceId) -> bool {
        self.loses_packet(from) || self.wire.loses(from, to)
    }

    /// Makes an executed request wait for its acknowledgement. Returns whether it does.
    pub(crate) fn awaits_answer(
        &mut self,
        device: DeviceId,
        qpn: u32,
        request: &Request,
        bytes: u64,
    ) -> bool {
        let Some(qp) = self.devices[device].qps.get(qpn) else { return false };
        let before = qp.executed.back().map(|executed| executed.due);
        let reliable = qp.config.transport.is_reliable();
        let travels = reliable && self.wire.takes_time() && leaves(request.opcode);
        let by = if travels { self.other_side(device, qpn) } else { None };
        let takes_time = |(by, _): &(DeviceId, u8)| {
            let ways = [(device, *by), (*by, device)];
            ways.iter().any(|(from, to)| self.wire.way(*from, *to).takes_time())
        };
        let by = by.filter(|by| by.0 != device && takes_time(by));
        if by.is_none() && before.is_none() {
            return false;
        }
        let mut due = self.now_ns;
        if let Some((by, port)) = by {
            // The peer's port sends the data of a read or an atomic.
            let left = self.wire.leaves((by, port), Some(device), self.now_ns, bytes);
            due = left.saturating_add(self.wire.way_ns(by, device));
        }
        // Completions stay in order.
        due = due.max(before.unwrap_or(0));
        let completes = request.completes();
        let this = &mut self.devices[device];
        let answer = if completes { std::mem::take(&mut this.answer) } else { Vec::new() };
        let Some(qp) = this.qps.get_mut(qpn) else { return false };
        qp.executed.push_back(Executed {
            opcode: request.opcode as u8,
            index: request.index,
            blocks: request.blocks,
            completes,
            bytes,
            answer,
            by: by.map(|(by, _)| by),
            due,
        });
        self.wire.answers.insert((due, device, qpn));
        true
    }

    /// Completes requests whose acknowledgement has arrived by now, and delivers packets that have
    /// arrived.
    pub(crate) fn arrive(&mut self, now: u64) {
        while let Some((target, land)) = self.wire.arrived(now) {
            land(&mut self.devices[target]);
        }
        while let Some(first) = self.next_answer().filter(|(due, ..)| *due <= now) {
            self.wire.answers.remove(&first);
            let (_, device, qpn) = first;
            self.take_answers(device, qpn, now);
        }
    }

    /// The acknowledgement that is back first, of a device that runs.
    fn next_answer(&self) -> Option<(u64, DeviceId, u32)> {
        self.wire.answers.iter().find(|(_, device, _)| self.devices[*device].runs()).copied()
    }

    /// Time of arrival of the next packet or acknowledgement.
    pub(crate) fn next_arrival(&self) -> Option<u64> {
        let answer = self.next_answer().map(|(due, ..)| due);
        self.wire.next_arrival().into_iter().chain(answer).min()
    }

    fn take_answers(&mut self, device: DeviceId, qpn: u32, now: u64) {
        loop {
            let Some(qp) = self.devices[device].qps.get(qpn) else { return };
            let Some(first) = qp.executed.front().filter(|first| first.due <= now) else { return };
            // The sender asks for it again, so both directions count.
            let lost = first
                .by
                .is_some_and(|by| self.wire.is_cut(device, by) || self.wire.loses(by, device));
            if lost {
                return self.ask_again(device, qpn, now);
            }
            let (again, by, remote) = (qp.answer_retries > 0, first.by, qp.attributes.remote_qpn);
            if let Some(by) = by.filter(|_| again) {
                self.count(by, remote, |counts| counts.duplicate_request += 1);
            }
            let this = &mut self.devices[device];
            if let Some(qp) = this.qps.get_mut(qpn) {
                qp.answer_retries = 0;
            }
            this.acknowledge_first(qpn);
            this.wake(qpn);
        }
    }

    /// Handles a lost acknowledgement: the request is sent again. It was executed already, so the
    /// peer only acknowledges it again.
    fn ask_again(&mut self, device: DeviceId, qpn: u32, now: u64) {
        let retries = self.devices[device].retries(qpn);
        let longest = self.devices[device].config.longest_timer_us * 1000;
        let Some(qp) = self.devices[device].qps.get_mut(qpn) else { return };
        let attributes = qp.attributes;
        let Some(first) = qp.executed.front_mut() else { return };
        if attributes.ack_timeout == 0 {
            first.due = u64::MAX;
            return;
        }
        if qp.answer_retries >= retries {
            let (opcode, index, blocks) = (first.opcode, first.index, first.blocks);
            qp.executed.clear();
            self.count(device, qpn, |counts| counts.req_transport_retries_exceeded += 1);
            return self.fail(device, qpn, opcode, index, blocks, codes::RETRY);
        }
        qp.answer_retries += 1;
        first.due = now + ack_timer(attributes.ack_timeout).min(longest);
        self.wire.answers.insert((first.due, device, qpn));
        self.count(device, qpn, |counts| counts.local_ack_timeout_err += 1);
    }

    /// Delivers an unacknowledged packet of `bytes` bytes, at once or later.
    pub(crate) fn deliver(
        &mut self,
        (from, port): (DeviceId, u8),
        target: DeviceId,
        bytes: u64,
        land: impl FnOnce(&mut Device) + Send + 'static,
    ) {
        if from == target || !self.wire.way(from, target).takes_time() {
            return land(&mut self.devices[target]);
        }
        let left = self.wire.leaves_again((from, port), target, self.now_ns, bytes);
        let arrival = left.saturating_add(self.wire.way_ns(from, target));
        self.wire.fly(arrival, (target, Box::new(land)));
    }
}

impl Device {
    /// Completes the first request that waits for its acknowledgement.
    fn acknowledge_first(&mut self, qpn: u32) {
        let Some(qp) = self.qps.get_mut(qpn) else { return };
        if let Some(Executed { opcode, index, completes, bytes, answer, .. }) =
            qp.executed.pop_front()
        {
            if completes {
                self.complete_request(qpn, opcode, index, bytes, &answer);
            }
            self.reach_drain(qpn);
        }
    }

    /// Completes all executed requests: the answer to a later request acknowledges those before it.
    pub(crate) fn acknowledge_all(&mut self, qpn: u32) {
        while self.qps.get(qpn).is_some_and(|qp| !qp.executed.is_empty()) {
            self.acknowledge_first(qpn);
        }
    }
}
