//! The devices of a fabric, and what they share: the time, timers, and the wire.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use crate::config::SimConfig;
use crate::dma::Dma;
use crate::engine::state::wire::Wire;
use crate::engine::{Device, DeviceId};
use crate::network::Network;

/// What a packet that nobody acknowledges does at the device at which it arrives.
pub(crate) type Landing = Box<dyn FnOnce(&mut Device) + Send>;

/// What hears every Ethernet frame on the wire, and when: nanoseconds since the fabric began. RoCE's
/// packets are no frames here.
pub type Tap = Box<dyn FnMut(u64, &[u8]) + Send>;

/// The devices of a fabric, and the wire between them.
pub struct Engine {
    pub(crate) devices: Vec<Device>,
    pub(crate) now_ns: u64,
    /// When the fabric began; `None` in virtual time.
    pub(crate) began: Option<Instant>,
    /// Requests that are tried again: when, and whose.
    pub(crate) timers: BTreeSet<(u64, DeviceId, u32)>,
    /// The device whose turn is next.
    pub(crate) turn: DeviceId,
    pub(crate) busy_turns: u32,
    /// Room for a packet, kept between requests.
    pub(crate) packet: Vec<u8>,
    /// What is between the devices.
    pub(crate) wire: Wire<(DeviceId, Landing)>,
    /// What hears frames.
    pub(crate) tap: Option<Tap>,
    /// Virtual time does not go beyond this.
    pub(crate) horizon: Option<u64>,
}

impl Engine {
    /// An engine without devices, in real or virtual time.
    #[must_use]
    pub fn new(virtual_time: bool) -> Self {
        Self {
            devices: Vec::new(),
            now_ns: 0,
            began: (!virtual_time).then(Instant::now),
            timers: BTreeSet::new(),
            turn: 0,
            busy_turns: 0,
            packet: Vec::new(),
            wire: Wire::new(Network::INSTANT, 0),
            tap: None,
            horizon: None,
        }
    }

    /// Sets what the network between the devices does, and what its chances are drawn from.
    pub(crate) fn set_network(&mut self, config: &SimConfig) {
        self.wire = Wire::new(config.network, config.seed);
        self.wire.set_links(config.links.clone());
        for (from, to) in &config.cuts {
            self.wire.set_cut(*from, *to, true);
        }
    }

    /// Whether somebody has a device open: whoever has can ring a doorbell there.
    pub(crate) fn is_open(&self) -> bool {
        self.devices.iter().any(|device| device.uars.len() > 0)
    }

    /// Sets what hears the frames of the wire, in place of whatever did.
    pub fn set_tap(&mut self, tap: Option<Tap>) {
        self.tap = tap;
    }

    /// Cuts the way of packets from one device to another, or mends it.
    pub fn set_cut(&mut self, from: DeviceId, to: DeviceId, cut: bool) {
        self.wire.set_cut(from, to, cut);
    }

    /// Whether the way from one device to another is cut.
    #[must_use]
    pub fn is_cut(&self, from: DeviceId, to: DeviceId) -> bool {
        self.wire.is_cut(from, to)
    }

    /// Mends every way that was cut.
    pub fn mend(&mut self) {
        self.wire.mend();
    }

    /// How long the fabric has been there, in nanoseconds; in virtual time, as it says.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Adds a device that reaches its host's memory through `dma`.
    pub fn add_device(&mut self, config: &SimConfig, dma: Arc<dyn Dma>) -> DeviceId {
        let id = self.devices.len();
        self.devices.push(Device::new(id, config, dma));
        id
    }

    /// The devices.
    #[must_use]
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// A device.
    ///
    /// # Panics
    /// If there is none of that index.
    #[must_use]
    pub fn device(&self, id: DeviceId) -> &Device {
        &self.devices[id]
    }

    /// A device, to command it. Its clock is up to date.
    ///
    /// # Panics
    /// If there is none of that index.
    pub fn device_mut(&mut self, id: DeviceId) -> &mut Device {
        self.tell_time();
        &mut self.devices[id]
    }

    /// Tells every device the time.
    pub(crate) fn tell_time(&mut self) {
        if let Some(began) = self.began {
            self.now_ns = began.elapsed().as_nanos() as u64;
        }
        for device in &mut self.devices {
            device.tell_time(self.now_ns);
        }
    }
}
