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
use std::ops::Deref;
use std::sync::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const DESTROY: &str = "destroy_srq";

/// The part of a shared receive queue that queue pairs keep alive.
pub(crate) struct SrqInner {
    pub(super) context: Arc<Inner>,
    /// Held during calls that name the queue, and while it is destroyed: a call must not name a
    /// handle that the kernel has given to another object.
    pub(super) handle: Mutex<Option<u32>>,
    /// Number of queue pairs, and of builders of some, that take from it.
    pub(super) takers: AtomicUsize,
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

/// A reference to a shared receive queue, held by a queue pair that takes from it. It prevents the
/// queue's destruction.
pub(crate) struct Taken(Arc<SrqInner>);

impl Taken {
    /// The caller owns the queue, or holds the lock of its handle, so that the queue is not
    /// destroyed during the call.
    pub(super) fn new(inner: &Arc<SrqInner>) -> Self {
        inner.takers.fetch_add(1, Relaxed);
        Self(Arc::clone(inner))
    }
}

impl Deref for Taken {
    type Target = SrqInner;

    fn deref(&self) -> &SrqInner {
        &self.0
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // Release: a thread that finds no taker left destroys the queue after the operations of
        // this one.
        self.0.takers.fetch_sub(1, Release);
    }
}

/// Creates the error of a queue that was destroyed.
pub(super) fn gone(verb: &'static str) -> Error {
    Error::invalid(verb, "the queue was destroyed".into())
}

impl SrqInner {
    fn lock(&self) -> MutexGuard<'_, Option<u32>> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn handle(&self) -> Option<u32> {
        *self.lock()
    }

    /// Runs `call` with the kernel's handle. The queue is not destroyed meanwhile.
    pub(super) fn with_handle<R>(
        &self,
        verb: &'static str,
        call: impl FnOnce(u32) -> Result<R, Error>,
    ) -> Result<R, Error> {
        // In a child, a thread that does not exist there may hold the lock.
        self.context.check(verb)?;
        let handle = self.lock();
        call((*handle).ok_or_else(|| gone(verb))?)
    }

    /// `ibv_modify_srq`, of the limit.
    pub(super) fn set_limit(&self, limit: u32) -> Result<(), Error> {
        const VERB: &str = "modify_srq";
        self.with_handle(VERB, |handle| {
            if limit > self.capacity {
                return Err(Error::invalid(VERB, "the limit is larger than the queue".into()));
            }
            command::modify(&*self.context.file, handle, SrqAttrMask::LIMIT, 0, limit)
                .map_err(|errno| self.context.fail(VERB, errno))
        })
    }

    /// `ibv_query_srq`.
    pub(super) fn query(&self) -> Result<SrqInfo, Error> {
        const VERB: &str = "query_srq";
        let info = self.with_handle(VERB, |handle| {
            command::query(&*self.context.file, handle)
                .map_err(|errno| self.context.fail(VERB, errno))
        })?;
        Ok(SrqInfo { max_wr: info.max_wr, max_sge: info.max_sge, limit: info.srq_limit })
    }

    /// Sets the function that reposts receives after a page fault.
    pub(super) fn on_page_fault(&self, repost: Option<Repost>) {
        self.records.set_repost(repost);
    }

    pub(crate) fn records(&self) -> Arc<SharedReceiveRecords> {
        Arc::clone(&self.records)
    }

    /// Destroys the kernel's object, after running `before`. Refuses, and does neither, while more
    /// than the `own` takers that are destroyed with it take from the queue.
    pub(crate) fn withdraw(
        &self,
        own: usize,
        busy: &'static str,
        before: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        // In a child, a thread that does not exist there may hold the lock.
        self.context.check_process(DESTROY)?;
        let handle = self.lock();
        if self.takers.load(Acquire) > own {
            return Err(Error::busy(DESTROY, busy));
        }
        before()?;
        self.end(handle)
    }

    fn destroy(&self) -> Result<(), Error> {
        self.context.check_process(DESTROY)?;
        self.end(self.lock())
    }

    fn end(&self, mut handle: MutexGuard<'_, Option<u32>>) -> Result<(), Error> {
        let Some(live) = *handle else { return Ok(()) };
        self.context.run_destroy(DESTROY, |file| command::destroy(file, live).map(drop))?;
        *handle = None;
        self.gate.set_state(QueueState::Reset);
        if let Some((cq, index)) = &self.completes {
            // Before and after, as for a queue pair.
            cq.depart(index);
            index.depart();
            cq.keep_back(index);
        }
        Ok(())
    }

    /// Returns the state that posting finds: ready, or the reason that it is refused.
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
