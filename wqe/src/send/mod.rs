//! The send queue: building, posting and cancelling requests, and their records.

pub(crate) mod any;
pub(crate) mod batch;
#[cfg(all(test, not(loom)))]
pub(crate) mod bed;
pub(crate) mod begun;
pub(crate) mod builder;
pub(crate) mod cancel;
mod changes;
pub(crate) mod journal;
pub(crate) mod layout;
pub(crate) mod list;
pub(crate) mod post;
pub(crate) mod prefetch;
pub(crate) mod queue;
pub(crate) mod records;
pub(crate) mod ring;
mod room;
mod sign;
