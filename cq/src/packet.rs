//! The packet headers in the completion of a received Ethernet packet.

use core::fmt;
use mlx5_prm::cqe::{hds_ip_ext, l4_l3_hdr_type};
use mlx5_prm::ethernet::{hash_type, header_type, striding};

/// The network layer header of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NetworkHeader {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

/// The transport layer header of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TransportHeader {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// TCP, an acknowledgement without data.
    TcpEmptyAck,
    /// TCP, an acknowledgement with data.
    TcpAck,
}

/// The headers of a received packet, and whether their checksums are right. For a packet in a
/// tunnel ([`WorkCompletion::tunneled`](crate::WorkCompletion::tunneled)), those of the inner
/// headers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PacketHeaders(u32);

impl PacketHeaders {
    /// Of the four bytes of the CQE that tell them: checksum bits, header types, VLAN tag.
    #[inline]
    pub(crate) const fn new(word: u32) -> Self {
        Self(word)
    }

    #[inline]
    const fn checks(self) -> u8 {
        (self.0 >> 24) as u8
    }

    #[inline]
    const fn types(self) -> u8 {
        (self.0 >> 16) as u8
    }

    /// The network layer header; `None` if the device recognised none.
    #[inline]
    pub const fn network(self) -> Option<NetworkHeader> {
        match self.types() >> header_type::L3_SHIFT & header_type::L3_MASK {
            header_type::L3_IPV4 => Some(NetworkHeader::Ipv4),
            header_type::L3_IPV6 => Some(NetworkHeader::Ipv6),
            _ => None,
        }
    }

    /// The transport layer header; `None` if the device recognised none, as in a fragment.
    #[inline]
    pub const fn transport(self) -> Option<TransportHeader> {
        match self.types() >> header_type::L4_SHIFT & header_type::L4_MASK {
            header_type::L4_TCP => Some(TransportHeader::Tcp),
            header_type::L4_UDP => Some(TransportHeader::Udp),
            header_type::L4_TCP_EMPTY_ACK => Some(TransportHeader::TcpEmptyAck),
            header_type::L4_TCP_ACK => Some(TransportHeader::TcpAck),
            _ => None,
        }
    }

    /// Whether the network layer header is right: for IPv4, its checksum.
    #[inline]
    pub const fn network_ok(self) -> bool {
        self.checks() & hds_ip_ext::L3_OK != 0
    }

    /// Whether the checksum of TCP or UDP is right. False for a packet of another protocol, and for
    /// a fragment.
    #[inline]
    pub const fn transport_ok(self) -> bool {
        self.checks() & hds_ip_ext::L4_OK != 0
    }

    /// The VLAN tag that the device stripped.
    #[inline]
    pub const fn vlan(self) -> Option<u16> {
        if self.types() & l4_l3_hdr_type::VLAN_STRIPPED != 0 { Some(self.0 as u16) } else { None }
    }
}

impl fmt::Debug for PacketHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketHeaders")
            .field("network", &self.network())
            .field("network_ok", &self.network_ok())
            .field("transport", &self.transport())
            .field("transport_ok", &self.transport_ok())
            .field("vlan", &self.vlan())
            .finish()
    }
}

/// The headers over which the hash of a packet was computed
/// ([`WorkCompletion::rss_hash`](crate::WorkCompletion::rss_hash)).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HashedHeaders {
    /// The addresses; `None` if they were not hashed.
    pub network: Option<NetworkHeader>,
    /// The ports; `None` if they were not hashed.
    pub transport: Option<HashedTransport>,
}

/// A transport layer header that was hashed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HashedTransport {
    /// Ports of TCP.
    Tcp,
    /// Ports of UDP.
    Udp,
    /// The security parameter index of IPsec.
    Spi,
}

impl HashedHeaders {
    #[inline]
    pub(crate) const fn new(bits: u8) -> Self {
        let network = match bits >> hash_type::IP_SHIFT & hash_type::MASK {
            hash_type::IPV4 => Some(NetworkHeader::Ipv4),
            hash_type::IPV6 => Some(NetworkHeader::Ipv6),
            _ => None,
        };
        let transport = match bits >> hash_type::L4_SHIFT & hash_type::MASK {
            hash_type::TCP => Some(HashedTransport::Tcp),
            hash_type::UDP => Some(HashedTransport::Udp),
            hash_type::SPI => Some(HashedTransport::Spi),
            _ => None,
        };
        Self { network, transport }
    }
}

/// The strides that a packet of a striding work queue takes of its request, and the packet's length
/// ([`WorkCompletion::strides`](crate::WorkCompletion::strides)).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Strides {
    /// The first stride.
    pub first: u16,
    /// Number of strides. The device is done with the request when all of its strides are taken,
    /// including those of packets that failed.
    pub count: u16,
    /// Bytes of the packet.
    pub bytes: u16,
    /// There is no packet: the device skipped the strides, because the next packet did not fit into
    /// them.
    pub filler: bool,
}

impl Strides {
    /// The strides of a packet from `first` on, as the byte count of its CQE says them.
    #[inline]
    pub const fn new(first: u16, byte_count: u32) -> Self {
        Self { first, ..Self::of(byte_count) }
    }

    /// Decodes the byte count of a CQE. The first stride is in another field.
    #[inline(always)]
    pub(crate) const fn of(byte_count: u32) -> Self {
        Self {
            first: 0,
            count: (byte_count >> striding::STRIDES_SHIFT & striding::STRIDES_MASK) as u16,
            bytes: (byte_count & striding::BYTES_MASK) as u16,
            filler: byte_count & striding::FILLER != 0,
        }
    }
}
