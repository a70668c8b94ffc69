//! What is remembered of each posted request, shared by owner and poller.
//!
//! Requests are numbered by a 16-bit sequence that runs freely; a ring of records is indexed by it,
//! so that a scan over what is pending reads memory in order. A second ring leads from the block at
//! which a request starts, which is what a CQE names, to its sequence number.
//!
//! The owner *stages* a record in the slot past `committed`, which nobody else looks at, and
//! `publish` makes it part of the queue. An aborted batch publishes nothing and so leaves no trace.

use crate::sync::{
    AtomicU16, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use alloc::boxed::Box;
use crossbeam_utils::CachePadded;
use mlx5_prm::wqe::{MAX_RING_BLOCKS, Opcode, control_flags};

/// What a record says of a request, in one word:
/// first block (16 bits), blocks (8), opcode (8), `fm_ce_se` byte (8), flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestInfo(u64);

impl RequestInfo {
    const BLOCKS_SHIFT: u32 = 16;
    const OPCODE_SHIFT: u32 = 24;
    const CONTROL_SHIFT: u32 = 32;
    const CANCELLED: u64 = 1 << 40;

    #[inline(always)]
    pub(crate) fn new(first: u16, blocks: u32, opcode: Opcode, control: u8) -> Self {
        Self(
            u64::from(first)
                | u64::from(blocks) << Self::BLOCKS_SHIFT
                | (opcode as u64) << Self::OPCODE_SHIFT
                | u64::from(control) << Self::CONTROL_SHIFT,
        )
    }

    /// The 64-byte block at which the request starts, counted freely.
    #[inline(always)]
    pub const fn first(self) -> u16 {
        self.0 as u16
    }

    /// How many blocks it takes.
    #[inline(always)]
    pub const fn blocks(self) -> u16 {
        (self.0 >> Self::BLOCKS_SHIFT) as u8 as u16
    }

    /// The operation that was posted, cancelled or not.
    #[inline(always)]
    pub const fn opcode(self) -> Opcode {
        match Opcode::from_bits((self.0 >> Self::OPCODE_SHIFT) as u8) {
            Some(opcode) => opcode,
            None => Opcode::Nop,
        }
    }

    /// The number of the operation that was posted.
    #[inline(always)]
    pub const fn opcode_bits(self) -> u8 {
        (self.0 >> Self::OPCODE_SHIFT) as u8
    }

    /// Whether a completion was asked for.
    #[inline(always)]
    pub const fn signaled(self) -> bool {
        self.0 & (control_flags::COMPLETION as u64) << Self::CONTROL_SHIFT != 0
    }

    /// Whether the request was cancelled.
    #[inline(always)]
    pub const fn cancelled(self) -> bool {
        self.0 & Self::CANCELLED != 0
    }
}

/// A request that a completion has named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completed {
    /// The user's identifier.
    pub wr_id: u64,
    /// What was posted.
    pub info: RequestInfo,
}

/// A record; aligned so that it never crosses a cache line.
#[repr(align(16))]
struct Record {
    wr_id: AtomicU64,
    info: AtomicU64,
}

/// What the poller has finished with.
struct Retired {
    /// Requests.
    requests: AtomicU16,
    /// Blocks.
    blocks: AtomicU16,
}

/// The shared half of a send queue.
pub struct SendRecords {
    mask: u16,
    records: Box<[Record]>,
    /// Sequence number of the request that starts at a block.
    starts: Box<[AtomicU16]>,
    committed: CachePadded<AtomicU16>,
    retired: CachePadded<Retired>,
}

impl SendRecords {
    /// Records for a ring of `blocks` blocks: a power of two, at most 2¹⁵.
    ///
    /// # Panics
    /// If `blocks` is not such a number.
    pub fn new(blocks: u32) -> Self {
        assert!(blocks.is_power_of_two() && blocks as usize <= MAX_RING_BLOCKS);
        Self {
            mask: (blocks - 1) as u16,
            records: (0..blocks)
                .map(|_| Record { wr_id: AtomicU64::new(0), info: AtomicU64::new(0) })
                .collect(),
            starts: (0..blocks).map(|_| AtomicU16::new(0)).collect(),
            committed: CachePadded::new(AtomicU16::new(0)),
            retired: CachePadded::new(Retired {
                requests: AtomicU16::new(0),
                blocks: AtomicU16::new(0),
            }),
        }
    }

    #[inline(always)]
    fn record(&self, sequence: u16) -> &Record {
        // SAFETY: there are `mask + 1` records.
        unsafe { self.records.get_unchecked(usize::from(sequence & self.mask)) }
    }

    #[inline(always)]
    fn start(&self, block: u16) -> &AtomicU16 {
        // SAFETY: there are `mask + 1` starts.
        unsafe { self.starts.get_unchecked(usize::from(block & self.mask)) }
    }

    /// Owner: writes the record of request `sequence`, which is not published yet and whose blocks
    /// are free.
    #[inline(always)]
    pub(crate) fn stage(&self, sequence: u16, wr_id: u64, info: RequestInfo) {
        let record = self.record(sequence);
        record.wr_id.store(wr_id, Relaxed);
        record.info.store(info.0, Relaxed);
        self.start(info.first()).store(sequence, Relaxed);
    }

    /// Owner: makes all requests before `sequence` part of the queue.
    #[inline(always)]
    pub(crate) fn publish(&self, sequence: u16) {
        self.committed.store(sequence, Release);
    }

    /// Owner: the block up to which the poller has finished.
    #[inline(always)]
    pub(crate) fn retired_blocks(&self) -> u16 {
        self.retired.blocks.load(Acquire)
    }

    /// The requests from the first that is not retired up to `committed`.
    pub(crate) fn outstanding(&self) -> (u16, u16) {
        (self.retired.requests.load(Acquire), self.committed.load(Acquire))
    }

    /// The record of request `sequence`.
    #[inline(always)]
    pub(crate) fn get(&self, sequence: u16) -> Completed {
        let record = self.record(sequence);
        Completed {
            wr_id: record.wr_id.load(Relaxed),
            info: RequestInfo(record.info.load(Relaxed)),
        }
    }

    /// The request that starts at `block`, if an outstanding one does.
    #[inline(always)]
    pub(crate) fn starting_at(&self, block: u16) -> Option<u16> {
        let (retired, committed) = self.outstanding();
        let sequence = self.start(block).load(Relaxed);
        let outstanding = sequence.wrapping_sub(retired) < committed.wrapping_sub(retired);
        (outstanding && self.get(sequence).info.first() == block).then_some(sequence)
    }

    /// Records of consecutive requests, in at most two runs of memory.
    fn runs(&self, from: u16, to: u16) -> [&[Record]; 2] {
        let count = usize::from(to.wrapping_sub(from));
        let start = usize::from(from & self.mask);
        let first = count.min(self.records.len() - start);
        [&self.records[start..start + first], &self.records[..count - first]]
    }

    /// Owner: marks every request in `from..to` for which `wanted` says so as cancelled, and hands
    /// those that were not yet to `cancelled`.
    #[inline(always)]
    pub(crate) fn cancel(
        &self,
        from: u16,
        to: u16,
        mut wanted: impl FnMut(u64, &dyn Fn() -> RequestInfo) -> bool,
        mut cancelled: impl FnMut(u16, Completed),
    ) {
        let mut base = from;
        for run in self.runs(from, to) {
            for record in run {
                let wr_id = record.wr_id.load(Relaxed);
                if !wanted(wr_id, &|| RequestInfo(record.info.load(Relaxed))) {
                    continue;
                }
                // The queue is drained and the caller owns it: nobody else writes a record. The
                // release pairs with the poller's acquire in `retire`.
                let info = RequestInfo(record.info.load(Relaxed));
                if info.cancelled() || info.opcode() == Opcode::Nop {
                    continue;
                }
                record.info.store(info.0 | RequestInfo::CANCELLED, Release);
                // SAFETY: both point into `run`.
                let at = unsafe { core::ptr::from_ref(record).offset_from(run.as_ptr()) } as u16;
                cancelled(base.wrapping_add(at), Completed { wr_id, info });
            }
            base = base.wrapping_add(run.len() as u16);
        }
    }

    /// Poller: a completion names the request that starts at `block`. Retires it and all before it;
    /// `None` if no outstanding request starts there, which no honest device says.
    #[inline(always)]
    pub fn retire(&self, block: u16) -> Option<Completed> {
        let sequence = self.start(block).load(Relaxed);
        let record = self.record(sequence);
        let info = RequestInfo(record.info.load(Acquire));
        let retired = self.retired.requests.load(Relaxed);
        // The acquire pairs with `publish`: whatever is below `committed` is written.
        let committed = self.committed.load(Acquire);
        let outstanding = sequence.wrapping_sub(retired) < committed.wrapping_sub(retired);
        if !outstanding || info.first() != block {
            return self.retire_again(block);
        }
        let wr_id = record.wr_id.load(Relaxed);
        // The release lets the owner reuse the record and the blocks: they were read above.
        self.retired.requests.store(sequence.wrapping_add(1), Release);
        self.retired.blocks.store(block.wrapping_add(info.blocks()), Release);
        Some(Completed { wr_id, info })
    }

    /// The words of a record may have been read before `committed` was, and the record written in
    /// between; having read `committed`, look again.
    #[cold]
    fn retire_again(&self, block: u16) -> Option<Completed> {
        let sequence = self.starting_at(block)?;
        let completed = self.get(sequence);
        self.retired.requests.store(sequence.wrapping_add(1), Release);
        self.retired.blocks.store(block.wrapping_add(completed.info.blocks()), Release);
        Some(completed)
    }

    /// Forgets everything: the queue pair was reset.
    pub(crate) fn reset(&self) {
        self.committed.store(0, Relaxed);
        self.retired.requests.store(0, Relaxed);
        self.retired.blocks.store(0, Relaxed);
    }
}
