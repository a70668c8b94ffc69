//! Receive-side scaling: work queues, tables of them, and queue pairs that spread packets over a
//! table by a hash.

mod hash;
mod table;
mod work_queue;

pub(crate) use hash::HashInner;
pub use hash::{HashKey, HashQueuePair, HashQueuePairBuilder};
pub use table::IndirectionTable;
pub use work_queue::{RawWorkQueue, WorkQueue, WorkQueueBuilder, WorkQueueTarget};
