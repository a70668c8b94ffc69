//! Connections over the simulated connection manager, in one process.

mod depths;
mod established;
mod faults;
mod forks;
mod groups;
mod identifiers;
mod kills;
mod mortal;
mod rig;
mod spaces;
mod wire;
