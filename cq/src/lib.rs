//! Completion queue polling and arming.
//!
//! [`Ring`] is the owner half of a completion queue. It reads the CQEs that the device writes,
//! finds the queue of a CQE by its user index in a [`UserIndexTable`], asks that queue for the
//! request, and publishes the consumer index to the device. [`RingState`] is the half that other
//! threads may read. It returns the consumer index that the poller must reach before no CQE can
//! name a queue any more; code that destroys or resets the queue keeps it in [`Deferred`] until
//! then.
//!
//! The crate knows queues only through the trait [`Queue`]. It works on memory that the caller
//! provides, makes no system call, and does not trust what it reads: a CQE that no correct device
//! writes makes the ring corrupt, and the ring stays corrupt.

#![deny(missing_debug_implementations)]
#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod attention;
mod completion;
mod corruption;
mod deferred;
mod kind;
mod packet;
mod queue;
mod ring;
mod run;
mod state;
mod sync;
mod table;
mod tag_matching;
mod user_tag;

pub use attention::Attention;
pub use completion::{CompletionError, ErrorKind, InlineData, OwnedCompletion, WorkCompletion};
pub use corruption::Corruption;
pub use deferred::Deferred;
pub use kind::CompletionOpcode;
pub use packet::{
    HashedHeaders, HashedTransport, NetworkHeader, PacketHeaders, Strides, TransportHeader,
};
pub use queue::{
    CqeStrides, OldestStrides, Queue, RetiredStrides, Sent, SentRequest, StridesOutcome, Tagged,
    TaggedOutcome,
};
pub use ring::{
    FoundStrides, Next, Poll, Ring, RingParts, SignatureErrorHook, SkippedReceive, StrideNotice,
    StridePoll,
};
pub use state::{RingBuffer, RingState};
pub use table::{Lookup, RingId, Side, UserIndexTable};
pub use tag_matching::TmInfo;
pub use user_tag::UserTag;
