//! Completion queues whose memory a program got (`mlx5dv_init_obj`), and that it polls by verbs
//! again.

use crate::bed::*;
use crate::header::*;
use mlx5_verbs::abi::mlx5dv::*;
use mlx5_verbs::abi::*;
use mlx5_verbs::dv::init;
use mlx5_verbs::{cq, qp};
use std::ptr::null_mut;

/// A way to poll by verbs.
type Poll = fn(*mut ibv_cq) -> Vec<u64>;

const WAYS: [Poll; 2] = [at_once, in_steps];

fn at_once(cq: *mut ibv_cq) -> Vec<u64> {
    outcomes(cq).into_iter().map(good).collect()
}

fn in_steps(cq: *mut ibv_cq) -> Vec<u64> {
    let cq: *mut ibv_cq_ex = cq.cast();
    let mut none: ibv_poll_cq_attr = blank();
    let mut found = Vec::new();
    let mut answer = c!(((*cq).start_poll.unwrap())(cq, &mut none));
    if answer == libc::ENOENT {
        return found;
    }
    while answer == 0 {
        found.push(good(c!(((*cq).wr_id, (*cq).status))));
        answer = c!(((*cq).next_poll.unwrap())(cq));
    }
    assert_eq!(answer, libc::ENOENT);
    c!(((*cq).end_poll.unwrap())(cq));
    found
}

#[track_caller]
fn good((wr_id, status): (u64, c_uint)) -> u64 {
    assert_eq!(status, IBV_WC_SUCCESS, "of {wr_id}");
    wr_id
}

fn sorted(mut wr_ids: Vec<u64>) -> Vec<u64> {
    wr_ids.sort_unstable();
    wr_ids
}

/// Creates a completion queue for both ways of polling; [`Bed::end`] destroys it.
fn queue(bed: &mut Bed, channel: *mut ibv_comp_channel) -> *mut ibv_cq {
    let mut wanted: ibv_cq_init_attr_ex = blank();
    (wanted.cqe, wanted.channel) = (64, channel);
    let cq: *mut ibv_cq = made(create_cq_ex(bed.context, &mut wanted)).cast();
    bed.later(move || ok(c!(cq::destroy_cq(cq))));
    cq
}

/// A queue pair that is connected to itself. It receives from `srq`, unless it is NULL.
fn loopback(bed: &Bed, cq: *mut ibv_cq, srq: *mut ibv_srq) -> *mut ibv_qp {
    let mut init = bed.qp_init(IBV_QPT_RC, cq);
    init.srq = srq;
    let qp = made(c!(qp::create::create_qp(bed.pd, &mut init)));
    connect(bed, qp);
    qp
}

fn connect(bed: &Bed, qp: *mut ibv_qp) {
    bed.connect(qp, qp);
    bed.to_rts(qp);
}

/// Sends a message with a receive for it.
fn message(bed: &Bed, qp: *mut ibv_qp, sends: u64, receives: u64) {
    ok(receive(qp, receives, bed.sge(HALF, 8)));
    send(qp, sends, bed.sge(0, 8));
}

fn hand_over(cq: *mut ibv_cq) -> mlx5dv_cq {
    let mut parts: mlx5dv_cq = blank();
    let mut obj: mlx5dv_obj = blank();
    obj.cq = mlx5dv_obj_cq { r#in: cq, out: &mut parts };
    ok(c!(init::init_obj(&mut obj, MLX5DV_OBJ_CQ.into())));
    parts
}

/// All bytes of the queue.
fn bytes(parts: &mlx5dv_cq) -> Vec<u8> {
    let start: *const u8 = parts.buf.cast_const().cast();
    let length = parts.cqe_cnt as usize * parts.cqe_size as usize;
    (0..length).map(|at| c!(start.add(at).read_volatile())).collect()
}

/// Stores the consumer index, as a program does that polls the queue itself.
fn consume(parts: &mlx5dv_cq, consumer: u32) {
    c!(parts.dbrec.cast::<u32>().write_volatile(consumer.to_be()));
}

#[test]
fn destroyed_queue_pair_leaves_its_successor_no_completion() {
    for poll in WAYS {
        let mut bed = Bed::new();
        let cq = queue(&mut bed, null_mut());
        let mut former = loopback(&bed, cq, null_mut());
        for round in 0..3 {
            message(&bed, former, 1, 7);
            bed.run();
            let parts = hand_over(cq);
            let before = bytes(&parts);
            ok(c!(qp::create::destroy_qp(former)));
            let next = loopback(&bed, cq, null_mut());
            assert_eq!(bytes(&parts), before, "a program may look at them");
            message(&bed, next, 2, 8);
            assert_eq!(poll(cq), [], "round {round}: nothing of it is executed");
            bed.run();
            assert_eq!(sorted(poll(cq)), [2, 8], "round {round}");
            former = next;
        }
        ok(c!(qp::create::destroy_qp(former)));
        bed.end();
    }
}

#[test]
fn reset_queue_pair_has_no_former_completion() {
    for poll in WAYS {
        let mut bed = Bed::new();
        let cq = queue(&mut bed, null_mut());
        let [qp, other] = [0; 2].map(|_| loopback(&bed, cq, null_mut()));
        for round in 0..3 {
            message(&bed, qp, 1, 7);
            bed.run();
            message(&bed, other, 3, 9);
            bed.run();
            let parts = hand_over(cq);
            let before = bytes(&parts);
            for _ in 0..2 {
                to_state(qp, IBV_QPS_RESET);
                connect(&bed, qp);
            }
            assert_eq!(bytes(&parts), before, "a program may look at them");
            message(&bed, qp, 2, 8);
            assert_eq!(sorted(poll(cq)), [3, 9], "round {round}: those of the other one stay");
            bed.run();
            assert_eq!(sorted(poll(cq)), [2, 8], "round {round}");
        }
        for qp in [qp, other] {
            ok(c!(qp::create::destroy_qp(qp)));
        }
        bed.end();
    }
}

#[test]
fn poll_goes_on_behind_what_the_program_has_polled() {
    for poll in WAYS {
        let mut bed = Bed::new();
        let cq = queue(&mut bed, null_mut());
        let [gone, stays] = [0; 2].map(|_| loopback(&bed, cq, null_mut()));
        for (wr_id, qp) in [gone, stays, stays].into_iter().enumerate() {
            message(&bed, qp, wr_id as u64, 10 + wr_id as u64);
            bed.run();
        }
        // The program polls the first message and the second.
        consume(&hand_over(cq), 4);
        ok(c!(qp::create::destroy_qp(gone)));
        assert_eq!(sorted(poll(cq)), [2, 12]);
        ok(c!(qp::create::destroy_qp(stays)));
        bed.end();
    }
}

#[test]
fn requests_of_a_shared_queue_are_free_after_the_poll_that_takes_the_queue_back() {
    for poll in WAYS {
        let mut bed = Bed::new();
        let (cq, srq) = (queue(&mut bed, null_mut()), bed.srq(4));
        let fill = |bed: &Bed| {
            let mut count = 0;
            while receive_shared(srq, count, bed.sge(HALF, 8)) == 0 {
                count += 1;
            }
            count
        };
        let room = fill(&bed);
        for reset in [true, false] {
            let qp = loopback(&bed, cq, srq);
            for wr_id in 0..room {
                send(qp, wr_id, bed.sge(0, 8));
            }
            bed.run();
            hand_over(cq);
            if reset {
                to_state(qp, IBV_QPS_RESET);
                connect(&bed, qp);
            } else {
                ok(c!(qp::create::destroy_qp(qp)));
            }
            assert_eq!(fill(&bed), 0, "the program may look at the completions");
            assert_eq!(poll(cq), []);
            assert_eq!(fill(&bed), room, "reset {reset}");
            if reset {
                ok(c!(qp::create::destroy_qp(qp)));
            }
        }
        bed.end();
    }
}

/// The index of a completion that the program has polled would cause an event at once.
#[test]
fn a_queue_is_armed_for_what_the_program_has_not_polled() {
    let mut bed = Bed::new();
    let channel = bed.channel();
    let cq = queue(&mut bed, channel);
    let qp = loopback(&bed, cq, null_mut());
    message(&bed, qp, 1, 7);
    bed.run();
    consume(&hand_over(cq), 2);
    ok(req_notify_cq(cq, false));
    bed.run();
    assert_eq!(event_of(channel), None, "all are polled");
    message(&bed, qp, 2, 8);
    bed.run();
    assert_eq!(event_of(channel), Some(cq));
    c!(cq::channel::ack_cq_events(cq, 1));
    assert_eq!(sorted(at_once(cq)), [2, 8]);
    ok(c!(qp::create::destroy_qp(qp)));
    bed.end();
}

fn event_of(channel: *mut ibv_comp_channel) -> Option<*mut ibv_cq> {
    let (mut cq, mut own) = (null_mut(), null_mut());
    match c!(cq::channel::get_cq_event(channel, &mut cq, &mut own)) {
        0 => Some(cq),
        _ => {
            assert_eq!(errno(), libc::EAGAIN);
            None
        }
    }
}
