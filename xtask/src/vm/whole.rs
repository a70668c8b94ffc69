//! The whole run: all kernels and kinds of port, and one line of counts at the end.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::guest::{Guest, Link, Receives};
use super::ledger::{self, Extent, RUNG};
use super::machine::CAPTURE;
use super::parts::Parts;
use super::plan::{self, OVER_OURS, PYVERBS, PYVERBS_OVER_OURS, SUITES};
use super::python::Python;
use super::record::{Done, Event, Record};
use super::version::Version;
use super::{Arguments, OURS, Own, cache, capture, device, logs, network};
use crate::failure::Failure;
use crate::ledger::pyverbs::{self, TestResult};
use crate::provider::Provider;
use crate::verbs;

/// Number of devices in a machine: the two ends of a test may use one or two.
const HCAS: u32 = 2;

/// Number of lines to show of a failed step's output.
const SHOWN: usize = 30;

/// Runs the machines that the arguments select.
pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let begun = Instant::now();
    let machines = plan::machines(arguments.kernel, arguments.link, arguments.all);
    let hcas = arguments.hcas.unwrap_or(HCAS);
    if hcas < HCAS {
        return Err(Failure::Vm(format!("the whole run needs {HCAS} devices in a machine")));
    }
    let device = device(arguments)?;
    let ethernet = machines.iter().any(|(_, link)| *link == Link::Eth);
    // Machines with another receive configuration run none of our programs.
    let cyclic = arguments.receives.is_none_or(|receives| receives == Receives::Cyclic);
    let programs = OURS.iter().filter(|own| cyclic && (ethernet || !own.ethernet)).map(Own::build);
    let programs = programs.collect::<Result<Vec<_>, _>>()?;
    let verbs = cyclic && machines.iter().any(|(version, _)| plan::has_ours(*version));
    let verbs = verbs.then(verbs::build).transpose()?;
    let configured = |(_, link): &(Version, Link)| plan::receives(*link, arguments.receives).len();
    let planned: usize = machines.iter().map(configured).sum();
    let (mut rows, mut troubles, mut skipped) = (Vec::new(), Vec::new(), Vec::new());
    let mut ran = 0;
    for version in Version::ALL {
        let links: Vec<Link> =
            machines.iter().filter(|(of, _)| *of == version).map(|&(_, link)| link).collect();
        if links.is_empty() {
            continue;
        }
        let wanted = |name: &str| {
            arguments.only.is_empty() || arguments.only.iter().any(|word| name.contains(word))
        };
        let python = cyclic && (wanted(PYVERBS) || wanted(PYVERBS_OVER_OURS));
        let parts = match or_skip(version, fetch(version, python))? {
            Ok(parts) => parts,
            Err(said) => {
                eprintln!("vm: {said}");
                skipped.push(said);
                continue;
            }
        };
        let tests = parts.python.as_ref().map_or(Ok(Vec::new()), Python::test_modules)?;
        for (link, receives) in
            links.into_iter().flat_map(|link| plan::receives(link, arguments.receives))
        {
            let configuration = format!("{}{}", link.name(), receives.suffix());
            let name = format!("{} {configuration}", version.name());
            let folder = logs().join(format!("{}-{configuration}", version.name()));
            // A step that the arguments name runs even if it takes long.
            let all = arguments.all || !arguments.only.is_empty();
            let mut steps = match receives {
                Receives::Cyclic => plan::steps(version, link, &tests, all),
                Receives::Striding => network::striding_steps(all),
                Receives::Filtered => network::filtered_steps(),
            };
            steps.retain(|step| step.needed || wanted(&step.name));
            if steps.iter().all(|step| step.needed) {
                continue;
            }
            eprintln!("vm: {name}: Linux {}, {link}, {hcas} devices", parts.kernel.release);
            let guest = Guest {
                parts: &parts,
                link,
                receives,
                hcas,
                device: &device,
                programs: &programs,
                verbs: verbs.as_deref().filter(|_| plan::has_ours(version)),
                steps: &steps,
                shell: false,
                limit: Duration::from_secs(arguments.limit),
                folder: &folder,
            };
            let record = follow(&guest, &name)?;
            ran += 1;
            let expected: Vec<&str> = steps.iter().map(|step| step.name.as_str()).collect();
            let results = table(&record, &expected, version, link, &parts.kernel.release);
            let mut found = record.troubles();
            found.extend(unexplained(&record));
            if link == Link::Eth {
                let ran = |name: &str| record.steps.iter().any(|step| step.name.ends_with(name));
                let sent = capture::Sent {
                    all: ran(network::LAST_OF_TRAFFIC),
                    hundred_megabytes: ran(network::HUNDRED_MEGABYTES),
                };
                found.extend(capture::troubles(&folder.join(CAPTURE), sent)?);
            }
            troubles.extend(found.iter().map(|trouble| format!("{name}: {trouble}")));
            if !found.is_empty() {
                super::show(&record, &folder);
            }
            eprintln!("vm: {name}: {} in {} s", counts(&results), record.elapsed.as_secs());
            rows.extend(results);
        }
    }
    if ran == 0 {
        return Err(Failure::Vm(format!("no machine ran:\n  {}", skipped.join("\n  "))));
    }
    if arguments.write {
        let some = !arguments.only.is_empty() || arguments.receives.is_some();
        ledger::write(&rows, if some { Extent::Some } else { Extent::Whole })?;
    } else if arguments.only.is_empty() && arguments.receives.is_none() {
        troubles.extend(ledger::lost(&rows, arguments.all)?);
    }
    let others = troubles.len();
    troubles.extend(rows.iter().filter(|row| row["result"] == "fail").map(said));
    for said in &skipped {
        println!("vm: {said}");
    }
    println!(
        "vm: {ran} machines of {planned}: {}; {others} other troubles; {} s",
        counts(&rows),
        begun.elapsed().as_secs()
    );
    if troubles.is_empty() { Ok(()) } else { Err(Failure::Vm(troubles.join("\n  "))) }
}

/// Parts of a machine with this kernel. The cache is locked meanwhile.
fn fetch(version: Version, python: bool) -> Result<Parts, Failure> {
    let cache = cache()?;
    Parts::fetch(&cache, version)?.with_python(&cache, version, python)
}

/// The fetched parts, or the message for a kernel whose packages cannot be fetched, which is
/// skipped. All other errors are failures.
fn or_skip<T>(version: Version, fetched: Result<T, Failure>) -> Result<Result<T, String>, Failure> {
    match fetched {
        Err(failure @ Failure::Unfetched(_)) => {
            Ok(Err(format!("SKIP {}: {failure}", version.name())))
        }
        fetched => fetched.map(Ok),
    }
}

/// Runs a machine and prints each step as it ends.
fn follow(guest: &Guest<'_>, name: &str) -> Result<Record, Failure> {
    let mut began = Duration::ZERO;
    let mut lines: Vec<String> = Vec::new();
    guest.run(|event, now| match event {
        Event::Begin(_) => {
            began = now;
            lines.clear();
        }
        Event::Line(line) => lines.push(line.clone()),
        Event::End(step, status) => {
            let seconds = now.saturating_sub(began).as_secs_f64();
            let outcome = if *status == 0 { "ok" } else { "FAILED" };
            eprintln!("vm: {name}: {step:32} {outcome:6} {seconds:6.1} s");
            if *status != 0 {
                for line in &lines[lines.len().saturating_sub(SHOWN)..] {
                    eprintln!("    {line}");
                }
            }
        }
        Event::Over => {}
    })
}

/// Rows of the ledger for all steps of the run. An expected step that did not run is a failure.
fn table(
    record: &Record,
    expected: &[&str],
    version: Version,
    link: Link,
    release: &str,
) -> Vec<Value> {
    let row = |suite: &str, test: &str, provider: Provider, result: &str, reason: &str| {
        json!({
            "suite": suite, "test": test, "link": link.name(), "rung": RUNG,
            "provider": provider.name(), "kernel": version.name(), "result": result, "reason": reason,
        })
    };
    let mut rows = Vec::new();
    for &name in expected {
        let step = record.steps.iter().find(|step| step.name == name);
        if let Some((suite, _)) = SUITES.iter().find(|(_, step)| *step == name) {
            let cases = step.map(cases).unwrap_or_default();
            if cases.is_empty() {
                let why = "it has written no ledger";
                rows.push(row(suite, "the suite as a whole", Provider::Rust, "fail", why));
            }
            let text =
                |case: &Value, name: &str| case[name].as_str().unwrap_or_default().to_owned();
            rows.extend(cases.iter().map(|case| {
                let [test, result, reason] =
                    ["case", "result", "reason"].map(|name| text(case, name));
                row(suite, &test, Provider::Rust, &result, &reason)
            }));
            continue;
        }
        let (plain, provider) = match name.strip_prefix(OVER_OURS) {
            Some(plain) => (plain, Provider::Rust),
            None => (name, Provider::C),
        };
        if plain == PYVERBS {
            let results = test_results(step);
            rows.extend(
                results
                    .iter()
                    .map(|one| row(PYVERBS, &one.test, provider, one.result, &one.reason)),
            );
            continue;
        }
        let (result, reason) = match step {
            Some(step) if step.status == Some(0) => ("pass", String::new()),
            Some(step) => ("fail", step.to_string()),
            None => ("fail", "it was not begun".to_owned()),
        };
        let mut row = row("machine", plain, provider, result, &reason);
        row["release"] = json!(release);
        rows.push(row);
    }
    rows
}

/// Results of rdma-core's tests.
fn test_results(step: Option<&Done>) -> Vec<TestResult> {
    let (report, trouble) = match step {
        Some(step) if step.status == Some(0) => (step.output.as_str(), None),
        Some(step) => (step.output.as_str(), Some(step.to_string())),
        None => ("", Some("it was not begun".to_owned())),
    };
    pyverbs::test_results(report, trouble.as_deref())
}

/// Tests of rdma-core that were skipped for an unknown reason.
fn unexplained(record: &Record) -> Vec<String> {
    let pyverbs = |step: &&Done| [PYVERBS, PYVERBS_OVER_OURS].contains(&step.name.as_str());
    let results: Vec<TestResult> =
        record.steps.iter().filter(pyverbs).flat_map(|step| test_results(Some(step))).collect();
    let skipped = results.iter().filter(|one| one.unexplained && one.result == "skip");
    skipped.map(|one| format!("{PYVERBS} {}: no known reason: {}", one.test, one.reason)).collect()
}

/// Results of the cases that a step has printed as JSON.
fn cases(step: &Done) -> Vec<Value> {
    let whole: Value = serde_json::from_str(&step.output).unwrap_or_default();
    whole["cases"].as_array().cloned().unwrap_or_default()
}

/// Counts of the rows' results, in one line.
fn counts(rows: &[Value]) -> String {
    let count = |result: &str| rows.iter().filter(|row| row["result"] == result).count();
    format!("{} pass, {} fail, {} skip", count("pass"), count("fail"), count("skip"))
}

fn said(row: &Value) -> String {
    let text = |name: &str| row[name].as_str().unwrap_or_default();
    format!(
        "{} {}: {} {}: {}",
        text("kernel"),
        text("link"),
        text("suite"),
        text("test"),
        text("reason")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let done = |name: &str, status, output: &str| Done {
            name: name.into(),
            status,
            output: output.into(),
            time: Duration::ZERO,
        };
        let cases = r#"{"cases": [{"case": "a::b", "result": "skip", "reason": "one port"}]}"#;
        Record {
            steps: vec![
                done("load", Some(0), ""),
                done(SUITES[0].1, Some(0), cases),
                done("kill", Some(1), "no"),
            ],
            ..Record::default()
        }
    }

    #[test]
    fn test_that_did_not_run_has_failed() {
        let rows = table(&record(), &["load", "kill", "unload"], Version::V6_1, Link::Ib, "6.1.0");
        let results: Vec<&Value> = rows.iter().map(|row| &row["result"]).collect();
        assert_eq!(results, ["pass", "fail", "fail"]);
        assert_eq!(rows[2]["reason"], "it was not begun");
        assert_eq!(rows[2]["release"], "6.1.0");
    }

    #[test]
    fn cases_of_the_suite_are_rows_of_their_own() {
        let rows = table(&record(), &[SUITES[0].1], Version::V6_1, Link::Ib, "");
        assert_eq!((&rows[0]["test"], &rows[0]["result"]), (&json!("a::b"), &json!("skip")));
        assert_eq!(rows[0]["suite"], SUITES[0].0);
    }

    #[test]
    fn a_kernel_whose_packages_are_not_to_be_had_is_skipped_by_name_and_no_other_is() {
        let skip = or_skip::<()>(Version::V5_10, Err(Failure::Unfetched("404".into())));
        let said = skip.expect("no failure").expect_err("nothing was fetched");
        assert_eq!(said, "SKIP 5.10: packages cannot be fetched: 404");
        assert!(or_skip::<()>(Version::V5_10, Err(Failure::Vm("no vmlinuz".into()))).is_err());
        assert!(matches!(or_skip(Version::V5_10, Ok(())), Ok(Ok(()))));
    }

    #[test]
    fn a_suite_without_a_ledger_has_failed() {
        let rows = table(&Record::default(), &[SUITES[0].1], Version::V6_1, Link::Ib, "");
        assert_eq!(counts(&rows), "0 pass, 1 fail, 0 skip");
    }
}
