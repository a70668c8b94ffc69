//! The memory of a send queue: blocks for WQEs, and a record for each WQE.

use crate::send::records::{Record, RequestInfo, SendRecords};
use core::ptr::NonNull;
use mlx5_prm::wqe::BLOCK;

/// The blocks of a queue, and the records of what is in them, as the owner accesses both. Indices
/// are free-running: the low bits of a block's are its place, and so are those of a record's.
#[derive(Clone, Copy)]
pub(crate) struct Ring {
    start: NonNull<u8>,
    records: NonNull<Record>,
    mask: u32,
}

impl Ring {
    /// # Safety
    /// `start` points to as many blocks as `records` were created for. Both live as long as the
    /// value or a copy of it is used.
    pub(crate) unsafe fn new(start: NonNull<u8>, records: &SendRecords) -> Self {
        let (records, blocks) = records.as_ring();
        Self { start, records, mask: blocks - 1 }
    }

    /// The number of blocks, a power of two.
    #[inline]
    pub(crate) const fn blocks(&self) -> u32 {
        self.mask + 1
    }

    /// Returns the address of block `block`.
    #[inline]
    pub(crate) fn at(&self, block: u32) -> NonNull<u8> {
        // SAFETY: the index is masked, so the block is inside the ring.
        unsafe { self.start.byte_add((block & self.mask) as usize * BLOCK) }
    }

    /// Returns the blocks from block `block` to the end of the ring.
    #[inline]
    pub(crate) const fn blocks_to_end(&self, block: u32) -> u32 {
        self.mask + 1 - (block & self.mask)
    }

    /// Copies a WQE to block `block`, across the end of the ring if it reaches so far.
    ///
    /// # Safety
    /// `from` points to `blocks` blocks, which are not part of the ring. The device does not use
    /// the blocks from `block` on.
    pub(crate) unsafe fn copy_in(&self, block: u32, from: NonNull<u8>, blocks: u32) {
        let first = blocks.min(self.blocks_to_end(block)) as usize * BLOCK;
        let rest = blocks as usize * BLOCK - first;
        // SAFETY: `first` bytes lie before the end of the ring, the rest at its start.
        unsafe {
            self.at(block).copy_from_nonoverlapping(from, first);
            self.start.copy_from_nonoverlapping(from.byte_add(first), rest);
        }
    }

    /// Returns the exclusive-or of `bytes` bytes from block `block` on, across the end of the ring.
    pub(crate) fn xor(&self, block: u32, bytes: usize) -> u8 {
        let bytes = bytes.min(self.blocks() as usize * BLOCK);
        let first = bytes.min(self.blocks_to_end(block) as usize * BLOCK);
        let sum = |at: NonNull<u8>, length| {
            // SAFETY: both ranges are inside the ring.
            let byte = |i| unsafe { at.byte_add(i).read() };
            (0..length).fold(0, |sum, i| sum ^ byte(i))
        };
        sum(self.at(block), first) ^ sum(self.start, bytes - first)
    }

    #[inline]
    fn record(&self, sequence: u32) -> &Record {
        // SAFETY: the index is masked, and there are as many records as blocks.
        unsafe { self.records.add((sequence & self.mask) as usize).as_ref() }
    }

    /// Returns the address of the record of WQE `sequence`.
    pub(crate) fn record_at(&self, sequence: u32) -> NonNull<u8> {
        NonNull::from(self.record(sequence)).cast()
    }

    /// Writes the record of WQE `sequence`, which is not published yet and whose blocks are free.
    #[inline]
    pub(crate) fn stage(&self, sequence: u32, wr_id: u64, info: RequestInfo) {
        self.record(sequence).stage(wr_id, info);
    }

    /// Returns the description of WQE `sequence`, which the owner has staged.
    #[inline]
    pub(crate) fn info(&self, sequence: u32) -> RequestInfo {
        self.record(sequence).staged()
    }

    /// Changes the description of WQE `sequence`, which is staged and not published yet.
    pub(crate) fn restage(&self, sequence: u32, info: RequestInfo) {
        self.record(sequence).restage(info);
    }
}
