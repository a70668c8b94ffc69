//! MODIFY_QP.

use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::CommandOpcode;
use mlx5_prm::cmd::qp::{AtomicMode, Init2RtrQpIn, PathMigrationState, Qp2RstIn, QpContext, QpMtu};
use mlx5_prm::fields::set_bits;
use mlx5_uapi::Errno;
use mlx5_uapi::mlx5;
use mlx5_uapi::verbs::{AccessFlags, MigState, Mtu, QpAttrMask, QpState, QpType};
use mlx5_uapi::write_cmd::{ExModifyQp, ExModifyQpResp, ModifyQp};

use crate::kernel::file::{OpenFile, State};
use crate::kernel::hca::Hca;
use crate::kernel::known::Known;
use crate::kernel::objects::Qp;
use crate::kernel::qp_states::{command, is_allowed, parameters};
use crate::kernel::rates::Rate;
use crate::kernel::write_call::WriteCall;
use crate::kernel::{lock, path, rates, raw_qp};

/// Attributes up to the destination's number; rate limits came later.
const STANDARD: u32 = (1 << 21) - 1;
/// The longest message of a datagram, as a logarithm.
const LOG_DATAGRAM: u32 = 12;

pub(crate) fn modify(
    file: &OpenFile,
    state: &mut State,
    call: &mut WriteCall<'_, '_>,
) -> Result<(), Errno> {
    state.context()?;
    let request: ModifyQp = call.request();
    apply(file, state, &request, STANDARD, None)
}

pub(crate) fn modify_ex(
    file: &OpenFile,
    state: &mut State,
    call: &mut WriteCall<'_, '_>,
) -> Result<(), Errno> {
    state.context()?;
    let request: ExModifyQp = call.request();
    let driver: mlx5::ModifyQp = call.driver_request();
    if driver.comp_mask != 0 || driver.burst_info.reserved != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let rate = Rate {
        kilobits: request.rate_limit,
        burst: driver.burst_info.max_burst_sz,
        typical_packet: driver.burst_info.typical_pkt_sz,
    };
    let limit = (request.base.attr_mask & QpAttrMask::RATE_LIMIT.bits() != 0).then_some(rate);
    apply(file, state, &request.base, STANDARD | QpAttrMask::RATE_LIMIT.bits(), limit)?;
    let response_length = size_of::<ExModifyQpResp>() as u32;
    call.respond(&ExModifyQpResp { comp_mask: 0, response_length })?;
    call.respond_driver(&mlx5::ModifyQpResp {
        response_length: call.driver_room().min(size_of::<mlx5::ModifyQpResp>()) as u32,
        ..mlx5::ModifyQpResp::default()
    })
}

fn is_port(hca: &Hca, port: u8) -> bool {
    (1..=hca.ports()).contains(&port)
}

fn apply(
    file: &OpenFile,
    state: &mut State,
    request: &ModifyQp,
    supported: u32,
    limit: Option<Rate>,
) -> Result<(), Errno> {
    let hca = &file.hca;
    if request.attr_mask & !supported != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let qp = state.objects.qp(request.qp_handle)?;
    let known = &mut *lock(&qp.known);
    let mask = QpAttrMask::from_bits_truncate(request.attr_mask).difference(ignored(qp.kind));
    let stated = |told, number| match mask.contains(told) {
        true => QpState::from_raw(number).map(Some).ok_or(Errno::EINVAL),
        false => Ok(None),
    };
    let from = stated(QpAttrMask::CUR_STATE, request.cur_qp_state)?.unwrap_or(known.state);
    let to = stated(QpAttrMask::STATE, request.qp_state)?.unwrap_or(from);
    if mask.contains(QpAttrMask::PORT) && !is_port(hca, request.port_num) {
        return Err(Errno::EINVAL);
    }
    if mask.contains(QpAttrMask::AV) {
        let port = request.dest.port_num;
        // At the transition to RTR the path's port must be the queue pair's.
        if !is_port(hca, port)
            || mask.contains(QpAttrMask::STATE) && to == QpState::Rtr && port != known.port
        {
            return Err(Errno::EINVAL);
        }
    }
    if !is_allowed(from, to, qp.kind, mask) {
        return Err(Errno::EINVAL);
    }
    if let Some(raw) = &qp.raw {
        let caps = rates::caps();
        if limit.is_some_and(|limit| {
            limit.burst != 0 && (limit.kilobits == 0 || !caps.packet_pacing_burst_bound())
                || limit.typical_packet != 0
                    && (limit.kilobits == 0 || !caps.packet_pacing_typical_size())
        }) {
            return Err(Errno::EINVAL);
        }
        if !(from == QpState::Reset && to == QpState::Reset) {
            let port = if mask.contains(QpAttrMask::PORT) { request.port_num } else { known.port };
            raw_qp::modify(hca, raw, port, (from, to), limit)?;
        }
        remember(known, request, mask, to);
        return Ok(());
    }
    let limits = hca.fabric.config().limits;
    let deepest = 1u32 << hca.caps.log_max_ra_res_qp();
    let beyond = |told, number: u32, most: u32| mask.contains(told) && number > most;
    if beyond(QpAttrMask::PKEY_INDEX, request.pkey_index.into(), limits.pkeys - 1)
        || beyond(QpAttrMask::MAX_QP_RD_ATOMIC, request.max_rd_atomic.into(), deepest)
        || beyond(QpAttrMask::MAX_DEST_RD_ATOMIC, request.max_dest_rd_atomic.into(), deepest)
    {
        return Err(Errno::EINVAL);
    }
    if from == QpState::Reset && to == QpState::Reset {
        return Ok(());
    }
    let opcode = command(from, to).ok_or(Errno::EINVAL)?;
    if matches!(opcode, CommandOpcode::TO_RST_QP | CommandOpcode::TO_ERR_QP) {
        let mut input = Qp2RstIn::request();
        set_bits(input.as_bytes_mut(), 0, 16, opcode.0.into());
        input.set_qpn(qp.qpn);
        hca.command(&input)?;
    } else {
        let mut input = Init2RtrQpIn::request();
        // All transitions with a context have the same layout.
        input.set_opcode(opcode.0);
        input.set_qpn(qp.qpn).set_opt_param_mask(parameters(mask).bits());
        fill(hca, input.qpc_mut(), qp, known, request, mask, to)?;
        hca.command(&input)?;
    }
    remember(known, request, mask, to);
    Ok(())
}

/// Attributes that the core removes from the mask, as this half of a connection has none of them;
/// programs may set them all the same (`modify_qp_mask` of the kernel's `uverbs_cmd.c`).
fn ignored(kind: QpType) -> QpAttrMask {
    match kind {
        QpType::XrcIni => QpAttrMask::MAX_DEST_RD_ATOMIC | QpAttrMask::MIN_RNR_TIMER,
        QpType::XrcTgt => {
            QpAttrMask::MAX_QP_RD_ATOMIC | QpAttrMask::RETRY_CNT | QpAttrMask::RNR_RETRY
        }
        _ => QpAttrMask::empty(),
    }
}

/// Records a completed transition.
fn remember(known: &mut Known, request: &ModifyQp, mask: QpAttrMask, to: QpState) {
    known.state = to;
    if to == QpState::Reset {
        (known.responder_depth, known.access) = (0, AccessFlags::empty());
    }
    if mask.contains(QpAttrMask::PORT) {
        known.port = request.port_num;
    }
    if mask.contains(QpAttrMask::ACCESS_FLAGS) {
        known.access = AccessFlags::from_bits_truncate(request.qp_access_flags);
    }
    if mask.contains(QpAttrMask::MAX_DEST_RD_ATOMIC) {
        known.responder_depth = request.max_dest_rd_atomic;
    }
    if mask.contains(QpAttrMask::DEST_QPN) {
        known.remote_qpn = request.dest_qp_num;
    }
}

fn fill(
    hca: &Hca,
    qpc: &mut QpContext,
    qp: &Qp,
    known: &Known,
    request: &ModifyQp,
    mask: QpAttrMask,
    to: QpState,
) -> Result<(), Errno> {
    let has = |attribute| mask.contains(attribute);
    let port = if has(QpAttrMask::PORT) { request.port_num } else { known.port };
    qpc.set_pm_state(PathMigrationState::MIGRATED.0);
    if has(QpAttrMask::PATH_MIG_STATE) {
        let state = MigState::from_raw(request.path_mig_state).ok_or(Errno::EINVAL)?;
        qpc.set_pm_state(match state {
            MigState::Migrated => PathMigrationState::MIGRATED.0,
            MigState::Rearm => PathMigrationState::REARM.0,
            MigState::Armed => PathMigrationState::ARMED.0,
        });
    }
    if qp.kind == QpType::Ud {
        if to == QpState::Rtr {
            qpc.set_mtu(QpMtu::BYTES_4096.0).set_log_msg_max(LOG_DATAGRAM);
        }
    } else if has(QpAttrMask::PATH_MTU) {
        let mtu = Mtu::from_raw(request.path_mtu).ok_or(Errno::EINVAL)?;
        qpc.set_mtu(mtu.raw().into()).set_log_msg_max(hca.caps.log_max_msg());
    }
    if has(QpAttrMask::DEST_QPN) {
        qpc.set_remote_qpn(request.dest_qp_num);
    }
    if has(QpAttrMask::AV) {
        let remote = if has(QpAttrMask::DEST_QPN) { request.dest_qp_num } else { known.remote_qpn };
        let path = qpc.primary_address_path_mut();
        path::fill(hca, path, &request.dest, port, (qp.qpn, remote))?;
    }
    if has(QpAttrMask::ALT_PATH) {
        // There is no automatic path migration.
        return Err(Errno::EINVAL);
    }
    qpc.primary_address_path_mut()
        .set_pkey_index(request.pkey_index.into())
        .set_vhca_port_num(port.into())
        .set_ack_timeout(request.timeout.into());
    qpc.set_retry_count(request.retry_cnt.into())
        .set_rnr_retry(request.rnr_retry.into())
        .set_min_rnr_nak(request.min_rnr_timer.into())
        .set_next_send_psn(request.sq_psn)
        .set_next_rcv_psn(request.rq_psn)
        .set_q_key(request.qkey)
        .set_log_sra_max(log(request.max_rd_atomic))
        .set_log_rra_max(log(request.max_dest_rd_atomic));
    rights(qpc, known, request, mask);
    Ok(())
}

/// Rounds up, as mlx5_ib does.
fn log(depth: u8) -> u32 {
    u32::from(depth.max(1)).next_power_of_two().ilog2()
}

/// The peer's rights: reads and atomics only if it may have some outstanding.
fn rights(qpc: &mut QpContext, known: &Known, request: &ModifyQp, mask: QpAttrMask) {
    let depth = match mask.contains(QpAttrMask::MAX_DEST_RD_ATOMIC) {
        true => request.max_dest_rd_atomic,
        false => known.responder_depth,
    };
    let mut access = match mask.contains(QpAttrMask::ACCESS_FLAGS) {
        true => AccessFlags::from_bits_truncate(request.qp_access_flags),
        false => known.access,
    };
    if depth == 0 {
        access &= AccessFlags::REMOTE_WRITE;
    }
    qpc.set_rre(access.contains(AccessFlags::REMOTE_READ))
        .set_rwe(access.contains(AccessFlags::REMOTE_WRITE));
    if access.contains(AccessFlags::REMOTE_ATOMIC) {
        qpc.set_rae(true).set_atomic_mode(AtomicMode::IB_SPEC.0);
    }
}
