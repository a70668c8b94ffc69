//! `cargo xtask suites`: runs the tests of other crates over C's libibverbs and over ours.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::build;
use crate::failure::Failure;
use crate::ledger::door::Door;
use crate::provider::Provider;
use crate::verbs;

/// Run the tests of crates that use libibverbs over C's library and over ours, and compare
///
/// The crates must be cloned already, and are not changed. `cargo test --no-run` builds their tests
/// in their folders, once. Each test, also one marked as ignored because it needs a device, then
/// runs by itself over either library, on a simulated device of its own. The task fails if a test
/// passes less than half as often over ours as over C's library; a test that passes less often
/// first runs ten more times, because some wait for a fixed time. It also fails if no test passes
/// over C's library. Tests in documentation do not run.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Folders of the crates
    #[arg(required = true, value_name = "FOLDER")]
    folders: Vec<PathBuf>,

    /// Settings of the device, for MLX5_SIM
    ///
    /// The crates test connections at 127.0.0.1 because they know no other address.
    #[arg(long, short, value_name = "LIST", default_value = "link=roce,ipv4=127.0.0.1")]
    sim: String,

    /// Number of runs of each test over either library
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,

    /// Run only tests whose names contain this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,

    /// Skip tests whose names contain this; may be given more than once
    #[arg(long, value_name = "TEXT")]
    skip: Vec<String>,

    /// Arguments of `cargo test --no-run`, such as --all-features
    #[arg(last = true, value_name = "ARGUMENTS")]
    cargo: Vec<OsString>,
}

impl Arguments {
    /// Whether a test is to run.
    fn wants(&self, test: &str) -> bool {
        let has = |text: &String| test.contains(text.as_str());
        self.only.as_ref().is_none_or(has) && !self.skip.iter().any(has)
    }
}

/// Time limit of a test. The longest wait in these crates is ten seconds.
const SECONDS: u32 = 60;
/// Number of further runs of a test that passes more often over C's library.
const DOUBTS: u32 = 10;

/// Builds the tests, runs them, and compares the results.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let ours = Door::build(Provider::Rust)?;
    let folder = verbs::build()?;
    let (mut worse, mut passed) = (Vec::new(), 0);
    for crate_folder in &arguments.folders {
        if !crate_folder.join("Cargo.toml").is_file() {
            return Err(Failure::Unknown(format!("{} has no crate", crate_folder.display())));
        }
        for program in programs(crate_folder, &arguments.cargo)? {
            verbs::takes(&program.path, &folder)?;
            let tests = program.tests(&ours)?;
            let tests: Vec<_> = tests.into_iter().filter(|test| arguments.wants(test)).collect();
            let mut counts = Vec::with_capacity(tests.len());
            for test in tests {
                let mut compared = Compared { test, ..Compared::default() };
                // The libraries alternate, so that a machine that is busy for a while affects both.
                while compared.is_to_run(arguments.runs) {
                    let over_c =
                        program.passes(&ours.over(Provider::C), arguments, &compared.test)?;
                    let over_ours = program.passes(&ours, arguments, &compared.test)?;
                    compared.count(over_c, over_ours);
                }
                if !compared.always_passes() {
                    println!("  {compared}");
                }
                counts.push(compared);
            }
            println!("{}: {}", program.name, tally(&counts));
            passed += counts.iter().filter(|compared| compared.c > 0).count();
            let named = |compared: &Compared| format!("{}: {compared}", program.name);
            worse.extend(counts.iter().filter(|compared| compared.is_worse()).map(named));
        }
    }
    if passed == 0 {
        return Err(Failure::Unknown(
            "no test passes over C's library: nothing was compared".into(),
        ));
    }
    if worse.is_empty() { Ok(()) } else { Err(Failure::OverOurs(worse)) }
}

/// A program with tests.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    name: String,
    path: PathBuf,
    /// Folder in which Cargo runs it.
    folder: PathBuf,
}

/// Builds the tests of a crate.
fn programs(folder: &Path, arguments: &[OsString]) -> Result<Vec<Program>, Failure> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(folder).args(["test", "--no-run"]).args(arguments);
    command.arg("--message-format=json-render-diagnostics");
    let mut programs: Vec<_> = build::artifacts(command)?.iter().filter_map(Program::of).collect();
    // Cargo's order is not stable.
    programs.sort_by(|one, other| one.path.cmp(&other.path));
    if programs.is_empty() {
        return Err(Failure::NotBuilt(format!("tests in {}", folder.display())));
    }
    Ok(programs)
}

impl Program {
    /// The test program in one of Cargo's messages, if the message is about one.
    fn of(message: &Value) -> Option<Self> {
        if message["profile"]["test"] != true {
            return None;
        }
        Some(Self {
            name: message["target"]["name"].as_str()?.to_owned(),
            path: message["executable"].as_str()?.into(),
            folder: Path::new(message["manifest_path"].as_str()?).parent()?.to_owned(),
        })
    }

    /// Names of its tests.
    fn tests(&self, door: &Door) -> Result<Vec<String>, Failure> {
        let arguments = ["--list", "--format", "terse"];
        let ended = door.start("off", &self.folder, SECONDS, &self.path, &arguments)?.wait()?;
        match ended.trouble {
            None => Ok(listed(&ended.stdout)),
            Some(what) => Err(Failure::Output {
                program: self.name.clone(),
                what: format!("no list of tests: {what}"),
            }),
        }
    }

    /// Whether a test passes without a violation by the driver.
    fn passes(&self, door: &Door, arguments: &Arguments, test: &str) -> Result<bool, Failure> {
        let only = [test, "--exact", "--include-ignored", "--test-threads", "1"];
        let ended = door.start(&arguments.sim, &self.folder, SECONDS, &self.path, &only)?.wait()?;
        Ok(ended.trouble.is_none() && ended.violations.is_empty())
    }
}

/// Tests in a program's list.
fn listed(said: &str) -> Vec<String> {
    said.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}

/// A test, over either library.
#[derive(Default, Debug)]
struct Compared {
    test: String,
    runs: u32,
    /// Number of runs that passed over C's library.
    c: u32,
    /// Number of runs that passed over ours.
    rust: u32,
}

impl Compared {
    fn count(&mut self, over_c: bool, over_ours: bool) {
        self.runs += 1;
        self.c += u32::from(over_c);
        self.rust += u32::from(over_ours);
    }

    /// Whether it is to run once more. Some tests wait for the device for a fixed time, and fail
    /// now and then over either library; so if ours passed less often, the test runs again until
    /// chance is unlikely.
    fn is_to_run(&self, runs: u32) -> bool {
        let in_doubt = self.rust < self.c || self.runs > runs;
        self.runs < runs || (in_doubt && self.runs < runs.saturating_add(DOUBTS))
    }

    fn always_passes(&self) -> bool {
        self.c == self.runs && self.rust == self.runs
    }

    fn is_worse(&self) -> bool {
        self.rust * 2 < self.c
    }
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { test, runs, c, rust } = self;
        write!(f, "{test}: passes over C's library in {c} of {runs} runs, over ours in {rust}")
    }
}

/// Number of tests that passed in every run.
fn tally(tests: &[Compared]) -> String {
    let over_c = tests.iter().filter(|test| test.c == test.runs).count();
    let over_ours = tests.iter().filter(|test| test.rust == test.runs).count();
    format!("{} tests; {over_c} pass over C's library, {over_ours} over ours", tests.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(c: u32, rust: u32) -> Compared {
        Compared { test: "main".into(), runs: 3, c, rust }
    }

    #[test]
    fn tests_are_listed_and_benchmarks_are_not() {
        let said = "a::b: test\nmain::case_1: test\nfast: benchmark\n\n2 tests, 1 benchmark\n";
        assert_eq!(listed(said), ["a::b", "main::case_1"]);
    }

    #[test]
    fn test_programs_are_distinguished_from_others() {
        let mut message = serde_json::json!({
            "profile": { "test": true },
            "target": { "name": "loopback" },
            "executable": "/t/loopback-1",
            "manifest_path": "/c/ibverbs/Cargo.toml",
        });
        let program = Program::of(&message).expect("a program");
        assert_eq!(program.name, "loopback");
        assert_eq!((program.path, program.folder), ("/t/loopback-1".into(), "/c/ibverbs".into()));
        message["profile"]["test"] = false.into();
        assert_eq!(Program::of(&message), None);
        message["profile"]["test"] = true.into();
        message["executable"] = Value::Null;
        assert_eq!(Program::of(&message), None);
    }

    #[test]
    fn a_test_is_worse_if_it_passes_less_than_half_as_often() {
        for (c, rust) in [(3, 0), (1, 0), (3, 1)] {
            assert!(compared(c, rust).is_worse(), "{c} {rust}");
        }
        for (c, rust) in [(3, 3), (0, 0), (0, 3), (3, 2), (2, 1)] {
            assert!(!compared(c, rust).is_worse(), "{c} {rust}");
        }
        assert!(compared(3, 3).always_passes());
        assert!(!compared(3, 2).always_passes() && !compared(0, 0).always_passes());
    }

    #[test]
    fn a_test_in_doubt_is_run_ten_more_times() {
        let mut good = Compared::default();
        good.count(true, true);
        assert!(!good.is_to_run(1) && good.is_to_run(2));
        let mut test = Compared::default();
        test.count(true, false);
        while test.is_to_run(1) {
            test.count(true, test.runs % 10 == 1);
        }
        assert_eq!((test.runs, test.rust), (1 + DOUBTS, 1));
        assert!(test.is_worse(), "one pass in ten is no pass");
        let mut worse = Compared::default();
        while worse.is_to_run(2) {
            worse.count(true, false);
        }
        assert_eq!(worse.runs, 2 + DOUBTS);
    }

    #[test]
    fn the_tally_counts_those_that_pass_each_time() {
        let tests = [compared(3, 3), compared(3, 2), compared(0, 0)];
        assert_eq!(tally(&tests), "3 tests; 2 pass over C's library, 1 over ours");
    }
}
