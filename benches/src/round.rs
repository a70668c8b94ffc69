//! Runs operations in rounds of many.

use crate::latency;
use crate::machine::kernel_time;
use std::time::Instant;

/// Requests or completions in most rounds; `ROUND` of `peer/bench.h`.
pub(crate) const ROUND: u64 = 64;

/// Owner and locking of the queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// Our queues, with one owner.
    Single,
    /// Our queues, shared by threads.
    Shared,
    /// The peer's queues, with locks.
    Default,
    /// The peer's queues, in its single-threaded mode.
    SingleThreaded,
}

impl Mode {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Shared => "shared",
            Self::Default => "default",
            Self::SingleThreaded => "single_threaded",
        }
    }
}

/// An operation that can be done in rounds.
pub(crate) struct Round {
    pub(crate) case: String,
    pub(crate) who: String,
    pub(crate) mode: Mode,
    /// Number of operations in a round.
    pub(crate) operations: u64,
    /// Runs a round whose first request has the given identifier. Returns the nanoseconds of the
    /// operations.
    pub(crate) run: Box<dyn FnMut(u64) -> u64>,
}

impl Round {
    /// Name in the output.
    pub(crate) fn name(&self) -> String {
        format!("{}\t{}\t{}", self.case, self.who, self.mode.name())
    }
}

/// Times the calls together, or samples each one; asserts afterwards that all succeeded.
pub(crate) fn timed(calls: usize, mut call: impl FnMut(usize) -> bool) -> u64 {
    if latency::is_sampled() {
        assert!(latency::sample(calls, call), "room, and something to poll");
        return 0;
    }
    let mut good = true;
    let nanoseconds = time(|| {
        for k in 0..calls {
            good &= call(k);
        }
    });
    assert!(good, "room, and something to poll");
    nanoseconds
}

/// Times operations. The time of a simulated kernel is subtracted: it differs from a real one's,
/// and belongs to no provider.
pub(crate) fn time(operations: impl FnOnce()) -> u64 {
    let before = kernel_time();
    let start = Instant::now();
    operations();
    let nanoseconds = start.elapsed().as_nanos() as u64;
    nanoseconds.saturating_sub(kernel_time() - before)
}

/// The median.
pub(crate) fn median(of: impl Iterator<Item = f64>) -> f64 {
    let mut of: Vec<f64> = of.collect();
    of.sort_unstable_by(f64::total_cmp);
    of[of.len() / 2]
}
