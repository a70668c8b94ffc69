//! A list that grows at its end and shrinks at its start.

use alloc::boxed::Box;
use core::fmt;
use core::mem::{ManuallyDrop, MaybeUninit};

/// A first-in, first-out list. Unlike `VecDeque`, it is inlined where it is used, and makes a call only to
/// get more room.
pub struct Fifo<T> {
    /// None, or a power of two.
    slots: Box<[MaybeUninit<T>]>,
    /// The first element and the place behind the last, free-running. The elements between them are
    /// initialised, each in the slot of its place modulo the number of slots.
    first: usize,
    end: usize,
}

impl<T> Fifo<T> {
    /// Creates an empty list, which has no room yet.
    pub fn new() -> Self {
        Self { slots: Box::new([]), first: 0, end: 0 }
    }

    /// The number of elements.
    #[inline(always)]
    pub const fn len(&self) -> usize {
        self.end.wrapping_sub(self.first)
    }

    /// Whether there is no element.
    #[inline(always)]
    pub const fn is_empty(&self) -> bool {
        self.end == self.first
    }

    /// The slot of a place.
    ///
    /// # Safety
    /// There are slots.
    #[inline(always)]
    unsafe fn slot(&self, place: usize) -> &MaybeUninit<T> {
        let mask = self.slots.len().wrapping_sub(1);
        // SAFETY: the number of slots is a power of two, by the contract: the masked place is less.
        unsafe { self.slots.get_unchecked(place & mask) }
    }

    /// As [`Fifo::slot`].
    ///
    /// # Safety
    /// There are slots.
    #[inline(always)]
    unsafe fn slot_mut(&mut self, place: usize) -> &mut MaybeUninit<T> {
        let mask = self.slots.len().wrapping_sub(1);
        // SAFETY: the number of slots is a power of two, by the contract: the masked place is less.
        unsafe { self.slots.get_unchecked_mut(place & mask) }
    }

    /// Adds an element at the end.
    #[inline(always)]
    pub fn push_back(&mut self, value: T) {
        // Not in memory for the case that there is no room for more, where it leaks.
        let value = ManuallyDrop::new(value);
        if self.len() == self.slots.len() {
            self.grow();
        }
        let end = self.end;
        // SAFETY: at least one slot is free.
        unsafe { self.slot_mut(end) }.write(ManuallyDrop::into_inner(value));
        self.end = end.wrapping_add(1);
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let mut slots = Box::new_uninit_slice((2 * self.slots.len()).max(4));
        let len = self.len();
        for (at, slot) in slots.iter_mut().take(len).enumerate() {
            // SAFETY: the element is initialised. It is moved: the slot that it leaves is not read again,
            // and a `MaybeUninit` drops nothing.
            slot.write(unsafe { self.slot(self.first.wrapping_add(at)).assume_init_read() });
        }
        (self.slots, self.first, self.end) = (slots, 0, len);
    }

    /// Returns element `at`.
    #[inline(always)]
    pub fn get(&self, at: usize) -> Option<&T> {
        // SAFETY: an element has an initialised slot.
        (at < self.len())
            .then(|| unsafe { self.slot(self.first.wrapping_add(at)).assume_init_ref() })
    }

    /// Returns element `at`.
    #[inline(always)]
    pub fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        let place = self.first.wrapping_add(at);
        // SAFETY: an element has an initialised slot.
        (at < self.len()).then(|| unsafe { self.slot_mut(place).assume_init_mut() })
    }

    /// Returns the first element.
    #[inline(always)]
    pub fn front(&self) -> Option<&T> {
        self.get(0)
    }

    /// Returns the last element.
    pub fn back(&self) -> Option<&T> {
        self.get(self.len().wrapping_sub(1))
    }

    /// Removes the first element.
    #[inline(always)]
    pub fn pop_front(&mut self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let first = self.first;
        self.first = first.wrapping_add(1);
        // SAFETY: the element is initialised, and is no longer one of the list.
        Some(unsafe { self.slot(first).assume_init_read() })
    }

    /// Removes the last element.
    pub fn pop_back(&mut self) -> Option<T> {
        self.remove(self.len().wrapping_sub(1))
    }

    /// Removes the first `count` elements, or all, without dropping them.
    #[inline(always)]
    pub fn forget_front(&mut self, count: usize) {
        self.first = self.first.wrapping_add(count.min(self.len()));
    }

    /// Removes element `at`. Those behind it move up.
    pub fn remove(&mut self, at: usize) -> Option<T> {
        if at >= self.len() {
            return None;
        }
        let mut place = self.first.wrapping_add(at);
        self.end = self.end.wrapping_sub(1);
        // SAFETY: the element is initialised. So are those behind it, up to the old end. Each is moved to
        // the slot before it, whose element was moved away; the last slot is none of the list any more.
        unsafe {
            let removed = self.slot(place).assume_init_read();
            while place != self.end {
                let next = place.wrapping_add(1);
                let moved = self.slot(next).assume_init_read();
                self.slot_mut(place).write(moved);
                place = next;
            }
            Some(removed)
        }
    }

    /// Iterates over the elements.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> + ExactSizeIterator {
        // SAFETY: an element has an initialised slot.
        (0..self.len())
            .map(|at| unsafe { self.slot(self.first.wrapping_add(at)).assume_init_ref() })
    }
}

impl<T> Default for Fifo<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for Fifo<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fifo").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl<T> Drop for Fifo<T> {
    fn drop(&mut self) {
        while self.pop_front().is_some() {}
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use alloc::rc::Rc;

    /// Random calls do what they do to a `VecDeque`, and each element is dropped once.
    #[test]
    fn a_list_is_as_any_other() {
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        let mut dice = move |sides: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 20) % sides
        };
        let mut elements = std::vec::Vec::new();
        for round in 0..40 {
            let (mut list, mut model) = (Fifo::new(), VecDeque::new());
            // Starts where the counters wrap, sometimes.
            (list.first, list.end) = if round % 2 == 0 { (0, 0) } else { (usize::MAX, usize::MAX) };
            for _ in 0..400 {
                let at = dice(model.len() as u64 + 2) as usize;
                match dice(8) {
                    0..=3 => {
                        let element = Rc::new(elements.len());
                        elements.push(Rc::downgrade(&element));
                        list.push_back(Rc::clone(&element));
                        model.push_back(element);
                    }
                    4 | 5 => assert_eq!(list.pop_front(), model.pop_front()),
                    6 => assert_eq!(list.pop_back(), model.pop_back()),
                    _ => assert_eq!(list.remove(at), model.remove(at)),
                }
                assert_eq!((list.len(), list.is_empty()), (model.len(), model.is_empty()));
                assert!(list.iter().eq(model.iter()) && list.iter().rev().eq(model.iter().rev()));
                assert_eq!((list.front(), list.back()), (model.front(), model.back()));
                assert_eq!(list.get(at), model.get(at));
                assert_eq!(list.get_mut(at), model.get_mut(at));
            }
            drop(model);
            assert!(list.iter().all(|element| Rc::strong_count(element) == 1));
            drop(list);
            assert!(elements.iter().all(|element| element.strong_count() == 0));
        }
        assert!(elements.len() > 5000);
    }

    #[test]
    fn forgotten_elements_are_gone_and_not_dropped() {
        let element = Rc::new(());
        let mut list = Fifo::new();
        (0..6).for_each(|_| list.push_back(Rc::clone(&element)));
        list.forget_front(4);
        assert_eq!((list.len(), Rc::strong_count(&element)), (2, 7));
        list.forget_front(3);
        assert!(list.is_empty() && list.pop_front().is_none());
        assert_eq!(Rc::strong_count(&element), 7);
        // SAFETY: six are forgotten, each of which was one count.
        (0..6).for_each(|_| unsafe { Rc::decrement_strong_count(Rc::as_ptr(&element)) });
    }
}
