//! What an Ethernet device remembers beside its queues: transport interfaces, tables of queues, flow
//! tables, counters. The rings of its send and receive queues are those of queue pairs.

pub(crate) mod flow;
pub(crate) mod request;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::engine::state::ethernet::flow::Steering;
use crate::engine::state::port::Mac;
use crate::engine::state::table::Table;
use crate::frame::headers::is_multicast;
use crate::frame::toeplitz;

/// The address of all stations.
const BROADCAST: Mac = [0xff; 6];
/// Objects of a kind that a device has.
const OBJECTS: u32 = 1 << 16;

/// What is special about a send queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SendQueueConfig {
    /// Its transport interface; zero for none.
    pub tis: u32,
    /// Which limit of the device's table its rate has; zero for none.
    pub rate: u16,
    /// How far it may change memory keys.
    pub registers: Registers,
}

/// How far a send queue may change memory keys (UMR).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Registers {
    /// It may not.
    #[default]
    Nothing,
    /// As a queue pair of a program may.
    Keys,
    /// It may name bus addresses, too: it is the kernel's.
    Pages,
}

/// A limit of a rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RateLimit {
    /// Kilobits a second, check sequences not counted; not zero.
    pub rate: u32,
    /// Bytes that may leave at line rate.
    pub burst: u32,
    /// The usual size of a packet.
    pub typical_packet: u16,
}

impl RateLimit {
    /// The rates that there are.
    pub(crate) const RATES: RangeInclusive<u32> = 1..=100_000_000;
    /// Limits in a device's table. The first stands for none.
    pub(crate) const TABLE: u16 = 128;

    /// Nanoseconds that so many bytes take.
    pub(crate) fn time_ns(self, bytes: u64) -> u64 {
        let ns = u128::from(bytes) * 8_000_000 / u128::from(self.rate.max(1));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}

/// What is special about a receive queue, and can be changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReceiveQueueConfig {
    /// VLAN tags of customers are taken out.
    pub strip_vlan: bool,
    /// The frame check sequence follows the frame.
    pub scatter_fcs: bool,
    /// The counter set that counts what finds no buffer; zero for none.
    pub counter_set: u8,
    /// How packets share WQEs, if they do.
    pub strides: Option<Strides>,
}

/// The strides of a receive WQE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Strides {
    /// Base-two logarithm of the bytes of one.
    pub log_bytes: u8,
    /// Base-two logarithm of their number.
    pub log_count: u8,
    /// Each packet starts two bytes behind the start of its first stride.
    pub shifted: bool,
    /// WQEs follow each other as a list, which may change while they wait; else as they lie in the ring.
    pub linked: bool,
}

impl Strides {
    /// What [`Strides::log_bytes`] can be.
    pub(crate) const LOG_BYTES: RangeInclusive<u32> = 6..=13;
    /// What [`Strides::log_count`] can be, with `ext_stride_num_range`.
    pub(crate) const LOG_COUNT: RangeInclusive<u32> = 3..=16;
    /// From where contexts count it; the least without.
    pub(crate) const LOG_COUNT_BASE: u32 = 9;
}

/// Where a transport interface sends packets on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TirTarget {
    /// One receive queue.
    Queue(u32),
    /// A table of them, by a hash.
    Table(u32),
}

/// The fields of a packet that a hash covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HashFields {
    /// Of IPv6 packets; else of IPv4's.
    pub ipv6: bool,
    /// Ports are UDP's; else TCP's.
    pub udp: bool,
    /// Bits of `mlx5_prm::cmd::steering::hash_fields`.
    pub selected: u32,
}

/// The hash of a transport interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HashConfig {
    /// Toeplitz; else there is no hash.
    pub toeplitz: bool,
    /// Both directions of a flow have the same hash.
    pub symmetric: bool,
    /// Its key.
    pub key: [u8; toeplitz::KEY],
    /// What it covers of the outer headers.
    pub outer: HashFields,
    /// What it covers of the inner headers.
    pub inner: HashFields,
}

/// A transport interface for receiving.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TirConfig {
    /// Where packets go.
    pub target: TirTarget,
    /// How a queue is chosen, and what the completion says of it.
    pub hash: HashConfig,
    /// Packets of the same transport domain that are taken: bits of
    /// `mlx5_prm::cmd::steering::self_lb_block`.
    pub own_frames: u32,
    /// Its transport domain.
    pub domain: u32,
    /// Completions judge what is inside of tunnels.
    pub tunneled: bool,
}

/// A transport interface for sending.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TisConfig {
    /// Its transport domain.
    pub domain: u32,
    /// Its priority.
    pub priority: u8,
    /// The port that its packets leave from; zero leaves it to the device.
    pub port: u8,
}

/// Frames, and their bytes without check sequences.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Frames.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Frames by whom they are for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FramesTo {
    /// One station.
    pub one: Traffic,
    /// A group.
    pub group: Traffic,
    /// All stations.
    pub all: Traffic,
}

impl FramesTo {
    /// Counts a frame.
    pub(crate) fn count(&mut self, frame: &[u8]) {
        let counted = match (frame.starts_with(&BROADCAST), is_multicast(frame)) {
            (true, _) => &mut self.all,
            (_, true) => &mut self.group,
            _ => &mut self.one,
        };
        counted.frames += 1;
        counted.bytes += frame.len() as u64;
    }

    /// All of them.
    #[must_use]
    pub fn sum(&self) -> Traffic {
        let all = [self.one, self.group, self.all];
        Traffic {
            frames: all.iter().map(|traffic| traffic.frames).sum(),
            bytes: all.iter().map(|traffic| traffic.bytes).sum(),
        }
    }
}

/// What became of frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FrameCounts {
    /// Left for the wire or for the device's own receive side.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Came in from the wire, or looped back.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Those sent, by whom they are for.
    pub sent_to: FramesTo,
    /// Those that came in, by whom they are for.
    pub received_to: FramesTo,
    /// Of those sent, the ones that the wire carried; short ones are padded there.
    pub to_wire: FramesTo,
    /// Of those that came in, the ones that the wire brought.
    pub from_wire: FramesTo,
    /// Not sent: longer than the port allows, or the port is down.
    pub not_sent: u64,
    /// Not taken from the wire: longer than the port allows.
    pub oversize: u64,
    /// Not taken from the wire: for nobody whom the function has listed
    /// ([`SimConfig::vport_filter`](crate::SimConfig::vport_filter)).
    pub filtered: u64,
    /// Met no rule.
    pub missed: u64,
    /// Met a rule that drops.
    pub dropped: u64,
    /// Led to a queue that was not ready.
    pub not_ready: u64,
    /// Found no receive WQE.
    pub out_of_buffer: u64,
    /// Longer than the buffers of the receive WQE.
    pub too_long: u64,
    /// Reached a queue.
    pub delivered: u64,
}

/// Frames that a function asks for whoever they are for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Promiscuous {
    /// Those for one station.
    pub unicast: bool,
    /// Those for a group, of which all stations are one.
    pub multicast: bool,
    /// All of them.
    pub all: bool,
}

/// What the function says of itself to the network.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Vport {
    /// Frames to more than one station do not come back.
    pub no_multicast_loopback: bool,
    /// Frames to itself do not come back.
    pub no_unicast_loopback: bool,
    /// Addresses that its driver has listed, beside the port's own.
    pub addresses: Vec<Mac>,
    /// Groups that its driver has listed; the broadcast address is one of them, or broadcasts are not
    /// for the function.
    pub groups: Vec<Mac>,
    /// What it asks for beside these.
    pub promiscuous: Promiscuous,
}

impl Vport {
    /// Whether a switch gives the function a frame: its own address counts if it is listed, as others do.
    pub(crate) fn is_for(&self, frame: &[u8]) -> bool {
        let Promiscuous { unicast, all, .. } = self.promiscuous;
        match is_multicast(frame) {
            true => self.listens(frame),
            false => unicast || all || self.is_listed(frame),
        }
    }

    /// Whether a frame is for an address in the list.
    fn is_listed(&self, frame: &[u8]) -> bool {
        self.addresses.iter().any(|mac| frame.starts_with(mac))
    }

    /// Whether a frame for a group is for the function.
    pub(crate) fn listens(&self, frame: &[u8]) -> bool {
        let Promiscuous { multicast, all, .. } = self.promiscuous;
        multicast || all || self.groups.iter().any(|mac| frame.starts_with(mac))
    }

    /// Whether a frame is for one of the function's addresses.
    pub(crate) fn is_own(&self, own: Mac, frame: &[u8]) -> bool {
        frame.starts_with(&own) || self.is_listed(frame)
    }
}

#[derive(Debug)]
pub(crate) struct Ethernet {
    pub(crate) sqs: BTreeMap<u32, SendQueueConfig>,
    pub(crate) rqs: BTreeMap<u32, ReceiveQueueConfig>,
    /// Of receive queues with strides: how many strides of the first WQE are taken.
    pub(crate) taken: BTreeMap<u32, u32>,
    /// Of receive queues whose WQEs are a list: its first WQE, unless that is the first of the ring.
    pub(crate) heads: BTreeMap<u32, u16>,
    /// The table of rate limits, as far as it is set.
    pub(crate) rates: BTreeMap<u16, RateLimit>,
    /// Of send queues with a limit: when what they sent is through at their rate.
    pub(crate) paced: BTreeMap<u32, u64>,
    pub(crate) tises: Table<TisConfig>,
    pub(crate) tirs: Table<TirConfig>,
    pub(crate) rqts: Table<Vec<u32>>,
    pub(crate) steering: Steering,
    pub(crate) vport: Vport,
    pub(crate) counts: FrameCounts,
    /// Frames that found no buffer, by counter set.
    pub(crate) out_of_buffer: BTreeMap<u8, u32>,
}

impl Ethernet {
    pub(crate) fn new() -> Self {
        Self {
            sqs: BTreeMap::new(),
            rqs: BTreeMap::new(),
            taken: BTreeMap::new(),
            heads: BTreeMap::new(),
            rates: BTreeMap::new(),
            paced: BTreeMap::new(),
            tises: Table::new(1, OBJECTS),
            tirs: Table::new(1, OBJECTS),
            rqts: Table::new(1, OBJECTS),
            steering: Steering::new(),
            vport: Vport::default(),
            counts: FrameCounts::default(),
            out_of_buffer: BTreeMap::new(),
        }
    }

    /// The limit that a send queue's rate has.
    pub(crate) fn rate_limit(&self, sqn: u32) -> Option<RateLimit> {
        self.rates.get(&self.sqs.get(&sqn)?.rate).copied()
    }

    /// Whether a receive queue is the target of a transport interface, or in a table of queues.
    pub(crate) fn leads_to(&self, rqn: u32) -> bool {
        self.tirs.iter().any(|(_, tir)| tir.target == TirTarget::Queue(rqn))
            || self.rqts.iter().any(|(_, queues)| queues.contains(&rqn))
    }

    /// The queue of a transport interface for a hash.
    pub(crate) fn queue(&self, tir: &TirConfig, hash: u32) -> Option<u32> {
        match tir.target {
            TirTarget::Queue(rqn) => Some(rqn),
            TirTarget::Table(rqtn) => {
                let queues = self.rqts.get(rqtn)?;
                queues.get(hash as usize % queues.len().max(1)).copied()
            }
        }
    }
}
