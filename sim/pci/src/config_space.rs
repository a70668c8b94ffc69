//! The function's configuration space.

use mlx5_sim::Model;

use crate::interrupts::VECTORS;

/// Bytes of the configuration space of a PCI Express function.
pub const BYTES: usize = 4096;
/// Bytes of BAR 0: the initialization segment, the MSI-X table, the UAR pages, and the device's own
/// memory.
pub const BAR0_BYTES: u64 = 64 << 20;
/// Offset of the device's own memory in BAR 0.
pub const BAR0_MEMORY: u64 = BAR0_BYTES / 2;
/// Offsets of the MSI-X table and of the pending bits in BAR 0.
pub(crate) const MSIX_TABLE: u32 = 0x3000;
const MSIX_PENDING: u32 = 0x3800;

/// PCI's number for Mellanox.
const VENDOR: u16 = 0x15b3;
/// A network controller for Ethernet or InfiniBand: class 2, subclasses 0 and 7.
const CLASS_NETWORK: u8 = 0x02;
const SUBCLASS: [u8; 2] = [0x00, 0x07];

/// Offsets of the header's registers. PCI Local Bus Specification, 6.1.
mod header {
    pub(super) const VENDOR: usize = 0x00;
    pub(super) const DEVICE: usize = 0x02;
    pub(super) const COMMAND: usize = 0x04;
    pub(super) const STATUS: usize = 0x06;
    pub(super) const SUBCLASS: usize = 0x0a;
    pub(super) const CLASS: usize = 0x0b;
    pub(super) const CACHE_LINE: usize = 0x0c;
    pub(super) const BAR0: usize = 0x10;
    pub(super) const SUBSYSTEM_VENDOR: usize = 0x2c;
    pub(super) const SUBSYSTEM: usize = 0x2e;
    pub(super) const CAPABILITIES: usize = 0x34;
    pub(super) const INTERRUPT_LINE: usize = 0x3c;
}

/// Memory space, bus master, parity, SERR, INTx disable.
const COMMAND_MASK: u16 = 0x0546;
/// A 64-bit prefetchable memory BAR.
const BAR_KIND: u32 = 0xc;

/// Offsets of the capabilities, which form a list from here on.
const POWER: usize = 0x40;
const EXPRESS: usize = 0x60;
const MSIX: usize = 0x9c;
const VENDOR_SPECIFIC: usize = 0xc0;

/// Offset of Device Control in the PCI Express capability, and the reset bit in it.
const DEVICE_CONTROL: usize = EXPRESS + 8;
const FUNCTION_LEVEL_RESET: u16 = 1 << 15;

/// The request that a write to the configuration space makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    /// Nothing outside the configuration space.
    Nothing,
    /// A function-level reset.
    Reset,
}

/// The configuration space: its bytes, and a mask of the bits that can be written.
#[derive(Clone, Debug)]
pub struct ConfigSpace {
    bytes: Box<[u8; BYTES]>,
    writable: Box<[u8; BYTES]>,
}

impl ConfigSpace {
    /// The configuration space of a model after reset.
    #[must_use]
    pub fn new(model: Model, infiniband: bool) -> Self {
        let mut space = Self { bytes: Box::new([0; BYTES]), writable: Box::new([0; BYTES]) };
        space.set(header::VENDOR, &VENDOR.to_le_bytes());
        space.set(header::DEVICE, &model.pci_device_id().to_le_bytes());
        space.set(header::STATUS, &0x0010u16.to_le_bytes());
        space.set(header::SUBCLASS, &[SUBCLASS[usize::from(infiniband)]]);
        space.set(header::CLASS, &[CLASS_NETWORK]);
        space.set(header::BAR0, &BAR_KIND.to_le_bytes());
        space.set(header::SUBSYSTEM_VENDOR, &VENDOR.to_le_bytes());
        space.set(header::SUBSYSTEM, &0x0008u16.to_le_bytes());
        space.set(header::CAPABILITIES, &[POWER as u8]);
        space.set(header::INTERRUPT_LINE, &[0, 0]);
        space.allow(header::COMMAND, &COMMAND_MASK.to_le_bytes());
        space.allow(header::CACHE_LINE, &[0xff]);
        space.allow(header::BAR0, &(!(BAR0_BYTES - 1)).to_le_bytes());
        space.allow(header::INTERRUPT_LINE, &[0xff]);

        // Power management, version 3; only the power state can be written.
        space.set(POWER, &[0x01, EXPRESS as u8, 0x03, 0x00]);
        space.allow(POWER + 4, &[0x03, 0x00]);

        // An endpoint, version 2, with function-level reset and extended tags.
        space.set(EXPRESS, &[0x10, MSIX as u8, 0x02, 0x00]);
        space.set(EXPRESS + 4, &0x1000_8fe2u32.to_le_bytes());
        space.set(DEVICE_CONTROL, &0x2810u16.to_le_bytes());
        space.allow(DEVICE_CONTROL, &0x7fffu16.to_le_bytes());
        // Link: 8 GT/s by 16, as capable and as trained.
        space.set(EXPRESS + 0xc, &0x0000_0103u32.to_le_bytes());
        space.allow(EXPRESS + 0x10, &0x0fc3u16.to_le_bytes());
        space.set(EXPRESS + 0x12, &0x1103u16.to_le_bytes());
        // Device 2: completion timeout ranges; link 2: 2.5, 5 and 8 GT/s.
        space.set(EXPRESS + 0x24, &0x0000_001fu32.to_le_bytes());
        space.allow(EXPRESS + 0x28, &0x065fu16.to_le_bytes());
        space.set(EXPRESS + 0x2c, &0x0000_000eu32.to_le_bytes());
        space.set(EXPRESS + 0x30, &0x0003u16.to_le_bytes());
        space.allow(EXPRESS + 0x30, &0x001fu16.to_le_bytes());

        // MSI-X in BAR 0.
        space.set(MSIX, &[0x11, VENDOR_SPECIFIC as u8]);
        space.set(MSIX + 2, &(VECTORS as u16 - 1).to_le_bytes());
        space.allow(MSIX + 2, &0xc000u16.to_le_bytes());
        space.set(MSIX + 4, &MSIX_TABLE.to_le_bytes());
        space.set(MSIX + 8, &MSIX_PENDING.to_le_bytes());

        // The gateway to the device's internals: a semaphore, which is taken by writing the
        // counter's value, and no space after it.
        space.set(VENDOR_SPECIFIC, &[0x09, 0x00, 0x18, 0x00]);
        space.set(VENDOR_SPECIFIC + 8, &1u32.to_le_bytes());
        space.allow(VENDOR_SPECIFIC + 0xc, &u32::MAX.to_le_bytes());
        space
    }

    fn set(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn allow(&mut self, at: usize, mask: &[u8]) {
        self.writable[at..at + mask.len()].copy_from_slice(mask);
    }

    /// Reads bytes; those outside the space read as ones.
    pub fn read(&self, offset: u64, to: &mut [u8]) {
        for (at, byte) in (offset..).zip(to) {
            let known = usize::try_from(at).ok().and_then(|at| self.bytes.get(at));
            *byte = known.copied().unwrap_or(0xff);
        }
    }

    /// Writes the bits that can be written; they keep their values.
    pub fn write(&mut self, offset: u64, from: &[u8]) -> Asked {
        let mut asked = Asked::Nothing;
        for (at, byte) in (offset..).zip(from) {
            let Ok(at) = usize::try_from(at) else { continue };
            let Some(mask) = self.writable.get(at) else { continue };
            self.bytes[at] = self.bytes[at] & !mask | byte & mask;
            if at == DEVICE_CONTROL + 1 && byte & (FUNCTION_LEVEL_RESET >> 8) as u8 != 0 {
                asked = Asked::Reset;
            }
        }
        asked
    }
}
