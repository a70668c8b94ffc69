//! The driver's records about frames of a device: the users that need loopback, and the flow rules
//! of programs.

use std::collections::BTreeMap;
use std::sync::Mutex;

use mlx5_prm::cmd::flow::{FlowTableType, MatchParameters};

#[derive(Debug, Default)]
pub(crate) struct Users {
    pub(crate) contexts: u32,
    pub(crate) queues: u32,
    pub(crate) enabled: bool,
}

/// The users that need frames to come back.
#[derive(Debug, Default)]
pub(crate) struct Loopback {
    pub(crate) users: Mutex<Users>,
}

/// The position of a rule among the others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Place {
    /// The type of the table.
    pub(crate) kind: u32,
    /// Tables with a lower number come first.
    pub(crate) priority: u8,
}

impl Place {
    /// The place of a rule for received packets. Rules that let packets go on come first.
    pub(crate) fn of_priority(priority: u8, goes_on: bool) -> Self {
        Self { kind: FlowTableType::NIC_RX.0, priority: priority * 2 + u8::from(!goes_on) }
    }

    /// After those, for multicast packets.
    pub(crate) const MULTICAST: Self = Self { kind: FlowTableType::NIC_RX.0, priority: 64 };
    /// For packets that no other rule takes, and the same for multicast packets.
    pub(crate) const LEFTOVERS: Self = Self { kind: FlowTableType::NIC_RX.0, priority: 128 };
    /// For rules that receive a copy of everything: received packets, and sent packets.
    pub(crate) const SNIFFER: [Self; 2] = [
        Self { kind: FlowTableType::SNIFFER_RX.0, priority: 0 },
        Self { kind: FlowTableType::SNIFFER_TX.0, priority: 0 },
    ];
}

/// The actions of a rule.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fate {
    pub(crate) drop: bool,
    pub(crate) tag: Option<u32>,
    /// The packet also goes to the next table.
    pub(crate) goes_on: bool,
    /// The packet skips all rules of a priority, up to those for packets that no rule takes.
    pub(crate) leaves: bool,
    pub(crate) counter: Option<u32>,
}

/// A program's rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RuleId {
    pub(crate) place: Place,
    pub(crate) index: u32,
    pub(crate) target: Option<Target>,
}

/// A destination of a rule's packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    Tir(u32),
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) group: u32,
    pub(crate) enabled: u8,
    pub(crate) mask: Box<MatchParameters>,
    pub(crate) value: Box<MatchParameters>,
    pub(crate) fate: Fate,
    /// One for each rule.
    pub(crate) targets: Vec<Option<Target>>,
}

#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) number: u32,
    pub(crate) entries: BTreeMap<u32, Entry>,
}

/// Every rule of a device.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    pub(crate) tables: Mutex<BTreeMap<Place, Table>>,
}

pub(crate) type Tables = BTreeMap<Place, Table>;
