//! The key state: the driver's view of a key, from the requests that configured it or will.
//!
//! A request that is not known to be executed may still be cancelled, aborted or lost. So a request
//! must not rely on an earlier one that is pending: see [`Before::is_certain`]. If the device
//! reports an error while several configurations are outstanding, transfers after the later ones
//! are unchecked: see [`State::error_reported`].

use super::signature::SignatureBlock;
use mlx5_doorbell::{Lock, LockGuard};
use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;

/// The signing of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Signing {
    /// Not signed, although it was created for signatures; requests must say so.
    Off,
    /// Signed like this.
    On(SignatureBlock),
    /// Unknown: a queue was reset while a request that changes it was outstanding.
    Unknown,
}

/// The properties of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeyState {
    /// Length in bytes, if known.
    pub(crate) length: Option<u64>,
    pub(crate) signing: Signing,
    /// The variant (low byte).
    pub(crate) variant: u8,
    /// The error count last passed to the device, if known.
    pub(crate) error_count: Option<u32>,
}

/// The changes of one request.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Update {
    pub(crate) length: Option<u64>,
    pub(crate) signing: Option<Signing>,
    /// Every request writes a variant. `None` if the request does not set one: it then writes the
    /// one that it finds, which is part of the change's number.
    pub(crate) variant: Option<u8>,
    pub(crate) error_count: Option<u32>,
}

impl KeyState {
    /// Returns how the blocks are signed, if they are.
    pub(crate) fn signature(&self) -> Option<SignatureBlock> {
        match self.signing {
            Signing::On(block) => Some(block),
            Signing::Off | Signing::Unknown => None,
        }
    }

    #[inline(always)]
    fn apply(&mut self, delta: &Update) {
        let Update { length, signing, variant, error_count } = delta;
        if length.is_some() {
            self.length = *length;
        }
        if let Some(signing) = signing {
            self.signing = *signing;
        }
        if let Some(variant) = variant {
            self.variant = *variant;
        }
        if error_count.is_some() {
            self.error_count = *error_count;
        }
    }

    /// Whether `delta` changes the signature or the error count passed to the device.
    #[inline(always)]
    fn changes_signature(&self, delta: &Update) -> bool {
        delta.signing.is_some_and(|signing| signing != self.signing)
            || delta.error_count.is_some_and(|error_count| self.error_count != Some(error_count))
    }

    /// Marks the properties in `delta` as unknown: it is unknown whether the request was executed.
    fn mark_unknown(&mut self, delta: &Update) {
        if delta.length.is_some() {
            self.length = None;
        }
        if delta.signing.is_some() {
            self.signing = Signing::Unknown;
        }
        // The variant is part of the key, so using a wrong one fails visibly.
        self.variant = delta.variant.unwrap_or(self.variant);
        if delta.error_count.is_some() {
            self.error_count = None;
        }
    }
}

/// A pending change. Most are of the length only, and take less room. The variant is in its number.
enum Pending {
    Length(u64),
    Any(Box<Update>),
}

impl Pending {
    /// Returns the properties that the request of the change with this number writes.
    fn update(&self, number: u64) -> Update {
        let variant = Some(variant_of(number));
        match self {
            Self::Length(length) => Update { length: Some(*length), variant, ..Update::default() },
            Self::Any(update) => Update { variant, ..**update },
        }
    }
}

/// Difference between two consecutive numbers.
const STEP: u64 = 1 << u8::BITS;

/// Returns the number of changes before the one with this number.
const fn place_of(number: u64) -> u64 {
    number / STEP
}

/// The variant that the request of the change with this number writes. It is the low byte of the
/// number, so that it needs no store of its own.
#[inline(always)]
pub(crate) const fn variant_of(number: u64) -> u8 {
    number as u8
}

/// A reference that keeps a key state in memory.
pub(crate) type Keeper = Arc<dyn Any + Send + Sync>;

/// The settled properties of a key, and the pending changes.
///
/// It holds a reference to itself while changes are pending: queues have only its address, because
/// counted references would take two atomic operations for each change.
pub(crate) struct State(Lock<Changes>);

struct Changes {
    settled: KeyState,
    /// Numbers and changes, in posting order. Numbers ascend; see [`variant_of`].
    pending: VecDeque<(u64, Pending)>,
    /// Number of pending changes that change more than the length.
    others: usize,
    /// The properties after all pending changes.
    latest: KeyState,
    /// The next number, without its variant.
    next: u64,
    /// The number after the last pending change that changed signature or error count: from here on
    /// all are equal in both.
    last_signature_change: u64,
    /// Configurations at lower places were checked by the user.
    checked: u64,
    /// Changes whose transfers are unchecked.
    unchecked: Vec<u64>,
    /// The reference that keeps the value in memory, until the key is gone and no change is
    /// pending.
    keeper: Option<Keeper>,
    /// The key is gone.
    closed: bool,
}

/// The key state that a request under construction finds.
pub(crate) struct Before<'a>(&'a Changes);

impl Before<'_> {
    /// Returns the properties after all pending changes.
    pub(crate) fn shape(&self) -> &KeyState {
        &self.0.latest
    }

    /// Whether signature and error count are those of [`Before::shape`], whichever pending requests
    /// are executed. If not, a request must set both: one that it relies on could be cancelled.
    pub(crate) fn is_certain(&self) -> bool {
        self.0.pending.front().is_none_or(|(first, _)| self.0.last_signature_change <= *first)
    }

    /// Returns the maximum length of the key, whichever pending requests are executed.
    pub(crate) fn max_length(&self) -> Option<u64> {
        let pending = self.0.pending.iter().map(|(number, delta)| delta.update(*number).length);
        pending.fold(self.0.settled.length, Option::max)
    }
}

impl State {
    pub(crate) fn new(shape: KeyState) -> Self {
        Self(Lock::new(Changes {
            settled: shape,
            pending: VecDeque::new(),
            others: 0,
            latest: shape,
            next: 0,
            last_signature_change: 0,
            checked: 0,
            unchecked: Vec::new(),
            keeper: None,
            closed: false,
        }))
    }

    /// Stores the reference that keeps the value in memory.
    pub(crate) fn keep(&self, keeper: Keeper) {
        self.lock().keeper = Some(keeper);
    }

    /// Notes that the key is gone. Returns the reference that kept the value, unless changes are
    /// pending: then the end of the last one returns it.
    #[must_use]
    pub(crate) fn close(&self) -> Option<Keeper> {
        let mut changes = self.lock();
        changes.closed = true;
        changes.release()
    }

    /// Undoes the change of a request that will never be executed. Returns the reference that kept
    /// the value, like [`State::close`], if it is no longer needed.
    pub(crate) fn undo(&self, change: u64) -> Option<Keeper> {
        let mut changes = self.lock();
        changes.undo(change);
        changes.release()
    }

    /// Settles these changes of one queue, in posting order, whose requests were executed.
    pub(crate) fn settle(&self, settled: &[u64]) -> Option<Keeper> {
        let mut changes = self.lock();
        if !changes.settle_oldest(settled) {
            changes.settle_each(settled);
        }
        changes.release()
    }

    /// Notes that it will never be known whether the request of `change` was executed.
    pub(crate) fn mark_unknown(&self, change: u64) -> Option<Keeper> {
        let mut changes = self.lock();
        changes.take(change, KeyState::mark_unknown);
        changes.release()
    }

    #[inline(always)]
    fn lock(&self) -> LockGuard<'_, Changes> {
        self.0.lock()
    }

    /// As [`State::shape`], but does not wait: `None` if another thread has the lock.
    pub(crate) fn try_shape(&self) -> Option<KeyState> {
        self.0.try_lock().map(|changes| changes.latest)
    }

    /// Returns the properties after all pending changes.
    pub(crate) fn shape(&self) -> KeyState {
        self.lock().latest
    }

    /// Notes the change of a request; `plan` gets the state before it. Returns the number of the
    /// change.
    pub(crate) fn change<T, E>(
        &self,
        plan: impl FnOnce(Before<'_>) -> Result<(Update, T), E>,
    ) -> Result<(u64, T), E> {
        let mut changes = self.lock();
        let (delta, result) = plan(Before(&changes))?;
        if !changes.unchecked.is_empty() {
            changes.forget_unchecked();
        }
        Ok((changes.push(delta), result))
    }

    /// Handles a signature error that the device reported. `note` records it and returns the error
    /// count in the request that configured the key for the transfer.
    ///
    /// The device reports no other error until a request that is built after this error is known
    /// passes it the next count. One of the requests that passed the same count configured the key
    /// for the failed transfer; the device does not report which. The transfers of those after the
    /// first are unchecked.
    /// first are unchecked.
    pub(crate) fn error_reported(&self, note: impl FnOnce() -> u32) {
        let mut changes = self.lock();
        let error_count = note();
        changes.mark_unchecked(error_count);
    }

    /// The user checks the key. Returns whether there is an unchecked transfer, and removes it.
    ///
    /// If not, the transfers were good: those of requests that are known to be executed, and that
    /// of the next one, which this check is for.
    pub(crate) fn take_unchecked(&self) -> bool {
        let mut changes = self.lock();
        if changes.unchecked.pop().is_some() {
            return true;
        }
        let first = changes.pending.front().map(|(first, _)| place_of(*first) + 1);
        let next = first.unwrap_or(place_of(changes.next));
        changes.checked = changes.checked.max(next);
        false
    }

    /// Returns the number of unchecked transfers.
    pub(crate) fn unchecked(&self) -> usize {
        self.lock().unchecked.len()
    }

    /// [`State::change`] of the length only; nothing if `variant` is to change as well.
    #[inline(always)]
    pub(crate) fn change_length(&self, length: u64, variant: Option<u8>) -> Option<u64> {
        let mut changes = self.lock();
        if variant.is_some_and(|variant| variant != changes.latest.variant) {
            return None;
        }
        let variant = changes.latest.variant;
        Some(changes.push_length(length, variant))
    }
}

impl Changes {
    /// Returns the reference that keeps the value, if the key is gone and no change is pending.
    #[inline(always)]
    fn release(&mut self) -> Option<Keeper> {
        if self.closed && self.pending.is_empty() { self.keeper.take() } else { None }
    }

    fn push(&mut self, delta: Update) -> u64 {
        let Update { length, signing, variant, error_count } = delta;
        let variant = variant.unwrap_or(self.latest.variant);
        if let (Some(length), None, None) = (length, signing, error_count) {
            return self.push_length(length, variant);
        }
        let number = self.next | u64::from(variant);
        if self.latest.changes_signature(&delta) {
            self.last_signature_change = number + 1;
        }
        self.latest.apply(&delta);
        self.others += 1;
        self.add(number, Pending::Any(Box::new(delta)))
    }

    /// Removes a pending change, if it has not ended.
    fn remove(&mut self, number: u64) -> Option<Update> {
        let at = self.pending.iter().position(|(at, _)| *at == number)?;
        let (_, delta) = self.pending.remove(at)?;
        self.others -= usize::from(matches!(delta, Pending::Any(_)));
        Some(delta.update(number))
    }

    /// [`Changes::push`] of a change of the length, whose request writes this variant.
    #[inline(always)]
    fn push_length(&mut self, length: u64, variant: u8) -> u64 {
        self.latest.length = Some(length);
        self.latest.variant = variant;
        self.add(self.next | u64::from(variant), Pending::Length(length))
    }

    /// Adds a change, which `latest` has already, with the next number.
    #[inline(always)]
    fn add(&mut self, number: u64, delta: Pending) -> u64 {
        self.next += STEP;
        self.pending.push_back((number, delta));
        number
    }

    /// Removes a pending change, and updates the settled properties by `becomes`.
    fn take(&mut self, number: u64, becomes: impl FnOnce(&mut KeyState, &Update)) {
        let Some(delta) = self.remove(number) else { return };
        becomes(&mut self.settled, &delta);
        self.recompute();
    }

    /// Removes the change of a request that will not be executed.
    fn undo(&mut self, number: u64) {
        if self.remove(number).is_none() {
            return;
        }
        self.unchecked.retain(|change| *change != number);
        self.recompute();
    }

    /// Computes `latest` and `last_signature_change` from the settled properties and the pending
    /// changes.
    fn recompute(&mut self) {
        self.latest = self.settled;
        self.last_signature_change = 0;
        for (number, delta) in self.pending.iter() {
            let delta = delta.update(*number);
            if self.latest.changes_signature(&delta) {
                self.last_signature_change = number + 1;
            }
            self.latest.apply(&delta);
        }
    }

    fn mark_unchecked(&mut self, error_count: u32) {
        let reports = |shape: &KeyState| {
            shape.error_count == Some(error_count) && matches!(shape.signing, Signing::On(_))
        };
        let first = place_of(self.pending.front().map_or(self.next, |(first, _)| *first));
        // Settled configurations but the last have no transfers outstanding: a configuration
        // follows the transfers of the one before it in the queue.
        let mut found = reports(&self.settled) && self.checked < first;
        let mut shape = self.settled;
        for (number, delta) in self.pending.iter() {
            shape.apply(&delta.update(*number));
            if reports(&shape) && std::mem::replace(&mut found, true) {
                self.unchecked.push(*number);
            }
        }
    }

    /// A user that configures the key again has checked it, or ignores the result. Pending changes
    /// stay: they can only be checked later.
    #[cold]
    fn forget_unchecked(&mut self) {
        let pending = &self.pending;
        self.unchecked.retain(|change| pending.iter().any(|(number, _)| number == change));
    }

    /// Like [`Changes::take`] for executed changes, if they are the oldest ones and change only the
    /// length: `latest` stays the same. Otherwise returns false, and does nothing.
    #[inline(always)]
    fn settle_oldest(&mut self, settled: &[u64]) -> bool {
        // Numbers ascend, and none of these has ended: if the last one is at its place, so are all.
        debug_assert!(settled.is_sorted_by(|a, b| a < b));
        let Some((last, before)) = settled.split_last() else { return true };
        match self.pending.get(before.len()) {
            Some((at, Pending::Length(length))) if self.others == 0 && at == last => {
                self.settled.length = Some(*length);
                self.settled.variant = variant_of(*at);
            }
            _ => return false,
        }
        // They own nothing.
        settled.iter().for_each(|_| drop(self.pending.pop_front()));
        true
    }

    /// [`Changes::take`] of each of these changes, which were executed.
    #[cold]
    #[inline(never)]
    fn settle_each(&mut self, settled: &[u64]) {
        for number in settled {
            match self.pending.front() {
                // `latest` stays the same.
                Some((at, Pending::Length(length))) if at == number => {
                    self.settled.length = Some(*length);
                    self.settled.variant = variant_of(*at);
                    self.pending.pop_front();
                }
                _ => self.take(*number, KeyState::apply),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::signature::{BlockSize, Crc, Domain, Seed, Signature};
    use super::*;

    const FRESH: KeyState =
        KeyState { length: None, signing: Signing::Off, variant: 0, error_count: None };

    fn length(state: &State, bytes: u64) -> u64 {
        let delta = Update { length: Some(bytes), ..Update::default() };
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
        state.settle(&[a]);
        assert_eq!(state.shape().length, Some(1));
        // Each change ends once; a second call has no effect.
        state.undo(a);
        assert_eq!(state.shape().length, Some(1));
    }

    #[test]
    fn a_change_that_happens_before_an_earlier_one_is_the_earlier_ones_to_overwrite() {
        let state = State::new(FRESH);
        let [a, b] = [1, 2].map(|bytes| length(&state, bytes));
        state.settle(&[b]);
        assert_eq!(state.shape().length, Some(1));
        state.settle(&[a]);
        assert_eq!(state.shape().length, Some(1));
    }

    /// Changes of the length only, which take another way, end in any order as others do.
    #[test]
    fn changes_of_the_length_only_are_as_any_other() {
        let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        for order in orders {
            let (short, any) = (State::new(FRESH), State::new(FRESH));
            let shorts = [1, 2, 3].map(|bytes| short.change_length(bytes, None).unwrap());
            let anys = [1, 2, 3].map(|bytes| length(&any, bytes));
            for which in order {
                short.settle(&[shorts[which]]);
                any.settle(&[anys[which]]);
                assert_eq!(short.shape(), any.shape(), "{order:?}");
                let longest = |state: &State| Before(&state.lock()).max_length();
                assert_eq!(longest(&short), longest(&any), "{order:?}");
            }
            // Each ends once.
            short.settle(&[shorts[0]]);
            assert_eq!(short.shape(), any.shape());
        }
        let state = State::new(KeyState { variant: 4, ..FRESH });
        assert_eq!(state.change_length(9, Some(5)), None, "another variant");
        assert_eq!(state.shape().length, None);
        assert_eq!(state.change_length(9, Some(4)), Some(4));
        assert_eq!(state.shape().length, Some(9));
    }

    #[test]
    fn what_nobody_will_ever_know_is_unknown_until_it_is_said_again() {
        let state = State::new(KeyState { error_count: Some(6), length: Some(9), ..FRESH });
        let delta = Update {
            length: Some(10),
            signing: Some(Signing::Off),
            error_count: Some(7),
            variant: Some(3),
        };
        let (change, ()) = state.change(|_| Ok::<_, ()>((delta, ()))).unwrap();
        assert_eq!(state.shape().error_count, Some(7));
        state.mark_unknown(change);
        let unknown =
            KeyState { length: None, signing: Signing::Unknown, variant: 3, error_count: None };
        assert_eq!(state.shape(), unknown);
        let (change, ()) = state.change(|_| Ok::<_, ()>((delta, ()))).unwrap();
        state.settle(&[change]);
        let said =
            KeyState { length: Some(10), signing: Signing::Off, variant: 3, error_count: Some(7) };
        assert_eq!(state.shape(), said);
        // Properties that a lost change does not touch stay known.
        let lost = length(&state, 11);
        state.mark_unknown(lost);
        assert_eq!(state.shape(), KeyState { length: None, ..said });
    }

    fn signed(seed: Seed) -> Signing {
        let signature = Signature::Crc(Crc::Crc32c(seed));
        Signing::On(SignatureBlock::new().memory(Domain { signature, block_size: BlockSize::B512 }))
    }

    /// A change that signs the key and passes this error count to the device.
    fn sign(state: &State, signing: Signing, error_count: u32) -> u64 {
        let delta =
            Update { signing: Some(signing), error_count: Some(error_count), ..Update::default() };
        state.change(|_| Ok::<_, ()>((delta, ()))).unwrap().0
    }

    fn is_certain(state: &State) -> bool {
        Before(&state.lock()).is_certain()
    }

    #[test]
    fn what_is_on_its_way_is_certain_once_it_can_make_no_difference() {
        let (one, other) = (signed(Seed::Zeros), signed(Seed::Ones));
        let state = State::new(FRESH);
        assert!(is_certain(&state));
        let a = sign(&state, one, 1);
        assert!(!is_certain(&state));
        let [b, c] = [sign(&state, one, 1), length(&state, 7)];
        assert!(!is_certain(&state), "the first could be undone, and the second");
        state.settle(&[a]);
        assert!(is_certain(&state), "the others change nothing of it");
        let d = sign(&state, other, 1);
        assert!(!is_certain(&state));
        state.undo(d);
        assert!(is_certain(&state));
        let e = sign(&state, one, 2);
        assert!(!is_certain(&state), "another count is another thing");
        [b, c, e].into_iter().for_each(|change| drop(state.settle(&[change])));
        assert!(is_certain(&state));
        // They may settle in any order.
        let [f, g, h] =
            [(other, 2), (one, 2), (one, 2)].map(|(s, error_count)| sign(&state, s, error_count));
        state.settle(&[h]);
        assert!(!is_certain(&state));
        state.mark_unknown(f);
        assert!(!is_certain(&state));
        state.settle(&[g]);
        assert!(is_certain(&state));
        assert_eq!(state.shape().signing, one);
    }

    #[test]
    fn the_longest_that_a_key_can_be_is_the_longest_of_all_on_their_way() {
        let state = State::new(FRESH);
        let max_length = |state: &State| Before(&state.lock()).max_length();
        assert_eq!(max_length(&state), None);
        let [a, b, c] = [5, 9, 7].map(|bytes| length(&state, bytes));
        assert_eq!(max_length(&state), Some(9));
        state.settle(&[a]);
        state.undo(b);
        assert_eq!(max_length(&state), Some(7));
        state.settle(&[c]);
        assert_eq!(max_length(&state), Some(7));
        length(&state, 3);
        assert_eq!(max_length(&state), Some(7));
    }

    #[test]
    fn the_variant_of_a_request_that_is_undone_is_written_by_the_next_one() {
        let state = State::new(FRESH);
        let tag = |state: &State, variant| {
            let delta = Update { variant: Some(variant), ..Update::default() };
            state.change(|_| Ok::<_, ()>((delta, ()))).unwrap().0
        };
        let a = tag(&state, 5);
        state.undo(a);
        assert_eq!(state.shape().variant, 0);
        // The next request was built with variant 6, and writes it.
        let [b, c] = [tag(&state, 6), length(&state, 1)];
        state.undo(b);
        assert_eq!(state.shape().variant, 6);
        state.settle(&[c]);
        assert_eq!(state.shape().variant, 6);
        let [d, e] = [tag(&state, 7), tag(&state, 8)];
        state.undo(d);
        state.settle(&[e]);
        assert_eq!(state.shape().variant, 8);
    }

    /// The device reports an error of a key whose device count was `error_count`.
    fn unchecked_after(state: &State, error_count: u32) -> usize {
        state.error_reported(|| error_count);
        state.unchecked()
    }

    #[test]
    fn of_requests_that_told_the_same_all_but_one_are_in_doubt() {
        let one = signed(Seed::Zeros);
        let state = State::new(FRESH);
        let a = sign(&state, one, 1);
        assert_eq!(unchecked_after(&state, 1), 0, "it was the only one");
        let [b, c, d] = [2; 3].map(|error_count| sign(&state, one, error_count));
        assert_eq!(unchecked_after(&state, 2), 2);
        // One of them is never executed.
        state.undo(c);
        assert_eq!(state.unchecked(), 1);
        // The first check returns it, the second does not.
        assert!(state.take_unchecked());
        assert!(!state.take_unchecked());
        // Configurations with another count do not matter.
        [a, b, d].into_iter().for_each(|change| drop(state.settle(&[change])));
        sign(&state, one, 3);
        assert_eq!(unchecked_after(&state, 3), 0);
    }

    #[test]
    fn a_key_that_is_not_signed_is_in_no_doubt() {
        let state = State::new(FRESH);
        sign(&state, signed(Seed::Zeros), 1);
        sign(&state, Signing::Off, 1);
        assert_eq!(unchecked_after(&state, 1), 0);
    }

    #[test]
    fn what_was_asked_about_before_is_none_of_those_in_doubt() {
        let one = signed(Seed::Zeros);
        for asked in [false, true] {
            let state = State::new(FRESH);
            let a = sign(&state, one, 1);
            state.settle(&[a]);
            if asked {
                assert!(!state.take_unchecked());
            }
            sign(&state, one, 1);
            assert_eq!(unchecked_after(&state, 1), usize::from(!asked));
        }
        // Checking after the first of two is no check of the second.
        let state = State::new(FRESH);
        let [a, b] = [1; 2].map(|error_count| sign(&state, one, error_count));
        assert!(!state.take_unchecked());
        [a, b].into_iter().for_each(|change| drop(state.settle(&[change])));
        sign(&state, one, 1);
        assert_eq!(unchecked_after(&state, 1), 1);
    }

    #[test]
    fn doubts_of_what_is_executed_end_with_the_next_configuration() {
        let one = signed(Seed::Zeros);
        let state = State::new(FRESH);
        let [a, b, c] = [1; 3].map(|error_count| sign(&state, one, error_count));
        assert_eq!(unchecked_after(&state, 1), 2);
        [a, b].into_iter().for_each(|change| drop(state.settle(&[change])));
        assert_eq!(state.unchecked(), 2);
        sign(&state, one, 2);
        assert_eq!(state.unchecked(), 1, "one of them is still on its way");
        state.settle(&[c]);
        sign(&state, one, 2);
        assert_eq!(state.unchecked(), 0);
    }

    /// An explicit variant that equals the latest one is written nevertheless, whatever happens to
    /// the request that set the latest one.
    #[test]
    fn a_variant_that_another_request_is_to_set_as_well_is_set_twice() {
        let state = State::new(KeyState { variant: 3, ..FRESH });
        let ways: [fn(&State) -> u64; 3] = [
            |state| state.change_length(9, Some(7)).unwrap(),
            |state| {
                let delta = Update { length: Some(9), variant: Some(7), ..Update::default() };
                state.change(|_| Ok::<_, ()>((delta, ()))).unwrap().0
            },
            |state| {
                let delta = Update { variant: Some(7), ..Update::default() };
                state.change(|_| Ok::<_, ()>((delta, ()))).unwrap().0
            },
        ];
        for way in ways {
            let tag = Update { variant: Some(7), ..Update::default() };
            let (aborted, ()) = state.change(|_| Ok::<_, ()>((tag, ()))).unwrap();
            let executed = way(&state);
            state.settle(&[executed]);
            state.undo(aborted);
            assert_eq!(state.shape().variant, 7);
            let back = Update { variant: Some(3), ..Update::default() };
            let (back, ()) = state.change(|_| Ok::<_, ()>((back, ()))).unwrap();
            state.settle(&[back]);
            assert_eq!(state.shape().variant, 3);
        }
    }

    /// The properties that a request writes to the device's key; it always writes the variant.
    #[derive(Clone, Copy)]
    struct Written {
        length: Option<u64>,
        signing: Option<Signing>,
        variant: u8,
        error_count: Option<u32>,
    }

    impl Written {
        fn to(self, key: KeyState) -> KeyState {
            KeyState {
                length: self.length.or(key.length),
                signing: self.signing.unwrap_or(key.signing),
                variant: self.variant,
                error_count: self.error_count.or(key.error_count),
            }
        }
    }

    /// The contents of the device's key, and the writes of requests that are not known to be
    /// executed. They are executed in the order in which that becomes known.
    struct Model {
        device: KeyState,
        written: Vec<(u64, Written)>,
    }

    impl Model {
        fn latest(&self) -> KeyState {
            self.written.iter().fold(self.device, |key, (_, written)| written.to(key))
        }

        fn change(&mut self, number: u64, delta: Update) {
            let Update { length, signing, variant, error_count } = delta;
            let variant = variant.unwrap_or(self.latest().variant);
            self.written.push((number, Written { length, signing, variant, error_count }));
        }

        fn undo(&mut self, number: u64) -> Written {
            let at = self.written.iter().position(|(at, _)| *at == number).expect("it is there");
            self.written.remove(at).1
        }

        fn settle(&mut self, number: u64) {
            self.device = self.undo(number).to(self.device);
        }

        fn lose(&mut self, number: u64) {
            let Written { length, signing, variant, error_count } = self.undo(number);
            let device = self.device;
            self.device = KeyState {
                length: if length.is_some() { None } else { device.length },
                signing: if signing.is_some() { Signing::Unknown } else { device.signing },
                variant,
                error_count: if error_count.is_some() { None } else { device.error_count },
            };
        }

        fn max_length(&self) -> Option<u64> {
            self.written
                .iter()
                .fold(self.device.length, |most, (_, written)| most.max(written.length))
        }

        /// Whether every request that sets signature or error count sets what the device's key has.
        fn is_certain(&self) -> bool {
            let KeyState { signing, error_count, .. } = self.device;
            self.written.iter().all(|(_, written)| {
                written.signing.is_none_or(|set| set == signing)
                    && written.error_count.is_none_or(|set| Some(set) == error_count)
            })
        }
    }

    /// Small random numbers.
    struct Dice(u64);

    impl Dice {
        fn roll(&mut self, sides: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            ((self.0 >> 20) % sides as u64) as usize
        }
    }

    /// Random changes of several keys by two queues, of only the length and others, which are
    /// executed in runs, cancelled, aborted and lost in any order, must match the device's key.
    #[test]
    fn after_random_changes_the_state_is_that_of_the_devices_key() {
        for seed in 1..=60 {
            let mut dice = Dice(u64::wrapping_mul(seed, 0x9e37_79b9_7f4a_7c15));
            let mut keys: Vec<_> = (0..3)
                .map(|_| (State::new(FRESH), Model { device: FRESH, written: Vec::new() }))
                .collect();
            // Key and number of what each queue has outstanding, in posting order.
            let mut queues: [Vec<(usize, u64)>; 2] = Default::default();
            // Most programs are of lengths alone.
            let odd = [0, 0, 0, 20, 4][dice.roll(5)];
            for step in 0..600 {
                let queue = &mut queues[dice.roll(2)];
                match dice.roll(9) {
                    0..4 => {
                        let key = dice.roll(keys.len());
                        let (state, model) = &mut keys[key];
                        let length = dice.roll(1000) as u64;
                        let variant = (odd != 0 && dice.roll(odd) == 0).then(|| dice.roll(3) as u8);
                        let delta = Update { length: Some(length), variant, ..Update::default() };
                        let number = match state.change_length(length, variant) {
                            Some(number) => number,
                            None => state.change(|_| Ok::<_, ()>((delta, ()))).unwrap().0,
                        };
                        model.change(number, delta);
                        queue.push((key, number));
                    }
                    4 if odd != 0 => {
                        let key = dice.roll(keys.len());
                        let (state, model) = &mut keys[key];
                        let signing = [Signing::Off, signed(Seed::Ones)][dice.roll(2)];
                        let error_count = (dice.roll(2) == 0).then_some(step);
                        let delta =
                            Update { signing: Some(signing), error_count, ..Update::default() };
                        let (number, ()) = state.change(|_| Ok::<_, ()>((delta, ()))).unwrap();
                        model.change(number, delta);
                        queue.push((key, number));
                    }
                    // Executed: the oldest ones of a queue, which settles those of one key at once.
                    4..=6 => {
                        let count = dice.roll(queue.len() + 1).min(12);
                        let mut executed = queue.drain(..count).peekable();
                        while let Some((key, first)) = executed.next() {
                            let mut run = vec![first];
                            while let Some((_, number)) = executed.next_if(|next| next.0 == key) {
                                run.push(number);
                            }
                            let (state, model) = &mut keys[key];
                            assert!(state.settle(&run).is_none());
                            run.iter().for_each(|number| model.settle(*number));
                        }
                    }
                    7 if !queue.is_empty() => {
                        // Cancelled, or aborted if it is the latest.
                        let (key, number) = queue.remove(dice.roll(queue.len()));
                        let (state, model) = &mut keys[key];
                        assert!(state.undo(number).is_none());
                        model.undo(number);
                    }
                    8 if dice.roll(4) == 0 => {
                        // The queue failed, or was reset.
                        for (key, number) in queue.drain(..) {
                            let (state, model) = &mut keys[key];
                            assert!(state.mark_unknown(number).is_none());
                            model.lose(number);
                        }
                    }
                    _ => {}
                }
                for (state, model) in &keys {
                    let changes = state.lock();
                    assert_eq!(changes.latest, model.latest(), "seed {seed}, step {step}");
                    assert_eq!(changes.settled, model.device, "seed {seed}, step {step}");
                    let before = Before(&changes);
                    assert_eq!(before.max_length(), model.max_length(), "seed {seed}, step {step}");
                    assert_eq!(before.is_certain(), model.is_certain(), "seed {seed}, step {step}");
                    let numbers = changes.pending.iter().map(|(number, _)| number);
                    assert!(numbers.eq(model.written.iter().map(|(number, _)| number)));
                    let others =
                        |(_, pending): &&(u64, Pending)| matches!(pending, Pending::Any(_));
                    assert_eq!(changes.others, changes.pending.iter().filter(others).count());
                }
            }
        }
    }

    /// A key state lives as long as its key, and as long as a change is pending, however that ends.
    #[test]
    fn a_key_that_is_gone_is_kept_until_its_last_change_has_ended() {
        type End = fn(&State, u64) -> Option<Keeper>;
        let ends: [End; 3] = [
            |state, change| state.settle(&[change]),
            |state, change| state.undo(change),
            |state, change| state.mark_unknown(change),
        ];
        let kept = || {
            let state = Arc::new(State::new(FRESH));
            state.keep(Arc::clone(&state) as Keeper);
            (Arc::downgrade(&state), state)
        };
        // Nothing is pending.
        let (weak, state) = kept();
        assert!(state.settle(&[]).is_none());
        drop(state.close());
        drop(state);
        assert!(weak.upgrade().is_none());
        for end in ends {
            for late in ends {
                let (weak, state) = kept();
                let [a, b, c] = [1, 2, 3].map(|bytes| state.change_length(bytes, None).unwrap());
                assert!(end(&state, b).is_none());
                assert!(state.close().is_none());
                drop(state);
                let state = weak.upgrade().expect("two changes are pending");
                assert!(late(&state, c).is_none());
                assert!(late(&state, c).is_none(), "it ended already");
                drop(state);
                let state = weak.upgrade().expect("a change is pending");
                let last = end(&state, a).expect("it was the last one");
                drop((state, last));
                assert!(weak.upgrade().is_none());
            }
        }
    }

    /// Two threads, each with a queue, configure one key.
    #[test]
    fn two_threads_change_one_key() {
        const ROUNDS: u64 = if cfg!(miri) { 40 } else { 20_000 };
        let state = Arc::new(State::new(FRESH));
        state.keep(Arc::clone(&state) as Keeper);
        let weak = Arc::downgrade(&state);
        let last = |queue: u64| queue << 32 | ROUNDS << 8 | 7;
        std::thread::scope(|scope| {
            for queue in 0..2_u64 {
                let state = &state;
                scope.spawn(move || {
                    for round in 1..=ROUNDS {
                        let run = [5, 6, 7].map(|step| {
                            let length = queue << 32 | round << 8 | step;
                            state.change_length(length, Some(0)).unwrap()
                        });
                        if round % 3 == 0 && round != ROUNDS {
                            // Cancelled, the last first.
                            run.iter().rev().for_each(|change| drop(state.undo(*change)));
                        } else {
                            assert!(state.settle(&run).is_none());
                        }
                    }
                });
            }
        });
        let length = state.shape().length.unwrap();
        assert!(length == last(0) || length == last(1), "{length:#x}");
        assert!(state.lock().pending.is_empty());
        drop(state.close());
        drop(state);
        assert!(weak.upgrade().is_none());
    }
}
