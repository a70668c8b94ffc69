//! Whether a test does to the kernel over our libibverbs what it does over C's. One that expects an error
//! passes over a library that refuses everything: the calls tell it from one that does the work.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;

use super::door::{Door, Link};
use super::pyverbs::{self, Suite};
use crate::failure::Failure;
use crate::provider::Provider;

/// Calls that are not compared: parts of their names, and why.
const NOT_COMPARED: [(&str, &str); 5] = [
    ("QUERY", "changes nothing; each library asks what it needs"),
    ("DEVX_OTHER", "changes nothing: queries of capabilities"),
    ("GET_CONTEXT", "opening is how each test begins"),
    ("UAR_OBJ", "how many doorbell pages a library takes is its own affair"),
    ("mmap", "as for doorbell pages"),
];

/// A difference that is known.
struct Known {
    /// What the test's name begins with.
    test: &'static str,
    /// The call; any if it is empty.
    call: &'static str,
    /// The link; any if it is empty.
    link: &'static str,
    why: &'static str,
}

impl Known {
    fn is_of(&self, test: &str, call: &str, link: &str) -> bool {
        let fits = |wanted: &str, it: &str| wanted.is_empty() || wanted == it;
        test.starts_with(self.test) && fits(self.call, call) && fits(self.link, link)
    }
}

/// Our library refuses it with the same error before the kernel is asked.
const fn refused_before(test: &'static str, call: &'static str) -> Known {
    Known { test, call, link: "", why: "our library refuses it before the kernel is asked" }
}

const DRIVER_QP: &str = "UVERBS_METHOD_QP_CREATE of type Driver: EOPNOTSUPP";
const RAW_QP: &str = "UVERBS_METHOD_QP_CREATE of type RawPacket: EOPNOTSUPP";
const BAD_CQ: &str = "UVERBS_METHOD_CQ_CREATE: EINVAL";

const KNOWN: &[Known] = &[
    refused_before("test_cq.CQAPITest.test_create_cq_bad_flow", BAD_CQ),
    refused_before("test_cqex.CQEXAPITest.test_create_cq_ex_bad_flow", BAD_CQ),
    refused_before("test_mlx5_cq.DvCqTest.test_dv_cq_compression_flags", BAD_CQ),
    refused_before("test_mlx5_cq.DvCqTest.test_scatter_to_cqe_control_by_qp", DRIVER_QP),
    refused_before("test_mlx5_dc.", DRIVER_QP),
    refused_before("", RAW_QP),
    refused_before(
        "test_mr.DeviceMemoryAPITest.test_dm_bad_registration",
        "UVERBS_METHOD_DM_MR_REG: EINVAL",
    ),
    refused_before("test_mr.MWTest.test_reg_mw_wrong_type", "IB_USER_VERBS_CMD_ALLOC_MW: EINVAL"),
    Known {
        test: "test_tag_matching.",
        call: "",
        link: "roce",
        why: "libmlx5 connects the command queue pair to itself by LID, which a RoCE port does not \
              have, and makes no queue",
    },
];

/// Tests that make as many objects as a random number says, or that end their processes while these work:
/// that both make a call is compared, not how often.
const RANDOM: [&str; 2] =
    ["test_pd.PDTest.test_multiple_pd_creation", "test_device.DMTest.test_multi_process_alloc_dm"];

/// How often each call was made in each test, and refused with which error.
type Calls = BTreeMap<String, BTreeMap<String, u32>>;

/// Compares a link's tests. Fails with what differs and is not known, and with what is known and does not
/// differ.
pub(super) fn run(suite: &Suite, link: Link) -> Result<usize, Failure> {
    let c = Door::build(Provider::C)?;
    let ours = Door::build(Provider::Rust)?;
    let all = |door: &Door| -> Result<Calls, Failure> {
        let mut calls = Calls::new();
        for module in suite.modules() {
            calls.extend(made(&suite.traced(door, link, module)?));
        }
        Ok(calls)
    };
    let (theirs, ours) = thread::scope(|scope| {
        let theirs = scope.spawn(|| all(&c));
        let ours = all(&ours);
        (theirs.join().expect("comparing does not panic"), ours)
    });
    let theirs = theirs?;
    let faults = differing(&theirs, &ours?, link.name);
    if faults.is_empty() { Ok(theirs.len()) } else { Err(Failure::Unexplained(faults)) }
}

/// The calls that a report with the simulated kernel's trace tells of.
fn made(report: &str) -> Calls {
    let mut calls = Calls::new();
    let mut test = None;
    for line in report.lines() {
        test = pyverbs::header(line).or(test);
        let told = line.split_once("mlx5-sim: uverbs").and_then(|(_, told)| told.split_once(": "));
        if let (Some(test), Some((_, call))) = (&test, told)
            && let of_test = calls.entry(test.clone()).or_default()
            && !NOT_COMPARED.iter().any(|(part, _)| call.contains(part))
        {
            *of_test.entry(name(call)).or_default() += 1;
        }
    }
    calls
}

/// A call without its attributes, with the name of the error if it was refused.
fn name(call: &str) -> String {
    let (call, rest) = call.split_once(" (attributes: ").unwrap_or((call, ""));
    match rest.split_once("): ").and_then(|(_, error)| error.split_once(':')) {
        Some((errno, _)) => format!("{call}: {errno}"),
        None => call.to_owned(),
    }
}

fn differing(theirs: &Calls, ours: &Calls, link: &str) -> Vec<String> {
    let none = BTreeMap::new();
    let mut faults = Vec::new();
    // Known differences that may show, and those that do.
    let (mut possible, mut seen) = (vec![false; KNOWN.len()], vec![false; KNOWN.len()]);
    for (test, c) in theirs {
        let rust = ours.get(test).unwrap_or(&none);
        let calls: BTreeSet<&String> = c.keys().chain(rust.keys()).collect();
        for call in calls {
            let known = KNOWN.iter().position(|known| known.is_of(test, call, link));
            if let Some(at) = known {
                possible[at] = true;
            }
            let count = |of: &BTreeMap<String, u32>| of.get(call).copied().unwrap_or(0);
            let (c, rust) = (count(c), count(rust));
            let random = RANDOM.contains(&test.as_str()) && c > 0 && rust > 0;
            match known {
                _ if c == rust || random => {}
                Some(at) => seen[at] = true,
                None => faults.push(format!(
                    "{test} ({link}): {call}: {c} times over C's library, {rust} times over ours"
                )),
            }
        }
    }
    for (known, _) in
        KNOWN.iter().zip(possible.iter().zip(seen)).filter(|(_, (may, is))| **may && !is)
    {
        let Known { test, call, why, .. } = known;
        faults.push(format!("{test} ({link}): {call}: differs no more, but is known: {why}"));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "\
test_a (tests.test_pd.PDTest.test_a)
What it is for ... mlx5-sim: uverbs0: IB_USER_VERBS_CMD_ALLOC_PD
mlx5-sim: uverbs0: UVERBS_METHOD_QUERY_PORT
mlx5-sim: uverbs0: IB_USER_VERBS_CMD_ALLOC_MW (attributes: A, B): EINVAL: Invalid argument
ok
test_reg_mw_wrong_type (tests.test_mr.MWTest.test_reg_mw_wrong_type) ... mlx5-sim: uverbs0: \
IB_USER_VERBS_CMD_ALLOC_MW (attributes: A): EINVAL: Invalid argument
ok
";

    #[test]
    fn a_trace_tells_the_calls_of_each_test() {
        let calls = made(REPORT);
        let of: Vec<(&str, u32)> =
            calls["test_pd.PDTest.test_a"].iter().map(|(call, n)| (&call[..], *n)).collect();
        assert_eq!(
            of,
            [("IB_USER_VERBS_CMD_ALLOC_MW: EINVAL", 1), ("IB_USER_VERBS_CMD_ALLOC_PD", 1)]
        );
        assert_eq!(calls["test_mr.MWTest.test_reg_mw_wrong_type"].len(), 1);
    }

    #[test]
    fn a_hollow_pass_is_told_and_a_known_difference_that_is_gone() {
        let theirs = made(REPORT);
        let mut ours = Calls::new();
        let told = differing(&theirs, &ours, "ib");
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].contains("ALLOC_MW: EINVAL: 1 times over C's library, 0 times over ours"));
        ours.clone_from(&theirs);
        let told = differing(&theirs, &ours, "ib");
        assert!(told.len() == 1 && told[0].contains("differs no more"), "{told:?}");
    }
}
