//! Cancelling on a drained queue, case by case. `cancel_model` covers the rest.

use crate::bed::{Bed, Spec};
use crate::by_hand::{CONTROL, Given, IMM, Kind, Op, REMOTE, of_sges, sges};
use mlx5_prm::wqe::Opcode;
use mlx5_wqe::{Cancelled, DrainPoint, Mode, NotPending, RawWqe, Rc, SendFlags};

const SIGNALED: SendFlags = SendFlags::SIGNALED;

/// Sixteen blocks, the largest request four.
fn bed() -> Bed<Rc> {
    Bed::new(Spec { requests: 4, sges: 14, ..Spec::default() })
}

/// Posts a signaled send of `blocks` blocks, and returns its first block.
fn post(bed: &mut Bed<Rc>, wr_id: u64, blocks: usize) -> u16 {
    let first = bed.queue.producer();
    let data = sges(blocks * 4 - 2);
    bed.queue.post_send(&[of_sges(wr_id, SIGNALED, &data)]).unwrap();
    first
}

/// The proof that the queue is drained before the request at `block`.
fn drained(bed: &Bed<Rc>, block: u16) -> DrainPoint {
    bed.queue.drain_point(block).unwrap()
}

fn cancel(bed: &mut Bed<Rc>, point: DrainPoint, wr_id: u64) -> Cancelled {
    // SAFETY: no device reads the ring.
    unsafe { bed.queue.cancel(point, wr_id) }
}

fn cancel_set(
    bed: &mut Bed<Rc>,
    point: DrainPoint,
    wr_ids: &[u64],
    mode: Mode,
) -> Result<Cancelled, NotPending> {
    // SAFETY: no device reads the ring.
    unsafe { bed.queue.cancel_set(point, wr_ids, mode) }
}

fn starts(cancelled: &Cancelled) -> Vec<u16> {
    assert_eq!(cancelled.count(), cancelled.requests().len());
    cancelled.requests().iter().map(|request| request.info.first()).collect()
}

fn opcode(bed: &Bed<Rc>, block: u16) -> u8 {
    bed.at_block(block.into(), 4)[3]
}

/// A NOP of the same size, with the same completion and fence.
#[test]
fn a_cancelled_request_becomes_a_nop_and_differs_in_nothing_else() {
    for start in [0, 13, 14, 15] {
        let mut bed = bed();
        bed.advance_to(start);
        let data = sges(11);
        let first = bed.queue.producer();
        let flags = [SIGNALED, SIGNALED | SendFlags::FENCE, CONTROL, SendFlags::empty()];
        let controls = [0x08, 0x88, 0x8a, 0];
        let ops = [Op::Send, Op::Read, Op::WriteImm, Op::Send];
        let mut batch = bed.queue.wr_start();
        for (op, flags) in ops.into_iter().zip(flags) {
            Rc::build(&mut batch, 5, flags, op, Given::List(&data));
        }
        batch.complete().unwrap();
        let (uar, record) = (bed.uar.all(), bed.record.all());
        let point = drained(&bed, first);
        assert_eq!(cancel(&mut bed, point, 5).count(), 4);
        let mut block = first;
        for (op, control) in ops.into_iter().zip(controls) {
            let wqe = Rc::by_hand(block, control, op, Given::List(&data)).nop();
            wqe.assert_eq(&bed.at_block(block.into(), wqe.bytes.len()));
            block += wqe.blocks() as u16;
        }
        assert!(bed.uar.all() == uar && bed.record.all() == record, "no doorbell is rung");
    }
}

#[test]
fn the_completion_of_a_cancelled_request_says_so_and_what_it_was() {
    let mut bed = bed();
    let mut batch = bed.queue.wr_start();
    batch.wr(1, SIGNALED).send_imm(IMM).sge_list(&[]);
    batch.wr(2, SIGNALED).rdma_read(REMOTE).sge_list(&[]);
    batch.wr(3, SIGNALED).rdma_write(REMOTE).sge_list(&[]);
    batch.complete().unwrap();
    let point = drained(&bed, 0);
    assert_eq!(starts(&cancel(&mut bed, point, 2)), [1]);
    let completed = [0, 1, 2].map(|block| bed.retire(block).unwrap());
    assert_eq!(completed.map(|c| c.wr_id), [1, 2, 3]);
    assert_eq!(completed.map(|c| c.info.cancelled()), [false, true, false]);
    let opcodes = [Opcode::SendImm, Opcode::RdmaRead, Opcode::RdmaWrite].map(Some);
    assert_eq!(completed.map(|c| c.info.opcode()), opcodes);
    assert_eq!(completed.map(|c| c.info.opcode_and_mark()), [0x0b, 0x50, 0x08]);
}

#[test]
fn the_answer_tells_what_was_cancelled_in_the_order_of_posting() {
    let mut bed = bed();
    for (wr_id, blocks) in [(7, 1), (8, 3), (7, 2), (9, 1)] {
        post(&mut bed, wr_id, blocks);
    }
    let point = drained(&bed, 0);
    let cancelled = cancel(&mut bed, point, 7);
    let requests = cancelled.requests();
    assert_eq!(requests.iter().map(|r| r.wr_id).collect::<Vec<_>>(), [7, 7]);
    assert_eq!(starts(&cancelled), [0, 4]);
    assert_eq!(requests.iter().map(|r| r.info.blocks()).collect::<Vec<_>>(), [1, 2]);
    assert!(requests.iter().all(|r| r.info.opcode() == Some(Opcode::Send) && r.info.signaled()));
    assert_eq!([0, 1, 4, 6].map(|block| opcode(&bed, block)), [0, 0x0a, 0, 0x0a]);
}

/// An executed request is not cancelled: it is not pending, whether or not its completion was
/// polled.
#[test]
fn executed_requests_are_not_cancelled() {
    let mut bed = bed();
    for _ in 0..3 {
        for _ in 0..8 {
            post(&mut bed, 7, 2);
        }
        let first = bed.queue.producer().wrapping_sub(16);
        bed.records.retire(first).unwrap();
        bed.records.retire(first + 2).unwrap();
        let point = drained(&bed, first + 6);
        assert_eq!(bed.queue.pending(point).count(), 5);
        let cancelled = cancel(&mut bed, point, 7);
        assert_eq!(starts(&cancelled), [6, 8, 10, 12, 14].map(|at| first + at));
        let opcodes: Vec<_> = (0..8).map(|i| opcode(&bed, first + 2 * i)).collect();
        assert_eq!(opcodes, [0x0a, 0x0a, 0x0a, 0, 0, 0, 0, 0]);
        bed.records.retire(first + 14).unwrap();
    }
}

#[test]
fn an_empty_queue_has_nothing_pending_in_any_lap() {
    let mut bed = bed();
    for _ in 0..40 {
        let head = bed.queue.producer();
        let point = drained(&bed, head);
        assert_eq!(point.block(), head);
        assert_eq!(bed.queue.pending(point).count(), 0);
        assert_eq!(cancel(&mut bed, point, 7).count(), 0);
        let first = post(&mut bed, 7, 1);
        bed.records.retire(first).unwrap();
        let first = post(&mut bed, 7, 3);
        bed.records.retire(first).unwrap();
    }
}

#[test]
fn a_full_queue_has_all_pending() {
    let mut bed = bed();
    for start in 0..16 {
        bed.advance_to(start);
        let first = bed.queue.producer();
        for _ in 0..16 {
            post(&mut bed, 7, 1);
        }
        let point = drained(&bed, first);
        assert_eq!(cancel(&mut bed, point, 7).count(), 16);
        bed.records.retire(first.wrapping_add(15)).unwrap();
    }
}

#[test]
fn a_counter_that_is_no_request_boundary_is_no_drain_point() {
    let mut bed = bed();
    bed.advance_to(14);
    let a = post(&mut bed, 1, 4);
    let b = post(&mut bed, 2, 1);
    let c = post(&mut bed, 3, 3);
    let head = bed.queue.producer();
    let found: Vec<_> =
        (0..=u16::MAX).filter(|&counter| bed.queue.drain_point(counter).is_some()).collect();
    assert_eq!(found, [a, b, c, head]);
    bed.records.retire(a).unwrap();
    let found: Vec<_> =
        (0..=u16::MAX).filter(|&counter| bed.queue.drain_point(counter).is_some()).collect();
    assert_eq!(found, [b, c, head]);
}

#[test]
fn a_cancel_that_is_repeated_finds_nothing_more() {
    let mut bed = bed();
    post(&mut bed, 1, 1);
    post(&mut bed, 2, 1);
    let point = drained(&bed, 0);
    assert_eq!(cancel(&mut bed, point, 1).count(), 1);
    assert_eq!(cancel(&mut bed, point, 1).count(), 0);
    assert_eq!(starts(&cancel_set(&mut bed, point, &[1, 2], Mode::AllOrNothing).unwrap()), [1]);
    assert_eq!(cancel_set(&mut bed, point, &[1, 2], Mode::AllOrNothing).unwrap().count(), 0);
    // SAFETY: no device reads the ring.
    assert_eq!(unsafe { bed.queue.cancel_where(point, |_| true) }.count(), 0);
    assert!(bed.queue.pending(point).all(|request| request.info.cancelled()));
}

/// The pattern of the man page of `mlx5dv_qp_cancel_posted_send_wrs`, and once more.
#[test]
fn what_is_posted_anew_with_the_same_identifier_can_be_cancelled_too() {
    let mut bed = bed();
    for _ in 0..10 {
        let first = post(&mut bed, 1, 2);
        let point = drained(&bed, first);
        assert_eq!(starts(&cancel(&mut bed, point, 1)), [first]);
        let again = post(&mut bed, 1, 3);
        assert_eq!(starts(&cancel(&mut bed, point, 1)), [again]);
        let last = post(&mut bed, 1, 1);
        assert_eq!([first, again, last].map(|block| opcode(&bed, block)), [0, 0, 0x0a]);
        let completed = [first, again, last].map(|block| bed.records.retire(block).unwrap());
        assert_eq!(
            completed.map(|c| (c.wr_id, c.info.cancelled())),
            [(1, true), (1, true), (1, false)]
        );
    }
}

#[test]
fn all_or_nothing_cancels_nothing_if_an_identifier_is_missing() {
    let mut bed = bed();
    for wr_id in [5, 6, 5, 7] {
        post(&mut bed, wr_id, 2);
    }
    let point = drained(&bed, 4);
    let ring = bed.ring.all();
    // 6 is executed; 8 and 9 were never there.
    let missing = cancel_set(&mut bed, point, &[9, 5, 8, 6, 9, 7], Mode::AllOrNothing).unwrap_err();
    assert_eq!(missing.wr_ids, [6, 8, 9]);
    assert_eq!(missing.to_string(), "nothing cancelled: no pending request has wr_id [6, 8, 9]");
    assert!(bed.ring.all() == ring);
    assert!(bed.queue.pending(point).all(|request| !request.info.cancelled()));
    let cancelled = cancel_set(&mut bed, point, &[9, 5, 8, 6, 9, 7], Mode::BestEffort).unwrap();
    assert_eq!(starts(&cancelled), [4, 6]);
    assert_eq!([0, 2, 4, 6].map(|block| opcode(&bed, block)), [0x0a, 0x0a, 0, 0]);
}

#[test]
fn an_empty_set_cancels_nothing() {
    let mut bed = bed();
    post(&mut bed, 0, 1);
    let point = drained(&bed, 0);
    for mode in [Mode::BestEffort, Mode::AllOrNothing] {
        assert_eq!(cancel_set(&mut bed, point, &[], mode), Ok(Cancelled::default()));
    }
}

#[test]
fn large_sets_of_any_identifiers_are_told_apart() {
    let mut bed = Bed::<Rc>::new(Spec { requests: 4096, sges: 2, ..Spec::default() });
    // Identifiers as programs have them: small numbers, addresses, all ones.
    let ids = |i: u64| match i % 4 {
        0 => i,
        1 => 0x7fff_0000_0000 + i * 64,
        2 => u64::MAX - i,
        _ => i << 48,
    };
    for i in 0..4096 {
        post(&mut bed, ids(i), 1);
    }
    let wanted: Vec<_> = (0..4096).filter(|i| i % 3 == 0).map(ids).collect();
    let point = drained(&bed, 0);
    let cancelled = cancel_set(&mut bed, point, &wanted, Mode::AllOrNothing).unwrap();
    let expected: Vec<_> = (0..4096).filter(|i| i % 3 == 0).collect();
    assert_eq!(starts(&cancelled), expected);
}

#[test]
fn a_predicate_sees_each_pending_request_once() {
    let mut bed = bed();
    for (wr_id, blocks) in [(1, 1), (2, 2), (3, 3), (4, 4)] {
        post(&mut bed, wr_id, blocks);
    }
    let point = drained(&bed, 1);
    let mut seen = vec![];
    // SAFETY: no device reads the ring.
    let cancelled = unsafe {
        bed.queue.cancel_where(point, |request| {
            seen.push((request.wr_id, request.info.first(), request.info.blocks()));
            request.info.blocks() == 3
        })
    };
    assert_eq!(seen, [(2, 1, 2), (3, 3, 3), (4, 6, 4)]);
    assert_eq!(starts(&cancelled), [3]);
}

/// Requests of other sizes than those that were at the same blocks before, in an aborted batch or
/// before a reset.
#[test]
fn nothing_of_an_aborted_batch_or_of_a_former_life_is_met() {
    let mut bed = bed();
    for wr_id in 0..8 {
        post(&mut bed, wr_id, 1);
    }
    bed.queue.reset();
    for wr_id in 0..4 {
        post(&mut bed, wr_id, 2);
    }
    let mut batch = bed.queue.wr_start();
    for wr_id in 0..4 {
        batch.wr(wr_id, SIGNALED).send().sge_list(&[]);
    }
    batch.abort();
    assert_eq!(bed.queue.drain_point(1), None);
    let point = drained(&bed, 0);
    assert_eq!(bed.queue.pending(point).count(), 4);
    assert_eq!(starts(&cancel(&mut bed, point, 1)), [2]);
    assert_eq!(starts(&cancel(&mut bed, point, 3)), [6]);
}

/// Every request that a cancel does not match is executed, and completes in order.
#[test]
fn a_queue_goes_on_after_a_cancel() {
    let mut bed = bed();
    for wr_id in 0..5 {
        post(&mut bed, wr_id, 3);
    }
    bed.records.retire(0).unwrap();
    let point = drained(&bed, 6);
    // SAFETY: no device reads the ring.
    unsafe { bed.queue.cancel_where(point, |request| request.wr_id % 2 == 1) };
    let completed: Vec<_> = [3, 6, 9, 12]
        .map(|block| bed.records.retire(block).unwrap())
        .map(|completed| (completed.wr_id, completed.info.cancelled()))
        .into();
    assert_eq!(completed, [(1, false), (2, false), (3, true), (4, false)]);
    assert_eq!(bed.queue.free_blocks(), 16);
}

/// Raw requests may have opcodes without a name here; they are cancelled as well.
#[test]
fn a_request_of_any_opcode_but_nop_can_be_cancelled() {
    for opcode in 0..64 {
        let mut bed = bed();
        let bytes = [&[5, 0, 0, opcode, 0, 0, 0, 2][..], &[0; 24]].concat();
        // SAFETY: no device reads the ring.
        let wqe = unsafe { RawWqe::new(&bytes) }.unwrap();
        let mut batch = bed.queue.wr_start();
        batch.wr(7, SIGNALED).raw_wqe(wqe);
        batch.complete().unwrap();
        let point = drained(&bed, 0);
        let pending: Vec<_> = bed.queue.pending(point).collect();
        assert_eq!(pending[0].info.opcode_bits(), opcode);
        assert_eq!(pending[0].info.opcode(), Opcode::from_bits(opcode));
        let expected = usize::from(opcode != Opcode::Nop as u8);
        let cancelled = cancel_set(&mut bed, point, &[7], Mode::AllOrNothing).unwrap();
        assert_eq!(cancelled.count(), expected, "opcode {opcode:#04x}");
        assert_eq!(self::opcode(&bed, 0), 0);
        let completed = bed.retire(0).unwrap();
        assert_eq!(
            (completed.info.opcode_bits(), completed.info.cancelled()),
            (opcode, expected == 1)
        );
    }
}
