//! Record of a machine's run: its steps, its kernel's log, and the way it ended.

use std::fmt;
use std::process::ExitStatus;
use std::time::Duration;

/// First byte of the init process' lines about the steps; no other output starts with it.
const MARK: u8 = 0o36;

/// An event in the guest's output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Event {
    /// A step has begun.
    Begin(String),
    /// A step has ended with this status.
    End(String, i32),
    /// A line of output of the current step.
    Line(String),
    /// The guest has run all the steps that it could.
    Over,
}

/// Parses the guest's output into events.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// Whether the last line was empty. The line may belong to the mark that follows.
    empty: bool,
}

impl Reader {
    /// Events of a line, given with its end.
    pub(super) fn take(&mut self, line: &[u8]) -> Vec<Event> {
        let text = String::from_utf8_lossy(line);
        let text = text.trim_end_matches(['\n', '\r']);
        if line.first() == Some(&MARK) {
            self.empty = false;
            return word(&text[1..]).into_iter().collect();
        }
        let mut events = Vec::new();
        if std::mem::replace(&mut self.empty, text.is_empty()) {
            events.push(Event::Line(String::new()));
        }
        if !text.is_empty() {
            events.push(Event::Line(text.to_owned()));
        }
        events
    }
}

fn word(text: &str) -> Option<Event> {
    match text.split(' ').collect::<Vec<_>>()[..] {
        ["begin", name] => Some(Event::Begin(name.to_owned())),
        ["end", name, status] => Some(Event::End(name.to_owned(), status.parse().ok()?)),
        ["over"] => Some(Event::Over),
        _ => None,
    }
}

/// End of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ended {
    /// It exited by itself.
    Itself(ExitStatus),
    /// It was killed at its time limit.
    Stopped,
    /// It was never waited for.
    Unknown,
}

impl Ended {
    /// Description of the problem, if it did not succeed.
    pub(super) fn trouble(self) -> Option<String> {
        match self {
            Self::Itself(status) if status.success() => None,
            Self::Itself(status) => Some(format!("ended with {status}")),
            Self::Stopped => Some("did not end in time and was stopped".into()),
            Self::Unknown => Some("was not followed to its end".into()),
        }
    }
}

/// A step that has begun.
#[derive(Clone, Debug)]
pub(super) struct Done {
    pub(super) name: String,
    /// Exit status; `None` if it has not ended.
    pub(super) status: Option<i32>,
    /// Output.
    pub(super) output: String,
    /// Start time while the step runs, then its duration.
    pub(super) time: Duration,
}

/// Record of a machine's run.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) steps: Vec<Done>,
    /// Whether the guest ran to its end.
    pub(super) over: bool,
    /// The kernel's log.
    pub(super) log: String,
    /// End of QEMU's process.
    pub(super) machine: Ended,
    /// Problems that the devices reported.
    pub(super) problems: Vec<Problem>,
    /// End of the process that serves the devices, if there are any.
    pub(super) device: Option<Ended>,
    pub(super) elapsed: Duration,
}

impl Default for Record {
    fn default() -> Self {
        Self {
            steps: Vec::new(),
            over: false,
            log: String::new(),
            problems: Vec::new(),
            machine: Ended::Unknown,
            device: None,
            elapsed: Duration::ZERO,
        }
    }
}

impl Record {
    /// Records an event that happened at `now`.
    pub(super) fn note(&mut self, event: Event, now: Duration) {
        match (event, self.steps.last_mut()) {
            (Event::Begin(name), _) => {
                self.steps.push(Done { name, status: None, output: String::new(), time: now });
            }
            (Event::End(name, status), Some(step)) if step.name == name => {
                step.status = Some(status);
                step.time = now.saturating_sub(step.time);
            }
            (Event::Line(line), Some(step)) if step.status.is_none() => {
                step.output.push_str(&line);
                step.output.push('\n');
            }
            (Event::Over, _) => self.over = true,
            // Lines between steps, and ends of a step that is not the current one.
            (Event::End(..) | Event::Line(_), _) => {}
        }
    }

    /// All problems other than failed steps.
    pub(super) fn troubles(&self) -> Vec<String> {
        let mut found = complaints(&self.log);
        if !self.over {
            found.push("the guest did not finish".into());
        }
        if let Some(trouble) = self.machine.trouble() {
            found.push(format!("the machine {trouble}"));
        }
        let problems = self.problems.iter().filter(|problem| !problem.is_meant());
        found.extend(problems.map(ToString::to_string));
        // The devices' process fails if it reported problems. Those are judged one by one above.
        let reported = !self.problems.is_empty();
        let trouble = self.device.and_then(Ended::trouble);
        if let Some(trouble) = trouble.filter(|_| !reported || self.device == Some(Ended::Stopped))
        {
            found.push(format!("the simulated device's process {trouble}"));
        }
        found
    }
}

/// A problem that a device reported.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Problem {
    /// The step that ran at the time.
    step: String,
    what: String,
}

/// Problems that a step causes on purpose: a removed driver destroys queues whose doorbells a
/// program rings until it notices.
const MEANT: [(&str, &str); 4] = [
    ("rmmod", "UnknownQp"),
    ("rmmod", "UnknownCq"),
    ("unplug", "UnknownQp"),
    ("unplug", "UnknownCq"),
];

impl Problem {
    fn is_meant(&self) -> bool {
        MEANT.iter().any(|(step, what)| self.step.starts_with(step) && self.what.contains(what))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the device, in {}: {}", self.step, self.what)
    }
}

/// Problems in a device's log. `marks` has the log's length at the beginning of each step.
pub(super) fn problems(log: &str, marks: &[(usize, String)]) -> Vec<Problem> {
    let mut found = Vec::new();
    let mut at = 0;
    for line in log.split_inclusive('\n') {
        if let Some(what) = line.trim_end().strip_prefix("problem: ") {
            let step = marks.iter().rev().find(|(length, _)| *length <= at);
            let step = step.map_or("the start", |(_, step)| step);
            found.push(Problem { step: step.to_owned(), what: what.to_owned() });
        }
        at += line.len();
    }
    found
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            Some(0) => write!(f, "{} passed", self.name),
            // 128 + SIGKILL, the status of timeout(1).
            Some(137) => write!(f, "{} did not end in time, or was killed", self.name),
            Some(status) => write!(f, "{} failed with status {status}", self.name),
            None => write!(f, "{} has not ended", self.name),
        }
    }
}

/// Text that no line of the kernel's log may contain, and a sentence about it.
const COMPLAINTS: [&str; 14] = [
    "WARNING:",
    "BUG:",
    "kernel BUG at",
    "Oops",
    "Call Trace:",
    "general protection fault",
    "refcount_t:",
    "blocked for more than",
    "soft lockup",
    "rcu_sched self-detected stall",
    "rcu_preempt self-detected stall",
    "Unable to handle",
    "Kernel panic",
    "Unknown symbol",
];

/// Words in the driver's messages that mean a problem.
const DRIVER: [&str; 7] = ["failed", "error", "timeout", "leak", "bad ", "can't", "cannot"];

/// Messages that a step provokes on purpose: the suite overruns a completion queue.
const ON_PURPOSE: [(&str, &str); 1] = [("suite", "CQ error on CQN")];

/// Lines of a kernel's log that report a problem, each with the step that ran at the time.
pub(super) fn complaints(log: &str) -> Vec<String> {
    let mut step = "the start";
    let mut found = Vec::new();
    for line in log.lines() {
        let line = line.trim_end();
        if let Some((_, name)) = line.split_once("vm: step ") {
            step = name;
            continue;
        }
        let driver = ["mlx5_core", "mlx5_ib", "infiniband mlx5"].iter().any(|of| line.contains(of));
        let small = line.to_lowercase();
        let wrong = COMPLAINTS.iter().any(|word| line.contains(word))
            || (driver && DRIVER.iter().any(|word| small.contains(word)));
        let meant = |(of, words): &(&str, &str)| step.starts_with(of) && line.contains(words);
        if wrong && !ON_PURPOSE.iter().any(meant) {
            found.push(format!("the kernel's log, in {step}: {line}"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(text: &str) -> Record {
        let (mut record, mut reader) = (Record::default(), Reader::default());
        for line in text.split_inclusive('\n') {
            for event in reader.take(line.as_bytes()) {
                record.note(event, Duration::from_secs(1));
            }
        }
        record
    }

    #[test]
    fn steps_have_their_output_and_status() {
        let record = heard(
            "noise\n\n\x1ebegin one\na\n\nb\n\n\x1eend one 0\n\n\x1ebegin two\nc\n\x1eend two 3\n\
             \n\x1eover\n",
        );
        let steps: Vec<_> =
            record.steps.iter().map(|s| (s.name.as_str(), s.status, s.output.as_str())).collect();
        assert_eq!(steps, [("one", Some(0), "a\n\nb\n"), ("two", Some(3), "c\n")]);
        assert!(record.over);
    }

    #[test]
    fn a_machine_that_goes_away_in_a_step_leaves_it_without_status() {
        let record = heard("\x1ebegin one\na\n");
        assert_eq!(record.steps[0].status, None);
        let troubles = record.troubles();
        assert!(troubles.iter().any(|trouble| trouble.contains("did not finish")));
    }

    #[test]
    fn unexpected_device_problems_are_reported_with_the_step() {
        let log = "note\nproblem: hca 0: UnknownQp(1)\nproblem: hca 0: UnknownQp(2)\n";
        let second = log.rfind("problem").expect("it is there");
        let marks = [(0, "suite".to_owned()), (second, "rmmod-while-polling".to_owned())];
        let found = problems(log, &marks);
        assert_eq!(found.iter().map(Problem::is_meant).collect::<Vec<_>>(), [false, true]);
        assert_eq!(found[0].to_string(), "the device, in suite: hca 0: UnknownQp(1)");
    }

    #[test]
    fn kernel_complaints_are_reported_with_the_step() {
        let log = "[ 1.0] mlx5_core 0000:01:00.0: firmware version: 16.35.1\n\
                   [ 1.1] vm: step load\n\
                   [ 1.2] WARNING: CPU: 0 PID: 1 at kernel/x.c:1\n\
                   [ 1.3] mlx5_core 0000:01:00.0: CREATE_CQ(0x400) op_mod(0x0) failed\n\
                   [ 1.4] ext4: failed, which is none of ours\n\
                   [ 1.5] refcount_t: underflow; use-after-free.\n\
                   [ 1.6] INFO: task a:1 blocked for more than 30 seconds.\n";
        let found = complaints(log);
        assert_eq!(found.len(), 4, "{found:#?}");
        assert!(found.iter().all(|line| line.contains("in load: ")));
    }

    #[test]
    fn deliberate_violation_is_a_complaint_outside_the_suite_alone() {
        let line = "mlx5_core 0000:01:00.0: cq_err_event_notifier:505: CQ error on CQN 0x495\n";
        assert_eq!(complaints(&format!("vm: step suite\n{line}")), [""; 0]);
        assert_eq!(complaints(&format!("vm: step load\n{line}")).len(), 1);
    }

    #[test]
    fn a_log_without_complaints_has_none() {
        let log = "mlx5_core 0000:01:00.0: E-Switch: Total vports 1\nPCI: fixed BUGs long ago\n";
        assert_eq!(complaints(log), [""; 0]);
    }
}
