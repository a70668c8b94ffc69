//! A UDP echo that reports the arrival times of datagrams by the device's clock, however late the
//! program reads them.
//!
//! `cargo run --example udp_echo` runs it on a simulated wire. On a ConnectX, as root or with
//! CAP_NET_RAW: `udp_echo mlx5_0 --ip 192.0.2.7 --port 7777` answers datagrams to that address. The
//! address may be the network interface's: all other packets still go to the interface.

mod common;

use clap::Parser;
use common::{Done, End, HEADERS, Wire, datagram, send};
use mlx5::ethernet::{EthernetError, EthernetQueue, Packet};
use mlx5::flow::{Ethernet, Ipv4, Ports, Rule};
use mlx5::{Clock, NetworkHeader, TransportHeader};
use std::error::Error;
use std::fmt;
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[derive(Parser)]
#[command(about = "A UDP echo with hardware timestamps")]
struct Arguments {
    /// The device; without one, the program simulates a wire
    device: Option<String>,
    /// The address to answer for
    #[arg(long, default_value = "192.0.2.7")]
    ip: Ipv4Addr,
    /// The port
    #[arg(long, default_value_t = 7)]
    port: u16,
}

/// Selects the packets to echo.
fn rule(ip: Ipv4Addr, port: u16) -> Rule {
    Rule::new()
        .ethernet(Ethernet::new())
        .ipv4(Ipv4::new().dst_ip(ip.octets()))
        .udp(Ports::new().dst_port(port))
}

/// Counts and times of the echo.
#[derive(Default)]
struct Statistics {
    echoed: u64,
    /// Packets with a wrong checksum, or with more headers than the rule has.
    dropped: u64,
    /// Arrival time of the last packet at the device, in nanoseconds since 1970.
    arrived: u64,
    /// The shortest time between two arrivals, in nanoseconds.
    shortest: Option<u64>,
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} datagrams echoed, {} dropped", self.echoed, self.dropped)?;
        match self.shortest {
            Some(least) => write!(f, "; the device received two within {least} ns"),
            None => Ok(()),
        }
    }
}

impl Statistics {
    fn arrived(&mut self, at: u64) {
        let before = std::mem::replace(&mut self.arrived, at);
        if before != 0 {
            let between = at.saturating_sub(before);
            self.shortest = Some(self.shortest.map_or(between, |least| least.min(between)));
        }
    }
}

/// Whether the device found a UDP datagram in IPv4 with right checksums, and its header at the
/// offset that it has without options.
fn is_good(packet: &Packet<'_>) -> bool {
    let Some(headers) = packet.completion().packet_headers() else { return false };
    let udp = headers.network() == Some(NetworkHeader::Ipv4)
        && headers.transport() == Some(TransportHeader::Udp);
    let whole = packet.completion().checksum_ok() == Some(true);
    udp && whole && packet.len() >= HEADERS && packet[14] == 0x45
}

/// Sends back the packets of a burst with addresses and ports exchanged. The checksums stay right,
/// since they are sums of the same words.
fn echo(
    queue: &mut EthernetQueue,
    clock: &Clock,
    statistics: &mut Statistics,
) -> Result<(), EthernetError> {
    let relation = clock.now().ok();
    queue.receive(|mut packets| {
        while let Some(mut packet) = packets.next() {
            if !is_good(&packet) {
                statistics.dropped += 1;
                continue;
            }
            let arrived = packet.completion().timestamp();
            for (one, other, length) in [(0, 6, 6), (26, 30, 4), (34, 36, 2)] {
                let (before, after) = packet.split_at_mut(other);
                before[one..one + length].swap_with_slice(&mut after[..length]);
            }
            packet.send();
            statistics.echoed += 1;
            if let Some((relation, cycles)) = relation.zip(arrived) {
                statistics.arrived(relation.nanoseconds(cycles));
            }
        }
    })
}

fn main() -> ExitCode {
    common::exit(run())
}

fn run() -> Done {
    let arguments = Arguments::parse();
    let Some(device) = &arguments.device else {
        println!("{}", simulated(&arguments, 1000)?);
        return Ok(());
    };
    let (context, port) = common::open(device)?;
    let clock = context.clock()?;
    let mut queue = context.create_ethernet_queue(port).build()?;
    let _rule = queue.attach(&rule(arguments.ip, arguments.port))?;
    let (mut statistics, mut last) = (Statistics::default(), Instant::now());
    loop {
        echo(&mut queue, &clock, &mut statistics)?;
        if last.elapsed() > Duration::from_secs(1) {
            println!("{statistics}");
            last = Instant::now();
        }
    }
}

/// Sends datagrams to an echo at the other end of the simulated wire.
fn simulated(arguments: &Arguments, datagrams: u64) -> Result<Statistics, Box<dyn Error>> {
    let wire = Wire::new()?;
    let clock = wire.far.clock()?;
    let mut server = wire.far.create_ethernet_queue(1).checksums(false).build()?;
    let _asked = server.attach(&rule(arguments.ip, arguments.port))?;
    let here = End { mac: [2, 0, 0, 0, 0, 1], ip: [192, 0, 2, 1], port: 4242 };
    let there = End { mac: [2, 0, 0, 0, 0, 2], ip: arguments.ip.octets(), port: arguments.port };
    let mut client = wire.near.create_ethernet_queue(1).build()?;
    let _answered = client.attach(&rule(here.ip.into(), here.port))?;
    let mut statistics = Statistics::default();
    for number in 0..datagrams {
        let data = format!("datagram {number}, which comes back");
        send(&mut client, &datagram(here, there, data.as_bytes()))?;
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut answer = None;
        while answer.is_none() {
            echo(&mut server, &clock, &mut statistics)?;
            client.receive(|packets| {
                packets.for_each(|packet| answer = Some((is_good(&packet), packet.to_vec())));
            })?;
            if Instant::now() > deadline {
                return Err(format!("no answer to datagram {number}: {statistics}").into());
            }
            std::thread::yield_now();
        }
        let (good, answer) = answer.unwrap_or_default();
        // Except for the checksums, the answer is the datagram for the opposite direction.
        let expected = datagram(there, here, data.as_bytes());
        let same = answer[HEADERS..] == expected[HEADERS..] && answer[26..38] == expected[26..38];
        if !good || !same {
            return Err(format!("a wrong answer: {answer:02x?}").into());
        }
    }
    Ok(statistics)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_datagram_comes_back_and_its_time_is_known() {
        let statistics = simulated(&Arguments::parse_from(["udp_echo"]), 200).unwrap();
        assert_eq!((statistics.echoed, statistics.dropped), (200, 0));
        assert!(
            statistics.arrived > 0 && statistics.shortest.is_some_and(|least| least > 0),
            "{statistics}"
        );
    }
}
