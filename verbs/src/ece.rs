//! Enhanced connection establishment: what two devices agree on beyond the standard. This provider asks for
//! nothing beyond it, so its answer is no option, which a peer of any kind understands.

use crate::abi::*;
use crate::refusal::{Refusal, status};

/// NVIDIA's number on the PCI bus.
const VENDOR: u32 = 0x15b3;

/// `ibv_set_ece`: takes what the peer offers, and uses none of it.
///
/// # Safety
/// `ece` is valid.
pub unsafe extern "C" fn set_ece(_qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    // SAFETY: by the contract.
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
    // SAFETY: by the contract.
    unsafe { ece.write(ibv_ece { vendor_id: VENDOR, options: 0, comp_mask: 0 }) };
    0
}
