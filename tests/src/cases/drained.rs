//! Drained send queues: the drained position, and how long its proof is valid.

use super::altered_kernel::{AlteredKernel, Overrides};
use super::cancel::rig::{BEHIND, Rig, ids};
use crate::prelude::*;
use mlx5::{AnyQueuePair, CancelError, CancelMode, Data, ErrorKind, devices_on};
use mlx5_prm::cmd::qp::{QpState, QueryQpOut};
use mlx5_prm::fields::IntoBytes;
use mlx5_uapi::ioctl::{attr, method};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

pub(crate) const CASES: &[Case] = cases![
    a_queue_that_is_not_drained_says_in_which_state_it_is: SIMULATOR,
    drained_queue_reports_its_position_and_the_pending_requests: STEP,
    a_queue_drained_with_nothing_pending_has_nothing_to_cancel: STEP,
    a_proof_is_outdated_once_the_queue_goes_on: STEP,
    a_proof_is_outdated_after_a_reset: STEP,
    a_proof_of_another_queue_pair_is_no_proof: STEP,
    pending_requests_are_flushed_when_a_drained_queue_pair_fails: STEP,
    a_queue_that_is_still_draining_is_not_drained: STEP,
    going_on_from_another_state_says_in_which_it_is: SIMULATOR,
    going_on_says_what_to_do_in_states_that_the_device_brings_about: SIMULATOR,
    queue_that_drained_by_itself_is_resumed_and_not_set_to_rts: STEP,
    a_place_inside_a_request_is_refused: STEP,
    a_place_beyond_what_was_posted_is_refused: STEP,
    halves_cancel_together: STEP,
    a_queue_pair_of_any_transport_is_cancelled_like_all: STEP,
];

fn a_queue_that_is_not_drained_says_in_which_state_it_is(bed: &Bed) -> Outcome {
    let mut end = bed.end::<Rc>(&PairOptions::default())?;
    let state = |end: &End<Rc>| match end.qp.drained() {
        Err(CancelError::NotDrained { state }) => state,
        other => panic!("{other:?}"),
    };
    assert_eq!(state(&end), QpState::RST);
    let own = end.endpoint(&PairOptions::default());
    Rc::wire(&mut end, &own, &PairOptions::default())?;
    assert_eq!(state(&end), QpState::RTS);
    let error = end.qp.drained().expect_err("not drained").to_string();
    assert!(error.contains("not drained") && error.contains("SqDrained"), "{error}");
    end.qp.modify(&QpAttributes::new().qp_state(QueueState::Error))?;
    assert_eq!(state(&end), QpState::ERR);
    Ok(())
}

fn drained_queue_reports_its_position_and_the_pending_requests(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    rig.send_all(10..15)?;
    let drained = rig.drain(3)?;
    assert_eq!(drained.block(), 3);
    assert_eq!(rig.pending(&drained)?, [13, 14]);
    assert_eq!(rig.executed(), [10, 11, 12]);
    // The drained position does not depend on the polls.
    assert_eq!(rig.completed(), [(10, false), (11, false), (12, false)]);
    assert_eq!(rig.pending(&rig.pair.a.qp.drained()?)?, [13, 14]);
    rig.resume()?;
    assert_eq!(rig.executed(), [13, 14]);
    assert_eq!(rig.completed(), [(13, false), (14, false)]);
    Ok(())
}

fn a_queue_drained_with_nothing_pending_has_nothing_to_cancel(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    for round in 0..3 {
        let drained = rig.drain(0)?;
        assert_eq!(drained.block(), round);
        assert!(rig.pending(&drained)?.is_empty());
        assert_eq!(rig.pair.a.qp.cancel(&drained, 1)?.count(), 0);
        assert_eq!(rig.pair.a.qp.cancel_where(&drained, |_| true)?.count(), 0);
        rig.resume()?;
        rig.send_all([round.into()])?;
        assert_eq!(rig.executed(), [u64::from(round)]);
        assert_eq!(rig.completed(), [(round.into(), false)]);
    }
    Ok(())
}

#[track_caller]
fn outdated<T: std::fmt::Debug>(result: Result<T, CancelError>) {
    match result {
        Err(CancelError::Outdated) => {}
        other => panic!("{other:?}"),
    }
}

fn a_proof_is_outdated_once_the_queue_goes_on(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    rig.send_all(0..3)?;
    let old = rig.drain(1)?;
    rig.resume()?;
    outdated(rig.pair.a.qp.cancel(&old, 1));
    outdated(rig.pair.a.qp.cancel_set(&old, &[1], CancelMode::AllOrNothing));
    outdated(rig.pair.a.qp.cancel_where(&old, |_| panic!("nothing is looked at")));
    outdated(rig.pair.a.qp.pending(&old).map(Iterator::count));
    // The queue drains again, at the same block: the old proof stays invalid.
    rig.send_all([3])?;
    let new = rig.drain(0)?;
    outdated(rig.pair.a.qp.cancel(&old, 3));
    assert_eq!(ids(&rig.pair.a.qp.cancel(&new, 3)?), [3]);
    rig.resume()?;
    assert_eq!(rig.executed(), [0, 1, 2]);
    Ok(())
}

fn a_proof_is_outdated_after_a_reset(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    rig.send_all(0..3)?;
    let old = rig.drain(0)?;
    rig.pair.a.qp.modify(&QpAttributes::new().qp_state(QueueState::Reset))?;
    outdated(rig.pair.a.qp.cancel(&old, 1));
    rig.pair.b.qp.modify(&QpAttributes::new().qp_state(QueueState::Reset))?;
    crate::pair::connect_ends(&mut rig.pair.a, &mut rig.pair.b, &PairOptions::default())?;
    rig.refill();
    rig.send_all(10..12)?;
    outdated(rig.pair.a.qp.cancel(&old, 10));
    assert_eq!(rig.pair.a.qp.free_send_blocks() + 2, rig.pair.a.qp.caps().send_blocks);
    assert_eq!(rig.completed(), [(10, false), (11, false)]);
    Ok(())
}

fn a_proof_of_another_queue_pair_is_no_proof(bed: &Bed) -> Outcome {
    let mut rig = Rig::with(bed, PairOptions::default().one_context(true))?;
    rig.send_all(0..3)?;
    let proof = rig.drain(0)?;
    outdated(rig.pair.b.qp.cancel(&proof, 1));
    assert_eq!(rig.pair.a.qp.cancel(&proof, 1)?.count(), 1);
    rig.resume()?;
    assert_eq!(rig.executed(), [0, 2]);
    Ok(())
}

fn pending_requests_are_flushed_when_a_drained_queue_pair_fails(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    rig.send_all(0..4)?;
    let drained = rig.drain(1)?;
    rig.pair.a.qp.cancel(&drained, 2)?;
    rig.pair.a.qp.modify(&QpAttributes::new().qp_state(QueueState::Error))?;
    outdated(rig.pair.a.qp.cancel(&drained, 3));
    bed.settle();
    let found = bed.poll(&mut rig.pair.a.send_cq, 4);
    let reported: Vec<_> = found
        .iter()
        .map(|one| one.as_completion())
        .map(|one| (one.wr_id(), one.is_success(), one.cancelled()))
        .collect();
    assert_eq!(reported, [(0, true, false), (1, false, false), (2, false, true), (3, false, false)]);
    assert_eq!(rig.executed(), [0]);
    Ok(())
}

/// A context whose device's answers about queue pairs are changed by `lie`.
fn lying(
    bed: &Bed,
    lie: impl Fn(&mut QueryQpOut) + Send + Sync + 'static,
) -> Result<Context, Failed> {
    let overrides = Overrides {
        answers: Some(Box::new(move |called, attributes| {
            if called != method::DEVX_OBJ_QUERY {
                return;
            }
            let id = attr::devx_obj_query::CMD_OUT.0;
            let out = attributes.iter().find(|a| a.attr_id == id).expect("an answer");
            let at: *mut u8 = std::ptr::with_exposed_provenance_mut(out.data as usize);
            let mut answer = QueryQpOut::default();
            let bytes = answer.as_mut_bytes();
            assert_eq!(bytes.len(), usize::from(out.len));
            // SAFETY: the kernel wrote this output of the call, `bytes.len() == out.len` bytes at
            // `at`.
            unsafe { std::ptr::copy_nonoverlapping(at, bytes.as_mut_ptr(), bytes.len()) };
            lie(&mut answer);
            let bytes = answer.as_mut_bytes();
            // SAFETY: the caller's output buffer has `out.len` bytes at `at`, and `bytes` is as
            // long.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len()) };
        })),
        ..Overrides::default()
    };
    let (kernel, _) = AlteredKernel::before(bed.simulator().kernel(), overrides);
    Ok(devices_on(kernel)?[0].open()?)
}

/// A connection of an end in that context with one on an honest device.
fn rig_in<'a>(bed: &'a Bed, context: &Context) -> Result<Rig<'a>, Failed> {
    let options = PairOptions::default().inline(300).memory(BEHIND);
    let mut a = bed.end_in::<Rc>(context, &options)?;
    let mut b = bed.end::<Rc>(&options)?;
    crate::pair::connect_ends(&mut a, &mut b, &options)?;
    let mut rig = Rig { bed, pair: Pair { a, b }, receives: 0 };
    rig.refill();
    Ok(rig)
}

fn a_queue_that_is_still_draining_is_not_drained(bed: &Bed) -> Outcome {
    let draining = Arc::new(AtomicBool::new(false));
    let lie = Arc::clone(&draining);
    let context = lying(bed, move |answer| {
        if lie.load(Ordering::SeqCst) {
            answer.qpc_mut().set_state(QpState::SQ_DRAINING.0);
        }
    })?;
    let rig = rig_in(bed, &context)?;
    rig.drain(0)?;
    draining.store(true, Ordering::SeqCst);
    match rig.pair.a.qp.drained() {
        Err(CancelError::NotDrained { state: QpState::SQ_DRAINING }) => {}
        other => panic!("{other:?}"),
    }
    draining.store(false, Ordering::SeqCst);
    rig.pair.a.qp.drained()?;
    Ok(())
}

/// The error names this state and the way out.
#[track_caller]
fn in_wrong_state(result: Result<(), mlx5::Error>, state: &str, advice: &str) {
    let error = result.expect_err("it is in another state");
    assert_eq!(error.kind(), ErrorKind::WrongState, "{error}");
    assert_eq!(error.operation(), "modify_qp");
    assert!(error.errno().is_some(), "it was the kernel that refused");
    let text = error.to_string();
    assert!(text.contains(state) && text.contains(advice), "{text}");
}

fn going_on_from_another_state_says_in_which_it_is(bed: &Bed) -> Outcome {
    let options = PairOptions::default();
    let mut end = bed.end::<Rc>(&options)?;
    in_wrong_state(end.qp.resume(), "RST", "states in between");
    assert_eq!(end.qp.state(), QueueState::Reset);
    end.qp.init(&end.port.clone(), &mlx5::ConnectOptions::default())?;
    in_wrong_state(end.qp.resume(), "INIT", "states in between");
    let own = end.endpoint(&options);
    Rc::wire(&mut end, &own, &options)?;
    in_wrong_state(end.qp.resume(), "RTS", "there is nothing to resume");
    assert_eq!(end.qp.state(), QueueState::ReadyToSend);
    // Afterwards the queue pair works as before.
    end.recv(1, 0..64);
    end.post(Form::Typed, Post::new(Op::Send, 2, Data::Inline(&[b"x"])))?;
    bed.poll_good(&mut end.send_cq, 1);
    end.qp.modify(&QpAttributes::new().qp_state(QueueState::Error))?;
    in_wrong_state(end.qp.resume(), "ERR", "states in between");
    assert_eq!(end.qp.state(), QueueState::Error);
    Ok(())
}

/// States that a queue pair can enter by itself.
fn going_on_says_what_to_do_in_states_that_the_device_brings_about(bed: &Bed) -> Outcome {
    let state = Arc::new(AtomicU32::new(0));
    let lie = Arc::clone(&state);
    let context = lying(bed, move |answer| {
        answer.qpc_mut().set_state(lie.load(Ordering::SeqCst));
    })?;
    let mut end = bed.end_in::<Rc>(&context, &PairOptions::default())?;
    let states =
        [(QpState::SQ_DRAINING, "SqDrained"), (QpState::SQER, "`cur_qp_state(SendQueueError)`")];
    for (found, advice) in states {
        state.store(found.0, Ordering::SeqCst);
        in_wrong_state(end.qp.resume(), &format!("{found:?}"), advice);
    }
    // If the queue pair is in the state that `resume` starts from, the error has another cause.
    state.store(QpState::SQD.0, Ordering::SeqCst);
    let error = end.qp.resume().expect_err("the kernel has it in reset");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    Ok(())
}

fn queue_that_drained_by_itself_is_resumed_and_not_set_to_rts(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    rig.send_all(0..2)?;
    rig.drain(1)?;
    let rts = QpAttributes::new().qp_state(QueueState::ReadyToSend);
    in_wrong_state(rig.pair.a.qp.modify(&rts), "SQD", "`resume`");
    assert_eq!(rig.pair.a.qp.state(), QueueState::ReadyToSend);
    assert_eq!(rig.executed(), [0]);
    rig.resume()?;
    assert_eq!(rig.executed(), [1]);
    rig.pair.a.qp.modify(&rts)?;
    Ok(())
}

/// A drained queue with requests of 1, 3 and 1 blocks pending, whose device lies.
fn stands_wrong(bed: &Bed, lies: &[u32]) -> Outcome {
    let by = Arc::new(AtomicU32::new(0));
    let lie = Arc::clone(&by);
    let context = lying(bed, move |answer| {
        let counter = answer.qpc().hw_sq_wqebb_counter();
        let lie = counter.wrapping_add(lie.load(Ordering::SeqCst)) & 0xffff;
        answer.qpc_mut().set_hw_sq_wqebb_counter(lie);
    })?;
    let mut rig = rig_in(bed, &context)?;
    let honest = rig.drain(0)?;
    for (wr_id, blocks) in [(0, 1), (1, 3), (2, 1)] {
        rig.send(wr_id, SendFlags::SIGNALED, blocks)?;
    }
    for lie in lies {
        by.store(*lie, Ordering::SeqCst);
        let wrong = rig.pair.a.qp.drained()?;
        assert_eq!(u32::from(wrong.block()), *lie & 0xffff);
        match rig.pair.a.qp.cancel_where(&wrong, |_| panic!("nothing is looked at")) {
            Err(CancelError::NotAtRequest { block }) => assert_eq!(block, wrong.block()),
            other => panic!("{lie}: {other:?}"),
        }
    }
    assert_eq!(ids(&rig.pair.a.qp.cancel(&honest, 1)?), [1]);
    rig.resume()?;
    assert_eq!(rig.executed(), [0, 2]);
    Ok(())
}

fn a_place_inside_a_request_is_refused(bed: &Bed) -> Outcome {
    stands_wrong(bed, &[2, 3])
}

fn a_place_beyond_what_was_posted_is_refused(bed: &Bed) -> Outcome {
    stands_wrong(bed, &[6, 100, 0x7fff, 0xffff])
}

fn halves_cancel_together(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    rig.send_all(0..4)?;
    rig.drain(1)?;
    let spare = bed.end::<Rc>(&PairOptions::default())?;
    let qp = std::mem::replace(&mut rig.pair.a.qp, spare.qp);
    let (mut send, receive, mut control) = qp.split();
    let drained = control.drained()?;
    let pending: Vec<u64> = send.pending(&drained)?.map(|request| request.wr_id).collect();
    assert_eq!(pending, [1, 2, 3]);
    assert_eq!(ids(&send.cancel(&drained, 2)?), [2]);
    control.resume()?;
    outdated(send.cancel(&drained, 3));
    bed.settle();
    assert_eq!(rig.executed(), [0, 1, 3]);
    assert_eq!(rig.completed(), [(0, false), (1, false), (2, true), (3, false)]);
    rig.pair.a.qp = QueuePair::join(send, receive, control);
    rig.send_all([9])?;
    assert_eq!(rig.executed(), [9]);
    drop((spare.send_cq, spare.recv_cq));
    Ok(())
}

fn a_queue_pair_of_any_transport_is_cancelled_like_all(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    rig.send_all(0..2)?;
    let mut batch = rig.pair.a.qp.wr_start();
    let handle = batch.handle();
    for wr_id in [2, 3, 4, 5, 6] {
        batch.wr(wr_id, SendFlags::SIGNALED).send().inline_data(&u64::to_ne_bytes(wr_id));
    }
    batch.complete()?;
    rig.drain(1)?;
    let spare = bed.end::<Rc>(&PairOptions::default())?;
    let mut qp = AnyQueuePair::from(std::mem::replace(&mut rig.pair.a.qp, spare.qp));
    let drained = qp.drained()?;
    let all: Vec<u64> = qp.pending(&drained)?.iter().map(|request| request.wr_id).collect();
    assert_eq!(all, [1, 2, 3, 4, 5, 6]);
    assert_eq!(ids(&qp.cancel_request(&drained, handle)?), [2]);
    assert_eq!(ids(&qp.cancel_set(&drained, &[3, 77], CancelMode::BestEffort)?), [3]);
    // The send half does the same.
    let (mut send, receive, control) = qp.split();
    let pending = send.pending(&drained)?;
    let cancelled: Vec<u64> =
        pending.iter().filter(|one| one.info.cancelled()).map(|one| one.wr_id).collect();
    assert_eq!((pending.len(), cancelled), (6, vec![2, 3]));
    assert_eq!(ids(&send.cancel_where(&drained, |request| request.wr_id == 4)?), [4]);
    assert_eq!(send.cancel_request(&drained, handle)?.count(), 0);
    assert_eq!(send.cancel_set(&drained, &[4], CancelMode::BestEffort)?.count(), 0);
    assert_eq!(ids(&send.cancel(&drained, 5)?), [5]);
    let mut qp = AnyQueuePair::join(send, receive, control);
    assert_eq!(qp.cancel_where(&drained, |_| false)?.count(), 0);
    assert_eq!(qp.cancel(&drained, 5)?.count(), 0);
    qp.resume()?;
    outdated(qp.cancel(&drained, 6));
    bed.settle();
    let AnyQueuePair::Rc(qp) = qp else { return Err("it is one of a connection".into()) };
    rig.pair.a.qp = qp;
    assert_eq!(rig.executed(), [0, 1, 6]);
    let cancelled = [false, false, true, true, true, true, false];
    let expected: Vec<_> = (0..).zip(cancelled).collect();
    assert_eq!(rig.completed(), expected);
    drop((spare.send_cq, spare.recv_cq));
    Ok(())
}
