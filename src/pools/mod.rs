//! The pools from which queues are made: memory of rings, doorbell records, doorbell registers,
//! user indexes; and the keys that pollers look up.

mod arena;
mod buffer;
mod map;
mod raw;
mod records;
mod signed_keys;
mod uar;
mod user_index;

pub(crate) use buffer::{Buffers, MemorySource, QueueBuffer, allocate, memory_options};
pub use buffer::{QueueAllocator, RecordMemory};
pub use raw::{RawRegister, RawRing};
pub(crate) use records::{RecordSlot, Records};
pub(crate) use signed_keys::{Signed, SignedKeys};
pub(crate) use uar::{CqUar, SendUar, Uars};
pub use uar::{DoorbellChoice, DoorbellMode, ThreadDomain};
pub(crate) use user_index::{QueuePairRecords, ReceiveSide, UserIndex, UserIndexes};
