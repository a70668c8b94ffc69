//! Operations that can be done in rounds of many.

use crate::latency;
use crate::machine::kernel_time;
use std::time::Instant;

/// Requests or completions of most rounds; `ROUND` of `peer/bench.h`.
pub(crate) const ROUND: u64 = 64;

/// How queues are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// Ours, by one owner.
    Single,
    /// Ours, by several threads.
    Shared,
    /// The peer's, with its locks.
    Default,
    /// The peer's, told that there is one thread.
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
    /// Operations of a round.
    pub(crate) operations: u64,
    /// Does one; its first request has this identifier. Answers how many nanoseconds the
    /// operations took.
    pub(crate) run: Box<dyn FnMut(u64) -> u64>,
}

impl Round {
    /// What it is called where it was counted or timed.
    pub(crate) fn name(&self) -> String {
        format!("{}\t{}\t{}", self.case, self.who, self.mode.name())
    }
}

/// Times calls, or samples each; what each answers is looked at afterwards.
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

/// Times operations. What a simulated kernel takes is left out: it says nothing about a real one, and
/// is no provider's.
pub(crate) fn time(operations: impl FnOnce()) -> u64 {
    let before = kernel_time();
    let start = Instant::now();
    operations();
    let nanoseconds = start.elapsed().as_nanos() as u64;
    nanoseconds.saturating_sub(kernel_time() - before)
}

/// The one in the middle.
pub(crate) fn median(of: impl Iterator<Item = f64>) -> f64 {
    let mut of: Vec<f64> = of.collect();
    of.sort_unstable_by(f64::total_cmp);
    of[of.len() / 2]
}
