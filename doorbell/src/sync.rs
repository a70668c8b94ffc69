//! What a lock is made of, replaced by loom's when the protocol is checked.

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

/// Lets others run, for what is waited for is theirs to do.
pub(crate) struct Pause(#[cfg(not(loom))] crossbeam_utils::Backoff);

impl Pause {
    pub(crate) fn new() -> Self {
        Self(
            #[cfg(not(loom))]
            crossbeam_utils::Backoff::new(),
        )
    }

    pub(crate) fn take(&self) {
        #[cfg(not(loom))]
        self.0.snooze();
        #[cfg(loom)]
        loom::thread::yield_now();
    }
}

/// Loom's cell, as far as it is used here, over the core's.
#[cfg(not(loom))]
mod cell {
    use core::cell;

    #[repr(transparent)]
    pub(crate) struct UnsafeCell<T>(cell::UnsafeCell<T>);

    /// A pointer to what is in a cell.
    pub(crate) struct MutPtr<T>(*mut T);

    impl<T> UnsafeCell<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(cell::UnsafeCell::new(value))
        }

        pub(crate) fn into_inner(self) -> T {
            self.0.into_inner()
        }

        #[inline(always)]
        pub(crate) fn get_mut(&self) -> MutPtr<T> {
            MutPtr(self.0.get())
        }
    }

    impl<T> MutPtr<T> {
        /// # Safety
        /// As for any pointer; nobody else has a reference to what is in the cell.
        #[expect(clippy::mut_from_ref, reason = "the pointer is that of a cell")]
        #[inline(always)]
        pub(crate) unsafe fn deref(&self) -> &mut T {
            // SAFETY: handed down.
            unsafe { &mut *self.0 }
        }
    }
}
