//! One simulated machine for several processes.
//!
//! A [`Host`] is a process that serves the machine at a socket; a [`Wire`] is a process's
//! connection to it, and a [`Kernel`](mlx5_uapi::Kernel) for its driver. Calls go over the socket
//! with their attributes. The memory that the attributes point to, queues, doorbell records and
//! registered memory are the ordinary memory of the process, which the host reads and writes as a
//! debugger does (`process_vm_readv`). Only pages of the device (UARs, device memory) are in a file
//! that both map. Descriptors of events are passed over the socket.
//!
//! When a process ends, for any reason, the host ends its objects, as a kernel does.
//!
//! The host's process needs the rights of a debugger over the others. The same user is enough: they
//! permit it themselves if the kernel requires that.

mod client;
mod host;
mod message;
mod served;
mod unreached;

pub use client::{Wire, WireCmFile, WireFile};
pub use host::{Host, Leave, lock_of};
pub use served::Served;
pub use unreached::Unreached;

/// More units of work than a program that ends can have left.
const LEFT_BEHIND: usize = 100_000;

/// Lets a machine do the work that a program has left. The number of steps is bounded, for a
/// machine may never be idle: it may retry messages without a receiver, or have other programs.
pub fn finish(simulator: &mlx5_sim::Simulator) {
    for _ in 0..LEFT_BEHIND {
        if !simulator.step() {
            break;
        }
    }
}
