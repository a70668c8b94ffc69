//! Memory that the device may reach: protection domains, regions, windows, and keys that requests
//! configure.

pub mod mkey;
mod mr;
mod pd;
mod range;
pub mod window;

pub use mr::{Access, MemoryBuilder, MemoryRegion, Reregistration};
pub use pd::ProtectionDomain;
