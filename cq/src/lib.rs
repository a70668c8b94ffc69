//! Completion queue polling and arming.
//!
//! [`Ring`] is the owner half of a completion queue: it reads what the device wrote, finds the queue
//! that an entry is about by its user index in a [`UserIndexTable`], asks that queue which request
//! it was, and tells the device what was consumed. [`RingState`] is the half that others may look
//! at: whoever destroys or resets a queue finds there how far the poller must come before nothing
//! can name the queue any more, and leaves it in the [`Departures`] until then.
//!
//! The crate knows of queues only what [`Queue`] says. It works on memory that it is given, makes
//! no system call, and does not trust what it reads: an entry that no honest device writes latches
//! an error.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod attention;
mod completion;
mod corruption;
mod departures;
mod queue;
mod ring;
mod run;
mod state;
mod sync;
mod table;
mod tag_matching;
mod what;

pub use attention::Attention;
pub use completion::{CompletionError, ErrorKind, InlineData, OwnedCompletion, WorkCompletion};
pub use corruption::Corruption;
pub use departures::Departures;
pub use queue::{Queue, Sent, SentRequest, Tagged, TaggedOutcome};
pub use ring::{DepartedReceive, Next, Ring, RingParts, SignatureErrorHook};
pub use state::{Places, RingState};
pub use table::{Lookup, RingId, Side, UserIndexTable};
pub use tag_matching::TmInfo;
pub use what::CompletionOpcode;
