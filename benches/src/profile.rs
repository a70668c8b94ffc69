//! Parses callgrind's output.

use std::collections::HashMap;

/// Callgrind's counts of one round.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Profile {
    /// Name under which it was written.
    pub(crate) name: String,
    pub(crate) instructions: u64,
    /// Reads and writes that missed the first-level data cache.
    pub(crate) misses: u64,
    /// Instructions by source file, including inlined ones; most first.
    pub(crate) files: Vec<(String, u64)>,
}

/// Parses one of callgrind's files. Calls into an object that does not count are left out, with all
/// that these call in turn, in any object. A line is an attribute, a position, a call, or a cost. A
/// name is spelled out once, with a number in brackets that stands for it afterwards.
pub(crate) fn parse(text: &str, counts: &dyn Fn(&str) -> bool) -> Option<Profile> {
    let mut name = None;
    let (mut instructions, mut misses) = (0_u64, 0_u64);
    let mut events: Vec<&str> = Vec::new();
    let mut names: HashMap<&str, &str> = HashMap::new();
    let mut objects: HashMap<&str, bool> = HashMap::new();
    let mut files: HashMap<&str, u64> = HashMap::new();
    let (mut file, mut function_file) = ("", "");
    let (mut of_call, mut counted, mut complete) = (false, true, false);
    // Whether the next call counts, if it goes to another object.
    let mut called = None;
    for line in text.lines() {
        if let Some(trigger) = line.strip_prefix("desc: Trigger: ") {
            name = Some(trigger.strip_prefix("Client Request: ").unwrap_or(trigger));
        } else if let Some(of) = line.strip_prefix("events: ") {
            events = of.split(' ').collect();
        } else if line.starts_with("totals: ") {
            complete = true;
        } else if let Some((key @ ("fl" | "fi" | "fe"), value)) = line.split_once('=') {
            let (number, given) = value.split_once(' ').unwrap_or((value, ""));
            if !given.is_empty() {
                names.insert(number, given);
            }
            file = names.get(number).copied().unwrap_or(value);
            if key == "fl" {
                function_file = file;
            }
        } else if let Some((key @ ("ob" | "cob"), value)) = line.split_once('=') {
            let (number, given) = value.split_once(' ').unwrap_or((value, ""));
            if !given.is_empty() {
                objects.insert(number, counts(given));
            }
            let counts = objects.get(number).copied().unwrap_or(true);
            if key == "ob" {
                counted = counts;
            } else {
                called = Some(counts);
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
            // The cost of a call also appears at the caller.
            let left_out = std::mem::take(&mut of_call);
            if left_out && (called.take().unwrap_or(true) || !counted) {
                continue;
            }
            // A line ends after its last number that is not zero.
            for (event, count) in events.iter().zip(line.split(' ').skip(1)) {
                let count: u64 = count.parse().ok()?;
                let sum = match *event {
                    "Ir" => &mut instructions,
                    "D1mr" | "D1mw" => &mut misses,
                    _ => continue,
                };
                *sum = if left_out { sum.wrapping_sub(count) } else { sum.wrapping_add(count) };
                if *event == "Ir" && !left_out && counted {
                    *files.entry(file).or_default() += count;
                }
            }
        }
    }
    let mut files: Vec<_> = files.into_iter().map(|(file, n)| (file.to_owned(), n)).collect();
    files.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let name = name.filter(|_| complete)?.to_owned();
    Some(Profile { name, instructions, misses, files })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
version: 1
events: Ir Dr D1mr D1mw
desc: Trigger: Client Request: poll1\tmlx5\tsingle
ob=(1) /bin/bench
fl=(1) a.rs
fn=(1) poll
10 5 2 1
fi=(2) b.rs
+3 7 0 0 2
cob=(2) /lib/device.so
cfi=(3) c.rs
cfn=(2) called
calls=2 0
* 140 10 14 10
fe=(1)
12 1

ob=(2)
fl=(3)
fn=(2)
* 100 10 10 10
cob=(3) /lib/libc.so
cfn=(3) malloc
calls=1 0
* 40 0 4

ob=(3)
fl=(4) malloc.c
fn=(3)
* 40 0 4
totals: 153
";

    fn parsed(counts: &dyn Fn(&str) -> bool) -> Profile {
        let profile = parse(TEXT, counts).expect("readable");
        assert_eq!(profile.name, "poll1\tmlx5\tsingle");
        profile
    }

    fn files(profile: &Profile) -> Vec<(&str, u64)> {
        profile.files.iter().map(|(file, n)| (file.as_str(), *n)).collect()
    }

    #[test]
    fn costs_are_summed_by_the_file_that_they_come_from() {
        let profile = parsed(&|_| true);
        assert_eq!((profile.instructions, profile.misses), (153, 27));
        let expected = [("c.rs", 100), ("malloc.c", 40), ("b.rs", 7), ("a.rs", 6)];
        assert_eq!(files(&profile), expected);
    }

    #[test]
    fn an_object_can_be_left_out_with_what_it_calls() {
        let profile = parsed(&|object| object != "/lib/device.so");
        assert_eq!((profile.instructions, profile.misses), (13, 3));
    }

    #[test]
    fn a_file_without_a_total_is_not_readable() {
        assert_eq!(parse("desc: Trigger: Program termination\n", &|_| true), None);
    }
}
