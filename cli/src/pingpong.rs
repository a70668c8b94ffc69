//! `mlx5 pingpong`.

use crate::device::{Port, PortArgs};
use crate::failure::Failure;
use crate::json::{self, JsonArgs};
use crate::link::{
    EndArgs, Foreign, Goal, Initiator, Kind, Op, Phase, Session, Shape, Transport, datagram_limit,
    latency, pattern, program,
};
use crate::numbers::{Size, Times, count, microseconds, parse_size, significant};
use clap::builder::TypedValueParser;
use mlx5::Mtu;
use serde_json::{Value, json};
use std::fmt::Display;
use std::io::Write;
use std::time::Duration;

/// `--help`.
pub(crate) const LONG_ABOUT: &str = "\
Bounces messages between two queue pairs and verifies every byte that comes back:
the quickest test of a device and a network. Each message is different.

Both queue pairs are in this process, unless --listen or --connect is given. The
addresses are printed in the text form of mlx5::Endpoint, which programs may exchange
in any way they like. With --json: one object, written once the messages are back.";

const EXAMPLES: &str = "\
Examples:
  mlx5 pingpong                              RC, both ends here
  mlx5 pingpong -t ud --size 1024            datagrams
  mlx5 pingpong --events                     sleep until a completion comes
  mlx5 pingpong --sim-link roce --sim-model cx5

Between two processes, on one machine or two:
  server$ mlx5 pingpong --listen
  client$ mlx5 pingpong --connect server

With rdma-core's program at the other end:
  server$ ibv_rc_pingpong
  client$ mlx5 pingpong --ibv --connect server";

/// Options of `mlx5 pingpong`.
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// Transport of the queue pairs
    #[arg(short, long, value_enum, default_value_t = Transport::Rc)]
    transport: Transport,
    /// Bytes of a message, as 64, 4k or 1m [default: 4k, or what fits into a datagram]
    #[arg(short, long, value_name = "BYTES", value_parser = parse_size)]
    size: Option<usize>,
    /// Messages to bounce
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 1000,
          value_parser = count::<u64>(1, u64::MAX))]
    iters: u64,
    /// Sleep until a completion comes, instead of busy polling
    #[arg(short, long)]
    events: bool,
    /// The other end is rdma-core's ibv_rc_pingpong, or its like for UC and UD
    ///
    /// It needs the same -n and -s, for RC and UC the same -m, and on Ethernet -g.
    #[arg(long)]
    ibv: bool,
    /// Path MTU with --ibv, as -m of rdma-core's programs [default: 1024]
    #[arg(long, value_name = "BYTES", requires = "ibv",
          value_parser = clap::builder::PossibleValuesParser::new(MTUS)
              .map(|mtu| mtu.parse::<u32>().expect("one of these")))]
    mtu: Option<u32>,
    #[command(flatten)]
    json: JsonArgs,
    #[command(flatten)]
    ends: EndArgs,
    #[command(flatten)]
    port: PortArgs,
}

/// The packet sizes that there are.
const MTUS: [&str; 5] = ["256", "512", "1024", "2048", "4096"];

/// Outstanding requests: one, and earlier ones whose completions are late.
const DEPTH: u32 = 16;

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    if args.ibv && args.ends.is_local() {
        let cause = "--ibv needs another process: --listen, or --connect";
        return Err(Failure::usage(cause).hint("the program's own host is --connect localhost"));
    }
    if args.json.json && !args.ibv && args.ends.listens_at().is_some() {
        let cause = "--json writes results, and the side that listens has none";
        return Err(Failure::usage(cause).hint("give it to the side that connects"));
    }
    let port = args.port.open()?;
    let size = message_size(args, &port)?;
    let shape = Shape {
        transport: args.transport,
        queues: 1,
        message: size,
        depth: DEPTH,
        receives: DEPTH,
        inline: 0,
    };
    if args.ibv {
        return with_ibv(args, &port, shape, out);
    }
    let Session::Initiators(mut ends) = args.ends.open(&port, shape, 1, args.events)? else {
        return Ok(());
    };
    let initiator = &mut ends[0];
    let ends: [&dyn Display; 2] = [&initiator.local, &initiator.remote];
    let mut document = begin(args, &port, size, ends, out)?;
    let times = bounce(initiator, size, args.iters);
    let times = times.map_err(|failure| port.opened.because(failure))?;
    initiator.peer.part()?;

    let total = times.mean() * times.count() as f64 / 1e9;
    let gbits = 2.0 * 8.0 * size as f64 * times.count() as f64 / total.max(1e-9) / 1e9;
    if args.json.json {
        document["seconds"] = total.into();
        document["gbit_per_second"] = gbits.into();
        document["round_trip_ns"] = json!({
            "mean": times.mean(),
            "min": times.quantile(0.0),
            "p50": times.quantile(0.5),
            "p99": times.quantile(0.99),
            "max": times.quantile(1.0),
        });
        return Ok(json::write(out, &document)?);
    }
    writeln!(
        out,
        "{} messages of {} bytes went over {} and back in {} ms, {} Gbit/s; every byte verified",
        times.count(),
        Size(size),
        args.transport.name().to_uppercase(),
        significant(total * 1e3),
        significant(gbits)
    )?;
    let us = |nanoseconds: u64| microseconds(nanoseconds as f64);
    writeln!(
        out,
        "round trip  mean {} µs, min {}, median {}, 99 % {}, max {}",
        microseconds(times.mean()),
        us(times.quantile(0.0)),
        us(times.quantile(0.5)),
        us(times.quantile(0.99)),
        us(times.quantile(1.0))
    )?;
    Ok(())
}

/// Reports both ends, in text at once; returns their JSON.
fn begin(
    args: &Args,
    port: &Port,
    size: usize,
    [local, remote]: [&dyn Display; 2],
    out: &mut impl Write,
) -> Result<Value, Failure> {
    if !args.json.json {
        writeln!(out, "local   {local}\nremote  {remote}")?;
        out.flush()?;
    }
    let document = json!({
        "command": "mlx5 pingpong",
        "device": port.opened.device.name(),
        "port": port.local.port_num,
        "local": local.to_string(),
        "remote": remote.to_string(),
        "transport": args.transport.name(),
        "size": size,
        "messages": args.iters,
    });
    Ok(json::of_device(document, port.opened.simulator.is_some()))
}

/// Bounces messages with one of rdma-core's programs.
fn with_ibv(args: &Args, port: &Port, shape: Shape, out: &mut impl Write) -> Result<(), Failure> {
    args.ends.reach(port)?;
    let mtu = args.mtu.unwrap_or(1024);
    let mtu = Mtu::from_raw(mtu.ilog2() as u8 - 7).expect("one of the sizes that there are");
    let waiter = args.ends.waiter(port, args.events)?;
    let mut foreign = Foreign::open(&args.ends, port, shape, mtu, waiter)?;
    let ends: [&dyn Display; 2] = [&foreign.local, &foreign.remote];
    let mut document = begin(args, port, shape.message, ends, out)?;
    let elapsed = foreign.bounce(shape.message, args.iters);
    let elapsed = elapsed.map_err(|failure| port.opened.because(failure))?;
    if args.json.json {
        document["seconds"] = elapsed.as_secs_f64().into();
        return Ok(json::write(out, &document)?);
    }
    writeln!(
        out,
        "{} messages of {} bytes went to {} and as many came back in {} ms; every byte verified",
        args.iters,
        Size(shape.message),
        program(args.transport),
        significant(elapsed.as_secs_f64() * 1e3),
    )?;
    Ok(())
}

fn message_size(args: &Args, port: &Port) -> Result<usize, Failure> {
    const DEFAULT: usize = 4096;
    let limit = match args.transport {
        Transport::Ud => datagram_limit(port),
        Transport::Rc | Transport::Uc => usize::MAX,
    };
    match args.size {
        None => Ok(DEFAULT.min(limit)),
        Some(size) if size <= limit => Ok(size),
        Some(size) => {
            let cause =
                format!("--size {size} is more than a datagram takes on this port, {limit}");
            Err(Failure::usage(cause).hint("RC and UC take longer messages: --transport rc"))
        }
    }
}

/// Bounces messages that differ in every word; returns the times of the round trips in nanoseconds.
pub(crate) fn bounce(initiator: &mut Initiator, size: usize, count: u64) -> Result<Times, Failure> {
    let mut times = Times::new();
    let phase = Phase { kind: Kind::Latency, op: Op::Send, size, both: None };
    let mut came = vec![0; size];
    latency(
        initiator,
        phase,
        Goal::messages(count),
        || (),
        |side, index| side.fill(&pattern(index, size)),
        |side, index, elapsed: Duration| {
            times.record(elapsed);
            side.received(&mut came)?;
            let sent = pattern(index, size);
            match sent.iter().zip(&came).position(|(sent, came)| sent != came) {
                None => Ok(()),
                Some(at) => Err(Failure::new(format!(
                    "message {index} came back changed: byte {at} was {:#04x} and is {:#04x}",
                    sent[at], came[at]
                ))),
            }
        },
    )?;
    Ok(times)
}
