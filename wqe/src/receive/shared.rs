//! The shared receive queue: a list of requests that several queue pairs consume.

use crate::gate::Gate;
use crate::receive::free::{Claims, FreePlaces};
use crate::receive::queue::{FULL, ReceiveLayout, ReceiveWr, is_usual, write_scatter_list};
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
use core::cell::Cell;
use core::fmt;
use core::mem::{offset_of, size_of};
use core::ops::Range;
use core::ptr::NonNull;
use mlx5_doorbell::{Lock, QueuePairRecord, prefetch};
use mlx5_prm::U16;
use mlx5_prm::wqe::{DataSegment, SrqNextSegment, UNIT};

/// A request that met a page fault, for as long as the poll that found it asks for it to be posted again.
#[derive(Debug)]
pub struct Faulted<'poll> {
    records: &'poll SharedReceiveRecords,
    index: u16,
    /// Whether it was posted again. The poll asks nobody else: a request that was not is reported.
    posted: &'poll Cell<bool>,
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
    /// What posts requests again that met a page fault.
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

    /// Sets what posts requests again that met a page fault, or nothing. When it returns, what was set before is
    /// not called any more.
    pub fn set_repost(&self, repost: Option<Repost>) {
        let before = core::mem::replace(&mut *self.repost.lock(), repost);
        // Without the lock.
        drop(before);
    }

    /// Poller: has a request posted again that met a page fault, and calls `pass` if it was: its completion is not
    /// told. Returns false, and does nothing, if nobody does that, the device does not hold it, or a program has the
    /// memory of the queue: nothing here knows where that one posts next.
    #[cold]
    pub fn repost(&self, index: u16, pass: &mut dyn FnMut()) -> bool {
        if self.is_lent() {
            return false;
        }
        /// The completion of a request that was posted again is passed even if what posted it panics then: it would
        /// be taken for one of the request's second time.
        struct Passing<'a> {
            posted: &'a Cell<bool>,
            pass: &'a mut dyn FnMut(),
        }
        impl Drop for Passing<'_> {
            fn drop(&mut self) {
                if self.posted.get() {
                    (self.pass)();
                }
            }
        }
        let posted = Cell::new(false);
        let _passing = Passing { posted: &posted, pass };
        if let Some(repost) = self.repost.lock().as_mut() {
            repost(Faulted { records: self, index, posted: &posted });
        }
        posted.get()
    }

    /// Whether the device holds request `index`.
    fn is_held(&self, index: u16) -> bool {
        self.held.get(usize::from(index)).is_some_and(|held| held.load(Acquire))
    }

    /// From now on requests complete that have no record: a program has the memory of the queue and posts there
    /// itself.
    pub fn lend(&self) {
        self.lent.store(true, Relaxed);
    }

    /// Whether such requests complete.
    pub fn is_lent(&self) -> bool {
        self.lent.load(Relaxed)
    }

    /// Returns the number of requests that were posted and whose completion was not polled. A poller
    /// that retires one counts it out before it gives the room back.
    pub fn in_flight(&self) -> u32 {
        self.held.iter().filter(|held| held.load(Relaxed)).count() as u32
    }

    /// Poller: retires request `index`, which a completion names. `None` if the device does not
    /// hold it, which a correct device never reports.
    #[inline]
    pub fn retire(&self, index: u16) -> Option<u64> {
        let index = usize::from(index);
        let held = self.held.get(index)?;
        // The acquire pairs with the owner's release in `hold`: the identifier is written.
        if !held.load(Acquire) {
            return None;
        }
        // The swap makes sure that only one poller retires it.
        if !held.swap(false, AcqRel) {
            return None;
        }
        // Read by the poller that retires it: the owner does not write another one before `put`.
        // SAFETY: there are as many identifiers as flags.
        let wr_id = unsafe { self.wr_ids.get_unchecked(index) }.load(Relaxed);
        // SAFETY: there is a place for each flag.
        unsafe { self.free.put(index as u32) };
        Some(wr_id)
    }
}

impl SharedReceiveRecords {
    /// Poller: retires request `index`, whose completion is not reported, and keeps its identifier for
    /// [`SharedReceiveRecords::take_discarded`]: as many as there are requests.
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
/// the *tail*, which the next post fills. So one WQE of the ring is always free.
// Fields in the order of use on the fast path.
#[repr(C)]
pub struct SharedReceiveQueue {
    gate: Gate,
    ring: NonNull<u8>,
    /// The identifiers and the flags in `records`.
    wr_ids: NonNull<AtomicU64>,
    held: NonNull<AtomicBool>,
    record: QueuePairRecord,
    layout: ReceiveLayout,
    /// The free WQE that the last posted one names.
    tail: u32,
    /// WQEs from the tail up to here, at least the tail, are claimed: posts take them in order.
    end: u32,
    /// Requests posted so far, free-running, minus the tail. The device sees 16 bits of the sum.
    base: u32,
    /// The WQEs that posts take after those; none, if that is empty.
    spare: Range<u32>,
    claims: Claims,
    /// A bit for each WQE that may not have the usual form. WQEs are given it before they
    /// are posted.
    unusual: Box<[u64]>,
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

// SAFETY: the ring is reached only through this value; identifiers and flags are atomic, in the
// records that the value keeps.
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
        gate: Gate,
        record: QueuePairRecord,
        records: Arc<SharedReceiveRecords>,
    ) -> Self {
        assert!(records.held.len() >= layout.requests as usize, "a record for each request");
        let mut queue = Self {
            ring,
            layout,
            tail: 0,
            end: layout.requests,
            base: 0,
            spare: 0..0,
            claims: Claims::default(),
            unusual: (0..(layout.requests as usize).div_ceil(u64::BITS as usize))
                .map(|_| 0)
                .collect(),
            gate,
            record,
            wr_ids: NonNull::from(&*records.wr_ids).cast(),
            held: NonNull::from(&*records.held).cast(),
            records,
        };
        for index in 0..layout.requests {
            // SAFETY: a WQE of the ring starts with this segment.
            unsafe { queue.slot(index).cast().write(SrqNextSegment::default()) };
            queue.make_usual(index);
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

    /// Returns the request that the next post fills, and the last of the adjacent free ones, each of
    /// which names the next: for whoever posts to the ring itself.
    pub fn free_run(&mut self) -> (u32, u32) {
        let behind = |index: u32| (index + 1) % self.layout.requests;
        let is_free = |index: u32| {
            (self.tail..self.end).contains(&index)
                || self.spare.contains(&index)
                || self.claims.is_free(&self.records.free, index)
        };
        let mut last = self.tail;
        while behind(last) != self.tail && is_free(behind(last)) {
            last = behind(last);
        }
        let mut index = self.tail;
        while index != last {
            self.make_usual(index);
            index = (index + 1) & self.mask();
        }
        (self.tail, last)
    }

    const fn mask(&self) -> u32 {
        self.layout.requests - 1
    }

    #[inline(always)]
    fn slot(&self, index: u32) -> NonNull<u8> {
        debug_assert!(index < self.layout.requests);
        // SAFETY: every caller passes an index below the number of requests.
        unsafe { self.ring.byte_add(index as usize * self.layout.stride as usize) }
    }

    /// Notes that the device holds the WQE at the tail.
    #[inline(always)]
    fn hold(&mut self, wr_id: u64) {
        let tail = self.tail as usize;
        // SAFETY: the tail is below the number of requests, for each of which there is a record.
        unsafe {
            self.wr_ids.add(tail).as_ref().store(wr_id, Relaxed);
            self.held.add(tail).as_ref().store(true, Release);
        }
    }

    /// Makes `next` the WQE that follows `index`.
    fn link(&mut self, index: u32, next: u32) {
        const NEXT: usize = offset_of!(SrqNextSegment, next_wqe_index);
        // SAFETY: a WQE starts with this segment. The rest of it was written when the queue was
        // created.
        unsafe { self.slot(index).byte_add(NEXT).cast().write(U16::new(next as u16)) };
    }

    /// Gives a free WQE its usual form: it is followed by the next one in the ring, and ends behind its
    /// first SGE.
    fn make_usual(&mut self, index: u32) {
        self.link(index, (index + 1) & self.mask());
        if self.layout.max_sge > 1 {
            let second = Self::HEAD as usize + UNIT;
            // SAFETY: the WQE has room for a second SGE.
            unsafe { self.slot(index).byte_add(second).cast().write(DataSegment::END) };
        }
    }

    /// Posts a list of receive requests (`ibv_post_srq_recv`). Requests before the first bad one
    /// are posted. The error has the index of the bad request and what is wrong with it.
    #[inline(always)]
    pub fn post_recv(&mut self, list: &[ReceiveWr<'_>]) -> Result<(), ListError> {
        if let [ReceiveWr { wr_id, sges: [sge] }] = list
            && self.recv_fast(wr_id, sge)
        {
            return Ok(());
        }
        self.post_list(list)
    }

    /// Posts one receive request with one buffer.
    #[inline(always)]
    pub fn recv(&mut self, wr_id: u64, sge: Sge) -> Result<(), PostError> {
        if self.recv_fast(&wr_id, &sge) {
            return Ok(());
        }
        self.recv_slow(wr_id, sge)
    }

    /// Posts one receive request with one buffer, if there is nothing else to check. Otherwise
    /// returns false, and does nothing.
    #[inline(always)]
    fn recv_fast(&mut self, wr_id: &u64, sge: &Sge) -> bool {
        if !self.gate.may_receive() || !is_usual(*sge) {
            return false;
        }
        let (tail, next) = (self.tail, self.tail + 1);
        if next == self.end {
            return false;
        }
        // SAFETY: the SGEs follow the head of the WQE at the tail, which is free and of the usual form.
        unsafe {
            write_sge(self.slot(tail).byte_add(Self::HEAD as usize), *sge);
            self.hold(*wr_id);
        }
        self.tail = next;
        self.publish();
        true
    }

    /// [`SharedReceiveQueue::recv`] where something is to be checked, or another run begins.
    #[inline(never)]
    fn recv_slow(&mut self, wr_id: u64, sge: Sge) -> Result<(), PostError> {
        if !self.gate.may_receive() {
            return Err(self.gate.refusal().into());
        }
        self.write(&ReceiveWr { wr_id, sges: &[sge] })?;
        self.publish();
        Ok(())
    }

    /// [`SharedReceiveQueue::post_recv`] of any list.
    #[cold]
    #[inline(never)]
    fn post_list(&mut self, list: &[ReceiveWr<'_>]) -> Result<(), ListError> {
        self.post_recv_iter(list).map(|_| ())
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
            return Err(ListError::new(0, self.gate.refusal().into()));
        }
        let mut count = 0;
        let mut written = Unpublished { queue: self, any: false };
        for wr in requests {
            if let Err(error) = written.queue.write(wr.borrow()) {
                return Err(ListError::new(count, error));
            }
            written.any = true;
            count += 1;
        }
        drop(written);
        Ok(count as usize)
    }

    /// Posts a request again that met a page fault: with its identifier and its entries, behind all others.
    /// Returns false, and does nothing, if it is another queue's, the device does not hold it, or posting is
    /// refused.
    #[cold]
    pub fn repost(&mut self, Faulted { records, index, posted }: Faulted<'_>) -> bool {
        let ours = core::ptr::eq(records, &*self.records);
        if !ours || !records.is_held(index) || !self.gate.may_receive() {
            return false;
        }
        let tail = self.tail;
        let length = self.layout.stride as usize - Self::HEAD as usize;
        // SAFETY: the entries of a WQE follow its head, and there is a WQE for each flag. The one at the tail is
        // free, so it is not this one, which the device holds.
        unsafe {
            let places = [u32::from(index), tail];
            let [from, to] = places.map(|at| self.slot(at).byte_add(Self::HEAD as usize));
            from.copy_to_nonoverlapping(to, length);
        }
        // Its own place is free from here on, so there is room behind the tail.
        let wr_id = self.records.retire(index);
        self.note_unusual(tail);
        let Some(wr_id) = wr_id else {
            // Another poller was told of it, by a device that completes a request twice.
            self.make_usual(tail);
            return false;
        };
        if tail + 1 == self.end && self.extend_run().is_err() {
            debug_assert!(false, "a place is free, and nobody else takes places");
            return false;
        }
        self.finish(tail, wr_id);
        self.publish();
        posted.set(true);
        true
    }

    /// Writes a request to the tail, and moves the tail.
    #[inline(always)]
    fn write(&mut self, wr: &ReceiveWr<'_>) -> Result<(), PostError> {
        let tail = self.tail;
        if tail + 1 == self.end {
            self.extend_run()?;
        }
        // SAFETY: the SGEs follow the head of a WQE. There is room for `max_sge`, and the WQE at the
        // tail is free and of the usual form.
        unsafe {
            let entries = self.slot(tail).byte_add(Self::HEAD as usize);
            match wr.sges {
                [sge] if is_usual(*sge) => write_sge(entries, *sge),
                sges => {
                    if let Err(error) = write_scatter_list(entries, sges, self.layout.max_sge) {
                        // Some may have been written before the bad one.
                        self.make_usual(tail);
                        return Err(error);
                    }
                    self.note_unusual(tail);
                }
            }
        }
        self.finish(tail, wr.wr_id);
        Ok(())
    }

    /// Moves the tail, which is here, behind the request that was written there.
    #[inline(always)]
    fn finish(&mut self, tail: u32, wr_id: u64) {
        self.hold(wr_id);
        self.tail = tail + 1;
        if self.tail == self.end {
            self.begin_run(tail);
        }
    }

    /// Claims the WQEs that posts take after the tail, the last one that is claimed: into the same run, if
    /// they follow it in the ring.
    #[inline(never)]
    fn extend_run(&mut self) -> Result<(), PostError> {
        if self.spare.is_empty() {
            // On from the tail, if requests completed in the order in which they were posted.
            let run = self.claims.next_run(&self.records.free, self.end & self.mask());
            self.spare = run.ok_or(FULL)?;
            self.prefetch_spare();
        }
        if self.spare.start == self.end {
            self.make_run_usual();
            (self.end, self.spare) = (self.spare.end, 0..0);
        }
        Ok(())
    }

    /// Starts loading what the post after this one writes: nobody knows before where that is. It is
    /// written then and not now, because claiming places waits for what was written before.
    #[inline(always)]
    fn prefetch_spare(&self) {
        prefetch(self.slot(self.spare.start));
        let first = self.spare.start as usize;
        // SAFETY: a spare WQE is one of the ring's, for each of which there is a record.
        unsafe {
            prefetch(self.wr_ids.add(first).cast());
            prefetch(self.held.add(first).cast());
        }
    }

    /// Goes on with the spare run behind `last`, which was posted.
    #[inline(always)]
    fn begin_run(&mut self, last: u32) {
        self.make_run_usual();
        let Range { start, end } = self.spare.clone();
        self.link(last, start);
        self.note_unusual(last);
        self.base = self.base.wrapping_add(self.tail).wrapping_sub(start);
        (self.tail, self.end, self.spare) = (start, end, 0..0);
    }

    /// The word with the bit of a WQE.
    #[inline(always)]
    fn unusual_word(&mut self, index: u32) -> &mut u64 {
        debug_assert!(index < self.layout.requests);
        // SAFETY: every caller passes an index below the number of requests, for each of which there is a bit.
        unsafe { self.unusual.get_unchecked_mut((index / u64::BITS) as usize) }
    }

    /// Notes that a WQE may not have the usual form.
    #[inline(always)]
    fn note_unusual(&mut self, index: u32) {
        *self.unusual_word(index) |= 1 << (index % u64::BITS);
    }

    /// Gives the WQEs of the spare run their usual form.
    #[inline(always)]
    fn make_run_usual(&mut self) {
        let Range { start, end } = self.spare.clone();
        // A run lies in one word of bits.
        let claimed = u64::MAX >> (u64::BITS - (end - start)) << (start % u64::BITS);
        let word = self.unusual_word(start);
        let mut unusual = *word & claimed;
        *word &= !claimed;
        while unusual != 0 {
            self.make_usual(start / u64::BITS * u64::BITS + unusual.trailing_zeros());
            unusual &= unusual - 1;
        }
    }

    /// Publishes the requests before the tail to the device.
    #[inline(always)]
    fn publish(&mut self) {
        mlx5_doorbell::barrier::to_device();
        // The only counter of a shared receive queue's record is at the place of the receive
        // counter.
        self.record.set_receive(self.base.wrapping_add(self.tail) as u16);
    }
}

/// Requests that were written, if there are any. Dropping it publishes them: the records say that the
/// device holds them.
struct Unpublished<'a> {
    queue: &'a mut SharedReceiveQueue,
    any: bool,
}

impl Drop for Unpublished<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.any {
            self.queue.publish();
        }
    }
}
