//! Known reasons why tests of rdma-core do not pass on the simulated device, and the change that
//! would let each pass.
//!
//! A test that fails or skips for another reason fails the task.

use std::collections::BTreeSet;

use super::rows::{Outcome, Reason};

/// A reason, and the tests that it explains.
struct Known {
    /// Prefix of the test's name.
    test: &'static str,
    /// Text that the test's output contains.
    said: &'static str,
    why: &'static str,
    until: &'static str,
}

const fn known(
    test: &'static str,
    said: &'static str,
    why: &'static str,
    until: &'static str,
) -> Known {
    Known { test, said, why, until }
}

const RAW_ON_IB: &str = "the test is of Ethernet, and skips itself on an InfiniBand port";
const ODP: &str = "the simulated device reports no on-demand paging";
const CRYPTO: &str = "the device model has no engine that encrypts blocks";
const REFORMAT: &str = "the device model rewrites no packets";
const NO_DIRECT: &str = "our libmlx5 has no software steering";
const DIRECT: &str =
    "the device model says that programs write no steering entries of their own (SW steering)";

const NOT_PLANNED: &str = "nothing planned";
const DC: &str = "dynamically connected transport";
const MACHINE: &str = "another machine; nothing of the simulator is missing";
const NEVER: &str = "never: the test asks what the port or the C provider does not have";

/// Failures. The first entry that fits is the explanation.
const FAILURES: &[Known] = &[
    known(
        "test_mlx5_devx.",
        "with requester error",
        "the test takes the peer's MAC from the network interface of a RoCE device, and the simulated \
         sysfs has none",
        "a virtual machine with the real kernel driver",
    ),
    known(
        "test_tag_matching.",
        "Failed to create SRQ",
        "libmlx5 connects a tag-matching queue's command queue pair to itself by LID, which a RoCE \
         port does not have",
        NEVER,
    ),
    known(
        "test_mlx5_dc.DCTest.test_odp_dc_traffic",
        "Failed to register a MR",
        "the test registers on-demand memory before it looks whether the device can, and takes \
         the EINVAL of one that cannot for an error",
        NOT_PLANNED,
    ),
];

/// Skips. The first entry that fits is the explanation.
const SKIPS: &[Known] = &[
    // Our own conformance suite.
    known(
        "",
        "needs controls that only a simulated device has",
        "the case steers the simulator, which is not in its process here",
        "rung 1, where it runs",
    ),
    known("", "the port is InfiniBand", "the case is of Ethernet", "the other link, where it runs"),
    known("", "the port is Ethernet", "the case is of InfiniBand", "the other link, where it runs"),
    // Tests for the other kind of port.
    known("test_addr.", "is InfiniBand , skip RoCE test", RAW_ON_IB, NEVER),
    known("test_mlx5_udp_sport.", "No supported port is up", RAW_ON_IB, NEVER),
    known("", "must be done by root on Ethernet link layer", RAW_ON_IB, NEVER),
    known("", "Must be run by root on Ethernet link layer", RAW_ON_IB, NEVER),
    known("test_mlx5_dr.", "Ethernet link layer with Eswitch on", RAW_ON_IB, NEVER),
    known(
        "test_mlx5_uar.",
        "UAR allocation (with flag=0) is not supported",
        "the kernel tries for a tenth of a second whether doorbells are combined, and the emulated \
         machine did not answer in time",
        "a machine with less to do",
    ),
    // Ethernet.
    known(
        "test_mlx5_dr.",
        "Could not find the PCI device",
        "the simulated sysfs has no PCI bus, and the device no embedded switch",
        NOT_PLANNED,
    ),
    known(
        "test_mlx5_udp_sport.",
        "Modifying a QP UDP sport is not supported",
        "the device model reports no UDP source port that can be changed",
        NOT_PLANNED,
    ),
    known(
        "test_mlx5_lag_affinity.",
        "Set LAG affinity is not supported",
        "the simulated ports are not bonded",
        NOT_PLANNED,
    ),
    known("", "NIC flow table does not support reformat", REFORMAT, NOT_PLANNED),
    known("test_mlx5_dr.", "DrDomain creation failed", NO_DIRECT, NOT_PLANNED),
    known("test_mlx5_dr.", "DrActionQp creation failed", NO_DIRECT, NOT_PLANNED),
    known("test_mlx5_dr.", "DrActionFlowCounter creation failed", NO_DIRECT, NOT_PLANNED),
    known("test_mlx5_dr.", "Failed to create TIR action", NO_DIRECT, NOT_PLANNED),
    known("test_mlx5_dr.", "DrTable creation failed", DIRECT, NOT_PLANNED),
    known("test_mlx5_dr.", "DrMatcher creation failed", DIRECT, NOT_PLANNED),
    // Transports.
    known(
        "",
        "Create DC QP is not supported",
        "dynamically connected transport is not modelled",
        DC,
    ),
    known(
        "test_mlx5_dc.",
        "DCI caps is not supported",
        "dynamically connected transport is not modelled",
        DC,
    ),
    known(
        "test_qpex.QpExTestCase.test_qp_ex_rc_atomic_write",
        "Extended QP is not supported",
        "libmlx5 has no atomic write",
        NEVER,
    ),
    // Memory.
    known("test_odp.", "ODP is not supported", ODP, NOT_PLANNED),
    known(
        "test_parent_domain.",
        "no huge pages of size 2M",
        "this machine has no huge pages set aside (vm.nr_hugepages); with some it passes",
        MACHINE,
    ),
    // With huge pages reserved, these tests print the same message as the others of their module.
    known("test_odp.", "no huge pages of size 2M", ODP, NOT_PLANNED),
    known(
        "test_mr.DmaBuf",
        "Allocating dmabuf is not supported",
        "this machine has no DRM device to allocate a dma-buf of, and the simulated kernel of this \
         door registers none",
        "a virtual machine with the real kernel driver, and with a DRM device",
    ),
    known(
        "test_mlx5_dm_ops.",
        "MEMIC atomic operations are not supported",
        "the device model reports no atomic operations on device memory",
        NOT_PLANNED,
    ),
    known(
        "test_mlx5_crypto.",
        "The device crypto engines does not support AES",
        CRYPTO,
        NOT_PLANNED,
    ),
    known(
        "test_mlx5_dma_memcpy.",
        "Create Mlx5DV QP is not supported",
        "the device model has no MMO engine that copies memory",
        NOT_PLANNED,
    ),
    // Functions of mlx5dv beyond verbs.
    known(
        "test_mlx5_pp.",
        "Packet pacing entry allocation",
        "the device model limits rates on Ethernet ports alone",
        NOT_PLANNED,
    ),
    known("test_mlx5_var.", "VAR allocation", "virtio doorbells are not modelled", NOT_PLANNED),
    known(
        "test_mlx5_sched.",
        "chedule elements is not supported",
        "scheduling elements are not modelled",
        NOT_PLANNED,
    ),
    known(
        "test_mlx5_rdmacm.",
        "Alloc reserved QP number",
        "the firmware model reserves no queue pair numbers",
        NOT_PLANNED,
    ),
    // Programs other than the driver.
    known(
        "",
        "doesn't have net interface",
        "the RDMA connection manager needs a network interface of the kernel's beside the device",
        "a virtual machine with the real kernel driver",
    ),
];

/// Skips that only a virtual machine has, and skips of tests in other releases of rdma-core. The
/// first entry that fits is the explanation.
const IN_A_MACHINE: &[Known] = &[
    known("test_addr.", "only supported on Ethernet link layer", RAW_ON_IB, NEVER),
    known(
        "",
        "/dev/dri/renderD128",
        "the machine has no DRM device to allocate a dma-buf of",
        MACHINE,
    ),
    known(
        "steering::a_sniffer_gets_a_copy",
        "create_flow",
        "mlx5_ib gives a sniffer what is sent, too, and the device model has no tables for that",
        NOT_PLANNED,
    ),
    // The test checks for credentials before it queries the device.
    known("test_mlx5_crypto.", "Crypto login details must be supplied", CRYPTO, NOT_PLANNED),
    known("", "scapy package is needed", "the machine has no scapy to make packets with", MACHINE),
    known(
        "test_mlx5_ooo_qp.",
        "DV QP OOO feature is not supported",
        "the device model reports no placement of data out of order",
        NOT_PLANNED,
    ),
    known("", "additional access flags 258 ", "mlx5_ib registers no memory for FLUSH", NEVER),
    known("", "additional access flags 64 ", ODP, NOT_PLANNED),
    known("", "ODP is not supported", ODP, NOT_PLANNED),
    known("test_srq.", "SRQ resize is not supported", "mlx5_ib resizes no shared queues", NEVER),
];

/// Reason why a test has not passed; `None` if it has.
pub(super) fn explain(
    test: &str,
    outcome: Outcome,
    said: &str,
    unused: &mut Unused,
) -> Option<Reason> {
    let table = match outcome {
        Outcome::Pass => return None,
        Outcome::Fail | Outcome::Error => FAILURES,
        Outcome::Skip => SKIPS,
    };
    let fits = |known: &&Known| test.starts_with(known.test) && said.contains(known.said);
    Some(match table.iter().find(fits) {
        Some(&Known { test, said, why, until }) => {
            unused.0.remove(&(test, said));
            Reason::Known { why, until }
        }
        None => Reason::Unexplained(said.to_owned()),
    })
}

/// The same for a test in a virtual machine, where some tests have other reasons.
pub(super) fn in_a_machine(test: &str, outcome: Outcome, said: &str) -> Option<Reason> {
    let fits = |known: &&Known| test.starts_with(known.test) && said.contains(known.said);
    match IN_A_MACHINE.iter().find(fits) {
        Some(known) if outcome == Outcome::Skip => {
            Some(Reason::Known { why: known.why, until: known.until })
        }
        _ => explain(test, outcome, said, &mut Unused::new()),
    }
}

/// Entries of the table that have not explained a test so far.
#[derive(Debug)]
pub(super) struct Unused(BTreeSet<(&'static str, &'static str)>);

impl Unused {
    pub(super) fn new() -> Self {
        Self(FAILURES.iter().chain(SKIPS).map(|known| (known.test, known.said)).collect())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(test, said)| format!("{test}: {said}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(test: &str, outcome: Outcome, said: &str) -> Option<Reason> {
        explain(test, outcome, said, &mut Unused::new())
    }

    #[test]
    fn a_reason_is_for_the_tests_it_names() {
        let said = "Failed to register a MR";
        let named = "test_mlx5_dc.DCTest.test_odp_dc_traffic";
        assert!(matches!(
            explained(named, Outcome::Error, said),
            Some(Reason::Known { until: NOT_PLANNED, .. })
        ));
        let other = explained("test_qp.QPTest.test_x", Outcome::Error, said);
        assert_eq!(other, Some(Reason::Unexplained(said.to_owned())));
    }

    #[test]
    fn a_reason_to_skip_explains_no_failure() {
        let said = "Create DC QP is not supported";
        assert!(matches!(explained("t", Outcome::Skip, said), Some(Reason::Known { .. })));
        assert!(matches!(explained("t", Outcome::Fail, said), Some(Reason::Unexplained(_))));
        assert_eq!(explained("t", Outcome::Pass, said), None);
    }
}
