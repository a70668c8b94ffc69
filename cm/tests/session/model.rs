//! A session under random faults, against a model of what may be done.
//!
//! Each request adds 1 to a word of its own in the peer's memory, so the word says how often it was
//! done: once if it completed with success, once or never if it was told as not done, never twice.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use mlx5::transport::Rc;
use mlx5::{Access, MemoryRegion, RemoteSlice, SendFlags, Syndrome};
use mlx5_cm::{Listener, Session, SessionState};
use mlx5_sim::{CmConfig, CmCounts, CmMessage, Fault, PortConfig, SimConfig, Simulator};

const ADDRESS: &str = "10.0.0.1:7474";
/// The longest that connecting may take, and all of a run.
const LIMIT: Duration = Duration::from_secs(60);
const WHOLE: Duration = Duration::from_secs(120);
/// The longest that one attempt may take: what a fault has swallowed is tried again after that.
const ATTEMPT: Duration = Duration::from_secs(1);
const WORDS: usize = 512;
const ROUNDS: usize = 12;
/// Those that may get lost.
const MESSAGES: [CmMessage; 6] = [
    CmMessage::Req,
    CmMessage::Rep,
    CmMessage::Rtu,
    CmMessage::Rej,
    CmMessage::Dreq,
    CmMessage::Drep,
];

/// xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit
    }
}

/// What the server does with the next request.
#[derive(Clone, Copy, Debug)]
enum Command {
    Accept,
    /// Dies as soon as it has accepted.
    AcceptAndDie,
    /// Dies without an answer, which the kernel gives.
    DropRequest,
}

/// Lends its memory to one client after the other. What it is told to do with requests comes by one
/// channel; by the other, that it ends the connection. It says when it has all that it needs: what fails
/// before that is no fault of a session.
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
    let told = memory.remote_slice(..).unwrap().to_bytes();
    ready.send(()).unwrap();
    while !over.load(Ordering::Acquire) {
        let Ok(request) = listener.next(Some(Duration::from_millis(2))) else { continue };
        let command = commands.try_recv().unwrap_or(Command::Accept);
        if matches!(command, Command::DropRequest) {
            continue;
        }
        // The call that is to fail may be one of this side: then the client tries again.
        let Ok(qp) = pd.create_qp::<Rc>(&cq, &cq).build() else { continue };
        // The client may have given up meanwhile.
        let Ok(mut connection) = request.timeout(ATTEMPT).accept(qp, &told) else { continue };
        if matches!(command, Command::AcceptAndDie) {
            continue;
        }
        while !connection.has_ended().unwrap_or(true) && dies.try_recv().is_err() {
            cq.poll(16, |_| {}).unwrap();
            if over.load(Ordering::Acquire) {
                break;
            }
            thread::yield_now();
        }
    }
    memory
}

/// Ends the server also when the test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// What the model knows of the requests.
#[derive(Default)]
struct Model {
    posted: BTreeSet<u64>,
    done: BTreeSet<u64>,
    /// Told as not done.
    told: BTreeMap<u64, mlx5::WhyNotDone>,
}

impl Model {
    fn tell(&mut self, not_done: Vec<mlx5::NotDone>) {
        for one in not_done {
            assert!(!one.receive, "none is posted");
            assert!(self.posted.contains(&one.wr_id), "{one:?} was never posted");
            assert!(self.told.insert(one.wr_id, one.why).is_none(), "{one:?} was told twice");
        }
    }
}

fn run(seed: u64) {
    let mut random = Random(seed);
    let cm = CmConfig { response_ms: 20, retries: 10_000, timewait_ms: 1 };
    let simulator = Simulator::new(SimConfig::new().ports([PortConfig::ROCE]).cm(cm));
    let kernel = simulator.kernel();
    let listener = Listener::bind_on(kernel.clone(), ADDRESS).unwrap();
    let (commands, to_do): (Sender<Command>, _) = channel();
    let (kill, dies) = channel();
    let (ready, is_ready) = sync_channel(1);
    let over = AtomicBool::new(false);
    let mut model = Model::default();
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
            match random.below(8) {
                0 => commands.send(Command::AcceptAndDie).unwrap(),
                1 => commands.send(Command::DropRequest).unwrap(),
                2 => simulator.fail_call(1 + random.below(40), mlx5::Errno::ENOMEM),
                3 => simulator.fail_call_late(1 + random.below(40), mlx5::Errno::EFAULT),
                4 => simulator.lose_cm_messages(
                    MESSAGES[random.below(MESSAGES.len() as u64) as usize],
                    1 + random.below(3) as u32,
                ),
                _ => {}
            }
            // Until it is connected, whatever fails.
            let begun = Instant::now();
            loop {
                assert!(begun.elapsed() < LIMIT, "{}", context("it is never connected"));
                let outcome = session.reconnect(
                    &kernel,
                    ADDRESS,
                    LIMIT / 2,
                    &mut [&mut cq],
                    |peer, qp| peer.timeout(ATTEMPT).connect(qp, b""),
                    |wc| {
                        if wc.is_success() {
                            done.push(wc.wr_id());
                        }
                    },
                );
                simulator.fail_no_call();
                match outcome {
                    Ok(not_done) => break model.tell(not_done),
                    Err(error) => {
                        assert!(!server.is_finished(), "{}", context("the server has ended"));
                        let state = session.state();
                        assert_ne!(state, SessionState::Lost, "{}", context(&error.to_string()));
                    }
                }
            }
            let connection = session.connection().unwrap();
            let told = &connection.private_data()[..RemoteSlice::<u8>::BYTES];
            let words = RemoteSlice::<u8>::from_bytes(told).unwrap().cast::<u64>().unwrap();
            // Something goes wrong while requests are under way, or nothing does.
            let fault = random.below(5);
            let count = 1 + random.below(32).min(WORDS as u64 - 1 - next);
            for number in 0..count {
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
                        _ => {}
                    }
                }
                let (to, sge) = (words.at(next as usize).unwrap(), scratch.whole().unwrap());
                let posted = connection.qp_mut().post(|batch| {
                    batch.wr(next, SendFlags::SIGNALED).atomic_fetch_add(to, 1).sge(sge);
                });
                // In the error state it is refused or flushed.
                if posted.is_ok() {
                    model.posted.insert(next);
                }
                next += 1;
            }
            if random.below(2) == 0 {
                cq.poll(16, |wc| match wc.status() {
                    Ok(()) => done.push(wc.wr_id()),
                    Err(_) => {
                        let why = mlx5::WhyNotDone::Failed(wc.status().unwrap_err());
                        assert!(model.told.insert(wc.wr_id(), why).is_none(), "told twice");
                    }
                })
                .unwrap();
            }
            // Before the next round connects, or the round before has ended; at the first attempt or a
            // later one.
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
                        Ok(not_done) => break model.tell(not_done),
                        Err(failed) => {
                            assert_eq!(session.state(), SessionState::Stopping, "{failed}");
                            model.tell(failed.not_done);
                        }
                    }
                }
                simulator.fail_no_call();
            }
            for wr_id in done {
                assert!(model.posted.contains(&wr_id), "{}", context("never posted"));
                assert!(model.done.insert(wr_id), "{}", context("done twice"));
            }
        }
        let mut done = Vec::new();
        let not_done = session.stop(&mut [&mut cq], |wc| {
            if wc.is_success() {
                done.push(wc.wr_id());
            }
        });
        model.tell(not_done.unwrap());
        for wr_id in done {
            assert!(model.done.insert(wr_id), "MLX5_SEED={seed}: {wr_id} done twice");
        }
        drop((session, cq, scratch, pd));
        drop(ends);
        let memory = server.join().unwrap();
        for wr_id in 0..next {
            let mut word = [0; 8];
            memory.read_at(wr_id as usize * 8, &mut word).unwrap();
            let times = u64::from_ne_bytes(word);
            let (done, told) = (model.done.contains(&wr_id), model.told.contains_key(&wr_id));
            let posted = model.posted.contains(&wr_id);
            assert_eq!(
                posted,
                done || told,
                "MLX5_SEED={seed}: request {wr_id} is not accounted for"
            );
            assert!(!(done && told), "MLX5_SEED={seed}: request {wr_id} is both");
            let allowed = match (done, told) {
                (true, _) => 1..=1,
                (_, true) => 0..=1,
                _ => 0..=0,
            };
            assert!(
                allowed.contains(&times),
                "MLX5_SEED={seed}: request {wr_id} was done {times} times; done {done}, told {told}"
            );
        }
    });
    assert_eq!(simulator.cm_counts(), CmCounts::default(), "MLX5_SEED={seed}");
    assert_eq!(simulator.object_counts(0), Default::default(), "MLX5_SEED={seed}");
    assert_eq!(simulator.violations(), [], "MLX5_SEED={seed}");
}

/// Runs a seed, and fails if that does not end.
fn run_within_the_limit(seed: u64) {
    println!("MLX5_SEED={seed}");
    let (done, is_done) = channel();
    let runner = thread::spawn(move || {
        run(seed);
        done.send(()).unwrap();
    });
    if let Err(RecvTimeoutError::Timeout) = is_done.recv_timeout(WHOLE) {
        panic!("MLX5_SEED={seed} does not end");
    }
    runner.join().unwrap_or_else(|panic| resume_unwind(panic));
}

/// With `MLX5_SEED` it runs that seed alone, with `SESSION_SEEDS` so many; it prints the seed that it runs. A
/// seed repeats what the test chooses, and not how its threads take turns.
#[test]
fn no_request_is_done_twice_or_forgotten_whatever_fails() {
    if let Ok(seed) = env::var("MLX5_SEED") {
        return run_within_the_limit(seed.parse().expect("MLX5_SEED is a number"));
    }
    let seeds = env::var("SESSION_SEEDS").map_or(48, |seeds| seeds.parse().expect("a number"));
    for number in 1..=seeds {
        run_within_the_limit(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(number));
    }
}
