//! `mlx5 doctor`.

mod device;
mod library;
mod machine;

use crate::device::{Found, Opened, PortArgs, describe};
use crate::failure::Failure;
use crate::json::{self, JsonArgs};
use crate::link::parse_address;
use machine::Machine;
use mlx5::Device;
use mlx5_sim::Simulator;
use serde_json::json;
use std::io::{self, Write};
use std::path::PathBuf;

/// `--help`.
pub(crate) const LONG_ABOUT: &str = "\
Checks what RDMA programs need of this machine, and says what to do about what is
missing: kernel and modules, device nodes, locked memory, firmware, DEVX, ports, GIDs,
MTU, NUMA, and which libibverbs a program in C would get. At the end it sends messages
from the device to itself, and with --peer to another machine, and verifies them.

A machine without a device fails. The simulated device is checked only if --sim asks
for it. It changes nothing. Exit status: 0 if nothing failed, 1 if something did.

With --json: one object with works, verdict, and the findings of each section, whose level
is ok, warning or failure.";

const EXAMPLES: &str = "\
Examples:
  mlx5 doctor                            this machine and its first device
  mlx5 doctor -d mlx5_1 --port 2         another device and port
  mlx5 doctor --sim --sim-link roce      how it looks, on a simulated device

Is a peer reachable?
  peer$ mlx5 pingpong --listen
  here$ mlx5 doctor --peer peer";

/// Options of `mlx5 doctor`.
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// Exchange messages with a machine that runs `mlx5 pingpong --listen` [default port: 18515]
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address)]
    peer: Option<String>,
    #[command(flatten)]
    json: JsonArgs,
    #[command(flatten)]
    port: PortArgs,
}

/// The outcome of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Level {
    Fine,
    /// Works, and could be better.
    Warning,
    /// Does not work.
    Failure,
}

/// The result of a check, with its remedy.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Finding {
    level: Level,
    text: String,
    remedy: Option<String>,
}

impl Finding {
    fn fine(text: impl Into<String>) -> Self {
        Self { level: Level::Fine, text: text.into(), remedy: None }
    }

    fn warning(text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { level: Level::Warning, text: text.into(), remedy: Some(remedy.into()) }
    }

    fn failure(text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { level: Level::Failure, text: text.into(), remedy: Some(remedy.into()) }
    }

    /// A step that failed, with its own hint, or `remedy` if it has none.
    fn failed(what: &str, failure: &Failure, remedy: &str) -> Self {
        Self::failure(
            format!("{what}: {}", failure.cause()),
            failure.remedy().unwrap_or(remedy).to_owned(),
        )
    }
}

/// The findings. Without JSON they are written at once.
struct Report<'a, W> {
    out: &'a mut W,
    json: bool,
    /// Each place that was examined, and the findings there.
    sections: Vec<(String, Vec<Finding>)>,
}

impl<W: Write> Report<'_, W> {
    fn heading(&mut self, text: &str) -> io::Result<()> {
        self.sections.push((text.to_owned(), Vec::new()));
        if self.json { Ok(()) } else { writeln!(self.out, "{text}") }
    }

    fn add(&mut self, findings: impl IntoIterator<Item = Finding>) -> io::Result<()> {
        for finding in findings {
            if !self.json {
                let mark = match finding.level {
                    Level::Fine => "ok",
                    Level::Warning => "warn",
                    Level::Failure => "FAIL",
                };
                writeln!(self.out, "  {mark:4}  {}", finding.text)?;
                if let Some(remedy) = &finding.remedy {
                    writeln!(self.out, "        {remedy}")?;
                }
            }
            if let Some((_, all)) = self.sections.last_mut() {
                all.push(finding);
            }
        }
        if self.json { Ok(()) } else { self.out.flush() }
    }

    fn count(&self, level: Level) -> usize {
        let all = self.sections.iter().flat_map(|(_, findings)| findings);
        all.filter(|finding| finding.level == level).count()
    }

    /// Ends the report.
    fn end(self, works: bool, simulated: bool, verdict: &str) -> io::Result<()> {
        if !self.json {
            return writeln!(self.out, "verdict: {verdict}");
        }
        let finding = |Finding { level, text, remedy }: &Finding| {
            let level = match level {
                Level::Fine => "ok",
                Level::Warning => "warning",
                Level::Failure => "failure",
            };
            json!({ "level": level, "text": text, "remedy": remedy })
        };
        let section = |(of, findings): &(String, Vec<Finding>)| json!({ "of": of, "findings": findings.iter().map(finding).collect::<Vec<_>>() });
        let document = json!({
            "command": "mlx5 doctor",
            "works": works,
            "verdict": verdict,
            "warnings": self.count(Level::Warning),
            "failures": self.count(Level::Failure),
            "sections": self.sections.iter().map(section).collect::<Vec<_>>(),
        });
        json::write(self.out, &json::of_device(document, simulated))
    }
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    examine(args, &Machine { root: PathBuf::from("/") }, || args.port.device.select(), out)
}

/// The remedy on a machine without a device.
const NO_DEVICE: &str =
    "do what stands above, or look at the simulated device: `mlx5 doctor --sim`";

/// Checks a machine, and the first of the devices that `find` gives.
fn examine(
    args: &Args,
    machine: &Machine,
    find: impl FnOnce() -> Result<Found, Failure>,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let mut report = Report { out, json: args.json.json, sections: Vec::new() };
    report.heading("machine")?;
    report.add(machine.check())?;
    report.add([library::check(&machine.root)])?;
    let of_machine = report.count(Level::Warning);
    // Other commands simulate a device if there is none. Here that would hide the problem.
    let simulated = args.port.device.wants_simulated();
    let mut refused = None;
    match find() {
        Ok(Found { devices, simulator }) => {
            match devices.into_iter().next().filter(|_| simulator.is_none() || simulated) {
                None => report.add([Finding::failure("no mlx5 device", NO_DEVICE)])?,
                Some(device) => check(args, machine, device, simulator, &mut report)?,
            }
        }
        Err(failure) => {
            report.add([Finding::failed("no device to check", &failure, NO_DEVICE)])?;
            refused = Some(failure);
        }
    }
    let (warnings, failures) = (report.count(Level::Warning), report.count(Level::Failure));
    let count = |number: usize, what: &str| match number {
        1 => format!("1 {what}"),
        _ => format!("{number} {what}s"),
    };
    let (works, fails) = match simulated {
        true => ("the simulated device works", "the simulated device does not work"),
        false => ("RDMA works here", "RDMA does not work here"),
    };
    if failures != 0 {
        let cause = format!("{}, {}", count(failures, "failure"), count(warnings, "warning"));
        report.end(false, simulated, &format!("{fails}: {cause}"))?;
        return Err(refused.unwrap_or_else(|| {
            Failure::new(cause).hint("each FAIL is followed by what to do; fix the first one first")
        }));
    }
    // The machine's warnings do not concern a simulated device.
    let (warnings, aside) = match simulated {
        true => (warnings - of_machine, of_machine),
        false => (warnings, 0),
    };
    let mut verdict = works.to_owned();
    if warnings > 0 {
        verdict += &format!(", with {}", count(warnings, "warning"));
    }
    if aside > 0 {
        let lacks = count(aside, "warning");
        verdict += &format!("; it needs nothing of what the machine lacks ({lacks})");
    }
    Ok(report.end(true, simulated, &verdict)?)
}

/// Checks a device.
fn check<W: Write>(
    args: &Args,
    machine: &Machine,
    device: Device,
    simulator: Option<Simulator>,
    report: &mut Report<'_, W>,
) -> io::Result<()> {
    let simulated = simulator.is_some();
    report.heading(&describe(&device, simulated))?;
    match device.open() {
        Ok(context) => {
            let opened = Opened { context, device, simulator };
            // The kernel's interfaces and nodes are about its own devices.
            let machine = (!simulated).then_some(machine);
            device::check(report, machine, &opened, &args.port, args.peer.as_deref())
        }
        Err(error) => {
            let node = format!("/dev/infiniband/{} cannot be opened", device.uverbs());
            let remedy = "`dmesg | grep mlx5` may say why";
            report.add([Finding::failed(&node, &error.into(), remedy)])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    /// The result and the output on an empty machine, on which only the simulated device is found.
    fn said(line: &[&str]) -> (Result<(), Failure>, String) {
        let line = Line::parse_from([&["doctor"], line].concat());
        let simulated = || {
            let simulator = Simulator::new(mlx5_sim::SimConfig::new());
            let devices = mlx5::devices_on(simulator.kernel())?;
            Ok(Found { devices, simulator: Some(simulator) })
        };
        let machine = Machine { root: PathBuf::from("/nowhere") };
        let mut out = Vec::new();
        let ended = examine(&line.args, &machine, simulated, &mut out);
        (ended, String::from_utf8(out).expect("text"))
    }

    #[test]
    fn a_machine_without_a_device_fails_unless_the_simulated_one_is_asked_for() {
        let (ended, text) = said(&[]);
        let failure = ended.expect_err("there is no device");
        assert!(failure.cause().starts_with("1 failure, "), "{failure:?}");
        assert!(text.contains("  FAIL  no mlx5 device\n        do what stands above"), "{text}");
        assert!(!text.contains("simulated ConnectX"), "{text}");
        let last = text.lines().last().unwrap_or_default();
        assert!(last.starts_with("verdict: RDMA does not work here: 1 failure, "), "{text}");

        let (ended, text) = said(&["--sim"]);
        ended.expect("it works");
        assert!(text.contains("\nverdict: the simulated device works"), "{text}");
    }
}
