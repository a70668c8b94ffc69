//! `cargo xtask bench`: compares the fast paths with those of rdma-core's C provider and of others.

mod bars;
mod builds;
mod derived;
mod latency;
mod medians;
mod missed;
mod peer;
mod plot;
mod programs;
mod report;
mod rival;
mod threads;

use std::fs;
use std::path::{Path, PathBuf};

use crate::build::{Profile, program, shared_library};
use crate::failure::Failure;
use bars::{OVER_OURS, Verdict};
use builds::Build;
use latency::Latency;
use peer::Peer;
use programs::ProgramRow;
use rival::Rival;
use threads::Crowd;

/// Measure posting and polling against rdma-core's C provider and others, on one simulated device
///
/// Needs a C compiler, valgrind, libibverbs with the mlx5 provider, and, for its column, UCX with
/// its headers. Writes BENCHMARKS.md, benchmarks.json and plots.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Count only instructions, and only of the cases that have a bar
    #[arg(long)]
    short: bool,

    /// Fail if an instruction count exceeds its bar, or, where the bar is known to be missed,
    /// exceeds the recorded count
    #[arg(long)]
    check: bool,

    /// Measure only the programs of perftest, the pingpongs and UCX over either libibverbs; write
    /// nothing
    #[arg(long, conflicts_with_all = ["short", "check"])]
    programs: bool,

    /// Reuse the earlier results of other ways to build; measuring them builds the benchmark six
    /// times
    #[arg(long)]
    no_builds: bool,

    /// Output of `mlx5-bench beside LIBRARIES threads` on a machine with more cores, one file for
    /// each process. It is published beside this machine's results for threads, and stays published
    /// until a run names other files
    #[arg(long, value_name = "FILE", conflicts_with = "short")]
    threads: Vec<PathBuf>,

    /// Directory for the results, by default docs. With --short, only the plot of instructions is
    /// written, and only if this option is given
    #[arg(long, value_name = "DIRECTORY")]
    out: Option<PathBuf>,
}

/// Cases that the peer cannot run: the cases, the way, and why.
const CANNOT: &[(&[&str], &str, &str)] = &[(
    &["poll1_compressed", "poll16_compressed"],
    "rdma-core-poll_cq",
    "libmlx5 has no decoder for compressed completions",
)];

/// Timed rounds of operations that do not take long.
const ROUNDS: u32 = 1500;
/// Name of the file with all rows.
const JSON: &str = "benchmarks.json";
/// Rounds of 64 operations; each operation is timed.
const SAMPLED: u32 = 10_000;

/// Measurements of an operation.
#[derive(Clone, Debug)]
struct Row {
    case: String,
    who: String,
    mode: String,
    instructions: f64,
    /// Reads and writes that would miss the first-level data cache.
    misses: f64,
    nanoseconds: Option<f64>,
    /// Instructions by source file.
    places: Vec<(String, f64)>,
}

impl Row {
    fn is_peer(&self) -> bool {
        self.who.starts_with("rdma-core")
    }
}

/// Memory of one of many queues.
#[derive(Clone, Debug)]
struct Holding {
    case: String,
    who: String,
    mode: String,
    /// Bytes on the heap, then bytes in mappings.
    heap: f64,
    mapped: f64,
}

impl Holding {
    fn bytes(&self) -> f64 {
        self.heap + self.mapped
    }
}

/// Average number of cache lines that a post uses, from a trace of its reads and writes.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Lines {
    /// Lines of the queue pair.
    own: f64,
    /// Lines of the register.
    register: f64,
    /// Lines that every post uses.
    common: f64,
}

impl Lines {
    /// Parses the output of `mlx5-bench lines`.
    fn read(said: &str) -> Option<Self> {
        let numbers = said
            .trim()
            .split_once(": ")?
            .1
            .split(", ")
            .zip(LINES)
            .map(|(part, of)| part.strip_suffix(of)?.trim_end().parse::<f64>().ok());
        match numbers.collect::<Option<Vec<_>>>()?[..] {
            [own, register, common] => Some(Self { own, register, common }),
            _ => None,
        }
    }

    /// Fails if the queue pair's lines in the trace and the cache misses differ: then one of the
    /// two measurements is wrong.
    fn agree(self, measured: &Measured) -> Result<(), Failure> {
        for case in bars::of_lines() {
            let misses = measured.row(case, "mlx5", "single").map_or(0.0, |row| row.misses.round());
            if self.own.round() != misses {
                let what =
                    format!("{} lines of a queue pair, but {misses} misses of {case}", self.own);
                return Err(Failure::Output { program: "mlx5-bench lines".into(), what });
            }
        }
        Ok(())
    }
}

/// Text after each number of lines, in their order.
const LINES: [&str; 3] = ["of the queue pair", "of the register", "of every post"];

/// Compares the times of two rows: the median of the ratios of consecutive rounds.
#[derive(Clone, Debug)]
struct Pair {
    case: String,
    who: String,
    mode: String,
    peer: String,
    peer_mode: String,
    ratio: f64,
}

/// All measurements.
#[derive(Clone, Debug, Default)]
struct Measured {
    rows: Vec<Row>,
    programs: Vec<ProgramRow>,
    pairs: Vec<Pair>,
    holdings: Vec<Holding>,
    crowd: Crowd,
    /// The same on another machine.
    elsewhere: Crowd,
    latencies: Vec<Latency>,
    builds: Vec<Build>,
    lines: Lines,
    rounds: u32,
}

impl Measured {
    fn row(&self, case: &str, who: &str, mode: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.case == case && row.who == who && row.mode == mode)
    }

    fn row_mut(&mut self, case: &str, who: &str, mode: &str) -> Option<&mut Row> {
        self.rows.iter_mut().find(|row| row.case == case && row.who == who && row.mode == mode)
    }

    /// The peer's row with the lowest value of `by`, over all its ways.
    fn best_peer(&self, case: &str, mode: &str, by: impl Fn(&Row) -> f64) -> Option<&Row> {
        let peers = self.rows.iter().filter(|row| row.case == case && row.is_peer());
        peers.filter(|row| row.mode == mode).min_by(|a, b| by(a).total_cmp(&by(b)))
    }

    fn cases(&self) -> Vec<&str> {
        let mut cases: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !cases.contains(&row.case.as_str()) {
                cases.push(&row.case);
            }
        }
        cases
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.programs {
        return programs::measure().map(drop);
    }
    let bench = program("mlx5-bench", Profile::Release)?;
    let simulator = shared_library("mlx5-sim-preload", Profile::Release)?;
    let peer = Peer::build(bench, simulator)?;
    if arguments.short {
        let mut measured = peer.count(&bars::cases(), false)?;
        for row in peer.count(&bars::of_lines(), true)?.rows {
            if let Some(counted) = measured.row_mut(&row.case, &row.who, &row.mode) {
                counted.misses = row.misses;
            }
        }
        peer.lines()?.agree(&measured)?;
        derived::add(&mut measured);
        let verdicts = bars::verdicts(&measured);
        print(&verdicts);
        if let Some(out) = &arguments.out {
            make_directory(out)?;
            write(&out.join(plot::HOT_PATHS), &plot::hot_paths(&measured))?;
        }
        return judge(arguments, &verdicts);
    }
    // Steps that fail when a tool is missing come first.
    let out = arguments.out.clone().unwrap_or_else(|| "docs".into());
    let elsewhere = match &arguments.threads[..] {
        // The published rows, also if this run writes to another directory.
        [] => Crowd::measured_elsewhere(&Path::new("docs").join(JSON))?,
        files => Crowd::of_files(files)?,
    };
    let builds = match arguments.no_builds {
        true => builds::measured_before(&out.join(JSON)),
        false => builds::measure()?,
    };
    let mut measured = peer.count(&[], true)?;
    (measured.builds, measured.elsewhere) = (builds, elsewhere);
    measured.lines = peer.lines()?;
    measured.lines.agree(&measured)?;
    measured.programs = programs::measure()?;
    peer.time(ROUNDS, &[], &mut measured)?;
    measured.holdings = peer.memory()?;
    measured.crowd = peer.threads()?;
    measured.latencies = peer.latencies(SAMPLED)?;
    derived::add(&mut measured);
    let verdicts = bars::verdicts(&measured);
    print(&verdicts);
    make_directory(&out)?;
    write(&out.join(JSON), &report::json(&measured))?;
    write(&out.join("benchmarks.svg"), &plot::svg(&measured))?;
    write(&out.join(plot::HOT_PATHS), &plot::hot_paths(&measured))?;
    for (case, file) in latency::PLOTS {
        write(&out.join(file), &latency::svg(&measured.latencies, case))?;
    }
    write(&out.join("BENCHMARKS.md"), &report::markdown(&measured, &verdicts))?;
    judge(arguments, &verdicts)
}

/// With `--check`, fails if a bar does not hold that is to hold.
fn judge(arguments: &Arguments, verdicts: &[Verdict]) -> Result<(), Failure> {
    let over = verdicts.iter().filter(|verdict| verdict.fault().is_some()).count();
    if arguments.check && over != 0 { Err(Failure::Bars(over)) } else { Ok(()) }
}

fn print(verdicts: &[Verdict]) {
    let mut heading = "";
    for verdict in verdicts {
        let section = match verdict.rival {
            Rival::C => "beside the better of C's interfaces:",
            Rival::Floor { .. } => "beside the floor:",
            Rival::SameProgram => "the C API, over our library beside C's:",
            Rival::Case(_) => "beside others of ours:",
            Rival::Lines => "cache lines of a queue that is in no cache:",
            Rival::Nobody => "what libibverbs has no call for:",
        };
        if heading != section {
            println!("{section:40} {:>24} {:>24}", "instructions / bar", "ns / bar");
            heading = section;
        }
        let instructions = verdict.instructions.to_string();
        let nanoseconds = verdict.nanoseconds.map_or_else(String::new, |bar| bar.to_string());
        let known = verdict.missed.map_or("", |_| "known");
        let note = verdict.fault().unwrap_or(known);
        let (case, way) = (verdict.case, verdict.way());
        println!("{case:24} {way:15} {instructions:>24} {nanoseconds:>24}  {note}");
    }
}

fn make_directory(path: &Path) -> Result<(), Failure> {
    fs::create_dir_all(path).map_err(|error| Failure::File { path: path.to_owned(), error })
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| Failure::File { path: path.to_owned(), error })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str =
        "post_inline8_on_100: 6.00 of the queue pair, 1.00 of the register, 2.00 of every post\n";

    fn measured(misses: f64) -> Measured {
        let row = |case: &str| Row {
            case: case.to_owned(),
            who: "mlx5".into(),
            mode: "single".into(),
            instructions: 100.0,
            misses,
            nanoseconds: None,
            places: Vec::new(),
        };
        Measured { rows: bars::of_lines().into_iter().map(row).collect(), ..Measured::default() }
    }

    #[test]
    fn lines_of_a_trace_are_read_by_what_they_are_of() {
        let lines = Lines { own: 6.0, register: 1.0, common: 2.0 };
        assert_eq!(Lines::read(SAID), Some(lines));
        assert_eq!(Lines::read(&SAID.replace("the queue pair", "another")), None);
        assert_eq!(Lines::read("post_inline8_on_100: 6.00 of the queue pair"), None);
        assert_eq!(Lines::read(""), None);
    }

    #[test]
    fn a_trace_that_has_other_lines_than_the_cache_misses_fails() {
        assert!(!bars::of_lines().is_empty());
        let lines = Lines::read(SAID).expect("what it says");
        assert!(lines.agree(&measured(6.02)).is_ok());
        assert!(lines.agree(&measured(5.0)).is_err());
        assert!(lines.agree(&Measured::default()).is_err());
    }
}
