//! Whose a call of libc is: the program's, or this library's own.

use std::cell::Cell;
use std::ffi::c_int;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// Whether the program lets this thread be cancelled, while it is inside.
    static CANCELLABLE: Cell<c_int> = const { Cell::new(DISABLE) };
}

/// `PTHREAD_CANCEL_DISABLE`.
const DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// Sets whether this thread can be cancelled, and answers whether it could.
fn set_cancellable(state: c_int) -> c_int {
    let mut before = DISABLE;
    // SAFETY: the place is there for the call, which changes this thread alone.
    unsafe { pthread_setcancelstate(state, &raw mut before) };
    before
}

/// While it lives, this thread's calls are the library's own, and go to libc. None is a place where the
/// thread can be cancelled: the kernel's calls, in whose place they are, have no such places but one.
pub(crate) struct Inside {
    outer: bool,
    cancellable: c_int,
}

impl Inside {
    pub(crate) fn enter() -> Self {
        let cancellable = set_cancellable(DISABLE);
        let outer = INSIDE.replace(true);
        if !outer {
            CANCELLABLE.set(cancellable);
        }
        Self { outer, cancellable }
    }

    /// Runs what may wait as long as the kernel's call would: there the thread can be cancelled, if the
    /// program lets it.
    pub(crate) fn cancellable<R>(wait: impl FnOnce() -> R) -> R {
        let before =
            if Self::is_entered() { Some(set_cancellable(CANCELLABLE.get())) } else { None };
        let answer = wait();
        before.map(set_cancellable);
        answer
    }

    /// Whether this thread's calls are the library's own now.
    pub(crate) fn is_entered() -> bool {
        INSIDE.get()
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(self.outer);
        set_cancellable(self.cancellable);
    }
}
