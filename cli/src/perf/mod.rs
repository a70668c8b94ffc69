//! `mlx5 perf`.

mod csv;
mod gate;
mod histogram;
mod json;
mod measure;
mod plot;
mod progress;
mod raw;
mod report;
mod svg;

use crate::device::{Port, PortArgs, link_name, note};
use crate::failure::Failure;
use crate::files::{Output, is_dash, is_same};
use crate::interrupt::Interrupt;
use crate::link::{ATOMIC, EndArgs, Op, Pace, Session, Shape, Transport, datagram_limit};
use crate::numbers::{Sizes, count, parse_seconds, parse_size};
use clap::ValueEnum;
use measure::{Amount, Measurement, Plan};
use mlx5::mtu_bytes;
use std::fmt::Display;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// `--help`.
pub(crate) const LONG_ABOUT: &str = "\
Measures latency, message rate and bandwidth of sends, RDMA writes, RDMA reads, atomics
and raw packets, for one or many message sizes.

Latency is measured with one message at a time in each thread: of a send or a packet it
is half the round trip of a ping-pong, of any other operation the time from posting it until
its completion is polled. The rate is measured with --depth requests outstanding on
each queue pair, from the first request to the last completion.

Ctrl-C ends the measurement; what was measured until then is reported, and the exit
status is 130. A second Ctrl-C ends the process at once.

Both ends are in this process, unless --listen or --connect is given. On the simulated
device the times show the cost of software only, not of hardware.";

const EXAMPLES: &str = "\
Examples:
  mlx5 perf                                    RC sends of 8 bytes to 64 KiB
  mlx5 perf --op write --sizes 64 --inline 64  small inline RDMA writes
  mlx5 perf --op read --sizes 4k,64k,1m        three sizes
  mlx5 perf --op fetch-add                     atomics
  mlx5 perf -t ud --all                        datagrams of every size
  mlx5 perf --only rate --batch 16             message rate with shared doorbells
  mlx5 perf --qps 8 --threads 4 --duration 10  ten seconds of each size, two queue pairs a thread
  mlx5 perf --raw --sizes 64 --batch 32        frames of Ethernet, 32 with a doorbell
  mlx5 perf --only rate --bidirectional        both ends send at the same time
  mlx5 perf --only latency --histogram         how the latencies are distributed
  mlx5 perf --json | jq .results               for programs
  mlx5 perf --csv - > results.csv              for spreadsheets
  mlx5 perf --svg latency.svg                  for papers

Between two processes, on one machine or two:
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
    /// Measure frames of Ethernet between two raw packet queue pairs, and no RDMA
    ///
    /// Both queues are in this process; sizes are those of the frames. It needs CAP_NET_RAW.
    #[arg(long, conflicts_with_all = ["op", "transport", "inline", "signal_every", "qps", "threads",
          "bidirectional", "listen", "connect", "gid_index"])]
    raw: bool,
    /// Message sizes: 8..64k, or 1,64,4k [default: 8..64k; atomics: 8; --raw: 64..1514]
    ///
    /// A range contains the powers of two. Ranges and sizes may be mixed.
    #[arg(short, long, value_name = "SIZES", conflicts_with = "all")]
    sizes: Option<Sizes>,
    /// All powers of two from 1 to 8m, or to the largest datagram; with --raw from 60 to 1514
    #[arg(short, long)]
    all: bool,
    /// Messages to time for the latency of each size, in all threads together
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 1000,
          value_parser = count::<u64>(1, u64::MAX))]
    iters: u64,
    /// Messages to send for the rate of each size [default: 10 times --iters, fewer if large]
    #[arg(long, value_name = "COUNT", value_parser = count::<u64>(1, u64::MAX))]
    messages: Option<u64>,
    /// Measure latency and rate of each size for this time each, as 10 or 0.5: 0.001 to 86400
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds,
          conflicts_with_all = ["iters", "messages"])]
    duration: Option<Duration>,
    /// Queue pairs, divided among the threads [default: one in each thread]
    #[arg(long, value_name = "COUNT", value_parser = count::<u32>(1, 1024))]
    qps: Option<u32>,
    /// Threads, each with its queue pairs and two completion queues
    #[arg(long, value_name = "COUNT", default_value_t = 1,
          value_parser = count::<u32>(1, 64))]
    threads: u32,
    /// Measure the rate both ways at the same time, and add them
    #[arg(short, long)]
    bidirectional: bool,
    /// Requests outstanding on each queue pair while the rate is measured
    #[arg(long, value_name = "COUNT", default_value_t = 64,
          value_parser = count::<u32>(1, 16384))]
    depth: u32,
    /// Send messages up to this size inline: at most 972, datagrams 940
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = parse_size)]
    inline: usize,
    /// Ask for one completion per COUNT requests, at most --depth [default: 16, or --depth]
    #[arg(long, value_name = "COUNT", value_parser = count::<u32>(1, u32::MAX.into()))]
    signal_every: Option<u32>,
    /// Requests posted with one doorbell: at most 1024, and at most --depth
    #[arg(long, value_name = "COUNT", default_value_t = 1,
          value_parser = count::<u32>(1, 1024))]
    batch: u32,
    /// Measure one thing alone
    #[arg(long, value_enum)]
    only: Option<Only>,
    /// Write JSON to stdout in place of the table, or to a file
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
    /// Write results as CSV to a file, or with `-` to stdout in place of the table
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Show how the latencies of each size are distributed; JSON gets them, too
    #[arg(long)]
    histogram: bool,
    /// Draw latencies as SVG into a file, or with `-` to stdout in place of the table
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    ends: EndArgs,
    #[command(flatten)]
    port: PortArgs,
}

/// The only measurement to make.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Only {
    /// Latency
    Latency,
    /// Message rate and bandwidth
    Rate,
}

/// Outputs of the results beside the table, or in place of it.
struct Outputs {
    json: Option<Output>,
    csv: Option<Output>,
    svg: Option<Output>,
}

impl Outputs {
    fn create(args: &Args) -> Result<Self, Failure> {
        let create = |file: &Option<PathBuf>| file.as_deref().map(Output::create).transpose();
        Ok(Self { json: create(&args.json)?, csv: create(&args.csv)?, svg: create(&args.svg)? })
    }
}

/// Whether the command was built for debugging.
const DEBUG: bool = cfg!(debug_assertions);

/// The device and the conditions of the measurement.
struct Setting {
    device: String,
    part: Option<&'static str>,
    firmware: String,
    simulated: bool,
    port: u8,
    link: &'static str,
    /// Of the queue pairs.
    mtu: Option<u32>,
    loopback: bool,
    local: String,
    remote: String,
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    check(args)?;
    // Before any thread starts, also those of the simulated device.
    let interrupt = match args.ends.listens_at() {
        None => Some(Interrupt::watch()?),
        Some(_) => None,
    };
    let port = if args.raw { args.port.with_packets() } else { args.port.clone() }.open()?;
    let plan = plan(args, &port)?;
    // Only the measuring end has results. Create the files first: one that cannot be written would
    // lose them.
    let measuring = match interrupt {
        Some(interrupt) => Some((interrupt, Outputs::create(args)?)),
        None => None,
    };
    if args.raw {
        port.opened.wants_ethernet(port.local.port_num)?;
        let mut ends = raw::Ends::open(&port, &plan, args.ends.patience(&port))?;
        let (near, far) = ends.addresses();
        let setting = setting(args, &port, &near, &far);
        return finish(args, out, &setting, &plan, measuring, |stop| ends.measure(&plan, stop));
    }
    let receives = args.depth.saturating_mul(2).clamp(16, 32768);
    let shape = Shape {
        transport: args.transport,
        queues: plan.qps / plan.threads,
        message: plan.sizes.largest(),
        depth: args.depth.max(16),
        receives,
        inline: args.inline as u32,
    };
    let Session::Initiators(mut ends) = args.ends.open(&port, shape, plan.threads, false)? else {
        return Ok(());
    };
    let setting = setting(args, &port, &ends[0].local, &ends[0].remote);
    finish(args, out, &setting, &plan, measuring, |stop| {
        let results = measure::all(&mut ends, &plan, stop)?;
        ends.iter_mut().try_for_each(|initiator| initiator.peer.part())?;
        Ok(results)
    })
}

fn setting(args: &Args, port: &Port, local: &dyn Display, remote: &dyn Display) -> Setting {
    let device = &port.opened.device;
    Setting {
        device: device.name().to_owned(),
        part: device.part(),
        firmware: port.opened.context.query_device().fw_ver,
        simulated: port.opened.simulator.is_some(),
        port: port.local.port_num,
        link: if args.raw { "Ethernet" } else { link_name(port.local.link_layer) },
        mtu: (!args.raw).then_some(mtu_bytes(port.local.active_mtu)),
        loopback: args.ends.is_local(),
        local: local.to_string(),
        remote: remote.to_string(),
    }
}

/// Measures, until Ctrl-C, and presents the results.
fn finish(
    args: &Args,
    out: &mut impl Write,
    setting: &Setting,
    plan: &Plan,
    measuring: Option<(Interrupt, Outputs)>,
    measured: impl FnOnce(&AtomicBool) -> Result<Vec<Measurement>, Failure>,
) -> Result<(), Failure> {
    // A serving process has no results.
    let Some((interrupt, outputs)) = measuring else { return Ok(()) };
    let stop = interrupt.arm();
    if DEBUG {
        note("this build is not optimized: times are several times those of `cargo run --release`");
    }
    note("measuring; Ctrl-C ends it and shows the results so far");
    let results = measured(stop)?;
    let ended = interrupt.came().then(|| interrupted(plan, &results));
    present(args, outputs, out, setting, plan, &results, ended.as_deref())?;
    if let Some(ended) = ended {
        return Err(Failure::interrupted(ended));
    }
    Ok(())
}

/// The progress of an interrupted measurement, in words.
fn interrupted(plan: &Plan, results: &[Measurement]) -> String {
    let (done, all) = (results.len(), plan.sizes.0.len());
    let part = match results.last() {
        Some(last) if !last.whole => ", the last in part",
        _ => "",
    };
    format!("interrupted: {done} of {all} sizes were measured{part}")
}

fn present(
    args: &Args,
    outputs: Outputs,
    out: &mut impl Write,
    setting: &Setting,
    plan: &Plan,
    results: &[Measurement],
    interrupted: Option<&str>,
) -> Result<(), Failure> {
    let Outputs { json, csv, svg } = outputs;
    // First the outputs without a file, so that a full disk cannot prevent them.
    if ![&json, &csv, &svg].iter().any(|output| matches!(output, Some(Output::Stdout))) {
        report::table(out, setting, plan, results)?;
        if args.histogram {
            histogram::write(out, results)?;
        }
        out.flush()?;
    }
    let mut write = |output: Option<Output>, text: &dyn Fn() -> String| -> Result<(), Failure> {
        let Some(mut output) = output else { return Ok(()) };
        output.writer(out).write_all(text().as_bytes())?;
        output.finish()
    };
    let histogram = args.histogram;
    let json = write(json, &|| {
        let document = json::document(setting, plan, results, histogram, interrupted.is_some());
        format!("{document:#}\n")
    });
    let csv = write(csv, &|| csv::table(plan, results));
    let svg = write(svg, &|| plot::latency(setting, plan, results, interrupted));
    json.and(csv).and(svg)
}

/// The most inline data: the room in a request of 1008 bytes after its other segments.
fn most_inline(transport: Transport) -> usize {
    match transport {
        Transport::Rc | Transport::Uc => 972,
        // An address vector comes before the data.
        Transport::Ud => 940,
    }
}

/// Refuses invalid combinations of options, before the command does anything.
fn check(args: &Args) -> Result<(), Failure> {
    let transports = args.op.transports();
    if !transports.contains(&args.transport) {
        let names: Vec<_> = transports.iter().map(|transport| transport.name()).collect();
        let rdma = if args.op.is_atomic() { "atomic" } else { "RDMA" };
        let cause = format!("{} has no {rdma} {}", args.transport.name(), args.op.name());
        return Err(Failure::usage(cause).hint(format!("use --transport {}", names.join(" or "))));
    }
    if args.op.returns() && args.inline > 0 {
        let cause = format!("--op {} has no inline data", args.op.name());
        let hint = "omit --inline: what comes back cannot be in the request";
        return Err(Failure::usage(cause).hint(hint));
    }
    let other = args.sizes.as_ref().is_some_and(|sizes| sizes.0 != [ATOMIC]);
    if args.op.is_atomic() && (args.all || other) {
        let cause = format!("atomics operate on {ATOMIC} bytes");
        return Err(Failure::usage(cause).hint("omit --sizes and --all"));
    }
    if args.raw
        && let Some(sizes) = &args.sizes
        && let Some(size) = sizes.0.iter().find(|size| !raw::FRAMES.contains(size))
    {
        let cause = format!("a frame of {size} bytes cannot be sent");
        let hint =
            "frames have 60 bytes to 9014, those of an interface with the usual MTU up to 1514";
        return Err(Failure::usage(cause).hint(hint));
    }
    let qps = args.qps.unwrap_or(args.threads);
    if !qps.is_multiple_of(args.threads) {
        let cause = format!("{qps} queue pairs cannot be divided among {} threads", args.threads);
        let more = qps.next_multiple_of(args.threads);
        return Err(Failure::usage(cause).hint(format!("--qps {more} can")));
    }
    if args.bidirectional && args.only == Some(Only::Latency) {
        let hint = "omit one of them: latencies are measured one way";
        return Err(Failure::usage("--bidirectional applies to rates only").hint(hint));
    }
    let files = [("--json", &args.json), ("--csv", &args.csv), ("--svg", &args.svg)];
    let to_stdout = files.iter().filter(|(_, file)| file.as_deref().is_some_and(is_dash));
    if let [one, other, ..] = to_stdout.map(|(name, _)| *name).collect::<Vec<_>>()[..] {
        let cause = format!("{one} and {other} cannot both be written to stdout");
        return Err(Failure::usage(cause).hint("name a file for one of them"));
    }
    for (place, (name, file)) in files.iter().enumerate() {
        // Two may go to /dev/null.
        let regular = file.as_deref().is_some_and(|path| path.is_file() || !path.exists());
        let same = |(_, other): &&(_, &Option<PathBuf>)| {
            regular && matches!((file, other), (Some(file), Some(other)) if is_same(file, other))
        };
        if let Some((other, _)) = files[..place].iter().find(same) {
            let cause = format!("{other} and {name} would be written to the same file");
            return Err(Failure::usage(cause).hint("name another file for one of them"));
        }
    }
    let most = most_inline(args.transport);
    if args.inline > most {
        let cause = format!("--inline {} is more than a request can carry", args.inline);
        let hint =
            format!("--inline takes at most {most} with --transport {}", args.transport.name());
        return Err(Failure::usage(cause).hint(hint));
    }
    if args.batch > args.depth {
        let cause = format!("--batch {} is more than --depth {}", args.batch, args.depth);
        return Err(Failure::usage(cause)
            .hint("a batch is posted when there is room for all of it: raise --depth"));
    }
    if let Some(every) = args.signal_every
        && every > args.depth
    {
        let cause = format!("--signal-every {every} is more than --depth {}", args.depth);
        return Err(Failure::usage(cause)
            .hint("requests without a completion would fill the queue: raise --depth"));
    }
    if (args.svg.is_some() || args.histogram) && args.only == Some(Only::Rate) {
        let hint = "omit --only rate: --svg and --histogram show latencies";
        return Err(Failure::usage("there are no latencies to show").hint(hint));
    }
    Ok(())
}

fn plan(args: &Args, port: &Port) -> Result<Plan, Failure> {
    const ALL: usize = 8 << 20;
    const DEFAULT: (usize, usize) = (8, 64 << 10);
    const DEFAULT_FRAME: usize = 64;
    let limit = match args.transport {
        Transport::Ud => datagram_limit(port),
        Transport::Rc | Transport::Uc => usize::MAX,
    };
    if args.op.is_atomic() && !port.opened.context.query_device().has_atomics() {
        let failure = Failure::new("the device has no atomics");
        return Err(failure.hint("`mlx5 info -v` shows what it has"));
    }
    let sizes = match &args.sizes {
        Some(sizes) if args.raw => sizes.clone(),
        None if args.raw && args.all => Sizes::sweep(raw::SHORTEST, raw::USUAL),
        None if args.raw => Sizes::sweep(DEFAULT_FRAME, raw::USUAL),
        _ if args.op.is_atomic() => Sizes(vec![ATOMIC]),
        Some(sizes) => sizes.clone(),
        None if args.all => Sizes::sweep(1, ALL.min(limit)),
        None => Sizes::sweep(DEFAULT.0, DEFAULT.1.min(limit)),
    };
    if sizes.largest() > limit {
        let cause = format!("a datagram takes at most {limit} bytes on this port");
        return Err(Failure::usage(cause).hint(format!("--sizes 8..{limit}, or --transport rc")));
    }
    let default = args.iters.saturating_mul(10);
    let amount = |messages| args.duration.map_or(Amount::Messages(messages), Amount::Time);
    Ok(Plan {
        op: args.op,
        transport: args.transport,
        raw: args.raw,
        sizes,
        latencies: (args.only != Some(Only::Rate)).then_some(amount(args.iters)),
        rates: (args.only != Some(Only::Latency))
            .then_some(amount(args.messages.unwrap_or(default))),
        rates_fixed: args.messages.is_some(),
        depth: args.depth,
        inline: args.inline,
        pace: Pace {
            signal_every: u64::from(args.signal_every.unwrap_or(16).min(args.depth)),
            batch: args.batch.into(),
            depth: args.depth.into(),
        },
        qps: args.qps.unwrap_or(args.threads),
        threads: args.threads,
        bidirectional: args.bidirectional,
    })
}
