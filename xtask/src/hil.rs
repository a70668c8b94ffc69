//! `cargo xtask hil`: runs the conformance suite on hardware.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::build;
use crate::failure::Failure;

/// Build the conformance suite as one file that runs on any host, and run it on a ConnectX
///
/// The file needs no library and can be copied to the host that has the device; docs/HARDWARE.md
/// describes the needs of that host. A missing device is a failure. The suite says first how long
/// it will take, and runs the riskiest cases first. It writes a ledger, and a report that can be
/// sent as it is.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The device to run on, followed by a colon and a port if it is not the first: mlx5_0,
    /// mlx5_0:2
    ///
    /// Without it, the task builds the file and runs nothing.
    #[arg(long, value_name = "NAME")]
    device: Option<String>,

    /// Put the other end of each pair on this device or port
    #[arg(long, value_name = "NAME", requires = "device", conflicts_with_all = ["peer", "serve"])]
    second: Option<String>,

    /// Run the cases that need two hosts, with the host that runs --serve
    #[arg(long, value_name = "HOST", requires = "device", conflicts_with = "serve")]
    peer: Option<String>,

    /// Serve as the second host until the client is done
    #[arg(long, requires = "device")]
    serve: bool,

    /// The file of the ledger and the report, written as .json, .md and .report.txt [default:
    /// hil-DEVICE in the current folder]
    #[arg(long, value_name = "FILE", requires = "device")]
    ledger: Option<PathBuf>,

    /// Run only the cases whose names contain this
    #[arg(value_name = "CASE", requires = "device")]
    cases: Vec<String>,
}

/// Builds the suite, and runs it if a device is given.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let program = build::self_contained("mlx5-conformance", "--bins")?;
    eprintln!("hil: the suite is {}", program.display());
    let Some(device) = &arguments.device else { return Ok(()) };
    let ledger = arguments.ledger.clone().unwrap_or_else(|| default_ledger(device));
    let mut command = Command::new(&program);
    command.args(["--device", device]);
    if let Some(second) = &arguments.second {
        command.args(["--second", second]);
    }
    if let Some(peer) = &arguments.peer {
        command.args(["--peer", peer]);
    }
    if arguments.serve {
        command.arg("--serve");
    } else {
        command.arg("--ledger").arg(&ledger);
    }
    command.args(&arguments.cases);
    let name = program.display().to_string();
    let status = command.status().map_err(|error| Failure::Run { program: name.clone(), error })?;
    for extension in ["md", "json", "report.txt"] {
        let path = ledger.with_extension(extension);
        if !arguments.serve && path.exists() {
            eprintln!("hil: see {}", path.display());
        }
    }
    if status.success() { Ok(()) } else { Err(Failure::Status { program: name, status }) }
}

/// A file name with the device's name in it.
fn default_ledger(device: &str) -> PathBuf {
    Path::new(&format!("hil-{}", device.replace(':', "-port"))).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ledger_is_named_after_the_device_and_port() {
        assert_eq!(default_ledger("mlx5_0"), Path::new("hil-mlx5_0"));
        assert_eq!(default_ledger("mlx5_0:2"), Path::new("hil-mlx5_0-port2"));
    }
}
