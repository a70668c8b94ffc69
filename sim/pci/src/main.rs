//! Serves simulated ConnectX functions to QEMU.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use mlx5_sim::settings::Settings;
use mlx5_sim::{PortConfig, SimConfig};
use mlx5_sim_pci::{Bus, Capture, Log};

/// The most bytes of frames that are written down.
const CAPTURED: u64 = 256 << 20;

/// Serves simulated ConnectX adapters as PCI functions over vfio-user.
///
/// Each socket is one adapter; all are on one wire. When the sockets can be connected to, one line
/// `ready` is written. With --once it ends when the machine has let go of every adapter: with 0 if
/// all went well, with 1 if the driver did what it never must or asked for what the device does not
/// know, with 2 if it could not start. Without, new adapters then wait for the next machine.
///
///   qemu-system-x86_64 -M q35,memory-backend=m
///     -object memory-backend-memfd,id=m,share=on,size=512M
///     -device pcie-root-port,id=p0,chassis=1,slot=1
///     -device '{"driver":"vfio-user-pci","bus":"p0","socket":{"type":"unix","path":"/tmp/hca0"}}'
#[derive(Parser)]
#[command(version, verbatim_doc_comment)]
struct Options {
    /// A unix socket to listen on; once for each adapter
    #[arg(long, required = true)]
    socket: Vec<PathBuf>,
    /// The simulation's settings, as the preload door's MLX5_SIM: `model=cx5,link=roce,…`
    #[arg(long, default_value = "")]
    sim: String,
    /// The link layer of the port, over what --sim says
    #[arg(long)]
    link: Option<Link>,
    /// File for lines about the devices, in place of standard error
    #[arg(long)]
    log: Option<PathBuf>,
    /// File for the Ethernet frames on the wire, the first 256 MiB of them, in a form that tcpdump
    /// reads; RoCE's packets are not among them
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
    /// Ends with the first machine
    #[arg(long)]
    once: bool,
    /// Says every command and every access
    #[arg(long)]
    trace: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Link {
    /// InfiniBand
    Ib,
    /// Ethernet with RoCE
    Eth,
}

type Failure = Box<dyn std::error::Error>;

fn config(options: &Options) -> Result<(SimConfig, bool), Failure> {
    let settings: Settings = options.sim.parse()?;
    let mut config: SimConfig = settings.machine.ok_or("\"off\" leaves nothing to serve")?;
    match options.link {
        Some(Link::Ib) => config.ports = vec![PortConfig::INFINIBAND],
        Some(Link::Eth) => config.ports = vec![PortConfig::ROCE],
        None => {}
    }
    Ok((config, options.trace || settings.trace))
}

fn serve(options: &Options) -> Result<bool, Failure> {
    let (config, trace) = config(options)?;
    let log = match &options.log {
        Some(path) => Log::new(File::create(path)?, trace),
        None => Log::new(std::io::stderr(), trace),
    };
    loop {
        let bus = Bus::listen(config.clone(), &options.socket, &log)?;
        if let Some(path) = &options.capture {
            bus.capture(Capture::new(File::create(path)?, CAPTURED)?);
        }
        println!("ready");
        std::io::stdout().flush()?;
        bus.run(&log);
        if options.once {
            return Ok(log.problems() == 0);
        }
    }
}

fn main() -> ExitCode {
    match serve(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("mlx5-sim-pci: {error}");
            ExitCode::from(2)
        }
    }
}
