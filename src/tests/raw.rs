//! Queues that are handed over to a program which drives them itself.

use super::states::Bed;
use super::*;
use crate::transport::Rc;
use mlx5_wqe::{QueueState, SendFlags};

/// The offset of the last byte of a CQE, with ownership and opcode.
const LAST: usize = 63;

/// Waits until the device has written the CQE at this index of a new queue.
fn written(raw: &RawCompletionQueue, place: usize) {
    const INVALID: u8 = 0xf0;
    let at = place * raw.cqes.stride as usize + LAST;
    // SAFETY: a byte of the ring, which lives as long as the queue.
    while unsafe { raw.cqes.start.byte_add(at).read_volatile() } & 0xf0 == INVALID {
        std::hint::spin_loop();
    }
}

fn bytes(raw: &RawCompletionQueue) -> Vec<u8> {
    let len = raw.cqes.entries as usize * raw.cqes.stride as usize;
    // SAFETY: the ring lives as long as the queue, and the device writes no more to it.
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
    // The poll that takes the queue back removes them, so they do not prevent a new start.
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

/// Polls, and returns the identifiers.
fn polled(bed: &mut Bed) -> Vec<u64> {
    let mut wr_ids = Vec::new();
    bed.cq.poll(64, |wc| wr_ids.push(wc.wr_id())).unwrap();
    wr_ids
}

/// Stores a consumer index, as a program that polls the queue itself does.
fn consume(raw: &RawCompletionQueue, consumer: u32) {
    // SAFETY: the consumer index of the doorbell record, which lives as long as the queue.
    unsafe { raw.record.cast::<[u8; 4]>().write_volatile(consumer.to_be_bytes()) };
}

#[test]
fn destroyed_queue_pair_leaves_its_successor_no_completion_in_a_handed_over_queue() {
    let mut bed = Bed::stepped();
    let mut former = bed.pair(None);
    former.receive([7]);
    former.send([1], SendFlags::SIGNALED);
    bed.simulator.run_until_idle();
    let raw = bed.cq.hand_over().unwrap();
    let before = bytes(&raw);
    drop(former);
    assert_eq!(bytes(&raw), before, "a program may look at them");
    let mut next = bed.pair(None);
    next.receive([8]);
    next.send([2], SendFlags::SIGNALED);
    assert_eq!(polled(&mut bed), [], "nothing of it is executed");
    bed.simulator.run_until_idle();
    let mut found = polled(&mut bed);
    found.sort_unstable();
    assert_eq!(found, [2, 8]);
    assert_eq!(bed.simulator.violations(), []);
}

#[test]
fn reset_queue_pair_has_no_former_completion_in_a_queue_that_was_handed_over() {
    for purge in [false, true] {
        let mut bed = Bed::stepped();
        let mut pair = bed.pair(None);
        for round in 0..3 {
            pair.receive([7]);
            pair.send([1], SendFlags::SIGNALED);
            bed.simulator.run_until_idle();
            let raw = bed.cq.hand_over().unwrap();
            let before = bytes(&raw);
            for _ in 0..2 {
                for qp in [&mut pair.near, &mut pair.far] {
                    qp.reset().unwrap();
                    if purge {
                        assert_eq!(qp.purge(&mut bed.cq), Ok(0));
                        assert_eq!(qp.free_send_blocks(), qp.caps().send_blocks, "forgotten");
                    }
                }
                pair.connect();
            }
            assert_eq!(bytes(&raw), before, "a program may look at them");
            pair.receive([8]);
            pair.send([2], SendFlags::SIGNALED);
            assert_eq!(polled(&mut bed), [], "round {round}: nothing of it is executed");
            bed.simulator.run_until_idle();
            let mut found = polled(&mut bed);
            found.sort_unstable();
            assert_eq!(found, [2, 8], "round {round}");
        }
        assert_eq!(bed.simulator.violations(), []);
    }
}

/// Their last completions are in another order than the resets, and between those of others.
#[test]
fn queue_pairs_that_were_reset_in_any_order_take_nothing_from_others() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let mut bed = Bed::stepped();
        let mut pairs: Vec<_> = (0..4).map(|_| bed.pair(None)).collect();
        for round in 0..4 {
            for (number, pair) in (0..).zip(&mut pairs) {
                pair.receive([100 * number + round]);
                pair.send([1000 + 100 * number + round], SendFlags::SIGNALED);
                bed.simulator.run_until_idle();
            }
        }
        bed.cq.hand_over().unwrap();
        for place in order {
            pairs[place].near.reset().unwrap();
            pairs[place].far.reset().unwrap();
            pairs[place].connect();
            // The device continues with those that were reset.
            pairs[place].receive([5000]);
            pairs[place].send([5001], SendFlags::SIGNALED);
            bed.simulator.run_until_idle();
        }
        let mut expected: Vec<u64> = (0..4).flat_map(|at| [300 + at, 1300 + at]).collect();
        expected.extend([5000, 5001].repeat(3));
        let mut found = polled(&mut bed);
        expected.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, expected, "{order:?}");
        assert_eq!(bed.simulator.violations(), []);
    }
}

#[test]
fn requests_of_a_shared_receive_queue_come_back_from_a_queue_that_was_handed_over() {
    let mut bed = Bed::stepped();
    let mut srq = bed.pd.create_srq(7).build().unwrap();
    for reset in [true, false] {
        let mut pair = bed.pair(Some(&srq));
        for wr_id in 0..7 {
            srq.recv(wr_id, Sge::default()).unwrap();
        }
        pair.send(0..7, SendFlags::SIGNALED);
        bed.simulator.run_until_idle();
        bed.cq.hand_over().unwrap();
        if reset {
            pair.far.reset().unwrap();
            pair.near.reset().unwrap();
            pair.connect();
        } else {
            drop(pair);
        }
        assert_eq!(srq.in_flight(), 7);
        assert_eq!(polled(&mut bed), []);
        assert_eq!(srq.in_flight(), 0, "reset: {reset}");
    }
}

#[test]
fn poll_goes_on_behind_what_a_program_polled_itself() {
    let mut bed = Bed::stepped();
    let mut pair = bed.pair(None);
    for round in 1..=40 {
        pair.receive(0..4);
        pair.send(10..14, SendFlags::SIGNALED);
        bed.simulator.run_until_idle();
        let raw = bed.cq.hand_over().unwrap();
        // The ring has 128 CQEs, so the first poll that finds some is on the second lap.
        let polls = round % 20 == 0;
        consume(&raw, 8 * round - if polls { 2 } else { 0 });
        if polls {
            let found = polled(&mut bed);
            assert_eq!(found.iter().map(|wr_id| wr_id % 10).collect::<Vec<_>>(), [3, 3], "{round}");
            assert_eq!(polled(&mut bed), []);
        }
        // Receives that the program polled stay outstanding until a reset.
        pair.far.reset().unwrap();
        pair.near.reset().unwrap();
        pair.connect();
    }
    assert_eq!(bed.simulator.violations(), []);
}

/// With an index of completions that the program has already polled, arming would cause an event at
/// once.
#[test]
fn handed_over_queue_is_armed_for_what_the_program_has_not_polled() {
    type Arm = fn(&CompletionQueue) -> Result<(), Error>;
    let ways: [Arm; 2] = [|cq| cq.arm(false), |cq| cq.target().arm(false)];
    for (way, arm) in ways.into_iter().enumerate() {
        let mut bed = Bed::stepped();
        let channel = bed.context.create_comp_channel().unwrap();
        bed.cq = bed.context.create_cq(100).channel(&channel).build().unwrap();
        let mut pair = bed.pair(None);
        pair.receive(0..3);
        pair.send(0..2, SendFlags::SIGNALED);
        bed.simulator.run_until_idle();
        let raw = bed.cq.hand_over().unwrap();
        consume(&raw, 4);
        arm(&bed.cq).unwrap();
        bed.simulator.run_until_idle();
        assert_eq!(channel.get_event().unwrap(), None, "way {way}: all are polled");
        pair.send([2], SendFlags::SIGNALED);
        bed.simulator.run_until_idle();
        assert_eq!(channel.get_event().unwrap(), Some(bed.cq.id()), "way {way}");
        assert_eq!(polled(&mut bed).len(), 2, "way {way}");
    }
}

fn consumer_in_record(raw: &RawCompletionQueue) -> u32 {
    // SAFETY: the consumer index of the doorbell record, which lives as long as the queue.
    u32::from_be_bytes(unsafe { raw.record.cast::<[u8; 4]>().read_volatile() })
}

#[test]
fn program_finds_no_completion_that_a_leaked_iterator_passed_before_the_hand_over() {
    let mut bed = Bed::stepped();
    let mut pair = bed.pair(None);
    pair.receive(0..3);
    pair.send(10..13, SendFlags::SIGNALED);
    bed.simulator.run_until_idle();
    let mut completions = bed.cq.completions().unwrap();
    for _ in 0..2 {
        completions.next().unwrap();
    }
    std::mem::forget(completions);
    let raw = bed.cq.hand_over().unwrap();
    assert_eq!(consumer_in_record(&raw), 2);
    for qp in [&mut pair.near, &mut pair.far] {
        qp.reset().unwrap();
    }
    pair.connect();
    pair.receive([20]);
    pair.send([21], SendFlags::SIGNALED);
    assert_eq!(polled(&mut bed), [], "nothing of it is executed");
    bed.simulator.run_until_idle();
    let mut found = polled(&mut bed);
    found.sort_unstable();
    assert_eq!(found, [20, 21]);
}

#[test]
fn queue_that_is_handed_over_twice_keeps_the_consumer_index_of_the_program() {
    let mut bed = Bed::stepped();
    let mut pair = bed.pair(None);
    pair.receive(0..3);
    pair.send(10..13, SendFlags::SIGNALED);
    bed.simulator.run_until_idle();
    let raw = bed.cq.hand_over().unwrap();
    consume(&raw, 4);
    let again = bed.cq.hand_over().unwrap();
    assert_eq!((again, consumer_in_record(&raw)), (raw, 4));
    assert_eq!(polled(&mut bed).len(), 2);
}

/// Otherwise the records of each queue pair of a program that polls itself would stay in memory.
#[test]
fn user_index_is_used_again_once_a_program_has_polled_all_that_names_it() {
    let mut bed = Bed::stepped();
    let number = |pair: &super::states::Pair| pair.near.control.inner.user_index();
    let mut former = bed.pair(None);
    former.receive([7]);
    former.send([1], SendFlags::SIGNALED);
    bed.simulator.run_until_idle();
    let raw = bed.cq.hand_over().unwrap();
    let freed = number(&former);
    drop(former);
    let early = bed.pair(None);
    assert_ne!(number(&early), freed);
    consume(&raw, 2);
    let pairs = [bed.pair(None), bed.pair(None)];
    let mut used: Vec<_> = pairs.iter().map(number).collect();
    used.extend(pairs.iter().map(|pair| pair.far.control.inner.user_index()));
    assert!(used.contains(&freed), "{used:?} have not {freed}");
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
fn shared_queue_reports_its_free_requests() {
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
    // The first entry is free again, after the last.
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
