//! Completion queues on plain memory: entries written by hand after the PRM's tables, and what
//! comes of them.
#![cfg(not(loom))]

mod bed;
mod compressed;
mod departed;
mod entries;
mod fuzz;
mod laps;
mod memory;
mod parts;
mod threads;
mod untrusted;
