//! Raw packet queue pairs: creation, transitions, query.

use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::ethernet::{CreateRqIn, CreateSqIn, QueueState};
use mlx5_prm::cmd::qp::TimestampFormat;
use mlx5_prm::cmd::srq::{WorkQueue, WorkQueueType};
use mlx5_prm::cmd::steering::{CreateTirIn, CreateTisIn, ModifyTisIn, TirDispatch, self_lb_block};
use mlx5_uapi::Errno;
use mlx5_uapi::mlx5::{self, CreateQpRespMask, QpFlags};
use mlx5_uapi::verbs::{QpCreateFlags, QpState};

use crate::kernel::buffer::{self, QueueMemory};
use crate::kernel::file::Context;
use crate::kernel::hca::Hca;
use crate::kernel::objects::raw::Raw;
use crate::kernel::rates::Rate;
use crate::kernel::rings::Rings;

/// Most of a queue's place in its page, in 64ths: the context has five bits for it.
const MOST_OFFSET: u32 = 31;
/// Logarithm of a send block.
const LOG_BLOCK: u32 = 6;

/// The parts of a raw packet queue pair.
pub(crate) struct Parts<'a> {
    pub(crate) context: Context,
    pub(crate) pdn: u32,
    pub(crate) send_cqn: u32,
    pub(crate) recv_cqn: u32,
    pub(crate) uidx: u32,
    pub(crate) real_time: bool,
    pub(crate) flags: QpCreateFlags,
    pub(crate) driver: &'a mlx5::CreateQp,
    pub(crate) driver_flags: QpFlags,
    pub(crate) rings: &'a Rings,
}

/// Flags that a program may set for a raw packet queue pair. `BLOCK_MULTICAST_LOOPBACK` is
/// accepted, as for every queue pair, but has no effect: `self_lb_block` decides.
pub(crate) const FLAGS: QpCreateFlags = QpCreateFlags::SCATTER_FCS
    .union(QpCreateFlags::BLOCK_MULTICAST_LOOPBACK)
    .union(QpCreateFlags::CVLAN_STRIPPING)
    .union(QpCreateFlags::PCI_WRITE_END_PADDING);
/// The same of the driver's flags.
pub(crate) const DRIVER_FLAGS: QpFlags = QpFlags::TUNNEL_OFFLOADS
    .union(QpFlags::TIR_ALLOW_SELF_LB_UC)
    .union(QpFlags::TIR_ALLOW_SELF_LB_MC);

fn work_queue(
    wq: &mut WorkQueue,
    memory: &QueueMemory,
    record: u64,
    (log_size, log_stride): (u32, u32),
    pdn: u32,
) {
    wq.set_wq_type(WorkQueueType::CYCLIC.0)
        .set_pd(pdn)
        .set_dbr_addr(record)
        .set_page_offset(memory.page_offset)
        .set_log_wq_pg_sz(QueueMemory::LOG_PAGE_SIZE)
        .set_log_wq_stride(log_stride)
        .set_log_wq_sz(log_size);
}

/// The flags of a TIR's context for the driver's flags: which of the function's own frames it
/// takes.
pub(crate) fn own_frames(flags: QpFlags) -> u32 {
    let bit = |flag, bit| if flags.contains(flag) { bit } else { 0 };
    bit(QpFlags::TIR_ALLOW_SELF_LB_UC, self_lb_block::UNICAST)
        | bit(QpFlags::TIR_ALLOW_SELF_LB_MC, self_lb_block::MULTICAST)
}

/// Makes the objects on the device; all of them, or none.
pub(crate) fn create(hca: &Hca, parts: &Parts<'_>) -> Result<Raw, Errno> {
    let mut raw = Raw::default();
    match build(hca, parts, &mut raw) {
        Ok(()) => Ok(raw),
        Err(errno) => {
            // Keep the first error.
            let _ = raw.end(hca);
            Err(errno)
        }
    }
}

fn build(hca: &Hca, parts: &Parts<'_>, raw: &mut Raw) -> Result<(), Errno> {
    let Parts { context, pdn, rings, driver, .. } = *parts;
    let record = buffer::record(driver.db_addr)?;
    let format = match parts.real_time {
        true => TimestampFormat::REAL_TIME,
        false => TimestampFormat::FREE_RUNNING,
    };
    if rings.send_blocks != 0 {
        let mut input = CreateTisIn::request();
        input.ctx_mut().set_transport_domain(context.transport_domain);
        raw.tis = Some(hca.command(&input)?.tisn());
        let bytes = u64::from(rings.send_blocks) << LOG_BLOCK;
        let memory = QueueMemory::new(driver.sq_buf_addr, bytes, MOST_OFFSET)?;
        let mut input = CreateSqIn::request();
        input
            .ctx_mut()
            .set_flush_in_error_en(true)
            .set_allow_multi_pkt_send_wqe(true)
            .set_ts_format(format.0)
            .set_user_index(parts.uidx)
            .set_cqn(parts.send_cqn)
            .set_tis_lst_sz(1)
            .set_tis_num_0(raw.tis.unwrap_or(0));
        let wq = input.ctx_mut().wq_mut();
        work_queue(wq, &memory, record, (rings.send_blocks.ilog2(), LOG_BLOCK), pdn);
        wq.set_uar_page(driver.bfreg_index);
        raw.sq = Some(hca.command_with(&input, &memory.pages)?.sqn());
    }
    if rings.receive_wqes != 0 {
        let bytes = u64::from(rings.receive_wqes) << rings.log_stride;
        let memory = QueueMemory::new(driver.buf_addr, bytes, MOST_OFFSET)?;
        let mut input = CreateRqIn::request();
        input
            .ctx_mut()
            .set_vsd(!parts.flags.contains(QpCreateFlags::CVLAN_STRIPPING))
            .set_scatter_fcs(parts.flags.contains(QpCreateFlags::SCATTER_FCS))
            .set_flush_in_error_en(true)
            .set_ts_format(format.0)
            .set_user_index(parts.uidx)
            .set_cqn(parts.recv_cqn);
        let wq = input.ctx_mut().wq_mut();
        work_queue(wq, &memory, record, (rings.receive_wqes.ilog2(), rings.log_stride), pdn);
        let padding = parts.flags.contains(QpCreateFlags::PCI_WRITE_END_PADDING);
        wq.set_end_padding_mode(padding.into());
        raw.rq = Some(hca.command_with(&input, &memory.pages)?.rqn());
        let mut input = CreateTirIn::request();
        input
            .ctx_mut()
            .set_disp_type(TirDispatch::DIRECT.0)
            .set_inline_rqn(raw.rq.unwrap_or(0))
            .set_tunneled_offload_en(parts.driver_flags.contains(QpFlags::TUNNEL_OFFLOADS))
            .set_self_lb_block(own_frames(parts.driver_flags))
            .set_transport_domain(context.transport_domain);
        raw.tir = Some(hca.command(&input)?.tirn());
        if own_frames(parts.driver_flags) != 0 {
            hca.loopback.enter_queue(hca);
            raw.loops_back = true;
        }
    }
    Ok(())
}

/// The device's numbers of the objects, for programs that use them directly.
pub(crate) fn answer(context: Context, raw: &Raw, response: &mut mlx5::CreateQpResp) {
    if context.uid == 0 {
        return;
    }
    let mut mask = CreateQpRespMask::empty();
    for (number, bit, field) in [
        (raw.tir, CreateQpRespMask::TIRN, &mut response.tirn),
        (raw.tis, CreateQpRespMask::TISN, &mut response.tisn),
        (raw.rq, CreateQpRespMask::RQN, &mut response.rqn),
        (raw.sq, CreateQpRespMask::SQN, &mut response.sqn),
    ] {
        if let Some(number) = number {
            *field = number;
            mask |= bit;
        }
    }
    response.comp_mask = mask.bits();
}

/// Makes a transition that the core allows.
pub(crate) fn modify(
    hca: &Hca,
    raw: &Raw,
    port: u8,
    (from, to): (QpState, QpState),
    limit: Option<Rate>,
) -> Result<(), Errno> {
    if raw.sq.is_none() && raw.rq.is_none() {
        // A queue pair with an indirection table has no state.
        return Err(Errno::EOPNOTSUPP);
    }
    let (receive, send) = match (from, to) {
        (_, QpState::Reset) => (Some(QueueState::RST), Some(QueueState::RST)),
        (_, QpState::Err) => (Some(QueueState::ERR), Some(QueueState::ERR)),
        (QpState::Reset, QpState::Init) => (Some(QueueState::RDY), Some(QueueState::RST)),
        (QpState::Init, QpState::Init | QpState::Rtr) => (None, None),
        (QpState::Rtr | QpState::Rts, QpState::Rts) => (None, Some(QueueState::RDY)),
        _ => return Err(Errno::EINVAL),
    };
    if let (Some(tisn), QpState::Init) = (raw.tis, to)
        && hca.ports() > 1
    {
        let mut input = ModifyTisIn::request();
        input.set_tisn(tisn).set_select_lag_tx_port_affinity(true);
        input.ctx_mut().set_lag_tx_port_affinity(port.into());
        hca.command(&input)?;
    }
    raw.set_state(hca, receive, send, limit)
}

/// The state of the queue pair that follows from those of its queues (`sqrq_state_to_qp_state` of
/// mlx5_ib), which the driver remembers from then on. From some combinations none follows: the
/// driver warns, and returns an error.
pub(crate) fn state(hca: &Hca, raw: &Raw, known: QpState) -> Result<QpState, Errno> {
    use QueueState as Is;
    let [send, receive] = raw.ask(hca)?;
    match (receive, send) {
        (Some(Is::RST), Some(Is::RST) | None) => Ok(QpState::Reset),
        (Some(Is::RDY), Some(Is::ERR)) => Ok(QpState::Sqe),
        (Some(Is::ERR), Some(Is::ERR) | None) => Ok(QpState::Err),
        (Some(Is::RDY), _) | (None, Some(_)) => Ok(known),
        _ => Err(Errno::EINVAL),
    }
}
