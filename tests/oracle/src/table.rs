//! The table of requests: `requests.txt`.

use std::fmt;
use std::str::FromStr;

use crate::script::{Form, Operation, Transport};

/// The table, and the differences that are known.
const REQUESTS: &str = include_str!("../requests.txt");

/// A line that cannot be understood.
#[derive(Debug)]
pub(crate) struct TableError {
    line: String,
    what: String,
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: \"{}\"", self.what, self.line)
    }
}

impl std::error::Error for TableError {}

/// Link layer of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Link {
    InfiniBand,
    Ethernet,
}

/// The kind of doorbell register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Door {
    /// BlueFlame, a register for the queue.
    Own,
    /// BlueFlame, a register that is shared.
    Shared,
    /// No BlueFlame.
    Plain,
}

#[derive(Clone, Debug)]
pub(crate) struct PathLine {
    pub(crate) name: String,
    pub(crate) dlid: u16,
    pub(crate) sl: u8,
    pub(crate) bits: u8,
    pub(crate) rate: u8,
    /// Whether there is a global route: to the device itself.
    pub(crate) global: bool,
    pub(crate) flow: u32,
    pub(crate) sgid: u8,
    pub(crate) hop: u8,
    pub(crate) tclass: u8,
}

#[derive(Clone, Debug)]
pub(crate) struct QueueLine {
    pub(crate) name: String,
    pub(crate) transport: Transport,
    pub(crate) builder: bool,
    pub(crate) paths: Vec<String>,
    pub(crate) door: Door,
    pub(crate) link: Link,
    pub(crate) signal_all: bool,
    pub(crate) laps: bool,
    pub(crate) blocks: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct RequestLine {
    pub(crate) operation: Operation,
    pub(crate) transports: Vec<Transport>,
    pub(crate) flags: Vec<String>,
    pub(crate) forms: Vec<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct OddLine {
    pub(crate) name: String,
    pub(crate) queue: String,
    /// Operation, flags and form of each request.
    pub(crate) requests: Vec<(Operation, String, String)>,
}

#[derive(Clone, Debug)]
pub(crate) struct SharedLine {
    pub(crate) name: String,
    pub(crate) requests: u32,
    pub(crate) entries: u32,
}

/// The whole table.
#[derive(Default, Debug)]
pub(crate) struct Table {
    pub(crate) paths: Vec<PathLine>,
    pub(crate) queues: Vec<QueueLine>,
    pub(crate) forms: Vec<(String, Form)>,
    /// Forms that only `odd` uses.
    pub(crate) odd_forms: Vec<(String, Form)>,
    pub(crate) requests: Vec<RequestLine>,
    pub(crate) odd: Vec<OddLine>,
    pub(crate) receives: Vec<(String, Vec<u32>)>,
    pub(crate) shared: Vec<SharedLine>,
}

/// The words of a line, taken one after the other.
struct Words<'a> {
    line: &'a str,
    words: std::str::SplitWhitespace<'a>,
}

impl<'a> Words<'a> {
    fn wrong(&self, what: impl Into<String>) -> TableError {
        TableError { line: self.line.to_owned(), what: what.into() }
    }

    fn next(&mut self) -> Result<&'a str, TableError> {
        self.words.next().ok_or_else(|| self.wrong("a word is missing"))
    }

    fn parse<T: FromStr>(&self, word: &str) -> Result<T, TableError> {
        word.parse().map_err(|_| self.wrong(format!("cannot understand {word}")))
    }

    fn list<T: FromStr>(&mut self) -> Result<Vec<T>, TableError> {
        let word = self.next()?;
        word.split(',').map(|word| self.parse(word)).collect()
    }

    fn numbers(&mut self) -> Result<Vec<u32>, TableError> {
        let words: Vec<_> = self.words.by_ref().collect();
        words.into_iter().map(|word| self.parse(word)).collect()
    }

    /// The rest of the line as `key=value` fields.
    fn fields(&mut self) -> Result<Vec<(&'a str, &'a str)>, TableError> {
        let words: Vec<_> = self.words.by_ref().collect();
        words
            .into_iter()
            .map(|word| word.split_once('=').ok_or_else(|| self.wrong("fields are key=value")))
            .collect()
    }
}

impl Table {
    /// The table of this package.
    pub(crate) fn load() -> Result<Self, TableError> {
        REQUESTS.parse()
    }

    /// A form by its name.
    pub(crate) fn form(&self, name: &str) -> Option<&Form> {
        let mut all = self.forms.iter().chain(&self.odd_forms);
        all.find(|(own, _)| own == name).map(|(_, form)| form)
    }

    fn take(&mut self, line: &str) -> Result<(), TableError> {
        let mut words = Words { line, words: line.split_whitespace() };
        match words.next()? {
            "path" => self.paths.push(path(&mut words)?),
            "queue" => self.queues.push(queue(&mut words)?),
            kind @ ("form" | "form*") => {
                let name = words.next()?.to_owned();
                let form = match words.next()? {
                    "sges" => Form::Sges(words.numbers()?),
                    "inline" => Form::Inline(words.numbers()?),
                    _ => return Err(words.wrong("a form is sges or inline")),
                };
                let list = if kind == "form" { &mut self.forms } else { &mut self.odd_forms };
                list.push((name, form));
            }
            "request" => {
                let operation = words.list()?[0];
                let (transports, flags, kinds) =
                    (words.list()?, words.list()?, words.list::<String>()?);
                let forms = self.forms.iter().filter(|(_, form)| {
                    kinds.iter().any(|kind| match form {
                        Form::Sges(_) => kind == "sges",
                        Form::Inline(_) => kind == "inline",
                    })
                });
                let forms = forms.map(|(name, _)| name.clone()).collect();
                self.requests.push(RequestLine { operation, transports, flags, forms });
            }
            "odd" => {
                let (name, queue) = (words.next()?.to_owned(), words.next()?.to_owned());
                let mut requests = Vec::new();
                loop {
                    let operation = words.list()?[0];
                    requests.push((operation, words.next()?.into(), words.next()?.into()));
                    match words.words.next() {
                        None => break,
                        Some("/") => {}
                        Some(_) => return Err(words.wrong("requests are parted by /")),
                    }
                }
                self.odd.push(OddLine { name, queue, requests });
            }
            "receive" => self.receives.push((words.next()?.to_owned(), words.numbers()?)),
            "shared" => {
                let mut found =
                    SharedLine { name: words.next()?.to_owned(), requests: 0, entries: 0 };
                for (key, value) in words.fields()? {
                    match key {
                        "requests" => found.requests = words.parse(value)?,
                        "entries" => found.entries = words.parse(value)?,
                        _ => return Err(words.wrong("no such field")),
                    }
                }
                self.shared.push(found);
            }
            _ => return Err(words.wrong("no such line")),
        }
        Ok(())
    }
}

fn path(words: &mut Words<'_>) -> Result<PathLine, TableError> {
    let mut path = PathLine {
        name: words.next()?.to_owned(),
        dlid: 0,
        sl: 0,
        bits: 0,
        rate: 0,
        global: false,
        flow: 0,
        sgid: 0,
        hop: 0,
        tclass: 0,
    };
    for (key, value) in words.fields()? {
        match (key, value) {
            ("dlid", _) => path.dlid = words.parse(value)?,
            ("sl", _) => path.sl = words.parse(value)?,
            ("bits", _) => path.bits = words.parse(value)?,
            ("rate", _) => path.rate = words.parse(value)?,
            ("gid", "own") => path.global = true,
            ("flow", _) => path.flow = words.parse(value)?,
            ("sgid", _) => path.sgid = words.parse(value)?,
            ("hop", _) => path.hop = words.parse(value)?,
            ("tclass", _) => path.tclass = words.parse(value)?,
            _ => return Err(words.wrong("no such field")),
        }
    }
    Ok(path)
}

fn queue(words: &mut Words<'_>) -> Result<QueueLine, TableError> {
    let mut queue = QueueLine {
        name: words.next()?.to_owned(),
        transport: Transport::Rc,
        builder: false,
        paths: Vec::new(),
        door: Door::Own,
        link: Link::InfiniBand,
        signal_all: false,
        laps: false,
        blocks: 128,
    };
    for (key, value) in words.fields()? {
        match (key, value) {
            ("transport", _) => queue.transport = words.parse(value)?,
            ("api", "list") => queue.builder = false,
            ("api", "builder") => queue.builder = true,
            ("paths", _) => queue.paths = value.split(',').map(str::to_owned).collect(),
            ("door", "shared") => queue.door = Door::Shared,
            ("door", "plain") => queue.door = Door::Plain,
            ("link", "roce") => queue.link = Link::Ethernet,
            ("signal-all", "yes") => queue.signal_all = true,
            ("laps", "yes") => queue.laps = true,
            ("blocks", _) => queue.blocks = words.parse(value)?,
            _ => return Err(words.wrong("no such field")),
        }
    }
    Ok(queue)
}

impl FromStr for Table {
    type Err = TableError;

    fn from_str(text: &str) -> Result<Self, TableError> {
        let mut table = Self::default();
        let lines = text.lines().map(str::trim);
        for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
            table.take(line)?;
        }
        Ok(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_this_package_can_be_read() {
        let table = Table::load().expect("a table");
        for queue in &table.queues {
            for path in &queue.paths {
                assert!(table.paths.iter().any(|own| own.name == *path), "{path}");
            }
        }
        for odd in &table.odd {
            assert!(table.queues.iter().any(|queue| queue.name == odd.queue), "{}", odd.queue);
            for (_, _, form) in &odd.requests {
                assert!(table.form(form).is_some(), "{form}");
            }
        }
    }

    #[test]
    fn a_line_that_says_nothing_known_is_named() {
        for line in ["quark x", "queue q speed=9", "form f lists 1", "request fly rc S sges"] {
            let error = line.parse::<Table>().expect_err(line);
            assert!(error.to_string().contains(line), "{error}");
        }
    }
}
