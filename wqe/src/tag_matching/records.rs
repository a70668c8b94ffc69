//! The state of a tag list that poller and owner share.

use crate::receive::shared::SharedReceiveRecords;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use mlx5_doorbell::{Lock, LockGuard};
use mlx5_prm::cqe::TagEvent;
use mlx5_prm::wqe::TagOperation as Operation;

/// The maximum number of unexpected messages that were polled but not reported to the device.
/// Beyond it, the user must report them (`MLX5_TM_MAX_SYNC_DIFF`).
const MAX_SYNC_DIFF: u16 = 0x3fff;

/// The meaning of a CQE about a tag list for the poller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TagCompletion {
    /// A completion for the user.
    Completion {
        /// Identifier of the operation, the tag, or the receive request.
        wr_id: u64,
        /// The user must report to the device how many unexpected messages were handled.
        needs_sync: bool,
    },
    /// The completion of an operation for which the user requested none.
    Unasked,
}

/// The shared half of a tag list. All of the list completes on one completion queue, which one
/// thread at a time polls. Owner and poller take turns by a lock, as in C's libmlx5.
#[derive(Debug)]
pub struct TagRecords {
    state: Lock<TagState>,
    receives: Arc<SharedReceiveRecords>,
    /// The maximum number of tags on the list. Outside the lock, which another thread may have held
    /// when this process was forked.
    max_tags: u32,
}

/// The tags and the outstanding operations of a list.
pub(super) struct TagState {
    /// One more than there are tags, because an operation that adds a tag names the place of the
    /// next tag.
    places: Box<[Place]>,
    /// Free places, in the order in which they became free.
    free: VecDeque<u16>,
    /// Operations that were posted, and of which neither the own completion nor a later one was
    /// polled.
    pub(super) operations: VecDeque<Posted>,
    /// The number of the first outstanding operation, free-running.
    retired: u16,
    /// Unexpected messages polled so far, free-running.
    unexpected: u16,
    /// The number of handled unexpected messages last reported to the device.
    pub(super) synchronised: u16,
}

/// A place on the list. It is free if neither a message nor a removal is outstanding.
#[derive(Clone, Default)]
struct Place {
    recv_wr_id: u64,
    /// Counts the uses of the place; a part of a tag's handle.
    generation: u32,
    /// The last completion of the tag's message is outstanding.
    listed: bool,
    /// The first of two completions of the message was polled.
    matched: bool,
    /// The completion of a removal is outstanding.
    removing: bool,
}

impl Place {
    const fn is_used(&self) -> bool {
        self.listed || self.removing
    }
}

/// A posted operation.
#[derive(Clone, Copy)]
pub(super) struct Posted {
    pub(super) wr_id: u64,
    pub(super) operation: PostedOperation,
    /// The number of handled unexpected messages reported to the device, up to this operation.
    pub(super) phase: u16,
    /// The device was asked for a completion.
    pub(super) completes: bool,
    /// The user asked for a completion.
    pub(super) signaled: bool,
}

/// The action of a posted operation, and the place.
#[derive(Clone, Copy)]
pub(super) enum PostedOperation {
    Append(u16),
    Remove(u16),
    Nop,
}

impl PostedOperation {
    pub(super) const fn kind(self) -> Operation {
        match self {
            Self::Append(_) => Operation::Append,
            Self::Remove(_) => Operation::Remove,
            Self::Nop => Operation::Nop,
        }
    }
}

impl TagRecords {
    /// The maximum number of tags. With the place that is always free they are 2¹⁵.
    pub const MAX_TAGS: u32 = (1 << 15) - 1;

    /// Creates the records of a list of `tags` tags and a ring of `operations` operations.
    /// `receives` are the records of the receive requests for messages that match no tag.
    ///
    /// # Panics
    /// If `tags` is zero or exceeds [`TagRecords::MAX_TAGS`], or `operations` is not a power of two
    /// up to 2¹⁵.
    pub fn new(tags: u32, operations: u32, receives: Arc<SharedReceiveRecords>) -> Self {
        assert!((1..=Self::MAX_TAGS).contains(&tags));
        assert!(operations.is_power_of_two() && operations <= 1 << 15);
        let state = TagState {
            places: alloc::vec![Place::default(); tags as usize + 1].into(),
            free: (0..=tags as u16).collect(),
            operations: VecDeque::with_capacity(operations as usize),
            retired: 0,
            unexpected: 0,
            synchronised: 0,
        };
        Self { state: Lock::new(state), receives, max_tags: tags }
    }

    /// The maximum number of tags on the list.
    pub fn max_tags(&self) -> u32 {
        self.max_tags
    }

    pub(super) fn state(&self) -> LockGuard<'_, TagState> {
        self.state.lock()
    }

    /// Poller: handles a CQE about `event` at `place`. `success` and `phase` are the CQE's fields
    /// about an operation. `None` if no correct device writes this CQE.
    pub fn complete(
        &self,
        event: TagEvent,
        place: u16,
        counter: u16,
        success: bool,
        phase: u16,
    ) -> Option<TagCompletion> {
        let mut state = self.state();
        let mut needs_sync = false;
        let wr_id = match event {
            TagEvent::Append => return state.operated(Operation::Append, success, phase),
            TagEvent::Remove => return state.operated(Operation::Remove, success, phase),
            TagEvent::Noop => return state.operated(Operation::Nop, success, phase),
            TagEvent::Consumed | TagEvent::ConsumedSwRendezvous => state.matched(place)?,
            TagEvent::Expected => state.finished(place, Some(true))?,
            TagEvent::ConsumedMessage | TagEvent::ConsumedMessageSwRendezvous => {
                state.finished(place, Some(false))?
            }
            TagEvent::MessageCompletionCanceled => state.finished(place, None)?,
            TagEvent::NoTag => self.receives.retire(counter)?,
            TagEvent::Unexpected => {
                let wr_id = self.receives.retire(counter)?;
                state.unexpected = state.unexpected.wrapping_add(1);
                needs_sync = state.unexpected.wrapping_sub(state.synchronised) > MAX_SYNC_DIFF;
                wr_id
            }
        };
        Some(TagCompletion::Completion { wr_id, needs_sync })
    }

    /// Poller: retires a receive request whose completion is not about tags, or is an error.
    pub fn retire_receive(&self, counter: u16) -> Option<u64> {
        self.receives.retire(counter)
    }

    /// Poller: handles the failure of the operation at block `counter`. Returns its identifier and
    /// its kind.
    pub fn fail(&self, counter: u16) -> Option<(u64, Operation)> {
        let mut state = self.state();
        let at = usize::from(counter.wrapping_sub(state.retired));
        let failed = *state.operations.get(at)?;
        // Operations complete in order: if one fails, each earlier one that has a completion has
        // reported it.
        if state.operations.iter().take(at).any(|posted| posted.completes) {
            return None;
        }
        match failed.operation {
            // The tag was never on the list.
            PostedOperation::Append(place) => state.end(place, |tag| tag.listed = false),
            PostedOperation::Remove(place) => state.end(place, |tag| tag.removing = false),
            PostedOperation::Nop => {}
        }
        state.retire(at);
        Some((failed.wr_id, failed.operation.kind()))
    }
}

impl TagState {
    /// Owner: takes a free place for a tag. Returns it, its generation, and the place of the next
    /// tag. `None` if the list is full.
    pub(super) fn list(&mut self, recv_wr_id: u64) -> Option<(u16, u32, u16)> {
        let &next = self.free.get(1)?;
        let place = self.free.pop_front()?;
        let generation = self.place(place)?.generation;
        let tag = Place { recv_wr_id, generation, listed: true, matched: false, removing: false };
        *self.place(place)? = tag;
        Some((place, generation, next))
    }

    /// Owner: marks a tag as being removed. Returns false if a completion has already shown that
    /// the tag is matched or removed, or if a removal is already outstanding.
    pub(super) fn begin_removal(&mut self, place: u16, generation: u32) -> bool {
        let Some(place) = self.place(place) else { return false };
        let there = place.generation == generation && place.listed;
        let begins = there && !place.matched && !place.removing;
        place.removing |= begins;
        begins
    }

    fn place(&mut self, place: u16) -> Option<&mut Place> {
        self.places.get_mut(usize::from(place))
    }

    /// Handles the completion of the next operation that reports one. Completions arrive in posting
    /// order and name no operation.
    fn operated(&mut self, kind: Operation, success: bool, phase: u16) -> Option<TagCompletion> {
        let at = self.operations.iter().position(|posted| posted.completes)?;
        let posted = self.operations[at];
        if posted.operation.kind() != kind {
            return None;
        }
        if let PostedOperation::Remove(place) = posted.operation {
            let tag = self.place(place)?;
            // No correct device reports the removal of a tag that is matched or not on the list.
            if success && (!tag.listed || tag.matched) {
                return None;
            }
            self.end(place, |tag| {
                tag.removing = false;
                tag.listed &= !success;
            });
        }
        self.retire(at);
        let needs_sync = phase != posted.phase;
        Some(match posted.signaled {
            false => TagCompletion::Unasked,
            true => TagCompletion::Completion { wr_id: posted.wr_id, needs_sync },
        })
    }

    /// Retires the outstanding operations up to the one at `at`.
    fn retire(&mut self, at: usize) {
        self.operations.drain(..=at);
        self.retired = self.retired.wrapping_add(at as u16 + 1);
    }

    /// Changes a place, and frees it if nothing is outstanding there any more.
    fn end(&mut self, place: u16, change: impl FnOnce(&mut Place)) {
        let Some(tag) = self.place(place) else { return };
        let was_used = tag.is_used();
        change(tag);
        if was_used && !tag.is_used() {
            tag.generation = tag.generation.wrapping_add(1);
            self.free.push_back(place);
        }
    }

    /// Handles the first of two completions of a tag's message.
    fn matched(&mut self, place: u16) -> Option<u64> {
        let tag = self.place(place).filter(|tag| tag.listed && !tag.matched)?;
        tag.matched = true;
        Some(tag.recv_wr_id)
    }

    /// Handles the last completion of a tag's message. `second` is whether it is the second one, if
    /// that is known.
    fn finished(&mut self, place: u16, second: Option<bool>) -> Option<u64> {
        let tag = self.place(place).filter(|tag| tag.listed)?;
        if second.is_some_and(|second| second != tag.matched) {
            return None;
        }
        let recv_wr_id = tag.recv_wr_id;
        self.end(place, |tag| tag.listed = false);
        Some(recv_wr_id)
    }
}
