//! Devices and ports: their mlx5 properties.

use super::room;
use crate::abi::mlx5dv::*;
use crate::abi::*;
use crate::caps::capabilities;
use crate::context::ContextObject;
use crate::dv_state::{Allocators, lock};
use crate::open;
use crate::refusal::{Refusal, Verb, object, status};
use mlx5::Devx;
use mlx5::mkey::SignatureCaps;
use mlx5_prm::cmd::caps::CapGroup;
use mlx5_uapi::cmd::query;
use mlx5_uapi::mlx5::{AllocUcontextResp, QueryDeviceFlags, QueryDeviceResp, UcontextRespMask};

/// `mlx5dv_is_supported`: no other device is listed.
///
/// # Safety
/// `device` is from a device list.
pub unsafe extern "C" fn is_supported(_device: *mut ibv_device) -> bool {
    true
}

/// `mlx5dv_open_device`: with the flag for DEVX only if the kernel grants it.
///
/// # Safety
/// `device` is from a device list, `attr` NULL or readable as far as its mask says.
pub unsafe extern "C" fn open_device(
    device: *mut ibv_device,
    attr: *mut mlx5dv_context_attr,
) -> *mut ibv_context {
    // SAFETY: the caller promises that `attr` is NULL or readable as far as its mask says.
    let devx = match unsafe { attr.as_ref() } {
        Some(attr) if attr.comp_mask == u64::from(MLX5DV_CONTEXT_ATTR_MASK_FD_ARRAY) => {
            // Files that another process opened: a newer kernel supports them.
            return object(Err(Refusal::NOT_SUPPORTED));
        }
        Some(attr) if attr.comp_mask != 0 || attr.flags & !MLX5DV_CONTEXT_FLAGS_DEVX != 0 => {
            return object(Err(Refusal::INVALID));
        }
        Some(attr) if attr.flags != 0 => Devx::Require,
        _ => Devx::Auto,
    };
    object(open::open(device, devx))
}

/// Reads the transports' capabilities for on-demand paging.
fn dc_on_demand(context: &ContextObject) -> u32 {
    let Some(answer) = capabilities(context, CapGroup::ODP) else { return 0 };
    let caps = *answer.odp_caps().dc_odp_caps();
    [
        (caps.send(), IBV_ODP_SUPPORT_SEND),
        (caps.receive(), IBV_ODP_SUPPORT_RECV),
        (caps.write(), IBV_ODP_SUPPORT_WRITE),
        (caps.read(), IBV_ODP_SUPPORT_READ),
        (caps.atomic(), IBV_ODP_SUPPORT_ATOMIC),
        (caps.srq_receive(), IBV_ODP_SUPPORT_SRQ_RECV),
    ]
    .into_iter()
    .fold(0, |bits, (has, bit)| if has { bits | bit } else { bits })
}

fn signatures(context: &ContextObject) -> mlx5dv_sig_caps {
    let caps = context.context.signature_caps().unwrap_or(SignatureCaps::empty());
    if !caps.contains(SignatureCaps::BLOCKS) {
        return mlx5dv_sig_caps { block_size: 0, block_prot: 0, t10dif_bg: 0, crc_type: 0 };
    }
    let also = |cap, bit| if caps.contains(cap) { bit } else { 0 };
    let sizes = MLX5DV_BLOCK_SIZE_CAP_512
        | MLX5DV_BLOCK_SIZE_CAP_520
        | MLX5DV_BLOCK_SIZE_CAP_4096
        | MLX5DV_BLOCK_SIZE_CAP_4160
        | also(SignatureCaps::BLOCK_4048, MLX5DV_BLOCK_SIZE_CAP_4048);
    let crcs = MLX5DV_SIG_CRC_TYPE_CAP_CRC32
        | also(SignatureCaps::CRC32C, MLX5DV_SIG_CRC_TYPE_CAP_CRC32C)
        | also(SignatureCaps::CRC64_XP10, MLX5DV_SIG_CRC_TYPE_CAP_CRC64_XP10);
    mlx5dv_sig_caps {
        block_size: sizes.into(),
        block_prot: MLX5DV_SIG_PROT_CAP_T10DIF | MLX5DV_SIG_PROT_CAP_CRC,
        t10dif_bg: (MLX5DV_SIG_T10DIF_BG_CAP_CRC | MLX5DV_SIG_T10DIF_BG_CAP_CSUM) as u16,
        crc_type: crcs as u16,
    }
}

/// Writes the fields that the mask in `to` asks for, and sets the mask to those that it wrote.
unsafe fn describe(context: &ContextObject, to: *mut mlx5dv_context) -> Verb {
    let (_, driver) = query::device(context.file())?;
    let limits = context.context.driver_limits();
    // SAFETY: the caller of `query_device` promises that `to` is writable as far as its mask asks.
    // The program's structure may be an older, shorter one, so only these fields are written.
    unsafe {
        let asked = (*to).comp_mask;
        let mut answered = 0;
        macro_rules! fill {
            ($($mask:ident: $($field:ident = $value:expr),*;)*) => {
                $(if asked & u64::from($mask) != 0 {
                    $((&raw mut (*to).$field).write($value);)*
                    answered |= u64::from($mask);
                })*
            };
        }
        fill! {
            MLX5DV_CONTEXT_MASK_CQE_COMPRESION: cqe_comp_caps = mlx5dv_cqe_comp_caps {
                max_num: driver.cqe_comp_caps.max_num,
                supported_format: driver.cqe_comp_caps.supported_format,
            };
            MLX5DV_CONTEXT_MASK_SWP: sw_parsing_caps = mlx5dv_sw_parsing_caps {
                sw_parsing_offloads: driver.sw_parsing_caps.sw_parsing_offloads,
                supported_qpts: driver.sw_parsing_caps.supported_qpts,
            };
            MLX5DV_CONTEXT_MASK_STRIDING_RQ: striding_rq_caps = striding(&driver.striding_rq_caps);
            MLX5DV_CONTEXT_MASK_TUNNEL_OFFLOADS: tunnel_offloads_caps = driver.tunnel_offloads_caps;
            MLX5DV_CONTEXT_MASK_DYN_BFREGS: max_dynamic_bfregs = limits.num_dyn_bfregs;
            // There are no actions that encrypt.
            MLX5DV_CONTEXT_MASK_FLOW_ACTION_FLAGS: flow_action_flags = 0;
            MLX5DV_CONTEXT_MASK_DC_ODP_CAPS: dc_odp_caps = dc_on_demand(context);
            MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD: sig_caps = signatures(context);
            MLX5DV_CONTEXT_MASK_DCI_STREAMS: dci_streams_caps = mlx5dv_dci_streams_caps {
                max_log_num_concurent: driver.dci_streams_caps.max_log_num_concurent,
                max_log_num_errored: driver.dci_streams_caps.max_log_num_errored,
            };
            // There are no requests that copy memory, and no block encryption.
            MLX5DV_CONTEXT_MASK_WR_MEMCPY_LENGTH: max_wr_memcpy_length = 0;
            MLX5DV_CONTEXT_MASK_CRYPTO_OFFLOAD: crypto_caps = mlx5dv_crypto_caps {
                failed_selftests: 0,
                crypto_engines: 0,
                wrapped_import_method: 0,
                log_max_num_deks: 0,
                flags: 0,
            };
        }
        let wants = |mask: c_uint| asked & u64::from(mask) != 0;
        if wants(MLX5DV_CONTEXT_MASK_CLOCK_INFO_UPDATE)
            && let Some(clock) = context.dv.clock(context)
        {
            fill! { MLX5DV_CONTEXT_MASK_CLOCK_INFO_UPDATE:
            max_clock_info_update_nsec = clock.overflow_period(); }
        }
        if wants(MLX5DV_CONTEXT_MASK_HCA_CORE_CLOCK)
            && let Some(clock) = context.dv.core_clock(context)
        {
            fill! { MLX5DV_CONTEXT_MASK_HCA_CORE_CLOCK: hca_core_clock = clock; }
        }
        if wants(MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS | MLX5DV_CONTEXT_MASK_MAX_DC_RD_ATOM) {
            let answer = capabilities(context, CapGroup::GENERAL);
            let caps = answer.as_ref().map(|answer| answer.hca_cap());
            let ports = caps.map_or(0, |caps| caps.num_lag_ports());
            if ports != 0 {
                fill! { MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS: num_lag_ports = ports as u8; }
            }
            fill! { MLX5DV_CONTEXT_MASK_MAX_DC_RD_ATOM:
            max_dc_rd_atom = caps.map_or(0, |caps| 1 << caps.log_max_ra_req_dc()),
            max_dc_init_rd_atom = caps.map_or(0, |caps| 1 << caps.log_max_ra_res_dc()); }
        }
        (&raw mut (*to).version).write(0);
        (&raw mut (*to).flags).write(flags(limits, &driver));
        (&raw mut (*to).comp_mask).write(answered);
    }
    Ok(())
}

fn striding(from: &mlx5_uapi::mlx5::StridingRqCaps) -> mlx5dv_striding_rq_caps {
    mlx5dv_striding_rq_caps {
        min_single_stride_log_num_of_bytes: from.min_single_stride_log_num_of_bytes,
        max_single_stride_log_num_of_bytes: from.max_single_stride_log_num_of_bytes,
        min_single_wqe_log_num_of_strides: from.min_single_wqe_log_num_of_strides,
        max_single_wqe_log_num_of_strides: from.max_single_wqe_log_num_of_strides,
        supported_qpts: from.supported_qpts,
    }
}

/// The flags omit packet-based credits, because no queue pair can be created with them.
fn flags(limits: &AllocUcontextResp, driver: &QueryDeviceResp) -> u64 {
    const MULTI_PACKET: u32 = 1 << 1;
    const ENHANCED_MULTI_PACKET: u32 = 1 << 2;
    let can = QueryDeviceFlags::from_bits_retain(driver.flags);
    let answered = UcontextRespMask::from_bits_retain(limits.comp_mask);
    let packets = driver.support_multi_pkt_send_wqes;
    [
        (limits.cqe_version == 1, MLX5DV_CONTEXT_FLAGS_CQE_V1),
        (packets & MULTI_PACKET != 0, MLX5DV_CONTEXT_FLAGS_MPW_ALLOWED),
        (packets & ENHANCED_MULTI_PACKET != 0, MLX5DV_CONTEXT_FLAGS_ENHANCED_MPW),
        (can.contains(QueryDeviceFlags::CQE_128B_COMP), MLX5DV_CONTEXT_FLAGS_CQE_128B_COMP),
        (can.contains(QueryDeviceFlags::CQE_128B_PAD), MLX5DV_CONTEXT_FLAGS_CQE_128B_PAD),
        (answered.contains(UcontextRespMask::REAL_TIME_TS), MLX5DV_CONTEXT_FLAGS_REAL_TIME_TS),
        (limits.bf_reg_size != 0, MLX5DV_CONTEXT_FLAGS_BLUEFLAME),
    ]
    .into_iter()
    .fold(0, |bits, (has, bit)| if has { bits | u64::from(bit) } else { bits })
}

/// `mlx5dv_query_device`: writes the fields that the mask asks for, and sets the mask to the fields
/// that it wrote.
///
/// # Safety
/// `context` is open; `attrs` is writable as far as its mask asks.
pub unsafe extern "C" fn query_device(
    context: *mut ibv_context,
    attrs: *mut mlx5dv_context,
) -> c_int {
    // SAFETY: the caller promises that `context` is open and that `attrs` is writable as far as its
    // mask asks.
    status(unsafe { describe(ContextObject::of(context), attrs) })
}

/// `_mlx5dv_query_port`.
///
/// # Safety
/// `context` is open, `port` writable for `len` bytes.
pub unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    port_num: u32,
    port: *mut c_void,
    len: usize,
) -> c_int {
    // SAFETY: the caller promises that `context` is open and that `port` is writable for `len`
    // bytes.
    let found =
        unsafe { query::mlx5_port(ContextObject::of(context).file(), port_num, room(port, len)) };
    status(found.map_err(Into::into))
}

/// `mlx5dv_set_context_attr`: sets the functions that provide the memory of later queues.
///
/// # Safety
/// `context` is open, `attr` readable as the type says.
pub unsafe extern "C" fn set_context_attr(
    context: *mut ibv_context,
    kind: c_uint,
    attr: *mut c_void,
) -> c_int {
    if kind != MLX5DV_CTX_ATTR_BUF_ALLOCATORS {
        return status(Err(Refusal(libc::ENOTSUP)));
    }
    // SAFETY: the caller promises that `context` is open and that `attr` is readable as the type
    // says.
    let (this, functions) =
        unsafe { (ContextObject::of(context), attr.cast::<mlx5dv_ctx_allocators>().read()) };
    *lock(&this.dv.allocators) = Some(Allocators(functions));
    status(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlx5_prm::zerocopy::FromZeros;

    #[test]
    fn credits_by_packets_are_not_reported() {
        let limits = AllocUcontextResp::new_zeroed();
        let mut driver = QueryDeviceResp::new_zeroed();
        driver.flags =
            (QueryDeviceFlags::PACKET_BASED_CREDIT_MODE | QueryDeviceFlags::CQE_128B_PAD).bits();
        assert_eq!(flags(&limits, &driver), u64::from(MLX5DV_CONTEXT_FLAGS_CQE_128B_PAD));
    }
}
