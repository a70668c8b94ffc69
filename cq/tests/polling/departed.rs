//! Queues that are gone, and the word that tells a poller.

use crate::bed::{Bed, Entry, Outstanding};
use mlx5_cq::{Corruption, Departures, Lookup, UserIndexTable};
use std::sync::Arc;

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
        // Those behind the last completion count as consumed too.
        assert_eq!(bed.ring.consumer(), u32::from(turn) * 6 + 6);
        bed.ring.publish();
    }
    assert_eq!(gone.asked.get(), 0);
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
    // Its memory stays until the poller attends to departures, so that this is sound; and the
    // request did complete.
    bed.table.depart(3);
    assert_eq!(bed.next_id(), Some(1));
    bed.ring.forget_queue();
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
    bed.ring.forget_queue();
    bed.register(3, &second);
    bed.device.write(Entry::new(0, 3, 0));
    assert_eq!(bed.next_id(), Some(2));
}

#[test]
fn every_index_of_24_bits_has_a_place_of_its_own() {
    let table = UserIndexTable::<u32>::default();
    assert_eq!(UserIndexTable::<u32>::SIZE, 1 << 24);
    let values: Vec<u32> = (0..24).map(|bit| 1 << bit).chain([0, 0xff_ffff, 0xfff, 0xfff_000]).collect();
    for value in &values {
        // SAFETY: the values outlive the table.
        unsafe { table.set(*value, value.into()) };
    }
    for value in &values {
        assert_eq!(table.get(*value), Lookup::Queue(value.into()));
        // Only 24 bits count.
        assert_eq!(table.get(*value | 0xab00_0000), Lookup::Queue(value.into()));
    }
    assert_eq!(table.get(3), Lookup::Unknown);
    assert_eq!(table.get(0x00f0_0000), Lookup::Unknown);
    // An index that was never used does not depart.
    table.depart(0x00f0_0000);
    assert_eq!(table.get(0x00f0_0000), Lookup::Unknown);
    table.depart(4);
    assert_eq!(table.get(4), Lookup::Departed);
}

/// Where the entries of a queue end.
#[test]
fn the_last_entry_that_names_a_queue_is_found() {
    let mut bed = Bed::new(3, 64);
    let queue = Outstanding::default();
    bed.register(9, &queue);
    let state = Arc::clone(bed.ring.state());
    let mut expected = std::collections::HashMap::new();
    for step in 0..200u32 {
        let index = step % 3;
        assert_eq!(state.end_of(9), None);
        // Two entries for one of three queues, one for another, then all of it is consumed.
        for index in [index, 9, (index + 1) % 3] {
            queue.receive(0, 1);
            bed.device.write(Entry::new(2, index, 0));
            expected.insert(index, bed.device.written);
        }
        for index in 0..3 {
            let end = expected.get(&index).copied();
            assert_eq!(state.end_of(index), end.filter(|&end| end > state.consumed()));
        }
        assert_eq!(state.end_of(9), Some(bed.device.written - 1));
        // The queues are gone; the poller passes over them.
        (0..3).for_each(|index| bed.table.depart(index));
        if step == 0 {
            let unknown = Corruption::UserIndex(0);
            assert!(bed.next().is_none());
            assert_eq!(bed.ring.corruption(), Some(unknown), "they were never there");
            bed = Bed::new(3, 64);
            return_to(&mut bed, &queue);
            return;
        }
    }
}

fn return_to(bed: &mut Bed, queue: &Outstanding) {
    let never = Outstanding::default();
    bed.register(9, queue);
    (0..3).for_each(|index| bed.register(index, &never));
    (0..3).for_each(|index| bed.table.depart(index));
    let state = Arc::clone(bed.ring.state());
    for step in 0..200u32 {
        let index = step % 3;
        for index in [index, 9, index, 9, (index + 1) % 3] {
            bed.device.write(Entry::new(2, index, 0));
        }
        let start = step * 5;
        assert_eq!(state.consumed(), start);
        assert_eq!(state.end_of(index), Some(start + 3));
        assert_eq!(state.end_of((index + 1) % 3), Some(start + 5));
        assert_eq!(state.end_of((index + 2) % 3), None);
        assert_eq!(state.end_of(9), Some(start + 4));
        queue.receive(0, 1);
        queue.receive(0, 2);
        assert!(bed.next().is_some());
        assert!(bed.next().is_some());
        // What was taken but not published could be written again at any time after; it counts
        // until then.
        assert_eq!(state.end_of(index), Some(start + 3));
        assert!(bed.next().is_none());
        bed.ring.publish();
        assert!((0..10).all(|index| state.end_of(index).is_none()));
    }
}
