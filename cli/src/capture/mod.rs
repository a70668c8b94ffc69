//! `mlx5 capture`.

mod pcapng;

use crate::device::{DeviceArgs, Opened, note, packets_refused};
use crate::failure::Failure;
use crate::files::{Output, is_dash};
use crate::interrupt::Interrupt;
use crate::json;
use crate::numbers::{count, parse_seconds, parse_size};
use mlx5::ethernet::EthernetQueue;
use mlx5::flow::{Ethernet, FlowRule, Rule};
use mlx5::{Clock, Device};
use serde_json::json;
use std::fmt;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// `--help`.
pub(crate) const LONG_ABOUT: &str = "\
Writes the packets that an Ethernet port receives and sends to a file that tcpdump and
Wireshark read (pcapng), each with the time at which the device copied it, in nanoseconds.
The packets go where they go without it: the device gives this program a copy.

Ctrl-C ends a capture, with status 0 and a whole file. At its end stands how many packets
the port dropped meanwhile because they came faster than they were written.

With --json, which needs -w FILE, an object on stdout says at the end what was captured.

It needs CAP_NET_RAW. The simulated device, which has no network, receives packets that
this program sends to it: each is there as it is sent, and as it is received.";

const EXAMPLES: &str = "\
Examples:
  mlx5 capture -n 100 -w first.pcapng    the first hundred packets
  mlx5 capture | tcpdump -r -            show them as they arrive
  mlx5 capture --duration 5 --snap 128 -w headers.pcapng";

/// Options of `mlx5 capture`.
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// File to write, or `-` for stdout [default: stdout, if that is not a terminal]
    #[arg(short, long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Packets to capture [default: until Ctrl-C; 10 on the simulated device]
    ///
    /// With --duration alone, a hundred a second arrive at the simulated device.
    #[arg(short = 'n', long, value_name = "COUNT",
          value_parser = count::<u64>(1, u64::MAX))]
    count: Option<u64>,
    /// Seconds to capture, as 10 or 0.5: 0.001 to 86400
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    duration: Option<Duration>,
    /// Bytes to keep of each packet, as 64, 4k: at least 1
    #[arg(long, value_name = "BYTES", default_value = "64k", value_parser = parse_snap)]
    snap: usize,
    /// Write the counts of the capture to stdout as JSON
    #[arg(long, requires = "write")]
    json: bool,
    /// Port of the device
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    port: u8,
    #[command(flatten)]
    device: DeviceArgs,
}

/// Reads the number of bytes to keep of a packet. Zero is refused: in the file it would mean "all".
fn parse_snap(text: &str) -> Result<usize, String> {
    match parse_size(text)? {
        0 => Err("0 bytes hold nothing of a packet: write 1 or more".into()),
        size => Ok(size),
    }
}

/// Bytes of a buffer: the longest packet of a port with jumbo frames fits.
const BUFFER: u32 = 16 << 10;
/// Buffers that wait for packets.
const RECEIVES: u32 = 1024;
/// Packets that a simulated device receives if neither a count nor a duration is given.
const SIMULATED: u64 = 10;
/// The time between them if only the duration is given: a file for a person to read.
const PACE: Duration = Duration::from_millis(20);

/// Captures to `out`, or to the file that the arguments name.
pub(crate) fn run(
    args: &Args,
    out_is_a_terminal: bool,
    out: &mut impl Write,
) -> Result<(), Failure> {
    if args.write.as_deref().is_none_or(is_dash) && out_is_a_terminal {
        let failure = Failure::usage("refusing to write a binary capture to a terminal");
        return Err(failure.hint("-w FILE writes a file; `mlx5 capture | tcpdump -r -` shows it"));
    }
    if args.json && args.write.as_deref().is_some_and(is_dash) {
        let failure = Failure::usage("--json and the capture cannot both be written to stdout");
        return Err(failure.hint("-w FILE writes the capture to a file"));
    }
    // Before any other thread starts.
    let interrupt = Interrupt::watch()?;
    let opened = args.device.with_packets().open()?;
    let mut output = Output::create_or_stdout(args.write.as_deref())?;
    let captured = capture(args, &opened, &interrupt, &mut output.writer(out))?;
    output.finish()?;
    if args.json {
        let document = json!({
            "command": "mlx5 capture",
            "device": opened.device.name(),
            "port": args.port,
            "file": args.write.as_deref().map(|file| file.to_string_lossy()),
            "packets": captured.packets,
            "too_long": captured.too_long,
            "dropped": captured.dropped,
        });
        json::write(out, &json::of_device(document, opened.simulator.is_some()))?;
    }
    Ok(())
}

/// The counts of a capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Captured {
    packets: u64,
    /// Longer than a buffer.
    too_long: u64,
    /// For want of a receive; `None` if the kernel does not report it.
    dropped: Option<u64>,
}

impl fmt::Display for Captured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { packets, too_long, dropped } = self;
        write!(f, "{packets} packets captured, {too_long} longer than a buffer, ")?;
        match dropped {
            Some(dropped) => write!(f, "{dropped} dropped by the port for want of a receive"),
            None => f.write_str("and this kernel does not count those that the port dropped"),
        }
    }
}

fn capture(
    args: &Args,
    opened: &Opened,
    interrupt: &Interrupt,
    out: &mut impl Write,
) -> Result<Captured, Failure> {
    let snap = u32::try_from(args.snap).unwrap_or(u32::MAX);
    let mut listener = Listener::new(opened, args.port, RECEIVES, snap)?;
    let few = opened.simulator.is_some() && args.duration.is_none();
    let count = args.count.or(few.then_some(SIMULATED));
    let mut traffic = match opened.simulator {
        Some(_) => Some(Traffic::new(opened, args.port, count)?),
        None => None,
    };
    let deadline = args.duration.map(|duration| Instant::now() + duration);
    pcapng::begin(out, opened.device.name(), snap)?;
    out.flush()?;
    let stop = interrupt.arm();
    note("capturing; Ctrl-C ends it");
    loop {
        if let Some(traffic) = &mut traffic {
            traffic.send(listener.written)?;
        }
        let came = listener.burst(count.unwrap_or(u64::MAX) - listener.written, out)?;
        let over = deadline.is_some_and(|deadline| Instant::now() >= deadline);
        if count == Some(listener.written) || over || stop.load(Ordering::Relaxed) {
            break;
        }
        match came {
            0 => std::thread::sleep(Duration::from_micros(50)),
            // A reader of the output sees the packets now.
            _ => out.flush()?,
        }
    }
    let captured = listener.end(out)?;
    note(&captured.to_string());
    Ok(captured)
}

/// A queue that gets a copy of every packet of a port.
struct Listener<'a> {
    queue: EthernetQueue,
    _rule: FlowRule,
    clock: Clock,
    device: &'a Device,
    port: u8,
    /// The port's count of dropped packets at the start, if it has one.
    before: Option<u64>,
    /// Bytes to keep of a packet.
    snap: u32,
    written: u64,
    /// When the last packet arrived; zero before the first one.
    last: u64,
}

impl<'a> Listener<'a> {
    fn new(opened: &'a Opened, port: u8, receives: u32, snap: u32) -> Result<Self, Failure> {
        let context = &opened.context;
        opened.wants_ethernet(port)?;
        let builder = context.create_ethernet_queue(port).receives(receives).buffer_size(BUFFER);
        let queue = builder.frames(0).sends(1).build().map_err(packets_refused)?;
        let device = &opened.device;
        let before = dropped(device, port);
        let rule = queue.attach(&Rule::sniffer()).map_err(packets_refused)?;
        let clock = context.clock()?;
        Ok(Self { queue, _rule: rule, clock, device, port, before, snap, written: 0, last: 0 })
    }

    /// Writes the packets that have arrived, at most `most`; returns how many.
    fn burst(&mut self, most: u64, out: &mut impl Write) -> Result<u64, Failure> {
        let relation = self.clock.now()?;
        let (mut count, snap, last) = (0, self.snap as usize, &mut self.last);
        let written = self.queue.receive(|mut packets| {
            while count < most
                && let Some(packet) = packets.next()
            {
                let cycles = packet.completion().timestamp().unwrap_or(0);
                *last = relation.nanoseconds(cycles);
                let kept = packet.len().min(snap);
                pcapng::packet(out, *last, &packet[..kept], packet.len() as u32)?;
                count += 1;
            }
            Ok::<_, std::io::Error>(())
        });
        written??;
        self.written += count;
        Ok(count)
    }

    /// Writes the statistics, and returns them.
    fn end(&self, out: &mut impl Write) -> Result<Captured, Failure> {
        let counts = self.queue.counts();
        let dropped = match (self.before, dropped(self.device, self.port)) {
            // On some devices the counter has 32 bits, and may have wrapped.
            (Some(before), Some(after)) => Some(after.checked_sub(before).unwrap_or(after)),
            _ => None,
        };
        pcapng::end(out, self.last, counts.received, counts.bad + dropped.unwrap_or(0))?;
        Ok(Captured { packets: self.written, too_long: counts.bad, dropped })
    }
}

/// Packets of all programs that a port has dropped for want of a receive.
fn dropped(device: &Device, port: u8) -> Option<u64> {
    device.hw_counter(port, "out_of_buffer")
}

/// The group that packets are sent to on a simulated device.
const GROUP: [u8; 6] = [0x01, 0, 0x5e, 0, 2, 1];

/// Packets in flight to a simulated device at a time.
const ON_THEIR_WAY: u64 = 128;

/// Copies of each of them: as it is sent, and as it is received.
const COPIES: u64 = 2;

/// Sends packets to the simulated device, which has no network.
struct Traffic {
    queue: EthernetQueue,
    _rule: FlowRule,
    sent: u64,
    /// Number of packets to send; without it, one each [`PACE`].
    most: Option<u64>,
    begun: Instant,
}

impl Traffic {
    fn new(opened: &Opened, port: u8, most: Option<u64>) -> Result<Self, Failure> {
        // The packets of a context do not come back to it.
        let context = opened.device.open()?;
        let queue = context.create_ethernet_queue(port).receives(1).build()?;
        let rule = queue.attach(&Rule::new().ethernet(Ethernet::new().dst_mac(GROUP)))?;
        Ok(Self { queue, _rule: rule, sent: 0, most, begun: Instant::now() })
    }

    /// Sends some more packets, once `arrived` copies have arrived.
    fn send(&mut self, arrived: u64) -> Result<(), Failure> {
        self.queue.reap()?;
        let paced = || self.begun.elapsed().as_nanos() / PACE.as_nanos() + 1;
        let most = self.most.unwrap_or_else(|| u64::try_from(paced()).unwrap_or(u64::MAX));
        while self.sent < most
            && self.sent < arrived / COPIES + ON_THEIR_WAY
            && let Some(mut frame) = self.queue.frame()
        {
            frame.fill(&datagram(&format!("packet {} of a simulated network", self.sent)));
            self.queue.send([frame])?;
            self.sent += 1;
        }
        Ok(())
    }
}

/// A frame with a UDP datagram, without checksums: the device computes them.
fn datagram(text: &str) -> Vec<u8> {
    let (udp, ip) = (text.len() as u16 + 8, text.len() as u16 + 28);
    let [udp, ip] = [udp.to_be_bytes(), ip.to_be_bytes()];
    let head = [0x45, 0, ip[0], ip[1], 0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 224, 0, 2, 1];
    let ports = [0x30, 0x39, 0x30, 0x3a, udp[0], udp[1], 0, 0];
    [&GROUP[..], &[2, 0, 0, 0, 0, 1, 8, 0], &head, &ports, text.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use mlx5_sim::{PortConfig, SimConfig, Simulator};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn captured(line: &[&str]) -> Vec<(u32, Vec<u8>)> {
        let line = Line::parse_from([&["capture", "--sim"], line].concat());
        let mut out = Vec::new();
        run(&line.args, false, &mut out).expect("a capture");
        pcapng::tests::blocks(&out)
    }

    fn word(block: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(block[at..at + 4].try_into().expect("four bytes"))
    }

    #[test]
    fn packets_are_written_with_the_times_at_which_they_arrived() {
        let blocks = captured(&["-n", "7"]);
        let kinds: Vec<u32> = blocks.iter().map(|block| block.0).collect();
        assert_eq!(kinds, [0x0a0d_0d0a, 1, 6, 6, 6, 6, 6, 6, 6, 5]);
        let mut last = 0;
        for (number, (_, block)) in blocks[2..9].iter().enumerate() {
            let number = number as u64 / COPIES;
            let time = u64::from(word(block, 4)) << 32 | u64::from(word(block, 8));
            // By the simulated clock, which begins in 2024.
            assert!(time >= last && time > 1_704_067_200_000_000_000, "{time} after {last}");
            last = time;
            let text = format!("packet {number} of a simulated network");
            assert_eq!(word(block, 12) as usize, 42 + text.len());
            assert_eq!(word(block, 16), word(block, 12));
            assert_eq!(&block[20 + 42..20 + 42 + text.len()], text.as_bytes());
        }
    }

    #[test]
    fn more_packets_are_captured_than_there_are_buffers() {
        let blocks = captured(&["-n", "3000"]);
        assert_eq!(blocks.iter().filter(|block| block.0 == 6).count(), 3000);
        // Three thousand were received, and none was lost.
        let end = &blocks.last().expect("statistics").1;
        assert_eq!((word(end, 16), word(end, 28)), (3000, 0));
    }

    /// A simulated device on a stepped clock.
    fn stepped() -> (Simulator, Opened) {
        let config = SimConfig::new().ports([PortConfig::ROCE]).raw_packets(true).step(true);
        let simulator = Simulator::new(config);
        let device = mlx5::devices_on(simulator.kernel()).expect("devices").remove(0);
        let context = device.open().expect("it opens");
        (simulator.clone(), Opened { context, device, simulator: Some(simulator) })
    }

    #[test]
    fn with_a_time_alone_packets_come_at_a_pace() {
        let (_simulator, opened) = stepped();
        let mut traffic = Traffic::new(&opened, 1, None).expect("a queue");
        traffic.begun = Instant::now() + Duration::from_secs(3600);
        traffic.send(0).expect("sent");
        assert_eq!(traffic.sent, 1, "the first one at once");
        traffic.begun = Instant::now() - PACE * 29;
        traffic.send(0).expect("sent");
        assert!((30..ON_THEIR_WAY).contains(&traffic.sent), "{}", traffic.sent);
        traffic.begun = Instant::now() - PACE * 100_000;
        traffic.send(0).expect("sent");
        assert_eq!(traffic.sent, ON_THEIR_WAY, "the rest when these have arrived");
    }

    #[test]
    fn what_the_port_dropped_is_told() {
        let (simulator, opened) = stepped();
        // Another capture's drops, before this one.
        let first = Listener::new(&opened, 1, 2, 64).expect("a queue");
        let mut traffic = Traffic::new(&opened, 1, Some(30)).expect("a queue");
        traffic.send(0).expect("sent");
        simulator.run_until_idle();
        assert_eq!(dropped(&opened.device, 1), Some(58));
        drop((first, traffic));

        let mut listener = Listener::new(&opened, 1, 4, 64).expect("a queue");
        let mut traffic = Traffic::new(&opened, 1, Some(30)).expect("a queue");
        traffic.send(0).expect("sent");
        simulator.run_until_idle();
        let mut out = Vec::new();
        assert_eq!(listener.burst(u64::MAX, &mut out).expect("packets"), 4);
        let reported = listener.end(&mut out).expect("memory").to_string();
        assert!(
            reported.starts_with("4 packets captured, 0 longer than a buffer, 56 dropped"),
            "{reported}"
        );
        let blocks = pcapng::tests::blocks(&out);
        let end = &blocks.last().expect("statistics").1;
        assert_eq!((word(end, 16), word(end, 28)), (4, 56));
    }

    #[test]
    fn a_packet_is_cut_where_that_is_asked_for() {
        let blocks = captured(&["-n", "1", "--snap", "20"]);
        let block = &blocks[2].1;
        assert_eq!((word(block, 12), word(block, 16)), (20, 42 + 31));
        assert_eq!(block.len(), 20 + 20);
        assert_eq!(word(&blocks[1].1, 4), 20, "and the interface says so");
    }

    #[test]
    fn an_infiniband_port_is_refused_by_name() {
        let line = Line::parse_from(["capture", "--sim-link", "ib"]);
        let failure = run(&line.args, false, &mut Vec::new()).expect_err("no Ethernet");
        assert_eq!(failure.cause(), "port 1 is not an Ethernet port");
    }

    #[test]
    fn a_capture_does_not_go_to_a_terminal() {
        let line = Line::parse_from(["capture", "--sim", "-n", "1"]);
        let mut out = Vec::new();
        let failure = run(&line.args, true, &mut out).expect_err("a terminal");
        assert!(failure.cause().contains("to a terminal"), "{failure:?}");
        assert!(out.is_empty(), "nothing was written");
        // It goes to a file from there.
        let line = Line::parse_from(["capture", "--sim", "-n", "1", "-w", "/dev/null"]);
        run(&line.args, true, &mut out).expect("a capture");
        assert!(out.is_empty(), "nothing was written here");
    }

    #[test]
    fn a_dash_is_stdout() {
        assert_eq!(captured(&["-n", "1", "-w", "-"])[0].0, 0x0a0d_0d0a);
        let line = Line::parse_from(["capture", "--sim", "-n", "1", "--write", "-"]);
        run(&line.args, true, &mut Vec::new()).expect_err("a terminal");
    }

    #[test]
    fn a_capture_ends_when_its_time_is_over() {
        let line = Line::parse_from(["capture", "--sim", "--duration", "0.001"]);
        // More than arrives on a simulated network.
        let args = Args { count: Some(u64::MAX), ..line.args };
        run(&args, false, &mut Vec::new()).expect("a capture");
    }
}
