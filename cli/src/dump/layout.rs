//! Reads layouts out of bytes, and flags as words.

use mlx5_prm::zerocopy::{FromBytes, Immutable, KnownLayout};
use std::ops::BitAnd;

/// Reads a layout at `at`, if all of it is there.
pub(super) fn read<T: FromBytes + KnownLayout + Immutable>(bytes: &[u8], at: usize) -> Option<T> {
    T::read_from_prefix(bytes.get(at..)?).ok().map(|(layout, _)| layout)
}

/// The names of the bits that are set.
pub(super) fn named<T: Copy + Default + PartialEq + BitAnd<Output = T>>(
    flags: T,
    names: &[(T, &str)],
) -> String {
    let set = names.iter().filter(|(bit, _)| flags & *bit != T::default()).map(|(_, name)| *name);
    set.collect::<Vec<_>>().join(", ")
}
