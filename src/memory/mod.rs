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

/// Whether the kernel has an object, and who destroys it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Held {
    /// It does; dropping the value destroys it.
    Own,
    /// It does; it is another part's, so only an explicit call destroys it.
    Imported,
    /// It was destroyed.
    No,
}

impl Held {
    /// Whether it is to be destroyed, by an explicit call or not.
    fn destroys(self, explicit: bool) -> bool {
        self == Self::Own || explicit && self == Self::Imported
    }
}
