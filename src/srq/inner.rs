//! What of a shared receive queue outlives its handle.

use crate::buffer::QueueBuffer;
use crate::context::{Inner, WatchId};
use crate::error::Error;
use crate::pd::ProtectionDomain;
use crate::records::RecordSlot;
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
    pub(super) _pd: ProtectionDomain,
    pub(super) watch: WatchId,
}

impl SrqInner {
    pub(super) fn handle(&self) -> Option<u32> {
        *self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn destroy(&self) -> Result<(), Error> {
        const VERB: &str = "destroy_srq";
        let mut handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(live) = *handle else { return Ok(()) };
        self.context.run_destroy(VERB, |file| command::destroy(file, live).map(drop))?;
        *handle = None;
        self.gate.set_state(QueueState::Reset);
        Ok(())
    }
}

impl Drop for SrqInner {
    fn drop(&mut self) {
        let destroyed = self.destroy().is_ok();
        self.context.unwatch(self.watch);
        let memory = self.memory.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let (false, Some((buffer, slot))) = (destroyed, memory) {
            // The device may still use them.
            buffer.leak();
            slot.leak();
        }
    }
}
