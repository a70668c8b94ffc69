//! Queues with attributes of mlx5.

use crate::abi::mlx5dv::*;
use crate::abi::*;
use crate::cq::{Attributes, extended};
use crate::qp::create::{Driver, create_ex};
use crate::qp::driver::{CONFIGURE, SUPPORTED};
use crate::qp::packet::Packets;
use crate::refusal::{Refusal, Verb, object};
use crate::wq;
use mlx5::{CqeCompression, CqeSize};

fn completion_attributes(dv: &mlx5dv_cq_init_attr) -> Verb<Attributes> {
    const KNOWN: c_uint = MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE
        | MLX5DV_CQ_INIT_ATTR_MASK_FLAGS
        | MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE;
    let has = |mask: c_uint| dv.comp_mask & u64::from(mask) != 0;
    let mut attributes = Attributes::default();
    if dv.comp_mask & !u64::from(KNOWN) != 0 {
        return Err(Refusal::INVALID);
    }
    if has(MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE) {
        attributes.size = Some(match dv.cqe_size {
            64 => CqeSize::Bytes64,
            128 => CqeSize::Bytes128,
            _ => return Err(Refusal::INVALID),
        });
    }
    if has(MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE) {
        attributes.compression = Some(match dv.cqe_comp_res_format.into() {
            MLX5DV_CQE_RES_FORMAT_HASH => CqeCompression::Hash,
            MLX5DV_CQE_RES_FORMAT_CSUM => CqeCompression::Checksum,
            MLX5DV_CQE_RES_FORMAT_CSUM_STRIDX => CqeCompression::ChecksumStride,
            _ => return Err(Refusal::INVALID),
        });
    }
    if has(MLX5DV_CQ_INIT_ATTR_MASK_FLAGS) {
        if dv.flags & !MLX5DV_CQ_INIT_ATTR_FLAGS_CQE_PAD != 0 {
            return Err(Refusal::INVALID);
        }
        attributes.padding = dv.flags & MLX5DV_CQ_INIT_ATTR_FLAGS_CQE_PAD != 0;
    }
    Ok(attributes)
}

/// `mlx5dv_create_cq`.
///
/// # Safety
/// `context` is open, `init` is readable, and what it names exists; `dv` is NULL or readable.
pub unsafe extern "C" fn create_cq(
    context: *mut ibv_context,
    init: *mut ibv_cq_init_attr_ex,
    dv: *mut mlx5dv_cq_init_attr,
) -> *mut ibv_cq_ex {
    // SAFETY: the caller promises that `context` is open, that `init` is readable and its objects
    // exist, and that `dv` is NULL or readable.
    object(unsafe {
        let attributes = dv.as_ref().map(completion_attributes).transpose();
        attributes.and_then(|attributes| {
            // C has one errno for attributes that the device lacks and for those that no device
            // has.
            extended::create_with(context, &*init, attributes.unwrap_or_default()).map_err(
                |refusal| match refusal {
                    Refusal::NOT_SUPPORTED if attributes.is_some() => Refusal::INVALID,
                    refusal => refusal,
                },
            )
        })
    })
}

fn driver_attributes(qp_type: c_uint, dv: &mlx5dv_qp_init_attr) -> Verb<Driver> {
    const KNOWN: c_uint = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS
        | MLX5DV_QP_INIT_ATTR_MASK_DC
        | MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS
        | MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
    /// The flags that the provider supports; the others are about credits and data order.
    const FLAGS: c_uint = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE
        | MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE
        | MLX5DV_QP_CREATE_SIG_PIPELINING
        | MLX5DV_QP_CREATE_TUNNEL_OFFLOADS
        | MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_UC
        | MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_MC;
    const NAMED: c_uint = 2 * MLX5DV_QP_CREATE_OOO_DP - 1;
    let has = |mask: c_uint| dv.comp_mask & u64::from(mask) != 0;
    if dv.comp_mask & !u64::from(KNOWN) != 0
        || has(MLX5DV_QP_INIT_ATTR_MASK_DC) && qp_type != IBV_QPT_DRIVER
    {
        return Err(Refusal::INVALID);
    }
    let flags = if has(MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS) { dv.create_flags } else { 0 };
    let scatter = flags & MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE != 0;
    if flags & !NAMED != 0 || scatter && flags & MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE != 0 {
        return Err(Refusal::INVALID);
    }
    let send_ops = if has(MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS) { dv.send_ops_flags } else { 0 };
    if flags & !FLAGS != 0 || send_ops & !SUPPORTED != 0 {
        return Err(Refusal::NOT_SUPPORTED);
    }
    if send_ops & CONFIGURE != 0 && qp_type != IBV_QPT_RC {
        return Err(Refusal::NOT_SUPPORTED);
    }
    Ok(Driver {
        send_ops,
        scatter_to_cqe: scatter,
        pipelining: flags & MLX5DV_QP_CREATE_SIG_PIPELINING != 0,
        packets: Packets {
            tunnels: flags & MLX5DV_QP_CREATE_TUNNEL_OFFLOADS != 0,
            own_unicast: flags & MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_UC != 0,
            own_multicast: flags & MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_MC != 0,
            ..Packets::default()
        },
    })
}

/// `mlx5dv_create_qp`.
///
/// # Safety
/// `context` is open, `init` is readable, and what it names exists; its sizes are writable; `dv` is
/// NULL or readable.
pub unsafe extern "C" fn create_qp(
    context: *mut ibv_context,
    init: *mut ibv_qp_init_attr_ex,
    dv: *mut mlx5dv_qp_init_attr,
) -> *mut ibv_qp {
    // SAFETY: the caller promises that `context` is open, that `init` is readable and its objects
    // exist, and that `dv` is NULL or readable.
    object(unsafe {
        let driver = dv.as_ref().map(|dv| driver_attributes((*init).qp_type, dv)).transpose();
        driver.and_then(|driver| create_ex(context, init, driver.unwrap_or_default()))
    })
}

/// The bytes of a stride and the strides of a request in the attributes.
fn strides(dv: &mlx5dv_striding_rq_init_attr) -> Verb<(u32, u32)> {
    if dv.two_byte_shift_en != 0 {
        return Err(Refusal::NOT_SUPPORTED);
    }
    let power = |log: u32| 1u32.checked_shl(log).ok_or(Refusal::INVALID);
    Ok((power(dv.single_stride_log_num_of_bytes)?, power(dv.single_wqe_log_num_of_strides)?))
}

/// `mlx5dv_create_wq`.
///
/// # Safety
/// `context` is open, `init` is readable, and what it names exists; its sizes are writable; `dv` is
/// NULL or readable.
pub unsafe extern "C" fn create_wq(
    context: *mut ibv_context,
    init: *mut ibv_wq_init_attr,
    dv: *mut mlx5dv_wq_init_attr,
) -> *mut ibv_wq {
    const STRIDES: u64 = MLX5DV_WQ_INIT_ATTR_MASK_STRIDING_RQ as u64;
    // SAFETY: the caller promises that `context` is open, that `init` is readable and its objects
    // exist, and that `dv` is NULL or readable.
    object(unsafe {
        match dv.as_ref().map_or(0, |dv| dv.comp_mask) {
            0 => wq::make(context, init, None),
            STRIDES => strides(&(*dv).striding_rq_attrs)
                .and_then(|strides| wq::make(context, init, Some(strides))),
            _ => Err(Refusal::INVALID),
        }
    })
}
