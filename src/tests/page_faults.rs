//! Receives of shared receive queues that meet page faults, and what can be asked of such a queue meanwhile.

use super::states::Bed;
use super::*;
use mlx5_sim::Fault;
use mlx5_wqe::SendFlags;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A shared receive queue that several threads may use, and a bed whose next receives meet page faults.
fn faulty(faults: u32) -> (Bed, Arc<Mutex<SharedReceiveQueue>>) {
    let bed = Bed::new();
    let srq = bed.pd.create_srq(8).build().unwrap();
    bed.simulator.inject(0, Fault::FaultReceives(faults));
    (bed, Arc::new(Mutex::new(srq)))
}

/// The next completions: their identifiers, and whether they met a page fault.
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
fn a_receive_that_meets_a_page_fault_is_told_and_its_message_comes_again() {
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

/// Whatever the function says: a request is not lost.
#[test]
fn a_function_that_posts_nothing_has_the_page_fault_told() {
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
    assert!(format!("{control:?}").contains("gone"));
}

/// A queue that was withdrawn exists for the threads that are still at it.
#[test]
fn a_control_of_a_queue_that_was_withdrawn_is_refused() {
    let (bed, _) = faulty(0);
    let mut srq = bed.pd.create_srq(7).build().unwrap();
    let control = srq.control();
    srq.withdraw().unwrap();
    assert_eq!(control.query().unwrap_err().kind(), ErrorKind::InvalidArgument);
    control.on_page_fault(None).unwrap();
}
