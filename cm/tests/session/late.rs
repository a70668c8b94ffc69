//! Sessions on a slow device: it works a little before and after each call of the driver into the
//! kernel, so that a request may complete at every step of stopping and of resetting. Three queue
//! pairs use one shared receive queue, whose receives complete in another order than they were
//! posted.
//!
//! The model is that of `model.rs`: a request is done once, or reported once as not done. After
//! that nothing completes of it. A message arrives at most once, whole, in one buffer.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex};

use mlx5::transport::Rc;
use mlx5::{
    Access, CompletionQueue, ConnectOptions, Errno, Kernel, LocalPort, MemoryRegion, NotDone, Psn,
    QueuePair, SendFlags, SharedReceiveQueue, Syndrome, WhyNotDone, WorkCompletion,
};
use mlx5_cm::{ErrorKind, Session, SessionState};
use mlx5_sim::{Fault, PortConfig, SimConfig, Simulator};
use mlx5_uapi::ioctl::IoctlHeader;
use mlx5_uapi::{AllocateError, CmFile, DeviceFile, EventFile, Mapping, MemoryRequest};

use crate::random::Random;

const PAIRS: usize = 3;
const ROUNDS: u64 = 6;
/// Requests of a queue pair in a round.
const REQUESTS: u64 = 6;
/// The longest message: several packets.
const LONGEST: usize = 12 << 10;
const RECEIVES: u64 = 60;
/// Marks receives.
const RECEIVE: u64 = 1 << 32;
/// Units of work within which a message arrives, if there is a receive for it.
const DRAINING: u32 = 1000;
/// Maximum number of calls of `stop`, with work of the device in between.
const STOPS: u32 = 10_000;

/// A device that works when its driver calls the kernel.
struct Late {
    simulator: Simulator,
    random: Mutex<Random>,
}

impl Late {
    /// Works a little, or not at all.
    fn work(&self) {
        let units = self.random.lock().unwrap().below(8).saturating_sub(3);
        (0..units).for_each(|_| _ = self.simulator.step());
    }
}

struct LateKernel {
    kernel: Arc<dyn Kernel>,
    late: Arc<Late>,
}

impl Kernel for LateKernel {
    fn sysfs_list(&self, path: &str) -> Result<Vec<String>, Errno> {
        self.kernel.sysfs_list(path)
    }

    fn sysfs_read(&self, path: &str) -> Result<String, Errno> {
        self.kernel.sysfs_read(path)
    }

    fn sysfs_link(&self, path: &str) -> Result<String, Errno> {
        self.kernel.sysfs_link(path)
    }

    fn open(&self, node: &str, dev: (u32, u32)) -> Result<Arc<dyn DeviceFile>, Errno> {
        let file = self.kernel.open(node, dev)?;
        Ok(Arc::new(LateFile { file, late: Arc::clone(&self.late) }))
    }

    fn uevents(&self) -> Result<Box<dyn EventFile>, Errno> {
        self.kernel.uevents()
    }

    fn rdma_cm(&self) -> Result<Arc<dyn CmFile>, Errno> {
        self.kernel.rdma_cm()
    }
}

struct LateFile {
    file: Arc<dyn DeviceFile>,
    late: Arc<Late>,
}

impl DeviceFile for LateFile {
    unsafe fn ioctl(&self, header: *mut IoctlHeader) -> Result<(), Errno> {
        self.late.work();
        // SAFETY: the caller promises a valid `header` and attributes; they pass on unchanged.
        let answer = unsafe { self.file.ioctl(header) };
        self.late.work();
        answer
    }

    fn map(&self, offset: u64, len: usize, access: mlx5_uapi::Access) -> Result<Mapping, Errno> {
        self.file.map(offset, len, access)
    }

    fn allocate(&self, request: &MemoryRequest) -> Result<Mapping, AllocateError> {
        self.file.allocate(request)
    }

    unsafe fn event_file(&self, fd: RawFd) -> Result<Box<dyn EventFile>, Errno> {
        // SAFETY: the caller promises that an ioctl of this file, which passed on too, created
        // `fd`.
        unsafe { self.file.event_file(fd) }
    }
}

/// Counts of events: a run without faults proves nothing.
#[derive(Clone, Copy, Default, Debug)]
struct Tally {
    done: usize,
    /// Reported as flushed, as failed, as unknown.
    why: [usize; 3],
    messages: usize,
    /// Receives that completed before one that was posted earlier.
    overtaking: usize,
    /// Calls of `stop` that failed because something had not completed yet.
    withheld: usize,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.done += other.done;
        self.messages += other.messages;
        self.overtaking += other.overtaking;
        self.withheld += other.withheld;
        for (sum, one) in self.why.iter_mut().zip(other.why) {
            *sum += one;
        }
    }

    fn is_conclusive(&self, runs: usize) -> bool {
        self.done > runs
            && self.messages > runs
            && self.overtaking > runs / 8
            && self.withheld > runs / 8
            && self.why.iter().all(|count| *count > 0)
    }
}

/// The model's knowledge.
struct Model {
    seed: u64,
    srq: SharedReceiveQueue,
    inbox: MemoryRegion,
    /// The queue pair of each request, by its identifier.
    posted: BTreeMap<u64, u32>,
    done: BTreeSet<u64>,
    reported: BTreeSet<u64>,
    /// Lengths of messages that were sent, by their requests.
    sent: BTreeMap<u64, usize>,
    arrived: BTreeSet<u64>,
    /// Receives in the queue, and the order in which they were posted.
    receives: BTreeMap<u64, u64>,
    received: u64,
    last: u64,
    tally: Tally,
}

impl Model {
    fn post_receive(&mut self, number: u64) {
        let at = number as usize * LONGEST;
        let sge = self.inbox.sge(at..at + LONGEST).unwrap();
        self.srq.recv(RECEIVE | number, sge).unwrap();
        self.received += 1;
        assert!(self.receives.insert(number, self.received).is_none());
    }

    /// A completion that was polled, by `stop` of a queue pair or by hand. `stop` reports the
    /// requests of that queue pair which are not done.
    fn note(&mut self, wc: &WorkCompletion<'_>, stopping: Option<u32>) {
        let (seed, wr_id) = (self.seed, wc.wr_id());
        if wr_id & RECEIVE != 0 {
            return self.note_receive(wc, wr_id & !RECEIVE);
        }
        let of = self.posted.get(&wr_id);
        assert_eq!(of, Some(&wc.qp_num()), "MLX5_SEED={seed}: {wr_id:#x} was not posted there");
        assert!(
            !self.reported.contains(&wr_id),
            "MLX5_SEED={seed}: {wr_id:#x} was reported before"
        );
        match wc.status() {
            Ok(()) => {
                let first = self.done.insert(wr_id);
                assert!(first, "MLX5_SEED={seed}: {wr_id:#x} was done twice");
            }
            Err(_) if stopping == Some(wc.qp_num()) => {}
            Err(error) => {
                let (receive, why) = (false, WhyNotDone::Failed(error));
                self.report(NotDone { wr_id, receive, why });
            }
        }
    }

    fn note_receive(&mut self, wc: &WorkCompletion<'_>, number: u64) {
        let seed = self.seed;
        let order = self.receives.remove(&number);
        let order = order.unwrap_or_else(|| panic!("MLX5_SEED={seed}: receive {number} twice"));
        self.tally.overtaking += usize::from(order < self.last);
        self.last = order;
        if wc.is_success() {
            let length = wc.byte_len().unwrap() as usize;
            let mut bytes = vec![0; length];
            self.inbox.read_at(number as usize * LONGEST, &mut bytes).unwrap();
            let (words, _) = bytes.as_chunks::<8>();
            let message = u64::from_ne_bytes(words[0]);
            let sent = self.sent.get(&message);
            assert_eq!(sent, Some(&length), "MLX5_SEED={seed}: message {message:#x}");
            let whole = words.iter().all(|word| u64::from_ne_bytes(*word) == message);
            assert!(whole, "MLX5_SEED={seed}: message {message:#x} is mixed with another");
            let of = self.posted.get(&message);
            assert_eq!(of, Some(&wc.qp_num()), "MLX5_SEED={seed}: message {message:#x}");
            assert!(self.arrived.insert(message), "MLX5_SEED={seed}: {message:#x} came twice");
            self.tally.messages += 1;
        }
        self.post_receive(number);
    }

    fn report(&mut self, one: NotDone) {
        let (seed, wr_id) = (self.seed, one.wr_id);
        assert!(!one.receive, "MLX5_SEED={seed}: {one:?} is no queue pair's own");
        assert!(self.posted.contains_key(&wr_id), "MLX5_SEED={seed}: {one:?} was never posted");
        assert!(!self.done.contains(&wr_id), "MLX5_SEED={seed}: {one:?} was done");
        assert!(self.reported.insert(wr_id), "MLX5_SEED={seed}: {one:?} was reported twice");
        self.tally.why[match one.why {
            WhyNotDone::Failed(error) if error.is_flushed() => 0,
            WhyNotDone::Failed(_) => 1,
            _ => 2,
        }] += 1;
    }

    /// Checks that everything of a queue pair is accounted for, once.
    fn check(&self, qp_num: u32) {
        for (wr_id, _) in self.posted.iter().filter(|(_, of)| **of == qp_num) {
            let (done, reported) = (self.done.contains(wr_id), self.reported.contains(wr_id));
            let seed = self.seed;
            assert!(
                done != reported,
                "MLX5_SEED={seed}: {wr_id:#x}: done {done}, reported {reported}"
            );
        }
    }
}

/// The memory that requests read and write.
struct Memory {
    outbox: MemoryRegion,
    words: MemoryRegion,
}

/// Posts the requests of a round: messages, and additions to their own words.
fn post(
    qp: &mut QueuePair<Rc>,
    memory: &Memory,
    model: &mut Model,
    random: &mut Random,
    (pair, round): (usize, u64),
) {
    for number in 0..1 + random.below(REQUESTS) {
        let slot = pair * REQUESTS as usize + number as usize;
        let wr_id = (1 + round) << 16 | slot as u64;
        let flags = SendFlags::SIGNALED;
        let posted = match random.below(3) {
            0 => {
                let at = wr_id_word(round, slot);
                let to = memory.words.remote(at..at + 8).unwrap();
                let sge = memory.outbox.sge(..8).unwrap();
                qp.post(|batch| {
                    batch.wr(wr_id, flags).atomic_fetch_add(to, 1).sge(sge);
                })
            }
            _ => {
                let length = 8 * (1 + random.below(LONGEST as u64 / 8) as usize);
                // The first words are for the results of atomic operations.
                let at = (1 + slot) * LONGEST;
                let bytes = wr_id.to_ne_bytes().repeat(length / 8);
                memory.outbox.write_at(at, &bytes).unwrap();
                let sge = memory.outbox.sge(at..at + length).unwrap();
                model.sent.insert(wr_id, length);
                qp.post(|batch| {
                    batch.wr(wr_id, flags).send().sge(sge);
                })
            }
        };
        // In the error state it may be refused.
        if posted.is_ok() {
            model.posted.insert(wr_id, qp.qp_num());
        }
    }
}

/// The place of an addition's word.
fn wr_id_word(round: u64, slot: usize) -> usize {
    8 * (round as usize * PAIRS * REQUESTS as usize + slot)
}

fn poll(cq: &mut CompletionQueue, model: &mut Model) {
    cq.poll(64, |wc| model.note(&wc, None)).unwrap();
}

/// Takes all receives that the queue still has, with one message each, and returns their numbers.
fn drain_receives(
    simulator: &Simulator,
    qp: &mut QueuePair<Rc>,
    cq: &mut CompletionQueue,
    memory: &Memory,
    model: &Model,
) -> BTreeSet<u64> {
    let mut left = BTreeSet::new();
    let seed = model.seed;
    let sge = memory.outbox.sge(..8).unwrap();
    loop {
        qp.post(|batch| batch.wr(0, SendFlags::SIGNALED).send().sge(sge)).unwrap();
        let (before, mut sent) = (left.len(), false);
        for _ in 0..DRAINING {
            simulator.step();
            let each = |wc: WorkCompletion<'_>| match wc.wr_id() {
                0 => sent |= wc.is_success(),
                receive => {
                    assert_eq!(receive & RECEIVE, RECEIVE, "MLX5_SEED={seed}: {receive:#x}");
                    assert!(
                        left.insert(receive & !RECEIVE),
                        "MLX5_SEED={seed}: {receive:#x} twice"
                    );
                }
            };
            cq.poll(64, each).unwrap();
            if sent && left.len() > before {
                break;
            }
        }
        if left.len() == before {
            // The peer is not ready: no receive is left.
            assert!(!sent, "MLX5_SEED={seed}: a message came and its receive did not complete");
            return left;
        }
    }
}

fn connect(qp: &mut QueuePair<Rc>, port: &LocalPort, seed: u64) {
    let (psn, options) = (Psn::wrapping(seed as u32), ConnectOptions::default());
    let own = qp.endpoint(port, psn, &options);
    qp.connect(port, psn, &own, &options).unwrap();
}

fn run(seed: u64) -> Tally {
    println!("MLX5_SEED={seed}");
    let mut random = Random(seed);
    let simulator = Simulator::new(SimConfig::new().step(true).ports([PortConfig::ROCE]));
    let late = Late { simulator: simulator.clone(), random: Mutex::new(Random(!seed)) };
    let kernel: Arc<dyn Kernel> =
        Arc::new(LateKernel { kernel: simulator.kernel(), late: Arc::new(late) });
    let context = mlx5::devices_on(kernel).unwrap().remove(0).open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let mut cq = context.create_cq(256).build().unwrap();
    let port = context.local_port(1, None).unwrap();
    let srq = pd.create_srq(RECEIVES as u32).build().unwrap();
    let slots = PAIRS * REQUESTS as usize;
    let memory = Memory {
        outbox: pd.allocate((1 + slots) * LONGEST).unwrap(),
        words: pd
            .memory(8 * slots * ROUNDS as usize)
            .access(Access::LOCAL_WRITE | Access::REMOTE_ATOMIC)
            .register()
            .unwrap(),
    };
    let mut qps: Vec<_> = (0..PAIRS)
        .map(|_| pd.create_qp::<Rc>(&cq, &cq).max_send_wr(16).srq(&srq).build().unwrap())
        .collect();
    let mut model = Model {
        seed,
        srq,
        inbox: pd.allocate(RECEIVES as usize * LONGEST).unwrap(),
        posted: BTreeMap::new(),
        done: BTreeSet::new(),
        reported: BTreeSet::new(),
        sent: BTreeMap::new(),
        arrived: BTreeSet::new(),
        receives: BTreeMap::new(),
        received: 0,
        last: 0,
        tally: Tally::default(),
    };
    (0..RECEIVES).for_each(|number| model.post_receive(number));
    for round in 0..ROUNDS {
        simulator.inject(0, Fault::ReorderReceives(random.below(4) as u32));
        qps.iter_mut().for_each(|qp| connect(qp, &port, seed));
        for (pair, qp) in qps.iter_mut().enumerate() {
            post(qp, &memory, &mut model, &mut random, (pair, round));
            (0..random.below(4)).for_each(|_| _ = simulator.step());
        }
        if random.below(3) == 0 {
            let qpn = Some(qps[random.below(PAIRS as u64) as usize].qp_num());
            let (syndrome, vendor) = (Syndrome::RemoteOperation, 0);
            simulator.inject(0, Fault::FailRequest { qpn, syndrome, vendor });
        }
        for _ in 0..random.below(6) {
            (0..random.below(20)).for_each(|_| _ = simulator.step());
            poll(&mut cq, &mut model);
        }
        // Stop one after the other, while the others continue.
        let mut stopped = Vec::new();
        for mut qp in qps.drain(..) {
            let qp_num = qp.qp_num();
            if random.below(3) == 0 {
                qp.to_error().unwrap();
            }
            let mut session = Session::new(qp).stop_timeout(std::time::Duration::ZERO);
            let at_once = random.below(3) == 0;
            let mut calls = 0;
            let not_done = loop {
                calls += 1;
                assert!(calls < STOPS, "MLX5_SEED={seed}: it never stops");
                let each = |wc: WorkCompletion<'_>| model.note(&wc, Some(qp_num));
                let stop = match at_once {
                    true => session.stop_now(&mut [&mut cq], each),
                    false => session.stop(&mut [&mut cq], each),
                };
                match stop {
                    Ok(not_done) => break not_done,
                    Err(failed) => {
                        assert_eq!(failed.error.kind(), ErrorKind::TimedOut, "MLX5_SEED={seed}");
                        assert_eq!(failed.not_done, [], "MLX5_SEED={seed}");
                        assert_eq!(session.state(), SessionState::Stopping);
                        model.tally.withheld += 1;
                        (0..random.below(4)).for_each(|_| _ = simulator.step());
                    }
                }
            };
            not_done.into_iter().for_each(|one| model.report(one));
            model.check(qp_num);
            let (qp, rest) = session.into_queue_pair();
            assert_eq!(rest, [], "MLX5_SEED={seed}");
            stopped.push(qp.expect("the device is there"));
        }
        qps = stopped;
        // From here on only messages may complete, and none of the reported requests.
        simulator.run_until_idle();
        poll(&mut cq, &mut model);
    }
    for (wr_id, _) in model.posted.iter().filter(|(wr_id, _)| !model.sent.contains_key(wr_id)) {
        let at = wr_id_word((wr_id >> 16) - 1, (wr_id & 0xffff) as usize);
        let mut word = [0; 8];
        memory.words.read_at(at, &mut word).unwrap();
        let (times, done) = (u64::from_ne_bytes(word), model.done.contains(wr_id));
        let allowed = if done { 1..=1 } else { 0..=1 };
        assert!(allowed.contains(&times), "MLX5_SEED={seed}: {wr_id:#x} was done {times} times");
    }
    // No reset may have taken a receive: all are still in the queue. Another queue pair takes them,
    // because a request of one of these may still have to fail.
    let mut other = pd.create_qp::<Rc>(&cq, &cq).srq(&model.srq).build().unwrap();
    connect(&mut other, &port, seed);
    let left = drain_receives(&simulator, &mut other, &mut cq, &memory, &model);
    drop(other);
    for number in 0..RECEIVES {
        assert!(left.contains(&number), "MLX5_SEED={seed}: receive {number} is gone");
    }
    assert_eq!(model.srq.take_discarded(), [], "MLX5_SEED={seed}: all completions were polled");
    for message in model.done.iter().filter(|wr_id| model.sent.contains_key(wr_id)) {
        let came = model.arrived.contains(message);
        assert!(came, "MLX5_SEED={seed}: message {message:#x} is done and never came");
    }
    model.tally.done = model.done.len();
    let tally = model.tally;
    drop((model, qps, memory, cq, pd, context));
    assert_eq!(simulator.object_counts(0), Default::default(), "MLX5_SEED={seed}");
    assert_eq!(simulator.violations(), [], "MLX5_SEED={seed}");
    tally
}

/// With `MLX5_SEED` it runs that seed alone, with `SESSION_SEEDS` that number of seeds. A seed
/// repeats everything.
#[test]
fn nothing_completes_twice_or_of_another_session_however_late_the_device_is() {
    if let Ok(seed) = env::var("MLX5_SEED") {
        run(seed.parse().expect("MLX5_SEED is a number"));
        return;
    }
    let seeds = env::var("SESSION_SEEDS").map_or(48, |seeds| seeds.parse().expect("a number"));
    let mut all = Tally::default();
    for number in 1..=seeds {
        all.add(run(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(number)));
    }
    println!("{all:?}");
    assert!(seeds < 16 || all.is_conclusive(seeds as usize), "of {seeds} seeds: {all:?}");
}
