//! Instruction counts and timings of the hot paths.
//!
//! An operation is done many times on a simulated device that stands still while it is done.
//! `mlx5-bench count` counts instructions, with valgrind's callgrind, and `mlx5-bench check` fails
//! where they are more than the bar of the case; `mlx5-bench time` prints nanoseconds.
//!
//! `mlx5-bench beside` does the same operations in turn with others that shared libraries offer: those
//! of rdma-core's C provider, of the same C program over our libibverbs, of UCX, and of queues that a
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
use round::{Mode, ROUND, median};
use std::process::ExitCode;

/// The most instructions of an operation, one case a line.
const BARS: &[(&str, Mode, f64)] = &[
    ("post_inline8", Mode::Single, 95.0),
    ("post_array8", Mode::Single, 78.0),
    ("post_sge", Mode::Single, 82.5),
    ("post_send", Mode::Single, 79.0),
    ("batch16_inline8", Mode::Single, 54.0),
    ("batch16_array8", Mode::Single, 42.0),
    ("batch16_sge", Mode::Single, 49.0),
    ("list16_inline8", Mode::Single, 90.0),
    ("iter16_inline8", Mode::Single, 90.0),
    // What the typed builder takes, and four: the transport is compared once.
    ("post_inline8_any", Mode::Single, 99.0),
    ("post_sge_any", Mode::Single, 87.0),
    ("post_send_any", Mode::Single, 82.5),
    ("poll1", Mode::Single, 63.0),
    ("poll16", Mode::Single, 49.6),
    ("empty_poll", Mode::Single, 19.0),
    // Run by run: each CQE is copied from the title (8 instructions), patched (9), and counted; its
    // slot is marked (3). The first and the last of 64 take the slow path.
    ("poll1_compressed", Mode::Single, 109.5),
    ("poll16_compressed", Mode::Single, 97.3),
    // A request behind others that are not signaled: a record more is looked at.
    ("poll_sparse2", Mode::Single, 82.5),
    ("poll_sparse16", Mode::Single, 82.5),
    ("poll16_sparse2", Mode::Single, 68.6),
    ("poll16_sparse16", Mode::Single, 68.6),
    // Of sizes that differ the one that completed is searched for.
    ("poll_sparse_mixed", Mode::Single, 320.0),
    ("post_recv1", Mode::Single, 47.0),
    ("recv_one", Mode::Single, 42.5),
    ("post_recv16", Mode::Single, 30.35),
    ("post_srq_recv1", Mode::Single, 44.2),
    // Most of it is claiming a free place: in a larger queue it is more often in another word, and some
    // marks of words are looked at before.
    ("post_srq_recv_random_1024", Mode::Single, 196.0),
    ("post_srq_recv_random_32768", Mode::Single, 251.0),
    ("mkey_configure", Mode::Single, 331.5),
    // A packet, of bursts of 32.
    ("eth_send32", Mode::Single, 50.0),
    ("eth_recv32", Mode::Single, 100.5),
    ("eth_send32_multi", Mode::Single, 27.0),
    // Three requests, and 64 bytes of each packet are copied.
    ("eth_send32_inline", Mode::Single, 75.0),
    // Of each frame: it is moved out of the iterator and taken apart, its count of the buffers goes down, and its
    // buffer is noted and given back.
    ("eth_send32_frames", Mode::Single, 165.0),
    ("eth_fill32_frames", Mode::Single, 233.0),
    ("eth_recv32_multi", Mode::Single, 45.0),
    ("eth_forward32", Mode::Single, 115.5),
    ("post_inline8", Mode::Shared, 109.5),
    ("post_sge", Mode::Shared, 93.5),
    ("post_send", Mode::Shared, 88.0),
    ("batch16_inline8", Mode::Shared, 54.5),
    ("batch16_sge", Mode::Shared, 49.5),
    ("list16_inline8", Mode::Shared, 91.0),
    ("post_ud", Mode::Shared, 133.5),
    ("poll1", Mode::Shared, 76.0),
    ("poll16", Mode::Shared, 50.5),
    ("empty_poll", Mode::Shared, 31.5),
    ("post_recv1", Mode::Shared, 65.0),
    ("post_recv16", Mode::Shared, 31.5),
    // All of it: six instructions for each of a thousand pending requests, and what asking the
    // device takes; ten for each of 4,096, and what making the set and the list takes.
    // What malloc takes of it differs by a hundred, with what was allocated before.
    ("cancel_1_of_1000", Mode::Single, 7300.0),
    ("cancel_64_of_4096", Mode::Single, 46_800.0),
];

const USAGE: &str = "\
usage: mlx5-bench count [CASE...] | check [CASE...] | time [CASE...] | threads | lines | beside ...

  count   instructions of each case, counted by valgrind's callgrind
  check   the same of cases that have a bar, and failure where one takes more
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

/// Counts cases and prints a table; to check is to count those that have a bar, and to fail where
/// one takes more.
fn report(cases: &[&str], check: bool) -> Result<ExitCode, String> {
    let with_bars: Vec<&str> = BARS.iter().map(|bar| bar.0).collect();
    let cases = if check && cases.is_empty() { &with_bars } else { cases };
    let arguments = [&["rounds"], cases].concat();
    let mut over = 0;
    let mut counted_bars = Vec::new();
    println!("{:18} {:7} {:>12} {:>8} {:>8}", "case", "mode", "instructions", "bar", "misses");
    for counted in count::count(&rounds::functions(), &arguments, !check)? {
        let bar = BARS.iter().find(|bar| bar.0 == counted.case && bar.1.name() == counted.mode);
        counted_bars.extend(bar.map(|bar| (bar.0, bar.1.name())));
        let too_many = bar.is_some_and(|bar| counted.instructions > bar.2);
        over += usize::from(too_many);
        println!(
            "{:18} {:7} {:12.1} {:>8} {:8.2}{}",
            counted.case,
            counted.mode,
            counted.instructions,
            bar.map_or_else(String::new, |bar| format!("{:.1}", bar.2)),
            counted.misses,
            if too_many { "  exceeds its limit" } else { "" }
        );
    }
    // A bar of a case or a mode that is counted no more would hold for ever.
    let is_wanted = |case: &str| wanted(cases, case);
    for (case, mode, _) in BARS.iter().filter(|bar| check && is_wanted(bar.0)) {
        if !counted_bars.contains(&(*case, mode.name())) {
            println!("{case:18} {:7} has a bar, and was not counted", mode.name());
            over += 1;
        }
    }
    Ok(if check && over != 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Nanoseconds of an operation: the median of many rounds.
fn time(cases: &[&str]) {
    const ROUNDS: u64 = 500;
    for mut round in rounds::rounds(&Machine::simulated(), &|case| wanted(cases, case)) {
        let times = (0..ROUNDS).map(|i| (round.run)(i * ROUND) as f64 / round.operations as f64);
        println!("{:18} {:7} {:8.1} ns", round.case, round.mode.name(), median(times));
    }
}
