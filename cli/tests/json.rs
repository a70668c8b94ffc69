//! JSON: one way of asking for it, and one key in all of it.

mod common;

use common::{Run, mlx5, mlx5_with_input};
use serde_json::Value;

fn json(run: Run) -> Value {
    serde_json::from_str(&run.done()).expect("JSON and nothing else")
}

/// A command that needs no device must not pass for one that has found one.
#[test]
fn json_of_each_command_says_whether_its_device_is_simulated() {
    let file = std::env::temp_dir().join(format!("mlx5-json-{}.pcapng", std::process::id()));
    let capture = format!("capture --json --sim -n 3 -w {}", file.display());
    for line in [
        "list --json --sim",
        "info --json --sim",
        "doctor --json --sim",
        "pingpong --json --sim -n 3",
        "perf --json --sim --sizes 8 -n 3 --messages 10",
        "cancel --json --sim",
        "dump --json --live --sim",
        &capture,
    ] {
        let document = json(mlx5(line));
        let documents = document.as_array().cloned().unwrap_or_else(|| vec![document]);
        assert!(!documents.is_empty(), "{line}");
        for one in documents {
            assert_eq!(one["simulated"], true, "{line}: {one}");
        }
    }
    std::fs::remove_file(&file).expect("the capture");
}

#[test]
fn a_ping_pong_writes_for_programs_what_it_writes_for_people() {
    let all = json(mlx5("pingpong --json --sim --sim-link roce -t ud -n 7 --size 64"));
    assert_eq!((&all["messages"], &all["size"]), (&7.into(), &64.into()));
    assert_eq!((&all["transport"], &all["device"]), (&"ud".into(), &"mlx5_0".into()));
    let times = &all["round_trip_ns"];
    assert!(times["min"].as_u64() <= times["max"].as_u64() && times["max"].as_u64() > Some(0));
    assert!(all["local"].is_string() && all["remote"].is_string());
    let refused = mlx5("pingpong --json --sim --listen 127.0.0.1:0").refused();
    assert!(refused.contains("the side that connects"), "{refused}");
}

/// JSON is written also where something failed.
#[test]
fn a_check_that_failed_is_in_the_json_of_the_doctor() {
    let findings = |all: &Value| -> Vec<Value> {
        let sections = all["sections"].as_array().expect("sections").clone();
        sections.iter().flat_map(|one| one["findings"].as_array().cloned().unwrap()).collect()
    };
    let all = json(mlx5("doctor --json --sim"));
    assert_eq!((&all["works"], &all["failures"]), (&true.into(), &0.into()));
    assert!(findings(&all).iter().any(|one| one["level"] == "ok"), "{all}");

    let run = mlx5("doctor --json --sim --port 7");
    assert_eq!(run.code, Some(1), "{}", run.err);
    let all: Value = serde_json::from_str(&run.out).expect("JSON");
    assert_eq!((&all["works"], &all["failures"]), (&false.into(), &1.into()));
    let failed = findings(&all).into_iter().find(|one| one["level"] == "failure");
    let failed = failed.expect("a failure");
    assert!(failed["text"].as_str().is_some_and(|text| text.contains("port 7")), "{failed}");
    assert!(failed["remedy"].is_string(), "{failed}");
}

/// A program that reads the JSON learns of this failure, too.
#[test]
fn a_device_that_is_not_found_is_in_the_json_of_the_doctor() {
    for (line, code, simulated, cause) in [
        ("-d mlx5_77", 1, false, "there is no mlx5 device named mlx5_77"),
        ("--sim -d mlx5_77", 1, true, "there is no mlx5 device named mlx5_77"),
        ("--sim-model cx6dx --sim-link ib", 2, true, "has no InfiniBand port"),
    ] {
        let run = mlx5(&format!("doctor --json {line}"));
        assert_eq!(run.code, Some(code), "{line}: {}", run.err);
        assert!(run.err.contains(cause), "{line}: {}", run.err);
        let all: Value = serde_json::from_str(&run.out).unwrap_or_else(|e| panic!("{line}: {e}"));
        assert_eq!((&all["works"], &all["failures"]), (&false.into(), &1.into()), "{line}");
        assert_eq!(all["simulated"], simulated, "{line}");
        let sections = all["sections"].as_array().expect("sections");
        let findings = sections.last().and_then(|one| one["findings"].as_array());
        let last = findings.and_then(|all| all.last()).expect("a finding");
        assert_eq!(last["level"], "failure", "{line}");
        assert!(last["text"].as_str().is_some_and(|text| text.contains(cause)), "{last}");
        assert!(last["remedy"].is_string(), "{last}");
        // People read the same.
        let text = mlx5(&format!("doctor {line}")).out;
        assert!(text.contains("  FAIL  ") && text.contains(cause), "{text}");
        assert!(text.contains("\nverdict: "), "{text}");
    }
}

#[test]
fn cancelled_requests_are_in_the_json() {
    let all = json(mlx5("cancel --json --sim --transfers 4 --corrupt 2,3 --interleaved"));
    let drains = all["drains"].as_array().expect("a list");
    assert_eq!(drains.len(), 2, "each drains the queue");
    assert_eq!((&drains[0]["cancelled"][0], &drains[0]["posted"][0]), (&102.into(), &202.into()));
    assert_eq!(drains[1]["signature_errors"][0]["transfer"], 3);
    let ring = drains[0]["ring_after"].as_array().expect("a ring");
    assert!(ring.iter().any(|one| one["state"] == "cancelled" && one["wr_id"] == 102), "{all}");
    let completions = all["completions"].as_array().expect("a list");
    let cancelled = completions.iter().filter(|one| one["cancelled"] == true).count();
    assert_eq!(cancelled, 2, "{all}");
    assert_eq!(all["responses"].as_array().map(Vec::len), Some(4));
}

#[test]
fn decoded_bytes_have_their_fields_in_the_json() {
    let bytes = "0000050a 0001a202 00000008 00000000 00000040 00001234 00007e00 00002000";
    let all = json(mlx5(&format!("dump --json {bytes}")));
    let item = &all["items"][0];
    assert_eq!((&item["at"], &item["bytes"]), (&0.into(), &32.into()));
    assert!(item["title"].as_str().is_some_and(|title| title.contains("SEND")), "{item}");
    let fields = item["fields"].as_array().expect("fields");
    assert!(fields.iter().any(|one| one["name"] == "opcode" && one["value"] == "0x0a"), "{item}");
    assert_eq!(all.get("simulated"), None, "bytes are of no device");
    let zeros = json(mlx5_with_input("dump --json --kind wqe", &"00".repeat(64)));
    assert_eq!((&zeros["items"][0]["bytes"], zeros["items"][0].get("title")), (&64.into(), None));
}

#[test]
fn a_capture_says_how_many_packets_are_in_the_file() {
    let file = std::env::temp_dir().join(format!("mlx5-count-{}.pcapng", std::process::id()));
    let all = json(mlx5(&format!("capture --json --sim -n 4 -w {}", file.display())));
    std::fs::remove_file(&file).expect("the capture");
    assert_eq!((&all["packets"], &all["dropped"]), (&4.into(), &0.into()));
    assert_eq!(all["file"], file.to_str().expect("text"));
    mlx5("capture --json --sim -n 4").refused();
    mlx5("capture --json --sim -n 4 -w -").refused();
}
