//! Messages that arrive for a queue with a list of tags, and rendezvous that matched.

use mlx5_prm::cqe::TagEvent;
use mlx5_prm::wqe::{RendezvousHeader, TagMatchingHeader};

use crate::engine::state::receive::Entry;
use crate::engine::state::tags::Tag;

/// A message of which packets are to come.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arriving {
    /// It goes to a receive WQE.
    Unmatched(TagEvent),
    /// It goes to the buffer of a tag, but for its first bytes.
    Matched(Matched),
    /// It was all in the first packet that mattered.
    Ignored,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Matched {
    pub(crate) place: u16,
    pub(crate) tag: Tag,
    pub(crate) header: TagMatchingHeader,
    /// Bytes of the message that the buffer does not get.
    pub(crate) skipped: u64,
    /// What its last packet completes as.
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
    /// The data is here; the sender is to be told.
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

    /// The place of its tag, unless that was told of.
    pub(crate) fn unfinished(&self) -> Option<u16> {
        (!self.fetched).then_some(self.place)
    }
}
