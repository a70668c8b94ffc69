//! `mlx5dv_init_obj`: the parts of objects in memory, for programs that drive queues themselves.
//!
//! From then on this library only creates, modifies and destroys a queue pair, shared receive queue
//! or work queue. It does not change a completion queue, not even for a queue pair that is
//! destroyed or reset, until the program polls it by `ibv_poll_cq`: that poll starts after the
//! completions that the program polled itself, as the doorbell record says, and skips completions
//! of such a queue pair. C's library removes nothing from a queue that was handed over, and its
//! next poll fails at a completion that names a destroyed queue pair.

use super::devx::DevxObject;
use crate::abi::mlx5dv::*;
use crate::abi::*;
use crate::ah::AhObject;
use crate::context::ContextObject;
use crate::cq::CqObject;
use crate::dm::DmObject;
use crate::pd::PdObject;
use crate::qp::QpObject;
use crate::refusal::{Refusal, Verb, status};
use crate::srq::SrqObject;
use crate::wq::WqObject;
use mlx5::{CompletionQueue, RawCompletionQueue};

unsafe fn queue_pair(from: *mut ibv_qp, to: *mut mlx5dv_qp) -> Verb {
    // SAFETY: the caller of `init_obj` promises that the object exists, and that `to` is writable
    // as far as its mask asks.
    unsafe {
        let parts = QpObject::of(from).with_control(|control| {
            let parts = control.raw_parts()?;
            control.report_unrecorded();
            Ok(parts)
        })?;
        let (asked, mut answered) = ((*to).comp_mask, 0);
        (*to).dbrec = parts.record.as_ptr().cast();
        let ring = parts.send;
        (*to).sq.buf = ring.start.as_ptr().cast();
        (*to).sq.wqe_cnt = ring.entries;
        (*to).sq.stride = ring.stride;
        let ring = parts.receive;
        (*to).rq.buf = ring.start.as_ptr().cast();
        (*to).rq.wqe_cnt = ring.entries;
        (*to).rq.stride = ring.stride;
        (*to).bf.reg = parts.register.start.as_ptr().cast();
        (*to).bf.size = parts.register.blueflame_size;
        let wants = |mask: c_uint| asked & u64::from(mask) != 0;
        if wants(MLX5DV_QP_MASK_UAR_MMAP_OFFSET) {
            (*to).uar_mmap_offset = parts.register.mmap_offset as i64;
            answered |= u64::from(MLX5DV_QP_MASK_UAR_MMAP_OFFSET);
        }
        // Only raw packet queue pairs have these; for others they are zero.
        if wants(MLX5DV_QP_MASK_RAW_QP_HANDLES) {
            (*to).tirn = parts.packet.tirn;
            (*to).tisn = parts.packet.tisn;
            (*to).rqn = parts.packet.rqn;
            (*to).sqn = parts.packet.sqn;
            answered |= u64::from(MLX5DV_QP_MASK_RAW_QP_HANDLES);
        }
        if wants(MLX5DV_QP_MASK_RAW_QP_TIR_ADDR) {
            (*to).tir_icm_addr = parts.packet.tir_icm_addr;
            answered |= u64::from(MLX5DV_QP_MASK_RAW_QP_TIR_ADDR);
        }
        (*to).comp_mask = answered;
    }
    Ok(())
}

unsafe fn completion_queue(from: *mut ibv_cq, to: *mut mlx5dv_cq) -> Verb {
    // SAFETY: the caller of `init_obj` promises that the object exists, and that `to` is writable.
    unsafe {
        let RawCompletionQueue { cqes, record, page, cqn } =
            CqObject::of(from).with_mut(CompletionQueue::hand_over)?;
        (*to).buf = cqes.start.as_ptr().cast();
        (*to).dbrec = record.as_ptr().cast();
        (*to).cqe_cnt = cqes.entries;
        (*to).cqe_size = cqes.stride;
        (*to).cq_uar = page.as_ptr().cast();
        (*to).cqn = cqn;
        (*to).comp_mask = 0;
    }
    Ok(())
}

unsafe fn shared_receive_queue(from: *mut ibv_srq, to: *mut mlx5dv_srq) -> Verb {
    // SAFETY: the caller of `init_obj` promises that the object exists, and that `to` is writable
    // as far as its mask asks.
    unsafe {
        let parts = SrqObject::of(from).raw_parts()?;
        (*to).buf = parts.requests.start.as_ptr().cast();
        (*to).dbrec = parts.record.as_ptr().cast();
        (*to).stride = parts.requests.stride;
        (*to).head = parts.head;
        (*to).tail = parts.tail;
        let asked = (*to).comp_mask & u64::from(MLX5DV_SRQ_MASK_SRQN);
        if asked != 0 {
            (*to).srqn = parts.srqn;
        }
        (*to).comp_mask = asked;
    }
    Ok(())
}

unsafe fn work_queue(from: *mut ibv_wq, to: *mut mlx5dv_rwq) -> Verb {
    // SAFETY: the caller of `init_obj` promises that the object exists, and that `to` is writable.
    unsafe {
        let parts = WqObject::of(from).raw_parts()?;
        (*to).buf = parts.requests.start.as_ptr().cast();
        (*to).dbrec = parts.record.as_ptr().cast();
        (*to).wqe_cnt = parts.requests.entries;
        (*to).stride = parts.requests.stride;
        (*to).comp_mask = 0;
    }
    Ok(())
}

unsafe fn device_memory(from: *mut ibv_dm, to: *mut mlx5dv_dm) {
    // SAFETY: the caller of `init_obj` promises that the object exists, and that `to` is writable
    // as far as its mask asks.
    unsafe {
        let memory = DmObject::of(from).memory();
        (*to).buf = memory.as_ptr().cast();
        (*to).length = memory.len() as u64;
        let asked = (*to).comp_mask & u64::from(MLX5DV_DM_MASK_REMOTE_VA);
        if asked != 0 {
            // Only memory of another type has one.
            (*to).remote_va = 0;
        }
        (*to).comp_mask = asked;
    }
}

unsafe fn init(obj: *mut mlx5dv_obj, kinds: u64) -> Verb {
    const KNOWN: c_uint = MLX5DV_OBJ_QP
        | MLX5DV_OBJ_CQ
        | MLX5DV_OBJ_SRQ
        | MLX5DV_OBJ_RWQ
        | MLX5DV_OBJ_DM
        | MLX5DV_OBJ_AH
        | MLX5DV_OBJ_PD
        | MLX5DV_OBJ_DEVX;
    if kinds & u64::from(KNOWN) == 0 {
        return Err(Refusal::INVALID);
    }
    let is = |kind: c_uint| kinds & u64::from(kind) != 0;
    // SAFETY: the caller of `init_obj` promises that `obj` has an object and a place for its parts
    // for each kind in `kinds`. The structure may be of an older, shorter version: only the fields
    // of these kinds are read.
    unsafe {
        if is(MLX5DV_OBJ_QP) {
            let mlx5dv_obj_qp { r#in, out } = (*obj).qp;
            queue_pair(r#in, out)?;
        }
        if is(MLX5DV_OBJ_CQ) {
            let mlx5dv_obj_cq { r#in, out } = (*obj).cq;
            completion_queue(r#in, out)?;
        }
        if is(MLX5DV_OBJ_SRQ) {
            let mlx5dv_obj_srq { r#in, out } = (*obj).srq;
            shared_receive_queue(r#in, out)?;
        }
        if is(MLX5DV_OBJ_RWQ) {
            let mlx5dv_obj_rwq { r#in, out } = (*obj).rwq;
            work_queue(r#in, out)?;
        }
        if is(MLX5DV_OBJ_DM) {
            let mlx5dv_obj_dm { r#in, out } = (*obj).dm;
            device_memory(r#in, out);
        }
        if is(MLX5DV_OBJ_AH) {
            let mlx5dv_obj_ah { r#in, out } = (*obj).ah;
            (*out).av = (&raw const AhObject::of(r#in).vector).cast_mut().cast();
            (*out).comp_mask = 0;
        }
        if is(MLX5DV_OBJ_PD) {
            let mlx5dv_obj_pd { r#in, out } = (*obj).pd;
            (*out).pdn = PdObject::of(r#in).domain.pdn();
            (*out).comp_mask = 0;
        }
        if is(MLX5DV_OBJ_DEVX) {
            let mlx5dv_obj_devx { r#in, out } = (*obj).devx;
            (*out).handle = DevxObject::of(r#in).handle;
        }
    }
    Ok(())
}

/// `mlx5dv_init_obj`.
///
/// # Safety
/// Of each kind of object that `kinds` names, `obj` has one that exists, and where to write its
/// parts, which is writable as far as the mask there asks. The program follows the device's rules
/// for queues that it drives.
pub unsafe extern "C" fn init_obj(obj: *mut mlx5dv_obj, kinds: u64) -> c_int {
    // SAFETY: the caller promises an existing object and a writable place in `obj` for each kind in
    // `kinds`.
    status(unsafe { init(obj, kinds) })
}

/// The symbol `mlx5dv_init_obj` of `MLX5_1.0`: for a completion queue it writes the address of a
/// pointer to the doorbell page, instead of the page.
///
/// # Safety
/// As for [`init_obj`].
pub unsafe extern "C" fn init_obj_compat(obj: *mut mlx5dv_obj, kinds: u64) -> c_int {
    // SAFETY: the caller promises an existing object and a writable place in `obj` for each kind in
    // `kinds`.
    status(unsafe {
        init(obj, kinds).map(|()| {
            if kinds & u64::from(MLX5DV_OBJ_CQ) != 0 {
                let mlx5dv_obj_cq { r#in, out } = (*obj).cq;
                let place = ContextObject::of((*r#in).context).dv.cq_page((*out).cq_uar);
                (*out).cq_uar = place.cast_mut().cast();
            }
        })
    })
}
