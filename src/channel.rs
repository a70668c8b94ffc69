//! Completion channels: where completion queues that were armed announce completions.

use crate::{
    context::{Context, Inner},
    error::Error,
    event::{CqId, EventCounter, closed, deadline_in, sleep_on},
};
use mlx5_uapi::{EventFile, cmd::event};
use std::{
    collections::HashMap,
    fmt,
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// A completion channel (`struct ibv_comp_channel`). Clones are the same channel; completion queues
/// that announce on it keep it open.
///
/// The descriptor behind [`AsFd`] is readable when an event waits. Nothing need be acknowledged. When
/// the device fails but stays, the kernel tells so on [`Context::async_events`] only:
/// [`CompletionChannel::wait`] looks there too, and who sleeps on the descriptor has to.
#[derive(Clone)]
pub struct CompletionChannel {
    inner: Arc<Channel>,
}

struct Channel {
    events: Box<dyn EventFile>,
    queues: Mutex<Queues>,
    /// Events were read, or nobody sleeps on the file any more.
    read: Condvar,
    context: Arc<Inner>,
}

/// The completion queues that announce on a channel.
#[derive(Default)]
struct Queues {
    by_handle: HashMap<u64, Announcer>,
    /// Somebody sleeps on the file, and will tell the others.
    has_reader: bool,
}

#[derive(Default)]
struct Announcer {
    events: Arc<EventCounter>,
    /// An event of it was read by somebody who waited for another.
    unclaimed: bool,
}

impl Channel {
    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads an event, if one waits; counts it for its queue.
    fn read_event(&self) -> Result<Option<u64>, Error> {
        let context = &self.context;
        loop {
            match event::next_completion(&*self.events) {
                Ok(Some(event)) => {
                    // One that was destroyed since is not worth waking anyone for.
                    if let Some(queue) = self.queues().by_handle.get(&event.cq_handle) {
                        queue.events.count();
                        self.read.notify_all();
                        return Ok(Some(event.cq_handle));
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

    /// Reads all events that wait; those of other queues than `of` are left to be claimed.
    fn read_for(&self, of: u64) -> Result<(), Error> {
        while let Some(handle) = self.read_event()? {
            if handle != of
                && let Some(queue) = self.queues().by_handle.get_mut(&handle)
            {
                queue.unclaimed = true;
            }
        }
        Ok(())
    }
}

const VERB: &str = "get_cq_event";

impl Context {
    /// Makes a completion channel (`ibv_create_comp_channel`).
    pub fn create_comp_channel(&self) -> Result<CompletionChannel, Error> {
        let context = Arc::clone(&self.inner);
        let events = context.run("create_comp_channel", event::create_comp_channel)?;
        let (queues, read) = (Mutex::default(), Condvar::new());
        Ok(CompletionChannel { inner: Arc::new(Channel { events, queues, read, context }) })
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
        Arc::clone(&self.inner.queues().by_handle.entry(handle).or_default().events)
    }

    /// The completion queue is gone; the kernel throws away what it announced.
    pub(crate) fn unregister(&self, handle: u64) {
        // In a child the lock may be held by a thread that is not there.
        if !self.inner.context.forked() {
            self.inner.queues().by_handle.remove(&handle);
        }
    }

    /// The next completion queue that announced a completion, if one did (`ibv_get_cq_event`).
    pub fn get_event(&self) -> Result<Option<CqId>, Error> {
        self.inner.context.check_process(VERB)?;
        let mut queues = self.inner.queues();
        let mut unclaimed = queues.by_handle.iter_mut().filter(|(_, queue)| queue.unclaimed);
        if let Some((handle, queue)) = unclaimed.next() {
            queue.unclaimed = false;
            return Ok(Some(CqId(*handle)));
        }
        drop(queues);
        Ok(self.inner.read_event()?.map(CqId))
    }

    /// The same, waited for: for so long, or without end. `None` if none came in time.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<CqId>, Error> {
        let deadline = deadline_in(timeout);
        loop {
            if let Some(event) = self.get_event()? {
                return Ok(Some(event));
            }
            // Another thread may be faster to take what woke this one.
            if !sleep_on(&self.inner.context, VERB, self.as_kernel_fd(), deadline, || false)? {
                return self.get_event();
            }
        }
    }

    /// Sleeps until one more event of the completion queue `handle` was read than the `seen` ones,
    /// by whomever, or the queue is `in_trouble`; `false` if the time is over before. `look` finds out
    /// whether it is.
    ///
    /// One of those who wait sleeps on the file and reads for all; the others wait for it to tell
    /// them, or to leave its place.
    pub(crate) fn wait_for(
        &self,
        handle: u64,
        seen: u32,
        deadline: Option<Instant>,
        in_trouble: impl Fn() -> bool,
        look: impl Fn(),
    ) -> Result<bool, Error> {
        let channel = &*self.inner;
        channel.context.check_process(VERB)?;
        loop {
            if in_trouble() {
                return Ok(true);
            }
            let mut queues = channel.queues();
            let Some(queue) = queues.by_handle.get_mut(&handle) else { return Ok(false) };
            if queue.events.read() != seen {
                queue.unclaimed = false;
                return Ok(true);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                drop(queues);
                channel.read_for(handle)?;
                let queues = channel.queues();
                let queue = queues.by_handle.get(&handle);
                return Ok(queue.is_some_and(|queue| queue.events.read() != seen));
            }
            if queues.has_reader {
                // What it answers is looked at above.
                match left {
                    Some(left) => drop(channel.read.wait_timeout(queues, left)),
                    None => drop(channel.read.wait(queues)),
                }
                continue;
            }
            queues.has_reader = true;
            drop(queues);
            let _reader = Reader(channel);
            sleep_on(&channel.context, VERB, self.as_kernel_fd(), deadline, || {
                // The trouble may be that of those who wait to be told.
                channel.read.notify_all();
                look();
                in_trouble()
            })?;
            channel.read_for(handle)?;
        }
    }
}

/// Who sleeps on a channel's file. When it leaves, another takes its place.
struct Reader<'a>(&'a Channel);

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        self.0.queues().has_reader = false;
        self.0.read.notify_all();
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.as_kernel_fd()
    }
}

impl AsRawFd for CompletionChannel {
    fn as_raw_fd(&self) -> RawFd {
        self.as_kernel_fd().as_raw_fd()
    }
}

impl fmt::Debug for CompletionChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionChannel").finish_non_exhaustive()
    }
}
