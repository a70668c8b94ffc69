//! Sleeping until there are completions.

use super::CompletionQueue;
use crate::error::Error;
use crate::link::deadline_in;
use std::time::Duration;

impl CompletionQueue {
    /// Whether a poll would return something: completions, or an error.
    pub fn is_ready(&self) -> bool {
        // A forked child may not have the CQEs mapped, so the attention word is checked first.
        self.inner.attention.is_failed() || self.ring.has_next()
    }

    /// Sleeps until there is something to poll, for at most `timeout`, and returns whether there
    /// is. With `solicited_only`, only completions that failed or were sent with
    /// [`crate::SendFlags::SOLICITED`] end the sleep.
    ///
    /// Before it sleeps, it arms the queue and checks once more, so that no completion is missed.
    /// It fails if it would have to sleep and the queue has no
    /// [channel](super::CompletionQueueBuilder::channel). Any number of threads may wait on one
    /// channel, each for its own queue: a thread that reads the event of another queue wakes the
    /// thread that waits for it.
    ///
    /// ```no_run
    /// # fn f(cq: &mut mlx5::CompletionQueue) -> Result<(), Box<dyn std::error::Error>> {
    /// loop {
    ///     cq.wait(false, None)?;
    ///     cq.poll(16, |wc| println!("{wc:?}"))?;
    /// }
    /// # }
    /// ```
    pub fn wait(&mut self, solicited_only: bool, timeout: Option<Duration>) -> Result<bool, Error> {
        let deadline = deadline_in(timeout);
        while !self.is_ready() {
            let seen = self.inner.events.as_ref().map_or(0, |events| events.read());
            self.arm(solicited_only)?;
            if self.is_ready() {
                break;
            }
            let inner = &self.inner;
            let channel = inner.channel()?;
            let has_failed = || inner.attention.is_failed();
            let check = || inner.check_overrun();
            if !channel.wait_for(inner.id, seen, deadline, has_failed, check)? {
                return Ok(self.is_ready());
            }
        }
        Ok(true)
    }
}
