//! Wakers that are called when no lock is held.

use std::task::Waker;

/// Wakers to be called. The vector keeps its room, so that none is allocated for each completion.
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
        self.0.drain(..).for_each(Waker::wake);
    }
}
