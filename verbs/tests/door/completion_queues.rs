//! Completion queues: polls, errors, events, sizes.

use crate::bed::*;
use crate::header::*;
use mlx5_sim::Fault;
use mlx5_verbs::abi::mlx5dv::*;
use mlx5_verbs::abi::*;
use mlx5_verbs::dv::init;
use mlx5_verbs::{cq, event, qp};
use std::ptr::null_mut;

/// The next event of a channel; the caller acknowledges it.
fn event(channel: *mut ibv_comp_channel) -> Option<(*mut ibv_cq, *mut c_void)> {
    let (mut cq, mut own) = (null_mut(), null_mut());
    match c!(cq::channel::get_cq_event(channel, &mut cq, &mut own)) {
        0 => Some((cq, own)),
        _ => {
            assert_eq!(errno(), libc::EAGAIN);
            None
        }
    }
}

#[test]
fn poll_reports_each_request_once_in_its_order() {
    let mut bed = Bed::new();
    let pair = bed.pair(IBV_QPT_RC);
    for wr_id in 0..6 {
        ok(receive(pair.peer, 100 + wr_id, bed.sge(HALF + 64 * wr_id, 64)));
        send(pair.qp, wr_id, bed.sge(64 * wr_id, 8 + wr_id as u32));
    }
    bed.run();
    let sent: Vec<_> = poll(pair.cq).iter().map(|wc| (wc.wr_id, wc.status, wc.opcode)).collect();
    let expected: Vec<_> = (0..6).map(|wr_id| (wr_id, IBV_WC_SUCCESS, IBV_WC_SEND)).collect();
    assert_eq!(sent, expected);
    let came = poll(pair.peer_cq);
    assert_eq!(came.len(), 6);
    for (place, wc) in came.iter().enumerate() {
        assert_eq!((wc.wr_id, wc.status), (100 + place as u64, IBV_WC_SUCCESS));
        assert_eq!((wc.opcode, wc.byte_len), (IBV_WC_RECV, 8 + place as u32));
        assert_eq!((wc.qp_num, wc.wc_flags), (c!((*pair.peer).qp_num), 0));
    }
    assert_eq!((poll(pair.cq).len(), poll(pair.peer_cq).len()), (0, 0));
    pair.destroy();
    bed.end();
}

#[test]
fn poll_takes_no_more_completions_than_it_is_asked_for() {
    let mut bed = Bed::new();
    let pair = bed.pair(IBV_QPT_RC);
    for wr_id in 0..5 {
        ok(receive(pair.peer, wr_id, bed.sge(HALF, 8)));
        send(pair.qp, wr_id, bed.sge(0, 8));
    }
    bed.run();
    let mut wc: [ibv_wc; 5] = blank();
    let mut ids = Vec::new();
    for (asked, found) in [(0, 0), (-1, 0), (1, 1), (2, 2), (5, 2), (5, 0), (1, 0)] {
        assert_eq!(poll_cq(pair.cq, asked, wc.as_mut_ptr()), found, "of {asked}");
        ids.extend(wc[..found as usize].iter().map(|wc| wc.wr_id));
    }
    assert_eq!(ids, [0, 1, 2, 3, 4]);
    pair.destroy();
    bed.end();
}

/// An overrun queue must not look empty: a program would wait forever.
#[test]
fn poll_of_a_queue_that_was_overrun_answers_minus_one() {
    for asked in [1, 4] {
        let mut bed = Bed::new();
        let pair = bed.pair(IBV_QPT_RC);
        // Room for two entries, and completions of two sides.
        let small = bed.cq(1);
        let mut init = bed.qp_init(IBV_QPT_RC, small);
        let qp = made(c!(qp::create::create_qp(bed.pd, &mut init)));
        bed.to_init(qp);
        let capacity = c!((*small).cqe) as u64;
        for wr_id in 0..=capacity + 1 {
            ok(receive(qp, wr_id, bed.sge(HALF, 8)));
        }
        to_state(qp, IBV_QPS_ERR);
        bed.run();
        let event = bed.async_event().expect("an event");
        assert_eq!((event.event_type, c!(event.element.cq)), (IBV_EVENT_CQ_ERR, small));
        let mut wc: [ibv_wc; 4] = blank();
        // Completions from before the error may come first.
        for _ in 0..=capacity {
            poll_cq(small, asked, wc.as_mut_ptr());
        }
        assert_eq!(poll_cq(small, asked, wc.as_mut_ptr()), -1, "of {asked}");
        assert_eq!(poll_cq(small, asked, wc.as_mut_ptr()), -1, "of {asked}, again");
        acknowledge(event);
        ok(c!(qp::create::destroy_qp(qp)));
        pair.destroy();
        bed.destroy_left();
        bed.end();
    }
}

#[test]
fn poll_in_steps_of_a_queue_that_was_overrun_answers_an_error() {
    let bed = Bed::new();
    let mut wanted: ibv_cq_init_attr_ex = blank();
    wanted.cqe = 1;
    let small = made(create_cq_ex(bed.context, &mut wanted));
    let mut init = bed.qp_init(IBV_QPT_RC, small.cast());
    let qp = made(c!(qp::create::create_qp(bed.pd, &mut init)));
    bed.to_init(qp);
    for wr_id in 0..=c!((*small).cqe) as u64 + 1 {
        ok(receive(qp, wr_id, bed.sge(HALF, 8)));
    }
    to_state(qp, IBV_QPS_ERR);
    bed.run();
    let mut event = bed.async_event().expect("an event");
    let mut none: ibv_poll_cq_attr = blank();
    let mut answer = 0;
    for _ in 0..8 {
        answer = c!(((*small).start_poll.unwrap())(small, &mut none));
        if answer != 0 {
            break;
        }
        c!(((*small).end_poll.unwrap())(small));
    }
    assert_eq!(answer, libc::EIO);
    c!(event::ack_async_event(&mut event));
    ok(c!(qp::create::destroy_qp(qp)));
    ok(c!(cq::destroy_cq(small.cast())));
    bed.end();
}

#[test]
fn an_entry_that_no_device_writes_makes_poll_answer_minus_one() {
    let mut bed = Bed::new();
    let pair = bed.pair(IBV_QPT_RC);
    // No completion has this opcode, in the last byte of an entry.
    bed.machine.sim.inject(0, Fault::CorruptCqe { cqn: None, patch: vec![(63, 0xa0)] });
    ok(receive(pair.peer, 1, bed.sge(HALF, 8)));
    send(pair.qp, 2, bed.sge(0, 8));
    bed.run();
    let mut wc: [ibv_wc; 2] = blank();
    let answers = [pair.cq, pair.peer_cq].map(|cq| poll_cq(cq, 2, wc.as_mut_ptr()));
    assert!(answers.contains(&-1), "{answers:?}");
    pair.destroy();
    bed.end();
}

#[test]
fn a_queue_without_a_channel_takes_requests_to_be_notified() {
    let mut bed = Bed::new();
    let cq = bed.cq(4);
    for solicited_only in [false, true] {
        ok(req_notify_cq(cq, solicited_only));
    }
    bed.end();
}

#[test]
fn armed_queue_notifies_its_channel_of_the_next_completion_once() {
    let mut bed = Bed::new();
    let (channel, cq) = bed.notified_cq(16);
    let own = &raw mut *Box::leak(Box::new(7_u8));
    c!((*cq).cq_context = own.cast());
    let mut init = bed.qp_init(IBV_QPT_RC, cq);
    let qp = made(c!(qp::create::create_qp(bed.pd, &mut init)));
    bed.connect(qp, qp);
    bed.to_rts(qp);
    let message = |wr_id| {
        ok(receive(qp, wr_id, bed.sge(HALF, 8)));
        send(qp, wr_id, bed.sge(0, 8));
        bed.run();
    };
    message(1);
    assert_eq!(event(channel), None, "it was not armed");
    assert_eq!(poll(cq).len(), 2);
    ok(req_notify_cq(cq, false));
    message(2);
    message(3);
    assert_eq!(event(channel), Some((cq, own.cast())));
    assert_eq!(event(channel), None, "it was not armed again");
    c!(cq::channel::ack_cq_events(cq, 1));
    // Only for messages that the sender marks.
    assert_eq!(poll(cq).len(), 4);
    ok(req_notify_cq(cq, true));
    message(4);
    assert_eq!(event(channel), None, "no sender asked for it");
    let mut wr = send_wr(5, IBV_WR_SEND);
    wr.send_flags |= IBV_SEND_SOLICITED;
    ok(receive(qp, 5, bed.sge(HALF, 8)));
    ok(post_one(qp, &mut wr));
    bed.run();
    assert_eq!(event(channel).map(|(cq, _)| cq), Some(cq));
    c!(cq::channel::ack_cq_events(cq, 1));
    ok(c!(qp::create::destroy_qp(qp)));
    bed.end();
    // SAFETY: the test leaked it above.
    drop(unsafe { Box::from_raw(own) });
}

/// A completion queue with an event that was read and is not acknowledged yet.
fn with_event(bed: &mut Bed, channel: *mut ibv_comp_channel, events: u32) -> *mut ibv_cq {
    let cq = made(c!(cq::create_cq(bed.context, 16, null_mut(), channel, 0)));
    let mut init = bed.qp_init(IBV_QPT_RC, cq);
    for _ in 0..events {
        let qp = made(c!(qp::create::create_qp(bed.pd, &mut init)));
        bed.to_init(qp);
        ok(receive(qp, 1, bed.sge(HALF, 8)));
        ok(req_notify_cq(cq, false));
        to_state(qp, IBV_QPS_ERR);
        bed.run();
        assert_eq!(event(channel).map(|(cq, _)| cq), Some(cq));
        ok(c!(qp::create::destroy_qp(qp)));
        assert_eq!(poll(cq).len(), 0);
    }
    cq
}

#[test]
fn destroy_waits_until_each_completion_event_is_acknowledged() {
    let mut bed = Bed::new();
    let channel = bed.channel();
    let cq = with_event(&mut bed, channel, 3);
    c!(cq::channel::ack_cq_events(cq, 1));
    let handed = Handed(cq);
    let destroyed = Waiting::begin(move || c!(cq::destroy_cq(handed.get())));
    assert!(destroyed.waits(), "two events are not acknowledged");
    c!(cq::channel::ack_cq_events(cq, 1));
    assert!(destroyed.waits(), "one event is not acknowledged");
    c!(cq::channel::ack_cq_events(cq, 1));
    ok(destroyed.end());
    bed.end();
}

#[test]
fn several_events_are_acknowledged_at_once() {
    let mut bed = Bed::new();
    let channel = bed.channel();
    let cq = with_event(&mut bed, channel, 3);
    c!(cq::channel::ack_cq_events(cq, 3));
    assert_eq!(c!((*cq).comp_events_completed), 3);
    let handed = Handed(cq);
    ok(ends(move || c!(cq::destroy_cq(handed.get()))));
    bed.end();
}

#[test]
fn destroy_waits_until_the_error_of_a_queue_is_acknowledged() {
    let bed = Bed::new();
    let cq = made(c!(cq::create_cq(bed.context, 1, null_mut(), null_mut(), 0)));
    let mut init = bed.qp_init(IBV_QPT_RC, cq);
    let qp = made(c!(qp::create::create_qp(bed.pd, &mut init)));
    bed.to_init(qp);
    for wr_id in 0..8 {
        ok(receive(qp, wr_id, bed.sge(HALF, 8)));
    }
    to_state(qp, IBV_QPS_ERR);
    bed.run();
    let mut event = bed.async_event().expect("an event");
    assert_eq!((event.event_type, c!(event.element.cq)), (IBV_EVENT_CQ_ERR, cq));
    ok(c!(qp::create::destroy_qp(qp)));
    let handed = Handed(cq);
    let destroyed = Waiting::begin(move || c!(cq::destroy_cq(handed.get())));
    assert!(destroyed.waits());
    c!(event::ack_async_event(&mut event));
    ok(destroyed.end());
    bed.end();
}

#[test]
fn an_event_of_a_queue_that_was_destroyed_is_not_reported() {
    let mut bed = Bed::new();
    let channel = bed.channel();
    let (gone, stays) = (with_event(&mut bed, channel, 0), with_event(&mut bed, channel, 0));
    for cq in [gone, stays] {
        let mut init = bed.qp_init(IBV_QPT_RC, cq);
        let qp = made(c!(qp::create::create_qp(bed.pd, &mut init)));
        bed.to_init(qp);
        ok(receive(qp, 1, bed.sge(HALF, 8)));
        ok(req_notify_cq(cq, false));
        to_state(qp, IBV_QPS_ERR);
        bed.run();
        ok(c!(qp::create::destroy_qp(qp)));
    }
    ok(c!(cq::destroy_cq(gone)));
    assert_eq!(event(channel).map(|(cq, _)| cq), Some(stays));
    assert_eq!(event(channel), None);
    c!(cq::channel::ack_cq_events(stays, 1));
    ok(c!(cq::destroy_cq(stays)));
    bed.end();
}

#[test]
fn a_channel_goes_after_the_last_queue_that_has_it() {
    let bed = Bed::new();
    let channel = made(c!(cq::channel::create_comp_channel(bed.context)));
    let queues = [0; 2].map(|_| made(c!(cq::create_cq(bed.context, 1, null_mut(), channel, 0))));
    assert_eq!(c!((*channel).refcnt), 2);
    for cq in queues {
        assert_eq!(c!(cq::channel::destroy_comp_channel(channel)), libc::EBUSY);
        ok(c!(cq::destroy_cq(cq)));
    }
    assert_eq!(c!((*channel).refcnt), 0);
    ok(c!(cq::channel::destroy_comp_channel(channel)));
    bed.end();
}

/// The event comes while the thread waits for it.
#[test]
fn a_thread_that_waits_at_a_channel_gets_the_event() {
    let bed = Bed::new();
    let channel = made(c!(cq::channel::create_comp_channel(bed.context)));
    let cq = made(c!(cq::create_cq(bed.context, 4, null_mut(), channel, 0)));
    let handed = Handed(channel);
    let got = Waiting::begin(move || {
        let (mut cq, mut own) = (null_mut(), null_mut());
        let answer = c!(cq::channel::get_cq_event(handed.get(), &mut cq, &mut own));
        (answer, Handed(cq))
    });
    assert!(got.waits());
    let mut init = bed.qp_init(IBV_QPT_RC, cq);
    let qp = made(c!(qp::create::create_qp(bed.pd, &mut init)));
    bed.to_init(qp);
    ok(receive(qp, 1, bed.sge(HALF, 8)));
    ok(req_notify_cq(cq, false));
    to_state(qp, IBV_QPS_ERR);
    bed.run();
    let (answer, notified) = got.end();
    assert_eq!((answer, notified.get()), (0, cq));
    c!(cq::channel::ack_cq_events(cq, 1));
    ok(c!(qp::create::destroy_qp(qp)));
    ok(c!(cq::destroy_cq(cq)));
    ok(c!(cq::channel::destroy_comp_channel(channel)));
    bed.end();
}

#[test]
fn resizing_keeps_the_completions_that_were_not_polled() {
    let mut bed = Bed::new();
    let pair = bed.pair(IBV_QPT_RC);
    let mut expected = Vec::new();
    for (round, entries) in [200, 3, 64, 7].into_iter().enumerate() {
        for wr_id in 0..3 {
            ok(receive(pair.peer, wr_id, bed.sge(HALF, 8)));
            send(pair.qp, 10 * round as u64 + wr_id, bed.sge(0, 8));
            expected.push((10 * round as u64 + wr_id, IBV_WC_SUCCESS));
        }
        bed.run();
        ok(c!(cq::resize_cq(pair.cq, entries)));
        assert!(c!((*pair.cq).cqe) >= entries, "{} of {entries}", c!((*pair.cq).cqe));
        assert_eq!(outcomes(pair.cq), expected, "resized to {entries}");
        expected.clear();
        poll(pair.peer_cq);
    }
    pair.destroy();
    bed.end();
}

#[test]
fn a_queue_is_not_made_smaller_than_what_waits_in_it() {
    let mut bed = Bed::new();
    let pair = bed.pair(IBV_QPT_RC);
    let before = c!((*pair.cq).cqe);
    for wr_id in 0..12 {
        ok(receive(pair.peer, wr_id, bed.sge(HALF, 8)));
        send(pair.qp, wr_id, bed.sge(0, 8));
    }
    bed.run();
    assert_eq!(c!(cq::resize_cq(pair.cq, 3)), libc::EINVAL);
    assert_eq!(c!((*pair.cq).cqe), before);
    let expected: Vec<_> = (0..12).map(|wr_id| (wr_id, IBV_WC_SUCCESS)).collect();
    assert_eq!(outcomes(pair.cq), expected);
    pair.destroy();
    bed.end();
}

#[test]
fn a_queue_that_queue_pairs_use_is_not_destroyed() {
    let mut bed = Bed::new();
    let pair = bed.pair(IBV_QPT_RC);
    let cq = made(c!(cq::create_cq(bed.context, 4, null_mut(), null_mut(), 0)));
    let mut init = bed.qp_init(IBV_QPT_RC, cq);
    init.recv_cq = pair.cq;
    let qp = made(c!(qp::create::create_qp(bed.pd, &mut init)));
    assert_eq!(c!(cq::destroy_cq(cq)), libc::EBUSY);
    assert_eq!(poll_cq(cq, 0, null_mut()), 0, "it is still there");
    ok(c!(qp::create::destroy_qp(qp)));
    ok(c!(cq::destroy_cq(cq)));
    pair.destroy();
    bed.end();
}

#[test]
fn moderation_is_the_only_attribute_that_changes() {
    let mut bed = Bed::new();
    let cq = bed.cq(4);
    let moderate = ibv_moderate_cq { cq_count: 8, cq_period: 16 };
    let mut attr = ibv_modify_cq_attr { attr_mask: IBV_CQ_ATTR_MODERATE, moderate };
    ok(modify_cq(cq, &mut attr));
    for attr_mask in [0, IBV_CQ_ATTR_MODERATE | 2, 4] {
        attr.attr_mask = attr_mask;
        assert_eq!(modify_cq(cq, &mut attr), libc::EINVAL, "mask {attr_mask}");
    }
    bed.end();
}

/// A poll in steps returns the completion that its last step selected.
#[test]
fn a_poll_in_steps_shows_each_completion() {
    let bed = Bed::new();
    let mut wanted: ibv_cq_init_attr_ex = blank();
    wanted.cqe = 16;
    let read = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM;
    wanted.wc_flags = read.into();
    let cq = made(create_cq_ex(bed.context, &mut wanted));
    assert!(c!((*cq).read_sl).is_none(), "it was not asked for");
    let mut init = bed.qp_init(IBV_QPT_RC, cq.cast());
    let qp = made(c!(qp::create::create_qp(bed.pd, &mut init)));
    bed.connect(qp, qp);
    bed.to_rts(qp);
    for wr_id in 0..3 {
        ok(receive(qp, 10 + wr_id, bed.sge(HALF, 64)));
        let mut sge = bed.sge(0, 5 + wr_id as u32);
        let mut wr = send_wr(wr_id, IBV_WR_SEND_WITH_IMM);
        (wr.sg_list, wr.num_sge) = (&mut sge, 1);
        wr.imm.imm_data = (0x100 + wr_id as u32).to_be();
        ok(post_one(qp, &mut wr));
        // Each message arrives before the next one is sent.
        bed.run();
    }
    let mut none: ibv_poll_cq_attr = blank();
    ok(c!(((*cq).start_poll.unwrap())(cq, &mut none)));
    let mut received = Vec::new();
    let mut sent = Vec::new();
    loop {
        c!({
            assert_eq!((*cq).status, IBV_WC_SUCCESS);
            assert_eq!(((*cq).read_qp_num.unwrap())(cq), (*qp).qp_num);
            if ((*cq).read_opcode.unwrap())(cq) == IBV_WC_RECV {
                assert_eq!(((*cq).read_wc_flags.unwrap())(cq), IBV_WC_WITH_IMM);
                let imm = u32::from_be(((*cq).read_imm_data.unwrap())(cq));
                received.push(((*cq).wr_id, ((*cq).read_byte_len.unwrap())(cq), imm));
            } else {
                sent.push((*cq).wr_id);
            }
        });
        match c!(((*cq).next_poll.unwrap())(cq)) {
            0 => {}
            answer => {
                assert_eq!(answer, libc::ENOENT);
                break;
            }
        }
    }
    c!(((*cq).end_poll.unwrap())(cq));
    assert_eq!(
        (received, sent),
        (vec![(10, 5, 0x100), (11, 6, 0x101), (12, 7, 0x102)], vec![0, 1, 2])
    );
    assert_eq!(c!(((*cq).start_poll.unwrap())(cq, &mut none)), libc::ENOENT);
    none.comp_mask = 1;
    assert_eq!(c!(((*cq).start_poll.unwrap())(cq, &mut none)), libc::EINVAL);
    ok(c!(qp::create::destroy_qp(qp)));
    ok(c!(cq::destroy_cq(cq.cast())));
    bed.end();
}

/// A thread with a poll in steps has the lock and must not take it again.
#[test]
fn a_program_resets_a_queue_pair_while_it_polls_in_steps() {
    let bed = Bed::new();
    let mut wanted: ibv_cq_init_attr_ex = blank();
    wanted.cqe = 16;
    let cq = made(create_cq_ex(bed.context, &mut wanted));
    let mut init = bed.qp_init(IBV_QPT_RC, cq.cast());
    let [one, other] = [0; 2].map(|_| made(c!(qp::create::create_qp(bed.pd, &mut init))));
    for (place, qp) in [one, other].into_iter().enumerate() {
        bed.to_init(qp);
        ok(receive(qp, 1 + place as u64, bed.sge(HALF, 8)));
        to_state(qp, IBV_QPS_ERR);
        bed.run();
    }
    let handed = (Handed(cq), Handed(other));
    let polled = ends(move || {
        let (cq, other) = (handed.0.get(), handed.1.get());
        let mut none: ibv_poll_cq_attr = blank();
        ok(c!(((*cq).start_poll.unwrap())(cq, &mut none)));
        let first = c!((*cq).wr_id);
        to_state(other, IBV_QPS_RESET);
        let next = c!(((*cq).next_poll.unwrap())(cq));
        c!(((*cq).end_poll.unwrap())(cq));
        (first, next)
    });
    assert_eq!(polled, (1, libc::ENOENT), "completions of the other one vanished");
    for qp in [one, other] {
        ok(c!(qp::create::destroy_qp(qp)));
    }
    ok(c!(cq::destroy_cq(cq.cast())));
    bed.end();
}

/// From then on completions of a queue pair that is reset stay in the queue, so no poll may be in
/// progress.
#[test]
fn queue_that_is_handed_over_in_steps_of_a_poll_ends_that_poll() {
    let bed = Bed::new();
    let mut wanted: ibv_cq_init_attr_ex = blank();
    wanted.cqe = 16;
    let cq = made(create_cq_ex(bed.context, &mut wanted));
    let mut init = bed.qp_init(IBV_QPT_RC, cq.cast());
    let qp = made(c!(qp::create::create_qp(bed.pd, &mut init)));
    bed.to_init(qp);
    for wr_id in 0..3 {
        ok(receive(qp, 1 + wr_id, bed.sge(HALF, 8)));
    }
    to_state(qp, IBV_QPS_ERR);
    bed.run();
    let handed = Handed(cq);
    let steps = ends(move || {
        let cq = handed.get();
        let (mut none, mut parts): (ibv_poll_cq_attr, mlx5dv_cq) = (blank(), blank());
        let mut obj: mlx5dv_obj = blank();
        obj.cq = mlx5dv_obj_cq { r#in: cq.cast(), out: &mut parts };
        ok(c!(((*cq).start_poll.unwrap())(cq, &mut none)));
        ok(c!(init::init_obj(&mut obj, MLX5DV_OBJ_CQ.into())));
        let consumer = c!(u32::from_be(*parts.dbrec));
        let next = c!(((*cq).next_poll.unwrap())(cq));
        c!(((*cq).end_poll.unwrap())(cq));
        // Takes the queue back.
        ok(c!(((*cq).start_poll.unwrap())(cq, &mut none)));
        let second = c!((*cq).wr_id);
        c!(((*cq).end_poll.unwrap())(cq));
        (consumer, next, second)
    });
    assert_eq!(steps, (1, libc::ENOENT, 2));
    ok(c!(qp::create::destroy_qp(qp)));
    ok(c!(cq::destroy_cq(cq.cast())));
    bed.end();
}
