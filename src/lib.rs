//! A userspace driver for NVIDIA/Mellanox ConnectX NICs in pure Rust.
//!
//! The driver opens `/dev/infiniband/uverbsN` and issues the kernel's uverbs and mlx5 ioctls. It
//! owns the memory of its queues, and writes WQEs and reads CQEs without the kernel. Types have the
//! names of the verbs: [`Context`], [`ProtectionDomain`], [`MemoryRegion`], [`CompletionQueue`],
//! [`QueuePair`].
//!
//! # A first program
//! The example connects two queue pairs of one process and writes eight bytes from one to the
//! other. The device is simulated (crate `mlx5-sim`, which programs need for tests only); [`open`]
//! opens a real one.
//!
//! ```
//! use mlx5::{Access, ConnectOptions, Psn, SendFlags, transport::Rc};
//! use mlx5_sim::{SimConfig, Simulator};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let simulator = Simulator::new(SimConfig::new());
//! let context = mlx5::devices_on(simulator.kernel())?[0].open()?;
//! let pd = context.alloc_pd()?;
//! let mut cq = context.create_cq(16).build()?;
//! let memory = pd.memory(4096).access(Access::LOCAL_WRITE | Access::REMOTE_WRITE).register()?;
//!
//! // Each side needs to know where the other one is; between hosts, that is sent by other means.
//! let mut near = pd.create_qp::<Rc>(&cq, &cq).build()?;
//! let mut far = pd.create_qp::<Rc>(&cq, &cq).build()?;
//! let (port, psn) = (context.local_port(1, None)?, Psn::default());
//! let options = ConnectOptions::default();
//! let (here, there) = (near.endpoint(&port, psn, &options), far.endpoint(&port, psn, &options));
//! near.connect(&port, psn, &there, &options)?;
//! far.connect(&port, psn, &here, &options)?;
//!
//! memory.write_at(0, b"8 bytes!")?;
//! let mut batch = near.wr_start();
//! batch.wr(7, SendFlags::SIGNALED).rdma_write(memory.remote(1024..)?).sge(memory.sge(0..8)?);
//! batch.complete()?;
//!
//! let mut outcome = None;
//! while cq.poll(1, |completion| outcome = Some((completion.wr_id(), completion.status())))? == 0 {}
//! assert_eq!(outcome, Some((7, Ok(()))));
//! let mut bytes = [0; 8];
//! memory.read_at(1024, &mut bytes)?;
//! assert_eq!(&bytes, b"8 bytes!");
//! # Ok(())
//! # }
//! ```
//!
//! # Handles
//! Every handle keeps the objects it belongs to alive: handles may be dropped in any order and
//! stored in one struct. If destruction can fail, a method returns the error together with the
//! handle. `drop` destroys the object too and never panics. If the kernel does not destroy the
//! object, the memory that the device may still use is kept until the context closes, and
//! [`Context::leaked`] counts it. In a child process after `fork`, handles do nothing and return
//! [`ErrorKind::Forked`].
//!
//! # Safety
//! Posting is safe code, because registering memory already grants the device access to it: see
//! [`MemoryRegion`]. A program copies to and from the memory that a region owns. Registering
//! foreign memory is `unsafe`: the caller guarantees what the device's accesses require.
//!
//! # Errors
//! [`Error`] has the operation, the errno or the firmware status, and the usual cause. Match on
//! [`Error::kind`]. Once the device is known to be gone, calls and posts fail, and polls fail when
//! no CQE is left.
//!
//! Operations that touch only memory have errors of their own, without an errno: [`PollError`],
//! [`BatchError`], [`ListError`], and [`CompletionError`] of a request that failed. A function with
//! several of these errors returns `Box<dyn std::error::Error>`, or an enum of the program's own.

#![deny(missing_debug_implementations)]

// Each module imports only from those that stand before it here (`cargo xtask imports .`):
//
// error         errors of calls
// link          the files of an open device: calls, capabilities, gone, forked, kept memory
// pools         the parts of queues: rings, doorbell records, UAR pages, user indexes
// context       devices and contexts: properties, ports, events, clock
// memory        protection domains, regions, windows, keys
// address       paths and address handles
// cq            completion queues and channels
// srq           shared receive queues, XRC domains
// rss           work queues, tables of them, queue pairs that spread packets over a table
// qp            queue pairs: attributes, connecting, posting, cancelling
// flow          flow rules and their counters
// ethernet      packets in bursts, with their buffers
// requests      values of requests, by identifier; imports nothing
// tag_matching  shared receive queues with tags, which post by a queue pair
mod address;
mod context;
mod cq;
mod error;
pub mod ethernet;
pub mod flow;
mod link;
mod memory;
mod pools;
mod qp;
mod requests;
mod rss;
mod srq;
mod tag_matching;

/// Compiles the programs of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Compiles and runs the programs of the guide. `cm` has those of the page about addresses, `async`
/// those of the page about async.
#[cfg(doctest)]
mod guide {
    /// One page per line.
    macro_rules! pages {
        ($($name:ident: $file:literal;)*) => {
            $(#[doc = include_str!(concat!("../docs/guide/src/", $file))] struct $name;)*
        };
    }

    pages! {
        FirstProgram: "first-program.md";
        TwoProcesses: "two-processes.md";
        ManyConnections: "many-connections.md";
        SharedReceiveQueues: "shared-receive-queues.md";
        Errors: "errors.md";
        Threads: "threads.md";
        Memory: "memory.md";
        Roce: "roce.md";
        Cancelling: "cancelling.md";
        Packets: "packets.md";
        Rss: "rss.md";
        Testing: "testing.md";
        Hardware: "hardware.md";
    }
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use address::{
    AddressHandle, AhAttr, Dscp, Ecn, GlobalRoute, ParseDscpError, Received, TrafficClass,
    UdpSourcePort,
};
pub use context::{
    AsyncEvent, AsyncEvents, Clock, ClockRelation, CompletionCaps, Context, DetachedEvents, Device,
    DeviceAttr, DeviceEvent, DeviceWatcher, EthernetCaps, Gid, GidEntry, Guid, LinkSpeed,
    OnDemandCaps, OpenOptions, PhysicalState, PortAttr, QueueLimits, StridingCaps, TagMatchingCaps,
    devices, devices_on, mtu_bytes, open, real_time_ns, skipped_devices, skipped_devices_on,
};
pub use cq::{
    CompletionChannel, CompletionCursor, CompletionQueue, CompletionQueueBuilder, CompletionTarget,
    Completions, CqeSize, DetachedChannel, IntoCompletions, PollError, RawCompletionQueue,
    SharedCompletionQueue, Timestamps,
};
pub use error::{DestroyError, Error, ErrorKind, FirmwareStatus, RegisterError, ReregisterError};
pub use link::{CqId, Devx, QpId, SrqId, WqId, leaked};
pub use memory::{
    Access, Atomic, AtomicRegion, Buffer, BufferRegion, DeviceMemory, MemoryBuilder, MemoryRegion,
    MessageFrame, MessageRing, MessageRingWriter, MessageSlotWriter, MessageSlots, Plain,
    ProtectionDomain, Reregistration, SlotFrame, Typed, mkey,
    window::{self, BindError, MemoryWindow},
};
pub use pools::{
    DoorbellChoice, DoorbellMode, QueueAllocator, RawRegister, RawRing, RecordMemory, ThreadDomain,
};
pub use qp::*;
pub use requests::Requests;
pub use rss::{
    HashKey, HashQueuePair, HashQueuePairBuilder, IndirectionTable, RawWorkQueue, WorkQueue,
    WorkQueueBuilder, WorkQueueTarget,
};
pub use srq::{
    RawSharedReceiveQueue, SharedReceiveQueue, SharedReceiveQueueBuilder, SrqControl, SrqInfo,
    XrcDomain, XrcOpen,
};
pub use tag_matching::{RendezvousData, TagMatchingQueue, TagMatchingQueueBuilder, TmMessage};

/// The traits of plain types: see [`Plain`].
pub use zerocopy;

pub use mlx5_cq::{
    CompletionError, CompletionOpcode, Corruption, ErrorKind as CompletionErrorKind, HashedHeaders,
    HashedTransport, InlineData, NetworkHeader, OwnedCompletion, PacketHeaders, TmInfo,
    TransportHeader, WorkCompletion,
};
pub use mlx5_doorbell::LockGuard;
pub use mlx5_prm::cmd::CommandStatus;
pub use mlx5_prm::cqe::{MiniFormat as CqeCompression, Syndrome};
pub use mlx5_prm::ethernet::InlineMode;
pub use mlx5_prm::wqe::{AddressVector, Opcode};
pub use mlx5_uapi::{
    Errno, HugePages, Kernel, LinuxKernel, Mapping, OLDEST_KERNEL,
    mlx5::{CqeCompFormat, MultiPacketSend, RxHashFields, RxHashFunctions, TunnelOffloads},
    sysfs::{NodeType, PciFunction, SkipReason, Skipped},
    verbs::{
        AccessFlags, AtomicCap, DeviceCapFlags, GidType, LinkLayer, Mtu, PortState, QpType,
        RawPacketCaps, WqState,
    },
};
pub use mlx5_wqe::tag_matching::{OpsFlags, OpsWr, TagAdd, TagHandle, TagOperation};
pub use mlx5_wqe::{
    AnyBatch, Batch, BatchError, Begun, BindParts, Binding, Cancelled, Change, Data, Faulted,
    InlineSges, ListError, ListTransport, MaskedOperands, MkeyRefusal, Mode as CancelMode,
    NeedsAddress, NeedsData, NeedsSrqn, NotPending, Operation, PendingRequest, Position, PostError,
    QueueState, RawWqe, RawWqeError, ReceiveWr, RemoteAddress, RemoteError, RemoteSlice, Repost,
    Request, RequestHandle, RequestInfo, Segmented, SendFlags, SendOps, SendWr, Sge, Tagged,
    UdAddress, UnsupportedOperation, VlanTag, WindowType, Wr, operation, transport,
};
