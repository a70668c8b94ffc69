//! Protection domains.

use crate::abi::*;
use crate::context::ContextObject;
use crate::object::boxed;
use crate::parent::{Parent, Purpose};
use crate::process::InProcess;
use crate::refusal::{Verb, object};
use mlx5::{ProtectionDomain, QueueAllocator, ThreadDomain};
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A protection domain.
#[repr(C)]
pub(crate) struct PdObject {
    pub(crate) c: ibv_pd,
    pub(crate) domain: ManuallyDrop<InProcess<ProtectionDomain>>,
    /// The additions of a parent domain.
    pub(crate) parent: Option<Parent>,
}

impl PdObject {
    /// # Safety
    /// `pd` is a protection domain that was not deallocated.
    pub(crate) unsafe fn of<'a>(pd: *mut ibv_pd) -> &'a Self {
        // SAFETY: the caller promises that `pd` is a protection domain that was not deallocated: it
        // is the first field of an object of this type.
        unsafe { &*pd.cast() }
    }

    /// Whether it is a parent domain.
    pub(crate) fn is_parent(&self) -> bool {
        self.parent.is_some()
    }

    /// The program's functions for the memory of a queue, if it has any.
    pub(crate) fn allocator(&self, purpose: Purpose) -> Option<Arc<dyn QueueAllocator>> {
        self.parent.as_ref()?.allocator(purpose)
    }

    /// The thread domain of queues; with one they need no lock.
    pub(crate) fn thread_domain(&self) -> Option<&ThreadDomain> {
        self.parent.as_ref()?.thread_domain.as_ref()
    }

    /// Counts a queue that was made from a parent domain.
    pub(crate) fn hold(&self) {
        if let Some(parent) = &self.parent {
            parent.users.fetch_add(1, Relaxed);
        }
    }

    /// The parent domain that counts a queue made from `pd`, if `pd` is a parent domain.
    ///
    /// # Safety
    /// `pd` is NULL, or as for [`PdObject::of`].
    pub(crate) unsafe fn counting<'a>(pd: *mut ibv_pd) -> Option<&'a Parent> {
        // SAFETY: the caller promises that `pd` is NULL, or a protection domain that was not
        // deallocated.
        unsafe { pd.cast::<Self>().as_ref() }?.parent.as_ref()
    }

    /// # Safety
    /// As for [`PdObject::of`].
    pub(crate) unsafe fn context<'a>(pd: *mut ibv_pd) -> &'a ContextObject {
        // SAFETY: the caller promises that `pd` is a protection domain that was not deallocated.
        unsafe { ContextObject::of((*pd).context) }
    }
}

/// A domain that a child process can use as well.
pub(crate) fn in_process(
    context: *mut ibv_context,
    domain: ProtectionDomain,
) -> InProcess<ProtectionDomain> {
    let context = context.expose_provenance();
    InProcess::new(
        domain,
        Arc::new(move |parents| {
            // SAFETY: the context exists while it has a domain.
            let context = unsafe { ContextObject::of(ptr::with_exposed_provenance_mut(context)) };
            // SAFETY: the domain belongs to this library, which makes no `EthernetQueue`; the
            // program decides which objects use its memory.
            unsafe { context.context.import_pd(parents.kernel_handle()) }.ok()
        }),
    )
}

fn alloc(context: *mut ibv_context) -> Verb<*mut ibv_pd> {
    // SAFETY: the caller of `alloc_pd` promises that `context` is open.
    let domain = unsafe { ContextObject::of(context) }.context.alloc_pd()?;
    let c = ibv_pd { context, handle: domain.kernel_handle() };
    let domain = ManuallyDrop::new(in_process(context, domain));
    Ok(boxed(PdObject { c, domain, parent: None }))
}

/// `ibv_alloc_pd`.
///
/// # Safety
/// `context` is open.
pub unsafe extern "C" fn alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    object(alloc(context))
}
