//! The primitives of the lock; loom's under `cfg(loom)`.

#[cfg(loom)]
pub(crate) use loom::{
    cell::{MutPtr, UnsafeCell},
    sync::atomic::{AtomicBool, Ordering},
};
#[cfg(not(loom))]
pub(crate) use {
    cell::{MutPtr, UnsafeCell},
    core::sync::atomic::{AtomicBool, Ordering},
};

/// Pauses of a thread that has checked the lock for long: some ten microseconds. With 64, sixteen
/// threads that share a queue do half as much in all; with 1024, not more.
#[cfg(not(loom))]
const LONGEST: u32 = 256;

/// Backs off between two checks of the lock.
pub(crate) struct Pause(#[cfg(not(loom))] crossbeam_utils::Backoff);

impl Pause {
    pub(crate) fn new() -> Self {
        Self(
            #[cfg(not(loom))]
            crossbeam_utils::Backoff::new(),
        )
    }

    /// Pauses, each time for longer up to a limit. After a few times it yields the core as well:
    /// the holder may have been preempted, and need it.
    pub(crate) fn take(&self) {
        #[cfg(not(loom))]
        {
            if self.0.is_completed() {
                (0..LONGEST).for_each(|_| core::hint::spin_loop());
            }
            self.0.snooze();
        }
        #[cfg(loom)]
        loom::thread::yield_now();
    }
}

/// The part of loom's `UnsafeCell` interface that the lock uses, over `core::cell::UnsafeCell`.
#[cfg(not(loom))]
mod cell {
    use core::cell;

    #[repr(transparent)]
    pub(crate) struct UnsafeCell<T>(cell::UnsafeCell<T>);

    /// A raw pointer to the value in a cell.
    pub(crate) struct MutPtr<T>(*mut T);

    impl<T> UnsafeCell<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(cell::UnsafeCell::new(value))
        }

        pub(crate) fn into_inner(self) -> T {
            self.0.into_inner()
        }

        #[inline]
        pub(crate) fn get_mut(&self) -> MutPtr<T> {
            MutPtr(self.0.get())
        }
    }

    impl<T> MutPtr<T> {
        /// # Safety
        /// The cell still lives, and no other reference to its value exists while the result is
        /// used.
        #[expect(clippy::mut_from_ref, reason = "the pointer is that of a cell")]
        #[inline]
        pub(crate) unsafe fn deref(&self) -> &mut T {
            // SAFETY: the pointer comes from a cell that the caller promises to be alive, without
            // other references to its value.
            unsafe { &mut *self.0 }
        }
    }
}
