//! Finds what a device has said in a text as people paste it: dumps of completions, requests and
//! commands between any other lines, and the lines that programs print of failures.

use super::facts::{self, Facts};
use super::lines::{self, About};
use super::pattern::Pattern;
use super::refusal;
use mlx5_prm::cqe::{CqeOpcode, DESCRIPTOR, OPCODE_SHIFT, Syndrome};

/// Something that a text says of a device.
pub(super) struct Found {
    /// The line at which it starts, from 1.
    pub(super) line: usize,
    pub(super) what: What,
    pub(super) facts: Facts,
    /// Lines that said the same, one after the other.
    pub(super) count: usize,
}

impl Found {
    /// Bytes of a dump.
    pub(super) fn length(&self) -> usize {
        match &self.what {
            What::Completion(bytes) | What::Requests(bytes) | What::Command(bytes) => bytes.len(),
            What::Line(_) => 0,
        }
    }

    fn is_dump(&self) -> bool {
        !matches!(self.what, What::Line(_))
    }

    /// Whether both say the same, as far as they say it.
    fn is_same(&self, other: &Self) -> bool {
        let failure =
            |one: &Self| matches!(one.what, What::Completion(_) | What::Line(About::Failed));
        let both = match failure(self) && failure(other) {
            true => {
                let syndrome = |one: &Self| one.facts.number("syndrome");
                syndrome(self).is_some() && syndrome(self) == syndrome(other)
            }
            false => self.what == other.what,
        };
        both && !(self.is_dump() && other.is_dump()) && self.facts.agrees(&other.facts)
    }
}

/// The bytes of a dump, or a line.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum What {
    Completion(Vec<u8>),
    Requests(Vec<u8>),
    /// The input or output of a firmware command.
    Command(Vec<u8>),
    Line(About),
}

/// The content of a dump, by its announcement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Nothing was announced.
    Unknown,
    Completion,
    /// A ring of completions, most of which say nothing.
    Completions,
    Requests,
    Command,
}

/// Lines that announce a dump. Their facts are about it.
const ANNOUNCED: [(&str, Kind); 8] = [
    ("dump error cqe", Kind::Completion),
    ("WC error: {_}, message", Kind::Completion),
    ("got completion with error:", Kind::Completion),
    ("error cqe on cqn {_}, ci {_},", Kind::Completion),
    ("MLX5 Error CQE", Kind::Completion),
    ("MLX5 Error CQ", Kind::Completions),
    ("MLX5 Error SQ", Kind::Requests),
    ("WQE DUMP:", Kind::Requests),
];
const COMMAND: &str = "dump command data {command:word}({command_opcode}) {direction:word}";
/// Commands run at the same time, each in a slot.
const SLOT: &str = "cmd[{slot}]: dump command data";
const WQE_INDEX: &str = "WQE DUMP: * WQE index {wqe_index}, len";

/// Lines that may stand between an announcement and its dump, or within a dump: kernel logs have
/// the lines of other processors between.
const BETWEEN: usize = 8;

/// A row of a dump.
struct Row {
    offset: Option<usize>,
    bytes: Vec<u8>,
}

/// A dump that is being read.
struct Dump {
    kind: Kind,
    line: usize,
    last: usize,
    bytes: Vec<u8>,
    facts: Facts,
}

impl Dump {
    /// Whether the row at this line goes on with it.
    fn takes(&self, line: usize, row: &Row) -> bool {
        let fits = match row.offset {
            Some(offset) => offset == self.bytes.len(),
            None => self.bytes.len() < DESCRIPTOR,
        };
        fits && line - self.last <= BETWEEN
    }
}

/// All that is found, in the order of the text.
pub(super) fn read(text: &str) -> Vec<Found> {
    let line_ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
    let line_of = |at: usize| line_ends.partition_point(|end| *end < at) + 1;
    let line = |mut line: lines::Line| {
        facts::complete(&mut line.facts);
        let (what, facts) = (What::Line(line.about), line.facts);
        Found { line: line_of(line.at), what, facts, count: 1 }
    };
    let mut found: Vec<Found> = dumps(text).into_iter().flat_map(known).collect();
    let says = |one: &Found| {
        one.what != What::Line(About::Failed)
            || ["syndrome", "vendor"].iter().any(|name| one.facts.number(name).is_some())
    };
    found.extend(lines::find(text).into_iter().map(line).filter(says));
    found.sort_by_key(|one| one.line);
    answer(&mut found);
    joined(found)
}

/// The bytes of all dumps in the text, whatever they are.
pub(super) fn bytes(text: &str) -> Vec<u8> {
    dumps(text).into_iter().flat_map(|dump| dump.bytes).collect()
}

fn dumps(text: &str) -> Vec<Dump> {
    let announced = ANNOUNCED.map(|(pattern, kind)| (Pattern::new(pattern), kind));
    let [command, slot, index] = [COMMAND, SLOT, WQE_INDEX].map(Pattern::new);
    let mut dumps: Vec<Dump> = Vec::new();
    let mut next = (Kind::Unknown, 0, Facts::default());
    let mut open = false;
    for (number, line) in text.lines().enumerate() {
        let all = 0..line.len();
        if let Some((_, mut facts)) = command.find(line, all.clone()) {
            if let Some((_, slot)) = slot.find(line, all) {
                facts.join(&slot);
            }
            (next, open) = ((Kind::Command, number, facts), false);
        } else if let Some((_, kind)) =
            announced.iter().find(|(pattern, _)| pattern.find(line, all.clone()).is_some())
        {
            let facts = index.find(line, all).map(|(_, facts)| facts).unwrap_or_default();
            (next, open) = ((*kind, number, facts), false);
        }
        let Some(row) = row(line) else { continue };
        match dumps.last_mut().filter(|dump| open && dump.takes(number, &row)) {
            Some(dump) => {
                dump.bytes.extend(row.bytes);
                dump.last = number;
            }
            None => {
                let (kind, at, facts) =
                    std::mem::replace(&mut next, (Kind::Unknown, 0, Facts::default()));
                let kind = if number - at <= BETWEEN { kind } else { Kind::Unknown };
                let facts = if kind == Kind::Unknown { Facts::default() } else { facts };
                let line = number + 1;
                dumps.push(Dump { kind, line, last: number, bytes: row.bytes, facts });
                open = true;
            }
        }
    }
    dumps
}

/// A row of 16 bytes: what stands before it and after it does not matter.
fn row(line: &str) -> Option<Row> {
    let words: Vec<&str> = line.split_whitespace().collect();
    // Sixteen numbers of two digits, four of eight, or eight of four.
    [(16, 2), (4, 8), (8, 4)].into_iter().find_map(|(count, digits)| {
        let fits = |start: &usize| {
            let words = words.get(*start..*start + count);
            words.is_some_and(|words| {
                let (last, before) = words.split_last().unwrap_or((&"", &[]));
                before.iter().all(|word| word.len() == digits && hex(word, digits).is_some())
                    && hex(last, digits).is_some()
            })
        };
        let start = (0..words.len()).find(fits)?;
        let text: String =
            words[start..start + count].iter().filter_map(|word| hex(word, digits)).collect();
        let bytes = (0..16).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16));
        let offset = start.checked_sub(1).and_then(|before| offset(words[before]));
        Some(Row { offset, bytes: bytes.collect::<Result<_, _>>().ok()? })
    })
}

/// The first digits of a word, if it has no more of them: logs glue the next line to a last row.
fn hex(word: &str, digits: usize) -> Option<&str> {
    let count = word.bytes().take_while(u8::is_ascii_hexdigit).count();
    (count == digits).then(|| &word[..digits])
}

/// The offset before a row, which a colon ends.
fn offset(word: &str) -> Option<usize> {
    let digits = word.strip_suffix(':')?;
    usize::from_str_radix(digits.strip_prefix("0x").unwrap_or(digits), 16).ok()
}

/// The finds in a dump, if its content is known.
fn known(dump: Dump) -> Vec<Found> {
    let Dump { kind, line, bytes, facts, .. } = dump;
    let failed = bytes.chunks_exact(DESCRIPTOR).filter(|descriptor| is_failure(descriptor));
    let what = match kind {
        Kind::Unknown if bytes.len() > DESCRIPTOR => Vec::new(),
        Kind::Unknown | Kind::Completions => {
            failed.map(|descriptor| What::Completion(descriptor.to_vec())).collect()
        }
        Kind::Completion => vec![What::Completion(bytes)],
        Kind::Requests => vec![What::Requests(bytes)],
        Kind::Command => vec![What::Command(bytes)],
    };
    let found = |what| {
        let mut facts = facts.clone();
        match &what {
            What::Completion(bytes) => facts::read(bytes, &mut facts),
            What::Command(bytes) => refusal::read(bytes, &mut facts),
            What::Requests(_) | What::Line(_) => {}
        }
        Found { line, what, facts, count: 1 }
    };
    what.into_iter().map(found).collect()
}

/// Gives each output of a command what its input says.
fn answer(found: &mut [Found]) {
    let is_command = |one: &Found| matches!(one.what, What::Command(_));
    let commands: Vec<usize> = (0..found.len()).filter(|at| is_command(&found[*at])).collect();
    for (index, at) in commands.iter().enumerate() {
        let same = |input: &&usize| {
            ["command_opcode", "slot"]
                .iter()
                .all(|name| found[**input].facts.number(name) == found[*at].facts.number(name))
        };
        if let Some(input) = commands[..index].iter().rev().find(same) {
            let facts = found[*input].facts.clone();
            found[*at].facts.join(&facts);
        }
    }
}

/// Joins what says the same: a dump and the lines around it, and lines that repeat.
fn joined(found: Vec<Found>) -> Vec<Found> {
    let mut all: Vec<Found> = Vec::new();
    for one in found {
        let Some(last) = all.last_mut().filter(|last| last.is_same(&one)) else {
            all.push(one);
            continue;
        };
        last.facts.join(&one.facts);
        match last.what == one.what {
            true => last.count += 1,
            false if last.is_dump() => {}
            false => last.what = one.what,
        }
    }
    all
}

/// Whether this is a completion of something that failed.
fn is_failure(descriptor: &[u8]) -> bool {
    let opcode = CqeOpcode::from_bits(descriptor[DESCRIPTOR - 1] >> OPCODE_SHIFT);
    matches!(opcode, Some(CqeOpcode::RequesterError | CqeOpcode::ResponderError))
        && Syndrome::from_bits(descriptor[DESCRIPTOR - 9]).is_some()
}

#[cfg(test)]
mod tests;
