//! Completion queues that several threads use: one critical section per poll.

use super::{CompletionQueue, PollError};
use crate::error::Error;
use crate::link::CqId;
use mlx5_cq::{OwnedCompletion, WorkCompletion};
use mlx5_doorbell::{Lock, LockGuard};
use std::fmt;

/// A completion queue that several threads poll.
///
/// ```no_run
/// # fn f(cq: mlx5::CompletionQueue) -> Result<(), mlx5::PollError> {
/// let cq = cq.into_shared();
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| cq.poll(16, |wc| println!("{wc:?}")));
///     }
/// });
/// # Ok(())
/// # }
/// ```
#[repr(transparent)]
pub struct SharedCompletionQueue(Lock<CompletionQueue>);

impl fmt::Debug for SharedCompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut queue = f.debug_tuple("SharedCompletionQueue");
        // Formatted first: writing to `f` with the lock held could call code that needs the queue.
        match self.0.try_lock().map(|queue| format!("{queue:?}")) {
            Some(text) => queue.field(&format_args!("{text}")),
            None => queue.field(&format_args!("<locked>")),
        };
        queue.finish()
    }
}

impl CompletionQueue {
    /// Makes the queue usable by several threads.
    pub fn into_shared(self) -> SharedCompletionQueue {
        SharedCompletionQueue(Lock::new(self))
    }
}

impl SharedCompletionQueue {
    /// Passes up to `max` completions to `each` (`ibv_poll_cq`). See [`CompletionQueue::poll`].
    ///
    /// The queue is locked while `each` runs, so `each` must not use it otherwise. Do long work
    /// afterwards: see [`SharedCompletionQueue::poll_into`].
    #[inline]
    pub fn poll(
        &self,
        max: usize,
        each: impl FnMut(WorkCompletion<'_>),
    ) -> Result<usize, PollError> {
        self.0.lock().poll(max, each)
    }

    /// Like [`SharedCompletionQueue::poll`], but `each` may fail. See
    /// [`CompletionQueue::try_poll`].
    #[inline]
    pub fn try_poll<E: From<PollError>>(
        &self,
        max: usize,
        each: impl FnMut(WorkCompletion<'_>) -> Result<(), E>,
    ) -> Result<usize, E> {
        self.0.lock().try_poll(max, each)
    }

    /// Copies completions into `out` and returns their number.
    #[inline]
    pub fn poll_into(&self, out: &mut [OwnedCompletion]) -> Result<usize, PollError> {
        self.0.lock().poll_into(out)
    }

    /// Requests one event on the channel (`ibv_req_notify_cq`). See [`CompletionQueue::arm`].
    pub fn arm(&self, solicited_only: bool) -> Result<(), Error> {
        self.0.lock().arm(solicited_only)
    }

    /// Returns the identifier that events use.
    pub fn id(&self) -> CqId {
        self.0.lock().id()
    }

    /// Locks the queue, for example to create queue pairs that complete here.
    #[inline]
    pub fn lock(&self) -> LockGuard<'_, CompletionQueue> {
        self.0.lock()
    }

    /// Unwraps the queue, which is no longer shared.
    pub fn into_inner(self) -> CompletionQueue {
        self.0.into_inner()
    }
}
