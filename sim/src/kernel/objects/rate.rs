//! Entries of the table of rate limits, of a file.

use mlx5_prm::cmd::ethernet::SetPpRateLimitIn;

use crate::kernel::hca::Hca;
use crate::kernel::lock;

/// A share in an entry.
#[derive(Debug)]
pub(crate) struct RateEntry {
    /// The device's index of it.
    pub(crate) index: u32,
}

impl RateEntry {
    /// Releases the share.
    pub(crate) fn end(&self, hca: &Hca) {
        let set = |input: &SetPpRateLimitIn| hca.command(input).map(drop);
        lock(&hca.rates).release(self.index, set);
    }
}
