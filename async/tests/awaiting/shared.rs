//! Shared receive queues.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use mlx5::{AsyncEvent, MemoryRegion, QueuePair, QueueState, SendFlags, Sge, transport::Rc};
use mlx5_async::{
    AsyncSharedReceiveQueue, Ended, FailedBecause, Hub, NotAdded, RefusedBecause, Step,
};

use mlx5_uapi::wait::wait_readable;

use crate::rig::{Flag, Queue, Rig, poll};

const NONE: SendFlags = SendFlags::empty();

fn shared<K: Send + 'static>(rig: &Rig, requests: u32) -> AsyncSharedReceiveQueue<K> {
    rig.hub.adopt_srq(rig.pd.create_srq(requests).build().unwrap()).unwrap()
}

/// A queue pair that is connected to itself, and receives from the shared queue.
fn loopback<K: Send + 'static, R>(rig: &Rig, srq: &AsyncSharedReceiveQueue<R>) -> Queue<K>
where
    R: Send + 'static,
{
    let qp = srq.create_qp::<Rc, _>(&rig.pd, |builder| builder.max_send_wr(16).build());
    let mut qp = qp.unwrap();
    rig.connect_to_itself(&mut qp);
    rig.hub.adopt(qp).unwrap()
}

/// Queue pairs that are connected: one that receives from the shared queue, and its peer, which
/// does not.
fn connected<R: Send + 'static>(
    rig: &Rig,
    srq: &AsyncSharedReceiveQueue<R>,
) -> (QueuePair<Rc>, Queue<()>) {
    let here = srq.create_qp::<Rc, _>(&rig.pd, |builder| builder.max_send_wr(16).build());
    let there = rig.hub.create_qp::<Rc>(&rig.pd).max_send_wr(16).build();
    let mut pair = [here.unwrap(), there.unwrap()];
    rig.connect(&mut pair);
    let [here, there] = pair;
    (here, rig.hub.adopt(there).unwrap())
}

fn send(wr: mlx5::Wr<'_, '_, Rc>) {
    wr.send().inline_data(&[]);
}

fn srqs(rig: &Rig) -> u64 {
    rig.simulator.object_counts(0).srqs as u64
}

#[test]
fn messages_of_several_queue_pairs_come_by_one_stream_with_their_buffers() {
    let mut rig = Rig::stepped();
    let srq = shared::<usize>(&rig, 4);
    let queues: [Queue<()>; 2] = [loopback(&rig, &srq), loopback(&rig, &srq)];
    let memory = Arc::clone(&rig.memory);
    let sge = |buffer: usize| memory.sge(buffer * 64..buffer * 64 + 64).unwrap();
    for buffer in 0..4 {
        srq.try_post_recv(buffer, sge(buffer)).unwrap();
    }
    let small = shared::<usize>(&rig, 4);
    // It may hold more than requested.
    let full = (0..).find_map(|number| small.try_post_recv(number, Sge::default()).err());
    assert_eq!(full.map(|refused| refused.because), Some(RefusedBecause::Full));
    drop(small);
    let mut receives = srq.receives();
    rig.block_on(async {
        for number in 0..40_u8 {
            let qp = &queues[usize::from(number) % 2];
            memory.write_at(4096, &[number; 3]).unwrap();
            let from = memory.sge(4096..4099).unwrap();
            qp.submit((), NONE, |wr| wr.send().sge(from)).await.unwrap().await.unwrap();
            let done = receives.next().await.unwrap().unwrap();
            let completion = done.completion.as_completion();
            assert_eq!((completion.qp_num(), completion.byte_len()), (qp.qp_num(), Some(3)));
            let mut bytes = [0; 3];
            memory.read_at(done.keep * 64, &mut bytes).unwrap();
            assert_eq!(bytes, [number; 3]);
            srq.post_recv(done.keep, sge(done.keep)).await.unwrap();
        }
    });
    // Its queue pairs have no receive queue of their own.
    for refused in [
        queues[0].try_post_recv((), Sge::default()),
        rig.block_on(queues[0].post_recv((), Sge::default())),
        rig.block_on(queues[0].submit_recv((), Sge::default())).map(drop),
    ] {
        assert_eq!(refused.unwrap_err().because, RefusedBecause::SharedReceives);
    }
    assert_eq!(rig.hub.strays(), 0);
    assert_eq!(rig.simulator.violations(), []);
}

#[test]
fn requests_without_a_message_come_back_when_the_last_of_all_is_gone() {
    for handle_first in [true, false] {
        let mut rig = Rig::stepped();
        let before = (rig.queue_pairs(), srqs(&rig));
        let srq = shared::<Arc<MemoryRegion>>(&rig, 8);
        let mut qp = Some(loopback::<(), _>(&rig, &srq));
        let own = Arc::new(rig.pd.allocate(64).unwrap());
        let post = || srq.submit_recv(Arc::clone(&own), own.whole().unwrap());
        let (awaited, dropped) = (rig.block_on(post()).unwrap(), rig.block_on(post()).unwrap());
        drop(dropped);
        srq.try_post_recv(Arc::clone(&own), own.whole().unwrap()).unwrap();
        let mut stream = srq.receives();
        if !handle_first {
            drop(qp.take());
            rig.settle();
        }
        drop(srq);
        rig.settle();
        if let Some(qp) = qp {
            // The queue pair keeps the queue, and the values of requests for messages.
            assert_eq!((srqs(&rig), Arc::strong_count(&own)), (before.1 + 1, 4));
            let send = |wr: mlx5::Wr<'_, '_, Rc>| wr.send().inline_data(&[]);
            rig.block_on(qp.try_submit((), NONE, send).unwrap()).unwrap();
            assert!(rig.block_on(awaited).is_ok(), "the first one took the message");
            drop(qp);
            rig.settle();
        } else {
            let failed = rig.block_on(awaited).unwrap_err();
            assert_eq!(failed.because, FailedBecause::Unused);
            assert!(failed.keep.is_some());
        }
        assert_eq!((rig.queue_pairs(), srqs(&rig)), before);
        let failed = rig.block_on(stream.next()).unwrap().unwrap_err();
        assert_eq!((failed.because, failed.keep.is_some()), (FailedBecause::Unused, true));
        assert!(rig.block_on(stream.next()).is_none());
        drop((failed, stream));
        assert_eq!(Arc::strong_count(&own), 1);
        // Its place is free again.
        for _ in 0..100 {
            shared::<()>(&rig, 512);
        }
        rig.hub.shutdown();
        rig.settle();
        assert!(rig.pump.is_none(), "it has stopped");
        assert_eq!(rig.simulator.violations(), []);
    }
}

#[test]
fn a_shutdown_ends_it_although_its_requests_never_complete() {
    let mut rig = Rig::stepped();
    let srq = shared::<u32>(&rig, 8);
    let qp: Queue<u32> = loopback(&rig, &srq);
    let mut awaited = rig.block_on(srq.submit_recv(1, Sge::default())).unwrap();
    let mut stream = srq.receives();
    let task = Flag::new();
    assert!(poll(&mut awaited, &task).is_pending());
    rig.hub.shutdown();
    let refused = srq.try_post_recv(2, Sge::default()).unwrap_err();
    assert_eq!(refused.because, RefusedBecause::Ended(Ended::Closed));
    rig.settle();
    assert!(rig.pump.is_none(), "it has stopped");
    assert!(task.is_set());
    let Poll::Ready(Err(failed)) = poll(&mut awaited, &task) else { panic!("nothing can come") };
    assert_eq!(failed.because, FailedBecause::Lost(Ended::Closed));
    assert!(rig.block_on(stream.next()).is_none());
    drop((qp, srq));
    assert_eq!((rig.queue_pairs(), srqs(&rig)), (0, 0));
    let late = rig.hub.adopt_srq::<u32>(rig.pd.create_srq(8).build().unwrap()).unwrap_err();
    assert_eq!(late, NotAdded::Ended(Ended::Closed));
}

#[test]
fn without_its_pump_a_shared_queue_loses_its_requests() {
    let mut rig = Rig::stepped();
    let srq = shared::<u32>(&rig, 8);
    let qp: Queue<u32> = loopback(&rig, &srq);
    let awaited = rig.block_on(srq.submit_recv(1, Sge::default())).unwrap();
    rig.pump = None;
    let failed = rig.block_on(awaited).unwrap_err();
    assert_eq!(failed.because, FailedBecause::Lost(Ended::NoPump));
    drop((srq, qp));
    assert_eq!((rig.queue_pairs(), srqs(&rig)), (0, 0));
}

#[test]
fn a_shared_queue_needs_room_and_its_queue_pairs_the_same_hub() {
    let rig = Rig::stepped();
    let (hub, _pump) = Hub::new(&rig.context, 63).unwrap();
    let make = |requests| rig.pd.create_srq(requests).build().unwrap();
    let refused = hub.adopt_srq::<()>(make(64)).unwrap_err();
    assert!(matches!(refused, NotAdded::CompletionQueueFull { .. }), "{refused}");
    let srq = hub.adopt_srq::<()>(make(16)).unwrap();
    // A queue that the hub does not have, and one of another hub.
    let foreign = make(16);
    let qp = hub.create_qp::<Rc>(&rig.pd).max_send_wr(4).srq(&foreign).build().unwrap();
    assert_eq!(hub.adopt::<_, ()>(qp).unwrap_err(), NotAdded::OtherSharedReceiveQueue);
    let qp = srq.create_qp::<Rc, _>(&rig.pd, |builder| builder.max_send_wr(4).build()).unwrap();
    assert_eq!(rig.hub.adopt::<_, ()>(qp).unwrap_err(), NotAdded::OtherCompletionQueue);
    let builder = rig.hub.create_qp::<Rc>(&rig.pd).max_send_wr(4).srq(&foreign);
    let qp = builder.build().unwrap();
    assert_eq!(rig.hub.adopt::<_, ()>(qp).unwrap_err(), NotAdded::OtherSharedReceiveQueue);
    drop(foreign);
    // A queue that completes on another completion queue.
    let (domain, cq) =
        (rig.context.open_xrcd().unwrap(), rig.context.create_cq(16).build().unwrap());
    let elsewhere = rig.pd.create_srq(16).xrc(&domain, &cq).build().unwrap();
    let refused = hub.adopt_srq::<()>(elsewhere).unwrap_err();
    assert_eq!(refused, NotAdded::OtherSharedReceiveQueue);
}

#[test]
fn a_limit_makes_an_event() {
    let mut rig = Rig::stepped();
    let mut events = rig.hub.device_events();
    let srq = shared::<u32>(&rig, 8);
    let qp: Queue<u32> = loopback(&rig, &srq);
    for number in 0..4 {
        srq.try_post_recv(number, Sge::default()).unwrap();
    }
    srq.set_limit(4).unwrap();
    let send = |wr: mlx5::Wr<'_, '_, Rc>| wr.send().inline_data(&[]);
    rig.block_on(qp.try_submit(9, NONE, send).unwrap()).unwrap();
    assert!(matches!(rig.block_on(events.next()), Some(AsyncEvent::SrqLimitReached(_))));
}

#[test]
fn each_queue_pair_may_have_a_stream_of_its_own() {
    let mut rig = Rig::stepped();
    let srq = shared::<u32>(&rig, 8);
    let queues: [Queue<()>; 3] = std::array::from_fn(|_| loopback(&rig, &srq));
    let mut streams = [0, 1].map(|of| srq.receives_of(queues[of].qp_num()));
    let mut others = srq.receives();
    let send =
        |of: usize| queues[of].try_submit((), NONE, |wr| wr.send().inline_data(&[])).unwrap();
    for number in 0..6 {
        srq.try_post_recv(number, Sge::default()).unwrap();
    }
    for of in [2, 0, 1, 0, 1, 2] {
        rig.block_on(send(of)).unwrap();
    }
    let numbers = |stream: &mut mlx5_async::Completions<u32>| -> Vec<u32> {
        std::iter::from_fn(|| stream.try_next()).map(|done| done.unwrap().keep).collect()
    };
    assert_eq!(rig.block_on(streams[1].next()).unwrap().unwrap().keep, 2);
    assert_eq!([numbers(&mut streams[0]), numbers(&mut others)], [vec![1, 3], vec![0, 5]]);
    // The remaining results, and later ones, go to the other streams.
    let [_first, second] = streams;
    drop(second);
    assert_eq!(numbers(&mut others), [4]);
    srq.try_post_recv(6, Sge::default()).unwrap();
    rig.block_on(send(1)).unwrap();
    assert_eq!(rig.block_on(others.next()).unwrap().unwrap().keep, 6);
}

/// The end of a queue pair whose message is in the completion queue.
#[derive(Clone, Copy, PartialEq, Debug)]
enum End {
    Close,
    Drop,
    Shutdown,
    Seat,
    SeatReset,
}

#[test]
fn a_message_that_lies_in_the_completion_queue_is_taken_before_its_queue_pair_is_gone() {
    for end in [End::Close, End::Drop, End::Shutdown, End::Seat, End::SeatReset] {
        let mut rig = Rig::stepped();
        let srq = shared::<u32>(&rig, 8);
        let (here, there) = connected(&rig, &srq);
        let before = rig.queue_pairs();
        let mut seat = rig.hub.reserve::<_, u32>(here).unwrap();
        let received = rig.block_on(srq.submit_recv(7, Sge::default())).unwrap();
        drop(there.try_submit((), NONE, send).unwrap());
        // The completions exist, and the pump has not polled them.
        rig.simulator.run_until_idle();
        let kept = match end {
            End::Close => {
                drop(rig.block_on(seat.adopt().close()).unwrap());
                None
            }
            End::Drop => {
                drop(seat.adopt());
                None
            }
            End::Shutdown => {
                rig.hub.shutdown();
                Some(seat)
            }
            End::Seat => {
                drop(seat);
                None
            }
            End::SeatReset => {
                seat.with(QueuePair::reset).unwrap().unwrap();
                drop(seat);
                None
            }
        };
        let done = rig.block_on(received).unwrap_or_else(|failed| panic!("{end:?}: {failed}"));
        assert_eq!((done.keep, srq.in_flight()), (7, 0), "{end:?}");
        rig.settle();
        drop(kept);
        assert_eq!(rig.queue_pairs(), before - 1, "{end:?}");
        rig.hub.shutdown();
        rig.settle();
        assert!(rig.pump.is_none(), "{end:?}: it has stopped");
        assert_eq!(rig.hub.strays(), 0);
    }
}

#[test]
fn closing_waits_for_the_pump_to_have_found_nothing_and_not_for_one_that_has_ended() {
    for ended in ["before", "meanwhile", "not"] {
        let mut rig = Rig::stepped();
        let srq = shared::<u32>(&rig, 8);
        let qp: Queue<u32> = loopback(&rig, &srq);
        while rig.pump.as_mut().unwrap().step().unwrap() == Step::Again {}
        if ended == "before" {
            rig.pump = None;
        }
        let task = Flag::new();
        let mut closing = Box::pin(qp.close());
        let first = poll(&mut closing, &task);
        assert_eq!(first.is_pending(), ended != "before", "{ended}");
        let closed = match (first, ended) {
            (Poll::Ready(closed), _) => closed,
            (Poll::Pending, "meanwhile") => {
                rig.pump = None;
                assert!(task.is_set(), "it waits for a pump that has ended");
                rig.block_on(closing)
            }
            (Poll::Pending, _) => {
                let pump = rig.pump.as_mut().unwrap();
                assert!(wait_readable(pump.as_fd(), Some(Duration::ZERO)).unwrap());
                assert_eq!(pump.step().unwrap(), Step::Wait);
                assert!(task.is_set());
                rig.block_on(closing)
            }
        };
        assert_eq!(closed.unwrap().state(), QueueState::Error);
    }
}

#[test]
fn the_pump_keeps_no_shared_queue_whose_handles_are_gone() {
    let mut rig = Rig::stepped();
    let before = srqs(&rig);
    let srq = shared::<u32>(&rig, 8);
    let (here, there) = connected(&rig, &srq);
    let mut seat = rig.hub.reserve::<_, u32>(here).unwrap();
    let received = rig.block_on(srq.submit_recv(7, Sge::default())).unwrap();
    rig.block_on(there.try_submit((), NONE, send).unwrap()).unwrap();
    assert_eq!(rig.block_on(received).unwrap().keep, 7);
    let spare = rig.loopback();
    // The queue pair is destroyed at once, without the pump.
    seat.with_owned(|qp| {
        drop(qp);
        (spare, ())
    })
    .unwrap();
    drop((seat, srq));
    assert_eq!(srqs(&rig), before);
}

#[test]
fn send_posted_outside_completes_no_receive_request() {
    let mut rig = Rig::stepped();
    let srq = shared::<u32>(&rig, 8);
    let mut received = rig.block_on(srq.submit_recv(7, Sge::default())).unwrap();
    // The names of all possible receive requests.
    let mut other = rig.loopback();
    other
        .post(|batch| {
            for slot in 0..4_u64 {
                let to = rig.memory.remote(4096..).unwrap();
                let wr = batch.wr(3 << 30 | slot, SendFlags::SIGNALED);
                wr.rdma_write(to).sge(rig.memory.sge(..8).unwrap());
            }
        })
        .unwrap();
    rig.settle();
    assert_eq!(rig.hub.strays(), 4);
    assert!(poll(&mut received, &Flag::new()).is_pending());
}

#[test]
fn queue_pair_borrowed_during_a_shutdown_is_drained_when_returned() {
    let mut rig = Rig::stepped();
    let srq = shared::<u32>(&rig, 8);
    let cq = rig.context.create_cq(16).build().unwrap();
    let here = srq.create_qp::<Rc, _>(&rig.pd, |builder| builder.max_send_wr(16).build());
    let there = rig.pd.create_qp::<Rc>(&cq, &cq).max_send_wr(16).build();
    let mut pair = [here.unwrap(), there.unwrap()];
    rig.connect(&mut pair);
    let [here, mut there] = pair;
    let mut seat = rig.hub.reserve::<_, u32>(here).unwrap();
    let mut received = rig.block_on(srq.submit_recv(7, Sge::default())).unwrap();
    seat.with_owned(|qp| {
        rig.hub.shutdown();
        rig.settle();
        there.post(|batch| send(batch.wr(1, SendFlags::SIGNALED))).unwrap();
        rig.simulator.run_until_idle();
        (qp, ())
    })
    .unwrap();
    drop(seat);
    rig.settle();
    let Poll::Ready(done) = poll(&mut received, &Flag::new()) else { panic!("it sleeps on") };
    assert_eq!(done.unwrap().keep, 7);
    assert!(rig.pump.is_none(), "it has stopped");
}

#[test]
fn receives_whose_queue_pair_is_destroyed_before_the_pump_polls_come_back_and_make_room() {
    let mut rig = Rig::stepped();
    let srq = shared::<Arc<()>>(&rig, 4);
    let (here, there) = connected(&rig, &srq);
    let kept = Arc::new(());
    let awaited = rig.block_on(srq.submit_recv(Arc::clone(&kept), Sge::default())).unwrap();
    let dropped = rig.block_on(srq.submit_recv(Arc::clone(&kept), Sge::default())).unwrap();
    drop(dropped);
    while srq.try_post_recv(Arc::clone(&kept), Sge::default()).is_ok() {}
    let full = srq.in_flight();
    let (task, mut more) =
        (Flag::new(), Box::pin(srq.submit_recv(Arc::clone(&kept), Sge::default())));
    assert!(poll(&mut more, &task).is_pending());
    // A future, a dropped future, and a stream.
    for _ in 0..3 {
        drop(there.try_submit((), NONE, send).unwrap());
    }
    rig.simulator.run_until_idle();
    drop(here);
    rig.settle();
    assert!(task.is_set(), "three requests are over, and it sleeps on");
    let failed = rig.block_on(awaited).unwrap_err();
    assert_eq!((failed.because, failed.keep.is_some()), (FailedBecause::Discarded, true));
    assert!(failed.to_string().contains("post the buffer again"), "{failed}");
    let unread = rig.block_on(srq.receives().next()).unwrap().unwrap_err();
    assert_eq!((unread.because, unread.keep.is_some()), (FailedBecause::Discarded, true));
    let more = rig.block_on(more).unwrap();
    for _ in 0..2 {
        rig.block_on(srq.post_recv(Arc::clone(&kept), Sge::default())).unwrap();
    }
    assert_eq!(srq.in_flight(), full);
    drop((failed, unread, more, srq, there));
    rig.settle();
    rig.hub.shutdown();
    rig.settle();
    assert!(rig.pump.is_none(), "it has stopped");
    assert_eq!(Arc::strong_count(&kept), 1);
    assert_eq!(rig.simulator.violations(), []);
}
