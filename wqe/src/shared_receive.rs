//! A shared receive queue: a list of requests that several queue pairs take from.

use crate::error::{ListError, PostError};
use crate::gate::Gate;
use crate::receive::{ReceiveLayout, ReceiveWr, write_scatter};
use crate::sync::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::mem::size_of;
use core::ptr::NonNull;
use mlx5_doorbell::QueuePairRecord;
use mlx5_prm::U16;
use mlx5_prm::wqe::SrqNextSegment;

const WORD_BITS: usize = u64::BITS as usize;

/// The shared half of a shared receive queue: which requests the device holds. The queue pairs that
/// take from it may complete on different queues, polled by different threads.
pub struct SharedReceiveRecords {
    wr_ids: Box<[AtomicU64]>,
    /// A bit for each request: set while the device holds it.
    held: Box<[AtomicU64]>,
}

impl SharedReceiveRecords {
    /// Records for a ring of `requests` requests.
    pub fn new(requests: u32) -> Self {
        let requests = requests as usize;
        Self {
            wr_ids: (0..requests).map(|_| AtomicU64::new(0)).collect(),
            held: (0..requests.div_ceil(WORD_BITS)).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Poller: a completion names request `index`. `None` if the device does not hold it, which no
    /// honest device says.
    #[inline]
    pub fn retire(&self, index: u16) -> Option<u64> {
        let index = usize::from(index);
        let wr_id = self.wr_ids.get(index)?;
        // SAFETY: there is a bit for each identifier.
        let word = unsafe { self.held.get_unchecked(index / WORD_BITS) };
        let bit = 1 << (index % WORD_BITS);
        // The acquire pairs with the owner's release when it set the bit: the identifier is there.
        if word.load(Acquire) & bit == 0 {
            return None;
        }
        let wr_id = wr_id.load(Relaxed);
        // The release lets the owner reuse the request. Two pollers cannot both be told: whoever
        // clears the bit has it.
        (word.fetch_and(!bit, AcqRel) & bit != 0).then_some(wr_id)
    }

    fn is_held(&self, index: usize) -> bool {
        self.held[index / WORD_BITS].load(Acquire) >> (index % WORD_BITS) & 1 != 0
    }

    fn hold(&self, index: usize) {
        self.held[index / WORD_BITS].fetch_or(1 << (index % WORD_BITS), Release);
    }
}

/// The owner half of a shared receive queue.
///
/// The device walks a list: each request names the next. The last one posted names a free one, the
/// *tail*, which the next post fills; so one request of the ring is always free.
pub struct SharedReceiveQueue {
    ring: NonNull<u8>,
    layout: ReceiveLayout,
    max_message: u32,
    /// The free request that the last posted one names.
    tail: usize,
    /// Requests ever posted; the device sees 16 bits of it.
    posted: u16,
    gate: Gate,
    record: QueuePairRecord,
    records: Arc<SharedReceiveRecords>,
}

// SAFETY: the ring is reached only through this value.
unsafe impl Send for SharedReceiveQueue {}

impl SharedReceiveQueue {
    /// Bytes before the scatter entries of a request.
    pub const HEAD: u32 = size_of::<SrqNextSegment>() as u32;

    /// Puts a shared receive queue together.
    ///
    /// # Safety
    /// As for [`crate::ReceiveQueue::new`]; `layout` was made with [`Self::HEAD`] bytes of head, for
    /// at least two requests.
    pub unsafe fn new(
        ring: NonNull<u8>,
        layout: ReceiveLayout,
        max_message: u32,
        gate: Gate,
        record: QueuePairRecord,
        records: Arc<SharedReceiveRecords>,
    ) -> Self {
        let queue = Self { ring, layout, max_message, tail: 0, posted: 0, gate, record, records };
        let requests = layout.requests as usize;
        for index in 0..requests {
            queue.link(index, (index + 1) % requests);
        }
        queue
    }

    /// Requests that can be outstanding at once.
    pub const fn capacity(&self) -> u32 {
        self.layout.requests - 1
    }

    /// Sizes of the queue.
    pub const fn layout(&self) -> ReceiveLayout {
        self.layout
    }

    fn slot(&self, index: usize) -> NonNull<u8> {
        debug_assert!(index < self.layout.requests as usize);
        // SAFETY: every caller's index is below the number of requests.
        unsafe { self.ring.byte_add(index * self.layout.stride as usize) }
    }

    fn link(&self, index: usize, next: usize) {
        let segment =
            SrqNextSegment { next_wqe_index: U16::new(next as u16), ..SrqNextSegment::default() };
        // SAFETY: a request starts with this segment.
        unsafe { self.slot(index).cast().write(segment) };
    }

    /// A free request other than `tail`, looked for from the one behind it on.
    fn find_free(&self, tail: usize) -> Option<usize> {
        let requests = self.layout.requests as usize;
        (1..requests).map(|step| (tail + step) & (requests - 1)).find(|&i| !self.records.is_held(i))
    }

    /// Posts a list of receive requests (`ibv_post_srq_recv`). What comes before the first bad one
    /// is posted; the error says which one that is, and what is wrong with it.
    pub fn post_recv(&mut self, list: &[ReceiveWr<'_>]) -> Result<(), ListError> {
        if !self.gate.may_receive() {
            return Err(ListError { index: 0, error: self.gate.why().into() });
        }
        let posted = self.posted;
        let mut result = Ok(());
        for (index, wr) in list.iter().enumerate() {
            if let Err(error) = self.write(wr) {
                result = Err(ListError { index: index as u32, error });
                break;
            }
        }
        if posted != self.posted {
            mlx5_doorbell::barrier::to_device();
            // A shared receive queue's record has its one counter where others have the receive
            // counter.
            self.record.set_receive(self.posted);
        }
        result
    }

    fn write(&mut self, wr: &ReceiveWr<'_>) -> Result<(), PostError> {
        let index = self.tail;
        let next = self.find_free(index).ok_or(PostError::QueueFull { free: 0, needed: 1 })?;
        // SAFETY: the scatter entries follow the head; there is room for `max_sge`, and the request
        // at the tail is free.
        unsafe {
            let entries = self.slot(index).byte_add(Self::HEAD as usize);
            write_scatter(entries, wr.sges, self.layout.max_sge, self.max_message)?;
        }
        self.link(index, next);
        self.records.wr_ids[index].store(wr.wr_id, Relaxed);
        self.records.hold(index);
        self.tail = next;
        self.posted = self.posted.wrapping_add(1);
        Ok(())
    }
}
