//! The free places of a shared receive queue, which pollers give back in any order.
//!
//! Each place has a bit, which a poller sets when it gives the place back, and the owner clears
//! when it claims the place. Each word of these bits has a mark, and so has each group of words, so
//! that the owner finds a free place by a few loads in a queue of any size. Marks are only hints:
//! pollers set them by plain stores, and a race may lose one. Before the owner reports a full
//! queue, it therefore reads all words.

use crate::sync::{
    AtomicBool, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use alloc::boxed::Box;
use core::ops::Range;

const BITS: u32 = u64::BITS;

/// Number of words in a group: their marks fill a cache line.
const GROUP: u32 = 64;

/// The places that were given back. Several pollers put places in; one owner takes them out.
pub(crate) struct FreePlaces {
    places: Box<[AtomicU64]>,
    /// Marks of words.
    words: Box<[AtomicBool]>,
    /// Marks of groups of words.
    groups: Box<[AtomicBool]>,
}

fn unmarked(count: u32) -> Box<[AtomicBool]> {
    (0..count).map(|_| AtomicBool::new(false)).collect()
}

impl FreePlaces {
    /// Creates an empty set of capacity `places`.
    pub(crate) fn new(places: u32) -> Self {
        let words = places.div_ceil(BITS);
        Self {
            places: (0..words).map(|_| AtomicU64::new(0)).collect(),
            words: unmarked(words),
            groups: unmarked(words.div_ceil(GROUP)),
        }
    }

    /// Poller: puts a place into the set. The release lets the owner use it.
    ///
    /// # Safety
    /// `place` is below the capacity of the set.
    #[inline]
    pub(crate) unsafe fn put(&self, place: u32) {
        let word = place / BITS;
        // SAFETY: the caller promises that the place is below the capacity, for which there are
        // words, marks of words and marks of groups.
        unsafe {
            self.places.get_unchecked(word as usize).fetch_or(1 << (place % BITS), AcqRel);
            self.words.get_unchecked(word as usize).store(true, Release);
            self.groups.get_unchecked((word / GROUP) as usize).store(true, Release);
        }
    }
}

/// The places that the owner took out of a set and has not used yet, all of one word.
#[derive(Default)]
pub(crate) struct Claims {
    word: u32,
    places: u64,
}

impl Claims {
    /// Returns the first run of free places from `from` on, as far as one word has them. If there
    /// are none after it, wraps around.
    #[inline]
    pub(crate) fn next_run(&mut self, free: &FreePlaces, from: u32) -> Option<Range<u32>> {
        let word = from / BITS;
        // The mark of this group may have been cleared when a word of it was taken.
        if self.places == 0 && !self.take_marked(free, word) && !self.take_after(free, word) {
            return None;
        }
        let after = if word == self.word { self.places & u64::MAX << (from % BITS) } else { 0 };
        let first = if after == 0 { self.places } else { after }.trailing_zeros();
        let length = (self.places >> first).trailing_ones();
        self.places &= !(u64::MAX >> (BITS - length) << first);
        let start = self.word * BITS + first;
        Some(start..start + length)
    }

    /// Takes the places of the first marked word from `from` on, up to the end of its group.
    #[inline]
    fn take_marked(&mut self, free: &FreePlaces, from: u32) -> bool {
        let end = ((from / GROUP + 1) * GROUP).min(free.words.len() as u32);
        let marks = free.words.get(from as usize..end as usize).unwrap_or_default();
        // The mark is cleared before the places are taken: a poller that puts a place in later
        // marks the word again.
        (from..).zip(marks).any(|(word, mark)| is_cleared(mark) && self.take(free, word))
    }

    /// Takes the places of the first word with a mark after the group of one, all around, or of
    /// any other word: a poller may have put a place in and not have set the marks yet.
    #[inline(never)]
    fn take_after(&mut self, free: &FreePlaces, word: u32) -> bool {
        let next = (word / GROUP + 1) as usize;
        let (before, after) = free.groups.split_at_checked(next).unwrap_or_default();
        let after = (before.len() as u32..).zip(after);
        let mut groups = after.chain((0..).zip(before));
        let marked = groups.any(|(group, mark)| {
            // A poller puts the place in first, then marks the word, then the group.
            let found = is_cleared(mark) && self.take_marked(free, group * GROUP);
            if found {
                // Others after it may have marks.
                mark.store(true, Relaxed);
            }
            found
        });
        marked || (0..free.places.len() as u32).any(|word| self.take(free, word))
    }

    /// Takes the places of a word. Returns whether there are any.
    #[inline]
    fn take(&mut self, free: &FreePlaces, word: u32) -> bool {
        let Some(places) = free.places.get(word as usize) else { return false };
        if places.load(Relaxed) != 0 {
            // The acquire pairs with the pollers' release in `put`.
            (self.word, self.places) = (word, places.swap(0, AcqRel));
        }
        self.places != 0
    }

    /// Whether a place is free: given back, or taken here.
    pub(crate) fn is_free(&self, free: &FreePlaces, place: u32) -> bool {
        let given = free.places[(place / BITS) as usize].load(Acquire);
        let taken = if place / BITS == self.word { self.places } else { 0 };
        (given | taken) & 1 << (place % BITS) != 0
    }
}

/// Clears a mark. Returns whether it was set.
#[inline]
fn is_cleared(mark: &AtomicBool) -> bool {
    // The acquire pairs with the pollers' release in `put`.
    let was_set = mark.load(Acquire);
    if was_set {
        mark.store(false, Relaxed);
    }
    was_set
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Three groups, the last one not full.
    const PLACES: u32 = 2 * GROUP * BITS + 3 * BITS;

    fn put(free: &FreePlaces, place: u32) {
        assert!(place < PLACES);
        // SAFETY: `place` is below the capacity, checked above.
        unsafe { free.put(place) };
    }

    #[test]
    fn a_place_whose_marks_were_lost_is_found() {
        for place in [0, 1, 63, 64, 4095, 4096, 8191, 8192, PLACES - 1] {
            for from in [0, 64, 4096, PLACES - 1] {
                let (free, mut claims) = (FreePlaces::new(PLACES), Claims::default());
                put(&free, place);
                free.words.iter().chain(&free.groups).for_each(|mark| mark.store(false, Relaxed));
                assert_eq!(claims.next_run(&free, from), Some(place..place + 1), "from {from}");
                assert_eq!(claims.next_run(&free, from), None);
            }
        }
    }

    #[test]
    fn each_place_is_claimed_once_in_runs_that_are_free() {
        let mut random = 7_u64;
        let mut next = |below: u32| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) as u32 % below
        };
        let (free, mut claims) = (FreePlaces::new(PLACES), Claims::default());
        let (mut given, mut from) = (BTreeSet::new(), 0);
        for step in 0..20_000 {
            if next(3) != 0 {
                let place = next(PLACES);
                if given.insert(place) {
                    put(&free, place);
                }
                continue;
            }
            let Some(run) = claims.next_run(&free, from) else {
                assert!(given.is_empty(), "step {step}: {} are left", given.len());
                continue;
            };
            assert!(!run.is_empty() && run.start / BITS == (run.end - 1) / BITS, "{run:?}");
            assert!(run.clone().all(|place| given.remove(&place)), "step {step}: {run:?}");
            from = run.end % PLACES;
        }
        while let Some(run) = claims.next_run(&free, from) {
            assert!(run.clone().all(|place| given.remove(&place)), "{run:?}");
        }
        assert!(given.is_empty());
    }

    #[test]
    fn runs_behind_a_place_come_before_those_in_front_of_it() {
        let (free, mut claims) = (FreePlaces::new(PLACES), Claims::default());
        [3, 4, 5, 40, 41, 200].iter().for_each(|&place| put(&free, place));
        let mut runs = |from| claims.next_run(&free, from);
        assert_eq!(runs(10), Some(40..42));
        assert_eq!(runs(42), Some(3..6), "of the word that was taken");
        assert_eq!(runs(6), Some(200..201));
        assert_eq!(runs(201), None);
    }

    #[test]
    fn the_search_begins_in_the_word_of_a_place_and_goes_on_in_the_group_behind_it() {
        let (word, group) = (BITS, GROUP * BITS);
        // From the last word of the second group the search goes to the third group, then to the
        // first.
        let last = 2 * group - word;
        for (from, order) in
            [(word, [word + 6, group, 10]), (last, [2 * group + 1, 10, group + 2 * word])]
        {
            let (free, mut claims) = (FreePlaces::new(PLACES), Claims::default());
            order.iter().for_each(|&place| put(&free, place));
            for place in order {
                assert_eq!(claims.next_run(&free, from), Some(place..place + 1), "from {from}");
            }
            assert_eq!(claims.next_run(&free, from), None);
        }
    }
}
