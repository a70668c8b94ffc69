//! The project's chores: `cargo xtask help` lists them.

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
mod hil;
mod imports;
mod ledger;
mod mutants;
mod oracle;
mod package;
mod pictures;
mod provider;
mod tool;
mod tsan;
mod verbs;
mod vm;
mod wire;
mod with_sim;
mod with_verbs;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

const EXAMPLES: &str = "\
Examples:
  cargo xtask with-sim -- ibv_devinfo -v   a program of rdma-core's on a simulated device
  cargo xtask with-sim --sim wire=/tmp/wire -- ibv_rc_pingpong   one of two that reach each other
  cargo xtask with-sim --provider rust -- ibv_devinfo -v   the same on this provider
  cargo xtask with-verbs -- ib_write_bw    a program of rdma-core's on this provider and this machine's ConnectX
  cargo xtask asm                          did the hot functions change?
  cargo xtask bench --short --check        are posting and polling as fast as they were?
  cargo xtask aarch64 suite                the suite on the other architecture, emulated
  cargo xtask vm run -- mlx5 list          a program of ours on a real kernel
  cargo xtask pictures                     the pictures of mlx5 perf and mlx5 trace in the README
  cargo xtask mutants --changed main       do tests notice bugs in the lines that changed?
  cargo xtask deb                          a Debian package of the command and the C libraries
  cargo xtask crates semver --base HEAD~9  which interfaces changed
  cargo xtask hil --device mlx5_0          the suite on this machine's ConnectX

Debian packages that they need: asm binutils; bench gcc libc6-dev libibverbs-dev ibverbs-providers
valgrind; ledger ibverbs-providers ibverbs-utils perftest python3-pyverbs python3-scapy ucx-utils; oracle gcc libc6-dev
libibverbs-dev ibverbs-providers. aarch64, deb --check and vm take what they need from the mirror
of this machine's apt, and install nothing. What must hold before a change lands is in .ci/run.";

/// The chores of the mlx5 project.
#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    disable_help_subcommand = false,
    after_help = EXAMPLES
)]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
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
    Tsan(tsan::Arguments),
    Verbs(verbs::Arguments),
    Vm(vm::Arguments),
    WithSim(with_sim::Arguments),
    WithVerbs(with_verbs::Arguments),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().chore {
        Chore::Aarch64(arguments) => aarch64::run(&arguments),
        Chore::Asm(arguments) => asm::run(&arguments),
        Chore::Bench(arguments) => bench::run(&arguments),
        Chore::Crates(arguments) => crates::run(&arguments),
        Chore::Deb(arguments) => deb::run(&arguments),
        Chore::Fuzz(arguments) => fuzz::run(&arguments),
        Chore::Hil(arguments) => hil::run(&arguments),
        Chore::Imports(arguments) => imports::run(&arguments),
        // The page has a part of the virtual machines, which know the ledger; it knows nothing of them.
        Chore::Ledger(arguments) if arguments.document => {
            ledger::document().and_then(|()| vm::document())
        }
        Chore::Ledger(arguments) => ledger::run(&arguments),
        Chore::Mutants(arguments) => mutants::run(&arguments),
        Chore::Oracle(arguments) => oracle::run(&arguments),
        Chore::Package(arguments) => package::run(&arguments),
        Chore::Pictures(arguments) => pictures::run(&arguments),
        Chore::Tsan(arguments) => tsan::run(&arguments),
        Chore::Verbs(arguments) => verbs::run(&arguments),
        Chore::Vm(arguments) => vm::run(&arguments),
        Chore::WithSim(arguments) => with_sim::run(&arguments),
        Chore::WithVerbs(arguments) => with_verbs::run(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::FAILURE
        }
    }
}
