//! Transitions of queue pairs.

use mlx5_prm::cmd::qp::{
    AddressPath as Path, Init2RtrQpIn, OptParamMask, Qp2RstIn, QpContext, Rst2InitQpOut,
};
use mlx5_prm::cmd::{CommandOpcode, CommandStatus};
use mlx5_prm::fields::FromBytes;

use crate::config::LinkLayer;
use crate::engine::{AddressPath, Device, Error, QpAttributes, QpState, Transport};
use crate::firmware::{Answer, Failure, Firmware, syndrome};

/// A transition: its command, and the states before and after.
struct Transition {
    opcode: CommandOpcode,
    from: &'static [QpState],
    to: QpState,
    /// Fields that are set even without their bit in the mask, as the new state needs them.
    required: OptParamMask,
}

const ANY: &[QpState] = &[
    QpState::Reset,
    QpState::Init,
    QpState::Rtr,
    QpState::Rts,
    QpState::SqError,
    QpState::SqDrained,
    QpState::Error,
    QpState::SqDraining,
];

const NONE: OptParamMask = OptParamMask::empty();
const TO_INIT: OptParamMask = OptParamMask::RRE
    .union(OptParamMask::RAE)
    .union(OptParamMask::RWE)
    .union(OptParamMask::PKEY_INDEX)
    .union(OptParamMask::Q_KEY)
    .union(OptParamMask::PM_STATE)
    .union(OptParamMask::PRI_PORT);
const TO_RTR: OptParamMask =
    OptParamMask::PRIMARY_ADDR_PATH.union(OptParamMask::RNR_TIMEOUT).union(OptParamMask::RRA_MAX);
const TO_RTS: OptParamMask = OptParamMask::SRA_MAX
    .union(OptParamMask::RETRY_COUNT)
    .union(OptParamMask::RNR_RETRY)
    .union(OptParamMask::ACK_TIMEOUT);

#[rustfmt::skip]
const TRANSITIONS: &[Transition] = &[
    Transition { opcode: CommandOpcode::RST2INIT_QP, from: &[QpState::Reset], to: QpState::Init, required: TO_INIT },
    Transition { opcode: CommandOpcode::INIT2INIT_QP, from: &[QpState::Init], to: QpState::Init, required: NONE },
    Transition { opcode: CommandOpcode::INIT2RTR_QP, from: &[QpState::Init], to: QpState::Rtr, required: TO_RTR },
    Transition { opcode: CommandOpcode::RTR2RTS_QP, from: &[QpState::Rtr], to: QpState::Rts, required: TO_RTS },
    Transition { opcode: CommandOpcode::RTS2RTS_QP, from: &[QpState::Rts, QpState::SqDraining], to: QpState::Rts, required: NONE },
    Transition { opcode: CommandOpcode::SQERR2RTS_QP, from: &[QpState::SqError], to: QpState::Rts, required: NONE },
    Transition { opcode: CommandOpcode::SQD_RTS_QP, from: &[QpState::SqDrained], to: QpState::Rts, required: NONE },
    Transition { opcode: CommandOpcode::TO_ERR_QP, from: ANY, to: QpState::Error, required: NONE },
    Transition { opcode: CommandOpcode::TO_RST_QP, from: ANY, to: QpState::Reset, required: NONE },
];

/// The two forms of these commands: with a context, and without.
fn read(opcode: CommandOpcode, input: &[u8]) -> Option<(u32, OptParamMask, QpContext)> {
    if matches!(opcode, CommandOpcode::TO_ERR_QP | CommandOpcode::TO_RST_QP) {
        let input = Qp2RstIn::from_bytes(input)?;
        return Some((input.qpn(), NONE, QpContext::default()));
    }
    let input = Init2RtrQpIn::from_bytes(input)?;
    let mask = OptParamMask::from_bits_retain(input.opt_param_mask());
    Some((input.qpn(), mask, *input.qpc()))
}

impl Firmware {
    pub(super) fn modify_qp(
        &mut self,
        device: &mut Device,
        opcode: CommandOpcode,
        input: &[u8],
        output: &mut [u8],
    ) -> Answer {
        let (qpn, optional, wanted) = read(opcode, input)
            .ok_or(Failure::new(CommandStatus::BAD_INP_LEN_ERR, syndrome::SHORT_INPUT))?;
        if Rst2InitQpOut::ref_from_prefix(output).is_err() {
            return Err(Failure::new(CommandStatus::BAD_OUTP_LEN_ERR, syndrome::SHORT_OUTPUT));
        }
        let record = self.qps.get_mut(&qpn).ok_or(Error::NotFound)?;
        let state = device.query_qp(qpn).ok_or(Error::NotFound)?.state;
        let transition = TRANSITIONS
            .iter()
            .find(|transition| transition.opcode == opcode)
            .ok_or(Failure::new(CommandStatus::BAD_OP_ERR, syndrome::UNKNOWN_OPCODE))?;
        if !transition.from.contains(&state) {
            return Err(Failure::state(syndrome::TRANSITION));
        }
        if transition.to == QpState::Reset {
            record.context = record.created;
            return Ok(device.set_qp_state(qpn, QpState::Reset)?);
        }
        let mut next = record.context;
        merge(&mut next, &wanted, optional | transition.required);
        match (transition.opcode, record.transport) {
            (CommandOpcode::INIT2RTR_QP, Transport::Ud) => {
                next.set_mtu(wanted.mtu()).set_log_msg_max(wanted.log_msg_max());
            }
            (CommandOpcode::INIT2RTR_QP, _) => {
                next.set_mtu(wanted.mtu())
                    .set_log_msg_max(wanted.log_msg_max())
                    .set_remote_qpn(wanted.remote_qpn())
                    .set_next_rcv_psn(wanted.next_rcv_psn());
            }
            (CommandOpcode::RTR2RTS_QP, _) => {
                next.set_next_send_psn(wanted.next_send_psn())
                    .set_log_ack_req_freq(wanted.log_ack_req_freq());
            }
            _ => {}
        }
        if next.drain_sigerr() && !device.config().capabilities.drain_sigerr {
            return Err(Failure::param(syndrome::INVALID_VALUE));
        }
        if transition.to != QpState::Error {
            check(device, &next, record.transport, transition.to)?;
        }
        let link_layer =
            device.port(port_number(&next)).map_or(LinkLayer::InfiniBand, |port| port.link_layer);
        let attributes = device.qp_attributes_mut(qpn).ok_or(Error::NotFound)?;
        *attributes = engine_attributes(&next, link_layer);
        record.context = next;
        Ok(device.set_qp_state(qpn, transition.to)?)
    }
}

/// Takes over the fields that the mask names.
fn merge(into: &mut QpContext, from: &QpContext, mask: OptParamMask) {
    let has = |bit| mask.contains(bit);
    if has(OptParamMask::PRIMARY_ADDR_PATH) {
        // The whole path, except fields that the mask names separately.
        let old = *into.primary_address_path();
        *into.primary_address_path_mut() = *from.primary_address_path();
        let path = into.primary_address_path_mut();
        path.set_pkey_index(old.pkey_index())
            .set_vhca_port_num(old.vhca_port_num())
            .set_ack_timeout(old.ack_timeout());
    }
    if has(OptParamMask::ALT_ADDR_PATH) {
        *into.secondary_address_path_mut() = *from.secondary_address_path();
    }
    let path = from.primary_address_path();
    if has(OptParamMask::PKEY_INDEX) {
        into.primary_address_path_mut().set_pkey_index(path.pkey_index());
    }
    if has(OptParamMask::PRI_PORT) {
        into.primary_address_path_mut().set_vhca_port_num(path.vhca_port_num());
    }
    if has(OptParamMask::ACK_TIMEOUT) {
        into.primary_address_path_mut().set_ack_timeout(path.ack_timeout());
    }
    if has(OptParamMask::RRE) {
        into.set_rre(from.rre());
    }
    if has(OptParamMask::RAE) {
        into.set_rae(from.rae()).set_atomic_mode(from.atomic_mode());
    }
    if has(OptParamMask::RWE) {
        into.set_rwe(from.rwe());
    }
    if has(OptParamMask::Q_KEY) {
        into.set_q_key(from.q_key());
    }
    if has(OptParamMask::RNR_TIMEOUT) {
        into.set_min_rnr_nak(from.min_rnr_nak());
    }
    if has(OptParamMask::SRA_MAX) {
        into.set_log_sra_max(from.log_sra_max());
    }
    if has(OptParamMask::RRA_MAX) {
        into.set_log_rra_max(from.log_rra_max());
    }
    if has(OptParamMask::PM_STATE) {
        into.set_pm_state(from.pm_state());
    }
    if has(OptParamMask::DRAIN_SIGERR) {
        into.set_drain_sigerr(from.drain_sigerr());
    }
    if has(OptParamMask::RETRY_COUNT) {
        into.set_retry_count(from.retry_count());
    }
    if has(OptParamMask::RNR_RETRY) {
        into.set_rnr_retry(from.rnr_retry());
    }
    if has(OptParamMask::COUNTER_SET_ID) {
        into.set_counter_set_id(from.counter_set_id());
    }
}

/// Port 0 stands for the first one, on devices with a single port.
fn port_number(context: &QpContext) -> u8 {
    (context.primary_address_path().vhca_port_num() as u8).max(1)
}

fn check(device: &Device, next: &QpContext, transport: Transport, to: QpState) -> Answer {
    let port = device.port(port_number(next)).ok_or(Failure::param(syndrome::PORT_NUMBER))?;
    let path = next.primary_address_path();
    if path.pkey_index() as usize >= port.pkeys.len() {
        return Err(Failure::param(syndrome::PKEY_INDEX));
    }
    if matches!(transport, Transport::Ud | Transport::Umr) || to == QpState::Init {
        return Ok(());
    }
    if !(1..=5).contains(&next.mtu()) || mtu_bytes(next) > port.mtu {
        return Err(Failure::param(syndrome::PATH_MTU));
    }
    let with_gid = path.grh() || port.link_layer == LinkLayer::Ethernet;
    if with_gid && port.gid(path.src_addr_index() as usize).is_none() {
        return Err(Failure::param(syndrome::GID_INDEX));
    }
    let most = u32::from(device.config().limits.log_reads);
    if next.log_rra_max() > most || next.log_sra_max() > most {
        return Err(Failure::param(syndrome::READ_DEPTH));
    }
    Ok(())
}

fn mtu_bytes(context: &QpContext) -> u32 {
    128 << context.mtu()
}

fn engine_attributes(context: &QpContext, link_layer: LinkLayer) -> QpAttributes {
    let path = context.primary_address_path();
    QpAttributes {
        port: port_number(context),
        pkey_index: path.pkey_index() as u16,
        qkey: context.q_key(),
        mtu: mtu_bytes(context),
        remote_qpn: context.remote_qpn(),
        sq_psn: context.next_send_psn(),
        rq_psn: context.next_rcv_psn(),
        ack_timeout: path.ack_timeout() as u8,
        retry_count: context.retry_count() as u8,
        rnr_retry: context.rnr_retry() as u8,
        min_rnr_timer: context.min_rnr_nak() as u8,
        remote_read: context.rre(),
        remote_write: context.rwe(),
        remote_atomic: context.rae(),
        drain_sigerr: context.drain_sigerr(),
        counter_set: context.counter_set_id() as u8,
        path: engine_path(path, link_layer),
        ..QpAttributes::default()
    }
}

fn engine_path(path: &Path, link_layer: LinkLayer) -> AddressPath {
    let ethernet = link_layer == LinkLayer::Ethernet;
    let mut dmac = [0; 6];
    if ethernet {
        dmac[..2].copy_from_slice(&(path.rmac_47_32() as u16).to_be_bytes());
        dmac[2..].copy_from_slice(&path.rmac_31_0().to_be_bytes());
    }
    AddressPath {
        grh: path.grh() || ethernet,
        dlid: if ethernet { 0 } else { path.rlid() as u16 },
        dgid: *path.rgid_rip(),
        dmac,
        sgid_index: path.src_addr_index() as u8,
        sl: if ethernet { path.eth_prio() } else { path.sl() } as u8,
        source_path_bits: path.mlid() as u8,
        traffic_class: path.tclass() as u8,
        hop_limit: path.hop_limit() as u8,
        flow_label: path.flow_label(),
        udp_sport: if ethernet { path.udp_sport() as u16 } else { 0 },
    }
}
