//! The queues of a hub, by number.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::mem;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};

use mlx5::{AsyncEvent, WorkCompletion};

use crate::error::Ended;
use crate::slots::MOST;
use crate::wakes::{Place, Waiting, Wakes};

/// Identifies a completion's request, encoded in the request's `wr_id`: the queue, its side,
/// whether it is the last part of its request, and the slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Name {
    pub(crate) queue: u32,
    pub(crate) receive: bool,
    pub(crate) last: bool,
    pub(crate) slot: u32,
}

impl Name {
    const RECEIVE: u64 = 1 << 31;
    const LAST: u64 = 1 << 30;
    /// Limit of a queue's slots.
    pub(crate) const SLOTS: u32 = MOST;

    const FITS: () = assert!(Self::SLOTS as u64 <= Self::LAST, "the bits of a slot are its own");

    pub(crate) fn wr_id(self) -> u64 {
        const { Self::FITS };
        let flag = |set, bit| if set { bit } else { 0 };
        u64::from(self.queue) << 32
            | flag(self.receive, Self::RECEIVE)
            | flag(self.last, Self::LAST)
            | u64::from(self.slot)
    }

    pub(crate) fn of(wr_id: u64) -> Self {
        Self {
            queue: (wr_id >> 32) as u32,
            receive: wr_id & Self::RECEIVE != 0,
            last: wr_id & Self::LAST != 0,
            slot: wr_id as u32 & (Self::SLOTS - 1),
        }
    }
}

/// The receiver of a queue's completions.
pub(crate) trait Route: Send + Sync {
    /// Records a completion. Returns whether the queue is closed and has no posted request; `None`
    /// if the completion belongs to no request.
    fn complete(
        &self,
        name: Name,
        completion: &WorkCompletion<'_>,
        wakes: &mut Wakes,
    ) -> Option<bool>;

    /// Takes no more requests, and flushes the posted ones, if the queue can be flushed.
    fn close(&self);

    /// The pump has polled all completions that were queued when the queue was flushed.
    fn note_drained(&self, wakes: &mut Wakes);

    /// Gives back the requests whose completions the driver has dropped with their queue pairs.
    fn take_discarded(&self, wakes: &mut Wakes);

    /// Takes no more sends.
    fn end_sends(&self);

    /// Ready when no send is with the device.
    fn poll_sent(&self, cx: &Context<'_>, place: &mut Place) -> Poll<Result<(), Ended>>;

    /// Stops waiting for [`Route::poll_sent`].
    fn leave_sent(&self, place: &mut Place);

    /// Fails the posted requests: their outcome is unknown.
    fn lose(&self, end: Ended, wakes: &mut Wakes);

    /// Maximum number of completions at a time.
    fn completions(&self) -> u32;
}

/// A queue of a hub.
#[derive(Clone)]
pub(crate) enum Queue {
    /// A queue pair. It stays until it has been closed, and nothing is posted.
    Pair(Arc<dyn Route>),
    /// A shared receive queue, by its number in the device. Handles and queue pairs keep it alive.
    Receives(u32, Weak<dyn Route>),
}

impl Queue {
    pub(crate) fn route(&self) -> Option<Arc<dyn Route>> {
        match self {
            Self::Pair(queue) => Some(Arc::clone(queue)),
            Self::Receives(_, queue) => queue.upgrade(),
        }
    }
}

#[derive(Default)]
struct Queues {
    by_number: HashMap<u32, Queue>,
    next: u32,
    /// Maximum number of completions at a time, of all queues.
    completions: u32,
    /// Number of shared receive queues. Most hubs have none.
    receives: u32,
    /// Set once the hub takes no more queues.
    end: Option<Ended>,
}

impl Queues {
    fn routes(&self) -> Vec<Arc<dyn Route>> {
        self.by_number.values().filter_map(Queue::route).collect()
    }

    fn has_pairs(&self) -> bool {
        self.by_number.values().any(|queue| matches!(queue, Queue::Pair(_)))
    }

    /// Allocates the number of another queue, if there is room for its completions.
    fn admit(&mut self, completions: u32, room: u32) -> Result<u32, NotAdded> {
        if let Some(end) = self.end {
            return Err(NotAdded::Ended(end));
        }
        let left = room.saturating_sub(self.completions);
        if completions > left {
            return Err(NotAdded::CompletionQueueFull { needed: completions, left });
        }
        // Numbers are reused only after four billion others.
        while self.by_number.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let number = self.next;
        self.next = number.wrapping_add(1);
        self.completions += completions;
        Ok(number)
    }
}

/// The device's events that were read.
#[derive(Default)]
pub(crate) struct Events {
    pub(crate) pending: VecDeque<AsyncEvent>,
    pub(crate) waiting: Waiting,
    /// Number of streams that read them.
    pub(crate) streams: usize,
    pub(crate) over: bool,
}

/// The state that handles, futures and the pump share.
pub(crate) struct Registry {
    queues: Mutex<Queues>,
    /// Number of queues that were removed.
    removed: AtomicU64,
    stopping: AtomicBool,
    /// Flushed queue pairs for the pump to drain.
    draining: Mutex<Vec<u32>>,
    /// Whether `draining` has entries.
    has_draining: AtomicBool,
    strays: AtomicU64,
    events: Mutex<Events>,
    nudged: AtomicBool,
    nudge: (PipeReader, PipeWriter),
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").finish_non_exhaustive()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registry {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            queues: Mutex::default(),
            removed: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            draining: Mutex::default(),
            has_draining: AtomicBool::new(false),
            strays: AtomicU64::new(0),
            events: Mutex::default(),
            nudged: AtomicBool::new(false),
            nudge: io::pipe()?,
        })
    }

    /// Adds the queue pair that `make` creates for its number, if the completion queue has room for
    /// its completions besides those of the other queues. `srqn` is the shared receive queue that
    /// it uses, which is passed to `make`.
    pub(crate) fn add<R: Route + 'static>(
        &self,
        completions: u32,
        room: u32,
        srqn: Option<u32>,
        make: impl FnOnce(u32, Option<Arc<dyn Route>>) -> R,
    ) -> Result<Arc<R>, NotAdded> {
        let has = |queue: &Queue| match queue {
            Queue::Receives(number, queue) if Some(*number) == srqn => queue.upgrade(),
            _ => None,
        };
        // If this drops it, it does so without the lock: the last reference needs the lock for its
        // drop.
        let receives = locked(&self.queues).by_number.values().find_map(has);
        if srqn.is_some() && receives.is_none() {
            return Err(NotAdded::OtherSharedReceiveQueue);
        }
        let mut queues = locked(&self.queues);
        let number = queues.admit(completions, room)?;
        let queue = Arc::new(make(number, receives));
        queues.by_number.insert(number, Queue::Pair(queue.clone()));
        Ok(queue)
    }

    /// Adds a shared receive queue in the same way.
    pub(crate) fn add_receives<R: Route + 'static>(
        &self,
        completions: u32,
        room: u32,
        srqn: u32,
        make: impl FnOnce(u32) -> R,
    ) -> Result<Arc<R>, NotAdded> {
        let mut queues = locked(&self.queues);
        let number = queues.admit(completions, room)?;
        let queue = Arc::new(make(number));
        let weak: Weak<R> = Arc::downgrade(&queue);
        queues.by_number.insert(number, Queue::Receives(srqn, weak));
        queues.receives += 1;
        Ok(queue)
    }

    /// Removes a queue that gets no more completions.
    pub(crate) fn remove(&self, number: u32, completions: u32) {
        let mut queues = locked(&self.queues);
        let Some(queue) = queues.by_number.remove(&number) else { return };
        queues.completions -= completions;
        queues.receives -= u32::from(matches!(queue, Queue::Receives(..)));
        self.removed.fetch_add(1, Ordering::Release);
        drop(queues);
        // This may destroy the queue pair.
        drop(queue);
        // The pump clears its cache, or ends.
        self.nudge();
    }

    pub(crate) fn get(&self, number: u32) -> Option<Queue> {
        locked(&self.queues).by_number.get(&number).cloned()
    }

    /// Makes the pump call [`Route::note_drained`] of a flushed queue pair once it has polled all
    /// that is in the completion queue.
    pub(crate) fn drain(&self, number: u32) {
        let mut draining = locked(&self.draining);
        draining.push(number);
        self.has_draining.store(true, Ordering::Release);
        drop(draining);
        self.nudge();
    }

    /// Whether there are queue pairs to drain that the pump has not taken.
    pub(crate) fn has_draining(&self) -> bool {
        self.has_draining.load(Ordering::Acquire)
    }

    /// Takes the queue pairs to drain, if there are any.
    pub(crate) fn take_draining(&self) -> Option<Vec<u32>> {
        if !self.has_draining.load(Ordering::Acquire) {
            return None;
        }
        let mut draining = locked(&self.draining);
        self.has_draining.store(false, Ordering::Relaxed);
        Some(mem::take(&mut draining))
    }

    /// Returns the queues of the hub.
    pub(crate) fn routes(&self) -> Vec<Arc<dyn Route>> {
        locked(&self.queues).routes()
    }

    /// Gives back the requests of shared receive queues whose completions the driver has dropped.
    pub(crate) fn take_discarded(&self, wakes: &mut Wakes) {
        let queues = locked(&self.queues);
        if queues.receives == 0 {
            return;
        }
        let all = queues.routes();
        drop(queues);
        all.iter().for_each(|queue| queue.take_discarded(wakes));
        wakes.wake();
    }

    /// Returns the number of removed queues, which changes with each removal.
    pub(crate) fn removed(&self) -> u64 {
        self.removed.load(Ordering::Acquire)
    }

    /// Closes all queues. The pump ends when no request is posted any more.
    pub(crate) fn stop(&self) {
        let mut queues = locked(&self.queues);
        queues.end = queues.end.or(Some(Ended::Closed));
        let all = queues.routes();
        drop(queues);
        self.stopping.store(true, Ordering::Release);
        for queue in all {
            queue.close();
        }
        self.nudge();
    }

    /// Whether all queues are closed.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Whether a queue pair waits for completions.
    pub(crate) fn has_pairs(&self) -> bool {
        locked(&self.queues).has_pairs()
    }

    /// Ends the pump: the outcome of posted requests is unknown.
    pub(crate) fn end(&self, end: Ended) {
        let mut queues = locked(&self.queues);
        queues.end = Some(end);
        queues.completions = 0;
        let all = queues.routes();
        let gone = mem::take(&mut queues.by_number);
        drop(queues);
        drop(gone);
        let mut wakes = Wakes::default();
        for queue in all {
            queue.lose(end, &mut wakes);
        }
        let mut events = locked(&self.events);
        events.over = true;
        events.waiting.wake(&mut wakes);
        drop(events);
        wakes.wake();
    }

    pub(crate) fn note_stray(&self) {
        self.strays.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn strays(&self) -> u64 {
        self.strays.load(Ordering::Relaxed)
    }

    pub(crate) fn events(&self) -> MutexGuard<'_, Events> {
        locked(&self.events)
    }

    /// Wakes a sleeping pump.
    pub(crate) fn nudge(&self) {
        if !self.nudged.swap(true, Ordering::AcqRel) {
            // It fails only if the reader is closed, which is in the same structure.
            let _ = (&self.nudge.1).write_all(&[0]);
        }
    }

    /// Consumes a nudge, so that the descriptor is quiet until the next.
    pub(crate) fn take_nudge(&self) {
        if self.nudged.swap(false, Ordering::AcqRel) {
            // The caller that set the flag writes a byte; this waits at most until it is written.
            let _ = (&self.nudge.0).read_exact(&mut [0]);
        }
    }

    pub(crate) fn nudge_fd(&self) -> BorrowedFd<'_> {
        self.nudge.0.as_fd()
    }
}

/// The reason why a queue was not added to a hub.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NotAdded {
    /// The completion queue could overflow: it needs room for every request that may be posted.
    CompletionQueueFull {
        /// The requests that the queue holds.
        needed: u32,
        /// The completions for which there is room.
        left: u32,
    },
    /// The queue pair completes on another completion queue.
    OtherCompletionQueue,
    /// The queue pair uses a shared receive queue of another hub, or of none; or the shared receive
    /// queue completes on another completion queue.
    OtherSharedReceiveQueue,
    /// The hub takes no more queues.
    Ended(Ended),
}

impl fmt::Display for NotAdded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CompletionQueueFull { needed, left } => write!(
                f,
                "the queue holds {needed} requests, and the completion queue has room for {left} \
                 more completions: create the hub with a larger one"
            ),
            Self::OtherCompletionQueue => f.write_str(
                "the queue pair completes on another completion queue: create it with \
                 `Hub::create_qp`",
            ),
            Self::OtherSharedReceiveQueue => f.write_str(
                "the shared receive queue is not of this hub: pass it to `Hub::adopt_srq` first",
            ),
            Self::Ended(end) => end.fmt(f),
        }
    }
}

impl std::error::Error for NotAdded {}
