//! A userspace driver for NVIDIA/Mellanox ConnectX NICs, in Rust alone.

mod address;
mod ah;
mod buffer;
mod channel;
mod context;
mod device;
mod error;
mod event;
mod mr;
mod pd;
mod query;
mod records;
mod uar;

// Queues.
mod cancel;
mod cq;
mod qp;
mod srq;
mod user_index;

#[cfg(test)]
mod testing;

pub use address::{AhAttr, Gid, GlobalRoute};
pub use ah::{AddressHandle, Received};
pub use channel::CompletionChannel;
pub use context::{Context, Devx};
pub use device::{Device, Guid, OpenOptions, devices, devices_on, open};
pub use error::{Error, ErrorKind, FirmwareStatus};
pub use event::{AsyncEvent, AsyncEvents, CqId, QpId, SrqId};
pub use mr::{Access, MemoryBuilder, MemoryRegion};
pub use pd::ProtectionDomain;
pub use query::{
    CompletionCaps, DeviceAttr, GidEntry, LinkSpeed, OnDemandCaps, PhysicalState, PortAttr,
    QueueLimits, mtu_bytes,
};
pub use uar::{DoorbellChoice, DoorbellMode};

// Queues.
pub use cancel::{CancelError, Drained};
pub use cq::{CompletionQueue, CompletionQueueBuilder, Completions, CqeSize, PollError};
pub use qp::*;
pub use srq::{SharedReceiveQueue, SharedReceiveQueueBuilder, SrqInfo};

pub use mlx5_cq::{
    CompletionError, CompletionOpcode, Corruption, ErrorKind as CompletionErrorKind,
    OwnedCompletion, WorkCompletion,
};
pub use mlx5_prm::cqe::Syndrome;
pub use mlx5_prm::wqe::{AddressVector, Opcode};
pub use mlx5_prm::cmd::CommandStatus;
pub use mlx5_uapi::{
    Errno, HugePages, Kernel, LinuxKernel, OLDEST_KERNEL,
    mlx5::CqeCompFormat,
    sysfs::{NodeType, PciFunction},
    verbs::{AccessFlags, AtomicCap, DeviceCapFlags, GidType, LinkLayer, Mtu, PortState},
};
pub use mlx5_wqe::{
    Batch, BatchError, Cancelled, Data, ListError, ListTransport, Mode as CancelMode, NeedsAddress,
    NeedsData, NotPending, Operation, PendingRequest, PostError, QueueState, ReceiveWr,
    RemoteAddress, Request, RequestInfo, SendFlags, SendWr, Sge, UdAddress, Wr, operation,
    transport,
};
