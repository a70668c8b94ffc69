//! Tests of the door by the kernel's calls alone.

mod calls;
mod cm;
mod devx;
mod devx_files;
mod ethernet;
mod events;
mod extended;
mod faults;
mod objects;
mod query;
mod rig;
mod session;
