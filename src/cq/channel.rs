//! Completion channels: events of armed completion queues.

use crate::{
    context::{Context, Inner},
    error::Error,
    link::{CqId, closed, deadline_in, sleep_on},
};
use mlx5_uapi::{Errno, EventFile, cmd::event, verbs::CompEventDesc};
use std::{
    collections::HashMap,
    fmt,
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// A completion channel (`struct ibv_comp_channel`). Clones share the channel, and completion
/// queues that use it keep it open.
///
/// The descriptor ([`AsFd`]) is readable while an event is pending. Events need no acknowledgement.
/// When the device fails without being removed, the kernel reports it on [`Context::async_events`]
/// only: [`CompletionChannel::wait`] watches that file too, and a program that sleeps on the
/// descriptor itself must do the same.
#[derive(Clone)]
pub struct CompletionChannel {
    inner: Arc<Channel>,
}

struct Channel {
    events: Arc<dyn EventFile>,
    queues: Mutex<Queues>,
    /// Notified when events were read, or when no thread sleeps on the file any more.
    read: Condvar,
    context: Arc<Inner>,
}

/// The number of events of a queue that were read from its channel.
#[derive(Default, Debug)]
pub(crate) struct EventCounter(AtomicU32);

impl EventCounter {
    /// Returns the number.
    pub(crate) fn read(&self) -> u32 {
        self.0.load(Relaxed)
    }

    /// Adds one.
    pub(crate) fn count(&self) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// The completion queues of a channel.
#[derive(Default)]
struct Queues {
    by_handle: HashMap<u64, Announcer>,
    /// Upper bound of the number of queues that are marked as unclaimed.
    unclaimed: usize,
    /// Whether a thread sleeps on the file and will wake the others.
    has_reader: bool,
}

#[derive(Default)]
struct Announcer {
    events: Arc<EventCounter>,
    /// Whether a thread that waited for another queue has read an event of this one.
    unclaimed: bool,
}

/// The result of a read.
enum Read {
    /// An event of this queue, or none.
    Event(Option<u64>),
    /// An event of a completion queue that was destroyed meanwhile.
    Stale,
}

impl Channel {
    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads one event, if one is pending, and counts it for its queue.
    fn read_event(&self) -> Result<Option<u64>, Error> {
        loop {
            if let Read::Event(handle) = self.count(event::next_completion(&*self.events))? {
                return Ok(handle);
            }
        }
    }

    /// Counts the result of a read for its queue.
    fn count(&self, read: Result<Option<CompEventDesc>, Errno>) -> Result<Read, Error> {
        let context = &self.context;
        match read {
            Ok(Some(event)) => match self.queues().by_handle.get(&event.cq_handle) {
                Some(queue) => {
                    queue.events.count();
                    self.read.notify_all();
                    Ok(Read::Event(Some(event.cq_handle)))
                }
                None => Ok(Read::Stale),
            },
            Ok(None) => {
                // A device that is gone reports no more events.
                context.check(VERB)?;
                Ok(Read::Event(None))
            }
            Err(errno) => Err(closed(context, VERB, errno)),
        }
    }

    /// Returns a queue whose event another thread has read.
    fn unclaimed(&self) -> Option<CqId> {
        let mut queues = self.queues();
        if queues.unclaimed == 0 {
            return None;
        }
        let mut all = queues.by_handle.iter_mut();
        let found = all.find(|(_, queue)| queue.unclaimed).map(|(handle, queue)| {
            queue.unclaimed = false;
            CqId(*handle)
        });
        // If none is left, the counted ones have been claimed or removed otherwise.
        queues.unclaimed = if found.is_some() { queues.unclaimed - 1 } else { 0 };
        found
    }

    /// Reads all pending events. Marks those of queues other than `of` as unclaimed.
    fn read_for(&self, of: u64) -> Result<(), Error> {
        while let Some(handle) = self.read_event()? {
            if handle == of {
                continue;
            }
            let mut queues = self.queues();
            if let Some(queue) = queues.by_handle.get_mut(&handle) {
                let marked = std::mem::replace(&mut queue.unclaimed, true);
                queues.unclaimed += usize::from(!marked);
            }
        }
        Ok(())
    }
}

const VERB: &str = "get_cq_event";

impl Context {
    /// Creates a completion channel (`ibv_create_comp_channel`).
    pub fn create_comp_channel(&self) -> Result<CompletionChannel, Error> {
        let context = Arc::clone(&self.inner);
        let events = context.run("create_comp_channel", event::create_comp_channel)?;
        let (events, queues, read) = (events.into(), Mutex::default(), Condvar::new());
        Ok(CompletionChannel { inner: Arc::new(Channel { events, queues, read, context }) })
    }
}

impl CompletionChannel {
    /// Returns the descriptor, for CREATE_CQ.
    pub(crate) fn as_kernel_fd(&self) -> BorrowedFd<'_> {
        self.inner.events.as_fd()
    }

    /// Whether the channel belongs to this context.
    pub(crate) fn belongs_to(&self, context: &Arc<Inner>) -> bool {
        Arc::ptr_eq(&self.inner.context, context)
    }

    /// Adds the completion queue with user handle `handle`.
    pub(crate) fn register(&self, handle: u64) -> Arc<EventCounter> {
        Arc::clone(&self.inner.queues().by_handle.entry(handle).or_default().events)
    }

    /// Removes a destroyed completion queue; the kernel discards its pending events.
    pub(crate) fn unregister(&self, handle: u64) {
        // After a fork, a thread that does not exist in the child may hold the lock.
        if !self.inner.context.forked() {
            self.inner.queues().by_handle.remove(&handle);
        }
    }

    /// Returns the completion queue of the next event, if one is pending (`ibv_get_cq_event`).
    pub fn get_event(&self) -> Result<Option<CqId>, Error> {
        self.inner.context.check_process(VERB)?;
        match self.inner.unclaimed() {
            Some(queue) => Ok(Some(queue)),
            None => Ok(self.inner.read_event()?.map(CqId)),
        }
    }

    /// Returns the same channel for threads that read its file themselves and may block there (the
    /// caller sets the descriptor's flags), while another thread drops the channel or closes the
    /// device. It keeps the file open, but neither the channel nor the device.
    pub fn detach(&self) -> DetachedChannel {
        let events = Arc::clone(&self.inner.events);
        DetachedChannel { events, channel: Arc::downgrade(&self.inner) }
    }

    /// Waits for the next event, without limit if `timeout` is `None`. Returns `None` on timeout.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<CqId>, Error> {
        let deadline = deadline_in(timeout);
        loop {
            if let Some(event) = self.get_event()? {
                return Ok(Some(event));
            }
            // Another thread may have read the event that woke this one: wait again.
            if !sleep_on(&self.inner.context, VERB, self.as_kernel_fd(), deadline, || false)? {
                return self.get_event();
            }
        }
    }

    /// Sleeps until any thread has read an event of completion queue `handle` since the count was
    /// `seen`, or until `has_failed` holds. Returns `false` on timeout. `check` detects failures.
    ///
    /// One waiting thread sleeps on the file and reads for all. The others sleep until it wakes
    /// them or stops waiting.
    pub(crate) fn wait_for(
        &self,
        handle: u64,
        seen: u32,
        deadline: Option<Instant>,
        has_failed: impl Fn() -> bool,
        check: impl Fn(),
    ) -> Result<bool, Error> {
        let channel = &*self.inner;
        channel.context.check_process(VERB)?;
        loop {
            if has_failed() {
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
                // The loop checks everything again, after a notification as after a timeout.
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
                // The failure may concern a queue that another thread waits for.
                channel.read.notify_all();
                check();
                has_failed()
            })?;
            channel.read_for(handle)?;
        }
    }
}

/// A completion channel without its context. See [`CompletionChannel::detach`].
pub struct DetachedChannel {
    events: Arc<dyn EventFile>,
    channel: Weak<Channel>,
}

impl fmt::Debug for DetachedChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DetachedChannel").finish_non_exhaustive()
    }
}

impl DetachedChannel {
    /// Returns a completion queue whose event was already read by a thread that waited for another
    /// queue. Call it before each read.
    pub fn unclaimed(&self) -> Result<Option<CqId>, Error> {
        let Some(channel) = self.channel.upgrade() else { return Ok(None) };
        channel.context.check_process(VERB)?;
        Ok(channel.unclaimed())
    }

    /// Counts the result of a read from the file, `Ok(None)` for no event, and returns the
    /// completion queue of the event, which may have been destroyed meanwhile. Once the channel is
    /// dropped, fails with the kernel's error, or with `EBADF` if there is none.
    pub fn count(&self, read: Result<Option<CompEventDesc>, Errno>) -> Result<Option<CqId>, Error> {
        let Some(channel) = self.channel.upgrade() else {
            return Err(Error::kernel(VERB, read.err().unwrap_or(Errno::EBADF)));
        };
        let about = read.as_ref().ok().and_then(|event| Some(CqId(event.as_ref()?.cq_handle)));
        match channel.count(read)? {
            Read::Event(handle) => Ok(handle.map(CqId)),
            Read::Stale => Ok(about),
        }
    }
}

impl AsFd for DetachedChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

/// The thread that sleeps on a channel's file. Dropping it lets another thread take over.
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
        f.debug_struct("CompletionChannel")
            .field("device", &self.inner.context.info.name)
            .finish_non_exhaustive()
    }
}
