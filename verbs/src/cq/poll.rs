//! Polling into C's completions.

use super::CqObject;
use super::PACKETS;
use crate::abi::*;
use mlx5::{CompletionErrorKind, CompletionOpcode, Opcode, Syndrome, WorkCompletion};

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

/// The provider's numbers for operations equal C's.
const _: () = {
    assert!(CompletionOpcode::Send.number() as c_uint == IBV_WC_SEND);
    assert!(CompletionOpcode::RdmaWrite.number() as c_uint == IBV_WC_RDMA_WRITE);
    assert!(CompletionOpcode::RdmaRead.number() as c_uint == IBV_WC_RDMA_READ);
    assert!(CompletionOpcode::CompareSwap.number() as c_uint == IBV_WC_COMP_SWAP);
    assert!(CompletionOpcode::FetchAdd.number() as c_uint == IBV_WC_FETCH_ADD);
    assert!(CompletionOpcode::BindWindow.number() as c_uint == IBV_WC_BIND_MW);
    assert!(CompletionOpcode::LocalInvalidate.number() as c_uint == IBV_WC_LOCAL_INV);
    assert!(CompletionOpcode::Tso.number() as c_uint == IBV_WC_TSO);
    assert!(CompletionOpcode::Receive.number() as c_uint == IBV_WC_RECV);
    assert!(CompletionOpcode::ReceiveRdmaWithImm.number() as c_uint == IBV_WC_RECV_RDMA_WITH_IMM);
    assert!(CompletionOpcode::TmAdd.number() as c_uint == IBV_WC_TM_ADD);
    assert!(CompletionOpcode::TmDel.number() as c_uint == IBV_WC_TM_DEL);
    assert!(CompletionOpcode::TmSync.number() as c_uint == IBV_WC_TM_SYNC);
    assert!(CompletionOpcode::TmReceive.number() as c_uint == IBV_WC_TM_RECV);
    assert!(CompletionOpcode::TmNoTag.number() as c_uint == IBV_WC_TM_NO_TAG);
    // A request that the program wrote itself.
    assert!(CompletionOpcode::Unnamed(0).number() as c_uint == IBV_WC_DRIVER2);
    // A request that configured a key.
    assert!(CompletionOpcode::Other(Opcode::Umr).number() as c_uint == IBV_WC_DRIVER1);
};

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
    // Few queue pairs are of raw packets, and few other completions have a checksum: test the tag
    // last.
    if completion.checksum_ok() == Some(true) && completion.user_tag() == PACKETS {
        flags |= IBV_WC_IP_CSUM_OK;
    }
    flags
}

/// Writes the fields of a successful completion; C, too, leaves the others unchanged.
#[inline(always)]
fn fill(wc: &mut ibv_wc, completion: &WorkCompletion<'_>) {
    wc.wr_id = completion.wr_id();
    wc.qp_num = completion.qp_num();
    // C sets it for the sender, too; its extended readers do not.
    wc.wc_flags = if completion.sent_immediate() { IBV_WC_WITH_IMM } else { 0 };
    wc.status = IBV_WC_SUCCESS;
    wc.opcode = completion.opcode_number().into();
    if let Some(length) = completion.byte_len() {
        wc.byte_len = length;
    }
    if completion.has_packet() {
        fill_received(wc, completion);
    }
}

/// Writes the fields of any completion.
fn fill_any(wc: &mut ibv_wc, completion: &WorkCompletion<'_>) {
    if let Err(error) = completion.status() {
        wc.wr_id = completion.wr_id();
        wc.qp_num = completion.qp_num();
        wc.wc_flags = 0;
        wc.status = status(error.kind);
        wc.vendor_err = error.vendor.into();
        return;
    }
    fill(wc, completion);
}

/// The fields of a received message.
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

/// The operation of `ibv_poll_cq`.
///
/// # Safety
/// `cq` was not destroyed, `wc` is writable for `num_entries` completions.
pub unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the caller promises that `cq` was not destroyed.
    let this = unsafe { CqObject::of(cq) };
    this.lock.lock();
    // SAFETY: the lock is held. The caller promises that `cq` was not destroyed, and that `wc` is
    // writable for `num_entries` completions.
    unsafe {
        if num_entries == 1 {
            return poll_one(cq, wc);
        }
        if this.cursor().queue().poll_nothing() {
            this.lock.unlock();
            return 0;
        }
        poll_many(cq, num_entries, wc)
    }
}

/// [`poll_cq`] for a single completion, after the lock was taken.
#[inline(never)]
unsafe extern "C" fn poll_one(cq: *mut ibv_cq, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the caller of `poll_cq` promises that `cq` was not destroyed and that `wc` is
    // writable for `num_entries` completions; the lock is held.
    unsafe { poll::<true>(cq, 1, wc) }
}

/// [`poll_cq`] for more, after the lock was taken.
#[inline(never)]
unsafe extern "C" fn poll_many(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the caller of `poll_cq` promises that `cq` was not destroyed and that `wc` is
    // writable for `num_entries` completions; the lock is held.
    unsafe { poll::<false>(cq, num_entries.max(0) as usize, wc) }
}

/// `ONE` means that `max` is one, which gets its own code.
#[inline(always)]
unsafe fn poll<const ONE: bool>(cq: *mut ibv_cq, max: usize, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the caller of `poll_cq` promises that `cq` was not destroyed and that `wc` is
    // writable for `num_entries` completions; the lock is held, and a place is less than `max`.
    unsafe {
        let this = CqObject::of(cq);
        let queue = this.cursor().queue();
        let (count, more) =
            queue.poll_fast(max, move |place, completion| fill(&mut *wc.add(place), &completion));
        if more {
            return poll_rest(cq, count, max, wc);
        }
        this.lock.unlock();
        count as c_int
    }
}

/// [`poll`] after `count` completions, off the fast path.
#[cold]
#[inline(never)]
unsafe fn poll_rest(cq: *mut ibv_cq, count: usize, max: usize, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the caller of `poll_cq` promises that `cq` was not destroyed and that `wc` is
    // writable for `num_entries` completions; the lock is held, and no more than `max` are written.
    unsafe {
        let this = CqObject::of(cq);
        let mut next = wc.add(count);
        let polled = this.cursor().queue().poll(max - count, |completion| {
            fill_any(&mut *next, &completion);
            next = next.add(1);
        });
        this.lock.unlock();
        match polled {
            Ok(more) => (count + more) as c_int,
            Err(_) if count == 0 => -1,
            // It is returned once no completion is left.
            Err(_) => count as c_int,
        }
    }
}
