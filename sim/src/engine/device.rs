//! A device: its properties and its state.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use mlx5_prm::doorbell::{RECORD, UAR_PAGE};

use crate::config::SimConfig;
use crate::dma::{Dma, DmaFault};
use crate::engine::DeviceId;
use crate::engine::fault::{Fault, Faults, ForcedFailure, HostileEntry, Violation};
use crate::engine::state::counts::Retries;
use crate::engine::state::cq::Cq;
use crate::engine::state::ethernet::Ethernet;
use crate::engine::state::event::{Event, EventSink};
use crate::engine::state::management::Management;
use crate::engine::state::mkey::MkeyConfig;
use crate::engine::state::port::{Gid, Port};
use crate::engine::state::qp::Qp;
use crate::engine::state::signature::Psv;
use crate::engine::state::srq::Srq;
use crate::engine::state::table::Table;
use crate::engine::state::uar::Uar;

pub use crate::engine::state::holder::Holder;

/// Number of objects of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Census {
    /// Protection domains.
    pub pds: usize,
    /// Memory keys.
    pub mkeys: usize,
    /// Completion queues.
    pub cqs: usize,
    /// Queue pairs.
    pub qps: usize,
    /// Shared receive queues.
    pub srqs: usize,
    /// UAR pages.
    pub uars: usize,
    /// Attachments to multicast groups.
    pub attachments: usize,
}

/// A simulated device.
///
/// Commands that give it memory are only for the doors of this crate, which are responsible for
/// that memory; all others are public.
pub struct Device {
    pub(crate) id: DeviceId,
    pub(crate) config: SimConfig,
    pub(crate) dma: Arc<dyn Dma>,
    pub(crate) system_guid: u64,
    pub(crate) ports: Vec<Port>,
    pub(crate) pds: Table<()>,
    pub(crate) mkeys: Table<MkeyConfig>,
    pub(crate) psvs: BTreeMap<u32, Psv>,
    pub(crate) last_psv: u32,
    pub(crate) cqs: Table<Cq>,
    pub(crate) qps: Table<Qp>,
    pub(crate) srqs: Table<Srq>,
    pub(crate) uars: Table<Uar>,
    pub(crate) groups: BTreeMap<Gid, Vec<u32>>,
    /// Queue pairs with a number of their own on the wire.
    pub(crate) management: BTreeMap<u32, Management>,
    pub(crate) ethernet: Ethernet,
    /// Queue pairs with work, in the order in which they get their turn.
    pub(crate) ready: VecDeque<u32>,
    /// Queue pairs that wait without a timer: failed ones for receives to flush, others for their
    /// peer to be ready.
    pub(crate) watched: BTreeSet<u32>,
    /// Completion queues that hold entries back.
    pub(crate) runs: BTreeSet<u32>,
    /// Completion queues whose event moderation delays, and the time at which it is due.
    pub(crate) moderated: BTreeMap<u32, u64>,
    /// The message of the request that was just executed, if it goes into the completion.
    pub(crate) answer: Vec<u8>,
    /// UAR pages that wait for the rest of a BlueFlame copy, and the time limit.
    pub(crate) held: BTreeMap<u32, u64>,
    pub(crate) sink: Option<Box<dyn EventSink>>,
    pub(crate) faults: Faults,
    pub(crate) violations: Vec<Violation>,
    pub(crate) retries: Retries,
    pub(crate) stalled: bool,
    pub(crate) fatal: bool,
    pub(crate) removed: bool,
    /// Number of arm words that it saw.
    pub(crate) arms: u64,
    /// Device time in nanoseconds.
    pub(crate) now_ns: u64,
    /// Address to which it writes its clock.
    core_clock: Option<u64>,
}

/// Number of the first UAR page: on the bus the pages follow one another from the start of BAR 0,
/// and the initialization segment and the MSI-X table occupy the first ones.
pub const FIRST_UAR: u32 = 0x100;
/// Violations kept: a driver that fails in a loop must not fill memory.
const MOST_VIOLATIONS: usize = 1000;

impl Device {
    pub(crate) fn new(id: DeviceId, config: &SimConfig, dma: Arc<dyn Dma>) -> Self {
        let limits = config.limits;
        let scattered = (config.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) << 16;
        let system_guid = 0xb859_9f03_0000_0000 | scattered | (id as u64) << 4;
        let ports = config
            .ports
            .iter()
            .zip(1..)
            .map(|(port, number)| Port::new(config, *port, id, number, system_guid))
            .collect();
        let mut device = Self {
            id,
            config: config.clone(),
            dma,
            system_guid,
            ports,
            pds: Table::new(1, limits.pds),
            mkeys: Table::new(0x10, limits.mkeys),
            psvs: BTreeMap::new(),
            last_psv: 0,
            cqs: Table::new(0x400, limits.cqs),
            qps: Table::new(0x48, limits.qps),
            srqs: Table::new(0x20, limits.srqs),
            uars: Table::new(FIRST_UAR, limits.uars),
            groups: BTreeMap::new(),
            management: BTreeMap::new(),
            ethernet: Ethernet::new(),
            ready: VecDeque::new(),
            watched: BTreeSet::new(),
            runs: BTreeSet::new(),
            moderated: BTreeMap::new(),
            answer: Vec::new(),
            held: BTreeMap::new(),
            sink: None,
            faults: Faults::default(),
            violations: Vec::new(),
            retries: Retries::default(),
            stalled: false,
            fatal: false,
            removed: false,
            arms: 0,
            now_ns: 0,
            core_clock: None,
        };
        for fault in &config.faults {
            device.inject(fault.clone());
        }
        device
    }

    /// Resets the device to its state at creation, but keeps its event sink, violations and clock.
    pub(crate) fn reset(&mut self) {
        let fresh = Self::new(self.id, &self.config.clone(), Arc::clone(&self.dma));
        let sink = self.sink.take();
        let violations = std::mem::take(&mut self.violations);
        let now_ns = self.now_ns;
        *self = Self { sink, violations, now_ns, ..fresh };
    }

    /// Its index in the fabric.
    #[must_use]
    pub fn id(&self) -> DeviceId {
        self.id
    }

    /// The configuration from which it was made.
    #[must_use]
    pub fn config(&self) -> &SimConfig {
        &self.config
    }

    /// The host's memory as it reaches it.
    #[must_use]
    pub fn dma(&self) -> &Arc<dyn Dma> {
        &self.dma
    }

    /// Its system image GUID, which is its node GUID too.
    #[must_use]
    pub fn system_guid(&self) -> u64 {
        self.system_guid
    }

    /// Its ports, port 1 first.
    #[must_use]
    pub fn ports(&self) -> &[Port] {
        &self.ports
    }

    /// A port by number, from 1.
    #[must_use]
    pub fn port(&self, number: u8) -> Option<&Port> {
        self.ports.get(usize::from(number).checked_sub(1)?)
    }

    /// A port by number, from 1, to change its addresses or link.
    pub fn port_mut(&mut self, number: u8) -> Option<&mut Port> {
        self.ports.get_mut(usize::from(number).checked_sub(1)?)
    }

    /// Sets the receiver of its events, which replaces the one before.
    pub fn set_event_sink(&mut self, sink: Option<Box<dyn EventSink>>) {
        self.sink = sink;
    }

    /// Whether a fatal error stopped it.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        self.fatal
    }

    /// Whether it was removed.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.removed
    }

    /// The device's clock, in ticks of [`SimConfig::clock_khz`].
    #[must_use]
    pub fn clock(&self) -> u64 {
        (u128::from(self.now_ns) * u128::from(self.config.clock_khz) / 1_000_000) as u64
    }

    /// The time of day, in seconds (high half) and nanoseconds.
    #[must_use]
    pub fn real_time(&self) -> u64 {
        let now = self.config.epoch_ns + self.now_ns;
        ((now / 1_000_000_000) << 32) | (now % 1_000_000_000)
    }

    /// Sets the address to which it writes its clock.
    pub(crate) fn set_core_clock(&mut self, place: Option<u64>) {
        self.core_clock = place;
        self.tell_time(self.now_ns);
    }

    /// Sets the device's clock.
    pub(crate) fn tell_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        if let Some(place) = self.core_clock {
            // The high half goes last, because readers read it before and after the low one.
            let clock = self.clock().to_be_bytes();
            let low = self.dma.write(place + 4, &clock[4..]);
            let _ = low.and_then(|()| self.dma.write(place, &clock[..4]));
        }
    }

    /// Nanoseconds of the time of day, and the device's clock at the same moment.
    #[must_use]
    pub fn clocks(&self) -> (u64, u64) {
        (self.config.epoch_ns + self.now_ns, self.clock())
    }

    /// The driver's violations so far.
    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Number of times that its driver has armed completion queues. The device may miss an arm if
    /// another one follows before it looks; it counts none twice.
    #[must_use]
    pub fn arms(&self) -> u64 {
        self.arms
    }

    /// Returns the list of its driver's violations and clears it.
    pub fn take_violations(&mut self) -> Vec<Violation> {
        std::mem::take(&mut self.violations)
    }

    pub(crate) fn violation(&mut self, violation: Violation) {
        if self.violations.len() < MOST_VIOLATIONS {
            self.violations.push(violation);
        }
    }

    pub(crate) fn memory_violation(&mut self, fault: DmaFault) {
        self.violation(Violation::Memory { address: fault.address, length: fault.length });
    }

    /// Number of its objects.
    #[must_use]
    pub fn census(&self) -> Census {
        Census {
            pds: self.pds.len(),
            mkeys: self.mkeys.len(),
            cqs: self.cqs.len(),
            qps: self.qps.len(),
            srqs: self.srqs.len(),
            uars: self.uars.len(),
            attachments: self.groups.values().map(Vec::len).sum(),
        }
    }

    /// An object that lets the device reach some of this memory, if there is one: memory with a
    /// holder must not be freed.
    #[must_use]
    pub fn holder(&self, start: u64, length: u64) -> Option<Holder> {
        let end = start.saturating_add(length);
        let near = |at: u64, bytes: u64| at < end && start < at.saturating_add(bytes);
        let record = RECORD as u64;
        let mkey = self.mkeys.iter().find(|(_, key)| key.touches(start, end));
        if let Some((index, key)) = mkey {
            return Some(Holder::Mkey(index << 8 | u32::from(key.tag)));
        }
        for (cqn, cq) in self.cqs.iter() {
            if near(cq.config.record, record) || cq.config.buffer.touches(cq.bytes(), start, end) {
                return Some(Holder::Cq(cqn));
            }
        }
        for (qpn, qp) in self.qps.iter() {
            let bytes = qp.buffer_bytes();
            if near(qp.config.record, record) || qp.config.buffer.touches(bytes, start, end) {
                return Some(Holder::Qp(qpn));
            }
        }
        for (srqn, srq) in self.srqs.iter() {
            let bytes = srq.bytes();
            if near(srq.config.record, record) || srq.config.buffer.touches(bytes, start, end) {
                return Some(Holder::Srq(srqn));
            }
        }
        let page = UAR_PAGE as u64;
        let uar = self.uars.iter().find(|(_, uar)| uar.memory.is_some_and(|at| near(at, page)));
        uar.map(|(index, _)| Holder::Uar(index))
    }

    /// Injects a fault now.
    pub fn inject(&mut self, fault: Fault) {
        match fault {
            Fault::DropPackets(packets) => self.faults.drop_packets += packets,
            Fault::CorruptPackets(packets) => self.faults.corrupt_packets += packets,
            Fault::FailSignature { mkey } => {
                self.faults.fail_signatures.push(mkey.map(|key| key >> 8));
            }
            Fault::FailRequest { qpn, syndrome, vendor } => {
                self.faults.fail_requests.push(ForcedFailure { qpn, syndrome, vendor });
            }
            Fault::FaultReceives(receives) => self.faults.fault_receives += receives,
            Fault::ReorderReceives(receives) => self.faults.reorder_receives += receives,
            Fault::DuplicateEvents(events) => self.faults.duplicate_events += events,
            Fault::ReorderEvents(events) => self.faults.reorder_events = events,
            Fault::CorruptCqe { cqn, patch } => {
                self.faults.corrupt_cqes.push(HostileEntry { cqn, patch });
            }
            Fault::OverrunCq(cqn) if self.cqs.get(cqn).is_some() => self.fail_cq(cqn),
            Fault::OverrunCq(cqn) => self.faults.overrun_cqs.push(cqn),
            Fault::Stall => self.stalled = true,
            Fault::Resume => self.stalled = false,
            Fault::Fatal => self.die(),
            Fault::Remove => {
                self.removed = true;
                self.die();
            }
        }
    }

    fn die(&mut self) {
        if !self.fatal {
            self.fatal = true;
            self.raise(Event::DeviceFatal);
        }
    }

    /// Whether it executes anything at all.
    pub(crate) fn runs(&self) -> bool {
        !self.stalled && !self.fatal
    }
}
