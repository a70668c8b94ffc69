//! An open uverbs device: its objects and event files, and the end of both.

use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, Weak};

use mlx5_prm::cmd::alloc::DeallocTransportDomainIn;
use mlx5_uapi::Errno;
use mlx5_uapi::ioctl::object;

use crate::kernel::calls::Calls;
use crate::kernel::event_queue::EventQueue;
use crate::kernel::hca::{Hca, Open};
use crate::kernel::lock;
use crate::kernel::objects::{Body, Objects, Report};
use crate::kernel::uctx::destroy_uctx;

/// The objects that GET_CONTEXT made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    /// The firmware's number of the user context; 0 without DEVX.
    pub(crate) uid: u32,
    pub(crate) transport_domain: u32,
    pub(crate) cqe_version: u8,
}

/// The kind of events that a file delivers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Channel {
    Completion,
    Asynchronous,
    /// Events that DEVX subscribed to; with `omits_event` the event itself is left out.
    DevxEvents {
        omits_event: bool,
    },
    /// Answers to queries of DEVX.
    DevxAnswers,
}

impl Channel {
    /// The error of a read with too small a buffer.
    fn no_room(self) -> Errno {
        if self == Self::DevxAnswers { Errno::ENOSPC } else { Errno::EINVAL }
    }
}

/// An object that ended before it was destroyed.
#[derive(Debug)]
struct Ended {
    kind: u16,
    report: Report,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) context: Option<Context>,
    pub(crate) objects: Objects,
    /// Objects that ended with the device, until their handles are destroyed.
    ended: BTreeMap<u32, Ended>,
    pub(crate) channels: BTreeMap<RawFd, (Channel, Arc<EventQueue>)>,
    default_async: Option<Arc<EventQueue>>,
}

impl State {
    /// The context. Without one no object can be made.
    pub(crate) fn context(&self) -> Result<Context, Errno> {
        self.context.ok_or(Errno::EINVAL)
    }

    /// Destroys the handle of an object that ended with the device; `None` if this one did not.
    pub(crate) fn give_back(&mut self, handle: u32, kind: u16) -> Result<Option<Report>, Errno> {
        match self.ended.get(&handle) {
            Some(ended) if ended.kind != kind => Err(Errno::EINVAL),
            _ => Ok(self.ended.remove(&handle).map(|ended| ended.report)),
        }
    }

    /// Adds an event file and returns its descriptor.
    pub(crate) fn add_channel(&mut self, kind: Channel) -> Result<Arc<EventQueue>, Errno> {
        self.context()?;
        let queue = EventQueue::new(kind.no_room())?;
        self.channels.insert(queue.fd(), (kind, Arc::clone(&queue)));
        if kind == Channel::Asynchronous && self.default_async.is_none() {
            self.default_async = Some(Arc::clone(&queue));
        }
        Ok(queue)
    }

    /// The event file behind a descriptor.
    pub(crate) fn channel(&self, fd: i64, kind: Channel) -> Result<Arc<EventQueue>, Errno> {
        let fd = RawFd::try_from(fd).map_err(|_| Errno::EINVAL)?;
        match self.channels.get(&fd) {
            Some((found, queue)) if *found == kind => Ok(Arc::clone(queue)),
            _ => Err(Errno::EBADF),
        }
    }

    /// The file of DEVX events behind a descriptor, and whether the events are left out.
    pub(crate) fn devx_events(&self, fd: i64) -> Result<(Arc<EventQueue>, bool), Errno> {
        let of = |omits_event| self.channel(fd, Channel::DevxEvents { omits_event });
        of(false).map(|queue| (queue, false)).or_else(|_| of(true).map(|queue| (queue, true)))
    }

    /// The queue for an object's asynchronous events: that of the file named in the call, or the
    /// first one.
    pub(crate) fn async_events(&self, fd: Option<i64>) -> Result<Option<Arc<EventQueue>>, Errno> {
        match fd {
            Some(fd) => self.channel(fd, Channel::Asynchronous).map(Some),
            None => Ok(self.default_async.clone()),
        }
    }
}

/// An open file. It lives as long as anything that keeps it open: the handle of the file itself,
/// and every device page that is mapped through it.
pub(crate) struct OpenFile {
    pub(crate) hca: Arc<Hca>,
    pub(crate) calls: Arc<Calls>,
    pub(crate) state: Mutex<State>,
}

impl OpenFile {
    pub(crate) fn new(hca: &Arc<Hca>, calls: &Arc<Calls>) -> Arc<Self> {
        let file = Arc::new(Self {
            hca: Arc::clone(hca),
            calls: Arc::clone(calls),
            state: Mutex::default(),
        });
        let opened: Weak<Self> = Arc::downgrade(&file);
        hca.opened(opened);
        file
    }

    /// Fails if the device is gone.
    pub(crate) fn check_device(&self) -> Result<(), Errno> {
        if self.hca.is_removed() { Err(Errno::EIO) } else { Ok(()) }
    }

    /// Ends one object.
    pub(crate) fn destroy(&self, state: &mut State, handle: u32) -> Result<Report, Errno> {
        if !state.objects.is_free(handle) {
            return Err(Errno::EBUSY);
        }
        let reported = state.objects.get_mut(handle)?.end(&self.hca)?;
        state.objects.remove(handle);
        Ok(reported)
    }

    /// Ends all objects of the file. Handles that are left can still be destroyed.
    fn clean_up(&self, state: &mut State) {
        // A queue pair leaves its groups before it ends, as it does when the kernel cleans up.
        for handle in state.objects.of_kind(object::QP) {
            if let Ok(qp) = state.objects.qp_mut(handle) {
                qp.leave_groups(&self.hca);
            }
        }
        // The newest objects come first, as users are newer than the objects that they use; a
        // refused one is tried again after the others.
        loop {
            let handles = state.objects.newest_first();
            let before = handles.len();
            for handle in handles {
                let Ok(kind) = state.objects.get(handle).map(Body::kind) else { continue };
                // If it fails, the handle is left and is tried again.
                if let Ok(report) = self.destroy(state, handle) {
                    state.ended.insert(handle, Ended { kind, report });
                }
            }
            if state.objects.newest_first().len() == before {
                break;
            }
        }
        if let Some(context) = state.context.take() {
            self.hca.loopback.leave_context(&self.hca);
            let mut input = <DeallocTransportDomainIn as mlx5_prm::cmd::CommandInput>::request();
            input.set_transport_domain(context.transport_domain);
            // The file is closed, so that no caller is left to get an error; the device's counts
            // show it.
            let _ = self.hca.command(&input);
            if context.uid != 0 {
                let _ = destroy_uctx(&self.hca, context.uid);
            }
        }
        for (kind, queue) in state.channels.values() {
            self.end_channel(*kind, queue);
            queue.close();
        }
        state.default_async = None;
    }

    /// Ends the subscriptions of an event file, and drops their records.
    fn end_channel(&self, kind: Channel, queue: &Arc<EventQueue>) {
        match kind {
            Channel::Completion | Channel::Asynchronous => {}
            Channel::DevxEvents { .. } => {
                lock(&self.hca.hub.routes).devx.end_file(queue);
                queue.clear();
            }
            Channel::DevxAnswers => queue.clear(),
        }
    }

    pub(crate) fn forget_channel(&self, fd: RawFd) {
        let mut state = lock(&self.state);
        let removed = state.channels.remove(&fd);
        if let Some((kind, queue)) = &removed {
            self.end_channel(*kind, queue);
        }
        if let (Some((_, queue)), Some(default)) = (&removed, &state.default_async)
            && Arc::ptr_eq(queue, default)
        {
            state.default_async = None;
        }
    }
}

impl Open for OpenFile {
    fn disassociate(&self) {
        self.clean_up(&mut lock(&self.state));
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        // When a forked child closes the file, the parent still has it open.
        if self.hca.is_this_process() {
            let mut state = std::mem::take(&mut *lock(&self.state));
            self.clean_up(&mut state);
        }
    }
}
