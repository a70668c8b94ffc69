//! Tag matching: the tag list of a shared receive queue, and the operations on it.
//!
//! The device keeps a list of tags and matches messages with them. [`TagList`] is the owner half:
//! it posts operations to the send queue of a command queue pair. [`TagRecords`] is the shared
//! half: the poller of the completion queue looks up there what a CQE completes, and frees
//! the places of tags that are done.

mod list;
mod operation;
mod records;

pub use list::TagList;
pub use operation::{OpsFlags, OpsWr, TagAdd, TagHandle, TagOperation};
pub use records::{TagCompletion, TagRecords};
