//! ptrace(2), in its modern form: threads are seized, and stop at each system call, at signals, and
//! when they start processes, run another program or end.
//!
//! The wrappers of `nix` are not used: its waitpid(2) fails for a thread that stops at a real-time
//! signal, and loses the stop.

use nix::errno::Errno;
use nix::libc::{self, c_int, c_long, c_ulong, pid_t};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;

/// Requests and events that the crate `libc` lacks for some C libraries.
const GETEVENTMSG: u32 = 0x4201;
const SEIZE: u32 = 0x4206;
const INTERRUPT: u32 = 0x4207;
const LISTEN: u32 = 0x4208;
const GET_SYSCALL_INFO: u32 = 0x420e;
const SYSCALL: u32 = 24;
const DETACH: u32 = 17;

/// `PTRACE_O_*`: mark stops at system calls; follow forks, threads and programs; stop before the
/// end.
const OPTIONS: c_long = 1 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 6;

const EVENT_FORK: c_int = 1;
const EVENT_CLONE: c_int = 3;
const EVENT_EXEC: c_int = 4;
const EVENT_EXIT: c_int = 6;
const EVENT_STOP: c_int = 128;
/// The bit that a stop at a system call adds to SIGTRAP.
const MARK: c_int = 0x80;

/// `AUDIT_ARCH_*` of this machine's programs.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// The reason why a thread is stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// At a system call, on the way in or out.
    Call,
    /// A signal is about to be delivered.
    Signal(c_int),
    /// The process was stopped, by SIGSTOP or the like.
    Group,
    /// The tracer asked it to stop, or it is new.
    Asked,
    /// It has started a thread or a process.
    Started,
    /// The process runs another program.
    Program,
    /// It is about to end; its memory still exists.
    Ending,
    /// Another event.
    Other,
}

/// A change of a thread's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Status {
    Stopped(Stop),
    /// It has ended, with this exit status.
    Exited(u8),
    /// A signal has ended it.
    Killed(c_int),
}

/// A system call, on its way in or out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    Entry {
        number: i64,
        arguments: [u64; 6],
    },
    Exit {
        value: i64,
    },
    /// Of a program of another architecture.
    Foreign,
    Neither,
}

/// A request with numbers as arguments, which changes no memory of this process.
fn request(request: u32, thread: Pid, data: c_long) -> Result<(), Errno> {
    let none = ptr::null_mut::<libc::c_void>();
    // SAFETY: these requests take their address and data as numbers, and write no memory of this
    // process.
    let answer = unsafe { libc::ptrace(request as _, thread.as_raw(), none, data) };
    Errno::result(answer).map(drop)
}

/// Begins to trace a thread, which runs on.
pub(crate) fn seize(thread: Pid) -> Result<(), Errno> {
    request(SEIZE, thread, OPTIONS)
}

/// Asks a seized thread to stop.
pub(crate) fn interrupt(thread: Pid) -> Result<(), Errno> {
    request(INTERRUPT, thread, 0)
}

/// Lets a stopped thread run to its next system call, with a signal or none (0).
pub(crate) fn resume(thread: Pid, signal: c_int) -> Result<(), Errno> {
    request(SYSCALL, thread, signal.into())
}

/// Leaves a thread stopped because its process was stopped.
pub(crate) fn listen(thread: Pid) -> Result<(), Errno> {
    request(LISTEN, thread, 0)
}

/// Ends the tracing of a stopped thread, which runs on, with a signal or none (0).
pub(crate) fn detach(thread: Pid, signal: c_int) -> Result<(), Errno> {
    request(DETACH, thread, signal.into())
}

/// The system call at which a thread stands.
pub(crate) fn call(thread: Pid) -> Result<Call, Errno> {
    // `struct ptrace_syscall_info`: kind, architecture; ip; sp; then what the kind has.
    let mut info = [0_u64; 16];
    let size = size_of_val(&info);
    // SAFETY: the kernel writes at most `size` bytes, all of them to `info`, which outlives the
    // call.
    let answer = unsafe {
        libc::ptrace(GET_SYSCALL_INFO as _, thread.as_raw(), size, info.as_mut_ptr().cast::<u8>())
    };
    Errno::result(answer)?;
    let [head, ..] = info;
    // The first byte, and the word after the padding: in the order of this machine.
    let (kind, architecture) = (head.to_ne_bytes()[0], u32::from_ne_bytes(half(head)));
    Ok(match kind {
        1 | 2 if architecture != ARCHITECTURE => Call::Foreign,
        1 => Call::Entry { number: info[3] as i64, arguments: [4, 5, 6, 7, 8, 9].map(|i| info[i]) },
        2 => Call::Exit { value: info[3] as i64 },
        _ => Call::Neither,
    })
}

/// The thread that a thread has started, while that one stands at [`Stop::Started`].
pub(crate) fn started(thread: Pid) -> Result<Pid, Errno> {
    let mut number: c_ulong = 0;
    let none = ptr::null_mut::<libc::c_void>();
    // SAFETY: the kernel writes one word to `number`, which outlives the call.
    let answer = unsafe {
        libc::ptrace(GETEVENTMSG as _, thread.as_raw(), none, ptr::from_mut(&mut number))
    };
    Errno::result(answer)?;
    Ok(Pid::from_raw(number as pid_t))
}

/// Whether two descriptors of a process are of one open file (kcmp(2)); false if the kernel does
/// not answer.
pub(crate) fn same_file(process: Pid, one: u64, other: u64) -> bool {
    const FILE: c_int = 0;
    let process = process.as_raw();
    // SAFETY: the call takes numbers alone, and writes no memory of this process.
    unsafe { libc::syscall(libc::SYS_kcmp, process, process, FILE, one, other) == 0 }
}

/// The second half of a word in memory.
fn half(word: u64) -> [u8; 4] {
    let [_, _, _, _, half @ ..] = word.to_ne_bytes();
    half
}

/// The next change of a thread. `None` if there is none yet, `Err` if no thread is left.
pub(crate) fn wait() -> Result<Option<(Pid, Status)>, Errno> {
    let mut status: c_int = 0;
    // SAFETY: the kernel writes to `status`, which outlives the call.
    let thread: pid_t = unsafe { libc::waitpid(-1, &mut status, libc::__WALL | libc::WNOHANG) };
    match Errno::result(thread) {
        Ok(0) => Ok(None),
        Ok(thread) => Ok(Some((Pid::from_raw(thread), decoded(status)))),
        Err(Errno::EINTR) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn decoded(status: c_int) -> Status {
    if libc::WIFEXITED(status) {
        return Status::Exited(libc::WEXITSTATUS(status) as u8);
    }
    if libc::WIFSIGNALED(status) {
        return Status::Killed(libc::WTERMSIG(status));
    }
    let signal = libc::WSTOPSIG(status);
    Status::Stopped(match status >> 16 {
        0 if signal == libc::SIGTRAP | MARK => Stop::Call,
        0 => Stop::Signal(signal),
        EVENT_STOP if signal == libc::SIGTRAP => Stop::Asked,
        EVENT_STOP => Stop::Group,
        EVENT_FORK..=EVENT_CLONE => Stop::Started,
        EVENT_EXEC => Stop::Program,
        EVENT_EXIT => Stop::Ending,
        _ => Stop::Other,
    })
}

/// A program that is about to start.
pub(crate) struct Waiting {
    /// Its process.
    pub(crate) pid: Pid,
    go: PipeWriter,
    failure: PipeReader,
}

/// The reason why a program did not start.
pub(crate) struct Failure(PipeReader);

impl Failure {
    /// Returns the reason, once the process has ended without another program.
    pub(crate) fn reason(mut self) -> Option<io::Error> {
        let mut errno = [0; 4];
        self.0.read_exact(&mut errno).ok()?;
        Some(io::Error::from_raw_os_error(i32::from_ne_bytes(errno)))
    }
}

impl Waiting {
    /// Makes the process, which waits.
    ///
    /// # Panics
    /// If `program` is empty.
    pub(crate) fn new(program: &[OsString]) -> io::Result<Self> {
        let (mut start, go) = io::pipe()?;
        let (failure, mut reported) = io::pipe()?;
        let (name, arguments) = program.split_first().expect("a program has a name");
        let mut command = Command::new(name);
        command.args(arguments);
        // SAFETY: this process has one thread, so the child may do whatever this one may. It leaves
        // by `exec` or `_exit`, so nothing of this process's is ended twice.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                drop((go, failure));
                if start.read_exact(&mut [0]).is_ok() {
                    let error = command.exec();
                    let errno = error.raw_os_error().unwrap_or(libc::EINVAL);
                    let _ = reported.write_all(&errno.to_ne_bytes());
                }
                // SAFETY: ends the child, without the exit handlers of this process.
                unsafe { libc::_exit(127) }
            }
            pid => Ok(Self { pid: Pid::from_raw(pid), go, failure }),
        }
    }

    /// Lets it start.
    pub(crate) fn start(mut self) -> io::Result<Failure> {
        self.go.write_all(&[1])?;
        Ok(Failure(self.failure))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_of_one_file_if_one_was_made_of_the_other() {
        use std::os::fd::AsRawFd;
        let open = || std::fs::File::open("/dev/null").expect("a file");
        let (one, other) = (open(), open());
        let copy = one.try_clone().expect("a descriptor");
        let [one, other, copy] = [&one, &other, &copy].map(|file| file.as_raw_fd() as u64);
        let of_one = |a, b| same_file(Pid::this(), a, b);
        // A kernel without kcmp(2) answers false for all.
        assert_eq!(of_one(one, copy), of_one(one, one));
        assert!(!of_one(one, other) && !of_one(one, 9999));
    }

    #[test]
    fn a_status_says_why_a_thread_stands_still() {
        let stopped = |signal: c_int, event: c_int| decoded(event << 16 | signal << 8 | 0x7f);
        for (signal, event, stop) in [
            (libc::SIGTRAP | MARK, 0, Stop::Call),
            (libc::SIGTRAP, 0, Stop::Signal(libc::SIGTRAP)),
            (libc::SIGRTMIN() + 3, 0, Stop::Signal(libc::SIGRTMIN() + 3)),
            (libc::SIGTRAP, EVENT_STOP, Stop::Asked),
            (libc::SIGSTOP, EVENT_STOP, Stop::Group),
            (libc::SIGTRAP, 2, Stop::Started),
            (libc::SIGTRAP, EVENT_EXEC, Stop::Program),
            (libc::SIGTRAP, EVENT_EXIT, Stop::Ending),
            (libc::SIGTRAP, 7, Stop::Other),
        ] {
            assert_eq!(stopped(signal, event), Status::Stopped(stop));
        }
        assert_eq!(decoded(3 << 8), Status::Exited(3));
        assert_eq!(decoded(libc::SIGKILL), Status::Killed(libc::SIGKILL));
    }
}
