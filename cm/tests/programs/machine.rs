//! A simulated machine in this process, and programs that run on it with the library preloaded.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use mlx5_sim::CmCounts;
use mlx5_sim_wire::Served;

/// Time limit of every wait, far longer than any takes.
const DEADLINE: Duration = Duration::from_secs(120);

/// A machine that this process serves.
pub(crate) struct Machine(Served);

impl Machine {
    pub(crate) fn serve(settings: &str) -> Self {
        Self(Served::start(&settings.parse().expect("settings")).expect("a host"))
    }

    /// Waits until a program listens.
    pub(crate) fn wait_for_listener(&self, server: &Program) {
        let start = Instant::now();
        while self.0.simulator().cm_counts().listeners == 0 {
            assert!(start.elapsed() < DEADLINE, "{} does not listen", server.name);
            thread::yield_now();
        }
    }

    /// Ends the machine after all programs have ended. Checks that they left no object, and that no
    /// driver violated the device's rules.
    pub(crate) fn end(self) {
        let simulator = self.0.simulator().clone();
        let violations = self.0.end().expect("a host that ends");
        assert_eq!(violations, 0, "standard error has the violations");
        assert_eq!(simulator.cm_counts(), CmCounts::default());
        assert_eq!(simulator.object_counts(0), Default::default());
    }
}

/// A program, killed when it is dropped.
pub(crate) struct Program {
    name: String,
    child: Child,
    lines: Receiver<String>,
    said: String,
}

/// Cargo's output folder; this test is in a subfolder of it.
fn built() -> PathBuf {
    let this = std::env::current_exe().expect("the path of this program");
    this.parent().and_then(|deps| deps.parent()).expect("two folders").to_owned()
}

/// Whether the program is in a folder of `PATH`.
pub(crate) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// The Debian package of a program in C.
pub(crate) fn package(program: &str) -> &'static str {
    if program.starts_with("ib_") { "perftest" } else { "rdmacm-utils" }
}

/// The preload library, next to the tests or one folder up.
fn library() -> PathBuf {
    let name = "libmlx5_sim_preload.so";
    let places = [built().join("deps").join(name), built().join(name)];
    let found = places.into_iter().find(|place| place.exists());
    found.expect("cargo builds the library with the tests")
}

/// Names the folder of a libibverbs that the programs use instead of the installed one.
const OVER: &str = "MLX5_CM_OVER";

/// The folder that [`OVER`] names.
pub(crate) fn over() -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os(OVER)?);
    assert!(folder.join("libibverbs.so.1").exists(), "{OVER}: run `cargo xtask verbs`");
    Some(folder)
}

/// Checks that the loader takes libibverbs for a program from this folder; a program that needs
/// libmlx5, too, gets the same file.
fn loads(program: &str, folder: &Path) {
    let mut command = Command::new(program);
    command.env("LD_TRACE_LOADED_OBJECTS", "1").env("LD_LIBRARY_PATH", folder);
    let output = command.output().unwrap_or_else(|error| panic!("{program}: {error}"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let (mut taken, all) = (said.lines().filter(|line| line.contains("=> ")), folder.display());
    let is_ours = |line: &str| line.contains(&format!("{all}/lib"));
    assert!(taken.any(is_ours), "{program} does not load our library:\n{said}");
    let is_verbs = |line: &&str| line.contains("libibverbs.so.1") || line.contains("libmlx5.so.1");
    assert!(said.lines().filter(is_verbs).all(is_ours), "{program} loads C's as well:\n{said}");
}

impl Program {
    /// Starts a program, from this machine or from the examples.
    pub(crate) fn start(machine: &Machine, (program, arguments): (&str, &[&str])) -> Self {
        let ours = built().join("examples").join(program);
        let is_ours = program == "peer";
        let over = over();
        if let (Some(folder), false) = (&over, is_ours) {
            loads(program, folder);
        }
        let mut command = match is_ours {
            true => Command::new(&ours),
            false => Command::new(program),
        };
        command
            .args(arguments)
            .env("LD_PRELOAD", library())
            .envs(over.iter().map(|folder| ("LD_LIBRARY_PATH", folder)))
            .env("MLX5_SIM", format!("wire={}", machine.0.socket().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let hint = match is_ours {
            true => "run `cargo build -p mlx5-cm --examples`".to_owned(),
            false => format!("install the Debian package {}", package(program)),
        };
        let mut child =
            command.spawn().unwrap_or_else(|error| panic!("{program}: {error}: {hint}"));
        let (sender, lines) = channel();
        pass_on(child.stdout.take(), sender.clone());
        pass_on(child.stderr.take(), sender);
        let name = format!("{program} {}", arguments.join(" "));
        Self { name, child, lines, said: String::new() }
    }

    /// Reads the next line; returns whether there was one.
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

    /// Waits until the program has printed `text`.
    pub(crate) fn wait_for(&mut self, text: &str) {
        let deadline = Instant::now() + DEADLINE;
        while !self.said.contains(text) {
            assert!(self.next(deadline), "{} ended without \"{text}\": {}", self.name, self.said);
        }
    }

    /// Waits until our program stops at a step.
    pub(crate) fn wait_for_step(&mut self, step: &str) {
        let (first, rest) = step.split_at(1);
        self.wait_for(&format!("at {}{rest}", first.to_uppercase()));
    }

    /// Waits until the program has printed one of several texts, or has ended.
    pub(crate) fn wait_for_one_of(&mut self, texts: &[&str]) {
        let deadline = Instant::now() + DEADLINE;
        while !texts.iter().any(|text| self.said.contains(text)) && self.next(deadline) {}
    }

    /// Kills it (SIGKILL).
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("a child to kill");
        self.child.wait().expect("a child to wait for");
    }

    /// Waits for the end. Returns whether the program succeeded, and its output.
    pub(crate) fn ends(mut self) -> (bool, String) {
        let deadline = Instant::now() + DEADLINE;
        while self.next(deadline) {}
        let status = self.child.wait().expect("a program that ends");
        (status.success(), std::mem::take(&mut self.said))
    }

    /// Waits for the end, and returns the output. rping of rdma-core 44 may fail at its very end:
    /// one of its threads asks for events on a channel that another one closes.
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
        // It has ended, or the test has stopped waiting for it.
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
