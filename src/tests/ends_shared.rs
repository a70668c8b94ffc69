//! Shared receive queues that are destroyed at any time, while the device completes their receives:
//! no completion of a destroyed queue is polled afterwards, none is taken for one of its successor,
//! which may have the same numbers, and the successor loses nothing.
//!
//! Seeds and steps as in [`super::ends`].

use super::ends::{Random, delayed_bed, with_seeds};
use super::states::{Bed, Pair};
use super::*;
use crate::transport::XrcSend;
use mlx5_wqe::SendFlags;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const QUEUES: u64 = 4;
const BUFFERS: u64 = 7;

/// The queue pairs of a queue.
enum Ends {
    /// They take from it, and are destroyed before it.
    Connected(Box<Pair>),
    /// An extended connection, whose target is destroyed after it.
    Extended { sender: Box<QueuePair<XrcSend>>, _target: XrcTarget },
}

struct Queue {
    srq: SharedReceiveQueue,
    ends: Option<Ends>,
    /// Part of the identifiers of its receives.
    era: u64,
    next: u64,
    posted: BTreeSet<u64>,
}

struct World {
    queues: Vec<Queue>,
    bed: Bed,
    domain: XrcDomain,
    random: Random,
    late: Arc<AtomicU64>,
    eras: u64,
    /// Number of receives that were polled, and of those that were posted when their queue was
    /// destroyed.
    counts: [usize; 2],
}

impl World {
    fn new(seed: u64) -> Self {
        let (bed, late, random) = delayed_bed(seed);
        let domain = bed.context.open_xrcd().unwrap();
        let queues = Vec::new();
        let mut world = Self { queues, bed, domain, random, late, eras: 0, counts: [0; 2] };
        for place in 0..QUEUES {
            let queue = world.queue(place);
            world.queues.push(queue);
        }
        world
    }

    fn queue(&mut self, place: u64) -> Queue {
        let Bed { pd, cq, context, .. } = &self.bed;
        let builder = pd.create_srq(BUFFERS as u32);
        self.eras += 1;
        let (srq, ends) = if place.is_multiple_of(2) {
            let srq = builder.build().unwrap();
            let pair = self.bed.pair(Some(&srq));
            (srq, Ends::Connected(Box::new(pair)))
        } else {
            let srq = builder.xrc(&self.domain, cq).build().unwrap();
            let mut sender = pd.create_qp::<XrcSend>(cq, cq).max_inline_data(8).build().unwrap();
            let mut target = self.domain.create_target().unwrap();
            let (options, psn) = (ConnectOptions::default(), Psn::default());
            let port = context.local_port(1, None).unwrap();
            let here = sender.endpoint(&port, psn, &options);
            sender.connect(&port, psn, &target.endpoint(&port, psn, &options), &options).unwrap();
            target.connect(&port, psn, &here, &options).unwrap();
            (srq, Ends::Extended { sender: Box::new(sender), _target: target })
        };
        Queue { srq, ends: Some(ends), era: self.eras, next: 0, posted: BTreeSet::new() }
    }

    fn run(&mut self) {
        let steps = self.random.below(12);
        (0..steps).all(|_| self.bed.simulator.step());
    }

    /// Makes the device work around the next call.
    fn delay(&mut self) {
        self.late.store(self.random.below(256), Relaxed);
    }

    fn post(&mut self, place: u64) {
        let queue = &mut self.queues[place as usize];
        for _ in 0..self.random.below(4) {
            if queue.posted.len() == BUFFERS as usize {
                return;
            }
            let wr_id = queue.era << 20 | queue.next;
            queue.next += 1;
            queue.srq.recv(wr_id, Sge::default()).unwrap();
            queue.posted.insert(wr_id);
        }
    }

    fn send(&mut self, place: u64) {
        let Queue { srq, ends, .. } = &mut self.queues[place as usize];
        // A full send queue waits for receives.
        let _ = match ends.as_mut().unwrap() {
            Ends::Connected(pair) => pair.near.post(|batch| {
                batch.wr(0, SendFlags::SIGNALED).send().inline_data(b"");
            }),
            Ends::Extended { sender, .. } => sender.post(|batch| {
                let wr = batch.wr(0, SendFlags::SIGNALED).send();
                wr.xrc_srqn(srq.srqn()).inline_data(b"");
            }),
        };
    }

    fn poll(&mut self, most: usize) -> usize {
        let mut found = Vec::new();
        let polled = self.bed.cq.poll(most, |wc| {
            if wc.opcode() == CompletionOpcode::Receive {
                assert_eq!(wc.status(), Ok(()));
                found.push(wc.wr_id());
            }
        });
        for wr_id in found {
            let queue = self.queues.iter_mut().find(|queue| queue.era == wr_id >> 20);
            let queue = queue.unwrap_or_else(|| panic!("{wr_id:#x} is of a queue that is gone"));
            assert!(queue.posted.remove(&wr_id), "{wr_id:#x} is not with the device");
            self.counts[0] += 1;
        }
        for queue in &self.queues {
            assert_eq!(queue.srq.in_flight() as usize, queue.posted.len());
            assert_eq!(queue.srq.take_discarded(), [], "its queue pairs are there");
        }
        polled.unwrap()
    }

    /// Destroys a queue and its queue pairs, and makes others, before or after.
    fn replace(&mut self, place: u64) {
        if self.random.below(3) == 0 {
            self.bed.cq.hand_over().unwrap();
        }
        let early = (self.random.below(2) == 0).then(|| self.queue(place));
        let Queue { srq, ends, posted, .. } = self.take(place, early);
        self.counts[1] += posted.len();
        match ends.unwrap() {
            Ends::Connected(pair) => {
                let Pair { near, far, .. } = *pair;
                for qp in [far, near] {
                    self.delay();
                    qp.destroy().unwrap();
                }
                self.delay();
                srq.destroy().unwrap();
            }
            extended => {
                self.delay();
                srq.destroy().unwrap();
                self.delay();
                drop(extended);
            }
        }
        if self.queues.len() < QUEUES as usize {
            let queue = self.queue(place);
            self.queues.insert(place as usize, queue);
        }
    }

    fn take(&mut self, place: u64, successor: Option<Queue>) -> Queue {
        match successor {
            Some(queue) => std::mem::replace(&mut self.queues[place as usize], queue),
            None => self.queues.remove(place as usize),
        }
    }

    fn turn(&mut self) {
        let place = self.random.below(QUEUES);
        match self.random.below(16) {
            0..4 => self.run(),
            4..7 => self.post(place),
            7..11 => self.send(place),
            11..14 => {
                let most = 1 + self.random.below(12) as usize;
                self.poll(most);
            }
            14 => drop(self.bed.cq.hand_over().unwrap()),
            _ => self.replace(place),
        }
    }

    /// Checks that each queue gets each receive that was posted.
    fn end(&mut self) {
        for place in 0..QUEUES {
            self.replace(place);
            while self.queues[place as usize].posted.len() < BUFFERS as usize {
                self.post(place);
            }
            for _ in 0..BUFFERS {
                self.send(place);
                self.bed.simulator.run_until_idle();
                while self.poll(64) != 0 {}
            }
            assert_eq!(self.queues[place as usize].posted.len(), 0, "the device lost some");
        }
    }
}

fn one(seed: u64) -> [usize; 2] {
    let mut world = World::new(seed);
    for _ in 0..80 {
        world.turn();
    }
    world.end();
    assert_eq!(world.bed.simulator.violations(), []);
    world.counts
}

#[test]
fn shared_receive_queues_that_are_destroyed_at_any_time_leave_their_successors_nothing() {
    with_seeds(one);
}
