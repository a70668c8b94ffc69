//! The shared receive queue: a list of requests that several queue pairs consume.

use crate::gate::Gate;
use crate::receive::free::{Claims, FreePlaces};
use crate::receive::post::{FULL, Post, ReceiveWr, is_usual, write_scatter};
use crate::receive::queue::ReceiveLayout;
use crate::request::batch_error::ListError;
use crate::request::data::write_sge;
use crate::request::error::PostError;
use crate::request::sge::Sge;
use crate::sync::{
    AtomicBool, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::borrow::Borrow;
use core::fmt;
use core::mem::{offset_of, size_of};
use core::ops::Range;
use core::ptr::NonNull;
use mlx5_doorbell::{Lock, QueuePairRecord, barrier, prefetch};
use mlx5_prm::U16;
use mlx5_prm::wqe::{DataSegment, SrqNextSegment, UNIT};

/// A request that met a page fault. It lives as long as the poll that found it can repost it.
pub struct Faulted<'poll> {
    records: &'poll SharedReceiveRecords,
    index: u16,
    /// Passes the completion, at once when the request is posted again: otherwise it would be taken
    /// for one of the request's second time.
    pass: &'poll mut dyn FnMut(),
}

impl fmt::Debug for Faulted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faulted").field("index", &self.index).finish_non_exhaustive()
    }
}

impl Faulted<'_> {
    /// The number of the request in its queue.
    pub fn request(&self) -> u16 {
        self.index
    }
}

/// Gives a request that met a page fault to [`SharedReceiveQueue::repost`], or does nothing.
pub type Repost = Box<dyn FnMut(Faulted<'_>) + Send>;

/// The shared half of a shared receive queue: which requests the device holds. The queue pairs that
/// consume them may complete on different completion queues, polled by different threads.
pub struct SharedReceiveRecords {
    wr_ids: Box<[AtomicU64]>,
    /// One flag per request: whether the device holds it. Only the owner sets a flag, and only a
    /// poller clears it.
    held: Box<[AtomicBool]>,
    /// Requests that completed and that the owner has not claimed again.
    free: FreePlaces,
    /// A program has the memory of the queue and posts there itself.
    lent: AtomicBool,
    /// The hook that posts requests again that met a page fault.
    repost: Lock<Option<Repost>>,
    /// Identifiers of requests whose completion was not reported.
    discarded: Lock<Vec<u64>>,
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
            free: FreePlaces::new(requests),
            lent: AtomicBool::new(false),
            repost: Lock::new(None),
            discarded: Lock::new(Vec::new()),
        }
    }

    /// Sets or removes the hook that posts requests again that met a page fault. When this returns,
    /// the former hook is not running and is not called any more.
    pub fn set_repost(&self, repost: Option<Repost>) {
        let before = core::mem::replace(&mut *self.repost.lock(), repost);
        // Without the lock, because the drop may run any code.
        drop(before);
    }

    /// Poller: has the hook repost `index` after a page fault. If the request was posted, `pass`
    /// was called, and the completion is not reported. Returns false, and does nothing, if there is
    /// no hook, the device does not hold the request, or a program has the memory of the queue and
    /// posts there itself.
    #[cold]
    pub fn repost(&self, index: u16, pass: &mut dyn FnMut()) -> bool {
        let mut posted = false;
        let mut pass = || {
            posted = true;
            pass();
        };
        if !self.is_lent()
            && let Some(repost) = self.repost.lock().as_mut()
        {
            repost(Faulted { records: self, index, pass: &mut pass });
        }
        posted
    }

    /// Whether the device holds request `index`.
    fn is_held(&self, index: u16) -> bool {
        self.held.get(usize::from(index)).is_some_and(|held| held.load(Acquire))
    }

    /// Notes that a program has the memory of the queue and posts there itself. From now on
    /// requests complete that have no record.
    pub fn lend(&self) {
        self.lent.store(true, Relaxed);
    }

    /// Whether a program has the memory of the queue and posts there itself.
    pub fn is_lent(&self) -> bool {
        self.lent.load(Relaxed)
    }

    /// Returns the number of requests that were posted and whose completion was not polled. A
    /// poller that retires one counts it out before it gives the room back.
    pub fn in_flight(&self) -> u32 {
        self.held.iter().filter(|held| held.load(Relaxed)).count() as u32
    }

    /// Poller: retires request `index`, which a completion names. `None` if the device does not
    /// hold it, which a correct device never reports.
    #[inline]
    pub fn retire(&self, index: u16) -> Option<u64> {
        let index = usize::from(index);
        let held = self.held.get(index)?;
        // The acquire pairs with the owner's release in `hold`: the identifier is written. The swap
        // makes sure that only one poller retires it.
        if !held.load(Acquire) || !held.swap(false, AcqRel) {
            return None;
        }
        // The owner does not write another identifier before `put`.
        // SAFETY: `held` has a flag at `index`, and there are as many identifiers as flags.
        let wr_id = unsafe { self.wr_ids.get_unchecked(index) }.load(Relaxed);
        // SAFETY: `held` has a flag at `index`, and there are as many places as flags.
        unsafe { self.free.put(index as u32) };
        Some(wr_id)
    }

    /// Poller: retires request `index`, whose completion is not reported, and keeps its identifier
    /// for [`SharedReceiveRecords::take_discarded`]. Keeps at most as many as there are requests.
    #[cold]
    pub fn discard(&self, index: u16) {
        if let Some(wr_id) = self.retire(index) {
            let mut discarded = self.discarded.lock();
            if discarded.len() < self.wr_ids.len() {
                discarded.push(wr_id);
            }
        }
    }

    /// Returns the identifiers of the requests that were discarded since the last call.
    pub fn take_discarded(&self) -> Vec<u64> {
        core::mem::take(&mut *self.discarded.lock())
    }
}

/// The owner half of a shared receive queue.
///
/// The device walks a linked list: each WQE names the next. The last posted WQE names a free one,
/// the *tail*, which the next post fills. One WQE of the ring is therefore always free.
// In the order of use on the fast path.
#[repr(C)]
pub struct SharedReceiveQueue {
    gate: Gate,
    /// The first WQE.
    ring: NonNull<u8>,
    layout: ReceiveLayout,
    /// The free WQE that the last posted one names.
    tail: u32,
    /// The WQEs after the tail up to this one are claimed: posts take them in order.
    last: u32,
    /// With the tail, the number of requests posted so far, free-running.
    base: u32,
    record: QueuePairRecord,
    /// The shared half.
    records: Arc<SharedReceiveRecords>,
    /// Places that were claimed and are in no run yet.
    claims: Claims,
    /// A bit for each WQE that may not have the usual form: the next one in the ring follows it,
    /// and it ends after its first SGE. A run that is claimed gets this form.
    unusual: Box<[u64]>,
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

impl Post for SharedReceiveQueue {
    /// The tail.
    type Place = u32;

    #[inline]
    fn gate(&self) -> &Gate {
        &self.gate
    }

    #[inline]
    fn place(&self) -> u32 {
        self.tail
    }

    #[inline(always)]
    fn add_usual(&mut self, tail: u32, wr_id: u64, sge: &Sge) -> Option<u32> {
        if !is_usual(sge) || tail == self.last {
            return None;
        }
        // SAFETY: the WQE at the tail is free, and has room for an SGE.
        unsafe { write_sge(self.entries(tail), *sge) };
        self.hold(tail, wr_id);
        Some(tail + 1)
    }

    #[cold]
    #[inline(never)]
    fn add_any(&mut self, tail: &mut u32, wr_id: u64, sges: &[Sge]) -> Result<(), PostError> {
        let index = *tail;
        self.note_unusual(index);
        // SAFETY: the WQE at the tail is free, and has room for `max_sge` SGEs.
        let written = unsafe { write_scatter(self.entries(index), sges, self.layout.max_sge) };
        if written.is_err() {
            // SGEs before the bad one may have been written.
            self.make_usual(index..index + 1);
        }
        written?;
        *tail = self.next(index)?;
        self.hold(index, wr_id);
        Ok(())
    }

    #[inline(always)]
    fn publish(&mut self, tail: u32) {
        self.tail = tail;
        barrier::to_device();
        // The only counter of a shared receive queue's record is at the place of the receive
        // counter.
        self.record.set_receive(self.base.wrapping_add(tail) as u16);
    }
}

impl SharedReceiveQueue {
    /// Bytes before the SGEs of a WQE.
    pub const HEAD: u32 = size_of::<SrqNextSegment>() as u32;

    /// Creates a shared receive queue.
    ///
    /// # Safety
    /// As for [`crate::ReceiveQueue::new`], except that `ring` points to the first WQE, and the
    /// queue also accesses the [`Self::HEAD`] bytes before the entries of each WQE. `layout` was
    /// created with [`Self::HEAD`] bytes of head, for at least two requests.
    pub unsafe fn new(
        ring: NonNull<u8>,
        layout: ReceiveLayout,
        gate: Gate,
        record: QueuePairRecord,
        records: Arc<SharedReceiveRecords>,
    ) -> Self {
        assert!(records.held.len() >= layout.requests as usize, "a record for each request");
        let (last, claims) = (layout.requests - 1, Claims::default());
        let words = layout.requests.div_ceil(u64::BITS);
        let unusual = (0..words).map(|_| u64::MAX).collect();
        let mut queue =
            Self { gate, ring, layout, tail: 0, last, base: 0, record, records, claims, unusual };
        for index in 0..layout.requests {
            // SAFETY: `index` is below the number of requests, and each WQE starts with this
            // segment.
            unsafe { queue.slot(index).cast().write(SrqNextSegment::default()) };
            queue.make_usual(index..index + 1);
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

    /// Returns the request that the next post fills, and the last of the free ones that follow it
    /// in the ring. Each of them names the next. For a program that posts to the ring itself.
    pub fn free_run(&mut self) -> (u32, u32) {
        let mut last = self.tail;
        loop {
            let next = self.after(last);
            let is_free = (self.tail..=self.last).contains(&next)
                || self.claims.is_free(&self.records.free, next);
            if next == self.tail || !is_free {
                return (self.tail, last);
            }
            self.link(last, next);
            last = next;
        }
    }

    /// The WQE that follows `index` in memory.
    const fn after(&self, index: u32) -> u32 {
        (index + 1) & (self.layout.requests - 1)
    }

    #[inline]
    fn slot(&self, index: u32) -> NonNull<u8> {
        debug_assert!(index < self.layout.requests);
        // SAFETY: every caller passes an index below the number of requests.
        unsafe { self.ring.byte_add(index as usize * self.layout.stride as usize) }
    }

    /// The scatter entries of a WQE.
    #[inline]
    fn entries(&self, index: u32) -> NonNull<u8> {
        // SAFETY: they follow the head, in the same WQE.
        unsafe { self.slot(index).byte_add(Self::HEAD as usize) }
    }

    /// Makes `next` the WQE that follows `index` in the device's list.
    #[inline]
    fn link(&mut self, index: u32, next: u32) {
        const NEXT: usize = offset_of!(SrqNextSegment, next_wqe_index);
        // SAFETY: a WQE starts with this segment, which `new` wrote as a whole.
        unsafe { self.slot(index).byte_add(NEXT).cast().write(U16::new(next as u16)) };
    }

    /// Records that the device holds the request at the tail, which was written.
    #[inline(always)]
    fn hold(&mut self, tail: u32, wr_id: u64) {
        let index = tail as usize;
        // SAFETY: the tail is below the number of requests, for each of which there is a record.
        unsafe {
            self.records.wr_ids.get_unchecked(index).store(wr_id, Relaxed);
            self.records.held.get_unchecked(index).store(true, Release);
        }
    }

    /// Links the WQE at `tail` to the one that becomes the tail when it is posted, and returns that
    /// one. After the last claimed WQE, claims another run. The caller has noted that the WQE may
    /// not have the usual form.
    #[inline(always)]
    fn next(&mut self, tail: u32) -> Result<u32, PostError> {
        let mut next = tail + 1;
        if tail == self.last {
            // The search starts after the tail: if requests completed in posting order, the run
            // there continues.
            let run = self.claims.next_run(&self.records.free, self.after(tail)).ok_or(FULL)?;
            self.make_usual(run.clone());
            self.base = self.base.wrapping_add(next).wrapping_sub(run.start);
            (next, self.last) = (run.start, run.end - 1);
            // The post after this one writes there.
            prefetch(self.slot(next));
        }
        self.link(tail, next);
        Ok(next)
    }

    /// Returns the word with the bit of a WQE, and the bit.
    #[inline]
    fn unusual(&mut self, index: u32) -> (&mut u64, u64) {
        debug_assert!(index < self.layout.requests);
        // SAFETY: every caller passes an index below the number of requests, for each of which
        // there is a bit.
        let word = unsafe { self.unusual.get_unchecked_mut((index / u64::BITS) as usize) };
        (word, 1 << (index % u64::BITS))
    }

    /// Notes that a WQE may not have the usual form.
    #[inline]
    fn note_unusual(&mut self, index: u32) {
        let (word, bit) = self.unusual(index);
        *word |= bit;
    }

    /// Gives the WQEs of a run, of one word, their usual form.
    #[inline]
    fn make_usual(&mut self, run: Range<u32>) {
        let (word, first) = self.unusual(run.start);
        let claimed = u64::MAX >> (u64::BITS - run.len() as u32) << first.trailing_zeros();
        let mut unusual = *word & claimed;
        *word &= !claimed;
        while unusual != 0 {
            let index = run.start / u64::BITS * u64::BITS + unusual.trailing_zeros();
            self.link(index, self.after(index));
            if self.layout.max_sge > 1 {
                // SAFETY: `max_sge` exceeds 1, checked above, so the WQE has room for a second SGE.
                unsafe { self.entries(index).byte_add(UNIT).cast().write(DataSegment::END) };
            }
            unusual &= unusual - 1;
        }
    }

    /// Posts a list of receive requests (`ibv_post_srq_recv`). Requests before the first bad one
    /// are posted. The error has the index of the bad request and what is wrong with it.
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

    /// Posts a request again that met a page fault, with its identifier and its entries, after all
    /// other requests. Returns false, and does nothing, if it is a request of another queue, the
    /// device does not hold it, or the queue refuses posting.
    #[cold]
    pub fn repost(&mut self, Faulted { records, index, pass }: Faulted<'_>) -> bool {
        let ours = core::ptr::eq(records, &*self.records);
        if !ours || !records.is_held(index) || !self.gate.may_receive() {
            return false;
        }
        let length = (self.layout.stride - Self::HEAD) as usize;
        let [from, to] = [u32::from(index), self.tail].map(|at| self.entries(at));
        // SAFETY: the device holds `index`, checked above, so it is a WQE of the ring, and another
        // one than the tail, which is free.
        unsafe { from.copy_to_nonoverlapping(to, length) };
        self.note_unusual(self.tail);
        // None if the device completed the request twice and another poller retired it.
        let Some(wr_id) = self.records.retire(index) else { return false };
        let Ok(next) = self.next(self.tail) else {
            debug_assert!(false, "its own place is free, and only the owner takes places");
            return false;
        };
        self.hold(self.tail, wr_id);
        self.publish(next);
        pass();
        true
    }
}
