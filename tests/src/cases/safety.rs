//! Misuse in safe code, and its consequences: leaked batches, proofs of other queue pairs, missing
//! halves, closures that panic.

use super::cancel::rig::{Rig, ids};
use crate::pair::connect_ends;
use crate::panics::panic_of;
use crate::prelude::*;
use mlx5::{BatchError, CancelError, Corruption, Data, ErrorKind, PollError};

pub(crate) const CASES: &[Case] = cases![
    a_proof_is_outdated_by_modify_as_by_resume: STEP,
    a_proof_of_another_devices_queue_pair_is_no_proof: STEP,
    a_predicate_that_panics_cancels_nothing: STEP,
    a_predicate_may_let_the_queue_go_on: STEP,
    a_batch_of_many_minds_the_state_when_it_is_completed: STEP,
    a_leaked_batch_leaves_the_next_list_alone,
    halves_join_only_with_the_receive_half,
    a_shared_queue_of_another_context_is_refused,
    a_completion_on_a_queue_that_its_queue_pair_has_not_is_corruption: SIMULATOR,
    a_destroyed_queue_pair_gives_shared_requests_back,
];

fn a_proof_is_outdated_by_modify_as_by_resume(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    let old = rig.drain(0)?;
    rig.send_all(0..2)?;
    // The device drained the queue by itself, which does not change the state that the driver
    // knows.
    assert_eq!(rig.pair.a.qp.state(), QueueState::ReadyToSend);
    let go_on = QpAttributes::new()
        .qp_state(QueueState::ReadyToSend)
        .cur_qp_state(QueueState::SendQueueDrained);
    rig.pair.a.qp.modify(&go_on)?;
    assert!(matches!(rig.pair.a.qp.cancel(&old, 1), Err(CancelError::Outdated)));
    assert_eq!(rig.executed(), [0, 1]);
    assert_eq!(rig.completed(), [(0, false), (1, false)]);
    Ok(())
}

fn a_proof_of_another_devices_queue_pair_is_no_proof(bed: &Bed) -> Outcome {
    let (first, second) = (bed.configured(|config| config)?, bed.configured(|config| config)?);
    let (mut one, mut other) = (Rig::new(&first)?, Rig::new(&second)?);
    assert_eq!(one.pair.a.qp.qp_num(), other.pair.a.qp.qp_num());
    let proof = one.drain(0)?;
    other.send_all([7])?;
    assert!(matches!(other.pair.a.qp.cancel(&proof, 7), Err(CancelError::Outdated)));
    assert_eq!(other.executed(), [7]);
    one.resume()
}

fn a_predicate_that_panics_cancels_nothing(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    let drained = rig.drain(0)?;
    rig.send_all(0..3)?;
    panic_of(|| {
        rig.pair.a.qp.cancel_where(&drained, |one| {
            assert!(one.wr_id != 2, "asked about the last");
            true
        })
    });
    assert_eq!(rig.pending(&drained)?, [0, 1, 2]);
    rig.resume()?;
    assert_eq!(rig.executed(), [0, 1, 2]);
    assert_eq!(rig.completed(), [(0, false), (1, false), (2, false)]);
    Ok(())
}

fn a_predicate_may_let_the_queue_go_on(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    let drained = rig.drain(0)?;
    rig.send_all(0..2)?;
    let End { qp, send_cq, recv_cq, mr, peer, port, psn, pd, context } = rig.pair.a;
    let (mut send, receive, mut control) = qp.split();
    let cancelled = send.cancel_where(&drained, |one| {
        if one.wr_id == 0 {
            control.resume().expect("it goes on");
        }
        true
    });
    assert!(matches!(cancelled, Err(CancelError::Outdated)));
    let qp = QueuePair::join(send, receive, control);
    rig.pair.a = End { qp, send_cq, recv_cq, mr, peer, port, psn, pd, context };
    assert_eq!(rig.executed(), [0, 1]);
    assert_eq!(rig.completed(), [(0, false), (1, false)]);
    let drained = rig.drain(0)?;
    rig.send_all(2..4)?;
    assert_eq!(ids(&rig.pair.a.qp.cancel_where(&drained, |one| one.wr_id == 3)?), [3]);
    rig.resume()
}

fn a_batch_of_many_minds_the_state_when_it_is_completed(bed: &Bed) -> Outcome {
    for requests in [1, 2, 16] {
        let mut pair = bed.pair::<Rc>(&PairOptions::default())?;
        // After these batches the poster knows how much room there is.
        for _ in 0..2 {
            let mut batch = pair.a.qp.wr_start();
            batch.wr(0, SendFlags::SIGNALED).send().inline_data(b"x");
            batch.complete()?;
        }
        let (mut send, _receive, mut control) = pair.a.qp.split();
        let mut batch = send.wr_start();
        for wr_id in 0..requests {
            batch.wr(wr_id, SendFlags::SIGNALED).send().inline_data(b"x");
        }
        control.modify(&QpAttributes::new().qp_state(QueueState::Reset))?;
        let refused = BatchError::new(0, PostError::State(QueueState::Reset));
        assert_eq!(batch.complete(), Err(refused), "{requests} requests");
    }
    Ok(())
}

fn a_leaked_batch_leaves_the_next_list_alone(bed: &Bed) -> Outcome {
    let mut pair = bed.pair::<Rc>(&PairOptions::default())?;
    pair.b.recv(1, 0..64);
    let mut batch = pair.a.qp.wr_start();
    batch.wr(1, SendFlags::SIGNALED).send().inline_data(&[0; 5000]);
    std::mem::forget(batch);
    pair.a.post(Form::List, Post::new(Op::Send, 2, Data::Inline(&[b"x"])))?;
    assert_eq!(wr_ids(&bed.poll_good(&mut pair.a.send_cq, 1)), [2]);
    bed.nothing(&mut pair.a.send_cq);
    Ok(())
}

fn halves_join_only_with_the_receive_half(bed: &Bed) -> Outcome {
    let end = bed.end::<Rc>(&PairOptions::default())?;
    let (send, receive, control) = end.qp.split();
    // A reset could not empty the missing half.
    panic_of(|| QueuePair::join(send, None, control));
    drop(receive);
    Ok(())
}

fn a_shared_queue_of_another_context_is_refused(bed: &Bed) -> Outcome {
    let (context, other) = (bed.context(), bed.context());
    let srq = other.alloc_pd()?.create_srq(4).build()?;
    let pd = context.alloc_pd()?;
    // Without the check, the kernel would take the queue of this context with the same handle.
    let _same_handle = pd.create_srq(4).build()?;
    let cq = context.create_cq(4).build()?;
    let error = pd.create_qp::<Rc>(&cq, &cq).srq(&srq).build().err().ok_or("refused")?;
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("different contexts"), "{error}");
    Ok(())
}

/// The poller of that queue does not know the queue pair, so nothing would keep the queue pair's
/// memory for it.
fn a_completion_on_a_queue_that_its_queue_pair_has_not_is_corruption(bed: &Bed) -> Outcome {
    const USER_INDEX: u8 = 33;
    let context = bed.context();
    let options = PairOptions::default();
    let (mut a, mut b) =
        (bed.end_in::<Rc>(&context, &options)?, bed.end_in::<Rc>(&context, &options)?);
    connect_ends(&mut a, &mut b, &options)?;
    // Of the two user indexes, the first is that of `a`.
    let patch = [0, 1, 2].map(|byte| (USER_INDEX + byte, 0)).to_vec();
    let fault = Fault::CorruptCqe { cqn: Some(b.send_cq.cqn()), patch };
    bed.simulator().inject(0, fault);
    let to = a.mr.remote(..)?;
    b.post(Form::Typed, Post::new(Op::Write, 1, Data::Inline(&[b"x"])).remote(to))?;
    let found = bed.poll_err(&mut b.send_cq);
    assert_eq!(found, PollError::Corrupt(Corruption::UserIndex(0)));
    Ok(())
}

fn a_destroyed_queue_pair_gives_shared_requests_back(bed: &Bed) -> Outcome {
    let options = PairOptions::default();
    let context = bed.context();
    let pd = context.alloc_pd()?;
    let mut srq = pd.create_srq(3).build()?;
    for round in 0..3 {
        let (mut from, mut to) = (bed.end::<Rc>(&options)?, bed.end_in::<Rc>(&context, &options)?);
        let receives = to.recv_cq.as_ref().ok_or("two queues")?;
        to.qp = pd.create_qp::<Rc>(&to.send_cq, receives).srq(&srq).build()?;
        connect_ends(&mut from, &mut to, &options)?;
        let memory = pd.allocate(64)?;
        for wr_id in 0..srq.capacity().into() {
            let sges = [memory.sge(..)?];
            srq.post_recv(&[ReceiveWr { wr_id, sges: &sges }])
                .map_err(|full| format!("round {round}, request {wr_id}: {full}"))?;
            from.post(Form::Typed, Post::new(Op::Send, wr_id, Data::Inline(&[b"x"])))?;
            bed.poll_good(&mut from.send_cq, 1);
        }
        // The messages have no completions any more, but their requests are free.
        to.qp.destroy()?;
        bed.nothing(to.recv_cq.as_mut().ok_or("two queues")?);
    }
    srq.destroy()?;
    Ok(())
}
