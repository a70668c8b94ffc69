//! A replicated log on three simulated hosts, and a bug in it that a search over seeds finds.
//!
//! ```sh
//! cargo run --example replicated_log             # the correct protocol, then the one with the bug
//! cargo run --example replicated_log -- --seed 1 # the one with the bug once: all its events
//! ```
//!
//! The leader appends to its log and writes each entry into the logs of two followers, one-sided.
//! An entry is committed when it is in two of the three logs. At some time a follower becomes the
//! new leader: it and the other follower stop accepting writes of the old one. Then it reads the
//! other follower's log, and keeps every entry of either log.
//!
//! The bug looks like an optimisation. The new leader posts its read together with the message that
//! asks the other follower to stop, which saves a round trip. But the NIC answers a read before the
//! follower's program has seen the message. A write of the old leader that arrives in between is
//! committed, and the new leader does not see it.
//!
//! All hosts run in this process. Time is virtual, and all randomness comes from the seed: the
//! latency of packets, the order in which hosts run, and the pauses of a host. So a seed that shows
//! the bug always shows it.

use mlx5::{
    Access, CompletionQueue, ConnectOptions, MemoryRegion, Psn, QueuePair, RemoteSlice, SendFlags,
    Sge, transport::Rc,
};
use mlx5_sim::{Network, SimConfig, Simulator};
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

/// The hosts.
const OLD: usize = 0;
const NEW: usize = 1;
const FOLLOWER: usize = 2;

/// Entries of a log, eight bytes each. One that is zero is empty.
const ENTRIES: usize = 512;
/// Entries that the leader appends before the first of them is committed.
const WINDOW: usize = 4;

/// Names of the hosts.
const NAMES: [&str; 3] = ["old leader", "new leader", "follower"];

/// Purpose of a request: the high half of its identifier.
const APPEND: u64 = 1 << 32;
const MESSAGE: u64 = 2 << 32;
const READ: u64 = 3 << 32;
const RECEIVE: u64 = 4 << 32;

type Done<T> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

const USAGE: &str = "usage: replicated_log [--seed SEED]";

const ABOUT: &str = "\
Runs a replicated log on three simulated hosts with many seeds: the correct protocol, then one with a bug, until
a seed shows it. With --seed the one with the bug runs once, and what happens is printed with its virtual time.";

fn run() -> Done<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        [] => {}
        ["--seed", seed] => {
            let number = seed
                .parse()
                .map_err(|_| format!("'{seed}' is not a seed: write a number, as --seed 1"))?;
            let trace = |time: Duration, name: &str, event: &str| {
                println!("{:>8.3} µs  {name:10}  {event}", time.as_nanos() as f64 / 1000.0);
            };
            match lost_entry(number, true, trace)? {
                Some(index) => println!("seed {seed}: entry {index} was committed and is lost"),
                None => println!("seed {seed}: every committed entry is there"),
            }
            return Ok(());
        }
        ["-h" | "--help"] => {
            println!("{USAGE}\n\n{ABOUT}");
            return Ok(());
        }
        _ => return Err(USAGE.into()),
    }
    let quiet = |_: Duration, _: &str, _: &str| ();
    for seed in 0..100 {
        if let Some(index) = lost_entry(seed, false, quiet)? {
            return Err(format!("the correct protocol lost entry {index} with seed {seed}").into());
        }
    }
    println!("the correct protocol: no committed entry is lost, with 100 seeds");
    for seed in 0..1000 {
        if let Some(index) = lost_entry(seed, true, quiet)? {
            println!("with the bug: seed {seed} loses entry {index}, which was committed");
            println!("watch it: cargo run --example replicated_log -- --seed {seed}");
            return Ok(());
        }
    }
    Err("no seed shows the bug".into())
}

/// Runs a change of leaders; returns the first entry that was committed and is lost. Reports each
/// event with its time and host.
fn lost_entry(seed: u64, bug: bool, trace: impl Fn(Duration, &str, &str)) -> Done<Option<usize>> {
    let rack = Network::INSTANT.latency(Duration::from_micros(2)).jitter(Duration::from_micros(2));
    let config = SimConfig::new().devices(3).network(rack).step(true).seed(seed);
    let simulator = Simulator::new(config);
    let mut hosts = hosts(&simulator)?;
    let mut chance = Chance(seed);

    let mut old = OldLeader::default();
    let mut new = NewLeader { bug, ..NewLeader::default() };
    let begin = Duration::from_nanos(10_000 + chance.below(20_000));
    let mut sleeps = [Duration::ZERO; 3];
    let mut end = Duration::from_millis(1);
    while simulator.now() < end {
        simulator.run_for(Duration::from_nanos(chance.below(500)));
        let (now, host) = (simulator.now(), chance.below(3) as usize);
        if now < sleeps[host] {
            continue;
        }
        // Now and then a host's program pauses.
        if chance.below(16) == 0 {
            sleeps[host] = now + Duration::from_nanos(chance.below(10_000));
            continue;
        }
        let trace = |event: &str| trace(now, NAMES[host], event);
        match host {
            OLD => old.turn(&mut hosts[OLD], trace)?,
            NEW => new.turn(&mut hosts[NEW], now >= begin, trace)?,
            _ => follow(&mut hosts[FOLLOWER], trace)?,
        }
        // Packets that are under way when the new leader knows the log still arrive.
        if new.log.is_some() && end > now + Duration::from_micros(100) {
            end = now + Duration::from_micros(100);
        }
    }
    assert_eq!(simulator.violations(), [], "the programs broke no rule of the device");
    let log = new.log.ok_or("the new leader has not read the log in time")?;
    Ok(old.committed.into_iter().find(|index| log[*index] != value(*index)))
}

/// The value of an entry.
fn value(index: usize) -> u64 {
    1000 + index as u64
}

/// The entries of a log, in words.
fn listing(log: &[u64]) -> String {
    match log.iter().filter(|entry| **entry != 0).count() {
        0 => "no entry".to_owned(),
        1 => "entry 0".to_owned(),
        count => format!("entries 0 to {}", count - 1),
    }
}

/// A host: its queues to the others, and its log.
struct Host {
    cq: CompletionQueue,
    links: Vec<Option<QueuePair<Rc>>>,
    log: MemoryRegion,
    /// Room for another host's log.
    copy: MemoryRegion,
    /// The logs of all hosts.
    logs: Vec<RemoteSlice>,
}

impl Host {
    /// Identifiers of completed requests, and whether each succeeded.
    fn completed(&mut self) -> Done<Vec<(u64, bool)>> {
        let mut completed = Vec::new();
        self.cq.poll(64, |completion| {
            completed.push((completion.wr_id(), completion.status().is_ok()));
        })?;
        Ok(completed)
    }

    fn link(&mut self, to: usize) -> Done<&mut QueuePair<Rc>> {
        Ok(self.links[to].as_mut().ok_or("a host has no link to itself")?)
    }

    /// Accepts no more writes of another host: those under way fail at their sender.
    fn stop_taking(&mut self, from: usize) -> Done<()> {
        Ok(self.link(from)?.to_error()?)
    }

    fn entries(region: &MemoryRegion) -> Done<Vec<u64>> {
        let mut bytes = vec![0; ENTRIES * 8];
        region.read_at(0, &mut bytes)?;
        Ok(bytes.as_chunks::<8>().0.iter().map(|entry| u64::from_ne_bytes(*entry)).collect())
    }
}

/// The leader at the start.
#[derive(Default)]
struct OldLeader {
    appended: usize,
    /// Entries that are in two logs.
    committed: Vec<usize>,
    failed: bool,
}

impl OldLeader {
    fn turn(&mut self, host: &mut Host, trace: impl Fn(&str)) -> Done<()> {
        for (wr_id, succeeded) in host.completed()? {
            if wr_id == RECEIVE {
                continue;
            }
            let index = (wr_id - APPEND) as usize;
            // The leader has the entry itself, so one follower makes two.
            if succeeded && !self.committed.contains(&index) {
                self.committed.push(index);
                trace(&format!("entry {index} is in a second log: committed"));
            }
            if !succeeded && !self.failed {
                self.failed = true;
                trace(&format!("the write of entry {index} is refused: leads no more"));
            }
        }
        if self.failed || self.appended - self.committed.len() >= WINDOW || self.appended == ENTRIES
        {
            return Ok(());
        }
        let (index, entry) = (self.appended, value(self.appended).to_ne_bytes());
        self.appended += 1;
        host.log.write_at(index * 8, &entry)?;
        for follower in [NEW, FOLLOWER] {
            let to = host.logs[follower].range(index * 8..index * 8 + 8)?.start();
            host.link(follower)?.post(|batch| {
                batch
                    .wr(APPEND | index as u64, SendFlags::SIGNALED)
                    .rdma_write(to)
                    .inline_data(&entry);
            })?;
        }
        Ok(())
    }
}

/// The follower that becomes the leader.
#[derive(Default)]
struct NewLeader {
    bug: bool,
    asked: bool,
    /// Whether the other follower has stopped accepting writes of the old leader.
    agreed: bool,
    has_read: bool,
    /// The log, once it is known.
    log: Option<Vec<u64>>,
}

impl NewLeader {
    fn turn(&mut self, host: &mut Host, begins: bool, trace: impl Fn(&str)) -> Done<()> {
        for (wr_id, succeeded) in host.completed()? {
            match wr_id {
                RECEIVE if succeeded => {
                    self.agreed = true;
                    trace("hears that the follower has stopped");
                    if !self.bug {
                        self.read(host)?;
                    }
                }
                READ if succeeded => {
                    self.has_read = true;
                    let entries = Host::entries(&host.copy)?;
                    trace(&format!("has read the follower's log: {}", listing(&entries)));
                }
                // The receive on the stopped link is flushed.
                RECEIVE => {}
                MESSAGE if succeeded => {}
                _ => return Err("a request of the new leader failed".into()),
            }
        }
        if begins && !self.asked {
            self.asked = true;
            host.stop_taking(OLD)?;
            trace("takes no more writes of the old leader, and asks the follower to do likewise");
            let link = host.link(FOLLOWER)?;
            link.post(|batch| batch.wr(MESSAGE, SendFlags::SIGNALED).send().inline_data(b""))?;
            if self.bug {
                trace("reads the follower's log at once, without waiting for the answer");
                self.read(host)?;
            }
        }
        if self.agreed && self.has_read && self.log.is_none() {
            let (own, read) = (Host::entries(&host.log)?, Host::entries(&host.copy)?);
            let log: Vec<u64> = own.iter().zip(&read).map(|(own, read)| *own.max(read)).collect();
            trace(&format!("leads with what is in either log: {}", listing(&log)));
            self.log = Some(log);
        }
        Ok(())
    }

    fn read(&self, host: &mut Host) -> Done<()> {
        let (from, to) = (host.logs[FOLLOWER].start(), host.copy.sge(..)?);
        host.link(FOLLOWER)?
            .post(|batch| batch.wr(READ, SendFlags::SIGNALED).rdma_read(from).sge(to))?;
        Ok(())
    }
}

/// A turn of the other follower: once asked, it stops accepting writes of the old leader, and
/// answers.
fn follow(host: &mut Host, trace: impl Fn(&str)) -> Done<()> {
    for (wr_id, succeeded) in host.completed()? {
        if wr_id == RECEIVE && succeeded {
            host.stop_taking(OLD)?;
            let entries = Host::entries(&host.log)?;
            trace(&format!("takes no more writes of the old leader: has {}", listing(&entries)));
            let link = host.link(NEW)?;
            link.post(|batch| batch.wr(MESSAGE, SendFlags::SIGNALED).send().inline_data(b""))?;
        }
    }
    Ok(())
}

/// Three hosts, each connected to both others.
fn hosts(simulator: &Simulator) -> Done<Vec<Host>> {
    let mut hosts = Vec::new();
    let mut ports = Vec::new();
    for device in mlx5::devices_on(simulator.kernel())? {
        let context = device.open()?;
        let (pd, cq) = (context.alloc_pd()?, context.create_cq(64).build()?);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let log = pd.memory(ENTRIES * 8).access(access).register()?;
        let copy = pd.allocate(ENTRIES * 8)?;
        let mut links = Vec::new();
        for other in 0..3 {
            let link = || pd.create_qp::<Rc>(&cq, &cq).max_inline_data(8).build();
            links.push(if other == hosts.len() { None } else { Some(link()?) });
        }
        ports.push(context.local_port(1, None)?);
        hosts.push(Host { cq, links, log, copy, logs: Vec::new() });
    }
    let logs: Vec<_> =
        hosts.iter().map(|host| host.log.remote_slice(..)).collect::<Result<_, _>>()?;
    let (psn, options) = (Psn::default(), ConnectOptions::default());
    for here in 0..3 {
        hosts[here].logs.clone_from(&logs);
        for there in (0..3).filter(|there| *there != here) {
            let peer = hosts[there].link(here)?.endpoint(&ports[there], psn, &options);
            let link = hosts[here].link(there)?;
            link.connect(&ports[here], psn, &peer, &options)?;
            link.recv(RECEIVE, Sge::default())?;
        }
    }
    Ok(hosts)
}

/// Pseudorandom numbers from a seed (SplitMix64).
struct Chance(u64);

impl Chance {
    /// A number below another.
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % end
    }
}
