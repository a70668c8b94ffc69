//! Creating and destroying queue pairs.

use super::building::Building;
use super::driver;
use super::extended;
use super::hash::create_hash;
use super::packet::Packets;
use super::target::create_target;
use super::{Address, CTransport, Functions, QpObject, QpOf, bind, post};
use crate::abi::mlx5dv::mlx5dv_qp_ex;
use crate::abi::*;
use crate::close;
use crate::context::wait_for_acks;
use crate::cq::CqObject;
use crate::environment;
use crate::object::{Blank, ended};
use crate::parent::Purpose;
use crate::pd::PdObject;
use crate::refusal::{Refusal, Verb, object, status};
use crate::spare;
use crate::spin::Spin;
use crate::srq::{Queue, SrqObject};

use mlx5::transport::{RawPacket, Rc, Uc, Ud, XrcSend};
use mlx5::{CompletionTarget, InlineMode, QpId, QueuePair, SendOps};
use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;
use std::sync::Mutex;

/// The functions of a transport.
struct Of<T>(T);

impl<T: CTransport> Of<T> {
    const FUNCTIONS: &'static Functions = &Functions {
        post_send: post::post_send_to::<T>,
        bind: bind::bind_of::<T>,
        modify: super::modify::modify_of::<T>,
        destroy: destroy_of::<T>,
        has_states: true,
    };
}

/// Parameters of a queue pair.
struct Wanted<'a> {
    pd: *mut ibv_pd,
    init: &'a ibv_qp_init_attr,
    create_flags: u32,
    send_ops: Option<u64>,
    driver: Driver,
    /// The parameters of raw packets, including those of `driver`.
    packets: Packets,
}

/// The additional parameters of `mlx5dv_create_qp`.
#[derive(Clone, Copy, Default)]
pub(crate) struct Driver {
    /// Operations of [`driver::SUPPORTED`].
    pub(crate) send_ops: u64,
    /// Short messages may lie in the CQE, also those of a responder.
    pub(crate) scatter_to_cqe: bool,
    /// The send queue drains on a signature error.
    pub(crate) pipelining: bool,
    /// The parameters of raw packets.
    pub(crate) packets: Packets,
}

impl Driver {
    /// Minimum number of entries that a request may give a key, if it may configure one. As in C,
    /// that depends on the inline data.
    fn entries(&self, inline: u32) -> Option<u32> {
        (self.send_ops & driver::CONFIGURE != 0).then(|| (inline.saturating_add(4) / 16).max(4))
    }
}

unsafe fn make_of<T: CTransport>(wanted: &Wanted<'_>) -> Verb<*mut QpObject> {
    let init = wanted.init;
    if init.send_cq.is_null() || (init.recv_cq.is_null() && T::ADDRESS != Address::Srq) {
        return Err(Refusal::INVALID);
    }
    let recv_cq = if init.recv_cq.is_null() { init.send_cq } else { init.recv_cq };
    // SAFETY: the caller of `create_qp` promises that the protection domain exists.
    let (context, pd) = unsafe { (PdObject::context(wanted.pd), PdObject::of(wanted.pd)) };
    let thread_domain = pd.thread_domain();
    let allocator = pd.allocator(Purpose::QueuePair).or_else(|| context.dv.allocator());
    let ops = match wanted.send_ops {
        Some(ops) => SendOps::from_bits(ops)
            .filter(|&ops| extended::supported::<T>().contains(ops))
            .ok_or(Refusal::NOT_SUPPORTED)?,
        None if wanted.driver.send_ops != 0 => SendOps::empty(),
        // Room for what any program may post, as C leaves it.
        None => SendOps::of::<T>() & (SendOps::BIND_MW | SendOps::LOCAL_INV),
    };
    let receives = init.srq.is_null() && T::ADDRESS != Address::Srq && init.cap.max_recv_wr != 0;
    let build = |send_cq: CompletionTarget, recv_cq: CompletionTarget| -> Verb<QueuePair<T>> {
        let mut builder = pd
            .domain
            .create_qp_on::<T>(send_cq, recv_cq)
            .max_send_wr(init.cap.max_send_wr)
            .max_recv_wr(init.cap.max_recv_wr)
            .max_send_sge(init.cap.max_send_sge)
            .max_recv_sge(init.cap.max_recv_sge)
            .max_inline_data(init.cap.max_inline_data)
            .signal_all(init.sq_sig_all != 0)
            .block_multicast_loopback(
                // The kernel takes the flag for packets, and has no use for it.
                wanted.create_flags & IBV_QP_CREATE_BLOCK_SELF_MCAST_LB != 0
                    && init.qp_type != IBV_QPT_RAW_PACKET,
            )
            .send_ops(ops)
            .wqe_signature(!receives && environment::signed_requests());
        if !init.srq.is_null() {
            // SAFETY: the caller of `create_qp` promises that the shared receive queue exists, and
            // it is not NULL.
            let srq = unsafe { SrqObject::of(init.srq) };
            builder = match srq.has_tags {
                // Without the lock, which a thread that posts may have in the parent of this
                // process.
                false => builder.srq_of(&srq.control)?,
                // Without sends, the device uses the send queue for rendezvous data.
                true => srq
                    .with(|queue| match queue {
                        Queue::Tags(tags) => {
                            T::with_tags(builder, &tags.queue, init.cap.max_send_wr != 0)
                        }
                        Queue::Plain(_) => None,
                    })
                    .ok_or(Refusal::INVALID)?,
            };
        }
        let entries = wanted.driver.entries(init.cap.max_inline_data);
        if wanted.driver.scatter_to_cqe {
            builder = builder.scatter_to_cqe(true);
        }
        if entries.is_some() || wanted.driver.pipelining {
            let made = T::with_keys(builder, entries, wanted.driver.pipelining);
            builder = made.ok_or(Refusal::NOT_SUPPORTED)?;
        }
        let packets = wanted.packets;
        if init.qp_type == IBV_QPT_RAW_PACKET || packets != Packets::default() {
            builder = T::with_packets(builder, packets).ok_or(packets.elsewhere())?;
        }
        if let Some(domain) = thread_domain {
            builder = builder.thread_domain(domain);
        }
        builder = match &allocator {
            Some(allocator) => builder.allocator(allocator),
            None => builder.huge_pages(environment::pages("MLX_QP_ALLOC_TYPE")),
        };
        Ok(builder.build()?)
    };
    // SAFETY: the caller of `create_qp` promises that the completion queues exist, and they are not
    // NULL. No lock is held while the program's functions are called.
    let qp = unsafe {
        let send_target = CqObject::of(init.send_cq).target();
        let recv_target = match recv_cq == init.send_cq {
            true => send_target.clone(),
            false => CqObject::of(recv_cq).target(),
        };
        build(send_target, recv_target)
    }?;
    let (id, caps) = (qp.id(), qp.caps());
    let (send, receive, control) = qp.split();
    let mut c = ibv_qp_ex::blank();
    // SAFETY: the caller of `create_qp` promises that the protection domain exists.
    c.qp_base.context = unsafe { (*wanted.pd).context };
    c.qp_base.qp_context = init.qp_context;
    c.qp_base.pd = wanted.pd;
    c.qp_base.send_cq = init.send_cq;
    c.qp_base.recv_cq = init.recv_cq;
    c.qp_base.srq = init.srq;
    c.qp_base.handle = control.kernel_handle().unwrap_or(0);
    c.qp_base.qp_num = control.qp_num();
    c.qp_base.state = IBV_QPS_RESET;
    c.qp_base.qp_type = init.qp_type;
    c.qp_base.mutex = libc::PTHREAD_MUTEX_INITIALIZER;
    c.qp_base.cond = libc::PTHREAD_COND_INITIALIZER;
    let extended = wanted.send_ops.is_some() || wanted.driver.send_ops != 0;
    if extended {
        extended::fill::<T>(&mut c);
    }
    let mut dv = mlx5dv_qp_ex::blank();
    if wanted.driver.send_ops != 0 {
        driver::fill::<T>(&mut dv);
    }
    let heads = init.qp_type == IBV_QPT_RAW_PACKET
        && context.context.query_device().ethernet.inline_mode != InlineMode::None;
    let building = match extended {
        true => Building::new::<T>(&caps, wanted.packets.max_tso_header, heads),
        false => Building::default(),
    };
    let locks = context.environment.locks && thread_domain.is_none();
    pd.hold();
    let made = spare::QUEUE_PAIRS.put(QpOf::<T> {
        head: QpObject {
            c: UnsafeCell::new(c),
            functions: Of::<T>::FUNCTIONS,
            send_lock: Spin::new(locks),
            receive_lock: Spin::new(locks),
            receive: UnsafeCell::new(receive),
            control_lock: Mutex::new(()),
            control: UnsafeCell::new(Some(control)),
            caps,
            signal_all: init.sq_sig_all != 0,
            heads,
            extended,
            dv: UnsafeCell::new(dv),
        },
        send: UnsafeCell::new(ManuallyDrop::new(send)),
        building: UnsafeCell::new(building),
    });
    context.objects.qps.add(id, made.cast());
    Ok(made.cast())
}

unsafe fn make(wanted: &Wanted<'_>) -> Verb<*mut QpObject> {
    // SAFETY: the caller of `create_qp` promises that protection domain, completion queues and
    // shared receive queue exist.
    unsafe {
        match wanted.init.qp_type {
            IBV_QPT_RC => make_of::<Rc>(wanted),
            IBV_QPT_UC => make_of::<Uc>(wanted),
            IBV_QPT_UD => make_of::<Ud>(wanted),
            IBV_QPT_XRC_SEND => make_of::<XrcSend>(wanted),
            IBV_QPT_RAW_PACKET => make_of::<RawPacket>(wanted),
            IBV_QPT_DRIVER => Err(Refusal::NOT_SUPPORTED),
            _ => Err(Refusal::INVALID),
        }
    }
}

/// `ibv_create_qp`.
///
/// # Safety
/// `pd` exists, and so does what the attributes name; `init` is readable, its sizes are writable.
pub unsafe extern "C" fn create_qp(pd: *mut ibv_pd, init: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    // SAFETY: the caller promises that `pd` and the objects that `init` names exist, that `init` is
    // readable and that its sizes are writable.
    object(unsafe {
        let (driver, packets) = (Driver::default(), Packets::default());
        let wanted = Wanted { pd, init: &*init, create_flags: 0, send_ops: None, driver, packets };
        make(&wanted).map(|made| {
            (*init).cap = (*made).sizes();
            made.cast()
        })
    })
}

/// Creates a queue pair of extended attributes.
///
/// # Safety
/// As for [`create_qp`].
pub(crate) unsafe fn create_ex(
    context: *mut ibv_context,
    init: *mut ibv_qp_init_attr_ex,
    driver: Driver,
) -> Verb<*mut ibv_qp> {
    const KNOWN: u32 = IBV_QP_INIT_ATTR_PD
        | IBV_QP_INIT_ATTR_XRCD
        | IBV_QP_INIT_ATTR_CREATE_FLAGS
        | IBV_QP_INIT_ATTR_MAX_TSO_HEADER
        | IBV_QP_INIT_ATTR_IND_TABLE
        | IBV_QP_INIT_ATTR_RX_HASH
        | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    /// The flags of packets.
    const OF_PACKETS: u32 = IBV_QP_CREATE_SCATTER_FCS
        | IBV_QP_CREATE_CVLAN_STRIPPING
        | IBV_QP_CREATE_PCI_WRITE_END_PADDING;
    // SAFETY: the caller promises that `init` is readable and that the objects that it names exist.
    // The attributes start with those of `create_qp`.
    unsafe {
        let ex = &*init;
        let has = |bit: u32| ex.comp_mask & bit != 0;
        if ex.comp_mask & !KNOWN != 0 {
            return Err(Refusal::NOT_SUPPORTED);
        }
        if ex.qp_type == IBV_QPT_XRC_RECV {
            return create_target(context, ex);
        }
        if has(IBV_QP_INIT_ATTR_RX_HASH) {
            return create_hash(context, ex, driver.packets);
        }
        let of_packets = has(IBV_QP_INIT_ATTR_MAX_TSO_HEADER);
        if !has(IBV_QP_INIT_ATTR_PD)
            || has(IBV_QP_INIT_ATTR_IND_TABLE)
            || of_packets && ex.qp_type != IBV_QPT_RAW_PACKET
        {
            return Err(Refusal::INVALID);
        }
        let create_flags = if has(IBV_QP_INIT_ATTR_CREATE_FLAGS) { ex.create_flags } else { 0 };
        let send_ops = has(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS).then_some(ex.send_ops_flags);
        if create_flags & IBV_QP_CREATE_SOURCE_QPN != 0 && ex.qp_type != IBV_QPT_UD {
            return Err(Refusal::INVALID);
        }
        if create_flags & IBV_QP_CREATE_SOURCE_QPN != 0 {
            return Err(Refusal::NOT_SUPPORTED);
        }
        if create_flags & !(IBV_QP_CREATE_BLOCK_SELF_MCAST_LB | OF_PACKETS) != 0 {
            return Err(Refusal::INVALID);
        }
        let max_tso_header = if of_packets { ex.max_tso_header } else { 0 };
        let packets = Packets { max_tso_header, ..driver.packets.with(create_flags) };
        let first: *mut ibv_qp_init_attr = init.cast();
        let wanted = Wanted { pd: ex.pd, init: &*first, create_flags, send_ops, driver, packets };
        let made = make(&wanted)?;
        (*init).cap = (*made).sizes();
        Ok(made.cast())
    }
}

/// The operation behind `ibv_create_qp_ex`.
///
/// # Safety
/// As for [`create_qp`].
pub unsafe extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    init: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    // SAFETY: the caller promises that the context is open, that `init` is readable and that the
    // objects that it names exist.
    object(unsafe { create_ex(context, init, Driver::default()) })
}

unsafe fn destroy_of<T: CTransport>(this: *mut QpObject) -> Verb {
    let whole: *mut QpOf<T> = this.cast();
    // SAFETY: the caller of `destroy_qp` promises that the queue pair was not destroyed. A thread
    // that handles an event of it may call it until the event is acknowledged, and is refused: the
    // queues are freed last.
    unsafe {
        let id = (*this).with_control(|control| {
            ended(control.withdraw().map_err(Into::into))?;
            Ok(control.id())
        })?;
        let parent = PdObject::counting((*this).pd());
        drop_events(this, id);
        ManuallyDrop::drop(&mut *(*whole).send.get());
        spare::QUEUE_PAIRS.drop(whole);
        // Its functions have the memory back now.
        parent.inspect(|parent| parent.release_queue());
    }
    close::again();
    Ok(())
}

/// Waits until the events of a queue pair that was destroyed are acknowledged.
unsafe fn drop_events(this: *mut QpObject, id: QpId) {
    // SAFETY: the caller of `destroy_qp` promises that the queue pair was not destroyed before: its
    // memory is freed after this.
    unsafe {
        let delivered = (*this).context().objects.qps.remove(&id);
        let base = (*this).as_c();
        let (mutex, cond) = (&raw mut (*base).mutex, &raw mut (*base).cond);
        wait_for_acks(mutex, cond, &raw const (*base).events_completed, delivered);
    }
}

/// `ibv_destroy_qp`: its completions vanish; waits until its events are acknowledged.
///
/// # Safety
/// `qp` was not destroyed. If the call succeeds, it is used no more.
pub unsafe extern "C" fn destroy_qp(qp: *mut ibv_qp) -> c_int {
    // SAFETY: the caller promises that `qp` was not destroyed, and its functions are those of its
    // transport.
    status(unsafe { (QpObject::of(qp).functions.destroy)(qp.cast()) })
}
