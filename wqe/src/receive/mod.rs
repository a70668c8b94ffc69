//! Receive queues: of a queue pair, and shared ones.

pub(crate) mod queue;
pub(crate) mod shared;
