//! `cargo xtask fuzz`: feeds random bytes to the code that reads the words of devices and kernels.

use std::process::Command;

use crate::build::{self, Profile};
use crate::failure::Failure;

/// Feed random bytes to the decoders of WQEs and CQEs and to a queue of packets, and random results
/// of the kernel to the driver
///
/// The same seed gives the same bytes. A finding is reported with its seed, and fails.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Run only this target
    #[arg(value_name = "TARGET", value_parser = TARGETS)]
    target: Option<String>,

    /// Time for each target
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    seconds: Option<u64>,

    /// Run a target once, from this seed
    #[arg(long, value_name = "SEED", requires = "target")]
    seed: Option<u64>,
}

/// Targets of the fuzzer. It would itself refuse others, but it takes long to build.
const TARGETS: [&str; 5] = ["wqe", "cqe", "packet", "prm", "ioctl"];

/// Builds the fuzzer with all its checks, and runs it.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let program = build::program("mlx5-fuzz", Profile::Checked)?;
    let mut command = Command::new(&program);
    command.args(&arguments.target);
    if let Some(seconds) = arguments.seconds {
        command.args(["--seconds", &seconds.to_string()]);
    }
    if let Some(seed) = arguments.seed {
        command.args(["--seed", &seed.to_string()]);
    }
    let program = program.display().to_string();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::Status { program, status }),
        Err(error) => Err(Failure::Run { program, error }),
    }
}

#[cfg(test)]
mod tests {
    use super::TARGETS;

    #[test]
    fn the_targets_are_those_of_the_fuzzer() {
        let fuzzer = include_str!("../../fuzz/src/main.rs");
        let names = fuzzer
            .lines()
            .filter_map(|line| line.trim().strip_prefix("Target { name: \"")?.split('"').next());
        assert_eq!(names.collect::<Vec<_>>(), TARGETS);
    }
}
