//! What a key is taken to be, by those requests that configured it or will.

use super::signature::SignatureBlock;
use mlx5_wqe::Changed;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How a key is signed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Signing {
    /// It is not, and must be told so: it is made for signatures.
    Off,
    /// Like this.
    On(SignatureBlock),
    /// A queue was reset with a request outstanding that would have changed it.
    Unknown,
}

/// What a key is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    /// Bytes, if known.
    pub(crate) length: Option<u64>,
    pub(crate) signing: Signing,
    /// The variant byte.
    pub(crate) variant: u8,
    /// The count of errors that the device was last told, if known.
    pub(crate) told: Option<u32>,
}

/// What a request changes.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Delta {
    pub(crate) length: Option<u64>,
    pub(crate) signing: Option<Signing>,
    pub(crate) variant: Option<u8>,
    pub(crate) told: Option<u32>,
}

impl Shape {
    fn apply(&mut self, delta: &Delta) {
        self.length = delta.length.or(self.length);
        self.signing = delta.signing.unwrap_or(self.signing);
        self.variant = delta.variant.unwrap_or(self.variant);
        self.told = delta.told.or(self.told);
    }

    /// Whether `delta` happened will never be known.
    fn blur(&mut self, delta: &Delta) {
        if delta.length.is_some() {
            self.length = None;
        }
        if delta.signing.is_some() {
            self.signing = Signing::Unknown;
        }
        // The variant is part of the key's name: whoever uses the new one finds out.
        self.variant = delta.variant.unwrap_or(self.variant);
        if delta.told.is_some() {
            self.told = None;
        }
    }
}

/// A key's shape as the device has it, and the changes on their way.
pub(crate) struct State(Mutex<Changes>);

struct Changes {
    settled: Shape,
    pending: Vec<(u64, Delta)>,
    next: u64,
}

impl State {
    pub(crate) fn new(shape: Shape) -> Self {
        Self(Mutex::new(Changes { settled: shape, pending: Vec::new(), next: 0 }))
    }

    fn lock(&self) -> MutexGuard<'_, Changes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The shape once everything on its way has happened.
    pub(crate) fn shape(&self) -> Shape {
        self.lock().shape()
    }

    /// Notes what a request will change; `plan` is told the shape before it. Returns what undoes it.
    pub(crate) fn change<T, E>(
        &self,
        plan: impl FnOnce(Shape) -> Result<(Delta, T), E>,
    ) -> Result<(u64, T), E> {
        let mut changes = self.lock();
        let (delta, result) = plan(changes.shape())?;
        let number = changes.next;
        changes.next += 1;
        changes.pending.push((number, delta));
        Ok((number, result))
    }
}

impl Changes {
    fn shape(&self) -> Shape {
        let mut shape = self.settled;
        self.pending.iter().for_each(|(_, delta)| shape.apply(delta));
        shape
    }

    fn take(&mut self, number: u64) -> Option<Delta> {
        let at = self.pending.iter().position(|(at, _)| *at == number)?;
        Some(self.pending.remove(at).1)
    }
}

impl Changed for State {
    fn undo(&self, change: u64) {
        self.lock().take(change);
    }

    fn settle(&self, change: u64) {
        let mut changes = self.lock();
        if let Some(delta) = changes.take(change) {
            changes.settled.apply(&delta);
        }
    }

    fn lose(&self, change: u64) {
        let mut changes = self.lock();
        if let Some(delta) = changes.take(change) {
            changes.settled.blur(&delta);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRESH: Shape = Shape { length: None, signing: Signing::Off, variant: 0, told: None };

    fn length(state: &State, bytes: u64) -> u64 {
        let delta = Delta { length: Some(bytes), ..Delta::default() };
        state.change(|_| Ok::<_, ()>((delta, ()))).unwrap().0
    }

    #[test]
    fn a_change_that_is_undone_leaves_no_trace_whatever_came_after_it() {
        let state = State::new(FRESH);
        let [a, b, c] = [1, 2, 3].map(|bytes| length(&state, bytes));
        assert_eq!(state.shape().length, Some(3));
        state.undo(b);
        assert_eq!(state.shape().length, Some(3));
        state.undo(c);
        assert_eq!(state.shape().length, Some(1));
        state.settle(a);
        assert_eq!(state.shape().length, Some(1));
        // Each is told of once; again means nothing.
        state.undo(a);
        assert_eq!(state.shape().length, Some(1));
    }

    #[test]
    fn what_nobody_will_ever_know_is_unknown_until_it_is_said_again() {
        let state = State::new(FRESH);
        let delta = Delta {
            signing: Some(Signing::Off),
            told: Some(7),
            variant: Some(3),
            ..Delta::default()
        };
        let (change, ()) = state.change(|_| Ok::<_, ()>((delta, ()))).unwrap();
        state.lose(change);
        let shape = state.shape();
        assert_eq!((shape.signing, shape.told, shape.variant), (Signing::Unknown, None, 3));
        let (change, ()) = state.change(|_| Ok::<_, ()>((delta, ()))).unwrap();
        state.settle(change);
        assert_eq!(state.shape().signing, Signing::Off);
    }
}
