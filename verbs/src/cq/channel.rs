//! Completion channels, and acknowledging what came through them.

use crate::abi::*;
use crate::close;
use crate::context::{ById, ContextObject, Objects, acknowledge};
use crate::kernel;
use crate::object::boxed;
use crate::refusal::{Refusal, Verb, object, status, zero_or_minus_one};
use crate::waiting::{Places, Shown};
use mlx5::{CompletionChannel, CqId, DetachedChannel, Errno};
use mlx5_uapi::cmd::event;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a thread that waits for an event finds again: whose it is.
struct Events {
    channel: Arc<DetachedChannel>,
    queues: Arc<ById<CqId, ibv_cq>>,
}

static EVENTS: Places<Events> = Places::new();

/// A completion channel.
#[repr(C)]
pub(crate) struct ChannelObject {
    c: ibv_comp_channel,
    /// For who waits. It goes before the file does.
    events: Shown<Events>,
    /// Nothing once the device was closed.
    channel: Mutex<Option<CompletionChannel>>,
    detached: Arc<DetachedChannel>,
    queues: Arc<ById<CqId, ibv_cq>>,
    /// Where it is listed.
    objects: Arc<Objects>,
}

/// Lets the channel go, unless a queue uses it.
///
/// # Safety
/// As for [`ChannelObject::of`]; no queue is created meanwhile.
unsafe fn detach(channel: *mut ibv_comp_channel) {
    // SAFETY: by the contract.
    unsafe {
        if ChannelObject::users(channel).load(Relaxed) == 0 {
            drop((*ChannelObject::of(channel)).lock().take());
        }
    }
}

impl ChannelObject {
    /// # Safety
    /// `channel` is a channel that was not destroyed.
    pub(crate) unsafe fn of(channel: *mut ibv_comp_channel) -> *const Self {
        channel.cast()
    }

    fn lock(&self) -> MutexGuard<'_, Option<CompletionChannel>> {
        self.channel.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The channel, for a completion queue that is to use it.
    pub(crate) fn channel(&self) -> Verb<CompletionChannel> {
        self.lock().clone().ok_or(Refusal(libc::EBADF))
    }

    /// The number of completion queues, which C counts in a field that programs may read.
    ///
    /// # Safety
    /// As for [`ChannelObject::of`].
    unsafe fn users<'a>(channel: *mut ibv_comp_channel) -> &'a AtomicI32 {
        // SAFETY: by the contract; the field is aligned, and changed only here.
        unsafe { AtomicI32::from_ptr(&raw mut (*channel).refcnt) }
    }

    /// # Safety
    /// As for [`ChannelObject::of`].
    pub(crate) unsafe fn add(channel: *mut ibv_comp_channel, id: CqId, cq: *mut ibv_cq) {
        // SAFETY: by the contract.
        unsafe {
            Self::users(channel).fetch_add(1, Relaxed);
            (*Self::of(channel)).queues.add(id, cq);
        }
    }

    /// How many events of a completion queue came, after which none comes any more.
    ///
    /// # Safety
    /// As for [`ChannelObject::of`].
    pub(crate) unsafe fn remove(channel: *mut ibv_comp_channel, id: CqId) -> u32 {
        // SAFETY: by the contract.
        unsafe {
            Self::users(channel).fetch_sub(1, Relaxed);
            (*Self::of(channel)).queues.remove(&id)
        }
    }
}

fn create(context: *mut ibv_context) -> Verb<*mut ibv_comp_channel> {
    // SAFETY: by the contract of `create_comp_channel`.
    let of = unsafe { ContextObject::of(context) };
    let channel = of.context.create_comp_channel()?;
    let objects = Arc::clone(&of.objects);
    let (detached, queues) = (Arc::new(channel.detach()), Arc::new(ById::new()));
    let events = Events { channel: Arc::clone(&detached), queues: Arc::clone(&queues) };
    let made: *mut ibv_comp_channel = boxed(ChannelObject {
        c: ibv_comp_channel { context, fd: channel.as_fd().as_raw_fd(), refcnt: 0 },
        events: EVENTS.show(events),
        channel: Mutex::new(Some(channel)),
        detached,
        queues,
        objects,
    });
    of.objects.channels.add(made, detach);
    Ok(made)
}

/// `ibv_create_comp_channel`.
///
/// # Safety
/// `context` is open.
pub unsafe extern "C" fn create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    object(create(context))
}

/// `ibv_destroy_comp_channel`: EBUSY as long as a completion queue has it.
///
/// # Safety
/// `channel` was not destroyed. If the call succeeds, it is used no more.
pub unsafe extern "C" fn destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: by the contract.
    unsafe {
        if ChannelObject::users(channel).load(Relaxed) != 0 {
            return status(Err(Refusal(libc::EBUSY)));
        }
        let objects = Arc::clone(&(*ChannelObject::of(channel)).objects);
        objects.channels.remove(channel);
        drop(Box::<ChannelObject>::from_raw(channel.cast()));
    }
    close::again();
    0
}

/// The next event of the channel: it waits for one unless the descriptor says otherwise. Another thread may
/// destroy the channel meanwhile, so nothing of it is used after.
unsafe fn next(channel: *mut ibv_comp_channel) -> Verb<*mut ibv_cq> {
    // SAFETY: by the contract of `get_cq_event`.
    let (fd, events) = unsafe {
        let this = &*ChannelObject::of(channel);
        if let Some(cq) = this.detached.unclaimed()?.and_then(|event| this.queues.tell(&event)) {
            return Ok(cq);
        }
        (this.detached.as_fd().as_raw_fd(), this.events.waited())
    };
    loop {
        // The thread may be cancelled here: it has numbers alone.
        let read = event::completion_by(|to| kernel::read(fd, to));
        let Some(events) = events.find() else {
            return Err(read.err().unwrap_or(Errno::EBADF).into());
        };
        let event = events.channel.count(read)?.ok_or(Refusal(libc::EAGAIN))?;
        // An event of a completion queue that was destroyed meanwhile is nobody's.
        if let Some(cq) = events.queues.tell(&event) {
            return Ok(cq);
        }
    }
}

/// `ibv_get_cq_event`.
///
/// # Safety
/// `channel` was not destroyed; `cq` and `cq_context` are writable.
pub unsafe extern "C" fn get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: by the contract. The event has to be acknowledged before its queue is freed.
    let found = unsafe { next(channel) };
    // The device may have been closed while the event was looked at.
    close::again();
    // SAFETY: as above.
    zero_or_minus_one(found.map(|found| unsafe {
        cq.write(found);
        cq_context.write((*found).cq_context);
    }))
}

/// `ibv_ack_cq_events`.
///
/// # Safety
/// `cq` had that many events that were not acknowledged.
pub unsafe extern "C" fn ack_cq_events(cq: *mut ibv_cq, events: c_uint) {
    // SAFETY: by the contract.
    unsafe {
        let (mutex, cond) = (&raw mut (*cq).mutex, &raw mut (*cq).cond);
        acknowledge(mutex, cond, &raw mut (*cq).comp_events_completed, events);
    }
}
