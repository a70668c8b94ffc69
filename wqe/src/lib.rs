//! Send and receive rings, typed builders, per-request records and the NOP scan.
//!
//! A queue is in two halves. The *owner* ([`SendQueue`], [`ReceiveQueue`], [`SharedReceiveQueue`])
//! writes WQEs and doorbells, through `&mut`. The *shared* half ([`SendRecords`],
//! [`ReceiveRecords`], [`SharedReceiveRecords`]) remembers what was posted, and is where whoever
//! polls the completion queue, maybe on another thread, learns which request a completion is about.
//! Two counters stand between them, as in a single-producer single-consumer queue: the owner
//! publishes `committed` before it rings the doorbell, the poller publishes `retired` once it has
//! read a record.
//!
//! The crate works on memory that it is given, makes no system call and allocates nothing after a
//! queue is made.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod batch;
mod build;
mod cancel;
mod change;
mod data;
mod error;
mod gate;
mod list;
mod mkey;
pub mod operation;
mod post;
mod raw;
mod receive;
mod records;
mod room;
mod segment;
mod send;
mod sge;
mod shared_receive;
mod sign;
mod sync;
pub mod tag_matching;
pub mod transport;
mod window;

pub use batch::{Addressed, Batch, NeedsAddress, NeedsData, NeedsSrqn, Request, Wr};
pub use cancel::{Cancelled, DrainPoint, Mode, NotPending, PendingRequest, RequestHandle};
pub use change::{Change, Changed};
pub use error::{BatchError, ListError, MkeyRefusal, PostError, Unprovided};
pub use gate::{Gate, QueueState};
pub use list::{Data, ListTransport, Operation, SendWr};
pub use mkey::{
    BsfUpdate, ConfigureMkey, ConfiguresMkeys, Finished, Interleaved, MAX_MKEY_ENTRIES, MkeyAccess,
    MkeyLayout, MkeyRequest, MkeyUpdate, PsvUpdate, SigningUpdate, SizedLayout, mkey_update_blocks,
};
pub use operation::{SendFlags, SendOps};
pub use raw::{RawWqe, RawWqeError};
pub use receive::{ReceiveLayout, ReceiveQueue, ReceiveRecords, ReceiveWr};
pub use records::{Completed, RequestInfo, Retired, SendRecords};
pub use segment::{Datagram as UdAddress, MaskedOperands, RemoteSrq, Segment};
pub use send::{SendLayout, SendParts, SendQueue};
pub use sge::{RemoteAddress, Sge};
pub use shared_receive::{SharedReceiveQueue, SharedReceiveRecords};
pub use transport::{Rc, Transport, Uc, Ud, XrcSend};
pub use window::{BindParts, Binding, WindowType};
