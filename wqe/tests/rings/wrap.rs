//! Requests that wrap around the end of the ring, and 16-bit counters that wrap.

use crate::bed::{Bed, Spec};
use crate::by_hand::{Given, Kind, Op, pattern, sges};
use mlx5_wqe::{Rc, SendFlags, Ud};

/// Requests of every size start at every distance from the end of the ring at which they cross it,
/// and at the neighbouring ones. The ring holds each request in two parts, split at the end.
fn every_size_at_every_distance<T: Kind>(blueflame: usize, op: Op, inline: bool) {
    let spec = Spec { requests: 2, blueflame, ..Spec::default() };
    // The largest number that fits after the longest head of an operation.
    let max = if T::head(op) == 64 { 59 } else { 61 };
    let mut bed = Bed::<T>::new(Spec { sges: max, ..spec });
    let blocks = bed.layout.blocks;
    let data = sges(bed.layout.max_sge as usize);
    let bytes = pattern(bed.layout.max_inline as usize);
    for count in 1..=data.len() {
        let given = if inline {
            // One byte into the last unit, or up to its end.
            Given::Inline(&bytes[..count * 16 - 4 - if count % 2 == 0 { 0 } else { 11 }])
        } else {
            Given::List(&data[..count])
        };
        let size = T::by_hand(0, 0, op, given).blocks() as u32;
        for distance in 1..=size {
            bed.advance_to(blocks - distance);
            let (first, uar, ring) = (bed.queue.producer(), bed.uar.all(), bed.ring.all());
            let mut batch = bed.queue.wr_start();
            T::build(&mut batch, 9, SendFlags::SIGNALED, op, given);
            batch.complete().unwrap();
            let wqe = T::by_hand(first, 0x08, op, given);
            bed.assert_rang_alone(first.into(), &wqe, &uar);
            let after = bed.ring.all();
            let split = wqe.bytes.len().min(distance as usize * 64);
            let (at_start, at_end) =
                (wqe.bytes.len() - split, after.len() - distance as usize * 64);
            let halves = [&after[at_end..at_end + split], &after[..at_start]];
            wqe.assert_eq(&halves.concat());
            let rest = (size - distance) as usize * 64..at_end;
            assert!(after[rest.clone()] == ring[rest], "what lies between stays as it was");
            let completed = bed.retire(first.into()).unwrap();
            assert_eq!((completed.wr_id, completed.info.blocks()), (9, size as u16));
        }
    }
}

#[test]
fn sends_of_lists_cross_the_end_of_the_ring_at_every_block() {
    every_size_at_every_distance::<Rc>(512, Op::Send, false);
}

#[test]
fn writes_of_lists_cross_the_end_of_the_ring_at_every_block() {
    every_size_at_every_distance::<Rc>(2048, Op::Write, false);
}

#[test]
fn inline_data_crosses_the_end_of_the_ring_at_every_block() {
    every_size_at_every_distance::<Rc>(2048, Op::SendImm, true);
    every_size_at_every_distance::<Rc>(0, Op::WriteImm, true);
}

#[test]
fn datagrams_cross_the_end_of_the_ring_at_every_block() {
    every_size_at_every_distance::<Ud>(1024, Op::Send, false);
    every_size_at_every_distance::<Ud>(2048, Op::SendImm, true);
}

/// A batch that wraps at the end of the ring: each WQE at its index, one doorbell.
#[test]
fn a_batch_crosses_the_end_of_the_ring() {
    let mut bed = Bed::<Rc>::new(Spec { requests: 8, sges: 10, ..Spec::default() });
    let blocks = bed.layout.blocks;
    let data = sges(10);
    for start in 0..blocks {
        bed.advance_to(start);
        let (mut next, uar) = (bed.queue.producer(), bed.uar.all());
        let counts = [1, 10, 3, 9, 2, 7, 8];
        let mut batch = bed.queue.wr_start();
        for (i, count) in counts.into_iter().enumerate() {
            batch.wr(i as u64, SendFlags::SIGNALED).send().sge_list(&data[..count]);
        }
        batch.complete().unwrap();
        let mut last = next;
        for (i, count) in counts.into_iter().enumerate() {
            let wqe = Rc::by_hand(next, 0x08, Op::Send, Given::List(&data[..count]));
            wqe.assert_eq(&bed.at_block(next.into(), wqe.bytes.len()));
            assert_eq!(bed.retire(next.into()).unwrap().wr_id, i as u64);
            last = next;
            next = next.wrapping_add(wqe.blocks() as u16);
        }
        assert_eq!(bed.producer(), u32::from(next));
        bed.assert_rang(last.into(), 8, &uar);
    }
}

/// The block counter has 16 bits in the WQE, in the record and in completions.
#[test]
fn the_block_counter_wraps_and_the_ring_goes_on() {
    let mut bed = Bed::<Rc>::new(Spec { requests: 4, sges: 61, ..Spec::default() });
    let data = sges(61);
    let mut blocks = 0u32;
    // The sizes have no common period with the ring or the counter.
    for count in [61, 3, 58, 30, 7, 61, 44, 0, 12].into_iter().cycle() {
        if blocks > 3 << 16 {
            break;
        }
        let (first, uar) = (bed.queue.producer(), bed.uar.all());
        assert_eq!(u32::from(first), blocks & 0xffff);
        let mut batch = bed.queue.wr_start();
        batch
            .wr(blocks.into(), SendFlags::SIGNALED)
            .rdma_write(crate::by_hand::REMOTE)
            .sge_list(&data[..count]);
        batch.complete().unwrap();
        let wqe = Rc::by_hand(first, 0x08, Op::Write, Given::List(&data[..count]));
        bed.assert_rang_alone(blocks, &wqe, &uar);
        assert_eq!(bed.retire(blocks).unwrap().wr_id, blocks.into());
        blocks += wqe.blocks() as u32;
        assert_eq!(bed.queue.free_blocks(), bed.layout.blocks);
    }
}

/// The largest ring is half of what the counters can count, so that full differs from empty.
#[test]
fn the_largest_ring_can_be_full() {
    let mut bed = Bed::<Rc>::new(Spec { requests: 2048, sges: 61, ..Spec::default() });
    assert_eq!(bed.layout.blocks, 32768);
    let data = sges(61);
    for lap in 0..5u32 {
        for request in 0..2048 {
            let mut batch = bed.queue.wr_start();
            batch.wr(request, SendFlags::SIGNALED).send().sge_list(&data);
            batch.complete().unwrap();
        }
        assert_eq!(bed.queue.free_blocks(), 0);
        let full = mlx5_wqe::PostError::QueueFull { free: 0, needed: 1 };
        let error = crate::by_hand::post_least(&mut bed.queue, 0, SendFlags::SIGNALED);
        assert_eq!(error.unwrap_err().error(), full);
        assert_eq!(bed.producer(), (lap + 1) * 32768 % 65536);
        for request in 0..2048 {
            let block = lap * 32768 + request * 16;
            assert_eq!(bed.retire(block).unwrap().wr_id, u64::from(request));
        }
        assert_eq!(bed.queue.free_blocks(), 32768);
    }
}
