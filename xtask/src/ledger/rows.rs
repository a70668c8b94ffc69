//! The ledger: one row for each test and link.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::suites;
use crate::failure::Failure;
use crate::provider::Provider;

/// Rung of programs with the simulator preloaded; see docs/TESTING.md.
const RUNG: u64 = 2;

/// Name of the row that passes if no driver caused a violation.
pub(super) const MACHINE: &str = "no driver does what it never must";

/// Outcome of a test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// The test passed.
    Pass,
    /// The test failed.
    Fail,
    /// The test ended without a result.
    Error,
    /// The test skipped itself: it cannot run here.
    Skip,
}

impl Outcome {
    /// Name in the ledger.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Error => "error",
            Self::Skip => "skip",
        }
    }
}

/// Why a test has not passed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Reason {
    /// A known reason, and the change that would let the test pass.
    Known { why: &'static str, until: &'static str },
    /// Message of the test, which no entry of the table of reasons explains.
    Unexplained(String),
}

/// One test on one link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Row {
    pub(super) suite: &'static str,
    pub(super) test: String,
    pub(super) link: &'static str,
    /// The libibverbs that the test ran over.
    pub(super) provider: Provider,
    pub(super) outcome: Outcome,
    /// `None` for a test that passed.
    pub(super) reason: Option<Reason>,
}

impl Row {
    /// A row that passes if the program's drivers caused no violation. `of` names the program where
    /// the suite has several.
    pub(super) fn of_violations(
        suite: &'static str,
        of: Option<&str>,
        link: &'static str,
        provider: Provider,
        violations: &[String],
    ) -> Self {
        let test = of.map_or_else(|| MACHINE.to_owned(), |of| format!("{of}: {MACHINE}"));
        let (outcome, reason) = match violations {
            [] => (Outcome::Pass, None),
            several => (Outcome::Fail, Some(Reason::Unexplained(several.join(", ")))),
        };
        Self { suite, test, link, provider, outcome, reason }
    }

    /// Whether no known reason explains the outcome.
    pub(super) fn is_unexplained(&self) -> bool {
        matches!(self.reason, Some(Reason::Unexplained(_)))
    }

    fn value(&self) -> Value {
        let (reason, until) = match &self.reason {
            None => ("", ""),
            Some(Reason::Known { why, until }) => (*why, *until),
            Some(Reason::Unexplained(said)) => (said.as_str(), ""),
        };
        json!({
            "suite": self.suite, "test": self.test, "link": self.link, "rung": RUNG,
            "provider": self.provider.name(), "result": self.outcome.name(), "reason": reason, "until": until,
        })
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (link, provider) = (self.link, self.provider.name());
        write!(f, "{} {} ({link}, {provider}): {}", self.suite, self.test, self.outcome.name())?;
        match &self.reason {
            None => Ok(()),
            Some(Reason::Known { why, .. }) => write!(f, ": {why}"),
            Some(Reason::Unexplained(said)) => write!(f, ": {said}"),
        }
    }
}

/// A row in the form that the report shows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Shown {
    pub(super) suite: String,
    pub(super) test: String,
    pub(super) link: String,
    pub(super) provider: String,
    pub(super) result: String,
    /// Why it has not passed.
    pub(super) reason: String,
    /// The change that would let it pass; empty if the reason is not known.
    pub(super) until: String,
}

impl Shown {
    fn new(value: &Value) -> Self {
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        Self {
            suite: text("suite"),
            test: text("test"),
            link: text("link"),
            provider: text("provider"),
            result: text("result"),
            reason: text("reason"),
            until: text("until"),
        }
    }

    /// Whether the test had one of these outcomes.
    pub(super) fn is_any_of(&self, outcomes: &[Outcome]) -> bool {
        outcomes.iter().any(|outcome| outcome.name() == self.result)
    }
}

/// Identifies a row: suite, rung, test, link (with the kernel if it has one), provider.
type Key = (String, u64, String, String, String);

/// All rows, in a stable order.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    rows: Vec<Row>,
    values: BTreeMap<Key, Value>,
}

impl Ledger {
    /// A ledger of the rows of this run.
    pub(super) fn from_rows(rows: Vec<Row>) -> Self {
        let values = rows.iter().map(|row| (key(&row.value()), row.value())).collect();
        Self { rows, values }
    }

    /// Reads the ledger from a file; empty if there is no file.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            Err(error) => return Err(Failure::File { path: path.to_owned(), error }),
        };
        let values: Vec<Value> = serde_json::from_str(&text)
            .map_err(|error| Failure::File { path: path.to_owned(), error: error.into() })?;
        let values = values.into_iter().map(|value| (key(&value), value)).collect();
        Ok(Self { rows: Vec::new(), values })
    }

    /// Rows of this run; empty for a ledger that was read from a file.
    pub(super) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Rows of the suites that this task runs.
    pub(super) fn shown(&self) -> Vec<Shown> {
        let ours = self.values.iter().filter(|(key, _)| key.1 == RUNG && is_run(&key.0));
        ours.map(|(_, value)| Shown::new(value)).collect()
    }

    /// This ledger with its suites replaced by those of `other`; suites that `other` lacks stay.
    pub(super) fn with(mut self, other: &Self) -> Self {
        let replaced =
            |key: &Key| other.values.keys().any(|k| (&k.0, k.1, &k.4) == (&key.0, key.1, &key.4));
        self.values.retain(|key, _| !replaced(key));
        self.values.extend(other.values.iter().map(|(key, value)| (key.clone(), value.clone())));
        self
    }

    /// Removes tests of one provider, each given by its suite and name.
    pub(super) fn without(mut self, provider: Provider, tests: &[(&'static str, String)]) -> Self {
        self.values.retain(|key, _| {
            let left_out = |(suite, test): &(&str, String)| key.0 == *suite && key.2 == *test;
            key.4 != provider.name() || !tests.iter().any(left_out)
        });
        self
    }

    /// Tests that pass in `earlier` and not in this ledger, in suites that this run has run.
    pub(super) fn regressed_since(&self, earlier: &Self) -> Vec<String> {
        // Only suites, links and providers of this run.
        let run =
            |key: &Key| self.values.keys().any(|k| (&k.0, &k.3, &k.4) == (&key.0, &key.3, &key.4));
        earlier
            .passes()
            .filter(|key| run(key))
            .filter(|key| !self.values.get(*key).is_some_and(is_pass))
            .map(|key| {
                let now = match self.values.get(key) {
                    Some(value) => format!(
                        "{}: {}",
                        value["result"].as_str().unwrap_or_default(),
                        value["reason"].as_str().unwrap_or_default()
                    ),
                    None => "not run".to_owned(),
                };
                format!("{} {} ({}, {}): {now}", key.0, key.2, key.3, key.4)
            })
            .collect()
    }

    /// Whether a test of this task's suites passes.
    pub(super) fn has_passes(&self) -> bool {
        self.passes().next().is_some()
    }

    fn passes(&self) -> impl Iterator<Item = &Key> {
        let ours = |key: &Key| key.1 == RUNG && is_run(&key.0);
        let passes = self.values.iter().filter(move |(key, value)| ours(key) && is_pass(value));
        passes.map(|(key, _)| key)
    }

    /// Writes an array with one line for each row.
    pub(super) fn write(&self, path: &Path) -> Result<(), Failure> {
        let lines: Vec<String> = self.values.values().map(line).collect();
        fs::write(path, format!("[\n{}\n]\n", lines.join(",\n")))
            .map_err(|error| Failure::File { path: path.to_owned(), error })
    }
}

/// Whether this task runs the suite.
fn is_run(suite: &str) -> bool {
    suites::ALL.contains(&suite)
}

/// Writes rows in the ledger's form and order.
pub(crate) fn write_rows(path: &Path, rows: &[Value]) -> Result<(), Failure> {
    let values = rows.iter().map(|value| (key(value), value.clone())).collect();
    Ledger { rows: Vec::new(), values }.write(path)
}

fn is_pass(value: &Value) -> bool {
    value["result"] == "pass"
}

fn key(value: &Value) -> Key {
    let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
    let kernel = value["kernel"].as_str().map(|kernel| format!(" {kernel}")).unwrap_or_default();
    let link = text("link") + &kernel;
    (
        text("suite"),
        value["rung"].as_u64().unwrap_or_default(),
        text("test"),
        link,
        text("provider"),
    )
}

/// A row in one line: the fields that identify it first, then all others.
fn line(value: &Value) -> String {
    const FIRST: [&str; 8] =
        ["suite", "test", "link", "rung", "provider", "result", "reason", "until"];
    let Some(object) = value.as_object() else { return value.to_string() };
    let first = FIRST.iter().filter_map(|name| object.get_key_value(*name));
    let rest = object.iter().filter(|(name, _)| !FIRST.contains(&name.as_str()));
    let members: Vec<String> =
        first.chain(rest).map(|(name, value)| format!("{}: {value}", json!(name))).collect();
    format!("  {{{}}}", members.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(rows: &[(&str, Outcome)]) -> Ledger {
        let row = |&(test, outcome): &(&str, Outcome)| Row {
            suite: "pyverbs",
            test: test.to_owned(),
            link: "ib",
            provider: Provider::C,
            outcome,
            reason: None,
        };
        Ledger::from_rows(rows.iter().map(row).collect())
    }

    #[test]
    fn a_test_that_passed_is_lost_when_it_fails_or_is_not_run() {
        let earlier = ledger(&[("a", Outcome::Pass), ("b", Outcome::Pass), ("c", Outcome::Skip)]);
        let now = ledger(&[("a", Outcome::Fail), ("c", Outcome::Skip), ("d", Outcome::Pass)]);
        assert_eq!(
            now.regressed_since(&earlier),
            ["pyverbs a (ib, c): fail: ", "pyverbs b (ib, c): not run"]
        );
        assert_eq!(now.regressed_since(&now), [""; 0]);
    }

    #[test]
    fn suites_that_were_not_run_stay_as_they_are() {
        let value = json!({"suite": "ours", "test": "x", "rung": 3, "result": "pass"});
        let kept = Ledger { rows: Vec::new(), values: [(key(&value), value)].into() };
        let both = kept.with(&ledger(&[("a", Outcome::Pass)]));
        let tests: Vec<&str> = both.values.keys().map(|key| key.2.as_str()).collect();
        assert_eq!(tests, ["x", "a"]);
    }

    #[test]
    fn a_row_is_one_line_that_begins_with_what_identifies_it() {
        let now = ledger(&[("a", Outcome::Pass)]);
        let line = line(now.values.values().next().unwrap());
        assert!(line.starts_with(r#"  {"suite": "pyverbs", "test": "a", "link": "ib", "rung": 2"#));
    }
}
