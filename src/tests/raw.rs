//! Queues that are handed over to a program which drives them itself.

use super::states::Bed;
use super::*;
use crate::transport::Rc;
use mlx5_wqe::{QueueState, SendFlags};

/// Bytes of a CQE, and where the last one's ownership and opcode are.
const LAST: usize = 63;

/// Waits until the device has written the CQE at this place of a new queue.
fn written(raw: &RawCompletionQueue, place: usize) {
    const INVALID: u8 = 0xf0;
    let at = place * raw.cqes.stride as usize + LAST;
    // SAFETY: a byte of the ring, which the queue keeps.
    while unsafe { raw.cqes.start.byte_add(at).read_volatile() } & 0xf0 == INVALID {
        std::hint::spin_loop();
    }
}

fn bytes(raw: &RawCompletionQueue) -> Vec<u8> {
    let len = raw.cqes.entries as usize * raw.cqes.stride as usize;
    // SAFETY: the ring, of which the device writes nothing more.
    (0..len).map(|at| unsafe { raw.cqes.start.byte_add(at).read_volatile() }).collect()
}

#[test]
fn a_queue_that_was_handed_over_is_left_alone() {
    let mut bed = Bed::new();
    let mut pair = bed.pair(None);
    let raw = bed.cq.hand_over().unwrap();
    assert_eq!((raw.cqn, raw.cqes.entries), (bed.cq.cqn(), bed.cq.capacity() + 1));
    pair.receive(0..2);
    pair.send(0..2, SendFlags::SIGNALED);
    (0..4).for_each(|place| written(&raw, place));
    let before = bytes(&raw);
    pair.near.modify(&QpAttributes::new().qp_state(QueueState::Reset)).unwrap();
    assert_eq!(pair.near.purge(&mut bed.cq), Ok(0));
    // Nobody here knows whether the completions were seen, so they do not hinder a new start.
    let init = QpAttributes::new()
        .qp_state(QueueState::Init)
        .pkey_index(0)
        .port_num(1)
        .qp_access_flags(AccessFlags::empty());
    pair.near.modify(&init).unwrap();
    let refused = bed.cq.resize(1000).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Busy);
    drop(pair);
    assert_eq!(bytes(&raw), before);
}

#[test]
fn a_poll_takes_a_queue_back() {
    let mut bed = Bed::new();
    let mut pair = bed.pair(None);
    let raw = bed.cq.hand_over().unwrap();
    pair.receive(0..3);
    pair.send(0..3, SendFlags::SIGNALED);
    (0..6).for_each(|place| written(&raw, place));
    assert_eq!(bed.cq.poll(1, |_| ()), Ok(1));
    pair.near.modify(&QpAttributes::new().qp_state(QueueState::Reset)).unwrap();
    pair.far.modify(&QpAttributes::new().qp_state(QueueState::Reset)).unwrap();
    let removed = pair.near.purge(&mut bed.cq).unwrap() + pair.far.purge(&mut bed.cq).unwrap();
    assert_eq!(removed, 5);
    assert_eq!(bed.cq.poll(16, |_| ()), Ok(0));
    bed.cq.resize(1000).unwrap();
}

#[test]
fn only_a_register_of_its_own_may_be_written_to_by_blueflame() {
    let simulator = Simulator::new(infiniband());
    let context = open(&simulator);
    let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(8).build().unwrap());
    let register = |choice| {
        let qp = pd.create_qp::<Rc>(&cq, &cq).doorbell(choice).build().unwrap();
        (qp.raw_parts().unwrap().register, qp)
    };
    let (own, _qp) = register(DoorbellChoice::BlueFlame);
    let (second, _qp2) = register(DoorbellChoice::BlueFlame);
    let (shared, _qp3) = register(DoorbellChoice::SharedBlueFlame);
    let (plain, _qp4) = register(DoorbellChoice::Doorbell);
    assert_eq!([own.blueflame_size, second.blueflame_size], [256; 2]);
    assert_eq!([shared.blueflame_size, plain.blueflame_size], [0; 2]);
    let starts = [own.start, second.start, shared.start, plain.start];
    for (place, start) in starts.iter().enumerate() {
        assert!(!starts[..place].contains(start), "two queues have the register {start:?}");
    }
    assert!([own, second, shared, plain].iter().all(|of| of.mmap_offset.is_multiple_of(4096)));
    let domain = context.alloc_td().unwrap();
    let qp = pd.create_qp::<Rc>(&cq, &cq).thread_domain(&domain).build().unwrap();
    assert_eq!(qp.raw_parts().unwrap().register.blueflame_size, 0, "the domain's queues share it");
}

#[test]
fn the_free_requests_of_a_shared_queue_are_told() {
    let mut bed = Bed::new();
    let mut srq = bed.pd.create_srq(7).build().unwrap();
    let found = |srq: &mut SharedReceiveQueue| {
        let raw = srq.raw_parts().unwrap();
        (raw.head, raw.tail, raw.requests.entries, raw.srqn == srq.srqn())
    };
    assert_eq!(found(&mut srq), (0, 7, 8, true));
    srq.recv(1, Sge::default()).unwrap();
    srq.recv(2, Sge::default()).unwrap();
    assert_eq!(found(&mut srq), (2, 7, 8, true));
    let mut pair = bed.pair(Some(&srq));
    pair.send([1], SendFlags::SIGNALED);
    let mut polled = 0;
    while polled < 2 {
        polled += bed.cq.poll(8, |_| ()).unwrap();
    }
    // The first is free again, behind the last.
    assert_eq!(found(&mut srq), (2, 0, 8, true));
    drop(pair);
}

#[test]
fn a_state_that_a_command_left_a_queue_pair_in_is_noted() {
    let bed = Bed::new();
    let pair = bed.pair(None);
    let (mut send, _receive, mut control) = pair.near.split();
    let mut post = || {
        let mut batch = send.wr_start();
        batch.wr(1, SendFlags::SIGNALED).send().inline_data(b"");
        batch.complete().is_ok()
    };
    assert!(post());
    control.note_state(QueueState::Reset);
    assert_eq!(control.state(), QueueState::Reset);
    assert!(!post(), "nothing is posted to a queue pair in RESET");
    control.note_state(QueueState::ReadyToSend);
    assert!(post());
}
