//! Thread domains and parent domains.

use crate::abi::*;
use crate::context::ContextObject;
use crate::object::{boxed, destroy};
use crate::pd::{PdObject, in_process};
use crate::refusal::{Refusal, Verb, object, status};
use mlx5::{ProtectionDomain, QueueAllocator, ThreadDomain};
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// A thread domain.
#[repr(C)]
struct TdObject {
    c: ibv_td,
    domain: ThreadDomain,
    /// Parent domains that have it.
    users: AtomicUsize,
}

impl TdObject {
    unsafe fn of<'a>(td: *mut ibv_td) -> &'a Self {
        // SAFETY: by the callers' contracts, it is the first field of an object of this type.
        unsafe { &*td.cast() }
    }
}

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
    0
}

/// What a parent domain adds to its protection domain.
pub(crate) struct Parent {
    td: *mut ibv_td,
    pub(crate) thread_domain: Option<ThreadDomain>,
    allocators: Option<CAllocators>,
    /// Queues that were made from it.
    pub(crate) users: AtomicUsize,
}

/// What memory is for, as the functions of a parent domain are told (`enum mlx5dv_alloc_type`).
#[derive(Clone, Copy)]
#[repr(u64)]
pub(crate) enum Purpose {
    QueuePair = 1 << 32,
    SharedReceiveQueue = (1 << 32) + 3,
    CompletionQueue = (1 << 32) + 4,
}

type Allocate = unsafe extern "C" fn(*mut ibv_pd, *mut c_void, usize, usize, u64) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut ibv_pd, *mut c_void, *mut c_void, u64);

/// The functions of a program that provide the memory of queues.
#[derive(Clone, Copy)]
struct CAllocators {
    pd: *mut ibv_pd,
    pd_context: *mut c_void,
    allocate: Allocate,
    free: Free,
}

/// The functions of a program, for one purpose.
struct CAllocator {
    functions: CAllocators,
    purpose: Purpose,
    /// Where memory is that the library provides itself.
    own: Mutex<Vec<usize>>,
}

// SAFETY: C's contract is that any thread may call the functions.
unsafe impl Send for CAllocator {}
// SAFETY: as above.
unsafe impl Sync for CAllocator {}

/// `IBV_ALLOCATOR_USE_DEFAULT`: what the function answers for memory that the library is to provide.
const USE_DEFAULT: usize = usize::MAX;

/// Maps memory that a child does not get.
fn map(len: usize) -> Option<NonNull<u8>> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: an anonymous mapping at an address that the kernel chooses.
    let start = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the range is the mapping, which nobody has yet.
    unsafe { libc::madvise(start, len, libc::MADV_DONTFORK) };
    NonNull::new(start.cast())
}

// SAFETY: the functions return `len` writable bytes with the alignment, by C's contract, which gives
// them to the queue until they are freed; or the memory is the library's own mapping, of whole pages.
unsafe impl QueueAllocator for CAllocator {
    fn allocate(&self, len: usize, align: usize) -> Option<NonNull<u8>> {
        let CAllocators { pd, pd_context, allocate, .. } = self.functions;
        // SAFETY: C's contract of the function.
        let start = unsafe { allocate(pd, pd_context, len, align, self.purpose as u64) };
        if start.addr() != USE_DEFAULT {
            return NonNull::new(start.cast());
        }
        let start = map(len)?;
        self.own.lock().unwrap_or_else(PoisonError::into_inner).push(start.addr().get());
        Some(start)
    }

    unsafe fn free(&self, start: NonNull<u8>, len: usize) {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        let found = own.iter().position(|own| *own == start.addr().get());
        found.map(|at| own.swap_remove(at));
        drop(own);
        if found.is_some() {
            // SAFETY: `map` mapped exactly these bytes.
            unsafe { libc::munmap(start.as_ptr().cast(), len) };
            return;
        }
        let CAllocators { pd, pd_context, free, .. } = self.functions;
        // SAFETY: C's contract of the function; the other one allocated the memory.
        unsafe { free(pd, pd_context, start.as_ptr().cast(), self.purpose as u64) };
    }
}

impl Parent {
    /// Who provides the memory of a queue, if the program does.
    pub(crate) fn allocator(&self, purpose: Purpose) -> Option<Arc<dyn QueueAllocator>> {
        let functions = self.allocators?;
        Some(Arc::new(CAllocator { functions, purpose, own: Mutex::default() }))
    }

    fn release(&self) {
        if !self.td.is_null() {
            // SAFETY: the thread domain is there as long as a parent domain has it.
            unsafe { TdObject::of(self.td) }.users.fetch_sub(1, Relaxed);
        }
    }
}

unsafe fn alloc_parent(
    context: *mut ibv_context,
    attr: &ibv_parent_domain_init_attr,
) -> Verb<*mut ibv_pd> {
    const ALLOCATORS: u32 = 1 << 0;
    const PD_CONTEXT: u32 = 1 << 1;
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
    if parent.users.load(Relaxed) != 0 {
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
