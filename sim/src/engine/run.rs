//! The engine's turns: chooses the queue pair that works next.

use crate::engine::state::qp::{Qp, QpState, Wait};
use crate::engine::{Device, DeviceId, Engine};

/// Virtual time that a unit of work takes, in nanoseconds.
const UNIT_NS: u64 = 100;
/// Turns between looks at doorbells and at watched queues while there is other work.
const LOOK_EVERY: u32 = 16;

impl Engine {
    /// Does one unit of work, at most one WQE, if there is any, and returns whether there was. A
    /// request that waits without limit for its peer to be ready is no work.
    pub fn step(&mut self) -> bool {
        let done = self.one_unit();
        if done && self.began.is_none() {
            self.now_ns += UNIT_NS;
            self.tell_time();
        }
        done
    }

    /// Works until `time_ns` of virtual time have passed.
    pub(crate) fn run_for(&mut self, time_ns: u64) {
        let end = self.now_ns.saturating_add(time_ns);
        self.horizon = Some(end);
        while self.now_ns < end && self.step() {}
        self.horizon = None;
        if self.began.is_none() {
            self.now_ns = self.now_ns.max(end);
            self.tell_time();
        }
    }

    fn one_unit(&mut self) -> bool {
        self.tell_time();
        let virtual_time = self.began.is_none();
        self.busy_turns += 1;
        let look = virtual_time || self.busy_turns >= LOOK_EVERY;
        if look {
            self.look();
        }
        self.expire(self.now_ns);
        self.arrive(self.now_ns);
        if self.run_ready() {
            return true;
        }
        if !look {
            self.look();
            if self.run_ready() {
                return true;
            }
        }
        // Nothing else is left to do, so no entry can join the runs: write them.
        if self.running().any(|device| device.write_runs(true)) {
            return true;
        }
        // Virtual time jumps to the next timer.
        let horizon = self.horizon.unwrap_or(u64::MAX);
        if virtual_time && let Some(time) = self.next_timer().filter(|time| *time <= horizon) {
            self.now_ns = self.now_ns.max(time);
            self.tell_time();
            if self.running().any(Device::report_moderated) {
                return true;
            }
            self.running().for_each(Device::give_up_copies);
            self.expire(self.now_ns);
            self.arrive(self.now_ns);
            // A timer counts as work even if its queue pair was destroyed or failed.
            self.run_ready();
            return true;
        }
        false
    }

    fn running(&mut self) -> impl Iterator<Item = &mut Device> {
        self.devices.iter_mut().filter(|device| device.runs())
    }

    /// The time of the first timer.
    fn next_timer(&mut self) -> Option<u64> {
        let retry = self.timers.first().map(|(time, ..)| *time);
        let arrival = self.next_arrival();
        let waits = self
            .running()
            .flat_map(|device| device.moderated.values().chain(device.held.values()).copied());
        waits.chain(retry).chain(arrival).min()
    }

    /// Looks for doorbells, and at queues that need no doorbell.
    fn look(&mut self) {
        self.busy_turns = 0;
        for device in &mut self.devices {
            if device.runs() {
                device.poll_uars();
                device.give_up_copies();
                device.write_runs(false);
                device.report_moderated();
            }
        }
        for id in 0..self.devices.len() {
            if !self.devices[id].runs() || self.devices[id].watched.is_empty() {
                continue;
            }
            for qpn in self.devices[id].watched.iter().copied().collect::<Vec<_>>() {
                self.look_at(id, qpn);
            }
        }
    }

    fn look_at(&mut self, id: DeviceId, qpn: u32) {
        let Some(qp) = self.devices[id].qps.get(qpn) else { return };
        match (qp.state, qp.wait) {
            (QpState::Error, _) => {
                if self.devices[id].own_receives(qpn) > 0 {
                    self.devices[id].wake(qpn);
                }
            }
            (_, Wait::Ready) => {
                let path = qp.attributes.path;
                let peer = self.origin(id, qpn, &path).and_then(|origin| self.peer(&origin));
                // If the peer no longer exists, the next try finds that out.
                let ready = peer.is_none_or(|(target, remote)| {
                    let device = &mut self.devices[target];
                    let waits = device.qps.get(remote).is_some_and(Qp::receives);
                    !waits || device.has_receive(remote) || device.may_match(remote)
                });
                if ready {
                    self.release(id, qpn);
                }
            }
            _ => {
                self.devices[id].watched.remove(&qpn);
            }
        }
    }

    /// Ends a queue pair's wait.
    fn release(&mut self, id: DeviceId, qpn: u32) {
        let device = &mut self.devices[id];
        if let Some(qp) = device.qps.get_mut(qpn) {
            qp.wait = Wait::No;
            if qp.state != QpState::Error {
                device.watched.remove(&qpn);
            }
        }
        device.wake(qpn);
    }

    /// Releases the queue pairs whose timers have expired.
    fn expire(&mut self, now: u64) {
        while let Some((time, id, qpn)) = self.timers.first().copied().filter(|t| t.0 <= now) {
            self.timers.pop_first();
            let waits = self.devices[id].qps.get(qpn).map(|qp| qp.wait);
            if waits == Some(Wait::Until(time)) {
                self.release(id, qpn);
            }
        }
    }

    /// Gives a turn to the first queue pair that has work, devices in rotation.
    fn run_ready(&mut self) -> bool {
        let count = self.devices.len();
        for id in (self.turn..count).chain(0..self.turn) {
            if !self.devices[id].runs() {
                continue;
            }
            while let Some(qpn) = self.devices[id].ready.pop_front() {
                if let Some(qp) = self.devices[id].qps.get_mut(qpn) {
                    qp.queued = false;
                }
                if self.run_qp(id, qpn) {
                    self.turn = (id + 1) % count;
                    return true;
                }
            }
        }
        false
    }

    /// Does one unit of a queue pair's work and returns whether there was any.
    fn run_qp(&mut self, id: DeviceId, qpn: u32) -> bool {
        let device = &mut self.devices[id];
        let Some(qp) = device.qps.get(qpn) else { return false };
        let done = match qp.state {
            QpState::Rts | QpState::SqDraining => {
                if device.reach_drain(qpn) {
                    return true;
                }
                let waits =
                    device.qps.get(qpn).is_none_or(|qp| !qp.has_requests() || qp.wait != Wait::No);
                let stops = device.is_at_drain(qpn);
                !waits && !stops && (self.rendezvous_one(id, qpn) || self.send_one(id, qpn))
            }
            QpState::Error | QpState::SqError => device.flush_one(qpn),
            _ => false,
        };
        if done {
            self.devices[id].wake(qpn);
        }
        done
    }
}
