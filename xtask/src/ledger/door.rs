//! Programs beside the simulated device, with a time limit.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::build::{self, Profile};
use crate::failure::Failure;

/// A port of the simulated device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    /// As the ledger has it.
    pub(super) name: &'static str,
    /// As `MLX5_SIM` has it.
    settings: &'static str,
    /// As `ibv_devinfo` has it.
    pub(super) layer: &'static str,
}

/// The ports that everything runs on.
pub(super) const LINKS: [Link; 2] = [
    Link { name: "ib", settings: "link=ib", layer: "InfiniBand" },
    Link { name: "roce", settings: "link=roce", layer: "Ethernet" },
];

/// The simulated device that programs see.
pub(super) const DEVICE: &str = "mlx5_0";

/// What a program has said, and how it ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) stdout: String,
    /// Without what the simulator has said.
    pub(super) stderr: String,
    /// Nothing if it ended well.
    pub(super) trouble: Option<String>,
}

/// What programs need to find the simulated device.
#[derive(Debug)]
pub(super) struct Door {
    library: PathBuf,
}

impl Door {
    /// Builds the library to preload.
    pub(super) fn build() -> Result<Self, Failure> {
        Ok(Self { library: build::shared_library("mlx5-sim-preload", Profile::Release)? })
    }

    /// Runs a program in `folder` for at most `seconds`.
    pub(super) fn run(
        &self,
        link: Link,
        folder: &Path,
        seconds: u32,
        program: impl AsRef<OsStr>,
        arguments: &[&str],
    ) -> Result<Ended, Failure> {
        let mut preload = std::ffi::OsString::from("LD_PRELOAD=");
        preload.push(&self.library);
        // timeout(1) ends the children of a program with it. Only the program is to be preloaded.
        let output = Command::new("timeout")
            .args(["--signal=KILL", &seconds.to_string(), "env"])
            .arg(preload)
            .arg(format!("MLX5_SIM={}", link.settings))
            .arg(&program)
            .args(arguments)
            .current_dir(folder)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| Failure::Run { program: "timeout".to_owned(), error })?;
        let trouble = match (output.status.code(), output.status.success()) {
            (_, true) => None,
            // Killed with its children, or 128 + SIGKILL.
            (None | Some(124 | 137), _) => Some(format!("no end within {seconds} s")),
            (Some(code), _) if code > 128 => Some(format!("ended by signal {}", code - 128)),
            (Some(code), _) => Some(format!("exit status {code}")),
        };
        Ok(Ended {
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: without_the_simulator(&String::from_utf8_lossy(&output.stderr)),
            trouble,
        })
    }
}

/// Takes out what the simulator says of calls it refuses, which may begin in mid-line.
fn without_the_simulator(said: &str) -> String {
    let mut kept = String::with_capacity(said.len());
    for line in said.split_inclusive('\n') {
        match line.find("mlx5-sim: ") {
            Some(at) => kept.push_str(&line[..at]),
            None => kept.push_str(line),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_simulator_says_in_mid_line_is_taken_out() {
        let said = "test_a (x) ... mlx5-sim: uverbs0: ENOTTY\nskipped 'no'\nmlx5-sim: y\nend\n";
        assert_eq!(without_the_simulator(said), "test_a (x) ... skipped 'no'\nend\n");
    }
}
