//! Doorbell records: counters in host memory that the device reads.

use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use mlx5_prm::doorbell::{completion_queue_record as cq, queue_pair_record as qp};

/// A big-endian counter in memory that the device reads.
#[derive(Clone, Copy)]
struct Word(NonNull<AtomicU32>);

impl Word {
    /// # Safety
    /// `base + offset` points to four bytes, aligned to four, that stay valid for every use of the
    /// value.
    unsafe fn at(base: NonNull<u8>, offset: usize) -> Self {
        // SAFETY: the caller promises that `base + offset` is valid, so it is within the allocation
        // of `base`.
        Self(unsafe { base.byte_add(offset).cast() })
    }

    #[inline]
    fn store(self, value: u32) {
        // SAFETY: `at`'s caller promises that the word is valid and aligned for every use. The
        // store is atomic, because the device (or the thread of a simulated one) may read the word
        // at any time.
        unsafe { self.0.as_ref() }.store(value.to_be(), Relaxed);
    }

    fn load(self) -> u32 {
        // SAFETY: `at`'s caller promises that the word is valid and aligned for every use. The load
        // is atomic.
        u32::from_be(unsafe { self.0.as_ref() }.load(Relaxed))
    }
}

/// The doorbell record of a queue pair, or of a receive queue without one.
#[derive(Clone, Copy)]
pub struct QueuePairRecord(NonNull<u8>);

// SAFETY: the value is an address; every access through it is an atomic store.
unsafe impl Send for QueuePairRecord {}
// SAFETY: the value is an address; every access through it is an atomic store.
unsafe impl Sync for QueuePairRecord {}

impl QueuePairRecord {
    /// Creates the record at `base`.
    ///
    /// # Safety
    /// `base` points to eight bytes, aligned to four. They stay valid, and are used for nothing
    /// else, as long as the value or a copy of it exists.
    pub unsafe fn new(base: NonNull<u8>) -> Self {
        Self(base)
    }

    /// Returns the address of the record.
    #[inline]
    pub fn as_non_null(self) -> NonNull<u8> {
        self.0
    }

    /// Stores the producer index of the send queue: basic blocks posted so far, modulo 2^16.
    #[inline]
    pub fn set_send(self, blocks: u16) {
        // SAFETY: `new`'s caller promises eight aligned bytes; the offset is a multiple of four
        // below eight.
        unsafe { Word::at(self.0, qp::SEND) }.store(blocks.into());
    }

    /// Stores the producer index of the receive queue: receive requests posted so far, modulo 2^16.
    #[inline]
    pub fn set_receive(self, requests: u16) {
        // SAFETY: `new`'s caller promises eight aligned bytes; the offset is a multiple of four
        // below eight.
        unsafe { Word::at(self.0, qp::RECEIVE) }.store(requests.into());
    }
}

impl fmt::Debug for QueuePairRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePairRecord").finish_non_exhaustive()
    }
}

/// The doorbell record of a completion queue.
#[derive(Clone, Copy)]
pub struct CompletionQueueRecord(NonNull<u8>);

// SAFETY: the value is an address; every access through it is atomic.
unsafe impl Send for CompletionQueueRecord {}
// SAFETY: the value is an address; every access through it is atomic.
unsafe impl Sync for CompletionQueueRecord {}

impl CompletionQueueRecord {
    /// Creates the record at `base`.
    ///
    /// # Safety
    /// `base` points to eight bytes, aligned to four. They stay valid, and are used for nothing
    /// else, as long as the value or a copy of it exists.
    pub const unsafe fn new(base: NonNull<u8>) -> Self {
        Self(base)
    }

    /// Stores the consumer index: CQEs polled so far. The device reads the low 24 bits.
    #[inline]
    pub fn set_consumer(self, entries: u32) {
        // SAFETY: `new`'s caller promises eight aligned bytes; the offset is one of its two words.
        let word = unsafe { Word::at(self.0, cq::CONSUMER) };
        word.store(entries & cq::CONSUMER_MASK);
    }

    /// Loads the 24-bit consumer index. A program that polls the queue itself stores its own index
    /// there.
    pub fn consumer(self) -> u32 {
        // SAFETY: `new`'s caller promises eight aligned bytes; the offset is one of its two words.
        unsafe { Word::at(self.0, cq::CONSUMER) }.load() & cq::CONSUMER_MASK
    }

    /// Stores the arm word.
    #[inline]
    pub fn set_arm(self, word: u32) {
        // SAFETY: `new`'s caller promises eight aligned bytes; the offset is one of its two words.
        unsafe { Word::at(self.0, cq::ARM) }.store(word);
    }
}

impl fmt::Debug for CompletionQueueRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueueRecord").finish_non_exhaustive()
    }
}
