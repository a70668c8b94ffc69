//! Paths through the network, as the kernel checks and completes them.

use mlx5_prm::cmd::qp::AddressPath;
use mlx5_uapi::Errno;
use mlx5_uapi::verbs::{GlobalRoute, QpDest};

use crate::config::LinkLayer;
use crate::engine::{GidType, Mac};
use crate::kernel::hca::Hca;

/// The first source port of RoCE version 2.
const FIRST_SOURCE_PORT: u32 = 0xc000;

impl Hca {
    /// The link layer of a port.
    pub(crate) fn link_layer(&self, port: u8) -> Result<LinkLayer, Errno> {
        let ports = &self.fabric.config().ports;
        let port = usize::from(port).checked_sub(1).and_then(|index| ports.get(index));
        port.map(|port| port.link_layer).ok_or(Errno::EINVAL)
    }

    /// The kind of an entry of a port's GID table.
    fn gid_kind(&self, port: u8, index: u8) -> Result<GidType, Errno> {
        let engine = self.fabric.lock();
        let port = engine.device(self.id).port(port).ok_or(Errno::EINVAL)?;
        port.gid(index.into()).map(|entry| entry.kind).ok_or(Errno::EINVAL)
    }
}

/// Checks a destination; on Ethernet, finds its MAC address.
pub(crate) fn destination(
    hca: &Hca,
    port: u8,
    is_global: bool,
    route: &GlobalRoute,
) -> Result<Option<Mac>, Errno> {
    let ethernet = hca.link_layer(port)? == LinkLayer::Ethernet;
    if ethernet && !is_global {
        return Err(Errno::EINVAL);
    }
    if is_global {
        hca.gid_kind(port, route.sgid_index)?;
    }
    if !ethernet {
        return Ok(None);
    }
    let engine = hca.fabric.lock();
    engine.resolve_mac(&route.dgid).map(Some).ok_or(Errno::EHOSTUNREACH)
}

/// The global route in a queue pair's destination.
pub(crate) fn route(dest: &QpDest) -> GlobalRoute {
    GlobalRoute {
        dgid: dest.dgid,
        flow_label: dest.flow_label,
        sgid_index: dest.sgid_index,
        hop_limit: dest.hop_limit,
        traffic_class: dest.traffic_class,
        reserved: 0,
    }
}

/// Writes a connected or datagram queue pair's path.
pub(crate) fn fill(
    hca: &Hca,
    path: &mut AddressPath,
    dest: &QpDest,
    port: u8,
    numbers: (u32, u32),
) -> Result<(), Errno> {
    let dmac = destination(hca, port, dest.is_global != 0, &route(dest))?;
    if let Some([a, b, low @ ..]) = dmac {
        path.set_rmac_47_32(u16::from_be_bytes([a, b]).into())
            .set_rmac_31_0(u32::from_be_bytes(low))
            .set_eth_prio(u32::from(dest.sl) & 7)
            .set_dscp(u32::from(dest.traffic_class) >> 2);
        if hca.gid_kind(port, dest.sgid_index)? == GidType::RoceV2 {
            path.set_udp_sport(source_port(dest.flow_label, numbers));
        }
    } else {
        path.set_rlid(dest.dlid.into())
            .set_mlid(dest.src_path_bits.into())
            .set_sl(dest.sl.into())
            .set_grh(dest.is_global != 0);
    }
    path.set_stat_rate(dest.static_rate.into());
    if dest.is_global != 0 {
        path.set_src_addr_index(dest.sgid_index.into())
            .set_hop_limit(dest.hop_limit.into())
            .set_tclass(dest.traffic_class.into())
            .set_flow_label(dest.flow_label);
        *path.rgid_rip_mut() = dest.dgid;
    }
    Ok(())
}

/// The source port spreads connections over the network: by flow label, or by both numbers.
fn source_port(flow_label: u32, (local, remote): (u32, u32)) -> u32 {
    let label = match flow_label {
        0 => {
            let product = u64::from(local) * u64::from(remote);
            let folded = product ^ product >> 20;
            ((folded ^ folded >> 40) & 0xf_ffff) as u32
        }
        label => label,
    };
    FIRST_SOURCE_PORT | ((label & 0x3fff) ^ (label & 0xf_c000) >> 14)
}

/// A path in the form of QUERY_QP's answer.
pub(crate) fn read(path: &AddressPath, link_layer: LinkLayer) -> QpDest {
    let ethernet = link_layer == LinkLayer::Ethernet;
    let global = path.grh() || ethernet;
    let mut dest = QpDest {
        sl: if ethernet { path.eth_prio() } else { path.sl() } as u8,
        dlid: if ethernet { 0 } else { path.rlid() as u16 },
        src_path_bits: path.mlid() as u8,
        static_rate: path.stat_rate() as u8,
        is_global: global.into(),
        port_num: path.vhca_port_num() as u8,
        ..QpDest::default()
    };
    if global {
        dest.dgid = *path.rgid_rip();
        dest.flow_label = path.flow_label();
        dest.sgid_index = path.src_addr_index() as u8;
        dest.hop_limit = path.hop_limit() as u8;
        dest.traffic_class = path.tclass() as u8;
    }
    dest
}
