//! The end that answers.

use crate::failure::Failure;
use crate::link::message::{Kind, Phase};
use crate::link::patience::Patience;
use crate::link::side::Side;
use crate::link::{Op, Transport};
use std::time::Duration;

/// Time to wait for messages that an unreliable transport may have lost.
const STRAGGLERS: Duration = Duration::from_millis(200);

/// Answers or counts messages.
pub(crate) struct Responder {
    side: Side,
    phase: Option<Phase>,
    /// Messages that came in the phase.
    received: u64,
    /// Receive requests to repost.
    consumed: u32,
}

impl Responder {
    /// A responder on `side`, which is connected.
    pub(crate) fn new(side: Side) -> Self {
        Self { side, phase: None, received: 0, consumed: 0 }
    }

    /// A run begins.
    pub(crate) fn begin(&mut self, phase: Phase) {
        self.phase = Some(phase);
        self.received = 0;
    }

    /// Messages that came in this run.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// Arms the completion queue.
    pub(crate) fn arm(&self) -> Result<(), Failure> {
        self.side.arm()
    }

    /// Handles pending completions; returns whether there were any.
    pub(crate) fn turn(&mut self) -> Result<bool, Failure> {
        self.side.poll_sent()?;
        let Some((count, length)) = self.side.poll_received()? else { return Ok(false) };
        self.received += u64::from(count);
        self.consumed += count;
        let answers = self.phase.is_some_and(|phase| phase.kind == Kind::Latency);
        // Repost receives in batches, unless only one message is in flight.
        if answers || self.consumed >= self.side.shape.receives / 4 {
            self.side.post_receives(self.consumed)?;
            self.consumed = 0;
        }
        if answers {
            for _ in 0..count {
                self.side.echo(length, self.received)?;
            }
        }
        Ok(true)
    }

    /// Ends the run: waits for messages in flight, and returns the number received.
    pub(crate) fn end(&mut self, patience: &Patience, shares: bool) -> Result<u64, Failure> {
        let Some(phase) = self.phase.take().filter(|phase| phase.op == Op::Send) else {
            return Ok(0);
        };
        let reliable = self.side.shape.transport == Transport::Rc;
        let mut patience =
            if reliable { patience.clone() } else { Patience::new(STRAGGLERS, shares) };
        while self.received < phase.messages {
            if self.turn()? {
                patience.refresh();
            } else if let Err(failure) = patience.wait("further messages") {
                return if reliable { Err(failure) } else { Ok(self.received) };
            }
        }
        Ok(self.received)
    }
}
