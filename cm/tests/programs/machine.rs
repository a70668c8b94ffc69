//! A simulated machine in this process, and programs that run on it with the library preloaded.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use mlx5_sim::{CmCounts, Simulator};
use mlx5_sim_wire::{Host, Leave, lock_of};

/// The longest that anything may take; far longer than it does.
const DEADLINE: Duration = Duration::from_secs(120);

/// A machine that this process serves.
pub(crate) struct Machine {
    socket: PathBuf,
    simulator: Simulator,
    leave: Leave,
    /// Gives how often a driver did what none may.
    served: Option<JoinHandle<std::io::Result<usize>>>,
}

impl Machine {
    pub(crate) fn serve(settings: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("mlx5-cm-{}-{number}", std::process::id());
        let socket = std::env::temp_dir().join(name);
        let settings = settings.parse().expect("settings");
        let host = Host::bind(&socket, &settings).expect("a socket").expect("nobody else there");
        let (simulator, leave) = (host.simulator().clone(), host.leave());
        let served = Some(thread::spawn(move || host.serve(None)));
        Self { socket, simulator, leave, served }
    }

    /// Waits until somebody listens.
    pub(crate) fn wait_for_listener(&self, server: &Program) {
        let start = Instant::now();
        while self.simulator.cm_counts().listeners == 0 {
            assert!(start.elapsed() < DEADLINE, "{} does not listen", server.name);
            thread::yield_now();
        }
    }

    /// Ends the machine, once all programs have gone. Nothing is left of them, and no driver did what
    /// it never must.
    pub(crate) fn end(mut self) {
        self.leave.leave();
        let served = self.served.take().expect("a machine that has not ended");
        let violations = served.join().expect("a host that ends").expect("a host");
        assert_eq!(violations, 0, "standard error has the violations");
        assert_eq!(self.simulator.cm_counts(), CmCounts::default());
        assert_eq!(self.simulator.object_counts(0), Default::default());
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.leave.leave();
        // The socket is left only by a test that has failed.
        for file in [lock_of(&self.socket), self.socket.clone()] {
            let _ = std::fs::remove_file(file);
        }
    }
}

/// A program, killed when it is dropped.
pub(crate) struct Program {
    name: String,
    child: Child,
    lines: Receiver<String>,
    said: String,
}

/// Where cargo puts what it builds: this test is in a folder of it.
fn built() -> PathBuf {
    let this = std::env::current_exe().expect("the path of this program");
    this.parent().and_then(|deps| deps.parent()).expect("two folders").to_owned()
}

/// The preload library, beside the tests or one folder up.
fn library() -> PathBuf {
    let name = "libmlx5_sim_preload.so";
    let places = [built().join("deps").join(name), built().join(name)];
    let found = places.into_iter().find(|place| place.exists());
    found.expect("cargo builds the library with the tests")
}

impl Program {
    /// Starts a program: of this machine, or of the examples.
    pub(crate) fn start(machine: &Machine, (program, arguments): (&str, &[&str])) -> Self {
        let ours = built().join("examples").join(program);
        let is_ours = program == "peer";
        let mut command = match is_ours {
            true => Command::new(&ours),
            false => Command::new(program),
        };
        command
            .args(arguments)
            .env("LD_PRELOAD", library())
            .env("MLX5_SIM", format!("wire={}", machine.socket.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let hint = match is_ours {
            true => "run `cargo build -p mlx5-cm --examples`",
            false => "install the Debian packages rdmacm-utils and perftest",
        };
        let mut child =
            command.spawn().unwrap_or_else(|error| panic!("{program}: {error}: {hint}"));
        let (sender, lines) = channel();
        pass_on(child.stdout.take(), sender.clone());
        pass_on(child.stderr.take(), sender);
        let name = format!("{program} {}", arguments.join(" "));
        Self { name, child, lines, said: String::new() }
    }

    /// Takes the next line; says whether there was one.
    fn next(&mut self, deadline: Instant) -> bool {
        match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                self.said += &line;
                self.said.push('\n');
                true
            }
            Err(RecvTimeoutError::Disconnected) => false,
            Err(RecvTimeoutError::Timeout) => panic!("{} hangs; it said {}", self.name, self.said),
        }
    }

    /// Waits until it has said something.
    pub(crate) fn wait_for(&mut self, text: &str) {
        let deadline = Instant::now() + DEADLINE;
        while !self.said.contains(text) {
            assert!(self.next(deadline), "{} ended without \"{text}\": {}", self.name, self.said);
        }
    }

    /// Waits for the end; whether it succeeded, and what it said.
    pub(crate) fn ends(mut self) -> (bool, String) {
        let deadline = Instant::now() + DEADLINE;
        while self.next(deadline) {}
        let status = self.child.wait().expect("a program that ends");
        (status.success(), std::mem::take(&mut self.said))
    }

    /// Waits for the end, and what it said. rping of rdma-core 44 may fail at its very end: one of its
    /// threads asks for events on a channel that another one closes.
    pub(crate) fn succeeds(self) -> String {
        let name = self.name.clone();
        let (succeeded, said) = self.ends();
        let closed = name.starts_with("rping ") && said.contains("Bad file descriptor");
        assert!(succeeded || closed, "{name} failed: {said}");
        said
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It has ended, or is not waited for any more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn pass_on(from: Option<impl Read + Send + 'static>, to: Sender<String>) {
    let Some(from) = from else { return };
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if to.send(line).is_err() {
                break;
            }
        }
    });
}
