//! Polling into C's completions.

use super::CqObject;
use crate::abi::*;
use mlx5::{CompletionErrorKind, CompletionOpcode, Syndrome, WorkCompletion};

/// `enum ibv_wc_status` of an error.
pub(crate) const fn status(kind: CompletionErrorKind) -> c_uint {
    match kind {
        CompletionErrorKind::Known(syndrome) => match syndrome {
            Syndrome::LocalLength => IBV_WC_LOC_LEN_ERR,
            Syndrome::LocalQpOperation => IBV_WC_LOC_QP_OP_ERR,
            Syndrome::LocalProtection => IBV_WC_LOC_PROT_ERR,
            Syndrome::WorkRequestFlushed => IBV_WC_WR_FLUSH_ERR,
            Syndrome::MemoryWindowBind => IBV_WC_MW_BIND_ERR,
            Syndrome::BadResponse => IBV_WC_BAD_RESP_ERR,
            Syndrome::LocalAccess => IBV_WC_LOC_ACCESS_ERR,
            Syndrome::RemoteInvalidRequest => IBV_WC_REM_INV_REQ_ERR,
            Syndrome::RemoteAccess => IBV_WC_REM_ACCESS_ERR,
            Syndrome::RemoteOperation => IBV_WC_REM_OP_ERR,
            Syndrome::RetryExceeded => IBV_WC_RETRY_EXC_ERR,
            Syndrome::RnrRetryExceeded => IBV_WC_RNR_RETRY_EXC_ERR,
            Syndrome::RemoteAborted => IBV_WC_REM_ABORT_ERR,
        },
        CompletionErrorKind::Unknown(_) => IBV_WC_GENERAL_ERR,
        CompletionErrorKind::TagConsumed | CompletionErrorKind::MessageCanceled => IBV_WC_TM_ERR,
        CompletionErrorKind::RendezvousIncomplete => IBV_WC_TM_RNDV_INCOMPLETE,
    }
}

/// `enum ibv_wc_opcode`.
#[inline(always)]
pub(crate) const fn opcode(opcode: CompletionOpcode) -> c_uint {
    match opcode {
        CompletionOpcode::Send => IBV_WC_SEND,
        CompletionOpcode::RdmaWrite => IBV_WC_RDMA_WRITE,
        CompletionOpcode::RdmaRead => IBV_WC_RDMA_READ,
        CompletionOpcode::CompareSwap => IBV_WC_COMP_SWAP,
        CompletionOpcode::FetchAdd => IBV_WC_FETCH_ADD,
        CompletionOpcode::BindWindow => IBV_WC_BIND_MW,
        CompletionOpcode::LocalInvalidate => IBV_WC_LOCAL_INV,
        CompletionOpcode::Receive => IBV_WC_RECV,
        CompletionOpcode::ReceiveRdmaWithImm => IBV_WC_RECV_RDMA_WITH_IMM,
        CompletionOpcode::TmAdd => IBV_WC_TM_ADD,
        CompletionOpcode::TmDel => IBV_WC_TM_DEL,
        CompletionOpcode::TmSync => IBV_WC_TM_SYNC,
        CompletionOpcode::TmReceive => IBV_WC_TM_RECV,
        CompletionOpcode::TmNoTag => IBV_WC_TM_NO_TAG,
        // A request that the program wrote itself.
        CompletionOpcode::Unnamed(_) => IBV_WC_DRIVER2,
        // A key that was configured.
        _ => IBV_WC_DRIVER1,
    }
}

/// The flags of a receive.
#[inline(always)]
pub(crate) fn flags(completion: &WorkCompletion<'_>) -> c_uint {
    let mut flags = 0;
    if completion.has_grh() == Some(true) {
        flags |= IBV_WC_GRH;
    }
    if completion.imm_data().is_some() {
        flags |= IBV_WC_WITH_IMM;
    }
    if completion.invalidated_rkey().is_some() {
        flags |= IBV_WC_WITH_INV;
    }
    flags
}

/// Writes the fields that a completion has; C leaves the others as they are, too.
#[inline(always)]
fn fill(wc: &mut ibv_wc, completion: &WorkCompletion<'_>) {
    wc.wr_id = completion.wr_id();
    wc.qp_num = completion.qp_num();
    wc.wc_flags = 0;
    if let Err(error) = completion.status() {
        wc.status = status(error.kind);
        wc.vendor_err = error.vendor.into();
        return;
    }
    wc.status = IBV_WC_SUCCESS;
    wc.opcode = opcode(completion.opcode());
    if let Some(length) = completion.byte_len() {
        wc.byte_len = length;
    }
    if completion.src_qp().is_some() {
        fill_received(wc, completion);
    }
}

/// The fields of a message that came.
#[inline(always)]
fn fill_received(wc: &mut ibv_wc, completion: &WorkCompletion<'_>) {
    wc.wc_flags = flags(completion);
    wc.src_qp = completion.src_qp().unwrap_or(0);
    wc.slid = completion.slid().unwrap_or(0);
    wc.sl = completion.service_level().unwrap_or(0);
    wc.dlid_path_bits = completion.dlid_path_bits().unwrap_or(0);
    if let Some(immediate) = completion.imm_data() {
        wc.imm.imm_data = Be32::from_ne_bytes(immediate);
    } else if let Some(rkey) = completion.invalidated_rkey() {
        wc.imm.invalidated_rkey = rkey;
    }
    if let Some(index) = completion.pkey_index() {
        wc.pkey_index = index;
    }
}

/// The operation behind `ibv_poll_cq`.
///
/// # Safety
/// `cq` was not destroyed, `wc` is writable for `num_entries` completions.
pub unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: by the contract.
    let this = unsafe { CqObject::of(cq) };
    let mut next = wc;
    this.lock.lock();
    // SAFETY: the lock is held.
    let queue = unsafe { this.cursor() }.queue();
    let polled = queue.poll(num_entries.max(0) as usize, |completion| {
        // SAFETY: at most `num_entries` completions come.
        unsafe {
            fill(&mut *next, &completion);
            next = next.add(1);
        }
    });
    this.lock.unlock();
    match polled {
        Ok(count) => count as c_int,
        Err(_) => -1,
    }
}
