//! Doorbell registers, BlueFlame, doorbell records, and the barriers between them.
//!
//! The crate maps no memory: its callers pass pointers. [`SendRegister::ring`] documents the order
//! of the stores that ring a send doorbell, and [`barrier`] what each barrier orders, and for whom.
//!
//! The feature `watch` is for tests: `barrier::watch` calls a function at each barrier.

#![deny(missing_debug_implementations)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(test), no_std)]

pub mod barrier;
mod lock;
mod prefetch;
mod record;
mod register;
mod sync;

pub use lock::{Lock, LockGuard};
pub use prefetch::prefetch;
pub use record::{CompletionQueueRecord, QueuePairRecord};
pub use register::{CompletionQueueRegister, SendRegister, SharedBlueFlame};
