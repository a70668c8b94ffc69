//! An HTTP server without the kernel's network stack: smoltcp's TCP on a packet queue.
//!
//! `cargo run --example http_server` fetches a page from it over a simulated wire. On a ConnectX,
//! as root or with CAP_NET_RAW: `http_server mlx5_0 --mac 02:00:00:00:00:02 --ip 192.0.2.2/24`, and
//! on another machine of that network `curl http://192.0.2.2/`.

mod common;

use clap::Parser;
use common::{Done, Wire, mac};
use mlx5::NetworkHeader;
use mlx5::ethernet::{EthernetQueue, Frame, Packet};
use mlx5::flow::{Ethernet, FlowRule, Rule};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Checksum, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, Ipv4Cidr};
use std::collections::VecDeque;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Parser)]
#[command(about = "An HTTP server on a queue of packets")]
struct Arguments {
    /// The device; without one, the program simulates a wire
    device: Option<String>,
    /// The server's Ethernet address
    #[arg(long, value_parser = mac, default_value = "02:00:00:00:00:02")]
    mac: [u8; 6],
    /// The server's IP address, and the length of the network's prefix
    #[arg(long, value_parser = network, default_value = "192.0.2.2/24")]
    ip: Ipv4Cidr,
}

/// Parses an address with the length of its network's prefix.
fn network(text: &str) -> Result<Ipv4Cidr, String> {
    text.parse().map_err(|()| format!("{text} is not an address with a prefix, as 192.0.2.2/24"))
}

/// Bytes of the longest frame, without its check sequence.
const LONGEST: usize = 1514;
/// Maximum number of frames that are taken from the queue before the stack reads them.
const BURST: usize = 64;

/// The link layer of a stack.
struct Link {
    queue: EthernetQueue,
    arrived: VecDeque<Frame>,
    _rules: [FlowRule; 2],
}

/// Whether the device found no wrong checksum. The stack does not check any.
fn is_good(packet: &Packet<'_>) -> bool {
    let Some(headers) = packet.completion().packet_headers() else { return true };
    let network = headers.network() != Some(NetworkHeader::Ipv4) || headers.network_ok();
    network && (headers.transport().is_none() || headers.transport_ok())
}

impl Link {
    /// Receives frames to an Ethernet address, and broadcasts.
    fn new(queue: EthernetQueue, mac: [u8; 6]) -> Result<Self, mlx5::Error> {
        let to = |mac| queue.attach(&Rule::new().ethernet(Ethernet::new().dst_mac(mac)));
        let rules = [to(mac)?, to([0xff; 6])?];
        Ok(Self { queue, arrived: VecDeque::with_capacity(BURST), _rules: rules })
    }

    /// Takes received frames from the queue.
    fn take(&mut self) {
        let Self { queue, arrived, .. } = self;
        let burst = queue.receive(|packets| {
            packets.for_each(|packet| {
                if is_good(&packet) {
                    arrived.push_back(packet.keep());
                }
            });
        });
        if let Err(error) = burst {
            eprintln!("nothing is received: {error}");
        }
    }
}

/// A received frame. It is dropped once the stack has read it.
struct Arrived(Frame);

impl RxToken for Arrived {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(&self.0)
    }
}

/// A buffer for an outgoing frame.
struct Outbound<'a> {
    queue: &'a mut EthernetQueue,
    frame: Frame,
}

impl TxToken for Outbound<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(mut self, length: usize, write: F) -> R {
        self.frame.resize(length);
        let result = write(&mut self.frame);
        if let Err(error) = self.queue.send([self.frame]) {
            eprintln!("nothing is sent: {error}");
        }
        result
    }
}

impl Device for Link {
    type RxToken<'a> = Arrived;
    type TxToken<'a> = Outbound<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Arrived, Outbound<'_>)> {
        if self.arrived.is_empty() {
            self.take();
        }
        let arrived = self.arrived.pop_front()?;
        match self.queue.frame() {
            Some(frame) => Some((Arrived(arrived), Outbound { queue: &mut self.queue, frame })),
            // The stack needs a buffer for the answer, so the frame waits.
            None => {
                self.arrived.push_front(arrived);
                None
            }
        }
    }

    fn transmit(&mut self, _: Instant) -> Option<Outbound<'_>> {
        let frame = self.queue.frame()?;
        Some(Outbound { queue: &mut self.queue, frame })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = LONGEST;
        capabilities.max_burst_size = Some(BURST);
        // The device computes and checks them.
        capabilities.checksum.ipv4 = Checksum::None;
        capabilities.checksum.tcp = Checksum::None;
        capabilities.checksum.udp = Checksum::None;
        capabilities
    }
}

/// A stack with one TCP socket.
struct Stack {
    link: Link,
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
}

impl Stack {
    fn new(queue: EthernetQueue, mac: [u8; 6], ip: Ipv4Cidr) -> Result<Self, Box<dyn Error>> {
        let mut link = Link::new(queue, mac)?;
        let config = Config::new(EthernetAddress(mac).into());
        let mut interface = Interface::new(config, &mut link, Instant::now());
        let mut added = Ok(());
        interface.update_ip_addrs(|addresses| added = addresses.push(ip.into()));
        added.map_err(|_| "no room for an address")?;
        let buffer = || tcp::SocketBuffer::new(vec![0; 1 << 16]);
        let mut sockets = SocketSet::new(Vec::new());
        let socket = sockets.add(tcp::Socket::new(buffer(), buffer()));
        Ok(Self { link, interface, sockets, socket })
    }

    /// Polls the stack, and returns its socket.
    fn poll(&mut self) -> &mut tcp::Socket<'static> {
        self.interface.poll(Instant::now(), &mut self.link, &mut self.sockets);
        self.sockets.get_mut(self.socket)
    }
}

/// A server of one page, one client at a time.
struct Server {
    stack: Stack,
    /// The client's request so far.
    asked: Vec<u8>,
    /// Rest of the answer.
    answer: VecDeque<u8>,
    page: String,
}

impl Server {
    fn new(stack: Stack, page: String) -> Self {
        Self { stack, asked: Vec::new(), answer: VecDeque::new(), page }
    }

    fn poll(&mut self) -> Done {
        let Self { stack, asked, answer, page } = self;
        let socket = stack.poll();
        if !socket.is_open() {
            asked.clear();
            answer.clear();
            socket.listen(80)?;
        }
        if socket.can_recv() && answer.is_empty() {
            socket.recv(|bytes| {
                asked.extend_from_slice(bytes);
                (bytes.len(), ())
            })?;
            if asked.ends_with(b"\r\n\r\n") {
                let good = asked.starts_with(b"GET / ");
                let (status, body) = match good {
                    true => ("200 OK", page.as_str()),
                    false => ("404 Not Found", "there is one page, /\n"),
                };
                let head = format!(
                    "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    body.len()
                );
                answer.extend(head.bytes().chain(body.bytes()));
            }
        }
        if !answer.is_empty() && socket.can_send() {
            let sent = socket.send_slice(answer.make_contiguous())?;
            answer.drain(..sent);
            if answer.is_empty() {
                socket.close();
            }
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    common::exit(run())
}

fn run() -> Done {
    let arguments = Arguments::parse();
    let Some(device) = &arguments.device else {
        print!("{}", String::from_utf8(fetch(&arguments, "/", page(3))?)?);
        return Ok(());
    };
    let (context, port) = common::open(device)?;
    let channel = context.create_comp_channel()?;
    let queue = context.create_ethernet_queue(port).channel(&channel).build()?;
    let mut server = Server::new(Stack::new(queue, arguments.mac, arguments.ip)?, page(20));
    loop {
        server.poll()?;
        server.stack.link.queue.wait(Some(Duration::from_millis(10)))?;
    }
}

fn page(lines: usize) -> String {
    (0..lines).map(|n| format!("line {n} of a page that no kernel has sent\n")).collect()
}

/// Fetches a page over the simulated wire, with a second stack.
fn fetch(arguments: &Arguments, path: &str, page: String) -> Result<Vec<u8>, Box<dyn Error>> {
    const CLIENT: [u8; 6] = [2, 0, 0, 0, 0, 1];
    let wire = Wire::new()?;
    let queue = wire.far.create_ethernet_queue(1).build()?;
    let mut server = Server::new(Stack::new(queue, arguments.mac, arguments.ip)?, page);
    server.poll()?;
    let queue = wire.near.create_ethernet_queue(1).build()?;
    let mut client = Stack::new(queue, CLIENT, network("192.0.2.1/24")?)?;
    let Stack { interface, sockets, socket, .. } = &mut client;
    let there = (arguments.ip.address(), 80);
    sockets.get_mut::<tcp::Socket<'_>>(*socket).connect(interface.context(), there, 49152)?;
    let mut request = format!("GET {path} HTTP/1.1\r\nHost: simulated\r\n\r\n").into_bytes();
    let (mut answer, deadline) = (Vec::new(), std::time::Instant::now() + Duration::from_secs(60));
    loop {
        server.poll()?;
        let socket = client.poll();
        if !request.is_empty() && socket.can_send() {
            let sent = socket.send_slice(&request)?;
            request.drain(..sent);
        }
        if socket.can_recv() {
            socket.recv(|bytes| {
                answer.extend_from_slice(bytes);
                (bytes.len(), ())
            })?;
        } else if request.is_empty() && !socket.may_recv() {
            return Ok(answer);
        }
        if std::time::Instant::now() > deadline {
            return Err(
                format!("{} bytes came: {:?}", answer.len(), server.stack.link.queue).into()
            );
        }
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_many_segments_is_fetched_over_the_wire() {
        let page = page(4000);
        assert!(page.len() > 1 << 17);
        let arguments = Arguments::parse_from(["http_server"]);
        let answer = fetch(&arguments, "/", page.clone()).unwrap();
        let (head, body) = answer.split_at(answer.len() - page.len());
        assert!(head.starts_with(b"HTTP/1.1 200 OK\r\n") && head.ends_with(b"\r\n\r\n"));
        assert_eq!(body, page.as_bytes());
    }

    #[test]
    fn another_page_is_not_there() {
        let arguments = Arguments::parse_from(["http_server"]);
        let answer = fetch(&arguments, "/other", page(1)).unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 404 "), "{}", answer.escape_ascii());
    }
}
