//! The attributes that connect a queue pair, from the properties of both sides.

use super::{ConnectError, Endpoint};
use crate::address::{AhAttr, Dscp, Ecn, GlobalRoute, TrafficClass, UdpSourcePort};
use crate::context::Gid;
use crate::qp::attributes::{AckTimeout, Psn, QpAttributes, QpNumber, RetryCount, RnrTimer};
use mlx5_uapi::verbs::{AccessFlags, GidType, LinkLayer, Mtu, QpType};
use mlx5_wqe::QueueState;

/// The properties of this side's port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalPort {
    /// The port, counted from 1.
    pub port_num: u8,
    /// Its link layer.
    pub link_layer: LinkLayer,
    /// Its LID; 0 on Ethernet.
    pub lid: u16,
    /// The maximum packet size of the link.
    pub active_mtu: Mtu,
    /// Whether every packet must have a global route (`IBV_QPF_GRH_REQUIRED`).
    pub grh_required: bool,
    /// The GID to use.
    pub gid: Gid,
    /// Its type.
    pub gid_type: GidType,
    /// Its index in the port's table.
    pub gid_index: u8,
}

impl LocalPort {
    /// Returns the endpoint of a queue pair on this port.
    pub fn endpoint(
        &self,
        transport: QpType,
        qp_num: QpNumber,
        psn: Psn,
        options: &ConnectOptions,
    ) -> Endpoint {
        Endpoint {
            transport,
            qp_num,
            psn,
            qkey: (transport == QpType::Ud).then_some(options.qkey),
            lid: self.lid,
            gid: self.gid,
            gid_type: self.gid_type,
            gid_index: self.gid_index,
            mtu: options.limit_mtu(self.active_mtu),
            rd_atomic: options.max_dest_rd_atomic,
        }
    }

    const fn is_ethernet(&self) -> bool {
        matches!(self.link_layer, LinkLayer::Ethernet)
    }
}

/// One option per row: its type and its default.
macro_rules! options {
    ($( $(#[$doc:meta])* $name:ident: $ty:ty = $default:expr; )*) => {
        /// Options of a connection, beyond the properties of both sides.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[non_exhaustive]
        pub struct ConnectOptions {
            $( $(#[$doc])* pub $name: $ty, )*
        }

        impl Default for ConnectOptions {
            fn default() -> Self {
                Self { $( $name: $default, )* }
            }
        }

        impl ConnectOptions {
            $(
                $(#[$doc])*
                #[must_use]
                pub const fn $name(mut self, value: $ty) -> Self {
                    self.$name = value;
                    self
                }
            )*
        }
    };
}

options! {
    /// Index of the P_Key in the port's table. Default: 0. The kernel refuses an index outside the
    /// table.
    pkey_index: u16 = 0;
    /// Access rights of the peer, within those of each region. Default: all that transport and
    /// device support. Ignored for UD.
    access_flags: Option<AccessFlags> = None;
    /// Q_Key of a datagram queue pair. Default: 0x11111111. The kernel refuses one with the top bit
    /// set to a process without `CAP_NET_RAW`. Ignored for connections.
    qkey: u32 = 0x1111_1111;
    /// Maximum packet size, if it should be less than both ports support. Default: the smaller of
    /// both. A larger one is lowered to it.
    path_mtu: Option<Mtu> = None;
    /// Acknowledge timeout. Default: 14, which is 67 ms. [`AckTimeout::at_least`] returns that of a
    /// time. A ConnectX-6 was measured to wait twice as long as it says, and never less than 0.5 s.
    timeout: AckTimeout = const { literal(AckTimeout::new(14)) };
    /// Number of retries. Default: 7, the maximum.
    retry_cnt: RetryCount = RetryCount::MAX;
    /// Number of retries while the peer has no receive posted. Default: 7, which means without
    /// limit.
    rnr_retry: RetryCount = RetryCount::MAX;
    /// Time that the peer waits when this side has no receive posted. Default: 12, which is 0.64
    /// ms.
    min_rnr_timer: RnrTimer = const { literal(RnrTimer::new(12)) };
    /// Maximum number of outstanding reads and atomics as initiator. Default: 16. Lowered to the
    /// number that the device supports and the peer answers.
    max_rd_atomic: u8 = 16;
    /// Maximum number of outstanding reads and atomics as responder. Default: 16. Lowered to the
    /// number that the device supports.
    max_dest_rd_atomic: u8 = 16;
    /// Service level; the priority on Ethernet. Default: 0. Refused above 15, on Ethernet above 7.
    sl: u8 = 0;
    /// Traffic class of a global route. Default: 0. Any number. [`ConnectOptions::dscp`] and
    /// [`ConnectOptions::ecn`] set its parts by name.
    traffic_class: u8 = 0;
    /// Flow label of a global route. Default: 0. Refused above 20 bits. On RoCE v2 it determines
    /// the UDP source port: see [`ConnectOptions::udp_source_port`].
    flow_label: u32 = 0;
    /// Hop limit of a global route. Default: 64. Any number.
    hop_limit: u8 = 64;
    /// Maximum rate, as a number of `enum ibv_rate`. Default: 0, the rate of the port. The kernel
    /// refuses an undefined number, and lowers a rate that the device lacks.
    static_rate: u8 = 0;
    /// LID of the router, for a peer in another InfiniBand subnet, whose LID is not valid here.
    /// Default: none. Ignored for a peer in the same subnet, and on Ethernet.
    router_lid: Option<u16> = None;
}

/// Unwraps a valid constant at compile time.
const fn literal<T: Copy, E: Copy>(value: Result<T, E>) -> T {
    match value {
        Ok(value) => value,
        Err(_) => panic!("out of range"),
    }
}

impl ConnectOptions {
    /// Sets the DSCP of the traffic class, and keeps its ECN. Default: [`Dscp::CS0`].
    #[must_use]
    pub const fn dscp(self, dscp: Dscp) -> Self {
        let ecn = TrafficClass::from_number(self.traffic_class).ecn;
        self.traffic_class(TrafficClass::new(dscp, ecn).number())
    }

    /// Sets the ECN of the traffic class, and keeps its DSCP. Default: [`Ecn::NotEct`]. Connected
    /// queue pairs ignore it on RoCE v2: see [`TrafficClass`].
    #[must_use]
    pub const fn ecn(self, ecn: Ecn) -> Self {
        let dscp = TrafficClass::from_number(self.traffic_class).dscp;
        self.traffic_class(TrafficClass::new(dscp, ecn).number())
    }

    /// Sets a flow label that results in this UDP source port, on RoCE v2. Default: flow label 0,
    /// with which kernel and driver choose the port.
    #[must_use]
    pub const fn udp_source_port(self, port: UdpSourcePort) -> Self {
        self.flow_label(port.flow_label())
    }

    fn limit_mtu(&self, mtu: Mtu) -> Mtu {
        self.path_mtu.map_or(mtu, |limit| limit.min(mtu))
    }
}

/// Returns the transport of the peer of a connection.
const fn peer_of(transport: QpType) -> Option<QpType> {
    match transport {
        QpType::Rc | QpType::Uc => Some(transport),
        QpType::XrcIni => Some(QpType::XrcTgt),
        QpType::XrcTgt => Some(QpType::XrcIni),
        _ => None,
    }
}

/// RESET to INIT.
pub(crate) fn to_init(
    transport: QpType,
    local: &LocalPort,
    options: &ConnectOptions,
) -> QpAttributes {
    let attributes = QpAttributes::new()
        .qp_state(QueueState::Init)
        .pkey_index(options.pkey_index)
        .port_num(local.port_num);
    match transport {
        QpType::Ud => attributes.qkey(options.qkey),
        _ => attributes.qp_access_flags(options.access_flags.unwrap_or(remote_rights(transport))),
    }
}

/// INIT to RTR, for a connection.
pub(crate) fn to_rtr(
    transport: QpType,
    local: &LocalPort,
    remote: &Endpoint,
    options: &ConnectOptions,
) -> Result<QpAttributes, ConnectError> {
    let Some(peer) = peer_of(transport) else {
        return Err(ConnectError::NotConnected { transport });
    };
    if remote.transport != peer {
        return Err(ConnectError::Transport { local: transport, remote: remote.transport });
    }
    let attributes = QpAttributes::new()
        .qp_state(QueueState::ReadyToReceive)
        .ah_attr(path_to(local, remote, options)?)
        .path_mtu(options.limit_mtu(local.active_mtu.min(remote.mtu)))
        .dest_qp_num(remote.qp_num)
        .rq_psn(remote.psn);
    Ok(match transport {
        QpType::Rc | QpType::XrcTgt => attributes
            .max_dest_rd_atomic(options.max_dest_rd_atomic)
            .min_rnr_timer(options.min_rnr_timer),
        _ => attributes,
    })
}

/// RTR to RTS, for a connection. `psn` is that of this side's [`Endpoint`].
pub(crate) fn to_rts(
    transport: QpType,
    psn: Psn,
    remote: &Endpoint,
    options: &ConnectOptions,
) -> QpAttributes {
    let attributes = datagram_to_rts(psn);
    match transport {
        QpType::XrcTgt => attributes.timeout(options.timeout),
        QpType::Rc | QpType::XrcIni => attributes
            .timeout(options.timeout)
            .retry_cnt(options.retry_cnt)
            .rnr_retry(options.rnr_retry)
            // A responder that gets more than it supports answers with an error.
            .max_rd_atomic(options.max_rd_atomic.min(remote.rd_atomic)),
        _ => attributes,
    }
}

/// INIT to RTR, for UD.
pub(crate) fn datagram_to_rtr() -> QpAttributes {
    QpAttributes::new().qp_state(QueueState::ReadyToReceive)
}

/// RTR to RTS, for UD.
pub(crate) fn datagram_to_rts(psn: Psn) -> QpAttributes {
    QpAttributes::new().qp_state(QueueState::ReadyToSend).sq_psn(psn)
}

/// Returns the path from this port to the peer, for a connection or an address handle.
///
/// On Ethernet it is always a global route. On InfiniBand it is one if the port requires it, the
/// peer has no LID, or the subnet prefixes differ.
pub(crate) fn path_to(
    local: &LocalPort,
    remote: &Endpoint,
    options: &ConnectOptions,
) -> Result<AhAttr, ConnectError> {
    let layers = (local.is_ethernet(), remote.link_layer() == LinkLayer::Ethernet);
    if layers.0 != layers.1 {
        return Err(ConnectError::LinkLayer {
            local: local.link_layer,
            remote: remote.link_layer(),
        });
    }
    if local.is_ethernet() && local.gid_type != remote.gid_type {
        return Err(ConnectError::GidType { local: local.gid_type, remote: remote.gid_type });
    }
    let elsewhere = !local.is_ethernet() && in_other_subnet(local.gid, remote.gid);
    let grh = if local.is_ethernet() || local.grh_required || remote.lid == 0 || elsewhere {
        if local.gid.is_zero() {
            return Err(ConnectError::NoLocalGid);
        }
        if remote.gid.is_zero() {
            return Err(ConnectError::NoRemoteGid);
        }
        Some(GlobalRoute {
            dgid: remote.gid,
            flow_label: options.flow_label,
            sgid_index: local.gid_index,
            hop_limit: options.hop_limit,
            traffic_class: options.traffic_class,
        })
    } else {
        None
    };
    let router = options.router_lid.filter(|_| elsewhere);
    Ok(AhAttr {
        port_num: local.port_num,
        dlid: if local.is_ethernet() { 0 } else { router.unwrap_or(remote.lid) },
        sl: options.sl,
        src_path_bits: 0,
        static_rate: options.static_rate,
        grh,
    })
}

/// Whether two InfiniBand GIDs are known to be of different subnets.
fn in_other_subnet(local: Gid, remote: Gid) -> bool {
    !local.is_zero() && !remote.is_zero() && local.subnet_prefix() != remote.subnet_prefix()
}

/// Returns all access rights that a transport can give a peer.
pub(crate) fn remote_rights(transport: QpType) -> AccessFlags {
    match transport {
        QpType::Uc => AccessFlags::REMOTE_WRITE,
        _ => AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_ATOMIC,
    }
}

/// Selects the default GID among the rows (index, GID, type) of a port's table: the one with the
/// widest reach. RoCE v2 comes before v1, and within each version an IPv4 address before a global
/// IPv6 one before a link-local one; among equals the first row. On InfiniBand it is the first row
/// that is not empty.
pub(crate) fn default_gid_index(rows: impl IntoIterator<Item = (u32, Gid, GidType)>) -> Option<u8> {
    rows.into_iter()
        .filter(|(_, gid, _)| !gid.is_zero())
        // An index that does not fit the field of a path cannot be used.
        .filter_map(|(index, gid, gid_type)| Some((u8::try_from(index).ok()?, gid, gid_type)))
        .min_by_key(|(index, gid, gid_type)| (rank(*gid, *gid_type), *index))
        .map(|(index, ..)| index)
}

fn rank(gid: Gid, gid_type: GidType) -> (u8, u8) {
    let scope = match gid {
        gid if gid.is_ipv4_mapped() => 0,
        gid if gid.is_link_local() => 2,
        _ => 1,
    };
    match gid_type {
        GidType::InfiniBand => (0, 0),
        GidType::RoceV2 => (1, scope),
        GidType::RoceV1 => (2, scope),
    }
}
