//! Reasons why missed mutants are accepted.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;

use super::list::Mutant;
use super::outcomes::{Key, key};
use crate::failure::Failure;

/// Prefix of the reason for a mutant that has the same effect as the code, or that only takes
/// longer.
const EQUIVALENT: &str = "equivalent: ";

/// The reasons, by mutant.
pub(super) struct Reasons(HashMap<Key, String>);

impl Reasons {
    /// Reads the file.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let text = fs::read_to_string(path);
        let text = text.map_err(|error| Failure::File { path: path.to_owned(), error })?;
        Self::parse(&text)
            .map_err(|what| Failure::Output { program: path.display().to_string(), what })
    }

    /// Parses paragraphs of four parts: file, mutation, line and reason. Lines that begin with `#`
    /// are comments.
    fn parse(text: &str) -> Result<Self, String> {
        let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
        let lines: Vec<&str> = lines.collect();
        let mut reasons = HashMap::new();
        for paragraph in lines.split(|line| line.is_empty()).filter(|lines| !lines.is_empty()) {
            let [file, mutation, line, reason @ ..] = paragraph else {
                return Err(format!("too short a paragraph: {}", paragraph.join(" / ")));
            };
            let (mutation, before) = match mutation.rsplit_once(" #") {
                Some((mutation, number))
                    if number.parse::<usize>().is_ok_and(|number| number > 1) =>
                {
                    (mutation, number.parse::<usize>().map_or(0, |number| number - 1))
                }
                _ => (*mutation, 0),
            };
            let reason = reason.join(" ");
            if reason.is_empty() {
                return Err(format!("no reason for {file}: {mutation}"));
            }
            let key = ((*file).to_owned(), mutation.to_owned(), (*line).to_owned(), before);
            if let Some((file, mutation, ..)) = reasons.insert(key.clone(), reason).map(|_| key) {
                return Err(format!("two reasons for {file}: {mutation}"));
            }
        }
        Ok(Self(reasons))
    }

    /// Reason why a mutant is accepted.
    pub(super) fn of(&self, mutant: &Mutant) -> Option<&str> {
        self.0.get(&key(mutant)).map(String::as_str)
    }

    /// Whether the reason states that no test can notice the mutant.
    pub(super) fn is_equivalent(reason: &str) -> bool {
        reason.starts_with(EQUIVALENT)
    }

    /// Reasons for mutants that do not exist any more.
    pub(super) fn that_fit_none(&self, all: &[Mutant]) -> Vec<String> {
        let all: HashSet<Key> = all.iter().map(key).collect();
        let mut others: Vec<String> = self
            .0
            .keys()
            .filter(|key| !all.contains(*key))
            .map(|key| format!("{}: {}", key.0, key.1))
            .collect();
        others.sort();
        others
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutants::text::Place;

    const FILE: &str = "\
# For people.
wqe/src/room.rs
replace | with ^ in bits #2
a | b | c
equivalent: the operands
share no bit
";

    #[test]
    fn a_reason_is_of_one_mutant_wherever_in_the_file_its_line_is() {
        let reasons = Reasons::parse(FILE).expect("reasons");
        let mutant = |line, before| Mutant {
            file: "wqe/src/room.rs".to_owned(),
            mutation: "replace | with ^ in bits".to_owned(),
            start: Place { line, column: 7 },
            end: Place { line, column: 8 },
            replacement: "^".to_owned(),
            line: "a | b | c".to_owned(),
            before,
        };
        assert_eq!(reasons.of(&mutant(3, 1)), Some("equivalent: the operands share no bit"));
        assert_eq!(reasons.of(&mutant(9, 1)), Some("equivalent: the operands share no bit"));
        assert_eq!(reasons.of(&mutant(3, 0)), None);
        assert!(reasons.that_fit_none(&[mutant(3, 1)]).is_empty());
        assert_eq!(reasons.that_fit_none(&[mutant(3, 0)]).len(), 1);
    }

    #[test]
    fn a_paragraph_without_a_reason_is_refused() {
        assert!(Reasons::parse("a.rs\nreplace\nline\n").is_err());
        assert!(Reasons::parse("a.rs\nreplace\n").is_err());
    }

    #[test]
    fn the_files_reasons_can_be_read() {
        Reasons::parse(include_str!("reasons.txt")).expect("reasons");
    }
}
