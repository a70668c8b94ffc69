//! The measured operations, each written as a user would write it, in a function of its own.

#![allow(missing_docs, reason = "each is what its name says")]

pub mod cancel;
pub mod control;
pub mod ethernet;
pub mod locked;
pub mod mkey;
pub mod poll;
pub mod post;
pub mod receive;
