//! Flow tables: their groups, entries and counters, and the path of a packet through them.

use std::collections::BTreeMap;

use mlx5_prm::cmd::flow::MatchParameters;
use mlx5_prm::fields::IntoBytes;

use crate::engine::state::table::Table;
use crate::frame::matching::matches;

/// Number of tables, and of counters, that a device has.
const TABLES: u32 = 1 << 16;
/// Tables that a packet and its copies visit at most. Tables form no loop, but an entry may lead to
/// many tables.
const MOST_VISITS: usize = 1 << 12;
/// Copies of a packet that are received at most; the device drops the rest.
const MOST_COPIES: usize = 1 << 12;
/// Bytes of one part of the match parameters.
const PART: usize = 64;

/// Target to which an entry sends a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowTarget {
    /// Another table.
    Table(u32),
    /// A transport interface.
    Tir(u32),
}

/// An entry of a flow table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowEntry {
    /// The group that selects the compared fields.
    pub group: u32,
    /// Values that a packet must have in the compared fields.
    pub value: Box<MatchParameters>,
    /// Tag in the completions of packets that the entry sends to queues.
    pub tag: u32,
    /// The packet is dropped.
    pub drop: bool,
    /// Targets that each get a copy of the packet.
    pub targets: Vec<FlowTarget>,
    /// Counters that count the packet.
    pub counters: Vec<u32>,
}

/// Entries that compare the same fields.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowGroup {
    /// Index of its first entry.
    pub first: u32,
    /// Index of its last entry.
    pub last: u32,
    mask: Box<MatchParameters>,
}

impl FlowGroup {
    /// A group that compares the fields that `mask` selects in the parts that are `enabled`
    /// (`mlx5_prm::cmd::flow::match_criteria`).
    #[must_use]
    pub fn new(first: u32, last: u32, enabled: u8, mask: &MatchParameters) -> Self {
        let mut mask = Box::new(*mask);
        for (part, bytes) in mask.as_mut_bytes().chunks_mut(PART).enumerate() {
            if u32::from(enabled).checked_shr(part as u32).unwrap_or(0) & 1 == 0 {
                bytes.fill(0);
            }
        }
        Self { first, last, mask }
    }
}

/// A flow table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowTableConfig {
    /// `mlx5_prm::cmd::flow::FlowTableType`.
    pub kind: u8,
    /// Its packets go only to tables of higher levels.
    pub level: u8,
    /// Base-two logarithm of its entries.
    pub log_size: u8,
    /// Table for packets that match no entry.
    pub miss: Option<u32>,
}

#[derive(Debug)]
pub(crate) struct FlowTable {
    pub(crate) config: FlowTableConfig,
    pub(crate) groups: BTreeMap<u32, FlowGroup>,
    pub(crate) last_group: u32,
    pub(crate) entries: BTreeMap<u32, FlowEntry>,
}

impl FlowTable {
    /// The first entry that matches a packet.
    fn find(&self, packet: &MatchParameters) -> Option<&FlowEntry> {
        self.entries.values().find(|entry| {
            let group = self.groups.get(&entry.group);
            group
                .is_some_and(|group| matches(packet, group.mask.as_bytes(), entry.value.as_bytes()))
        })
    }
}

/// Values of a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowCount {
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Result of a packet's pass through the tables.
#[derive(Debug, Default)]
pub(crate) struct Way {
    /// Transport interfaces that get a copy, each with its tag.
    pub(crate) tirs: Vec<(u32, u32)>,
    /// Number of entries that dropped it.
    pub(crate) dropped: u32,
    /// Number of tables that had neither an entry for it nor a table for misses.
    pub(crate) missed: u32,
}

#[derive(Debug)]
pub(crate) struct Steering {
    pub(crate) tables: Table<FlowTable>,
    /// The first table of each kind.
    pub(crate) roots: BTreeMap<u8, u32>,
    pub(crate) counters: Table<FlowCount>,
}

impl Steering {
    pub(crate) fn new() -> Self {
        Self {
            tables: Table::new(1, TABLES),
            roots: BTreeMap::new(),
            counters: Table::new(1, TABLES),
        }
    }

    /// Counts a packet of `bytes` bytes and follows it through the tables of a kind.
    pub(crate) fn follow(&mut self, kind: u8, packet: &MatchParameters, bytes: u64) -> Way {
        let mut way = Way::default();
        let Some(root) = self.roots.get(&kind) else {
            way.missed = 1;
            return way;
        };
        let mut waiting = vec![*root];
        let mut visits = 0;
        while let Some(number) = waiting.pop() {
            visits += 1;
            let Some(table) = self.tables.get(number).filter(|_| visits <= MOST_VISITS) else {
                way.missed += 1;
                continue;
            };
            let Some(entry) = table.find(packet) else {
                match table.config.miss {
                    Some(next) => waiting.push(next),
                    None => way.missed += 1,
                }
                continue;
            };
            for counter in &entry.counters {
                if let Some(count) = self.counters.get_mut(*counter) {
                    count.packets += 1;
                    count.bytes += bytes;
                }
            }
            if entry.drop || entry.targets.is_empty() {
                way.dropped += 1;
                continue;
            }
            for target in &entry.targets {
                match target {
                    FlowTarget::Table(next) => waiting.push(*next),
                    FlowTarget::Tir(_) if way.tirs.len() == MOST_COPIES => way.dropped += 1,
                    FlowTarget::Tir(tir) => way.tirs.push((*tir, entry.tag)),
                }
            }
        }
        way
    }

    /// Whether any entry sends packets to a target.
    pub(crate) fn leads_to(&self, target: FlowTarget) -> bool {
        let mut entries = self.tables.iter().flat_map(|(_, table)| table.entries.values());
        entries.any(|entry| entry.targets.contains(&target))
    }

    /// Whether any entry counts with a counter.
    pub(crate) fn counts_with(&self, counter: u32) -> bool {
        let mut entries = self.tables.iter().flat_map(|(_, table)| table.entries.values());
        entries.any(|entry| entry.counters.contains(&counter))
    }
}
