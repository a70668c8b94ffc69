//! Starts simulated machines that several processes share.

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::build::{self, Profile};
use crate::failure::Failure;

/// The program that serves the machine.
const HOST: &str = "mlx5-sim-wire";

/// The socket in the settings for `MLX5_SIM`.
pub(crate) fn socket(settings: &str) -> Option<PathBuf> {
    settings.split(',').find_map(|setting| setting.trim().strip_prefix("wire=")).map(PathBuf::from)
}

/// Makes sure that a machine is served at a socket. The process that starts the machine decides its
/// settings.
pub(crate) fn serve(path: &Path, settings: &str, profile: Profile) -> Result<(), Failure> {
    if is_served(path) {
        return Ok(());
    }
    let host = build::program(HOST, profile)?;
    // `setsid` detaches it from the terminal, so that it outlives this process.
    let mut command = Command::new("setsid");
    command.arg("--fork").arg(host).arg(path).args(["--sim", settings]).stdin(Stdio::null());
    let mut child = started(&mut command)?;
    let ready = ready(&mut child);
    // Waits for the process that forked; the host keeps running.
    child.wait().map_err(failed)?;
    // Another task may have started a machine of another kind in the meantime; then this host
    // refused to start.
    if is_served(path) { Ok(()) } else { ready }
}

/// Whether a process serves the socket.
fn is_served(path: &Path) -> bool {
    // The kernel refuses a connection from a socket of another type with its own error, and only if
    // a process listens.
    let asked = UnixDatagram::unbound().and_then(|socket| socket.connect(path));
    matches!(asked, Err(error) if error.raw_os_error() == Some(WRONG_TYPE))
}

/// `EPROTOTYPE` of `asm-generic/errno.h`.
const WRONG_TYPE: i32 = 91;

fn failed(error: std::io::Error) -> Failure {
    Failure::Run { program: HOST.to_owned(), error }
}

fn started(command: &mut Command) -> Result<Child, Failure> {
    command.stdout(Stdio::piped()).spawn().map_err(failed)
}

/// Waits until the host prints that it serves.
fn ready(child: &mut Child) -> Result<(), Failure> {
    let mut said = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output).read_line(&mut said).map_err(failed)?;
    }
    if said.trim() == "ready" {
        return Ok(());
    }
    let what = "no \"ready\"; it has said on standard error why".to_owned();
    Err(Failure::Output { program: HOST.to_owned(), what })
}

/// A host that this process owns; it ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct Host {
    path: PathBuf,
    child: Child,
}

impl Host {
    /// Starts a host at a socket that no other host of this process uses.
    pub(crate) fn start(program: &Path, settings: &str, name: &str) -> Result<Self, Failure> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir();
        let path = folder.join(format!("mlx5-wire-{}-{name}-{number}", std::process::id()));
        let mut command = Command::new(program);
        command.arg(&path).args(["--sim", settings]).stdin(Stdio::null());
        let mut host = Self { path, child: started(&mut command)? };
        ready(&mut host.child)?;
        Ok(host)
    }

    /// Value of `MLX5_SIM` for processes that share this machine.
    pub(crate) fn settings(&self) -> String {
        format!("wire={}", self.path.display())
    }

    /// Waits until the host has ended, which it does after some time without clients.
    pub(crate) fn wait(&mut self) -> Result<ExitStatus, Failure> {
        self.child.wait().map_err(failed)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // The host may have ended already, and has nothing to save.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.path);
        let mut lock = std::mem::take(&mut self.path).into_os_string();
        lock.push(".lock");
        let _ = std::fs::remove_file(lock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_is_found_among_the_settings() {
        assert_eq!(socket("link=roce, wire=/tmp/x"), Some(PathBuf::from("/tmp/x")));
        assert_eq!(socket("link=roce"), None);
        assert!(!is_served(Path::new("/nowhere")));
    }
}
