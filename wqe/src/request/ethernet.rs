//! The Ethernet segment of a packet, and packets that the device cuts into segments.

use crate::request::data::{Data, DataKind, INLINE_HEADER, Limits, write_sge, write_sges};
use crate::request::error::PostError;
use crate::request::flags::SendFlags;
use crate::request::segment::Segment;
use crate::request::sge::Sge;
use core::cell::Cell;
use core::mem::{offset_of, size_of};
use core::ptr::NonNull;
use mlx5_prm::ethernet::{
    EthernetSegment, FIRST_INLINE, HEADER, L2_INLINE, checksum_flags, insert, segment_units,
};
use mlx5_prm::wqe::{INLINE, MAX_SGE_LENGTH, UNIT};
use mlx5_prm::{U16, U32};

/// The segment is stored as two words: checksums and segment size; then metadata and inline headers
/// or tag.
const _: () = {
    assert!(size_of::<EthernetSegment>() == UNIT);
    assert!(offset_of!(EthernetSegment, cs_flags) == 4);
    assert!(offset_of!(EthernetSegment, flow_table_metadata) == 8);
    assert!(offset_of!(EthernetSegment, inline_size_or_insert) == 12);
    assert!(offset_of!(EthernetSegment, inline_start_or_tag) == 14);
};

/// Returns the first word of the segment, in memory order.
#[inline]
const fn first_word(checksums: bool) -> [u8; 8] {
    let flags = if checksums { checksum_flags::L3 | checksum_flags::L4 } else { 0 };
    [0, 0, 0, 0, flags, 0, 0, 0]
}

/// The Ethernet segment of a packet without inline headers.
#[derive(Clone, Copy, Debug)]
pub struct Ethernet {
    checksums: bool,
}

impl Ethernet {
    #[inline]
    pub(crate) const fn new(flags: SendFlags) -> Self {
        Self { checksums: flags.contains(SendFlags::IP_CSUM) }
    }

    /// Writes the segment. `insert` is the second half of its second word.
    ///
    /// # Safety
    /// As for [`Segment::write`].
    #[inline]
    unsafe fn write_with(self, at: NonNull<u8>, insert: u32) {
        let first = u64::from_ne_bytes(first_word(self.checksums));
        let words = [first, u64::from(insert).to_be()];
        // SAFETY: by the contract.
        unsafe { at.cast().write(words) };
    }
}

// SAFETY: one segment is written.
unsafe impl Segment for Ethernet {
    const UNITS: usize = 1;

    #[inline]
    unsafe fn write(self, at: NonNull<u8>) {
        // SAFETY: by the contract.
        unsafe { self.write_with(at, 0) };
    }
}

/// The Ethernet segment of a packet into which the device inserts a tag.
#[derive(Clone, Copy, Debug)]
pub struct Tagged {
    pub(crate) segment: Ethernet,
    pub(crate) tag: VlanTag,
}

// SAFETY: one segment is written.
unsafe impl Segment for Tagged {
    const UNITS: usize = Ethernet::UNITS;

    #[inline]
    unsafe fn write(self, at: NonNull<u8>) {
        let (kind, tag) = match self.tag {
            VlanTag::Customer(tag) => (insert::VLAN, tag),
            VlanTag::Service(tag) => (insert::VLAN | insert::SERVICE, tag),
        };
        // SAFETY: by the contract.
        unsafe { self.segment.write_with(at, u32::from(kind) << 16 | u32::from(tag)) };
    }
}

/// A VLAN tag that the device inserts after the source address: the tag control information
/// (priority, drop eligible indicator, VLAN identifier).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum VlanTag {
    /// A customer tag (802.1Q, Ethertype 0x8100).
    Customer(u16),
    /// A service tag (802.1ad, Ethertype 0x88a8).
    Service(u16),
}

/// The Ethernet segment of a packet whose first bytes are in the WQE.
#[derive(Clone, Copy, Debug)]
pub struct InlineHeader<'a> {
    pub(crate) checksums: bool,
    pub(crate) header: &'a [u8; L2_INLINE],
}

// SAFETY: the segment and the header take this many units.
unsafe impl Segment for InlineHeader<'_> {
    const UNITS: usize = segment_units(L2_INLINE);

    #[inline]
    unsafe fn write(self, at: NonNull<u8>) {
        // SAFETY: by the caller's contract; the header fills the second unit.
        unsafe {
            at.cast().write(first_word(self.checksums));
            let size = (L2_INLINE as u64) << 16;
            at.byte_add(8).cast().write(size.to_be_bytes());
            let start = at.byte_add(offset_of!(EthernetSegment, inline_start_or_tag));
            start.cast().write(*self.header);
        }
    }
}

/// A packet whose first bytes are in the WQE, however many they are: all that follows the control
/// segment.
#[derive(Clone, Copy)]
pub(crate) struct HeadedData<'a> {
    pub(crate) checksums: bool,
    /// The first bytes.
    pub(crate) headers: &'a [u8],
    /// The others.
    pub(crate) rest: &'a [Sge],
}

// SAFETY: a request of the largest size has room for a segment with an inline header, and for
// `max_sge` entries after it. No more units are written.
unsafe impl Data for HeadedData<'_> {
    unsafe fn write(
        self,
        at: NonNull<u8>,
        _: DataKind,
        limits: &Limits,
    ) -> Result<usize, PostError> {
        let Self { checksums, headers, rest } = self;
        if headers.len() < HEADER {
            return Err(wrong_length(0, headers.len() as u32));
        }
        let room = InlineHeader::UNITS + limits.max_sge as usize;
        let units = segment_units(headers.len());
        let Some(max_sge) = room.checked_sub(units).filter(|max| *max >= rest.len()) else {
            let length = u32::try_from(headers.len()).unwrap_or(u32::MAX);
            let max = (room.saturating_sub(rest.len()) * UNIT).saturating_sub(UNIT - FIRST_INLINE);
            return Err(PostError::InlineTooLong { length, max: max as u32 });
        };
        // SAFETY: segment and headers take `units` units, of which there are two at most unless
        // there is room for more; `max_sge` entries fit after them.
        unsafe {
            let entries = write_headers(
                at,
                headers,
                EthernetSegment {
                    cs_flags: first_word(checksums)[4],
                    inline_size_or_insert: U16::new(headers.len() as u16),
                    ..EthernetSegment::default()
                },
            );
            Ok(units + write_sges(entries, rest, max_sge as u32, Some(limits.max_message))?)
        }
    }
}

/// Writes a segment with its inline headers, and returns the place after.
///
/// # Safety
/// `at` has room for the [`segment_units`] of the headers, of which there are [`FIRST_INLINE`]
/// bytes at least.
unsafe fn write_headers(at: NonNull<u8>, headers: &[u8], segment: EthernetSegment) -> NonNull<u8> {
    let units = segment_units(headers.len());
    // SAFETY: by the caller's contract.
    unsafe {
        // Padding after the headers, in place of what an earlier request left there.
        at.byte_add((units - 1) * UNIT).cast::<[u8; UNIT]>().write([0; UNIT]);
        at.cast().write(segment);
        let start = at.byte_add(offset_of!(EthernetSegment, inline_start_or_tag));
        start.as_ptr().copy_from_nonoverlapping(headers.as_ptr(), headers.len());
        at.byte_add(units * UNIT)
    }
}

/// A packet that the device cuts into segments (TSO): its headers, which every segment gets, and
/// its payload.
#[derive(Clone, Copy, Debug)]
pub struct Segmented<'a> {
    /// The headers up to that of TCP, as in a packet of the whole payload.
    pub header: &'a [u8],
    /// The most payload bytes of a segment.
    pub mss: u16,
    /// The payload.
    pub payload: &'a [Sge],
}

/// [`Segmented`] with its flags: all that follows the control segment.
#[derive(Clone, Copy)]
pub(crate) struct SegmentedData<'a> {
    pub(crate) packet: Segmented<'a>,
    pub(crate) checksums: bool,
}

// SAFETY: header and entries are written only if they fit into a request of the largest size,
// after a control segment.
unsafe impl Data for SegmentedData<'_> {
    unsafe fn write(
        self,
        at: NonNull<u8>,
        _: DataKind,
        limits: &Limits,
    ) -> Result<usize, PostError> {
        let Self { packet: Segmented { header, mss, payload }, checksums } = self;
        let tso = &limits.tso;
        let length = header.len();
        if length < HEADER || length > tso.max_header as usize {
            let length = u32::try_from(length).unwrap_or(u32::MAX);
            return Err(PostError::TsoHeader { length, max: tso.max_header });
        }
        if mss == 0 {
            return Err(PostError::TsoSegmentSize);
        }
        let units = segment_units(length);
        let max_sge =
            (tso.max_units as usize).saturating_sub(1 + units).min(limits.max_sge as usize);
        let max_payload = tso.max_total.saturating_sub(length as u32);
        let segment = EthernetSegment {
            cs_flags: first_word(checksums)[4],
            mss: U16::new(mss),
            inline_size_or_insert: U16::new(length as u16),
            ..EthernetSegment::default()
        };
        // SAFETY: segment and header take `units` units, and there is room for `max_sge` entries
        // after them.
        unsafe {
            let entries = write_headers(at, header, segment);
            Ok(units + write_sges(entries, payload, max_sge as u32, Some(max_payload))?)
        }
    }
}

/// The place of a packet's entry in a list.
pub(crate) trait Entry {
    fn sge(&self) -> Sge;
}

impl Entry for Sge {
    #[inline]
    fn sge(&self) -> Sge {
        *self
    }
}

impl Entry for Cell<Sge> {
    #[inline]
    fn sge(&self) -> Sge {
        self.get()
    }
}

/// The packets of a request that sends several: one entry for each.
pub(crate) struct SeveralPackets<'a, E>(pub(crate) &'a [E]);

impl<E> Clone for SeveralPackets<'_, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for SeveralPackets<'_, E> {}

// SAFETY: at most `max_sge` entries are written.
unsafe impl<E: Entry> Data for SeveralPackets<'_, E> {
    unsafe fn write(
        self,
        at: NonNull<u8>,
        _: DataKind,
        limits: &Limits,
    ) -> Result<usize, PostError> {
        let Self(packets) = self;
        if packets.is_empty() {
            return Err(PostError::PacketTooShort { index: 0, length: 0 });
        }
        let mut place = at;
        for (index, packet) in packets.iter().enumerate().take(limits.max_sge as usize) {
            let sge = packet.sge();
            if sge.length.wrapping_sub(SHORTEST) > MAX_SGE_LENGTH - SHORTEST {
                return Err(wrong_length(index, sge.length));
            }
            // SAFETY: there is room for `max_sge` entries, of which this is one. Each is a packet
            // of its own, so no limit is on their sum.
            unsafe {
                write_sge(place, sge);
                place = place.byte_add(UNIT);
            }
        }
        if packets.len() > limits.max_sge as usize {
            let given = u32::try_from(packets.len()).unwrap_or(u32::MAX);
            return Err(PostError::TooManySges { given, max: limits.max_sge });
        }
        Ok(packets.len())
    }
}

/// The packets of a request that sends several, copied into it: each after its length.
#[derive(Clone, Copy)]
pub(crate) struct InlinePackets<'a>(pub(crate) &'a [&'a [u8]]);

// SAFETY: what is written ends where `max_inline` bytes after their length would, rounded up to a
// unit.
unsafe impl Data for InlinePackets<'_> {
    unsafe fn write(
        self,
        at: NonNull<u8>,
        _: DataKind,
        limits: &Limits,
    ) -> Result<usize, PostError> {
        let Self(packets) = self;
        // The last unit of a queue's largest request may be used in part.
        let room = if limits.max_inline == 0 { 0 } else { units_of(limits.max_inline as usize) };
        let (mut place, mut left) = (at, room);
        for packet in packets {
            let units = units_of(packet.len());
            if packet.len() < HEADER || units > left {
                return Err(self.wrong(limits));
            }
            left -= units;
            // SAFETY: there is room for as many units as were left, of which these are some.
            unsafe {
                // Padding after the packet, in place of what an earlier request left there.
                place.byte_add((units - 1) * UNIT).cast::<[u8; UNIT]>().write([0; UNIT]);
                place.cast().write(U32::new(packet.len() as u32 | INLINE));
                let bytes = place.byte_add(INLINE_HEADER).as_ptr();
                bytes.copy_from_nonoverlapping(packet.as_ptr(), packet.len());
                place = place.byte_add(units * UNIT);
            }
        }
        if packets.is_empty() {
            return Err(self.wrong(limits));
        }
        Ok(room - left)
    }
}

/// The units of `bytes` bytes of inline data with their length. No slice is long enough to
/// overflow.
#[inline]
const fn units_of(bytes: usize) -> usize {
    (INLINE_HEADER + bytes).div_ceil(UNIT)
}

impl InlinePackets<'_> {
    /// Why these cannot be sent.
    #[cold]
    #[inline(never)]
    fn wrong(self, limits: &Limits) -> PostError {
        let Self(packets) = self;
        let clamped = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        if let Some(index) = packets.iter().position(|packet| packet.len() < HEADER) {
            return wrong_length(index, clamped(packets[index].len()));
        }
        let add = |units: usize, packet: &&[u8]| units.saturating_add(units_of(packet.len()));
        match packets.iter().fold(0, add).saturating_mul(UNIT) {
            0 => PostError::PacketTooShort { index: 0, length: 0 },
            bytes => PostError::InlineTooLong {
                length: clamped(bytes - INLINE_HEADER),
                max: limits.max_inline,
            },
        }
    }
}

/// Bytes of the shortest packet: a header.
const SHORTEST: u32 = HEADER as u32;

/// The error of a packet of a length that cannot be sent.
#[cold]
fn wrong_length(index: usize, length: u32) -> PostError {
    let index = index as u32;
    match length < SHORTEST {
        true => PostError::PacketTooShort { index, length },
        false => PostError::SgeTooLong { index, length },
    }
}
