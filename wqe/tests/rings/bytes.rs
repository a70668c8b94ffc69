//! Each operation on each transport with each kind of data, byte for byte.

use crate::bed::{Bed, Spec};
use crate::by_hand::{COMPLETION, Given, Kind, Op, Wqe, list_form, pattern, sges};
use mlx5_prm::wqe::Opcode;
use mlx5_wqe::{Batch, ListTransport, Rc, SendFlags, Sge, Uc, Ud, XrcSend};

const SPEC: Spec = Spec {
    requests: 32,
    sges: 4,
    inline: 60,
    signal_all: false,
    atomics: true,
    blueflame: 512,
    max_message: 1 << 30,
};

const EMPTY: Sge = Sge { addr: 0x1000, length: 0, lkey: 7 };

/// Every subset of the flags that `allowed` has.
fn subsets(allowed: SendFlags) -> impl Iterator<Item = SendFlags> {
    (0..=u8::MAX).filter_map(SendFlags::from_bits).filter(move |&flags| allowed.contains(flags))
}

/// The bits of a flag in the control segment.
fn control(flags: SendFlags) -> u8 {
    let bit = |flag, bit| if flags.contains(flag) { bit } else { 0 };
    bit(SendFlags::SIGNALED, 0x08) | bit(SendFlags::SOLICITED, 0x02) | bit(SendFlags::FENCE, 0x80)
}

/// Posts a request in the typed form and in the list form, and compares bytes, doorbells and
/// records.
fn check<T: Kind>(bed: &mut Bed<T>, op: Op, flags: SendFlags, given: Given<'_>) {
    for list in [false, true] {
        // The previous request is signaled if this one is not, so it can be posted.
        bed.advance();
        let (first, uar) = (bed.queue.producer(), bed.uar.all());
        let wr_id = 0x7000_0000_0000_0000 + u64::from(first);
        if list {
            let mut room = Default::default();
            bed.queue.post_send(&[list_form(wr_id, flags, op, given, &mut room)]).unwrap();
        } else {
            let mut batch = bed.queue.wr_start();
            T::build(&mut batch, wr_id, flags, op, given);
            assert_eq!(batch.len(), 1);
            batch.complete().unwrap();
        }
        let wqe = T::by_hand(first, control(flags), op, given);
        bed.assert_rang_alone(first.into(), &wqe, &uar);
        let completed = bed.retire(first.into()).unwrap();
        assert_eq!(completed.wr_id, wr_id);
        assert_eq!(completed.info.first(), first);
        assert_eq!(usize::from(completed.info.blocks()), wqe.blocks());
        assert_eq!(completed.info.opcode_bits(), op.code());
        assert_eq!(completed.info.signaled(), flags.contains(SendFlags::SIGNALED));
        assert!(!completed.info.cancelled());
    }
}

/// Runs `check` for every operation, every set of flags and every kind of data of a transport.
fn matrix<T: Kind>() {
    let mut bed = Bed::<T>::new(SPEC);
    let max_sge = bed.layout.max_sge as usize;
    let max_inline = bed.layout.max_inline as usize;
    let all = sges(max_sge);
    let with_empty: Vec<_> =
        all.iter().enumerate().map(|(i, &sge)| if i % 2 == 0 { EMPTY } else { sge }).collect();
    let bytes = pattern(max_inline);
    let mut lengths = vec![0, 1, 2, 3, 4, 7, 8, 9, 11, 12, 13, 15, 16, 17, 28, 29];
    lengths.extend([max_inline - 1, max_inline]);
    for &op in T::OPS {
        let flags = SendFlags::SIGNALED;
        check(&mut bed, op, flags, Given::Sge(all[0]));
        check(&mut bed, op, flags, Given::Sge(EMPTY));
        for count in 0..=max_sge {
            check(&mut bed, op, flags, Given::List(&all[..count]));
        }
        check(&mut bed, op, flags, Given::List(&with_empty));
        check(&mut bed, op, flags, Given::List(&vec![EMPTY; max_sge]));
        if op != Op::Read {
            for &length in &lengths {
                check(&mut bed, op, flags, Given::Inline(&bytes[..length]));
            }
            check(&mut bed, op, flags, Given::Pieces(&[]));
            check(&mut bed, op, flags, Given::Pieces(&[b"", b""]));
            check(&mut bed, op, flags, Given::Pieces(&[b"header: ", b"", b"x", b"and the body"]));
            let (head, tail) = bytes.split_at(13);
            check(&mut bed, op, flags, Given::Pieces(&[head, tail]));
        }
        for flags in subsets(<T as Kind>::FLAGS.intersection(op.flags())) {
            check(&mut bed, op, flags, Given::Sge(all[0]));
        }
    }
}

#[test]
fn every_operation_of_a_reliable_connection_is_what_the_prm_says() {
    matrix::<Rc>();
}

#[test]
fn every_operation_of_an_extended_connection_is_what_the_prm_says() {
    matrix::<XrcSend>();
}

#[test]
fn every_operation_of_an_unreliable_connection_is_what_the_prm_says() {
    matrix::<Uc>();
}

#[test]
fn every_operation_of_a_datagram_queue_is_what_the_prm_says() {
    matrix::<Ud>();
}

#[test]
fn a_write_of_eight_inline_bytes_in_full() {
    let mut bed = Bed::<Rc>::new(SPEC);
    let mut batch = bed.queue.wr_start();
    let to = mlx5_wqe::RemoteAddress { addr: 0x1122_3344_5566_7788, rkey: 0x99aa_bbcc };
    batch.wr(1, SendFlags::SIGNALED).rdma_write(to).inline_data(b"8 bytes.");
    batch.complete().unwrap();
    #[rustfmt::skip]
    let expected = [
        0, 0, 0, 0x08, 0xc0, 0xff, 0xee, 3, 0, 0, 0, 0x08, 0, 0, 0, 0,
        0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0, 0, 0, 0,
        0x80, 0, 0, 8, b'8', b' ', b'b', b'y', b't', b'e', b's', b'.',
    ];
    assert_eq!(bed.ring.read(0, 44), expected);
    assert_eq!(bed.uar.read(0x800, 44), expected);
    assert_eq!(bed.record.all(), [0, 0, 0, 0, 0, 0, 0, 1]);
}

#[test]
fn immediate_data_keeps_the_order_of_the_callers_bytes() {
    let mut bed = Bed::<Rc>::new(SPEC);
    let mut batch = bed.queue.wr_start();
    batch.wr(1, SendFlags::empty()).send_imm([1, 2, 3, 4]).sge_list(&[]);
    batch.complete().unwrap();
    assert_eq!(bed.ring.read(12, 4), [1, 2, 3, 4]);
}

#[test]
fn a_queue_that_signals_all_asks_for_every_completion() {
    fn check<T: Kind>() {
        let mut bed = Bed::<T>::new(Spec { signal_all: true, ..SPEC });
        for &op in T::OPS {
            let flags = <T as Kind>::FLAGS.intersection(op.flags());
            for flags in [SendFlags::empty(), SendFlags::SIGNALED, flags] {
                let first = bed.queue.producer();
                let mut batch = bed.queue.wr_start();
                T::build(&mut batch, 5, flags, op, Given::List(&[]));
                batch.complete().unwrap();
                let wqe = T::by_hand(first, control(flags) | COMPLETION, op, Given::List(&[]));
                wqe.assert_eq(&bed.at_block(first.into(), wqe.bytes.len()));
                assert!(bed.retire(first.into()).unwrap().info.signaled());
            }
        }
    }
    check::<Rc>();
    check::<XrcSend>();
    check::<Uc>();
    check::<Ud>();
}

#[test]
fn flag_bits_that_mean_nothing_do_not_reach_the_control_segment() {
    let mut bed = Bed::<Rc>::new(SPEC);
    let mut batch = bed.queue.wr_start();
    let flags = SendFlags::from_bits_retain(0xff) - SendFlags::IP_CSUM;
    batch.wr(1, flags).send().sge_list(&[]);
    batch.complete().unwrap();
    Wqe::control(0x0a, 0, 0x8a, [0; 4]).assert_eq(&bed.ring.read(0, 16));
}

/// A batch: one record, one doorbell, with the first eight bytes of the last WQE.
#[test]
fn a_batch_is_posted_with_one_doorbell() {
    fn check<T: Kind + ListTransport>() {
        let mut bed = Bed::<T>::new(SPEC);
        let data = sges(bed.layout.max_sge as usize);
        let fill = |batch: &mut Batch<'_, T>| {
            T::build(batch, 1, SendFlags::SIGNALED, Op::Send, Given::List(&data));
            T::build(batch, 2, SendFlags::empty(), Op::SendImm, Given::Inline(b"hi"));
            T::build(batch, 3, SendFlags::SOLICITED, Op::Send, Given::Sge(data[1]));
        };
        let uar = bed.uar.all();
        let mut batch = bed.queue.wr_start();
        fill(&mut batch);
        assert_eq!(batch.len(), 3);
        batch.complete().unwrap();
        let mut next = 0;
        let mut last = 0;
        for wqe in [
            T::by_hand(0, 0x08, Op::Send, Given::List(&data)),
            T::by_hand(0, 0, Op::SendImm, Given::Inline(b"hi")),
            T::by_hand(0, 0x02, Op::Send, Given::Sge(data[1])),
        ] {
            let mut wqe = wqe;
            wqe.bytes[2] = next as u8;
            wqe.assert_eq(&bed.at_block(next, wqe.bytes.len()));
            last = next;
            next += wqe.blocks() as u32;
        }
        assert_eq!(bed.producer(), next);
        bed.assert_rang(last, 8, &uar);
    }
    check::<Rc>();
    check::<XrcSend>();
    check::<Uc>();
    check::<Ud>();
}

#[test]
fn a_plain_doorbell_is_written_in_one_place() {
    let mut bed = Bed::<Rc>::new(Spec { blueflame: 0, ..SPEC });
    for first in 0..4u16 {
        let uar = bed.uar.all();
        let mut batch = bed.queue.wr_start();
        batch.wr(1, SendFlags::SIGNALED).send().inline_data(b"12345678");
        batch.complete().unwrap();
        let wqe = Wqe::control(0x0a, first, 0x08, [0; 4]).inline(b"12345678");
        bed.assert_rang_alone(first.into(), &wqe, &uar);
    }
}

#[test]
fn a_request_that_is_longer_than_half_a_register_rings_with_its_first_eight_bytes() {
    // Half of 256 bytes are two blocks; these take one, two and three.
    let mut bed = Bed::<Rc>::new(Spec { sges: 11, blueflame: 256, ..SPEC });
    let data = sges(11);
    for (count, blocks) in [(3, 1), (7, 2), (8, 3), (11, 3), (4, 2)] {
        let (first, uar) = (bed.queue.producer(), bed.uar.all());
        let mut batch = bed.queue.wr_start();
        batch.wr(1, SendFlags::SIGNALED).send().sge_list(&data[..count]);
        batch.complete().unwrap();
        let wqe = Rc::by_hand(first, 0x08, Op::Send, Given::List(&data[..count]));
        assert_eq!(wqe.blocks(), blocks);
        bed.assert_rang_alone(first.into(), &wqe, &uar);
        bed.retire(first.into()).unwrap();
    }
}

#[test]
fn the_records_of_a_batch_tell_each_request_apart() {
    let mut bed = Bed::<Rc>::new(SPEC);
    let mut batch = bed.queue.wr_start();
    for (i, &op) in Rc::OPS.iter().enumerate() {
        Rc::build(&mut batch, 100 + i as u64, SendFlags::SIGNALED, op, Given::List(&[]));
    }
    batch.complete().unwrap();
    for (i, op) in Rc::OPS.iter().enumerate() {
        let completed = bed.retire(i as u32).unwrap();
        assert_eq!(completed.wr_id, 100 + i as u64);
        assert_eq!(Opcode::from_bits(op.code()), completed.info.opcode());
    }
}
