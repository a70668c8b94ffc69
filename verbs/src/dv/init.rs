//! `mlx5dv_init_obj`: returns the memory of objects to programs that drive queues themselves.
//!
//! Once a program has the parts of a queue pair, shared receive queue or work queue, this library
//! only modifies and destroys that queue. Once a program has the parts of a completion queue, this
//! library leaves the queue unchanged, even when a queue pair is destroyed or reset, until the
//! program polls the completion queue by `ibv_poll_cq`. That poll starts after the completions that
//! the program polled itself, which the doorbell record counts, and skips completions of queue
//! pairs that were destroyed or reset in the meantime. rdma-core's library removes nothing from a
//! completion queue that was handed over, and its next poll fails at a completion that names a
//! destroyed queue pair.

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
    // SAFETY: the caller of `init_obj` promises that the object exists, and that `to` is writable,
    // including the fields that its mask requests.
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
        // Only raw packet queue pairs have these numbers; for other queue pairs they are zero.
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
    // SAFETY: the caller of `init_obj` promises that the object exists, and that `to` is writable,
    // including the fields that its mask requests.
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
    // SAFETY: the caller of `init_obj` promises that the object exists, and that `to` is writable,
    // including the fields that its mask requests.
    unsafe {
        let memory = DmObject::of(from).memory();
        (*to).buf = memory.as_ptr().cast();
        (*to).length = memory.len() as u64;
        let asked = (*to).comp_mask & u64::from(MLX5DV_DM_MASK_REMOTE_VA);
        if asked != 0 {
            // This type of device memory has no remote address; another type has one.
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
    // SAFETY: for each kind in `kinds`, the caller of `init_obj` promises that `obj` names an
    // existing object and writable memory for its parts. `obj` may be an older, shorter version of
    // the structure: this code reads only the fields of the kinds in `kinds`.
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
/// For each kind of object in `kinds`, `obj` names an existing object and memory for its parts.
/// This memory is writable, including the fields that the mask in it requests. The program follows
/// the device's rules for the queues that it drives.
pub unsafe extern "C" fn init_obj(obj: *mut mlx5dv_obj, kinds: u64) -> c_int {
    // SAFETY: the caller promises an existing object and a writable place in `obj` for each kind in
    // `kinds`.
    status(unsafe { init(obj, kinds) })
}

/// The symbol `mlx5dv_init_obj` of version `MLX5_1.0`: for a completion queue, this version returns
/// the address of a pointer to the doorbell page instead of the address of the page.
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
