//! Cancelling requests of a drained send queue: scans the records of pending requests and rewrites
//! the matching WQEs into NOPs.

use crate::send::post::OPCODE_AT;
use crate::send::queue::{HandleNumbers, SendQueue, next_generation};
use crate::send::records::{Completed, RequestInfo};
use alloc::vec::Vec;
use core::fmt;
use core::mem::{offset_of, take};
use core::num::NonZeroU32;
use core::ptr::NonNull;
use mlx5_doorbell::barrier;
use mlx5_prm::wqe::{ControlSegment, Opcode};

/// The position of a drained send queue: a request boundary among the outstanding requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DrainPoint {
    /// Sequence number of the first WQE that was not executed.
    sequence: u16,
    /// Its first block.
    block: u16,
}

impl DrainPoint {
    /// The block at which the queue stopped, free-running in 16 bits.
    pub const fn block(self) -> u16 {
        self.block
    }
}

/// A request that a cancel considers: committed, but not executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PendingRequest {
    /// The user's identifier.
    pub wr_id: u64,
    /// The posted request.
    pub info: RequestInfo,
}

/// HandleNumbers one posted request of one queue, independent of its `wr_id`. See
/// [`Batch::handle`](crate::Batch::handle).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RequestHandle {
    /// Sequence number of its first WQE.
    pub(crate) sequence: u32,
    /// Number of the handle. Several requests may have been built with this sequence number, of
    /// which all but the last were never posted.
    pub(crate) number: u32,
    /// Generation of the queue; no two queues of a process share one.
    pub(crate) generation: u64,
}

/// Whether a cancel that does not find every given identifier cancels the rest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Mode {
    /// Cancel those that are pending.
    #[default]
    BestEffort,
    /// Cancel nothing if an identifier matches no pending request.
    AllOrNothing,
}

/// The result of a cancel.
#[derive(Clone, Default, Debug)]
pub struct Cancelled {
    requests: Requests,
}

/// A list of requests. A single one, the usual case, needs no allocation.
#[derive(Clone, Default, Debug)]
enum Requests {
    #[default]
    None,
    One(PendingRequest),
    Many(Vec<PendingRequest>),
}

impl Cancelled {
    /// The number of cancelled requests.
    pub fn count(&self) -> usize {
        self.requests().len()
    }

    /// The cancelled requests, in posting order.
    pub fn requests(&self) -> &[PendingRequest] {
        match &self.requests {
            Requests::None => &[],
            Requests::One(request) => core::slice::from_ref(request),
            Requests::Many(requests) => requests,
        }
    }

    /// Adds a WQE: a request of its own, or a further one of the last request.
    fn push(&mut self, Completed { wr_id, info }: Completed) {
        if info.continues()
            && let Some(request) = self.last_mut()
        {
            request.info = request.info.through(info);
            return;
        }
        let request = PendingRequest { wr_id, info };
        match &mut self.requests {
            Requests::None => self.requests = Requests::One(request),
            Requests::One(first) => self.requests = Requests::Many(Vec::from([*first, request])),
            Requests::Many(requests) => requests.push(request),
        }
    }

    fn last_mut(&mut self) -> Option<&mut PendingRequest> {
        match &mut self.requests {
            Requests::None => None,
            Requests::One(request) => Some(request),
            Requests::Many(requests) => requests.last_mut(),
        }
    }
}

impl PartialEq for Cancelled {
    fn eq(&self, other: &Self) -> bool {
        self.requests() == other.requests()
    }
}

impl Eq for Cancelled {}

/// The identifiers for which [`Mode::AllOrNothing`] found no pending request. Nothing was
/// cancelled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotPending {
    /// The identifiers.
    pub wr_ids: Vec<u64>,
}

impl fmt::Display for NotPending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nothing cancelled: no pending request has wr_id {:?}", self.wr_ids)
    }
}

impl core::error::Error for NotPending {}

/// A set of identifiers for one scan. A sparse hash table of `2^(64 - SHIFT)` slots rejects nearly
/// all identifiers that are not in the set by one lookup; the sorted list decides the rest.
struct IdSet<'a, P, const SHIFT: u32> {
    /// Open addressing with linear probing: one more than an index of `sorted`; zero if the slot is
    /// free.
    table: Vec<P>,
    sorted: &'a [u64],
}

impl<'a, P: Place, const SHIFT: u32> IdSet<'a, P, SHIFT> {
    const SIZE: usize = 1 << (u64::BITS - SHIFT);

    /// `sorted` must have fewer identifiers than the table has slots, and at most as many as `P`
    /// can count.
    fn new(sorted: &'a [u64]) -> Self {
        let mut table = alloc::vec![P::default(); Self::SIZE];
        for (place, id) in sorted.iter().enumerate() {
            let mut at = Self::hash(*id);
            while table[at] != P::default() {
                at = (at + 1) % Self::SIZE;
            }
            table[at] = P::number(place + 1);
        }
        Self { table, sorted }
    }

    /// The top bits of a multiplication with 2⁶⁴ divided by the golden ratio.
    #[inline]
    fn hash(id: u64) -> usize {
        (id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> SHIFT) as usize
    }

    /// Whether the slot of this identifier's hash is used.
    #[inline(always)]
    fn may_have(&self, id: u64) -> bool {
        // SAFETY: a hash has as many bits as the index of the table.
        unsafe { *self.table.get_unchecked(Self::hash(id)) != P::default() }
    }

    /// Whether `id` is in the set.
    #[inline(never)]
    fn has(&self, id: u64) -> bool {
        let mut at = Self::hash(id);
        loop {
            match self.table[at].index().checked_sub(1) {
                None => return false,
                Some(place) if self.sorted[place] == id => return true,
                Some(_) => at = (at + 1) % Self::SIZE,
            }
        }
    }
}

/// The number of an identifier in the table of an [`IdSet`]. As small as the set allows: the table
/// is written for every scan.
trait Place: Copy + Default + PartialEq {
    fn number(number: usize) -> Self;
    fn index(self) -> usize;
}

macro_rules! places {
    ($($number:ident)*) => {$(
        impl Place for $number {
            fn number(number: usize) -> Self {
                number as Self
            }

            #[inline]
            fn index(self) -> usize {
                self as usize
            }
        }
    )*};
}

places!(u8 u16 u32);

/// A cancel in progress. Its end orders the NOPs and undoes the changes of keys that the cancelled
/// requests announced, also when a closure of the caller panics.
struct Cancel<'q, T> {
    queue: &'q mut SendQueue<T>,
    cancelled: Cancelled,
}

impl<'q, T> Cancel<'q, T> {
    fn new(queue: &'q mut SendQueue<T>) -> Self {
        Self { queue, cancelled: Cancelled::default() }
    }

    /// # Safety
    /// As for [`SendQueue::cancel`]; the WQEs from `from` up to `end` are those of pending
    /// requests.
    #[inline(always)]
    unsafe fn range(
        &mut self,
        from: u16,
        end: u16,
        maybe: impl Fn(u64) -> bool,
        wanted: impl Fn(u64) -> bool,
    ) {
        let Self { queue, cancelled } = self;
        queue.records().cancel(from, end, maybe, wanted, |wqe: Completed| {
            let block = wqe.info.first().into();
            // SAFETY: the WQE is committed and not executed, so it is in the ring, and the device
            // does not read it.
            unsafe { rewrite_as_nop(queue.ring.at(block)) };
            if queue.common.is_signed {
                queue.sign(block);
            }
            cancelled.push(wqe);
        });
    }

    fn end(mut self) -> Cancelled {
        take(&mut self.cancelled)
    }
}

impl<T> Drop for Cancel<'_, T> {
    fn drop(&mut self) {
        // Orders the NOPs before anything that lets the device resume.
        barrier::to_device();
        self.queue.forget_cancelled();
    }
}

impl<T> SendQueue<T> {
    /// Finds the request boundary at which the device reports that it stopped. `None` if `counter`
    /// is not a boundary among the outstanding requests.
    pub fn drain_point(&self, counter: u16) -> Option<DrainPoint> {
        if counter == self.posted.block as u16 {
            return Some(DrainPoint { sequence: self.posted.sequence as u16, block: counter });
        }
        let sequence = self.records().starting_at(counter)?;
        Some(DrainPoint { sequence, block: counter })
    }

    /// Iterates over the requests that were committed and not begun when the queue stopped at
    /// `drained`.
    pub fn pending(&self, drained: DrainPoint) -> impl Iterator<Item = PendingRequest> + '_ {
        let (mut at, end) = self.pending_range(drained);
        core::iter::from_fn(move || {
            (at != end).then(|| {
                let (Completed { wr_id, info }, next) = self.records().request(at);
                at = next;
                PendingRequest { wr_id, info }
            })
        })
    }

    /// Returns the sequence numbers of the first request that was not begun, and after the last.
    fn pending_range(&self, drained: DrainPoint) -> (u16, u16) {
        let end = self.posted.sequence as u16;
        // The device may have executed some WQEs of a request that has several; the rest of it will
        // be executed.
        (self.records().next_request(drained.sequence, end), end)
    }

    /// Cancels every pending request with identifier `wr_id`. Linear in the number of pending
    /// requests.
    ///
    /// # Safety
    /// The send queue is drained at `drained`, and the device does not read its ring until the
    /// queue pair resumes.
    pub unsafe fn cancel(&mut self, drained: DrainPoint, wr_id: u64) -> Cancelled {
        // SAFETY: by the caller's contract.
        unsafe { self.cancel_ids(drained, |id| id == wr_id, |_| true) }
    }

    /// Cancels every pending request whose identifier is in `wr_ids`, in one pass. Requests that
    /// are already cancelled count as found.
    ///
    /// # Safety
    /// As for [`SendQueue::cancel`].
    pub unsafe fn cancel_set(
        &mut self,
        drained: DrainPoint,
        wr_ids: &[u64],
        mode: Mode,
    ) -> Result<Cancelled, NotPending> {
        let mut sorted = wr_ids.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        if mode == Mode::AllOrNothing {
            let mut found = alloc::vec![false; sorted.len()];
            for request in self.pending(drained) {
                if let Ok(place) = sorted.binary_search(&request.wr_id) {
                    found[place] = true;
                }
            }
            let missing = sorted.iter().zip(&found).filter(|(_, found)| !**found);
            let wr_ids: Vec<u64> = missing.map(|(id, _)| *id).collect();
            if !wr_ids.is_empty() {
                return Err(NotPending { wr_ids });
            }
        }
        // The tables are sparse: with the usual identifiers at most one lookup in 64 is a false
        // match.
        // SAFETY: by the caller's contract.
        Ok(unsafe {
            match sorted.len() {
                0..=64 => self.cancel_in(drained, &IdSet::<u8, 52>::new(&sorted)),
                65..=1024 => self.cancel_in(drained, &IdSet::<u16, 48>::new(&sorted)),
                1025..=0x4_0000 => self.cancel_in(drained, &IdSet::<u32, 44>::new(&sorted)),
                _ => {
                    let wanted = |id| sorted.binary_search(&id).is_ok();
                    self.cancel_ids(drained, wanted, |_| true)
                }
            }
        })
    }

    /// # Safety
    /// As for [`SendQueue::cancel`].
    unsafe fn cancel_in<P: Place, const SHIFT: u32>(
        &mut self,
        drained: DrainPoint,
        set: &IdSet<'_, P, SHIFT>,
    ) -> Cancelled {
        // SAFETY: by the caller's contract.
        unsafe { self.cancel_ids(drained, |id| set.may_have(id), |id| set.has(id)) }
    }

    /// Cancels every pending request for which `wanted` returns true.
    ///
    /// # Safety
    /// As for [`SendQueue::cancel`].
    pub unsafe fn cancel_where(
        &mut self,
        drained: DrainPoint,
        mut wanted: impl FnMut(&PendingRequest) -> bool,
    ) -> Cancelled {
        let (mut at, end) = self.pending_range(drained);
        let mut cancel = Cancel::new(self);
        while at != end {
            let (Completed { wr_id, info }, next) = cancel.queue.records().request(at);
            if wanted(&PendingRequest { wr_id, info }) {
                // SAFETY: by the caller's contract; the request is pending.
                unsafe { cancel.range(at, next, |_| true, |_| true) };
            }
            at = next;
        }
        cancel.end()
    }

    /// Cancels the request of this handle, if it is pending.
    ///
    /// # Safety
    /// As for [`SendQueue::cancel`].
    pub unsafe fn cancel_handle(
        &mut self,
        drained: DrainPoint,
        handle: RequestHandle,
    ) -> Cancelled {
        let (from, end) = self.pending_range(drained);
        let behind = self.posted.sequence.wrapping_sub(handle.sequence);
        let pending = behind != 0 && behind <= u32::from(end.wrapping_sub(from));
        if handle.generation != self.handle_numbers.generation || !pending || !self.is_of(handle) {
            return Cancelled::default();
        }
        let first = handle.sequence as u16;
        let (_, next) = self.records().request(first);
        let mut cancel = Cancel::new(self);
        // SAFETY: by the caller's contract; the request was found to be pending.
        unsafe { cancel.range(first, next, |_| true, |_| true) };
        cancel.end()
    }

    /// Cancels the pending requests whose identifiers `wanted` returns true for. `maybe` is called
    /// first, as a filter that may return true for an unwanted identifier.
    ///
    /// # Safety
    /// As for [`SendQueue::cancel`].
    #[inline(always)]
    unsafe fn cancel_ids(
        &mut self,
        drained: DrainPoint,
        maybe: impl Fn(u64) -> bool,
        wanted: impl Fn(u64) -> bool,
    ) -> Cancelled {
        let (from, end) = self.pending_range(drained);
        let mut cancel = Cancel::new(self);
        // SAFETY: by the caller's contract; the range is that of pending requests.
        unsafe { cancel.range(from, end, maybe, wanted) };
        cancel.end()
    }

    /// Whether the posted request with the handle's sequence number is the one that it names.
    fn is_of(&self, handle: RequestHandle) -> bool {
        let (records, sequence) = (self.records(), handle.sequence as u16);
        records.info(sequence).has_handle() && records.handle_number(sequence) == handle.number
    }

    /// Undoes the changes of keys by cancelled requests.
    fn forget_cancelled(&mut self) {
        if !self.journal.is_empty() {
            // The record of a retired request may already be reused.
            self.settle_key_changes();
            // SAFETY: the records live as long as this value. Only the journal is borrowed mutably.
            let records = unsafe { self.records.as_ref() };
            self.journal.undo_where(|sequence| records.info(sequence as u16).cancelled());
        }
    }
}

impl HandleNumbers {
    /// Returns a handle number that no other request of this generation has.
    pub(crate) fn next(&mut self) -> NonZeroU32 {
        self.last = self.last.wrapping_add(1);
        NonZeroU32::new(self.last).unwrap_or_else(|| {
            // Numbers must not repeat, so a new generation starts. Older handles become invalid.
            *self = Self { generation: next_generation(), last: 1 };
            NonZeroU32::MIN
        })
    }
}

/// The first byte of `opmod_index_opcode`: the modifier.
const MODIFIER_AT: usize = offset_of!(ControlSegment, opmod_index_opcode);

/// Turns a WQE into a NOP of the same size, fence and completion flags: only opcode and modifier
/// change.
///
/// # Safety
/// `wqe` is a WQE in a ring, and the device does not read it meanwhile.
unsafe fn rewrite_as_nop(wqe: NonNull<u8>) {
    // SAFETY: both bytes are in the control segment.
    unsafe {
        wqe.byte_add(MODIFIER_AT).write_volatile(0);
        wqe.byte_add(OPCODE_AT).write_volatile(Opcode::Nop as u8);
    }
}
