//! The records of posted requests, shared by owner and poller.
//!
//! Each WQE has a free-running 16-bit sequence number, which indexes a ring of records,
//! so that a scan over pending requests reads memory in order. A CQE names the block at which a
//! request starts. Blocks ascend with the sequence number, so a request is found by its block
//! without a second ring. A request may consist of several WQEs (one that configures a signed key
//! does): each has a record, which notes its place among them. Only the last of them can be
//! signaled.
//!
//! The owner *stages* records in the slots from `committed` on, which the poller does not read, and
//! `publish` makes it visible. An aborted batch publishes nothing.

use crate::sync::{
    AtomicBool, AtomicU16, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use alloc::boxed::Box;
use core::cell::UnsafeCell;
use core::cmp::Ordering;
use core::fmt;
use core::ptr::NonNull;
use crossbeam_utils::CachePadded;
use mlx5_prm::wqe::{BLOCK, MAX_BLOCKS, MAX_RING_BLOCKS, Opcode, control_flags};

/// The description of a WQE, in one word. From bit 0: blocks (8 bits), flags (16: more WQEs follow,
/// continues a request, has a handle), `fm_ce_se` byte (8), opcode (8, of which bit 6 marks a
/// cancelled request), first block (16), opcode modifier (8). The upper half is laid out as the
/// first word of a WQE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestInfo(u64);

impl RequestInfo {
    /// A bit of the opcode's byte; opcodes have six bits.
    const CANCELLED: u64 = (Self::CANCELLED_BIT as u64) << Self::OPCODE_SHIFT;
    const CANCELLED_BIT: u8 = 0x40;
    pub(crate) const CONTROL_SHIFT: u32 = 24;
    pub(crate) const OPCODE_SHIFT: u32 = 32;
    pub(crate) const FIRST_SHIFT: u32 = 40;
    /// The request has more WQEs after this one.
    pub(crate) const MORE: u32 = 1 << 8;
    /// The request has WQEs before this one.
    pub(crate) const CONTINUES: u32 = 1 << 9;
    /// The request has a handle; the owner knows its number.
    const HAS_HANDLE: u32 = 1 << 10;

    /// Combines fields that are already shifted: `place` has opcode and first block, `control` the
    /// `fm_ce_se` byte.
    #[inline]
    pub(crate) const fn new(place: u64, control: u32, blocks: u32) -> Self {
        Self(place | (control | blocks) as u64)
    }

    /// The same request, of another number of blocks.
    pub(crate) const fn with_blocks(self, blocks: u32) -> Self {
        Self(self.0 & !0xff | blocks as u64)
    }

    /// The same request, with a handle.
    pub(crate) const fn with_handle(self) -> Self {
        Self(self.0 | Self::HAS_HANDLE as u64)
    }

    /// The 64-byte block at which the request starts, free-running.
    #[inline]
    pub const fn first(self) -> u16 {
        (self.0 >> Self::FIRST_SHIFT) as u16
    }

    /// The number of blocks of the request.
    #[inline]
    pub const fn blocks(self) -> u16 {
        self.0 as u8 as u16
    }

    /// The operation that was posted, even if it was cancelled. `None` if the opcode has no name,
    /// as is possible for a raw WQE.
    #[inline]
    pub const fn opcode(self) -> Option<Opcode> {
        Opcode::from_bits(self.opcode_bits())
    }

    /// The opcode that was posted.
    #[inline]
    pub const fn opcode_bits(self) -> u8 {
        self.opcode_and_mark() & !Self::CANCELLED_BIT
    }

    /// The opcode that was posted, with bit 6 set if the request was cancelled.
    #[inline]
    pub const fn opcode_and_mark(self) -> u8 {
        (self.0 >> Self::OPCODE_SHIFT) as u8
    }

    /// Whether the request is signaled.
    #[inline]
    pub const fn signaled(self) -> bool {
        self.0 & (control_flags::COMPLETION as u64) << Self::CONTROL_SHIFT != 0
    }

    /// Whether the request was cancelled.
    #[inline]
    pub const fn cancelled(self) -> bool {
        self.0 & Self::CANCELLED != 0
    }

    /// Whether this is one of several WQEs of a request, but not the last.
    pub(crate) const fn has_more(self) -> bool {
        self.0 & Self::MORE as u64 != 0
    }

    /// Whether this is one of several WQEs of a request, but not the first.
    pub(crate) const fn continues(self) -> bool {
        self.0 & Self::CONTINUES as u64 != 0
    }

    /// Whether the request has a handle.
    pub(crate) const fn has_handle(self) -> bool {
        self.0 & Self::HAS_HANDLE as u64 != 0
    }

    /// Returns the description of the request whose first WQE this is and whose last one is `last`.
    pub(crate) const fn through(self, last: Self) -> Self {
        let blocks = last.first().wrapping_add(last.blocks()).wrapping_sub(self.first());
        let control = last.0 & 0xff << Self::CONTROL_SHIFT;
        let rest = self.0 & !(0xff << Self::CONTROL_SHIFT | (Self::MORE | 0xff) as u64);
        Self(rest | control | blocks as u64)
    }
}

/// A request that a completion names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completed {
    /// The user's identifier.
    pub wr_id: u64,
    /// The posted request.
    pub info: RequestInfo,
}

/// The result of retiring a completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retired {
    /// This request.
    Request(Completed),
    /// A further WQE of a request whose completion was already reported.
    Duplicate,
}

/// A record. The alignment keeps it within a cache line.
#[repr(align(16))]
pub(crate) struct Record {
    wr_id: AtomicU64,
    info: AtomicU64,
}

impl Record {
    /// Owner: describes a WQE that is not published yet.
    #[inline(always)]
    pub(crate) fn stage(&self, wr_id: u64, info: RequestInfo) {
        self.wr_id.store(wr_id, Relaxed);
        self.restage(info);
    }

    /// Owner: changes the description of a WQE that is not published yet.
    #[inline]
    pub(crate) fn restage(&self, info: RequestInfo) {
        self.info.store(info.0, Relaxed);
    }

    /// Owner: the description. Relaxed, as the owner alone writes records.
    #[inline]
    pub(crate) fn staged(&self) -> RequestInfo {
        RequestInfo(self.info.load(Relaxed))
    }

    #[inline(always)]
    fn info(&self) -> RequestInfo {
        // The acquire pairs with the owner's release when it cancels.
        RequestInfo(self.info.load(Acquire))
    }

    /// Owner: marks the request as cancelled and passes it to `cancelled`, unless it is cancelled
    /// already or is a NOP.
    // Out of line, so that the scan stays in registers.
    #[inline(never)]
    fn cancel(&self, wr_id: u64, cancelled: &mut dyn FnMut(Completed)) {
        // The queue is drained and the caller owns it: nothing else writes a record. The release
        // pairs with the poller's acquire in `info`.
        let info = RequestInfo(self.info.load(Relaxed));
        if info.cancelled() || info.opcode_bits() == Opcode::Nop as u8 {
            return;
        }
        self.info.store(info.0 | RequestInfo::CANCELLED, Release);
        cancelled(Completed { wr_id, info });
    }
}

/// A buffer for the largest WQE. A request is built here if it might wrap around the end of the
/// ring or if room is short.
#[repr(C, align(64))]
pub(crate) struct Scratch([u8; MAX_BLOCKS * BLOCK]);

/// Memory of a send queue, besides its ring.
struct Memory {
    records: Box<[Record]>,
    /// The handle numbers of requests, by sequence number. The owner's alone, as the next one.
    handle_numbers: Box<[AtomicU32]>,
    scratch: Box<UnsafeCell<Scratch>>,
}

// SAFETY: the scratch buffer is reached only through the send queue that the memory belongs to, of
// which there is one. All else is atomic.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(blocks: u32) -> Self {
        let record = |_| Record { wr_id: AtomicU64::new(0), info: AtomicU64::new(0) };
        Self {
            records: (0..blocks).map(record).collect(),
            handle_numbers: (0..blocks).map(|_| AtomicU32::new(0)).collect(),
            scratch: Box::new(UnsafeCell::new(Scratch([0; MAX_BLOCKS * BLOCK]))),
        }
    }
}

/// Memory of [`SendRecords`] that are gone.
pub struct SpareRecords(Memory);

impl fmt::Debug for SpareRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpareRecords").field("blocks", &self.blocks()).finish()
    }
}

impl SpareRecords {
    /// The blocks of the ring that it is for.
    pub fn blocks(&self) -> u32 {
        self.0.records.len() as u32
    }
}

/// The shared half of a send queue.
pub struct SendRecords {
    mask: u32,
    memory: Memory,
    committed: CachePadded<Committed>,
    /// WQEs that the poller has retired.
    retired: CachePadded<AtomicU16>,
    /// Poller: an error was reported for a request of which further WQEs are outstanding.
    reported: AtomicBool,
    /// The poller has met an error: a retired request is not necessarily executed.
    failed: AtomicBool,
}

/// Counters that the owner alone writes.
struct Committed {
    /// WQEs that the owner has published.
    sequence: AtomicU16,
    /// Whether the ring may have been written after its first [`FIRST_BLOCKS`].
    opened: AtomicBool,
}

/// Blocks at the start of a ring that are written before it is noted that any other may be: 4 KiB.
pub(crate) const FIRST_BLOCKS: u32 = 64;

impl fmt::Debug for SendRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendRecords")
            .field("blocks", &(self.mask + 1))
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}

impl SendRecords {
    /// Creates the records of a ring of `blocks` blocks: a power of two, at most 2¹⁵.
    ///
    /// # Panics
    /// If `blocks` is not such a number.
    pub fn new(blocks: u32) -> Self {
        assert!(blocks.is_power_of_two() && blocks as usize <= MAX_RING_BLOCKS);
        Self::reusing(SpareRecords(Memory::new(blocks)))
    }

    /// Creates records in the memory of others.
    pub fn reusing(SpareRecords(memory): SpareRecords) -> Self {
        Self {
            mask: memory.records.len() as u32 - 1,
            memory,
            committed: CachePadded::new(Committed {
                sequence: AtomicU16::new(0),
                opened: AtomicBool::new(false),
            }),
            retired: CachePadded::new(AtomicU16::new(0)),
            reported: AtomicBool::new(false),
            failed: AtomicBool::new(false),
        }
    }

    /// The memory, for records of a ring of as many blocks. Old contents are harmless: records are
    /// read only after they are staged, and a handle number only if its record has one. The
    /// exception is [`SendRecords::in_flight`] while another thread resets the queue: it may return
    /// any count up to the size of the ring.
    pub fn into_spare(self) -> SpareRecords {
        SpareRecords(self.memory)
    }

    #[inline(always)]
    fn record(&self, sequence: u16) -> &Record {
        // SAFETY: the index is masked, and there are `mask + 1` records.
        unsafe { self.memory.records.get_unchecked((u32::from(sequence) & self.mask) as usize) }
    }

    /// Owner: the first record, and the number of records.
    pub(crate) fn as_ring(&self) -> (NonNull<Record>, u32) {
        (NonNull::from(&*self.memory.records).cast(), self.mask + 1)
    }

    /// Owner: the scratch buffer.
    pub(crate) fn scratch(&self) -> NonNull<u8> {
        NonNull::from(&*self.memory.scratch).cast()
    }

    /// Owner: the handle number of request `sequence`, if it has one.
    pub(crate) fn handle_number(&self, sequence: u16) -> u32 {
        self.handle_number_of(sequence).load(Relaxed)
    }

    /// Owner: gives request `sequence` a handle number.
    pub(crate) fn set_handle_number(&self, sequence: u16, number: u32) {
        self.handle_number_of(sequence).store(number, Relaxed);
    }

    fn handle_number_of(&self, sequence: u16) -> &AtomicU32 {
        &self.memory.handle_numbers[(u32::from(sequence) & self.mask) as usize]
    }

    /// Owner: commits all requests before `sequence`. The release orders their records before the
    /// counter, for the poller.
    #[inline(always)]
    pub(crate) fn publish(&self, sequence: u16) {
        self.committed.sequence.store(sequence, Release);
    }

    /// Owner: notes that any block of the ring may be written from now on.
    #[inline]
    pub(crate) fn open(&self) {
        self.committed.opened.store(true, Relaxed);
    }

    /// Whether any block of the ring may have been written.
    pub(crate) fn is_open(&self) -> bool {
        self.committed.opened.load(Relaxed)
    }

    /// Blocks at the start of the ring after which the owner never wrote. Aborted batches, refused
    /// requests and cancelled ones count.
    pub fn written_blocks(&self) -> u32 {
        // Read when the owner is gone: that orders the two.
        let blocks = self.mask + 1;
        if self.is_open() { blocks } else { blocks.min(FIRST_BLOCKS) }
    }

    /// The address of the counter that [`SendRecords::publish`] stores to.
    #[inline]
    pub(crate) fn committed_line(&self) -> NonNull<u8> {
        NonNull::from(&self.committed).cast()
    }

    /// Whether a request failed since the last reset. Read `retired` first: then this covers every
    /// request that was retired by that read.
    #[inline]
    pub(crate) fn failed(&self) -> bool {
        self.failed.load(Relaxed)
    }

    /// Owner: returns how many of the requests before `sequence`, the committed ones, are
    /// outstanding.
    #[inline]
    pub(crate) fn outstanding_before(&self, sequence: u16) -> u16 {
        sequence.wrapping_sub(self.retired.load(Acquire))
    }

    /// Returns `retired` and `committed`: the range of outstanding requests.
    #[inline]
    pub(crate) fn outstanding(&self) -> (u16, u16) {
        (self.retired.load(Acquire), self.committed.sequence.load(Acquire))
    }

    /// Returns the number of requests that were posted and whose completion was not polled.
    pub fn in_flight(&self) -> u32 {
        let (retired, committed) = self.outstanding();
        // Another thread may reset the counters meanwhile. Then these are any records, and it is
        // any count.
        let wqes = committed.wrapping_sub(retired).min(self.mask as u16 + 1);
        let starts = |at: &u16| !self.info(retired.wrapping_add(*at)).continues();
        (0..wqes).filter(starts).count() as u32
    }

    /// Whether every WQE that was posted was retired.
    pub fn is_idle(&self) -> bool {
        let (retired, committed) = self.outstanding();
        retired == committed
    }

    /// Returns the identifiers of the requests in flight, in posting order. While another thread
    /// posts or resets the queue they are any identifiers, at most as many as the ring has blocks.
    pub fn wr_ids_in_flight(&self) -> impl Iterator<Item = u64> + '_ {
        let (mut at, committed) = self.outstanding();
        let mut left = committed.wrapping_sub(at).min(self.mask as u16 + 1);
        core::iter::from_fn(move || {
            (left != 0).then(|| {
                let (request, next) = self.request(at);
                left = left.saturating_sub(next.wrapping_sub(at));
                at = next;
                request.wr_id
            })
        })
    }

    /// Returns the description of request `sequence`.
    #[inline(always)]
    pub(crate) fn info(&self, sequence: u16) -> RequestInfo {
        self.record(sequence).info()
    }

    /// Returns the record of request `sequence`.
    #[inline(always)]
    pub(crate) fn get(&self, sequence: u16) -> Completed {
        let record = self.record(sequence);
        let info = record.info();
        Completed { wr_id: record.wr_id.load(Relaxed), info }
    }

    /// Returns the first WQE from `from` on that starts a request.
    pub(crate) fn next_request(&self, mut from: u16, to: u16) -> u16 {
        while from != to && self.info(from).continues() {
            from = from.wrapping_add(1);
        }
        from
    }

    /// Returns the whole request whose first WQE is `sequence`, and the sequence number after it.
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

    /// Returns the outstanding request that starts at `block`, if there is one.
    pub(crate) fn starting_at(&self, block: u16) -> Option<u16> {
        let (retired, committed) = self.outstanding();
        let count = committed.wrapping_sub(retired);
        if count == 0 {
            return None;
        }
        // Blocks relative to the first outstanding one. They fit in the ring, so they do not wrap.
        let oldest = self.info(retired);
        let ahead = |of: u16| of.wrapping_sub(oldest.first());
        let wanted = ahead(block);
        // Each request has at least one block, so its index is at most its relative block. Requests
        // are mostly alike, so it is mostly the quotient of that by the blocks of the first.
        let (mut low, mut high) = (0, count.min(wanted.saturating_add(1)));
        let mut middle = (wanted / oldest.blocks().max(1)).min(high - 1);
        while low < high {
            let sequence = retired.wrapping_add(middle);
            match ahead(self.info(sequence).first()).cmp(&wanted) {
                Ordering::Equal => return Some(sequence),
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
            }
            middle = low + (high - low) / 2;
        }
        None
    }

    /// Returns the records of consecutive requests, as at most two slices.
    fn runs(&self, from: u16, to: u16) -> [&[Record]; 2] {
        let count = usize::from(to.wrapping_sub(from));
        let start = (u32::from(from) & self.mask) as usize;
        let first = count.min(self.memory.records.len() - start);
        [&self.memory.records[start..start + first], &self.memory.records[..count - first]]
    }

    /// Owner: marks every WQE in `from..to` whose identifier `wanted` returns true for as
    /// cancelled, and passes newly marked ones to `cancelled`. `maybe` is called first, as a filter
    /// that may return true for an unwanted identifier.
    #[inline(always)]
    pub(crate) fn cancel(
        &self,
        from: u16,
        to: u16,
        maybe: impl Fn(u64) -> bool,
        wanted: impl Fn(u64) -> bool,
        mut cancelled: impl FnMut(Completed),
    ) {
        let mut look = |record: &Record| {
            let wr_id = record.wr_id.load(Relaxed);
            if maybe(wr_id) && wanted(wr_id) {
                record.cancel(wr_id, &mut cancelled);
            }
        };
        for run in self.runs(from, to) {
            // Few requests match. Testing eight at a time costs little more than one comparison
            // each.
            let (eights, rest) = run.as_chunks::<8>();
            for eight in eights {
                if eight.iter().any(|record| maybe(record.wr_id.load(Relaxed))) {
                    eight.iter().for_each(&mut look);
                }
            }
            rest.iter().for_each(&mut look);
        }
    }

    /// Poller: retires the request that starts at `block`, which a completion names, and all before
    /// it. `None` if no outstanding request starts there, which a correct device never reports.
    pub fn retire(&self, block: u16) -> Option<Completed> {
        let sequence = self.starting_at(block)?;
        let completed = self.get(sequence);
        self.retire_to(sequence);
        Some(completed)
    }

    /// Poller: [`SendRecords::retire`] for any completion; `failed` if it has an error. The device
    /// may then report several WQEs of one request: only the first report is returned as the user's
    /// completion.
    pub fn retire_any(&self, block: u16, failed: bool) -> Option<Retired> {
        if failed {
            self.failed.store(true, Relaxed);
        }
        let completed = self.retire(block)?;
        let again = completed.info.continues() && self.reported.load(Relaxed);
        self.reported.store(completed.info.has_more(), Relaxed);
        Some(if again { Retired::Duplicate } else { Retired::Request(completed) })
    }

    /// Poller: the fast path of [`SendRecords::retire`]. Finds the oldest outstanding request, and
    /// one after others of one block, which are those that the completion retires unreported.
    /// `None` for any other.
    ///
    /// Whether the request is signaled is not checked, nor whether it has more WQEs, whose earlier
    /// ones never are: a device that completes what was not to complete reports a request too
    /// early.
    #[inline(always)]
    pub fn retire_next(&self, block: u16) -> Option<Completed> {
        let mut sequence = self.retired.load(Relaxed);
        // The acquire pairs with `publish`: all records before `committed` are written.
        if sequence == self.committed.sequence.load(Acquire) {
            return None;
        }
        let mut completed = self.get(sequence);
        if completed.info.first() != block {
            // Of one block each, there are as many requests before it as blocks.
            let ahead = block.wrapping_sub(completed.info.first());
            // Read again rather than kept in a register on the way of every completion.
            if ahead >= self.committed.sequence.load(Acquire).wrapping_sub(sequence) {
                return None;
            }
            sequence = sequence.wrapping_add(ahead);
            completed = self.get(sequence);
            if completed.info.first() != block {
                return None;
            }
        }
        self.retire_to(sequence);
        Some(completed)
    }

    /// Poller: [`SendRecords::retire`] of a request that succeeded and has one WQE. `None` for any
    /// other.
    pub fn retire_ahead(&self, block: u16) -> Option<Completed> {
        let sequence = self.starting_at(block)?;
        let completed = self.get(sequence);
        if completed.info.continues() || completed.info.has_more() {
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

    /// Clears all counters: the queue pair was reset.
    pub(crate) fn reset(&self) {
        self.reported.store(false, Relaxed);
        self.failed.store(false, Relaxed);
        self.committed.sequence.store(0, Relaxed);
        self.retired.store(0, Relaxed);
    }
}
