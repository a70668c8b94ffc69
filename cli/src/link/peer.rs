//! The other end, as the one that measures sees it.

use crate::failure::Failure;
use crate::link::exchange::{Exchange, unexpected};
use crate::link::message::{Message, Phase};
use crate::link::patience::Patience;
use crate::link::responder::Responder;

/// The other end.
pub(crate) trait Peer {
    /// A run begins.
    fn begin(&mut self, phase: Phase) -> Result<(), Failure>;
    /// Lets it do its part, while this end has nothing to do; says whether there was anything.
    fn turn(&mut self) -> Result<bool, Failure>;
    /// Messages that it received in the run, if that can be known now.
    fn received(&self) -> Option<u64>;
    /// Asks for an event when it has something to do.
    fn arm(&self) -> Result<(), Failure>;
    /// The run is over; gives how many messages it received.
    fn end(&mut self) -> Result<u64, Failure>;
    /// There will be no more runs.
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
    /// Turns between looks at the conversation.
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
        // It has nothing to say now, but that it failed.
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
