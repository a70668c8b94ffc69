//! `mlx5 trace`: the queues and completions of a running program, as they move.

mod brief;
mod memory;
mod print;
mod ptrace;
mod queues;
mod ring;
mod tracer;

use crate::failure::Failure;
use crate::files::Output;
use crate::numbers::parse_seconds;
use clap::ValueHint;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeSpec;
use nix::unistd::Pid;
use print::{Choice, Printer};
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tracer::Tracer;

/// `--help`.
pub(crate) const LONG_ABOUT: &str = "\
Decodes the queues and completions of a running program as they move: each request
that it posts and each completion that the device writes, one line each, with the
decoder of `mlx5 dump`.

Give a program and its arguments behind `--`, which starts it, or the number of a
process that runs. Queues are known by the calls that make them: of a process that
runs already on a device of this machine, only those show that it makes from then on.
A program on a simulated device (cargo xtask with-sim) shows all. Devices that a
program simulates itself, with SimConfig or Wire::connect, make no calls and show
nothing.

The program does what it would do untraced. Its rings are read from outside, every
--interval and whenever it makes, resets or destroys a queue, or ends. What was
overwritten between two looks is counted, and reported. Threads and processes that the program
starts are followed. Each system call of the program stops twice for a moment, so
one that makes many is slower; a thread that waits in epoll_wait when the trace
begins or ends gets EINTR, as after SIGSTOP.

Ends with the program, after --duration, or at Ctrl-C. After --duration the program
runs on, also one that the trace has started. At Ctrl-C a process that was given by
its number runs on; a program that the trace has started gets the Ctrl-C as well.";

const EXAMPLES: &str = "\
Examples:
  mlx5 trace -- ib_write_bw -n 5           each request and completion of a program
  mlx5 trace 4711                          of a process that runs
  mlx5 trace --queues -- ./server          which queues it makes, and in what state they are
  mlx5 trace --errors --duration 60 4711   what fails within a minute
  mlx5 trace --summary -- ./client         how many of what, at each queue
  mlx5 trace --json -o trace.json -- ./client

Each line has the time in seconds, the queue, the index in its ring, the operation,
its bytes, and what else the request or the completion says. With -v every field
follows. Requests of send queues are numbered in blocks of 64 bytes, as in the
completions that name them.

A request of packets says which checksums the device computes, the VLAN tag that it
inserts, the headers in the request, the segment size of one that it cuts (mss), and
how many packets go with it. The completion of a received one says which checksums are
right, which headers it has, and where it lies in a receive that has strides.

With --json each line is an object with time, pid, simulated (whether the process has
simulated devices; null while it has made no queue) and event: request, completion, made,
changed, ended, lost, hidden or unreadable of a queue, whose number is named qp, cq, srq or
wq, and with queue (send, recv) if it is a ring of one; process, with change (program,
foreign, exited, killed), and its status or signal; and with --summary sum, without
time, with what, count and bytes. Requests and completions have index, opcode, bytes and
more.

A queue is known with the descriptor of the device through which it was made. The end of
one is not seen if it is destroyed or reset through a copy of that descriptor (dup), or
if the descriptor is closed by dup2 or close_range.

Exit status: that of the program, or 128 and the signal that ended it; 0 if a process
was traced by its number, or if --duration has ended the trace; 1 failed, 2 wrong
usage, 130 ended by Ctrl-C.";

/// Options of `mlx5 trace`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES, override_usage = "mlx5 trace [OPTIONS] <PID>\n       mlx5 trace [OPTIONS] -- <PROGRAM> [ARGS]...")]
pub(crate) struct Args {
    /// The number of a process that runs
    #[arg(value_parser = parse_pid, conflicts_with = "program")]
    pid: Option<i32>,
    /// The program to run, and its arguments
    #[arg(last = true, value_name = "PROGRAM", value_hint = ValueHint::CommandName)]
    program: Vec<OsString>,
    /// Write JSON in place of the text, one object per line
    #[arg(long)]
    json: bool,
    /// Write to a file, apart from what the program prints, or with `-` to stdout
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Tell which queues are made, changed and destroyed, and nothing of requests and completions
    #[arg(long, conflicts_with_all = ["errors", "verbose", "summary"])]
    queues: bool,
    /// Tell of this queue pair, completion queue or shared receive queue alone; can be repeated
    #[arg(short, long, value_name = "NUMBER", value_parser = parse_number)]
    queue: Vec<u32>,
    /// Tell of completions alone that failed
    #[arg(short, long, conflicts_with = "summary")]
    errors: bool,
    /// Print every field of each request and completion
    #[arg(short, long, conflicts_with_all = ["json", "summary"])]
    verbose: bool,
    /// Print no lines, but how many of what there were at each queue
    #[arg(short, long)]
    summary: bool,
    /// Time between two looks: 100us, 1ms, 0.5s
    #[arg(short, long, value_name = "TIME", default_value = "1ms", value_parser = parse_interval)]
    interval: Duration,
    /// Seconds to trace, 0.001 to 86400; the program runs on
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    duration: Option<Duration>,
}

fn parse_pid(text: &str) -> Result<i32, String> {
    match text.parse() {
        Ok(pid @ 1..) => Ok(pid),
        _ => Err(format!(
            "that is no number of a process; to run a program of this name, put it behind `--`: \
             mlx5 trace -- {text}"
        )),
    }
}

fn parse_number(text: &str) -> Result<u32, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number
        .ok()
        .filter(|number| *number <= 0xff_ffff)
        .ok_or_else(|| format!("{text:?} is not the number of a queue: write 0x48, or 72"))
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let (digits, unit) = if let Some(digits) = text.strip_suffix("us") {
        (digits, 1e-6)
    } else if let Some(digits) = text.strip_suffix("ms") {
        (digits, 1e-3)
    } else if let Some(digits) = text.strip_suffix('s') {
        (digits, 1.0)
    } else {
        return Err(format!(
            "{text:?} has none of the units us, ms and s: write 100us, 1ms or 0.5s"
        ));
    };
    match digits.trim().parse::<f64>().map(|number| number * unit) {
        Ok(seconds) if (1e-5..=10.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        Ok(_) => Err("looks are 10us to 10s apart".to_owned()),
        Err(_) => Err(format!("{text:?} is not a time: write 100us, 1ms or 0.5s")),
    }
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    if args.pid.is_none() && args.program.is_empty() {
        return Err(Failure::usage("there is nothing to trace")
            .hint("give the number of a process, or a program behind `--`"));
    }
    if args.pid == Some(std::process::id() as i32) {
        return Err(Failure::usage("a process cannot trace itself"));
    }
    let mut output = Output::create_or_stdout(args.output.as_deref())?;
    let to = output.writer(out);
    // The program starts with the signals blocked that were blocked in this process: start it
    // before blocking others.
    let tracer = match args.pid {
        Some(pid) => Tracer::attach(Pid::from_raw(pid))?,
        None => Tracer::start(&args.program)?,
    };
    let mut session =
        Session { tracer, signals: Signals::take()?, start: Instant::now(), ended: None };
    let choice = Choice {
        json: args.json,
        verbose: args.verbose,
        quiet: args.summary || args.queues,
        errors: args.errors,
        queues: args.queue.clone(),
    };
    let mut printer = Printer::new(choice, session.tracer.first());
    let done = session.follow(args, &mut printer, to);
    // Leave the program as it was, also after an error.
    let left = session.leave();
    let why = done?;
    left?;
    session.print(&mut printer, to)?;
    if args.summary {
        printer.summary(to)?;
    }
    output.finish()?;
    out.flush()?;
    conclude(args, &printer, why, &session)
}

/// The reason why a trace ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Why {
    Program,
    Time,
    Interrupted,
}

/// Reports the trace's results on stderr.
fn conclude(args: &Args, printer: &Printer, why: Why, session: &Session) -> Result<(), Failure> {
    let sums = printer.sums();
    let mut reported = format!(
        "{} requests and {} completions at {} queues",
        sums.requests, sums.completions, printer.queues
    );
    if sums.failed > 0 {
        reported += &format!(", {} failed", sums.failed);
    }
    if sums.lost > 0 {
        reported += &format!("; {} places were not seen: try a shorter --interval", sums.lost);
    }
    if printer.queues == 0 {
        reported = "no queue was made".to_owned();
    }
    eprintln!("{reported}");
    if printer.queues == 0 {
        eprintln!(
            "  hint: queues are known by the calls that make them. A program that runs already \
             shows those that it\n  makes from now on; one that simulates its device itself \
             (SimConfig, Wire::connect) shows none. One that\n  opens the first device \
             (mlx5::open) shows all on a simulated device from outside, in the checkout:\n  \
             `cargo xtask with-sim -- mlx5 trace -- PROGRAM`, or with `--sim wire=SOCKET` on the \
             machine of\n  `mlx5-sim-wire`."
        );
    }
    // A user that gave a number knows the process; one that started a program does not, and may
    // look for it.
    if let (Why::Time, None, None, Some(pid)) =
        (why, session.ended, args.pid, session.tracer.first())
    {
        eprintln!("the program runs on, as process {pid}");
    }
    match (why, session.ended) {
        (Why::Interrupted, _) => Err(Failure::interrupted("interrupted")),
        (Why::Program, Some(Ok(0))) | (Why::Time, _) => Ok(()),
        (Why::Program, Some(_)) if args.pid.is_some() => Ok(()),
        (Why::Program, Some(Ok(code))) => Err(Failure::program(code)),
        (Why::Program, Some(Err(signal))) => {
            Err(Failure::program(128_u8.wrapping_add(signal as u8)))
        }
        (Why::Program, None) => Ok(()),
    }
}

/// SIGINT, SIGTERM and the signals of threads that stop, read from a descriptor.
struct Signals(SignalFd);

impl Signals {
    fn take() -> Result<Self, Failure> {
        let failed = |errno: Errno| Failure::new(format!("cannot wait for signals: {errno}"));
        let mut signals = SigSet::empty();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGCHLD] {
            signals.add(signal);
        }
        signals.thread_block().map_err(failed)?;
        SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
            .map(Self)
            .map_err(failed)
    }

    /// Waits for a signal, at most for `time`. Returns whether it was one that ends the trace.
    fn wait(&self, time: Duration) -> bool {
        let mut files = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        let _ = ppoll(&mut files, Some(TimeSpec::from_duration(time)), None);
        let mut ends = false;
        while let Ok(Some(signal)) = self.0.read_signal() {
            ends |= [Signal::SIGINT as u32, Signal::SIGTERM as u32].contains(&signal.ssi_signo);
        }
        ends
    }
}

/// A running trace.
struct Session {
    tracer: Tracer,
    signals: Signals,
    start: Instant,
    /// The exit status of the first process, or the signal that ended it.
    ended: Option<Result<u8, i32>>,
}

impl Session {
    fn follow(
        &mut self,
        args: &Args,
        printer: &mut Printer,
        out: &mut dyn Write,
    ) -> Result<Why, Failure> {
        if args.pid.is_some() {
            if self.attached()? {
                return Ok(Why::Interrupted);
            }
            if let Some(pid) = self.tracer.first() {
                eprintln!("tracing process {pid}; Ctrl-C ends the trace, and leaves the process");
            }
        }
        let end = args.duration.map(|duration| self.start + duration);
        let mut next = Instant::now();
        loop {
            let more = self.hear()?;
            let now = Instant::now();
            if now >= next {
                self.tracer.look();
                // Late looks are not made up for.
                next = (next + args.interval).max(now);
            }
            if self.print(printer, out)? {
                out.flush()?;
            }
            if self.tracer.is_empty() {
                return Ok(Why::Program);
            }
            if end.is_some_and(|end| now >= end) {
                self.tracer.look();
                return Ok(Why::Time);
            }
            // Without queues there is nothing to look at.
            let idle = if self.tracer.has_queues() { next } else { now + IDLE };
            let until = end.map_or(idle, |end| end.min(idle));
            let until = if more { now } else { until };
            if self.signals.wait(until.saturating_duration_since(Instant::now())) {
                self.tracer.look();
                return Ok(Why::Interrupted);
            }
        }
    }

    /// Waits until all threads are stopped, so that none makes a queue while the notes are read.
    /// Returns whether the user has ended the trace before that.
    fn attached(&mut self) -> Result<bool, Failure> {
        let mut heard = Vec::new();
        while !self.tracer.all_among(&heard) {
            match ptrace::wait() {
                Ok(Some(one)) => heard.push(one),
                Ok(None) => {
                    if self.signals.wait(IDLE) {
                        return Ok(true);
                    }
                }
                Err(_) => break,
            }
        }
        if !self.tracer.read_notes() {
            eprintln!("the queues that the process has made before now cannot be seen");
        }
        for (thread, status) in heard {
            self.note_end(thread, status);
            self.tracer.hear(thread, status)?;
        }
        Ok(false)
    }

    /// Handles changes of threads, at most [`HEARD`] of them: threads that make one call after the
    /// other could go on forever. Returns whether there may be more.
    fn hear(&mut self) -> Result<bool, Failure> {
        for _ in 0..HEARD {
            match ptrace::wait() {
                Ok(Some((thread, status))) => {
                    self.note_end(thread, status);
                    self.tracer.hear(thread, status)?;
                }
                Ok(None) => return Ok(false),
                Err(_) => {
                    self.tracer.forget();
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn note_end(&mut self, thread: Pid, status: ptrace::Status) {
        if Some(thread) == self.tracer.first() {
            match status {
                ptrace::Status::Exited(code) => self.ended = Some(Ok(code)),
                ptrace::Status::Killed(signal) => self.ended = Some(Err(signal)),
                ptrace::Status::Stopped(_) => {}
            }
        }
    }

    /// Prints the reports. Returns whether there were any.
    fn print(&mut self, printer: &mut Printer, out: &mut dyn Write) -> io::Result<bool> {
        let reports = self.tracer.take();
        let time = self.start.elapsed();
        for report in &reports {
            printer.print(out, time, report)?;
        }
        Ok(!reports.is_empty())
    }

    /// Detaches from all threads, in the state in which they were found.
    fn leave(&mut self) -> Result<(), Failure> {
        self.tracer.ask_all();
        let patience = Instant::now() + PATIENCE;
        while !self.tracer.is_empty() && Instant::now() < patience {
            match ptrace::wait() {
                Ok(Some((thread, status))) => self.tracer.leave(thread, status),
                Ok(None) => _ = self.signals.wait(IDLE),
                // No thread is left.
                Err(_) => break,
            }
        }
        // The kernel releases threads that did not stop when this process ends.
        Ok(())
    }
}

/// The most changes of threads that are handled between two looks.
const HEARD: usize = 1000;
/// Longest wait while there is nothing to look at.
const IDLE: Duration = Duration::from_millis(100);
/// Time limit for threads to stop.
const PATIENCE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
