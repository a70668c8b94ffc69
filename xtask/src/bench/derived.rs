//! Cases that are sums of others: a request posted, and its completion polled.

use super::{Measured, Row};

/// Name of a sum, the case that posts, and the case that polls.
const SUMS: &[(&str, &str, &str)] = &[
    ("round_inline8", "post_inline8", "poll1"),
    ("round_inline8_on_1", "post_inline8_on_1", "poll1_on_1"),
    ("round_inline8_on_100", "post_inline8_on_100", "poll1_on_100"),
    ("round_inline8_on_10000", "post_inline8_on_10000", "poll1_on_10000"),
];

/// The way that posts, and the way that polls.
const PAIRS: &[(&str, &str)] = &[
    ("mlx5", "mlx5"),
    ("rdma-core-post_send", "rdma-core-poll_cq"),
    ("rdma-core-wr", "rdma-core-cq_ex"),
    ("mlx5-verbs-post_send", "mlx5-verbs-poll_cq"),
    ("mlx5-verbs-wr", "mlx5-verbs-cq_ex"),
    ("ucx", "ucx"),
    ("by-hand", "by-hand"),
    ("floor", "floor"),
];

/// The two cases whose sum `case` is, if it is one.
pub(super) fn parts(case: &str) -> Option<[&'static str; 2]> {
    SUMS.iter().find(|sum| sum.0 == case).map(|sum| [sum.1, sum.2])
}

/// Adds a row for each sum of measured cases.
pub(super) fn add(measured: &mut Measured) {
    let mut sums = Vec::new();
    for &(case, posting, polling) in SUMS {
        for &(poster, poller) in PAIRS {
            let posts = measured.rows.iter().filter(|row| row.case == posting && row.who == poster);
            for post in posts {
                if let Some(poll) = measured.row(polling, poller, &post.mode) {
                    sums.push(Row {
                        case: case.to_owned(),
                        who: poster.to_owned(),
                        mode: post.mode.clone(),
                        instructions: post.instructions + poll.instructions,
                        misses: post.misses + poll.misses,
                        nanoseconds: post.nanoseconds.zip(poll.nanoseconds).map(|(a, b)| a + b),
                        places: Vec::new(),
                    });
                }
            }
        }
    }
    measured.rows.extend(sums);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_what_posting_and_polling_take_of_the_same_way() {
        let row = |case: &str, who: &str, instructions, nanoseconds| Row {
            case: case.into(),
            who: who.into(),
            mode: "default".into(),
            instructions,
            misses: 0.5,
            nanoseconds,
            places: Vec::new(),
        };
        let mut measured = Measured {
            rows: vec![
                row("post_inline8", "rdma-core-wr", 10.0, Some(2.0)),
                row("poll1", "rdma-core-cq_ex", 5.0, Some(1.0)),
                row("poll1", "rdma-core-poll_cq", 3.0, None),
            ],
            ..Measured::default()
        };
        add(&mut measured);
        assert_eq!(measured.rows.len(), 4);
        let sum = measured.row("round_inline8", "rdma-core-wr", "default").expect("a sum");
        assert_eq!((sum.instructions, sum.misses, sum.nanoseconds), (15.0, 1.0, Some(3.0)));
        assert_eq!(parts("round_inline8"), Some(["post_inline8", "poll1"]));
    }
}
