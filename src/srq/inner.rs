//! The part of a shared receive queue that outlives its handle.

use crate::context::Inner;
use crate::cq::CqInner;
use crate::error::Error;
use crate::link::WatchId;
use crate::memory::ProtectionDomain;
use crate::pools::{QueueBuffer, RecordSlot, UserIndex};
use crate::srq::{SrqInfo, XrcDomain};
use mlx5_uapi::cmd::srq as command;
use mlx5_uapi::verbs::SrqAttrMask;
use mlx5_wqe::{Gate, QueueState, Repost, SharedReceiveRecords};
use std::sync::{Arc, Mutex, PoisonError};

/// The part of a shared receive queue that queue pairs keep alive.
pub(crate) struct SrqInner {
    pub(super) context: Arc<Inner>,
    pub(super) handle: Mutex<Option<u32>>,
    pub(super) srqn: u32,
    pub(super) id: u64,
    /// The maximum number of outstanding requests.
    pub(super) capacity: u32,
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
    fn live(&self, verb: &'static str) -> Result<u32, Error> {
        self.handle().ok_or_else(|| Error::invalid(verb, "the queue was destroyed".into()))
    }

    /// `ibv_modify_srq`, of the limit.
    pub(super) fn set_limit(&self, limit: u32) -> Result<(), Error> {
        const VERB: &str = "modify_srq";
        self.context.check(VERB)?;
        if limit > self.capacity {
            return Err(Error::invalid(VERB, "the limit is larger than the queue".into()));
        }
        let handle = self.live(VERB)?;
        command::modify(&*self.context.file, handle, SrqAttrMask::LIMIT, 0, limit)
            .map_err(|errno| self.context.fail(VERB, errno))
    }

    /// `ibv_query_srq`.
    pub(super) fn query(&self) -> Result<SrqInfo, Error> {
        const VERB: &str = "query_srq";
        self.context.check(VERB)?;
        let handle = self.live(VERB)?;
        let info = command::query(&*self.context.file, handle)
            .map_err(|errno| self.context.fail(VERB, errno))?;
        Ok(SrqInfo { max_wr: info.max_wr, max_sge: info.max_sge, limit: info.srq_limit })
    }

    /// What posts those receives again that meet a page fault, if anything does.
    pub(super) fn on_page_fault(&self, repost: Option<Repost>) {
        self.records.set_repost(repost);
    }

    pub(crate) fn records(&self) -> Arc<SharedReceiveRecords> {
        Arc::clone(&self.records)
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
