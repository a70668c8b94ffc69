//! The additions of a parent domain to a protection domain: a thread domain, and functions that
//! provide the memory of queues.

use crate::abi::mlx5dv::*;
use crate::abi::*;
use mlx5::{QueueAllocator, RecordMemory, ThreadDomain};
use std::ptr::{self, NonNull};
use std::sync::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex, PoisonError};

/// A thread domain.
#[repr(C)]
pub(crate) struct TdObject {
    pub(crate) c: ibv_td,
    pub(crate) domain: ThreadDomain,
    /// Number of parent domains that have it.
    pub(crate) users: AtomicUsize,
}

impl TdObject {
    pub(crate) unsafe fn of<'a>(td: *mut ibv_td) -> &'a Self {
        // SAFETY: the caller promises that `td` was not deallocated: it is the first field of an
        // object of this type.
        unsafe { &*td.cast() }
    }
}

/// The additions of a parent domain to its protection domain.
pub(crate) struct Parent {
    pub(crate) td: *mut ibv_td,
    pub(crate) thread_domain: Option<ThreadDomain>,
    pub(crate) allocators: Option<CAllocators>,
    /// Number of queues that were made from it.
    pub(crate) users: AtomicUsize,
}

/// The purpose of memory, as it is passed to the functions of a parent domain.
#[derive(Clone, Copy)]
#[repr(u64)]
pub(crate) enum Purpose {
    QueuePair = MLX5DV_RES_TYPE_QP,
    ReceiveWorkQueue = MLX5DV_RES_TYPE_RWQ,
    DoorbellRecord = MLX5DV_RES_TYPE_DBR,
    SharedReceiveQueue = MLX5DV_RES_TYPE_SRQ,
    CompletionQueue = MLX5DV_RES_TYPE_CQ,
}

pub(crate) type Allocate =
    unsafe extern "C" fn(*mut ibv_pd, *mut c_void, usize, usize, u64) -> *mut c_void;
pub(crate) type Free = unsafe extern "C" fn(*mut ibv_pd, *mut c_void, *mut c_void, u64);

/// The program's functions that provide the memory of queues.
#[derive(Clone, Copy)]
pub(crate) struct CAllocators {
    pub(crate) pd: *mut ibv_pd,
    pub(crate) pd_context: *mut c_void,
    pub(crate) allocate: Allocate,
    pub(crate) free: Free,
}

/// The program's functions for one purpose.
struct CAllocator {
    functions: CAllocators,
    purpose: Purpose,
    /// Addresses of memory that the library provides itself.
    own: Mutex<Vec<usize>>,
}

// SAFETY: the program that passed the functions allows any thread to call them.
unsafe impl Send for CAllocator {}
// SAFETY: the program that passed the functions allows any thread to call them.
unsafe impl Sync for CAllocator {}

/// `IBV_ALLOCATOR_USE_DEFAULT`: the function's result if the library is to provide the memory.
const USE_DEFAULT: usize = usize::MAX;

/// Maps memory that children do not get.
fn map(len: usize) -> Option<NonNull<u8>> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: the mapping is anonymous, at an address that the kernel chooses.
    let start = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the range is the new mapping, to which no reference exists yet.
    unsafe { libc::madvise(start, len, libc::MADV_DONTFORK) };
    NonNull::new(start.cast())
}

// SAFETY: the caller of `alloc_parent_domain` promises that the functions return memory of the
// requested size and alignment, which belongs to the queue until it is freed; or the memory is the
// library's own mapping of whole pages.
unsafe impl QueueAllocator for CAllocator {
    fn allocate(&self, len: usize, align: usize) -> Option<NonNull<u8>> {
        let CAllocators { pd, pd_context, allocate, .. } = self.functions;
        // SAFETY: the caller of `alloc_parent_domain` passed the function together with `pd` and
        // `pd_context`.
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
        // SAFETY: the program's `allocate` returned `start`, and `free` accepts it once.
        unsafe { free(pd, pd_context, start.as_ptr().cast(), self.purpose as u64) };
    }

    fn allocate_record(&self) -> RecordMemory {
        const SIZE: usize = 8;
        let CAllocators { pd, pd_context, allocate, .. } = self.functions;
        let purpose = Purpose::DoorbellRecord as u64;
        // SAFETY: the caller of `alloc_parent_domain` passed the function together with `pd` and
        // `pd_context`.
        let record = unsafe { allocate(pd, pd_context, SIZE, SIZE, purpose) };
        if record.addr() == USE_DEFAULT {
            return RecordMemory::Driver;
        }
        NonNull::new(record.cast()).map_or(RecordMemory::Unavailable, RecordMemory::At)
    }

    unsafe fn free_record(&self, record: NonNull<u8>) {
        let CAllocators { pd, pd_context, free, .. } = self.functions;
        let purpose = Purpose::DoorbellRecord as u64;
        // SAFETY: the program's `allocate` returned `record`, and `free` accepts it once.
        unsafe { free(pd, pd_context, record.as_ptr().cast(), purpose) };
    }
}

impl Parent {
    /// A counted queue was destroyed, and its memory given back: the domain may be freed.
    pub(crate) fn release_queue(&self) {
        // Earlier uses of the domain happen before it is freed.
        self.users.fetch_sub(1, Release);
    }

    /// Whether a queue made from it still exists.
    pub(crate) fn has_queues(&self) -> bool {
        self.users.load(Acquire) != 0
    }

    /// The program's functions for the memory of a queue, if it has any.
    pub(crate) fn allocator(&self, purpose: Purpose) -> Option<Arc<dyn QueueAllocator>> {
        let functions = self.allocators?;
        Some(Arc::new(CAllocator { functions, purpose, own: Mutex::default() }))
    }

    pub(crate) fn release(&self) {
        if !self.td.is_null() {
            // SAFETY: a thread domain exists while a parent domain has it.
            unsafe { TdObject::of(self.td) }.users.fetch_sub(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
