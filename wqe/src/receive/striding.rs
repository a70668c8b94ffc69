//! Receive requests that packets share: each packet takes some strides of a request.
//!
//! The rules are those of two drivers that run on silicon: Linux' mlx5e
//! (`mlx5e_handle_rx_cqe_mpwrq`) and newer releases of DPDK's PMD (`mlx5_rx_burst_mprq`,
//! `mlx5_rx_err_handle`). Every completion names its request (`wqe_id`) and takes as many strides
//! of it as its byte count says, whether it is of a packet, of strides that were skipped, or of a
//! packet that failed. A request is done only when all its strides are taken: until then the device
//! may write to it.
//!
//! After any other error the queue receives nothing more. Both drivers then reset the queue, so
//! neither shows which request a flush names. Here each of these completions ends the oldest
//! request, and only the first must name it.

use super::records::ReceiveRecords;
use crate::sync::{AtomicBool, AtomicU32, Ordering::Relaxed};
use alloc::sync::Arc;
use mlx5_prm::ethernet::striding::{FILLER, STRIDES_MASK, STRIDES_SHIFT};

/// The records of a striding queue, as its poller sees them. The device fills one request after the
/// other, from the first stride to the last one.
///
/// Methods that handle a completion take the number of its request, or the request's place in the
/// ring. They return the request's identifier, and whether it was retired. `None` means that a
/// correct device never reports this completion.
#[derive(Debug)]
pub struct StridingRecords {
    records: Arc<ReceiveRecords>,
    /// Strides of a request.
    strides: u32,
    /// Poller: number of strides of the oldest request that completions took.
    taken: AtomicU32,
    /// Poller: the stride after the last packet of that request. No later packet begins before it,
    /// so that no stride is in two packets.
    after: AtomicU32,
    /// An error was reported after which the queue receives nothing more.
    stopped: AtomicBool,
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

    /// Starts over, after the queue was reset. No completion from before the reset can be polled
    /// any more.
    pub fn reset(&self) {
        self.set_taken(0, 0);
        self.stopped.store(false, Relaxed);
    }

    /// Whether the queue receives nothing more until it is reset.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Relaxed)
    }

    #[inline]
    fn set_taken(&self, taken: u32, after: u32) {
        self.taken.store(taken, Relaxed);
        self.after.store(after, Relaxed);
    }

    /// Whether `request` is the oldest one. A device may report its number or its place in the
    /// ring; debug builds of DPDK compare only the bits of the place.
    fn is_oldest(&self, request: u16, oldest: u16) -> bool {
        (request ^ oldest) & self.records.mask() == 0
    }

    /// Poller: returns the request that the next packet takes strides of. `None` if there is none,
    /// or if a packet lies after strides that no completion has taken yet.
    #[inline]
    pub fn left(&self) -> Option<LeftStrides> {
        let (request, wr_id) = self.records.oldest_request()?;
        let (taken, mask) = (self.taken.load(Relaxed), self.records.mask());
        let left = LeftStrides { wr_id, request, mask, taken, strides: self.strides };
        (self.after.load(Relaxed) <= taken).then_some(left)
    }

    /// Poller: notes that packets took the strides of the oldest request up to `until`, which may
    /// have been noted before, and retires the request with its last stride.
    #[inline]
    pub fn take(&self, until: u32) {
        if until == self.strides {
            self.pass(self.records.oldest());
        } else if until != self.taken.load(Relaxed) {
            self.set_taken(until, until);
        }
    }

    /// Ends the oldest request.
    #[inline]
    fn pass(&self, oldest: u16) {
        self.set_taken(0, 0);
        self.records.free_before(oldest.wrapping_add(1));
    }

    /// Poller: takes the strides of a packet, which starts at stride `first`, or strides that the
    /// device skipped. The byte count says which of the two, and their number.
    #[inline]
    pub fn arrive(&self, request: u16, first: u16, byte_count: u32) -> Option<(u64, bool)> {
        let packet = (byte_count & FILLER == 0).then_some(first);
        let count = byte_count >> STRIDES_SHIFT & STRIDES_MASK;
        if count == 0 { None } else { self.retire(request, count, packet) }
    }

    /// Poller: takes the strides of a packet that failed without stopping the queue. The completion
    /// does not say which strides they are.
    pub fn fail(&self, request: u16, byte_count: u32) -> Option<(u64, bool)> {
        self.retire(request, byte_count >> STRIDES_SHIFT & STRIDES_MASK, None)
    }

    /// Takes `count` strides of `request`, which must be the oldest one. A packet begins at stride
    /// `packet`; `None` if the strides hold no packet, or the place is not known.
    #[inline]
    fn retire(&self, request: u16, count: u32, packet: Option<u16>) -> Option<(u64, bool)> {
        let (oldest, wr_id) = self.records.oldest_request()?;
        let taken = self.taken.load(Relaxed) + count;
        if !self.is_oldest(request, oldest) || taken > self.strides {
            return None;
        }
        let mut after = self.after.load(Relaxed);
        if let Some(first) = packet.map(u32::from) {
            if first < after || first + count > self.strides {
                return None;
            }
            after = first + count;
        }
        let ended = taken == self.strides;
        if ended {
            self.pass(oldest)
        } else {
            self.set_taken(taken, after)
        }
        Some((wr_id, ended))
    }

    /// Poller: ends the oldest request, after an error that stops the queue. If the device also
    /// flushes the request whose error stopped the queue, there is one completion more than there
    /// are requests: it gets the identifier of the last one.
    #[cold]
    pub fn stop(&self, request: u16) -> Option<(u64, bool)> {
        let again = self.is_stopped();
        match self.records.oldest_request() {
            Some((oldest, wr_id)) if again || self.is_oldest(request, oldest) => {
                self.stopped.store(true, Relaxed);
                self.pass(oldest);
                Some((wr_id, true))
            }
            None if again => {
                let last = self.records.oldest().wrapping_sub(1);
                Some((self.records.wr_id(last).load(Relaxed), false))
            }
            _ => None,
        }
    }
}

/// The remaining strides of the oldest request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeftStrides {
    /// Identifier of the request.
    pub wr_id: u64,
    /// Number of the request. Its bits in `mask` are the request's place in the ring.
    pub request: u16,
    /// See `request`.
    pub mask: u16,
    /// The number of strides that were taken.
    pub taken: u32,
    /// The number of strides of the request.
    pub strides: u32,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn records(posted: u16) -> StridingRecords {
        let records = ReceiveRecords::new(4);
        for (number, place) in records.wr_ids.iter().enumerate() {
            place.store(100 + number as u64, Relaxed);
        }
        records.posted.store(posted, Relaxed);
        StridingRecords::new(Arc::new(records), 8)
    }

    /// The byte count of a packet of 60 bytes in `count` strides.
    fn bytes(count: u32) -> u32 {
        count << STRIDES_SHIFT | 60
    }

    /// A packet of the request at this place.
    fn take(records: &StridingRecords, request: u16, first: u16, count: u32) -> Option<u64> {
        records.arrive(request, first, bytes(count)).map(|(wr_id, _)| wr_id)
    }

    fn skip(records: &StridingRecords, first: u16, count: u32) -> Option<(u64, bool)> {
        records.arrive(0, first, FILLER | count << STRIDES_SHIFT)
    }

    fn fail(records: &StridingRecords, count: u32) -> Option<(u64, bool)> {
        records.fail(0, bytes(count))
    }

    #[test]
    fn a_request_ends_with_its_last_stride() {
        let records = records(2);
        assert_eq!(take(&records, 0, 0, 3), Some(100));
        assert_eq!(take(&records, 0, 3, 1), Some(100));
        assert_eq!(records.records().in_flight(), 2);
        assert_eq!(records.arrive(0, 4, bytes(4)), Some((100, true)));
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
        // The bit of a filler does not count as a part of the number.
        assert_eq!(skip(&records, 3, 5), Some((100, true)));
        assert_eq!(records.records().in_flight(), 1);
    }

    /// Requests complete in order, so the device is writing to the oldest one.
    #[test]
    fn strides_of_another_request_are_none() {
        let records = records(3);
        assert_eq!(take(&records, 0, 0, 3), Some(100));
        for request in [1, 2, 3, u16::MAX] {
            assert_eq!(records.arrive(request, 3, bytes(1)), None, "{request}");
            assert_eq!(records.fail(request, bytes(1)), None, "{request}");
            assert_eq!(records.stop(request), None, "{request}");
        }
        // The request's number, or its place.
        for request in [0, 4, 0xfffc] {
            let taken = records.left().unwrap().taken as u16;
            assert_eq!(take(&records, request, taken, 1), Some(100));
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
        // A packet that failed may have taken no strides.
        assert_eq!(fail(&records, 2), Some((100, false)));
        assert_eq!(fail(&records, 0), Some((100, false)));
        assert_eq!(fail(&records, 4), None, "more than are left");
        assert_eq!(records.left().map(|left| left.taken), Some(5));
        assert_eq!(take(&records, 0, 5, 1), Some(100));
        assert_eq!(fail(&records, 2), Some((100, true)));
        assert_eq!(records.records().in_flight(), 1);
    }

    #[test]
    fn a_request_of_a_queue_that_stopped_ends_with_all_of_its_strides() {
        let records = records(2);
        assert_eq!(take(&records, 0, 0, 3), Some(100));
        assert!(!records.is_stopped());
        assert_eq!(records.stop(0), Some((100, true)));
        assert!(records.is_stopped());
        assert_eq!(records.stop(1), Some((101, true)));
        assert_eq!(records.records().in_flight(), 0);
        records.reset();
        assert_eq!((records.stop(2), records.is_stopped()), (None, false));
    }

    #[test]
    fn flushes_end_the_oldest_request_whichever_they_name() {
        for named in [[0, 1, 2], [1, 2, 3], [0, 0, 0], [0x5555; 3]] {
            let records = records(3);
            assert_eq!(take(&records, 0, 0, 3), Some(100));
            assert_eq!(records.stop(0), Some((100, true)));
            let ended = named.map(|request| records.stop(request));
            let expected = [(101, true), (102, true), (102, false)].map(Some);
            assert_eq!(ended, expected, "{named:?}");
            assert_eq!(records.records().in_flight(), 0);
        }
    }

    /// mlx5e and DPDK count the strides of a filler and ignore its first stride.
    #[test]
    fn strides_that_were_skipped_count_wherever_they_are_said_to_be() {
        let records = records(2);
        assert_eq!(take(&records, 0, 0, 3), Some(100));
        assert_eq!(skip(&records, 0, 2), Some((100, false)));
        assert_eq!(take(&records, 0, 5, 1), Some(100));
        assert_eq!(skip(&records, u16::MAX, 1), Some((100, false)));
        assert_eq!((skip(&records, 6, 2), skip(&records, 6, 0)), (None, None));
        // For a poller that noted no packet there, a packet may begin in these strides.
        records.take(7);
        assert_eq!(take(&records, 0, 6, 1), Some(100));
        let records = self::records(2);
        assert_eq!(take(&records, 0, 0, 3), Some(100));
        assert_eq!(skip(&records, 0, 4), Some((100, false)));
        assert_eq!(skip(&records, 2, 1), Some((100, true)));
    }

    /// The device may still write to the strides that no completion took.
    #[test]
    fn a_request_with_a_gap_is_done_once_the_gap_is_taken_too() {
        let records = records(2);
        assert_eq!(take(&records, 0, 0, 1), Some(100));
        assert_eq!(take(&records, 0, 4, 4), Some(100));
        assert_eq!((records.records().in_flight(), records.left()), (2, None));
        assert_eq!((take(&records, 0, 1, 3), take(&records, 1, 0, 1)), (None, None));
        assert_eq!(skip(&records, 1, 2), Some((100, false)));
        assert_eq!(fail(&records, 1), Some((100, true)));
        assert_eq!(records.left().map(|left| left.wr_id), Some(101));
    }

    #[test]
    fn the_counter_of_requests_wraps() {
        let records = records(0);
        records.records.free_before(u16::MAX);
        records.records.posted.store(1, Relaxed);
        assert_eq!(take(&records, 3, 0, 8), Some(103));
        assert_eq!(take(&records, 0, 0, 8), Some(100));
        assert_eq!(take(&records, 1, 0, 8), None);
    }
}
