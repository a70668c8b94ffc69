//! Requests that an iterator yields.

use crate::bed::{Bed, Spec};
use crate::by_hand::{Kind, least, of_sges, pattern, sges};
use mlx5_wqe::{
    Data, ListError, PostError, QueueState, Rc, SendFlags, SendWr, Sge, Uc, Ud, XrcSend,
};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

const SIGNALED: SendFlags = SendFlags::SIGNALED;

/// Requests of one block and of more.
fn requests<'a>(count: u64, sges: &'a [Sge], pieces: &'a [&'a [u8]]) -> Vec<SendWr<'a>> {
    (0..count)
        .map(|wr_id| match wr_id % 3 {
            0 => least(wr_id, SIGNALED),
            1 => of_sges(wr_id, SendFlags::empty(), sges),
            _ => SendWr { data: Data::Inline(pieces), ..least(wr_id, SIGNALED) },
        })
        .collect()
}

fn as_a_list<T: Kind>() {
    let (sges, bytes) = (sges(3), pattern(70));
    let pieces = [&bytes[..]];
    for start in 0..32 {
        for count in [0, 1, 2, 5] {
            let spec = Spec { requests: 16, inline: 70, ..Spec::default() };
            let (mut one, mut other) = (Bed::<T>::new(spec), Bed::<T>::new(spec));
            one.advance_to(start % one.layout.blocks);
            other.advance_to(start % other.layout.blocks);
            let list = requests(count, &sges, &pieces);
            one.queue.post_send(&list).unwrap();
            let posted = if start % 2 == 0 {
                other.queue.post_send_iter(&list)
            } else {
                other.queue.post_send_iter(list.iter().copied())
            };
            assert_eq!(posted, Ok(list.len()));
            assert!(one.ring.all() == other.ring.all(), "{count} from {start}");
            assert!(one.uar.all() == other.uar.all(), "one doorbell, the same");
            assert_eq!(one.producer(), other.producer());
        }
    }
}

#[test]
fn an_iterator_is_posted_as_its_list_is() {
    as_a_list::<Rc>();
    as_a_list::<Uc>();
    as_a_list::<Ud>();
    as_a_list::<XrcSend>();
}

#[test]
fn requests_before_the_first_bad_one_are_posted_and_no_more_is_taken() {
    let mut bed = Bed::<Rc>::new(Spec::default());
    let mut long = sges(1);
    long[0].length = u32::MAX;
    for bad in 0..4 {
        let (first, uar) = (bed.queue.producer(), bed.uar.all());
        let mut taken = 0;
        let refused = bed.queue.post_send_iter((0..8).map(|wr_id| {
            taken += 1;
            of_sges(wr_id, SIGNALED, if wr_id == bad { &long } else { &[] })
        }));
        let error = PostError::SgeTooLong { index: 0, length: u32::MAX };
        assert_eq!(refused, Err(ListError::new(bad as u32, error)));
        assert_eq!(taken, bad + 1);
        assert_eq!(bed.queue.producer(), first + bad as u16);
        assert_eq!(bed.producer(), u32::from(first) + bad as u32);
        if bad == 0 {
            assert!(bed.uar.all() == uar, "no doorbell for nothing");
        } else {
            // A send of nothing is a control segment alone, which every doorbell has.
            bed.assert_rang(bed.producer() - 1, 8, &uar);
        }
        for block in 0..bad as u32 {
            let record = bed.retire(u32::from(first) + block).unwrap();
            assert_eq!(record.wr_id, block.into());
        }
    }
}

#[test]
fn an_iterator_without_end_fills_the_queue() {
    let mut bed = Bed::<Rc>::new(Spec { requests: 16, ..Spec::default() });
    bed.advance_to(9);
    let first = u32::from(bed.queue.producer());
    let blocks = bed.layout.blocks;
    let refused = bed.queue.post_send_iter((0..).map(|wr_id| least(wr_id, SIGNALED)));
    let error = PostError::QueueFull { free: 0, needed: 1 };
    assert_eq!(refused, Err(ListError::new(blocks, error)));
    for block in 0..blocks {
        assert_eq!(bed.retire(first + block).unwrap().wr_id, block.into());
    }
}

#[test]
fn an_iterator_that_panics_posts_nothing() {
    let mut bed = Bed::<Rc>::new(Spec::default());
    for start in 0..20 {
        let before = (bed.queue.producer(), bed.uar.all(), bed.queue.free_blocks());
        let panic = catch_unwind(AssertUnwindSafe(|| {
            bed.queue.post_send_iter((0..).map(|wr_id| {
                if wr_id == start % 5 {
                    resume_unwind(Box::new("of the iterator"));
                }
                least(wr_id, SIGNALED)
            }))
        }));
        assert!(panic.is_err());
        assert!(before == (bed.queue.producer(), bed.uar.all(), bed.queue.free_blocks()));
        bed.advance();
    }
}

#[test]
fn a_shut_gate_refuses_the_first_request() {
    let mut bed = Bed::<Rc>::new(Spec::default());
    bed.gate.gate.set_state(QueueState::Init);
    let refused = bed.queue.post_send_iter([least(1, SIGNALED), least(2, SIGNALED)]);
    assert_eq!(refused, Err(ListError::new(0, PostError::State(QueueState::Init))));
    bed.gate.gate.set_state(QueueState::ReadyToSend);
    assert_eq!(bed.queue.post_send_iter([least(1, SIGNALED), least(2, SIGNALED)]), Ok(2));
}

/// A request as a C program has it: the fields of `struct ibv_send_wr` that a send needs.
#[repr(C)]
struct CWr {
    wr_id: u64,
    next: *const CWr,
    sg_list: *const CSge,
    num_sge: i32,
}

/// `struct ibv_sge`.
#[repr(C)]
struct CSge {
    addr: u64,
    length: u32,
    lkey: u32,
}

#[test]
fn a_linked_list_of_c_is_posted_without_a_copy() {
    let array =
        [0x11, 0x22, 0x33].map(|lkey| CSge { addr: u64::from(lkey) << 40, length: lkey + 1, lkey });
    let last = CWr { wr_id: 2, next: std::ptr::null(), sg_list: &array[2], num_sge: 1 };
    let first = CWr { wr_id: 1, next: &last, sg_list: array.as_ptr(), num_sge: 2 };
    let translated: Vec<_> =
        array.iter().map(|&CSge { addr, length, lkey }| Sge { addr, length, lkey }).collect();
    let (mut one, mut other) = (Bed::<Rc>::new(Spec::default()), Bed::<Rc>::new(Spec::default()));
    let list = [of_sges(1, SIGNALED, &translated[..2]), of_sges(2, SIGNALED, &translated[2..])];
    one.queue.post_send(&list).unwrap();
    let mut next: *const CWr = &first;
    let posted = other.queue.post_send_iter(std::iter::from_fn(|| {
        // SAFETY: the list ends with a null pointer, and lives longer than the call.
        let wr = unsafe { next.as_ref() }?;
        next = wr.next;
        // SAFETY: both structures have the same layout, and the array has that many entries.
        let sges = unsafe { std::slice::from_raw_parts(wr.sg_list.cast(), wr.num_sge as usize) };
        Some(of_sges(wr.wr_id, SIGNALED, sges))
    }));
    assert_eq!(posted, Ok(2));
    assert!(one.ring.all() == other.ring.all());
    assert_eq!(other.retire(1).unwrap().wr_id, 2);
}

/// A batch whose good requests are posted, up to the first bad one.
#[test]
fn a_batch_completed_as_a_list_posts_what_is_before_the_first_bad_request() {
    let mut long = sges(1);
    long[0].length = u32::MAX;
    for bad in 0..5 {
        let (mut one, mut other) =
            (Bed::<Rc>::new(Spec::default()), Bed::<Rc>::new(Spec::default()));
        let request = |i| if i == bad { of_sges(i, SIGNALED, &long) } else { least(i, SIGNALED) };
        let list: Vec<SendWr<'_>> = (0..4).map(request).collect();
        let mut batch = other.queue.wr_start();
        for (at, wr) in list.iter().enumerate() {
            batch.push(wr);
            assert_eq!(batch.is_refused(), at as u64 >= bad);
        }
        let posted = batch.complete_list();
        assert_eq!(posted, one.queue.post_send(&list));
        assert_eq!(posted.is_err(), bad < 4);
        assert_eq!(other.producer(), bad.min(4) as u32);
        assert!(one.uar.all() == other.uar.all());
        for block in 0..other.producer() {
            assert_eq!(one.at_block(block, 64), other.at_block(block, 64));
        }
    }
}

/// A refusal in a batch that was leaked does not concern the next list.
#[test]
fn a_leaked_refusal_does_not_stop_a_list() {
    let mut bed = Bed::<Rc>::new(Spec::default());
    let mut long = sges(1);
    long[0].length = u32::MAX;
    let mut batch = bed.queue.wr_start();
    batch.push(&least(1, SIGNALED));
    batch.push(&of_sges(2, SIGNALED, &long));
    std::mem::forget(batch);
    assert_eq!(bed.queue.post_send_iter([least(3, SIGNALED), least(4, SIGNALED)]), Ok(2));
    assert_eq!(bed.producer(), 2);
}
