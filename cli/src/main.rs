//! The `mlx5` command: lists, describes and measures mlx5 devices, and decodes their queues.

mod args;
mod cancel;
mod capture;
mod device;
mod doctor;
mod dump;
mod failure;
mod files;
mod info;
mod interrupt;
mod link;
mod list;
mod numbers;
mod perf;
mod pingpong;
mod shell;
mod table;
mod trace;

use clap::{CommandFactory, Parser};
use failure::Failure;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    // Prints usage errors with their hint and exits with 2; `--help` and `--version` with 0.
    let command = args::Cli::parse().command;
    let mut out = BufWriter::new(io::stdout().lock());
    let done = run(&command, &mut out).and_then(|()| Ok(out.flush()?));
    // Flush the output before the error message.
    drop(out);
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(&mut io::stderr()),
    }
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
        Command::Trace(args) => trace::run(args, out),
        Command::Completions(args) => shell::completions(args, args::Cli::command(), out),
        Command::Man(args) => shell::man(args, args::Cli::command(), out),
    }
}
