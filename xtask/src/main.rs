//! The project's chores: `cargo xtask help` lists them.

mod asm;
mod bench;
mod build;
mod failure;
mod fuzz;
mod hil;
mod ledger;
mod oracle;
mod vm;
mod wire;
mod with_sim;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The chores of the mlx5 project.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", disable_help_subcommand = false)]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    Asm(asm::Arguments),
    Bench(bench::Arguments),
    Fuzz(fuzz::Arguments),
    Hil(hil::Arguments),
    Ledger(ledger::Arguments),
    Oracle(oracle::Arguments),
    Vm(vm::Arguments),
    WithSim(with_sim::Arguments),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().chore {
        Chore::Asm(arguments) => asm::run(&arguments),
        Chore::Bench(arguments) => bench::run(&arguments),
        Chore::Fuzz(arguments) => fuzz::run(&arguments),
        Chore::Hil(arguments) => hil::run(&arguments),
        Chore::Ledger(arguments) => ledger::run(&arguments),
        Chore::Oracle(arguments) => oracle::run(&arguments),
        Chore::Vm(arguments) => vm::run(&arguments),
        Chore::WithSim(arguments) => with_sim::run(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::FAILURE
        }
    }
}
