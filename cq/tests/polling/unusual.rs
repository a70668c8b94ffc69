//! A device that does what the manual allows and drivers do not expect: errors between compressed
//! runs, receives out of order, queues that are reset or destroyed while a run is polled, several
//! resets before the next poll. Each completion is returned once, in order, unless its queue was
//! reset or destroyed.
//!
//! `MLX5_FUZZ_ROUNDS` sets the number of seeds, `MLX5_SEED` the first.

use crate::bed::{Bed, Entry, Outstanding};
use crate::compressed::{mini, write_run};
use crate::fuzz::{Random, number};
use mlx5_prm::cqe::MiniFormat;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

const SEEDS: u64 = 400;
const LOG_SIZE: u32 = 5;
const QUEUES: u32 = 4;
const REQUEST: u8 = 0;
const RECEIVE: u8 = 2;
const REQUEST_ERROR: u8 = 13;
const RECEIVE_ERROR: u8 = 14;

/// A completion that the next polls must return.
#[derive(Clone, Copy)]
struct Expected {
    index: u32,
    wr_id: u64,
    good: bool,
    /// The counter of a receive.
    receive: Option<u16>,
}

/// The outstanding requests of a queue pair.
struct Pair {
    index: u32,
    records: Box<Outstanding>,
    /// Whether its receives are of a shared queue, so that they complete in any order.
    shared: bool,
    sends: VecDeque<(u16, u64)>,
    receives: VecDeque<(u16, u64)>,
    /// The counters of the next requests.
    next: [u16; 2],
}

impl Pair {
    fn new(index: u32, shared: bool) -> Self {
        let (sends, receives) = (VecDeque::new(), VecDeque::new());
        Self { index, records: Box::default(), shared, sends, receives, next: [0; 2] }
    }

    fn post(&mut self, wr_id: &mut u64, count: u64, receive: bool) {
        for _ in 0..count {
            *wr_id += 1;
            let counter = &mut self.next[usize::from(receive)];
            if receive {
                self.receives.push_back((*counter, *wr_id));
                self.records.receive(*counter, *wr_id);
            } else {
                self.sends.push_back((*counter, *wr_id));
                self.records.send(*counter, *wr_id, 0x0a);
            }
            *counter = counter.wrapping_add(1);
        }
    }

    fn forget(&mut self) {
        (self.sends, self.receives) = (VecDeque::new(), VecDeque::new());
        self.records.sends.borrow_mut().clear();
        self.records.receives.borrow_mut().clear();
    }
}

struct World {
    random: Random,
    bed: Bed,
    pairs: Vec<Pair>,
    /// Records of queue pairs that were destroyed, and the end of their completions.
    gone: Vec<(u32, Pair)>,
    expected: VecDeque<Expected>,
    skipped: Arc<Mutex<Vec<(u32, u16)>>>,
    discarded: Vec<(u32, u16)>,
    /// Receives that no poll will return.
    owed: Vec<(u32, u16)>,
    wr_id: u64,
    /// The CQEs to remove before the next poll of a queue that was handed over.
    stale: Option<Vec<(u32, u32)>>,
    free: Vec<u32>,
    returned: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let stride = [64, 128][random.next() as usize % 2];
        let mut bed = Bed::<Outstanding>::compressed(LOG_SIZE, stride, MiniFormat::Hash);
        let skipped = Arc::new(Mutex::new(Vec::new()));
        let list = Arc::clone(&skipped);
        bed.ring.on_skipped_receive(Box::new(move |index, counter| {
            list.lock().unwrap().push((index, counter))
        }));
        let pairs: Vec<_> = (0..QUEUES).map(|index| Pair::new(index, index % 2 == 0)).collect();
        pairs.iter().for_each(|pair| bed.register(pair.index, &pair.records));
        let free = (QUEUES..3 * QUEUES).collect();
        let (gone, expected, discarded) = (Vec::new(), VecDeque::new(), Vec::new());
        let (owed, wr_id, stale, returned) = (Vec::new(), 0, None, 0);
        Self {
            random,
            bed,
            pairs,
            gone,
            expected,
            skipped,
            discarded,
            owed,
            wr_id,
            stale,
            free,
            returned,
        }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random.next() % limit
    }

    /// Writes a completion, or a run of them, if there is room.
    fn write(&mut self) {
        let at = self.below(u64::from(QUEUES)) as usize;
        let kind = self.below(6);
        let count = 2 + self.below(12) as u32;
        let room = (1 << LOG_SIZE) - (self.bed.device.written - self.bed.ring.consumer());
        if room == 0 {
            return;
        }
        let (posted, place) = (1 + self.below(4), self.below(8) as usize);
        let pair = &mut self.pairs[at];
        let index = pair.index;
        match kind {
            0 | 1 => {
                // The requests before the last one are unsignaled.
                pair.post(&mut self.wr_id, posted, false);
                let last = place.min(pair.sends.len() - 1);
                let (counter, wr_id) = pair.sends.drain(..=last).next_back().expect("one is there");
                let opcode = [REQUEST, REQUEST_ERROR][kind as usize];
                self.bed.device.write(Entry::new(opcode, index, counter).error(5, 0));
                let good = kind == 0;
                self.expected.push_back(Expected { index, wr_id, good, receive: None });
            }
            2 | 3 => {
                pair.post(&mut self.wr_id, posted, true);
                let place = if pair.shared { place.min(pair.receives.len() - 1) } else { 0 };
                let (counter, wr_id) = pair.receives.remove(place).expect("one is there");
                let opcode = [RECEIVE, RECEIVE_ERROR][kind as usize - 2];
                self.bed.device.write(Entry::new(opcode, index, counter).error(5, 0));
                let (good, receive) = (kind == 2, Some(counter));
                self.expected.push_back(Expected { index, wr_id, good, receive });
            }
            _ if count <= room => {
                // A run has consecutive new requests and leaves older receives outstanding, which
                // only a shared queue allows.
                if !pair.shared && !pair.receives.is_empty() {
                    return;
                }
                let before = pair.receives.len();
                pair.post(&mut self.wr_id, count.into(), true);
                let run: Vec<_> = pair.receives.drain(before..).collect();
                let minis: Vec<_> = (0..count).map(|at| mini([at as u8; 4], at)).collect();
                write_run(&mut self.bed.device, Entry::new(RECEIVE, index, run[0].0), &minis);
                self.expected.extend(run.iter().map(|&(counter, wr_id)| Expected {
                    index,
                    wr_id,
                    good: true,
                    receive: Some(counter),
                }));
            }
            _ => {}
        }
    }

    /// Takes back a queue that was handed over.
    fn take_back(&mut self) {
        let Some(mut stale) = self.stale.take() else { return };
        let start = self.bed.ring.consumer();
        stale.sort_by_key(|(end, _)| end.wrapping_sub(start));
        for (end, index) in stale {
            let discarded = &mut self.discarded;
            let discard = |counter| discarded.push((index, counter));
            // SAFETY: there is no other thread that could call `end_of`.
            unsafe { self.bed.ring.purge_until(index, Some(end), discard) };
        }
    }

    fn poll(&mut self) {
        self.take_back();
        for _ in 0..self.below(16) {
            let found = self.bed.next().map(|wc| (wc.wr_id(), wc.status().is_ok()));
            let expected = self.expected.pop_front().map(|one| (one.wr_id, one.good));
            assert_eq!(found, expected);
            self.returned += usize::from(found.is_some());
        }
        self.bed.ring.publish();
        self.release();
    }

    /// Frees the indexes of destroyed queues that no CQE names any more.
    fn release(&mut self) {
        let consumer = self.bed.ring.consumer();
        let free = &mut self.free;
        self.gone.retain(|(end, pair)| {
            let waits = (end.wrapping_sub(consumer) as i32) > 0;
            if !waits {
                free.push(pair.index);
            }
            waits
        });
    }

    /// Drops the completions of a queue that polls will no longer return, and returns its receives.
    fn drop_expected(&mut self, index: u32) -> Vec<(u32, u16)> {
        let dropped = self.expected.iter().filter(|one| one.index == index);
        let receives = dropped.filter_map(|one| Some((index, one.receive?))).collect();
        self.expected.retain(|one| one.index != index);
        receives
    }

    fn reset(&mut self) {
        let at = self.below(u64::from(QUEUES)) as usize;
        let index = self.pairs[at].index;
        let handed_over = self.stale.is_some();
        let end = self.bed.ring.state().end_of(index);
        match (&mut self.stale, end) {
            (Some(stale), Some(end)) => {
                stale.retain(|(_, other)| *other != index);
                stale.push((end, index));
            }
            (None, _) => {
                let discarded = &mut self.discarded;
                // SAFETY: there is no other thread that could call `end_of`.
                unsafe { self.bed.ring.purge(index, |counter| discarded.push((index, counter))) };
                assert_eq!(self.bed.ring.state().end_of(index), None);
            }
            _ => {}
        }
        let wanted = self.drop_expected(index);
        if !handed_over {
            assert!(self.discarded.ends_with(&wanted), "{:?} {wanted:?}", self.discarded);
        }
        self.owed.extend(wanted);
        self.pairs[at].forget();
    }

    fn destroy(&mut self) {
        let Some(index) = self.free.pop() else { return };
        let at = self.below(u64::from(QUEUES)) as usize;
        let shared = self.pairs[at].shared;
        let fresh = Pair::new(index, shared);
        self.bed.register(index, &fresh.records);
        let former = std::mem::replace(&mut self.pairs[at], fresh);
        let state = self.bed.ring.state();
        let end = state.end_of(former.index).unwrap_or(state.consumed());
        self.bed.table.depart(former.index);
        self.bed.ring.clear_cached_queues();
        let wanted = self.drop_expected(former.index);
        self.owed.extend(wanted);
        self.gone.push((end, former));
    }
}

fn one(seed: u64) -> usize {
    let mut world = World::new(seed);
    for _ in 0..150 {
        match world.below(16) {
            0..9 => world.write(),
            9..12 => world.poll(),
            12 | 13 => world.reset(),
            14 => world.destroy(),
            _ => {
                world.stale.get_or_insert_default();
            }
        }
        assert_eq!(world.bed.ring.corruption(), None);
    }
    while !world.expected.is_empty() {
        world.poll();
    }
    world.take_back();
    assert!(world.bed.next().is_none());
    // The ring reported each receive that no poll returned, once.
    let mut reported = std::mem::take(&mut *world.skipped.lock().unwrap());
    reported.append(&mut world.discarded);
    reported.sort_unstable();
    world.owed.sort_unstable();
    assert_eq!(reported, world.owed);
    world.returned
}

#[test]
fn unusual_but_correct_devices_are_followed() {
    let start = number("MLX5_SEED", 1);
    let mut returned = 0;
    for seed in start..start + number("MLX5_FUZZ_ROUNDS", SEEDS) {
        let ended = std::panic::catch_unwind(|| one(seed));
        returned += ended.unwrap_or_else(|_| panic!("with MLX5_SEED={seed}"));
    }
    assert!(returned > 0);
}
