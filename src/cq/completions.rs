//! Completions one by one, and polls that can stop early.

use super::{CompletionQueue, PollError};
use crate::pools::QueuePairRecords;
use mlx5_cq::{OwnedCompletion, StridePoll, WorkCompletion};
use std::fmt;

impl CompletionQueue {
    /// Polls completions one by one.
    ///
    /// As an iterator it returns copies:
    ///
    /// ```no_run
    /// # fn f(cq: &mut mlx5::CompletionQueue) -> Result<(), Box<dyn std::error::Error>> {
    /// for completion in cq.completions()? {
    ///     println!("request {}: {:?}", completion.wr_id(), completion.status());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// [`Completions::next`] copies nothing: it returns completions that live until the next call.
    ///
    /// ```no_run
    /// # fn f(cq: &mut mlx5::CompletionQueue) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut completions = cq.completions()?;
    /// while let Some(wc) = completions.next() {
    ///     println!("{wc:?}");
    /// }
    /// completions.finish()?;
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn completions(&mut self) -> Result<Completions<'_>, PollError> {
        self.ready()?;
        // If this iterator is leaked, the next poll publishes the completions that it passed: an
        // empty poll publishes when it looks around, and the next iterator assumes that the one
        // before may have leaked.
        let countdown = self.ring.look_after(1);
        if countdown == 1 && !self.ring.is_published() {
            self.publish_leaked();
        }
        Ok(Completions { count: 0, countdown, lap: self.ring.lap(), queue: self })
    }

    #[cold]
    #[inline(never)]
    fn publish_leaked(&mut self) {
        self.ring.publish();
    }

    /// Handles what is to be handled before a poll.
    #[inline]
    pub(crate) fn ready(&mut self) -> Result<(), PollError> {
        if self.ring.needs_attention() {
            self.attend()?;
        }
        Ok(())
    }

    /// Returns the next completion of a burst. The queue was [ready](CompletionQueue::ready) at its
    /// start. [`CompletionQueue::end_burst`] ends it.
    ///
    /// # Safety
    /// The completion is not used after the next use of the queue.
    #[inline]
    pub(crate) unsafe fn next_of_burst<'other>(&mut self) -> Option<WorkCompletion<'other>> {
        let next = self.ring.next()?;
        // SAFETY: the types differ only in their lifetime. The caller promises not to use the
        // completion after the next use of the queue.
        Some(unsafe { std::mem::transmute::<WorkCompletion<'_>, WorkCompletion<'other>>(next) })
    }

    /// Publishes the completions of a burst.
    #[inline(always)]
    pub(crate) fn end_burst(&mut self) {
        if self.ring.is_published() {
            self.found_nothing();
        } else {
            self.ring.publish();
        }
    }

    /// Polls at most `most` packets that share receives. The queue is
    /// [ready](CompletionQueue::ready).
    ///
    /// # Safety
    /// As for [`Ring::poll_strides`](mlx5_cq::Ring::poll_strides).
    #[inline]
    pub(crate) unsafe fn poll_strides(&mut self, most: u32) -> StridePoll<'_, QueuePairRecords> {
        // SAFETY: the caller promises that nothing else polls, purges or moves the ring until the
        // poll is ended.
        unsafe { self.ring.poll_strides(most) }
    }

    /// See [`Ring::end_strides`](mlx5_cq::Ring::end_strides).
    #[inline(always)]
    pub(crate) fn end_strides(&mut self) -> (u32, Option<u64>) {
        let (count, ended) = self.ring.end_strides();
        if count == 0 {
            self.found_nothing();
        }
        (count, ended)
    }

    /// Like [`CompletionQueue::poll`], but `each` may fail: the poll ends at its first error and
    /// returns it. The completion at which `each` failed is consumed, as those before it are; the
    /// next poll starts with the one after it.
    ///
    /// ```no_run
    /// # use std::error::Error;
    /// # fn f(cq: &mut mlx5::CompletionQueue) -> Result<(), Box<dyn Error>> {
    /// let count = cq.try_poll(16, |completion| {
    ///     completion.status()?;
    ///     println!("request {} done", completion.wr_id());
    ///     Ok::<_, Box<dyn Error>>(())
    /// })?;
    /// println!("{count} done");
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn try_poll<E: From<PollError>>(
        &mut self,
        max: usize,
        mut each: impl FnMut(WorkCompletion<'_>) -> Result<(), E>,
    ) -> Result<usize, E> {
        let mut completions = self.completions()?;
        while completions.count < max {
            let Some(completion) = completions.next() else { break };
            each(completion)?;
        }
        Ok(completions.finish()?)
    }
}

/// Completions, one by one. See [`CompletionQueue::completions`].
pub struct Completions<'a> {
    queue: &'a mut CompletionQueue,
    count: usize,
    /// Number of empty polls until the queue would have looked around, if the poll stays on this
    /// lap.
    countdown: u32,
    lap: u32,
}

impl fmt::Debug for Completions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completions")
            .field("count", &self.count)
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}

impl Completions<'_> {
    /// Returns the next completion, if there is one.
    #[expect(clippy::should_implement_trait, reason = "an iterator's items cannot borrow from it")]
    #[inline]
    pub fn next(&mut self) -> Option<WorkCompletion<'_>> {
        let next = self.queue.ring.next();
        self.count += usize::from(next.is_some());
        next
    }

    /// Returns the number of completions, or the error if there were none because of it.
    pub fn finish(self) -> Result<usize, PollError> {
        let count = self.count;
        if count == 0 && self.queue.ring.needs_attention() {
            self.queue.attend()?;
        }
        Ok(count)
    }
}

impl Drop for Completions<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        let ring = &mut self.queue.ring;
        if ring.lap() == self.lap {
            ring.look_after(self.countdown);
        }
        if self.count == 0 {
            self.queue.found_nothing();
        } else {
            ring.publish();
        }
    }
}

impl<'a> IntoIterator for Completions<'a> {
    type Item = OwnedCompletion;
    type IntoIter = IntoCompletions<'a>;

    fn into_iter(self) -> IntoCompletions<'a> {
        IntoCompletions(self)
    }
}

/// An iterator over copies of completions. See [`CompletionQueue::completions`].
///
/// It ends when no completion is left. If that was due to an error, the next poll returns it.
#[derive(Debug)]
pub struct IntoCompletions<'a>(Completions<'a>);

impl Iterator for IntoCompletions<'_> {
    type Item = OwnedCompletion;

    #[inline]
    fn next(&mut self) -> Option<OwnedCompletion> {
        Some(self.0.next()?.to_owned())
    }
}
