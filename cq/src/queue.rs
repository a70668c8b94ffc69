//! What a completion queue knows of the queues whose requests complete there.

use crate::what::What;
use mlx5_prm::cqe::TagEvent;
use mlx5_prm::wqe::TagOperation;

/// What a queue answers when a completion names one of its requests.
pub trait Queue {
    /// The send request that starts at block `counter` completed, and with it all before it;
    /// `failed` if with an error.
    fn retire_send(&self, counter: u16, failed: bool) -> Option<Sent>;
    /// The same, but `None` unless it is the next one.
    fn retire_next_send(&self, counter: u16) -> Option<SentRequest>;
    /// The receive request `counter` completed; its identifier.
    fn retire_receive(&self, counter: u16) -> Option<u64>;
    /// The same, but it may be `None` unless the request is the next one.
    #[inline(always)]
    fn retire_next_receive(&self, counter: u16) -> Option<u64> {
        self.retire_receive(counter)
    }
    /// Something that the others know nothing of came about, of a queue with a list of tags.
    fn retire_tagged(&self, entry: Tagged) -> Option<TaggedOutcome> {
        let _ = entry;
        None
    }
}

/// What an entry tells a queue that has a list of tags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tagged {
    /// Something of tag matching.
    Event {
        /// What happened.
        event: TagEvent,
        /// The place on the list that it happened to.
        place: u16,
        /// The receive request, of a message that matched nothing.
        counter: u16,
        /// The operation succeeded.
        success: bool,
        /// Unexpected messages that the device counted, as of the operation.
        phase: u16,
    },
    /// This receive request completed otherwise, or failed.
    Receive(u16),
    /// The operation at this block failed.
    OperationError(u16),
}

/// What such a queue makes of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TaggedOutcome {
    /// A completion of what the entry tells of.
    Completion {
        /// The user's identifier.
        wr_id: u64,
        /// The device needs to be told how many unexpected messages were handled.
        needs_sync: bool,
    },
    /// The failure of an operation.
    OperationError {
        /// The user's identifier.
        wr_id: u64,
        /// What it was.
        operation: TagOperation,
    },
    /// Nobody asked for it.
    Unasked,
}

/// What the completion of a send was about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// This request.
    Request(SentRequest),
    /// A further part of a request of which was told already.
    Again,
}

/// A send request that completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SentRequest {
    /// The user's identifier.
    pub wr_id: u64,
    /// Number of the operation that was posted, with [`SentRequest::CANCELLED`] set if the request
    /// was cancelled before the device came to it.
    pub opcode: u8,
}

impl SentRequest {
    /// Marks the opcode of a cancelled request.
    pub const CANCELLED: u8 = What::CANCELLED as u8;
}

/// What an entry was found to be.
pub(crate) enum Found {
    /// A completion: identifier and kind.
    Completion(u64, What),
    /// More of one that was told already.
    Again,
}
