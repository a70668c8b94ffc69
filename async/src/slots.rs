//! The slots of one queue: where a posted request waits for its completion.
//!
//! All slots are created with the queue. A request takes one slot from when it is posted until its
//! result is taken, and as much room as it has parts until it has completed: the queue holds at most
//! as many parts as the device's queue holds requests. Each transition is one critical section, and
//! nothing of the caller's (a waker, a kept value) is called or dropped inside one.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use mlx5::OwnedCompletion;

use crate::error::{Ended, Full};
use crate::wakes::Wakes;

/// Who gets the result of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum To {
    /// The future of the request.
    Future,
    /// The queue's stream.
    Stream,
}

/// How far the request of a slot is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// No request.
    Free,
    /// With the device.
    Posted,
    /// Completed; the result was not taken yet.
    Done,
}

struct Slot<K> {
    state: State,
    to: To,
    /// The future was dropped.
    abandoned: bool,
    /// How much room the request takes.
    parts: u32,
    /// What the caller keeps alive while the device uses it.
    keep: Option<K>,
    /// The first part that failed, or the last one.
    completion: OwnedCompletion,
    failed: bool,
    waker: Option<Waker>,
}

/// A task that waits for room.
struct Waiter {
    ticket: u64,
    waker: Waker,
    /// How many requests had completed when the queue pair had no room for this one.
    refused_at: Option<u64>,
    parts: u32,
}

struct Table<K> {
    slots: Box<[Slot<K>]>,
    free: Vec<u32>,
    /// Parts that may still be posted.
    room: u32,
    /// Requests with the device.
    posted: u32,
    /// Requests that have completed.
    completed: u64,
    waiters: VecDeque<Waiter>,
    next_ticket: u64,
    /// Slots whose results the stream has not taken yet.
    ready: VecDeque<u32>,
    stream: Option<Waker>,
    idle: Vec<Waker>,
    /// Why no more requests are taken.
    end: Option<Ended>,
}

/// The slots of one queue.
pub(crate) struct Slots<K> {
    table: Mutex<Table<K>>,
    capacity: u32,
}

/// A place in the line of those who wait for room.
#[derive(Default, Debug)]
pub(crate) struct Ticket {
    number: Option<u64>,
    /// See [`Waiter::refused_at`].
    pub(crate) refused_at: Option<u64>,
}

/// What a slot is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
    pub(crate) parts: u32,
    pub(crate) to: To,
}

/// A request that has completed: its completion, whether it failed, and what was kept.
pub(crate) type Outcome<K> = (OwnedCompletion, bool, Option<K>);

/// Puts the task's waker in a place. Returns the former one, to be dropped when no lock is held: its
/// drop may drop a task, and with it requests of this queue.
fn remember(waker: &mut Option<Waker>, cx: &Context<'_>) -> Option<Waker> {
    match waker {
        Some(waker) if waker.will_wake(cx.waker()) => None,
        _ => waker.replace(cx.waker().clone()),
    }
}

impl<K> Table<K> {
    /// Whether a request that was refused at `refused_at` may be tried.
    fn has_room(&self, parts: u32, refused_at: Option<u64>) -> bool {
        self.room >= parts && !self.free.is_empty() && refused_at != Some(self.completed)
    }

    /// The first in the line, if its request may be tried, or if it has to hear of the end.
    fn next_in_line(&self) -> Option<Waker> {
        let first = self.waiters.front()?;
        let tried = self.has_room(first.parts, first.refused_at);
        (tried || self.end.is_some()).then(|| first.waker.clone())
    }

    fn take(&mut self, want: Want, keep: &mut Option<K>) -> Option<u32> {
        let number = self.free.pop()?;
        self.room -= want.parts;
        self.posted += 1;
        let slot = &mut self.slots[number as usize];
        slot.state = State::Posted;
        slot.to = want.to;
        slot.abandoned = false;
        slot.parts = want.parts;
        slot.failed = false;
        slot.keep = keep.take();
        Some(number)
    }

    fn release(&mut self, number: u32) {
        self.slots[number as usize].state = State::Free;
        self.free.push(number);
    }

    /// Takes the result of a slot that is done.
    fn outcome(&mut self, number: u32) -> Outcome<K> {
        let slot = &mut self.slots[number as usize];
        let outcome = (slot.completion, slot.failed, slot.keep.take());
        self.release(number);
        outcome
    }

    fn is_idle(&self) -> bool {
        self.posted == 0
    }
}

impl<K> Slots<K> {
    /// Creates the slots of a queue that holds `capacity` requests.
    pub(crate) fn new(capacity: u32) -> Self {
        let slot = |_| Slot {
            state: State::Free,
            to: To::Stream,
            abandoned: false,
            parts: 0,
            keep: None,
            completion: OwnedCompletion::default(),
            failed: false,
            waker: None,
        };
        let table = Table {
            slots: (0..capacity).map(slot).collect(),
            free: (0..capacity).rev().collect(),
            room: capacity,
            posted: 0,
            completed: 0,
            waiters: VecDeque::new(),
            next_ticket: 0,
            ready: VecDeque::with_capacity(capacity as usize),
            stream: None,
            idle: Vec::new(),
            end: None,
        };
        Self { table: Mutex::new(table), capacity }
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }

    fn table(&self) -> MutexGuard<'_, Table<K>> {
        // Nothing that panics runs under the lock.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a slot, unless others wait for one. `keep` is taken with it.
    pub(crate) fn try_take(&self, want: Want, keep: &mut Option<K>) -> Result<u32, Full> {
        self.fits(want)?;
        let mut table = self.table();
        if let Some(end) = table.end {
            return Err(Full::Ended(end));
        }
        if !table.waiters.is_empty() || !table.has_room(want.parts, None) {
            return Err(Full::Now);
        }
        table.take(want, keep).ok_or(Full::Now)
    }

    fn fits(&self, want: Want) -> Result<(), Full> {
        if want.parts == 0 || want.parts > self.capacity { Err(Full::Never) } else { Ok(()) }
    }

    /// Takes a slot when it is this ticket's turn. `keep` is taken with it.
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
        let first = match (table.waiters.front(), ticket.number) {
            (None, _) => true,
            (Some(first), number) => Some(first.ticket) == number,
        };
        if first
            && table.has_room(want.parts, ticket.refused_at)
            && let Some(number) = table.take(want, keep)
        {
            let own = ticket.number.take().and_then(|_| table.waiters.pop_front());
            let next = table.next_in_line();
            drop(table);
            drop(own);
            next.into_iter().for_each(Waker::wake);
            return Poll::Ready(Ok(number));
        }
        let place = ticket
            .number
            .and_then(|own| table.waiters.iter_mut().find(|waiter| waiter.ticket == own));
        let mut former = None;
        match place {
            Some(waiter) => {
                waiter.refused_at = ticket.refused_at;
                if !waiter.waker.will_wake(cx.waker()) {
                    former = Some(mem::replace(&mut waiter.waker, cx.waker().clone()));
                }
            }
            None => {
                let number = table.next_ticket;
                table.next_ticket += 1;
                let (waker, refused_at) = (cx.waker().clone(), ticket.refused_at);
                let waiter = Waiter { ticket: number, waker, refused_at, parts: want.parts };
                // Whom the queue pair has refused was the first, and stays it.
                match refused_at {
                    Some(_) => table.waiters.push_front(waiter),
                    None => table.waiters.push_back(waiter),
                }
                ticket.number = Some(number);
            }
        }
        drop(table);
        drop(former);
        Poll::Pending
    }

    /// Leaves the line.
    pub(crate) fn leave(&self, ticket: &mut Ticket) {
        let Some(number) = ticket.number.take() else { return };
        let mut table = self.table();
        let place = table.waiters.iter().position(|waiter| waiter.ticket == number);
        let left = place.and_then(|place| table.waiters.remove(place));
        // It may have been woken: then the next one has to be.
        let next = table.next_in_line();
        drop(table);
        drop(left);
        next.into_iter().for_each(Waker::wake);
    }

    /// Returns a slot whose request the queue pair refused, and what it kept.
    pub(crate) fn give_back(&self, number: u32) -> Option<K> {
        let mut wakes = Wakes::default();
        let mut table = self.table();
        let slot = &mut table.slots[number as usize];
        let (keep, parts) = (slot.keep.take(), slot.parts);
        table.room += parts;
        table.posted -= 1;
        table.release(number);
        wakes.add(table.next_in_line());
        if table.is_idle() {
            wakes.extend(table.idle.drain(..));
            wakes.add(table.stream.take());
        }
        drop(table);
        wakes.wake();
        keep
    }

    /// The number of requests that have completed, and whether any is with the device but `but`
    /// others.
    pub(crate) fn progress(&self, but: u32) -> (u64, bool) {
        let table = self.table();
        (table.completed, table.posted > but)
    }

    /// Notes the completion of a part: the last one, or one before that failed. Returns whether it
    /// belongs to a request, and what nobody waits for any more, to be dropped.
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
        // What the first part that failed says is the cause; those behind it are flushed.
        if !slot.failed {
            (slot.completion, slot.failed) = (completion, failed);
        }
        if !last {
            return Ok(None);
        }
        let waker = slot.waker.take();
        slot.state = State::Done;
        table.room += slot.parts;
        table.posted -= 1;
        table.completed += 1;
        let mut dropped = None;
        match slot.to {
            _ if slot.abandoned => {
                dropped = slot.keep.take();
                table.release(number);
            }
            To::Future => wakes.add(waker),
            To::Stream => {
                table.ready.push_back(number);
                wakes.add(table.stream.take());
            }
        }
        wakes.add(table.next_in_line());
        if table.is_idle() {
            wakes.extend(table.idle.drain(..));
            // The stream may be over.
            wakes.add(table.stream.take());
        }
        Ok(dropped)
    }

    /// The result of a request, once it has one.
    pub(crate) fn poll_outcome(
        &self,
        cx: &Context<'_>,
        number: u32,
    ) -> Poll<Result<Outcome<K>, Ended>> {
        let mut table = self.table();
        let lost = table.end.filter(|end| end.is_lost());
        let slot = &mut table.slots[number as usize];
        match (slot.state, lost) {
            (State::Done, _) => {
                let outcome = table.outcome(number);
                let next = table.next_in_line();
                drop(table);
                next.into_iter().for_each(Waker::wake);
                Poll::Ready(Ok(outcome))
            }
            (_, Some(end)) => {
                // The device may still use what is kept.
                slot.abandoned = true;
                Poll::Ready(Err(end))
            }
            (_, None) => {
                let former = remember(&mut slot.waker, cx);
                drop(table);
                drop(former);
                Poll::Pending
            }
        }
    }

    /// The future of a request is dropped. What is kept stays until the request has completed.
    pub(crate) fn abandon(&self, number: u32) {
        let mut table = self.table();
        let slot = &mut table.slots[number as usize];
        let waker = slot.waker.take();
        let mut next = None;
        let mut keep = None;
        match slot.state {
            State::Done => {
                keep = table.outcome(number).2;
                next = table.next_in_line();
            }
            State::Posted => slot.abandoned = true,
            State::Free => {}
        }
        drop(table);
        next.into_iter().for_each(Waker::wake);
        drop((waker, keep));
    }

    /// The next result for the stream; `None` when the queue has ended and none is left.
    pub(crate) fn poll_ready(&self, cx: &Context<'_>) -> Poll<Option<Outcome<K>>> {
        let mut table = self.table();
        if let Some(number) = table.ready.pop_front() {
            let outcome = table.outcome(number);
            let next = table.next_in_line();
            drop(table);
            next.into_iter().for_each(Waker::wake);
            return Poll::Ready(Some(outcome));
        }
        match table.end {
            Some(end) if end.is_lost() || table.is_idle() => Poll::Ready(None),
            _ => {
                let former = remember(&mut table.stream, cx);
                drop(table);
                drop(former);
                Poll::Pending
            }
        }
    }

    /// Ready when no request is with the device.
    pub(crate) fn poll_idle(&self, cx: &Context<'_>) -> Poll<Result<(), Ended>> {
        let mut table = self.table();
        if table.is_idle() {
            return Poll::Ready(Ok(()));
        }
        if let Some(end) = table.end.filter(|end| end.is_lost()) {
            return Poll::Ready(Err(end));
        }
        if !table.idle.iter().any(|waker| waker.will_wake(cx.waker())) {
            table.idle.push(cx.waker().clone());
        }
        Poll::Pending
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.table().is_idle()
    }

    /// Takes no more requests, for the first reason that is given; a loss comes after any other.
    pub(crate) fn end(&self, end: Ended, wakes: &mut Wakes) {
        let mut table = self.table();
        let table = &mut *table;
        if table.end.is_some_and(|former| former.is_lost() || !end.is_lost()) {
            return;
        }
        table.end = Some(end);
        wakes.extend(table.waiters.drain(..).map(|waiter| waiter.waker));
        wakes.add(table.stream.take());
        if end.is_lost() {
            wakes.extend(table.slots.iter_mut().filter_map(|slot| slot.waker.take()));
            wakes.extend(mem::take(&mut table.idle));
        }
    }
}

/// A completion that belongs to no request.
#[derive(Debug)]
pub(crate) struct Stray;

#[cfg(test)]
mod tests;
