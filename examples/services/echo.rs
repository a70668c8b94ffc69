//! An echo service: many connections, each a task of its own.
//!
//! All connections receive into one pool of buffers, a shared receive queue, and complete on one
//! completion queue. One task awaits that queue's events and passes completions on to the tasks of
//! the connections, which post and await. A message goes back from the buffer that it came in: a
//! buffer belongs to the shared receive queue, or to the connection that got a message in it.
//!
//! Run it with `cargo run --example echo -- --help`.

mod common;

use clap::Subcommand;
use common::{ListenArgs, Outcome, PATIENCE, ServerArgs, Site};
use mlx5::{
    CompletionChannel, CompletionError, Kernel, MemoryRegion, OwnedCompletion, QpAttributes,
    QueuePair, QueueState, SendFlags, SharedCompletionQueue, SharedReceiveQueue, transport::Rc,
};
use mlx5_async::Readable;
use mlx5_cm::{Listener, Request};
use std::sync::{Arc, Mutex};
use std::{collections::HashMap, convert::Infallible, process::ExitCode};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{JoinSet, block_in_place};

/// An echo service: many connections on one shared receive queue and one completion queue
#[derive(Subcommand)]
enum Command {
    /// Send everything back that comes, until killed
    Serve {
        #[command(flatten)]
        at: ListenArgs,
    },
    /// Send messages on many connections, and check what comes back
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

const BUFFERS: u64 = 64;
/// Bytes of a buffer. A client's message fits into the request.
const BUFFER: usize = 64;
/// Identifiers of requests without a buffer: a client's, and the last of a queue pair.
const INLINE: u64 = BUFFERS;
const LAST: u64 = BUFFERS + 1;

/// A request that is done: its identifier, and the length of what was received.
type Done = (u64, Result<Option<u32>, CompletionError>);

/// What all connections share.
struct Hub {
    site: Site,
    cq: SharedCompletionQueue,
    srq: Mutex<SharedReceiveQueue>,
    buffers: MemoryRegion,
    /// Where completions go, by the number of the queue pair.
    inboxes: Mutex<HashMap<u32, UnboundedSender<Done>>>,
}

impl Hub {
    /// Posts all buffers. Completions are announced on the channel.
    fn new(site: Site) -> Outcome<(Arc<Self>, Readable<CompletionChannel>)> {
        let channel = site.pd.context().create_comp_channel()?;
        let cq = site.pd.context().create_cq(4096).channel(&channel).build()?.into_shared();
        let srq = Mutex::new(site.pd.create_srq(BUFFERS as u32).build()?);
        let buffers = site.pd.allocate(BUFFERS as usize * BUFFER)?;
        let hub = Self { site, cq, srq, buffers, inboxes: Mutex::default() };
        (0..BUFFERS).try_for_each(|buffer| hub.give_back(buffer))?;
        Ok((Arc::new(hub), Readable::new(channel)?))
    }

    /// Passes completions on to their connections.
    async fn pass_on(&self, channel: &mut Readable<CompletionChannel>) -> Outcome<Infallible> {
        let mut found = [OwnedCompletion::default(); 64];
        loop {
            let count = self.cq.poll_into(&mut found)?;
            for wc in found[..count].iter().map(OwnedCompletion::as_completion) {
                let done = (wc.wr_id(), wc.status().map(|()| wc.byte_len()));
                let inbox = self.inboxes.lock().unwrap().get(&wc.qp_num()).cloned();
                // It is closed only when everything has come.
                let _ = inbox.map(|inbox| inbox.send(done));
            }
            if count == 0 {
                self.cq.arm(false)?;
                // What came before the queue was armed makes no event.
                if !self.cq.lock().is_ready() {
                    channel.found(|channel| channel.get_event()).await?;
                }
            }
        }
    }

    /// Gives the buffer of a request, if it has one, to the shared receive queue.
    fn give_back(&self, buffer: u64) -> Outcome {
        if buffer < BUFFERS {
            let start = buffer as usize * BUFFER;
            let sge = self.buffers.sge(start..start + BUFFER)?;
            self.srq.lock().unwrap().recv(buffer, sge)?;
        }
        Ok(())
    }
}

struct Connection {
    hub: Arc<Hub>,
    link: Readable<mlx5_cm::Connection>,
    inbox: UnboundedReceiver<Done>,
}

impl Connection {
    /// Connects a queue pair in a way, which blocks.
    fn new(
        hub: &Arc<Hub>,
        connect: impl FnOnce(QueuePair<Rc>) -> Result<mlx5_cm::Connection, mlx5_cm::ConnectionFailed>,
    ) -> Outcome<Self> {
        let (cq, srq) = (hub.cq.lock(), hub.srq.lock().unwrap());
        let qp = hub.site.pd.create_qp::<Rc>(&cq, &cq).srq(&srq).max_inline_data(64).build()?;
        drop((cq, srq));
        let (sender, inbox) = unbounded_channel();
        hub.inboxes.lock().unwrap().retain(|_, inbox| !inbox.is_closed());
        hub.inboxes.lock().unwrap().insert(qp.qp_num(), sender);
        let link = Readable::new(block_in_place(|| connect(qp))?)?;
        Ok(Self { hub: Arc::clone(hub), link, inbox })
    }

    fn qp(&mut self) -> &mut QueuePair<Rc> {
        self.link.get_mut().qp_mut()
    }

    /// Awaits a completion; fails if its request did, or when the other side hangs up.
    async fn next(&mut self) -> Outcome<(u64, Option<u32>)> {
        tokio::select! {
            Some((buffer, done)) = self.inbox.recv() => {
                if done.is_err() {
                    self.hub.give_back(buffer)?;
                }
                Ok((buffer, done.map_err(|error| format!("the connection has failed: {error}"))?))
            }
            ended = self.link.found(|link| link.has_ended().map(|ended| ended.then_some(()))) => {
                ended?;
                Err("the other side hung up".into())
            }
        }
    }

    /// Sends everything back that comes, until it fails.
    async fn echo(&mut self) -> Outcome<Infallible> {
        loop {
            let (buffer, length) = self.next().await?;
            let Some(length) = length else {
                // What was sent has no length.
                self.hub.give_back(buffer)?;
                continue;
            };
            let start = buffer as usize * BUFFER;
            let sge = self.hub.buffers.sge(start..start + length as usize)?;
            self.qp().post(|batch| batch.wr(buffer, SendFlags::SIGNALED).send().sge(sge))?;
        }
    }

    /// Sends messages, one after the other, and checks what comes back.
    async fn call(&mut self, number: u32, messages: u32) -> Outcome {
        for message in 0..messages {
            let text = format!("connection {number}, message {message}").into_bytes();
            self.qp()
                .post(|batch| batch.wr(INLINE, SendFlags::SIGNALED).send().inline_data(&text))?;
            let (mut buffer, mut length) = (INLINE, None);
            while buffer == INLINE {
                (buffer, length) = self.next().await?;
            }
            let mut bytes = vec![0; length.unwrap_or(0) as usize];
            self.hub.buffers.read_at(buffer as usize * BUFFER, &mut bytes)?;
            self.hub.give_back(buffer)?;
            if bytes != text {
                return Err(format!("{text:x?} came back as {bytes:x?}").into());
            }
        }
        Ok(())
    }

    /// Ends the connection. Whatever it has posted or got completes before the last request, with
    /// an error or without: then it has no buffer any more.
    async fn close(mut self) -> Outcome {
        self.qp().modify(&QpAttributes::new().qp_state(QueueState::Error))?;
        self.qp().post(|batch| batch.wr(LAST, SendFlags::SIGNALED).send().inline_data(&[]))?;
        let mut done = INLINE;
        while done != LAST {
            self.hub.give_back(done)?;
            done = self.inbox.recv().await.map_or(LAST, |done| done.0);
        }
        Ok(())
    }
}

/// Serves a connection until it fails.
async fn attend(hub: &Arc<Hub>, request: Request) -> Outcome<Infallible> {
    let mut connection = Connection::new(hub, |qp| request.timeout(PATIENCE).accept(qp, &[]))?;
    println!("a connection is made");
    let ended = connection.echo().await;
    connection.close().await.and(ended)
}

async fn serve(hub: &Arc<Hub>, listener: Listener) -> Outcome {
    println!("ready on {}", listener.local_addr()?);
    let mut listener = Readable::new(listener)?;
    loop {
        let request = listener.found(|listener| listener.try_next()).await?;
        let hub = Arc::clone(hub);
        tokio::spawn(async move {
            let Err(error) = attend(&hub, request).await;
            let posted = hub.srq.lock().unwrap().in_flight();
            println!("a connection has ended: {error}; {posted} buffers are posted");
        });
    }
}

async fn call(
    hub: &Arc<Hub>,
    kernel: &Arc<dyn Kernel>,
    at: &ServerArgs,
    connections: u32,
    messages: u32,
) -> Outcome {
    let mut tasks = JoinSet::new();
    for number in 0..connections {
        let hub = Arc::clone(hub);
        let peer = mlx5_cm::connect_on(Arc::clone(kernel), &at.server)?;
        tasks.spawn(async move {
            let mut connection =
                Connection::new(&hub, |qp| peer.timeout(PATIENCE).connect(qp, &[]))?;
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
            let (hub, mut channel) = Hub::new(site)?;
            tokio::select! {
                served = serve(&hub, listener) => served,
                Err(error) = hub.pass_on(&mut channel) => Err(error),
            }
        }
        Command::Call { connections, messages, at } => {
            let none = |error| format!("there is no server at {}: {error}", at.server);
            let peer = mlx5_cm::connect_on(Arc::clone(&kernel), &at.server).map_err(none)?;
            let (hub, mut channel) = Hub::new(Site::open(&peer.device()?)?)?;
            tokio::select! {
                called = call(&hub, &kernel, &at, connections, messages) => called,
                Err(error) = hub.pass_on(&mut channel) => Err(error),
            }
        }
    }
}

fn main() -> ExitCode {
    common::run(|kernel, command| Runtime::new()?.block_on(run(kernel, command)))
}
