//! Shared receive queues.

use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::srq::{
    ArmRqIn, ArmRqTarget, ArmXrcSrqIn, CreateRmpIn, CreateXrcSrqIn, CreateXrqIn, ModifyRmpIn,
    QueryRmpIn, QueryXrcSrqIn, QueryXrqIn, RmpState, WorkQueueType, XrqOffload, XrqTopology,
};
use mlx5_uapi::Errno;
use mlx5_uapi::ioctl::attr;
use mlx5_uapi::mlx5;
use mlx5_uapi::verbs::{SrqAttrMask, SrqType};
use mlx5_uapi::write_cmd::{ModifySrq, QuerySrq, QuerySrqResp};
use zerocopy::IntoBytes;

use crate::kernel::buffer::{self, QueueMemory};
use crate::kernel::decode::{Request, is_clear_behind};
use crate::kernel::events::Subscription;
use crate::kernel::file::{OpenFile, State};
use crate::kernel::lock;
use crate::kernel::objects::{Body, Srq};
use crate::kernel::rings::{NO_USER_INDEX, user_index};
use crate::kernel::write_call::WriteCall;

/// Bytes of a scatter entry, and of the segment that links WQEs.
const SEGMENT: u32 = 16;
/// The shortest WQE.
const SMALLEST_WQE: u32 = 32;
/// Largest page offset of a queue, in 64ths: five bits in a work queue's context, six in others.
const MOST_OFFSET: u32 = 31;
const MOST_XRC_OFFSET: u32 = 63;

pub(crate) fn create(
    file: &OpenFile,
    state: &mut State,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    use attr::create_srq as id;
    let context = state.context()?;
    let hca = &file.hca;
    let kind = u8::try_from(request.number(id::TYPE)?).ok().and_then(SrqType::from_raw);
    let kind = kind.ok_or(Errno::EINVAL)?;
    let pd = request.handle(id::PD_HANDLE)?;
    let pdn = state.objects.pdn(pd)?;
    let user_handle = request.number(id::USER_HANDLE)?;
    let events = state.async_events(request.object(id::EVENT_FD))?;
    let mut parents = vec![pd];
    let (mut xrc, mut tag_list) = (None, None);
    match kind {
        SrqType::Basic => {}
        SrqType::Xrc => {
            let (domain, cq) = (request.handle(id::XRCD_HANDLE)?, request.handle(id::CQ_HANDLE)?);
            xrc = Some((state.objects.xrcd(domain)?, state.objects.cq(cq)?.cqn));
            parents.extend([domain, cq]);
        }
        SrqType::Tm => {
            let cq = request.handle(id::CQ_HANDLE)?;
            let tags = request.number_u32(id::MAX_NUM_TAGS)?;
            let log_list_size = tags.checked_ilog2().ok_or(Errno::EINVAL)? + 1;
            if log_list_size > hca.caps.log_tag_matching_list_sz() {
                return Err(Errno::EINVAL);
            }
            tag_list = Some((log_list_size, state.objects.cq(cq)?.cqn));
            parents.push(cq);
        }
    }
    let (max_wr, max_sge) = (request.number_u32(id::MAX_WR)?, request.number_u32(id::MAX_SGE)?);
    let most_sges = hca.caps.max_wqe_sz_rq() / SEGMENT - 1;
    if max_wr >= 1 << hca.caps.log_max_srq_sz() || max_sge > most_sges {
        return Err(Errno::EINVAL);
    }
    let driver_bytes = request.input(attr::uhw::IN)?;
    let driver: mlx5::CreateSrq = request.structure(attr::uhw::IN)?;
    if driver.reserved0 != 0
        || driver.reserved1 != 0
        || driver.flags != 0
        || !is_clear_behind(&driver_bytes, size_of::<mlx5::CreateSrq>())
    {
        return Err(Errno::EINVAL);
    }
    let uidx = match kind {
        SrqType::Basic => NO_USER_INDEX,
        _ => user_index(context.cqe_version, driver.uidx)?,
    };
    let wqes = (max_wr + 1).next_power_of_two();
    let stride = (SEGMENT + max_sge * SEGMENT).next_power_of_two().max(SMALLEST_WQE);
    let most_offset = if xrc.is_some() { MOST_XRC_OFFSET } else { MOST_OFFSET };
    let bytes = u64::from(wqes) * u64::from(stride);
    let memory = QueueMemory::new(driver.buf_addr, bytes, most_offset)?;
    let record = buffer::record(driver.db_addr)?;
    let srqn = match (xrc, tag_list) {
        (None, None) => {
            let mut input = CreateRmpIn::request();
            input.set_uid(context.uid);
            let rmpc = input.rmpc_mut();
            rmpc.set_state(RmpState::RDY.0);
            rmpc.wq_mut()
                .set_wq_type(WorkQueueType::LINKED_LIST.0)
                .set_page_offset(memory.page_offset)
                .set_pd(pdn)
                .set_dbr_addr(record)
                .set_log_wq_stride(stride.ilog2())
                .set_log_wq_pg_sz(QueueMemory::LOG_PAGE_SIZE)
                .set_log_wq_sz(wqes.ilog2());
            hca.command_with(&input, &memory.pages)?.rmpn()
        }
        (None, Some((log_list_size, cqn))) => {
            let mut input = CreateXrqIn::request();
            input.set_uid(context.uid);
            let xrqc = input.xrqc_mut();
            xrqc.set_topology(XrqTopology::TAG_MATCHING.0)
                .set_offload(XrqOffload::RNDV.0)
                .set_user_index(uidx)
                .set_cqn(cqn);
            xrqc.tag_matching_topology_context_mut().set_log_matching_list_sz(log_list_size);
            xrqc.wq_mut()
                .set_wq_type(WorkQueueType::LINKED_LIST.0)
                .set_page_offset(memory.page_offset)
                .set_pd(pdn)
                .set_dbr_addr(record)
                .set_log_wq_stride(stride.ilog2())
                .set_log_wq_pg_sz(QueueMemory::LOG_PAGE_SIZE)
                .set_log_wq_sz(wqes.ilog2());
            hca.command_with(&input, &memory.pages)?.xrqn()
        }
        (Some((xrcd, cqn)), _) => {
            let mut input = CreateXrcSrqIn::request();
            input.set_uid(context.uid);
            input
                .xrc_srqc_mut()
                .set_log_xrc_srq_size(wqes.ilog2())
                .set_log_rq_stride(stride.ilog2() - 4)
                .set_xrcd(xrcd)
                .set_page_offset(memory.page_offset)
                .set_cqn(cqn)
                .set_log_page_size(QueueMemory::LOG_PAGE_SIZE)
                .set_user_index(uidx)
                .set_pd(pdn)
                .set_db_record_addr_h((record >> 32) as u32)
                .set_db_record_addr_l((record as u32) >> 2);
            hca.command_with(&input, &memory.pages)?.xrc_srqn()
        }
    };
    let srq = Srq { srqn, kind, wqes, max_sge, events: Subscription::new(events, user_handle) };
    if let Some(route) = &srq.events {
        lock(&hca.hub.routes).srqs.insert(srqn, route.clone());
    }
    let handle = state.objects.add(Body::Srq(srq), &parents);
    request.made(id::HANDLE, handle.into());
    request.answer(id::RESP_MAX_WR, &(wqes - 1))?;
    request.answer(id::RESP_MAX_SGE, &max_sge)?;
    request.answer(id::RESP_SRQ_NUM, &srqn)?;
    let answer = mlx5::CreateSrqResp { srqn, reserved: 0 };
    request.answer_bytes(attr::uhw::OUT, answer.as_bytes())
}

pub(crate) fn modify(
    file: &OpenFile,
    state: &mut State,
    call: &mut WriteCall<'_, '_>,
) -> Result<(), Errno> {
    state.context()?;
    let request: ModifySrq = call.request();
    let srq = state.objects.srq(request.srq_handle)?;
    let mask = SrqAttrMask::from_bits(request.attr_mask).ok_or(Errno::EINVAL)?;
    // The size of the queue cannot change.
    if mask.contains(SrqAttrMask::MAX_WR) {
        return Err(Errno::EINVAL);
    }
    if !mask.contains(SrqAttrMask::LIMIT) {
        return Ok(());
    }
    if request.srq_limit >= srq.wqes {
        return Err(Errno::EINVAL);
    }
    if srq.kind == SrqType::Xrc {
        let mut input = ArmXrcSrqIn::request();
        input.set_op_mod(1).set_xrc_srqn(srq.srqn).set_lwm(request.srq_limit);
        return file.hca.command(&input).map(drop);
    }
    if srq.kind == SrqType::Tm {
        let mut input = ArmRqIn::request();
        input.set_op_mod(ArmRqTarget::XRQ.0).set_srq_number(srq.srqn).set_lwm(request.srq_limit);
        return file.hca.command(&input).map(drop);
    }
    let mut input = ModifyRmpIn::request();
    input.set_rmp_state(RmpState::RDY.0).set_rmpn(srq.srqn);
    input.bitmask_mut().set_lwm(true);
    input.rmpc_mut().set_state(RmpState::RDY.0).wq_mut().set_lwm(request.srq_limit);
    file.hca.command(&input).map(drop)
}

pub(crate) fn query(
    file: &OpenFile,
    state: &mut State,
    call: &mut WriteCall<'_, '_>,
) -> Result<(), Errno> {
    state.context()?;
    let request: QuerySrq = call.request();
    let srq = state.objects.srq(request.srq_handle)?;
    let limit = match srq.kind {
        SrqType::Xrc => {
            let mut input = QueryXrcSrqIn::request();
            input.set_xrc_srqn(srq.srqn);
            file.hca.command(&input)?.xrc_srqc().lwm()
        }
        SrqType::Tm => {
            let mut input = QueryXrqIn::request();
            input.set_xrqn(srq.srqn);
            file.hca.command(&input)?.xrqc().wq().lwm()
        }
        SrqType::Basic => {
            let mut input = QueryRmpIn::request();
            input.set_rmpn(srq.srqn);
            file.hca.command(&input)?.rmpc().wq().lwm()
        }
    };
    let (max_wr, max_sge) = (srq.wqes - 1, srq.max_sge);
    call.respond(&QuerySrqResp { max_wr, max_sge, srq_limit: limit, reserved: 0 })
}
