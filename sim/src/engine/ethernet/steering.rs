//! Commands for flow tables, their groups and entries, and counters.

use crate::engine::state::ethernet::flow::{
    FlowCount, FlowEntry, FlowGroup, FlowTable, FlowTableConfig, FlowTarget,
};
use crate::engine::{Device, Error};

/// Base-two logarithm of the largest table.
pub(crate) const LOG_ENTRIES: u32 = 24;
/// Levels of tables that drivers can rely on; Linux also uses higher numbers.
pub(crate) const LEVELS: u32 = 64;

impl Device {
    fn flow_table(&self, kind: u8, number: u32) -> Result<&FlowTable, Error> {
        let table = self.ethernet.steering.tables.get(number);
        table.filter(|table| table.config.kind == kind).ok_or(Error::NotFound)
    }

    fn flow_table_mut(&mut self, kind: u8, number: u32) -> Result<&mut FlowTable, Error> {
        let table = self.ethernet.steering.tables.get_mut(number);
        table.filter(|table| table.config.kind == kind).ok_or(Error::NotFound)
    }

    /// Checks that packets may go from one table to another: only to higher levels.
    fn check_next(&self, kind: u8, level: u8, next: u32) -> Result<(), Error> {
        if self.flow_table(kind, next)?.config.level <= level {
            return Err(Error::Invalid("the next flow table is not of a higher level"));
        }
        Ok(())
    }

    /// Creates a flow table.
    pub fn create_flow_table(&mut self, config: FlowTableConfig) -> Result<u32, Error> {
        if u32::from(config.log_size) > LOG_ENTRIES {
            return Err(Error::Invalid("size of a flow table"));
        }
        if let Some(next) = config.miss {
            self.check_next(config.kind, config.level, next)?;
        }
        let table = FlowTable {
            config,
            groups: std::collections::BTreeMap::new(),
            last_group: 0,
            entries: std::collections::BTreeMap::new(),
        };
        self.ethernet.steering.tables.insert(table).ok_or(Error::Exhausted)
    }

    /// Sets the table for packets that match no entry.
    pub fn set_flow_miss(&mut self, kind: u8, number: u32, miss: Option<u32>) -> Result<(), Error> {
        let level = self.flow_table(kind, number)?.config.level;
        if let Some(next) = miss {
            self.check_next(kind, level, next)?;
        }
        self.flow_table_mut(kind, number)?.config.miss = miss;
        Ok(())
    }

    /// Sets the first table of a kind.
    pub fn set_flow_root(&mut self, kind: u8, number: Option<u32>) -> Result<(), Error> {
        let roots = match number {
            Some(number) => {
                self.flow_table(kind, number)?;
                let roots = &mut self.ethernet.steering.roots;
                roots.insert(kind, number);
                return Ok(());
            }
            None => &mut self.ethernet.steering.roots,
        };
        roots.remove(&kind);
        Ok(())
    }

    /// Destroys a table that is empty and to which no entry leads.
    pub fn destroy_flow_table(&mut self, kind: u8, number: u32) -> Result<(), Error> {
        let table = self.flow_table(kind, number)?;
        let steering = &self.ethernet.steering;
        if !table.groups.is_empty()
            || !table.entries.is_empty()
            || steering.leads_to(FlowTarget::Table(number))
            || steering.tables.iter().any(|(_, table)| table.config.miss == Some(number))
        {
            return Err(Error::Busy);
        }
        let steering = &mut self.ethernet.steering;
        steering.roots.retain(|_, root| *root != number);
        steering.tables.remove(number);
        Ok(())
    }

    /// Creates a group and returns its number in the table.
    pub fn create_flow_group(
        &mut self,
        kind: u8,
        number: u32,
        group: FlowGroup,
    ) -> Result<u32, Error> {
        let table = self.flow_table_mut(kind, number)?;
        if group.first > group.last || group.last >= 1 << table.config.log_size {
            return Err(Error::Invalid("entries of a flow group"));
        }
        if table.groups.values().any(|other| group.first <= other.last && other.first <= group.last)
        {
            return Err(Error::Invalid("flow groups overlap"));
        }
        table.last_group += 1;
        table.groups.insert(table.last_group, group);
        Ok(table.last_group)
    }

    /// Destroys a group without entries.
    pub fn destroy_flow_group(&mut self, kind: u8, number: u32, group: u32) -> Result<(), Error> {
        let table = self.flow_table_mut(kind, number)?;
        if table.entries.values().any(|entry| entry.group == group) {
            return Err(Error::Busy);
        }
        table.groups.remove(&group).map(drop).ok_or(Error::NotFound)
    }

    /// Sets the entry at an index, which must be one of its group's.
    pub fn set_flow_entry(
        &mut self,
        kind: u8,
        number: u32,
        index: u32,
        entry: FlowEntry,
    ) -> Result<(), Error> {
        let table = self.flow_table(kind, number)?;
        let group = table.groups.get(&entry.group).ok_or(Error::NotFound)?;
        if !(group.first..=group.last).contains(&index) {
            return Err(Error::Invalid("index of a flow table entry"));
        }
        let level = table.config.level;
        for target in &entry.targets {
            match target {
                FlowTarget::Table(next) => self.check_next(kind, level, *next)?,
                FlowTarget::Tir(tirn) => {
                    self.ethernet.tirs.get(*tirn).ok_or(Error::NotFound)?;
                }
            }
        }
        let counters = &self.ethernet.steering.counters;
        if entry.counters.iter().any(|counter| counters.get(*counter).is_none()) {
            return Err(Error::NotFound);
        }
        self.flow_table_mut(kind, number)?.entries.insert(index, entry);
        Ok(())
    }

    /// The entry at an index.
    pub fn flow_entry(&self, kind: u8, number: u32, index: u32) -> Result<&FlowEntry, Error> {
        self.flow_table(kind, number)?.entries.get(&index).ok_or(Error::NotFound)
    }

    /// Deletes an entry.
    pub fn delete_flow_entry(&mut self, kind: u8, number: u32, index: u32) -> Result<(), Error> {
        let table = self.flow_table_mut(kind, number)?;
        table.entries.remove(&index).map(drop).ok_or(Error::NotFound)
    }

    /// Creates a counter.
    pub fn create_flow_counter(&mut self) -> Result<u32, Error> {
        self.ethernet.steering.counters.insert(FlowCount::default()).ok_or(Error::Exhausted)
    }

    /// The values of a counter.
    #[must_use]
    pub fn flow_count(&self, counter: u32) -> Option<FlowCount> {
        self.ethernet.steering.counters.get(counter).copied()
    }

    /// Resets a counter to zero.
    pub fn clear_flow_count(&mut self, counter: u32) {
        if let Some(count) = self.ethernet.steering.counters.get_mut(counter) {
            *count = FlowCount::default();
        }
    }

    /// Destroys a counter that no entry uses.
    pub fn destroy_flow_counter(&mut self, counter: u32) -> Result<(), Error> {
        if self.ethernet.steering.counts_with(counter) {
            return Err(Error::Busy);
        }
        self.ethernet.steering.counters.remove(counter).map(drop).ok_or(Error::NotFound)
    }
}
