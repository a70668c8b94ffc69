//! Waiting tasks, and calls into the caller's code for them: these run without a lock, and contain
//! a panic of one task's waker, or of a kept value's drop, so that it reaches no other task.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Waker};

/// Calls the caller's code, and contains a panic; the panic hook has reported it.
fn contained(work: impl FnOnce()) {
    drop(catch_unwind(AssertUnwindSafe(work)));
}

pub(crate) fn wake(waker: Option<Waker>) {
    waker.into_iter().for_each(|waker| contained(|| waker.wake()));
}

/// Drops a value of the caller's, in a place that other tasks depend on.
pub(crate) fn discard<T>(value: T) {
    if mem::needs_drop::<T>() {
        contained(|| drop(value));
    }
}

/// Wakers to call. The vector keeps its capacity, so that a completion allocates nothing. If a
/// panic skipped some of them, the drop calls them.
#[derive(Default, Debug)]
pub(crate) struct Wakes(Vec<Waker>);

impl Wakes {
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self(Vec::with_capacity(capacity))
    }

    pub(crate) fn add(&mut self, waker: Option<Waker>) {
        self.0.extend(waker);
    }

    pub(crate) fn extend(&mut self, wakers: impl IntoIterator<Item = Waker>) {
        self.0.extend(wakers);
    }

    /// Calls them all.
    pub(crate) fn wake(&mut self) {
        self.0.drain(..).for_each(|waker| wake(Some(waker)));
    }
}

impl Drop for Wakes {
    fn drop(&mut self) {
        self.wake();
    }
}

/// Stores the task's waker in a place. Returns the former one, to be dropped without a lock: its
/// drop may drop a task, and with it requests of this queue.
pub(crate) fn remember(waker: &mut Option<Waker>, cx: &Context<'_>) -> Option<Waker> {
    match waker {
        Some(waker) if waker.will_wake(cx.waker()) => None,
        _ => waker.replace(cx.waker().clone()),
    }
}

/// The tasks that wait for one event, each with its own place. All are woken at once, so that none
/// has to wake the next.
#[derive(Default, Debug)]
pub(crate) struct Waiting {
    tasks: Vec<(u64, Waker)>,
    next: u64,
}

/// The place of a stream or a future among the waiting tasks.
#[derive(Default, Debug)]
pub(crate) struct Place(Option<u64>);

impl Waiting {
    /// Waits. Returns the former waker of the place, to be dropped without a lock.
    pub(crate) fn wait(&mut self, place: &mut Place, cx: &Context<'_>) -> Option<Waker> {
        let number = *place.0.get_or_insert_with(|| {
            self.next += 1;
            self.next
        });
        match self.tasks.iter_mut().find(|(of, _)| *of == number) {
            Some((_, waker)) if waker.will_wake(cx.waker()) => None,
            Some((_, waker)) => Some(mem::replace(waker, cx.waker().clone())),
            None => {
                self.tasks.push((number, cx.waker().clone()));
                None
            }
        }
    }

    /// Stops waiting. Returns the waker, to be dropped without a lock.
    pub(crate) fn leave(&mut self, place: &mut Place) -> Option<Waker> {
        let number = place.0.take()?;
        let at = self.tasks.iter().position(|(of, _)| *of == number)?;
        Some(self.tasks.swap_remove(at).1)
    }

    /// Wakes all tasks. They wait again in the same places.
    pub(crate) fn wake(&mut self, wakes: &mut Wakes) {
        wakes.extend(self.tasks.drain(..).map(|(_, waker)| waker));
    }
}
