//! Receives of shared receive queues with page faults, and the operations on such a queue
//! meanwhile.

use super::states::Bed;
use super::*;
use crate::testing::Altered;
use crate::transport::Rc;
use mlx5_sim::Fault;
use mlx5_uapi::ioctl::{attr, method};
use mlx5_uapi::write_cmd::WriteCommand;
use mlx5_wqe::Repost;
use mlx5_wqe::SendFlags;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A shared receive queue that several threads may use, and a bed whose next receives have page
/// faults.
fn faulty(faults: u32) -> (Bed, Arc<Mutex<SharedReceiveQueue>>) {
    let bed = Bed::new();
    let srq = bed.pd.create_srq(8).build().unwrap();
    bed.simulator.inject(0, Fault::FaultReceives(faults));
    (bed, Arc::new(Mutex::new(srq)))
}

/// Returns the next completions: their identifiers, and whether they had a page fault.
fn poll(bed: &mut Bed, count: usize) -> Vec<(u64, bool)> {
    let mut found = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(60);
    while found.len() < count {
        assert!(Instant::now() < deadline, "{count} completions: {found:?}");
        bed.cq
            .poll(count - found.len(), |wc| {
                let fault = wc.status().err().map(|error| error.is_page_fault());
                assert_ne!(fault, Some(false), "{wc:?}");
                found.push((wc.wr_id(), fault.is_some()));
            })
            .unwrap();
    }
    found.sort_unstable();
    found
}

fn post(srq: &Mutex<SharedReceiveQueue>, wr_ids: std::ops::Range<u64>) {
    let mut srq = srq.lock().unwrap();
    wr_ids.for_each(|wr_id| srq.recv(wr_id, Sge::default()).unwrap());
}

#[test]
fn receive_that_meets_a_page_fault_is_reported_and_its_message_comes_again() {
    let (mut bed, srq) = faulty(2);
    let mut pair = bed.pair(Some(&srq.lock().unwrap()));
    post(&srq, 0..3);
    pair.send([9], SendFlags::SIGNALED);
    assert_eq!(poll(&mut bed, 4), [(0, true), (1, true), (2, false), (9, false)]);
    assert_eq!(srq.lock().unwrap().in_flight(), 0);
}

#[test]
fn a_function_that_posts_it_again_keeps_page_faults_from_the_program() {
    let (mut bed, srq) = faulty(2);
    let mut pair = bed.pair(Some(&srq.lock().unwrap()));
    let weak = Arc::downgrade(&srq);
    let repost = move |faulted: Faulted<'_>| {
        assert!(weak.upgrade().unwrap().lock().unwrap().repost(faulted));
    };
    srq.lock().unwrap().on_page_fault(Some(Box::new(repost)));
    post(&srq, 0..1);
    pair.send([9], SendFlags::SIGNALED);
    assert_eq!(poll(&mut bed, 2), [(0, false), (9, false)]);
    assert_eq!(srq.lock().unwrap().in_flight(), 0);
    assert_eq!(bed.simulator.violations(), []);
}

/// The first completion of the request is over; the message arrives in the reposted one.
#[test]
fn polling_goes_on_behind_a_panic_of_what_posted_a_request_again() {
    let (mut bed, srq) = faulty(1);
    let mut pair = bed.pair(Some(&srq.lock().unwrap()));
    let weak = Arc::downgrade(&srq);
    let repost = move |faulted: Faulted<'_>| {
        let queue = weak.upgrade().unwrap();
        assert!(queue.lock().unwrap().repost(faulted));
        resume_unwind(Box::new("planned"));
    };
    srq.lock().unwrap().on_page_fault(Some(Box::new(repost)));
    post(&srq, 0..1);
    pair.send([9], SendFlags::SIGNALED);
    bed.wait_for(1);
    assert!(catch_unwind(AssertUnwindSafe(|| poll(&mut bed, 2))).is_err());
    assert_eq!(poll(&mut bed, 2), [(0, false), (9, false)]);
    assert_eq!(srq.lock().unwrap().in_flight(), 0);
    assert_eq!(bed.simulator.violations(), []);
}

/// A request is not lost, whatever the function returns.
#[test]
fn page_fault_is_reported_when_the_handler_posts_nothing() {
    let (mut bed, srq) = faulty(1);
    let mut pair = bed.pair(Some(&srq.lock().unwrap()));
    let asked = Arc::new(AtomicU32::new(0));
    let asks = Arc::clone(&asked);
    let nothing = move |_: Faulted<'_>| {
        asks.fetch_add(1, Relaxed);
    };
    srq.lock().unwrap().on_page_fault(Some(Box::new(nothing)));
    post(&srq, 0..2);
    pair.send([9], SendFlags::SIGNALED);
    assert_eq!(poll(&mut bed, 3), [(0, true), (1, false), (9, false)]);
    assert_eq!(asked.load(Relaxed), 1);
}

#[test]
fn limit_and_queries_need_no_reference_to_the_queue() {
    let (bed, _) = faulty(0);
    let mut srq = bed.pd.create_srq(7).build().unwrap();
    // With fewer, the limit would be reached at once.
    (0..5).for_each(|wr_id| srq.recv(wr_id, Sge::default()).unwrap());
    let (control, too_many) = (srq.control(), srq.capacity() + 1);
    std::thread::scope(|scope| {
        // This thread has the only reference.
        let poster = &mut srq;
        scope.spawn(|| {
            control.set_limit(5).unwrap();
            assert_eq!(control.query().unwrap().limit, 5);
            assert_eq!(control.set_limit(too_many).unwrap_err().kind(), ErrorKind::InvalidArgument);
        });
        poster.recv(5, Sge::default()).unwrap();
    });
    assert_eq!(srq.query().unwrap(), control.query().unwrap());
    srq.destroy().expect("no control keeps it");
    assert_eq!(control.query().unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(control.set_limit(1).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert!(control.on_page_fault(None).is_err());
    assert!(format!("{control:?}").contains("gone: true"));
}

/// A queue that was withdrawn still exists for threads that use it.
#[test]
fn a_control_of_a_queue_that_was_withdrawn_is_refused() {
    let (bed, _) = faulty(0);
    let mut srq = bed.pd.create_srq(7).build().unwrap();
    let control = srq.control();
    srq.withdraw().unwrap();
    assert_eq!(control.query().unwrap_err().kind(), ErrorKind::InvalidArgument);
    control.on_page_fault(None).unwrap();
    let nothing: Repost = Box::new(|_| {});
    let refused = control.on_page_fault(Some(nothing)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    let builder = bed.pd.create_qp::<Rc>(&bed.cq, &bed.cq);
    assert_eq!(builder.srq_of(&control).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

/// Polls of a queue with tags never repost.
#[test]
fn a_queue_with_tags_takes_no_function_that_posts_again() {
    let (bed, _) = faulty(0);
    let tags = bed.pd.create_tm_srq(&bed.cq, 4).build().unwrap();
    let control = tags.control();
    let nothing: Repost = Box::new(|_| {});
    let refused = control.on_page_fault(Some(nothing)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotSupported);
    control.on_page_fault(None).unwrap();
    let builder = bed.pd.create_qp::<Rc>(&bed.cq, &bed.cq);
    assert_eq!(builder.srq_of(&control).unwrap_err().kind(), ErrorKind::InvalidArgument);
    control.query().unwrap();
    tags.destroy().unwrap();
    assert!(control.query().is_err());
}

#[test]
fn clone_of_a_shared_queue_builds_queue_pairs_that_take_from_it() {
    let (mut bed, srq) = faulty(0);
    let control = srq.lock().unwrap().control();
    let mut owner = Arc::into_inner(srq).unwrap().into_inner().unwrap();
    let builder = bed.pd.create_qp::<Rc>(&bed.cq, &bed.cq).srq_of(&control).unwrap();
    assert_eq!(owner.withdraw().unwrap_err().kind(), ErrorKind::Busy, "a builder takes from it");
    drop(builder);
    let mut pair = bed.pair_with(|builder| builder.srq_of(&control).unwrap());
    assert_eq!(owner.withdraw().unwrap_err().kind(), ErrorKind::Busy, "a queue pair takes from it");
    owner.recv(3, Sge::default()).unwrap();
    pair.send([9], SendFlags::SIGNALED);
    assert_eq!(poll(&mut bed, 2), [(3, false), (9, false)]);
    drop(pair);
    owner.destroy().unwrap();
}

/// The kernel gives the number of a queue that was destroyed to the next one.
#[test]
fn a_call_does_not_reach_the_queue_that_has_the_number_of_a_destroyed_one() {
    let simulator = Simulator::new(SimConfig::new());
    let (inside, is_inside) = sync_channel(0);
    let (ended, has_ended) = sync_channel(1);
    let has_ended = Mutex::new(has_ended);
    let kernel = Altered::new(simulator.kernel(), move |call| {
        let command = attr::invoke_write::WRITE_CMD;
        match call.method {
            method::SRQ_DESTROY => ended.send(()).unwrap(),
            method::INVOKE_WRITE
                if call.number(command) == Some(WriteCommand::MODIFY_SRQ.0.into()) =>
            {
                inside.send(()).unwrap();
                // Long enough for a thread that does not wait for this call.
                let while_in_it = has_ended.lock().unwrap().recv_timeout(Duration::from_millis(50));
                assert_eq!(while_in_it, Err(RecvTimeoutError::Timeout));
            }
            _ => {}
        }
        call.pass()
    });
    let context = devices_on(kernel).unwrap().remove(0).open().unwrap();
    let mut srq = context.alloc_pd().unwrap().create_srq(7).build().unwrap();
    let control = srq.control();
    std::thread::scope(|scope| {
        let modified = scope.spawn(|| control.set_limit(1));
        is_inside.recv().unwrap();
        // It waits for the call, instead of being refused because of it.
        srq.withdraw().unwrap();
        modified.join().unwrap().unwrap();
    });
}
