//! What a parent domain adds to a protection domain: a thread domain, and who provides the memory of
//! queues.

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
    /// Parent domains that have it.
    pub(crate) users: AtomicUsize,
}

impl TdObject {
    pub(crate) unsafe fn of<'a>(td: *mut ibv_td) -> &'a Self {
        // SAFETY: by the callers' contracts, it is the first field of an object of this type.
        unsafe { &*td.cast() }
    }
}

/// What a parent domain adds to its protection domain.
pub(crate) struct Parent {
    pub(crate) td: *mut ibv_td,
    pub(crate) thread_domain: Option<ThreadDomain>,
    pub(crate) allocators: Option<CAllocators>,
    /// Queues that were made from it.
    pub(crate) users: AtomicUsize,
}

/// What memory is for, as the functions of a parent domain are told.
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

/// The functions of a program that provide the memory of queues.
#[derive(Clone, Copy)]
pub(crate) struct CAllocators {
    pub(crate) pd: *mut ibv_pd,
    pub(crate) pd_context: *mut c_void,
    pub(crate) allocate: Allocate,
    pub(crate) free: Free,
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

// SAFETY: the functions return as many writable bytes as they are asked for, with the alignment, by C's
// contract, which gives them to the queue until they are freed; or the memory is the library's own mapping,
// of whole pages.
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

    fn allocate_record(&self) -> RecordMemory {
        const SIZE: usize = 8;
        let CAllocators { pd, pd_context, allocate, .. } = self.functions;
        let purpose = Purpose::DoorbellRecord as u64;
        // SAFETY: C's contract of the function.
        let record = unsafe { allocate(pd, pd_context, SIZE, SIZE, purpose) };
        if record.addr() == USE_DEFAULT {
            return RecordMemory::Driver;
        }
        NonNull::new(record.cast()).map_or(RecordMemory::Unavailable, RecordMemory::At)
    }

    unsafe fn free_record(&self, record: NonNull<u8>) {
        let CAllocators { pd, pd_context, free, .. } = self.functions;
        let purpose = Purpose::DoorbellRecord as u64;
        // SAFETY: C's contract of the function; the other one allocated the record.
        unsafe { free(pd, pd_context, record.as_ptr().cast(), purpose) };
    }
}

impl Parent {
    /// A queue that was counted is destroyed, and its memory given back: the domain may go.
    pub(crate) fn release_queue(&self) {
        // What was done with the domain before happens before it is freed.
        self.users.fetch_sub(1, Release);
    }

    /// Whether a queue was made from it that is still there.
    pub(crate) fn has_queues(&self) -> bool {
        self.users.load(Acquire) != 0
    }

    /// Who provides the memory of a queue, if the program does.
    pub(crate) fn allocator(&self, purpose: Purpose) -> Option<Arc<dyn QueueAllocator>> {
        let functions = self.allocators?;
        Some(Arc::new(CAllocator { functions, purpose, own: Mutex::default() }))
    }

    pub(crate) fn release(&self) {
        if !self.td.is_null() {
            // SAFETY: the thread domain is there as long as a parent domain has it.
            unsafe { TdObject::of(self.td) }.users.fetch_sub(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
