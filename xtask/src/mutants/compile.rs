//! Builds the tests of a tree with bugs, and finds the bugs that do not compile.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::packages::PACKAGES;
use super::tree::Tree;
use crate::failure::Failure;

/// The package with the tests of all others.
const CONFORMANCE: &str = "mlx5-conformance";

/// Packages whose tests run.
fn tested() -> impl Iterator<Item = &'static str> {
    PACKAGES.iter().map(|package| package.name).chain([CONFORMANCE])
}

/// Tests of those packages that run no code with planted bugs, by a part of their path.
const LEFT_OUT: [&str; 2] = ["/tests/documents/", "/tests/loom/"];

/// Exit status of `timeout` when it ended a program.
const TIMED_OUT: i32 = 124;

/// A program with tests.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) path: PathBuf,
    /// The folder of its package.
    pub(super) folder: PathBuf,
    /// Its name, if it is one of the package's `tests`.
    pub(super) target: Option<String>,
}

/// A compiler error.
#[derive(Debug)]
pub(super) struct Complaint {
    /// Files and lines that it refers to.
    pub(super) lines: Vec<(String, usize)>,
    pub(super) what: String,
    /// The compiler's full message.
    pub(super) text: String,
}

/// Result of a build.
pub(super) enum Built {
    Programs(Vec<Program>),
    Not(Vec<Complaint>),
    /// The deadline passed.
    Late,
}

/// The limit that ends a build.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Limit {
    None,
    /// Time left until the deadline of the whole run.
    Deadline(Duration),
    /// Time limit of one build.
    Build(Duration),
}

impl Limit {
    fn of(left: Option<Duration>, longest: Option<Duration>) -> Self {
        match (left, longest) {
            (Some(left), Some(longest)) if longest < left => Self::Build(longest),
            (Some(left), _) => Self::Deadline(left),
            (None, Some(longest)) => Self::Build(longest),
            (None, None) => Self::None,
        }
    }

    /// Argument of `timeout`, to which zero means no limit.
    fn seconds(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Deadline(limit) | Self::Build(limit) => limit.as_secs().max(1),
        }
    }
}

/// Builds the tests of the tree: those named in `targets`, or all. A bug may send the compiler into
/// an endless loop, so a bug whose build takes longer than `longest` does not compile.
pub(super) fn tests(
    tree: &Tree,
    targets: Option<&[&str]>,
    deadline: Option<Instant>,
    longest: Option<Duration>,
) -> Result<Built, Failure> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut command = Command::new("timeout");
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    let limit = Limit::of(left, longest);
    command.arg(limit.seconds().to_string()).arg(&cargo);
    command.args(["test", "--no-run", "--quiet", "--message-format=json"]);
    match targets {
        Some(names) => command.args(names.iter().flat_map(|name| ["--test", name])),
        None => command.args(["--lib", "--test", "*"]),
    };
    command.args(tested().flat_map(|package| ["--package", package]));
    command.current_dir(tree.root()).stdin(Stdio::null()).stderr(Stdio::null());
    command.env("CARGO_TARGET_DIR", tree.built());
    // Only the package that selects the active bug needs it.
    command.env("RUSTC_BOOTSTRAP", "mlx5_mutant");
    // A bug may leave code unused, which must not fail the build.
    command.env("RUSTFLAGS", "--cap-lints=allow");
    // Keeps the profile's checks and drops debug information. The simulated device must run fast,
    // and the crates that every bug changes must build fast.
    command.env("CARGO_PROFILE_DEV_OPT_LEVEL", "1").env("CARGO_PROFILE_DEV_DEBUG", "0");
    for package in tested() {
        command.arg(format!("--config=profile.dev.package.{package}.opt-level=0"));
    }
    let failed = |error| Failure::Run { program: cargo.clone(), error };
    let output = command.output().map_err(failed)?;
    let messages = String::from_utf8_lossy(&output.stdout);
    let messages: Vec<Value> =
        messages.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    if output.status.success() {
        return Ok(Built::Programs(messages.iter().filter_map(program).collect()));
    }
    if output.status.code() == Some(TIMED_OUT) {
        let what = "the compiler does not end".to_owned();
        return Ok(match limit {
            Limit::Build(_) => {
                Built::Not(vec![Complaint { lines: Vec::new(), what, text: String::new() }])
            }
            Limit::Deadline(_) | Limit::None => Built::Late,
        });
    }
    let complaints: Vec<Complaint> = messages.iter().filter_map(complaint).collect();
    if complaints.is_empty() {
        return Err(Failure::Status { program: cargo, status: output.status });
    }
    Ok(Built::Not(complaints))
}

fn program(message: &Value) -> Option<Program> {
    let path = PathBuf::from(message["executable"].as_str()?);
    let source = message["target"]["src_path"].as_str()?;
    let folder = PathBuf::from(message["manifest_path"].as_str()?).parent()?.to_owned();
    let is_test = message["profile"]["test"] == true;
    let kind = &message["target"]["kind"][0];
    let target = if kind == "test" { message["target"]["name"].as_str() } else { None };
    let wanted = is_test && !LEFT_OUT.iter().any(|part| source.contains(part));
    wanted.then(|| Program { path, folder, target: target.map(str::to_owned) })
}

fn complaint(message: &Value) -> Option<Complaint> {
    let message = &message["message"];
    if message["level"] != "error" {
        return None;
    }
    let mut lines = Vec::new();
    for span in message["spans"].as_array()?.iter().filter(|span| span["is_primary"] == true) {
        // In a macro, also the lines that use it.
        let mut span = span;
        while !span.is_null() {
            if let (Some(file), Some(line)) =
                (span["file_name"].as_str(), span["line_start"].as_u64())
            {
                lines.push((file.to_owned(), usize::try_from(line).ok()?));
            }
            span = &span["expansion"]["span"];
        }
    }
    // The summary of all errors at the end refers to no line.
    if lines.is_empty() && message["code"].is_null() {
        return None;
    }
    let what = message["message"].as_str()?.to_owned();
    let code = message["code"]["code"].as_str().map_or(String::new(), |code| format!("{code}: "));
    let text = message["rendered"].as_str().unwrap_or_default().to_owned();
    Some(Complaint { lines, what: format!("{code}{what}"), text })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limit that ends a build decides the cause: the bug, or the deadline.
    #[test]
    fn the_shorter_limit_ends_a_build() {
        let [short, long] = [2, 3].map(Duration::from_secs);
        assert_eq!(Limit::of(Some(short), Some(long)), Limit::Deadline(short));
        assert_eq!(Limit::of(Some(long), Some(short)), Limit::Build(short));
        assert_eq!(Limit::of(Some(short), None), Limit::Deadline(short));
        assert_eq!(Limit::of(None, Some(short)), Limit::Build(short));
        assert_eq!(Limit::of(None, None).seconds(), 0);
        assert_eq!(Limit::of(Some(Duration::ZERO), None).seconds(), 1);
    }
}
