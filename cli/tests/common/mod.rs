//! Running the command, as a user does.

// Each file of tests uses part of it.
#![allow(dead_code)]

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// The output and the exit status of a run of the command.
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Run {
    fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).expect("UTF-8 on stdout"),
            err: String::from_utf8(output.stderr).expect("UTF-8 on stderr"),
        }
    }

    /// Asserts that it worked; gives stdout.
    #[track_caller]
    pub(crate) fn done(self) -> String {
        assert_eq!(self.code, Some(0), "stderr: {}\nstdout: {}", self.err, self.out);
        self.out
    }

    /// Asserts that the command line was refused, with something to go on; gives stderr.
    #[track_caller]
    pub(crate) fn refused(self) -> String {
        assert_eq!(self.code, Some(2), "stderr: {}\nstdout: {}", self.err, self.out);
        assert_eq!(self.out, "");
        assert!(self.err.contains("error: "), "{}", self.err);
        let helps = ["hint: ", "For more information", "tip: ", "Usage: "];
        assert!(helps.iter().any(|help| self.err.contains(help)), "{}", self.err);
        self.err
    }

    /// Asserts that it failed, without a panic; gives stderr.
    #[track_caller]
    pub(crate) fn failed(self) -> String {
        assert_eq!(self.code, Some(1), "stderr: {}\nstdout: {}", self.err, self.out);
        assert!(self.err.contains("mlx5: "), "{}", self.err);
        self.err
    }
}

/// The longest that a program may take; far longer than it does.
const LIMIT: Duration = Duration::from_secs(120);

/// Kills a program that a test waits for, if it has not ended when the limit is over. Keep it until
/// the program has ended: then all that is read of the program ends, too, and the test fails.
pub(crate) struct Limit(#[expect(dead_code, reason = "its end is what counts")] Sender<()>);

impl Limit {
    pub(crate) fn on(child: &Child) -> Self {
        let (process, (held, dropped)) = (child.id(), channel());
        std::thread::spawn(move || {
            if dropped.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout) {
                eprintln!("process {process} hangs, and is killed");
                let _ = kill(Pid::from_raw(process as i32), Signal::SIGKILL);
            }
        });
        Self(held)
    }
}

/// Runs a program to its end.
pub(crate) trait Ended {
    /// Returns its output and its exit status. It must end within the limit.
    fn ended(&mut self) -> Output;
}

impl Ended for Command {
    #[track_caller]
    fn ended(&mut self) -> Output {
        let child = self.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
        let _limit = Limit::on(&child);
        child.wait_with_output().expect("it ends")
    }
}

/// The command with these words.
pub(crate) fn command(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mlx5"));
    command.args(words).stdin(Stdio::null());
    command
}

/// Runs the command line, as it is typed.
#[track_caller]
pub(crate) fn mlx5(line: &str) -> Run {
    let words: Vec<&str> = line.split_whitespace().collect();
    Run::of(command(&words).ended())
}

/// Runs the command line with `input` on stdin.
#[track_caller]
pub(crate) fn mlx5_with_input(line: &str, input: &str) -> Run {
    let words: Vec<&str> = line.split_whitespace().collect();
    let mut child = command(&words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    let _limit = Limit::on(&child);
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(input.as_bytes()).expect("it reads");
    drop(stdin);
    Run::of(child.wait_with_output().expect("it ends"))
}

/// Runs the command, and sends it SIGINT when it has written a line that begins with `sign` to
/// stderr.
#[track_caller]
pub(crate) fn interrupted(mut command: Command, sign: &str) -> Run {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let _limit = Limit::on(&child);
    let mut reported = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut err = String::new();
    while !err.lines().any(|line| line.starts_with(sign)) {
        assert!(reported.read_line(&mut err).expect("UTF-8 on stderr") > 0, "it ended: {err}");
    }
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).expect("it runs");
    let mut out = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut out).expect("UTF-8 on stdout");
    reported.read_to_string(&mut err).expect("UTF-8 on stderr");
    Run { code: child.wait().expect("it ends").code(), out, err }
}

/// Whether this machine has a program. With the variable `needed` it must.
pub(crate) fn there_is(program: &str, needed: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = std::env::split_paths(&path).any(|folder| folder.join(program).exists());
    if !there {
        assert!(std::env::var_os(needed).is_none(), "this machine has no {program}");
        eprintln!("left out: this machine has no {program}");
    }
    there
}
