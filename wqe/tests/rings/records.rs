//! The results of completions in the records, and the completions that are refused.

use crate::bed::{Bed, Spec};
use crate::by_hand::{of_sges, post_least, sges};
use mlx5_wqe::{Rc, SendFlags};

fn bed() -> Bed<Rc> {
    Bed::new(Spec { requests: 2, sges: 13, ..Spec::default() })
}

/// Posts a request of `blocks` blocks, and returns its first block.
fn post(bed: &mut Bed<Rc>, wr_id: u64, flags: SendFlags, blocks: usize) -> u32 {
    let first = bed.queue.producer();
    bed.queue.post_send(&[of_sges(wr_id, flags, &sges(blocks * 4 - 2))]).unwrap();
    assert_eq!(usize::from(bed.queue.producer().wrapping_sub(first)), blocks);
    first.into()
}

/// Asserts that completions of all blocks but those in `known` are refused.
fn assert_only(bed: &Bed<Rc>, known: &[u32]) {
    for block in 0..=u16::MAX {
        if !known.contains(&block.into()) {
            assert_eq!(bed.records.retire(block), None, "block {block}");
            assert_eq!(bed.records.retire_next(block), None, "block {block}");
        }
    }
}

#[test]
fn a_completion_names_the_block_at_which_an_outstanding_request_starts() {
    let mut bed = bed();
    assert_only(&bed, &[]);
    let a = post(&mut bed, 1, SendFlags::SIGNALED, 3);
    let b = post(&mut bed, 2, SendFlags::SIGNALED, 2);
    let c = post(&mut bed, 3, SendFlags::SIGNALED, 1);
    assert_only(&bed, &[a, b, c]);
    assert_eq!(bed.retire(a).unwrap().wr_id, 1);
    assert_only(&bed, &[b, c]);
    assert_eq!(bed.retire(b).unwrap().wr_id, 2);
    assert_only(&bed, &[c]);
    assert_eq!(bed.retire(c).unwrap().wr_id, 3);
    assert_only(&bed, &[]);
}

#[test]
fn a_completion_retires_all_requests_before_it() {
    let mut bed = bed();
    let none = SendFlags::empty();
    post(&mut bed, 1, none, 3);
    post(&mut bed, 2, none, 1);
    let c = post(&mut bed, 3, SendFlags::SIGNALED, 2);
    let d = post(&mut bed, 4, none, 1);
    assert_eq!(bed.queue.free_blocks(), 8 - 7);
    assert_eq!(bed.retire(c).unwrap().wr_id, 3);
    assert_eq!(bed.queue.free_blocks(), 8 - 1);
    assert_only(&bed, &[d]);
    // An unsignaled request completes, too, if it fails.
    assert_eq!(bed.retire(d).unwrap().wr_id, 4);
    assert_eq!(bed.queue.free_blocks(), 8);
}

#[test]
fn the_fast_path_finds_the_oldest_request_and_those_behind_requests_of_one_block() {
    let mut bed = bed();
    let none = SendFlags::empty();
    for turn in 0..100 {
        let long = post(&mut bed, turn, SendFlags::SIGNALED, 3) as u16;
        let one = post(&mut bed, turn + 1, none, 1) as u16;
        let last = post(&mut bed, turn + 2, SendFlags::SIGNALED, 2) as u16;
        for other in [one, last] {
            assert_eq!(bed.records.retire_next(other), None, "it is behind one of three blocks");
        }
        assert_eq!(bed.records.retire_next(long).unwrap().wr_id, turn);
        assert_eq!(bed.records.retire_next(last).unwrap().wr_id, turn + 2);
        for done in [long, one, last] {
            assert_eq!(bed.records.retire_next(done), None, "once");
        }
        assert_eq!(bed.queue.free_blocks(), 8);
    }
}

/// Random sizes, random signals, and completions of every kind: of the next signaled request, of an
/// unsignaled one that failed, and of blocks that no correct device names. A model has the result
/// of each.
#[test]
fn completions_of_random_patterns_find_what_a_model_finds() {
    let start =
        std::env::var("MLX5_SEED").map_or(1, |seed| seed.parse().expect("MLX5_SEED is a number"));
    let (mut fast, mut slow, mut refused) = (0, 0, 0);
    for seed in start..start + 12u64 {
        println!("MLX5_SEED={seed}");
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut random = move |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 20) % below
        };
        let mut bed = Bed::<Rc>::new(Spec { requests: 40, sges: 13, ..Spec::default() });
        // Mostly one size, any size, or all of one block.
        let sizes: &[usize] =
            [&[1, 1, 1, 1, 1, 1, 1, 2][..], &[1, 2, 3, 4], &[1]][seed as usize % 3];
        let period = [1, 2, 16, 0][seed as usize / 3 % 4];
        let mut outstanding = std::collections::VecDeque::new();
        let (mut next_id, mut sequence) = (0u64, 0u64);
        // Enough for the block counter to wrap.
        for _ in 0..12_000 {
            for _ in 0..random(20) {
                let blocks = sizes[random(sizes.len() as u64) as usize];
                if bed.queue.free_blocks() < 9 {
                    break;
                }
                sequence += 1;
                let signaled = match period {
                    0 => random(5) == 0,
                    period => sequence % period == 0,
                };
                let flags = if signaled { SendFlags::SIGNALED } else { SendFlags::empty() };
                let first = post(&mut bed, next_id, flags, blocks) as u16;
                outstanding.push_back((first, next_id, signaled));
                next_id += 1;
            }
            let block = match random(8) {
                0 => random(1 << 16) as u16,
                // Blocks close to the outstanding requests: inside, before and after them.
                1 => bed.queue.producer().wrapping_add(8).wrapping_sub(random(80) as u16),
                // A failure of any of them.
                2 if !outstanding.is_empty() => {
                    outstanding[random(outstanding.len() as u64) as usize].0
                }
                _ => match outstanding.iter().find(|request| request.2) {
                    Some(signaled) => signaled.0,
                    None => continue,
                },
            };
            let position = outstanding.iter().position(|request| request.0 == block);
            let found = position.map(|at| outstanding.drain(..=at).next_back().unwrap().1);
            let quickly = bed.records.retire_next(block);
            match quickly {
                Some(_) => fast += 1,
                None if found.is_some() => slow += 1,
                None => refused += 1,
            }
            let completed = quickly.or_else(|| bed.records.retire(block));
            assert_eq!(completed.map(|completed| completed.wr_id), found, "block {block}");
            assert_eq!(bed.records.in_flight() as usize, outstanding.len());
            if found.is_some() {
                assert_eq!(bed.records.retire_next(block), None, "once");
                assert_eq!(bed.records.retire(block), None, "once");
            }
        }
    }
    println!("{fast} fast, {slow} slow, {refused} refused");
    assert!(fast > 20_000 && slow > 1000 && refused > 10_000, "{fast}, {slow}, {refused}");
}

#[test]
fn the_window_of_outstanding_requests_moves_on_through_all_counters() {
    let mut bed = Bed::<Rc>::new(Spec { requests: 2, sges: 13, ..Spec::default() });
    // Nine blocks a turn, in a ring of eight: a request of each size starts at every block.
    for turn in 0..3 * 65536 / 9u64 {
        let starts =
            [(turn * 3, 4), (turn * 3 + 1, 1), (turn * 3 + 2, 3)].map(|(wr_id, blocks)| {
                (wr_id, blocks, post(&mut bed, wr_id, SendFlags::SIGNALED, blocks))
            });
        for (wr_id, blocks, start) in starts {
            for inside in start + 1..start + blocks as u32 {
                assert_eq!(bed.retire(inside), None);
            }
            // The same place in the laps before and after.
            assert_eq!(bed.retire(start.wrapping_sub(8)), None);
            assert_eq!(bed.retire(start + 8), None);
            assert_eq!(bed.retire(start).map(|completed| completed.wr_id), Some(wr_id));
            assert_eq!(bed.retire(start), None, "once");
        }
        post_least(&mut bed.queue, 0, SendFlags::SIGNALED).unwrap();
        let last = bed.queue.producer().wrapping_sub(1);
        bed.retire(last.into()).unwrap();
    }
}

#[test]
fn a_request_under_construction_cannot_complete() {
    let mut bed = bed();
    let records = std::sync::Arc::clone(&bed.records);
    let mut batch = bed.queue.wr_start();
    batch.wr(1, SendFlags::SIGNALED).send().sge_list(&[]);
    assert_eq!(records.retire(0), None);
    assert_eq!(records.retire_next(0), None);
    batch.wr(2, SendFlags::SIGNALED).send().sge_list(&[]);
    assert_eq!(records.retire(0), None);
    assert_eq!(records.retire(1), None);
    batch.complete().unwrap();
    let mut batch = bed.queue.wr_start();
    batch.wr(3, SendFlags::SIGNALED).send().sge_list(&[]);
    assert_eq!(records.retire(2), None);
    assert_eq!(records.retire_next(2), None, "behind two requests of one block that are posted");
    batch.complete().unwrap();
    assert_eq!(records.retire(1).unwrap().wr_id, 2);
}

#[test]
fn an_aborted_batch_leaves_no_record_that_a_later_request_could_be_taken_for() {
    let mut bed = bed();
    let mut batch = bed.queue.wr_start();
    for wr_id in 0..6 {
        batch.wr(wr_id, SendFlags::SIGNALED).send().sge_list(&[]);
    }
    batch.abort();
    assert_only(&bed, &[]);
    // Two blocks each, where the aborted ones were of one.
    let a = post(&mut bed, 10, SendFlags::SIGNALED, 2);
    let b = post(&mut bed, 11, SendFlags::SIGNALED, 2);
    assert_eq!((a, b), (0, 2));
    assert_only(&bed, &[a, b]);
    assert_eq!(bed.retire(b).unwrap().wr_id, 11);
}

#[test]
fn a_reset_queue_starts_over_and_knows_nothing_of_its_former_life() {
    let mut bed = bed();
    for wr_id in 0..8 {
        post(&mut bed, wr_id, SendFlags::SIGNALED, 1);
    }
    bed.retire(2).unwrap();
    bed.queue.reset();
    assert_eq!(bed.queue.producer(), 0);
    assert_eq!(bed.producer(), 0);
    assert_eq!(bed.queue.free_blocks(), 8);
    assert_only(&bed, &[]);
    let starts: Vec<_> =
        (0..4).map(|wr_id| post(&mut bed, 100 + wr_id, SendFlags::SIGNALED, 2)).collect();
    assert_eq!(starts, [0, 2, 4, 6]);
    assert_only(&bed, &starts);
    for (i, start) in starts.into_iter().enumerate() {
        assert_eq!(bed.retire(start).unwrap().wr_id, 100 + i as u64);
    }
}
