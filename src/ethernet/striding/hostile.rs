//! A device that does what the manual allows and drivers do not expect: packets that fail in the
//! middle of a receive or of a compressed run, fillers anywhere, gaps that are completed later,
//! queues that stop. It keeps writing wherever no completion has been written yet, also while the
//! program looks at packets. In some runs it writes one wrong completion: the queue must report
//! that from then on.

use super::*;
use crate::CqeCompression;
use crate::ethernet::{EthernetError, Frame, Packet};
use mlx5_cq::Corruption;
use mlx5_prm::cqe::{Cqe, CqeOpcode, ErrorCqe, Syndrome};
use mlx5_sim::{PortConfig, SimConfig, Simulator};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use zerocopy::IntoBytes;

/// Numbers from a seed (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, bound: u32) -> u32 {
        (self.next() % u64::from(bound)) as u32
    }

    fn one_in(&mut self, count: u32) -> bool {
        self.below(count) == 0
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u32) as usize]
    }
}

/// Errors that end one packet, and errors that stop a queue.
const ALONE: [u8; 5] = [
    Syndrome::LocalLength as u8,
    Syndrome::RemoteAborted as u8,
    Syndrome::RemoteAccess as u8,
    0,
    0x77,
];
const STOPS: [Syndrome; 3] =
    [Syndrome::LocalQpOperation, Syndrome::LocalProtection, Syndrome::WorkRequestFlushed];

/// A packet that the device has completed: its place, and the number that determines its bytes.
struct Packed {
    start: usize,
    length: usize,
    number: u8,
}

/// The change that a wrong completion makes to a correct one.
type Change = Box<dyn FnOnce(&mut Cqe)>;

/// The bytes of a packet.
fn bytes(number: u8, length: usize) -> impl Iterator<Item = u8> {
    (0..length).map(move |at| number.wrapping_mul(31).wrapping_add(at as u8))
}

/// The device, with its view of the queue: the ring and the record in memory.
struct Device {
    simulator: Simulator,
    rqn: u32,
    cqn: u32,
    ring: NonNull<u8>,
    record: NonNull<u8>,
    stride_of_ring: usize,
    mask: u16,
    stride: usize,
    strides: u32,
    /// The request that it fills, how many of its strides completions took, and which of them have
    /// packets.
    request: u16,
    taken: u32,
    packets: Vec<bool>,
    /// The stride after the last packet.
    after: u32,
    /// The packets that the program must find, in order, and the number of completions since it
    /// last had found all.
    expected: VecDeque<Packed>,
    completions: u32,
    number: u8,
    good: u64,
    bad: u64,
    lied: bool,
    stopped: bool,
    /// Maximum number of completions before everything was found.
    most: u32,
}

impl Device {
    fn new(simulator: &Simulator, queue: &EthernetQueue<Striding>, strides: u32) -> Self {
        let parts = queue.receiver.work_queue.raw_parts().unwrap();
        Self {
            simulator: simulator.clone(),
            rqn: queue.receiver.work_queue.wq_num(),
            cqn: queue.recv_cq.cqn(),
            ring: parts.requests.start,
            record: parts.record,
            stride_of_ring: parts.requests.stride as usize,
            mask: parts.requests.entries as u16 - 1,
            stride: 1 << queue.store.mode.log_stride,
            strides,
            request: 0,
            taken: 0,
            packets: vec![false; strides as usize],
            after: 0,
            expected: VecDeque::new(),
            completions: 0,
            number: 0,
            good: 0,
            bad: 0,
            lied: false,
            stopped: false,
            most: queue.recv_cq.capacity() / 2,
        }
    }

    /// The number of requests that were posted, as the record says.
    fn posted(&self) -> u16 {
        // SAFETY: the record is eight bytes, and lives as long as the queue.
        u32::from_be(unsafe { self.record.cast::<u32>().read_volatile() }) as u16
    }

    /// The address in a request: after the segment that leads to the next one, a length and a key.
    fn memory(&self, request: u16) -> usize {
        let at = usize::from(request & self.mask) * self.stride_of_ring + 16 + 8;
        // SAFETY: the entry is in the ring, which lives as long as the queue.
        let address = unsafe { self.ring.byte_add(at).cast::<u64>().read_volatile() };
        u64::from_be(address) as usize
    }

    fn write(&self, start: usize, bytes: impl Iterator<Item = u8>) {
        for (at, byte) in bytes.enumerate() {
            let at = std::ptr::with_exposed_provenance_mut::<u8>(start + at);
            // SAFETY: the memory is that of a receive that was posted to this device. No slice of
            // it exists: the test checks exactly this.
            unsafe { at.write_volatile(byte) };
        }
    }

    /// Writes wherever it still may.
    fn scribble(&self, random: &mut Random) {
        let byte = random.next() as u8;
        let mut request = self.request;
        while request != self.posted() {
            let memory = self.memory(request);
            for stride in 0..self.strides as usize {
                if request == self.request && self.packets[stride] {
                    continue;
                }
                // The first and the last bytes are enough.
                for at in [0, 1, 13, 14, self.stride - 1] {
                    self.write(memory + stride * self.stride + at, std::iter::once(byte));
                }
            }
            request = request.wrapping_add(1);
        }
    }

    /// Completes strides; `change` may alter the completion.
    fn complete(
        &mut self,
        random: &mut Random,
        first: u16,
        byte_count: u32,
        change: impl FnOnce(&mut Cqe),
    ) {
        let mut engine = self.simulator.fabric().lock();
        let device = engine.device_mut(0);
        let mut entry = device.completion(self.rqn, CqeOpcode::ResponderSend, 0, first);
        entry.byte_count.set(byte_count);
        // The counter of the request, or only its index.
        let request = if random.one_in(4) { self.request & self.mask } else { self.request };
        entry.wqe_id.set(request);
        change(&mut entry);
        let bytes = entry.as_bytes().try_into().unwrap();
        assert!(device.inject_completion(self.cqn, bytes, &[]));
        self.completions += 1;
    }

    /// Counts strides that were completed.
    fn count(&mut self, count: u32) {
        self.taken += count;
        if self.taken == self.strides {
            self.request = self.request.wrapping_add(1);
            (self.taken, self.after) = (0, 0);
            self.packets.fill(false);
        }
    }

    /// Turns a completion into an error.
    fn fail(entry: &mut Cqe, syndrome: u8) {
        let mut error: ErrorCqe = zerocopy::transmute!(*entry);
        error.syndrome = syndrome;
        error.op_own = (CqeOpcode::ResponderError as u8) << 4;
        *entry = zerocopy::transmute!(error);
    }

    /// Completes a packet, after the last one or some strides later. One that is longer than its
    /// strides does not count.
    fn packet(&mut self, random: &mut Random) {
        let most = (self.strides - self.taken).min(self.strides - self.after);
        if most == 0 {
            return;
        }
        let count = 1 + random.below(most.min(4));
        let free = self.strides - self.after - count;
        let gap = if random.one_in(12) { random.below(free.min(3) + 1) } else { 0 };
        let (first, room) = (self.after + gap, count as usize * self.stride);
        let start = self.memory(self.request) + first as usize * self.stride;
        let length = match random.below(16) {
            0 => room + 1 + random.below(300) as usize,
            1 => room,
            _ => 14 + random.below(room as u32 - 13) as usize,
        };
        self.number = self.number.wrapping_add(1);
        if length <= room {
            self.write(start, bytes(self.number, length));
            self.expected.push_back(Packed { start, length, number: self.number });
            self.good += 1;
        } else {
            self.bad += 1;
        }
        self.complete(random, first as u16, count << STRIDES_SHIFT | length as u32, |_| {});
        self.packets[first as usize..][..count as usize].fill(true);
        self.after = first + count;
        self.count(count);
    }

    /// Completes skipped strides, at any reported position.
    fn filler(&mut self, random: &mut Random) {
        let count = 1 + random.below(self.strides - self.taken);
        let first = random.pick(&[self.taken as u16, 0, self.strides as u16, u16::MAX]);
        self.complete(random, first, FILLER | count << STRIDES_SHIFT, |_| {});
        self.count(count);
    }

    /// Completes a packet that failed: with some strides, or none.
    fn failure(&mut self, random: &mut Random) {
        let count = random.below((self.strides - self.taken).min(3) + 1);
        let (first, syndrome) = (random.next() as u16, random.pick(&ALONE));
        self.complete(random, first, count << STRIDES_SHIFT, |entry| Self::fail(entry, syndrome));
        self.bad += 1;
        self.count(count);
    }

    /// The queue stops. The device flushes the posted requests, with or without the one that
    /// failed. No known driver relies on which requests the flushes name.
    fn stop(&mut self, random: &mut Random) {
        let mut syndrome = random.pick(&STOPS);
        let any = random.next() as u16;
        let named = random.pick(&[None, Some(0), Some(self.request), Some(any)]);
        while self.request != self.posted() {
            let request = named.filter(|_| self.stopped);
            self.complete(random, 0, 0, |entry| {
                request.into_iter().for_each(|request| entry.wqe_id.set(request));
                Self::fail(entry, syndrome as u8);
            });
            self.bad += 1;
            self.count(self.strides - self.taken);
            (self.stopped, syndrome) = (true, Syndrome::WorkRequestFlushed);
        }
        if random.one_in(2) {
            self.complete(random, 0, 0, |entry| Self::fail(entry, syndrome as u8));
            self.bad += 1;
        }
    }

    /// Writes a completion that no correct device writes.
    fn lie(&mut self, random: &mut Random) {
        let (taken, after, left) = (self.taken, self.after, self.strides - self.taken);
        let other = self.request.wrapping_add(1 + random.below(u32::from(self.mask)) as u16);
        let (mut first, mut count) = (after as u16, 1);
        let (mut filler, mut changed): (u32, Change) = (0, Box::new(|_| {}));
        match random.below(8) {
            0 => changed = Box::new(move |entry: &mut Cqe| entry.wqe_id.set(other)),
            1 => {
                (filler, changed) =
                    (FILLER, Box::new(move |entry: &mut Cqe| entry.wqe_id.set(other)))
            }
            2 => {
                let syndrome = random.pick(&[1, 2, 4, 5, 0x77]);
                changed = Box::new(move |entry: &mut Cqe| {
                    entry.wqe_id.set(other);
                    Self::fail(entry, syndrome);
                });
            }
            3 if after > 0 => first = random.below(after) as u16,
            4 => count = left + 1,
            5 => (filler, count) = (FILLER, left + 1),
            6 => (first, count) = (self.strides as u16, 1.min(self.strides - taken)),
            _ => count = 0,
        }
        self.complete(random, first, filler | count << STRIDES_SHIFT | 60, changed);
        self.lied = true;
    }

    /// Takes a random action, if a request is left.
    fn act(&mut self, random: &mut Random) {
        if self.lied || self.completions >= self.most || self.request == self.posted() {
            return;
        }
        if self.stopped {
            // Requests that were posted before the driver noticed.
            return self.stop(random);
        }
        match random.below(64) {
            0..44 => self.packet(random),
            44..52 => self.filler(random),
            52..62 => self.failure(random),
            62 if random.one_in(32) => self.stop(random),
            _ if random.one_in(48) => self.lie(random),
            _ => {}
        }
    }

    /// Writes the completions that it holds back to compress them.
    fn flush(&self) {
        self.simulator.fabric().lock().device_mut(0).flush_completions(self.cqn);
    }
}

/// Checks that a packet is the next one that the device completed, and that its bytes stay
/// unchanged while the device writes.
fn look(device: &mut Device, random: &mut Random, packet: &Packet<'_, Striding>) -> u8 {
    let Packed { start, length, number } =
        device.expected.pop_front().expect("a packet that was completed");
    assert_eq!((packet.as_ptr().addr(), packet.len()), (start, length));
    for _ in 0..2 {
        assert!(packet.iter().copied().eq(bytes(number, length)), "packet {number}");
        device.scribble(random);
    }
    number
}

/// A burst of a program that keeps, sends, drops and leaks packets, and panics. Returns whether
/// there were no more packets.
fn burst(
    queue: &mut EthernetQueue<Striding>,
    device: &mut Device,
    random: &mut Random,
    kept: &mut Vec<(u8, Frame)>,
) -> Result<bool, EthernetError> {
    let (way, most, mut count) = (random.below(8), random.below(24), 0);
    let mut each = |packet: Packet<'_, Striding>, device: &mut Device, random: &mut Random| {
        let number = look(device, random, &packet);
        count += 1;
        match random.below(8) {
            0 => kept.push((number, packet.keep())),
            1 | 2 => packet.send(),
            3 => {
                let length = random.below(packet.len() as u32 + 1);
                packet.send_resized(length as usize);
            }
            _ => drop(packet),
        }
        if way == 7 && count == most {
            resume_unwind(Box::new("a panic in a burst"));
        }
        if random.one_in(8) {
            device.act(random);
        }
    };
    let received = catch_unwind(AssertUnwindSafe(|| {
        queue.receive(|mut packets| {
            if way < 2 {
                packets.for_each(|packet| each(packet, device, random));
                return false;
            }
            for _ in 0..most {
                let Some(packet) = packets.next() else { return true };
                each(packet, device, random);
                device.scribble(random);
            }
            if way == 6 {
                let _leaked = std::mem::ManuallyDrop::new(packets);
            }
            false
        })
    }));
    received.unwrap_or(Ok(false))
}

/// Runs one queue. Returns whether the device wrote a wrong completion.
fn run(seed: u64) -> bool {
    let mut random = Random(seed);
    let random = &mut random;
    let config = SimConfig::new().ports([PortConfig::ROCE]).raw_packets(true).step(true);
    let simulator = Simulator::new(config);
    let context = crate::devices_on(simulator.kernel()).unwrap().remove(0).open().unwrap();
    let (stride, strides) = random.pick(&[(64, 8), (64, 32), (128, 16)]);
    let builder = context.create_ethernet_queue(1).receives(strides * (2 + random.below(3)));
    let builder = builder.frames(1).sends(16).burst(random.pick(&[1, 5, 64]));
    let formats = [CqeCompression::Hash, CqeCompression::Checksum, CqeCompression::ChecksumStride];
    let builder = match random.below(4) {
        3 => builder,
        format => builder.compression(formats[format as usize]),
    };
    let builder = builder.striding(stride, strides).spares(random.below(3));
    let mut queue = builder.build().unwrap();
    let mut device = Device::new(&simulator, &queue, strides);
    let (mut kept, mut error) = (Vec::new(), None);
    for _ in 0..120 {
        for _ in 0..random.below(24) {
            device.act(random);
        }
        let flushed = !random.one_in(4);
        if flushed {
            device.flush();
        }
        match burst(&mut queue, &mut device, random, &mut kept) {
            Ok(empty) if empty && flushed => device.completions = 0,
            Ok(_) => {}
            Err(EthernetError::Stopped) => assert!(device.stopped),
            Err(failed) => {
                error = Some(failed);
                break;
            }
        }
        device.scribble(random);
        for (number, frame) in &kept {
            assert!(frame.iter().copied().eq(bytes(*number, frame.len())), "a frame that is kept");
        }
        if random.one_in(2) {
            kept.truncate(random.below(1 + kept.len() as u32) as usize);
        }
        (0..random.below(6)).for_each(|_| {
            simulator.step();
        });
    }
    // The rest of the packets arrives, and then nothing, or the wrong completion.
    device.flush();
    while error.is_none() && (device.lied || queue.recv_cq.is_ready()) {
        let received = queue.receive(|packets| {
            packets.for_each(|packet| {
                look(&mut device, random, &packet);
            });
        });
        error = received.err().filter(|error| *error != EthernetError::Stopped);
    }
    assert_eq!(error.is_some(), device.lied, "{error:?}");
    assert!(device.expected.is_empty(), "{} packets are missing, {error:?}", device.expected.len());
    let counts = queue.counts();
    assert_eq!((counts.received, counts.bad), (device.good, device.bad), "received and bad");
    assert_eq!(error.is_some(), device.lied, "{error:?}");
    if let Some(error) = error {
        let is_corrupt = matches!(
            error,
            EthernetError::Poll(crate::PollError::Corrupt(Corruption::Counter { .. }))
        );
        assert!(is_corrupt, "{error:?}");
        assert_eq!(queue.receive(|_| ()), Err(error), "it stays");
        return true;
    }
    kept.clear();
    let stopped = if device.stopped { Err(EthernetError::Stopped) } else { Ok(()) };
    // If the last burst was leaked, this call posts what it was to send.
    assert_eq!(queue.receive(|_| ()), stopped);
    simulator.run_until_idle();
    queue.reap().unwrap();
    assert_eq!(queue.receive(|_| ()), stopped);
    queue.store.take_returned();
    let whole = queue.receiver.work_queue.posted() as usize + queue.store.mode.ready.len();
    assert_eq!((queue.sending(), whole), (0, queue.store.mode.receives.len()));
    assert_eq!(simulator.violations(), []);
    false
}

/// With `MLX5_SEED` it runs only that seed, with `PACKET_SEEDS` that number of seeds. It prints the
/// seed that fails.
#[test]
fn no_packet_lies_where_the_device_may_still_write() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let seeds = match number("MLX5_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..1 + number("PACKET_SEEDS").unwrap_or(200),
    };
    let (mut lies, all) = (0, seeds.end - seeds.start);
    for seed in seeds {
        let run = catch_unwind(|| run(seed));
        lies += u64::from(run.unwrap_or_else(|panic| {
            println!("MLX5_SEED={seed} repeats it");
            resume_unwind(panic)
        }));
    }
    println!("{all} devices, of which {lies} lied");
    assert!(all < 100 || (all / 10..all).contains(&lies), "{lies} of {all} lied");
}
