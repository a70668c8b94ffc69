//! Memory on the device, which a driver allocates in pieces.

use std::collections::BTreeMap;

use mlx5_prm::cmd::caps::DeviceMemCaps;
use mlx5_prm::cmd::mkey::{AllocMemicIn, AllocMemicOut, DeallocMemicIn};

use crate::engine::Error;
use crate::firmware::{Answer, Failure, syndrome};

/// Logarithm of a page.
const LOG_PAGE: u32 = 12;
/// Logarithm of the smallest piece, and of the unit of alignments.
const LOG_SMALLEST: u32 = 6;

/// A device's own memory.
#[derive(Debug, Default)]
pub(crate) struct Memic {
    /// Its address, as the driver sees it.
    start: u64,
    /// Its address, as the engine sees it.
    bus: u64,
    bytes: u64,
    /// Length of each piece, by address.
    pieces: BTreeMap<u64, u64>,
}

impl Memic {
    pub(super) fn offer(&mut self, start: u64, bus: u64, bytes: u64) {
        (self.start, self.bus, self.bytes) = (start, bus, bytes);
    }

    /// The same memory, with no piece allocated.
    pub(super) fn untaken(&self) -> Self {
        Self { pieces: BTreeMap::new(), ..*self }
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
                .set_log_max_memic_addr_alignment(LOG_PAGE - LOG_SMALLEST)
                .set_memic_bar_start_addr(self.start)
                .set_memic_bar_size(self.bytes as u32)
                .set_max_memic_size(self.bytes as u32);
        }
    }

    /// The bus address of a range that lies in one piece, by its address as the driver sees it.
    pub(super) fn address(&self, address: u64, length: u64) -> Option<u64> {
        let (start, bytes) = self.pieces.range(..=address).next_back()?;
        let end = address.checked_add(length)?;
        (end <= start + bytes).then(|| address - self.start + self.bus)
    }

    /// Allocates a piece at the start of the range that the driver names, which must be free.
    pub(super) fn alloc(&mut self, input: &AllocMemicIn, out: &mut AllocMemicOut) -> Answer {
        let (start, bytes) = (input.range_start_addr(), u64::from(input.memic_size()));
        let range = u64::from(input.range_size());
        let log_align = LOG_SMALLEST + input.log_memic_addr_alignment();
        let end = start.checked_add(bytes).ok_or(Failure::param(syndrome::ADDRESS_RANGE))?;
        if bytes == 0
            || bytes > range
            || log_align > LOG_PAGE
            || start < self.start
            || end > self.start + self.bytes
            || !bytes.is_multiple_of(1 << LOG_SMALLEST)
            || !start.is_multiple_of(1 << log_align)
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

#[cfg(test)]
mod tests {
    use mlx5_prm::cmd::CommandInput;

    use super::*;

    const START: u64 = 0x200_0000;
    const BUS: u64 = 1 << 63;

    fn memory() -> Memic {
        let mut memic = Memic::default();
        memic.offer(START, BUS, 2 << LOG_PAGE);
        memic
    }

    /// A request in the form of mlx5_core: a range of whole pages, and the bytes that are needed.
    fn asked(page: u64, bytes: u32, log_align: u32) -> AllocMemicIn {
        let mut input = AllocMemicIn::request();
        input
            .set_range_start_addr(START + (page << LOG_PAGE))
            .set_range_size(bytes.next_multiple_of(1 << LOG_PAGE))
            .set_memic_size(bytes)
            .set_log_memic_addr_alignment(log_align);
        input
    }

    #[test]
    fn sizes_are_told_in_bytes_and_alignments_in_units_of_64() {
        let mut caps = DeviceMemCaps::default();
        memory().caps(&mut caps);
        assert_eq!((caps.memic_bar_start_addr(), caps.memic_bar_size()), (START, 2 << LOG_PAGE));
        assert_eq!(caps.max_memic_size(), 2 << LOG_PAGE);
        assert_eq!(64 << caps.log_max_memic_addr_alignment(), 1 << LOG_PAGE);
    }

    #[test]
    fn a_piece_is_found_on_the_bus_and_nothing_beside_it() {
        let mut memic = memory();
        let mut out = AllocMemicOut::default();
        memic.alloc(&asked(1, 64, 6), &mut out).expect("a free page");
        assert_eq!(out.memic_start_addr(), START + 0x1000);
        assert_eq!(memic.address(START + 0x1000, 64), Some(BUS + 0x1000));
        assert_eq!(memic.address(START + 0x1001, 64), None);
        assert_eq!(memic.address(START, 1), None);
        assert!(memic.alloc(&asked(1, 64, 0), &mut out).is_err(), "it is taken");
        let mut back = DeallocMemicIn::request();
        back.set_memic_start_addr(START + 0x1000).set_memic_size(64);
        memic.dealloc(&back).expect("it is there");
        memic.alloc(&asked(1, 64, 0), &mut out).expect("it is free again");
        assert_eq!(memic.untaken().count(), 0);
        assert_eq!(memic.untaken().start, START);
    }

    #[test]
    fn what_is_not_there_cannot_be_taken() {
        let mut out = AllocMemicOut::default();
        for input in [asked(2, 64, 0), asked(0, 0x2040, 0), asked(0, 65, 0), asked(0, 64, 7)] {
            assert!(memory().alloc(&input, &mut out).is_err(), "{input:?}");
        }
        let mut input = asked(0, 0x1040, 0);
        input.set_range_size(0x1000);
        assert!(memory().alloc(&input, &mut out).is_err(), "more than the range");
    }
}
