//! Counts instructions of the hot paths, and times them.
//!
//! Each operation runs many times on a simulated device that stands still in the meantime.
//! `mlx5-bench count` counts instructions with valgrind's callgrind; `mlx5-bench check` fails if a
//! count exceeds the published one by a tenth; `mlx5-bench time` prints nanoseconds.
//!
//! `mlx5-bench beside` runs the same operations in turn with those of shared libraries: of
//! rdma-core's C provider, of the same C program over our libibverbs, of UCX, and of queues that a
//! program drives by itself. `cargo xtask bench` builds these libraries, and runs it.

mod bed;
mod beside;
mod cores;
mod count;
mod latency;
mod lines;
mod machine;
mod memory;
mod peer;
mod profile;
mod requests;
mod round;
mod rounds;
mod threads;

use beside::wanted;
use machine::Machine;
use mlx5_bench::operations;
use round::{ROUND, median};
use std::process::ExitCode;

/// The published counts. A count that exceeds the published one by more than a tenth is a fault.
const PUBLISHED: &str = include_str!("../../docs/benchmarks.json");

/// Cases that are not checked: their use of the allocator and the pools depends on earlier
/// operations of the process.
const UNCHECKED: [&str; 2] = ["cancel_1_of_1000", "create_destroy_qp"];

/// Tolerance over a published count: a tenth, and a few instructions.
const GROWTH: (f64, f64) = (1.1, 3.0);

const USAGE: &str = "\
usage: mlx5-bench count [CASE...] | check [CASE...] | time [CASE...] | threads | lines | beside ...

  count   instructions of each case, counted by valgrind's callgrind
  check   the same of cases that were published, and failure where one takes a tenth more
  time    nanoseconds of each case: the median of many rounds
  threads several threads at the same time, on cores of their own
  lines   cache lines that a post uses of its queue pair, by a trace of reads and writes

  beside LIBRARIES count [CASE...]        the same, with those of shared libraries, a list with colons
  beside LIBRARIES instructions [CASE...] the same without cache misses, which is quicker
  beside LIBRARIES time ROUNDS [CASE...]  nanoseconds of each case, in turn on one device
  beside LIBRARIES memory                 bytes that a queue pair and a completion queue hold
  beside LIBRARIES latency ROUNDS CASE... how long single operations take, and why the longest do
  beside LIBRARIES threads                several threads, likewise with those of shared libraries
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        ["count", ref cases @ ..] => report(cases, false),
        ["check", ref cases @ ..] => report(cases, true),
        ["rounds", ref cases @ ..] => {
            let machine = Machine::simulated();
            count::rounds(rounds::rounds(&machine, &|case| wanted(cases, case)));
            machine.check();
            Ok(ExitCode::SUCCESS)
        }
        ["traced", ref cases @ ..] => {
            lines::announce();
            let machine = Machine::simulated();
            count::rounds(rounds::rounds(&machine, &|case| wanted(cases, case)));
            Ok(ExitCode::SUCCESS)
        }
        ["threads"] => {
            let machine = Machine::simulated();
            threads::run(&machine, &[]);
            machine.check();
            Ok(ExitCode::SUCCESS)
        }
        ["lines"] => lines::measure().map(|used| {
            println!(
                "{}: {:.2} of the queue pair, {:.2} of the register, {:.2} of every post",
                lines::CASE,
                used.own,
                used.register,
                used.common
            );
            ExitCode::SUCCESS
        }),
        ["time", ref cases @ ..] => {
            time(cases);
            Ok(ExitCode::SUCCESS)
        }
        ["beside", libraries, ref what @ ..] => beside::run(libraries, what),
        _ => Err(USAGE.into()),
    };
    done.unwrap_or_else(|problem| {
        eprintln!("mlx5-bench: {problem}");
        ExitCode::from(2)
    })
}

/// Case, mode and instructions of our operations in the published file.
fn published() -> Vec<(&'static str, &'static str, f64)> {
    let field = |row: &'static str, name: &str| {
        let (_, rest) = row.split_once(&format!("\"{name}\":"))?;
        Some(rest.split([',', '}']).next().unwrap_or(rest).trim_matches('"'))
    };
    let rows = PUBLISHED.lines().filter(|row| field(row, "who") == Some("mlx5"));
    rows.filter_map(|row| {
        let instructions = field(row, "instructions")?.parse().ok()?;
        Some((field(row, "case")?, field(row, "mode")?, instructions))
    })
    .collect()
}

/// Counts cases and prints a table. With `check` it counts the published cases, and fails if one
/// exceeds its count by a tenth.
fn report(cases: &[&str], check: bool) -> Result<ExitCode, String> {
    let published = published();
    let known: Vec<&str> = published.iter().map(|row| row.0).collect();
    let cases = if check && cases.is_empty() { &known } else { cases };
    let arguments = [&["rounds"], cases].concat();
    let mut over = 0;
    println!(
        "{:18} {:7} {:>12} {:>9} {:>8}",
        "case", "mode", "instructions", "published", "misses"
    );
    for counted in count::count(&rounds::functions(), &arguments, !check)? {
        let before = published.iter().find(|row| row.0 == counted.case && row.1 == counted.mode);
        let limit = before.map(|row| row.2 * GROWTH.0 + GROWTH.1);
        let grew = limit.is_some_and(|limit| counted.instructions > limit)
            && !UNCHECKED.contains(&counted.case.as_str());
        over += usize::from(grew);
        println!(
            "{:18} {:7} {:12.1} {:>9} {:8.2}{}",
            counted.case,
            counted.mode,
            counted.instructions,
            before.map_or_else(String::new, |row| format!("{:.1}", row.2)),
            counted.misses,
            if grew { "  grew by more than a tenth" } else { "" }
        );
    }
    Ok(if check && over != 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Prints the nanoseconds of an operation: the median of many rounds.
fn time(cases: &[&str]) {
    const ROUNDS: u64 = 500;
    for mut round in rounds::rounds(&Machine::simulated(), &|case| wanted(cases, case)) {
        let times = (0..ROUNDS).map(|i| (round.run)(i * ROUND) as f64 / round.operations as f64);
        println!("{:18} {:7} {:8.1} ns", round.case, round.mode.name(), median(times));
    }
}
