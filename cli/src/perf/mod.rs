//! `mlx5 perf`.

mod json;
mod measure;
mod plot;
mod progress;
mod report;
mod svg;

use crate::device::{Port, PortArgs, link_name};
use crate::failure::Failure;
use crate::link::{EndArgs, Op, Pace, Session, Shape, Transport, datagram_limit};
use crate::numbers::{Sizes, parse_size};
use clap::ValueEnum;
use measure::{Measurement, Plan};
use mlx5::mtu_bytes;
use std::fs;
use std::io::Write;
use std::path::PathBuf;

/// `--help`.
pub(crate) const LONG_ABOUT: &str = "\
Measures latency, message rate and bandwidth of sends, RDMA writes and RDMA reads,
for one or many message sizes.

Latency is measured with one message at a time: of a send it is half the round trip
of a ping-pong, of a write or read the time from posting it until its completion is
polled. The rate is measured with --depth requests outstanding, from the first
request to the last completion.

Both ends are in this process, unless --listen or --connect is given. On the simulated
device the times show the cost of software only, not of hardware.";

const EXAMPLES: &str = "\
Examples:
  mlx5 perf                                    RC sends of 8 bytes to 64 KiB
  mlx5 perf --op write --sizes 64 --inline 64  small inline RDMA writes
  mlx5 perf --op read --sizes 4k,64k,1m        three sizes
  mlx5 perf -t ud --all                        datagrams of every size
  mlx5 perf --only rate --batch 16             message rate with shared doorbells
  mlx5 perf --json - | jq .results             for programs
  mlx5 perf --svg latency.svg                  for papers

Between two hosts:
  server$ mlx5 perf --listen
  client$ mlx5 perf --connect server --op write --sizes 8..1m";

/// Options of `mlx5 perf`.
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// Operation to measure
    #[arg(long, value_enum, default_value_t = Op::Send)]
    op: Op,
    /// Transport of the queue pairs
    #[arg(short, long, value_enum, default_value_t = Transport::Rc)]
    transport: Transport,
    /// Message sizes: 8..64k, or 1,64,4k [default: 8..64k]
    ///
    /// A range contains the powers of two. Ranges and sizes may be mixed.
    #[arg(short, long, value_name = "SIZES", conflicts_with = "all")]
    sizes: Option<Sizes>,
    /// All powers of two from 1 to 8m, or to the largest datagram
    #[arg(short, long)]
    all: bool,
    /// Messages to time for the latency of each size
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 1000,
          value_parser = clap::value_parser!(u64).range(1..))]
    iters: u64,
    /// Messages to send for the rate of each size [default: 10 times --iters, fewer if large]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    messages: Option<u64>,
    /// Requests outstanding while the rate is measured
    #[arg(long, value_name = "COUNT", default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(1..=16384))]
    depth: u32,
    /// Send messages up to this size inline
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = parse_size)]
    inline: usize,
    /// Ask for one completion in so many requests of a rate [default: 16, or --depth]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    signal_every: Option<u32>,
    /// Requests posted with one doorbell
    #[arg(long, value_name = "COUNT", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    batch: u32,
    /// Measure one thing alone
    #[arg(long, value_enum)]
    only: Option<Only>,
    /// Write results as JSON to a file, or with `-` to stdout in place of the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw latencies into a file, as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    ends: EndArgs,
    #[command(flatten)]
    port: PortArgs,
}

/// What is measured alone.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Only {
    /// Latency
    Latency,
    /// Message rate and bandwidth
    Rate,
}

/// What the results are of.
struct Setting {
    device: String,
    part: Option<&'static str>,
    firmware: String,
    simulated: bool,
    port: u8,
    link: &'static str,
    mtu: u32,
    loopback: bool,
    local: String,
    remote: String,
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    check(args)?;
    let port = args.port.open()?;
    let plan = plan(args, &port)?;
    let receives = args.depth.saturating_mul(2).clamp(16, 32768);
    let shape = Shape {
        transport: args.transport,
        message: plan.sizes.largest(),
        depth: args.depth.max(16),
        receives,
        inline: args.inline as u32,
    };
    let Session::Initiator(mut initiator) = args.ends.open(&port, shape, false)? else {
        return Ok(());
    };
    let device = &port.opened.device;
    let setting = Setting {
        device: device.name().to_owned(),
        part: device.part(),
        firmware: port.opened.context.query_device().fw_ver,
        simulated: port.opened.simulator.is_some(),
        port: port.local.port_num,
        link: link_name(port.local.link_layer),
        mtu: mtu_bytes(port.local.active_mtu),
        loopback: args.ends.is_local(),
        local: initiator.local.to_string(),
        remote: initiator.remote.to_string(),
    };
    let results = measure::all(&mut initiator, &plan)?;
    initiator.peer.part()?;
    present(args, out, &setting, &plan, &results)
}

fn present(
    args: &Args,
    out: &mut impl Write,
    setting: &Setting,
    plan: &Plan,
    results: &[Measurement],
) -> Result<(), Failure> {
    let to_stdout = args.json.as_ref().is_some_and(|file| file.as_os_str() == "-");
    let written = |file: &PathBuf, text: String| {
        fs::write(file, text)
            .map_err(|error| Failure::new(format!("cannot write {}: {error}", file.display())))
    };
    if let Some(file) = &args.json {
        let text = format!("{:#}\n", json::document(setting, plan, results));
        if to_stdout {
            out.write_all(text.as_bytes())?;
        } else {
            written(file, text)?;
        }
    }
    if !to_stdout {
        report::table(out, setting, plan, results)?;
    }
    if let Some(file) = &args.svg {
        written(file, plot::latency(setting, plan, results))?;
    }
    Ok(())
}

/// Refuses what cannot be, before anything is done.
fn check(args: &Args) -> Result<(), Failure> {
    let transports = args.op.transports();
    if !transports.contains(&args.transport) {
        let names: Vec<_> = transports.iter().map(|transport| transport.name()).collect();
        let cause = format!("{} has no RDMA {}", args.transport.name(), args.op.name());
        return Err(Failure::usage(cause).hint(format!("use --transport {}", names.join(" or "))));
    }
    if args.op == Op::Read && args.inline > 0 {
        let hint = "leave --inline away: what is read cannot be in the request";
        return Err(Failure::usage("reads have no inline data").hint(hint));
    }
    if args.inline > 900 {
        let cause = format!("--inline {} is more than a request can carry", args.inline);
        return Err(Failure::usage(cause).hint("requests have up to 1008 bytes in all"));
    }
    if let Some(every) = args.signal_every
        && every > args.depth
    {
        let cause = format!("--signal-every {every} is more than --depth {}", args.depth);
        return Err(Failure::usage(cause)
            .hint("requests without a completion would fill the queue: raise --depth"));
    }
    if args.svg.is_some() && args.only == Some(Only::Rate) {
        let hint = "leave --only rate away: the plot shows latencies";
        return Err(Failure::usage("there are no latencies to draw").hint(hint));
    }
    Ok(())
}

fn plan(args: &Args, port: &Port) -> Result<Plan, Failure> {
    const ALL: usize = 8 << 20;
    const DEFAULT: (usize, usize) = (8, 64 << 10);
    let limit = match args.transport {
        Transport::Ud => datagram_limit(port),
        Transport::Rc | Transport::Uc => usize::MAX,
    };
    let sizes = match &args.sizes {
        Some(sizes) => sizes.clone(),
        None if args.all => Sizes::sweep(1, ALL.min(limit)),
        None => Sizes::sweep(DEFAULT.0, DEFAULT.1.min(limit)),
    };
    if sizes.largest() > limit {
        let cause = format!("a datagram takes at most {limit} bytes on this port");
        return Err(Failure::usage(cause).hint(format!("--sizes 8..{limit}, or --transport rc")));
    }
    let default = args.iters.saturating_mul(10);
    Ok(Plan {
        op: args.op,
        transport: args.transport,
        sizes,
        latencies: (args.only != Some(Only::Rate)).then_some(args.iters),
        messages: (args.only != Some(Only::Latency)).then_some(args.messages.unwrap_or(default)),
        messages_fixed: args.messages.is_some(),
        depth: args.depth,
        inline: args.inline,
        pace: Pace {
            signal_every: u64::from(args.signal_every.unwrap_or(16).min(args.depth)),
            batch: u64::from(args.batch.min(args.depth)),
        },
    })
}
