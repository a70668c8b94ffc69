//! Counts the calls to the kernel, and makes chosen ones fail.

use std::collections::BTreeMap;
use std::sync::Mutex;

use mlx5_uapi::Errno;

use crate::kernel::lock;

#[derive(Debug, Default)]
struct Plan {
    made: u64,
    failing: BTreeMap<u64, Failure>,
}

/// An injected failure of a call.
#[derive(Clone, Copy, Debug)]
struct Failure {
    errno: Errno,
    /// After the kernel did the work.
    late: bool,
}

/// The calls to a simulated kernel.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    plan: Mutex<Plan>,
}

impl Calls {
    fn next(&self) -> Option<Failure> {
        let mut plan = lock(&self.plan);
        plan.made += 1;
        let made = plan.made;
        plan.failing.remove(&made)
    }

    /// Counts a call. Returns the error if the call is to fail.
    pub(crate) fn enter(&self) -> Result<(), Errno> {
        self.next().map_or(Ok(()), |failure| Err(failure.errno))
    }

    /// The same for a call that may also fail after its work is done: then returns that error in
    /// `Some`.
    pub(crate) fn enter_work(&self) -> Result<Option<Errno>, Errno> {
        match self.next() {
            Some(Failure { errno, late: false }) => Err(errno),
            Some(Failure { errno, late: true }) => Ok(Some(errno)),
            None => Ok(None),
        }
    }

    /// Makes the `k`-th call from now fail; the next one is the first.
    pub(crate) fn fail(&self, k: u64, errno: Errno, late: bool) {
        let mut plan = lock(&self.plan);
        let at = plan.made + k;
        plan.failing.insert(at, Failure { errno, late });
    }

    /// Cancels every planned failure.
    pub(crate) fn fail_none(&self) {
        lock(&self.plan).failing.clear();
    }

    /// Calls made so far.
    pub(crate) fn made(&self) -> u64 {
        lock(&self.plan).made
    }
}
