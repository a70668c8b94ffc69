//! The requests that may be posted in each state, and the effects of a reset.

use crate::pair::connect_ends;
use crate::prelude::*;
use mlx5::{Corruption, Errno, Data, ErrorKind, ListError, PollError};

pub(crate) const CASES: &[Case] = cases![
    nothing_can_be_posted_in_reset,
    receives_can_be_posted_from_init_on_and_sends_from_rts_on,
    receives_that_were_posted_in_init_are_there_in_rts,
    a_batch_that_is_dropped_or_aborted_posts_nothing,
    a_batch_with_one_bad_request_posts_nothing,
    a_list_stops_at_the_bad_request_and_the_good_ones_go,
    an_empty_batch_and_an_empty_list_do_nothing,
    a_request_of_an_aborted_batch_cannot_complete: SIMULATOR,
    a_batch_after_a_refused_one_is_as_good_as_any,
    a_reset_forgets_what_was_posted,
    a_reset_that_the_kernel_refuses_changes_nothing: SIMULATOR,
    a_queue_pair_stays_in_reset_until_its_old_completions_are_polled,
    a_queue_pair_can_be_reset_with_its_halves_apart,
    a_reset_queue_pair_that_is_purged_works_again,
    quiesced_queue_pair_reports_unexecuted_requests_and_works_again,
];

/// The error of posting in a state that does not allow it.
fn refused_state(state: QueueState) -> PostError {
    PostError::State(state)
}

/// Checks that both forms refuse to send, and leave the queue unchanged.
fn sends_are_refused(end: &mut End<Rc>, state: QueueState) {
    let free = end.qp.free_send_blocks();
    let send = Post::new(Op::Send, 1, Data::Inline(&[b"x"]));
    for form in Form::ALL {
        assert_eq!(end.post(form, send), Err(refused_state(state)));
    }
    assert_eq!(end.qp.free_send_blocks(), free);
}

fn nothing_can_be_posted_in_reset(bed: &Bed) -> Outcome {
    let mut end = bed.end::<Rc>(&PairOptions::default())?;
    assert_eq!(end.qp.state(), QueueState::Reset);
    sends_are_refused(&mut end, QueueState::Reset);
    let free = end.qp.free_receives();
    let posted = end.qp.post_recv(&[ReceiveWr { wr_id: 1, sges: &[] }]);
    let error = refused_state(QueueState::Reset);
    assert_eq!(posted, Err(ListError::new(0, error)));
    assert_eq!(end.qp.free_receives(), free);
    Ok(())
}

fn receives_can_be_posted_from_init_on_and_sends_from_rts_on(bed: &Bed) -> Outcome {
    let options = PairOptions::default();
    let connect = mlx5::ConnectOptions::default();
    let (mut a, mut b) = (bed.end::<Rc>(&options)?, bed.end::<Rc>(&options)?);
    a.qp.init(&a.port.clone(), &connect)?;
    assert_eq!(a.qp.state(), QueueState::Init);
    sends_are_refused(&mut a, QueueState::Init);
    a.recv(1, 0..64);
    connect_ends(&mut a, &mut b, &options)?;
    assert_eq!(a.qp.state(), QueueState::ReadyToSend);
    a.recv(2, 64..128);
    for n in 0..2 {
        b.post(Form::Typed, Post::new(Op::Send, n, Data::Inline(&[b"x"])))?;
    }
    bed.poll_good(&mut b.send_cq, 2);
    assert_eq!(wr_ids(&bed.poll_good(a.recv_cq(), 2)), [1, 2]);
    a.qp.modify(&QpAttributes::new().qp_state(QueueState::Error))?;
    a.recv(3, 0..64);
    a.post(Form::Typed, Post::new(Op::Send, 4, Data::Inline(&[b"x"])))?;
    assert_eq!(flushed(&bed.poll(a.recv_cq(), 1)), [3]);
    assert_eq!(flushed(&bed.poll(&mut a.send_cq, 1)), [4]);
    Ok(())
}

fn receives_that_were_posted_in_init_are_there_in_rts(bed: &Bed) -> Outcome {
    let options = PairOptions::default();
    let connect = mlx5::ConnectOptions::default();
    let (mut a, mut b) = (bed.end::<Rc>(&options)?, bed.end::<Rc>(&options)?);
    b.qp.init(&b.port.clone(), &connect)?;
    for n in 0..u64::from(b.qp.caps().max_recv_wr) {
        b.recv(n, 0..64);
    }
    connect_ends(&mut a, &mut b, &options)?;
    for n in 0..u64::from(b.qp.caps().max_recv_wr) {
        a.post(Form::Typed, Post::new(Op::Send, n, Data::Inline(&[b"x"])))?;
        bed.poll_good(&mut a.send_cq, 1);
        assert_eq!(wr_ids(&bed.poll_good(b.recv_cq(), 1)), [n]);
    }
    Ok(())
}

fn a_batch_that_is_dropped_or_aborted_posts_nothing(bed: &Bed) -> Outcome {
    let Pair { mut a, b } = bed.pair::<Rc>(&PairOptions::default().inline(200))?;
    let remote = b.mr.remote(0..)?;
    let free = a.qp.free_send_blocks();
    for count in 1..20 {
        let mut batch = a.qp.wr_start();
        for n in 0..count {
            batch.wr(n, SendFlags::SIGNALED).rdma_write(remote).inline_data(&[0xee; 150]);
        }
        assert_eq!(batch.len(), count as usize);
        if count % 2 == 0 {
            batch.abort();
        } else {
            drop(batch);
        }
        assert_eq!(a.qp.free_send_blocks(), free);
        // A request after it is not confused with the one that was built in its place.
        a.post(Form::Typed, Post::new(Op::Write, 500, Data::Inline(&[b"good"])).remote(remote))?;
        assert_eq!(wr_ids(&bed.poll_good(&mut a.send_cq, 1)), [500]);
    }
    bed.nothing(&mut a.send_cq);
    untouched(&b.mr, 4..200);
    Ok(())
}

fn a_batch_with_one_bad_request_posts_nothing(bed: &Bed) -> Outcome {
    let Pair { mut a, b } = bed.pair::<Rc>(&PairOptions::default())?;
    let remote = b.mr.remote(0..)?;
    let free = a.qp.free_send_blocks();
    let long = vec![0; a.qp.caps().max_inline_data as usize + 1];
    for bad in 0..5_u64 {
        let mut batch = a.qp.wr_start();
        for n in 0..5 {
            let wr = batch.wr(n, SendFlags::SIGNALED).rdma_write(remote);
            wr.inline_data(if n == bad { &long } else { b"never seen" });
        }
        let refused = batch.complete().expect_err("one is too long");
        assert_eq!(u64::from(refused.index()), bad);
        assert!(matches!(refused.error(), PostError::InlineTooLong { .. }), "{refused}");
        assert!(refused.to_string().contains("nothing posted"), "{refused}");
        assert_eq!(a.qp.free_send_blocks(), free);
    }
    bed.nothing(&mut a.send_cq);
    untouched(&b.mr, 0..64);
    Ok(())
}

fn a_list_stops_at_the_bad_request_and_the_good_ones_go(bed: &Bed) -> Outcome {
    let Pair { mut a, b } = bed.pair::<Rc>(&PairOptions::default())?;
    let long = vec![0; a.qp.caps().max_inline_data as usize + 1];
    let remote = b.mr.remote(0..)?;
    for bad in 0..5_usize {
        let pieces = [&long[..]];
        let list: Vec<_> = (0..5)
            .map(|n| SendWr {
                wr_id: n as u64,
                flags: SendFlags::SIGNALED,
                operation: mlx5::Operation::RdmaWrite(remote),
                data: if n == bad { Data::Inline(&pieces) } else { Data::Inline(&[b"good"]) },
                ..SendWr::default()
            })
            .collect();
        let refused = a.qp.post_send(&list).expect_err("one is too long");
        assert_eq!(refused.index() as usize, bad);
        assert!(matches!(refused.error(), PostError::InlineTooLong { .. }), "{refused}");
        let done = bed.poll_good(&mut a.send_cq, bad);
        assert!(wr_ids(&done).into_iter().eq(0..bad as u64));
        bed.nothing(&mut a.send_cq);
    }
    Ok(())
}

/// The device names a request that was built and not posted: that corrupts the queue, and is no
/// completion.
fn a_request_of_an_aborted_batch_cannot_complete(bed: &Bed) -> Outcome {
    /// Offset of the block number in an entry.
    const WQE_COUNTER: u8 = 60;
    for complete in [false, true] {
        let Pair { mut a, b } = bed.pair::<Rc>(&PairOptions::default())?;
        let remote = b.mr.remote(0..)?;
        let patch = vec![(WQE_COUNTER, 0), (WQE_COUNTER + 1, 1)];
        bed.simulator().inject(0, Fault::CorruptCqe { cqn: Some(a.send_cq.cqn()), patch });
        a.post(Form::Typed, Post::new(Op::Write, 1, Data::Inline(&[b"x"])).remote(remote))?;
        bed.settle();
        let long = vec![0; 1 + a.qp.caps().max_inline_data as usize];
        let mut batch = a.qp.wr_start();
        batch.wr(2, SendFlags::SIGNALED).rdma_write(remote).inline_data(b"never posted");
        if complete {
            batch.wr(3, SendFlags::SIGNALED).rdma_write(remote).inline_data(&long);
            batch.complete().expect_err("one request is too long");
        } else {
            batch.abort();
        }
        let error = bed.poll_err(&mut a.send_cq);
        assert!(matches!(error, PollError::Corrupt(Corruption::Counter { counter: 1, .. })), "{error}");
        assert_eq!(bed.poll_err(&mut a.send_cq), error, "it stays so");
    }
    Ok(())
}

fn an_empty_batch_and_an_empty_list_do_nothing(bed: &Bed) -> Outcome {
    let Pair { mut a, b: _b } = bed.pair::<Rc>(&PairOptions::default())?;
    let batch = a.qp.wr_start();
    assert!(batch.is_empty());
    batch.complete()?;
    a.qp.post_send(&[])?;
    a.qp.post_recv(&[])?;
    bed.nothing(&mut a.send_cq);
    assert_eq!(a.qp.free_send_blocks(), a.qp.caps().send_blocks);
    Ok(())
}

fn a_batch_after_a_refused_one_is_as_good_as_any(bed: &Bed) -> Outcome {
    let Pair { mut a, b } = bed.pair::<Rc>(&PairOptions::default().send_wr(4))?;
    let remote = b.mr.remote(0..)?;
    let blocks = a.qp.caps().send_blocks;
    for round in 0..40_u64 {
        let mut batch = a.qp.wr_start();
        for n in 0..2 * u64::from(blocks) {
            batch.wr(n, SendFlags::SIGNALED).rdma_write(remote).inline_data(b"too many");
        }
        batch.complete().expect_err("more than the ring");
        let bytes = round.to_le_bytes();
        let pieces = [&bytes[..]];
        let write = Post::new(Op::Write, round, Data::Inline(&pieces)).remote(remote);
        a.post(Form::ALL[(round % 2) as usize], write)?;
        assert_eq!(wr_ids(&bed.poll_good(&mut a.send_cq, 1)), [round]);
        crate::pattern::expect_bytes(&b.mr, 0, &bytes);
    }
    Ok(())
}

fn a_reset_that_the_kernel_refuses_changes_nothing(bed: &Bed) -> Outcome {
    let mut pair = bed.pair::<Rc>(&PairOptions::default())?;
    for (round, errno) in [Errno::ENOMEM, Errno::EINVAL, Errno::EREMOTEIO].into_iter().enumerate() {
        bed.simulator().fail_call(1, errno);
        let refused = pair.a.qp.modify(&QpAttributes::new().qp_state(QueueState::Reset));
        assert_eq!(refused.expect_err("refused").errno(), Some(errno));
        assert_eq!(pair.a.qp.state(), QueueState::ReadyToSend);
        pair.a.recv(1, 0..64);
        pair.b.recv(2, 0..64);
        for end in [&mut pair.a, &mut pair.b] {
            end.post(Form::Typed, Post::new(Op::Send, round as u64, Data::Inline(&[b"x"])))?;
            bed.poll_good(&mut end.send_cq, 1);
        }
        for end in [&mut pair.a, &mut pair.b] {
            bed.poll_good(end.recv_cq(), 1);
        }
    }
    Ok(())
}

fn a_reset_forgets_what_was_posted(bed: &Bed) -> Outcome {
    let options = PairOptions::default();
    let Pair { mut a, mut b } = bed.pair::<Rc>(&options)?;
    for n in 0..30 {
        let send = Post::new(Op::Send, n, Data::Inline(&[b"forgotten"])).flags(SendFlags::empty());
        a.post(Form::Typed, send)?;
        a.recv(n, 0..64);
    }
    bed.settle();
    for end in [&mut a, &mut b] {
        end.qp.modify(&QpAttributes::new().qp_state(QueueState::Reset))?;
        assert_eq!(end.qp.state(), QueueState::Reset);
    }
    sends_are_refused(&mut a, QueueState::Reset);
    bed.nothing(&mut a.send_cq);
    connect_ends(&mut a, &mut b, &options)?;
    assert_eq!(a.qp.free_send_blocks(), a.qp.caps().send_blocks);
    assert_eq!(a.qp.free_receives(), a.qp.caps().max_recv_wr);
    b.recv(1, 0..64);
    a.recv(2, 64..128);
    a.post(Form::Typed, Post::new(Op::Send, 3, Data::Inline(&[b"new life"])))?;
    b.post(Form::Typed, Post::new(Op::Send, 4, Data::Inline(&[b"and back"])))?;
    assert_eq!(wr_ids(&bed.poll_good(b.recv_cq(), 1)), [1]);
    assert_eq!(wr_ids(&bed.poll_good(a.recv_cq(), 1)), [2]);
    assert_eq!(wr_ids(&bed.poll_good(&mut a.send_cq, 1)), [3]);
    assert_eq!(wr_ids(&bed.poll_good(&mut b.send_cq, 1)), [4]);
    crate::pattern::expect_bytes(&b.mr, 0, b"new life");
    crate::pattern::expect_bytes(&a.mr, 64, b"and back");
    Ok(())
}

fn a_queue_pair_stays_in_reset_until_its_old_completions_are_polled(bed: &Bed) -> Outcome {
    let options = PairOptions::default();
    let Pair { mut a, mut b } = bed.pair::<Rc>(&options)?;
    b.recv(0, 0..64);
    for n in 0..5 {
        let write = Post::new(Op::Write, n, Data::Inline(&[b"old"])).remote(b.mr.remote(0..)?);
        a.post(Form::Typed, write)?;
    }
    a.post(Form::Typed, Post::new(Op::Send, 5, Data::Inline(&[b"old"])))?;
    bed.settle();
    for end in [&mut a, &mut b] {
        end.qp.modify(&QpAttributes::new().qp_state(QueueState::Reset))?;
        let refused = end.qp.init(&end.port, &mlx5::ConnectOptions::default());
        let refused = refused.expect_err("old completions are there");
        assert_eq!(refused.kind(), ErrorKind::Busy);
        assert!(refused.to_string().contains("poll"), "{refused}");
        assert_eq!(end.qp.state(), QueueState::Reset);
    }
    let done = bed.poll_good(&mut a.send_cq, 6);
    assert!(wr_ids(&done).into_iter().eq(0..6), "they are reported as ever");
    bed.poll_good(b.recv_cq(), 1);
    connect_ends(&mut a, &mut b, &options)?;
    let write = Post::new(Op::Write, 9, Data::Inline(&[b"new"])).remote(b.mr.remote(0..)?);
    a.post(Form::Typed, write)?;
    assert_eq!(wr_ids(&bed.poll_good(&mut a.send_cq, 1)), [9]);
    crate::pattern::expect_bytes(&b.mr, 0, b"new");
    Ok(())
}

fn a_queue_pair_can_be_reset_with_its_halves_apart(bed: &Bed) -> Outcome {
    let options = PairOptions::default();
    let Pair { a, mut b } = bed.pair::<Rc>(&options)?;
    let End { qp, mut send_cq, recv_cq, mr, peer, port, psn, pd, context } = a;
    let (mut send, receive, mut control) = qp.split();
    control.modify(&QpAttributes::new().qp_state(QueueState::Reset))?;
    let mut batch = send.wr_start();
    batch.wr(1, SendFlags::SIGNALED).send().inline_data(b"x");
    let refused = batch.complete().expect_err("in reset");
    assert_eq!(refused.error(), refused_state(QueueState::Reset));
    // Leaving RESET takes all of these attributes.
    let init = QpAttributes::new().qp_state(QueueState::Init).pkey_index(0).port_num(1);
    let init = init.qp_access_flags(mlx5::AccessFlags::empty());
    assert_eq!(control.modify(&init).expect_err("apart").kind(), ErrorKind::InvalidArgument);
    bed.nothing(&mut send_cq);
    let qp = QueuePair::join(send, receive, control);
    let mut a = End { qp, send_cq, recv_cq, mr, peer, port, psn, pd, context };
    b.qp.modify(&QpAttributes::new().qp_state(QueueState::Reset))?;
    connect_ends(&mut a, &mut b, &options)?;
    b.recv(2, 0..64);
    a.post(Form::Typed, Post::new(Op::Send, 3, Data::Inline(&[b"joined"])))?;
    bed.poll_good(&mut a.send_cq, 1);
    crate::pattern::expect_bytes(&b.mr, 0, b"joined");
    Ok(())
}

fn a_reset_queue_pair_that_is_purged_works_again(bed: &Bed) -> Outcome {
    let options = PairOptions::default();
    let Pair { mut a, mut b } = bed.pair::<Rc>(&options)?;
    for round in 0..5 {
        b.recv(0, 0..64);
        a.post(Form::Typed, Post::new(Op::Send, 1, Data::Inline(&[b"old"])))?;
        bed.poll_good(b.recv_cq(), 1);
        bed.settle();
        for end in [&mut a, &mut b] {
            end.qp.reset()?;
            let End { qp, send_cq, recv_cq, .. } = end;
            qp.purge(send_cq)?;
            if let Some(recv_cq) = recv_cq {
                qp.purge(recv_cq)?;
            }
            bed.nothing(send_cq);
        }
        connect_ends(&mut a, &mut b, &options)?;
        let write = Post::new(Op::Write, round, Data::Inline(&[b"new"])).remote(b.mr.remote(0..)?);
        a.post(Form::Typed, write)?;
        assert_eq!(wr_ids(&bed.poll_good(&mut a.send_cq, 1)), [round]);
    }
    Ok(())
}

fn quiesced_queue_pair_reports_unexecuted_requests_and_works_again(bed: &Bed) -> Outcome {
    let options = PairOptions::default();
    let Pair { mut a, mut b } = bed.pair::<Rc>(&options)?;
    for round in 0..5 {
        for wr_id in 0..4 {
            b.recv(wr_id, 0..64);
        }
        a.post(Form::Typed, Post::new(Op::Send, 9, Data::Inline(&[b"one"])))?;
        bed.poll_good(b.recv_cq(), 1);
        let mut undone = Vec::new();
        for end in [&mut a, &mut b] {
            end.qp.to_error()?;
            bed.settle();
            let End { qp, send_cq, recv_cq, .. } = end;
            let mut cqs = vec![send_cq];
            cqs.extend(recv_cq);
            undone.push(qp.quiesce(&mut cqs, |_| {}).map_err(|error| error.to_string())?);
        }
        assert_eq!(undone[0], []);
        assert!(undone[1].iter().map(|one| one.wr_id).eq(1..4), "round {round}: {undone:?}");
        for end in [&mut a, &mut b] {
            end.qp.reset()?;
        }
        connect_ends(&mut a, &mut b, &options)?;
    }
    Ok(())
}
