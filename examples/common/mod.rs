//! Shared code of the examples: starting, and finding a device.

// Each example uses a part of this module.
#![allow(dead_code)]

pub(crate) mod one_way;

use mlx5::{Context, LocalPort};
use mlx5_sim::{SimConfig, Simulator};
use std::error::Error;
use std::process::ExitCode;

/// Result of a program.
pub(crate) type Done = Result<(), Box<dyn Error>>;

/// Runs a program that takes no arguments. Prints an error as text on standard error.
pub(crate) fn start(about: &str, run: impl FnOnce() -> Done) -> ExitCode {
    let name = env!("CARGO_BIN_NAME");
    let argument = std::env::args_os().nth(1).map(|argument| argument.display().to_string());
    let done = match argument.as_deref() {
        None => run(),
        Some("-h" | "--help") => {
            println!("{about}\n\nusage: {name}, without arguments");
            Ok(())
        }
        Some(other) => {
            Err(format!("'{other}' is not known: start {name} without arguments").into())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// An open device, and the attributes of its first port.
pub(crate) struct Setup {
    pub(crate) context: Context,
    pub(crate) port: LocalPort,
    /// The simulator, if the device is simulated.
    pub(crate) simulator: Option<Simulator>,
}

/// Opens the first mlx5 device of this machine. If there is none, it simulates a ConnectX in this
/// process, which needs neither hardware nor privileges.
pub(crate) fn open() -> Result<Setup, Box<dyn Error>> {
    match mlx5::devices()?.first() {
        Some(device) => {
            println!("using {}, {}", device.name(), device.part().unwrap_or("an mlx5 device"));
            let context = device.open()?;
            let port = context.local_port(1, None)?;
            Ok(Setup { context, port, simulator: None })
        }
        None => simulated(),
    }
}

/// Opens a simulated ConnectX.
pub(crate) fn simulated() -> Result<Setup, Box<dyn Error>> {
    let simulator = Simulator::new(SimConfig::new());
    let device = mlx5::devices_on(simulator.kernel())?.remove(0);
    println!("using a simulated {}", device.part().unwrap_or("ConnectX"));
    let context = device.open()?;
    let port = context.local_port(1, None)?;
    Ok(Setup { context, port, simulator: Some(simulator) })
}
