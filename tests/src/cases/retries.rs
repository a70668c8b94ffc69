//! A reliable connection retries as often as it is set to, and then fails with an error.

use crate::pair::connect_ends;
use crate::prelude::*;
use mlx5::{AckTimeout, ConnectOptions, Data, LinkLayer, RetryCount, RnrTimer};

pub(crate) const CASES: &[Case] = cases![
    a_send_waits_for_a_late_receive,
    a_write_with_immediate_data_waits_for_a_late_receive,
    a_sender_gives_up_when_the_receiver_stays_not_ready,
    a_shared_receive_queue_that_is_empty_makes_the_sender_wait,
    a_sender_gives_up_when_the_peer_does_not_answer: TIMEOUTS,
    a_sender_gives_up_when_the_peer_is_destroyed: TIMEOUTS,
    lost_packets_are_sent_again: SIMULATOR,
    more_lost_packets_than_retries_fail_the_request: SIMULATOR,
    an_unreliable_message_that_is_lost_is_lost_alone: SIMULATOR,
    a_lost_datagram_is_lost_alone: SIMULATOR,
    a_request_that_the_device_fails_has_the_devices_code: SIMULATOR,
];

/// Options with few retries and short timeouts.
fn impatient() -> Result<ConnectOptions, Failed> {
    Ok(ConnectOptions::default()
        .timeout(AckTimeout::new(8)?)
        .retry_cnt(RetryCount::new(2)?)
        .rnr_retry(RetryCount::new(2)?)
        .min_rnr_timer(RnrTimer::new(1)?))
}

fn late_receive(bed: &Bed, op: Op) -> Outcome {
    let Pair { mut a, mut b } = bed.pair::<Rc>(&PairOptions::default())?;
    for form in Form::ALL {
        for n in 0..3 {
            let post = Post::new(op, n, Data::Inline(&[b"patient"]));
            a.post(form, post.remote(b.mr.remote(512..)?))?;
        }
        bed.nothing(&mut a.send_cq);
        for n in 0..3 {
            b.recv(10 + n, 0..64);
            assert_eq!(wr_ids(&bed.poll_good(&mut a.send_cq, 1)), [n]);
            assert_eq!(wr_ids(&bed.poll_good(b.recv_cq(), 1)), [10 + n]);
        }
        crate::pattern::expect_bytes(&b.mr, if op == Op::Send { 0 } else { 512 }, b"patient");
    }
    Ok(())
}

fn a_send_waits_for_a_late_receive(bed: &Bed) -> Outcome {
    late_receive(bed, Op::Send)
}

fn a_write_with_immediate_data_waits_for_a_late_receive(bed: &Bed) -> Outcome {
    late_receive(bed, Op::WriteImm)
}

fn a_sender_gives_up_when_the_receiver_stays_not_ready(bed: &Bed) -> Outcome {
    for retries in [0, 1, 6] {
        let connect = impatient()?.rnr_retry(RetryCount::new(retries)?);
        let options = PairOptions::default().connect(Some(connect));
        let Pair { mut a, mut b } = bed.pair::<Rc>(&options)?;
        for n in 0..3 {
            a.post(Form::Typed, Post::new(Op::Send, n, Data::Inline(&[b"x"])))?;
        }
        let done = bed.poll(&mut a.send_cq, 3);
        assert_eq!(syndrome(&done[0]), Some(Syndrome::RnrRetryExceeded));
        assert_eq!(flushed(&done[1..]), [1, 2]);
        // The receiver made no mistake, and is unaffected.
        bed.nothing(b.recv_cq());
        assert_eq!(b.qp.query()?.qp_state, QueueState::ReadyToSend);
    }
    Ok(())
}

fn a_shared_receive_queue_that_is_empty_makes_the_sender_wait(bed: &Bed) -> Outcome {
    let options = PairOptions::default();
    let mut a = bed.end::<Rc>(&options)?;
    let b = bed.end::<Rc>(&options)?;
    let mut srq = b.pd.create_srq(4).build()?;
    let mut cq = b.context.create_cq(16).build()?;
    let mut qp = b.pd.create_qp::<Rc>(&cq, &cq).srq(&srq).build()?;
    let psn = mlx5::Psn::wrapping(11);
    let connect = ConnectOptions::default();
    let here = qp.endpoint(&b.port, psn, &connect);
    qp.connect(&b.port, psn, &a.endpoint(&options), &connect)?;
    Rc::wire(&mut a, &here, &options)?;
    a.post(Form::Typed, Post::new(Op::Send, 1, Data::Inline(&[b"shared"])))?;
    bed.nothing(&mut a.send_cq);
    srq.post_recv(&[ReceiveWr { wr_id: 2, sges: &[b.mr.sge(0..64)?] }])?;
    bed.poll_good(&mut a.send_cq, 1);
    assert_eq!(wr_ids(&bed.poll_good(&mut cq, 1)), [2]);
    crate::pattern::expect_bytes(&b.mr, 0, b"shared");
    Ok(())
}

/// A pair whose `b` then disappears through `leave`.
fn peer_leaves(bed: &Bed, leave: impl Fn(&mut End<Rc>) -> Outcome) -> Outcome {
    for op in [Op::Send, Op::Write, Op::Read] {
        let options = PairOptions::default().connect(Some(impatient()?));
        let Pair { mut a, mut b } = bed.pair::<Rc>(&options)?;
        leave(&mut b)?;
        a.recv(9, 0..64);
        let sges = [a.mr.sge(0..64)?];
        for n in 0..2 {
            let post = Post::new(op, n, Data::Sges(&sges)).remote(b.mr.remote(0..)?);
            a.post(Form::Typed, post)?;
        }
        let done = bed.poll(&mut a.send_cq, 2);
        assert_eq!(syndrome(&done[0]), Some(Syndrome::RetryExceeded));
        assert_eq!(flushed(&done[1..]), [1]);
        assert_eq!(flushed(&bed.poll(a.recv_cq(), 1)), [9]);
        bed.nothing(b.recv_cq());
    }
    Ok(())
}

fn a_sender_gives_up_when_the_peer_does_not_answer(bed: &Bed) -> Outcome {
    for state in [QueueState::Reset, QueueState::Error] {
        peer_leaves(bed, |b| Ok(b.qp.modify(&QpAttributes::new().qp_state(state))?))?;
    }
    Ok(())
}

fn a_sender_gives_up_when_the_peer_is_destroyed(bed: &Bed) -> Outcome {
    peer_leaves(bed, |b| {
        let cq = b.recv_cq.as_ref().unwrap_or(&b.send_cq);
        let replacement = b.pd.create_qp::<Rc>(&b.send_cq, cq).build()?;
        std::mem::replace(&mut b.qp, replacement).destroy()?;
        Ok(())
    })
}

fn lost_packets_are_sent_again(bed: &Bed) -> Outcome {
    let Pair { mut a, mut b } = bed.pair::<Rc>(&PairOptions::default())?;
    for (n, op) in [Op::Send, Op::Write, Op::WriteImm, Op::Read].into_iter().enumerate() {
        for lost in 1..=3 {
            let length = 20_000;
            let from = if op == Op::Read { &b.mr } else { &a.mr };
            fill(from, 0, lost, length)?;
            if op.is_received() {
                b.recv(1, 30_000..30_000 + length);
            }
            let sges = match op {
                Op::Read => [a.mr.sge(30_000..30_000 + length)?],
                _ => [a.mr.sge(0..length)?],
            };
            let remote = b.mr.remote(if op == Op::Read { 0 } else { 30_000 }..)?;
            bed.simulator().inject(0, Fault::DropPackets(lost as u32));
            a.post(Form::ALL[n % 2], Post::new(op, 2, Data::Sges(&sges)).remote(remote))?;
            bed.poll_good(&mut a.send_cq, 1);
            if op.is_received() {
                bed.poll_good(b.recv_cq(), 1);
            }
            verify(if op == Op::Read { &a.mr } else { &b.mr }, 30_000, lost, length);
        }
    }
    Ok(())
}

fn more_lost_packets_than_retries_fail_the_request(bed: &Bed) -> Outcome {
    for retries in [0, 3, 7] {
        let connect = impatient()?.retry_cnt(RetryCount::new(retries)?);
        let options = PairOptions::default().connect(Some(connect));
        let Pair { mut a, mut b } = bed.pair::<Rc>(&options)?;
        b.recv(1, 0..64);
        // On Ethernet none acts as seven.
        let ethernet = a.context.query_port(bed.port())?.link_layer == LinkLayer::Ethernet;
        let retries = if retries == 0 && ethernet { 7 } else { u32::from(retries) };
        bed.simulator().inject(0, Fault::DropPackets(retries));
        a.post(Form::Typed, Post::new(Op::Send, 2, Data::Inline(&[b"just so"])))?;
        bed.poll_good(&mut a.send_cq, 1);
        bed.poll_good(b.recv_cq(), 1);
        bed.simulator().inject(0, Fault::DropPackets(retries + 1));
        a.post(Form::Typed, Post::new(Op::Send, 3, Data::Inline(&[b"too many"])))?;
        let failed = bed.poll_one(&mut a.send_cq);
        assert_eq!(syndrome(&failed), Some(Syndrome::RetryExceeded));
    }
    Ok(())
}

fn an_unreliable_message_that_is_lost_is_lost_alone(bed: &Bed) -> Outcome {
    let Pair { mut a, mut b } = bed.pair::<Uc>(&PairOptions::default())?;
    for n in 0..4 {
        b.recv(n, n as usize * 64..n as usize * 64 + 64);
    }
    for n in 0..5_u8 {
        if n == 2 {
            bed.simulator().inject(0, Fault::DropPackets(1));
        }
        let bytes = [n; 8];
        let pieces = [&bytes[..]];
        a.post(Form::Typed, Post::new(Op::Send, n.into(), Data::Inline(&pieces)))?;
        bed.poll_good(&mut a.send_cq, 1);
    }
    assert_eq!(wr_ids(&bed.poll_good(b.recv_cq(), 4)), [0, 1, 2, 3]);
    for (slot, sent) in [0, 1, 3, 4].into_iter().enumerate() {
        crate::pattern::expect_bytes(&b.mr, slot * 64, &[sent; 8]);
    }
    Ok(())
}

fn a_lost_datagram_is_lost_alone(bed: &Bed) -> Outcome {
    let Pair { mut a, mut b } = bed.pair::<Ud>(&PairOptions::default())?;
    b.recv(0, 0..64);
    b.recv(1, 64..128);
    for n in 0..3_u8 {
        if n == 1 {
            bed.simulator().inject(0, Fault::DropPackets(1));
        }
        let bytes = [n + 1; 8];
        let pieces = [&bytes[..]];
        a.post(Form::List, Post::new(Op::Send, n.into(), Data::Inline(&pieces)))?;
        bed.poll_good(&mut a.send_cq, 1);
    }
    assert_eq!(wr_ids(&bed.poll_good(b.recv_cq(), 2)), [0, 1]);
    crate::pattern::expect_bytes(&b.mr, 40, &[1; 8]);
    crate::pattern::expect_bytes(&b.mr, 64 + 40, &[3; 8]);
    Ok(())
}

fn a_request_that_the_device_fails_has_the_devices_code(bed: &Bed) -> Outcome {
    for &expected in Syndrome::ALL {
        if expected == Syndrome::WorkRequestFlushed {
            continue;
        }
        let options = PairOptions::default();
        let (mut a, mut b) = (bed.end::<Rc>(&options)?, bed.end::<Rc>(&options)?);
        connect_ends(&mut a, &mut b, &options)?;
        let qpn = Some(a.qp.qp_num());
        let fault = Fault::FailRequest { qpn, syndrome: expected, vendor: 0x5a };
        bed.simulator().inject(0, fault);
        a.post(Form::Typed, Post::new(Op::Send, 1, Data::Inline(&[b"x"])))?;
        let failed = bed.poll_one(&mut a.send_cq);
        assert_eq!(syndrome(&failed), Some(expected));
        let error = failed.as_completion().status().expect_err("failed");
        assert_eq!(error.vendor, 0x5a);
        assert!(error.to_string().contains(expected.text()), "{error}");
    }
    Ok(())
}
