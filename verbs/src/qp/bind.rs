//! Binding memory windows of type 1.

use super::post::post_send;
use crate::abi::*;
use crate::object::Blank;
use crate::refusal::{Refusal, status};
use std::ptr;

/// The operation behind `ibv_bind_mw`, for windows of type 1: posts a request of its own.
///
/// # Safety
/// Queue pair, window and region exist, `bind` is readable.
pub unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp,
    mw: *mut ibv_mw,
    bind: *mut ibv_mw_bind,
) -> c_int {
    // SAFETY: by the contract.
    let bind = unsafe { &*bind };
    let info = &bind.bind_info;
    let empty = info.mr.is_null() && (info.addr != 0 || info.length != 0);
    if empty || info.mw_access_flags & IBV_ACCESS_ZERO_BASED as c_uint != 0 {
        return status(Err(Refusal::INVALID));
    }
    // SAFETY: by the contract.
    let rkey = unsafe { (*mw).rkey };
    let next = rkey & !0xff | rkey.wrapping_add(1) & 0xff;
    let mut wr = ibv_send_wr::blank();
    wr.wr_id = bind.wr_id;
    wr.send_flags = bind.send_flags;
    wr.opcode = IBV_WR_BIND_MW;
    wr.ext.bind_mw = ibv_send_wr_u1_bind_mw { mw, rkey: next, bind_info: *info };
    let mut bad = ptr::null_mut();
    // SAFETY: by the contract; a list of one request.
    let refused = unsafe { post_send(qp, &raw mut wr, &raw mut bad) };
    if refused == 0 {
        // SAFETY: by the contract.
        unsafe { (*mw).rkey = next };
    }
    refused
}
