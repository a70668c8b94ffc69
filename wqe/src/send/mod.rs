//! The send queue: building, posting and cancelling requests, and their records.
//!
//! Read in this order: `queue` (the state), `batch` (building a request), `room` (space in the
//! ring), `post` (completing a batch), `ring` and `records` (memory shared with the poller).
//! `builder`, `list`, `begun` and `any` are the front ends. `journal`, `changes`, `cancel`, `sign`,
//! `layout` and `prefetch` stand alone. A completion queue retires requests by
//! `SendRecords::retire_next`, then `retire_ahead`, then `retire_any`.

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
