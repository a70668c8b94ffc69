//! Posting at full rate.

use crate::failure::Failure;
use crate::link::Op;
use crate::link::side::Side;
use std::time::{Duration, Instant};

/// How requests are posted in a run at full rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pace {
    /// One of this many requests is signaled.
    pub(crate) signal_every: u64,
    /// Requests per doorbell.
    pub(crate) batch: u64,
}

/// The requests of a run, on every queue pair of an end.
pub(crate) struct Sender {
    op: Op,
    size: usize,
    pace: Pace,
    /// For each queue pair, the requests posted, and those to post in all.
    queues: Vec<(u64, u64)>,
    begun: Instant,
    /// From the first request to the last completion that was polled.
    elapsed: Duration,
}

impl Sender {
    /// Begins a run on `side`: of this many messages, or until it is stopped.
    pub(crate) fn new(
        side: &mut Side,
        op: Op,
        size: usize,
        pace: Pace,
        messages: Option<u64>,
    ) -> Self {
        side.restart();
        let count = side.queues() as u64;
        let share = |queue| match messages {
            Some(messages) => messages / count + u64::from(queue < messages % count),
            None => u64::MAX,
        };
        let queues = (0..count).map(|queue| (0, share(queue))).collect();
        Self { op, size, pace, queues, begun: Instant::now(), elapsed: Duration::ZERO }
    }

    /// Posts what may be outstanding, and polls completions; returns whether there were any.
    ///
    /// `room` is how many messages of this run a queue pair of the other end has receives for, if that
    /// is known: no more is sent.
    pub(crate) fn turn(
        &mut self,
        side: &mut Side,
        room: impl Fn(usize) -> Option<u64>,
    ) -> Result<bool, Failure> {
        let Self { op, size, pace, .. } = *self;
        let depth = u64::from(side.shape.depth);
        for (queue, (posted, goal)) in self.queues.iter_mut().enumerate() {
            let goal = *goal;
            let mut last = goal.min(side.sent(queue).saturating_add(depth));
            if op == Op::Send {
                last = room(queue).map_or(last, |room| last.min(room));
            }
            while *posted < last {
                let count = pace.batch.min(last - *posted);
                let signaled =
                    |id: u64| (id + 1).is_multiple_of(pace.signal_every) || id + 1 == goal;
                side.post(queue, op, size, *posted, count as usize, signaled)?;
                *posted += count;
            }
        }
        let progress = side.poll_sent()?;
        if progress {
            self.elapsed = self.begun.elapsed();
        }
        Ok(progress)
    }

    /// Posts no more than it takes for the last request to be signaled.
    pub(crate) fn stop(&mut self) {
        for (posted, goal) in &mut self.queues {
            let signaled = posted.is_multiple_of(self.pace.signal_every) || *posted == *goal;
            *goal = if signaled { *posted } else { *posted + 1 };
        }
    }

    /// Whether every request completed.
    pub(crate) fn is_done(&self, side: &Side) -> bool {
        let mut queues = self.queues.iter().enumerate();
        queues.all(|(queue, (posted, goal))| posted == goal && side.sent(queue) == *goal)
    }

    /// The number of requests that completed.
    pub(crate) fn sent(&self, side: &Side) -> u64 {
        (0..self.queues.len()).map(|queue| side.sent(queue)).sum()
    }

    /// From the first request to the last completion.
    pub(crate) fn elapsed(&self) -> Duration {
        self.elapsed
    }
}
