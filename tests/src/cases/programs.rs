//! Random programs that post, poll, drain, cancel and start over, compared with a model of each
//! request's fate: executed, cancelled or flushed, exactly once.

mod paths;

use self::paths::{Ends, Message, Path, Receiver, SLOT, SLOTS};
use crate::prelude::*;
use mlx5::transport::XrcSend;
use mlx5::{CancelError, CancelMode, Data, Drained, NotPending};
use mlx5_sim::engine::DrainAt;
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use std::cell::Cell;

pub(crate) const CASES: &[Case] = cases![
    every_request_is_executed_cancelled_or_flushed_once: STEP,
    every_unreliable_request_is_executed_cancelled_or_flushed_once: STEP,
    every_datagram_is_sent_cancelled_or_flushed_once: STEP,
    every_extended_request_is_executed_cancelled_or_flushed_once: STEP,
];

/// Programs for each seed.
const PROGRAMS: u32 = 220;
/// Number of steps that the programs must at least have, over one transport; over all transports,
/// four times this.
const STEPS: usize = 25_000;
const SEEDS: [u8; 4] = [1, 2, 3, 4];

/// The form of a request.
#[derive(Clone, Copy, Debug)]
struct Shape {
    /// With inline data: the number of 64-byte pieces after the identifier. Otherwise it determines
    /// the number of entries.
    size: usize,
    inline: bool,
    signaled: bool,
}

impl Shape {
    fn blocks<T: Path>(self) -> u32 {
        let data = match self.inline {
            true => (4 + MESSAGE + 64 * self.size).div_ceil(16),
            false => self.entries(),
        };
        (1 + T::UNITS + data).div_ceil(4) as u32
    }

    fn entries(self) -> usize {
        1 + self.size % 4
    }

    fn flags(self) -> SendFlags {
        if self.signaled { SendFlags::SIGNALED } else { SendFlags::empty() }
    }
}

/// A step of a program.
#[derive(Clone, Debug)]
enum Step {
    /// Posts these requests, as a batch or as a list.
    Post { shapes: Vec<Shape>, list: bool },
    /// Builds a batch of these requests, and drops it.
    Abort(Vec<Shape>),
    /// Posts a batch of these requests and of one that is refused.
    Spoilt(Vec<Shape>),
    /// Lets the device work a little.
    Run(u8),
    /// Polls for at most this number of completions.
    Poll(u8),
    /// Makes the device drain the queue after this number of further requests.
    Drain(u8),
    /// Cancels requests, by their distance from the next identifier.
    Cancel { which: Vec<u8>, all_or_nothing: bool },
    /// Resumes a drained queue.
    Resume,
    /// Moves the queue pair to the error state.
    Fail,
    /// Resets both sides and connects them again.
    StartOver,
}

fn shapes() -> impl Strategy<Value = Vec<Shape>> {
    let shape = (0..4_usize, any::<bool>(), prop_oneof![2 => Just(true), 1 => Just(false)])
        .prop_map(|(size, inline, signaled)| Shape { size, inline, signaled });
    vec(shape, 1..5)
}

fn program() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (shapes(), any::<bool>()).prop_map(|(shapes, list)| Step::Post { shapes, list }),
        1 => shapes().prop_map(Step::Abort),
        1 => shapes().prop_map(Step::Spoilt),
        3 => (0..6_u8).prop_map(Step::Run),
        4 => (1..9_u8).prop_map(Step::Poll),
        3 => (0..4_u8).prop_map(Step::Drain),
        4 => (vec(any::<u8>(), 0..6), any::<bool>())
            .prop_map(|(which, all_or_nothing)| Step::Cancel { which, all_or_nothing }),
        3 => Just(Step::Resume),
        1 => Just(Step::Fail),
        1 => Just(Step::StartOver),
    ];
    vec(step, 1..60)
}

/// Bytes of a message's identifier.
const MESSAGE: usize = 8;
/// A request in the model.
#[derive(Clone, Copy, Debug)]
struct Request {
    id: u64,
    first: u16,
    blocks: u32,
    signaled: bool,
    cancelled: bool,
    flushed: bool,
}

/// The queue pair and the model of it.
struct Run<'a, T: Path> {
    bed: &'a Bed,
    ends: Ends<T>,
    /// All requests that were posted since the queue pair started.
    posted: Vec<Request>,
    /// Number of retired requests among these.
    retired: usize,
    /// Identifiers that arrived at the other side since then.
    arrived: Vec<u64>,
    /// Receives posted at the other side: since then, if a reset drops receives.
    receives: u64,
    /// Number of receives that wait for a message.
    waiting: u32,
    failed: bool,
    next: u64,
}

impl<'a, T: Path> Run<'a, T> {
    fn new(bed: &'a Bed) -> Result<Self, Failed> {
        let mut run = Self {
            bed,
            ends: T::ends(bed, MESSAGE + 192)?,
            posted: Vec::new(),
            retired: 0,
            arrived: Vec::new(),
            receives: 0,
            waiting: 0,
            failed: false,
            next: 0,
        };
        run.refill();
        Ok(run)
    }

    fn refill(&mut self) {
        for _ in self.waiting..SLOTS {
            let at = slot(self.receives);
            self.ends.far.recv(self.receives, at..at + SLOT);
            self.receives += 1;
        }
        self.waiting = SLOTS;
    }

    fn outstanding(&self) -> &[Request] {
        &self.posted[self.retired..]
    }

    fn free(&self) -> u32 {
        let used: u32 = self.outstanding().iter().map(|request| request.blocks).sum();
        self.ends.near.qp.caps().send_blocks - used
    }

    fn head(&self) -> u16 {
        self.posted.last().map_or(0, |last| last.first.wrapping_add(last.blocks as u16))
    }

    /// Adds a request to the model, or returns the reason why the queue has no room for it.
    fn take(&mut self, id: u64, shape: Shape) -> Result<(), PostError> {
        let caps = self.ends.near.qp.caps();
        let (free, needed) = (self.free(), shape.blocks::<T>());
        if needed > free {
            return Err(PostError::QueueFull { free, needed });
        }
        let unsignaled = self.outstanding().iter().rev().take_while(|request| !request.signaled);
        let run: u32 = unsignaled.map(|request| request.blocks).sum();
        if !shape.signaled && run + needed + caps.max_wr_blocks > caps.send_blocks {
            return Err(PostError::UnsignaledRun);
        }
        let request = Request {
            id,
            first: self.head(),
            blocks: needed,
            signaled: shape.signaled,
            cancelled: false,
            flushed: false,
        };
        self.posted.push(request);
        Ok(())
    }

    /// Adds requests to the model. Returns the one for which there is no room, if any.
    fn take_all(&mut self, shapes: &[Shape], first: u64) -> Option<(u32, PostError)> {
        for (index, shape) in (0..).zip(shapes) {
            if let Err(error) = self.take(first + u64::from(index), *shape) {
                return Some((index, error));
            }
        }
        None
    }

    /// Posts requests of these shapes. `spoilt` adds one that is refused, `list` uses the list
    /// form.
    fn post(&mut self, shapes: &[Shape], list: bool, spoilt: bool, abort: bool) -> Outcome {
        let first = self.next;
        self.next += shapes.len() as u64;
        let before = self.posted.len();
        let expected = self.take_all(shapes, first);
        if abort || spoilt || (expected.is_some() && !list) {
            // The queue posts none of them.
            self.posted.truncate(before);
        }

        let zeros = [0_u8; 64];
        let nowhere = [Sge { addr: 0, length: 1, lkey: 0 }; 64];
        let mut ids: Vec<[u8; MESSAGE]> = Vec::new();
        for id in first..self.next {
            ids.push(id.to_ne_bytes());
            self.ends.near.mr.write_at(id as usize % 64 * MESSAGE, &id.to_ne_bytes())?;
        }
        let mut sges: Vec<Vec<Sge>> = Vec::new();
        let mut pieces: Vec<Vec<&[u8]>> = Vec::new();
        for (shape, id) in shapes.iter().zip(first..) {
            // The identifier in several pieces, one for each entry.
            let (at, parts) = (id as usize % 64 * MESSAGE, shape.entries());
            let cut = |n: usize| at + MESSAGE * n / parts;
            let entries = (0..parts).map(|n| self.ends.near.mr.sge(cut(n)..cut(n + 1)));
            sges.push(entries.collect::<Result<_, _>>()?);
            let mut inline = vec![&ids[(id - first) as usize][..]];
            inline.extend(std::iter::repeat_n(&zeros[..], shape.size));
            pieces.push(inline);
        }
        let mut messages: Vec<Message<'_>> = shapes
            .iter()
            .zip(first..)
            .enumerate()
            .map(|(n, (shape, id))| {
                let data =
                    if shape.inline { Data::Inline(&pieces[n]) } else { Data::Sges(&sges[n]) };
                (id, shape.flags(), data)
            })
            .collect();
        if spoilt {
            messages.push((0, SendFlags::SIGNALED, Data::Sges(&nowhere)));
        }
        let Ends { near, to, .. } = &mut self.ends;
        if list {
            let wrs: Vec<_> = messages.iter().map(|message| T::entry(to, *message)).collect();
            let reported = near.qp.post_send(&wrs);
            let reported = reported.err().map(|reported| (reported.index(), reported.error()));
            assert_eq!(reported, expected);
            return Ok(());
        }
        let mut batch = near.qp.wr_start();
        for message in &messages {
            T::send(&mut batch, to, *message);
        }
        if abort {
            batch.abort();
            return Ok(());
        }
        let reported = batch.complete().err().map(|reported| (reported.index(), reported.error()));
        match (spoilt, expected) {
            (true, None) => {
                let (index, error) = reported.ok_or("a batch with a bad request was posted")?;
                assert_eq!(index as usize, shapes.len());
                assert!(matches!(error, PostError::TooManySges { given: 64, .. }), "{error}");
            }
            (_, expected) => assert_eq!(reported, expected),
        }
        Ok(())
    }

    /// Polls for at most `most` completions, and compares them with the model.
    fn poll(&mut self, most: usize) -> Result<usize, Failed> {
        let mut found = Vec::new();
        self.ends.near.send_cq.poll(most, |one| {
            found.push((one.wr_id(), one.status(), one.cancelled()));
        })?;
        for (id, status, cancelled) in &found {
            let flushed = match status {
                Ok(()) => false,
                Err(error) if error.is_flushed() && self.failed => true,
                Err(error) => return Err(format!("request {id} failed: {error}").into()),
            };
            let ahead = self.outstanding().iter().position(|request| request.id == *id);
            let ahead = ahead.ok_or_else(|| format!("request {id} is not outstanding"))?;
            // The completion retires the requests before it, which must all be unsignaled.
            let skipped = &self.outstanding()[..ahead];
            assert!(skipped.iter().all(|request| !request.signaled), "before {id}: {skipped:?}");
            assert!(
                !self.posted[..self.retired].iter().any(|request| request.flushed)
                    || (flushed && ahead == 0),
                "after a flushed request all are flushed, one by one: {id}"
            );
            let request = &mut self.posted[self.retired + ahead];
            assert!(request.signaled || flushed, "request {id} asked for no completion");
            assert_eq!(request.cancelled, *cancelled, "request {id}");
            request.flushed = flushed;
            self.retired += ahead + 1;
        }
        assert_eq!(self.ends.near.qp.free_send_blocks(), self.free());
        Ok(found.len())
    }

    /// Checks the messages at the other side: they must be the first of the requests to execute, in
    /// order.
    fn collect(&mut self) -> Outcome {
        let mut slots = Vec::new();
        let cq = self.ends.far.completions();
        while cq.poll(64, |one| slots.push((one.wr_id(), one.is_success())))? > 0 {}
        self.waiting -= slots.len() as u32;
        for (wr_id, good) in slots {
            assert!(good, "receive {wr_id} failed");
            let mut id = [0; MESSAGE];
            self.ends.far.memory().read_at(slot(wr_id) + T::GRH, &mut id)?;
            self.arrived.push(u64::from_ne_bytes(id));
        }
        self.refill();
        let wanted = self.posted.iter().filter(|request| !request.cancelled && !request.flushed);
        let wanted: Vec<u64> = wanted.map(|request| request.id).collect();
        assert!(wanted.starts_with(&self.arrived), "{:?} of {wanted:?}", self.arrived);
        // Every request that completed successfully has arrived.
        let done = self.posted[..self.retired].iter();
        let done = done.filter(|request| !request.cancelled && !request.flushed).count();
        assert!(self.arrived.len() >= done, "{done} completed, but {:?} arrived", self.arrived);
        Ok(())
    }

    /// The proof of draining, if the queue is drained.
    fn drained(&self) -> Result<Option<Drained>, Failed> {
        match self.ends.near.qp.drained() {
            Ok(drained) => Ok(Some(drained)),
            Err(CancelError::NotDrained { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn cancel(&mut self, which: &[u8], all_or_nothing: bool) -> Outcome {
        let Some(drained) = self.drained()? else { return Ok(()) };
        let at = self.posted.iter().position(|request| request.first == drained.block());
        let stands = at.filter(|at| *at >= self.retired).unwrap_or(self.posted.len());
        let reported: Vec<u64> =
            self.ends.near.qp.pending(&drained)?.map(|request| request.wr_id).collect();
        let pending: Vec<u64> = self.posted[stands..].iter().map(|request| request.id).collect();
        assert_eq!(reported, pending);
        // Mostly of the last requests, so that many are pending; some were never posted.
        let wanted: Vec<u64> =
            which.iter().map(|n| self.next.saturating_sub(u64::from(n % 16))).collect();
        let mut missing: Vec<u64> =
            wanted.iter().copied().filter(|id| !pending.contains(id)).collect();
        missing.sort_unstable();
        missing.dedup();
        let mode = if all_or_nothing { CancelMode::AllOrNothing } else { CancelMode::BestEffort };
        let cancelled = match self.ends.near.qp.cancel_set(&drained, &wanted, mode) {
            Err(CancelError::NotPending(NotPending { wr_ids, .. })) => {
                assert!(all_or_nothing);
                assert_eq!(wr_ids, missing);
                return Ok(());
            }
            other => other?,
        };
        assert!(!all_or_nothing || missing.is_empty());
        let mut expected = Vec::new();
        for request in &mut self.posted[stands..] {
            if wanted.contains(&request.id) && !request.cancelled {
                request.cancelled = true;
                expected.push(request.id);
            }
        }
        let reported: Vec<u64> = cancelled.requests().iter().map(|request| request.wr_id).collect();
        assert_eq!(reported, expected);
        Ok(())
    }

    fn resume(&mut self) -> Outcome {
        let Some(old) = self.drained()? else { return Ok(()) };
        self.ends.near.qp.resume()?;
        assert!(matches!(self.ends.near.qp.cancel(&old, 0), Err(CancelError::Outdated)));
        Ok(())
    }

    fn start_over(&mut self) -> Outcome {
        let reset = QpAttributes::new().qp_state(QueueState::Reset);
        self.ends.near.qp.modify(&reset)?;
        // Completions from before the reset are still there, and must be polled before the queue
        // pair can start again.
        while self.poll(64)? > 0 {}
        self.collect()?;
        let kept = self.ends.far.start_over(&mut self.ends.near)?;
        self.posted.clear();
        self.arrived.clear();
        (self.retired, self.failed) = (0, false);
        if !kept {
            (self.receives, self.waiting) = (0, 0);
        }
        self.refill();
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Outcome {
        match step {
            Step::Post { shapes, list } => self.post(shapes, *list, false, false)?,
            Step::Abort(shapes) => self.post(shapes, false, false, true)?,
            Step::Spoilt(shapes) => self.post(shapes, false, true, false)?,
            Step::Run(units) => (0..*units).for_each(|_| _ = self.bed.step()),
            Step::Poll(most) => _ = self.poll(usize::from(*most))?,
            Step::Drain(after) => {
                if !self.failed {
                    let at = DrainAt::After(u32::from(*after));
                    let qpn = self.ends.near.qp.qp_num();
                    let reported = self.bed.simulator().drain_qp(0, qpn, at);
                    reported.map_err(|error| format!("{error:?}"))?;
                    self.bed.settle();
                }
            }
            Step::Cancel { which, all_or_nothing } => self.cancel(which, *all_or_nothing)?,
            Step::Resume => self.resume()?,
            Step::Fail => {
                self.ends.near.qp.modify(&QpAttributes::new().qp_state(QueueState::Error))?;
                self.failed = true;
            }
            Step::StartOver => self.start_over()?,
        }
        assert_eq!(self.ends.near.qp.free_send_blocks(), self.free());
        self.collect()
    }

    /// Lets all work finish, and checks that nothing is left.
    fn finish(&mut self) -> Outcome {
        self.resume()?;
        self.bed.settle();
        while self.poll(64)? > 0 {}
        self.resume()?;
        self.bed.settle();
        while self.poll(64)? > 0 {}
        self.collect()?;
        let expected = self.posted.iter().filter(|request| !request.cancelled && !request.flushed);
        let expected: Vec<u64> = expected.map(|request| request.id).collect();
        assert_eq!(self.arrived, expected, "every one that was not cancelled or flushed");
        let waiting = self.outstanding().iter().filter(|request| request.signaled).count();
        assert_eq!(waiting, 0, "every one that asked for a completion has it");
        Ok(())
    }
}

/// The offset of a receive's memory.
fn slot(wr_id: u64) -> usize {
    (wr_id % u64::from(SLOTS)) as usize * SLOT
}

fn execute<T: Path>(bed: &Bed, program: &[Step]) -> Outcome {
    let mut run = Run::<T>::new(bed)?;
    for step in program {
        run.step(step)?;
    }
    run.finish()
}

fn programs<T: Path>(bed: &Bed) -> Outcome {
    let steps = Cell::new(0);
    for seed in SEEDS {
        let config = Config { cases: PROGRAMS, failure_persistence: None, ..Config::default() };
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
        TestRunner::new_with_rng(config, rng)
            .run(&program(), |program| {
                steps.set(steps.get() + program.len());
                execute::<T>(bed, &program).map_err(|error| TestCaseError::fail(error.to_string()))
            })
            .map_err(|error| format!("with seed {seed}: {error}"))?;
    }
    assert!(steps.get() >= STEPS, "{} steps only", steps.get());
    Ok(())
}

fn every_request_is_executed_cancelled_or_flushed_once(bed: &Bed) -> Outcome {
    programs::<Rc>(bed)
}

fn every_unreliable_request_is_executed_cancelled_or_flushed_once(bed: &Bed) -> Outcome {
    programs::<Uc>(bed)
}

fn every_datagram_is_sent_cancelled_or_flushed_once(bed: &Bed) -> Outcome {
    programs::<Ud>(bed)
}

fn every_extended_request_is_executed_cancelled_or_flushed_once(bed: &Bed) -> Outcome {
    programs::<XrcSend>(bed)
}
