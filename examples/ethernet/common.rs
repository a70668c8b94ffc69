//! Shared code of the Ethernet examples: a simulated wire, and frames with UDP datagrams.

// Each example uses a part of this module.
#![allow(dead_code)]

use mlx5::ethernet::EthernetQueue;
use mlx5::{Context, LinkLayer};
use mlx5_sim::{PortConfig, SimConfig, Simulator};
use std::error::Error;
use std::process::ExitCode;

/// Result of a program.
pub(crate) type Done = Result<(), Box<dyn Error>>;

/// Ends a program. Prints an error as text on standard error.
pub(crate) fn exit(done: Done) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Bytes of Ethernet, IPv4 and UDP headers.
pub(crate) const HEADERS: usize = 42;

/// Two machines on one simulated wire, each with a ConnectX.
pub(crate) struct Wire {
    pub(crate) near: Context,
    pub(crate) far: Context,
    pub(crate) simulator: Simulator,
}

impl Wire {
    pub(crate) fn new() -> Result<Self, Box<dyn Error>> {
        let config = SimConfig::new().ports([PortConfig::ROCE]).raw_packets(true).devices(2);
        let simulator = Simulator::new(config);
        let devices = mlx5::devices_on(simulator.kernel())?;
        Ok(Self { near: devices[0].open()?, far: devices[1].open()?, simulator })
    }
}

/// Opens a device of this machine; returns it with its first Ethernet port.
pub(crate) fn open(device: &str) -> Result<(Context, u8), Box<dyn Error>> {
    let context = mlx5::open(Some(device))?;
    for port in 1..=context.num_ports() as u8 {
        if context.query_port(port)?.link_layer == LinkLayer::Ethernet {
            return Ok((context, port));
        }
    }
    Err(format!("{device} has no Ethernet port").into())
}

/// Parses an address like `02:00:00:00:00:01`.
pub(crate) fn mac(text: &str) -> Result<[u8; 6], String> {
    let wrong = || format!("{text} is not a MAC address: write it as 02:00:00:00:00:01");
    let bytes: Result<Vec<u8>, _> =
        text.split(':').map(|byte| u8::from_str_radix(byte, 16)).collect();
    bytes.map_err(|_| wrong())?.try_into().map_err(|_| wrong())
}

/// One end of a conversation.
#[derive(Clone, Copy)]
pub(crate) struct End {
    pub(crate) mac: [u8; 6],
    pub(crate) ip: [u8; 4],
    pub(crate) port: u16,
}

/// A frame with a UDP datagram, without checksums: the device computes them.
pub(crate) fn datagram(from: End, to: End, data: &[u8]) -> Vec<u8> {
    let udp = (8 + data.len() as u16).to_be_bytes();
    let ip = (28 + data.len() as u16).to_be_bytes();
    let ip = [0x45, 0, ip[0], ip[1], 0, 0, 0x40, 0, 64, 17, 0, 0];
    let ports = [from.port.to_be_bytes(), to.port.to_be_bytes()].concat();
    let head = [&to.mac[..], &from.mac, &[8, 0], &ip, &from.ip, &to.ip, &ports, &udp, &[0, 0]];
    [&head.concat()[..], data].concat()
}

/// Sends a frame.
pub(crate) fn send(queue: &mut EthernetQueue, bytes: &[u8]) -> Done {
    loop {
        queue.reap()?;
        if let Some(mut frame) = queue.frame() {
            frame.fill(bytes);
            queue.send([frame])?;
            return Ok(());
        }
    }
}
