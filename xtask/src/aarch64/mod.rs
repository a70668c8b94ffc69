//! `cargo xtask aarch64`: the other architecture, built and run.

mod barriers;
mod tests;
mod toolchain;

use std::time::Instant;

use crate::debian::cache::Cache;
use crate::failure::Failure;
use toolchain::Toolchain;

/// Build for aarch64, and run it under an emulator
///
/// The unit tests of uapi, prm, doorbell, wqe and cq, the conformance suite on the simulated device, and
/// mlx5 pingpong; then the machine code of the hot functions is looked at: does each barrier stand where
/// the device needs it? The emulator runs on this processor, whose memory order is stronger: only the
/// machine code shows the barriers.
///
/// Compiler, linker and emulator are Debian's packages, from the mirror that this machine's apt uses;
/// they are unpacked into $XDG_CACHE_HOME/mlx5-aarch64, and nothing is installed.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Clone, Copy, Debug, clap::Subcommand)]
enum What {
    /// The unit tests alone
    Units,
    /// The conformance suite alone
    Suite,
    /// mlx5 pingpong alone
    Pingpong,
    /// The machine code alone
    Barriers,
    /// Fetch compiler, linker and emulator, and nothing else
    Fetch,
    /// Forget what was fetched
    Clean,
}

/// What is done where nothing is named.
const EVERYTHING: [What; 4] = [What::Barriers, What::Units, What::Suite, What::Pingpong];

/// Does what the arguments say.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if !cfg!(target_arch = "x86_64") {
        return Err(Failure::Packages(
            "the emulator is a program for x86-64; on aarch64 itself run cargo test".into(),
        ));
    }
    let cache = Cache::open("mlx5-aarch64")?;
    if let Some(What::Clean) = arguments.what {
        return cache.clear();
    }
    let toolchain = Toolchain::fetch(&cache)?;
    drop(cache);
    if arguments.what.is_none() {
        // All at once takes both of two cores; and what is only built is built here.
        tests::build_all(&toolchain)?;
    }
    let mut faults = Vec::new();
    for what in arguments.what.map_or(EVERYTHING.to_vec(), |what| vec![what]) {
        let start = Instant::now();
        faults.extend(match what {
            What::Barriers => barriers::examine(&toolchain)?,
            What::Units => tests::units(&toolchain)?,
            What::Suite => tests::suite(&toolchain)?,
            What::Pingpong => tests::pingpong(&toolchain)?,
            What::Fetch | What::Clean => continue,
        });
        println!("aarch64: {what:?}: {} s", start.elapsed().as_secs());
    }
    if faults.is_empty() { Ok(()) } else { Err(Failure::Aarch64(faults)) }
}
