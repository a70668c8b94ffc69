//! Queue pairs: creating, querying, changing state, destroying.

use crate::bed::{outcomes as outcomes_of, *};
use crate::header::*;
use mlx5_sim::engine::DrainAt;
use mlx5_verbs::abi::*;
use mlx5_verbs::{ah, event, qp};
use std::ptr::null_mut;

#[test]
fn a_queue_pair_has_at_least_the_sizes_that_it_is_asked_for() {
    let mut bed = Bed::new();
    let cq = bed.cq(4);
    for kind in [IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD] {
        let mut init = bed.qp_init(kind, cq);
        let wanted = init.cap;
        let own = &raw mut bed;
        init.qp_context = own.cast();
        let qp = made(c!(qp::create::create_qp(bed.pd, &mut init)));
        let has = init.cap;
        assert!(has.max_send_wr >= wanted.max_send_wr && has.max_recv_wr >= wanted.max_recv_wr);
        assert!(has.max_send_sge >= wanted.max_send_sge && has.max_recv_sge >= wanted.max_recv_sge);
        assert!(has.max_inline_data >= wanted.max_inline_data);
        c!({
            assert_eq!(((*qp).context, (*qp).pd), (bed.context, bed.pd));
            assert_eq!(((*qp).qp_context, (*qp).qp_type), (own.cast(), kind));
            assert_eq!(((*qp).send_cq, (*qp).recv_cq), (cq, cq));
            assert_eq!((*qp).state, IBV_QPS_RESET);
            assert_ne!((*qp).qp_num, 0);
        });
        let (mut attr, mut found) = (blank::<ibv_qp_attr>(), blank::<ibv_qp_init_attr>());
        ok(c!(qp::modify::query_qp(qp, &mut attr, IBV_QP_CAP as c_int, &mut found)));
        assert_eq!(attr.cap.max_send_wr, has.max_send_wr);
        assert_eq!((found.cap.max_recv_wr, found.qp_type), (has.max_recv_wr, kind));
        assert_eq!((found.send_cq, found.qp_context), (cq, own.cast()));
        ok(c!(qp::create::destroy_qp(qp)));
    }
    bed.end();
}

#[test]
fn invalid_queue_pair_is_refused() {
    let mut bed = Bed::new();
    let cq = bed.cq(4);
    let refused = |change: &dyn Fn(&mut ibv_qp_init_attr), expected| {
        let mut init = bed.qp_init(IBV_QPT_RC, cq);
        change(&mut init);
        not_made(c!(qp::create::create_qp(bed.pd, &mut init)), expected);
    };
    refused(&|init| init.send_cq = null_mut(), libc::EINVAL);
    refused(&|init| init.recv_cq = null_mut(), libc::EINVAL);
    refused(&|init| init.qp_type = 1, libc::EINVAL);
    refused(&|init| init.qp_type = c_uint::MAX, libc::EINVAL);
    refused(&|init| init.qp_type = IBV_QPT_DRIVER, libc::EOPNOTSUPP);
    let ex = |change: &dyn Fn(&mut ibv_qp_init_attr_ex), expected| {
        let mut init: ibv_qp_init_attr_ex = blank();
        (init.send_cq, init.recv_cq, init.qp_type) = (cq, cq, IBV_QPT_RC);
        (init.comp_mask, init.pd) = (IBV_QP_INIT_ATTR_PD, bed.pd);
        (init.cap.max_send_wr, init.cap.max_send_sge) = (1, 1);
        change(&mut init);
        not_made(create_qp_ex(bed.context, &mut init), expected);
    };
    ex(&|init| init.comp_mask = 0, libc::EINVAL);
    ex(&|init| init.comp_mask |= 1 << 20, libc::EOPNOTSUPP);
    ex(&|init| init.comp_mask |= IBV_QP_INIT_ATTR_IND_TABLE, libc::EINVAL);
    ex(&|init| init.comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER, libc::EINVAL);
    ex(
        &|init| {
            init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
            init.send_ops_flags = 1 << 40;
        },
        libc::EOPNOTSUPP,
    );
    ex(
        &|init| {
            init.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
            init.create_flags = 1 << 30;
        },
        libc::EINVAL,
    );
    bed.end();
}

#[test]
fn a_queue_pair_without_receives_takes_none() {
    let mut bed = Bed::new();
    let cq = bed.cq(4);
    let mut init = bed.qp_init(IBV_QPT_RC, cq);
    (init.cap.max_recv_wr, init.cap.max_recv_sge) = (0, 0);
    let qp = made(c!(qp::create::create_qp(bed.pd, &mut init)));
    bed.to_init(qp);
    assert_ne!(receive(qp, 1, bed.sge(HALF, 8)), 0);
    ok(c!(qp::create::destroy_qp(qp)));
    bed.end();
}

#[test]
fn a_queue_pair_goes_through_its_states_and_its_structure_shows_them() {
    let mut bed = Bed::new();
    let cq = bed.cq(16);
    let mut init = bed.qp_init(IBV_QPT_RC, cq);
    let qp = made(c!(qp::create::create_qp(bed.pd, &mut init)));
    let shows = |state| {
        assert_eq!((c!((*qp).state), state_of(qp)), (state, state));
    };
    for _ in 0..2 {
        shows(IBV_QPS_RESET);
        bed.to_init(qp);
        shows(IBV_QPS_INIT);
        to_state(qp, IBV_QPS_RESET);
        bed.connect(qp, qp);
        shows(IBV_QPS_RTR);
        bed.to_rts(qp);
        shows(IBV_QPS_RTS);
        // The device only drains by itself, and continues when it is asked.
        let mut attr: ibv_qp_attr = blank();
        attr.qp_state = IBV_QPS_SQD;
        assert_eq!(c!(qp::modify::modify_qp(qp, &mut attr, IBV_QP_STATE as c_int)), libc::EINVAL);
        bed.machine.sim.drain_qp(0, c!((*qp).qp_num), DrainAt::Now).expect("it is in RTS");
        bed.run();
        assert_eq!(state_of(qp), IBV_QPS_SQD, "asking notes it");
        shows(IBV_QPS_SQD);
        to_state(qp, IBV_QPS_RTS);
        shows(IBV_QPS_RTS);
        to_state(qp, IBV_QPS_ERR);
        shows(IBV_QPS_ERR);
        to_state(qp, IBV_QPS_RESET);
    }
    while let Some(event) = bed.async_event() {
        assert_eq!(event.event_type, IBV_EVENT_SQ_DRAINED);
        acknowledge(event);
    }
    ok(c!(qp::create::destroy_qp(qp)));
    bed.end();
}

#[test]
fn a_change_that_a_state_does_not_have_is_refused_and_changes_nothing() {
    let mut bed = Bed::new();
    let cq = bed.cq(4);
    let mut init = bed.qp_init(IBV_QPT_RC, cq);
    let qp = made(c!(qp::create::create_qp(bed.pd, &mut init)));
    let refused = |attr: &mut ibv_qp_attr, mask: c_uint| {
        let before = state_of(qp);
        assert_eq!(c!(qp::modify::modify_qp(qp, attr, mask as c_int)), libc::EINVAL, "{mask:#x}");
        assert_eq!((state_of(qp), c!((*qp).state)), (before, before));
    };
    let mut attr: ibv_qp_attr = blank();
    for state in [IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, 17, c_uint::MAX] {
        attr.qp_state = state;
        refused(&mut attr, IBV_QP_STATE);
    }
    // Too few attributes for INIT, and one that INIT does not take.
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    refused(&mut attr, IBV_QP_STATE | IBV_QP_PORT);
    let needed = IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS;
    refused(&mut attr, needed | IBV_QP_SQ_PSN);
    attr.port_num = 9;
    refused(&mut attr, needed);
    // No attribute has this bit.
    refused(&mut attr, 1 << 30);
    attr.path_mtu = 77;
    refused(&mut attr, IBV_QP_PATH_MTU);
    attr.path_mig_state = 77;
    refused(&mut attr, IBV_QP_PATH_MIG_STATE);
    ok(c!(qp::create::destroy_qp(qp)));
    bed.end();
}

#[test]
fn attributes_that_are_set_are_those_that_are_asked_for() {
    let mut bed = Bed::new();
    let cq = bed.cq(4);
    let mut init = bed.qp_init(IBV_QPT_RC, cq);
    let qp = made(c!(qp::create::create_qp(bed.pd, &mut init)));
    bed.to_init(qp);
    let mut attr: ibv_qp_attr = blank();
    (attr.qp_state, attr.path_mtu, attr.dest_qp_num) = (IBV_QPS_RTR, IBV_MTU_512, 0x1234);
    (attr.rq_psn, attr.max_dest_rd_atomic, attr.min_rnr_timer) = (0xabcdef, 2, 9);
    attr.ah_attr = bed.path();
    attr.ah_attr.sl = 3;
    modify(
        qp,
        &mut attr,
        IBV_QP_STATE
            | IBV_QP_AV
            | IBV_QP_PATH_MTU
            | IBV_QP_DEST_QPN
            | IBV_QP_RQ_PSN
            | IBV_QP_MAX_DEST_RD_ATOMIC
            | IBV_QP_MIN_RNR_TIMER,
    );
    let mut attr: ibv_qp_attr = blank();
    (attr.qp_state, attr.sq_psn, attr.timeout) = (IBV_QPS_RTS, 0x13579b, 11);
    (attr.retry_cnt, attr.rnr_retry, attr.max_rd_atomic) = (5, 6, 4);
    modify(
        qp,
        &mut attr,
        IBV_QP_STATE
            | IBV_QP_SQ_PSN
            | IBV_QP_TIMEOUT
            | IBV_QP_RETRY_CNT
            | IBV_QP_RNR_RETRY
            | IBV_QP_MAX_QP_RD_ATOMIC,
    );
    let (mut found, mut init): (ibv_qp_attr, _) = (blank(), blank());
    ok(c!(qp::modify::query_qp(qp, &mut found, IBV_QP_STATE as c_int, &mut init)));
    assert_eq!(
        (found.qp_state, found.path_mtu, found.dest_qp_num),
        (IBV_QPS_RTS, IBV_MTU_512, 0x1234)
    );
    assert_eq!((found.rq_psn, found.sq_psn), (0xabcdef, 0x13579b));
    assert_eq!((found.max_dest_rd_atomic, found.min_rnr_timer, found.max_rd_atomic), (2, 9, 4));
    assert_eq!((found.timeout, found.retry_cnt, found.rnr_retry), (11, 5, 6));
    assert_eq!((found.ah_attr.sl, found.ah_attr.dlid, found.port_num), (3, bed.port.lid, 1));
    ok(c!(qp::create::destroy_qp(qp)));
    bed.end();
}

#[test]
fn requests_of_a_queue_pair_that_fails_are_flushed_in_their_order() {
    let mut bed = Bed::new();
    let pair = bed.pair(IBV_QPT_RC);
    for wr_id in 0..4 {
        ok(receive(pair.qp, 10 + wr_id, bed.sge(HALF, 8)));
    }
    // The first write fails, because no key has this number.
    for wr_id in 0..3 {
        let mut sge = bed.sge(0, 8);
        let mut wr = send_wr(wr_id, IBV_WR_RDMA_WRITE);
        (wr.sg_list, wr.num_sge) = (&mut sge, 1);
        wr.wr.rdma = ibv_send_wr_wr_rdma { remote_addr: 0, rkey: 0x7777_7700 };
        // The unsignaled write completes, too, because it fails.
        wr.send_flags = if wr_id == 1 { 0 } else { IBV_SEND_SIGNALED };
        ok(post_one(pair.qp, &mut wr));
    }
    bed.run();
    assert_eq!(state_of(pair.qp), IBV_QPS_ERR);
    assert_eq!(c!((*pair.qp).state), IBV_QPS_ERR, "asking shows it");
    let found = poll(pair.cq);
    let outcomes: Vec<_> = found.iter().map(|wc| (wc.wr_id, wc.status)).collect();
    let (sent, received): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(|(id, _)| *id < 10);
    let flushed = IBV_WC_WR_FLUSH_ERR;
    assert_eq!(sent, [(0, IBV_WC_REM_ACCESS_ERR), (1, flushed), (2, flushed)]);
    assert_eq!(received, (10..14).map(|wr_id| (wr_id, flushed)).collect::<Vec<_>>());
    let failed = found.iter().find(|wc| wc.wr_id == 0).expect("the first");
    assert_ne!(failed.vendor_err, 0);
    assert_eq!(failed.qp_num, c!((*pair.qp).qp_num));
    // Requests that are posted later are flushed as well.
    send(pair.qp, 5, bed.sge(0, 8));
    bed.run();
    assert_eq!(outcomes_of(pair.cq), [(5, flushed)]);
    while let Some(event) = bed.async_event() {
        acknowledge(event);
    }
    pair.destroy();
    bed.end();
}

#[test]
fn completions_of_a_queue_pair_that_is_destroyed_vanish_and_those_of_others_stay() {
    let mut bed = Bed::new();
    let cq = bed.cq(32);
    let mut init = bed.qp_init(IBV_QPT_RC, cq);
    let [gone, stays] = [0; 2].map(|_| made(c!(qp::create::create_qp(bed.pd, &mut init))));
    for (place, qp) in [gone, stays].into_iter().enumerate() {
        bed.to_init(qp);
        for wr_id in 0..3 {
            ok(receive(qp, 10 * place as u64 + wr_id, bed.sge(HALF, 8)));
        }
        to_state(qp, IBV_QPS_ERR);
    }
    bed.run();
    ok(c!(qp::create::destroy_qp(gone)));
    let ids: Vec<_> = poll(cq).iter().map(|wc| wc.wr_id).collect();
    assert_eq!(ids, [10, 11, 12]);
    ok(c!(qp::create::destroy_qp(stays)));
    bed.end();
}

#[test]
fn completions_from_before_a_reset_vanish_and_the_queue_pair_works_again() {
    let mut bed = Bed::new();
    let pair = bed.pair(IBV_QPT_RC);
    for _ in 0..3 {
        for wr_id in 0..10 {
            ok(receive(pair.peer, 100 + wr_id, bed.sge(HALF, 8)));
            send(pair.qp, wr_id, bed.sge(0, 8));
        }
        // Some requests are done, and none was polled.
        for _ in 0..9 {
            bed.machine.step();
        }
        for qp in [pair.qp, pair.peer] {
            to_state(qp, IBV_QPS_RESET);
        }
        bed.run();
        assert_eq!((poll(pair.cq).len(), poll(pair.peer_cq).len()), (0, 0));
        bed.connect(pair.qp, pair.peer);
        bed.connect(pair.peer, pair.qp);
        bed.to_rts(pair.qp);
        bed.to_rts(pair.peer);
        // All room is free again.
        for wr_id in 0..16 {
            ok(receive(pair.peer, 200 + wr_id, bed.sge(HALF, 8)));
            send(pair.qp, 50 + wr_id, bed.sge(0, 8));
        }
        bed.run();
        let all =
            |first: u64| (first..first + 16).map(|id| (id, IBV_WC_SUCCESS)).collect::<Vec<_>>();
        assert_eq!(outcomes_of(pair.cq), all(50));
        assert_eq!(outcomes_of(pair.peer_cq), all(200));
    }
    pair.destroy();
    bed.end();
}

#[test]
fn a_datagram_goes_to_the_address_of_its_handle() {
    let mut bed = Bed::new();
    let pair = bed.pair(IBV_QPT_UD);
    let mut path = bed.path();
    let handle = made(c!(ah::create_ah(bed.pd, &mut path)));
    bed.memory.write(0, b"datagram");
    ok(receive(pair.peer, 1, bed.sge(HALF, 48)));
    let mut sge = bed.sge(0, 8);
    let mut wr = send_wr(2, IBV_WR_SEND_WITH_IMM);
    (wr.sg_list, wr.num_sge) = (&mut sge, 1);
    wr.imm.imm_data = 0x1234_5678_u32.to_be();
    let remote_qpn = c!((*pair.peer).qp_num);
    wr.wr.ud = ibv_send_wr_wr_ud { ah: handle, remote_qpn, remote_qkey: QKEY };
    ok(post_one(pair.qp, &mut wr));
    bed.run();
    assert_eq!(outcomes_of(pair.cq), [(2, IBV_WC_SUCCESS)]);
    let came = poll(pair.peer_cq);
    assert_eq!(came.len(), 1);
    let wc = came[0];
    assert_eq!((wc.wr_id, wc.status, wc.byte_len), (1, IBV_WC_SUCCESS, 48));
    assert_eq!(wc.src_qp, c!((*pair.qp).qp_num));
    assert_eq!(wc.wc_flags & IBV_WC_WITH_IMM, IBV_WC_WITH_IMM);
    assert_eq!(c!(wc.imm.imm_data), 0x1234_5678_u32.to_be());
    assert_eq!(wc.slid, bed.port.lid);
    assert_eq!(&bed.memory.read::<8>(HALF as usize + 40), b"datagram");
    // The path back comes from the completion.
    let mut back: ibv_ah_attr = blank();
    let mut wc = wc;
    let header = bed.memory.start.wrapping_add(HALF as usize);
    ok(c!(ah::init_ah_from_wc(bed.context, 1, &mut wc, header.cast(), &mut back)));
    assert_eq!((back.dlid, back.port_num), (bed.port.lid, 1));
    ok(c!(ah::destroy_ah(handle)));
    path.port_num = 0;
    not_made(c!(ah::create_ah(bed.pd, &mut path)), libc::EINVAL);
    pair.destroy();
    bed.end();
}

/// The event of a drained send queue, while another thread destroys the queue pair.
#[test]
fn drained_send_queue_is_reported_and_destroy_waits_for_its_acknowledgement() {
    let mut bed = Bed::new();
    let pair = bed.pair(IBV_QPT_RC);
    bed.machine.sim.drain_qp(0, c!((*pair.qp).qp_num), DrainAt::Now).expect("it is in RTS");
    bed.run();
    let mut event = bed.async_event().expect("an event");
    assert_eq!((event.event_type, c!(event.element.qp)), (IBV_EVENT_SQ_DRAINED, pair.qp));
    let handed = Handed(pair.qp);
    let destroyed = Waiting::begin(move || c!(qp::create::destroy_qp(handed.get())));
    assert!(destroyed.waits());
    c!(event::ack_async_event(&mut event));
    ok(destroyed.end());
    ok(c!(qp::create::destroy_qp(pair.peer)));
    bed.end();
}
