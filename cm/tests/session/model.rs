//! A session under random faults, against a model of the permitted outcomes.
//!
//! Each request adds 1 to its own word in the peer's memory, so the word counts how often the
//! request was done: exactly once if it completed with success, at most once if the session
//! reported it as not done. Each attempt to connect posts receives, and the peer's greeting takes
//! at most one of them.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::mem;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use mlx5::transport::Rc;
use mlx5::{Access, MemoryRegion, RemoteSlice, SendFlags, Sge, Syndrome, WhyNotDone};
use mlx5_cm::{ConnectionFailed, ErrorKind, Listener, Session, SessionState};
use mlx5_sim::{CmConfig, CmCounts, CmMessage, Fault, PortConfig, SimConfig, Simulator};

use crate::random::Random;

const ADDRESS: &str = "10.0.0.1:7474";
/// Time limit of connecting.
const LIMIT: Duration = Duration::from_secs(60);
/// Time limit of a whole run.
const WHOLE: Duration = Duration::from_secs(120);
/// Time limit of one attempt to connect. After this time, the session makes another attempt,
/// because a fault may have swallowed a message.
const ATTEMPT: Duration = Duration::from_secs(1);
/// The longest that the test waits for requests to complete: some never do.
const WAIT: Duration = Duration::from_millis(20);
const WORDS: usize = 512;
const ROUNDS: usize = 12;
/// The bit of an identifier that marks a receive.
const RECEIVE: u64 = 1 << 32;
/// Number of receives that each attempt to connect posts.
const RECEIVES: u64 = 2;
/// The messages that a fault may lose.
const MESSAGES: [CmMessage; 6] = [
    CmMessage::Req,
    CmMessage::Rep,
    CmMessage::Rtu,
    CmMessage::Rej,
    CmMessage::Dreq,
    CmMessage::Drep,
];

/// The server's reaction to the next request.
#[derive(Clone, Copy, Debug)]
enum Command {
    Accept,
    /// Accepts, and drops the connection at once.
    AcceptAndDie,
    /// Drops the request without an answer: the kernel then rejects the request.
    DropRequest,
}

/// The server: serves its memory to one client after the other. `commands` has its reactions to the
/// next requests; a message on `dies` makes it end the current connection. It sends `ready` once it
/// has created all its objects, so that no injected fault hits their creation.
fn serve(
    mut listener: Listener,
    ready: SyncSender<()>,
    commands: Receiver<Command>,
    dies: Receiver<()>,
    over: &AtomicBool,
) -> MemoryRegion {
    let context = listener.device().unwrap().open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let mut cq = context.create_cq(16).build().unwrap();
    let access = Access::LOCAL_WRITE | Access::REMOTE_ATOMIC;
    let memory = pd.memory(WORDS * 8).access(access).register().unwrap();
    let location = memory.remote_slice(..).unwrap().to_bytes();
    ready.send(()).unwrap();
    while !over.load(Ordering::Acquire) {
        let Ok(request) = listener.next(Some(Duration::from_millis(2))) else { continue };
        let command = commands.try_recv().unwrap_or(Command::Accept);
        if matches!(command, Command::DropRequest) {
            continue;
        }
        // The call that the test makes fail may be one of the server's: then the client tries
        // again.
        let Ok(qp) = pd.create_qp::<Rc>(&cq, &cq).build() else { continue };
        // The client may have given up meanwhile.
        let Ok(mut connection) = request.timeout(ATTEMPT).accept(qp, &location) else { continue };
        // The greeting. The client may have gone, and the queue pair may be flushed.
        let _ = connection.qp_mut().post(|batch| {
            batch.wr(0, SendFlags::SIGNALED).send().sge_list(&[]);
        });
        if matches!(command, Command::AcceptAndDie) {
            continue;
        }
        while !connection.has_ended().unwrap_or(true) && dies.try_recv().is_err() {
            // The poll fails if the device is gone.
            if cq.poll(16, |_| {}).is_err() || over.load(Ordering::Acquire) {
                break;
            }
            thread::yield_now();
        }
    }
    memory
}

/// Ends the server when dropped, also if the test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The model's record of the requests and receives, by their identifiers.
#[derive(Default)]
struct Model {
    posted: BTreeSet<u64>,
    done: BTreeSet<u64>,
    /// Reported as not done.
    reported: BTreeMap<u64, WhyNotDone>,
}

impl Model {
    fn record(&mut self, not_done: Vec<mlx5::NotDone>) {
        for one in not_done {
            assert_eq!(one.receive, one.wr_id >= RECEIVE, "{one:?}");
            assert!(self.posted.contains(&one.wr_id), "{one:?} was never posted");
            assert!(
                self.reported.insert(one.wr_id, one.why).is_none(),
                "{one:?} was reported twice"
            );
        }
    }

    fn finish(&mut self, done: Vec<u64>) {
        for wr_id in done {
            assert!(self.posted.contains(&wr_id), "{wr_id:#x} was never posted");
            assert!(self.done.insert(wr_id), "{wr_id:#x} was done twice");
        }
    }
}

/// Counts the events of a run, because a run without faults proves nothing.
#[derive(Clone, Copy, Default, Debug)]
struct Tally {
    requests_done: usize,
    requests_reported: usize,
    receives_done: usize,
    receives_reported: usize,
    /// Numbers of requests and receives reported as flushed, as failed in another way, and as
    /// unknown.
    why: [usize; 3],
    attempts: usize,
    connected: usize,
    /// Attempts that ended because the address moved.
    moved: usize,
    devices_gone: usize,
}

impl Tally {
    fn count(&mut self, model: &Model) {
        let receives = |count: usize, id: &u64| count + usize::from(*id >= RECEIVE);
        let done = model.done.iter().fold(0, receives);
        let reported = model.reported.keys().fold(0, receives);
        (self.receives_done, self.receives_reported) = (done, reported);
        self.requests_done = model.done.len() - done;
        self.requests_reported = model.reported.len() - reported;
        for why in model.reported.values() {
            self.why[match why {
                WhyNotDone::Failed(error) if error.is_flushed() => 0,
                WhyNotDone::Failed(_) => 1,
                _ => 2,
            }] += 1;
        }
    }

    fn add(&mut self, other: Self) {
        self.requests_done += other.requests_done;
        self.requests_reported += other.requests_reported;
        self.receives_done += other.receives_done;
        self.receives_reported += other.receives_reported;
        for (sum, one) in self.why.iter_mut().zip(other.why) {
            *sum += one;
        }
        self.attempts += other.attempts;
        self.connected += other.connected;
        self.moved += other.moved;
        self.devices_gone += other.devices_gone;
    }

    /// Whether the events that the test is about happened often enough in `runs` runs: each kind at
    /// least once, some in proportion to the rounds.
    fn is_conclusive(&self, runs: usize) -> bool {
        let rounds = runs * ROUNDS;
        self.connected == rounds
            && self.attempts > rounds
            && self.requests_done > rounds / 4
            && self.requests_reported > rounds
            && self.receives_done > rounds / 32
            && self.receives_reported > rounds
            && self.why.iter().all(|count| *count > 0)
            && self.moved > 0
            && self.devices_gone > 0
    }
}

fn run(seed: u64) -> Tally {
    let mut random = Random(seed);
    let cm = CmConfig { response_ms: 20, retries: 10_000, timewait_ms: 1 };
    let simulator = Simulator::new(SimConfig::new().ports([PortConfig::ROCE]).cm(cm));
    let kernel = simulator.kernel();
    let listener = Listener::bind_on(kernel.clone(), ADDRESS).unwrap();
    let (commands, to_do): (Sender<Command>, _) = channel();
    let (kill, dies) = channel();
    let (ready, is_ready) = sync_channel(1);
    let over = AtomicBool::new(false);
    let (mut model, mut tally) = (Model::default(), Tally::default());
    thread::scope(|scope| {
        let server = scope.spawn(|| serve(listener, ready, to_do, dies, &over));
        let ends = Over(&over);
        is_ready.recv().expect("the server has begun");
        let context = mlx5::devices_on(kernel.clone()).unwrap().remove(0).open().unwrap();
        let pd = context.alloc_pd().unwrap();
        let mut cq = context.create_cq(128).build().unwrap();
        let scratch = pd.allocate(8).unwrap();
        let qp = pd.create_qp::<Rc>(&cq, &cq).max_send_wr(64).build().unwrap();
        let mut session = Session::new(qp);
        let mut next = 0_u64;
        for round in 0..ROUNDS {
            let context = |what: &str| format!("MLX5_SEED={seed}, round {round}: {what}");
            let mut done = Vec::new();
            let mut moves = false;
            match random.below(9) {
                0 => commands.send(Command::AcceptAndDie).unwrap(),
                1 => commands.send(Command::DropRequest).unwrap(),
                2 => simulator.fail_call(1 + random.below(40), mlx5::Errno::ENOMEM),
                3 => simulator.fail_call_late(1 + random.below(40), mlx5::Errno::EFAULT),
                4 => simulator.lose_cm_messages(
                    MESSAGES[random.below(MESSAGES.len() as u64) as usize],
                    1 + random.below(3) as u32,
                ),
                5 => moves = true,
                _ => {}
            }
            // Try again after each failure, until the session is connected.
            let begun = Instant::now();
            loop {
                assert!(begun.elapsed() < LIMIT, "{}", context("it is never connected"));
                let outcome = session.reconnect(
                    &kernel,
                    ADDRESS,
                    LIMIT / 2,
                    &mut [&mut cq],
                    |peer, mut qp| {
                        tally.attempts += 1;
                        if let Err(error) = peer.init(&mut qp) {
                            return Err(ConnectionFailed::new(error, qp));
                        }
                        for number in 0..RECEIVES {
                            let wr_id = RECEIVE | (tally.attempts as u64) << 8 | number;
                            qp.recv(wr_id, Sge::default()).unwrap();
                            model.posted.insert(wr_id);
                        }
                        // Move the address first: the connection's first event then reports this
                        // move.
                        if mem::take(&mut moves) {
                            simulator.move_cm_addresses(0);
                        }
                        let connected = peer.timeout(ATTEMPT).connect(qp, b"");
                        let why = connected.as_ref().err().map(|failed| failed.error());
                        tally.moved +=
                            usize::from(why.is_some_and(|why| why.to_string().contains("moved")));
                        connected
                    },
                    |wc| {
                        if wc.is_success() {
                            done.push(wc.wr_id());
                        }
                    },
                );
                simulator.fail_no_call();
                match outcome {
                    Ok(not_done) => break model.record(not_done),
                    Err(error) => {
                        assert!(!server.is_finished(), "{}", context("the server has ended"));
                        let state = session.state();
                        assert_ne!(state, SessionState::Lost, "{}", context(&error.to_string()));
                    }
                }
            }
            tally.connected += 1;
            let connection = session.connection().unwrap();
            let location = &connection.private_data()[..RemoteSlice::<u8>::BYTES];
            let words = RemoteSlice::<u8>::from_bytes(location).unwrap().cast::<u64>().unwrap();
            // The fault that hits in the middle of the posts; the last number stands for no fault.
            let fault = random.below(6);
            let count = 1 + random.below(32).min(WORDS as u64 - 1 - next);
            // Wait for completions in the middle of the posts, at their end, or not at all.
            let waits_at = [count / 2, count, u64::MAX][random.below(3) as usize];
            let mut look = |done: &mut Vec<u64>| {
                cq.poll(16, |wc| match wc.status() {
                    Ok(()) => done.push(wc.wr_id()),
                    Err(why) => {
                        let why = WhyNotDone::Failed(why);
                        assert!(model.reported.insert(wc.wr_id(), why).is_none(), "reported twice");
                    }
                })
                .unwrap();
            };
            for number in 0..=count {
                if number == waits_at {
                    // Wait for the posted requests, which may never complete.
                    let (had, end) = (done.len(), Instant::now() + WAIT);
                    while done.len() < had + number as usize && Instant::now() < end {
                        look(&mut done);
                        thread::yield_now();
                    }
                }
                if number == count {
                    break;
                }
                if number == count / 2 {
                    match fault {
                        0 => kill.send(()).unwrap(),
                        1 => {
                            let qpn = Some(connection.qp().qp_num());
                            let (syndrome, vendor) = (Syndrome::RemoteOperation, 0);
                            simulator.inject(0, Fault::FailRequest { qpn, syndrome, vendor });
                        }
                        2 => connection.disconnect().unwrap(),
                        3 => simulator.inject(0, Fault::DropPackets(3)),
                        4 => simulator.move_cm_addresses(0),
                        _ => {}
                    }
                }
                let (to, sge) = (words.at(next as usize).unwrap(), scratch.whole().unwrap());
                let posted = connection.qp_mut().post(|batch| {
                    batch.wr(next, SendFlags::SIGNALED).atomic_fetch_add(to, 1).sge(sge);
                });
                // In the error state, the request is refused or flushed.
                if posted.is_ok() {
                    model.posted.insert(next);
                }
                next += 1;
            }
            if random.below(2) == 0 {
                look(&mut done);
            }
            // In half of the rounds, stop the session before the next round reconnects. In half of
            // these rounds, fail one of the next calls into the kernel, too.
            if random.below(2) == 0 {
                if random.below(2) == 0 {
                    simulator.fail_call(1 + random.below(8), mlx5::Errno::ENOMEM);
                }
                let begun = Instant::now();
                loop {
                    assert!(begun.elapsed() < LIMIT, "{}", context("it never stops"));
                    let stopped = session.stop(&mut [&mut cq], |wc| {
                        if wc.is_success() {
                            done.push(wc.wr_id());
                        }
                    });
                    match stopped {
                        Ok(not_done) => break model.record(not_done),
                        Err(failed) => {
                            assert_eq!(session.state(), SessionState::Stopping, "{failed}");
                            model.record(failed.not_done);
                        }
                    }
                }
                simulator.fail_no_call();
            }
            model.finish(done);
        }
        // End the last connection, if it still exists, by stopping the session. In a third of the
        // runs, remove the device before.
        let mut done = Vec::new();
        let is_pulled_out = random.below(3) == 0;
        if is_pulled_out {
            simulator.remove_device(0);
        }
        let was = session.state();
        let stopped = session.stop(&mut [&mut cq], |wc| {
            if wc.is_success() {
                done.push(wc.wr_id());
            }
        });
        match stopped {
            Ok(not_done) => {
                assert!(!is_pulled_out || was == SessionState::Idle, "MLX5_SEED={seed}: {was:?}");
                model.record(not_done);
            }
            Err(failed) => {
                assert!(is_pulled_out, "MLX5_SEED={seed}: {failed}");
                assert_eq!(failed.error.kind(), ErrorKind::DeviceGone, "MLX5_SEED={seed}");
                assert_eq!(session.state(), SessionState::Lost, "MLX5_SEED={seed}");
                tally.devices_gone += 1;
                model.record(failed.not_done);
            }
        }
        model.finish(done);
        tally.count(&model);
        drop((session, cq, scratch, pd));
        drop(ends);
        let memory = server.join().unwrap();
        // Each receive has completed or was reported, and never both. Each attempt to connect got
        // at most one greeting.
        let receives = |ids: &BTreeSet<u64>| -> Vec<u64> {
            ids.iter().copied().filter(|id| *id >= RECEIVE).collect()
        };
        for wr_id in receives(&model.posted) {
            let (done, reported) =
                (model.done.contains(&wr_id), model.reported.contains_key(&wr_id));
            assert!(done != reported, "MLX5_SEED={seed}: receive {wr_id:#x}: {done}, {reported}");
        }
        let greeted: Vec<u64> = receives(&model.done).iter().map(|id| id >> 8).collect();
        assert!(greeted.is_sorted_by(|a, b| a < b), "MLX5_SEED={seed}: {greeted:x?}");
        for wr_id in 0..next {
            let mut word = [0; 8];
            memory.read_at(wr_id as usize * 8, &mut word).unwrap();
            let times = u64::from_ne_bytes(word);
            let (done, reported) =
                (model.done.contains(&wr_id), model.reported.contains_key(&wr_id));
            let posted = model.posted.contains(&wr_id);
            assert_eq!(
                posted,
                done || reported,
                "MLX5_SEED={seed}: request {wr_id} is not accounted for"
            );
            assert!(!(done && reported), "MLX5_SEED={seed}: request {wr_id} is both");
            let allowed = match (done, reported) {
                (true, _) => 1..=1,
                (_, true) => 0..=1,
                _ => 0..=0,
            };
            assert!(
                allowed.contains(&times),
                "MLX5_SEED={seed}: request {wr_id} was done {times} times; done {done}, reported {reported}"
            );
        }
    });
    assert_eq!(simulator.cm_counts(), CmCounts::default(), "MLX5_SEED={seed}");
    assert_eq!(simulator.object_counts(0), Default::default(), "MLX5_SEED={seed}");
    assert_eq!(simulator.violations(), [], "MLX5_SEED={seed}");
    tally
}

/// Runs a seed, and fails if the run does not end within `WHOLE`.
fn run_within_the_limit(seed: u64) -> Tally {
    println!("MLX5_SEED={seed}");
    let (done, is_done) = channel();
    let runner = thread::spawn(move || {
        let tally = run(seed);
        done.send(()).unwrap();
        tally
    });
    if let Err(RecvTimeoutError::Timeout) = is_done.recv_timeout(WHOLE) {
        panic!("MLX5_SEED={seed} does not end");
    }
    runner.join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// With `MLX5_SEED` it runs that seed alone, with `SESSION_SEEDS` that number of seeds; it prints
/// each seed. A seed repeats the test's choices, but not the order in which its threads run.
#[test]
fn no_request_is_done_twice_or_forgotten_whatever_fails() {
    if let Ok(seed) = env::var("MLX5_SEED") {
        run_within_the_limit(seed.parse().expect("MLX5_SEED is a number"));
        return;
    }
    let seeds = env::var("SESSION_SEEDS").map_or(48, |seeds| seeds.parse().expect("a number"));
    let mut all = Tally::default();
    for number in 1..=seeds {
        all.add(run_within_the_limit(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(number)));
    }
    println!("{all:?}");
    // With few seeds, some of the events may not happen.
    assert!(seeds < 16 || all.is_conclusive(seeds as usize), "of {seeds} seeds: {all:?}");
}
