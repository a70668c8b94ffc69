//! The state of a tag list that poller and owner share.

use crate::receive::shared::SharedReceiveRecords;
use crate::sync::{
    AtomicU16, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;
use crossbeam_utils::CachePadded;
use mlx5_prm::cqe::TagEvent;
use mlx5_prm::wqe::TagOperation as Operation;

/// The maximum number of unexpected messages that were polled but not reported to the device.
/// Beyond it, the user must report them (`MLX5_TM_MAX_SYNC_DIFF`).
const MAX_SYNC_DIFF: u16 = 0x3fff;

/// The state of a place on the list, in one word that owner and poller change.
///
/// The generation counts the uses of the place and is part of a tag's handle. A place becomes free
/// when no completion of the message or of a removal is outstanding. Only the poller detects
/// that, so a place is returned once.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Use(u64);

impl Use {
    /// The last completion of the tag's message is outstanding.
    const LISTED: u64 = 1 << 0;
    /// The first of two completions of the message was polled.
    const MATCHED: u64 = 1 << 1;
    /// The completion of a removal is outstanding.
    const DELETING: u64 = 1 << 2;
    const GENERATION_SHIFT: u32 = 32;

    const fn is(self, flags: u64) -> bool {
        self.0 & flags == flags
    }

    const fn generation(self) -> u32 {
        (self.0 >> Self::GENERATION_SHIFT) as u32
    }

    /// The state when a free place is taken.
    const fn listed(generation: u32) -> Self {
        Self((generation as u64) << Self::GENERATION_SHIFT | Self::LISTED)
    }

    const fn with(self, flags: u64) -> Self {
        Self(self.0 | flags)
    }

    /// Clears `flags`. A place with nothing outstanding becomes free, with the next generation.
    const fn without(self, flags: u64) -> Self {
        let left = self.0 & !flags;
        if left & (Self::LISTED | Self::DELETING) != 0 {
            Self(left)
        } else {
            Self((self.generation().wrapping_add(1) as u64) << Self::GENERATION_SHIFT)
        }
    }

    const fn is_free(self) -> bool {
        self.0 & (Self::LISTED | Self::DELETING) == 0
    }
}

struct Place {
    state: AtomicU64,
    recv_wr_id: AtomicU64,
}

/// A posted operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Posted {
    pub(super) wr_id: u64,
    pub(super) operation: Operation,
    /// Its place; zero if it has none.
    pub(super) place: u16,
    /// The number of handled unexpected messages reported to the device, up to this operation.
    pub(super) phase: u16,
    /// The device was asked for a completion.
    pub(super) completes: bool,
    /// The user asked for a completion.
    pub(super) signaled: bool,
}

impl Posted {
    const COMPLETES: u64 = 1 << 2;
    const SIGNALED: u64 = 1 << 3;
    const PLACE_SHIFT: u32 = 16;
    const PHASE_SHIFT: u32 = 32;

    fn info(self) -> u64 {
        self.operation as u64
            | if self.completes { Self::COMPLETES } else { 0 }
            | if self.signaled { Self::SIGNALED } else { 0 }
            | u64::from(self.place) << Self::PLACE_SHIFT
            | u64::from(self.phase) << Self::PHASE_SHIFT
    }

    fn unpack(wr_id: u64, info: u64) -> Self {
        Self {
            wr_id,
            operation: match info & 3 {
                1 => Operation::Append,
                2 => Operation::Remove,
                _ => Operation::Nop,
            },
            place: (info >> Self::PLACE_SHIFT) as u16,
            phase: (info >> Self::PHASE_SHIFT) as u16,
            completes: info & Self::COMPLETES != 0,
            signaled: info & Self::SIGNALED != 0,
        }
    }
}

struct OperationRecord {
    wr_id: AtomicU64,
    info: AtomicU64,
}

/// What a CQE about a tag list means for the poller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TagCompletion {
    /// A completion for the user.
    Completion {
        /// Identifier of the operation, the tag, or the receive request.
        wr_id: u64,
        /// The user must report to the device how many unexpected messages were handled.
        needs_sync: bool,
    },
    /// The completion of an operation for which the user asked for none.
    Unasked,
}

/// The shared half of a tag list: the places and the outstanding operations. One thread at a time
/// polls the completion queue on which all of it completes.
pub struct TagRecords {
    places: Box<[Place]>,
    /// Free places, in the order in which they were returned.
    free: Box<[AtomicU16]>,
    /// Number of places returned so far, including those free at the start; free-running.
    given_back: CachePadded<AtomicU16>,
    operations: Box<[OperationRecord]>,
    /// Operations posted so far; free-running.
    committed: CachePadded<AtomicU16>,
    /// Operations for which a completion, their own or a later one, was polled; free-running.
    retired: CachePadded<AtomicU16>,
    /// Unexpected messages polled so far; free-running.
    unexpected: AtomicU16,
    /// The number of handled unexpected messages last reported to the device.
    synchronised: AtomicU16,
    receives: Arc<SharedReceiveRecords>,
}

impl fmt::Debug for TagRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TagRecords")
            .field("max_tags", &(self.places.len() - 1))
            .field("operations", &self.operations.len())
            .field("receives", &self.receives)
            .finish_non_exhaustive()
    }
}

impl TagRecords {
    /// The maximum number of tags: the counters have 16 bits, and a full list must differ from an
    /// empty one.
    pub const MAX_TAGS: u32 = (1 << 15) - 1;

    /// Creates the records of a list of `tags` tags and a ring of `operations` operations.
    /// `receives` has the receive requests for messages that match no tag.
    ///
    /// # Panics
    /// If `tags` is zero or exceeds [`TagRecords::MAX_TAGS`], or `operations` is not a power of two
    /// up to 2¹⁵.
    pub fn new(tags: u32, operations: u32, receives: Arc<SharedReceiveRecords>) -> Self {
        assert!((1..=Self::MAX_TAGS).contains(&tags));
        assert!(operations.is_power_of_two() && operations <= 1 << 15);
        // An operation that adds a tag names the place of the next one, so one place is always
        // free.
        let places = tags + 1;
        let free = places.next_power_of_two();
        Self {
            places: (0..places)
                .map(|_| Place { state: AtomicU64::new(0), recv_wr_id: AtomicU64::new(0) })
                .collect(),
            free: (0..free).map(|place| AtomicU16::new(place as u16)).collect(),
            given_back: CachePadded::new(AtomicU16::new(places as u16)),
            operations: (0..operations)
                .map(|_| OperationRecord { wr_id: AtomicU64::new(0), info: AtomicU64::new(0) })
                .collect(),
            committed: CachePadded::new(AtomicU16::new(0)),
            retired: CachePadded::new(AtomicU16::new(0)),
            unexpected: AtomicU16::new(0),
            synchronised: AtomicU16::new(0),
            receives,
        }
    }

    /// The maximum number of tags on the list.
    pub fn max_tags(&self) -> u32 {
        self.places.len() as u32 - 1
    }

    // Owner side.

    /// Returns the place of the tag with number `taken` and of the one after it. `None` if the list
    /// is full.
    pub(super) fn free_places(&self, taken: u16) -> Option<(u16, u16)> {
        // The acquire pairs with the release in `release`.
        let free = self.given_back.load(Acquire).wrapping_sub(taken);
        (free >= 2).then(|| (self.free_place(taken), self.free_place(taken.wrapping_add(1))))
    }

    fn free_slot(&self, count: u16) -> &AtomicU16 {
        &self.free[usize::from(count) & (self.free.len() - 1)]
    }

    fn free_place(&self, count: u16) -> u16 {
        self.free_slot(count).load(Relaxed)
    }

    /// Takes a free place for a tag and returns its generation.
    pub(super) fn list(&self, place: u16, recv_wr_id: u64) -> u32 {
        let place = &self.places[usize::from(place)];
        let generation = Use(place.state.load(Relaxed)).generation();
        place.recv_wr_id.store(recv_wr_id, Relaxed);
        place.state.store(Use::listed(generation).0, Release);
        generation
    }

    /// Marks a tag as being removed. Returns false if a completion has already shown that it is
    /// matched or removed, or if it is being removed already.
    #[allow(deprecated, reason = "the new name, `try_update`, is younger than the oldest compiler")]
    pub(super) fn begin_removal(&self, place: u16, generation: u32) -> bool {
        let Some(place) = self.places.get(usize::from(place)) else { return false };
        place
            .state
            .fetch_update(AcqRel, Acquire, |state| {
                let state = Use(state);
                let there = state.generation() == generation
                    && state.is(Use::LISTED)
                    && state.0 & (Use::MATCHED | Use::DELETING) == 0;
                there.then(|| state.with(Use::DELETING).0)
            })
            .is_ok()
    }

    /// Returns how many more operations fit, if `posted` operations were posted so far.
    pub(super) fn room(&self, posted: u16) -> u32 {
        let outstanding = posted.wrapping_sub(self.retired.load(Acquire));
        (self.operations.len() as u32).saturating_sub(outstanding.into())
    }

    fn operation(&self, sequence: u16) -> &OperationRecord {
        &self.operations[usize::from(sequence) & (self.operations.len() - 1)]
    }

    /// Writes the record of operation `sequence`, which is not committed yet.
    pub(super) fn stage(&self, sequence: u16, posted: Posted) {
        let record = self.operation(sequence);
        record.wr_id.store(posted.wr_id, Relaxed);
        record.info.store(posted.info(), Relaxed);
    }

    /// Makes the operations before `sequence` visible to the poller. Must precede the doorbell.
    pub(super) fn publish(&self, sequence: u16, synchronised: u16) {
        self.synchronised.store(synchronised, Relaxed);
        self.committed.store(sequence, Release);
    }

    // Poller side.

    /// Poller: handles a CQE about `event` at `place`. `success` and `phase` are its fields about
    /// an operation. `None` if no correct device reports it.
    pub fn complete(
        &self,
        event: TagEvent,
        place: u16,
        counter: u16,
        success: bool,
        phase: u16,
    ) -> Option<TagCompletion> {
        let completion = |wr_id| Some(TagCompletion::Completion { wr_id, needs_sync: false });
        match event {
            TagEvent::Consumed | TagEvent::ConsumedSwRendezvous => completion(self.matched(place)?),
            TagEvent::Expected => completion(self.finished(place, Some(true))?),
            TagEvent::ConsumedMessage | TagEvent::ConsumedMessageSwRendezvous => {
                completion(self.finished(place, Some(false))?)
            }
            TagEvent::MessageCompletionCanceled => completion(self.finished(place, None)?),
            TagEvent::Append => self.operated(Operation::Append, success, phase),
            TagEvent::Remove => self.operated(Operation::Remove, success, phase),
            TagEvent::Noop => self.operated(Operation::Nop, success, phase),
            TagEvent::NoTag => completion(self.receives.retire(counter)?),
            TagEvent::Unexpected => {
                let wr_id = self.receives.retire(counter)?;
                let unexpected = self.unexpected.load(Relaxed).wrapping_add(1);
                self.unexpected.store(unexpected, Relaxed);
                let behind = unexpected.wrapping_sub(self.synchronised.load(Relaxed));
                let needs_sync = behind > MAX_SYNC_DIFF;
                Some(TagCompletion::Completion { wr_id, needs_sync })
            }
        }
    }

    /// Poller: retires a receive request whose completion is not about tags, or is an error.
    pub fn retire_receive(&self, counter: u16) -> Option<u64> {
        self.receives.retire(counter)
    }

    /// Poller: handles the failure of the operation at block `counter`. Returns its identifier and
    /// its kind.
    pub fn fail(&self, counter: u16) -> Option<(u64, Operation)> {
        let retired = self.retired.load(Relaxed);
        let ahead = counter.wrapping_sub(retired);
        if ahead >= self.committed.load(Acquire).wrapping_sub(retired) {
            return None;
        }
        // If an operation fails, every earlier one that reports a completion has reported it.
        let before = (0..ahead).map(|step| self.read(retired.wrapping_add(step)));
        if before.clone().any(|posted| posted.completes) {
            return None;
        }
        let failed = self.read(counter);
        match failed.operation {
            // The tag was never on the list.
            Operation::Append => self.release(failed.place, Use::LISTED),
            Operation::Remove => self.release(failed.place, Use::DELETING),
            Operation::Nop => {}
        }
        self.retired.store(counter.wrapping_add(1), Release);
        Some((failed.wr_id, failed.operation))
    }

    fn read(&self, sequence: u16) -> Posted {
        let record = self.operation(sequence);
        Posted::unpack(record.wr_id.load(Relaxed), record.info.load(Relaxed))
    }

    /// Handles the completion of the next operation that reports one. Completions come in posting
    /// order and name no operation.
    fn operated(&self, operation: Operation, success: bool, phase: u16) -> Option<TagCompletion> {
        let mut sequence = self.retired.load(Relaxed);
        let committed = self.committed.load(Acquire);
        let posted = loop {
            if sequence == committed {
                return None;
            }
            let posted = self.read(sequence);
            sequence = sequence.wrapping_add(1);
            if posted.completes {
                break posted;
            }
        };
        if posted.operation != operation {
            return None;
        }
        if operation == Operation::Remove {
            let place = self.places.get(usize::from(posted.place))?;
            let state = Use(place.state.load(Acquire));
            // No correct device reports the removal of a tag that is matched or not on the list.
            if success && (!state.is(Use::LISTED) || state.is(Use::MATCHED)) {
                return None;
            }
            let done = if success { Use::LISTED | Use::DELETING } else { Use::DELETING };
            self.release(posted.place, done);
        }
        self.retired.store(sequence, Release);
        Some(match posted.signaled {
            false => TagCompletion::Unasked,
            true => {
                TagCompletion::Completion { wr_id: posted.wr_id, needs_sync: phase != posted.phase }
            }
        })
    }

    /// Handles the first of two completions of a tag's message.
    #[allow(deprecated, reason = "the new name, `try_update`, is younger than the oldest compiler")]
    fn matched(&self, place: u16) -> Option<u64> {
        let place = self.places.get(usize::from(place))?;
        let listed = place.state.fetch_update(AcqRel, Acquire, |state| {
            let state = Use(state);
            (state.is(Use::LISTED) && !state.is(Use::MATCHED)).then(|| state.with(Use::MATCHED).0)
        });
        listed.ok().map(|_| place.recv_wr_id.load(Relaxed))
    }

    /// Handles the last completion of a tag's message. `second` says whether it is the second one,
    /// if known.
    fn finished(&self, place: u16, second: Option<bool>) -> Option<u64> {
        let entry = self.places.get(usize::from(place))?;
        let state = Use(entry.state.load(Acquire));
        if !state.is(Use::LISTED) || second.is_some_and(|second| second != state.is(Use::MATCHED)) {
            return None;
        }
        let recv_wr_id = entry.recv_wr_id.load(Relaxed);
        self.release(place, Use::LISTED);
        Some(recv_wr_id)
    }

    /// Clears the flags `over` of a place. The place becomes free if nothing is outstanding.
    #[allow(deprecated, reason = "the new name, `try_update`, is younger than the oldest compiler")]
    fn release(&self, place: u16, over: u64) {
        let Some(entry) = self.places.get(usize::from(place)) else { return };
        let before = entry.state.fetch_update(AcqRel, Acquire, |state| {
            (!Use(state).is_free()).then(|| Use(state).without(over).0)
        });
        if before.is_ok_and(|state| Use(state).without(over).is_free()) {
            let given_back = self.given_back.load(Relaxed);
            self.free_slot(given_back).store(place, Relaxed);
            // The release orders the poller's accesses to the place before the owner's reuse of it.
            self.given_back.store(given_back.wrapping_add(1), Release);
        }
    }
}
