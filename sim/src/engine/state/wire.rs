//! The wire between devices: packets in flight, cut paths, and random loss and jitter.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::engine::DeviceId;
use crate::network::{MILLION, Network};

/// A request that was executed, and whose acknowledgement is on its way.
#[derive(Debug)]
pub(crate) struct Executed {
    pub(crate) opcode: u8,
    pub(crate) index: u16,
    pub(crate) blocks: u16,
    /// It has a completion.
    pub(crate) completes: bool,
    /// Bytes that a read or an atomic brought.
    pub(crate) bytes: u64,
    pub(crate) answer: Vec<u8>,
    /// The device that acknowledges it; `None` for a request that stays in its own.
    pub(crate) by: Option<DeviceId>,
    /// When the acknowledgement is back.
    pub(crate) due: u64,
}

/// The wire between the devices of a fabric.
pub(crate) struct Wire<Packet> {
    network: Network,
    /// Networks of single paths, by sender and receiver.
    links: BTreeMap<(DeviceId, DeviceId), Network>,
    /// Whether packets take time on any path.
    takes_time: bool,
    chance: u64,
    /// Paths that carry nothing, by sender and receiver.
    cuts: BTreeSet<(DeviceId, DeviceId)>,
    /// Time until which a port is busy sending. A destination whose path has another rate is
    /// counted separately.
    busy: BTreeMap<(DeviceId, u8, Option<DeviceId>), u64>,
    /// Queue pairs with a request whose acknowledgement is in flight, and its time of arrival.
    pub(crate) answers: BTreeSet<(u64, DeviceId, u32)>,
    /// Packets that are not acknowledged, by their time of arrival and the order in which they
    /// left.
    flights: BTreeMap<(u64, u64), Packet>,
    departures: u64,
}

impl<Packet> Wire<Packet> {
    pub(crate) fn new(network: Network, seed: u64) -> Self {
        Self {
            network,
            links: BTreeMap::new(),
            takes_time: network.takes_time(),
            chance: seed,
            cuts: BTreeSet::new(),
            busy: BTreeMap::new(),
            answers: BTreeSet::new(),
            flights: BTreeMap::new(),
            departures: 0,
        }
    }

    /// Sets the networks of single paths.
    pub(crate) fn set_links(&mut self, links: BTreeMap<(DeviceId, DeviceId), Network>) {
        self.takes_time = self.network.takes_time() || links.values().any(Network::takes_time);
        self.links = links;
    }

    /// Whether packets take time on any path.
    pub(crate) fn takes_time(&self) -> bool {
        self.takes_time
    }

    /// The network on the path from one device to another.
    pub(crate) fn way(&self, from: DeviceId, to: DeviceId) -> Network {
        self.links.get(&(from, to)).copied().unwrap_or(self.network)
    }

    /// The next random number (SplitMix64).
    fn draw(&mut self) -> u64 {
        self.chance = self.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.chance;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Cuts the path from one device to another, or restores it.
    pub(crate) fn set_cut(&mut self, from: DeviceId, to: DeviceId, cut: bool) {
        if cut && from != to {
            self.cuts.insert((from, to));
        } else {
            self.cuts.remove(&(from, to));
        }
    }

    /// Restores every path.
    pub(crate) fn mend(&mut self) {
        self.cuts.clear();
    }

    /// Whether the path from one device to another is cut.
    pub(crate) fn is_cut(&self, from: DeviceId, to: DeviceId) -> bool {
        self.cuts.contains(&(from, to))
    }

    /// Whether a packet from one device to another is lost.
    pub(crate) fn loses(&mut self, from: DeviceId, to: DeviceId) -> bool {
        if from == to {
            return false;
        }
        let loss = self.way(from, to).loss;
        self.is_cut(from, to) || loss > 0 && self.draw() % u64::from(MILLION) < u64::from(loss)
    }

    /// Time that a packet is in flight after it left its port.
    pub(crate) fn way_ns(&mut self, from: DeviceId, to: DeviceId) -> u64 {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let way = self.way(from, to);
        let (latency, jitter) = (ns(way.latency), ns(way.jitter));
        let more = if jitter > 0 { self.draw() % jitter.saturating_add(1) } else { 0 };
        latency.saturating_add(more)
    }

    /// Time at which the last of `bytes` bytes leaves a port for one device, or for any, if the
    /// port got them at the time `given`.
    pub(crate) fn leaves(
        &mut self,
        (device, port): (DeviceId, u8),
        to: Option<DeviceId>,
        given: u64,
        bytes: u64,
    ) -> u64 {
        let way = to.map_or(self.network, |to| self.way(device, to));
        let apart = to.filter(|_| way.gigabits != self.network.gigabits);
        let time = way.sending_ns(bytes);
        let busy = self.busy.entry((device, port, apart)).or_default();
        *busy = given.max(*busy) + time;
        *busy
    }

    /// Like [`Self::leaves`] for a datagram, which its port has sent at the rate of the whole
    /// network: adds the time of a path of another rate.
    pub(crate) fn leaves_again(
        &mut self,
        (device, port): (DeviceId, u8),
        to: DeviceId,
        given: u64,
        bytes: u64,
    ) -> u64 {
        if self.way(device, to).gigabits == self.network.gigabits {
            return given;
        }
        self.leaves((device, port), Some(to), given, bytes)
    }

    /// Sends a packet that arrives at the time `arrival`.
    pub(crate) fn fly(&mut self, arrival: u64, packet: Packet) {
        self.flights.insert((arrival, self.departures), packet);
        self.departures += 1;
    }

    /// The next packet that has arrived by now.
    pub(crate) fn arrived(&mut self, now: u64) -> Option<Packet> {
        let first = self.flights.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(first.remove())
    }

    /// When the next packet arrives.
    pub(crate) fn next_arrival(&self) -> Option<u64> {
        self.flights.first_key_value().map(|((time, _), _)| *time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(network: Network) -> Wire<u32> {
        Wire::new(network, 1)
    }

    #[test]
    fn a_port_sends_one_thing_after_another() {
        let mut wire = wire(Network::INSTANT.gigabits(8));
        assert_eq!(wire.leaves((0, 1), None, 100, 50), 150);
        assert_eq!(wire.leaves((0, 1), Some(1), 100, 50), 200);
        assert_eq!(wire.leaves((0, 2), Some(1), 100, 50), 150, "another port");
        assert_eq!(wire.leaves((0, 1), Some(1), 900, 50), 950, "an idle port");
    }

    #[test]
    fn as_many_are_lost_as_the_network_says() {
        let mut wire = wire(Network::INSTANT.loss(100_000));
        let lost = (0..10_000).filter(|_| wire.loses(0, 1)).count();
        assert!((900..1100).contains(&lost), "{lost}");
        assert!(!(0..1000).any(|_| wire.loses(1, 1)), "within a device");
    }

    #[test]
    fn the_way_is_as_long_as_the_network_says() {
        let jitter = Duration::from_nanos(3);
        let mut wire = wire(Network::INSTANT.latency(Duration::from_nanos(10)).jitter(jitter));
        let ways: BTreeSet<u64> = (0..100).map(|_| wire.way_ns(0, 1)).collect();
        assert_eq!(ways, BTreeSet::from([10, 11, 12, 13]));
    }

    #[test]
    fn a_way_without_end_is_no_overflow() {
        let mut wire = wire(Network::INSTANT.latency(Duration::MAX).jitter(Duration::MAX));
        assert_eq!(wire.way_ns(0, 1), u64::MAX);
    }

    #[test]
    fn a_way_may_have_a_network_of_its_own() {
        let mut wire = wire(Network::INSTANT.latency(Duration::from_nanos(10)).gigabits(8));
        assert!(wire.takes_time());
        let far = Network::INSTANT.latency(Duration::from_nanos(500)).gigabits(1).loss(MILLION);
        wire.set_links(BTreeMap::from([((0, 1), far)]));
        assert_eq!((wire.way_ns(0, 1), wire.way_ns(1, 0), wire.way_ns(0, 2)), (500, 10, 10));
        assert!(wire.loses(0, 1) && !wire.loses(1, 0) && !wire.loses(0, 2));
        // A slow path delays no other one, and it delays a datagram after the port has sent it.
        assert_eq!(wire.leaves((0, 1), Some(1), 0, 50), 400);
        assert_eq!(wire.leaves((0, 1), Some(2), 0, 50), 50);
        assert_eq!(wire.leaves_again((0, 1), 1, 400, 50), 800);
        assert_eq!(wire.leaves_again((0, 1), 2, 400, 50), 400);

        let mut wire = self::wire(Network::INSTANT);
        assert!(!wire.takes_time());
        wire.set_links(BTreeMap::from([((0, 1), far)]));
        assert!(wire.takes_time() && !wire.way(1, 0).takes_time());
    }

    #[test]
    fn packets_arrive_by_their_time_and_then_in_their_order() {
        let mut wire = wire(Network::INSTANT);
        for (time, packet) in [(30, 1), (20, 2), (20, 3)] {
            wire.fly(time, packet);
        }
        assert_eq!((wire.next_arrival(), wire.arrived(19)), (Some(20), None));
        assert_eq!(
            [wire.arrived(30), wire.arrived(30), wire.arrived(30)],
            [Some(2), Some(3), Some(1)]
        );
        assert_eq!(wire.next_arrival(), None);
    }

    #[test]
    fn a_cut_has_a_direction_and_ends() {
        let mut wire = wire(Network::INSTANT);
        wire.set_cut(0, 1, true);
        assert!(wire.loses(0, 1) && !wire.loses(1, 0));
        wire.set_cut(0, 1, false);
        assert!(!wire.loses(0, 1));
        wire.set_cut(1, 0, true);
        wire.mend();
        assert!(!wire.is_cut(1, 0));
    }
}
