//! Connecting over TCP, without a connection manager: endpoints, regions, and a barrier.
//!
//! Both sides make the same calls in the same order, each at its end of a stream. A message has its
//! version and its kind, so a peer of another version, another order or another program is noticed
//! at once. Each call has the time limit that was set. If a call fails after it began to send, the
//! stream is unusable: connect again.
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
use std::os::fd::AsFd;
use std::time::Duration;

use mlx5::{ConnectOptions, Connected, Endpoint, LocalPort, Psn, QueuePair, RemoteSlice};
use mlx5_uapi::wait::{wait_readable, wait_readable_or_writable};
use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::error::{Error, ErrorKind};
use crate::wait::Deadline;

/// The version of the messages; [`Bootstrap`] refuses any other.
pub const VERSION: u16 = 1;

/// The most regions of one message.
pub const MAX_REGIONS: usize = 1024;

const MAGIC: [u8; 4] = *b"mlxB";

/// The kind of a message.
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

/// Header of each message. Numbers are big-endian.
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
    /// Whether an exchange was interrupted: the position in the stream is unknown.
    broken: bool,
}

impl Bootstrap {
    /// Takes a connected stream. Each call takes at most `timeout`.
    pub fn new(stream: TcpStream, timeout: Duration) -> Result<Self, Error> {
        let fail = |error: io::Error| failed("bootstrap", &error);
        // Messages are short, and the peer waits for them.
        stream.set_nodelay(true).map_err(fail)?;
        stream.set_nonblocking(true).map_err(fail)?;
        Ok(Self { stream, timeout, broken: false })
    }

    /// Returns the stream, in blocking mode.
    pub fn into_stream(self) -> TcpStream {
        // If the mode cannot be set, the stream's next use fails.
        let _ = self.stream.set_nonblocking(false);
        self.stream
    }

    fn deadline(&self) -> Deadline {
        Deadline::after(self.timeout)
    }

    /// Connects a queue pair to the peer's. When it returns, both can send. Returns the peer's
    /// endpoint.
    pub fn connect<T: Connected>(
        &mut self,
        qp: &mut QueuePair<T>,
        port: &LocalPort,
        options: &ConnectOptions,
    ) -> Result<Endpoint, Error> {
        let deadline = self.deadline();
        let psn = Psn::wrapping(RandomState::new().hash_one(qp.qp_num()) as u32);
        let own = qp.endpoint(port, psn, options);
        let remote = self.exchange_endpoints(&own, deadline)?;
        qp.connect(port, psn, &remote, options).map_err(|error| Error::driver("connect", error))?;
        self.barrier(deadline)?;
        Ok(remote)
    }

    /// Exchanges endpoints, for datagram queue pairs, or for queue pairs that are connected in
    /// another way.
    pub fn endpoint(&mut self, own: &Endpoint) -> Result<Endpoint, Error> {
        self.exchange_endpoints(own, self.deadline())
    }

    fn exchange_endpoints(
        &mut self,
        own: &Endpoint,
        deadline: Deadline,
    ) -> Result<Endpoint, Error> {
        const OPERATION: &str = "exchange of endpoints";
        let bytes = self.exchange(OPERATION, Kind::Endpoint, &own.to_bytes(), deadline)?;
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
        let bytes = self.exchange(OPERATION, Kind::Regions, &bytes, self.deadline())?;
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

    /// Exchanges the program's own bytes, at most 64 KiB.
    pub fn data(&mut self, own: &[u8]) -> Result<Vec<u8>, Error> {
        self.exchange("exchange of data", Kind::Data, own, self.deadline())
    }

    /// Waits until the peer makes the same call: all that either side did before is done.
    pub fn ready(&mut self) -> Result<(), Error> {
        self.barrier(self.deadline())
    }

    fn barrier(&mut self, deadline: Deadline) -> Result<(), Error> {
        self.exchange("barrier", Kind::Ready, &[], deadline).map(drop)
    }

    /// Sends a message, and receives the peer's of the same kind.
    fn exchange(
        &mut self,
        operation: &'static str,
        kind: Kind,
        own: &[u8],
        deadline: Deadline,
    ) -> Result<Vec<u8>, Error> {
        if own.len() > LONGEST {
            let what = format!("{} bytes, where a message has at most {LONGEST}", own.len());
            return Err(Error::new(operation, ErrorKind::InvalidArgument, what));
        }
        if self.broken {
            let what = "an exchange on this stream broke off before: connect again";
            return Err(Error::new(operation, ErrorKind::Disconnected, what));
        }
        self.broken = true;
        let header = Header {
            magic: MAGIC,
            version: VERSION.into(),
            kind: (kind as u16).into(),
            len: (own.len() as u32).into(),
        };
        let message = [header.as_bytes(), own].concat();
        let mut bytes = vec![0; size_of::<Header>()];
        let (mut sent, mut filled, mut is_announced) = (0, 0, false);
        loop {
            if filled == bytes.len() && !is_announced {
                bytes.resize(filled + announced(operation, kind, &bytes)?, 0);
                is_announced = true;
            }
            if sent == message.len() && filled == bytes.len() {
                break;
            }
            // Sends and receives in turns: a message may be longer than the stream's buffers.
            let moved = self.go_on(&message[sent..], &mut bytes[filled..], deadline);
            let (out, into) = moved.map_err(|error| failed(operation, &error))?;
            (sent, filled) = (sent + out, filled + into);
        }
        self.broken = false;
        Ok(bytes.split_off(size_of::<Header>()))
    }

    /// Sends and receives a part of the rest, or waits until that is possible. Returns the counts.
    fn go_on(
        &mut self,
        unsent: &[u8],
        missing: &mut [u8],
        deadline: Deadline,
    ) -> io::Result<(usize, usize)> {
        let left = deadline.left();
        if left == Some(Duration::ZERO) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let out = match unsent {
            [] => 0,
            unsent => progress(self.stream.write(unsent), io::ErrorKind::WriteZero)?,
        };
        let into = match missing {
            [] => 0,
            missing => progress(self.stream.read(missing), io::ErrorKind::UnexpectedEof)?,
        };
        if out + into == 0 {
            // If the wait runs out, the next check of the deadline reports it.
            match unsent {
                [] => wait_readable(self.stream.as_fd(), left)?,
                _ => wait_readable_or_writable(self.stream.as_fd(), left)?,
            };
        }
        Ok((out, into))
    }
}

/// Returns the number of bytes that a call on a stream moved; `at_end` is the error for 0 bytes.
fn progress(moved: io::Result<usize>, at_end: io::ErrorKind) -> io::Result<usize> {
    match moved {
        Ok(0) => Err(at_end.into()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
        moved => moved,
    }
}

/// The length that the header of a message announces.
fn announced(operation: &'static str, kind: Kind, header: &[u8]) -> Result<usize, Error> {
    let wrong = |what: String| Err(Error::new(operation, ErrorKind::Protocol, what));
    let Ok(header) = Header::read_from_bytes(header) else {
        return wrong("the peer sent part of a header".into());
    };
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
    Ok(len)
}

/// Converts an error of the stream.
fn failed(operation: &'static str, error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            let what = "the peer's message did not come in time: connect again, with a longer time \
                        limit if the peer is slow";
            Error::timed_out(operation, what)
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
mod tests;
