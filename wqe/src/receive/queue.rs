//! The receive queue of a queue pair.

use crate::gate::Gate;
use crate::request::batch_error::ListError;
use crate::request::data::{write_sge, write_sges};
use crate::request::error::PostError;
use crate::request::sge::Sge;
use crate::sync::{
    AtomicBool, AtomicU16, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::borrow::Borrow;
use core::fmt;
use core::ptr::NonNull;
use crossbeam_utils::CachePadded;
use mlx5_doorbell::QueuePairRecord;
use mlx5_prm::wqe::{BLOCK, DataSegment, MAX_RING_BLOCKS, MAX_SGE_LENGTH, UNIT};

/// A receive request (`struct ibv_recv_wr`).
#[derive(Clone, Copy, Debug)]
pub struct ReceiveWr<'a> {
    /// Returned with the completion.
    pub wr_id: u64,
    /// The buffers for the message, filled in order. May be empty, for a message without data or an
    /// RDMA write with immediate data.
    pub sges: &'a [Sge],
}

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

/// The shared half of a receive queue.
///
/// Requests may complete in any order: a device that places data out of order consumes them so. The
/// device holds the requests from the oldest one without completion up to the last posted one,
/// except those marked in `ahead`. Room becomes free only with the oldest one, because the ring has
/// no free slots in the middle. Those of packets complete [in order](ReceiveRecords::set_in_order).
pub struct ReceiveRecords {
    pub(super) wr_ids: Box<[AtomicU64]>,
    pub(super) posted: CachePadded<Posted>,
    /// The low 16 bits are the number of the oldest request without completion. The upper bits are
    /// nonzero where [`ReceiveRecords::retire_next`] must not retire it: requests are marked in
    /// `ahead`, or the 16 bits have just wrapped.
    pub(super) oldest: CachePadded<AtomicU32>,
    /// Poller: the number of slots marked in `ahead`.
    waiting: AtomicU16,
    /// Poller: one bit per slot of the ring, set if its request completed before an older one.
    ahead: Box<[AtomicU64]>,
    /// No request completes before an older one.
    in_order: bool,
}

/// What the owner alone writes.
pub(super) struct Posted {
    /// Requests that were posted, free-running.
    pub(super) count: AtomicU16,
    /// Whether any place of the ring may have been written.
    all: AtomicBool,
}

impl fmt::Debug for ReceiveRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiveRecords")
            .field("requests", &self.wr_ids.len())
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}

/// A bit above the counter in [`ReceiveRecords::oldest`].
const OUT_OF_ORDER: u32 = 1 << 16;

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
            posted: CachePadded::new(Posted {
                count: AtomicU16::new(0),
                all: AtomicBool::new(false),
            }),
            oldest: CachePadded::new(AtomicU32::new(0)),
            waiting: AtomicU16::new(0),
            ahead: (0..requests.div_ceil(u64::BITS)).map(|_| AtomicU64::new(0)).collect(),
            in_order: false,
        }
    }

    /// Makes them those of a new queue with as many requests.
    pub fn renew(&mut self) {
        self.reset();
        self.posted.all.store(false, Relaxed);
        self.in_order = false;
    }

    /// The requests of the ring that they are for.
    pub fn requests(&self) -> u32 {
        self.wr_ids.len() as u32
    }

    /// Takes completions only in the order of the requests. The device fills the requests of packets in that
    /// order: one that names another request names a buffer that it may still write to.
    pub fn set_in_order(&mut self) {
        self.in_order = true;
    }

    /// Whether they complete in order.
    pub fn is_in_order(&self) -> bool {
        self.in_order
    }

    /// Returns the slot of request `counter`. Meaningless for a ring of zero requests.
    #[inline(always)]
    fn slot(&self, counter: u16) -> usize {
        usize::from(counter) & self.wr_ids.len().wrapping_sub(1)
    }

    #[inline(always)]
    pub(super) fn wr_id(&self, counter: u16) -> &AtomicU64 {
        // SAFETY: the slot is masked by the length, which is a power of two: not zero, because a
        // request was posted.
        unsafe { self.wr_ids.get_unchecked(self.slot(counter)) }
    }

    /// The oldest request without completion, free-running.
    #[inline(always)]
    fn oldest(&self) -> u16 {
        // The acquire pairs with the poller's release: the poller has read the earlier records.
        self.oldest.load(Acquire) as u16
    }

    /// Returns the number of requests that were posted and whose completion was not polled.
    pub fn in_flight(&self) -> u32 {
        let outstanding = self.posted.count.load(Acquire).wrapping_sub(self.oldest());
        // Another thread may poll or reset the counters meanwhile.
        let completed = self.waiting.load(Relaxed);
        u32::from(outstanding.saturating_sub(completed)).min(self.wr_ids.len() as u32)
    }

    /// Returns the identifiers of these requests, in posting order.
    pub fn wr_ids_in_flight(&self) -> impl Iterator<Item = u64> + '_ {
        let oldest = self.oldest();
        let count = self.posted.count.load(Acquire).wrapping_sub(oldest);
        (0..count)
            .map(move |place| oldest.wrapping_add(place))
            .filter(|counter| !self.is_ahead(*counter))
            .map(|counter| self.wr_id(counter).load(Relaxed))
    }

    /// Poller: [`ReceiveRecords::retire`], but `None` unless `counter` is the oldest request
    /// without completion and no request completed before an older one. Also `None` once each time
    /// the counter wraps.
    #[inline(always)]
    pub fn retire_next(&self, counter: u16) -> Option<u64> {
        let oldest = self.oldest.load(Relaxed);
        let posted = self.posted.count.load(Acquire);
        if u32::from(counter) != oldest || counter == posted {
            return None;
        }
        let wr_id = self.wr_id(counter).load(Relaxed);
        self.oldest.store(oldest + 1, Release);
        Some(wr_id)
    }

    /// Poller: retires the request in the slot of `counter`, which a completion names. `None` if
    /// the device does not hold it, which a correct device never reports: the slot is free, or its
    /// request has completed before an older one. Also `None` for any but the oldest request, where they
    /// complete [in order](ReceiveRecords::set_in_order).
    pub fn retire(&self, counter: u16) -> Option<u64> {
        let oldest = self.oldest.load(Relaxed) as u16;
        let outstanding = self.posted.count.load(Acquire).wrapping_sub(oldest);
        let younger = self.slot(counter.wrapping_sub(oldest));
        if younger >= usize::from(outstanding) || self.is_ahead(counter) {
            return None;
        }
        if self.in_order && younger != 0 {
            return None;
        }
        let wr_id = self.wr_id(counter).load(Relaxed);
        if younger == 0 {
            self.pass_completed(oldest.wrapping_add(1));
        } else {
            self.mark(counter);
            self.waiting.store(self.waiting.load(Relaxed) + 1, Relaxed);
            self.oldest.store(u32::from(oldest) | OUT_OF_ORDER, Release);
        }
        Some(wr_id)
    }

    /// Poller: advances the oldest request to `oldest`, or past requests from there on that have
    /// completed.
    fn pass_completed(&self, mut oldest: u16) {
        let mut waiting = self.waiting.load(Relaxed);
        while waiting != 0 && self.is_ahead(oldest) {
            self.unmark(oldest);
            waiting -= 1;
            oldest = oldest.wrapping_add(1);
        }
        self.waiting.store(waiting, Relaxed);
        let above = if waiting == 0 { 0 } else { OUT_OF_ORDER };
        self.oldest.store(u32::from(oldest) | above, Release);
    }

    /// Returns the word of `ahead` with the bit of request `counter`, and the bit.
    fn bit(&self, counter: u16) -> (&AtomicU64, u64) {
        let slot = self.slot(counter);
        // SAFETY: a request was posted, so the slot is in the ring, and there is a bit for each
        // slot.
        let word = unsafe { self.ahead.get_unchecked(slot / u64::BITS as usize) };
        (word, 1 << (slot % u64::BITS as usize))
    }

    fn is_ahead(&self, counter: u16) -> bool {
        let (word, bit) = self.bit(counter);
        word.load(Relaxed) & bit != 0
    }

    fn mark(&self, counter: u16) {
        let (word, bit) = self.bit(counter);
        word.store(word.load(Relaxed) | bit, Relaxed);
    }

    fn unmark(&self, counter: u16) {
        let (word, bit) = self.bit(counter);
        word.store(word.load(Relaxed) & !bit, Relaxed);
    }

    /// Places at the start of the ring behind which the owner never wrote. A request that was refused may
    /// have been written.
    pub fn written(&self) -> u32 {
        let requests = self.wr_ids.len() as u32;
        let all = self.posted.all.load(Relaxed);
        if all { requests } else { requests.min(self.posted.count.load(Relaxed) as u32 + 1) }
    }

    fn reset(&self) {
        // What was written before is not counted any more.
        self.posted.all.store(true, Relaxed);
        self.posted.count.store(0, Relaxed);
        self.oldest.store(0, Relaxed);
        self.waiting.store(0, Relaxed);
        self.ahead.iter().for_each(|word| word.store(0, Relaxed));
    }
}

/// The owner half of a receive queue.
// Fields in the order of use on the fast path.
#[repr(C)]
pub struct ReceiveQueue {
    gate: Gate,
    ring: NonNull<u8>,
    /// The identifiers in `records`.
    wr_ids: NonNull<AtomicU64>,
    record: QueuePairRecord,
    records: Arc<ReceiveRecords>,
    layout: ReceiveLayout,
    /// Requests in the ring, minus one. Meaningless for a ring of zero requests.
    mask: u32,
    /// Producer index, free-running.
    head: u16,
    /// Where the queue was last seen to be full: `head` may come to here before that is computed
    /// again.
    limit: u16,
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

// SAFETY: the ring is reached only through this value; the identifiers are atomic, in the records
// that the value keeps.
unsafe impl Send for ReceiveQueue {}

impl ReceiveQueue {
    /// Creates a receive queue.
    ///
    /// # Safety
    /// `ring` points to the scatter entries of the first of `layout.requests` requests, aligned to 16,
    /// from each of which it is `layout.stride` bytes to those of the next one. The entries, `max_sge` of
    /// each, are valid for as long as the value lives, and nothing but the device and this value reads or
    /// writes them. `records` was
    /// created for this many requests and belongs to this queue alone.
    pub unsafe fn new(
        ring: NonNull<u8>,
        layout: ReceiveLayout,
        gate: Gate,
        record: QueuePairRecord,
        records: Arc<ReceiveRecords>,
    ) -> Self {
        let wr_ids = NonNull::from(&*records.wr_ids).cast();
        let (mask, limit) = (layout.requests.wrapping_sub(1), layout.requests as u16);
        Self { ring, layout, mask, head: 0, limit, gate, record, records, wr_ids }
    }

    /// Posts a list of receive requests (`ibv_post_recv`). Requests before the first bad one are
    /// posted. The error has the index of the bad request and what is wrong with it.
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
        let head = self.head;
        if !self.gate.may_receive() || !is_usual(*sge) || head == self.limit {
            return false;
        }
        let index = self.index(head);
        // SAFETY: the queue is not full, so the place is free, and there is one; the index is masked,
        // so it is inside the ring and its records. There is room for `max_sge` SGEs.
        unsafe {
            let slot = self.ring.byte_add(index * self.layout.stride as usize);
            write_usual(slot, *sge, self.layout.max_sge);
            self.wr_ids.add(index).as_ref().store(*wr_id, Relaxed);
        }
        self.publish(head.wrapping_add(1));
        true
    }

    #[cold]
    #[inline(never)]
    fn recv_slow(&mut self, wr_id: u64, sge: Sge) -> Result<(), PostError> {
        // Often the queue was full, and is not any more.
        if self.room(self.head) != 0 && self.recv_fast(&wr_id, &sge) {
            return Ok(());
        }
        self.post_list(&[ReceiveWr { wr_id, sges: &[sge] }]).map_err(|refused| refused.error())
    }

    /// [`ReceiveQueue::post_recv`] of any list.
    #[inline(never)]
    fn post_list(&mut self, list: &[ReceiveWr<'_>]) -> Result<(), ListError> {
        if !self.gate.may_receive() {
            return Err(ListError::new(0, self.gate.refusal().into()));
        }
        let mut head = self.head;
        let mut rest = list;
        while !rest.is_empty() {
            let index = self.index(head);
            let run = match self.room(head) {
                0 => return Err(self.stop(head, FULL)),
                room => rest.len().min(room).min(self.layout.requests as usize - index),
            };
            let now;
            (now, rest) = rest.split_at(run);
            // SAFETY: there is room for so many requests, which do not pass the end of the ring.
            match unsafe { self.write_run(index, now) } {
                Ok(()) => head = head.wrapping_add(run as u16),
                Err((place, error)) => {
                    return Err(self.stop(head.wrapping_add(place as u16), error));
                }
            }
        }
        if head != self.head {
            self.publish(head);
        }
        Ok(())
    }

    /// Writes requests, from place `index` of the ring on. Returns the place in the list of a bad one
    /// and what is wrong with it.
    ///
    /// # Safety
    /// So many places follow in the ring, and are free.
    #[inline(always)]
    unsafe fn write_run(
        &mut self,
        index: usize,
        list: &[ReceiveWr<'_>],
    ) -> Result<(), (usize, PostError)> {
        let ReceiveLayout { max_sge, stride, .. } = self.layout;
        // SAFETY: the place is in the ring, and there is a record for each.
        let (mut slot, mut wr_id) =
            unsafe { (self.ring.byte_add(index * stride as usize), self.wr_ids.add(index)) };
        for wr in list {
            // SAFETY: a place has room for `max_sge` SGEs; it is free, and has a record. The addresses
            // behind the last place of the run are not used.
            unsafe {
                if let Err(error) = write_scatter(slot, wr.sges, max_sge) {
                    let place = (&raw const *wr).offset_from_unsigned(list.as_ptr());
                    return Err((place, error));
                }
                wr_id.as_ref().store(wr.wr_id, Relaxed);
                (slot, wr_id) = (slot.byte_add(stride as usize), wr_id.add(1));
            }
        }
        Ok(())
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
        let mut written = Unpublished { head: self.head, queue: self };
        for wr in requests {
            if let Err(error) = written.queue.write(written.head, wr.borrow()) {
                return Err(ListError::new(count, error));
            }
            written.head = written.head.wrapping_add(1);
            count += 1;
        }
        drop(written);
        Ok(count as usize)
    }

    /// Posts one receive request for each identifier and buffer that `requests` yields, and returns their
    /// number: as [`ReceiveQueue::post_recv_iter`] for requests with one buffer, and quicker.
    #[inline]
    pub fn recv_each(
        &mut self,
        requests: impl IntoIterator<Item = (u64, Sge)>,
    ) -> Result<usize, ListError> {
        if !self.gate.may_receive() {
            return Err(ListError::new(0, self.gate.refusal().into()));
        }
        let ReceiveLayout { max_sge, stride, .. } = self.layout;
        let first = self.head;
        let mut written = Run::none(self);
        for (wr_id, sge) in requests {
            if written.wr_id == written.end {
                let head = written.head();
                let Some((slot, count)) = written.queue.places(head) else {
                    return Err(ListError::new(head.wrapping_sub(first).into(), FULL));
                };
                written.start(slot, count);
            }
            // SAFETY: the run has a place: it is in the ring, free, has a record, and room for `max_sge` SGEs.
            // The addresses behind the last place of the run are not used.
            unsafe {
                if is_usual(sge) {
                    write_usual(written.slot, sge, max_sge);
                } else {
                    let place = written.head().wrapping_sub(first).into();
                    write_unusual(written.slot, sge, max_sge)
                        .map_err(|error| ListError::new(place, error))?;
                }
                written.wr_id.as_ref().store(wr_id, Relaxed);
                written.slot = written.slot.byte_add(stride as usize);
                written.wr_id = written.wr_id.add(1);
            }
        }
        let count = written.head().wrapping_sub(first);
        drop(written);
        Ok(count.into())
    }

    /// The places that are free from `head` on, up to the end of the ring: the first one, and how many. `None` if
    /// the queue is full.
    #[cold]
    #[inline(never)]
    fn places(&mut self, head: u16) -> Option<(NonNull<u8>, u16)> {
        let (room, index) = (self.room(head), self.index(head));
        if room == 0 {
            return None;
        }
        let count = room.min(self.layout.requests as usize - index);
        // SAFETY: there is room, so there is a ring, and the index is in it.
        let slot = unsafe { self.ring.byte_add(index * self.layout.stride as usize) };
        Some((slot, count as u16))
    }

    #[inline(always)]
    fn write(&mut self, head: u16, wr: &ReceiveWr<'_>) -> Result<(), PostError> {
        if self.room(head) == 0 {
            return Err(FULL);
        }
        // SAFETY: there is room for a request, and one does not pass the end of the ring.
        unsafe { self.write_run(self.index(head), core::slice::from_ref(wr)) }
            .map_err(|(_, error)| error)
    }

    /// The place of request `head` in the ring. Meaningless for a ring of zero requests.
    #[inline(always)]
    fn index(&self, head: u16) -> usize {
        (u32::from(head) & self.mask) as usize
    }

    /// How many requests fit from `head` on, as far as is known: none only if the queue is full.
    #[inline(always)]
    fn room(&mut self, head: u16) -> usize {
        if head == self.limit {
            // Of a whole lap.
            self.records.posted.all.store(true, Relaxed);
            self.limit = self.records.oldest().wrapping_add(self.layout.requests as u16);
        }
        self.limit.wrapping_sub(head).into()
    }

    /// Publishes the requests before `head` to the poller, then to the device.
    #[inline(always)]
    fn publish(&mut self, head: u16) {
        self.head = head;
        self.records.posted.count.store(head, Release);
        mlx5_doorbell::barrier::to_device();
        self.record.set_receive(head);
    }

    /// Posts the requests before the bad one.
    #[cold]
    #[inline(never)]
    fn stop(&mut self, head: u16, error: PostError) -> ListError {
        let index = head.wrapping_sub(self.head).into();
        if head != self.head {
            self.publish(head);
        }
        ListError::new(index, error)
    }

    /// Returns how many requests can be posted now.
    #[inline]
    pub fn free(&self) -> u32 {
        self.layout.requests.saturating_sub(self.used())
    }

    /// Returns how many places of the ring are not free.
    #[inline]
    pub fn used(&self) -> u32 {
        self.head.wrapping_sub(self.records.oldest()).into()
    }

    /// The sizes of the queue.
    pub const fn layout(&self) -> ReceiveLayout {
        self.layout
    }

    /// Resets all counters. The queue pair was reset, and no earlier completion can be polled any
    /// more.
    pub fn reset(&mut self) {
        (self.head, self.limit) = (0, self.layout.requests as u16);
        self.records.reset();
        self.record.set_receive(0);
    }
}

/// There is no room for a request.
pub(crate) const FULL: PostError = PostError::QueueFull { free: 0, needed: 1 };

/// Places of the ring that follow each other and are free, of which the first ones are written. Dropping it
/// publishes those.
struct Run<'a> {
    queue: &'a mut ReceiveQueue,
    /// The next place, and its record.
    slot: NonNull<u8>,
    wr_id: NonNull<AtomicU64>,
    /// The record behind the last place, and the request there.
    end: NonNull<AtomicU64>,
    end_head: u16,
}

impl<'a> Run<'a> {
    /// No places, at the end of what is published.
    #[inline(always)]
    fn none(queue: &'a mut ReceiveQueue) -> Self {
        let (slot, end, end_head) = (queue.ring, queue.wr_ids, queue.head);
        Self { queue, slot, wr_id: end, end, end_head }
    }

    /// The next request.
    #[inline(always)]
    fn head(&self) -> u16 {
        // SAFETY: both are in the same records, the end behind the other one.
        let left = unsafe { self.end.offset_from_unsigned(self.wr_id) };
        self.end_head.wrapping_sub(left as u16)
    }

    /// Goes on with so many places behind these, which begin at `slot`.
    #[inline(always)]
    fn start(&mut self, slot: NonNull<u8>, count: u16) {
        let (head, queue) = (self.head(), &*self.queue);
        // SAFETY: the places are in the ring, and there is a record for each.
        unsafe {
            self.wr_id = queue.wr_ids.add(queue.index(head));
            self.end = self.wr_id.add(count.into());
        }
        (self.slot, self.end_head) = (slot, head.wrapping_add(count));
    }
}

impl Drop for Run<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        let head = self.head();
        if head != self.queue.head {
            self.queue.publish(head);
        }
    }
}

/// Requests that were written up to `head`. Dropping it publishes them.
struct Unpublished<'a> {
    queue: &'a mut ReceiveQueue,
    head: u16,
}

impl Drop for Unpublished<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.head != self.queue.head {
            self.queue.publish(self.head);
        }
    }
}

/// Whether a single SGE needs no further check: it is neither empty nor too long.
#[inline(always)]
pub(crate) fn is_usual(sge: Sge) -> bool {
    sge.length.wrapping_sub(1) < MAX_SGE_LENGTH
}

/// Writes a scatter list of one SGE, with an end mark if it is shorter than the WQE.
///
/// # Safety
/// `at` has room for `max_sge` SGEs, at least one.
#[inline(always)]
pub(crate) unsafe fn write_usual(at: NonNull<u8>, sge: Sge, max_sge: u32) {
    // SAFETY: by the caller's contract; the end mark takes the place of the second SGE.
    unsafe {
        if max_sge > 1 {
            at.byte_add(UNIT).cast().write(DataSegment::END);
        }
        write_sge(at, sge);
    }
}

/// Checks and writes a scatter list of an SGE that is not [usual](is_usual).
///
/// # Safety
/// As for [`write_usual`].
#[cold]
#[inline(never)]
unsafe fn write_unusual(at: NonNull<u8>, sge: Sge, max_sge: u32) -> Result<(), PostError> {
    // SAFETY: by the caller's contract.
    unsafe { write_scatter_list(at, &[sge], max_sge) }
}

/// Checks and writes a scatter list, with an end mark if it is shorter than the WQE.
///
/// # Safety
/// `at` has room for `max_sge` SGEs, at least one.
#[inline(always)]
pub(crate) unsafe fn write_scatter(
    at: NonNull<u8>,
    sges: &[Sge],
    max_sge: u32,
) -> Result<(), PostError> {
    if let &[sge] = sges
        && is_usual(sge)
    {
        // SAFETY: by the caller's contract.
        unsafe { write_usual(at, sge, max_sge) };
        return Ok(());
    }
    // SAFETY: by the caller's contract.
    unsafe { write_scatter_list(at, sges, max_sge) }
}

/// # Safety
/// As for [`write_scatter`].
// Out of line, so that the common case stays in registers.
#[inline(never)]
pub(crate) unsafe fn write_scatter_list(
    at: NonNull<u8>,
    sges: &[Sge],
    max_sge: u32,
) -> Result<(), PostError> {
    let units = match sges {
        [] => 0,
        // SAFETY: by the caller's contract. A scatter list may be longer than any message, so only
        // the length of each SGE is checked.
        _ => unsafe { write_sges(at, sges, max_sge, None)? },
    };
    if units < max_sge as usize {
        // SAFETY: fewer than `max_sge` SGEs were written, so there is room for one more.
        unsafe { at.byte_add(units * UNIT).cast().write(DataSegment::END) };
    }
    Ok(())
}
