//! Counting the calls to the kernel, and failing chosen ones.

use std::collections::BTreeMap;
use std::sync::Mutex;

use mlx5_uapi::Errno;

use crate::kernel::lock;

#[derive(Debug, Default)]
struct Plan {
    made: u64,
    failing: BTreeMap<u64, Errno>,
}

/// The calls to a simulated kernel.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    plan: Mutex<Plan>,
}

impl Calls {
    /// Counts a call, and fails it if that is planned.
    pub(crate) fn enter(&self) -> Result<(), Errno> {
        let mut plan = lock(&self.plan);
        plan.made += 1;
        let made = plan.made;
        plan.failing.remove(&made).map_or(Ok(()), Err)
    }

    /// Plans that the `k`-th call from now fails; the next one is the first.
    pub(crate) fn fail(&self, k: u64, errno: Errno) {
        let mut plan = lock(&self.plan);
        let at = plan.made + k;
        plan.failing.insert(at, errno);
    }

    /// Takes back every planned failure.
    pub(crate) fn fail_none(&self) {
        lock(&self.plan).failing.clear();
    }

    /// Calls made so far.
    pub(crate) fn made(&self) -> u64 {
        lock(&self.plan).made
    }
}
