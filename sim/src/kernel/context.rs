//! Contexts and event files.

use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::alloc::{AllocTransportDomainIn, DeallocTransportDomainIn};
use mlx5_prm::cmd::init_seg;
use mlx5_uapi::ioctl::attr;
use mlx5_uapi::mlx5::{
    AllocUcontextReqV2, AllocUcontextResp, CmdsSuppUhw, InlineMode, LibCaps, UcontextFlags,
    UcontextRespMask,
};
use mlx5_uapi::verbs::CoreSupport;
use mlx5_uapi::write_cmd::CreateCompChannelResp;
use mlx5_uapi::{Errno, page_size};
use zerocopy::IntoBytes;

use crate::config::LinkLayer;
use crate::kernel::decode::{Request, from_short, is_clear_behind};
use crate::kernel::file::{Channel, Context, OpenFile, State};
use crate::kernel::hca::{COMPLETION_VECTORS, Hca};
use crate::kernel::uctx::{create_uctx, destroy_uctx};
use crate::kernel::write_call::WriteCall;

/// The first form of the request ends before the flags; this is the least length of the second.
const SHORTEST_REQUEST: usize = core::mem::offset_of!(AllocUcontextReqV2, max_cqe_version);
/// Bytes of the host's cache line, for the device.
const CACHE_LINE: u32 = 64;
/// The first version of the clock-info page (`1 << MLX5_IB_CLOCK_INFO_V1`).
const CLOCK_INFO_V1: u8 = 1;
/// Logarithm of a UAR's bytes.
const LOG_UAR: u32 = 12;

pub(crate) fn get(
    file: &OpenFile,
    state: &mut State,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    if state.context.is_some() {
        return Err(Errno::EINVAL);
    }
    let bytes = request.input(attr::uhw::IN)?;
    if bytes.len() < SHORTEST_REQUEST {
        return Err(Errno::EINVAL);
    }
    let wanted: AllocUcontextReqV2 = from_short(&bytes);
    let reserved =
        u64::from(wanted.reserved0) | u64::from(wanted.reserved1) | u64::from(wanted.reserved2);
    if wanted.flags & !UcontextFlags::DEVX.bits() != 0
        || wanted.comp_mask != 0
        || reserved != 0
        || !is_clear_behind(&bytes, size_of::<AllocUcontextReqV2>())
    {
        return Err(Errno::EOPNOTSUPP);
    }
    if wanted.total_num_bfregs == 0
        || wanted.num_low_latency_bfregs > wanted.total_num_bfregs.next_multiple_of(2) - 1
        || !LibCaps::from_bits_retain(wanted.lib_caps).contains(LibCaps::DYN_UAR)
    {
        // There are dynamic UARs only.
        return Err(Errno::EINVAL);
    }
    let hca = &file.hca;
    let devx = wanted.flags & UcontextFlags::DEVX.bits() != 0;
    let uid = if devx { create_uctx(hca)? } else { 0 };
    let domain = match hca.command(&AllocTransportDomainIn::request()) {
        Ok(out) => out.transport_domain(),
        Err(errno) => {
            if devx {
                // Keep the first error.
                let _ = destroy_uctx(hca, uid);
            }
            return Err(errno);
        }
    };
    let cqe_version = wanted.max_cqe_version.min(hca.caps.cqe_version() as u8);
    let context = Context { uid, transport_domain: domain, cqe_version };
    let answered = answer(hca, &context, request)
        .and_then(|response| request.answer_bytes(attr::uhw::OUT, response.as_bytes()));
    if let Err(errno) = answered {
        let mut input = DeallocTransportDomainIn::request();
        input.set_transport_domain(domain);
        let _ = hca.command(&input);
        if devx {
            let _ = destroy_uctx(hca, uid);
        }
        return Err(errno);
    }
    state.context = Some(context);
    hca.loopback.enter_context(hca);
    Ok(())
}

pub(crate) fn query(
    file: &OpenFile,
    state: &mut State,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    let context = state.context()?;
    let response = answer(&file.hca, &context, request)?;
    request.answer_bytes(attr::mlx5_query_context::RESP_UCTX, response.as_bytes())
}

/// Fills in the answer that GET_CONTEXT and QUERY_CONTEXT have in common, without the driver's
/// part.
fn answer(
    hca: &Hca,
    context: &Context,
    request: &mut Request<'_>,
) -> Result<AllocUcontextResp, Errno> {
    // Both methods number these two attributes alike.
    let support = CoreSupport::OPTIONAL_MR_ACCESS.bits();
    request.answer(attr::get_context::NUM_COMP_VECTORS, &COMPLETION_VECTORS)?;
    request.answer(attr::get_context::CORE_SUPPORT, &support)?;
    let caps = &hca.caps;
    let ethernet =
        hca.fabric.config().ports.iter().any(|port| port.link_layer == LinkLayer::Ethernet);
    let inline = match (ethernet, hca.fabric.config().inline_mode) {
        (false, _) => InlineMode::NotApplicable,
        (true, mlx5_prm::ethernet::InlineMode::None) => InlineMode::None,
        (true, mlx5_prm::ethernet::InlineMode::L2) => InlineMode::L2,
        (true, mlx5_prm::ethernet::InlineMode::Ip) => InlineMode::Ip,
        (true, mlx5_prm::ethernet::InlineMode::TcpUdp) => InlineMode::TcpUdp,
    };
    let mut mask = UcontextRespMask::SQD2RTS
        | UcontextRespMask::CORE_CLOCK_OFFSET
        | UcontextRespMask::MKEY_UPDATE_TAG;
    mask.set(UcontextRespMask::REAL_TIME_TS, hca.has_real_time());
    Ok(AllocUcontextResp {
        qp_tab_size: 1 << caps.log_max_qp(),
        bf_reg_size: if caps.bf() { 1 << caps.log_bf_reg_size() } else { 0 },
        tot_bfregs: 0,
        cache_line_size: CACHE_LINE,
        max_sq_desc_sz: caps.max_wqe_sz_sq() as u16,
        max_rq_desc_sz: caps.max_wqe_sz_rq() as u16,
        max_send_wqebb: 1 << caps.log_max_qp_sz(),
        max_recv_wr: 1 << caps.log_max_qp_sz(),
        max_srq_recv_wr: 1 << caps.log_max_srq_sz(),
        num_ports: hca.ports().into(),
        comp_mask: mask.bits(),
        response_length: size_of::<AllocUcontextResp>() as u32,
        cqe_version: context.cqe_version,
        cmds_supp_uhw: (CmdsSuppUhw::QUERY_DEVICE | CmdsSuppUhw::CREATE_AH).bits(),
        eth_min_inline: inline.raw(),
        clock_info_versions: CLOCK_INFO_V1,
        hca_core_clock_offset: (init_seg::offset::INTERNAL_TIMER_H % page_size()) as u64,
        log_uar_size: LOG_UAR,
        num_uars_per_page: 1,
        ..AllocUcontextResp::default()
    })
}

/// Makes an asynchronous event file.
pub(crate) fn async_event_alloc(
    file: &OpenFile,
    state: &mut State,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    let queue = state.add_channel(Channel::Asynchronous)?;
    file.hca.hub.listen(&queue);
    request.made(attr::async_event_alloc::FD_HANDLE, queue.number());
    Ok(())
}

/// Makes a completion channel.
pub(crate) fn create_comp_channel(
    _file: &OpenFile,
    state: &mut State,
    call: &mut WriteCall<'_, '_>,
) -> Result<(), Errno> {
    let queue = state.add_channel(Channel::Completion)?;
    call.respond(&CreateCompChannelResp { fd: queue.fd() as u32 })
}
