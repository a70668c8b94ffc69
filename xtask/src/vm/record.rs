//! What a machine has done: its steps, its kernel's log, and how it ended.

use std::fmt;
use std::process::ExitStatus;
use std::time::Duration;

/// Begins a word of the first process about the steps; nothing else says it.
const MARK: u8 = 0o36;

/// What is heard from the guest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Event {
    /// A step begins.
    Begin(String),
    /// A step has ended, with this status.
    End(String, i32),
    /// A line of the step that runs.
    Line(String),
    /// All steps have been done that could be.
    Over,
}

/// Makes events of the guest's words.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// Whether an empty line came, which may belong to the mark that follows.
    empty: bool,
}

impl Reader {
    /// What a line, with its end, tells.
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

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ended {
    /// By itself.
    Itself(ExitStatus),
    /// It was stopped, for its time was over.
    Stopped,
    /// It was never waited for.
    Unknown,
}

impl Ended {
    /// What is wrong with it, if anything is.
    pub(super) fn trouble(self) -> Option<String> {
        match self {
            Self::Itself(status) if status.success() => None,
            Self::Itself(status) => Some(format!("ended with {status}")),
            Self::Stopped => Some("did not end in time and was stopped".into()),
            Self::Unknown => Some("was not followed to its end".into()),
        }
    }
}

/// A step that was begun.
#[derive(Clone, Debug)]
pub(super) struct Done {
    pub(super) name: String,
    /// Nothing if it has not ended.
    pub(super) status: Option<i32>,
    /// What it has written.
    pub(super) output: String,
    /// When it began, then how long it took.
    pub(super) time: Duration,
}

/// What a machine has done.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) steps: Vec<Done>,
    /// Whether the guest came to its end.
    pub(super) over: bool,
    /// The kernel's log.
    pub(super) log: String,
    /// How QEMU ended.
    pub(super) machine: Ended,
    /// What the devices saw that they should not have.
    pub(super) problems: Vec<Problem>,
    /// How the process that serves the devices ended, if there are any.
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
    /// Writes down what was heard `now`.
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
            // Words between steps, and of nobody.
            (Event::End(..) | Event::Line(_), _) => {}
        }
    }

    /// All that is wrong, beside steps that failed.
    pub(super) fn troubles(&self) -> Vec<String> {
        let mut found = complaints(&self.log);
        if !self.over {
            found.push("the guest did not come to its end".into());
        }
        if let Some(trouble) = self.machine.trouble() {
            found.push(format!("the machine {trouble}"));
        }
        let problems = self.problems.iter().filter(|problem| !problem.is_meant());
        found.extend(problems.map(ToString::to_string));
        // That it saw problems makes it fail; whether they matter was told by each.
        let told = !self.problems.is_empty();
        let trouble = self.device.and_then(Ended::trouble);
        if let Some(trouble) = trouble.filter(|_| !told || self.device == Some(Ended::Stopped)) {
            found.push(format!("the simulated device's process {trouble}"));
        }
        found
    }
}

/// What a device saw that it should not have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Problem {
    /// The step that was on.
    step: String,
    what: String,
}

/// Problems that come of what a step does on purpose: a driver that is taken away destroys queues
/// that a program rings until it notices.
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

/// The problems in a device's log, of which `marks` tell how long it was when each step began.
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

/// A step in words.
impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            Some(0) => write!(f, "{} passed", self.name),
            // 128 and SIGKILL, which is what timeout(1) ends with.
            Some(137) => write!(f, "{} did not end in time, or was killed", self.name),
            Some(status) => write!(f, "{} failed with status {status}", self.name),
            None => write!(f, "{} has not ended", self.name),
        }
    }
}

/// What a line of the kernel's log must not have: what, and a sentence about it.
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

/// Words of the driver's that tell of trouble.
const DRIVER: [&str; 7] = ["failed", "error", "timeout", "leak", "bad ", "can't", "cannot"];

/// What the suite does on purpose, as the driver reports it: a completion queue that overruns.
const ON_PURPOSE: [(&str, &str); 1] = [("suite", "CQ error on CQN")];

/// The lines of a kernel's log that tell of something wrong, each with the step that was on.
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
        assert!(troubles.iter().any(|trouble| trouble.contains("did not come to its end")));
    }

    #[test]
    fn a_devices_problems_are_told_with_the_step_but_for_those_meant() {
        let log = "note\nproblem: hca 0: UnknownQp(1)\nproblem: hca 0: UnknownQp(2)\n";
        let second = log.rfind("problem").expect("it is there");
        let marks = [(0, "suite".to_owned()), (second, "rmmod-while-polling".to_owned())];
        let found = problems(log, &marks);
        assert_eq!(found.iter().map(Problem::is_meant).collect::<Vec<_>>(), [false, true]);
        assert_eq!(found[0].to_string(), "the device, in suite: hca 0: UnknownQp(1)");
    }

    #[test]
    fn what_a_kernel_complains_of_is_told_with_the_step() {
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
    fn what_a_case_does_on_purpose_is_no_complaint_in_the_suite_and_is_one_elsewhere() {
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
