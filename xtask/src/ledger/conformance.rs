//! Our conformance suite over real calls of libc: it finds, opens, calls and maps the simulated
//! device as if it were a device of the kernel.

use std::path::Path;

use super::door::{DEVICE, Door, Link};
use super::reasons::{self, Unused};
use super::rows::{Outcome, Reason, Row};
use super::suites::{CONFORMANCE, CONFORMANCE_SHARED};
use crate::build::{self, Profile};
use crate::failure::Failure;
use crate::provider::Provider;

/// Time limit of the suite.
const SECONDS: u32 = 600;

/// Runs the suite on one link, both in its own process and on a shared machine.
pub(super) fn run(door: &Door, link: Link, unused: &mut Unused) -> Result<Vec<Row>, Failure> {
    let program = build::program("mlx5-conformance", Profile::Release)?;
    // Two ports, so that no case lacks the second; raw packets, where the link is Ethernet.
    let port = link.settings.trim_start_matches("link=");
    let settings = format!("{}+{port},raw=on", link.settings);
    let mut rows = one(door, CONFORMANCE, link, &settings, &program, unused)?;
    let mut host = door.machine(&settings, link)?;
    rows.extend(one(door, CONFORMANCE_SHARED, link, &host.settings(), &program, unused)?);
    let status = host.wait()?;
    let trouble = (!status.success()).then(|| format!("the machine ended with {status}"));
    rows.push(Row {
        suite: CONFORMANCE_SHARED,
        test: super::rows::MACHINE.to_owned(),
        link: link.name,
        provider: Provider::Rust,
        outcome: if trouble.is_none() { Outcome::Pass } else { Outcome::Fail },
        reason: trouble.map(Reason::Unexplained),
    });
    Ok(rows)
}

fn one(
    door: &Door,
    suite: &'static str,
    link: Link,
    settings: &str,
    program: &Path,
    unused: &mut Unused,
) -> Result<Vec<Row>, Failure> {
    let arguments = ["--device", DEVICE];
    let ended = door.start(settings, Path::new("/"), SECONDS, program, &arguments)?.wait()?;
    let found = results(&ended.stdout);
    if found.is_empty() {
        let what = format!("no results: {}", ended.trouble.unwrap_or(ended.stderr));
        return Err(Failure::Output { program: "mlx5-conformance".to_owned(), what });
    }
    let rows = found.into_iter().map(|(test, outcome, said)| Row {
        suite,
        test: test.to_owned(),
        link: link.name,
        provider: Provider::Rust,
        outcome,
        reason: reasons::explain(test, outcome, said, unused),
    });
    let mut rows: Vec<Row> = rows.collect();
    // The host of a shared machine reports the violations there.
    if suite == CONFORMANCE {
        rows.push(Row::of_violations(suite, None, link.name, Provider::Rust, &ended.violations));
    }
    Ok(rows)
}

/// Each test of the output, its outcome, and the reason if the output gives one.
fn results(output: &str) -> Vec<(&str, Outcome, &str)> {
    let line = |line| {
        let (test, end) = str::strip_prefix(line, "test ")?.split_once(" ... ")?;
        let (word, said) = end.split_once(' ').unwrap_or((end, ""));
        let outcome = match word {
            "ok" => Outcome::Pass,
            "FAILED" => Outcome::Fail,
            "ignored" => Outcome::Skip,
            _ => return None,
        };
        Some((test.trim_end(), outcome, said.trim_matches(['(', ')'])))
    };
    output.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read_from_what_the_suite_says() {
        let output = "running 3 tests\n\
                      test paths::a_path_is     ... ok\n\
                      test rings::wrap          ... ignored (the port is InfiniBand)\n\
                      test rings::other         ... FAILED\n\
                      test result: FAILED. 1 passed; 1 failed; 1 ignored\n";
        assert_eq!(
            results(output),
            [
                ("paths::a_path_is", Outcome::Pass, ""),
                ("rings::wrap", Outcome::Skip, "the port is InfiniBand"),
                ("rings::other", Outcome::Fail, ""),
            ]
        );
    }
}
