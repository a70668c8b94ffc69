//! Configuration of a simulated fabric.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use mlx5_prm::ethernet::InlineMode;

use crate::fault::Fault;
use crate::model::{Capabilities, Model};
use crate::network::Network;

pub use crate::link::{LinkLayer, PortConfig};

/// The most of each thing that a device has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Queue pairs.
    pub qps: u32,
    /// Completion queues.
    pub cqs: u32,
    /// Shared receive queues.
    pub srqs: u32,
    /// Memory keys.
    pub mkeys: u32,
    /// Protection domains.
    pub pds: u32,
    /// UAR pages.
    pub uars: u32,
    /// Base-two logarithm of the blocks in a send queue.
    pub log_sq_blocks: u8,
    /// Base-two logarithm of the entries in a receive queue.
    pub log_rq_entries: u8,
    /// Base-two logarithm of the entries in a shared receive queue.
    pub log_srq_entries: u8,
    /// Base-two logarithm of the entries in a completion queue.
    pub log_cq_entries: u8,
    /// Bytes in a send WQE.
    pub sq_wqe_bytes: u16,
    /// Bytes in a receive WQE.
    pub rq_wqe_bytes: u16,
    /// Base-two logarithm of the longest message.
    pub log_message: u8,
    /// Base-two logarithm of the reads and atomics outstanding at a queue pair, either way.
    pub log_reads: u8,
    /// Multicast groups.
    pub multicast_groups: u32,
    /// Queue pairs attached to one multicast group.
    pub qps_per_group: u32,
    /// Base-two logarithm of the entries in a list of tags; one of them is always free. Zero is
    /// a device without tag matching ([`SimConfig::log_tags`]).
    pub log_tags: u8,
    /// Entries in the GID table of an Ethernet port.
    pub gids: u32,
    /// Entries in the GID table of an InfiniBand port.
    pub infiniband_gids: u32,
    /// Entries in a port's partition key table.
    pub pkeys: u32,
}

impl Limits {
    const fn of(model: Model) -> Self {
        let capabilities = model.capabilities();
        Self {
            qps: 1 << capabilities.log_qps,
            cqs: 1 << 24,
            srqs: 1 << 23,
            mkeys: 1 << 24,
            pds: 1 << 23,
            uars: 1 << 14,
            log_sq_blocks: 15,
            log_rq_entries: 15,
            log_srq_entries: 15,
            log_cq_entries: 22,
            sq_wqe_bytes: 1024,
            rq_wqe_bytes: 512,
            log_message: 30,
            log_reads: 4,
            multicast_groups: 1 << 21,
            qps_per_group: 240,
            log_tags: if capabilities.tag_matching { 7 } else { 0 },
            gids: 255,
            infiniband_gids: 8,
            pkeys: 128,
        }
    }
}

/// The time limits of the connection manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CmConfig {
    /// Time to wait for an answer before the connection manager sends a message again, in
    /// milliseconds; 16 times as long once it knows that the peer has the request.
    pub response_ms: u32,
    /// Number of times that it sends a message again.
    pub retries: u32,
    /// Longest time that packets of an ended connection stay in flight, in milliseconds.
    pub timewait_ms: u32,
}

impl CmConfig {
    /// The kernel's limits (`CMA_CM_RESPONSE_TIMEOUT`, `CMA_MAX_CM_RETRIES`), with a short packet
    /// lifetime.
    pub const KERNEL: Self = Self { response_ms: 4295, retries: 15, timewait_ms: 500 };
}

/// Configuration of a simulator. By default it is one ConnectX-7 with one InfiniBand port, run by a
/// thread.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SimConfig {
    /// The model of every device.
    pub model: Model,
    /// Number of devices on the fabric.
    pub devices: usize,
    /// The ports of each device: one or two.
    pub ports: Vec<PortConfig>,
    /// Version of completion entries: 1 names queues by user index, 0 by number.
    pub cqe_version: u8,
    /// Whether UAR pages have BlueFlame registers.
    pub blueflame: bool,
    /// Base-two logarithm of the bytes of a BlueFlame register, both halves.
    pub log_bf_reg_size: u8,
    /// Whether the kernel gives DEVX contexts.
    pub devx: bool,
    /// The limits of each device.
    pub limits: Limits,
    /// Capabilities of each device.
    pub capabilities: Capabilities,
    /// No thread: the fabric moves only when the caller steps it, in virtual time.
    pub step: bool,
    /// The device looks only at the queue that a doorbell names, and compares BlueFlame bytes with
    /// the ring. Meant for step mode with a UAR for each queue pair.
    pub exact_doorbells: bool,
    /// Reads the host's memory through the kernel, so that unmapped memory is a
    /// [`Violation`](crate::Violation) and not a crash. Slow.
    pub checked_memory: bool,
    /// Frequency of the device's clock in kHz.
    pub clock_khz: u32,
    /// The time of day at which the fabric begins, in nanoseconds since 1970.
    pub epoch_ns: u64,
    /// Longest retry timer in microseconds, which limits the timeouts of queue pairs.
    pub longest_timer_us: u64,
    /// Number of requests after the one with a signature error that a queue pair still executes
    /// before it drains, unless it meets a fence first; all of them if `None`.
    pub signature_drain: Option<u32>,
    /// Effects of the network between the devices on packets.
    pub network: Network,
    /// Networks of single paths between two devices, by sender and receiver.
    pub links: BTreeMap<(usize, usize), Network>,
    /// Paths between two devices, by sender and receiver, that are cut from the start.
    pub cuts: BTreeSet<(usize, usize)>,
    /// Seed of the GUIDs, MAC addresses and key tags, so that they differ from another fabric's,
    /// and of the network's randomness.
    pub seed: u64,
    /// Whether RoCE ports have addresses from the start, as a network configuration sets them;
    /// otherwise the driver has to set them.
    pub addresses: bool,
    /// The IPv4 addresses of the ports, device by device, each its own. Further ports get 10.0.0.1,
    /// 10.0.0.2 and so on, by their position, two for each device.
    pub ipv4: Vec<Ipv4Addr>,
    /// Faults that every device starts with.
    pub faults: Vec<Fault>,
    /// The time limits of the connection manager.
    pub cm: CmConfig,
    /// Programs can use raw packet queue pairs, work queues and flow rules on Ethernet ports.
    pub raw_packets: bool,
    /// The kernel offers DEVX event files. A program that gets one may conclude that it can create
    /// all its objects by DEVX commands: UCX then creates shared receive queues that are rings,
    /// which this firmware lacks.
    pub devx_events: bool,
    /// Programs may send and receive any frames (CAP_NET_RAW).
    pub net_raw: bool,
    /// The headers that a send WQE of Ethernet must contain.
    pub inline_mode: InlineMode,
    /// A kernel's network interface finds everything that it needs for receive queues with strides:
    /// its send queues may change memory keys. Otherwise its receive queues are cyclic. Those of
    /// programs may have strides in any case.
    pub striding: bool,
    /// The function is a virtual one of an embedded switch. Its raw packet queues get frames from
    /// the wire for the addresses and groups that its driver has listed, and all frames if it is
    /// promiscuous (MODIFY_NIC_VPORT_CONTEXT);
    /// [`FrameCounts::filtered`](crate::engine::FrameCounts::filtered) counts the others. Otherwise
    /// its flow tables see every frame on the wire.
    pub vport_filter: bool,
}

/// 2024-01-01 00:00 UTC.
const EPOCH_NS: u64 = 1_704_067_200_000_000_000;

impl Default for SimConfig {
    fn default() -> Self {
        Self::new()
    }
}

/// One setter a line.
macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $type:ty;)*) => {
        $($(#[$doc])*
        #[must_use]
        pub fn $name(mut self, $name: $type) -> Self {
            self.$name = $name;
            self
        })*
    };
}

impl SimConfig {
    /// One ConnectX-7 with one InfiniBand port, run by a thread.
    #[must_use]
    pub fn new() -> Self {
        Self {
            model: Model::ConnectX7,
            devices: 1,
            ports: vec![PortConfig::INFINIBAND],
            cqe_version: 1,
            blueflame: true,
            log_bf_reg_size: 9,
            devx: true,
            limits: Limits::of(Model::ConnectX7),
            capabilities: Model::ConnectX7.capabilities(),
            step: false,
            exact_doorbells: false,
            checked_memory: false,
            clock_khz: Model::ConnectX7.capabilities().clock_khz,
            epoch_ns: EPOCH_NS,
            longest_timer_us: 2000,
            signature_drain: None,
            network: Network::INSTANT,
            links: BTreeMap::new(),
            cuts: BTreeSet::new(),
            seed: 0,
            addresses: true,
            ipv4: Vec::new(),
            faults: Vec::new(),
            cm: CmConfig::KERNEL,
            raw_packets: false,
            devx_events: false,
            net_raw: true,
            inline_mode: InlineMode::None,
            striding: false,
            vport_filter: false,
        }
    }

    /// Sets the model, and limits, capabilities and clock to that model's.
    #[must_use]
    pub fn model(mut self, model: Model) -> Self {
        self.model = model;
        self.limits = Limits::of(model);
        self.capabilities = model.capabilities();
        self.clock_khz = self.capabilities.clock_khz;
        self
    }

    /// Sets the ports of each device.
    #[must_use]
    pub fn ports(mut self, ports: impl Into<Vec<PortConfig>>) -> Self {
        self.ports = ports.into();
        self
    }

    /// Adds a fault that every device starts with.
    #[must_use]
    pub fn fault(mut self, fault: Fault) -> Self {
        self.faults.push(fault);
        self
    }

    /// Gives the path from one device to another a network of its own, in place of
    /// [`SimConfig::network`]. The opposite direction is a separate path.
    ///
    /// If its rate differs from the rest, its packets do not wait for those that the port sends
    /// elsewhere.
    ///
    /// ```
    /// use std::time::Duration;
    /// use mlx5_sim::{Network, SimConfig};
    ///
    /// // Two racks: the third device is far away.
    /// let (near, far) = (Duration::from_micros(1), Duration::from_millis(5));
    /// let config = SimConfig::new().devices(3).network(Network::INSTANT.latency(near));
    /// let far = Network::INSTANT.latency(far).gigabits(10);
    /// let config = [0, 1].iter().fold(config, |config, here| {
    ///     config.link(*here, 2, far).link(2, *here, far)
    /// });
    /// # assert_eq!(config.links.len(), 4);
    /// ```
    #[must_use]
    pub fn link(mut self, from: usize, to: usize, network: Network) -> Self {
        self.links.insert((from, to), network);
        self
    }

    /// Cuts the path from one device to another from the start; `Simulator::mend` and
    /// `Simulator::set_cut` restore it.
    #[must_use]
    pub fn cut(mut self, from: usize, to: usize) -> Self {
        self.cuts.insert((from, to));
        self
    }

    /// Base-two logarithm of the entries in a list of tags, for the ports that devices have; 0
    /// without lists.
    #[must_use]
    pub fn log_tags(&self) -> u8 {
        let tags = self.capabilities.ethernet_tags
            || self.ports.iter().any(|port| port.link_layer == LinkLayer::InfiniBand);
        if tags { self.limits.log_tags } else { 0 }
    }

    /// Whether packets take time on any way.
    pub(crate) fn takes_time(&self) -> bool {
        self.network.takes_time() || self.links.values().any(Network::takes_time)
    }

    /// Sets the IPv4 addresses of the ports, device by device.
    #[must_use]
    pub fn ipv4(mut self, addresses: impl Into<Vec<Ipv4Addr>>) -> Self {
        self.ipv4 = addresses.into();
        self
    }

    setters! {
        /// Sets the number of devices on the fabric.
        devices: usize;
        /// Sets the version of completion entries.
        cqe_version: u8;
        /// Sets whether UAR pages have BlueFlame registers.
        blueflame: bool;
        /// Sets the base-two logarithm of a BlueFlame register's bytes.
        log_bf_reg_size: u8;
        /// Sets whether the kernel gives DEVX contexts.
        devx: bool;
        /// Sets the limits of each device.
        limits: Limits;
        /// Sets the capabilities of each device.
        capabilities: Capabilities;
        /// Sets whether the fabric moves only when the caller steps it.
        step: bool;
        /// Sets whether the device looks only at the queue that a doorbell names.
        exact_doorbells: bool;
        /// Sets whether unmapped memory is reported instead of crashing.
        checked_memory: bool;
        /// Sets the frequency of the device's clock in kHz.
        clock_khz: u32;
        /// Sets the time of day at which the fabric begins, in nanoseconds since 1970.
        epoch_ns: u64;
        /// Sets the longest retry timer in microseconds.
        longest_timer_us: u64;
        /// Sets the number of requests that a queue pair still executes after a signature error
        /// that drains it.
        signature_drain: Option<u32>;
        /// Sets the time limits of the connection manager.
        cm: CmConfig;
        /// Sets whether programs have raw packet queue pairs, work queues and flow rules.
        raw_packets: bool;
        /// Sets whether the kernel offers event files of DEVX.
        devx_events: bool;
        /// Sets whether programs may send and receive any frames.
        net_raw: bool;
        /// Sets the headers that a send WQE of Ethernet must contain.
        inline_mode: InlineMode;
        /// Sets whether a kernel's network interface can have receive queues with strides.
        striding: bool;
        /// Sets whether the function gets only frames for addresses that its driver has listed.
        vport_filter: bool;
        /// Sets the effects of the network between the devices on packets.
        network: Network;
        /// Sets the seed of this fabric's addresses and of the network's randomness.
        seed: u64;
    }
}
