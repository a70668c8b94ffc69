//! Queue pairs that are not connected yet: their posted requests come back in every case.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use mlx5::{ConnectOptions, MemoryRegion, QueuePair, SendFlags, Sge, transport::Rc};
use mlx5_async::{Ended, FailedBecause, RefusedBecause, Seat};

use crate::rig::{Queue, Rig};

/// Time limit of a peer.
const LIMIT: Duration = Duration::from_secs(30);

/// The value that a receive keeps.
type Keep = Arc<MemoryRegion>;

/// A seat with a receive posted.
fn seat(rig: &Rig) -> (Seat<Rc, Keep>, Keep) {
    let seat = rig.hub.reserve(rig.loopback()).unwrap();
    let own = Arc::new(rig.pd.allocate(64).unwrap());
    seat.post_recv(Arc::clone(&own), own.whole().unwrap()).unwrap();
    (seat, own)
}

#[test]
fn a_seat_that_is_dropped_flushes_and_gives_its_place_back() {
    let mut rig = Rig::stepped();
    let before = rig.queue_pairs();
    // Far more than there is room for at a time.
    for _ in 0..100 {
        let (seat, own) = seat(&rig);
        drop(seat);
        assert_eq!(Arc::strong_count(&own), 2, "the device may write to it");
        rig.settle();
        assert_eq!(Arc::strong_count(&own), 1);
        assert_eq!(rig.queue_pairs(), before);
    }
    rig.hub.shutdown();
    rig.settle();
    assert!(rig.pump.is_none(), "it has stopped");
    assert_eq!(rig.simulator.violations(), []);
}

#[test]
fn a_hub_that_is_shut_down_before_a_seat_is_adopted_flushes_it_and_ends() {
    for borrowed in [false, true] {
        let mut rig = Rig::stepped();
        let (mut seat, own) = seat(&rig);
        match borrowed {
            false => rig.hub.shutdown(),
            // The hub ends while it is being connected.
            true => seat
                .with_owned(|qp| {
                    rig.hub.shutdown();
                    (qp, ())
                })
                .unwrap(),
        }
        let qp: Queue<Keep> = seat.adopt();
        let refused = qp.try_post_recv(Arc::clone(&own), Sge::default()).unwrap_err();
        assert_eq!(refused.because, RefusedBecause::Ended(Ended::Closed));
        drop(refused);
        let mut receives = qp.receives();
        let flushed = rig.block_on(receives.next()).unwrap().unwrap_err();
        assert!(flushed.is_flushed());
        rig.settle();
        assert!(rig.pump.is_none(), "borrowed {borrowed}: the pump waits for what never completes");
        drop(rig.block_on(qp.close()).unwrap());
    }
}

#[test]
fn a_queue_pair_that_does_not_come_back_loses_its_requests_and_no_others() {
    for swapped in [false, true] {
        let mut rig = Rig::stepped();
        let before = rig.queue_pairs();
        let (mut seat, own) = seat(&rig);
        let other: QueuePair<Rc> = rig.loopback();
        let with_owned = AssertUnwindSafe(|| {
            seat.with_owned(|qp| {
                drop(qp);
                assert!(swapped, "the connection manager of a test panics");
                (other, ())
            })
        });
        assert_eq!(catch_unwind(with_owned).is_ok(), swapped);
        assert_eq!(seat.with(|_| ()).unwrap_err(), Ended::Destroyed);
        assert_eq!(rig.queue_pairs(), before);
        let qp: Queue<Keep> = seat.adopt();
        assert!(rig.block_on(qp.receives().next()).is_none());
        let refused = qp.try_post(own, SendFlags::empty(), |wr| wr.send().inline_data(&[]));
        assert_eq!(refused.unwrap_err().because, RefusedBecause::Ended(Ended::Destroyed));
        rig.hub.shutdown();
        rig.settle();
        assert!(rig.pump.is_none(), "it has stopped");
    }
}

/// Otherwise its requests would be returned while the device may use their memory.
#[test]
fn a_seat_that_gets_another_queue_pair_keeps_both_until_it_gets_its_own() {
    let mut rig = Rig::stepped();
    let before = rig.queue_pairs();
    let (mut seat, own) = seat(&rig);
    let mut other: QueuePair<Rc> = rig.loopback();
    let (number, spare) = (seat.with(|qp| qp.qp_num()).unwrap(), other.qp_num());
    let swap = |seat: &mut Seat<Rc, Keep>, qp: &mut QueuePair<Rc>| {
        seat.with(|here| std::mem::swap(here, qp))
    };
    assert_eq!(swap(&mut seat, &mut other).unwrap_err(), Ended::Elsewhere);
    assert_eq!((other.qp_num(), rig.queue_pairs()), (number, before + 2));
    assert_eq!(Arc::strong_count(&own), 2, "the device may write to it");
    let refused = seat.post_recv(Arc::clone(&own), Sge::default()).unwrap_err();
    assert_eq!(refused.because, RefusedBecause::Ended(Ended::Elsewhere));
    drop(refused);
    // The seat still has the other one.
    assert_eq!(seat.with(|qp| assert_eq!(qp.qp_num(), spare)).unwrap_err(), Ended::Elsewhere);
    swap(&mut seat, &mut other).unwrap();
    assert_eq!(other.qp_num(), spare);
    let qp: Queue<Keep> = seat.adopt();
    let mut receives = qp.receives();
    qp.try_post(Arc::clone(&own), SendFlags::empty(), |wr| wr.send().inline_data(&[])).unwrap();
    assert!(rig.block_on(receives.next()).unwrap().is_ok());
    drop(rig.block_on(qp.close()).unwrap());
}

#[test]
fn requests_of_a_queue_pair_that_the_program_keeps_end_when_it_ends() {
    for way in ["flushed", "destroyed", "with the result", "destroyed before the shutdown"] {
        let mut rig = Rig::stepped();
        let (mut seat, own) = seat(&rig);
        let other: QueuePair<Rc> = rig.loopback();
        if way == "with the result" {
            assert_eq!(seat.with_owned(|qp| (other, qp)).unwrap_err(), Ended::Destroyed);
            assert_eq!(seat.with(|_| ()).unwrap_err(), Ended::Destroyed);
            drop(seat);
            assert_eq!(Arc::strong_count(&own), 1);
            continue;
        }
        let mut kept = None;
        let error = seat.with_owned(|qp| (other, kept = Some(qp))).unwrap_err();
        assert_eq!((error, Arc::strong_count(&own)), (Ended::Elsewhere, 2));
        let mut qp = kept.unwrap();
        match way {
            "flushed" => {
                qp.to_error().unwrap();
                rig.settle();
                drop(seat);
            }
            "destroyed" => {
                drop(qp);
                assert_eq!(seat.with(|_| ()).unwrap_err(), Ended::Destroyed);
                let qp: Queue<Keep> = seat.adopt();
                assert!(rig.block_on(qp.receives().next()).is_none());
            }
            _ => {
                drop(qp);
                rig.hub.shutdown();
                drop(seat);
            }
        }
        rig.hub.shutdown();
        rig.settle();
        assert_eq!(Arc::strong_count(&own), 1, "{way}");
        assert!(rig.pump.is_none(), "{way}: the pump waits for what never completes");
    }
}

#[test]
fn a_queue_pair_that_a_panic_leaves_with_the_program_keeps_what_is_posted() {
    let mut rig = Rig::stepped();
    let (mut seat, own) = seat(&rig);
    let mut kept = None;
    let with_owned = AssertUnwindSafe(|| {
        seat.with_owned(|qp| -> (QueuePair<Rc>, ()) {
            kept = Some(qp);
            panic!("the connection manager of a test panics")
        })
    });
    assert!(catch_unwind(with_owned).is_err());
    assert_eq!(seat.with(|_| ()).unwrap_err(), Ended::Elsewhere);
    assert_eq!(Arc::strong_count(&own), 2, "the device may write to it");
    drop((kept, seat));
    assert_eq!(Arc::strong_count(&own), 1);
    rig.hub.shutdown();
    rig.settle();
    assert!(rig.pump.is_none(), "it has stopped");
}

/// Each device numbers its own queue pairs.
#[test]
fn queue_pair_of_another_device_with_the_same_number_is_not_taken_back() {
    let (mut rig, other) = (Rig::stepped(), Rig::stepped());
    let (mut seat, own) = seat(&rig);
    let mut foreign: QueuePair<Rc> = other.loopback();
    let same = seat.with(|qp| qp.qp_num() == foreign.qp_num()).unwrap();
    assert!(same, "the test needs two queue pairs with one number");
    let swapped = seat.with(|qp| std::mem::swap(qp, &mut foreign));
    assert_eq!(swapped.unwrap_err(), Ended::Elsewhere);
    drop((foreign, seat, own));
    rig.hub.shutdown();
    rig.settle();
    assert!(rig.pump.is_none(), "it has stopped");
}

#[test]
fn a_queue_pair_that_cannot_be_flushed_is_destroyed_and_its_requests_fail() {
    let mut rig = Rig::stepped();
    let before = rig.queue_pairs();
    let qp: Queue<u32> = rig.hub.adopt(rig.loopback()).unwrap();
    let other: Queue<u32> = rig.hub.adopt(rig.loopback()).unwrap();
    let receive = rig.block_on(qp.submit_recv(1, Sge::default())).unwrap();
    rig.simulator.fail_call(1, mlx5::Errno::ENOMEM);
    let closed = rig.block_on(qp.clone().close());
    rig.simulator.fail_no_call();
    assert_eq!(closed.unwrap_err(), Ended::Destroyed);
    assert_eq!(rig.queue_pairs(), before + 1);
    let failed = rig.block_on(receive).unwrap_err();
    assert_eq!(failed.because, FailedBecause::Lost(Ended::Destroyed));
    let refused = qp.try_post_recv(2, Sge::default()).unwrap_err();
    assert_eq!(refused.because, RefusedBecause::Ended(Ended::Destroyed));
    // The others continue, and nothing waits for it.
    let (to, sge) = (rig.memory.remote(4096..).unwrap(), rig.memory.sge(..8).unwrap());
    let request = other.try_submit(3, SendFlags::empty(), |wr| wr.rdma_write(to).sge(sge)).unwrap();
    assert_eq!(rig.block_on(request).unwrap().keep, 3);
    rig.hub.shutdown();
    rig.settle();
    assert!(rig.pump.is_none(), "it has stopped");
}

#[test]
fn a_queue_pair_that_was_reset_with_receives_posted_is_destroyed_when_it_is_closed() {
    for way in ["close", "drop", "shutdown"] {
        let mut rig = Rig::stepped();
        let before = rig.queue_pairs();
        let (mut seat, own) = seat(&rig);
        seat.with(QueuePair::reset).unwrap().unwrap();
        match way {
            "close" => {
                let closed = rig.block_on(seat.adopt().close());
                assert_eq!(closed.unwrap_err(), Ended::Destroyed);
            }
            "drop" => drop(seat),
            _ => {
                rig.hub.shutdown();
                assert_eq!(seat.with(|_| ()).unwrap_err(), Ended::Destroyed);
                drop(seat);
            }
        }
        assert_eq!(rig.queue_pairs(), before, "{way}");
        assert_eq!(Arc::strong_count(&own), 1, "{way}");
        rig.hub.shutdown();
        rig.settle();
        assert!(rig.pump.is_none(), "{way}: the pump waits for what never completes");
    }
    // Without any, it comes back.
    let mut rig = Rig::stepped();
    let mut seat = rig.hub.reserve::<_, Keep>(rig.loopback()).unwrap();
    seat.with(QueuePair::reset).unwrap().unwrap();
    drop(rig.block_on(seat.adopt().close()).unwrap());
}

#[test]
fn seat_that_connects_over_a_stream_gets_what_the_peer_sends_at_once() {
    let mut rig = Rig::stepped();
    let (port, options) = (rig.context.local_port(1, None).unwrap(), ConnectOptions::default());
    let build = || rig.hub.create_qp::<Rc>(&rig.pd).max_send_wr(4).max_recv_wr(4);
    let (mut qp, own) = (build().build().unwrap(), Arc::new(rig.pd.allocate(64).unwrap()));
    qp.init(&port, &options).unwrap();
    let seat = rig.hub.reserve(qp).unwrap();
    seat.post_recv(Arc::clone(&own), own.whole().unwrap()).unwrap();
    let mut peer = build().max_inline_data(8).build().unwrap();
    let (here, there) = UnixStream::pair().unwrap();
    here.set_read_timeout(Some(LIMIT)).unwrap();
    there.set_read_timeout(Some(LIMIT)).unwrap();
    let qp: Queue<Keep> = thread::scope(|scope| {
        scope.spawn(|| {
            peer.connect_over(&there, &port, &options).unwrap();
            peer.post(|batch| {
                batch.wr(1, SendFlags::SIGNALED).send().inline_data(b"at once!");
            })
            .unwrap();
        });
        seat.connect_over(&here, &port, &options).unwrap()
    });
    let mut receives = qp.receives();
    let done = rig.block_on(receives.next()).unwrap().unwrap();
    let mut bytes = [0; 8];
    done.keep.read_at(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"at once!");
}

#[test]
fn seat_whose_peer_hangs_up_is_closed_with_the_reason() {
    let mut rig = Rig::stepped();
    let before = rig.queue_pairs();
    let (port, options) = (rig.context.local_port(1, None).unwrap(), ConnectOptions::default());
    let seat: Seat<Rc, Keep> =
        rig.hub.reserve(rig.hub.create_qp::<Rc>(&rig.pd).build().unwrap()).unwrap();
    let (here, there) = UnixStream::pair().unwrap();
    drop(there);
    let error = seat.connect_over(&here, &port, &options).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe), "{error}");
    rig.settle();
    assert_eq!(rig.queue_pairs(), before);
}
