//! Tag matching: the list of tags of a shared receive queue, and the operations on it.
//!
//! The device holds a list of tags, and matches messages with them. [`TagList`] is the owner half:
//! it writes the operations to the send queue of a command queue pair. [`TagRecords`] is the shared
//! half, where whoever polls the completion queue learns what an entry is about, and gives back the
//! places of tags that are done.

mod list;
mod operation;
mod records;

pub use list::{TagList, TagListParts};
pub use operation::{OpsFlags, OpsWr, TagAdd, TagHandle, TagOperation};
pub use records::{TagCompletion, TagRecords};
