//! The owner half of the receive queue of a queue pair.

use crate::gate::Gate;
use crate::receive::post::{FULL, Post, ReceiveWr, is_usual, write_fast, write_scatter};
use crate::receive::records::ReceiveRecords;
use crate::request::batch_error::ListError;
use crate::request::error::PostError;
use crate::request::sge::Sge;
use crate::sync::{
    AtomicU64,
    Ordering::{Relaxed, Release},
};
use alloc::sync::Arc;
use core::borrow::Borrow;
use core::fmt;
use core::ptr::NonNull;
use core::slice;
use mlx5_doorbell::{QueuePairRecord, barrier};
use mlx5_prm::wqe::{BLOCK, MAX_RING_BLOCKS, UNIT};

/// The maximum size of a receive WQE in bytes.
const MAX_STRIDE: u32 = 1 << 12;

/// Sizes of a receive queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceiveLayout {
    /// Requests in the ring: a power of two, or zero.
    pub requests: u32,
    /// Maximum number of SGEs in a request.
    pub max_sge: u32,
    /// Size of a WQE in bytes, a power of two.
    pub stride: u32,
}

impl ReceiveLayout {
    /// Sizes a queue for `requests` requests of `sges` SGEs each, rounded up to what the ring has
    /// room for. A WQE has `head` bytes before its SGEs. `None` if the ring would exceed its
    /// maximum size.
    pub fn new(requests: u32, sges: u32, head: u32) -> Option<Self> {
        if requests == 0 {
            return Some(Self { requests: 0, max_sge: 0, stride: UNIT as u32 });
        }
        let requests = requests.checked_next_power_of_two()?;
        let bytes = sges.max(1).checked_mul(UNIT as u32)?.checked_add(head)?;
        let stride = bytes.checked_next_power_of_two()?;
        // The send queue follows in the same buffer, aligned to a block.
        let requests = requests.max(BLOCK as u32 / stride);
        if requests as usize > MAX_RING_BLOCKS || stride > MAX_STRIDE {
            return None;
        }
        Some(Self { requests, max_sge: (stride - head) / UNIT as u32, stride })
    }

    /// The size of the ring in bytes.
    pub const fn bytes(&self) -> usize {
        self.requests as usize * self.stride as usize
    }
}

/// The owner half of a receive queue.
// In the order of use on the fast path.
#[repr(C)]
pub struct ReceiveQueue {
    gate: Gate,
    /// The scatter entries of the first request of the ring.
    ring: NonNull<u8>,
    layout: ReceiveLayout,
    /// Index of the place that the next request fills. The places from here up to `end` are known
    /// to be free.
    next: u32,
    /// At most the number of places in the ring.
    end: u32,
    /// With `next`, the number of requests posted so far, free-running.
    base: u32,
    record: QueuePairRecord,
    /// The shared half.
    records: Arc<ReceiveRecords>,
}

impl fmt::Debug for ReceiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiveQueue")
            .field("gate", &self.gate)
            .field("requests", &self.layout.requests)
            .field("in_flight", &self.records.in_flight())
            .finish_non_exhaustive()
    }
}

// SAFETY: the ring is reached only through this value.
unsafe impl Send for ReceiveQueue {}

/// A place of the ring.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// Its scatter entries.
    slot: NonNull<u8>,
    /// The identifiers of all requests.
    wr_ids: NonNull<AtomicU64>,
    index: usize,
    /// The places from `index` up to this one are known to be free.
    end: usize,
}

impl Place {
    /// Records the request that was written here. Returns the next place, `stride` bytes further.
    ///
    /// # Safety
    /// The place is free.
    #[inline(always)]
    unsafe fn record(self, wr_id: u64, stride: u32) -> Self {
        // SAFETY: the caller promises that the place is free, so it is in the ring, and each place
        // of the ring has a record. The next place is at most the end of the ring.
        let slot = unsafe {
            self.wr_ids.add(self.index).as_ref().store(wr_id, Relaxed);
            self.slot.byte_add(stride as usize)
        };
        Self { slot, index: self.index + 1, ..self }
    }
}

impl Post for ReceiveQueue {
    type Place = Place;

    #[inline]
    fn gate(&self) -> &Gate {
        &self.gate
    }

    #[inline(always)]
    fn place(&self) -> Place {
        let (index, end) = (self.next as usize, self.end as usize);
        // SAFETY: `next` is at most the number of requests.
        let slot = unsafe { self.ring.byte_add(index * self.layout.stride as usize) };
        let wr_ids = NonNull::from(&*self.records.wr_ids).cast();
        Place { slot, wr_ids, index, end }
    }

    #[inline(always)]
    fn add_usual(&mut self, at: Place, wr_id: u64, sge: &Sge) -> Option<Place> {
        if !is_usual(sge) || at.index == at.end {
            return None;
        }
        // SAFETY: `at.index` is not `at.end`, checked above, so the place is free. It has room for
        // `max_sge` SGEs.
        unsafe {
            write_fast(at.slot, sge, self.layout.max_sge);
            Some(at.record(wr_id, self.layout.stride))
        }
    }

    #[cold]
    #[inline(never)]
    fn add_any(&mut self, at: &mut Place, wr_id: u64, sges: &[Sge]) -> Result<(), PostError> {
        if at.index == at.end {
            self.find_room()?;
            *at = self.place();
        }
        // SAFETY: the place is free: it was before `at.end`, or `find_room` found it. It has room
        // for `max_sge` SGEs.
        unsafe {
            write_scatter(at.slot, sges, self.layout.max_sge)?;
            *at = at.record(wr_id, self.layout.stride);
        }
        Ok(())
    }

    #[inline(always)]
    fn publish(&mut self, at: Place) {
        self.next = at.index as u32;
        let posted = self.posted();
        self.records.posted.store(posted, Release);
        barrier::to_device();
        self.record.set_receive(posted);
    }
}

impl ReceiveQueue {
    /// Creates a receive queue.
    ///
    /// # Safety
    /// `ring` points to the scatter entries of the first of `layout.requests` requests, aligned to
    /// 16; those of each next request are `layout.stride` bytes further. The `max_sge` entries of
    /// each request are valid for as long as the value lives, and nothing but the device and this
    /// value reads or writes them. `records` was created for this many requests and belongs to this
    /// queue alone.
    pub unsafe fn new(
        ring: NonNull<u8>,
        layout: ReceiveLayout,
        gate: Gate,
        record: QueuePairRecord,
        records: Arc<ReceiveRecords>,
    ) -> Self {
        Self { gate, ring, layout, next: 0, end: layout.requests, base: 0, record, records }
    }

    /// Posts a list of receive requests (`ibv_post_recv`). Requests before the first bad one are
    /// posted. The error has the index of the bad request and what is wrong with it.
    #[inline]
    pub fn post_recv(&mut self, list: &[ReceiveWr<'_>]) -> Result<(), ListError> {
        self.post_list(list)
    }

    /// Posts one receive request with one buffer.
    #[inline]
    pub fn recv(&mut self, wr_id: u64, sge: Sge) -> Result<(), PostError> {
        Post::recv(self, wr_id, sge)
    }

    /// Posts the receive requests that `requests` yields and returns their number. Requests before
    /// the first bad one are posted, also if the iterator panics; after a bad one the iterator is
    /// not called again. The error has the index of the bad request and what is wrong with it.
    #[inline]
    pub fn post_recv_iter<'a, W: Borrow<ReceiveWr<'a>>>(
        &mut self,
        requests: impl IntoIterator<Item = W>,
    ) -> Result<usize, ListError> {
        let requests = requests.into_iter().map(|wr| *wr.borrow());
        self.post_all(requests, |wr| (wr.wr_id, wr.sges))
    }

    /// Posts one receive request for each identifier and buffer that `requests` yields, and returns
    /// their number: as [`ReceiveQueue::post_recv_iter`] for requests with one buffer.
    #[inline]
    pub fn recv_each(
        &mut self,
        requests: impl IntoIterator<Item = (u64, Sge)>,
    ) -> Result<usize, ListError> {
        self.post_all(requests, |(wr_id, sge)| (*wr_id, slice::from_ref(sge)))
    }

    /// Finds the places that are free, up to the end of the ring. Called when all places that were
    /// known to be free have been written.
    fn find_room(&mut self) -> Result<(), PostError> {
        // Each place may have been written by now.
        self.records.lapped.store(true, Relaxed);
        self.next = self.end;
        let (posted, free) = (u32::from(self.posted()), self.free());
        if free == 0 {
            return Err(FULL);
        }
        self.next = posted & (self.layout.requests - 1);
        self.end = self.layout.requests.min(self.next + free);
        self.base = posted - self.next;
        Ok(())
    }

    /// Requests that were posted, free-running.
    #[inline]
    fn posted(&self) -> u16 {
        self.base.wrapping_add(self.next) as u16
    }

    /// Returns how many requests can be posted now.
    pub fn free(&self) -> u32 {
        self.layout.requests.saturating_sub(self.used())
    }

    /// Returns how many places of the ring are not free.
    pub fn used(&self) -> u32 {
        self.posted().wrapping_sub(self.records.oldest()).into()
    }

    /// The sizes of the queue.
    pub const fn layout(&self) -> ReceiveLayout {
        self.layout
    }

    /// Resets all counters. The queue pair was reset, and no earlier completion can be polled any
    /// more.
    pub fn reset(&mut self) {
        (self.next, self.end, self.base) = (0, self.layout.requests, 0);
        self.records.reset();
        self.record.set_receive(0);
    }
}
