//! A lock service whose server only lends the memory.
//!
//! A lock is a word in the server's memory: a fencing token in its upper half, and in its lower half
//! the number of the client that has it, or 0. A client takes it by compare-and-swap, with the next
//! token, and gives it back by another. Whoever finds it taken backs off and looks again. What a
//! lock protects here is a counter beside it.
//!
//! The server frees the locks of a client that hangs up, by compare-and-swap as well: the device's
//! atomics are atomic to each other, not to the processor. Such a client may not know it yet. Where
//! that matters, what the lock protects refuses a token that is older than one that it has seen.
//!
//! When the server dies, the connection manager says so or a request fails, and so does each client.
//! With `--patience` it then goes back to work, with a new queue pair, as soon as a server is there.
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
    /// Lend the memory of 64 locks until killed
    Serve {
        #[command(flatten)]
        at: ListenArgs,
    },
    /// Take a lock, and keep it until killed
    Hold {
        /// Its number, below 64
        #[arg(value_parser = value_parser!(u16).range(..i64::from(LOCKS)))]
        lock: u16,
        #[command(flatten)]
        at: ServerArgs,
    },
    /// Count up what a lock protects, each time under the lock
    Count {
        /// Its number, below 64
        #[arg(value_parser = value_parser!(u16).range(..i64::from(LOCKS)))]
        lock: u16,
        /// How often
        #[arg(long, default_value_t = 10)]
        rounds: u32,
        /// Wait so long for a new server when the server is lost
        #[arg(long, value_name = "SECONDS", default_value_t = 0)]
        patience: u64,
        #[command(flatten)]
        at: ServerArgs,
    },
}

const LOCKS: u16 = 64;
/// What a lock consists of: its word, and the counter that it protects.
type Lock = [u64; 2];
/// The shortest and the longest time to back off.
const PAUSE: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(5));
/// How long to wait before another try to reach a server.
const AGAIN: Duration = Duration::from_millis(100);

/// The word of a lock that a client has, or nobody.
fn word(token: u32, client: u32) -> u64 {
    u64::from(token) << 32 | u64::from(client)
}

/// Token and client of a word.
fn parts(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

/// Someone who takes and frees locks: a client, or the server for clients that are gone.
struct Locker<'a> {
    end: &'a mut End,
    /// Where a request puts what it found.
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

    /// Puts `new` in place of `old`, if that is what is there. Gives what was there.
    fn swap(&mut self, at: RemoteAddress, old: u64, new: u64) -> Outcome<u64> {
        let to = self.found.whole()?;
        self.end.request(|wr| wr.atomic_cmp_swp(at, old, new).sge(to))?;
        self.found()
    }

    /// Takes a lock; gives the fencing token. It waits as long as another client has the lock.
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
            // Clients that found it taken together shall not all come back together.
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

    /// Counts up what a lock protects.
    fn count(&mut self, lock: u16) -> Outcome {
        let token = self.lock(lock)?;
        let at = self.locks.cast::<u64>()?.at(2 * usize::from(lock) + 1)?;
        let counter = self.read(at)? + 1;
        // Carried out before what is posted later: nobody waits for it here.
        self.end.qp.post(|batch| {
            let write = batch.wr(0, SendFlags::empty()).rdma_write(at);
            write.inline_data(&counter.to_ne_bytes());
        })?;
        println!("token {token} counter {counter}");
        self.unlock(lock, token)
    }

    /// Frees what a client has.
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

/// The server's own way to the locks: through the device, as that of everybody.
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
        // It says nothing more until it ends. Also one of which nothing came may have a lock: it may
        // have heard that it was accepted, and been killed before it could say so.
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

/// Does something at a server, until it is done or the server is lost.
fn session(
    kernel: Arc<dyn Kernel>,
    at: &ServerArgs,
    work: impl FnOnce(&mut Locker<'_>) -> Outcome,
) -> Outcome {
    let (site, mut end) = at.call(kernel)?;
    let (found, locks) = (site.pd.allocate(8)?, end.told(0)?);
    let number = end.said().get(RemoteSlice::<u8>::BYTES..).and_then(<[u8]>::first_chunk);
    let number = u32::from_be_bytes(*number.ok_or("there is no number")?);
    work(&mut Locker { end: &mut end, found: &found, locks, number })
}

fn hold(locker: &mut Locker<'_>, lock: u16) -> Outcome {
    let token = locker.lock(lock)?;
    println!("client {} holds lock {lock} with token {token}", locker.number);
    // Nothing comes but the end of the connection.
    locker.end.next().map(drop)
}

/// Counts to the end, at one server or several.
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
