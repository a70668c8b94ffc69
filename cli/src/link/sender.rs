//! Posting at full rate.

use crate::failure::Failure;
use crate::link::Op;
use crate::link::side::Side;
use std::time::{Duration, Instant};

/// The numbers by which requests are posted in a run at full rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pace {
    /// One of this many requests is signaled.
    pub(crate) signal_every: u64,
    /// Requests per doorbell.
    pub(crate) batch: u64,
    /// Requests outstanding on each queue pair.
    pub(crate) depth: u64,
}

/// The requests of a run, on every queue pair of an end.
pub(crate) struct Sender {
    op: Op,
    size: usize,
    pace: Pace,
    /// For each queue pair, the requests posted, and those to post in all.
    queues: Vec<(u64, u64)>,
    /// When the first request was posted.
    begun: Option<Instant>,
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
        Self { op, size, pace, queues, begun: None, elapsed: Duration::ZERO }
    }

    /// Posts the requests that may be outstanding, and polls completions; returns whether there
    /// were any.
    ///
    /// `room` is the number of messages of this run that a queue pair of the other end has receives
    /// for, if that is known: no more are sent.
    pub(crate) fn turn(
        &mut self,
        side: &mut Side,
        room: impl Fn(usize) -> Option<u64>,
    ) -> Result<bool, Failure> {
        let Self { op, size, pace, .. } = *self;
        let depth = pace.depth.min(side.shape.depth.into());
        let begun = *self.begun.get_or_insert_with(Instant::now);
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
            self.elapsed = begun.elapsed();
        }
        Ok(progress)
    }

    /// Posts only until the last request is a signaled one.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{Transport, ends, tests};
    use mlx5_sim::{SimConfig, Simulator};

    /// In step mode the device does nothing by itself, so that the outstanding requests can be
    /// counted.
    #[test]
    fn no_more_requests_are_outstanding_than_are_asked_for() {
        let simulator = Simulator::new(SimConfig::new().step(true));
        let shape = tests::shape(Transport::Rc);
        let end = ends::both(&tests::port(&simulator), shape, tests::waiter());
        let mut end = end.expect("two ends");
        let side = &mut end.side;
        for depth in [1, 3, 16, 100] {
            let pace = Pace { signal_every: 1, batch: 4, depth };
            let mut sender = Sender::new(side, Op::Write, 8, pace, Some(200));
            while !sender.is_done(side) {
                let before = sender.sent(side);
                sender.turn(side, |_| None).expect("posted");
                let outstanding = sender.queues[0].0 - before;
                let room = depth.min(u64::from(shape.depth)).min(200 - before);
                assert_eq!(outstanding, room, "of {depth}, after {before}");
                simulator.run_until_idle();
                let _ = side.poll_sent().expect("completed");
            }
        }
    }

    #[test]
    fn the_time_begins_with_the_first_request() {
        let simulator = Simulator::new(SimConfig::new().step(true));
        let end =
            ends::both(&tests::port(&simulator), tests::shape(Transport::Rc), tests::waiter());
        let mut end = end.expect("two ends");
        let pace = Pace { signal_every: 1, batch: 1, depth: 1 };
        let created = Instant::now();
        let mut sender = Sender::new(&mut end.side, Op::Write, 8, pace, Some(1));
        std::thread::sleep(Duration::from_millis(50));
        while !sender.is_done(&end.side) {
            sender.turn(&mut end.side, |_| None).expect("posted");
            simulator.run_until_idle();
        }
        assert!(sender.elapsed() + Duration::from_millis(50) <= created.elapsed());
    }
}
