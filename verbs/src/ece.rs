//! Enhanced connection establishment: options beyond the standard on which two devices agree. This
//! provider uses none, so it answers with no option, which any peer understands.

use crate::abi::*;
use crate::refusal::{Refusal, status};

/// NVIDIA's number on the PCI bus.
const VENDOR: u32 = 0x15b3;

/// `ibv_set_ece`: accepts the peer's options, and uses none of them.
///
/// # Safety
/// `ece` is valid.
pub unsafe extern "C" fn set_ece(_qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    // SAFETY: the caller promises that `ece` is valid.
    let ece = unsafe { &*ece };
    status(match ece.vendor_id {
        0 => Err(Refusal::NOT_SUPPORTED),
        VENDOR if ece.comp_mask == 0 => Ok(()),
        _ => Err(Refusal::INVALID),
    })
}

/// `ibv_query_ece`: no option.
///
/// # Safety
/// `ece` is writable.
pub unsafe extern "C" fn query_ece(_qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    // SAFETY: the caller promises that `ece` is writable.
    unsafe { ece.write(ibv_ece { vendor_id: VENDOR, options: 0, comp_mask: 0 }) };
    0
}
