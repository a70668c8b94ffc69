//! Writes the ledger for readers, as a part of docs/CONFORMANCE.md.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use super::door::LINKS;
use super::rows::{Ledger, Outcome, Shown};
use super::{pairs, pyverbs, suites};
use crate::failure::Failure;
use crate::provider::Provider;

const BEGIN: &str = "<!-- begin pyverbs: written by `cargo xtask ledger` -->\n";
const END: &str = "<!-- end pyverbs -->\n";

/// Replaces the report in the document, or appends it.
pub(super) fn write(path: &Path, ledger: &Ledger, peers: &[String]) -> Result<(), Failure> {
    let failed = |error| Failure::File { path: path.to_owned(), error };
    let document = match fs::read_to_string(path) {
        Ok(document) => document,
        Err(error) if error.kind() == ErrorKind::NotFound => "# Conformance\n".to_owned(),
        Err(error) => return Err(failed(error)),
    };
    fs::write(path, place(&document, BEGIN, &report(ledger, peers), END)).map_err(failed)
}

/// The document with `report` in place of the text between `begin` and `end`, or appended.
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
    // Our own suites use no libibverbs; their rows stand with those of the programs over C's.
    let (ours, cs): (Vec<Shown>, Vec<Shown>) = ledger
        .shown()
        .into_iter()
        .partition(|row| row.provider == Provider::Rust.name() && !suites::is_own(&row.suite));
    let mut text = "## rdma-core's tests on the simulated device\n\n".to_owned();
    text.push_str(&wrapped(
        &format!(
            "Unmodified programs of Debian ({}), with the simulator preloaded (rung 2 of TESTING.md), \
             each module in its own process, once with an InfiniBand port and once with a RoCE port. \
             They use the C provider, so they show that the model is an mlx5 to others. In the suites \
             `pingpong`, `perftest` and `interop` two processes send to each other on one machine; in \
             `interop` one or both are our `mlx5`. Each test is a row of `conformance.json`. `cargo \
             xtask ledger` writes both files, `--document` this page only. `cargo xtask ledger \
             --check` fails if a test that passes here does not pass.",
            peers.join(", ")
        ),
        "",
    ));
    text.push('\n');
    text.push_str(&counts(&cs));
    text.push_str(&outcomes(&cs));
    text.push_str("\n### Left out\n\n");
    for (module, why) in pyverbs::LEFT_OUT.iter().chain(&pairs::LEFT_OUT) {
        text.push_str(&wrapped(&format!("* `{module}` {why}."), "  "));
    }
    text.push_str("\n## The same programs over our libibverbs\n\n");
    text.push_str(&wrapped(
        "The same programs and tests over the `libibverbs.so.1` and `libmlx5.so.1` of `cargo xtask \
         verbs`, which they find before C's (DROP_IN.md). So they judge this provider. In `pingpong` \
         either side also runs over C's libraries.",
        "",
    ));
    text.push('\n');
    text.push_str(&counts(&ours));
    text.push_str(&outcomes(&ours));
    text
}

/// Tests that have not passed, and why.
fn outcomes(rows: &[Shown]) -> String {
    let mut text = "\n### Failures\n\n".to_owned();
    text.push_str(&by_reason(rows, &[Outcome::Fail, Outcome::Error]));
    text.push_str("\n### Skips\n\n");
    text.push_str(&by_reason(rows, &[Outcome::Skip]));
    text
}

/// A paragraph in lines of at most a hundred characters; those after the first are indented.
pub(crate) fn wrapped(paragraph: &str, indent: &str) -> String {
    const WIDTH: usize = 100;
    let (mut text, mut column) = (String::new(), 0);
    for word in paragraph.split_whitespace() {
        let width = word.chars().count();
        if column != 0 && column + 1 + width > WIDTH {
            text.push('\n');
            text.push_str(indent);
            column = indent.len();
        } else if column != 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += width;
    }
    text.push('\n');
    text
}

/// The name under which the first table counts a test: its module, or the suite where it has none.
fn module(row: &Shown) -> &str {
    match row.suite.as_str() {
        suites::PYVERBS => part_of(&row.test).0,
        suite => suite,
    }
}

/// Module of a test, and the test's name without its class.
fn part_of(test: &str) -> (&str, &str) {
    if let Some((module, name)) = test.split_once("::") {
        return (module, name);
    }
    let (module, name) = test.split_once('.').unwrap_or((test, test));
    let name = name.rsplit('.').next().unwrap_or(name);
    (module, name.strip_prefix("test_").unwrap_or(name))
}

fn counts(rows: &[Shown]) -> String {
    let mut text = "| module |".to_owned();
    for link in LINKS {
        text.push_str(&format!(" {0}: pass | {0}: fail | {0}: skip |", link.name));
    }
    text.push_str(&format!("\n|---|{}\n", "--:|".repeat(3 * LINKS.len())));
    let line = |name: &str, of: &dyn Fn(&Shown) -> bool| {
        let mut line = format!("| {name} |");
        for link in LINKS {
            let count = |outcomes: &[Outcome]| {
                let here = rows.iter().filter(|row| row.link == link.name && of(row));
                here.filter(|row| row.is_any_of(outcomes)).count()
            };
            let passes = count(&[Outcome::Pass]);
            let fails = count(&[Outcome::Fail, Outcome::Error]);
            line.push_str(&format!(" {passes} | {fails} | {} |", count(&[Outcome::Skip])));
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

/// Tests, with the links on which each had this outcome.
type Tests<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// Tests by the reason for their outcome, the most frequent reason first: a table of reasons, and
/// the tests that each explains.
fn by_reason(rows: &[Shown], outcomes: &[Outcome]) -> String {
    let mut reasons: BTreeMap<(&str, &str), Tests<'_>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.is_any_of(outcomes)) {
        let tests = reasons.entry((&row.reason, &row.until)).or_default();
        tests.entry(&row.test).or_default().insert(&row.link);
    }
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, tests)| std::cmp::Reverse(tests.len()));
    if reasons.is_empty() {
        return "None.\n".to_owned();
    }
    let mut text = "| | tests | why | what unlocks it |\n|--:|--:|---|---|\n".to_owned();
    for (number, ((why, until), tests)) in (1..).zip(&reasons) {
        let why = match until.is_empty() {
            true => format!("**unexplained**: {}", escaped(why)),
            false => (*why).to_owned(),
        };
        text.push_str(&format!("| {number} | {} | {why} | {until} |\n", tests.len()));
    }
    text.push('\n');
    for (number, (_, tests)) in (1..).zip(&reasons) {
        text.push_str(&wrapped(&format!("{number}. {}", in_short(tests)), "   "));
    }
    text
}

/// Tests by module, with the links if not every link had the outcome. A long list becomes a count.
fn in_short(tests: &Tests<'_>) -> String {
    const MANY: usize = 40;
    let mut modules: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (test, links) in tests {
        let (module, name) = part_of(test);
        let only: Vec<&str> = links.iter().copied().collect();
        let only = match only.len() == LINKS.len() {
            true => String::new(),
            false => format!(" ({})", only.join(", ")),
        };
        modules.entry(module).or_default().push(format!("{name}{only}"));
    }
    let modules = modules.into_iter().map(|(module, names)| match tests.len() > MANY {
        true => format!("`{module}` {}", names.len()),
        false if names.len() == 1 && names[0] == module => format!("`{module}`"),
        false => format!("`{module}`: {}", names.join(", ")),
    });
    modules.collect::<Vec<_>>().join(if tests.len() > MANY { ", " } else { "; " })
}

/// Escapes the text for a cell of a table.
fn escaped(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_of_a_paragraph_is_longer_than_a_hundred_characters() {
        let text = wrapped(&"twelve bytes ".repeat(40), "  ");
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
        assert!(text.lines().skip(1).all(|line| line.starts_with("  ")), "{text}");
        assert_eq!(text.split_whitespace().count(), 80);
    }

    #[test]
    fn reasons_are_numbered_and_their_tests_stand_below() {
        let row = |test: &str, link: &str, reason: &str| Shown {
            suite: "pyverbs".into(),
            test: test.into(),
            link: link.into(),
            provider: Provider::C.name().into(),
            result: Outcome::Skip.name().into(),
            reason: reason.into(),
            until: "some day".into(),
        };
        let rows = [
            row("m.Class.test_one", "ib", "once"),
            row("cases::two", "ib", "twice"),
            row("cases::three", "ib", "twice"),
            row("cases::three", "roce", "twice"),
        ];
        let text = by_reason(&rows, &[Outcome::Skip]);
        assert!(text.contains("| 1 | 2 | twice | some day |\n| 2 | 1 | once |"), "{text}");
        assert!(text.contains("1. `cases`: three, two (ib)\n2. `m`: one (ib)\n"), "{text}");
        assert_eq!(by_reason(&rows, &[Outcome::Fail]), "None.\n");
    }

    #[test]
    fn the_report_replaces_itself_and_nothing_else() {
        let placed = |document: &str, report: &str| place(document, BEGIN, report, END);
        let first = placed("# Conformance\n\nothers\n", "one\n");
        assert_eq!(first, format!("# Conformance\n\nothers\n\n{BEGIN}one\n{END}"));
        let again = placed(&format!("{first}\nafter\n"), "two\n");
        assert_eq!(again, format!("# Conformance\n\nothers\n\n{BEGIN}two\n{END}\nafter\n"));
    }
}
