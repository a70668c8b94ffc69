//! Receiving, on every queue pair of an end.

use crate::failure::Failure;
use crate::link::side::{Received, Side};

/// Counts messages and posts receives again.
pub(crate) struct Receiver {
    /// The messages of this run, by queue pair.
    received: Vec<u64>,
    /// Receives to post again, by queue pair.
    consumed: Vec<u32>,
    /// The receives of a queue pair.
    receives: u32,
}

impl Receiver {
    /// A receiver on `side`.
    pub(crate) fn new(side: &Side) -> Self {
        let queues = side.queues();
        Self { received: vec![0; queues], consumed: vec![0; queues], receives: side.shape.receives }
    }

    /// A run begins.
    pub(crate) fn begin(&mut self) {
        self.received.fill(0);
    }

    /// The messages of this run.
    pub(crate) fn total(&self) -> u64 {
        self.received.iter().sum()
    }

    /// Number of messages of this run, from the first one on, that a queue pair has receives for.
    pub(crate) fn room(&self, queue: usize) -> u64 {
        self.received[queue] + u64::from(self.receives - self.consumed[queue])
    }

    /// Polls messages.
    pub(crate) fn poll(&mut self, side: &mut Side) -> Result<Option<Received>, Failure> {
        let Self { received, consumed, .. } = self;
        side.poll_received(|queue| {
            received[queue] += 1;
            consumed[queue] += 1;
        })
    }

    /// Posts the receives of a queue pair again once `limit` of them are used.
    pub(crate) fn post(&mut self, side: &mut Side, limit: u32) -> Result<(), Failure> {
        for (queue, consumed) in self.consumed.iter_mut().enumerate() {
            if *consumed > 0 && *consumed >= limit {
                side.post_receives(queue, *consumed)?;
                *consumed = 0;
            }
        }
        Ok(())
    }

    /// Polls messages, and posts receives again: when a quarter of them is used, or `at_once`.
    pub(crate) fn turn(
        &mut self,
        side: &mut Side,
        at_once: bool,
    ) -> Result<Option<Received>, Failure> {
        let last = self.poll(side)?;
        if last.is_some() {
            self.post(side, if at_once { 1 } else { self.receives / 4 })?;
        }
        Ok(last)
    }
}
