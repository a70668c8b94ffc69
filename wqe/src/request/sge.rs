//! Places in memory, as requests name them.

/// A scatter or gather entry: local memory. An entry of length zero is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Sge {
    /// Virtual address.
    pub addr: u64,
    /// Length in bytes.
    pub length: u32,
    /// Local key.
    pub lkey: u32,
}

/// Memory at the other side.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct RemoteAddress {
    /// Virtual address.
    pub addr: u64,
    /// Remote key.
    pub rkey: u32,
}
