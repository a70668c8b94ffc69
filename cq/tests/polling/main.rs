//! Completion queues in plain memory: CQEs built from the tables of the PRM, and the completions
//! that polling returns.
#![cfg(not(loom))]

mod bed;
mod compressed;
mod deferred;
mod entries;
mod fuzz;
mod laps;
mod memory;
mod packets;
mod parts;
mod purge;
mod strides;
mod threads;
mod untrusted;
mod unusual;
