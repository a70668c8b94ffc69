//! Thread domains and parent domains, and deallocating domains of either kind.

use crate::abi::*;
use crate::close;
use crate::context::ContextObject;
use crate::object::{boxed, destroy};
use crate::parent::{CAllocators, Parent, TdObject};
use crate::pd::{PdObject, in_process};
use crate::process::InProcess;
use crate::refusal::{Refusal, Verb, object, status};
use mlx5::ProtectionDomain;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The operation behind `ibv_alloc_td`.
///
/// # Safety
/// `context` is open, `attr` is readable.
pub unsafe extern "C" fn alloc_td(
    context: *mut ibv_context,
    attr: *mut ibv_td_init_attr,
) -> *mut ibv_td {
    // SAFETY: by the contract.
    let (this, attr) = unsafe { (ContextObject::of(context), &*attr) };
    object(if attr.comp_mask != 0 {
        Err(Refusal::INVALID)
    } else {
        this.context.alloc_td().map_err(Into::into).map(|domain| {
            boxed(TdObject { c: ibv_td { context }, domain, users: AtomicUsize::new(0) })
        })
    })
}

/// The operation behind `ibv_dealloc_td`: EBUSY as long as a parent domain has it.
///
/// # Safety
/// `td` was not deallocated. If the call succeeds, it is used no more.
pub unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    // SAFETY: by the contract.
    unsafe {
        if TdObject::of(td).users.load(Relaxed) != 0 {
            return status(Err(Refusal(libc::EBUSY)));
        }
        drop(Box::<TdObject>::from_raw(td.cast()));
    }
    close::again();
    0
}

unsafe fn alloc_parent(
    context: *mut ibv_context,
    attr: &ibv_parent_domain_init_attr,
) -> Verb<*mut ibv_pd> {
    const ALLOCATORS: u32 = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
    const PD_CONTEXT: u32 = IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    if attr.comp_mask & !(ALLOCATORS | PD_CONTEXT) != 0 || attr.pd.is_null() {
        return Err(Refusal::INVALID);
    }
    // SAFETY: by the contract of `alloc_parent_domain`.
    let of = unsafe { PdObject::of(attr.pd) };
    if of.parent.is_some() {
        return Err(Refusal::INVALID);
    }
    let functions = match (attr.comp_mask & ALLOCATORS != 0, attr.alloc, attr.free) {
        (true, Some(allocate), Some(free)) => Some((allocate, free)),
        (true, ..) => return Err(Refusal::INVALID),
        (false, ..) => None,
    };
    let thread_domain = (!attr.td.is_null()).then(|| {
        // SAFETY: by the contract of `alloc_parent_domain`.
        let td = unsafe { TdObject::of(attr.td) };
        td.users.fetch_add(1, Relaxed);
        td.domain.clone()
    });
    let made: *mut PdObject = boxed(PdObject {
        c: ibv_pd { context, handle: of.c.handle },
        domain: ManuallyDrop::new(in_process(context, ProtectionDomain::clone(&of.domain))),
        parent: Some(Parent {
            td: attr.td,
            thread_domain,
            allocators: None,
            users: AtomicUsize::new(0),
        }),
    });
    if let Some((allocate, free)) = functions {
        let pd_context =
            if attr.comp_mask & PD_CONTEXT != 0 { attr.pd_context } else { ptr::null_mut() };
        let allocators = CAllocators { pd: made.cast(), pd_context, allocate, free };
        // SAFETY: the object was just made, and nobody else has it.
        if let Some(parent) = unsafe { &mut (*made).parent } {
            parent.allocators = Some(allocators);
        }
    }
    Ok(made.cast())
}

/// The operation behind `ibv_alloc_parent_domain`.
///
/// # Safety
/// `context` is open, `attr` is readable; domains that it names exist. The functions that it names
/// return memory of the size and alignment that they are asked for.
pub unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    // SAFETY: by the contract.
    object(unsafe { alloc_parent(context, &*attr) })
}

/// Frees a parent domain: EBUSY as long as a queue was made from it.
///
/// # Safety
/// `this` is a parent domain. If the call succeeds, it is used no more.
pub(crate) unsafe fn dealloc_parent(this: *mut PdObject, parent: &Parent) -> Verb {
    if parent.has_queues() {
        return Err(Refusal(libc::EBUSY));
    }
    parent.release();
    // SAFETY: by the contract. The domain itself is another object's.
    unsafe {
        destroy(this, &raw mut (*this).domain, |domain| {
            drop(domain.into_inner());
            Ok(())
        })
    }
}

/// `ibv_dealloc_pd`.
///
/// # Safety
/// `pd` was not deallocated. If the call succeeds, it is used no more.
pub unsafe extern "C" fn dealloc_pd(pd: *mut ibv_pd) -> c_int {
    let this: *mut PdObject = pd.cast();
    // SAFETY: by the contract.
    status(unsafe {
        match &(*this).parent {
            Some(parent) => dealloc_parent(this, parent),
            None if (*this).domain.left() => {
                // A child's part of it ends; the domain is its parent's.
                drop(ManuallyDrop::take(&mut (*this).domain).into_inner());
                drop(Box::from_raw(this));
                close::again();
                Ok(())
            }
            None => destroy(this, &raw mut (*this).domain, |domain| {
                let remake = Arc::clone(domain.remake());
                let Some(domain) = domain.into_inner() else { return Ok(()) };
                domain.destroy().map_err(|error| error.map(|domain| InProcess::new(domain, remake)))
            }),
        }
    })
}
