//! Requests, their completions, and the line for room.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use futures_core::Stream;
use mlx5::{MemoryRegion, PostError, SendFlags, Sge};
use mlx5_async::{Done, FailedBecause, RefusedBecause};

use crate::rig::{Flag, Queue, Rig, poll};

const NONE: SendFlags = SendFlags::empty();

#[test]
fn each_request_has_its_own_result_in_whatever_order_they_are_awaited() {
    let mut rig = Rig::stepped();
    let qp: Queue<u32> = rig.hub.adopt(rig.loopback()).unwrap();
    let to = rig.memory.remote(4096..).unwrap();
    let mut requests = Vec::new();
    for number in 0..16 {
        let sge = rig.memory.sge(..number as usize + 1).unwrap();
        let posted = qp.submit(number, NONE, |wr| wr.rdma_read(to).sge(sge));
        requests.push((number, rig.block_on(posted).unwrap()));
    }
    for (number, request) in requests.into_iter().rev() {
        let Done { keep, completion } = rig.block_on(request).unwrap();
        assert_eq!((keep, completion.byte_len()), (number, Some(number + 1)));
    }
    assert_eq!(rig.hub.strays(), 0);
}

#[test]
fn a_stream_brings_messages_in_order_with_their_buffers() {
    let mut rig = Rig::stepped();
    let seat = rig.hub.reserve(rig.loopback()).unwrap();
    for buffer in 0..4 {
        let sge = rig.memory.sge(buffer * 64..buffer * 64 + 64).unwrap();
        seat.post_recv(buffer, sge).unwrap();
    }
    let qp: Queue<usize> = seat.adopt();
    let memory = Arc::clone(&rig.memory);
    let mut receives = qp.receives();
    rig.block_on(async {
        for number in 0..40_u32 {
            let sge = memory.sge(4096..4096 + 1 + number as usize).unwrap();
            qp.post(0, NONE, |wr| wr.send().sge(sge)).await.unwrap();
            let Done { keep: buffer, completion } = receives.next().await.unwrap().unwrap();
            assert_eq!(completion.byte_len(), Some(1 + number));
            assert_eq!(buffer, number as usize % 4);
            qp.post_recv(buffer, memory.sge(buffer * 64..buffer * 64 + 64).unwrap()).await.unwrap();
            assert!(qp.sends().next().await.unwrap().is_ok());
        }
    });
    let mut receives = pin!(receives);
    let task = Flag::new();
    let waker = std::task::Waker::from(task);
    let next = receives.as_mut().poll_next(&mut std::task::Context::from_waker(&waker));
    assert!(next.is_pending(), "everything was taken");
}

#[test]
fn a_batch_is_one_future_and_one_completion() {
    let mut rig = Rig::stepped();
    let qp: Queue<()> = rig.hub.adopt(rig.loopback()).unwrap();
    rig.memory.write_at(0, b"abcd").unwrap();
    let (memory, mut order) = (Arc::clone(&rig.memory), Vec::new());
    rig.block_on(async {
        let batch = qp.submit_batch((), NONE, 4, |number, wr| {
            order.push(number);
            let at = number as usize;
            let to = memory.remote(4096 + at..).unwrap();
            wr.rdma_write(to).sge(memory.sge(at..at + 1).unwrap());
        });
        batch.await.unwrap().await.unwrap();
        // All of its room is free again.
        for _ in 0..3 {
            let to = memory.remote(4096..).unwrap();
            let all = qp.submit_batch((), NONE, 16, |_, wr| {
                wr.rdma_write(to).sge(memory.sge(..1).unwrap());
            });
            drop(all.await.unwrap());
        }
    });
    let mut bytes = [0; 4];
    rig.memory.read_at(4096, &mut bytes).unwrap();
    assert_eq!((&bytes, order), (b"abcd", vec![0, 1, 2, 3]));
    let refused = rig.block_on(qp.submit_batch((), NONE, 17, |_, _| {})).unwrap_err();
    assert_eq!(refused.because, RefusedBecause::WrongLength);
}

#[test]
fn batch_that_fails_in_the_middle_reports_its_first_error_and_frees_its_slot() {
    let mut rig = Rig::stepped();
    let qp: Queue<&str> = rig.hub.adopt(rig.loopback()).unwrap();
    let good = rig.memory.remote(4096..).unwrap();
    let bad = mlx5::RemoteAddress { rkey: !good.rkey, ..good };
    let sge = rig.memory.sge(..8).unwrap();
    let batch = qp.submit_batch("batch", NONE, 4, |number, wr| {
        wr.rdma_write(if number == 1 { bad } else { good }).sge(sge);
    });
    let batch = rig.block_on(batch).unwrap();
    let later = rig.block_on(qp.submit("later", NONE, |wr| wr.rdma_write(good).sge(sge))).unwrap();
    let failed = rig.block_on(batch).unwrap_err();
    assert!(!failed.is_flushed(), "{failed}");
    assert_eq!(failed.keep, Some("batch"));
    let flushed = rig.block_on(later).unwrap_err();
    assert!(flushed.is_flushed(), "{flushed}");
    assert_eq!(flushed.keep, Some("later"));
    assert_eq!(rig.hub.strays(), 0);
}

#[test]
fn memory_of_a_dropped_request_lives_until_the_device_is_done() {
    let mut rig = Rig::stepped();
    let qp: Queue<Arc<MemoryRegion>> = rig.hub.adopt(rig.loopback()).unwrap();
    let own = Arc::new(rig.pd.allocate(64).unwrap());
    let (to, sge) = (rig.memory.remote(4096..).unwrap(), own.sge(..).unwrap());
    own.write_at(0, b"from the dropped request").unwrap();
    let posted = qp.submit(Arc::clone(&own), NONE, |wr| wr.rdma_write(to).sge(sge));
    drop(rig.block_on(posted).unwrap());
    let weak = Arc::downgrade(&own);
    drop(own);
    assert_eq!(weak.strong_count(), 1, "the slot has it");
    rig.settle();
    assert_eq!(weak.strong_count(), 0, "freed with the completion");
    let mut bytes = [0; 24];
    rig.memory.read_at(4096, &mut bytes).unwrap();
    assert_eq!(&bytes, b"from the dropped request");
    assert_eq!(rig.simulator.violations(), []);
}

#[test]
fn a_full_queue_makes_tasks_wait_and_loses_none_of_them() {
    let mut rig = Rig::stepped();
    let qp: Queue<u32> = rig.hub.adopt(rig.loopback()).unwrap();
    let to = rig.memory.remote(4096..).unwrap();
    let sge = rig.memory.sge(..8).unwrap();
    let room = loop_until_full(&qp, to, sge);
    assert_eq!(room, 16);
    let task = Flag::new();
    let mut waiting = Box::pin(qp.submit(99, NONE, |wr| wr.rdma_write(to).sge(sge)));
    assert!(poll(&mut waiting, &task).is_pending());
    let given_up = Flag::new();
    let mut second = Box::pin(qp.submit(100, NONE, |wr| wr.rdma_write(to).sge(sge)));
    assert!(poll(&mut second, &given_up).is_pending());
    // It leaves the line before its turn: nothing is posted for it.
    drop(second);
    rig.settle();
    // All requests have completed, but each result keeps its place until it is taken.
    assert!(!task.is_set());
    let mut sends = qp.sends();
    assert_eq!(rig.block_on(sends.next()).unwrap().unwrap().keep, 0);
    assert!(task.is_set());
    let Poll::Ready(Ok(request)) = poll(&mut waiting, &task) else { panic!("there is room") };
    let done = rig.block_on(request).unwrap();
    assert_eq!(done.keep, 99);
    for number in 1..room {
        assert_eq!(rig.block_on(sends.next()).unwrap().unwrap().keep, number);
    }
    assert_eq!(loop_until_full(&qp, to, sge), 16);
    rig.settle();
    assert_eq!(loop_until_full(&qp, to, sge), 0);
}

fn loop_until_full(qp: &Queue<u32>, to: mlx5::RemoteAddress, sge: Sge) -> u32 {
    for number in 0.. {
        if let Err(refused) = qp.try_post(number, NONE, |wr| wr.rdma_write(to).sge(sge)) {
            assert_eq!((refused.keep, refused.because), (number, RefusedBecause::Full));
            return number;
        }
    }
    unreachable!()
}

#[test]
fn refused_request_comes_back_and_takes_no_room() {
    let mut rig = Rig::stepped();
    let qp: Queue<String> = rig.hub.adopt(rig.loopback()).unwrap();
    for _ in 0..40 {
        let refused =
            qp.try_submit("mine".into(), NONE, |wr| wr.send().inline_data(&[0; 4096])).unwrap_err();
        assert_eq!(refused.keep, "mine");
        let RefusedBecause::Send(because) = refused.because else { panic!("{refused}") };
        assert!(matches!(because.error(), PostError::InlineTooLong { .. }), "{because}");
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            drop(qp.try_submit(String::new(), NONE, |_| panic!("the caller's own")));
        }));
        assert!(panicked.is_err());
    }
    let to = rig.memory.remote(4096..).unwrap();
    let sge = rig.memory.sge(..8).unwrap();
    let requests: Vec<_> = (0..16)
        .map(|_| qp.try_submit(String::new(), NONE, |wr| wr.rdma_write(to).sge(sge)).unwrap())
        .collect();
    for request in requests {
        rig.block_on(request).unwrap();
    }
}

#[test]
fn a_failed_request_says_why_and_gives_back_what_it_kept() {
    let mut rig = Rig::stepped();
    let qp: Queue<&str> = rig.hub.adopt(rig.loopback()).unwrap();
    let mut to = rig.memory.remote(4096..).unwrap();
    to.rkey = !to.rkey;
    let sge = rig.memory.sge(..8).unwrap();
    let request = qp.try_submit("mine", NONE, |wr| wr.rdma_write(to).sge(sge)).unwrap();
    let failed = rig.block_on(request).unwrap_err();
    assert_eq!(failed.keep, Some("mine"));
    assert!(matches!(failed.because, FailedBecause::Completion(_)), "{failed}");
}

#[test]
fn first_error_is_kept_where_its_request_was_dropped_and_is_part_of_later_errors() {
    let mut rig = Rig::stepped();
    let qp: Queue<u32> = rig.hub.adopt(rig.loopback()).unwrap();
    let (to, sge) = (rig.memory.remote(4096..).unwrap(), rig.memory.sge(..8).unwrap());
    let denied = mlx5::RemoteAddress { rkey: !to.rkey, ..to };
    let submit = |to, keep| qp.try_submit(keep, NONE, |wr| wr.rdma_write(to).sge(sge)).unwrap();
    assert_eq!(qp.first_error(), None);
    drop(submit(denied, 1));
    let behind = submit(to, 2);
    let receive = rig.block_on(qp.submit_recv(3, Sge::default())).unwrap();
    rig.settle();
    let first = qp.first_error().expect("a request failed");
    assert!(!first.is_flushed(), "{first}");
    let said = format!("; the first error of the queue pair: {first}");
    for (request, keep) in [(behind, 2), (receive, 3)] {
        let failed = rig.block_on(request).unwrap_err();
        assert!(failed.is_flushed() && failed.keep == Some(keep), "{failed}");
        assert_eq!(failed.first, Some(first));
        assert!(failed.to_string().ends_with(&said), "{failed}");
    }
    // A later request is refused, or flushed.
    match qp.try_submit(4, NONE, |wr| wr.rdma_write(to).sge(sge)) {
        Ok(request) => assert_eq!(rig.block_on(request).unwrap_err().first, Some(first)),
        Err(refused) => {
            assert_eq!(refused.first, Some(first));
            assert!(refused.to_string().ends_with(&said), "{refused}");
        }
    }
    // The handle that closes the queue pair has the error, too.
    let other = qp.clone();
    drop(rig.block_on(other.close()).unwrap());
    assert_eq!(qp.first_error(), Some(first));
}

#[test]
fn first_error_is_none_of_a_queue_pair_that_was_closed_and_of_another_one() {
    let mut rig = Rig::stepped();
    let [one, other]: [Queue<u32>; 2] = [0, 1].map(|_| rig.hub.adopt(rig.loopback()).unwrap());
    let mut to = rig.memory.remote(4096..).unwrap();
    to.rkey = !to.rkey;
    let sge = rig.memory.sge(..8).unwrap();
    let request = one.try_submit(1, NONE, |wr| wr.rdma_write(to).sge(sge)).unwrap();
    let failed = rig.block_on(request).unwrap_err();
    assert_eq!(failed.first, one.first_error());
    // Its own text has the error once.
    assert!(failed.first.is_some() && !failed.to_string().contains("the first error"), "{failed}");
    let receive = rig.block_on(other.submit_recv(1, Sge::default())).unwrap();
    drop(rig.block_on(other.clone().close()).unwrap());
    let flushed = rig.block_on(receive).unwrap_err();
    assert!(flushed.is_flushed() && flushed.first.is_none(), "{flushed}");
    assert_eq!(other.first_error(), None);
}
