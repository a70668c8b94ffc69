//! Connecting over TCP, where there is no connection manager: endpoints, regions, and a barrier.
//!
//! Both sides make the same calls in the same order, each at its end of a stream. A message says
//! its version and what it is, so a peer of another version, another order or another program is
//! noticed at once. Each call has the time limit that was set.
//!
//! ```
//! use mlx5::{Access, ConnectOptions, RemoteSlice, transport::Rc};
//! use mlx5_cm::bootstrap::Bootstrap;
//! use std::{net::{TcpListener, TcpStream}, thread, time::Duration};
//!
//! # type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
//! # let simulator = mlx5_sim::Simulator::new(mlx5_sim::SimConfig::new());
//! # let kernel = simulator.kernel();
//! # let open = move || mlx5::devices_on(kernel.clone()).unwrap().remove(0).open();
//! # let other = open.clone();
//! const LIMIT: Duration = Duration::from_secs(10);
//!
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let address = listener.local_addr()?;
//! let server = thread::spawn(move || -> Result<RemoteSlice> {
//! #   let context = other()?;
//!     let (pd, cq) = (context.alloc_pd()?, context.create_cq(16).build()?);
//!     let mut qp = pd.create_qp::<Rc>(&cq, &cq).build()?;
//!     let mut peer = Bootstrap::new(listener.accept()?.0, LIMIT)?;
//!     peer.connect(&mut qp, &context.local_port(1, None)?, &ConnectOptions::default())?;
//!     let regions = peer.regions(&[])?;
//!     peer.ready()?;
//!     Ok(regions[0])
//! });
//!
//! let context = open()?;
//! let (pd, cq) = (context.alloc_pd()?, context.create_cq(16).build()?);
//! let mut qp = pd.create_qp::<Rc>(&cq, &cq).build()?;
//! let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
//! let memory = pd.memory(4096).access(access).register()?;
//! let mut peer = Bootstrap::new(TcpStream::connect(address)?, LIMIT)?;
//! peer.connect(&mut qp, &context.local_port(1, None)?, &ConnectOptions::default())?;
//! peer.regions(&[memory.remote_slice(..)?])?;
//! peer.ready()?;
//! assert_eq!(server.join().unwrap()?, memory.remote_slice(..)?);
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```

use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use mlx5::{ConnectOptions, Connected, Endpoint, LocalPort, Psn, QueuePair, RemoteSlice};
use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::error::{Error, ErrorKind};

/// The version of the messages; [`Bootstrap`] refuses any other.
pub const VERSION: u16 = 1;

/// The most regions of one message.
pub const MAX_REGIONS: usize = 1024;

const MAGIC: [u8; 4] = *b"mlxB";

/// What a message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Endpoint = 1,
    Regions = 2,
    Ready = 3,
    Data = 4,
}

impl Kind {
    fn name(number: u16) -> &'static str {
        match number {
            1 => "an endpoint",
            2 => "regions",
            3 => "its word that it is ready",
            4 => "data",
            _ => "something unknown",
        }
    }
}

/// Stands before each message. Numbers are big-endian.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Header {
    magic: [u8; 4],
    version: U16,
    kind: U16,
    len: U32,
}

/// The longest message.
const LONGEST: usize = 1 << 16;

/// One end of a stream over which two programs connect their queue pairs.
#[derive(Debug)]
pub struct Bootstrap {
    stream: TcpStream,
    timeout: Duration,
}

impl Bootstrap {
    /// Takes a connected stream. Each call takes at most `timeout`.
    pub fn new(stream: TcpStream, timeout: Duration) -> Result<Self, Error> {
        // Short messages that the peer waits for.
        stream.set_nodelay(true).map_err(|error| failed("bootstrap", &error))?;
        Ok(Self { stream, timeout })
    }

    /// Returns the stream.
    pub fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// Connects a queue pair to the peer's. When it returns, both can send. Returns the peer's
    /// endpoint.
    pub fn connect<T: Connected>(
        &mut self,
        qp: &mut QueuePair<T>,
        port: &LocalPort,
        options: &ConnectOptions,
    ) -> Result<Endpoint, Error> {
        let psn = Psn::wrapping(RandomState::new().hash_one(qp.qp_num()) as u32);
        let own = qp.endpoint(port, psn, options);
        let remote = self.endpoint(&own)?;
        qp.connect(port, psn, &remote, options).map_err(|error| Error::driver("connect", error))?;
        self.ready()?;
        Ok(remote)
    }

    /// Exchanges endpoints, for queue pairs that are connected in another way, or that take
    /// datagrams.
    pub fn endpoint(&mut self, own: &Endpoint) -> Result<Endpoint, Error> {
        const OPERATION: &str = "exchange of endpoints";
        let bytes = self.exchange(OPERATION, Kind::Endpoint, &own.to_bytes())?;
        Endpoint::from_bytes(&bytes)
            .map_err(|error| Error::new(OPERATION, ErrorKind::Protocol, error.to_string()))
    }

    /// Exchanges regions: what the peer may access of this side, and what this side may access of
    /// the peer. At most [`MAX_REGIONS`].
    pub fn regions(&mut self, own: &[RemoteSlice]) -> Result<Vec<RemoteSlice>, Error> {
        const OPERATION: &str = "exchange of regions";
        if own.len() > MAX_REGIONS {
            let what = format!("{} regions, where a message has at most {MAX_REGIONS}", own.len());
            return Err(Error::new(OPERATION, ErrorKind::InvalidArgument, what));
        }
        let bytes: Vec<u8> = own.iter().flat_map(|region| region.to_bytes()).collect();
        let bytes = self.exchange(OPERATION, Kind::Regions, &bytes)?;
        let (regions, rest) = bytes.as_chunks::<{ RemoteSlice::<u8>::BYTES }>();
        if !rest.is_empty() {
            let what = "the peer sent part of a region: does it have the same version?";
            return Err(Error::new(OPERATION, ErrorKind::Protocol, what));
        }
        let regions = regions.iter().map(|bytes| RemoteSlice::from_bytes(bytes));
        regions.collect::<Result<_, _>>().map_err(|error| {
            Error::new(OPERATION, ErrorKind::Protocol, format!("the peer's region: {error}"))
        })
    }

    /// Exchanges bytes of the program's own, at most 64 KiB.
    pub fn data(&mut self, own: &[u8]) -> Result<Vec<u8>, Error> {
        self.exchange("exchange of data", Kind::Data, own)
    }

    /// Waits until the peer makes the same call: what either did before is done.
    pub fn ready(&mut self) -> Result<(), Error> {
        self.exchange("barrier", Kind::Ready, &[]).map(drop)
    }

    /// Sends a message, and receives the peer's of the same kind.
    fn exchange(
        &mut self,
        operation: &'static str,
        kind: Kind,
        own: &[u8],
    ) -> Result<Vec<u8>, Error> {
        if own.len() > LONGEST {
            let what = format!("{} bytes, where a message has at most {LONGEST}", own.len());
            return Err(Error::new(operation, ErrorKind::InvalidArgument, what));
        }
        let deadline = Instant::now().checked_add(self.timeout);
        let header = Header {
            magic: MAGIC,
            version: VERSION.into(),
            kind: (kind as u16).into(),
            len: (own.len() as u32).into(),
        };
        let fail = |error: io::Error| failed(operation, &error);
        let message = [header.as_bytes(), own].concat();
        // Each side sends first: what is sent has to fit in the buffers of both, unless the peer
        // reads meanwhile.
        self.send(&message, deadline).map_err(fail)?;
        let mut header = [0; size_of::<Header>()];
        self.receive(&mut header, deadline).map_err(fail)?;
        let header = Header::read_from_bytes(&header).unwrap_or(Header {
            magic: [0; 4],
            version: U16::ZERO,
            kind: U16::ZERO,
            len: U32::ZERO,
        });
        let wrong = |what: String| Err(Error::new(operation, ErrorKind::Protocol, what));
        if header.magic != MAGIC {
            return wrong("the peer is another program: check address and port".into());
        }
        if header.version.get() != VERSION {
            return wrong(format!(
                "the peer has version {}, and this is version {VERSION}: use the same",
                header.version
            ));
        }
        if header.kind.get() != kind as u16 {
            return wrong(format!(
                "the peer sent {}, where {} was expected: both make the same calls in the same order",
                Kind::name(header.kind.get()),
                Kind::name(kind as u16)
            ));
        }
        let len = header.len.get() as usize;
        if len > LONGEST {
            return wrong(format!("the peer announced {len} bytes, more than {LONGEST}"));
        }
        let mut bytes = vec![0; len];
        self.receive(&mut bytes, deadline).map_err(fail)?;
        Ok(bytes)
    }

    fn send(&mut self, bytes: &[u8], deadline: Option<Instant>) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            self.stream.set_write_timeout(left(deadline)?)?;
            match self.stream.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => rest = &rest[sent..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn receive(&mut self, bytes: &mut [u8], deadline: Option<Instant>) -> io::Result<()> {
        let mut filled = 0;
        while filled < bytes.len() {
            self.stream.set_read_timeout(left(deadline)?)?;
            match self.stream.read(&mut bytes[filled..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(received) => filled += received,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The time until a deadline; an error once it has passed.
fn left(deadline: Option<Instant>) -> io::Result<Option<Duration>> {
    let Some(deadline) = deadline else { return Ok(None) };
    match deadline.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
        left => Ok(Some(left)),
    }
}

/// The error that a stream's error stands for.
fn failed(operation: &'static str, error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            Error::timed_out(operation, "the peer's message")
        }
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe => {
            let what = "the peer hung up: see what it says";
            Error::new(operation, ErrorKind::Disconnected, what)
        }
        _ => Error::new(operation, ErrorKind::Kernel, format!("the stream failed: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn pair(timeout: Duration) -> (Bootstrap, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let other = TcpStream::connect(listener.local_addr().expect("an address")).expect("a peer");
        let (one, _) = listener.accept().expect("a peer");
        (Bootstrap::new(one, timeout).expect("a stream"), other)
    }

    #[test]
    fn both_sides_get_what_the_other_gave() {
        let (mut one, other) = pair(LONG);
        let mut other = Bootstrap::new(other, LONG).expect("a stream");
        let given = thread::spawn(move || {
            other.ready().expect("ready");
            other.data(b"from there").expect("data")
        });
        one.ready().expect("ready");
        assert_eq!(one.data(b"from here").expect("data"), b"from there");
        assert_eq!(given.join().expect("the other side"), b"from here");
    }

    #[test]
    fn a_silent_peer_is_given_up() {
        let (mut one, _other) = pair(Duration::from_millis(20));
        let error = one.ready().expect_err("nobody answers");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }

    #[test]
    fn the_time_limit_is_that_of_the_whole_call_however_much_has_come() {
        let (mut one, mut other) = pair(Duration::ZERO);
        other.write_all(&MAGIC).expect("sent");
        let error = one.ready().expect_err("no time is left");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }

    #[test]
    fn a_peer_that_hangs_up_is_told_of() {
        let (mut one, other) = pair(LONG);
        drop(other);
        let error = one.ready().expect_err("nobody is there");
        assert_eq!(error.kind(), ErrorKind::Disconnected);
    }

    #[test]
    fn another_version_another_order_and_another_program_are_noticed() {
        let answer = |bytes: &[u8]| {
            let (mut one, mut other) = pair(LONG);
            other.write_all(bytes).expect("sent");
            one.ready().expect_err("not what was expected").to_string()
        };
        assert!(answer(b"mlxB\0\x02\0\x03\0\0\0\0").contains("version 2"));
        assert!(answer(b"mlxB\0\x01\0\x02\0\0\0\0").contains("regions"));
        assert!(answer(b"GET / HTTP/1.1\r\n").contains("another program"));
        assert!(answer(b"mlxB\0\x01\0\x03\xff\xff\xff\xff").contains("announced"));
    }
}
