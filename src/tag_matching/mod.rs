//! Tag-matching queues: shared receive queues with a tag list.

mod builder;
mod command;
mod message;

pub use builder::TagMatchingQueueBuilder;
pub use message::{RendezvousData, TmMessage};

use crate::error::{DestroyError, Error};
use crate::link::{QpId, SrqId};
use crate::qp::{QpInner, QueuePairBuilder, Tags};
use crate::srq::{SharedReceiveQueue, SrqControl, SrqInfo};
use mlx5_wqe::tag_matching::{OpsWr, TagAdd, TagHandle, TagList};
use mlx5_wqe::transport::Rc;
use mlx5_wqe::{ListError, PostError, ReceiveWr, Sge};
use std::fmt;
use std::sync::Arc;

/// A tag-matching queue (`struct ibv_srq` of type `IBV_SRQT_TM`). The device matches messages with
/// the tags on its list and puts them into the buffers of the tags. Unmatched messages go to
/// receive requests, posted as to any shared receive queue.
///
/// Everything completes on one completion queue. It needs room for each receive request, for two
/// completions of each tag, and for [`max_ops`](TagMatchingQueue::max_ops) operations, signaled or
/// not: the driver requests completions that polls do not report.
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
    // Dropped in this order.
    tags: TagList,
    command: Arc<QpInner>,
    srq: SharedReceiveQueue,
}

impl fmt::Debug for TagMatchingQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TagMatchingQueue")
            .field("srq", &self.srq)
            .field("tags", &self.tags)
            .finish_non_exhaustive()
    }
}

impl TagMatchingQueue {
    /// Posts a list of operations on the tag list (`ibv_post_srq_ops`). Operations before the first
    /// bad one are posted, with one doorbell. The error has the index of the bad operation and the
    /// reason. Each added tag gets its [`OpsWr::handle`].
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
        self.tags.post(std::slice::from_mut(&mut wr)).map_err(|refused| refused.error())?;
        Ok(OpsWr { operation: mlx5_wqe::tag_matching::TagOperation::Sync, ..wr })
    }

    /// Adds a tag, without a completion of its own. If `handled` is given, also reports to the
    /// device how many unexpected messages were handled.
    pub fn add(&mut self, add: TagAdd<'_>, handled: Option<u32>) -> Result<TagHandle, PostError> {
        let max = self.max_num_tags();
        let posted = self.post_one(OpsWr::add(0, add), handled)?;
        posted.handle.ok_or(PostError::TagListFull { max })
    }

    /// Removes a tag. The operation completes with `wr_id`. It fails with
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

    /// Reports to the device how many unexpected messages were handled. The operation has no
    /// completion of its own.
    pub fn sync(&mut self, handled: u32) -> Result<(), PostError> {
        self.post_one(OpsWr::sync(0, handled), None).map(drop)
    }

    /// Posts a list of receive requests (`ibv_post_srq_recv`), for messages that match no tag.
    /// Requests before the first bad one are posted.
    pub fn post_recv(&mut self, list: &[ReceiveWr<'_>]) -> Result<(), ListError> {
        self.srq.post_recv(list)
    }

    /// Posts one receive request with one buffer, for a message that matches no tag. See
    /// [`crate::QueuePair::recv`].
    pub fn recv(&mut self, wr_id: u64, sge: Sge) -> Result<(), PostError> {
        self.srq.recv(wr_id, sge)
    }

    /// Returns the maximum number of outstanding receive requests.
    pub fn capacity(&self) -> u32 {
        self.srq.capacity()
    }

    /// Returns the maximum number of tags on the list.
    pub fn max_num_tags(&self) -> u32 {
        self.tags.max_num_tags()
    }

    /// Returns the maximum number of outstanding operations.
    pub fn max_ops(&self) -> u32 {
        self.tags.max_ops()
    }

    /// Returns the maximum number of SGEs of a tag.
    pub fn max_tag_sge(&self) -> u32 {
        TagList::MAX_SGE
    }

    /// Returns the kernel's handle, for calls that this crate does not wrap, unless it was
    /// destroyed. See [`crate::Context::device_file`].
    pub fn kernel_handle(&self) -> Option<u32> {
        self.srq.kernel_handle()
    }

    /// Returns the number of the queue in the device.
    pub fn srqn(&self) -> u32 {
        self.srq.srqn()
    }

    /// Returns the identifier that events use.
    pub fn id(&self) -> SrqId {
        self.srq.id()
    }

    /// Returns the identifier that events use for the command queue pair.
    pub fn command_id(&self) -> QpId {
        self.command.id()
    }

    /// Returns the number of the command queue pair.
    pub fn command_qp_num(&self) -> u32 {
        self.command.qp_num
    }

    /// Requests one event when fewer than `limit` receive requests are left (`ibv_modify_srq`).
    pub fn set_limit(&mut self, limit: u32) -> Result<(), Error> {
        self.srq.set_limit(limit)
    }

    /// Queries the kernel (`ibv_query_srq`).
    pub fn query(&self) -> Result<SrqInfo, Error> {
        self.srq.query()
    }

    /// Returns a handle for operations while another thread posts to the queue.
    pub fn control(&self) -> SrqControl {
        SrqControl::new(&self.srq.inner, true)
    }

    /// Returns the parts that a queue pair needs to receive for this queue.
    fn attach(&self) -> Tags {
        Tags { srq: self.srq.take(), records: Arc::clone(self.tags.records()), device_sends: true }
    }

    /// Destroys the queue (`ibv_destroy_srq`). While queue pairs belong to it, or when the kernel
    /// refuses, it fails and returns the queue.
    pub fn destroy(mut self) -> Result<(), DestroyError<Self>> {
        match self.withdraw() {
            Ok(()) => Ok(()),
            Err(error) => Err(DestroyError::new(self, error)),
        }
    }

    /// Destroys the kernel's objects, and keeps the memory. See
    /// [`crate::SharedReceiveQueue::withdraw`].
    pub fn withdraw(&mut self) -> Result<(), Error> {
        // The queue pair for operations takes from it too.
        let busy = "queue pairs, or builders of some, still belong to it";
        self.srq.inner.withdraw(1, busy, || self.command.destroy())
    }
}

impl<'a> QueuePairBuilder<'a, Rc> {
    /// Receives messages for `queue`, which matches them with its tags. Default: none. They
    /// complete on the completion queue of `queue`, which must also be the receive completion queue
    /// of the queue pair.
    ///
    /// The queue pair has no send queue: the device uses it to fetch rendezvous data. With
    /// [`QueuePairBuilder::keep_send_queue`] it has one, and rendezvous is left to software.
    pub fn tm_srq(self, queue: &TagMatchingQueue) -> Self {
        self.tags(queue.attach())
    }
}
