//! Waits for programs with a time limit: a program that hangs fails its test.

use std::io;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The longest that any program may take; far longer than it does.
const LIMIT: Duration = Duration::from_secs(60);

/// Does work that ends when a process ends. At the time limit, kills the process and panics.
pub(crate) fn within<T: Send + 'static>(
    process: u32,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    let (done, waits) = channel();
    let worker = thread::spawn(move || done.send(work()));
    match waits.recv_timeout(LIMIT) {
        Ok(answer) => answer,
        Err(RecvTimeoutError::Timeout) => {
            let _ = kill(Pid::from_raw(process as i32), Signal::SIGKILL);
            panic!("process {process} hangs");
        }
        Err(RecvTimeoutError::Disconnected) => match worker.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(_) => unreachable!("the worker has sent its answer"),
        },
    }
}

/// Runs a program to its end; fails if it cannot be started.
pub(crate) fn output(command: &mut Command) -> io::Result<Output> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn()?;
    within(child.id(), move || child.wait_with_output())
}
