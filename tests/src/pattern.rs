//! Bytes that identify their place.

use crate::failed::Outcome;
use mlx5::MemoryRegion;
use std::ops::Range;

/// `length` bytes that follow from `seed`; those of other seeds differ.
pub(crate) fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Writes the pattern of `seed` into a region.
pub(crate) fn fill(mr: &MemoryRegion, offset: usize, seed: u64, length: usize) -> Outcome {
    Ok(mr.write_at(offset, &pattern(seed, length))?)
}

/// Checks that a region holds the pattern of `seed`.
///
/// # Panics
/// If it does not; the message names the first byte that differs.
#[track_caller]
pub(crate) fn verify(mr: &MemoryRegion, offset: usize, seed: u64, length: usize) {
    expect_bytes(mr, offset, &pattern(seed, length));
}

/// Checks that a region holds these bytes.
#[track_caller]
pub(crate) fn expect_bytes(mr: &MemoryRegion, offset: usize, expected: &[u8]) {
    let mut found = vec![0; expected.len()];
    mr.read_at(offset, &mut found).expect("inside the region");
    if found == expected {
        return;
    }
    let at = found.iter().zip(expected).position(|(a, b)| a != b).unwrap_or_default();
    panic!(
        "{} bytes at {offset}: byte {at} is {:#04x} and should be {:#04x}",
        expected.len(),
        found[at],
        expected[at]
    );
}

/// Checks that a part of a region still has its initial zeros.
#[track_caller]
pub(crate) fn untouched(mr: &MemoryRegion, range: Range<usize>) {
    expect_bytes(mr, range.start, &vec![0; range.len()]);
}
