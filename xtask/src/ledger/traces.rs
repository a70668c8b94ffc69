//! Compares a test's calls to the kernel over our libibverbs and over C's.
//!
//! A test that expects an error also passes over a library that refuses everything. The calls show
//! whether the library did the work.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;

use super::door::{Door, Link};
use super::pyverbs::{self, Suite};
use crate::failure::Failure;
use crate::provider::Provider;

/// Calls that are not compared: a part of each name, and why.
const NOT_COMPARED: [(&str, &str); 5] = [
    ("QUERY", "changes nothing; each library asks what it needs"),
    ("DEVX_OTHER", "changes nothing: queries of capabilities"),
    ("GET_CONTEXT", "opening is how each test begins"),
    ("UAR_OBJ", "how many doorbell pages a library takes is its own affair"),
    ("mmap", "as for doorbell pages"),
];

/// A call that C's library makes and ours does not, because ours refuses before it asks the kernel.
/// The program `refusals.c`, which runs over both, shows that the error is the same.
struct RefusedBefore {
    /// Prefix of the test's name.
    test: &'static str,
    call: &'static str,
}

impl RefusedBefore {
    fn is_of(&self, test: &str, call: &str) -> bool {
        test.starts_with(self.test) && self.call == call
    }
}

const fn refused_before(test: &'static str, call: &'static str) -> RefusedBefore {
    RefusedBefore { test, call }
}

const DRIVER_QP: &str = "UVERBS_METHOD_QP_CREATE of type Driver: EOPNOTSUPP";
const BAD_CQ: &str = "UVERBS_METHOD_CQ_CREATE: EINVAL";

const KNOWN: &[RefusedBefore] = &[
    refused_before("test_cq.CQAPITest.test_create_cq_bad_flow", BAD_CQ),
    refused_before("test_cqex.CQEXAPITest.test_create_cq_ex_bad_flow", BAD_CQ),
    refused_before("test_mlx5_cq.DvCqTest.test_dv_cq_compression_flags", BAD_CQ),
    refused_before("test_mlx5_cq.DvCqTest.test_scatter_to_cqe_control_by_qp", DRIVER_QP),
    refused_before("test_mlx5_dc.", DRIVER_QP),
    refused_before(
        "test_mr.DeviceMemoryAPITest.test_dm_bad_registration",
        "UVERBS_METHOD_DM_MR_REG: EINVAL",
    ),
    refused_before("test_mr.MWTest.test_reg_mw_wrong_type", "IB_USER_VERBS_CMD_ALLOC_MW: EINVAL"),
];

/// A test that C's library cannot run, so that there is nothing to compare.
struct OursAlone {
    /// Prefix of the test's name.
    test: &'static str,
    link: &'static str,
    /// The refused call of C's library that shows the reason.
    shown_by: &'static str,
    why: &'static str,
}

const OURS_ALONE: &[OursAlone] = &[OursAlone {
    test: "test_tag_matching.TMTest.test_tm_",
    link: "roce",
    shown_by: "IB_USER_VERBS_CMD_MODIFY_QP: EINVAL",
    why: "libmlx5 connects the command queue pair to itself by LID, which a RoCE port does not have, \
          and makes no queue",
}];

/// A test of functions that our library does not have. Ours makes no call that C's does not make,
/// and leaves no more objects to the end of the process.
struct TheirsAlone {
    /// Prefix of the test's name.
    test: &'static str,
    link: &'static str,
    why: &'static str,
}

const THEIRS_ALONE: &[TheirsAlone] = &[TheirsAlone {
    test: "test_mlx5_dr.",
    link: "roce",
    why: "our libmlx5 has no software steering, and refuses the first call of each test",
}];

/// Tests that create a random number of objects, or that end their processes in mid-work. The
/// comparison checks that both libraries make a call, not how often.
const RANDOM: [&str; 2] =
    ["test_pd.PDTest.test_multiple_pd_creation", "test_device.DMTest.test_multi_process_alloc_dm"];

/// Number of times that each test made each call, by test, call and error.
type Calls = BTreeMap<String, BTreeMap<String, u32>>;

/// Compares the tests of one link. Fails on a difference that is not known, and on a known
/// difference that does not occur.
pub(super) fn run(suite: &Suite, link: Link) -> Result<usize, Failure> {
    let c = Door::build(Provider::C)?;
    let ours = Door::build(Provider::Rust)?;
    let all = |door: &Door| -> Result<(Calls, Vec<String>), Failure> {
        let (mut calls, mut faults) = (Calls::new(), Vec::new());
        // Which of the test's two processes makes a call depends on timing: there is nothing to
        // compare.
        for module in suite.modules().iter().filter(|module| *module != pyverbs::MANAGED) {
            match suite.traced(door, link, module)? {
                Ok(report) => calls.extend(made(&report)),
                Err(fault) => faults.push(format!("{fault} over {}", door.provider.name())),
            }
        }
        Ok((calls, faults))
    };
    let (theirs, ours) = thread::scope(|scope| {
        let theirs = scope.spawn(|| all(&c));
        let ours = all(&ours);
        (theirs.join().expect("comparing does not panic"), ours)
    });
    let ((theirs, mut faults), (ours, more)) = (theirs?, ours?);
    faults.extend(more);
    faults.extend(differing(&theirs, &ours, link.name));
    let working = theirs.values().filter(|calls| !calls.is_empty()).count();
    if working == 0 {
        faults.push(format!("{}: no test made a call", link.name));
    }
    if faults.is_empty() { Ok(working) } else { Err(Failure::Unexplained(faults)) }
}

/// Calls in a report with the simulated kernel's trace.
fn made(report: &str) -> Calls {
    let mut calls = Calls::new();
    let mut test = None;
    for line in report.lines() {
        test = pyverbs::header(line).or(test);
        let trace =
            line.split_once("mlx5-sim: uverbs").and_then(|(_, trace)| trace.split_once(": "));
        if let (Some(test), Some((_, call))) = (&test, trace)
            && let of_test = calls.entry(test.clone()).or_default()
            && !NOT_COMPARED.iter().any(|(part, _)| call.contains(part))
        {
            *of_test.entry(name(call)).or_default() += 1;
        }
    }
    calls
}

/// Name of a call without its attributes, with the name of the error if the kernel refused it.
fn name(call: &str) -> String {
    let (call, rest) = call.split_once(" (attributes: ").unwrap_or((call, ""));
    match rest.split_once("): ").and_then(|(_, error)| error.split_once(':')) {
        Some((errno, _)) => format!("{call}: {errno}"),
        None => call.to_owned(),
    }
}

/// Number of objects that these calls created and did not destroy.
fn left_over(calls: &BTreeMap<String, u32>) -> i64 {
    let of = |(call, count): (&String, &u32)| {
        let any = |words: [&str; 3]| words.iter().any(|word| call.contains(word));
        match i64::from(*count) {
            _ if call.contains(": ") => 0,
            count if any(["DESTROY", "DEALLOC", "DEREG"]) => -count,
            count if any(["CREATE", "ALLOC", "REG"]) => count,
            _ => 0,
        }
    };
    calls.iter().map(of).sum()
}

fn differing(theirs: &Calls, ours: &Calls, link: &str) -> Vec<String> {
    let mut faults = Vec::new();
    // Known differences that may occur, and those that do.
    let (mut possible, mut seen) = (vec![false; KNOWN.len()], vec![false; KNOWN.len()]);
    let tests: BTreeSet<&String> = theirs.keys().chain(ours.keys()).collect();
    // Entries of `OURS_ALONE` that may occur, and those that do.
    let (mut may_be_alone, mut alone) =
        (vec![false; OURS_ALONE.len()], vec![false; OURS_ALONE.len()]);
    // The same for `THEIRS_ALONE`.
    let (mut may_be_theirs, mut theirs_alone) =
        (vec![false; THEIRS_ALONE.len()], vec![false; THEIRS_ALONE.len()]);
    for test in tests {
        let of = |calls: &Calls, call: &str| {
            calls.get(test).and_then(|calls: &BTreeMap<_, _>| calls.get(call)).copied().unwrap_or(0)
        };
        let is_row = |row: &OursAlone| row.link == link && test.starts_with(row.test);
        if let Some(at) = OURS_ALONE.iter().position(is_row) {
            may_be_alone[at] = true;
            let shown = OURS_ALONE[at].shown_by;
            if of(theirs, shown) > 0 && of(ours, shown) == 0 {
                alone[at] = true;
                continue;
            }
        }
        let is_row = |row: &TheirsAlone| row.link == link && test.starts_with(row.test);
        let at_theirs = THEIRS_ALONE.iter().position(is_row);
        if let Some(at) = at_theirs {
            may_be_theirs[at] = true;
        }
        if at_theirs.is_some() {
            let left = [theirs, ours].map(|calls| calls.get(test).map_or(0, left_over));
            if left[0] != left[1] {
                faults.push(format!(
                    "{test} ({link}): {} objects left over C's library, {} over ours",
                    left[0], left[1]
                ));
            }
        }
        let calls = [theirs, ours].into_iter().filter_map(|calls| calls.get(test));
        let calls: BTreeSet<&String> = calls.flat_map(BTreeMap::keys).collect();
        for call in calls {
            let known = KNOWN.iter().position(|known| known.is_of(test, call));
            if let Some(at) = known {
                possible[at] = true;
            }
            let (c, rust) = (of(theirs, call), of(ours, call));
            let random = RANDOM.contains(&test.as_str()) && c > 0 && rust > 0;
            match (known, at_theirs) {
                _ if c == rust || random => {}
                (Some(at), _) if c > 0 && rust == 0 => seen[at] = true,
                (_, Some(at)) if c > rust => theirs_alone[at] = true,
                _ => faults.push(format!(
                    "{test} ({link}): {call}: {c} times over C's library, {rust} times over ours"
                )),
            }
        }
    }
    for (known, _) in
        KNOWN.iter().zip(possible.iter().zip(seen)).filter(|(_, (may, is))| **may && !is)
    {
        let RefusedBefore { test, call } = known;
        let why = "our library refuses it before the kernel is asked";
        faults.push(format!("{test} ({link}): {call}: differs no more, but is known: {why}"));
    }
    for (row, _) in
        OURS_ALONE.iter().zip(may_be_alone.iter().zip(alone)).filter(|(_, (may, is))| **may && !is)
    {
        let OursAlone { test, why, .. } = row;
        faults.push(format!("{test} ({link}): C's library runs it too, but it is known: {why}"));
    }
    for (row, _) in THEIRS_ALONE
        .iter()
        .zip(may_be_theirs.iter().zip(theirs_alone))
        .filter(|(_, (may, is))| **may && !is)
    {
        let TheirsAlone { test, why, .. } = row;
        faults.push(format!("{test} ({link}): ours makes all calls too, but it is known: {why}"));
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
    fn trace_lists_the_calls_of_each_test() {
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
    fn hollow_pass_and_vanished_difference_are_reported() {
        let theirs = made(REPORT);
        let mut ours = Calls::new();
        let differences = differing(&theirs, &ours, "ib");
        assert_eq!(differences.len(), 2, "{differences:?}");
        assert!(
            differences[0]
                .contains("ALLOC_MW: EINVAL: 1 times over C's library, 0 times over ours")
        );
        ours.clone_from(&theirs);
        let differences = differing(&theirs, &ours, "ib");
        assert!(
            differences.len() == 1 && differences[0].contains("differs no more"),
            "{differences:?}"
        );
        // Calls that our library alone makes are reported as well, and so is a known call that C's
        // library does not make.
        let differences = differing(&Calls::new(), &theirs, "ib");
        assert_eq!(differences.len(), 4, "{differences:?}");
        assert!(differences[0].contains("0 times over C's library, 1 times over ours"));
    }

    /// A known call must be missing altogether over the other library.
    #[test]
    fn a_known_difference_is_all_or_nothing() {
        let once = made(REPORT);
        let mut twice = once.clone();
        let calls = twice.get_mut("test_mr.MWTest.test_reg_mw_wrong_type").expect("a test");
        calls.values_mut().for_each(|count| *count = 2);
        let differences = differing(&twice, &once, "ib");
        assert!(
            differences.iter().any(|fault| fault.contains("2 times over C's")),
            "{differences:?}"
        );
    }

    #[test]
    fn a_test_that_only_our_library_runs_is_not_compared_while_c_is_refused() {
        const HEADER: &str =
            "test_tm_rndv (tests.test_tag_matching.TMTest.test_tm_rndv) ... mlx5-sim: uverbs0: ";
        let refused = "IB_USER_VERBS_CMD_MODIFY_QP (attributes: A): EINVAL: Invalid argument\n";
        let c = made(&format!("{HEADER}{refused}"));
        let ours = made(&format!("{HEADER}IB_USER_VERBS_CMD_MODIFY_QP\n"));
        assert_eq!(differing(&c, &ours, "roce"), [""; 0]);
        assert!(!differing(&c, &ours, "ib").is_empty());
        let differences = differing(&ours, &ours, "roce");
        assert!(
            differences.len() == 1 && differences[0].contains("C's library runs it too"),
            "{differences:?}"
        );
    }

    #[test]
    fn a_test_of_what_our_library_has_none_of_makes_no_call_beyond_those_of_c() {
        const HEADER: &str =
            "test_x (tests.test_mlx5_dr.Mlx5DrTest.test_x) ... mlx5-sim: uverbs0: ";
        let call = |name| made(&format!("{HEADER}{name}\n"));
        let (c, more) =
            (call("IB_USER_VERBS_CMD_MODIFY_QP"), call("IB_USER_VERBS_CMD_ATTACH_MCAST"));
        assert_eq!(differing(&c, &Calls::new(), "roce"), [""; 0]);
        assert!(!differing(&c, &Calls::new(), "ib").is_empty());
        assert!(differing(&c, &more, "roce")[0].contains("0 times over C's library, 1 times over"));
        let differences = differing(&c, &c, "roce");
        assert!(
            differences.len() == 1 && differences[0].contains("ours makes all calls too"),
            "{differences:?}"
        );
        // Objects that it leaves are reported.
        let both = format!(
            "{HEADER}UVERBS_METHOD_DEVX_OBJ_CREATE\nmlx5-sim: uverbs0: UVERBS_METHOD_DEVX_OBJ_DESTROY\n"
        );
        let (both, made) = (made(&both), call("UVERBS_METHOD_DEVX_OBJ_CREATE"));
        assert_eq!((left_over(&both["test_mlx5_dr.Mlx5DrTest.test_x"]), both.len()), (0, 1));
        let differences = differing(&both, &made, "roce");
        assert!(
            differences[0].contains("0 objects left over C's library, 1 over ours"),
            "{differences:?}"
        );
        assert_eq!(differing(&both, &Calls::new(), "roce"), [""; 0]);
    }
}
