//! Receive requests that packets share: each packet takes some strides of one.

use super::queue::ReceiveRecords;
use crate::sync::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};
use alloc::sync::Arc;
use core::fmt;
use mlx5_prm::ethernet::striding::{STRIDES_MASK, STRIDES_SHIFT};

/// The records of a striding queue, as its poller sees them. The device fills one request after the
/// other, from its first stride to its last one.
pub struct StridingRecords {
    records: Arc<ReceiveRecords>,
    /// Strides of a request.
    strides: u32,
    /// Poller: the strides of the oldest request that were taken.
    taken: AtomicU32,
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

impl StridingRecords {
    /// Makes the poller's view of the records of a queue whose requests have `strides` strides.
    pub fn new(records: Arc<ReceiveRecords>, strides: u32) -> Self {
        Self { records, strides, taken: AtomicU32::new(0) }
    }

    /// The records.
    pub fn records(&self) -> &Arc<ReceiveRecords> {
        &self.records
    }

    /// Begins again with the queue, which was reset: no completion from before can be polled any more.
    pub fn reset(&self) {
        self.taken.store(0, Relaxed);
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

    /// Poller: returns the identifier of the oldest request, how many of its strides were taken and how many it
    /// has, if there is one.
    #[inline(always)]
    pub fn left(&self) -> Option<(u64, u32, u32)> {
        let (_, wr_id) = self.oldest()?;
        Some((wr_id, self.taken.load(Relaxed), self.strides))
    }

    /// Poller: notes that the strides of the oldest request before `until` were taken, and retires it with its
    /// last one.
    #[inline(always)]
    pub fn take(&self, until: u32) {
        if until == self.strides {
            self.pass(self.records.oldest.load(Relaxed) as u16);
        } else {
            self.taken.store(until, Relaxed);
        }
    }

    /// Ends the oldest request.
    #[inline(always)]
    fn pass(&self, oldest: u16) {
        self.taken.store(0, Relaxed);
        self.records.oldest.store(oldest.wrapping_add(1).into(), Release);
    }

    /// Poller: takes the strides that a CQE tells, from `first` on, and retires the request with its last
    /// one. Returns the request's identifier. `None` if a correct device never reports that: no request is
    /// outstanding, or the strides were taken before, or the request does not have them.
    #[inline]
    pub fn retire(&self, first: u16, byte_count: u32) -> Option<u64> {
        let taken = self.taken.load(Relaxed);
        let (first, count) = (u32::from(first), byte_count >> STRIDES_SHIFT & STRIDES_MASK);
        let end = first + count;
        if first < taken || count == 0 || end > self.strides {
            return None;
        }
        let (oldest, wr_id) = self.oldest()?;
        if end == self.strides {
            self.pass(oldest);
        } else {
            self.taken.store(end, Relaxed);
        }
        Some(wr_id)
    }

    /// Poller: retires the oldest request, which the device ended with an error.
    pub fn retire_failed(&self) -> Option<u64> {
        let (oldest, wr_id) = self.oldest()?;
        self.pass(oldest);
        Some(wr_id)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn records(posted: u16) -> StridingRecords {
        let records = ReceiveRecords::new(4);
        for (number, place) in records.wr_ids.iter().enumerate() {
            place.store(100 + number as u64, Relaxed);
        }
        records.posted.count.store(posted, Relaxed);
        StridingRecords::new(Arc::new(records), 8)
    }

    fn take(records: &StridingRecords, first: u16, count: u32) -> Option<u64> {
        records.retire(first, count << STRIDES_SHIFT | 60)
    }

    #[test]
    fn a_request_ends_with_its_last_stride() {
        let records = records(2);
        assert_eq!(take(&records, 0, 3), Some(100));
        assert_eq!(take(&records, 3, 1), Some(100));
        assert_eq!(records.records().in_flight(), 2);
        assert_eq!(take(&records, 4, 4), Some(100));
        assert_eq!(records.records().in_flight(), 1);
        assert_eq!(take(&records, 0, 8), Some(101));
        assert_eq!((records.records().in_flight(), take(&records, 0, 1)), (0, None));
    }

    #[test]
    fn strides_that_are_not_left_are_none() {
        let records = records(2);
        assert_eq!(take(&records, 0, 3), Some(100));
        // Taken before; of no request; none at all.
        for (first, count) in
            [(0, 1), (2, 1), (2, 6), (3, 6), (8, 1), (7, 2), (u16::MAX, 1), (3, 0)]
        {
            assert_eq!(take(&records, first, count), None, "{count} from {first} on");
        }
        // The bit of a filler is none of the number.
        assert_eq!(records.retire(3, 1 << 31 | 5 << STRIDES_SHIFT), Some(100));
        assert_eq!(records.records().in_flight(), 1);
    }

    #[test]
    fn what_a_poller_counted_is_taken_at_once() {
        let records = records(2);
        assert_eq!(records.left(), Some((100, 0, 8)));
        records.take(5);
        assert_eq!(records.left(), Some((100, 5, 8)));
        assert_eq!((take(&records, 4, 1), take(&records, 5, 1)), (None, Some(100)));
        records.take(8);
        assert_eq!((records.records().in_flight(), records.left()), (1, Some((101, 0, 8))));
        records.take(8);
        assert_eq!((records.records().in_flight(), records.left()), (0, None));
    }

    #[test]
    fn a_request_that_failed_ends_with_all_of_its_strides() {
        let records = records(2);
        assert_eq!(take(&records, 0, 3), Some(100));
        assert_eq!(records.retire_failed(), Some(100));
        assert_eq!(take(&records, 0, 3), Some(101));
        assert_eq!(records.retire_failed(), Some(101));
        assert_eq!(records.retire_failed(), None);
    }

    #[test]
    fn the_counter_of_requests_wraps() {
        let records = records(0);
        records.records.oldest.store(u16::MAX.into(), Relaxed);
        records.records.posted.count.store(1, Relaxed);
        assert_eq!(take(&records, 0, 8), Some(103));
        assert_eq!(take(&records, 0, 8), Some(100));
        assert_eq!(take(&records, 0, 8), None);
    }
}
