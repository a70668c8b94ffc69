//! A place among the completions of a queue that a caller keeps between calls.

use super::{CompletionQueue, PollError};
use mlx5_cq::{CompletionOpcode, WorkCompletion};
use std::ops::Deref;

/// A completion queue, and a place among its completions: polling in steps, as
/// `ibv_start_poll`, `ibv_next_poll` and `ibv_end_poll` do, for a caller that returns in between.
///
/// It owns the queue, so that nothing else can poll it meanwhile. [`CompletionCursor::queue`] lends
/// it, [`CompletionCursor::into_inner`] gives it back; both end the poll. What needs only `&` is
/// called directly, as for creating queue pairs.
///
/// ```no_run
/// use mlx5::{CompletionCursor, CompletionQueue, PollError};
///
/// struct Session {
///     completions: CompletionCursor,
/// }
///
/// impl Session {
///     /// Goes to the next completion, from whichever call came before.
///     fn step(&mut self) -> Result<bool, PollError> {
///         if self.completions.next().is_some() {
///             return Ok(true);
///         }
///         self.completions.end();
///         Ok(self.completions.start()?.is_some())
///     }
///
///     /// Reads the completion that the last step went to.
///     fn wr_id(&self) -> Option<u64> {
///         Some(self.completions.current()?.wr_id())
///     }
/// }
/// ```
#[derive(Debug)]
pub struct CompletionCursor {
    queue: CompletionQueue,
    /// The poll that was started, if one was.
    poll: Option<Poll>,
}

/// A poll that was started.
#[derive(Debug)]
struct Poll {
    /// Whether the last step found a completion.
    found: bool,
    /// Completions so far.
    count: usize,
}

impl CompletionQueue {
    /// Makes it a queue that is polled in steps.
    pub fn into_cursor(self) -> CompletionCursor {
        CompletionCursor { queue: self, poll: None }
    }
}

impl CompletionCursor {
    /// Starts a poll (`ibv_start_poll`) and returns the first completion. If there is none, no poll
    /// was started. A poll that was not ended is ended first.
    #[inline]
    pub fn start(&mut self) -> Result<Option<WorkCompletion<'_>>, PollError> {
        self.end();
        let queue = &mut self.queue;
        if queue.ring.needs_attention() {
            queue.attend()?;
        }
        if !queue.ring.advance() {
            queue.found_nothing();
            if queue.ring.needs_attention() {
                // Noticed during this poll, so this poll handles it.
                queue.attend()?;
            }
            return Ok(None);
        }
        self.poll = Some(Poll { found: true, count: 1 });
        Ok(Some(queue.ring.found()))
    }

    /// Returns the next completion (`ibv_next_poll`). `None` if there is none, or if no poll was
    /// started. The poll goes on: a later call may find one.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend")]
    pub fn next(&mut self) -> Option<WorkCompletion<'_>> {
        let poll = self.poll.as_mut()?;
        // A queue pair may have been destroyed since the last call. An error is told by `start`.
        let ring = &self.queue.ring;
        let sound = !ring.needs_attention() || self.queue.attend().is_ok();
        poll.found = sound && self.queue.ring.advance();
        if !poll.found {
            return None;
        }
        poll.count += 1;
        Some(self.queue.ring.found())
    }

    /// Returns the completion that [`CompletionCursor::start`] or [`CompletionCursor::next`]
    /// returned last. `None` if they found none, and when the poll was ended.
    #[inline]
    pub fn current(&self) -> Option<WorkCompletion<'_>> {
        self.poll.as_ref().filter(|poll| poll.found).map(|_| self.queue.ring.found())
    }

    /// Returns what the last completion was, also when the poll was ended. Meaningless if there was none.
    #[inline]
    pub fn last_opcode(&self) -> CompletionOpcode {
        self.queue.ring.found_opcode()
    }

    /// Ends the poll (`ibv_end_poll`), and returns how many completions it had. The device may
    /// write over their CQEs from now on. Does nothing if no poll was started.
    #[inline]
    pub fn end(&mut self) -> usize {
        let Some(Poll { count, .. }) = self.poll.take() else { return 0 };
        self.queue.ring.publish();
        count
    }

    /// Ends the poll and lends the queue.
    pub fn queue(&mut self) -> &mut CompletionQueue {
        self.end();
        &mut self.queue
    }

    /// Ends the poll and returns the queue.
    pub fn into_inner(mut self) -> CompletionQueue {
        self.end();
        self.queue
    }
}

/// For what needs no exclusive access.
impl Deref for CompletionCursor {
    type Target = CompletionQueue;

    fn deref(&self) -> &CompletionQueue {
        &self.queue
    }
}
