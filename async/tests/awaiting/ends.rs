//! The ends of queue pairs, pumps and devices: each waiting task learns of them.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use mlx5::{AsyncEvent, MemoryRegion, PollError, QueueState, SendFlags, Sge};
use mlx5_async::{
    DEFAULT_TIMEOUT, Ended, FailedBecause, Hub, NotAdded, PumpError, RefusedBecause, Step,
};
use mlx5_sim::Fault;
use mlx5_uapi::wait::wait_readable;

use crate::rig::{Flag, Queue, Rig, poll};

/// Time limit of a test's waits.
const LIMIT: Duration = Duration::from_secs(60);
const NONE: SendFlags = SendFlags::empty();

#[test]
fn closing_flushes_what_is_posted_and_returns_the_queue_pair_for_another_connection() {
    let mut rig = Rig::stepped();
    let qp: Queue<u32> = rig.hub.adopt(rig.loopback()).unwrap();
    let other = qp.clone();
    for buffer in 0..3 {
        rig.block_on(qp.post_recv(buffer, Sge::default())).unwrap();
    }
    let awaited = rig.block_on(qp.submit_recv(3, Sge::default())).unwrap();
    let mut receives = qp.receives();
    let mut qp = rig.block_on(qp.close()).unwrap();
    for buffer in 0..3 {
        let flushed = rig.block_on(receives.next()).unwrap().unwrap_err();
        assert!(flushed.is_flushed());
        assert_eq!(flushed.keep, Some(buffer));
    }
    assert!(rig.block_on(receives.next()).is_none());
    assert_eq!(rig.block_on(awaited).unwrap_err().keep, Some(3));
    let refused = other.try_post(4, NONE, |wr| wr.send().inline_data(&[])).unwrap_err();
    assert_eq!(refused.because, RefusedBecause::Ended(Ended::Closed));
    assert_eq!(rig.block_on(other.close()).unwrap_err(), Ended::Closed);

    assert_eq!(qp.state(), QueueState::Error);
    qp.reset().unwrap();
    rig.connect_to_itself(&mut qp);
    let again: Queue<&str> = rig.hub.adopt(qp).unwrap();
    let (to, sge) = (rig.memory.remote(4096..).unwrap(), rig.memory.sge(..8).unwrap());
    let request = rig.block_on(again.submit("new", NONE, |wr| wr.rdma_write(to).sge(sge))).unwrap();
    assert_eq!(rig.block_on(request).unwrap().keep, "new");
}

#[test]
fn draining_lets_what_is_posted_be_done_and_takes_no_more() {
    let mut rig = Rig::stepped();
    let qp: Queue<u32> = rig.hub.adopt(rig.loopback()).unwrap();
    let (to, sge) = (rig.memory.remote(4096..).unwrap(), rig.memory.sge(..8).unwrap());
    let submit = |number| qp.try_submit(number, NONE, |wr| wr.rdma_write(to).sge(sge));
    let requests: Vec<_> = (0..8).map(|number| submit(number).unwrap()).collect();
    rig.block_on(qp.drain()).unwrap();
    assert!(submit(8).is_err());
    for request in requests {
        rig.block_on(request).unwrap();
    }
    drop(rig.block_on(qp.close()).unwrap());
}

#[test]
fn dropping_the_last_handle_flushes_and_destroys_and_what_was_kept_is_freed_after_that() {
    let mut rig = Rig::stepped();
    let before = rig.queue_pairs();
    let qp: Queue<Arc<MemoryRegion>> = rig.hub.adopt(rig.loopback()).unwrap();
    let own = Arc::new(rig.pd.allocate(64).unwrap());
    let sge = own.sge(..).unwrap();
    let receive = rig.block_on(qp.submit_recv(Arc::clone(&own), sge)).unwrap();
    rig.block_on(qp.post_recv(Arc::clone(&own), sge)).unwrap();
    drop(qp);
    assert_eq!(rig.queue_pairs(), before + 1, "it waits for what is posted");
    assert!(rig.block_on(receive).unwrap_err().is_flushed());
    assert_eq!(rig.queue_pairs(), before);
    assert_eq!(Arc::strong_count(&own), 1);
    assert_eq!(rig.simulator.violations(), []);
}

#[test]
fn death_of_the_peer_fails_every_request_and_wakes_every_task() {
    let mut rig = Rig::stepped();
    let [here, there] = rig.pair();
    let qp: Queue<u32> = rig.hub.adopt(here).unwrap();
    rig.block_on(qp.post_recv(0, Sge::default())).unwrap();
    let mut receives = qp.receives();
    // The peer's queue pair is destroyed, without any notice.
    drop(there);
    let to = rig.memory.remote(4096..).unwrap();
    let sge = rig.memory.sge(..8).unwrap();
    let submit = |number| qp.try_submit(number, NONE, |wr| wr.rdma_write(to).sge(sge));
    let mut requests: Vec<_> = (0..8).map(|number| submit(number).unwrap()).collect();
    let first = rig.block_on(requests.remove(0)).unwrap_err();
    assert!(!first.is_flushed(), "{first}");
    for request in requests {
        assert!(rig.block_on(request).unwrap_err().is_flushed());
    }
    assert!(rig.block_on(receives.next()).unwrap().unwrap_err().is_flushed());
}

#[test]
fn a_shutdown_flushes_everything_and_ends_the_pump() {
    let mut rig = Rig::stepped();
    let pairs: Vec<Queue<u32>> = (0..3).map(|_| rig.hub.adopt(rig.loopback()).unwrap()).collect();
    let requests: Vec<_> =
        pairs.iter().map(|qp| rig.block_on(qp.submit_recv(7, Sge::default())).unwrap()).collect();
    rig.hub.shutdown();
    // This holds even before the pump notices: nothing would close the queue pair.
    let late = rig.hub.adopt::<_, u32>(rig.loopback()).unwrap_err();
    assert_eq!(late, NotAdded::Ended(Ended::Closed));
    for request in requests {
        assert!(rig.block_on(request).unwrap_err().is_flushed());
    }
    rig.settle();
    assert!(rig.pump.is_none(), "it has stopped");
    let refused = pairs[0].try_post(1, NONE, |wr| wr.send().inline_data(&[])).unwrap_err();
    assert_eq!(refused.because, RefusedBecause::Ended(Ended::Closed));
    let late = rig.hub.adopt::<_, u32>(rig.loopback()).unwrap_err();
    assert_eq!(late, NotAdded::Ended(Ended::Closed));
}

#[test]
fn a_device_that_withholds_completions_ends_the_pump_after_its_limit_and_what_was_kept_stays() {
    let mut rig = Rig::stepped();
    let qp: Queue<Arc<MemoryRegion>> = rig.hub.adopt(rig.loopback()).unwrap();
    let own = Arc::new(rig.pd.allocate(64).unwrap());
    let sge = own.sge(..).unwrap();
    let mut receive = rig.block_on(qp.submit_recv(Arc::clone(&own), sge)).unwrap();
    // A queue pair without handles that waits for its completions.
    let other: Queue<Arc<MemoryRegion>> = rig.hub.adopt(rig.loopback()).unwrap();
    rig.block_on(other.post_recv(Arc::clone(&own), sge)).unwrap();
    drop(other);
    let task = Flag::new();
    assert!(poll(&mut receive, &task).is_pending());
    let mut pump = rig.pump.take().unwrap().shutdown_timeout(Duration::from_millis(1));
    rig.hub.shutdown();
    // The device does nothing. The descriptor becomes readable when the limit is over.
    let mut steps = 0..100;
    let error = loop {
        assert!(steps.next().is_some(), "it goes on after its limit");
        match pump.step() {
            Ok(Step::Again) => {}
            Ok(Step::Wait) => assert_eq!(wait_readable(pump.as_fd(), Some(LIMIT)), Ok(true)),
            Ok(Step::Stopped) => panic!("receives are posted"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, PumpError::TimedOut(limit) if limit == Duration::from_millis(1)));
    assert!(error.to_string().contains("did not complete within 1ms"), "{error}");
    assert!(task.is_set());
    let Poll::Ready(Err(failed)) = poll(&mut receive, &task) else { panic!("nothing can come") };
    assert_eq!(failed.because, FailedBecause::Lost(Ended::TimedOut));
    assert!(failed.keep.is_none(), "the device may still write to it");
    drop(receive);
    assert_eq!(Arc::strong_count(&own), 2, "that of the queue pair with a handle");
    assert_eq!(rig.block_on(qp.close()).unwrap_err(), Ended::TimedOut);
    assert_eq!((rig.queue_pairs(), Arc::strong_count(&own)), (0, 1));
    drop(own);
    rig.simulator.run_until_idle();
    assert_eq!(rig.simulator.violations(), []);
}

#[test]
fn a_shutdown_without_an_end_waits_until_the_device_goes_on() {
    let mut rig = Rig::stepped();
    let qp: Queue<u32> = rig.hub.adopt(rig.loopback()).unwrap();
    rig.block_on(qp.post_recv(1, Sge::default())).unwrap();
    let pump = rig.pump.take().unwrap();
    assert!(format!("{pump:?}").contains(&format!("shutdown_timeout: {DEFAULT_TIMEOUT:?}")));
    let mut pump = pump.shutdown_timeout(Duration::MAX);
    rig.hub.shutdown();
    for _ in 0..3 {
        while pump.step().unwrap() != Step::Wait {}
    }
    rig.simulator.run_until_idle();
    while pump.step().unwrap() != Step::Stopped {}
}

#[test]
fn dropped_close_leaves_the_queue_pair_to_the_pump() {
    let mut rig = Rig::stepped();
    let before = rig.queue_pairs();
    let qp: Queue<Arc<MemoryRegion>> = rig.hub.adopt(rig.loopback()).unwrap();
    let own = Arc::new(rig.pd.allocate(64).unwrap());
    rig.block_on(qp.post_recv(Arc::clone(&own), own.sge(..).unwrap())).unwrap();
    let mut close = Box::pin(qp.close());
    assert!(poll(&mut close, &Flag::new()).is_pending());
    drop(close);
    assert_eq!((rig.queue_pairs(), Arc::strong_count(&own)), (before + 1, 2));
    rig.settle();
    assert_eq!((rig.queue_pairs(), Arc::strong_count(&own)), (before, 1));
    assert_eq!(rig.simulator.violations(), []);
}

#[test]
fn without_its_pump_a_request_fails_and_what_it_keeps_stays_with_the_queue_pair() {
    let mut rig = Rig::stepped();
    let qp: Queue<Arc<MemoryRegion>> = rig.hub.adopt(rig.loopback()).unwrap();
    let own = Arc::new(rig.pd.allocate(64).unwrap());
    let sge = own.sge(..).unwrap();
    let mut receive = rig.block_on(qp.submit_recv(Arc::clone(&own), sge)).unwrap();
    let task = Flag::new();
    assert!(poll(&mut receive, &task).is_pending());
    let mut receives = qp.receives();
    rig.pump = None;
    assert!(task.is_set());
    let Poll::Ready(Err(failed)) = poll(&mut receive, &task) else { panic!("nothing can come") };
    assert_eq!(failed.because, FailedBecause::Lost(Ended::NoPump));
    assert!(failed.keep.is_none(), "the device may still write to it");
    assert!(rig.block_on(receives.next()).is_none());
    assert_eq!(Arc::strong_count(&own), 2);
    drop((receive, receives));
    assert_eq!(Arc::strong_count(&own), 2);
    let before = rig.queue_pairs();
    drop(qp);
    assert_eq!((rig.queue_pairs(), Arc::strong_count(&own)), (before - 1, 1));
}

#[test]
fn a_device_that_is_gone_fails_everything_that_waits() {
    for fault in [Fault::Remove, Fault::Fatal] {
        let mut rig = Rig::stepped();
        let mut events = rig.hub.device_events();
        let qp: Queue<u32> = rig.hub.adopt(rig.loopback()).unwrap();
        let receive = rig.block_on(qp.submit_recv(1, Sge::default())).unwrap();
        let mut stream = qp.receives();
        match fault {
            Fault::Remove => rig.simulator.remove_device(0),
            ref fault => rig.simulator.inject(0, fault.clone()),
        }
        let failed = rig.block_on(receive).unwrap_err();
        let gone = Ended::Poll(PollError::DeviceGone);
        assert_eq!(failed.because, FailedBecause::Lost(gone), "{fault:?}");
        assert!(rig.block_on(stream.next()).is_none());
        assert_eq!(rig.block_on(events.next()), Some(AsyncEvent::DeviceFatal));
        assert_eq!(rig.block_on(events.next()), None);
        let refused = qp.try_post(1, NONE, |wr| wr.send().inline_data(&[])).unwrap_err();
        assert_eq!(refused.because, RefusedBecause::Ended(gone));
        assert_eq!(rig.block_on(qp.close()).unwrap_err(), gone);
    }
}

#[test]
fn events_of_the_device_reach_the_stream() {
    let mut rig = Rig::stepped();
    let mut events = rig.hub.device_events();
    rig.settle();
    rig.simulator.set_port_active(0, 1, false);
    assert_eq!(rig.block_on(events.next()), Some(AsyncEvent::PortError(1)));
}

#[test]
fn a_hub_takes_no_queue_pair_that_could_make_its_completion_queue_overflow() {
    let rig = Rig::stepped();
    let (hub, _pump) = Hub::new(&rig.context, 63).unwrap();
    let make = |wr| hub.create_qp::<mlx5::transport::Rc>(&rig.pd).max_send_wr(wr).max_recv_wr(wr);
    let first = hub.adopt::<_, ()>(make(16).build().unwrap()).unwrap();
    let second = hub.adopt::<_, ()>(make(32).build().unwrap()).unwrap_err();
    assert!(matches!(second, NotAdded::CompletionQueueFull { .. }), "{second}");
    drop(first);
    hub.adopt::<_, ()>(make(16).build().unwrap()).unwrap();
    let other = rig.loopback();
    assert_eq!(hub.adopt::<_, ()>(other).unwrap_err(), NotAdded::OtherCompletionQueue);
}

#[test]
fn a_completion_queue_that_fails_ends_the_pump_with_its_reason() {
    let mut rig = Rig::stepped();
    let qp: Queue<u32> = rig.hub.adopt(rig.loopback()).unwrap();
    let (to, sge) = (rig.memory.remote(4096..).unwrap(), rig.memory.sge(..8).unwrap());
    let mut request = qp.try_submit(1, NONE, |wr| wr.rdma_write(to).sge(sge)).unwrap();
    // No completion has this opcode.
    let corrupt = Fault::CorruptCqe { cqn: None, patch: vec![(63, 0xb0)] };
    rig.simulator.inject(0, corrupt);
    rig.simulator.run_until_idle();
    let mut pump = rig.pump.take().unwrap();
    let error = loop {
        match pump.step() {
            Ok(Step::Again) => {}
            Ok(step) => panic!("{step:?}"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, PumpError::Poll(PollError::Corrupt(_))), "{error}");
    let Poll::Ready(Err(failed)) = poll(&mut request, &Flag::new()) else { panic!("it is over") };
    assert!(matches!(failed.because, FailedBecause::Lost(Ended::Poll(PollError::Corrupt(_)))));
}

#[test]
fn several_streams_of_events_and_several_of_a_queue_all_end() {
    let mut rig = Rig::stepped();
    let qp: Queue<u32> = rig.hub.adopt(rig.loopback()).unwrap();
    let mut events = [rig.hub.device_events(), rig.hub.device_events()];
    let mut receives = [qp.receives(), qp.receives()];
    let tasks: [_; 4] = std::array::from_fn(|_| Flag::new());
    {
        let [first, second] = &mut events;
        let [third, fourth] = &mut receives;
        let mut events = [Box::pin(first.next()), Box::pin(second.next())];
        for (next, task) in events.iter_mut().zip(&tasks) {
            assert!(poll(next, task).is_pending());
        }
        let mut receives = [Box::pin(third.next()), Box::pin(fourth.next())];
        for (next, task) in receives.iter_mut().zip(&tasks[2..]) {
            assert!(poll(next, task).is_pending());
        }
        rig.simulator.set_port_active(0, 1, false);
        rig.settle();
        let event = AsyncEvent::PortError(1);
        assert_eq!(poll(&mut events[1], &tasks[1]), Poll::Ready(Some(event)));
        // The other task was woken too, and waits again.
        assert!(tasks[0].is_set() && poll(&mut events[0], &tasks[0]).is_pending());
        let fresh = Flag::new();
        assert!(poll(&mut events[0], &fresh).is_pending());
        rig.pump = None;
        assert!(fresh.is_set() && tasks[2].is_set() && tasks[3].is_set());
        assert_eq!(poll(&mut events[0], &fresh), Poll::Ready(None));
    }
    for stream in &mut receives {
        assert!(rig.block_on(stream.next()).is_none());
    }
}

#[test]
fn events_from_before_a_stream_was_there_are_not_kept_for_it() {
    let mut rig = Rig::stepped();
    let events = rig.hub.device_events();
    rig.settle();
    rig.simulator.set_port_active(0, 1, false);
    rig.settle();
    drop(events);
    let mut events = rig.hub.device_events();
    rig.simulator.set_port_active(0, 1, true);
    assert_eq!(rig.block_on(events.next()), Some(AsyncEvent::PortActive(1)));
}

#[test]
fn draining_a_hub_lets_every_send_be_done() {
    let mut rig = Rig::stepped();
    let queues: Vec<Queue<u32>> = (0..3).map(|_| rig.hub.adopt(rig.loopback()).unwrap()).collect();
    let (to, sge) = (rig.memory.remote(4096..).unwrap(), rig.memory.sge(..8).unwrap());
    let submit = |qp: &Queue<u32>| qp.try_submit(7, NONE, |wr| wr.rdma_write(to).sge(sge));
    let requests: Vec<_> = queues.iter().map(|qp| submit(qp).unwrap()).collect();
    let receive = rig.block_on(queues[0].submit_recv(8, Sge::default())).unwrap();
    // A drain that is dropped and started again.
    let hub = rig.hub.clone();
    assert!(poll(&mut Box::pin(hub.drain()), &Flag::new()).is_pending());
    rig.block_on(hub.drain()).unwrap();
    let refused = submit(&queues[2]).unwrap_err();
    assert_eq!(refused.because, RefusedBecause::Ended(Ended::Closed));
    for request in requests {
        assert_eq!(rig.block_on(request).unwrap().keep, 7);
    }
    rig.hub.shutdown();
    assert!(rig.block_on(receive).unwrap_err().is_flushed());
    rig.settle();
    assert!(rig.pump.is_none(), "it has stopped");
}

#[test]
fn request_posted_outside_completes_no_request_of_another_queue_pair() {
    let mut rig = Rig::stepped();
    let qp: Queue<u32> = rig.hub.adopt(rig.loopback()).unwrap();
    let mut receive = rig.block_on(qp.submit_recv(1, Sge::default())).unwrap();
    // The names of all possible requests.
    let mut other = rig.loopback();
    for queue in 0..2_u64 {
        for slot in 0..4 {
            other.recv(queue << 32 | 3 << 30 | slot, Sge::default()).unwrap();
        }
    }
    other.to_error().unwrap();
    rig.settle();
    assert_eq!(rig.hub.strays(), 8);
    assert!(poll(&mut receive, &Flag::new()).is_pending());
}

#[test]
fn leaked_futures_take_no_room_and_submit_does_not_wait_for_them() {
    let mut rig = Rig::stepped();
    let before = rig.queue_pairs();
    let qp: Queue<u32> = rig.hub.adopt(rig.loopback()).unwrap();
    let (to, sge) = (rig.memory.remote(4096..).unwrap(), rig.memory.sge(..8).unwrap());
    let submit = |number| qp.try_submit(number, NONE, |wr| wr.rdma_write(to).sge(sge));
    // Three times as many requests as the queue holds.
    for number in 0..48 {
        let request = rig.block_on(qp.submit(number, NONE, |wr| wr.rdma_write(to).sge(sge)));
        std::mem::forget(request.unwrap());
        rig.settle();
    }
    let requests: Vec<_> = (0..16).map(|number| submit(number).unwrap()).collect();
    assert_eq!(submit(16).unwrap_err().because, RefusedBecause::Full);
    for (request, number) in requests.into_iter().zip(0..) {
        assert_eq!(rig.block_on(request).unwrap().keep, number);
    }
    drop(rig.block_on(qp.close()).unwrap());
    assert_eq!(rig.queue_pairs(), before);
    rig.hub.shutdown();
    rig.settle();
    assert!(rig.pump.is_none(), "it has stopped");
}

#[test]
fn results_that_futures_keep_are_their_own_however_many_are_posted_meanwhile() {
    let mut rig = Rig::stepped();
    let qp: Queue<u32> = rig.hub.adopt(rig.loopback()).unwrap();
    let (to, sge) = (rig.memory.remote(4096..).unwrap(), rig.memory.sge(..8).unwrap());
    let mut kept = Vec::new();
    for number in 0..48 {
        let request = rig.block_on(qp.submit(number, NONE, |wr| wr.rdma_write(to).sge(sge)));
        kept.push(request.unwrap());
    }
    for (request, number) in kept.into_iter().zip(0..48).rev() {
        assert_eq!(rig.block_on(request).unwrap().keep, number);
    }
}

#[test]
fn results_that_no_stream_reads_fill_the_queue() {
    let mut rig = Rig::stepped();
    let qp: Queue<u32> = rig.hub.adopt(rig.loopback()).unwrap();
    let (to, sge) = (rig.memory.remote(4096..).unwrap(), rig.memory.sge(..8).unwrap());
    let post = |number| qp.try_post(number, NONE, |wr| wr.rdma_write(to).sge(sge));
    (0..16).for_each(|number| post(number).unwrap());
    rig.settle();
    assert_eq!(post(16).unwrap_err().because, RefusedBecause::Full);
    let submitted = qp.try_submit(16, NONE, |wr| wr.rdma_write(to).sge(sge));
    assert_eq!(submitted.unwrap_err().because, RefusedBecause::Full);
    let mut sends = qp.sends();
    assert_eq!(sends.try_next().unwrap().unwrap().keep, 0);
    post(16).unwrap();
    assert_eq!(post(17).unwrap_err().because, RefusedBecause::Full);
}

/// Its drop panics.
struct Panicking;

impl Drop for Panicking {
    fn drop(&mut self) {
        panic!("what a request of a test keeps panics");
    }
}

#[test]
fn panic_in_the_drop_of_a_held_value_leaves_other_requests_intact() {
    let mut rig = Rig::stepped();
    let panicking: Queue<Panicking> = rig.hub.adopt(rig.loopback()).unwrap();
    let qp: Queue<u32> = rig.hub.adopt(rig.loopback()).unwrap();
    let (to, sge) = (rig.memory.remote(4096..).unwrap(), rig.memory.sge(..8).unwrap());
    let submit = |number| qp.try_submit(number, NONE, |wr| wr.rdma_write(to).sge(sge)).unwrap();
    let first = submit(1);
    drop(panicking.try_submit(Panicking, NONE, |wr| wr.rdma_write(to).sge(sge)).unwrap());
    let second = submit(2);
    assert_eq!(rig.block_on(first).unwrap().keep, 1);
    assert_eq!(rig.block_on(second).unwrap().keep, 2);
    assert!(rig.pump.is_some(), "the pump goes on");
}

#[test]
fn held_value_of_an_untaken_result_may_panic_when_the_pump_drops_it() {
    let mut rig = Rig::stepped();
    let (before, kept) = (rig.queue_pairs(), Arc::new(()));
    let panicking: Queue<(Arc<()>, Option<Panicking>)> = rig.hub.adopt(rig.loopback()).unwrap();
    for panics in [Some(Panicking), None] {
        panicking.try_post_recv((Arc::clone(&kept), panics), Sge::default()).unwrap();
    }
    // They are flushed, for streams that no task holds.
    drop(panicking);
    assert_eq!((rig.queue_pairs(), Arc::strong_count(&kept)), (before + 1, 3));
    rig.settle();
    assert!(rig.pump.is_some(), "the pump goes on");
    assert_eq!((rig.queue_pairs(), Arc::strong_count(&kept)), (before, 1));
}

#[test]
fn a_queue_pair_that_is_kept_by_its_own_request_goes_when_that_completes() {
    let mut rig = Rig::stepped();
    let before = rig.queue_pairs();
    /// A handle of the queue pair itself.
    struct Own {
        _qp: Queue<Own>,
    }
    let qp: Queue<Own> = rig.hub.adopt(rig.loopback()).unwrap();
    let (to, sge) = (rig.memory.remote(4096..).unwrap(), rig.memory.sge(..8).unwrap());
    let own = Own { _qp: qp.clone() };
    drop(qp.try_submit(own, NONE, |wr| wr.rdma_write(to).sge(sge)).unwrap());
    drop(qp);
    assert_eq!(rig.queue_pairs(), before + 1);
    rig.settle();
    assert_eq!(rig.queue_pairs(), before);
}

#[test]
fn submit_futures_that_are_leaked_or_held_unpolled_in_the_line_keep_none_from_posting() {
    for leaks in [true, false] {
        let mut rig = Rig::stepped();
        let qp: Queue<u32> = rig.hub.adopt(rig.loopback()).unwrap();
        let (to, sge) = (rig.memory.remote(4096..).unwrap(), rig.memory.sge(..8).unwrap());
        let submit = |number| Box::pin(qp.submit(number, NONE, |wr| wr.rdma_write(to).sge(sge)));
        let posted: Vec<_> = (0..16).map(|number| rig.block_on(submit(number)).unwrap()).collect();
        let mut held = [submit(16), submit(17)];
        for waits in &mut held {
            assert!(poll(waits, &Flag::new()).is_pending(), "the queue is full");
        }
        let mut held = Some(held);
        if leaks {
            std::mem::forget(held.take());
        }
        let (task, mut after) = (Flag::new(), submit(18));
        assert!(poll(&mut after, &task).is_pending());
        rig.settle();
        assert!(task.is_set(), "all has completed, and it sleeps on");
        let Poll::Ready(Ok(request)) = poll(&mut after, &task) else { panic!("there is room") };
        assert_eq!(rig.block_on(request).unwrap().keep, 18);
        let now = qp.try_submit(19, NONE, |wr| wr.rdma_write(to).sge(sge)).unwrap();
        assert_eq!(rig.block_on(now).unwrap().keep, 19);
        for (request, number) in posted.into_iter().zip(0..) {
            assert_eq!(rig.block_on(request).unwrap().keep, number);
        }
        // The futures that wait post when they are polled.
        for (waits, number) in held.into_iter().flatten().zip(16..) {
            let request = rig.block_on(waits).unwrap();
            assert_eq!(rig.block_on(request).unwrap().keep, number);
        }
        drop(after);
        drop(rig.block_on(qp.close()).unwrap());
    }
}

#[test]
fn futures_that_pile_up_untaken_are_refused_and_taken_ones_make_room_again() {
    let mut rig = Rig::stepped();
    let qp: Queue<u32> = rig.hub.adopt(rig.loopback()).unwrap();
    let (to, sge) = (rig.memory.remote(4096..).unwrap(), rig.memory.sge(..8).unwrap());
    let mut futures = Vec::new();
    let refused = loop {
        let submit = qp.submit(1, NONE, |wr| wr.rdma_write(to).sge(sge));
        match rig.block_on(submit) {
            Ok(request) => futures.push(request),
            Err(refused) => break refused,
        }
        rig.settle();
        assert!(futures.len() <= 256, "without a limit");
    };
    assert_eq!((futures.len(), refused.because), (256, RefusedBecause::Untaken));
    let text = refused.to_string();
    assert!(text.contains("poll these futures or drop them"), "{text}");
    let (one, other) = (futures.pop().unwrap(), futures.pop().unwrap());
    assert!(rig.block_on(one).is_ok());
    drop(other);
    for _ in 0..2 {
        assert!(qp.try_submit(2, NONE, |wr| wr.rdma_write(to).sge(sge)).is_ok());
    }
}
