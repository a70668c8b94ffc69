//! The devices of a fabric, and the clock, timers and wire that they share.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use crate::config::SimConfig;
use crate::dma::Dma;
use crate::engine::state::wire::Wire;
use crate::engine::{Device, DeviceId};
use crate::network::Network;

/// Effect of an unacknowledged packet at the device at which it arrives.
pub(crate) type Landing = Box<dyn FnOnce(&mut Device) + Send>;

/// Callback for every Ethernet frame on the wire, with its time in nanoseconds since the fabric
/// began. RoCE packets are no frames here.
pub type Tap = Box<dyn FnMut(u64, &[u8]) + Send>;

/// The devices of a fabric, and the wire between them.
pub struct Engine {
    pub(crate) devices: Vec<Device>,
    pub(crate) now_ns: u64,
    /// When the fabric began; `None` in virtual time.
    pub(crate) began: Option<Instant>,
    /// Retries of requests: time, device and queue pair.
    pub(crate) timers: BTreeSet<(u64, DeviceId, u32)>,
    /// The device that has the next turn.
    pub(crate) turn: DeviceId,
    pub(crate) busy_turns: u32,
    /// Buffer for a packet, reused between requests.
    pub(crate) packet: Vec<u8>,
    /// The wire between the devices.
    pub(crate) wire: Wire<(DeviceId, Landing)>,
    /// Callback for frames.
    pub(crate) tap: Option<Tap>,
    /// Virtual time does not pass this point.
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

    /// Sets the network between the devices and the seed of its randomness.
    pub(crate) fn set_network(&mut self, config: &SimConfig) {
        self.wire = Wire::new(config.network, config.seed);
        self.wire.set_links(config.links.clone());
        for (from, to) in &config.cuts {
            self.wire.set_cut(*from, *to, true);
        }
    }

    /// Whether any device is open, so that a doorbell may ring.
    pub(crate) fn is_open(&self) -> bool {
        self.devices.iter().any(|device| device.uars.len() > 0)
    }

    /// Sets or removes the callback for the frames of the wire.
    pub fn set_tap(&mut self, tap: Option<Tap>) {
        self.tap = tap;
    }

    /// Cuts the path of packets from one device to another, or restores it.
    pub fn set_cut(&mut self, from: DeviceId, to: DeviceId, cut: bool) {
        self.wire.set_cut(from, to, cut);
    }

    /// Whether the path from one device to another is cut.
    #[must_use]
    pub fn is_cut(&self, from: DeviceId, to: DeviceId) -> bool {
        self.wire.is_cut(from, to)
    }

    /// Restores every path that was cut.
    pub fn mend(&mut self) {
        self.wire.mend();
    }

    /// Age of the fabric in nanoseconds: real or virtual time.
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

    /// A device for commands, with an up-to-date clock.
    ///
    /// # Panics
    /// If there is none of that index.
    pub fn device_mut(&mut self, id: DeviceId) -> &mut Device {
        self.tell_time();
        &mut self.devices[id]
    }

    /// Updates the clock of every device.
    pub(crate) fn tell_time(&mut self) {
        if let Some(began) = self.began {
            self.now_ns = began.elapsed().as_nanos() as u64;
        }
        for device in &mut self.devices {
            device.tell_time(self.now_ns);
        }
    }
}
