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
/// A clone is another handle of the same counters, which are destroyed with the last one, after the
/// rules that use them.
#[derive(Clone)]
pub struct FlowCounters {
    pub(super) inner: Arc<CountersInner>,
}

/// What was counted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct CounterValues {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Where the values are among those that the kernel reads.
const DESCRIPTIONS: [FlowCountersDesc; 2] = [
    FlowCountersDesc { description: CounterKind::Packets as u32, index: 0 },
    FlowCountersDesc { description: CounterKind::Bytes as u32, index: 1 },
];

struct State {
    handle: Option<u32>,
    /// Whether the kernel knows what is counted: a first rule has told it.
    described: bool,
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

    /// The kernel's handle, for a rule.
    pub(super) fn handle(&self) -> Option<u32> {
        self.state().handle
    }

    /// Makes a rule, with the descriptions if it is the first one.
    pub(super) fn describe_with(
        &self,
        make: impl FnOnce(Option<&[FlowCountersDesc]>) -> Result<u32, Error>,
    ) -> Result<u32, Error> {
        let mut state = self.state();
        let made = make((!state.described).then_some(&DESCRIPTIONS))?;
        state.described = true;
        Ok(made)
    }

    fn destroy(&self) -> Result<(), Error> {
        let mut state = self.state();
        if let Some(live) = state.handle {
            self.context.run_destroy("destroy_counters", |file| command::destroy(file, live))?;
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
            state: Mutex::new(State { handle: Some(handle), described: false }),
        };
        Ok(FlowCounters { inner: Arc::new(inner) })
    }
}

impl FlowCounters {
    /// Reads the counters (`ibv_read_counters`): the packets of all rules that ever used them. Zero
    /// before the first rule.
    pub fn read(&self) -> Result<CounterValues, Error> {
        const VERB: &str = "read_counters";
        let context = &self.inner.context;
        context.check(VERB)?;
        let state = self.inner.state();
        let Some(handle) = state.handle else {
            return Err(Error::invalid(VERB, "the counters were destroyed".into()));
        };
        if !state.described {
            return Ok(CounterValues::default());
        }
        let mut values = [0; DESCRIPTIONS.len()];
        context.run(VERB, |file| command::read(file, handle, &mut values, false))?;
        let [packets, bytes] = values;
        Ok(CounterValues { packets, bytes })
    }

    /// The kernel's handle, for calls that this crate does not wrap, unless they were destroyed. See
    /// [`crate::Context::device_file`].
    pub fn kernel_handle(&self) -> Option<u32> {
        self.inner.handle()
    }

    /// Destroys the counters (`ibv_destroy_counters`). If the kernel refuses, because rules use
    /// them, they are returned with the error.
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
