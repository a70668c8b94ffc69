//! The send queue: building, posting and cancelling requests, and their records.

pub(crate) mod batch;
#[cfg(all(test, not(loom)))]
pub(crate) mod bed;
pub(crate) mod build;
pub(crate) mod cancel;
pub(crate) mod chosen;
pub(crate) mod fast;
pub(crate) mod fifo;
pub(crate) mod journal;
pub(crate) mod layout;
pub(crate) mod list;
pub(crate) mod post;
pub(crate) mod prefetch;
pub(crate) mod queue;
pub(crate) mod records;
mod room;
mod sign;
pub(crate) mod steps;
