//! Tag-matching queues: shared receive queues with a list of tags.

mod builder;
mod command;
mod message;

pub use builder::TagMatchingQueueBuilder;
pub use message::{RendezvousData, TmMessage};

use crate::error::{DestroyError, Error};
use crate::link::{QpId, SrqId};
use crate::qp::{QpInner, QueuePairBuilder, Tags};
use crate::srq::{SharedReceiveQueue, SrqInfo};
use mlx5_wqe::tag_matching::{OpsWr, TagAdd, TagHandle, TagList};
use mlx5_wqe::transport::Rc;
use mlx5_wqe::{ListError, PostError, ReceiveWr};
use std::sync::Arc;

/// A tag-matching queue (`struct ibv_srq` of type `IBV_SRQT_TM`): the device matches messages with
/// the tags on its list and puts them where the tag says. What matches nothing goes to requests that
/// are posted as to any shared receive queue.
///
/// Everything of it completes on one completion queue. That needs room for each request, for two
/// completions of each tag, and for [`max_ops`](TagMatchingQueue::max_ops) operations, signaled or
/// not: the device is asked for completions that nobody else sees.
///
/// ```no_run
/// # fn f(pd: &mlx5::ProtectionDomain, cq: &mlx5::CompletionQueue, region: &mlx5::MemoryRegion)
/// #     -> Result<(), Box<dyn std::error::Error>> {
/// use mlx5::{TagAdd, transport::Rc};
/// let mut queue = pd.create_tm_srq(cq, 64).max_num_tags(16).max_ops(32).build()?;
/// let sges = [region.sge(0..4096)?];
/// let tag = queue.add(TagAdd { recv_wr_id: 7, sges: &sges, tag: 0x1234, mask: u64::MAX }, None)?;
/// let mut qp = pd.create_qp::<Rc>(cq, cq).tm_srq(&queue).build()?;
/// # let _ = (&mut qp, tag);
/// # Ok(())
/// # }
/// ```
pub struct TagMatchingQueue {
    // In this order they go.
    tags: TagList,
    command: Arc<QpInner>,
    srq: SharedReceiveQueue,
}

impl TagMatchingQueue {
    /// Posts a list of operations on the list of tags (`ibv_post_srq_ops`). What comes before the
    /// first bad one is posted, with one doorbell; the error says which one that is, and what is
    /// wrong with it. Each tag that is added gets its [`OpsWr::handle`].
    pub fn post_srq_ops(&mut self, list: &mut [OpsWr<'_>]) -> Result<(), ListError> {
        self.tags.post(list)
    }

    fn post_one(
        &mut self,
        mut wr: OpsWr<'_>,
        handled: Option<u32>,
    ) -> Result<OpsWr<'_>, PostError> {
        if let Some(count) = handled {
            wr = wr.synchronised(count);
        }
        self.tags.post(std::slice::from_mut(&mut wr)).map_err(|refused| refused.error)?;
        Ok(OpsWr { operation: mlx5_wqe::tag_matching::TagOperation::Sync, ..wr })
    }

    /// Adds a tag, without a completion of its own, and tells the device that so many unexpected
    /// messages were `handled`, if that is given.
    pub fn add(&mut self, add: TagAdd<'_>, handled: Option<u32>) -> Result<TagHandle, PostError> {
        let max = self.max_num_tags();
        let posted = self.post_one(OpsWr::add(0, add), handled)?;
        posted.handle.ok_or(PostError::TagListFull { max })
    }

    /// Removes a tag. The operation completes with `wr_id`, and fails with
    /// [`CompletionErrorKind::TagConsumed`](crate::CompletionErrorKind::TagConsumed) if a message
    /// matched the tag before.
    pub fn del(
        &mut self,
        wr_id: u64,
        tag: TagHandle,
        handled: Option<u32>,
    ) -> Result<(), PostError> {
        self.post_one(OpsWr::del(wr_id, tag).signaled(), handled).map(drop)
    }

    /// Tells the device that so many unexpected messages were handled. The operation has no
    /// completion of its own.
    pub fn sync(&mut self, handled: u32) -> Result<(), PostError> {
        self.post_one(OpsWr::sync(0, handled), None).map(drop)
    }

    /// Posts a list of receive requests (`ibv_post_srq_recv`), for messages that match no tag. What
    /// comes before the first bad one is posted.
    pub fn post_recv(&mut self, list: &[ReceiveWr<'_>]) -> Result<(), ListError> {
        self.srq.post_recv(list)
    }

    /// Requests for messages that match no tag that can be outstanding.
    pub fn capacity(&self) -> u32 {
        self.srq.capacity()
    }

    /// Tags that fit on the list.
    pub fn max_num_tags(&self) -> u32 {
        self.tags.max_num_tags()
    }

    /// Operations that can be outstanding.
    pub fn max_ops(&self) -> u32 {
        self.tags.max_ops()
    }

    /// Scatter entries of a tag.
    pub fn max_tag_sge(&self) -> u32 {
        self.tags.max_sge()
    }

    /// Number of the queue in the device.
    pub fn srqn(&self) -> u32 {
        self.srq.srqn()
    }

    /// What events call this queue.
    pub fn id(&self) -> SrqId {
        self.srq.id()
    }

    /// What events call the queue pair that brings operations to the device.
    pub fn command_id(&self) -> QpId {
        self.command.id()
    }

    /// Number of that queue pair.
    pub fn command_qp_num(&self) -> u32 {
        self.command.qp_num
    }

    /// Asks for one event when fewer than `limit` requests are left (`ibv_modify_srq`).
    pub fn set_limit(&mut self, limit: u32) -> Result<(), Error> {
        self.srq.set_limit(limit)
    }

    /// Asks the kernel about the queue (`ibv_query_srq`).
    pub fn query(&self) -> Result<SrqInfo, Error> {
        self.srq.query()
    }

    /// What a queue pair needs to belong here.
    fn attach(&self) -> Tags {
        Tags { srq: self.srq.inner(), records: Arc::clone(self.tags.records()), device_sends: true }
    }

    /// Destroys the queue (`ibv_destroy_srq`). Fails, and gives it back, while queue pairs belong to
    /// it or when the kernel refuses.
    pub fn destroy(self) -> Result<(), DestroyError<Self>> {
        // The queue pair for operations is one of them.
        if Arc::strong_count(&self.srq.inner) > 2 {
            let error = Error::busy("destroy_srq", "queue pairs still belong to it");
            return Err(DestroyError::new(self, error));
        }
        if let Err(error) = self.command.destroy() {
            return Err(DestroyError::new(self, error));
        }
        match self.srq.inner.destroy() {
            Ok(()) => Ok(()),
            Err(error) => Err(DestroyError::new(self, error)),
        }
    }
}

impl<'a> QueuePairBuilder<'a, Rc> {
    /// Takes messages for `queue`, which matches them with its tags. They complete on its completion
    /// queue, which has to be the one for receives here.
    ///
    /// The queue pair has no send queue: the device itself sends, to fetch the data of rendezvous.
    /// With [`QueuePairBuilder::keep_send_queue`] it has one, and rendezvous are left to software.
    pub fn tm_srq(self, queue: &'a TagMatchingQueue) -> Self {
        self.tags(queue.attach())
    }
}
