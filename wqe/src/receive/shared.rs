//! The shared receive queue: a list of requests that several queue pairs consume.

use crate::gate::Gate;
use crate::receive::queue::{ReceiveLayout, ReceiveWr, longest_sge, write_scatter};
use crate::request::error::{ListError, PostError};
use crate::request::sge::Sge;
use crate::sync::{
    AtomicBool, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::borrow::Borrow;
use core::fmt;
use core::mem::size_of;
use core::ptr::NonNull;
use mlx5_doorbell::QueuePairRecord;
use mlx5_prm::U16;
use mlx5_prm::wqe::SrqNextSegment;

/// The shared half of a shared receive queue: which requests the device holds. The queue pairs that
/// consume them may complete on different completion queues, polled by different threads.
pub struct SharedReceiveRecords {
    wr_ids: Box<[AtomicU64]>,
    /// One flag per request: whether the device holds it. Only the owner sets a flag, and only a
    /// poller clears it.
    held: Box<[AtomicBool]>,
}

impl fmt::Debug for SharedReceiveRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReceiveRecords")
            .field("requests", &self.wr_ids.len())
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}

impl SharedReceiveRecords {
    /// Creates the records of a ring of `requests` requests.
    pub fn new(requests: u32) -> Self {
        Self {
            wr_ids: (0..requests).map(|_| AtomicU64::new(0)).collect(),
            held: (0..requests).map(|_| AtomicBool::new(false)).collect(),
        }
    }

    /// Returns the number of requests that were posted and whose completion was not polled.
    pub fn in_flight(&self) -> u32 {
        self.held.iter().filter(|held| held.load(Relaxed)).count() as u32
    }

    /// Poller: retires request `index`, which a completion names. `None` if the device does not
    /// hold it, which a correct device never reports.
    #[inline]
    pub fn retire(&self, index: u16) -> Option<u64> {
        let index = usize::from(index);
        let (wr_id, held) = (self.wr_ids.get(index)?, self.held.get(index)?);
        // The acquire pairs with the owner's release in `hold`: the identifier is written.
        if !held.load(Acquire) {
            return None;
        }
        let wr_id = wr_id.load(Relaxed);
        // The release lets the owner reuse the request. The swap makes sure that only one poller
        // retires it.
        held.swap(false, AcqRel).then_some(wr_id)
    }

    /// Owner: whether the device holds a request.
    ///
    /// # Safety
    /// `index` is less than the number of records.
    #[inline(always)]
    unsafe fn is_held(&self, index: usize) -> bool {
        // SAFETY: by the caller's contract.
        unsafe { self.held.get_unchecked(index) }.load(Acquire)
    }

    /// Owner: notes that the device holds a request.
    ///
    /// # Safety
    /// As for [`Self::is_held`].
    #[inline(always)]
    unsafe fn hold(&self, index: usize, wr_id: u64) {
        // SAFETY: by the caller's contract; both arrays have the same length.
        unsafe {
            self.wr_ids.get_unchecked(index).store(wr_id, Relaxed);
            self.held.get_unchecked(index).store(true, Release);
        }
    }
}

/// The owner half of a shared receive queue.
///
/// The device walks a linked list: each WQE names the next. The last posted WQE names a free one,
/// the *tail*, which the next post fills. So one WQE of the ring is always free.
pub struct SharedReceiveQueue {
    ring: NonNull<u8>,
    layout: ReceiveLayout,
    longest: u32,
    /// The free WQE that the last posted one names.
    tail: usize,
    /// Requests posted so far, free-running in the 16 bits that the device sees.
    posted: u16,
    gate: Gate,
    record: QueuePairRecord,
    records: Arc<SharedReceiveRecords>,
}

impl fmt::Debug for SharedReceiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReceiveQueue")
            .field("gate", &self.gate)
            .field("capacity", &self.capacity())
            .field("in_flight", &self.records.in_flight())
            .finish_non_exhaustive()
    }
}

// SAFETY: the ring is reached only through this value.
unsafe impl Send for SharedReceiveQueue {}

impl SharedReceiveQueue {
    /// Bytes before the SGEs of a WQE.
    pub const HEAD: u32 = size_of::<SrqNextSegment>() as u32;

    /// Creates a shared receive queue.
    ///
    /// # Safety
    /// As for [`crate::ReceiveQueue::new`]. `layout` was created with [`Self::HEAD`] bytes of head,
    /// for at least two requests.
    pub unsafe fn new(
        ring: NonNull<u8>,
        layout: ReceiveLayout,
        max_message: u32,
        gate: Gate,
        record: QueuePairRecord,
        records: Arc<SharedReceiveRecords>,
    ) -> Self {
        assert!(records.held.len() >= layout.requests as usize, "a record for each request");
        let longest = longest_sge(max_message);
        let queue = Self { ring, layout, longest, tail: 0, posted: 0, gate, record, records };
        let requests = layout.requests as usize;
        for index in 0..requests {
            queue.link(index, (index + 1) % requests);
        }
        queue
    }

    /// The maximum number of outstanding requests.
    pub const fn capacity(&self) -> u32 {
        self.layout.requests - 1
    }

    /// The sizes of the queue.
    pub const fn layout(&self) -> ReceiveLayout {
        self.layout
    }

    /// Returns the first and the last of the free requests that the next posts fill, in order.
    pub fn free_run(&self) -> (u32, u32) {
        let most = self.layout.requests as usize;
        let behind = (1..most).take_while(|step| self.free_behind(self.tail, *step).is_some());
        let last = (self.tail + behind.count()) & (most - 1);
        (self.tail as u32, last as u32)
    }

    #[inline(always)]
    fn slot(&self, index: usize) -> NonNull<u8> {
        debug_assert!(index < self.layout.requests as usize);
        // SAFETY: every caller passes an index below the number of requests.
        unsafe { self.ring.byte_add(index * self.layout.stride as usize) }
    }

    #[inline(always)]
    fn link(&self, index: usize, next: usize) {
        let segment =
            SrqNextSegment { next_wqe_index: U16::new(next as u16), ..SrqNextSegment::default() };
        // SAFETY: a WQE starts with this segment.
        unsafe { self.slot(index).cast().write(segment) };
    }

    /// Returns the WQE `step` places behind `tail`, if it is free.
    #[inline(always)]
    fn free_behind(&self, tail: usize, step: usize) -> Option<usize> {
        let index = (tail + step) & (self.layout.requests as usize - 1);
        // SAFETY: the index is masked, and there is a record for each request.
        (!unsafe { self.records.is_held(index) }).then_some(index)
    }

    /// Finds a free WQE other than `tail`, starting two places behind it.
    #[cold]
    #[inline(never)]
    fn find_free(&self, tail: usize) -> Option<usize> {
        (2..self.layout.requests as usize).find_map(|step| self.free_behind(tail, step))
    }

    /// Posts a list of receive requests (`ibv_post_srq_recv`). Requests before the first bad one
    /// are posted. The error has the index of the bad request and what is wrong with it.
    #[inline]
    pub fn post_recv(&mut self, list: &[ReceiveWr<'_>]) -> Result<(), ListError> {
        if !self.gate.may_receive() {
            return Err(ListError { index: 0, error: self.gate.refusal().into() });
        }
        let mut posted = Posted { tail: self.tail, counter: self.posted };
        for wr in list {
            match self.write(posted.tail, wr) {
                Ok(next) => posted = Posted { tail: next, counter: posted.counter.wrapping_add(1) },
                Err(error) => return Err(self.stop(posted, error)),
            }
        }
        self.publish(posted);
        Ok(())
    }

    /// Posts one receive request with one buffer.
    #[inline]
    pub fn recv(&mut self, wr_id: u64, sge: Sge) -> Result<(), PostError> {
        self.post_recv(&[ReceiveWr { wr_id, sges: &[sge] }]).map_err(|refused| refused.error)
    }

    /// Posts the receive requests that `requests` yields and returns their number. Requests before
    /// the first bad one are posted, also if the iterator panics; nothing is taken from it after a
    /// bad one. The error has the index of the bad request and what is wrong with it.
    #[inline]
    pub fn post_recv_iter<'a, W: Borrow<ReceiveWr<'a>>>(
        &mut self,
        requests: impl IntoIterator<Item = W>,
    ) -> Result<usize, ListError> {
        if !self.gate.may_receive() {
            return Err(ListError { index: 0, error: self.gate.refusal().into() });
        }
        let mut count = 0;
        let posted = Posted { tail: self.tail, counter: self.posted };
        let mut written = Unpublished { queue: self, posted };
        for wr in requests {
            let Posted { tail, counter } = written.posted;
            match written.queue.write(tail, wr.borrow()) {
                Ok(tail) => written.posted = Posted { tail, counter: counter.wrapping_add(1) },
                Err(error) => return Err(ListError { index: count, error }),
            }
            count += 1;
        }
        drop(written);
        Ok(count as usize)
    }

    /// Writes a request to the tail and returns the next tail.
    #[inline(always)]
    fn write(&mut self, tail: usize, wr: &ReceiveWr<'_>) -> Result<usize, PostError> {
        // Requests mostly complete in posting order.
        let next = match self.free_behind(tail, 1) {
            Some(next) => next,
            None => self.find_free(tail).ok_or(PostError::QueueFull { free: 0, needed: 1 })?,
        };
        // SAFETY: the SGEs follow the head, there is room for `max_sge`, and the WQE at the tail is
        // free.
        unsafe {
            let entries = self.slot(tail).byte_add(Self::HEAD as usize);
            write_scatter(entries, wr.sges, self.layout.max_sge, self.longest)?;
        }
        self.link(tail, next);
        // SAFETY: the tail is a WQE of the ring, and there is a record for each.
        unsafe { self.records.hold(tail, wr.wr_id) };
        Ok(next)
    }

    /// Publishes the posted requests to the device.
    #[inline(always)]
    fn publish(&mut self, posted: Posted) {
        if posted.counter != self.posted {
            (self.tail, self.posted) = (posted.tail, posted.counter);
            mlx5_doorbell::barrier::to_device();
            // The only counter of a shared receive queue's record is at the place of the receive
            // counter.
            self.record.set_receive(posted.counter);
        }
    }

    /// Posts the requests before the bad one.
    #[cold]
    #[inline(never)]
    fn stop(&mut self, posted: Posted, error: PostError) -> ListError {
        let index = posted.counter.wrapping_sub(self.posted).into();
        self.publish(posted);
        ListError { index, error }
    }
}

/// The position while a list is posted.
#[derive(Clone, Copy)]
struct Posted {
    tail: usize,
    counter: u16,
}

/// Requests that were written, up to a position. Dropping it publishes them: the records say that
/// the device holds them.
struct Unpublished<'a> {
    queue: &'a mut SharedReceiveQueue,
    posted: Posted,
}

impl Drop for Unpublished<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.queue.publish(self.posted);
    }
}
