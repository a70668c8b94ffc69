//! What is remembered of each posted request, shared by owner and poller.
//!
//! Requests are numbered by a 16-bit sequence that runs freely; a ring of records is indexed by it,
//! so that a scan over what is pending reads memory in order. What a CQE names is the block at which
//! a request starts; blocks ascend with the sequence, so that a request is found by its block without
//! a second ring. A request may consist of several WQEs (one that configures a signed key does): each
//! has a record, and its place among them is noted there. Only the last can be signaled.
//!
//! The owner *stages* a record in the slot past `committed`, which nobody else looks at, and
//! `publish` makes it part of the queue. An aborted batch publishes nothing and so leaves no trace.

use crate::sync::{
    AtomicBool, AtomicU16, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use alloc::boxed::Box;
use core::cmp::Ordering;
use core::ptr::NonNull;
use crossbeam_utils::CachePadded;
use mlx5_prm::wqe::{MAX_RING_BLOCKS, Opcode, control_flags};

/// What a record says of a request, in one word: blocks (8 bits), free (16), `fm_ce_se` byte (8),
/// opcode with the mark of a cancelled one (8), first block (16), opcode modifier (8). The upper half stands as in the
/// first word of the WQE itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestInfo(u64);

impl RequestInfo {
    /// In the opcode's byte, whose numbers have six bits.
    const CANCELLED: u64 = (Self::CANCELLED_BIT as u64) << Self::OPCODE_SHIFT;
    const CANCELLED_BIT: u8 = 0x40;
    pub(crate) const CONTROL_SHIFT: u32 = 24;
    pub(crate) const OPCODE_SHIFT: u32 = 32;
    pub(crate) const FIRST_SHIFT: u32 = 40;
    /// The request has more WQEs behind this one.
    pub(crate) const MORE: u32 = 1 << 8;
    /// The request has WQEs before this one.
    pub(crate) const CONTINUES: u32 = 1 << 9;
    /// The request was given a name, which the owner knows.
    const NAMED: u32 = 1 << 10;
    pub(crate) const MODIFIER_SHIFT: u32 = 56;

    /// Puts together what stands in place: `place` has opcode and first block, `control` the
    /// `fm_ce_se` byte.
    #[inline(always)]
    pub(crate) const fn new(place: u64, control: u32, blocks: u32) -> Self {
        Self(place | (control | blocks) as u64)
    }

    /// The 64-byte block at which the request starts, counted freely.
    #[inline(always)]
    pub const fn first(self) -> u16 {
        (self.0 >> Self::FIRST_SHIFT) as u16
    }

    /// How many blocks it takes.
    #[inline(always)]
    pub const fn blocks(self) -> u16 {
        self.0 as u8 as u16
    }

    /// The operation that was posted, cancelled or not. `None` if it has no name, which a raw WQE
    /// need not have.
    #[inline(always)]
    pub const fn opcode(self) -> Option<Opcode> {
        Opcode::from_bits(self.opcode_bits())
    }

    /// The number of the operation that was posted.
    #[inline(always)]
    pub const fn opcode_bits(self) -> u8 {
        self.opcode_and_mark() & !Self::CANCELLED_BIT
    }

    /// The number of the operation that was posted, with bit 6 set if it was cancelled.
    #[inline(always)]
    pub const fn opcode_and_mark(self) -> u8 {
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

    /// Whether this is one of several WQEs of a request, and not the last.
    pub(crate) const fn has_more(self) -> bool {
        self.0 & Self::MORE as u64 != 0
    }

    /// Whether this is one of several WQEs of a request, and not the first.
    pub(crate) const fn continues(self) -> bool {
        self.0 & Self::CONTINUES as u64 != 0
    }

    /// Whether the request was given a name.
    pub(crate) const fn named(self) -> bool {
        self.0 & Self::NAMED as u64 != 0
    }

    /// The request whose first WQE this is and whose last one is `last`.
    const fn through(self, last: Self) -> Self {
        let blocks = last.first().wrapping_add(last.blocks()).wrapping_sub(self.first());
        let control = last.0 & 0xff << Self::CONTROL_SHIFT;
        let rest = self.0 & !(0xff << Self::CONTROL_SHIFT | (Self::MORE | 0xff) as u64);
        Self(rest | control | blocks as u64)
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

/// What a completion was about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retired {
    /// This request.
    Request(Completed),
    /// A further WQE of a request of which was told already.
    Again,
}

/// A record; aligned so that it never crosses a cache line.
#[repr(align(16))]
pub(crate) struct Record {
    wr_id: AtomicU64,
    info: AtomicU64,
}

impl Record {
    /// Owner: marks the request as cancelled and tells of it, if it is not yet and does anything.
    // Apart, so that the scan keeps to registers.
    #[inline(never)]
    fn cancel(&self, wr_id: u64, cancelled: &mut dyn FnMut(Completed)) {
        // The queue is drained and the caller owns it: nobody else writes a record. The release
        // pairs with the poller's acquire in `info`.
        let info = RequestInfo(self.info.load(Relaxed));
        if info.cancelled() || info.opcode_bits() == Opcode::Nop as u8 {
            return;
        }
        self.info.store(info.0 | RequestInfo::CANCELLED, Release);
        cancelled(Completed { wr_id, info });
    }
}

/// The ring of records, as the owner reaches it.
pub(crate) struct Slots(NonNull<Record>);

impl Slots {
    /// Owner: writes the record of request `sequence`, which is not published yet and whose blocks
    /// are free. `mask` is that of the ring.
    ///
    /// # Safety
    /// The records are alive, and were made for `mask + 1` blocks.
    #[inline(always)]
    pub(crate) unsafe fn stage(&self, mask: u32, sequence: u32, wr_id: u64, info: RequestInfo) {
        // SAFETY: masked, so inside the ring.
        let record = unsafe { self.0.add((sequence & mask) as usize).as_ref() };
        record.wr_id.store(wr_id, Relaxed);
        record.info.store(info.0, Relaxed);
    }

    /// Owner: notes that request `sequence`, which is not published yet, was given a name.
    ///
    /// # Safety
    /// As for [`Slots::stage`].
    pub(crate) unsafe fn mark_named(&self, mask: u32, sequence: u32) {
        // SAFETY: masked, so inside the ring.
        let record = unsafe { self.0.add((sequence & mask) as usize).as_ref() };
        let info = record.info.load(Relaxed);
        record.info.store(info | u64::from(RequestInfo::NAMED), Relaxed);
    }
}

/// The shared half of a send queue.
pub struct SendRecords {
    mask: u32,
    records: Box<[Record]>,
    committed: CachePadded<AtomicU16>,
    /// Requests that the poller has finished with.
    retired: CachePadded<AtomicU16>,
    /// Poller: an error was reported for a request of which WQEs are left.
    reported: AtomicBool,
    /// The poller has met an error: what is retired need not have been executed.
    failed: AtomicBool,
}

impl SendRecords {
    /// Records for a ring of `blocks` blocks: a power of two, at most 2¹⁵.
    ///
    /// # Panics
    /// If `blocks` is not such a number.
    pub fn new(blocks: u32) -> Self {
        assert!(blocks.is_power_of_two() && blocks as usize <= MAX_RING_BLOCKS);
        Self {
            mask: blocks - 1,
            records: (0..blocks)
                .map(|_| Record { wr_id: AtomicU64::new(0), info: AtomicU64::new(0) })
                .collect(),
            committed: CachePadded::new(AtomicU16::new(0)),
            retired: CachePadded::new(AtomicU16::new(0)),
            reported: AtomicBool::new(false),
            failed: AtomicBool::new(false),
        }
    }

    #[inline(always)]
    fn record(&self, sequence: u16) -> &Record {
        // SAFETY: there are `mask + 1` records.
        unsafe { self.records.get_unchecked((u32::from(sequence) & self.mask) as usize) }
    }

    pub(crate) fn slots(&self) -> Slots {
        Slots(NonNull::from(&*self.records).cast())
    }

    /// Owner: makes all requests before `sequence` part of the queue.
    #[inline(always)]
    pub(crate) fn publish(&self, sequence: u16) {
        self.committed.store(sequence, Release);
    }

    /// Owner: blocks in use up to `head`, at which request `sequence` would start.
    #[inline]
    pub(crate) fn used_blocks(&self, head: u16, sequence: u16) -> u16 {
        let retired = self.retired.load(Acquire);
        // The first request that is not retired starts where the last that is ends.
        if retired == sequence { 0 } else { head.wrapping_sub(self.info(retired).first()) }
    }

    /// Whether a request failed since the last reset, before any that `outstanding` has told of as
    /// retired.
    #[inline]
    pub(crate) fn failed(&self) -> bool {
        self.failed.load(Relaxed)
    }

    /// The requests from the first that is not retired up to `committed`.
    #[inline]
    pub(crate) fn outstanding(&self) -> (u16, u16) {
        (self.retired.load(Acquire), self.committed.load(Acquire))
    }

    /// What request `sequence` was posted as.
    #[inline(always)]
    pub(crate) fn info(&self, sequence: u16) -> RequestInfo {
        // The acquire pairs with the owner's release when it cancels.
        RequestInfo(self.record(sequence).info.load(Acquire))
    }

    /// The record of request `sequence`.
    #[inline(always)]
    pub(crate) fn get(&self, sequence: u16) -> Completed {
        Completed { wr_id: self.record(sequence).wr_id.load(Relaxed), info: self.info(sequence) }
    }

    /// The first WQE from `from` on that is not a later part of a request that starts before it.
    pub(crate) fn next_request(&self, mut from: u16, to: u16) -> u16 {
        while from != to && self.info(from).continues() {
            from = from.wrapping_add(1);
        }
        from
    }

    /// The whole request whose first WQE is `sequence`, and where the next one starts.
    pub(crate) fn request(&self, sequence: u16) -> (Completed, u16) {
        let Completed { wr_id, info } = self.get(sequence);
        let (mut last, mut at) = (info, sequence);
        while last.has_more() {
            at = at.wrapping_add(1);
            last = self.info(at);
        }
        let info = if info.has_more() { info.through(last) } else { info };
        (Completed { wr_id, info }, at.wrapping_add(1))
    }

    /// The request that starts at `block`, if an outstanding one does.
    pub(crate) fn starting_at(&self, block: u16) -> Option<u16> {
        let (retired, committed) = self.outstanding();
        let count = committed.wrapping_sub(retired);
        if count == 0 {
            return None;
        }
        // Blocks from the first that is outstanding; within the ring, so that they do not wrap.
        let first = self.info(retired).first();
        let ahead = |of: u16| of.wrapping_sub(first);
        // No request is further ahead than its block; where all before it take one block, it is
        // just there.
        let (mut low, mut high) = (0, count.min(ahead(block).saturating_add(1)));
        let mut middle = high - 1;
        while low < high {
            let sequence = retired.wrapping_add(middle);
            let found = self.info(sequence).first();
            match ahead(found).cmp(&ahead(block)) {
                Ordering::Equal => return Some(sequence),
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
            }
            middle = low + (high.saturating_sub(low)) / 2;
        }
        None
    }

    /// Records of consecutive requests, in at most two runs of memory.
    fn runs(&self, from: u16, to: u16) -> [&[Record]; 2] {
        let count = usize::from(to.wrapping_sub(from));
        let start = (u32::from(from) & self.mask) as usize;
        let first = count.min(self.records.len() - start);
        [&self.records[start..start + first], &self.records[..count - first]]
    }

    /// Owner: marks every request in `from..to` for which `wanted` says so as cancelled, and hands
    /// those that were not yet to `cancelled`. `maybe` is asked first, and may be wrong about an
    /// identifier that is not wanted.
    #[inline(always)]
    pub(crate) fn cancel(
        &self,
        from: u16,
        to: u16,
        maybe: impl Fn(u64) -> bool,
        mut wanted: impl FnMut(u64, &dyn Fn() -> RequestInfo) -> bool,
        mut cancelled: impl FnMut(Completed),
    ) {
        let mut look = |record: &Record| {
            let wr_id = record.wr_id.load(Relaxed);
            if maybe(wr_id) && wanted(wr_id, &|| RequestInfo(record.info.load(Relaxed))) {
                record.cancel(wr_id, &mut cancelled);
            }
        };
        for run in self.runs(from, to) {
            // Nearly all are left alone: by eight they cost little more than a comparison each.
            let (eights, rest) = run.as_chunks::<8>();
            for eight in eights {
                if eight.iter().any(|record| maybe(record.wr_id.load(Relaxed))) {
                    eight.iter().for_each(&mut look);
                }
            }
            rest.iter().for_each(&mut look);
        }
    }

    /// Poller: a completion names the request that starts at `block`. Retires it and all before it;
    /// `None` if no outstanding request starts there, which no honest device says.
    pub fn retire(&self, block: u16) -> Option<Completed> {
        let sequence = self.starting_at(block)?;
        let completed = self.get(sequence);
        self.retire_to(sequence);
        Some(completed)
    }

    /// Poller: [`SendRecords::retire`], for any completion; `failed` if it is with an error. Of a
    /// request with several WQEs the device may tell more than once then: only the first time is the
    /// user's.
    pub fn retire_any(&self, block: u16, failed: bool) -> Option<Retired> {
        if failed {
            self.failed.store(true, Relaxed);
        }
        let completed = self.retire(block)?;
        let again = completed.info.continues() && self.reported.load(Relaxed);
        self.reported.store(completed.info.has_more(), Relaxed);
        Some(if again { Retired::Again } else { Retired::Request(completed) })
    }

    /// Poller: [`SendRecords::retire`], but `None` unless it is the next request.
    #[inline(always)]
    pub fn retire_next(&self, block: u16) -> Option<Completed> {
        let sequence = self.retired.load(Relaxed);
        // The acquire pairs with `publish`: whatever is below `committed` is written.
        if sequence == self.committed.load(Acquire) {
            return None;
        }
        let completed = self.get(sequence);
        if completed.info.first() != block {
            return None;
        }
        self.retire_to(sequence);
        Some(completed)
    }

    /// The release lets the owner reuse the record and the blocks: the record was read before.
    #[inline(always)]
    fn retire_to(&self, sequence: u16) {
        self.retired.store(sequence.wrapping_add(1), Release);
    }

    /// Forgets everything: the queue pair was reset.
    pub(crate) fn reset(&self) {
        self.reported.store(false, Relaxed);
        self.failed.store(false, Relaxed);
        self.committed.store(0, Relaxed);
        self.retired.store(0, Relaxed);
    }
}
