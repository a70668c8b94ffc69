//! Reports the outcomes of a sample.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::json;

use super::list::Mutant;
use super::outcomes::{Outcome, Outcomes};
use super::reasons::Reasons;
use crate::failure::Failure;

/// Mutants and their outcomes.
pub(super) struct Report<'a> {
    rows: Vec<Row<'a>>,
}

struct Row<'a> {
    mutant: &'a Mutant,
    outcome: Option<&'a Outcome>,
    reason: Option<&'a str>,
}

/// Number of standard deviations above the mean that one of twenty draws exceeds.
const ONE_IN_TWENTY: f64 = 1.645;

/// Number of mutants with each outcome.
#[derive(Clone, Copy, Default, Debug)]
struct Tally {
    caught: usize,
    missed: usize,
    equivalent: usize,
    unviable: usize,
    left: usize,
}

impl Tally {
    fn add(&mut self, row: &Row<'_>) {
        match (row.outcome, row.reason) {
            (None, _) => self.left += 1,
            (Some(Outcome::Caught(_)), _) => self.caught += 1,
            (Some(Outcome::Unviable(_)), _) => self.unviable += 1,
            (Some(Outcome::Missed), Some(reason)) if Reasons::is_equivalent(reason) => {
                self.equivalent += 1
            }
            (Some(Outcome::Missed), _) => self.missed += 1,
        }
    }

    /// Number of mutants that a test could notice.
    fn viable(&self) -> usize {
        self.caught + self.missed
    }

    /// Whether tests noticed fewer than `bar` in a hundred. For a partial run: whether such a
    /// number of misses would occur in fewer than one of twenty draws if tests noticed exactly
    /// `bar` in a hundred of all.
    fn is_below(&self, bar: usize) -> bool {
        let viable = self.viable();
        // In hundredths of a mutant.
        let excess = (self.missed * 100).saturating_sub(viable * (100 - bar));
        let deviation = match self.left {
            0 => 0.0,
            _ => (viable * bar * (100 - bar)) as f64,
        };
        excess as f64 > ONE_IN_TWENTY * deviation.sqrt()
    }

    fn line(&self, name: &str) -> String {
        let share = |part: usize, of: usize| match of {
            0 => "-".to_owned(),
            of => format!("{:.1} %", 100.0 * part as f64 / of as f64),
        };
        format!(
            "{name:24} {:6} {:6} {:10} {:8} {:6} {:>8} {:>18}",
            self.caught,
            self.missed,
            self.equivalent,
            self.unviable,
            self.left,
            share(self.caught, self.viable()),
            share(self.caught, self.viable() + self.equivalent),
        )
    }
}

impl<'a> Report<'a> {
    pub(super) fn new(
        mutants: &[&'a Mutant],
        outcomes: &'a Outcomes,
        reasons: &'a Reasons,
    ) -> Self {
        let row = |mutant: &&'a Mutant| Row {
            mutant,
            outcome: outcomes.of(mutant),
            reason: reasons.of(mutant),
        };
        Self { rows: mutants.iter().map(row).collect() }
    }

    fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        self.rows.iter().for_each(|row| tally.add(row));
        tally
    }

    /// Whether all mutants have an outcome.
    pub(super) fn is_complete(&self) -> bool {
        self.tally().left == 0
    }

    /// Prints the missed mutants, and the number of each outcome by folder.
    pub(super) fn print(&self) {
        let mut folders: BTreeMap<&str, Tally> = BTreeMap::new();
        for row in &self.rows {
            folders.entry(folder(&row.mutant.file)).or_default().add(row);
            if row.outcome == Some(&Outcome::Missed) {
                println!("missed: {}\n    {}", row.mutant, row.mutant.line);
                println!("    {}", row.reason.unwrap_or("NO REASON"));
            }
        }
        println!(
            "\n{:24} {:>6} {:>6} {:>10} {:>8} {:>6} {:>8} {:>18}",
            "",
            "caught",
            "missed",
            "equivalent",
            "unviable",
            "left",
            "caught",
            "of all that compile"
        );
        for (name, tally) in &folders {
            println!("{}", tally.line(name));
        }
        println!("{}", self.tally().line("all"));
    }

    /// Writes the rows as JSON.
    pub(super) fn write(&self, path: &Path, seed: u64) -> Result<(), Failure> {
        let mut text = String::new();
        for row in &self.rows {
            let (outcome, reason) = match row.outcome {
                Some(Outcome::Caught(by)) => ("caught", by.as_str()),
                Some(Outcome::Missed) => ("missed", row.reason.unwrap_or_default()),
                Some(Outcome::Unviable(why)) => ("unviable", why.as_str()),
                None => continue,
            };
            let mutation = format!("{}: {}", row.mutant.start, row.mutant.mutation);
            let row = json!({
                "file": row.mutant.file, "mutation": mutation, "outcome": outcome, "reason": reason,
            });
            let separator = if text.is_empty() { "" } else { ",\n" };
            text.push_str(&format!("{separator}  {row}"));
        }
        let text = format!("{{\"seed\": {seed}, \"rows\": [\n{text}\n]}}\n");
        fs::write(path, text).map_err(|error| Failure::File { path: path.to_owned(), error })
    }

    /// Fails if tests noticed fewer than `bar` in a hundred. If the run did not try all mutants,
    /// those that it tried are a sample: then it fails if chance does not explain the number of
    /// misses.
    pub(super) fn share(&self, bar: usize) -> Result<(), Failure> {
        if self.tally().is_below(bar) {
            let Tally { caught, .. } = self.tally();
            return Err(Failure::Survived { caught, viable: self.tally().viable(), bar });
        }
        Ok(())
    }

    /// Fails if a missed mutant has no reason.
    pub(super) fn explained(&self) -> Result<(), Failure> {
        let missed = self.rows.iter().filter(|row| row.outcome == Some(&Outcome::Missed));
        let unexplained = missed.filter(|row| row.reason.is_none());
        let unexplained: Vec<String> = unexplained.map(|row| row.mutant.to_string()).collect();
        if unexplained.is_empty() { Ok(()) } else { Err(Failure::Unexplained(unexplained)) }
    }
}

/// The part of the tree that contains a file.
fn folder(file: &str) -> &str {
    let parts = if file.starts_with("src/") { 2 } else { 1 };
    let end = file.match_indices('/').nth(parts - 1).map_or(file.len(), |(at, _)| at);
    &file[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_a_change_are_measured_against_the_bar() {
        let of = |caught, missed| Tally { caught, missed, ..Tally::default() };
        assert!(!of(0, 0).is_below(90));
        assert!(!of(90, 10).is_below(90));
        assert!(of(89, 11).is_below(90));
    }

    #[test]
    fn a_sample_is_below_the_bar_if_chance_does_not_explain_it() {
        let of = |caught, missed| Tally { caught, missed, left: 1, ..Tally::default() };
        assert!(!of(0, 0).is_below(90));
        assert!(!of(25, 5).is_below(90));
        assert!(of(24, 6).is_below(90));
        assert!(!of(86, 14).is_below(90));
        assert!(of(84, 16).is_below(90));
    }
}
