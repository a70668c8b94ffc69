//! The report of a run on a real device: one text file that can be sent to others.

use crate::bed::Place;
use crate::ledger::{Facts, Outcome};
use crate::mask::Mask;
use crate::plan;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::panic;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The kernel's log, one record a read.
const KERNEL_LOG: &str = "/dev/kmsg";
/// Number of cases among the slowest.
const SLOWEST: usize = 10;

/// Texts of the panics of this process, each with its place.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Everything that a report needs from the time of the run.
pub(crate) struct Report {
    mask: Mask,
    start: Instant,
    times: Mutex<BTreeMap<String, Duration>>,
    /// The kernel's log, at the position at which it was when the run began.
    kernel: io::Result<File>,
}

impl Report {
    /// Begins to record. The report will mask the name of the other host, and the GUIDs.
    pub(crate) fn begin(peer: Option<&str>, guids: &[String]) -> Self {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICS.lock().unwrap_or_else(PoisonError::into_inner).push(info.to_string());
            before(info);
        }));
        let mut hosts: Vec<_> = peer.map(str::to_owned).into_iter().collect();
        if let Ok(names) = nix::sys::utsname::uname() {
            hosts.push(names.nodename().to_string_lossy().into_owned());
        }
        Self {
            mask: Mask::new(&hosts, guids),
            start: Instant::now(),
            times: Mutex::default(),
            kernel: end_of_kernel_log(),
        }
    }

    /// Records the time that a case took.
    pub(crate) fn took(&self, case: &str, time: Duration) {
        self.times.lock().unwrap_or_else(PoisonError::into_inner).insert(case.to_owned(), time);
    }

    /// Writes `path.report.txt`.
    pub(crate) fn write(
        &self,
        path: &Path,
        facts: &Facts,
        link: &str,
        outcomes: &BTreeMap<String, Outcome>,
    ) -> Result<(), String> {
        let path = path.with_extension("report.txt");
        let kernel = match &self.kernel {
            Ok(log) => new_records(log),
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
        };
        let parts = Parts {
            facts,
            link,
            outcomes,
            whole: self.start.elapsed(),
            times: &self.times.lock().unwrap_or_else(PoisonError::into_inner),
            panics: &PANICS.lock().unwrap_or_else(PoisonError::into_inner),
            kernel: kernel.map_err(|error| error.to_string()),
        };
        let text = self.mask.apply(&parts.text());
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
    }
}

/// The contents of a report, not masked yet.
struct Parts<'a> {
    facts: &'a Facts,
    link: &'a str,
    outcomes: &'a BTreeMap<String, Outcome>,
    whole: Duration,
    times: &'a BTreeMap<String, Duration>,
    panics: &'a [String],
    kernel: Result<Vec<String>, String>,
}

impl Parts<'_> {
    fn text(&self) -> String {
        let mut text = String::from(
            "mlx5 conformance: report of a run on a real device\n\n\
             You can send this file as it is. Names of hosts, GUIDs, and MAC and IP addresses are\n\
             masked: HOST, GUID, MAC, IP. docs/HARDWARE.md says to whom.\n\n",
        );
        for (name, value) in self.facts {
            push(&mut text, format_args!("{name}: {value}"));
        }
        push(&mut text, format_args!("link: {}", self.link));
        push(&mut text, format_args!("architecture: {}", std::env::consts::ARCH));
        push(&mut text, format_args!("time: {:.1} s", self.whole.as_secs_f64()));
        let mut skipped: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut failed = Vec::new();
        for (case, outcome) in self.outcomes {
            match outcome {
                Outcome::Pass => {}
                Outcome::Skip(why) => skipped.entry(why).or_default().push(case),
                Outcome::Fail(why) => failed.push((case, why)),
            }
        }
        let skips = skipped.values().map(Vec::len).sum::<usize>();
        let passes = self.outcomes.len() - failed.len() - skips;
        let counts = format_args!("{passes} pass, {} fail, {skips} skip", failed.len());
        push(&mut text, format_args!("cases: {counts}"));

        text.push_str("\nFailures\n");
        for (case, why) in &failed {
            let time = self.times.get(*case).copied().unwrap_or_default();
            push(&mut text, format_args!("  {case}, after {:.1} s", time.as_secs_f64()));
            indented(&mut text, why);
            plan::known_risk(case).iter().for_each(|risk| indented(&mut text, risk));
        }
        none(&mut text, failed.is_empty());

        text.push_str("\nPanics, in order\n");
        self.panics.iter().for_each(|panic| indented(&mut text, panic));
        none(&mut text, self.panics.is_empty());

        text.push_str("\nSlowest cases\n");
        let mut slowest: Vec<_> = self.times.iter().collect();
        slowest.sort_by(|a, b| b.1.cmp(a.1));
        for (case, time) in slowest.iter().take(SLOWEST) {
            push(&mut text, format_args!("  {:.1} s {case}", time.as_secs_f64()));
        }
        none(&mut text, slowest.is_empty());

        text.push_str("\nSkipped\n");
        for (why, cases) in &skipped {
            push(&mut text, format_args!("  {}: {why}", cases.len()));
            // Their names say nothing about this device.
            if *why != plan::SIMULATED_ALONE {
                cases.iter().for_each(|case| push(&mut text, format_args!("    {case}")));
            }
        }
        none(&mut text, skipped.is_empty());

        text.push_str("\nKernel log about mlx5 since the start\n");
        match &self.kernel {
            Ok(lines) => {
                lines.iter().for_each(|line| push(&mut text, format_args!("  {line}")));
                none(&mut text, lines.is_empty());
            }
            Err(error) => {
                push(&mut text, format_args!("  not readable ({KERNEL_LOG}: {error}): run the"));
                text.push_str(
                    "  suite as root, or add the lines of `sudo dmesg`; mask them first\n",
                );
            }
        }
        text
    }
}

/// Adds a line.
fn push(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("a string takes all");
}

/// Adds the lines of a text, indented.
fn indented(text: &mut String, lines: &str) {
    lines.lines().for_each(|line| push(text, format_args!("    {line}")));
}

/// Says that a section is empty.
fn none(text: &mut String, is_empty: bool) {
    if is_empty {
        text.push_str("  none\n");
    }
}

/// State, speed and MTU of the port.
pub(crate) fn link(place: &Place) -> Result<String, String> {
    let context = place.device.open().map_err(|error| error.to_string())?;
    let port = context.query_port(place.port).map_err(|error| error.to_string())?;
    let lanes = port.active_width.map_or_else(|| "unknown width".to_owned(), |n| format!("{n}X"));
    let speed = port.active_speed.map_or_else(|| "unknown speed".to_owned(), |s| s.to_string());
    let mtu = port.active_mtu.map(mlx5::mtu_bytes);
    let mtu = mtu.map_or_else(|| "unknown MTU".to_owned(), |bytes| format!("MTU {bytes}"));
    Ok(format!("{:?}, {lanes} {speed}, {mtu}", port.state))
}

/// Opens the kernel's log, for the records that it does not have yet.
fn end_of_kernel_log() -> io::Result<File> {
    let mut options = OpenOptions::new();
    let mut log = options.read(true).custom_flags(nix::libc::O_NONBLOCK).open(KERNEL_LOG)?;
    log.seek(SeekFrom::End(0))?;
    Ok(log)
}

/// The lines about mlx5 among the records that came since the log was opened.
fn new_records(log: &File) -> io::Result<Vec<String>> {
    let mut reader = log;
    let (mut lines, mut record) = (Vec::new(), [0; 8192]);
    loop {
        match reader.read(&mut record) {
            Ok(0) => return Ok(lines),
            Ok(length) => lines.extend(line(&String::from_utf8_lossy(&record[..length]))),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock => return Ok(lines),
                ErrorKind::Interrupted => {}
                // The kernel has overwritten records; the next read gets the oldest one.
                ErrorKind::BrokenPipe => lines.push("(lines are missing here)".to_owned()),
                _ => return Err(error),
            },
        }
    }
}

/// The line of a record `priority,number,microseconds,flags;line`, if it is about mlx5.
fn line(record: &str) -> Option<String> {
    let (head, text) = record.split_once(';')?;
    let text = text.lines().next()?;
    let time = head.split(',').nth(2)?.parse::<u64>().ok()?;
    let seconds = Duration::from_micros(time).as_secs_f64();
    text.contains("mlx5").then(|| format!("[{seconds:.6}] {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_of_the_kernel_gives_its_line_if_it_is_about_mlx5() {
        let record = "3,1042,17382508075,-;mlx5_core 0000:03:00.0: failed\n SUBSYSTEM=pci\n";
        assert_eq!(line(record).as_deref(), Some("[17382.508075] mlx5_core 0000:03:00.0: failed"));
        assert_eq!(line("6,1043,17382508081,-;overlayfs: in use\n"), None);
        assert_eq!(line("6,1043,17382508081,-;other\n DEVICE=mlx5_0\n"), None);
        assert_eq!(line("no record of mlx5"), None);
    }

    fn parts<'a>(
        facts: &'a Facts,
        outcomes: &'a BTreeMap<String, Outcome>,
        times: &'a BTreeMap<String, Duration>,
        kernel: Result<Vec<String>, String>,
    ) -> Parts<'a> {
        let (link, panics) = ("Active, 4X EDR, MTU 4096", &[][..]);
        Parts { facts, link, outcomes, whole: Duration::from_secs(61), times, panics, kernel }
    }

    #[test]
    fn report_has_failures_skips_times_and_kernel_lines() {
        let facts = vec![("device", "mlx5_0:1".to_owned()), ("kernel", "6.1.0".to_owned())];
        let outcomes = BTreeMap::from([
            ("a::holds".to_owned(), Outcome::Pass),
            ("b::fails".to_owned(), Outcome::Fail("first\nsecond".to_owned())),
            ("c::skips".to_owned(), Outcome::Skip("one port".to_owned())),
            ("d::skips".to_owned(), Outcome::Skip("one port".to_owned())),
            ("e::simulated".to_owned(), Outcome::Skip(plan::SIMULATED_ALONE.to_owned())),
        ]);
        let times = BTreeMap::from([
            ("a::holds".to_owned(), Duration::from_secs(4)),
            ("b::fails".to_owned(), Duration::from_millis(1500)),
        ]);
        let kernel = Ok(vec!["[1.0] mlx5_core: x".to_owned()]);
        let text = parts(&facts, &outcomes, &times, kernel).text();
        for expected in [
            "You can send this file as it is.",
            "device: mlx5_0:1\nkernel: 6.1.0\nlink: Active, 4X EDR, MTU 4096\narchitecture: ",
            "time: 61.0 s\ncases: 1 pass, 1 fail, 3 skip\n",
            "Failures\n  b::fails, after 1.5 s\n    first\n    second\n\nPanics, in order\n  none\n",
            "Slowest cases\n  4.0 s a::holds\n  1.5 s b::fails\n",
            "Skipped\n  1: needs controls that only a simulated device has\n  2: one port\n",
            "  2: one port\n    c::skips\n    d::skips\n",
            "Kernel log about mlx5 since the start\n  [1.0] mlx5_core: x\n",
        ] {
            assert!(text.contains(expected), "no {expected:?} in:\n{text}");
        }
        assert!(!text.contains("e::simulated"), "{text}");
    }

    #[test]
    fn failure_of_a_risky_case_is_marked_as_a_known_risk() {
        let (facts, times) = (Facts::new(), BTreeMap::new());
        let fail = || Outcome::Fail("wrong".to_owned());
        let names = ["memory::b".to_owned(), "retries::a".to_owned()];
        let outcomes = BTreeMap::from(names.map(|name| (name, fail())));
        let text = parts(&facts, &outcomes, &times, Ok(Vec::new())).text();
        let expected = "retries::a, after 0.0 s\n    wrong\n    known risk: the shortest timeout";
        assert!(text.contains(expected), "{text}");
        assert_eq!(text.matches("known risk").count(), 1, "{text}");
    }

    #[test]
    fn report_says_why_it_lacks_the_kernel_log() {
        let (facts, outcomes, times) = (Facts::new(), BTreeMap::new(), BTreeMap::new());
        let refused = Err("Operation not permitted".to_owned());
        let text = parts(&facts, &outcomes, &times, refused).text();
        assert!(text.contains("not readable (/dev/kmsg: Operation not permitted)"), "{text}");
        let text = parts(&facts, &outcomes, &times, Ok(Vec::new())).text();
        assert!(text.ends_with("since the start\n  none\n"), "{text}");
    }

    #[test]
    fn written_report_is_masked() {
        let folder = std::env::temp_dir().join(format!("mlx5-report-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let report = Report {
            mask: Mask::new(&["node7".to_owned()], &[]),
            start: Instant::now(),
            times: Mutex::default(),
            kernel: Err(ErrorKind::PermissionDenied.into()),
        };
        report.took("a::fails", Duration::from_secs(2));
        let why = "node7 does not reach 192.0.2.9 at 02:00:5e:10:00:01".to_owned();
        let outcomes = BTreeMap::from([("a::fails".to_owned(), Outcome::Fail(why))]);
        let written = report.write(&folder.join("hil-mlx5_0"), &Facts::new(), "Down", &outcomes);
        let text = fs::read_to_string(folder.join("hil-mlx5_0.report.txt"));
        fs::remove_dir_all(&folder).expect("the folder goes");
        assert_eq!(written, Ok(()));
        let text = text.expect("the report");
        assert!(
            text.contains("a::fails, after 2.0 s\n    HOST does not reach IP at MAC\n"),
            "{text}"
        );
    }
}
