//! Serves many clients from one pool of receives.
//!
//! Without a shared receive queue every connection needs its own receives, most of which stay
//! unused. Here four connections take receives from one queue and complete on one completion queue.
//! The device raises an event when the pool runs low, and the server refills it.
//!
//! Run it with `cargo run --example srq_server`.

mod common;

use common::{Done, Setup};
use mlx5::{
    AsyncEvent, CompletionQueue, ConnectOptions, MemoryRegion, ProtectionDomain, Psn, QueuePair,
    ReceiveWr, SendFlags, SharedReceiveQueue, transport::Rc,
};
use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const CLIENTS: usize = 4;
/// Messages of each client.
const MESSAGES: usize = 6;
/// Receives in the pool.
const POOL: u32 = 16;
/// Number of remaining receives below which the device raises the event.
const LOW: u32 = 4;
const MESSAGE: usize = 64;

/// The pool: receives, and their memory. The identifier of a receive is its slot in the memory.
struct Pool {
    srq: SharedReceiveQueue,
    memory: MemoryRegion,
    /// Slots whose messages were read.
    free: Vec<u64>,
}

impl Pool {
    fn new(pd: &ProtectionDomain) -> Result<Self, Box<dyn Error>> {
        let srq = pd.create_srq(POOL).build()?;
        let memory = pd.allocate(POOL as usize * MESSAGE)?;
        let mut pool = Self { srq, memory, free: (0..u64::from(POOL)).collect() };
        pool.fill()?;
        Ok(pool)
    }

    /// Posts the free slots, and arms the event for the next time the pool runs low.
    fn fill(&mut self) -> Done {
        let count = self.free.len();
        for place in self.free.drain(..) {
            let start = place as usize * MESSAGE;
            let sges = [self.memory.sge(start..start + MESSAGE)?];
            self.srq.post_recv(&[ReceiveWr { wr_id: place, sges: &sges }])?;
        }
        self.srq.set_limit(LOW)?;
        println!("server: filled the pool up with {count} receives");
        Ok(())
    }

    fn read(&mut self, place: u64, length: usize) -> Result<String, Box<dyn Error>> {
        let mut bytes = vec![0; length];
        self.memory.read_at(place as usize * MESSAGE, &mut bytes)?;
        self.free.push(place);
        Ok(String::from_utf8(bytes)?)
    }
}

/// Connects a client to a queue pair of the server.
fn connect(
    setup: &Setup,
    pd: &ProtectionDomain,
    client_cq: &CompletionQueue,
    server_cq: &CompletionQueue,
    pool: &Pool,
) -> Result<(QueuePair<Rc>, QueuePair<Rc>), mlx5::Error> {
    let (options, psn) = (ConnectOptions::default(), Psn::default());
    let mut client = pd.create_qp::<Rc>(client_cq, client_cq).max_inline_data(64).build()?;
    let mut server = pd.create_qp::<Rc>(server_cq, server_cq).srq(&pool.srq).build()?;
    let here = client.endpoint(&setup.port, psn, &options);
    let there = server.endpoint(&setup.port, psn, &options);
    client.connect(&setup.port, psn, &there, &options)?;
    server.connect(&setup.port, psn, &here, &options)?;
    Ok((client, server))
}

fn main() -> ExitCode {
    common::start("A server of four clients, with one pool of receives.", run)
}

fn run() -> Done {
    let setup = common::open()?;
    let pd = setup.context.alloc_pd()?;
    let mut pool = Pool::new(&pd)?;
    let mut server_cq = setup.context.create_cq(64).build()?;
    let client_cq = setup.context.create_cq(64).build()?;
    let (mut clients, servers): (Vec<_>, Vec<_>) = (0..CLIENTS)
        .map(|_| connect(&setup, &pd, &client_cq, &server_cq, &pool))
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .unzip();

    for (number, client) in clients.iter_mut().enumerate() {
        let mut batch = client.wr_start();
        for message in 0..MESSAGES {
            let text = format!("client {number}, message {message}");
            batch.wr(0, SendFlags::SIGNALED).send().inline_data(text.as_bytes());
        }
        batch.complete()?;
    }

    // Clients send more messages than the pool has receives: the device has them wait until the
    // pool is refilled.
    let events = setup.context.async_events();
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    let deadline = Instant::now() + Duration::from_secs(10);
    while counts.values().sum::<usize>() < CLIENTS * MESSAGES && Instant::now() < deadline {
        let mut came = Vec::new();
        server_cq.poll(16, |completion| came.push(completion.to_owned()))?;
        for completion in &came {
            let completion = completion.as_completion();
            completion.status()?;
            let length = completion.byte_len().unwrap_or(0) as usize;
            let text = pool.read(completion.wr_id(), length)?;
            println!("  queue pair {:#x}: {text}", completion.qp_num());
            *counts.entry(completion.qp_num()).or_default() += 1;
        }
        if let Some(AsyncEvent::SrqLimitReached(_)) = events.next()? {
            println!("server: fewer than {LOW} receives are left");
            pool.fill()?;
        }
        std::thread::yield_now();
    }
    for server in &servers {
        let count = counts.get(&server.qp_num()).copied().unwrap_or(0);
        println!("queue pair {:#x} received {count} of {MESSAGES} messages", server.qp_num());
    }
    match counts.values().sum::<usize>() {
        all if all == CLIENTS * MESSAGES => Ok(()),
        some => Err(format!("only {some} messages came in time").into()),
    }
}
