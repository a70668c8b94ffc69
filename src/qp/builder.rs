//! Making queue pairs.

mod make;
mod pipelining;

use crate::cq::CompletionQueue;
use crate::memory::ProtectionDomain;
use crate::pools::{DoorbellChoice, QueueAllocator, ThreadDomain};
use crate::srq::{SharedReceiveQueue, SrqInner};
use mlx5_uapi::HugePages;
use mlx5_uapi::verbs::{QpCreateFlags, QpType};
use mlx5_wqe::SendOps;
use mlx5_wqe::tag_matching::TagRecords;
use mlx5_wqe::transport::{Rc, Transport, Uc, Ud, XrcSend};
use std::marker::PhantomData;
use std::sync::Arc;

/// A transport that queue pairs can be made for.
pub trait QueuePairTransport: Transport {
    /// The kernel's name for it.
    #[doc(hidden)]
    const QP_TYPE: QpType;
    /// Whether its queue pairs receive.
    #[doc(hidden)]
    const RECEIVES: bool = true;
}

impl QueuePairTransport for Rc {
    const QP_TYPE: QpType = QpType::Rc;
}
impl QueuePairTransport for Uc {
    const QP_TYPE: QpType = QpType::Uc;
}
impl QueuePairTransport for Ud {
    const QP_TYPE: QpType = QpType::Ud;
}
impl QueuePairTransport for XrcSend {
    const QP_TYPE: QpType = QpType::XrcIni;
    const RECEIVES: bool = false;
}

/// What a queue pair can hold, as it was granted: at least what was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct QueuePairCaps {
    /// Send requests of the largest size that fit at once.
    pub max_send_wr: u32,
    /// 64-byte blocks of the send queue; a request takes as many as it needs, most of them one.
    pub send_blocks: u32,
    /// Blocks that a send request of the largest size takes.
    pub max_wr_blocks: u32,
    /// Receive requests that fit at once.
    pub max_recv_wr: u32,
    /// Gather entries of a send request.
    pub max_send_sge: u32,
    /// Scatter entries of a receive request.
    pub max_recv_sge: u32,
    /// Bytes of inline data of a send request.
    pub max_inline_data: u32,
}

/// How a queue pair is to be made. See [`ProtectionDomain::create_qp`].
#[must_use = "a builder makes nothing until `build` is called"]
pub struct QueuePairBuilder<'a, T> {
    pd: &'a ProtectionDomain,
    send_cq: &'a CompletionQueue,
    recv_cq: &'a CompletionQueue,
    srq: Option<&'a SharedReceiveQueue>,
    tags: Option<Tags>,
    keep_send_queue: bool,
    max_send_wr: u32,
    max_recv_wr: u32,
    max_send_sge: u32,
    max_recv_sge: u32,
    max_inline_data: u32,
    signal_all: bool,
    doorbell: DoorbellChoice,
    huge_pages: HugePages,
    flags: QpCreateFlags,
    scatter_to_cqe: bool,
    /// Whether the device checks a signature of every request.
    wqe_signature: bool,
    /// Whether the send queue drains on signature errors.
    pub(super) pipelining: bool,
    /// Blocks of a request that configures a memory key; zero if the queue is not sized for any.
    pub(super) mkey_blocks: u32,
    send_ops: SendOps,
    domain: Option<ThreadDomain>,
    allocator: Option<Arc<dyn QueueAllocator>>,
    transport: PhantomData<T>,
}

impl ProtectionDomain {
    /// Starts to make a queue pair (`ibv_create_qp`). The completion queues may be one and the
    /// same.
    ///
    /// ```no_run
    /// # fn f(pd: &mlx5::ProtectionDomain, cq: &mlx5::CompletionQueue) -> Result<(), mlx5::Error> {
    /// let qp = pd
    ///     .create_qp::<mlx5::transport::Rc>(cq, cq)
    ///     .max_send_wr(128)
    ///     .max_inline_data(64)
    ///     .build()?;
    /// println!("queue pair {:#x} holds {:?}", qp.qp_num(), qp.caps());
    /// # Ok(())
    /// # }
    /// ```
    pub fn create_qp<'a, T: QueuePairTransport>(
        &'a self,
        send_cq: &'a CompletionQueue,
        recv_cq: &'a CompletionQueue,
    ) -> QueuePairBuilder<'a, T> {
        QueuePairBuilder {
            pd: self,
            send_cq,
            recv_cq,
            srq: None,
            tags: None,
            keep_send_queue: false,
            max_send_wr: 64,
            max_recv_wr: 64,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
            signal_all: false,
            doorbell: DoorbellChoice::Auto,
            huge_pages: HugePages::None,
            flags: QpCreateFlags::empty(),
            scatter_to_cqe: false,
            wqe_signature: false,
            pipelining: false,
            mkey_blocks: 0,
            send_ops: SendOps::empty(),
            domain: None,
            allocator: None,
            transport: PhantomData,
        }
    }
}

/// The queue with a list of tags that a queue pair belongs to.
pub(crate) struct Tags {
    pub(crate) srq: Arc<SrqInner>,
    pub(crate) records: Arc<TagRecords>,
    /// The device has the send side.
    pub(crate) device_sends: bool,
}

impl QueuePairBuilder<'_, Rc> {
    /// Keeps the send queue of a queue pair that takes messages for a
    /// [tag-matching queue](QueuePairBuilder::tm_srq).
    pub fn keep_send_queue(mut self) -> Self {
        self.keep_send_queue = true;
        self
    }

    /// Belongs to a queue with a list of tags.
    pub(crate) fn tags(mut self, tags: Tags) -> Self {
        self.tags = Some(tags);
        self
    }
}

impl<'a, T: QueuePairTransport> QueuePairBuilder<'a, T> {
    /// Send requests of the largest size to hold at once.
    pub fn max_send_wr(mut self, requests: u32) -> Self {
        self.max_send_wr = requests;
        self
    }

    /// Receive requests to hold at once; none, where a shared receive queue serves.
    pub fn max_recv_wr(mut self, requests: u32) -> Self {
        self.max_recv_wr = requests;
        self
    }

    /// Gather entries of a send request.
    pub fn max_send_sge(mut self, entries: u32) -> Self {
        self.max_send_sge = entries;
        self
    }

    /// Scatter entries of a receive request.
    pub fn max_recv_sge(mut self, entries: u32) -> Self {
        self.max_recv_sge = entries;
        self
    }

    /// Bytes of inline data of a send request.
    pub fn max_inline_data(mut self, bytes: u32) -> Self {
        self.max_inline_data = bytes;
        self
    }

    /// Takes receive requests from `srq`.
    pub fn srq(mut self, srq: &'a SharedReceiveQueue) -> Self {
        self.srq = Some(srq);
        self
    }

    /// Signals every send request, whatever its flags say (`sq_sig_all`).
    pub fn signal_all(mut self, all: bool) -> Self {
        self.signal_all = all;
        self
    }

    /// Has the device check a signature of every send request, which finds memory that went bad
    /// (`MLX5_QP_SIGNATURE`). Posting is slower then, and a cancelled request is signed anew.
    ///
    /// Send requests only: the device would look for a signature in requests of the queue pair's own
    /// receive queue, too. Which bytes that one covers is known from rdma-core's code alone, which
    /// counts entries that it leaves out. So the queue pair takes receives from a shared receive
    /// queue, whose requests have no signature, or takes none: `max_recv_wr(0)`.
    pub fn wqe_signature(mut self, check: bool) -> Self {
        self.wqe_signature = check;
        self
    }

    /// How the send doorbell is to be rung.
    pub fn doorbell(mut self, choice: DoorbellChoice) -> Self {
        self.doorbell = choice;
        self
    }

    /// Whether the rings are to be made of huge pages.
    pub fn huge_pages(mut self, huge_pages: HugePages) -> Self {
        self.huge_pages = huge_pages;
        self
    }

    /// Does not give multicast messages that are sent here to queue pairs of this device, where the
    /// device can tell.
    pub fn block_multicast_loopback(mut self, block: bool) -> Self {
        self.flags.set(QpCreateFlags::BLOCK_MULTICAST_LOOPBACK, block);
        self
    }

    /// Lets the device put what is short into the completion instead of the memory that the request
    /// names: messages received, and answers to signaled reads and atomics, of up to 32 bytes, or 64
    /// with [`CqeSize::Bytes128`](crate::CqeSize::Bytes128). It is found by
    /// [`WorkCompletion::inline_data`](crate::WorkCompletion::inline_data) there and nowhere else.
    /// Reliable connections only; others do as if it was not asked for.
    pub fn scatter_to_cqe(mut self, scatter: bool) -> Self {
        self.scatter_to_cqe = scatter;
        self
    }

    /// Operations that are going to be posted (`send_ops_flags`): making the queue pair fails if
    /// transport or device lacks one, and `max_send_wr` requests of each of them fit. What every
    /// queue pair of the transport can post without being asked is posted all the same.
    ///
    /// ```no_run
    /// # use mlx5::{CompletionQueue, Error, ProtectionDomain, SendOps, transport::Rc};
    /// # fn f(pd: &ProtectionDomain, cq: &CompletionQueue) -> Result<(), Error> {
    /// let ops = SendOps::RDMA_WRITE | SendOps::FETCH_ADD | SendOps::BIND_MW;
    /// let qp = pd.create_qp::<Rc>(cq, cq).send_ops(ops).build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn send_ops(mut self, ops: SendOps) -> Self {
        self.send_ops = ops;
        self
    }

    /// Rings the send doorbell on the register of `domain`.
    pub fn thread_domain(mut self, domain: &ThreadDomain) -> Self {
        self.domain = Some(domain.clone());
        self
    }

    /// Who gives the rings their memory.
    pub fn allocator(mut self, allocator: &Arc<dyn QueueAllocator>) -> Self {
        self.allocator = Some(Arc::clone(allocator));
        self
    }
}
