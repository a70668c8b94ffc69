//! Outcomes of mutants, kept in a file.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::list::Mutant;
use crate::failure::Failure;

/// Suffix of the name of a test that notices a bug because it does not end.
pub(super) const NO_END: &str = " does not end";

/// Outcome of a mutant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// This test notices it.
    Caught(String),
    Missed,
    /// It does not compile; the compiler's message.
    Unviable(String),
}

/// Identifies a mutant, independently of its position in the file.
pub(super) type Key = (String, String, String, usize);

pub(super) fn key(mutant: &Mutant) -> Key {
    (mutant.file.clone(), mutant.mutation.clone(), mutant.line.clone(), mutant.before)
}

/// Outcomes for the current sources, and the last outcome of each mutant for any sources.
pub(super) struct Outcomes {
    path: PathBuf,
    file: File,
    sources: u64,
    known: HashMap<(Key, usize), Outcome>,
    last: HashMap<Key, Outcome>,
}

impl Outcomes {
    /// Reads the file, if it is there.
    pub(super) fn open(path: &Path, sources: u64) -> Result<Self, Failure> {
        let failed = |error| Failure::File { path: path.to_owned(), error };
        fs::create_dir_all(path.parent().unwrap_or(path)).map_err(failed)?;
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(failed(error)),
        };
        let file = OpenOptions::new().append(true).create(true).open(path).map_err(failed)?;
        let path = path.to_owned();
        let mut outcomes =
            Self { path, file, sources, known: HashMap::new(), last: HashMap::new() };
        // The last line may be incomplete.
        for row in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            if let Some((sources, key, number, outcome)) = read(&row) {
                outcomes.last.insert(key.clone(), outcome.clone());
                if sources == outcomes.sources {
                    outcomes.known.insert((key, number), outcome);
                }
            }
        }
        Ok(outcomes)
    }

    /// Outcome of a mutant for the current sources.
    pub(super) fn of(&self, mutant: &Mutant) -> Option<&Outcome> {
        self.known.get(&(key(mutant), mutant.start.line))
    }

    /// Whether the mutant's last outcome, for any sources, was a miss.
    pub(super) fn was_missed(&self, mutant: &Mutant) -> bool {
        self.last.get(&key(mutant)) == Some(&Outcome::Missed)
    }

    /// The test that noticed the mutant in its last run, for any sources.
    pub(super) fn noticed_by(&self, mutant: &Mutant) -> Option<&str> {
        match self.last.get(&key(mutant)) {
            Some(Outcome::Caught(by)) => Some(by.strip_suffix(NO_END).unwrap_or(by)),
            _ => None,
        }
    }

    /// The compiler's message if the mutant has no outcome for the current sources and did not
    /// compile in its last run, for any sources: it is taken not to compile now either.
    pub(super) fn did_not_compile(&self, mutant: &Mutant) -> Option<String> {
        match (self.of(mutant), self.last.get(&key(mutant))) {
            (None, Some(Outcome::Unviable(why))) => Some(why.clone()),
            _ => None,
        }
    }

    /// Discards the outcomes of these mutants, so that they run again.
    pub(super) fn forget(&mut self, mutants: &[&Mutant]) {
        for mutant in mutants {
            self.known.remove(&(key(mutant), mutant.start.line));
        }
    }

    pub(super) fn note(&mut self, mutant: &Mutant, outcome: Outcome) -> Result<(), Failure> {
        let (name, reason) = match &outcome {
            Outcome::Caught(by) => ("caught", by.as_str()),
            Outcome::Missed => ("missed", ""),
            Outcome::Unviable(why) => ("unviable", why.as_str()),
        };
        eprintln!("{name:8} {mutant}{}{reason}", if reason.is_empty() { "" } else { ": " });
        let row = json!({
            "sources": self.sources, "file": mutant.file, "mutation": mutant.mutation,
            "text": mutant.line, "before": mutant.before, "line": mutant.start.line,
            "outcome": name, "reason": reason,
        });
        let failed = |error| Failure::File { path: self.path.clone(), error };
        self.file.write_all(format!("{row}\n").as_bytes()).map_err(failed)?;
        self.last.insert(key(mutant), outcome.clone());
        self.known.insert((key(mutant), mutant.start.line), outcome);
        Ok(())
    }
}

/// Parses a row of the file: the hash of the sources, the mutant, its line number and its outcome.
fn read(row: &Value) -> Option<(u64, Key, usize, Outcome)> {
    let text = |name: &str| row[name].as_str().map(str::to_owned);
    let number = |name: &str| row[name].as_u64();
    let outcome = match row["outcome"].as_str()? {
        "caught" => Outcome::Caught(text("reason")?),
        "missed" => Outcome::Missed,
        "unviable" => Outcome::Unviable(text("reason")?),
        _ => return None,
    };
    let before = usize::try_from(number("before")?).ok()?;
    let line = usize::try_from(number("line")?).ok()?;
    Some((
        number("sources")?,
        (text("file")?, text("mutation")?, text("text")?, before),
        line,
        outcome,
    ))
}
