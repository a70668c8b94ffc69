//! What the services share: which device they use, a connection that ends with its TCP stream, and
//! how they end.

// Each service uses part of it.
#![allow(dead_code)]

use clap::{Args, Parser, Subcommand};
use mlx5::{
    CompletionQueue, ConnectOptions, LocalPort, OwnedCompletion, ProtectionDomain, QpAttributes,
    QueueState, RemoteSlice, SendFlags, Sge, SharedQueuePair, Wr, transport::Rc,
};
use mlx5_sim_wire::Wire;
use std::error::Error;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// What everything gives back that can fail.
pub(crate) type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// How long the other side may take to connect.
const PATIENCE: Duration = Duration::from_secs(10);

// The first line of `--help` is that of the service's commands.
#[derive(Parser)]
struct Cli<C: Subcommand> {
    #[command(flatten)]
    device: DeviceArgs,
    #[command(subcommand)]
    command: C,
}

/// Which device.
#[derive(Args)]
struct DeviceArgs {
    /// Use the simulated machine that `mlx5-sim-wire SOCKET` serves, with other processes
    #[arg(long, value_name = "SOCKET", global = true, conflicts_with = "device")]
    sim: Option<PathBuf>,
    /// Use the mlx5 device of this name [default: the first one]
    #[arg(long, value_name = "NAME", global = true)]
    device: Option<String>,
}

/// A device in use.
pub(crate) struct Site {
    pub(crate) pd: ProtectionDomain,
    pub(crate) port: LocalPort,
}

impl DeviceArgs {
    fn open(&self) -> Outcome<Site> {
        let context = match &self.sim {
            Some(socket) => {
                let wire = Wire::connect(socket).map_err(|errno| {
                    let socket = socket.display();
                    format!(
                        "no simulated machine is served at {socket} ({errno}); start one with \
                         `cargo run -p mlx5-sim-wire -- {socket}`"
                    )
                })?;
                let devices = mlx5::devices_on(Arc::new(wire))?;
                devices.first().ok_or("the simulated machine has no device")?.open()?
            }
            None => mlx5::open(self.device.as_deref()).map_err(|error| {
                format!("{error}; --sim SOCKET uses a simulated one, see --help")
            })?,
        };
        Ok(Site { pd: context.alloc_pd()?, port: context.local_port(1, None)? })
    }
}

/// Does what the command line says; a failure is told in words, on standard error.
pub(crate) fn run<C: Subcommand>(work: impl FnOnce(Site, C) -> Outcome) -> ExitCode {
    let Cli { device, command } = Cli::parse();
    match device.open().and_then(|site| work(site, command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Where a server listens.
#[derive(Args)]
pub(crate) struct ListenArgs {
    /// The address to listen on; port 0 takes a free one, and the server prints it
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: String,
}

/// Which server.
#[derive(Args)]
pub(crate) struct ServerArgs {
    /// The server's address, as it prints it
    #[arg(long, value_name = "ADDR")]
    server: String,
}

impl ServerArgs {
    /// Calls the server.
    pub(crate) fn dial(&self) -> Outcome<TcpStream> {
        let stream = TcpStream::connect(&self.server)
            .map_err(|error| format!("there is no server at {}: {error}", self.server))?;
        ready(&stream).map(|()| stream)
    }
}

/// Makes a stream fit for an exchange of few bytes: it blocks, but not for ever.
pub(crate) fn ready(stream: &TcpStream) -> Outcome {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    Ok(stream.set_read_timeout(Some(PATIENCE))?)
}

/// Gives each client that connects a number and a thread of its own, for ever. A client that fails
/// ends its own thread only.
pub(crate) fn serve(address: &str, client: impl Fn(&TcpStream, u32) -> Outcome + Sync) -> Outcome {
    let listener = TcpListener::bind(address)
        .map_err(|error| format!("cannot listen on {address}: {error}"))?;
    println!("ready on {}", listener.local_addr()?);
    let client = &client;
    thread::scope(|scope| {
        for number in 1.. {
            let (stream, from) = listener.accept()?;
            scope.spawn(move || {
                println!("client {number} is {from}");
                match ready(&stream).and_then(|()| client(&stream, number)) {
                    Ok(()) => println!("client {number} has left"),
                    Err(error) => println!("client {number}: {error}"),
                }
            });
        }
        Ok(())
    })
}

/// One end of a connection.
pub(crate) struct End {
    pub(crate) qp: Arc<SharedQueuePair<Rc>>,
    pub(crate) cq: CompletionQueue,
}

impl Site {
    /// Connects a queue pair to one at the other end of the stream. One receive is posted, for a
    /// message without data.
    pub(crate) fn connect(&self, stream: impl Read + Write) -> Outcome<End> {
        let (context, options) = (self.pd.context(), ConnectOptions::default());
        let channel = context.create_comp_channel()?;
        let cq = context.create_cq(16).channel(&channel).build()?;
        let mut qp = self.pd.create_qp::<Rc>(&cq, &cq).max_inline_data(64).build()?;
        qp.init(&self.port, &options)?;
        qp.recv(0, Sge::default())?;
        qp.connect_over(stream, &self.port, &options)?;
        Ok(End { qp: Arc::new(qp.into_shared()), cq })
    }
}

impl End {
    /// Runs `work`. When the other side hangs up, however it ended, the queue pair goes to the error
    /// state: whoever waits for a completion then has one that says so.
    ///
    /// From now on nothing may be said on the stream. It is shut down afterwards.
    pub(crate) fn while_connected<T>(
        &mut self,
        stream: &TcpStream,
        work: impl FnOnce(&mut Self) -> Outcome<T>,
    ) -> Outcome<T> {
        stream.set_read_timeout(None)?;
        let (qp, hung_up) = (Arc::clone(&self.qp), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                let _ = { stream }.read(&mut [0]);
                hung_up.store(true, Ordering::Release);
                qp.modify(&QpAttributes::new().qp_state(QueueState::Error))
            });
            let result = work(self).map_err(|error| match hung_up.load(Ordering::Acquire) {
                true => format!("the other side hung up ({error})").into(),
                false => error,
            });
            // Ends the thread. It fails if the other side was faster.
            let _ = stream.shutdown(Shutdown::Both);
            result
        })
    }

    /// Posts a request.
    pub(crate) fn post(&self, build: impl FnOnce(Wr<'_, '_, Rc>)) -> Outcome {
        Ok(self.qp.post(|batch| build(batch.wr(0, SendFlags::SIGNALED)))?)
    }

    /// Posts a request, and waits until it is done.
    pub(crate) fn request(&mut self, build: impl FnOnce(Wr<'_, '_, Rc>)) -> Outcome {
        self.post(build)?;
        self.next().map(drop)
    }

    /// Waits for the next completion, and fails if its request did.
    pub(crate) fn next(&mut self) -> Outcome<OwnedCompletion> {
        let mut found = [OwnedCompletion::default()];
        while self.cq.poll_into(&mut found)? == 0 {
            self.cq.wait(false, None)?;
        }
        match found[0].as_completion().status() {
            Ok(()) => Ok(found[0]),
            Err(error) => Err(format!("the connection has failed: {error}").into()),
        }
    }
}

/// Tells the other side where memory is.
pub(crate) fn tell<T>(mut stream: &TcpStream, memory: RemoteSlice<T>) -> Outcome {
    Ok(stream.write_all(&memory.to_bytes())?)
}

/// Hears from the other side where memory is.
pub(crate) fn hear<T>(mut stream: &TcpStream) -> Outcome<RemoteSlice<T>> {
    let mut bytes = [0; RemoteSlice::<u8>::BYTES];
    stream.read_exact(&mut bytes)?;
    Ok(RemoteSlice::from_bytes(&bytes)?)
}
