//! Runs the same operations on one queue pair, and on many in turn.

use crate::bed::{Base, Given, Poller, Poster};
use crate::machine::Machine;
use crate::operations::{poll, post};
use crate::round::{Mode, ROUND, Round, timed};
use mlx5::transport::Rc as Reliable;
use mlx5::{CompletionQueue, QueuePair};
use std::cell::RefCell;
use std::rc::Rc;

pub(in crate::rounds) const FUNCTIONS: &[&str] = &["mlx5_bench::operations::post::prefetch"];

/// Number of queue pairs, and the cases: posting, posting with prefetches, polling.
const MANY: [(usize, [&str; 3]); 3] = [
    (1, ["post_inline8_on_1", "post_prefetched_on_1", "poll1_on_1"]),
    (100, ["post_inline8_on_100", "post_prefetched_on_100", "poll1_on_100"]),
    (10_000, ["post_inline8_on_10000", "post_prefetched_on_10000", "poll1_on_10000"]),
];

/// Number of posts by which a prefetch is ahead.
const AHEAD: usize = 4;

/// Queue pairs that are connected to themselves and complete on one queue.
struct Many {
    base: Base,
    given: Given,
    qps: Vec<QueuePair<Reliable>>,
    cq: CompletionQueue,
    sum: u64,
}

impl Many {
    fn new(machine: &Machine, count: usize) -> Self {
        let base = Base::new(machine);
        let cq = base.cq(1024);
        let qps = (0..count).map(|_| base.loopback(&cq, ROUND as u32)).collect();
        let given = Given::new(&base);
        Self { base, given, qps, cq, sum: 0 }
    }

    /// Posts to one queue pair after the other.
    fn post(&mut self, first: u64) -> u64 {
        self.post_with(first, |_, _| ())
    }

    /// The same with prefetches, on queue pairs that the last round of the same case did not use.
    fn post_prefetched(&mut self, first: u64) -> u64 {
        let first = first + self.qps.len() as u64 / 2;
        self.post_with(first, |qps, at| post::prefetch(&qps[(at + AHEAD) % qps.len()]))
    }

    fn post_with(&mut self, first: u64, before: impl Fn(&[QueuePair<Reliable>], usize)) -> u64 {
        let Self { base, given, qps, cq, .. } = self;
        let (bytes, count) = (given.bytes(), qps.len());
        let time = timed(ROUND as usize, |k| {
            let at = (first as usize + k) % count;
            before(qps, at);
            post::inline8(&mut qps[at], given.remotes[k], bytes, first + k as u64).is_ok()
        });
        base.machine.settle();
        assert_eq!(cq.drain(), ROUND as usize);
        time
    }

    /// Polls completions one by one; each belongs to the next queue pair.
    fn poll(&mut self, first: u64) -> u64 {
        let Self { base, given, qps, cq, sum } = self;
        let count = qps.len();
        for k in 0..ROUND as usize {
            let qp = &mut qps[(first as usize + k) % count];
            qp.request(first + k as u64, Some(given.remotes[k]), given.sges[k]);
        }
        base.machine.settle();
        timed(ROUND as usize, |_| poll::one(cq, sum) == Some(1))
    }
}

/// A round on many queue pairs: takes the number of the first operation; returns nanoseconds, or
/// zero if the operations are sampled.
type Part = fn(&mut Many, u64) -> u64;

/// Rounds of the wanted cases.
pub(in crate::rounds) fn rounds(machine: &Machine, wanted: &dyn Fn(&str) -> bool) -> Vec<Round> {
    let mut rounds = Vec::new();
    for (count, cases) in MANY {
        let many = Rc::new(RefCell::new(None));
        let parts: [Part; 3] = [Many::post, Many::post_prefetched, Many::poll];
        for (case, round) in cases.into_iter().zip(parts) {
            if !wanted(case) {
                continue;
            }
            let (machine, many) = (machine.clone(), Rc::clone(&many));
            rounds.push(Round {
                case: case.into(),
                who: "mlx5".into(),
                mode: Mode::Single,
                operations: ROUND,
                run: Box::new(move |first| {
                    let mut many = many.borrow_mut();
                    round(many.get_or_insert_with(|| Many::new(&machine, count)), first)
                }),
            });
        }
    }
    rounds
}
