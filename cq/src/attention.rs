//! The word that a poller looks at once per poll.

use core::ptr::NonNull;
use core::sync::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, Release},
};

/// The word that tells a poller of anything out of the ordinary; in memory that a fork wipes.
#[derive(Clone, Copy)]
pub struct Attention(NonNull<AtomicU32>);

// SAFETY: an address; all access through it is atomic.
unsafe impl Send for Attention {}
// SAFETY: as above.
unsafe impl Sync for Attention {}

impl Attention {
    /// Nothing to attend to. Not zero, which a child process finds after a fork.
    const LIVE: u32 = 1;
    const DEPARTURES: u32 = 2;
    const GONE: u32 = 4;
    const CORRUPT: u32 = 8;
    const OVERRUN: u32 = 16;

    /// Takes the word at `word`.
    ///
    /// # Safety
    /// `word` is valid, aligned and used for nothing else as long as the value or a copy of it is.
    pub unsafe fn new(word: NonNull<u32>) -> Self {
        let attention = Self(word.cast());
        attention.word().store(Self::LIVE, Release);
        attention
    }

    #[inline(always)]
    fn word(&self) -> &AtomicU32 {
        // SAFETY: valid and aligned by the contract of `new`.
        unsafe { self.0.as_ref() }
    }

    fn set(self, bit: u32) {
        let _ = self.word().fetch_update(AcqRel, Acquire, |word| (word != 0).then_some(word | bit));
    }

    /// There are departures to attend to.
    pub fn set_departures(self) {
        self.set(Self::DEPARTURES);
    }

    /// Takes the note that there are departures.
    pub fn take_departures(self) -> bool {
        let word = self.word().fetch_and(!Self::DEPARTURES, AcqRel);
        word & Self::DEPARTURES != 0
    }

    /// The device is gone.
    pub fn set_gone(self) {
        self.set(Self::GONE);
    }

    /// The queue holds something that no honest device writes.
    pub(crate) fn set_corrupt(self) {
        self.set(Self::CORRUPT);
    }

    /// The queue overran, and takes nothing more.
    pub fn set_overrun(self) {
        self.set(Self::OVERRUN);
    }

    /// Whether the queue overran.
    pub fn is_overrun(self) -> bool {
        self.word().load(Acquire) & Self::OVERRUN != 0
    }

    /// Whether there is anything that a poll will not end by attending to it.
    pub fn is_in_trouble(self) -> bool {
        let word = self.word().load(Acquire);
        word == 0 || word & (Self::GONE | Self::CORRUPT | Self::OVERRUN) != 0
    }

    /// Whether the device is gone.
    pub fn is_gone(self) -> bool {
        self.word().load(Acquire) & Self::GONE != 0
    }

    /// Whether this process is a child of the one that made the queue.
    pub fn is_forked(self) -> bool {
        self.word().load(Acquire) == 0
    }

    /// Whether there is anything to attend to.
    #[inline(always)]
    pub fn needed(&self) -> bool {
        self.word().load(Acquire) != Self::LIVE
    }
}
