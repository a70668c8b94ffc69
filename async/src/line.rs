//! The line of tasks that wait for room in a queue.

use std::collections::VecDeque;
use std::mem;
use std::task::{Context, Waker};

use crate::wakes::Wakes;

/// Completions after which other tasks pass a woken task: two turns of the pump.
const PATIENCE: u64 = 128;

/// A task that waits for room.
struct Waiter {
    ticket: u64,
    waker: Waker,
    refused_at: Option<u64>,
    parts: u32,
    turn: Turn,
}

/// Whether a task has been woken since it last polled.
enum Turn {
    /// It has not.
    Waits,
    /// It has, when this number of requests had completed.
    Woken(u64),
    /// It has, and has not polled for a while: its future may be leaked, or its task polls
    /// something else. Other tasks pass it.
    Passed,
}

/// The state of a queue when the line moves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// Number of completed requests.
    pub(crate) completed: u64,
    /// The device has no request, so no completion will move the line again.
    pub(crate) is_idle: bool,
}

/// A place in the line.
#[derive(Default, Debug)]
pub(crate) struct Ticket {
    number: Option<u64>,
    /// Number of requests that had completed when the queue pair had no room for this one.
    pub(crate) refused_at: Option<u64>,
}

/// The waiting tasks, in order of arrival.
#[derive(Default)]
pub(crate) struct Line {
    waiters: VecDeque<Waiter>,
    next: u64,
}

impl Line {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Whether this ticket, or a new one, may go ahead of all tasks before it.
    pub(crate) fn is_first(&self, ticket: &Ticket) -> bool {
        let mut before =
            self.waiters.iter().take_while(|waiter| Some(waiter.ticket) != ticket.number);
        before.all(|waiter| matches!(waiter.turn, Turn::Passed))
    }

    /// Wakes the first task if its request, by its parts and its refusal, `may` be tried. Later
    /// tasks pass a task that was woken and does not poll: after a while, or at once in an idle
    /// queue, where nothing would wake them later.
    pub(crate) fn advance(
        &mut self,
        now: Moment,
        may: impl Fn(u32, Option<u64>) -> bool,
        wakes: &mut Wakes,
    ) {
        for waiter in &mut self.waiters {
            match waiter.turn {
                Turn::Passed => continue,
                Turn::Waits if !may(waiter.parts, waiter.refused_at) => return,
                Turn::Waits => {
                    wakes.add(Some(waiter.waker.clone()));
                    waiter.turn = Turn::Woken(now.completed);
                }
                Turn::Woken(_) => {}
            }
            let Turn::Woken(at) = waiter.turn else { continue };
            if !now.is_idle && now.completed - at < PATIENCE {
                return;
            }
            waiter.turn = Turn::Passed;
        }
    }

    /// Enters the line, or stays in it. Returns the former waker, to be dropped when no lock is
    /// held.
    pub(crate) fn wait(
        &mut self,
        ticket: &mut Ticket,
        cx: &Context<'_>,
        parts: u32,
    ) -> Option<Waker> {
        let refused_at = ticket.refused_at;
        let own = |waiter: &&mut Waiter| Some(waiter.ticket) == ticket.number;
        if let Some(waiter) = self.waiters.iter_mut().find(own) {
            // A refused task has left the line before, so `refused_at` is unchanged.
            waiter.turn = Turn::Waits;
            let is_same = waiter.waker.will_wake(cx.waker());
            return (!is_same).then(|| mem::replace(&mut waiter.waker, cx.waker().clone()));
        }
        let (waker, turn) = (cx.waker().clone(), Turn::Waits);
        let waiter = Waiter { ticket: self.next, waker, refused_at, parts, turn };
        ticket.number = Some(self.next);
        self.next += 1;
        // A request that the queue pair has refused was the first, and stays the first.
        match refused_at {
            Some(_) => self.waiters.push_front(waiter),
            None => self.waiters.push_back(waiter),
        }
        None
    }

    /// Leaves the line. Returns the waker, to be dropped when no lock is held.
    pub(crate) fn leave(&mut self, ticket: &mut Ticket) -> Option<Waker> {
        let number = ticket.number.take()?;
        let place = self.waiters.iter().position(|waiter| waiter.ticket == number)?;
        self.waiters.remove(place).map(|waiter| waiter.waker)
    }

    /// Empties the line, and returns its wakers.
    pub(crate) fn dissolve(&mut self) -> impl Iterator<Item = Waker> {
        self.waiters.drain(..).map(|waiter| waiter.waker)
    }
}
