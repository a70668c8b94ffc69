//! Building the peer, and running the benchmark with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Measured, Pair, Row, make_directory, profile};
use crate::failure::Failure;

/// Where the C of the benchmark is.
const SOURCES: &str = "benches/peer";

/// The benchmark, with what it needs.
pub(super) struct Peer {
    bench: PathBuf,
    simulator: PathBuf,
    library: PathBuf,
    counts: PathBuf,
}

impl Peer {
    /// Compiles the peer.
    pub(super) fn build(bench: PathBuf, simulator: PathBuf) -> Result<Self, Failure> {
        let scratch = bench.with_file_name("bench");
        make_directory(&scratch)?;
        let library = scratch.join("libpeer.so");
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name(SOURCES);
        let mut compiler = Command::new("cc");
        compiler
            .args(["-std=gnu11", "-O2", "-g1", "-Wall", "-Wextra", "-Werror"])
            .args(["-fvisibility=hidden", "-fPIC", "-shared", "-o"])
            .arg(&library)
            .args([sources.join("peer.c"), sources.join("floor.c")])
            .arg("-libverbs");
        output(compiler)?;
        let counts = scratch.join("callgrind");
        Ok(Self { bench, simulator, library, counts })
    }

    fn arguments<'a>(&'a self, what: &'a str) -> [&'a std::ffi::OsStr; 3] {
        ["beside".as_ref(), self.library.as_os_str(), what.as_ref()]
    }

    /// Shows the program a simulated device that stands still while it is timed.
    fn with_device(&self, mut command: Command) -> Command {
        command.env("LD_PRELOAD", &self.simulator).env("MLX5_SIM", "step");
        command
    }

    /// Counts instructions.
    pub(super) fn count(&self) -> Result<Measured, Failure> {
        let mut functions = Command::new(&self.bench);
        functions.args(self.arguments("functions"));
        let functions = output(functions)?;
        if self.counts.exists() {
            let failed = |error| Failure::File { path: self.counts.clone(), error };
            fs::remove_dir_all(&self.counts).map_err(failed)?;
        }
        make_directory(&self.counts)?;
        let out = self.counts.join("out");
        let mut valgrind = Command::new("valgrind");
        valgrind
            .args(["--quiet", "--tool=callgrind"])
            .arg(format!("--callgrind-out-file={}", out.display()))
            .args(functions.lines().map(|name| format!("--toggle-collect={name}")))
            .arg(&self.bench)
            .args(self.arguments("count"));
        let told = output(self.with_device(valgrind))?;
        let operations = told
            .lines()
            .find_map(|line| line.strip_prefix("operations\t")?.parse::<f64>().ok())
            .ok_or_else(|| self.wrong("no number of operations"))?;
        let mut measured = Measured::default();
        for number in 1.. {
            let path = out.with_extension(number.to_string());
            if !path.exists() {
                break;
            }
            let text = fs::read_to_string(&path)
                .map_err(|error| Failure::File { path: path.clone(), error })?;
            let Some(profile) = profile::parse(&text) else {
                return Err(self.wrong("a count that cannot be read"));
            };
            let [case, who, mode] = profile.name.split('\t').collect::<Vec<_>>()[..] else {
                continue;
            };
            let each = |count: u64| count as f64 / operations;
            measured.rows.push(Row {
                case: case.to_owned(),
                who: who.to_owned(),
                mode: mode.to_owned(),
                instructions: each(profile.total),
                nanoseconds: f64::NAN,
                places: profile.files.into_iter().map(|(file, n)| (file, each(n))).collect(),
            });
        }
        if measured.rows.iter().any(|row| row.instructions == 0.0) || measured.rows.is_empty() {
            return Err(self.wrong("an operation without instructions"));
        }
        Ok(measured)
    }

    /// Times all in turn.
    pub(super) fn time(&self, rounds: u32, measured: &mut Measured) -> Result<(), Failure> {
        let mut bench = Command::new(&self.bench);
        bench.args(self.arguments("time")).arg(rounds.to_string());
        measured.rounds = rounds;
        for line in output(self.with_device(bench))?.lines() {
            match line.split('\t').collect::<Vec<_>>()[..] {
                ["time", case, who, mode, time] => {
                    let row = measured
                        .rows
                        .iter_mut()
                        .find(|row| row.case == case && row.who == who && row.mode == mode);
                    let row = row.ok_or_else(|| self.wrong("a time of what was not counted"))?;
                    row.nanoseconds = number(time).ok_or_else(|| self.wrong("no time"))?;
                }
                ["pair", mode, case, peer, peer_mode, ratio] => measured.pairs.push(Pair {
                    case: case.to_owned(),
                    mode: mode.to_owned(),
                    peer: peer.to_owned(),
                    peer_mode: peer_mode.to_owned(),
                    ratio: number(ratio).ok_or_else(|| self.wrong("no ratio"))?,
                }),
                _ => {}
            }
        }
        if measured.rows.iter().any(|row| row.nanoseconds.is_nan()) {
            return Err(self.wrong("no time of some that were counted"));
        }
        Ok(())
    }

    fn wrong(&self, what: &str) -> Failure {
        Failure::Output { program: self.bench.display().to_string(), what: what.to_owned() }
    }
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok()
}

/// Runs a command that must succeed, and answers what it wrote.
fn output(mut command: Command) -> Result<String, Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = match command.stderr(Stdio::inherit()).output() {
        Ok(output) => output,
        Err(error) => return Err(Failure::Run { program, error }),
    };
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(Failure::Status { program, status: output.status })
    }
}
