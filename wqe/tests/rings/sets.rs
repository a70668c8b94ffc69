//! Cancelling a set of identifiers, of any size and any values, cancels the requests in the set and
//! no others.

use crate::bed::{Bed, Spec};
use mlx5_wqe::{Mode, Rc, SendFlags};
use std::collections::BTreeSet;

/// Numbers that look random, the same for the same seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

/// Cancels a set of `size` identifiers, some of which are among the `pending` ones, and compares
/// the result with that of a `BTreeSet`.
fn check(pending: usize, size: usize, seed: u64) {
    let mut random = Random(seed);
    let mut bed = Bed::<Rc>::new(Spec { requests: pending as u32, sges: 2, ..Spec::default() });
    let ids: Vec<u64> = (0..pending).map(|_| random.next()).collect();
    let mut batch = bed.queue.wr_start();
    for id in &ids {
        batch.wr(*id, SendFlags::SIGNALED).send().sge_list(&[]);
    }
    batch.complete().unwrap();
    // Half of the set is pending, if there are that many; the rest was never posted.
    let mut wanted: BTreeSet<u64> =
        ids.iter().copied().filter(|id| id % 2 == 0).take(size.div_ceil(2)).collect();
    let there = wanted.clone();
    while wanted.len() < size {
        let other = random.next();
        wanted.insert(other | 1);
    }
    let list: Vec<u64> = wanted.iter().rev().copied().collect();
    assert_eq!(list.len(), size);
    let expected: Vec<u64> = ids.iter().copied().filter(|id| wanted.contains(id)).collect();
    let point = bed.queue.drain_point(0).unwrap();
    if there.len() < size {
        // SAFETY: no device reads the ring.
        let missing = unsafe { bed.queue.cancel_set(point, &list, Mode::AllOrNothing) };
        let missing = missing.expect_err("not all are pending").wr_ids;
        assert_eq!(missing.len(), size - expected.len(), "{size} identifiers, seed {seed}");
    }
    // SAFETY: no device reads the ring.
    let cancelled = unsafe { bed.queue.cancel_set(point, &list, Mode::BestEffort) }.unwrap();
    let told: Vec<u64> = cancelled.requests().iter().map(|request| request.wr_id).collect();
    assert_eq!(told.len(), expected.len(), "{size} identifiers, seed {seed}");
    assert!(told == expected, "{size} identifiers, seed {seed}");
    for (block, id) in (0..).zip(&ids) {
        let is_nop = bed.at_block(block, 4)[3] == 0;
        assert_eq!(is_nop, wanted.contains(id), "{size} identifiers, seed {seed}: {id:#x}");
    }
}

#[test]
fn sets_of_every_size_cancel_what_is_in_them() {
    for size in [0, 1, 2, 63, 64, 65, 66, 500, 1023, 1024, 1025, 5000] {
        check(1024, size, size as u64);
    }
}

#[test]
fn sets_of_hundreds_of_thousands_cancel_what_is_in_them() {
    for size in [0x3_ffff, 0x4_0000, 0x4_0001, 0x4_1000] {
        check(256, size, size as u64);
    }
}

/// In this many random sets some identifiers share a place of the table; they are distinguished.
#[test]
fn identifiers_that_share_a_place_are_told_apart() {
    for seed in 0..100 {
        check(128, 64, 1000 + seed);
    }
}
