//! A machine that this process serves to others.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mlx5_sim::Simulator;
use mlx5_sim::settings::Settings;

use crate::host::{Host, Leave};

/// Time for which the end waits for programs to disconnect.
const LIMIT: Duration = Duration::from_secs(60);

/// A machine at a socket of its own, served by a thread of this process: for tests that start
/// programs.
///
/// A program finds it by `MLX5_SIM=wire=SOCKET`.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// let machine = mlx5_sim_wire::Served::start(&"link=roce".parse().expect("settings"))?;
/// let settings = format!("wire={}", machine.socket().display());
/// // … start programs with `.env("MLX5_SIM", settings)`, and wait for their end …
/// # drop(settings);
/// assert_eq!(machine.end()?, 0, "standard error has the violations");
/// # Ok(())
/// # }
/// ```
pub struct Served {
    socket: PathBuf,
    simulator: Simulator,
    leave: Leave,
    /// Disconnected once the thread has ended.
    ended: Receiver<()>,
    /// None once it has been joined.
    thread: Option<JoinHandle<io::Result<usize>>>,
}

impl Served {
    /// Starts a machine. Its socket is in the folder for temporary files.
    pub fn start(settings: &Settings) -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self::start_at(format!("mlx5-served-{}-{number}", std::process::id()), settings)
    }

    /// Starts a machine with a socket of this name, in the folder for temporary files. Fails with
    /// [`AddrInUse`](io::ErrorKind::AddrInUse) while a machine is served there.
    pub fn start_at(name: impl AsRef<Path>, settings: &Settings) -> io::Result<Self> {
        let socket = std::env::temp_dir().join(name);
        let host = Host::bind(&socket, settings)?.ok_or(io::ErrorKind::AddrInUse)?;
        let (simulator, leave) = (host.simulator().clone(), host.leave());
        let thread = thread::Builder::new().name("mlx5-served".into());
        let (ends, ended) = channel();
        let serve = move || {
            let _ends = ends;
            host.serve(None)
        };
        let thread = Some(thread.spawn(serve)?);
        Ok(Self { socket, simulator, leave, ended, thread })
    }

    /// Returns where programs find the machine.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Returns the machine itself.
    #[must_use]
    pub fn simulator(&self) -> &Simulator {
        &self.simulator
    }

    /// Waits until all programs have disconnected, and ends the machine. Returns how many
    /// violations of the device model there were; standard error has them.
    ///
    /// Fails with [`TimedOut`](io::ErrorKind::TimedOut) if a program is still connected after a
    /// minute.
    pub fn end(self) -> io::Result<usize> {
        self.end_within(LIMIT)
    }

    fn end_within(mut self, limit: Duration) -> io::Result<usize> {
        self.leave.leave();
        if self.ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            let programs = self.leave.connected();
            let what = format!("processes are still connected after {limit:?}: {programs:?}");
            return Err(io::Error::new(io::ErrorKind::TimedOut, what));
        }
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(violations)) => violations,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Ok(0),
        }
    }
}

impl Drop for Served {
    /// Does not wait for programs: one of them may be why a test has failed.
    fn drop(&mut self) {
        self.leave.leave();
        self.leave.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Wire;

    #[test]
    fn a_program_that_stays_connected_ends_the_wait_with_its_number() {
        let machine = Served::start(&"".parse().expect("settings")).expect("a machine");
        let wire = Wire::connect(machine.socket()).expect("it is served");
        let error = machine.end_within(Duration::from_millis(1)).expect_err("one is connected");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().ends_with(&format!("[{}]", std::process::id())), "{error}");
        drop(wire);
    }
}
