//! Queue pairs.

pub mod bind;
mod building;
mod configuring;
pub mod create;
pub mod driver;
pub mod extended;
mod flags;
mod hash;
pub mod modify;
pub mod multicast;
pub mod packet;
pub mod post;
pub mod target;

use crate::abi::mlx5dv::mlx5dv_qp_ex;
use crate::abi::*;
use crate::context::ContextObject;
use crate::cq::CqObject;
use crate::object::Blank;
use crate::refusal::{Refusal, Verb};
use crate::spin::Spin;
use building::Building;
use mlx5::operation::{self, Supports};
use mlx5::transport::{RawPacket, Rc, Uc, Ud, XrcSend};
use mlx5::{
    Batch, Binding, Change, ControlHalf, Data, ListTransport, PostError, QpAttributes, QueuePair,
    QueuePairBuilder, QueuePairCaps, QueuePairTransport, QueueState, ReceiveHalf, SendFlags,
    SendHalf, Sge, TagMatchingQueue,
};
use packet::Packets;
use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;
use std::sync::{Mutex, PoisonError};

/// The transports of queue pairs that send.
pub(crate) trait CTransport:
    QueuePairTransport + ListTransport + Supports<operation::Raw>
{
    const ADDRESS: Address;
    /// Whether its requests configure memory keys.
    const CONFIGURES: bool = false;

    /// Lets a queue pair receive from a queue with tags, if the transport can.
    fn with_tags<'a>(
        _builder: QueuePairBuilder<'a, Self>,
        _queue: &TagMatchingQueue,
        _sends: bool,
    ) -> Option<QueuePairBuilder<'a, Self>>
    where
        Self: Sized,
    {
        None
    }

    /// Adds a request to bind a window, if the transport has that operation.
    fn bind(
        _batch: &mut Batch<'_, Self>,
        _wr_id: u64,
        _flags: SendFlags,
        _binding: Binding,
        _change: Change,
    ) -> Result<(), PostError>
    where
        Self: Sized,
    {
        Err(PostError::Unsupported)
    }

    /// Makes a queue pair that configures memory keys with this number of entries, or that drains
    /// on signature errors, if the transport supports it.
    fn with_keys<'a>(
        _builder: QueuePairBuilder<'a, Self>,
        _entries: Option<u32>,
        _pipelining: bool,
    ) -> Option<QueuePairBuilder<'a, Self>>
    where
        Self: Sized,
    {
        None
    }

    /// Adds a packet for a device that needs its first bytes in the request, if the transport has
    /// packets.
    ///
    /// # Safety
    /// `wr` is a request as C makes them, with this data, whose bytes are readable as long as the
    /// call runs.
    unsafe fn add_headed(_batch: &mut Batch<'_, Self>, _wr: &ibv_send_wr, _data: &Data<'_>)
    where
        Self: Sized,
    {
    }

    /// Makes a queue pair with what only packets have, if the transport has any.
    fn with_packets(
        _builder: QueuePairBuilder<'_, Self>,
        _packets: Packets,
    ) -> Option<QueuePairBuilder<'_, Self>>
    where
        Self: Sized,
    {
        None
    }
}

/// The receiver that a request names.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Address {
    Nothing,
    Datagram,
    Srq,
}

/// Of a transport that binds windows.
macro_rules! binds {
    () => {
        fn bind(
            batch: &mut Batch<'_, Self>,
            wr_id: u64,
            flags: SendFlags,
            binding: Binding,
            change: Change,
        ) -> Result<(), PostError> {
            batch.wr(wr_id, flags).bind_mw_with(binding, change);
            Ok(())
        }
    };
}

impl CTransport for Rc {
    const ADDRESS: Address = Address::Nothing;
    const CONFIGURES: bool = true;
    binds!();

    fn with_tags<'a>(
        builder: QueuePairBuilder<'a, Self>,
        queue: &TagMatchingQueue,
        sends: bool,
    ) -> Option<QueuePairBuilder<'a, Self>> {
        let builder = builder.tm_srq(queue);
        Some(if sends { builder.keep_send_queue() } else { builder })
    }

    fn with_keys<'a>(
        mut builder: QueuePairBuilder<'a, Self>,
        entries: Option<u32>,
        pipelining: bool,
    ) -> Option<QueuePairBuilder<'a, Self>> {
        if let Some(entries) = entries {
            builder = builder.mkey_configure(entries, true);
        }
        Some(if pipelining { builder.signature_pipelining() } else { builder })
    }
}

impl CTransport for Uc {
    const ADDRESS: Address = Address::Nothing;
    binds!();
}

impl CTransport for Ud {
    const ADDRESS: Address = Address::Datagram;
}

impl CTransport for RawPacket {
    const ADDRESS: Address = Address::Nothing;

    fn with_packets(
        builder: QueuePairBuilder<'_, Self>,
        packets: Packets,
    ) -> Option<QueuePairBuilder<'_, Self>> {
        Some(packets.apply(builder))
    }

    unsafe fn add_headed(batch: &mut Batch<'_, Self>, wr: &ibv_send_wr, data: &Data<'_>) {
        // SAFETY: the caller promises a request for raw packets, whose bytes are readable until the
        // call returns.
        unsafe { packet::add_headed(batch, wr, data) };
    }
}

impl CTransport for XrcSend {
    const ADDRESS: Address = Address::Srq;
    binds!();
}

/// The functions that differ between transports.
pub(crate) struct Functions {
    pub(crate) post_send: unsafe fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int,
    pub(crate) bind: unsafe fn(*mut ibv_qp, *mut ibv_mw, &ibv_mw_bind, u32, Change) -> c_int,
    pub(crate) modify: unsafe fn(&QpObject, &QpAttributes) -> Verb,
    pub(crate) destroy: unsafe fn(*mut QpObject) -> Verb,
    /// Whether it has states.
    pub(crate) has_states: bool,
}

/// A queue pair of any transport: what all have. A pointer to it is an `ibv_qp`, and an `ibv_qp_ex`
/// if it was made with send operations.
#[repr(C)]
pub(crate) struct QpObject {
    /// Programs write some of its fields, and read others that are written here.
    c: UnsafeCell<ibv_qp_ex>,
    functions: &'static Functions,
    pub(crate) send_lock: Spin,
    receive_lock: Spin,
    receive: UnsafeCell<Option<ReceiveHalf>>,
    /// Held while the state changes.
    pub(crate) control_lock: Mutex<()>,
    /// None of a receiving end of extended connections.
    control: UnsafeCell<Option<ControlHalf>>,
    caps: QueuePairCaps,
    signal_all: bool,
    /// Whether the device needs the first bytes of a packet in its request.
    heads: bool,
    /// Whether programs may take it for an `ibv_qp_ex`.
    pub(crate) extended: bool,
    /// The functions of libmlx5.
    dv: UnsafeCell<mlx5dv_qp_ex>,
}

/// A queue pair of transport `T`.
#[repr(C)]
pub(crate) struct QpOf<T: CTransport> {
    pub(crate) head: QpObject,
    send: UnsafeCell<ManuallyDrop<SendHalf<T>>>,
    /// The batch of `ibv_wr_start`, under the send lock.
    building: UnsafeCell<Building>,
}

/// Fields of C's structure that are constant once the queue pair was made.
macro_rules! constants {
    ($($name:ident: $ty:ty;)*) => {
        impl QpObject {
            $(pub(crate) fn $name(&self) -> $ty {
                // SAFETY: the field is valid and constant. No reference to the structure is made.
                unsafe { (*self.c.get()).qp_base.$name }
            })*
        }
    };
}

constants! {
    qp_context: *mut c_void;
    pd: *mut ibv_pd;
    send_cq: *mut ibv_cq;
    recv_cq: *mut ibv_cq;
    srq: *mut ibv_srq;
    handle: u32;
    qp_type: c_uint;
}

impl QpObject {
    /// # Safety
    /// `qp` is a queue pair that was not destroyed.
    #[inline(always)]
    pub(crate) unsafe fn of<'a>(qp: *mut ibv_qp) -> &'a Self {
        // SAFETY: the caller promises that `qp` was not destroyed: it is the first field of an
        // object that starts with this type.
        unsafe { &*qp.cast() }
    }

    pub(crate) fn context(&self) -> &ContextObject {
        // SAFETY: a queue pair has a context, which outlives it, and the field is constant.
        unsafe { ContextObject::of((*self.c.get()).qp_base.context) }
    }

    /// The sizes that were granted, in the terms of C.
    fn sizes(&self) -> ibv_qp_cap {
        let caps = &self.caps;
        ibv_qp_cap {
            max_send_wr: caps.max_send_wr,
            max_recv_wr: caps.max_recv_wr,
            max_send_sge: caps.max_send_sge,
            max_recv_sge: caps.max_recv_sge,
            max_inline_data: caps.max_inline_data,
        }
    }

    fn as_c(&self) -> *mut ibv_qp {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// The state, where programs read it.
    pub(crate) fn set_state(&self, state: QueueState) {
        // SAFETY: only this writes the field, with the control lock held by the caller.
        unsafe { (&raw mut (*self.as_c()).state).write_volatile(state as c_uint) };
    }

    /// Runs `body` with the half that changes the state.
    pub(crate) fn with_control<R>(
        &self,
        body: impl FnOnce(&mut ControlHalf) -> Verb<R>,
    ) -> Verb<R> {
        let _held = self.control_lock.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the lock is held.
        match unsafe { &mut *self.control.get() } {
            Some(control) => body(control),
            None => Err(Refusal::INVALID),
        }
    }

    /// Runs `change`, which changes the state by a firmware command, and notes the state that it
    /// answers. A queue pair without queues of its own asks the device when it needs to know.
    pub(crate) fn change_beside(&self, change: impl FnOnce() -> Verb<Option<QueueState>>) -> Verb {
        let _held = self.control_lock.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(state) = change()? {
            // SAFETY: the lock is held.
            if let Some(control) = unsafe { &mut *self.control.get() } {
                control.note_state(state);
            }
            self.set_state(state);
        }
        Ok(())
    }

    /// Whether a packet of these pieces has more inline data than a request takes.
    fn is_beyond_inline(&self, pieces: &[Sge]) -> bool {
        let length: u64 = pieces.iter().map(|piece| u64::from(piece.length)).sum();
        let head = if self.heads { packet::HEADER } else { 0 };
        length > u64::from(self.caps.max_inline_data) + head as u64
    }

    /// A queue pair without queues of its own.
    pub(crate) fn without_queues(c: ibv_qp_ex, functions: &'static Functions) -> Self {
        Self {
            c: UnsafeCell::new(c),
            functions,
            send_lock: Spin::new(true),
            receive_lock: Spin::new(true),
            receive: UnsafeCell::new(None),
            control_lock: Mutex::new(()),
            control: UnsafeCell::new(None),
            caps: QueuePairCaps {
                max_send_wr: 0,
                send_blocks: 0,
                max_wr_blocks: 0,
                max_recv_wr: 0,
                max_send_sge: 0,
                max_recv_sge: 0,
                max_inline_data: 0,
            },
            signal_all: false,
            heads: false,
            extended: false,
            dv: UnsafeCell::new(mlx5dv_qp_ex::blank()),
        }
    }

    /// Runs `body` with the receive half, if there is one, and its lock held.
    #[inline(always)]
    fn with_receive<R>(&self, body: impl FnOnce(Option<&mut ReceiveHalf>) -> R) -> R {
        // SAFETY: the lock is held.
        self.receive_lock.hold(|| body(unsafe { &mut *self.receive.get() }.as_mut()))
    }
}

impl<T: CTransport> QpOf<T> {
    /// # Safety
    /// `qp` is a queue pair of this transport that was not destroyed.
    #[inline(always)]
    pub(crate) unsafe fn of<'a>(qp: *mut ibv_qp) -> &'a Self {
        // SAFETY: the caller promises that `qp` is a queue pair of this transport: it is the first
        // field of an object of this type.
        unsafe { &*qp.cast() }
    }

    /// The send half, for a caller that holds the send lock.
    ///
    /// # Safety
    /// The caller holds `send_lock`, or no other code uses the queue pair, as long as the reference
    /// lives.
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "the lock makes it exclusive")]
    pub(crate) unsafe fn send(&self) -> &mut SendHalf<T> {
        // SAFETY: the caller holds `send_lock`, or no other code uses the queue pair.
        unsafe { &mut *self.send.get() }
    }

    /// Runs `body` with the send lock held. A thread that started a batch has it already: C takes
    /// no lock to change a state, so programs may do that before they complete the batch. It is
    /// empty then.
    fn hold_send<R>(&self, body: impl FnOnce() -> R) -> R {
        if !self.head.send_lock.is_mine() {
            return self.head.send_lock.hold(body);
        }
        // SAFETY: this thread holds the lock, and has started a batch.
        unsafe { building::drop_batch::<T>(self.head.as_c().cast()) };
        let result = body();
        // SAFETY: this thread holds the lock, its earlier batch was dropped, and the queue is back.
        unsafe { building::start_batch(self) };
        result
    }

    /// Runs `body` with the whole queue pair and all its locks held, so that no other thread uses
    /// it. The lock of the state is the last one, because a thread that started a batch may change
    /// the state.
    fn with_whole<R>(&self, body: impl FnOnce(QueuePair<T>) -> (R, Option<QueuePair<T>>)) -> R {
        let head = &self.head;
        self.hold_send(|| {
            head.receive_lock.hold(|| {
                let _held = head.control_lock.lock().unwrap_or_else(PoisonError::into_inner);
                // SAFETY: all locks are held. The halves are put back, or the object is not used
                // any more.
                unsafe {
                    let send = ManuallyDrop::take(&mut *self.send.get());
                    let receive = (*head.receive.get()).take();
                    let control = (*head.control.get()).take();
                    // Only a receiving end of extended connections has none.
                    let Some(control) = control else { std::process::abort() };
                    let (result, whole) = body(QueuePair::join(send, receive, control));
                    if let Some(whole) = whole {
                        let (send, receive, control) = whole.split();
                        self.send.get().write(ManuallyDrop::new(send));
                        *head.control.get() = Some(control);
                        *head.receive.get() = receive;
                    }
                    result
                }
            })
        })
    }

    /// The completion queues, each once.
    fn completion_queues(&self) -> impl Iterator<Item = &CqObject> {
        let (send, recv) = (self.head.send_cq(), self.head.recv_cq());
        let recv = (!recv.is_null() && recv != send).then_some(recv);
        let send = (!send.is_null()).then_some(send);
        // SAFETY: a completion queue outlives its queue pairs.
        send.into_iter().chain(recv).map(|cq| unsafe { CqObject::of(cq) })
    }
}
