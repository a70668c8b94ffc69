//! `mlx5 dump`: work requests and completions as readable text.

mod cqe;
mod diagnosis;
mod facts;
mod hex;
mod item;
mod known;
mod layout;
mod lines;
mod listing;
mod live;
mod paste;
mod pattern;
mod refusal;
mod umr;
mod wqe;

pub(crate) use cqe::{FIRST_STRIDE, completion};
pub(crate) use item::Item;
pub(crate) use wqe::{
    Addressing, DATA, PACKET, receive, receive_of_strides, reported, send, shared_receive,
};

use crate::device::PortArgs;
use crate::failure::Failure;
use crate::files::is_dash;
use crate::json::{self, JsonArgs};
use crate::numbers::count;
use clap::ValueEnum;
use listing::Entry;
use mlx5_prm::cqe::DESCRIPTOR;
use serde_json::json;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

/// `--help`.
pub(crate) const LONG_ABOUT: &str = "\
Decodes work requests (WQEs) and completions (CQEs) into readable text, every field
with its offset, its name in the Programmer's Reference Manual and its value.

The input is any text that people paste: a whole log of the kernel (dmesg, journald),
of UCX, NCCL, DPDK, libmlx5 or perftest, with other lines between. The command finds
each dump and each line that reports an error, and says for each failure its syndrome,
vendor code and hardware syndrome with their known meaning and the source of that
knowledge, then the cause in words and what to try. mlx5 explain does the same for a
line on the command line.

Or it is bytes alone as hexadecimal text, in any usual format: plain, 0x-prefixed words,
C arrays, xxd, hexdump -C, od -tx1. The length of each request gives the start of the
next. With --kind, the dumps of a log are taken for what it names.

With --live, the command posts requests of every kind on a device, and decodes its ring
and its completions.

With --json: one object, whose items have a title, fields and notes; of --live they are in
parts, each with a title.";

const EXAMPLES: &str = "\
Examples:
  dmesg | mlx5 dump
  mlx5 dump --file ucx.log
  mlx5 dump 0000050a 0001a202 00000008 00000000 00000040 00001234 00007e00 00002000
  xxd ring.bin | mlx5 dump --transport ud
  mlx5 dump --kind recv --stride 32 --file rq.hex
  mlx5 dump --live --sim-link roce";

/// Options of `mlx5 dump`.
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// Bytes in hexadecimal, or a line; `-` or nothing reads stdin
    #[arg(value_name = "HEX", conflicts_with_all = ["file", "live"])]
    hex: Vec<String>,
    /// Read the text from a file, or with `-` from stdin
    #[arg(short, long, value_name = "FILE", conflicts_with = "live")]
    file: Option<PathBuf>,
    /// What the bytes contain
    #[arg(short, long, value_enum, default_value_t = Kind::Auto, conflicts_with = "live")]
    kind: Kind,
    /// Transport of the queue [default: guessed]; completions of raw packets need it
    #[arg(short, long, value_enum, conflicts_with = "live")]
    transport: Option<Transport>,
    /// Size of each CQE (64 or 128 bytes) or receive request (a power of two)
    #[arg(long, value_name = "BYTES", value_parser = count::<u32>(16, 4096))]
    stride: Option<u32>,
    /// Post requests of every kind on a device, and decode its queues
    #[arg(long, visible_alias = "demo")]
    live: bool,
    #[command(flatten)]
    json: JsonArgs,
    #[command(flatten)]
    port: PortArgs,
}

impl Args {
    fn addressing(&self) -> Option<Addressing> {
        self.transport.map(|transport| match transport {
            Transport::Ud => Addressing::Datagram,
            Transport::Raw => Addressing::Ethernet,
            Transport::Rc | Transport::Uc => Addressing::Connected,
        })
    }
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Errors and dumps of a log; of bytes alone, send requests or completions
    Auto,
    /// Send requests
    Wqe,
    /// Completions
    Cqe,
    /// Receive requests
    Recv,
    /// Receive requests of a shared receive queue
    Srq,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Transport {
    /// Reliable connection
    Rc,
    /// Unreliable connection
    Uc,
    /// Unreliable datagram
    Ud,
    /// Raw packets
    Raw,
}

/// The most input, in bytes: a device has no end.
const MOST: u64 = 64 << 20;

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    if args.live {
        return live::run(&args.port, args.json, out);
    }
    let missing = Failure::usage(NOTHING).hint(GIVE);
    let text = input(&args.hex, args.file.as_deref(), missing)?;
    if let Some(stride) = args.stride {
        check_stride(stride as usize, args.kind)?;
    }
    let entries = entries(&text, args)?;
    write("mlx5 dump", &entries, args.json, out)
}

const NOTHING: &str = "there are no bytes to decode";
const GIVE: &str = "give bytes as arguments, with --file or on stdin; --live needs none";

/// Writes what was decoded, as text or as JSON.
pub(crate) fn write(
    command: &str,
    entries: &[Entry],
    json: JsonArgs,
    out: &mut impl Write,
) -> Result<(), Failure> {
    match json.json {
        true => {
            json::write(out, &json!({ "command": command, "items": listing::to_json(entries) }))?;
        }
        false => listing::write(out, entries)?,
    }
    Ok(())
}

/// Explains the errors in a text; a number alone is a syndrome of the firmware.
pub(crate) fn explain(text: &str) -> Vec<Entry> {
    match refusal::number(text) {
        Some(item) => vec![Entry { at: None, line: None, length: 0, item: Some(item) }],
        None => found(text, None),
    }
}

/// Decodes a text of bytes alone, or what a text with other lines between says of a device.
fn entries(text: &str, args: &Args) -> Result<Vec<Entry>, Failure> {
    let problem = match hex::parse(text) {
        Ok(bytes) => return decode(&bytes, args),
        Err(problem) => problem,
    };
    let entries = match (args.kind, paste::bytes(text)) {
        (Kind::Auto, _) => found(text, args.addressing()),
        (_, bytes) if bytes.is_empty() => Vec::new(),
        (_, bytes) => decode(&bytes, args)?,
    };
    if entries.is_empty() {
        let cause = format!("no dump and no error of a device is in this text: {problem}");
        let hint = "`mlx5 dump --help` lists the accepted formats; --kind takes any dump of a log";
        return Err(Failure::usage(cause).hint(hint));
    }
    Ok(entries)
}

/// Takes apart all that a text says of a device.
fn found(text: &str, addressing: Option<Addressing>) -> Vec<Entry> {
    let entries = |one: &paste::Found| -> Vec<Entry> {
        let (line, length) = (Some(one.line), one.length());
        let items = diagnosis::explain(one, addressing).into_iter();
        items.map(|item| Entry { at: None, line, length, item: Some(item) }).collect()
    };
    paste::read(text).iter().flat_map(entries).collect()
}

/// Decodes bytes.
fn decode(bytes: &[u8], args: &Args) -> Result<Vec<Entry>, Failure> {
    if bytes.is_empty() {
        return Err(Failure::usage(NOTHING).hint(GIVE));
    }
    let stride = args.stride.map(|stride| stride as usize);
    let kind = match args.kind {
        Kind::Auto if wqe::looks_like_send(bytes) => Kind::Wqe,
        Kind::Auto if bytes.len().is_multiple_of(DESCRIPTOR) => Kind::Cqe,
        Kind::Auto => {
            let look = match bytes.len() {
                1 => "1 byte looks".to_owned(),
                count => format!("{count} bytes look"),
            };
            let cause = format!("{look} neither like send requests nor like completions");
            return Err(Failure::new(cause).hint("say what they are: --kind wqe, cqe, recv or srq"));
        }
        kind => kind,
    };
    let addressing = args.addressing();
    Ok(match kind {
        Kind::Auto | Kind::Wqe => ring(bytes, addressing),
        Kind::Cqe => {
            let decode =
                |bytes: &[u8]| diagnosis::completion(bytes, addressing, &facts::Facts::default());
            each(bytes, stride.unwrap_or(DESCRIPTOR), decode)
        }
        Kind::Recv => each(bytes, stride.unwrap_or(bytes.len()), wqe::receive),
        Kind::Srq => each(bytes, stride.unwrap_or(bytes.len()), wqe::shared_receive),
    })
}

fn check_stride(stride: usize, kind: Kind) -> Result<(), Failure> {
    let wrong = |what: &str, hint: &str| {
        Err(Failure::usage(format!("--stride {stride} {what}")).hint(hint))
    };
    match kind {
        Kind::Cqe if ![DESCRIPTOR, 2 * DESCRIPTOR].contains(&stride) => {
            wrong("is not the size of a completion", "completions have 64 or 128 bytes")
        }
        Kind::Auto | Kind::Wqe => {
            wrong("is for completions and receive requests", "say which: --kind cqe, recv or srq")
        }
        _ if !stride.is_power_of_two() => {
            wrong("is not a power of two", "requests of a receive queue have 16, 32, 64 ... bytes")
        }
        _ => Ok(()),
    }
}

/// The text of the command line, of a file or of stdin. Nothing is read from a terminal.
pub(crate) fn input(
    words: &[String],
    file: Option<&Path>,
    missing: Failure,
) -> Result<String, Failure> {
    if let Some(path) = file.filter(|file| !is_dash(file)) {
        let failed = |error: io::Error| Failure::new(format!("{}: {error}", path.display()));
        return read(File::open(path).map_err(failed)?, &failed);
    }
    if !words.is_empty() && words != ["-"] {
        return Ok(words.join(" "));
    }
    let stdin = io::stdin();
    if stdin.is_terminal() && words.is_empty() && file.is_none() {
        return Err(missing);
    }
    read(stdin, &Failure::from)
}

/// Reads text to its end.
fn read(from: impl Read, failed: &dyn Fn(io::Error) -> Failure) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    from.take(MOST + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MOST {
        let cause = format!("the input is longer than {} MiB", MOST >> 20);
        return Err(Failure::new(cause).hint("cut out a part: `xxd -s START -l BYTES FILE`"));
    }
    String::from_utf8(bytes).map_err(|_| {
        let failure = Failure::usage("the input is not text");
        failure.hint("of a file of bytes make hexadecimal: `xxd FILE | mlx5 dump`")
    })
}

/// Decodes consecutive send requests.
fn ring(bytes: &[u8], addressing: Option<Addressing>) -> Vec<Entry> {
    let entry = |(at, request): (usize, &[u8])| {
        let zeros = request.iter().all(|byte| *byte == 0);
        let item = (!zeros).then(|| wqe::send(request, addressing));
        Entry { at: Some(at), line: None, length: request.len(), item }
    };
    wqe::ring(bytes).map(entry).collect()
}

/// Decodes completions or receive requests of `stride` bytes each.
fn each(bytes: &[u8], stride: usize, decode: impl Fn(&[u8]) -> Item) -> Vec<Entry> {
    let entry = |(index, bytes): (usize, &[u8])| Entry {
        at: Some(index * stride),
        line: None,
        length: bytes.len(),
        item: Some(decode(bytes)),
    };
    bytes.chunks(stride).enumerate().map(entry).collect()
}

#[cfg(test)]
mod tests;
