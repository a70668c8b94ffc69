//! The builder of tag-matching queues.

use super::{TagMatchingQueue, command};
use crate::context::TagMatchingCaps;
use crate::cq::{CompletionQueue, CompletionTarget};
use crate::error::{Error, ErrorKind};
use crate::memory::ProtectionDomain;
use crate::pools::{MemorySource, QueuePairRecords, ReceiveSide, memory_options};
use crate::qp::Tags;
use crate::srq::{Kind, SharedReceiveQueue, Sizes, SrqInner, make};
use mlx5_cq::UserTag;
use mlx5_uapi::verbs::SrqType;
use mlx5_wqe::tag_matching::{TagList, TagRecords};
use mlx5_wqe::transport::Rc;
use mlx5_wqe::{ReceiveRecords, SendLayout, SendRecords};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The options of a new tag-matching queue. See [`ProtectionDomain::create_tm_srq`].
#[must_use = "a builder makes nothing until `build` is called"]
pub struct TagMatchingQueueBuilder<'a> {
    pd: &'a ProtectionDomain,
    cq: CompletionTarget,
    sizes: Sizes,
    max_num_tags: u32,
    max_ops: u32,
    port_num: Option<u8>,
    user_tag: u64,
}

impl fmt::Debug for TagMatchingQueueBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TagMatchingQueueBuilder")
            .field("max_wr", &self.sizes.max_wr)
            .field("max_sge", &self.sizes.max_sge)
            .field("limit", &self.sizes.limit)
            .field("max_num_tags", &self.max_num_tags)
            .field("max_ops", &self.max_ops)
            .field("port_num", &self.port_num)
            .finish_non_exhaustive()
    }
}

impl ProtectionDomain {
    /// Starts building a tag-matching queue (`ibv_create_srq_ex` with `IBV_SRQT_TM`) with `max_wr`
    /// requests for messages that match no tag. Everything completes on `cq`. `build` refuses 0,
    /// more than [`QueueLimits::max_srq_recv_wr`](crate::QueueLimits::max_srq_recv_wr), a
    /// completion queue of another context, and with [`ErrorKind::NotSupported`] a device without
    /// [tag matching](crate::TagMatchingCaps).
    pub fn create_tm_srq(&self, cq: &CompletionQueue, max_wr: u32) -> TagMatchingQueueBuilder<'_> {
        self.create_tm_srq_on(cq.target(), max_wr)
    }

    /// Like [`ProtectionDomain::create_tm_srq`], for a completion queue that another thread may
    /// poll meanwhile.
    pub fn create_tm_srq_on(
        &self,
        cq: CompletionTarget,
        max_wr: u32,
    ) -> TagMatchingQueueBuilder<'_> {
        TagMatchingQueueBuilder {
            pd: self,
            cq,
            sizes: Sizes { max_wr, max_sge: 1, limit: 0, memory: MemorySource::default() },
            max_num_tags: 64,
            max_ops: 64,
            port_num: None,
            user_tag: 0,
        }
    }
}

impl TagMatchingQueueBuilder<'_> {
    /// Maximum number of tags on the list. Default: 64. `build` refuses 0, and more than
    /// [`TagMatchingCaps::max_num_tags`].
    pub fn max_num_tags(mut self, tags: u32) -> Self {
        self.max_num_tags = tags;
        self
    }

    /// Maximum number of outstanding operations. Default: 64. `build` refuses 0, and more than
    /// [`TagMatchingCaps::max_ops`].
    pub fn max_ops(mut self, operations: u32) -> Self {
        self.max_ops = operations;
        self
    }

    /// Maximum number of SGEs of a receive request. Default: 1. 0 counts as 1. Rounded up so that
    /// the size of a request is a power of two. `build` refuses more than fit into a request of
    /// [`QueueLimits::max_rq_desc_sz`](crate::QueueLimits::max_rq_desc_sz) bytes.
    pub fn max_sge(mut self, entries: u32) -> Self {
        self.sizes.max_sge = entries;
        self
    }

    /// The limit in the call to the kernel. Default: 0. `build` refuses more than the capacity of
    /// the queue. The kernel's driver ignores it (`mlx5_ib_create_srq`).
    pub fn limit(mut self, limit: u32) -> Self {
        self.sizes.limit = limit;
        self
    }

    memory_options!("the ring of receives", sizes.memory);

    /// The port through which the command queue pair is connected to itself. Default: the first
    /// active port that has an address. Messages may arrive through any port. `build` refuses a
    /// port that does not exist, that is not active, or that lacks an address where it needs one.
    pub fn port(mut self, port_num: u8) -> Self {
        self.port_num = Some(port_num);
        self
    }

    /// The tag that completions of the queue carry ([`crate::WorkCompletion::user_tag`]): those of
    /// operations, of tags and of receives. Default: 0. Not to be confused with the tags on its
    /// list.
    pub fn user_tag(mut self, tag: u64) -> Self {
        self.user_tag = tag;
        self
    }

    fn check(&self, caps: &TagMatchingCaps) -> Result<SendLayout, Error> {
        if !Arc::ptr_eq(&self.cq.inner.context, &self.pd.context) {
            let what = "completion queue and protection domain belong to different contexts";
            return Err(Error::invalid(VERB, what.into()));
        }
        if caps.max_num_tags == 0 || caps.max_sge == 0 {
            let what = "the device or its kernel driver does not support tag matching";
            return Err(Error::new(VERB, ErrorKind::NotSupported, what));
        }
        if !(1..=caps.max_num_tags).contains(&self.max_num_tags) {
            let what = format!(
                "{} tags requested; the device supports 1 to {}",
                self.max_num_tags, caps.max_num_tags
            );
            return Err(Error::invalid(VERB, what));
        }
        let layout = SendLayout::new::<Rc>(self.max_ops, 1, 0)
            .filter(|_| (1..=caps.max_ops).contains(&self.max_ops));
        layout.ok_or_else(|| {
            let what = format!(
                "{} outstanding operations requested; the device supports 1 to {}",
                self.max_ops, caps.max_ops
            );
            Error::invalid(VERB, what)
        })
    }

    /// Creates the queue, and the command queue pair that posts operations on its list.
    pub fn build(self) -> Result<TagMatchingQueue, Error> {
        let context = &self.pd.context;
        context.check(VERB)?;
        let caps = TagMatchingCaps::new(context);
        let layout = self.check(&caps)?;
        let Self { pd, cq, sizes, max_num_tags, max_ops, port_num, user_tag } = self;
        let path = command::path_to_itself(context, port_num)?;
        let mut records = None;
        let (ring, inner): (_, Arc<SrqInner>) = make(pd, VERB, sizes, |receives| {
            let tags = TagRecords::new(max_num_tags, layout.blocks, Arc::clone(receives));
            let tags = records.insert(Arc::new(tags));
            let known = QueuePairRecords {
                send: SendRecords::new(1),
                receive: ReceiveSide::Own(Arc::new(ReceiveRecords::new(0))),
                tags: Some(Arc::clone(tags)),
                user_tag: UserTag::new(user_tag),
                lent: AtomicBool::new(false),
            };
            let index = context.user_indexes.register(known, [cq.inner.ring_id(); 2]);
            let index =
                index.ok_or_else(|| Error::invalid(VERB, "all user indexes are in use".into()))?;
            Ok(Kind {
                srq_type: SrqType::Tm,
                max_num_tags,
                completes: Some((Arc::clone(&cq.inner), Arc::new(index))),
                domain: None,
            })
        })?;
        let srq = SharedReceiveQueue { ring, inner };
        let records = records.ok_or_else(|| Error::invalid(VERB, "no tags".into()))?;
        let tags = Tags { srq: srq.take(), records: Arc::clone(&records), device_sends: false };
        let (queue, command) = command::create(pd, &cq, tags, max_ops, path)?;
        // A number that no other list of the process has.
        static LISTS: AtomicU64 = AtomicU64::new(0);
        let id = LISTS.fetch_add(1, Relaxed);
        let tags = TagList::new(queue, records, id);
        Ok(TagMatchingQueue { tags, command, srq })
    }
}

const VERB: &str = "create_srq_ex";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices_on;
    use mlx5_sim::{SimConfig, Simulator};

    #[test]
    fn a_device_without_tags_or_their_entries_has_no_tag_matching() {
        let simulator = Simulator::new(SimConfig::new());
        let context = devices_on(simulator.kernel()).unwrap().remove(0).open().unwrap();
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(16).build().unwrap();
        let builder = pd.create_tm_srq(&cq, 4);
        let caps = context.query_device().tag_matching;
        assert!(builder.check(&caps).is_ok());
        for without in
            [TagMatchingCaps { max_num_tags: 0, ..caps }, TagMatchingCaps { max_sge: 0, ..caps }]
        {
            assert_eq!(builder.check(&without).unwrap_err().kind(), ErrorKind::NotSupported);
        }
    }
}
