//! The slots of one queue, in which posted requests wait for their completions.
//!
//! The slots that a queue usually needs are created with it. A request takes one slot from when it
//! is posted until its result is taken, and as much room as it has parts until it has completed:
//! the queue holds at most as many parts as the device's queue holds requests.
//!
//! Results for streams, which one task reads, count as well: the queue is full until some are read.
//! Results for futures do not count, because a leaked future never takes its result. If the untaken
//! results and the posted requests fill all slots, the queue adds a slot. So a leak costs memory,
//! but stops no task until there are [`SLOTS_PER_PLACE`] times as many slots as the queue holds
//! requests: then requests are refused.
//!
//! Each transition is one critical section, and no value of the caller's (a waker, a kept value) is
//! called or dropped inside one. Wakers are cloned inside.

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use mlx5::{CompletionError, OwnedCompletion};

use crate::error::{Ended, Full};
use crate::line::{Line, Moment, Ticket};
use crate::wakes::{Waiting, Wakes, discard};

/// Limit of a queue's slots: the name of a request has 30 bits for its slot.
pub(crate) const MOST: u32 = 1 << 30;

/// Maximum number of slots for each request that a queue holds.
const SLOTS_PER_PLACE: u32 = 16;

/// The receiver of a request's result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum To {
    /// The future of the request.
    Future,
    /// The queue's stream.
    Stream,
}

/// The progress of the request of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// No request.
    Free,
    /// The device has it.
    Posted,
    /// Completed; the result is not taken yet.
    Done,
}

struct Slot<K> {
    state: State,
    to: To,
    /// The future was dropped.
    abandoned: bool,
    /// Room that the request takes.
    parts: u32,
    /// The value that the caller keeps alive while the device uses it.
    keep: Option<K>,
    /// The completion of the first part that failed, or of the last part.
    completion: OwnedCompletion,
    verdict: Verdict,
    waker: Option<Waker>,
}

impl<K> Default for Slot<K> {
    fn default() -> Self {
        Self {
            state: State::Free,
            to: To::Stream,
            abandoned: false,
            parts: 0,
            keep: None,
            completion: OwnedCompletion::default(),
            verdict: Verdict::Done,
            waker: None,
        }
    }
}

/// The outcome of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Its completion reports success.
    Done,
    /// Its completion reports an error.
    Failed,
    /// It has no completion: the device gave its queue up, and never took the request.
    Unused,
    /// The device took it for a queue pair that was destroyed or reset, which drops its completion.
    Discarded,
}

/// Results for streams.
#[derive(Default)]
struct Ready {
    /// Slots whose results are not taken yet.
    slots: VecDeque<u32>,
    /// Tasks that wait for a result.
    waiting: Waiting,
}

struct Table<K> {
    slots: Vec<Slot<K>>,
    free: Vec<u32>,
    /// Maximum number of requests and of results for streams.
    capacity: u32,
    /// Parts that may still be posted.
    room: u32,
    /// Number of requests that the device has.
    posted: u32,
    /// Results for streams that are not taken yet.
    unread: u32,
    /// Number of requests that have completed.
    completed: u64,
    line: Line,
    /// Results for the streams of the queue.
    ready: Ready,
    /// Results for the streams of one queue pair, by its number.
    ready_of: HashMap<u32, (usize, Ready)>,
    /// Tasks that wait until the device has no request.
    idle: Waiting,
    /// The queue is not over before the pump has also drained the completion queue.
    is_undrained: bool,
    /// The reason why the queue takes no more requests.
    end: Option<Ended>,
    /// The queue accepts no more completions.
    is_lost: bool,
}

/// The first error of a queue pair that is not a flush: the cause of the others. Both sides of the
/// queue pair share it.
pub(crate) type Cause = Arc<OnceLock<CompletionError>>;

/// The slots of one queue.
pub(crate) struct Slots<K> {
    table: Mutex<Table<K>>,
    capacity: u32,
    /// None for a shared queue, whose queue pairs fail one by one.
    cause: Option<Cause>,
}

/// The intended use of a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
    pub(crate) parts: u32,
    pub(crate) to: To,
}

/// A request that is over: its completion, its verdict, and the kept value.
pub(crate) type Outcome<K> = (OwnedCompletion, Verdict, Option<K>);

impl<K> Table<K> {
    /// Whether a request that was refused at `refused_at` may be tried: after another one has
    /// completed, or if the device has none whose completion it could wait for.
    fn has_room(&self, parts: u32, refused_at: Option<u64>) -> bool {
        let may_differ = refused_at != Some(self.completed) || self.posted == 0;
        self.room >= parts && self.posted + self.unread < self.capacity && may_differ
    }

    /// Wakes the first task in the line, if its request may be tried.
    fn advance(&mut self, wakes: &mut Wakes) {
        if self.line.is_empty() {
            return;
        }
        let mut line = mem::take(&mut self.line);
        let now = Moment { completed: self.completed, is_idle: self.posted == 0 };
        line.advance(now, |parts, refused_at| self.has_room(parts, refused_at), wakes);
        self.line = line;
    }

    /// Records that a request is over, and collects the tasks to wake: its future or the streams,
    /// the first in the line, and those that wait for the last request. Returns a kept value that
    /// no task waits for, to be dropped.
    fn note_over(&mut self, number: u32, wakes: &mut Wakes) -> Option<K> {
        let slot = &mut self.slots[number as usize];
        slot.state = State::Done;
        self.room += slot.parts;
        self.posted -= 1;
        self.completed += 1;
        let mut dropped = None;
        match slot.to {
            _ if slot.abandoned => {
                dropped = slot.keep.take();
                self.release(number);
            }
            To::Future => wakes.add(slot.waker.take()),
            To::Stream => {
                let qp_num = slot.completion.as_completion().qp_num();
                // Without a completion it belongs to no known queue pair.
                let known = !matches!(slot.verdict, Verdict::Unused | Verdict::Discarded);
                let ready = self.ready(known.then_some(qp_num));
                ready.slots.push_back(number);
                ready.waiting.wake(wakes);
                self.unread += 1;
            }
        }
        self.advance(wakes);
        self.note_idle(wakes);
        dropped
    }

    fn note_idle(&mut self, wakes: &mut Wakes) {
        if self.is_idle() {
            self.idle.wake(wakes);
            // The streams may have ended.
            self.wake_streams(wakes);
        }
    }

    /// Returns the results for streams of one queue pair, or of the others.
    fn ready(&mut self, of: Option<u32>) -> &mut Ready {
        let own = of.and_then(|qp_num| self.ready_of.get_mut(&qp_num));
        own.map_or(&mut self.ready, |(_, ready)| ready)
    }

    /// Takes the next result for a stream, and collects the tasks to wake.
    fn next_ready(&mut self, of: Option<u32>, wakes: &mut Wakes) -> Option<Outcome<K>> {
        let number = self.ready(of).slots.pop_front()?;
        self.unread -= 1;
        let outcome = self.outcome(number);
        self.advance(wakes);
        Some(outcome)
    }

    fn wake_streams(&mut self, wakes: &mut Wakes) {
        self.ready.waiting.wake(wakes);
        self.ready_of.values_mut().for_each(|(_, ready)| ready.waiting.wake(wakes));
    }

    fn take(&mut self, want: Want, keep: &mut Option<K>) -> Result<u32, Full> {
        let number = self.free.pop().or_else(|| self.grow()).ok_or(Full::Untaken)?;
        self.room -= want.parts;
        self.posted += 1;
        let slot = &mut self.slots[number as usize];
        slot.state = State::Posted;
        slot.to = want.to;
        slot.abandoned = false;
        slot.parts = want.parts;
        slot.verdict = Verdict::Done;
        slot.keep = keep.take();
        Ok(number)
    }

    /// Adds a slot. The posted requests and the untaken results fill all others.
    fn grow(&mut self) -> Option<u32> {
        let most = self.capacity.saturating_mul(SLOTS_PER_PLACE).min(MOST);
        let number = u32::try_from(self.slots.len()).ok().filter(|number| *number < most)?;
        self.slots.push(Slot::default());
        Some(number)
    }

    fn release(&mut self, number: u32) {
        self.slots[number as usize].state = State::Free;
        self.free.push(number);
    }

    /// Takes the result of a slot that is done.
    fn outcome(&mut self, number: u32) -> Outcome<K> {
        let slot = &mut self.slots[number as usize];
        let outcome = (slot.completion, slot.verdict, slot.keep.take());
        self.release(number);
        outcome
    }

    fn is_idle(&self) -> bool {
        self.posted == 0 && !self.is_undrained
    }
}

/// Drops the kept values whose results no task took, perhaps in the pump: a panic of such a drop is
/// contained.
impl<K> Drop for Slots<K> {
    fn drop(&mut self) {
        let table = self.table.get_mut().unwrap_or_else(PoisonError::into_inner);
        for slot in &mut table.slots {
            discard(slot.keep.take());
            discard(slot.waker.take());
        }
    }
}

impl<K> Slots<K> {
    /// Creates the slots of a queue that holds `capacity` requests.
    pub(crate) fn new(capacity: u32) -> Self {
        Self::with_cause(capacity, None)
    }

    /// Creates the slots of a queue of a queue pair.
    pub(crate) fn with_cause(capacity: u32, cause: Option<Cause>) -> Self {
        let table = Table {
            slots: (0..capacity).map(|_| Slot::default()).collect(),
            free: (0..capacity).rev().collect(),
            capacity,
            room: capacity,
            posted: 0,
            unread: 0,
            completed: 0,
            line: Line::default(),
            ready: Ready {
                slots: VecDeque::with_capacity(capacity as usize),
                waiting: Waiting::default(),
            },
            ready_of: HashMap::new(),
            idle: Waiting::default(),
            is_undrained: false,
            end: None,
            is_lost: false,
        };
        Self { table: Mutex::new(table), capacity, cause }
    }

    /// Returns the first error of the queue pair, if there was one.
    pub(crate) fn first_error(&self) -> Option<CompletionError> {
        self.cause.as_ref()?.get().copied()
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Returns the number of requests that the device has.
    pub(crate) fn posted(&self) -> u32 {
        self.table().posted
    }

    fn table(&self) -> MutexGuard<'_, Table<K>> {
        // No code that panics runs under the lock.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a slot, unless other tasks wait for one. The slot then holds `keep`.
    pub(crate) fn try_take(&self, want: Want, keep: &mut Option<K>) -> Result<u32, Full> {
        self.fits(want)?;
        let mut table = self.table();
        if let Some(end) = table.end {
            return Err(Full::Ended(end));
        }
        if !table.line.is_first(&Ticket::default()) || !table.has_room(want.parts, None) {
            return Err(Full::Now);
        }
        table.take(want, keep)
    }

    fn fits(&self, want: Want) -> Result<(), Full> {
        if want.parts == 0 || want.parts > self.capacity { Err(Full::Never) } else { Ok(()) }
    }

    /// Takes a slot when it is this ticket's turn. The slot then holds `keep`.
    pub(crate) fn poll_take(
        &self,
        cx: &Context<'_>,
        ticket: &mut Ticket,
        want: Want,
        keep: &mut Option<K>,
    ) -> Poll<Result<u32, Full>> {
        self.fits(want)?;
        let mut table = self.table();
        if let Some(end) = table.end {
            return Poll::Ready(Err(Full::Ended(end)));
        }
        if table.line.is_first(ticket) && table.has_room(want.parts, ticket.refused_at) {
            let mut wakes = Wakes::default();
            let taken = table.take(want, keep);
            let own = table.line.leave(ticket);
            table.advance(&mut wakes);
            drop(table);
            discard(own);
            wakes.wake();
            return Poll::Ready(taken);
        }
        let former = table.line.wait(ticket, cx, want.parts);
        drop(table);
        discard(former);
        Poll::Pending
    }

    /// Leaves the line.
    pub(crate) fn leave(&self, ticket: &mut Ticket) {
        let mut wakes = Wakes::default();
        let mut table = self.table();
        let left = table.line.leave(ticket);
        if left.is_some() {
            // It may have been woken: then wake the next one.
            table.advance(&mut wakes);
        }
        drop(table);
        discard(left);
        wakes.wake();
    }

    /// Frees a slot whose request the queue pair refused, and returns the kept value.
    pub(crate) fn give_back(&self, number: u32) -> Option<K> {
        let mut wakes = Wakes::default();
        let mut table = self.table();
        let slot = &mut table.slots[number as usize];
        let (keep, parts) = (slot.keep.take(), slot.parts);
        table.room += parts;
        table.posted -= 1;
        table.release(number);
        table.advance(&mut wakes);
        table.note_idle(&mut wakes);
        drop(table);
        wakes.wake();
        keep
    }

    /// Returns the number of requests that have completed, and whether the device has any.
    pub(crate) fn progress(&self) -> (u64, bool) {
        let table = self.table();
        (table.completed, table.posted > 0)
    }

    /// Records the completion of a part: the last one, or an earlier one that failed. Returns a
    /// kept value that no task waits for any more, to be dropped. Fails if the completion belongs
    /// to no request.
    pub(crate) fn complete(
        &self,
        number: u32,
        last: bool,
        completion: OwnedCompletion,
        failed: bool,
        wakes: &mut Wakes,
    ) -> Result<Option<K>, Stray> {
        let mut table = self.table();
        let table = &mut *table;
        let slot = table.slots.get_mut(number as usize).ok_or(Stray)?;
        if slot.state != State::Posted {
            return Err(Stray);
        }
        // Recorded for the requests that are flushed next, even if this request's future was
        // dropped.
        if let Err(error) = completion.as_completion().status()
            && let Some(cause) = self.cause.as_ref().filter(|_| failed && !error.is_flushed())
        {
            cause.get_or_init(|| error);
        }
        // The first part that failed has the cause; those after it are flushed.
        if slot.verdict == Verdict::Done {
            let verdict = if failed { Verdict::Failed } else { Verdict::Done };
            (slot.completion, slot.verdict) = (completion, verdict);
        }
        if !last {
            return Ok(None);
        }
        Ok(table.note_over(number, wakes))
    }

    /// The device gave the queue up: it will never take the remaining requests. Returns the kept
    /// values that no task waits for, to be dropped.
    pub(crate) fn give_up(&self, wakes: &mut Wakes) -> Vec<K> {
        let mut table = self.table();
        let table = &mut *table;
        let mut dropped = Vec::new();
        for number in 0..table.slots.len() {
            let slot = &mut table.slots[number];
            if slot.state == State::Posted {
                slot.verdict = Verdict::Unused;
                dropped.extend(table.note_over(number as u32, wakes));
            }
        }
        dropped
    }

    /// The driver dropped the completion of a request. Returns a kept value that no future waits
    /// for, to be dropped.
    pub(crate) fn discard(&self, number: u32, wakes: &mut Wakes) -> Option<K> {
        let mut table = self.table();
        let slot = table.slots.get_mut(number as usize)?;
        if slot.state != State::Posted {
            return None;
        }
        slot.verdict = Verdict::Discarded;
        table.note_over(number, wakes)
    }

    /// Whether no more completions will arrive.
    pub(crate) fn is_over(&self) -> bool {
        let table = self.table();
        table.is_idle() || table.is_lost
    }

    /// Takes no more requests; the first reason stays.
    pub(crate) fn end(&self, end: Ended, wakes: &mut Wakes) {
        let mut table = self.table();
        let table = &mut *table;
        if table.end.is_none() {
            table.end = Some(end);
            wakes.extend(table.line.dissolve());
            table.wake_streams(wakes);
        }
    }

    /// Takes no more requests, and no more completions. A loss replaces any other reason.
    pub(crate) fn lose(&self, end: Ended, wakes: &mut Wakes) {
        let mut table = self.table();
        let table = &mut *table;
        if mem::replace(&mut table.is_lost, true) {
            return;
        }
        table.is_undrained = false;
        table.end = Some(end);
        wakes.extend(table.line.dissolve());
        table.wake_streams(wakes);
        wakes.extend(table.slots.iter_mut().filter_map(|slot| slot.waker.take()));
        table.idle.wake(wakes);
    }
}

/// A completion that belongs to no request.
#[derive(Debug)]
pub(crate) struct Stray;

mod results;
#[cfg(test)]
mod tests;
