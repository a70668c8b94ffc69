//! A failure has no effect: a batch that is refused, aborted or dropped changes nothing visible.
//! The list form posts the requests before the first bad one, and none after it.

use crate::bed::{Bed, Spec};
use crate::by_hand::{Given, IMM, Kind, Op, REMOTE, Wqe, least, of_sges, sges};
use mlx5_wqe::{Batch, Data, Operation, PostError, Rc, SendFlags, SendWr, Sge};

const SIGNALED: SendFlags = SendFlags::SIGNALED;

/// All that the device or a poller can see of a queue.
#[derive(PartialEq)]
struct Seen {
    /// The blocks of all outstanding requests.
    outstanding: Vec<u8>,
    uar: Vec<u8>,
    record: Vec<u8>,
    free: u32,
    producer: u16,
}

fn look(bed: &Bed<Rc>) -> Seen {
    let free = bed.queue.free_blocks();
    let producer = bed.queue.producer();
    let outstanding = bed.layout.blocks - free;
    let oldest = u32::from(producer).wrapping_sub(outstanding);
    Seen {
        outstanding: bed.at_block(oldest, outstanding as usize * 64),
        uar: bed.uar.all(),
        record: bed.record.all(),
        free,
        producer,
    }
}

/// A queue of 32 blocks at index `start`, with requests of 1, 2 and 4 blocks outstanding
/// before it.
fn bed(start: u32) -> (Bed<Rc>, [u16; 3]) {
    let mut bed = Bed::<Rc>::new(Spec { requests: 8, sges: 13, ..Spec::default() });
    assert_eq!((bed.layout.blocks, bed.layout.max_request_blocks), (32, 4));
    bed.advance_to(start.wrapping_sub(7));
    let mut starts = [0; 3];
    for (start, count) in starts.iter_mut().zip([3, 7, 13]) {
        *start = bed.queue.producer();
        bed.queue.post_send(&[of_sges(u64::from(*start), SIGNALED, &sges(count))]).unwrap();
    }
    (bed, starts)
}

/// Asserts that exactly the requests that were posted first are known to the poller.
fn assert_records(bed: &Bed<Rc>, starts: [u16; 3]) {
    let known: Vec<_> = (0..=u16::MAX)
        .filter(|&block| !starts.contains(&block))
        .filter(|&block| bed.records.retire(block).is_some())
        .collect();
    assert_eq!(known, []);
    for start in starts {
        assert_eq!(bed.records.retire(start).unwrap().wr_id, start.into());
    }
}

#[test]
fn a_queue_says_what_its_layout_has() {
    for spec in [Spec::default(), Spec { sges: 9, inline: 200, ..Spec::default() }] {
        let Bed { queue, layout, .. } = &Bed::<Rc>::new(spec);
        assert_eq!((queue.max_sge(), queue.max_inline()), (layout.max_sge, layout.max_inline));
        assert!(layout.max_sge > 1 && layout.max_inline > 1);
    }
}

/// Requests of several sizes, added one after the other to a batch.
fn fill(batch: &mut Batch<'_, Rc>, count: usize) {
    let data = sges(14);
    for i in 0..count {
        let wr_id = 0xbad + i as u64;
        match i % 5 {
            0 => batch.wr(wr_id, SIGNALED).send().sge(data[0]),
            1 => batch.wr(wr_id, SIGNALED).rdma_write_imm(REMOTE, IMM).sge_list(&data[..12]),
            2 => batch.wr(wr_id, SIGNALED).send_imm(IMM).inline_data(&[0xbb; 200]),
            3 => batch.wr(wr_id, SIGNALED).rdma_read(REMOTE).sge_list(&data[..5]),
            _ => {
                batch.wr(wr_id, SIGNALED).rdma_write(REMOTE).inline_data_list(&[&[0xbb; 9][..]; 3])
            }
        }
    }
}

/// A way in which a batch is not posted.
type Failure = fn(Batch<'_, Rc>);

const FAILURES: &[(&str, Failure)] = &[
    ("abort", |batch| batch.abort()),
    ("drop", |batch| drop(batch)),
    ("too many entries", |mut batch| {
        batch.wr(0, SIGNALED).send().sge_list(&sges(20));
        assert!(matches!(batch.complete().unwrap_err().error(), PostError::TooManySges { .. }));
    }),
    ("entry too long", |mut batch| {
        batch.wr(0, SIGNALED).send().sge(Sge { addr: 0, length: 1 << 31, lkey: 0 });
        assert!(matches!(batch.complete().unwrap_err().error(), PostError::SgeTooLong { .. }));
    }),
    ("message too long", |mut batch| {
        batch.wr(0, SIGNALED).send().sge(Sge { addr: 0, length: (1 << 30) + 1, lkey: 0 });
        assert!(matches!(batch.complete().unwrap_err().error(), PostError::MessageTooLong { .. }));
    }),
    ("inline data too long", |mut batch| {
        batch.wr(0, SIGNALED).send().inline_data(&[0; 1000]);
        assert!(matches!(batch.complete().unwrap_err().error(), PostError::InlineTooLong { .. }));
    }),
    ("a flag that is not allowed", |mut batch| {
        batch.wr(0, SIGNALED | SendFlags::SOLICITED).rdma_read(REMOTE).sge(sges(1)[0]);
        assert!(matches!(batch.complete().unwrap_err().error(), PostError::Flags { .. }));
    }),
    ("queue full", |mut batch| {
        let before = batch.len();
        fill(&mut batch, 1);
        assert!(!batch.is_empty());
        fill(&mut batch, 64);
        let error = batch.complete().unwrap_err();
        assert!(error.index() as usize >= before);
        assert!(matches!(error.error(), PostError::QueueFull { .. }));
    }),
    ("a bad request, and more behind it", |mut batch| {
        batch.wr(0, SIGNALED).send().sge_list(&sges(20));
        fill(&mut batch, 64);
        assert!(matches!(batch.complete().unwrap_err().error(), PostError::TooManySges { .. }));
    }),
];

#[test]
fn a_batch_that_is_not_posted_changes_nothing() {
    for &(failure, fail) in FAILURES {
        for start in [0, 20, 31] {
            for count in [0, 1, 4, 9] {
                let (mut bed, starts) = bed(start);
                let before = look(&bed);
                let mut batch = bed.queue.wr_start();
                fill(&mut batch, count);
                fail(batch);
                assert!(look(&bed) == before, "{failure} of {count} at {start}");
                assert_records(&bed, starts);
            }
        }
    }
}

#[test]
fn an_unsignaled_run_that_is_refused_changes_nothing() {
    let (mut bed, starts) = bed(12);
    let before = look(&bed);
    let mut batch = bed.queue.wr_start();
    for _ in 0..32 {
        batch.wr(0xbad, SendFlags::empty()).send().sge_list(&[]);
    }
    // All 25 free blocks may be taken: an unsignaled run of up to 28 blocks leaves room for a
    // request of four once the requests before it are done.
    let error = batch.complete().unwrap_err();
    assert_eq!(error.error(), PostError::QueueFull { free: 0, needed: 1 });
    assert!(look(&bed) == before);
    assert_records(&bed, starts);
    let before = look(&bed);
    let mut batch = bed.queue.wr_start();
    for _ in 0..32 {
        batch.wr(0xbad, SendFlags::empty()).send().sge_list(&[]);
    }
    let error = batch.complete().unwrap_err();
    assert_eq!((error.index(), error.error()), (28, PostError::UnsignaledRun));
    assert!(look(&bed) == before);
}

#[test]
fn a_shut_gate_refuses_a_batch_whole() {
    let (mut bed, starts) = bed(12);
    let before = look(&bed);
    bed.gate.gate.set_gone();
    let mut batch = bed.queue.wr_start();
    fill(&mut batch, 9);
    let error = batch.complete().unwrap_err();
    assert_eq!((error.index(), error.error()), (0, PostError::DeviceGone));
    assert!(look(&bed) == before);
    assert_records(&bed, starts);
}

#[test]
fn an_empty_batch_rings_no_doorbell() {
    let (mut bed, _) = bed(12);
    let before = look(&bed);
    let batch = bed.queue.wr_start();
    assert!(batch.is_empty());
    batch.complete().unwrap();
    bed.queue.post_send(&[]).unwrap();
    assert!(look(&bed) == before);
}

/// After any failure the queue takes the same batch as without the failure.
#[test]
fn a_batch_after_a_failure_is_posted_where_the_failed_one_stood() {
    for &(failure, fail) in FAILURES {
        for start in [0, 28, 31] {
            let (mut bed, _) = bed(start);
            let mut batch = bed.queue.wr_start();
            fill(&mut batch, 4);
            fail(batch);
            let first = bed.queue.producer();
            let data = sges(9);
            let mut batch = bed.queue.wr_start();
            batch.wr(1, SIGNALED).send().sge_list(&data);
            batch.wr(2, SIGNALED).rdma_read(REMOTE).sge_list(&data[..6]);
            batch.complete().unwrap();
            let a = Rc::by_hand(first, 8, Op::Send, Given::List(&data));
            let second = first.wrapping_add(3);
            let b = Rc::by_hand(second, 8, Op::Read, Given::List(&data[..6]));
            a.assert_eq(&bed.at_block(first.into(), a.bytes.len()));
            b.assert_eq(&bed.at_block(second.into(), b.bytes.len()));
            assert_eq!(bed.producer(), u32::from(second) + 2, "{failure}");
            assert_eq!(bed.retire(first.into()).unwrap().wr_id, 1);
            assert_eq!(bed.retire(second.into()).unwrap().wr_id, 2);
        }
    }
}

/// A bad request, and a check for the error that refuses it.
type Bad = (SendWr<'static>, fn(PostError) -> bool);

fn bad() -> Vec<Bad> {
    let wr = |data| SendWr { data, ..least(0xbad, SIGNALED) };
    static LONG: [Sge; 1] = [Sge { addr: 0, length: 1 << 31, lkey: 0 }];
    static MANY: [Sge; 20] = [Sge { addr: 0, length: 1, lkey: 0 }; 20];
    static MESSAGE: [Sge; 2] = [Sge { addr: 0, length: 1 << 30, lkey: 0 }; 2];
    static BYTES: [&[u8]; 1] = [&[0; 1000]];
    vec![
        (wr(Data::Sges(&LONG)), |e| matches!(e, PostError::SgeTooLong { .. })),
        (wr(Data::Sges(&MANY)), |e| matches!(e, PostError::TooManySges { .. })),
        (wr(Data::Sges(&MESSAGE)), |e| matches!(e, PostError::MessageTooLong { .. })),
        (wr(Data::Inline(&BYTES)), |e| matches!(e, PostError::InlineTooLong { .. })),
        (SendWr { operation: Operation::RdmaRead(REMOTE), ..wr(Data::Inline(&[])) }, |e| {
            e == PostError::InlineNotAllowed
        }),
        (
            SendWr {
                operation: Operation::RdmaWrite(REMOTE),
                flags: SendFlags::all(),
                ..wr(Data::Sges(&[]))
            },
            |e| matches!(e, PostError::Flags { .. }),
        ),
    ]
}

#[test]
fn a_list_is_posted_up_to_its_first_bad_request() {
    for (wr, is_right) in bad() {
        for start in [0, 26, 29, 31] {
            for prefix in 0..4usize {
                let (mut bed, starts) = bed(start);
                let (before, first) = (look(&bed), bed.queue.producer());
                let data = sges(9);
                let good: Vec<_> = (0..prefix)
                    .map(|i| of_sges(500 + i as u64, SIGNALED, &data[..3 * i]))
                    .collect();
                let mut list = good.clone();
                list.push(wr);
                list.extend(&good);
                let error = bed.queue.post_send(&list).unwrap_err();
                assert_eq!(error.index() as usize, prefix);
                assert!(is_right(error.error()));

                let mut next = first;
                let mut last = None;
                for i in 0..prefix {
                    let wqe = Rc::by_hand(next, 8, Op::Send, Given::List(&data[..3 * i]));
                    wqe.assert_eq(&bed.at_block(next.into(), wqe.bytes.len()));
                    last = Some((next, wqe.clone()));
                    next = next.wrapping_add(wqe.blocks() as u16);
                }
                let after = look(&bed);
                assert_eq!(after.producer, next);
                assert_eq!(bed.producer(), if prefix == 0 { first } else { next }.into());
                let outstanding = before.outstanding.len();
                assert!(after.outstanding[..outstanding] == before.outstanding);
                match last {
                    None => assert!(after == before),
                    Some((block, wqe)) => assert_doorbell(&bed, &before.uar, block, &wqe, prefix),
                }
                for start in starts {
                    bed.records.retire(start).unwrap();
                }
                if let Some((block, _)) = last_of(first, prefix) {
                    assert_eq!(bed.records.retire(next), None);
                    assert_eq!(bed.records.retire(block).unwrap().wr_id, 499 + prefix as u64);
                }
            }
        }
    }
}

/// Start of the last request of a good prefix, and its number of blocks.
fn last_of(first: u16, prefix: usize) -> Option<(u16, usize)> {
    let blocks = |i: usize| (1 + 3 * i).div_ceil(4);
    let last = prefix.checked_sub(1)?;
    let before: usize = (0..last).map(blocks).sum();
    Some((first.wrapping_add(before as u16), blocks(last)))
}

/// Asserts that one half of the register changed: to a doorbell of the WQE at `block`, or, for a
/// single request of more than a control segment, to the WQE itself.
fn assert_doorbell(bed: &Bed<Rc>, before: &[u8], block: u16, wqe: &Wqe, requests: usize) {
    let length = if requests == 1 && wqe.bytes.len() > 16 { wqe.blocks() * 64 } else { 8 };
    let rung = bed.at_block(block.into(), length);
    let after = bed.uar.all();
    let one = [0x800, 0x900].into_iter().any(|half| {
        let mut expected = before.to_vec();
        expected[half..half + length].copy_from_slice(&rung);
        expected == after
    });
    assert!(one);
}

#[test]
fn a_list_that_fills_the_queue_says_where_it_was_full() {
    for start in [0, 9, 31] {
        let (mut bed, _) = bed(start);
        let first = bed.queue.producer();
        let data = sges(9);
        // 25 blocks are free: eight of these, and one block more.
        let list: Vec<_> = (0..20).map(|i| of_sges(i, SIGNALED, &data)).collect();
        let error = bed.queue.post_send(&list).unwrap_err();
        assert_eq!(
            (error.index(), error.error()),
            (8, PostError::QueueFull { free: 1, needed: 3 })
        );
        assert_eq!(bed.producer(), u32::from(first) + 24);
        let error = bed.queue.post_send(&list[8..]).unwrap_err();
        assert_eq!(
            (error.index(), error.error()),
            (0, PostError::QueueFull { free: 1, needed: 3 })
        );
        assert_eq!(bed.producer(), u32::from(first) + 24);
        // All but the last are free: the list continues where it stopped.
        bed.records.retire(first + 21).unwrap();
        bed.queue.post_send(&list[8..18]).unwrap();
        assert_eq!(bed.retire(u32::from(first) + 24 + 27).unwrap().wr_id, 17);
        assert_eq!(bed.queue.free_blocks(), 32);
    }
}

#[test]
fn lists_and_batches_follow_one_another() {
    let mut bed = Bed::<Rc>::new(Spec { requests: 8, sges: 13, ..Spec::default() });
    let data = sges(13);
    let mut next = 0u16;
    for turn in 0..200usize {
        let counts = [turn % 14, (turn / 3) % 14, (turn * 5) % 14];
        let uar = bed.uar.all();
        if turn % 2 == 0 {
            let list: Vec<_> = counts
                .iter()
                .enumerate()
                .map(|(i, &count)| of_sges((turn * 10 + i) as u64, SIGNALED, &data[..count]))
                .collect();
            bed.queue.post_send(&list).unwrap();
        } else {
            let mut batch = bed.queue.wr_start();
            for (i, count) in counts.into_iter().enumerate() {
                batch.wr((turn * 10 + i) as u64, SIGNALED).send().sge_list(&data[..count]);
            }
            batch.complete().unwrap();
        }
        let mut last = next;
        for (i, count) in counts.into_iter().enumerate() {
            let wqe = Rc::by_hand(next, 8, Op::Send, Given::List(&data[..count]));
            wqe.assert_eq(&bed.at_block(next.into(), wqe.bytes.len()));
            assert_eq!(bed.retire(next.into()).unwrap().wr_id, (turn * 10 + i) as u64);
            last = next;
            next = next.wrapping_add(wqe.blocks() as u16);
        }
        bed.assert_rang(last.into(), 8, &uar);
        assert_eq!(bed.producer(), u32::from(next));
    }
}
