//! Awaiting requests on the simulated device.

mod ends;
mod packets;
mod requests;
mod rig;
mod seats;
mod shared;
mod ways;
