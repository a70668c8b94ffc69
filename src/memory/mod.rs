//! Memory that the device may reach: protection domains, regions, windows, and keys that requests
//! configure.

mod atomics;
mod buffer;
mod device_memory;
mod message;
pub mod mkey;
mod mr;
mod pd;
mod range;
mod typed;
pub mod window;

pub use atomics::{Atomic, AtomicRegion};
pub use buffer::{Buffer, BufferRegion};
pub use device_memory::DeviceMemory;
pub use message::{
    MessageFrame, MessageRing, MessageRingWriter, MessageSlotWriter, MessageSlots, SlotFrame,
};
pub use mr::{Access, MemoryBuilder, MemoryRegion, Reregistration};
pub use pd::ProtectionDomain;
pub use typed::{Plain, Typed};
