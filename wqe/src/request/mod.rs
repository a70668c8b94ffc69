//! What a request is made of, whatever queue it is for.

pub(crate) mod data;
pub(crate) mod error;
pub(crate) mod flags;
pub mod operation;
pub(crate) mod raw;
pub(crate) mod segment;
pub(crate) mod sge;
pub mod transport;
pub(crate) mod window;
