//! CQEs that are no completions.

use crate::bed::{Bed, Entry, Outstanding};
use std::sync::mpsc;

const SIGNATURE_ERROR: u8 = 12;

/// The key reports a signature that does not match. The poller skips the CQE, and publishes the
/// consumer index even if it finds nothing else.
#[test]
fn signature_errors_go_to_the_hook_and_are_no_completions() {
    for stride in [64, 128] {
        let mut bed = Bed::new(3, stride);
        let queue = Outstanding::default();
        bed.register(5, &queue);
        let (reports, received) = mpsc::channel();
        bed.ring.on_signature_error(Box::new(move |entry| {
            reports.send((entry.mkey.get(), entry.syndrome.get())).unwrap();
        }));
        for lap in 0..20u32 {
            // The word that has the user index in other CQEs has syndrome, type and domain here, so
            // it may look like an index that no queue has.
            for index in [5, 0x20_0001] {
                bed.device.write(Entry::new(SIGNATURE_ERROR, index, 0));
                assert!(bed.next().is_none());
                assert_eq!(bed.published(), bed.ring.consumer() & 0xff_ffff);
                assert_eq!(received.try_recv().unwrap().1 & 0xff, (index >> 16) as u16);
            }
            queue.send(lap as u16, lap.into(), 0x0a);
            bed.device.write(Entry::new(SIGNATURE_ERROR, 5, 0));
            bed.device.write(Entry::new(0, 5, lap as u16));
            assert_eq!(bed.next_id(), Some(lap.into()));
            bed.ring.publish();
            assert!(received.try_recv().is_ok());
        }
        assert_eq!(bed.ring.corruption(), None);
    }
}

/// A device in error reports a request with several WQEs more than once.
#[test]
fn repeated_completion_is_passed_over() {
    let mut bed = Bed::new(3, 64);
    let queue = Outstanding::default();
    bed.register(5, &queue);
    for lap in 0..20u16 {
        queue.send(lap * 2, 7, 0x25);
        bed.device.write(Entry::new(13, 5, lap * 2));
        bed.device.write(Entry::new(13, 5, lap * 2 + 1));
        queue.again.borrow_mut().push(lap * 2 + 1);
        assert_eq!(bed.next_id(), Some(7));
        assert!(bed.next().is_none());
        assert_eq!(bed.published(), u32::from(lap + 1) * 2);
    }
    assert_eq!(bed.ring.corruption(), None);
}
