//! Making queue pairs.

use super::{ControlHalf, QpInner, QueuePair, ReceiveHalf, SendHalf, pipelining};
use crate::buffer::{QueueAllocator, QueueBuffer};
use crate::context::Watched;
use crate::cq::CompletionQueue;
use crate::error::{Error, ErrorKind};
use crate::pd::ProtectionDomain;
use crate::records::RecordSlot;
use crate::srq::{SharedReceiveQueue, SrqInner, TagMatchingQueue};
use crate::uar::{DoorbellChoice, ThreadDomain};
use crate::user_index::{QueuePairRecords, ReceiveSide};
use mlx5_doorbell::QueuePairRecord;
use mlx5_uapi::HugePages;
use mlx5_uapi::cmd::qp as command;
use mlx5_uapi::mlx5::{CreateQp, QpFlags};
use mlx5_uapi::verbs::{QpCap, QpCreateFlags, QpType};
use mlx5_wqe::tag_matching::TagRecords;
use mlx5_wqe::transport::{Rc, Transport, Uc, Ud, XrcSend};
use mlx5_wqe::{
    Gate, QueueState, ReceiveLayout, ReceiveQueue, ReceiveRecords, SendLayout, SendOps, SendParts,
    SendQueue, SendRecords,
};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

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

impl<'a> QueuePairBuilder<'a, Rc> {
    /// Takes messages for `queue`, which matches them with its tags. They complete on its completion
    /// queue, which has to be the one for receives here.
    ///
    /// The queue pair has no send queue: the device itself sends, to fetch the data of rendezvous.
    /// With [`QueuePairBuilder::keep_send_queue`] it has one, and rendezvous are left to software.
    pub fn tm_srq(mut self, queue: &'a TagMatchingQueue) -> Self {
        self.tags = Some(queue.attach());
        self
    }

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
    /// receive queue, too, and which bytes that one covers no document says. So the queue pair takes
    /// receives from a shared receive queue, which has none, or has none: `max_recv_wr(0)`.
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

    /// Refuses operations that are asked for and not there.
    fn check_ops(&self) -> Result<(), Error> {
        const VERB: &str = "create_qp";
        let lacks = |what: &str, ops: SendOps| {
            let names: Vec<_> = ops.iter_names().map(|(name, _)| name).collect();
            let cause = format!("{what} does not have {}", names.join(", "));
            Err(Error::new(VERB, ErrorKind::NotSupported, cause))
        };
        let missing = self.send_ops.difference(SendOps::of::<T>());
        if !missing.is_empty() {
            return lacks(T::NAME, missing);
        }
        let atomics = self.send_ops & SendOps::ATOMICS;
        if !atomics.is_empty() && !self.pd.context.has_atomics() {
            return lacks("the device", atomics);
        }
        Ok(())
    }

    fn layouts(&self) -> Result<(SendLayout, ReceiveLayout), Error> {
        const VERB: &str = "create_qp";
        let context = &&self.pd.context;
        let limits = &context.limits;
        let (sges, inline) = (self.max_send_sge, self.max_inline_data);
        let requests = self.max_send_wr;
        let layout = SendLayout::with_ops::<T>(requests, sges, inline, self.send_ops)
            .and_then(|layout| layout.holding(requests, self.mkey_blocks));
        let send = layout.filter(|layout| {
            layout.worst_blocks as usize * mlx5_prm::wqe::BLOCK
                <= usize::from(limits.max_sq_desc_sz)
                && layout.blocks <= limits.max_send_wqebb
        });
        let Some(send) = send else {
            let what = format!(
                "{} send requests with {sges} entries or {inline} bytes of inline data do not fit: \
                 a request has at most {} bytes, and the queue {} blocks of 64",
                self.max_send_wr, limits.max_sq_desc_sz, limits.max_send_wqebb
            );
            return Err(Error::invalid(VERB, what));
        };
        let shared = self.srq.is_some() || self.tags.is_some();
        let requests = if shared || !T::RECEIVES { 0 } else { self.max_recv_wr };
        let receive = ReceiveLayout::new(requests, self.max_recv_sge, 0).filter(|layout| {
            layout.requests <= limits.max_recv_wr
                && (layout.requests == 0 || layout.stride <= u32::from(limits.max_rq_desc_sz))
        });
        let Some(receive) = receive else {
            let what = format!(
                "{requests} receive requests with {} entries do not fit: the device takes {} \
                 requests of {} bytes",
                self.max_recv_sge, limits.max_recv_wr, limits.max_rq_desc_sz
            );
            return Err(Error::invalid(VERB, what));
        };
        Ok((send, receive))
    }

    /// Makes the queue pair, in state RESET.
    pub fn build(self) -> Result<QueuePair<T>, Error> {
        const VERB: &str = "create_qp";
        let context = &&self.pd.context;
        context.check(VERB)?;
        for cq in [self.send_cq, self.recv_cq] {
            if !Arc::ptr_eq(&cq.inner.context, context) {
                let what = "completion queue and protection domain belong to different contexts";
                return Err(Error::invalid(VERB, what.into()));
            }
        }
        if self.srq.is_some_and(|srq| !srq.belongs_to(context)) {
            let what = "shared receive queue and protection domain belong to different contexts";
            return Err(Error::invalid(VERB, what.into()));
        }
        if self.wqe_signature && self.srq.is_none() && self.max_recv_wr != 0 {
            let what = "a queue pair with signed requests has no receive queue of its own: give it \
                        a shared one, or `max_recv_wr(0)`";
            return Err(Error::invalid(VERB, what.into()));
        }
        if self.pipelining {
            pipelining::check(context)?;
        }
        if let Some(Tags { srq, .. }) = &self.tags {
            if !Arc::ptr_eq(srq.context(), context) {
                let what = "tag-matching queue and protection domain belong to different contexts";
                return Err(Error::invalid(VERB, what.into()));
            }
            if !srq.completes_on(&self.recv_cq.inner) {
                let what = "messages to a tag-matching queue complete on its own completion queue: \
                            receive there";
                return Err(Error::invalid(VERB, what.into()));
            }
            if self.srq.is_some() {
                let what = "a queue pair receives from one shared receive queue";
                return Err(Error::invalid(VERB, what.into()));
            }
        }
        let device_sends =
            !self.keep_send_queue && self.tags.as_ref().is_some_and(|tags| tags.device_sends);
        if (self.srq.is_some() || self.tags.is_some()) && !T::RECEIVES {
            let what = format!("{} queue pairs receive nothing", T::NAME);
            return Err(Error::invalid(VERB, what));
        }
        self.check_ops()?;
        let (send_layout, receive_layout) = self.layouts()?;
        let buffer = QueueBuffer::new(
            context,
            receive_layout.bytes() + send_layout.bytes(),
            self.huge_pages,
            self.allocator.as_ref(),
        )?;
        let slot = RecordSlot::new(context)?;
        let uar = match &self.domain {
            Some(domain) => domain.send_uar(context)?,
            None => context.acquire_send_uar(self.doorbell)?,
        };

        let receive_records = Arc::new(ReceiveRecords::new(receive_layout.requests));
        let receive_side = match self.srq {
            Some(srq) => ReceiveSide::Shared(srq.records()),
            None => ReceiveSide::Own(Arc::clone(&receive_records)),
        };
        let records = Arc::new(QueuePairRecords {
            send: SendRecords::new(send_layout.blocks),
            receive: receive_side,
            tags: self.tags.as_ref().map(|tags| Arc::clone(&tags.records)),
        });
        // Freed before, so that their indexes can be used again.
        self.send_cq.release_departures();
        self.recv_cq.release_departures();
        let rings = [self.send_cq.inner.ring_id(), self.recv_cq.inner.ring_id()];
        let Some(index) = context.user_indexes.register(records, rings) else {
            return Err(Error::invalid(VERB, "all user indexes are in use".into()));
        };
        let index = Arc::new(index);

        let mut driver_flags = QpFlags::UAR_PAGE_INDEX;
        driver_flags.set(QpFlags::SIGNATURE, self.wqe_signature);
        let scatter = QpFlags::SCATTER_CQE | QpFlags::ALLOW_SCATTER_CQE;
        driver_flags.set(scatter, self.scatter_to_cqe);
        let id = context.next_handle_id();
        let has_receive = receive_layout.requests != 0;
        let request = command::CreateQp {
            qp_type: T::QP_TYPE,
            pd: Some(self.pd.handle()),
            xrcd: None,
            send_cq: self.send_cq.inner.handle(),
            recv_cq: self.recv_cq.inner.handle().filter(|_| T::RECEIVES),
            srq: match &self.tags {
                Some(tags) => tags.srq.handle(),
                None => self.srq.and_then(SharedReceiveQueue::handle),
            },
            user_handle: id,
            cap: QpCap {
                max_send_wr: if device_sends { 0 } else { send_layout.worst_requests },
                max_recv_wr: receive_layout.requests,
                max_send_sge: send_layout.max_sge,
                max_recv_sge: receive_layout.max_sge,
                max_inline_data: send_layout.max_inline,
            },
            flags: if self.signal_all {
                self.flags | QpCreateFlags::SQ_SIG_ALL
            } else {
                self.flags
            },
            source_qpn: None,
            async_events: Some(context.async_fd()),
            driver: CreateQp {
                buf_addr: buffer.addr(),
                db_addr: slot.addr(),
                // Without one, the device has the send side.
                sq_wqe_count: if device_sends { 0 } else { send_layout.blocks },
                rq_wqe_count: receive_layout.requests,
                rq_wqe_shift: if has_receive { receive_layout.stride.trailing_zeros() } else { 0 },
                flags: driver_flags.bits(),
                uidx: index.get(),
                bfreg_index: uar.page_id(),
                ..CreateQp::default()
            },
        };
        // SAFETY: buffer and record are kept until the queue pair is destroyed, or for ever.
        let made = unsafe { command::create(&*context.file, &request) }
            .map_err(|errno| context.fail(VERB, errno))?;

        // SAFETY: the slot is kept as long as the queue pair; nothing else uses record and word.
        let (record, gate) =
            unsafe { (QueuePairRecord::new(slot.record()), Gate::new(slot.word())) };
        // SAFETY: the slot is kept as long as the queue pair; nothing else uses its second word.
        let send_gate = if device_sends { unsafe { Gate::shut(slot.second_word()) } } else { gate };
        let mode = uar.mode();
        let parts = SendParts {
            // SAFETY: the send ring follows the receive ring in the buffer.
            ring: unsafe { buffer.as_non_null().byte_add(receive_layout.bytes()) },
            layout: send_layout,
            qpn: made.qp_num,
            max_message: context.max_message(),
            signal_all: self.signal_all,
            atomics: context.has_atomics(),
            gate: send_gate,
            record,
            register: uar.register(),
            records: index.send_records(),
        };
        // SAFETY: the ring is so large, and page-aligned plus a multiple of 64; it lives as long as
        // `inner`, which the half keeps.
        let mut send = unsafe { SendQueue::new(parts) };
        if self.wqe_signature {
            send.sign_requests();
        }
        let receive = has_receive.then(|| {
            let ring = buffer.as_non_null();
            // SAFETY: as for the send ring.
            unsafe {
                ReceiveQueue::new(
                    ring,
                    receive_layout,
                    context.max_message(),
                    gate,
                    record,
                    receive_records,
                )
            }
        });
        let caps = QueuePairCaps {
            max_send_wr: if device_sends { 0 } else { send_layout.worst_requests },
            send_blocks: if device_sends { 0 } else { send_layout.blocks },
            max_wr_blocks: send_layout.worst_blocks,
            max_recv_wr: receive_layout.requests,
            max_send_sge: send_layout.max_sge,
            max_recv_sge: receive_layout.max_sge,
            max_inline_data: send_layout.max_inline,
        };
        let inner = Arc::new(QpInner {
            watch: context.watch(Watched::Queue(gate)),
            context: Arc::clone(context),
            handle: Mutex::new(Some(made.handle)),
            qp_num: made.qp_num,
            qp_type: T::QP_TYPE,
            id,
            caps,
            pipelining: self.pipelining,
            mode,
            gate,
            index,
            drains: Default::default(),
            memory: Mutex::new(Some((buffer, slot, uar))),
            send_cq: Arc::clone(&self.send_cq.inner),
            recv_cq: Arc::clone(&self.recv_cq.inner),
            srq: match self.tags {
                Some(tags) => Some(tags.srq),
                None => self.srq.map(SharedReceiveQueue::inner),
            },
            pd: self.pd.clone(),
        });
        Ok(QueuePair {
            send: SendHalf { queue: send, inner: Arc::clone(&inner) },
            receive: receive.map(|queue| ReceiveHalf { queue, inner: Arc::clone(&inner) }),
            control: ControlHalf { inner, state: QueueState::Reset },
            was_reset: false,
        })
    }
}
