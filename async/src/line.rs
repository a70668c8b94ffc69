//! The line of tasks that wait for room in a queue.

use std::collections::VecDeque;
use std::mem;
use std::task::{Context, Waker};

/// A task that waits for room.
struct Waiter {
    ticket: u64,
    waker: Waker,
    refused_at: Option<u64>,
    parts: u32,
}

/// A place in the line.
#[derive(Default, Debug)]
pub(crate) struct Ticket {
    number: Option<u64>,
    /// How many requests had completed when the queue pair had no room for this one.
    pub(crate) refused_at: Option<u64>,
}

/// The tasks, in the order in which they came.
#[derive(Default)]
pub(crate) struct Line {
    waiters: VecDeque<Waiter>,
    next: u64,
}

impl Line {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Whether nobody is before this ticket.
    pub(crate) fn is_first(&self, ticket: &Ticket) -> bool {
        self.waiters.front().is_none_or(|first| Some(first.ticket) == ticket.number)
    }

    /// The first one, if its request, of so many parts and refused then, `may` be tried.
    pub(crate) fn first_if(&self, may: impl FnOnce(u32, Option<u64>) -> bool) -> Option<Waker> {
        let first = self.waiters.front()?;
        may(first.parts, first.refused_at).then(|| first.waker.clone())
    }

    /// Enters the line, or stays in it. Returns the former waker, to be dropped when no lock is held.
    pub(crate) fn wait(
        &mut self,
        ticket: &mut Ticket,
        cx: &Context<'_>,
        parts: u32,
    ) -> Option<Waker> {
        let refused_at = ticket.refused_at;
        let own = |waiter: &&mut Waiter| Some(waiter.ticket) == ticket.number;
        if let Some(waiter) = self.waiters.iter_mut().find(own) {
            // Whoever is refused has left the line before, so that is what it was.
            let is_same = waiter.waker.will_wake(cx.waker());
            return (!is_same).then(|| mem::replace(&mut waiter.waker, cx.waker().clone()));
        }
        let waiter = Waiter { ticket: self.next, waker: cx.waker().clone(), refused_at, parts };
        ticket.number = Some(self.next);
        self.next += 1;
        // Whom the queue pair has refused was the first, and stays it.
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

    /// Sends all away.
    pub(crate) fn dissolve(&mut self) -> impl Iterator<Item = Waker> {
        self.waiters.drain(..).map(|waiter| waiter.waker)
    }
}
