//! A typed function for each call, one module for each object of the kernel's.
//!
//! They encode, call and decode, and decide nothing: an errno is passed up as it comes. A handle
//! is the kernel's number for an object, good for the file that it was made through only.

pub mod ah;
pub mod context;
pub mod cq;
pub mod devx;
pub mod dm;
pub mod event;
pub mod mr;
pub mod mw;
pub mod pd;
pub mod qp;
pub mod query;
pub mod srq;
pub mod uar;
pub mod xrcd;

use crate::{
    Errno,
    call::Call,
    ioctl::{AttrId, Method},
    kernel::DeviceFile,
};

/// The call of a method that takes an object's handle and nothing else: most destructors.
fn destroy(file: &dyn DeviceFile, method: Method, attr: AttrId, handle: u32) -> Result<(), Errno> {
    Call::new(method).handle(attr, handle).make(file).map(drop)
}

#[cfg(test)]
mod tests;
