//! Queue memory of a process, as contexts of the firmware describe it.

use mlx5_uapi::Errno;

use crate::kernel::current::{self, is_mapped};
use crate::kernel::memory::pages;

/// Logarithm of the bytes of a page in a queue's page list.
const LOG_PAGE: u32 = 12;
/// The parts of a page in which a context gives a queue's offset.
const PAGE_PARTS: u64 = 64;

/// The pages of a queue.
#[derive(Debug)]
pub(crate) struct QueueMemory {
    pub(crate) pages: Vec<u64>,
    /// Offset of its start in the first page, in 64ths of a page.
    pub(crate) page_offset: u32,
}

impl QueueMemory {
    /// `log_page_size` of a context, which counts from 4 KiB.
    pub(crate) const LOG_PAGE_SIZE: u32 = LOG_PAGE - 12;

    /// The memory of a queue. It must be mapped, and start at an offset that a context can name.
    pub(crate) fn new(start: u64, length: u64, most_offset: u32) -> Result<Self, Errno> {
        if length == 0 || start.checked_add(length).is_none() {
            return Err(Errno::EINVAL);
        }
        if !is_mapped(start, length) {
            return Err(Errno::EFAULT);
        }
        let (pages, offset) = pages(start, length, LOG_PAGE);
        let part = (1 << LOG_PAGE) / PAGE_PARTS;
        let page_offset = (offset / part) as u32;
        if !offset.is_multiple_of(part) || page_offset > most_offset {
            return Err(Errno::EINVAL);
        }
        Ok(Self { pages, page_offset })
    }
}

/// The bus address of a doorbell record.
pub(crate) fn record(address: u64) -> Result<u64, Errno> {
    let length = mlx5_prm::doorbell::RECORD as u64;
    if is_mapped(address, length) { Ok(current::bus(address)) } else { Err(Errno::EFAULT) }
}
