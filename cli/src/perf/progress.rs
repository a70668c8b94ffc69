//! A line on the terminal that shows the progress.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// The shortest time between two updates of the line.
const OFTEN: Duration = Duration::from_millis(100);
/// Calls between looks at the clock.
const CALLS: u32 = 64;

/// A line on stderr, if that is a terminal. It is erased at the end.
pub(crate) struct Progress {
    on: bool,
    calls: u32,
    written: Option<Instant>,
}

impl Progress {
    /// Nothing is shown yet.
    pub(crate) fn new() -> Self {
        Self { on: io::stderr().is_terminal(), calls: 0, written: None }
    }

    /// Shows the progress, now and then.
    pub(crate) fn show(&mut self, what: &str, step: &str, done: u64, all: u64) {
        if !self.on {
            return;
        }
        self.calls = self.calls.wrapping_add(1);
        if !self.calls.is_multiple_of(CALLS)
            || self.written.is_some_and(|written| written.elapsed() < OFTEN)
        {
            return;
        }
        self.written = Some(Instant::now());
        let percent = done.saturating_mul(100) / all.max(1);
        let _ = write!(io::stderr(), "\r\x1b[K{what}: {step} {percent} %");
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.written.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
