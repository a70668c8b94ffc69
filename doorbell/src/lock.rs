//! A lock for what takes a few dozen instructions.

use crate::sync::{
    AtomicBool, MutPtr,
    Ordering::{Acquire, Relaxed, Release},
    Pause, UnsafeCell,
};
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};

/// A value that one thread at a time has. Who finds it taken looks again, at first at once, and then
/// lets others run in between.
///
/// A panic of whoever has it gives it free: there is no poison.
// In this order, the value has the lock's address.
#[repr(C)]
pub struct Lock<T> {
    value: UnsafeCell<T>,
    taken: AtomicBool,
}

// SAFETY: one thread at a time has the value.
unsafe impl<T: Send> Send for Lock<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// A lock that nobody has.
    pub fn new(value: T) -> Self {
        Self { value: UnsafeCell::new(value), taken: AtomicBool::new(false) }
    }

    /// Waits until nobody has the value, and takes it.
    #[inline(always)]
    pub fn lock(&self) -> Locked<'_, T> {
        if !self.take() {
            self.wait();
        }
        let value = ManuallyDrop::new(self.value.get_mut());
        Locked { lock: self, value, owner: PhantomData }
    }

    #[cold]
    #[inline(never)]
    fn wait(&self) {
        let pause = Pause::new();
        while !self.take() {
            pause.take();
        }
    }

    /// Takes the value, unless somebody has it.
    #[inline(always)]
    fn take(&self) -> bool {
        // The acquire pairs with the release of whoever had it before.
        self.taken.compare_exchange(false, true, Acquire, Relaxed).is_ok()
    }

    /// The value, when nobody shares the lock any more.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T> fmt::Debug for Lock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").finish_non_exhaustive()
    }
}

/// The value of a [`Lock`] as long as this lives.
#[must_use = "the value is given free when this is dropped"]
pub struct Locked<'a, T> {
    lock: &'a Lock<T>,
    value: ManuallyDrop<MutPtr<T>>,
    /// To be sent and shared as the value may be.
    owner: PhantomData<&'a mut T>,
}

// SAFETY: like a `&mut` to the value; the lock may be given free by any thread.
unsafe impl<T: Send> Send for Locked<'_, T> {}
// SAFETY: a shared one gives out shared references alone.
unsafe impl<T: Sync> Sync for Locked<'_, T> {}

impl<T> Deref for Locked<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the lock is taken, and `self` shared.
        unsafe { MutPtr::deref(&self.value) }
    }
}

impl<T> DerefMut for Locked<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is taken, and `self` borrowed alone.
        unsafe { MutPtr::deref(&self.value) }
    }
}

impl<T> Drop for Locked<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: it is not used again.
        unsafe { ManuallyDrop::drop(&mut self.value) };
        self.lock.taken.store(false, Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn one_thread_at_a_time_has_the_value() {
        const THREADS: usize = 4;
        const TIMES: usize = 2000;
        let lock = Lock::new((0, 0));
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..TIMES {
                        let mut both = lock.lock();
                        both.0 += 1;
                        assert_eq!(both.0, both.1 + 1, "nobody else was in between");
                        both.1 += 1;
                    }
                });
            }
        });
        assert_eq!(lock.into_inner(), (THREADS * TIMES, THREADS * TIMES));
    }

    #[test]
    fn a_panic_gives_the_value_free() {
        let lock = Lock::new(1);
        let panic = catch_unwind(AssertUnwindSafe(|| {
            let mut held = lock.lock();
            *held = 2;
            panic!("with the value");
        }));
        assert!(panic.is_err());
        assert_eq!(*lock.lock(), 2);
    }
}
