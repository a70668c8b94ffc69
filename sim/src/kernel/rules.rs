//! Flow rules of programs, and the device's flow tables that hold them.
//!
//! Each priority has a table, which is created with the first rule of the priority and destroyed
//! with the last. A packet that matches no entry of a table goes on to the next table. Rules for
//! the same packets share one entry.

use std::collections::BTreeMap;

use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::flow::{
    CreateFlowGroupIn, CreateFlowTableIn, DeleteFlowTableEntryIn, DestinationType,
    DestroyFlowGroupIn, DestroyFlowTableIn, FlowDestination, MODIFY_MISS_TABLE, MatchParameters,
    ModifyFlowTableIn, SetFlowTableEntryIn, SetFlowTableEntryOut, SetFlowTableRootIn, TableMiss,
    flow_action, modify_entry,
};
use mlx5_prm::fields::IntoBytes;
use mlx5_uapi::Errno;

use crate::kernel::hca::Hca;
use crate::kernel::lock;
use crate::kernel::steered::{Entry, Fate, Place, RuleId, Rules, Table, Tables, Target};

/// Base-two logarithm of the entries of a table.
const LOG_ENTRIES: u32 = 12;
/// `SetFlowTableRootIn::op_mod`: removes the root.
const DISCONNECT: u32 = 1;
/// `SetFlowTableEntryIn::op_mod`: changes an entry that exists.
const MODIFY: u32 = 1;

/// Number of the table after `place`, if there is one.
fn next(tables: &Tables, place: Place) -> Option<u32> {
    let behind = tables.iter().find(|(other, _)| **other > place && other.kind == place.kind);
    behind.map(|(_, table)| table.number)
}

/// Number of the table to which a rule with this fate may pass its packets: the table for packets
/// that no other rule takes, if the packets skip the rules with a priority, else the next table.
fn behind(tables: &Tables, place: Place, fate: &Fate) -> Option<u32> {
    match fate.leaves {
        true => tables.get(&Place::LEFTOVERS).map(|table| table.number),
        false => next(tables, place),
    }
}

/// Makes packets that reach `place` go to table `to`, or to no table: changes the table before
/// `place`, or the root if there is none, and the entries that pass packets on.
fn connect(hca: &Hca, tables: &Tables, place: Place, to: Option<u32>) -> Result<(), Errno> {
    if place == Place::LEFTOVERS {
        let before = |other: &Place| *other < place && other.kind == place.kind;
        for (_, table) in tables.iter().filter(|(other, _)| before(other)) {
            for (index, entry) in table.entries.iter().filter(|(_, entry)| entry.fate.leaves) {
                set_entry(hca, place.kind, table.number, *index, entry, to, true)?;
            }
        }
    }
    let before = tables.iter().rev().find(|(other, _)| **other < place && other.kind == place.kind);
    let Some((_, before)) = before else {
        let mut input = SetFlowTableRootIn::request();
        input.set_table_type(place.kind).set_table_id(to.unwrap_or(0));
        if to.is_none() {
            input.set_op_mod(DISCONNECT);
        }
        return hca.command(&input).map(drop);
    };
    let mut input = ModifyFlowTableIn::request();
    input
        .set_modify_field_select(MODIFY_MISS_TABLE)
        .set_table_type(place.kind)
        .set_table_id(before.number);
    if let Some(to) = to {
        input
            .flow_table_context_mut()
            .set_table_miss_action(TableMiss::FORWARD.0)
            .set_table_miss_id(to);
    }
    hca.command(&input)?;
    for (index, entry) in before.entries.iter().filter(|(_, entry)| entry.fate.goes_on) {
        set_entry(hca, place.kind, before.number, *index, entry, to, true)?;
    }
    Ok(())
}

fn set_entry(
    hca: &Hca,
    kind: u32,
    table: u32,
    index: u32,
    entry: &Entry,
    next: Option<u32>,
    exists: bool,
) -> Result<(), Errno> {
    let mut destinations: Vec<FlowDestination> = Vec::new();
    let mut lead = |kind: DestinationType, number: u32| {
        let mut destination = FlowDestination::default();
        destination.set_destination_type(kind.0).set_destination_id(number);
        destinations.push(destination);
    };
    for target in entry.targets.iter().flatten() {
        let Target::Tir(tirn) = target;
        lead(DestinationType::TIR, *tirn);
    }
    if let Some(next) = next.filter(|_| entry.fate.goes_on || entry.fate.leaves) {
        lead(DestinationType::FLOW_TABLE, next);
    }
    let mut input = SetFlowTableEntryIn::request();
    input.set_table_type(kind).set_table_id(table).set_flow_index(index);
    if exists {
        input.set_op_mod(MODIFY);
        input.set_modify_enable_mask(modify_entry::DESTINATION_LIST);
    }
    let mut action = if entry.fate.drop { flow_action::DROP } else { flow_action::FWD_DEST };
    if entry.fate.counter.is_some() {
        action |= flow_action::COUNT;
    }
    let context = input.flow_context_mut();
    context
        .set_group_id(entry.group)
        .set_flow_tag(entry.fate.tag.unwrap_or(0))
        .set_action(action)
        .set_destination_list_size(destinations.len() as u32)
        .set_flow_counter_list_size(entry.fate.counter.is_some().into());
    *context.match_value_mut() = *entry.value;
    let mut mailbox = input.as_bytes().to_vec();
    destinations.iter().for_each(|destination| mailbox.extend(destination.as_bytes()));
    if let Some(counter) = entry.fate.counter {
        let mut listed = FlowDestination::default();
        listed.set_flow_counter_id(counter);
        mailbox.extend(listed.as_bytes());
    }
    hca.command_bytes(&mailbox, SetFlowTableEntryOut::default().as_mut_bytes())
}

impl Rules {
    /// Adds a rule for the packets that have the bits of `value` under `mask`.
    pub(crate) fn add(
        &self,
        hca: &Hca,
        place: Place,
        (enabled, mask, value): (u8, &MatchParameters, &MatchParameters),
        fate: &Fate,
        target: Option<Target>,
    ) -> Result<RuleId, Errno> {
        let mut tables = lock(&self.tables);
        if !tables.contains_key(&place) {
            let behind = next(&tables, place);
            let mut input = CreateFlowTableIn::request();
            input.set_table_type(place.kind);
            let context = input.flow_table_context_mut();
            context.set_level(place.priority.into()).set_log_size(LOG_ENTRIES);
            if let Some(behind) = behind {
                context.set_table_miss_action(TableMiss::FORWARD.0).set_table_miss_id(behind);
            }
            let number = hca.command(&input)?.table_id();
            connect(hca, &tables, place, Some(number))?;
            tables.insert(place, Table { number, entries: BTreeMap::new() });
        }
        let added = insert(hca, &mut tables, place, (enabled, mask, value), fate, target);
        if added.is_err() {
            end_if_empty(hca, &mut tables, place)?;
        }
        added
    }

    /// Removes a rule, and its entry and table if no other rule needs them.
    pub(crate) fn remove(&self, hca: &Hca, rule: RuleId) -> Result<(), Errno> {
        let RuleId { place, index, target } = rule;
        let mut tables = lock(&self.tables);
        let fate = |table: &Table| table.entries.get(&index).map(|entry| entry.fate.clone());
        let Some(fate) = tables.get(&place).and_then(fate) else { return Ok(()) };
        let behind = behind(&tables, place, &fate);
        let Some(table) = tables.get_mut(&place) else { return Ok(()) };
        let number = table.number;
        let Some(entry) = table.entries.get_mut(&index) else { return Ok(()) };
        if let Some(at) = entry.targets.iter().position(|other| *other == target) {
            entry.targets.remove(at);
        }
        if !entry.targets.is_empty() {
            return set_entry(hca, place.kind, number, index, entry, behind, true);
        }
        let mut input = DeleteFlowTableEntryIn::request();
        input.set_table_type(place.kind).set_table_id(number).set_flow_index(index);
        hca.command(&input)?;
        let mut input = DestroyFlowGroupIn::request();
        input.set_table_type(place.kind).set_table_id(number).set_group_id(entry.group);
        hca.command(&input)?;
        table.entries.remove(&index);
        end_if_empty(hca, &mut tables, place)
    }
}

fn insert(
    hca: &Hca,
    tables: &mut Tables,
    place: Place,
    (enabled, mask, value): (u8, &MatchParameters, &MatchParameters),
    fate: &Fate,
    target: Option<Target>,
) -> Result<RuleId, Errno> {
    let behind = behind(tables, place, fate);
    let table = tables.get_mut(&place).ok_or(Errno::EINVAL)?;
    let number = table.number;
    let same = table.entries.iter_mut().find(|(_, entry)| {
        (entry.enabled, entry.mask.as_bytes(), entry.value.as_bytes())
            == (enabled, mask.as_bytes(), value.as_bytes())
    });
    if let Some((index, entry)) = same {
        let alike = (entry.fate.drop, entry.fate.leaves, entry.fate.tag)
            == (fate.drop, fate.leaves, fate.tag)
            && entry.fate.counter.is_none()
            && fate.counter.is_none();
        if !alike {
            return Err(Errno::EEXIST);
        }
        entry.targets.push(target);
        let set = set_entry(hca, place.kind, number, *index, entry, behind, true);
        return set.map(|()| RuleId { place, index: *index, target });
    }
    let used = table.entries.keys();
    let free = (0..1 << LOG_ENTRIES).zip(used).find(|(free, used)| free != *used);
    let index = free.map_or(table.entries.len() as u32, |(free, _)| free);
    if index >= 1 << LOG_ENTRIES {
        return Err(Errno::ENOSPC);
    }
    let mut input = CreateFlowGroupIn::request();
    input
        .set_table_type(place.kind)
        .set_table_id(number)
        .set_start_flow_index(index)
        .set_end_flow_index(index)
        .set_match_criteria_enable(enabled.into());
    *input.match_criteria_mut() = *mask;
    let group = hca.command(&input)?.group_id();
    let entry = Entry {
        group,
        enabled,
        mask: Box::new(*mask),
        value: Box::new(*value),
        fate: fate.clone(),
        targets: vec![target],
    };
    if let Err(errno) = set_entry(hca, place.kind, number, index, &entry, behind, false) {
        let mut input = DestroyFlowGroupIn::request();
        input.set_table_type(place.kind).set_table_id(number).set_group_id(group);
        let _ = hca.command(&input);
        return Err(errno);
    }
    table.entries.insert(index, entry);
    Ok(RuleId { place, index, target })
}

fn end_if_empty(hca: &Hca, tables: &mut Tables, place: Place) -> Result<(), Errno> {
    let Some(table) = tables.get(&place).filter(|table| table.entries.is_empty()) else {
        return Ok(());
    };
    let number = table.number;
    connect(hca, tables, place, next(tables, place))?;
    let mut input = DestroyFlowTableIn::request();
    input.set_table_type(place.kind).set_table_id(number);
    hca.command(&input)?;
    tables.remove(&place);
    Ok(())
}
