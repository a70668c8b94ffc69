//! Queue pairs: capacities, halves, multicast groups, and the objects that they belong to.

use crate::panics::panic_of;
use crate::prelude::*;
use mlx5::{
    AnyQueuePair, ConnectOptions, DoorbellChoice, DoorbellMode, ErrorKind, Gid, HugePages,
    LinkLayer, OpenOptions, Psn,
};

pub(crate) const CASES: &[Case] = cases![
    granted_capacity_is_never_below_the_request,
    a_send_queue_holds_as_many_largest_requests_as_it_grants,
    a_receive_queue_holds_as_many_requests_as_it_grants,
    a_send_queue_that_cannot_be_is_refused_with_its_limits,
    a_receive_queue_that_cannot_be_is_refused_with_its_limits,
    completion_queues_of_another_context_are_refused,
    rings_of_huge_pages_carry_traffic,
    doorbells_are_rung_as_chosen,
    registers_are_shared_once_there_are_no_more: SIMULATOR,
    a_device_without_blueflame_rings_plain_doorbells: SIMULATOR,
    queue_pairs_of_all_transports_stand_in_one_list,
    a_queue_pair_of_any_transport_is_split_joined_and_destroyed: SIMULATOR,
    halves_work_in_threads_of_their_own,
    halves_join_again_and_only_with_their_own,
    a_control_half_alone_cannot_leave_reset,
    a_queue_pair_with_a_shared_queue_has_no_receives_of_its_own,
    only_multicast_addresses_can_be_attached_to,
    a_queue_pair_leaves_its_groups_before_it_goes,
    text_and_bytes_of_an_endpoint_connect_as_well: SIMULATOR,
    endpoints_that_do_not_fit_are_refused_before_anything_changes,
];

fn granted_capacity_is_never_below_the_request(bed: &Bed) -> Outcome {
    fn granted<T: Wired>(bed: &Bed) -> Outcome {
        for send_wr in [1, 2, 3, 63, 64, 65, 1000] {
            for (send_sge, inline) in [(1, 0), (1, 1), (3, 28), (4, 44), (5, 300), (28, 400)] {
                let options = PairOptions::default()
                    .memory(64)
                    .send_wr(send_wr)
                    .send_sge(send_sge)
                    .inline(inline)
                    .recv_wr(send_wr)
                    .recv_sge(send_sge);
                let caps = bed.end::<T>(&options)?.qp.caps();
                assert!(caps.max_send_wr >= send_wr, "{caps:?}");
                assert!(caps.max_send_sge >= send_sge && caps.max_inline_data >= inline);
                assert!(caps.max_recv_wr >= send_wr && caps.max_recv_sge >= send_sge);
                assert!(caps.send_blocks.is_power_of_two(), "{caps:?}");
                assert_eq!(caps.max_send_wr, caps.send_blocks / caps.max_wr_blocks, "{caps:?}");
            }
        }
        Ok(())
    }
    granted::<Rc>(bed)?;
    granted::<Uc>(bed)?;
    granted::<Ud>(bed)
}

/// Brings an end to an error state, in which posting is allowed and nothing is sent.
fn fail(end: &mut End<Rc>) -> Outcome {
    end.qp.init(&end.port, &ConnectOptions::default())?;
    end.qp.modify(&QpAttributes::new().qp_state(QueueState::Error))?;
    Ok(())
}

fn a_send_queue_holds_as_many_largest_requests_as_it_grants(bed: &Bed) -> Outcome {
    for (send_wr, inline) in [(1, 100), (5, 200), (16, 60), (30, 900)] {
        let options = PairOptions::default().send_wr(send_wr).inline(inline).sq_sig_all(true);
        let mut end = bed.end::<Rc>(&options)?;
        fail(&mut end)?;
        let caps = end.qp.caps();
        let largest = vec![7; caps.max_inline_data as usize];
        let to = end.mr.remote(..)?;
        let mut post = || {
            let mut batch = end.qp.wr_start();
            batch.wr(1, SendFlags::empty()).rdma_write(to).inline_data(&largest);
            batch.complete()
        };
        for held in 0..caps.max_send_wr {
            post().map_err(|refused| format!("request {held} of {caps:?}: {refused}"))?;
        }
        let rest = caps.send_blocks - caps.max_send_wr * caps.max_wr_blocks;
        let refused = post().expect_err("the queue is full").error();
        assert_eq!(refused, PostError::QueueFull { free: rest, needed: caps.max_wr_blocks });
        let flushed = bed.poll(&mut end.send_cq, caps.max_send_wr as usize);
        assert_eq!(flushed.len(), caps.max_send_wr as usize);
        assert_eq!(end.qp.free_send_blocks(), caps.send_blocks);
    }
    Ok(())
}

fn a_receive_queue_holds_as_many_requests_as_it_grants(bed: &Bed) -> Outcome {
    for (recv_wr, recv_sge) in [(1, 1), (1, 4), (5, 1), (100, 3)] {
        let options = PairOptions::default().recv_wr(recv_wr).recv_sge(recv_sge);
        let mut end = bed.end::<Rc>(&options)?;
        end.qp.init(&end.port, &ConnectOptions::default())?;
        let caps = end.qp.caps();
        assert_eq!(end.qp.free_receives(), caps.max_recv_wr);
        let sges = vec![end.mr.sge(0..1)?; caps.max_recv_sge as usize];
        for wr_id in 0..caps.max_recv_wr {
            end.qp.post_recv(&[ReceiveWr { wr_id: wr_id.into(), sges: &sges }])?;
        }
        let refused = end.qp.post_recv(&[ReceiveWr { wr_id: 0, sges: &sges }]).expect_err("full");
        assert_eq!(refused.error(), PostError::QueueFull { free: 0, needed: 1 });
        end.qp.modify(&QpAttributes::new().qp_state(QueueState::Error))?;
        bed.poll(end.recv_cq(), caps.max_recv_wr as usize);
        assert_eq!(end.qp.free_receives(), caps.max_recv_wr);
    }
    Ok(())
}

fn a_send_queue_that_cannot_be_is_refused_with_its_limits(bed: &Bed) -> Outcome {
    let limits = bed.context().query_device().queues;
    let options = PairOptions::default();
    for impossible in [
        options.send_wr(limits.max_send_wqebb + 1),
        options.send_wr(limits.max_send_wqebb).send_sge(8),
        options.send_wr(u32::MAX),
        options.send_sge(64),
        options.send_sge(u32::MAX),
        options.inline(u32::from(limits.max_sq_desc_sz)),
        options.inline(u32::MAX),
    ] {
        let error = bed.end::<Rc>(&impossible).err().ok_or("impossible")?.to_string();
        assert!(error.contains("send requests"), "{error}");
        assert!(error.contains(&limits.max_sq_desc_sz.to_string()), "{error}");
        assert!(error.contains(&limits.max_send_wqebb.to_string()), "{error}");
    }
    Ok(())
}

fn a_receive_queue_that_cannot_be_is_refused_with_its_limits(bed: &Bed) -> Outcome {
    let limits = bed.context().query_device().queues;
    let options = PairOptions::default();
    for impossible in [
        options.recv_wr(limits.max_recv_wr + 1),
        options.recv_wr(u32::MAX),
        options.recv_sge(u32::from(limits.max_rq_desc_sz) / 16 + 1),
        options.recv_sge(u32::MAX),
    ] {
        let error = bed.end::<Rc>(&impossible).err().ok_or("impossible")?.to_string();
        assert!(error.contains("receive requests"), "{error}");
        assert!(error.contains(&limits.max_recv_wr.to_string()), "{error}");
    }
    Ok(())
}

fn completion_queues_of_another_context_are_refused(bed: &Bed) -> Outcome {
    let (one, other) = (bed.context(), bed.context());
    let pd = one.alloc_pd()?;
    let (own, foreign) = (one.create_cq(4).build()?, other.create_cq(4).build()?);
    for (send, receive) in [(&own, &foreign), (&foreign, &own)] {
        let error = pd.create_qp::<Rc>(send, receive).build().err().ok_or("two contexts")?;
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("different contexts"), "{error}");
    }
    Ok(())
}

fn rings_of_huge_pages_carry_traffic(bed: &Bed) -> Outcome {
    let context = bed.context();
    let pd = context.alloc_pd()?;
    let mr = pd.allocate(4096)?;
    let mut cq = context.create_cq(64).huge_pages(HugePages::Prefer).build()?;
    let build = || pd.create_qp::<Rc>(&cq, &cq).huge_pages(HugePages::Prefer).build();
    let (mut a, mut b) = (build()?, build()?);
    connect_two(bed, &context, &mut a, &mut b)?;
    b.post_recv(&[ReceiveWr { wr_id: 1, sges: &[mr.sge(64..128)?] }])?;
    fill(&mr, 0, 2, 64)?;
    let mut batch = a.wr_start();
    batch.wr(2, SendFlags::SIGNALED).send().sge(mr.sge(0..64)?);
    batch.complete()?;
    bed.poll_good(&mut cq, 2);
    verify(&mr, 64, 2, 64);
    Ok(())
}

/// Connects two queue pairs of one context.
fn connect_two(
    bed: &Bed,
    context: &Context,
    a: &mut QueuePair<Rc>,
    b: &mut QueuePair<Rc>,
) -> Outcome {
    let port = context.local_port(bed.port(), None)?;
    let options = ConnectOptions::default();
    let psn = Psn::default();
    let (at_a, at_b) = (a.endpoint(&port, psn, &options), b.endpoint(&port, psn, &options));
    a.connect(&port, psn, &at_b, &options)?;
    b.connect(&port, psn, &at_a, &options)?;
    Ok(())
}

fn doorbells_are_rung_as_chosen(bed: &Bed) -> Outcome {
    // A context of its own, because other cases may have taken all registers of a shared one.
    let context = bed.device().open()?;
    let has_blueflame = context.query_device().queues.bf_reg_size > 0;
    for (choice, mode) in [
        (DoorbellChoice::BlueFlame, DoorbellMode::BlueFlame),
        (DoorbellChoice::SharedBlueFlame, DoorbellMode::SharedBlueFlame),
        (DoorbellChoice::Doorbell, DoorbellMode::Doorbell),
    ] {
        let options = PairOptions::default().inline(200);
        let a = match bed.end_in::<Rc>(&context, &options.doorbell(choice)) {
            Err(_) if !has_blueflame && choice != DoorbellChoice::Doorbell => continue,
            made => made?,
        };
        let mut pair = Pair { a, b: bed.end::<Rc>(&options)? };
        crate::pair::connect_ends(&mut pair.a, &mut pair.b, &options)?;
        assert_eq!(pair.a.qp.doorbell_mode(), mode);
        // A request that is copied to the register, one that is too long for that, and a batch.
        let to = pair.b.mr.remote(..)?;
        for (seed, length, count) in [(1, 8, 1), (2, 190, 1), (3, 40, 3)] {
            let bytes = pattern(seed, length);
            let mut batch = pair.a.qp.wr_start();
            for _ in 0..count {
                batch.wr(seed, SendFlags::SIGNALED).rdma_write(to).inline_data(&bytes);
            }
            batch.complete()?;
            bed.poll_good(&mut pair.a.send_cq, count);
            verify(&pair.b.mr, 0, seed, length);
        }
    }
    Ok(())
}

fn registers_are_shared_once_there_are_no_more(bed: &Bed) -> Outcome {
    let context = bed.device().open_with(&OpenOptions::new().max_blueflame_pages(1))?;
    let mut ends = Vec::new();
    for _ in 0..4 {
        ends.push(bed.end_in::<Rc>(&context, &PairOptions::default().memory(64))?);
    }
    let modes: Vec<_> = ends.iter().map(|end| end.qp.doorbell_mode()).collect();
    assert_eq!(modes[0], DoorbellMode::BlueFlame);
    assert_eq!(modes[1..], [DoorbellMode::SharedBlueFlame; 3]);
    let options = PairOptions::default();
    let error = bed.end_in::<Rc>(&context, &options.doorbell(DoorbellChoice::BlueFlame));
    assert!(error.is_err(), "there is no register left");
    // Destroying a queue pair frees its register.
    drop(ends.remove(0));
    let again = bed.end_in::<Rc>(&context, &options.doorbell(DoorbellChoice::BlueFlame))?;
    assert_eq!(again.qp.doorbell_mode(), DoorbellMode::BlueFlame);
    Ok(())
}

fn a_device_without_blueflame_rings_plain_doorbells(bed: &Bed) -> Outcome {
    let plain = bed.configured(|config| config.blueflame(false))?;
    assert_eq!(plain.context().query_device().queues.bf_reg_size, 0);
    assert_eq!(one_write(&plain, &plain.context())?, DoorbellMode::Doorbell);
    let declined = bed.device().open_with(&OpenOptions::new().blueflame(false))?;
    assert_eq!(one_write(bed, &declined)?, DoorbellMode::Doorbell);
    Ok(())
}

/// Writes a few bytes from one queue pair of a context to another, and returns the kind of
/// doorbell.
fn one_write(bed: &Bed, context: &Context) -> Result<DoorbellMode, Failed> {
    let options = PairOptions::default();
    let (mut a, mut b) = (bed.end_in::<Rc>(context, &options)?, bed.end_in(context, &options)?);
    crate::pair::connect_ends(&mut a, &mut b, &options)?;
    let mut batch = a.qp.wr_start();
    batch.wr(1, SendFlags::SIGNALED).rdma_write(b.mr.remote(..)?).inline_data(&pattern(1, 60));
    batch.complete()?;
    bed.poll_good(&mut a.send_cq, 1);
    verify(&b.mr, 0, 1, 60);
    Ok(a.qp.doorbell_mode())
}

fn queue_pairs_of_all_transports_stand_in_one_list(bed: &Bed) -> Outcome {
    let context = bed.context();
    let (pd, mut cq) = (context.alloc_pd()?, context.create_cq(16).build()?);
    let mut list: Vec<AnyQueuePair> = vec![
        pd.create_qp::<Rc>(&cq, &cq).build()?.into(),
        pd.create_qp::<Uc>(&cq, &cq).build()?.into(),
        pd.create_qp::<Ud>(&cq, &cq).build()?.into(),
    ];
    let port = bed.port();
    for qp in &mut list {
        let attributes =
            QpAttributes::new().qp_state(QueueState::Init).pkey_index(0).port_num(port);
        let attributes = match qp {
            AnyQueuePair::Ud(_) => attributes.qkey(1),
            _ => attributes.qp_access_flags(mlx5::AccessFlags::empty()),
        };
        qp.modify(&attributes)?;
        qp.post_recv(&[ReceiveWr { wr_id: qp.qp_num().into(), sges: &[] }])?;
        qp.modify(&QpAttributes::new().qp_state(QueueState::Error))?;
        assert_eq!((qp.state(), qp.query()?.qp_state), (QueueState::Error, QueueState::Error));
    }
    let mut found: Vec<u64> =
        bed.poll(&mut cq, 3).iter().map(|one| one.as_completion().wr_id()).collect();
    found.sort_unstable();
    let mut numbers: Vec<u64> = list.iter().map(|qp| qp.qp_num().into()).collect();
    numbers.sort_unstable();
    assert_eq!(found, numbers);
    Ok(())
}

fn a_queue_pair_of_any_transport_is_split_joined_and_destroyed(bed: &Bed) -> Outcome {
    let context = bed.context();
    let (pd, cq) = (context.alloc_pd()?, context.create_cq(16).build()?);
    let domain = pd.create_qp::<mlx5::transport::XrcSend>(&cq, &cq).build()?;
    let list: Vec<AnyQueuePair> = vec![
        pd.create_qp::<Rc>(&cq, &cq).build()?.into(),
        pd.create_qp::<Uc>(&cq, &cq).build()?.into(),
        pd.create_qp::<Ud>(&cq, &cq).build()?.into(),
        domain.into(),
    ];
    for qp in list {
        let (number, id, caps) = (qp.qp_num(), qp.id(), qp.caps());
        assert_eq!(qp.free_send_blocks(), caps.send_blocks);
        assert_eq!(qp.free_receives(), caps.max_recv_wr);
        assert!(!qp.has_srq());
        let (mut send, receive, control) = qp.split();
        assert_eq!((send.qp_num(), control.qp_num()), (number, number));
        assert_eq!(receive.is_some(), caps.max_recv_wr != 0);
        assert_eq!(send.free_blocks(), caps.send_blocks);
        let refused = send.post_send(&[SendWr::default()]).expect_err("it is in RESET");
        assert_eq!(refused.index(), 0);
        let qp = AnyQueuePair::join(send, receive, control);
        assert_eq!((qp.qp_num(), qp.id()), (number, id));
        if bed.is_simulated() {
            bed.simulator().fail_call(1, mlx5::Errno::EBUSY);
            let (kept, error) = qp.destroy().err().ok_or("the kernel refused")?.into_parts();
            assert_eq!(kept.query()?.qp_state, QueueState::Reset, "{error}");
            kept.destroy()?;
        } else {
            qp.destroy()?;
        }
    }
    Ok(())
}

fn halves_work_in_threads_of_their_own(bed: &Bed) -> Outcome {
    const MESSAGES: u64 = 500;
    let pair = bed.pair::<Rc>(&PairOptions::default().sq_sig_all(true))?;
    let (a, b) = (pair.a, pair.b);
    let (mut send, _receive, control) = a.qp.split();
    let (_send, receive, _control) = b.qp.split();
    let mut receive = receive.ok_or("it has a receive queue")?;
    let (mut send_cq, mut recv_cq) = (a.send_cq, b.recv_cq.ok_or("two queues")?);
    let sge = b.mr.sge(0..8)?;
    std::thread::scope(|scope| {
        // One thread posts receives, one posts sends, two poll, and one queries the control half.
        scope.spawn(move || {
            for wr_id in 0..MESSAGES {
                until(|| receive.post_recv(&[ReceiveWr { wr_id, sges: &[sge] }]).is_ok());
            }
        });
        scope.spawn(move || {
            for wr_id in 0..MESSAGES {
                until(|| {
                    let mut batch = send.wr_start();
                    batch.wr(wr_id, SendFlags::empty()).send().inline_data(&wr_id.to_ne_bytes());
                    batch.complete().is_ok()
                });
            }
        });
        for cq in [&mut send_cq, &mut recv_cq] {
            scope.spawn(move || {
                for wr_id in 0..MESSAGES {
                    let found = bed_less_poll(cq);
                    assert_eq!(found.as_completion().wr_id(), wr_id);
                    assert!(found.as_completion().is_success());
                }
            });
        }
        assert_eq!(control.query().expect("a query").qp_state, QueueState::ReadyToSend);
    });
    Ok(())
}

/// Time limit for a thread to wait for the others.
const DEADLINE: std::time::Duration = std::time::Duration::from_secs(20);

#[track_caller]
fn until(mut done: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !done() {
        assert!(start.elapsed() < DEADLINE, "not in time");
        std::thread::yield_now();
    }
}

/// The next completion, on a device that works by itself.
#[track_caller]
fn bed_less_poll(cq: &mut CompletionQueue) -> OwnedCompletion {
    let mut found = None;
    until(|| {
        cq.poll(1, |one| found = Some(one.to_owned())).expect("a poll");
        found.is_some()
    });
    found.expect("found")
}

fn halves_join_again_and_only_with_their_own(bed: &Bed) -> Outcome {
    let mut pair = bed.pair::<Rc>(&PairOptions::default())?;
    let (send, receive, mut control) = pair.a.qp.split();
    control.modify(&QpAttributes::new().qp_state(QueueState::Error))?;
    let mut whole = QueuePair::join(send, receive, control);
    assert_eq!(whole.state(), QueueState::Error);
    let mut batch = whole.wr_start();
    batch.wr(3, SendFlags::SIGNALED).send().inline_data(b"x");
    batch.complete()?;
    let flushed = bed.poll_one(&mut pair.a.send_cq);
    assert!(flushed.as_completion().status().expect_err("flushed").is_flushed());

    let (_send, receive, control) = whole.split();
    let (foreign, ..) = pair.b.qp.split();
    // Halves of two queue pairs do not join.
    panic_of(|| QueuePair::join(foreign, receive, control));
    Ok(())
}

fn a_control_half_alone_cannot_leave_reset(bed: &Bed) -> Outcome {
    let end = bed.end::<Rc>(&PairOptions::default())?;
    let (port, options) = (end.port, ConnectOptions::default());
    let (send, receive, mut control) = end.qp.split();
    let init = QpAttributes::new()
        .qp_state(QueueState::Init)
        .pkey_index(0)
        .port_num(port.port_num)
        .qp_access_flags(mlx5::AccessFlags::empty());
    let error = control.modify(&init).expect_err("not whole");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("join"), "{error}");
    let mut whole = QueuePair::join(send, receive, control);
    whole.init(&port, &options)?;
    Ok(())
}

fn a_queue_pair_with_a_shared_queue_has_no_receives_of_its_own(bed: &Bed) -> Outcome {
    let context = bed.context();
    let (pd, cq) = (context.alloc_pd()?, context.create_cq(16).build()?);
    let srq = pd.create_srq(8).build()?;
    let mut qp = pd.create_qp::<Rc>(&cq, &cq).srq(&srq).max_recv_wr(32).build()?;
    assert!(qp.has_srq());
    assert_eq!((qp.caps().max_recv_wr, qp.free_receives()), (0, 0));
    qp.post_recv(&[])?;
    let refused = qp.post_recv(&[ReceiveWr { wr_id: 1, sges: &[] }]).expect_err("none");
    assert_eq!(refused.error(), PostError::Unsupported);
    assert!(qp.split().1.is_none());
    Ok(())
}

/// A group, and its LID where there are LIDs.
fn group(end: &End<Ud>, last: u8) -> (Gid, u16) {
    let mut gid = [0; 16];
    (gid[0], gid[1], gid[15]) = (0xff, 0x12, last);
    let infiniband = end.port.link_layer == LinkLayer::InfiniBand;
    (Gid::from_bytes(gid), if infiniband { 0xc001 + u16::from(last) } else { 0 })
}

fn only_multicast_addresses_can_be_attached_to(bed: &Bed) -> Outcome {
    let end = bed.end::<Ud>(&PairOptions::default())?;
    for gid in [Gid::default(), end.port.gid] {
        for refused in [end.qp.attach_mcast(gid, 0xc001), end.qp.detach_mcast(gid, 0xc001)] {
            let error = refused.expect_err("not a group");
            assert_eq!((error.kind(), error.errno()), (ErrorKind::InvalidArgument, None));
            assert!(error.to_string().contains("multicast"), "{error}");
        }
    }
    let (gid, lid) = group(&end, 1);
    assert!(end.qp.detach_mcast(gid, lid).is_err(), "it is not attached");
    Ok(())
}

fn a_queue_pair_leaves_its_groups_before_it_goes(bed: &Bed) -> Outcome {
    let end = bed.end::<Ud>(&PairOptions::default())?;
    let (one, other) = (group(&end, 1), group(&end, 2));
    end.qp.attach_mcast(one.0, one.1)?;
    end.qp.attach_mcast(other.0, other.1)?;
    let (qp, error) = end.qp.destroy().err().ok_or("it is in two groups")?.into_parts();
    assert_eq!(error.kind(), ErrorKind::Busy);
    qp.detach_mcast(one.0, one.1)?;
    let (qp, _) = qp.destroy().err().ok_or("it is in one group")?.into_parts();
    qp.detach_mcast(other.0, other.1)?;
    qp.destroy()?;
    Ok(())
}

fn text_and_bytes_of_an_endpoint_connect_as_well(bed: &Bed) -> Outcome {
    for port in [PortConfig::INFINIBAND, PortConfig::ROCE] {
        let bed = bed.configured(|config| config.ports([port]))?;
        let options = PairOptions::default();
        let (mut a, mut b) = (bed.end::<Rc>(&options)?, bed.end::<Rc>(&options)?);
        let text = a.endpoint(&options).to_string();
        let bytes = b.endpoint(&options).to_bytes();
        let at_a = text.parse().map_err(|error: mlx5::EndpointError| error.to_string())?;
        let at_b = mlx5::Endpoint::from_bytes(&bytes).map_err(|error| error.to_string())?;
        Rc::wire(&mut a, &at_b, &options)?;
        Rc::wire(&mut b, &at_a, &options)?;
        let mut batch = a.qp.wr_start();
        batch.wr(1, SendFlags::SIGNALED).rdma_write(b.mr.remote(..)?).inline_data(b"by hand");
        batch.complete()?;
        bed.poll_good(&mut a.send_cq, 1);
        crate::pattern::expect_bytes(&b.mr, 0, b"by hand");
    }
    Ok(())
}

fn endpoints_that_do_not_fit_are_refused_before_anything_changes(bed: &Bed) -> Outcome {
    let options = PairOptions::default();
    let mut a = bed.end::<Rc>(&options)?;
    let other = bed.end::<Uc>(&options)?.endpoint(&options);
    let error = a.qp.connect(&a.port, a.psn, &other, &ConnectOptions::default());
    let error = error.expect_err("RC to UC");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("RC") && error.to_string().contains("UC"), "{error}");
    assert_eq!(a.qp.state(), QueueState::Reset);
    Ok(())
}
