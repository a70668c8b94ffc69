//! The peer, as seen by the end that measures.

use crate::failure::Failure;
use crate::link::exchange::{Exchange, unexpected};
use crate::link::message::{Message, Phase};
use crate::link::patience::Patience;
use crate::link::responder::Responder;

/// The other end.
pub(crate) trait Peer {
    /// A run begins.
    fn begin(&mut self, phase: Phase) -> Result<(), Failure>;
    /// Runs the peer while this end is idle; returns whether it made progress.
    fn turn(&mut self) -> Result<bool, Failure>;
    /// Messages that it received in the run, if known.
    fn received(&self) -> Option<u64>;
    /// Arms its completion queues.
    fn arm(&self) -> Result<(), Failure>;
    /// Ends the run; returns the number of messages received.
    fn end(&mut self) -> Result<u64, Failure>;
    /// Ends the session.
    fn part(&mut self) -> Result<(), Failure>;
}

/// In this process, driven by the same thread.
pub(crate) struct Local {
    pub(crate) responder: Responder,
    pub(crate) patience: Patience,
    /// Whether the device is simulated.
    pub(crate) simulated: bool,
}

impl Peer for Local {
    fn begin(&mut self, phase: Phase) -> Result<(), Failure> {
        self.responder.begin(phase);
        Ok(())
    }

    fn turn(&mut self) -> Result<bool, Failure> {
        self.responder.turn()
    }

    fn received(&self) -> Option<u64> {
        Some(self.responder.received())
    }

    fn arm(&self) -> Result<(), Failure> {
        self.responder.arm()
    }

    fn end(&mut self) -> Result<u64, Failure> {
        self.responder.end(&self.patience, self.simulated)
    }

    fn part(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

/// On another host.
pub(crate) struct Remote {
    pub(crate) exchange: Exchange,
    turns: u32,
}

impl Remote {
    /// Rounds between reads of the connection.
    const LOOK: u32 = 1 << 14;

    /// The other end of `exchange`.
    pub(crate) fn new(exchange: Exchange) -> Self {
        Self { exchange, turns: 0 }
    }
}

impl Peer for Remote {
    fn begin(&mut self, phase: Phase) -> Result<(), Failure> {
        self.exchange.send(&Message::Begin(phase))?;
        self.exchange.expect_ready()
    }

    fn turn(&mut self) -> Result<bool, Failure> {
        self.turns += 1;
        // The only message that can come now is a failure.
        if self.turns.is_multiple_of(Self::LOOK)
            && let Some(message) = self.exchange.poll()?
        {
            return Err(unexpected(&message));
        }
        Ok(false)
    }

    fn received(&self) -> Option<u64> {
        None
    }

    fn arm(&self) -> Result<(), Failure> {
        Ok(())
    }

    fn end(&mut self) -> Result<u64, Failure> {
        self.exchange.send(&Message::End)?;
        match self.exchange.receive()? {
            Message::Received(count) => Ok(count),
            other => Err(unexpected(&other)),
        }
    }

    fn part(&mut self) -> Result<(), Failure> {
        self.exchange.send(&Message::Bye)
    }
}
