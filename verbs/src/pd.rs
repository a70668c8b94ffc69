//! Protection domains.

use crate::abi::*;
use crate::context::ContextObject;
use crate::object::{boxed, destroy};
use crate::refusal::{Verb, object, status};
use mlx5::ProtectionDomain;
use std::mem::ManuallyDrop;

/// A protection domain.
#[repr(C)]
pub(crate) struct PdObject {
    pub(crate) c: ibv_pd,
    pub(crate) domain: ManuallyDrop<ProtectionDomain>,
}

impl PdObject {
    /// # Safety
    /// `pd` is a protection domain that was not deallocated.
    pub(crate) unsafe fn of<'a>(pd: *mut ibv_pd) -> &'a Self {
        // SAFETY: by the contract, it is the first field of an object of this type.
        unsafe { &*pd.cast() }
    }

    /// # Safety
    /// As for [`PdObject::of`].
    pub(crate) unsafe fn context<'a>(pd: *mut ibv_pd) -> &'a ContextObject {
        // SAFETY: by the contract.
        unsafe { ContextObject::of((*pd).context) }
    }
}

fn alloc(context: *mut ibv_context) -> Verb<*mut ibv_pd> {
    // SAFETY: by the contract of `alloc_pd`.
    let domain = unsafe { ContextObject::of(context) }.context.alloc_pd()?;
    let c = ibv_pd { context, handle: domain.kernel_handle() };
    Ok(boxed(PdObject { c, domain: ManuallyDrop::new(domain) }))
}

/// `ibv_alloc_pd`.
///
/// # Safety
/// `context` is open.
pub unsafe extern "C" fn alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    object(alloc(context))
}

/// `ibv_dealloc_pd`.
///
/// # Safety
/// `pd` was not deallocated. If the call succeeds, it is used no more.
pub unsafe extern "C" fn dealloc_pd(pd: *mut ibv_pd) -> c_int {
    let this: *mut PdObject = pd.cast();
    // SAFETY: by the contract.
    status(unsafe { destroy(this, &raw mut (*this).domain, ProtectionDomain::destroy) })
}
