//! Receive WQEs in use, and the progress of an arriving message.

use mlx5_prm::wqe::{DataSegment, INLINE};

/// A scatter or gather entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) lkey: u32,
    pub(crate) address: u64,
    pub(crate) length: u64,
}

impl From<&DataSegment> for Entry {
    fn from(segment: &DataSegment) -> Self {
        let length = match segment.byte_count.get() & !INLINE {
            0 => 1 << 31,
            length => u64::from(length),
        };
        Self { lkey: segment.lkey.get(), address: segment.address.get(), length }
    }
}

/// Origin of a receive WQE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// The queue pair's own ring. The WQE stays the first of the ring until it completes.
    Own,
    /// The queue pair's own ring, whose WQEs are a linked list. The WQE stays the first of the list
    /// until it completes.
    Linked {
        /// Index of the next WQE of the list.
        next: u16,
    },
    /// A shared receive queue. The WQE is no longer in the queue.
    Shared,
}

/// A receive WQE in use.
#[derive(Debug)]
pub(crate) struct Receive {
    pub(crate) source: Source,
    pub(crate) index: u16,
    pub(crate) pd: u32,
    pub(crate) entries: Vec<Entry>,
}

impl Receive {
    pub(crate) fn capacity(&self) -> u64 {
        self.entries.iter().map(|entry| entry.length).sum()
    }
}

/// Progress of the message that arrives at a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Inbound {
    /// No message is in progress.
    Idle,
    /// Some packets of the message have arrived.
    Open,
    /// A packet of the message was lost or not accepted, so the rest is ignored (unreliable
    /// transports).
    Lost,
}
