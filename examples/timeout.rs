//! Sets a time limit for transfers out of pinned memory.
//!
//! When a transfer takes too long, its caller wants the memory back. But the device may still read
//! it: a posted request can only be cancelled before it begins, or waited for. This program does
//! both before it frees the memory:
//!
//! * If the device has drained the send queue, the requests that have not begun are cancelled, the
//!   queue resumes, and those that have begun complete. The connection stays, and other transfers
//!   on it are not disturbed.
//! * If it has not (a program cannot drain a queue), the program gives up the connection: the
//!   session flushes the queue pair, returns the requests that were not done, and connects again.
//!
//! On hardware a queue drains after a signature error. The simulated device drains on command, so
//! this example always uses it.
//!
//! Run it with `cargo run --example timeout`.

#![forbid(unsafe_code)]

mod common;

use common::Done;
use mlx5::{
    Access, CancelError, CompletionQueue, MemoryRegion, ProtectionDomain, QueuePair, RemoteSlice,
    SendFlags, transport::Rc,
};
use mlx5_cm::{Listener, Resolved, Session, SessionState};
use mlx5_sim::{PortConfig, SimConfig, Simulator, engine::DrainAt};
use std::error::Error;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const ADDRESS: &str = "10.0.0.1:7475";
const PATIENCE: Duration = Duration::from_secs(10);
/// Time limit of a transfer.
const LIMIT: Duration = Duration::from_secs(1);
/// Number of requests in a transfer, and bytes of each.
const BLOCKS: u64 = 8;
const BLOCK: usize = 4096;

/// Provides memory to one client after the other, until `over` is set.
fn serve(mut listener: Listener, over: &AtomicBool) -> Result<(), Box<dyn Error + Send + Sync>> {
    let pd = listener.device()?.open()?.alloc_pd()?;
    let cq = pd.context().create_cq(16).build()?;
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let memory = pd.memory(BLOCKS as usize * BLOCK).access(access).register()?;
    let location = memory.remote_slice(..)?.to_bytes();
    while !over.load(Ordering::Acquire) {
        let Ok(request) = listener.next(Some(Duration::from_millis(10))) else { continue };
        let qp = pd.create_qp::<Rc>(&cq, &cq).build()?;
        let mut connection = request.accept(qp, &location)?;
        while !over.load(Ordering::Acquire) && !connection.has_ended()? {
            thread::yield_now();
        }
    }
    Ok(())
}

/// A running transfer, with the memory that the device reads.
struct Transfer {
    pinned: MemoryRegion,
    /// Identifiers of requests that have not completed.
    left: Vec<u64>,
    done: usize,
    cancelled: usize,
}

impl Transfer {
    /// Posts a write for each block. If `stuck`, the last request is a message for which the peer
    /// has no receive.
    fn start(
        pd: &ProtectionDomain,
        qp: &mut QueuePair<Rc>,
        to: RemoteSlice,
        stuck: bool,
    ) -> Result<Self, Box<dyn Error>> {
        let pinned = pd.memory(BLOCKS as usize * BLOCK).access(Access::empty()).register()?;
        let mut left = Vec::new();
        for block in 0..BLOCKS {
            let place = block as usize * BLOCK;
            let (from, to) = (pinned.sge(place..place + BLOCK)?, to.at(place)?);
            qp.post(|batch| {
                let wr = batch.wr(block, SendFlags::SIGNALED);
                match stuck && block + 1 == BLOCKS {
                    true => wr.send().sge(from),
                    false => wr.rdma_write(to).sge(from),
                };
            })?;
            left.push(block);
        }
        Ok(Self { pinned, left, done: 0, cancelled: 0 })
    }

    /// Polls until all requests have completed, or until the time limit.
    fn wait(&mut self, cq: &mut CompletionQueue, limit: Duration) -> Result<bool, Box<dyn Error>> {
        let deadline = Instant::now() + limit;
        while !self.left.is_empty() && Instant::now() < deadline {
            cq.try_poll(16, |completion| {
                completion.status()?;
                self.left.retain(|wr_id| *wr_id != completion.wr_id());
                match completion.cancelled() {
                    true => self.cancelled += 1,
                    false => self.done += 1,
                }
                Ok::<_, Box<dyn Error>>(())
            })?;
            thread::yield_now();
        }
        Ok(self.left.is_empty())
    }

    /// Gives up the transfer. When this returns, the device does not use the memory any more.
    fn give_up(
        &mut self,
        session: &mut Session,
        cq: &mut CompletionQueue,
    ) -> Result<&'static str, Box<dyn Error>> {
        let connection = session.connection().ok_or("it is connected")?;
        let qp = connection.qp_mut();
        match qp.drained() {
            Ok(drained) => {
                let left = &self.left;
                qp.cancel_where(&drained, |request| left.contains(&request.wr_id))?;
                qp.resume()?;
                match self.wait(cq, PATIENCE)? {
                    true => Ok("what had not begun was cancelled, and the connection goes on"),
                    false => Err("the queue does not go on".into()),
                }
            }
            Err(CancelError::NotDrained { .. }) => {
                let mut done = Vec::new();
                let not_done = session.stop(&mut [cq], |completion| {
                    if completion.is_success() {
                        done.push(completion.wr_id());
                    }
                })?;
                self.left.retain(|wr_id| !done.contains(wr_id));
                self.done += done.len();
                assert!(not_done.iter().all(|one| self.left.contains(&one.wr_id)));
                self.left.clear();
                Ok("the queue was flushed, and the connection is made again")
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Frees the memory, and prints the result.
    fn end(self, how: &str) -> Done {
        assert!(self.left.is_empty(), "the device may still read the memory");
        println!("{} done, {} cancelled of {BLOCKS}: {how}", self.done, self.cancelled);
        self.pinned.deregister().map_err(|failed| failed.to_string())?;
        Ok(())
    }
}

fn client(simulator: &Simulator) -> Done {
    let kernel = simulator.kernel();
    let context = mlx5::devices_on(kernel.clone())?.remove(0).open()?;
    let pd = context.alloc_pd()?;
    let mut cq = context.create_cq(64).build()?;
    let mut session = Session::new(pd.create_qp::<Rc>(&cq, &cq).build()?);
    for (case, name) in ["nothing", "the send queue drains", "the peer hangs"].iter().enumerate() {
        if session.state() != SessionState::Connected {
            let connect = |peer: Resolved, qp| peer.connect(qp, &[]);
            session.reconnect(&kernel, ADDRESS, PATIENCE, &mut [&mut cq], connect, |_| {})?;
        }
        let connection = session.connection().ok_or("it is connected")?;
        let location = &connection.private_data()[..RemoteSlice::<u8>::BYTES];
        let to = RemoteSlice::<u8>::from_bytes(location)?;
        let qp = connection.qp_mut();
        if case == 1 {
            // Takes the place of the signature error.
            simulator
                .drain_qp(0, qp.qp_num(), DrainAt::After(3))
                .map_err(|error| format!("the device does not drain: {error:?}"))?;
        }
        println!("what goes wrong: {name}");
        let mut transfer = Transfer::start(&pd, qp, to, case == 2)?;
        if case == 1 {
            // The device reports with an event that the queue has drained.
            context.async_events().wait(Some(PATIENCE))?;
        }
        let how = match transfer.wait(&mut cq, LIMIT)? {
            true => "in time",
            false => transfer.give_up(&mut session, &mut cq)?,
        };
        transfer.end(how)?;
    }
    session.stop(&mut [&mut cq], |_| {})?;
    Ok(())
}

fn main() -> ExitCode {
    common::start(
        "A time limit for transfers: three runs, of which two go wrong, on a simulated device.",
        run,
    )
}

fn run() -> Done {
    let simulator = Simulator::new(SimConfig::new().ports([PortConfig::ROCE]));
    let listener = Listener::bind_on(simulator.kernel(), ADDRESS)?;
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let server = scope.spawn(|| serve(listener, &over));
        let outcome = client(&simulator);
        over.store(true, Ordering::Release);
        let served = server.join().map_err(|_| "the server panicked")?;
        outcome.and(served.map_err(|error| error.to_string().into()))
    })
}
