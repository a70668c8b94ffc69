//! The engine: queues, keys, and the execution of work requests, as the hardware does them.
//!
//! An [`Engine`] holds the devices of one fabric. Commands (create, modify, destroy) are plain
//! methods of a [`Device`]; work moves when [`Engine::step`] is called.

mod atomic;
mod blueflame;
mod commands;
mod complete;
mod compress;
mod cq;
pub mod device;
mod drain;
mod event;
pub mod fault;
mod fence;
mod flush;
mod header;
mod layout;
mod memory;
mod mkey;
mod port;
mod qp;
mod receive;
mod respond;
mod route;
mod run;
mod send;
pub(crate) mod signature;
mod srq;
mod table;
mod tag_matching;
mod uar;
mod umr;
mod wqe;
mod xrc;

#[cfg(test)]
mod tests;

pub(crate) use compress::LONGEST_RUN;
pub use cq::{CqConfig, Moderation};
pub use device::{Device, FIRST_UAR, Holder};
pub use drain::DrainAt;
pub use event::{Event, EventSink};
pub use layout::Layout;
pub use mkey::{Access, MkeyConfig, Translation};
pub use mlx5_prm::cqe::Syndrome;
pub(crate) use port::LARGEST_GID_TABLE;
pub use port::{Gid, GidEntry, GidType, Mac, Port};
pub use qp::{
    AddressPath, CompletionConfig, QpAttributes, QpConfig, QpSnapshot, QpState, RingConfig,
    Transport,
};
pub use run::Engine;
pub use srq::{SrqConfig, XrcConfig};
pub use tag_matching::{TagListSnapshot, TagMatchingConfig};

/// Why a command failed.
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
    /// Memory did not answer.
    Memory(crate::dma::DmaFault),
}

impl From<crate::dma::DmaFault> for Error {
    fn from(fault: crate::dma::DmaFault) -> Self {
        Self::Memory(fault)
    }
}

/// Index of a device in its fabric.
pub type DeviceId = usize;
