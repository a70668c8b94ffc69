//! The shared half of a receive queue.

use crate::sync::{
    AtomicBool, AtomicU16, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use alloc::boxed::Box;
use core::fmt;
use crossbeam_utils::CachePadded;
use mlx5_prm::wqe::MAX_RING_BLOCKS;

/// The shared half of a receive queue.
///
/// Requests may complete in any order, because a device that places data out of order consumes them
/// out of order. The device holds the requests from the oldest one without completion up to the
/// last posted one, except those marked in `ahead`. Room becomes free only when the oldest request
/// completes, because the ring has no free slots in the middle. Receives of packets complete
/// [in order](ReceiveRecords::set_in_order).
pub struct ReceiveRecords {
    /// Identifiers of the requests, by their slot in the ring.
    pub(super) wr_ids: Box<[AtomicU64]>,
    /// Owner: requests that were posted, free-running.
    pub(super) posted: AtomicU16,
    /// Owner: whether any place of the ring may have been written.
    pub(super) lapped: AtomicBool,
    /// No request completes before an older one.
    in_order: bool,
    /// Poller: one bit per slot of the ring, set if its request completed before an older one.
    ahead: Box<[AtomicU64]>,
    /// In a cache line of its own, because the owner reads it only once a lap.
    pub(super) completed: CachePadded<Completed>,
}

/// The poller's counters.
pub(super) struct Completed {
    /// The number of the oldest request without completion, free-running.
    pub(super) oldest: AtomicU16,
    /// The number of slots marked in `ahead`.
    waiting: AtomicU16,
}

impl fmt::Debug for ReceiveRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiveRecords")
            .field("requests", &self.wr_ids.len())
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}

impl ReceiveRecords {
    /// Creates the records of a ring of `requests` requests: a power of two up to 2¹⁵, or zero.
    ///
    /// # Panics
    /// If `requests` is not such a number.
    pub fn new(requests: u32) -> Self {
        assert!(requests == 0 || requests.is_power_of_two());
        assert!(requests as usize <= MAX_RING_BLOCKS);
        Self {
            wr_ids: (0..requests).map(|_| AtomicU64::new(0)).collect(),
            posted: AtomicU16::new(0),
            lapped: AtomicBool::new(false),
            in_order: false,
            ahead: (0..requests.div_ceil(u64::BITS)).map(|_| AtomicU64::new(0)).collect(),
            completed: CachePadded::new(Completed {
                oldest: AtomicU16::new(0),
                waiting: AtomicU16::new(0),
            }),
        }
    }

    /// Returns the records to their initial state, for a new queue with as many requests.
    pub fn renew(&mut self) {
        self.reset();
        self.lapped.store(false, Relaxed);
        self.in_order = false;
    }

    /// The number of requests in the ring.
    pub fn requests(&self) -> u32 {
        self.wr_ids.len() as u32
    }

    /// Accepts completions only in the order of the requests. The device fills receives of packets
    /// in that order: a completion that names another one names a buffer to which the device may
    /// still write.
    pub fn set_in_order(&mut self) {
        self.in_order = true;
    }

    /// Whether completions are accepted only in order.
    pub fn is_in_order(&self) -> bool {
        self.in_order
    }

    /// The bits of a request's number that are its slot. Meaningless for a ring of zero requests.
    #[inline]
    pub(super) fn mask(&self) -> u16 {
        (self.wr_ids.len() as u16).wrapping_sub(1)
    }

    #[inline]
    pub(super) fn wr_id(&self, counter: u16) -> &AtomicU64 {
        // SAFETY: `mask` keeps the slot below the length, which is a power of two. It is not zero,
        // because a request was posted.
        unsafe { self.wr_ids.get_unchecked(usize::from(counter & self.mask())) }
    }

    /// Owner: the number of the oldest request without completion, free-running.
    pub(super) fn oldest(&self) -> u16 {
        // The acquire pairs with the poller's release in `free_before`: the poller has read the
        // earlier records.
        self.completed.oldest.load(Acquire)
    }

    /// Returns the number of requests that were posted and whose completion was not polled.
    pub fn in_flight(&self) -> u32 {
        // Another thread may poll or reset the counters meanwhile.
        (self.wr_ids_in_flight().count() as u32).min(self.requests())
    }

    /// Returns the identifiers of these requests, in posting order.
    pub fn wr_ids_in_flight(&self) -> impl Iterator<Item = u64> + '_ {
        let oldest = self.oldest();
        let count = self.posted.load(Acquire).wrapping_sub(oldest);
        (0..count)
            .map(move |place| oldest.wrapping_add(place))
            .filter(|counter| !self.is_ahead(*counter))
            .map(|counter| self.wr_id(counter).load(Relaxed))
    }

    /// Poller: returns the number and the identifier of the oldest request, if there is one.
    #[inline]
    pub(super) fn oldest_request(&self) -> Option<(u16, u64)> {
        let oldest = self.completed.oldest.load(Relaxed);
        if self.posted.load(Acquire) == oldest {
            return None;
        }
        Some((oldest, self.wr_id(oldest).load(Relaxed)))
    }

    /// Poller: makes `oldest` the oldest request. The owner may reuse the places of the requests
    /// before it.
    #[inline]
    pub(super) fn free_before(&self, oldest: u16) {
        self.completed.oldest.store(oldest, Release);
    }

    /// Poller: [`ReceiveRecords::retire`], but `None` unless `counter` is the oldest request
    /// without completion and no request completed before an older one.
    #[inline]
    pub fn retire_next(&self, counter: u16) -> Option<u64> {
        let (oldest, wr_id) = self.oldest_request()?;
        if counter != oldest || self.completed.waiting.load(Relaxed) != 0 {
            return None;
        }
        self.free_before(oldest.wrapping_add(1));
        Some(wr_id)
    }

    /// Poller: retires the request in the slot of `counter`, which a completion names. `None` if
    /// the device does not hold it, which a correct device never reports: the slot is free, or its
    /// request has already completed. If requests complete
    /// [in order](ReceiveRecords::set_in_order), also `None` for any but the oldest one.
    pub fn retire(&self, counter: u16) -> Option<u64> {
        let Completed { oldest: next, waiting } = &*self.completed;
        let mut oldest = next.load(Relaxed);
        let outstanding = self.posted.load(Acquire).wrapping_sub(oldest);
        let younger = counter.wrapping_sub(oldest) & self.mask();
        if younger >= outstanding || self.in_order && younger != 0 || self.is_ahead(counter) {
            return None;
        }
        let wr_id = self.wr_id(counter).load(Relaxed);
        self.flip_ahead(counter);
        let mut count = waiting.load(Relaxed) + 1;
        while count != 0 && self.is_ahead(oldest) {
            self.flip_ahead(oldest);
            count -= 1;
            oldest = oldest.wrapping_add(1);
        }
        waiting.store(count, Relaxed);
        self.free_before(oldest);
        Some(wr_id)
    }

    /// Returns the word of `ahead` with the bit of request `counter`, and the bit.
    fn ahead(&self, counter: u16) -> (&AtomicU64, u64) {
        let slot = u32::from(counter & self.mask());
        // SAFETY: a request was posted, so the ring is not empty and `mask` keeps the slot inside
        // it. Each slot has a bit.
        let word = unsafe { self.ahead.get_unchecked((slot / u64::BITS) as usize) };
        (word, 1 << (slot % u64::BITS))
    }

    fn is_ahead(&self, counter: u16) -> bool {
        let (word, bit) = self.ahead(counter);
        word.load(Relaxed) & bit != 0
    }

    fn flip_ahead(&self, counter: u16) {
        let (word, bit) = self.ahead(counter);
        word.store(word.load(Relaxed) ^ bit, Relaxed);
    }

    /// Places at the start of the ring after which the owner never wrote. A request that was
    /// refused may have been written.
    pub fn written(&self) -> u32 {
        let lapped = self.lapped.load(Relaxed);
        let next = u32::from(self.posted.load(Relaxed)) + 1;
        if lapped { self.requests() } else { next.min(self.requests()) }
    }

    pub(super) fn reset(&self) {
        // `posted` no longer counts the places that were written before.
        self.lapped.store(true, Relaxed);
        self.posted.store(0, Relaxed);
        self.completed.oldest.store(0, Relaxed);
        self.completed.waiting.store(0, Relaxed);
        self.ahead.iter().for_each(|word| word.store(0, Relaxed));
    }
}
