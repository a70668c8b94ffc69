//! Queues of Ethernet ports, and what steers packets to them.
//!
//! The simulated wire carries no frames of a network stack: send queues execute and complete their
//! requests, receive queues wait. The objects are kept as far as they depend on one another.

use std::collections::{BTreeMap, BTreeSet};

use mlx5_prm::cmd::CommandOpcode as Op;
use mlx5_prm::cmd::CommandStatus;
use mlx5_prm::cmd::ethernet::{
    CreateRqIn, CreateRqOut, CreateSqIn, CreateSqOut, DestroyRqIn, DestroySqIn, EthernetCaps,
    EthernetInlineMode, FlowIn, FlowTableCaps, ModifyNicVportContextIn, ModifyRqIn, ModifySqIn,
    QueryRqIn, QueryRqOut, QuerySqIn, QuerySqOut, QueueState, ReceiveQueueContext,
    SendQueueContext, SteeringIn, SteeringOut,
};
use mlx5_prm::cmd::port::{NicVportContext, QueryNicVportContextOut};
use mlx5_prm::fields::FromBytes;

use crate::engine::{CompletionConfig, Device, Error, QpConfig, QpState, RingConfig, Transport};
use crate::firmware::register::{ETHERNET_MTU, FRAME};
use crate::firmware::{Answer, Failure, Firmware, Numbers, buffer, syndrome};

/// Objects of a kind that a device has.
const OBJECTS: u32 = 1 << 16;
/// Base-two logarithm of the objects, as capabilities have it.
pub(super) const LOG_OBJECTS: u32 = OBJECTS.trailing_zeros();
/// Base-two logarithm of a flow table's entries, of flow tables, and the levels of tables.
const LOG_ENTRIES: u32 = 16;
const FLOW_LEVELS: u32 = 64;
/// Base-two logarithm of the bytes of the largest packet that is cut in segments.
const LOG_SEGMENTED: u32 = 16;

/// What there is of Ethernet.
#[derive(Debug, Default)]
pub(super) struct Ethernet {
    sqs: BTreeMap<u32, SendQueueContext>,
    rqs: BTreeMap<u32, ReceiveQueueContext>,
    rq_numbers: Numbers,
    tirs: Numbers,
    tises: Numbers,
    rq_tables: Numbers,
    /// Flow tables by kind and number, each with its groups and entries.
    tables: BTreeMap<(u32, u32), Table>,
    table_numbers: Numbers,
    /// The vport as the driver has set it, and whether it wants RoCE.
    vport: NicVportContext,
    roce: Option<bool>,
}

#[derive(Debug, Default)]
struct Table {
    groups: BTreeSet<u32>,
    next_group: u32,
    entries: BTreeSet<u32>,
}

pub(super) fn caps(caps: &mut EthernetCaps) {
    caps.set_csum_cap(true)
        .set_vlan_cap(true)
        .set_wqe_vlan_insert(true)
        .set_self_lb_en_modifiable(true)
        .set_max_lso_cap(LOG_SEGMENTED)
        .set_wqe_inline_mode(EthernetInlineMode::NOT_REQUIRED.0)
        .set_rss_ind_tbl_cap(8);
}

pub(super) fn flow_table_caps(caps: &mut FlowTableCaps) {
    let receive = caps.nic_receive_mut();
    receive
        .set_ft_support(true)
        .set_flow_modify_en(true)
        .set_modify_root(true)
        .set_identified_miss_table_mode(true)
        .set_flow_table_modify(true)
        .set_log_max_ft_size(LOG_ENTRIES)
        .set_max_ft_level(FLOW_LEVELS)
        .set_log_max_ft_num(LOG_ENTRIES)
        .set_log_max_destination(LOG_ENTRIES)
        .set_log_max_flow(LOG_ENTRIES);
    receive.ft_field_support_mut().fill(0xff);
    receive.ft_field_bitmask_support_mut().fill(0xff);
}

/// The namespace of a steering object, and whether the command makes, ends or only names one.
enum Steering {
    Create,
    Destroy,
    Name,
}

impl Ethernet {
    fn numbers(&mut self, opcode: Op) -> Option<(&mut Numbers, Steering)> {
        Some(match opcode {
            Op::CREATE_TIR => (&mut self.tirs, Steering::Create),
            Op::MODIFY_TIR | Op::QUERY_TIR => (&mut self.tirs, Steering::Name),
            Op::DESTROY_TIR => (&mut self.tirs, Steering::Destroy),
            Op::CREATE_TIS => (&mut self.tises, Steering::Create),
            Op::MODIFY_TIS | Op::QUERY_TIS => (&mut self.tises, Steering::Name),
            Op::DESTROY_TIS => (&mut self.tises, Steering::Destroy),
            Op::CREATE_RQT => (&mut self.rq_tables, Steering::Create),
            Op::MODIFY_RQT | Op::QUERY_RQT => (&mut self.rq_tables, Steering::Name),
            Op::DESTROY_RQT => (&mut self.rq_tables, Steering::Destroy),
            _ => return None,
        })
    }

    /// How many objects there are, flow tables with all that is in them aside.
    pub(super) fn count(&self) -> usize {
        let numbers = [&self.tirs, &self.tises, &self.rq_tables];
        self.rqs.len()
            + self.sqs.len()
            + numbers.map(|numbers| numbers.used.len()).iter().sum::<usize>()
    }
}

/// The head of a command whose further layout concerns nobody here, and that of its answer. An
/// input that ends early is zero from there on.
fn heads<'a, I>(
    input: &[u8],
    output: &'a mut [u8],
    read: impl FnOnce(&[u8]) -> I,
) -> Result<(I, &'a mut SteeringOut), Failure> {
    let short = Failure::new(CommandStatus::BAD_OUTP_LEN_ERR, syndrome::SHORT_OUTPUT);
    let (out, _) = SteeringOut::mut_from_prefix(output).map_err(|_| short)?;
    Ok((read(input), out))
}

impl Firmware {
    /// TIR, TIS and RQ table commands: what they say about packets concerns nobody here.
    pub(super) fn steering(&mut self, opcode: Op, input: &[u8], output: &mut [u8]) -> Answer {
        let (input, out) = heads(input, output, SteeringIn::from_short)?;
        let unknown = Failure::new(CommandStatus::BAD_OP_ERR, syndrome::UNKNOWN_OPCODE);
        let (numbers, what) = self.ethernet.numbers(opcode).ok_or(unknown)?;
        match what {
            Steering::Create => {
                out.set_number(numbers.take(OBJECTS)?);
            }
            Steering::Destroy => numbers.give_back(input.number())?,
            Steering::Name if numbers.used.contains(&input.number()) => {}
            Steering::Name => return Err(Error::NotFound.into()),
        }
        Ok(())
    }

    /// Commands about flow tables.
    pub(super) fn flow(&mut self, opcode: Op, input: &[u8], output: &mut [u8]) -> Answer {
        let (input, out) = heads(input, output, FlowIn::from_short)?;
        let ethernet = &mut self.ethernet;
        let key = (input.table_type(), input.table_id());
        if opcode == Op::CREATE_FLOW_TABLE {
            let number = ethernet.table_numbers.take(OBJECTS)?;
            ethernet.tables.insert((key.0, number), Table::default());
            out.set_number(number);
            return Ok(());
        }
        let table = ethernet.tables.get_mut(&key).ok_or(Error::NotFound)?;
        match opcode {
            Op::DESTROY_FLOW_TABLE => {
                if !table.groups.is_empty() || !table.entries.is_empty() {
                    return Err(Error::Busy.into());
                }
                ethernet.tables.remove(&key);
                ethernet.table_numbers.give_back(key.1)?;
            }
            Op::CREATE_FLOW_GROUP => {
                table.next_group += 1;
                table.groups.insert(table.next_group);
                out.set_number(table.next_group);
            }
            Op::DESTROY_FLOW_GROUP => {
                let there = table.groups.remove(&input.group_id());
                there.then_some(()).ok_or(Error::NotFound)?;
            }
            Op::SET_FLOW_TABLE_ENTRY => {
                table.entries.insert(input.flow_index());
            }
            Op::DELETE_FLOW_TABLE_ENTRY => {
                let there = table.entries.remove(&input.flow_index());
                there.then_some(()).ok_or(Error::NotFound)?;
            }
            // A root, or what a table does with what it does not know: of no effect here.
            _ => {}
        }
        Ok(())
    }

    pub(super) fn create_sq(
        &mut self,
        device: &mut Device,
        input: &CreateSqIn,
        tail: &[u8],
        out: &mut CreateSqOut,
    ) -> Answer {
        let mut context = *input.ctx();
        let wq = *context.wq();
        let ring = RingConfig {
            offset: 0,
            log_size: wq.log_wq_sz() as u8,
            log_stride: wq.log_wq_stride() as u8,
        };
        let sqn = device.create_qp(QpConfig {
            transport: Transport::Ethernet,
            pd: wq.pd(),
            send_cq: context.cqn(),
            recv_cq: context.cqn(),
            srq: None,
            xrcd: None,
            user_index: context.user_index(),
            buffer: buffer::queue(tail, wq.log_wq_pg_sz(), wq.page_offset(), ring.bytes())?,
            sq: Some(ring),
            rq: None,
            record: buffer::record(wq.dbr_addr())?,
            uar: wq.uar_page(),
            block_multicast_loopback: false,
            completion: CompletionConfig::default(),
            signed: false,
            rendezvous: false,
        })?;
        context.set_state(QueueState::RST.0);
        self.ethernet.sqs.insert(sqn, context);
        out.set_sqn(sqn);
        Ok(())
    }

    pub(super) fn modify_sq(&mut self, device: &mut Device, input: &ModifySqIn) -> Answer {
        let context = self.ethernet.sqs.get_mut(&input.sqn()).ok_or(Error::NotFound)?;
        if context.state() != input.sq_state() {
            return Err(Failure::state(syndrome::TRANSITION));
        }
        let state = match QueueState(input.ctx().state()) {
            QueueState::RST => QpState::Reset,
            QueueState::RDY => QpState::Rts,
            QueueState::ERR => QpState::Error,
            _ => return Err(Failure::param(syndrome::INVALID_VALUE)),
        };
        if context.state() != input.ctx().state() {
            device.set_qp_state(input.sqn(), state)?;
            context.set_state(input.ctx().state());
        }
        Ok(())
    }

    pub(super) fn query_sq(&mut self, input: &QuerySqIn, out: &mut QuerySqOut) -> Answer {
        *out.sq_context_mut() = *self.ethernet.sqs.get(&input.sqn()).ok_or(Error::NotFound)?;
        Ok(())
    }

    pub(super) fn destroy_sq(&mut self, device: &mut Device, input: &DestroySqIn) -> Answer {
        self.ethernet.sqs.remove(&input.sqn()).ok_or(Error::NotFound)?;
        Ok(device.destroy_qp(input.sqn())?)
    }

    pub(super) fn create_rq(
        &mut self,
        device: &Device,
        input: &CreateRqIn,
        out: &mut CreateRqOut,
    ) -> Answer {
        let mut context = *input.ctx();
        device.cq(context.cqn()).ok_or(Error::NotFound)?;
        let rqn = self.ethernet.rq_numbers.take(OBJECTS)?;
        context.set_state(QueueState::RST.0);
        self.ethernet.rqs.insert(rqn, context);
        out.set_rqn(rqn);
        Ok(())
    }

    pub(super) fn modify_rq(&mut self, input: &ModifyRqIn) -> Answer {
        let context = self.ethernet.rqs.get_mut(&input.rqn()).ok_or(Error::NotFound)?;
        if context.state() != input.rq_state() {
            return Err(Failure::state(syndrome::TRANSITION));
        }
        context.set_state(input.ctx().state());
        Ok(())
    }

    pub(super) fn query_rq(&mut self, input: &QueryRqIn, out: &mut QueryRqOut) -> Answer {
        *out.rq_context_mut() = *self.ethernet.rqs.get(&input.rqn()).ok_or(Error::NotFound)?;
        Ok(())
    }

    pub(super) fn destroy_rq(&mut self, input: &DestroyRqIn) -> Answer {
        self.ethernet.rqs.remove(&input.rqn()).ok_or(Error::NotFound)?;
        self.ethernet.rq_numbers.give_back(input.rqn())
    }

    /// Whether a receive queue reports to a completion queue.
    pub(super) fn rq_reports_to(&self, cqn: u32) -> bool {
        self.ethernet.rqs.values().any(|rq| rq.cqn() == cqn)
    }

    pub(super) fn nic_vport_context(
        &mut self,
        device: &Device,
        out: &mut QueryNicVportContextOut,
    ) -> Answer {
        let port = device.port(1).ok_or(Failure::param(syndrome::PORT_NUMBER))?;
        let context = out.nic_vport_context_mut();
        *context = self.ethernet.vport;
        context
            .set_system_image_guid(device.system_guid())
            .set_node_guid(device.system_guid())
            .set_port_guid(port.guid)
            // Addresses that are there from the start are RoCE's.
            .set_roce_en(self.ethernet.roce.unwrap_or(device.config().addresses));
        if context.mtu() == 0 {
            context.set_mtu(ETHERNET_MTU + FRAME);
        }
        let [a, b, low @ ..] = port.mac;
        context
            .permanent_address_mut()
            .set_mac_addr_47_32(u16::from_be_bytes([a, b]).into())
            .set_mac_addr_31_0(u32::from_be_bytes(low));
        Ok(())
    }

    pub(super) fn modify_nic_vport_context(&mut self, input: &ModifyNicVportContextIn) -> Answer {
        let wanted = input.nic_vport_context();
        if input.select_roce_en() {
            self.ethernet.roce = Some(wanted.roce_en());
        }
        let vport = &mut self.ethernet.vport;
        if input.select_mtu() {
            vport.set_mtu(wanted.mtu());
        }
        if input.select_promisc() {
            vport
                .set_promisc_uc(wanted.promisc_uc())
                .set_promisc_mc(wanted.promisc_mc())
                .set_promisc_all(wanted.promisc_all());
        }
        Ok(())
    }
}
