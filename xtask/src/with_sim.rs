//! `cargo xtask with-sim`: runs a program beside a simulated ConnectX.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::build::{Profile, shared_library};
use crate::failure::Failure;
use crate::wire;

/// Run a program that finds simulated ConnectX devices where it looks for real ones
///
/// The program runs unmodified, with a library in LD_PRELOAD. It has to be linked dynamically.
/// With wire=SOCKET in the list it shares the machine of that name with other programs; the first
/// one starts it, as its list says, and it ends when none has been there for ten seconds.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// What to simulate, as MLX5_SIM has it: model=connectx6dx,link=roce,devices=2
    #[arg(long, short, value_name = "LIST")]
    sim: Option<String>,

    /// Build the simulator with its checks, and slower
    #[arg(long)]
    debug: bool,

    /// The program, and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Becomes the program.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let profile = if arguments.debug { Profile::Dev } else { Profile::Release };
    let library = shared_library("mlx5-sim-preload", profile)?;
    let (program, rest) =
        arguments.program.split_first().expect("the arguments have a program, or are refused");
    let mut command = Command::new(program);
    command.args(rest).env("LD_PRELOAD", preloaded(&library));
    if let Some(settings) = &arguments.sim {
        if let Some(socket) = wire::socket(settings) {
            wire::serve(&socket, settings, profile)?;
        }
        command.env("MLX5_SIM", settings);
    }
    // Answers only if the program cannot be run.
    let error = command.exec();
    Err(Failure::Run { program: program.to_string_lossy().into_owned(), error })
}

/// The library before whatever is preloaded anyway.
fn preloaded(library: &Path) -> OsString {
    let mut list = library.as_os_str().to_owned();
    if let Some(others) = env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        list.push(":");
        list.push(others);
    }
    list
}
