//! The peer, as seen by the end that measures.

use crate::failure::Failure;
use crate::link::exchange::{Exchange, silent, unexpected};
use crate::link::message::{Account, Message, Phase};
use crate::link::patience::Patience;
use crate::link::receiver::Receiver;
use crate::link::responder::Responder;
use crate::link::side::Side;
use std::time::Instant;

/// The other end.
pub(crate) trait Peer: Send {
    /// A run begins.
    fn begin(&mut self, phase: Phase) -> Result<(), Failure>;
    /// Runs the peer while this end, which receives with `here`, is idle; returns whether it made
    /// progress.
    fn turn(&mut self, here: &Receiver) -> Result<bool, Failure>;
    /// Number of messages of this run that one of its queue pairs has receives for, if that is
    /// known.
    fn room(&self, queue: usize) -> Option<u64>;
    /// Arms its completion queue if this end has to run it for an answer to the last of `sent`
    /// messages of this run; returns whether that is so.
    fn arm(&self, sent: u64) -> Result<bool, Failure>;
    /// Ends the run after `sent` messages of this end, which goes on receiving if `phase` goes both
    /// ways; returns the peer's counts.
    fn end(
        &mut self,
        phase: Phase,
        sent: u64,
        side: &mut Side,
        receiver: &mut Receiver,
    ) -> Result<Account, Failure>;
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

    fn turn(&mut self, here: &Receiver) -> Result<bool, Failure> {
        self.responder.turn(|queue| Some(here.room(queue)))
    }

    fn room(&self, queue: usize) -> Option<u64> {
        Some(self.responder.room(queue))
    }

    fn arm(&self, sent: u64) -> Result<bool, Failure> {
        let owes = self.responder.answered() < sent;
        if owes {
            self.responder.arm()?;
        }
        Ok(owes)
    }

    fn end(
        &mut self,
        _: Phase,
        sent: u64,
        side: &mut Side,
        receiver: &mut Receiver,
    ) -> Result<Account, Failure> {
        self.responder.end(sent, &self.patience, self.simulated, Some((side, receiver)))
    }

    fn part(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

/// In another process.
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

    fn turn(&mut self, _: &Receiver) -> Result<bool, Failure> {
        self.turns = self.turns.wrapping_add(1);
        // The only message that can arrive now is a failure.
        if self.turns.is_multiple_of(Self::LOOK)
            && let Some(message) = self.exchange.poll()?
        {
            return Err(unexpected(&message));
        }
        Ok(false)
    }

    fn room(&self, _: usize) -> Option<u64> {
        None
    }

    fn arm(&self, _: u64) -> Result<bool, Failure> {
        Ok(false)
    }

    fn end(
        &mut self,
        phase: Phase,
        sent: u64,
        side: &mut Side,
        receiver: &mut Receiver,
    ) -> Result<Account, Failure> {
        self.exchange.send(&Message::End(sent))?;
        let answer = if phase.both.is_some() {
            // Until the peer stops, it needs receives. A peer that has ended sends nothing.
            let (mut heard, patience) = (Instant::now(), self.exchange.patience());
            loop {
                while receiver.turn(side, false)?.is_some() {
                    heard = Instant::now();
                }
                match self.exchange.poll()? {
                    Some(message) => break message,
                    None if heard.elapsed() > patience => return Err(silent(patience)),
                    None => std::thread::yield_now(),
                }
            }
        } else {
            self.exchange.receive()?
        };
        match answer {
            Message::Account(account) => Ok(account),
            other => Err(unexpected(&other)),
        }
    }

    fn part(&mut self) -> Result<(), Failure> {
        self.exchange.send(&Message::Bye)
    }
}
