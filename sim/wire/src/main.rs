//! Serves one simulated machine to several processes; see `cargo xtask with-sim`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use mlx5_sim::settings::Settings;
use mlx5_sim_wire::{Host, Wire};
use nix::libc;

const USAGE: &str = "\
usage: mlx5-sim-wire SOCKET [--sim LIST] [--stay]

Serves a simulated machine at SOCKET to all processes with MLX5_SIM=wire=SOCKET, until
none has been there for ten seconds, or for ever with --stay. LIST is what to simulate,
as MLX5_SIM has it. Says \"ready\" once it, or another, serves there.";

/// How long it waits for somebody to come.
const LINGER: Duration = Duration::from_secs(10);
/// How long it waits between two tries to reach another.
const RETRY: Duration = Duration::from_millis(10);
/// The nice value that it would like.
const PRIORITY: i32 = -10;

struct Arguments {
    path: PathBuf,
    settings: Settings,
    stay: bool,
}

/// What the command line says; none where it asks for help.
fn arguments() -> Result<Option<Arguments>, String> {
    let (mut path, mut list, mut stay) = (None, String::new(), false);
    let mut given = std::env::args().skip(1);
    while let Some(argument) = given.next() {
        match &*argument {
            "--sim" => list = given.next().ok_or("--sim needs a list")?,
            "--stay" => stay = true,
            "-h" | "--help" => return Ok(None),
            _ if path.is_none() && !argument.starts_with('-') => path = Some(argument.into()),
            _ => return Err(format!("cannot understand \"{argument}\"")),
        }
    }
    let settings = list.parse::<Settings>().map_err(|error| format!("--sim: {error}"))?;
    Ok(Some(Arguments { path: path.ok_or("no socket is named")?, settings, stay }))
}

/// Waits until the other one that is to serve there does.
fn wait_for_the_other(path: &Path) -> std::io::Result<()> {
    let begun = Instant::now();
    loop {
        match Wire::connect(path) {
            Ok(_) => return Ok(()),
            Err(errno) if begun.elapsed() > LINGER => return Err(errno.into()),
            Err(_) => std::thread::sleep(RETRY),
        }
    }
}

/// Asks to be run as soon as there is something to do: the other processes spin. What is refused
/// costs time only.
fn hurry() {
    // SAFETY: the calls take numbers, and change nothing in memory.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, PRIORITY);
        libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64);
    }
}

fn serve(arguments: &Arguments) -> std::io::Result<usize> {
    hurry();
    let host = Host::bind(&arguments.path, &arguments.settings)?;
    if host.is_none() {
        wait_for_the_other(&arguments.path)?;
    }
    println!("ready");
    std::io::stdout().flush()?;
    match host {
        Some(host) => host.serve((!arguments.stay).then_some(LINGER)),
        None => Ok(0),
    }
}

fn main() -> ExitCode {
    let arguments = match arguments() {
        Ok(Some(arguments)) => arguments,
        Ok(None) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("mlx5-sim-wire: {error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match serve(&arguments) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("mlx5-sim-wire: {}: {error}", arguments.path.display());
            ExitCode::FAILURE
        }
    }
}
