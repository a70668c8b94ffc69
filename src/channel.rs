//! Completion channels: where completion queues that were armed announce completions.

use crate::{
    context::{Context, Inner},
    error::Error,
    event::{CqId, EventCounter, closed, wait_for},
};
use mlx5_uapi::{EventFile, cmd::event};
use std::{
    collections::HashMap,
    fmt,
    os::fd::{AsFd, BorrowedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// A completion channel (`struct ibv_comp_channel`). Clones are the same channel; completion queues
/// that announce on it keep it open.
///
/// The descriptor behind [`AsFd`] is readable when an event waits. Nothing need be acknowledged.
#[derive(Clone)]
pub struct CompletionChannel {
    inner: Arc<Channel>,
}

struct Channel {
    events: Box<dyn EventFile>,
    /// The completion queues that announce here.
    queues: Mutex<HashMap<u64, Arc<EventCounter>>>,
    context: Arc<Inner>,
}

impl Channel {
    fn queues(&self) -> MutexGuard<'_, HashMap<u64, Arc<EventCounter>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const VERB: &str = "get_cq_event";

impl Context {
    /// Makes a completion channel (`ibv_create_comp_channel`).
    pub fn create_comp_channel(&self) -> Result<CompletionChannel, Error> {
        let context = Arc::clone(&self.inner);
        let events = context.run("create_comp_channel", event::create_comp_channel)?;
        Ok(CompletionChannel {
            inner: Arc::new(Channel { events, queues: Mutex::default(), context }),
        })
    }
}

impl CompletionChannel {
    /// The descriptor, as CREATE_CQ is told it.
    pub(crate) fn as_kernel_fd(&self) -> BorrowedFd<'_> {
        self.inner.events.as_fd()
    }

    /// Whether the channel is of this context.
    pub(crate) fn belongs_to(&self, context: &Arc<Inner>) -> bool {
        Arc::ptr_eq(&self.inner.context, context)
    }

    /// A completion queue, by its user handle, announces here from now on.
    pub(crate) fn register(&self, handle: u64) -> Arc<EventCounter> {
        Arc::clone(self.inner.queues().entry(handle).or_default())
    }

    /// The completion queue is gone; the kernel throws away what it announced.
    pub(crate) fn unregister(&self, handle: u64) {
        // In a child the lock may be held by a thread that is not there.
        if !self.inner.context.forked() {
            self.inner.queues().remove(&handle);
        }
    }

    /// The next completion queue that announced a completion, if one did (`ibv_get_cq_event`).
    pub fn get_event(&self) -> Result<Option<CqId>, Error> {
        let Channel { events, context, .. } = &*self.inner;
        context.check_process(VERB)?;
        loop {
            match event::next_completion(&**events) {
                Ok(Some(event)) => {
                    // One that was destroyed since is not worth waking anyone for.
                    if let Some(counter) = self.inner.queues().get(&event.cq_handle) {
                        counter.count();
                        return Ok(Some(CqId(event.cq_handle)));
                    }
                }
                Ok(None) => {
                    // A device that is known to be gone announces nothing more.
                    context.check(VERB)?;
                    return Ok(None);
                }
                Err(errno) => return Err(closed(context, VERB, errno)),
            }
        }
    }

    /// The same, waited for: for so long, or without end. `None` if none came in time.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<CqId>, Error> {
        wait_for(&self.inner.context, VERB, self.as_kernel_fd(), timeout, || self.get_event())
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.as_kernel_fd()
    }
}

impl fmt::Debug for CompletionChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionChannel").finish_non_exhaustive()
    }
}
