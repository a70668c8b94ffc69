//! A spin lock for critical sections of a few dozen instructions.

use crate::sync::{
    AtomicBool, MutPtr,
    Ordering::{Acquire, Relaxed, Release},
    Pause, UnsafeCell,
};
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};

/// A spin lock around a value.
///
/// A thread that finds the lock taken spins, checks it ever more rarely, and yields its core
/// between the checks. The lock is not fair. If many threads want it, the one that has the value in
/// its cache mostly gets it again, so that more threads do not reduce the throughput of all. It has
/// no poisoning: a panic of the holder releases it.
// `repr(C)` keeps `value` first, so that it has the address of the lock.
#[repr(C)]
pub struct Lock<T> {
    value: UnsafeCell<T>,
    taken: AtomicBool,
}

// SAFETY: the lock owns the value, and `T: Send` may move to another thread.
unsafe impl<T: Send> Send for Lock<T> {}
// SAFETY: a shared lock gives access to the value only through `LockGuard`, which one thread at a
// time holds; `T: Send` suffices for that.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// Creates an unlocked lock.
    pub fn new(value: T) -> Self {
        Self { value: UnsafeCell::new(value), taken: AtomicBool::new(false) }
    }

    /// Acquires the lock; waits until it is free.
    #[inline(always)]
    pub fn lock(&self) -> LockGuard<'_, T> {
        if !self.take() {
            self.wait();
        }
        let value = ManuallyDrop::new(self.value.get_mut());
        LockGuard { lock: self, value, owner: PhantomData }
    }

    #[cold]
    #[inline(never)]
    fn wait(&self) {
        let pause = Pause::new();
        loop {
            pause.take();
            // This check leaves the cache line with the holder; each attempt to take the lock
            // moves the line away. Not under loom: in some of its schedules every check sees an
            // old value.
            if (cfg!(loom) || !self.taken.load(Relaxed)) && self.take() {
                return;
            }
        }
    }

    /// Acquires the lock if it is free.
    pub fn try_lock(&self) -> Option<LockGuard<'_, T>> {
        self.take().then(|| {
            let value = ManuallyDrop::new(self.value.get_mut());
            LockGuard { lock: self, value, owner: PhantomData }
        })
    }

    /// Tries to acquire the lock, and returns whether it did.
    #[inline]
    fn take(&self) -> bool {
        // The acquire pairs with the release store of the previous holder.
        self.taken.compare_exchange(false, true, Acquire, Relaxed).is_ok()
    }

    /// Returns the value. Owning the lock proves that no thread holds it.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T> fmt::Debug for Lock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").finish_non_exhaustive()
    }
}

/// The guard of a [`Lock`]: dereferences to the value, and releases the lock when dropped.
#[must_use = "the lock is released when the guard is dropped"]
pub struct LockGuard<'a, T> {
    lock: &'a Lock<T>,
    value: ManuallyDrop<MutPtr<T>>,
    /// Makes the guard `Send` and `Sync` as `&mut T` is, and no more.
    owner: PhantomData<&'a mut T>,
}

// SAFETY: the guard acts as a `&mut T`, which is `Send` if `T` is; any thread may release the lock,
// since it is only an atomic flag.
unsafe impl<T: Send> Send for LockGuard<'_, T> {}
// SAFETY: a shared guard gives out only `&T`, and `T: Sync` may be shared.
unsafe impl<T: Sync> Sync for LockGuard<'_, T> {}

impl<T> Deref for LockGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock, so no other guard exists; `self` is borrowed shared, so
        // no `&mut T` was given out that still lives.
        unsafe { MutPtr::deref(&self.value) }
    }
}

impl<T> DerefMut for LockGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock, so no other guard exists; `self` is borrowed
        // exclusively, so no reference given out earlier still lives.
        unsafe { MutPtr::deref(&self.value) }
    }
}

impl<T: fmt::Debug> fmt::Debug for LockGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl<T> Drop for LockGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `value` is dropped once, here, and not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.value) };
        self.lock.taken.store(false, Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_panic_releases_the_lock() {
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
