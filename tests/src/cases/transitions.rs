//! The transitions of a queue pair's state, and its attributes in each.

use crate::prelude::*;
use mlx5::{
    AccessFlags, AckTimeout, AhAttr, ErrorKind, LinkLayer, LocalPort, Mtu, Psn, QpNumber,
    RetryCount, RnrTimer,
};

pub(crate) const CASES: &[Case] = cases![
    rc_goes_to_rts_with_the_least_attributes_and_names_each_that_is_missing,
    uc_goes_to_rts_with_the_least_attributes_and_names_each_that_is_missing,
    ud_goes_to_rts_with_the_least_attributes_and_names_each_that_is_missing,
    an_attribute_that_a_transition_does_not_take_is_named,
    a_state_that_is_not_next_is_refused_with_those_that_are,
    the_kernel_driver_cannot_drain_a_send_queue_and_the_refusal_says_so,
    query_returns_the_attributes_that_were_set,
    attributes_change_within_rts,
    a_path_by_a_port_that_is_not_there_is_refused_before_the_kernel_sees_it,
    every_state_leads_to_reset_and_to_error,
    posting_is_refused_in_states_that_do_not_allow_it,
    everything_posted_to_a_queue_pair_in_error_is_flushed_in_order,
    a_failed_send_queue_of_an_unreliable_transport_can_go_on: SIMULATOR,
    a_queue_pair_starts_over_after_a_reset,
    completions_from_before_a_reset_must_be_polled_before_it_starts_over,
];

/// An attribute: its name in verbs, and a function that removes it.
type Attribute = (&'static str, fn(&mut QpAttributes));

/// A transition: all attributes that it needs, and each by itself.
type Step = (QpAttributes, &'static [Attribute]);

/// Puts rows of names and fields into attributes that can be removed.
macro_rules! needs {
    ($($name:literal $field:ident),* $(,)?) => {
        &[$(($name, |attributes: &mut QpAttributes| attributes.$field = None)),*]
    };
}

/// A path from a port to itself.
fn path_to_self(port: &LocalPort) -> AhAttr {
    match port.link_layer {
        LinkLayer::Ethernet => AhAttr::roce(port.port_num, port.gid, port.gid_index),
        _ => AhAttr::infiniband(port.port_num, port.lid),
    }
}

fn to(state: QueueState) -> QpAttributes {
    QpAttributes::new().qp_state(state)
}

fn connected_init(port: &LocalPort) -> QpAttributes {
    to(QueueState::Init)
        .pkey_index(0)
        .port_num(port.port_num)
        .qp_access_flags(AccessFlags::REMOTE_WRITE)
}

fn connected_rtr(port: &LocalPort, qp_num: u32) -> Result<QpAttributes, Failed> {
    Ok(to(QueueState::ReadyToReceive)
        .ah_attr(path_to_self(port))
        .path_mtu(Mtu::Mtu1024)
        .dest_qp_num(QpNumber::new(qp_num)?)
        .rq_psn(Psn::new(0x123)?))
}

const CONNECTED_INIT: &[Attribute] =
    needs!["PKEY_INDEX" pkey_index, "PORT" port_num, "ACCESS_FLAGS" qp_access_flags];

/// From RESET to RTS over RC, to itself.
fn rc(port: &LocalPort, qp_num: u32) -> Result<[Step; 3], Failed> {
    Ok([
        (connected_init(port), CONNECTED_INIT),
        (
            connected_rtr(port, qp_num)?.max_dest_rd_atomic(4).min_rnr_timer(RnrTimer::new(12)?),
            needs![
                "AV" ah_attr, "PATH_MTU" path_mtu, "DEST_QPN" dest_qp_num, "RQ_PSN" rq_psn,
                "MAX_DEST_RD_ATOMIC" max_dest_rd_atomic, "MIN_RNR_TIMER" min_rnr_timer,
            ],
        ),
        (
            to(QueueState::ReadyToSend)
                .sq_psn(Psn::new(0x123)?)
                .timeout(AckTimeout::new(14)?)
                .retry_cnt(RetryCount::new(6)?)
                .rnr_retry(RetryCount::new(5)?)
                .max_rd_atomic(2),
            needs![
                "SQ_PSN" sq_psn, "TIMEOUT" timeout, "RETRY_CNT" retry_cnt,
                "RNR_RETRY" rnr_retry, "MAX_QP_RD_ATOMIC" max_rd_atomic,
            ],
        ),
    ])
}

fn uc(port: &LocalPort, qp_num: u32) -> Result<[Step; 3], Failed> {
    Ok([
        (connected_init(port), CONNECTED_INIT),
        (
            connected_rtr(port, qp_num)?,
            needs!["AV" ah_attr, "PATH_MTU" path_mtu, "DEST_QPN" dest_qp_num, "RQ_PSN" rq_psn],
        ),
        (to(QueueState::ReadyToSend).sq_psn(Psn::new(0x123)?), needs!["SQ_PSN" sq_psn]),
    ])
}

fn ud(port: &LocalPort, _qp_num: u32) -> Result<[Step; 3], Failed> {
    Ok([
        (
            to(QueueState::Init).pkey_index(0).port_num(port.port_num).qkey(0x1234),
            needs!["PKEY_INDEX" pkey_index, "PORT" port_num, "QKEY" qkey],
        ),
        (to(QueueState::ReadyToReceive), &[]),
        (to(QueueState::ReadyToSend).sq_psn(Psn::new(0x123)?), needs!["SQ_PSN" sq_psn]),
    ])
}

type Steps = fn(&LocalPort, u32) -> Result<[Step; 3], Failed>;

/// Walks to RTS; before each step, tries it without each of its attributes.
fn walk<T: Wired>(bed: &Bed, steps: Steps) -> Outcome {
    let mut end = bed.end::<T>(&PairOptions::default())?;
    for (whole, attributes) in steps(&end.port, end.qp.qp_num())? {
        let before = end.qp.state();
        for (name, take_away) in attributes {
            let mut less = whole;
            take_away(&mut less);
            let error = end.qp.modify(&less).expect_err(name);
            assert_eq!((error.kind(), error.errno()), (ErrorKind::InvalidArgument, None));
            assert!(error.to_string().contains(name), "{name}: {error}");
            assert_eq!(end.qp.state(), before);
        }
        end.qp.modify(&whole)?;
        assert_eq!(Some(end.qp.state()), whole.qp_state);
        assert_eq!(end.qp.query()?.qp_state, end.qp.state());
    }
    assert_eq!(end.qp.state(), QueueState::ReadyToSend);
    Ok(())
}

fn rc_goes_to_rts_with_the_least_attributes_and_names_each_that_is_missing(bed: &Bed) -> Outcome {
    walk::<Rc>(bed, rc)
}

fn uc_goes_to_rts_with_the_least_attributes_and_names_each_that_is_missing(bed: &Bed) -> Outcome {
    walk::<Uc>(bed, uc)
}

fn ud_goes_to_rts_with_the_least_attributes_and_names_each_that_is_missing(bed: &Bed) -> Outcome {
    walk::<Ud>(bed, ud)
}

/// Brings a queue pair to INIT (1), RTR (2) or RTS (3).
fn advance<T: Wired>(end: &mut End<T>, steps: Steps, count: usize) -> Outcome {
    for (attributes, _) in steps(&end.port, end.qp.qp_num())?.into_iter().take(count) {
        end.qp.modify(&attributes)?;
    }
    Ok(())
}

fn an_attribute_that_a_transition_does_not_take_is_named(bed: &Bed) -> Outcome {
    let mut end = bed.end::<Rc>(&PairOptions::default())?;
    let [(init, _), ..] = rc(&end.port, end.qp.qp_num())?;
    for (name, more) in [
        ("SQ_PSN", init.sq_psn(Psn::default())),
        ("QKEY", init.qkey(1)),
        ("PATH_MTU", init.path_mtu(Mtu::Mtu256)),
        ("RATE_LIMIT", init.rate_limit(1)),
    ] {
        let error = end.qp.modify(&more).expect_err(name).to_string();
        assert!(error.contains("not allowed") && error.contains(name), "{error}");
    }
    assert_eq!(end.qp.state(), QueueState::Reset);
    end.qp.modify(&init)?;
    Ok(())
}

fn a_state_that_is_not_next_is_refused_with_those_that_are(bed: &Bed) -> Outcome {
    let mut end = bed.end::<Rc>(&PairOptions::default())?;
    let [_, (rtr, _), (rts, _)] = rc(&end.port, end.qp.qp_num())?;
    for attributes in [rtr, rts] {
        let error = end.qp.modify(&attributes).expect_err("INIT comes first").to_string();
        assert!(error.contains("no such transition") && error.contains("INIT"), "{error}");
    }
    advance(&mut end, rc, 1)?;
    let error = end.qp.modify(&rts).expect_err("RTR comes first").to_string();
    assert!(error.contains("RTR"), "{error}");
    Ok(())
}

fn the_kernel_driver_cannot_drain_a_send_queue_and_the_refusal_says_so(bed: &Bed) -> Outcome {
    let mut end = bed.end::<Rc>(&PairOptions::default())?;
    let error = end.qp.modify(&to(QueueState::Error)).expect_err("from RESET").to_string();
    assert!(error.contains("INIT on"), "{error}");
    advance(&mut end, rc, 3)?;
    let error = end.qp.modify(&to(QueueState::SendQueueDrained)).expect_err("RTS to SQD");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("the device does it by itself"), "{error}");
    assert_eq!(end.qp.query()?.qp_state, QueueState::ReadyToSend);
    Ok(())
}

fn query_returns_the_attributes_that_were_set(bed: &Bed) -> Outcome {
    let mut end = bed.end::<Rc>(&PairOptions::default().sq_sig_all(true))?;
    let fresh = end.qp.query()?;
    assert_eq!((fresh.qp_state, fresh.ah_attr), (QueueState::Reset, None));
    advance(&mut end, rc, 3)?;
    let attr = end.qp.query()?;
    assert_eq!(attr.qp_state, QueueState::ReadyToSend);
    assert_eq!(attr.path_mtu, Some(Mtu::Mtu1024));
    assert_eq!(attr.dest_qp_num.get(), end.qp.qp_num());
    assert_eq!((attr.rq_psn.get(), attr.sq_psn.get()), (0x123, 0x123));
    assert_eq!((attr.timeout.get(), attr.retry_cnt.get(), attr.rnr_retry.get()), (14, 6, 5));
    assert_eq!((attr.max_rd_atomic, attr.max_dest_rd_atomic), (2, 4));
    assert_eq!(attr.min_rnr_timer.get(), 12);
    assert_eq!((attr.port_num, attr.pkey_index), (end.port.port_num, 0));
    assert_eq!(attr.qp_access_flags, AccessFlags::REMOTE_WRITE);
    let path = attr.ah_attr.ok_or("a connected queue pair has a path")?;
    let set = path_to_self(&end.port);
    assert_eq!((path.port_num, path.dlid), (set.port_num, set.dlid));
    assert_eq!(path.grh.map(|route| route.dgid), set.grh.map(|route| route.dgid));
    assert_eq!(attr.cap.max_recv_wr, end.qp.caps().max_recv_wr);
    assert!(attr.sq_sig_all && !attr.sq_draining);
    Ok(())
}

fn attributes_change_within_rts(bed: &Bed) -> Outcome {
    let mut end = bed.end::<Rc>(&PairOptions::default())?;
    advance(&mut end, rc, 3)?;
    let more = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE;
    end.qp.modify(&QpAttributes::new().qp_access_flags(more).min_rnr_timer(RnrTimer::new(20)?))?;
    let attr = end.qp.query()?;
    assert_eq!((attr.qp_access_flags, attr.min_rnr_timer.get()), (more, 20));
    assert_eq!(attr.retry_cnt.get(), 6, "what is not named stays");

    let mut datagram = bed.end::<Ud>(&PairOptions::default())?;
    advance(&mut datagram, ud, 3)?;
    datagram.qp.modify(&QpAttributes::new().qkey(0x77))?;
    assert_eq!(datagram.qp.query()?.qkey, 0x77);
    Ok(())
}

fn a_path_by_a_port_that_is_not_there_is_refused_before_the_kernel_sees_it(bed: &Bed) -> Outcome {
    let mut end = bed.end::<Rc>(&PairOptions::default())?;
    advance(&mut end, rc, 1)?;
    let [_, (rtr, _), _] = rc(&end.port, end.qp.qp_num())?;
    let path = AhAttr { port_num: 9, ..path_to_self(&end.port) };
    let error = end.qp.modify(&rtr.ah_attr(path)).expect_err("there is no port 9");
    assert_eq!((error.kind(), error.errno()), (ErrorKind::InvalidArgument, None));
    assert!(error.to_string().contains("port 9"), "{error}");
    let steep = AhAttr { sl: 16, ..path_to_self(&end.port) };
    let error = end.qp.modify(&rtr.ah_attr(steep)).expect_err("there is no such level");
    assert!(error.to_string().contains("service level"), "{error}");
    end.qp.modify(&rtr)?;
    Ok(())
}

fn from_every_state<T: Wired>(bed: &Bed, steps: Steps) -> Outcome {
    let mut end = bed.end::<T>(&PairOptions::default())?;
    end.qp.modify(&to(QueueState::Reset))?;
    for count in 1..=3 {
        advance(&mut end, steps, count)?;
        end.qp.modify(&to(QueueState::Reset))?;
        assert_eq!(end.qp.query()?.qp_state, QueueState::Reset);
        advance(&mut end, steps, count)?;
        end.qp.modify(&to(QueueState::Error))?;
        assert_eq!(end.qp.query()?.qp_state, QueueState::Error);
        end.qp.modify(&to(QueueState::Error))?;
        end.qp.modify(&to(QueueState::Reset))?;
    }
    Ok(())
}

fn every_state_leads_to_reset_and_to_error(bed: &Bed) -> Outcome {
    from_every_state::<Rc>(bed, rc)?;
    from_every_state::<Uc>(bed, uc)?;
    from_every_state::<Ud>(bed, ud)
}

fn posting_is_refused_in_states_that_do_not_allow_it(bed: &Bed) -> Outcome {
    fn send(end: &mut End<Rc>) -> Option<PostError> {
        let mut batch = end.qp.wr_start();
        batch.wr(1, SendFlags::SIGNALED).send().inline_data(b"x");
        batch.complete().err().map(|refused| refused.error())
    }
    let mut end = bed.end::<Rc>(&PairOptions::default())?;
    let refused = end.qp.post_recv(&[ReceiveWr { wr_id: 1, sges: &[] }]).expect_err("in RESET");
    assert_eq!((refused.index(), refused.error()), (0, PostError::State(QueueState::Reset)));
    assert_eq!(send(&mut end), Some(PostError::State(QueueState::Reset)));
    advance(&mut end, rc, 1)?;
    assert_eq!(send(&mut end), Some(PostError::State(QueueState::Init)));
    end.recv(2, 0..64);
    let [_, (rtr, _), (rts, _)] = rc(&end.port, end.qp.qp_num())?;
    end.qp.modify(&rtr)?;
    assert_eq!(send(&mut end), Some(PostError::State(QueueState::ReadyToReceive)));
    end.qp.modify(&rts)?;
    assert_eq!(send(&mut end), None);
    bed.poll_good(&mut end.send_cq, 1);
    assert_eq!(bed.poll_good(end.recv_cq(), 1)[0].as_completion().wr_id(), 2);
    Ok(())
}

fn everything_posted_to_a_queue_pair_in_error_is_flushed_in_order(bed: &Bed) -> Outcome {
    let mut end = bed.end::<Rc>(&PairOptions::default())?;
    advance(&mut end, rc, 3)?;
    end.recv(100, 0..64);
    end.recv(101, 0..64);
    end.qp.modify(&to(QueueState::Error))?;
    let mut batch = end.qp.wr_start();
    batch.wr(0, SendFlags::empty()).send().inline_data(b"unsignaled, too");
    batch.wr(1, SendFlags::SIGNALED).send().inline_data(b"x");
    batch.wr(2, SendFlags::empty()).send().inline_data(b"y");
    batch.complete()?;
    end.recv(102, 0..64);
    let sent = bed.poll(&mut end.send_cq, 3);
    let received = bed.poll(end.recv_cq(), 3);
    let ids = |found: &[OwnedCompletion]| -> Vec<u64> {
        found.iter().map(|one| one.as_completion().wr_id()).collect()
    };
    assert_eq!((ids(&sent), ids(&received)), (vec![0, 1, 2], vec![100, 101, 102]));
    for one in sent.iter().chain(&received) {
        assert!(one.as_completion().status().expect_err("flushed").is_flushed());
    }
    bed.nothing(&mut end.send_cq);
    Ok(())
}

fn goes_on<T: Traffic>(bed: &Bed) -> Outcome {
    let mut pair = bed.pair::<T>(&PairOptions::default())?;
    pair.b.recv(50, 0..128);
    let nowhere = Sge { addr: 0x1000, length: 64, lkey: 0xdead };
    let good = pair.a.mr.sge(0..64)?;
    let bad = [nowhere];
    let fine = [good];
    pair.a.post_all(
        Form::Typed,
        &[
            Post::new(Op::Send, 1, mlx5::Data::Sges(&bad)),
            Post::new(Op::Send, 2, mlx5::Data::Sges(&fine)),
        ],
    )?;
    let failed = bed.poll(&mut pair.a.send_cq, 2);
    let error = failed[0].as_completion().status().expect_err("no such key");
    assert_eq!(error.kind, CompletionErrorKind::Known(Syndrome::LocalProtection));
    assert!(failed[1].as_completion().status().expect_err("after it").is_flushed());
    let attr = pair.a.qp.query()?;
    assert_eq!(attr.qp_state, QueueState::SendQueueError);
    pair.a.qp.modify(&to(QueueState::ReadyToSend).cur_qp_state(QueueState::SendQueueError))?;
    fill(&pair.a.mr, 0, 8, 64)?;
    pair.a.post(Form::Typed, Post::new(Op::Send, 3, mlx5::Data::Sges(&fine)))?;
    bed.poll_good(&mut pair.a.send_cq, 1);
    assert_eq!(bed.poll_good(pair.b.recv_cq(), 1)[0].as_completion().wr_id(), 50);
    verify(&pair.b.mr, T::GRH, 8, 64);
    Ok(())
}

fn a_failed_send_queue_of_an_unreliable_transport_can_go_on(bed: &Bed) -> Outcome {
    goes_on::<Uc>(bed)?;
    goes_on::<Ud>(bed)
}

/// Sends 64 bytes from one end to the other.
fn exchange(bed: &Bed, pair: &mut Pair<Rc>, seed: u64) -> Outcome {
    pair.b.recv(seed, 0..64);
    fill(&pair.a.mr, 0, seed, 64)?;
    let sges = [pair.a.mr.sge(0..64)?];
    pair.a.post(Form::Typed, Post::new(Op::Send, seed, mlx5::Data::Sges(&sges)))?;
    assert_eq!(bed.poll_good(&mut pair.a.send_cq, 1)[0].as_completion().wr_id(), seed);
    assert_eq!(bed.poll_good(pair.b.recv_cq(), 1)[0].as_completion().wr_id(), seed);
    verify(&pair.b.mr, 0, seed, 64);
    Ok(())
}

fn reconnect(pair: &mut Pair<Rc>) -> Outcome {
    pair.a.qp.modify(&to(QueueState::Reset))?;
    pair.b.qp.modify(&to(QueueState::Reset))?;
    crate::pair::connect_ends(&mut pair.a, &mut pair.b, &PairOptions::default())
}

fn a_queue_pair_starts_over_after_a_reset(bed: &Bed) -> Outcome {
    let mut pair = bed.pair::<Rc>(&PairOptions::default())?;
    let (blocks, receives) = (pair.a.qp.free_send_blocks(), pair.b.qp.free_receives());
    for round in 1..=5 {
        for message in 0..round {
            exchange(bed, &mut pair, round * 10 + message)?;
        }
        // Receives that were not used are dropped without a completion.
        pair.b.recv(999, 0..64);
        reconnect(&mut pair)?;
        assert_eq!(pair.a.qp.free_send_blocks(), blocks);
        assert_eq!(pair.b.qp.free_receives(), receives);
    }
    bed.nothing(pair.b.recv_cq());
    Ok(())
}

fn completions_from_before_a_reset_must_be_polled_before_it_starts_over(bed: &Bed) -> Outcome {
    let mut pair = bed.pair::<Rc>(&PairOptions::default())?;
    pair.b.recv(1, 0..64);
    let sges = [pair.a.mr.sge(0..64)?];
    pair.a.post(Form::Typed, Post::new(Op::Send, 1, mlx5::Data::Sges(&sges)))?;
    bed.poll_good(pair.b.recv_cq(), 1);
    bed.settle();
    pair.a.qp.modify(&to(QueueState::Reset))?;
    let init = connected_init(&pair.a.port);
    let error = pair.a.qp.modify(&init).expect_err("a completion waits");
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(error.to_string().contains("poll"), "{error}");
    assert_eq!(pair.a.qp.state(), QueueState::Reset);
    assert_eq!(bed.poll_good(&mut pair.a.send_cq, 1)[0].as_completion().wr_id(), 1);
    reconnect(&mut pair)?;
    exchange(bed, &mut pair, 7)
}
