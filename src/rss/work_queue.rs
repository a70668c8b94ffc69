//! Receive work queues.

use crate::context::Inner;
use crate::cq::{CompletionQueue, CqInner};
use crate::error::{DestroyError, Error, ErrorKind};
use crate::link::{WatchId, Watched, WqId};
use crate::memory::ProtectionDomain;
use crate::pools::{
    MemorySource, QueueBuffer, QueuePairRecords, ReceiveSide, RecordSlot, UserIndex, memory_options,
};
use mlx5_cq::UserTag;
use mlx5_doorbell::QueuePairRecord;
use mlx5_uapi::cmd::wq as command;
use mlx5_uapi::mlx5::CreateWq;
use mlx5_uapi::verbs::{RawPacketCaps, WqFlags, WqState};
use mlx5_wqe::{
    Gate, ListError, PostError, QueueState, ReceiveLayout, ReceiveQueue, ReceiveRecords, ReceiveWr,
    SendRecords, Sge,
};
use std::borrow::Borrow;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// The options of a new work queue. See [`ProtectionDomain::create_wq`].
#[must_use = "a builder makes nothing until `build` is called"]
pub struct WorkQueueBuilder<'a> {
    pd: &'a ProtectionDomain,
    cq: &'a CompletionQueue,
    max_wr: u32,
    max_sge: u32,
    flags: WqFlags,
    memory: MemorySource,
    user_tag: u64,
}

impl fmt::Debug for WorkQueueBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkQueueBuilder")
            .field("max_wr", &self.max_wr)
            .field("max_sge", &self.max_sge)
            .field("flags", &self.flags)
            .finish_non_exhaustive()
    }
}

impl ProtectionDomain {
    /// Starts building a receive work queue (`ibv_create_wq`), whose receives complete on `cq`. It
    /// needs no capability of the process.
    pub fn create_wq<'a>(&'a self, cq: &'a CompletionQueue) -> WorkQueueBuilder<'a> {
        WorkQueueBuilder {
            pd: self,
            cq,
            max_wr: 64,
            max_sge: 1,
            flags: WqFlags::empty(),
            memory: MemorySource::default(),
            user_tag: 0,
        }
    }
}

impl WorkQueueBuilder<'_> {
    /// Number of receive requests to hold. Default: 64. 0 counts as 1. Rounded up to a power of two.
    /// `build` refuses more than
    /// [`QueueLimits::max_recv_wr`](crate::QueueLimits::max_recv_wr).
    pub fn max_wr(mut self, requests: u32) -> Self {
        self.max_wr = requests;
        self
    }

    /// Maximum number of SGEs of a request. Default: 1. 0 counts as 1. Rounded up to a power of two.
    pub fn max_sge(mut self, entries: u32) -> Self {
        self.max_sge = entries;
        self
    }

    /// Strips the VLAN tag from received packets; the completion has it
    /// ([`WorkCompletion::vlan`](crate::WorkCompletion::vlan)). Default: false. `build` refuses it on
    /// a device that lacks it.
    pub fn vlan_stripping(mut self, strip: bool) -> Self {
        self.flags.set(WqFlags::CVLAN_STRIPPING, strip);
        self
    }

    /// Receives packets with their frame check sequence, four bytes that count in their length.
    /// Default: false. `build` refuses it on a device that lacks it.
    pub fn scatter_fcs(mut self, scatter: bool) -> Self {
        self.flags.set(WqFlags::SCATTER_FCS, scatter);
        self
    }

    /// Lets packets wait for a while if no receive is posted, instead of dropping them. Default:
    /// false. `build` refuses it on a device that lacks it.
    pub fn delay_drop(mut self, delay: bool) -> Self {
        self.flags.set(WqFlags::DELAY_DROP, delay);
        self
    }

    /// The tag that every completion of the queue tells
    /// ([`WorkCompletion::user_tag`](crate::WorkCompletion::user_tag)). Default: 0.
    pub fn user_tag(mut self, tag: u64) -> Self {
        self.user_tag = tag;
        self
    }

    memory_options!("the ring", memory);

    fn check(&self) -> Result<ReceiveLayout, Error> {
        let context = &self.pd.context;
        if !Arc::ptr_eq(&self.cq.inner.context, context) {
            let what = "completion queue and protection domain belong to different contexts";
            return Err(Error::invalid(CREATE, what.into()));
        }
        let caps = RawPacketCaps::from_bits_retain(context.caps.device.raw_packet_caps);
        for (flag, cap, what) in [
            (WqFlags::CVLAN_STRIPPING, RawPacketCaps::CVLAN_STRIPPING, "cannot strip VLAN tags"),
            (
                WqFlags::SCATTER_FCS,
                RawPacketCaps::SCATTER_FCS,
                "does not hand out the frame check sequence",
            ),
            (WqFlags::DELAY_DROP, RawPacketCaps::DELAY_DROP, "drops packets without a receive"),
        ] {
            if self.flags.contains(flag) && !caps.contains(cap) {
                let cause = format!("the device {what}");
                return Err(Error::new(CREATE, ErrorKind::NotSupported, cause));
            }
        }
        let limits = &context.limits;
        let layout = ReceiveLayout::new(self.max_wr.max(1), self.max_sge, 0).filter(|layout| {
            layout.requests <= limits.max_recv_wr
                && layout.stride <= u32::from(limits.max_rq_desc_sz)
        });
        layout.ok_or_else(|| {
            let what = format!(
                "{} receive requests with {} entries do not fit: the device supports {} requests \
                 of {} bytes",
                self.max_wr, self.max_sge, limits.max_recv_wr, limits.max_rq_desc_sz
            );
            Error::invalid(CREATE, what)
        })
    }

    /// Creates the queue. It receives once it is [started](WorkQueue::start).
    pub fn build(self) -> Result<WorkQueue, Error> {
        let context = &self.pd.context;
        context.check(CREATE)?;
        let layout = self.check()?;
        let buffer = QueueBuffer::new(&context.buffers, layout.bytes(), &self.memory)?;
        let slot = RecordSlot::new(&context.records)?;
        let records = Arc::new(ReceiveRecords::new(layout.requests));
        let known = QueuePairRecords {
            send: SendRecords::new(1),
            receive: ReceiveSide::Own(Arc::clone(&records)),
            tags: None,
            user_tag: UserTag::new(self.user_tag),
        };
        // Frees destroyed queues that were passed, so that their user indexes can be used again.
        self.cq.release_deferred();
        let rings = [self.cq.inner.ring_id(); 2];
        let Some(index) = context.user_indexes.register(Arc::new(known), rings) else {
            return Err(Error::invalid(CREATE, "all user indexes are in use".into()));
        };
        let cq = self.cq.inner.handle();
        let cq = cq.ok_or_else(|| Error::invalid(CREATE, "the completion queue is gone".into()))?;
        let id = context.next_handle_id();
        let request = command::CreateWq {
            pd: self.pd.handle(),
            cq,
            user_handle: id,
            max_wr: layout.requests,
            max_sge: layout.max_sge,
            flags: self.flags,
            async_events: Some(context.async_fd()),
            driver: CreateWq {
                buf_addr: buffer.addr(),
                db_addr: slot.addr(),
                rq_wqe_count: layout.requests,
                rq_wqe_shift: layout.stride.trailing_zeros(),
                user_index: index.get(),
                ..CreateWq::default()
            },
        };
        // SAFETY: buffer and record are kept until the queue is destroyed, or the file closed.
        let made = match unsafe { command::create(&*context.file, &request) } {
            Ok(made) => made,
            Err(errno) => {
                let error = context.fail(CREATE, errno);
                if error.in_doubt() {
                    buffer.keep();
                    slot.keep();
                }
                return Err(error);
            }
        };
        // SAFETY: the slot is kept as long as the queue, and nothing else uses its record and word.
        let (record, gate) =
            unsafe { (QueuePairRecord::new(slot.record()), Gate::new(slot.word())) };
        // SAFETY: the ring has the size of the layout and is page-aligned; it lives as long as
        // `inner`, which the queue keeps.
        let queue = unsafe {
            let ring = buffer.as_non_null();
            ReceiveQueue::new(ring, layout, context.max_message(), gate, record, records)
        };
        let inner = Arc::new(WqInner {
            watch: context.watch(Watched::Queue(gate)),
            context: Arc::clone(context),
            handle: Mutex::new(Some(made.handle)),
            number: made.wq_num,
            id,
            gate,
            index: Arc::new(index),
            memory: Mutex::new(Some((buffer, slot))),
            cq: Arc::clone(&self.cq.inner),
            _pd: self.pd.clone(),
        });
        Ok(WorkQueue { queue, inner, state: WqState::Reset })
    }
}

const CREATE: &str = "create_wq";

/// The part of a work queue that tables keep alive.
pub(super) struct WqInner {
    pub(super) context: Arc<Inner>,
    handle: Mutex<Option<u32>>,
    number: u32,
    id: u64,
    gate: Gate,
    index: Arc<UserIndex>,
    memory: Mutex<Option<(QueueBuffer, RecordSlot)>>,
    cq: Arc<CqInner>,
    _pd: ProtectionDomain,
    watch: WatchId,
}

impl WqInner {
    /// The kernel's handle, for a call.
    pub(super) fn live(&self, verb: &'static str) -> Result<u32, Error> {
        let handle = *self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        handle.ok_or_else(|| Error::invalid(verb, "the work queue was destroyed".into()))
    }

    fn destroy(&self) -> Result<(), Error> {
        let mut handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(live) = *handle else { return Ok(()) };
        let state = self.gate.state();
        self.gate.set_state(QueueState::Reset);
        if let Err(error) =
            self.context.run_destroy("destroy_wq", |file| command::destroy(file, live).map(drop))
        {
            if let Some(state) = state {
                self.gate.set_state(state);
            }
            return Err(error);
        }
        *handle = None;
        // Before and after, as for a queue pair.
        self.cq.depart(&self.index);
        self.index.depart();
        self.cq.depart(&self.index);
        Ok(())
    }
}

impl Drop for WqInner {
    fn drop(&mut self) {
        let destroyed = self.destroy().is_ok();
        self.context.unwatch(self.watch);
        let memory = self.memory.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let (false, Some((buffer, slot))) = (destroyed, memory) {
            // The device may still use them, and completions may still name the queue.
            buffer.keep();
            slot.keep();
            let index = Arc::clone(&self.index);
            self.context.keep_records(index);
        }
    }
}

/// A receive work queue (`struct ibv_wq`). It gets packets through an
/// [`IndirectionTable`](crate::IndirectionTable).
///
/// ```no_run
/// # use mlx5::{Context, Error, HashKey, ProtectionDomain, RxHashFields};
/// # fn f(context: &Context, pd: &ProtectionDomain) -> Result<(), Error> {
/// let cqs = (0..4).map(|_| context.create_cq(256).build()).collect::<Result<Vec<_>, _>>()?;
/// let mut queues = cqs
///     .iter()
///     .zip(0..)
///     .map(|(cq, tag)| pd.create_wq(cq).max_wr(256).user_tag(tag).build())
///     .collect::<Result<Vec<_>, _>>()?;
/// for queue in &mut queues {
///     queue.start()?;
/// }
/// let table = context.create_indirection_table(&queues)?;
/// let fields = RxHashFields::SRC_IPV4 | RxHashFields::DST_IPV4;
/// let qp = pd.create_hash_qp(&table).fields(fields).key(HashKey::default()).build()?;
/// # let _ = qp;
/// # Ok(())
/// # }
/// ```
pub struct WorkQueue {
    queue: ReceiveQueue,
    pub(super) inner: Arc<WqInner>,
    state: WqState,
}

impl fmt::Debug for WorkQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkQueue")
            .field("wq_num", &format_args!("{:#x}", self.inner.number))
            .field("state", &self.state)
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}

impl WorkQueue {
    /// Lets the queue receive, from its state after it was created. Receives can be posted then.
    pub fn start(&mut self) -> Result<(), Error> {
        self.modify(WqState::Ready, QueueState::Init)
    }

    /// Moves the queue to the error state: the device completes every request that is posted, or
    /// will be, with [`CompletionError::is_flushed`](crate::CompletionError::is_flushed).
    pub fn to_error(&mut self) -> Result<(), Error> {
        self.modify(WqState::Error, QueueState::Error)
    }

    fn modify(&mut self, to: WqState, gate: QueueState) -> Result<(), Error> {
        const VERB: &str = "modify_wq";
        let from = self.state;
        let exists = matches!(
            (from, to),
            (WqState::Reset, WqState::Ready) | (WqState::Reset | WqState::Ready, WqState::Error)
        );
        if !exists {
            let what =
                format!("a work queue does not go from {from:?} to {to:?}: create a new one");
            return Err(Error::invalid(VERB, what));
        }
        let inner = &self.inner;
        inner.context.check(VERB)?;
        let handle = inner.live(VERB)?;
        inner.context.run(VERB, |file| command::modify(file, handle, Some((from, to)), None))?;
        self.state = to;
        inner.gate.set_state(gate);
        Ok(())
    }

    /// Posts one receive request with one buffer.
    #[inline(always)]
    pub fn recv(&mut self, wr_id: u64, sge: Sge) -> Result<(), PostError> {
        self.queue.recv(wr_id, sge)
    }

    /// Posts a list of receive requests. Requests before the first bad one are posted.
    #[inline(always)]
    pub fn post_recv(&mut self, list: &[ReceiveWr<'_>]) -> Result<(), ListError> {
        self.queue.post_recv(list)
    }

    /// Posts the receive requests that an iterator yields. See
    /// [`QueuePair::post_recv_iter`](crate::QueuePair::post_recv_iter).
    #[inline]
    pub fn post_recv_iter<'a, W: Borrow<ReceiveWr<'a>>>(
        &mut self,
        requests: impl IntoIterator<Item = W>,
    ) -> Result<usize, ListError> {
        self.queue.post_recv_iter(requests)
    }

    /// Returns how many receive requests can be posted now.
    pub fn free(&self) -> u32 {
        self.queue.free()
    }

    /// Number of receive requests that fit.
    pub fn capacity(&self) -> u32 {
        self.queue.layout().requests
    }

    /// Maximum number of SGEs of a receive request.
    pub fn max_sge(&self) -> u32 {
        self.queue.layout().max_sge
    }

    /// Returns the state that was last set.
    pub fn state(&self) -> WqState {
        self.state
    }

    /// Number of the queue in the device.
    pub fn wq_num(&self) -> u32 {
        self.inner.number
    }

    /// Returns the identifier that events use.
    pub fn id(&self) -> WqId {
        WqId(self.inner.id)
    }

    /// Returns the tag that completions tell.
    pub fn user_tag(&self) -> u64 {
        self.inner.index.user_tag().get()
    }

    /// Sets the tag that completions tell. See
    /// [`QueuePair::set_user_tag`](crate::QueuePair::set_user_tag).
    pub fn set_user_tag(&self, tag: u64) {
        self.inner.index.user_tag().set(tag);
    }

    /// The kernel's handle, for calls that this crate does not wrap, unless it was destroyed. See
    /// [`crate::Context::device_file`].
    pub fn kernel_handle(&self) -> Option<u32> {
        self.inner.live(CREATE).ok()
    }

    /// Destroys the queue (`ibv_destroy_wq`). If the kernel refuses, because a table has it, the
    /// queue is returned with the error.
    pub fn destroy(self) -> Result<(), DestroyError<Self>> {
        match self.inner.destroy() {
            Ok(()) => Ok(()),
            Err(error) => Err(DestroyError::new(self, error)),
        }
    }
}
