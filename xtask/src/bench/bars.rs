//! The bars: the most that each case may take.

use std::fmt;

use super::missed::{MISSED, Missed};
use super::rival::Rival;
use super::{Measured, Row, derived};

/// The prefix of the C API over our library. The way to post or poll follows it, as after
/// `rdma-core-`.
pub(super) const OVER_OURS: &str = "mlx5-verbs-";

/// The most that ours may take of what its rival takes.
struct Bar {
    cases: &'static [&'static str],
    who: &'static str,
    mode: &'static str,
    rival: Rival,
    instructions: f64,
    nanoseconds: Option<f64>,
}

/// One bar a line: implementation, mode, cases, and the most of the rival's instructions and
/// nanoseconds.
macro_rules! bars {
    ($($who:literal $mode:literal [$($case:literal),*] <= $instructions:literal, $nanoseconds:expr, of $rival:expr;)*) => {
        const BARS: &[Bar] = &[$(Bar {
            cases: &[$($case),*],
            who: $who,
            mode: $mode,
            rival: $rival,
            instructions: $instructions,
            nanoseconds: $nanoseconds,
        }),*];
    };
}

const FLOOR: Rival = Rival::Floor { besides: 0 };
const LOCKED_FLOOR: Rival = Rival::Floor { besides: 12 * 16 };
/// One lock for sixteen.
const LOCKED_BATCH_FLOOR: Rival = Rival::Floor { besides: 12 };

bars! {
    "mlx5" "single" ["post_inline8", "post_sge", "post_send", "post_ud", "post_fetch_add", "post_cmp_swp"] <= 0.60, Some(0.65), of Rival::C;
    "mlx5" "single" ["batch16_inline8", "batch16_sge"] <= 0.60, Some(0.65), of Rival::C;
    "mlx5" "single" ["list16_inline8"] <= 0.60, Some(0.75), of Rival::C;
    "mlx5" "single" ["poll1", "poll16", "empty_poll"] <= 0.60, Some(0.50), of Rival::C;
    "mlx5" "shared" ["post_inline8", "post_sge", "post_send", "poll1"] <= 0.65, None, of Rival::C;
    "mlx5" "single" ["cancel_1_of_1000", "cancel_64_of_4096"] <= 0.40, Some(0.40), of Rival::C;
    "mlx5" "single" ["post_recv1", "post_recv16", "post_srq_recv1"] <= 1.00, None, of Rival::C;
    "mlx5" "single" ["mkey_configure"] <= 1.00, Some(1.00), of Rival::C;
    "mlx5" "single" ["create_destroy_qp"] <= 1.00, Some(1.00), of Rival::C;
    "mlx5" "single" ["eth_send32"] <= 0.40, None, of Rival::C;
    "mlx5" "single" ["eth_recv32"] <= 0.45, None, of Rival::C;

    "mlx5" "single" ["post_inline8", "post_array8", "post_sge", "post_send"] <= 2.00, None, of FLOOR;
    "mlx5" "single" ["batch16_inline8", "batch16_array8", "batch16_sge"] <= 2.00, None, of FLOOR;
    "mlx5" "single" ["list16_inline8"] <= 2.00, None, of FLOOR;
    "mlx5" "single" ["post_ud"] <= 2.00, None, of FLOOR;
    "mlx5" "single" ["poll1", "poll16", "empty_poll"] <= 1.60, None, of FLOOR;
    "mlx5" "single" ["post_recv1"] <= 2.40, None, of FLOOR;
    "mlx5" "single" ["post_recv16"] <= 1.50, None, of FLOOR;
    "mlx5" "single" ["post_srq_recv1"] <= 2.40, None, of FLOOR;
    "mlx5" "single" ["post_fetch_add", "post_cmp_swp"] <= 2.00, None, of FLOOR;
    "mlx5" "single" ["poll1_compressed"] <= 1.40, None, of FLOOR;
    "mlx5" "single" ["poll16_compressed"] <= 1.30, None, of FLOOR;
    "mlx5" "single" ["cancel_1_of_1000", "cancel_64_of_4096"] <= 1.35, None, of FLOOR;
    "mlx5" "single" ["mkey_configure"] <= 1.50, None, of FLOOR;
    "mlx5" "single" ["eth_send32", "eth_send32_multi"] <= 1.35, None, of FLOOR;
    "mlx5" "single" ["eth_recv32", "eth_recv32_multi"] <= 1.50, None, of FLOOR;
    "mlx5" "single" ["eth_forward32"] <= 2.40, None, of FLOOR;
    "mlx5" "shared" ["post_inline8", "post_sge", "post_send"] <= 2.00, None, of LOCKED_FLOOR;
    "mlx5" "shared" ["batch16_inline8", "batch16_sge"] <= 2.00, None, of LOCKED_BATCH_FLOOR;
    "mlx5" "shared" ["list16_inline8"] <= 2.00, None, of LOCKED_BATCH_FLOOR;
    "mlx5" "shared" ["post_ud"] <= 2.00, None, of LOCKED_FLOOR;
    "mlx5" "shared" ["poll1", "empty_poll"] <= 1.60, None, of LOCKED_FLOOR;
    "mlx5" "shared" ["poll16"] <= 1.60, None, of LOCKED_BATCH_FLOOR;
    "mlx5" "shared" ["post_recv1"] <= 2.50, None, of LOCKED_FLOOR;
    "mlx5" "shared" ["post_recv16"] <= 1.50, None, of LOCKED_BATCH_FLOOR;

    "mlx5-verbs-post_send" "default" ["post_inline8", "post_sge", "post_send"] <= 0.75, Some(0.80), of Rival::SameProgram;
    "mlx5-verbs-wr" "default" ["post_inline8", "post_sge", "post_send"] <= 1.00, Some(0.95), of Rival::SameProgram;
    "mlx5-verbs-post_send" "default" ["batch16_inline8", "batch16_sge", "list16_inline8"] <= 0.75, Some(0.80), of Rival::SameProgram;
    "mlx5-verbs-wr" "default" ["batch16_inline8", "batch16_sge"] <= 1.00, Some(0.95), of Rival::SameProgram;
    "mlx5-verbs-poll_cq" "default" ["poll1", "empty_poll"] <= 0.60, Some(1.00), of Rival::SameProgram;
    "mlx5-verbs-poll_cq" "default" ["poll16"] <= 0.65, Some(1.00), of Rival::SameProgram;
    "mlx5-verbs-cq_ex" "default" ["poll1", "poll16", "empty_poll"] <= 0.75, Some(1.00), of Rival::SameProgram;
    "mlx5-verbs-post_send" "default" ["post_ud", "post_fetch_add", "post_cmp_swp"] <= 1.00, Some(1.00), of Rival::SameProgram;
    "mlx5-verbs-wr" "default" ["post_ud", "post_fetch_add", "post_cmp_swp"] <= 1.00, Some(1.00), of Rival::SameProgram;
    "mlx5-verbs-post_recv" "default" ["post_recv1", "post_recv16"] <= 1.00, Some(1.00), of Rival::SameProgram;
    "mlx5-verbs-post_srq_recv" "default" ["post_srq_recv1"] <= 1.00, Some(1.00), of Rival::SameProgram;
    "mlx5-verbs-wr" "default" ["mkey_configure"] <= 1.00, Some(1.00), of Rival::SameProgram;
    "mlx5-verbs-create_qp" "default" ["create_destroy_qp"] <= 1.00, Some(1.00), of Rival::SameProgram;
    "mlx5-verbs-cancel" "default" ["cancel_1_of_1000", "cancel_64_of_4096"] <= 1.00, Some(1.00), of Rival::SameProgram;

    "mlx5" "single" ["poll_sparse2", "poll_sparse16"] <= 1.30, None, of Rival::Case("poll1");
    "mlx5" "single" ["poll16_sparse2", "poll16_sparse16"] <= 1.30, None, of Rival::Case("poll16");
    "mlx5" "single" ["poll1_compressed"] <= 1.50, None, of Rival::Case("poll1");
    "mlx5" "single" ["poll16_compressed"] <= 1.50, None, of Rival::Case("poll16");
    "mlx5" "single" ["post_srq_recv_random_32768"] <= 1.10, None, of Rival::Case("post_srq_recv_random_1024");
    "mlx5" "single" ["round_inline8_on_10000"] <= 1.25, None, of Rival::Case("round_inline8_on_1");

    "mlx5" "single" ["post_inline8_on_10000"] <= 4.00, None, of Rival::Lines;

    "mlx5" "single" ["eth_send32_multi"] <= 45.0, None, of Rival::Nobody;
}

/// The cases whose cache misses are counted for a bar.
pub(super) fn of_lines() -> Vec<&'static str> {
    let bars = BARS.iter().filter(|bar| bar.rival == Rival::Lines);
    bars.flat_map(|bar| bar.cases).copied().collect()
}

/// Every case that is measured for a bar.
pub(super) fn cases() -> Vec<&'static str> {
    let rival = |bar: &Bar| match bar.rival {
        Rival::Case(case) => Some(case),
        _ => None,
    };
    let all = BARS.iter().flat_map(|bar| bar.cases.iter().copied().chain(rival(bar)));
    let mut cases: Vec<_> =
        all.flat_map(|case| derived::parts(case).map_or(vec![case], Vec::from)).collect();
    cases.sort_unstable();
    cases.dedup();
    cases
}

/// The difference allowed between a ratio and the recorded one: counts repeat to a few tenths of an
/// instruction.
const ROUNDING: f64 = 0.01;

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
        let verdict = if self.holds() { "holds" } else { "MISSED" };
        write!(f, "{:.3} / {:.2} {verdict}", self.ratio, self.bar)
    }
}

/// The result of a bar.
#[derive(Clone, Debug)]
pub(super) struct Verdict {
    pub(super) case: &'static str,
    pub(super) who: &'static str,
    pub(super) mode: &'static str,
    pub(super) rival: Rival,
    /// The best of several rivals, by instructions and by time.
    pub(super) rivals: [String; 2],
    /// The counts of ours and of the rival.
    pub(super) counts: [f64; 2],
    pub(super) times: [f64; 2],
    pub(super) instructions: Against,
    pub(super) nanoseconds: Option<Against>,
    /// If it is known that the bar is missed.
    pub(super) missed: Option<&'static Missed>,
}

impl Verdict {
    /// The fault of a result: it is worse than the recorded one, or so much better that it could
    /// get worse again unnoticed.
    pub(super) fn fault(&self) -> Option<&'static str> {
        match (self.instructions.holds(), self.missed) {
            (true, None) => None,
            (true, Some(_)) => Some("is reached: take it out of missed.rs"),
            (false, None) => Some("is missed, and not in missed.rs"),
            (false, Some(missed)) if self.instructions.ratio > missed.ratio + ROUNDING => {
                Some("is missed by more than missed.rs has")
            }
            (false, Some(missed)) if self.instructions.ratio < missed.ratio - ROUNDING => {
                Some("is missed by less: write the ratio down in missed.rs")
            }
            (false, Some(_)) => None,
        }
    }

    /// The way of the C API.
    pub(super) fn way(&self) -> &'static str {
        self.who.strip_prefix(OVER_OURS).unwrap_or(self.mode)
    }
}

impl Bar {
    /// The rows of the rival: by instructions and by time.
    fn rivals<'a>(&self, measured: &'a Measured, case: &str) -> [Option<&'a Row>; 2] {
        let twice = |row| [row, row];
        match self.rival {
            Rival::C => [
                measured.best_peer(case, "default", |row| row.instructions),
                measured.best_peer(case, "single_threaded", |row| {
                    row.nanoseconds.unwrap_or(f64::INFINITY)
                }),
            ],
            Rival::Floor { .. } => twice(measured.row(case, "floor", "single")),
            Rival::SameProgram => {
                twice(measured.row(case, &self.who.replace(OVER_OURS, "rdma-core-"), self.mode))
            }
            Rival::Case(other) => twice(measured.row(other, self.who, self.mode)),
            Rival::Lines | Rival::Nobody => [None; 2],
        }
    }

    fn verdict(&self, measured: &Measured, case: &'static str) -> Verdict {
        let ours = measured.row(case, self.who, self.mode);
        let [rival, in_time] = self.rivals(measured, case);
        let who = |row: Option<&Row>| row.map_or_else(String::new, |row| row.who.clone());
        let count = |row: Option<&Row>| row.map_or(f64::NAN, |row| row.instructions);
        let time = |row: Option<&Row>| row.and_then(|row| row.nanoseconds).unwrap_or(f64::NAN);
        let counts = match self.rival {
            // A run without counted misses did not count them. Fractions are lines that are mostly
            // in the cache.
            Rival::Lines => {
                let misses = ours.map_or(0.0, |row| row.misses.round());
                [if misses == 0.0 { f64::NAN } else { misses }, 1.0]
            }
            Rival::Nobody => [count(ours), 1.0],
            _ => [count(ours), count(rival)],
        };
        let besides = match self.rival {
            Rival::Floor { besides } => f64::from(besides) / 16.0,
            _ => 0.0,
        };
        let ratio = (counts[0] - besides) / counts[1];
        // A case without a measurement holds no bar.
        let ratio = if ratio.is_nan() { f64::INFINITY } else { ratio };
        let pair = measured.pairs.iter().find(|pair| {
            pair.case == case
                && (pair.who.as_str(), pair.mode.as_str()) == (self.who, self.mode)
                && in_time.is_some_and(|row| (&row.who, &row.mode) == (&pair.peer, &pair.peer_mode))
        });
        let missed = |one: &&Missed| {
            (one.case, one.who, one.mode, one.rival) == (case, self.who, self.mode, self.rival)
        };
        Verdict {
            case,
            who: self.who,
            mode: self.mode,
            rival: self.rival,
            rivals: [who(rival), who(in_time)],
            counts,
            times: [time(ours), time(in_time)],
            instructions: Against { ratio, bar: self.instructions },
            nanoseconds: self.nanoseconds.filter(|_| measured.rounds != 0).map(|bar| {
                let ratio = pair.map_or(f64::INFINITY, |pair| pair.ratio);
                Against { ratio, bar }
            }),
            missed: MISSED.iter().find(missed),
        }
    }
}

/// Every bar, held against what was measured. A case that was not measured holds nothing.
pub(super) fn verdicts(measured: &Measured) -> Vec<Verdict> {
    let each = |bar: &'static Bar| bar.cases.iter().map(move |case| bar.verdict(measured, case));
    BARS.iter().flat_map(each).collect()
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
        let pair = |who: &str, mode: &str, peer: &str, peer_mode: &str, ratio| Pair {
            case: "poll1".into(),
            who: who.into(),
            mode: mode.into(),
            peer: peer.into(),
            peer_mode: peer_mode.into(),
            ratio,
        };
        Measured {
            rows: vec![
                row("mlx5", "single", ours, 1.0),
                row("mlx5", "shared", ours, 1.0),
                row("floor", "single", 50.0, 1.0),
                row("rdma-core-poll_cq", "default", 200.0, 3.0),
                row("rdma-core-cq_ex", "default", 300.0, 2.0),
                row("rdma-core-poll_cq", "single_threaded", 10.0, 4.0),
                row("rdma-core-cq_ex", "single_threaded", 20.0, 3.0),
                row("mlx5-verbs-poll_cq", "default", ours, 1.0),
            ],
            pairs: vec![
                pair("mlx5", "single", "rdma-core-poll_cq", "single_threaded", 0.1),
                pair("mlx5", "single", "rdma-core-cq_ex", "single_threaded", ratio),
                pair("mlx5-verbs-poll_cq", "default", "rdma-core-cq_ex", "default", 9.0),
                pair("mlx5-verbs-poll_cq", "default", "rdma-core-poll_cq", "default", ratio),
            ],
            rounds: 1,
            ..Measured::default()
        }
    }

    fn poll1(measured: &Measured, who: &str, mode: &str, rival: Rival) -> Verdict {
        let all = verdicts(measured);
        let is_it =
            |one: &Verdict| (one.case, one.who, one.mode, one.rival) == ("poll1", who, mode, rival);
        all.into_iter().find(is_it).expect("a bar")
    }

    #[test]
    fn instructions_are_held_against_the_better_way_in_default_mode() {
        let of = |ours| poll1(&measured(ours, 0.2), "mlx5", "single", Rival::C);
        assert_eq!(of(120.0).rivals[0], "rdma-core-poll_cq");
        assert!(of(120.0).instructions.holds() && !of(120.1).instructions.holds());
    }

    #[test]
    fn time_is_held_against_the_faster_way_in_single_threaded_mode() {
        let of = |ratio| poll1(&measured(70.0, ratio), "mlx5", "single", Rival::C);
        assert_eq!(of(0.35).rivals[1], "rdma-core-cq_ex");
        let holds = |ratio| of(ratio).nanoseconds.expect("a bar").holds();
        assert!(holds(0.50) && !holds(0.51));
    }

    #[test]
    fn a_lock_may_take_twelve_instructions_more_than_the_floors_bar() {
        let holds = |ours, mode, rival| {
            poll1(&measured(ours, 0.2), "mlx5", mode, rival).instructions.holds()
        };
        assert!(holds(80.0, "single", FLOOR) && !holds(80.1, "single", FLOOR));
        assert!(holds(92.0, "shared", LOCKED_FLOOR) && !holds(92.1, "shared", LOCKED_FLOOR));
    }

    #[test]
    fn the_c_api_is_held_against_the_same_way_over_cs_library() {
        let of = |ours, ratio| {
            let measured = measured(ours, ratio);
            poll1(&measured, "mlx5-verbs-poll_cq", "default", Rival::SameProgram)
        };
        assert!(of(120.0, 1.0).instructions.holds() && !of(120.1, 1.0).instructions.holds());
        let holds = |ratio| of(120.0, ratio).nanoseconds.expect("a bar").holds();
        assert!(holds(1.0) && !holds(1.01));
    }

    #[test]
    fn cache_lines_are_whole_and_must_have_been_counted() {
        let of = |misses| {
            let row = Row {
                case: "post_inline8_on_10000".into(),
                misses,
                ..row("mlx5", "single", 99.0, 1.0)
            };
            let measured = Measured { rows: vec![row], ..Measured::default() };
            let all = verdicts(&measured);
            all.into_iter().find(|one| one.rival == Rival::Lines).expect("a bar").instructions
        };
        assert!(of(4.4).holds() && !of(4.6).holds() && !of(0.0).holds());
        assert_eq!(of(5.8).ratio, 6.0);
    }

    #[test]
    fn what_was_not_measured_does_not_hold() {
        assert!(verdicts(&Measured::default()).iter().all(|verdict| !verdict.instructions.holds()));
    }

    /// The rows of docs/benchmarks.json that have instructions: case, implementation, mode, and
    /// whether there is a time.
    fn published() -> Vec<([String; 3], bool)> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/benchmarks.json");
        let text = std::fs::read_to_string(path).expect("docs/benchmarks.json");
        let rows: Vec<serde_json::Value> = serde_json::from_str(&text).expect("rows");
        let counted = rows.iter().filter(|row| row["instructions"].is_number());
        let word = |row: &serde_json::Value, key| row[key].as_str().unwrap_or("").to_owned();
        let rows = counted
            .map(|row| (["case", "who", "mode"].map(|key| word(row, key)), row["ns"].is_number()));
        rows.collect()
    }

    #[test]
    fn every_bar_and_its_rival_have_a_published_row() {
        let rows = published();
        for bar in BARS {
            for &case in bar.cases {
                let (who, mode) = (bar.who, bar.mode);
                let has = |case: &str, who: &str, mode: &str| {
                    let is_it = |row: &&([String; 3], bool)| {
                        // Of C it is the better of its ways.
                        let by_name = match who.strip_suffix('*') {
                            Some(start) => row.0[1].starts_with(start),
                            None => row.0[1] == who,
                        };
                        row.0[0] == case && by_name && row.0[2] == mode
                    };
                    let found = rows.iter().find(is_it);
                    let found = found.is_some_and(|row| row.1 || bar.nanoseconds.is_none());
                    assert!(found, "no row of {case}, {who}, {mode}");
                };
                has(case, who, mode);
                match bar.rival {
                    Rival::C => has(case, "rdma-core-*", "default"),
                    Rival::Floor { .. } => has(case, "floor", "single"),
                    Rival::SameProgram => has(case, &who.replace(OVER_OURS, "rdma-core-"), mode),
                    Rival::Case(other) => has(other, who, mode),
                    Rival::Lines | Rival::Nobody => {}
                }
            }
        }
    }

    #[test]
    fn a_bar_is_missed_as_it_is_written_down_and_not_otherwise() {
        const KNOWN: Missed =
            Missed { case: "poll1", who: "mlx5", mode: "single", rival: FLOOR, ratio: 1.80 };
        let fault = |ours, missed| {
            let verdict = poll1(&measured(ours, 0.2), "mlx5", "single", FLOOR);
            Verdict { missed, ..verdict }.fault().unwrap_or_default()
        };
        assert_eq!(fault(70.0, None), "");
        assert!(fault(82.0, None).contains("not in missed.rs"));
        assert_eq!(fault(90.0, Some(&KNOWN)), "");
        assert!(fault(91.0, Some(&KNOWN)).contains("by more"));
        assert!(fault(89.0, Some(&KNOWN)).contains("by less"));
        assert!(fault(70.0, Some(&KNOWN)).contains("take it out"));
    }

    #[test]
    fn every_missed_bar_is_a_bar() {
        for (at, missed) in MISSED.iter().enumerate() {
            let same = |other: &Missed| {
                (other.case, other.who, other.mode, other.rival)
                    == (missed.case, missed.who, missed.mode, missed.rival)
            };
            assert_eq!(MISSED.iter().position(same), Some(at), "twice: {missed:?}");
            let is_it = |bar: &&Bar| {
                (bar.who, bar.mode, bar.rival) == (missed.who, missed.mode, missed.rival)
                    && bar.cases.contains(&missed.case)
            };
            let bar = BARS.iter().find(is_it);
            assert!(bar.is_some_and(|bar| bar.instructions < missed.ratio), "{missed:?}");
        }
    }
}
