//! Counters of retries and lost packets.

use crate::engine::state::counts::RetryCounts;
use crate::engine::{Device, DeviceId, Engine};

impl Device {
    /// Counts of the queue pairs of a port.
    #[must_use]
    pub fn retry_counts(&self, port: u8) -> RetryCounts {
        self.retries.sum(|of, _| of == port)
    }

    /// Counts of the queue pairs of a counter set.
    #[must_use]
    pub fn retry_counts_of_set(&self, set: u8) -> RetryCounts {
        self.retries.sum(|_, of| of == set)
    }

    /// Resets the counts of a counter set to zero.
    pub fn clear_retry_counts(&mut self, set: u8) {
        self.retries.clear(set);
    }

    /// Counts for a queue pair.
    pub(crate) fn count(&mut self, qpn: u32, count: impl FnOnce(&mut RetryCounts)) {
        if let Some(qp) = self.qps.get(qpn) {
            count(self.retries.of(qp.attributes.port, qp.attributes.counter_set));
        }
    }
}

impl Engine {
    /// Counts for a queue pair of a device.
    pub(crate) fn count(
        &mut self,
        device: DeviceId,
        qpn: u32,
        count: impl FnOnce(&mut RetryCounts),
    ) {
        self.devices[device].count(qpn, count);
    }
}
