//! Flow tables, their groups and entries, and counters.

use mlx5_prm::cmd::CommandStatus;
use mlx5_prm::cmd::flow::{
    AllocFlowCounterIn, AllocFlowCounterOut, CreateFlowGroupIn, CreateFlowGroupOut,
    CreateFlowTableIn, CreateFlowTableOut, DeallocFlowCounterIn, DeleteFlowTableEntryIn,
    DestinationType, DestroyFlowGroupIn, DestroyFlowTableIn, FlowDestination, FlowTableContext,
    MODIFY_MISS_TABLE, ModifyFlowTableIn, QueryFlowCounterIn, SetFlowTableEntryIn,
    SetFlowTableRootIn, TableMiss, TrafficCounter, flow_action, modify_entry,
};
use mlx5_prm::fields::FromBytes;

use crate::engine::{Device, Error, FlowEntry, FlowGroup, FlowTableConfig, FlowTarget};
use crate::firmware::{Answer, Failure, syndrome};

/// `SetFlowTableRootIn::op_mod`: removes the root.
const DISCONNECT: u32 = 1;
/// `SetFlowTableEntryIn::op_mod`: changes an entry that exists.
const MODIFY: u32 = 1;
/// The actions of an entry that the device supports.
const KNOWN: u32 =
    flow_action::ALLOW | flow_action::DROP | flow_action::FWD_DEST | flow_action::COUNT;

fn miss(context: &FlowTableContext) -> Result<Option<u32>, Failure> {
    match TableMiss(context.table_miss_action()) {
        TableMiss::DEFAULT => Ok(None),
        TableMiss::FORWARD => Ok(Some(context.table_miss_id())),
        _ => Err(Failure::param(syndrome::INVALID_VALUE)),
    }
}

pub(crate) fn create_table(
    device: &mut Device,
    input: &CreateFlowTableIn,
    out: &mut CreateFlowTableOut,
) -> Answer {
    let context = input.flow_table_context();
    if input.other_vport() || context.sw_owner() || context.termination_table() {
        return Err(Failure::param(syndrome::INVALID_VALUE));
    }
    out.set_table_id(device.create_flow_table(FlowTableConfig {
        kind: input.table_type() as u8,
        level: context.level() as u8,
        log_size: context.log_size() as u8,
        miss: miss(context)?,
    })?);
    Ok(())
}

pub(crate) fn modify_table(device: &mut Device, input: &ModifyFlowTableIn) -> Answer {
    if input.modify_field_select() & MODIFY_MISS_TABLE == 0 {
        return Err(Failure::param(syndrome::INVALID_VALUE));
    }
    let next = miss(input.flow_table_context())?;
    Ok(device.set_flow_miss(input.table_type() as u8, input.table_id(), next)?)
}

pub(crate) fn set_root(device: &mut Device, input: &SetFlowTableRootIn) -> Answer {
    let root = (input.op_mod() != DISCONNECT).then_some(input.table_id());
    Ok(device.set_flow_root(input.table_type() as u8, root)?)
}

pub(crate) fn destroy_table(device: &mut Device, input: &DestroyFlowTableIn) -> Answer {
    Ok(device.destroy_flow_table(input.table_type() as u8, input.table_id())?)
}

pub(crate) fn create_group(
    device: &mut Device,
    input: &CreateFlowGroupIn,
    out: &mut CreateFlowGroupOut,
) -> Answer {
    let group = FlowGroup::new(
        input.start_flow_index(),
        input.end_flow_index(),
        input.match_criteria_enable() as u8,
        input.match_criteria(),
    );
    let kind = input.table_type() as u8;
    out.set_group_id(device.create_flow_group(kind, input.table_id(), group)?);
    Ok(())
}

pub(crate) fn destroy_group(device: &mut Device, input: &DestroyFlowGroupIn) -> Answer {
    let kind = input.table_type() as u8;
    Ok(device.destroy_flow_group(kind, input.table_id(), input.group_id())?)
}

fn destination(listed: &FlowDestination) -> Result<FlowTarget, Failure> {
    match DestinationType(listed.destination_type()) {
        DestinationType::FLOW_TABLE => Ok(FlowTarget::Table(listed.destination_id())),
        DestinationType::TIR => Ok(FlowTarget::Tir(listed.destination_id())),
        _ => Err(Failure::param(syndrome::INVALID_VALUE)),
    }
}

pub(crate) fn set_entry(device: &mut Device, input: &SetFlowTableEntryIn, tail: &[u8]) -> Answer {
    let context = input.flow_context();
    let (kind, table, index) = (input.table_type() as u8, input.table_id(), input.flow_index());
    if context.action() & !KNOWN != 0 || context.extended_destination() {
        return Err(Failure::param(syndrome::INVALID_VALUE));
    }
    let (first, second) =
        (context.destination_list_size() as usize, context.flow_counter_list_size() as usize);
    let listed: Vec<FlowDestination> = tail
        .chunks_exact(FlowDestination::BYTES)
        .take(first + second)
        .filter_map(|bytes| FlowDestination::read_from_bytes(bytes).ok())
        .collect();
    if listed.len() < first + second {
        return Err(Failure::new(CommandStatus::BAD_INP_LEN_ERR, syndrome::SHORT_INPUT));
    }
    let acts = |action: u32| context.action() & action != 0;
    let targets: Result<Vec<_>, _> = listed[..first].iter().map(destination).collect();
    let mut entry = FlowEntry {
        group: context.group_id(),
        value: Box::new(*context.match_value()),
        tag: context.flow_tag(),
        drop: acts(flow_action::DROP),
        targets: if acts(flow_action::FWD_DEST) { targets? } else { Vec::new() },
        counters: listed[first..].iter().map(FlowDestination::flow_counter_id).collect(),
    };
    if !acts(flow_action::COUNT) {
        entry.counters.clear();
    }
    if input.op_mod() == MODIFY {
        let changes = |field: u32| input.modify_enable_mask() & field != 0;
        let mut changed = device.flow_entry(kind, table, index)?.clone();
        if changes(modify_entry::ACTION) {
            changed.drop = entry.drop;
        }
        if changes(modify_entry::FLOW_TAG) {
            changed.tag = entry.tag;
        }
        if changes(modify_entry::DESTINATION_LIST) {
            changed.targets = entry.targets;
        }
        if changes(modify_entry::FLOW_COUNTERS) {
            changed.counters = entry.counters;
        }
        entry = changed;
    }
    Ok(device.set_flow_entry(kind, table, index, entry)?)
}

pub(crate) fn delete_entry(device: &mut Device, input: &DeleteFlowTableEntryIn) -> Answer {
    let kind = input.table_type() as u8;
    Ok(device.delete_flow_entry(kind, input.table_id(), input.flow_index())?)
}

pub(crate) fn alloc_counter(
    device: &mut Device,
    input: &AllocFlowCounterIn,
    out: &mut AllocFlowCounterOut,
) -> Answer {
    // Counters are allocated one by one: the capabilities offer no bulk.
    if input.flow_counter_bulk() != 0 {
        return Err(Failure::param(syndrome::INVALID_VALUE));
    }
    out.set_flow_counter_id(device.create_flow_counter()?);
    Ok(())
}

pub(crate) fn dealloc_counter(device: &mut Device, input: &DeallocFlowCounterIn) -> Answer {
    Ok(device.destroy_flow_counter(input.flow_counter_id())?)
}

pub(crate) fn query_counter(
    device: &mut Device,
    input: &QueryFlowCounterIn,
    tail: &mut [u8],
) -> Answer {
    let first = input.flow_counter_id();
    let count = input.num_of_counters().max(1);
    for (number, slot) in
        (first..first.saturating_add(count)).zip(tail.chunks_mut(TrafficCounter::BYTES))
    {
        let counted = device.flow_count(number).ok_or(Error::NotFound)?;
        let mut answer = TrafficCounter::default();
        answer.set_packets(counted.packets).set_octets(counted.bytes);
        let shown = slot.len();
        slot.copy_from_slice(&answer.as_bytes()[..shown]);
        if input.clear() {
            device.clear_flow_count(number);
        }
    }
    Ok(())
}
