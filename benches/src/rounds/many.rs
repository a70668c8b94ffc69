//! The same operations on one queue pair, and on very many in turn.

use crate::bed::{Base, Given, Poller, Poster};
use crate::machine::Machine;
use crate::operations::{poll, post};
use crate::round::{Mode, ROUND, Round, timed};
use mlx5::transport::Rc as Reliable;
use mlx5::{CompletionQueue, QueuePair};
use std::cell::RefCell;
use std::rc::Rc;

pub(in crate::rounds) const FUNCTIONS: &[&str] = &[];

/// How many there are, and the cases.
const MANY: [(usize, &str, &str); 3] = [
    (1, "post_inline8_on_1", "poll1_on_1"),
    (100, "post_inline8_on_100", "poll1_on_100"),
    (10_000, "post_inline8_on_10000", "poll1_on_10000"),
];

/// Queue pairs, each connected with itself, that complete on one queue.
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

    /// Posts to one after the other.
    fn post(&mut self, first: u64) -> u64 {
        let Self { base, given, qps, cq, .. } = self;
        let (bytes, count) = (given.bytes(), qps.len());
        let time = timed(ROUND as usize, |k| {
            let qp = &mut qps[(first as usize + k) % count];
            post::inline8(qp, given.remotes[k], bytes, first + k as u64).is_ok()
        });
        base.machine.settle();
        assert_eq!(cq.drain(), ROUND as usize);
        time
    }

    /// Polls, one by one, what was posted to one after the other.
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

/// A round on many queue pairs: from which operation on; nanoseconds, or what stands for them.
type Part = fn(&mut Many, u64) -> u64;

/// The rounds of those cases that are wanted.
pub(in crate::rounds) fn rounds(machine: &Machine, wanted: &dyn Fn(&str) -> bool) -> Vec<Round> {
    let mut rounds = Vec::new();
    for (count, posting, polling) in MANY {
        let many = Rc::new(RefCell::new(None));
        let parts: [(_, Part); 2] = [(posting, Many::post), (polling, Many::poll)];
        for (case, round) in parts {
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
