//! Waiting with a time limit.

use crate::failure::Failure;
use std::time::{Duration, Instant};

/// Idle rounds between reads of the clock.
const ROUNDS: u32 = 1 << 10;
/// The same if each round yields the CPU, which takes milliseconds on a busy machine.
const YIELDS: u32 = 1 << 4;

/// Decides how a poller waits while it is idle, and when it gives up.
#[derive(Clone, Debug)]
pub(crate) struct Patience {
    limit: Duration,
    /// Whether a thread of this process simulates the device and needs the CPU.
    shares: bool,
    rounds: u32,
    since: Option<Instant>,
}

impl Patience {
    /// Gives up after `limit`; yields the CPU if the device is simulated.
    pub(crate) fn new(limit: Duration, simulated: bool) -> Self {
        Self { limit, shares: simulated, rounds: 0, since: None }
    }

    /// The time limit.
    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    /// Notes progress.
    pub(crate) fn refresh(&mut self) {
        self.rounds = 0;
        self.since = None;
    }

    /// Notes an idle round. Fails after the time limit; returns true now and then, when the caller
    /// should check other sources.
    pub(crate) fn wait(&mut self, what: &str) -> Result<bool, Failure> {
        let rounds = if self.shares {
            std::thread::yield_now();
            YIELDS
        } else {
            std::hint::spin_loop();
            ROUNDS
        };
        self.rounds = self.rounds.wrapping_add(1);
        if !self.rounds.is_multiple_of(rounds) {
            return Ok(false);
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        if since.elapsed() < self.limit {
            return Ok(true);
        }
        Err(self.over(what))
    }

    /// The failure for a timeout.
    pub(crate) fn over(&self, what: &str) -> Failure {
        let limit = self.limit.as_secs_f64();
        Failure::new(format!("no {what} within {limit} s")).hint(
            "UC and UD lose messages when a receiver is late; RC does not. Does the other side still run?",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_ends_and_is_refreshed() {
        let mut patience = Patience::new(Duration::ZERO, false);
        let given_up =
            |patience: &mut Patience| (1..=ROUNDS + 1).find(|_| patience.wait("sign").is_err());
        assert_eq!(given_up(&mut patience), Some(ROUNDS));
        patience.refresh();
        assert_eq!(given_up(&mut patience), Some(ROUNDS));
        assert!(patience.over("sign").cause().contains("no sign"));
    }
}
