//! `mlx5 perf` on the simulated device.

mod common;

use common::mlx5;
use serde_json::Value;
use std::path::PathBuf;

/// A file that goes away with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let name = format!("mlx5-perf-{}-{name}", std::process::id());
        Self(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn json(line: &str) -> Value {
    let text = mlx5(&format!("perf --sim --json - {line}")).done();
    serde_json::from_str(&text).expect("JSON and nothing else")
}

#[test]
fn results_are_numbers_that_belong_together() {
    let all = json("--sizes 8..64 -n 50 --messages 200");
    assert_eq!(all["operation"], "send");
    assert_eq!(all["transport"], "rc");
    assert_eq!(all["loopback"], true);
    assert_eq!(all["device"]["simulated"], true);
    assert_eq!(all["device"]["part"], "ConnectX-7");
    let results = all["results"].as_array().expect("a list");
    let sizes: Vec<_> = results.iter().filter_map(|result| result["size"].as_u64()).collect();
    assert_eq!(sizes, [8, 16, 32, 64]);
    for result in results {
        let latency = &result["latency_ns"];
        assert_eq!(latency["samples"], 50);
        let order = ["min", "p50", "p90", "p99", "p99_9", "max"];
        let times: Vec<u64> = order.iter().map(|at| latency[at].as_u64().expect(at)).collect();
        assert!(times[0] > 0 && times.is_sorted(), "{times:?}");
        let mean = latency["mean"].as_f64().expect("a mean");
        assert!(times[0] as f64 <= mean && mean <= times[5] as f64);
        let rate = &result["rate"];
        let number = |name: &str| rate[name].as_f64().expect("a number");
        assert_eq!((number("messages"), number("lost")), (200.0, 0.0));
        let per_second = number("messages_per_second");
        assert!((per_second * number("seconds") / 200.0 - 1.0).abs() < 1e-6);
        let bits = per_second * 8.0 * result["size"].as_f64().expect("a size");
        assert!((number("gbit_per_second") * 1e9 / bits - 1.0).abs() < 1e-6);
    }
}

#[test]
fn every_operation_is_measured_on_every_transport_that_has_it() {
    for link in ["ib", "roce"] {
        for (op, transports) in
            [("send", &["rc", "uc", "ud"][..]), ("write", &["rc", "uc"]), ("read", &["rc"])]
        {
            for transport in transports {
                let line = format!(
                    "--sim-link {link} --op {op} -t {transport} --sizes 1,700 -n 10 --messages 100"
                );
                let all = json(&line);
                assert_eq!(all["results"].as_array().map(Vec::len), Some(2), "{line}");
                for result in all["results"].as_array().expect("a list") {
                    assert_eq!(result["latency_ns"]["samples"], 10, "{line}");
                    assert_eq!(result["rate"]["messages"], 100, "{line}");
                }
            }
        }
    }
}

#[test]
fn requests_may_be_inline_in_batches_and_rarely_signaled() {
    let all = json(
        "--op write --sizes 0,8,64,65 --inline 64 --depth 32 --signal-every 32 --batch 8 \
         -n 10 --messages 1000",
    );
    assert_eq!(all["inline"], 64);
    assert_eq!(all["batch"], 8);
    assert_eq!(all["signal_every"], 32);
    assert_eq!(all["results"].as_array().map(Vec::len), Some(4));
}

#[test]
fn one_thing_can_be_measured_alone() {
    let latency = json("--only latency --sizes 8 -n 10");
    assert_eq!(latency["results"][0]["rate"], Value::Null);
    let rate = json("--only rate --sizes 8 --messages 100");
    assert_eq!(rate["results"][0]["latency_ns"], Value::Null);
    let table = mlx5("perf --sim --only rate --sizes 8 --messages 100").done();
    assert!(table.contains("Mmsg/s") && !table.contains("50 %"), "{table}");
}

#[test]
fn the_table_has_a_row_for_each_size() {
    let text = mlx5("perf --sim --sizes 8,4k -n 10").done();
    assert!(text.starts_with("RC send on mlx5_0 port 1: simulated ConnectX-7"), "{text}");
    let rows: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("bytes")).collect();
    assert_eq!(rows.len(), 3, "{text}");
    assert!(rows[1].trim_start().starts_with("8 ") && rows[2].trim_start().starts_with("4k "));
    let columns = |row: &str| row.split("  ").filter(|cell| !cell.trim().is_empty()).count();
    assert!(rows.iter().all(|row| columns(row) == columns(rows[0])), "{text}");
}

#[test]
fn results_are_written_to_files_beside_the_table() {
    let (file, plot) = (Scratch::new("results.json"), Scratch::new("plot.svg"));
    let line = format!(
        "perf --sim --sizes 8..32 -n 10 --json {} --svg {}",
        file.0.display(),
        plot.0.display()
    );
    assert!(mlx5(&line).done().contains("bytes"));
    let text = std::fs::read_to_string(&file.0).expect("JSON");
    let all: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(all["results"].as_array().map(Vec::len), Some(3));
    let svg = std::fs::read_to_string(&plot.0).expect("SVG");
    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
    // Three sizes on each of four lines.
    assert_eq!(svg.matches("<circle").count(), 12);
    assert!(svg.contains("Latency of RC send") && !svg.contains("NaN"));
}

#[test]
fn a_file_that_cannot_be_written_is_named() {
    let text = mlx5("perf --sim --sizes 8 -n 10 --svg /nonexistent/plot.svg").failed();
    assert!(text.contains("cannot write /nonexistent/plot.svg"), "{text}");
}
