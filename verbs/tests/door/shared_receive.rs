//! Shared receive queues: their receives, their limit, their end.

use crate::bed::*;
use crate::header::*;
use mlx5_sim::Fault;
use mlx5_verbs::abi::*;
use mlx5_verbs::{event, qp, srq};
use std::ptr::null_mut;

#[test]
fn a_queue_gives_its_requests_to_the_messages_of_all_its_queue_pairs() {
    let mut bed = Bed::new();
    let srq = bed.srq(16);
    let pairs = [0; 2].map(|_| bed.pair_on(IBV_QPT_RC, srq, IBV_QP_EX_NONE));
    for wr_id in 0..4 {
        ok(receive_shared(srq, wr_id, bed.sge(HALF + 64 * wr_id, 64)));
    }
    for wr_id in 0..4_u8 {
        bed.memory.write(64 * usize::from(wr_id), &[wr_id; 8]);
        send(pairs[usize::from(wr_id % 2)].qp, wr_id.into(), bed.sge(64 * u64::from(wr_id), 8));
        bed.run();
    }
    let came = pairs.map(|pair| outcomes(pair.peer_cq));
    let of = |ids: [u64; 2]| ids.map(|wr_id| (wr_id, IBV_WC_SUCCESS)).to_vec();
    assert_eq!(came, [of([0, 2]), of([1, 3])]);
    for place in 0..4_u8 {
        assert_eq!(bed.memory.read(HALF as usize + 64 * usize::from(place)), [place; 8]);
    }
    pairs.into_iter().for_each(Pair::destroy);
    bed.end();
}

#[test]
fn a_full_queue_refuses_the_request_that_does_not_fit_and_those_after_it() {
    let mut bed = Bed::new();
    let srq = bed.srq(4);
    let mut attr = blank();
    ok(c!(srq::query_srq(srq, &mut attr)));
    let room = attr.max_wr as usize;
    let mut sge = bed.sge(HALF, 8);
    let mut list: Vec<_> = (0..room + 2)
        .map(|wr_id| ibv_recv_wr {
            wr_id: wr_id as u64,
            next: null_mut(),
            sg_list: &mut sge,
            num_sge: 1,
        })
        .collect();
    for place in 0..list.len() - 1 {
        list[place].next = &mut list[place + 1];
    }
    let mut bad = null_mut();
    assert_eq!(post_srq_recv(srq, list.as_mut_ptr(), &mut bad), libc::ENOMEM);
    assert_eq!(bad, &raw mut list[room]);
    // The requests before it were posted.
    let pair = bed.pair_on(IBV_QPT_RC, srq, IBV_QP_EX_NONE);
    for wr_id in 0..room as u64 {
        send(pair.qp, wr_id, bed.sge(0, 8));
    }
    bed.run();
    let expected: Vec<_> = (0..room as u64).map(|wr_id| (wr_id, IBV_WC_SUCCESS)).collect();
    assert_eq!(outcomes(pair.peer_cq), expected);
    // They have made room.
    assert_eq!(receive_shared(srq, 9, bed.sge(HALF, 8)), 0);
    pair.destroy();
    bed.end();
}

#[test]
fn a_request_of_too_many_places_is_refused() {
    let mut bed = Bed::new();
    let srq = bed.srq(4);
    let mut attr: ibv_srq_attr = blank();
    ok(c!(srq::query_srq(srq, &mut attr)));
    let mut places = vec![bed.sge(HALF, 8); attr.max_sge as usize + 1];
    let mut wr =
        ibv_recv_wr { wr_id: 1, next: null_mut(), sg_list: places.as_mut_ptr(), num_sge: 0 };
    wr.num_sge = places.len() as c_int;
    let mut bad = null_mut();
    assert_eq!(post_srq_recv(srq, &mut wr, &mut bad), libc::EINVAL);
    assert_eq!(bad, &raw mut wr);
    wr.num_sge -= 1;
    assert_eq!(post_srq_recv(srq, &mut wr, &mut bad), 0);
    bed.end();
}

/// Brings a queue below its limit. Returns the event.
fn below_limit(bed: &mut Bed, srq: *mut ibv_srq) -> ibv_async_event {
    let pair = bed.pair_on(IBV_QPT_RC, srq, IBV_QP_EX_NONE);
    for wr_id in 0..3 {
        ok(receive_shared(srq, wr_id, bed.sge(HALF, 8)));
    }
    let mut attr = ibv_srq_attr { max_wr: 0, max_sge: 0, srq_limit: 2 };
    ok(c!(srq::modify_srq(srq, &mut attr, IBV_SRQ_LIMIT as c_int)));
    ok(c!(srq::query_srq(srq, &mut attr)));
    assert_eq!(attr.srq_limit, 2);
    send(pair.qp, 0, bed.sge(0, 8));
    bed.run();
    assert!(bed.async_event().is_none(), "two are left");
    send(pair.qp, 1, bed.sge(0, 8));
    bed.run();
    let event = bed.async_event().expect("the limit is reached");
    assert_eq!(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
    assert_eq!(c!(event.element.srq), srq);
    // The device reports the limit once, and clears it.
    ok(c!(srq::query_srq(srq, &mut attr)));
    assert_eq!(attr.srq_limit, 0);
    send(pair.qp, 2, bed.sge(0, 8));
    bed.run();
    assert!(bed.async_event().is_none());
    pair.destroy();
    event
}

#[test]
fn reached_limit_is_reported_once_and_destroy_waits_for_its_acknowledgement() {
    let mut bed = Bed::new();
    let mut init: ibv_srq_init_attr = blank();
    init.attr = ibv_srq_attr { max_wr: 8, max_sge: 1, srq_limit: 5 };
    let srq = made(c!(srq::create_srq(bed.pd, &mut init)));
    let mut event = below_limit(&mut bed, srq);
    let handed = Handed(srq);
    let destroyed = Waiting::begin(move || c!(srq::destroy_srq(handed.get())));
    assert!(destroyed.waits());
    assert_eq!(c!((*srq).events_completed), 0);
    c!(event::ack_async_event(&mut event));
    ok(destroyed.end());
    bed.end();
}

#[test]
fn the_limit_of_the_plain_form_of_creation_is_not_looked_at() {
    let bed = Bed::new();
    let mut plain: ibv_srq_init_attr = blank();
    plain.attr = ibv_srq_attr { max_wr: 8, max_sge: 1, srq_limit: 1000 };
    let srq = made(c!(srq::create_srq(bed.pd, &mut plain)));
    ok(c!(srq::destroy_srq(srq)));
    let mut wanted: ibv_srq_init_attr_ex = blank();
    wanted.attr = ibv_srq_attr { max_wr: 8, max_sge: 1, srq_limit: 1000 };
    (wanted.comp_mask, wanted.pd) = (IBV_SRQ_INIT_ATTR_PD, bed.pd);
    not_made(create_srq_ex(bed.context, &mut wanted), libc::EINVAL);
    bed.end();
}

#[test]
fn only_the_limit_of_a_queue_changes_and_no_further_than_its_size() {
    let mut bed = Bed::new();
    let srq = bed.srq(8);
    let mut attr: ibv_srq_attr = blank();
    ok(c!(srq::query_srq(srq, &mut attr)));
    let size = attr.max_wr;
    for wr_id in 0..u64::from(size) {
        ok(receive_shared(srq, wr_id, bed.sge(HALF, 8)));
    }
    attr.srq_limit = size + 1;
    assert_eq!(c!(srq::modify_srq(srq, &mut attr, IBV_SRQ_LIMIT as c_int)), libc::EINVAL);
    attr.srq_limit = size;
    assert_eq!(c!(srq::modify_srq(srq, &mut attr, IBV_SRQ_MAX_WR as c_int)), libc::EINVAL);
    attr.srq_limit = 1;
    ok(c!(srq::modify_srq(srq, &mut attr, 0)));
    ok(c!(srq::query_srq(srq, &mut attr)));
    assert_eq!((attr.srq_limit, attr.max_wr), (0, size));
    bed.end();
}

#[test]
fn a_queue_that_queue_pairs_take_from_is_not_destroyed() {
    let mut bed = Bed::new();
    let srq = bed.srq(4);
    let pair = bed.pair_on(IBV_QPT_RC, srq, IBV_QP_EX_NONE);
    assert_eq!(c!(srq::destroy_srq(srq)), libc::EBUSY);
    ok(receive_shared(srq, 1, bed.sge(HALF, 8)));
    send(pair.qp, 2, bed.sge(0, 8));
    bed.run();
    assert_eq!(outcomes(pair.peer_cq), [(1, IBV_WC_SUCCESS)]);
    pair.destroy();
    bed.end();
}

#[test]
fn receives_that_meet_page_faults_are_posted_again_and_the_program_hears_of_none() {
    let mut bed = Bed::new();
    let srq = bed.srq(4);
    let pair = bed.pair_on(IBV_QPT_RC, srq, IBV_QP_EX_NONE);
    bed.machine.sim.inject(0, Fault::FaultReceives(3));
    for wr_id in 0..2 {
        ok(receive_shared(srq, wr_id, bed.sge(HALF, 8)));
    }
    let mut came = Vec::new();
    for wr_id in 0..2 {
        send(pair.qp, wr_id, bed.sge(0, 8));
        // Poll the completion of a fault before the message arrives again.
        while bed.machine.step() {
            came.extend(outcomes(pair.peer_cq));
        }
    }
    came.sort_unstable();
    assert_eq!(came, [(0, IBV_WC_SUCCESS), (1, IBV_WC_SUCCESS)]);
    pair.destroy();
    bed.end();
}

/// When the event arrives, a queue pair in ERR has taken its last receive from the queue: until
/// then the program may not reuse what it posted.
#[test]
fn last_receive_is_reported_and_destroy_waits_for_its_acknowledgement() {
    let mut bed = Bed::new();
    let srq = bed.srq(4);
    let pair = bed.pair_on(IBV_QPT_RC, srq, IBV_QP_EX_NONE);
    to_state(pair.peer, IBV_QPS_ERR);
    bed.run();
    let mut event = bed.async_event().expect("an event");
    assert_eq!(event.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
    assert_eq!(c!(event.element.qp), pair.peer);
    let handed = Handed(pair.peer);
    let destroyed = Waiting::begin(move || c!(qp::create::destroy_qp(handed.get())));
    assert!(destroyed.waits());
    c!(event::ack_async_event(&mut event));
    ok(destroyed.end());
    ok(c!(qp::create::destroy_qp(pair.qp)));
    bed.end();
}

#[test]
fn the_acknowledgement_of_a_last_receive_counts() {
    let mut bed = Bed::new();
    let srq = bed.srq(4);
    let pair = bed.pair_on(IBV_QPT_RC, srq, IBV_QP_EX_NONE);
    to_state(pair.peer, IBV_QPS_ERR);
    bed.run();
    acknowledge(bed.async_event().expect("an event"));
    assert!(bed.async_event().is_none());
    pair.destroy();
    bed.end();
}

#[test]
fn an_event_of_a_queue_pair_that_was_destroyed_is_not_reported() {
    let mut bed = Bed::new();
    let srq = bed.srq(4);
    let pair = bed.pair_on(IBV_QPT_RC, srq, IBV_QP_EX_NONE);
    to_state(pair.peer, IBV_QPS_ERR);
    bed.run();
    ok(ends({
        let handed = Handed(pair.peer);
        move || c!(qp::create::destroy_qp(handed.get()))
    }));
    assert!(bed.async_event().is_none());
    ok(c!(qp::create::destroy_qp(pair.qp)));
    bed.end();
}

#[test]
fn a_message_of_an_extended_connection_goes_to_the_queue_that_it_names() {
    let mut bed = Bed::new();
    let cq = bed.cq(16);
    let mut attr: ibv_xrcd_init_attr = blank();
    attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    (attr.fd, attr.oflags) = (-1, libc::O_CREAT);
    let domain = made(open_xrcd(bed.context, &mut attr));
    let mut wanted: ibv_srq_init_attr_ex = blank();
    wanted.attr = ibv_srq_attr { max_wr: 8, max_sge: 1, srq_limit: 0 };
    wanted.comp_mask = IBV_SRQ_INIT_ATTR_TYPE
        | IBV_SRQ_INIT_ATTR_XRCD
        | IBV_SRQ_INIT_ATTR_CQ
        | IBV_SRQ_INIT_ATTR_PD;
    (wanted.srq_type, wanted.pd, wanted.cq) = (IBV_SRQT_XRC, bed.pd, cq);
    wanted.xrcd = domain;
    let srq = made(create_srq_ex(bed.context, &mut wanted));
    let mut number = 0;
    ok(get_srq_num(srq, &mut number));
    assert_ne!(number, 0);
    let mut end: ibv_qp_init_attr_ex = blank();
    (end.qp_type, end.comp_mask, end.xrcd) = (IBV_QPT_XRC_RECV, IBV_QP_INIT_ATTR_XRCD, domain);
    let target = made(create_qp_ex(bed.context, &mut end));
    assert_eq!(close_xrcd(domain), libc::EBUSY);
    let mut init = bed.qp_init(IBV_QPT_XRC_SEND, cq);
    (init.cap.max_recv_wr, init.cap.max_recv_sge) = (0, 0);
    let qp = made(c!(qp::create::create_qp(bed.pd, &mut init)));
    bed.connect(qp, target);
    bed.connect(target, qp);
    bed.to_rts(qp);
    ok(receive_shared(srq, 5, bed.sge(HALF, 64)));
    bed.memory.write(0, b"extended");
    let mut sge = bed.sge(0, 8);
    let mut wr = send_wr(6, IBV_WR_SEND);
    (wr.sg_list, wr.num_sge) = (&mut sge, 1);
    wr.qp_type.xrc.remote_srqn = number;
    ok(post_one(qp, &mut wr));
    bed.run();
    let mut found = outcomes(cq);
    found.sort_unstable();
    assert_eq!(found, [(5, IBV_WC_SUCCESS), (6, IBV_WC_SUCCESS)]);
    assert_eq!(&bed.memory.read::<8>(HALF as usize), b"extended");
    // A target cannot send.
    assert_eq!(post_one(target, &mut wr), libc::EINVAL);
    ok(c!(qp::create::destroy_qp(qp)));
    ok(c!(qp::create::destroy_qp(target)));
    ok(c!(srq::destroy_srq(srq)));
    ok(close_xrcd(domain));
    // Each kind of queue has required attributes.
    wanted.comp_mask &= !IBV_SRQ_INIT_ATTR_CQ;
    not_made(create_srq_ex(bed.context, &mut wanted), libc::EINVAL);
    wanted.comp_mask = 1 << 12;
    not_made(create_srq_ex(bed.context, &mut wanted), libc::EOPNOTSUPP);
    bed.end();
}
