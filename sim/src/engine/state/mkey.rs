//! Memory keys: access rights and address translation.

use bitflags::bitflags;

use crate::dma::{Buffer, Dma, DmaFault};
use crate::engine::state::layout::Layout;
use crate::engine::state::signature::Signatures;

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

/// Address translation of a memory key.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Translation {
    /// A virtual address is a bus address.
    Physical,
    /// The first address of the key is the first byte of the buffer.
    Buffer(Buffer),
    /// No memory: reads return zeros, writes have no effect (the null and dump-fill keys).
    #[default]
    Null,
    /// Pieces of other keys.
    Indirect(Layout),
}

/// Configuration of a memory key.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MkeyConfig {
    /// The low byte of the key.
    pub tag: u8,
    /// Its protection domain.
    pub pd: u32,
    /// The only queue pair that may use it; any if `None`.
    pub qpn: Option<u32>,
    /// Its rights.
    pub access: Access,
    /// Its first virtual address.
    pub start: u64,
    /// Its length in bytes; `u64::MAX` covers every address.
    pub length: u64,
    /// Its address translation.
    pub translation: Translation,
    /// Translation entries that a UMR can give it, in units of 16 bytes.
    pub translation_octwords: u32,
    /// A UMR may change it.
    pub umr: bool,
    /// Not valid until a UMR makes it valid.
    pub free: bool,
    /// A SEND_INVAL may invalidate it.
    pub remote_invalidate: bool,
    /// Signatures of the data that passes through it.
    pub(crate) signatures: Signatures,
}

/// The end of a transfer that a queue pair is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Requester,
    Responder,
}

/// The user of an access to memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct User {
    pub(crate) qpn: u32,
    /// The protection domain that keys must have.
    pub(crate) pd: u32,
    pub(crate) side: Side,
}

/// Reason for which a key does not allow an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KeyError {
    /// No such key, or another tag.
    Unknown,
    /// Not valid for this queue pair: free, released, of another domain or of another queue pair.
    Foreign,
    /// Out of bounds, without the right, or not to be reached so.
    Outside,
    /// The memory below did not answer.
    Memory(DmaFault),
}

impl From<DmaFault> for KeyError {
    fn from(fault: DmaFault) -> Self {
        Self::Memory(fault)
    }
}

/// Updates an aligned word of 4 or 8 bytes at a bus address.
fn update_word(
    dma: &dyn Dma,
    address: u64,
    length: u64,
    update: &mut dyn FnMut(u64) -> u64,
) -> Result<u64, DmaFault> {
    if length == 8 || !address.is_multiple_of(length) {
        return dma.update_u64(address, update);
    }
    // A four-byte word is half of an 8-byte word, whose other half does not change.
    let high = address.is_multiple_of(8) != cfg!(target_endian = "little");
    let shift = if high { 32 } else { 0 };
    let half = |word: u64| word >> shift & u64::from(u32::MAX);
    let whole = dma.update_u64(address & !7, &mut |word| {
        word & !(u64::from(u32::MAX) << shift) | update(half(word)) << shift
    })?;
    Ok(half(whole))
}

impl MkeyConfig {
    /// The offset of an allowed access from the start of the key.
    pub(crate) fn check(
        &self,
        user: User,
        key: u32,
        address: u64,
        length: u64,
        right: Access,
    ) -> Result<u64, KeyError> {
        let offset = address.wrapping_sub(self.start);
        let whole = self.reach();
        let bounded = whole == u64::MAX
            || (address >= self.start
                && offset.checked_add(length).is_some_and(|end| end <= whole));
        if key as u8 != self.tag {
            return Err(KeyError::Unknown);
        }
        if !self.serves(user, key) {
            return Err(KeyError::Foreign);
        }
        let allowed = self.access.contains(right) && bounded;
        if allowed { Ok(offset) } else { Err(KeyError::Outside) }
    }

    /// Length of the key for its users: with signatures, that of the wire.
    fn reach(&self) -> u64 {
        match &self.signatures.format {
            Some(format) if self.signatures.enabled => format.wire_bytes(self.length),
            _ => self.length,
        }
    }

    /// Whether it is valid for a user under this key value.
    pub(crate) fn serves(&self, user: User, key: u32) -> bool {
        key as u8 == self.tag
            && !self.free
            && self.pd == user.pd
            && self.qpn.is_none_or(|qpn| qpn == user.qpn)
    }

    /// Reads memory that is not in pieces of other keys.
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
            Translation::Indirect(_) => return Err(KeyError::Outside),
        }
        Ok(())
    }

    /// Writes memory that is not in pieces of other keys.
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
            Translation::Indirect(_) => return Err(KeyError::Outside),
        }
        Ok(())
    }

    /// Updates an aligned word of 4 or 8 bytes in memory that is not in pieces of other keys.
    pub(crate) fn update(
        &self,
        dma: &dyn Dma,
        (address, length): (u64, u64),
        offset: u64,
        update: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, KeyError> {
        match &self.translation {
            Translation::Physical => Ok(update_word(dma, address, length, update)?),
            Translation::Buffer(buffer) => {
                let fault = DmaFault { address, length };
                let (address, room) = buffer.translate(offset).ok_or(fault)?;
                if room < length {
                    return Err(fault.into());
                }
                Ok(update_word(dma, address, length, update)?)
            }
            Translation::Null => {
                update(0);
                Ok(0)
            }
            Translation::Indirect(_) => Err(KeyError::Outside),
        }
    }

    /// Whether it lets the device access a range of bus addresses directly, not through other keys.
    pub(crate) fn touches(&self, start: u64, end: u64) -> bool {
        match &self.translation {
            Translation::Physical => {
                self.length != u64::MAX
                    && self.start < end
                    && start < self.start.saturating_add(self.length)
            }
            Translation::Buffer(buffer) => buffer.touches(self.length, start, end),
            Translation::Null | Translation::Indirect(_) => false,
        }
    }
}
