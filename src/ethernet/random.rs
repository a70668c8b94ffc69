//! Random programs of packet queues, on devices that complete requests at random times.
//!
//! A device completes late: between any two calls of the kernel, between two polls, and between a
//! poll and a look at the completion queue, while queues are restarted and destroyed. Most of its
//! completions are plausible. A few are not: then the queue fails, and the program makes another
//! one.

use super::striding::tests::Completer;
use super::*;
use crate::Context;
use crate::cq::CqInner;
use crate::qp::Outstanding;
use crate::testing::{stepping, with_steps};
use mlx5_prm::cqe::{Cqe, CqeOpcode};
use mlx5_sim::engine::QpState;
use mlx5_sim::{PortConfig, SimConfig, Simulator};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use zerocopy::IntoBytes;

/// Number of seeds that `cargo test` tries, unless `PACKET_SEEDS` sets it.
const SEEDS: u64 = 200;
/// Number of calls of a program.
const ROUNDS: u32 = 60;
/// Length of a packet.
const LENGTH: usize = 60;
/// Strides of a receive, of 64 bytes each.
const STRIDES: u32 = 8;

/// Numbers from a seed (xorshift64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }
}

/// A device that completes the requests of a queue by itself.
struct Device {
    simulator: Simulator,
    requests: Outstanding,
    recv_cq: Weak<CqInner>,
    cqns: [u32; 2],
    /// CQEs without counters: of a receive and a send, each successful and failed.
    entries: [[Cqe; 2]; 2],
    /// Number of CQEs that were written to the completion queue of the receives.
    received: u32,
    random: Random,
}

impl Device {
    fn new<M: Mode>(simulator: &Simulator, queue: &EthernetQueue<M>, random: &mut Random) -> Self {
        let engine = simulator.fabric().lock();
        let opcodes = [
            [CqeOpcode::ResponderSend, CqeOpcode::ResponderError],
            [CqeOpcode::Requester, CqeOpcode::RequesterError],
        ];
        let number = queue.qp.qp_num();
        let entry = |opcode| engine.device(0).completion(number, opcode, 0, 0);
        Self {
            simulator: simulator.clone(),
            requests: queue.qp.outstanding(),
            recv_cq: Arc::downgrade(&queue.recv_cq.inner),
            cqns: [queue.recv_cq.cqn(), queue.send_cq.cqn()],
            entries: opcodes.map(|kinds| kinds.map(entry)),
            received: 0,
            random: Random(random.0 ^ 0x5555_5555_5555),
        }
    }

    /// Completes the next receive, or the sends up to a random one.
    fn complete(&mut self, sends: bool) {
        let (Some([received, sent]), Some(cq)) = (self.requests.posted(), self.recv_cq.upgrade())
        else {
            return;
        };
        let requests = self.requests.requests();
        let left = requests.iter().filter(|one| one.receive != sends).count() as u64;
        let waiting = u64::from(self.received.wrapping_sub(cq.published()));
        let truly = !self.random.one_in(64);
        let counter = if sends {
            // Each has one block.
            sent.wrapping_sub(left as u16).wrapping_add(self.random.below(left.max(1)) as u16)
        } else {
            received.wrapping_sub(left as u16).wrapping_add(waiting as u16)
        };
        let exists = if sends { left != 0 } else { waiting < left };
        if truly && !exists {
            return;
        }
        let counter = if truly { counter } else { self.random.below(64) as u16 };
        let fails = self.random.one_in(8);
        let mut entry = self.entries[usize::from(sends)][usize::from(fails)];
        entry.wqe_counter.set(counter);
        // Some are longer than a buffer.
        entry.byte_count.set(if self.random.one_in(16) { 1 << 16 } else { LENGTH as u32 });
        let bytes = entry.as_bytes().try_into().unwrap();
        let cqn = self.cqns[usize::from(sends)];
        let written =
            self.simulator.fabric().lock().device_mut(0).inject_completion(cqn, bytes, &[]);
        self.received += u32::from(written && !sends);
    }

    /// Called at each step of the driver: acts once in `often` times.
    fn step(&mut self, often: u64) {
        while self.random.one_in(often) {
            let sends = self.random.one_in(3);
            self.complete(sends);
        }
    }
}

/// A queue, its device, and whether it still works.
struct Used<M: Mode> {
    queue: EthernetQueue<M>,
    device: Rc<RefCell<Device>>,
    failed: bool,
}

impl<M: Mode> Used<M> {
    fn new(world: &mut World, queue: EthernetQueue<M>) -> Self {
        let device = Device::new(&world.simulator, &queue, &mut world.random);
        Self { queue, device: Rc::new(RefCell::new(device)), failed: false }
    }

    /// Runs `work` while the device acts at its steps.
    fn with_device<R>(self, often: u64, work: impl FnOnce(EthernetQueue<M>) -> R) -> R {
        let Self { queue, device, .. } = self;
        with_steps(move || device.borrow_mut().step(often), || work(queue))
    }

    /// The buffers that the device may write packets to.
    fn with_the_device(&self) -> Vec<usize> {
        let requests = self.device.borrow().requests.requests();
        requests.iter().filter(|one| one.receive).map(|one| one.wr_id as usize).collect()
    }

    fn restart(&mut self, random: &mut Random) {
        let (device, often) = (Rc::clone(&self.device), 2 + random.below(10));
        let act = move || device.borrow_mut().step(often);
        self.failed = with_steps(act, || self.queue.restart()).is_err();
    }
}

/// A frame that the program has, filled with a byte of its own.
struct Held {
    frame: Frame,
    byte: u8,
}

struct World {
    simulator: Simulator,
    context: Context,
    random: Random,
    held: Vec<Held>,
}

impl World {
    fn new(seed: u64) -> Self {
        let config = SimConfig::new().ports([PortConfig::ROCE]).raw_packets(true).step(true);
        let simulator = Simulator::new(config);
        let kernel = stepping(simulator.kernel());
        let context = crate::devices_on(kernel).unwrap().remove(0).open().unwrap();
        let random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        Self { simulator, context, random, held: Vec::new() }
    }

    fn single<M: Mode>(&mut self, beside: Option<&EthernetQueue<M>>) -> Used<Single> {
        let builder = self.context.create_ethernet_queue(1).receives(4).frames(4).sends(8);
        let builder = builder.burst(8).multi_packet(false);
        let builder = match beside {
            Some(other) => builder.beside(other),
            None => builder,
        };
        let queue = builder.build().unwrap();
        Used::new(self, queue)
    }

    fn striding(&mut self, beside: &EthernetQueue) -> Used<Striding> {
        let builder = self.context.create_ethernet_queue(1).receives(16).frames(2).sends(8);
        let builder = builder.burst(8).multi_packet(false).beside(beside);
        let queue = builder.striding(64, STRIDES).spares(1).build().unwrap();
        Used::new(self, queue)
    }

    /// Takes a frame, whose memory must have no other owner.
    fn hold(&mut self, mut frame: Frame) {
        frame.resize(LENGTH);
        let byte = self.random.below(200) as u8;
        frame.iter_mut().for_each(|place| *place = byte);
        self.held.push(Held { frame, byte });
    }

    /// Checks that every frame is as the program left it, and that its memory has no other owner.
    fn check(&self, with_devices: &[usize]) {
        let mut places = BTreeSet::new();
        for Held { frame, byte } in &self.held {
            let place = frame.as_ptr().addr();
            assert!(places.insert(place), "two frames at {place:#x}");
            assert!(!with_devices.contains(&place), "the device has the frame at {place:#x}");
            assert!(frame.iter().all(|one| one == byte), "the frame at {place:#x} was written");
        }
        let distinct: BTreeSet<_> = with_devices.iter().collect();
        assert_eq!(distinct.len(), with_devices.len(), "a buffer was posted twice");
    }

    /// Takes a burst of packets, writes to each, and keeps, sends, drops or leaves it.
    fn receive<M: Mode>(&mut self, used: &mut Used<M>) {
        let Self { random, held, .. } = self;
        let places: BTreeSet<_> = held.iter().map(|held| held.frame.as_ptr().addr()).collect();
        let mut kept = Vec::new();
        let received = used.queue.receive(|mut packets| {
            let most = random.below(9);
            for _ in 0..most {
                let Some(mut packet) = packets.next() else { break };
                let place = packet.as_ptr().addr();
                assert!(!places.contains(&place), "a packet in the frame at {place:#x}");
                assert!(kept.iter().all(|frame: &Frame| frame.as_ptr().addr() != place));
                packet.iter_mut().for_each(|byte| *byte = 0xee);
                match random.below(8) {
                    0..3 => kept.push(packet.keep()),
                    3..5 => packet.send(),
                    // Its buffer is lost.
                    5 if random.one_in(32) => std::mem::forget(packet),
                    _ => drop(packet),
                }
            }
            if random.one_in(4) {
                std::mem::forget(packets);
            }
        });
        used.failed |= received.is_err();
        kept.into_iter().for_each(|frame| self.hold(frame));
    }

    /// Sends some frames of any queue.
    fn send<M: Mode>(&mut self, used: &mut Used<M>) {
        let mut frames = Vec::new();
        for _ in 0..self.random.below(4) {
            if !self.held.is_empty() {
                let which = self.random.below(self.held.len() as u64) as usize;
                frames.push(self.held.swap_remove(which).frame);
            }
        }
        used.failed |= used.queue.send(frames).is_err();
    }

    /// Calls a random function of a queue. `packets` makes the device complete some packets.
    fn call<M: Mode>(&mut self, used: &mut Used<M>, packets: impl FnOnce(&mut Self, &mut Used<M>)) {
        match self.random.below(10) {
            0..2 => packets(self, used),
            2..5 => self.receive(used),
            5 => self.send(used),
            6 => {
                if let Some(frame) = used.queue.frame() {
                    self.hold(frame);
                }
            }
            7 => {
                (0..self.random.below(8)).for_each(|_| {
                    self.simulator.step();
                });
                used.failed |= used.queue.reap().is_err();
            }
            8 => {
                let left = self.random.below(1 + self.held.len() as u64) as usize;
                self.held.truncate(left);
            }
            _ => {
                if self.random.one_in(3) {
                    // The send queue fails unnoticed.
                    let mut engine = self.simulator.fabric().lock();
                    let number = used.queue.qp.qp_num();
                    engine.device_mut(0).set_queue_state(number, QpState::Error).unwrap();
                }
                used.restart(&mut self.random);
            }
        }
    }
}

/// Lets the device complete packets in the next strides. Returns how many receives after the first
/// one it has used up, if the queue still works.
fn complete_strides(world: &mut World, used: &mut Used<Striding>, device: &mut Completer) -> u32 {
    let (mut left, mut used_up) = (used.queue.receiver.work_queue.posted() * STRIDES, 0);
    left -= device.taken;
    for _ in 0..world.random.below(6) {
        let (first, room) = (device.taken as u16, STRIDES - device.taken);
        let count = (1 + world.random.below(2) as u32).min(room).min(left);
        let strides = (first, count, LENGTH as u32);
        if count == 0 || !device.try_complete(CqeOpcode::ResponderSend, strides, |_| {}) {
            break;
        }
        used_up += u32::from(count == room && device.request > 1);
        left -= count;
    }
    // All packets, so that as many strides are left as were not taken.
    let room = used.queue.burst;
    for _ in 0..room {
        world.receive(used);
    }
    let burst = used.queue.receive(|packets| packets.for_each(|packet| drop(packet)));
    used.failed |= burst.is_err();
    if used.failed { 0 } else { used_up }
}

/// Runs a program. Returns how often queues failed, how often they were made again, and how many
/// receives that packets share were used up after the first one of a queue.
fn run(seed: u64) -> [u32; 3] {
    let mut world = World::new(seed);
    let mut near = world.single::<Single>(None);
    let mut far = world.single(Some(&near.queue));
    let mut shared = world.striding(&near.queue);
    let (mut device, mut counts) = (Completer::new(&world.simulator, &shared.queue), [0; 3]);
    for _ in 0..ROUNDS {
        let complete_packets = |_: &mut World, used: &mut Used<Single>| {
            let mut device = used.device.borrow_mut();
            (0..device.random.below(6)).for_each(|_| device.complete(false));
        };
        let (which, before) = (world.random.below(3), [near.failed, far.failed, shared.failed]);
        match which {
            0 => world.call(&mut near, complete_packets),
            1 => world.call(&mut far, complete_packets),
            _ => world.call(&mut shared, |world, used| {
                counts[2] += complete_strides(world, used, &mut device);
            }),
        }
        let now = [near.failed, far.failed, shared.failed];
        counts[0] += u32::from(now != before);
        // A failed queue is replaced sooner or later, and its frames may be dropped with it.
        if world.random.one_in(if far.failed { 4 } else { 40 }) {
            let often = 2 + world.random.below(10);
            let old = std::mem::replace(&mut far, world.single(Some(&near.queue)));
            old.with_device(often, drop);
            counts[1] += 1;
        }
        if shared.failed && world.random.one_in(4) {
            let often = 2 + world.random.below(10);
            let old = std::mem::replace(&mut shared, world.striding(&near.queue));
            old.with_device(often, drop);
            device = Completer::new(&world.simulator, &shared.queue);
            counts[1] += 1;
        }
        if near.failed && world.random.one_in(4) {
            let often = 2 + world.random.below(10);
            let old = std::mem::replace(&mut near, world.single(Some(&far.queue)));
            old.with_device(often, drop);
            counts[1] += 1;
        }
        let with_devices = [near.with_the_device(), far.with_the_device()].concat();
        world.check(&with_devices);
    }
    near.with_device(4, drop);
    far.with_device(4, drop);
    shared.with_device(4, drop);
    world.check(&[]);
    counts
}

#[test]
fn no_buffer_has_two_owners_whatever_completes_while_queues_are_restarted_and_destroyed() {
    let number = |name: &str| {
        let value = std::env::var(name).ok()?;
        Some(value.parse().unwrap_or_else(|_| panic!("{name} is a number, not {value}")))
    };
    let seeds = match number("MLX5_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..1 + number("PACKET_SEEDS").unwrap_or(SEEDS),
    };
    let count = seeds.end - seeds.start;
    let mut counts = [0; 3];
    for seed in seeds {
        println!("MLX5_SEED={seed}");
        for (all, some) in counts.iter_mut().zip(run(seed)) {
            *all += some;
        }
    }
    println!("{counts:?}");
    assert!(count < SEEDS || counts.iter().all(|&some| u64::from(some) > count / 4), "{counts:?}");
}
