//! The new CQEs of each lap, and the times at which the consumer index is published.

use crate::bed::{Bed, Entry, Outstanding};

fn with_queue(bed: &Bed, queue: &Outstanding) {
    bed.register(7, queue);
}

#[test]
fn a_new_queue_holds_nothing() {
    for stride in [64, 128] {
        for log_size in 0..6 {
            let mut bed = Bed::<Outstanding>::new(log_size, stride);
            assert_eq!(bed.ring.state().size(), 1 << log_size);
            for index in 0..1 << log_size {
                // Opcode 15, not written; and the ownership bit of the lap before the first.
                assert_eq!(bed.device.last_byte(index), 0xf1);
            }
            assert!(!bed.ring.has_next());
            assert!(bed.next().is_none());
            assert_eq!(bed.ring.corruption(), None);
            assert_eq!((bed.ring.consumer(), bed.published()), (0, 0));
        }
    }
}

#[test]
fn every_entry_is_taken_once_in_every_lap() {
    for stride in [64, 128] {
        for log_size in 0..6 {
            let mut bed = Bed::new(log_size, stride);
            let queue = Outstanding::default();
            with_queue(&bed, &queue);
            for wr_id in 0..9u64 << log_size {
                assert!(!bed.ring.has_next());
                assert!(bed.next().is_none(), "what stays from the last lap is not new");
                queue.send(wr_id as u16, wr_id, 0x0a);
                bed.device.write(Entry::new(0, 7, wr_id as u16));
                assert!(bed.ring.has_next());
                assert_eq!(bed.next_id(), Some(wr_id));
            }
            assert!(bed.next().is_none());
            assert_eq!(bed.ring.corruption(), None);
        }
    }
}

/// Everything in the queue looks like the last lap's except for the ownership bit. If the ring
/// ignored that, old entries would complete the outstanding requests.
#[test]
fn an_entry_of_the_last_lap_completes_nothing() {
    let mut bed = Bed::new(2, 64);
    let queue = Outstanding::default();
    with_queue(&bed, &queue);
    for lap in 0..5u16 {
        for slot in 0..4 {
            queue.send(slot, u64::from(lap * 4 + slot), 0x0a);
        }
        assert!(bed.next().is_none());
        for slot in 0..4 {
            bed.device.write(Entry::new(0, 7, slot));
            assert_eq!(bed.next_id(), Some(u64::from(lap * 4 + slot)));
            assert!(bed.next().is_none());
        }
    }
}

#[test]
fn a_full_queue_is_polled_to_its_end() {
    for log_size in 0..5 {
        let mut bed = Bed::new(log_size, 64);
        let queue = Outstanding::default();
        with_queue(&bed, &queue);
        let mut next = 0u16;
        for _ in 0..6 {
            for counter in next..next + (1 << log_size) {
                queue.receive(counter, counter.into());
                bed.device.write(Entry::new(2, 7, counter));
            }
            for _ in 0..1 << log_size {
                assert_eq!(bed.next_id(), Some(next.into()));
                next += 1;
            }
            assert!(bed.next().is_none());
        }
    }
}

/// The device may reuse a CQE only once the consumer index has passed it.
#[test]
fn published_consumer_index_reaches_the_device() {
    let mut bed = Bed::new(3, 64);
    let queue = Outstanding::default();
    with_queue(&bed, &queue);
    for counter in 0..1000u16 {
        queue.send(counter, 1, 0x0a);
        bed.device.write(Entry::new(0, 7, counter));
        assert_eq!(bed.next_id(), Some(1));
        let published = u32::from(counter) / 3 * 3;
        assert_eq!((bed.published(), bed.ring.state().consumed()), (published, published));
        assert_eq!(bed.ring.consumer(), u32::from(counter) + 1);
        if counter % 3 == 2 {
            bed.ring.publish();
            assert_eq!(bed.words.read::<4>(0), (published + 3).to_be_bytes());
            assert_eq!(bed.words.read::<4>(4), [0; 4], "the arm word is left alone");
        }
    }
}

/// The ring reads CQEs when it polls them: those that were polled but not published stay.
#[test]
fn a_batch_is_taken_with_one_publication() {
    let mut bed = Bed::new(4, 64);
    let queue = Outstanding::default();
    with_queue(&bed, &queue);
    for turn in 0..20u16 {
        for i in 0..16 {
            queue.receive(i, i.into());
            bed.device.write(Entry::new(3, 7, i).imm([turn as u8, i as u8, 3, 4]));
        }
        for i in 0..16 {
            let completion = bed.next().unwrap();
            assert_eq!(completion.imm_data(), Some([turn as u8, i, 3, 4]));
        }
        assert_eq!(bed.published(), u32::from(turn) * 16);
        bed.ring.publish();
        assert_eq!(bed.published(), u32::from(turn) * 16 + 16);
    }
}

/// CQEs that were consumed one by one and never published are published with the next ones.
#[test]
fn a_poll_publishes_what_was_taken_before_it() {
    let mut bed = Bed::new(3, 64);
    let queue = Outstanding::default();
    with_queue(&bed, &queue);
    for wr_id in 0..5 {
        queue.send(wr_id, wr_id.into(), 0x0a);
        bed.device.write(Entry::new(0, 7, wr_id));
    }
    for wr_id in 0..3 {
        assert_eq!(bed.next_id(), Some(wr_id));
    }
    assert_eq!((bed.published(), bed.ring.consumer()), (0, 3));
    let mut poll = bed.ring.poll();
    assert!(matches!(poll.next(), mlx5_cq::Next::Completion(_)));
    drop(poll);
    assert_eq!((bed.published(), bed.ring.consumer()), (4, 4));
    assert_eq!(bed.next_id(), Some(4));
    // A poll that finds nothing publishes nothing.
    assert!(matches!(bed.ring.poll().next(), mlx5_cq::Next::Empty));
    assert_eq!(bed.ring.consumer(), 5);
}
