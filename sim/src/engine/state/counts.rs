//! Counts of lost packets, and of receivers that were not ready.

use std::collections::BTreeMap;
use std::ops::AddAssign;

/// Counts of reliable queue pairs, under the names that Linux gives the counters of a port.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RetryCounts {
    /// Packets that came after a missing one.
    pub out_of_sequence: u32,
    /// Packets of requests that were executed before.
    pub duplicate_request: u32,
    /// Receiver-not-ready answers after which the request was sent again.
    pub rnr_nak_retry_err: u32,
    /// Missing-packet answers after which the packet was sent again.
    pub packet_seq_err: u32,
    /// Acknowledgements that did not come in time, after which the request was sent again.
    pub local_ack_timeout_err: u32,
    /// Requests that failed after the highest number of retries.
    pub req_transport_retries_exceeded: u32,
    /// Requests that failed because the receiver was not ready, after the highest number of
    /// retries.
    pub req_rnr_retries_exceeded: u32,
}

impl AddAssign for RetryCounts {
    fn add_assign(&mut self, more: Self) {
        let add = |to: &mut u32, more: u32| *to = to.wrapping_add(more);
        add(&mut self.out_of_sequence, more.out_of_sequence);
        add(&mut self.duplicate_request, more.duplicate_request);
        add(&mut self.rnr_nak_retry_err, more.rnr_nak_retry_err);
        add(&mut self.packet_seq_err, more.packet_seq_err);
        add(&mut self.local_ack_timeout_err, more.local_ack_timeout_err);
        add(&mut self.req_transport_retries_exceeded, more.req_transport_retries_exceeded);
        add(&mut self.req_rnr_retries_exceeded, more.req_rnr_retries_exceeded);
    }
}

/// The counts of a device, by port and by the counter set of the queue pair.
#[derive(Default, Debug)]
pub(crate) struct Retries(BTreeMap<(u8, u8), RetryCounts>);

impl Retries {
    /// The counts of a port and a set, for the caller to add to.
    pub(crate) fn of(&mut self, port: u8, set: u8) -> &mut RetryCounts {
        self.0.entry((port, set)).or_default()
    }

    /// The sum of the counts whose port and set satisfy `holds`.
    pub(crate) fn sum(&self, holds: impl Fn(u8, u8) -> bool) -> RetryCounts {
        let mut sum = RetryCounts::default();
        for ((port, set), counts) in &self.0 {
            if holds(*port, *set) {
                sum += *counts;
            }
        }
        sum
    }

    /// Resets the counts of a set to zero.
    pub(crate) fn clear(&mut self, set: u8) {
        self.0.retain(|(_, other), _| *other != set);
    }
}
