//! Measures the distribution of single operations' times, and finds the causes of the longest ones.
//!
//! The device works at the same time, on a core of its own. The kernel's counters of this thread
//! and this core are read before and after each round of operations; see [`Evidence`].

use crate::cores;
use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::Instant;

/// The likely cause of a long operation, in the order of the checks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// The kernel resolved a page fault in its round.
    PageFault,
    /// Another thread ran on this core in its round.
    Preempted,
    /// This core was interrupted in its round.
    Interrupt,
    /// It was the first of its round: its code and data were not in a near cache.
    First,
    /// It uses the ring slot that most long operations use: a slow path of the queue.
    SamePlace,
    /// None of these: a cache line that the device held, or the host of a virtual machine.
    Other,
}

impl Cause {
    pub(crate) const ALL: [Self; 6] = [
        Self::PageFault,
        Self::Preempted,
        Self::Interrupt,
        Self::First,
        Self::SamePlace,
        Self::Other,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::PageFault => "page fault",
            Self::Preempted => "another thread",
            Self::Interrupt => "interrupt",
            Self::First => "first of a round",
            Self::SamePlace => "slow path",
            Self::Other => "other",
        }
    }
}

/// The kernel's counters.
#[derive(Clone, Copy, Default, Debug)]
struct Evidence {
    /// Page faults of this thread, and context switches away from it.
    faults: i64,
    switches: i64,
    /// Interrupts of this core.
    interrupts: u64,
}

impl Evidence {
    fn since(self, before: Self) -> Self {
        Self {
            faults: self.faults - before.faults,
            switches: self.switches - before.switches,
            interrupts: self.interrupts - before.interrupts,
        }
    }
}

/// Reads the interrupts of one core.
struct InterruptCounters {
    interrupts: Option<File>,
    text: Vec<u8>,
    /// The core's column in the table.
    column: usize,
}

impl InterruptCounters {
    /// Longer than the interrupt table of any machine that runs this.
    const TEXT: usize = 1 << 16;

    fn new(core: usize) -> Self {
        let interrupts = File::open("/proc/interrupts").ok();
        let mut counters = Self { interrupts, text: vec![0; Self::TEXT], column: 0 };
        let name = format!("CPU{core}");
        let heading = counters.table().lines().next().unwrap_or_default().to_owned();
        counters.column = heading.split_ascii_whitespace().position(|one| one == name).unwrap_or(0);
        counters
    }

    fn table(&mut self) -> &str {
        let file = self.interrupts.as_ref();
        let length = file.and_then(|file| file.read_at(&mut self.text, 0).ok()).unwrap_or(0);
        std::str::from_utf8(&self.text[..length]).unwrap_or_default()
    }

    fn evidence(&mut self) -> Evidence {
        let column = self.column;
        let interrupts = interrupts(self.table(), column);
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: `usage` has room for a `rusage`, the size that the kernel writes, and zeros are a
        // valid one if the call fails.
        let usage = unsafe {
            libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
            usage.assume_init()
        };
        let faults = usage.ru_minflt + usage.ru_majflt;
        Evidence { faults, switches: usage.ru_nivcsw + usage.ru_nvcsw, interrupts }
    }
}

/// Number of interrupts in a core's column of `/proc/interrupts`.
fn interrupts(table: &str, column: usize) -> u64 {
    let of_line = |line: &str| -> Option<u64> {
        let (_, counts) = line.split_once(':')?;
        counts.split_ascii_whitespace().nth(column)?.parse().ok()
    };
    table.lines().filter_map(of_line).sum()
}

/// One operation.
#[derive(Clone, Copy, Debug)]
struct Sample {
    ticks: u64,
    round: u32,
    /// Index in its round, and among all samples.
    place: u32,
    number: u64,
}

/// State of the measurement while operations are sampled.
struct Sampling {
    counters: InterruptCounters,
    samples: Vec<Sample>,
    rounds: Vec<Evidence>,
}

thread_local! {
    /// Samples of this thread's operations, while it is sampled.
    static SAMPLING: RefCell<Option<Sampling>> = const { RefCell::new(None) };
}

/// Whether each operation is to be timed by itself.
pub(crate) fn is_sampled() -> bool {
    SAMPLING.with_borrow(Option::is_some)
}

/// Times each of `calls` calls; returns whether all succeeded. Must be called only while
/// [`is_sampled`] returns true.
pub(crate) fn sample(calls: usize, mut call: impl FnMut(usize) -> bool) -> bool {
    let mut good = true;
    SAMPLING.with_borrow_mut(|sampling| {
        let sampling = sampling.as_mut().expect("operations are sampled");
        let first = sampling.samples.len();
        let round = sampling.rounds.len() as u32;
        let blank = Sample { ticks: 0, round, place: 0, number: 0 };
        // The list has capacity, so no page of it is touched for the first time during the
        // measurement.
        sampling.samples.extend((0..calls).map(|k| Sample {
            place: k as u32,
            number: (first + k) as u64,
            ..blank
        }));
        let before = sampling.counters.evidence();
        for (k, sample) in sampling.samples[first..].iter_mut().enumerate() {
            let begin = ticks();
            good &= call(k);
            sample.ticks = ticks() - begin;
        }
        sampling.rounds.push(sampling.counters.evidence().since(before));
    });
    good
}

/// A counter of time, read in order with the instructions before and after it.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn ticks() -> u64 {
    use std::arch::x86_64::{_mm_lfence, _rdtsc};
    // SAFETY: every x86-64 processor has `lfence` and `rdtsc`, and they access no memory.
    unsafe {
        _mm_lfence();
        let now = _rdtsc();
        _mm_lfence();
        now
    }
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn ticks() -> u64 {
    let now;
    // SAFETY: reads a counter that Linux lets every process read; no memory is accessed.
    unsafe { std::arch::asm!("isb", "mrs {}, cntvct_el0", out(reg) now) };
    now
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn ticks() -> u64 {
    use std::sync::OnceLock;
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Nanoseconds of a tick.
fn nanoseconds_of_a_tick() -> f64 {
    const LONG_ENOUGH: u128 = 20_000_000;
    let (start, first) = (Instant::now(), ticks());
    while start.elapsed().as_nanos() < LONG_ENOUGH {}
    let (elapsed, last) = (start.elapsed(), ticks());
    elapsed.as_nanos() as f64 / (last - first) as f64
}

/// Measurements of an operation.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Distribution {
    pub(crate) samples: usize,
    /// The percentiles in nanoseconds, in the order of [`PERCENTILES`]; the last is the maximum.
    pub(crate) percentiles: [f64; PERCENTILES.len()],
    /// Number of operations in the tail, by cause.
    pub(crate) causes: [usize; Cause::ALL.len()],
}

/// The measured percentiles; the last is the maximum.
pub(crate) const PERCENTILES: [f64; 6] = [50.0, 90.0, 99.0, 99.9, 99.99, 100.0];
/// Index of the percentile above which operations form the tail.
const TAIL: usize = 3;

/// Samples operations on a core of its own. Calls `round` `rounds` times, with the number of the
/// round. The rings have `places` slots.
pub(crate) fn distribution(
    rounds: usize,
    operations: usize,
    places: u32,
    mut round: impl FnMut(u64),
) -> Distribution {
    let core = cores::usable()[0];
    let _pinned = cores::pin(core);
    let tick = nanoseconds_of_a_tick();
    // Runs everything before the first sample.
    (0..WARM_UP).for_each(&mut round);
    let blank = Sample { ticks: 0, round: 0, place: 0, number: 0 };
    // Written in advance, so that no page is touched for the first time later.
    let mut samples = vec![blank; rounds * operations];
    samples.clear();
    let sampling = Sampling {
        counters: InterruptCounters::new(core),
        samples,
        rounds: Vec::with_capacity(rounds),
    };
    SAMPLING.set(Some(sampling));
    (WARM_UP..WARM_UP + rounds as u64).for_each(&mut round);
    let sampling = SAMPLING.take().expect("operations were sampled");
    summary(&sampling.samples, &sampling.rounds, places, tick)
}

/// Rounds before the first sample.
const WARM_UP: u64 = 50;

fn summary(samples: &[Sample], rounds: &[Evidence], places: u32, tick: f64) -> Distribution {
    let mut sorted: Vec<u64> = samples.iter().map(|sample| sample.ticks).collect();
    sorted.sort_unstable();
    let at = |percentile: f64| {
        let rank = (sorted.len() as f64 * percentile / 100.0).ceil() as usize;
        sorted[rank.clamp(1, sorted.len()) - 1]
    };
    let threshold = at(PERCENTILES[TAIL]);
    let tail: Vec<Sample> = samples.iter().filter(|one| one.ticks > threshold).copied().collect();
    let mut causes = [0; Cause::ALL.len()];
    for cause in blame(&tail, rounds, places) {
        causes[cause as usize] += 1;
    }
    let percentiles = PERCENTILES.map(|percentile| at(percentile) as f64 * tick);
    Distribution { samples: samples.len(), percentiles, causes }
}

/// The cause of each operation in the tail. An event of a round explains only its longest
/// operations, as many as there were events.
fn blame(tail: &[Sample], rounds: &[Evidence], places: u32) -> Vec<Cause> {
    let mut left: Vec<Evidence> = rounds.to_vec();
    let mut order: Vec<usize> = (0..tail.len()).collect();
    order.sort_unstable_by_key(|&at| std::cmp::Reverse(tail[at].ticks));
    let mut causes = vec![Cause::Other; tail.len()];
    for at in order {
        let Sample { round, place, .. } = tail[at];
        let left = &mut left[round as usize];
        causes[at] = if left.faults > 0 {
            left.faults -= 1;
            Cause::PageFault
        } else if left.switches > 0 {
            left.switches -= 1;
            Cause::Preempted
        } else if left.interrupts > 0 {
            left.interrupts -= 1;
            Cause::Interrupt
        } else if place == 0 {
            Cause::First
        } else {
            Cause::Other
        };
    }
    // If a tenth of the tail has no other cause and uses one slot of the ring, that is no accident.
    let place = |at: usize| (tail[at].number % u64::from(places)) as usize;
    let mut counts = vec![0; places as usize];
    for at in (0..tail.len()).filter(|&at| causes[at] == Cause::Other) {
        counts[place(at)] += 1;
    }
    for (at, cause) in causes.iter_mut().enumerate() {
        let there = counts[place(at)];
        if *cause == Cause::Other && there >= 10 && there * 10 >= tail.len() {
            *cause = Cause::SamePlace;
        }
    }
    causes
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Evidence = Evidence { faults: 0, switches: 0, interrupts: 0 };

    fn sample(ticks: u64, round: u32, place: u32) -> Sample {
        Sample { ticks, round, place, number: u64::from(round) * 64 + u64::from(place) }
    }

    #[test]
    fn interrupts_are_those_of_one_core() {
        let table = "           CPU0       CPU1\n  1:         10          7   IO-APIC  timer\n\
                     LOC:        100        200   Local timer interrupts\nERR:          0\n";
        assert_eq!(interrupts(table, 0), 110);
        assert_eq!(interrupts(table, 1), 207);
    }

    #[test]
    fn an_event_explains_the_longest_of_its_round() {
        let rounds = [Evidence { interrupts: 1, ..QUIET }, Evidence { faults: 1, ..QUIET }, QUIET];
        let tail = [sample(50, 0, 3), sample(90, 0, 5), sample(70, 1, 0), sample(60, 2, 0)];
        let expected = [Cause::Other, Cause::Interrupt, Cause::PageFault, Cause::First];
        assert_eq!(blame(&tail, &rounds, 256), expected);
    }

    #[test]
    fn long_calls_at_one_position_of_the_ring_are_a_slow_path() {
        let rounds = vec![QUIET; 400];
        // Every fourth round starts a lap.
        let tail: Vec<Sample> = (0..20).map(|lap| sample(50, lap * 4, 63)).collect();
        assert!(blame(&tail, &rounds, 256).iter().all(|cause| *cause == Cause::SamePlace));
        let tail: Vec<Sample> = (0..20).map(|i| sample(50, i * 5, 3 * i + 1)).collect();
        assert!(blame(&tail, &rounds, 256).iter().all(|cause| *cause == Cause::Other));
    }

    #[test]
    fn percentiles_are_those_of_all_samples_and_causes_those_of_the_longest() {
        let samples: Vec<Sample> =
            (0..10_000).map(|i| sample(u64::from(i) + 1, i / 64, i % 64)).collect();
        let rounds = vec![QUIET; 157];
        let found = summary(&samples, &rounds, 256, 2.0);
        assert_eq!(found.percentiles, [10_000.0, 18_000.0, 19_800.0, 19_980.0, 19_998.0, 20_000.0]);
        assert_eq!(found.causes.iter().sum::<usize>(), 10);
    }

    #[test]
    fn samples_cover_every_call_of_every_round() {
        let mut calls = 0;
        let found = distribution(3, 4, 256, |_| {
            if is_sampled() {
                assert!(super::sample(4, |_| {
                    calls += 1;
                    true
                }));
            }
        });
        assert_eq!((found.samples, calls), (12, 12));
        assert!(!is_sampled());
    }
}
