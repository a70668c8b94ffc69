//! Memory keys: who may reach which memory, and where it lies.

use bitflags::bitflags;

use crate::dma::{Buffer, Dma, DmaFault};

bitflags! {
    /// Rights of a memory key, in the bits of the mkey context's access byte.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Access: u8 {
        /// Gather from it.
        const LOCAL_READ = 1 << 2;
        /// Scatter to it.
        const LOCAL_WRITE = 1 << 3;
        /// RDMA reads by others.
        const REMOTE_READ = 1 << 4;
        /// RDMA writes by others.
        const REMOTE_WRITE = 1 << 5;
        /// Atomics by others.
        const REMOTE_ATOMIC = 1 << 6;
    }
}

/// Where the memory under a key lies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Translation {
    /// A virtual address is a bus address.
    Physical,
    /// The first address of the key is the first byte of the buffer.
    Buffer(Buffer),
    /// Nowhere: reads give zeros, writes vanish (the null and dump-fill keys).
    Null,
}

/// What a memory key is made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MkeyConfig {
    /// The low byte of the key.
    pub tag: u8,
    /// Its protection domain.
    pub pd: u32,
    /// Its rights.
    pub access: Access,
    /// Its first virtual address.
    pub start: u64,
    /// Its length in bytes; `u64::MAX` covers every address.
    pub length: u64,
    /// Where the memory lies.
    pub translation: Translation,
    /// Not valid until a UMR makes it so.
    pub free: bool,
    /// A SEND_INVAL may invalidate it.
    pub remote_invalidate: bool,
}

/// Why a key does not allow an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KeyError {
    /// No such key, wrong tag, wrong domain, out of bounds, or without the right.
    Denied,
    /// The memory below did not answer.
    Memory(DmaFault),
}

impl From<DmaFault> for KeyError {
    fn from(fault: DmaFault) -> Self {
        Self::Memory(fault)
    }
}

impl MkeyConfig {
    /// The offset of an allowed access from the start of the key.
    pub(crate) fn check(
        &self,
        key: u32,
        pd: u32,
        address: u64,
        length: u64,
        right: Access,
    ) -> Result<u64, KeyError> {
        let offset = address.wrapping_sub(self.start);
        let bounded = self.length == u64::MAX
            || (address >= self.start
                && offset.checked_add(length).is_some_and(|end| end <= self.length));
        let allowed = key as u8 == self.tag
            && !self.free
            && self.pd == pd
            && self.access.contains(right)
            && bounded;
        if allowed { Ok(offset) } else { Err(KeyError::Denied) }
    }

    pub(crate) fn read(
        &self,
        dma: &dyn Dma,
        address: u64,
        offset: u64,
        to: &mut [u8],
    ) -> Result<(), KeyError> {
        match &self.translation {
            Translation::Physical => dma.read(address, to)?,
            Translation::Buffer(buffer) => buffer.read(dma, offset, to)?,
            Translation::Null => to.fill(0),
        }
        Ok(())
    }

    pub(crate) fn write(
        &self,
        dma: &dyn Dma,
        address: u64,
        offset: u64,
        from: &[u8],
    ) -> Result<(), KeyError> {
        match &self.translation {
            Translation::Physical => dma.write(address, from)?,
            Translation::Buffer(buffer) => buffer.write(dma, offset, from)?,
            Translation::Null => {}
        }
        Ok(())
    }

    /// Updates an aligned 8-byte word.
    pub(crate) fn update(
        &self,
        dma: &dyn Dma,
        address: u64,
        offset: u64,
        update: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, KeyError> {
        match &self.translation {
            Translation::Physical => Ok(dma.update_u64(address, update)?),
            Translation::Buffer(buffer) => {
                let fault = DmaFault { address, length: 8 };
                let (address, room) = buffer.translate(offset).ok_or(fault)?;
                if room < 8 {
                    return Err(fault.into());
                }
                Ok(dma.update_u64(address, update)?)
            }
            Translation::Null => {
                update(0);
                Ok(0)
            }
        }
    }

    /// Whether it lets the device reach a range of bus addresses.
    pub(crate) fn touches(&self, start: u64, end: u64) -> bool {
        match &self.translation {
            Translation::Physical => {
                self.length != u64::MAX
                    && self.start < end
                    && start < self.start.saturating_add(self.length)
            }
            Translation::Buffer(buffer) => buffer.touches(self.length, start, end),
            Translation::Null => false,
        }
    }
}
