//! The other end is an example program of rdma-core: `ibv_rc_pingpong`, `ibv_uc_pingpong` or
//! `ibv_ud_pingpong`. Their exchange is defined by their sources only (libibverbs/examples): over
//! TCP each side sends LID, queue pair number, PSN and GID as one text of fixed length with a NUL,
//! the client first; then the client confirms. The client sends the first message, and each message
//! is answered with one.

use crate::device::{Port, note};
use crate::failure::Failure;
use crate::link::ends::{EndArgs, Waiter};
use crate::link::exchange;
use crate::link::side::{Invitation, Received, Shape, Side};
use crate::link::{Op, Transport};
use mlx5::{Endpoint, Gid, GidType, LinkLayer, Mtu, Psn, QpNumber, QpType, RemoteAddress};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// LID, queue pair and sequence number in hexadecimal digits, then those of the GID, and a NUL.
const LENGTH: usize = 52;
/// The client's confirmation.
const DONE: &[u8; 5] = b"done\0";
/// The Q_Key of both sides.
const QKEY: u32 = 0x1111_1111;

/// The address that one side sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Destination {
    lid: u16,
    qp_num: u32,
    psn: u32,
    /// Zero for no global route.
    gid: Gid,
}

impl Destination {
    fn to_bytes(self) -> [u8; LENGTH] {
        let gid = u128::from_be_bytes(self.gid.to_bytes());
        let text = format!("{:04x}:{:06x}:{:06x}:{gid:032x}\0", self.lid, self.qp_num, self.psn);
        text.into_bytes().try_into().expect("each number has its digits")
    }

    fn from_bytes(bytes: &[u8; LENGTH]) -> Option<Self> {
        let text = std::str::from_utf8(bytes.split(|&byte| byte == 0).next()?).ok()?;
        let mut parts = text.split(':');
        let mut next = || parts.next();
        let lid = u16::from_str_radix(next()?, 16).ok()?;
        let qp_num = u32::from_str_radix(next()?, 16).ok()?;
        let psn = u32::from_str_radix(next()?, 16).ok()?;
        let gid = u128::from_str_radix(next()?, 16).ok()?;
        Some(Self { lid, qp_num, psn, gid: Gid::from_bytes(gid.to_be_bytes()) })
    }

    /// The address of an end here.
    fn of(endpoint: &Endpoint, global: bool) -> Self {
        Self {
            lid: endpoint.lid,
            qp_num: endpoint.qp_num.get(),
            psn: endpoint.psn.get(),
            gid: if global { endpoint.gid } else { Gid::default() },
        }
    }

    /// The endpoint of this address; `here` supplies what the exchange does not carry.
    fn endpoint(self, here: &Endpoint, mtu: Mtu) -> Option<Endpoint> {
        Some(Endpoint {
            qp_num: QpNumber::new(self.qp_num).ok()?,
            psn: Psn::new(self.psn).ok()?,
            lid: self.lid,
            gid: self.gid,
            gid_index: 0,
            mtu,
            rd_atomic: 1,
            qkey: (here.transport == QpType::Ud).then_some(QKEY),
            ..*here
        })
    }
}

/// An end that is connected to one of rdma-core's programs.
pub(crate) struct Foreign {
    side: Side,
    waiter: Waiter,
    /// Whether this end sends first.
    client: bool,
    pub(crate) local: Endpoint,
    pub(crate) remote: Endpoint,
}

impl Foreign {
    /// Connects according to the options of `ends`.
    pub(crate) fn open(
        ends: &EndArgs,
        port: &Port,
        shape: Shape,
        mtu: Mtu,
        waiter: Waiter,
    ) -> Result<Self, Failure> {
        if let Some(address) = ends.connects_to() {
            let stream = ends.reached(address)?;
            return Self::client(port, stream, shape, mtu, waiter);
        }
        let address = exchange::complete(ends.listens_at().unwrap_or_default(), "0.0.0.0");
        let listener = exchange::listen(&address)?;
        note(&format!("listening on {address}"));
        let (stream, _) = exchange::accept(&listener, ends.timeout())?;
        stream.set_read_timeout(Some(ends.answer()))?;
        Self::server(port, stream, shape, mtu, waiter)
    }

    /// The client: sends its address and the first message.
    pub(crate) fn client(
        port: &Port,
        mut stream: TcpStream,
        shape: Shape,
        mtu: Mtu,
        waiter: Waiter,
    ) -> Result<Self, Failure> {
        let (mut side, local) = end(port, shape, mtu, &waiter)?;
        tell(&mut stream, &local, port)?;
        let remote = hear(&mut stream, &local, mtu)?;
        stream.write_all(DONE)?;
        side.join(port, &[invitation(remote)])?;
        Ok(Self { side, waiter, client: true, local, remote })
    }

    /// The server: posts receives before it sends its address.
    pub(crate) fn server(
        port: &Port,
        mut stream: TcpStream,
        shape: Shape,
        mtu: Mtu,
        waiter: Waiter,
    ) -> Result<Self, Failure> {
        let (mut side, local) = end(port, shape, mtu, &waiter)?;
        let remote = hear(&mut stream, &local, mtu)?;
        side.join(port, &[invitation(remote)])?;
        tell(&mut stream, &local, port)?;
        let mut done = [0; DONE.len()];
        read(&mut stream, &mut done)?;
        Ok(Self { side, waiter, client: false, local, remote })
    }

    /// Exchanges `count` messages of `size` bytes; returns the time taken.
    ///
    /// rdma-core's programs send what they received last, so each message must equal the one sent
    /// before, apart from a client's first.
    pub(crate) fn bounce(&mut self, size: usize, count: u64) -> Result<Duration, Failure> {
        let mut came = vec![0; size];
        let mut sent = 0;
        let begun = Instant::now();
        if self.client {
            self.send(sent, size)?;
            sent += 1;
        }
        for received in 0..count {
            self.receive(size)?;
            self.side.received(&mut came)?;
            if sent > 0 {
                verify(&came, &pattern(sent - 1, size), received)?;
            }
            self.side.post_receives(0, 1)?;
            if sent < count {
                self.send(sent, size)?;
                sent += 1;
            }
        }
        self.complete(count - 1)?;
        Ok(begun.elapsed())
    }

    fn send(&mut self, index: u64, size: usize) -> Result<(), Failure> {
        if index > 0 {
            self.complete(index - 1)?;
        }
        self.side.fill(&pattern(index, size))?;
        self.side.post(0, Op::Send, size, index, 1, |_| true)
    }

    /// Waits for the completion of this request.
    fn complete(&mut self, index: u64) -> Result<(), Failure> {
        self.waiter.patience.refresh();
        while self.side.sent(0) <= index {
            if !self.side.poll_sent()? {
                let side = &self.side;
                self.waiter.idle("a completion", || side.arm_sent())?;
            }
        }
        Ok(())
    }

    fn receive(&mut self, size: usize) -> Result<(), Failure> {
        self.waiter.patience.refresh();
        loop {
            match self.side.poll_received(|_| ())? {
                Some(Received { count: 1, length, .. }) if length == size => return Ok(()),
                Some(Received { count, length, .. }) => {
                    let cause = format!("{count} messages came, the last of {length} bytes");
                    return Err(Failure::new(cause)
                        .hint("both sides need the same size: -s there, --size here"));
                }
                None => {
                    let side = &self.side;
                    self.waiter.idle("a message", || side.arm_received())?;
                }
            }
        }
    }
}

/// An end and its address.
fn end(port: &Port, shape: Shape, mtu: Mtu, waiter: &Waiter) -> Result<(Side, Endpoint), Failure> {
    let side = Side::new(port, shape, waiter.channel.as_ref())?;
    let [here] = side.invitations()?[..] else {
        return Err(Failure::new("rdma-core's programs have one queue pair"));
    };
    let local = Endpoint { mtu, ..here.endpoint };
    Ok((side, local))
}

/// The address to send. On InfiniBand the peer uses the LID.
fn tell(stream: &mut TcpStream, local: &Endpoint, port: &Port) -> Result<(), Failure> {
    let global = port.local.link_layer == LinkLayer::Ethernet;
    Ok(stream.write_all(&Destination::of(local, global).to_bytes())?)
}

/// Fills `bytes`, within the time limit of the stream.
fn read(stream: &mut TcpStream, bytes: &mut [u8]) -> Result<(), Failure> {
    stream.read_exact(bytes).map_err(|error| match (error.kind(), stream.read_timeout()) {
        (ErrorKind::WouldBlock | ErrorKind::TimedOut, Ok(Some(limit))) => exchange::silent(limit),
        _ => error.into(),
    })
}

/// Parses the peer's address.
fn hear(stream: &mut TcpStream, local: &Endpoint, mtu: Mtu) -> Result<Endpoint, Failure> {
    let mut bytes = [0; LENGTH];
    read(stream, &mut bytes)?;
    let strange = || {
        let said = String::from_utf8_lossy(&bytes).into_owned();
        Failure::new(format!("the other side sent {said:?}, which is not a queue pair's address"))
            .hint("is it one of rdma-core's pingpong programs?")
    };
    let remote = Destination::from_bytes(&bytes).ok_or_else(strange)?;
    let remote = remote.endpoint(local, mtu).ok_or_else(strange)?;
    if local.gid_type != GidType::InfiniBand && remote.gid.is_zero() {
        return Err(Failure::new("the other side sent no GID, which Ethernet needs")
            .hint("give it one: -g INDEX"));
    }
    Ok(remote)
}

/// No remote access.
fn invitation(endpoint: Endpoint) -> Invitation {
    Invitation { endpoint, memory: RemoteAddress::default() }
}

fn verify(came: &[u8], sent: &[u8], index: u64) -> Result<(), Failure> {
    match sent.iter().zip(came).position(|(sent, came)| sent != came) {
        None => Ok(()),
        Some(at) => Err(Failure::new(format!(
            "message {index} came back changed: byte {at} was {:#04x} and is {:#04x}",
            sent[at], came[at]
        ))),
    }
}

/// A pattern unique to the message. With `--chk` those programs check the first byte of each page,
/// which must be zero.
fn pattern(index: u64, size: usize) -> Vec<u8> {
    const PAGE: usize = 4096;
    let mut bytes = super::pattern::pattern(index, size);
    bytes.iter_mut().step_by(PAGE).for_each(|byte| *byte = 0);
    bytes
}

/// The name of the peer program.
pub(crate) fn program(transport: Transport) -> String {
    format!("ibv_{}_pingpong", transport.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::tests::{port, shape, waiter};
    use mlx5_sim::{PortConfig, SimConfig, Simulator};
    use std::net::TcpListener;

    #[test]
    fn an_end_is_told_as_rdma_core_tells_it() {
        let gid = "fe80::526b:4b03:12:3456".parse::<std::net::Ipv6Addr>().expect("an address");
        let gid = Gid::from_bytes(gid.octets());
        let end = Destination { lid: 0x12, qp_num: 0x1a2b, psn: 0xab_cdef, gid };
        let bytes = end.to_bytes();
        assert_eq!(&bytes, b"0012:001a2b:abcdef:fe80000000000000526b4b0300123456\0");
        assert_eq!(Destination::from_bytes(&bytes), Some(end));
    }

    #[test]
    fn what_tells_of_no_end_is_refused() {
        let mut bytes = Destination { lid: 1, qp_num: 2, psn: 3, gid: Gid::default() }.to_bytes();
        bytes[4] = b'-';
        assert_eq!(Destination::from_bytes(&bytes), None);
        assert_eq!(Destination::from_bytes(&[0xff; LENGTH]), None);
        assert_eq!(Destination::from_bytes(&[b'1'; LENGTH]), None);
    }

    #[test]
    fn a_message_has_a_zero_where_rdma_core_looks_for_one() {
        let bytes = pattern(7, 8193);
        assert_eq!([bytes[0], bytes[4096], bytes[8192]], [0, 0, 0]);
        assert!(bytes[1..4096].iter().any(|&byte| byte != 0));
    }

    /// Answers as rdma-core's programs do: with the received bytes, unchecked.
    fn echo(end: &mut Foreign, size: usize, count: u64) {
        for index in 0..count {
            end.receive(size).expect("a message");
            end.side.echo(0, size, index).expect("sent");
            end.complete(index).expect("completed");
            end.side.post_receives(0, 1).expect("posted");
        }
    }

    #[test]
    fn a_client_gets_back_what_it_sends_on_every_transport() {
        for link in [PortConfig::INFINIBAND, PortConfig::ROCE] {
            for transport in [Transport::Rc, Transport::Uc, Transport::Ud] {
                let simulator = Simulator::new(SimConfig::new().ports([link]));
                let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
                let address = listener.local_addr().expect("its number");
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        let (stream, _) = listener.accept().expect("accepted");
                        let (port, shape) = (port(&simulator), shape(transport));
                        let end = Foreign::server(&port, stream, shape, Mtu::Mtu1024, waiter());
                        echo(&mut end.expect("connected"), 1024, 20);
                    });
                    let stream = TcpStream::connect(address).expect("connected");
                    let (port, shape) = (port(&simulator), shape(transport));
                    let end = Foreign::client(&port, stream, shape, Mtu::Mtu1024, waiter());
                    end.expect("connected").bounce(1024, 20).expect("verified");
                });
            }
        }
    }

    #[test]
    fn a_message_that_comes_back_changed_is_told() {
        let failure = verify(&[1, 2, 4], &[1, 2, 3], 5).expect_err("a difference");
        assert_eq!(failure.cause(), "message 5 came back changed: byte 2 was 0x03 and is 0x04");
    }
}
