//! Runs: one message at a time, or at full rate.

use crate::failure::Failure;
use crate::link::ends::Initiator;
use crate::link::message::Phase;
use crate::link::side::Side;
use crate::link::{Op, Transport};
use std::time::{Duration, Instant};

/// The result of a run at full rate.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Rate {
    /// Messages sent, written or read.
    pub(crate) messages: u64,
    /// Those of them that did not arrive.
    pub(crate) lost: u64,
    /// From the first request to the last completion.
    pub(crate) elapsed: Duration,
}

impl Rate {
    /// Messages that arrived in a second.
    pub(crate) fn per_second(&self) -> f64 {
        (self.messages - self.lost) as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Gigabits that arrived in a second.
    pub(crate) fn gbits(&self, size: usize) -> f64 {
        self.per_second() * size as f64 * 8.0 / 1e9
    }
}

/// How requests are posted in a run at full rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pace {
    /// One of this many requests is signaled.
    pub(crate) signal_every: u64,
    /// Requests per doorbell.
    pub(crate) batch: u64,
}

/// Times messages one by one. A send is answered with a send of the same size and timed as a round
/// trip; a write or read is timed from posting to its completion.
///
/// `before` prepares each message, given its number; `after` gets its time and the answer.
pub(crate) fn latency(
    initiator: &mut Initiator,
    phase: Phase,
    mut before: impl FnMut(&Side, u64) -> Result<(), Failure>,
    mut after: impl FnMut(&Side, u64, Duration) -> Result<(), Failure>,
) -> Result<(), Failure> {
    initiator.peer.begin(phase)?;
    let mut completed = 0;
    for index in 0..phase.messages {
        before(&initiator.side, index)?;
        let start = Instant::now();
        initiator.side.post(phase.op, phase.size, index, 1, |_| true)?;
        let elapsed = match phase.op {
            Op::Send => {
                let length = answer(initiator, &mut completed)?;
                let elapsed = start.elapsed();
                if length != phase.size {
                    let cause = format!("sent {} bytes, {length} came back", phase.size);
                    return Err(Failure::new(cause));
                }
                initiator.side.post_receives(1)?;
                elapsed
            }
            Op::Write | Op::Read => {
                complete(initiator, &mut completed, index + 1)?;
                start.elapsed()
            }
        };
        after(&initiator.side, index, elapsed)?;
    }
    complete(initiator, &mut completed, phase.messages)?;
    initiator.peer.end()?;
    Ok(())
}

/// Waits for an answer; returns its length.
fn answer(initiator: &mut Initiator, completed: &mut u64) -> Result<usize, Failure> {
    let Initiator { side, peer, waiter, .. } = initiator;
    waiter.patience.refresh();
    loop {
        let received = side.poll_received()?;
        if let Some(last) = side.poll_sent()? {
            *completed = last + 1;
        }
        if let Some((_, length)) = received {
            return Ok(length);
        }
        if !peer.turn()? {
            waiter.idle("an answer", || side.arm().and_then(|()| peer.arm()))?;
        }
    }
}

/// Waits until this many requests completed.
fn complete(initiator: &mut Initiator, completed: &mut u64, wanted: u64) -> Result<(), Failure> {
    let Initiator { side, peer, waiter, .. } = initiator;
    waiter.patience.refresh();
    while *completed < wanted {
        if let Some(last) = side.poll_sent()? {
            *completed = last + 1;
        } else if !peer.turn()? {
            waiter.idle("a completion", || side.arm().and_then(|()| peer.arm()))?;
        }
    }
    Ok(())
}

/// Posts at full rate. `progress` gets the number of completed requests.
pub(crate) fn rate(
    initiator: &mut Initiator,
    phase: Phase,
    pace: Pace,
    mut progress: impl FnMut(u64),
) -> Result<Rate, Failure> {
    initiator.peer.begin(phase)?;
    let Initiator { side, peer, waiter, .. } = initiator;
    let Phase { op, size, messages, .. } = phase;
    let (depth, receives) = (u64::from(side.shape.depth), u64::from(side.shape.receives));
    let signaled = |id: u64| (id + 1).is_multiple_of(pace.signal_every) || id + 1 == messages;
    let (mut posted, mut done) = (0, 0);
    waiter.patience.refresh();
    let start = Instant::now();
    while done < messages {
        // Do not post more than the peer has receives for, where that is known.
        let last = match (op, peer.received()) {
            (Op::Send, Some(received)) => messages.min(received + receives),
            _ => messages,
        };
        let last = last.min(done + depth);
        while posted < last {
            let count = pace.batch.min(last - posted);
            side.post(op, size, posted, count as usize, signaled)?;
            posted += count;
        }
        if let Some(last) = side.poll_sent()? {
            done = last + 1;
            waiter.patience.refresh();
            progress(done);
        } else if !peer.turn()? {
            waiter.patience.wait("completions")?;
        }
    }
    let elapsed = start.elapsed();
    let received = peer.end()?;
    let lost = match (op, side.shape.transport) {
        (Op::Send, Transport::Uc | Transport::Ud) => messages.saturating_sub(received),
        _ => 0,
    };
    Ok(Rate { messages, lost, elapsed })
}
