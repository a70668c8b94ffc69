//! Completion queues whose overruns the device ignores.

use crate::prelude::*;
use mlx5::{AsyncEvent, CqeCompression, Data};

pub(crate) const CASES: &[Case] = cases![
    a_queue_that_ignores_overruns_is_as_any_if_it_is_polled_in_time,
    an_ignored_overrun_is_no_event_and_no_error: SIMULATOR,
    sends_that_were_written_over_are_passed_with_the_next_one: SIMULATOR,
    receives_that_were_written_over_give_no_room_back: SIMULATOR,
    a_run_that_was_written_over_ends_in_corruption_or_in_completions: SIMULATOR | STEP,
];

/// Entries of these queues.
const PLACES: u64 = 4;

fn options() -> PairOptions {
    PairOptions::default().cq_entries(PLACES as u32 - 1).ignore_overrun(true)
}

/// Sends a message for each identifier, and waits until all are done.
fn send(bed: &Bed, pair: &mut Pair<Rc>, wr_ids: std::ops::Range<u64>) -> Outcome {
    for wr_id in wr_ids.clone() {
        pair.b.recv(wr_id, 0..64);
    }
    for wr_id in wr_ids {
        pair.a.post(Form::Typed, Post::new(Op::Send, wr_id, Data::Inline(&[b"something"])))?;
    }
    bed.settle();
    Ok(())
}

fn a_queue_that_ignores_overruns_is_as_any_if_it_is_polled_in_time(bed: &Bed) -> Outcome {
    let mut pair = bed.pair::<Rc>(&options())?;
    for round in 0..20 {
        let wr_ids = round * PLACES..(round + 1) * PLACES;
        send(bed, &mut pair, wr_ids.clone())?;
        for cq in [&mut pair.a.send_cq, pair.b.recv_cq.as_mut().expect("its own")] {
            assert_eq!(wr_ids_of(bed, cq), Vec::from_iter(wr_ids.clone()));
        }
    }
    Ok(())
}

fn wr_ids_of(bed: &Bed, cq: &mut CompletionQueue) -> Vec<u64> {
    wr_ids(&bed.poll_good(cq, PLACES as usize))
}

fn an_ignored_overrun_is_no_event_and_no_error(bed: &Bed) -> Outcome {
    let mut pair = bed.pair::<Rc>(&options())?;
    send(bed, &mut pair, 0..PLACES + 2)?;
    assert_eq!(pair.a.context.async_events().next()?, None);
    assert_eq!(pair.a.qp.query()?.qp_state, QueueState::ReadyToSend);
    let device = bed.simulator().fabric().lock();
    let (produced, failed) = device.device(0).cq_progress(pair.a.send_cq.cqn()).expect("there");
    assert_eq!((u64::from(produced), failed), (PLACES + 2, false));
    drop(device);
    // Without the option, the same overrun is an error.
    let mut pair = bed.pair::<Rc>(&options().ignore_overrun(false))?;
    send(bed, &mut pair, 0..PLACES + 2)?;
    let event = pair.a.context.async_events().wait(Some(std::time::Duration::from_secs(10)))?;
    assert!(matches!(event, Some(AsyncEvent::CqError(_) | AsyncEvent::QpFatal(_))), "{event:?}");
    Ok(())
}

fn sends_that_were_written_over_are_passed_with_the_next_one(bed: &Bed) -> Outcome {
    let mut pair = bed.pair::<Rc>(&options())?;
    // One lap ahead, the entries have the ownership bit of the lap before, so the poller finds
    // nothing.
    send(bed, &mut pair, 0..2 * PLACES)?;
    bed.nothing(&mut pair.a.send_cq);
    // Two laps ahead, the entries have the expected ownership bit. A send's completion also retires
    // the sends before it.
    send(bed, &mut pair, 2 * PLACES..3 * PLACES)?;
    let found = wr_ids_of(bed, &mut pair.a.send_cq);
    assert_eq!(found, Vec::from_iter(2 * PLACES..3 * PLACES));
    // All requests have room again.
    for round in 0..20 {
        let to = pair.b.mr.remote(..)?;
        let wr_ids = round * PLACES..(round + 1) * PLACES;
        for wr_id in wr_ids {
            let post = Post::new(Op::Write, wr_id, Data::Inline(&[b"more"])).remote(to);
            pair.a.post(Form::Typed, post)?;
        }
        bed.settle();
        let _ = pair.a.send_cq.poll(16, |wc| assert_eq!(wc.status(), Ok(())));
    }
    Ok(())
}

/// A receive's completion names only its own slot, whatever is missing before it.
fn receives_that_were_written_over_give_no_room_back(bed: &Bed) -> Outcome {
    let mut pair = bed.pair::<Rc>(&options())?;
    let all = pair.b.qp.free_receives();
    send(bed, &mut pair, 0..3 * PLACES)?;
    let reported = wr_ids_of(bed, pair.b.recv_cq());
    assert_eq!(reported, Vec::from_iter(2 * PLACES..3 * PLACES), "of the last lap");
    bed.nothing(pair.b.recv_cq());
    assert_eq!(pair.b.qp.free_receives(), all - 3 * PLACES as u32, "the oldest is not back");
    Ok(())
}

fn a_run_that_was_written_over_ends_in_corruption_or_in_completions(bed: &Bed) -> Outcome {
    for count in 1..6 * PLACES {
        let mut pair = bed.pair::<Rc>(&options().compression(Some(CqeCompression::Hash)))?;
        send(bed, &mut pair, 0..count)?;
        for cq in [&mut pair.a.send_cq, pair.b.recv_cq.as_mut().expect("its own")] {
            let mut reported = Vec::new();
            // Every poll ends, and no request completes twice.
            while let Ok(1..) = cq.poll(16, |wc| reported.push(wc.wr_id())) {}
            assert!(reported.is_sorted_by(|one, next| one < next), "{reported:?} of {count}");
            assert!(count > PLACES || reported.len() as u64 == count, "{reported:?} of {count}");
        }
    }
    Ok(())
}
