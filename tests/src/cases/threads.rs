//! Posting and polling on separate threads, and thousands of queue pairs.

use crate::prelude::*;
use mlx5::{ConnectOptions, Psn};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub(crate) const CASES: &[Case] = cases![
    one_thread_posts_and_another_polls: EVERY_MODEL,
    sends_receives_and_completions_each_have_a_thread,
    several_posters_complete_on_one_poller,
    a_queue_pair_goes_to_error_while_others_post_and_poll,
    a_thousand_queue_pairs_are_up_at_once,
    a_queue_pair_behind_a_lock_serves_several_threads,
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

/// A pattern of flags with long and short runs.
fn flags(n: u64) -> SendFlags {
    if n % 7 == 6 || n.is_multiple_of(31) { SendFlags::SIGNALED } else { SendFlags::empty() }
}

fn one_thread_posts_and_another_polls(bed: &Bed) -> Outcome {
    /// The last of them is signaled, so its completion shows that all are done.
    const REQUESTS: u64 = 3003;
    let Pair { a, b } = bed.pair::<Rc>(&PairOptions::default().send_wr(32).inline(200))?;
    let End { qp, mut send_cq, .. } = a;
    let (mut send, receive, control) = qp.split();
    let (base, rkey) = (b.mr.addr(), b.mr.rkey());
    let signaled: Vec<u64> = (0..REQUESTS).filter(|n| !flags(*n).is_empty()).collect();
    let polled = std::thread::scope(|scope| {
        let poster = scope.spawn(move || {
            for n in 0..REQUESTS {
                let bytes = pattern(n, 8 + (n % 190) as usize);
                let remote = RemoteAddress { addr: base + n % 64 * 512, rkey };
                persist("room in the send queue", || {
                    let mut batch = send.wr_start();
                    batch.wr(n, flags(n)).rdma_write(remote).inline_data(&bytes);
                    match batch.complete() {
                        Ok(()) => Some(()),
                        Err(full) => {
                            assert!(matches!(full.error(), PostError::QueueFull { .. }), "{full}");
                            None
                        }
                    }
                });
            }
            send
        });
        let expected = signaled.len();
        let poller = scope.spawn(move || {
            let mut ids = Vec::new();
            persist("completions", || {
                let poll = send_cq.poll(16, |completion| {
                    completion.status().expect("good");
                    ids.push(completion.wr_id());
                });
                poll.expect("sound");
                (ids.len() == expected).then_some(())
            });
            (ids, send_cq)
        });
        let send = poster.join().expect("posted");
        let (ids, cq) = poller.join().expect("polled");
        drop((QueuePair::join(send, receive, control), cq));
        ids
    });
    assert_eq!(polled, signaled);
    assert_eq!(polled.last(), Some(&(REQUESTS - 1)));
    for n in REQUESTS - 64..REQUESTS {
        verify(&b.mr, (n % 64 * 512) as usize, n, 8 + (n % 190) as usize);
    }
    Ok(())
}

fn sends_receives_and_completions_each_have_a_thread(bed: &Bed) -> Outcome {
    const MESSAGES: u64 = 2002;
    let options = PairOptions::default().recv_wr(64).cq_entries(256);
    let Pair { a, b } = bed.pair::<Rc>(&options)?;
    let End { qp: a_qp, send_cq: mut a_cq, recv_cq: _a_recv, mr: _a_mr, .. } = a;
    let End { qp: b_qp, send_cq: _b_send, recv_cq: b_cq, mr, .. } = b;
    let mut b_cq = b_cq.ok_or("a queue of its own")?;
    let (mut send, _a_receive, _a_control) = a_qp.split();
    let (_b_send_half, receive, _b_control) = b_qp.split();
    let mut receive = receive.ok_or("a receive queue")?;
    let received = AtomicU64::new(0);
    let mr = &mr;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..MESSAGES {
                let sges = [mr.sge(n as usize % 64 * 64..n as usize % 64 * 64 + 64).expect("in")];
                persist("room for a receive", || {
                    // A slot is used again only after its message was checked.
                    let free = n < received.load(Ordering::Acquire) + 64;
                    (free && receive.post_recv(&[ReceiveWr { wr_id: n, sges: &sges }]).is_ok())
                        .then_some(())
                });
            }
        });
        scope.spawn(|| {
            for n in 0..MESSAGES {
                persist("room for a send", || {
                    let mut batch = send.wr_start();
                    batch.wr(n, flags(n)).send_imm((n as u32).to_be_bytes()).inline_data(&pattern(n, 40));
                    batch.complete().ok()
                });
            }
        });
        scope.spawn(|| {
            let count = (0..MESSAGES).filter(|n| !flags(*n).is_empty()).count();
            let mut found = 0;
            persist("sends", || {
                found += a_cq.poll(8, |c| c.status().expect("good")).expect("sound");
                (found == count).then_some(())
            });
        });
        scope.spawn(|| {
            let mut next = 0;
            persist("receives", || {
                let poll = b_cq.poll(8, |completion| {
                    completion.status().expect("good");
                    assert_eq!(completion.wr_id(), next);
                    assert_eq!(completion.imm_data(), Some((next as u32).to_be_bytes()));
                    verify(mr, next as usize % 64 * 64, next, 40);
                    next += 1;
                    received.store(next, Ordering::Release);
                });
                poll.expect("sound");
                (next == MESSAGES).then_some(())
            });
        });
    });
    Ok(())
}

fn several_posters_complete_on_one_poller(bed: &Bed) -> Outcome {
    const POSTERS: usize = 4;
    const REQUESTS: u64 = 600;
    let context = bed.context();
    let pd = context.alloc_pd()?;
    let mr = pd.memory(1 << 16).access(crate::pair::ALL_ACCESS).register()?;
    let mut cq = context.create_cq(1024).cqe_size(bed.cqe_size()).build()?;
    let port = context.local_port(bed.port(), None)?;
    let (psn, connect) = (Psn::wrapping(1), ConnectOptions::default());
    let mut qps = Vec::new();
    for _ in 0..POSTERS {
        let mut qp = pd.create_qp::<Rc>(&cq, &cq).max_send_wr(64).max_inline_data(64).build()?;
        let here = qp.endpoint(&port, psn, &connect);
        qp.connect(&port, psn, &here, &connect)?;
        qps.push(qp);
    }
    let numbers: Vec<u32> = qps.iter().map(QueuePair::qp_num).collect();
    std::thread::scope(|scope| {
        for (at, qp) in qps.iter_mut().enumerate() {
            let (addr, rkey) = (mr.addr() + at as u64 * 8192, mr.rkey());
            scope.spawn(move || {
                for n in 0..REQUESTS {
                    let remote = RemoteAddress { addr: addr + 8 * n, rkey };
                    persist("room", || {
                        let mut batch = qp.wr_start();
                        let wr = batch.wr(n, SendFlags::SIGNALED).rdma_write(remote);
                        wr.inline_data(&n.to_le_bytes());
                        batch.complete().ok()
                    });
                }
            });
        }
        let mut next = [0; POSTERS];
        persist("completions of all", || {
            let poll = cq.poll(32, |completion| {
                completion.status().expect("good");
                let qp = numbers.iter().position(|n| *n == completion.qp_num()).expect("known");
                assert_eq!(completion.wr_id(), next[qp]);
                next[qp] += 1;
            });
            poll.expect("sound");
            (next == [REQUESTS; POSTERS]).then_some(())
        });
    });
    let expected: Vec<u8> = (0..REQUESTS).flat_map(u64::to_le_bytes).collect();
    for at in 0..POSTERS {
        crate::pattern::expect_bytes(&mr, at * 8192, &expected);
    }
    Ok(())
}

fn a_queue_pair_goes_to_error_while_others_post_and_poll(bed: &Bed) -> Outcome {
    for delay in [0, 10, 200] {
        let Pair { a, b } = bed.pair::<Rc>(&PairOptions::default().send_wr(32))?;
        let End { qp, mut send_cq, .. } = a;
        let (mut send, receive, mut control) = qp.split();
        let remote = b.mr.remote(0..)?;
        let posted = AtomicU64::new(0);
        let completed = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..400 {
                    persist("room", || {
                        let mut batch = send.wr_start();
                        batch.wr(n, SendFlags::SIGNALED).rdma_write(remote).inline_data(b"x");
                        batch.complete().ok()
                    });
                    posted.store(n + 1, Ordering::Release);
                }
            });
            scope.spawn(|| {
                let mut failed = false;
                persist("a completion for every request", || {
                    let poll = send_cq.poll(16, |completion| {
                        let n = completed.fetch_add(1, Ordering::AcqRel);
                        assert_eq!(completion.wr_id(), n, "each once, in order");
                        // Once the flush has begun, no request succeeds.
                        assert!(!(failed && completion.is_success()));
                        failed |= !completion.is_success();
                        assert!(completion.status().err().is_none_or(|e| e.is_flushed()));
                    });
                    poll.expect("sound");
                    (completed.load(Ordering::Acquire) == 400).then_some(())
                });
            });
            persist("the moment", || (completed.load(Ordering::Acquire) >= delay).then_some(()));
            control.modify(&QpAttributes::new().qp_state(QueueState::Error)).expect("to error");
        });
        assert_eq!(posted.load(Ordering::Acquire), 400);
        drop(QueuePair::join(send, receive, control));
    }
    Ok(())
}

fn a_thousand_queue_pairs_are_up_at_once(bed: &Bed) -> Outcome {
    const COUNT: usize = 1000;
    let context = bed.context();
    let pd = context.alloc_pd()?;
    let mr = pd.memory(COUNT * 64).access(crate::pair::ALL_ACCESS).register()?;
    let mut cq = context.create_cq(2 * COUNT as u32).cqe_size(bed.cqe_size()).build()?;
    let port = context.local_port(bed.port(), None)?;
    let (psn, connect) = (Psn::wrapping(1), ConnectOptions::default());
    let mut qps = Vec::new();
    for _ in 0..COUNT {
        let qp = pd.create_qp::<Rc>(&cq, &cq).max_send_wr(4).max_recv_wr(4).max_inline_data(32);
        qps.push(qp.build()?);
    }
    let ends: Vec<_> = qps.iter().map(|qp| qp.endpoint(&port, psn, &connect)).collect();
    for (at, qp) in qps.iter_mut().enumerate() {
        // Each is connected with its neighbour.
        qp.connect(&port, psn, &ends[at ^ 1], &connect)?;
        let sges = [mr.sge(at * 64..at * 64 + 64)?];
        qp.post_recv(&[ReceiveWr { wr_id: (COUNT + at) as u64, sges: &sges }])?;
    }
    let mut numbers: Vec<_> = qps.iter().map(QueuePair::qp_num).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), COUNT);
    for (at, qp) in qps.iter_mut().enumerate() {
        let mut batch = qp.wr_start();
        let wr = batch.wr(at as u64, SendFlags::SIGNALED).send();
        wr.inline_data(&(at as u64).to_le_bytes());
        batch.complete()?;
    }
    let mut ids = wr_ids(&bed.poll_good(&mut cq, 2 * COUNT));
    ids.sort_unstable();
    assert!(ids.into_iter().eq(0..2 * COUNT as u64));
    for at in 0..COUNT {
        crate::pattern::expect_bytes(&mr, at * 64, &(at as u64 ^ 1).to_le_bytes());
    }
    // Destroys every second queue pair; the others still work.
    let mut at = 0;
    qps.retain(|_| {
        at += 1;
        (at - 1) % 4 < 2
    });
    for qp in &mut qps {
        let mut batch = qp.wr_start();
        let wr = batch.wr(7, SendFlags::SIGNALED).rdma_write(mr.remote(0..)?);
        wr.inline_data(b"go on");
        batch.complete()?;
    }
    bed.poll_good(&mut cq, qps.len());
    Ok(())
}

fn a_queue_pair_behind_a_lock_serves_several_threads(bed: &Bed) -> Outcome {
    use std::sync::Mutex;
    const REQUESTS: u64 = 300;
    let Pair { a, b } = bed.pair::<Rc>(&PairOptions::default().send_wr(1024).cq_entries(1024))?;
    let End { qp, mut send_cq, .. } = a;
    let shared = Mutex::new(qp);
    let remote = b.mr.remote(0..)?;
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let shared = &shared;
            scope.spawn(move || {
                for n in 0..REQUESTS {
                    let mut qp = shared.lock().expect("no poster panicked");
                    let mut batch = qp.wr_start();
                    let wr = batch.wr(thread << 32 | n, SendFlags::SIGNALED).rdma_write(remote);
                    wr.inline_data(b"locked");
                    batch.complete().expect("room for all");
                }
            });
        }
    });
    let ids = wr_ids(&bed.poll_good(&mut send_cq, 3 * REQUESTS as usize));
    for thread in 0..3 {
        let mine = ids.iter().filter(|id| **id >> 32 == thread).map(|id| id & 0xffff_ffff);
        assert!(mine.eq(0..REQUESTS));
    }
    Ok(())
}
