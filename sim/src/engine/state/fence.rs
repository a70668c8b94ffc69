//! What a later request may find as it was before.

/// Something that a request changed, and that no fence has followed yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// A memory key, by its index.
    Mkey(u32),
    /// A PSV.
    Psv(u32),
}
