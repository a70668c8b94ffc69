//! The guest's memory as the function reaches it.

use std::fs::File;
use std::io;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use memmap2::{MmapOptions, MmapRaw};
use mlx5_sim::dma::{Dma, DmaFault, ProcessMemory};

/// A range of the guest's memory.
#[derive(Debug)]
struct Range {
    start: u64,
    length: u64,
    /// `None` for a range without a file, which cannot be reached.
    mapping: Option<MmapRaw>,
}

impl Range {
    fn end(&self) -> u64 {
        self.start + self.length
    }
}

/// Bytes of the function's own memory, whole pages.
pub const DEVICE_BYTES: u64 = 128 << 10;
/// Bus address at which the engine finds the function's own memory: no guest has such addresses.
pub(crate) const DEVICE: u64 = 1 << 63;

/// Memory of a guest, by its bus addresses, as the machine maps and unmaps it; and the function's
/// own.
#[derive(Debug)]
pub struct GuestMemory {
    device: MmapRaw,
    /// Sorted by start; no two overlap.
    ranges: RwLock<Vec<Range>>,
    host: ProcessMemory,
}

impl Default for GuestMemory {
    fn default() -> Self {
        // SAFETY: every address that `host` gets lies in `device`, or in a mapping of `ranges`,
        // whose lock is held during the access, and no code makes references to such memory.
        let host = unsafe { ProcessMemory::new() };
        let device = MmapOptions::new().len(DEVICE_BYTES as usize).map_anon();
        let device = device.expect("a process has room for a few pages").into();
        Self { device, ranges: RwLock::default(), host }
    }
}

impl GuestMemory {
    fn ranges(&self) -> RwLockReadGuard<'_, Vec<Range>> {
        self.ranges.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn ranges_mut(&self) -> RwLockWriteGuard<'_, Vec<Range>> {
        self.ranges.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Maps `length` bytes of a file from `offset` at a bus address. A range without a file is
    /// remembered, and reading it fails. Replaces earlier mappings there.
    pub fn map(
        &self,
        address: u64,
        length: u64,
        file: Option<&File>,
        offset: u64,
    ) -> io::Result<()> {
        let end = address.checked_add(length).filter(|end| *end > address);
        let end = end.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let mapping = match file {
            Some(file) => {
                // An access after the end of the mapped file would raise a signal instead of
                // returning an error.
                let enough = offset
                    .checked_add(length)
                    .is_some_and(|end| file.metadata().is_ok_and(|metadata| metadata.len() >= end));
                let bytes = usize::try_from(length).ok().filter(|_| enough);
                let bytes = bytes.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
                Some(MmapOptions::new().offset(offset).len(bytes).map_raw(file)?)
            }
            None => None,
        };
        let mut ranges = self.ranges_mut();
        ranges.retain(|range| range.end() <= address || range.start >= end);
        let place = ranges.partition_point(|range| range.start < address);
        ranges.insert(place, Range { start: address, length, mapping });
        Ok(())
    }

    /// Unmaps every range that touches these bytes.
    pub fn unmap(&self, address: u64, length: u64) {
        let end = address.saturating_add(length);
        self.ranges_mut().retain(|range| range.end() <= address || range.start >= end);
    }

    /// Unmaps everything.
    pub fn clear(&self) {
        self.ranges_mut().clear();
    }

    /// Bytes that can be reached.
    #[must_use]
    pub fn reachable(&self) -> u64 {
        let ranges = self.ranges();
        ranges.iter().filter(|range| range.mapping.is_some()).map(|range| range.length).sum()
    }

    /// Calls `each` with the address in this process and the place of each contiguous piece.
    fn pieces(
        &self,
        address: u64,
        length: usize,
        mut each: impl FnMut(u64, std::ops::Range<usize>) -> Result<(), DmaFault>,
    ) -> Result<(), DmaFault> {
        if let Some(within) = address.checked_sub(DEVICE) {
            let end = within.checked_add(length as u64).filter(|end| *end <= DEVICE_BYTES);
            end.ok_or(DmaFault { address, length: length as u64 })?;
            return each(self.device.as_ptr() as u64 + within, 0..length);
        }
        let ranges = self.ranges();
        let mut done = 0;
        while done < length {
            let at = address.wrapping_add(done as u64);
            let fault = DmaFault { address: at, length: (length - done) as u64 };
            let index = ranges.partition_point(|range| range.end() <= at);
            let range = ranges.get(index).filter(|range| range.start <= at).ok_or(fault)?;
            let mapping = range.mapping.as_ref().ok_or(fault)?;
            let within = at - range.start;
            let room = usize::try_from(range.length - within).unwrap_or(usize::MAX);
            let n = room.min(length - done);
            each(mapping.as_ptr() as u64 + within, done..done + n)?;
            done += n;
        }
        Ok(())
    }

    /// Calls `access` with the address in this process of a word that lies in one range.
    fn word<T>(
        &self,
        address: u64,
        bytes: usize,
        access: impl FnOnce(u64) -> Result<T, DmaFault>,
    ) -> Result<T, DmaFault> {
        let fault = DmaFault { address, length: bytes as u64 };
        let mut access = Some(access);
        let mut result = None;
        self.pieces(address, bytes, |host, piece| {
            if piece.len() == bytes
                && let Some(access) = access.take()
            {
                result = Some(access(host)?);
            }
            Ok(())
        })?;
        result.ok_or(fault)
    }
}

impl Dma for GuestMemory {
    fn read(&self, address: u64, to: &mut [u8]) -> Result<(), DmaFault> {
        self.pieces(address, to.len(), |host, piece| self.host.read(host, &mut to[piece]))
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), DmaFault> {
        self.pieces(address, from.len(), |host, piece| self.host.write(host, &from[piece]))
    }

    fn load_u32(&self, address: u64) -> Result<u32, DmaFault> {
        self.word(address, 4, |host| self.host.load_u32(host))
    }

    fn store_byte(&self, address: u64, byte: u8) -> Result<(), DmaFault> {
        self.word(address, 1, |host| self.host.store_byte(host, byte))
    }

    fn take_u64(&self, address: u64) -> Result<u64, DmaFault> {
        self.word(address, 8, |host| self.host.take_u64(host))
    }

    fn update_u64(
        &self,
        address: u64,
        update: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, DmaFault> {
        self.word(address, 8, |host| self.host.update_u64(host, update))
    }
}
