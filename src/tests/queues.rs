//! Tests of queues that need access to internals.

use super::*;
use crate::transport::Rc;
use mlx5_cq::{Lookup, Side};

/// Destroyed queue pairs are freed even if nobody polls their completion queue.
#[test]
fn queue_pairs_of_a_queue_that_is_never_polled_do_not_pile_up() {
    let simulator = Simulator::new(infiniband());
    let context = open(&simulator);
    let pd = context.alloc_pd().unwrap();
    let (sends, receives) =
        (context.create_cq(4).build().unwrap(), context.create_cq(4).build().unwrap());
    for _ in 0..100 {
        let qp = pd.create_qp::<Rc>(&sends, &receives).max_send_wr(4).build().unwrap();
        qp.destroy().unwrap();
    }
    let table = &context.inner.user_indexes.table;
    let ring = sends.inner.ring_id();
    let is_used = |index| !matches!(table.get(index, ring, Side::Send), Lookup::Unknown);
    assert!(is_used(0) && !is_used(1), "one index does for all");
}

/// The kernel's limits may be nonsense.
#[test]
fn a_completion_queue_is_no_longer_than_its_counter_can_tell() {
    let simulator = Simulator::new(infiniband());
    let context = open(&simulator);
    for entries in [1 << 23, u32::MAX / 2, u32::MAX] {
        let error = context.create_cq(entries).build().err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
    assert_eq!(crate::cq::entries_for(1, u32::MAX), Some(2));
    assert_eq!(crate::cq::entries_for((1 << 23) - 1, u32::MAX), Some(1 << 23));
    for (entries, max) in [(0, 8), (9, 8), (1 << 23, u32::MAX), (u32::MAX, u32::MAX)] {
        assert_eq!(crate::cq::entries_for(entries, max), None, "{entries} of {max}");
    }
}
