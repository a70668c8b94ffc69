//! Memory on the device, of which a driver takes pieces.

use std::collections::BTreeMap;

use mlx5_prm::cmd::caps::DeviceMemCaps;
use mlx5_prm::cmd::mkey::{AllocMemicIn, AllocMemicOut, DeallocMemicIn};

use crate::engine::Error;
use crate::firmware::{Answer, Failure, syndrome};

/// Logarithm of a page, in which ranges are given.
const LOG_PAGE: u32 = 12;
/// Logarithm of the smallest piece.
const LOG_SMALLEST: u32 = 8;

/// A device's own memory.
#[derive(Debug, Default)]
pub(crate) struct Memic {
    start: u64,
    bytes: u64,
    /// Length of each piece, by address.
    pieces: BTreeMap<u64, u64>,
}

impl Memic {
    pub(super) fn offer(&mut self, address: u64, bytes: u64) {
        (self.start, self.bytes) = (address, bytes);
    }

    pub(super) fn exists(&self) -> bool {
        self.bytes > 0
    }

    pub(super) fn count(&self) -> usize {
        self.pieces.len()
    }

    pub(super) fn caps(&self, caps: &mut DeviceMemCaps) {
        if self.exists() {
            caps.set_memic(true)
                .set_log_min_memic_alloc_size(LOG_SMALLEST)
                .set_log_max_memic_addr_alignment(LOG_PAGE)
                .set_memic_bar_start_addr(self.start)
                .set_memic_bar_size((self.bytes >> LOG_PAGE) as u32)
                .set_max_memic_size(self.bytes as u32);
        }
    }

    /// The bus address of a range of the memory, all of it in one piece.
    pub(super) fn address(&self, offset: u64, length: u64) -> Option<u64> {
        let address = self.start.checked_add(offset)?;
        let (start, bytes) = self.pieces.range(..=address).next_back()?;
        let end = address.checked_add(length)?;
        (end <= start + bytes).then_some(address)
    }

    /// Takes the start of the range that the driver names, which has to be free.
    pub(super) fn alloc(&mut self, input: &AllocMemicIn, out: &mut AllocMemicOut) -> Answer {
        let (start, bytes) = (input.range_start_addr(), u64::from(input.memic_size()));
        let range = u64::from(input.range_size()) << LOG_PAGE;
        let end = start.checked_add(bytes).ok_or(Failure::param(syndrome::ADDRESS_RANGE))?;
        if bytes == 0
            || bytes > range
            || start < self.start
            || end > self.start + self.bytes
            || !bytes.is_multiple_of(1 << LOG_SMALLEST)
            || !start.is_multiple_of(1 << input.log_memic_addr_alignment().max(LOG_SMALLEST))
        {
            return Err(Failure::param(syndrome::ADDRESS_RANGE));
        }
        let before = self.pieces.range(..end).next_back();
        if before.is_some_and(|(other, length)| other + length > start) {
            return Err(Error::Exhausted.into());
        }
        self.pieces.insert(start, bytes);
        out.set_memic_start_addr(start);
        Ok(())
    }

    pub(super) fn dealloc(&mut self, input: &DeallocMemicIn) -> Answer {
        let start = input.memic_start_addr();
        if self.pieces.get(&start) != Some(&u64::from(input.memic_size())) {
            return Err(Error::NotFound.into());
        }
        self.pieces.remove(&start);
        Ok(())
    }
}
