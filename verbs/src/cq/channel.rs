//! Completion channels, and acknowledging their events.

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

/// The state that a thread needs after it waited for an event: the channel and its queues.
struct Events {
    channel: Arc<DetachedChannel>,
    queues: Arc<ById<CqId, ibv_cq>>,
}

static EVENTS: Places<Events> = Places::new();

/// A completion channel.
#[repr(C)]
pub(crate) struct ChannelObject {
    c: ibv_comp_channel,
    /// For waiting threads. Dropped before the file.
    events: Shown<Events>,
    /// None once the device was closed.
    channel: Mutex<Option<CompletionChannel>>,
    detached: Arc<DetachedChannel>,
    queues: Arc<ById<CqId, ibv_cq>>,
    /// The list that has the channel.
    objects: Arc<Objects>,
}

/// Closes the channel, unless a queue uses it.
///
/// # Safety
/// As for [`ChannelObject::of`]; no queue is created meanwhile.
unsafe fn detach(channel: *mut ibv_comp_channel) {
    // SAFETY: the caller promises that `channel` was not destroyed.
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

    /// Returns the channel, for a completion queue that will use it.
    pub(crate) fn channel(&self) -> Verb<CompletionChannel> {
        self.lock().clone().ok_or(Refusal(libc::EBADF))
    }

    /// Number of completion queues on the channel, which C counts in a field that programs may
    /// read.
    ///
    /// # Safety
    /// As for [`ChannelObject::of`].
    unsafe fn users<'a>(channel: *mut ibv_comp_channel) -> &'a AtomicI32 {
        // SAFETY: the caller promises that `channel` was not destroyed; the field is aligned, and
        // only this atomic changes it.
        unsafe { AtomicI32::from_ptr(&raw mut (*channel).refcnt) }
    }

    /// # Safety
    /// As for [`ChannelObject::of`].
    pub(crate) unsafe fn add(channel: *mut ibv_comp_channel, id: CqId, cq: *mut ibv_cq) {
        // SAFETY: the caller promises that `channel` was not destroyed.
        unsafe {
            Self::users(channel).fetch_add(1, Relaxed);
            (*Self::of(channel)).queues.add(id, cq);
        }
    }

    /// Removes a completion queue, and returns the number of its events; no more arrive.
    ///
    /// # Safety
    /// As for [`ChannelObject::of`].
    pub(crate) unsafe fn remove(channel: *mut ibv_comp_channel, id: CqId) -> u32 {
        // SAFETY: the caller promises that `channel` was not destroyed.
        unsafe {
            Self::users(channel).fetch_sub(1, Relaxed);
            (*Self::of(channel)).queues.remove(&id)
        }
    }
}

fn create(context: *mut ibv_context) -> Verb<*mut ibv_comp_channel> {
    // SAFETY: the caller of `create_comp_channel` promises that `context` is open.
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

/// `ibv_destroy_comp_channel`: EBUSY while a completion queue uses it.
///
/// # Safety
/// `channel` was not destroyed. If the call succeeds, it is used no more.
pub unsafe extern "C" fn destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: the caller promises that `channel` was not destroyed, and uses it no more if the call
    // succeeds.
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

/// Returns the next event of the channel; waits for one unless the descriptor is non-blocking.
/// Another thread may destroy the channel meanwhile, so the function uses nothing of it after
/// waiting.
unsafe fn next(channel: *mut ibv_comp_channel) -> Verb<*mut ibv_cq> {
    // SAFETY: the caller of `get_cq_event` promises that `channel` was not destroyed.
    let (fd, events) = unsafe {
        let this = &*ChannelObject::of(channel);
        if let Some(cq) = this.detached.unclaimed()?.and_then(|event| this.queues.deliver(&event)) {
            return Ok(cq);
        }
        (this.detached.as_fd().as_raw_fd(), this.events.waited())
    };
    loop {
        // The thread may be cancelled here: it holds only numbers.
        let read = event::completion_by(|to| kernel::read(fd, to));
        let Some(events) = events.find() else {
            return Err(read.err().unwrap_or(Errno::EBADF).into());
        };
        let event = events.channel.count(read)?.ok_or(Refusal(libc::EAGAIN))?;
        // Skip an event of a completion queue that was destroyed meanwhile.
        if let Some(cq) = events.queues.deliver(&event) {
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
    // SAFETY: the caller promises that `channel` was not destroyed.
    let found = unsafe { next(channel) };
    // The device may have been closed while this thread handled the event.
    close::again();
    // SAFETY: the caller promises that `cq` and `cq_context` are writable. The queue `found` is
    // freed only after its event was acknowledged.
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
    // SAFETY: the caller promises that `cq` has that many events that were not acknowledged.
    unsafe {
        let (mutex, cond) = (&raw mut (*cq).mutex, &raw mut (*cq).cond);
        acknowledge(mutex, cond, &raw mut (*cq).comp_events_completed, events);
    }
}
