//! `mlx5 perf` on the simulated device.

mod common;

use common::{command, interrupted, mlx5};
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
    assert_eq!(all["simulated"], true);
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
fn atomics_are_measured_with_their_eight_bytes() {
    for op in ["fetch-add", "compare-swap"] {
        let all = json(&format!("--op {op} -n 10 --messages 100"));
        assert_eq!(all["operation"], op);
        let results = all["results"].as_array().expect("a list");
        assert_eq!(results.len(), 1);
        assert_eq!(results[0]["size"], 8);
        assert_eq!(results[0]["latency_ns"]["samples"], 10);
        assert_eq!(results[0]["rate"]["messages"], 100);
    }
    let table = mlx5("perf --sim --op fetch-add --sizes 8 -n 10").done();
    assert!(table.starts_with("RC fetch-add on mlx5_0"), "{table}");
    for line in ["--op fetch-add --sizes 16", "--op compare-swap --all"] {
        let text = mlx5(&format!("perf --sim {line}")).refused();
        assert!(text.contains("atomics operate on 8 bytes"), "{text}");
    }
    let text = mlx5("perf --op fetch-add -t uc").refused();
    assert!(text.contains("uc has no atomic fetch-add"), "{text}");
    let text = mlx5("perf --op compare-swap --inline 8").refused();
    assert!(text.contains("--op compare-swap has no inline data"), "{text}");
}

#[test]
fn messages_are_divided_among_queue_pairs_and_threads() {
    for (line, qps, threads) in [
        ("--qps 3", 3, 1),
        ("--threads 2", 2, 2),
        ("--qps 4 --threads 2 -t ud", 4, 2),
        ("--qps 4 --threads 2 --op fetch-add", 4, 2),
    ] {
        // Neither number is a multiple of them.
        let all = json(&format!("{line} --sizes 8 -n 11 --messages 1001"));
        assert_eq!((&all["queue_pairs"], &all["threads"]), (&qps.into(), &threads.into()));
        let result = &all["results"][0];
        assert_eq!(result["latency_ns"]["samples"], 11, "{line}");
        assert_eq!(result["rate"]["messages"], 1001, "{line}");
    }
    let table = mlx5("perf --sim --qps 4 --threads 2 --sizes 8 -n 10").done();
    assert!(table.contains("\n4 queue pairs in 2 threads\n"), "{table}");
    let text = mlx5("perf --qps 3 --threads 2").refused();
    assert!(text.contains("3 queue pairs cannot be divided among 2 threads"), "{text}");
    assert!(text.contains("--qps 4 can"), "{text}");
}

#[test]
fn a_rate_both_ways_is_the_sum_of_two() {
    for op in ["send", "write", "read", "fetch-add"] {
        let all = json(&format!("--op {op} --only rate --bidirectional --sizes 8 --messages 2000"));
        assert_eq!(all["bidirectional"], true);
        let rate = &all["results"][0]["rate"];
        assert_eq!((&rate["messages"], &rate["lost"]), (&2000.into(), &0.into()), "{op}");
        let per_second = |flow: &Value| {
            flow["messages"].as_f64().expect("messages") / flow["seconds"].as_f64().expect("time")
        };
        let sum = per_second(rate) + per_second(&rate["back"]);
        let reported = rate["messages_per_second"].as_f64().expect("a rate");
        assert!((reported / sum - 1.0).abs() < 1e-6, "{op}: {rate}");
        assert!(rate["back"]["messages"].as_u64() > Some(0), "{op}: {rate}");
    }
    assert_eq!(
        json("--only rate --sizes 8 --messages 10")["results"][0]["rate"]["back"],
        Value::Null
    );
    let text = mlx5("perf --bidirectional --only latency").refused();
    assert!(text.contains("--bidirectional applies to rates only"), "{text}");
}

#[test]
fn a_size_takes_the_time_that_is_given() {
    let all = json("--duration 0.05 --sizes 8,64 --qps 2");
    for result in all["results"].as_array().expect("a list") {
        let rate = &result["rate"];
        let seconds = rate["seconds"].as_f64().expect("a time");
        assert!(seconds >= 0.05 && rate["messages"].as_u64() > Some(0), "{rate}");
        assert!(result["latency_ns"]["samples"].as_u64() > Some(0));
    }
    let table = mlx5("perf --sim --duration 0.05 --sizes 8").done();
    assert!(table.contains("messages for 0.05 s, one by one"), "{table}");
    for (line, says) in [
        ("--duration 0", "from 0.001 to 86400 seconds"),
        ("--duration 5m", "not a time in seconds"),
        ("--duration 1 -n 5", "cannot be used with"),
        ("--duration 1 --messages 5", "cannot be used with"),
    ] {
        let text = mlx5(&format!("perf {line}")).refused();
        assert!(text.contains(says), "{line}: {text}");
    }
}

#[test]
fn spreadsheets_get_a_row_for_each_size() {
    let text = mlx5("perf --sim --sizes 8,64 -n 10 --messages 100 --csv -").done();
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), 3, "{text}");
    assert!(rows.iter().all(|row| row.len() == rows[0].len()), "{text}");
    let cell = |row: usize, name: &str| {
        rows[row][rows[0].iter().position(|head| *head == name).expect(name)]
    };
    for (row, size) in [(1, "8"), (2, "64")] {
        assert_eq!(cell(row, "bytes"), size);
        assert_eq!((cell(row, "transport"), cell(row, "operation")), ("rc", "send"));
        assert_eq!((cell(row, "samples"), cell(row, "messages")), ("10", "100"));
        assert!(cell(row, "p50_ns").parse::<u64>().is_ok_and(|time| time > 0));
        assert!(cell(row, "gbit_per_second").parse::<f64>().is_ok_and(|rate| rate > 0.0));
    }
    // Cells without a measurement are empty.
    let text = mlx5("perf --sim --sizes 8 --only rate --messages 100 --csv -").done();
    assert!(text.lines().nth(1).is_some_and(|row| row.contains(",,,,,,,,,100,0,")), "{text}");
    let file = Scratch::new("results.csv");
    let line = format!("perf --sim --sizes 8 -n 10 --csv {}", file.0.display());
    assert!(mlx5(&line).done().contains("bytes"));
    assert_eq!(std::fs::read_to_string(&file.0).expect("CSV").lines().count(), 2);
    let text = mlx5("perf --csv - --json -").refused();
    assert!(text.contains("cannot both be written to stdout"), "{text}");
    for others in ["--json", "--svg"] {
        let line = format!("perf --sim --csv {} {others} {}", file.0.display(), file.0.display());
        let text = mlx5(&line).refused();
        assert!(text.contains("would be written to the same file"), "{text}");
    }
    let text = mlx5("perf --sim --csv no-such-file --json ./no-such-file").refused();
    assert!(text.contains("would be written to the same file"), "{text}");
    let text = mlx5("perf --sim --sizes 8 -n 10 --csv /nonexistent/x.csv").failed();
    assert!(text.contains("cannot write /nonexistent/x.csv"), "{text}");
}

#[test]
fn latencies_are_shown_as_they_are_distributed() {
    let text = mlx5("perf --sim --sizes 8,64 -n 200 --only latency --histogram").done();
    for size in ["8", "64"] {
        let head = format!("{size} bytes: latency in µs, messages");
        let (_, bars) = text.split_once(&head).expect("a histogram");
        let rows = bars.lines().skip(1).take_while(|line| !line.is_empty());
        // FROM to TO COUNT BAR, or FROM and more COUNT.
        let count = |row: &str| row.split_whitespace().nth(3)?.parse::<u64>().ok();
        let all: u64 = rows.map(|row| count(row).unwrap_or_else(|| panic!("{row}"))).sum();
        assert_eq!(all, 200, "{text}");
    }
    let all = json("--sizes 8 -n 50 --histogram");
    let buckets = all["results"][0]["histogram_ns"].as_array().expect("buckets");
    let counts = buckets.iter().map(|bucket| bucket[1].as_u64().expect("a count"));
    assert_eq!(counts.sum::<u64>(), 50);
    assert!(buckets.is_sorted_by_key(|bucket| bucket[0].as_u64()), "{buckets:?}");
    assert_eq!(json("--sizes 8 -n 50")["results"][0].get("histogram_ns"), None);
    let text = mlx5("perf --only rate --histogram").refused();
    assert!(text.contains("no latencies to show"), "{text}");
}

#[test]
fn raw_packets_are_measured_as_frames_of_ethernet() {
    let all = json("--raw --sizes 60,1514 -n 10 --messages 100 --depth 16 --batch 8");
    assert_eq!((&all["transport"], &all["operation"]), (&"raw".into(), &"send".into()));
    assert_eq!(all["device"]["link"], "Ethernet");
    assert_eq!((&all["signal_every"], &all["device"]["mtu"]), (&Value::Null, &Value::Null));
    for end in ["local", "remote"] {
        let address = all[end].as_str().expect("an address");
        assert!(address.contains(" 192.0.2."), "{address}");
    }
    let results = all["results"].as_array().expect("a list");
    assert_eq!(results.len(), 2);
    for result in results {
        assert_eq!(result["latency_ns"]["samples"], 10);
        assert!(result["latency_ns"]["min"].as_u64() > Some(0));
        let rate = &result["rate"];
        assert_eq!((&rate["messages"], &rate["lost"]), (&100.into(), &0.into()));
    }
    let table = mlx5("perf --sim --raw -n 2 --messages 4").done();
    assert!(
        table.starts_with("raw packets on mlx5_0 port 1: simulated ConnectX-7, Ethernet"),
        "{table}"
    );
    // As the usual network interface takes them.
    assert_eq!(table.lines().last().and_then(|row| row.split_whitespace().next()), Some("1514"));
    let rows = mlx5("perf --sim --raw --sizes 64 -n 2 --messages 4 --csv -").done();
    assert!(rows.lines().nth(1).is_some_and(|row| row.starts_with("raw,send,64,")), "{rows}");
    // Frames that do not arrive are an error, without a rate.
    let text = mlx5("perf --sim --raw --sizes 1600 --only rate --timeout 1").failed();
    assert!(text.contains("no frames within 1 s") && text.contains("MTU"), "{text}");
}

#[test]
fn an_interrupt_leaves_what_was_measured() {
    for line in [
        "--op write",
        "--threads 2 --qps 4",
        "--only rate --bidirectional",
        "--only rate --csv -",
        "--json -",
        "--raw",
    ] {
        let sizes = if line == "--raw" { "80,64" } else { "8,64" };
        let words = format!("perf --sim --sizes {sizes} --duration 3600 {line}");
        let words: Vec<&str> = words.split_whitespace().collect();
        let run = interrupted(command(&words), "measuring");
        assert_eq!(run.code, Some(130), "{line}: {}{}", run.err, run.out);
        assert!(run.err.contains("mlx5: interrupted: 1 of 2 sizes"), "{line}: {}", run.err);
        assert!(run.err.contains(" were measured, the last in part\n"), "{line}: {}", run.err);
        if line == "--json -" {
            let document: Value = serde_json::from_str(&run.out).expect("JSON");
            assert_eq!(document["interrupted"], true);
            assert_eq!(document["results"][0]["whole"], false);
            continue;
        }
        let row = run.out.lines().last().expect("a row");
        let first = ["8 ", "rc,send,8,", "64 "];
        assert!(first.iter().any(|first| row.trim_start().starts_with(first)), "{}", run.out);
        assert!(!line.contains("--csv") || row.ends_with(",false"), "{row}");
    }
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
    for option in ["json", "csv", "svg"] {
        let line = format!("perf --sim --sizes 8 -n 10 --{option} /nonexistent/results");
        let text = mlx5(&line).failed();
        assert!(text.contains("cannot write /nonexistent/results"), "{text}");
        assert!(!text.contains("measuring"), "before there is anything to lose: {text}");
    }
}

/// No data can be written to /dev/full; the error comes after the measurement.
#[test]
fn a_full_disk_leaves_the_table() {
    let run = mlx5("perf --sim --sizes 8 -n 10 --json /dev/full --csv /dev/full");
    assert!(run.out.lines().any(|line| line.starts_with("bytes ")), "{}", run.out);
    assert!(run.failed().contains("cannot write /dev/full: No space left"));
}
