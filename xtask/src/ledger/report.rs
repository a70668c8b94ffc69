//! The ledger for readers: a part of docs/CONFORMANCE.md.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use super::door::LINKS;
use super::rows::{Ledger, Outcome, Reason, Row};
use super::{pairs, pyverbs};
use crate::failure::Failure;

const BEGIN: &str = "<!-- begin pyverbs: written by `cargo xtask ledger` -->\n";
const END: &str = "<!-- end pyverbs -->\n";

/// Puts the report in its place in the document, or at its end.
pub(super) fn write(path: &Path, ledger: &Ledger, peers: &[String]) -> Result<(), Failure> {
    let failed = |error| Failure::File { path: path.to_owned(), error };
    let document = match fs::read_to_string(path) {
        Ok(document) => document,
        Err(error) if error.kind() == ErrorKind::NotFound => "# Conformance\n".to_owned(),
        Err(error) => return Err(failed(error)),
    };
    fs::write(path, place(&document, BEGIN, &report(ledger, peers), END)).map_err(failed)
}

/// A document with a report in its place, between `begin` and `end`, or at its end.
pub(crate) fn place(document: &str, begin: &str, report: &str, end: &str) -> String {
    let place = document.split_once(begin).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(end)?;
        Some((before, after))
    });
    match place {
        Some((before, after)) => format!("{before}{begin}{report}{end}{after}"),
        None => format!("{}\n\n{begin}{report}{end}", document.trim_end()),
    }
}

fn report(ledger: &Ledger, peers: &[String]) -> String {
    let mut text = format!(
        "## rdma-core's tests on the simulated device\n\n\
         Unmodified programs of Debian's packages ({}), with the simulator preloaded (rung 2 of \
         TESTING.md), every module in a process of its own, once with an InfiniBand port and once \
         with a RoCE port. They drive the C provider: what they show is that the model is an mlx5 \
         to others. In the suites `pingpong`, `perftest` and `interop` two processes send to each \
         other on one machine (in `interop` one of them, or both, is our `mlx5`). Each test is a row of `conformance.json`. `cargo xtask ledger` writes both; \
         `cargo xtask ledger --check` fails if a test that passes here does not pass any more.\n\n",
        peers.join(", ")
    );
    text.push_str(&counts(ledger.rows()));
    text.push_str("\n### Failures\n\n");
    text.push_str(&by_reason(ledger.rows(), |outcome| {
        matches!(outcome, Outcome::Fail | Outcome::Error)
    }));
    text.push_str("\n### Skips\n\n");
    text.push_str(&by_reason(ledger.rows(), |outcome| outcome == Outcome::Skip));
    text.push_str("\n### Left out\n\n");
    for (module, why) in pyverbs::LEFT_OUT.iter().chain(&pairs::LEFT_OUT) {
        text.push_str(&format!("* `{module}` {why}.\n"));
    }
    text
}

/// A test's module; the suite for what has none.
fn module(row: &Row) -> &str {
    match row.suite {
        "pyverbs" => row.test.split('.').next().unwrap_or(&row.test),
        suite => suite,
    }
}

fn counts(rows: &[Row]) -> String {
    let mut text = "| module |".to_owned();
    for link in LINKS {
        text.push_str(&format!(" {0}: pass | {0}: fail | {0}: skip |", link.name));
    }
    text.push_str(&format!("\n|---|{}\n", "--:|".repeat(3 * LINKS.len())));
    let line = |name: &str, of: &dyn Fn(&Row) -> bool| {
        let mut line = format!("| {name} |");
        for link in LINKS {
            let count = |is: &dyn Fn(Outcome) -> bool| {
                let here = rows.iter().filter(|row| row.link == link.name && of(row));
                here.filter(|row| is(row.outcome)).count()
            };
            let fails = |outcome| matches!(outcome, Outcome::Fail | Outcome::Error);
            let passes = count(&|outcome| outcome == Outcome::Pass);
            let skips = count(&|outcome| outcome == Outcome::Skip);
            line.push_str(&format!(" {passes} | {} | {skips} |", count(&fails)));
        }
        line + "\n"
    };
    let modules: BTreeSet<&str> = rows.iter().map(module).collect();
    for name in modules {
        text.push_str(&line(name, &|row| module(row) == name));
    }
    text.push_str(&line("**all**", &|_| true));
    text
}

/// Tests by the reason for their outcome, those of most tests first.
fn by_reason(rows: &[Row], of: impl Fn(Outcome) -> bool) -> String {
    let mut reasons: BTreeMap<&Reason, BTreeMap<&str, Vec<&str>>> = BTreeMap::new();
    for row in rows.iter().filter(|row| of(row.outcome)) {
        if let Some(reason) = &row.reason {
            reasons.entry(reason).or_default().entry(&row.test).or_default().push(row.link);
        }
    }
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, tests)| std::cmp::Reverse(tests.len()));
    if reasons.is_empty() {
        return "None.\n".to_owned();
    }
    let mut text = "| tests | why | what unlocks it | which |\n|--:|---|---|---|\n".to_owned();
    for (reason, tests) in reasons {
        let (why, until) = match reason {
            Reason::Known { why, until } => ((*why).to_owned(), *until),
            Reason::Unexplained(said) => (format!("**unexplained**: {}", escaped(said)), ""),
        };
        let which = tests_in_short(&tests);
        text.push_str(&format!("| {} | {why} | {until} | {which} |\n", tests.len()));
    }
    text
}

/// Tests by module, without their classes; the link where it is not every one.
fn tests_in_short(tests: &BTreeMap<&str, Vec<&str>>) -> String {
    let mut modules: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (test, links) in tests {
        let module = test.split('.').next().unwrap_or(test);
        let method = test.rsplit('.').next().unwrap_or(test);
        let method = method.strip_prefix("test_").unwrap_or(method);
        let only = if links.len() == LINKS.len() { String::new() } else { links.join(", ") };
        let only = if only.is_empty() { only } else { format!(" ({only})") };
        modules.entry(module).or_default().push(format!("{method}{only}"));
    }
    let modules: Vec<String> = modules
        .into_iter()
        .map(|(module, methods)| format!("`{module}`: {}", methods.join(", ")))
        .collect();
    modules.join("; ")
}

/// Text that does not end a table's cell.
fn escaped(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_replaces_itself_and_nothing_else() {
        let placed = |document: &str, report: &str| place(document, BEGIN, report, END);
        let first = placed("# Conformance\n\nothers\n", "one\n");
        assert_eq!(first, format!("# Conformance\n\nothers\n\n{BEGIN}one\n{END}"));
        let again = placed(&format!("{first}\nafter\n"), "two\n");
        assert_eq!(again, format!("# Conformance\n\nothers\n\n{BEGIN}two\n{END}\nafter\n"));
    }
}
