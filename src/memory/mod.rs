//! Memory that the device may access: protection domains, regions, windows, and keys that requests
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

/// Whether the object exists in the kernel, and how it is destroyed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Held {
    /// It exists; dropping the value destroys it.
    Own,
    /// It exists, but another part of the context owns it: only an explicit call destroys it.
    Imported,
    /// It was destroyed.
    No,
}

impl Held {
    /// Whether to destroy it, by an explicit call or not.
    fn destroys(self, explicit: bool) -> bool {
        self == Self::Own || explicit && self == Self::Imported
    }
}
