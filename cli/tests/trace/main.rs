//! `mlx5 trace`, of programs with known actions on a simulated device. The program is this one:
//! each test runs it again, with the preload library.

#[path = "../common/mod.rs"]
mod common;
mod program;

use common::{Ended, Limit, command, interrupted};
use libtest_mimic::{Arguments, Failed, Trial};
use program::CASE;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Output, Stdio};

fn main() -> ExitCode {
    if let Ok(case) = std::env::var(CASE) {
        return program::run(&case);
    }
    let arguments = Arguments::from_args();
    let tests: &[(&str, fn())] = &[
        ("every_operation_is_decoded", every_operation_is_decoded),
        ("lines_are_for_people", lines_are_for_people),
        ("failures_have_their_names", failures_have_their_names),
        ("threads_have_queues_of_their_own", threads_have_queues_of_their_own),
        ("what_is_not_seen_is_counted", what_is_not_seen_is_counted),
        ("a_reset_queue_starts_over", a_reset_queue_starts_over),
        ("a_shared_receive_queue_is_followed", a_shared_receive_queue_is_followed),
        ("a_resized_queue_is_followed", a_resized_queue_is_followed),
        ("packets_are_decoded", packets_are_decoded),
        ("queues_that_live_briefly_are_seen", queues_that_live_briefly_are_seen),
        ("a_program_that_dies_is_seen_to_its_end", a_program_that_dies_is_seen_to_its_end),
        ("other_processes_are_followed", other_processes_are_followed),
        (
            "process_lines_say_simulated_once_it_is_known",
            process_lines_say_simulated_once_it_is_known,
        ),
        ("queues_alone", queues_alone),
        ("some_queues_alone", some_queues_alone),
        ("summaries", summaries),
        ("a_device_that_another_process_simulates", a_device_that_another_process_simulates),
        ("a_running_process_goes_on", a_running_process_goes_on),
        ("ctrl_c_leaves_the_program", ctrl_c_leaves_the_program),
        ("a_program_that_runs_on_is_named", a_program_that_runs_on_is_named),
        ("the_status_is_that_of_the_program", the_status_is_that_of_the_program),
        ("bad_input_is_refused_with_advice", bad_input_is_refused_with_advice),
        ("output_goes_to_a_file", output_goes_to_a_file),
    ];
    let trials = tests.iter().map(|(name, test)| {
        let test = *test;
        Trial::test(*name, move || {
            std::panic::catch_unwind(test).map_err(|panic| {
                let text = panic.downcast_ref::<String>().cloned();
                Failed::from(text.unwrap_or_else(|| "it panicked".to_owned()))
            })
        })
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

/// The library lies beside this test, or one directory up.
fn library() -> PathBuf {
    let this = std::env::current_exe().expect("the path of this program");
    let mut places = this.ancestors().skip(1).take(2).map(|at| at.join("libmlx5_sim_preload.so"));
    places.find(|place| place.exists()).expect("cargo builds the library with its tests")
}

/// A command whose children are programs on a simulated device. The command itself is, too.
fn on_simulator(mut command: Command, case: &str) -> Command {
    on_simulator_of(&mut command).env(CASE, case);
    command
}

fn on_simulator_of(command: &mut Command) -> &mut Command {
    command.env("LD_PRELOAD", library()).env("MLX5_SIM", "")
}

/// `mlx5 trace OPTIONS -- CASE`.
fn trace(options: &str, case: &str) -> Output {
    let this = std::env::current_exe().expect("the path of this program");
    let mut words: Vec<&str> = vec!["trace"];
    words.extend(options.split_whitespace());
    words.extend(["--", this.to_str().expect("a path of text")]);
    on_simulator(command(&words), case).ended()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The objects that `mlx5 trace --json` prints.
fn traced(options: &str, case: &str) -> Vec<Value> {
    let output = trace(&format!("--json {options}"), case);
    assert!(output.status.success(), "{}: {}", output.status, text(&output.stderr));
    objects(&text(&output.stdout))
}

fn objects(lines: &str) -> Vec<Value> {
    let all: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    // Every kind of line names its event under the same key.
    assert!(all.iter().all(|one| one["event"].is_string()), "{lines}");
    // Every queue is a simulated one here; a process may not have made one yet.
    for one in &all {
        let simulated = one.get("simulated").unwrap_or_else(|| panic!("no key in {one}"));
        let unknown = simulated.is_null() && one["event"] == "process";
        assert!(unknown || *simulated == true, "{one}");
    }
    all
}

fn of_kind<'a>(all: &'a [Value], event: &'a str) -> impl Iterator<Item = &'a Value> {
    all.iter().filter(move |one| one["event"] == event)
}

/// The requests of the send queues, or the receive queues.
fn requests<'a>(all: &'a [Value], queue: &'a str) -> Vec<&'a Value> {
    of_kind(all, "request").filter(|one| one["queue"] == queue).collect()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// The key is about the command's own simulation. The command does not see that the preload library
/// simulates.
fn a_device_that_another_process_simulates() {
    let mut command = command(&["list", "--json"]);
    let output = on_simulator_of(&mut command).output().expect("it runs");
    let devices: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(devices[0]["simulated"], false, "{devices}");
}

fn every_operation_is_decoded() {
    let all = traced("", "operations");
    let sends = requests(&all, "send");
    let reported: Vec<(String, u64)> = sends
        .iter()
        .map(|one| (one["opcode"].as_str().expect("text").to_owned(), number(&one["bytes"])))
        .collect();
    let expected = [
        ("SEND", 11),
        ("RDMA_WRITE", 64 + 128),
        ("RDMA_WRITE_IMM", 64),
        ("RDMA_READ", 128),
        ("ATOMIC_FA", 8),
    ];
    assert_eq!(reported, expected.map(|(name, bytes)| (name.to_owned(), bytes)));
    assert_eq!(sends[0]["segments"][0]["inline"], true);
    assert_eq!(sends[1]["flags"], Value::Null);
    assert_eq!(sends[1]["segments"].as_array().expect("a list").len(), 2);
    assert_eq!(sends[2]["imm"], "0x646f6e65");
    assert_eq!(sends[2]["rkey"], sends[1]["rkey"]);
    assert_eq!(sends[3]["flags"], "fence, completion");
    assert_eq!(sends[4]["add"], "0x0000000000000005");
    // Requests follow each other in blocks: each has as many as its segments take.
    let indices: Vec<u64> = sends.iter().map(|one| number(&one["index"])).collect();
    assert!(indices.is_sorted() && indices[0] == 0, "{indices:?}");
    let receives: Vec<u64> =
        requests(&all, "recv").iter().map(|one| number(&one["bytes"])).collect();
    assert_eq!(receives, [64, 100]);

    let near = &sends[0]["qp"];
    let done: Vec<_> = of_kind(&all, "completion").filter(|one| one["qp"] == *near).collect();
    let which: Vec<(&str, u64)> = done
        .iter()
        .map(|one| (one["request"].as_str().expect("text"), number(&one["request_index"])))
        .collect();
    assert_eq!(
        which,
        [
            ("SEND", indices[0]),
            ("RDMA_WRITE_IMM", indices[2]),
            ("RDMA_READ", indices[3]),
            ("ATOMIC_FA", indices[4])
        ]
    );
    let received: Vec<_> = of_kind(&all, "completion").filter(|one| one["qp"] != *near).collect();
    assert_eq!(received.len(), 2);
    assert_eq!(
        (&received[0]["opcode"], number(&received[0]["bytes"])),
        (&"send received".into(), 11)
    );
    assert_eq!(received[1]["imm"], "0x646f6e65");
    assert_eq!(of_kind(&all, "lost").count(), 0);

    // A request stands before its completion.
    let place = |is: &dyn Fn(&Value) -> bool| all.iter().position(is).expect("it is there");
    let posted = place(&|one| one["event"] == "request" && one["opcode"] == "SEND");
    let completed = place(&|one| one["request"] == "SEND");
    assert!(posted < completed);
    let made: Vec<&str> =
        of_kind(&all, "made").map(|one| one["about"].as_str().expect("text")).collect();
    assert_eq!(made.len(), 4, "{made:?}");
    assert!(made.iter().any(|about| about.starts_with("RC, ")), "{made:?}");
    assert_eq!(of_kind(&all, "ended").count(), 4);
}

fn lines_are_for_people() {
    let output = trace("", "operations");
    let out = text(&output.stdout);
    let line = |word: &str| {
        let mut lines = out.lines().filter(|line| line.contains(word));
        lines.next().unwrap_or_else(|| panic!("no {word} in {out}")).to_owned()
    };
    let write = line("RDMA_WRITE ");
    assert!(
        write.contains("qp  0x") && write.contains(" send ") && write.contains("192 B"),
        "{write}"
    );
    let done = line("request completed");
    assert!(done.contains("cq  0x") && done.contains("SEND  qp 0x"), "{done}");
    assert!(out.lines().any(|line| line.ends_with("now: RTS")), "{out}");
    let err = text(&output.stderr);
    assert!(err.contains("7 requests and 6 completions at 4 queues"), "{err}");
    // With every field, each request has those of `mlx5 dump`.
    let all = text(&trace("-v", "operations").stdout);
    assert!(all.contains("control segment") && all.contains("remote address segment"), "{all}");
    assert!(all.contains("wqe_counter"), "{all}");
}

fn failures_have_their_names() {
    let all = traced("--errors", "fails");
    assert_eq!(of_kind(&all, "request").count(), 0);
    let failed: Vec<_> = of_kind(&all, "completion").collect();
    assert_eq!(failed.len(), 2);
    assert_eq!(failed[0]["status"], "remote access error");
    assert_eq!(
        (&failed[0]["syndrome"], &failed[0]["request"]),
        (&"0x13".into(), &"RDMA_WRITE".into())
    );
    assert_eq!(failed[1]["status"], "work request flushed");
    let err = text(&trace("", "fails").stderr);
    assert!(err.contains(", 2 failed"), "{err}");
}

fn threads_have_queues_of_their_own() {
    let all = traced("", "threads");
    for bytes in 1..=4 {
        let sends: Vec<_> =
            requests(&all, "send").into_iter().filter(|one| one["bytes"] == bytes).collect();
        let qp = &sends[0]["qp"];
        assert!(sends.iter().all(|one| one["qp"] == *qp), "{bytes}");
        let lost: u64 = of_kind(&all, "lost")
            .filter(|one| one["qp"] == *qp && one["queue"] == "send")
            .map(|one| number(&one["count"]))
            .sum();
        assert_eq!(sends.len() as u64 + lost, 50, "{bytes}");
        // None is reported twice, and they are in order.
        let indices: Vec<u64> = sends.iter().map(|one| number(&one["index"])).collect();
        assert!(indices.windows(2).all(|two| two[0] < two[1]), "{indices:?}");
    }
}

fn what_is_not_seen_is_counted() {
    let output = trace("--json --interval 50ms", "burst");
    let all = objects(&text(&output.stdout));
    let lost = |key: &str, number: &Value, queue: Option<&str>| -> u64 {
        of_kind(&all, "lost")
            .filter(|one| one[key] == *number && queue.is_none_or(|queue| one["queue"] == queue))
            .map(|one| one["count"].as_u64().expect("a number"))
            .sum()
    };
    let sends = requests(&all, "send");
    let (qp, seen) = (&sends[0]["qp"], sends.len() as u64);
    let not_seen = lost("qp", qp, Some("send"));
    assert_eq!(seen + not_seen, 3000, "each request takes one block");
    assert!(not_seen > 0, "a ring of 16 was not overwritten within 50 ms");
    let done: Vec<_> = of_kind(&all, "completion").filter(|one| one["qp"] == *qp).collect();
    let cq = &done[0]["cq"];
    assert_eq!(done.len() as u64 + lost("cq", cq, None), 3000);
    let err = text(&output.stderr);
    assert!(err.contains("places were not seen: try a shorter --interval"), "{err}");
}

fn a_reset_queue_starts_over() {
    let all = traced("", "reset");
    let indices: Vec<u64> =
        requests(&all, "send").iter().map(|one| number(&one["index"])).collect();
    assert_eq!(indices, [0, 1, 2, 0, 1]);
    assert_eq!(requests(&all, "recv").len(), 5);
    assert_eq!(of_kind(&all, "lost").count(), 0);
    let resets = of_kind(&all, "changed").filter(|one| one["about"] == "RESET").count();
    assert_eq!(resets, 4);
}

fn a_shared_receive_queue_is_followed() {
    let all = traced("", "shared");
    let shared: Vec<_> = of_kind(&all, "request").filter(|one| one["srq"].is_u64()).collect();
    let bytes: Vec<u64> = shared.iter().map(|one| number(&one["bytes"])).collect();
    assert_eq!(bytes, [10, 20, 30]);
    let hidden: u64 = of_kind(&all, "hidden").map(|one| number(&one["count"])).sum();
    assert_eq!(hidden, 1, "the one behind a completion");
}

fn a_resized_queue_is_followed() {
    let all = traced("--interval 10s", "resize");
    let sends = requests(&all, "send");
    let done: Vec<_> =
        of_kind(&all, "completion").filter(|one| one["qp"] == sends[0]["qp"]).collect();
    let lost: u64 = of_kind(&all, "lost")
        .filter(|one| one["cq"] == done[0]["cq"])
        .map(|one| number(&one["count"]))
        .sum();
    assert_eq!(done.len() as u64 + lost, 30);
    let resized = of_kind(&all, "changed")
        .filter(|one| one["about"].as_str().is_some_and(|about| about.starts_with("resized to ")));
    assert_eq!(resized.count(), 3);
    // The last completion of each ring announces the next ring.
    let reported =
        of_kind(&all, "completion").filter(|one| one["opcode"] == "completion queue resized");
    assert_eq!(reported.count(), 3);
}

fn packets_are_decoded() {
    let this = std::env::current_exe().expect("the path of this program");
    let words = ["trace", "--json", "--interval", "10s", "--", this.to_str().expect("text")];
    let mut command = on_simulator(command(&words), "packets");
    let output = command.env("MLX5_SIM", "link=roce,raw=on,devices=2").ended();
    assert!(output.status.success(), "{}: {}", output.status, text(&output.stderr));
    let all = objects(&text(&output.stdout));
    assert_eq!(of_kind(&all, "lost").count(), 0);

    let sends = requests(&all, "send");
    let column = |key: &str| Vec::from_iter(sends.iter().map(|one| one[key].clone()));
    assert_eq!(
        column("opcode"),
        ["SEND", "SEND", "SEND", "TSO", "ENHANCED_MPSW", "ENHANCED_MPSW"].map(Value::from)
    );
    let bytes = [60, 60, 130, 54 + 250, 60 + 200 + 60 + 100 + 300, 60 + 70];
    assert_eq!(column("bytes"), bytes.map(Value::from));
    let none = || Value::Null;
    assert_eq!(column("packets"), [none(), none(), none(), none(), 5.into(), 2.into()]);
    assert_eq!(column("mss"), [none(), none(), none(), 100.into(), none(), none()]);
    assert_eq!(column("vlan"), [none(), 100.into(), none(), none(), none(), none()]);
    assert_eq!(column("header"), [none(), none(), "18 B".into(), "54 B".into(), none(), none()]);
    assert_eq!(column("checksums"), ["IP, TCP or UDP"; 6].map(Value::from));
    let lengths = |one: &Value| {
        let parts = one["segments"].as_array().expect("a list");
        Vec::from_iter(parts.iter().map(|part| number(&part["bytes"])))
    };
    assert_eq!(lengths(sends[4]), [60, 200, 60, 100, 300]);
    assert_eq!(
        (lengths(sends[5]), &sends[5]["segments"][1]["inline"]),
        (vec![60, 70], &true.into())
    );

    let made = |what: &str| {
        let mut made = of_kind(&all, "made");
        let is = |one: &&Value| one["about"].as_str().is_some_and(|about| about.ends_with(what));
        made.find(is).unwrap_or_else(|| panic!("none made with {what}")).clone()
    };
    let wq = made(", each 16 strides of 64 bytes")["wq"].clone();
    made(", compressed with checksum and stride index");
    let receives: Vec<_> =
        requests(&all, "recv").into_iter().filter(|one| one["wq"] == wq).collect();
    assert!(receives.len() >= 2 && receives.iter().all(|one| one["bytes"] == 1024), "{receives:?}");

    let near = &sends[0]["qp"];
    let came: Vec<_> = of_kind(&all, "completion").collect();
    let done =
        Vec::from_iter(came.iter().filter(|one| one["qp"] == *near).map(|one| &one["request"]));
    assert_eq!(done, column("opcode").iter().collect::<Vec<_>>());
    // The numbers of completion queues are the same on both devices. Two strides are skipped: the
    // packet behind them takes four.
    let came: Vec<_> = came.into_iter().filter(|one| one["wq"] == wq).collect();
    let column = |key: &str| Vec::from_iter(came.iter().map(|one| number(&one[key])));
    assert_eq!(column("bytes"), [60, 60, 130, 154, 154, 104, 60, 0, 200, 60, 100, 300, 60, 70]);
    assert_eq!(column("stride"), [0, 1, 2, 5, 8, 11, 13, 14, 0, 4, 5, 7, 12, 13]);
    assert_eq!(column("strides"), [1, 1, 3, 3, 3, 2, 1, 2, 4, 1, 2, 5, 1, 2]);
    assert_eq!(column("request_index"), [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1]);
    for (index, one) in came.iter().enumerate() {
        let (opcode, headers) = match index {
            7 => {
                assert_eq!(one["opcode"], "strides skipped");
                continue;
            }
            3..=5 => ("packet received", "IPv4, TCP, an acknowledgement"),
            _ => ("packet received", "IPv4, UDP"),
        };
        assert_eq!((&one["opcode"], &one["flow_tag"]), (&opcode.into(), &"0x00002a".into()));
        let verdict = "IP right, TCP or UDP right";
        assert_eq!((&one["checksums"], one["headers"].as_str()), (&verdict.into(), Some(headers)));
        assert_eq!(one["vlan"].as_u64(), (index == 1).then_some(100));
    }
}

fn queues_that_live_briefly_are_seen() {
    // No look is due before each ends, so that all entries are seen at the ends.
    let all = traced("--interval 10s", "short-lived");
    assert_eq!(requests(&all, "send").len(), 20);
    assert_eq!(of_kind(&all, "completion").count(), 40);
    assert_eq!(of_kind(&all, "ended").count(), 80);
}

fn a_program_that_dies_is_seen_to_its_end() {
    let output = trace("--json --interval 10s", "aborts");
    assert_eq!(output.status.code(), Some(128 + 6));
    let all = objects(&text(&output.stdout));
    assert_eq!(requests(&all, "send").len(), 1);
    assert_eq!(of_kind(&all, "completion").count(), 2);
    let last = all.last().expect("a line");
    assert_eq!((&last["event"], &last["change"]), (&"process".into(), &"killed".into()));
    assert_eq!(last["signal"], 6);
}

fn other_processes_are_followed() {
    for case in ["spawns", "forks", "execs"] {
        let all = traced("--interval 10s", case);
        let sends = requests(&all, "send");
        assert_eq!(sends.len(), 1 + 5, "{case}");
        let first = &all[0]["pid"];
        let same = sends.iter().filter(|one| one["pid"] == *first).count();
        assert_eq!(same, if case == "execs" { 6 } else { 1 }, "{case}");
        let programs = all.iter().filter(|one| one["change"] == "program").count();
        assert_eq!(programs, usize::from(case != "forks"), "{case}");
    }
    // Lines of another process have its number.
    let out = text(&trace("", "spawns").stdout);
    let of_others = out.lines().filter(|line| line.contains('[')).count();
    assert!(of_others > 5 && of_others < out.lines().count(), "{out}");
}

/// Process lines have no value for `simulated` before the process has made a queue.
fn process_lines_say_simulated_once_it_is_known() {
    let changes = |case: &str| -> Vec<(bool, String, Value)> {
        let all = traced("--queues", case);
        let first = all[0]["pid"].clone();
        let lines = of_kind(&all, "process").map(|one| {
            let change = one["change"].as_str().expect("text").to_owned();
            (one["pid"] == first, change, one["simulated"].clone())
        });
        lines.collect()
    };
    let line = |first, change: &str, simulated: Option<bool>| {
        (first, change.to_owned(), simulated.map_or(Value::Null, Value::Bool))
    };
    assert_eq!(changes("nothing"), [line(true, "exited", None)]);
    // Another program may have other devices.
    let execs = [line(true, "program", None), line(true, "exited", Some(true))];
    assert_eq!(changes("execs"), execs);
    // A child has the devices of its parent until it runs another program.
    let forks = [line(false, "exited", Some(true)), line(true, "exited", Some(true))];
    assert_eq!(changes("forks-idle"), forks);
    let spawns =
        [line(false, "program", None), line(false, "exited", Some(true)), forks[1].clone()];
    assert_eq!(changes("spawns"), spawns);
}

fn queues_alone() {
    let out = text(&trace("--queues", "operations").stdout);
    assert!(!out.contains("RDMA_WRITE"), "{out}");
    for line in ["made: RC, ", "now: RTR", "destroyed", "ended with exit status 0"] {
        assert!(out.contains(line), "{out}");
    }
}

fn some_queues_alone() {
    let all = traced("", "operations");
    let qp = number(&requests(&all, "send")[0]["qp"]);
    // Numbers of a machine of its own are the same in each run.
    let some = traced(&format!("--queue {qp:#x}"), "operations");
    assert_eq!(requests(&some, "send").len(), 5);
    assert_eq!(requests(&some, "recv").len(), 0);
    assert_eq!(of_kind(&some, "completion").count(), 4);
    assert_eq!(of_kind(&some, "made").count(), 1);
}

fn summaries() {
    let out = text(&trace("--summary", "operations").stdout);
    let row = |what: &str| {
        let line = out.lines().find(|line| line.contains(what));
        let line = line.unwrap_or_else(|| panic!("no {what} in {out}"));
        line.split_whitespace().rev().take(2).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(row("send  RDMA_WRITE "), ["192", "1"]);
    assert_eq!(row("recv  RECV"), ["164", "2"]);
    assert_eq!(row("request completed, RDMA_READ")[1], "1");
    let all = traced("--summary", "operations");
    assert_eq!(of_kind(&all, "request").count(), 0);
    let write = of_kind(&all, "sum").find(|one| one["what"] == "RDMA_WRITE").expect("a sum");
    assert_eq!((number(&write["count"]), number(&write["bytes"])), (1, 192));
}

/// A program that runs until its stdin ends.
struct Running(Child, #[expect(dead_code, reason = "its end is what counts")] Limit);

impl Running {
    fn start() -> Self {
        let this = std::env::current_exe().expect("the path of this program");
        let mut command = on_simulator(Command::new(this), "runs");
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
        let limit = Limit::on(&child);
        let mut line = String::new();
        let out = child.stdout.as_mut().expect("a pipe");
        BufReader::new(out).read_line(&mut line).expect("text");
        assert_eq!(line, "ready\n");
        Self(child, limit)
    }

    /// Ends it; it must end well.
    fn end(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().expect("it ends").success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // If the test failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn a_running_process_goes_on() {
    let running = Running::start();
    let pid = running.0.id().to_string();
    let trace = |options: &str| {
        let mut words = vec!["trace", &pid, "--json"];
        words.extend(options.split_whitespace());
        let output = command(&words).ended();
        assert!(output.status.success(), "{}", text(&output.stderr));
        objects(&text(&output.stdout))
    };
    // Twice: it is left as it was found.
    for _ in 0..2 {
        // On a busy machine the program posts little in a short time.
        let durations = ["0.3", "3", "30"].map(|seconds| format!("--duration {seconds}"));
        let all = durations
            .iter()
            .map(|options| trace(options))
            .find(|all| requests(all, "send").len() > 5);
        let all = all.expect("more than 5 sends within 30 s");
        assert_eq!(of_kind(&all, "made").count(), 4);
        let sends = requests(&all, "send");
        let indices: Vec<u64> = sends.iter().map(|one| number(&one["index"])).collect();
        let passed: u64 =
            indices.windows(2).map(|two| two[1].wrapping_sub(two[0] + 1) & 0xffff).sum();
        let lost = of_kind(&all, "lost").filter(|one| one["queue"] == "send");
        let lost: u64 = lost.map(|one| number(&one["count"])).sum();
        assert!(passed <= lost, "{passed} were passed, of which {lost} are lost: {indices:?}");
        assert!(sends.iter().all(|one| one["bytes"] == 7));
    }
    // A second tracer at a time is refused; the error names the first.
    let mut first = command(&["trace", &pid]);
    let mut first = first.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it runs");
    let _limit = Limit::on(&first);
    let mut reported = BufReader::new(first.stderr.take().expect("a pipe"));
    let mut line = String::new();
    while !line.starts_with("tracing process") {
        line.clear();
        assert!(reported.read_line(&mut line).expect("text") > 0, "it ended");
    }
    let second = command(&["trace", &pid]).ended();
    let err = text(&second.stderr);
    assert!(err.contains(&format!("process {} traces process {pid} already", first.id())), "{err}");
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(first.id() as i32),
        nix::sys::signal::Signal::SIGINT,
    )
    .expect("it runs");
    assert_eq!(first.wait().expect("it ends").code(), Some(130));
    running.end();
}

fn ctrl_c_leaves_the_program() {
    let running = Running::start();
    let run = interrupted(command(&["trace", &running.0.id().to_string()]), "tracing process");
    assert_eq!(run.code, Some(130), "{}", run.err);
    assert!(run.err.contains("interrupted"), "{}", run.err);
    running.end();
    // One that ends by itself ends the trace.
    let running = Running::start();
    let mut words = command(&["trace", &running.0.id().to_string()]);
    let mut trace = words.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let _limit = Limit::on(&trace);
    let mut reported = BufReader::new(trace.stderr.take().expect("a pipe"));
    let mut line = String::new();
    while !line.starts_with("tracing process") {
        line.clear();
        assert!(reported.read_line(&mut line).expect("text") > 0, "it ended");
    }
    running.end();
    let output = trace.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).contains("ended with exit status 0"));
}

fn a_program_that_runs_on_is_named() {
    // It runs until its stdin ends.
    let mut trace = command(&["trace", "--duration", "0.1", "--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    let _limit = Limit::on(&trace);
    let mut input = trace.stdin.take().expect("a pipe");
    let mut out = BufReader::new(trace.stdout.take().expect("a pipe"));
    // The program has these pipes as well: they do not end with the trace.
    let err = BufReader::new(trace.stderr.take().expect("a pipe"));
    let reported = err.lines().map(|line| line.expect("text"));
    let pid = reported
        .filter_map(|line| Some(line.strip_prefix("the program runs on, as process ")?.to_owned()));
    let pid = pid.take(1).last().expect("it is named");
    assert_eq!(trace.wait().expect("it ends").code(), Some(0));
    input.write_all(b"still there\n").expect("it runs on");
    let mut line = String::new();
    out.read_line(&mut line).expect("text");
    assert_eq!(line, "still there\n");
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).expect("it runs on");
    assert_eq!(name, "cat\n");
    drop(input);
    assert_eq!(out.read_line(&mut line).expect("it ends"), 0);
    // A user that gives a number knows it.
    let running = Running::start();
    let pid = running.0.id().to_string();
    let output = command(&["trace", "--duration", "0.1", &pid]).ended();
    assert!(!text(&output.stderr).contains("runs on"), "{}", text(&output.stderr));
    running.end();
}

fn the_status_is_that_of_the_program() {
    let output = trace("", "status");
    assert_eq!(output.status.code(), Some(7));
    let output = trace("", "nothing");
    assert_eq!(output.status.code(), Some(0));
    let err = text(&output.stderr);
    assert!(err.contains("no queue was made") && err.contains("hint: "), "{err}");
}

fn bad_input_is_refused_with_advice() {
    let run = |line: &str| common::mlx5(&format!("trace {line}"));
    for line in
        ["", "0", "-5", "abc", "1 -- true", "--interval 5 1", "--queue x 1", "--errors --summary 1"]
    {
        run(line).refused();
    }
    // No process has the largest number that one can have, and more.
    let err = run("2147483647").failed();
    assert!(err.contains("there is no process 2147483647") && err.contains("hint: "), "{err}");
    let err = run("-- /nowhere/to/be/found").failed();
    assert!(err.contains("/nowhere/to/be/found: No such file"), "{err}");
    let err = run("-o /nowhere/trace 1").failed();
    assert!(err.contains("/nowhere/trace: "), "{err}");
}

fn output_goes_to_a_file() {
    let path = std::env::temp_dir().join(format!("mlx5-trace-{}.json", std::process::id()));
    let output = trace(&format!("--json -o {}", path.display()), "operations");
    let written = std::fs::read_to_string(&path).expect("a file");
    let _ = std::fs::remove_file(&path);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "");
    assert_eq!(requests(&objects(&written), "send").len(), 5);
}
