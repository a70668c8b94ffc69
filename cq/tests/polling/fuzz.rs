//! Arbitrary bytes in the whole completion queue, as a broken or hostile device leaves them. Every
//! poll ends: in a completion, in nothing, or in corruption that stays.
//!
//! `MLX5_FUZZ_ROUNDS` sets the number of inputs, `MLX5_SEED` the first seed.

use crate::bed::{Bed, Entry, Outstanding};
use mlx5_prm::cqe::MiniFormat;

/// Number of inputs by default.
const ROUNDS: u64 = 1500;

pub(crate) fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name)
        .map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// Pseudo-random numbers (xorshift).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn entry(&mut self) -> Entry {
        let mut bytes = [0; 64];
        bytes.iter_mut().for_each(|byte| *byte = self.next() as u8);
        // Mostly an entry of an existing queue, of a possible kind, and short, so that it passes
        // the first checks.
        let mut entry = Entry(bytes);
        if !self.next().is_multiple_of(8) {
            entry.0[32..36].copy_from_slice(&(self.next() as u32 % 3).to_be_bytes());
            entry.0[60..62].copy_from_slice(&(self.next() as u16 % 64).to_be_bytes());
            let kinds = [0, 1, 2, 3, 4, 5, 6, 12, 13, 14, 15];
            let kind = kinds[self.next() as usize % kinds.len()];
            entry.0[63] = kind << 4 | self.next() as u8 & 0xf;
        }
        if !self.next().is_multiple_of(4) {
            entry = entry.byte_count(self.next() as u32 % 70);
        }
        entry
    }
}

fn one(seed: u64) -> (usize, bool) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (log_size, stride) = (1 + random.next() as u32 % 5, [64, 128][random.next() as usize % 2]);
    let formats = [MiniFormat::Hash, MiniFormat::Checksum, MiniFormat::ChecksumStride];
    let mut bed = match random.next() % 4 {
        0 => Bed::new(log_size, stride),
        format => Bed::compressed(log_size, stride, formats[format as usize - 1]),
    };
    let queues: [Outstanding; 3] = Default::default();
    for (index, queue) in (0..).zip(&queues) {
        bed.register(index, queue);
    }
    bed.table.depart(2);
    let mut found = 0;
    for turn in 0..24u32 {
        for queue in &queues[..2] {
            queue.sends.borrow_mut().clear();
            queue.receives.borrow_mut().clear();
            for counter in 0..64u16 {
                queue.send(counter, counter.into(), random.next() as u8 & 0x7f);
                queue.receive(counter, counter.into());
            }
        }
        // At any index of the ring, written or not.
        for _ in 0..1 + random.next() % 6 {
            let entry = random.entry();
            bed.device.store(turn + random.next() as u32 % 8, entry);
        }
        let before = bed.ring.consumer();
        // Without the device, polls can find no more entries than the ring has.
        for _ in 0..=2u32 << log_size {
            let Some(wc) = bed.next() else { break };
            crate::untrusted::read_all(&wc);
            found += 1;
        }
        assert!(bed.ring.consumer().wrapping_sub(before) <= 3 << log_size, "seed {seed}");
        let _ = (bed.ring.state().end_of(0), bed.ring.state().end_of(2));
        bed.ring.publish();
        if let Some(corruption) = bed.ring.corruption() {
            assert!(bed.next().is_none(), "seed {seed}");
            assert_eq!(bed.ring.corruption(), Some(corruption), "seed {seed}");
            return (found, true);
        }
    }
    (found, false)
}

#[test]
fn whatever_the_ring_holds_every_poll_ends() {
    let start = number("MLX5_SEED", 1);
    let (mut found, mut corrupt) = (0, 0);
    for seed in start..start + number("MLX5_FUZZ_ROUNDS", ROUNDS) {
        let ended = std::panic::catch_unwind(|| one(seed));
        let Ok((completions, latched)) = ended else { panic!("with MLX5_SEED={seed}") };
        found += completions;
        corrupt += usize::from(latched);
    }
    assert!(found > 0 && corrupt > 0, "{found} completions, {corrupt} corrupt");
}
