//! An echo service with many connections, each in a task of its own.
//!
//! All connections receive into one pool of buffers, a shared receive queue, and complete on one
//! completion queue, whose pump wakes the tasks. A message is sent back from the buffer that
//! received it. A buffer belongs to the shared receive queue, or to the connection whose message it
//! holds.
//!
//! Run it with `cargo run --example echo -- --help`.

#![forbid(unsafe_code)]

mod common;

use clap::Subcommand;
use common::{ListenArgs, Outcome, PATIENCE, ServerArgs, Site, withheld};
use mlx5::{Kernel, MemoryRegion, QueuePair, RetryCount, SendFlags, transport::Rc};
use mlx5_async::{
    AsyncQueuePair, AsyncSharedReceiveQueue, Completions, Done, Failed, Hub, Readable,
};
use mlx5_cm::{ConnectionFailed, Link, Listener, Request};
use std::{convert::Infallible, process::ExitCode, sync::Arc};
use tokio::{runtime::Runtime, task::JoinSet, task::block_in_place, time::timeout};

/// An echo service: many connections on one shared receive queue and one completion queue
#[derive(Subcommand)]
enum Command {
    /// Send every message back, until killed
    Serve {
        #[command(flatten)]
        at: ListenArgs,
    },
    /// Send messages on many connections, and check the answers
    Call {
        #[arg(long, default_value_t = 64)]
        connections: u32,
        /// Messages on each connection
        #[arg(long, default_value_t = 10)]
        messages: u32,
        #[command(flatten)]
        at: ServerArgs,
    },
}

const BUFFERS: usize = 64;
/// Bytes of a buffer. A client's message fits into the request.
const BUFFER: usize = 64;
const NONE: SendFlags = SendFlags::empty();

/// Value that a request keeps: the number of its buffer, if it has one.
type Keep = Option<usize>;

/// State that all connections share.
struct Shared {
    site: Site,
    hub: Hub,
    srq: AsyncSharedReceiveQueue<Keep>,
    buffers: MemoryRegion,
}

impl Shared {
    /// Posts all buffers, then runs `work` together with the pump.
    async fn work(site: Site, work: impl AsyncFnOnce(&Arc<Self>) -> Outcome) -> Outcome {
        let (hub, pump) = Hub::new(&site.pd.context(), 8192)?;
        let srq = hub.adopt_srq(site.pd.create_srq(BUFFERS as u32).build()?)?;
        let buffers = site.pd.allocate(BUFFERS * BUFFER)?;
        let shared = Arc::new(Self { site, hub, srq, buffers });
        (0..BUFFERS).try_for_each(|buffer| shared.give_back(Some(buffer)))?;
        tokio::select! {
            worked = work(&shared) => worked,
            tidied = shared.tidy() => tidied,
            pumped = pump.drive() => Ok(pumped?),
        }
    }

    /// Posts the buffer of a request, if it has one, to the shared receive queue.
    fn give_back(&self, keep: Keep) -> Outcome {
        let Some(start) = keep.map(|buffer| buffer * BUFFER) else { return Ok(()) };
        Ok(self.srq.try_post_recv(keep, self.buffers.sge(start..start + BUFFER)?)?)
    }

    /// Posts the buffers of messages whose connection has ended.
    async fn tidy(&self) -> Outcome {
        let mut receives = self.srq.receives();
        while let Some(received) = receives.next().await {
            self.give_back(parts(received).0)?;
        }
        Ok(())
    }
}

/// Result of `work`, or an error if the device does not complete it in time.
async fn in_time<T>(site: &Site, work: impl Future<Output = T>) -> Outcome<T> {
    timeout(site.limit, work).await.map_err(|_| withheld(site.limit).into())
}

/// The buffer of a completed request, and the length of the received message.
fn parts(result: Result<Done<Keep>, Failed<Keep>>) -> (Keep, Outcome<usize>) {
    match result {
        Ok(done) => (done.keep, Ok(done.completion.byte_len().unwrap_or(0) as usize)),
        Err(error) => {
            (error.keep.flatten(), Err(format!("the connection has failed: {error}").into()))
        }
    }
}

struct Connection {
    shared: Arc<Shared>,
    qp: AsyncQueuePair<Rc, Keep>,
    link: Readable<Link>,
    inbox: Completions<Keep>,
}

impl Connection {
    /// Connects a queue pair with `connect`, which blocks.
    fn new(
        shared: &Arc<Shared>,
        connect: impl FnOnce(QueuePair<Rc>) -> Result<mlx5_cm::Connection, ConnectionFailed>,
    ) -> Outcome<Self> {
        let qp = shared.srq.create_qp::<Rc, _>(&shared.site.pd, |builder| {
            builder.max_send_wr(BUFFERS as u32).max_inline_data(64).build()
        })?;
        let inbox = shared.srq.receives_of(qp.qp_num());
        let (qp, link) = block_in_place(|| connect(qp))?.split();
        let (qp, link) = (shared.hub.adopt(qp)?, Readable::new(link)?);
        Ok(Self { shared: Arc::clone(shared), qp, link, inbox })
    }

    /// Sends every message back, until the connection fails.
    async fn echo(&mut self) -> Outcome<Infallible> {
        let Self { shared, qp, link, inbox } = self;
        let mut sends = qp.sends();
        loop {
            tokio::select! {
                Some(received) = inbox.next() => {
                    let (keep, length) = parts(received);
                    let start = keep.unwrap_or(0) * BUFFER;
                    let from = length.and_then(|length| Ok(shared.buffers.sge(start..start + length)?));
                    let posted = from.and_then(|from| Ok(qp.try_post(keep, NONE, |wr| wr.send().sge(from))?));
                    if posted.is_err() {
                        shared.give_back(keep)?;
                    }
                    posted?;
                }
                Some(sent) = sends.next() => {
                    let (keep, sent) = parts(sent);
                    shared.give_back(keep)?;
                    sent?;
                }
                ended = hung_up(link) => return ended,
            }
        }
    }

    /// Sends messages, one after the other, and checks the answers.
    async fn call(&mut self, number: u32, messages: u32) -> Outcome {
        let Self { shared, qp, link, inbox } = self;
        let calls = async {
            for message in 0..messages {
                let text = format!("connection {number}, message {message}").into_bytes();
                let sent = qp.submit(None, NONE, |wr| wr.send().inline_data(&text)).await?;
                parts(in_time(&shared.site, sent).await?).1?;
                let came = in_time(&shared.site, inbox.next()).await?;
                let (keep, length) = parts(came.ok_or("no message comes any more")?);
                let mut bytes = vec![0; length.unwrap_or(0)];
                shared.buffers.read_at(keep.unwrap_or(0) * BUFFER, &mut bytes)?;
                shared.give_back(keep)?;
                if bytes != text {
                    return Err(format!("{text:x?} came back as {bytes:x?}").into());
                }
            }
            Ok(())
        };
        tokio::select! {
            called = calls => called,
            Err(error) = hung_up(link) => Err(error),
        }
    }

    /// Ends the connection and posts its buffers again. Closing flushes the posted requests.
    async fn close(mut self) -> Outcome {
        let mut sends = self.qp.sends();
        // While the queue pair exists, no other one gets its number, and `inbox` has its receives
        // only.
        let _qp = in_time(&self.shared.site, self.qp.close()).await??;
        while let Some(sent) = sends.next().await {
            self.shared.give_back(parts(sent).0)?;
        }
        while let Some(received) = self.inbox.try_next() {
            self.shared.give_back(parts(received).0)?;
        }
        Ok(())
    }
}

/// Waits until the other side hangs up.
async fn hung_up(link: &mut Readable<Link>) -> Outcome<Infallible> {
    link.found(|link| link.has_ended().map(|ended| ended.then_some(()))).await?;
    Err("the other side hung up".into())
}

/// Serves a connection until it fails.
async fn attend(shared: &Arc<Shared>, request: Request) -> Outcome<Infallible> {
    // Limits the retries, so that a client that accepts no answers cannot hold the shared buffers.
    let retries = RetryCount::new(6)?;
    let mut connection = Connection::new(shared, |qp| {
        request.timeout(PATIENCE).own_rnr_retry_count(retries).accept(qp, &[])
    })?;
    println!("a connection is made");
    let ended = connection.echo().await;
    connection.close().await?;
    ended
}

async fn serve(shared: &Arc<Shared>, listener: Listener) -> Outcome {
    println!("ready on {}", listener.local_addr()?);
    let mut listener = Readable::new(listener)?;
    loop {
        let request = listener.found(|listener| listener.try_next()).await?;
        let shared = Arc::clone(shared);
        tokio::spawn(async move {
            let Err(error) = attend(&shared, request).await;
            let posted = shared.srq.in_flight();
            println!("a connection has ended: {error}; {posted} buffers are posted");
        });
    }
}

async fn call(
    shared: &Arc<Shared>,
    kernel: &Arc<dyn Kernel>,
    at: &ServerArgs,
    connections: u32,
    messages: u32,
) -> Outcome {
    let mut tasks = JoinSet::new();
    for number in 0..connections {
        let shared = Arc::clone(shared);
        let peer = mlx5_cm::connect_on(Arc::clone(kernel), &at.server)?;
        tasks.spawn(async move {
            let mut connection =
                Connection::new(&shared, |qp| peer.timeout(PATIENCE).connect(qp, &[]))?;
            let called = connection.call(number, messages).await;
            connection.close().await.and(called)
        });
    }
    tasks.join_all().await.into_iter().collect::<Outcome>()?;
    println!("{connections} connections, {} messages came back", connections * messages);
    Ok(())
}

async fn run(kernel: Arc<dyn Kernel>, command: Command) -> Outcome {
    match command {
        Command::Serve { at } => {
            let (listener, site) = at.listen(kernel)?;
            Shared::work(site, async |shared| serve(shared, listener).await).await
        }
        Command::Call { connections, messages, at } => {
            let none = |error| format!("there is no server at {}: {error}", at.server);
            let peer = mlx5_cm::connect_on(Arc::clone(&kernel), &at.server).map_err(none)?;
            let work = async |shared: &_| call(shared, &kernel, &at, connections, messages).await;
            Shared::work(at.open(&peer.device()?)?, work).await
        }
    }
}

fn main() -> ExitCode {
    common::run(|kernel, command| Runtime::new()?.block_on(run(kernel, command)))
}
