//! Local and remote memory, as requests name it.

/// A scatter/gather entry (SGE): local memory. An SGE of length zero is omitted from the WQE.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Sge {
    /// Virtual address.
    pub addr: u64,
    /// Length in bytes.
    pub length: u32,
    /// Local key.
    pub lkey: u32,
}

/// Memory at the peer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct RemoteAddress {
    /// Virtual address.
    pub addr: u64,
    /// Remote key.
    pub rkey: u32,
}
