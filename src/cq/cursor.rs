//! A position among the completions of a queue that a caller keeps between calls.

use super::{CompletionQueue, PollError};
use mlx5_cq::{CompletionOpcode, WorkCompletion};
use std::ops::Deref;

/// A completion queue with a position among its completions, for polling in steps like
/// `ibv_start_poll`, `ibv_next_poll` and `ibv_end_poll`, by a caller that returns in between.
///
/// It owns the queue, so that nothing else can poll it meanwhile. [`CompletionCursor::queue`]
/// returns it by reference, [`CompletionCursor::into_inner`] by value; both end the poll. Methods
/// that need only `&`, such as those that create queue pairs, can be called directly.
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
    /// Number of completions of the current poll; zero if no poll was started.
    count: usize,
    /// Whether the last step found a completion.
    found: bool,
}

impl CompletionQueue {
    /// Converts it to a queue that is polled in steps.
    pub fn into_cursor(self) -> CompletionCursor {
        CompletionCursor { queue: self, count: 0, found: false }
    }
}

impl CompletionCursor {
    /// Starts a poll (`ibv_start_poll`) and returns the first completion. If there is none, no poll
    /// is started. A poll that was not ended is ended first.
    #[inline(always)]
    pub fn start(&mut self) -> Result<Option<WorkCompletion<'_>>, PollError> {
        let queue = &mut self.queue;
        if self.count == 0 && !queue.ring.needs_attention() {
            match queue.ring.advance_fast() {
                Some(true) => {
                    (self.count, self.found) = (1, true);
                    return Ok(Some(self.queue.ring.found()));
                }
                Some(false) => {
                    queue.found_nothing();
                    if !queue.ring.needs_attention() {
                        return Ok(None);
                    }
                }
                None => {}
            }
        }
        let found = self.start_slow()?;
        Ok(found.then(|| self.queue.ring.found()))
    }

    /// The slow path of [`CompletionCursor::start`]. Returns whether there is a completion.
    #[cold]
    #[inline(never)]
    fn start_slow(&mut self) -> Result<bool, PollError> {
        self.end();
        let queue = &mut self.queue;
        if queue.ring.needs_attention() {
            queue.attend()?;
        }
        if !queue.ring.advance() {
            queue.found_nothing();
            if queue.ring.needs_attention() {
                // The condition was noticed during this poll, so this poll handles it.
                queue.attend()?;
            }
            return Ok(false);
        }
        (self.count, self.found) = (1, true);
        Ok(true)
    }

    /// Returns the next completion (`ibv_next_poll`). `None` if there is none, or if no poll was
    /// started. The poll continues: a later call may find a completion.
    #[inline(always)]
    #[expect(clippy::should_implement_trait, reason = "an iterator's items cannot borrow from it")]
    pub fn next(&mut self) -> Option<WorkCompletion<'_>> {
        if self.count == 0 {
            return None;
        }
        // A queue pair may have been destroyed since the last call.
        let found = match self.queue.ring.needs_attention() {
            false => self.queue.ring.advance_fast(),
            true => None,
        };
        self.found = match found {
            Some(found) => found,
            None => self.next_slow(),
        };
        if !self.found {
            self.publish_passed();
            return None;
        }
        self.count += 1;
        Some(self.queue.ring.found())
    }

    /// Publishes the consumer index of a poll that continues and has found all completions: a
    /// caller that never ends its poll would otherwise fill the queue.
    #[cold]
    #[inline(never)]
    fn publish_passed(&mut self) {
        self.queue.ring.publish();
    }

    /// The slow path of [`CompletionCursor::next`]. `start` reports an error.
    #[cold]
    #[inline(never)]
    fn next_slow(&mut self) -> bool {
        let sound = !self.queue.ring.needs_attention() || self.queue.attend().is_ok();
        sound && self.queue.ring.advance()
    }

    /// Returns the completion that [`CompletionCursor::start`] or [`CompletionCursor::next`]
    /// returned last. `None` if they found none, and when the poll was ended.
    #[inline]
    pub fn current(&self) -> Option<WorkCompletion<'_>> {
        if self.found { Some(self.queue.ring.found()) } else { None }
    }

    /// Returns the opcode of the last completion, also after the end of the poll. Meaningless if
    /// there was none.
    #[inline]
    pub fn last_opcode(&self) -> CompletionOpcode {
        self.queue.ring.found_opcode()
    }

    /// Ends the poll (`ibv_end_poll`), and returns the number of its completions. The device may
    /// overwrite their CQEs from now on. Does nothing if no poll was started.
    #[inline(always)]
    pub fn end(&mut self) -> usize {
        let count = self.count;
        if count != 0 {
            (self.count, self.found) = (0, false);
            // The step that found no more completions has published them.
            if !self.queue.ring.is_published() {
                self.queue.ring.publish();
            }
        }
        count
    }

    /// Ends the poll and returns a reference to the queue.
    #[inline]
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

/// For methods that need no exclusive access.
impl Deref for CompletionCursor {
    type Target = CompletionQueue;

    fn deref(&self) -> &CompletionQueue {
        &self.queue
    }
}
