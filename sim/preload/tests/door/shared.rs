//! Several processes on one machine, which this program serves.

use std::io::{BufRead, BufReader, pipe};
use std::process::{Child, Stdio};
use std::sync::mpsc::channel;
use std::thread;

use libtest_mimic::{Failed, Trial};
use mlx5_sim_wire::{Host, Served};

use crate::{LIMIT, check, command, ended, inside, output};

/// The case that has another meaning where processes share a machine.
const ALONE: &str = "a_child_has_a_machine_of_its_own";

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials: Vec<Trial> = inside::CASES
        .iter()
        .filter(|case| case.name != ALONE)
        .map(|case| {
            let name = format!("{}_on_a_shared_machine", case.name);
            Trial::test(name, || passes(case.name, case.settings))
        })
        .collect();
    trials.extend([
        Trial::test("messages_go_between_processes", || bounce("one_end", "")),
        Trial::test("messages_go_between_processes_over_roce", || bounce("one_end", "link=roce")),
        Trial::test("an_event_wakes_another_process", || bounce("one_end_with_events", "")),
        Trial::test("a_process_that_is_killed_leaves_nothing", killed),
        Trial::test("a_child_has_what_its_parent_opened", || {
            passes("a_child_has_what_its_parent_opened", "")
        }),
        Trial::test("what_a_child_s_child_in_its_memory_closes_stays_inherited", || {
            passes("what_a_child_s_child_in_its_memory_closes_stays_inherited", "")
        }),
        Trial::test("without_a_machine_there_is_no_device", nobody),
        Trial::test("only_one_host_serves_at_a_place", one_host),
    ]);
    trials
}

/// A machine that this program serves.
pub(crate) struct Machine(Served);

fn socket(name: &str) -> String {
    format!("mlx5-door-{}-{name}", std::process::id())
}

impl Machine {
    pub(crate) fn serve(name: &str, settings: &str) -> Self {
        let settings = settings.parse().expect("settings");
        Self(Served::start_at(socket(name), &settings).expect("a host"))
    }

    pub(crate) fn settings(&self) -> String {
        format!("wire={}", self.0.socket().display())
    }

    /// Waits until all have disconnected, and returns the number of violations.
    pub(crate) fn end_with_violations(self) -> usize {
        self.0.end().expect("served")
    }

    /// Waits until all have disconnected, and checks that nothing of them is left.
    fn end(self) -> Result<(), Failed> {
        let simulator = self.0.simulator().clone();
        let violations = self.end_with_violations();
        for device in 0..simulator.config().devices {
            let counts = simulator.object_counts(device);
            if counts != Default::default() {
                return Err(format!("objects are left: {counts:?}").into());
            }
        }
        if violations == 0 { Ok(()) } else { Err(format!("{violations} violations").into()) }
    }
}

fn passes(case: &str, settings: &str) -> Result<(), Failed> {
    let machine = Machine::serve(case, settings);
    let ended = output(&mut command(case, &machine.settings()));
    machine.end()?;
    check(ended.status.success(), &ended)
}

/// Two processes, each of which reads the lines of the other.
fn bounce(case: &str, settings: &str) -> Result<(), Failed> {
    let machine = Machine::serve(&format!("{case}-{settings}"), settings);
    let (first, second) = (pipe().expect("a pipe"), pipe().expect("a pipe"));
    let start = |name: &str, input, out| -> Child {
        let mut command = command(case, &machine.settings());
        command.arg(name).stdin(Stdio::from(input)).stdout(Stdio::from(out));
        command.stderr(Stdio::piped()).spawn().expect("this program runs")
    };
    let one = start("begins", first.0, second.1);
    let other = start("answers", second.0, first.1);
    let all = [one, other].map(ended);
    machine.end()?;
    all.iter().try_for_each(|ended| check(ended.status.success(), ended))
}

fn killed() -> Result<(), Failed> {
    let machine = Machine::serve("killed", "");
    let mut command = command("dies_with_objects", &machine.settings());
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("this program runs");
    let stdout = child.stdout.take().expect("its output");
    let (line, lines) = channel();
    thread::spawn(move || line.send(BufReader::new(stdout).lines().next()));
    let said = lines.recv_timeout(LIMIT);
    let counts = machine.0.simulator().object_counts(0);
    child.kill().expect("it is there");
    child.wait().expect("it ends");
    machine.end()?;
    if matches!(&said, Ok(Some(Ok(line))) if line == "there") && counts.qps == 2 {
        return Ok(());
    }
    Err(format!("it said {said:?} and had {counts:?}").into())
}

fn nobody() -> Result<(), Failed> {
    let settings = format!("wire={}", std::env::temp_dir().join(socket("nobody")).display());
    let ended = output(&mut command("devices_are_found", &settings));
    let said = String::from_utf8_lossy(&ended.stderr).contains("mlx5-sim-wire");
    check(!ended.status.success() && said, &ended)
}

fn one_host() -> Result<(), Failed> {
    let machine = Machine::serve("one_host", "devices=2");
    let again = Host::bind(machine.0.socket(), &"".parse().expect("settings")).expect("asked");
    let is_alone = again.is_none();
    let settings = format!("{},devices=1", machine.settings());
    let ended = output(&mut command("messages_go_between_devices", &settings));
    machine.end()?;
    // The settings of the machine's first process hold; the library warns a process with others.
    let told = String::from_utf8_lossy(&ended.stderr).contains("devices=2");
    check(is_alone && told && ended.status.success(), &ended)
}
