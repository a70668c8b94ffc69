//! Posts to a shared receive queue whose requests complete in random order.

use crate::bed::{Base, Given, Poller, Poster};
use crate::machine::Machine;
use crate::operations::receive;
use crate::round::{Mode, ROUND, Round, timed};
use mlx5::transport::Rc as Reliable;
use mlx5::{CompletionQueue, ConnectOptions, Psn, QueuePair, SharedReceiveQueue};
use std::cell::RefCell;
use std::rc::Rc;

pub(in crate::rounds) const FUNCTIONS: &[&str] = &["mlx5_bench::operations::receive::srq_recv"];

/// Sizes of the queue, and the cases.
const SIZES: [(u32, &str); 2] =
    [(1024, "post_srq_recv_random_1024"), (32_768, "post_srq_recv_random_32768")];

/// Queue pairs that use the shared queue; each is connected to itself and has a completion queue of
/// its own.
const PAIRS: usize = 64;

struct Pair {
    qp: QueuePair<Reliable>,
    received: CompletionQueue,
    /// Number of completions that wait there.
    waiting: u32,
}

struct Scattered {
    base: Base,
    given: Given,
    srq: SharedReceiveQueue,
    sent: CompletionQueue,
    pairs: Vec<Pair>,
    random: u64,
}

impl Scattered {
    /// Half of the requests have completed and are not polled yet; the device holds the others.
    fn new(machine: &Machine, size: u32) -> Self {
        let base = Base::new(machine);
        let given = Given::new(&base);
        let srq = base.pd.create_srq(size - 1).build().expect("create_srq");
        let (sent, entries) = (base.cq(1024), size);
        let (options, psn) = (ConnectOptions::default(), Psn::wrapping(0));
        let pairs = (0..PAIRS).map(|_| {
            let received = base.cq(entries / 16);
            let qp = base.pd.create_qp::<Reliable>(&sent, &received).max_send_wr(64);
            let mut qp = qp.srq(&srq).build().expect("create_qp");
            let here = qp.endpoint(&base.port, psn, &options);
            qp.connect(&base.port, psn, &here, &options).expect("connect");
            Pair { qp, received, waiting: 0 }
        });
        let pairs = pairs.collect();
        let mut this = Self { base, given, srq, sent, pairs, random: 1 };
        this.fill();
        for step in 0..size as usize / 2 {
            this.send(step % PAIRS);
        }
        // Polls a random number from each queue, so that the oldest completions have different
        // ages.
        for pair in 0..PAIRS {
            for _ in 0..this.random() % this.pairs[pair].waiting as usize {
                this.take(pair);
            }
        }
        this.fill();
        while this.pairs.iter().map(|pair| pair.waiting).sum::<u32>() < size / 2 {
            let pair = this.random() % PAIRS;
            this.send(pair);
        }
        this
    }

    fn random(&mut self) -> usize {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) as usize
    }

    /// Posts until the queue is full.
    fn fill(&mut self) {
        while self.srq.recv(0, self.given.sges[0]).is_ok() {}
    }

    fn send(&mut self, pair: usize) {
        let pair = &mut self.pairs[pair];
        pair.qp.request(0, None, self.given.sges[0]);
        pair.waiting += 1;
        self.base.machine.settle();
        assert_eq!(self.sent.drain(), 1);
    }

    fn take(&mut self, pair: usize) {
        let pair = &mut self.pairs[pair];
        let polled = pair.received.poll(1, |one| one.status().expect("success")).expect("poll");
        pair.waiting -= polled as u32;
    }

    /// Posts as many as were polled, from random queues.
    fn post(&mut self, first: u64) -> u64 {
        for _ in 0..ROUND {
            let pair = loop {
                let pair = self.random() % PAIRS;
                if self.pairs[pair].waiting != 0 {
                    break pair;
                }
            };
            self.take(pair);
        }
        let Self { given, srq, .. } = self;
        let time = timed(ROUND as usize, |k| {
            receive::srq_recv(srq, given.sges[k], first + k as u64).is_ok()
        });
        assert!(self.srq.recv(0, self.given.sges[0]).is_err(), "no other place is free");
        for _ in 0..ROUND {
            let pair = self.random() % PAIRS;
            self.send(pair);
        }
        time
    }
}

/// Rounds of the wanted cases.
pub(in crate::rounds) fn rounds(machine: &Machine, wanted: &dyn Fn(&str) -> bool) -> Vec<Round> {
    let cases = SIZES.into_iter().filter(|(_, case)| wanted(case));
    cases
        .map(|(size, case)| {
            let scattered = Rc::new(RefCell::new(Scattered::new(machine, size)));
            Round {
                case: case.into(),
                who: "mlx5".into(),
                mode: Mode::Single,
                operations: ROUND,
                run: Box::new(move |first| scattered.borrow_mut().post(first)),
            }
        })
        .collect()
}
