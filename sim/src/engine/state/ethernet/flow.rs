//! Flow tables: their groups, entries and counters, and the way of a packet through them.

use std::collections::BTreeMap;

use mlx5_prm::cmd::flow::MatchParameters;
use mlx5_prm::fields::IntoBytes;

use crate::engine::state::table::Table;
use crate::frame::matching::matches;

/// Tables, and counters, that a device has.
const TABLES: u32 = 1 << 16;
/// A packet is followed through so many tables, copies of it included: tables cannot lead back, but an
/// entry may lead to many.
const MOST_VISITS: usize = 1 << 12;
/// A packet is received so often; further copies are dropped.
const MOST_COPIES: usize = 1 << 12;
/// Bytes of a part of what is matched.
const PART: usize = 64;

/// Where an entry sends a packet.
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
    /// The group that says what is compared.
    pub group: u32,
    /// What packets must have.
    pub value: Box<MatchParameters>,
    /// What completions say of packets that it sends to queues.
    pub tag: u32,
    /// The packet is dropped.
    pub drop: bool,
    /// Where copies of it go.
    pub targets: Vec<FlowTarget>,
    /// What counts it.
    pub counters: Vec<u32>,
}

/// Entries that compare the same fields.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowGroup {
    /// Its first and last entry.
    pub first: u32,
    /// The last of them.
    pub last: u32,
    mask: Box<MatchParameters>,
}

impl FlowGroup {
    /// A group that compares what `mask` has in the parts that are `enabled`
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
    /// Packets go to tables of higher levels only.
    pub level: u8,
    /// Base-two logarithm of its entries.
    pub log_size: u8,
    /// Where a packet goes that no entry takes.
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
    /// The first entry that takes a packet.
    fn find(&self, packet: &MatchParameters) -> Option<&FlowEntry> {
        self.entries.values().find(|entry| {
            let group = self.groups.get(&entry.group);
            group
                .is_some_and(|group| matches(packet, group.mask.as_bytes(), entry.value.as_bytes()))
        })
    }
}

/// What a counter has counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowCount {
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What becomes of a packet.
#[derive(Debug, Default)]
pub(crate) struct Way {
    /// Transport interfaces that get a copy, each with its tag.
    pub(crate) tirs: Vec<(u32, u32)>,
    /// Entries that dropped it.
    pub(crate) dropped: u32,
    /// Tables that had no entry for it, and no table behind.
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

    /// Follows a packet of so many bytes through the tables of a kind; counts it.
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

    /// Whether an entry sends packets to a target.
    pub(crate) fn leads_to(&self, target: FlowTarget) -> bool {
        let mut entries = self.tables.iter().flat_map(|(_, table)| table.entries.values());
        entries.any(|entry| entry.targets.contains(&target))
    }

    /// Whether an entry counts with a counter.
    pub(crate) fn counts_with(&self, counter: u32) -> bool {
        let mut entries = self.tables.iter().flat_map(|(_, table)| table.entries.values());
        entries.any(|entry| entry.counters.contains(&counter))
    }
}
