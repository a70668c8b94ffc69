//! The device's access to the host's memory.

mod kernel;

use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

/// An access to memory that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DmaFault {
    /// The bus address.
    pub address: u64,
    /// Bytes.
    pub length: u64,
}

/// Host memory as the device reaches it, by bus address.
///
/// Words of queues and registers are big-endian in memory and in host order here; the words of
/// atomic operations are in host order on both sides.
pub trait Dma: Send + Sync {
    /// Copies from memory.
    fn read(&self, address: u64, to: &mut [u8]) -> Result<(), DmaFault>;
    /// Copies to memory.
    fn write(&self, address: u64, from: &[u8]) -> Result<(), DmaFault>;
    /// Reads a big-endian word in a single access, before everything read later.
    fn load_u32(&self, address: u64) -> Result<u32, DmaFault>;
    /// Writes a byte after everything written earlier.
    fn store_byte(&self, address: u64, byte: u8) -> Result<(), DmaFault>;
    /// Reads a big-endian register and replaces it with zero.
    fn take_u64(&self, address: u64) -> Result<u64, DmaFault>;
    /// Replaces a word in host order atomically and returns the old value.
    fn update_u64(&self, address: u64, update: &mut dyn FnMut(u64) -> u64)
    -> Result<u64, DmaFault>;
}

/// This process's own memory: a bus address is a virtual address.
///
/// # Safety of use
/// Nothing here can check whether an address is valid. The code that gives the device a buffer or a
/// memory key must ensure that until the object is destroyed, as with hardware that has no IOMMU.
/// The checked form asks the kernel instead of accessing memory itself.
#[derive(Clone, Copy, Debug)]
pub struct ProcessMemory {
    checked: bool,
}

impl ProcessMemory {
    /// This process's memory, accessed directly.
    ///
    /// # Safety
    /// Every buffer, doorbell record, UAR page and memory key that the device is given must lie
    /// in mapped memory until its object is destroyed, and no `&` or `&mut` to it may live while
    /// the device may write it.
    pub unsafe fn new() -> Self {
        Self { checked: false }
    }

    /// This process's memory, accessed through the kernel: an unmapped address is a fault.
    ///
    /// # Safety
    /// As for [`ProcessMemory::new`], except that memory may be unmapped.
    pub unsafe fn checked() -> Self {
        Self { checked: true }
    }

    fn probe(self, address: u64, length: usize) -> Result<(), DmaFault> {
        let fault = DmaFault { address, length: length as u64 };
        if address == 0 || !address.is_multiple_of(length as u64) {
            return Err(fault);
        }
        if !self.checked {
            return Ok(());
        }
        let mut bytes = [0; 8];
        kernel::read(address, &mut bytes[..length]).map_err(|_| fault)
    }
}

impl Dma for ProcessMemory {
    fn read(&self, address: u64, to: &mut [u8]) -> Result<(), DmaFault> {
        let fault = DmaFault { address, length: to.len() as u64 };
        if address == 0 {
            return Err(fault);
        }
        if self.checked {
            return kernel::read(address, to).map_err(|_| fault);
        }
        let mut from = address as *const u8;
        // SAFETY: the caller of `ProcessMemory::new` promised that all memory given to the device
        // stays mapped. The reads are volatile, and those of words are aligned by `ahead`.
        unsafe {
            let ahead = from.align_offset(size_of::<u64>()).min(to.len());
            let (head, rest) = to.split_at_mut(ahead);
            for byte in head {
                *byte = ptr::read_volatile(from);
                from = from.add(1);
            }
            let (words, tail) = rest.as_chunks_mut::<8>();
            for word in words {
                *word = ptr::read_volatile(from.cast::<u64>()).to_ne_bytes();
                from = from.add(8);
            }
            for byte in tail {
                *byte = ptr::read_volatile(from);
                from = from.add(1);
            }
        }
        Ok(())
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), DmaFault> {
        let fault = DmaFault { address, length: from.len() as u64 };
        if address == 0 {
            return Err(fault);
        }
        if self.checked {
            return kernel::write(address, from).map_err(|_| fault);
        }
        let mut to = address as *mut u8;
        // SAFETY: the caller of `ProcessMemory::new` promised that all memory given to the device
        // stays mapped, and that no reference exists to memory that the device may write. The
        // writes are volatile, and those of words are aligned by `ahead`.
        unsafe {
            let ahead = to.align_offset(size_of::<u64>()).min(from.len());
            let (head, rest) = from.split_at(ahead);
            for byte in head {
                ptr::write_volatile(to, *byte);
                to = to.add(1);
            }
            let (words, tail) = rest.as_chunks::<8>();
            for word in words {
                ptr::write_volatile(to.cast::<u64>(), u64::from_ne_bytes(*word));
                to = to.add(8);
            }
            for byte in tail {
                ptr::write_volatile(to, *byte);
                to = to.add(1);
            }
        }
        Ok(())
    }

    fn load_u32(&self, address: u64) -> Result<u32, DmaFault> {
        self.probe(address, 4)?;
        // SAFETY: mapped, as the caller of `ProcessMemory::new` promised; `probe` checked the
        // alignment.
        let word = unsafe { AtomicU32::from_ptr(address as *mut u32) }.load(Ordering::Acquire);
        Ok(u32::from_be(word))
    }

    fn store_byte(&self, address: u64, byte: u8) -> Result<(), DmaFault> {
        self.probe(address, 1)?;
        // The copies before are not atomic; the fence orders them before the byte.
        fence(Ordering::Release);
        // SAFETY: mapped, as the caller of `ProcessMemory::new` promised.
        unsafe { AtomicU8::from_ptr(address as *mut u8) }.store(byte, Ordering::Release);
        Ok(())
    }

    fn take_u64(&self, address: u64) -> Result<u64, DmaFault> {
        self.probe(address, 8)?;
        // SAFETY: mapped, as the caller of `ProcessMemory::new` promised; `probe` checked the
        // alignment.
        let register = unsafe { AtomicU64::from_ptr(address as *mut u64) };
        // Registers are nearly always empty, and a load is far cheaper than an exchange.
        if register.load(Ordering::Relaxed) == 0 {
            return Ok(0);
        }
        Ok(u64::from_be(register.swap(0, Ordering::AcqRel)))
    }

    fn update_u64(
        &self,
        address: u64,
        update: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, DmaFault> {
        self.probe(address, 8)?;
        // SAFETY: mapped, as the caller of `ProcessMemory::new` promised; `probe` checked the
        // alignment.
        let word = unsafe { AtomicU64::from_ptr(address as *mut u64) };
        let mut old = word.load(Ordering::Relaxed);
        loop {
            match word.compare_exchange_weak(old, update(old), Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(old) => return Ok(old),
                Err(now) => old = now,
            }
        }
    }
}

/// A piece of memory by pages, as commands describe queue buffers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Buffer {
    pages: Vec<u64>,
    log_page_size: u8,
    page_offset: u64,
}

impl Buffer {
    /// Contiguous memory of any length.
    #[must_use]
    pub fn contiguous(address: u64) -> Self {
        Self { pages: vec![address], log_page_size: 63, page_offset: 0 }
    }

    /// Pages of `1 << log_page_size` bytes; the buffer starts at `page_offset` in the first.
    #[must_use]
    pub fn paged(pages: Vec<u64>, log_page_size: u8, page_offset: u64) -> Self {
        Self { pages, log_page_size: log_page_size.min(63), page_offset }
    }

    /// Replaces pages from an index on; `None` if the buffer has fewer pages.
    pub(crate) fn set_pages(&mut self, first: usize, pages: &[u64]) -> Option<()> {
        let end = first.checked_add(pages.len())?;
        self.pages.get_mut(first..end)?.copy_from_slice(pages);
        Some(())
    }

    /// Changes the page size and the offset of the buffer in its first page.
    pub(crate) fn set_shape(&mut self, log_page_size: u8, page_offset: u64) {
        (self.log_page_size, self.page_offset) = (log_page_size.min(63), page_offset);
    }

    /// Base-two logarithm of the bytes of a page.
    pub(crate) fn log_page_size(&self) -> u8 {
        self.log_page_size
    }

    /// The bus address of a byte, and the number of bytes in its page from there on. `None` after
    /// the end of the buffer.
    #[must_use]
    pub fn translate(&self, offset: u64) -> Option<(u64, u64)> {
        let offset = offset.checked_add(self.page_offset)?;
        let page = *self.pages.get((offset >> self.log_page_size) as usize)?;
        if page == 0 {
            // The page is not set yet.
            return None;
        }
        let size = 1 << self.log_page_size;
        let within = offset & (size - 1);
        Some((page.checked_add(within)?, size - within))
    }

    /// Calls `each` with the bus address and range of each contiguous piece of a range.
    pub(crate) fn pieces(
        &self,
        offset: u64,
        length: usize,
        mut each: impl FnMut(u64, std::ops::Range<usize>) -> Result<(), DmaFault>,
    ) -> Result<(), DmaFault> {
        let mut done = 0;
        while done < length {
            let at = offset.wrapping_add(done as u64);
            let fault = DmaFault { address: at, length: (length - done) as u64 };
            let (address, room) = self.translate(at).ok_or(fault)?;
            let n = usize::try_from(room).unwrap_or(usize::MAX).min(length - done);
            each(address, done..done + n)?;
            done += n;
        }
        Ok(())
    }

    /// Copies from the buffer.
    pub(crate) fn read(&self, dma: &dyn Dma, offset: u64, to: &mut [u8]) -> Result<(), DmaFault> {
        self.pieces(offset, to.len(), |address, range| dma.read(address, &mut to[range]))
    }

    /// Copies to the buffer.
    pub(crate) fn write(&self, dma: &dyn Dma, offset: u64, from: &[u8]) -> Result<(), DmaFault> {
        self.pieces(offset, from.len(), |address, range| dma.write(address, &from[range]))
    }

    /// Whether the first `length` bytes of the buffer overlap a range of bus addresses.
    pub(crate) fn touches(&self, length: u64, start: u64, end: u64) -> bool {
        let size = 1u64 << self.log_page_size;
        let mut at = 0;
        while at < length {
            let Some((address, room)) = self.translate(at) else { return false };
            let n = room.min(length - at);
            if address < end && start < address.saturating_add(n) {
                return true;
            }
            at += n;
            debug_assert!(n > 0 && n <= size);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paged_buffer_translates_across_its_pages() {
        let buffer = Buffer::paged(vec![0x10000, 0x40000], 12, 0xff0);
        assert_eq!(buffer.translate(0), Some((0x10ff0, 0x10)));
        assert_eq!(buffer.translate(0x10), Some((0x40000, 0x1000)));
        assert_eq!(buffer.translate(0x1010), None);
        assert!(buffer.touches(0x20, 0x40008, 0x40009));
        assert!(!buffer.touches(0x20, 0x40010, 0x41000));
    }

    #[test]
    fn copies_of_every_alignment_carry_every_byte() {
        // SAFETY: the test names only its own live memory.
        for memory in [unsafe { ProcessMemory::new() }, unsafe { ProcessMemory::checked() }] {
            let from: Vec<u8> = (0..64).collect();
            for start in 0..9 {
                for length in 0..40 {
                    let mut middle = vec![0u64; 16];
                    let base = middle.as_mut_ptr() as u64 + start;
                    memory.write(base, &from[..length]).expect("mapped");
                    let mut back = vec![0; length];
                    memory.read(base, &mut back).expect("mapped");
                    assert_eq!(back, from[..length]);
                }
            }
        }
    }

    #[test]
    fn checked_memory_reports_an_unmapped_address() {
        // SAFETY: the checked form does not access memory itself.
        let memory = unsafe { ProcessMemory::checked() };
        assert!(memory.read(0x1000, &mut [0; 8]).is_err());
        assert!(memory.write(0x1000, &[0; 8]).is_err());
        assert!(memory.load_u32(0x1000).is_err());
    }
}
