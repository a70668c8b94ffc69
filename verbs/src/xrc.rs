//! Domains of extended connections.

use crate::abi::*;
use crate::context::ContextObject;
use crate::object::{boxed, destroy};
use crate::refusal::{Refusal, Verb, object, status};
use mlx5::{XrcDomain, XrcOpen};
use std::mem::ManuallyDrop;
use std::os::fd::BorrowedFd;

/// An XRC domain.
#[repr(C)]
pub(crate) struct XrcdObject {
    c: ibv_xrcd,
    pub(crate) domain: ManuallyDrop<XrcDomain>,
}

impl XrcdObject {
    /// # Safety
    /// `xrcd` is a domain that was not closed.
    pub(crate) unsafe fn of<'a>(xrcd: *mut ibv_xrcd) -> &'a Self {
        // SAFETY: by the contract, it is the first field of an object of this type.
        unsafe { &*xrcd.cast() }
    }
}

unsafe fn open(context: *mut ibv_context, attr: &ibv_xrcd_init_attr) -> Verb<*mut ibv_xrcd> {
    const FD: u32 = IBV_XRCD_INIT_ATTR_FD;
    const OFLAGS: u32 = IBV_XRCD_INIT_ATTR_OFLAGS;
    if attr.comp_mask & !(FD | OFLAGS) != 0 {
        return Err(Refusal::NOT_SUPPORTED);
    }
    if attr.comp_mask & (FD | OFLAGS) != FD | OFLAGS {
        return Err(Refusal::INVALID);
    }
    // SAFETY: by the contract of `open_xrcd`.
    let this = unsafe { ContextObject::of(context) };
    let exclusive = attr.oflags & libc::O_EXCL != 0;
    let how = match attr.oflags & libc::O_CREAT {
        0 => XrcOpen::Existing,
        _ if exclusive => XrcOpen::CreateNew,
        _ => XrcOpen::Create,
    };
    let domain = match attr.fd {
        -1 if how == XrcOpen::Existing => return Err(Refusal::INVALID),
        -1 => this.context.open_xrcd()?,
        // SAFETY: by the contract of `open_xrcd`, the descriptor is open.
        fd => this.context.open_xrcd_shared(unsafe { BorrowedFd::borrow_raw(fd) }, how)?,
    };
    Ok(boxed(XrcdObject { c: ibv_xrcd { context }, domain: ManuallyDrop::new(domain) }))
}

/// The operation behind `ibv_open_xrcd`.
///
/// # Safety
/// `context` is open, `attr` is readable, its descriptor is −1 or open.
pub unsafe extern "C" fn open_xrcd(
    context: *mut ibv_context,
    attr: *mut ibv_xrcd_init_attr,
) -> *mut ibv_xrcd {
    // SAFETY: by the contract.
    object(unsafe { open(context, &*attr) })
}

/// The operation behind `ibv_close_xrcd`.
///
/// # Safety
/// `xrcd` was not closed. If the call succeeds, it is used no more.
pub unsafe extern "C" fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    let this: *mut XrcdObject = xrcd.cast();
    // SAFETY: by the contract.
    status(unsafe { destroy(this, &raw mut (*this).domain, XrcDomain::close) })
}
