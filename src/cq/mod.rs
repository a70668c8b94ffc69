//! Completion queues.

mod builder;
mod channel;
mod completions;
mod cursor;
mod error;
mod raw;
mod resize;
mod shared;
mod wait;

pub use builder::{CompletionQueueBuilder, CqeSize, Timestamps};
pub(crate) use builder::{entries_for, ring_id};
pub use channel::{CompletionChannel, DetachedChannel};
pub use completions::{Completions, IntoCompletions};
pub use cursor::CompletionCursor;
pub use error::PollError;
pub use raw::RawCompletionQueue;
pub use shared::SharedCompletionQueue;

use crate::context::{Context, Inner};
use crate::error::{DestroyError, Error};
use crate::link::{CqId, WatchId};
use crate::pools::{CqUar, MemorySource, QueueBuffer, QueuePairRecords, RecordSlot, UserIndex};
use channel::EventCounter;
use mlx5_cq::{
    Attention, Deferred, Next, OwnedCompletion, Ring, RingId, RingState, WorkCompletion,
};
use mlx5_doorbell::CompletionQueueRecord;
use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::cq::{CqStatus, QueryCqIn, QueryCqOut};
use mlx5_uapi::cmd::cq as command;
use mlx5_uapi::mlx5 as abi;
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Name of the verb in errors of arming.
const ARM: &str = "req_notify_cq";

/// The part of a completion queue that queue pairs keep alive.
pub(crate) struct CqInner {
    pub(crate) context: Arc<Inner>,
    handle: Handle,
    cqn: u32,
    id: u64,
    /// Private, because [`RingState::end_of`] may be called only with `buffer` locked.
    state: Arc<RingState>,
    attention: Attention,
    record: CompletionQueueRecord,
    uar: CqUar,
    deferred: Arc<Deferred<Arc<UserIndex>>>,
    /// The buffer of the CQEs. Locked while it is replaced, and while it must not be replaced.
    buffer: Mutex<Option<QueueBuffer>>,
    /// For a queue that was handed over: queues that were reset since, and the index after their
    /// last CQE. The poll that takes the queue back removes these CQEs. Locked after `buffer`.
    stale: Mutex<Vec<(u32, Arc<UserIndex>)>>,
    /// The ring of a queue whose handle was dropped. Locked before `buffer`.
    left: Mutex<Option<Ring<QueuePairRecords>>>,
    memory: MemorySource,
    timestamps: Timestamps,
    slot: Option<RecordSlot>,
    channel: Option<CompletionChannel>,
    events: Option<Arc<EventCounter>>,
    watch: WatchId,
    /// Whether empty polls occasionally check the device and the queue.
    checks: bool,
}

/// The kernel's handle, until the kernel's object is destroyed. That happens at most once, and may
/// happen while another thread polls.
struct Handle(AtomicU64);

impl Handle {
    /// No handle. A handle has 32 bits.
    const NONE: u64 = u64::MAX;

    fn new(handle: u32) -> Self {
        Self(AtomicU64::new(handle.into()))
    }

    fn get(&self) -> Option<u32> {
        u32::try_from(self.0.load(Relaxed)).ok()
    }

    /// Takes the handle, to destroy the object. Only one of several threads gets it: the kernel may
    /// reuse the number of a destroyed object at once.
    fn take(&self) -> Option<u32> {
        u32::try_from(self.0.swap(Self::NONE, Relaxed)).ok()
    }

    /// Puts the handle back: the object still exists.
    fn put(&self, handle: u32) {
        self.0.store(handle.into(), Relaxed);
    }
}

/// A completion queue on which a new queue is to complete, and the operations that other threads
/// may call while one polls. See [`CompletionQueue::target`].
///
/// It cannot [hand the queue over](CompletionQueue::hand_over), because a poll may be in progress:
///
/// ```compile_fail,E0599
/// # fn f(cq: &mut mlx5::CompletionQueue) {
/// let target = cq.target();
/// let _ = cq.poll(16, |_| drop(target.hand_over()));
/// # }
/// ```
#[derive(Clone)]
pub struct CompletionTarget {
    pub(crate) inner: Arc<CqInner>,
}

impl CompletionTarget {
    /// Like [`CompletionQueue::arm`], with the consumer index at the end of the last poll:
    /// completions that a poll in progress has passed since may cause the event.
    pub fn arm(&self, solicited_only: bool) -> Result<(), Error> {
        self.inner.arm(self.inner.consumed_now(), solicited_only)
    }

    /// Like [`CompletionQueue::id`].
    pub fn id(&self) -> CqId {
        CqId(self.inner.id)
    }

    /// Like [`CompletionQueue::moderate`].
    pub fn moderate(&self, count: u16, period_us: u16) -> Result<(), Error> {
        self.inner.moderate(count, period_us)
    }

    /// Destroys the kernel's object (`ibv_destroy_cq`), and keeps the memory: completions in the
    /// queue can still be polled, and no event comes any more. The rest is freed with the queue and
    /// its targets. For callers whose threads may still use the queue when it is destroyed.
    ///
    /// Fails while there are other targets, including queue pairs that complete there, or when the
    /// kernel refuses. Then nothing has changed, and a poll in progress can continue.
    pub fn withdraw(&self) -> Result<(), Error> {
        // One reference is the queue's, one is this. If the queue was dropped, two targets may
        // exist: then the kernel refuses if one of them is in use.
        self.inner.withdraw(Arc::strong_count(&self.inner) <= 2)
    }
}

impl fmt::Debug for CompletionTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionTarget").finish_non_exhaustive()
    }
}

impl CqInner {
    pub(crate) fn handle(&self) -> Option<u32> {
        self.handle.get()
    }

    /// Returns the identifier of the ring in the table of queues.
    pub(crate) fn ring_id(&self) -> RingId {
        ring_id(self.id)
    }

    /// Returns the consumer index that the device knows.
    #[cfg(test)]
    pub(crate) fn published(&self) -> u32 {
        self.state.consumed()
    }

    /// Keeps `index`, for which the device writes no more CQEs, until none in the queue can name
    /// it. If the queue is no longer polled, its receives are returned here.
    pub(crate) fn depart(&self, index: &Arc<UserIndex>) {
        // Locked until both are done: dropping the handle returns the receives of queues that
        // departed before.
        let left = self.left();
        self.keep_back(index);
        if let Some(ring) = &*left {
            ring.each_receive(self.consumed_now(), |named, counter| {
                if named == index.get() {
                    index.discard_receive(counter);
                }
            });
        }
    }

    /// Keeps `index` until no CQE in the queue can name it.
    pub(crate) fn keep_back(&self, index: &Arc<UserIndex>) {
        let end = {
            let _buffer = self.buffer();
            self.end_of(index).unwrap_or_else(|| self.consumed())
        };
        self.deferred.push(end, Arc::clone(index));
        self.attention.set_deferred();
    }

    /// Whether polls will return CQEs of `index`, for which the device writes no more.
    pub(crate) fn holds(&self, index: &UserIndex) -> bool {
        let _buffer = self.buffer();
        self.end_of(index).is_some_and(|end| {
            !self.stale().iter().any(|(until, stale)| *until == end && stale.get() == index.get())
        })
    }

    /// Like [`CqInner::holds`], but without the CQEs in a queue that was handed over: the poll that
    /// takes the queue back removes them. Until then they stay, because the program may look at
    /// them.
    pub(crate) fn holds_after_reset(&self, index: &Arc<UserIndex>) -> bool {
        let _buffer = self.buffer();
        let Some(end) = self.end_of(index) else { return false };
        if !self.attention.is_handed_over() {
            return true;
        }
        let consumed = self.consumed();
        let mut stale = self.stale();
        // Drop the ends that the program has passed, and those that this end covers.
        stale.retain(|(until, other)| {
            self.is_waiting(*until, consumed) && other.get() != index.get()
        });
        stale.push((end, Arc::clone(index)));
        false
    }

    fn left(&self) -> MutexGuard<'_, Option<Ring<QueuePairRecords>>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a CQE before index `end` may be in the queue, after those that were consumed.
    fn is_waiting(&self, end: u32, consumed: u32) -> bool {
        (1..=self.state.size()).contains(&end.wrapping_sub(consumed))
    }

    fn stale(&self) -> MutexGuard<'_, Vec<(u32, Arc<UserIndex>)>> {
        self.stale.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the index after the last CQE that names `index`, as of now. The caller has locked
    /// the buffer: a resize, possibly on another thread, replaces it, and a poll may take the queue
    /// back.
    fn end_of(&self, index: &UserIndex) -> Option<u32> {
        #[cfg(test)]
        crate::testing::step();
        match self.attention.is_handed_over() {
            true => self.state.end_of_elsewhere(index.get()),
            false => self.state.end_of(index.get()),
        }
    }

    /// Locks the buffer and returns the consumer index.
    fn consumed_now(&self) -> u32 {
        let _buffer = self.buffer();
        self.consumed()
    }

    /// Returns the consumer index. The caller has locked the buffer: reading the index of a queue
    /// that was handed over updates it.
    fn consumed(&self) -> u32 {
        match self.attention.is_handed_over() {
            true => self.state.consumed_elsewhere(),
            false => self.state.consumed(),
        }
    }

    fn buffer(&self) -> MutexGuard<'_, Option<QueueBuffer>> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the kernel's handle, for a call.
    fn live(&self, verb: &'static str) -> Result<u32, Error> {
        self.handle().ok_or_else(|| Error::invalid(verb, "the queue was destroyed".into()))
    }

    /// Queries whether the queue overran. Does nothing without DEVX.
    fn check_overrun(&self) {
        const VERB: &str = "query_cq";
        let Some(handle) = self.handle() else { return };
        if !self.context.has_devx() || self.context.is_gone() || self.context.forked() {
            return;
        }
        let (mut input, mut output) = (QueryCqIn::request(), QueryCqOut::default());
        input.set_cqn(self.cqn);
        // A device that does not answer is detected elsewhere.
        let asked = self.context.devx_query(VERB, handle, input.as_bytes(), output.as_bytes_mut());
        if asked.is_ok() && CqStatus(output.cqc().status()) != CqStatus::OK {
            self.attention.set_overrun();
        }
    }

    fn destroy(&self) -> Result<(), Error> {
        const VERB: &str = "destroy_cq";
        let Some(handle) = self.handle.take() else { return Ok(()) };
        let destroyed = self.context.run_destroy(VERB, |file| command::destroy(file, handle));
        if destroyed.is_err() {
            self.handle.put(handle);
        }
        destroyed.map(drop)
    }

    /// Destroys the kernel's object if the caller is alone with the queue.
    fn withdraw(&self, alone: bool) -> Result<(), Error> {
        match alone {
            true => self.destroy(),
            false => Err(Error::busy("destroy_cq", "queue pairs still complete here")),
        }
    }

    /// Returns the channel. Without one there are no events.
    fn channel(&self) -> Result<&CompletionChannel, Error> {
        let what = "the completion queue has no channel: create it with one";
        self.channel.as_ref().ok_or_else(|| Error::invalid(ARM, what.into()))
    }

    fn arm(&self, consumer: u32, solicited_only: bool) -> Result<(), Error> {
        self.context.check(ARM)?;
        self.channel()?;
        let events = self.events.as_ref().map_or(0, |events| events.read());
        self.uar.register.arm(self.record, self.cqn, consumer, events, solicited_only);
        Ok(())
    }

    fn moderate(&self, count: u16, period_us: u16) -> Result<(), Error> {
        let handle = self.live("modify_cq")?;
        self.context.run("modify_cq", |file| command::moderate(file, handle, count, period_us))
    }
}

impl Drop for CqInner {
    fn drop(&mut self) {
        let destroyed = self.destroy().is_ok();
        self.context.unwatch(self.watch);
        if let Some(channel) = &self.channel {
            channel.unregister(self.id);
        }
        if !destroyed {
            // The device may still write to the memory, and uses the page.
            let buffer = self.buffer.get_mut().unwrap_or_else(PoisonError::into_inner);
            if let Some(buffer) = buffer.take() {
                buffer.keep();
            }
            if let Some(slot) = self.slot.take() {
                slot.keep();
            }
            self.context.uars.keep();
        }
    }
}

/// A completion queue (`struct ibv_cq`). Polling needs `&mut`, so only the owner polls.
///
/// Queue pairs that complete here keep parts of it alive. The kernel object is destroyed with the
/// last of them.
pub struct CompletionQueue {
    /// Only `drop` takes it.
    ring: ManuallyDrop<Ring<QueuePairRecords>>,
    pub(crate) inner: Arc<CqInner>,
    /// The consumer index when a poll last found nothing.
    empty_at: u32,
    /// Number of empty polls between one look around and the next.
    until_next: u32,
    /// Whether events are pending that no thread reads, and the last look found no overrun.
    in_vain: bool,
    /// The error of the last poll, if it failed.
    last_error: PollError,
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut queue = f.debug_struct("CompletionQueue");
        queue.field("cqn", &format_args!("{:#x}", self.cqn())).field("capacity", &self.capacity());
        match self.ring.waiting() {
            Some(waiting) => queue.field("waiting", &waiting),
            None => queue.field("forked", &true),
        };
        queue.field("attention", &self.inner.attention).finish_non_exhaustive()
    }
}

impl CompletionQueue {
    /// Number of empty polls between two checks that the device is still there, unless the queue
    /// [makes none](CompletionQueueBuilder::checks).
    const ALIVE_CHECK: u32 = 1 << 20;
    /// Number of empty polls until the first look for an overrun's event, which may arrive late.
    /// The number grows from look to look.
    const FIRST_LOOK: u32 = 1 << 12;

    /// Passes up to `max` completions to `each` (`ibv_poll_cq`) and returns their number. The data
    /// that the device wrote for a completion (the message of a receive, the result of a read) is
    /// in memory before `each` gets it.
    ///
    /// ```no_run
    /// # fn f(cq: &mut mlx5::CompletionQueue) -> Result<(), Box<dyn std::error::Error>> {
    /// cq.poll(16, |wc| match wc.status() {
    ///     Ok(()) => println!("request {} done", wc.wr_id()),
    ///     Err(error) => println!("request {} failed: {error}", wc.wr_id()),
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn poll(
        &mut self,
        max: usize,
        mut each: impl FnMut(WorkCompletion<'_>),
    ) -> Result<usize, PollError> {
        if self.ring.needs_attention() {
            return self.poll_rest(each, 0, max).ok_or(self.last_error);
        }
        let mut count = 0;
        let mut poll = self.ring.poll();
        while count < max {
            match poll.next() {
                Next::Completion(completion) => each(completion),
                Next::Slow => {
                    drop(poll);
                    return self.poll_rest(each, count, max).ok_or(self.last_error);
                }
                Next::Empty => break,
            }
            count += 1;
        }
        drop(poll);
        if count == 0 {
            self.found_nothing();
        }
        Ok(count)
    }

    /// Passes up to `max` completions to `each`, with the number of those before it, as long as the
    /// fast path finds them: all of these succeeded. Returns their number, and whether
    /// [`CompletionQueue::poll`] has to look for more. For callers that compile the slow path out
    /// of line.
    ///
    /// ```no_run
    /// # fn f(cq: &mut mlx5::CompletionQueue) -> Result<(), mlx5::PollError> {
    /// let mut ids = [0; 16];
    /// let (mut count, more) = cq.poll_fast(ids.len(), |place, wc| ids[place] = wc.wr_id());
    /// if more {
    ///     let rest = &mut ids[count..];
    ///     let mut place = 0;
    ///     count += cq.poll(rest.len(), |wc| {
    ///         rest[place] = wc.wr_id();
    ///         place += 1;
    ///     })?;
    /// }
    /// # let _ = count;
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
    pub fn poll_fast(
        &mut self,
        max: usize,
        mut each: impl FnMut(usize, WorkCompletion<'_>),
    ) -> (usize, bool) {
        if self.ring.needs_attention() {
            return (0, true);
        }
        let mut count = 0;
        let mut poll = self.ring.poll();
        let more = loop {
            if count == max {
                break false;
            }
            match poll.next() {
                Next::Completion(completion) => each(count, completion),
                Next::Slow => break true,
                Next::Empty => break false,
            }
            count += 1;
        };
        drop(poll);
        if count == 0 && !more {
            self.found_nothing();
        }
        (count, more)
    }

    /// Whether the fast path finds no completion. If so, it counts as an empty poll.
    #[inline(always)]
    pub fn poll_nothing(&mut self) -> bool {
        // The CQEs may not be mapped in a forked child.
        if self.ring.needs_attention() || self.ring.has_next() {
            return false;
        }
        self.found_nothing();
        true
    }

    /// Continues a poll after `count` completions, off the fast path. Out of line, so that the fast
    /// path is compiled by itself and keeps no values alive for afterwards. `None` on failure, so
    /// that the result is returned in two registers. `each` comes first, in the register in which
    /// `poll` usually gets it, so that the fast path does not move arguments.
    #[inline(never)]
    fn poll_rest(
        &mut self,
        mut each: impl FnMut(WorkCompletion<'_>),
        mut count: usize,
        max: usize,
    ) -> Option<usize> {
        if count == 0 && self.ring.needs_attention() {
            self.attend_or_note()?;
        }
        let unwinding = PublishOnUnwind(&mut self.ring);
        if count < max {
            // The fast path has already looked at the next CQE.
            let mut next = unwinding.0.next_slow();
            while let Some(completion) = next {
                each(completion);
                count += 1;
                if count >= max {
                    break;
                }
                next = unwinding.0.next();
            }
        }
        std::mem::forget(unwinding);
        if count != 0 {
            self.ring.publish();
            return Some(count);
        }
        self.found_nothing();
        if self.ring.needs_attention() {
            // The condition was noticed during this poll, so this poll handles it.
            self.attend_or_note()?;
        }
        Some(0)
    }

    /// Handles the attention word, and stores the error on failure.
    fn attend_or_note(&mut self) -> Option<()> {
        self.attend().map_err(|error| self.last_error = error).ok()
    }

    /// Copies completions into `out` and returns their number.
    #[inline]
    pub fn poll_into(&mut self, out: &mut [OwnedCompletion]) -> Result<usize, PollError> {
        let mut slots = out.iter_mut();
        self.poll(slots.len(), |completion| {
            if let Some(slot) = slots.next() {
                *slot = completion.to_owned();
            }
        })
    }

    /// Removes the completions of a queue pair that was reset, and returns their number. If the
    /// queue was handed over, the poll that takes it back removes them.
    pub(crate) fn purge(&mut self, index: &Arc<UserIndex>) -> u32 {
        if !self.inner.holds_after_reset(index) {
            return 0;
        }
        // Completions that a leaked iterator passed are consumed: they must not be removed.
        self.ring.publish();
        // Other threads wait before they look for the last completion of a queue.
        let _buffer = self.inner.buffer();
        // SAFETY: `RingState::end_of` is called only with this lock held.
        unsafe { self.ring.purge(index.get(), |counter| index.discard_receive(counter)) }
    }

    /// Returns a reference to this completion queue for the builder of another queue. It does not
    /// borrow the queue, so another thread may poll meanwhile.
    ///
    /// Frees destroyed queues whose last completion was passed, so that their user indexes can be
    /// reused.
    pub fn target(&self) -> CompletionTarget {
        self.release_deferred();
        CompletionTarget { inner: Arc::clone(&self.inner) }
    }

    /// Frees destroyed queue pairs, for a queue that is never polled. Keeps those that the next
    /// poll may still use.
    pub(crate) fn release_deferred(&self) {
        let last = self.ring.last_queues();
        // Polling needs `&mut`, and a completion queue is not `Sync`: no other thread polls
        // meanwhile.
        self.inner
            .deferred
            .release_but(self.consumed(), |gone| last.contains(&Some(gone.as_non_null())));
    }

    /// Counts an empty poll, and occasionally looks around.
    #[inline(always)]
    fn found_nothing(&mut self) {
        #[cfg(test)]
        crate::testing::step();
        if self.ring.found_nothing() {
            self.look_around();
        }
        self.empty_at = self.ring.consumer();
    }

    /// Looks for conditions that polls do not see: completions that a leaked iterator passed, an
    /// overrun, a device that is gone.
    #[cold]
    #[inline(never)]
    fn look_around(&mut self) {
        self.ring.publish();
        let completed = self.ring.consumer().wrapping_sub(self.empty_at);
        // A queue that overruns is full: as many completed since the last empty poll as it holds.
        // After an overrun nothing more completes.
        let was_full = completed >= self.inner.state.size();
        let until_now = self.until_next;
        self.until_next = match completed {
            0 => until_now.saturating_mul(16).min(Self::ALIVE_CHECK),
            _ if was_full => Self::FIRST_LOOK,
            _ => Self::ALIVE_CHECK,
        };
        self.ring.look_after(self.until_next);
        if !self.inner.checks {
            return;
        }
        if completed == 0 && until_now == Self::ALIVE_CHECK {
            self.inner.context.check_alive();
            self.inner.check_overrun();
        } else if was_full && !self.in_vain || completed == 0 {
            // The kernel reports an overrun by an event, which only the program reads. While events
            // are unread, each look is a firmware command, so the first one waits until the queue
            // is idle.
            self.in_vain = self.inner.context.has_events();
            if self.in_vain {
                self.inner.check_overrun();
            }
        }
    }

    /// Handles the attention word: destroyed queues, a device that is gone, corruption, overrun,
    /// fork.
    #[cold]
    #[inline(never)]
    fn attend(&mut self) -> Result<(), PollError> {
        let attention = self.inner.attention;
        if attention.is_forked() {
            return Err(PollError::Forked);
        }
        if attention.is_handed_over() {
            self.take_back();
        }
        if let Some(corruption) = self.ring.corruption() {
            return Err(PollError::Corrupt(corruption));
        }
        if attention.take_deferred() {
            self.ring.clear_cached_queues();
            // The poll may have passed CQEs of destroyed queues.
            self.ring.publish();
            if self.inner.deferred.release(self.ring.consumer()) {
                attention.set_deferred();
            }
        }
        if self.ring.has_next() {
            return Ok(());
        }
        if attention.is_gone() {
            return Err(PollError::DeviceGone);
        }
        if attention.is_overrun() {
            return Err(PollError::Overrun);
        }
        Ok(())
    }

    /// Takes back the queue that was handed over: polls continue after the CQEs that the program
    /// has polled, and without the completions of queues that were reset meanwhile.
    #[cold]
    fn take_back(&mut self) {
        let Self { ring, inner, .. } = self;
        // Threads that reset or destroy a queue wait.
        let _buffer = inner.buffer();
        ring.follow();
        let mut stale = std::mem::take(&mut *inner.stale());
        let consumer = ring.consumer();
        // CQEs after an end that the program has passed are completions of new requests.
        stale.retain(|(end, _)| inner.is_waiting(*end, consumer));
        // In this order, because a purge moves the CQEs before its end.
        stale.sort_by_key(|(end, _)| end.wrapping_sub(consumer));
        for (end, index) in &stale {
            // SAFETY: `RingState::end_of` is called only with this lock held.
            unsafe {
                ring.purge_until(index.get(), Some(*end), |counter| index.discard_receive(counter))
            };
        }
        inner.attention.take_back();
    }

    /// Requests one event on the channel (`ibv_req_notify_cq`): at the next completion, or, with
    /// `solicited_only`, at the next one that failed or was sent with
    /// [`crate::SendFlags::SOLICITED`].
    ///
    /// An earlier completion causes no event: after arming, poll once more, and only then wait.
    /// An earlier completion causes no event: after arming poll once more, and only then wait.
    pub fn arm(&self, solicited_only: bool) -> Result<(), Error> {
        self.inner.arm(self.consumed(), solicited_only)
    }

    /// Returns the consumer index, including CQEs that a leaked iterator passed.
    fn consumed(&self) -> u32 {
        match self.inner.attention.is_handed_over() {
            true => self.inner.consumed_now(),
            false => self.ring.consumer(),
        }
    }

    /// Delays the event of an armed queue until `count` completions were written, or until
    /// `period_us` microseconds after the first of them (`ibv_modify_cq`). Zeros: no delay.
    ///
    /// [`crate::CompletionCaps`] has the device's maximum values; the kernel refuses a longer
    /// period.
    pub fn moderate(&self, count: u16, period_us: u16) -> Result<(), Error> {
        self.inner.moderate(count, period_us)
    }

    /// Returns the unit of the timestamps.
    pub fn timestamps(&self) -> Timestamps {
        self.inner.timestamps
    }

    /// Returns the kernel's handle, for calls that this crate does not wrap, unless the queue was
    /// destroyed. See [`Context::device_file`].
    pub fn kernel_handle(&self) -> Option<u32> {
        self.inner.handle()
    }

    /// Returns the number of the queue in the device.
    pub fn cqn(&self) -> u32 {
        self.inner.cqn
    }

    /// Returns the identifier that events use.
    pub fn id(&self) -> CqId {
        CqId(self.inner.id)
    }

    /// Returns the number of completions that the queue can hold.
    pub fn capacity(&self) -> u32 {
        self.inner.state.size() - 1
    }

    /// Returns the context.
    pub fn context(&self) -> Context {
        Context { inner: Arc::clone(&self.inner.context) }
    }

    /// Destroys the queue (`ibv_destroy_cq`). While queue pairs complete here, or when the kernel
    /// refuses, it fails and returns the queue.
    pub fn destroy(mut self) -> Result<(), DestroyError<Self>> {
        let alone = Arc::get_mut(&mut self.inner).is_some();
        match self.inner.withdraw(alone) {
            Ok(()) => Ok(()),
            Err(error) => Err(DestroyError::new(self, error)),
        }
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        let usable = !self.inner.attention.is_forked() && self.ring.corruption().is_none();
        if usable && self.inner.attention.is_handed_over() {
            self.take_back();
        }
        // SAFETY: the field is not used again.
        let mut ring = unsafe { ManuallyDrop::take(&mut self.ring) };
        if !usable {
            // A forked child may lack the CQEs; the parent has its own.
            return;
        }
        ring.publish();
        // Receives that destroyed queue pairs took from shared receive queues become free.
        let mut left = self.inner.left();
        ring.each_receive(ring.consumer(), |index, counter| {
            // SAFETY: only the poller frees values, and the queue is no longer polled.
            if let Some(gone) = unsafe { self.inner.deferred.find(|gone| gone.get() == index) } {
                gone.discard_receive(counter);
            }
        });
        // Receives of queue pairs that are destroyed later are freed at that time.
        *left = Some(ring);
    }
}

/// Publishes the consumer index if the closure that gets a completion panics.
struct PublishOnUnwind<'a>(&'a mut Ring<QueuePairRecords>);

impl Drop for PublishOnUnwind<'_> {
    fn drop(&mut self) {
        self.0.publish();
    }
}
