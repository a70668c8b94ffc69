//! Posting by closures, and batches that move between threads.

use crate::prelude::*;
use mlx5::{
    AnyQueuePair, BatchError, Data, Error, ErrorKind, ListError, Operation, UdAddress,
};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::task::{Context as Waker, Poll};

pub(crate) const CASES: &[Case] = cases![
    a_closure_posts_one_batch: EVERY_MODEL,
    a_closure_that_fails_or_panics_posts_nothing,
    a_refused_request_fails_the_whole_closure,
    a_batch_is_built_by_one_thread_and_completed_by_another: EVERY_MODEL,
    a_future_with_a_batch_moves_between_threads: EVERY_MODEL,
    a_closure_posts_to_a_queue_pair_of_any_transport: EVERY_MODEL,
    an_operation_that_the_transport_lacks_is_refused_at_run_time,
    requests_of_an_iterator_are_posted_up_to_the_first_bad_one: EVERY_MODEL,
    receives_are_posted_one_by_one_and_from_an_iterator: EVERY_MODEL,
    a_shared_receive_queue_takes_receives_one_by_one_and_from_an_iterator: EVERY_MODEL,
    a_queue_pair_without_receives_refuses_them,
];

/// The error of a closure, or of its batch.
#[derive(Debug)]
enum Why {
    Batch(BatchError),
    Call(Error),
    Own(u32),
}

impl From<BatchError> for Why {
    fn from(error: BatchError) -> Self {
        Self::Batch(error)
    }
}

impl From<Error> for Why {
    fn from(error: Error) -> Self {
        Self::Call(error)
    }
}

fn a_closure_posts_one_batch(bed: &Bed) -> Outcome {
    let Pair { mut a, b } = bed.pair::<Rc>(&PairOptions::default())?;
    let remote = b.mr.remote(0..)?;
    a.qp.post(|batch| {
        batch.wr(1, SendFlags::empty()).rdma_write(remote).inline_data(b"one");
        batch.wr(2, SendFlags::SIGNALED).rdma_write(remote).inline_data(b"two");
    })?;
    assert_eq!(wr_ids(&bed.poll_good(&mut a.send_cq, 1)), [2]);
    let (mut send, receive, control) = a.qp.split();
    let handed = send.try_post(|batch| {
        batch.wr(3, SendFlags::SIGNALED).rdma_write(remote).inline_data(b"three");
        Ok::<_, Why>(batch.len())
    });
    assert!(matches!(handed, Ok(1)), "{handed:?}");
    send.post(|_| {})?;
    assert_eq!(wr_ids(&bed.poll_good(&mut a.send_cq, 1)), [3]);
    let shared = QueuePair::join(send, receive, control).into_shared();
    shared.try_post(|batch| {
        batch.wr(4, SendFlags::SIGNALED).rdma_write(remote).inline_data(b"four");
        Ok::<_, Why>(())
    })
    .map_err(|why| format!("{why:?}"))?;
    assert_eq!(wr_ids(&bed.poll_good(&mut a.send_cq, 1)), [4]);
    drop(shared.into_inner());
    bed.nothing(&mut a.send_cq);
    let mut last = [0; 5];
    b.mr.read_at(0, &mut last)?;
    assert_eq!(&last, b"foure", "over `three`");
    Ok(())
}

fn a_closure_that_fails_or_panics_posts_nothing(bed: &Bed) -> Outcome {
    let Pair { mut a, b } = bed.pair::<Rc>(&PairOptions::default().send_wr(8))?;
    let remote = b.mr.remote(0..)?;
    let free = a.qp.free_send_blocks();
    // More rounds than the queue has room for.
    for round in 0..40 {
        let outside = a.qp.try_post(|batch| {
            batch.wr(1, SendFlags::SIGNALED).rdma_write(remote).inline_data(b"no");
            let sge = a.mr.sge(1 << 40..(1 << 40) + 8)?;
            batch.wr(2, SendFlags::SIGNALED).rdma_write(remote).sge(sge);
            Ok::<_, Why>(())
        });
        let Err(Why::Call(error)) = outside else { panic!("{outside:?}") };
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        // The caller gets the closure's error, even if a request was refused before.
        let own = a.qp.try_post(|batch| {
            batch.wr(1, SendFlags::SIGNALED).rdma_write(remote).inline_data(&[0; 4096]);
            Err::<(), _>(Why::Own(round))
        });
        assert!(matches!(own, Err(Why::Own(it)) if it == round), "{own:?}");
        let panic = catch_unwind(AssertUnwindSafe(|| {
            a.qp.post(|batch| {
                batch.wr(1, SendFlags::SIGNALED).rdma_write(remote).inline_data(b"no");
                resume_unwind(Box::new("of a batch"));
            })
        }));
        assert!(panic.is_err());
        assert_eq!(a.qp.free_send_blocks(), free);
    }
    let shared = a.qp.into_shared();
    let own = shared.try_post(|batch| {
        batch.wr(1, SendFlags::SIGNALED).rdma_write(remote).inline_data(b"no");
        Err::<(), _>(Why::Own(41))
    });
    assert!(matches!(own, Err(Why::Own(41))), "{own:?}");
    assert_eq!(shared.lock_send().free_blocks(), free);
    shared.post(|batch| {
        batch.wr(3, SendFlags::SIGNALED).rdma_write(remote).inline_data(b"yes");
    })?;
    assert_eq!(wr_ids(&bed.poll_good(&mut a.send_cq, 1)), [3]);
    bed.nothing(&mut a.send_cq);
    drop(shared.into_inner());
    Ok(())
}

fn a_refused_request_fails_the_whole_closure(bed: &Bed) -> Outcome {
    let Pair { mut a, b } = bed.pair::<Rc>(&PairOptions::default().inline(16))?;
    let remote = b.mr.remote(0..)?;
    let max = a.qp.caps().max_inline_data;
    let long = vec![0; max as usize + 1];
    let refused = a.qp.try_post(|batch| {
        batch.wr(1, SendFlags::SIGNALED).rdma_write(remote).inline_data(b"good");
        batch.wr(2, SendFlags::SIGNALED).rdma_write(remote).inline_data(&long);
        batch.wr(3, SendFlags::SIGNALED).rdma_write(remote).inline_data(b"good");
        Ok::<_, Why>(())
    });
    let error = PostError::InlineTooLong { length: max + 1, max };
    let Err(Why::Batch(why)) = refused else { panic!("{refused:?}") };
    assert_eq!(why, BatchError::new(1, error));
    bed.nothing(&mut a.send_cq);
    Ok(())
}

fn a_batch_is_built_by_one_thread_and_completed_by_another(bed: &Bed) -> Outcome {
    // Few blocks, so that requests wrap and take the slow path.
    let Pair { mut a, b } = bed.pair::<Rc>(&PairOptions::default().send_wr(8))?;
    let remote = b.mr.remote(0..)?;
    let mut expected = Vec::new();
    let mut polled = Vec::new();
    for round in 0..50_u64 {
        let of = 1 + round % 3;
        std::thread::scope(|scope| {
            let mut batch = a.qp.wr_start();
            let first = scope.spawn(move || {
                for part in 1..of {
                    let wr = batch.wr(round << 8 | part, SendFlags::SIGNALED);
                    wr.rdma_write(remote).inline_data(&[part as u8; 40]);
                }
                batch
            });
            let mut batch = first.join().expect("built");
            let second = scope.spawn(move || {
                let wr = batch.wr(round << 8, SendFlags::SIGNALED);
                wr.rdma_write(remote).inline_data(&round.to_le_bytes());
                batch.complete()
            });
            second.join().expect("completed")
        })?;
        expected.extend((1..of).chain([0]).map(|part| round << 8 | part));
        polled.extend(wr_ids(&bed.poll_good(&mut a.send_cq, of as usize)));
        let mut last = [0; 8];
        b.mr.read_at(0, &mut last)?;
        assert_eq!(u64::from_le_bytes(last), round);
    }
    assert_eq!(polled, expected);
    Ok(())
}

fn a_future_with_a_batch_moves_between_threads(bed: &Bed) -> Outcome {
    let Pair { mut a, b } = bed.pair::<Rc>(&PairOptions::default())?;
    let remote = b.mr.remote(0..)?;
    let mut steps = 0;
    let qp = &mut a.qp;
    let future = async {
        let mut batch = qp.wr_start();
        for wr_id in 0..3 {
            batch.wr(wr_id, SendFlags::SIGNALED).rdma_write(remote).inline_data(b"step");
            // Waits once.
            let mut waited = false;
            std::future::poll_fn(|_| {
                if std::mem::replace(&mut waited, true) { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
        batch.complete()
    };
    let mut future = Box::pin(future);
    let posted = loop {
        steps += 1;
        let (back, outcome) = std::thread::scope(|scope| {
            let moved = scope.spawn(move || {
                let mut future = future;
                let outcome = pin!(&mut future).poll(&mut Waker::from_waker(std::task::Waker::noop()));
                (future, outcome)
            });
            moved.join().expect("polled")
        });
        future = back;
        if let Poll::Ready(posted) = outcome {
            break posted;
        }
    };
    posted?;
    drop(future);
    assert_eq!(steps, 4, "each on a thread of its own");
    assert_eq!(wr_ids(&bed.poll_good(&mut a.send_cq, 3)), [0, 1, 2]);
    Ok(())
}

fn a_closure_posts_to_a_queue_pair_of_any_transport(bed: &Bed) -> Outcome {
    let connected = PairOptions::default();
    let (rc, uc) = (bed.pair::<Rc>(&connected)?, bed.pair::<Uc>(&connected)?);
    let mut ud = bed.pair::<Ud>(&connected)?;
    let peer = ud.a.peer.take().ok_or("a peer")?;
    let ends: [(AnyQueuePair, _, _, _); 3] = [
        (rc.a.qp.into(), rc.a.send_cq, rc.b.mr.remote(0..)?, rc.a.mr),
        (uc.a.qp.into(), uc.a.send_cq, uc.b.mr.remote(0..)?, uc.a.mr),
        (ud.a.qp.into(), ud.a.send_cq, ud.b.mr.remote(0..)?, ud.a.mr),
    ];
    ud.b.recv(5, 0..4096);
    for (mut qp, mut cq, remote, mr) in ends {
        mr.write_at(0, b"to any")?;
        let sge = mr.sge(0..6)?;
        let datagrams = matches!(qp, AnyQueuePair::Ud(_));
        let operation = if datagrams { Operation::Send } else { Operation::RdmaWrite(remote) };
        let receiver =
            UdAddress { vector: peer.ah.vector(), qp_num: peer.qp_num, qkey: peer.qkey };
        let (flags, address) = (SendFlags::SIGNALED, Some(receiver));
        let wr = SendWr { flags, operation, address, ..SendWr::default() };
        let sges = [sge];
        qp.post(|batch| batch.push(&SendWr { wr_id: 1, data: Data::Sges(&sges), ..wr }))?;
        assert_eq!(wr_ids(&bed.poll_good(&mut cq, 1)), [1]);
        let failed = qp.try_post(|batch| {
            batch.push(&SendWr { wr_id: 2, data: Data::Inline(&[b"no"]), ..wr });
            Err::<(), _>(Why::Own(2))
        });
        assert!(matches!(failed, Err(Why::Own(2))), "{failed:?}");
        let (mut half, receive, control) = qp.split();
        half.post(|batch| {
            batch.push(&SendWr { wr_id: 3, data: Data::Inline(&[b"of half"]), ..wr });
        })?;
        assert_eq!(wr_ids(&bed.poll_good(&mut cq, 1)), [3]);
        let failed = half.try_post(|batch| Err::<(), _>(Why::Own(batch.len() as u32)));
        assert!(matches!(failed, Err(Why::Own(0))), "{failed:?}");
        drop(AnyQueuePair::join(half, receive, control));
        bed.nothing(&mut cq);
    }
    let mut bytes = [0; 7];
    rc.b.mr.read_at(0, &mut bytes)?;
    assert_eq!(&bytes, b"of half");
    uc.b.mr.read_at(0, &mut bytes)?;
    assert_eq!(&bytes, b"of half");
    assert_eq!(wr_ids(&bed.poll_good(ud.b.recv_cq(), 1)), [5]);
    ud.b.mr.read_at(40, &mut bytes)?;
    assert_eq!(&bytes[..6], b"to any");
    Ok(())
}

fn an_operation_that_the_transport_lacks_is_refused_at_run_time(bed: &Bed) -> Outcome {
    let Pair { a, b } = bed.pair::<Uc>(&PairOptions::default())?;
    let (remote, sge) = (b.mr.remote(0..)?, a.mr.sge(0..8)?);
    let (mut qp, mut cq) = (AnyQueuePair::from(a.qp), a.send_cq);
    let free = qp.free_send_blocks();
    let refused = qp.post(|batch| {
        let (flags, sges) = (SendFlags::SIGNALED, [sge]);
        let wr = SendWr { flags, data: Data::Sges(&sges), ..SendWr::default() };
        let (write, read) = (Operation::RdmaWrite(remote), Operation::RdmaRead(remote));
        for (wr_id, operation) in [(1, write), (2, read), (3, write)] {
            batch.push(&SendWr { wr_id, operation, ..wr });
        }
    });
    assert_eq!(refused, Err(BatchError::new(1, PostError::Unsupported)));
    assert_eq!(qp.free_send_blocks(), free);
    bed.nothing(&mut cq);
    let Pair { a, .. } = bed.pair::<Ud>(&PairOptions::default())?;
    let mut qp = AnyQueuePair::from(a.qp);
    let refused = qp.post(|batch| {
        batch.push(&SendWr { data: Data::Inline(&[b"to whom"]), ..SendWr::default() });
    });
    assert_eq!(refused, Err(BatchError::new(0, PostError::AddressMissing)));
    Ok(())
}

fn requests_of_an_iterator_are_posted_up_to_the_first_bad_one(bed: &Bed) -> Outcome {
    let Pair { a, b } = bed.pair::<Rc>(&PairOptions::default().send_wr(16))?;
    let remote = b.mr.remote(0..)?;
    let (mut cq, mr) = (a.send_cq, a.mr);
    let sge = [mr.sge(0..64)?];
    let write = |wr_id| SendWr {
        wr_id,
        flags: SendFlags::SIGNALED,
        operation: Operation::RdmaWrite(remote),
        data: Data::Sges(&sge),
        ..SendWr::default()
    };
    let bad = |wr_id| SendWr { operation: Operation::RdmaRead(remote), data: Data::Inline(&[]), ..write(wr_id) };
    let error = PostError::InlineNotAllowed;
    let mut expected = Vec::new();
    let mut ids = Vec::new();
    let mut qp = a.qp;
    // Enough rounds for the ring to wrap at each of its blocks.
    for round in 0..40_u64 {
        let count = 1 + round % 7;
        let name = |n| round << 8 | n;
        let posted = qp.post_send_iter((0..count).map(|n| write(name(n))));
        assert_eq!(posted, Ok(count as usize));
        let list = [write(name(count)), bad(name(count + 1)), write(name(count + 2))];
        assert_eq!(qp.post_send_iter(list), Err(ListError::new(1, error)));
        expected.extend((0..=count).map(name));
        ids.extend(wr_ids(&bed.poll_good(&mut cq, count as usize + 1)));
    }
    bed.nothing(&mut cq);
    assert_eq!(ids, expected);
    // The same with the send half, shared, and of any transport.
    let (mut half, receive, control) = qp.split();
    assert_eq!(half.post_send_iter([write(1)]), Ok(1));
    let shared = QueuePair::join(half, receive, control).into_shared();
    assert_eq!(shared.post_send_iter([write(2), write(3)]), Ok(2));
    let mut any = AnyQueuePair::from(shared.into_inner());
    assert_eq!(any.post_send_iter([write(4), bad(5)]), Err(ListError::new(1, error)));
    let (mut half, receive, control) = any.split();
    assert_eq!(half.post_send_iter(std::iter::empty::<SendWr<'_>>()), Ok(0));
    assert_eq!(half.post_send_iter([write(6)]), Ok(1));
    assert_eq!(wr_ids(&bed.poll_good(&mut cq, 5)), [1, 2, 3, 4, 6]);
    drop(AnyQueuePair::join(half, receive, control));
    Ok(())
}

/// Sends a message for each of `count` receives of `b`, and returns which of them got it.
fn received(bed: &Bed, a: &mut End<Rc>, b: &mut CompletionQueue, count: usize) -> Vec<u64> {
    let sent = a.qp.post(|batch| {
        for wr_id in 0..count as u64 {
            batch.wr(wr_id, SendFlags::SIGNALED).send().inline_data(b"message");
        }
    });
    sent.expect("room");
    bed.poll_good(&mut a.send_cq, count);
    wr_ids(&bed.poll_good(b, count))
}

fn receives_are_posted_one_by_one_and_from_an_iterator(bed: &Bed) -> Outcome {
    let Pair { mut a, b } = bed.pair::<Rc>(&PairOptions::default().recv_wr(8))?;
    let (mut qp, mr) = (b.qp, b.mr);
    let mut cq = b.recv_cq.ok_or("a queue of its own")?;
    let sges = [mr.sge(0..64)?];
    let long = [Sge { length: u32::MAX, ..sges[0] }];
    let wr = |wr_id| ReceiveWr { wr_id, sges: &sges };
    let bad = ReceiveWr { wr_id: 99, sges: &long };
    for round in 0..20_u64 {
        let name = |n| round << 8 | n;
        qp.recv(name(0), sges[0])?;
        assert_eq!(qp.post_recv_iter([wr(name(1)), wr(name(2))]), Ok(2));
        let refused = qp.post_recv_iter([wr(name(3)), bad, wr(name(4))]);
        assert_eq!(refused.map_err(|refused| refused.index()), Err(1));
        assert!(qp.recv(name(5), long[0]).is_err());
        let expected: Vec<_> = (0..4).map(name).collect();
        assert_eq!(received(bed, &mut a, &mut cq, 4), expected);
    }
    let full = qp.post_recv_iter((0..).map(wr));
    assert_eq!(full.map_err(|full| full.index()), Err(8));
    let error = PostError::QueueFull { free: 0, needed: 1 };
    assert_eq!(qp.recv(9, sges[0]), Err(error));
    assert_eq!(received(bed, &mut a, &mut cq, 8), [0, 1, 2, 3, 4, 5, 6, 7]);
    // The same with the receive half, shared, and of any transport.
    let (send, receive, control) = qp.split();
    let mut receive = receive.ok_or("it receives")?;
    receive.recv(1, sges[0])?;
    assert_eq!(receive.post_recv_iter([wr(2)]), Ok(1));
    let shared = QueuePair::join(send, Some(receive), control).into_shared();
    shared.recv(3, sges[0])?;
    let mut any = AnyQueuePair::from(shared.into_inner());
    any.recv(4, sges[0])?;
    assert_eq!(any.post_recv_iter([wr(5)]), Ok(1));
    assert_eq!(received(bed, &mut a, &mut cq, 5), [1, 2, 3, 4, 5]);
    Ok(())
}

fn a_shared_receive_queue_takes_receives_one_by_one_and_from_an_iterator(bed: &Bed) -> Outcome {
    let mut a = bed.end::<Rc>(&PairOptions::default())?;
    let mut b = bed.end::<Rc>(&PairOptions::default())?;
    let mut srq = b.pd.create_srq(7).build()?;
    let mut cq = b.context.create_cq(16).build()?;
    b.qp = b.pd.create_qp::<Rc>(&b.send_cq, &cq).srq(&srq).build()?;
    crate::pair::connect_ends(&mut a, &mut b, &PairOptions::default())?;
    let sges = [b.mr.sge(0..64)?];
    for round in 0..20_u64 {
        let wr = |n| ReceiveWr { wr_id: round << 8 | n, sges: &sges };
        srq.recv(round << 8, sges[0])?;
        assert_eq!(srq.post_recv_iter((1..4).map(wr)), Ok(3));
        let expected: Vec<_> = (0..4).map(|n| round << 8 | n).collect();
        assert_eq!(received(bed, &mut a, &mut cq, 4), expected);
    }
    let capacity = srq.capacity();
    let full = srq.post_recv_iter((0..).map(|wr_id| ReceiveWr { wr_id, sges: &sges }));
    let error = PostError::QueueFull { free: 0, needed: 1 };
    assert_eq!(full, Err(ListError::new(capacity, error)));
    assert_eq!(srq.recv(9, sges[0]), Err(error));
    Ok(())
}

fn a_queue_pair_without_receives_refuses_them(bed: &Bed) -> Outcome {
    let end = bed.end::<Rc>(&PairOptions::default())?;
    let srq = end.pd.create_srq(4).build()?;
    let mut qp = end.pd.create_qp::<Rc>(&end.send_cq, &end.send_cq).srq(&srq).build()?;
    let sge = end.mr.sge(0..8)?;
    assert_eq!(qp.recv(1, sge), Err(PostError::Unsupported));
    let wr = ReceiveWr { wr_id: 1, sges: &[sge] };
    assert_eq!(qp.post_recv_iter([wr]), Err(ListError::new(0, PostError::Unsupported)));
    assert_eq!(qp.post_recv_iter([] as [ReceiveWr<'_>; 0]), Ok(0));
    let shared = qp.into_shared();
    assert_eq!(shared.recv(1, sge), Err(PostError::Unsupported));
    Ok(())
}
