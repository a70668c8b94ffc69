//! Completions that no correct device writes.

use crate::pair::connect_ends;
use crate::prelude::*;
use mlx5_prm::cqe::CqeOpcode;
use mlx5::{ConnectOptions, Corruption, Data, PollError};

pub(crate) const CASES: &[Case] = cases![
    an_opcode_that_is_not_known_is_corruption: SIMULATOR,
    an_opcode_that_is_not_possible_here_is_corruption: SIMULATOR,
    a_user_index_that_no_queue_has_is_corruption: SIMULATOR,
    a_send_that_completes_where_receives_do_is_corruption: SIMULATOR,
    a_receive_that_completes_where_sends_do_is_corruption: SIMULATOR,
    a_send_that_is_not_outstanding_is_corruption: SIMULATOR,
    a_completion_that_comes_twice_is_corruption: SIMULATOR,
    receives_may_complete_in_any_order: SIMULATOR,
    a_receive_that_completes_twice_is_corruption: SIMULATOR,
    a_receive_that_is_not_outstanding_is_corruption: SIMULATOR,
    a_receive_of_a_former_life_is_corruption: SIMULATOR,
    a_receive_of_a_queue_without_receives_is_corruption: SIMULATOR,
    a_shared_request_that_the_device_does_not_hold_is_corruption: SIMULATOR,
    completions_before_the_corrupt_one_are_delivered_and_none_after: SIMULATOR,
    corruption_of_one_queue_is_not_that_of_another: SIMULATOR,
    an_error_without_a_name_is_handed_on_by_number: SIMULATOR,
    whatever_a_completion_holds_polling_goes_on_or_says_why: SIMULATOR,
];

/// Offsets in a completion.
const USER_INDEX: u8 = 33;
const SYNDROME: u8 = 55;
const COUNTER: u8 = 60;
const OPCODE: u8 = 63;

/// Spoils the next completion of a queue.
fn spoil(bed: &Bed, cq: &CompletionQueue, patch: &[(u8, u8)]) {
    let fault = Fault::CorruptCqe { cqn: Some(cq.cqn()), patch: patch.to_vec() };
    bed.simulator().inject(0, fault);
}

/// Posts a signaled RDMA write, which completes with `wr_id`.
fn write(pair: &mut Pair<Rc>, wr_id: u64) -> Outcome {
    let to = pair.b.mr.remote(..)?;
    let post = Post::new(Op::Write, wr_id, Data::Inline(&[b"something"])).remote(to);
    Ok(pair.a.post(Form::Typed, post)?)
}

/// Sends a message, for which the receive `wr_id` waits at the other side.
fn send(bed: &Bed, pair: &mut Pair<Rc>, wr_id: u64) -> Outcome {
    pair.b.recv(wr_id, 0..64);
    pair.a.post(Form::Typed, Post::new(Op::Send, wr_id, Data::Inline(&[b"something"])))?;
    bed.poll_good(&mut pair.a.send_cq, 1);
    Ok(())
}

/// The corruption of a queue, which every later poll reports again.
#[track_caller]
fn corruption(bed: &Bed, cq: &mut CompletionQueue) -> Corruption {
    let PollError::Corrupt(found) = bed.poll_err(cq) else { panic!("not corrupt") };
    for _ in 0..3 {
        let again = cq.poll(16, |one| panic!("nothing can be trusted, and yet: {one:?}"));
        assert_eq!(again, Err(PollError::Corrupt(found)));
        assert_eq!(cq.poll_into(&mut []), Err(PollError::Corrupt(found)));
        assert_eq!(cq.completions().err(), Some(PollError::Corrupt(found)));
    }
    found
}

fn an_opcode_that_is_not_known_is_corruption(bed: &Bed) -> Outcome {
    for opcode in [7_u8, 8, 9, 10, 11] {
        let mut pair = bed.pair::<Rc>(&PairOptions::default())?;
        spoil(bed, &pair.a.send_cq, &[(OPCODE, opcode << 4)]);
        write(&mut pair, 1)?;
        assert_eq!(corruption(bed, &mut pair.a.send_cq), Corruption::Opcode(opcode));
    }
    Ok(())
}

fn an_opcode_that_is_not_possible_here_is_corruption(bed: &Bed) -> Outcome {
    // A completion of a resize that the driver did not ask for.
    let mut pair = bed.pair::<Rc>(&PairOptions::default())?;
    spoil(bed, &pair.a.send_cq, &[(OPCODE, 5 << 4)]);
    write(&mut pair, 1)?;
    assert_eq!(corruption(bed, &mut pair.a.send_cq), Corruption::Opcode(5));
    Ok(())
}

fn a_user_index_that_no_queue_has_is_corruption(bed: &Bed) -> Outcome {
    for index in [0xff_ffff_u32, 0x00_1000, 0x00_0ff0] {
        let mut pair = bed.pair::<Rc>(&PairOptions::default())?;
        let [_, a, b, c] = index.to_be_bytes();
        let patch = [(USER_INDEX, a), (USER_INDEX + 1, b), (USER_INDEX + 2, c)];
        spoil(bed, &pair.a.send_cq, &patch);
        write(&mut pair, 1)?;
        assert_eq!(corruption(bed, &mut pair.a.send_cq), Corruption::UserIndex(index));
    }
    Ok(())
}

/// Each completion queue of a queue pair may be polled by another thread, so a send's completion on
/// the receive queue is corruption.
fn a_send_that_completes_where_receives_do_is_corruption(bed: &Bed) -> Outcome {
    for opcode in [CqeOpcode::Requester, CqeOpcode::RequesterError] {
        let mut pair = bed.pair::<Rc>(&PairOptions::default())?;
        // One of its sends is outstanding, because the poller does not know yet that it has
        // completed.
        let to = pair.a.mr.remote(..)?;
        let post = Post::new(Op::Write, 1, Data::Inline(&[b"back"])).remote(to);
        pair.b.post(Form::Typed, post)?;
        bed.settle();
        spoil(bed, pair.b.recv_cq(), &[(OPCODE, (opcode as u8) << 4)]);
        send(bed, &mut pair, 2)?;
        let found = corruption(bed, pair.b.recv_cq());
        assert!(matches!(found, Corruption::UserIndex(_)), "{found}");
        // The other queue is unaffected.
        assert_eq!(bed.poll_good(&mut pair.b.send_cq, 1)[0].as_completion().wr_id(), 1);
    }
    Ok(())
}

fn a_receive_that_completes_where_sends_do_is_corruption(bed: &Bed) -> Outcome {
    for opcode in [CqeOpcode::ResponderSend, CqeOpcode::ResponderError] {
        let mut pair = bed.pair::<Rc>(&PairOptions::default())?;
        pair.a.recv(1, 0..64);
        spoil(bed, &pair.a.send_cq, &[(OPCODE, (opcode as u8) << 4)]);
        write(&mut pair, 2)?;
        let found = corruption(bed, &mut pair.a.send_cq);
        assert!(matches!(found, Corruption::UserIndex(_)), "{found}");
        bed.nothing(pair.a.recv_cq());
    }
    Ok(())
}

fn counter(counter: u16) -> [(u8, u8); 2] {
    let [high, low] = counter.to_be_bytes();
    [(COUNTER, high), (COUNTER + 1, low)]
}

#[track_caller]
fn strays(bed: &Bed, cq: &mut CompletionQueue, expected: u16) {
    match corruption(bed, cq) {
        Corruption::Counter { counter, .. } => assert_eq!(counter, expected),
        other => panic!("{other:?}"),
    }
}

fn a_send_that_is_not_outstanding_is_corruption(bed: &Bed) -> Outcome {
    for stray in [1, 127, 128, 0x8000, 0xffff] {
        let mut pair = bed.pair::<Rc>(&PairOptions::default())?;
        spoil(bed, &pair.a.send_cq, &counter(stray));
        write(&mut pair, 1)?;
        strays(bed, &mut pair.a.send_cq, stray);
    }
    Ok(())
}

fn a_completion_that_comes_twice_is_corruption(bed: &Bed) -> Outcome {
    let mut pair = bed.pair::<Rc>(&PairOptions::default())?;
    write(&mut pair, 1)?;
    assert_eq!(bed.poll_good(&mut pair.a.send_cq, 1)[0].as_completion().wr_id(), 1);
    spoil(bed, &pair.a.send_cq, &counter(0));
    write(&mut pair, 2)?;
    strays(bed, &mut pair.a.send_cq, 0);
    Ok(())
}

/// Posts a receive for each of the `counters`, and makes the completions name these in turn.
fn receive_as(bed: &Bed, pair: &mut Pair<Rc>, counters: &[u16]) -> Outcome {
    for wr_id in 0..counters.len() {
        pair.b.recv(wr_id as u64, 0..64);
    }
    for stray in counters {
        spoil(bed, pair.b.recv_cq(), &counter(*stray));
        pair.a.post(Form::Typed, Post::new(Op::Send, 1, Data::Inline(&[b"something"])))?;
        bed.poll_good(&mut pair.a.send_cq, 1);
    }
    Ok(())
}

/// A device that places data out of order completes receives out of order.
fn receives_may_complete_in_any_order(bed: &Bed) -> Outcome {
    for order in [[2, 1, 0, 3], [1, 2, 3, 0], [3, 0, 2, 1]] {
        let mut pair = bed.pair::<Rc>(&PairOptions::default())?;
        let all = pair.b.qp.free_receives();
        receive_as(bed, &mut pair, &order)?;
        assert_eq!(pair.b.qp.free_receives(), all - 4);
        assert_eq!(wr_ids(&bed.poll_good(pair.b.recv_cq(), 4)), order.map(u64::from));
        assert_eq!(pair.b.qp.free_receives(), all);
        // Later receives complete in order again.
        for wr_id in 10..20 {
            send(bed, &mut pair, wr_id)?;
            assert_eq!(wr_ids(&bed.poll_good(pair.b.recv_cq(), 1)), [wr_id]);
        }
    }
    Ok(())
}

fn a_receive_that_completes_twice_is_corruption(bed: &Bed) -> Outcome {
    // A receive ahead of an older one; the oldest; and one that an older one has caught up with.
    // Then the same in a later lap.
    let orders: [(&[u16], usize); 5] =
        [(&[1, 1], 1), (&[0, 0], 1), (&[1, 0, 1], 2), (&[0, 2, 1, 2], 3), (&[0, 0x8000], 1)];
    for (order, good) in orders {
        let mut pair = bed.pair::<Rc>(&PairOptions::default())?;
        receive_as(bed, &mut pair, order)?;
        bed.settle();
        let mut reported = Vec::new();
        assert_eq!(pair.b.recv_cq().poll(16, |one| reported.push(one.wr_id())), Ok(good));
        assert!(reported.iter().zip(order).all(|(wr_id, counter)| *wr_id == u64::from(*counter)));
        strays(bed, pair.b.recv_cq(), order[good]);
    }
    Ok(())
}

fn a_receive_that_is_not_outstanding_is_corruption(bed: &Bed) -> Outcome {
    for lap in [0, 0x4000, 0x8000] {
        let mut pair = bed.pair::<Rc>(&PairOptions::default())?;
        pair.b.recv(7, 64..128);
        spoil(bed, pair.b.recv_cq(), &counter(lap + 2));
        // Two receives are posted, so the third slot of the ring is free.
        send(bed, &mut pair, 8)?;
        strays(bed, pair.b.recv_cq(), lap + 2);
    }
    Ok(())
}

/// After a reset, a receive that completed out of order before is neither done nor outstanding.
fn a_receive_of_a_former_life_is_corruption(bed: &Bed) -> Outcome {
    let options = PairOptions::default();
    let mut pair = bed.pair::<Rc>(&options)?;
    receive_as(bed, &mut pair, &[2, 1])?;
    pair.b.recv(5, 0..64);
    let reported = wr_ids(&bed.poll_good(pair.b.recv_cq(), 2));
    assert_eq!(reported, [5, 1], "the third was posted before it was polled");
    for end in [&mut pair.a, &mut pair.b] {
        end.qp.modify(&QpAttributes::new().qp_state(QueueState::Reset))?;
    }
    let Pair { a, b } = &mut pair;
    connect_ends(a, b, &options)?;
    assert_eq!(b.qp.free_receives(), b.qp.caps().max_recv_wr);
    receive_as(bed, &mut pair, &[1, 2])?;
    assert_eq!(wr_ids(&bed.poll_good(pair.b.recv_cq(), 1)), [1], "which had completed before");
    strays(bed, pair.b.recv_cq(), 2);
    Ok(())
}

fn a_receive_of_a_queue_without_receives_is_corruption(bed: &Bed) -> Outcome {
    let mut pair = bed.pair::<Rc>(&PairOptions::default().one_cq(true))?;
    spoil(bed, &pair.a.send_cq, &[(OPCODE, 2 << 4)]);
    write(&mut pair, 1)?;
    strays(bed, &mut pair.a.send_cq, 0);
    Ok(())
}

fn a_shared_request_that_the_device_does_not_hold_is_corruption(bed: &Bed) -> Outcome {
    for stray in [3, 100, 0xffff] {
        let options = PairOptions::default();
        let (mut a, mut b) = (bed.end::<Rc>(&options)?, bed.end::<Rc>(&options)?);
        let mut srq = b.pd.create_srq(16).build()?;
        let receives = b.recv_cq.as_ref().ok_or("two queues")?;
        b.qp = b.pd.create_qp::<Rc>(&b.send_cq, receives).srq(&srq).build()?;
        crate::pair::connect_ends(&mut a, &mut b, &options)?;
        srq.post_recv(&[ReceiveWr { wr_id: 1, sges: &[b.mr.sge(0..64)?] }])?;
        spoil(bed, b.recv_cq(), &counter(stray));
        a.post(Form::Typed, Post::new(Op::Send, 1, Data::Inline(&[b"x"])))?;
        bed.poll_good(&mut a.send_cq, 1);
        strays(bed, b.recv_cq(), stray);
    }
    Ok(())
}

fn completions_before_the_corrupt_one_are_delivered_and_none_after(bed: &Bed) -> Outcome {
    let mut pair = bed.pair::<Rc>(&PairOptions::default())?;
    for wr_id in 0..3 {
        write(&mut pair, wr_id)?;
    }
    bed.settle();
    spoil(bed, &pair.a.send_cq, &[(OPCODE, 7 << 4)]);
    for wr_id in 3..6 {
        write(&mut pair, wr_id)?;
    }
    bed.settle();
    let mut found = Vec::new();
    // One poll returns all completions before the corrupt one.
    assert_eq!(pair.a.send_cq.poll(16, |one| found.push(one.wr_id())), Ok(3));
    assert_eq!(found, [0, 1, 2]);
    assert_eq!(corruption(bed, &mut pair.a.send_cq), Corruption::Opcode(7));
    // The queue pair and its queues can be destroyed as usual.
    pair.a.qp.destroy()?;
    pair.a.send_cq.destroy()?;
    Ok(())
}

fn corruption_of_one_queue_is_not_that_of_another(bed: &Bed) -> Outcome {
    let mut pair = bed.pair::<Rc>(&PairOptions::default().one_context(true))?;
    spoil(bed, &pair.a.send_cq, &[(OPCODE, 7 << 4)]);
    write(&mut pair, 1)?;
    corruption(bed, &mut pair.a.send_cq);
    pair.a.recv(5, 0..64);
    pair.b.post(Form::Typed, Post::new(Op::Send, 6, Data::Inline(&[b"x"])))?;
    assert_eq!(bed.poll_good(&mut pair.b.send_cq, 1)[0].as_completion().wr_id(), 6);
    assert_eq!(bed.poll_good(pair.a.recv_cq(), 1)[0].as_completion().wr_id(), 5);
    assert!(!pair.a.context.is_gone());
    Ok(())
}

fn an_error_without_a_name_is_handed_on_by_number(bed: &Bed) -> Outcome {
    let mut pair = bed.pair::<Rc>(&PairOptions::default())?;
    pair.a.qp.modify(&QpAttributes::new().qp_state(QueueState::Error))?;
    spoil(bed, &pair.a.send_cq, &[(SYNDROME, 0x99)]);
    write(&mut pair, 1)?;
    let failed = bed.poll_one(&mut pair.a.send_cq);
    let error = failed.as_completion().status().expect_err("it failed");
    assert_eq!(error.kind, CompletionErrorKind::Unknown(0x99));
    assert!(error.to_string().contains("0x99"), "{error}");
    Ok(())
}

fn whatever_a_completion_holds_polling_goes_on_or_says_why(bed: &Bed) -> Outcome {
    let end = bed.end::<Rc>(&PairOptions::default().memory(64))?;
    for seed in 0..400 {
        let noise = pattern(seed, 32);
        let mut patch: Vec<(u8, u8)> = Vec::new();
        for pair in noise.as_chunks::<2>().0.iter().take(1 + seed as usize % 16) {
            let place = pair[0] % 64;
            // The ownership bit stays, because an entry with the wrong one does not count as
            // written.
            let value = if place == OPCODE { pair[1] & !1 } else { pair[1] };
            patch.push((place, value));
        }
        let mut cq = end.context.create_cq(4).build()?;
        let mut qp = end.pd.create_qp::<Rc>(&cq, &cq).max_inline_data(16).build()?;
        qp.init(&end.port, &ConnectOptions::default())?;
        qp.post_recv(&[ReceiveWr { wr_id: seed, sges: &[] }])?;
        spoil(bed, &cq, &patch);
        qp.modify(&QpAttributes::new().qp_state(QueueState::Error))?;
        let mut batch = qp.wr_start();
        batch.wr(seed, SendFlags::SIGNALED).send().inline_data(b"flushed");
        batch.complete()?;
        bed.settle();
        let mut found = 0;
        let polled = cq.poll(16, |one| {
            found += 1;
            assert_eq!(one.wr_id(), seed, "{patch:?}");
            // All accessors of the completion must work, whatever it contains.
            let _ = format!("{one:?} {:?} {:?}", one.status(), one.to_owned());
            let _ = (one.slid(), one.has_grh(), one.timestamp(), one.solicited());
        });
        assert!(matches!(polled, Ok(_) | Err(PollError::Corrupt(_))), "{polled:?}");
        assert!(found <= 2, "{patch:?}");
        qp.destroy()?;
        cq.destroy()?;
    }
    Ok(())
}
