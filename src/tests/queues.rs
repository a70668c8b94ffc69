//! Tests of queues that need access to internals.

use super::*;
use crate::transport::Rc;
use mlx5_cq::{Lookup, Side};

/// Destroyed queue pairs are freed even if their completion queue is never polled.
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

/// A batch that is not finished may wait in a task that moves between threads.
#[test]
fn a_future_that_holds_a_batch_can_be_sent() {
    fn sent<F: Future + Send>(future: F) -> F {
        future
    }
    async fn post<T: QueuePairTransport>(qp: &mut QueuePair<T>) -> Result<(), BatchError> {
        let batch = qp.wr_start();
        std::future::ready(()).await;
        batch.complete()
    }
    async fn in_pieces(mut qp: QueuePair<Rc>) -> Result<(), BatchError> {
        let mut batch = qp.wr_start();
        let request = batch.wr(1, SendFlags::SIGNALED).send();
        std::future::ready(()).await;
        request.inline_data(b"hello");
        batch.complete()
    }
    // Compiling is the test.
    let _ = |mut rc: QueuePair<Rc>, mut uc: QueuePair<transport::Uc>| {
        drop((sent(post(&mut rc)), sent(post(&mut uc))));
        drop(sent(in_pieces(rc)));
    };
    let _ = |mut ud: QueuePair<transport::Ud>, mut xrc: QueuePair<transport::XrcSend>| {
        drop((sent(post(&mut ud)), sent(post(&mut xrc))));
    };
}

/// Two threads may not have one batch at the same time.
#[test]
fn a_batch_is_not_shared_by_threads() {
    trait Sharing<Case> {
        fn case(&self) {}
    }
    impl<T> Sharing<[(); 0]> for T {}
    impl<T: Sync> Sharing<[(); 1]> for T {}
    // Ambiguous, and so an error, if the batch were `Sync`.
    let _ = |batch: Batch<'_, Rc>| Sharing::<_>::case(&batch);
}

/// Only requests that the device receives into would need a signature, too.
#[test]
fn a_queue_pair_without_receives_of_its_own_may_have_signed_requests() {
    let simulator = Simulator::new(infiniband());
    let context = open(&simulator);
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(8).build().unwrap();
    let tags = pd.create_tm_srq(&cq, 8).build().unwrap();
    let srq = pd.create_srq(8).build().unwrap();
    fn signed<'a, T: QueuePairTransport>(
        pd: &'a ProtectionDomain,
        cq: &'a CompletionQueue,
    ) -> QueuePairBuilder<'a, T> {
        pd.create_qp::<T>(cq, cq).wqe_signature(true)
    }
    let refused = signed::<Rc>(&pd, &cq).build().unwrap_err();
    assert!(refused.to_string().contains("max_recv_wr(0)"), "{refused}");
    signed::<Rc>(&pd, &cq).max_recv_wr(0).build().unwrap();
    signed::<Rc>(&pd, &cq).srq(&srq).build().unwrap();
    signed::<Rc>(&pd, &cq).tm_srq(&tags).build().unwrap();
    signed::<transport::XrcSend>(&pd, &cq).build().unwrap();
}
