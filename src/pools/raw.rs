//! The parts of a queue in memory, for programs that drive it themselves.

use super::SendUar;
use std::ptr::NonNull;

/// A ring of requests or CQEs, in memory that the device reads or writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawRing {
    /// The first byte.
    pub start: NonNull<u8>,
    /// Number of places: a power of two, or zero.
    pub entries: u32,
    /// Bytes of a place.
    pub stride: u32,
}

/// The doorbell register of a send queue, in a mapped page of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawRegister {
    /// The first byte. Doorbells of eight bytes go here; with BlueFlame also to the other half.
    pub start: NonNull<u8>,
    /// Bytes of each of its two halves, into which a WQE may be copied. Zero: other queues ring the
    /// register too, or it is not one for BlueFlame, so only doorbells are allowed.
    pub blueflame_size: u32,
    /// Where the page is in the device's file, for `mmap`.
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
