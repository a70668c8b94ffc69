//! The other end of rdma-core's `rping`, `ucmatose` and `udaddy`, over the connection manager.
//!
//! ```text
//! peer rping server 10.0.0.1      rping -c -a 10.0.0.1 -C 3
//! rping -s -a 10.0.0.1            peer rping client 10.0.0.1
//! ```
//!
//! `rping` passes regions back and forth: the server reads the client's, and writes it back.
//! `ucmatose` sends messages over a connection, `udaddy` datagrams. `hold` connects, and sends
//! messages until the connection ends; it can stop at a step and wait for a line of input, for
//! tests that kill it there.

mod hold;

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use mlx5::transport::{Rc, Ud};
use mlx5::{
    Access, AddressHandle, CompletionQueue, Device, MemoryRegion, OwnedCompletion,
    ProtectionDomain, QueuePair, ReceiveWr, Received, RemoteAddress, SendFlags,
};
use mlx5_cm::{
    ConnectParam, Connection, EventChannel, EventKind, Id, Listener, PortSpace, connect,
};

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// Time limit of every wait.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, ValueEnum)]
enum Program {
    Rping,
    Ucmatose,
    Udaddy,
    Hold,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Side {
    Server,
    Client,
}

/// Talks to a program of rdma-core, or to itself, over the connection manager
#[derive(Parser)]
struct Arguments {
    /// Program at the other end
    program: Program,
    /// Which end this is
    side: Side,
    /// The server's IP address
    address: IpAddr,
    /// The server's port
    #[arg(long, default_value_t = 7174)]
    port: u16,
    /// Number of pings of an rping client
    #[arg(long, default_value_t = 3)]
    count: u32,
    /// The step at which `hold` stops until a line comes
    #[arg(long)]
    stop_at: Option<hold::Step>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let address = SocketAddr::new(arguments.address, arguments.port);
    let done = match arguments.program {
        Program::Rping => rping(arguments.side, address, arguments.count),
        Program::Ucmatose => ucmatose(arguments.side, address),
        Program::Udaddy => udaddy(arguments.side, address),
        Program::Hold => hold::hold(arguments.side, address, arguments.stop_at),
    };
    match done {
        Ok(()) => {
            println!("done");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("peer: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The objects that a queue pair needs.
struct Site {
    pd: ProtectionDomain,
    cq: CompletionQueue,
}

impl Site {
    fn open(device: &Device) -> Outcome<Self> {
        let context = device.open()?;
        Ok(Self { pd: context.alloc_pd()?, cq: context.create_cq(64).build()? })
    }

    fn region(&self, bytes: usize) -> Outcome<MemoryRegion> {
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        Ok(self.pd.memory(bytes).access(access).register()?)
    }

    /// Polls one completion, if there is one.
    fn poll(&mut self) -> Outcome<Option<OwnedCompletion>> {
        let mut came = None;
        self.cq.poll(1, |completion| came = Some(completion.to_owned()))?;
        Ok(came)
    }

    /// Waits for the next completion.
    fn completion(&mut self) -> Outcome<OwnedCompletion> {
        let start = Instant::now();
        loop {
            if let Some(completion) = self.poll()? {
                completion.as_completion().status()?;
                return Ok(completion);
            }
            if start.elapsed() > LIMIT {
                return Err("no completion came in time".into());
            }
            std::thread::yield_now();
        }
    }

    /// Waits for `count` completions of receives, and skips those of sends.
    fn receives(&mut self, count: u32) -> Outcome<OwnedCompletion> {
        let mut left = count;
        loop {
            let completion = self.completion()?;
            if completion.as_completion().wr_id() == RECEIVE {
                left -= 1;
                if left == 0 {
                    return Ok(completion);
                }
            }
        }
    }

    /// Waits for the completion of a request.
    fn sent(&mut self, wr_id: u64) -> Outcome {
        while self.completion()?.as_completion().wr_id() != wr_id {}
        Ok(())
    }
}

/// `wr_id` of receives, sends and transfers.
const RECEIVE: u64 = 1;
const SEND: u64 = 2;
const TRANSFER: u64 = 3;

/// Connects. The other side cannot send before `receives` receives of `inbox` are posted.
fn connected(
    side: Side,
    address: SocketAddr,
    receives: u32,
    inbox: usize,
) -> Outcome<(Connection, Site, MemoryRegion)> {
    let build = |site: &Site| {
        site.pd.create_qp::<Rc>(&site.cq, &site.cq).max_send_wr(16).max_recv_wr(16).build()
    };
    let post = |qp: &mut QueuePair<Rc>, region: &MemoryRegion| -> Outcome {
        let sges = [region.whole()?];
        for _ in 0..receives {
            qp.post_recv(&[ReceiveWr { wr_id: RECEIVE, sges: &sges }])?;
        }
        Ok(())
    };
    match side {
        Side::Server => {
            let mut listener = Listener::bind(address)?;
            println!("ready on {}", listener.local_addr()?);
            let request = listener.next(Some(LIMIT))?;
            let site = Site::open(&request.device()?)?;
            let (mut qp, region) = (build(&site)?, site.region(inbox)?);
            request.init(&mut qp)?;
            post(&mut qp, &region)?;
            Ok((request.timeout(LIMIT).accept(qp, b"")?, site, region))
        }
        Side::Client => {
            let peer = connect(address)?;
            let site = Site::open(&peer.device()?)?;
            let (mut qp, region) = (build(&site)?, site.region(inbox)?);
            peer.init(&mut qp)?;
            post(&mut qp, &region)?;
            Ok((peer.timeout(LIMIT).connect(qp, b"")?, site, region))
        }
    }
}

/// Waits until the peer ends the connection, or ends it.
fn end(mut connection: Connection, ends: bool) -> Outcome {
    if ends {
        connection.disconnect()?;
    }
    connection.wait_disconnected(Some(LIMIT))?;
    Ok(())
}

/// Bytes of a region's description in rping: address, key and length in network order.
const INFO: usize = 16;
/// Bytes of a ping.
const PING: usize = 64;

fn describe(region: RemoteAddress, length: u32) -> [u8; INFO] {
    let mut info = [0; INFO];
    info[..8].copy_from_slice(&region.addr.to_be_bytes());
    info[8..12].copy_from_slice(&region.rkey.to_be_bytes());
    info[12..].copy_from_slice(&length.to_be_bytes());
    info
}

fn described(info: [u8; INFO]) -> (RemoteAddress, u32) {
    let number =
        |at: usize| u32::from_be_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
    let addr = u64::from(number(0)) << 32 | u64::from(number(4));
    (RemoteAddress { addr, rkey: number(8) }, number(12))
}

/// One end of rping: the messages describe a region, or let the other end continue.
struct Rping {
    connection: Connection,
    site: Site,
    inbox: MemoryRegion,
    outbox: MemoryRegion,
    data: MemoryRegion,
}

impl Rping {
    fn send_region(&mut self, region: RemoteAddress, length: u32) -> Outcome {
        self.outbox.write_at(0, &describe(region, length))?;
        let mut batch = self.connection.qp_mut().wr_start();
        batch.wr(SEND, SendFlags::SIGNALED).send().sge(self.outbox.whole()?);
        Ok(batch.complete()?)
    }

    /// Waits for a message, or for the end of the connection. The end arrives through the
    /// connection manager: a queue pair with nothing to send does not notice it.
    fn heard_or_ended(&mut self) -> Outcome<Option<(RemoteAddress, u32)>> {
        let start = Instant::now();
        loop {
            match self.site.poll()? {
                Some(completion) if completion.as_completion().wr_id() == RECEIVE => {
                    completion.as_completion().status()?;
                    return self.read().map(Some);
                }
                Some(completion) => completion.as_completion().status()?,
                None if self.connection.has_ended()? => return Ok(None),
                None if start.elapsed() > LIMIT => return Err("no message came in time".into()),
                None => std::thread::yield_now(),
            }
        }
    }

    fn heard(&mut self) -> Outcome<(RemoteAddress, u32)> {
        self.site.receives(1)?;
        self.read()
    }

    /// Reads the message that arrived, and posts the receive again.
    fn read(&mut self) -> Outcome<(RemoteAddress, u32)> {
        let mut info = [0; INFO];
        self.inbox.read_at(0, &mut info)?;
        let sges = [self.inbox.whole()?];
        self.connection.qp_mut().post_recv(&[ReceiveWr { wr_id: RECEIVE, sges: &sges }])?;
        Ok(described(info))
    }

    fn serve(&mut self) -> Outcome<bool> {
        let Some((source, length)) = self.heard_or_ended()? else { return Ok(false) };
        let here = self.data.sge(..length as usize)?;
        let mut batch = self.connection.qp_mut().wr_start();
        batch.wr(TRANSFER, SendFlags::SIGNALED).rdma_read(source).sge(here);
        batch.complete()?;
        self.site.sent(TRANSFER)?;
        self.send_region(RemoteAddress::default(), 0)?;
        let (sink, _) = self.heard()?;
        let here = self.data.sge(..length as usize)?;
        let mut batch = self.connection.qp_mut().wr_start();
        batch.wr(TRANSFER, SendFlags::SIGNALED).rdma_write(sink).sge(here);
        batch.complete()?;
        self.site.sent(TRANSFER)?;
        self.send_region(RemoteAddress::default(), 0)?;
        let mut text = vec![0; length as usize];
        self.data.read_at(0, &mut text)?;
        println!("ping: {}", text.escape_ascii());
        Ok(true)
    }

    /// Sends one ping; the peer writes it back to another place.
    fn ping(&mut self, number: u32) -> Outcome {
        let mut ping = [0; PING];
        let text = format!("rdma-ping-{number}: ours");
        ping[..text.len()].copy_from_slice(text.as_bytes());
        self.data.write_at(0, &ping)?;
        self.data.write_at(PING, &[0; PING])?;
        let (source, sink) = (self.data.remote(..PING)?, self.data.remote(PING..)?);
        self.send_region(source, PING as u32)?;
        self.heard()?;
        self.send_region(sink, PING as u32)?;
        self.heard()?;
        let mut back = [0; PING];
        self.data.read_at(PING, &mut back)?;
        if back != ping {
            return Err(format!("ping {number} came back as {}", back.escape_ascii()).into());
        }
        println!("pong: {text}");
        Ok(())
    }
}

fn rping(side: Side, address: SocketAddr, count: u32) -> Outcome {
    let (connection, site, inbox) = connected(side, address, 1, INFO)?;
    let (outbox, data) = (site.region(INFO)?, site.region(64 * 1024)?);
    let mut rping = Rping { connection, site, inbox, outbox, data };
    match side {
        Side::Server => {
            while rping.serve()? {}
            Ok(())
        }
        Side::Client => {
            (0..count).try_for_each(|number| rping.ping(number))?;
            end(rping.connection, true)
        }
    }
}

/// Number of messages of ucmatose and udaddy, and their size.
const MESSAGES: u32 = 10;
const MESSAGE: usize = 100;

fn ucmatose(side: Side, address: SocketAddr) -> Outcome {
    let (mut connection, mut site, _inbox) = connected(side, address, MESSAGES, MESSAGE)?;
    let outbox = site.region(MESSAGE)?;
    let send = |connection: &mut Connection| -> Outcome {
        for _ in 0..MESSAGES {
            let mut batch = connection.qp_mut().wr_start();
            batch.wr(SEND, SendFlags::SIGNALED).send().sge(outbox.whole()?);
            batch.complete()?;
        }
        Ok(())
    };
    // The server sends first, and ends the connection.
    if side == Side::Server {
        send(&mut connection)?;
    }
    site.receives(MESSAGES)?;
    if side == Side::Client {
        send(&mut connection)?;
    }
    end(connection, side == Side::Server)
}

/// Bytes of the header before a datagram.
const HEADER: usize = 40;

/// A datagram queue pair, and its objects.
struct Datagrams {
    site: Site,
    qp: QueuePair<Ud>,
    inbox: MemoryRegion,
    outbox: MemoryRegion,
}

impl Datagrams {
    fn new(id: &Id) -> Outcome<Self> {
        let site = Site::open(&id.device()?)?;
        let mut qp =
            site.pd.create_qp::<Ud>(&site.cq, &site.cq).max_send_wr(16).max_recv_wr(16).build()?;
        id.to_rts(&mut qp)?;
        let (inbox, outbox) = (site.region(HEADER + MESSAGE)?, site.region(MESSAGE)?);
        let sges = [inbox.whole()?];
        for _ in 0..MESSAGES {
            qp.post_recv(&[ReceiveWr { wr_id: RECEIVE, sges: &sges }])?;
        }
        Ok(Self { site, qp, inbox, outbox })
    }

    fn send(&mut self, way: &AddressHandle, qp_num: u32, qkey: u32) -> Outcome {
        let own = self.qp.qp_num().to_be_bytes();
        for number in 0..MESSAGES {
            let last = number + 1 == MESSAGES;
            let mut batch = self.qp.wr_start();
            batch
                .wr(if last { TRANSFER } else { SEND }, SendFlags::SIGNALED)
                .send_imm(own)
                .ud_addr(way.vector(), qp_num, qkey)
                .sge(self.outbox.whole()?);
            batch.complete()?;
        }
        Ok(())
    }
}

/// Waits for an event of a channel.
fn event(channel: &EventChannel) -> Outcome<EventKind> {
    Ok(channel.wait(Some(LIMIT))?.ok_or("no event came in time")?.kind)
}

fn udaddy(side: Side, address: SocketAddr) -> Outcome {
    let channel = EventChannel::open()?;
    let id = channel.create_id(PortSpace::Udp)?;
    match side {
        Side::Client => {
            id.resolve_addr(None, address, LIMIT)?;
            expect(event(&channel)?, |event| matches!(event, EventKind::AddressResolved))?;
            id.resolve_route(LIMIT)?;
            expect(event(&channel)?, |event| matches!(event, EventKind::RouteResolved))?;
            let mut own = Datagrams::new(&id)?;
            id.connect(&ConnectParam::new(own.qp.qp_num()))?;
            let peer = match event(&channel)? {
                EventKind::DatagramEstablished(peer) => peer,
                other => return Err(format!("{other:?} instead of the peer's address").into()),
            };
            let way = own.site.pd.create_ah(&peer.path)?;
            own.send(&way, peer.qp_num, peer.qkey)?;
            own.site.receives(MESSAGES)?;
        }
        Side::Server => {
            id.bind(address)?;
            id.listen(1)?;
            println!("ready on {address}");
            let request = match event(&channel)? {
                EventKind::DatagramRequest { id, .. } => id,
                other => return Err(format!("{other:?} instead of a request").into()),
            };
            let mut own = Datagrams::new(&request)?;
            request.accept(&ConnectParam::new(own.qp.qp_num()))?;
            let last = own.site.receives(MESSAGES)?;
            let last = last.as_completion();
            let mut header = [0; HEADER];
            own.inbox.read_at(0, &mut header)?;
            let received = Received {
                slid: last.slid().unwrap_or(0),
                sl: last.service_level().unwrap_or(0),
                dlid_path_bits: last.dlid_path_bits().unwrap_or(0),
                grh: last.has_grh().unwrap_or(false).then_some(&header),
            };
            let port = request.port_num()?.ok_or("a request has a port")?;
            let way = own.site.pd.create_ah_from_received(port, &received)?;
            let sender = last.src_qp().ok_or("a datagram names its sender")?;
            own.send(&way, sender, QKEY)?;
            own.site.sent(TRANSFER)?;
        }
    }
    Ok(())
}

/// The Q_Key of datagrams of the connection manager (`RDMA_UDP_QKEY`).
const QKEY: u32 = 0x0123_4567;

fn expect(event: EventKind, is_it: impl FnOnce(&EventKind) -> bool) -> Outcome {
    if is_it(&event) { Ok(()) } else { Err(format!("unexpected: {event:?}").into()) }
}
