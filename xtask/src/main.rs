//! The project's chores: `cargo xtask help` lists them.

mod build;
mod failure;
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
    WithSim(with_sim::Arguments),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().chore {
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
