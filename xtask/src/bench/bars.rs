//! What must be reached.

use std::fmt;

use super::{Measured, derived};

/// The most that ours may take of what something else takes.
struct Bar {
    cases: &'static [&'static str],
    mode: &'static str,
    instructions: f64,
    nanoseconds: Option<f64>,
    /// Our own cases that it is held against, one for each. If there are none, it is held against the
    /// better of the peer's ways: instructions, of its default mode; nanoseconds, of its
    /// single-threaded mode.
    own: &'static [&'static str],
}

/// One a line.
macro_rules! bars {
    ($($mode:literal [$($case:literal),*] <= $instructions:literal, $nanoseconds:expr
        $(, of [$($own:literal),*])?;)*) => {
        const BARS: &[Bar] = &[$(Bar {
            cases: &[$($case),*],
            mode: $mode,
            instructions: $instructions,
            nanoseconds: $nanoseconds,
            own: &[$($($own),*)?],
        }),*];
    };
}

bars! {
    "single" ["post_inline8", "post_sge", "post_send"] <= 0.35, Some(0.65);
    "single" ["batch16_inline8"] <= 0.35, Some(0.55);
    "single" ["batch16_sge"] <= 0.45, Some(0.55);
    "single" ["list16_inline8"] <= 0.50, Some(0.75);
    "single" ["poll1"] <= 0.35, Some(0.35);
    "single" ["poll16"] <= 0.50, Some(0.35);
    "single" ["empty_poll"] <= 0.45, Some(0.60);
    "shared" ["post_inline8", "post_sge", "post_send", "poll1"] <= 0.50, None;
    "single" ["cancel_1_of_1000", "cancel_64_of_4096"] <= 0.40, Some(0.40);
    "single" ["post_recv1", "post_recv16", "post_srq_recv1"] <= 1.00, None;
    "single" ["mkey_configure"] <= 1.05, None;
    "single" ["poll_sparse2", "poll_sparse16"] <= 1.30, None, of ["poll1", "poll1"];
    "single" ["round_inline8_on_10000"] <= 1.25, None, of ["round_inline8_on_1"];
}

/// Every case that is measured for a bar.
pub(super) fn cases() -> Vec<&'static str> {
    let all = BARS.iter().flat_map(|bar| [bar.cases, bar.own].concat());
    let mut cases: Vec<_> =
        all.flat_map(|case| derived::parts(case).map_or(vec![case], Vec::from)).collect();
    cases.sort_unstable();
    cases.dedup();
    cases
}

/// A ratio, and how much it may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Against {
    pub(super) ratio: f64,
    pub(super) bar: f64,
}

impl Against {
    pub(super) fn holds(self) -> bool {
        self.ratio <= self.bar
    }
}

impl fmt::Display for Against {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.holds() { "holds" } else { "OVER" };
        write!(f, "{:.3} / {:.2} {verdict}", self.ratio, self.bar)
    }
}

/// What became of a bar.
#[derive(Clone, Debug)]
pub(super) struct Verdict {
    pub(super) case: &'static str,
    pub(super) mode: &'static str,
    /// The case of ours that it was held against, if not the peer's.
    pub(super) own: Option<&'static str>,
    /// The peer's better way by instructions.
    pub(super) peer: String,
    pub(super) instructions: Against,
    /// The peer's better way by time.
    pub(super) peer_in_time: String,
    pub(super) nanoseconds: Option<Against>,
}

/// Every bar, held against what was measured. A case that was not measured holds nothing.
pub(super) fn verdicts(measured: &Measured) -> Vec<Verdict> {
    let bars = BARS.iter().flat_map(|bar| {
        let own = bar.own.iter().map(|&own| Some(own)).chain(std::iter::repeat(None));
        bar.cases.iter().zip(own).map(move |(&case, own)| (case, own, bar))
    });
    bars.map(|(case, own, bar)| {
        let ours = measured.row(case, "mlx5", bar.mode);
        let peer = match own {
            Some(own) => measured.row(own, "mlx5", bar.mode),
            None => measured.best_peer(case, "default", |row| row.instructions),
        };
        let ratio = match (ours, peer) {
            (Some(ours), Some(peer)) => ours.instructions / peer.instructions,
            _ => f64::INFINITY,
        };
        let in_time = measured
            .best_peer(case, "single_threaded", |row| row.nanoseconds.unwrap_or(f64::INFINITY));
        let pair = measured.pairs.iter().find(|pair| {
            pair.case == case
                && pair.mode == bar.mode
                && pair.peer_mode == "single_threaded"
                && in_time.is_some_and(|row| row.who == pair.peer)
        });
        let who = |row: Option<&super::Row>| row.map_or_else(String::new, |row| row.who.clone());
        Verdict {
            case,
            mode: bar.mode,
            own,
            peer: who(peer),
            instructions: Against { ratio, bar: bar.instructions },
            peer_in_time: who(in_time),
            nanoseconds: bar.nanoseconds.filter(|_| measured.rounds != 0).map(|bar| {
                let ratio = pair.map_or(f64::INFINITY, |pair| pair.ratio);
                Against { ratio, bar }
            }),
        }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Pair, Row};

    fn row(who: &str, mode: &str, instructions: f64, nanoseconds: f64) -> Row {
        Row {
            case: "poll1".into(),
            who: who.into(),
            mode: mode.into(),
            instructions,
            misses: 0.0,
            nanoseconds: Some(nanoseconds),
            places: Vec::new(),
        }
    }

    fn measured(ours: f64, ratio: f64) -> Measured {
        let pair = |peer: &str, ratio| Pair {
            case: "poll1".into(),
            mode: "single".into(),
            peer: peer.into(),
            peer_mode: "single_threaded".into(),
            ratio,
        };
        Measured {
            rows: vec![
                row("mlx5", "single", ours, 1.0),
                row("rdma-core-poll_cq", "default", 200.0, 3.0),
                row("rdma-core-cq_ex", "default", 300.0, 2.0),
                row("rdma-core-poll_cq", "single_threaded", 10.0, 4.0),
                row("rdma-core-cq_ex", "single_threaded", 20.0, 3.0),
            ],
            pairs: vec![pair("rdma-core-poll_cq", 0.1), pair("rdma-core-cq_ex", ratio)],
            rounds: 1,
            ..Measured::default()
        }
    }

    fn poll1(measured: &Measured) -> Verdict {
        let all = verdicts(measured);
        all.into_iter().find(|verdict| verdict.case == "poll1").expect("a bar")
    }

    #[test]
    fn instructions_are_held_against_the_better_way_in_default_mode() {
        let held = poll1(&measured(70.0, 0.2));
        assert_eq!(held.peer, "rdma-core-poll_cq");
        assert!(held.instructions.holds());
        assert!(!poll1(&measured(70.1, 0.2)).instructions.holds());
    }

    #[test]
    fn time_is_held_against_the_faster_way_in_single_threaded_mode() {
        let held = poll1(&measured(70.0, 0.35));
        assert_eq!(held.peer_in_time, "rdma-core-cq_ex");
        assert!(held.nanoseconds.expect("a bar").holds());
        assert!(!poll1(&measured(70.0, 0.36)).nanoseconds.expect("a bar").holds());
    }

    #[test]
    fn what_was_not_measured_does_not_hold() {
        assert!(verdicts(&Measured::default()).iter().all(|verdict| !verdict.instructions.holds()));
    }
}
