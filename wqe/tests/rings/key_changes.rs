//! The ends of key changes, in random programs of requests that are posted, aborted, leaked,
//! refused, executed, failed, cancelled and reset. Each change ends once, as its request did, and
//! in the same way whether the key is kept or shared.

use crate::bed::{Bed, Spec};
use crate::by_hand::sges;
use mlx5_wqe::{
    Change, ChangeObserver, ConfigureMkey, ConfiguresMkeys, Finished, KeptObserver, MkeyLayout,
    MkeyRequest, MkeyUpdate, PostError, QueueState, Rc, SendFlags, Sge,
};
use std::mem::forget;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

const SIGNALED: SendFlags = SendFlags::SIGNALED;

/// The end of a change of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Pending,
    Undone,
    Settled,
    Lost,
}

#[derive(Default)]
struct Key(Mutex<Vec<Fate>>);

impl Key {
    /// Notes a change that a request makes. Returns its number.
    fn ask(&self) -> u64 {
        let mut fates = self.0.lock().unwrap();
        fates.push(Fate::Pending);
        fates.len() as u64 - 1
    }

    fn end(&self, change: u64, fate: Fate) {
        let mut fates = self.0.lock().unwrap();
        let slot = &mut fates[change as usize];
        assert_eq!(std::mem::replace(slot, fate), Fate::Pending, "it ends once");
    }

    fn fates(&self) -> Vec<Fate> {
        self.0.lock().unwrap().clone()
    }
}

impl ChangeObserver for Key {
    fn undo(&self, change: u64) {
        self.end(change, Fate::Undone);
    }

    fn settle(&self, change: u64) {
        self.end(change, Fate::Settled);
    }

    fn mark_unknown(&self, change: u64) {
        self.end(change, Fate::Lost);
    }
}

/// A change holds a count of the key, and drops it when it ends.
impl KeptObserver for Key {
    unsafe fn undo(this: NonNull<Self>, change: u64) {
        // SAFETY: the caller promises that the change has not ended, so it still holds its count.
        unsafe { Arc::from_raw(this.as_ptr()) }.end(change, Fate::Undone);
    }

    unsafe fn settle(this: NonNull<Self>, changes: &[u64]) {
        assert!(changes.is_sorted_by(|a, b| a < b), "in posting order: {changes:?}");
        for change in changes {
            // SAFETY: the caller promises that no change has ended, so each still holds its count.
            unsafe { Arc::from_raw(this.as_ptr()) }.end(*change, Fate::Settled);
        }
    }

    unsafe fn mark_unknown(this: NonNull<Self>, change: u64) {
        // SAFETY: the caller promises that the change has not ended, so it still holds its count.
        unsafe { Arc::from_raw(this.as_ptr()) }.end(change, Fate::Lost);
    }
}

/// A list for a key.
#[derive(Clone, Copy)]
struct List<'a> {
    key: &'a Arc<Key>,
    pieces: &'a [Sge],
    /// Whether the key is kept; otherwise its changes share ownership of it.
    kept: bool,
}

impl List<'_> {
    fn changed(&self) -> (u32, Change) {
        let number = self.key.ask();
        if !self.kept {
            return (0x1234_5600, Change::new(Arc::clone(self.key), number));
        }
        let count = NonNull::new(Arc::into_raw(Arc::clone(self.key)).cast_mut()).unwrap();
        // SAFETY: the number is new, and the change holds a count of the key.
        (0x1234_5600, unsafe { Change::of_kept(count, number) })
    }
}

impl ConfigureMkey for List<'_> {
    fn configure<'q, T: ConfiguresMkeys>(self, request: MkeyRequest<'q, T>) -> Finished<'q> {
        match MkeyLayout::List(self.pieces).sized() {
            Ok(layout) => {
                let layout = Some(layout);
                let update = MkeyUpdate { capacity: 48, access: None, layout, signing: None };
                request.build(update, || self.changed())
            }
            Err(error) => request.refuse(error),
        }
    }
}

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 20) % sides as u64) as usize
    }
}

/// A request: its first block, its identifier, and the key and number of its change, if it
/// configures a key.
#[derive(Clone, PartialEq, Debug)]
struct Posted {
    first: u16,
    wr_id: u64,
    change: Option<(usize, usize)>,
}

/// A queue, its outstanding requests, and the expected end of each change of each key.
struct Side {
    bed: Bed<Rc>,
    keys: Vec<Arc<Key>>,
    outstanding: Vec<Posted>,
    ends: Vec<Vec<Fate>>,
    /// A request failed, so it is unknown whether the requests whose ends are reported together
    /// were executed.
    failed: bool,
    kept: bool,
}

impl Side {
    fn new(kept: bool, keys: usize) -> Self {
        let bed = Bed::new(Spec { requests: 64, sges: 2, ..Spec::default() });
        let ends = vec![Vec::new(); keys];
        let keys = (0..keys).map(|_| Arc::default()).collect();
        Self { bed, keys, outstanding: Vec::new(), ends, failed: false, kept }
    }

    /// Notes the expected end of the changes of these requests.
    fn end(&mut self, requests: &[Posted], fate: Fate) {
        for (key, number) in requests.iter().filter_map(|request| request.change) {
            if self.ends[key][number] == Fate::Pending {
                self.ends[key][number] = fate;
            }
        }
    }

    /// Asserts that no change ended in another way than its request. A change may be pending still,
    /// because a queue reports ends late.
    fn check(&self, what: &str) {
        for (fates, ends) in self.fates().iter().zip(&self.ends) {
            assert_eq!(fates.len(), ends.len(), "{what}");
            let late = |(fate, end): (&Fate, &Fate)| fate == end || *fate == Fate::Pending;
            assert!(fates.iter().zip(ends).all(late), "{what}: {fates:?}, not {ends:?}");
        }
    }

    /// Asserts that every change has its expected end.
    fn check_all(&self, what: &str) {
        assert_eq!(self.fates(), self.ends, "{what}");
    }

    fn fates(&self) -> Vec<Vec<Fate>> {
        self.keys.iter().map(|key| key.fates()).collect()
    }

    /// Builds a batch, and completes it, drops it, or leaks it.
    fn batch(&mut self, dice: &mut Dice, list: &[Sge]) {
        let mut long = list[..5].to_vec();
        long[4].length = u32::MAX;
        let (mut at, mut requests) = (self.bed.queue.producer(), Vec::new());
        let mut batch = self.bed.queue.wr_start();
        for _ in 0..[1, 1, 1, 2, 3][dice.roll(5)] {
            let (first, wr_id) = (at, dice.roll(4) as u64);
            let mut change = None;
            let count = dice.roll(9);
            let which = dice.roll(self.keys.len());
            let key = &self.keys[which];
            let what = dice.roll(12);
            let pieces = if what == 0 { &long[..] } else { &list[..count] };
            if what < 9 {
                let kept = self.kept;
                batch.wr(wr_id, SIGNALED).mkey_configure(List { key, pieces, kept });
                at = at.wrapping_add(2 + pieces.len().div_ceil(4) as u16);
                // A refused request makes no change.
                let (ends, asked) = (&mut self.ends[which], key.fates().len());
                if asked != ends.len() {
                    change = Some((which, ends.len()));
                    ends.push(Fate::Pending);
                }
            } else {
                batch.wr(wr_id, SIGNALED).send().sge(list[0]);
                at = at.wrapping_add(1);
            }
            requests.push(Posted { first, wr_id, change });
        }
        let leaked = match dice.roll(8) {
            0 => {
                drop(batch);
                false
            }
            1 => {
                forget(batch);
                true
            }
            _ => match batch.complete() {
                Ok(()) => return self.outstanding.append(&mut requests),
                Err(_) => false,
            },
        };
        self.end(&requests, Fate::Undone);
        if !leaked {
            for (key, number) in requests.iter().filter_map(|request| request.change) {
                assert_eq!(self.keys[key].fates()[number], Fate::Undone, "at once");
            }
        }
    }

    /// Executes some requests.
    fn execute(&mut self, dice: &mut Dice, failed: bool) {
        let count = dice.roll(self.outstanding.len() + 1);
        let executed: Vec<_> = self.outstanding.drain(..count).collect();
        let Some(last) = executed.last() else { return };
        self.bed.records.retire_any(last.first, failed).expect("it is outstanding");
        if failed {
            self.failed = true;
            // Changes of requests that were executed before are lost too, if their end was not
            // reported yet.
            let fates = self.fates();
            for (end, fate) in self.ends.iter_mut().flatten().zip(fates.into_iter().flatten()) {
                if fate == Fate::Pending && *end == Fate::Settled {
                    *end = Fate::Lost;
                }
            }
        }
        self.end(&executed, if self.failed { Fate::Lost } else { Fate::Settled });
    }

    /// The changes of outstanding requests are lost when the queue is reset or dropped.
    fn lose(&mut self) {
        let outstanding = std::mem::take(&mut self.outstanding);
        self.end(&outstanding, Fate::Lost);
        self.failed = false;
    }

    fn cancel(&mut self, dice: &mut Dice) {
        let Some(first) = self.outstanding.first() else { return };
        let drained = self.bed.queue.drain_point(first.first).unwrap();
        let wr_id = dice.roll(4) as u64;
        // SAFETY: no device reads the ring.
        unsafe { self.bed.queue.cancel(drained, wr_id) };
        let mut cancelled = self.outstanding.clone();
        cancelled.retain(|request| request.wr_id == wr_id);
        self.end(&cancelled, Fate::Undone);
        for (key, number) in cancelled.iter().filter_map(|request| request.change) {
            assert_eq!(self.keys[key].fates()[number], Fate::Undone, "at once");
        }
    }

    fn step(&mut self, dice: &mut Dice, list: &[Sge]) {
        match dice.roll(40) {
            0..24 => self.batch(dice, list),
            24..37 => self.execute(dice, false),
            37 => self.cancel(dice),
            38 => self.execute(dice, true),
            _ => {
                self.bed.queue.reset();
                self.lose();
                self.check_all("after a reset");
            }
        }
    }
}

#[test]
fn random_changes_have_the_fate_of_their_requests() {
    let list = sges(9);
    let mut ends = [0; 4];
    for seed in 1..=if cfg!(miri) { 3 } else { 150_u64 } {
        let keys = [1, 2, 5, 9][seed as usize % 4];
        let mut sides = [false, true].map(|kept| Side::new(kept, keys));
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        for step in 0..200 {
            let seed = dice.0;
            for side in &mut sides {
                dice.0 = seed;
                side.step(&mut dice, &list);
            }
            let [first, rest @ ..] = &sides;
            first.check(&format!("seed {seed}, step {step}"));
            for side in rest {
                let what = format!("seed {seed}, step {step}, {}", side.kept);
                assert_eq!(side.fates(), first.fates(), "{what}");
                assert_eq!(side.outstanding, first.outstanding, "{what}");
                assert_eq!(side.bed.queue.producer(), first.bed.queue.producer(), "{what}");
            }
        }
        for mut side in sides {
            side.lose();
            let Side { bed, keys, ends: expected, .. } = side;
            drop(bed);
            let fates: Vec<_> = keys.iter().map(|key| key.fates()).collect();
            assert_eq!(fates, expected, "each ended with the queue");
            for key in keys {
                let key = Arc::into_inner(key).expect("no change has a count of it");
                for fate in key.0.into_inner().unwrap() {
                    assert_ne!(fate, Fate::Pending);
                    ends[fate as usize] += 1;
                }
            }
        }
    }
    assert!(cfg!(miri) || ends[1..].iter().all(|end| *end > 500), "{ends:?}");
}

/// A queue that posted three lists for its only key, two of which were executed, and leaked the
/// batch of a fourth one.
fn two_of_three_executed(kept: bool) -> Side {
    let list = sges(3);
    let mut side = Side::new(kept, 1);
    let mut blocks = Vec::new();
    for posted in [true, true, true, false] {
        blocks.push(side.bed.queue.producer());
        let list = List { key: &side.keys[0], pieces: &list, kept };
        let mut batch = side.bed.queue.wr_start();
        batch.wr(1, SIGNALED).mkey_configure(list);
        match posted {
            true => batch.complete().unwrap(),
            false => forget(batch),
        }
    }
    side.bed.retire(blocks[1].into()).unwrap();
    assert_eq!(side.keys[0].fates(), [Fate::Pending; 4]);
    side
}

/// When the queue is reset or dropped, the changes of executed requests are settled, those of other
/// posted requests are lost, and those of requests that were not posted are undone.
#[test]
fn what_was_executed_is_settled_by_a_reset_and_when_the_queue_goes() {
    let ended = [Fate::Settled, Fate::Settled, Fate::Lost, Fate::Undone];
    for kept in [false, true] {
        let mut side = two_of_three_executed(kept);
        side.bed.queue.reset();
        assert_eq!(side.keys[0].fates(), ended);
        let Side { bed, keys, .. } = two_of_three_executed(kept);
        drop(bed);
        assert_eq!(keys[0].fates(), ended);
    }
}

/// In a forked child, which sees the gate zeroed, a queue does not call a key: a thread of the
/// parent may have held the key's lock.
#[test]
fn in_a_child_a_queue_ends_no_change() {
    type Ends = fn(Side, &[Sge]) -> Vec<Arc<Key>>;
    let ends: [Ends; 4] = [
        |side, _| side.keys,
        |mut side, list| {
            // The post is refused.
            post(&mut side, list).unwrap_err();
            side.keys
        },
        |mut side, _| {
            // The leaked batch ends with the next one.
            drop(side.bed.queue.wr_start());
            side.keys
        },
        |mut side, _| {
            side.bed.queue.reset();
            side.keys
        },
    ];
    let list = sges(1);
    for kept in [false, true] {
        for end in ends {
            let side = two_of_three_executed(kept);
            side.bed.gate.word.write(0, &[0; 4]);
            let keys = end(side, &list);
            assert_eq!(keys[0].fates(), [Fate::Pending; 4]);
            // Drops the counts that the changes held.
            for _ in 0..4 {
                // SAFETY: each of the four changes held a count of the key, and none dropped it.
                unsafe { Arc::decrement_strong_count(Arc::as_ptr(&keys[0])) };
            }
        }
    }
}

/// Posts a list of one piece, for the only key.
fn post(side: &mut Side, list: &[Sge]) -> Result<(), PostError> {
    let kept = side.kept;
    let list = List { key: &side.keys[0], pieces: &list[..1], kept };
    let mut batch = side.bed.queue.wr_start();
    batch.wr(1, SIGNALED).mkey_configure(list);
    batch.complete().map_err(|refused| refused.error())
}

/// A reset queue does not use what it knew of its room before.
#[test]
fn a_reset_queue_has_the_room_of_its_ring() {
    let list = sges(1);
    for posted in 0..60 {
        let mut side = Side::new(true, 1);
        for _ in 0..posted {
            let first = side.bed.queue.producer();
            post(&mut side, &list).unwrap();
            side.bed.retire(first.into()).unwrap();
        }
        side.bed.queue.reset();
        let blocks = side.bed.layout.blocks;
        for _ in 0..blocks / 3 {
            post(&mut side, &list).unwrap();
        }
        let full = PostError::QueueFull { free: blocks % 3, needed: 3 };
        assert_eq!(post(&mut side, &list), Err(full), "after {posted}");
    }
}

/// A queue that may not send writes nothing, although it knows that there is room.
#[test]
fn a_list_is_not_built_behind_a_gate_that_shut() {
    let list = sges(1);
    let mut side = Side::new(true, 1);
    post(&mut side, &list).unwrap();
    let before = side.bed.ring.all();
    side.bed.gate.gate.set_state(QueueState::Init);
    assert_eq!(post(&mut side, &list), Err(PostError::State(QueueState::Init)));
    assert!(side.bed.ring.all() == before);
    assert_eq!(side.keys[0].fates(), [Fate::Pending]);
}
