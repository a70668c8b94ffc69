//! Signatures of requests: the signature byte makes the exclusive-or of all bytes of a WQE 0xff.

use crate::bed::{Bed, Spec};
use mlx5_wqe::{Data, Operation, Rc, SendFlags, SendWr, Sge};

#[test]
fn a_request_as_large_as_the_ring_is_signed_whole() {
    for entries in [1, 5, 61] {
        let spec = Spec { requests: 1, sges: entries, ..Spec::default() };
        let mut bed = Bed::<Rc>::new(spec);
        bed.queue.sign_requests();
        let sges: Vec<Sge> = (0..bed.layout.max_sge)
            .map(|number| Sge {
                addr: 0x1234_5600 + u64::from(number),
                length: 1 << (number % 7),
                lkey: 3,
            })
            .collect();
        bed.queue
            .post_send(&[SendWr {
                flags: SendFlags::SIGNALED,
                operation: Operation::Send,
                data: Data::Sges(&sges),
                ..SendWr::default()
            }])
            .unwrap();
        let bytes = (1 + sges.len()) * 16;
        assert!(bytes > bed.layout.bytes() - 64, "it reaches into the last block");
        let sum = bed.ring.read(0, bytes).into_iter().fold(0, |sum, byte| sum ^ byte);
        assert_eq!(sum, 0xff, "{entries} entries");
    }
}

/// A reset starts the ring over; the fast path, which signs nothing, must stay closed.
#[test]
fn a_queue_signs_its_requests_after_a_reset_too() {
    let mut bed = Bed::<Rc>::new(Spec::default());
    bed.queue.sign_requests();
    for _ in 0..2 {
        let mut batch = bed.queue.wr_start();
        batch.wr(1, SendFlags::SIGNALED).send().sge(Sge { addr: 0x1234, length: 5, lkey: 3 });
        batch.complete().unwrap();
        let sum = bed.ring.read(0, 32).into_iter().fold(0, |sum, byte| sum ^ byte);
        assert_eq!(sum, 0xff);
        bed.retire(0).unwrap();
        bed.queue.reset();
    }
}
