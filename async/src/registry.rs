//! The queues of a hub, by number.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::mem;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use mlx5::{AsyncEvent, WorkCompletion};

use crate::error::Ended;
use crate::wakes::Wakes;

/// What a completion belongs to, in the request's identifier: the queue, its side, whether it is the
/// last part of its request, and the slot.
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
    /// A queue has fewer slots than that: the device's queues hold 32768 requests at most.
    pub(crate) const SLOTS: u32 = Self::LAST as u32;

    pub(crate) fn wr_id(self) -> u64 {
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

/// Where completions of a queue go.
pub(crate) trait Route: Send + Sync {
    /// Notes a completion. Returns whether the queue is closed and nothing is posted any more; `None`
    /// if the completion belongs to no request.
    fn complete(
        &self,
        name: Name,
        completion: &WorkCompletion<'_>,
        wakes: &mut Wakes,
    ) -> Option<bool>;

    /// Takes no more requests, and flushes what is posted. Returns whether nothing is.
    fn close(&self) -> bool;

    /// Nothing more is known of what is posted.
    fn lose(&self, end: Ended, wakes: &mut Wakes);

    /// How many completions there may be at a time.
    fn completions(&self) -> u32;
}

#[derive(Default)]
struct Queues {
    by_number: HashMap<u32, Arc<dyn Route>>,
    next: u32,
    /// How many completions there may be at a time, of all queues.
    completions: u32,
    /// No queue is added any more.
    end: Option<Ended>,
}

/// What was read of the device's events.
#[derive(Default)]
pub(crate) struct Events {
    pub(crate) pending: VecDeque<AsyncEvent>,
    pub(crate) waker: Option<Waker>,
    /// How many streams want them.
    pub(crate) streams: usize,
    pub(crate) over: bool,
}

/// What handles, futures and the pump share.
pub(crate) struct Registry {
    queues: Mutex<Queues>,
    /// How many queues were removed.
    removed: AtomicU64,
    stopping: AtomicBool,
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
            strays: AtomicU64::new(0),
            events: Mutex::default(),
            nudged: AtomicBool::new(false),
            nudge: io::pipe()?,
        })
    }

    /// Adds a queue that `make` makes of its number, if the completion queue has room for as many
    /// completions besides those of the other queues.
    pub(crate) fn add<R: Route + 'static>(
        &self,
        completions: u32,
        room: u32,
        make: impl FnOnce(u32) -> R,
    ) -> Result<Arc<R>, NotAdded> {
        let mut queues = locked(&self.queues);
        if let Some(end) = queues.end {
            return Err(NotAdded::Ended(end));
        }
        let left = room.saturating_sub(queues.completions);
        if completions > left {
            return Err(NotAdded::CompletionQueueFull { needed: completions, left });
        }
        // Numbers are given out again only after four billion others.
        while queues.by_number.contains_key(&queues.next) {
            queues.next = queues.next.wrapping_add(1);
        }
        let number = queues.next;
        queues.next = number.wrapping_add(1);
        queues.completions += completions;
        let queue = Arc::new(make(number));
        queues.by_number.insert(number, queue.clone());
        Ok(queue)
    }

    /// Removes a queue that is closed and has nothing posted.
    pub(crate) fn remove(&self, number: u32, completions: u32) {
        let mut queues = locked(&self.queues);
        let queue = queues.by_number.remove(&number);
        if queue.is_some() {
            queues.completions -= completions;
            self.removed.fetch_add(1, Ordering::Release);
        }
        let is_last = queues.by_number.is_empty();
        drop(queues);
        // Here its queue pair may be destroyed.
        drop(queue);
        if is_last && self.stopping.load(Ordering::Acquire) {
            self.nudge();
        }
    }

    pub(crate) fn get(&self, number: u32) -> Option<Arc<dyn Route>> {
        locked(&self.queues).by_number.get(&number).cloned()
    }

    /// Changes when a queue is removed.
    pub(crate) fn removed(&self) -> u64 {
        self.removed.load(Ordering::Acquire)
    }

    /// Closes all queues. The pump ends when nothing is posted any more.
    pub(crate) fn stop(&self) {
        let mut queues = locked(&self.queues);
        queues.end = queues.end.or(Some(Ended::Closed));
        let all: Vec<_> = queues.by_number.values().cloned().collect();
        drop(queues);
        self.stopping.store(true, Ordering::Release);
        for queue in all {
            queue.close();
        }
        self.nudge();
    }

    /// Whether the pump has nothing to do any more.
    pub(crate) fn has_stopped(&self) -> bool {
        self.stopping.load(Ordering::Acquire) && locked(&self.queues).by_number.is_empty()
    }

    /// The pump ends: nobody hears of what is still posted.
    pub(crate) fn end(&self, end: Ended) {
        let mut queues = locked(&self.queues);
        queues.end = Some(end);
        queues.completions = 0;
        let all = mem::take(&mut queues.by_number);
        drop(queues);
        let mut wakes = Wakes::default();
        for queue in all.values() {
            queue.lose(end, &mut wakes);
        }
        let mut events = locked(&self.events);
        events.over = true;
        wakes.add(events.waker.take());
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

    /// Wakes a pump that sleeps.
    pub(crate) fn nudge(&self) {
        if !self.nudged.swap(true, Ordering::AcqRel) {
            // It fails only if the reader is gone, which is in the same structure.
            let _ = (&self.nudge.1).write_all(&[0]);
        }
    }

    /// Takes a nudge, so that the descriptor is quiet until the next.
    pub(crate) fn take_nudge(&self) {
        if self.nudged.swap(false, Ordering::AcqRel) {
            // Who set the flag writes a byte: this waits for it, if at all, for that long.
            let _ = (&self.nudge.0).read_exact(&mut [0]);
        }
    }

    pub(crate) fn nudge_fd(&self) -> BorrowedFd<'_> {
        self.nudge.0.as_fd()
    }
}

/// Why a queue was not added to a hub.
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
    /// Another queue pair is expected here.
    OtherQueuePair,
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
            Self::OtherQueuePair => f.write_str("the seat is that of another queue pair"),
            Self::Ended(end) => end.fmt(f),
        }
    }
}

impl std::error::Error for NotAdded {}
