//! Requests reach only memory that they have a right to; otherwise both sides get an error.

use crate::prelude::*;
use mlx5::{AsyncEvent, ConnectOptions, Data};

pub(crate) const CASES: &[Case] = cases![
    a_remote_key_that_is_wrong_in_any_way_fails_the_request_and_both_queue_pairs: EVERY_MODEL,
    a_remote_key_without_the_right_fails_the_request,
    a_queue_pair_that_does_not_grant_a_right_refuses_it_to_all_keys,
    an_unreliable_write_that_is_not_allowed_vanishes,
    a_local_key_that_is_wrong_in_any_way_fails_the_request: EVERY_MODEL,
    a_read_needs_the_right_to_write_at_home,
    a_receive_into_memory_that_may_not_be_written_fails_both_sides,
    a_receive_that_is_too_short_fails_both_sides,
    a_receive_ends_with_its_list_and_not_with_that_of_a_lap_before,
    a_datagram_from_memory_of_another_domain_stops_its_sender_only,
    access_up_to_the_last_byte_is_allowed_and_not_one_beyond,
    requests_before_a_failure_arrive_and_later_ones_are_flushed,
];

/// The fault of an address or key.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    Index,
    Tag,
    Before,
    Beyond,
    Straddling,
    Domain,
    Deregistered,
}

impl Wrong {
    const ALL: [Self; 7] = [
        Self::Index,
        Self::Tag,
        Self::Before,
        Self::Beyond,
        Self::Straddling,
        Self::Domain,
        Self::Deregistered,
    ];

    /// A faulty address and key for 64 bytes in `mr`; `other` is of another domain.
    fn spoil(self, mr: &MemoryRegion, other: &MemoryRegion, gone: (u64, u32)) -> (u64, u32) {
        let (start, end) = (mr.addr(), mr.addr() + mr.len() as u64);
        match self {
            Self::Index => (start, mr.rkey() ^ 0x5555_0000),
            Self::Tag => (start, mr.rkey() ^ 0x55),
            Self::Before => (start - 64, mr.rkey()),
            Self::Beyond => (end, mr.rkey()),
            Self::Straddling => (end - 63, mr.rkey()),
            Self::Domain => (other.addr(), other.rkey()),
            Self::Deregistered => gone,
        }
    }
}

/// The address and the key of a region that was deregistered.
fn gone(end: &End<impl Traffic>) -> Result<(u64, u32), Failed> {
    let mr = end.pd.memory(4096).access(crate::pair::ALL_ACCESS).register()?;
    let place = (mr.addr(), mr.rkey());
    mr.deregister()?;
    Ok(place)
}

/// Waits for the event that a request of the other side had no right to the memory.
fn access_error(bed: &Bed, end: &End<Rc>) {
    let events = end.context.async_events();
    let expected = AsyncEvent::QpAccessError(end.qp.id());
    bed.until("an access error", || events.next().expect("the device is there") == Some(expected));
}

/// Posts `post` and one more request at `a`. The first fails as given, the other is flushed, and
/// the receives of both sides as well.
fn fails<T: Traffic>(
    bed: &Bed,
    pair: &mut Pair<T>,
    form: Form,
    post: Post<'_>,
    expected: Syndrome,
) -> Outcome {
    let Pair { a, b } = pair;
    a.recv(900, 0..64);
    b.recv(901, 0..64);
    b.recv(902, 0..64);
    let after = Post::new(Op::Send, 2, Data::Inline(&[b"after"])).flags(SendFlags::empty());
    a.post_all(form, &[post, after])?;
    let done = bed.poll(&mut a.send_cq, 2);
    assert_eq!(syndrome(&done[0]), Some(expected), "{done:?}");
    assert_eq!(done[0].as_completion().wr_id(), post.wr_id);
    assert_eq!(flushed(&done[1..]), [2]);
    assert_eq!(flushed(&bed.poll(a.recv_cq(), 1)), [900]);
    assert_eq!(a.qp.query()?.qp_state, QueueState::Error);
    Ok(())
}

fn a_remote_key_that_is_wrong_in_any_way_fails_the_request_and_both_queue_pairs(
    bed: &Bed,
) -> Outcome {
    let options = PairOptions::default();
    for (n, wrong) in Wrong::ALL.into_iter().enumerate() {
        for op in [Op::Write, Op::WriteImm, Op::Read] {
            let mut pair = bed.pair::<Rc>(&options)?;
            let other = pair.b.context.alloc_pd()?;
            let other = other.memory(4096).access(crate::pair::ALL_ACCESS).register()?;
            fill(&pair.b.mr, 0, 1, pair.b.mr.len())?;
            let (addr, rkey) = wrong.spoil(&pair.b.mr, &other, gone(&pair.b)?);
            let sges = [pair.a.mr.sge(128..192)?];
            let post = Post::new(op, 1, Data::Sges(&sges)).remote(RemoteAddress { addr, rkey });
            fails(bed, &mut pair, Form::ALL[n % 2], post, Syndrome::RemoteAccess)?;
            // The other side gets an event, no completion, and is in the error state, too.
            access_error(bed, &pair.b);
            assert_eq!(flushed(&bed.poll(pair.b.recv_cq(), 2)), [901, 902]);
            assert_eq!(pair.b.qp.query()?.qp_state, QueueState::Error);
            verify(&pair.b.mr, 0, 1, pair.b.mr.len());
            untouched(&other, 0..4096);
            untouched(&pair.a.mr, 128..192);
        }
    }
    Ok(())
}

fn a_remote_key_without_the_right_fails_the_request(bed: &Bed) -> Outcome {
    let denied = [
        (Op::Write, Access::LOCAL_WRITE | Access::REMOTE_READ),
        (Op::WriteImm, Access::LOCAL_WRITE),
        (Op::Write, Access::empty()),
        (Op::Read, Access::LOCAL_WRITE | Access::REMOTE_WRITE),
        (Op::Read, Access::empty()),
    ];
    for (op, access) in denied {
        let mut pair = bed.pair::<Rc>(&PairOptions::default())?;
        let mr = pair.b.pd.memory(4096).access(access).register()?;
        let sges = [pair.a.mr.sge(128..192)?];
        let post = Post::new(op, 1, Data::Sges(&sges)).remote(RemoteAddress { addr: mr.addr(), rkey: mr.rkey() });
        fails(bed, &mut pair, Form::Typed, post, Syndrome::RemoteAccess)?;
        access_error(bed, &pair.b);
        untouched(&mr, 0..4096);
    }
    Ok(())
}

fn a_queue_pair_that_does_not_grant_a_right_refuses_it_to_all_keys(bed: &Bed) -> Outcome {
    use mlx5::AccessFlags;
    for (op, granted) in [
        (Op::Write, AccessFlags::REMOTE_READ),
        (Op::Read, AccessFlags::REMOTE_WRITE),
        (Op::Write, AccessFlags::empty()),
    ] {
        let connect = ConnectOptions::default().access_flags(Some(granted));
        let mut pair = bed.pair::<Rc>(&PairOptions::default().connect(Some(connect)))?;
        let sges = [pair.a.mr.sge(128..192)?];
        let post = Post::new(op, 1, Data::Sges(&sges)).remote(pair.b.mr.remote(0..)?);
        let Pair { a, b } = &mut pair;
        a.post(Form::Typed, post)?;
        // A ConnectX-5, -6 and -7 call it so (tests/silicon, `fr-vendor-cx5` and `nccl-1710`).
        let failed = bed.poll_one(&mut a.send_cq);
        assert_eq!(syndrome(&failed), Some(Syndrome::RemoteInvalidRequest), "{failed:?}");
        untouched(&b.mr, 0..4096);
    }
    Ok(())
}

fn an_unreliable_write_that_is_not_allowed_vanishes(bed: &Bed) -> Outcome {
    let Pair { mut a, mut b } = bed.pair::<Uc>(&PairOptions::default())?;
    b.recv(1, 0..64);
    let wrong = RemoteAddress { addr: b.mr.addr(), rkey: !b.mr.rkey() };
    a.post(Form::Typed, Post::new(Op::Write, 1, Data::Inline(&[b"lost"])).remote(wrong))?;
    a.post(Form::Typed, Post::new(Op::Send, 2, Data::Inline(&[b"found"])))?;
    // No side gets an error, and the next message arrives.
    let done = bed.poll_good(&mut a.send_cq, 2);
    assert_eq!(wr_ids(&done), [1, 2]);
    bed.poll_good(b.recv_cq(), 1);
    crate::pattern::expect_bytes(&b.mr, 0, b"found");
    Ok(())
}

fn a_local_key_that_is_wrong_in_any_way_fails_the_request(bed: &Bed) -> Outcome {
    for (n, wrong) in Wrong::ALL.into_iter().enumerate() {
        for op in [Op::Send, Op::Write, Op::Read] {
            let mut pair = bed.pair::<Rc>(&PairOptions::default())?;
            let other = pair.a.context.alloc_pd()?;
            let other = other.memory(4096).access(crate::pair::ALL_ACCESS).register()?;
            let (addr, lkey) = wrong.spoil(&pair.a.mr, &other, gone(&pair.a)?);
            let sges = [pair.a.mr.sge(100..101)?, Sge { addr, length: 64, lkey }];
            let remote = pair.b.mr.remote(4096..)?;
            let post = Post::new(op, 1, Data::Sges(&sges)).remote(remote);
            fails(bed, &mut pair, Form::ALL[n % 2], post, Syndrome::LocalProtection)?;
            untouched(&pair.b.mr, 4096 + 1..4096 + 65);
            // The other side has seen nothing, and still waits.
            bed.nothing(pair.b.recv_cq());
        }
    }
    Ok(())
}

fn a_read_needs_the_right_to_write_at_home(bed: &Bed) -> Outcome {
    let mut pair = bed.pair::<Rc>(&PairOptions::default())?;
    let mut mr = pair.a.pd.memory(4096).access(Access::REMOTE_READ).register()?;
    let sges = [mr.sge(0..64)?];
    fill(&pair.b.mr, 0, 5, 64)?;
    let post = Post::new(Op::Read, 1, Data::Sges(&sges)).remote(pair.b.mr.remote(0..)?);
    fails(bed, &mut pair, Form::Typed, post, Syndrome::LocalProtection)?;
    assert!(mr.as_slice()?.iter().all(|byte| *byte == 0), "a slice that may be borrowed is safe");
    Ok(())
}

fn a_receive_into_memory_that_may_not_be_written_fails_both_sides(bed: &Bed) -> Outcome {
    for (n, wrong) in Wrong::ALL.into_iter().enumerate() {
        let Pair { mut a, mut b } = bed.pair::<Rc>(&PairOptions::default())?;
        let other = b.context.alloc_pd()?;
        let other = other.memory(4096).register()?;
        let (addr, lkey) = wrong.spoil(&b.mr, &other, gone(&b)?);
        b.qp.post_recv(&[ReceiveWr { wr_id: 7, sges: &[Sge { addr, length: 64, lkey }] }])?;
        b.recv(8, 0..64);
        a.post(Form::ALL[n % 2], Post::new(Op::Send, 1, Data::Inline(&[&[7; 64]])))?;
        let failed = bed.poll_one(&mut a.send_cq);
        assert_eq!(syndrome(&failed), Some(Syndrome::RemoteOperation));
        let received = bed.poll(b.recv_cq(), 2);
        assert_eq!(syndrome(&received[0]), Some(Syndrome::LocalProtection));
        assert_eq!(received[0].as_completion().wr_id(), 7);
        assert_eq!(received[0].as_completion().byte_len(), None);
        assert_eq!(flushed(&received[1..]), [8]);
        untouched(&other, 0..4096);
    }
    // A region without the right to write locally.
    let Pair { mut a, mut b } = bed.pair::<Rc>(&PairOptions::default())?;
    let mut mr = b.pd.memory(4096).access(Access::empty()).register()?;
    b.qp.post_recv(&[ReceiveWr { wr_id: 7, sges: &[mr.whole()?] }])?;
    a.post(Form::Typed, Post::new(Op::Send, 1, Data::Inline(&[&[7; 64]])))?;
    assert_eq!(syndrome(&bed.poll_one(&mut a.send_cq)), Some(Syndrome::RemoteOperation));
    assert_eq!(syndrome(&bed.poll_one(b.recv_cq())), Some(Syndrome::LocalProtection));
    assert!(mr.as_slice()?.iter().all(|byte| *byte == 0));
    Ok(())
}

fn a_receive_that_is_too_short_fails_both_sides(bed: &Bed) -> Outcome {
    for (room, form) in [0, 1, 63].into_iter().flat_map(|room| Form::ALL.map(|f| (room, f))) {
        let Pair { mut a, mut b } = bed.pair::<Rc>(&PairOptions::default())?;
        b.recv(7, 128..128 + room);
        b.recv(8, 0..64);
        a.post(form, Post::new(Op::Send, 1, Data::Inline(&[&[7; 64]])))?;
        let failed = bed.poll_one(&mut a.send_cq);
        assert_eq!(syndrome(&failed), Some(Syndrome::RemoteInvalidRequest));
        let received = bed.poll(b.recv_cq(), 2);
        assert_eq!(syndrome(&received[0]), Some(Syndrome::LocalLength));
        assert_eq!(received[0].as_completion().wr_id(), 7);
        assert_eq!(flushed(&received[1..]), [8]);
        untouched(&b.mr, 128 + room..256);
    }
    Ok(())
}

/// A receive with a shorter list than the one in its slot a lap before must end with its own list.
fn a_receive_ends_with_its_list_and_not_with_that_of_a_lap_before(bed: &Bed) -> Outcome {
    for entries in 1..8_usize {
        let options = PairOptions::default().recv_wr(4).recv_sge(8);
        let Pair { mut a, mut b } = bed.pair::<Rc>(&options)?;
        let whole = u64::from(b.qp.caps().max_recv_wr);
        let long: Vec<_> =
            (0..8).map(|n| b.mr.sge(n * 64..n * 64 + 8)).collect::<Result<_, _>>()?;
        for n in 0..whole {
            b.qp.post_recv(&[ReceiveWr { wr_id: n, sges: &long }])?;
            a.post(Form::Typed, Post::new(Op::Send, n, Data::Inline(&[&[1; 64]])))?;
            bed.poll_good(b.recv_cq(), 1);
        }
        bed.poll_good(&mut a.send_cq, whole as usize);
        b.mr.write_at(0, &[0; 512])?;
        b.qp.post_recv(&[ReceiveWr { wr_id: 90, sges: &long[..entries] }])?;
        let bytes = vec![2; entries * 8 + 1];
        let pieces = [&bytes[..]];
        a.post(Form::Typed, Post::new(Op::Send, 91, Data::Inline(&pieces)))?;
        let received = bed.poll_one(b.recv_cq());
        assert_eq!(syndrome(&received), Some(Syndrome::LocalLength));
        untouched(&b.mr, entries * 64..512);
    }
    Ok(())
}

fn a_datagram_from_memory_of_another_domain_stops_its_sender_only(bed: &Bed) -> Outcome {
    let Pair { mut a, mut b } = bed.pair::<Ud>(&PairOptions::default())?;
    let other = a.context.alloc_pd()?.allocate(4096)?;
    b.recv(1, 0..256);
    a.recv(2, 0..256);
    let sges = [other.sge(0..64)?];
    a.post(Form::Typed, Post::new(Op::Send, 3, Data::Sges(&sges)))?;
    let after = Post::new(Op::Send, 4, Data::Inline(&[b"after"])).flags(SendFlags::empty());
    a.post(Form::Typed, after)?;
    let done = bed.poll(&mut a.send_cq, 2);
    assert_eq!(syndrome(&done[0]), Some(Syndrome::LocalProtection));
    assert_eq!(flushed(&done[1..]), [4]);
    // The queue pair still receives, and can return from SQE to sending.
    b.post(Form::Typed, Post::new(Op::Send, 5, Data::Inline(&[b"still there"])))?;
    bed.poll_good(&mut b.send_cq, 1);
    assert_eq!(wr_ids(&bed.poll_good(a.recv_cq(), 1)), [2]);
    assert_eq!(a.qp.query()?.qp_state, QueueState::SendQueueError);
    let back = QpAttributes::new()
        .cur_qp_state(QueueState::SendQueueError)
        .qp_state(QueueState::ReadyToSend);
    a.qp.modify(&back)?;
    a.post(Form::Typed, Post::new(Op::Send, 6, Data::Inline(&[b"again"])))?;
    bed.poll_good(&mut a.send_cq, 1);
    assert_eq!(wr_ids(&bed.poll_good(b.recv_cq(), 1)), [1]);
    crate::pattern::expect_bytes(&b.mr, 40, b"again");
    Ok(())
}

fn access_up_to_the_last_byte_is_allowed_and_not_one_beyond(bed: &Bed) -> Outcome {
    for length in [1, 4095, 4096, 4097, 5000] {
        for (op, beyond) in [Op::Write, Op::Read].into_iter().flat_map(|op| [(op, 0), (op, 1)]) {
            let Pair { mut a, b } = bed.pair::<Rc>(&PairOptions::default())?;
            // Owned memory has whole pages, but a region has the length asked for.
            let mr = b.pd.memory(length).access(crate::pair::ALL_ACCESS).register()?;
            let sges = [a.mr.sge(0..length)?];
            let remote = RemoteAddress { addr: mr.addr() + beyond, rkey: mr.rkey() };
            a.post(Form::Typed, Post::new(op, 1, Data::Sges(&sges)).remote(remote))?;
            let done = bed.poll_one(&mut a.send_cq);
            let expected = (beyond == 1).then_some(Syndrome::RemoteAccess);
            assert_eq!(syndrome(&done), expected, "{op:?} of {length} bytes, {beyond} beyond");
        }
    }
    Ok(())
}

fn requests_before_a_failure_arrive_and_later_ones_are_flushed(bed: &Bed) -> Outcome {
    for form in Form::ALL {
        let Pair { mut a, b } = bed.pair::<Rc>(&PairOptions::default())?;
        let good = b.mr.remote(0..)?;
        let wrong = RemoteAddress { rkey: !good.rkey, ..good };
        let posts: Vec<_> = (0..20)
            .map(|n| {
                let remote = if n == 11 { wrong } else { RemoteAddress { addr: good.addr + n, ..good } };
                let flags = if n % 3 == 0 { SendFlags::SIGNALED } else { SendFlags::empty() };
                Post::new(Op::Write, n, Data::Inline(&[b"!"])).remote(remote).flags(flags)
            })
            .collect();
        a.post_all(form, &posts)?;
        // Before the failure only signaled requests complete, and from it on every request, once,
        // in order.
        let done = bed.poll(&mut a.send_cq, 4 + 9);
        assert_eq!(wr_ids(&done[..4]), [0, 3, 6, 9]);
        assert!(done[..4].iter().all(|done| syndrome(done).is_none()));
        assert_eq!(syndrome(&done[4]), Some(Syndrome::RemoteAccess));
        assert_eq!(done[4].as_completion().wr_id(), 11);
        assert!(flushed(&done[5..]).into_iter().eq(12..20));
        bed.nothing(&mut a.send_cq);
        crate::pattern::expect_bytes(&b.mr, 0, b"!!!!!!!!!!!");
        untouched(&b.mr, 11..64);
        assert_eq!(a.qp.free_send_blocks(), a.qp.caps().send_blocks);
    }
    Ok(())
}
