//! Completion queues and their channels.

pub mod channel;
pub mod extended;
pub mod poll;

use crate::abi::*;
use crate::close;
use crate::context::{ContextObject, wait_for_acks};
use crate::environment;
use crate::object::{Blank, boxed, ended};
use crate::parent::Purpose;
use crate::pd::PdObject;
use crate::refusal::{Refusal, Verb, object, status};
use crate::spin::Spin;
use channel::ChannelObject;
use extended::WallClock;
use mlx5::{
    CompletionCursor, CompletionQueue, CompletionTarget, CqeCompression, CqeSize, Timestamps,
};
use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;

/// The tag of the completions of raw packet queue pairs, whose checksums are reported to programs.
/// Other completions have no tag.
pub(crate) const PACKETS: u64 = 1;

/// A completion queue. A pointer to it is an `ibv_cq`, and an `ibv_cq_ex` if it was made as one.
#[repr(C)]
pub(crate) struct CqObject {
    pub(crate) c: UnsafeCell<ibv_cq_ex>,
    pub(crate) lock: Spin,
    queue: UnsafeCell<ManuallyDrop<CompletionCursor>>,
    /// For operations on the queue while another thread polls it: C takes no lock for them, and a
    /// program may call them with its own lock held, for which the polling thread waits between two
    /// calls.
    target: CompletionTarget,
    wall_clock: Option<WallClock>,
    /// The parent domain that created it, or NULL.
    domain: *mut ibv_pd,
}

impl CqObject {
    /// # Safety
    /// `cq` is a completion queue that was not destroyed.
    #[inline(always)]
    pub(crate) unsafe fn of<'a>(cq: *mut ibv_cq) -> &'a Self {
        // SAFETY: the caller promises that `cq` is a completion queue that was not destroyed: it is
        // the first field of an object of this type.
        unsafe { &*cq.cast() }
    }

    /// Returns the queue, for a caller that holds the lock.
    ///
    /// # Safety
    /// The caller holds `lock`, or no other code uses the queue, as long as the reference lives.
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "the lock makes it exclusive")]
    pub(crate) unsafe fn cursor(&self) -> &mut CompletionCursor {
        // SAFETY: the caller holds `lock`, or no other code uses the queue.
        unsafe { &mut *self.queue.get() }
    }

    /// Runs `body` with the queue and the lock held. If this thread started a poll, it has the lock
    /// already, and the poll ends.
    pub(crate) fn with_mut<R>(&self, body: impl FnOnce(&mut CompletionQueue) -> R) -> R {
        // SAFETY: the lock is held.
        let body = || body(unsafe { self.cursor() }.queue());
        if self.lock.is_mine() { body() } else { self.lock.hold(body) }
    }

    /// Runs `body` with the queue, unless another thread polls it, or may poll it because the queue
    /// has no lock. A poll that this thread started continues.
    fn unless_polled<R>(&self, body: impl FnOnce(&CompletionQueue) -> R) -> Option<R> {
        let mine = self.lock.is_mine();
        let held = mine || self.lock.is_needed() && self.lock.try_lock();
        if !held {
            return None;
        }
        // SAFETY: the lock is held.
        let result = body(unsafe { self.cursor() });
        if !mine {
            self.lock.unlock();
        }
        Some(result)
    }

    /// Returns the queue's handle for a new queue that completes on it. This forgets destroyed
    /// queue pairs, unless another thread polls or may poll: polls forget them, too.
    pub(crate) fn target(&self) -> CompletionTarget {
        self.unless_polled(CompletionQueue::target).unwrap_or_else(|| self.target.clone())
    }
}

/// Parameters of a completion queue.
pub(crate) struct Wanted {
    pub(crate) context: *mut ibv_context,
    pub(crate) entries: c_int,
    pub(crate) cq_context: *mut c_void,
    pub(crate) channel: *mut ibv_comp_channel,
    pub(crate) comp_vector: c_int,
    /// A parent domain, or NULL.
    pub(crate) parent_domain: *mut ibv_pd,
    pub(crate) ignore_overrun: bool,
    pub(crate) single_threaded: bool,
    pub(crate) timestamps: Timestamps,
    pub(crate) attributes: Attributes,
}

/// The additional parameters of `mlx5dv_create_cq`.
#[derive(Clone, Copy, Default)]
pub(crate) struct Attributes {
    /// If unset, the environment decides.
    pub(crate) size: Option<CqeSize>,
    pub(crate) compression: Option<CqeCompression>,
    pub(crate) padding: bool,
}

/// Creates a completion queue; `fill` sets the fields of one that is polled in steps.
///
/// # Safety
/// Context, channel and domain exist; channel and domain may be NULL.
pub(crate) unsafe fn make(
    wanted: &Wanted,
    wall_clock: Option<WallClock>,
    fill: impl FnOnce(&mut ibv_cq_ex),
) -> Verb<*mut CqObject> {
    // SAFETY: the caller promises that the context is open.
    let context = unsafe { ContextObject::of(wanted.context) };
    let entries = u32::try_from(wanted.entries).map_err(|_| Refusal::INVALID)?;
    let vector = u32::try_from(wanted.comp_vector).map_err(|_| Refusal::INVALID)?;
    let mut builder = context.context.create_cq(entries).comp_vector(vector);
    let Attributes { size, compression, padding } = wanted.attributes;
    builder = builder.cqe_size(size.map_or_else(environment::cqe_size, Ok)?).padding(padding);
    if let Some(format) = compression {
        builder = builder.compression(format);
    }
    // As in C, no poll makes a system call: events report that the device is gone or the queue
    // overran.
    builder = builder.checks(false);
    builder = builder.ignore_overrun(wanted.ignore_overrun).timestamps(wanted.timestamps);
    let channel = match wanted.channel.is_null() {
        true => None,
        // SAFETY: the caller promises that the channel was not destroyed; it is not NULL here.
        false => Some(unsafe { &*ChannelObject::of(wanted.channel) }.channel()?),
    };
    if let Some(channel) = &channel {
        builder = builder.channel(channel);
    }
    // SAFETY: the caller promises that the domain exists; it is not NULL here.
    let domain =
        (!wanted.parent_domain.is_null()).then(|| unsafe { PdObject::of(wanted.parent_domain) });
    let allocator = domain
        .and_then(|domain| domain.allocator(Purpose::CompletionQueue))
        .or_else(|| context.dv.allocator());
    builder = match &allocator {
        Some(allocator) => builder.allocator(allocator),
        None => builder.huge_pages(environment::pages("MLX_CQ_ALLOC_TYPE")),
    };
    let queue = builder.build()?;
    if let Some(domain) = domain {
        domain.hold();
    }
    let (id, target) = (queue.id(), queue.target());
    let mut c = ibv_cq_ex::blank();
    c.context = wanted.context;
    c.channel = wanted.channel;
    c.cq_context = wanted.cq_context;
    c.handle = queue.kernel_handle().unwrap_or(0);
    c.cqe = queue.capacity() as c_int;
    c.mutex = libc::PTHREAD_MUTEX_INITIALIZER;
    c.cond = libc::PTHREAD_COND_INITIALIZER;
    fill(&mut c);
    let made: *mut CqObject = boxed(CqObject {
        c: UnsafeCell::new(c),
        lock: Spin::new(context.environment.locks && !wanted.single_threaded),
        queue: UnsafeCell::new(ManuallyDrop::new(queue.into_cursor())),
        target,
        wall_clock,
        domain: wanted.parent_domain,
    });
    context.objects.cqs.add(id, made.cast());
    if !wanted.channel.is_null() {
        // SAFETY: the caller promises that the channel was not destroyed; it is not NULL here.
        unsafe { ChannelObject::add(wanted.channel, id, made.cast()) };
    }
    Ok(made)
}

/// `ibv_create_cq`.
///
/// # Safety
/// `context` is open; `channel` is NULL or a channel of it.
pub unsafe extern "C" fn create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    let wanted = Wanted {
        context,
        entries: cqe,
        cq_context,
        channel,
        comp_vector,
        parent_domain: std::ptr::null_mut(),
        ignore_overrun: false,
        single_threaded: false,
        timestamps: Timestamps::Cycles,
        attributes: Attributes::default(),
    };
    // SAFETY: the caller promises that `context` is open, and that `channel` is NULL or a channel
    // of it.
    object(unsafe { make(&wanted, None, |_| ()) }.map(<*mut CqObject>::cast))
}

/// `ibv_destroy_cq`: waits until its events are acknowledged.
///
/// # Safety
/// `cq` was not destroyed. If the call succeeds, it is used no more.
pub unsafe extern "C" fn destroy_cq(cq: *mut ibv_cq) -> c_int {
    let this: *mut CqObject = cq.cast();
    // SAFETY: the caller promises that `cq` was not destroyed, and uses it no more if the call
    // succeeds. Other threads may poll a queue in use, and acknowledge events of one that is not:
    // so its kernel object is destroyed first, its memory freed last. After that no event of it is
    // returned, so the counts that this waits for are final.
    status(unsafe {
        let (context, id) = (ContextObject::of((*cq).context), (*this).target.id());
        let channel = (*cq).channel;
        let done = (*this).target.withdraw();
        ended(done.map_err(Into::into)).map(|()| {
            let parent = PdObject::counting((*this).domain);
            let delivered = context.objects.cqs.remove(&id);
            let (mutex, cond) = (&raw mut (*cq).mutex, &raw mut (*cq).cond);
            wait_for_acks(mutex, cond, &raw const (*cq).async_events_completed, delivered);
            if !channel.is_null() {
                let delivered = ChannelObject::remove(channel, id);
                wait_for_acks(mutex, cond, &raw const (*cq).comp_events_completed, delivered);
            }
            ManuallyDrop::drop(&mut *(*this).queue.get());
            drop(Box::from_raw(this));
            // Its functions have the memory back now.
            parent.inspect(|parent| parent.release_queue());
            close::again();
        })
    })
}

/// `ibv_resize_cq`.
///
/// # Safety
/// `cq` was not destroyed.
pub unsafe extern "C" fn resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    let Ok(entries) = u32::try_from(cqe) else { return status(Err(Refusal::INVALID)) };
    // SAFETY: the caller promises that `cq` was not destroyed.
    status(unsafe { CqObject::of(cq) }.with_mut(|queue| {
        queue.resize(entries)?;
        // SAFETY: the caller promises that `cq` was not destroyed. The lock is held, because
        // another thread may resize the queue, too.
        unsafe { (*cq).cqe = queue.capacity() as c_int };
        Ok(())
    }))
}

/// The operation of `ibv_modify_cq`.
///
/// # Safety
/// `cq` was not destroyed, `attr` is readable.
pub unsafe extern "C" fn modify_cq(cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int {
    // SAFETY: the caller promises that `cq` was not destroyed and that `attr` is readable.
    let (this, attr) = unsafe { (CqObject::of(cq), &*attr) };
    if attr.attr_mask != IBV_CQ_ATTR_MODERATE {
        return status(Err(Refusal::INVALID));
    }
    let ibv_moderate_cq { cq_count, cq_period } = attr.moderate;
    status(this.target.moderate(cq_count, cq_period).map_err(Into::into))
}

/// The operation of `ibv_req_notify_cq`.
///
/// # Safety
/// `cq` was not destroyed.
pub unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: the caller promises that `cq` was not destroyed.
    let (this, channel) = unsafe { (CqObject::of(cq), (*cq).channel) };
    if channel.is_null() {
        // As in C, no event is requested.
        return 0;
    }
    let solicited = solicited_only != 0;
    let armed = this.unless_polled(|queue| queue.arm(solicited));
    status(armed.unwrap_or_else(|| this.target.arm(solicited)).map_err(Into::into))
}
