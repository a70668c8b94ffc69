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
        // SAFETY: the caller promises that `xrcd` is a domain that was not closed: it is the first
        // field of an object of this type.
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
    // SAFETY: the caller of `open_xrcd` promises that `context` is open.
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
        // SAFETY: the caller of `open_xrcd` promises that the descriptor is open.
        fd => this.context.open_xrcd_shared(unsafe { BorrowedFd::borrow_raw(fd) }, how)?,
    };
    Ok(boxed(XrcdObject { c: ibv_xrcd { context }, domain: ManuallyDrop::new(domain) }))
}

/// The operation of `ibv_open_xrcd`.
///
/// # Safety
/// `context` is open, `attr` is readable, its descriptor is −1 or open.
pub unsafe extern "C" fn open_xrcd(
    context: *mut ibv_context,
    attr: *mut ibv_xrcd_init_attr,
) -> *mut ibv_xrcd {
    // SAFETY: the caller promises that `context` is open, that `attr` is readable, and that its
    // descriptor is −1 or open.
    object(unsafe { open(context, &*attr) })
}

/// The operation of `ibv_close_xrcd`.
///
/// # Safety
/// `xrcd` was not closed. If the call succeeds, it is used no more.
pub unsafe extern "C" fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    let this: *mut XrcdObject = xrcd.cast();
    // SAFETY: the caller promises that `xrcd` was not closed, and no longer uses it if the call
    // succeeds.
    status(unsafe { destroy(this, &raw mut (*this).domain, XrcDomain::close) })
}
