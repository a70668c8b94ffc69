//! The names of the suites that this task runs, as the ledger has them.

/// rdma-core's tests.
pub(super) const PYVERBS: &str = "pyverbs";

/// Programs that look at devices.
pub(super) const TOOLS: &str = "rdma-core tools";
pub(super) const UCX: &str = "ucx";

/// Programs that send to each other: rdma-core's, perftest's, and ours with rdma-core's.
pub(super) const PINGPONG: &str = "pingpong";
pub(super) const PERFTEST: &str = "perftest";
pub(super) const INTEROP: &str = "interop";

/// Our conformance suite, on a machine of its own process and on one that another process serves.
pub(super) const CONFORMANCE: &str = "conformance";
pub(super) const CONFORMANCE_SHARED: &str = "conformance, shared machine";

/// Every one. Rows of other suites in the ledger are of other tasks.
pub(super) const ALL: [&str; 8] =
    [PYVERBS, TOOLS, UCX, PINGPONG, PERFTEST, INTEROP, CONFORMANCE, CONFORMANCE_SHARED];

/// Whether a suite is the provider's own, which needs no libibverbs.
pub(super) fn is_own(suite: &str) -> bool {
    [CONFORMANCE, CONFORMANCE_SHARED].contains(&suite)
}
