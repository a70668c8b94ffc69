//! The network between the devices: the time that packets take, and their loss.

use std::time::Duration;

/// Effects of the network between the devices on packets. By default there are none: a packet
/// arrives at once, and none is lost.
///
/// Packets between queue pairs of one device never reach the network.
///
/// [`SimConfig::seed`](crate::SimConfig::seed) seeds the randomness. In step mode the same seed and
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
    /// Time that a packet takes, one way.
    pub latency: Duration,
    /// Greatest random addition to the latency. Messages of one connection stay in order;
    /// datagrams, and messages of different queue pairs, may overtake each other.
    pub jitter: Duration,
    /// Rate of a port in gigabits per second; zero is unlimited.
    pub gigabits: u32,
    /// Random loss, in packets of a million. Acknowledgements are lost only if packets take time:
    /// otherwise they are no packets of their own.
    pub loss: u32,
}

/// The unit of [`Network::loss`] is one packet in this number.
pub(crate) const MILLION: u32 = 1_000_000;

impl Network {
    /// Packets arrive at once, and none is lost.
    pub const INSTANT: Self =
        Self { latency: Duration::ZERO, jitter: Duration::ZERO, gigabits: 0, loss: 0 };

    /// Sets the time that a packet takes, one way.
    #[must_use]
    pub const fn latency(mut self, latency: Duration) -> Self {
        self.latency = latency;
        self
    }

    /// Sets the greatest random addition to the latency.
    #[must_use]
    pub const fn jitter(mut self, jitter: Duration) -> Self {
        self.jitter = jitter;
        self
    }

    /// Sets the rate of a port in gigabits per second; zero is unlimited.
    #[must_use]
    pub const fn gigabits(mut self, gigabits: u32) -> Self {
        self.gigabits = gigabits;
        self
    }

    /// Sets the random loss, in packets of a million.
    #[must_use]
    pub const fn loss(mut self, of_a_million: u32) -> Self {
        self.loss = of_a_million;
        self
    }

    /// Whether packets take time.
    pub(crate) fn takes_time(&self) -> bool {
        !self.latency.is_zero() || !self.jitter.is_zero() || self.gigabits > 0
    }

    /// Time in which a port sends `bytes` bytes.
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
