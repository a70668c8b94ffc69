//! Bringing a queue pair to RTS in few calls.

use super::endpoint::{
    ConnectOptions, Endpoint, LocalPort, datagram_to_rtr, datagram_to_rts, default_gid_index,
    path_to, remote_rights, to_init, to_rtr, to_rts,
};
use super::shared::MODIFY;
use super::{Psn, QpAttributes, QpNumber, QueuePair, QueuePairTransport, SharedQueuePair};
use crate::address::AddressHandle;
use crate::context::Context;
use crate::error::Error;
use crate::memory::ProtectionDomain;
use mlx5_uapi::verbs::{AccessFlags, LinkLayer, QpType};
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
    /// Returns the properties of a port that connecting needs. `gid_index` selects the address.
    /// Default: the first one on InfiniBand; on Ethernet RoCE v2 before v1, routable before
    /// link-local.
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
    pub(crate) fn clamp(&self, transport: QpType, options: &ConnectOptions) -> ConnectOptions {
        let device = self.query_device();
        let mut options = *options;
        options.max_rd_atomic =
            options.max_rd_atomic.min(device.max_qp_init_rd_atom.min(255) as u8);
        options.max_dest_rd_atomic =
            options.max_dest_rd_atomic.min(device.max_qp_rd_atom.min(255) as u8);
        if !device.has_atomics() {
            let rights = remote_rights(transport) - AccessFlags::REMOTE_ATOMIC;
            options.access_flags.get_or_insert(rights);
        }
        options
    }
}

impl<T: QueuePairTransport> QueuePair<T> {
    /// Returns the address and numbers that the peer needs to reach this queue pair. `psn` is the
    /// first sequence number to send.
    pub fn endpoint(&self, port: &LocalPort, psn: Psn, options: &ConnectOptions) -> Endpoint {
        self.context().endpoint_of::<T>(self.qp_num(), port, psn, options)
    }

    /// Brings the queue pair to INIT, where receives can be posted.
    pub fn init(&mut self, port: &LocalPort, options: &ConnectOptions) -> Result<(), Error> {
        let options = self.context().clamp(T::QP_TYPE, options);
        self.modify(&to_init(T::QP_TYPE, port, &options))
    }
}

impl Context {
    /// Returns the endpoint that the peer of a queue pair needs.
    fn endpoint_of<T: QueuePairTransport>(
        &self,
        qp_num: u32,
        port: &LocalPort,
        psn: Psn,
        options: &ConnectOptions,
    ) -> Endpoint {
        let number = QpNumber::new(qp_num & 0xff_ffff).unwrap_or_default();
        port.endpoint(T::QP_TYPE, number, psn, &self.clamp(T::QP_TYPE, options))
    }

    /// Returns the changes of state that connect a queue pair, which is in `state`.
    fn connecting<T: Connected>(
        &self,
        state: QueueState,
        port: &LocalPort,
        psn: Psn,
        remote: &Endpoint,
        options: &ConnectOptions,
    ) -> Result<impl Iterator<Item = QpAttributes> + use<T>, Error> {
        let options = self.clamp(T::QP_TYPE, options);
        let to_rtr = to_rtr(T::QP_TYPE, port, remote, &options)
            .map_err(|error| Error::invalid("connect", error.to_string()))?;
        let to_rts = to_rts(T::QP_TYPE, psn, remote, &options);
        let to_init = (state == QueueState::Reset).then(|| to_init(T::QP_TYPE, port, &options));
        Ok(to_init.into_iter().chain([to_rtr, to_rts]))
    }

    /// Returns the changes of state that bring a datagram queue pair, which is in `state`, to RTS.
    fn activating(
        &self,
        state: QueueState,
        port: &LocalPort,
        psn: Psn,
        options: &ConnectOptions,
    ) -> impl Iterator<Item = QpAttributes> + use<> {
        let to_init = to_init(Ud::QP_TYPE, port, &self.clamp(Ud::QP_TYPE, options));
        let to_init = (state == QueueState::Reset).then_some(to_init);
        to_init.into_iter().chain([datagram_to_rtr(), datagram_to_rts(psn)])
    }
}

impl<T: Connected> QueuePair<T> {
    /// Connects the queue pair to `remote` and brings it to RTS, from RESET or INIT. `psn` must be
    /// the one that was passed to [`QueuePair::endpoint`].
    pub fn connect(
        &mut self,
        port: &LocalPort,
        psn: Psn,
        remote: &Endpoint,
        options: &ConnectOptions,
    ) -> Result<(), Error> {
        let mut steps = self.context().connecting::<T>(self.state(), port, psn, remote, options)?;
        steps.try_for_each(|step| self.modify(&step))
    }

    /// Connects the queue pair and another one of this process, at the same port, to each other.
    pub fn connect_to(
        &mut self,
        other: &mut Self,
        port: &LocalPort,
        options: &ConnectOptions,
    ) -> Result<(), Error> {
        let psn = Psn::default();
        let [here, there] = [&*self, &*other].map(|qp| qp.endpoint(port, psn, options));
        self.connect(port, psn, &there, options)?;
        other.connect(port, psn, &here, options)
    }

    /// Connects the queue pair to that of a peer, which makes the same call at the other end of
    /// `stream`. When it returns, both can send. Returns the peer's endpoint.
    ///
    /// The sides exchange their endpoints, connect, and confirm it to each other. Each reads from
    /// the stream exactly the bytes that the other's call wrote, so a program can use the stream
    /// before and afterwards. Sequence numbers are random, so that a packet of an earlier
    /// connection is not mistaken for one of this.
    ///
    /// To have receives posted before the peer's first message, call [`QueuePair::init`], post
    /// them, and then connect. The time limit is that of the stream, for example
    /// [`TcpStream::set_read_timeout`](std::net::TcpStream::set_read_timeout).
    ///
    /// # A thread that polls meanwhile
    /// The peer may send before this call returns. A thread that polls the completion queue then
    /// gets a completion of a queue pair that the program may not have registered yet. Register it
    /// before the call: its number ([`QueuePair::qp_num`]) and its tag are valid since its
    /// creation. A queue pair that several threads use goes to the polling thread first
    /// ([`QueuePair::into_shared`]), and connects by [`SharedQueuePair::connect_over`].
    ///
    /// # Errors
    /// Errors of the stream. [`InvalidData`](io::ErrorKind::InvalidData) if the peer sent something
    /// other than an endpoint. For other errors, [`io::Error::get_ref`] has the [`Error`]. Bring
    /// the queue pair back to RESET to use it again.
    ///
    /// ```no_run
    /// # use mlx5::{ConnectOptions, Context, ProtectionDomain, QueuePair, transport::Rc};
    /// # use std::net::TcpStream;
    /// # fn f(context: &Context, qp: &mut QueuePair<Rc>)
    /// #     -> Result<(), Box<dyn std::error::Error>> {
    /// let stream = TcpStream::connect("server:4791")?;
    /// qp.connect_over(&stream, &context.local_port(1, None)?, &ConnectOptions::default())?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect_over(
        &mut self,
        stream: impl Read + Write,
        port: &LocalPort,
        options: &ConnectOptions,
    ) -> io::Result<Endpoint> {
        let psn = random_psn(self.qp_num());
        let own = self.endpoint(port, psn, options);
        exchange(stream, &own, |remote| self.connect(port, psn, remote, options))
    }
}

impl<T: QueuePairTransport> SharedQueuePair<T> {
    /// Returns the endpoint that the peer needs to reach this queue pair. See
    /// [`QueuePair::endpoint`].
    pub fn endpoint(&self, port: &LocalPort, psn: Psn, options: &ConnectOptions) -> Endpoint {
        self.context().endpoint_of::<T>(self.qp_num(), port, psn, options)
    }

    /// Brings the queue pair to INIT. See [`QueuePair::init`]. All halves are locked meanwhile.
    pub fn init(&self, port: &LocalPort, options: &ConnectOptions) -> Result<(), Error> {
        let options = self.context().clamp(T::QP_TYPE, options);
        self.modify(&to_init(T::QP_TYPE, port, &options))
    }
}

impl<T: Connected> SharedQueuePair<T> {
    /// Connects the queue pair. See [`QueuePair::connect`]. The control half is locked meanwhile;
    /// the others only while the queue pair leaves RESET.
    ///
    /// ```no_run
    /// # use mlx5::{CompletionQueue, ConnectOptions, SharedQueuePair, transport::Rc};
    /// # use std::net::TcpStream;
    /// # fn f(qp: &SharedQueuePair<Rc>, cq: &mut CompletionQueue, peer: &TcpStream)
    /// #     -> Result<(), Box<dyn std::error::Error>> {
    /// // After an error: back to work, while other threads keep the queue pair.
    /// for request in qp.quiesce(&mut [cq], |_| {})? {
    ///     println!("not done: {request:?}");
    /// }
    /// qp.reset()?;
    /// let port = qp.context().local_port(1, None)?;
    /// qp.connect_over(peer, &port, &ConnectOptions::default())?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect(
        &self,
        port: &LocalPort,
        psn: Psn,
        remote: &Endpoint,
        options: &ConnectOptions,
    ) -> Result<(), Error> {
        let mut control = self.own_control(MODIFY)?;
        let mut steps =
            self.context().connecting::<T>(control.state(), port, psn, remote, options)?;
        steps.try_for_each(|step| self.modify_locked(&mut control, &step))
    }

    /// Connects the queue pair to that of a peer at the other end of `stream`. See
    /// [`QueuePair::connect_over`]. Nothing is locked while it waits for the peer.
    pub fn connect_over(
        &self,
        stream: impl Read + Write,
        port: &LocalPort,
        options: &ConnectOptions,
    ) -> io::Result<Endpoint> {
        let psn = random_psn(self.qp_num());
        let own = self.endpoint(port, psn, options);
        exchange(stream, &own, |remote| self.connect(port, psn, remote, options))
    }
}

/// Returns a packet sequence number that differs from that of an earlier connection.
fn random_psn(qp_num: u32) -> Psn {
    Psn::wrapping(RandomState::new().hash_one(qp_num) as u32)
}

/// Exchanges endpoints over `stream`, calls `connect` with the peer's, and waits until the peer has
/// connected, too.
fn exchange(
    mut stream: impl Read + Write,
    own: &Endpoint,
    connect: impl FnOnce(&Endpoint) -> Result<(), Error>,
) -> io::Result<Endpoint> {
    stream.write_all(&own.to_bytes())?;
    stream.flush()?;
    let mut bytes = [0; Endpoint::BYTES];
    stream.read_exact(&mut bytes).map_err(hung_up)?;
    let remote = Endpoint::from_bytes(&bytes)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    connect(&remote)?;
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

/// A side sends this byte once it is connected.
const CONNECTED: u8 = b'+';

/// Explains the early end of the stream.
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
        let mut steps = self.context().activating(self.state(), port, psn, options);
        steps.try_for_each(|step| self.modify(&step))
    }
}

impl SharedQueuePair<Ud> {
    /// Brings a datagram queue pair to RTS. See [`QueuePair::activate`]. The control half is locked
    /// meanwhile; the others only while the queue pair leaves RESET.
    pub fn activate(
        &self,
        port: &LocalPort,
        psn: Psn,
        options: &ConnectOptions,
    ) -> Result<(), Error> {
        let mut control = self.own_control(MODIFY)?;
        let mut steps = self.context().activating(control.state(), port, psn, options);
        steps.try_for_each(|step| self.modify_locked(&mut control, &step))
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
