//! The simulated ConnectX as a PCI function that QEMU reaches over vfio-user.
//!
//! The firmware, the engine, the keys and the wire are [`mlx5_sim`]'s, as for its other doors. This
//! library adds the parts between them and a real kernel's driver: configuration space,
//! initialization segment, command queue in the guest's memory, interrupts, and UAR pages in BAR 0,
//! where every write arrives separately and in order.

mod capture;
mod config_space;
mod function;
mod init_segment;
mod interrupts;
mod log;
mod mailbox;
mod memory;
mod serve;

pub use capture::Capture;
pub use config_space::{Asked, BAR0_BYTES, BAR0_MEMORY, BYTES as CONFIG_BYTES, ConfigSpace};
pub use function::Function;
pub use init_segment::{InitSegment, Written};
pub use interrupts::{Interrupts, VECTORS};
pub use log::Log;
pub use mailbox::{Command, Undelivered};
pub use memory::{DEVICE_BYTES, GuestMemory};
pub use serve::{Bus, machine};
