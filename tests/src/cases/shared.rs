//! Queues that several threads use at once.

use crate::prelude::*;
use mlx5_sim::engine::DrainAt;
use mlx5::{BatchError, SharedCompletionQueue};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

pub(crate) const CASES: &[Case] = cases![
    batches_of_many_posters_stay_together_and_complete_once: EVERY_MODEL,
    lists_of_many_posters_stay_together,
    receives_of_many_posters_are_had_once,
    many_pollers_have_each_completion_once: EVERY_MODEL,
    panic_in_a_critical_section_leaves_the_queue_unchanged,
    a_shared_queue_pair_is_reset_and_leaves_reset,
    a_shared_queue_pair_is_cancelled_while_others_post: STEP | DEVX,
];

/// Time limit for the threads of a case.
const DEADLINE: Duration = Duration::from_secs(60);

/// Repeats `attempt` until it returns a value.
#[track_caller]
fn persist<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = attempt() {
            return answer;
        }
        assert!(start.elapsed() < DEADLINE, "not in time: {what}");
        std::thread::yield_now();
    }
}

/// Yields now and then, so that other threads interleave.
fn interrupted(seed: u64) {
    if (seed ^ seed >> 16).is_multiple_of(5) {
        std::thread::yield_now();
    }
}

/// Packs poster, batch, part and number of parts into an identifier.
fn name(poster: u64, batch: u64, part: u64, of: u64) -> u64 {
    poster << 48 | batch << 16 | part << 8 | of
}

/// Checks that the requests of each batch complete together, and that the batches of each poster
/// complete in order. Returns the number of batches of each poster.
fn whole(ids: &[u64], posters: usize) -> Vec<u64> {
    let mut batches = vec![0; posters];
    let mut rest = ids;
    while let Some(&first) = rest.first() {
        let (poster, of) = (first >> 48, first & 0xff);
        let batch = batches[poster as usize];
        let expected = (0..of).map(|part| name(poster, batch, part, of));
        let (these, others) = rest.split_at((of as usize).min(rest.len()));
        assert!(expected.eq(these.iter().copied()), "a batch is torn: {these:x?}");
        batches[poster as usize] += 1;
        rest = others;
    }
    batches
}

/// Returns `Some` if the batch was posted, and `None` if the queue was full.
fn posted(result: Result<(), BatchError>) -> Option<()> {
    match result {
        Ok(()) => Some(()),
        Err(refused) if matches!(refused.error(), PostError::QueueFull { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Polls until at least `count` requests have completed, and returns their identifiers.
fn polled(cq: &SharedCompletionQueue, count: usize) -> Vec<u64> {
    let mut ids = Vec::new();
    persist("completions", || {
        let poll = cq.poll(7, |completion| {
            completion.status().expect("good");
            ids.push(completion.wr_id());
        });
        poll.expect("sound");
        (ids.len() >= count).then_some(())
    });
    ids
}

fn batches_of_many_posters_stay_together_and_complete_once(bed: &Bed) -> Outcome {
    const POSTERS: usize = 4;
    const BATCHES: u64 = 120;
    let Pair { a, b } = bed.pair::<Rc>(&PairOptions::default().send_wr(32))?;
    let remote = b.mr.remote(0..)?;
    let (qp, cq) = (a.qp.into_shared(), a.send_cq.into_shared());
    let size = |poster: u64, batch: u64| 1 + (poster * 5 + batch * 3) % 9;
    let total = (0..POSTERS as u64)
        .flat_map(|poster| (0..BATCHES).map(move |batch| size(poster, batch)))
        .sum::<u64>();
    let ids = std::thread::scope(|scope| {
        for poster in 0..POSTERS as u64 {
            let qp = &qp;
            scope.spawn(move || {
                for batch in 0..BATCHES {
                    let of = size(poster, batch);
                    persist("room in the send queue", || {
                        posted(qp.post(|requests| {
                            for part in 0..of {
                                let wr_id = name(poster, batch, part, of);
                                let wr = requests.wr(wr_id, SendFlags::SIGNALED);
                                wr.rdma_write(remote).inline_data(&wr_id.to_le_bytes());
                                interrupted(wr_id);
                            }
                        }))
                    });
                    // Builds another batch and drops it, which posts nothing.
                    let mut half = qp.lock_send();
                    let mut aborted = half.wr_start();
                    aborted.wr(u64::MAX, SendFlags::SIGNALED).rdma_write(remote).inline_data(b"no");
                }
            });
        }
        polled(&cq, total as usize)
    });
    assert_eq!(ids.len() as u64, total);
    assert_eq!(whole(&ids, POSTERS), [BATCHES; POSTERS]);
    // The last write to complete was the last to be executed.
    let mut last = [0; 8];
    b.mr.read_at(0, &mut last)?;
    assert_eq!(last, ids[ids.len() - 1].to_le_bytes());
    drop((qp.into_inner(), cq.into_inner()));
    Ok(())
}

fn lists_of_many_posters_stay_together(bed: &Bed) -> Outcome {
    const POSTERS: usize = 3;
    const LISTS: u64 = 100;
    const OF: u64 = 5;
    let Pair { a, b } = bed.pair::<Rc>(&PairOptions::default().send_wr(512).cq_entries(2048))?;
    let remote = b.mr.remote(0..)?;
    let (qp, cq) = (a.qp.into_shared(), a.send_cq.into_shared());
    let ids = std::thread::scope(|scope| {
        for poster in 0..POSTERS as u64 {
            let qp = &qp;
            scope.spawn(move || {
                for list in 0..LISTS {
                    let requests: Vec<SendWr<'_>> = (0..OF)
                        .map(|part| SendWr {
                            wr_id: name(poster, list, part, OF),
                            flags: SendFlags::SIGNALED,
                            operation: mlx5::Operation::RdmaWrite(remote),
                            data: mlx5::Data::Inline(&[b"listed"]),
                            ..SendWr::default()
                        })
                        .collect();
                    let mut rest = &requests[..];
                    // A full queue accepts only the first requests of a list. The rest is posted
                    // later; until then the lock on the send half keeps other posters out.
                    let mut half = qp.lock_send();
                    persist("room in the send queue", || match half.post_send(rest) {
                        Ok(()) => Some(()),
                        Err(error) => {
                            assert!(matches!(error.error(), PostError::QueueFull { .. }), "{error}");
                            rest = &rest[error.index() as usize..];
                            None
                        }
                    });
                }
            });
        }
        polled(&cq, POSTERS * (LISTS * OF) as usize)
    });
    assert_eq!(whole(&ids, POSTERS), [LISTS; POSTERS]);
    Ok(())
}

fn receives_of_many_posters_are_had_once(bed: &Bed) -> Outcome {
    const POSTERS: u64 = 3;
    const EACH: u64 = 200;
    let Pair { a, b } = bed.pair::<Rc>(&PairOptions::default().recv_wr(64).cq_entries(1024))?;
    let (mut sender, mut send_cq) = (a.qp, a.send_cq);
    let receiver = b.qp.into_shared();
    let recv_cq = b.recv_cq.ok_or("a queue of its own")?.into_shared();
    let sge = b.mr.sge(0..64)?;
    let ids = std::thread::scope(|scope| {
        for poster in 0..POSTERS {
            let receiver = &receiver;
            scope.spawn(move || {
                for n in 0..EACH {
                    let wr = ReceiveWr { wr_id: poster << 32 | n, sges: &[sge] };
                    persist("room for a receive", || receiver.post_recv(&[wr]).ok());
                }
            });
        }
        scope.spawn(|| {
            for n in 0..POSTERS * EACH {
                persist("room for a send", || {
                    send_cq.poll(16, |done| done.status().expect("good")).expect("sound");
                    let mut batch = sender.wr_start();
                    batch.wr(n, SendFlags::SIGNALED).send().inline_data(b"to whom it concerns");
                    posted(batch.complete())
                });
            }
        });
        polled(&recv_cq, (POSTERS * EACH) as usize)
    });
    for poster in 0..POSTERS {
        let of = ids.iter().filter(|id| **id >> 32 == poster).map(|id| id & 0xffff_ffff);
        assert!(of.eq(0..EACH), "each receive of a poster once, in order");
    }
    Ok(())
}

fn many_pollers_have_each_completion_once(bed: &Bed) -> Outcome {
    const POLLERS: usize = 4;
    const REQUESTS: usize = 1200;
    let Pair { a, b } = bed.pair::<Rc>(&PairOptions::default().send_wr(64))?;
    let remote = b.mr.remote(0..)?;
    let (mut qp, cq) = (a.qp, a.send_cq.into_shared());
    let met = AtomicUsize::new(0);
    let mut ids = std::thread::scope(|scope| {
        let pollers: Vec<_> = (0..POLLERS)
            .map(|poller| {
                let (cq, met) = (&cq, &met);
                scope.spawn(move || {
                    let mut ids = Vec::new();
                    let mut copies = [OwnedCompletion::default(); 5];
                    persist("completions", || {
                        let count = if poller % 2 == 0 {
                            let poll = cq.poll(5, |done| {
                                ids.push(done.wr_id());
                                interrupted(done.wr_id());
                            });
                            poll.expect("sound")
                        } else {
                            let count = cq.poll_into(&mut copies).expect("sound");
                            ids.extend(copies[..count].iter().map(|one| one.as_completion().wr_id()));
                            count
                        };
                        (met.fetch_add(count, Relaxed) + count == REQUESTS
                            || met.load(Relaxed) == REQUESTS)
                            .then_some(())
                    });
                    ids
                })
            })
            .collect();
        for n in 0..REQUESTS as u64 {
            persist("room in the send queue", || {
                let mut batch = qp.wr_start();
                batch.wr(n, SendFlags::SIGNALED).rdma_write(remote).inline_data(b"for any poller");
                posted(batch.complete())
            });
        }
        let ids: Vec<Vec<u64>> =
            pollers.into_iter().map(|poller| poller.join().expect("polled")).collect();
        for mine in &ids {
            assert!(mine.is_sorted(), "a poller has completions in their order");
        }
        ids.concat()
    });
    ids.sort_unstable();
    assert!(ids.into_iter().eq(0..REQUESTS as u64));
    Ok(())
}

fn panic_in_a_critical_section_leaves_the_queue_unchanged(bed: &Bed) -> Outcome {
    let Pair { a, b } = bed.pair::<Rc>(&PairOptions::default())?;
    let remote = b.mr.remote(0..)?;
    let (qp, cq) = (a.qp.into_shared(), a.send_cq.into_shared());
    let free = qp.lock_send().free_blocks();
    let post = |wr_id, panics: bool| {
        qp.post(|batch| {
            batch.wr(wr_id, SendFlags::SIGNALED).rdma_write(remote).inline_data(b"a part");
            if panics {
                resume_unwind(Box::new("of a batch"));
            }
        })
    };
    let panic = catch_unwind(AssertUnwindSafe(|| post(1, true)));
    assert!(panic.is_err());
    assert_eq!(qp.lock_send().free_blocks(), free);
    post(2, false)?;
    post(3, false)?;
    bed.until("two completions wait", || {
        let panic = catch_unwind(AssertUnwindSafe(|| cq.poll(1, |_| resume_unwind(Box::new("of a poll")))));
        panic.is_err()
    });
    // The completion whose closure panicked was consumed: no later poll returns it.
    bed.settle();
    assert_eq!(polled(&cq, 1), [3]);
    Ok(())
}

fn a_shared_queue_pair_is_reset_and_leaves_reset(bed: &Bed) -> Outcome {
    let Pair { a, .. } = bed.pair::<Rc>(&PairOptions::default())?;
    let (number, id) = (a.qp.qp_num(), a.qp.id());
    let qp = a.qp.into_shared();
    assert_eq!((qp.qp_num(), qp.id(), qp.state()), (number, id, QueueState::ReadyToSend));
    qp.modify(&QpAttributes::new().qp_state(QueueState::Reset))?;
    assert_eq!(qp.state(), QueueState::Reset);
    let init = QpAttributes::new()
        .qp_state(QueueState::Init)
        .pkey_index(0)
        .port_num(bed.port())
        .qp_access_flags(Access::REMOTE_WRITE);
    qp.modify(&init)?;
    assert_eq!(qp.state(), QueueState::Init);
    // A move from INIT to INIT keeps the posted requests.
    qp.post_recv(&[ReceiveWr { wr_id: 1, sges: &[] }])?;
    qp.modify(&init)?;
    let mut qp = qp.into_inner();
    assert_eq!(qp.free_receives() + 1, qp.caps().max_recv_wr);
    qp.modify(&QpAttributes::new().qp_state(QueueState::Reset))?;
    qp.modify(&init)?;
    assert_eq!(qp.state(), QueueState::Init);
    Ok(())
}

fn a_shared_queue_pair_is_cancelled_while_others_post(bed: &Bed) -> Outcome {
    const POSTERS: u64 = 2;
    const EACH: u64 = 100;
    let Pair { a, b } = bed.pair::<Rc>(&PairOptions::default().send_wr(256).cq_entries(256))?;
    let remote = b.mr.remote(0..)?;
    let (qp, mut cq) = (a.qp.into_shared(), a.send_cq);
    let stopped = bed.simulator().drain_qp(0, qp.qp_num(), DrainAt::After(0));
    stopped.map_err(|error| format!("{error:?}"))?;
    bed.settle();
    let drained = qp.lock_control().drained()?;
    let posting = AtomicUsize::new(POSTERS as usize);
    let cancelled = std::thread::scope(|scope| {
        for poster in 0..POSTERS {
            let (qp, posting) = (&qp, &posting);
            scope.spawn(move || {
                for n in 0..EACH {
                    let post = qp.post(|batch| {
                        let wr = batch.wr(poster << 32 | n, SendFlags::SIGNALED);
                        wr.rdma_write(remote).inline_data(b"maybe");
                    });
                    post.expect("room for all");
                }
                posting.fetch_sub(1, Relaxed);
            });
        }
        // Repeatedly cancels the requests with even identifiers among those posted so far.
        let mut cancelled = 0;
        loop {
            let over = posting.load(Relaxed) == 0;
            let mut half = qp.lock_send();
            let even = |one: &mlx5::PendingRequest| one.wr_id.is_multiple_of(2);
            cancelled += half.cancel_where(&drained, even).expect("drained").requests().len();
            if over {
                break cancelled as u64;
            }
        }
    });
    assert_eq!(cancelled, POSTERS * EACH / 2, "each of them once");
    qp.lock_control().resume()?;
    let done = bed.poll_good(&mut cq, (POSTERS * EACH) as usize);
    for completion in &done {
        let completion = completion.as_completion();
        assert_eq!(completion.cancelled(), completion.wr_id().is_multiple_of(2));
    }
    Ok(())
}
