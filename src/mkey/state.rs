//! What a key is taken to be, by those requests that configured it or will.

use super::signature::SignatureBlock;
use mlx5_doorbell::{Lock, Locked};
use mlx5_wqe::Changed;
use std::collections::VecDeque;

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
    #[inline(always)]
    fn apply(&mut self, delta: &Delta) {
        let Delta { length, signing, variant, told } = delta;
        if length.is_some() {
            self.length = *length;
        }
        if let Some(signing) = signing {
            self.signing = *signing;
        }
        if let Some(variant) = variant {
            self.variant = *variant;
        }
        if told.is_some() {
            self.told = *told;
        }
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
pub(crate) struct State(Lock<Changes>);

struct Changes {
    settled: Shape,
    /// In the order in which they were made.
    pending: VecDeque<(u64, Delta)>,
    /// What all of them together make of it.
    latest: Shape,
    next: u64,
}

impl State {
    pub(crate) fn new(shape: Shape) -> Self {
        let pending = VecDeque::new();
        Self(Lock::new(Changes { settled: shape, pending, latest: shape, next: 0 }))
    }

    #[inline(always)]
    fn lock(&self) -> Locked<'_, Changes> {
        self.0.lock()
    }

    /// The shape once everything on its way has happened.
    pub(crate) fn shape(&self) -> Shape {
        self.lock().latest
    }

    /// Notes what a request will change; `plan` is told the shape before it. Returns what undoes it.
    pub(crate) fn change<T, E>(
        &self,
        plan: impl FnOnce(&Shape) -> Result<(Delta, T), E>,
    ) -> Result<(u64, T), E> {
        let mut changes = self.lock();
        let (delta, result) = plan(&changes.latest)?;
        Ok((changes.push(delta), result))
    }

    /// [`State::change`] of the length alone, by a request that tells the device of nothing else.
    /// Returns the variant byte, too.
    #[inline(always)]
    pub(crate) fn change_length(&self, length: u64) -> (u64, u8) {
        let mut changes = self.lock();
        let number = changes.push(Delta { length: Some(length), ..Delta::default() });
        (number, changes.latest.variant)
    }
}

impl Changes {
    #[inline(always)]
    fn push(&mut self, delta: Delta) -> u64 {
        let number = self.next;
        self.next += 1;
        self.latest.apply(&delta);
        self.pending.push_back((number, delta));
        number
    }

    /// Takes a change out of those on their way, and makes of it what `becomes` does to the shape that
    /// is settled.
    fn take(&mut self, number: u64, becomes: impl FnOnce(&mut Shape, &Delta)) {
        let Some(at) = self.pending.iter().position(|(at, _)| *at == number) else { return };
        let Some((_, delta)) = self.pending.remove(at) else { return };
        becomes(&mut self.settled, &delta);
        self.latest = self.settled;
        self.pending.iter().for_each(|(_, delta)| self.latest.apply(delta));
    }

    #[cold]
    #[inline(never)]
    fn settle_any(&mut self, number: u64) {
        self.take(number, Shape::apply);
    }

    /// [`Changes::take`] of the first change, which happened: what all together make stays the same.
    #[inline(always)]
    fn settle_first(&mut self, number: u64) -> bool {
        match self.pending.front() {
            Some((at, delta)) if *at == number => self.settled.apply(delta),
            _ => return false,
        }
        self.pending.pop_front();
        true
    }
}

impl Changed for State {
    fn undo(&self, change: u64) {
        self.lock().take(change, |_, _| {});
    }

    #[inline(always)]
    fn settle(&self, change: u64) {
        let mut changes = self.lock();
        if !changes.settle_first(change) {
            changes.settle_any(change);
        }
    }

    fn lose(&self, change: u64) {
        self.lock().take(change, Shape::blur);
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
    fn a_change_that_happens_before_an_earlier_one_is_the_earlier_ones_to_overwrite() {
        let state = State::new(FRESH);
        let [a, b] = [1, 2].map(|bytes| length(&state, bytes));
        state.settle(b);
        assert_eq!(state.shape().length, Some(1));
        state.settle(a);
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
