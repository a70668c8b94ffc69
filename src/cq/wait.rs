//! Sleeping until there are completions.

use super::CompletionQueue;
use crate::error::Error;
use crate::link::deadline_in;
use std::time::Duration;

impl CompletionQueue {
    /// Whether a poll has something to tell: completions, or why there will be none.
    pub fn is_ready(&self) -> bool {
        // A child may not have the entries: that it is one is to be found out first.
        self.inner.attention.is_in_trouble() || self.ring.has_next()
    }

    /// Sleeps until there is something to poll, for so long or without end; answers whether there
    /// is. With `solicited_only`, only completions that were sent with
    /// [`crate::SendFlags::SOLICITED`], or that failed, wake it once it sleeps.
    ///
    /// It arms, looks once more, and only then sleeps, so that no completion is missed. Any number
    /// of threads may wait on one channel, each for a queue of its own; an event that one of them
    /// reads for another is handed to it.
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
            let Some(channel) = &inner.channel else { break };
            let in_trouble = || inner.attention.is_in_trouble();
            let look = || inner.check_overrun();
            if !channel.wait_for(inner.id, seen, deadline, in_trouble, look)? {
                return Ok(self.is_ready());
            }
        }
        Ok(true)
    }
}
