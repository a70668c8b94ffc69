//! Whose a call of libc is: the program's, or this library's own.

use std::cell::Cell;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, this thread's calls are the library's own, and go to libc.
pub(crate) struct Inside {
    outer: bool,
}

impl Inside {
    pub(crate) fn enter() -> Self {
        Self { outer: INSIDE.replace(true) }
    }

    /// Whether this thread's calls are the library's own now.
    pub(crate) fn is_entered() -> bool {
        INSIDE.get()
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(self.outer);
    }
}
