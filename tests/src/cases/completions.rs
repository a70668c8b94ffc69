//! Completions report what happened, to which queue pair, and nothing that they cannot know.

use crate::pair::connect_ends;
use crate::prelude::*;
use mlx5::{CqeSize, Data, LinkLayer};
use std::time::Duration;

pub(crate) const CASES: &[Case] = cases![
    two_queue_pairs_complete_on_one_queue,
    one_queue_serves_sends_and_receives: EVERY_MODEL,
    completion_names_the_sender,
    immediate_data_keeps_the_order_of_its_bytes,
    solicited_flag_arrives_and_wakes_the_waiter,
    a_failed_request_still_says_what_it_was,
    fields_without_a_meaning_are_not_reported,
    timestamps_never_go_back,
    a_copied_completion_outlives_its_place_in_the_queue,
    polling_one_by_one_gives_the_same_as_by_number,
    entries_of_both_sizes_can_be_mixed_in_a_context,
    completions_of_a_destroyed_queue_pair_are_passed_over,
];

fn two_queue_pairs_complete_on_one_queue(bed: &Bed) -> Outcome {
    let options = PairOptions::default();
    let mut first = bed.end::<Rc>(&options)?;
    let mut peers = [bed.end::<Rc>(&options)?, bed.end::<Rc>(&options)?];
    connect_ends(&mut first, &mut peers[0], &options)?;
    let second = first.pd.create_qp::<Rc>(&first.send_cq, &first.send_cq).max_inline_data(64);
    let mut second = second.build()?;
    let psn = mlx5::Psn::wrapping(5);
    let connect = mlx5::ConnectOptions::default();
    let here = second.endpoint(&first.port, psn, &connect);
    second.connect(&first.port, psn, &peers[1].endpoint(&options), &connect)?;
    Rc::wire(&mut peers[1], &here, &options)?;

    let remotes = [peers[0].mr.remote(0..)?, peers[1].mr.remote(0..)?];
    for n in 0..60_u64 {
        let bytes = n.to_le_bytes();
        let (qp, to) = match n % 3 {
            0 => (&mut second, remotes[1]),
            _ => (&mut first.qp, remotes[0]),
        };
        let mut batch = qp.wr_start();
        batch.wr(n, SendFlags::SIGNALED).rdma_write(to).inline_data(&bytes);
        batch.complete()?;
    }
    let done = bed.poll_good(&mut first.send_cq, 60);
    for (qp_num, third) in [(second.qp_num(), true), (first.qp.qp_num(), false)] {
        let mine = done.iter().filter(|c| c.as_completion().qp_num() == qp_num);
        let ids: Vec<_> = mine.map(|c| c.as_completion().wr_id()).collect();
        assert!(ids.into_iter().eq((0..60).filter(|n| (n % 3 == 0) == third)), "each in order");
    }
    crate::pattern::expect_bytes(&peers[1].mr, 0, &57_u64.to_le_bytes());
    crate::pattern::expect_bytes(&peers[0].mr, 0, &59_u64.to_le_bytes());
    Ok(())
}

fn one_queue_serves_sends_and_receives(bed: &Bed) -> Outcome {
    let Pair { mut a, mut b } = bed.pair::<Rc>(&PairOptions::default().one_cq(true))?;
    for n in 0..50 {
        a.recv(1000 + n, 0..64);
        b.recv(1000 + n, 0..64);
        a.post(Form::Typed, Post::new(Op::Send, n, Data::Inline(&[b"ping"])))?;
        b.post(Form::List, Post::new(Op::Send, n, Data::Inline(&[b"pong!"])))?;
        for (end, length) in [(&mut a, 5), (&mut b, 4)] {
            let both = bed.poll_good(&mut end.send_cq, 2);
            let (received, sent): (Vec<_>, Vec<_>) = both
                .into_iter()
                .partition(|c| c.as_completion().opcode() == CompletionOpcode::Receive);
            assert_eq!(received[0].as_completion().wr_id(), 1000 + n);
            assert_eq!(received[0].as_completion().byte_len(), Some(length));
            assert_eq!(sent[0].as_completion().wr_id(), n);
            assert_eq!(sent[0].as_completion().opcode(), CompletionOpcode::Send);
        }
    }
    Ok(())
}

fn completion_names_the_sender(bed: &Bed) -> Outcome {
    let Pair { mut a, mut b } = bed.pair::<Ud>(&PairOptions::default())?;
    b.recv(1, 0..200);
    a.post(Form::Typed, Post::new(Op::Send, 2, Data::Inline(&[b"hello"])))?;
    let received = bed.poll_good(b.recv_cq(), 1)[0];
    let received = received.as_completion();
    assert_eq!(received.src_qp(), Some(a.qp.qp_num()));
    assert_eq!(received.qp_num(), b.qp.qp_num());
    assert_eq!(received.dlid_path_bits(), Some(0));
    assert_eq!(received.pkey_index(), Some(0));
    if a.port.link_layer == LinkLayer::Ethernet {
        assert_eq!(received.has_grh(), Some(true));
    } else {
        assert_eq!(received.slid(), Some(a.port.lid));
        assert_eq!(received.service_level(), Some(0));
        assert_eq!(received.has_grh(), Some(a.port.grh_required));
    }
    bed.poll_good(&mut a.send_cq, 1);
    Ok(())
}

fn immediate_data_keeps_the_order_of_its_bytes(bed: &Bed) -> Outcome {
    let Pair { mut a, mut b } = bed.pair::<Rc>(&PairOptions::default())?;
    for (op, form) in [Op::SendImm, Op::WriteImm].into_iter().flat_map(|o| Form::ALL.map(|f| (o, f)))
    {
        for immediate in [[1, 2, 3, 4], [0xff, 0, 0, 0], [0; 4], 0xdead_beef_u32.to_be_bytes()] {
            b.recv(1, 0..64);
            let post = Post::new(op, 2, Data::Inline(&[b"data"])).immediate(immediate);
            a.post(form, post.remote(b.mr.remote(100..)?))?;
            let received = bed.poll_good(b.recv_cq(), 1)[0];
            assert_eq!(received.as_completion().imm_data(), Some(immediate));
            assert_eq!(received.as_completion().invalidated_rkey(), None);
            let sent = bed.poll_good(&mut a.send_cq, 1)[0];
            assert_eq!(sent.as_completion().imm_data(), None);
        }
    }
    Ok(())
}

fn solicited_flag_arrives_and_wakes_the_waiter(bed: &Bed) -> Outcome {
    let Pair { mut a, b } = bed.pair::<Rc>(&PairOptions::default())?;
    let End { qp, mr, port, context, pd, .. } = b;
    drop(qp);
    let channel = context.create_comp_channel()?;
    let mut cq = context.create_cq(16).cqe_size(bed.cqe_size()).channel(&channel).build()?;
    let mut qp = pd.create_qp::<Rc>(&cq, &cq).build()?;
    let psn = mlx5::Psn::wrapping(9);
    let (options, connect) = (PairOptions::default(), mlx5::ConnectOptions::default());
    a.qp.modify(&QpAttributes::new().qp_state(QueueState::Reset))?;
    let (here, there) = (qp.endpoint(&port, psn, &connect), a.endpoint(&options));
    qp.connect(&port, psn, &there, &connect)?;
    Rc::wire(&mut a, &here, &options)?;

    cq.arm(true)?;
    for solicited in [false, true] {
        let sges = [mr.sge(0..64)?];
        qp.post_recv(&[ReceiveWr { wr_id: 1, sges: &sges }])?;
        let mut flags = SendFlags::SIGNALED;
        flags.set(SendFlags::SOLICITED, solicited);
        a.post(Form::Typed, Post::new(Op::Send, 2, Data::Inline(&[b"wake"])).flags(flags))?;
        bed.poll_good(&mut a.send_cq, 1);
        let received = bed.poll_good(&mut cq, 1)[0];
        assert_eq!(received.as_completion().solicited(), solicited);
        if solicited {
            let event = channel.wait(Some(Duration::from_secs(10)))?;
            assert_eq!(event, Some(cq.id()));
        } else {
            bed.settle();
            assert_eq!(channel.get_event()?, None, "no event was asked for");
        }
    }
    Ok(())
}

fn a_failed_request_still_says_what_it_was(bed: &Bed) -> Outcome {
    for op in [Op::Write, Op::WriteImm, Op::Read] {
        let Pair { mut a, b } = bed.pair::<Rc>(&PairOptions::default())?;
        let sges = [a.mr.sge(0..8)?];
        let wrong = RemoteAddress { addr: b.mr.addr(), rkey: !b.mr.rkey() };
        a.post(Form::Typed, Post::new(op, 0xabcd, Data::Sges(&sges)).remote(wrong))?;
        let failed = bed.poll_one(&mut a.send_cq);
        assert_eq!(syndrome(&failed), Some(Syndrome::RemoteAccess));
        let failed = failed.as_completion();
        assert_eq!(failed.opcode(), op.completion());
        assert_eq!((failed.wr_id(), failed.qp_num()), (0xabcd, a.qp.qp_num()));
        assert!(!failed.is_success() && !failed.cancelled());
        let error = failed.status().expect_err("failed");
        assert!(!error.is_flushed() && error.vendor != 0);
        assert!(error.to_string().contains("remote access"), "{error}");
        assert_eq!(failed.byte_len(), None);
        assert_eq!(failed.timestamp(), None);
    }
    Ok(())
}

fn fields_without_a_meaning_are_not_reported(bed: &Bed) -> Outcome {
    let Pair { mut a, mut b } = bed.pair::<Rc>(&PairOptions::default())?;
    b.recv(1, 0..64);
    a.post(Form::Typed, Post::new(Op::Send, 2, Data::Inline(&[b"hello"])))?;
    let sent = bed.poll_good(&mut a.send_cq, 1)[0];
    let sent = sent.as_completion();
    assert_eq!((sent.byte_len(), sent.imm_data(), sent.src_qp()), (None, None, None));
    assert_eq!((sent.slid(), sent.has_grh(), sent.pkey_index()), (None, None, None));
    assert_eq!((sent.service_level(), sent.dlid_path_bits()), (None, None));
    assert_eq!(sent.invalidated_rkey(), None);
    let received = bed.poll_good(b.recv_cq(), 1)[0];
    let received = received.as_completion();
    assert_eq!((received.byte_len(), received.imm_data()), (Some(5), None));
    assert_eq!(received.invalidated_rkey(), None);
    Ok(())
}

fn timestamps_never_go_back(bed: &Bed) -> Outcome {
    let Pair { mut a, b } = bed.pair::<Rc>(&PairOptions::default())?;
    let mut last = 0;
    for n in 0..20 {
        let write = Post::new(Op::Write, n, Data::Inline(&[b"tick"]));
        a.post(Form::Typed, write.remote(b.mr.remote(0..)?))?;
        let done = bed.poll_good(&mut a.send_cq, 1)[0];
        let now = done.as_completion().timestamp().ok_or("a good completion has a time")?;
        assert!(now >= last, "{now} after {last}");
        last = now;
    }
    Ok(())
}

fn a_copied_completion_outlives_its_place_in_the_queue(bed: &Bed) -> Outcome {
    let Pair { mut a, mut b } = bed.pair::<Rc>(&PairOptions::default().cq_entries(3))?;
    let mut kept = Vec::new();
    for n in 0..12_u64 {
        b.recv(n, 0..64);
        let bytes = vec![n as u8; 1 + n as usize];
        let pieces = [&bytes[..]];
        let post = Post::new(Op::SendImm, n, Data::Inline(&pieces));
        a.post(Form::Typed, post.immediate((n as u32).to_be_bytes()))?;
        bed.poll_good(&mut a.send_cq, 1);
        kept.push(bed.poll_good(b.recv_cq(), 1)[0]);
    }
    for (n, completion) in kept.iter().enumerate() {
        let completion = completion.as_completion();
        assert_eq!(completion.wr_id(), n as u64);
        assert_eq!(completion.byte_len(), Some(1 + n as u32));
        assert_eq!(completion.imm_data(), Some((n as u32).to_be_bytes()));
    }
    Ok(())
}

fn polling_one_by_one_gives_the_same_as_by_number(bed: &Bed) -> Outcome {
    let Pair { mut a, b } = bed.pair::<Rc>(&PairOptions::default())?;
    let mut found = Vec::new();
    let mut copies = [bed_completion(bed, &mut a, &b, 0)?; 4];
    for round in 0..8 {
        for n in 0..5 {
            let write = Post::new(Op::Write, 1 + round * 5 + n, Data::Inline(&[b"x"]));
            a.post(Form::Typed, write.remote(b.mr.remote(0..)?))?;
        }
        bed.settle();
        let before = found.len();
        bed.until("five completions", || {
            let cq = &mut a.send_cq;
            match round % 3 {
                0 => {
                    let mut completions = cq.completions().expect("sound");
                    while let Some(completion) = completions.next() {
                        found.push(completion.wr_id());
                    }
                    completions.finish().expect("sound");
                }
                1 => {
                    let count = cq.poll_into(&mut copies).expect("sound");
                    found.extend(wr_ids(&copies[..count]));
                }
                _ => {
                    let count = cq.poll(2, |c| found.push(c.wr_id())).expect("sound");
                    assert!(count <= 2);
                }
            }
            found.len() == before + 5
        });
    }
    assert!(found.into_iter().eq(1..=40));
    Ok(())
}

/// A completion to start with.
fn bed_completion(
    bed: &Bed,
    a: &mut End<Rc>,
    b: &End<Rc>,
    wr_id: u64,
) -> Result<OwnedCompletion, Failed> {
    let write = Post::new(Op::Write, wr_id, Data::Inline(&[b"x"]));
    a.post(Form::Typed, write.remote(b.mr.remote(0..)?))?;
    Ok(bed.poll_good(&mut a.send_cq, 1)[0])
}

fn entries_of_both_sizes_can_be_mixed_in_a_context(bed: &Bed) -> Outcome {
    let context = bed.context();
    let pd = context.alloc_pd()?;
    let mr = pd.memory(4096).access(crate::pair::ALL_ACCESS).register()?;
    let mut small = context.create_cq(16).cqe_size(CqeSize::Bytes64).build()?;
    let mut large = context.create_cq(16).cqe_size(CqeSize::Bytes128).build()?;
    let port = context.local_port(bed.port(), None)?;
    let connect = mlx5::ConnectOptions::default();
    let mut a = pd.create_qp::<Rc>(&small, &large).max_inline_data(32).build()?;
    let mut b = pd.create_qp::<Rc>(&large, &small).max_inline_data(32).build()?;
    let psn = mlx5::Psn::wrapping(1);
    let (at_a, at_b) = (a.endpoint(&port, psn, &connect), b.endpoint(&port, psn, &connect));
    a.connect(&port, psn, &at_b, &connect)?;
    b.connect(&port, psn, &at_a, &connect)?;
    for n in 0..40 {
        for (from, to) in [(0, 1), (1, 0)] {
            let ends = [&mut a, &mut b];
            let sges = [mr.sge(0..64)?];
            ends[to].post_recv(&[ReceiveWr { wr_id: 500 + n, sges: &sges }])?;
            let mut batch = ends[from].wr_start();
            batch.wr(n, SendFlags::SIGNALED).send().inline_data(b"across");
            batch.complete()?;
            let cq = if from == 0 { &mut small } else { &mut large };
            let mut both = wr_ids(&bed.poll_good(cq, 2));
            both.sort_unstable();
            assert_eq!(both, [n, 500 + n]);
        }
    }
    Ok(())
}

fn completions_of_a_destroyed_queue_pair_are_passed_over(bed: &Bed) -> Outcome {
    let options = PairOptions::default().one_context(true);
    let Pair { mut a, b } = bed.pair::<Rc>(&options)?;
    for n in 0..10 {
        let write = Post::new(Op::Write, n, Data::Inline(&[b"x"]));
        a.post(Form::Typed, write.remote(b.mr.remote(0..)?))?;
    }
    let End { qp, mut send_cq, recv_cq, port, pd, context, .. } = a;
    bed.settle();
    qp.destroy()?;
    // Completions of another queue pair on the same queue arrive; those of the old one do not.
    let mut other = pd.create_qp::<Rc>(&send_cq, &send_cq).max_inline_data(32).build()?;
    let psn = mlx5::Psn::wrapping(3);
    let connect = mlx5::ConnectOptions::default();
    let here = other.endpoint(&port, psn, &connect);
    other.connect(&port, psn, &here, &connect)?;
    let mut batch = other.wr_start();
    batch.wr(77, SendFlags::SIGNALED).rdma_write(b.mr.remote(0..)?).inline_data(b"y");
    // The other region belongs to another domain: the request fails, and that is the only effect.
    batch.complete()?;
    let seen = bed.poll(&mut send_cq, 1);
    assert_eq!(wr_ids(&seen), [77]);
    bed.nothing(&mut send_cq);
    drop((recv_cq, context));
    Ok(())
}
