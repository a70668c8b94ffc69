//! Numbers in mailboxes of commands without a typed layout.

use mlx5_prm::fields::{get_bits, set_bits};

/// Position of a number in an input or output: first bit and width.
pub(crate) type Place = (usize, usize);

/// The number of most objects.
pub(crate) const NUMBER: Place = (0x48, 24);

/// Writes a number into an input.
pub(crate) fn put(bytes: &mut [u8], (bit, width): Place, number: u32) {
    set_bits(bytes, bit, width, number.into());
}

/// Reads a number from an output; zero if the output is too short.
pub(crate) fn take(bytes: &[u8], (bit, width): Place) -> u32 {
    if bytes.len() * 8 < bit + width { 0 } else { get_bits(bytes, bit, width) as u32 }
}
