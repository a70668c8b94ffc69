//! Bringing a queue pair to RTS in few calls.

use super::endpoint::{
    ConnectOptions, Endpoint, LocalPort, datagram_to_rtr, datagram_to_rts, default_gid_index,
    path_to, to_init, to_rtr, to_rts,
};
use super::{Psn, QpNumber, QueuePair, QueuePairTransport};
use crate::address::AddressHandle;
use crate::context::Context;
use crate::error::Error;
use crate::memory::ProtectionDomain;
use mlx5_uapi::verbs::{AccessFlags, LinkLayer};
use mlx5_wqe::QueueState;
use mlx5_wqe::transport::{Rc, Uc, Ud, XrcSend};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};

/// A transport that connects two queue pairs.
pub trait Connected: QueuePairTransport {}

impl Connected for Rc {}
impl Connected for Uc {}
impl Connected for XrcSend {}

impl Context {
    /// Returns what connecting over a port requires. `gid_index` selects the address. Default: the
    /// first one on InfiniBand; on Ethernet RoCE v2 before v1, routable before link-local.
    pub fn local_port(&self, port_num: u8, gid_index: Option<u8>) -> Result<LocalPort, Error> {
        const VERB: &str = "query_port";
        let port = self.query_port(port_num)?;
        let table = self.gid_table()?;
        let gids = || table.iter().filter(|entry| entry.port_num == u32::from(port_num));
        let index = match gid_index {
            Some(index) => index,
            None if port.link_layer == LinkLayer::Ethernet => {
                let best = default_gid_index(gids().map(|e| (e.gid_index, e.gid, e.gid_type)));
                let what = "the port has no address yet: bring its network interface up, with an IP address";
                best.ok_or_else(|| Error::invalid(VERB, what.into()))?
            }
            None => 0,
        };
        let Some(entry) = gids().find(|entry| entry.gid_index == u32::from(index)) else {
            return Err(Error::invalid(VERB, format!("port {port_num} has no GID {index}")));
        };
        let Some(active_mtu) = port.active_mtu else {
            return Err(Error::invalid(VERB, format!("port {port_num} reports no active MTU")));
        };
        Ok(LocalPort {
            port_num,
            link_layer: port.link_layer,
            lid: port.lid,
            active_mtu,
            grh_required: port.grh_required,
            gid: entry.gid,
            gid_type: entry.gid_type,
            gid_index: index,
        })
    }

    /// Limits the options to what the device supports.
    pub(crate) fn clamp(&self, options: &ConnectOptions) -> ConnectOptions {
        let device = self.query_device();
        let mut options = *options;
        options.max_rd_atomic =
            options.max_rd_atomic.min(device.max_qp_init_rd_atom.min(255) as u8);
        options.max_dest_rd_atomic =
            options.max_dest_rd_atomic.min(device.max_qp_rd_atom.min(255) as u8);
        if !device.has_atomics() {
            let all =
                AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
            options.access_flags.get_or_insert(all);
        }
        options
    }
}

impl<T: QueuePairTransport> QueuePair<T> {
    /// Returns what the peer needs to reach this queue pair. `psn` is the first sequence number to
    /// send.
    pub fn endpoint(&self, port: &LocalPort, psn: Psn, options: &ConnectOptions) -> Endpoint {
        let options = self.context().clamp(options);
        port.endpoint(T::QP_TYPE, self.number(), psn, &options)
    }

    fn number(&self) -> QpNumber {
        QpNumber::new(self.qp_num() & 0xff_ffff).unwrap_or_default()
    }

    /// Brings the queue pair to INIT, where receives can be posted.
    pub fn init(&mut self, port: &LocalPort, options: &ConnectOptions) -> Result<(), Error> {
        let options = self.context().clamp(options);
        self.modify(&to_init(T::QP_TYPE, port, &options))
    }
}

impl<T: Connected> QueuePair<T> {
    /// Connects the queue pair to `remote` and brings it to RTS, from RESET or INIT. `psn` is the
    /// one that was passed to [`QueuePair::endpoint`].
    pub fn connect(
        &mut self,
        port: &LocalPort,
        psn: Psn,
        remote: &Endpoint,
        options: &ConnectOptions,
    ) -> Result<(), Error> {
        const VERB: &str = "connect";
        let options = self.context().clamp(options);
        let to_rtr = to_rtr(T::QP_TYPE, port, remote, &options)
            .map_err(|error| Error::invalid(VERB, error.to_string()))?;
        if self.state() == QueueState::Reset {
            self.modify(&to_init(T::QP_TYPE, port, &options))?;
        }
        self.modify(&to_rtr)?;
        self.modify(&to_rts(T::QP_TYPE, psn, remote, &options))
    }

    /// Connects the queue pair to that of a peer, which makes the same call at the other end of
    /// `stream`. When it returns, both can send. Returns the peer's endpoint.
    ///
    /// The sides exchange their endpoints, connect, and tell each other when they have. Of the
    /// stream it takes exactly what the peer's call wrote, so a program can use the stream before
    /// and afterwards. Sequence numbers are random: a packet of an earlier connection is not taken
    /// for one of this.
    ///
    /// To have receives posted before the peer's first message, call [`QueuePair::init`], post
    /// them, and then connect. The time limit is that of the stream, for example
    /// [`TcpStream::set_read_timeout`](std::net::TcpStream::set_read_timeout).
    ///
    /// # Errors
    /// Errors of the stream. [`InvalidData`](io::ErrorKind::InvalidData) if the peer sent something
    /// else than an endpoint. For others [`io::Error::get_ref`] has the [`Error`]. Bring the queue
    /// pair back to RESET to use it again.
    ///
    /// ```no_run
    /// # use mlx5::{ConnectOptions, Context, ProtectionDomain, QueuePair, transport::Rc};
    /// # use std::net::TcpStream;
    /// # fn f(context: &Context, qp: &mut QueuePair<Rc>) -> Result<(), Box<dyn std::error::Error>> {
    /// let stream = TcpStream::connect("server:4791")?;
    /// qp.connect_over(&stream, &context.local_port(1, None)?, &ConnectOptions::default())?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect_over(
        &mut self,
        mut stream: impl Read + Write,
        port: &LocalPort,
        options: &ConnectOptions,
    ) -> io::Result<Endpoint> {
        let psn = Psn::wrapping(RandomState::new().hash_one(self.qp_num()) as u32);
        stream.write_all(&self.endpoint(port, psn, options).to_bytes())?;
        stream.flush()?;
        let mut bytes = [0; Endpoint::BYTES];
        stream.read_exact(&mut bytes).map_err(hung_up)?;
        let remote = Endpoint::from_bytes(&bytes)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        self.connect(port, psn, &remote, options)?;
        stream.write_all(&[CONNECTED])?;
        stream.flush()?;
        let mut answer = [0];
        stream.read_exact(&mut answer).map_err(hung_up)?;
        if answer != [CONNECTED] {
            let what = "the peer sent something else instead of telling that it is connected";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Ok(remote)
    }
}

/// What a side tells the other one once it is connected.
const CONNECTED: u8 = b'+';

/// Says what it means that the stream ended.
fn hung_up(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            io::Error::new(error.kind(), "the peer hung up before it was connected")
        }
        _ => error,
    }
}

impl QueuePair<Ud> {
    /// Brings a datagram queue pair to RTS, from RESET or INIT.
    pub fn activate(
        &mut self,
        port: &LocalPort,
        psn: Psn,
        options: &ConnectOptions,
    ) -> Result<(), Error> {
        if self.state() == QueueState::Reset {
            self.init(port, options)?;
        }
        self.modify(&datagram_to_rtr())?;
        self.modify(&datagram_to_rts(psn))
    }
}

impl ProtectionDomain {
    /// Creates an address handle for the queue pair at `remote`.
    pub fn create_ah_to(
        &self,
        port: &LocalPort,
        remote: &Endpoint,
        options: &ConnectOptions,
    ) -> Result<AddressHandle, Error> {
        let path = path_to(port, remote, options)
            .map_err(|error| Error::invalid("create_ah", error.to_string()))?;
        self.create_ah(&path)
    }
}
