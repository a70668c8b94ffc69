//! Where a send queue shall stop.

/// Where a send queue shall stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DrainAt {
    /// Before the next WQE that is not executed yet.
    Now,
    /// After so many more WQEs.
    After(u32),
    /// Before the WQE at this block (free-running, 16 bits).
    Block(u16),
}

/// A drain that was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drain {
    pub(crate) at: DrainAt,
    /// Before a WQE with a fence it stops anyway, and where the queue ends.
    pub(crate) before_fence: bool,
    /// SQ_DRAINED is raised in the end.
    pub(crate) notify: bool,
}
