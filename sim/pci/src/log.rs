//! The log of the function.

use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

struct Shared {
    out: Mutex<Box<dyn Write + Send>>,
    trace: bool,
    problems: AtomicU64,
}

/// Lines about a device. Clones write to the same place.
#[derive(Clone)]
pub struct Log {
    shared: Arc<Shared>,
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("trace", &self.shared.trace).finish_non_exhaustive()
    }
}

impl Log {
    /// Lines go to `out`; those about every access only with `trace`.
    #[must_use]
    pub fn new(out: impl Write + Send + 'static, trace: bool) -> Self {
        let out: Mutex<Box<dyn Write + Send>> = Mutex::new(Box::new(out));
        Self { shared: Arc::new(Shared { out, trace, problems: AtomicU64::new(0) }) }
    }

    fn line(&self, line: fmt::Arguments<'_>) -> io::Result<()> {
        let mut out = self.shared.out.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(out, "{line}")?;
        out.flush()
    }

    /// Logs an event.
    pub fn note(&self, line: fmt::Arguments<'_>) {
        // A log that cannot be written must not stop a device.
        let _ = self.line(line);
    }

    /// Logs an error of the driver or of this model.
    pub fn problem(&self, line: fmt::Arguments<'_>) {
        self.shared.problems.fetch_add(1, Ordering::Relaxed);
        let _ = self.line(format_args!("problem: {line}"));
    }

    /// Logs an access, if accesses are logged.
    pub fn trace(&self, line: fmt::Arguments<'_>) {
        if self.shared.trace {
            let _ = self.line(line);
        }
    }

    /// Number of problems so far.
    #[must_use]
    pub fn problems(&self) -> u64 {
        self.shared.problems.load(Ordering::Relaxed)
    }
}
