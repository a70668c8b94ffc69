//! A simulated machine in this process, and the programs that run on it.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use mlx5_sim::{CmCounts, Fault};
use mlx5_sim_wire::Served;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The longest that anything may take; far longer than it does.
const DEADLINE: Duration = Duration::from_secs(60);

/// The kinds of port on which everything runs.
pub(crate) const LINKS: [&str; 2] = ["link=ib", "link=roce"];

/// A machine that this process serves.
pub(crate) struct Machine(Served);

impl Machine {
    pub(crate) fn serve(settings: &str) -> Self {
        Self(Served::start(&settings.parse().expect("settings")).expect("a host"))
    }

    /// The socket at which the machine is served.
    pub(crate) fn socket(&self) -> &str {
        self.0.socket().to_str().expect("a path that is text")
    }

    /// Gives its device a fault.
    pub(crate) fn inject(&self, fault: Fault) {
        self.0.simulator().inject(0, fault);
    }

    /// Starts a program on the machine.
    pub(crate) fn start(&self, program: &str, arguments: &[&str]) -> Process {
        Process::start(program, &[arguments, &["--wire", self.socket()]].concat())
    }

    /// Starts a program that is killed at call number `calls` into the machine's kernel.
    pub(crate) fn start_mortal(&self, program: &str, arguments: &[&str], calls: u32) -> Process {
        let arguments = [arguments, &["--wire", self.socket()]].concat();
        Process::start_with(program, &arguments, &[("MLX5_SIM_WIRE_KILL", &calls.to_string())])
    }

    /// Starts a server, and returns its address as well.
    pub(crate) fn server(&self, program: &str, arguments: &[&str]) -> (Process, String) {
        let mut server = self.start(program, &[&["serve", "--listen"], arguments].concat());
        let line = server.line("ready on ");
        let address = line.trim_start_matches("ready on ").to_owned();
        (server, address)
    }

    /// Ends the machine. Checks that no driver broke a rule, and that no program left anything.
    pub(crate) fn end(self) {
        let simulator = self.0.simulator().clone();
        let violations = self.0.end().expect("a host that ends");
        assert_eq!(violations, 0, "standard error has the violations");
        assert_eq!(simulator.cm_counts(), CmCounts::default());
        assert_eq!(simulator.object_counts(0), Default::default());
    }
}

/// A program of the examples, killed when it is dropped.
pub(crate) struct Process {
    name: String,
    child: Child,
    lines: Receiver<String>,
    /// The lines of both outputs so far.
    said: Vec<String>,
}

impl Process {
    /// Starts a program.
    pub(crate) fn start(program: &str, arguments: &[&str]) -> Self {
        Self::start_with(program, arguments, &[])
    }

    fn start_with(program: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let name = format!("{program} {}", arguments.join(" "));
        let mut command = Command::new(built(program));
        command
            .envs(environment.iter().copied())
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{name}: {error}"));
        let (sender, lines) = channel();
        pass_on(child.stdout.take(), sender.clone());
        pass_on(child.stderr.take(), sender);
        Self { name, child, lines, said: Vec::new() }
    }

    /// Waits for the next line, or none when the program has closed its outputs.
    fn next(&mut self, deadline: Instant) -> Option<String> {
        match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                self.said.push(line.clone());
                Some(line)
            }
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => {
                panic!("{} hangs; it said {:#?}", self.name, self.said)
            }
        }
    }

    /// Waits for a line with this text, or for the end.
    pub(crate) fn line_or_end(&mut self, text: &str) -> Option<String> {
        let deadline = Instant::now() + DEADLINE;
        while let Some(line) = self.next(deadline) {
            if line.contains(text) {
                return Some(line);
            }
        }
        None
    }

    /// Waits for a line with this text.
    pub(crate) fn line(&mut self, text: &str) -> String {
        if let Some(line) = self.line_or_end(text) {
            return line;
        }
        panic!("{} has ended without \"{text}\"; it said {:#?}", self.name, self.said);
    }

    /// Waits for the end, and returns whether the program succeeded, and its output.
    pub(crate) fn end(mut self) -> (bool, String) {
        let deadline = Instant::now() + DEADLINE;
        while self.next(deadline).is_some() {}
        let status = self.ended(deadline);
        (status.success(), self.said.join("\n"))
    }

    /// Waits for the end of the process, whose outputs are closed.
    fn ended(&mut self, deadline: Instant) -> ExitStatus {
        loop {
            if let Some(status) = self.child.try_wait().expect("a child to wait for") {
                return status;
            }
            assert!(Instant::now() < deadline, "{} hangs; it said {:#?}", self.name, self.said);
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits for the end, which must be a success, and returns the output.
    pub(crate) fn succeed(self) -> String {
        let name = self.name.clone();
        let (success, said) = self.end();
        assert!(success, "{name} failed; it said\n{said}");
        said
    }

    /// Waits for the end, which must be a failure with exactly one error line, and returns that
    /// line.
    pub(crate) fn fail(self) -> String {
        let name = self.name.clone();
        let (success, said) = self.end();
        let errors: Vec<&str> = said.lines().filter(|line| line.starts_with("error: ")).collect();
        assert!(!success && errors.len() == 1, "{name} said\n{said}");
        errors[0].to_owned()
    }

    /// Presses Enter.
    pub(crate) fn enter(&mut self) {
        let input = self.child.stdin.as_mut().expect("an input that is piped");
        input.write_all(b"\n").expect("a program that reads");
    }

    /// Stops it, as a program that hangs.
    pub(crate) fn stop(&self) {
        let process = Pid::from_raw(self.child.id() as i32);
        kill(process, Signal::SIGSTOP).unwrap_or_else(|errno| panic!("{}: {errno}", self.name));
    }

    /// Kills it, without a chance to clean up.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("a child to kill");
        self.child.wait().expect("a child to wait for");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // This call fails if the program has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Passes the lines of an output on, until it is closed.
fn pass_on(output: Option<impl Read + Send + 'static>, to: Sender<String>) {
    let output = BufReader::new(output.expect("an output that is piped"));
    thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            // The test may have ended, and the receiver with it.
            let _ = to.send(line);
        }
    });
}

/// Checks the error of a client that has lost its server: either the stream ended, or a request
/// failed before the client noticed that.
pub(crate) fn lost(error: &str) {
    let causes = ["hung up", "has failed", "reset by peer"];
    assert!(causes.iter().any(|cause| error.contains(cause)), "{error}");
}

/// The program of an example. Cargo builds it into a folder beside that of this test.
fn built(program: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    let profile = test.ancestors().nth(2).expect("a folder of the profile");
    let path = profile.join("examples").join(program);
    assert!(
        path.exists(),
        "{} is not built: run `cargo build --examples`, or `cargo test`, which builds them",
        path.display()
    );
    path
}
