//! Instruction counts and timings of the hot paths.
//!
//! The operation of a case is done many times on a simulated device that stands still while it is
//! done. `mlx5-bench count` counts instructions, with valgrind's callgrind, and `mlx5-bench check`
//! fails where they are more than the bar of the case; `mlx5-bench time` prints nanoseconds.
//!
//! `mlx5-bench beside` does the same operations in turn with others that a shared library offers:
//! those of rdma-core's C provider. `cargo xtask bench` builds that library, and runs it.

mod bed;
mod beside;
mod count;
mod machine;
mod operations;
mod ours;
mod peer;

use bed::{Bed, alone};
use machine::Machine;
use mlx5::ReceiveWr;
use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

/// A hot path.
struct Case {
    name: &'static str,
    /// The function that does it, as callgrind names it.
    function: &'static str,
    /// Operations of one call.
    operations: u32,
    /// Instructions that an operation may take.
    bar: f64,
    /// Prepares a call, does it, and completes it; returns the nanoseconds of the call.
    run: fn(&mut Bed, u64) -> u64,
}

/// How often a case runs.
const RUNS: u64 = 200;

macro_rules! cases {
    ($($name:literal = $function:ident x $operations:literal <= $bar:literal, |$bed:ident, $i:ident|
        { $($prepare:stmt;)* } $call:expr, then $after:expr;)*) => {
        const CASES: &[Case] = &[$(Case {
            name: $name,
            function: concat!("mlx5_bench::operations::", stringify!($function)),
            operations: $operations,
            bar: $bar,
            run: |$bed, $i| {
                let _ = $i;
                $($prepare)*
                let start = Instant::now();
                let result = $call;
                let nanoseconds = start.elapsed().as_nanos() as u64;
                result.expect("room, and something to poll");
                $after;
                nanoseconds
            },
        }),*];
    };
}

cases! {
    "post_inline8" = post_inline8 x 1 <= 110.5, |bed, i| { let remote = bed.remote(i); let bytes = bed.bytes; }
        operations::post_inline8(alone(&mut bed.qp), remote, &bytes[..black_box(8)], black_box(i)),
        then bed.complete(1);
    "post_sge" = post_sge x 1 <= 105.0, |bed, i| { let remote = bed.remote(i); let sge = bed.sge(i); }
        operations::post_sge(alone(&mut bed.qp), remote, sge, black_box(i)),
        then bed.complete(1);
    "post_send" = post_send_sge x 1 <= 100.0, |bed, i| { let sge = bed.sge(i); }
        operations::post_send_sge(alone(&mut bed.qp), sge, black_box(i)),
        then bed.complete(1);
    "batch16_inline8" = batch_inline8 x 16 <= 60.0, |bed, i| { let remotes = bed.remotes(i); let bytes = bed.bytes; }
        operations::batch_inline8(alone(&mut bed.qp), &remotes, &bytes[..black_box(8)], black_box(i)),
        then bed.complete(16);
    "batch16_sge" = batch_sge x 16 <= 60.0, |bed, i| { let remotes = bed.remotes(i); let sges = bed.sges(i); }
        operations::batch_sge(alone(&mut bed.qp), &remotes, &sges, black_box(i)),
        then bed.complete(16);
    "list16_inline8" = list x 16 <= 103.0, |bed, i| {
            let bytes = bed.bytes;
            let pieces = [&bytes[..black_box(8)]];
            let list = black_box(bed.list(i, &bed.remotes(i), &pieces));
        }
        operations::list(alone(&mut bed.qp), &list),
        then bed.complete(16);
    "poll1" = poll_one x 1 <= 72.0, |bed, i| { bed.post(i, 1); }
        operations::poll_one(alone(&mut bed.cq), &mut bed.sum),
        then {};
    "poll16" = poll_many x 16 <= 60.0, |bed, i| { bed.post(i, 16); }
        operations::poll_many(alone(&mut bed.cq), black_box(16), &mut bed.sum),
        then {};
    "empty_poll" = poll_empty x 1 <= 24.0, |bed, i| {}
        operations::poll_empty(alone(&mut bed.cq), &mut bed.sum),
        then {};
    "post_recv1" = post_recv x 1 <= 110.0, |bed, i| { let sges = [bed.sge(i)]; }
        operations::post_recv(&mut bed.peer, black_box(&[ReceiveWr { wr_id: i, sges: &sges }])),
        then bed.receive(1);
}

const USAGE: &str = "\
usage: mlx5-bench count | check | time | run CASE | beside ...

  count     instructions of each case, counted by valgrind's callgrind
  check     the same, and failure where a case takes more than its bar
  time      nanoseconds of each case: the median, a reading of the clock included
  run CASE  do the operation of a case, for callgrind to count

  beside LIBRARY functions    name the functions that are counted
  beside LIBRARY count        do them all, for callgrind to count
  beside LIBRARY time ROUNDS  nanoseconds of each case, in turn on one device
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["count"] => count::report(false),
        ["check"] => count::report(true),
        ["run", name] => {
            let Some(case) = CASES.iter().find(|case| case.name == name) else {
                eprintln!("no case {name:?}; `mlx5-bench count` names those there are");
                return ExitCode::from(2);
            };
            let mut bed = Bed::new(Machine::simulated());
            for i in 0..RUNS {
                (case.run)(&mut bed, i);
            }
            bed.check();
            ExitCode::SUCCESS
        }
        ["beside", library, ref what @ ..] => {
            beside::run(library, what).unwrap_or_else(|problem| {
                eprintln!("mlx5-bench: {problem}");
                ExitCode::from(2)
            })
        }
        ["time"] => {
            for case in CASES {
                println!("{:18} {:8.1} ns", case.name, median(case));
            }
            ExitCode::SUCCESS
        }
        _ => {
            eprint!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// Nanoseconds of an operation: the median of the runs, a clock reading's worth included.
fn median(case: &Case) -> f64 {
    let mut bed = Bed::new(Machine::simulated());
    let mut runs: Vec<u64> = (0..20 * RUNS).map(|i| (case.run)(&mut bed, i)).collect();
    runs.sort_unstable();
    runs[runs.len() / 2] as f64 / f64::from(case.operations)
}
