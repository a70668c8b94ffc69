//! Binding memory windows of type 1.

use super::flags::flags_of;
use super::post::listed_errno;
use super::{CTransport, QpObject, QpOf};
use crate::abi::*;
use crate::mr::MrObject;
use crate::mw::{MwObject, binding};
use crate::refusal::{Refusal, status};
use mlx5::Change;
use mlx5::operation::BindWindow;

/// Binds a window, on a queue pair of transport `T`.
///
/// # Safety
/// As for [`bind_mw`].
pub(super) unsafe fn bind_of<T: CTransport>(
    qp: *mut ibv_qp,
    mw: *mut ibv_mw,
    bind: &ibv_mw_bind,
    rkey: u32,
    change: Change,
) -> c_int {
    // SAFETY: the caller of `bind_mw` promises that queue pair, window and region exist, and the
    // functions of the queue pair are those of transport `T`. The lock is held while the queue is
    // used.
    unsafe {
        let this = QpOf::<T>::of(qp);
        let binding = binding(mw, rkey, &bind.bind_info);
        let flags = flags_of::<T, BindWindow>(bind.send_flags);
        let posted = this.head.send_lock.hold(|| {
            let mut batch = this.send().wr_start();
            T::bind(&mut batch, bind.wr_id, flags, binding, change)?;
            batch.complete().map_err(|refused| refused.error())?;
            // Before another thread can cancel the request, which sets the previous key.
            (*mw).rkey = rkey;
            Ok(())
        });
        posted.map_or_else(listed_errno, |()| 0)
    }
}

/// The operation behind `ibv_bind_mw`, for windows of type 1: posts a request of its own. If that
/// is cancelled, the window has its previous key again.
///
/// # Safety
/// Queue pair, window and region exist, `bind` is readable.
pub unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp,
    mw: *mut ibv_mw,
    bind: *mut ibv_mw_bind,
) -> c_int {
    // SAFETY: the caller promises that `bind` is readable.
    let bind = unsafe { &*bind };
    let info = &bind.bind_info;
    let empty = info.mr.is_null() && (info.addr != 0 || info.length != 0);
    if empty || info.mw_access_flags & IBV_ACCESS_ZERO_BASED as c_uint != 0 {
        return status(Err(Refusal::INVALID));
    }
    if !info.mr.is_null() {
        // SAFETY: the caller promises that the region exists, and it is not NULL.
        let takes = unsafe { MrObject::check_bind(info.mr) };
        if takes.is_err() {
            return status(takes);
        }
    }
    // SAFETY: the caller promises that queue pair and window exist, and the functions of the queue
    // pair are those of its transport.
    unsafe {
        let rkey = (*mw).rkey;
        let next = rkey & !0xff | rkey.wrapping_add(1) & 0xff;
        let change = MwObject::of(mw).keys.bind(next);
        (QpObject::of(qp).functions.bind)(qp, mw, bind, next, change)
    }
}
