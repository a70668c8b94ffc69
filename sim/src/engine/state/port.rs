//! Ports: addresses and tables.

use crate::config::{LinkLayer, PortConfig, SimConfig};
use crate::engine::DeviceId;

/// Entries of the largest GID table of an InfiniBand port: drivers take the code of a larger one
/// for an empty table. RoCE has a separate table.
pub(crate) const LARGEST_GID_TABLE: u32 = 128;

/// Bytes of an Ethernet frame around its payload: addresses, VLAN tag, type, check sequence.
pub(crate) const FRAME: u32 = 22;
/// The payload of a frame on an Ethernet with default configuration.
pub(crate) const ETHERNET_MTU: u32 = 1500;

/// A GID, as on the wire.
pub type Gid = [u8; 16];
/// A MAC address.
pub type Mac = [u8; 6];

/// Format of packets that start from a GID.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GidType {
    /// InfiniBand.
    Ib,
    /// RoCE version 1: a GRH over Ethernet.
    RoceV1,
    /// RoCE version 2: UDP over IPv4 or IPv6, as the GID says.
    RoceV2,
}

/// An entry of a port's GID table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GidEntry {
    /// The GID.
    pub gid: Gid,
    /// Format of its packets.
    pub kind: GidType,
    /// The source MAC address, on Ethernet.
    pub mac: Mac,
    /// The VLAN, if any.
    pub vlan: Option<u16>,
}

impl GidEntry {
    /// Whether packets from this GID are IPv4.
    #[must_use]
    pub fn is_ipv4(&self) -> bool {
        self.kind == GidType::RoceV2 && is_ipv4_mapped(&self.gid)
    }
}

/// Whether a GID is an IPv4-mapped IPv6 address.
pub(crate) fn is_ipv4_mapped(gid: &Gid) -> bool {
    gid[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]
}

/// A port of a device.
#[derive(Clone, Debug)]
pub struct Port {
    /// Its link layer.
    pub link_layer: LinkLayer,
    /// Its active MTU in bytes.
    pub mtu: u32,
    /// Bytes of the longest frame, check sequence included (Ethernet).
    pub frame: u32,
    /// Whether its link is up; a port that is down loses every packet.
    pub active: bool,
    /// Its LID; zero on Ethernet.
    pub lid: u16,
    /// The subnet manager's LID; zero on Ethernet.
    pub sm_lid: u16,
    /// Low bits of a LID that do not distinguish ports.
    pub lmc: u8,
    /// Its port GUID.
    pub guid: u64,
    /// Its MAC address, on Ethernet.
    pub mac: Mac,
    /// Its IPv4 address, on Ethernet.
    pub ipv4: [u8; 4],
    /// Its GID table.
    pub gids: Vec<Option<GidEntry>>,
    /// Its partition key table.
    pub pkeys: Vec<u16>,
}

impl Port {
    pub(crate) fn new(
        config: &SimConfig,
        port: PortConfig,
        device: DeviceId,
        number: u8,
        system_guid: u64,
    ) -> Self {
        let unit = (device as u32 * 2 + u32::from(number) - 1) & 0xffff;
        let guid = system_guid + u64::from(number) - 1;
        let mac = {
            let g = guid.to_be_bytes();
            [0xb8, 0x59, g[4], g[5], g[6], g[7].wrapping_add(number - 1)]
        };
        let host = unit + 1;
        let place = device * config.ports.len() + usize::from(number) - 1;
        let ipv4 = match config.ipv4.get(place) {
            Some(address) => address.octets(),
            None => [10, 0, (host >> 8) as u8, host as u8],
        };
        let gids = match port.link_layer {
            LinkLayer::InfiniBand => config.limits.infiniband_gids.min(LARGEST_GID_TABLE),
            LinkLayer::Ethernet => config.limits.gids,
        };
        let mut gids = vec![None; gids as usize];
        let mut link_local = [0; 16];
        link_local[..2].copy_from_slice(&[0xfe, 0x80]);
        match port.link_layer {
            LinkLayer::InfiniBand => {
                link_local[8..].copy_from_slice(&guid.to_be_bytes());
                gids[0] =
                    Some(GidEntry { gid: link_local, kind: GidType::Ib, mac: [0; 6], vlan: None });
            }
            LinkLayer::Ethernet if !config.addresses => {}
            LinkLayer::Ethernet => {
                link_local[8..].copy_from_slice(&[
                    mac[0] ^ 2,
                    mac[1],
                    mac[2],
                    0xff,
                    0xfe,
                    mac[3],
                    mac[4],
                    mac[5],
                ]);
                let mut mapped = [0; 16];
                mapped[10..12].fill(0xff);
                mapped[12..].copy_from_slice(&ipv4);
                let kinds = [GidType::RoceV1, GidType::RoceV2];
                let entries = [link_local, mapped]
                    .into_iter()
                    .flat_map(|gid| kinds.map(|kind| GidEntry { gid, kind, mac, vlan: None }));
                for (slot, entry) in gids.iter_mut().zip(entries) {
                    *slot = Some(entry);
                }
            }
        }
        let infiniband = port.link_layer == LinkLayer::InfiniBand;
        let mut pkeys = vec![0; config.limits.pkeys as usize];
        if let Some(first) = pkeys.first_mut() {
            *first = 0xffff;
        }
        Self {
            link_layer: port.link_layer,
            mtu: port.mtu,
            frame: ETHERNET_MTU + FRAME,
            active: true,
            lid: if infiniband { unit as u16 + 1 } else { 0 },
            sm_lid: u16::from(infiniband),
            lmc: 0,
            guid,
            mac,
            ipv4,
            gids,
            pkeys,
        }
    }

    /// The GID table's entry at an index.
    #[must_use]
    pub fn gid(&self, index: usize) -> Option<&GidEntry> {
        self.gids.get(index)?.as_ref()
    }

    /// Whether this port has a GID, of a kind.
    #[must_use]
    pub fn has_gid(&self, gid: &Gid, kind: GidType) -> bool {
        self.gids.iter().flatten().any(|entry| entry.gid == *gid && entry.kind == kind)
    }
}
