//! The tag that a user gives a queue.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A number that the user gives a queue, and that each of the queue's completions has. Zero unless
/// it is set. It may be set while the queue is polled: completions that are read afterwards have
/// the new one.
#[derive(Default, Debug)]
pub struct UserTag(AtomicU64);

/// The tag of queues without one.
pub(crate) static NO_TAG: UserTag = UserTag::new(0);

impl UserTag {
    /// Creates a tag.
    pub const fn new(tag: u64) -> Self {
        Self(AtomicU64::new(tag))
    }

    /// Returns the tag.
    #[inline]
    pub fn get(&self) -> u64 {
        // Relaxed, because the tag publishes nothing else.
        self.0.load(Relaxed)
    }

    /// Sets the tag.
    pub fn set(&self, tag: u64) {
        self.0.store(tag, Relaxed);
    }
}
