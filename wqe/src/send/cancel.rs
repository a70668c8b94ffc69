//! Cancelling requests of a drained send queue: a scan over the records of what is pending, and a
//! rewrite of the matching WQEs into NOPs.

use crate::request::transport::Transport;
use crate::send::queue::{SendQueue, next_life};
use crate::send::records::{Completed, RequestInfo};
use alloc::vec::Vec;
use core::fmt;
use core::ptr::NonNull;
use mlx5_doorbell::barrier;
use mlx5_prm::wqe::Opcode;

/// Where a drained send queue stands: a request boundary among what is outstanding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DrainPoint {
    /// Sequence number of the first request that was not executed.
    sequence: u16,
    /// Its block.
    block: u16,
}

impl DrainPoint {
    /// The block, counted freely in 16 bits, at which the queue stands.
    pub const fn block(self) -> u16 {
        self.block
    }
}

/// A request that a cancel looks at: committed, and not executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PendingRequest {
    /// The user's identifier.
    pub wr_id: u64,
    /// What was posted.
    pub info: RequestInfo,
}

/// Names one posted request of one queue, whatever identifier it has. See
/// [`Batch::handle`](crate::Batch::handle).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RequestHandle {
    /// Of its first WQE.
    pub(crate) sequence: u32,
    /// What it was named: of requests that were built with this sequence number, all but the last were
    /// never posted.
    pub(crate) name: u32,
    /// Which of the queue's lives it belongs to; no two queues of a process share one.
    pub(crate) life: u64,
}

/// Whether a cancel that does not find all that it is asked for cancels the rest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Mode {
    /// Cancel what is there.
    #[default]
    BestEffort,
    /// If an identifier names nothing that is pending, cancel nothing.
    AllOrNothing,
}

/// What a cancel did.
#[derive(Clone, Default, Debug)]
pub struct Cancelled {
    requests: Requests,
}

/// Requests; one, which is the usual number, takes no memory elsewhere.
#[derive(Clone, Default, Debug)]
enum Requests {
    #[default]
    None,
    One(PendingRequest),
    Many(Vec<PendingRequest>),
}

impl Cancelled {
    /// How many requests were cancelled.
    pub fn count(&self) -> usize {
        self.requests().len()
    }

    /// The requests that were cancelled, in the order in which they were posted.
    pub fn requests(&self) -> &[PendingRequest] {
        match &self.requests {
            Requests::None => &[],
            Requests::One(request) => core::slice::from_ref(request),
            Requests::Many(requests) => requests,
        }
    }

    fn push(&mut self, request: PendingRequest) {
        match &mut self.requests {
            Requests::None => self.requests = Requests::One(request),
            Requests::One(first) => self.requests = Requests::Many(Vec::from([*first, request])),
            Requests::Many(requests) => requests.push(request),
        }
    }
}

impl PartialEq for Cancelled {
    fn eq(&self, other: &Self) -> bool {
        self.requests() == other.requests()
    }
}

impl Eq for Cancelled {}

/// Identifiers of which [`Mode::AllOrNothing`] found nothing pending; nothing was cancelled.
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

/// A set of identifiers, made for one scan: a sparse table of `2^(64 - SHIFT)` places tells nearly all
/// of those that are not in it apart by one look, the sorted list that it leads to knows for certain.
struct IdSet<'a, const SHIFT: u32> {
    /// One more than a place in `sorted`, by hash and then in the next free place; zero where there
    /// is none.
    table: Vec<u32>,
    sorted: &'a [u64],
}

impl<'a, const SHIFT: u32> IdSet<'a, SHIFT> {
    const SIZE: usize = 1 << (u64::BITS - SHIFT);

    /// `sorted` has fewer identifiers than the table has places.
    fn new(sorted: &'a [u64]) -> Self {
        let mut table = alloc::vec![0; Self::SIZE];
        for (place, id) in (1..).zip(sorted) {
            let mut at = Self::hash(*id);
            while table[at] != 0 {
                at = (at + 1) % Self::SIZE;
            }
            table[at] = place;
        }
        Self { table, sorted }
    }

    /// The top bits of a multiplication with 2⁶⁴ divided by the golden ratio.
    #[inline(always)]
    fn hash(id: u64) -> usize {
        (id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> SHIFT) as usize
    }

    /// Whether any identifier with this one's hash is in it.
    #[inline(always)]
    fn may_have(&self, id: u64) -> bool {
        // SAFETY: a hash has as many bits as index the table.
        unsafe { *self.table.get_unchecked(Self::hash(id)) != 0 }
    }

    /// Whether `id` is in it: where its hash leads or, as long as places are taken, behind.
    #[inline(never)]
    fn has(&self, id: u64) -> bool {
        let mut at = Self::hash(id);
        loop {
            match self.table[at].checked_sub(1) {
                None => return false,
                Some(place) if self.sorted[place as usize] == id => return true,
                Some(_) => at = (at + 1) % Self::SIZE,
            }
        }
    }
}

impl<T: Transport> SendQueue<T> {
    /// Finds the request boundary at which the device says it stopped; `None` if `counter` is not
    /// one among what is outstanding.
    pub fn drain_point(&self, counter: u16) -> Option<DrainPoint> {
        if counter == self.head as u16 {
            return Some(DrainPoint { sequence: self.sequence as u16, block: counter });
        }
        let sequence = self.records().starting_at(counter)?;
        Some(DrainPoint { sequence, block: counter })
    }

    /// The requests that were committed and not begun when the queue stood at `drained`.
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

    /// Sequence numbers of the first request that was not begun, and behind the last.
    fn pending_range(&self, drained: DrainPoint) -> (u16, u16) {
        let end = self.sequence as u16;
        // Of a request with several WQEs the device may have executed some: it goes on.
        (self.records().next_request(drained.sequence, end), end)
    }

    /// Cancels every pending request with identifier `wr_id`. Linear in the pending requests.
    ///
    /// # Safety
    /// The send queue is drained at `drained`, and the device does not read its ring until the
    /// queue pair goes on.
    pub unsafe fn cancel(&mut self, drained: DrainPoint, wr_id: u64) -> Cancelled {
        // SAFETY: handed down.
        unsafe { self.cancel_where_id(drained, |id| id == wr_id, |_, _| true) }
    }

    /// Cancels every pending request whose identifier is in `wr_ids`, in one pass. Requests that
    /// are cancelled already count as found.
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
        // Sparse enough that one look in 64 is in vain at most, with the usual numbers.
        // SAFETY: handed down.
        Ok(unsafe {
            match sorted.len() {
                0..=64 => self.cancel_in(drained, &IdSet::<52>::new(&sorted)),
                65..=1024 => self.cancel_in(drained, &IdSet::<48>::new(&sorted)),
                1025..=0x4_0000 => self.cancel_in(drained, &IdSet::<44>::new(&sorted)),
                _ => {
                    let wanted = |id| sorted.binary_search(&id).is_ok();
                    self.cancel_where_id(drained, wanted, |_, _| true)
                }
            }
        })
    }

    /// # Safety
    /// As for [`SendQueue::cancel`].
    unsafe fn cancel_in<const SHIFT: u32>(
        &mut self,
        drained: DrainPoint,
        set: &IdSet<'_, SHIFT>,
    ) -> Cancelled {
        // SAFETY: handed down.
        unsafe { self.cancel_where_id(drained, |id| set.may_have(id), |id, _| set.has(id)) }
    }

    /// Cancels every pending request for which `wanted` says so.
    ///
    /// # Safety
    /// As for [`SendQueue::cancel`].
    pub unsafe fn cancel_where(
        &mut self,
        drained: DrainPoint,
        mut wanted: impl FnMut(&PendingRequest) -> bool,
    ) -> Cancelled {
        let mut answer = false;
        // SAFETY: handed down.
        unsafe {
            self.cancel_where_id(
                drained,
                |_| true,
                |wr_id, info| {
                    let info = info();
                    // Asked once of each request, not of each of its WQEs.
                    if !info.continues() {
                        answer = wanted(&PendingRequest { wr_id, info });
                    }
                    answer
                },
            )
        }
    }

    /// Cancels the request with this handle, if it is pending.
    ///
    /// # Safety
    /// As for [`SendQueue::cancel`].
    pub unsafe fn cancel_handle(
        &mut self,
        drained: DrainPoint,
        handle: RequestHandle,
    ) -> Cancelled {
        let (from, end) = self.pending_range(drained);
        let behind = self.sequence.wrapping_sub(handle.sequence);
        let pending = behind != 0 && behind <= u32::from(end.wrapping_sub(from));
        if handle.life != self.life || !pending || !self.has_name(handle) {
            return Cancelled::default();
        }
        let first = handle.sequence as u16;
        let (_, next) = self.records().request(first);
        // SAFETY: handed down.
        unsafe { self.cancel_range(first, next, |_| true, |_, _| true) }
    }

    /// # Safety
    /// As for [`SendQueue::cancel`].
    #[inline(always)]
    unsafe fn cancel_where_id(
        &mut self,
        drained: DrainPoint,
        maybe: impl Fn(u64) -> bool,
        wanted: impl FnMut(u64, &dyn Fn() -> RequestInfo) -> bool,
    ) -> Cancelled {
        let (from, end) = self.pending_range(drained);
        // SAFETY: handed down.
        unsafe { self.cancel_range(from, end, maybe, wanted) }
    }

    /// # Safety
    /// As for [`SendQueue::cancel`]; the requests from `from` up to `end` are pending.
    #[inline(always)]
    unsafe fn cancel_range(
        &mut self,
        from: u16,
        end: u16,
        maybe: impl Fn(u64) -> bool,
        wanted: impl FnMut(u64, &dyn Fn() -> RequestInfo) -> bool,
    ) -> Cancelled {
        let mut all = Cancelled::default();
        self.records().cancel(from, end, maybe, wanted, |Completed { wr_id, info }| {
            // At once: should `wanted` panic later, what is marked must be cancelled.
            // SAFETY: the request is committed and not executed, so that its WQE stands in the
            // ring and the device does not read it.
            unsafe { rewrite_as_nop(self.at(info.first().into())) };
            if self.signed {
                self.sign(info.first().into());
            }
            if !info.continues() {
                all.push(PendingRequest { wr_id, info });
            }
        });
        // The NOPs are in the ring before the device can be told, by whatever way, to go on.
        barrier::to_device();
        self.forget_cancelled();
        all
    }

    /// A name for a request, that no other of the queue's life has.
    pub(crate) fn next_name(&mut self) -> u32 {
        self.last_name = self.last_name.wrapping_add(1);
        if self.last_name == 0 {
            // So that no name comes again; handles that are as old as that name nothing any more.
            (self.last_name, self.life) = (1, next_life());
        }
        self.last_name
    }

    /// Gives the request that was just built as `sequence` its name. A request that is built there
    /// later, for this one was not posted, has none but its own.
    #[inline(never)]
    pub(crate) fn name(&mut self, sequence: u32, name: u32) {
        self.names[(sequence & self.mask) as usize] = name;
        // SAFETY: the records are alive, and were made for this ring.
        unsafe { self.slots.mark_named(self.mask, sequence) };
    }

    /// Whether the posted request that stands where the handle says is the one that it names.
    fn has_name(&self, handle: RequestHandle) -> bool {
        self.records().info(handle.sequence as u16).named()
            && self.names[(handle.sequence & self.mask) as usize] == handle.name
    }

    /// Keys are no longer taken for what cancelled requests would have made of them.
    fn forget_cancelled(&mut self) {
        if !self.journal.is_empty() {
            // The record of what completed may be that of a later request by now.
            self.settle_changes();
            // SAFETY: it lives as long as this value; beside it, only the journal is touched.
            let records = unsafe { self.records.as_ref() };
            self.journal.undo_where(|sequence| records.info(sequence as u16).cancelled());
        }
    }
}

/// Turns a WQE into a NOP of the same size, with the same fence and completion bits: only the
/// opcode and its modifier change.
///
/// # Safety
/// `wqe` is a WQE in a ring, and the device does not read it meanwhile.
unsafe fn rewrite_as_nop(wqe: NonNull<u8>) {
    const MODIFIER: usize = 0;
    const OPCODE: usize = 3;
    // SAFETY: both bytes are of the control segment.
    unsafe {
        wqe.byte_add(MODIFIER).write_volatile(0);
        wqe.byte_add(OPCODE).write_volatile(Opcode::Nop as u8);
    }
}
