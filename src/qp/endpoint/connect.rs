//! The attributes that connect a queue pair, from the facts about both sides.

use super::{ConnectError, Endpoint};
use crate::address::{AhAttr, GlobalRoute};
use crate::context::Gid;
use crate::qp::attributes::{AckTimeout, Psn, QpAttributes, QpNumber, RetryCount, RnrTimer};
use mlx5_uapi::verbs::{AccessFlags, GidType, LinkLayer, Mtu, QpType};
use mlx5_wqe::QueueState;

/// What is to be known of this side's port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalPort {
    /// The port, counted from 1.
    pub port_num: u8,
    /// Its link layer.
    pub link_layer: LinkLayer,
    /// Its LID; 0 on Ethernet.
    pub lid: u16,
    /// The largest packet of the link.
    pub active_mtu: Mtu,
    /// Whether every packet must have a global route (`IBV_QPF_GRH_REQUIRED`).
    pub grh_required: bool,
    /// The GID to use.
    pub gid: Gid,
    /// Its type.
    pub gid_type: GidType,
    /// Where it is in the port's table.
    pub gid_index: u8,
}

impl LocalPort {
    /// What to tell the peer about a queue pair on this port.
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

/// One option a row: its type, and what it is unless set.
macro_rules! options {
    ($( $(#[$doc:meta])* $name:ident: $ty:ty = $default:expr; )*) => {
        /// How to connect: what the facts about the two sides leave open.
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
    /// Index of the P_Key; 0 unless set.
    pkey_index: u16 = 0;
    /// What the peer may do. Unless set, all that the transport has; on a device without atomics
    /// it must be set.
    access_flags: Option<AccessFlags> = None;
    /// The Q_Key of a datagram queue pair; 0x11111111 unless set.
    qkey: u32 = 0x1111_1111;
    /// The largest packet to send, below what both ports take.
    path_mtu: Option<Mtu> = None;
    /// Acknowledge timeout; 14, which is 67 ms, unless set.
    timeout: AckTimeout = const { literal(AckTimeout::new(14)) };
    /// Retries; 7 unless set.
    retry_cnt: RetryCount = RetryCount::MAX;
    /// Retries while the peer has no receive posted; 7, which is for ever, unless set.
    rnr_retry: RetryCount = RetryCount::MAX;
    /// How long the peer waits when this side has no receive posted; 12, which is 0.64 ms, unless
    /// set.
    min_rnr_timer: RnrTimer = const { literal(RnrTimer::new(12)) };
    /// Reads and atomics outstanding as initiator, if the peer answers as many; 16 unless set. The
    /// device may allow less.
    max_rd_atomic: u8 = 16;
    /// Reads and atomics to answer at a time; 16 unless set. The device may allow less.
    max_dest_rd_atomic: u8 = 16;
    /// Service level; on Ethernet the priority. 0 unless set.
    sl: u8 = 0;
    /// Traffic class of a global route; 0 unless set.
    traffic_class: u8 = 0;
    /// Flow label of a global route, 20 bits; 0 unless set.
    flow_label: u32 = 0;
    /// Hop limit of a global route; 64 unless set.
    hop_limit: u8 = 64;
    /// The most speed, by the number that `enum ibv_rate` gives it; 0, the port's, unless set.
    static_rate: u8 = 0;
    /// LID of the router, when the peer is in another InfiniBand subnet whose LIDs mean nothing
    /// here.
    router_lid: Option<u16> = None;
}

/// A value that is known to fit, at compile time.
const fn literal<T: Copy, E: Copy>(value: Result<T, E>) -> T {
    match value {
        Ok(value) => value,
        Err(_) => panic!("out of range"),
    }
}

impl ConnectOptions {
    fn limit_mtu(&self, mtu: Mtu) -> Mtu {
        self.path_mtu.map_or(mtu, |limit| limit.min(mtu))
    }
}

/// What a queue pair of this transport is connected to.
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

/// INIT to RTR, of a connection.
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

/// RTR to RTS, of a connection. `psn` is what the own [`Endpoint`] told the peer.
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
            // A responder that gets more than it has room for answers with an error.
            .max_rd_atomic(options.max_rd_atomic.min(remote.rd_atomic)),
        _ => attributes,
    }
}

/// INIT to RTR, of UD.
pub(crate) fn datagram_to_rtr() -> QpAttributes {
    QpAttributes::new().qp_state(QueueState::ReadyToReceive)
}

/// RTR to RTS, of UD.
pub(crate) fn datagram_to_rts(psn: Psn) -> QpAttributes {
    QpAttributes::new().qp_state(QueueState::ReadyToSend).sq_psn(psn)
}

/// The path from this port to the peer: of a connection, or for an address handle.
///
/// On Ethernet it is always a global route. On InfiniBand it is one when the port demands it, when
/// the peer has no LID, or when the subnet prefixes differ.
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

/// Whether two InfiniBand GIDs, as far as they are known, are of different subnets.
fn in_other_subnet(local: Gid, remote: Gid) -> bool {
    !local.is_zero() && !remote.is_zero() && local.subnet_prefix() != remote.subnet_prefix()
}

/// What a transport lets a peer do at most.
fn remote_rights(transport: QpType) -> AccessFlags {
    match transport {
        QpType::Uc => AccessFlags::REMOTE_WRITE,
        _ => AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_ATOMIC,
    }
}

/// The GID to use when nobody chose one: of the rows (index, GID, type) of a port's table the one
/// that routes farthest. RoCE v2 goes before v1, and of each an IPv4 address before a global IPv6
/// one before a link-local one; among equals the first row wins. On InfiniBand it is the first row
/// that is not empty.
pub(crate) fn default_gid_index(rows: impl IntoIterator<Item = (u32, Gid, GidType)>) -> Option<u8> {
    rows.into_iter()
        .filter(|(_, gid, _)| !gid.is_zero())
        // What does not fit the field of a path cannot be used.
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
