//! Asynchronous events.

use super::altered_kernel::{AlteredKernel, Overrides};
use crate::prelude::*;
use mlx5::{
    AccessFlags, AhAttr, AsyncEvent, AsyncEvents, ConnectOptions, Data, Errno, ErrorKind,
    LinkLayer, PollError, RnrTimer, devices_on,
};
use mlx5_sim::engine::DrainAt;
use mlx5_uapi::wait::wait_readable;
use std::os::fd::AsFd;
use std::time::Duration;

pub(crate) const CASES: &[Case] = cases![
    every_context_hears_of_a_port_that_goes_down_and_comes_up: SIMULATOR,
    the_first_message_before_rts_establishes_communication,
    a_drained_send_queue_says_so: SIMULATOR,
    access_to_foreign_memory_is_reported_at_the_target,
    a_completion_queue_that_overran_says_so_and_its_queue_pair_too,
    completions_before_an_overrun_can_be_polled,
    events_that_come_twice_are_handed_on_twice: SIMULATOR,
    events_are_handed_on_in_the_order_in_which_they_come: SIMULATOR,
    an_event_of_the_future_is_handed_on_as_it_is: SIMULATOR,
    half_an_event_is_an_error: SIMULATOR,
    events_of_a_destroyed_object_are_not_delivered: SIMULATOR,
    each_event_goes_to_one_of_the_takers: SIMULATOR,
    the_descriptor_is_readable_while_an_event_waits: SIMULATOR,
    a_waiter_wakes_when_the_event_comes: SIMULATOR,
    waiting_ends_with_its_time,
    a_fatal_error_shuts_everything_and_says_why: SIMULATOR,
    completions_from_before_a_fatal_error_are_delivered: SIMULATOR,
    objects_of_a_failed_device_can_be_destroyed: SIMULATOR,
];

/// The next event, which must come.
#[track_caller]
fn next(events: &AsyncEvents) -> AsyncEvent {
    let event = events.wait(Some(Duration::from_secs(10))).unwrap_or_else(|e| panic!("{e}"));
    event.expect("an event in time")
}

fn set_port(bed: &Bed, active: bool) {
    bed.simulator().set_port_active(0, 1, active);
}

fn every_context_hears_of_a_port_that_goes_down_and_comes_up(bed: &Bed) -> Outcome {
    let contexts = [bed.context(), bed.context()];
    for _ in 0..3 {
        set_port(bed, false);
        set_port(bed, false);
        set_port(bed, true);
        for context in &contexts {
            let events = context.async_events();
            assert_eq!(next(&events), AsyncEvent::PortError(1));
            assert_eq!(next(&events), AsyncEvent::PortActive(1));
            assert_eq!(events.next()?, None, "what stays as it is, is no event");
        }
    }
    Ok(())
}

/// Brings an end to RTR, connected to another one.
fn ready_to_receive(end: &mut End<Rc>, remote: &mlx5::Endpoint) -> Outcome {
    end.qp.init(&end.port, &ConnectOptions::default())?;
    let port = &end.port;
    let path = match port.link_layer {
        LinkLayer::Ethernet => AhAttr::roce(port.port_num, remote.gid, port.gid_index),
        _ => AhAttr::infiniband(port.port_num, remote.lid),
    };
    let rtr = QpAttributes::new()
        .qp_state(QueueState::ReadyToReceive)
        .ah_attr(path)
        .path_mtu(port.active_mtu)
        .dest_qp_num(remote.qp_num)
        .rq_psn(remote.psn)
        .max_dest_rd_atomic(1)
        .min_rnr_timer(RnrTimer::new(12)?)
        .qp_access_flags(AccessFlags::REMOTE_WRITE);
    end.qp.modify(&rtr)?;
    Ok(())
}

fn the_first_message_before_rts_establishes_communication(bed: &Bed) -> Outcome {
    let options = PairOptions::default();
    let (mut a, mut b) = (bed.end::<Rc>(&options)?, bed.end::<Rc>(&options)?);
    let (at_a, at_b) = (a.endpoint(&options), b.endpoint(&options));
    Rc::wire(&mut a, &at_b, &options)?;
    ready_to_receive(&mut b, &at_a)?;
    b.recv(1, 0..64);
    a.post(Form::Typed, Post::new(Op::Send, 1, Data::Inline(&[b"hello"])))?;
    let events = b.context.async_events();
    assert_eq!(next(&events), AsyncEvent::CommunicationEstablished(b.qp.id()));
    bed.poll_good(&mut a.send_cq, 1);
    bed.poll_good(b.recv_cq(), 1);
    assert_eq!(events.next()?, None, "once");
    Ok(())
}

fn a_drained_send_queue_says_so(bed: &Bed) -> Outcome {
    let pair = bed.pair::<Rc>(&PairOptions::default())?;
    let events = pair.a.context.async_events();
    bed.simulator().drain_qp(0, pair.a.qp.qp_num(), DrainAt::Now).map_err(|e| format!("{e:?}"))?;
    assert_eq!(next(&events), AsyncEvent::SqDrained(pair.a.qp.id()));
    assert_eq!(pair.b.context.async_events().next()?, None, "it is not the other's");
    Ok(())
}

fn access_to_foreign_memory_is_reported_at_the_target(bed: &Bed) -> Outcome {
    let mut pair = bed.pair::<Rc>(&PairOptions::default())?;
    let events = pair.b.context.async_events();
    let mut to = pair.b.mr.remote(..)?;
    to.rkey ^= 0x100;
    pair.a.post(Form::Typed, Post::new(Op::Write, 1, Data::Inline(&[b"x"])).remote(to))?;
    let failed = bed.poll_one(&mut pair.a.send_cq);
    let error = failed.as_completion().status().expect_err("no such key");
    assert_eq!(error.kind, CompletionErrorKind::Known(Syndrome::RemoteAccess));
    assert_eq!(next(&events), AsyncEvent::QpAccessError(pair.b.qp.id()));
    assert_eq!(pair.b.qp.query()?.qp_state, QueueState::Error);
    Ok(())
}

/// Overruns the send completion queue of a pair, and returns the number of completions that fit.
fn overrun(bed: &Bed, pair: &mut Pair<Rc>) -> Result<u64, Failed> {
    let fits = u64::from(pair.a.send_cq.capacity()) + 1;
    let to = pair.b.mr.remote(..)?;
    for wr_id in 0..fits + 3 {
        pair.a.post(Form::Typed, Post::new(Op::Write, wr_id, Data::Inline(&[b"x"])).remote(to))?;
    }
    bed.settle();
    Ok(fits)
}

fn a_completion_queue_that_overran_says_so_and_its_queue_pair_too(bed: &Bed) -> Outcome {
    let mut pair = bed.pair::<Rc>(&PairOptions::default().cq_entries(4))?;
    let events = pair.a.context.async_events();
    overrun(bed, &mut pair)?;
    let reported = [next(&events), next(&events)];
    assert!(reported.contains(&AsyncEvent::CqError(pair.a.send_cq.id())), "{reported:?}");
    assert!(reported.contains(&AsyncEvent::QpFatal(pair.a.qp.id())), "{reported:?}");
    assert_eq!(pair.a.qp.query()?.qp_state, QueueState::Error);
    Ok(())
}

fn completions_before_an_overrun_can_be_polled(bed: &Bed) -> Outcome {
    let mut pair = bed.pair::<Rc>(&PairOptions::default().cq_entries(4))?;
    let fits = overrun(bed, &mut pair)?;
    let found = bed.poll_good(&mut pair.a.send_cq, fits as usize);
    let ids: Vec<u64> = found.iter().map(|one| one.as_completion().wr_id()).collect();
    assert_eq!(ids, Vec::from_iter(0..fits));
    bed.nothing(&mut pair.a.send_cq);
    // The queue is unusable, but the context can make others.
    drop(pair);
    let again = bed.pair::<Rc>(&PairOptions::default())?;
    assert_eq!(again.a.qp.state(), QueueState::ReadyToSend);
    Ok(())
}

fn events_that_come_twice_are_handed_on_twice(bed: &Bed) -> Outcome {
    let context = bed.context();
    let events = context.async_events();
    bed.simulator().inject(0, Fault::DuplicateEvents(1));
    set_port(bed, false);
    set_port(bed, true);
    for expected in [AsyncEvent::PortError(1), AsyncEvent::PortError(1), AsyncEvent::PortActive(1)]
    {
        assert_eq!(next(&events), expected);
    }
    context.query_port(1)?;
    Ok(())
}

fn events_are_handed_on_in_the_order_in_which_they_come(bed: &Bed) -> Outcome {
    let context = bed.context();
    let events = context.async_events();
    bed.simulator().inject(0, Fault::ReorderEvents(2));
    set_port(bed, false);
    assert_eq!(events.next()?, None);
    set_port(bed, true);
    assert_eq!(next(&events), AsyncEvent::PortActive(1));
    assert_eq!(next(&events), AsyncEvent::PortError(1));
    assert!(context.query_port(1)?.is_active(), "an event is a hint: the port reports its state");
    Ok(())
}

/// A context whose event files return `record` first.
fn with_record(bed: &Bed, record: Vec<u8>) -> Result<mlx5::Context, Failed> {
    let (kernel, overrides) = AlteredKernel::before(bed.simulator().kernel(), Overrides::default());
    let context = devices_on(kernel)?[0].open()?;
    overrides.events.lock().map_err(|_| "poisoned")?.push_back(record);
    Ok(context)
}

fn an_event_of_the_future_is_handed_on_as_it_is(bed: &Bed) -> Outcome {
    let mut record = 5_u64.to_ne_bytes().to_vec();
    record.extend(77_u32.to_ne_bytes());
    record.extend([0; 4]);
    let context = with_record(bed, record)?;
    let events = context.async_events();
    assert_eq!(next(&events), AsyncEvent::Unknown { event_type: 77, element: 5 });
    set_port(bed, false);
    assert_eq!(next(&events), AsyncEvent::PortError(1), "and the next one is as good as ever");
    Ok(())
}

fn half_an_event_is_an_error(bed: &Bed) -> Outcome {
    let context = with_record(bed, vec![1; 7])?;
    let events = context.async_events();
    assert_eq!(events.next().expect_err("no event").errno(), Some(Errno::EPROTO));
    assert_eq!(events.next()?, None);
    Ok(())
}

fn events_of_a_destroyed_object_are_not_delivered(bed: &Bed) -> Outcome {
    let Pair { a, b } = bed.pair::<Rc>(&PairOptions::default())?;
    let events = a.context.async_events();
    bed.simulator().drain_qp(0, a.qp.qp_num(), DrainAt::Now).map_err(|e| format!("{e:?}"))?;
    bed.until("an event", || wait_readable(events.as_fd(), Some(Duration::ZERO)) == Ok(true));
    a.qp.destroy()?;
    assert_eq!(events.next()?, None);
    drop(b);
    Ok(())
}

fn each_event_goes_to_one_of_the_takers(bed: &Bed) -> Outcome {
    let context = bed.context();
    let takers = [context.async_events(), context.async_events().clone(), context.async_events()];
    for round in 0..6 {
        set_port(bed, round % 2 == 1);
    }
    let mut found = Vec::new();
    for round in 0..6 {
        found.push(next(&takers[round % 3]));
    }
    for (round, event) in found.into_iter().enumerate() {
        let expected =
            if round % 2 == 1 { AsyncEvent::PortActive(1) } else { AsyncEvent::PortError(1) };
        assert_eq!(event, expected);
    }
    for taker in &takers {
        assert_eq!(taker.next()?, None);
    }
    Ok(())
}

fn the_descriptor_is_readable_while_an_event_waits(bed: &Bed) -> Outcome {
    let context = bed.context();
    let events = context.async_events();
    let readable = || wait_readable(events.as_fd(), Some(Duration::ZERO)).expect("poll(2)");
    assert!(!readable());
    set_port(bed, false);
    assert!(readable());
    assert_eq!(next(&events), AsyncEvent::PortError(1));
    assert!(!readable());
    Ok(())
}

fn a_waiter_wakes_when_the_event_comes(bed: &Bed) -> Outcome {
    let context = bed.context();
    std::thread::scope(|scope| {
        let events = context.async_events();
        let waiter = scope.spawn(move || events.wait(None));
        set_port(bed, false);
        assert_eq!(waiter.join().expect("no panic")?, Some(AsyncEvent::PortError(1)));
        Ok(())
    })
}

fn waiting_ends_with_its_time(bed: &Bed) -> Outcome {
    let events = bed.context().async_events();
    assert_eq!(events.wait(Some(Duration::ZERO))?, None);
    assert_eq!(events.wait(Some(Duration::from_millis(1)))?, None);
    Ok(())
}

fn a_fatal_error_shuts_everything_and_says_why(bed: &Bed) -> Outcome {
    let mut pair = bed.pair::<Rc>(&PairOptions::default())?;
    let context = pair.a.context.clone();
    let events = context.async_events();
    bed.simulator().inject(0, Fault::Fatal);
    assert_eq!(next(&events), AsyncEvent::DeviceFatal);
    assert!(context.is_gone());
    let refused = pair.a.post(Form::Typed, Post::new(Op::Send, 1, Data::Inline(&[b"x"])));
    assert_eq!(refused, Err(PostError::DeviceGone));
    let refused = pair.a.qp.post_recv(&[ReceiveWr { wr_id: 1, sges: &[] }]).expect_err("gone");
    assert_eq!(refused.error(), PostError::DeviceGone);
    assert_eq!(pair.a.send_cq.poll(1, |_| {}), Err(PollError::DeviceGone));
    for error in [
        context.alloc_pd().err(),
        context.query_port(1).err(),
        context.create_cq(4).build().err(),
        pair.a.pd.allocate(64).err(),
        pair.a.qp.query().err(),
        pair.a.qp.modify(&QpAttributes::new().qp_state(QueueState::Error)).err(),
        events.next().err(),
    ] {
        assert_eq!(error.ok_or("the device is gone")?.kind(), ErrorKind::DeviceGone);
    }
    Ok(())
}

fn completions_from_before_a_fatal_error_are_delivered(bed: &Bed) -> Outcome {
    let mut pair = bed.pair::<Rc>(&PairOptions::default())?;
    let to = pair.b.mr.remote(..)?;
    for wr_id in 0..5 {
        pair.a.post(Form::Typed, Post::new(Op::Write, wr_id, Data::Inline(&[b"x"])).remote(to))?;
    }
    bed.settle();
    bed.simulator().inject(0, Fault::Fatal);
    assert_eq!(next(&pair.a.context.async_events()), AsyncEvent::DeviceFatal);
    let found = bed.poll_good(&mut pair.a.send_cq, 5);
    let ids: Vec<u64> = found.iter().map(|one| one.as_completion().wr_id()).collect();
    assert_eq!(ids, [0, 1, 2, 3, 4]);
    assert_eq!(bed.poll_err(&mut pair.a.send_cq), PollError::DeviceGone);
    Ok(())
}

fn objects_of_a_failed_device_can_be_destroyed(bed: &Bed) -> Outcome {
    let Pair { a, b } = bed.pair::<Ud>(&PairOptions::default())?;
    let context = a.context.clone();
    let srq = a.pd.create_srq(8).build()?;
    bed.simulator().inject(0, Fault::Fatal);
    assert_eq!(next(&context.async_events()), AsyncEvent::DeviceFatal);
    let End { qp, send_cq, recv_cq, mr, peer, pd, context: own, .. } = a;
    drop((b, own));
    // The kernel still has the objects, and can still destroy them.
    qp.destroy()?;
    srq.destroy()?;
    send_cq.destroy()?;
    recv_cq.ok_or("it has two queues")?.destroy()?;
    mr.deregister()?;
    peer.ok_or("a datagram end has a peer")?.ah.destroy()?;
    pd.destroy()?;
    assert_eq!(context.leaked(), 0);
    Ok(())
}
