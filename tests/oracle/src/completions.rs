//! Completions: the same entries, read by both providers.
//!
//! Each side posts a request. The oracle writes an entry that completes it, with the same random
//! words in every field that the device fills in. Then it compares the result of `ibv_poll_cq` and
//! of the extended readers with that of this provider. `peer/completions.c` has the C side.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use mlx5::CqeSize;
use mlx5_prm::cqe::{CqeOpcode, Format, TagEvent};

pub(crate) use self::rows::Random;
use self::rows::{Api, Posted, Row, rows};
use crate::compare::{Comparison, Difference};
use crate::failure::Failure;
use crate::table::Link;

mod ours;
mod rows;

/// The seed of the random words, unless `MLX5_SEED` gives another one.
const SEED: u64 = 0x5eed_0006;

/// Bits of `wc_flags` (`enum ibv_wc_flags`), by the names under which they are compared.
mod flag {
    pub(super) const GRH: (&str, u64) = ("grh", 1 << 0);
    pub(super) const WITH_IMM: (&str, u64) = ("with_imm", 1 << 1);
    pub(super) const CHECKSUM_OK: (&str, u64) = ("checksum_ok", 1 << 2);
    pub(super) const WITH_INV: (&str, u64) = ("with_inv", 1 << 3);
    pub(super) const TM_SYNC: (&str, u64) = ("tm_sync", 1 << 4);
    pub(super) const TM_MATCH: (&str, u64) = ("tm_match", 1 << 5);
    pub(super) const TM_DATA: (&str, u64) = ("tm_data", 1 << 6);
    pub(super) const ALL: [(&str, u64); 7] =
        [GRH, WITH_IMM, CHECKSUM_OK, WITH_INV, TM_SYNC, TM_MATCH, TM_DATA];
}

/// The fields of a completion, as one side reads them.
#[derive(Clone, Default)]
struct Fields {
    numbers: BTreeMap<String, u64>,
    /// The data that the entry held for the request's memory.
    data: Option<Vec<u8>>,
}

impl Fields {
    fn set(&mut self, name: &str, value: Option<u64>) {
        if let Some(value) = value {
            self.numbers.insert(name.to_owned(), value);
        }
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.numbers.get(name).copied()
    }

    /// Reads the C program's line.
    fn parse(line: &str) -> Option<Self> {
        let mut fields = Self::default();
        for pair in line.split_whitespace() {
            match pair.split_once('=')? {
                ("data", text) => {
                    let byte = |at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
                    fields.data =
                        Some((0..text.len()).step_by(2).map(byte).collect::<Option<_>>()?);
                }
                ("flags", value) => {
                    let value = u64::from_str_radix(value, 16).ok()?;
                    for (name, bit) in flag::ALL {
                        fields.set(name, Some(u64::from(value & bit != 0)));
                    }
                }
                (name, value) => fields.set(name, Some(u64::from_str_radix(value, 16).ok()?)),
            }
        }
        Some(fields)
    }
}

/// Fields of a packet. They are in the first half of a descriptor, where a short message may be
/// instead.
const PACKET: [&str; 6] = ["src_qp", "grh", "slid", "sl", "path", "checksum_ok"];

/// The name of a row's kind in differences, and the fields that have a meaning for this kind.
fn meaning(row: &Row, theirs: &Fields) -> (&'static str, Vec<&'static str>) {
    let mut fields = vec!["wr_id", "status", "opcode", "qpn"];
    let timed = if row.api == Api::Extended { &["time", "wallclock"][..] } else { &[] };
    let error = [CqeOpcode::RequesterError, CqeOpcode::ResponderError];
    if error.contains(&row.opcode()) {
        fields.push("vendor");
        return ("failed", fields);
    }
    fields.extend(timed);
    match row.posted {
        Posted::Request(_, sent) => {
            fields.extend(["with_imm", "with_inv"]);
            if sent.is_answered() {
                fields.push("length");
            }
            ("sent", fields)
        }
        Posted::Tag { .. } => {
            fields.extend(["tm_sync", "tm_match", "tm_data"]);
            ("tag", fields)
        }
        Posted::Receive(rows::Target::Tags) | Posted::Match => {
            use TagEvent::{Consumed, ConsumedSwRendezvous, MessageCompletionCanceled};
            fields.extend(["tm_sync", "tm_match", "tm_data"]);
            if theirs.number(flag::TM_MATCH.0) == Some(1) {
                fields.extend(["tm_tag", "tm_priv"]);
            }
            // The message is not there: it arrives later, or never.
            let bare = [Consumed, ConsumedSwRendezvous, MessageCompletionCanceled];
            if !bare.map(Some).contains(&row.event()) {
                fields.push("length");
            }
            let cancelled = row.event() == Some(MessageCompletionCanceled);
            (if cancelled { "cancelled-message" } else { "tagged" }, fields)
        }
        Posted::Receive(_) => {
            fields.extend(["length", "with_imm", "with_inv"]);
            if [flag::WITH_IMM, flag::WITH_INV].iter().any(|of| theirs.number(of.0) == Some(1)) {
                fields.push("imm");
            }
            fields.extend(PACKET);
            match row.api {
                Api::List => fields.push("pkey"),
                Api::Extended => fields.extend(["vlan", "flow_tag"]),
            }
            if row.api == Api::Extended && row.format() == Format::Plain {
                fields.extend(["network", "network_ok", "transport_ok"]);
            }
            let work = row.posted == Posted::Receive(rows::Target::Work);
            (if work { "received-by-work" } else { "received" }, fields)
        }
    }
}

fn shown(value: Option<u64>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| format!("{value:#x}"))
}

/// The part of the entry that the provider took for the message.
fn taken(row: &Row, data: Option<&[u8]>) -> String {
    let (Some(start), Some(data)) = (row.message(), data) else {
        return if data.is_some() { "something" } else { "nothing" }.to_owned();
    };
    let is_at = |at: usize, data: &[u8]| row.entry[at..].starts_with(data);
    match data {
        [_, rest @ ..] if !is_at(start, data) && is_at(0, rest) => "from a byte before the entry",
        data if is_at(start, data) => "the message",
        data if is_at(0, data) => "from the start of the entry",
        _ => "something else",
    }
    .to_owned()
}

fn compare_row(place: &str, row: &Row, theirs: &Fields, ours: &Fields) -> Comparison {
    let (about, fields) = meaning(row, theirs);
    let mut differences = Vec::new();
    let mut add = |field: &str, peer: String, ours: String| {
        let id = format!("completion/{about}/{field}");
        differences.push(Difference { id, place: format!("{place}, {row}"), peer, ours });
    };
    for field in fields {
        let (peer, own) = (theirs.number(field), ours.number(field));
        let hidden =
            row.format() == Format::Inline32 && (PACKET.contains(&field) || field == "vlan");
        if hidden && own.is_none() {
            add("behind-message", field.to_owned(), shown(own));
        } else if peer != own {
            add(field, shown(peer), shown(own));
        }
    }
    let [peer, own] = [theirs, ours].map(|side| taken(row, side.data.as_deref()));
    // The second one is right: nothing, if there is no message.
    let right = if row.message().is_some() { "the message" } else { "nothing" };
    let failed = ours.number("status") != Some(0);
    if peer != own || !failed && own != right {
        add("data", peer, own);
    }
    Comparison { kind: "completion", differences }
}

/// The C program, on a machine.
struct Peer<'a> {
    program: &'a Path,
    library: &'a Path,
    link: Link,
    size: CqeSize,
}

impl Peer<'_> {
    fn run(&self, rows: &[Row]) -> Result<Vec<Fields>, Failure> {
        let link = if self.link == Link::InfiniBand { "ib" } else { "roce" };
        let bytes = if self.size == CqeSize::Bytes64 { "64" } else { "128" };
        let mut process = Command::new(self.program);
        process.env("LD_PRELOAD", self.library).env("MLX5_SIM", format!("step,link={link},raw=on"));
        // It prints every entry of an error.
        process.env("MLX5_CQE_SIZE", bytes).env("MLX5_DEBUG_FILE", "/dev/null");
        let mut child = process.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let script: String = rows.iter().map(|row| format!("{row}\n")).collect();
        let mut input = child.stdin.take().ok_or(Failure::Missing("the C program's input"))?;
        let writer = std::thread::spawn(move || input.write_all(script.as_bytes()));
        let output = child.wait_with_output()?;
        let written = writer.join();
        if !output.status.success() {
            return Err(Failure::Peer(output.status));
        }
        if !matches!(written, Ok(Ok(()))) {
            return Err(Failure::Missing("a reader of the whole script"));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let fields: Vec<_> = text
            .lines()
            .map(|line| Fields::parse(line).ok_or_else(|| Failure::Said(line.to_owned())))
            .collect::<Result<_, _>>()?;
        match fields.len() == rows.len() {
            true => Ok(fields),
            false => Err(Failure::Missing("an answer to every completion")),
        }
    }
}

/// Completes the same requests on both sides, and compares the completions.
pub(crate) fn compare(
    program: &Path,
    library: &Path,
    machine: impl Fn(Link) -> mlx5_sim::Simulator,
) -> Result<Vec<Comparison>, Failure> {
    let seed = std::env::var("MLX5_SEED");
    let seed = seed.map_or(SEED, |seed| seed.parse().expect("MLX5_SEED is a number"));
    println!("completions: MLX5_SEED={seed}");
    let mut comparisons = Vec::new();
    for (n, link) in [Link::InfiniBand, Link::Ethernet].into_iter().enumerate() {
        for (m, size) in [CqeSize::Bytes64, CqeSize::Bytes128].into_iter().enumerate() {
            // rdma-core makes no tag-matching queue on Ethernet.
            let tags = link == Link::InfiniBand;
            let seed = seed.wrapping_add(2 * n as u64 + m as u64).max(1);
            let rows = rows(seed, size == CqeSize::Bytes128, tags, link == Link::Ethernet);
            let theirs = Peer { program, library, link, size }.run(&rows)?;
            let has = (tags, link == Link::Ethernet);
            let ours = ours::run(&machine(link), size, has, &rows, &theirs)?;
            let place = format!("{link:?}, {size:?}");
            let both = rows.iter().zip(theirs.iter().zip(&ours));
            comparisons
                .extend(both.map(|(row, (theirs, ours))| compare_row(&place, row, theirs, ours)));
        }
    }
    Ok(comparisons)
}
