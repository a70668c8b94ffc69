//! A queue pair's own receive queue.

use crate::gate::Gate;
use crate::request::data::{write_sge, write_sges};
use crate::request::error::{ListError, PostError};
use crate::request::sge::Sge;
use crate::sync::{
    AtomicU16, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ptr::NonNull;
use crossbeam_utils::CachePadded;
use mlx5_doorbell::QueuePairRecord;
use mlx5_prm::wqe::{BLOCK, DataSegment, MAX_RING_BLOCKS, MAX_SGE_LENGTH, UNIT};

/// A receive request (`struct ibv_recv_wr`).
#[derive(Clone, Copy, Debug)]
pub struct ReceiveWr<'a> {
    /// Comes back with the completion.
    pub wr_id: u64,
    /// Where the message goes, one piece after the other.
    pub sges: &'a [Sge],
}

/// The largest request that a receive queue is made of, in bytes.
const MAX_STRIDE: u32 = 1 << 12;

/// Sizes of a receive queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceiveLayout {
    /// Requests in the ring, a power of two, or zero.
    pub requests: u32,
    /// Scatter entries in a request.
    pub max_sge: u32,
    /// Bytes of a request, a power of two.
    pub stride: u32,
}

impl ReceiveLayout {
    /// Sizes a queue for `requests` requests with `sges` entries each, rounded up to what the ring
    /// has room for; `head` bytes come before the entries of a request. `None` if the ring were
    /// larger than a ring can be.
    pub fn new(requests: u32, sges: u32, head: u32) -> Option<Self> {
        if requests == 0 {
            return Some(Self { requests: 0, max_sge: 0, stride: UNIT as u32 });
        }
        let requests = requests.checked_next_power_of_two()?;
        let bytes = sges.max(1).checked_mul(UNIT as u32)?.checked_add(head)?;
        let stride = bytes.checked_next_power_of_two()?;
        // A send queue follows in the same buffer, and starts on a block.
        let requests = requests.max(BLOCK as u32 / stride);
        if requests as usize > MAX_RING_BLOCKS || stride > MAX_STRIDE {
            return None;
        }
        Some(Self { requests, max_sge: (stride - head) / UNIT as u32, stride })
    }

    /// Bytes of the ring.
    pub const fn bytes(&self) -> usize {
        self.requests as usize * self.stride as usize
    }
}

/// The shared half of a receive queue.
///
/// Requests may complete in any order, for a device that places data out of order takes them so. The
/// slots that the device holds are those from the oldest request without a completion up to the last
/// that was posted, less those that are marked in `ahead`. Room comes back with the oldest one only:
/// the ring has no free slots in its midst.
pub struct ReceiveRecords {
    wr_ids: Box<[AtomicU64]>,
    posted: CachePadded<AtomicU16>,
    /// The oldest request that has not completed, in 16 bits. Above them stands something where
    /// [`ReceiveRecords::retire_next`] must not take it: slots are marked in `ahead`, or the 16 bits
    /// just came round.
    oldest: CachePadded<AtomicU32>,
    /// Poller: how many slots are marked in `ahead`.
    waiting: AtomicU16,
    /// Poller: a bit for each slot of the ring, set where a request completed before an older one.
    ahead: Box<[AtomicU64]>,
}

/// Above the counter in [`ReceiveRecords::oldest`].
const OUT_OF_ORDER: u32 = 1 << 16;

impl ReceiveRecords {
    /// Records for a ring of `requests` requests: a power of two up to 2¹⁵, or zero.
    ///
    /// # Panics
    /// If `requests` is not such a number.
    pub fn new(requests: u32) -> Self {
        assert!(requests == 0 || requests.is_power_of_two());
        assert!(requests as usize <= MAX_RING_BLOCKS);
        Self {
            wr_ids: (0..requests).map(|_| AtomicU64::new(0)).collect(),
            posted: CachePadded::new(AtomicU16::new(0)),
            oldest: CachePadded::new(AtomicU32::new(0)),
            waiting: AtomicU16::new(0),
            ahead: (0..requests.div_ceil(u64::BITS)).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// The slot of request `counter`, where the ring has any.
    #[inline(always)]
    fn slot(&self, counter: u16) -> usize {
        usize::from(counter) & self.wr_ids.len().wrapping_sub(1)
    }

    #[inline(always)]
    fn wr_id(&self, counter: u16) -> &AtomicU64 {
        // SAFETY: the length is a power of two, and not zero where something was posted.
        unsafe { self.wr_ids.get_unchecked(self.slot(counter)) }
    }

    /// The oldest request that has not completed, counted freely.
    #[inline(always)]
    fn oldest(&self) -> u16 {
        // The acquire pairs with the poller's release: it has read what it needed of those before.
        self.oldest.load(Acquire) as u16
    }

    /// Poller: [`ReceiveRecords::retire`], but `None` unless `counter` is the oldest request that has
    /// not completed, none completed before an older one, and now and then for no reason.
    #[inline(always)]
    pub fn retire_next(&self, counter: u16) -> Option<u64> {
        let oldest = self.oldest.load(Relaxed);
        let posted = self.posted.load(Acquire);
        if u32::from(counter) != oldest || counter == posted {
            return None;
        }
        let wr_id = self.wr_id(counter).load(Relaxed);
        self.oldest.store(oldest + 1, Release);
        Some(wr_id)
    }

    /// Poller: a completion names the receive request in the slot that `counter` leads to. `None` if
    /// the device does not hold that, which no honest device says: it is free, or it completed and an
    /// older one has not.
    pub fn retire(&self, counter: u16) -> Option<u64> {
        let oldest = self.oldest.load(Relaxed) as u16;
        let outstanding = self.posted.load(Acquire).wrapping_sub(oldest);
        let younger = self.slot(counter.wrapping_sub(oldest));
        if younger >= usize::from(outstanding) || self.is_ahead(counter) {
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

    /// Poller: all before `oldest` have completed; it may have, too, and those behind it.
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

    /// The word of `ahead` that has the bit of request `counter`, and that bit.
    fn bit(&self, counter: u16) -> (&AtomicU64, u64) {
        let slot = self.slot(counter);
        // SAFETY: where something was posted, the slot is one of the ring, and there is a bit for each.
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

    fn reset(&self) {
        self.posted.store(0, Relaxed);
        self.oldest.store(0, Relaxed);
        self.waiting.store(0, Relaxed);
        self.ahead.iter().for_each(|word| word.store(0, Relaxed));
    }
}

/// The owner half of a receive queue.
pub struct ReceiveQueue {
    ring: NonNull<u8>,
    layout: ReceiveLayout,
    longest: u32,
    head: u16,
    gate: Gate,
    record: QueuePairRecord,
    records: Arc<ReceiveRecords>,
}

// SAFETY: the ring is reached only through this value.
unsafe impl Send for ReceiveQueue {}

impl ReceiveQueue {
    /// Puts a receive queue together.
    ///
    /// # Safety
    /// `ring` points to `layout.bytes()` bytes, aligned to 16, that are valid as long as the value
    /// lives and that nobody but the device reads or writes otherwise; `records` was made for this
    /// many requests and belongs to this queue alone.
    pub unsafe fn new(
        ring: NonNull<u8>,
        layout: ReceiveLayout,
        max_message: u32,
        gate: Gate,
        record: QueuePairRecord,
        records: Arc<ReceiveRecords>,
    ) -> Self {
        let longest = longest_sge(max_message);
        Self { ring, layout, longest, head: 0, gate, record, records }
    }

    /// Posts a list of receive requests (`ibv_post_recv`). What comes before the first bad one is
    /// posted; the error says which one that is, and what is wrong with it.
    #[inline]
    pub fn post_recv(&mut self, list: &[ReceiveWr<'_>]) -> Result<(), ListError> {
        if !self.gate.may_receive() {
            return Err(ListError { index: 0, error: self.gate.why().into() });
        }
        let oldest = self.records.oldest();
        let mut head = self.head;
        for wr in list {
            if let Err(error) = self.write(head, oldest, wr) {
                return Err(self.stop(head, error));
            }
            head = head.wrapping_add(1);
        }
        self.publish(head);
        Ok(())
    }

    #[inline(always)]
    fn write(&mut self, head: u16, oldest: u16, wr: &ReceiveWr<'_>) -> Result<(), PostError> {
        if u32::from(head.wrapping_sub(oldest)) >= self.layout.requests {
            return Err(PostError::QueueFull { free: 0, needed: 1 });
        }
        let index = usize::from(head) & (self.layout.requests as usize - 1);
        // SAFETY: masked, so inside the ring.
        let slot = unsafe { self.ring.byte_add(index * self.layout.stride as usize) };
        // SAFETY: a request of the ring has room for `max_sge` entries, and this one is free.
        unsafe { write_scatter(slot, wr.sges, self.layout.max_sge, self.longest)? };
        self.records.wr_id(head).store(wr.wr_id, Relaxed);
        Ok(())
    }

    /// Tells poller and device of the requests before `head`.
    #[inline(always)]
    fn publish(&mut self, head: u16) {
        if head != self.head {
            self.head = head;
            self.records.posted.store(head, Release);
            mlx5_doorbell::barrier::to_device();
            self.record.set_receive(head);
        }
    }

    /// What comes before the bad request is posted.
    #[cold]
    #[inline(never)]
    fn stop(&mut self, head: u16, error: PostError) -> ListError {
        let index = head.wrapping_sub(self.head).into();
        self.publish(head);
        ListError { index, error }
    }

    /// The requests that can be posted now.
    pub fn free(&self) -> u32 {
        let used = self.head.wrapping_sub(self.records.oldest());
        self.layout.requests.saturating_sub(u32::from(used))
    }

    /// Sizes of the queue.
    pub const fn layout(&self) -> ReceiveLayout {
        self.layout
    }

    /// Starts over with empty counters: the queue pair was reset, and no completion from before can
    /// be met any more.
    pub fn reset(&mut self) {
        self.head = 0;
        self.records.reset();
        self.record.set_receive(0);
    }
}

/// The longest scatter entry of a queue that is told at once to be good.
pub(crate) fn longest_sge(max_message: u32) -> u32 {
    max_message.min(MAX_SGE_LENGTH)
}

/// Checks a scatter list and writes it, with an end mark if it is shorter than the request. `longest`
/// is [`longest_sge`].
///
/// # Safety
/// `at` has room for `max_sge` entries, of which there is one.
#[inline(always)]
pub(crate) unsafe fn write_scatter(
    at: NonNull<u8>,
    sges: &[Sge],
    max_sge: u32,
    longest: u32,
) -> Result<(), PostError> {
    if let &[sge] = sges
        && sge.length.wrapping_sub(1) < longest
    {
        // SAFETY: handed down; the mark is the second entry.
        unsafe {
            write_sge(at, sge);
            if max_sge > 1 {
                at.byte_add(UNIT).cast().write(DataSegment::END);
            }
        }
        return Ok(());
    }
    // SAFETY: handed down.
    unsafe { write_scatter_list(at, sges, max_sge) }
}

/// # Safety
/// As for [`write_scatter`].
// Apart, so that the common case keeps to registers.
#[inline(never)]
unsafe fn write_scatter_list(at: NonNull<u8>, sges: &[Sge], max_sge: u32) -> Result<(), PostError> {
    // SAFETY: handed down. A scatter list may be longer than any message, so that only its entries
    // are checked, not their sum.
    let units = if sges.is_empty() { 0 } else { unsafe { write_sges(at, sges, max_sge, None)? } };
    if units < max_sge as usize {
        // SAFETY: fewer than `max_sge` entries were written, so that there is room for one more.
        unsafe { at.byte_add(units * UNIT).cast().write(DataSegment::END) };
    }
    Ok(())
}
