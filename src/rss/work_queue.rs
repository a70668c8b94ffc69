//! Receive work queues.

use crate::context::{EthernetCaps, Inner};
use crate::cq::{CompletionQueue, CompletionTarget, CqInner};
use crate::error::{DestroyError, Error, ErrorKind, RAW_PACKETS};
use crate::link::{WatchId, Watched, WqId};
use crate::memory::ProtectionDomain;
use crate::pools::{
    MemorySource, QueueBuffer, QueuePairRecords, RawRing, ReceiveSide, RecordSlot, UserIndex,
    memory_options,
};
use mlx5_cq::UserTag;
use mlx5_doorbell::QueuePairRecord;
use mlx5_prm::wqe::SrqNextSegment;
use mlx5_uapi::cmd::wq as command;
use mlx5_uapi::mlx5::{CreateWq, CreateWqMask};
use mlx5_uapi::verbs::{RawPacketCaps, WqFlags, WqState};
use mlx5_wqe::{
    Gate, ListError, PostError, QueueState, ReceiveLayout, ReceiveQueue, ReceiveWr, SendRecords,
    Sge, StridingRecords,
};
use std::borrow::Borrow;
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The options of a new work queue. See [`ProtectionDomain::create_wq`].
#[must_use = "a builder makes nothing until `build` is called"]
pub struct WorkQueueBuilder<'a> {
    pd: &'a ProtectionDomain,
    cq: CompletionTarget,
    max_wr: u32,
    max_sge: u32,
    flags: WqFlags,
    striding: Option<Striding>,
    memory: MemorySource,
    user_tag: u64,
}

/// The strides by which packets share the requests of a work queue.
#[derive(Clone, Copy, Debug)]
struct Striding {
    /// Size of a stride in bytes.
    stride: u32,
    /// Number of strides of a request.
    strides: u32,
}

impl fmt::Debug for WorkQueueBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkQueueBuilder")
            .field("max_wr", &self.max_wr)
            .field("max_sge", &self.max_sge)
            .field("flags", &self.flags)
            .field("striding", &self.striding)
            .finish_non_exhaustive()
    }
}

impl ProtectionDomain {
    /// Starts building a receive work queue (`ibv_create_wq`), whose receives complete on `cq`. It
    /// needs no capability of the process.
    pub fn create_wq(&self, cq: &CompletionQueue) -> WorkQueueBuilder<'_> {
        self.create_wq_on(cq.target())
    }

    /// Like [`ProtectionDomain::create_wq`], for a completion queue that another thread may poll
    /// meanwhile.
    pub fn create_wq_on(&self, cq: CompletionTarget) -> WorkQueueBuilder<'_> {
        WorkQueueBuilder {
            pd: self,
            cq,
            max_wr: 64,
            max_sge: 1,
            flags: WqFlags::empty(),
            striding: None,
            memory: MemorySource::default(),
            user_tag: 0,
        }
    }
}

impl WorkQueueBuilder<'_> {
    /// Number of receive requests that the queue holds. Default: 64. 0 counts as 1. Rounded up to a
    /// power of two. `build` refuses more than
    /// [`QueueLimits::max_recv_wr`](crate::QueueLimits::max_recv_wr).
    pub fn max_wr(mut self, requests: u32) -> Self {
        self.max_wr = requests;
        self
    }

    /// Maximum number of SGEs of a request. Default: 1. 0 counts as 1. Rounded up to a power of
    /// two.
    pub fn max_sge(mut self, entries: u32) -> Self {
        self.max_sge = entries;
        self
    }

    /// Removes the VLAN tag from received packets; the completion has it
    /// ([`WorkCompletion::vlan`](crate::WorkCompletion::vlan)). Default: false. `build` refuses it
    /// on a device that lacks it.
    pub fn vlan_stripping(mut self, strip: bool) -> Self {
        self.flags.set(WqFlags::CVLAN_STRIPPING, strip);
        self
    }

    /// Receives packets with their frame check sequence, four bytes that count toward their length.
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

    /// Pads the device's writes to a whole cache line. Default: false. The kernel refuses it on a
    /// device that lacks it.
    pub fn end_padding(mut self, pad: bool) -> Self {
        self.flags.set(WqFlags::PCI_WRITE_END_PADDING, pad);
        self
    }

    /// Lets several packets share a request (`mlx5dv_create_wq`): each takes as many strides of its
    /// memory as it needs, one after the other, and none crosses the end. `stride` is the size of a
    /// stride in bytes, `strides` their number: powers of two, within
    /// [`EthernetCaps::striding`](field@crate::EthernetCaps::striding). Default: every packet has a
    /// request of its own.
    ///
    /// A request has `stride * strides` bytes, at least
    /// [`StridingCaps::least`](crate::StridingCaps::least); every device accepts 512 strides of 64
    /// bytes. A packet that does not fit into the request's memory completes with an error.
    ///
    /// Each packet has a completion, with the identifier of the request, and
    /// [`WorkCompletion::strides`](crate::WorkCompletion::strides) returns the packet's position.
    /// The device is done with the request once completions, with or without an error, have taken
    /// all of its strides; or after an error with which the queue stops receiving
    /// ([`CompletionError::stops_receives`](crate::CompletionError::stops_receives)).
    pub fn striding(mut self, stride: u32, strides: u32) -> Self {
        self.striding = Some(Striding { stride, strides });
        self
    }

    /// The tag that every completion of the queue carries
    /// ([`WorkCompletion::user_tag`](crate::WorkCompletion::user_tag)). Default: 0.
    pub fn user_tag(mut self, tag: u64) -> Self {
        self.user_tag = tag;
        self
    }

    memory_options!("the ring", memory);

    /// Returns the number of bytes before the scatter entries of a request.
    fn check_strides(&self) -> Result<u32, Error> {
        let Some(Striding { stride, strides }) = self.striding else { return Ok(0) };
        let Some(caps) = EthernetCaps::striding(&self.pd.context, CREATE)? else {
            let what = "the device has no work queues with strides: omit `striding`";
            return Err(Error::new(CREATE, ErrorKind::NotSupported, what));
        };
        if !caps.takes(stride, strides) {
            let what = format!(
                "{strides} strides of {stride} bytes: the device has {} to {} of {} to {} bytes, powers \
                 of two, and {} bytes at least in a receive; take more strides, or \
                 `StridingCaps::fewest_strides`",
                caps.strides.0, caps.strides.1, caps.stride.0, caps.stride.1, caps.least
            );
            return Err(Error::invalid(CREATE, what));
        }
        Ok(size_of::<SrqNextSegment>() as u32)
    }

    fn check(&self) -> Result<(ReceiveLayout, u32), Error> {
        let context = &self.pd.context;
        if !Arc::ptr_eq(&self.cq.inner.context, context) {
            let what = "completion queue and protection domain belong to different contexts";
            return Err(Error::invalid(CREATE, what.into()));
        }
        let caps = RawPacketCaps::from_bits_retain(context.caps.device.raw_packet_caps);
        for (flag, cap, what) in [
            (
                WqFlags::CVLAN_STRIPPING,
                RawPacketCaps::CVLAN_STRIPPING,
                "cannot strip VLAN tags: omit `vlan_stripping`",
            ),
            (
                WqFlags::SCATTER_FCS,
                RawPacketCaps::SCATTER_FCS,
                "does not hand out the frame check sequence: omit `scatter_fcs`",
            ),
            (
                WqFlags::DELAY_DROP,
                RawPacketCaps::DELAY_DROP,
                "drops packets without a receive: omit `delay_drop`",
            ),
        ] {
            if self.flags.contains(flag) && !caps.contains(cap) {
                let cause = format!("the device {what}");
                return Err(Error::new(CREATE, ErrorKind::NotSupported, cause));
            }
        }
        let head = self.check_strides()?;
        let limits = &context.limits;
        let layout = ReceiveLayout::new(self.max_wr.max(1), self.max_sge, head).filter(|layout| {
            layout.requests <= limits.max_recv_wr
                && layout.stride <= u32::from(limits.max_rq_desc_sz)
        });
        layout.map(|layout| (layout, head)).ok_or_else(|| {
            let what = format!(
                "{} receive requests with {} entries do not fit: the device supports {} requests \
                 of {} bytes",
                self.max_wr, self.max_sge, limits.max_recv_wr, limits.max_rq_desc_sz
            );
            Error::invalid(CREATE, what)
        })
    }

    /// Returns the strides in the layout of the kernel's driver.
    fn driver(&self) -> CreateWq {
        match self.striding {
            None => CreateWq::default(),
            Some(Striding { stride, strides }) => CreateWq {
                comp_mask: CreateWqMask::STRIDING_RQ.bits(),
                single_stride_log_num_of_bytes: stride.trailing_zeros(),
                single_wqe_log_num_of_strides: strides.trailing_zeros(),
                ..CreateWq::default()
            },
        }
    }

    /// Creates the queue. It receives once it is [started](WorkQueue::start).
    pub fn build(self) -> Result<WorkQueue, Error> {
        let context = &self.pd.context;
        context.check(CREATE)?;
        let (layout, head) = self.check()?;
        let buffer = QueueBuffer::new(&context.buffers, layout.bytes(), &self.memory)?;
        let slot = RecordSlot::new(&context.records, self.memory.allocator.as_ref())?;
        let records = context.user_indexes.receive_records_in_order(layout.requests);
        let known = QueuePairRecords {
            send: SendRecords::new(1),
            receive: match self.striding {
                None => ReceiveSide::Own(Arc::clone(&records)),
                Some(striding) => ReceiveSide::Striding(StridingRecords::new(
                    Arc::clone(&records),
                    striding.strides,
                )),
            },
            tags: None,
            user_tag: UserTag::new(self.user_tag),
            lent: AtomicBool::new(false),
        };
        let rings = [self.cq.inner.ring_id(); 2];
        let Some(index) = context.user_indexes.register(known, rings) else {
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
                ..self.driver()
            },
        };
        // SAFETY: buffer and record live until the queue is destroyed, or until the file is closed.
        let made = match unsafe { command::create(&*context.file, &request) } {
            Ok(made) => made,
            Err(errno) => {
                let error = context.fail(CREATE, errno).asked_for(RAW_PACKETS);
                if error.in_doubt() {
                    buffer.keep();
                    slot.keep();
                }
                return Err(error);
            }
        };
        // SAFETY: the slot lives as long as the queue, and nothing else uses its record and word.
        let (record, gate) =
            unsafe { (QueuePairRecord::new(slot.record()), Gate::new(slot.word())) };
        // SAFETY: the ring has the size of the layout and is page-aligned; it lives as long as
        // `inner`, to which the queue holds a reference. The address is `head` bytes into the ring:
        // from there on, the scatter entries of a request and the head of the next one are one
        // entry's bytes, and the queue uses none after the entries of the last request.
        let queue = unsafe {
            let ring = buffer.as_non_null().byte_add(head as usize);
            ReceiveQueue::new(ring, layout, gate, record, records)
        };
        let inner = Arc::new(WqInner {
            watch: context.watch(Watched::Queue(gate)),
            context: Arc::clone(context),
            handle: Mutex::new(Some(made.handle)),
            control: Mutex::new(Control { state: WqState::Reset, was_reset: false, quiet: true }),
            number: made.wq_num,
            id,
            gate,
            index: Arc::new(index),
            memory: Mutex::new(Some((buffer, slot))),
            cq: self.cq.inner,
            _pd: self.pd.clone(),
        });
        Ok(WorkQueue { queue, inner })
    }
}

const CREATE: &str = "create_wq";
const MODIFY: &str = "modify_wq";

/// The known state of a work queue. Locked while it changes, and while completions are purged.
struct Control {
    /// The state that was last set.
    state: WqState,
    /// Whether requests and completions from before a reset may be left.
    was_reset: bool,
    /// Whether it is certain that the device writes no completions of the queue.
    quiet: bool,
}

/// Returns the state for the gate, which determines what may be posted.
fn gate_in(state: WqState) -> QueueState {
    match state {
        WqState::Reset => QueueState::Reset,
        WqState::Ready => QueueState::Init,
        WqState::Error => QueueState::Error,
    }
}

/// The part of a work queue that tables keep alive.
pub(super) struct WqInner {
    pub(super) context: Arc<Inner>,
    handle: Mutex<Option<u32>>,
    control: Mutex<Control>,
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
    /// Returns the kernel's handle, for a call.
    pub(super) fn live(&self, verb: &'static str) -> Result<u32, Error> {
        let handle = *self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        handle.ok_or_else(|| Error::invalid(verb, "the work queue was destroyed".into()))
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, or whether VLAN tags are removed, or both: all of it, or nothing.
    fn modify(&self, to: Option<WqState>, strip: Option<bool>) -> Result<(), Error> {
        // In a child process, a thread that does not exist there may hold the lock forever.
        self.context.check(MODIFY)?;
        let mut control = self.control();
        if let Some(to) = to {
            let from = control.state;
            let exists = match to {
                WqState::Ready => from == WqState::Reset,
                WqState::Error => from != WqState::Error,
                WqState::Reset => true,
            };
            if !exists {
                let what =
                    format!("a work queue does not go from {from:?} to {to:?}: `reset` it before");
                return Err(Error::invalid(MODIFY, what));
            }
        }
        let flag = WqFlags::CVLAN_STRIPPING;
        let flags = strip.map(|strip| (if strip { flag } else { WqFlags::empty() }, flag));
        let handle = self.live(MODIFY)?;
        let was = control.state;
        let modify =
            |states| self.context.run(MODIFY, |file| command::modify(file, handle, states, flags));
        let change = || match modify((None, to)) {
            // The kernel passes the state that it remembers to the device, which refuses a wrong
            // one. A queue that failed has not notified the kernel. So pass the error state, as
            // mlx5e and DPDK do.
            Err(error)
                if matches!(to, Some(WqState::Reset | WqState::Error))
                    && was != WqState::Reset
                    && !error.in_doubt()
                    && matches!(error.kind(), ErrorKind::InvalidArgument | ErrorKind::Firmware) =>
            {
                let named = modify((Some(WqState::Error), to));
                named.map_err(|second| if second.in_doubt() { second } else { error })
            }
            changed => changed,
        };
        // Requests that are posted to a queue that may be in RESET never complete.
        self.change(&mut control, to, change, |error| !error.in_doubt())
    }

    /// Runs `change`, which moves the queue to a state, if one is given. An error for which
    /// `undone` holds has changed nothing.
    fn change<E: From<Error>>(
        &self,
        control: &mut Control,
        to: Option<WqState>,
        change: impl FnOnce() -> Result<(), E>,
        undone: impl FnOnce(&E) -> bool,
    ) -> Result<(), E> {
        if to == Some(WqState::Ready) && control.was_reset {
            let what = "the queue still has requests from before the reset: `rewind` it first";
            return Err(Error::busy(MODIFY, what).into());
        }
        let before = (self.gate.state(), control.quiet);
        match to {
            // Nothing may be posted once the device resets its counters.
            Some(WqState::Reset) => self.gate.set_state(QueueState::Reset),
            Some(WqState::Ready) => control.quiet = false,
            Some(WqState::Error) | None => {}
        }
        if let Err(error) = change() {
            if let ((Some(gate), was_quiet), true) = (before, undone(&error)) {
                self.gate.set_state(gate);
                control.quiet = was_quiet;
            }
            return Err(error);
        }
        if let Some(to) = to {
            control.state = to;
            control.was_reset |= to == WqState::Reset;
            control.quiet = to == WqState::Reset;
            self.gate.set_state(gate_in(to));
        }
        Ok(())
    }

    fn destroy(&self) -> Result<(), Error> {
        // A change of the state must not name a handle that the kernel has given to another object.
        // A child process changes nothing, and a thread that does not exist there may hold the lock
        // forever.
        let held = self.context.check_process("destroy_wq").is_ok().then(|| self.control());
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
        if let Some(mut control) = held {
            control.quiet = true;
        }
        // Before and after, as for a queue pair.
        self.cq.depart(&self.index);
        self.index.depart();
        self.cq.keep_back(&self.index);
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
}

/// A reference to a work queue for code that does not post to it: to put it into a table, or to
/// control it while another thread posts. See [`WorkQueue::target`].
#[derive(Clone)]
pub struct WorkQueueTarget {
    pub(super) inner: Arc<WqInner>,
}

impl fmt::Debug for WorkQueueTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkQueueTarget")
            .field("wq_num", &format_args!("{:#x}", self.inner.number))
            .finish()
    }
}

impl WorkQueueTarget {
    /// Changes the state, or whether VLAN tags are removed, or both, by one call of the kernel: all
    /// of it, or nothing. See [`WorkQueue::start`], [`WorkQueue::to_error`], [`WorkQueue::reset`]
    /// and [`WorkQueue::set_vlan_stripping`]. A queue that was reset must be
    /// [rewound](WorkQueue::rewind) before it can receive again.
    pub fn modify(&self, to: Option<WqState>, strip_vlan: Option<bool>) -> Result<(), Error> {
        self.inner.modify(to, strip_vlan)
    }

    /// Runs `change`, which moves the queue to a state by a firmware command, without this crate.
    /// Posting and later changes rely on that state, unless `change` fails: then nothing has
    /// changed. A queue that was reset must be [rewound](WorkQueue::rewind) before it becomes
    /// ready.
    pub fn change_beside<E: From<Error>>(
        &self,
        to: Option<WqState>,
        change: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        self.inner.context.check(MODIFY)?;
        self.inner.change(&mut self.inner.control(), to, change, |_| true)
    }

    /// Returns the state that was last set.
    pub fn state(&self) -> WqState {
        self.inner.control().state
    }

    /// See [`WorkQueue::withdraw`].
    pub fn withdraw(&self) -> Result<(), Error> {
        self.inner.destroy()
    }

    /// Removes the completions of the work queue from `cq`. See [`WorkQueue::purge`].
    pub fn purge(&self, cq: &mut CompletionQueue) -> Result<u32, Error> {
        const VERB: &str = "purge";
        let Self { inner } = self;
        inner.context.check_process(VERB)?;
        if !Arc::ptr_eq(&inner.cq, &cq.inner) {
            let what = "the work queue does not complete on this completion queue";
            return Err(Error::invalid(VERB, what.into()));
        }
        let control = inner.control();
        if !control.quiet {
            let what = "the work queue is not in its first state: reset it before, or the device \
                        still writes its completions";
            return Err(Error::invalid(VERB, what.into()));
        }
        Ok(cq.purge(&inner.index))
    }
}

/// A work queue in memory: see [`WorkQueue::raw_parts`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawWorkQueue {
    /// The requests.
    pub requests: RawRing,
    /// The doorbell record, whose first four bytes are the counter of posted requests.
    pub record: NonNull<u8>,
}

impl fmt::Debug for WorkQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkQueue")
            .field("wq_num", &format_args!("{:#x}", self.inner.number))
            .field("state", &self.state())
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}

impl WorkQueue {
    /// Starts the queue after its creation or a reset: it receives, and receives can be posted.
    ///
    /// After a reset this fails while completions from before are in the completion queue: poll
    /// them, or remove them with [`WorkQueue::purge`].
    pub fn start(&mut self) -> Result<(), Error> {
        self.rewind()?;
        self.inner.modify(Some(WqState::Ready), None)
    }

    /// Forgets the requests from before a reset, as [`WorkQueue::start`] does. For callers that
    /// start the queue by [`WorkQueueTarget::modify`], without borrowing it during the call of the
    /// kernel.
    ///
    /// Fails while completions from before are in the completion queue.
    pub fn rewind(&mut self) -> Result<(), Error> {
        self.inner.context.check(MODIFY)?;
        let mut control = self.inner.control();
        if !control.was_reset || control.state != WqState::Reset {
            return Ok(());
        }
        if self.inner.cq.holds_after_reset(&self.inner.index) {
            let what = "the completion queue still has completions from before the reset: poll \
                        them first, or remove them with `purge`";
            return Err(Error::busy(MODIFY, what));
        }
        self.queue.reset();
        if let ReceiveSide::Striding(records) = &self.inner.index.records().receive {
            records.reset();
        }
        control.was_reset = false;
        Ok(())
    }

    /// Moves the queue to the error state: the device completes every request that is or will be
    /// posted with [`CompletionError::is_flushed`](crate::CompletionError::is_flushed).
    pub fn to_error(&mut self) -> Result<(), Error> {
        self.inner.modify(Some(WqState::Error), None)
    }

    /// Resets the queue, from any state: the device drops the posted requests without completing
    /// them. The next polls still return completions that are already in the completion queue.
    ///
    /// After an error [in doubt](Error::in_doubt) nothing can be posted until the queue was reset
    /// and started.
    ///
    /// ```no_run
    /// # use mlx5::{CompletionQueue, Error, WorkQueue};
    /// # fn f(queue: &mut WorkQueue, cq: &mut CompletionQueue) -> Result<(), Error> {
    /// queue.reset()?;
    /// queue.purge(cq)?;
    /// queue.start()
    /// # }
    /// ```
    pub fn reset(&mut self) -> Result<(), Error> {
        self.inner.modify(Some(WqState::Reset), None)
    }

    /// Removes the completions of the queue, which was not started or was reset, from its
    /// completion queue, and returns their number. Those of other queues stay, in order.
    pub fn purge(&mut self, cq: &mut CompletionQueue) -> Result<u32, Error> {
        self.target().purge(cq)
    }

    /// Starts or stops removing the VLAN tag from received packets. The kernel refuses it on a
    /// device that lacks it.
    pub fn set_vlan_stripping(&mut self, strip: bool) -> Result<(), Error> {
        self.inner.modify(None, Some(strip))
    }

    /// Returns a reference to the queue for tables, control and purging, without borrowing it.
    pub fn target(&self) -> WorkQueueTarget {
        WorkQueueTarget { inner: Arc::clone(&self.inner) }
    }

    /// Returns the parts of the queue in memory, for a program that posts to it itself
    /// (`mlx5dv_init_obj`). Such a program posts nothing here.
    ///
    /// The pointers are valid until the queue is destroyed. Code that writes through them must
    /// follow the device's rules for receive queues.
    pub fn raw_parts(&self) -> Result<RawWorkQueue, Error> {
        const VERB: &str = "init_obj";
        self.inner.context.check_process(VERB)?;
        let memory = self.inner.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((buffer, slot)) = &*memory else {
            return Err(Error::invalid(VERB, "the work queue was destroyed".into()));
        };
        let layout = self.queue.layout();
        Ok(RawWorkQueue {
            requests: RawRing {
                start: buffer.as_non_null(),
                entries: layout.requests,
                stride: layout.stride,
            },
            record: slot.record(),
        })
    }

    /// Makes polls report completions of requests without a record, with identifier 0: for a
    /// program that has the [parts](WorkQueue::raw_parts) and posts itself, but polls here.
    /// Otherwise such a completion is [corruption](crate::PollError::Corrupt).
    pub fn report_unrecorded(&mut self) {
        self.inner.index.records().lent.store(true, Relaxed);
    }

    /// Destroys the kernel's object (`ibv_destroy_wq`), and keeps the memory: from then on posting
    /// is refused, and no event comes any more. The rest is freed with the value. For callers whose
    /// threads may still use the queue when it is destroyed.
    ///
    /// If the kernel refuses, because a table contains the queue, nothing has changed.
    pub fn withdraw(&mut self) -> Result<(), Error> {
        self.inner.destroy()
    }

    /// Posts one receive request with one buffer.
    #[inline]
    pub fn recv(&mut self, wr_id: u64, sge: Sge) -> Result<(), PostError> {
        self.queue.recv(wr_id, sge)
    }

    /// Posts a list of receive requests. Requests before the first bad one are posted.
    #[inline]
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

    /// Returns the number of receive requests that can be posted now.
    #[inline]
    pub fn free(&self) -> u32 {
        self.queue.free()
    }

    /// Whether a queue with strides had an error after which it receives nothing more until it is
    /// reset.
    pub(crate) fn is_stopped(&self) -> bool {
        match &self.inner.index.records().receive {
            ReceiveSide::Striding(records) => records.is_stopped(),
            _ => false,
        }
    }

    /// Returns the number of posted receive requests that have not completed.
    #[inline]
    pub(crate) fn posted(&self) -> u32 {
        self.queue.used()
    }

    /// Returns the maximum number of receive requests.
    pub fn capacity(&self) -> u32 {
        self.queue.layout().requests
    }

    /// Returns the maximum number of SGEs of a receive request.
    pub fn max_sge(&self) -> u32 {
        self.queue.layout().max_sge
    }

    /// Returns the state that was last set.
    pub fn state(&self) -> WqState {
        self.inner.control().state
    }

    /// Returns the number of the queue in the device.
    pub fn wq_num(&self) -> u32 {
        self.inner.number
    }

    /// Returns the identifier that events use.
    pub fn id(&self) -> WqId {
        WqId(self.inner.id)
    }

    /// Returns the tag that its completions carry.
    pub fn user_tag(&self) -> u64 {
        self.inner.index.user_tag().get()
    }

    /// Sets the tag that its completions carry. See
    /// [`QueuePair::set_user_tag`](crate::QueuePair::set_user_tag).
    pub fn set_user_tag(&self, tag: u64) {
        self.inner.index.user_tag().set(tag);
    }

    /// Returns the kernel's handle, for calls that this crate does not wrap, unless it was
    /// destroyed. See [`crate::Context::device_file`].
    pub fn kernel_handle(&self) -> Option<u32> {
        self.inner.live(CREATE).ok()
    }

    /// Destroys the queue (`ibv_destroy_wq`). If the kernel refuses, because a table contains it,
    /// the error returns the queue.
    pub fn destroy(self) -> Result<(), DestroyError<Self>> {
        match self.inner.destroy() {
            Ok(()) => Ok(()),
            Err(error) => Err(DestroyError::new(self, error)),
        }
    }
}
