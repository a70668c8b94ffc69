//! Handles: each names one posted request, or none.

use crate::bed::{Bed, Spec};
use crate::by_hand::{least, sges};
use crate::keys;
use mlx5_wqe::{Batch, Cancelled, Rc, RequestHandle, SendFlags};

const SIGNALED: SendFlags = SendFlags::SIGNALED;

/// Sixteen blocks, the largest request four.
fn bed() -> Bed<Rc> {
    Bed::new(Spec { requests: 4, sges: 14, ..Spec::default() })
}

/// Cancels by handle on a queue that is drained at `block`.
fn cancel(bed: &mut Bed<Rc>, block: u16, handle: RequestHandle) -> Cancelled {
    let point = bed.queue.drain_point(block).unwrap();
    // SAFETY: no device reads the ring.
    unsafe { bed.queue.cancel_handle(point, handle) }
}

/// Asserts that the handle names nothing.
#[track_caller]
fn assert_names_nothing(bed: &mut Bed<Rc>, block: u16, handle: RequestHandle) {
    let ring = bed.ring.all();
    assert_eq!(cancel(bed, block, handle).count(), 0);
    assert!(bed.ring.all() == ring, "and nothing is rewritten");
}

/// A way in which a request that has a handle is not posted.
type Failure = fn(Batch<'_, Rc>);

const FAILURES: &[(&str, Failure)] = &[
    ("aborted", |mut batch| {
        batch.wr(1, SIGNALED).send().sge_list(&[]);
        batch.abort();
    }),
    ("dropped", |mut batch| batch.wr(1, SIGNALED).send().sge_list(&[])),
    ("refused itself", |mut batch| {
        batch.wr(1, SIGNALED).send().sge_list(&sges(20));
        batch.complete().unwrap_err();
    }),
    ("refused for one behind it", |mut batch| {
        batch.wr(1, SIGNALED).send().sge_list(&[]);
        batch.wr(2, SIGNALED).send().sge_list(&sges(20));
        batch.complete().unwrap_err();
    }),
    ("refused for room", |mut batch| {
        for _ in 0..17 {
            batch.wr(1, SIGNALED).send().sge_list(&[]);
        }
        batch.complete().unwrap_err();
    }),
    ("never added", |batch| batch.complete().unwrap()),
    ("forgotten", |mut batch| {
        batch.wr(1, SIGNALED).send().sge_list(&[]);
        std::mem::forget(batch);
    }),
];

#[test]
fn a_handle_of_what_is_not_posted_names_nothing() {
    for &(what, fail) in FAILURES {
        for start in 0..16 {
            let mut bed = bed();
            bed.advance_to(start);
            let first = bed.queue.producer();
            let mut stale = Vec::new();
            for _ in 0..3 {
                let mut batch = bed.queue.wr_start();
                stale.push(batch.handle());
                fail(batch);
            }
            for handle in &stale {
                assert_names_nothing(&mut bed, first, *handle);
            }
            // In its place: a request with a handle of its own,
            let mut batch = bed.queue.wr_start();
            let own = batch.handle();
            batch.wr(2, SIGNALED).send().sge(sges(1)[0]);
            batch.complete().unwrap();
            for handle in &stale {
                assert_names_nothing(&mut bed, first, *handle);
            }
            assert_eq!(cancel(&mut bed, first, own).requests()[0].wr_id, 2);
            // in the next place one without a handle, of each way of posting,
            bed.records.retire(first).unwrap();
            let mut next = first.wrapping_add(1);
            for list in [false, true] {
                let mut batch = bed.queue.wr_start();
                let later = batch.handle();
                fail(batch);
                if list {
                    bed.queue.post_send(&[least(3, SIGNALED)]).unwrap();
                } else {
                    let mut batch = bed.queue.wr_start();
                    batch.wr(3, SIGNALED).send().sge(sges(1)[0]);
                    batch.complete().unwrap();
                }
                assert_names_nothing(&mut bed, next, later);
                bed.records.retire(next).unwrap();
                next = next.wrapping_add(1);
            }
            // and after all of them a good one again.
            let mut batch = bed.queue.wr_start();
            let good = batch.handle();
            batch.wr(5, SIGNALED).send().sge_list(&[]);
            batch.complete().unwrap();
            for handle in &stale {
                assert_names_nothing(&mut bed, next, *handle);
            }
            let cancelled = cancel(&mut bed, next, good);
            assert_eq!(cancelled.requests()[0].wr_id, 5, "{what}, at {start}");
        }
    }
}

/// The handle's place may hold the record of a request that was posted a lap ago.
#[test]
fn a_handle_behind_the_last_request_names_nothing() {
    let mut bed = bed();
    for _ in 0..16 {
        bed.advance();
    }
    let mut batch = bed.queue.wr_start();
    let first = batch.handle();
    batch.wr(1, SIGNALED).send().sge_list(&[]);
    let behind = batch.handle();
    batch.complete().unwrap();
    assert_names_nothing(&mut bed, 16, behind);
    assert_eq!(cancel(&mut bed, 16, first).count(), 1);
    let mut batch = bed.queue.wr_start();
    batch.wr(2, SIGNALED).send().sge_list(&[]);
    batch.complete().unwrap();
    assert_names_nothing(&mut bed, 16, behind);
    assert_names_nothing(&mut bed, 16, first);
}

#[test]
fn a_handle_belongs_to_one_life_of_one_queue() {
    let name = |bed: &mut Bed<Rc>| {
        let mut batch = bed.queue.wr_start();
        let handle = batch.handle();
        batch.wr(1, SIGNALED).send().sge_list(&[]);
        batch.complete().unwrap();
        handle
    };
    let (mut one, mut other) = (bed(), bed());
    let (of_one, of_other) = (name(&mut one), name(&mut other));
    assert_ne!(of_one, of_other);
    assert_names_nothing(&mut one, 0, of_other);
    assert_names_nothing(&mut other, 0, of_one);
    one.queue.reset();
    assert_names_nothing(&mut one, 0, of_one);
    let again = name(&mut one);
    assert_names_nothing(&mut one, 0, of_one);
    assert_names_nothing(&mut one, 0, of_other);
    assert_eq!(cancel(&mut one, 0, again).count(), 1);
}

#[test]
fn a_handle_is_good_until_its_request_was_executed() {
    let mut bed = bed();
    let mut executed = None;
    // Past the wrap of the device's 16-bit counter.
    for turn in 0..70_000 {
        let first = bed.queue.producer();
        let mut batch = bed.queue.wr_start();
        let [one, same] = [batch.handle(), batch.handle()];
        assert_eq!(one, same);
        batch.wr(turn, SIGNALED).send().sge_list(&[]);
        let two = batch.handle();
        batch.wr(turn, SIGNALED).send().sge(sges(1)[0]);
        batch.complete().unwrap();
        if turn % 97 == 0 || turn > 69_990 {
            let second = first.wrapping_add(1);
            assert_names_nothing(&mut bed, second, one);
            let cancelled = cancel(&mut bed, second, two);
            assert_eq!(cancelled.requests()[0].info.first(), second);
            assert_names_nothing(&mut bed, second, two);
            assert_eq!(cancel(&mut bed, first, one).requests()[0].info.first(), first);
            if let Some(executed) = executed.replace(one) {
                assert_names_nothing(&mut bed, first, executed);
            }
        }
        bed.records.retire(first.wrapping_add(1)).unwrap();
    }
}

/// A handle names any request, however it is built and whatever its number of WQEs.
#[test]
fn any_request_can_have_a_handle() {
    let (mut bed, key) = (keys::bed(), keys::Key::default());
    let mut batch = bed.queue.wr_start();
    let mut handles = Vec::new();
    for wr_id in 0..4 {
        handles.push(batch.handle());
        let wr = batch.wr(wr_id, SIGNALED);
        match wr_id {
            0 => wr.mkey_configure(&key),
            1 => wr.local_inv(0x1234_5600),
            2 => wr.send().inline_data(&[]),
            _ => wr.send().sge_list(&sges(2)),
        }
    }
    assert_eq!(batch.len(), 4);
    batch.complete().unwrap();
    for (wr_id, handle) in (0..).zip(&handles) {
        let cancelled = cancel(&mut bed, 0, *handle);
        let told: Vec<_> = cancelled.requests().iter().map(|request| request.wr_id).collect();
        assert_eq!(told, [wr_id]);
        assert_names_nothing(&mut bed, 0, *handle);
    }
    let all = (0..keys::BLOCKS).filter(|at| [0, 3, 4].contains(at));
    assert!(all.into_iter().all(|at| bed.at_block(at.into(), 4)[3] == 0), "every WQE of it");
}
