//! Drain points of a send queue.

/// The point at which a send queue stops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DrainAt {
    /// Before the next WQE that is not executed yet.
    Now,
    /// After this number of further WQEs.
    After(u32),
    /// Before the WQE at this block (free-running, 16 bits).
    Block(u16),
}

/// A requested drain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drain {
    pub(crate) at: DrainAt,
    /// It stops before a WQE with a fence and at the end of the queue, even if that is earlier.
    pub(crate) before_fence: bool,
    /// The device raises SQ_DRAINED when the queue has stopped.
    pub(crate) notify: bool,
}
