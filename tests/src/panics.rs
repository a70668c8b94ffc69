//! Panics that a case expects. They print nothing, so that printed ones are worth a look.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    /// Whether a panic of this thread is expected.
    static EXPECTED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`, which must panic, and returns the panic's payload.
#[track_caller]
pub(crate) fn panic_of<R>(work: impl FnOnce() -> R) -> Box<dyn Any + Send> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !EXPECTED.get() {
                before(info);
            }
        }));
    });
    EXPECTED.set(true);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    EXPECTED.set(false);
    outcome.err().expect("a panic")
}
