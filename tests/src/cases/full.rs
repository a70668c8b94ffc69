//! Full queues report that, keep their requests, and accept new ones when there is room again.

use crate::prelude::*;
use mlx5::{AsyncEvent, Data, ListError};

pub(crate) const CASES: &[Case] = cases![
    a_send_queue_takes_exactly_its_blocks_and_goes_on_when_polled: EVERY_MODEL,
    a_send_queue_full_of_large_requests_takes_as_many_as_it_granted,
    a_list_that_does_not_fit_posts_the_part_that_does,
    a_batch_that_does_not_fit_posts_nothing,
    a_receive_queue_takes_what_it_granted,
    a_shared_receive_queue_takes_what_it_granted,
    a_queue_pair_with_a_shared_receive_queue_takes_no_receives_of_its_own,
    an_unsignaled_run_is_refused_while_a_largest_signaled_request_still_fits,
    an_unsignaled_run_may_end_in_its_own_batch,
    a_signaled_request_anywhere_lets_unsignaled_ones_fill_the_queue,
    a_queue_that_signals_all_knows_no_unsignaled_runs,
    overrun_completion_queue_reports_an_event,
];

/// A write of a few bytes, which takes one block.
fn small(b: &End<Rc>, wr_id: u64, flags: SendFlags) -> Post<'static> {
    let remote = RemoteAddress { addr: b.mr.addr(), rkey: b.mr.rkey() };
    Post::new(Op::Write, wr_id, Data::Inline(&[b"small"])).remote(remote).flags(flags)
}

const UNSIGNALED: SendFlags = SendFlags::empty();

fn a_send_queue_takes_exactly_its_blocks_and_goes_on_when_polled(bed: &Bed) -> Outcome {
    for form in Form::ALL {
        let Pair { mut a, b } = bed.pair::<Rc>(&PairOptions::default().send_wr(16).inline(28))?;
        let blocks = a.qp.caps().send_blocks;
        for round in 0..3 {
            for n in 0..blocks {
                assert_eq!(a.qp.free_send_blocks(), blocks - n);
                a.post(form, small(&b, n.into(), SendFlags::SIGNALED))?;
            }
            let full = PostError::QueueFull { free: 0, needed: 1 };
            assert_eq!(a.post(form, small(&b, 99, SendFlags::SIGNALED)), Err(full));
            // A polled request frees its room at once, and no more than that.
            let first = bed.poll_good(&mut a.send_cq, 1);
            assert_eq!(wr_ids(&first), [0]);
            assert_eq!(a.qp.free_send_blocks(), 1);
            a.post(form, small(&b, 100 + round, SendFlags::SIGNALED))?;
            assert_eq!(a.post(form, small(&b, 99, SendFlags::SIGNALED)), Err(full));
            let rest = bed.poll_good(&mut a.send_cq, blocks as usize);
            let expected: Vec<_> = (1..u64::from(blocks)).chain([100 + round]).collect();
            assert_eq!(wr_ids(&rest), expected);
        }
    }
    Ok(())
}

fn a_send_queue_full_of_large_requests_takes_as_many_as_it_granted(bed: &Bed) -> Outcome {
    for asked in [1, 3, 5, 10] {
        let options = PairOptions::default().send_wr(asked).inline(300);
        let Pair { mut a, b } = bed.pair::<Rc>(&options)?;
        let caps = a.qp.caps();
        assert!(caps.max_send_wr >= asked);
        assert!(caps.max_send_wr * caps.max_wr_blocks <= caps.send_blocks);
        let bytes = pattern(3, caps.max_inline_data as usize);
        let pieces = [&bytes[..]];
        for n in 0..caps.max_send_wr {
            let write = Post::new(Op::Write, n.into(), Data::Inline(&pieces));
            a.post(Form::Typed, write.remote(b.mr.remote(0..)?))?;
        }
        let free = caps.send_blocks - caps.max_send_wr * caps.max_wr_blocks;
        let write = Post::new(Op::Write, 0, Data::Inline(&pieces)).remote(b.mr.remote(0..)?);
        let full = PostError::QueueFull { free, needed: caps.max_wr_blocks };
        assert_eq!(a.post(Form::Typed, write), Err(full));
        // The rest of the ring has room for smaller requests.
        for _ in 0..free {
            a.post(Form::Typed, small(&b, 7, SendFlags::SIGNALED))?;
        }
        bed.poll_good(&mut a.send_cq, (caps.max_send_wr + free) as usize);
    }
    Ok(())
}

fn a_list_that_does_not_fit_posts_the_part_that_does(bed: &Bed) -> Outcome {
    let Pair { mut a, b } = bed.pair::<Rc>(&PairOptions::default().send_wr(8).inline(28))?;
    let blocks = u64::from(a.qp.caps().send_blocks);
    let operation = mlx5::Operation::RdmaWrite(b.mr.remote(0..)?);
    let list: Vec<_> = (0..blocks + 3)
        .map(|wr_id| SendWr {
            wr_id,
            flags: SendFlags::SIGNALED,
            operation,
            data: Data::Inline(&[b"x"]),
            ..SendWr::default()
        })
        .collect();
    let error = PostError::QueueFull { free: 0, needed: 1 };
    assert_eq!(a.qp.post_send(&list), Err(ListError::new(blocks as u32, error)));
    let index = blocks as usize;
    let done = bed.poll_good(&mut a.send_cq, index);
    assert!(wr_ids(&done).into_iter().eq(0..blocks));
    a.qp.post_send(&list[index..])?;
    let done = bed.poll_good(&mut a.send_cq, 3);
    assert!(wr_ids(&done).into_iter().eq(blocks..blocks + 3));
    Ok(())
}

fn a_batch_that_does_not_fit_posts_nothing(bed: &Bed) -> Outcome {
    let Pair { mut a, b } = bed.pair::<Rc>(&PairOptions::default().send_wr(8).inline(28))?;
    let blocks = u64::from(a.qp.caps().send_blocks);
    let remote = b.mr.remote(0..)?;
    for used in 0..blocks {
        let mut batch = a.qp.wr_start();
        for wr_id in 0..=blocks {
            batch.wr(wr_id, SendFlags::SIGNALED).rdma_write(remote).inline_data(b"lost");
        }
        let refused = batch.complete().expect_err("larger than the ring");
        assert_eq!(u64::from(refused.index()), blocks - used);
        assert_eq!(refused.error(), PostError::QueueFull { free: 0, needed: 1 });
        assert_eq!(u64::from(a.qp.free_send_blocks()), blocks - used);
        a.post(Form::Typed, small(&b, used, SendFlags::SIGNALED))?;
    }
    let done = bed.poll_good(&mut a.send_cq, blocks as usize);
    assert!(wr_ids(&done).into_iter().eq(0..blocks));
    bed.nothing(&mut a.send_cq);
    Ok(())
}

fn a_receive_queue_takes_what_it_granted(bed: &Bed) -> Outcome {
    for asked in [1, 5, 64] {
        let Pair { mut a, mut b } = bed.pair::<Rc>(&PairOptions::default().recv_wr(asked))?;
        let granted = b.qp.caps().max_recv_wr;
        assert!(granted >= asked);
        assert_eq!(b.qp.free_receives(), granted);
        let sges = [b.mr.sge(0..64)?];
        let list: Vec<_> =
            (0..u64::from(granted) + 2).map(|wr_id| ReceiveWr { wr_id, sges: &sges }).collect();
        let error = PostError::QueueFull { free: 0, needed: 1 };
        assert_eq!(b.qp.post_recv(&list), Err(ListError::new(granted, error)));
        let index = granted as usize;
        assert_eq!(b.qp.free_receives(), 0);
        a.post(Form::Typed, Post::new(Op::Send, 1, Data::Inline(&[b"one"])))?;
        assert_eq!(wr_ids(&bed.poll_good(b.recv_cq(), 1)), [0]);
        assert_eq!(b.qp.free_receives(), 1);
        b.qp.post_recv(&list[index..=index])?;
        assert_eq!(b.qp.post_recv(&list[..1]), Err(ListError::new(0, error)));
        bed.poll_good(&mut a.send_cq, 1);
    }
    Ok(())
}

fn a_shared_receive_queue_takes_what_it_granted(bed: &Bed) -> Outcome {
    let context = bed.context();
    let pd = context.alloc_pd()?;
    let mr = pd.allocate(4096)?;
    for asked in [1, 2, 30, 100] {
        let mut srq = pd.create_srq(asked).build()?;
        let capacity = srq.capacity();
        assert!(capacity >= asked);
        assert!(srq.query()?.max_wr >= asked);
        let sges = [mr.sge(0..64)?];
        let list = vec![ReceiveWr { wr_id: 1, sges: &sges }; capacity as usize + 1];
        let error = PostError::QueueFull { free: 0, needed: 1 };
        assert_eq!(srq.post_recv(&list), Err(ListError::new(capacity, error)));
    }
    Ok(())
}

fn a_queue_pair_with_a_shared_receive_queue_takes_no_receives_of_its_own(bed: &Bed) -> Outcome {
    let context = bed.context();
    let pd = context.alloc_pd()?;
    let srq = pd.create_srq(4).build()?;
    let cq = context.create_cq(8).build()?;
    let mut qp = pd.create_qp::<Rc>(&cq, &cq).srq(&srq).max_recv_wr(16).build()?;
    assert_eq!((qp.caps().max_recv_wr, qp.free_receives()), (0, 0));
    let refused = qp.post_recv(&[ReceiveWr { wr_id: 1, sges: &[] }]);
    let error = PostError::Unsupported;
    assert_eq!(refused, Err(ListError::new(0, error)));
    qp.destroy()?;
    srq.destroy()?;
    Ok(())
}

fn an_unsignaled_run_is_refused_while_a_largest_signaled_request_still_fits(bed: &Bed) -> Outcome {
    for (inline, form) in [28, 100, 300, 800].into_iter().flat_map(|i| Form::ALL.map(|f| (i, f))) {
        let Pair { mut a, b } = bed.pair::<Rc>(&PairOptions::default().send_wr(6).inline(inline))?;
        let caps = a.qp.caps();
        let bytes = pattern(5, caps.max_inline_data as usize);
        let pieces = [&bytes[..]];
        for round in 0..12 {
            let mut posted = 0;
            loop {
                match a.post(form, small(&b, posted, UNSIGNALED)) {
                    Ok(()) => posted += 1,
                    Err(error) => {
                        assert_eq!(error, PostError::UnsignaledRun);
                        break;
                    }
                }
            }
            // The queue is not full a block earlier than necessary.
            assert_eq!(posted, u64::from(caps.send_blocks - caps.max_wr_blocks));
            assert_eq!(a.qp.free_send_blocks(), caps.max_wr_blocks);
            // Shifts the start of requests in the ring, lap by lap, by alternating a small request
            // and a large one.
            let large = Post::new(Op::Write, 77, Data::Inline(&pieces)).remote(b.mr.remote(0..)?);
            let last =
                if round % 2 == 0 { large } else { small(&b, 77, SendFlags::SIGNALED) };
            a.post(form, last)?;
            assert_eq!(wr_ids(&bed.poll_good(&mut a.send_cq, 1)), [77]);
            assert_eq!(a.qp.free_send_blocks(), caps.send_blocks, "one completion retires all");
        }
        bed.nothing(&mut a.send_cq);
    }
    Ok(())
}

fn an_unsignaled_run_may_end_in_its_own_batch(bed: &Bed) -> Outcome {
    let Pair { mut a, b } = bed.pair::<Rc>(&PairOptions::default().send_wr(8).inline(28).send_sge(1))?;
    let blocks = u64::from(a.qp.caps().send_blocks);
    let posts: Vec<_> = (0..blocks)
        .map(|n| small(&b, n, if n + 1 == blocks { SendFlags::SIGNALED } else { UNSIGNALED }))
        .collect();
    for form in Form::ALL {
        a.post_all(form, &posts)?;
        assert_eq!(wr_ids(&bed.poll_good(&mut a.send_cq, 1)), [blocks - 1]);
    }
    // The request that does not fit fails the whole batch, and ends a list.
    let posts: Vec<_> = (0..blocks).map(|n| small(&b, n, UNSIGNALED)).collect();
    let mut batch = a.qp.wr_start();
    for n in 0..blocks {
        batch.wr(n, UNSIGNALED).rdma_write(b.mr.remote(0..)?).inline_data(b"x");
    }
    let refused = batch.complete().expect_err("a run without end");
    assert_eq!((u64::from(refused.index()), refused.error()), (blocks - 1, PostError::UnsignaledRun));
    assert_eq!(u64::from(a.qp.free_send_blocks()), blocks);
    assert_eq!(a.post_all(Form::List, &posts), Err(PostError::UnsignaledRun));
    assert_eq!(a.qp.free_send_blocks(), 1);
    a.post(Form::List, small(&b, 5, SendFlags::SIGNALED))?;
    assert_eq!(wr_ids(&bed.poll_good(&mut a.send_cq, 1)), [5]);
    Ok(())
}

fn a_signaled_request_anywhere_lets_unsignaled_ones_fill_the_queue(bed: &Bed) -> Outcome {
    let Pair { mut a, b } = bed.pair::<Rc>(&PairOptions::default().send_wr(8).inline(28).send_sge(1))?;
    let blocks = u64::from(a.qp.caps().send_blocks);
    for signaled in 0..blocks {
        for n in 0..blocks {
            let flags = if n == signaled { SendFlags::SIGNALED } else { UNSIGNALED };
            a.post(Form::ALL[(n % 2) as usize], small(&b, n, flags))?;
        }
        let full = PostError::QueueFull { free: 0, needed: 1 };
        assert_eq!(a.post(Form::Typed, small(&b, 0, UNSIGNALED)), Err(full));
        assert_eq!(wr_ids(&bed.poll_good(&mut a.send_cq, 1)), [signaled]);
        assert_eq!(u64::from(a.qp.free_send_blocks()), signaled + 1);
        if signaled + 1 == blocks {
            break;
        }
        // The rest is a run without a signaled request, so only a signaled one can free it.
        for _ in 0..signaled {
            a.post(Form::Typed, small(&b, 50, UNSIGNALED))?;
        }
        assert_eq!(a.post(Form::Typed, small(&b, 51, UNSIGNALED)), Err(PostError::UnsignaledRun));
        a.post(Form::Typed, small(&b, 52, SendFlags::SIGNALED))?;
        assert_eq!(wr_ids(&bed.poll_good(&mut a.send_cq, 1)), [52]);
    }
    Ok(())
}

fn a_queue_that_signals_all_knows_no_unsignaled_runs(bed: &Bed) -> Outcome {
    let options = PairOptions::default().send_wr(8).sq_sig_all(true);
    let Pair { mut a, b } = bed.pair::<Rc>(&options)?;
    let blocks = u64::from(a.qp.caps().send_blocks);
    for n in 0..blocks {
        a.post(Form::ALL[(n % 2) as usize], small(&b, n, UNSIGNALED))?;
    }
    let full = PostError::QueueFull { free: 0, needed: 1 };
    assert_eq!(a.post(Form::Typed, small(&b, 0, UNSIGNALED)), Err(full));
    let done = bed.poll_good(&mut a.send_cq, blocks as usize);
    assert!(wr_ids(&done).into_iter().eq(0..blocks));
    Ok(())
}

fn overrun_completion_queue_reports_an_event(bed: &Bed) -> Outcome {
    let Pair { mut a, b } = bed.pair::<Rc>(&PairOptions::default().cq_entries(7))?;
    let room = u64::from(a.send_cq.capacity()) + 1;
    let events = a.context.async_events();
    for n in 0..=room {
        a.post(Form::Typed, small(&b, n, SendFlags::SIGNALED))?;
    }
    let mut seen = Vec::new();
    bed.until("events of the overrun queue and of its queue pair", || {
        seen.extend(events.next().expect("the device is there"));
        seen.contains(&AsyncEvent::CqError(a.send_cq.id()))
            && seen.contains(&AsyncEvent::QpFatal(a.qp.id()))
    });
    // The completions before the overrun are still there, in order; the device overwrote none.
    let mut found = Vec::new();
    a.send_cq.poll(64, |completion| found.push(completion.to_owned()))?;
    assert!(wr_ids(&found).into_iter().eq(0..room));
    assert_eq!(a.qp.query()?.qp_state, QueueState::Error);
    Ok(())
}
