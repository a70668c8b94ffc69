//! Multicast groups. Joining one has no effect here: only attaching the queue pair has.

use std::net::SocketAddr;

use mlx5_uapi::rdma_cm::{Ece, EventType, UdParam};

use crate::config::LinkLayer;
use crate::engine::Gid;
use crate::kernel::cm::address::Address;
use crate::kernel::cm::attributes::qkey;
use crate::kernel::cm::channel::Pending;
use crate::kernel::cm::connect::group_path;
use crate::kernel::cm::network::{Facts, Network, Place};
use crate::kernel::cm::state::{Group, Id, Param, Table, record};

/// The queue pair number of a group.
const GROUP_QPN: u32 = 0xff_ffff;
/// The LID of a group: here all have one.
const GROUP_LID: u16 = 0xc001;

/// Whether an address is that of a group.
pub(super) fn is_group(address: &Address) -> bool {
    match address {
        Address::Ip(address) => address.ip().is_multicast(),
        Address::Ib { gid, .. } => gid[0] == 0xff,
    }
}

/// The GID of a group.
fn group_gid(address: &Address, facts: &Facts) -> Gid {
    let Address::Ip(SocketAddr::V4(ip)) = address else { return address.gid() };
    if facts.link_layer == LinkLayer::Ethernet {
        return address.gid();
    }
    // `ip_ib_mc_map`, with the signature of the connection manager.
    let mut gid = [0; 16];
    gid[..4].copy_from_slice(&[0xff, 0x12, 0x40, 0x01]);
    gid[4..6].copy_from_slice(&facts.pkey.to_be_bytes());
    let [a, b, c, d] = ip.ip().octets();
    gid[12..].copy_from_slice(&[a & 0x0f, b, c, d]);
    gid
}

/// The parameters of the event that reports a joined group.
pub(super) fn joined(
    network: &Network,
    id: &Id,
    place: Place,
    facts: &Facts,
    address: &Address,
) -> UdParam {
    let gid = group_gid(address, facts);
    let source = match facts.link_layer {
        LinkLayer::InfiniBand => facts.gid,
        LinkLayer::Ethernet => id.source.map(|source| source.gid()).unwrap_or_default(),
    };
    let index = network.gid_index(place, &source).unwrap_or_default();
    UdParam {
        qp_num: GROUP_QPN,
        qkey: qkey(id),
        ah_attr: group_path(gid, index, place.port, GROUP_LID, id.options.tos),
        ..UdParam::default()
    }
}

/// Adds a group that an identifier joined, and reports it to the program.
pub(super) fn add(table: &mut Table, id: u32, group: u32, uid: u64, param: UdParam) {
    table.groups.insert(group, Group { id, reported: 0 });
    if let Some(owner) = table.ids.get(&id) {
        let event = EventType::MulticastJoin;
        let record = record(uid, group, event, 0, &Param::Ud(param), Ece::default());
        owner.channel.push(Pending { record, owner: id, request: None, group: Some(group) });
    }
}
