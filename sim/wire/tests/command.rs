//! The command line of `mlx5-sim-wire`. The tests of the machine that it serves are in `wire.rs`.

mod limited;

use std::error::Error;
use std::io::{self, BufRead, BufReader, Write};
use std::num::NonZero;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use limited::{output, within};
use mlx5_sim_wire::{Served, Wire, lock_of};
use nix::fcntl::{FcntlArg, Flock, FlockArg, OFlag, fcntl};
use nix::libc;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, kill, pthread_sigmask, signal};
use nix::unistd::Pid;

const PROGRAM: &str = env!("CARGO_BIN_EXE_mlx5-sim-wire");

fn run(arguments: &[&str]) -> Output {
    output(Command::new(PROGRAM).args(arguments)).expect("it runs")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

#[test]
fn who_asks_for_help_is_told_how_it_is_used() {
    for arguments in [&["--help"][..], &["-h"], &["/nowhere", "--stay", "--help"]] {
        let told = run(arguments);
        assert!(told.status.success(), "{arguments:?}: {told:?}");
        let help = text(&told.stdout);
        assert!(help.starts_with("usage: mlx5-sim-wire SOCKET"), "{help}");
        assert!(help.lines().all(|line| line.len() <= 100), "{help}");
        assert_eq!(text(&told.stderr), "");
    }
}

#[test]
fn mistakes_exit_with_2_and_say_how_it_is_used() {
    for (arguments, says) in [
        (&[][..], "no socket is named"),
        (&["--what"], "cannot understand \"--what\""),
        (&["/nowhere", "/elsewhere"], "cannot understand \"/elsewhere\""),
        (&["/nowhere", "--sim"], "--sim needs a list"),
        (
            &["/nowhere", "--sim", "colour=blue"],
            "--sim: cannot understand \"colour=blue\"; known settings",
        ),
    ] {
        let told = run(arguments);
        assert_eq!(told.status.code(), Some(2), "{arguments:?}: {told:?}");
        assert_eq!(text(&told.stdout), "");
        let error = text(&told.stderr);
        assert!(error.contains(says) && error.contains("usage: mlx5-sim-wire"), "{error}");
    }
}

#[test]
fn a_place_where_no_socket_can_be_is_an_error() {
    let told = run(&["/proc/no/such/socket"]);
    assert_eq!(told.status.code(), Some(1), "{told:?}");
    assert!(text(&told.stderr).contains("mlx5-sim-wire: /proc/no/such/socket: "), "{told:?}");
}

/// A machine of this process, and its socket.
fn served(settings: &str) -> (Served, String) {
    let machine = Served::start(&settings.parse().expect("settings")).expect("a machine");
    let socket = machine.socket().display().to_string();
    (machine, socket)
}

#[test]
fn one_that_comes_second_says_who_serves_and_ends() {
    let (machine, socket) = served("link=roce");
    for arguments in [&[&*socket][..], &[&socket, "--sim", "link=roce"], &[&socket, "--sim", ""]] {
        let told = run(arguments);
        assert!(told.status.success(), "{arguments:?}: {told:?}");
        assert_eq!(text(&told.stdout), "ready\n");
        let said = format!(
            "mlx5-sim-wire: {socket}: process {} serves a machine there already, with --sim link=roce; \
             this one ends\n",
            std::process::id()
        );
        assert_eq!(text(&told.stderr), said);
    }
    assert_eq!(machine.end().expect("it ends"), 0);
}

#[test]
fn one_that_comes_second_is_refused_what_would_change_the_machine() {
    let (machine, socket) = served("");
    for (options, lost) in [
        (&["--stay"][..], "--stay"),
        (&["--sim", "link=ib"], "--sim"),
        (&["--sim", "trace"], "--sim"),
        (&["--sim", "devices=2", "--stay"], "--sim and --stay"),
    ] {
        let told = run(&[&[&*socket], options].concat());
        assert_eq!(told.status.code(), Some(1), "{options:?}: {told:?}");
        assert_eq!(text(&told.stdout), "");
        let said = format!(
            "mlx5-sim-wire: {socket}: process {} serves a machine there already, which {lost} cannot \
             change: end that, or name another socket\n",
            std::process::id()
        );
        assert_eq!(text(&told.stderr), said);
    }
    assert_eq!(machine.end().expect("it ends"), 0);
}

/// A path in the folder for temporary files at which nothing is.
fn unused_path() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("mlx5-staying-{}-{number}", std::process::id()))
}

/// A machine that does not end by itself, served by a process that is killed when this is dropped.
struct Staying {
    /// None once it is waited for.
    child: Option<Child>,
    /// The process that serves, which the child may have started.
    process: u32,
    socket: PathBuf,
}

impl Staying {
    /// Starts a machine by the program and arguments of `command`, and waits until it serves.
    fn start(command: Command, settings: &str) -> Self {
        Self::start_at(unused_path(), command, settings).expect("it runs")
    }

    fn start_at(socket: PathBuf, mut command: Command, settings: &str) -> io::Result<Self> {
        command.arg(&socket).args(["--stay", "--sim", settings]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let (process, stdout) = (child.id(), child.stdout.take().expect("its output"));
        let machine = Self { child: Some(child), process, socket };
        let ready = within(process, move || {
            let mut line = String::new();
            BufReader::new(stdout).read_line(&mut line).map(|_| line)
        });
        assert_eq!(ready.expect("a line"), "ready\n");
        Ok(machine)
    }

    /// Ends it by a signal.
    fn ended_by(&mut self, signal: Signal) -> Output {
        kill(Pid::from_raw(self.process as i32), signal).expect("it is there");
        let child = self.child.take().expect("it is waited for once");
        within(self.process, move || child.wait_with_output().expect("it ends"))
    }

    fn leaves_nothing(&self) -> bool {
        !self.socket.exists() && !lock_of(&self.socket).exists()
    }
}

impl Drop for Staying {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = kill(Pid::from_raw(self.process as i32), Signal::SIGKILL);
            let _ = child.kill();
            let _ = child.wait();
            for file in [&lock_of(&self.socket), &self.socket] {
                let _ = std::fs::remove_file(file);
            }
        }
    }
}

/// The program, with its output captured.
fn program() -> Command {
    let mut command = Command::new(PROGRAM);
    command.stderr(Stdio::piped());
    command
}

const ENDING: [Signal; 2] = [Signal::SIGTERM, Signal::SIGINT];

/// The program, as a process that starts with its ending signals ignored or blocked, as scripts,
/// nohup and other programs do it.
fn started(ignored: bool, blocked: bool) -> Command {
    let mut command = program();
    let prepare = move || {
        for ending in ENDING {
            let handler = if ignored { SigHandler::SigIgn } else { SigHandler::SigDfl };
            // SAFETY: neither handler is code of this process.
            unsafe { signal(ending, handler) }?;
        }
        let set: SigSet = ENDING.into_iter().collect();
        let how = if blocked { SigmaskHow::SIG_BLOCK } else { SigmaskHow::SIG_UNBLOCK };
        Ok(pthread_sigmask(how, Some(&set), None)?)
    };
    // SAFETY: the closure makes system calls alone, which are safe between fork and exec.
    unsafe { command.pre_exec(prepare) };
    command
}

#[test]
fn a_signal_ends_it_and_leaves_nothing() {
    for (ignored, blocked) in [(false, false), (true, false), (false, true), (true, true)] {
        for signal in ENDING {
            let mut machine = Staying::start(started(ignored, blocked), "");
            // A program is connected, and does not keep the machine.
            let _wire = Wire::connect(&machine.socket).expect("a machine");
            let ended = machine.ended_by(signal);
            let how = format!("{signal}, ignored: {ignored}, blocked: {blocked}: {ended:?}");
            assert_eq!(ended.status.signal(), Some(signal as i32), "{how}");
            assert!(machine.leaves_nothing(), "{how}");
        }
    }
}

/// The command that starts a program as process 1 of a namespace of its own; `None` if the kernel
/// refuses it.
fn first_of_a_namespace() -> Option<Command> {
    let mut words = vec!["--pid", "--fork", "--kill-child"];
    if !nix::unistd::geteuid().is_root() {
        words.extend(["--user", "--map-root-user"]);
    }
    let mut command = Command::new("unshare");
    let refused = match output(command.args(&words).arg("true")) {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(text(&output.stderr).trim().to_owned()),
        Err(error) => Some(format!("the program unshare of the package util-linux: {error}")),
    };
    if let Some(why) = refused {
        eprintln!("SKIP: no PID namespace can be made here: {why}");
        return None;
    }
    let mut command = Command::new("unshare");
    command.args(words).arg(PROGRAM).stderr(Stdio::piped());
    Some(command)
}

/// The only child of a process.
fn child_of(process: u32) -> u32 {
    let path = format!("/proc/{process}/task/{process}/children");
    let children = std::fs::read_to_string(path).expect("its children");
    children.trim().parse().expect("one child")
}

#[test]
fn a_signal_ends_it_as_process_1_of_a_container() {
    for signal in ENDING {
        let Some(command) = first_of_a_namespace() else { return };
        let mut machine = Staying::start(command, "");
        machine.process = child_of(machine.process);
        let ended = machine.ended_by(signal);
        assert_eq!(ended.status.code(), Some(128 + signal as i32), "{signal}: {ended:?}");
        assert!(machine.leaves_nothing(), "{signal}: {ended:?}");
    }
}

/// The text for a program that cannot reach a machine; it does not say to start one.
fn refused(socket: &Path) -> String {
    let said = Wire::connect(socket).expect_err("it is not let in").to_string();
    assert!(said.contains(&socket.display().to_string()) && !said.contains("cargo run"), "{said}");
    said
}

#[test]
fn a_program_outside_of_its_pid_namespace_is_refused_by_name() {
    let Some(command) = first_of_a_namespace() else { return };
    let mut machine = Staying::start(command, "");
    machine.process = child_of(machine.process);
    let said = refused(&machine.socket);
    assert!(said.contains("is in another PID namespace (ESRCH"), "{said}");
    let ended = machine.ended_by(Signal::SIGTERM);
    assert!(text(&ended.stderr).contains("process 0: not let in: ESRCH"), "{ended:?}");
}

#[test]
fn second_one_in_another_pid_namespace_ends_at_once_and_says_why() {
    let Some(command) = first_of_a_namespace() else { return };
    let mut machine = Staying::start(command, "");
    machine.process = child_of(machine.process);
    let Some(mut second) = first_of_a_namespace() else { return };
    let refused = output(second.arg(&machine.socket)).expect("it runs");
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(text(&refused.stderr).contains("is in another PID namespace (ESRCH"), "{refused:?}");
    let ended = machine.ended_by(Signal::SIGTERM);
    assert_eq!(text(&ended.stderr).matches("not let in").count(), 1, "{ended:?}");
}

#[test]
fn signal_ends_process_1_of_a_container_that_waits_for_another_to_serve() {
    let Some(mut command) = first_of_a_namespace() else { return };
    // The lock is held, and nothing answers at the socket.
    let socket = unused_path();
    let file = std::fs::File::create(lock_of(&socket)).expect("a file");
    let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).expect("no other has it");
    let child = command.arg(&socket).stdout(Stdio::piped()).spawn().expect("it runs");
    let process = child.id();
    let waits = within(process, move || {
        loop {
            let path = format!("/proc/{process}/task/{process}/children");
            let first = std::fs::read_to_string(path).unwrap_or_default();
            if let Ok(first) = first.trim().parse::<u32>()
                && blocks_ending(first)
            {
                break first;
            }
            std::thread::yield_now();
        }
    });
    kill(Pid::from_raw(waits as i32), Signal::SIGTERM).expect("it is there");
    let ended = within(waits, move || child.wait_with_output().expect("it ends"));
    assert_eq!(ended.status.code(), Some(128 + Signal::SIGTERM as i32), "{ended:?}");
    drop(lock);
    std::fs::remove_file(lock_of(&socket)).expect("it is this test's");
}

/// Whether a process runs the program and has blocked its ending signals, so that it handles them.
fn blocks_ending(process: u32) -> bool {
    // Before it becomes the program, unshare blocks them as well.
    if std::fs::read_link(format!("/proc/{process}/exe")).ok()
        != Path::new(PROGRAM).canonicalize().ok()
    {
        return false;
    }
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    let blocked = blocked.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    ENDING.into_iter().all(|signal| blocked >> (signal as i32 - 1) & 1 == 1)
}

#[test]
fn program_without_a_descriptor_left_is_refused_by_name() {
    let (machine, socket) = served("");
    let mut second = Command::new(PROGRAM);
    let limit = || {
        // Standard input and outputs, and the socket.
        let four = libc::rlimit { rlim_cur: 4, rlim_max: 4 };
        // SAFETY: the call reads one structure, which is there.
        match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const four) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure makes one system call, which is safe between fork and exec.
    unsafe { second.pre_exec(limit) };
    let refused = output(second.arg(&socket)).expect("it runs");
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(text(&refused.stderr).contains("too many open files"), "{refused:?}");
    assert_eq!(machine.end().expect("it ends"), 0);
}

#[test]
fn signal_ends_one_that_can_make_no_thread_any_more() {
    let folder = unused_path();
    std::fs::create_dir(&folder).expect("a folder");
    let mut command = program();
    if nix::unistd::geteuid().is_root() {
        // Root has no such limit.
        std::os::unix::fs::chown(&folder, Some(OTHER), Some(OTHER)).expect("root may");
        command.uid(OTHER).gid(OTHER);
    }
    match Staying::start_at(folder.join("socket"), command, "") {
        Ok(mut machine) => {
            // As the user that it runs as, which may limit it.
            let mut limit = Command::new("prlimit");
            limit.arg(format!("--pid={}", machine.process)).arg("--nproc=1:1");
            if nix::unistd::geteuid().is_root() {
                limit.uid(OTHER).gid(OTHER);
            }
            let limited = output(&mut limit).expect("prlimit of util-linux");
            assert!(limited.status.success(), "{limited:?}");
            let ended = machine.ended_by(Signal::SIGTERM);
            assert_eq!(ended.status.signal(), Some(Signal::SIGTERM as i32), "{ended:?}");
            assert!(machine.leaves_nothing(), "{ended:?}");
        }
        Err(error) => eprintln!("SKIP: user {OTHER} cannot run {PROGRAM}: {error}"),
    }
    std::fs::remove_dir_all(&folder).expect("a folder");
}

/// A user without files.
const OTHER: u32 = 65534;

/// Whether this process is root, which alone can act as another user.
fn can_be_another_user() -> bool {
    let can = nix::unistd::geteuid().is_root();
    if !can {
        eprintln!("SKIP: only root can act as another user");
    }
    can
}

#[test]
fn a_program_of_a_user_that_may_not_connect_is_refused_by_name() {
    if !can_be_another_user() {
        return;
    }
    let machine = Staying::start(program(), "");
    let owners = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(&machine.socket, owners).expect("a socket of this user");
    let said = std::thread::scope(|scope| {
        let as_another = || {
            // SAFETY: the call takes numbers. The system call itself changes the user of this
            // thread alone, which ends here.
            let changed = unsafe { libc::syscall(libc::SYS_setresuid, OTHER, OTHER, OTHER) };
            assert_eq!(changed, 0);
            refused(&machine.socket)
        };
        scope.spawn(as_another).join().expect("no panic")
    });
    assert!(said.contains("this user may not connect to") && said.contains("(EACCES"), "{said}");
    // Else a folder keeps the user out, not the socket.
    assert!(said.contains(", which is of the user 0: "), "{said}");
}

#[test]
fn a_program_whose_memory_the_host_may_not_reach_is_refused_by_name() {
    if !can_be_another_user() {
        return;
    }
    let folder = unused_path();
    std::fs::create_dir(&folder).expect("a folder");
    std::os::unix::fs::chown(&folder, Some(OTHER), Some(OTHER)).expect("root may");
    let mut command = program();
    command.uid(OTHER).gid(OTHER);
    match Staying::start_at(folder.join("socket"), command, "") {
        Ok(machine) => {
            let said = refused(&machine.socket);
            assert!(said.contains("may not reach the memory of this one (EPERM"), "{said}");
        }
        Err(error) => eprintln!("SKIP: user {OTHER} cannot run {PROGRAM}: {error}"),
    }
    std::fs::remove_dir_all(&folder).expect("a folder");
}

#[test]
fn what_a_driver_did_is_told_and_fails_it_however_it_ends() {
    let mut machine = Staying::start(program(), "memory=checked");
    let wire = Wire::connect(&machine.socket).expect("a machine");
    send_what_is_gone(wire).expect("the driver is content");
    let ended = machine.ended_by(Signal::SIGTERM);
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(text(&ended.stderr).contains("violation: "), "{ended:?}");
    assert!(machine.leaves_nothing());
}

#[test]
fn a_signal_ends_it_also_while_no_process_reads_its_standard_error() {
    let (reader, full) = std::io::pipe().expect("a pipe");
    let set = |flags| fcntl(&full, FcntlArg::F_SETFL(flags)).expect("a pipe has flags");
    set(OFlag::O_NONBLOCK);
    while (&full).write(&[0; 4096]).is_ok() {}
    set(OFlag::empty());
    let mut command = Command::new(PROGRAM);
    command.stderr(full.try_clone().expect("a descriptor"));
    let mut machine = Staying::start(command, "memory=checked");
    let wire = Wire::connect(&machine.socket).expect("a machine");
    send_what_is_gone(wire).expect("the driver is content");
    let ended = machine.ended_by(Signal::SIGTERM);
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(machine.leaves_nothing());
    drop(reader);
}

/// Sends from memory that was unmapped while it was registered.
fn send_what_is_gone(wire: Wire) -> Result<(), Box<dyn Error>> {
    let context = mlx5::devices_on(Arc::new(wire))?.remove(0).open()?;
    let (pd, mut cq) = (context.alloc_pd()?, context.create_cq(4).build()?);
    let (length, rights) =
        (NonZero::new(4096).expect("more"), ProtFlags::PROT_READ | ProtFlags::PROT_WRITE);
    // SAFETY: a new mapping, at an address of the kernel's choice, touches no memory in use.
    let gone = unsafe { mmap_anonymous(None, length, rights, MapFlags::MAP_PRIVATE)? };
    // SAFETY: the memory is the test's; the test is about its early end.
    let memory = unsafe { pd.reg_mr(gone.as_ptr().cast(), 4096, mlx5::Access::default())? };
    let mut qp = pd.create_qp::<mlx5::transport::Rc>(&cq, &cq).build()?;
    let (options, psn) = (mlx5::ConnectOptions::default(), mlx5::Psn::default());
    let port = context.local_port(1, None)?;
    let itself = qp.endpoint(&port, psn, &options);
    qp.connect(&port, psn, &itself, &options)?;
    // SAFETY: only the device uses the page.
    unsafe { munmap(gone, 4096)? };
    let from = memory.sge(..8)?;
    qp.post(|batch| batch.wr(1, mlx5::SendFlags::SIGNALED).send().sge(from))?;
    while cq.poll(1, |completion| assert!(completion.status().is_err()))? == 0 {}
    Ok(())
}

/// The nice value of a process.
fn nice_of(process: u32) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("its state");
    // The 19th word; the second one, in parentheses, may have spaces.
    let words = stat.rsplit(") ").next().and_then(|words| words.split(' ').nth(16));
    words.and_then(|nice| nice.parse().ok()).expect("a nice value")
}

#[test]
fn a_nice_value_that_it_is_started_with_stays() {
    let nice = (nice_of(std::process::id()) + 5).min(19);
    let mut command = program();
    let prepare = move || {
        // SAFETY: the call takes numbers, and changes nothing in memory.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
        Ok(())
    };
    // SAFETY: the closure makes one system call, which is safe between fork and exec.
    unsafe { command.pre_exec(prepare) };
    let machine = Staying::start(command, "");
    assert_eq!(nice_of(machine.process), nice);
}
