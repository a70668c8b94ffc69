//! A queue pair in the error state flushes everything posted: each request once, in order.

use crate::pair::connect_ends;
use crate::prelude::*;
use mlx5::{AsyncEvent, Data, PollError};

pub(crate) const CASES: &[Case] = cases![
    every_pending_send_is_flushed_once_in_order_unsignaled_ones_too: EVERY_MODEL,
    every_pending_receive_is_flushed_once_in_order: EVERY_MODEL,
    sends_of_all_sizes_are_flushed_across_the_end_of_the_ring,
    requests_posted_in_error_are_flushed_too,
    a_flush_leaves_what_was_done_as_it_was,
    both_sides_of_a_queue_pair_flush_to_one_queue,
    unreliable_queue_pairs_flush_as_well,
    a_shared_receive_queue_keeps_its_requests,
    a_flush_into_a_full_completion_queue_is_an_overrun,
    after_a_flush_and_a_reset_the_queue_pair_is_as_new,
];

/// Brings a queue pair to error.
fn to_error<T: Wired>(qp: &mut QueuePair<T>) -> Outcome {
    Ok(qp.modify(&QpAttributes::new().qp_state(QueueState::Error))?)
}

/// Sends that cannot complete, because there is no receive.
fn stuck(n: u64) -> Post<'static> {
    let flags = if n % 4 == 3 { SendFlags::SIGNALED } else { SendFlags::empty() };
    Post::new(Op::Send, n, Data::Inline(&[b"stuck"])).flags(flags)
}

fn every_pending_send_is_flushed_once_in_order_unsignaled_ones_too(bed: &Bed) -> Outcome {
    for (count, form) in [1, 7, 60].into_iter().flat_map(|count| Form::ALL.map(|f| (count, f))) {
        let Pair { mut a, b } = bed.pair::<Rc>(&PairOptions::default())?;
        let posts: Vec<_> = (0..count).map(stuck).collect();
        a.post_all(form, &posts)?;
        bed.nothing(&mut a.send_cq);
        to_error(&mut a.qp)?;
        assert!(flushed(&bed.poll(&mut a.send_cq, count as usize)).into_iter().eq(0..count));
        bed.nothing(&mut a.send_cq);
        assert_eq!(a.qp.free_send_blocks(), a.qp.caps().send_blocks);
        drop(b);
    }
    Ok(())
}

fn every_pending_receive_is_flushed_once_in_order(bed: &Bed) -> Outcome {
    for count in [1, 13, 64] {
        let Pair { mut a, b: _b } = bed.pair::<Rc>(&PairOptions::default())?;
        for n in 0..count {
            a.recv(n, 0..64);
        }
        to_error(&mut a.qp)?;
        let done = bed.poll(a.recv_cq(), count as usize);
        assert!(flushed(&done).into_iter().eq(0..count));
        assert!(done.iter().all(|c| c.as_completion().opcode() == CompletionOpcode::Receive));
        bed.nothing(a.recv_cq());
        assert_eq!(a.qp.free_receives(), a.qp.caps().max_recv_wr);
    }
    Ok(())
}

fn sends_of_all_sizes_are_flushed_across_the_end_of_the_ring(bed: &Bed) -> Outcome {
    let options = PairOptions::default().send_wr(10).inline(240);
    for shift in 0..8 {
        let Pair { mut a, mut b } = bed.pair::<Rc>(&options)?;
        for n in 0..shift {
            let write = Post::new(Op::Write, n, Data::Inline(&[b"shift"]));
            a.post(Form::Typed, write.remote(b.mr.remote(0..)?))?;
        }
        bed.poll_good(&mut a.send_cq, shift as usize);
        // The ring is full of stuck requests of one to four blocks each.
        let bytes = pattern(1, 240);
        let mut count = 0_u64;
        loop {
            let pieces = [&bytes[..1 + (count as usize * 97) % 240]];
            let mut post = Post::new(Op::Send, count, Data::Inline(&pieces));
            if !count.is_multiple_of(3) {
                post = post.flags(SendFlags::empty());
            }
            match a.post(Form::ALL[(count % 2) as usize], post) {
                Ok(()) => count += 1,
                Err(PostError::QueueFull { .. }) => break,
                Err(other) => return Err(other.into()),
            }
        }
        to_error(&mut a.qp)?;
        let done = bed.poll(&mut a.send_cq, count as usize);
        assert!(flushed(&done).into_iter().eq(0..count));
        assert_eq!(a.qp.free_send_blocks(), a.qp.caps().send_blocks);
        bed.nothing(&mut a.send_cq);
        bed.nothing(b.recv_cq());
    }
    Ok(())
}

fn requests_posted_in_error_are_flushed_too(bed: &Bed) -> Outcome {
    let Pair { mut a, b } = bed.pair::<Rc>(&PairOptions::default())?;
    to_error(&mut a.qp)?;
    for n in 0..200 {
        let post = Post::new(Op::Write, n, Data::Inline(&[b"late"])).flags(SendFlags::empty());
        a.post(Form::ALL[(n % 2) as usize], post.remote(b.mr.remote(0..)?))?;
        a.recv(1000 + n, 0..64);
        assert_eq!(flushed(&bed.poll(&mut a.send_cq, 1)), [n]);
        assert_eq!(flushed(&bed.poll(a.recv_cq(), 1)), [1000 + n]);
    }
    untouched(&b.mr, 0..64);
    Ok(())
}

fn a_flush_leaves_what_was_done_as_it_was(bed: &Bed) -> Outcome {
    let Pair { mut a, mut b } = bed.pair::<Rc>(&PairOptions::default())?;
    for n in 0..5 {
        b.recv(n, n as usize * 64..n as usize * 64 + 64);
    }
    for n in 0..12 {
        a.post(Form::Typed, stuck(n))?;
    }
    bed.poll_good(b.recv_cq(), 5);
    to_error(&mut a.qp)?;
    // The fourth was signaled and executed; the first three and the fifth were executed, but not
    // signaled.
    let done = bed.poll(&mut a.send_cq, 8);
    assert_eq!(syndrome(&done[0]), None);
    assert_eq!(done[0].as_completion().wr_id(), 3);
    assert!(flushed(&done[1..]).into_iter().eq(5..12));
    bed.nothing(&mut a.send_cq);
    for n in 0..5 {
        crate::pattern::expect_bytes(&b.mr, n * 64, b"stuck");
    }
    Ok(())
}

fn both_sides_of_a_queue_pair_flush_to_one_queue(bed: &Bed) -> Outcome {
    let Pair { mut a, b: _b } = bed.pair::<Rc>(&PairOptions::default().one_cq(true))?;
    for n in 0..20 {
        a.post(Form::Typed, stuck(n))?;
        a.recv(100 + n, 0..64);
    }
    to_error(&mut a.qp)?;
    let ids = flushed(&bed.poll(&mut a.send_cq, 40));
    let (sends, receives): (Vec<u64>, Vec<u64>) = ids.into_iter().partition(|id| *id < 100);
    assert!(sends.into_iter().eq(0..20));
    assert!(receives.into_iter().eq(100..120));
    bed.nothing(&mut a.send_cq);
    Ok(())
}

fn flushes<T: Traffic>(bed: &Bed) -> Outcome {
    let Pair { mut a, b: _b } = bed.pair::<T>(&PairOptions::default())?;
    for n in 0..20 {
        a.recv(n, 0..64);
    }
    to_error(&mut a.qp)?;
    for n in 0..20 {
        a.post(Form::Typed, stuck(n))?;
    }
    assert!(flushed(&bed.poll(&mut a.send_cq, 20)).into_iter().eq(0..20));
    assert!(flushed(&bed.poll(a.recv_cq(), 20)).into_iter().eq(0..20));
    bed.nothing(&mut a.send_cq);
    bed.nothing(a.recv_cq());
    Ok(())
}

fn unreliable_queue_pairs_flush_as_well(bed: &Bed) -> Outcome {
    flushes::<Uc>(bed)?;
    flushes::<Ud>(bed)
}

fn a_shared_receive_queue_keeps_its_requests(bed: &Bed) -> Outcome {
    let options = PairOptions::default();
    let home = bed.end::<Rc>(&options)?;
    let mut srq = home.pd.create_srq(8).build()?;
    let mut cq = home.context.create_cq(32).cqe_size(bed.cqe_size()).build()?;
    let connect = mlx5::ConnectOptions::default();
    let events = home.context.async_events();
    for n in 0..8 {
        let at = n as usize * 64;
        srq.post_recv(&[ReceiveWr { wr_id: n, sges: &[home.mr.sge(at..at + 64)?] }])?;
    }
    for n in 0..4 {
        let mut sender = bed.end::<Rc>(&options)?;
        let mut qp = home.pd.create_qp::<Rc>(&cq, &cq).srq(&srq).build()?;
        let psn = mlx5::Psn::wrapping(n as u32);
        let here = qp.endpoint(&home.port, psn, &connect);
        qp.connect(&home.port, psn, &sender.endpoint(&options), &connect)?;
        Rc::wire(&mut sender, &here, &options)?;
        sender.post(Form::Typed, Post::new(Op::Send, 1, Data::Inline(&[b"mine"])))?;
        bed.poll_good(&mut sender.send_cq, 1);
        assert_eq!(wr_ids(&bed.poll_good(&mut cq, 1)), [n], "the next that was posted");
        // The flush leaves the requests of the shared queue, which other queue pairs may still use.
        to_error(&mut qp)?;
        let last = AsyncEvent::QpLastWqeReached(qp.id());
        bed.until("the last request", || events.next().expect("there") == Some(last));
        bed.nothing(&mut cq);
    }
    Ok(())
}

fn a_flush_into_a_full_completion_queue_is_an_overrun(bed: &Bed) -> Outcome {
    let options = PairOptions::default().cq_entries(3);
    let (mut a, mut b) = (bed.end::<Rc>(&options)?, bed.end::<Rc>(&options)?);
    connect_ends(&mut a, &mut b, &options)?;
    let room = u64::from(a.send_cq.capacity()) + 1;
    for n in 0..room + 4 {
        a.post(Form::Typed, stuck(n))?;
    }
    to_error(&mut a.qp)?;
    let events = a.context.async_events();
    let expected = AsyncEvent::CqError(a.send_cq.id());
    bed.until("an overrun", || events.next().expect("there") == Some(expected));
    let mut found = Vec::new();
    let polled = a.send_cq.poll(64, |completion| found.push(completion.to_owned()));
    assert_eq!(polled, Ok::<_, PollError>(room as usize));
    assert!(flushed(&found).into_iter().eq(0..room));
    Ok(())
}

fn after_a_flush_and_a_reset_the_queue_pair_is_as_new(bed: &Bed) -> Outcome {
    let options = PairOptions::default();
    let Pair { mut a, mut b } = bed.pair::<Rc>(&options)?;
    for round in 0..12_u64 {
        for n in 0..10 + round {
            a.post(Form::Typed, stuck(n))?;
            a.recv(n, 0..64);
        }
        to_error(&mut a.qp)?;
        bed.poll(&mut a.send_cq, 10 + round as usize);
        bed.poll(a.recv_cq(), 10 + round as usize);
        for end in [&mut a, &mut b] {
            end.qp.modify(&QpAttributes::new().qp_state(QueueState::Reset))?;
        }
        connect_ends(&mut a, &mut b, &options)?;
        assert_eq!(a.qp.free_send_blocks(), a.qp.caps().send_blocks);
        assert_eq!(a.qp.free_receives(), a.qp.caps().max_recv_wr);
        b.recv(1, 0..64);
        let bytes = round.to_le_bytes();
        let pieces = [&bytes[..]];
        a.post(Form::Typed, Post::new(Op::Send, 2, Data::Inline(&pieces)))?;
        assert_eq!(wr_ids(&bed.poll_good(&mut a.send_cq, 1)), [2]);
        assert_eq!(wr_ids(&bed.poll_good(b.recv_cq(), 1)), [1]);
        crate::pattern::expect_bytes(&b.mr, 0, &bytes);
    }
    Ok(())
}
