//! The network between the devices: how long packets take, and which are lost.

use std::time::Duration;

/// What the network between the devices does to packets. By default nothing: a packet arrives at
/// once, and none is lost.
///
/// Packets between queue pairs of one device never reach the network.
///
/// Chances are drawn from [`SimConfig::seed`](crate::SimConfig::seed). In step mode the same seed and
/// the same calls always give the same run.
///
/// ```
/// use std::time::Duration;
/// use mlx5_sim::{Network, SimConfig};
///
/// let rack = Network::INSTANT
///     .latency(Duration::from_micros(2))
///     .jitter(Duration::from_nanos(500))
///     .gigabits(100)
///     .loss(10);
/// let config = SimConfig::new().devices(3).network(rack).step(true).seed(7);
/// # assert_eq!(config.network.gigabits, 100);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Network {
    /// How long a packet is on its way, one way.
    pub latency: Duration,
    /// Up to how much longer, by chance. Messages of one connection stay in order; datagrams, and
    /// messages of different queue pairs, may overtake each other.
    pub jitter: Duration,
    /// What a port sends in a second, in gigabits; zero is without limit.
    pub gigabits: u32,
    /// How many packets of a million are lost, by chance. Acknowledgements are lost only where
    /// packets take time: otherwise they are no packets of their own.
    pub loss: u32,
}

/// One in [`Network::loss`].
pub(crate) const MILLION: u32 = 1_000_000;

impl Network {
    /// Packets arrive at once, and none is lost.
    pub const INSTANT: Self =
        Self { latency: Duration::ZERO, jitter: Duration::ZERO, gigabits: 0, loss: 0 };

    /// Sets how long a packet is on its way, one way.
    #[must_use]
    pub const fn latency(mut self, latency: Duration) -> Self {
        self.latency = latency;
        self
    }

    /// Sets up to how much longer it is, by chance.
    #[must_use]
    pub const fn jitter(mut self, jitter: Duration) -> Self {
        self.jitter = jitter;
        self
    }

    /// Sets what a port sends in a second, in gigabits; zero is without limit.
    #[must_use]
    pub const fn gigabits(mut self, gigabits: u32) -> Self {
        self.gigabits = gigabits;
        self
    }

    /// Sets how many packets of a million are lost, by chance.
    #[must_use]
    pub const fn loss(mut self, of_a_million: u32) -> Self {
        self.loss = of_a_million;
        self
    }

    /// Whether packets take time.
    pub(crate) fn takes_time(&self) -> bool {
        !self.latency.is_zero() || !self.jitter.is_zero() || self.gigabits > 0
    }

    /// How long a port sends so many bytes.
    pub(crate) fn sending_ns(&self, bytes: u64) -> u64 {
        match u64::from(self.gigabits) {
            0 => 0,
            gigabits => (bytes * 8).div_ceil(gigabits),
        }
    }
}

impl Default for Network {
    fn default() -> Self {
        Self::INSTANT
    }
}
