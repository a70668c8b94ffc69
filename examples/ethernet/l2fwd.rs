//! Forwards Ethernet packets: a packet to one address goes on to another one. The port's own
//! packets are left to the network interface.
//!
//! Forwarding copies no packet and allocates no memory. If the device supports it, packets share
//! receives: the program then posts memory for 64 of them at a time.
//!
//! `cargo run --release --example l2fwd` runs it on a simulated wire. On a ConnectX, as root or
//! with CAP_NET_RAW: `l2fwd mlx5_0 --take 02:00:00:00:00:01 --next 02:00:00:00:00:02 --own
//! 02:00:00:00:00:01`.

mod common;

use clap::Parser;
use common::{Done, End, HEADERS, Wire, datagram, mac, send};
use mlx5::Context;
use mlx5::ethernet::{EthernetQueue, EthernetQueueBuilder, Mode};
use mlx5::flow::{Ethernet, Rule};
use std::error::Error;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

#[derive(Parser)]
#[command(about = "Forwards Ethernet packets")]
struct Arguments {
    /// The device; without one, the program simulates a wire
    device: Option<String>,
    /// Address of the packets to forward
    #[arg(long, value_parser = mac, default_value = "02:00:00:00:00:01")]
    take: [u8; 6],
    /// Destination of the forwarded packets
    #[arg(long, value_parser = mac, default_value = "02:00:00:00:00:02")]
    next: [u8; 6],
    /// Source address of the forwarded packets
    #[arg(long, value_parser = mac, default_value = "02:00:00:00:00:01")]
    own: [u8; 6],
    /// Number of packets to send through the simulated wire
    #[arg(long, default_value_t = 10_000)]
    packets: u64,
}

/// Forwards the packets of a burst; only their addresses change.
fn forward<M: Mode>(
    queue: &mut EthernetQueue<M>,
    own: [u8; 6],
    next: [u8; 6],
) -> Result<(), mlx5::ethernet::EthernetError> {
    queue.receive(|mut packets| {
        while let Some(mut packet) = packets.next() {
            if let Some(addresses) = packet.first_chunk_mut::<12>() {
                addresses[..6].copy_from_slice(&next);
                addresses[6..].copy_from_slice(&own);
                packet.send();
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
        let (forwarded, time) = simulated(&arguments)?;
        println!("{forwarded} packets went through the simulated wire in {time:.1?}");
        return Ok(());
    };
    let (context, port) = common::open(device)?;
    let builder = forwarder(&context, port);
    match strides(&context) {
        Some(strides) => forever(builder.striding(STRIDE, strides).build()?, &arguments),
        None => forever(builder.build()?, &arguments),
    }
}

/// Bytes of a stride, and strides of a receive if the device allows so few. A packet of an MTU of
/// 1500 takes one stride.
const STRIDE: u32 = 2048;
const STRIDES: u32 = 64;

/// Number of strides of a receive, if packets can share receives.
fn strides(context: &Context) -> Option<u32> {
    let fewest = context.query_device().ethernet.striding?.fewest_strides(STRIDE)?;
    Some(fewest.max(STRIDES))
}

fn forwarder(context: &Context, port: u8) -> EthernetQueueBuilder<'_> {
    context.create_ethernet_queue(port).checksums(false)
}

fn forever<M: Mode>(mut queue: EthernetQueue<M>, arguments: &Arguments) -> Done {
    let _rule = queue.attach(&Rule::new().ethernet(Ethernet::new().dst_mac(arguments.take)))?;
    let mut last = Instant::now();
    loop {
        forward(&mut queue, arguments.own, arguments.next)?;
        if last.elapsed() > Duration::from_secs(1) {
            println!("{}", queue.counts());
            last = Instant::now();
        }
    }
}

/// Sends packets through a forwarder on another machine of the simulated wire, and receives them.
fn simulated(arguments: &Arguments) -> Result<(u64, Duration), Box<dyn Error>> {
    let wire = Wire::new()?;
    let builder = forwarder(&wire.far, 1);
    match strides(&wire.far) {
        Some(strides) => through(builder.striding(STRIDE, strides).build()?, &wire, arguments),
        None => through(builder.build()?, &wire, arguments),
    }
}

/// The same with a given forwarder.
fn through<M: Mode>(
    mut forwarder: EthernetQueue<M>,
    wire: &Wire,
    arguments: &Arguments,
) -> Result<(u64, Duration), Box<dyn Error>> {
    /// Number of packets under way at a time.
    const WINDOW: u64 = 128;
    let to = |mac| Rule::new().ethernet(Ethernet::new().dst_mac(mac));
    let _taken = forwarder.attach(&to(arguments.take))?;
    let mut source = wire.near.create_ethernet_queue(1).build()?;
    let mut sink = wire.near.create_ethernet_queue(1).build()?;
    let _passed = sink.attach(&to(arguments.next))?;
    let end = |mac| End { mac, ip: [192, 0, 2, 1], port: 9 };
    let from = end([2, 0, 0, 0, 0, 9]);
    let stop = AtomicBool::new(false);
    let start = Instant::now();
    let passed = std::thread::scope(|scope| {
        let forwarding = scope.spawn(|| {
            while !stop.load(Relaxed) {
                if let Err(error) = forward(&mut forwarder, arguments.own, arguments.next) {
                    panic!("{error}");
                }
                std::thread::yield_now();
            }
        });
        let passed = pass(
            &mut source,
            &mut sink,
            arguments,
            |number| datagram(from, end(arguments.take), &number.to_be_bytes()),
            WINDOW,
        );
        stop.store(true, Relaxed);
        forwarding.join().map_err(|_| "the forwarder failed")?;
        passed
    })?;
    assert_eq!(forwarder.counts().not_sent, 0, "the send queue has room for a burst");
    Ok((passed, start.elapsed()))
}

/// Sends numbered packets, and checks that they arrive in order and with the right addresses.
fn pass(
    source: &mut EthernetQueue,
    sink: &mut EthernetQueue,
    arguments: &Arguments,
    packet: impl Fn(u64) -> Vec<u8>,
    window: u64,
) -> Result<u64, Box<dyn Error>> {
    let (mut sent, mut passed) = (0, 0);
    let deadline = Instant::now() + Duration::from_secs(60);
    while passed < arguments.packets {
        while sent < arguments.packets && sent < passed + window {
            send(source, &packet(sent))?;
            sent += 1;
        }
        sink.receive(|mut packets| {
            while let Some(packet) = packets.next() {
                assert_eq!(packet[..12], [arguments.next, arguments.own].concat());
                assert_eq!(packet[HEADERS..HEADERS + 8], u64::to_be_bytes(passed));
                assert_eq!(packet.completion().checksum_ok(), Some(true));
                passed += 1;
            }
        })?;
        if Instant::now() > deadline {
            return Err(format!("{passed} of {sent} packets came").into());
        }
        std::thread::yield_now();
    }
    Ok(passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_packets_go_through_in_order() {
        let arguments = Arguments::parse_from(["l2fwd", "--packets", "3000"]);
        assert_eq!(simulated(&arguments).unwrap().0, 3000);
        let wire = Wire::new().unwrap();
        assert_eq!(strides(&wire.far), Some(STRIDES));
        let single = forwarder(&wire.far, 1).build().unwrap();
        assert_eq!(through(single, &wire, &arguments).unwrap().0, 3000);
    }
}
