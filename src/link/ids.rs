//! Identifiers of queues in events.

/// Identifies a completion queue in events. Unique in its context.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CqId(pub(crate) u64);

/// Identifies a queue pair in events. Unique in its context.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct QpId(pub(crate) u64);

/// Identifies a work queue in events. Unique in its context.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WqId(pub(crate) u64);

/// Identifies a shared receive queue in events. Unique in its context.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SrqId(pub(crate) u64);
