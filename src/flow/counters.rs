//! Counters of flow rules.

use super::Error;
use crate::context::{Context, Inner};
use crate::error::DestroyError;
use mlx5_uapi::cmd::counters as command;
use mlx5_uapi::flow::CounterKind;
use mlx5_uapi::mlx5::FlowCountersDesc;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counters of the packets of flow rules (`struct ibv_counters`), which one or several rules share.
///
/// A clone is another handle of the same counters, which are destroyed with the last handle, after
/// the rules that use them.
#[derive(Clone)]
pub struct FlowCounters {
    pub(super) inner: Arc<CountersInner>,
}

/// The values of counters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct CounterValues {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Name of the verb in errors of reading.
const READ: &str = "read_counters";

/// Positions of the values in the kernel's answer.
const DESCRIPTIONS: [FlowCountersDesc; 2] = [
    FlowCountersDesc { description: CounterKind::Packets as u32, index: 0 },
    FlowCountersDesc { description: CounterKind::Bytes as u32, index: 1 },
];

struct State {
    handle: Option<u32>,
    /// Number of rules that count. With the first one, the kernel gets the descriptions of the
    /// counters. It drops them with the last one.
    rules: u32,
    /// The values when the last rule ended, or the error of reading them. The kernel reads nothing
    /// while no rule counts.
    last: Result<CounterValues, Error>,
}

/// The part of counters that rules keep alive.
pub(super) struct CountersInner {
    pub(super) context: Arc<Inner>,
    state: Mutex<State>,
}

impl CountersInner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the kernel's handle.
    fn handle(&self) -> Option<u32> {
        self.state().handle
    }

    fn read(&self, state: &State) -> Result<CounterValues, Error> {
        let Some(handle) = state.handle else {
            return Err(Error::invalid(READ, "the counters were destroyed".into()));
        };
        if state.rules == 0 {
            return state.last.clone();
        }
        let mut values = [0; DESCRIPTIONS.len()];
        self.context.run(READ, |file| command::read(file, handle, &mut values, false))?;
        let [packets, bytes] = values;
        Ok(CounterValues { packets, bytes })
    }

    /// Ends a rule; `verb` is the operation. No other rule is made before the kernel has dropped
    /// the descriptions of the last one.
    pub(super) fn end_rule(
        &self,
        verb: &'static str,
        end: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        // In a child, a thread that does not exist there may hold the lock.
        self.context.check_process(verb)?;
        let mut state = self.state();
        let last = (state.rules == 1).then(|| self.read(&state));
        end()?;
        state.rules -= 1;
        if let Some(last) = last {
            state.last = last;
        }
        Ok(())
    }

    /// Makes a rule with the kernel's handle, and with the descriptions if it is the first one. The
    /// lock prevents destruction meanwhile: the kernel could reuse the handle for other counters.
    pub(super) fn describe_with(
        &self,
        make: impl FnOnce(Option<u32>, Option<&[FlowCountersDesc]>) -> Result<u32, Error>,
    ) -> Result<u32, Error> {
        let mut state = self.state();
        let made = make(state.handle, (state.rules == 0).then_some(&DESCRIPTIONS))?;
        state.rules += 1;
        Ok(made)
    }

    fn destroy(&self) -> Result<(), Error> {
        const VERB: &str = "destroy_counters";
        // In a child, a thread that does not exist there may hold the lock.
        self.context.check_process(VERB)?;
        let mut state = self.state();
        if let Some(live) = state.handle {
            self.context.run_destroy(VERB, |file| command::destroy(file, live))?;
            state.handle = None;
        }
        Ok(())
    }
}

impl Drop for CountersInner {
    fn drop(&mut self) {
        // They have no memory that must be kept; the kernel destroys them when the file is closed.
        let _ = self.destroy();
    }
}

impl Context {
    /// Creates counters for flow rules (`ibv_create_counters`).
    pub fn create_flow_counters(&self) -> Result<FlowCounters, Error> {
        const VERB: &str = "create_counters";
        self.inner.check(VERB)?;
        let handle = self.inner.run(VERB, command::create)?;
        let inner = CountersInner {
            context: Arc::clone(&self.inner),
            state: Mutex::new(State {
                handle: Some(handle),
                rules: 0,
                last: Ok(CounterValues::default()),
            }),
        };
        Ok(FlowCounters { inner: Arc::new(inner) })
    }
}

impl FlowCounters {
    /// Reads the counters (`ibv_read_counters`): the packets of all rules that ever used them. Zero
    /// before the first rule. After the last one, returns the values when it ended, or the error of
    /// reading them, until another rule counts.
    pub fn read(&self) -> Result<CounterValues, Error> {
        self.inner.context.check(READ)?;
        self.inner.read(&self.inner.state())
    }

    /// Returns the kernel's handle, for calls that this crate does not wrap, unless they were
    /// destroyed. See [`crate::Context::device_file`].
    pub fn kernel_handle(&self) -> Option<u32> {
        self.inner.handle()
    }

    /// Destroys the counters (`ibv_destroy_counters`). If the kernel refuses, because rules use
    /// them, the error returns them.
    pub fn destroy(self) -> Result<(), DestroyError<Self>> {
        match self.inner.destroy() {
            Ok(()) => Ok(()),
            Err(error) => Err(DestroyError::new(self, error)),
        }
    }
}

impl fmt::Debug for FlowCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowCounters").field("handle", &self.inner.handle()).finish()
    }
}
