//! Receive queues: a queue pair's own, and shared ones.

pub(crate) mod queue;
pub(crate) mod shared;
