//! rdma-core's tests, which are Python unittests on pyverbs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::door::{DEVICE, Door, Ended, Link};
use super::reasons::{self, Unused};
use super::rows::{Outcome, Reason, Row};
use super::suites;
use crate::failure::Failure;
use crate::wire::Host;

/// Debian packages that the tests need.
const PACKAGES: [&str; 6] = [
    "python3-pyverbs",
    "python3-scapy",
    "ibverbs-providers",
    "ibverbs-utils",
    "perftest",
    "ucx-utils",
];

/// Folder of the tests in python3-pyverbs.
const TESTS: &str = "/usr/share/doc/rdma-core/tests";

/// The Python that python3-pyverbs is built for; the first in the path may be another.
const PYTHON: &str = "/usr/bin/python3";

/// Credentials for the tests of block encryption. Without credentials those tests skip themselves
/// before they query whether the device can encrypt.
const CREDENTIALS: (&str, &str) = ("credentials", r#"[{"credential": [0, 0, 0, 0]}]"#);

/// Time limit of a module.
const SECONDS: u32 = 300;

/// Lets the simulated kernel create queue pairs of raw packets.
const RAW: &str = ",raw=on";

/// Modules that need a shared machine: a test uses an object of its parent in a child process, or
/// runs two processes that connect.
const FORKING: [&str; 2] = ["test_device", MANAGED];

/// The module that connects by the address of a port. Its tests query the kernel for the address of
/// the device's network interface; the simulated device has no interface, so the script that starts
/// the tests supplies the address.
pub(super) const MANAGED: &str = "test_rdmacm";

/// The module's programs post a receive only after they have sent, and try five times to send to a
/// peer that has none. The connection manager asks for 655 ms between two tries.
const PATIENT: &str = ",longest_timer=100ms";

/// The script's path and text. The script supplies the address of the first simulated port.
const ADDRESSED: (&str, &str) = (
    "tests/addressed.py",
    "import os, runpy
from importlib.machinery import SourceFileLoader
folder = os.path.dirname(__file__)
SourceFileLoader('tests', os.path.join(folder, '__init__.py')).load_module()
from tests.base import RDMATestCase
RDMATestCase._get_ip_mac = lambda self, device, port, gid: self.args.append(
    [device, port, gid, '10.0.0.1', None])
runpy.run_path(os.path.join(folder, 'run_tests.py'), run_name='__main__')
",
);

/// Modules that are left out, and why.
pub(crate) const LEFT_OUT: [(&str, &str); 5] = [
    ("test_cuda_dmabuf", "needs a GPU"),
    ("test_mlx5_cuda_umem", "needs a GPU"),
    ("test_efa_srd", "is for another vendor's device"),
    ("test_efadv", "is for another vendor's device"),
    ("test_mlx5_vfio", "takes the device from the kernel"),
];

/// Names and versions of the packages, or the command that installs the missing ones.
pub(super) fn peers() -> Result<Vec<String>, Failure> {
    let mut found = Vec::new();
    let mut missing = Vec::new();
    for package in PACKAGES {
        let output = Command::new("dpkg-query")
            .args(["--show", "--showformat=${db:Status-Status} ${Version}", package])
            .output()
            .map_err(|error| Failure::Run { program: "dpkg-query".to_owned(), error })?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        match said.strip_prefix("installed ") {
            Some(version) => found.push(format!("{package} {version}")),
            None => missing.push(package),
        }
    }
    if !missing.is_empty() {
        let install = format!("apt-get install --no-install-recommends {}", missing.join(" "));
        return Err(Failure::Missing(install));
    }
    if !Path::new(TESTS).is_dir() {
        // Small images leave out documentation, and with it the tests.
        return Err(Failure::Missing(format!(
            "apt-get install --reinstall -o 'DPkg::Options::=--path-include={TESTS}/*' {}",
            PACKAGES[0]
        )));
    }
    Ok(found)
}

/// The tests, unpacked.
#[derive(Debug)]
pub(super) struct Suite {
    folder: PathBuf,
    modules: Vec<String>,
}

impl Suite {
    /// Unpacks the tests to a folder that is removed when this value is dropped.
    pub(super) fn unpack() -> Result<Self, Failure> {
        let folder = std::env::temp_dir().join(format!("mlx5-ledger-{}", std::process::id()));
        let mut suite = Self { folder, modules: Vec::new() };
        let tests = suite.folder.join("tests");
        let at = |path: &Path| {
            let path = path.to_owned();
            move |error| Failure::File { path, error }
        };
        fs::create_dir_all(&tests).map_err(at(&tests))?;
        let mut packed = Vec::new();
        for entry in fs::read_dir(TESTS).map_err(at(Path::new(TESTS)))? {
            let entry = entry.map_err(at(Path::new(TESTS)))?;
            let to = tests.join(entry.file_name());
            if entry.path().is_file() {
                fs::copy(entry.path(), &to).map_err(at(&to))?;
            }
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.ends_with(".gz") {
                packed.push(to);
            }
            let module = name.strip_suffix(".gz").unwrap_or(&name).strip_suffix(".py");
            let left_out = |module: &&str| LEFT_OUT.iter().any(|(name, _)| name == module);
            suite.modules.extend(
                module
                    .filter(|module| module.starts_with("test_"))
                    .filter(|module| !left_out(module))
                    .map(str::to_owned),
            );
        }
        suite.modules.sort();
        let credentials = suite.folder.join(CREDENTIALS.0);
        fs::write(&credentials, CREDENTIALS.1).map_err(at(&credentials))?;
        let addressed = suite.folder.join(ADDRESSED.0);
        fs::write(&addressed, ADDRESSED.1).map_err(at(&addressed))?;
        if !packed.is_empty() {
            let status = Command::new("gzip")
                .arg("--decompress")
                .args(&packed)
                .status()
                .map_err(|error| Failure::Run { program: "gzip".to_owned(), error })?;
            if !status.success() {
                return Err(Failure::Status { program: "gzip".to_owned(), status });
            }
        }
        Ok(suite)
    }

    /// Names of the modules, in order.
    pub(super) fn modules(&self) -> &[String] {
        &self.modules
    }

    /// Starts one module on one link, with `machine`'s settings and `more` in the environment.
    fn start(
        &self,
        door: &Door,
        link: Link,
        module: &str,
        [machine, more]: [&str; 2],
    ) -> Result<Ended, Failure> {
        let about_machine = format!("{}{machine}", link.settings);
        let name = format!("tests.{module}");
        let credentials = self.folder.join(CREDENTIALS.0);
        let credentials = format!("MLX5_CRYPTO_TEST_INFO={}", credentials.display());
        let script = if module == MANAGED { ADDRESSED.0 } else { "tests/run_tests.py" };
        let arguments = [&*credentials, PYTHON, script, "--dev", DEVICE, "-v", &name];
        let machine = match FORKING.contains(&module) {
            true => Some(door.machine(&about_machine, link)?),
            false => None,
        };
        let mut settings = machine.as_ref().map_or(about_machine, Host::settings);
        settings.push_str(more);
        door.start(&settings, &self.folder, SECONDS, "env", &arguments)?.wait()
    }

    /// Runs one module on one link; returns its report with the simulated kernel's trace of each
    /// call, or the reason why there is none to compare.
    pub(super) fn traced(
        &self,
        door: &Door,
        link: Link,
        module: &str,
    ) -> Result<Result<String, String>, Failure> {
        let ended = self.start(door, link, module, [RAW, ",trace"])?;
        let trouble = ended.trouble.as_deref();
        let found = results(&ended.stderr, trouble).len();
        let trouble = incomplete(&ended.stderr, found, trouble)
            .or_else(|| ended.violations.first().map(|what| format!("a violation: {what}")));
        Ok(match trouble {
            None => Ok(ended.stderr_with_simulator),
            Some(trouble) => Err(format!("{module} ({}): {trouble}", link.name)),
        })
    }

    /// Runs one module on one link.
    pub(super) fn run(
        &self,
        door: &Door,
        link: Link,
        module: &str,
        unused: &mut Unused,
    ) -> Result<Vec<Row>, Failure> {
        let settings = if module == MANAGED { format!("{RAW}{PATIENT}") } else { RAW.to_owned() };
        let ended = self.start(door, link, module, [&settings, ""])?;
        let row = |(test, outcome, said): (String, Outcome, String)| Row {
            suite: suites::PYVERBS,
            link: link.name,
            provider: door.provider,
            outcome,
            reason: reasons::explain(&test, outcome, &said, unused),
            test,
        };
        let violations = &ended.violations;
        let trouble = ended.trouble.as_deref();
        let found = results(&ended.stderr, trouble);
        let trouble = incomplete(&ended.stderr, found.len(), trouble);
        let mut rows: Vec<Row> = found.into_iter().map(row).collect();
        if !violations.is_empty() {
            rows.push(Row::of_violations(
                suites::PYVERBS,
                Some(module),
                link.name,
                door.provider,
                violations,
            ));
        }
        if let Some(trouble) = trouble {
            rows.push(Row {
                suite: suites::PYVERBS,
                test: module.to_owned(),
                link: link.name,
                provider: door.provider,
                outcome: Outcome::Error,
                reason: Some(Reason::Unexplained(trouble)),
            });
        }
        Ok(rows)
    }
}

impl Drop for Suite {
    fn drop(&mut self) {
        // A folder left in the temporary directory does no harm.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Result of a test that did not run through the preload door, in the ledger's form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TestResult {
    pub(crate) test: String,
    /// Outcome, as the ledger names it.
    pub(crate) result: &'static str,
    /// Empty for a test that passed.
    pub(crate) reason: String,
    /// Whether no known reason explains the outcome.
    pub(crate) unexplained: bool,
}

/// Results in the verbose report of a virtual machine. `trouble` is the error that ended its
/// process, if one did.
pub(crate) fn test_results(report: &str, trouble: Option<&str>) -> Vec<TestResult> {
    let found = results(report, trouble);
    let incomplete = incomplete(report, found.len(), trouble);
    let one = |(test, outcome, said): (String, Outcome, String)| {
        let reason = reasons::in_a_machine(&test, outcome, &said);
        let unexplained = matches!(reason, Some(Reason::Unexplained(_)));
        let reason = match reason {
            None => String::new(),
            Some(Reason::Known { why, .. }) => why.to_owned(),
            Some(Reason::Unexplained(said)) => said,
        };
        // The rows of a machine do not distinguish failures and errors.
        let result = if outcome == Outcome::Error { Outcome::Fail.name() } else { outcome.name() };
        TestResult { test, result, reason, unexplained }
    };
    let whole = "the tests as a whole".to_owned();
    found
        .into_iter()
        .chain(incomplete.map(|trouble| (whole, Outcome::Error, trouble)))
        .map(one)
        .collect()
}

/// The problem if the report is incomplete: the module crashed, has no test, or its report could
/// not be parsed.
fn incomplete(report: &str, found: usize, trouble: Option<&str>) -> Option<String> {
    let all = found > 0 && ran(report).is_some_and(|ran| found >= ran);
    (!all).then(|| trouble.unwrap_or("the report lacks some tests").to_owned())
}

/// The line between the report's parts, and between failures.
const DOUBLE_RULE: &str =
    "======================================================================\n";

/// Number of tests that the report states.
fn ran(report: &str) -> Option<usize> {
    let line = report.lines().rev().find_map(|line| line.strip_prefix("Ran "))?;
    line.split(' ').next()?.parse().ok()
}

/// Test, outcome and message of each test in a verbose report.
fn results(report: &str, trouble: Option<&str>) -> Vec<(String, Outcome, String)> {
    let mut parts = report.split(DOUBLE_RULE);
    let listing = parts.next().unwrap_or_default();
    let failures: Vec<(String, String)> = parts.filter_map(failure).collect();

    let mut found: Vec<(String, Option<(Outcome, String)>)> = Vec::new();
    for line in listing.lines() {
        if let Some(test) = header(line) {
            found.push((test, None));
        }
        if let Some((_, outcome)) = found.last_mut().filter(|(_, outcome)| outcome.is_none()) {
            *outcome = line.rsplit(" ... ").next().and_then(verdict);
        }
    }
    let unfinished = || (Outcome::Error, trouble.unwrap_or("has not said how it ended").to_owned());
    found
        .into_iter()
        .map(|(test, result)| {
            let (outcome, mut said) = result.unwrap_or_else(unfinished);
            if let Some((_, message)) = failures.iter().find(|(failed, _)| *failed == test) {
                said.clone_from(message);
            }
            (test, outcome, said)
        })
        .collect()
}

/// Name of the test in a line like `test_a (tests.test_b.C.test_a) ... ok`, as `test_b.C.test_a`.
pub(super) fn header(line: &str) -> Option<String> {
    let (method, rest) = line.split_once(" (")?;
    let (path, _) = rest.split_once(')')?;
    let path = path.strip_prefix("tests.").or_else(|| path.strip_prefix("unittest."))?;
    let name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if method.is_empty() || !method.chars().all(name) {
        return None;
    }
    // Python before 3.11 leaves the method out.
    let whole = path.rsplit('.').next() == Some(method);
    Some(if whole { path.to_owned() } else { format!("{path}.{method}") })
}

/// Outcome and message at the end of a test's line.
fn verdict(word: &str) -> Option<(Outcome, String)> {
    match word.trim() {
        "ok" | "expected failure" => Some((Outcome::Pass, String::new())),
        "FAIL" | "unexpected success" => Some((Outcome::Fail, String::new())),
        "ERROR" => Some((Outcome::Error, String::new())),
        skipped => {
            let quoted = skipped.strip_prefix("skipped ")?;
            let quote = quoted.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
            let said = quoted.strip_prefix(quote)?.strip_suffix(quote)?;
            Some((Outcome::Skip, said.replace("\\'", "'")))
        }
    }
}

/// Test and message of one failure in the report. The message is the line after the last traceback.
fn failure(part: &str) -> Option<(String, String)> {
    let (first, rest) = part.split_once('\n')?;
    let title = first.strip_prefix("ERROR: ").or_else(|| first.strip_prefix("FAIL: "))?;
    let traceback = rest.rsplit("Traceback (most recent call last):\n").next()?;
    let said = traceback.lines().find(|line| !line.starts_with(' '))?;
    Some((header(title)?, said.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "\
test_ok (tests.test_a.A.test_ok) ... ok
test_skipped (tests.test_a.A.test_skipped)
What it is for. ... skipped \"Device doesn't have it\"
test_noisy (tests.test_a.A.test_noisy) ... a child says this
ok
test_old (tests.test_a.A) ... FAIL
test_bad (tests.test_a.A.test_bad) ... ERROR

======================================================================
FAIL: test_old (tests.test_a.A)
----------------------------------------------------------------------
Traceback (most recent call last):
  File \"a.py\", line 1, in test_old
    first()
KeyError: 1

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File \"a.py\", line 2, in test_old
AssertionError: 25 != 0

======================================================================
ERROR: test_bad (tests.test_a.A.test_bad)
Verify it.
----------------------------------------------------------------------
Traceback (most recent call last):
  File \"a.py\", line 3, in test_bad
ValueError: no

----------------------------------------------------------------------
Ran 5 tests in 0.1s

FAILED (failures=1, errors=1, skipped=1)
";

    #[test]
    fn report_has_test_outcome_and_message() {
        let found = results(REPORT, None);
        let found: Vec<(&str, Outcome, &str)> =
            found.iter().map(|(test, outcome, said)| (&test[..], *outcome, &said[..])).collect();
        assert_eq!(
            found,
            [
                ("test_a.A.test_ok", Outcome::Pass, ""),
                ("test_a.A.test_skipped", Outcome::Skip, "Device doesn't have it"),
                ("test_a.A.test_noisy", Outcome::Pass, ""),
                ("test_a.A.test_old", Outcome::Fail, "AssertionError: 25 != 0"),
                ("test_a.A.test_bad", Outcome::Error, "ValueError: no"),
            ]
        );
        assert_eq!(ran(REPORT), Some(5));
    }

    #[test]
    fn a_report_of_a_machine_is_rows_and_says_what_is_not_explained() {
        let found = test_results(REPORT, Some("exit status 1"));
        let found: Vec<(&str, &str, bool)> =
            found.iter().map(|one| (&one.test[..], one.result, one.unexplained)).collect();
        assert_eq!(
            found,
            [
                ("test_a.A.test_ok", "pass", false),
                ("test_a.A.test_skipped", "skip", true),
                ("test_a.A.test_noisy", "pass", false),
                ("test_a.A.test_old", "fail", true),
                ("test_a.A.test_bad", "fail", true),
            ]
        );
    }

    #[test]
    fn a_machines_report_that_ends_early_has_failed() {
        let found = test_results("test_a (tests.test_a.A.test_a) ... ok\n", Some("signal 9"));
        assert_eq!((found.len(), found[1].result, &found[1].reason[..]), (2, "fail", "signal 9"));
        assert_eq!(super::test_results("", None)[0].result, "fail");
    }

    #[test]
    fn a_test_in_which_the_process_ended_is_an_error() {
        let report = "test_a (tests.test_a.A.test_a) ... ok\ntest_b (tests.test_a.A.test_b) ... ";
        let found = results(report, Some("ended by signal 11"));
        assert_eq!(found[1].1, Outcome::Error);
        assert_eq!(found[1].2, "ended by signal 11");
        assert_eq!(ran(report), None);
    }
}
