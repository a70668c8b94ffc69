//! The word that a poll checks first.

use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, Release},
};

/// The word that notifies a poller of events off the fast path. It is in memory that is zeroed in a
/// forked child.
#[derive(Clone, Copy)]
pub struct Attention(NonNull<AtomicU32>);

// SAFETY: the value is an address, and all access through it is atomic.
unsafe impl Send for Attention {}
// SAFETY: the value is an address, and all access through it is atomic.
unsafe impl Sync for Attention {}

impl fmt::Debug for Attention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.word().load(Acquire);
        let notes = [
            (word == 0, "forked"),
            (word & Self::DEFERRED != 0, "destroyed queues wait"),
            (word & Self::GONE != 0, "device gone"),
            (word & Self::CORRUPT != 0, "corrupt"),
            (word & Self::OVERRUN != 0, "overrun"),
            (word & Self::HANDED_OVER != 0, "handed over"),
        ];
        f.debug_set().entries(notes.iter().filter(|note| note.0).map(|note| note.1)).finish()
    }
}

impl Attention {
    /// Set in every live word, so that it is never zero, as it is in a forked child.
    const LIVE: u32 = 1;
    const DEFERRED: u32 = 2;
    const GONE: u32 = 4;
    const CORRUPT: u32 = 8;
    const OVERRUN: u32 = 16;
    const HANDED_OVER: u32 = 32;

    /// Makes the word at `word` an attention word.
    ///
    /// # Safety
    /// `word` is valid and aligned, and used for nothing else, for as long as the value or a copy
    /// of it exists.
    pub unsafe fn new(word: NonNull<u32>) -> Self {
        let attention = Self(word.cast());
        attention.word().store(Self::LIVE, Release);
        attention
    }

    #[inline]
    fn word(&self) -> &AtomicU32 {
        // SAFETY: `new`'s caller promises that the word is valid and aligned while the value
        // exists.
        unsafe { self.0.as_ref() }
    }

    #[allow(deprecated, reason = "the new name, `try_update`, is younger than the oldest compiler")]
    fn set(self, bit: u32) {
        let _ = self.word().fetch_update(AcqRel, Acquire, |word| (word != 0).then_some(word | bit));
    }

    /// Notes that destroyed queues wait to be freed.
    pub fn set_deferred(self) {
        self.set(Self::DEFERRED);
    }

    /// Clears that note, and returns whether it was set.
    pub fn take_deferred(self) -> bool {
        let word = self.word().fetch_and(!Self::DEFERRED, AcqRel);
        word & Self::DEFERRED != 0
    }

    /// Notes that other code may consume the queue, so that the consumer index here is out of date.
    pub fn set_handed_over(self) {
        self.set(Self::HANDED_OVER);
    }

    /// Whether other code may consume the queue.
    pub fn is_handed_over(self) -> bool {
        self.word().load(Acquire) & Self::HANDED_OVER != 0
    }

    /// Clears that note: the ring polls the queue again.
    pub fn take_back(self) {
        self.word().fetch_and(!Self::HANDED_OVER, AcqRel);
    }

    /// Notes that the device is gone.
    pub fn set_gone(self) {
        self.set(Self::GONE);
    }

    /// Notes that the queue is corrupt.
    pub(crate) fn set_corrupt(self) {
        self.set(Self::CORRUPT);
    }

    /// Notes that the queue overran: the device writes no more CQEs.
    pub fn set_overrun(self) {
        self.set(Self::OVERRUN);
    }

    /// Whether the queue overran.
    pub fn is_overrun(self) -> bool {
        self.word().load(Acquire) & Self::OVERRUN != 0
    }

    /// Whether polling fails from now on: the device is gone, the queue is corrupt or overran, or
    /// the process was forked.
    pub fn is_failed(self) -> bool {
        let word = self.word().load(Acquire);
        word == 0 || word & (Self::GONE | Self::CORRUPT | Self::OVERRUN) != 0
    }

    /// Whether the device is gone.
    pub fn is_gone(self) -> bool {
        self.word().load(Acquire) & Self::GONE != 0
    }

    /// Whether this process is a forked child of the one that created the queue.
    pub fn is_forked(self) -> bool {
        self.word().load(Acquire) == 0
    }

    /// Whether there is anything to handle.
    #[inline]
    pub fn needed(&self) -> bool {
        self.word().load(Acquire) != Self::LIVE
    }
}
