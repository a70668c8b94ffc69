//! How shared receive queues are made.

use super::SharedReceiveQueue;
use super::inner::SrqInner;
use crate::cq::{CompletionQueue, CqInner};
use crate::error::Error;
use crate::link::Watched;
use crate::memory::ProtectionDomain;
use crate::pools::{
    QueueAllocator, QueueBuffer, QueuePairRecords, ReceiveSide, RecordSlot, UserIndex,
};
use crate::srq::XrcDomain;
use mlx5_doorbell::QueuePairRecord;
use mlx5_uapi::HugePages;
use mlx5_uapi::cmd::srq as command;
use mlx5_uapi::mlx5::CreateSrq;
use mlx5_uapi::verbs::SrqType;
use mlx5_wqe::{
    Gate, QueueState, ReceiveLayout, SendRecords, SharedReceiveQueue as Ring, SharedReceiveRecords,
};
use std::sync::{Arc, Mutex};

/// How a shared receive queue is to be made. See [`ProtectionDomain::create_srq`].
#[must_use = "a builder makes nothing until `build` is called"]
pub struct SharedReceiveQueueBuilder<'a> {
    pd: &'a ProtectionDomain,
    max_wr: u32,
    max_sge: u32,
    limit: u32,
    huge_pages: HugePages,
    allocator: Option<Arc<dyn QueueAllocator>>,
    xrc: Option<(&'a XrcDomain, &'a CompletionQueue)>,
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
            allocator: None,
            xrc: None,
        }
    }
}

impl<'a> SharedReceiveQueueBuilder<'a> {
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

    /// Who gives the ring its memory.
    pub fn allocator(mut self, allocator: &Arc<dyn QueueAllocator>) -> Self {
        self.allocator = Some(Arc::clone(allocator));
        self
    }

    /// Makes it a queue for extended connections: whoever is connected to a target queue pair of
    /// `domain` sends to it by its number. Its receives complete on `cq`.
    pub fn xrc(mut self, domain: &'a XrcDomain, cq: &'a CompletionQueue) -> Self {
        self.xrc = Some((domain, cq));
        self
    }

    /// Makes the queue.
    pub fn build(self) -> Result<SharedReceiveQueue, Error> {
        const VERB: &str = "create_srq";
        let Self { pd, max_wr, max_sge, limit, huge_pages, allocator, xrc } = self;
        let sizes = Sizes { max_wr, max_sge, limit, huge_pages, allocator };
        let (ring, inner) = make(pd, VERB, sizes, |records| match xrc {
            None => Ok(Kind::BASIC),
            Some((domain, cq)) => extended(pd, VERB, domain, cq, records),
        })?;
        Ok(SharedReceiveQueue { ring, inner })
    }
}

/// What an extended queue is, which completes by itself.
fn extended(
    pd: &ProtectionDomain,
    verb: &'static str,
    domain: &XrcDomain,
    cq: &CompletionQueue,
    records: &Arc<SharedReceiveRecords>,
) -> Result<Kind, Error> {
    let context = &pd.context;
    if !domain.belongs_to(context) || !Arc::ptr_eq(&cq.inner.context, context) {
        let what =
            "XRC domain, completion queue and protection domain belong to different contexts";
        return Err(Error::invalid(verb, what.into()));
    }
    let known = QueuePairRecords {
        send: SendRecords::new(1),
        receive: ReceiveSide::Shared(Arc::clone(records)),
        tags: None,
    };
    // Freed before, so that their indexes can be used again.
    cq.release_departures();
    let index = context.user_indexes.register(Arc::new(known), [cq.inner.ring_id(); 2]);
    let index = index.ok_or_else(|| Error::invalid(verb, "all user indexes are in use".into()))?;
    Ok(Kind {
        srq_type: SrqType::Xrc,
        max_num_tags: 0,
        completes: Some((Arc::clone(&cq.inner), Arc::new(index))),
        domain: Some(domain.clone()),
    })
}

/// What is asked of a shared receive queue of whatever kind.
#[derive(Clone)]
pub(crate) struct Sizes {
    pub(crate) max_wr: u32,
    pub(crate) max_sge: u32,
    pub(crate) limit: u32,
    pub(crate) huge_pages: HugePages,
    pub(crate) allocator: Option<Arc<dyn QueueAllocator>>,
}

/// What the kinds of shared receive queues differ in.
pub(crate) struct Kind {
    pub(crate) srq_type: SrqType,
    pub(crate) max_num_tags: u32,
    /// Where it completes, if it does so by itself, and under which user index.
    pub(crate) completes: Option<(Arc<CqInner>, Arc<UserIndex>)>,
    /// The domain of an extended one.
    pub(crate) domain: Option<XrcDomain>,
}

impl Kind {
    const BASIC: Self =
        Self { srq_type: SrqType::Basic, max_num_tags: 0, completes: None, domain: None };
}

/// Makes a shared receive queue, of the kind that `kind` tells when it is given the queue's records.
pub(crate) fn make(
    pd: &ProtectionDomain,
    verb: &'static str,
    sizes: Sizes,
    kind: impl FnOnce(&Arc<SharedReceiveRecords>) -> Result<Kind, Error>,
) -> Result<(Ring, Arc<SrqInner>), Error> {
    let context = &pd.context;
    context.check(verb)?;
    let limits = &context.limits;
    let Sizes { max_wr, max_sge, limit, huge_pages, allocator } = sizes;
    // One request of the ring is always free.
    let layout = max_wr
        .checked_add(1)
        .and_then(|requests| ReceiveLayout::new(requests, max_sge, Ring::HEAD))
        .filter(|layout| {
            max_wr > 0
                && max_wr <= limits.max_srq_recv_wr
                && layout.stride <= u32::from(limits.max_rq_desc_sz)
        });
    let Some(layout) = layout else {
        let what = format!(
            "{max_wr} requests with {max_sge} entries do not fit: the device takes 1 to {} requests of {} bytes",
            limits.max_srq_recv_wr, limits.max_rq_desc_sz
        );
        return Err(Error::invalid(verb, what));
    };
    if limit > layout.requests - 1 {
        return Err(Error::invalid(verb, "the limit is larger than the queue".into()));
    }
    let buffer = QueueBuffer::new(&context.link, layout.bytes(), huge_pages, allocator.as_ref())?;
    let slot = RecordSlot::new(&context.records)?;
    let id = context.next_handle_id();
    // The ring is linked before the device is told of it.
    // SAFETY: the slot is kept as long as the queue; nothing else uses record and word.
    let (record, gate) = unsafe { (QueuePairRecord::new(slot.record()), Gate::new(slot.word())) };
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
    let Kind { srq_type, max_num_tags, completes, domain } = kind(&records)?;
    let request = command::CreateSrq {
        srq_type,
        pd: pd.handle(),
        xrcd: domain.as_ref().map(|domain| domain.domain.handle),
        cq: completes.as_ref().and_then(|(cq, _)| cq.handle()),
        user_handle: id,
        // The kernel rounds up past the number that it is told, as we do.
        max_wr: layout.requests - 1,
        max_sge: layout.max_sge,
        limit,
        max_num_tags,
        async_events: Some(context.async_fd()),
        driver: CreateSrq {
            buf_addr: buffer.addr(),
            db_addr: slot.addr(),
            uidx: completes.as_ref().map_or(0, |(_, index)| index.get()),
            ..CreateSrq::default()
        },
    };
    // SAFETY: buffer and record are kept until the queue is destroyed, or the file closed.
    let made = match unsafe { command::create(&*context.file, &request) } {
        Ok(made) => made,
        Err(errno) => {
            let error = context.fail(verb, errno);
            if error.in_doubt() {
                buffer.keep();
                slot.keep();
            }
            return Err(error);
        }
    };
    let inner = Arc::new(SrqInner {
        watch: context.watch(Watched::Queue(gate)),
        context: Arc::clone(context),
        handle: Mutex::new(Some(made.handle)),
        srqn: made.srqn,
        id,
        gate,
        records,
        memory: Mutex::new(Some((buffer, slot))),
        completes,
        _domain: domain,
        _pd: pd.clone(),
    });
    Ok((ring, inner))
}
