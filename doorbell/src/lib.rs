//! Doorbell registers, BlueFlame, doorbell records, and the barriers between them.
//!
//! This crate is given pointers and maps nothing. How a send doorbell is rung, and why in that
//! order, stands at [`SendRegister::ring`]; what each barrier orders, for whom, stands in
//! [`barrier`].
#![cfg_attr(not(test), no_std)]

pub mod barrier;
mod lock;
mod record;
mod register;
mod sync;

pub use lock::{Lock, Locked};
pub use record::{CompletionQueueRecord, QueuePairRecord};
pub use register::{CompletionQueueRegister, SendRegister, SharedBlueFlame};
