//! Shares one connection between threads.
//!
//! A queue has one owner, and takes no lock. `into_shared` turns it into a queue that several
//! threads use, with a lock for each batch or poll. Here four threads write to one peer, each its
//! own numbers to its own address. A thread that finds the send queue full polls completions, its
//! own and those of the other threads.
//!
//! Run it with `cargo run --example shared`.

mod common;

use common::Done;
use mlx5::{
    Access, ConnectOptions, PollError, PostError, Psn, RemoteAddress, SendFlags,
    SharedCompletionQueue, SharedQueuePair, transport::Rc,
};
use std::error::Error;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const WRITERS: u64 = 4;
const EACH: u64 = 1000;

/// Error of a thread.
type Failure = Box<dyn Error + Send + Sync>;

/// State that the threads share.
struct Shared {
    qp: SharedQueuePair<Rc>,
    cq: SharedCompletionQueue,
    completed: AtomicU64,
}

impl Shared {
    /// Polls completions, if there are any. The closure runs with the queue locked, so it does
    /// little.
    fn poll(&self) -> Result<(), PollError> {
        let count = self.cq.poll(16, |completion| completion.status().expect("written"))?;
        self.completed.fetch_add(count as u64, Relaxed);
        Ok(())
    }

    /// Writes the numbers up to `EACH` to the same address.
    fn write(&self, writer: u64, to: RemoteAddress) -> Result<(), Failure> {
        for number in 1..=EACH {
            while let Err(error) = self.qp.post(|batch| {
                let wr = batch.wr(writer << 32 | number, SendFlags::SIGNALED);
                wr.rdma_write(to).inline_data(&number.to_le_bytes());
            }) {
                let PostError::QueueFull { .. } = error.error() else { return Err(error.into()) };
                self.poll()?;
            }
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    common::start("Four threads write over one connection.", run)
}

fn run() -> Done {
    let setup = common::open()?;
    let pd = setup.context.alloc_pd()?;
    let cq = setup.context.create_cq(256).build()?;
    let mut qp = pd.create_qp::<Rc>(&cq, &cq).max_send_wr(128).max_inline_data(8).build()?;
    let mut peer = pd.create_qp::<Rc>(&cq, &cq).build()?;
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let target = pd.memory(WRITERS as usize * 8).access(access).register()?;

    let (options, psn) = (ConnectOptions::default(), Psn::default());
    let here = qp.endpoint(&setup.port, psn, &options);
    let there = peer.endpoint(&setup.port, psn, &options);
    qp.connect(&setup.port, psn, &there, &options)?;
    peer.connect(&setup.port, psn, &here, &options)?;

    let shared =
        Shared { qp: qp.into_shared(), cq: cq.into_shared(), completed: AtomicU64::new(0) };
    let written = std::thread::scope(|scope| -> Result<(), Failure> {
        let mut writers = Vec::new();
        for writer in 0..WRITERS {
            let to = target.remote(writer as usize * 8..)?;
            let shared = &shared;
            writers.push(scope.spawn(move || shared.write(writer, to)));
        }
        writers.into_iter().try_for_each(|writer| writer.join().expect("no writer panics"))
    });
    written.map_err(|failure| -> Box<dyn Error> { failure })?;
    while shared.completed.load(Relaxed) < WRITERS * EACH {
        shared.poll()?;
    }

    for writer in 0..WRITERS as usize {
        let mut number = [0; 8];
        target.read_at(writer * 8, &mut number)?;
        assert_eq!(u64::from_le_bytes(number), EACH);
    }
    println!("{} writes of {WRITERS} threads completed", WRITERS * EACH);
    Ok(())
}
