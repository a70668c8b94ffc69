//! Posting: lists of requests, and batches of `ibv_wr_*`.

use crate::bed::*;
use crate::header::*;
use mlx5_verbs::abi::*;
use mlx5_verbs::{ah, qp};
use std::ptr::null_mut;

/// Links the requests of a list.
fn linked(list: &mut [ibv_send_wr]) -> *mut ibv_send_wr {
    for place in 0..list.len() - 1 {
        list[place].next = &mut list[place + 1];
    }
    list.as_mut_ptr()
}

#[test]
fn every_operation_of_a_list_does_what_it_is_called() {
    let mut bed = Bed::new();
    let pair = bed.pair(IBV_QPT_RC);
    let remote = |at: u64| bed.memory.address() + HALF + at;
    let rkey = c!((*bed.mr).rkey);
    bed.memory.write(0, b"written.");
    bed.memory.write(HALF as usize + 64, b"readable");
    bed.memory.write(HALF as usize + 128, &7_u64.to_ne_bytes());
    let mut places = [bed.sge(0, 8), bed.sge(256, 8), bed.sge(264, 8), bed.sge(272, 8)];
    let mut list = [
        send_wr(0, IBV_WR_RDMA_WRITE),
        send_wr(1, IBV_WR_RDMA_READ),
        send_wr(2, IBV_WR_ATOMIC_FETCH_AND_ADD),
        send_wr(3, IBV_WR_ATOMIC_CMP_AND_SWP),
    ];
    for (wr, place) in list.iter_mut().zip(&mut places) {
        (wr.sg_list, wr.num_sge) = (place, 1);
    }
    list[0].wr.rdma = ibv_send_wr_wr_rdma { remote_addr: remote(0), rkey };
    list[1].wr.rdma = ibv_send_wr_wr_rdma { remote_addr: remote(64), rkey };
    let atomic = |compare_add, swap| ibv_send_wr_wr_atomic {
        remote_addr: remote(128),
        compare_add,
        swap,
        rkey,
    };
    list[2].wr.atomic = atomic(5, 0);
    list[3].wr.atomic = atomic(12, 99);
    let mut bad = null_mut();
    ok(post_send(pair.qp, linked(&mut list), &mut bad));
    bed.run();
    let found: Vec<_> = poll(pair.cq).iter().map(|wc| (wc.wr_id, wc.status, wc.opcode)).collect();
    let opcodes = [IBV_WC_RDMA_WRITE, IBV_WC_RDMA_READ, IBV_WC_FETCH_ADD, IBV_WC_COMP_SWAP];
    let expected: Vec<_> =
        (0..).zip(opcodes).map(|(wr_id, opcode)| (wr_id, IBV_WC_SUCCESS, opcode)).collect();
    assert_eq!(found, expected);
    assert_eq!(&bed.memory.read::<8>(HALF as usize), b"written.");
    assert_eq!(&bed.memory.read::<8>(256), b"readable");
    assert_eq!(u64::from_ne_bytes(bed.memory.read(264)), 7);
    assert_eq!(u64::from_ne_bytes(bed.memory.read(272)), 12);
    assert_eq!(u64::from_ne_bytes(bed.memory.read(HALF as usize + 128)), 99);
    pair.destroy();
    bed.end();
}

#[test]
fn data_that_is_inline_is_copied_during_the_call() {
    let mut bed = Bed::new();
    let pair = bed.pair(IBV_QPT_RC);
    ok(receive(pair.peer, 1, bed.sge(HALF, 64)));
    let mut bytes = *b"not registered";
    let mut places = [
        ibv_sge { addr: bytes.as_ptr().expose_provenance() as u64, length: 4, lkey: 0 },
        ibv_sge { addr: bytes[4..].as_ptr().expose_provenance() as u64, length: 10, lkey: 0 },
    ];
    let mut wr = send_wr(2, IBV_WR_SEND);
    (wr.sg_list, wr.num_sge) = (places.as_mut_ptr(), 2);
    wr.send_flags |= IBV_SEND_INLINE;
    ok(post_one(pair.qp, &mut wr));
    bytes.fill(0);
    bed.run();
    assert_eq!(outcomes(pair.cq), [(2, IBV_WC_SUCCESS)]);
    assert_eq!(&bed.memory.read::<14>(HALF as usize), b"not registered");
    pair.destroy();
    bed.end();
}

/// Makes a request that is refused.
type Spoil<'a> = &'a dyn Fn(&mut ibv_send_wr);

#[test]
fn the_request_that_is_refused_is_named_and_those_before_it_are_posted() {
    let mut bed = Bed::new();
    let pair = bed.pair(IBV_QPT_RC);
    let spoils: [(Spoil<'_>, c_int); 4] = [
        (&|wr| wr.opcode = 99, libc::EINVAL),
        (&|wr| wr.num_sge = 50, libc::ENOMEM),
        (&|wr| wr.opcode = IBV_WR_DRIVER1, libc::EINVAL),
        (
            &|wr| {
                wr.send_flags |= IBV_SEND_INLINE;
                c!((*wr.sg_list).length = 1 << 20);
            },
            libc::ENOMEM,
        ),
    ];
    for (case, (spoil, errno)) in spoils.into_iter().enumerate() {
        for wr_id in 0..2 {
            ok(receive(pair.peer, wr_id, bed.sge(HALF, 8)));
        }
        let mut places = vec![bed.sge(0, 8); 50];
        let mut list = [0, 1, 2, 3].map(|wr_id| send_wr(wr_id, IBV_WR_SEND));
        for wr in &mut list {
            (wr.sg_list, wr.num_sge) = (places.as_mut_ptr(), 1);
        }
        list[2].sg_list = &mut places[1];
        spoil(&mut list[2]);
        let mut bad = null_mut();
        let answer = post_send(pair.qp, linked(&mut list), &mut bad);
        assert_eq!(answer, errno, "case {case}");
        assert_eq!(bad, &raw mut list[2], "case {case}");
        bed.run();
        let expected = [(0, IBV_WC_SUCCESS), (1, IBV_WC_SUCCESS)];
        assert_eq!(
            (outcomes(pair.cq).as_slice(), outcomes(pair.peer_cq).len()),
            (&expected[..], 2)
        );
    }
    pair.destroy();
    bed.end();
}

#[test]
fn a_full_send_queue_refuses_and_has_room_again_after_a_poll() {
    let mut bed = Bed::new();
    let pair = bed.pair(IBV_QPT_RC);
    let (mut attr, mut init) = (blank(), blank::<ibv_qp_init_attr>());
    ok(c!(qp::modify::query_qp(pair.qp, &mut attr, IBV_QP_CAP as c_int, &mut init)));
    let write = |wr_id| {
        let mut sge = bed.sge(0, 8);
        let mut wr = send_wr(wr_id, IBV_WR_RDMA_WRITE);
        (wr.sg_list, wr.num_sge) = (&mut sge, 1);
        let (remote_addr, rkey) = (bed.memory.address() + HALF, c!((*bed.mr).rkey));
        wr.wr.rdma = ibv_send_wr_wr_rdma { remote_addr, rkey };
        post_one(pair.qp, &mut wr)
    };
    for lap in 0..3 {
        let posted = (0..).take_while(|wr_id| write(*wr_id) == 0).count();
        assert!(posted >= init.cap.max_send_wr as usize, "lap {lap}: {posted}");
        assert_eq!(write(9), libc::ENOMEM);
        bed.run();
        assert_eq!(write(9), libc::ENOMEM, "nothing was polled");
        assert_eq!(poll(pair.cq).len(), posted);
    }
    pair.destroy();
    bed.end();
}

#[test]
fn requests_that_are_not_signaled_are_not_reported_unless_the_queue_pair_signals_all() {
    for signals_all in [false, true] {
        let mut bed = Bed::new();
        let cq = bed.cq(16);
        let mut init = bed.qp_init(IBV_QPT_RC, cq);
        init.sq_sig_all = signals_all.into();
        let qp = made(c!(qp::create::create_qp(bed.pd, &mut init)));
        bed.connect(qp, qp);
        bed.to_rts(qp);
        for wr_id in 0..4 {
            let mut wr = send_wr(wr_id, IBV_WR_RDMA_WRITE);
            wr.send_flags = if wr_id % 2 == 0 { 0 } else { IBV_SEND_SIGNALED };
            let (remote_addr, rkey) = (bed.memory.address() + HALF, c!((*bed.mr).rkey));
            wr.wr.rdma = ibv_send_wr_wr_rdma { remote_addr, rkey };
            ok(post_one(qp, &mut wr));
        }
        bed.run();
        let ids: Vec<_> = poll(cq).iter().map(|wc| wc.wr_id).collect();
        assert_eq!(ids, if signals_all { vec![0, 1, 2, 3] } else { vec![1, 3] });
        let (mut attr, mut found) = (blank(), blank::<ibv_qp_init_attr>());
        ok(c!(qp::modify::query_qp(qp, &mut attr, IBV_QP_CAP as c_int, &mut found)));
        assert_eq!(found.sq_sig_all, c_int::from(signals_all));
        ok(c!(qp::create::destroy_qp(qp)));
        bed.end();
    }
}

#[test]
fn a_queue_pair_posts_no_request_before_its_state_allows_it() {
    let mut bed = Bed::new();
    let cq = bed.cq(4);
    let mut init = bed.qp_init(IBV_QPT_RC, cq);
    let qp = made(c!(qp::create::create_qp(bed.pd, &mut init)));
    let mut wr = send_wr(1, IBV_WR_SEND);
    assert_ne!(post_one(qp, &mut wr), 0);
    assert_ne!(receive(qp, 1, bed.sge(HALF, 8)), 0);
    bed.to_init(qp);
    assert_ne!(post_one(qp, &mut wr), 0);
    ok(receive(qp, 1, bed.sge(HALF, 8)));
    ok(c!(qp::create::destroy_qp(qp)));
    bed.end();
}

const OPS: u64 = (IBV_QP_EX_WITH_SEND
    | IBV_QP_EX_WITH_SEND_WITH_IMM
    | IBV_QP_EX_WITH_RDMA_WRITE
    | IBV_QP_EX_WITH_RDMA_READ) as u64;

fn extended(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    made(c!(qp::extended::qp_to_qp_ex(qp)))
}

#[test]
fn only_a_queue_pair_that_was_made_with_operations_is_an_extended_one() {
    let mut bed = Bed::new();
    let pair = bed.pair_on(IBV_QPT_RC, null_mut(), OPS);
    assert_eq!(extended(pair.qp).cast(), pair.qp);
    assert!(c!(qp::extended::qp_to_qp_ex(pair.peer)).is_null());
    pair.destroy();
    bed.end();
}

#[test]
fn a_batch_is_posted_as_a_whole_when_it_is_completed() {
    let mut bed = Bed::new();
    let pair = bed.pair_on(IBV_QPT_RC, null_mut(), OPS);
    let ex = extended(pair.qp);
    bed.memory.write(0, b"batch 0 batch 1 ");
    for wr_id in 0..2 {
        ok(receive(pair.peer, 10 + wr_id, bed.sge(HALF + 64 * wr_id, 64)));
    }
    let (lkey, rkey) = c!(((*bed.mr).lkey, (*bed.mr).rkey));
    let own = bed.memory.address();
    let inline = *b"inline";
    c!({
        ((*ex).wr_start.unwrap())(ex);
        (*ex).wr_flags = IBV_SEND_SIGNALED;
        (*ex).wr_id = 0;
        ((*ex).wr_send.unwrap())(ex);
        ((*ex).wr_set_sge.unwrap())(ex, lkey, own, 8);
        (*ex).wr_id = 1;
        ((*ex).wr_send_imm.unwrap())(ex, 0x0102_0304_u32.to_be());
        let list = [bed.sge(8, 4), bed.sge(12, 4)];
        ((*ex).wr_set_sge_list.unwrap())(ex, 2, list.as_ptr());
        (*ex).wr_id = 2;
        ((*ex).wr_rdma_write.unwrap())(ex, rkey, own + HALF + 1024);
        ((*ex).wr_set_inline_data.unwrap())(ex, inline.as_ptr().cast_mut().cast(), 6);
        (*ex).wr_id = 3;
        ((*ex).wr_rdma_read.unwrap())(ex, rkey, own + HALF + 1024);
        ((*ex).wr_set_sge.unwrap())(ex, lkey, own + 512, 6);
    });
    bed.run();
    assert_eq!(poll(pair.cq).len(), 0, "it is not completed");
    ok(c!(((*ex).wr_complete.unwrap())(ex)));
    bed.run();
    assert_eq!(outcomes(pair.cq), [0, 1, 2, 3].map(|wr_id| (wr_id, IBV_WC_SUCCESS)));
    let came = poll(pair.peer_cq);
    assert_eq!([came[0].wc_flags, came[1].wc_flags], [0, IBV_WC_WITH_IMM]);
    assert_eq!(c!(came[1].imm.imm_data), 0x0102_0304_u32.to_be());
    assert_eq!(&bed.memory.read::<8>(HALF as usize), b"batch 0 ");
    assert_eq!(&bed.memory.read::<8>(HALF as usize + 64), b"batch 1 ");
    assert_eq!(&bed.memory.read::<6>(512), b"inline");
    pair.destroy();
    bed.end();
}

#[test]
fn nothing_of_a_batch_that_is_aborted_or_refused_is_posted() {
    let mut bed = Bed::new();
    let pair = bed.pair_on(IBV_QPT_RC, null_mut(), OPS);
    let ex = extended(pair.qp);
    let (lkey, own) = (c!((*bed.mr).lkey), bed.memory.address());
    let begin = |wr_id| {
        c!({
            ((*ex).wr_start.unwrap())(ex);
            ((*ex).wr_id, (*ex).wr_flags) = (wr_id, IBV_SEND_SIGNALED);
            ((*ex).wr_send.unwrap())(ex);
            ((*ex).wr_set_sge.unwrap())(ex, lkey, own, 8);
        });
    };
    ok(receive(pair.peer, 1, bed.sge(HALF, 8)));
    begin(1);
    c!(((*ex).wr_abort.unwrap())(ex));
    // More SGEs than a request has.
    begin(2);
    let list = vec![bed.sge(0, 1); 60];
    c!({
        ((*ex).wr_send.unwrap())(ex);
        ((*ex).wr_set_sge_list.unwrap())(ex, list.len(), list.as_ptr());
    });
    assert_ne!(c!(((*ex).wr_complete.unwrap())(ex)), 0);
    // A request without data.
    begin(3);
    c!(((*ex).wr_send.unwrap())(ex));
    assert_eq!(c!(((*ex).wr_complete.unwrap())(ex)), libc::EINVAL);
    // More requests than there is room for.
    c!(((*ex).wr_start.unwrap())(ex));
    for _ in 0..1000 {
        c!({
            ((*ex).wr_send.unwrap())(ex);
            ((*ex).wr_set_sge.unwrap())(ex, lkey, own, 8);
        });
    }
    assert_eq!(c!(((*ex).wr_complete.unwrap())(ex)), libc::ENOMEM);
    bed.run();
    assert_eq!(poll(pair.cq).len() + poll(pair.peer_cq).len(), 0);
    begin(5);
    ok(c!(((*ex).wr_complete.unwrap())(ex)));
    bed.run();
    assert_eq!(outcomes(pair.cq), [(5, IBV_WC_SUCCESS)]);
    assert_eq!(outcomes(pair.peer_cq), [(1, IBV_WC_SUCCESS)]);
    pair.destroy();
    bed.end();
}

/// The program chooses the order of the setters.
#[test]
fn a_datagram_of_a_batch_has_its_address_before_or_after_its_data() {
    let mut bed = Bed::new();
    let ops = (IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM) as u64;
    let pair = bed.pair_on(IBV_QPT_UD, null_mut(), ops);
    let ex = extended(pair.qp);
    let mut path = bed.path();
    let handle = made(c!(ah::create_ah(bed.pd, &mut path)));
    let (lkey, own, number) = (c!((*bed.mr).lkey), bed.memory.address(), c!((*pair.peer).qp_num));
    for wr_id in 0..2 {
        bed.memory.write(0, &[b'a' + wr_id as u8; 8]);
        ok(receive(pair.peer, 10 + wr_id, bed.sge(HALF, 48)));
        c!({
            ((*ex).wr_start.unwrap())(ex);
            ((*ex).wr_id, (*ex).wr_flags) = (wr_id, IBV_SEND_SIGNALED);
            ((*ex).wr_send.unwrap())(ex);
            if wr_id == 0 {
                ((*ex).wr_set_sge.unwrap())(ex, lkey, own, 8);
            }
            ((*ex).wr_set_ud_addr.unwrap())(ex, handle, number, QKEY);
            if wr_id == 1 {
                ((*ex).wr_set_sge.unwrap())(ex, lkey, own, 8);
            }
            ok(((*ex).wr_complete.unwrap())(ex));
        });
        bed.run();
        assert_eq!(outcomes(pair.peer_cq), [(10 + wr_id, IBV_WC_SUCCESS)]);
        assert_eq!(bed.memory.read(HALF as usize + 40), [b'a' + wr_id as u8; 8]);
    }
    assert_eq!(outcomes(pair.cq).len(), 2);
    ok(c!(ah::destroy_ah(handle)));
    pair.destroy();
    bed.end();
}

/// A thread that has started a batch holds the lock: another thread that posts waits for it.
#[test]
fn another_thread_posts_after_the_batch_that_was_started() {
    let mut bed = Bed::new();
    let pair = bed.pair_on(IBV_QPT_RC, null_mut(), OPS);
    let ex = extended(pair.qp);
    for wr_id in 0..2 {
        ok(receive(pair.peer, wr_id, bed.sge(HALF, 8)));
    }
    let (lkey, own) = (c!((*bed.mr).lkey), bed.memory.address());
    c!({
        ((*ex).wr_start.unwrap())(ex);
        ((*ex).wr_id, (*ex).wr_flags) = (1, IBV_SEND_SIGNALED);
        ((*ex).wr_send.unwrap())(ex);
        ((*ex).wr_set_sge.unwrap())(ex, lkey, own, 8);
    });
    let (handed, sge) = (Handed(pair.qp), bed.sge(0, 8));
    let posted = Waiting::begin(move || send(handed.get(), 2, sge));
    ok(c!(((*ex).wr_complete.unwrap())(ex)));
    posted.end();
    bed.run();
    assert_eq!(outcomes(pair.cq), [(1, IBV_WC_SUCCESS), (2, IBV_WC_SUCCESS)]);
    pair.destroy();
    bed.end();
}
