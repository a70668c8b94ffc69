//! The lines and the counts that a trace prints.

use crate::dump::Addressing;
use crate::table::{Align, Table};
use crate::trace::brief::{Brief, decode};
use crate::trace::queues::{Event, Kind, Name};
use crate::trace::tracer::{Report, Reported};
use nix::unistd::Pid;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

/// Options of the output.
#[derive(Clone, Default, Debug)]
pub(crate) struct Choice {
    pub(crate) json: bool,
    /// Every field, as `mlx5 dump` does.
    pub(crate) verbose: bool,
    /// No requests and completions, only their numbers.
    pub(crate) quiet: bool,
    /// Failed completions alone.
    pub(crate) errors: bool,
    /// Queues with these numbers; all if the list is empty.
    pub(crate) queues: Vec<u32>,
}

/// Requests or completions of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Sum {
    count: u64,
    bytes: u64,
    simulated: Option<bool>,
}

/// The time and the process of an event.
#[derive(Clone, Copy)]
struct Origin {
    time: Duration,
    pid: Pid,
    simulated: Option<bool>,
}

/// Prints a trace.
pub(crate) struct Printer {
    choice: Choice,
    counts: BTreeMap<(Pid, Name, String), Sum>,
    lost: BTreeMap<(Pid, Name), u64>,
    /// Set once more than one process was seen, so that lines name theirs.
    several: Option<Pid>,
    pub(crate) queues: u64,
}

/// The sums of a whole trace.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Sums {
    pub(crate) requests: u64,
    pub(crate) completions: u64,
    pub(crate) failed: u64,
    pub(crate) lost: u64,
}

impl Printer {
    /// Lines name their process, unless it is the `first`.
    pub(crate) fn new(choice: Choice, first: Option<Pid>) -> Self {
        Self { choice, counts: BTreeMap::new(), lost: BTreeMap::new(), several: first, queues: 0 }
    }

    fn wanted(&self, name: &Name, other: Option<u32>) -> bool {
        let queues = &self.choice.queues;
        queues.is_empty()
            || queues.contains(&name.number)
            || other.is_some_and(|number| queues.contains(&number))
    }

    /// Prints a report of a process.
    pub(crate) fn print(
        &mut self,
        out: &mut dyn Write,
        time: Duration,
        &Report { pid, simulated, ref reported }: &Report,
    ) -> io::Result<()> {
        let of = Origin { time, pid, simulated };
        match reported {
            Reported::Queue(event) => self.queue(out, of, event),
            Reported::Program => self.process(out, of, "runs another program", "program", None),
            Reported::Foreign => {
                let text = "is of another architecture: its calls cannot be read";
                self.process(out, of, text, "foreign", None)
            }
            Reported::Ended(Ok(code)) => {
                let text = format!("ended with exit status {code}");
                self.process(out, of, &text, "exited", Some(("status", json!(code))))
            }
            Reported::Ended(Err(signal)) => {
                let text = format!("was ended by signal {signal}");
                self.process(out, of, &text, "killed", Some(("signal", json!(signal))))
            }
        }
    }

    fn process(
        &self,
        out: &mut dyn Write,
        Origin { time, pid, simulated }: Origin,
        text: &str,
        change: &str,
        how: Option<(&str, Value)>,
    ) -> io::Result<()> {
        if self.choice.json {
            let mut line = json!({
                "time": time.as_secs_f64(), "pid": pid.as_raw(),
                "event": "process", "change": change,
                "simulated": simulated,
            });
            if let Some((name, value)) = how {
                line[name] = value;
            }
            return writeln!(out, "{line}");
        }
        writeln!(out, "{}process {pid} {text}", Clock(time))
    }

    fn queue(&mut self, out: &mut dyn Write, of: Origin, event: &Event) -> io::Result<()> {
        let (name, index, bytes, addressing, packets) = match event {
            Event::Posted { name, index, bytes, addressing } => {
                (name, index, bytes, *addressing, None)
            }
            Event::Completed { name, index, bytes, packets: None } => {
                (name, index, bytes, Addressing::Connected, None)
            }
            Event::Completed { name, index, bytes, packets } => {
                (name, index, bytes, Addressing::Ethernet, *packets)
            }
            other => return self.other(out, of, other),
        };
        let item = decode(name.kind, bytes, addressing);
        let mut brief = Brief::of(name.kind, &item);
        // The completion of a packet does not name the queue that received it.
        brief.of = brief.of.or(packets.map(|name| (name.kind.words().0, name.number)));
        if !self.wanted(name, brief.of.map(|(_, number)| number)) {
            return Ok(());
        }
        let sum = self.counts.entry((of.pid, *name, brief.counted())).or_default();
        sum.simulated = of.simulated;
        sum.count += 1;
        sum.bytes += brief.bytes.unwrap_or(0);
        if self.choice.quiet || self.choice.errors && !brief.failed {
            return Ok(());
        }
        if self.choice.json {
            let kind = if name.kind == Kind::Completion { "completion" } else { "request" };
            let mut line = object(of, kind, name);
            line.insert("index".to_owned(), json!(index));
            brief.add_to(&mut line);
            return writeln!(out, "{}", Value::Object(line));
        }
        let size = brief.bytes.map_or_else(String::new, |bytes| format!("{bytes} B"));
        let start = self.start(of, name);
        let line = format!("{start}{index:>6}  {:<17} {size:>9}  {}", brief.opcode, brief.rest());
        writeln!(out, "{}", line.trim_end())?;
        if self.choice.verbose {
            item.write_fields(&mut &mut *out)?;
        }
        Ok(())
    }

    fn other(&mut self, out: &mut dyn Write, of: Origin, event: &Event) -> io::Result<()> {
        let (name, word, text) = match event {
            Event::Made { name, about } => {
                self.queues += 1;
                (name, "made", format!("made: {about}"))
            }
            Event::Changed { name, about } => (name, "changed", format!("now: {about}")),
            Event::Ended { name } => (name, "ended", "destroyed".to_owned()),
            Event::Unreadable { name } => {
                (name, "unreadable", "cannot be read any more".to_owned())
            }
            Event::Lost { name, count } => {
                *self.lost.entry((of.pid, *name)).or_default() += count;
                let what = if name.kind == Kind::Send { "blocks" } else { "places" };
                let text = format!("{count} {what} were used again before they were seen");
                (name, "lost", text)
            }
            Event::Hidden { name, count } => {
                let key = (of.pid, *name, "RECV, not shown".to_owned());
                let sum = self.counts.entry(key).or_default();
                sum.simulated = of.simulated;
                sum.count += count;
                let text = format!("{count} receives posted; their places cannot be reported");
                (name, "hidden", text)
            }
            Event::Posted { .. } | Event::Completed { .. } => return Ok(()),
        };
        if !self.wanted(name, None) || self.choice.errors && word != "lost" {
            return Ok(());
        }
        if self.choice.quiet && word == "hidden" {
            return Ok(());
        }
        if self.choice.json {
            let mut line = object(of, word, name);
            match event {
                Event::Lost { count, .. } | Event::Hidden { count, .. } => {
                    line.insert("count".to_owned(), json!(count));
                }
                Event::Made { about, .. } | Event::Changed { about, .. } => {
                    line.insert("about".to_owned(), json!(about));
                }
                _ => {}
            }
            return writeln!(out, "{}", Value::Object(line));
        }
        // The name means the object, not one of its rings, except for lost entries.
        let name = match event {
            Event::Lost { .. } => self.start(of, name),
            _ => format!("{}{}", self.clock(of), Object(*name)),
        };
        writeln!(out, "{name}  {text}")
    }

    fn clock(&self, Origin { time, pid, .. }: Origin) -> String {
        match self.several {
            Some(first) if first == pid => Clock(time).to_string(),
            _ => format!("{}[{pid}] ", Clock(time)),
        }
    }

    fn start(&self, of: Origin, name: &Name) -> String {
        format!("{}{} {:<4}", self.clock(of), Object(*name), name.kind.words().1)
    }

    /// The sums so far.
    pub(crate) fn sums(&self) -> Sums {
        let mut sums = Sums { lost: self.lost.values().sum(), ..Sums::default() };
        for ((_, name, what), sum) in &self.counts {
            match name.kind {
                Kind::Completion => {
                    sums.completions += sum.count;
                    if what.contains(" failed: ") {
                        sums.failed += sum.count;
                    }
                }
                _ => sums.requests += sum.count,
            }
        }
        sums
    }

    /// Prints the counts of each queue.
    pub(crate) fn summary(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.choice.json {
            for ((pid, name, what), sum) in &self.counts {
                let (object, ring) = name.kind.words();
                let mut line = json!({
                    "event": "sum", "pid": pid.as_raw(), "what": what,
                    "count": sum.count, "bytes": sum.bytes,
                    "simulated": sum.simulated,
                });
                line[object] = json!(name.number);
                if !ring.is_empty() {
                    line["queue"] = json!(ring);
                }
                writeln!(out, "{line}")?;
            }
            return Ok(());
        }
        let mut table = Table::new(&[
            ("process", Align::Right),
            ("queue", Align::Left),
            ("what", Align::Left),
            ("count", Align::Right),
            ("bytes", Align::Right),
        ]);
        let queue = |name: &Name| format!("{} {}", Object(*name), name.kind.words().1);
        for ((pid, name, what), sum) in &self.counts {
            let cells = [pid.to_string(), queue(name), what.clone(), sum.count.to_string()];
            table.row(cells.into_iter().chain([sum.bytes.to_string()]));
        }
        for ((pid, name), count) in &self.lost {
            table.row([pid.to_string(), queue(name), "not seen".to_owned(), count.to_string()]);
        }
        table.write(&mut &mut *out, 0)
    }
}

/// The keys of a line about a queue.
fn object(of: Origin, kind: &str, name: &Name) -> Map<String, Value> {
    let (object, ring) = name.kind.words();
    let mut line = Map::new();
    line.insert("time".to_owned(), json!(of.time.as_secs_f64()));
    line.insert("pid".to_owned(), json!(of.pid.as_raw()));
    line.insert("event".to_owned(), json!(kind));
    line.insert("simulated".to_owned(), json!(of.simulated));
    line.insert(object.to_owned(), json!(name.number));
    if !ring.is_empty() && matches!(kind, "request" | "lost" | "hidden") {
        line.insert("queue".to_owned(), json!(ring));
    }
    line
}

/// A time in the form of the start of a line.
struct Clock(Duration);

impl std::fmt::Display for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:>10.6}  ", self.0.as_secs_f64())
    }
}

/// An object in the output: its kind and its number.
struct Object(Name);

impl std::fmt::Display for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let word = self.0.kind.words().0;
        write!(f, "{word:<3} {:#08x}", self.0.number)
    }
}
