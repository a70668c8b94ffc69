//! Runs programs on the simulated device, with a time limit.

use std::ffi::OsStr;
use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::build::{self, Profile};
use crate::failure::Failure;
use crate::provider::Provider;
use crate::verbs;
use crate::wire::Host;

/// A port of the simulated device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    /// Name in the ledger.
    pub(crate) name: &'static str,
    /// Settings for `MLX5_SIM`.
    pub(crate) settings: &'static str,
    /// Link layer, as `ibv_devinfo` prints it.
    pub(crate) layer: &'static str,
    /// Option that selects the GID for programs of rdma-core that need one.
    pub(crate) gid: &'static str,
}

/// Ports that all tests run on.
pub(crate) const LINKS: [Link; 2] = [
    Link { name: "ib", settings: "link=ib", layer: "InfiniBand", gid: "" },
    Link { name: "roce", settings: "link=roce", layer: "Ethernet", gid: "-g 1" },
];

/// The simulated device that programs see.
pub(crate) const DEVICE: &str = "mlx5_0";
/// A second device on the same wire, on machines that have two.
pub(crate) const SECOND: &str = "mlx5_1";

/// Output of a program, and its end.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) stdout: String,
    /// Standard error without the simulator's lines.
    pub(crate) stderr: String,
    /// Standard error with the simulator's lines.
    pub(crate) stderr_with_simulator: String,
    /// Violations that the simulator reported.
    pub(crate) violations: Vec<String>,
    /// `None` if the program succeeded.
    pub(crate) trouble: Option<String>,
}

/// Paths that programs need to find the simulated device.
#[derive(Debug)]
pub(crate) struct Door {
    library: PathBuf,
    host: PathBuf,
    /// Folder of our libibverbs, if it was built.
    verbs: Option<PathBuf>,
    /// Folder of C's libibverbs, if programs do not find it by themselves.
    theirs: Option<PathBuf>,
    pub(crate) provider: Provider,
}

/// A running program.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    seconds: u32,
    /// Output read so far by `says`.
    said: Vec<u8>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // timeout(1) has killed it if it did not end by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Door {
    /// Builds the libraries that `provider` needs.
    pub(crate) fn build(provider: Provider) -> Result<Self, Failure> {
        Ok(Self {
            verbs: (provider == Provider::Rust).then(verbs::build).transpose()?,
            theirs: verbs::c_folder()?,
            provider,
            library: build::shared_library("mlx5-sim-preload", Profile::Release)?,
            host: build::program("mlx5-sim-wire", Profile::Release)?,
        })
    }

    /// The same device for programs that run over another libibverbs.
    pub(crate) fn over(&self, provider: Provider) -> Self {
        let Self { library, host, verbs, theirs, .. } = self;
        let (library, host) = (library.clone(), host.clone());
        Self { library, host, verbs: verbs.clone(), theirs: theirs.clone(), provider }
    }

    /// Starts a machine that several programs share.
    pub(crate) fn machine(&self, settings: &str, link: Link) -> Result<Host, Failure> {
        Host::start(&self.host, settings, link.name)
    }

    /// Runs a program in `folder` for at most `seconds`.
    pub(crate) fn run(
        &self,
        link: Link,
        folder: &Path,
        seconds: u32,
        program: impl AsRef<OsStr>,
        arguments: &[&str],
    ) -> Result<Ended, Failure> {
        self.start(link.settings, folder, seconds, program, arguments)?.wait()
    }

    /// Starts a program in `folder` for at most `seconds`, with `settings` for `MLX5_SIM`.
    pub(crate) fn start(
        &self,
        settings: &str,
        folder: &Path,
        seconds: u32,
        program: impl AsRef<OsStr>,
        arguments: &[&str],
    ) -> Result<Running, Failure> {
        let mut preload = std::ffi::OsString::from("LD_PRELOAD=");
        preload.push(&self.library);
        // timeout(1) also kills the program's children. Only the program is preloaded, not
        // timeout(1).
        let mut command = Command::new("timeout");
        command.args(["--signal=KILL", &seconds.to_string(), "env"]).arg(preload);
        let libraries = match self.provider {
            Provider::C => &self.theirs,
            Provider::Rust => &self.verbs,
        };
        if let Some(folder) = libraries {
            let mut path = std::ffi::OsString::from("LD_LIBRARY_PATH=");
            path.push(folder);
            command.arg(path);
        }
        let child = command
            .arg(format!("MLX5_SIM={settings}"))
            .arg(&program)
            .args(arguments)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        Ok(Running { child, seconds, said: Vec::new() })
    }
}

fn failed(error: std::io::Error) -> Failure {
    Failure::Run { program: "timeout".to_owned(), error }
}

impl Running {
    /// Returns whether the program has ended.
    pub(crate) fn has_ended(&mut self) -> Result<bool, Failure> {
        self.child.try_wait().map(|status| status.is_some()).map_err(failed)
    }

    /// Waits until the program prints `text` or ends.
    pub(crate) fn says(&mut self, text: &str) -> Result<(), Failure> {
        let Some(stdout) = self.child.stdout.as_mut() else { return Ok(()) };
        let mut piece = [0; 4096];
        while !String::from_utf8_lossy(&self.said).contains(text) {
            match stdout.read(&mut piece).map_err(failed)? {
                0 => break,
                read => self.said.extend_from_slice(&piece[..read]),
            }
        }
        Ok(())
    }

    /// Waits until the program ends.
    pub(crate) fn wait(mut self) -> Result<Ended, Failure> {
        let mut stderr = self.child.stderr.take().ok_or_else(|| failed(ErrorKind::Other.into()))?;
        let mut stdout = self.child.stdout.take().ok_or_else(|| failed(ErrorKind::Other.into()))?;
        // Reads both pipes at once, so that neither fills up while this waits for the other.
        let other = std::thread::spawn(move || {
            let mut said = Vec::new();
            stderr.read_to_end(&mut said).map(|_| said)
        });
        let mut said = std::mem::take(&mut self.said);
        stdout.read_to_end(&mut said).map_err(failed)?;
        let stderr = other.join().expect("reading does not panic").map_err(failed)?;
        let seconds = self.seconds;
        let status = self.child.wait().map_err(failed)?;
        let trouble = match (status.code(), status.success()) {
            (_, true) => None,
            // Killed together with its children, or 128 + SIGKILL.
            (None | Some(124 | 137), _) => Some(format!("no end within {seconds} s")),
            (Some(code), _) if code > 128 => Some(format!("ended by signal {}", code - 128)),
            (Some(code), _) => Some(format!("exit status {code}")),
        };
        let stderr = String::from_utf8_lossy(&stderr);
        Ok(Ended {
            stdout: String::from_utf8_lossy(&said).into_owned(),
            violations: violations(&stderr),
            stderr: without_the_simulator(&stderr),
            stderr_with_simulator: stderr.into_owned(),
            trouble,
        })
    }
}

/// Prefix of a violation in the simulator's output.
const VIOLATION: &str = "mlx5-sim: violation: ";

/// Violations that the simulator reported. A report may begin in mid-line.
fn violations(said: &str) -> Vec<String> {
    let lines = said.lines().filter_map(|line| line.split_once(VIOLATION));
    lines.map(|(_, violation)| violation.to_owned()).collect()
}

/// Removes the simulator's lines about calls that it refuses. Such a line may begin in mid-line.
fn without_the_simulator(said: &str) -> String {
    let mut kept = String::with_capacity(said.len());
    for line in said.split_inclusive('\n') {
        match line.find("mlx5-sim: ") {
            Some(at) => kept.push_str(&line[..at]),
            None => kept.push_str(line),
        }
    }
    kept
}

/// Returns whether a process listens on a TCP port. Reads the kernel's tables, since the server
/// would take a trial connection for the client's.
pub(crate) fn is_listened_to(port: u16) -> bool {
    let place = format!(":{port:04X}");
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
        let table = fs::read_to_string(table).unwrap_or_default();
        table.lines().any(|line| {
            let mut words = line.split_whitespace().skip(1);
            let here = words.next().is_some_and(|address| address.ends_with(&place));
            here && words.nth(1) == Some(LISTENS)
        })
    })
}

/// `TCP_LISTEN` of the kernel's tables.
const LISTENS: &str = "0A";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_listened_to_while_a_listener_has_it() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("its number").port();
        assert!(is_listened_to(port));
        drop(listener);
        assert!(!is_listened_to(port));
    }

    #[test]
    fn violations_are_separated_from_other_lines() {
        let said = format!(
            "test_a (x) ... {VIOLATION}UnknownQp(7)\nmlx5-sim: y\n{VIOLATION}UnknownCq(1)\n"
        );
        assert_eq!(violations(&said), ["UnknownQp(7)", "UnknownCq(1)"]);
    }

    #[test]
    fn simulator_output_in_mid_line_is_removed() {
        let said = "test_a (x) ... mlx5-sim: uverbs0: ENOTTY\nskipped 'no'\nmlx5-sim: y\nend\n";
        assert_eq!(without_the_simulator(said), "test_a (x) ... skipped 'no'\nend\n");
    }
}
