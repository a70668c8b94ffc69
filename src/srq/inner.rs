//! The part of a shared receive queue that outlives its handle.

use crate::context::Inner;
use crate::cq::CqInner;
use crate::error::Error;
use crate::link::WatchId;
use crate::memory::ProtectionDomain;
use crate::pools::{QueueBuffer, RecordSlot, UserIndex};
use crate::srq::XrcDomain;
use mlx5_uapi::cmd::srq as command;
use mlx5_wqe::{Gate, QueueState, SharedReceiveRecords};
use std::sync::{Arc, Mutex, PoisonError};

/// The part of a shared receive queue that queue pairs keep alive.
pub(crate) struct SrqInner {
    pub(super) context: Arc<Inner>,
    pub(super) handle: Mutex<Option<u32>>,
    pub(super) srqn: u32,
    pub(super) id: u64,
    pub(super) gate: Gate,
    pub(super) records: Arc<SharedReceiveRecords>,
    pub(super) memory: Mutex<Option<(QueueBuffer, RecordSlot)>>,
    /// The completion queue and the user index, for a queue with completions of its own.
    pub(super) completes: Option<(Arc<CqInner>, Arc<UserIndex>)>,
    pub(super) _domain: Option<XrcDomain>,
    pub(super) _pd: ProtectionDomain,
    pub(super) watch: WatchId,
}

impl SrqInner {
    pub(crate) fn handle(&self) -> Option<u32> {
        *self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernel's handle, for a call.
    pub(super) fn live(&self, verb: &'static str) -> Result<u32, Error> {
        self.handle().ok_or_else(|| Error::invalid(verb, "the queue was destroyed".into()))
    }

    pub(crate) fn destroy(&self) -> Result<(), Error> {
        const VERB: &str = "destroy_srq";
        let mut handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(live) = *handle else { return Ok(()) };
        self.context.run_destroy(VERB, |file| command::destroy(file, live).map(drop))?;
        *handle = None;
        self.gate.set_state(QueueState::Reset);
        if let Some((cq, index)) = &self.completes {
            // Before and after, as for a queue pair.
            cq.depart(index);
            index.depart();
            cq.depart(index);
        }
        Ok(())
    }

    /// Returns what posting finds: that the queue is ready, or why it is refused.
    pub(super) fn state_name(&self) -> &'static str {
        match self.gate.state() {
            Some(QueueState::Init) => "ready",
            _ => self.gate.name(),
        }
    }

    /// Returns the number of the queue in the device.
    pub(crate) fn srqn(&self) -> u32 {
        self.srqn
    }

    pub(crate) fn context(&self) -> &Arc<Inner> {
        &self.context
    }

    /// Whether it completes on this completion queue.
    pub(crate) fn completes_on(&self, cq: &Arc<CqInner>) -> bool {
        self.completes.as_ref().is_some_and(|(here, _)| Arc::ptr_eq(here, cq))
    }
}

impl Drop for SrqInner {
    fn drop(&mut self) {
        let destroyed = self.destroy().is_ok();
        self.context.unwatch(self.watch);
        let memory = self.memory.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let (false, Some((buffer, slot))) = (destroyed, memory) {
            // The device may still use them, and completions may still name the queue.
            buffer.keep();
            slot.keep();
            if let Some((_, index)) = &self.completes {
                let index = Arc::clone(index);
                self.context.keep_records(index);
            }
        }
    }
}
