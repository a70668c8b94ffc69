//! The ways to poll other than by a closure.

use crate::prelude::*;
use mlx5::{CompletionCursor, CqeCompression, PollError, Requests};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

pub(crate) const CASES: &[Case] = cases![
    a_poll_whose_closure_fails_stops_behind_the_completion_that_it_failed_at: EVERY_MODEL,
    a_poll_whose_closure_fails_stops_within_a_compressed_run: SIMULATOR,
    completions_are_iterated_over: EVERY_MODEL,
    a_cursor_is_kept_between_calls: EVERY_MODEL,
    a_cursor_goes_through_compressed_runs: SIMULATOR,
    cursor_restarts_after_another_poll_of_its_queue,
    cursor_reports_the_same_as_a_poll: SIMULATOR,
    requests_get_their_values_back: EVERY_MODEL,
];

const SIGNALED: SendFlags = SendFlags::SIGNALED;

/// Posts `count` writes of eight bytes, with identifiers from `first` on.
#[track_caller]
pub(super) fn write(a: &mut QueuePair<Rc>, to: RemoteAddress, first: u64, count: u64) {
    let posted = a.post(|batch| {
        for wr_id in first..first + count {
            batch.wr(wr_id, SIGNALED).rdma_write(to).inline_data(&wr_id.to_le_bytes());
        }
    });
    posted.expect("room");
}

/// The reasons why a closure ended a poll.
#[derive(Debug, PartialEq)]
enum Stop {
    At(u64),
    Poll(PollError),
}

impl From<PollError> for Stop {
    fn from(error: PollError) -> Self {
        Self::Poll(error)
    }
}

fn a_poll_whose_closure_fails_stops_behind_the_completion_that_it_failed_at(bed: &Bed) -> Outcome {
    // Few entries, so that the ring wraps, and overruns if the consumer index is not written.
    let Pair { a, b } = bed.pair::<Rc>(&PairOptions::default().cq_entries(7))?;
    let (mut qp, remote) = (a.qp, b.mr.remote(0..)?);
    let mut cq = a.send_cq;
    for round in 0..100_u64 {
        let (first, count) = (round << 8, 1 + round % 7);
        let fails = first + round % count;
        write(&mut qp, remote, first, count);
        bed.settle();
        let mut seen = Vec::new();
        bed.until("all of them", || cq.is_ready());
        let stopped = cq.try_poll(usize::MAX, |completion| {
            seen.push(completion.wr_id());
            if completion.wr_id() == fails { Err(Stop::At(fails)) } else { Ok(()) }
        });
        assert_eq!(stopped, Err(Stop::At(fails)));
        assert_eq!(seen, (first..=fails).collect::<Vec<_>>());
        if round % 3 == 0 && fails + 1 < first + count {
            // A panic consumes the completion too.
            let panic = catch_unwind(AssertUnwindSafe(|| {
                cq.try_poll(1, |completion| -> Result<(), Stop> {
                    seen.push(completion.wr_id());
                    resume_unwind(Box::new("of a poll"))
                })
            }));
            assert!(panic.is_err());
        }
        let rest = (first + count) as usize - first as usize - seen.len();
        // The poll returns as many completions as asked for, and no more.
        let some = cq.try_poll(1, |completion| {
            seen.push(completion.wr_id());
            Ok::<_, Stop>(())
        });
        assert_eq!(some, Ok(rest.min(1)));
        seen.extend(wr_ids(&bed.poll_good(&mut cq, rest.saturating_sub(1))));
        assert_eq!(seen, (first..first + count).collect::<Vec<_>>(), "each once");
    }
    let shared = cq.into_shared();
    write(&mut qp, remote, 1, 2);
    bed.settle();
    let stopped = shared.try_poll(2, |completion| Err::<(), _>(Stop::At(completion.wr_id())));
    assert_eq!(stopped, Err(Stop::At(1)));
    let mut cq = shared.into_inner();
    assert_eq!(wr_ids(&bed.poll_good(&mut cq, 1)), [2]);
    Ok(())
}

fn a_poll_whose_closure_fails_stops_within_a_compressed_run(bed: &Bed) -> Outcome {
    let options = PairOptions::default().compression(Some(CqeCompression::Hash)).cq_entries(31);
    let Pair { a, b } = bed.pair::<Rc>(&options)?;
    let (mut qp, mut cq, remote) = (a.qp, a.send_cq, b.mr.remote(0..)?);
    let mut compressed = 0;
    for round in 0..60_u64 {
        write(&mut qp, remote, 0, 20);
        bed.settle();
        let mut seen = Vec::new();
        while seen.len() < 20 {
            let stops = seen.len() as u64 + round % 5;
            let before = seen.len();
            let polled = cq.try_poll(20, |completion| {
                seen.push(completion.wr_id());
                compressed += usize::from(completion.is_compressed());
                if completion.wr_id() >= stops { Err(Stop::At(stops)) } else { Ok(()) }
            });
            assert!(matches!(polled, Ok(_) | Err(Stop::At(_))), "{polled:?}");
            assert!(seen.len() > before, "{before} of 20, and no more");
        }
        assert_eq!(seen, (0..20).collect::<Vec<_>>());
    }
    assert!(compressed > 500, "{compressed} of 1200");
    bed.nothing(&mut cq);
    Ok(())
}

fn completions_are_iterated_over(bed: &Bed) -> Outcome {
    let Pair { a, b } = bed.pair::<Rc>(&PairOptions::default().cq_entries(7))?;
    let (mut qp, mut cq, remote) = (a.qp, a.send_cq, b.mr.remote(0..)?);
    let mut copies: Vec<OwnedCompletion> = Vec::new();
    for round in 0..60_u64 {
        let (first, count) = (round << 8, 1 + round % 7);
        write(&mut qp, remote, first, count);
        bed.settle();
        // The loop ends early; the completions that it did not take stay.
        for completion in cq.completions()? {
            assert_eq!(completion.status(), Ok(()));
            copies.push(completion);
            if completion.wr_id() == first + round % 3 {
                break;
            }
        }
        copies.extend(cq.completions()?);
        assert_eq!(cq.completions()?.into_iter().count(), 0);
    }
    let expected = (0..60_u64).flat_map(|round| (0..1 + round % 7).map(move |n| round << 8 | n));
    assert!(wr_ids(&copies).into_iter().eq(expected));
    // Copies stay valid, however often the ring has wrapped since.
    for copy in &copies {
        assert_eq!((copy.qp_num(), copy.opcode()), (qp.qp_num(), CompletionOpcode::RdmaWrite));
        assert_eq!((copy.is_success(), copy.cancelled(), copy.byte_len()), (true, false, None));
        assert_eq!(format!("{copy:?}"), format!("{:?}", copy.as_completion()));
    }
    Ok(())
}

/// Takes all completions by a cursor, and reads each again before the next is taken.
fn stepped(bed: &Bed, cursor: &mut CompletionCursor, count: usize) -> Vec<u64> {
    let mut ids = Vec::new();
    bed.until("completions", || {
        let mut next = cursor.start().expect("sound").map(|completion| completion.wr_id());
        let mut steps = 0;
        while let Some(wr_id) = next {
            let current = cursor.current().expect("it was just found");
            assert_eq!((current.wr_id(), current.status()), (wr_id, Ok(())));
            assert_eq!(current.opcode(), CompletionOpcode::RdmaWrite);
            ids.push(wr_id);
            steps += 1;
            next = cursor.next().map(|completion| completion.wr_id());
        }
        assert!(cursor.current().is_none());
        assert_eq!(cursor.end(), steps);
        ids.len() >= count
    });
    ids
}

fn a_cursor_is_kept_between_calls(bed: &Bed) -> Outcome {
    let Pair { a, b } = bed.pair::<Rc>(&PairOptions::default().cq_entries(7))?;
    let (mut qp, remote) = (a.qp, b.mr.remote(0..)?);
    let mut cursor = a.send_cq.into_cursor();
    assert!(cursor.start()?.is_none());
    // Before the start, there is no completion to move on from, and no poll to end.
    assert!(cursor.next().is_none() && cursor.current().is_none());
    assert_eq!(cursor.end(), 0);
    for round in 0..100_u64 {
        let (first, count) = (round << 8, 1 + round % 7);
        write(&mut qp, remote, first, count);
        bed.settle();
        let ids = stepped(bed, &mut cursor, count as usize);
        assert_eq!(ids, (first..first + count).collect::<Vec<_>>());
    }
    // A poll that found no more continues when more have come.
    write(&mut qp, remote, 1, 1);
    bed.settle();
    assert_eq!(cursor.start()?.map(|completion| completion.wr_id()), Some(1));
    assert!(cursor.next().is_none() && cursor.current().is_none());
    write(&mut qp, remote, 2, 1);
    bed.settle();
    assert_eq!(cursor.next().map(|completion| completion.wr_id()), Some(2));
    assert_eq!(cursor.current().map(|completion| completion.user_tag()), Some(0));
    qp.set_user_tag(3);
    assert_eq!(cursor.current().map(|completion| completion.user_tag()), Some(3));
    assert_eq!(cursor.end(), 2);
    assert!(cursor.current().is_none() && cursor.next().is_none());
    bed.nothing(&mut cursor.into_inner());
    Ok(())
}

fn a_cursor_goes_through_compressed_runs(bed: &Bed) -> Outcome {
    let options = PairOptions::default().compression(Some(CqeCompression::Hash)).cq_entries(31);
    let Pair { a, b } = bed.pair::<Rc>(&options)?;
    let (mut qp, remote) = (a.qp, b.mr.remote(0..)?);
    let mut cursor = a.send_cq.into_cursor();
    for _ in 0..40 {
        write(&mut qp, remote, 0, 20);
        bed.settle();
        assert_eq!(stepped(bed, &mut cursor, 20), (0..20).collect::<Vec<_>>());
    }
    // The poll ends in the middle of a compressed run, and the next one continues it.
    write(&mut qp, remote, 0, 20);
    bed.settle();
    let mut ids = Vec::new();
    while let Some(completion) = cursor.start()? {
        assert!(completion.is_compressed());
        ids.push(completion.wr_id());
        assert_eq!(cursor.end(), 1);
    }
    assert_eq!(ids, (0..20).collect::<Vec<_>>());
    Ok(())
}

fn cursor_restarts_after_another_poll_of_its_queue(bed: &Bed) -> Outcome {
    let Pair { a, b } = bed.pair::<Rc>(&PairOptions::default())?;
    let (mut qp, remote) = (a.qp, b.mr.remote(0..)?);
    let mut cursor = a.send_cq.into_cursor();
    write(&mut qp, remote, 0, 12);
    bed.settle();
    assert_eq!(cursor.start()?.map(|completion| completion.wr_id()), Some(0));
    // Between the steps, the queue is polled and resized, and another queue pair is created on it.
    assert_eq!(wr_ids(&bed.poll_good(cursor.queue(), 2)), [1, 2]);
    assert!(cursor.current().is_none() && cursor.next().is_none());
    assert_eq!(cursor.start()?.map(|completion| completion.wr_id()), Some(3));
    let capacity = cursor.capacity();
    cursor.queue().resize(4 * capacity)?;
    assert!(cursor.current().is_none() && cursor.capacity() > capacity);
    assert_eq!(cursor.start()?.map(|completion| completion.wr_id()), Some(4));
    // Starts again without ending the poll before.
    assert_eq!(cursor.start()?.map(|completion| completion.wr_id()), Some(5));
    let other = a.pd.create_qp::<Rc>(&cursor, &cursor).user_tag(1).build()?;
    assert_eq!(cursor.current().map(|completion| completion.wr_id()), Some(5));
    // The queue pair goes away while its completion is the current one.
    qp.set_user_tag(8);
    qp.destroy()?;
    let again = a.pd.create_qp::<Rc>(&cursor, &cursor).user_tag(2).build()?;
    assert_eq!(cursor.current().map(|one| (one.wr_id(), one.user_tag())), Some((5, 8)));
    assert!(cursor.next().is_none(), "the others are passed over");
    assert_eq!(cursor.end(), 1);
    drop((other, again));
    bed.nothing(&mut cursor.into_inner());
    Ok(())
}

fn cursor_reports_the_same_as_a_poll(bed: &Bed) -> Outcome {
    let bed = bed.configured(|config| config)?;
    let Pair { a, b } = bed.pair::<Rc>(&PairOptions::default())?;
    let (mut qp, remote) = (a.qp, b.mr.remote(0..)?);
    let mut cursor = a.send_cq.into_cursor();
    write(&mut qp, remote, 0, 2);
    bed.settle();
    bed.simulator().remove_device(0);
    // Polls return the completions written before, and then the error.
    assert_eq!(cursor.start()?.map(|completion| completion.wr_id()), Some(0));
    assert_eq!(cursor.next().map(|completion| completion.wr_id()), Some(1));
    assert!(cursor.next().is_none());
    assert_eq!(cursor.end(), 2);
    bed.until("the device is known to be gone", || {
        drop(a.context.alloc_pd());
        matches!(cursor.start(), Err(PollError::DeviceGone))
    });
    let stopped = cursor.queue().try_poll(1, |_| Ok::<_, Stop>(()));
    assert_eq!(stopped, Err(Stop::Poll(PollError::DeviceGone)));
    assert!(matches!(cursor.queue().completions().err(), Some(PollError::DeviceGone)));
    Ok(())
}

fn requests_get_their_values_back(bed: &Bed) -> Outcome {
    // A capacity below the send queue's, and one above.
    for capacity in [12, 64] {
        let Pair { a, b } = bed.pair::<Rc>(&PairOptions::default().send_wr(8))?;
        let (mut qp, mut cq, remote) = (a.qp, a.send_cq, b.mr.remote(0..)?);
        let mut requests = Requests::new(capacity);
        let (mut posted, mut refused, mut full, mut back) = (0, 0, 0, Vec::new());
        let name = |round| format!("request {round}");
        for round in 0..400 {
            match requests.insert(name(round)) {
                Ok(wr_id) => {
                    let wrote = qp.post(|batch| {
                        batch.wr(wr_id, SIGNALED).rdma_write(remote).inline_data(b"value");
                    });
                    if wrote.is_ok() {
                        posted += 1;
                    } else {
                        refused += 1;
                        assert_eq!(requests.take(wr_id), Some(name(round)));
                    }
                }
                Err(value) => {
                    full += 1;
                    assert_eq!(value, name(round));
                }
            }
            if round % 37 == 36 {
                bed.settle();
                for completion in cq.completions()? {
                    back.push(requests.take(completion.wr_id()).ok_or("its value")?);
                    assert_eq!(requests.take(completion.wr_id()), None, "once");
                }
            }
        }
        // The values of requests that are outstanding when the queue pair fails come back, too.
        qp.modify(&QpAttributes::new().qp_state(QueueState::Error))?;
        bed.settle();
        for completion in cq.completions()? {
            back.push(requests.take(completion.wr_id()).ok_or("its value")?);
        }
        assert_eq!((back.len(), requests.len()), (posted, 0));
        assert!(posted > 50, "{posted}");
        assert!(if capacity == 12 { full > 50 } else { refused > 50 }, "{full}, {refused}");
        back.sort();
        back.dedup();
        assert_eq!(back.len(), posted, "each once");
    }
    Ok(())
}
