//! A barrier at which threads wait for one another.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Threads that begin each run together.
pub(crate) struct Gate<'a> {
    threads: usize,
    /// Whether the user wants no further run.
    stop: &'a AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: usize,
    /// Counts the rounds that all threads have reached.
    round: u64,
    /// The decision of the last round; the same for all threads.
    next: Next,
    /// A thread left.
    broken: bool,
}

/// The next step of the threads.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Next {
    /// They go on.
    #[default]
    Go,
    /// They end, with the results so far.
    Stop,
    /// They end, because one of them failed.
    Fail,
}

impl<'a> Gate<'a> {
    /// A gate for `threads` threads.
    pub(crate) fn new(threads: usize, stop: &'a AtomicBool) -> Self {
        Self { threads, stop, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Waits for all threads.
    pub(crate) fn wait(&self) -> Next {
        let mut state = self.lock();
        let round = state.round;
        state.waiting += 1;
        if state.waiting == self.threads {
            state.waiting = 0;
            state.round += 1;
            state.next = if self.stop.load(Ordering::SeqCst) { Next::Stop } else { Next::Go };
            self.changed.notify_all();
        }
        while state.round == round && !state.broken {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.broken { Next::Fail } else { state.next }
    }

    /// Reports that a thread failed: the others do not wait for it.
    pub(crate) fn fail(&self) {
        self.lock().broken = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn all_threads_learn_the_same() {
        let stop = AtomicBool::new(false);
        let gate = Gate::new(3, &stop);
        thread::scope(|scope| {
            let rounds = || {
                let go = (0..100).all(|_| gate.wait() == Next::Go);
                // All have seen it go on before it stops.
                stop.store(true, Ordering::SeqCst);
                (go, gate.wait())
            };
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(rounds)).collect();
            for thread in threads {
                assert_eq!(thread.join().expect("no panic"), (true, Next::Stop));
            }
        });
    }

    #[test]
    fn who_waits_for_a_thread_that_failed_is_released() {
        let stop = AtomicBool::new(false);
        let gate = Gate::new(2, &stop);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| gate.wait());
            gate.fail();
            assert_eq!(waiting.join().expect("no panic"), Next::Fail);
        });
        assert_eq!(gate.wait(), Next::Fail);
    }
}
