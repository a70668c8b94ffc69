//! The receiving ends of extended connections.

use super::{Functions, QpObject};
use crate::abi::*;
use crate::context::{ContextObject, wait_for_acks};
use crate::object::{Blank, boxed, destroy, destroyed};
use crate::refusal::{Refusal, Verb, object};
use crate::xrc::XrcdObject;
use mlx5::{Change, QpAttributes, QpNumber, XrcTarget};
use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::PoisonError;

/// The receiving end of extended connections.
#[repr(C)]
struct TargetObject {
    head: QpObject,
    target: UnsafeCell<ManuallyDrop<XrcTarget>>,
}

static FUNCTIONS: Functions = Functions {
    post_send: refuse_send,
    bind: refuse_bind,
    modify: modify_target,
    destroy: destroy_target,
    has_states: true,
};

/// A target sends nothing.
pub(super) unsafe fn refuse_send(
    _qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the caller of `post_send` promises that `bad_wr` is writable.
    unsafe { bad_wr.write(wr) };
    libc::EINVAL
}

/// Nor does it bind windows.
pub(super) unsafe fn refuse_bind(
    _qp: *mut ibv_qp,
    _mw: *mut ibv_mw,
    _bind: &ibv_mw_bind,
    _rkey: u32,
    _change: Change,
) -> c_int {
    libc::EINVAL
}

unsafe fn modify_target(this: &QpObject, attributes: &QpAttributes) -> Verb {
    let object: *const TargetObject = ptr::from_ref(this).cast();
    let _held = this.control_lock.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the functions are only those of targets, and the lock is held.
    let target = unsafe { &mut *(*object).target.get() };
    target.modify(attributes)?;
    this.set_state(target.state());
    Ok(())
}

unsafe fn destroy_target(this: *mut QpObject) -> Verb {
    let object: *mut TargetObject = this.cast();
    // SAFETY: the caller of `destroy_qp` promises that the queue pair was not destroyed; the
    // functions are only those of targets.
    unsafe {
        let id = (*(*object).target.get()).id();
        destroy(object, (*object).target.get(), |target| {
            destroyed(target.destroy()).map_err(|(_, error)| error)?;
            let delivered = (*this).context().objects.qps.remove(&id);
            let base = (*this).as_c();
            let (mutex, cond) = (&raw mut (*base).mutex, &raw mut (*base).cond);
            wait_for_acks(mutex, cond, &raw const (*base).events_completed, delivered);
            Ok(())
        })
    }
}

/// The object of a target.
fn wrap(
    context: *mut ibv_context,
    qp_context: *mut c_void,
    target: XrcTarget,
    state: c_uint,
) -> *mut ibv_qp {
    let mut c = ibv_qp_ex::blank();
    let base = &mut c.qp_base;
    base.context = context;
    base.qp_context = qp_context;
    base.handle = target.kernel_handle();
    base.qp_num = target.qp_num();
    base.state = state;
    base.qp_type = IBV_QPT_XRC_RECV;
    base.mutex = libc::PTHREAD_MUTEX_INITIALIZER;
    base.cond = libc::PTHREAD_COND_INITIALIZER;
    let id = target.id();
    let head = QpObject::without_queues(c, &FUNCTIONS);
    let target = UnsafeCell::new(ManuallyDrop::new(target));
    let made: *mut ibv_qp = boxed(TargetObject { head, target });
    // SAFETY: the callers promise that the context is open.
    unsafe { ContextObject::of(context) }.objects.qps.add(id, made);
    made
}

/// Creates the receiving end of extended connections.
///
/// # Safety
/// As for `create_qp_ex`.
pub(crate) unsafe fn create_target(
    context: *mut ibv_context,
    init: &ibv_qp_init_attr_ex,
) -> Verb<*mut ibv_qp> {
    if init.comp_mask & IBV_QP_INIT_ATTR_XRCD == 0 || init.xrcd.is_null() {
        return Err(Refusal::INVALID);
    }
    // SAFETY: the caller promises that the domain exists, and it is not NULL.
    let target = unsafe { XrcdObject::of(init.xrcd) }.domain.create_target()?;
    let made = wrap(context, init.qp_context, target, IBV_QPS_RESET);
    // The device uses none of these; librdmacm makes shared receive queues of the protection
    // domain.
    // SAFETY: the object was just made, and no other code has a pointer to it.
    unsafe {
        if init.comp_mask & IBV_QP_INIT_ATTR_PD != 0 {
            (*made).pd = init.pd;
        }
        (*made).send_cq = init.send_cq;
        (*made).recv_cq = init.recv_cq;
        (*made).srq = init.srq;
    }
    Ok(made)
}

/// The operation behind `ibv_open_qp`.
///
/// # Safety
/// `context` is open, `attr` is readable; the domain that it names exists.
pub unsafe extern "C" fn open_qp(
    context: *mut ibv_context,
    attr: *mut ibv_qp_open_attr,
) -> *mut ibv_qp {
    const WANTED: u32 = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
    const KNOWN: u32 = WANTED | IBV_QP_OPEN_ATTR_CONTEXT;
    // SAFETY: the caller promises that `attr` is readable.
    let attr = unsafe { &*attr };
    let open = || {
        if attr.comp_mask & !KNOWN != 0
            || attr.comp_mask & WANTED != WANTED
            || attr.qp_type != IBV_QPT_XRC_RECV
        {
            return Err(Refusal::INVALID);
        }
        let number = QpNumber::new(attr.qp_num).map_err(|_| Refusal::INVALID)?;
        // SAFETY: the caller promises that the domain that `attr` names exists.
        let target = unsafe { XrcdObject::of(attr.xrcd) }.domain.open_target(number)?;
        let has_context = attr.comp_mask & IBV_QP_OPEN_ATTR_CONTEXT != 0;
        let qp_context = if has_context { attr.qp_context } else { ptr::null_mut() };
        // As C has it, until the program asks or sets it.
        Ok(wrap(context, qp_context, target, IBV_QPS_UNKNOWN))
    };
    object(open())
}
