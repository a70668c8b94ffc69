//! The `mlx5` command: lists, describes and measures mlx5 devices, and decodes their queues.

mod args;
mod cancel;
mod capture;
mod device;
mod doctor;
mod dump;
mod explain;
mod failure;
mod files;
mod info;
mod interrupt;
mod json;
mod link;
mod list;
mod man;
mod numbers;
mod perf;
mod pingpong;
mod shell;
mod table;
mod trace;

use clap::{CommandFactory, Parser};
use failure::Failure;
use std::ffi::OsString;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    // Prints usage errors with their hint and exits with 2; `--help` and `--version` with 0.
    let command = args::Cli::parse_from(words()).command;
    let mut out = BufWriter::new(io::stdout().lock());
    let done = run(&command, &mut out).and_then(|()| Ok(out.flush()?));
    // Flush the output before the error message.
    drop(out);
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(&mut io::stderr()),
    }
}

/// The words of the command line. The parser takes each one behind `help` for a command: `help
/// --help` and `help perf -h` ask for help all the same.
fn words() -> impl Iterator<Item = OsString> {
    let asks = |word: &OsString| word == "--help" || word == "-h";
    let mut words: Vec<OsString> = std::env::args_os().collect();
    if words.get(1).is_some_and(|word| word == "help") {
        words.retain(|word| !asks(word));
    }
    words.into_iter()
}

fn run(command: &args::Command, out: &mut impl Write) -> Result<(), Failure> {
    use args::Command;
    match command {
        Command::List(args) => list::run(args, out),
        Command::Info(args) => info::run(args, out),
        Command::Doctor(args) => doctor::run(args, out),
        Command::Pingpong(args) => pingpong::run(args, out),
        Command::Perf(args) => perf::run(args, out),
        Command::Cancel(args) => cancel::run(args, out),
        Command::Capture(args) => capture::run(args, io::stdout().is_terminal(), out),
        Command::Dump(args) => dump::run(args, out),
        Command::Explain(args) => explain::run(args, out),
        Command::Trace(args) => trace::run(args, out),
        Command::Completions(args) => shell::completions(args, args::Cli::command(), out),
        Command::Man(args) => man::run(args, args::Cli::command(), out),
    }
}
