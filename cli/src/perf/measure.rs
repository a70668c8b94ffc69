//! Measuring, size by size.

use crate::failure::Failure;
use crate::link::{Initiator, Kind, Op, Pace, Phase, Rate, Transport, latency, rate};
use crate::numbers::{Size, Sizes, Times};
use crate::perf::progress::Progress;

/// Messages before those that are timed.
const WARM_UP: u64 = 100;
/// Bytes after which a rate is known well enough, unless the number of messages is given.
const ENOUGH: u64 = 256 << 20;

/// What to measure.
pub(crate) struct Plan {
    pub(crate) op: Op,
    pub(crate) transport: Transport,
    pub(crate) sizes: Sizes,
    /// How many messages are timed one by one, if any.
    pub(crate) latencies: Option<u64>,
    /// How many messages make a rate, if any.
    pub(crate) messages: Option<u64>,
    /// Whether it is this many for large messages, too.
    pub(crate) messages_fixed: bool,
    pub(crate) depth: u32,
    pub(crate) inline: usize,
    pub(crate) pace: Pace,
}

impl Plan {
    /// Messages that make the rate of a size.
    fn messages(&self, size: usize) -> Option<u64> {
        let messages = self.messages?;
        let enough = (ENOUGH / size.max(1) as u64).max(u64::from(self.depth) * 2);
        Some(if self.messages_fixed { messages } else { messages.min(enough) })
    }

    /// What the latencies are of, in words.
    pub(crate) fn method(&self) -> &'static str {
        match self.op {
            Op::Send => "half the round trip of a ping-pong",
            Op::Write | Op::Read => "from posting to polling the completion",
        }
    }
}

/// What was measured of a size.
pub(crate) struct Measurement {
    pub(crate) size: usize,
    pub(crate) latency: Option<Times>,
    pub(crate) rate: Option<Rate>,
}

/// Measures all that is planned.
pub(crate) fn all(initiator: &mut Initiator, plan: &Plan) -> Result<Vec<Measurement>, Failure> {
    let mut progress = Progress::new();
    let mut results = Vec::new();
    for (index, &size) in plan.sizes.0.iter().enumerate() {
        let what = format!("{} bytes, {} of {} sizes", Size(size), index + 1, plan.sizes.0.len());
        let latency = match plan.latencies {
            Some(count) => Some(latencies(initiator, plan.op, size, count, &mut progress, &what)?),
            None => None,
        };
        let rate = match plan.messages(size) {
            Some(messages) => {
                let phase = Phase { kind: Kind::Rate, op: plan.op, size, messages };
                Some(rate(initiator, phase, plan.pace, |done| {
                    progress.show(&what, "rate", done, messages);
                })?)
            }
            None => None,
        };
        results.push(Measurement { size, latency, rate });
    }
    Ok(results)
}

fn latencies(
    initiator: &mut Initiator,
    op: Op,
    size: usize,
    count: u64,
    progress: &mut Progress,
    what: &str,
) -> Result<Times, Failure> {
    let mut times = Times::new();
    let warm_up = WARM_UP.min(count);
    let phase = Phase { kind: Kind::Latency, op, size, messages: warm_up + count };
    latency(
        initiator,
        phase,
        |_, _| Ok(()),
        |_, index, elapsed| {
            if index >= warm_up {
                times.record(if op == Op::Send { elapsed / 2 } else { elapsed });
            }
            progress.show(what, "latency", index + 1, phase.messages);
            Ok(())
        },
    )?;
    Ok(times)
}
