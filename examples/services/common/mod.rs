//! Shared code of the services: the machine that they run on, a connection that ends with its peer,
//! and the end of the program.

// Each service uses a part of this module.
#![allow(dead_code)]

use clap::{Args, Parser, Subcommand};
use mlx5::{
    CompletionQueue, Device, Kernel, LinuxKernel, OwnedCompletion, ProtectionDomain, QueuePair,
    RemoteSlice, SendFlags, Sge, SharedQueuePair, Wr, transport::Rc,
};
use mlx5_cm::{Connection, Listener, Request, Watched};
use mlx5_sim_wire::Wire;
use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Result of everything that can fail.
pub(crate) type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// Time limit for the other side to connect.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

// The first line of `--help` is that of the service's commands.
#[derive(Parser)]
struct Cli<C: Subcommand> {
    /// Use the simulated machine that `mlx5-sim-wire SOCKET` serves, with other processes
    #[arg(long, value_name = "SOCKET", global = true)]
    wire: Option<PathBuf>,
    #[command(subcommand)]
    command: C,
}

/// Message for a request that the device has not completed in time.
pub(crate) fn withheld(limit: Duration) -> String {
    format!(
        "the device has not completed a request within {limit:?}: does the other side run, and does `dmesg` say why?"
    )
}

/// The kernel of this machine, or of a simulated one.
fn kernel(wire: Option<PathBuf>) -> Outcome<Arc<dyn Kernel>> {
    let Some(socket) = wire else { return Ok(Arc::new(LinuxKernel::new())) };
    Ok(Arc::new(Wire::connect(&socket)?))
}

/// Runs the command. Prints an error as text on standard error.
pub(crate) fn run<C: Subcommand>(work: impl FnOnce(Arc<dyn Kernel>, C) -> Outcome) -> ExitCode {
    let Cli { wire, command } = Cli::parse();
    match kernel(wire).and_then(|kernel| work(kernel, command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Time limit for the device.
#[derive(Args)]
struct LimitArgs {
    /// Give up if a request or an answer takes longer than this
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    limit: u64,
}

/// Address of a server to start.
#[derive(Args)]
pub(crate) struct ListenArgs {
    /// The address of an RDMA port to listen on; with port 0 the server takes a free one, and
    /// prints it
    #[arg(long, value_name = "ADDR")]
    listen: String,
    #[command(flatten)]
    device: LimitArgs,
}

impl ListenArgs {
    /// Listens, and opens the device that has the address.
    pub(crate) fn listen(&self, kernel: Arc<dyn Kernel>) -> Outcome<(Listener, Site)> {
        let listener = Listener::bind_on(kernel, &self.listen)
            .map_err(|error| format!("cannot listen on {}: {error}", self.listen))?;
        let site = Site::open(&listener.device()?, &self.device)?;
        Ok((listener, site))
    }
}

/// Address of a server to connect to.
#[derive(Args)]
pub(crate) struct ServerArgs {
    /// The server's address, as it prints it
    #[arg(long, value_name = "ADDR")]
    pub(crate) server: String,
    #[command(flatten)]
    device: LimitArgs,
}

impl ServerArgs {
    /// Opens the device through which the server is reached.
    pub(crate) fn open(&self, device: &Device) -> Outcome<Site> {
        Site::open(device, &self.device)
    }

    /// Connects to the server through the device of that connection.
    pub(crate) fn call(&self, kernel: Arc<dyn Kernel>) -> Outcome<(Site, End)> {
        let none = |error| format!("there is no server at {}: {error}", self.server);
        let peer = mlx5_cm::connect_on(kernel, &self.server).map_err(none)?;
        let site = self.open(&peer.device()?)?;
        let (mut qp, cq) = site.queue_pair()?;
        peer.init(&mut qp)?;
        qp.recv(0, Sge::default())?;
        let connection =
            peer.timeout(PATIENCE).connect(qp, &[]).map_err(|failed| none(failed.into()))?;
        let end = End::new(connection, cq, site.limit)?;
        Ok((site, end))
    }
}

/// Accepts clients forever, and gives each a number and a thread of its own. An error ends only the
/// thread of its client.
pub(crate) fn serve(
    mut listener: Listener,
    client: impl Fn(Request, u32) -> Outcome + Sync,
) -> Outcome {
    println!("ready on {}", listener.local_addr()?);
    let client = &client;
    thread::scope(|scope| {
        for number in 1.. {
            let request = listener.next(None)?;
            scope.spawn(move || match client(request, number) {
                Ok(()) => println!("client {number} has left"),
                Err(error) if error.is::<HungUp>() => println!("client {number} has left"),
                Err(error) => println!("client {number}: {error}"),
            });
        }
        Ok(())
    })
}

/// The other side ended the connection, for example because it exited, and the posted requests were
/// flushed.
#[derive(Debug)]
struct HungUp;

impl fmt::Display for HungUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the other side hung up")
    }
}

impl Error for HungUp {}

/// A device in use.
pub(crate) struct Site {
    pub(crate) pd: ProtectionDomain,
    /// Time limit for a request.
    pub(crate) limit: Duration,
}

impl Site {
    fn open(device: &Device, args: &LimitArgs) -> Outcome<Self> {
        Ok(Self { pd: device.open()?.alloc_pd()?, limit: Duration::from_secs(args.limit) })
    }

    /// A queue pair, and the completion queue to wait on.
    pub(crate) fn queue_pair(&self) -> Outcome<(QueuePair<Rc>, CompletionQueue)> {
        let channel = self.pd.context().create_comp_channel()?;
        let cq = self.pd.context().create_cq(16).channel(&channel).build()?;
        Ok((self.pd.create_qp::<Rc>(&cq, &cq).max_inline_data(64).build()?, cq))
    }

    /// Accepts the request of a client and sends it `data`. Posts one receive, for a message
    /// without data.
    pub(crate) fn accept(&self, request: Request, number: u32, data: &[u8]) -> Outcome<End> {
        let (mut qp, cq) = self.queue_pair()?;
        request.init(&mut qp)?;
        qp.recv(0, Sge::default())?;
        let connection = request.timeout(PATIENCE).accept(qp, data)?;
        println!("client {number} is connected");
        End::new(connection, cq, self.limit)
    }
}

/// One end of a connection.
pub(crate) struct End {
    pub(crate) qp: Arc<SharedQueuePair<Rc>>,
    pub(crate) cq: CompletionQueue,
    /// Moves the queue pair to the error state when the other side hangs up.
    pub(crate) link: Option<Watched>,
    /// Time limit for the device to complete a request.
    pub(crate) limit: Duration,
}

impl End {
    fn new(connection: Connection, cq: CompletionQueue, limit: Duration) -> Outcome<Self> {
        let link = connection.watched()?;
        Ok(Self { qp: Arc::clone(link.qp()), cq, link: Some(link), limit })
    }

    /// The data that the other side sent with its connection request or its answer.
    pub(crate) fn said(&self) -> &[u8] {
        match &self.link {
            Some(link) => &link.remote().private_data,
            None => &[],
        }
    }

    /// Posts a request.
    pub(crate) fn post(&self, build: impl FnOnce(Wr<'_, '_, Rc>)) -> Outcome {
        Ok(self.qp.post(|batch| build(batch.wr(0, SendFlags::SIGNALED)))?)
    }

    /// Posts a request, and waits until it completes.
    pub(crate) fn request(&mut self, build: impl FnOnce(Wr<'_, '_, Rc>)) -> Outcome {
        self.post(build)?;
        self.done().map(drop)
    }

    /// Waits for the next completion within the time limit; fails if its request failed.
    pub(crate) fn done(&mut self) -> Outcome<OwnedCompletion> {
        self.completion(false)
    }

    /// Waits for the next completion as long as the other side is connected; fails if its request
    /// failed.
    pub(crate) fn next(&mut self) -> Outcome<OwnedCompletion> {
        self.completion(true)
    }

    fn completion(&mut self, of_others: bool) -> Outcome<OwnedCompletion> {
        let mut found = [OwnedCompletion::default()];
        while self.cq.poll_into(&mut found)? == 0 {
            // Once the other side has hung up, the posted requests are flushed.
            let has_ended = self.link.as_ref().map_or(Ok(false), Watched::has_ended)?;
            let may_come_later = of_others && !has_ended;
            if !self.cq.wait(false, Some(self.limit))? && !may_come_later {
                return Err(withheld(self.limit).into());
            }
        }
        match found[0].as_completion().status() {
            Ok(()) => Ok(found[0]),
            Err(error) => Err(match self.link.as_ref().map(Watched::has_ended) {
                Some(Ok(true)) if error.is_flushed() => HungUp.into(),
                Some(Ok(true)) => format!("the other side hung up ({error})").into(),
                Some(Err(why)) => format!("the connection has failed: {why} ({error})").into(),
                _ => format!("the connection has failed: {error}").into(),
            }),
        }
    }

    /// Memory region number `number` in the data that the other side sent when it connected.
    pub(crate) fn peer_region<T>(&self, number: usize) -> Outcome<RemoteSlice<T>> {
        let (regions, _) = self.said().as_chunks::<{ RemoteSlice::<u8>::BYTES }>();
        Ok(RemoteSlice::from_bytes(regions.get(number).ok_or("the other side said too little")?)?)
    }
}
