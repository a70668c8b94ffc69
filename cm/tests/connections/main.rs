//! Connections over the simulated connection manager, in one process.

mod established;
mod faults;
mod identifiers;
mod rig;
