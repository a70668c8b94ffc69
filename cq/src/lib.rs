//! Completion queue polling and arming.
//!
//! [`Ring`] is the owner half of a completion queue. It reads the CQEs that the device writes,
//! finds the queue of a CQE by its user index in a [`UserIndexTable`], asks that queue for the
//! request, and tells the device what was consumed. [`RingState`] is the half that other threads
//! may read. Code that destroys or resets a queue asks it how far the poller must come until no CQE
//! can name the queue any more, and keeps the queue in [`Deferred`] until then.
//!
//! The crate knows queues only by the trait [`Queue`]. It works on memory that it is given, makes
//! no system call, and does not trust what it reads: a CQE that no correct device writes makes the
//! ring corrupt, and it stays so.

#![deny(missing_debug_implementations)]
#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod attention;
mod completion;
mod corruption;
mod deferred;
mod kind;
mod queue;
mod ring;
mod run;
mod state;
mod sync;
mod table;
mod tag_matching;

pub use attention::Attention;
pub use completion::{CompletionError, ErrorKind, InlineData, OwnedCompletion, WorkCompletion};
pub use corruption::Corruption;
pub use deferred::Deferred;
pub use kind::CompletionOpcode;
pub use queue::{Queue, Sent, SentRequest, Tagged, TaggedOutcome};
pub use ring::{Next, Ring, RingParts, SignatureErrorHook, SkippedReceive};
pub use state::{RingBuffer, RingState};
pub use table::{Lookup, RingId, Side, UserIndexTable};
pub use tag_matching::TmInfo;
