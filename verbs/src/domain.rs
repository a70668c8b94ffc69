//! Thread domains and parent domains, and deallocating both kinds of domain.

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

/// The operation of `ibv_alloc_td`.
///
/// # Safety
/// `context` is open, `attr` is readable.
pub unsafe extern "C" fn alloc_td(
    context: *mut ibv_context,
    attr: *mut ibv_td_init_attr,
) -> *mut ibv_td {
    // SAFETY: the caller promises that `context` is open and that `attr` is readable.
    let (this, attr) = unsafe { (ContextObject::of(context), &*attr) };
    object(if attr.comp_mask != 0 {
        Err(Refusal::INVALID)
    } else {
        this.context.alloc_td().map_err(Into::into).map(|domain| {
            boxed(TdObject { c: ibv_td { context }, domain, users: AtomicUsize::new(0) })
        })
    })
}

/// The operation of `ibv_dealloc_td`: EBUSY while a parent domain has it.
///
/// # Safety
/// `td` was not deallocated. If the call succeeds, it is used no more.
pub unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    // SAFETY: the caller promises that `td` was not deallocated, and no longer uses it if the call
    // succeeds.
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
    // SAFETY: the caller of `alloc_parent_domain` promises that the domains of `attr` exist.
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
        // SAFETY: the caller of `alloc_parent_domain` promises that the domains of `attr` exist.
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
        // SAFETY: the object was just made, and no other code has a pointer to it.
        if let Some(parent) = unsafe { &mut (*made).parent } {
            parent.allocators = Some(allocators);
        }
    }
    Ok(made.cast())
}

/// The operation of `ibv_alloc_parent_domain`.
///
/// # Safety
/// `context` is open, `attr` is readable; domains that it names exist. The functions that it names
/// return memory of the size and alignment that they are asked for.
pub unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    // SAFETY: the caller promises that `context` is open, `attr` is readable, and its domains
    // exist.
    object(unsafe { alloc_parent(context, &*attr) })
}

/// Frees a parent domain: EBUSY while a queue made from it exists.
///
/// # Safety
/// `this` is a parent domain. If the call succeeds, it is used no more.
pub(crate) unsafe fn dealloc_parent(this: *mut PdObject, parent: &Parent) -> Verb {
    if parent.has_queues() {
        return Err(Refusal(libc::EBUSY));
    }
    parent.release();
    // SAFETY: the caller promises that `this` is a parent domain, and uses it no more if the call
    // succeeds. The protection domain itself belongs to another object.
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
    // SAFETY: the caller promises that `pd` was not deallocated, and no longer uses it if the call
    // succeeds.
    status(unsafe {
        match &(*this).parent {
            Some(parent) => dealloc_parent(this, parent),
            None if (*this).domain.left() => {
                // Only the child's part of it ends; the domain belongs to the parent.
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
