//! Deferred destruction: queues that are kept until the poller has passed every CQE that can name
//! them.

use crate::sync::{
    AtomicPtr,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use alloc::boxed::Box;
use core::fmt;
use core::ptr::null_mut;

struct Node<T> {
    end: u32,
    value: T,
    next: *mut Node<T>,
}

/// Values that wait for the consumer index to reach a point. Any thread pushes values; the poller
/// frees them.
pub struct Deferred<T> {
    head: AtomicPtr<Node<T>>,
}

impl<T> Default for Deferred<T> {
    fn default() -> Self {
        Self { head: AtomicPtr::new(null_mut()) }
    }
}

impl<T> fmt::Debug for Deferred<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deferred").finish_non_exhaustive()
    }
}

// SAFETY: the list owns its values, and `T: Send` lets any thread have them.
unsafe impl<T: Send> Send for Deferred<T> {}
// SAFETY: threads share the list only through the atomic head, and `T: Send` lets any of them take
// the values.
unsafe impl<T: Send> Sync for Deferred<T> {}

impl<T> Deferred<T> {
    /// Keeps `value` until the consumer index reaches `end`.
    pub fn push(&self, end: u32, value: T) {
        self.push_node(Box::into_raw(Box::new(Node { end, value, next: null_mut() })));
    }

    fn push_node(&self, node: *mut Node<T>) {
        let mut head = self.head.load(Relaxed);
        loop {
            // SAFETY: the node belongs to this thread until the exchange below succeeds.
            unsafe { (*node).next = head };
            match self.head.compare_exchange(head, node, Release, Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Returns the first value for which `wanted` returns true.
    ///
    /// # Safety
    /// No thread frees a value during the call, or while the result is in use.
    pub unsafe fn find(&self, mut wanted: impl FnMut(&T) -> bool) -> Option<&T> {
        let mut node = self.head.load(Acquire);
        // SAFETY: the caller promises that no value is freed meanwhile, and nodes in the list do
        // not change.
        while let Some(Node { value, next, .. }) = unsafe { node.as_ref() } {
            if wanted(value) {
                return Some(value);
            }
            node = *next;
        }
        None
    }

    /// Frees all values whose end the consumer index has reached. Returns whether any are left.
    pub fn release(&self, consumer: u32) -> bool {
        self.release_but(consumer, |_| false)
    }

    /// As [`Deferred::release`], but keeps the values for which `keep` returns true.
    pub fn release_but(&self, consumer: u32, mut keep: impl FnMut(&T) -> bool) -> bool {
        let mut node = self.head.swap(null_mut(), AcqRel);
        let mut left = false;
        while !node.is_null() {
            // SAFETY: the swap took the nodes off the list, so they belong to this thread.
            let (end, next, keep) = unsafe { ((*node).end, (*node).next, keep(&(*node).value)) };
            if keep || (consumer.wrapping_sub(end) as i32) < 0 {
                left = true;
                self.push_node(node);
            } else {
                // SAFETY: the node was taken off the list, so this thread owns it; `push` made it
                // from a box.
                drop(unsafe { Box::from_raw(node) });
            }
            node = next;
        }
        left
    }
}

impl<T> Drop for Deferred<T> {
    fn drop(&mut self) {
        let mut node = self.head.load(Acquire);
        while !node.is_null() {
            // SAFETY: `&mut self` excludes other threads, and `push` made the nodes from boxes.
            let taken = unsafe { Box::from_raw(node) };
            node = taken.next;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use alloc::sync::Arc;

    #[test]
    fn value_is_released_once_the_counter_passes_its_end() {
        let deferred = Deferred::default();
        let value = Arc::new(());
        deferred.push(10, Arc::clone(&value));
        deferred.push(12, Arc::clone(&value));
        assert!(deferred.release(9));
        assert_eq!(Arc::strong_count(&value), 3);
        assert!(deferred.release(11));
        assert_eq!(Arc::strong_count(&value), 2);
        assert!(!deferred.release(12));
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn withheld_and_waiting_values_are_found() {
        let deferred = Deferred::default();
        for number in [3, 5, 7] {
            deferred.push(number, number);
        }
        let find = |wanted| {
            // SAFETY: the test frees no value before the result is copied.
            unsafe { deferred.find(|number| *number == wanted) }.copied()
        };
        assert_eq!([3, 4, 5, 7].map(find), [Some(3), None, Some(5), Some(7)]);
        assert!(deferred.release_but(5, |number| *number == 5));
        assert_eq!([3, 5, 7].map(find), [None, Some(5), Some(7)]);
        assert!(!deferred.release(7));
        assert_eq!(find(7), None);
    }

    #[test]
    fn the_counter_may_wrap() {
        let deferred = Deferred::default();
        let value = Arc::new(());
        deferred.push(2, Arc::clone(&value));
        assert!(deferred.release(u32::MAX - 3));
        assert!(!deferred.release(2));
        deferred.push(7, Arc::clone(&value));
        drop(deferred);
        assert_eq!(Arc::strong_count(&value), 1, "what is left goes with the list");
    }
}
