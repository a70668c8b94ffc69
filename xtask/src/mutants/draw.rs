//! Draws the sample of mutants.

use std::str::FromStr;

use super::list::Mutant;

/// One of several equal parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shard {
    part: usize,
    of: usize,
}

impl Shard {
    /// Whether the part contains the mutant at this index of the sample.
    pub(super) fn has(self, at: usize) -> bool {
        at % self.of == self.part - 1
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text
            .split_once('/')
            .and_then(|(part, of)| Some((part.parse().ok()?, of.parse().ok()?)));
        match numbers {
            Some((part, of)) if 1 <= part && part <= of => Ok(Self { part, of }),
            _ => Err("a part is K/N, with K from 1 to N: 2/4, say".to_owned()),
        }
    }
}

/// Draws `count` mutants: a proportional share of every file, and at least one of each while the
/// count allows. The order is that of the list.
pub(super) fn stratified(all: Vec<Mutant>, count: usize, seed: u64) -> Vec<Mutant> {
    if all.len() <= count {
        return all;
    }
    let total = all.len();
    let mut files: Vec<Vec<Mutant>> = Vec::new();
    for mutant in all {
        match files.last_mut() {
            Some(file) if file[0].file == mutant.file => file.push(mutant),
            _ => files.push(vec![mutant]),
        }
    }
    let sizes: Vec<usize> = files.iter().map(Vec::len).collect();
    let mut drawn = Vec::new();
    for (file, share) in files.into_iter().zip(shares(&sizes, count, total)) {
        let mut file = file;
        let mut random = Random::new(seed ^ hash(&file[0].file));
        random.shuffle(&mut file);
        file.truncate(share);
        file.sort_by_key(|mutant| (mutant.start, mutant.mutation.clone()));
        drawn.extend(file);
    }
    drawn
}

/// Number of mutants to draw from each file: its share, rounded so that the sum is `count`.
fn shares(sizes: &[usize], count: usize, total: usize) -> Vec<usize> {
    let mut shares: Vec<usize> = sizes.iter().map(|size| (size * count / total).max(1)).collect();
    // The files that lost most by rounding get the spare ones. If there are too many, the largest
    // shares shrink first.
    let mut by_rest: Vec<usize> = (0..sizes.len()).collect();
    by_rest.sort_by_key(|&at| std::cmp::Reverse((sizes[at] * count % total, sizes[at])));
    let mut sum: usize = shares.iter().sum();
    for &at in by_rest.iter().cycle().take(sizes.len() * 2) {
        if sum < count && shares[at] < sizes[at] {
            (shares[at], sum) = (shares[at] + 1, sum + 1);
        }
    }
    let mut by_share: Vec<usize> = (0..sizes.len()).collect();
    while sum > count {
        by_share.sort_by_key(|&at| std::cmp::Reverse(shares[at]));
        shares[by_share[0]] -= 1;
        sum -= 1;
    }
    shares
}

/// Shuffles mutants in an order that depends only on the seed.
pub(super) fn shuffle(mutants: &mut [Mutant], seed: u64) {
    Random::new(seed).shuffle(mutants);
}

/// Pseudorandom numbers from a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// The Fisher-Yates shuffle.
    fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            let other = (u128::from(self.next()) * (end as u128 + 1)) >> 64;
            items.swap(end, other as usize);
        }
    }
}

/// FNV-1a.
pub(super) fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutants::text::Place;

    fn mutants(counts: &[usize]) -> Vec<Mutant> {
        let of = |(file, &count): (usize, &usize)| {
            (1..=count).map(move |line| Mutant {
                file: format!("{file}.rs"),
                mutation: "replace + with -".to_owned(),
                start: Place { line, column: 1 },
                end: Place { line, column: 2 },
                replacement: "-".to_owned(),
                line: String::new(),
                before: 0,
            })
        };
        counts.iter().enumerate().flat_map(of).collect()
    }

    fn per_file(drawn: &[Mutant], file: usize) -> usize {
        drawn.iter().filter(|mutant| mutant.file == format!("{file}.rs")).count()
    }

    #[test]
    fn every_file_has_its_share_and_one_at_least() {
        let drawn = stratified(mutants(&[600, 300, 99, 1]), 100, 7);
        assert_eq!(drawn.len(), 100);
        assert_eq!([0, 1, 2, 3].map(|file| per_file(&drawn, file)), [60, 30, 9, 1]);
    }

    #[test]
    fn many_small_files_leave_the_sum_as_it_was_asked_for() {
        let mut counts = vec![1; 40];
        counts.push(1000);
        let drawn = stratified(mutants(&counts), 50, 7);
        assert_eq!(drawn.len(), 50);
        assert_eq!(per_file(&drawn, 40), 10);
    }

    #[test]
    fn the_same_seed_draws_the_same_and_another_draws_others() {
        let drawn = |seed| stratified(mutants(&[500, 500]), 50, seed);
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1), drawn(2));
    }

    #[test]
    fn parts_together_are_the_whole_and_share_nothing() {
        let parts = ["1/3", "2/3", "3/3"].map(|text| text.parse::<Shard>().expect("a part"));
        for at in 0..10 {
            assert_eq!(parts.iter().filter(|part| part.has(at)).count(), 1);
        }
        assert!("0/3".parse::<Shard>().is_err() && "4/3".parse::<Shard>().is_err());
    }
}
