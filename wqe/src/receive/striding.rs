//! Receive requests that packets share: each packet takes some strides of one.
//!
//! The rules are those of two drivers that run on silicon: Linux' mlx5e (`mlx5e_handle_rx_cqe_mpwrq`) and newer
//! releases of DPDK's PMD (`mlx5_rx_burst_mprq`, `mlx5_rx_err_handle`). Every completion names its request (`wqe_id`)
//! and takes strides of it, as many as its byte count says: that of a packet, of strides that were skipped, or of a
//! packet that failed. The request is done once its strides are taken, and not before: until then the device goes on
//! writing there.
//!
//! After other errors the queue receives nothing more. Both drivers reset it then, so no driver shows which request the
//! flushes name. Here each of these completions ends the oldest request, and only the first has to name it.

use super::queue::ReceiveRecords;
use crate::sync::{
    AtomicBool, AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};
use alloc::sync::Arc;
use core::fmt;
use mlx5_prm::ethernet::striding::{FILLER, STRIDES_MASK, STRIDES_SHIFT};

/// The records of a striding queue, as its poller sees them. The device fills one request after the
/// other, from its first stride to its last one.
pub struct StridingRecords {
    records: Arc<ReceiveRecords>,
    /// Strides of a request.
    strides: u32,
    /// Poller: how many strides of the oldest request completions took.
    taken: AtomicU32,
    /// Poller: the stride of it after the last packet. No packet begins before that, so no stride is in two.
    after: AtomicU32,
    /// An error came after which the queue receives nothing more.
    stopped: AtomicBool,
}

impl fmt::Debug for StridingRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StridingRecords")
            .field("records", &self.records)
            .field("strides", &self.strides)
            .field("taken", &self.taken.load(Relaxed))
            .finish()
    }
}

/// What a completion says of strides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StridesOf {
    /// The request: its number, or its place in the ring.
    pub request: u16,
    /// The first stride. Meaningful for a packet only.
    pub first: u16,
    /// The field of the CQE.
    pub byte_count: u32,
    /// What the completion is of.
    pub outcome: StridesOutcome,
}

/// What a completion that takes strides is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StridesOutcome {
    /// A packet, or strides that were skipped, as the byte count says.
    Arrived,
    /// A packet that failed alone.
    Failed,
    /// An error after which the queue receives nothing more.
    Stopped,
}

impl StridingRecords {
    /// Makes the poller's view of the records of a queue whose requests have `strides` strides.
    pub fn new(records: Arc<ReceiveRecords>, strides: u32) -> Self {
        Self {
            records,
            strides,
            taken: AtomicU32::new(0),
            after: AtomicU32::new(0),
            stopped: AtomicBool::new(false),
        }
    }

    /// The records.
    pub fn records(&self) -> &Arc<ReceiveRecords> {
        &self.records
    }

    /// Begins again with the queue, which was reset: no completion from before can be polled any more.
    pub fn reset(&self) {
        self.begin();
        self.stopped.store(false, Relaxed);
    }

    /// Whether the queue receives nothing more until it is reset.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Relaxed)
    }

    /// Begins with the first stride of a request.
    #[inline(always)]
    fn begin(&self) {
        self.taken.store(0, Relaxed);
        self.after.store(0, Relaxed);
    }

    /// Poller: returns the oldest request, and its identifier, if there is one.
    #[inline(always)]
    fn oldest(&self) -> Option<(u16, u64)> {
        let oldest = self.records.oldest.load(Relaxed) as u16;
        if self.records.posted.count.load(Acquire) == oldest {
            return None;
        }
        Some((oldest, self.records.wr_id(oldest).load(Relaxed)))
    }

    /// The bits of a request's number that say its place in the ring. Devices say either, and debug
    /// builds of DPDK compare these.
    #[inline(always)]
    fn mask(&self) -> u16 {
        (self.records.requests() as u16).wrapping_sub(1)
    }

    /// Poller: returns what the next packet takes strides of, if there is a request, and if that packet lies
    /// right after the strides that were taken.
    #[inline(always)]
    pub fn left(&self) -> Option<LeftStrides> {
        let (oldest, wr_id) = self.oldest()?;
        let taken = self.taken.load(Relaxed);
        (self.after.load(Relaxed) <= taken).then_some(LeftStrides {
            wr_id,
            request: oldest,
            mask: self.mask(),
            taken,
            strides: self.strides,
        })
    }

    /// Poller: notes that packets took the strides of the oldest request before `until`, if those were not all
    /// taken, and retires it with its last one.
    #[inline(always)]
    pub fn take(&self, until: u32) {
        if until == self.strides {
            self.pass(self.records.oldest.load(Relaxed) as u16);
        } else if until != self.taken.load(Relaxed) {
            self.taken.store(until, Relaxed);
            self.after.store(until, Relaxed);
        }
    }

    /// Ends the oldest request.
    #[inline(always)]
    fn pass(&self, oldest: u16) {
        self.begin();
        self.records.oldest.store(oldest.wrapping_add(1).into(), Release);
    }

    /// Poller: takes the strides that a CQE names, and retires the request once all of its strides are taken, or the
    /// queue stopped. Returns the request's identifier, and whether it was retired. `None` if a correct
    /// device never reports that: the request is not the oldest one, or does not have the strides, or an earlier
    /// packet took them.
    #[inline]
    pub fn retire(&self, entry: StridesOf) -> Option<(u64, bool)> {
        let StridesOf { request, first, byte_count, outcome } = entry;
        if outcome == StridesOutcome::Stopped {
            return self.stop(request);
        }
        let (oldest, wr_id) = self.oldest()?;
        if (request ^ oldest) & self.mask() != 0 {
            return None;
        }
        let (taken, first) = (self.taken.load(Relaxed), u32::from(first));
        let count = byte_count >> STRIDES_SHIFT & STRIDES_MASK;
        let arrived = outcome == StridesOutcome::Arrived;
        if count > self.strides - taken || arrived && count == 0 {
            return None;
        }
        let is_packet = arrived && byte_count & FILLER == 0;
        if is_packet && (first < self.after.load(Relaxed) || first + count > self.strides) {
            return None;
        }
        if taken + count == self.strides {
            self.pass(oldest);
            return Some((wr_id, true));
        }
        self.taken.store(taken + count, Relaxed);
        if is_packet {
            self.after.store(first + count, Relaxed);
        }
        Some((wr_id, false))
    }

    /// As [`StridingRecords::retire`], of an error after which the queue receives nothing more. If the device also
    /// flushes the request whose error stopped the queue, one completion is left over: it is of no request, and gets
    /// the identifier of the last one.
    #[cold]
    fn stop(&self, request: u16) -> Option<(u64, bool)> {
        let again = self.is_stopped();
        match self.oldest() {
            Some((oldest, wr_id)) if again || (request ^ oldest) & self.mask() == 0 => {
                self.stopped.store(true, Relaxed);
                self.pass(oldest);
                Some((wr_id, true))
            }
            None if again => {
                let last = self.records.oldest.load(Relaxed) as u16;
                Some((self.records.wr_id(last.wrapping_sub(1)).load(Relaxed), false))
            }
            _ => None,
        }
    }
}

/// What is left of the oldest request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeftStrides {
    /// Its identifier.
    pub wr_id: u64,
    /// Its number, of which the bits of `mask` say its place in the ring.
    pub request: u16,
    /// See `request`.
    pub mask: u16,
    /// How many of its strides were taken.
    pub taken: u32,
    /// How many it has.
    pub strides: u32,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::StridesOutcome::{Arrived, Failed, Stopped};
    use super::*;

    fn records(posted: u16) -> StridingRecords {
        let records = ReceiveRecords::new(4);
        for (number, place) in records.wr_ids.iter().enumerate() {
            place.store(100 + number as u64, Relaxed);
        }
        records.posted.count.store(posted, Relaxed);
        StridingRecords::new(Arc::new(records), 8)
    }

    fn strides(request: u16, first: u16, count: u32) -> StridesOf {
        StridesOf { request, first, byte_count: count << STRIDES_SHIFT | 60, outcome: Arrived }
    }

    /// A packet of the request at this place.
    fn take(records: &StridingRecords, request: u16, first: u16, count: u32) -> Option<u64> {
        records.retire(strides(request, first, count)).map(|(wr_id, _)| wr_id)
    }

    fn skip(records: &StridingRecords, first: u16, count: u32) -> Option<(u64, bool)> {
        records.retire(StridesOf {
            byte_count: FILLER | count << STRIDES_SHIFT,
            ..strides(0, first, 0)
        })
    }

    fn fail(records: &StridingRecords, first: u16, count: u32) -> Option<(u64, bool)> {
        records.retire(StridesOf { outcome: Failed, ..strides(0, first, count) })
    }

    #[test]
    fn a_request_ends_with_its_last_stride() {
        let records = records(2);
        assert_eq!(take(&records, 0, 0, 3), Some(100));
        assert_eq!(take(&records, 0, 3, 1), Some(100));
        assert_eq!(records.records().in_flight(), 2);
        assert_eq!(records.retire(strides(0, 4, 4)), Some((100, true)));
        assert_eq!(records.records().in_flight(), 1);
        assert_eq!(take(&records, 1, 0, 8), Some(101));
        assert_eq!((records.records().in_flight(), take(&records, 2, 0, 1)), (0, None));
    }

    #[test]
    fn strides_that_are_not_left_are_none() {
        let records = records(2);
        assert_eq!(take(&records, 0, 0, 3), Some(100));
        // Taken before; of no request; none at all.
        for (first, count) in
            [(0, 1), (2, 1), (2, 6), (3, 6), (8, 1), (7, 2), (u16::MAX, 1), (3, 0), (3, 0x7fff)]
        {
            assert_eq!(take(&records, 0, first, count), None, "{count} from {first} on");
        }
        // The bit of a filler is none of the number.
        assert_eq!(skip(&records, 3, 5), Some((100, true)));
        assert_eq!(records.records().in_flight(), 1);
    }

    /// Of requests in order, the device is in the oldest one.
    #[test]
    fn strides_of_another_request_are_none() {
        for outcome in [Arrived, Failed, Stopped] {
            let records = records(3);
            assert_eq!(take(&records, 0, 0, 3), Some(100));
            for request in [1, 2, 3, u16::MAX] {
                let other = StridesOf { outcome, ..strides(request, 3, 1) };
                assert_eq!(records.retire(other), None, "{outcome:?} of {request}");
            }
            // Its number or its place.
            for request in [0, 4, 0xfffc] {
                assert_eq!(
                    take(&records, request, records.left().unwrap().taken as u16, 1),
                    Some(100)
                );
            }
        }
    }

    #[test]
    fn what_a_poller_counted_is_taken_at_once() {
        let records = records(2);
        let left = |request, taken| {
            let wr_id = 100 + u64::from(request);
            Some(LeftStrides { wr_id, request, mask: 3, taken, strides: 8 })
        };
        assert_eq!(records.left(), left(0, 0));
        records.take(5);
        assert_eq!(records.left(), left(0, 5));
        assert_eq!((take(&records, 0, 4, 1), take(&records, 0, 5, 1)), (None, Some(100)));
        records.take(8);
        assert_eq!((records.records().in_flight(), records.left()), (1, left(1, 0)));
        records.take(8);
        assert_eq!((records.records().in_flight(), records.left()), (0, None));
    }

    #[test]
    fn a_packet_that_failed_takes_its_strides_and_the_request_goes_on() {
        let records = records(2);
        assert_eq!(take(&records, 0, 0, 3), Some(100));
        // Its counter says nothing, and it may have taken none.
        assert_eq!(fail(&records, 0, 2), Some((100, false)));
        assert_eq!(fail(&records, 77, 0), Some((100, false)));
        assert_eq!(fail(&records, 5, 4), None, "more than are left");
        assert_eq!(records.left().map(|left| left.taken), Some(5));
        assert_eq!(take(&records, 0, 5, 1), Some(100));
        assert_eq!(fail(&records, 5, 2), Some((100, true)));
        assert_eq!(records.records().in_flight(), 1);
    }

    #[test]
    fn a_request_of_a_queue_that_stopped_ends_with_all_of_its_strides() {
        let records = records(2);
        assert_eq!(take(&records, 0, 0, 3), Some(100));
        let stop = |request| StridesOf { outcome: Stopped, ..strides(request, 0, 0) };
        assert!(!records.is_stopped());
        assert_eq!(records.retire(stop(0)), Some((100, true)));
        assert!(records.is_stopped());
        assert_eq!(records.retire(stop(1)), Some((101, true)));
        assert_eq!(records.records().in_flight(), 0);
        records.reset();
        assert_eq!((records.retire(stop(2)), records.is_stopped()), (None, false));
    }

    #[test]
    fn flushes_end_the_oldest_request_whichever_they_name() {
        for named in [[0, 1, 2], [1, 2, 3], [0, 0, 0], [0x5555; 3]] {
            let records = records(3);
            assert_eq!(take(&records, 0, 0, 3), Some(100));
            let stop = |request| StridesOf { outcome: Stopped, ..strides(request, 0, 0) };
            assert_eq!(records.retire(stop(0)), Some((100, true)));
            let ended = named.map(|request| records.retire(stop(request)));
            let expected = [(101, true), (102, true), (102, false)].map(Some);
            assert_eq!(ended, expected, "{named:?}");
            assert_eq!(records.records().in_flight(), 0);
        }
    }

    /// mlx5e and DPDK count the strides of a filler and do not look where it says that they are.
    #[test]
    fn strides_that_were_skipped_count_wherever_they_are_said_to_be() {
        let records = records(2);
        assert_eq!(take(&records, 0, 0, 3), Some(100));
        assert_eq!(skip(&records, 0, 2), Some((100, false)));
        assert_eq!(take(&records, 0, 5, 1), Some(100));
        assert_eq!(skip(&records, u16::MAX, 1), Some((100, false)));
        assert_eq!((skip(&records, 6, 2), skip(&records, 6, 0)), (None, None));
        // No packet lies in them for a poller that counted none.
        records.take(7);
        assert_eq!(take(&records, 0, 6, 1), Some(100));
        let records = self::records(2);
        assert_eq!(take(&records, 0, 0, 3), Some(100));
        assert_eq!(skip(&records, 0, 4), Some((100, false)));
        assert_eq!(skip(&records, 2, 1), Some((100, true)));
    }

    /// The device may go on in what no completion took.
    #[test]
    fn a_request_with_a_gap_is_done_once_the_gap_is_taken_too() {
        let records = records(2);
        assert_eq!(take(&records, 0, 0, 1), Some(100));
        assert_eq!(take(&records, 0, 4, 4), Some(100));
        assert_eq!((records.records().in_flight(), records.left()), (2, None));
        assert_eq!((take(&records, 0, 1, 3), take(&records, 1, 0, 1)), (None, None));
        assert_eq!(skip(&records, 1, 2), Some((100, false)));
        assert_eq!(fail(&records, 1, 1), Some((100, true)));
        assert_eq!(records.left().map(|left| left.wr_id), Some(101));
    }

    #[test]
    fn the_counter_of_requests_wraps() {
        let records = records(0);
        records.records.oldest.store(u16::MAX.into(), Relaxed);
        records.records.posted.count.store(1, Relaxed);
        assert_eq!(take(&records, 3, 0, 8), Some(103));
        assert_eq!(take(&records, 0, 0, 8), Some(100));
        assert_eq!(take(&records, 1, 0, 8), None);
    }
}
