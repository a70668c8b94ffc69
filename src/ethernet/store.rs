//! The buffers of a queue, and their state during a burst.

use super::Counters;
use super::buffers::{Buffers, GiveBack, Slot};
use super::outgoing::Outgoing;
use std::fmt;
use std::sync::Arc;

/// The part of a queue that its packets use.
pub struct Store<M> {
    pub(super) buffers: Arc<Buffers>,
    /// The owners of the buffers.
    pub(super) mode: M,
    pub(super) outgoing: Outgoing,
    pub(super) counters: Counters,
}

impl<M> fmt::Debug for Store<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("buffers", &self.buffers).finish_non_exhaustive()
    }
}

impl<M: GiveBack> Store<M> {
    /// Takes back the buffers of dropped frames.
    pub(super) fn take_returned(&self) {
        self.buffers.take_returned(|slot| self.mode.give_back(slot));
    }

    /// Drops the packets that are to be sent.
    pub(super) fn drop_outgoing(&self) {
        self.outgoing.take().for_each(|(slot, _)| self.not_sent(slot));
    }

    /// Takes back the buffer of a packet that is not sent.
    #[cold]
    #[inline(never)]
    pub(super) fn not_sent(&self, slot: Slot) {
        self.counters.not_sent.add(1);
        self.mode.give_back(slot);
    }
}
