//! Serves one simulated machine to several processes; see `cargo xtask with-sim`.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{ExitCode, exit};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use mlx5_sim::settings::Settings;
use mlx5_sim_wire::{Host, Leave, Wire};
use nix::libc;
use nix::sys::signal::{SigHandler, SigSet, Signal, raise};

const USAGE: &str = "\
usage: mlx5-sim-wire SOCKET [--sim LIST] [--stay]

Serves a simulated machine at SOCKET to all processes with MLX5_SIM=wire=SOCKET, until
none has been there for ten seconds, or for ever with --stay. LIST is what to simulate,
as MLX5_SIM has it: link=roce,devices=2. Says \"ready\" once the machine is there.

Ctrl-C and SIGTERM end it at once, also where it was started with both ignored, as nohup
does, or as process 1 of a container: programs that are there lose their devices. However it
ends, the exit status is 1 if a driver did what none may, and standard error says what.

If another process serves a machine there, that one stays as it is: this one says so, and
ends. It fails if --sim wants another machine, or if --stay is given.

The setting loss acts on packets between devices: with one device, connections inside it
lose none. Name devices=2, and bind each program to an address of its own device.

No doorbell wakes it, so it looks: a thousand times a second while a program
has a device open and none rings, which takes one or two percent of a processor, and
twenty times a second while none has. Programs that spin would keep it waiting, so it
asks for the nice value -10, which root gets. Started with a nice value, it keeps that.";

/// Time without a program after which it ends; also the longest wait for another process to begin
/// to serve.
const LINGER: Duration = Duration::from_secs(10);
/// Time limit after a signal for reporting violations.
const SAYING: Duration = Duration::from_secs(2);
/// Time between two tries to serve, or to connect to another process that does.
const RETRY: Duration = Duration::from_millis(10);
/// The wanted nice value.
const PRIORITY: i32 = -10;

struct Arguments {
    path: PathBuf,
    settings: Settings,
    stay: bool,
}

/// Reads the command line; none if it asks for help.
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

/// The options that have no effect on a machine that already exists.
fn without_effect(arguments: &Arguments, other: &Wire) -> Vec<&'static str> {
    let Settings { trace, about_machine, .. } = &arguments.settings;
    let another = !about_machine.is_empty() && about_machine != other.settings();
    let options = [("--sim", another || *trace), ("--stay", arguments.stay)];
    options.into_iter().filter_map(|(option, lost)| lost.then_some(option)).collect()
}

/// Leaves the socket to another process that serves there. Fails if the options ask for another
/// machine.
fn leave_to(other: &Wire, arguments: &Arguments) -> Result<(), String> {
    let who = match other.host() {
        0 => "another process".to_owned(),
        host => format!("process {host}"),
    };
    let there = match other.settings() {
        "" => format!("{who} serves a machine there already"),
        settings => format!("{who} serves a machine there already, with --sim {settings}"),
    };
    let lost = without_effect(arguments, other);
    if lost.is_empty() {
        eprintln!("mlx5-sim-wire: {}: {there}; this one ends", arguments.path.display());
        return Ok(());
    }
    let lost = lost.join(" and ");
    Err(format!("{there}, which {lost} cannot change: end that, or name another socket"))
}

/// Asks the kernel to run this process as soon as there is something to do: the other processes
/// spin. If a call is refused, the machine is only slower.
fn hurry() {
    // SAFETY: the calls take numbers, and change nothing in memory.
    unsafe {
        // A nice value that was set at the start is kept.
        if libc::getpriority(libc::PRIO_PROCESS, 0) == 0 {
            libc::setpriority(libc::PRIO_PROCESS, 0, PRIORITY);
        }
        libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64);
    }
}

/// The signals that end a machine.
fn signals() -> SigSet {
    [Signal::SIGINT, Signal::SIGTERM].into_iter().collect()
}

/// The host that a signal ends; `None` until this process serves.
type Served = Arc<Mutex<Option<Leave>>>;

/// Ends the process at the first signal, which is blocked. The signal then has its usual effect,
/// but socket and lock are removed, and violations are reported. Both threads start here, for later
/// there may be no memory for them.
fn end_by_signal(served: &Served) -> io::Result<()> {
    let (ask, asked) = mpsc::channel::<Leave>();
    let (count, said) = mpsc::channel();
    let say = move || {
        if let Ok(leave) = asked.recv() {
            // The process may have ended the wait.
            let _ = count.send(leave.violations());
        }
    };
    let served = Arc::clone(served);
    let end = move || {
        // It fails for a set of no signals alone.
        let signal = signals().wait().unwrap_or(Signal::SIGTERM);
        let leave = served.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(leave) = leave else { end_by(signal) };
        // If it cannot be removed here, it is removed below.
        let _ = leave.close();
        // At the time limit the thread may still wait for a reader of standard error; then there
        // are violations.
        let has_violations = ask.send(leave.clone()).is_ok()
            && said.recv_timeout(SAYING).map_or(true, |all| all > 0);
        leave.release();
        if has_violations {
            exit(1);
        }
        end_by(signal)
    };
    thread::Builder::new().name("violations".to_owned()).spawn(say)?;
    thread::Builder::new().name("signals".to_owned()).spawn(end).map(drop)
}

/// The process that serves the machine.
enum Role {
    This(Host),
    Other(Wire),
}

/// Starts the machine, or finds the one that another process serves. Waits while that one is about
/// to serve, or to end.
fn take_role(arguments: &Arguments, served: &Served) -> Result<Role, String> {
    let begun = Instant::now();
    loop {
        // A signal waits for this lock, so that it finds all that it has to remove.
        let mut leave = served.lock().unwrap_or_else(PoisonError::into_inner);
        let host = Host::bind(&arguments.path, &arguments.settings);
        if let Some(host) = host.map_err(|error| error.to_string())? {
            *leave = Some(host.leave());
            return Ok(Role::This(host));
        }
        drop(leave);
        match Wire::connect(&arguments.path) {
            Ok(other) => return Ok(Role::Other(other)),
            Err(error) if !error.is_absent() || begun.elapsed() > LINGER => {
                return Err(error.to_string());
            }
            Err(_) => thread::sleep(RETRY),
        }
    }
}

/// Ends the process by the default action of a signal, even if another action was inherited. For
/// process 1 of a container the kernel takes no action; it exits with the status that shells use
/// for the signal.
fn end_by(signal: Signal) -> ! {
    // SAFETY: the default action is no code of this process.
    let _ = unsafe { nix::sys::signal::signal(signal, SigHandler::SigDfl) };
    let _ = signals().thread_unblock();
    let _ = raise(signal);
    exit(128 + signal as i32)
}

/// Serves the machine, and returns the number of violations.
fn serve(arguments: &Arguments) -> Result<usize, String> {
    let failed = |error: io::Error| error.to_string();
    // Threads that start later inherit it.
    hurry();
    let blocked = signals().thread_block();
    blocked.map_err(|errno| errno.to_string())?;
    let served = Served::default();
    end_by_signal(&served).map_err(failed)?;
    let role = take_role(arguments, &served)?;
    if let Role::Other(other) = &role {
        leave_to(other, arguments)?;
    }
    println!("ready");
    io::stdout().flush().map_err(failed)?;
    match role {
        Role::This(host) => host.serve((!arguments.stay).then_some(LINGER)).map_err(failed),
        Role::Other(_) => Ok(0),
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
