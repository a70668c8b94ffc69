//! Doorbell records: counters in host memory that the device reads.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use mlx5_prm::doorbell::{completion_queue_record as cq, queue_pair_record as qp};

/// A counter in memory that the device reads, big-endian.
#[derive(Clone, Copy)]
struct Word(NonNull<AtomicU32>);

impl Word {
    /// # Safety
    /// `base + offset` points to four aligned bytes that outlive every use.
    unsafe fn at(base: NonNull<u8>, offset: usize) -> Self {
        // SAFETY: within the allocation, by the contract.
        Self(unsafe { base.byte_add(offset).cast() })
    }

    #[inline(always)]
    fn store(self, value: u32) {
        // SAFETY: valid and aligned by the contract of `at`; atomic, for the device (or the
        // simulated one, a thread) reads it at any time.
        unsafe { self.0.as_ref() }.store(value.to_be(), Relaxed);
    }
}

/// The doorbell record of a queue pair, or of a receive queue alone.
#[derive(Clone, Copy)]
pub struct QueuePairRecord {
    receive: Word,
    send: Word,
}

// SAFETY: two addresses; all access through them is atomic.
unsafe impl Send for QueuePairRecord {}
// SAFETY: as above.
unsafe impl Sync for QueuePairRecord {}

impl QueuePairRecord {
    /// Takes the record at `base`.
    ///
    /// # Safety
    /// `base` points to eight bytes, aligned to four, that are valid and used for nothing else as
    /// long as the value or a copy of it is.
    pub unsafe fn new(base: NonNull<u8>) -> Self {
        // SAFETY: handed down.
        unsafe { Self { receive: Word::at(base, qp::RECEIVE), send: Word::at(base, qp::SEND) } }
    }

    /// Tells the device how many blocks were ever posted to the send queue, in 16 bits.
    #[inline(always)]
    pub fn set_send(self, blocks: u16) {
        self.send.store(blocks.into());
    }

    /// Tells the device how many receive requests were ever posted, in 16 bits.
    #[inline(always)]
    pub fn set_receive(self, requests: u16) {
        self.receive.store(requests.into());
    }
}

/// The doorbell record of a completion queue.
#[derive(Clone, Copy)]
pub struct CompletionQueueRecord(NonNull<u8>);

// SAFETY: an address; all access through it is atomic.
unsafe impl Send for CompletionQueueRecord {}
// SAFETY: as above.
unsafe impl Sync for CompletionQueueRecord {}

impl CompletionQueueRecord {
    /// Takes the record at `base`.
    ///
    /// # Safety
    /// `base` points to eight bytes, aligned to four, that are valid and used for nothing else as
    /// long as the value or a copy of it is.
    pub const unsafe fn new(base: NonNull<u8>) -> Self {
        Self(base)
    }

    /// Tells the device how many entries were ever consumed; it reads 24 bits.
    #[inline(always)]
    pub fn set_consumer(self, entries: u32) {
        // SAFETY: by the contract of `new`.
        let word = unsafe { Word::at(self.0, cq::CONSUMER) };
        word.store(entries & cq::CONSUMER_MASK);
    }

    /// Writes the arm word.
    #[inline(always)]
    pub fn set_arm(self, word: u32) {
        // SAFETY: by the contract of `new`.
        unsafe { Word::at(self.0, cq::ARM) }.store(word);
    }
}
