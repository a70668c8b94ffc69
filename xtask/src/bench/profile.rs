//! Reading what callgrind writes.

use std::collections::HashMap;

/// What callgrind counted of one round.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Profile {
    /// Under what name it was written.
    pub(super) name: String,
    pub(super) total: u64,
    /// Source files with the instructions that come from them, inlined ones too; most first.
    pub(super) files: Vec<(String, u64)>,
}

/// Reads a file of callgrind's. Lines are attributes, places, calls, or costs; names are written
/// out once, with a number in brackets that stands for them afterwards.
pub(super) fn parse(text: &str) -> Option<Profile> {
    let mut name = None;
    let mut total = None;
    let mut names: HashMap<&str, &str> = HashMap::new();
    let mut files: HashMap<&str, u64> = HashMap::new();
    let (mut file, mut function_file) = ("", "");
    let mut of_call = false;
    for line in text.lines() {
        if let Some(trigger) = line.strip_prefix("desc: Trigger: ") {
            name = Some(trigger.strip_prefix("Client Request: ").unwrap_or(trigger));
        } else if let Some(totals) = line.strip_prefix("totals: ") {
            total = totals.trim().parse().ok();
        } else if let Some((key @ ("fl" | "fi" | "fe"), value)) = line.split_once('=') {
            let (number, given) = value.split_once(' ').unwrap_or((value, ""));
            if !given.is_empty() {
                names.insert(number, given);
            }
            file = names.get(number).copied().unwrap_or(value);
            if key == "fl" {
                function_file = file;
            }
        } else if line.starts_with("fn=") {
            file = if function_file.is_empty() { file } else { function_file };
        } else if let Some((_, value)) = line.split_once("cfi=").or(line.split_once("cfl=")) {
            if let Some((number, given)) = value.split_once(' ') {
                names.insert(number, given);
            }
        } else if line.starts_with("calls=") {
            of_call = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            // What a call cost inside is counted where it was called, too.
            if !std::mem::take(&mut of_call) {
                let count = line.split_once(' ').and_then(|(_, count)| count.parse().ok());
                *files.entry(file).or_default() += count.unwrap_or(0_u64);
            }
        }
    }
    let mut files: Vec<_> = files.into_iter().map(|(file, n)| (file.to_owned(), n)).collect();
    files.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    Some(Profile { name: name?.to_owned(), total: total?, files })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_summed_by_the_file_that_they_come_from() {
        let text = "\
version: 1
desc: Trigger: Client Request: poll1\tmlx5\tsingle
fl=(1) a.rs
fn=(1) poll
10 5
fi=(2) b.rs
+3 7
cfi=(3) c.rs
cfn=(2) called
calls=2 0
* 100
fe=(1)
12 1

fl=(3)
fn=(2)
* 100
totals: 113
";
        let profile = parse(text).expect("readable");
        assert_eq!(profile.name, "poll1\tmlx5\tsingle");
        assert_eq!(profile.total, 113);
        let files: Vec<_> = profile.files.iter().map(|(file, n)| (file.as_str(), *n)).collect();
        assert_eq!(files, [("c.rs", 100), ("b.rs", 7), ("a.rs", 6)]);
    }

    #[test]
    fn a_file_without_a_total_is_not_readable() {
        assert_eq!(parse("desc: Trigger: Program termination\n"), None);
    }
}
