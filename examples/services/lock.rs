//! A lock service whose server only provides the memory.
//!
//! A lock is a word in the server's memory. Its upper half is a fencing token, and its lower half
//! is the number of the client that holds the lock, or 0. A client takes the lock by a
//! compare-and-swap that sets the next token, and frees it by another one. A client that finds the
//! lock taken backs off and reads again. The lock here protects a counter next to it.
//!
//! The server frees the locks of a client that hangs up, also by compare-and-swap through the
//! device: the device's atomics are atomic to each other, not to the processor. Such a client may
//! not know yet that it lost the lock. If that matters, the protected resource must refuse a token
//! that is older than the newest it has seen.
//!
//! When the server dies, the connection manager reports it or a request fails, and the client
//! fails. With `--patience` the client connects again with a new queue pair as soon as a server
//! runs.
//!
//! Run it with `cargo run --example lock -- --help`.

mod common;

use clap::{Subcommand, value_parser};
use common::{End, ListenArgs, Outcome, ServerArgs, Site};
use mlx5::{Access, ConnectOptions, Kernel, MemoryRegion, RemoteAddress, RemoteSlice, SendFlags};
use mlx5_cm::Listener;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// A lock service: compare-and-swap on words in the server's memory, with fencing tokens
#[derive(Subcommand)]
enum Command {
    /// Provide the memory of 64 locks until killed
    Serve {
        #[command(flatten)]
        at: ListenArgs,
    },
    /// Take a lock, and keep it until killed
    Hold {
        /// Number of the lock, below 64
        #[arg(value_parser = value_parser!(u16).range(..i64::from(LOCKS)))]
        lock: u16,
        #[command(flatten)]
        at: ServerArgs,
    },
    /// Increment the counter that a lock protects, each time under the lock
    Count {
        /// Number of the lock, below 64
        #[arg(value_parser = value_parser!(u16).range(..i64::from(LOCKS)))]
        lock: u16,
        /// Number of increments
        #[arg(long, default_value_t = 10)]
        rounds: u32,
        /// Time to wait for a new server if the server is lost
        #[arg(long, value_name = "SECONDS", default_value_t = 0)]
        patience: u64,
        #[command(flatten)]
        at: ServerArgs,
    },
}

const LOCKS: u16 = 64;
/// A lock: its word, and the counter that it protects.
type Lock = [u64; 2];
/// The shortest and the longest time to back off.
const PAUSE: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(5));
/// Pause before the next try to reach a server.
const AGAIN: Duration = Duration::from_millis(100);

/// The word of a lock that a client holds, or that is free if `client` is 0.
fn word(token: u32, client: u32) -> u64 {
    u64::from(token) << 32 | u64::from(client)
}

/// Token and client of a word.
fn parts(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

/// Takes and frees locks, for a client, or in the server for clients that have gone.
struct Locker<'a> {
    end: &'a mut End,
    /// Buffer for the result of a request.
    found: &'a MemoryRegion,
    locks: RemoteSlice<Lock>,
    number: u32,
}

impl Locker<'_> {
    fn found(&self) -> Outcome<u64> {
        let mut bytes = [0; 8];
        self.found.read_at(0, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    fn read(&mut self, at: RemoteAddress) -> Outcome<u64> {
        let to = self.found.whole()?;
        self.end.request(|wr| wr.rdma_read(at).sge(to))?;
        self.found()
    }

    /// Replaces the word with `new` if it is `old`. Returns the previous word.
    fn swap(&mut self, at: RemoteAddress, old: u64, new: u64) -> Outcome<u64> {
        let to = self.found.whole()?;
        self.end.request(|wr| wr.atomic_cmp_swp(at, old, new).sge(to))?;
        self.found()
    }

    /// Takes a lock; returns the fencing token. Waits while another client holds the lock.
    fn lock(&mut self, lock: u16) -> Outcome<u32> {
        let (at, mut pause) = (self.locks.at(lock.into())?, PAUSE.0);
        let mut seen = self.read(at)?;
        loop {
            let (token, client) = parts(seen);
            if client == 0 {
                let mine = word(token.wrapping_add(1), self.number);
                let was = self.swap(at, seen, mine)?;
                if was == seen {
                    return Ok(parts(mine).0);
                }
                seen = was;
                continue;
            }
            if pause == PAUSE.0 {
                println!("client {} waits: client {client} has lock {lock}", self.number);
            }
            thread::sleep(pause);
            // The pauses differ, so that waiting clients do not all return at the same time.
            pause = (pause * 2 + PAUSE.0 * (self.number % 8)).min(PAUSE.1);
            seen = self.read(at)?;
        }
    }

    fn unlock(&mut self, lock: u16, token: u32) -> Outcome {
        let mine = word(token, self.number);
        match self.swap(self.locks.at(lock.into())?, mine, word(token, 0))? {
            was if was == mine => Ok(()),
            was => {
                Err(format!("lock {lock} was lost: its token is {}, not {token}", parts(was).0)
                    .into())
            }
        }
    }

    /// Increments the counter that a lock protects.
    fn count(&mut self, lock: u16) -> Outcome {
        let token = self.lock(lock)?;
        let at = self.locks.cast::<u64>()?.at(2 * usize::from(lock) + 1)?;
        let counter = self.read(at)? + 1;
        // The device executes the write before later requests, so there is no need to wait for it.
        self.end.qp.post(|batch| {
            let write = batch.wr(0, SendFlags::empty()).rdma_write(at);
            write.inline_data(&counter.to_ne_bytes());
        })?;
        println!("token {token} counter {counter}");
        self.unlock(lock, token)
    }

    /// Frees all locks of a client.
    fn free(&mut self, client: u32) -> Outcome {
        for lock in 0..self.locks.len() {
            let at = self.locks.at(lock)?;
            let (token, owner) = parts(self.read(at)?);
            if owner == client {
                self.swap(at, word(token, client), word(token, 0))?;
            }
        }
        Ok(())
    }
}

/// The server's own connection to the locks. It goes through the device, as the clients' do.
fn own_way(site: &Site, port: u8) -> Outcome<[End; 2]> {
    let port = site.pd.context().local_port(port, None)?;
    let [mut here, mut there] = [site.queue_pair()?, site.queue_pair()?];
    here.0.connect_to(&mut there.0, &port, &ConnectOptions::default())?;
    let limit = site.limit;
    Ok([here, there].map(|(qp, cq)| End { qp: Arc::new(qp.into_shared()), cq, link: None, limit }))
}

fn serve(listener: Listener, site: &Site) -> Outcome {
    let remote = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    let memory =
        site.pd.memory(usize::from(LOCKS) * size_of::<Lock>()).access(Access::LOCAL_WRITE | remote);
    let memory = memory.register()?;
    let locks = memory.remote_slice(..)?.cast::<Lock>()?;
    let port = listener.id().port_num()?.ok_or("the address is that of no port")?;
    let [end, _other] = own_way(site, port)?;
    let own = Mutex::new((end, site.pd.allocate(8)?));
    common::serve(listener, |request, number| {
        let said = [&locks.to_bytes()[..], &number.to_be_bytes()].concat();
        let connected = site.accept(request, number, &said);
        // The client sends nothing more until it ends. A client whose connection failed may hold a
        // lock, too: it may have received the acceptance and been killed before it could confirm
        // it.
        let ended = match &connected {
            Ok(End { link: Some(link), .. }) => link.wait_ended(None).map(drop),
            _ => Ok(()),
        };
        let (end, found) = &mut *own.lock().map_err(|_| "the server's connection is broken")?;
        Locker { end, found, locks, number: 0 }.free(number)?;
        ended?;
        connected.map(drop)
    })
}

/// Connects to a server and runs `work`, until it is done or the server is lost.
fn session(
    kernel: Arc<dyn Kernel>,
    at: &ServerArgs,
    work: impl FnOnce(&mut Locker<'_>) -> Outcome,
) -> Outcome {
    let (site, mut end) = at.call(kernel)?;
    let (found, locks) = (site.pd.allocate(8)?, end.peer_region(0)?);
    let number = end.said().get(RemoteSlice::<u8>::BYTES..).and_then(<[u8]>::first_chunk);
    let number = u32::from_be_bytes(*number.ok_or("there is no number")?);
    work(&mut Locker { end: &mut end, found: &found, locks, number })
}

fn hold(locker: &mut Locker<'_>, lock: u16) -> Outcome {
    let token = locker.lock(lock)?;
    println!("client {} holds lock {lock} with token {token}", locker.number);
    // The only further completion is the flush at the end of the connection.
    locker.end.next().map(drop)
}

/// Counts to the end, at one server or at several in turn.
fn count(
    kernel: &Arc<dyn Kernel>,
    at: &ServerArgs,
    lock: u16,
    mut rounds: u32,
    patience: Duration,
) -> Outcome {
    let mut lost = None;
    loop {
        let outcome = session(Arc::clone(kernel), at, |locker| {
            while rounds > 0 {
                locker.count(lock)?;
                (rounds, lost) = (rounds - 1, None);
            }
            Ok(())
        });
        match outcome {
            Err(error) if lost.get_or_insert_with(Instant::now).elapsed() < patience => {
                println!("lost the server: {error}; {rounds} rounds are left");
                thread::sleep(AGAIN);
            }
            outcome => return outcome,
        }
    }
}

fn main() -> ExitCode {
    common::run(|kernel, command| match command {
        Command::Serve { at } => at.listen(kernel).and_then(|(at, site)| serve(at, &site)),
        Command::Hold { lock, at } => session(kernel, &at, |locker| hold(locker, lock)),
        Command::Count { lock, rounds, patience, at } => {
            count(&kernel, &at, lock, rounds, Duration::from_secs(patience))
        }
    })
}
