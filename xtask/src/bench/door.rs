//! The C API: what a program takes over our libibverbs, held against what it takes over rdma-core's.

use super::Measured;
use super::bars::Against;

/// Who does it over ours: the way follows, as behind `rdma-core-`.
pub(super) const WHO: &str = "mlx5-verbs-";

/// The cases that are measured over both.
pub(super) const CASES: &[&str] = &[
    "post_inline8",
    "post_sge",
    "post_send",
    "post_ud",
    "post_fetch_add",
    "post_cmp_swp",
    "batch16_inline8",
    "batch16_sge",
    "list16_inline8",
    "poll1",
    "poll16",
    "empty_poll",
    "post_recv1",
    "post_recv16",
    "post_srq_recv1",
];

/// The most instructions of one way over ours, of what the same way takes over rdma-core's; both take the
/// locks that they take by default.
const BARS: &[(&[&str], &str, f64)] = &[
    (&["post_inline8", "post_sge", "post_send"], "post_send", 0.55),
    (&["post_inline8", "post_sge", "post_send"], "wr", 0.65),
    (&["batch16_inline8", "batch16_sge", "list16_inline8"], "post_send", 0.60),
    (&["batch16_inline8"], "wr", 0.60),
    // Half of it is the program's own part, and the two calls that C's interface asks for.
    (&["batch16_sge"], "wr", 0.68),
    (&["poll1", "empty_poll"], "poll_cq", 0.60),
    (&["poll16"], "poll_cq", 0.65),
    (&["poll1", "poll16", "empty_poll"], "cq_ex", 0.75),
];

/// What became of a bar.
#[derive(Clone, Debug)]
pub(super) struct Verdict {
    pub(super) case: &'static str,
    pub(super) way: &'static str,
    pub(super) instructions: Against,
}

/// Every bar, held against what was measured. A case that was not measured holds nothing.
pub(super) fn verdicts(measured: &Measured) -> Vec<Verdict> {
    let bars =
        BARS.iter().flat_map(|(cases, way, bar)| cases.iter().map(move |case| (case, way, bar)));
    bars.map(|(&case, &way, &bar)| {
        let of = |who: &str| measured.row(case, &format!("{who}{way}"), "default");
        let ratio = match (of(WHO), of("rdma-core-")) {
            (Some(ours), Some(theirs)) => ours.instructions / theirs.instructions,
            _ => f64::INFINITY,
        };
        Verdict { case, way, instructions: Against { ratio, bar } }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Row;

    #[test]
    fn a_way_over_ours_is_held_against_the_same_way_over_theirs() {
        let row = |who: &str, instructions| Row {
            case: "poll16".into(),
            who: who.into(),
            mode: "default".into(),
            instructions,
            misses: 0.0,
            nanoseconds: None,
            places: Vec::new(),
        };
        let held = |ours| {
            let rows = vec![
                row("rdma-core-poll_cq", 100.0),
                row("rdma-core-cq_ex", 1000.0),
                row("mlx5-verbs-poll_cq", ours),
            ];
            let all = verdicts(&Measured { rows, ..Measured::default() });
            let found = all.into_iter().find(|bar| bar.case == "poll16" && bar.way == "poll_cq");
            found.expect("a bar").instructions.holds()
        };
        assert!(held(65.0) && !held(65.1));
        assert!(verdicts(&Measured::default()).iter().all(|bar| !bar.instructions.holds()));
    }

    #[test]
    fn what_has_a_bar_is_measured() {
        for (cases, ..) in BARS {
            assert!(cases.iter().all(|case| CASES.contains(case)), "{cases:?}");
        }
    }
}
