//! `cargo xtask with-verbs`: runs a libibverbs program on this provider.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::failure::Failure;
use crate::program;
use crate::verbs;

/// Run a program that uses libibverbs on this provider, with this machine's devices
///
/// The program runs unmodified, and finds our libibverbs.so.1 and libmlx5.so.1 before rdma-core's,
/// through LD_LIBRARY_PATH. It must be linked dynamically. `cargo xtask with-sim --provider rust`
/// does the same with simulated devices.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Replaces this process by the program.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let (program, rest) =
        arguments.program.split_first().expect("the arguments have a program, or are refused");
    program::is_there(program)?;
    let folder = verbs::build()?;
    verbs::takes(Path::new(program), &folder)?;
    let mut command = Command::new(program);
    command.args(rest);
    verbs::with_library(&mut command, &folder);
    // Returns only if the program cannot be run.
    let error = command.exec();
    Err(Failure::Run { program: program.to_string_lossy().into_owned(), error })
}
