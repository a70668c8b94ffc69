//! Shuts down a server's connections and accounts for each request.
//!
//! The connections receive from one shared receive queue and complete on one completion queue. One
//! of them ends in order: `to_error` flushes the posted requests, the event `QpLastWqeReached`
//! reports that the device takes no more receives for it, `quiesce` polls the remaining
//! completions, and `destroy` has nothing to return. Another one is destroyed at once: `destroy`
//! returns its sends, and `take_discarded` returns the receives whose completions no poll returns
//! any more. At the end the program has each buffer back.
//!
//! Run it with `cargo run --example shutdown`.

mod common;

use common::{Done, Setup};
use mlx5::{
    AsyncEvent, CompletionOpcode, CompletionQueue, ConnectOptions, MemoryRegion, ProtectionDomain,
    Psn, QueuePair, SendFlags, SharedReceiveQueue, transport::Rc,
};
use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const BUFFERS: u64 = 16;
const BUFFER: usize = 64;
/// Messages that the client sends on each connection.
const MESSAGES: u64 = 5;
/// Messages that the server polls before it ends the connection.
const POLLED: usize = 2;
/// Time limit of a step.
const LIMIT: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    common::start("Ends connections so that each request and each buffer is accounted for.", run)
}

fn run() -> Done {
    let setup = common::open()?;
    let pd = setup.context.alloc_pd()?;
    let cq = setup.context.create_cq(64).build()?;
    let srq = pd.create_srq(BUFFERS as u32).build()?;
    let memory = pd.allocate(BUFFERS as usize * BUFFER)?;
    let mut server = Server { pd, cq, srq, memory, free: (0..BUFFERS).collect() };

    server.post()?;
    println!("a connection ends in order");
    let connection = server.connect(&setup)?;
    server.take_down(&setup, connection)?;
    server.report();

    server.post()?;
    println!("a connection is destroyed at once");
    let connection = server.connect(&setup)?;
    server.cut(connection)?;
    server.report();

    // No queue pair uses the queue any more. Once it is destroyed, the posted buffers are free,
    // too.
    let posted = server.srq.in_flight();
    server.srq.destroy()?;
    println!("the queue is destroyed: {posted} posted buffers are free");
    match server.free.len() as u64 + u64::from(posted) {
        BUFFERS => {
            println!("all {BUFFERS} buffers are free");
            Ok(())
        }
        found => Err(format!("{found} of {BUFFERS} buffers are free").into()),
    }
}

struct Server {
    pd: ProtectionDomain,
    cq: CompletionQueue,
    srq: SharedReceiveQueue,
    memory: MemoryRegion,
    /// Buffers that the device does not have.
    free: Vec<u64>,
}

impl Server {
    /// Posts all free buffers. The identifier of a receive is the number of its buffer.
    fn post(&mut self) -> Done {
        for buffer in self.free.drain(..) {
            let start = buffer as usize * BUFFER;
            self.srq.recv(buffer, self.memory.sge(start..start + BUFFER)?)?;
        }
        Ok(())
    }

    fn report(&self) {
        println!("  {} buffers are free, {} posted", self.free.len(), self.srq.in_flight());
    }

    /// Connects a client that sends its messages and then is destroyed. The server has polled the
    /// first messages, and its own send has no peer any more.
    fn connect(&mut self, setup: &Setup) -> Result<QueuePair<Rc>, Box<dyn Error>> {
        let mut sent = setup.context.create_cq(16).build()?;
        let mut client = self.pd.create_qp::<Rc>(&sent, &sent).max_inline_data(16).build()?;
        let qp = self.pd.create_qp::<Rc>(&self.cq, &self.cq).max_inline_data(16);
        let mut qp = qp.srq(&self.srq).build()?;
        let (options, psn) = (ConnectOptions::default(), Psn::default());
        let from = client.endpoint(&setup.port, psn, &options);
        client.connect(&setup.port, psn, &qp.endpoint(&setup.port, psn, &options), &options)?;
        qp.connect(&setup.port, psn, &from, &options)?;
        for message in 0..MESSAGES {
            client.post(|batch| {
                batch.wr(message, SendFlags::SIGNALED).send().inline_data(b"hello");
            })?;
        }
        let (start, mut completed, mut failed) = (Instant::now(), 0, None);
        while completed < MESSAGES as usize {
            completed += sent.poll(16, |completion| failed = completion.status().err())?;
            if let Some(error) = failed {
                return Err(error.into());
            }
            in_time(start)?;
        }
        drop(client);
        let mut polled = 0;
        while polled < POLLED {
            polled += self.cq.poll(POLLED - polled, |completion| {
                println!("  buffer {} has a message", completion.wr_id());
                self.free.push(completion.wr_id());
            })?;
            in_time(start)?;
        }
        qp.post(|batch| {
            batch.wr(100, SendFlags::SIGNALED).send().inline_data(b"too late");
        })?;
        Ok(qp)
    }

    /// Runs all steps. A step also polls the completions of other connections; a server with
    /// several passes them on.
    fn take_down(&mut self, setup: &Setup, mut qp: QueuePair<Rc>) -> Done {
        let (events, start) = (setup.context.async_events(), Instant::now());
        qp.to_error()?;
        // A service handles the other events here, since each event is read once.
        while events.wait(Some(LIMIT))? != Some(AsyncEvent::QpLastWqeReached(qp.id())) {
            in_time(start)?;
        }
        println!("  the device takes no receive any more");
        let free = &mut self.free;
        let not_done = qp.quiesce_within(&mut [&mut self.cq], LIMIT, |completion| {
            if completion.opcode() == CompletionOpcode::Receive {
                println!("  buffer {}: {:?}", completion.wr_id(), completion.status());
                free.push(completion.wr_id());
            }
        })?;
        for request in not_done {
            println!("  send {} was not done: {:?}", request.wr_id, request.why);
        }
        let left = qp.destroy()?;
        // Empty, because the completion of each request was polled.
        assert!(left.is_empty(), "{left:?}");
        Ok(())
    }

    /// Destroys the connection without the steps: received messages are lost, their buffers are
    /// not.
    fn cut(&mut self, qp: QueuePair<Rc>) -> Done {
        for request in qp.destroy()? {
            println!("  send {}: {:?}", request.wr_id, request.why);
        }
        // The poll skips the completions of the destroyed queue pair.
        self.cq.poll(64, |completion| println!("  of another queue pair: {completion:?}"))?;
        let discarded = self.srq.take_discarded();
        println!("  buffers {discarded:?} have messages that nothing polls");
        self.free.extend(discarded);
        Ok(())
    }
}

/// Fails once a step has taken too long.
fn in_time(start: Instant) -> Done {
    if start.elapsed() > LIMIT {
        return Err("the device takes too long".into());
    }
    std::thread::yield_now();
    Ok(())
}
