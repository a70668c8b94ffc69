//! Waiting without hanging.

use crate::failure::Failure;
use std::time::{Duration, Instant};

/// Idle rounds between looks at the clock.
const ROUNDS: u32 = 1 << 10;

/// How a poller passes the time in which nothing happens, and when it gives up.
#[derive(Clone, Debug)]
pub(crate) struct Patience {
    limit: Duration,
    /// Whether someone in this process needs the processor to get the work done.
    shares: bool,
    rounds: u32,
    since: Option<Instant>,
}

impl Patience {
    /// Gives up after `limit`; lets others run meanwhile if the device is simulated.
    pub(crate) fn new(limit: Duration, simulated: bool) -> Self {
        Self { limit, shares: simulated, rounds: 0, since: None }
    }

    /// How long it waits.
    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    /// Something happened.
    pub(crate) fn refresh(&mut self) {
        self.rounds = 0;
        self.since = None;
    }

    /// Nothing happened. Fails if it has been so for too long; says whether it was a moment to look
    /// elsewhere, which comes now and then.
    pub(crate) fn wait(&mut self, what: &str) -> Result<bool, Failure> {
        if self.shares {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
        self.rounds += 1;
        if !self.rounds.is_multiple_of(ROUNDS) {
            return Ok(false);
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        if since.elapsed() < self.limit {
            return Ok(true);
        }
        Err(self.over(what))
    }

    /// The failure for having waited too long.
    pub(crate) fn over(&self, what: &str) -> Failure {
        Failure::new(format!("waited {:?} for {what}, and nothing came", self.limit)).hint(
            "UC and UD lose messages when a receiver is late; RC does not. On two hosts, does the \
             other side still run?",
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
            |patience: &mut Patience| (1..=ROUNDS + 1).find(|_| patience.wait("a sign").is_err());
        assert_eq!(given_up(&mut patience), Some(ROUNDS));
        patience.refresh();
        assert_eq!(given_up(&mut patience), Some(ROUNDS));
        assert!(patience.over("a sign").cause().contains("for a sign"));
    }
}
