//! The parts of requests that all kinds of queues share.

pub(crate) mod batch_error;
pub(crate) mod data;
pub(crate) mod error;
pub(crate) mod ethernet;
pub(crate) mod flags;
pub mod operation;
pub(crate) mod raw;
pub(crate) mod remote;
pub(crate) mod segment;
pub(crate) mod sge;
pub mod transport;
pub(crate) mod window;
