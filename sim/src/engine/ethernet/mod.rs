//! Ethernet: frames that are sent and received, and their steering.

mod commands;
mod hash;
mod pace;
mod receive;
mod send;
mod steering;

pub(crate) use commands::LOG_RQ_TABLE;
pub(crate) use send::LOG_SEGMENTED;
pub(crate) use steering::{LEVELS, LOG_ENTRIES};
