//! `mlx5 perf` and `mlx5 pingpong` between two processes: on one simulated machine, which this
//! program serves and both find by the preloaded library.

mod common;

use common::{Ended, Limit, command, interrupted};
use mlx5_sim_wire::Served;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The library lies beside this test, or one directory up.
fn library() -> PathBuf {
    let this = std::env::current_exe().expect("the path of this program");
    let mut places = this.ancestors().skip(1).take(2).map(|at| at.join("libmlx5_sim_preload.so"));
    places.find(|place| place.exists()).expect("cargo builds the library with its tests")
}

/// A machine with a simulated device.
struct Machine(Served);

impl Machine {
    fn serve(name: &str) -> Self {
        Self::serve_with(name, "")
    }

    /// The same as `MLX5_SIM` describes it.
    fn serve_with(name: &str, settings: &str) -> Self {
        let socket = format!("mlx5-cli-{}-{name}", std::process::id());
        let settings = settings.parse().expect("settings");
        Self(Served::start_at(socket, &settings).expect("a host"))
    }

    fn command(&self, line: &str) -> Command {
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut command = command(&words);
        command.env("LD_PRELOAD", library());
        command.env("MLX5_SIM", format!("wire={}", self.0.socket().display()));
        command
    }

    /// A process that listens; returns its address when it does.
    fn listen(&self, command: &str) -> (Server, String) {
        // Free a moment ago; nothing else on this machine asks for a certain port.
        let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let address = port.expect("a port").to_string();
        let mut server = self.command(&format!("{command} --timeout 60 --listen {address}"));
        let mut child =
            server.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it runs");
        let limit = Limit::on(&child);
        let mut reported = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut line = String::new();
        while !line.starts_with("listening") {
            line.clear();
            assert!(reported.read_line(&mut line).expect("UTF-8") > 0, "it ended");
        }
        (Server(child, reported, limit), address)
    }
}

struct Server(
    Child,
    BufReader<std::process::ChildStderr>,
    #[expect(dead_code, reason = "its end is what counts")] Limit,
);

impl Server {
    /// Waits for its end; returns its exit status and its output on stderr since it listened.
    fn end(mut self) -> (Option<i32>, String) {
        let err = std::io::read_to_string(&mut self.1).expect("UTF-8");
        (self.0.wait().expect("it ends").code(), err)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // If the test failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_peer_answers_every_operation_on_several_queue_pairs_and_threads() {
    let machine = Machine::serve("operations");
    for (line, messages) in [
        ("", 200),
        ("-t ud --qps 3", 200),
        ("--op write --threads 2", 200),
        ("--op read --qps 4 --threads 2", 200),
        ("--op fetch-add", 200),
        ("--op compare-swap --threads 2", 200),
        ("--bidirectional --qps 2 --threads 2", 200),
        ("--op write --bidirectional", 200),
    ] {
        let (server, address) = machine.listen("perf");
        let line = format!("perf --json - -n 20 --messages {messages} --connect {address} {line}");
        let sizes =
            if line.contains("fetch") || line.contains("swap") { "" } else { " --sizes 8,64" };
        let output = machine.command(&(line.clone() + sizes)).ended();
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {err}");
        let all: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(all["loopback"], false);
        for result in all["results"].as_array().expect("a list") {
            assert_eq!(result["latency_ns"]["samples"], 20, "{line}");
            assert_eq!(result["rate"]["messages"], messages, "{line}");
            let back = &result["rate"]["back"];
            assert_eq!(back.is_object(), line.contains("--bidirectional"), "{line}: {back}");
        }
        let (code, err) = server.end();
        assert_eq!(code, Some(0), "{line}: {err}");
        assert!(err.contains("serving 127.0.0.1:"), "{err}");
    }
}

#[test]
fn a_peer_ends_well_when_the_measurement_is_interrupted() {
    let machine = Machine::serve("interrupt");
    for line in ["--op write", "--bidirectional --threads 2"] {
        let (server, address) = machine.listen("perf");
        let line = format!("perf --duration 3600 --sizes 8,64 {line} --connect {address}");
        let run = interrupted(machine.command(&line), "measuring");
        assert_eq!(run.code, Some(130), "{line}: {}", run.err);
        assert!(run.err.contains("interrupted: 1 of 2 sizes"), "{line}: {}", run.err);
        assert!(run.out.lines().last().is_some_and(|row| row.trim_start().starts_with("8 ")));
        let (code, err) = server.end();
        assert_eq!(code, Some(0), "{line}: {err}");
    }
}

/// The peer is stopped, so that the first interrupt has to wait for it.
#[test]
fn a_second_interrupt_ends_a_measurement_that_cannot_end_well() {
    let machine = Machine::serve("twice");
    let (server, address) = machine.listen("perf");
    let line = format!("perf --duration 3600 --op write --sizes 8 --connect {address}");
    let mut client = machine.command(&line);
    let mut client = client.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it runs");
    let _limit = Limit::on(&client);
    let mut reported = BufReader::new(client.stderr.take().expect("a pipe"));
    let mut text = String::new();
    while !text.starts_with("measuring") {
        text.clear();
        assert!(reported.read_line(&mut text).expect("UTF-8") > 0, "it ended");
    }
    let (peer, pid) = (Pid::from_raw(server.0.id() as i32), Pid::from_raw(client.id() as i32));
    kill(peer, Signal::SIGSTOP).expect("it runs");
    let begun = Instant::now();
    // The first may come before the measurement is armed against it; one of them ends it in any
    // case.
    while client.try_wait().expect("a child").is_none() {
        kill(pid, Signal::SIGINT).expect("it runs");
        std::thread::sleep(Duration::from_millis(200));
        assert!(begun.elapsed() < Duration::from_secs(20), "it waits for a peer that is stopped");
    }
    let status = client.wait().expect("it ended");
    // By the signal, or as if by it, where the tests run in the background and it is ignored.
    let ended = status.signal() == Some(Signal::SIGINT as i32) || status.code() == Some(130);
    assert!(ended, "{status}");
}

#[test]
fn what_the_peer_cannot_do_is_told_to_both() {
    let machine = Machine::serve("refused");
    // More queue pairs than any peer may ask for.
    let (server, address) = machine.listen("perf");
    let stranger = std::net::TcpStream::connect(&address).expect("it listens");
    let hello = r#"{"mlx5":2,"session":1,"threads":1,"transport":"rc","queues":1025,"message":8,"depth":16,"receives":16,"inline":0}"#;
    std::io::Write::write_all(&mut &stranger, format!("{hello}\n").as_bytes()).expect("sent");
    let mut answer = String::new();
    BufReader::new(&stranger).read_line(&mut answer).expect("UTF-8");
    assert!(answer.contains("\"error\""), "{answer}");
    let (code, err) = server.end();
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("not an `mlx5` command"), "{err}");
}

/// The kernel accepts for a program that does not: the connection stands, and nothing comes.
#[test]
fn a_peer_that_never_answers_is_given_up_when_the_time_is_over() {
    let machine = Machine::serve("silent");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its number");
    for line in ["pingpong", "pingpong --ibv", "perf"] {
        let mut client = machine.command(&format!("{line} --timeout 1 --connect {address}"));
        let output = client.ended();
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line}: {err}");
        assert!(err.contains("the other side has not answered for 1 s"), "{line}: {err}");
        assert!(err.contains("hint: ") && err.contains("--timeout"), "{line}: {err}");
    }
}

#[test]
fn messages_bounce_between_processes() {
    let machine = Machine::serve("pingpong");
    for line in ["-n 50", "-n 50 -t ud", "-n 50 --events", "-n 1 --ibv --mtu 2048"] {
        // With --ibv each takes the other for rdma-core's program, which does not know its peer's
        // options and sends back the bytes that arrived: for one message this command sends the
        // same bytes.
        let own = if line.contains("--ibv") { line } else { "" };
        let (server, address) = machine.listen(&format!("pingpong {own}"));
        let mut client = machine.command(&format!("pingpong {line} --connect {address}"));
        let output = client.ended();
        let out = String::from_utf8_lossy(&output.stdout);
        assert!(out.contains("every byte verified"), "{line}: {out}");
        assert_eq!(server.end().0, Some(0), "{line}");
    }
}

/// `mlx5 doctor` of a machine that works, with a peer, and with an address where none listens.
#[test]
fn a_doctor_reaches_a_peer_or_says_what_to_do() {
    let machine = Machine::serve("doctor");
    let (server, address) = machine.listen("pingpong");
    let output = machine.command(&format!("doctor --peer {address}")).ended();
    let out = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{out}");
    let line =
        format!("  ok    100 messages of 4096 bytes to {address} and back, every byte verified");
    assert!(out.contains(&line), "{out}");
    assert!(out.lines().last().is_some_and(|last| last.starts_with("verdict: RDMA works here")));
    assert_eq!(server.end().0, Some(0));

    // The peer has ended, and none listens there.
    let output = machine.command(&format!("doctor --peer {address}")).ended();
    let out = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{out}");
    assert!(out.contains(&format!("  FAIL  messages to {address}: ")), "{out}");
    assert!(out.contains("        does `mlx5 pingpong --listen` run there"), "{out}");
}

#[test]
fn a_link_of_a_machine_has_its_own_latency_or_is_cut() {
    let machine = Machine::serve_with("link", "devices=3,latency=0-1:3ms,cut=0-2");
    let bounce = |from: u32, to: u32, count: u32| {
        let (server, address) = machine.listen(&format!("pingpong -d mlx5_{to}"));
        let line = format!("pingpong -d mlx5_{from} -n {count} --timeout 60 --connect {address}");
        let output = machine.command(&line).ended();
        drop(server);
        (output.status.code(), String::from_utf8(output.stdout).expect("UTF-8"))
    };
    // The shortest round trip, in microseconds.
    let shortest = |text: &str| {
        let number = text.split("min ").nth(1).and_then(|rest| rest.split(',').next());
        number.and_then(|number| number.trim().parse::<f64>().ok()).expect("a time")
    };
    for (from, to) in [(0, 1), (1, 0)] {
        let (code, out) = bounce(from, to, 3);
        assert_eq!(code, Some(0), "{out}");
        assert!(shortest(&out) >= 6000.0, "{out}");
    }
    // On a busy machine three may all be late.
    let (code, out) = bounce(1, 2, 300);
    assert_eq!(code, Some(0), "{out}");
    assert!(shortest(&out) < 6000.0, "another way takes no such time: {out}");
    let (code, out) = bounce(2, 0, 3);
    assert_eq!(code, Some(1), "nothing arrives: {out}");
}

#[test]
fn a_device_may_be_absent_from_the_start() {
    let mut doctor = command(&["doctor"]);
    doctor.env("LD_PRELOAD", library()).env("MLX5_SIM", "fault=remove");
    let output = doctor.ended();
    let out = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{out}");
    assert!(out.contains("  FAIL  no mlx5 device\n"), "{out}");
}
