//! Room is counted in blocks, exactly, and no run of unsignaled requests fills the queue.

use crate::bed::{Bed, Spec};
use crate::by_hand::{of_sges, sges};
use mlx5_wqe::{PostError, Rc, SendFlags};

const SIGNALED: SendFlags = SendFlags::SIGNALED;
const UNSIGNALED: SendFlags = SendFlags::empty();

/// 16 blocks, 4 for the largest request.
fn bed() -> Bed<Rc> {
    let bed = Bed::<Rc>::new(Spec { requests: 4, sges: 14, ..Spec::default() });
    assert_eq!((bed.layout.blocks, bed.layout.max_request_blocks), (16, 4));
    bed
}

fn post(bed: &mut Bed<Rc>, flags: SendFlags, blocks: usize) -> Result<(), PostError> {
    // The entries follow the control segment; the room for a remote address stays unused.
    let sges = sges(blocks * 4 - 2);
    let before = bed.queue.free_blocks();
    let result = bed.queue.post_send(&[of_sges(1, flags, &sges)]);
    let taken = if result.is_ok() { blocks as u32 } else { 0 };
    assert_eq!(bed.queue.free_blocks(), before - taken);
    result.map_err(|error| {
        assert_eq!(error.index(), 0);
        error.error()
    })
}

const fn full(free: u32, needed: u32) -> Result<(), PostError> {
    Err(PostError::QueueFull { free, needed })
}

#[test]
fn a_request_fits_if_its_own_blocks_do() {
    let mut bed = bed();
    for blocks in [4, 3, 4, 2] {
        post(&mut bed, SIGNALED, blocks).unwrap();
    }
    assert_eq!(post(&mut bed, SIGNALED, 4), full(3, 4));
    assert_eq!(post(&mut bed, SIGNALED, 3), Ok(()));
    assert_eq!(post(&mut bed, SIGNALED, 1), full(0, 1));
    // Four blocks at the start of the ring become free.
    bed.retire(0).unwrap();
    assert_eq!(post(&mut bed, SIGNALED, 2), Ok(()));
    assert_eq!(post(&mut bed, SIGNALED, 3), full(2, 3));
    assert_eq!(post(&mut bed, SIGNALED, 2), Ok(()));
    assert_eq!(post(&mut bed, SIGNALED, 1), full(0, 1));
}

/// Each request retires itself, so none needs room after it, whatever its own flag says.
#[test]
fn queue_that_signals_all_requests_is_filled_to_its_last_block_with_either_flag() {
    let spec = Spec { requests: 4, sges: 14, signal_all: true, ..Spec::default() };
    for flags in [SIGNALED, UNSIGNALED] {
        let mut bed = Bed::<Rc>::new(spec);
        for lap in 0..3 {
            for request in 0..16 {
                assert_eq!(post(&mut bed, flags, 1), Ok(()), "{flags:?}: {request}");
            }
            assert_eq!(post(&mut bed, SIGNALED, 1), full(0, 1));
            assert_eq!(post(&mut bed, UNSIGNALED, 1), full(0, 1));
            bed.retire(lap * 16 + 15).unwrap();
        }
    }
}

#[test]
fn a_queue_holds_as_many_requests_as_it_has_blocks() {
    let mut bed = bed();
    for lap in 0..20 {
        for request in 0..16 {
            assert_eq!(post(&mut bed, SIGNALED, 1), Ok(()), "{request}");
        }
        assert_eq!(post(&mut bed, SIGNALED, 1), full(0, 1));
        bed.retire(lap * 16 + 15).unwrap();
    }
}

#[test]
fn room_that_comes_free_is_seen_at_once() {
    let mut bed = bed();
    for _ in 0..16 {
        post(&mut bed, SIGNALED, 1).unwrap();
    }
    for block in 0..100 {
        assert_eq!(post(&mut bed, SIGNALED, 1), full(0, 1));
        bed.retire(block).unwrap();
        assert_eq!(post(&mut bed, SIGNALED, 1), Ok(()));
    }
}

#[test]
fn a_run_without_completions_leaves_room_for_a_largest_request() {
    for offset in 0..16 {
        let mut bed = bed();
        bed.advance_to(offset);
        for _ in 0..12 {
            assert_eq!(post(&mut bed, UNSIGNALED, 1), Ok(()));
        }
        assert_eq!(post(&mut bed, UNSIGNALED, 1), Err(PostError::UnsignaledRun));
        assert_eq!(post(&mut bed, UNSIGNALED, 4), Err(PostError::UnsignaledRun));
        // A signaled request is taken, and ends the run.
        assert_eq!(post(&mut bed, SIGNALED, 1), Ok(()));
        for _ in 0..3 {
            assert_eq!(post(&mut bed, UNSIGNALED, 1), Ok(()));
        }
        assert_eq!(post(&mut bed, UNSIGNALED, 1), full(0, 1));
        bed.retire(offset + 12).unwrap();
        assert_eq!(bed.queue.free_blocks(), 13);
    }
}

#[test]
fn a_run_may_leave_exactly_the_room_for_a_largest_request() {
    let mut bed = bed();
    for blocks in [4, 4] {
        post(&mut bed, UNSIGNALED, blocks).unwrap();
    }
    assert_eq!(post(&mut bed, UNSIGNALED, 4), Ok(()));
    assert_eq!(post(&mut bed, UNSIGNALED, 1), Err(PostError::UnsignaledRun));
    assert_eq!(post(&mut bed, SIGNALED, 4), Ok(()));
}

/// The run begins after the last signaled request. When that one has completed, only requests
/// without a completion may be outstanding, so there must be room for a largest request.
#[test]
fn a_run_behind_a_signaled_request_leaves_room_once_that_one_completes() {
    for first in [SIGNALED, UNSIGNALED] {
        let mut bed = bed();
        // The run before the signaled request does not count.
        post(&mut bed, first, 1).unwrap();
        post(&mut bed, SIGNALED, 1).unwrap();
        let mut blocks = 2;
        while post(&mut bed, UNSIGNALED, 1).is_ok() {
            blocks += 1;
        }
        assert_eq!(blocks, 2 + 12);
        assert_eq!(post(&mut bed, UNSIGNALED, 1), Err(PostError::UnsignaledRun));
        bed.retire(1).unwrap();
        assert_eq!(post(&mut bed, UNSIGNALED, 1), Err(PostError::UnsignaledRun));
        assert_eq!(post(&mut bed, SIGNALED, 4), Ok(()));
        assert_eq!(post(&mut bed, SIGNALED, 1), full(0, 1));
        bed.retire(14).unwrap();
        assert_eq!(bed.queue.free_blocks(), 16);
    }
}

#[test]
fn a_run_is_counted_within_a_batch_too() {
    let mut bed = bed();
    let mut batch = bed.queue.wr_start();
    for _ in 0..12 {
        batch.wr(0, UNSIGNALED).send().sge_list(&[]);
    }
    batch.wr(0, UNSIGNALED).send().sge_list(&[]);
    let error = batch.complete().unwrap_err();
    assert_eq!((error.index(), error.error()), (12, PostError::UnsignaledRun));
    assert_eq!(bed.queue.free_blocks(), 16);

    let mut batch = bed.queue.wr_start();
    batch.wr(0, UNSIGNALED).send().sge_list(&[]);
    batch.wr(0, UNSIGNALED).send().sge_list(&[]);
    batch.wr(0, SIGNALED).send().sge_list(&[]);
    for _ in 0..12 {
        batch.wr(0, UNSIGNALED).send().sge_list(&[]);
    }
    batch.complete().unwrap();
    assert_eq!(bed.queue.free_blocks(), 1);
}

#[test]
fn a_queue_that_signals_all_has_no_such_runs() {
    let mut bed = Bed::<Rc>::new(Spec { requests: 4, signal_all: true, ..Spec::default() });
    for _ in 0..bed.layout.blocks {
        post(&mut bed, UNSIGNALED, 1).unwrap();
    }
    assert_eq!(post(&mut bed, UNSIGNALED, 1), full(0, 1));
}

/// In a queue with room for one largest request, each request must be signaled: an unsignaled one
/// could be the last.
#[test]
fn a_queue_of_one_request_takes_signaled_ones_alone() {
    let mut bed = Bed::<Rc>::new(Spec { requests: 1, sges: 2, ..Spec::default() });
    assert_eq!(bed.layout.blocks, 1);
    for block in 0..5 {
        assert_eq!(post(&mut bed, UNSIGNALED, 1), Err(PostError::UnsignaledRun));
        assert_eq!(post(&mut bed, SIGNALED, 1), Ok(()));
        assert_eq!(post(&mut bed, SIGNALED, 1), full(0, 1));
        bed.retire(block).unwrap();
    }
}

#[test]
fn a_full_queue_refuses_every_kind_of_request_and_keeps_what_it_holds() {
    let mut bed = bed();
    for _ in 0..4 {
        post(&mut bed, SIGNALED, 4).unwrap();
    }
    let (ring, uar, record) = (bed.ring.all(), bed.uar.all(), bed.record.all());
    let data = sges(14);
    let to = crate::by_hand::REMOTE;
    let mut batch = bed.queue.wr_start();
    batch.wr(0, SIGNALED).send().sge(data[0]);
    batch.wr(0, SIGNALED).send_imm([1; 4]).sge_list(&data);
    batch.wr(0, SIGNALED).rdma_write(to).inline_data(&[1; 100]);
    batch.wr(0, SIGNALED).rdma_write_imm(to, [1; 4]).inline_data_list(&[&[1; 100]]);
    batch.wr(0, SIGNALED).rdma_read(to).sge_list(&data);
    let error = batch.complete().unwrap_err();
    assert_eq!((error.index(), Err(error.error())), (0, full(0, 1)));
    assert!(bed.ring.all() == ring);
    assert!(bed.uar.all() == uar);
    assert_eq!(bed.record.all(), record);
    for block in [0, 4, 8, 12] {
        assert_eq!(bed.retire(block).unwrap().wr_id, 1);
    }
}
