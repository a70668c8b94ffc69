//! State of an Ethernet device besides its queues: transport interfaces, tables of queues, flow
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
/// Objects of each kind that a device has.
const OBJECTS: u32 = 1 << 16;

/// Settings of an Ethernet send queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SendQueueConfig {
    /// Its transport interface; zero for none.
    pub tis: u32,
    /// Index of its rate limit in the device's table; zero for none.
    pub rate: u16,
    /// Changes of memory keys (UMR) that it may make.
    pub registers: Registers,
}

/// Changes of memory keys (UMR) that a send queue may make.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Registers {
    /// None.
    #[default]
    Nothing,
    /// Those that a program's queue pair may make.
    Keys,
    /// Those, and pages by bus address: the queue belongs to the kernel.
    Pages,
}

/// A rate limit.
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
    /// Valid rates.
    pub(crate) const RATES: RangeInclusive<u32> = 1..=100_000_000;
    /// Entries of a device's table of limits. Entry zero means no limit.
    pub(crate) const TABLE: u16 = 128;

    /// Time of `bytes` bytes at this rate, in nanoseconds.
    pub(crate) fn time_ns(self, bytes: u64) -> u64 {
        let ns = u128::from(bytes) * 8_000_000 / u128::from(self.rate.max(1));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}

/// Settings of an Ethernet receive queue that can change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReceiveQueueConfig {
    /// Customer VLAN tags are stripped.
    pub strip_vlan: bool,
    /// The frame check sequence follows the frame.
    pub scatter_fcs: bool,
    /// Counter set for packets that find no buffer; zero for none.
    pub counter_set: u8,
    /// Strides, if packets share WQEs.
    pub strides: Option<Strides>,
}

/// The strides of a receive WQE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Strides {
    /// Base-two logarithm of the bytes of one.
    pub log_bytes: u8,
    /// Base-two logarithm of their number.
    pub log_count: u8,
    /// Each packet starts two bytes after the start of its first stride.
    pub shifted: bool,
    /// WQEs form a linked list, whose order can change while they wait; else they follow in ring
    /// order.
    pub linked: bool,
}

impl Strides {
    /// Valid values of [`Strides::log_bytes`].
    pub(crate) const LOG_BYTES: RangeInclusive<u32> = 6..=13;
    /// Valid values of [`Strides::log_count`], with `ext_stride_num_range`.
    pub(crate) const LOG_COUNT: RangeInclusive<u32> = 3..=16;
    /// Base from which contexts count it, and the least without that capability.
    pub(crate) const LOG_COUNT_BASE: u32 = 9;
}

/// Target to which a transport interface sends packets.
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
    /// IPv6 packets; else IPv4 packets.
    pub ipv6: bool,
    /// UDP ports; else TCP ports.
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
    /// Fields of the outer headers that it covers.
    pub outer: HashFields,
    /// Fields of the inner headers that it covers.
    pub inner: HashFields,
}

/// A transport interface for receiving.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TirConfig {
    /// Target of its packets.
    pub target: TirTarget,
    /// Hash that chooses a queue and that the completion reports.
    pub hash: HashConfig,
    /// Which packets of its own transport domain are accepted: bits of
    /// `mlx5_prm::cmd::steering::self_lb_block`.
    pub own_frames: u32,
    /// Its transport domain.
    pub domain: u32,
    /// Completions report on the inner headers of tunnels.
    pub tunneled: bool,
}

/// A transport interface for sending.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TisConfig {
    /// Its transport domain.
    pub domain: u32,
    /// Its priority.
    pub priority: u8,
    /// The port that its packets leave by; zero leaves the choice to the device.
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

/// Frames by kind of destination address.
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

/// Counts of frames by their fate.
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
    /// Sent frames, by destination.
    pub sent_to: FramesTo,
    /// Received frames, by destination.
    pub received_to: FramesTo,
    /// Sent frames that the wire carried; short ones are padded there.
    pub to_wire: FramesTo,
    /// Received frames that came from the wire.
    pub from_wire: FramesTo,
    /// Not sent: longer than the port allows, or the port is down.
    pub not_sent: u64,
    /// Not taken from the wire: longer than the port allows.
    pub oversize: u64,
    /// Not taken from the wire: addressed to none of the function's listed addresses
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

/// Frames that a function asks for regardless of their destination address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Promiscuous {
    /// Those for one station.
    pub unicast: bool,
    /// Those for a group, broadcasts included.
    pub multicast: bool,
    /// All of them.
    pub all: bool,
}

/// Settings of the function's virtual port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Vport {
    /// Frames to more than one station do not come back.
    pub no_multicast_loopback: bool,
    /// Frames to itself do not come back.
    pub no_unicast_loopback: bool,
    /// Addresses that its driver has listed, besides the port's own.
    pub addresses: Vec<Mac>,
    /// Groups that its driver has listed. The function gets broadcasts only if the broadcast
    /// address is one of them.
    pub groups: Vec<Mac>,
    /// Frames that it asks for besides those.
    pub promiscuous: Promiscuous,
}

impl Vport {
    /// Whether a switch gives the function a frame. Its own address counts only if it is listed,
    /// like any other.
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
    /// Strides taken of the first WQE, by receive queue with strides.
    pub(crate) taken: BTreeMap<u32, u32>,
    /// First WQE of a receive queue whose WQEs form a list, unless that is the first of the ring.
    pub(crate) heads: BTreeMap<u32, u16>,
    /// The table of rate limits; entries that are not set are absent.
    pub(crate) rates: BTreeMap<u16, RateLimit>,
    /// Time at which a send queue with a limit has sent everything at its rate.
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

    /// The rate limit of a send queue.
    pub(crate) fn rate_limit(&self, sqn: u32) -> Option<RateLimit> {
        self.rates.get(&self.sqs.get(&sqn)?.rate).copied()
    }

    /// Whether a receive queue is the target of a transport interface, or in a table of queues.
    pub(crate) fn leads_to(&self, rqn: u32) -> bool {
        self.tirs.iter().any(|(_, tir)| tir.target == TirTarget::Queue(rqn))
            || self.rqts.iter().any(|(_, queues)| queues.contains(&rqn))
    }

    /// The queue that a transport interface chooses for a hash.
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
