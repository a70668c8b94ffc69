//! Runs tests, each in a process of its own; measures their time and the functions that they reach.

use std::collections::HashSet;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::compile::Program;
use crate::failure::Failure;

/// Address space of a test, in KiB: a bug may allocate memory without end.
const ADDRESSES: &str = "8388608";

/// Runs a program with limits on its address space, its processor time, and its duration.
const LIMITED: &str =
    "ulimit -c 0; ulimit -v $1; ulimit -t $2; shift 2; exec timeout --signal=KILL \"$@\"";

/// Exit codes of a program that a limit ended: of `timeout`, SIGKILL and SIGXCPU.
const OVER: [i32; 3] = [124, 128 + 9, 128 + 24];

/// A test.
#[derive(Debug)]
pub(super) struct Test {
    pub(super) program: Program,
    pub(super) name: String,
    /// Its usual duration.
    pub(super) took: Duration,
    /// The functions with bugs that it reaches; `None` if it fails only while this is recorded.
    reached: Option<HashSet<u32>>,
    /// Whether it passes without a bug.
    passes: bool,
}

/// Outcome of a test's run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ended {
    Passed,
    Failed,
    /// It exceeded its time.
    Not,
}

impl Test {
    /// Whether it may reach a function.
    pub(super) fn reaches(&self, function: u32) -> bool {
        self.reached.as_ref().is_none_or(|reached| reached.contains(&function))
    }

    /// Runs it with a bug; zero means none.
    pub(super) fn run(&self, bug: u32) -> Result<Ended, Failure> {
        self.start(&[("MLX5_MUTANT", bug.to_string())])
    }

    fn start(&self, environment: &[(&str, String)]) -> Result<Ended, Failure> {
        let usual = self.took.as_secs() + 1;
        let mut command = Command::new("sh");
        command.args(["-c", LIMITED, "sh", ADDRESSES, &(10 + 5 * usual).to_string()]);
        command.arg((60 + 10 * usual).to_string()).arg(&self.program.path);
        command.args([&self.name, "--exact", "--test-threads=1"]);
        command.current_dir(&self.program.folder).env("CARGO_MANIFEST_DIR", &self.program.folder);
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let status = command.status();
        let status = status.map_err(|error| Failure::Run { program: "sh".into(), error })?;
        Ok(match status.code() {
            Some(0) => Ended::Passed,
            Some(code) if OVER.contains(&code) => Ended::Not,
            None if status.signal() == Some(9) => Ended::Not,
            _ => Ended::Failed,
        })
    }

    /// Runs it without a bug; records the functions that it reaches and its duration.
    fn measure(&mut self, notes: &Path) -> Result<(), Failure> {
        let failed = |error| Failure::File { path: notes.to_owned(), error };
        fs::write(notes, "").map_err(failed)?;
        self.took = Duration::from_secs(60);
        let begun = Instant::now();
        let ended = self.start(&[("MLX5_REACHED", notes.display().to_string())])?;
        let took = begun.elapsed();
        if ended == Ended::Passed {
            let noted = fs::read_to_string(notes).map_err(failed)?;
            self.reached = Some(noted.lines().filter_map(|line| line.parse().ok()).collect());
        }
        // Recording allocates, and writes to a file, which a test may forbid.
        self.passes = ended == Ended::Passed || self.run(0)? == Ended::Passed;
        self.took = took;
        Ok(())
    }
}

/// Measures all tests of the programs, `jobs` at a time. Prints and leaves out those that fail
/// without a bug.
pub(super) fn measured(
    programs: &[Program],
    folder: &Path,
    jobs: usize,
    deadline: Option<Instant>,
) -> Result<Vec<Test>, Failure> {
    let mut tests = Vec::new();
    for program in programs {
        for name in names(program)? {
            let program = program.clone();
            let (took, reached, passes) = (Duration::ZERO, None, false);
            tests.push(Mutex::new(Test { program, name, took, reached, passes }));
        }
    }
    let next = AtomicUsize::new(0);
    let measure = |job: usize| -> Result<(), Failure> {
        let notes = folder.join(format!("reached.{job}"));
        while let Some(test) = tests.get(next.fetch_add(1, Relaxed)) {
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                break;
            }
            let mut test = test.lock().expect("no panic");
            test.measure(&notes)?;
            if !test.passes {
                println!("left out, for it fails with no bug: {}", test.name);
            }
        }
        Ok(())
    };
    in_parallel(jobs, measure)?;
    let tests = tests.into_iter().map(|test| test.into_inner().expect("no panic"));
    Ok(tests.filter(|test| test.passes).collect())
}

/// Runs `jobs` threads of the same work; returns the error of one that failed.
pub(super) fn in_parallel(
    jobs: usize,
    work: impl Fn(usize) -> Result<(), Failure> + Sync,
) -> Result<(), Failure> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs)
            .map(|job| {
                scope.spawn({
                    let work = &work;
                    move || work(job)
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })
}

/// The names of a program's tests.
fn names(program: &Program) -> Result<Vec<String>, Failure> {
    let mut command = Command::new(&program.path);
    command.args(["--list", "--format=terse"]).current_dir(&program.folder);
    let name = program.path.display().to_string();
    let output = command.output().map_err(|error| Failure::Run { program: name.clone(), error })?;
    if !output.status.success() {
        return Err(Failure::Status { program: name, status: output.status });
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text
        .lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .map(|name| name.trim().to_owned())
        .collect())
}
