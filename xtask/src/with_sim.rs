//! `cargo xtask with-sim`: runs a program beside a simulated ConnectX.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::{env, fs};

use crate::build::{Profile, shared_library};
use crate::failure::Failure;
use crate::program;
use crate::provider::Provider;
use crate::verbs;
use crate::wire;

/// Run a program with simulated ConnectX devices in place of real ones
///
/// The program runs unmodified, with a library in LD_PRELOAD. It must be linked dynamically. With
/// wire=SOCKET in the list it shares the machine of that name with other programs; the first
/// program starts the machine with its own list, and the machine ends after ten seconds without a
/// program.
///
/// A violation by the driver, such as a doorbell for a queue that does not exist, is reported on
/// standard error, and a program that succeeded then ends with status 70. This includes processes
/// that the program starts, unless they end after it.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Settings of the simulation, for MLX5_SIM: model=cx6dx,link=roce,devices=2
    #[arg(long, short, value_name = "LIST")]
    sim: Option<String>,

    /// The libibverbs of the program
    ///
    /// c is rdma-core's, also on a system whose programs find ours by themselves
    /// (mlx5-verbs-switch); rust is ours. libmlx5 comes from the same provider.
    #[arg(long, value_enum, default_value_t = Provider::C)]
    provider: Provider,

    /// Build the simulator in the debug profile, with checks; it is slower
    #[arg(long)]
    debug: bool,

    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Replaces this process by the program.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let (program, rest) =
        arguments.program.split_first().expect("the arguments have a program, or are refused");
    program::is_there(program)?;
    let profile = if arguments.debug { Profile::Dev } else { Profile::Release };
    let library = shared_library("mlx5-sim-preload", profile)?;
    let mut command = Command::new(program);
    command.args(rest).env("LD_PRELOAD", preloaded(&library));
    match arguments.provider {
        Provider::C => verbs::with_c_library(&mut command)?,
        Provider::Rust => {
            let folder = verbs::build()?;
            verbs::takes(Path::new(program), &folder)?;
            verbs::with_library(&mut command, &folder);
        }
    }
    let report = report()?;
    command.env("MLX5_SIM_REPORT", &report);
    if let Some(settings) = &arguments.sim {
        if let Some(socket) = wire::socket(settings) {
            wire::serve(&socket, settings, profile)?;
        }
        command.env("MLX5_SIM", settings);
    }
    // Returns only if the program cannot be run.
    let error = command.exec();
    let _ = fs::remove_file(&report);
    Err(Failure::Run { program: program.to_string_lossy().into_owned(), error })
}

/// Prefix of the files in which the processes of a program record violations. The process ID
/// follows, which stays this process's own.
const REPORT: &str = "mlx5-sim-report-";

/// Creates an empty file for reports, and removes those of processes that do not exist any more.
fn report() -> Result<PathBuf, Failure> {
    let above = env::temp_dir();
    for entry in fs::read_dir(&above).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(REPORT));
        if number.is_some_and(|number| !Path::new("/proc").join(number).exists()) {
            // The program was killed. Removing another user's file fails, and it stays.
            let _ = fs::remove_file(entry.path());
        }
    }
    let path = above.join(format!("{REPORT}{}", process::id()));
    match fs::write(&path, "") {
        Ok(()) => Ok(path),
        Err(error) => Err(Failure::File { path, error }),
    }
}

/// The library, followed by the libraries that are preloaded anyway.
fn preloaded(library: &Path) -> OsString {
    let mut list = library.as_os_str().to_owned();
    if let Some(others) = env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        list.push(":");
        list.push(others);
    }
    list
}
