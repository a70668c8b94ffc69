//! State that a thread finds again after it waited for an event.
//!
//! While it waits it holds only numbers: another thread may destroy the object that it waits on,
//! and it may be cancelled there (`pthread_cancel`). Cancelling drops nothing on the way, because
//! no panic unwinds here, so memory or descriptors that it owned would leak.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A place for a value, reused by later values. It is never freed, so a thread that has only its
/// number may read it.
struct Place<T>(Mutex<Turn<T>>);

struct Turn<T> {
    /// Number of the value in this place.
    number: u64,
    value: Option<Arc<T>>,
}

impl<T> Place<T> {
    fn lock(&self) -> MutexGuard<'_, Turn<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The places without a value; there are as many places as there were values at once.
pub(crate) struct Places<T: 'static>(Mutex<Vec<&'static Place<T>>>);

impl<T> Places<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<&'static Place<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows a value to waiting threads, until the result is dropped.
    pub(crate) fn show(&'static self, value: T) -> Shown<T> {
        let free = self.lock().pop();
        let place = free.unwrap_or_else(|| {
            Box::leak(Box::new(Place(Mutex::new(Turn { number: 0, value: None }))))
        });
        let mut turn = place.lock();
        turn.value = Some(Arc::new(value));
        Shown { places: self, waited: Waited { place, number: turn.number } }
    }
}

/// A value that waiting threads find. Dropping it hides it from them.
pub(crate) struct Shown<T: 'static> {
    places: &'static Places<T>,
    waited: Waited<T>,
}

impl<T> Shown<T> {
    /// The number under which the value is found.
    pub(crate) fn waited(&self) -> Waited<T> {
        self.waited
    }
}

impl<T> Drop for Shown<T> {
    fn drop(&mut self) {
        let place = self.waited.place;
        let mut turn = place.lock();
        turn.number += 1;
        let value = turn.value.take();
        drop(turn);
        self.places.lock().push(place);
        drop(value);
    }
}

/// The number of a value. A cancelled thread forgets it, which leaks nothing.
pub(crate) struct Waited<T: 'static> {
    place: &'static Place<T>,
    number: u64,
}

impl<T> Clone for Waited<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Waited<T> {}

impl<T> Waited<T> {
    /// Returns the value, unless it was dropped.
    pub(crate) fn find(self) -> Option<Arc<T>> {
        let turn = self.place.lock();
        if turn.number == self.number { turn.value.clone() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_until_it_is_hidden() {
        static PLACES: Places<&str> = Places::new();
        let (first, second) = (PLACES.show("first"), PLACES.show("second"));
        let (one, two) = (first.waited(), second.waited());
        assert_eq!(one.find().as_deref(), Some(&"first"));
        assert_eq!(two.find().as_deref(), Some(&"second"));
        drop(first);
        assert!(one.find().is_none());
        // The place is reused, and the number of the former value does not find the new one.
        let third = PLACES.show("third");
        assert!(std::ptr::eq(third.waited().place, one.place));
        assert!(one.find().is_none());
        assert_eq!(third.waited().find().as_deref(), Some(&"third"));
        assert_eq!(two.find().as_deref(), Some(&"second"));
    }

    #[test]
    fn a_number_owns_nothing() {
        assert!(!std::mem::needs_drop::<Waited<String>>());
    }
}
