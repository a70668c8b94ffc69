//! State of a device: one file for each part, without behaviour that needs another part.

pub(crate) mod codes;
pub(crate) mod compress;
pub(crate) mod counts;
pub(crate) mod cq;
pub(crate) mod drain;
pub(crate) mod ethernet;
pub(crate) mod event;
pub(crate) mod fence;
pub(crate) mod holder;
pub(crate) mod layout;
pub(crate) mod management;
pub(crate) mod mkey;
pub(crate) mod port;
pub(crate) mod qp;
pub(crate) mod receive;
pub(crate) mod signature;
pub(crate) mod srq;
pub(crate) mod table;
pub(crate) mod tag_message;
pub(crate) mod tags;
pub(crate) mod uar;
pub(crate) mod wire;
