//! Runs: one message at a time, or at full rate.

use crate::failure::Failure;
use crate::link::ends::Initiator;
use crate::link::message::{Account, Phase};
use crate::link::responder::Responder;
use crate::link::sender::{Pace, Sender};
use crate::link::side::Side;
use crate::link::{Op, Transport};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Turns of a run at full rate between reads of the clock.
const TURNS: u32 = 64;

/// The conditions under which a run is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Goal<'a> {
    /// After this number of messages of this end, if given.
    pub(crate) messages: Option<u64>,
    /// After this time, if given.
    pub(crate) duration: Option<Duration>,
    /// When this is set, if given.
    pub(crate) stop: Option<&'a AtomicBool>,
}

impl Goal<'_> {
    /// A goal of `count` messages.
    pub(crate) fn messages(count: u64) -> Self {
        Self { messages: Some(count), duration: None, stop: None }
    }

    /// Whether a run that began at `begun` shall end early, at `now`.
    pub(crate) fn is_over(&self, begun: Instant, now: Instant) -> bool {
        self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
            || self.duration.is_some_and(|limit| now.duration_since(begun) >= limit)
    }
}

/// Messages that went one way.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Flow {
    /// Messages sent, written, read or changed.
    pub(crate) messages: u64,
    /// Those of them that did not arrive.
    pub(crate) lost: u64,
    /// From the first request to the last completion.
    pub(crate) elapsed: Duration,
}

impl Flow {
    /// Messages that arrived in a second.
    fn per_second(&self) -> f64 {
        (self.messages - self.lost) as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Both, at the same time on other queue pairs.
    fn beside(self, other: Self) -> Self {
        Self {
            messages: self.messages + other.messages,
            lost: self.lost + other.lost,
            elapsed: self.elapsed.max(other.elapsed),
        }
    }
}

/// The result of a run at full rate.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Rate {
    /// From this end.
    pub(crate) out: Flow,
    /// From the other end, if a run goes both ways.
    pub(crate) back: Option<Flow>,
}

impl Rate {
    /// Messages that arrived in a second, both ways.
    pub(crate) fn per_second(&self) -> f64 {
        self.out.per_second() + self.back.map_or(0.0, |back| back.per_second())
    }

    /// Gigabits that arrived in a second, both ways.
    pub(crate) fn gbits(&self, size: usize) -> f64 {
        self.per_second() * size as f64 * 8.0 / 1e9
    }

    /// Messages that did not arrive.
    pub(crate) fn lost(&self) -> u64 {
        self.out.lost + self.back.map_or(0, |back| back.lost)
    }

    /// Both, at the same time on other queue pairs.
    pub(crate) fn beside(self, other: Self) -> Self {
        let back = match (self.back, other.back) {
            (Some(one), Some(other)) => Some(one.beside(other)),
            (one, other) => one.or(other),
        };
        Self { out: self.out.beside(other.out), back }
    }
}

/// Times messages one by one, on the queue pairs in turn. A send is answered with a send of the
/// same size and timed as a round trip; other operations are timed from posting to their
/// completion.
///
/// `begin` runs when the other end is ready; `before` prepares each message, given its number;
/// `after` gets its time and the answer.
pub(crate) fn latency(
    initiator: &mut Initiator,
    phase: Phase,
    goal: Goal<'_>,
    begin: impl FnOnce(),
    mut before: impl FnMut(&Side, u64) -> Result<(), Failure>,
    mut after: impl FnMut(&Side, u64, Duration) -> Result<(), Failure>,
) -> Result<(), Failure> {
    initiator.peer.begin(phase)?;
    initiator.side.restart();
    initiator.receiver.begin();
    begin();
    let begun = Instant::now();
    let queues = initiator.side.queues();
    let mut index = 0;
    while goal.messages.is_none_or(|messages| index < messages) {
        let (queue, number) = (index as usize % queues, index / queues as u64);
        before(&initiator.side, index)?;
        let start = Instant::now();
        initiator.side.post(queue, phase.op, phase.size, number, 1, |_| true)?;
        let end = match phase.op {
            Op::Send => {
                let (length, end) = answer(initiator, index + 1)?;
                if length != phase.size {
                    let cause = format!("sent {} bytes, {length} came back", phase.size);
                    return Err(Failure::new(cause));
                }
                end
            }
            _ => {
                complete(initiator, queue, number + 1)?;
                Instant::now()
            }
        };
        after(&initiator.side, index, end - start)?;
        index += 1;
        if goal.is_over(begun, end) {
            break;
        }
    }
    for queue in 0..queues {
        let posted = (index + (queues - 1 - queue) as u64) / queues as u64;
        complete(initiator, queue, posted)?;
    }
    let Initiator { side, peer, receiver, .. } = initiator;
    peer.end(phase, index, side, receiver)?;
    Ok(())
}

/// Waits for the answer to the last of `sent` messages; returns its length, and the time of its
/// arrival.
fn answer(initiator: &mut Initiator, sent: u64) -> Result<(usize, Instant), Failure> {
    let Initiator { side, peer, waiter, receiver, .. } = initiator;
    waiter.patience.refresh();
    loop {
        if let Some(received) = receiver.poll(side)? {
            let end = Instant::now();
            receiver.post(side, 1)?;
            side.poll_sent()?;
            return Ok((received.length, end));
        }
        side.poll_sent()?;
        if !peer.turn(receiver)? {
            // The answer arrives only after the other end has received: arm one queue, that which
            // has to act next.
            waiter.idle("an answer", || match peer.arm(sent)? {
                true => Ok(()),
                false => side.arm_received(),
            })?;
        }
    }
}

/// Waits until this many requests of a queue pair completed.
fn complete(initiator: &mut Initiator, queue: usize, wanted: u64) -> Result<(), Failure> {
    let Initiator { side, peer, waiter, receiver, .. } = initiator;
    waiter.patience.refresh();
    while side.sent(queue) < wanted {
        if !side.poll_sent()? && !peer.turn(receiver)? {
            waiter.idle("a completion", || side.arm_sent())?;
        }
    }
    Ok(())
}

/// Posts at full rate. `begin` runs when the other end is ready; `progress` gets the number of
/// completed requests, and the time since then.
pub(crate) fn rate(
    initiator: &mut Initiator,
    phase: Phase,
    pace: Pace,
    goal: Goal<'_>,
    begin: impl FnOnce(),
    mut progress: impl FnMut(u64, Duration),
) -> Result<Rate, Failure> {
    initiator.peer.begin(phase)?;
    let Initiator { side, peer, waiter, receiver, .. } = initiator;
    receiver.begin();
    waiter.patience.refresh();
    begin();
    let begun = Instant::now();
    let mut sender = Sender::new(side, phase.op, phase.size, pace, goal.messages);
    let (mut turns, mut stopped) = (0_u32, false);
    while !sender.is_done(side) {
        let mut busy = sender.turn(side, |queue| peer.room(queue))?;
        if busy {
            progress(sender.sent(side), sender.elapsed());
        }
        if phase.both.is_some() {
            busy |= receiver.turn(side, false)?.is_some() | peer.turn(receiver)?;
        } else if !busy {
            busy = peer.turn(receiver)?;
        }
        if busy {
            waiter.patience.refresh();
        } else {
            waiter.patience.wait("completions")?;
        }
        turns = turns.wrapping_add(1);
        if !stopped && turns.is_multiple_of(TURNS) && goal.is_over(begun, Instant::now()) {
            sender.stop();
            stopped = true;
        }
    }
    let sent = sender.sent(side);
    let account = peer.end(phase, sent, side, receiver)?;
    let lossy = phase.op == Op::Send && side.shape.transport != Transport::Rc;
    let lost = |sent: u64, received| if lossy { sent.saturating_sub(received) } else { 0 };
    let out =
        Flow { messages: sent, lost: lost(sent, account.received), elapsed: sender.elapsed() };
    let back = match phase.both {
        None => None,
        Some(_) => {
            let received = remaining(initiator, phase.op, account)?;
            let (messages, elapsed) = (account.sent, account.elapsed);
            Some(Flow { messages, lost: lost(messages, received), elapsed })
        }
    };
    Ok(Rate { out, back })
}

/// Waits for the messages of the other end that are in flight; returns the number that arrived.
fn remaining(initiator: &mut Initiator, op: Op, account: Account) -> Result<u64, Failure> {
    let Initiator { side, waiter, receiver, simulated, .. } = initiator;
    let wanted = if op == Op::Send { account.sent } else { 0 };
    let mut patience = Responder::patience(side, &waiter.patience, *simulated);
    while receiver.total() < wanted {
        if receiver.turn(side, false)?.is_some() {
            patience.refresh();
        } else if let Err(failure) = patience.wait("further messages") {
            if side.shape.transport == Transport::Rc {
                return Err(failure);
            }
            break;
        }
    }
    Ok(receiver.total())
}
