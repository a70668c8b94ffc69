//! A typed function for each call, one module per kernel object.
//!
//! The functions encode, call and decode, without policy: they return the kernel's errno unchanged.
//! A handle is the kernel's number for an object, valid only for the file through which it was
//! created.

pub mod ah;
pub mod context;
pub mod counters;
#[expect(missing_debug_implementations, reason = "types that the derive of zerocopy makes")]
pub mod cq;
pub mod devx;
pub mod dm;
pub mod event;
pub mod flow;
pub mod matcher;
pub mod mr;
pub mod mw;
pub mod pd;
pub mod qp;
pub mod query;
pub mod srq;
pub mod uar;
pub mod wq;
pub mod xrcd;

use crate::{
    Errno,
    call::Call,
    ioctl::{AttrId, Method},
    kernel::DeviceFile,
};

/// Calls a method whose only attribute is an object's handle, as most destructors do.
fn destroy(file: &dyn DeviceFile, method: Method, attr: AttrId, handle: u32) -> Result<(), Errno> {
    Call::new(method).handle(attr, handle).make(file).map(drop)
}

#[cfg(test)]
mod tests;
