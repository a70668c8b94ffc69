//! The project's tasks: `cargo xtask help` lists them.

mod aarch64;
mod asm;
mod bench;
mod build;
mod crates;
mod deb;
mod debian;
mod elf;
mod failure;
mod fuzz;
mod help;
mod hil;
mod imports;
mod ledger;
mod mutants;
mod oracle;
mod package;
mod pictures;
mod program;
mod provider;
mod suites;
mod tool;
mod tsan;
mod verbs;
mod vm;
mod wire;
mod with_sim;
mod with_verbs;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

const EXAMPLES: &str = "\
Examples:
  cargo xtask with-sim -- ibv_devinfo -v   a program of rdma-core's on a simulated device
  cargo xtask with-sim --provider rust -- ibv_devinfo -v   the same on this provider
  cargo xtask with-sim --sim wire=/tmp/wire -- ibv_rc_pingpong   one of two that reach each other
  cargo xtask with-verbs -- ib_write_bw    one of perftest's on this provider and a real ConnectX
  cargo xtask asm                          did the hot functions change?
  cargo xtask bench --short --check        are posting and polling as fast as they were?
  cargo xtask aarch64 suite                the suite on the other architecture, emulated
  cargo xtask vm run -- mlx5 list          a program of ours on a real kernel
  cargo xtask pictures                     the pictures of mlx5 perf and mlx5 trace in the README
  cargo xtask mutants --changed main       do tests notice bugs in the lines that changed?
  cargo xtask deb                          a Debian package of the command and the C libraries
  cargo xtask crates semver --base HEAD~9  which interfaces changed
  cargo xtask suites ~/rust-ibverbs -- --all-features   a crate's tests over either libibverbs
  cargo xtask hil --device mlx5_0          the suite on this machine's ConnectX

The Debian packages that they need are listed in .ci/run, which checks a change. aarch64, deb
--check and vm take what they need from the mirror of this machine's apt, and install nothing.";

/// Development tasks of the mlx5 project.
#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    disable_help_subcommand = false,
    after_help = EXAMPLES
)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    Aarch64(aarch64::Arguments),
    Asm(asm::Arguments),
    Bench(bench::Arguments),
    Crates(crates::Arguments),
    Deb(deb::Arguments),
    Fuzz(fuzz::Arguments),
    Hil(hil::Arguments),
    Imports(imports::Arguments),
    Ledger(ledger::Arguments),
    Mutants(mutants::Arguments),
    Oracle(oracle::Arguments),
    Package(package::Arguments),
    Pictures(pictures::Arguments),
    Suites(suites::Arguments),
    Tsan(tsan::Arguments),
    Verbs(verbs::Arguments),
    Vm(vm::Arguments),
    WithSim(with_sim::Arguments),
    WithVerbs(with_verbs::Arguments),
}

fn main() -> ExitCode {
    let matches = help::broken(Arguments::command()).get_matches();
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let done = match arguments.task {
        Task::Aarch64(arguments) => aarch64::run(&arguments),
        Task::Asm(arguments) => asm::run(&arguments),
        Task::Bench(arguments) => bench::run(&arguments),
        Task::Crates(arguments) => crates::run(&arguments),
        Task::Deb(arguments) => deb::run(&arguments),
        Task::Fuzz(arguments) => fuzz::run(&arguments),
        Task::Hil(arguments) => hil::run(&arguments),
        Task::Imports(arguments) => imports::run(&arguments),
        // The virtual machines write a part of the page. The ledger does not know about them; they
        // know about the ledger.
        Task::Ledger(arguments) if arguments.document => {
            ledger::document().and_then(|()| vm::document())
        }
        Task::Ledger(arguments) => ledger::run(&arguments),
        Task::Mutants(arguments) => mutants::run(&arguments),
        Task::Oracle(arguments) => oracle::run(&arguments),
        Task::Package(arguments) => package::run(&arguments),
        Task::Pictures(arguments) => pictures::run(&arguments),
        Task::Suites(arguments) => suites::run(&arguments),
        Task::Tsan(arguments) => tsan::run(&arguments),
        Task::Verbs(arguments) => verbs::run(&arguments),
        Task::Vm(arguments) => vm::run(&arguments),
        Task::WithSim(arguments) => with_sim::run(&arguments),
        Task::WithVerbs(arguments) => with_verbs::run(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_make_no_sense_are_refused_with_those_that_do() {
        for (arguments, says) in [
            (&["fuzz", "nothing"][..], "possible values: wqe, cqe, packet, prm, ioctl"),
            (&["fuzz", "--seconds", "0"], "0 is not in 1.."),
            (&["mutants", "--count", "0"], "0 is not in 1.."),
            (&["mutants", "--jobs", "0"], "0 is not in 1.."),
            (&["with-sim", "--provider", "d", "--", "sh"], "possible values: c, rust"),
            (&["with-sim", "sh"], "cargo xtask with-sim [OPTIONS] -- <PROGRAM>..."),
            (&["nothing"], "unrecognized subcommand 'nothing'"),
        ] {
            let words = ["cargo xtask"].iter().chain(arguments);
            let error = Arguments::try_parse_from(words).expect_err("it makes no sense");
            assert_eq!(error.exit_code(), 2, "{arguments:?}");
            assert!(error.to_string().contains(says), "{error}");
        }
    }

    #[test]
    fn every_help_fits_a_page() {
        let mut commands = vec![help::broken(Arguments::command())];
        let (mut seen, mut wide) = (0, Vec::new());
        while let Some(mut command) = commands.pop() {
            command.build();
            for text in [command.render_help(), command.render_long_help()] {
                let text = text.to_string();
                let lines = text.lines().filter(|line| line.chars().count() > help::WIDTH);
                wide.extend(lines.map(|line| format!("{}: {line}", command.get_name())));
            }
            seen += 1;
            commands.extend(command.get_subcommands().cloned());
        }
        assert!(wide.is_empty(), "{wide:#?}");
        assert!(seen > 20, "{seen} commands were seen");
    }
}
