//! The engine: queues, keys, and the execution of work requests, as the hardware does them.
//!
//! Imports point down: the folder `state` has the state of each part of a device. A [`Device`]
//! holds all of it and has no behaviour of a part. The behaviour of each part is methods of
//! [`Device`], or of [`Engine`] if a peer takes part, in a file above.
//!
//! An [`Engine`] holds the devices of one fabric. Commands (create, modify, destroy) are plain
//! methods of a [`Device`]; work moves when [`Engine::step`] is called.

mod atomic;
mod blueflame;
mod commands;
mod complete;
mod compress;
mod counts;
pub mod device;
mod devices;
mod drain;
mod ethernet;
pub mod fault;
mod fence;
mod flush;
mod header;
mod management;
mod memory;
mod receive;
mod respond;
mod route;
mod run;
mod send;
mod signature;
pub(crate) mod state;
mod tag_matching;
mod travel;
mod uar;
mod umr;
mod wqe;
mod xrc;

#[cfg(test)]
mod tests;

pub(crate) use compress::LONGEST_WAIT_US;
pub use device::{Device, FIRST_UAR, Holder};
pub use devices::{Engine, Tap};
pub(crate) use ethernet::{LEVELS, LOG_ENTRIES, LOG_RQ_TABLE, LOG_SEGMENTED};
pub(crate) use memory::DEEPEST;
pub use mlx5_prm::cqe::Syndrome;
pub(crate) use route::is_multicast;
pub(crate) use state::compress::LONGEST_RUN;
pub use state::counts::RetryCounts;
pub use state::cq::{CqConfig, Moderation};
pub use state::drain::DrainAt;
pub use state::ethernet::flow::{FlowCount, FlowEntry, FlowGroup, FlowTableConfig, FlowTarget};
pub use state::ethernet::{
    FrameCounts, FramesTo, HashConfig, HashFields, Promiscuous, RateLimit, ReceiveQueueConfig,
    Registers, SendQueueConfig, Strides, TirConfig, TirTarget, TisConfig, Traffic, Vport,
};
pub use state::event::{Event, EventSink};
pub use state::layout::Layout;
pub use state::management::Management;
pub use state::mkey::{Access, MkeyConfig, Translation};
pub(crate) use state::port::{ETHERNET_MTU, FRAME, LARGEST_GID_TABLE};
pub use state::port::{Gid, GidEntry, GidType, Mac, Port};
pub use state::qp::{
    AddressPath, CompletionConfig, QpAttributes, QpConfig, QpSnapshot, QpState, RingConfig,
    Transport,
};
pub use state::srq::{SrqConfig, XrcConfig};
pub use state::tags::{TagListSnapshot, TagMatchingConfig};

/// Reason for which a command failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// There is no such object.
    NotFound,
    /// The object is in use by another.
    Busy,
    /// The device has no more of these.
    Exhausted,
    /// The parameters contradict the device's limits or each other.
    Invalid(&'static str),
    /// The object's state does not allow it.
    State(&'static str),
    /// An access to memory failed.
    Memory(crate::dma::DmaFault),
}

impl From<crate::dma::DmaFault> for Error {
    fn from(fault: crate::dma::DmaFault) -> Self {
        Self::Memory(fault)
    }
}

/// Index of a device in its fabric.
pub type DeviceId = usize;
