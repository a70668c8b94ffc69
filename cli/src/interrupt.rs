//! Ctrl-C: the first one ends the command's work and keeps the results so far, the second one ends
//! the process.

use crate::failure::{Failure, INTERRUPTED};
use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, raise};
use nix::sys::signalfd::SignalFd;
use std::process::exit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// The handling of SIGINT in this process.
pub(crate) struct Interrupt(Arc<Flags>);

#[derive(Default)]
struct Flags {
    /// Results exist that are worth keeping.
    armed: AtomicBool,
    stop: AtomicBool,
}

impl Interrupt {
    /// Watches for SIGINT from now on. It is blocked in this thread, and in those that this one
    /// starts later; a thread reads it from a descriptor, so that no code runs in a signal handler.
    pub(crate) fn watch() -> Result<Self, Failure> {
        let failed = |errno: Errno| Failure::new(format!("cannot wait for SIGINT: {errno}"));
        let mut signals = SigSet::empty();
        signals.add(Signal::SIGINT);
        signals.thread_block().map_err(failed)?;
        let source = SignalFd::new(&signals).map_err(failed)?;
        let interrupt = Self(Arc::default());
        let flags = Arc::clone(&interrupt.0);
        thread::spawn(move || {
            let next = || while matches!(source.read_signal(), Err(Errno::EINTR)) {};
            next();
            if flags.armed.load(Ordering::SeqCst) {
                flags.stop.store(true, Ordering::SeqCst);
                next();
            }
            // This signal, the second one, or the first one while there are no results, has its
            // default action.
            let _ = signals.thread_unblock();
            let _ = raise(Signal::SIGINT);
            // A program that was started in the background may ignore the signal by inheritance,
            // and is still here.
            exit(INTERRUPTED.into());
        });
        Ok(interrupt)
    }

    /// From now on, SIGINT sets the flag instead of ending the process.
    pub(crate) fn arm(&self) -> &AtomicBool {
        self.0.armed.store(true, Ordering::SeqCst);
        &self.0.stop
    }

    /// Whether it was ended by SIGINT.
    pub(crate) fn came(&self) -> bool {
        self.0.stop.load(Ordering::SeqCst)
    }
}
