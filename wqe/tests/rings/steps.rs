//! Requests that are built in steps: the same bytes, records and doorbells as those of a batch.

use crate::bed::{self, Bed, Spec};
use crate::by_hand::{IMM, INVALIDATED, REMOTE, least, of_sges, pattern, sges};
use mlx5_wqe::operation::{RdmaWrite, RdmaWriteImm, Send, SendImm, SendInvalidate};
use mlx5_wqe::{
    BatchError, InlineSges, ListTransport, PostError, QueueState, Rc, SendFlags, Sge, Steps,
    StepsState, Transport, Uc, Ud, XrcSend,
};

const SIGNALED: SendFlags = SendFlags::SIGNALED;

/// An operation whose head can be written first, by its number.
const OPERATIONS: usize = 5;

/// Data of a request.
#[derive(Clone, Copy, Debug)]
enum Given<'a> {
    Sges(&'a [Sge]),
    Inline(&'a [u8]),
}

fn place(bytes: &[u8]) -> Sge {
    let addr = bytes.as_ptr().expose_provenance() as u64;
    Sge { addr, length: bytes.len() as u32, lkey: 0 }
}

fn head<T: Transport>(steps: &mut Steps<'_, T>, wr_id: u64, which: usize) -> bool {
    match which {
        0 => steps.head::<Send>(wr_id, SIGNALED, [0; 4], ()),
        1 => steps.head::<SendImm>(wr_id, SIGNALED, IMM, ()),
        2 => steps.head::<SendInvalidate>(wr_id, SIGNALED, INVALIDATED.to_be_bytes(), ()),
        3 => steps.head::<RdmaWrite>(wr_id, SendFlags::empty(), [0; 4], REMOTE),
        _ => steps.head::<RdmaWriteImm>(wr_id, SIGNALED, IMM, REMOTE),
    }
}

/// Gives the request its data by the quick setter if that takes it, otherwise by the other one. Says
/// whether it was the quick one.
fn give<T: ListTransport>(steps: &mut Steps<'_, T>, given: Given<'_>) -> bool {
    match given {
        Given::Sges(&[sge]) if steps.sge(sge) => return true,
        Given::Sges(list) => steps.list(list),
        // SAFETY: the bytes are those of a slice.
        Given::Inline(bytes) if unsafe { steps.inline(bytes.as_ptr(), bytes.len()) } => {
            return true;
        }
        Given::Inline(bytes) => {
            let piece = [place(bytes)];
            // SAFETY: as above.
            steps.inline_list(unsafe { InlineSges::new(&piece) });
        }
    }
    false
}

macro_rules! typed {
    ($batch:expr, $wr_id:expr, $which:expr, $given:expr) => {{
        macro_rules! data {
            ($request:expr) => {
                match $given {
                    Given::Sges(&[sge]) => $request.sge(sge),
                    Given::Sges(list) => $request.sge_list(list),
                    Given::Inline(bytes) => $request.inline_data(bytes),
                }
            };
        }
        match $which {
            0 => data!($batch.wr($wr_id, SIGNALED).send()),
            1 => data!($batch.wr($wr_id, SIGNALED).send_imm(IMM)),
            2 => data!($batch.wr($wr_id, SIGNALED).send_inv(INVALIDATED)),
            3 => data!($batch.wr($wr_id, SendFlags::empty()).rdma_write(REMOTE)),
            _ => data!($batch.wr($wr_id, SIGNALED).rdma_write_imm(REMOTE, IMM)),
        }
    }};
}

/// Every operation with every form of data, alone and in batches, at each place of the ring.
macro_rules! compare {
    ($transport:ident) => {{
        let (bytes, mut list) = (pattern(120), sges(4));
        list[0].length = 1 << 20;
        let empty = [Sge::default()];
        let givens = [
            Given::Sges(&list[..1]),
            Given::Sges(&list[1..3]),
            Given::Sges(&empty),
            Given::Sges(&[]),
            Given::Sges(&list),
            Given::Inline(&bytes[..1]),
            Given::Inline(&bytes[..8]),
            Given::Inline(&bytes[..29]),
            Given::Inline(&bytes[..60]),
            Given::Inline(&[]),
            Given::Inline(&bytes),
        ];
        let (mut quick, mut slow, mut whole) = (0, 0, 0);
        for start in 0..16 {
            for which in 0..OPERATIONS {
                for (first, &given) in givens.iter().enumerate() {
                    for count in [1, 3] {
                        let spec = Spec { requests: 16, inline: 60, ..Spec::default() };
                        let mut one = Bed::<$transport>::new(spec);
                        let mut other = Bed::<$transport>::new(spec);
                        one.advance_to(start % one.layout.blocks);
                        other.advance_to(start % other.layout.blocks);
                        let mut batch = one.queue.wr_start();
                        let mut state = StepsState::new();
                        let mut steps = other.queue.start_steps(&mut state);
                        for wr_id in 0..count {
                            // The others of a batch are usual ones.
                            let given = if wr_id == 1 { given } else { givens[first % 2 * 5] };
                            let given = if count == 1 { givens[first] } else { given };
                            typed!(batch, wr_id, which, given);
                            if head(&mut steps, wr_id, which) {
                                if give(&mut steps, given) { quick += 1 } else { slow += 1 }
                            } else {
                                whole += 1;
                                push_whole(&mut steps, wr_id, which, given);
                            }
                        }
                        let typed = batch.complete();
                        let stepped = complete(steps);
                        let what = format!("{which} {given:?} of {count} from {start}");
                        assert_eq!(typed, stepped, "{what}");
                        // What was refused may lie behind what the device reads.
                        let same = one.ring.all() == other.ring.all();
                        assert!(same || typed.is_err(), "ring: {what}");
                        assert!(one.uar.all() == other.uar.all(), "doorbell: {what}");
                        assert_eq!(one.record.all(), other.record.all(), "{what}");
                        let mut block = u32::from(start as u16) % one.layout.blocks;
                        while typed.is_ok() && block != u32::from(one.producer()) {
                            let record = one.retire(block);
                            assert_eq!(record, other.retire(block), "{what}");
                            block += 1;
                        }
                    }
                }
            }
        }
        assert!(quick > 100 && slow > 100 && whole > 50, "{quick} {slow} {whole}");
    }};
}

/// A request whose head was not written.
fn push_whole<T: ListTransport>(
    steps: &mut Steps<'_, T>,
    wr_id: u64,
    which: usize,
    given: Given<'_>,
) {
    use mlx5_wqe::{Data, Operation};
    let operation = [
        Operation::Send,
        Operation::SendImm(IMM),
        Operation::SendInvalidate(INVALIDATED),
        Operation::RdmaWrite(REMOTE),
        Operation::RdmaWriteImm(REMOTE, IMM),
    ][which];
    let flags = if which == 3 { SendFlags::empty() } else { SIGNALED };
    let pieces;
    let data = match given {
        Given::Sges(list) => Data::Sges(list),
        Given::Inline(bytes) => {
            pieces = [bytes];
            Data::Inline(&pieces)
        }
    };
    let wr = mlx5_wqe::SendWr { operation, data, ..least(wr_id, flags) };
    steps.push_with(|| wr);
}

fn complete<T: ListTransport>(mut steps: Steps<'_, T>) -> Result<(), BatchError> {
    if steps.complete_fast() { Ok(()) } else { steps.complete() }
}

#[test]
fn a_request_built_in_steps_is_that_of_a_batch() {
    compare!(Rc);
    compare!(Uc);
}

/// Transports whose requests need an address have no head without it.
#[test]
fn a_request_that_needs_an_address_has_no_head() {
    let mut state = StepsState::new();
    let mut bed = Bed::<Ud>::new(Spec::default());
    assert!(!bed.queue.start_steps(&mut state).head::<Send>(1, SIGNALED, [0; 4], ()));
    let mut bed = Bed::<XrcSend>::new(Spec::default());
    let mut steps = bed.queue.start_steps(&mut state);
    assert!(!steps.head::<Send>(1, SIGNALED, [0; 4], ()));
    assert!(steps.push_fast(&of_sges(1, SIGNALED, &sges(1))));
    assert_eq!(complete(steps), Ok(()));
}

/// What cannot be posted has no head, so that nothing is written to the ring.
#[test]
fn a_queue_that_may_not_send_writes_no_head() {
    let mut bed = Bed::<Rc>::new(Spec::default());
    let before = bed.ring.all();
    bed.gate.gate.set_state(QueueState::Init);
    let mut state = StepsState::new();
    let mut steps = bed.queue.start_steps(&mut state);
    assert!(!steps.head::<Send>(1, SIGNALED, [0; 4], ()));
    steps.push_with(|| least(1, SIGNALED));
    let refused = BatchError::new(0, PostError::State(QueueState::Init));
    assert_eq!(complete(steps), Err(refused));
    assert!(before == bed.ring.all());
    bed.gate.gate.set_state(QueueState::ReadyToSend);
    let mut steps = bed.queue.start_steps(&mut state);
    steps.push_with(|| least(1, SIGNALED));
    assert_eq!(complete(steps), Ok(()));
    // The fast path is back.
    assert!(bed.queue.start_steps(&mut state).head::<Send>(2, SIGNALED, [0; 4], ()));
}

/// A head without data, and a batch that is aborted or dropped, are nothing.
#[test]
fn a_head_alone_is_not_posted() {
    let mut bed = Bed::<Rc>::new(Spec::default());
    let mut state = StepsState::new();
    for way in 0..3 {
        let mut steps = bed.queue.start_steps(&mut state);
        assert!(steps.head::<Send>(1, SIGNALED, [0; 4], ()));
        match way {
            0 => assert_eq!(complete(steps), Ok(())),
            1 => steps.abort(),
            _ => (),
        }
        assert_eq!(bed.producer(), 0);
    }
}

/// A request that the caller keeps is pending: no head is written and no data is taken until it is added
/// or released, and the batch is not completed fast.
#[test]
fn a_kept_request_holds_up_the_others() {
    let mut bed = Bed::<Rc>::new(Spec::default());
    let mut state = StepsState::new();
    let before = bed.ring.all();
    let mut steps = bed.queue.start_steps(&mut state);
    assert!(!steps.is_pending() && !steps.has_head());
    steps.keep();
    assert!(steps.is_pending() && !steps.has_head());
    assert!(!steps.head::<Send>(1, SIGNALED, [0; 4], ()));
    assert!(!steps.sge(sges(1)[0]));
    // SAFETY: the bytes are those of an array.
    assert!(!unsafe { steps.inline([0; 8].as_ptr(), 8) });
    assert!(!steps.complete_fast());
    assert!(before == bed.ring.all());
    // SAFETY: the batch of this state is under construction, and nothing else used the queue.
    let mut steps = unsafe { bed.queue.steps(&mut state) };
    steps.release();
    assert!(steps.head::<Send>(1, SIGNALED, [0; 4], ()) && steps.has_head());
    assert!(!steps.complete_fast(), "its data is not known");
    assert!(steps.sge(sges(1)[0]) && !steps.is_pending());
    assert!(!steps.sge(sges(1)[0]), "it has its data");
    steps.keep();
    assert!(!steps.complete_fast(), "another one is kept");
    steps.release();
    assert!(steps.head::<Send>(2, SIGNALED, [0; 4], ()));
    assert!(!steps.complete_fast(), "another one has a head");
    steps.release();
    assert!(steps.complete_fast());
    assert_eq!(bed.producer(), 1);
}

/// Nor is a batch completed fast whose request took the slow path, if another one is kept.
#[test]
fn a_kept_request_holds_up_one_of_the_slow_path() {
    let mut bed = Bed::<Rc>::new(Spec::default());
    let (list, mut state) = (sges(1), StepsState::new());
    let mut steps = bed.queue.start_steps(&mut state);
    steps.push_with(|| of_sges(1, SIGNALED, &list));
    steps.keep();
    assert!(!steps.complete_fast() && !steps.complete_many());
    steps.release();
    assert_eq!(complete(steps), Ok(()));
    assert_eq!(bed.producer(), 1);
}

/// Several requests of the fast path are posted together, by one doorbell; those for which the room is
/// computed again are not.
#[test]
fn several_requests_are_completed_at_once() {
    let mut bed = Bed::<Rc>::new(Spec::default());
    let sge = sges(1)[0];
    let mut state = StepsState::new();
    let mut steps = bed.queue.start_steps(&mut state);
    assert!(!steps.complete_many(), "there is none");
    for wr_id in 0..3 {
        assert!(steps.head::<Send>(wr_id, SIGNALED, [0; 4], ()) && steps.sge(sge));
    }
    assert!(steps.complete_many());
    assert_eq!((bed.producer(), bed.records.in_flight()), (3, 3));
    let uar = bed.uar.all();
    assert_eq!(uar[bed::REGISTER..][..8], bed.at_block(2, 8));
}

/// A gate that shuts while a request of several blocks is built stops it.
#[test]
fn a_large_request_is_not_completed_behind_a_gate_that_shut() {
    let list = sges(9);
    let mut bed = Bed::<Rc>::new(Spec { sges: 9, ..Spec::default() });
    let (uar, gate) = (bed.uar.all(), bed.gate.gate);
    let mut batch = bed.queue.wr_start();
    batch.wr(1, SIGNALED).send().sge_list(&list);
    gate.set_state(QueueState::Reset);
    assert_eq!(batch.complete().unwrap_err().error(), PostError::State(QueueState::Reset));
    assert_eq!((bed.producer(), bed.records.in_flight()), (0, 0));
    assert!(bed.uar.all() == uar);
    gate.set_state(QueueState::ReadyToSend);
    let mut batch = bed.queue.wr_start();
    batch.wr(1, SIGNALED).send().sge_list(&list);
    batch.complete().unwrap();
    assert_eq!((bed.producer(), bed.records.in_flight()), (3, 1));
}

/// A queue without a BlueFlame register of its own, and requests of another size, are posted as those of a
/// batch.
#[test]
fn only_what_fits_the_register_is_completed_fast() {
    let bytes = pattern(100);
    for (blueflame, length, fast) in [(512, 8, true), (512, 100, false), (0, 8, false)] {
        let spec = Spec { inline: 100, blueflame, ..Spec::default() };
        let (mut one, mut other) = (Bed::<Ud>::new(spec), Bed::<Ud>::new(spec));
        let piece = [place(&bytes[..length])];
        // SAFETY: the bytes are those of an array.
        let data = mlx5_wqe::Data::InlineAt(unsafe { InlineSges::new(&piece) });
        let request = mlx5_wqe::SendWr { data, ..of_sges(1, SIGNALED, &[]) };
        let mut state = StepsState::new();
        let mut steps = one.queue.start_steps(&mut state);
        assert!(steps.push_fast(&request));
        assert_eq!(steps.complete_fast(), fast, "{blueflame} {length}");
        assert!(fast || steps.complete().is_ok());
        let mut batch = other.queue.wr_start();
        batch.push(&request);
        assert_eq!(batch.complete(), Ok(()));
        assert!(one.ring.all() == other.ring.all() && one.uar.all() == other.uar.all());
        assert_eq!(one.producer(), other.producer());
    }
}

/// A batch that is put aside between its steps goes on, also where the 16 bits of the counters wrap around.
#[test]
fn steps_go_on_from_what_was_kept() {
    let mut bed = Bed::<Uc>::new(Spec::default());
    let mut state = StepsState::new();
    let sge = sges(1)[0];
    let (mut heads, mut fast) = (0, 0);
    macro_rules! again {
        () => {{
            // SAFETY: the batch of this state is under construction, and nothing else used the queue.
            unsafe { bed.queue.steps(&mut state) }
        }};
    }
    for wr_id in 0..70_000_u64 {
        let first = bed.queue.producer();
        let _ = bed.queue.start_steps(&mut state);
        if again!().head::<Send>(wr_id, SIGNALED, [0; 4], ()) {
            assert!(again!().sge(sge));
            heads += 1;
        } else {
            let request = of_sges(wr_id, SIGNALED, std::slice::from_ref(&sge));
            again!().push_with(|| request);
        }
        if again!().complete_fast() {
            fast += 1;
        } else {
            assert_eq!(again!().complete(), Ok(()), "{wr_id}");
        }
        assert_eq!(bed.queue.producer(), first.wrapping_add(1));
        assert_eq!(bed.retire(u32::from(first)).map(|done| done.wr_id), Some(wr_id));
    }
    assert!(heads > 30_000 && fast > 30_000 && heads < 70_000, "{heads} {fast}");
}

/// A batch of one request of the usual size is completed fast as it is otherwise; any other one is given
/// back.
#[test]
fn a_usual_request_is_completed_fast() {
    let list = sges(2);
    for (request, usual) in [
        (of_sges(1, SIGNALED, &list[..1]), true),
        (of_sges(1, SIGNALED, &list), false),
        (least(1, SIGNALED), false),
    ] {
        for count in 1..3 {
            let (mut one, mut other) =
                (Bed::<Ud>::new(Spec::default()), Bed::<Ud>::new(Spec::default()));
            let (mut batch, mut fast) = (one.queue.wr_start(), other.queue.wr_start());
            for _ in 0..count {
                batch.push(&request);
                fast.push(&request);
            }
            let done = fast.complete_fast();
            assert_eq!(done.is_ok(), usual && count == 1);
            assert_eq!(done.or_else(|batch| batch.complete()), batch.complete());
            assert!(one.ring.all() == other.ring.all() && one.uar.all() == other.uar.all());
            assert_eq!(one.producer(), other.producer());
        }
    }
}

/// A gate that shuts while a batch is built stops it, however it is completed.
#[test]
fn a_batch_is_not_completed_behind_a_gate_that_shut() {
    for count in [1, 3] {
        let mut bed = Bed::<Rc>::new(Spec::default());
        let uar = bed.uar.all();
        let mut state = StepsState::new();
        let mut steps = bed.queue.start_steps(&mut state);
        for wr_id in 0..count {
            assert!(steps.head::<Send>(wr_id, SIGNALED, [0; 4], ()) && steps.sge(sges(1)[0]));
        }
        bed.gate.gate.set_state(QueueState::Reset);
        assert!(!steps.complete_fast() && !steps.complete_many());
        let refused = BatchError::new(0, PostError::State(QueueState::Reset));
        assert_eq!(steps.complete(), Err(refused));
        assert_eq!((bed.producer(), bed.records.in_flight()), (0, 0));
        assert!(bed.uar.all() == uar);
    }
}

/// A closure that panics aborts the batch: what it had is not posted, and what is added behind is.
#[test]
fn a_closure_that_panics_aborts_the_batch() {
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    let mut long = sges(1);
    long[0].length = u32::MAX;
    for first in 0..3 {
        let mut bed = Bed::<Rc>::new(Spec::default());
        let mut state = StepsState::new();
        let mut steps = bed.queue.start_steps(&mut state);
        match first {
            0 => (),
            1 => steps.push_with(|| of_sges(1, SIGNALED, &long)),
            _ => steps.push_with(|| least(1, SIGNALED)),
        }
        let panic = catch_unwind(AssertUnwindSafe(|| {
            steps.with_batch(|batch| {
                batch.wr(2, SIGNALED).send().sge(sges(1)[0]);
                resume_unwind(Box::new(()));
            })
        }));
        assert!(panic.is_err());
        assert_eq!(complete(steps), Ok(()));
        assert_eq!((bed.producer(), bed.records.in_flight()), (0, 0), "{first}");
        let mut steps = bed.queue.start_steps(&mut state);
        steps.with_batch(|batch| batch.wr(3, SIGNALED).send().sge(sges(1)[0]));
        assert_eq!(complete(steps), Ok(()));
        assert_eq!(bed.retire(0).map(|request| request.wr_id), Some(3));
    }
}

/// A closure can put a batch of another queue in place of its own, or post its own by the way.
#[test]
fn a_closure_that_exchanges_its_batch_aborts_it() {
    for own in [false, true] {
        let mut bed = Bed::<Rc>::new(Spec::default());
        let mut foreign = Bed::<Rc>::new(Spec::default());
        (0..5).for_each(|_| foreign.advance());
        let mut state = StepsState::new();
        let mut steps = bed.queue.start_steps(&mut state);
        steps.push_with(|| least(1, SIGNALED));
        let queue = &mut foreign.queue;
        steps.with_batch(|batch| {
            // SAFETY: the queue outlives the batch: it is of this test.
            let queue = unsafe { &mut *std::ptr::from_mut(queue) };
            let before = std::mem::replace(batch, queue.wr_start());
            if own {
                before.complete().unwrap();
            }
        });
        let posted = u32::from(own);
        steps.push_with(|| least(2, SIGNALED));
        assert_eq!(complete(steps), Ok(()));
        assert_eq!(bed.producer(), posted + 1);
        assert_eq!(bed.retire(posted).map(|request| request.wr_id), Some(2));
        assert_eq!(foreign.producer(), 5);
    }
}
