//! Queue pairs that spread received packets over a table of work queues.

use super::target::{refuse_bind, refuse_send};
use super::{Functions, QpObject};
use crate::abi::*;
use crate::context::{ContextObject, wait_for_acks};
use crate::object::{Blank, boxed, destroy, destroyed};
use crate::pd::PdObject;
use crate::refusal::{Refusal, Verb};
use crate::wq::TableObject;
use mlx5::{HashKey, HashQueuePair, QpAttributes, RxHashFields};
use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;

use super::packet::Packets;

/// Such a queue pair.
#[repr(C)]
struct HashObject {
    head: QpObject,
    hash: UnsafeCell<ManuallyDrop<HashQueuePair>>,
}

static FUNCTIONS: Functions = Functions {
    post_send: refuse_send,
    bind: refuse_bind,
    modify: refuse_modify,
    destroy: destroy_hash,
    has_states: false,
};

/// It receives as soon as it is there.
unsafe fn refuse_modify(_this: &QpObject, _attributes: &QpAttributes) -> Verb {
    Err(Refusal::NOT_SUPPORTED)
}

unsafe fn destroy_hash(this: *mut QpObject) -> Verb {
    let object: *mut HashObject = this.cast();
    // SAFETY: the caller of `destroy_qp` promises that the queue pair was not destroyed; the
    // functions are only those of these queue pairs.
    unsafe {
        let id = (*(*object).hash.get()).id();
        destroy(object, (*object).hash.get(), |hash| {
            destroyed(hash.destroy()).map_err(|(_, error)| error)?;
            let delivered = (*this).context().objects.qps.remove(&id);
            let base = (*this).as_c();
            let (mutex, cond) = (&raw mut (*base).mutex, &raw mut (*base).cond);
            wait_for_acks(mutex, cond, &raw const (*base).events_completed, delivered);
            Ok(())
        })
    }
}

/// The key of a hash.
///
/// # Safety
/// The key of `conf` is readable.
unsafe fn key(conf: &ibv_rx_hash_conf) -> Verb<HashKey> {
    let mut key = HashKey::default();
    if usize::from(conf.rx_hash_key_len) != key.0.len() {
        return Err(Refusal::INVALID);
    }
    // SAFETY: the caller promises that the key is readable, and it has the length of `key`.
    unsafe { key.0.as_mut_ptr().copy_from(conf.rx_hash_key, key.0.len()) };
    Ok(key)
}

/// Creates a queue pair that spreads packets.
///
/// # Safety
/// As for `create_qp_ex`.
pub(super) unsafe fn create_hash(
    context: *mut ibv_context,
    init: &ibv_qp_init_attr_ex,
    packets: Packets,
) -> Verb<*mut ibv_qp> {
    let has = |bits: u32| init.comp_mask & bits == bits;
    let conf = &init.rx_hash_conf;
    if !has(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE)
        || init.rwq_ind_tbl.is_null()
        || has(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
        || init.cap.max_recv_wr != 0
        || init.cap.max_recv_sge != 0
        // Without sends, their completion queue has no meaning, and C's library passes over it.
        || init.cap.max_send_wr != 0
        || !init.recv_cq.is_null()
        || !init.srq.is_null()
    {
        return Err(Refusal::INVALID);
    }
    let create_flags = if has(IBV_QP_INIT_ATTR_CREATE_FLAGS) { init.create_flags } else { 0 };
    if create_flags != 0
        || init.qp_type != IBV_QPT_RAW_PACKET
        || c_uint::from(conf.rx_hash_function) != IBV_RX_HASH_FUNC_TOEPLITZ
    {
        return Err(Refusal::NOT_SUPPORTED);
    }
    let fields = u32::try_from(conf.rx_hash_fields_mask).map_err(|_| Refusal::NOT_SUPPORTED)?;
    if fields & IBV_RX_HASH_INNER != 0 && !packets.tunnels {
        return Err(Refusal::NOT_SUPPORTED);
    }
    // SAFETY: the caller of `create_qp_ex` promises that table and protection domain exist and that
    // the key is readable.
    let hash = unsafe {
        let table = TableObject::table(init.rwq_ind_tbl);
        PdObject::of(init.pd)
            .domain
            .create_hash_qp(&table)
            .fields(RxHashFields::from_bits_retain(fields.into()))
            .key(key(conf)?)
            .tunnel_offloads(packets.tunnels)
            .self_loopback(packets.own_unicast, packets.own_multicast)
            .build()?
    };
    let mut c = ibv_qp_ex::blank();
    let base = &mut c.qp_base;
    base.context = context;
    base.qp_context = init.qp_context;
    base.pd = init.pd;
    base.handle = hash.kernel_handle().unwrap_or(0);
    base.state = IBV_QPS_RESET;
    base.qp_type = init.qp_type;
    base.mutex = libc::PTHREAD_MUTEX_INITIALIZER;
    base.cond = libc::PTHREAD_COND_INITIALIZER;
    let id = hash.id();
    let head = QpObject::without_queues(c, &FUNCTIONS);
    let made: *mut ibv_qp =
        boxed(HashObject { head, hash: UnsafeCell::new(ManuallyDrop::new(hash)) });
    // SAFETY: the caller of `create_qp_ex` promises that the context is open.
    unsafe { ContextObject::of(context) }.objects.qps.add(id, made);
    Ok(made)
}
