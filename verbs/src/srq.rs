//! Shared receive queues.

use crate::abi::*;
use crate::context::{ContextObject, wait_for_acks};
use crate::domain::Purpose;
use crate::object::{Blank, boxed, destroy};
use crate::pd::PdObject;
use crate::qp::post::{receives, refused};
use crate::refusal::{Refusal, Verb, object, status};
use crate::spin::Spin;
use mlx5::{QueuePairBuilder, QueuePairTransport, SharedReceiveQueue};
use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;

/// A shared receive queue.
#[repr(C)]
pub(crate) struct SrqObject {
    c: ibv_srq,
    lock: Spin,
    queue: UnsafeCell<ManuallyDrop<SharedReceiveQueue>>,
}

impl SrqObject {
    /// # Safety
    /// `srq` is a shared receive queue that was not destroyed.
    #[inline(always)]
    pub(crate) unsafe fn of<'a>(srq: *mut ibv_srq) -> &'a Self {
        // SAFETY: by the contract, it is the first field of an object of this type.
        unsafe { &*srq.cast() }
    }

    /// Runs `body` with the queue, and the lock held.
    #[inline(always)]
    fn with<R>(&self, body: impl FnOnce(&mut SharedReceiveQueue) -> R) -> R {
        // SAFETY: the lock is held.
        self.lock.hold(|| body(unsafe { &mut *self.queue.get() }))
    }

    /// Lets a queue pair receive from the queue.
    ///
    /// # Safety
    /// As for [`SrqObject::of`], as long as the builder lives.
    pub(crate) unsafe fn attach<'a, T: QueuePairTransport>(
        srq: *mut ibv_srq,
        builder: QueuePairBuilder<'a, T>,
    ) -> QueuePairBuilder<'a, T> {
        // SAFETY: by the contract. Posting does not change what the builder reads.
        builder.srq(unsafe { &*Self::of(srq).queue.get() })
    }
}

unsafe fn create(pd: *mut ibv_pd, init: *mut ibv_srq_init_attr) -> Verb<*mut ibv_srq> {
    // SAFETY: by the contract of `create_srq`.
    let (context, pd_object, wanted) =
        unsafe { (PdObject::context(pd), PdObject::of(pd), &mut *init) };
    if wanted.attr.max_wr == 0 {
        return Err(Refusal::INVALID);
    }
    let allocator = pd_object.allocator(Purpose::SharedReceiveQueue);
    let mut builder = pd_object.domain.create_srq(wanted.attr.max_wr).max_sge(wanted.attr.max_sge);
    if let Some(allocator) = &allocator {
        builder = builder.allocator(allocator);
    }
    let queue = builder.build()?;
    pd_object.hold();
    wanted.attr.max_wr = queue.capacity();
    wanted.attr.max_sge = queue.max_sge();
    let id = queue.id();
    let mut c = ibv_srq::blank();
    // SAFETY: by the contract.
    c.context = unsafe { (*pd).context };
    c.srq_context = wanted.srq_context;
    c.pd = pd;
    c.handle = queue.kernel_handle().unwrap_or(0);
    c.mutex = libc::PTHREAD_MUTEX_INITIALIZER;
    c.cond = libc::PTHREAD_COND_INITIALIZER;
    let made: *mut ibv_srq = boxed(SrqObject {
        c,
        lock: Spin::new(context.environment.locks),
        queue: UnsafeCell::new(ManuallyDrop::new(queue)),
    });
    context.srqs.add(id, made);
    Ok(made)
}

/// `ibv_create_srq`.
///
/// # Safety
/// `pd` exists; `init` is readable, its sizes are writable.
pub unsafe extern "C" fn create_srq(pd: *mut ibv_pd, init: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    // SAFETY: by the contract.
    object(unsafe { create(pd, init) })
}

/// `ibv_modify_srq`: only the limit, as in C's provider for mlx5.
///
/// # Safety
/// `srq` was not destroyed, `attr` is readable.
pub unsafe extern "C" fn modify_srq(
    srq: *mut ibv_srq,
    attr: *mut ibv_srq_attr,
    mask: c_int,
) -> c_int {
    const LIMIT: c_int = 1 << 1;
    // SAFETY: by the contract.
    let (this, attr) = unsafe { (SrqObject::of(srq), &*attr) };
    if mask & !LIMIT != 0 {
        return status(Err(Refusal::INVALID));
    }
    if mask == 0 {
        return 0;
    }
    status(this.with(|queue| queue.set_limit(attr.srq_limit)).map_err(Into::into))
}

/// `ibv_query_srq`.
///
/// # Safety
/// `srq` was not destroyed, `attr` is writable.
pub unsafe extern "C" fn query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
    // SAFETY: by the contract.
    let found = unsafe { SrqObject::of(srq) }.with(|queue| queue.query());
    // SAFETY: by the contract.
    status(found.map_err(Into::into).map(|info| unsafe {
        attr.write(ibv_srq_attr {
            max_wr: info.max_wr,
            max_sge: info.max_sge,
            srq_limit: info.limit,
        });
    }))
}

/// `ibv_destroy_srq`: EBUSY as long as a queue pair has it; waits until its events are acknowledged.
///
/// # Safety
/// `srq` was not destroyed. If the call succeeds, it is used no more.
pub unsafe extern "C" fn destroy_srq(srq: *mut ibv_srq) -> c_int {
    let this: *mut SrqObject = srq.cast();
    // SAFETY: by the contract. After the queue is destroyed no event of it is told any more.
    status(unsafe {
        let context = ContextObject::of((*srq).context);
        let id = (*(*this).queue.get()).id();
        destroy(this, (*this).queue.get(), |queue| {
            queue.destroy()?;
            PdObject::of((*srq).pd).release();
            let told = context.srqs.remove(&id);
            let (mutex, cond) = (&raw mut (*srq).mutex, &raw mut (*srq).cond);
            wait_for_acks(mutex, cond, &raw const (*srq).events_completed, told);
            Ok(())
        })
    })
}

/// The operation behind `ibv_post_srq_recv`.
///
/// # Safety
/// `srq` was not destroyed; `wr` is a list of requests; `bad_wr` is writable.
pub unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: by the contract.
    let this = unsafe { SrqObject::of(srq) };
    // SAFETY: by the contract.
    let posted = this.with(|queue| queue.post_recv_iter(unsafe { receives(wr) }));
    match posted {
        Ok(_) => 0,
        // SAFETY: by the contract.
        Err(error) => unsafe { refused(wr, bad_wr, error) },
    }
}
