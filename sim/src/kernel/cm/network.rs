//! The manager's view of the network: the addresses of ports, and the ports that reach each other.

use mlx5_uapi::verbs::Mtu;

use crate::config::LinkLayer;
use crate::engine::{DeviceId, Gid, GidType, Port};
use crate::fabric::Fabric;

/// A port of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) device: DeviceId,
    pub(super) port: u8,
}

/// The properties of a port that a path needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) node_guid: u64,
    pub(super) link_layer: LinkLayer,
    pub(super) lid: u16,
    pub(super) mtu: Mtu,
    pub(super) pkey: u16,
    /// Its first GID.
    pub(super) gid: Gid,
}

/// The ports of a fabric.
#[derive(Debug)]
pub(super) struct Network {
    fabric: Fabric,
}

/// Whether a port has an address: a GID, or on InfiniBand the address of its IPoIB interface.
fn has(port: &Port, gid: &Gid) -> bool {
    let own = port.gids.iter().flatten().any(|entry| entry.gid == *gid);
    let [a, b, c, d] = port.ipv4;
    let ipv4 = std::net::Ipv4Addr::new(a, b, c, d).to_ipv6_mapped().octets();
    own || port.link_layer == LinkLayer::InfiniBand && ipv4 == *gid
}

impl Network {
    pub(super) fn new(fabric: &Fabric) -> Self {
        Self { fabric: fabric.clone() }
    }

    /// Makes the fabric look at the timers.
    pub(super) fn wake(&self) {
        self.fabric.wake();
    }

    /// The port with an address.
    pub(super) fn place_of(&self, gid: &Gid) -> Option<Place> {
        let engine = self.fabric.lock();
        let there = engine.devices().iter().filter(|device| !device.is_removed());
        there.clone().find_map(|device| {
            let ports = device.ports().iter().zip(1..);
            ports.into_iter().find_map(|(port, number)| {
                has(port, gid).then_some(Place { device: device.id(), port: number })
            })
        })
    }

    /// The port from which packets go to another one, if the program has not chosen one.
    ///
    /// The devices of a machine stand for hosts that a wire connects. So this is a port of another
    /// device; only a machine with one device sends from the same one. Linux would keep a packet to
    /// an address of its own within the device; a program that wants that binds its identifier to
    /// the address.
    pub(super) fn way_to(&self, to: Place) -> Option<Place> {
        let engine = self.fabric.lock();
        let devices = engine.devices();
        if devices.len() == 1 {
            return Some(to);
        }
        let layer = devices.get(to.device)?.port(to.port)?.link_layer;
        devices.iter().filter(|device| device.id() != to.device && !device.is_removed()).find_map(
            |device| {
                let ports = [to.port].into_iter().chain(1..=device.ports().len() as u8);
                let mut ports = ports.filter(|number| {
                    device.port(*number).is_some_and(|port| port.link_layer == layer)
                });
                Some(Place { device: device.id(), port: ports.next()? })
            },
        )
    }

    /// The first port of the first device: where datagrams to groups go by default.
    pub(super) fn first(&self) -> Option<Place> {
        let engine = self.fabric.lock();
        let device = engine.devices().iter().find(|device| !device.is_removed())?;
        Some(Place { device: device.id(), port: 1 })
    }

    /// Whether an address is in a network of one of the ports, so that it can be resolved.
    pub(super) fn is_near(&self, gid: &Gid) -> bool {
        let engine = self.fabric.lock();
        let mut ports = engine.devices().iter().flat_map(|device| device.ports());
        gid[..2] == [0xfe, 0x80]
            || ports.any(|port| {
                gid[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]
                    && gid[12..14] == port.ipv4[..2]
            })
    }

    /// The properties of a port; `None` if its device is gone.
    pub(super) fn facts(&self, place: Place) -> Option<Facts> {
        let engine = self.fabric.lock();
        let device = engine.devices().get(place.device).filter(|device| !device.is_removed())?;
        let port = device.port(place.port)?;
        let mtu = (1..=5).filter_map(Mtu::from_raw).find(|mtu| mtu.bytes() == port.mtu);
        Some(Facts {
            node_guid: device.system_guid(),
            link_layer: port.link_layer,
            lid: port.lid,
            mtu: mtu.unwrap_or(Mtu::Mtu1024),
            pkey: match port.link_layer {
                LinkLayer::InfiniBand => port.pkeys.first().copied().unwrap_or_default(),
                LinkLayer::Ethernet => 0xffff,
            },
            gid: port.gid(0).map(|entry| entry.gid).unwrap_or_default(),
        })
    }

    /// The first address of a port that packets to a GID may come from, as a GID; for an IPv4
    /// destination an IPv4 address.
    pub(super) fn address(&self, place: Place, to: &Gid) -> Option<Gid> {
        let engine = self.fabric.lock();
        let port = engine.devices().get(place.device)?.port(place.port)?;
        if std::net::Ipv6Addr::from(*to).to_ipv4_mapped().is_none() {
            return Some(port.gid(0)?.gid);
        }
        let [a, b, c, d] = port.ipv4;
        Some(std::net::Ipv4Addr::new(a, b, c, d).to_ipv6_mapped().octets())
    }

    /// The index of a GID in a port's table: of RoCE version 2 before version 1.
    pub(super) fn gid_index(&self, place: Place, gid: &Gid) -> Option<u8> {
        let engine = self.fabric.lock();
        let port = engine.devices().get(place.device)?.port(place.port)?;
        let with = |kind| {
            let mut entries = port.gids.iter().zip(0..);
            entries.find_map(|(entry, index)| {
                entry.is_some_and(|entry| entry.gid == *gid && entry.kind == kind).then_some(index)
            })
        };
        [GidType::RoceV2, GidType::RoceV1, GidType::Ib].into_iter().find_map(with)
    }

    /// Whether a message from one port reaches another.
    pub(super) fn reaches(&self, from: Place, to: Place) -> bool {
        let engine = self.fabric.lock();
        let link = |place: Place| {
            let device = engine.devices().get(place.device).filter(|device| device.runs())?;
            device.port(place.port).filter(|port| port.active).map(|port| port.link_layer)
        };
        link(from).is_some() && link(from) == link(to) && !engine.is_cut(from.device, to.device)
    }
}
