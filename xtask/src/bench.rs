//! `cargo xtask bench`: the hot paths beside those of rdma-core's C provider.

mod bars;
mod peer;
mod plot;
mod profile;
mod report;

use std::fs;
use std::path::{Path, PathBuf};

use crate::build::{Profile, program, shared_library};
use crate::failure::Failure;
use bars::Verdict;
use peer::Peer;

/// Measure posting and polling beside rdma-core's C provider, on one simulated device
///
/// Needs a C compiler, valgrind and libibverbs with the mlx5 provider. Writes BENCHMARKS.md,
/// benchmarks.json and benchmarks.svg.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Time fewer rounds
    #[arg(long)]
    short: bool,

    /// Fail where an instruction count is over its bar
    #[arg(long)]
    check: bool,

    /// Where to write what was measured
    #[arg(long, value_name = "DIRECTORY", default_value = "docs")]
    out: PathBuf,
}

/// What was measured of an operation.
#[derive(Clone, Debug)]
struct Row {
    case: String,
    who: String,
    mode: String,
    instructions: f64,
    nanoseconds: f64,
    /// Where the instructions are: source file, and how many.
    places: Vec<(String, f64)>,
}

impl Row {
    fn is_peer(&self) -> bool {
        self.who.starts_with("rdma-core")
    }
}

/// How the times of two rows compare: the median of the ratios of rounds that followed each other.
#[derive(Clone, Debug)]
struct Pair {
    case: String,
    mode: String,
    peer: String,
    peer_mode: String,
    ratio: f64,
}

/// Everything that was measured.
#[derive(Clone, Debug, Default)]
struct Measured {
    rows: Vec<Row>,
    pairs: Vec<Pair>,
    rounds: u32,
}

impl Measured {
    fn row(&self, case: &str, who: &str, mode: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.case == case && row.who == who && row.mode == mode)
    }

    /// The better of the peer's ways, by `by`.
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
    let bench = program("mlx5-bench", Profile::Release)?;
    let simulator = shared_library("mlx5-sim-preload", Profile::Release)?;
    let peer = Peer::build(bench, simulator)?;
    let rounds = if arguments.short { 60 } else { 1500 };
    let mut measured = peer.count()?;
    peer.time(rounds, &mut measured)?;
    let verdicts = bars::verdicts(&measured);
    print(&verdicts);
    make_directory(&arguments.out)?;
    write(&arguments.out.join("benchmarks.json"), &report::json(&measured))?;
    write(&arguments.out.join("benchmarks.svg"), &plot::svg(&measured))?;
    write(&arguments.out.join("BENCHMARKS.md"), &report::markdown(&measured, &verdicts))?;
    let over = verdicts.iter().filter(|verdict| !verdict.instructions.holds()).count();
    if arguments.check && over != 0 { Err(Failure::Bars(over)) } else { Ok(()) }
}

fn print(verdicts: &[Verdict]) {
    println!("{:16} {:7} {:>24} {:>24}", "case", "mode", "instructions / bar", "ns / bar");
    for verdict in verdicts {
        let instructions = verdict.instructions.to_string();
        let nanoseconds = verdict.nanoseconds.map_or_else(String::new, |bar| bar.to_string());
        println!("{:16} {:7} {instructions:>24} {nanoseconds:>24}", verdict.case, verdict.mode);
    }
}

fn make_directory(path: &Path) -> Result<(), Failure> {
    fs::create_dir_all(path).map_err(|error| Failure::File { path: path.to_owned(), error })
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| Failure::File { path: path.to_owned(), error })
}
