//! Posting by closures, and batches that move between threads.

use crate::prelude::*;
use mlx5::{BatchError, Error, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::task::{Context as Waker, Poll};

pub(crate) const CASES: &[Case] = cases![
    a_closure_posts_one_batch: EVERY_MODEL,
    a_closure_that_fails_or_panics_posts_nothing,
    a_refused_request_fails_the_whole_closure,
    a_batch_is_built_by_one_thread_and_completed_by_another: EVERY_MODEL,
    a_future_with_a_batch_moves_between_threads: EVERY_MODEL,
];

/// Why a closure failed, or its batch.
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
    // More often than the queue has room.
    for round in 0..40 {
        let outside = a.qp.try_post(|batch| {
            batch.wr(1, SendFlags::SIGNALED).rdma_write(remote).inline_data(b"no");
            let sge = a.mr.sge(1 << 40..(1 << 40) + 8)?;
            batch.wr(2, SendFlags::SIGNALED).rdma_write(remote).sge(sge);
            Ok::<_, Why>(())
        });
        let Err(Why::Call(error)) = outside else { panic!("{outside:?}") };
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        // The closure's error is told, although a request was refused before.
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
    assert_eq!(why, BatchError { index: 1, error });
    bed.nothing(&mut a.send_cq);
    Ok(())
}

fn a_batch_is_built_by_one_thread_and_completed_by_another(bed: &Bed) -> Outcome {
    // Few blocks, so that requests wrap and take the slow path too.
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
