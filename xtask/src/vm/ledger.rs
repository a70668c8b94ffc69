//! Records the machines' results: rows of docs/conformance.json, and a part of docs/CONFORMANCE.md.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::guest::Link;
use super::network::{FILTERED, HUNDRED_MEGABYTES, STRIDING};
use super::plan;
use super::plan::PYVERBS;
use crate::debian::cache::in_file;
use crate::failure::Failure;
use crate::ledger::{documents, place, wrapped};
use crate::provider::Provider;

/// Rung of the real kernel driver; see docs/TESTING.md.
pub(super) const RUNG: u64 = 3;

const BEGIN: &str = "<!-- begin: cargo xtask vm -->\n";
const END: &str = "<!-- end: cargo xtask vm -->\n";

/// Extent of a machine's run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// All steps: rows that are not in the new results are removed.
    Whole,
    /// Some steps: the rows of others stay.
    Some,
}

/// Writes both documents. The rows of machines that did not run stay.
pub(super) fn write(rows: &[Value], extent: Extent) -> Result<(), Failure> {
    let [json, _] = documents();
    let all = merged(read(&json)?, rows, extent);
    crate::ledger::write_rows(&json, &all)?;
    write_page(all)
}

/// Writes the page from the ledger.
pub(crate) fn document() -> Result<(), Failure> {
    let [json, _] = documents();
    write_page(read(&json)?)
}

fn write_page(all: Vec<Value>) -> Result<(), Failure> {
    let [_, markdown] = documents();
    let ours: Vec<Value> = all.into_iter().filter(|row| row["rung"] == RUNG).collect();
    let document = fs::read_to_string(&markdown).map_err(in_file(&markdown))?;
    let document = place(&document, BEGIN, &report(&ours), END);
    fs::write(&markdown, document).map_err(in_file(&markdown))
}

/// The kept rows, with new rows in place of the old ones: of all rows of the machines that ran, or
/// only of the same rows, depending on `extent`.
fn merged(mut kept: Vec<Value>, rows: &[Value], extent: Extent) -> Vec<Value> {
    let machines: BTreeSet<_> = rows.iter().map(machine).collect();
    let tests: BTreeSet<_> = rows.iter().map(key).collect();
    kept.retain(|row| {
        row["rung"] != RUNG
            || match extent {
                Extent::Whole => !machines.contains(&machine(row)),
                Extent::Some => !tests.contains(&key(row)),
            }
    });
    kept.extend(rows.iter().cloned());
    kept
}

/// Kernel and link of the machine that a row belongs to.
fn machine(row: &Value) -> [String; 2] {
    ["kernel", "link"].map(|name| text(row, name))
}

/// Identifies a row among those of all machines.
fn key(row: &Value) -> [String; 5] {
    ["kernel", "link", "suite", "test", "provider"].map(|name| text(row, name))
}

/// Rows that pass in the ledger and not in `rows`, for the machines in `rows`. Only with `all` does
/// this include the step that runs only then.
pub(super) fn lost(rows: &[Value], all: bool) -> Result<Vec<String>, Failure> {
    let [json, _] = documents();
    let mut earlier = read(&json)?;
    earlier.retain(|row| all || !text(row, "test").ends_with(HUNDRED_MEGABYTES));
    Ok(regressed_since(&earlier, rows))
}

fn regressed_since(earlier: &[Value], rows: &[Value]) -> Vec<String> {
    let run: BTreeSet<_> = rows.iter().map(machine).collect();
    let passed = |row: &&Value| row["result"] == "pass";
    let now: BTreeSet<_> = rows.iter().filter(passed).map(key).collect();
    earlier
        .iter()
        .filter(|row| row["rung"] == RUNG && run.contains(&machine(row)))
        .filter(passed)
        .map(key)
        .filter(|key| !now.contains(key))
        .map(|key| format!("{} no longer passes", key.join(" ")))
        .collect()
}

fn read(path: &Path) -> Result<Vec<Value>, Failure> {
    let content = fs::read_to_string(path).map_err(in_file(path))?;
    serde_json::from_str(&content)
        .map_err(|error| Failure::File { path: path.to_owned(), error: error.into() })
}

fn text(row: &Value, name: &str) -> String {
    row[name].as_str().unwrap_or_default().to_owned()
}

fn report(rows: &[Value]) -> String {
    let mut report = String::from("## The real kernel driver on the simulated device\n\n");
    report.push_str(&wrapped(
        "Debian kernels with their own mlx5_core and mlx5_ib in a virtual machine, on two simulated \
         devices that a process serves as PCI functions (rung 3 of TESTING.md). Each machine runs the \
         conformance suite (the binary for hardware) on one device and on two, the `mlx5` command, \
         programs of rdma-core alone and against ours, rdma-core's tests (`pyverbs`, of the Debian \
         release of the kernel), and processes that are killed or lose the driver. With Ethernet, another \
         machine has the kernel's network interfaces receive into buffers that frames share (strides), and a third \
         one frames for the addresses alone that the driver has listed (a virtual function). \
         `cargo xtask vm --all --write` writes this section; `cargo xtask vm` runs a selection of the machines, and \
         fails if a step fails, if the kernel log has a complaint, or if a case that passes here does \
         not pass.",
        "",
    ));
    report.push_str(&format!("\n{}\n", wrapped(&releases(rows), "")));
    let machines: BTreeSet<(String, String)> =
        rows.iter().map(|row| (text(row, "kernel"), text(row, "link"))).collect();
    // Programs of other projects run over C's libibverbs, some over ours too.
    let what = |row: &Value| {
        let (suite, ours) = (text(row, "suite"), row["provider"] == Provider::Rust.name());
        let others = suite == PYVERBS || suite == "machine";
        if ours && others {
            format!("{suite}, over our libibverbs")
        } else if text(row, "test").starts_with(STRIDING) {
            format!("{suite}, with strides")
        } else if text(row, "test").starts_with(FILTERED) {
            format!("{suite}, as a virtual function")
        } else {
            suite
        }
    };
    let suites: BTreeSet<String> = rows.iter().map(what).collect();
    report.push_str("| kernel | port | what | pass | fail | skip |\n|---|---|---|--:|--:|--:|\n");
    for (kernel, link) in &machines {
        for suite in &suites {
            let of = |row: &&Value| {
                row["kernel"] == **kernel && row["link"] == **link && what(row) == *suite
            };
            let count =
                |result: &str| rows.iter().filter(of).filter(|r| r["result"] == result).count();
            let [pass, fail, skip] = ["pass", "fail", "skip"].map(count);
            if pass + fail + skip > 0 {
                let counts = format!("{pass} | {fail} | {skip}");
                report.push_str(&format!("| {kernel} | {link} | {suite} | {counts} |\n"));
            }
        }
    }
    for (title, result) in [("Failures", "fail"), ("Skips", "skip")] {
        report.push_str(&format!("\n### {title} in a machine\n\n{}", by_reason(rows, result)));
    }
    report.push_str("\n### rdma-core's tests that are left out in a machine\n\n");
    for (module, why) in plan::left_out_everywhere() {
        report.push_str(&wrapped(&format!("* `{module}` {why}."), "  "));
    }
    for link in Link::ALL {
        for (module, why) in plan::left_out_on(link) {
            report.push_str(&wrapped(&format!("* On {link}: `{module}` {why}."), "  "));
        }
    }
    report
}

/// Releases of the kernels, as `uname -r` prints them.
fn releases(rows: &[Value]) -> String {
    let known = rows.iter().filter(|row| !text(row, "release").is_empty());
    let known: BTreeSet<_> = known.map(|row| (text(row, "kernel"), text(row, "release"))).collect();
    let each: Vec<String> =
        known.iter().map(|(kernel, release)| format!("{kernel} is {release}")).collect();
    format!("The kernels, as they call themselves: {}.", each.join(", "))
}

/// Number of tests with this result, by reason.
fn by_reason(rows: &[Value], result: &str) -> String {
    let mut reasons: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row["result"] == result) {
        reasons.entry(text(row, "reason")).or_default().insert(text(row, "test"));
    }
    if reasons.is_empty() {
        return "None.\n".to_owned();
    }
    let mut lines = String::from("| tests | why | for one |\n|--:|---|---|\n");
    for (reason, tests) in &reasons {
        let first = tests.first().map(String::as_str).unwrap_or_default();
        let reason = reason.replace('|', "\\|").replace('\n', " ");
        lines.push_str(&format!("| {} | {reason} | `{first}` |\n", tests.len()));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(kernel: &str, test: &str, result: &str) -> Value {
        json!({"kernel": kernel, "link": "ib", "suite": "s", "test": test, "rung": RUNG,
               "provider": "c", "result": result, "reason": ""})
    }

    #[test]
    fn pass_is_lost_after_failure_or_skip_in_the_same_machine() {
        let earlier = [row("6.1", "a", "pass"), row("6.1", "b", "pass"), row("6.12", "c", "pass")];
        let now = [row("6.1", "a", "skip"), row("6.1", "b", "pass")];
        assert_eq!(regressed_since(&earlier, &now), ["6.1 ib s a c no longer passes"]);
    }

    #[test]
    fn machines_that_were_not_run_stay_in_the_ledger() {
        let kept = vec![row("6.1", "a", "pass"), row("6.12", "a", "pass")];
        let all = merged(kept, &[row("6.1", "b", "fail")], Extent::Whole);
        let tests: Vec<_> =
            all.iter().map(|row| (text(row, "kernel"), text(row, "test"))).collect();
        assert_eq!(tests, [("6.12".into(), "a".into()), ("6.1".into(), "b".into())]);
    }

    #[test]
    fn steps_that_were_not_run_stay_where_some_were() {
        let kept = vec![row("6.1", "a", "pass"), row("6.1", "b", "pass"), row("6.12", "b", "pass")];
        let now = [row("6.1", "b", "fail"), row("6.1", "c", "pass")];
        let all = merged(kept.clone(), &now, Extent::Some);
        assert_eq!(all, [&[kept[0].clone(), kept[2].clone()], &now[..]].concat());
    }

    #[test]
    fn report_counts_by_machine_and_gives_reasons() {
        let mut skipped = row("6.1", "a", "skip");
        skipped["reason"] = json!("one | port");
        let mut newest = row("newest", "b", "pass");
        newest["release"] = json!("7.3.4-cloud");
        let mut strides = row("6.1", "striding-net-ping", "pass");
        strides["suite"] = json!("machine");
        let mut filtered = row("6.1", "filtered-net-ping", "pass");
        filtered["suite"] = json!("machine");
        let report = report(&[skipped, row("6.1", "b", "pass"), newest, strides, filtered]);
        assert!(report.contains("| 6.1 | ib | s | 1 | 0 | 1 |"), "{report}");
        assert!(report.contains("| 6.1 | ib | machine, with strides | 1 | 0 | 0 |"), "{report}");
        assert!(
            report.contains("| 6.1 | ib | machine, as a virtual function | 1 | 0 | 0 |"),
            "{report}"
        );
        assert!(report.contains("| 1 | one \\| port | `a` |"), "{report}");
        assert!(report.contains("newest is 7.3.4-cloud."), "{report}");
        assert!(report.contains("### Failures in a machine\n\nNone.\n"), "{report}");
    }
}
