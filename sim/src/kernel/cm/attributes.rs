//! The attributes of a connection's queue pair, and the paths that they follow from.

use mlx5_uapi::Errno;
use mlx5_uapi::rdma_cm::{PATH_FLAGS, PathData, PathRecord, PortSpace};
use mlx5_uapi::verbs::{AccessFlags, AhAttr, GlobalRoute, QpAttr, QpAttrMask, QpState, QpType};

use crate::config::LinkLayer;
use crate::engine::Gid;
use crate::kernel::cm::network::Network;
use crate::kernel::cm::state::{Id, Link};

/// `RDMA_UDP_QKEY`.
const DATAGRAM_QKEY: u32 = 0x0123_4567;
/// The Q_Key of an IPoIB interface.
const IPOIB_QKEY: u32 = 0x0000_0b1b;
/// The default time limit of an acknowledgement: twice the life of a packet on Ethernet
/// (`CMA_IBOE_PACKET_LIFETIME`).
const ACK_TIMEOUT: u8 = 19;
/// `CMA_IBOE_PACKET_LIFETIME`.
const PACKET_LIFE_TIME: u8 = 18;
/// 100 Gb/s, as a rate of a path (`IB_RATE_100_GBPS`).
const RATE: u8 = 16;
/// Hops of a packet over IP.
const HOP_LIMIT: u8 = 64;
/// The most retries that fit in a message or a queue pair's context.
pub(super) const MOST_RETRIES: u8 = 7;

/// The GIDs of both ends: on InfiniBand those of the ports, whatever their IP addresses.
pub(super) fn gids(network: &Network, id: &Id) -> Option<(Gid, Gid)> {
    let (here, there) = (network.facts(id.place?)?, network.facts(id.remote?)?);
    Some(match here.link_layer {
        LinkLayer::InfiniBand => (here.gid, there.gid),
        LinkLayer::Ethernet => (id.source?.gid(), id.destination?.gid()),
    })
}

/// The path to the other end.
pub(super) fn path(network: &Network, id: &Id) -> Option<AhAttr> {
    let place = id.place?;
    let (here, there) = (network.facts(place)?, network.facts(id.remote?)?);
    let (sgid, dgid) = gids(network, id)?;
    let port_num = place.port;
    Some(match here.link_layer {
        LinkLayer::InfiniBand => AhAttr { dlid: there.lid, port_num, ..AhAttr::default() },
        LinkLayer::Ethernet => AhAttr {
            grh: GlobalRoute {
                dgid,
                sgid_index: network.gid_index(place, &sgid)?,
                hop_limit: HOP_LIMIT,
                traffic_class: id.options.tos,
                ..GlobalRoute::default()
            },
            is_global: 1,
            port_num,
            ..AhAttr::default()
        },
    })
}

/// The record of the path.
pub(super) fn path_record(network: &Network, id: &Id) -> Option<PathRecord> {
    let (here, there) = (network.facts(id.place?)?, network.facts(id.remote?)?);
    let (sgid, dgid) = gids(network, id)?;
    Some(PathRecord {
        dgid,
        sgid,
        dlid: there.lid.to_be_bytes(),
        slid: here.lid.to_be_bytes(),
        reversible: 1,
        mtu: here.mtu.raw().min(there.mtu.raw()).into(),
        pkey: here.pkey.to_be_bytes(),
        hop_limit: HOP_LIMIT,
        traffic_class: id.options.tos,
        numb_path: 1,
        mtu_selector: 2,
        rate_selector: 2,
        rate: RATE,
        packet_life_time_selector: 2,
        packet_life_time: PACKET_LIFE_TIME,
        ..PathRecord::default()
    })
}

/// The same as the subnet administrator sends it (`struct ib_path_record`).
pub(super) fn path_data(record: &PathRecord) -> PathData {
    const EXACTLY: u8 = 2 << 6;
    let mut bytes = [0; 64];
    bytes[8..24].copy_from_slice(&record.dgid);
    bytes[24..40].copy_from_slice(&record.sgid);
    bytes[40..42].copy_from_slice(&record.dlid);
    bytes[42..44].copy_from_slice(&record.slid);
    bytes[47] = record.hop_limit;
    bytes[48] = record.traffic_class;
    // Both ways, and one path.
    bytes[49] = 1 << 7 | record.numb_path;
    bytes[50..52].copy_from_slice(&record.pkey);
    bytes[53] = record.sl;
    bytes[54] = EXACTLY | record.mtu as u8;
    bytes[55] = EXACTLY | record.rate;
    bytes[56] = EXACTLY | record.packet_life_time;
    PathData { flags: PATH_FLAGS, reserved: 0, path_rec: bytes }
}

/// The Q_Key of an identifier for datagrams.
pub(super) fn qkey(id: &Id) -> u32 {
    if id.space == PortSpace::IpoIb { IPOIB_QKEY } else { DATAGRAM_QKEY }
}

/// The attributes with which a queue pair enters a state.
pub(super) fn attributes(network: &Network, id: &Id, state: u32) -> Result<QpAttr, Errno> {
    let state = u8::try_from(state).ok().and_then(QpState::from_raw).ok_or(Errno::EINVAL)?;
    let place = id.place.ok_or(Errno::EINVAL)?;
    let mut attr = QpAttr { qp_state: u32::from(state.raw()), ..QpAttr::default() };
    let mut mask = QpAttrMask::STATE;
    let connected = id.link != Link::None && !id.is_ud();
    match state {
        _ if id.is_ud() => {
            attr.port_num = place.port;
            attr.qkey = qkey(id);
            mask |= QpAttrMask::PKEY_INDEX | QpAttrMask::PORT | QpAttrMask::QKEY;
        }
        QpState::Init => {
            attr.port_num = place.port;
            mask |= QpAttrMask::PKEY_INDEX | QpAttrMask::PORT | QpAttrMask::ACCESS_FLAGS;
            if connected {
                let mut access = AccessFlags::REMOTE_WRITE;
                if id.own.responder_resources > 0 {
                    access |= AccessFlags::REMOTE_READ | AccessFlags::REMOTE_ATOMIC;
                }
                attr.qp_access_flags = access.bits();
            }
        }
        QpState::Rtr if is_known(id) => {
            let record = path_record(network, id).ok_or(Errno::ENODEV)?;
            attr.ah_attr = path(network, id).ok_or(Errno::ENODEV)?;
            attr.path_mtu = record.mtu;
            attr.dest_qp_num = id.other.qp_num;
            attr.rq_psn = id.psn;
            mask |=
                QpAttrMask::AV | QpAttrMask::PATH_MTU | QpAttrMask::DEST_QPN | QpAttrMask::RQ_PSN;
            if matches!(id.qp_type, QpType::Rc | QpType::XrcTgt) {
                attr.max_dest_rd_atomic = id.own.responder_resources;
                mask |= QpAttrMask::MAX_DEST_RD_ATOMIC | QpAttrMask::MIN_RNR_TIMER;
            }
        }
        QpState::Rts if is_known(id) => {
            attr.sq_psn = id.other_psn;
            mask |= QpAttrMask::SQ_PSN;
            if matches!(id.qp_type, QpType::Rc | QpType::XrcIni) {
                attr.retry_cnt = id.retry_count;
                attr.rnr_retry = id.other.rnr_retry_count.min(MOST_RETRIES);
                attr.max_rd_atomic = id.own.initiator_depth;
                mask |=
                    QpAttrMask::RETRY_CNT | QpAttrMask::RNR_RETRY | QpAttrMask::MAX_QP_RD_ATOMIC;
            }
            if id.qp_type != QpType::Uc {
                attr.timeout = id.options.ack_timeout.unwrap_or(ACK_TIMEOUT);
                mask |= QpAttrMask::TIMEOUT;
            }
        }
        _ => return Err(Errno::EINVAL),
    }
    attr.qp_attr_mask = mask.bits();
    Ok(attr)
}

/// Whether the other end is known, so that a queue pair can be connected.
fn is_known(id: &Id) -> bool {
    let known = [Link::ReqReceived, Link::RepSent, Link::RepReceived, Link::Established];
    known.contains(&id.link)
}
