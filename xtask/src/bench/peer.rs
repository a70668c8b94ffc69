//! Builds the peers and runs the benchmark with them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::latency::{self, Device, Latency};
use super::medians::medians;
use super::threads::Crowd;
use super::{Holding, Lines, Measured, Pair, Row, make_directory};
use crate::failure::Failure;
use crate::verbs;

/// Folder of the benchmark's C sources, and its files.
const SOURCES: &str = "benches/peer";
const FILES: &[&str] = &[
    "cases.c",
    "common.c",
    "setup.c",
    "around.c",
    "post.c",
    "depth.c",
    "poll.c",
    "receive.c",
    "mkey.c",
    "memory.c",
    "cancel.c",
    "control.c",
    "ethernet.c",
    "floor.c",
    "floor_ethernet.c",
    "floor_strides.c",
    "floor_keys.c",
    "floor_compressed.c",
    "by_hand.c",
    "threads.c",
];
/// Sources of the peer for UCX.
const UCX: &[&str] = &["common.c", "ucx.c"];

/// Settings of UCX. It shares the process with other peers, so it must leave malloc, mmap and
/// signals alone.
const UCX_SETTINGS: [(&str, &str); 3] =
    [("UCX_MEM_EVENTS", "n"), ("UCX_HANDLE_ERRORS", "none"), ("UCX_IB_REG_METHODS", "direct")];

/// Settings with which malloc keeps freed memory. Otherwise a case may return pages to the kernel
/// and map them again each time, depending on the end of the heap.
const HEAP: [(&str, &str); 2] =
    [("MALLOC_TRIM_THRESHOLD_", "1073741824"), ("MALLOC_MMAP_THRESHOLD_", "33554432")];

/// The simulated device: a port of either kind, and raw packets.
const DEVICE: &str = "link=ib+roce,raw=on";

/// Number of processes in which times are taken. Short times depend on the addresses of code and
/// queues in a process, so a result is the median of all processes.
pub(super) const PROCESSES: u32 = 5;

/// The benchmark and its inputs.
pub(super) struct Peer {
    bench: PathBuf,
    simulator: PathBuf,
    /// Paths of the peers' libraries, separated by colons.
    libraries: String,
}

impl Peer {
    /// Compiles the peers: over C's libraries, over ours, and over UCX if its headers are
    /// installed.
    pub(super) fn build(bench: PathBuf, simulator: PathBuf) -> Result<Self, Failure> {
        let scratch = bench.with_file_name("bench");
        make_directory(&scratch)?;
        let ours = verbs::build_apart()?;
        let mut peers = vec![
            compile(&scratch, "libpeer.so", FILES, |cc| cc.args(["-libverbs", "-lmlx5"]))?,
            compile(&scratch, "libpeer-ours.so", FILES, |cc| {
                let folder = ours.parent().unwrap_or(Path::new("."));
                cc.arg("-DOVER_OURS").arg(&ours).arg("-Wl,-rpath").arg(folder)
            })?,
        ];
        if Path::new("/usr/include/uct/api/uct.h").exists() {
            peers.push(compile(&scratch, "libpeer-ucx.so", UCX, |cc| cc.args(["-luct", "-lucs"]))?);
        } else {
            println!("left out: UCX, whose headers are not here (Debian's libucx-dev)");
        }
        let peers: Vec<_> = peers.iter().map(|path| path.display().to_string()).collect();
        Ok(Self { bench, simulator, libraries: peers.join(":") })
    }

    /// A command that runs the benchmark on a simulated device that stands still during
    /// measurements.
    fn command(&self, what: &[&str]) -> Result<Command, Failure> {
        let mut command = Command::new(&self.bench);
        command.arg("beside").arg(&self.libraries).args(what).envs(UCX_SETTINGS).envs(HEAP);
        command.env("LD_PRELOAD", &self.simulator).env("MLX5_SIM", format!("step,{DEVICE}"));
        verbs::with_c_library(&mut command)?;
        Ok(command)
    }

    /// Counts instructions of the given cases, or of all if there are none. With `misses` it also
    /// simulates a cache and counts misses, which takes longer.
    pub(super) fn count(&self, cases: &[&str], misses: bool) -> Result<Measured, Failure> {
        let what = if misses { "count" } else { "instructions" };
        let mut measured = Measured::default();
        for line in output(self.command(&[&[what], cases].concat())?)?.lines() {
            match line.split('\t').collect::<Vec<_>>()[..] {
                ["count", case, who, mode, instructions, misses] => measured.rows.push(Row {
                    case: case.to_owned(),
                    who: who.to_owned(),
                    mode: mode.to_owned(),
                    instructions: number(instructions).ok_or_else(|| self.wrong("no count"))?,
                    misses: number(misses).ok_or_else(|| self.wrong("no count of misses"))?,
                    nanoseconds: None,
                    places: Vec::new(),
                }),
                ["place", case, who, mode, instructions, file] => {
                    let count = number(instructions).ok_or_else(|| self.wrong("no count"))?;
                    let row = measured.row_mut(case, who, mode);
                    let row = row.ok_or_else(|| self.wrong("a place of what was not counted"))?;
                    row.places.push((file.to_owned(), count));
                }
                _ => {}
            }
        }
        if measured.rows.is_empty() {
            return Err(self.wrong("no counts"));
        }
        Ok(measured)
    }

    /// Times all ways in turn, in several processes that share the rounds.
    pub(super) fn time(
        &self,
        rounds: u32,
        cases: &[&str],
        measured: &mut Measured,
    ) -> Result<(), Failure> {
        measured.rounds = rounds;
        let rounds = rounds.div_ceil(PROCESSES).to_string();
        let what = [&["time", rounds.as_str()], cases].concat();
        let outputs = self.processes(&what)?;
        for (name, time) in medians(&outputs, "time").ok_or_else(|| self.wrong("no time"))? {
            let row = match &name[..] {
                [case, who, mode] => measured.row_mut(case, who, mode),
                _ => None,
            };
            let row = row.ok_or_else(|| self.wrong("a time of what was not counted"))?;
            row.nanoseconds = Some(time);
        }
        for (name, ratio) in medians(&outputs, "pair").ok_or_else(|| self.wrong("no ratio"))? {
            let [case, who, mode, peer, peer_mode] =
                name.try_into().map_err(|_| self.wrong("a ratio without its rival"))?;
            measured.pairs.push(Pair { case, who, mode, peer, peer_mode, ratio });
        }
        if measured.rows.iter().any(|row| row.nanoseconds.is_none()) {
            return Err(self.wrong("no time of some that were counted"));
        }
        Ok(())
    }

    /// Output of each of several processes.
    fn processes(&self, what: &[&str]) -> Result<Vec<String>, Failure> {
        (0..PROCESSES).map(|_| output(self.command(what)?)).collect()
    }

    /// Memory of queues.
    pub(super) fn memory(&self) -> Result<Vec<Holding>, Failure> {
        let mut holdings = Vec::new();
        for line in output(self.command(&["memory"])?)?.lines() {
            if let ["memory", case, who, mode, heap, mapped] =
                line.split('\t').collect::<Vec<_>>()[..]
            {
                holdings.push(Holding {
                    case: case.to_owned(),
                    who: who.to_owned(),
                    mode: mode.to_owned(),
                    heap: number(heap).ok_or_else(|| self.wrong("no bytes"))?,
                    mapped: number(mapped).ok_or_else(|| self.wrong("no bytes"))?,
                });
            }
        }
        if holdings.is_empty() { Err(self.wrong("no bytes")) } else { Ok(holdings) }
    }

    /// The cache lines that a post uses, from a trace of its reads and writes.
    pub(super) fn lines(&self) -> Result<Lines, Failure> {
        let mut command = Command::new(&self.bench);
        command.arg("lines");
        Lines::read(&output(command)?).ok_or_else(|| self.wrong("nothing of cache lines"))
    }

    /// Results of threads that run at the same time.
    pub(super) fn threads(&self) -> Result<Crowd, Failure> {
        Crowd::read(&self.processes(&["threads"])?).ok_or_else(|| self.wrong("nothing of threads"))
    }

    /// Times of single operations, on a device that works at the same time and on one that stands
    /// still.
    pub(super) fn latencies(&self, rounds: u32) -> Result<Vec<Latency>, Failure> {
        let rounds = rounds.to_string();
        let cases = latency::PLOTS.map(|(case, _)| case);
        let what = [&["latency", rounds.as_str()], &cases[..]].concat();
        let mut all = Vec::new();
        for device in [Device::Works, Device::StandsStill] {
            let mut command = self.command(&what)?;
            if device == Device::Works {
                command.env("MLX5_SIM", DEVICE);
            }
            let read = latency::read(&output(command)?, device);
            all.extend(read.ok_or_else(|| self.wrong("no distributions"))?);
        }
        Ok(all)
    }

    fn wrong(&self, what: &str) -> Failure {
        Failure::Output { program: self.bench.display().to_string(), what: what.to_owned() }
    }
}

/// Compiles a peer's library; returns its path.
fn compile(
    folder: &Path,
    name: &str,
    files: &[&str],
    with: impl FnOnce(&mut Command) -> &mut Command,
) -> Result<PathBuf, Failure> {
    let library = folder.join(name);
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name(SOURCES);
    let mut compiler = Command::new("cc");
    compiler
        .args(["-std=gnu11", "-O2", "-g1", "-Wall", "-Wextra", "-Werror"])
        .args(["-fvisibility=hidden", "-fPIC", "-shared", "-o"])
        .arg(&library)
        .args(files.iter().map(|file| sources.join(file)));
    with(&mut compiler);
    output(compiler)?;
    Ok(library)
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok()
}

/// Runs a command that must succeed; returns its output.
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
