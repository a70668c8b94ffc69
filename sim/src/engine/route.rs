//! Routing: finds the port to which an address leads.

use crate::config::LinkLayer;
use crate::engine::state::port::{Gid, GidEntry, GidType, Mac, Port, is_ipv4_mapped};
use crate::engine::state::qp::AddressPath;
use crate::engine::{DeviceId, Engine};

/// First LID that belongs to no single port (multicast).
const FIRST_MULTICAST_LID: u16 = 0xc000;

/// Whether a GID names a group.
pub(crate) fn is_multicast(gid: &Gid) -> bool {
    gid[0] == 0xff || is_ipv4_mapped(gid) && (224..240).contains(&gid[12])
}

/// The MAC address of a multicast group. Only an IPv4-mapped GID has the MAC address of an IPv4
/// group; any other multicast GID has that of an IPv6 group, even if it contains an IPv4 address.
fn multicast_mac(gid: &Gid) -> Mac {
    if is_ipv4_mapped(gid) {
        [0x01, 0x00, 0x5e, gid[13] & 0x7f, gid[14], gid[15]]
    } else {
        [0x33, 0x33, gid[12], gid[13], gid[14], gid[15]]
    }
}

/// Destination of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Destination {
    /// One port.
    Port { device: DeviceId, port: u8 },
    /// Every member of a group.
    Group(Gid),
}

/// A queue pair that sends packets, and the fields by which these packets are addressed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) device: DeviceId,
    pub(crate) port: u8,
    pub(crate) qpn: u32,
    pub(crate) lid: u16,
    pub(crate) gid: Option<GidEntry>,
    pub(crate) path: AddressPath,
    pub(crate) pkey: u16,
}

impl Engine {
    fn ports(&self) -> impl Iterator<Item = (DeviceId, u8, &Port)> {
        self.devices.iter().filter(|device| device.runs()).flat_map(|device| {
            device.ports.iter().zip(1..).map(|(port, number)| (device.id, number, port))
        })
    }

    /// Returns the MAC address for packets to a GID. The hosts' network stacks resolve addresses,
    /// so the GID of a stalled device is resolved, too.
    #[must_use]
    pub fn resolve_mac(&self, gid: &Gid) -> Option<Mac> {
        if is_multicast(gid) {
            return Some(multicast_mac(gid));
        }
        let there = self.devices.iter().filter(|device| !device.is_fatal());
        there.flat_map(|device| &device.ports).find_map(|port| {
            let here = port.link_layer == LinkLayer::Ethernet
                && port.gids.iter().flatten().any(|entry| entry.gid == *gid);
            here.then_some(port.mac)
        })
    }

    /// The source of a queue pair's packets. `None` if the port is down, or lacks a GID that the
    /// path needs.
    pub(crate) fn origin(&self, device: DeviceId, qpn: u32, path: &AddressPath) -> Option<Origin> {
        let this = &self.devices[device];
        let attributes = &this.qps.get(qpn)?.attributes;
        let port = this.port(attributes.port)?;
        if !port.active {
            return None;
        }
        let gid = port.gid(usize::from(path.sgid_index)).copied();
        if gid.is_none() && (path.grh || port.link_layer == LinkLayer::Ethernet) {
            return None;
        }
        let low = u16::from(path.source_path_bits) & ((1 << port.lmc) - 1);
        Some(Origin {
            device,
            port: attributes.port,
            qpn,
            lid: port.lid | low,
            gid,
            path: *path,
            pkey: port.pkeys.get(usize::from(attributes.pkey_index)).copied().unwrap_or(0),
        })
    }

    /// The destination of packets from an origin. `None` if their path leads to no port and to no
    /// group.
    pub(crate) fn route(&self, origin: &Origin) -> Option<Destination> {
        let path = &origin.path;
        let from = self.devices[origin.device].port(origin.port)?;
        if from.link_layer == LinkLayer::InfiniBand {
            if path.dlid >= FIRST_MULTICAST_LID && path.grh {
                return Some(Destination::Group(path.dgid));
            }
            return self.ports().find_map(|(device, number, port)| {
                let here = port.link_layer == LinkLayer::InfiniBand
                    && port.active
                    && path.dlid != 0
                    && (port.lid ^ path.dlid) >> port.lmc == 0
                    && (!path.grh || port.has_gid(&path.dgid, GidType::Ib));
                here.then_some(Destination::Port { device, port: number })
            });
        }
        if is_multicast(&path.dgid) {
            let right = path.dmac == multicast_mac(&path.dgid);
            return right.then_some(Destination::Group(path.dgid));
        }
        let kind = origin.gid?.kind;
        self.ports().find_map(|(device, number, port)| {
            let here = port.link_layer == LinkLayer::Ethernet
                && port.active
                && port.mac == path.dmac
                && port.has_gid(&path.dgid, kind);
            here.then_some(Destination::Port { device, port: number })
        })
    }

    /// The peer of a connected queue pair: the device and the number of the other queue pair.
    pub(crate) fn peer(&self, origin: &Origin) -> Option<(DeviceId, u32)> {
        let Destination::Port { device, port } = self.route(origin)? else { return None };
        let remote = self.devices[origin.device].qps.get(origin.qpn)?.attributes.remote_qpn;
        let there = self.devices[device].qps.get(remote)?;
        (there.attributes.port == port).then_some((device, remote))
    }
}

impl Origin {
    /// Whether packets that the other side sends along its path `back` arrive at this origin.
    pub(crate) fn is_reached_by(&self, back: &AddressPath) -> bool {
        match self.gid {
            Some(entry) if entry.kind != GidType::Ib => back.dgid == entry.gid,
            _ => back.dlid == self.lid,
        }
    }
}

/// Whether two partition keys may communicate: the partition is the same, and one of them is a full
/// member.
pub(crate) fn same_partition(one: u16, other: u16) -> bool {
    one & 0x7fff == other & 0x7fff && (one | other) & 0x8000 != 0
}

#[cfg(test)]
mod tests {
    use super::multicast_mac;

    #[test]
    fn only_a_mapped_address_has_the_mac_of_an_ipv4_group() {
        let mut gid = [0; 16];
        gid[10..].copy_from_slice(&[0xff, 0xff, 0xe0, 0x81, 2, 3]);
        assert_eq!(multicast_mac(&gid), [0x01, 0x00, 0x5e, 0x01, 2, 3]);
        gid[..2].copy_from_slice(&[0xff, 0x0e]);
        assert_eq!(multicast_mac(&gid), [0x33, 0x33, 0xe0, 0x81, 2, 3]);
    }
}
