//! Names of this task's suites in the ledger.

/// rdma-core's tests.
pub(super) const PYVERBS: &str = "pyverbs";

/// Programs that query devices.
pub(super) const TOOLS: &str = "rdma-core tools";
pub(super) const UCX: &str = "ucx";

/// Programs that send to each other: rdma-core's, perftest's, and ours with rdma-core's.
pub(super) const PINGPONG: &str = "pingpong";
pub(super) const PERFTEST: &str = "perftest";
pub(super) const INTEROP: &str = "interop";

/// Our conformance suite: with the machine in its own process, and with a machine that another
/// process serves.
pub(super) const CONFORMANCE: &str = "conformance";
pub(super) const CONFORMANCE_SHARED: &str = "conformance, shared machine";

/// All suites of this task. Rows of other suites belong to other tasks.
pub(super) const ALL: [&str; 8] =
    [PYVERBS, TOOLS, UCX, PINGPONG, PERFTEST, INTEROP, CONFORMANCE, CONFORMANCE_SHARED];

/// Whether the suite uses our driver directly, without a libibverbs.
pub(super) fn is_own(suite: &str) -> bool {
    [CONFORMANCE, CONFORMANCE_SHARED].contains(&suite)
}
