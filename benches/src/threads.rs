//! Measures several threads that post and poll at the same time, on a device that stands still in
//! the meantime.
//!
//! The threads have queues of their own, or share one queue, or one posts while another polls. Each
//! is pinned to a core of its own.

use crate::bed::{Base, Given, Poller as _};
use crate::cores;
use crate::machine::Machine;
use crate::operations::{poll, post};
use crate::peer::{Library, ThreadQueues};
use crate::round::{Mode, ROUND, median};
use mlx5::transport::Rc;
use mlx5::{CompletionQueue, QueuePair, SendHalf, SharedCompletionQueue, SharedQueuePair};
use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

/// Requests that are posted, then polled, in a round, in total over the threads that share a queue.
const REQUESTS: u64 = 2048;
/// Depth of a queue: two rounds are pending when one thread posts while another polls.
const DEPTH: u32 = 2 * REQUESTS as u32;
/// Rounds before the measurement, and rounds that are measured.
const WARM_UP: usize = 5;
const ROUNDS: usize = 100;

/// The queues of a thread.
trait Lane: Send {
    /// Posts `count` requests, one by one.
    fn post(&mut self, first: u64, count: u64);
    /// Polls one by one until there were `count` completions.
    fn poll(&mut self, count: u64);
}

/// A thread's work in a phase.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Post,
    Poll,
}

/// A queue pair and its completion queue.
struct Own {
    given: Arc<Given>,
    qp: QueuePair<Rc>,
    cq: CompletionQueue,
    sum: u64,
}

impl Lane for Own {
    fn post(&mut self, first: u64, count: u64) {
        let bytes = self.given.bytes();
        let mut good = true;
        for k in 0..count {
            let remote = self.given.remotes[(k % ROUND) as usize];
            good &= post::inline8(&mut self.qp, remote, bytes, first + k).is_ok();
        }
        assert!(good, "room");
    }

    fn poll(&mut self, count: u64) {
        polled(count, || poll::one(&mut self.cq, &mut self.sum));
    }
}

/// The same, shared by all threads.
struct Shared {
    given: Arc<Given>,
    queues: Arc<(SharedQueuePair<Rc>, SharedCompletionQueue)>,
    sum: u64,
}

impl Lane for Shared {
    fn post(&mut self, first: u64, count: u64) {
        let bytes = self.given.bytes();
        let mut good = true;
        for k in 0..count {
            let remote = self.given.remotes[(k % ROUND) as usize];
            good &= post::inline8_shared(&self.queues.0, remote, bytes, first + k).is_ok();
        }
        assert!(good, "room");
    }

    fn poll(&mut self, count: u64) {
        polled(count, || poll::one_shared(&self.queues.1, &mut self.sum));
    }
}

/// One half of the queues: one thread posts, and another polls.
enum Half {
    Poster(Arc<Given>, SendHalf<Rc>),
    Poller(CompletionQueue, u64),
}

impl Lane for Half {
    fn post(&mut self, first: u64, count: u64) {
        let Self::Poster(given, half) = self else { return };
        let bytes = given.bytes();
        let mut good = true;
        for k in 0..count {
            let remote = given.remotes[(k % ROUND) as usize];
            good &= post::inline8_half(half, remote, bytes, first + k).is_ok();
        }
        assert!(good, "room");
    }

    fn poll(&mut self, count: u64) {
        let Self::Poller(cq, sum) = self else { return };
        polled(count, || poll::one(cq, sum));
    }
}

/// The peer's queues, which any thread may use.
struct Theirs(ThreadQueues);

impl Lane for Theirs {
    fn post(&mut self, first: u64, count: u64) {
        self.0.post(first, count as u32);
    }

    fn poll(&mut self, count: u64) {
        self.0.poll(count as u32);
    }
}

/// Polls until there were `count` completions.
fn polled(count: u64, mut poll: impl FnMut() -> Option<usize>) {
    let mut polled = 0;
    while polled < count {
        polled += poll().expect("poll") as u64;
    }
}

/// Runs threads at the same time.
struct Together {
    /// Number of times that work was handed out, and number of threads that have finished it.
    given: AtomicUsize,
    done: AtomicUsize,
    /// Begin and end of each thread's work, in nanoseconds since `start`.
    times: Vec<[AtomicU64; 2]>,
    start: Instant,
}

impl Together {
    fn run(&self, number: usize, work: impl FnOnce()) {
        let now = || self.start.elapsed().as_nanos() as u64;
        let begun = now();
        work();
        self.times[number][1].store(now(), Ordering::Relaxed);
        self.times[number][0].store(begun, Ordering::Relaxed);
        self.done.fetch_add(1, Ordering::Release);
    }

    /// Duration of all work together, and of each thread's.
    fn took(&self) -> (f64, Vec<f64>) {
        let at =
            |which: usize| self.times.iter().map(move |both| both[which].load(Ordering::Relaxed));
        let whole = at(1).max().unwrap_or(0) - at(0).min().unwrap_or(0);
        let each = at(0).zip(at(1)).map(|(begun, ended)| (ended - begun) as f64).collect();
        (whole as f64, each)
    }
}

/// A measurement of threads.
struct Case<'a> {
    name: &'a str,
    who: &'a str,
    mode: Mode,
    /// Each thread's work in a phase; the device works between phases.
    phases: &'a [&'a [Work]],
    /// Requests of a thread in a phase.
    requests: u64,
}

impl Case<'_> {
    /// Runs rounds with these lanes, one per thread, and prints the time of a request in each
    /// phase: over all threads together, and in the thread that took longest.
    fn run(&self, machine: &Machine, mut lanes: Vec<Box<dyn Lane>>) {
        let threads = lanes.len();
        let together = Together {
            given: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            times: (0..threads).map(|_| Default::default()).collect(),
            start: Instant::now(),
        };
        // Work number `n` belongs to phase `n % phases`.
        let phase_of = |number: usize| self.phases[number % self.phases.len()];
        let requests = self.requests;
        let work = |lane: &mut dyn Lane, number: usize, thread: usize| {
            let first = number as u64 * requests;
            match phase_of(number)[thread] {
                Work::Post => lane.post(first, requests),
                // If one posts while another polls, there is no completion in the first phase.
                Work::Poll if number == 0 => {}
                Work::Poll => lane.poll(requests),
            }
        };
        let numbers = (WARM_UP + ROUNDS) * self.phases.len();
        let mut wholes = vec![Vec::new(); self.phases.len()];
        let mut eaches = vec![vec![Vec::new(); threads]; self.phases.len()];
        let cores = cores::usable();
        let mut own = lanes.remove(0);
        std::thread::scope(|scope| {
            for (thread, lane) in (1..).zip(&mut lanes) {
                let (together, work, core) = (&together, &work, cores[thread % cores.len()]);
                scope.spawn(move || {
                    let _pinned = cores::pin(core);
                    for number in 0..numbers {
                        while together.given.load(Ordering::Acquire) <= number {
                            spin_loop();
                        }
                        together.run(thread, || work(&mut **lane, number, thread));
                    }
                });
            }
            let _pinned = cores::pin(cores[0]);
            for number in 0..numbers {
                together.done.store(0, Ordering::Relaxed);
                together.given.store(number + 1, Ordering::Release);
                together.run(0, || work(&mut *own, number, 0));
                while together.done.load(Ordering::Acquire) < threads {
                    spin_loop();
                }
                machine.settle();
                if number >= WARM_UP * self.phases.len() {
                    let phase = number % self.phases.len();
                    let (whole, each) = together.took();
                    wholes[phase].push(whole);
                    eaches[phase].iter_mut().zip(each).for_each(|(all, one)| all.push(one));
                }
            }
        });
        for (phase, work) in self.phases.iter().enumerate() {
            let whole = median(wholes[phase].iter().copied());
            let of = |wanted: Work| {
                let is_it = |(thread, _): &(usize, _)| work[*thread] == wanted;
                let each = eaches[phase].iter().enumerate().filter(is_it);
                each.map(|(_, times)| median(times.iter().copied())).max_by(f64::total_cmp)
            };
            for (verb, wanted) in [("post", Work::Post), ("poll", Work::Poll)] {
                let Some(longest) = of(wanted) else { continue };
                let count = work.iter().filter(|one| **one == wanted).count() as u64 * requests;
                println!(
                    "threads\t{}_{verb}\t{}\t{}\t{threads}\t{:.2}\t{:.2}",
                    self.name,
                    self.who,
                    self.mode.name(),
                    longest / requests as f64,
                    count as f64 / whole * 1e3,
                );
            }
        }
    }
}

/// Powers of two up to the number of cores, and that number.
fn numbers(cores: usize) -> Vec<usize> {
    let mut numbers: Vec<_> =
        std::iter::successors(Some(1), |n| Some(2 * n)).take_while(|n| *n < cores).collect();
    numbers.push(cores);
    numbers
}

/// One thread posts while the other polls earlier requests.
const APART: &[&[Work]] = &[&[Work::Post, Work::Poll]];

/// Measures all cases, for our driver and for every peer whose queues threads can use.
pub(crate) fn run(machine: &Machine, peers: &[Library]) {
    let cores = cores::usable().len();
    println!("machine\t{}", cores::model());
    println!("cores\t{cores}");
    for threads in numbers(cores) {
        let (posts, polls) = (vec![Work::Post; threads], vec![Work::Poll; threads]);
        let phases: &[&[Work]] = &[&posts, &polls];
        let own = |_| own(machine);
        let case =
            Case { name: "own", who: "mlx5", mode: Mode::Single, phases, requests: REQUESTS };
        case.run(machine, (0..threads).map(own).collect());
        for peer in peers {
            let Some(who) = peer.with_threads() else { continue };
            let case = Case { who, mode: Mode::Default, ..case };
            let lane = |_| Box::new(Theirs(peer.queues(machine, DEPTH))) as Box<dyn Lane>;
            case.run(machine, (0..threads).map(lane).collect());
        }
        let requests = REQUESTS / threads as u64;
        let case = Case { name: "one", mode: Mode::Shared, requests, ..case };
        case.run(machine, shared(machine, threads));
        for peer in peers {
            let Some(who) = peer.with_threads() else { continue };
            let case = Case { who, mode: Mode::Default, ..case };
            let queues = peer.queues(machine, DEPTH);
            let lane = |_| Box::new(Theirs(queues)) as Box<dyn Lane>;
            case.run(machine, (0..threads).map(lane).collect());
        }
    }
    if cores > 1 {
        let (name, mode) = ("apart", Mode::Single);
        let case = Case { name, who: "mlx5", mode, phases: APART, requests: REQUESTS };
        case.run(machine, apart(machine));
        for peer in peers {
            let Some(who) = peer.with_threads() else { continue };
            let queues = peer.queues(machine, DEPTH);
            let lane = |_| Box::new(Theirs(queues)) as Box<dyn Lane>;
            Case { who, mode: Mode::Default, ..case }.run(machine, (0..2).map(lane).collect());
        }
    }
}

fn own(machine: &Machine) -> Box<dyn Lane> {
    let base = Base::new(machine);
    let (given, cq) = (Arc::new(Given::new(&base)), base.cq(DEPTH));
    let qp = base.loopback(&cq, DEPTH);
    // The queues keep their context and domain alive; the leaked `base` keeps the memory
    // registered.
    std::mem::forget(base);
    Box::new(Own { given, qp, cq, sum: 0 })
}

fn shared(machine: &Machine, threads: usize) -> Vec<Box<dyn Lane>> {
    let base = Base::new(machine);
    let (given, cq) = (Arc::new(Given::new(&base)), base.cq(DEPTH));
    let qp = base.loopback(&cq, DEPTH).into_shared();
    let queues = Arc::new((qp, cq.into_shared()));
    std::mem::forget(base);
    let lane = |_| Shared { given: Arc::clone(&given), queues: Arc::clone(&queues), sum: 0 };
    (0..threads).map(|thread| Box::new(lane(thread)) as Box<dyn Lane>).collect()
}

fn apart(machine: &Machine) -> Vec<Box<dyn Lane>> {
    let base = Base::new(machine);
    let (given, mut cq) = (Arc::new(Given::new(&base)), base.cq(DEPTH));
    let (send, _, control) = base.loopback(&cq, DEPTH).split();
    let _ = cq.drain();
    std::mem::forget((base, control));
    vec![Box::new(Half::Poster(given, send)), Box::new(Half::Poller(cq, 0))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_double_up_to_the_cores_that_there_are() {
        assert_eq!(numbers(1), [1]);
        assert_eq!(numbers(2), [1, 2]);
        assert_eq!(numbers(6), [1, 2, 4, 6]);
        assert_eq!(numbers(16), [1, 2, 4, 8, 16]);
    }

    #[test]
    fn the_times_of_threads_overlap() {
        let at = |begun, ended| [AtomicU64::new(begun), AtomicU64::new(ended)];
        let together = Together {
            given: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            times: vec![at(100, 300), at(150, 360)],
            start: Instant::now(),
        };
        assert_eq!(together.took(), (260.0, vec![200.0, 210.0]));
    }

    #[test]
    fn every_kind_of_thread_posts_and_polls_all() {
        let machine = Machine::simulated();
        let phases: &[&[Work]] = &[&[Work::Post; 2], &[Work::Poll; 2]];
        let case = Case { name: "own", who: "mlx5", mode: Mode::Single, phases, requests: 64 };
        case.run(&machine, vec![own(&machine), own(&machine)]);
        case.run(&machine, shared(&machine, 2));
        Case { phases: APART, ..case }.run(&machine, apart(&machine));
        machine.check();
    }
}
