//! A queue, a device that walks the ring by its bytes alone, and a model of both. In the model each
//! request is executed, skipped as cancelled, or flushed, exactly once.

use crate::bed::{Bed, Spec};
use crate::by_hand::{Given, Kind, Op, Wqe, pattern, sges};
use crate::extras::{Extra, ExtraKind};
use mlx5_wqe::{
    Batch, Mode, NotPending, PendingRequest, PostError, Rc, SendFlags, SendWr, Sge, Uc, Ud, XrcSend,
};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use std::collections::VecDeque;

/// Configures proptest to run `cases` cases, always the same ones.
pub(crate) fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(0x6d6c_7835),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// A plan of a request. Numbers that exceed the limits of the queue are reduced to fit.
#[derive(Clone, Copy, Debug)]
struct Shape {
    wr_id: u8,
    op: u8,
    /// Entries, or units of inline data.
    units: u8,
    inline: bool,
    flags: SendFlags,
    /// An operation of fixed size instead, if the transport has any.
    extra: Option<u8>,
}

fn shape() -> impl Strategy<Value = Shape> {
    let units = prop_oneof![3 => 0..4u8, 2 => 0..16u8, 1 => 0..62u8];
    let flags = prop_oneof![2 => Just(true), 1 => Just(false)];
    let others = (any::<bool>(), any::<bool>(), prop::option::weighted(0.3, any::<u8>()));
    (0..10u8, 0..6u8, units, any::<bool>(), flags, others).prop_map(
        |(wr_id, op, units, inline, signaled, (solicited, fenced, extra))| {
            let mut flags = SendFlags::empty();
            flags.set(SendFlags::SIGNALED, signaled);
            flags.set(SendFlags::SOLICITED, solicited);
            flags.set(SendFlags::FENCE, fenced);
            Shape { wr_id, op, units, inline, flags, extra }
        },
    )
}

/// The way in which requests are handed over.
#[derive(Clone, Copy, Debug)]
enum Form {
    Complete,
    List,
    Abort,
    Drop,
    /// A request that is refused comes last.
    Bad,
}

/// An action while the queue is drained.
#[derive(Clone, Debug)]
enum Act {
    Id(u8),
    Set(Vec<u8>, bool),
    Where(u8),
    Post(Vec<Shape>, Form),
    Poll(u8),
}

#[derive(Clone, Debug)]
enum Step {
    Post(Vec<Shape>, Form),
    Execute(u8),
    Poll(u8),
    Drain(u8, Vec<Act>),
    /// The queue pair goes to error, its requests are flushed, and it is reset.
    Fail {
        poll: bool,
    },
    /// The queue is filled and emptied for some laps.
    Laps(u8, Vec<Shape>),
}

fn shapes() -> impl Strategy<Value = Vec<Shape>> {
    prop::collection::vec(shape(), 1..7)
}

fn form() -> impl Strategy<Value = Form> {
    prop_oneof![
        4 => Just(Form::Complete),
        4 => Just(Form::List),
        1 => Just(Form::Abort),
        1 => Just(Form::Drop),
        1 => Just(Form::Bad),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        (0..10u8).prop_map(Act::Id),
        (prop::collection::vec(0..12u8, 0..5), any::<bool>())
            .prop_map(|(ids, all)| Act::Set(ids, all)),
        any::<u8>().prop_map(Act::Where),
        (shapes(), form()).prop_map(|(shapes, form)| Act::Post(shapes, form)),
        (1..4u8).prop_map(Act::Poll),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (shapes(), form()).prop_map(|(shapes, form)| Step::Post(shapes, form)),
        4 => (1..12u8).prop_map(Step::Execute),
        4 => (1..12u8).prop_map(Step::Poll),
        4 => (0..12u8, prop::collection::vec(act(), 1..6)).prop_map(|(n, acts)| Step::Drain(n, acts)),
        1 => any::<bool>().prop_map(|poll| Step::Fail { poll }),
        1 => (1..30u8, shapes()).prop_map(|(laps, shapes)| Step::Laps(laps, shapes)),
    ]
}

/// A request that was posted and not retired.
struct Posted {
    number: usize,
    wr_id: u64,
    first: u16,
    blocks: u16,
    code: u8,
    signaled: bool,
    cancelled: bool,
    wqe: Wqe,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Fate {
    Executed,
    Cancelled,
    Flushed,
}

struct World<T> {
    bed: Bed<T>,
    sges: Vec<Sge>,
    bytes: Vec<u8>,
    /// The requests that are not retired, in posting order.
    outstanding: VecDeque<Posted>,
    /// Number of outstanding requests that the device has executed.
    executed: usize,
    /// The block at which the device stopped.
    stands: u16,
    /// CQEs that the device has written and that were not polled.
    completions: VecDeque<u16>,
    /// The fate of every request that was ever posted.
    fates: Vec<Option<Fate>>,
    head: u16,
    /// Whether the next request waits for the last one.
    waits: bool,
}

impl<T: ExtraKind> World<T> {
    fn new(requests: u32) -> Self {
        let head = T::OPS.iter().map(|&op| T::head(op)).max().unwrap();
        let most = (63 - head / 16) as u32;
        let bed = Bed::<T>::new(Spec { requests, sges: most, ..Spec::default() });
        assert_eq!(bed.layout.max_request_blocks, 16);
        let (sges, bytes) = (sges(most as usize), pattern(bed.layout.max_inline as usize));
        Self {
            bed,
            sges,
            bytes,
            outstanding: VecDeque::new(),
            executed: 0,
            stands: 0,
            completions: VecDeque::new(),
            fates: vec![],
            head: 0,
            waits: false,
        }
    }

    /// The requests that can be posted, one for each shape.
    fn plan(&self, shapes: &[Shape]) -> Vec<Planned> {
        let plan = |(i, shape): (usize, &Shape)| {
            let op = T::OPS[usize::from(shape.op) % T::OPS.len()];
            let units = usize::from(shape.units).min(self.sges.len());
            let inline = shape.inline && op != Op::Read;
            let number = (self.fates.len() + i) as u64;
            let mut sges = self.sges[..units].to_vec();
            let mut bytes = self.bytes[..(units * 16).saturating_sub(4)].to_vec();
            // No two requests are the same.
            if let Some(sge) = sges.first_mut() {
                sge.addr = number;
            }
            if let Some(start) = bytes.first_chunk_mut() {
                *start = number.to_be_bytes();
            }
            let extra = shape.extra.filter(|_| !T::EXTRAS.is_empty());
            let extra = extra.map(|extra| T::EXTRAS[usize::from(extra) % T::EXTRAS.len()]);
            let means = extra.map_or(op.flags(), Extra::flags);
            let flags = shape.flags.intersection(<T as Kind>::FLAGS).intersection(means);
            Planned { wr_id: shape.wr_id.into(), op, flags, inline, sges, bytes, extra, number }
        };
        shapes.iter().enumerate().map(plan).collect()
    }

    /// Whether the queue must take a request of `blocks` blocks, after those of a batch.
    fn verdict(
        &self,
        pending: &[(u32, bool)],
        blocks: u32,
        signaled: bool,
    ) -> Result<(), PostError> {
        let all = self.outstanding.iter().map(|posted| (u32::from(posted.blocks), posted.signaled));
        let all: Vec<_> = all.chain(pending.iter().copied()).collect();
        let used: u32 = all.iter().map(|&(blocks, _)| blocks).sum();
        let free = self.bed.layout.blocks - used;
        if blocks > free {
            return Err(PostError::QueueFull { free, needed: blocks });
        }
        let run: u32 =
            all.iter().rev().take_while(|(_, signaled)| !signaled).map(|&(b, _)| b).sum();
        if !signaled && run + blocks + self.bed.layout.max_request_blocks > self.bed.layout.blocks {
            return Err(PostError::UnsignaledRun);
        }
        Ok(())
    }

    /// Posts requests, and adds to the model those that must have been posted. Returns their
    /// number.
    fn post(&mut self, shapes: &[Shape], form: Form) -> usize {
        let planned = self.plan(shapes);
        let mut taken: Vec<(u32, bool)> = vec![];
        let mut refusal = None;
        for plan in &planned {
            let blocks = plan.by_hand::<T>(0, 0).blocks() as u32;
            let signaled = plan.flags.contains(SendFlags::SIGNALED);
            match self.verdict(&taken, blocks, signaled) {
                Ok(()) => taken.push((blocks, signaled)),
                Err(error) => {
                    refusal = Some((taken.len() as u32, error));
                    break;
                }
            }
        }
        if let Form::List = form {
            let mut rooms: Vec<Room<'_>> = planned.iter().map(|_| Default::default()).collect();
            let list: Vec<SendWr<'_>> =
                planned.iter().zip(&mut rooms).map(|(p, room)| p.list_form(room)).collect();
            let error = self.bed.queue.post_send(&list).err().map(|e| (e.index(), e.error()));
            assert_eq!(error, refusal);
        } else {
            let mut batch = self.bed.queue.wr_start();
            for plan in &planned {
                plan.build(&mut batch);
            }
            assert_eq!(batch.len(), taken.len());
            match form {
                Form::Abort => batch.abort(),
                Form::Drop => drop(batch),
                Form::Bad => {
                    let long = Sge { addr: 0, length: 1 << 31, lkey: 0 };
                    T::build(&mut batch, 0, SendFlags::SIGNALED, Op::Send, Given::Sge(long));
                    let long = PostError::SgeTooLong { index: 0, length: 1 << 31 };
                    let expected = refusal.unwrap_or((taken.len() as u32, long));
                    let error = batch.complete().unwrap_err();
                    assert_eq!((error.index(), error.error()), expected);
                }
                Form::Complete | Form::List => {
                    let error = batch.complete().err().map(|e| (e.index(), e.error()));
                    assert_eq!(error, refusal);
                }
            }
            if refusal.is_some() || !matches!(form, Form::Complete) {
                taken.clear();
            }
        }
        for (plan, &(blocks, signaled)) in planned.iter().zip(&taken) {
            let fenced = plan.flags.contains(SendFlags::FENCE);
            let control = if signaled { 0x08 } else { 0 }
                | if plan.flags.contains(SendFlags::SOLICITED) { 0x02 } else { 0 }
                | if fenced { 0x80 } else { 0 }
                | if self.waits && !fenced { 0x20 } else { 0 };
            self.waits = plan.extra.is_some_and(Extra::is_waited_for);
            self.outstanding.push_back(Posted {
                number: self.fates.len(),
                wr_id: plan.wr_id,
                first: self.head,
                blocks: blocks as u16,
                code: plan.extra.map_or(plan.op.code(), Extra::code),
                signaled,
                cancelled: false,
                wqe: plan.by_hand::<T>(self.head, control),
            });
            self.fates.push(None);
            self.head = self.head.wrapping_add(blocks as u16);
        }
        taken.len()
    }

    fn settle(&mut self, number: usize, fate: Fate) {
        assert_eq!(self.fates[number].replace(fate), None, "request {number}");
    }

    /// The device executes one request, if the record counts one more.
    fn execute(&mut self) -> bool {
        if u32::from(self.stands) == self.bed.producer() {
            assert_eq!(self.executed, self.outstanding.len());
            return false;
        }
        // The device knows only its position and the bytes there.
        let control = self.bed.at_block(self.stands.into(), 16);
        assert_eq!(control[1..3], self.stands.to_be_bytes());
        let (units, completes) = (control[7] & 0x3f, control[11] & 0x0c == 8);
        let found = self.bed.at_block(self.stands.into(), usize::from(units) * 16);
        let posted = &self.outstanding[self.executed];
        let fate = if posted.cancelled { Fate::Cancelled } else { Fate::Executed };
        assert_eq!((posted.first, posted.signaled), (self.stands, completes));
        if posted.cancelled {
            posted.wqe.clone().nop().assert_eq(&found);
        } else {
            posted.wqe.assert_eq(&found);
        }
        if completes {
            self.completions.push_back(self.stands);
        }
        self.stands = self.stands.wrapping_add(u16::from(units).div_ceil(4));
        self.settle(posted.number, fate);
        self.executed += 1;
        true
    }

    /// Polls a completion, if there is one.
    fn poll(&mut self) -> bool {
        let Some(block) = self.completions.pop_front() else { return false };
        // A completion with a wrong counter retires nothing.
        assert_eq!(self.bed.records.retire(self.head), None);
        let completed = self.bed.records.retire(block).unwrap();
        assert_eq!(self.bed.records.retire(block), None);
        loop {
            let posted = self.outstanding.pop_front().unwrap();
            self.executed -= 1;
            if posted.first == block {
                assert_eq!(completed.wr_id, posted.wr_id);
                assert_eq!(completed.info.first(), posted.first);
                assert_eq!(completed.info.blocks(), posted.blocks);
                assert_eq!(completed.info.cancelled(), posted.cancelled);
                assert_eq!(completed.info.opcode_bits(), posted.code);
                assert_eq!(completed.info.signaled(), posted.signaled);
                return true;
            }
        }
    }

    fn drain(&mut self, acts: &[Act]) {
        let window = self.bed.layout.blocks as u16 + 3;
        for counter in (0..2 * window).map(|i| self.head.wrapping_sub(window).wrapping_add(i)) {
            let boundary = counter == self.head
                || self.outstanding.iter().any(|posted| posted.first == counter);
            assert_eq!(self.bed.queue.drain_point(counter).is_some(), boundary, "{counter}");
        }
        let point = self.bed.queue.drain_point(self.stands).unwrap();
        assert_eq!(point.block(), self.stands);
        for act in acts {
            self.check_pending(point);
            match act {
                Act::Id(id) => {
                    let id = u64::from(*id);
                    // SAFETY: the device of this test stopped at `point`.
                    let cancelled = unsafe { self.bed.queue.cancel(point, id) };
                    self.cancelled(cancelled.requests(), |posted| posted.wr_id == id);
                }
                Act::Set(ids, all_or_nothing) => {
                    let ids: Vec<_> = ids.iter().map(|&id| u64::from(id)).collect();
                    let mode = if *all_or_nothing { Mode::AllOrNothing } else { Mode::BestEffort };
                    // SAFETY: the device of this test stopped at `point`.
                    let result = unsafe { self.bed.queue.cancel_set(point, &ids, mode) };
                    let mut missing = ids.clone();
                    missing.retain(|id| self.pending().all(|posted| posted.wr_id != *id));
                    missing.sort_unstable();
                    missing.dedup();
                    if *all_or_nothing && !missing.is_empty() {
                        assert_eq!(result, Err(NotPending { wr_ids: missing }));
                    } else {
                        let cancelled = result.unwrap();
                        self.cancelled(cancelled.requests(), |posted| ids.contains(&posted.wr_id));
                    }
                }
                Act::Where(what) => {
                    let wanted = |first: u16, blocks: u16, signaled: bool| match what % 5 {
                        0 => true,
                        1 => signaled,
                        2 => blocks > 1,
                        3 => first & 1 == 1,
                        _ => false,
                    };
                    // SAFETY: the device of this test stopped at `point`.
                    let cancelled = unsafe {
                        self.bed.queue.cancel_where(point, |PendingRequest { info, .. }| {
                            wanted(info.first(), info.blocks(), info.signaled())
                        })
                    };
                    self.cancelled(cancelled.requests(), |posted| {
                        wanted(posted.first, posted.blocks, posted.signaled)
                    });
                }
                Act::Post(shapes, form) => {
                    self.post(shapes, *form);
                }
                Act::Poll(count) => {
                    (0..*count).for_each(|_| {
                        self.poll();
                    });
                }
            }
        }
        self.check_pending(point);
    }

    fn pending(&self) -> impl Iterator<Item = &Posted> {
        self.outstanding.iter().skip(self.executed)
    }

    fn check_pending(&self, point: mlx5_wqe::DrainPoint) {
        let tell = |wr_id, first, cancelled| (wr_id, first, cancelled);
        let expected = self.pending().map(|p| tell(p.wr_id, p.first, p.cancelled));
        let found = self.bed.queue.pending(point);
        assert!(expected.eq(found.map(|r| tell(r.wr_id, r.info.first(), r.info.cancelled()))));
    }

    /// Asserts that the answer has exactly the pending requests that are `wanted` and were not
    /// cancelled before, in order.
    fn cancelled(&mut self, answer: &[PendingRequest], wanted: impl Fn(&Posted) -> bool) {
        let mut answer = answer.iter();
        for posted in self.outstanding.iter_mut().skip(self.executed) {
            // A NOP is not cancelled.
            if wanted(posted) && !posted.cancelled && posted.code != 0 {
                let told = answer.next().unwrap();
                assert_eq!((told.wr_id, told.info.first()), (posted.wr_id, posted.first));
                assert!(!told.info.cancelled());
                posted.cancelled = true;
            }
        }
        assert_eq!(answer.next(), None);
    }

    /// The device flushes every pending request with a completion. The completions are polled, or
    /// lost with the completion queue.
    fn fail(&mut self, poll: bool) {
        for i in self.executed..self.outstanding.len() {
            let (number, first) = (self.outstanding[i].number, self.outstanding[i].first);
            self.settle(number, Fate::Flushed);
            self.completions.push_back(first);
        }
        self.executed = self.outstanding.len();
        if poll {
            while self.poll() {}
        }
        self.outstanding.clear();
        self.completions.clear();
        (self.executed, self.stands, self.head, self.waits) = (0, 0, 0, false);
        self.bed.queue.reset();
    }

    fn laps(&mut self, laps: u8, shapes: &[Shape]) {
        let mut blocks = 0;
        for shape in shapes.iter().cycle() {
            if blocks > u32::from(laps) * self.bed.layout.blocks {
                break;
            }
            let before = self.head;
            if self.post(&[*shape], Form::Complete) == 0 {
                while self.execute() {}
                while self.poll() {}
                let signaled = Shape { flags: shape.flags | SendFlags::SIGNALED, ..*shape };
                assert_eq!(self.post(&[signaled], Form::List), 1);
            }
            blocks += u32::from(self.head.wrapping_sub(before));
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Post(shapes, form) => {
                self.post(shapes, *form);
            }
            Step::Execute(count) => (0..*count).for_each(|_| {
                self.execute();
            }),
            Step::Poll(count) => (0..*count).for_each(|_| {
                self.poll();
            }),
            Step::Drain(count, acts) => {
                (0..*count).for_each(|_| {
                    self.execute();
                });
                self.drain(acts);
            }
            Step::Fail { poll } => self.fail(*poll),
            Step::Laps(laps, shapes) => self.laps(*laps, shapes),
        }
        assert_eq!(self.bed.queue.producer(), self.head);
        assert_eq!(self.bed.producer(), u32::from(self.head));
        let used: u32 = self.outstanding.iter().map(|posted| u32::from(posted.blocks)).sum();
        assert_eq!(self.bed.queue.free_blocks(), self.bed.layout.blocks - used);
    }

    /// Lets the device finish, and checks the outcome of every request.
    fn finish(mut self) {
        while self.execute() {}
        while self.poll() {}
        assert!(self.outstanding.iter().all(|posted| !posted.signaled));
        assert!(self.fates.iter().all(|fate| fate.is_some()));
    }
}

struct Planned {
    wr_id: u64,
    op: Op,
    flags: SendFlags,
    inline: bool,
    sges: Vec<Sge>,
    bytes: Vec<u8>,
    extra: Option<Extra>,
    number: u64,
}

/// Memory that a request of the list form borrows from.
type Room<'a> = (([Sge; 1], [&'a [u8]; 1]), (Vec<u8>, [Sge; 1]));

impl Planned {
    fn by_hand<T: ExtraKind>(&self, index: u16, control: u8) -> Wqe {
        match self.extra {
            Some(extra) => extra.by_hand::<T>(index, control, self.number),
            None => T::by_hand(index, control, self.op, self.given()),
        }
    }

    fn build<T: ExtraKind>(&self, batch: &mut Batch<'_, T>) {
        match self.extra {
            Some(extra) => T::build_extra(batch, self.wr_id, self.flags, extra, self.number),
            None => T::build(batch, self.wr_id, self.flags, self.op, self.given()),
        }
    }

    fn list_form<'a>(&'a self, room: &'a mut Room<'a>) -> SendWr<'a> {
        let Self { wr_id, flags, op, number, .. } = *self;
        match self.extra {
            Some(extra) => extra.list_form(wr_id, flags, number, &mut room.1),
            None => crate::by_hand::list_form(wr_id, flags, op, self.given(), &mut room.0),
        }
    }

    fn given(&self) -> Given<'_> {
        if self.inline { Given::Inline(&self.bytes) } else { Given::List(&self.sges) }
    }
}

fn run<T: ExtraKind>(requests: u32, steps: &[Step]) {
    let mut world = World::<T>::new(requests);
    for step in steps {
        world.step(step);
    }
    world.finish();
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..150)
}

proptest! {
    #![proptest_config(config(24))]

    #[test]
    fn a_reliable_connection_agrees_with_the_model(requests in 1..9u32, steps in steps()) {
        run::<Rc>(requests, &steps);
    }

    #[test]
    fn an_extended_connection_agrees_with_the_model(requests in 1..9u32, steps in steps()) {
        run::<XrcSend>(requests, &steps);
    }

    #[test]
    fn an_unreliable_connection_agrees_with_the_model(requests in 1..9u32, steps in steps()) {
        run::<Uc>(requests, &steps);
    }

    #[test]
    fn a_datagram_queue_agrees_with_the_model(requests in 1..9u32, steps in steps()) {
        run::<Ud>(requests, &steps);
    }
}

/// A few sizes, until the 16-bit counters have wrapped several times.
#[test]
fn thousands_of_laps_agree_with_the_model() {
    let mut world = World::<Rc>::new(1);
    let shape = |wr_id, units, signaled| Shape {
        wr_id,
        op: wr_id,
        units,
        inline: wr_id & 1 == 1,
        flags: if signaled { SendFlags::SIGNALED } else { SendFlags::empty() },
        extra: None,
    };
    let shapes =
        [(0, 61, true), (1, 30, true), (2, 7, true), (3, 44, true), (4, 2, false), (5, 53, true)]
            .map(|(wr_id, units, signaled)| shape(wr_id, units, signaled));
    for turn in 0..50u8 {
        world.laps(200, &shapes);
        while world.execute() {}
        world.post(&shapes[usize::from(turn) % 6..], Form::List);
        world.drain(&[Act::Set(vec![1, 2, 4], false), Act::Id(3), Act::Where(turn)]);
    }
    world.finish();
}

/// Numbers that look random and are the same for the same seed (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, end: u8) -> u8 {
        (self.next() % u64::from(end)) as u8
    }

    fn one_in(&mut self, times: u8) -> bool {
        self.below(times) == 0
    }

    fn shape(&mut self) -> Shape {
        let mut flags = SendFlags::empty();
        flags.set(SendFlags::SIGNALED, !self.one_in(3));
        flags.set(SendFlags::SOLICITED, self.one_in(2));
        flags.set(SendFlags::FENCE, self.one_in(4));
        let most = if self.one_in(4) { 62 } else { 6 };
        Shape {
            wr_id: self.below(10),
            op: self.below(6),
            units: self.below(most),
            inline: self.one_in(2),
            flags,
            extra: self.one_in(3).then(|| self.below(255)),
        }
    }

    fn shapes(&mut self) -> Vec<Shape> {
        (0..=self.below(4)).map(|_| self.shape()).collect()
    }

    fn form(&mut self) -> Form {
        match self.below(11) {
            0..4 => Form::Complete,
            4..8 => Form::List,
            8 => Form::Abort,
            9 => Form::Drop,
            _ => Form::Bad,
        }
    }

    fn act(&mut self) -> Act {
        match self.below(5) {
            0 => Act::Id(self.below(10)),
            1 => Act::Set((0..self.below(5)).map(|_| self.below(12)).collect(), self.one_in(2)),
            2 => Act::Where(self.below(255)),
            3 => Act::Post(self.shapes(), self.form()),
            _ => Act::Poll(self.below(4)),
        }
    }

    fn step(&mut self) -> Step {
        match self.below(40) {
            0..18 => Step::Post(self.shapes(), self.form()),
            18..27 => Step::Execute(1 + self.below(8)),
            27..36 => Step::Poll(1 + self.below(8)),
            36..39 => Step::Drain(self.below(8), (0..=self.below(4)).map(|_| self.act()).collect()),
            _ => Step::Fail { poll: self.one_in(2) },
        }
    }
}

/// Steps of all transports together.
const STEPS: u32 = 100_000;
/// Number of steps of one queue.
const LIFE: u32 = 500;

/// Random programs on every transport. `MLX5_SEED` repeats the program that failed, on all four.
#[test]
fn a_hundred_thousand_random_steps_agree_with_the_model() {
    fn program<T: ExtraKind>(seed: u64) -> u32 {
        println!("MLX5_SEED={seed}");
        let mut numbers = Numbers(seed);
        let mut world = World::<T>::new(1 + u32::from(numbers.below(4)));
        for _ in 0..LIFE {
            let step = numbers.step();
            world.step(&step);
        }
        world.finish();
        LIFE
    }
    let transports = [program::<Rc>, program::<XrcSend>, program::<Uc>, program::<Ud>];
    if let Ok(seed) = std::env::var("MLX5_SEED") {
        let seed = seed.parse().expect("MLX5_SEED is a number");
        transports.iter().for_each(|program| _ = program(seed));
        return;
    }
    let mut steps = 0;
    for seed in 0.. {
        steps += transports[(seed % 4) as usize](seed);
        if steps >= STEPS {
            return;
        }
    }
}
