//! Removing the completions of a queue that was reset.

use crate::bed::{Bed, Entry, Outstanding};
use crate::compressed::{mini, write_run};
use mlx5_cq::Deferred;
use mlx5_prm::cqe::{CqeOpcode, MiniFormat};
use std::sync::{Arc, Mutex};

/// User indexes: of the queue that is reset, of one that continues, of one that was destroyed.
const RESET: u32 = 3;
const OTHER: u32 = 4;
const GONE: u32 = 5;
const RECEIVE: u8 = 2;

fn purge(bed: &mut Bed) -> (u32, Vec<u16>) {
    let mut discarded = Vec::new();
    // SAFETY: there is no other thread that could call `end_of`.
    let count = unsafe { bed.ring.purge(RESET, |counter| discarded.push(counter)) };
    (count, discarded)
}

#[test]
fn the_completions_of_one_queue_go_and_the_others_stay_in_order() {
    for stride in [64, 128] {
        let mut bed = Bed::new(3, stride);
        let (reset, other) = (Outstanding::default(), Outstanding::default());
        bed.register(RESET, &reset);
        bed.register(OTHER, &other);
        for lap in 0..20u16 {
            for (at, index) in
                [RESET, OTHER, RESET, RESET, OTHER, OTHER, RESET].into_iter().enumerate()
            {
                let counter = lap * 8 + at as u16;
                if index == OTHER {
                    other.send(counter, counter.into(), 0x0a);
                }
                bed.device.write(Entry::new(if at == 6 { RECEIVE } else { 0 }, index, counter));
            }
            let start = bed.ring.consumer();
            assert_eq!(purge(&mut bed), (4, vec![lap * 8 + 6]));
            assert_eq!(bed.ring.consumer(), start + 4);
            assert_eq!(bed.published(), start + 4, "the device may use their slots");
            assert_eq!(bed.ring.state().end_of(RESET), None);
            assert_eq!(purge(&mut bed), (0, vec![]), "none is left");
            for at in [1, 4, 5] {
                assert_eq!(bed.next_id(), Some(u64::from(lap * 8 + at)));
            }
            assert!(bed.next().is_none());
            bed.ring.publish();
        }
        assert_eq!((reset.asked.get(), bed.ring.corruption()), (0, None));
    }
}

#[test]
fn each_receive_from_an_index_on_is_listed_and_stays() {
    let mut bed = Bed::new(3, 64);
    let (one, other) = (Outstanding::default(), Outstanding::default());
    bed.register(RESET, &one);
    bed.register(OTHER, &other);
    for (counter, (opcode, index)) in
        (10..).zip([(RECEIVE, OTHER), (0, RESET), (RECEIVE, RESET), (RECEIVE, GONE)])
    {
        bed.device.write(Entry::new(opcode, index, counter));
    }
    let listed = |bed: &Bed, from| {
        let mut found = Vec::new();
        bed.ring.each_receive(from, |index, counter| found.push((index, counter)));
        found
    };
    let all = [(OTHER, 10), (RESET, 12), (GONE, 13)];
    let start = bed.ring.consumer();
    assert_eq!(listed(&bed, start), all);
    assert_eq!(listed(&bed, start.wrapping_sub(3)), all, "from the consumer index on");
    assert_eq!(listed(&bed, start + 1), all[1..]);
    assert_eq!(listed(&bed, start + 4), []);
    assert_eq!((purge(&mut bed), bed.ring.consumer()), ((2, vec![12]), start + 2));
}

#[test]
fn completions_that_name_no_queue_are_none_of_the_queue_whose_index_stands_there() {
    for opcode in [CqeOpcode::Resize, CqeOpcode::SignatureError] {
        let mut bed = Bed::new(3, 64);
        let queue = Outstanding::default();
        bed.register(RESET, &queue);
        bed.device.write(Entry::new(opcode as u8, RESET, 0));
        assert_eq!(bed.ring.state().end_of(RESET), None, "{opcode:?}");
        bed.device.write(Entry::new(0, RESET, 0));
        assert_eq!(bed.ring.state().end_of(RESET), Some(2), "{opcode:?}");
        assert_eq!(purge(&mut bed).0, 1, "{opcode:?}");
        assert_eq!(bed.ring.state().end_of(RESET), None, "{opcode:?}");
    }
}

#[test]
fn a_full_ring_of_one_queue_is_empty_afterwards() {
    for before in 0..9 {
        let mut bed = Bed::new(3, 64);
        let (reset, other) = (Outstanding::default(), Outstanding::default());
        bed.register(RESET, &reset);
        bed.register(OTHER, &other);
        for counter in 0..before {
            other.send(counter, 1, 0x0a);
            bed.device.write(Entry::new(0, OTHER, counter));
            assert_eq!(bed.next_id(), Some(1));
        }
        bed.ring.publish();
        (0..8).for_each(|counter| bed.device.write(Entry::new(0, RESET, counter)));
        assert_eq!(purge(&mut bed).0, 8);
        assert!(bed.next().is_none());
        // Nothing that the purge leaves looks like a CQE of the next lap.
        for counter in 0..40 {
            other.send(counter, 2, 0x0a);
            bed.device.write(Entry::new(0, OTHER, counter));
            assert_eq!(bed.next_id(), Some(2), "{before} before, then {counter}");
            assert!(bed.next().is_none());
            bed.ring.publish();
        }
    }
}

#[test]
fn cqe_that_names_no_queue_stays() {
    let mut bed = Bed::new(4, 64);
    let (reset, other) = (Outstanding::default(), Outstanding::default());
    bed.register(RESET, &reset);
    bed.register(OTHER, &other);
    let discarded = Arc::new(Mutex::new(0));
    let count = Arc::clone(&discarded);
    bed.ring.on_signature_error(Box::new(move |_| *count.lock().unwrap() += 1));
    // The CQE of a signature error has another field in place of the user index.
    bed.device.write(Entry::new(12, RESET, 0));
    bed.device.write(Entry::new(0, RESET, 0));
    other.send(1, 1, 0x0a);
    bed.device.write(Entry::new(0, OTHER, 1));
    assert_eq!(purge(&mut bed).0, 1);
    assert_eq!(bed.next_id(), Some(1));
    assert_eq!(*discarded.lock().unwrap(), 1);
}

#[test]
fn a_purge_ends_at_a_run_that_no_device_writes() {
    // The format of runs, CQEs before the run, and its CQEs: more than the ring has, too few for a
    // run, and a run where nothing is compressed.
    for (format, before, count) in
        [(Some(MiniFormat::Hash), 6, 4), (Some(MiniFormat::Hash), 2, 1), (None, 2, 3)]
    {
        let mut bed = match format {
            Some(format) => Bed::compressed(3, 64, format),
            None => Bed::new(3, 64),
        };
        let reset = Outstanding::default();
        bed.register(RESET, &reset);
        (0..before).for_each(|counter| bed.device.write(Entry::new(0, RESET, counter)));
        let mut title = Entry::new(RECEIVE, RESET, 9).byte_count(count);
        title.0[63] |= 3 << 2;
        bed.device.write(title);
        assert_eq!(purge(&mut bed), (before.into(), vec![]), "{format:?}, {count} behind {before}");
    }
}

#[test]
fn deferred_destruction_does_not_wait_at_a_place_that_moved() {
    let mut bed = Bed::new(4, 64);
    let (reset, gone) = (Outstanding::default(), Outstanding::default());
    bed.register(RESET, &reset);
    bed.register(GONE, &gone);
    let skipped = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&skipped);
    bed.ring.on_skipped_receive(Box::new(move |index, counter| {
        list.lock().unwrap().push((index, counter))
    }));
    let deferred = Deferred::default();
    for (opcode, index) in [(RECEIVE, GONE), (0, RESET), (0, RESET), (0, RESET)] {
        bed.device.write(Entry::new(opcode, index, 9));
    }
    // The steps of a driver that destroys a queue: it keeps the queue until its last CQE is passed.
    deferred.push(bed.ring.state().end_of(GONE).expect("one is there"), ());
    bed.table.depart(GONE);
    assert_eq!(purge(&mut bed).0, 3);
    assert_eq!(*skipped.lock().unwrap(), [(GONE, 9)]);
    assert!(!deferred.release(bed.ring.consumer()), "nothing names it any more");
    assert!(bed.next().is_none());
    assert_eq!((bed.ring.consumer(), skipped.lock().unwrap().len()), (4, 1), "nothing is left");
    assert_eq!(bed.ring.corruption(), None);
}

#[test]
fn a_run_of_a_destroyed_queue_goes_also_where_it_was_polled_in_part() {
    let mut bed = Bed::compressed(5, 64, MiniFormat::Hash);
    let (reset, other, gone) =
        (Outstanding::default(), Outstanding::default(), Outstanding::default());
    for (index, queue) in [(RESET, &reset), (OTHER, &other), (GONE, &gone)] {
        bed.register(index, queue);
    }
    let skipped = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&skipped);
    bed.ring.on_skipped_receive(Box::new(move |index, counter| {
        list.lock().unwrap().push((index, counter))
    }));
    (20..25).for_each(|counter| gone.receive(counter, counter.into()));
    let minis: Vec<_> = (0..5).map(|at| mini([at as u8; 4], at)).collect();
    write_run(&mut bed.device, Entry::new(RECEIVE, GONE, 20), &minis);
    bed.device.write(Entry::new(0, RESET, 0));
    other.send(1, 77, 0x0a);
    bed.device.write(Entry::new(0, OTHER, 1));
    assert_eq!((bed.next_id(), bed.next_id()), (Some(20), Some(21)));
    assert!(bed.ring.state().end_of(GONE).is_some());
    bed.table.depart(GONE);
    bed.ring.clear_cached_queues();
    assert_eq!(purge(&mut bed), (1, vec![]));
    assert_eq!(*skipped.lock().unwrap(), [(GONE, 22), (GONE, 23), (GONE, 24)]);
    assert_eq!(bed.next_id(), Some(77));
    assert!(bed.next().is_none());
    assert_eq!((bed.ring.consumer(), skipped.lock().unwrap().len()), (7, 3));
    assert_eq!(bed.ring.corruption(), None);
}

#[test]
fn a_run_that_was_polled_in_part_stays_when_a_destroyed_queue_behind_it_goes() {
    let mut bed = Bed::compressed(5, 64, MiniFormat::Hash);
    let (reset, other, gone) =
        (Outstanding::default(), Outstanding::default(), Outstanding::default());
    for (index, queue) in [(RESET, &reset), (OTHER, &other), (GONE, &gone)] {
        bed.register(index, queue);
    }
    (20..24).for_each(|counter| other.receive(counter, counter.into()));
    let minis: Vec<_> = (0..4).map(|at| mini([at as u8; 4], at)).collect();
    write_run(&mut bed.device, Entry::new(RECEIVE, OTHER, 20), &minis);
    bed.device.write(Entry::new(0, GONE, 0));
    bed.device.write(Entry::new(0, RESET, 0));
    assert_eq!(bed.next_id(), Some(20));
    bed.table.depart(GONE);
    assert_eq!(purge(&mut bed), (1, vec![]));
    for id in 21..24 {
        assert_eq!(bed.next_id(), Some(id));
    }
    assert!(bed.next().is_none());
    assert_eq!((bed.ring.consumer(), bed.ring.corruption()), (6, None));
}

/// Random CQEs and compressed runs of three queues, polled in part, compared with a list.
#[test]
fn random_rings_keep_what_is_of_other_queues() {
    for seed in 0..300_u64 {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut below = move |limit: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 11) % limit
        };
        let mut bed = Bed::compressed(5, if seed % 2 == 0 { 64 } else { 128 }, MiniFormat::Hash);
        let queues = [RESET, OTHER, GONE].map(|index| (index, Outstanding::default()));
        queues.iter().for_each(|(index, queue)| bed.register(*index, queue));
        let (mut counters, mut expected) = ([0_u16; 3], std::collections::VecDeque::new());
        for round in 0..60 {
            // Writes until there is no room.
            loop {
                let count = if below(3) == 0 { 2 + below(16) as u32 } else { 1 };
                if bed.device.written + count - bed.ring.consumer() > 32 || below(8) == 0 {
                    break;
                }
                let which = below(3) as usize;
                let (index, queue) = &queues[which];
                let first = counters[which];
                for number in 0..count as u16 {
                    let counter = first.wrapping_add(number);
                    queue.receive(counter, counter.into());
                    expected.push_back((*index, counter));
                }
                counters[which] = first.wrapping_add(count as u16);
                let title = Entry::new(RECEIVE, *index, first).qp_num(*index);
                match count {
                    1 => bed.device.write(title),
                    _ => {
                        let minis: Vec<_> = (0..count).map(|at| mini([at as u8; 4], at)).collect();
                        write_run(&mut bed.device, title, &minis);
                    }
                }
            }
            for _ in 0..below(20) {
                let polled = bed.next().map(|wc| (wc.qp_num(), wc.wr_id() as u16));
                assert_eq!(polled, expected.pop_front(), "seed {seed}, round {round}");
            }
            bed.ring.publish();
            if below(2) == 0 {
                let of_reset = |one: &&(u32, u16)| one.0 == RESET;
                let wanted: Vec<_> = expected.iter().filter(of_reset).map(|one| one.1).collect();
                assert_eq!(
                    purge(&mut bed),
                    (wanted.len() as u32, wanted),
                    "seed {seed}, round {round}"
                );
                expected.retain(|one| one.0 != RESET);
                // The steps of a driver that resets a queue.
                queues[0].1.receives.borrow_mut().clear();
                assert_eq!(bed.ring.state().end_of(RESET), None);
            }
        }
        assert_eq!(bed.ring.corruption(), None, "seed {seed}");
    }
}

#[test]
fn purge_until_an_index_leaves_what_lies_behind_it() {
    for end in 0..=7 {
        let mut bed = Bed::new(3, 64);
        let (reset, other) = (Outstanding::default(), Outstanding::default());
        bed.register(RESET, &reset);
        bed.register(OTHER, &other);
        let indexes = [RESET, OTHER, RESET, OTHER, RESET, RESET, OTHER];
        for (counter, index) in (0..).zip(indexes) {
            let queue = if index == RESET { &reset } else { &other };
            queue.send(counter, counter.into(), 0x0a);
            bed.device.write(Entry::new(0, index, counter));
        }
        let before = indexes[..end].iter().filter(|index| **index == RESET).count() as u32;
        // SAFETY: there is no other thread that could call `end_of`.
        let removed = unsafe { bed.ring.purge_until(RESET, Some(end as u32), |_| ()) };
        assert_eq!((removed, bed.ring.consumer()), (before, before), "{end}");
        let left = (0..7).filter(|&at| at >= end || indexes[at] == OTHER);
        let found: Vec<_> = std::iter::from_fn(|| bed.next_id()).collect();
        assert!(left.map(|at| at as u64).eq(found.iter().copied()), "{end}: {found:?}");
        assert_eq!(bed.ring.corruption(), None);
    }
}

/// A poller in the middle of a run, which another program then polled to its end and beyond.
#[test]
fn ring_follows_the_doorbell_record_out_of_a_run() {
    for start in [0, 6] {
        let mut bed = Bed::compressed(3, 64, MiniFormat::Hash);
        let other = Outstanding::default();
        bed.register(OTHER, &other);
        for counter in 0..start {
            other.send(counter, 1, 0x0a);
            bed.device.write(Entry::new(0, OTHER, counter));
            assert_eq!(bed.next_id(), Some(1));
        }
        bed.ring.publish();
        bed.ring.follow();
        assert_eq!(bed.ring.consumer(), u32::from(start), "nothing else polled");
        (20..24).for_each(|counter| other.receive(counter, counter.into()));
        let minis: Vec<_> = (0..4).map(|at| mini([at as u8; 4], at)).collect();
        write_run(&mut bed.device, Entry::new(RECEIVE, OTHER, 20), &minis);
        for counter in [90, 91] {
            other.send(counter, counter.into(), 0x0a);
            bed.device.write(Entry::new(0, OTHER, counter));
        }
        assert_eq!(bed.next_id(), Some(20));
        let behind = u32::from(start) + 5;
        bed.scribble(u64::from(behind).rotate_left(32).to_be_bytes());
        assert_eq!(bed.ring.state().end_of_elsewhere(OTHER), Some(behind + 1));
        bed.ring.follow();
        assert_eq!(bed.ring.consumer(), behind);
        assert_eq!((bed.next_id(), bed.next_id()), (Some(91), None));
        assert_eq!(bed.ring.corruption(), None);
    }
}

/// The doorbell record has only 24 bits, which wrap.
#[test]
fn consumer_index_of_another_program_never_goes_back() {
    let mut bed: Bed<Outstanding> = Bed::new(3, 64);
    let mut last = 0;
    for consumer in [5_u32, 8_000_000, 0xff_fffe, 3, 2_000, 0xff_ffff, 1] {
        bed.scribble(u64::from(consumer).rotate_left(32).to_be_bytes());
        let found = bed.ring.state().consumed_elsewhere();
        assert_eq!(found & 0xff_ffff, consumer);
        assert!(found > last, "{found:#x} after {last:#x}");
        assert_eq!(bed.ring.state().consumed_elsewhere(), found);
        last = found;
    }
    bed.ring.follow();
    assert_eq!((bed.ring.consumer(), last), (0x200_0001, 0x200_0001));
}
