//! Shared receive queues.

pub mod tags;

use crate::abi::*;
use crate::close;
use crate::context::{ContextObject, wait_for_acks};
use crate::cq::CqObject;
use crate::environment;
use crate::object::{Blank, boxed, ended};
use crate::parent::Purpose;
use crate::pd::PdObject;
use crate::refusal::{Refusal, Verb, object, status};
use crate::request::{only, receive_errno, receives, refused, single_receive};
use crate::spin::Spin;
use crate::xrc::XrcdObject;
use mlx5::{
    Error, Faulted, ListError, RawSharedReceiveQueue, ReceiveWr, SharedReceiveQueue, SrqControl,
    SrqId,
};
use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;
use tags::Tags;

/// A queue with or without tags.
pub(crate) enum Queue {
    Plain(SharedReceiveQueue),
    Tags(Box<Tags>),
}

impl Queue {
    #[inline(always)]
    fn post<'a>(&mut self, list: impl Iterator<Item = ReceiveWr<'a>>) -> Result<(), ListError> {
        match self {
            Self::Plain(queue) => queue.post_recv_iter(list).map(drop),
            Self::Tags(tags) => list.enumerate().try_for_each(|(index, wr)| {
                let posted = tags.queue.post_recv(&[wr]);
                posted.map_err(|refused| ListError::new(index as u32, refused.error()))
            }),
        }
    }

    fn id(&self) -> SrqId {
        match self {
            Self::Plain(queue) => queue.id(),
            Self::Tags(tags) => tags.queue.id(),
        }
    }

    fn srqn(&self) -> u32 {
        match self {
            Self::Plain(queue) => queue.srqn(),
            Self::Tags(tags) => tags.queue.srqn(),
        }
    }

    fn kernel_handle(&self) -> u32 {
        match self {
            Self::Plain(queue) => queue.kernel_handle(),
            Self::Tags(tags) => tags.queue.kernel_handle(),
        }
        .unwrap_or(0)
    }

    fn control(&self) -> SrqControl {
        match self {
            Self::Plain(queue) => queue.control(),
            Self::Tags(tags) => tags.queue.control(),
        }
    }

    /// Destroys the kernel's object, and keeps the memory.
    fn withdraw(&mut self) -> Result<(), Error> {
        match self {
            Self::Plain(queue) => queue.withdraw(),
            Self::Tags(tags) => tags.queue.withdraw(),
        }
    }
}

/// A shared receive queue.
#[repr(C)]
pub(crate) struct SrqObject {
    /// Written by threads that acknowledge events.
    c: UnsafeCell<ibv_srq>,
    /// For calls that need no lock: threads that post do not wait for these calls of the kernel.
    pub(crate) control: SrqControl,
    /// The kind of `queue`, for threads without the lock.
    pub(crate) has_tags: bool,
    lock: Spin,
    queue: UnsafeCell<ManuallyDrop<Queue>>,
}

impl SrqObject {
    /// # Safety
    /// `srq` is a shared receive queue that was not destroyed.
    #[inline(always)]
    pub(crate) unsafe fn of<'a>(srq: *mut ibv_srq) -> &'a Self {
        // SAFETY: the caller promises that `srq` is a shared receive queue that was not destroyed:
        // it is the first field of an object of this type.
        unsafe { &*srq.cast() }
    }

    /// Runs `body` with the queue, and the lock held.
    #[inline(always)]
    pub(crate) fn with<R>(&self, body: impl FnOnce(&mut Queue) -> R) -> R {
        // SAFETY: the lock is held.
        self.lock.hold(|| body(unsafe { &mut *self.queue.get() }))
    }

    /// Returns the parts of the queue in memory, for a program that posts itself from now on. A
    /// queue with tags has none for programs.
    pub(crate) fn raw_parts(&self) -> Verb<RawSharedReceiveQueue> {
        self.with(|queue| match queue {
            Queue::Plain(queue) => {
                let parts = queue.raw_parts()?;
                queue.report_unrecorded();
                Ok(parts)
            }
            Queue::Tags(_) => Err(Refusal::NOT_SUPPORTED),
        })
    }
}

/// Parameters of a shared receive queue.
struct Wanted {
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    srq_context: *mut c_void,
    attr: ibv_srq_attr,
    kind: c_uint,
    xrcd: *mut ibv_xrcd,
    cq: *mut ibv_cq,
    tags: ibv_tm_cap,
}

/// The address of a queue, for polls in any thread.
struct Address(*const SrqObject);

// SAFETY: any thread may use a queue, under its lock.
unsafe impl Send for Address {}

impl Address {
    /// # Safety
    /// The queue was not destroyed.
    unsafe fn queue(&self) -> &SrqObject {
        // SAFETY: the caller promises that the queue was not destroyed.
        unsafe { &*self.0 }
    }
}

/// Posts receives again that had a page fault, as C does: the program does not learn of them.
///
/// # Safety
/// `srq` was not destroyed. [`destroy_srq`] ends it.
unsafe fn post_faulted_again(srq: *mut ibv_srq) {
    // SAFETY: the caller promises that `srq` was not destroyed.
    let this = unsafe { SrqObject::of(srq) };
    let address = Address(this);
    let repost = move |request: Faulted<'_>| {
        // SAFETY: `destroy_srq` removes this closure before it destroys the queue.
        unsafe { address.queue() }.with(|queue| {
            if let Queue::Plain(queue) = queue {
                queue.repost(request);
            }
        });
    };
    this.with(|queue| {
        if let Queue::Plain(queue) = queue {
            queue.on_page_fault(Some(Box::new(repost)));
        }
    });
}

unsafe fn make(wanted: &mut Wanted) -> Verb<*mut ibv_srq> {
    // SAFETY: the caller of `create_srq_ex` promises that `context` is open and that the domain
    // exists.
    let (context, pd) = unsafe { (ContextObject::of(wanted.context), PdObject::of(wanted.pd)) };
    let attr = &mut wanted.attr;
    // As in C, a request for no room gets some.
    attr.max_wr = attr.max_wr.max(1);
    let queue = if wanted.kind == IBV_SRQT_TM {
        // SAFETY: the caller of `create_srq_ex` promises that the completion queue exists.
        let cq = unsafe { CqObject::of(wanted.cq) }.target();
        let builder = pd.domain.create_tm_srq_on(cq, attr.max_wr).max_sge(attr.max_sge);
        let ibv_tm_cap { max_num_tags, max_ops } = wanted.tags;
        let queue =
            builder.max_num_tags(max_num_tags).max_ops(max_ops).limit(attr.srq_limit).build()?;
        attr.max_wr = queue.capacity();
        Queue::Tags(Box::new(Tags::new(queue)))
    } else {
        let allocator =
            pd.allocator(Purpose::SharedReceiveQueue).or_else(|| context.dv.allocator());
        let mut builder = pd.domain.create_srq(attr.max_wr).max_sge(attr.max_sge);
        builder = builder.limit(attr.srq_limit);
        builder = match &allocator {
            Some(allocator) => builder.allocator(allocator),
            None => builder.huge_pages(environment::pages("MLX_SRQ_ALLOC_TYPE")),
        };
        let queue = if wanted.kind == IBV_SRQT_XRC {
            // SAFETY: the caller of `create_srq_ex` promises that the XRC domain and the completion
            // queue exist.
            unsafe {
                let domain = &XrcdObject::of(wanted.xrcd).domain;
                let cq = CqObject::of(wanted.cq).target();
                builder.xrc_on(domain, cq).build()?
            }
        } else {
            builder.build()?
        };
        attr.max_wr = queue.capacity();
        attr.max_sge = queue.max_sge();
        Queue::Plain(queue)
    };
    pd.hold();
    let id = queue.id();
    let mut c = ibv_srq::blank();
    c.context = wanted.context;
    c.srq_context = wanted.srq_context;
    c.pd = wanted.pd;
    c.handle = queue.kernel_handle();
    c.mutex = libc::PTHREAD_MUTEX_INITIALIZER;
    c.cond = libc::PTHREAD_COND_INITIALIZER;
    let locks = context.environment.locks && pd.thread_domain().is_none();
    let made: *mut ibv_srq = boxed(SrqObject {
        c: UnsafeCell::new(c),
        control: queue.control(),
        has_tags: matches!(queue, Queue::Tags(_)),
        lock: Spin::new(locks),
        queue: UnsafeCell::new(ManuallyDrop::new(queue)),
    });
    // SAFETY: the queue was just made, and no other code has a pointer to it.
    unsafe { post_faulted_again(made) };
    context.objects.srqs.add(id, made);
    Ok(made)
}

/// `ibv_create_srq`.
///
/// # Safety
/// `pd` exists; `init` is readable, its sizes are writable.
pub unsafe extern "C" fn create_srq(pd: *mut ibv_pd, init: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    // SAFETY: the caller promises that `pd` exists, and that `init` is readable with writable
    // sizes.
    object(unsafe {
        let mut wanted = Wanted {
            context: (*pd).context,
            pd,
            srq_context: (*init).srq_context,
            // Only the extended form sets a limit, as in C.
            attr: ibv_srq_attr { srq_limit: 0, ..(*init).attr },
            kind: IBV_SRQT_BASIC,
            xrcd: std::ptr::null_mut(),
            cq: std::ptr::null_mut(),
            tags: ibv_tm_cap { max_num_tags: 0, max_ops: 0 },
        };
        make(&mut wanted).inspect(|_| {
            (*init).attr.max_wr = wanted.attr.max_wr;
            (*init).attr.max_sge = wanted.attr.max_sge;
        })
    })
}

/// The operation of `ibv_create_srq_ex`.
///
/// # Safety
/// `context` is open; `init` is readable, its sizes are writable; what it names exists.
pub unsafe extern "C" fn create_srq_ex(
    context: *mut ibv_context,
    init: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    const TYPE: u32 = IBV_SRQ_INIT_ATTR_TYPE;
    const PD: u32 = IBV_SRQ_INIT_ATTR_PD;
    const XRCD: u32 = IBV_SRQ_INIT_ATTR_XRCD;
    const CQ: u32 = IBV_SRQ_INIT_ATTR_CQ;
    const TM: u32 = IBV_SRQ_INIT_ATTR_TM;
    // SAFETY: the caller promises that `init` is readable with writable sizes.
    let ex = unsafe { &mut *init };
    let has = |bits: u32| ex.comp_mask & bits == bits;
    let kind = if has(TYPE) { ex.srq_type } else { IBV_SRQT_BASIC };
    let needs = match kind {
        IBV_SRQT_BASIC => PD,
        IBV_SRQT_XRC => PD | XRCD | CQ,
        IBV_SRQT_TM => PD | CQ | TM,
        _ => return object(Err(Refusal::INVALID)),
    };
    if ex.comp_mask & !(TYPE | PD | XRCD | CQ | TM) != 0 {
        return object(Err(Refusal::NOT_SUPPORTED));
    }
    if !has(needs) {
        return object(Err(Refusal::INVALID));
    }
    let mut wanted = Wanted {
        context,
        pd: ex.pd,
        srq_context: ex.srq_context,
        attr: ex.attr,
        kind,
        xrcd: ex.xrcd,
        cq: ex.cq,
        tags: ex.tm_cap,
    };
    // SAFETY: the caller promises that `context` is open and that the objects that `init` names
    // exist.
    object(unsafe { make(&mut wanted) }.inspect(|_| {
        ex.attr.max_wr = wanted.attr.max_wr;
        ex.attr.max_sge = wanted.attr.max_sge;
    }))
}

/// The operation of `ibv_get_srq_num`.
///
/// # Safety
/// `srq` was not destroyed, `srq_num` is writable.
pub unsafe extern "C" fn get_srq_num(srq: *mut ibv_srq, srq_num: *mut u32) -> c_int {
    // SAFETY: the caller promises that `srq` was not destroyed and that `srq_num` is writable.
    unsafe { srq_num.write(SrqObject::of(srq).with(|queue| queue.srqn())) };
    0
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
    const LIMIT: c_int = IBV_SRQ_LIMIT as c_int;
    // SAFETY: the caller promises that `srq` was not destroyed and that `attr` is readable.
    let (this, attr) = unsafe { (SrqObject::of(srq), &*attr) };
    if mask & !LIMIT != 0 {
        return status(Err(Refusal::INVALID));
    }
    if mask == 0 {
        return 0;
    }
    status(this.control.set_limit(attr.srq_limit).map_err(Into::into))
}

/// `ibv_query_srq`.
///
/// # Safety
/// `srq` was not destroyed, `attr` is writable.
pub unsafe extern "C" fn query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
    // SAFETY: the caller promises that `srq` was not destroyed and that `attr` is writable.
    let found = unsafe { SrqObject::of(srq) }.control.query();
    // SAFETY: the caller promises that `attr` is writable.
    status(found.map_err(Into::into).map(|info| unsafe {
        attr.write(ibv_srq_attr {
            max_wr: info.max_wr,
            max_sge: info.max_sge,
            srq_limit: info.limit,
        });
    }))
}

/// `ibv_destroy_srq`: EBUSY while a queue pair has it; waits until its events are acknowledged.
///
/// # Safety
/// `srq` was not destroyed. If the call succeeds, it is used no more.
pub unsafe extern "C" fn destroy_srq(srq: *mut ibv_srq) -> c_int {
    let this: *mut SrqObject = srq.cast();
    // SAFETY: the caller promises that `srq` was not destroyed, and uses it no more if the call
    // succeeds. Other threads may post to a queue in use, and acknowledge events of one that is
    // not: so its kernel object is destroyed under the lock, its memory freed last. After that no
    // event of it is returned, so the count that this waits for is final.
    status(unsafe {
        let context = ContextObject::of((*srq).context);
        let id = (*this).with(|queue| queue.id());
        ended((*this).with(Queue::withdraw).map_err(Into::into)).map(|()| {
            let parent = PdObject::counting((*srq).pd);
            let delivered = context.objects.srqs.remove(&id);
            let (mutex, cond) = (&raw mut (*srq).mutex, &raw mut (*srq).cond);
            wait_for_acks(mutex, cond, &raw const (*srq).events_completed, delivered);
            // A poll that runs this takes the lock of the queue, so wait for it without the lock.
            let _ = (*this).control.on_page_fault(None);
            ManuallyDrop::drop(&mut *(*this).queue.get());
            drop(Box::from_raw(this));
            // Its functions have the memory back now.
            parent.inspect(|parent| parent.release_queue());
            close::again();
        })
    })
}

/// The operation of `ibv_post_srq_recv`.
///
/// # Safety
/// `srq` was not destroyed; `wr` is a list of requests; `bad_wr` is writable.
pub unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller promises that `srq` was not destroyed.
    let this = unsafe { SrqObject::of(srq) };
    // SAFETY: the caller promises that `wr` is a list of requests.
    let posted = this.with(|queue| match (unsafe { single_receive(wr) }, queue) {
        (Some((wr_id, sge)), Queue::Plain(queue)) => queue.recv(wr_id, sge).map_err(only),
        // SAFETY: the caller promises that `wr` is a list of requests.
        (_, queue) => queue.post(unsafe { receives(wr) }),
    });
    match posted {
        Ok(_) => 0,
        // SAFETY: the caller promises that `wr` is a list of requests, and that `bad_wr` is
        // writable.
        Err(error) => unsafe { refused(wr, bad_wr, error, receive_errno) },
    }
}

#[cfg(test)]
mod tests;
