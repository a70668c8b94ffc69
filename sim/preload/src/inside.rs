//! Distinguishes calls of libc by the program from those by this library.

use std::cell::Cell;
use std::ffi::c_int;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// Whether the program allows this thread to be cancelled, while it is inside.
    static CANCELLABLE: Cell<c_int> = const { Cell::new(DISABLE) };
}

/// `PTHREAD_CANCEL_DISABLE`.
const DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// Sets whether this thread can be cancelled, and returns whether it could.
fn set_cancellable(state: c_int) -> c_int {
    let mut before = DISABLE;
    // SAFETY: the place is there for the call, which changes this thread alone.
    unsafe { pthread_setcancelstate(state, &raw mut before) };
    before
}

/// While it lives, this thread's calls are the library's own, and go to libc. None of them is a
/// cancellation point, as the kernel's calls that they replace have only one such point.
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

    /// Runs a call that may wait as long as the kernel's would: it is a cancellation point, if the
    /// program allows cancellation.
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
