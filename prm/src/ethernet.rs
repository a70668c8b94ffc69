//! Ethernet packets: their segments in send WQEs, and what the CQE of a received packet says.
//!
//! PRM, "Ethernet WQE format" and "Completion Queue Entry (CQE) format"; Linux
//! `include/linux/mlx5/qp.h` (`struct mlx5_wqe_eth_seg`) and `device.h` (`struct mlx5_cqe64`,
//! `CQE_RSS_HTYPE_*`, `CQE_L3_HDR_TYPE_*`, `CQE_L4_HDR_TYPE_*`, `MPWRQ`).
//!
//! A packet is sent with a control segment, an [`EthernetSegment`] and data segments. Its opcode is
//! [`SEND`](crate::wqe::Opcode::Send); with [`TSO`](crate::wqe::Opcode::Tso) the device cuts it
//! into segments, and with [`ENHANCED_MPSW`](crate::wqe::Opcode::EnhancedMpw) each data segment is
//! a packet of its own. A packet's bytes start at its destination MAC address; the frame check
//! sequence is the device's and counts in no length.

use crate::cqe::Cqe;
use crate::wqe::UNIT;
use crate::{U16, U32, assert_layout};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of the headers that a device demands inline in mode L2: MAC addresses, VLAN tag, Ethertype
/// (`MLX5_ETH_L2_INLINE_HEADER_SIZE`). Segment and header then take two units exactly.
pub const L2_INLINE: usize = 18;
/// Bytes of a packet's header without VLAN tag; a shorter packet is no Ethernet frame.
pub const HEADER: usize = 14;
/// Bytes of inline headers that lie in the first unit of the segment.
pub const FIRST_INLINE: usize = 2;

/// Ethernet segment, behind the control segment (`struct mlx5_wqe_eth_seg`).
///
/// Inline headers start in its last two bytes and go on behind it, padded to 16 bytes
/// ([`segment_units`]). A VLAN tag is inserted only without inline headers.
#[derive(Clone, Copy, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct EthernetSegment {
    /// Software parser: offset of the outer L4 header, in units of two bytes.
    pub swp_outer_l4_offset: u8,
    /// Software parser: offset of the outer L3 header, in units of two bytes.
    pub swp_outer_l3_offset: u8,
    /// Software parser: offset of the inner L4 header, in units of two bytes.
    pub swp_inner_l4_offset: u8,
    /// Software parser: offset of the inner L3 header, in units of two bytes.
    pub swp_inner_l3_offset: u8,
    /// The checksums to compute ([`checksum_flags`]).
    pub cs_flags: u8,
    /// The headers to which the software parser's offsets point ([`parser_flags`]).
    pub swp_flags: u8,
    /// Maximum segment size of a TSO request; zero otherwise.
    pub mss: U16,
    /// Metadata that steering rules of the send side match.
    pub flow_table_metadata: U32,
    /// Number of bytes of inline headers, or the kind of tag to insert ([`insert`]).
    pub inline_size_or_insert: U16,
    /// First bytes of the inline headers, or the tag to insert in network byte order.
    pub inline_start_or_tag: [u8; FIRST_INLINE],
}
assert_layout!(EthernetSegment, 16, swp_outer_l4_offset @ 0, swp_outer_l3_offset @ 1,
    swp_inner_l4_offset @ 2, swp_inner_l3_offset @ 3, cs_flags @ 4, swp_flags @ 5, mss @ 6,
    flow_table_metadata @ 8, inline_size_or_insert @ 12, inline_start_or_tag @ 14);

/// Returns the 16-byte units of an [`EthernetSegment`] with `inline` bytes of inline headers.
#[must_use]
pub const fn segment_units(inline: usize) -> usize {
    1 + inline.saturating_sub(FIRST_INLINE).div_ceil(UNIT)
}
const _: () = assert!(segment_units(0) == 1 && segment_units(2) == 1 && segment_units(3) == 2);
const _: () = assert!(segment_units(L2_INLINE) == 2 && segment_units(L2_INLINE + 1) == 3);

/// Bits of [`EthernetSegment::cs_flags`] (`MLX5_ETH_WQE_*_CSUM`).
pub mod checksum_flags {
    /// The checksum of the inner IPv4 header of a tunnelled packet.
    pub const L3_INNER: u8 = 1 << 4;
    /// The checksum of the inner TCP or UDP header and payload of a tunnelled packet.
    pub const L4_INNER: u8 = 1 << 5;
    /// The checksum of the (outer) IPv4 header.
    pub const L3: u8 = 1 << 6;
    /// The checksum of the (outer) TCP or UDP header and payload.
    pub const L4: u8 = 1 << 7;
}

/// Bits of [`EthernetSegment::swp_flags`] (`MLX5_ETH_WQE_SWP_*`).
pub mod parser_flags {
    /// The inner L3 header is IPv6.
    pub const INNER_L3_IPV6: u8 = 1 << 0;
    /// The inner L4 header is UDP.
    pub const INNER_L4_UDP: u8 = 1 << 1;
    /// The outer L3 header is IPv6.
    pub const OUTER_L3_IPV6: u8 = 1 << 4;
    /// The outer L4 header is UDP.
    pub const OUTER_L4_UDP: u8 = 1 << 5;
}

/// Bits of [`EthernetSegment::inline_size_or_insert`] without inline headers
/// (`MLX5_ETH_WQE_INSERT_VLAN`, `MLX5_ETH_WQE_SVLAN`).
pub mod insert {
    /// Inserts a VLAN tag.
    pub const VLAN: u16 = 1 << 15;
    /// With [`VLAN`]: a service tag (Ethertype 0x88a8) in place of a customer tag (0x8100).
    pub const SERVICE: u16 = 1 << 0;
}

/// The headers that a WQE must contain inline: `min_wqe_inline_mode` of the NIC vport context
/// (`MLX5_INLINE_MODE_*`, Linux `include/linux/mlx5/device.h`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
#[repr(u8)]
pub enum InlineMode {
    /// None.
    #[default]
    None = 0,
    /// The Ethernet header, [`L2_INLINE`] bytes.
    L2 = 1,
    /// Also the IP header.
    Ip = 2,
    /// Also the TCP or UDP header.
    TcpUdp = 3,
}

impl InlineMode {
    /// Returns the mode with this number.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            0 => Some(Self::None),
            1 => Some(Self::L2),
            2 => Some(Self::Ip),
            3 => Some(Self::TcpUdp),
            _ => None,
        }
    }
}

/// The largest number of packets of an ENHANCED_MPSW request: `ds` counts 63 units, of which
/// control and Ethernet segment take one each.
pub const MAX_MULTI_PACKETS: usize = crate::wqe::MAX_UNITS - 2;
/// Opcode modifier of a [`TSO`](crate::wqe::Opcode::Tso) request that sends several packets of
/// equal length (`MLX5_OPC_MOD_MPW`; ConnectX-4 Lx).
pub const LEGACY_MULTI_PACKET: u8 = 1;

/// Bits of [`Cqe::head`]'s first byte for a received packet.
pub mod tunnel_flags {
    /// The packet is tunnelled: checksum bits and types are those of the inner headers.
    pub const TUNNELED: u8 = 1 << 0;
}

/// Fields of [`Cqe::rss_hash_type`]: the headers that were hashed.
pub mod hash_type {
    /// Position of the two-bit IP version ([`IPV4`], [`IPV6`], or zero).
    pub const IP_SHIFT: u32 = 2;
    /// IPv4 addresses.
    pub const IPV4: u8 = 1;
    /// IPv6 addresses.
    pub const IPV6: u8 = 2;
    /// Position of the two-bit L4 protocol ([`TCP`], [`UDP`], [`SPI`], or zero).
    pub const L4_SHIFT: u32 = 6;
    /// TCP ports.
    pub const TCP: u8 = 1;
    /// UDP ports.
    pub const UDP: u8 = 2;
    /// The security parameter index of IPsec.
    pub const SPI: u8 = 3;
    /// Mask of either field, shifted down.
    pub const MASK: u8 = 3;
}

/// Bits of [`Cqe::ml_path`] for a received packet.
pub mod path_flags {
    /// The IP header says that congestion was experienced.
    pub const CONGESTION: u8 = 1 << 7;
}

/// Fields of [`Cqe::l4_l3_hdr_type`]. Bit 0,
/// [`VLAN_STRIPPED`](crate::cqe::l4_l3_hdr_type::VLAN_STRIPPED), is not part of them.
pub mod header_type {
    /// Position of the two-bit L3 type.
    pub const L3_SHIFT: u32 = 2;
    /// Mask of the L3 type, shifted down.
    pub const L3_MASK: u8 = 3;
    /// No IP header.
    pub const L3_NONE: u8 = 0;
    /// IPv6.
    pub const L3_IPV6: u8 = 1;
    /// IPv4.
    pub const L3_IPV4: u8 = 2;
    /// Position of the three-bit L4 type.
    pub const L4_SHIFT: u32 = 4;
    /// Mask of the L4 type, shifted down.
    pub const L4_MASK: u8 = 7;
    /// No L4 header that the device knows.
    pub const L4_NONE: u8 = 0;
    /// TCP.
    pub const L4_TCP: u8 = 1;
    /// UDP.
    pub const L4_UDP: u8 = 2;
    /// A TCP acknowledgement without data.
    pub const L4_TCP_EMPTY_ACK: u8 = 3;
    /// A TCP acknowledgement with data.
    pub const L4_TCP_ACK: u8 = 4;
}

/// Position in [`Cqe::srqn_uidx`] of the number of segments that large receive offload joined: zero
/// for a packet that arrived alone.
pub const LRO_SEGMENTS_SHIFT: u32 = 24;
/// The flow tag, in the low bits of [`Cqe::sop_drop_qpn`].
pub const FLOW_TAG_MASK: u32 = 0xff_ffff;
/// Bytes of the frame check sequence, which a queue with `scatter_fcs` appends to a packet.
pub const FRAME_CHECK: usize = 4;

/// Fields of [`Cqe::byte_count`] for a striding receive queue. [`Cqe::wqe_counter`] is the index of
/// the packet's first stride, and [`Cqe::wqe_id`] names the WQE.
pub mod striding {
    /// The CQE has no packet: the device skipped the strides.
    pub const FILLER: u32 = 1 << 31;
    /// Position of the number of strides consumed.
    pub const STRIDES_SHIFT: u32 = 16;
    /// Mask of the number of strides consumed, shifted down.
    pub const STRIDES_MASK: u32 = 0x7fff;
    /// Mask of the length of the packet.
    pub const BYTES_MASK: u32 = 0xffff;
}

/// The fields of a received packet lie where the descriptions above say.
const _: () = {
    assert!(core::mem::offset_of!(Cqe, head) == 0);
    assert!(core::mem::offset_of!(Cqe, rss_hash_type) == 16);
    assert!(core::mem::offset_of!(Cqe, ml_path) == 17);
};

#[cfg(test)]
mod tests {
    use super::*;

    /// The segment that libmlx5 writes for a packet with both checksums and an 18-byte header.
    #[test]
    fn headers_start_in_the_last_two_bytes_of_the_segment() {
        let segment = EthernetSegment {
            cs_flags: checksum_flags::L3 | checksum_flags::L4,
            inline_size_or_insert: U16::new(L2_INLINE as u16),
            inline_start_or_tag: [0x01, 0x50],
            ..Default::default()
        };
        let bytes = [0, 0, 0, 0, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 18, 0x01, 0x50];
        assert_eq!(segment.as_bytes(), bytes);
    }

    #[test]
    fn an_inserted_tag_takes_the_place_of_the_headers() {
        let segment = EthernetSegment {
            inline_size_or_insert: U16::new(insert::VLAN | insert::SERVICE),
            inline_start_or_tag: 0x6123u16.to_be_bytes(),
            ..Default::default()
        };
        assert_eq!(segment.as_bytes()[12..], [0x80, 0x01, 0x61, 0x23]);
    }

    #[test]
    fn every_number_of_an_inline_mode_is_that_mode() {
        for bits in 0..=u8::MAX {
            assert_eq!(
                InlineMode::from_bits(bits).map(|mode| mode as u8),
                (bits < 4).then_some(bits)
            );
        }
    }
}
