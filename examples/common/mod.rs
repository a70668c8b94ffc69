//! What the examples share: finding a device.

// Each example uses part of it.
#![allow(dead_code)]

pub(crate) mod one_way;

use mlx5::{Context, LocalPort};
use mlx5_sim::{SimConfig, Simulator};
use std::error::Error;
use std::process::ExitCode;

/// What a program comes to.
pub(crate) type Done = Result<(), Box<dyn Error>>;

/// Ends a program: what failed is told in words, on standard error.
pub(crate) fn exit(done: Done) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// An open device, with what is to be known of its first port.
pub(crate) struct Setup {
    pub(crate) context: Context,
    pub(crate) port: LocalPort,
    /// What simulates the device, if something does.
    pub(crate) simulator: Option<Simulator>,
}

/// Opens the first mlx5 device of this machine. Where there is none, a simulated ConnectX takes its
/// place: it lives in this process, and needs neither hardware nor privileges.
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
