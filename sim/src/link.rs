//! Configuration of ports: link layer and MTU.

/// Link layer of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkLayer {
    /// InfiniBand: addressed by LID.
    InfiniBand,
    /// Ethernet with RoCE: addressed by GID and MAC.
    Ethernet,
}

/// One port of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortConfig {
    /// Its link layer.
    pub link_layer: LinkLayer,
    /// Its active MTU in bytes: 256, 512, 1024, 2048 or 4096.
    pub mtu: u32,
}

impl PortConfig {
    /// An InfiniBand port with an MTU of 4096 bytes.
    pub const INFINIBAND: Self = Self { link_layer: LinkLayer::InfiniBand, mtu: 4096 };
    /// A RoCE port with an MTU of 1024 bytes, as a 1500-byte Ethernet gives.
    pub const ROCE: Self = Self { link_layer: LinkLayer::Ethernet, mtu: 1024 };
}
