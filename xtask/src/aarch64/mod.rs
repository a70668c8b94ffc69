//! `cargo xtask aarch64`: builds and runs the driver for the other architecture.

mod barriers;
mod tests;
mod toolchain;

use std::time::Instant;

use crate::debian::cache::Cache;
use crate::failure::Failure;
use toolchain::Toolchain;

/// Build for aarch64, and run it under an emulator
///
/// Runs the unit tests of uapi, prm, doorbell, wqe and cq, the conformance suite on the simulated
/// device, and mlx5 pingpong. Then checks that the machine code of the hot functions has each
/// barrier that the device needs: the emulator runs on this processor, whose memory order is
/// stronger, so a missing barrier shows only in the machine code.
///
/// Compiler, linker and emulator are Debian's packages, from the mirror of this machine's apt; they
/// are unpacked into $XDG_CACHE_HOME/mlx5-aarch64, and nothing is installed.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: Option<Part>,
}

#[derive(Clone, Copy, Debug, clap::Subcommand)]
enum Part {
    /// Run only the unit tests
    Units,
    /// Run only the conformance suite
    Suite,
    /// Run only mlx5 pingpong
    Pingpong,
    /// Check only the machine code
    Barriers,
    /// Fetch compiler, linker and emulator, and do nothing else
    Fetch,
    /// Delete the fetched packages
    Clean,
}

/// The parts of a run without a subcommand.
const EVERYTHING: [Part; 4] = [Part::Barriers, Part::Units, Part::Suite, Part::Pingpong];

/// Runs the task.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if !cfg!(target_arch = "x86_64") {
        return Err(Failure::Packages(
            "the emulator is a program for x86-64; on aarch64 itself run cargo test".into(),
        ));
    }
    let cache = Cache::open("mlx5-aarch64")?;
    if let Some(Part::Clean) = arguments.what {
        return cache.clear();
    }
    let toolchain = Toolchain::fetch(&cache)?;
    drop(cache);
    if arguments.what.is_none() {
        // One build of everything keeps both of two cores busy. It also covers the packages that
        // are built and not run.
        tests::build_all(&toolchain)?;
    }
    let mut faults = Vec::new();
    for what in arguments.what.map_or(EVERYTHING.to_vec(), |what| vec![what]) {
        let start = Instant::now();
        faults.extend(match what {
            Part::Barriers => barriers::examine(&toolchain)?,
            Part::Units => tests::units(&toolchain)?,
            Part::Suite => tests::suite(&toolchain)?,
            Part::Pingpong => tests::pingpong(&toolchain)?,
            Part::Fetch | Part::Clean => continue,
        });
        println!("aarch64: {what:?}: {} s", start.elapsed().as_secs());
    }
    if faults.is_empty() { Ok(()) } else { Err(Failure::Aarch64(faults)) }
}
