//! The interface of the queues whose requests complete on a completion queue.

use crate::kind::Kind;
use crate::user_tag::{NO_TAG, UserTag};
use mlx5_prm::cqe::TagEvent;
use mlx5_prm::wqe::TagOperation;

/// A queue, from the poller's side.
pub trait Queue {
    /// Retires the send request that starts at block `counter`, and all before it. `failed`: it
    /// completed with an error.
    fn retire_send(&self, counter: u16, failed: bool) -> Option<Sent>;
    /// The fast path of [`Queue::retire_send`] for a request that succeeded. May return `None`
    /// unless it is the next request.
    fn retire_next_send(&self, counter: u16) -> Option<SentRequest>;
    /// As [`Queue::retire_next_send`], off the fast path: finds more requests.
    #[inline]
    fn retire_send_ahead(&self, counter: u16) -> Option<SentRequest> {
        self.retire_next_send(counter)
    }
    /// Retires the receive request `counter` and returns its identifier.
    fn retire_receive(&self, counter: u16) -> Option<u64>;
    /// As [`Queue::retire_receive`], but may return `None` unless it is the next request.
    #[inline]
    fn retire_next_receive(&self, counter: u16) -> Option<u64> {
        self.retire_receive(counter)
    }
    /// Whether the packets of the queue share requests: each takes some strides of one. Only
    /// [`Queue::retire_strides`] retires receives of such a queue.
    #[inline]
    fn has_strides(&self) -> bool {
        false
    }
    /// Retires strides of the oldest receive request of a queue that
    /// [has strides](Queue::has_strides), and with the last stride the request. `None` for any
    /// other queue, for another request, and for more strides than are left.
    #[inline]
    fn retire_strides(&self, entry: CqeStrides) -> Option<RetiredStrides> {
        let _ = entry;
        None
    }
    /// The oldest receive request of a queue that [has strides](Queue::has_strides). `None` if
    /// there is none, or if a packet lies after strides that no completion has taken yet.
    #[inline]
    fn oldest_strides(&self) -> Option<OldestStrides> {
        None
    }
    /// Notes that all strides of the oldest request before `until` were taken, and retires it with
    /// its last stride. For a poller that counts strides itself between two such calls.
    #[inline]
    fn take_strides(&self, until: u32) {
        let _ = until;
    }
    /// The tag that the user gave the queue. Zero for queues without one.
    #[inline]
    fn user_tag(&self) -> &UserTag {
        &NO_TAG
    }
    /// Whether a program has the memory of the queue and posts there itself, so that requests
    /// without a record complete: receives if `receives` is set, sends otherwise.
    fn is_lent(&self, receives: bool) -> bool {
        let _ = receives;
        false
    }
    /// Posts a receive request again that met a page fault. If it did, it calls `pass`, also on a
    /// panic, and returns true: the completion is not reported.
    fn repost(&self, counter: u16, pass: &mut dyn FnMut()) -> bool {
        let _ = (counter, pass);
        false
    }
    /// Handles a CQE of a queue with a tag list that the other functions do not handle.
    fn retire_tagged(&self, entry: Tagged) -> Option<TaggedOutcome> {
        let _ = entry;
        None
    }
}

/// The strides that a CQE takes of a receive request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CqeStrides {
    /// The request: its number, or its slot in the ring.
    pub request: u16,
    /// The first stride. It has a meaning only for a packet.
    pub first: u16,
    /// The byte count of the CQE, which has the number of strides.
    pub byte_count: u32,
    /// The kind of event.
    pub outcome: StridesOutcome,
}

/// The kind of event of a CQE that takes strides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StridesOutcome {
    /// A packet arrived, or strides were skipped, as the byte count says.
    Arrived,
    /// One packet failed, and the device continues in the request.
    Failed,
    /// An error after which the queue receives nothing more
    /// ([`CompletionError::stops_receives`](crate::CompletionError::stops_receives)).
    Stopped,
}

/// The result of [`Queue::retire_strides`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetiredStrides {
    /// The identifier of the request.
    pub wr_id: u64,
    /// Whether the device is done with the request.
    pub ended: bool,
}

/// A receive request that packets share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OldestStrides {
    /// Its identifier.
    pub wr_id: u64,
    /// Its number. CQEs name it by that, or by its slot in the ring, which is in the bits of
    /// `mask`.
    pub request: u16,
    /// See `request`.
    pub mask: u16,
    /// Number of its strides taken so far.
    pub taken: u32,
    /// Number of its strides.
    pub strides: u32,
}

/// The content of a CQE for a queue with a tag list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tagged {
    /// An event of tag matching.
    Event {
        /// The event.
        event: TagEvent,
        /// The index on the list.
        place: u16,
        /// The receive request, if the message matched no tag.
        counter: u16,
        /// Whether the operation succeeded.
        success: bool,
        /// The device's count of unexpected messages at the time of the operation.
        phase: u16,
    },
    /// This receive request completed without tag matching, or failed.
    Receive(u16),
    /// The operation at this block failed.
    OperationError(u16),
}

/// The result of [`Queue::retire_tagged`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TaggedOutcome {
    /// A completion for the user.
    Completion {
        /// The user's identifier.
        wr_id: u64,
        /// Whether the user must report to the device how many unexpected messages were handled.
        needs_sync: bool,
    },
    /// An operation failed.
    OperationError {
        /// The user's identifier.
        wr_id: u64,
        /// The operation.
        operation: TagOperation,
    },
    /// A completion that the user did not ask for.
    Unasked,
}

/// The result of [`Queue::retire_send`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// The request that completed.
    Request(SentRequest),
    /// A further WQE of a request whose completion was already reported.
    Duplicate,
}

/// A send request that completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SentRequest {
    /// The user's identifier.
    pub wr_id: u64,
    /// The opcode that was posted, with [`SentRequest::CANCELLED`] set if the request was cancelled
    /// before the device executed it.
    pub opcode: u8,
}

impl SentRequest {
    /// Marks the opcode of a cancelled request.
    pub const CANCELLED: u8 = Kind::CANCELLED as u8;
}

/// The result of decoding a CQE.
pub(crate) enum Found {
    /// A completion: identifier and kind.
    Completion(u64, Kind),
    /// A CQE about a completion that was already reported, or that the user did not ask for.
    Duplicate,
}
