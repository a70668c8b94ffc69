//! Measuring, size by size.

use crate::failure::Failure;
use crate::link::{Goal, Initiator, Kind, Op, Pace, Phase, Rate, Transport, latency, rate};
use crate::numbers::{Size, Sizes, Times};
use crate::perf::gate::{Gate, Next};
use crate::perf::progress::Progress;
use std::fmt;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Messages before the timed ones.
pub(crate) const WARM_UP: u64 = 100;
/// The warm-up of a run with a given time lasts that time divided by this.
pub(crate) const WARM_UP_PART: u32 = 10;
/// Bytes after which a rate is exact enough, unless the number of messages is given.
const ENOUGH: u64 = 256 << 20;

/// The extent of a measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Amount {
    /// This number of messages, in all threads together.
    Messages(u64),
    /// All messages within this time.
    Time(Duration),
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Messages(count) => write!(f, "{count} messages"),
            Self::Time(time) => write!(f, "messages for {} s", time.as_secs_f64()),
        }
    }
}

/// The measurement to make.
pub(crate) struct Plan {
    pub(crate) op: Op,
    pub(crate) transport: Transport,
    /// Whether frames of Ethernet are measured, without a transport.
    pub(crate) raw: bool,
    pub(crate) sizes: Sizes,
    /// Extent of the latency measurement, message by message, if there is one.
    pub(crate) latencies: Option<Amount>,
    /// Extent of the rate measurement, if there is one.
    pub(crate) rates: Option<Amount>,
    /// Whether that extent also holds for large messages.
    pub(crate) rates_fixed: bool,
    pub(crate) depth: u32,
    pub(crate) inline: usize,
    pub(crate) pace: Pace,
    /// Queue pairs, in all threads together.
    pub(crate) qps: u32,
    pub(crate) threads: u32,
    /// Whether rates are measured both ways.
    pub(crate) bidirectional: bool,
}

impl Plan {
    /// Extent of the rate measurement of a size.
    pub(crate) fn rate(&self, size: usize) -> Option<Amount> {
        Some(match self.rates? {
            Amount::Messages(messages) if !self.rates_fixed => {
                let enough = ENOUGH / size.max(1) as u64;
                let fill = u64::from(self.depth) * u64::from(self.qps) * 2;
                Amount::Messages(messages.min(enough.max(fill)))
            }
            amount => amount,
        })
    }

    /// The name of the transport.
    pub(crate) fn transport_name(&self) -> &'static str {
        if self.raw { "raw" } else { self.transport.name() }
    }

    /// Definition of the latencies, in words.
    pub(crate) fn method(&self) -> &'static str {
        match self.op {
            Op::Send => "half the round trip of a ping-pong",
            _ => "from posting to polling the completion",
        }
    }
}

/// The results of a size.
pub(crate) struct Measurement {
    pub(crate) size: usize,
    pub(crate) latency: Option<Times>,
    pub(crate) rate: Option<Rate>,
    /// Whether nothing ended it early.
    pub(crate) whole: bool,
}

impl Measurement {
    /// Both, measured at the same time by two threads.
    fn beside(self, other: Self) -> Self {
        let latency = match (self.latency, other.latency) {
            (Some(mut one), Some(other)) => {
                one.merge(&other);
                Some(one)
            }
            (one, other) => one.or(other),
        };
        let rate = match (self.rate, other.rate) {
            (Some(one), Some(other)) => Some(one.beside(other)),
            (one, other) => one.or(other),
        };
        Self { size: self.size, latency, rate, whole: self.whole && other.whole }
    }
}

/// Makes all measurements of the plan, until `stop` is set.
pub(crate) fn all(
    ends: &mut [Initiator],
    plan: &Plan,
    stop: &AtomicBool,
) -> Result<Vec<Measurement>, Failure> {
    let gate = Gate::new(ends.len(), stop);
    let lanes: Vec<Result<Vec<Measurement>, Failure>> = thread::scope(|scope| {
        let gate = &gate;
        let lane = |(number, initiator)| {
            let mut lane = Lane { number, initiator, plan, gate, stop, progress: None };
            scope.spawn(move || {
                let mut leaving = Leaving { gate, stop, well: false };
                let done = lane.all();
                leaving.well = done.is_ok();
                done
            })
        };
        let lanes: Vec<_> = ends.iter_mut().enumerate().map(lane).collect();
        let join = |lane: thread::ScopedJoinHandle<'_, _>| {
            lane.join().unwrap_or_else(|panic| resume_unwind(panic))
        };
        lanes.into_iter().map(join).collect()
    });
    let mut results: Vec<Measurement> = Vec::new();
    let mut beside = None;
    for lane in lanes {
        match lane {
            Err(failure) if failure.cause() == BESIDE => beside = Some(failure),
            Err(failure) => return Err(failure),
            Ok(lane) if results.is_empty() => results = lane,
            Ok(lane) => {
                let both = results.into_iter().zip(lane);
                results = both.map(|(one, other)| one.beside(other)).collect();
            }
        }
    }
    beside.map_or(Ok(results), Err)
}

/// The goal of a thread's run.
pub(crate) fn goal_of(amount: Amount, stop: &AtomicBool) -> Goal<'_> {
    let (messages, duration) = match amount {
        Amount::Messages(count) => (Some(count), None),
        Amount::Time(time) => (None, Some(time)),
    };
    Goal { messages, duration, stop: Some(stop) }
}

/// A thread that fails, or panics, ends the runs of the others, which would wait for it.
struct Leaving<'a> {
    gate: &'a Gate<'a>,
    stop: &'a AtomicBool,
    well: bool,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if !self.well {
            self.gate.fail();
            self.stop.store(true, Ordering::SeqCst);
        }
    }
}

/// The failure of a thread that ended because another one failed.
const BESIDE: &str = "another thread failed";

/// The state of a measuring thread.
struct Lane<'a> {
    number: usize,
    initiator: &'a mut Initiator,
    plan: &'a Plan,
    gate: &'a Gate<'a>,
    stop: &'a AtomicBool,
    /// Of the first thread.
    progress: Option<Progress>,
}

impl Lane<'_> {
    fn all(&mut self) -> Result<Vec<Measurement>, Failure> {
        self.progress = (self.number == 0).then(Progress::new);
        let sizes = &self.plan.sizes.0;
        let mut results = Vec::new();
        for (index, &size) in sizes.iter().enumerate() {
            let first = index == 0;
            let what = format!("{} bytes, {} of {} sizes", Size(size), index + 1, sizes.len());
            let latency = match self.plan.latencies {
                Some(amount) => self.latencies(size, amount, first, &what)?,
                None => None,
            };
            let rate = match self.plan.rate(size) {
                Some(amount) => self.rate(size, amount, first, &what)?,
                None => None,
            };
            if latency.is_none() && rate.is_none() {
                break;
            }
            let whole = !self.stop.load(Ordering::SeqCst);
            results.push(Measurement { size, latency, rate, whole });
        }
        Ok(results)
    }

    /// Waits for the other threads; returns whether they go on. With the first size they always do:
    /// there is a result, if only of one message.
    fn goes_on(&self, first: bool) -> Result<bool, Failure> {
        match self.gate.wait() {
            Next::Go => Ok(true),
            Next::Stop => Ok(first),
            Next::Fail => Err(Failure::new(BESIDE)),
        }
    }

    /// This thread's share.
    fn goal(&self, amount: Amount) -> Goal<'static> {
        let threads = u64::from(self.plan.threads);
        match amount {
            Amount::Messages(count) => {
                let more = u64::from((self.number as u64) < count % threads);
                Goal::messages(count / threads + more)
            }
            Amount::Time(time) => Goal { messages: None, duration: Some(time), stop: None },
        }
    }

    /// `None` if it was not begun.
    fn latencies(
        &mut self,
        size: usize,
        amount: Amount,
        first: bool,
        what: &str,
    ) -> Result<Option<Times>, Failure> {
        let op = self.plan.op;
        let phase = Phase { kind: Kind::Latency, op, size, both: None };
        let goal = self.goal(amount);
        let warm_up = Goal {
            messages: Some(goal.messages.map_or(WARM_UP, |count| WARM_UP.min(count))),
            duration: goal.duration.map(|time| time / WARM_UP_PART),
            stop: Some(self.stop),
        };
        if !self.goes_on(first)? {
            return Ok(None);
        }
        latency(self.initiator, phase, warm_up, || (), |_, _| Ok(()), |_, _, _| Ok(()))?;
        if !self.goes_on(first)? {
            return Ok(None);
        }
        let mut times = Times::new();
        let mut spent = Duration::ZERO;
        let Self { initiator, gate, stop, progress, .. } = self;
        latency(
            initiator,
            phase,
            Goal { stop: Some(stop), ..goal },
            || _ = gate.wait(),
            |_, _| Ok(()),
            |_, index, elapsed| {
                times.record(if op == Op::Send { elapsed / 2 } else { elapsed });
                spent += elapsed;
                show(progress, what, "latency", goal, index + 1, spent);
                Ok(())
            },
        )?;
        Ok(Some(times))
    }

    /// `None` if it was not begun.
    fn rate(
        &mut self,
        size: usize,
        amount: Amount,
        first: bool,
        what: &str,
    ) -> Result<Option<Rate>, Failure> {
        let Plan { op, pace, bidirectional, .. } = *self.plan;
        let both = bidirectional.then_some(pace);
        let phase = Phase { kind: Kind::Rate, op, size, both };
        let goal = self.goal(amount);
        if !self.goes_on(first)? {
            return Ok(None);
        }
        let Self { initiator, gate, stop, progress, .. } = self;
        let measured = rate(
            initiator,
            phase,
            pace,
            Goal { stop: Some(stop), ..goal },
            || _ = gate.wait(),
            |done, elapsed| show(progress, what, "rate", goal, done, elapsed),
        )?;
        Ok(Some(measured))
    }
}

pub(crate) fn show(
    progress: &mut Option<Progress>,
    what: &str,
    step: &str,
    goal: Goal<'_>,
    messages: u64,
    elapsed: Duration,
) {
    let Some(progress) = progress else { return };
    let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    match goal.duration {
        Some(limit) => progress.show(what, step, milliseconds(elapsed), milliseconds(limit)),
        None => progress.show(what, step, messages, goal.messages.unwrap_or(messages)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_fails_or_panics_ends_the_others() {
        for panics in [false, true] {
            let stop = AtomicBool::new(false);
            let gate = Gate::new(2, &stop);
            thread::scope(|scope| {
                let waiting = scope.spawn(|| gate.wait());
                let ends = scope.spawn(|| {
                    let _leaving = Leaving { gate: &gate, stop: &stop, well: false };
                    assert!(!panics, "as it is meant to");
                });
                assert_eq!(ends.join().is_err(), panics);
                assert_eq!(waiting.join().expect("no panic"), Next::Fail);
            });
            // A run that goes on for a given time looks at this.
            assert!(stop.load(Ordering::SeqCst));
        }
        let stop = AtomicBool::new(false);
        let gate = Gate::new(1, &stop);
        drop(Leaving { gate: &gate, stop: &stop, well: true });
        assert_eq!((gate.wait(), stop.load(Ordering::SeqCst)), (Next::Go, false));
    }
}
