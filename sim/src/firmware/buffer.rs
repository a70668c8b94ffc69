//! Buffers as commands describe them: page size, offset, and list of pages.

use mlx5_prm::cmd::CommandStatus;
use mlx5_prm::fields::addresses;

use crate::dma::Buffer;
use crate::firmware::{Failure, syndrome};

/// Logarithm of a queue's smallest page; contexts give the difference to it.
const LOG_SMALLEST_PAGE: u32 = 12;
/// The parts of a page in which a context gives a queue's offset.
const OFFSET_PARTS: u64 = 64;

/// The buffer of a queue of `bytes` bytes.
pub(crate) fn queue(
    tail: &[u8],
    log_page_size: u32,
    page_offset: u32,
    bytes: u64,
) -> Result<Buffer, Failure> {
    let log = log_page_size + LOG_SMALLEST_PAGE;
    let offset = u64::from(page_offset) * ((1 << log) / OFFSET_PARTS);
    pages(tail, log, offset, bytes, 0)
}

/// `bytes` bytes from `offset` in pages of `1 << log` bytes. The bits of `flags` may be set in the
/// pages' addresses.
pub(crate) fn pages(
    tail: &[u8],
    log: u32,
    offset: u64,
    bytes: u64,
    flags: u64,
) -> Result<Buffer, Failure> {
    let range = Failure::param(syndrome::ADDRESS_RANGE);
    let needed = offset.checked_add(bytes).ok_or(range)?.div_ceil(1 << log);
    let list = addresses(tail);
    let list = usize::try_from(needed)
        .ok()
        .and_then(|needed| list.get(..needed))
        .ok_or(Failure::new(CommandStatus::BAD_INP_LEN_ERR, syndrome::TOO_FEW_PAGES))?;
    let pages: Vec<u64> = list.iter().map(|page| page.get() & !flags).collect();
    let smallest = 1 << LOG_SMALLEST_PAGE.min(log);
    if pages.iter().any(|page| !page.is_multiple_of(smallest)) {
        return Err(Failure::param(syndrome::UNALIGNED_PAGE));
    }
    Ok(Buffer::paged(pages, log as u8, offset))
}

/// The address of a doorbell record.
pub(crate) fn record(address: u64) -> Result<u64, Failure> {
    if address == 0 || !address.is_multiple_of(mlx5_prm::doorbell::RECORD as u64) {
        return Err(Failure::param(syndrome::UNALIGNED_RECORD));
    }
    Ok(address)
}
