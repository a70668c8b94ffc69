//! Cancelling requests that are posted and not executed.

pub(super) mod rig;

use crate::prelude::*;
use mlx5::{CancelError, CancelMode, Data, NotPending, Opcode};
use mlx5_sim::engine::DrainAt;
use rig::{BEHIND, Rig, ids};

pub(crate) const CASES: &[Case] = cases![
    a_cancelled_request_is_passed_over_and_its_completion_marked: STEP,
    a_cancelled_request_without_signal_makes_no_completion: STEP,
    every_request_of_that_identifier_is_cancelled: STEP,
    executed_requests_are_not_cancelled: STEP,
    best_effort_cancels_what_is_there: STEP,
    all_or_nothing_cancels_nothing_if_one_is_missing: STEP,
    all_or_nothing_counts_what_was_cancelled_before_as_there: STEP,
    a_predicate_sees_identifier_operation_and_size: STEP,
    cancelling_again_cancels_nothing: STEP,
    requests_posted_while_drained_can_be_cancelled_too: STEP,
    cancelled_posted_again_and_cancelled_again: STEP,
    requests_of_all_sizes_are_cancelled_around_the_end_of_the_ring: STEP,
    a_whole_queue_is_cancelled_in_one_pass: STEP,
    datagrams_are_cancelled_as_well: STEP,
];

fn a_cancelled_request_is_passed_over_and_its_completion_marked(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    rig.send_all(0..6)?;
    let drained = rig.drain(1)?;
    let cancelled = rig.pair.a.qp.cancel(&drained, 3)?;
    assert_eq!(ids(&cancelled), [3]);
    let what = cancelled.requests()[0].info;
    assert_eq!((what.opcode(), what.first(), what.blocks()), (Some(Opcode::Send), 3, 1));
    assert!(what.signaled());
    rig.resume()?;
    assert_eq!(rig.executed(), [0, 1, 2, 4, 5]);
    let marked = [(0, false), (1, false), (2, false), (3, true), (4, false), (5, false)];
    assert_eq!(rig.completed(), marked);
    Ok(())
}

fn a_cancelled_request_without_signal_makes_no_completion(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    for wr_id in 0..5 {
        let flags = if wr_id == 4 { SendFlags::SIGNALED } else { SendFlags::empty() };
        rig.send(wr_id, flags, 1)?;
    }
    let drained = rig.drain(1)?;
    let cancelled = rig.pair.a.qp.cancel_set(&drained, &[1, 3], CancelMode::BestEffort)?;
    assert!(cancelled.requests().iter().all(|request| !request.info.signaled()));
    rig.resume()?;
    assert_eq!(rig.executed(), [0, 2, 4]);
    assert_eq!(rig.completed(), [(4, false)]);
    assert_eq!(rig.pair.a.qp.free_send_blocks(), rig.pair.a.qp.caps().send_blocks);
    Ok(())
}

fn every_request_of_that_identifier_is_cancelled(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    rig.send_all([7, 1, 7, 2, 7, 3, 7])?;
    let drained = rig.drain(1)?;
    let cancelled = rig.pair.a.qp.cancel(&drained, 7)?;
    assert_eq!(ids(&cancelled), [7, 7, 7], "the first was executed");
    let places: Vec<u16> = cancelled.requests().iter().map(|r| r.info.first()).collect();
    assert_eq!(places, [2, 4, 6]);
    rig.resume()?;
    assert_eq!(rig.executed(), [7, 1, 2, 3]);
    Ok(())
}

fn executed_requests_are_not_cancelled(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    rig.send_all(0..4)?;
    let drained = rig.drain(2)?;
    assert_eq!(rig.pair.a.qp.cancel(&drained, 0)?.count(), 0);
    let cancelled = rig.pair.a.qp.cancel_set(&drained, &[1, 2], CancelMode::BestEffort)?;
    assert_eq!(ids(&cancelled), [2]);
    rig.resume()?;
    assert_eq!(rig.executed(), [0, 1, 3]);
    assert_eq!(rig.completed(), [(0, false), (1, false), (2, true), (3, false)]);
    Ok(())
}

fn best_effort_cancels_what_is_there(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    rig.send_all(0..6)?;
    let drained = rig.drain(0)?;
    let wanted = [99, 4, 2, 2, 77, u64::MAX];
    let cancelled = rig.pair.a.qp.cancel_set(&drained, &wanted, CancelMode::BestEffort)?;
    assert_eq!(ids(&cancelled), [2, 4]);
    assert_eq!(rig.pair.a.qp.cancel_set(&drained, &[], CancelMode::BestEffort)?.count(), 0);
    rig.resume()?;
    assert_eq!(rig.executed(), [0, 1, 3, 5]);
    Ok(())
}

fn all_or_nothing_cancels_nothing_if_one_is_missing(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    rig.send_all(0..6)?;
    let drained = rig.drain(1)?;
    let refused = rig.pair.a.qp.cancel_set(&drained, &[3, 99, 0, 4], CancelMode::AllOrNothing);
    let Err(CancelError::NotPending(NotPending { wr_ids, .. })) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(wr_ids, [0, 99], "one was executed, the other was never posted");
    assert_eq!(rig.pending(&drained)?, [1, 2, 3, 4, 5]);
    let cancelled = rig.pair.a.qp.cancel_set(&drained, &[4, 3], CancelMode::AllOrNothing)?;
    assert_eq!(ids(&cancelled), [3, 4]);
    rig.resume()?;
    assert_eq!(rig.executed(), [0, 1, 2, 5]);
    Ok(())
}

fn all_or_nothing_counts_what_was_cancelled_before_as_there(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    rig.send_all(0..4)?;
    let drained = rig.drain(0)?;
    assert_eq!(rig.pair.a.qp.cancel(&drained, 1)?.count(), 1);
    let more = rig.pair.a.qp.cancel_set(&drained, &[1, 2], CancelMode::AllOrNothing)?;
    assert_eq!(ids(&more), [2]);
    rig.resume()?;
    assert_eq!(rig.executed(), [0, 3]);
    Ok(())
}

fn a_predicate_sees_identifier_operation_and_size(bed: &Bed) -> Outcome {
    let mut rig = Rig::with(bed, PairOptions::default().inline(300))?;
    let to = rig.pair.b.mr.remote(BEHIND..)?;
    for wr_id in 0..8 {
        if wr_id % 2 == 0 {
            rig.send(wr_id, SendFlags::SIGNALED, 1 + wr_id as usize / 2)?;
        } else {
            let post = Post::new(Op::Write, wr_id, Data::Inline(&[b"x"])).remote(to);
            rig.pair.a.post(Form::Typed, post.flags(SendFlags::empty()))?;
        }
    }
    let drained = rig.drain(0)?;
    let mut seen = Vec::new();
    let writes = rig.pair.a.qp.cancel_where(&drained, |request| {
        seen.push((request.wr_id, request.info.blocks()));
        request.info.opcode() == Some(Opcode::RdmaWrite)
    })?;
    assert_eq!(seen, [(0, 1), (1, 1), (2, 2), (3, 1), (4, 3), (5, 1), (6, 4), (7, 1)]);
    assert_eq!(ids(&writes), [1, 3, 5, 7]);
    let large = rig.pair.a.qp.cancel_where(&drained, |request| request.info.blocks() > 2)?;
    assert_eq!(ids(&large), [4, 6]);
    rig.resume()?;
    assert_eq!(rig.executed(), [0, 2]);
    untouched(&rig.pair.b.mr, BEHIND..BEHIND + 64);
    assert_eq!(rig.completed(), [(0, false), (2, false), (4, true), (6, true)]);
    Ok(())
}

fn cancelling_again_cancels_nothing(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    rig.send_all(0..4)?;
    let drained = rig.drain(0)?;
    assert_eq!(rig.pair.a.qp.cancel_where(&drained, |_| true)?.count(), 4);
    assert_eq!(rig.pair.a.qp.cancel(&drained, 2)?.count(), 0);
    assert_eq!(rig.pair.a.qp.cancel_where(&drained, |_| true)?.count(), 0);
    assert_eq!(rig.pair.a.qp.cancel_set(&drained, &[0, 3], CancelMode::BestEffort)?.count(), 0);
    rig.resume()?;
    assert!(rig.executed().is_empty());
    assert_eq!(rig.completed(), [(0, true), (1, true), (2, true), (3, true)]);
    Ok(())
}

fn requests_posted_while_drained_can_be_cancelled_too(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    rig.send_all(0..2)?;
    let drained = rig.drain(1)?;
    rig.send_all(2..5)?;
    bed.settle();
    assert_eq!(rig.pending(&drained)?, [1, 2, 3, 4]);
    assert_eq!(ids(&rig.pair.a.qp.cancel(&drained, 3)?), [3]);
    assert_eq!(rig.executed(), [0], "the queue stands still");
    rig.resume()?;
    assert_eq!(rig.executed(), [1, 2, 4]);
    Ok(())
}

fn cancelled_posted_again_and_cancelled_again(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    rig.send_all([1, 2])?;
    let drained = rig.drain(0)?;
    for _ in 0..5 {
        assert_eq!(ids(&rig.pair.a.qp.cancel(&drained, 1)?), [1]);
        rig.send_all([1])?;
    }
    rig.resume()?;
    assert_eq!(rig.executed(), [2, 1], "the last one was not cancelled");
    let marks: Vec<bool> = rig.completed().into_iter().map(|(_, cancelled)| cancelled).collect();
    assert_eq!(marks, [true, false, true, true, true, true, false]);
    // A slot of the ring that held a cancelled request takes the next one like any other.
    let drained = rig.drain(0)?;
    rig.send_all([1, 1])?;
    assert_eq!(ids(&rig.pair.a.qp.cancel(&drained, 1)?), [1, 1]);
    rig.resume()?;
    assert!(rig.executed().is_empty());
    Ok(())
}

fn requests_of_all_sizes_are_cancelled_around_the_end_of_the_ring(bed: &Bed) -> Outcome {
    // Blocks and laps: a request begins at every block of the ring, and some wrap.
    let mut rig = Rig::with(bed, PairOptions::default().send_wr(5).inline(300))?;
    let mut next = 0;
    for round in 0..400_u64 {
        let mut posted = Vec::new();
        for size in [1, 3, 2, 5] {
            rig.send(next, SendFlags::SIGNALED, size)?;
            posted.push(next);
            next += 1;
        }
        let executed = round as usize % 5;
        let drained = rig.drain(executed as u32)?;
        assert_eq!(rig.pending(&drained)?, posted[executed..]);
        let odd = |id: &u64| (id + round).is_multiple_of(3);
        let wanted: Vec<u64> = posted.iter().copied().filter(odd).collect();
        let cancelled = rig.pair.a.qp.cancel_set(&drained, &wanted, CancelMode::BestEffort)?;
        let expected: Vec<u64> = posted[executed..].iter().copied().filter(odd).collect();
        assert_eq!(ids(&cancelled), expected, "round {round}");
        rig.resume()?;
        let left: Vec<u64> = posted.iter().copied().filter(|id| !expected.contains(id)).collect();
        assert_eq!(rig.executed(), left, "round {round}");
        let marks: Vec<_> = posted.iter().map(|id| (*id, expected.contains(id))).collect();
        assert_eq!(rig.completed(), marks, "round {round}");
    }
    assert!(u64::from(rig.pair.a.qp.caps().send_blocks) * 20 < next * 11 / 4, "many laps");
    Ok(())
}

fn a_whole_queue_is_cancelled_in_one_pass(bed: &Bed) -> Outcome {
    let mut rig = Rig::with(bed, PairOptions::default().send_wr(1000).inline(28))?;
    let drained = rig.drain(0)?;
    let count = u64::from(rig.pair.a.qp.caps().send_blocks);
    rig.send_all((0..count).map(|id| id * 7))?;
    assert!(matches!(rig.send(1, SendFlags::SIGNALED, 1), Err(PostError::QueueFull { .. })));
    let all_but: Vec<u64> = (0..count).map(|id| id * 7).filter(|id| id % 100 != 0).collect();
    let cancelled = rig.pair.a.qp.cancel_set(&drained, &all_but, CancelMode::AllOrNothing)?;
    assert_eq!(ids(&cancelled), all_but);
    rig.resume()?;
    let left: Vec<u64> = (0..count).map(|id| id * 7).filter(|id| id % 100 == 0).collect();
    assert_eq!(rig.executed(), left);
    Ok(())
}

fn datagrams_are_cancelled_as_well(bed: &Bed) -> Outcome {
    let mut pair = bed.pair::<Ud>(&PairOptions::default())?;
    for wr_id in 0..4 {
        pair.b.recv(wr_id, wr_id as usize * 64..wr_id as usize * 64 + 64);
    }
    bed.simulator()
        .drain_qp(0, pair.a.qp.qp_num(), DrainAt::Now)
        .map_err(|error| format!("{error:?}"))?;
    for wr_id in 0..4_u64 {
        let message = wr_id.to_ne_bytes();
        pair.a.post(Form::Typed, Post::new(Op::Send, wr_id, Data::Inline(&[&message])))?;
    }
    let drained = pair.a.qp.drained()?;
    assert_eq!(ids(&pair.a.qp.cancel(&drained, 1)?), [1]);
    pair.a.qp.resume()?;
    let marks: Vec<_> = bed
        .poll_good(&mut pair.a.send_cq, 4)
        .iter()
        .map(|one| (one.as_completion().wr_id(), one.as_completion().cancelled()))
        .collect();
    assert_eq!(marks, [(0, false), (1, true), (2, false), (3, false)]);
    bed.poll_good(pair.b.recv_cq(), 3);
    for (slot, expected) in [0_u64, 2, 3].into_iter().enumerate() {
        crate::pattern::expect_bytes(&pair.b.mr, slot * 64 + 40, &expected.to_ne_bytes());
    }
    bed.nothing(pair.b.recv_cq());
    Ok(())
}
