//! Queue pairs.

mod any;
mod attributes;
mod bind;
mod builder;
mod cancel;
mod connect;
mod debug;
mod endpoint;
mod inspect;
mod life;
mod multicast;
mod objects;
#[cfg(test)]
mod outstanding;
mod packet;
mod post;
mod raw;
mod shared;
mod states;
mod target;
mod transitions;

pub use any::{AnyQueuePair, AnySendHalf};
pub use attributes::{
    AckTimeout, AlternatePath, OutOfRange, Psn, QpAttributes, QpInfo, QpNumber, QpSizes,
    RetryCount, RnrTimer, UnknownValue,
};
pub(crate) use builder::Tags;
pub use builder::{QueuePairBuilder, QueuePairCaps, QueuePairTransport};
pub use cancel::{CancelError, Drained};
pub use connect::Connected;
pub use endpoint::{ConnectError, ConnectOptions, Endpoint, EndpointError, LocalPort};
pub(crate) use inspect::DeviceState;
pub use life::QueuePairLife;
pub use objects::PacketObjects;
#[cfg(test)]
pub(crate) use outstanding::Outstanding;
pub use packet::RateLimit;
pub use raw::RawQueuePair;
pub use shared::SharedQueuePair;
pub use states::{NotDone, QuiesceError, QuiesceFault, WhyNotDone};
pub use target::XrcTarget;
pub use transitions::{TransitionError, TransitionFault};

use crate::context::{Context, Inner};
use crate::cq::{CompletionTarget, CqInner};
use crate::error::{DestroyError, Error, ErrorKind};
use crate::link::{QpId, WatchId};
use crate::memory::ProtectionDomain;
use crate::pools::{DoorbellMode, QueueBuffer, ReceiveSide, RecordSlot, SendUar, UserIndex};
use crate::srq::Taken;
use cancel::DrainEpoch;
use inspect::state_at_device;
use mlx5_prm::cmd::qp::QpState;
use mlx5_prm::wqe::BLOCK;
use mlx5_uapi::cmd::qp as command;
use mlx5_uapi::mlx5::ModifyQp;
use mlx5_uapi::verbs::{QpAttrMask, QpType};
use mlx5_wqe::{Gate, QueueState, ReceiveLayout, ReceiveQueue, SendQueue};
use std::ops::Range;
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering::Relaxed},
};

/// The state that the halves of a queue pair share.
pub(crate) struct QpInner {
    pub(crate) context: Arc<Inner>,
    handle: Mutex<Option<u32>>,
    pub(crate) qp_num: u32,
    qp_type: QpType,
    id: u64,
    caps: QueuePairCaps,
    receive_layout: ReceiveLayout,
    /// Offset of the send ring in the buffer, which starts with the receive ring.
    send_offset: usize,
    /// Whether the send queue drains on signature errors.
    pipelining: bool,
    packet: PacketObjects,
    mode: DoorbellMode,
    gate: Gate,
    index: Arc<UserIndex>,
    pub(crate) drain_epoch: DrainEpoch,
    /// Rings, doorbell record and doorbell register.
    memory: Mutex<Option<(QueueBuffer, RecordSlot, SendUar)>>,
    /// Whether something other than the queues may write to the rings: the device, or a program
    /// that has their addresses.
    has_other_writer: AtomicBool,
    /// Whether the queue pair may have left RESET. Before that, nothing is posted.
    started: AtomicBool,
    send_cq: Arc<CqInner>,
    recv_cq: Arc<CqInner>,
    srq: Option<Taken>,
    pd: ProtectionDomain,
    watch: WatchId,
}

impl QpInner {
    /// Returns the protection domain.
    pub(crate) fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// Returns the number by which CQEs name the queue pair.
    #[cfg(test)]
    pub(crate) fn user_index(&self) -> u32 {
        self.index.get()
    }

    fn handle(&self) -> MutexGuard<'_, Option<u32>> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the kernel's handle, unless the queue pair was destroyed.
    pub(crate) fn live_handle(&self, verb: &'static str) -> Result<u32, Error> {
        self.handle().ok_or_else(|| Error::invalid(verb, "the queue pair was destroyed".into()))
    }

    /// Returns the identifier that events use.
    pub(crate) fn id(&self) -> QpId {
        QpId(self.id)
    }

    /// Destroys the kernel's object. After this the device writes no completion of the queue pair.
    pub(crate) fn destroy(&self) -> Result<(), Error> {
        const VERB: &str = "destroy_qp";
        let mut handle = self.handle();
        let Some(live) = *handle else { return Ok(()) };
        let state = self.gate.state();
        self.gate.set_state(QueueState::Reset);
        if let Err(error) =
            self.context.run_destroy(VERB, |file| command::destroy(file, live).map(drop))
        {
            if let Some(state) = state {
                self.gate.set_state(state);
            }
            return Err(error);
        }
        *handle = None;
        let cqs = [&self.send_cq, &self.recv_cq];
        let cqs = if Arc::ptr_eq(cqs[0], cqs[1]) { &cqs[..1] } else { &cqs[..] };
        // The poller must find the queue among the deferred ones as soon as the table marks it as
        // destroyed, so it is added before. A poller can still look it up until then, so it is
        // added again after.
        cqs.iter().for_each(|cq| cq.depart(&self.index));
        self.index.depart();
        cqs.iter().for_each(|cq| cq.keep_back(&self.index));
        Ok(())
    }
}

impl QpInner {
    /// Ranges of the buffer that may have been written, if only the queues write the rings. The
    /// device reads both rings, and writes neither.
    fn written(&self) -> Option<[Range<usize>; 2]> {
        if self.has_other_writer.load(Relaxed) {
            return None;
        }
        if !self.started.load(Relaxed) {
            return Some([0..0, 0..0]);
        }
        let records = self.index.records();
        let received = match &records.receive {
            ReceiveSide::Own(receive) => receive.written() * self.receive_layout.stride,
            ReceiveSide::Shared(_) => 0,
            ReceiveSide::Striding(_) => return None,
        };
        let sent = records.send.written_blocks() as usize * BLOCK;
        Some([0..received as usize, self.send_offset..self.send_offset + sent])
    }
}

impl Drop for QpInner {
    fn drop(&mut self) {
        let destroyed = self.destroy().is_ok();
        self.context.unwatch(self.watch);
        if !destroyed {
            // The device may still use this memory, and completions may still name the queue.
            let memory = self.memory.get_mut().unwrap_or_else(PoisonError::into_inner).take();
            if let Some((buffer, slot, uar)) = memory {
                buffer.keep();
                slot.keep();
                uar.keep();
            }
            let index = Arc::clone(&self.index);
            self.context.keep_records(index);
        } else if let Some(written) = self.written()
            && let Some((buffer, ..)) =
                self.memory.get_mut().unwrap_or_else(PoisonError::into_inner)
        {
            buffer.only_wrote(written);
        }
    }
}

/// The half of a queue pair that posts send requests.
// The field order gives a queue pair, its send half and its send queue the same address: posting
// needs no second register.
#[repr(C)]
pub struct SendHalf<T: QueuePairTransport> {
    pub(crate) queue: SendQueue<T>,
    pub(crate) inner: Arc<QpInner>,
}

/// The half of a queue pair that posts receive requests.
pub struct ReceiveHalf {
    queue: ReceiveQueue,
    inner: Arc<QpInner>,
}

/// The half of a queue pair that changes its state.
pub struct ControlHalf {
    pub(crate) inner: Arc<QpInner>,
    state: QueueState,
}

impl ControlHalf {
    /// Returns the tag that its completions carry. See [`QueuePair::set_user_tag`].
    pub fn user_tag(&self) -> u64 {
        self.inner.index.user_tag().get()
    }

    /// Sets the tag that its completions carry. See [`QueuePair::set_user_tag`].
    pub fn set_user_tag(&self, tag: u64) {
        self.inner.index.user_tag().set(tag);
    }

    /// Returns the state that was last set.
    pub fn state(&self) -> QueueState {
        self.state
    }

    /// Returns the kernel's handle, for calls that this crate does not wrap, unless the queue pair
    /// was destroyed. See [`Context::device_file`].
    pub fn kernel_handle(&self) -> Option<u32> {
        *self.inner.handle()
    }

    /// Returns the identifier that events use.
    pub fn id(&self) -> QpId {
        self.inner.id()
    }

    /// Destroys the kernel's queue pair, but not the queues: until the last half is dropped, calls
    /// on the other halves are refused. For a program that must wait for other threads between the
    /// two steps.
    pub fn withdraw(&mut self) -> Result<(), Error> {
        self.inner.destroy()?;
        self.state = QueueState::Reset;
        Ok(())
    }

    /// Returns the number of the queue pair.
    pub fn qp_num(&self) -> u32 {
        self.inner.qp_num
    }

    /// Changes state and attributes (`ibv_modify_qp`). A split queue pair cannot leave RESET: see
    /// [`QueuePair::modify`].
    pub fn modify(&mut self, attributes: &QpAttributes) -> Result<(), Error> {
        let (from, to) = self.check(attributes)?;
        if from == QueueState::Reset && to == QueueState::Init {
            let what = "a split queue pair cannot leave RESET: join its halves first";
            return Err(Error::invalid("modify_qp", what.into()));
        }
        self.modify_unchecked(attributes, to)
    }

    /// Notes the state in which a firmware command, sent without this crate, left the queue pair.
    /// Posting and later changes rely on it.
    pub fn note_state(&mut self, state: QueueState) {
        self.inner.drain_epoch.advance();
        self.inner.started.store(true, Relaxed);
        self.state = state;
        self.inner.gate.set_state(state);
    }

    /// Checks a change against the table of transitions.
    fn check(&self, attributes: &QpAttributes) -> Result<(QueueState, QueueState), Error> {
        self.inner.context.check("modify_qp")?;
        let from = attributes.cur_qp_state.unwrap_or(self.state);
        let to = transitions::check_attributes(self.inner.qp_type, self.state, attributes)
            .map_err(|error| Error::invalid("modify_qp", error.to_string()))?;
        let alternate = attributes.alt_path.map(|path| path.ah_attr);
        for path in [attributes.ah_attr, alternate].into_iter().flatten() {
            let caps = self.inner.context.port("modify_qp", path.port_num)?;
            path.check("modify_qp", &caps)?;
        }
        Ok((from, to))
    }

    pub(crate) fn modify_unchecked(
        &mut self,
        attributes: &QpAttributes,
        to: QueueState,
    ) -> Result<(), Error> {
        const VERB: &str = "modify_qp";
        let inner = &self.inner;
        let request = attributes.encode(inner.live_handle(VERB)?);
        let before = self.state;
        inner.started.store(true, Relaxed);
        if attributes.qp_state.is_some() {
            // Before the device may resume. It may have drained the queue without notifying the
            // kernel, so the states known here do not show whether this change resumes it.
            inner.drain_epoch.advance();
        }
        if to == QueueState::Reset {
            // Nothing may be posted once the device resets its counters.
            inner.gate.set_state(QueueState::Reset);
        }
        if inner.qp_type == QpType::RawPacket
            && before != QueueState::Reset
            && matches!(to, QueueState::Reset | QueueState::Error)
        {
            self.refresh_packet_states();
        }
        let result = inner.context.run(VERB, |file| {
            if attributes.is_extended() {
                command::modify_ex(file, &request, &ModifyQp::default()).map(drop)
            } else {
                command::modify(file, &request.base)
            }
        });
        if let Err(error) = result {
            inner.gate.set_state(before);
            return Err(self.explain(attributes.cur_qp_state.unwrap_or(before), error));
        }
        self.state = to;
        inner.gate.set_state(to);
        if to == QueueState::Init && inner.pipelining {
            self.drain_on_signature_error()?;
        }
        Ok(())
    }

    /// Explains why a change from state `from` failed, if the device has the queue pair in another
    /// state.
    #[cold]
    fn explain(&self, from: QueueState, error: Error) -> Error {
        if !matches!(error.kind(), ErrorKind::InvalidArgument | ErrorKind::Firmware) {
            return error;
        }
        let Ok(found) = self.device_state(error.operation()) else { return error };
        let advice = match found.state {
            state if state == state_at_device(from) => return error,
            QpState::SQD => "the device drained the send queue by itself: call `resume`",
            QpState::SQ_DRAINING => {
                "the device is still draining the send queue: wait for the event SqDrained"
            }
            QpState::RTS => "it is not drained, so there is nothing to resume",
            QpState::SQER => {
                "its send queue failed: modify it to RTS with `cur_qp_state(SendQueueError)`"
            }
            _ => "move it through the states in between",
        };
        let (state, from) = (found.state, from.name());
        let what =
            format!("the device has the queue pair in state {state:?}, not in {from}; {advice}");
        error.in_wrong_state(what)
    }

    /// Queries the kernel (`ibv_query_qp`).
    pub fn query(&self) -> Result<QpInfo, Error> {
        const VERB: &str = "query_qp";
        let inner = &self.inner;
        inner.context.check(VERB)?;
        let handle = inner.live_handle(VERB)?;
        let answer =
            inner.context.run(VERB, |file| command::query(file, handle, QpAttrMask::all()))?;
        QpInfo::decode(&answer)
            .map_err(|error| Error::new(VERB, ErrorKind::Kernel, error.to_string()))
    }
}

/// A queue pair (`struct ibv_qp`) of transport `T`.
///
/// It can be split into halves that post sends, post receives and change the state, each for a
/// thread of its own.
// See `SendHalf` for the order.
#[repr(C)]
pub struct QueuePair<T: QueuePairTransport> {
    pub(crate) send: SendHalf<T>,
    pub(crate) receive: Option<ReceiveHalf>,
    pub(crate) control: ControlHalf,
    /// Whether the rings hold requests from before a reset.
    was_reset: bool,
}

impl<T: QueuePairTransport> QueuePair<T> {
    /// Returns the number of the queue pair.
    pub fn qp_num(&self) -> u32 {
        self.control.inner.qp_num
    }

    /// Returns the identifier that events use.
    pub fn id(&self) -> QpId {
        QpId(self.control.inner.id)
    }

    /// Returns the tag that its completions carry. See [`QueuePair::set_user_tag`].
    pub fn user_tag(&self) -> u64 {
        self.control.user_tag()
    }

    /// Sets the tag that the queue pair's completions carry. It is zero unless the builder set one.
    /// It may be set at any time, also while another thread polls: completions that are polled
    /// afterwards carry the new tag.
    ///
    /// Receives of extended connections carry the tag of the shared receive queue, which their CQEs
    /// name.
    ///
    /// ```no_run
    /// # use mlx5::{CompletionQueue, Error, PollError, ProtectionDomain, transport::Rc};
    /// # fn f(pd: &ProtectionDomain, cq: &mut CompletionQueue)
    /// #     -> Result<(), Box<dyn std::error::Error>> {
    /// let mut connections = Vec::new();
    /// for index in 0..64 {
    ///     connections.push(pd.create_qp::<Rc>(cq, cq).user_tag(index).build()?);
    /// }
    /// cq.poll(16, |completion| {
    ///     let connection = &connections[completion.user_tag() as usize];
    ///     println!("{:#x}: {completion:?}", connection.qp_num());
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_user_tag(&self, tag: u64) {
        self.control.set_user_tag(tag);
    }

    /// Returns the sizes, as created.
    pub fn caps(&self) -> QueuePairCaps {
        self.control.inner.caps
    }

    /// Returns the way in which the send doorbell is rung.
    pub fn doorbell_mode(&self) -> DoorbellMode {
        self.control.inner.mode
    }

    /// Returns the state that was last set. The device may have changed it, for example to the
    /// error state: use [`QueuePair::query`].
    pub fn state(&self) -> QueueState {
        self.control.state
    }

    /// Returns the context.
    pub fn context(&self) -> Context {
        Context { inner: Arc::clone(&self.control.inner.context) }
    }

    /// Whether its sends, and its receives, complete on this queue.
    pub fn completes_on(&self, target: &CompletionTarget) -> (bool, bool) {
        let inner = &self.control.inner;
        let on = |cq| Arc::ptr_eq(cq, &target.inner);
        (on(&inner.send_cq), on(&inner.recv_cq))
    }

    /// Whether it receives from a shared receive queue.
    pub fn has_srq(&self) -> bool {
        self.control.inner.srq.is_some()
    }

    /// Returns the number of the shared receive queue that it receives from, if any:
    /// [`SharedReceiveQueue::srqn`](crate::SharedReceiveQueue::srqn).
    pub fn srqn(&self) -> Option<u32> {
        self.control.inner.srq.as_ref().map(|srq| srq.srqn())
    }

    /// Changes state and attributes (`ibv_modify_qp`), after checking them against the table of
    /// transitions. The error names the attributes that are missing or not allowed.
    ///
    /// A queue pair that leaves RESET starts with empty queues. It cannot leave RESET while
    /// completions from before the reset are in a completion queue, because they would look like
    /// new ones: poll them first, or [`purge`](Self::purge) them.
    pub fn modify(&mut self, attributes: &QpAttributes) -> Result<(), Error> {
        let (from, to) = self.control.check(attributes)?;
        if from == QueueState::Reset && to == QueueState::Init && self.was_reset {
            self.start_over()?;
        }
        self.control.modify_unchecked(attributes, to)?;
        self.was_reset |= to == QueueState::Reset;
        Ok(())
    }

    /// Empties the queues after a reset.
    fn start_over(&mut self) -> Result<(), Error> {
        let receive = self.receive.as_mut().map(|half| &mut half.queue);
        self.control.inner.start_over(&mut self.send.queue, receive)?;
        self.was_reset = false;
        Ok(())
    }

    /// Queries the kernel (`ibv_query_qp`).
    pub fn query(&self) -> Result<QpInfo, Error> {
        self.control.query()
    }

    /// Splits the queue pair. Its kernel object is destroyed when the last half is dropped.
    pub fn split(self) -> (SendHalf<T>, Option<ReceiveHalf>, ControlHalf) {
        (self.send, self.receive, self.control)
    }

    /// Joins halves that were split.
    ///
    /// # Panics
    /// If they are not all the halves of one queue pair.
    pub fn join(send: SendHalf<T>, receive: Option<ReceiveHalf>, control: ControlHalf) -> Self {
        assert!(
            Arc::ptr_eq(&send.inner, &control.inner)
                && receive.as_ref().is_none_or(|half| Arc::ptr_eq(&half.inner, &control.inner)),
            "the halves are not of one queue pair"
        );
        assert_eq!(
            receive.is_some(),
            control.inner.caps.max_recv_wr != 0,
            "the receive half of the queue pair goes with the others, if it has one"
        );
        let was_reset = control.state == QueueState::Reset;
        Self { send, receive, control, was_reset }
    }

    /// Destroys the queue pair (`ibv_destroy_qp`), and returns the requests of its own queues whose
    /// completion was not polled, as [unknown](WhyNotDone::Unknown): the program may reuse their
    /// memory. If the kernel refuses, the error returns the queue pair.
    ///
    /// Polling skips completions of the queue pair that are still in the completion queues.
    /// Receives of a shared receive queue among them are returned by
    /// [`SharedReceiveQueue::take_discarded`](crate::SharedReceiveQueue::take_discarded). Dropping
    /// a queue pair destroys it, too, and returns nothing. Call [`QueuePair::quiesce`] before to
    /// get the result of each request; `docs/STATES.md` has all steps.
    ///
    /// Until this call returns, a poll on another thread may still return a completion of such a
    /// request.
    pub fn destroy(self) -> Result<Vec<NotDone>, DestroyError<Self>> {
        let inner = &self.control.inner;
        match inner.destroy() {
            Ok(()) => {
                let mut not_done = Vec::new();
                if inner.is_busy() {
                    inner.add_unknown(&mut not_done);
                }
                Ok(not_done)
            }
            Err(error) => Err(DestroyError::new(self, error)),
        }
    }
}
