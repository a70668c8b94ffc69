//! Receive queues: of a queue pair, and shared ones.

mod free;
pub(crate) mod post;
pub(crate) mod queue;
pub(crate) mod records;
pub(crate) mod shared;
pub(crate) mod striding;
