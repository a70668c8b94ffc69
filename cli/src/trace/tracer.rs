//! Follows a program: its threads, its processes, and the calls that make queues.

use crate::failure::Failure;
use crate::trace::memory::Remote;
use crate::trace::ptrace::{self, Call, Status, Stop, Waiting};
use crate::trace::queues::{Event, Queues};
use mlx5_prm::zerocopy::{FromZeros, IntoBytes};
use mlx5_uapi::ioctl::{IoctlHeader, RDMA_VERBS_IOCTL};
use mlx5_uapi::queues::{CallerMemory, Noted, QueueCall};
use mlx5_uapi::write_cmd::WriteCommand;
use nix::errno::Errno;
use nix::libc;
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The longest call: the kernel takes one page.
const LONGEST: usize = 4096;
/// The shortest write(2) to a device: its header.
const HEADER: usize = 8;

/// An event, and the process in which it happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Report {
    pub(crate) pid: Pid,
    /// Whether its devices are simulated. `None` until it has made a queue.
    pub(crate) simulated: Option<bool>,
    pub(crate) reported: Reported,
}

/// An event of a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Reported {
    /// At a queue.
    Queue(Event),
    /// It runs another program.
    Program,
    /// It ended: with an exit status, or by a signal.
    Ended(Result<u8, i32>),
    /// It is of another architecture, so that its calls are not read.
    Foreign,
}

/// A call that has not returned yet.
enum Pending {
    Ioctl {
        device: u64,
        address: u64,
    },
    Write {
        device: u64,
        bytes: Vec<u8>,
    },
    /// The file stays open if it has another descriptor.
    Close {
        device: u64,
        same: Option<u64>,
    },
}

struct Thread {
    process: Pid,
    pending: Option<Pending>,
}

#[derive(Default)]
struct Process {
    queues: Queues,
    foreign: bool,
    /// As in [`Report`].
    simulated: Option<bool>,
}

/// The threads and processes that are traced.
#[derive(Default)]
pub(crate) struct Tracer {
    threads: BTreeMap<Pid, Thread>,
    processes: BTreeMap<Pid, Process>,
    /// The process with which the trace began.
    first: Option<Pid>,
    /// The reason why the program did not start, until it has started.
    unstarted: Option<ptrace::Failure>,
    /// Its name.
    name: String,
    /// Reports that were not taken yet.
    reports: Vec<Report>,
}

impl Tracer {
    /// Starts a program.
    pub(crate) fn start(program: &[OsString]) -> Result<Self, Failure> {
        let failed = |error| Failure::new(format!("cannot start a process: {error}"));
        let waiting = Waiting::new(program).map_err(failed)?;
        let pid = waiting.pid;
        ptrace::seize(pid).map_err(|errno| refused(pid, errno))?;
        let name = program[0].to_string_lossy().into_owned();
        let mut tracer = Self { first: Some(pid), name, ..Self::default() };
        tracer.add(pid, pid);
        tracer.unstarted = Some(waiting.start().map_err(failed)?);
        Ok(tracer)
    }

    /// Attaches to a running process. Its threads are asked to stop; once all have stopped, the
    /// caller must call [`Tracer::read_notes`].
    pub(crate) fn attach(pid: Pid) -> Result<Self, Failure> {
        let mut tracer = Self { first: Some(pid), ..Self::default() };
        let folder = format!("/proc/{pid}/task");
        loop {
            // Threads that run on may start others meanwhile.
            let mut new = 0;
            let threads = fs::read_dir(&folder).map_err(|_| refused(pid, Errno::ESRCH))?;
            for thread in threads.flatten() {
                let Some(thread) = number(&thread.file_name().to_string_lossy()) else { continue };
                if tracer.threads.contains_key(&thread) {
                    continue;
                }
                match ptrace::seize(thread) {
                    Ok(()) => {
                        tracer.add(thread, pid);
                        // A thread that has ended is reported later.
                        let _ = ptrace::interrupt(thread);
                        new += 1;
                    }
                    Err(Errno::ESRCH) if thread != pid => {}
                    // It is already traced, through the thread that has started it.
                    Err(Errno::EPERM) if thread != pid => {}
                    Err(errno) => return Err(refused(pid, errno)),
                }
            }
            if new == 0 {
                return Ok(tracer);
            }
        }
    }

    /// Adds the queues that the preload library has noted, once all threads are stopped. Returns
    /// whether the process has such a library.
    pub(crate) fn read_notes(&mut self) -> bool {
        let Some(pid) = self.first else { return false };
        let Some(notes) = notes(pid) else { return false };
        self.simulated(pid);
        let process = self.processes.entry(pid).or_default();
        let mut reported = Vec::new();
        let noted = fs::read_to_string(notes).unwrap_or_default();
        for noted in noted.lines().filter_map(|line| line.parse::<Noted>().ok()) {
            if !noted.before || matches!(noted.call, QueueCall::Closed(_)) {
                process.queues.apply(noted_device(&noted), &noted.call, &mut reported);
            }
        }
        process.queues.pass(&Remote(pid));
        // Events of queues that have ended are left out.
        reported.retain(|event| process.queues.is_there(event));
        self.report(pid, reported.into_iter().map(Reported::Queue));
        true
    }

    /// Whether each thread has reported a change. A thread that was stopped and then killed reports
    /// twice, and a new thread may report before it is known.
    pub(crate) fn all_among(&self, heard: &[(Pid, Status)]) -> bool {
        self.threads.keys().all(|thread| heard.iter().any(|(of, _)| of == thread))
    }

    /// Forgets all threads, whatever they have reported.
    pub(crate) fn forget(&mut self) {
        self.threads.clear();
    }

    /// Whether a thread or process is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// Whether any queue was made that has not ended.
    pub(crate) fn has_queues(&self) -> bool {
        self.processes.values().any(|process| !process.queues.is_empty())
    }

    /// The process with which the trace began.
    pub(crate) fn first(&self) -> Option<Pid> {
        self.first
    }

    /// Takes the reports since the last call.
    pub(crate) fn take(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.reports)
    }

    fn report(&mut self, pid: Pid, all: impl IntoIterator<Item = Reported>) {
        let simulated = self.processes.get(&pid).and_then(|process| process.simulated);
        let all = all.into_iter().map(|reported| Report { pid, simulated, reported });
        self.reports.extend(all);
    }

    fn add(&mut self, thread: Pid, process: Pid) {
        self.threads.insert(thread, Thread { process, pending: None });
        self.processes.entry(process).or_default();
    }

    /// Adds a new process, which has the devices of the one that has started it.
    fn inherit(&mut self, process: Pid, from: Pid) {
        let simulated = self.processes.get(&from).and_then(|process| process.simulated);
        self.processes.insert(process, Process { simulated, ..Process::default() });
    }

    /// Looks at the rings of all processes.
    pub(crate) fn look(&mut self) {
        let pids: Vec<Pid> = self.processes.keys().copied().collect();
        for pid in pids {
            self.look_at(pid);
        }
    }

    fn look_at(&mut self, pid: Pid) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        if process.queues.is_empty() {
            return;
        }
        let mut reported = Vec::new();
        process.queues.look(&Remote(pid), &mut reported);
        self.report(pid, reported.into_iter().map(Reported::Queue));
    }

    /// Handles a change of a thread, and lets it run on. Fails if the program could not be started.
    pub(crate) fn hear(&mut self, thread: Pid, status: Status) -> Result<(), Failure> {
        if !self.threads.contains_key(&thread) {
            // A new thread may report before the one that has started it, which is then stopped.
            let process = process_of(thread).unwrap_or(thread);
            if !self.processes.contains_key(&process)
                && let Some(parent) = status_of(thread, "PPid")
            {
                self.inherit(process, parent);
            }
            self.add(thread, process);
        }
        let process = self.threads[&thread].process;
        let stop = match status {
            Status::Exited(code) => return self.ended(thread, Ok(code)),
            Status::Killed(signal) => return self.ended(thread, Err(signal)),
            Status::Stopped(stop) => stop,
        };
        let mut signal = 0;
        match stop {
            Stop::Call => match ptrace::call(thread) {
                Ok(Call::Entry { number, arguments }) => self.entered(thread, number, arguments),
                Ok(Call::Exit { value }) => self.left(thread, value),
                Ok(Call::Foreign) => self.foreign(process),
                Ok(Call::Neither) => {}
                // It was killed meanwhile.
                Err(Errno::ESRCH) => {}
                Err(errno) => {
                    let cause = format!("cannot read system calls: {errno}");
                    return Err(Failure::new(cause).hint("this needs Linux 5.3 or later"));
                }
            },
            Stop::Signal(number) => signal = number,
            Stop::Group => {
                // It stays stopped, as its process is.
                let _ = ptrace::listen(thread);
                return Ok(());
            }
            Stop::Program => self.program(thread),
            Stop::Ending => self.look_at(process),
            Stop::Started => {
                // Its parent may end before the child reports.
                if let Ok(child) = ptrace::started(thread)
                    && !self.threads.contains_key(&child)
                    && process_of(child) == Some(child)
                {
                    self.inherit(child, process);
                }
            }
            Stop::Asked | Stop::Other => {}
        }
        // A thread that was killed while it was stopped reports again.
        let _ = ptrace::resume(thread, signal);
        Ok(())
    }

    fn ended(&mut self, thread: Pid, how: Result<u8, i32>) -> Result<(), Failure> {
        self.threads.remove(&thread);
        // The first thread of a process is the last to report.
        if self.processes.contains_key(&thread) {
            if Some(thread) == self.first
                && let Some(error) = self.unstarted.take().and_then(ptrace::Failure::reason)
            {
                return Err(Failure::new(format!("{}: {error}", self.name)));
            }
            self.threads.retain(|_, other| other.process != thread);
            self.report(thread, [Reported::Ended(how)]);
            self.processes.remove(&thread);
        }
        Ok(())
    }

    /// The process now has other memory, and one thread, with the number of the process.
    fn program(&mut self, thread: Pid) {
        let started = Some(thread) == self.first && self.unstarted.take().is_some();
        self.threads.retain(|other, of| of.process != thread || *other == thread);
        self.add(thread, thread);
        if let Some(process) = self.processes.get_mut(&thread) {
            *process = Process::default();
        }
        if !started {
            self.report(thread, [Reported::Program]);
        }
    }

    fn foreign(&mut self, pid: Pid) {
        if let Some(process) = self.processes.get_mut(&pid)
            && !std::mem::replace(&mut process.foreign, true)
        {
            self.report(pid, [Reported::Foreign]);
        }
    }

    /// A process has a note of the preload library, whose devices are simulated.
    fn simulated(&mut self, pid: Pid) {
        self.processes.entry(pid).or_default().simulated = Some(true);
    }

    /// Handles the start of a thread's system call.
    fn entered(&mut self, thread: Pid, number: i64, [first, second, third, ..]: [u64; 6]) {
        let process = self.threads[&thread].process;
        let pending = match number {
            libc::SYS_ioctl if second as u32 == RDMA_VERBS_IOCTL => {
                if words(process, third)
                    .and_then(|words| QueueCall::read(&words, &Remote(process)))
                    .is_some_and(|call| call.ends_something())
                {
                    self.look_at(process);
                }
                Some(Pending::Ioctl { device: first, address: third })
            }
            libc::SYS_write => self.writes(process, first, second, third),
            libc::SYS_close if self.processes[&process].queues.has_device(first) => {
                self.look_at(process);
                Some(Pending::Close { device: first, same: same_file(process, first) })
            }
            libc::SYS_execve | libc::SYS_execveat | libc::SYS_exit_group => {
                self.look_at(process);
                None
            }
            _ => None,
        };
        if let Some(thread) = self.threads.get_mut(&thread) {
            thread.pending = pending;
        }
    }

    /// A note of the preload library, or a command to a device.
    fn writes(&mut self, process: Pid, device: u64, address: u64, length: u64) -> Option<Pending> {
        let length = usize::try_from(length).ok().filter(|l| (HEADER..=LONGEST).contains(l))?;
        let mut start = [0; Noted::MARK.len()];
        let memory = Remote(process);
        let short = length < start.len();
        if !memory.read(address, if short { &mut start[..length] } else { &mut start }) {
            return None;
        }
        let note = start == Noted::MARK.as_bytes();
        let command = start.first_chunk().map(|word| WriteCommand(u32::from_ne_bytes(*word)));
        let known = command.is_some_and(|command| command.name().is_some());
        if !(note || known && is_device(process, device)) {
            return None;
        }
        let mut bytes = vec![0; length];
        if !memory.read(address, &mut bytes) {
            return None;
        }
        if !note {
            if QueueCall::read_written(&bytes, &memory).is_some_and(|call| call.ends_something()) {
                self.look_at(process);
            }
            return Some(Pending::Write { device, bytes });
        }
        let noted: Noted = String::from_utf8(bytes).ok()?.trim_end().parse().ok()?;
        self.simulated(process);
        if noted.before {
            self.look_at(process);
        }
        if !noted.before || matches!(noted.call, QueueCall::Closed(_)) {
            self.apply(process, noted_device(&noted), &noted.call);
        }
        None
    }

    /// Handles the return of a thread's system call.
    fn left(&mut self, thread: Pid, value: i64) {
        let Some(Thread { process, pending }) = self.threads.get_mut(&thread) else { return };
        let (process, Some(pending)) = (*process, pending.take()) else { return };
        let memory = Remote(process);
        let (device, call) = match pending {
            Pending::Ioctl { device, address } if value == 0 => {
                let words = words(process, address);
                (device, words.and_then(|words| QueueCall::read(&words, &memory)))
            }
            Pending::Write { device, bytes } if value == bytes.len() as i64 => {
                (device, QueueCall::read_written(&bytes, &memory))
            }
            Pending::Close { device, same: Some(same) } if value == 0 => {
                let process = self.processes.entry(process).or_default();
                return process.queues.renumber(device, same);
            }
            Pending::Close { device, same: None } if value == 0 => {
                (device, Some(QueueCall::Closed(Default::default())))
            }
            _ => return,
        };
        if let Some(call) = call {
            self.apply(process, device, &call);
        }
    }

    fn apply(&mut self, pid: Pid, device: u64, call: &QueueCall) {
        if matches!(call, QueueCall::Resized(_)) {
            // The last completion of the old ring announces it.
            self.look_at(pid);
        }
        let process = self.processes.entry(pid).or_default();
        let mut reported = Vec::new();
        process.queues.apply(device, call, &mut reported);
        if device & NOTED == 0 {
            // The kernel accepted the call, so that the device is real.
            process.simulated.get_or_insert(false);
        }
        self.report(pid, reported.into_iter().map(Reported::Queue));
    }

    /// Asks all threads to stop, so that they can be left. [`Tracer::leave`] leaves each.
    pub(crate) fn ask_all(&self) {
        for thread in self.threads.keys() {
            let _ = ptrace::interrupt(*thread);
        }
    }

    /// Detaches from a stopped thread, with the signal that it was about to get. A thread that has
    /// ended is forgotten.
    pub(crate) fn leave(&mut self, thread: Pid, status: Status) {
        if let Status::Stopped(stop) = status {
            let signal = if let Stop::Signal(signal) = stop { signal } else { 0 };
            let _ = ptrace::detach(thread, signal);
        }
        self.threads.remove(&thread);
    }
}

/// Marks the device of a note. Unlike that of a call it is no descriptor.
const NOTED: u64 = 1 << 63;

fn noted_device(noted: &Noted) -> u64 {
    noted.device | NOTED
}

/// Header and attributes of a verbs call.
fn words(process: Pid, address: u64) -> Option<Vec<u64>> {
    let memory = Remote(process);
    let mut header = IoctlHeader::new_zeroed();
    if !memory.read(address, header.as_mut_bytes()) {
        return None;
    }
    let length = usize::from(header.length);
    if !(size_of::<IoctlHeader>()..=LONGEST).contains(&length) {
        return None;
    }
    let mut words = vec![0_u64; length.div_ceil(size_of::<u64>())];
    memory.read(address, &mut words.as_mut_bytes()[..length]).then_some(words)
}

/// Whether a descriptor of a process is a verbs device.
fn is_device(process: Pid, descriptor: u64) -> bool {
    fs::read_link(format!("/proc/{process}/fd/{descriptor}"))
        .is_ok_and(|path| path.to_string_lossy().starts_with("/dev/infiniband/uverbs"))
}

/// Another descriptor of the file that a descriptor of a process is of, as dup(2) makes.
fn same_file(process: Pid, descriptor: u64) -> Option<u64> {
    let all = fs::read_dir(format!("/proc/{process}/fd")).ok()?.flatten();
    let others = all.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok());
    others.filter(|other| *other != descriptor && is_device(process, *other)).find(|other| {
        // Files of one device are many: each open(2) makes one.
        ptrace::same_file(process, descriptor, *other)
    })
}

fn number(text: &str) -> Option<Pid> {
    text.trim().parse().ok().map(Pid::from_raw)
}

/// A number in `/proc/PID/status`.
fn status_of(thread: Pid, name: &str) -> Option<Pid> {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    number(line?)
}

fn process_of(thread: Pid) -> Option<Pid> {
    status_of(thread, "Tgid")
}

/// The file in which the preload library of a process notes its queues, if it has one.
fn notes(pid: Pid) -> Option<PathBuf> {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let folder = environment
        .split(|byte| *byte == 0)
        .find_map(|variable| variable.strip_prefix(b"TMPDIR="))
        .filter(|folder| !folder.is_empty())
        .map_or_else(|| Path::new("/tmp"), |folder| Path::new(std::ffi::OsStr::from_bytes(folder)));
    let start = format!("{}{pid}-", Noted::TREE);
    let trees = fs::read_dir(folder).ok()?.flatten();
    let tree = trees.filter(|tree| tree.file_name().to_string_lossy().starts_with(&start));
    // The last one, if a process with the same number has left one.
    let notes = tree.map(|tree| tree.path().join(Noted::FILE)).filter(|notes| notes.exists());
    notes.max_by_key(|notes| fs::metadata(notes).and_then(|notes| notes.modified()).ok())
}

/// The reason why a process cannot be traced, with a remedy.
fn refused(pid: Pid, errno: Errno) -> Failure {
    match errno {
        Errno::ESRCH => Failure::new(format!("there is no process {pid}"))
            .hint("`pgrep -a NAME` finds a process by its name"),
        Errno::EPERM => {
            if let Some(other) = status_of(pid, "TracerPid").filter(|other| other.as_raw() != 0) {
                return Failure::new(format!("process {other} traces process {pid} already"))
                    .hint("a process has one tracer or debugger at a time");
            }
            let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
            let restricted = scope.is_ok_and(|scope| !matches!(scope.trim(), "" | "0"));
            let hint = if restricted {
                "run as root, start the program with `mlx5 trace -- PROGRAM`, or allow it: \
                 `sysctl kernel.yama.ptrace_scope=0`"
            } else {
                "run as the user of the process, or as root; a container needs CAP_SYS_PTRACE"
            };
            Failure::new(format!("process {pid} must not be traced by this user")).hint(hint)
        }
        errno => Failure::new(format!("cannot trace process {pid}: {errno}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_devices_of_this_machine_once_it_has_called_one() {
        let pid = Pid::from_raw;
        let mut tracer = Tracer::default();
        let mut simulated = |of: i32, act: fn(&mut Tracer, Pid)| {
            act(&mut tracer, pid(of));
            tracer.report(pid(of), [Reported::Program]);
            tracer.take().into_iter().map(|report| report.simulated).next_back()
        };
        let call = |tracer: &mut Tracer, of: Pid| {
            tracer.apply(of, 3, &QueueCall::Closed(Default::default()));
        };
        assert_eq!(simulated(7, |tracer, of| tracer.add(of, of)), Some(None));
        assert_eq!(simulated(7, call), Some(Some(false)));
        // A child has them as well; another program may have none.
        assert_eq!(
            simulated(8, |tracer, of| tracer.inherit(of, Pid::from_raw(7))),
            Some(Some(false))
        );
        assert_eq!(simulated(8, Tracer::program), Some(None));
        assert_eq!(simulated(8, Tracer::simulated), Some(Some(true)));
        assert_eq!(simulated(8, call), Some(Some(true)));
        assert_eq!(simulated(7, |_, _| ()), Some(Some(false)));
    }

    #[test]
    fn all_stand_still_when_each_was_heard_of() {
        let pid = Pid::from_raw;
        let mut tracer = Tracer::default();
        tracer.add(pid(7), pid(7));
        tracer.add(pid(8), pid(7));
        let stopped = |thread| (pid(thread), Status::Stopped(Stop::Asked));
        // One that was killed while it stood, and one that is new: still nothing of the other.
        assert!(!tracer.all_among(&[stopped(7), (pid(7), Status::Killed(9))]));
        assert!(!tracer.all_among(&[stopped(7), stopped(9)]));
        assert!(tracer.all_among(&[stopped(7), stopped(9), stopped(8)]));
    }
}
