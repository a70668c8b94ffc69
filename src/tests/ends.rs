//! Connections that end at any time and in any way. All of them use one shared receive queue and
//! one completion queue. Each completion must be polled at most once, for its own connection, and
//! no buffer may be lost.
//!
//! The device works in steps. Some steps run just before or just after the kernel carries out a
//! call, so that completions are late at each step of a reset and of a destruction. `MLX5_SEED` is
//! the first seed, `MLX5_FUZZ_ROUNDS` the number of seeds.

use super::states::{Bed, Pair};
use super::*;
use crate::testing::Altered;
use mlx5_prm::cqe::MiniFormat;
use mlx5_wqe::SendFlags;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Number of seeds, unless `MLX5_FUZZ_ROUNDS` sets another.
const ROUNDS: u64 = 300;
const BUFFERS: u64 = 15;
const MESSAGE: usize = 64;
const CONNECTIONS: u64 = 3;

/// Pseudorandom numbers (xorshift).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit
    }
}

/// Returns a bed, a number that sets the device's steps around the next call, and the seed's
/// generator. The number modulo 16 is the steps before the call, the number divided by 16 the steps
/// after it.
pub(super) fn delayed_bed(seed: u64) -> (Bed, Arc<AtomicU64>, Random) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let simulator = Simulator::new(SimConfig::new().step(true));
    let late = Arc::new(AtomicU64::new(0));
    let (fabric, steps) = (simulator.fabric().clone(), Arc::clone(&late));
    let kernel = Altered::new(simulator.kernel(), move |call| {
        let late = steps.swap(0, Relaxed);
        (0..late % 16).all(|_| fabric.step());
        let done = call.pass();
        (0..late / 16).all(|_| fabric.step());
        done
    });
    let context = devices_on(kernel as Arc<dyn Kernel>).unwrap().remove(0).open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let builder = context.create_cq(100);
    let cq = match random.below(2) {
        0 => builder,
        _ => builder.compression(MiniFormat::Hash),
    };
    let cq = cq.build().unwrap();
    (Bed { simulator, context, pd, cq }, late, random)
}

/// Calls `one` with each seed of a run, and adds up the two counts that it returns. Neither sum may
/// be zero.
pub(super) fn with_seeds(one: impl Fn(u64) -> [usize; 2] + std::panic::RefUnwindSafe) {
    let number = |name, otherwise| {
        std::env::var(name).map_or(otherwise, |text| text.parse().expect("it is a number"))
    };
    let (start, mut counts) = (number("MLX5_SEED", 1), [0; 2]);
    for seed in start..start + number("MLX5_FUZZ_ROUNDS", ROUNDS) {
        let found = std::panic::catch_unwind(|| one(seed));
        let Ok(found) = found else { panic!("with MLX5_SEED={seed}") };
        counts = [counts[0] + found[0], counts[1] + found[1]];
    }
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
}

struct Connection {
    pair: Pair,
    /// Number of connections that this place had before this one.
    era: u64,
    sent: u64,
    received: u64,
    /// Identifiers of sends whose completion was not polled.
    outstanding: VecDeque<u64>,
}

/// Returns the identifier of a send. The message of the send has the same value.
fn name(place: u64, era: u64, number: u64) -> u64 {
    (place + 1) << 40 | era << 20 | number
}

struct World {
    bed: Bed,
    srq: SharedReceiveQueue,
    memory: MemoryRegion,
    free: Vec<u64>,
    posted: BTreeSet<u64>,
    connections: Vec<Connection>,
    random: Random,
    /// Sets the device's steps around the next call; see [`delayed_bed`].
    late: Arc<AtomicU64>,
    /// Number of completions that were polled, and of receives that were discarded.
    counts: [usize; 2],
}

impl World {
    fn new(seed: u64) -> Self {
        let (bed, late, random) = delayed_bed(seed);
        let srq = bed.pd.create_srq(BUFFERS as u32).build().unwrap();
        let memory = bed.pd.allocate(BUFFERS as usize * MESSAGE).unwrap();
        let mut world = Self {
            bed,
            srq,
            memory,
            free: (0..BUFFERS).collect(),
            posted: BTreeSet::new(),
            connections: Vec::new(),
            random,
            late,
            counts: [0; 2],
        };
        for _ in 0..CONNECTIONS {
            let pair = world.bed.pair(Some(&world.srq));
            world.connections.push(Connection::new(pair, 0));
        }
        world
    }

    fn run(&mut self) {
        let steps = self.random.below(12);
        (0..steps).all(|_| self.bed.simulator.step());
    }

    /// Makes the device work around the next call.
    fn delay(&mut self) {
        self.late.store(self.random.below(256), Relaxed);
    }

    fn post(&mut self) {
        for _ in 0..self.random.below(6) {
            let Some(buffer) = self.free.pop() else { return };
            let start = buffer as usize * MESSAGE;
            let sge = self.memory.sge(start..start + MESSAGE).unwrap();
            self.srq.recv(buffer, sge).unwrap();
            assert!(self.posted.insert(buffer));
        }
    }

    fn send(&mut self, place: u64) {
        let count = 1 + self.random.below(4);
        for _ in 0..count {
            let flags = match self.random.below(3) {
                0 => SendFlags::empty(),
                _ => SendFlags::SIGNALED,
            };
            self.send_one(place, flags);
        }
    }

    fn send_one(&mut self, place: u64, flags: SendFlags) {
        let connection = &mut self.connections[place as usize];
        let wr_id = name(place, connection.era, connection.sent);
        let posted = connection.pair.near.post(|batch| {
            batch.wr(wr_id, flags).send().inline_data(&wr_id.to_ne_bytes());
        });
        // The send queue may be full.
        if posted.is_ok() {
            connection.sent += 1;
            connection.outstanding.push_back(wr_id);
        }
    }

    fn poll(&mut self, most: usize) -> usize {
        let mut found = Vec::new();
        let polled = self.bed.cq.poll(most, |wc| {
            let receive = wc.opcode() == CompletionOpcode::Receive;
            found.push((receive, wc.wr_id(), wc.status().is_ok()));
        });
        assert_eq!(polled, Ok(found.len()));
        self.counts[0] += found.len();
        for (receive, wr_id, good) in found {
            if !receive {
                self.sent(wr_id);
                continue;
            }
            assert!(good && self.posted.remove(&wr_id), "{wr_id} is not with the device");
            let mut bytes = [0; 8];
            self.memory.read_at(wr_id as usize * MESSAGE, &mut bytes).unwrap();
            let message = u64::from_ne_bytes(bytes);
            let place = (message >> 40) - 1;
            let connection = &mut self.connections[place as usize];
            assert_eq!(message, name(place, connection.era, connection.received));
            connection.received += 1;
            self.free.push(wr_id);
        }
        self.reclaim();
        polled.unwrap()
    }

    /// Notes that a send has completed, and with it all sends before it.
    fn sent(&mut self, wr_id: u64) {
        let connection = &mut self.connections[(wr_id >> 40) as usize - 1];
        let at = connection.outstanding.iter().position(|other| *other == wr_id);
        let at = at.unwrap_or_else(|| panic!("send {wr_id:#x} is not outstanding"));
        connection.outstanding.drain(..=at);
    }

    /// Takes back the buffers of receives that were discarded, which polls do not return.
    fn reclaim(&mut self) {
        for buffer in self.srq.take_discarded() {
            assert!(self.posted.remove(&buffer), "{buffer} is not with the device");
            self.free.push(buffer);
            self.counts[1] += 1;
        }
        assert_eq!(self.srq.in_flight() as usize, self.posted.len());
    }

    /// Resets both ends, and connects them again.
    fn reset(&mut self, place: u64) {
        for far in [false, true] {
            self.delay();
            self.connections[place as usize].end(far).reset().unwrap();
        }
        self.run();
        match self.random.below(4) {
            0 => while self.poll(7) != 0 {},
            way => {
                if way == 1 {
                    self.bed.cq.hand_over().unwrap();
                }
                if way != 1 || self.random.below(2) == 0 {
                    for far in [false, true] {
                        let end = self.connections[place as usize].end(far);
                        end.purge(&mut self.bed.cq).unwrap();
                    }
                }
            }
        }
        self.reclaim();
        let connection = &mut self.connections[place as usize];
        connection.pair.connect();
        connection.again();
    }

    /// Puts a new connection in place of this one, and destroys both ends of the former one.
    fn replace(&mut self, place: u64) {
        if self.random.below(3) == 0 {
            self.bed.cq.hand_over().unwrap();
        }
        let pair = self.bed.pair(Some(&self.srq));
        let connection = &mut self.connections[place as usize];
        let fresh = Connection::new(pair, connection.era + 1);
        let former = std::mem::replace(connection, fresh);
        let Pair { near, far, .. } = former.pair;
        self.delay();
        drop(far);
        self.delay();
        let left = near.destroy().unwrap();
        assert!(left.iter().map(|one| one.wr_id).eq(former.outstanding), "{left:?}");
    }

    fn turn(&mut self) {
        let place = self.random.below(CONNECTIONS);
        match self.random.below(24) {
            0..6 => self.run(),
            6..11 => self.post(),
            11..16 => self.send(place),
            16..20 => {
                let most = 1 + self.random.below(12) as usize;
                self.poll(most);
            }
            20 => {
                // From here on the requests of this end are flushed.
                self.delay();
                let far = self.random.below(2) == 0;
                let _ = self.connections[place as usize].end(far).to_error();
            }
            21 => drop(self.bed.cq.hand_over().unwrap()),
            22 => self.reset(place),
            _ => self.replace(place),
        }
    }

    /// Checks that the device still has each receive that was posted and did not complete: with all
    /// buffers posted, it must receive one message for each buffer.
    fn end(&mut self) {
        for place in 0..CONNECTIONS {
            self.replace(place);
        }
        while self.poll(64) != 0 {}
        while !self.free.is_empty() {
            self.post();
        }
        for _ in 0..BUFFERS {
            self.bed.simulator.run_until_idle();
            while self.poll(64) != 0 {}
            self.send_one(0, SendFlags::SIGNALED);
        }
        self.bed.simulator.run_until_idle();
        while self.poll(64) != 0 {}
        assert_eq!(self.connections[0].received, BUFFERS, "the device lost some");
        assert_eq!((self.srq.in_flight(), self.connections[0].outstanding.len()), (0, 0));
    }
}

impl Connection {
    fn new(pair: Pair, era: u64) -> Self {
        Self { pair, era, sent: 0, received: 0, outstanding: VecDeque::new() }
    }

    fn again(&mut self) {
        (self.era, self.sent, self.received) = (self.era + 1, 0, 0);
        self.outstanding.clear();
    }

    fn end(&mut self, far: bool) -> &mut QueuePair<crate::transport::Rc> {
        if far { &mut self.pair.far } else { &mut self.pair.near }
    }
}

fn one(seed: u64) -> [usize; 2] {
    let mut world = World::new(seed);
    for _ in 0..120 {
        world.turn();
    }
    world.end();
    assert_eq!(world.bed.simulator.violations(), []);
    world.counts
}

#[test]
fn connections_that_end_at_any_time_lose_no_buffer_and_take_no_completion_of_another() {
    with_seeds(one);
}
