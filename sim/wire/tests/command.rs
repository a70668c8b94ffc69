//! The command line of `mlx5-sim-wire`. What it serves is in `wire.rs`.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::num::NonZero;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;

use mlx5_sim_wire::{Served, Wire};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mlx5-sim-wire"));
    command.args(arguments).output().expect("it runs")
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

/// Starts a machine that stays, and waits until it is there.
fn staying(name: &str, settings: &str) -> (Child, PathBuf) {
    let socket = std::env::temp_dir().join(format!("mlx5-{name}-{}", std::process::id()));
    let mut command = Command::new(env!("CARGO_BIN_EXE_mlx5-sim-wire"));
    command.arg(&socket).args(["--stay", "--sim", settings]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let mut ready = String::new();
    let stdout = child.stdout.take().expect("its output");
    BufReader::new(stdout).read_line(&mut ready).expect("a line");
    assert_eq!(ready, "ready\n");
    (child, socket)
}

fn ended_by(child: Child, signal: Signal) -> Output {
    kill(Pid::from_raw(child.id() as i32), signal).expect("it is there");
    child.wait_with_output().expect("it ends")
}

#[test]
fn a_signal_ends_it_and_leaves_nothing() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let (child, socket) = staying("ended", "");
        // Somebody is there, and does not keep it.
        let _wire = Wire::connect(&socket).expect("a machine");
        let ended = ended_by(child, signal);
        assert_eq!(ended.status.signal(), Some(signal as i32), "{ended:?}");
        assert!(!socket.exists() && !mlx5_sim_wire::lock_of(&socket).exists(), "{ended:?}");
    }
}

#[test]
fn what_a_driver_did_is_told_and_fails_it_however_it_ends() {
    let (child, socket) = staying("violated", "memory=checked");
    let wire = Wire::connect(&socket).expect("a machine");
    send_what_is_gone(wire).expect("the driver is content");
    let ended = ended_by(child, Signal::SIGTERM);
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(text(&ended.stderr).contains("violation: "), "{ended:?}");
    assert!(!socket.exists() && !mlx5_sim_wire::lock_of(&socket).exists());
}

/// Sends from memory that was unmapped while it was registered.
fn send_what_is_gone(wire: Wire) -> Result<(), Box<dyn Error>> {
    let context = mlx5::devices_on(Arc::new(wire))?.remove(0).open()?;
    let (pd, mut cq) = (context.alloc_pd()?, context.create_cq(4).build()?);
    let (length, rights) =
        (NonZero::new(4096).expect("more"), ProtFlags::PROT_READ | ProtFlags::PROT_WRITE);
    // SAFETY: the kernel chooses a place where nothing is.
    let gone = unsafe { mmap_anonymous(None, length, rights, MapFlags::MAP_PRIVATE)? };
    // SAFETY: for this test's memory; that it goes too early is what it is about.
    let memory = unsafe { pd.reg_mr(gone.as_ptr().cast(), 4096, mlx5::Access::default())? };
    let mut qp = pd.create_qp::<mlx5::transport::Rc>(&cq, &cq).build()?;
    let (options, psn) = (mlx5::ConnectOptions::default(), mlx5::Psn::default());
    let port = context.local_port(1, None)?;
    let itself = qp.endpoint(&port, psn, &options);
    qp.connect(&port, psn, &itself, &options)?;
    // SAFETY: nobody uses it but the device.
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
    let socket = std::env::temp_dir().join(format!("mlx5-nice-{}", std::process::id()));
    let mut command = Command::new("nice");
    command.args(["-n", "5", env!("CARGO_BIN_EXE_mlx5-sim-wire")]).arg(&socket).arg("--stay");
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it runs");
    let mut ready = String::new();
    let stdout = child.stdout.take().expect("its output");
    BufReader::new(stdout).read_line(&mut ready).expect("a line");
    let nice = nice_of(child.id());
    child.kill().expect("it is there");
    child.wait().expect("it ends");
    for file in [mlx5_sim_wire::lock_of(&socket), socket] {
        std::fs::remove_file(file).expect("a machine was served there");
    }
    assert_eq!((&*ready, nice), ("ready\n", (nice_of(std::process::id()) + 5).min(19)));
}
