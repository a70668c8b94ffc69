//! Tasks that wait, and what of the caller's is called for them: when no lock is held, and so that a
//! panic of one task's waker, or of what its request keeps, reaches no other task.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Waker};

/// Does something of the caller's. A panic ends here; the hook has reported it.
fn contained(work: impl FnOnce()) {
    drop(catch_unwind(AssertUnwindSafe(work)));
}

pub(crate) fn wake(waker: Option<Waker>) {
    waker.into_iter().for_each(|waker| contained(|| waker.wake()));
}

/// Drops what the caller has made, in a place that other tasks depend on.
pub(crate) fn discard<T>(value: T) {
    if mem::needs_drop::<T>() {
        contained(|| drop(value));
    }
}

/// Wakers to be called. The vector keeps its room, so that none is allocated for each completion.
/// Those that were not called when it is dropped, because of a panic, are called then.
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

/// Puts the task's waker in a place. Returns the former one, to be dropped when no lock is held: its
/// drop may drop a task, and with it requests of this queue.
pub(crate) fn remember(waker: &mut Option<Waker>, cx: &Context<'_>) -> Option<Waker> {
    match waker {
        Some(waker) if waker.will_wake(cx.waker()) => None,
        _ => waker.replace(cx.waker().clone()),
    }
}

/// The tasks that wait for one thing, each by a place of its own. All are woken at once, so that none
/// has to pass its turn on.
#[derive(Default, Debug)]
pub(crate) struct Waiting {
    tasks: Vec<(u64, Waker)>,
    next: u64,
}

/// The place of a stream or a future among those that wait.
#[derive(Default, Debug)]
pub(crate) struct Place(Option<u64>);

impl Waiting {
    /// Waits. Returns the former waker of the place, to be dropped when no lock is held.
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

    /// Waits no more. Returns the waker, to be dropped when no lock is held.
    pub(crate) fn leave(&mut self, place: &mut Place) -> Option<Waker> {
        let number = place.0.take()?;
        let at = self.tasks.iter().position(|(of, _)| *of == number)?;
        Some(self.tasks.swap_remove(at).1)
    }

    /// Wakes all. They wait again by the same places.
    pub(crate) fn wake(&mut self, wakes: &mut Wakes) {
        wakes.extend(self.tasks.drain(..).map(|(_, waker)| waker));
    }
}
