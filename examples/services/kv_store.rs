//! A key-value store whose server takes no part in a get.
//!
//! The server's table is memory that clients may read. A client gets a value by an RDMA READ of the
//! key's slot, without the server's processor. So a read may see a write half-way. A slot therefore
//! has a checksum of its other bytes, version included, and a client that finds it wrong reads
//! again. To put, a client writes into its own mailbox in the server's memory, with immediate data
//! that wakes the server. Only the server writes to the table, and it answers with the version.
//!
//! Run it with `cargo run --example kv_store -- --help`.

mod common;

use clap::Subcommand;
use common::{End, ListenArgs, Outcome, ServerArgs, Site};
use mlx5::{Access, CompletionOpcode, Kernel, MemoryRegion, RemoteSlice, Sge};
use mlx5_cm::Listener;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// A key-value store: puts by RDMA WRITE with immediate data, gets by one-sided RDMA READ
#[derive(Subcommand)]
enum Command {
    /// Serve a table until killed
    Serve {
        #[command(flatten)]
        at: ListenArgs,
        /// Wait for Enter in the middle of each write to the table
        #[arg(long)]
        step: bool,
    },
    /// Put a value
    Put {
        key: String,
        value: String,
        #[command(flatten)]
        at: ServerArgs,
    },
    /// Print the value of a key
    Get {
        key: String,
        #[command(flatten)]
        at: ServerArgs,
    },
    /// Put and get the same few keys as fast as possible, and check each value
    Load {
        /// Number of rounds
        #[arg(long, default_value_t = 100)]
        rounds: usize,
        #[command(flatten)]
        at: ServerArgs,
    },
}

const SLOTS: usize = 256;
/// Bytes of a slot: a checksum of the rest, the version, and the key and the value, each followed
/// by a zero.
const SLOT: usize = 256;
const TEXT: usize = 16;

/// Contents of a slot. Version 0 is an empty slot.
#[derive(Default)]
struct Entry {
    version: u64,
    key: String,
    value: String,
}

/// FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

impl Entry {
    fn encode(&self) -> Outcome<[u8; SLOT]> {
        let (text, mut slot) = (format!("{}\0{}\0", self.key, self.value), [0; SLOT]);
        if text.len() > SLOT - TEXT {
            return Err(format!("key and value have at most {} bytes", SLOT - TEXT - 2).into());
        }
        slot[8..TEXT].copy_from_slice(&self.version.to_le_bytes());
        slot[TEXT..TEXT + text.len()].copy_from_slice(text.as_bytes());
        let checksum = hash(&slot[8..]);
        slot[..8].copy_from_slice(&checksum.to_le_bytes());
        Ok(slot)
    }

    /// Decodes a slot of memory; `None` if it was read in the middle of a write.
    fn decode(memory: &MemoryRegion, slot: usize) -> Outcome<Option<Self>> {
        let mut bytes = [0; SLOT];
        memory.read_at(slot * SLOT, &mut bytes)?;
        let number =
            |at| (0..8).rev().fold(0, |n, byte: usize| n << 8 | u64::from(bytes[at + byte]));
        let mut texts = bytes[TEXT..].split(|byte| *byte == 0).map(String::from_utf8_lossy);
        let mut text = || texts.next().unwrap_or_default().into_owned();
        let entry = Self { version: number(8), key: text(), value: text() };
        Ok((number(0) == hash(&bytes[8..])).then_some(entry))
    }
}

/// Finds a key: its slot, or the empty slot where it would go, with the contents.
fn find(key: &str, mut read: impl FnMut(usize) -> Outcome<Entry>) -> Outcome<(usize, Entry)> {
    let first = hash(key.as_bytes()) as usize;
    for slot in (0..SLOTS).map(|step| first.wrapping_add(step) % SLOTS) {
        let entry = read(slot)?;
        if entry.version == 0 || entry.key == key {
            return Ok((slot, entry));
        }
    }
    Err("the table is full".into())
}

fn serve(listener: Listener, site: &Site, step: bool) -> Outcome {
    let rights = Access::LOCAL_WRITE | Access::REMOTE_READ;
    let table = site.pd.memory(SLOTS * SLOT).access(rights).register()?;
    table.write_at(0, &Entry::default().encode()?.repeat(SLOTS))?;
    let readable = table.remote_slice(..)?.cast::<[u8; SLOT]>()?;
    // Clients read the table at any time; a thread writes only with the lock.
    let table = Mutex::new(table);
    common::serve(listener, |request, number| {
        let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let mailbox = site.pd.memory(SLOT).access(rights).register()?;
        let regions = [readable.to_bytes(), mailbox.remote_slice(..)?.to_bytes()].concat();
        let mut end = site.accept(request, number, &regions)?;
        loop {
            // Completions of answers arrive here, too.
            if end.next()?.as_completion().opcode() == CompletionOpcode::ReceiveRdmaWithImm {
                let letter = Entry::decode(&mailbox, 0)?.ok_or("the letter is damaged")?;
                let version = put(&table, letter, step)? as u32;
                // The next letter may come as soon as this one is answered.
                end.qp.recv(0, Sge::default())?;
                end.post(|wr| wr.send_imm(version.to_be_bytes()).sge_list(&[]))?;
            }
        }
    })
}

fn put(table: &Mutex<MemoryRegion>, new: Entry, step: bool) -> Outcome<u64> {
    let table = table.lock().map_err(|_| "a put has failed half-way")?;
    let (slot, old) = find(&new.key, |slot| {
        Entry::decode(&table, slot)?.ok_or_else(|| "the table is damaged".into())
    })?;
    let version = old.version + 1;
    let bytes = Entry { version, ..new }.encode()?;
    let (head, text) = bytes.split_at(TEXT);
    table.write_at(slot * SLOT, head)?;
    if step {
        println!("half of a slot is written: press Enter");
        std::io::stdin().read_line(&mut String::new())?;
    }
    table.write_at(slot * SLOT + TEXT, text)?;
    Ok(version)
}

struct Client<'a> {
    end: &'a mut End,
    memory: MemoryRegion,
    table: RemoteSlice<[u8; SLOT]>,
    mailbox: RemoteSlice,
    /// Number of reads that saw a write half-way.
    torn: usize,
}

impl Client<'_> {
    fn put(&mut self, key: &str, value: &str) -> Outcome<String> {
        let entry = Entry { version: 0, key: key.to_owned(), value: value.to_owned() };
        self.memory.write_at(0, &entry.encode()?)?;
        let (to, from) = (self.mailbox.start(), self.memory.whole()?);
        self.end.post(|wr| wr.rdma_write_imm(to, [0; 4]).sge(from))?;
        let mut version = None;
        // The write and the answer complete in any order.
        for _ in 0..2 {
            version = self.end.done()?.as_completion().imm_data().or(version);
        }
        self.end.qp.recv(0, Sge::default())?;
        let version = version.map(u32::from_be_bytes).ok_or("there is no version in the answer")?;
        Ok(format!("version {version}"))
    }

    fn get(&mut self, key: &str) -> Outcome<Entry> {
        match find(key, |slot| self.read(slot))?.1 {
            entry if entry.version > 0 => Ok(entry),
            _ => Err(format!("there is no key \"{key}\"").into()),
        }
    }

    /// Reads a slot, and reads again if the slot is being written.
    fn read(&mut self, slot: usize) -> Outcome<Entry> {
        let (from, to) = (self.table.at(slot)?, self.memory.whole()?);
        let begun = Instant::now();
        loop {
            self.end.request(|wr| wr.rdma_read(from).sge(to))?;
            match Entry::decode(&self.memory, 0)? {
                Some(entry) => return Ok(entry),
                None if begun.elapsed() > self.end.limit => {
                    let limit = self.end.limit;
                    return Err(
                        format!("a write of the server did not end within {limit:?}").into()
                    );
                }
                None if self.torn == 0 => println!("a read met a write: it is done again"),
                None => {}
            }
            self.torn += 1;
        }
    }

    /// Puts values that can be checked, and checks those of this client and of others.
    fn load(&mut self, rounds: usize) -> Outcome<String> {
        for round in 0..rounds {
            let key = ["red", "green", "blue"][round % 3];
            self.put(key, &format!("{}.{round};", std::process::id()).repeat(12))?;
            let value = self.get(key)?.value;
            let (first, _) = value.split_once(';').unwrap_or_default();
            if value != format!("{first};").repeat(12) {
                return Err(format!("{key} has a value that no client put: {value}").into());
            }
        }
        Ok(format!("{rounds} puts and gets, {} torn reads done again", self.torn))
    }
}

/// Runs `work` at a server, and prints its result.
fn with_server(
    kernel: Arc<dyn Kernel>,
    at: &ServerArgs,
    work: impl FnOnce(&mut Client<'_>) -> Outcome<String>,
) -> Outcome {
    let (site, mut end) = at.call(kernel)?;
    let (table, mailbox) = (end.peer_region(0)?, end.peer_region(1)?);
    let memory = site.pd.allocate(SLOT)?;
    println!("{}", work(&mut Client { end: &mut end, memory, table, mailbox, torn: 0 })?);
    Ok(())
}

fn main() -> ExitCode {
    common::run(|kernel, command| match command {
        Command::Serve { at, step } => {
            at.listen(kernel).and_then(|(at, site)| serve(at, &site, step))
        }
        Command::Put { key, value, at } => {
            with_server(kernel, &at, |client| client.put(&key, &value))
        }
        Command::Get { key, at } => with_server(kernel, &at, |client| {
            let Entry { value, version, .. } = client.get(&key)?;
            Ok(format!("{value} (version {version}, {} torn reads)", client.torn))
        }),
        Command::Load { rounds, at } => with_server(kernel, &at, |client| client.load(rounds)),
    })
}
