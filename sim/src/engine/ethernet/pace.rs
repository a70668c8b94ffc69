//! Send queues with a rate limit.
//!
//! A request waits until everything sent before it has passed at the rate of the queue. Then its
//! frames leave without gaps: the limit holds between requests.

use crate::engine::state::qp::Wait;
use crate::engine::{Device, DeviceId, Engine};

impl Engine {
    /// Whether the next request of a send queue is too early for the queue's rate; if so, the queue
    /// waits.
    pub(crate) fn is_too_early(&mut self, device: DeviceId, sqn: u32) -> bool {
        let this = &mut self.devices[device];
        let Some(time) = this.next_departure(sqn).filter(|time| *time > this.now_ns) else {
            return false;
        };
        if let Some(qp) = this.qps.get_mut(sqn) {
            qp.wait = Wait::Until(time);
        }
        self.timers.insert((time, device, sqn));
        true
    }
}

impl Device {
    /// Time at which a send queue with a limit may send the next request.
    pub(crate) fn next_departure(&self, sqn: u32) -> Option<u64> {
        let through = *self.ethernet.paced.get(&sqn)?;
        let limit = self.ethernet.rate_limit(sqn)?;
        Some(through.saturating_sub(limit.time_ns(limit.burst.into())))
    }

    /// Counts a frame that a send queue sends.
    pub(crate) fn pace(&mut self, sqn: u32, frame: &[u8]) {
        if let Some(limit) = self.ethernet.rate_limit(sqn) {
            let through = self.ethernet.paced.entry(sqn).or_default();
            let time = limit.time_ns(frame.len() as u64);
            *through = (*through).max(self.now_ns).saturating_add(time);
        }
    }

    /// Applies a new limit to a send queue, from now on.
    pub(super) fn pace_anew(&mut self, sqn: u32) {
        let paced = self.ethernet.paced.remove(&sqn).is_some();
        if let Some(qp) = self.qps.get_mut(sqn).filter(|qp| paced && qp.arrival.is_none()) {
            qp.wait = Wait::No;
            self.wake(sqn);
        }
    }
}
