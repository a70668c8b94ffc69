//! Tests of queues that need access to internals.

use super::*;
use crate::testing::Altered;
use crate::transport::Rc;
use mlx5_cq::{Lookup, Side};
use mlx5_uapi::ioctl::{attr, method};
use mlx5_uapi::mlx5::AllocUcontextResp;
use mlx5_uapi::write_cmd::ExQueryDeviceResp;
use std::mem::offset_of;
use std::sync::{Arc, Mutex};
use zerocopy::FromBytes;

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
fn completion_queue_is_no_longer_than_its_counter() {
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
    // The test is that this compiles.
    let _ = |mut rc: QueuePair<Rc>, mut uc: QueuePair<transport::Uc>| {
        drop((sent(post(&mut rc)), sent(post(&mut uc))));
        drop(sent(in_pieces(rc)));
    };
    let _ = |mut ud: QueuePair<transport::Ud>, mut xrc: QueuePair<transport::XrcSend>| {
        drop((sent(post(&mut ud)), sent(post(&mut xrc))));
    };
}

/// Two threads must not use one batch at the same time.
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

/// Only requests into which the device receives would need a signature, too.
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
    let refused = pd.create_qp::<transport::XrcSend>(&cq, &cq).srq(&srq).build().unwrap_err();
    assert!(refused.to_string().contains("have no receive queue"), "{refused}");
}

#[test]
fn a_queue_pair_of_any_transport_says_where_it_receives_from() {
    let simulator = Simulator::new(infiniband());
    let context = open(&simulator);
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(8).build().unwrap();
    let srq = pd.create_srq(8).build().unwrap();
    let own = pd.create_qp::<Rc>(&cq, &cq).build().unwrap();
    let shared = pd.create_qp::<Rc>(&cq, &cq).srq(&srq).build().unwrap();
    let any = [AnyQueuePair::from(own), AnyQueuePair::from(shared)];
    assert_eq!(any.map(|qp| qp.has_srq()), [false, true]);
}

/// Opens a context on a device with these limits.
fn limited(
    simulator: &Simulator,
    limits: impl Fn(&mut AllocUcontextResp) + Send + Sync + 'static,
) -> Context {
    let kernel = Altered::new(simulator.kernel(), move |call| {
        call.pass()?;
        if call.method == method::GET_CONTEXT {
            let bytes = call.output(attr::uhw::OUT);
            let (answer, _) = AllocUcontextResp::mut_from_prefix(bytes).expect("long enough");
            limits(answer);
        }
        Ok(())
    });
    devices_on(kernel).unwrap()[0].open().unwrap()
}

#[test]
fn a_queue_pair_larger_than_the_device_allows_is_refused_at_the_limit() {
    let simulator = Simulator::new(infiniband());
    let context = limited(&simulator, |limits| {
        (limits.max_sq_desc_sz, limits.max_send_wqebb) = (256, 64);
        (limits.max_rq_desc_sz, limits.max_recv_wr) = (64, 32);
    });
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(8).build().unwrap();
    let qp = || pd.create_qp::<Rc>(&cq, &cq).max_send_wr(1).max_recv_wr(1);
    // An RDMA write has 32 bytes before 14 SGEs or 220 bytes.
    for (fits, too_large) in [
        (qp().max_send_sge(12), qp().max_send_sge(16)),
        (qp().max_inline_data(188), qp().max_inline_data(240)),
        (qp().max_send_wr(64), qp().max_send_wr(65)),
        (qp().max_recv_wr(32), qp().max_recv_wr(33)),
        (qp().max_recv_sge(4), qp().max_recv_sge(5)),
    ] {
        fits.build().unwrap();
        let refused = too_large.build().unwrap_err();
        assert_eq!((refused.kind(), refused.errno()), (ErrorKind::InvalidArgument, None));
        assert!(refused.to_string().contains("do not fit"), "{refused}");
    }
}

#[test]
fn a_queue_pair_that_asks_for_no_inline_data_takes_what_its_blocks_have_room_for() {
    let simulator = Simulator::new(infiniband());
    let context = devices_on(simulator.kernel()).unwrap()[0].open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(8).build().unwrap();
    let caps = pd.create_qp::<Rc>(&cq, &cq).build().unwrap().caps();
    let asked = pd.create_qp::<Rc>(&cq, &cq).max_inline_data(caps.max_inline_data).build().unwrap();
    assert!(caps.max_inline_data > 0);
    assert_eq!(asked.caps(), caps);
    let more = pd.create_qp::<Rc>(&cq, &cq).max_inline_data(caps.max_inline_data + 1);
    assert!(more.build().unwrap().caps().max_wr_blocks > caps.max_wr_blocks);
}

#[test]
fn a_device_without_atomics_refuses_a_queue_pair_for_them() {
    let simulator = Simulator::new(infiniband());
    for has_atomics in [true, false] {
        let kernel = Altered::new(simulator.kernel(), move |call| {
            call.pass()?;
            if call.method == method::INVOKE_WRITE && !has_atomics {
                let answer = call.output(attr::invoke_write::CORE_OUT);
                // Only the answer to QUERY_DEVICE is this long.
                if answer.len() >= size_of::<ExQueryDeviceResp>() {
                    answer[offset_of!(ExQueryDeviceResp, base.atomic_cap)..][..4].fill(0);
                }
            }
            Ok(())
        });
        let context = devices_on(kernel).unwrap()[0].open().unwrap();
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(8).build().unwrap();
        let with = |ops| pd.create_qp::<Rc>(&cq, &cq).send_ops(ops).build();
        with(SendOps::SEND | SendOps::RDMA_WRITE).unwrap();
        match (has_atomics, with(SendOps::SEND | SendOps::FETCH_ADD)) {
            (true, made) => drop(made.unwrap()),
            (false, made) => {
                let refused = made.unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::NotSupported);
                let text = refused.to_string();
                assert!(text.contains("the device does not have FETCH_ADD"), "{text}");
            }
        }
    }
}

#[test]
fn a_control_half_stays_in_init_and_in_reset() {
    let simulator = Simulator::new(infiniband());
    let context = open(&simulator);
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(8).build().unwrap();
    let port = context.local_port(1, None).unwrap();
    let mut qp = pd.create_qp::<Rc>(&cq, &cq).build().unwrap();
    qp.init(&port, &ConnectOptions::default()).unwrap();
    let (_send, _receive, mut control) = qp.split();
    let init = QpAttributes::new().qp_state(QueueState::Init);
    control.modify(&init.qp_access_flags(Access::REMOTE_READ)).unwrap();
    assert_eq!(control.state(), QueueState::Init);
    control.reset().unwrap();
    control.reset().unwrap();
    let refused = control.modify(&init.pkey_index(0).port_num(1).qp_access_flags(Access::empty()));
    assert!(refused.unwrap_err().to_string().contains("join its halves first"));
}

/// After the device has reset its counters, a posted request would be in the wrong place.
#[test]
fn nothing_is_posted_while_a_queue_pair_is_reset() {
    let simulator = Simulator::new(infiniband());
    let sender: Arc<Mutex<Option<SendHalf<Rc>>>> = Arc::default();
    let attempts = Arc::new(Mutex::new(Vec::new()));
    let (other, list) = (Arc::clone(&sender), Arc::clone(&attempts));
    let kernel = Altered::new(simulator.kernel(), move |call| {
        // As another thread would, during the command.
        if call.method == method::INVOKE_WRITE
            && let Some(half) = &mut *other.lock().unwrap()
        {
            let posted =
                half.post(|batch| batch.wr(1, SendFlags::SIGNALED).send().inline_data(b""));
            list.lock().unwrap().push(posted.err().map(|refused| refused.error()));
        }
        call.pass()
    });
    let context = devices_on(kernel).unwrap()[0].open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(8).build().unwrap();
    let (port, psn) = (context.local_port(1, None).unwrap(), Psn::default());
    let options = ConnectOptions::default();
    let mut qp = pd.create_qp::<Rc>(&cq, &cq).max_inline_data(8).build().unwrap();
    let itself = qp.endpoint(&port, psn, &options);
    qp.connect(&port, psn, &itself, &options).unwrap();
    let (send, _receive, mut control) = qp.split();
    *sender.lock().unwrap() = Some(send);
    // It stays in RTS: posting continues.
    let rts = QpAttributes::new().qp_state(QueueState::ReadyToSend);
    control.modify(&rts.min_rnr_timer(RnrTimer::default())).unwrap();
    control.reset().unwrap();
    let refused = PostError::State(QueueState::Reset);
    assert_eq!(*attempts.lock().unwrap(), [None, Some(refused)]);
    *sender.lock().unwrap() = None;
}

#[test]
fn a_queue_pair_that_is_withdrawn_refuses_its_halves_until_they_go() {
    let simulator = Simulator::new(infiniband());
    let context = open(&simulator);
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(16).build().unwrap();
    let qp = pd.create_qp::<Rc>(&cq, &cq).max_inline_data(8).build().unwrap();
    let (mut send, mut receive, mut control) = qp.split();
    control.withdraw().unwrap();
    control.withdraw().unwrap();
    assert!(send.post(|batch| batch.wr(1, SendFlags::empty()).send().inline_data(b"x")).is_err());
    let refused = receive.as_mut().unwrap().recv(1, Sge::default());
    assert!(refused.is_err(), "{refused:?}");
    let init = QpAttributes::new().qp_state(mlx5_wqe::QueueState::Init);
    assert!(control.modify(&init.pkey_index(0).port_num(1)).is_err());
    assert!(control.query().is_err());
    drop((send, receive, control, cq, pd, context));
    assert_clean(&simulator);
}

/// Like `mlx5_ib_create_srq`, which ignores the limit.
#[test]
fn a_limit_given_to_create_a_shared_queue_is_ignored_and_one_that_is_set_is_armed() {
    let simulator = Simulator::new(infiniband());
    let pd = open(&simulator).alloc_pd().unwrap();
    let mut srq = pd.create_srq(8).limit(4).build().unwrap();
    assert_eq!(srq.query().unwrap().limit, 0);
    for wr_id in 0..8 {
        srq.recv(wr_id, Sge::default()).unwrap();
    }
    srq.set_limit(4).unwrap();
    assert_eq!(srq.query().unwrap().limit, 4);
}

#[test]
fn a_queue_pair_knows_on_which_queues_it_completes() {
    let simulator = Simulator::new(infiniband());
    let context = open(&simulator);
    let pd = context.alloc_pd().unwrap();
    let [one, two, other] = [0; 3].map(|_| context.create_cq(4).build().unwrap());
    let qp = pd.create_qp::<Rc>(&one, &two).build().unwrap();
    assert_eq!(qp.completes_on(&one.target()), (true, false));
    assert_eq!(qp.completes_on(&two.target()), (false, true));
    assert_eq!(qp.completes_on(&other.target()), (false, false));
    let both = pd.create_qp::<Rc>(&one, &one).build().unwrap();
    assert_eq!(both.completes_on(&one.target()), (true, true));
}

#[test]
fn a_queue_for_extended_connections_is_of_one_context_with_all_that_it_uses() {
    let simulator = Simulator::new(SimConfig::new());
    let (here, there) = (open(&simulator), open(&simulator));
    let pd = here.alloc_pd().unwrap();
    let of =
        |context: &Context| (context.open_xrcd().unwrap(), context.create_cq(16).build().unwrap());
    let (near, far) = (of(&here), of(&there));
    for (domain, cq) in [(&far.0, &near.1), (&near.0, &far.1), (&far.0, &far.1)] {
        let error = pd.create_srq(4).xrc(domain, cq).build().unwrap_err();
        assert!(error.to_string().contains("different contexts"), "{error}");
    }
    pd.create_srq(4).xrc(&near.0, &near.1).build().unwrap();
}
