//! Bit fields of the command interface, declared in tables with one line per field.
//!
//! Bits are numbered as in `mlx5_ifc.h`: from the first byte of the layout on, the most significant
//! bit of each byte first. Within a big-endian dword that is the order in which the PRM draws them.
//! A layout is a byte array, so it needs no alignment and can be owned, borrowed from a mailbox or
//! nested in another layout without a copy.

pub use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{U32, U64};

mod tables;

#[cfg(test)]
pub(crate) use tables::field_test;
pub(crate) use tables::{codes, field_access, field_entry, field_type, layouts};

/// Returns the `width` bits of `bytes` that start at bit `bit`; bit 0 is the top bit of the first
/// byte.
///
/// `width` is 1 to 64, and the field spans at most eight bytes.
#[inline]
#[must_use]
pub const fn get_bits(bytes: &[u8], bit: usize, width: usize) -> u64 {
    let last = (bit + width - 1) / 8;
    let mut value = 0u64;
    let mut at = bit / 8;
    while at <= last {
        value = (value << 8) | bytes[at] as u64;
        at += 1;
    }
    (value >> (7 - (bit + width - 1) % 8)) & mask(width)
}

/// Stores the low `width` bits of `value` at bit `bit` of `bytes`; no other bit changes.
///
/// The limits are those of [`get_bits`]. Higher bits of `value` are ignored.
#[inline]
pub const fn set_bits(bytes: &mut [u8], bit: usize, width: usize, value: u64) {
    let first = bit / 8;
    let shift = 7 - (bit + width - 1) % 8;
    let keep = !(mask(width) << shift);
    let put = (value & mask(width)) << shift;
    let mut at = (bit + width - 1) / 8;
    let mut down = 0;
    loop {
        bytes[at] = (bytes[at] & (keep >> down) as u8) | (put >> down) as u8;
        if at == first {
            break;
        }
        at -= 1;
        down += 8;
    }
}

const fn mask(width: usize) -> u64 {
    u64::MAX >> (64 - width)
}

/// The value of a field: a flag, or a number of up to 32 or 64 bits.
pub trait FieldValue: Copy {
    /// The width of the widest field that this type can hold.
    const BITS: usize;
    /// Converts from the bits of the field.
    fn from_bits(bits: u64) -> Self;
    /// Converts to the bits of the field.
    fn to_bits(self) -> u64;
}

impl FieldValue for bool {
    const BITS: usize = 1;
    #[inline]
    fn from_bits(bits: u64) -> Self {
        bits != 0
    }
    #[inline]
    fn to_bits(self) -> u64 {
        u64::from(self)
    }
}

impl FieldValue for u32 {
    const BITS: usize = 32;
    #[inline]
    fn from_bits(bits: u64) -> Self {
        bits as Self
    }
    #[inline]
    fn to_bits(self) -> u64 {
        u64::from(self)
    }
}

impl FieldValue for u64 {
    const BITS: usize = 64;
    #[inline]
    fn from_bits(bits: u64) -> Self {
        bits
    }
    #[inline]
    fn to_bits(self) -> u64 {
        self
    }
}

/// One line of a layout's table, for `Debug` and for checks.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Name, as `mlx5_ifc.h` spells it.
    pub name: &'static str,
    /// First bit, counted from the start of the layout.
    pub bit: usize,
    /// Width in bits.
    pub width: usize,
    /// Kind of field.
    pub kind: FieldKind,
}

/// The kind of a [`Field`].
#[derive(Clone, Copy, Debug)]
pub enum FieldKind {
    /// A number or a flag.
    Bits,
    /// A nested layout, with its table.
    Layout(&'static [Field]),
    /// An array.
    Array,
}

/// A fixed-size type that can be nested in a layout.
pub trait Group: FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned {
    /// The [`Field::kind`] of such a field.
    const KIND: FieldKind;
}

impl<const N: usize> Group for [u8; N] {
    const KIND: FieldKind = FieldKind::Array;
}

impl<const N: usize> Group for [U32; N] {
    const KIND: FieldKind = FieldKind::Array;
}

impl<const N: usize> Group for [U64; N] {
    const KIND: FieldKind = FieldKind::Array;
}

/// A layout of the command interface: its fixed part, declared field by field.
pub trait Layout: Group + Clone + Default {
    /// Size in bytes, equal to `MLX5_ST_SZ_BYTES`.
    const BYTES: usize;
    /// The table: plain fields in order of position, then overlays.
    const FIELDS: &'static [Field];
}

/// Returns the 64-bit addresses (`pas`) that follow a layout; ignores an incomplete last one.
#[must_use]
pub fn addresses(tail: &[u8]) -> &[U64] {
    let whole = &tail[..tail.len() - tail.len() % size_of::<U64>()];
    <[U64]>::ref_from_bytes(whole).unwrap_or_default()
}

/// The mutable counterpart of [`addresses`].
#[must_use]
pub fn addresses_mut(tail: &mut [u8]) -> &mut [U64] {
    let whole = tail.len() - tail.len() % size_of::<U64>();
    <[U64]>::mut_from_bytes(&mut tail[..whole]).unwrap_or_default()
}

/// Formats the fields that are not zero, for the `Debug` of a layout.
pub(crate) fn debug(
    name: &str,
    fields: &[Field],
    bytes: &[u8],
    f: &mut core::fmt::Formatter<'_>,
) -> core::fmt::Result {
    let mut out = f.debug_struct(name);
    for field in fields {
        let part = || &bytes[field.bit / 8..(field.bit + field.width) / 8];
        match field.kind {
            FieldKind::Bits => match get_bits(bytes, field.bit, field.width) {
                0 => {}
                value => _ = out.field(field.name, &format_args!("{value:#x}")),
            },
            _ if part().iter().all(|byte| *byte == 0) => {}
            FieldKind::Layout(inner) => _ = out.field(field.name, &Part(field.name, inner, part())),
            FieldKind::Array => _ = out.field(field.name, &format_args!("{:02x?}", part())),
        }
    }
    out.finish_non_exhaustive()
}

struct Part<'a>(&'a str, &'a [Field], &'a [u8]);

impl core::fmt::Debug for Part<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        debug(self.0, self.1, self.2, f)
    }
}

/// Returns whether the fields are in ascending order, do not overlap, and meet [`is_inside`].
pub(crate) const fn is_orderly(fields: &[Field], bits: usize) -> bool {
    let mut end = 0;
    let mut at = 0;
    while at < fields.len() {
        if fields[at].bit < end {
            return false;
        }
        end = fields[at].bit + fields[at].width;
        at += 1;
    }
    end <= bits && is_inside(fields, bits)
}

/// Returns whether every field lies inside `bits` and is aligned: a number of up to 32 bits within
/// one dword, a wider one within two, a layout or array on whole bytes. Fields may overlap.
pub(crate) const fn is_inside(fields: &[Field], bits: usize) -> bool {
    let mut at = 0;
    while at < fields.len() {
        let Field { bit, width, kind, .. } = fields[at];
        let sound = match kind {
            FieldKind::Bits => width <= 64 && bit % 32 + width <= if width > 32 { 64 } else { 32 },
            _ => bit % 8 == 0 && width % 8 == 0,
        };
        if width == 0 || bit + width > bits || !sound {
            return false;
        }
        at += 1;
    }
    true
}

/// Checks that the field covers its bits and no others: all ones among zeros, then zero among ones.
#[cfg(test)]
pub(crate) fn check_number<L: Layout, T: FieldValue>(
    place: &str,
    (bit, width): (usize, usize),
    get: fn(&L) -> T,
    set: fn(&mut L, T) -> &mut L,
) {
    let ones = |it: &L| it.as_bytes().iter().map(|byte| byte.count_ones() as usize).sum::<usize>();
    let mut it = L::default();
    set(&mut it, T::from_bits(u64::MAX));
    assert_eq!(get(&it).to_bits(), mask(width), "{place}");
    assert_eq!(get_bits(it.as_bytes(), bit, width), mask(width), "{place}");
    assert_eq!(ones(&it), width, "{place}");

    it.as_mut_bytes().fill(0xff);
    set(&mut it, T::from_bits(0));
    assert_eq!(get(&it).to_bits(), 0, "{place}");
    assert_eq!(get_bits(it.as_bytes(), bit, width), 0, "{place}");
    assert_eq!(ones(&it), L::BYTES * 8 - width, "{place}");
}

/// Checks that the nested layout or array covers its bytes and no others.
#[cfg(test)]
pub(crate) fn check_group<L: Layout, G: Group>(
    place: &str,
    bit: usize,
    get: fn(&L) -> &G,
    get_mut: fn(&mut L) -> &mut G,
) {
    let mut it = L::default();
    get_mut(&mut it).as_mut_bytes().fill(0xff);
    assert!(get(&it).as_bytes().iter().all(|byte| *byte == 0xff), "{place}");
    for (at, byte) in it.as_bytes().iter().enumerate() {
        let inside = (bit / 8..bit / 8 + size_of::<G>()).contains(&at);
        assert_eq!(*byte == 0xff, inside, "{place}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bit_zero_is_the_top_bit_of_the_first_byte() {
        let mut bytes = [0u8; 8];
        set_bits(&mut bytes, 0, 1, 1);
        assert_eq!(bytes, [0x80, 0, 0, 0, 0, 0, 0, 0]);
        set_bits(&mut bytes, 0x28, 0x18, 0x0a_bc_de);
        assert_eq!(bytes, [0x80, 0, 0, 0, 0, 0x0a, 0xbc, 0xde]);
        assert_eq!(get_bits(&bytes, 0x2c, 8), 0xab);
    }

    #[test]
    fn a_field_across_bytes_keeps_its_neighbours() {
        let mut bytes = [0xffu8; 4];
        set_bits(&mut bytes, 0x0f, 2, 0);
        assert_eq!(bytes, [0xff, 0xfe, 0x7f, 0xff]);
        set_bits(&mut bytes, 0x0f, 2, 0b10);
        assert_eq!(bytes, [0xff, 0xff, 0x7f, 0xff]);
    }

    #[test]
    fn a_whole_quadword_is_big_endian() {
        let mut bytes = [0u8; 16];
        set_bits(&mut bytes, 64, 64, 0x0123_4567_89ab_cdef);
        assert_eq!(bytes[8..], [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef]);
        assert_eq!(get_bits(&bytes, 64, 64), 0x0123_4567_89ab_cdef);
    }

    #[test]
    fn bits_beyond_the_width_are_ignored() {
        let mut bytes = [0u8; 4];
        set_bits(&mut bytes, 8, 4, 0x1f3);
        assert_eq!(bytes, [0, 0x30, 0, 0]);
    }

    #[test]
    fn tables_that_overlap_or_overflow_are_refused() {
        const fn bits(bit: usize, width: usize) -> Field {
            Field { name: "", bit, width, kind: FieldKind::Bits }
        }
        assert!(is_orderly(&[bits(0, 4), bits(4, 28), bits(32, 64)], 96));
        assert!(!is_orderly(&[bits(0, 5), bits(4, 4)], 32), "overlap");
        assert!(!is_orderly(&[bits(0, 32), bits(32, 1)], 32), "past the end");
        assert!(!is_orderly(&[bits(28, 8)], 64), "across a dword");
    }

    #[test]
    fn a_ragged_tail_has_only_whole_addresses() {
        let mut tail = [0u8; 20];
        addresses_mut(&mut tail)[1] = U64::new(0x1234_5000);
        assert_eq!(tail[12..16], [0x12, 0x34, 0x50, 0x00]);
        assert_eq!(addresses(&tail).len(), 2);
        assert_eq!(addresses(&tail)[1].get(), 0x1234_5000);
    }
}
