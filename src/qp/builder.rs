//! The builder of queue pairs.

mod make;
mod packet;
mod pipelining;

use crate::cq::{CompletionQueue, CompletionTarget};
use crate::error::Error;
use crate::memory::ProtectionDomain;
use crate::pools::{DoorbellChoice, MemorySource, ThreadDomain, memory_options};
use crate::srq::{SharedReceiveQueue, SrqControl, Taken};
use mlx5_uapi::verbs::{QpCreateFlags, QpType};
use mlx5_wqe::SendOps;
use mlx5_wqe::tag_matching::TagRecords;
use mlx5_wqe::transport::{RawPacket, Rc, Transport, Uc, Ud, XrcSend};
use packet::PacketOptions;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// A transport for which queue pairs can be created.
pub trait QueuePairTransport: Transport {
    /// The kernel's number of the transport.
    #[doc(hidden)]
    const QP_TYPE: QpType;
    /// Whether its queue pairs receive.
    #[doc(hidden)]
    const RECEIVES: bool = true;
    /// Whether send and receive queue are objects of their own, in separate pages.
    #[doc(hidden)]
    const SEPARATE: bool = false;
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
impl QueuePairTransport for RawPacket {
    const QP_TYPE: QpType = QpType::RawPacket;
    const SEPARATE: bool = true;
}
impl QueuePairTransport for XrcSend {
    const QP_TYPE: QpType = QpType::XrcIni;
    const RECEIVES: bool = false;
}

/// The sizes of a queue pair, as created: at least those requested.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct QueuePairCaps {
    /// Number of send requests of the largest size that fit.
    pub max_send_wr: u32,
    /// 64-byte blocks of the send queue. Most requests take one.
    pub send_blocks: u32,
    /// Blocks of a send request of the largest size.
    pub max_wr_blocks: u32,
    /// Number of receive requests that fit.
    pub max_recv_wr: u32,
    /// Maximum number of SGEs of a send request.
    pub max_send_sge: u32,
    /// Maximum number of SGEs of a receive request.
    pub max_recv_sge: u32,
    /// Maximum number of bytes of inline data of a send request.
    pub max_inline_data: u32,
}

/// The options of a new queue pair. See [`ProtectionDomain::create_qp`].
#[must_use = "a builder makes nothing until `build` is called"]
pub struct QueuePairBuilder<'a, T> {
    pd: &'a ProtectionDomain,
    send_cq: CompletionTarget,
    recv_cq: CompletionTarget,
    srq: Option<Taken>,
    tags: Option<Tags>,
    keep_send_queue: bool,
    max_send_wr: u32,
    max_recv_wr: u32,
    max_send_sge: u32,
    max_recv_sge: u32,
    max_inline_data: u32,
    signal_all: bool,
    doorbell: DoorbellChoice,
    memory: MemorySource,
    flags: QpCreateFlags,
    packet: PacketOptions,
    scatter_to_cqe: bool,
    /// Whether the device checks a signature of every request.
    wqe_signature: bool,
    /// Whether the send queue drains on signature errors.
    pub(super) pipelining: bool,
    /// Blocks of a request that configures a memory key; zero if the queue is not sized for any.
    pub(super) mkey_blocks: u32,
    send_ops: SendOps,
    domain: Option<ThreadDomain>,
    user_tag: u64,
    transport: PhantomData<T>,
}

impl<T: QueuePairTransport> fmt::Debug for QueuePairBuilder<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePairBuilder")
            .field("transport", &format_args!("{}", T::NAME))
            .field("max_send_wr", &self.max_send_wr)
            .field("max_recv_wr", &self.max_recv_wr)
            .field("max_send_sge", &self.max_send_sge)
            .field("max_recv_sge", &self.max_recv_sge)
            .field("max_inline_data", &self.max_inline_data)
            .field("signal_all", &self.signal_all)
            .field("send_ops", &self.send_ops)
            .finish_non_exhaustive()
    }
}

impl ProtectionDomain {
    /// Starts building a queue pair (`ibv_create_qp`). Both completion queues may be the same.
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
    pub fn create_qp<T: QueuePairTransport>(
        &self,
        send_cq: &CompletionQueue,
        recv_cq: &CompletionQueue,
    ) -> QueuePairBuilder<'_, T> {
        self.create_qp_on(send_cq.target(), recv_cq.target())
    }

    /// Like [`ProtectionDomain::create_qp`], for completion queues that other threads may poll
    /// meanwhile.
    pub fn create_qp_on<T: QueuePairTransport>(
        &self,
        send_cq: CompletionTarget,
        recv_cq: CompletionTarget,
    ) -> QueuePairBuilder<'_, T> {
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
            memory: MemorySource::default(),
            flags: QpCreateFlags::empty(),
            packet: PacketOptions::default(),
            scatter_to_cqe: false,
            wqe_signature: false,
            pipelining: false,
            mkey_blocks: 0,
            send_ops: SendOps::empty(),
            domain: None,
            user_tag: 0,
            transport: PhantomData,
        }
    }
}

/// The tag-matching queue that a queue pair belongs to.
pub(crate) struct Tags {
    pub(crate) srq: Taken,
    pub(crate) records: Arc<TagRecords>,
    /// Whether the device uses the send queue.
    pub(crate) device_sends: bool,
}

impl QueuePairBuilder<'_, Rc> {
    /// Keeps the send queue usable in a queue pair that receives for a [tag-matching
    /// queue](QueuePairBuilder::tm_srq). By default the device uses the send queue for rendezvous
    /// data, if the tag-matching queue supports rendezvous.
    pub fn keep_send_queue(mut self) -> Self {
        self.keep_send_queue = true;
        self
    }

    /// Makes the queue pair receive for a queue with a tag list.
    pub(crate) fn tags(mut self, tags: Tags) -> Self {
        self.tags = Some(tags);
        self
    }
}

impl<'a, T: QueuePairTransport> QueuePairBuilder<'a, T> {
    /// Number of send requests of the largest size that the queue holds. Default: 64. Zero counts
    /// as one. Rounded up to what fits into a power of two of 64-byte blocks: see
    /// [`QueuePairCaps`]. `build` refuses more blocks than
    /// [`QueueLimits::max_send_wqebb`](crate::QueueLimits::max_send_wqebb).
    pub fn max_send_wr(mut self, requests: u32) -> Self {
        self.max_send_wr = requests;
        self
    }

    /// Number of receive requests that the queue holds. Default: 64. With 0 the queue pair has no
    /// receive queue. Rounded up to a power of two. `build` refuses more than
    /// [`QueueLimits::max_recv_wr`](crate::QueueLimits::max_recv_wr). Ignored with a shared receive
    /// queue, and for transports that do not receive.
    pub fn max_recv_wr(mut self, requests: u32) -> Self {
        self.max_recv_wr = requests;
        self
    }

    /// Maximum number of SGEs of a send request. Default: 1. Rounded up to what fits: see
    /// [`QueuePairCaps`]. `build` refuses more than fit into a request of
    /// [`QueueLimits::max_sq_desc_sz`](crate::QueueLimits::max_sq_desc_sz) bytes.
    pub fn max_send_sge(mut self, entries: u32) -> Self {
        self.max_send_sge = entries;
        self
    }

    /// Maximum number of SGEs of a receive request. Default: 1. 0 counts as 1. Rounded up to a
    /// power of two. `build` refuses more than fit into a request of
    /// [`QueueLimits::max_rq_desc_sz`](crate::QueueLimits::max_rq_desc_sz) bytes.
    pub fn max_recv_sge(mut self, entries: u32) -> Self {
        self.max_recv_sge = entries;
        self
    }

    /// Maximum number of bytes of inline data of a send request. Default: 0. Rounded up to what
    /// fits: see [`QueuePairCaps`]. `build` refuses more than fit into a request of
    /// [`QueueLimits::max_sq_desc_sz`](crate::QueueLimits::max_sq_desc_sz) bytes.
    pub fn max_inline_data(mut self, bytes: u32) -> Self {
        self.max_inline_data = bytes;
        self
    }

    /// Receives from `srq`, which cannot be destroyed while the builder or its queue pair exists.
    /// Default: the queue pair has a receive queue of its own. `build` refuses a queue of another
    /// context, a transport that does not receive, and a [tag-matching
    /// queue](QueuePairBuilder::tm_srq) besides.
    pub fn srq(mut self, srq: &SharedReceiveQueue) -> Self {
        self.srq = Some(srq.take());
        self
    }

    /// Like [`QueuePairBuilder::srq`], for a thread that does not own the queue because another one
    /// posts to it. Fails if the queue was destroyed, or has tags.
    pub fn srq_of(mut self, control: &SrqControl) -> Result<Self, Error> {
        self.srq = Some(control.take()?);
        Ok(self)
    }

    /// Signals every send request, whatever its flags (`sq_sig_all`). Default: false.
    pub fn signal_all(mut self, all: bool) -> Self {
        self.signal_all = all;
        self
    }

    /// Makes the device check a signature of every send request, to detect corrupted memory
    /// (`MLX5_QP_SIGNATURE`). Default: false. Posting is slower then, and a cancel also recomputes
    /// signatures.
    ///
    /// Covers send requests only. The device would also expect signatures in the requests of the
    /// queue pair's own receive queue. Which bytes those cover is known only from rdma-core's code,
    /// which counts entries that it does not write. So the queue pair must use a shared receive
    /// queue, whose requests have no signature, or receive nothing: `max_recv_wr(0)`. `build`
    /// refuses anything else.
    pub fn wqe_signature(mut self, check: bool) -> Self {
        self.wqe_signature = check;
        self
    }

    /// Selects the way in which the send doorbell is rung. Default: [`DoorbellChoice::Auto`].
    /// `build` fails if the mode is not available: see [`DoorbellChoice`]. Ignored with
    /// [`thread_domain`](Self::thread_domain).
    pub fn doorbell(mut self, choice: DoorbellChoice) -> Self {
        self.doorbell = choice;
        self
    }

    memory_options!("the rings", memory);

    /// Blocks multicast messages that this queue pair sends from queue pairs of the same device.
    /// Default: false. The kernel refuses it on a device that lacks it.
    pub fn block_multicast_loopback(mut self, block: bool) -> Self {
        self.flags.set(QpCreateFlags::BLOCK_MULTICAST_LOOPBACK, block);
        self
    }

    /// Lets the device put short data into the CQE instead of the memory of the request: received
    /// messages, and results of signaled reads and atomics, of up to 32 bytes, or 64 with
    /// [`CqeSize::Bytes128`](crate::CqeSize::Bytes128). Such data is available only through
    /// [`WorkCompletion::inline_data`](crate::WorkCompletion::inline_data). Default: false. For
    /// reliable connections only: ignored on other transports, and on a device that lacks it.
    pub fn scatter_to_cqe(mut self, scatter: bool) -> Self {
        self.scatter_to_cqe = scatter;
        self
    }

    /// Operations that the program will post (`send_ops_flags`). `build` fails if the transport or
    /// the device lacks one of them. The queue has room for `max_send_wr` requests of each.
    /// Default: none. Other operations that every queue pair of the transport supports can still be
    /// posted.
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

    /// The tag that every completion of the queue pair carries
    /// ([`WorkCompletion::user_tag`](crate::WorkCompletion::user_tag)), for example the index of a
    /// connection. Default: 0. [`QueuePair::set_user_tag`](crate::QueuePair::set_user_tag) changes
    /// it.
    pub fn user_tag(mut self, tag: u64) -> Self {
        self.user_tag = tag;
        self
    }

    /// Rings the send doorbell on the register of `domain`. Default: a register chosen by
    /// [`doorbell`](Self::doorbell). `build` refuses a domain of another context.
    pub fn thread_domain(mut self, domain: &ThreadDomain) -> Self {
        self.domain = Some(domain.clone());
        self
    }
}
