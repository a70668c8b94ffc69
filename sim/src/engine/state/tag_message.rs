//! Messages that arrive at a queue with a tag list, and rendezvous that matched.

use mlx5_prm::cqe::TagEvent;
use mlx5_prm::wqe::{RendezvousHeader, TagMatchingHeader};

use crate::engine::state::receive::Entry;
use crate::engine::state::tags::Tag;

/// A message whose last packet has not arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arriving {
    /// It goes to a receive WQE.
    Unmatched(TagEvent),
    /// It goes to the buffer of a tag, except its first bytes.
    Matched(Matched),
    /// Its first packet held everything that matters; the rest is ignored.
    Ignored,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Matched {
    pub(crate) place: u16,
    pub(crate) tag: Tag,
    pub(crate) header: TagMatchingHeader,
    /// Bytes at the start of the message that do not go to the buffer.
    pub(crate) skipped: u64,
    /// The event in the completion of its last packet.
    pub(crate) event: TagEvent,
}

/// A rendezvous that matched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rendezvous {
    pub(crate) srqn: u32,
    pub(crate) place: u16,
    pub(crate) pd: u32,
    pub(crate) buffer: Option<Entry>,
    pub(crate) header: TagMatchingHeader,
    pub(crate) wanted: RendezvousHeader,
    /// The data has arrived; the message to the sender is still due.
    pub(crate) fetched: bool,
}

impl Rendezvous {
    pub(crate) fn new(
        srqn: u32,
        place: u16,
        pd: u32,
        buffer: Option<Entry>,
        header: TagMatchingHeader,
        wanted: RendezvousHeader,
    ) -> Self {
        Self { srqn, place, pd, buffer, header, wanted, fetched: false }
    }

    /// The place of its tag, unless its completion is reported already.
    pub(crate) fn unfinished(&self) -> Option<u16> {
        (!self.fetched).then_some(self.place)
    }
}
