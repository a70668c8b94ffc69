//! The end that answers or counts messages.

use crate::failure::Failure;
use crate::link::message::{Account, Kind, Phase};
use crate::link::patience::Patience;
use crate::link::receiver::Receiver;
use crate::link::sender::Sender;
use crate::link::side::Side;
use crate::link::{Op, Transport};
use std::time::Duration;

/// Time to wait for messages that an unreliable transport may have lost.
pub(crate) const STRAGGLERS: Duration = Duration::from_millis(200);

/// Answers or counts messages, and sends its own in a run that goes both ways.
pub(crate) struct Responder {
    side: Side,
    receiver: Receiver,
    sender: Option<Sender>,
    phase: Option<Phase>,
    /// The number of answers of the run, by queue pair.
    answers: Vec<u64>,
}

impl Responder {
    /// A responder on `side`, which is connected.
    pub(crate) fn new(side: Side) -> Self {
        let (receiver, answers) = (Receiver::new(&side), vec![0; side.queues()]);
        Self { side, receiver, sender: None, phase: None, answers }
    }

    /// A run begins.
    pub(crate) fn begin(&mut self, phase: Phase) {
        self.phase = Some(phase);
        self.receiver.begin();
        self.answers.fill(0);
        self.side.restart();
        let side = &mut self.side;
        self.sender = phase.both.map(|pace| Sender::new(side, phase.op, phase.size, pace, None));
    }

    /// Number of messages of this run, from the first one on, that a queue pair has receives for.
    pub(crate) fn room(&self, queue: usize) -> u64 {
        self.receiver.room(queue)
    }

    /// Whether this end sends messages of its own in this run.
    pub(crate) fn sends(&self) -> bool {
        self.sender.is_some()
    }

    /// Number of messages of this run that it has answered.
    pub(crate) fn answered(&self) -> u64 {
        self.answers.iter().sum()
    }

    /// Arms the completion queue of receives. Completions of answers are polled with the next
    /// message.
    pub(crate) fn arm(&self) -> Result<(), Failure> {
        self.side.arm_received()
    }

    /// Handles pending completions; returns whether there were any. `room` is the number of
    /// messages of this run that a queue pair of the other end has receives for, if that is known.
    pub(crate) fn turn(&mut self, room: impl Fn(usize) -> Option<u64>) -> Result<bool, Failure> {
        let sent = match &mut self.sender {
            Some(sender) => sender.turn(&mut self.side, room)?,
            None => {
                self.side.poll_sent()?;
                false
            }
        };
        let answers = self.phase.is_some_and(|phase| phase.kind == Kind::Latency);
        let Some(came) = self.receiver.turn(&mut self.side, answers)? else { return Ok(sent) };
        if answers {
            for _ in 0..came.count {
                let number = &mut self.answers[came.queue];
                self.side.echo(came.queue, came.length, *number)?;
                *number += 1;
            }
        }
        Ok(true)
    }

    /// Time limit for messages in flight.
    pub(crate) fn patience(side: &Side, patience: &Patience, simulated: bool) -> Patience {
        match side.shape.transport {
            Transport::Rc => patience.clone(),
            Transport::Uc | Transport::Ud => Patience::new(STRAGGLERS, simulated),
        }
    }

    /// Ends the run: sends no more, waits for the `sent` messages of the other end and for this
    /// end's requests. `here` is the other end, if it is in this process: it receives in the
    /// meantime.
    pub(crate) fn end(
        &mut self,
        sent: u64,
        patience: &Patience,
        simulated: bool,
        mut here: Option<(&mut Side, &mut Receiver)>,
    ) -> Result<Account, Failure> {
        let Some(phase) = self.phase else { return Ok(Account::default()) };
        let reliable = self.side.shape.transport == Transport::Rc;
        let mut wait = Self::patience(&self.side, patience, simulated);
        let wanted = if phase.op == Op::Send { sent } else { 0 };
        if let Some(sender) = &mut self.sender {
            sender.stop();
        }
        while self.receiver.total() < wanted || !self.is_idle() {
            let room = |queue| here.as_ref().map(|(_, receiver)| receiver.room(queue));
            let mut progress = self.turn(room)?;
            if let Some((side, receiver)) = here.as_mut().filter(|_| phase.both.is_some()) {
                progress |= receiver.turn(side, false)?.is_some();
            }
            if progress {
                wait.refresh();
            } else if let Err(failure) = wait.wait("further messages") {
                if reliable || !self.is_idle() {
                    return Err(failure);
                }
                break;
            }
        }
        self.phase = None;
        let sender = self.sender.take();
        Ok(Account {
            received: self.receiver.total(),
            sent: sender.as_ref().map_or(0, |sender| sender.sent(&self.side)),
            elapsed: sender.map_or(Duration::ZERO, |sender| sender.elapsed()),
        })
    }

    /// Whether every request of this end completed.
    fn is_idle(&self) -> bool {
        match &self.sender {
            Some(sender) => sender.is_done(&self.side),
            None => {
                let mut queues = self.answers.iter().enumerate();
                queues.all(|(queue, answers)| self.side.sent(queue) == *answers)
            }
        }
    }
}
