//! The parts of a queue in memory, for programs that drive it themselves.

use super::SendUar;
use std::ptr::NonNull;

/// A ring of requests or CQEs, in memory that the device reads or writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawRing {
    /// The first byte.
    pub start: NonNull<u8>,
    /// Number of entries: a power of two, or zero.
    pub entries: u32,
    /// Length of an entry in bytes.
    pub stride: u32,
}

/// The doorbell register of a send queue, in a mapped page of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawRegister {
    /// The first byte. Doorbells of eight bytes go here; with BlueFlame also to the other half.
    pub start: NonNull<u8>,
    /// Length of each of its two halves, into which a WQE may be copied. Zero if only doorbells are
    /// allowed, because other queues ring the register too, or because it is no BlueFlame register.
    pub blueflame_size: u32,
    /// Offset of the page in the device's file, for `mmap`.
    pub mmap_offset: u64,
}

impl SendUar {
    /// Returns the register for a program that rings it itself.
    pub(crate) fn raw(&self) -> RawRegister {
        let (start, mmap_offset) = self.raw_address();
        let exclusive = self.is_exclusive();
        let blueflame_size = if exclusive { self.half_size() as u32 } else { 0 };
        RawRegister { start, blueflame_size, mmap_offset }
    }
}
