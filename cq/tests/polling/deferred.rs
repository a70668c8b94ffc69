//! Destroyed queues, and the attention word.

use crate::bed::{Bed, Entry, Outstanding, RING};
use mlx5_cq::{Corruption, Deferred, Lookup, RingId, Side, UserIndexTable};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

#[test]
fn entries_of_a_queue_that_is_gone_are_passed_over() {
    let mut bed = Bed::new(3, 64);
    let (gone, there) = (Outstanding::default(), Outstanding::default());
    bed.register(3, &gone);
    bed.register(4, &there);
    bed.table.depart(3);
    for turn in 0..10u16 {
        there.send(turn, turn.into(), 0x0a);
        for (opcode, index) in [(0, 3), (2, 3), (0, 4), (13, 3), (14, 3), (15, 3)] {
            bed.device.write(Entry::new(opcode, index, turn));
        }
        assert_eq!(bed.next_id(), Some(turn.into()));
        assert!(bed.next().is_none());
        assert_eq!(bed.ring.corruption(), None);
        // The entries after the last completion count as consumed, too.
        assert_eq!(bed.ring.consumer(), u32::from(turn) * 6 + 6);
        bed.ring.publish();
    }
    assert_eq!(gone.asked.get(), 0);
}

#[test]
fn receives_that_are_passed_over_are_reported() {
    let mut bed = Bed::new(4, 64);
    let gone = Outstanding::default();
    bed.register(3, &gone);
    bed.table.depart(3);
    let reported = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&reported);
    bed.ring.on_skipped_receive(Box::new(move |index, counter| {
        list.lock().unwrap().push((index, counter));
    }));
    // Entries of a request, of receives of each kind, and of errors of a request and of a receive.
    for (counter, opcode) in [0, 1, 2, 3, 4, 13, 14].into_iter().enumerate() {
        bed.device.write(Entry::new(opcode, 3, counter as u16));
    }
    assert!(bed.next().is_none());
    assert_eq!(*reported.lock().unwrap(), [1, 2, 3, 4, 6].map(|counter| (3, counter)));
    assert_eq!(bed.ring.corruption(), None);
}

#[test]
fn a_queue_that_completes_elsewhere_is_not_followed() {
    let mut bed = Bed::new(3, 64);
    let elsewhere = Outstanding::default();
    // SAFETY: the queue outlives the ring.
    unsafe { bed.table.set(3, NonNull::from(&elsewhere), [RingId(1), RingId(2)]) };
    elsewhere.send(0, 1, 0x0a);
    bed.device.write(Entry::new(0, 3, 0));
    assert!(bed.next().is_none());
    assert_eq!(bed.ring.corruption(), Some(Corruption::UserIndex(3)));
    assert_eq!(elsewhere.asked.get(), 0);
}

#[test]
fn an_entry_whose_opcode_names_no_side_is_of_the_side_that_completes_here() {
    for rings in [[RING, RingId(1)], [RingId(1), RING]] {
        let mut bed = Bed::new(3, 64);
        let queue = Outstanding::default();
        // SAFETY: the queue outlives the ring.
        unsafe { bed.table.set(3, NonNull::from(&queue), rings) };
        bed.device.write(Entry::new(9, 3, 0));
        assert!(bed.next().is_none());
        assert_eq!(bed.ring.corruption(), Some(Corruption::Opcode(9)), "{rings:?}");
    }
}

/// Code that frees deferred queues without the poller must keep the queues that the poller has
/// cached.
#[test]
fn queues_that_the_poller_may_use_without_asking_are_reported() {
    let mut bed = Bed::new(3, 64);
    let (sends, receives) = (Outstanding::default(), Outstanding::default());
    bed.register(3, &sends);
    bed.register(4, &receives);
    assert_eq!(bed.ring.last_queues(), [None, None]);
    sends.send(0, 1, 0x0a);
    bed.device.write(Entry::new(0, 3, 0));
    assert_eq!(bed.next_id(), Some(1));
    assert_eq!(bed.ring.last_queues(), [Some(NonNull::from(&sends)), None]);
    receives.receive(0, 2);
    bed.device.write(Entry::new(2, 4, 0));
    assert_eq!(bed.next_id(), Some(2));
    bed.table.depart(3);
    bed.table.depart(4);
    let both = [&sends, &receives].map(|queue| Some(NonNull::from(queue)));
    assert_eq!(bed.ring.last_queues(), both);
    bed.ring.clear_cached_queues();
    assert_eq!(bed.ring.last_queues(), [None, None]);
}

#[test]
fn the_queue_looked_up_last_is_used_until_it_is_forgotten() {
    let mut bed = Bed::new(3, 64);
    let queue = Outstanding::default();
    bed.register(3, &queue);
    for counter in 0..3 {
        queue.send(counter, counter.into(), 0x0a);
        bed.device.write(Entry::new(0, 3, counter));
    }
    assert_eq!(bed.next_id(), Some(0));
    // The queue's memory stays until the poller handles destroyed queues, so using it is sound; and
    // the request did complete.
    bed.table.depart(3);
    assert_eq!(bed.next_id(), Some(1));
    bed.ring.clear_cached_queues();
    let asked = queue.asked.get();
    drop(queue);
    assert_eq!(bed.next_id(), None);
    assert_eq!((bed.ring.consumer(), asked), (3, 2));
}

#[test]
fn an_index_may_be_used_again() {
    let mut bed = Bed::new(3, 64);
    let (first, second) = (Outstanding::default(), Outstanding::default());
    first.send(0, 1, 0x0a);
    second.send(0, 2, 0x0a);
    bed.register(3, &first);
    bed.device.write(Entry::new(0, 3, 0));
    assert_eq!(bed.next_id(), Some(1));
    bed.table.depart(3);
    bed.ring.clear_cached_queues();
    bed.register(3, &second);
    bed.device.write(Entry::new(0, 3, 0));
    assert_eq!(bed.next_id(), Some(2));
}

#[test]
fn every_index_of_24_bits_has_a_place_of_its_own() {
    let table = UserIndexTable::<u32>::default();
    assert_eq!(UserIndexTable::<u32>::SIZE, 1 << 24);
    let values: Vec<u32> =
        (0..24).map(|bit| 1 << bit).chain([0, 0xff_ffff, 0xfff, 0xfff_000]).collect();
    for value in &values {
        // SAFETY: the values outlive the table.
        unsafe { table.set(*value, value.into(), [RING; 2]) };
    }
    for value in &values {
        assert_eq!(table.get(*value, RING, Side::Send), Lookup::Queue(value.into()));
        // Only 24 bits count.
        assert_eq!(table.get(*value | 0xab00_0000, RING, Side::Send), Lookup::Queue(value.into()));
    }
    assert_eq!(table.get(3, RING, Side::Send), Lookup::Unknown);
    assert_eq!(table.get(0x00f0_0000, RING, Side::Send), Lookup::Unknown);
    // An index that was never used does not depart.
    table.depart(0x00f0_0000);
    assert_eq!(table.get(0x00f0_0000, RING, Side::Send), Lookup::Unknown);
    table.depart(4);
    assert_eq!(table.get(4, RING, Side::Send), Lookup::Destroyed);
}

/// Asserts the ends of the entries of queue 9 and of queues 0, 1 and 2.
fn assert_ends(bed: &Bed, nine: Option<u32>, others: [Option<u32>; 3]) {
    let state = bed.ring.state();
    assert_eq!(state.end_of(9), nine);
    assert_eq!([0, 1, 2].map(|index| state.end_of(index)), others);
}

#[test]
fn the_end_of_a_queues_entries_is_behind_the_last_that_names_it() {
    for stride in [64, 128] {
        let mut bed = Bed::new(3, stride);
        let (queue, gone) = (Outstanding::default(), Outstanding::default());
        bed.register(9, &queue);
        for index in 0..3 {
            bed.register(index, &gone);
            bed.table.depart(index);
        }
        for step in 0..50 {
            let start = step * 5;
            assert_eq!(bed.ring.state().consumed(), start);
            assert_ends(&bed, None, [None; 3]);
            for (i, index) in [0, 9, 0, 9, 1].into_iter().enumerate() {
                assert_eq!(bed.ring.state().end_of(1), None, "{i}");
                bed.device.write(Entry::new(2, index, 0));
            }
            let ends = [Some(start + 3), Some(start + 5), None];
            assert_ends(&bed, Some(start + 4), ends);
            for wr_id in 0..2 {
                queue.receive(0, wr_id);
                assert_eq!(bed.next_id(), Some(wr_id));
            }
            // Consumed entries count until they are published, because other threads cannot know
            // before.
            assert_ends(&bed, Some(start + 4), ends);
            // A poll that passed over entries and found no completion publishes by itself.
            assert!(bed.next().is_none());
        }
    }
}

#[test]
fn all_of_a_full_queue_is_searched() {
    for log_size in 0..6 {
        let mut bed = Bed::new(log_size, 64);
        let queue = Outstanding::default();
        bed.register(9, &queue);
        for lap in 1..5 {
            for _ in 0..1 << log_size {
                queue.receive(0, 1);
                bed.device.write(Entry::new(2, 9, 0));
            }
            assert_eq!(bed.ring.state().end_of(9), Some(lap << log_size));
            while bed.next().is_some() {}
            bed.ring.publish();
        }
    }
}

/// The steps of a driver that destroys a queue: it keeps the queue until no entry can name it.
#[test]
fn a_destroyed_queue_is_kept_until_the_poller_has_passed_its_entries() {
    let mut bed = Bed::new(3, 64);
    let (queue, other) = (Rc::new(Outstanding::default()), Outstanding::default());
    let deferred = Deferred::default();
    bed.register(9, &*queue);
    bed.register(1, &other);
    for (i, index) in [9, 1, 9, 1].into_iter().enumerate() {
        other.receive(0, i as u64);
        bed.device.write(Entry::new(2, index, 0));
    }
    bed.table.depart(9);
    deferred.push(bed.ring.state().end_of(9).unwrap(), Rc::clone(&queue));
    bed.ring.attention().set_deferred();
    let attend = |bed: &mut Bed| {
        assert!(bed.ring.needs_attention());
        assert!(bed.ring.attention().take_deferred());
        bed.ring.clear_cached_queues();
        if deferred.release(bed.ring.consumer()) {
            bed.ring.attention().set_deferred();
        }
    };
    attend(&mut bed);
    assert_eq!(bed.next_id(), Some(0));
    attend(&mut bed);
    assert_eq!(Rc::strong_count(&queue), 2, "an entry that names it is still there");
    assert_eq!(bed.next_id(), Some(1));
    attend(&mut bed);
    assert_eq!(Rc::strong_count(&queue), 1);
    assert!(!bed.ring.needs_attention());
    assert!(!bed.ring.attention().take_deferred());
}

#[test]
fn attention_flags_are_set_and_taken_one_by_one() {
    let bed = Bed::<Outstanding>::new(0, 64);
    let attention = bed.ring.attention();
    assert!(!bed.ring.needs_attention() && !attention.is_gone() && !attention.is_forked());
    attention.set_deferred();
    assert!(bed.ring.needs_attention() && !attention.is_gone());
    attention.set_gone();
    assert!(attention.take_deferred());
    assert!(!attention.take_deferred());
    assert!(bed.ring.needs_attention() && attention.is_gone() && !attention.is_forked());
}

#[test]
fn polling_fails_after_any_one_thing_that_ends_it_and_after_nothing_else() {
    let ends: [fn(&mut Bed<Outstanding>); 4] = [
        |bed| bed.ring.attention().set_gone(),
        |bed| bed.ring.attention().set_overrun(),
        |bed| {
            // No queue ever had this index.
            bed.device.write(Entry::new(2, 9, 0));
            assert!(bed.next().is_none() && bed.ring.corruption().is_some());
        },
        |bed| bed.fork(),
    ];
    for end in ends {
        let mut bed = Bed::<Outstanding>::new(1, 64);
        let attention = bed.ring.attention();
        assert!(!attention.is_failed());
        attention.set_deferred();
        attention.set_handed_over();
        assert!(!attention.is_failed());
        end(&mut bed);
        assert!(attention.is_failed(), "{attention:?}");
    }
}

#[test]
fn the_word_of_attention_stays_wiped_after_a_fork() {
    let bed = Bed::<Outstanding>::new(0, 64);
    let attention = bed.ring.attention();
    attention.set_gone();
    bed.fork();
    assert!(attention.is_forked() && bed.ring.needs_attention());
    attention.set_deferred();
    attention.set_gone();
    assert!(!attention.take_deferred());
    assert!(attention.is_forked() && bed.ring.needs_attention() && !attention.is_gone());
}
