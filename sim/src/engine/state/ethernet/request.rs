//! The Ethernet segment of a send WQE.

use mlx5_prm::ethernet::{
    EthernetSegment, FIRST_INLINE, checksum_flags, insert, parser_flags, segment_units,
};
use mlx5_prm::wqe::UNIT;
use zerocopy::FromBytes;

use crate::frame::headers::{C_TAG, S_TAG, Tag};

/// Contents of a send WQE's Ethernet segment: a frame's settings, and its bytes that lie in the
/// segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FrameRequest {
    /// The bytes of the frame that lie in the segment.
    pub(crate) header: Vec<u8>,
    /// A tag to insert.
    pub(crate) tag: Option<Tag>,
    /// Checksums to compute: `mlx5_prm::ethernet::checksum_flags`.
    pub(crate) checksums: u8,
    /// Bytes of a segment of a packet that the device cuts.
    pub(crate) segment_size: u16,
}

impl FrameRequest {
    /// Reads the segment at the start of these bytes and returns it with its length. `None` if
    /// there is no whole segment, or if it asks for a feature that this device does not have.
    pub(crate) fn parse(bytes: &[u8]) -> Option<(Self, usize)> {
        let (segment, _) = EthernetSegment::ref_from_prefix(bytes).ok()?;
        // No capability announces the software parser, so its flags are refused.
        const PARSER: u8 = parser_flags::INNER_L3_IPV6
            | parser_flags::INNER_L4_UDP
            | parser_flags::OUTER_L3_IPV6
            | parser_flags::OUTER_L4_UDP;
        if segment.swp_flags & PARSER != 0 {
            return None;
        }
        let number = segment.inline_size_or_insert.get();
        let mut request = Self {
            header: Vec::new(),
            tag: None,
            checksums: segment.cs_flags & !(checksum_flags::L3_INNER - 1),
            segment_size: segment.mss.get(),
        };
        if number & insert::VLAN != 0 {
            let kind = if number & insert::SERVICE != 0 { S_TAG } else { C_TAG };
            let control = u16::from_be_bytes(segment.inline_start_or_tag);
            request.tag = Some(Tag { kind, control });
            return Some((request, UNIT));
        }
        let length = usize::from(number);
        let start = UNIT - FIRST_INLINE;
        request.header = bytes.get(start..start + length)?.to_vec();
        Some((request, segment_units(length) * UNIT))
    }
}
