//! Lists the possible mutants, by cargo-mutants.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::packages::{PACKAGES, Package};
use super::text::Place;
use crate::failure::Failure;
use crate::tool::{Tool, output};

/// The tool that names the mutants; another version names them differently.
const MUTANTS: Tool = Tool { name: "cargo-mutants", version: "27.1.0", cache: "mlx5-mutants" };

/// Patterns of test files.
const TESTS: [&str; 2] = ["**/tests.rs", "**/tests/**"];

/// One change to one place of a source file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Mutant {
    pub(super) file: String,
    /// The change, like "replace < with <= in Room::take".
    pub(super) mutation: String,
    pub(super) start: Place,
    pub(super) end: Place,
    /// Replacement for the text from `start` to `end`.
    pub(super) replacement: String,
    /// The line at which the change starts, trimmed.
    pub(super) line: String,
    /// Number of mutants with the same description earlier on that line.
    pub(super) before: usize,
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.start, self.mutation)
    }
}

/// All mutants, by file and place.
pub(super) fn all(root: &Path) -> Result<Vec<Mutant>, Failure> {
    listed(root, &[])
}

/// The diff since a commit, in the sources in which bugs are planted; `None` if it is empty.
pub(super) fn diff(root: &Path, base: &str) -> Result<Option<PathBuf>, Failure> {
    let mut command = Command::new("git");
    command.arg("-C").arg(root).args(["diff", "--no-ext-diff", "--no-color", "--find-renames"]);
    // Whole crates, so that a file that moved within one has only its changed lines in the diff.
    command.args([base, "--"]).args(PACKAGES.iter().map(Package::sources));
    let diff = output(command)?;
    if diff.is_empty() {
        return Ok(None);
    }
    let path = root.join("target/mutants/changed.diff");
    let failed = |error| Failure::File { path: path.clone(), error };
    fs::create_dir_all(root.join("target/mutants")).map_err(failed)?;
    fs::write(&path, diff).map_err(failed)?;
    Ok(Some(path))
}

/// The mutants of the lines that a diff adds.
pub(super) fn of_diff(root: &Path, diff: &Path) -> Result<Vec<Mutant>, Failure> {
    listed(root, &["--in-diff".to_owned(), diff.display().to_string()])
}

/// The output of `Debug` is for debugging only and is not part of the data path's contract.
const DEBUG_TEXT: &str = "<impl (fmt::)?Debug for ";

fn listed(root: &Path, arguments: &[String]) -> Result<Vec<Mutant>, Failure> {
    let program = MUTANTS.installed()?;
    let mut command = Command::new(&program);
    command.args(["mutants", "--list", "--json", "--no-config", "--workspace", "--dir"]).arg(root);
    let planted = PACKAGES.iter().flat_map(Package::planted);
    command.args(planted.flat_map(|pattern| ["--file".to_owned(), pattern]));
    command.args(TESTS.iter().flat_map(|pattern| ["--exclude", pattern]));
    command.args(["--exclude-re", DEBUG_TEXT]);
    command.args(arguments);
    let json = output(command)?;
    // For a diff without mutants the tool prints a sentence instead of JSON.
    if json.trim_ascii_start().first() != Some(&b'[') {
        return Ok(Vec::new());
    }
    let broken = || Failure::Output {
        program: program.display().to_string(),
        what: "no list of mutants in JSON".to_owned(),
    };
    let rows: Vec<Value> = serde_json::from_slice(&json).map_err(|_| broken())?;
    let mut mutants = rows.iter().map(mutant).collect::<Option<Vec<_>>>().ok_or_else(broken)?;
    mutants.sort_by(|a, b| (&a.file, a.start, &a.mutation).cmp(&(&b.file, b.start, &b.mutation)));
    note_lines(root, &mut mutants)?;
    Ok(mutants)
}

/// Parses the JSON of a mutant; `None` if it is not as expected.
fn mutant(row: &Value) -> Option<Mutant> {
    let place = |end: &str| {
        let place = &row["span"][end];
        let number =
            |name: &str| place[name].as_u64().and_then(|number| usize::try_from(number).ok());
        Some(Place { line: number("line")?, column: number("column")? })
    };
    let (start, end) = (place("start")?, place("end")?);
    let file = row["file"].as_str()?.to_owned();
    let mutation = row["name"].as_str()?.strip_prefix(&format!("{file}:{start}: "))?.to_owned();
    let replacement = row["replacement"].as_str()?.to_owned();
    Some(Mutant { file, mutation, start, end, replacement, line: String::new(), before: 0 })
}

/// Records the line of each mutant, and numbers those with the same description on it.
fn note_lines(root: &Path, mutants: &mut [Mutant]) -> Result<(), Failure> {
    let mut files: HashMap<String, Vec<String>> = HashMap::new();
    let mut seen: HashMap<(String, usize, String), usize> = HashMap::new();
    for mutant in mutants {
        if !files.contains_key(&mutant.file) {
            let path = root.join(&mutant.file);
            let text = fs::read_to_string(&path).map_err(|error| Failure::File { path, error })?;
            files.insert(
                mutant.file.clone(),
                text.lines().map(|line| line.trim().to_owned()).collect(),
            );
        }
        let line = files[&mutant.file].get(mutant.start.line - 1);
        mutant.line = line.cloned().unwrap_or_default();
        let key = (mutant.file.clone(), mutant.start.line, mutant.mutation.clone());
        let count = seen.entry(key).or_default();
        mutant.before = *count;
        *count += 1;
    }
    Ok(())
}
