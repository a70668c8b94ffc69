//! The builder of shared receive queues.

use super::SharedReceiveQueue;
use super::inner::SrqInner;
use crate::cq::{CompletionQueue, CompletionTarget, CqInner};
use crate::error::Error;
use crate::link::Watched;
use crate::memory::ProtectionDomain;
use crate::pools::{
    MemorySource, QueueBuffer, QueuePairRecords, ReceiveSide, RecordSlot, UserIndex, memory_options,
};
use crate::srq::XrcDomain;
use mlx5_cq::UserTag;
use mlx5_doorbell::QueuePairRecord;
use mlx5_uapi::cmd::srq as command;
use mlx5_uapi::mlx5::CreateSrq;
use mlx5_uapi::verbs::SrqType;
use mlx5_wqe::{
    Gate, QueueState, ReceiveLayout, SendRecords, SharedReceiveQueue as Ring, SharedReceiveRecords,
};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex};

/// The options of a new shared receive queue. See [`ProtectionDomain::create_srq`].
#[must_use = "a builder makes nothing until `build` is called"]
pub struct SharedReceiveQueueBuilder<'a> {
    pd: &'a ProtectionDomain,
    max_wr: u32,
    max_sge: u32,
    limit: u32,
    memory: MemorySource,
    xrc: Option<(&'a XrcDomain, CompletionTarget)>,
    user_tag: u64,
}

impl fmt::Debug for SharedReceiveQueueBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReceiveQueueBuilder")
            .field("max_wr", &self.max_wr)
            .field("max_sge", &self.max_sge)
            .field("limit", &self.limit)
            .field("huge_pages", &self.memory.huge_pages)
            .field("numa_node", &self.memory.numa_node)
            .field("xrc", &self.xrc.is_some())
            .finish_non_exhaustive()
    }
}

impl ProtectionDomain {
    /// Starts building a shared receive queue for `max_wr` requests (`ibv_create_srq`). `build`
    /// refuses 0, and more than
    /// [`QueueLimits::max_srq_recv_wr`](crate::QueueLimits::max_srq_recv_wr). The queue may hold
    /// more than requested: see [`SharedReceiveQueue::capacity`].
    pub fn create_srq(&self, max_wr: u32) -> SharedReceiveQueueBuilder<'_> {
        SharedReceiveQueueBuilder {
            pd: self,
            max_wr,
            max_sge: 1,
            limit: 0,
            memory: MemorySource::default(),
            xrc: None,
            user_tag: 0,
        }
    }
}

impl<'a> SharedReceiveQueueBuilder<'a> {
    /// Maximum number of SGEs of a request. Default: 1. 0 counts as 1. Rounded up so that the size
    /// of a request is a power of two. `build` refuses more than fit into a request of
    /// [`QueueLimits::max_rq_desc_sz`](crate::QueueLimits::max_rq_desc_sz) bytes.
    pub fn max_sge(mut self, entries: u32) -> Self {
        self.max_sge = entries;
        self
    }

    /// The limit in the call to the kernel. Default: 0. `build` refuses more than the capacity of
    /// the queue. The kernel's driver ignores it (`mlx5_ib_create_srq`): to get an event when few
    /// requests are left, call [`SharedReceiveQueue::set_limit`] once requests are posted.
    pub fn limit(mut self, limit: u32) -> Self {
        self.limit = limit;
        self
    }

    memory_options!("the ring", memory);

    /// Makes it a queue for extended connections. Peers that are connected to a target queue pair
    /// of `domain` send to it by its number. Its receives complete on `cq`. Default: an ordinary
    /// shared receive queue. `build` refuses objects of different contexts.
    pub fn xrc(self, domain: &'a XrcDomain, cq: &CompletionQueue) -> Self {
        self.xrc_on(domain, cq.target())
    }

    /// Like [`SharedReceiveQueueBuilder::xrc`], for a completion queue that another thread may poll
    /// meanwhile.
    pub fn xrc_on(mut self, domain: &'a XrcDomain, cq: CompletionTarget) -> Self {
        self.xrc = Some((domain, cq));
        self
    }

    /// The tag that completions of a queue for [extended connections](Self::xrc) carry
    /// ([`crate::WorkCompletion::user_tag`]). Default: 0. Ignored for an ordinary shared receive
    /// queue: its completions carry the tag of the queue pair that took the request.
    pub fn user_tag(mut self, tag: u64) -> Self {
        self.user_tag = tag;
        self
    }

    /// Creates the queue.
    pub fn build(self) -> Result<SharedReceiveQueue, Error> {
        const VERB: &str = "create_srq";
        let Self { pd, max_wr, max_sge, limit, memory, xrc, user_tag } = self;
        let sizes = Sizes { max_wr, max_sge, limit, memory };
        let (ring, inner) = make(pd, VERB, sizes, |records| match xrc {
            None => Ok(Kind::BASIC),
            Some((domain, cq)) => extended(pd, VERB, domain, &cq, user_tag, records),
        })?;
        Ok(SharedReceiveQueue { ring, inner })
    }
}

/// Returns the kind of an extended queue, which completes on a completion queue of its own.
fn extended(
    pd: &ProtectionDomain,
    verb: &'static str,
    domain: &XrcDomain,
    cq: &CompletionTarget,
    user_tag: u64,
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
        user_tag: UserTag::new(user_tag),
        lent: AtomicBool::new(false),
    };
    let index = context.user_indexes.register(known, [cq.inner.ring_id(); 2]);
    let index = index.ok_or_else(|| Error::invalid(verb, "all user indexes are in use".into()))?;
    Ok(Kind {
        srq_type: SrqType::Xrc,
        max_num_tags: 0,
        completes: Some((Arc::clone(&cq.inner), Arc::new(index))),
        domain: Some(domain.clone()),
    })
}

/// The options of all kinds of shared receive queues.
#[derive(Clone)]
pub(crate) struct Sizes {
    pub(crate) max_wr: u32,
    pub(crate) max_sge: u32,
    pub(crate) limit: u32,
    pub(crate) memory: MemorySource,
}

/// The differences between the kinds of shared receive queues.
pub(crate) struct Kind {
    pub(crate) srq_type: SrqType,
    pub(crate) max_num_tags: u32,
    /// The completion queue and the user index, for a queue with completions of its own.
    pub(crate) completes: Option<(Arc<CqInner>, Arc<UserIndex>)>,
    /// The domain of an extended queue.
    pub(crate) domain: Option<XrcDomain>,
}

impl Kind {
    const BASIC: Self =
        Self { srq_type: SrqType::Basic, max_num_tags: 0, completes: None, domain: None };
}

/// Creates a shared receive queue of the kind that `kind` returns for the queue's records.
pub(crate) fn make(
    pd: &ProtectionDomain,
    verb: &'static str,
    sizes: Sizes,
    kind: impl FnOnce(&Arc<SharedReceiveRecords>) -> Result<Kind, Error>,
) -> Result<(Ring, Arc<SrqInner>), Error> {
    let context = &pd.context;
    context.check(verb)?;
    let limits = &context.limits;
    let Sizes { max_wr, max_sge, limit, memory } = sizes;
    // One WQE of the ring is always free.
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
            "{max_wr} requests with {max_sge} entries do not fit: the device supports 1 to {} \
             requests of {} bytes",
            limits.max_srq_recv_wr, limits.max_rq_desc_sz
        );
        return Err(Error::invalid(verb, what));
    };
    if limit > layout.requests - 1 {
        return Err(Error::invalid(verb, "the limit is larger than the queue".into()));
    }
    let buffer = QueueBuffer::new(&context.buffers, layout.bytes(), &memory)?;
    let slot = RecordSlot::new(&context.records, memory.allocator.as_ref())?;
    let id = context.next_handle_id();
    // The ring is linked before the device learns its address.
    // SAFETY: the slot lives as long as the queue, and nothing else uses its record and word.
    let (record, gate) = unsafe { (QueuePairRecord::new(slot.record()), Gate::new(slot.word())) };
    gate.set_state(QueueState::Init);
    let records = Arc::new(SharedReceiveRecords::new(layout.requests));
    // SAFETY: the ring has the size of the layout and is page-aligned; it lives as long as `inner`.
    let ring =
        unsafe { Ring::new(buffer.as_non_null(), layout, gate, record, Arc::clone(&records)) };
    let Kind { srq_type, max_num_tags, completes, domain } = kind(&records)?;
    let request = command::CreateSrq {
        srq_type,
        pd: pd.handle(),
        xrcd: domain.as_ref().map(|domain| domain.domain.handle),
        cq: completes.as_ref().and_then(|(cq, _)| cq.handle()),
        user_handle: id,
        // The kernel rounds up to a power of two greater than this number, as the layout does.
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
    // SAFETY: buffer and record live until the queue is destroyed, or until the file is closed.
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
        takers: AtomicUsize::new(0),
        srqn: made.srqn,
        id,
        capacity: layout.requests - 1,
        gate,
        records,
        memory: Mutex::new(Some((buffer, slot))),
        completes,
        _domain: domain,
        _pd: pd.clone(),
    });
    Ok((ring, inner))
}
