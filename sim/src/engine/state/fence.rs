//! Changes that a later request may not see yet.

/// Something that a request changed, with no fence since.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// A memory key, by its index.
    Mkey(u32),
    /// A PSV.
    Psv(u32),
}
