//! Shared receive queues.

use crate::buffer::QueueBuffer;
use crate::context::{Inner, WatchId, Watched};
use crate::error::Error;
use crate::pd::ProtectionDomain;
use crate::records::RecordSlot;
use mlx5_doorbell::QueuePairRecord;
use mlx5_uapi::HugePages;
use mlx5_uapi::cmd::srq as command;
use mlx5_uapi::mlx5::CreateSrq;
use mlx5_uapi::verbs::{SrqAttrMask, SrqType};
use mlx5_wqe::{
    Gate, ListError, QueueState, ReceiveLayout, ReceiveWr, SharedReceiveQueue as Ring,
    SharedReceiveRecords,
};
use std::sync::{Arc, Mutex, PoisonError};

/// How a shared receive queue is to be made. See [`ProtectionDomain::create_srq`].
#[must_use = "a builder makes nothing until `build` is called"]
pub struct SharedReceiveQueueBuilder<'a> {
    pd: &'a ProtectionDomain,
    max_wr: u32,
    max_sge: u32,
    limit: u32,
    huge_pages: HugePages,
}

impl ProtectionDomain {
    /// Starts to make a shared receive queue for `max_wr` requests (`ibv_create_srq`).
    pub fn create_srq(&self, max_wr: u32) -> SharedReceiveQueueBuilder<'_> {
        SharedReceiveQueueBuilder {
            pd: self,
            max_wr,
            max_sge: 1,
            limit: 0,
            huge_pages: HugePages::None,
        }
    }
}

impl SharedReceiveQueueBuilder<'_> {
    /// Scatter entries of a request.
    pub fn max_sge(mut self, entries: u32) -> Self {
        self.max_sge = entries;
        self
    }

    /// Asks for an event when fewer requests than this are left; see
    /// [`SharedReceiveQueue::set_limit`].
    pub fn limit(mut self, limit: u32) -> Self {
        self.limit = limit;
        self
    }

    /// Whether the ring is to be made of huge pages.
    pub fn huge_pages(mut self, huge_pages: HugePages) -> Self {
        self.huge_pages = huge_pages;
        self
    }

    /// Makes the queue.
    pub fn build(self) -> Result<SharedReceiveQueue, Error> {
        const VERB: &str = "create_srq";
        let context = &self.pd.context;
        context.check(VERB)?;
        let limits = &context.limits;
        // One request of the ring is always free.
        let layout = self
            .max_wr
            .checked_add(1)
            .and_then(|requests| ReceiveLayout::new(requests, self.max_sge, Ring::HEAD))
            .filter(|layout| {
                self.max_wr > 0
                    && self.max_wr <= limits.max_srq_recv_wr
                    && layout.stride <= u32::from(limits.max_rq_desc_sz)
            });
        let Some(layout) = layout else {
            let what = format!(
                "{} requests with {} entries do not fit: the device takes 1 to {} requests of {} bytes",
                self.max_wr, self.max_sge, limits.max_srq_recv_wr, limits.max_rq_desc_sz
            );
            return Err(Error::invalid(VERB, what));
        };
        if self.limit > layout.requests - 1 {
            return Err(Error::invalid(VERB, "the limit is larger than the queue".into()));
        }
        let buffer = QueueBuffer::new(context, layout.bytes(), self.huge_pages)?;
        let slot = RecordSlot::new(context)?;
        let id = context.next_handle_id();
        // The ring is linked before the device is told of it.
        // SAFETY: the slot is kept as long as the queue; nothing else uses record and word.
        let (record, gate) =
            unsafe { (QueuePairRecord::new(slot.record()), Gate::new(slot.word())) };
        gate.set_state(QueueState::Init);
        let records = Arc::new(SharedReceiveRecords::new(layout.requests));
        // SAFETY: the ring is so large and page-aligned; it lives as long as `inner`.
        let ring = unsafe {
            Ring::new(
                buffer.as_non_null(),
                layout,
                context.max_message(),
                gate,
                record,
                Arc::clone(&records),
            )
        };
        let request = command::CreateSrq {
            srq_type: SrqType::Basic,
            pd: self.pd.handle(),
            xrcd: None,
            cq: None,
            user_handle: id,
            // The kernel rounds up past the number that it is told, as we do.
            max_wr: layout.requests - 1,
            max_sge: layout.max_sge,
            limit: self.limit,
            max_num_tags: 0,
            async_events: Some(context.async_fd()),
            driver: CreateSrq {
                buf_addr: buffer.addr(),
                db_addr: slot.addr(),
                ..CreateSrq::default()
            },
        };
        // SAFETY: buffer and record are kept until the queue is destroyed, or for ever.
        let made = unsafe { command::create(&*context.file, &request) }
            .map_err(|errno| context.fail(VERB, errno))?;
        let inner = Arc::new(SrqInner {
            watch: context.watch(Watched::Queue(gate)),
            context: Arc::clone(context),
            handle: Mutex::new(Some(made.handle)),
            srqn: made.srqn,
            id,
            gate,
            records,
            memory: Mutex::new(Some((buffer, slot))),
            _pd: self.pd.clone(),
        });
        Ok(SharedReceiveQueue { ring, inner })
    }
}

/// The part of a shared receive queue that queue pairs keep alive.
pub(crate) struct SrqInner {
    context: Arc<Inner>,
    handle: Mutex<Option<u32>>,
    srqn: u32,
    id: u64,
    gate: Gate,
    records: Arc<SharedReceiveRecords>,
    memory: Mutex<Option<(QueueBuffer, RecordSlot)>>,
    _pd: ProtectionDomain,
    watch: WatchId,
}

impl SrqInner {
    fn handle(&self) -> Option<u32> {
        *self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn destroy(&self) -> Result<(), Error> {
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

/// What a shared receive queue is, as the kernel tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SrqInfo {
    /// Requests that can be outstanding.
    pub max_wr: u32,
    /// Scatter entries of a request.
    pub max_sge: u32,
    /// The limit that is set, or zero.
    pub limit: u32,
}

/// A shared receive queue (`struct ibv_srq`): several queue pairs take their receive requests from
/// it.
pub struct SharedReceiveQueue {
    ring: Ring,
    inner: Arc<SrqInner>,
}

impl SharedReceiveQueue {
    pub(crate) fn inner(&self) -> Arc<SrqInner> {
        Arc::clone(&self.inner)
    }

    pub(crate) fn belongs_to(&self, context: &Arc<Inner>) -> bool {
        Arc::ptr_eq(&self.inner.context, context)
    }

    pub(crate) fn records(&self) -> Arc<SharedReceiveRecords> {
        Arc::clone(&self.inner.records)
    }

    pub(crate) fn handle(&self) -> Option<u32> {
        self.inner.handle()
    }

    /// Posts a list of receive requests (`ibv_post_srq_recv`). What comes before the first bad one
    /// is posted.
    pub fn post_recv(&mut self, list: &[ReceiveWr<'_>]) -> Result<(), ListError> {
        self.ring.post_recv(list)
    }

    /// Requests that can be outstanding.
    pub fn capacity(&self) -> u32 {
        self.ring.capacity()
    }

    /// Scatter entries of a request.
    pub fn max_sge(&self) -> u32 {
        self.ring.layout().max_sge
    }

    /// Number of the queue in the device.
    pub fn srqn(&self) -> u32 {
        self.inner.srqn
    }

    /// What events call this queue.
    pub fn id(&self) -> crate::event::SrqId {
        crate::event::SrqId(self.inner.id)
    }

    /// Asks for one [`crate::AsyncEvent`] when fewer than `limit` requests are left
    /// (`ibv_modify_srq`).
    pub fn set_limit(&mut self, limit: u32) -> Result<(), Error> {
        const VERB: &str = "modify_srq";
        self.inner.context.check(VERB)?;
        if limit > self.capacity() {
            return Err(Error::invalid(VERB, "the limit is larger than the queue".into()));
        }
        let handle = self.handle().unwrap_or_default();
        command::modify(&*self.inner.context.file, handle, SrqAttrMask::LIMIT, 0, limit)
            .map_err(|errno| self.inner.context.fail(VERB, errno))
    }

    /// Asks the kernel about the queue (`ibv_query_srq`).
    pub fn query(&self) -> Result<SrqInfo, Error> {
        const VERB: &str = "query_srq";
        self.inner.context.check(VERB)?;
        let handle = self.handle().unwrap_or_default();
        let info = command::query(&*self.inner.context.file, handle)
            .map_err(|errno| self.inner.context.fail(VERB, errno))?;
        Ok(SrqInfo { max_wr: info.max_wr, max_sge: info.max_sge, limit: info.srq_limit })
    }

    /// Destroys the queue (`ibv_destroy_srq`). Fails, and gives it back, while queue pairs take from
    /// it or when the kernel refuses.
    #[expect(clippy::result_large_err, reason = "the queue comes back")]
    pub fn destroy(self) -> Result<(), (Self, Error)> {
        if Arc::strong_count(&self.inner) > 1 {
            let error = Error::busy("destroy_srq", "queue pairs still take from it");
            return Err((self, error));
        }
        match self.inner.destroy() {
            Ok(()) => Ok(()),
            Err(error) => Err((self, error)),
        }
    }
}
