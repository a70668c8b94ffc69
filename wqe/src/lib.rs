//! Send and receive rings, typed request builders, request records and cancelling by NOP.
//!
//! Each queue has two halves. The *owner half* ([`SendQueue`], [`ReceiveQueue`],
//! [`SharedReceiveQueue`]) writes WQEs and rings doorbells, through `&mut`. The *shared half*
//! ([`SendRecords`], [`ReceiveRecords`], [`SharedReceiveRecords`]) keeps the records of posted
//! requests. The poller of the completion queue, possibly on another thread, looks up there which
//! request a completion is for. The halves share two counters, as in a single-producer
//! single-consumer queue: the owner publishes `committed` before it rings the doorbell, and the
//! poller publishes `retired` after it has read a record.
//!
//! The crate works on memory that it is given. It makes no system call, except that a thread that
//! waits for a lock may yield its core. Once a queue exists, posting allocates only when a request
//! changes a key, and polling only for the list of receives whose completion is not reported. A
//! cancel of one request allocates nothing; a cancel of several, or of a set of identifiers, does.

#![deny(missing_debug_implementations)]
#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod gate;
mod keys;
mod receive;
mod request;
mod send;
mod sync;
pub mod tag_matching;

pub use gate::{Gate, QueueState};
pub use keys::configure::{ConfigureMkey, ConfiguresMkeys, Finished, MkeyRequest};
pub use keys::umr::{MAX_MKEY_ENTRIES, mkey_update_blocks};
pub use keys::update::{
    BsfUpdate, Interleaved, MkeyAccess, MkeyLayout, MkeyUpdate, PsvUpdate, SigningUpdate,
    SizedLayout,
};
pub use receive::post::ReceiveWr;
pub use receive::queue::{ReceiveLayout, ReceiveQueue};
pub use receive::records::ReceiveRecords;
pub use receive::shared::{Faulted, Repost, SharedReceiveQueue, SharedReceiveRecords};
pub use receive::striding::{LeftStrides, StridingRecords};
pub use request::batch_error::{BatchError, ListError};
pub use request::data::InlineSges;
pub use request::error::{MkeyRefusal, PostError, UnsupportedOperation};
pub use request::ethernet::{Ethernet, InlineHeader, Segmented, Tagged, VlanTag};
pub use request::flags::SendFlags;
pub use request::operation::SendOps;
pub use request::raw::{RawWqe, RawWqeError};
pub use request::remote::{RemoteAddress, RemoteError, RemoteSlice};
pub use request::segment::{Datagram as UdAddress, MaskedOperands, RemoteSrq, Segment};
pub use request::sge::Sge;
pub use request::transport::{
    NeedsAddress, NeedsData, NeedsSrqn, RawPacket, Rc, Transport, Uc, Ud, XrcSend,
};
pub use request::window::{BindParts, Binding, WindowType};
pub use request::{operation, transport};
pub use send::any::AnyBatch;
pub use send::batch::Batch;
pub use send::begun::Begun;
pub use send::builder::{Request, Wr};
pub use send::cancel::{Cancelled, DrainPoint, Mode, NotPending, PendingRequest, RequestHandle};
pub use send::journal::{Change, ChangeObserver, KeptObserver};
pub use send::layout::SendLayout;
pub use send::list::{Data, ListTransport, Operation, SendWr};
pub use send::queue::{Position, SendParts, SendQueue};
pub use send::records::{Completed, RequestInfo, Retired, SendRecords, SpareRecords};
