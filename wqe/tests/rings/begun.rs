//! Requests that one call begins and another finishes: bytes, records, doorbells and refusals are
//! the same as those of the typed builder.

use crate::bed::{Bed, Spec};
use crate::by_hand::{IMM, INVALIDATED, REMOTE, least, pattern, sges};
use mlx5_wqe::operation::{RdmaWrite, RdmaWriteImm, Send, SendImm, SendInvalidate};
use mlx5_wqe::{
    Batch, Begun, InlineSges, PostError, QueueState, Rc, SendFlags, SendQueue, Sge, Transport, Uc,
    Ud, XrcSend,
};

const SIGNALED: SendFlags = SendFlags::SIGNALED;
const UNSIGNALED: SendFlags = SendFlags::empty();

/// Data of a request.
#[derive(Clone, Copy, Debug)]
enum Given<'a> {
    Sges(&'a [Sge]),
    Inline(&'a [u8]),
}

fn begin<T: Transport>(
    batch: &mut Batch<'_, T>,
    wr_id: u64,
    flags: SendFlags,
    which: usize,
) -> Option<Begun> {
    match which {
        0 => batch.begin::<Send>(wr_id, flags, [0; 4], ()),
        1 => batch.begin::<SendImm>(wr_id, flags, IMM, ()),
        2 => batch.begin::<SendInvalidate>(wr_id, flags, INVALIDATED.to_be_bytes(), ()),
        3 => batch.begin::<RdmaWrite>(wr_id, flags, [0; 4], REMOTE),
        _ => batch.begin::<RdmaWriteImm>(wr_id, flags, IMM, REMOTE),
    }
}

fn finish<T: Transport>(batch: &mut Batch<'_, T>, begun: Begun, given: Given<'_>) {
    // SAFETY: each caller has just begun this request in this batch. The piece is that of the slice
    // `bytes`.
    unsafe {
        match given {
            Given::Sges(&[sge]) => batch.finish_sge(begun, sge),
            Given::Sges(list) => batch.finish_sges(begun, list),
            Given::Inline(bytes) => {
                let addr = bytes.as_ptr().expose_provenance() as u64;
                let piece = [Sge { addr, length: bytes.len() as u32, lkey: 0 }];
                batch.finish_inline(begun, InlineSges::new(&piece));
            }
        }
    }
}

macro_rules! typed {
    ($batch:expr, $wr_id:expr, $flags:expr, $which:expr, $given:expr) => {{
        macro_rules! data {
            ($request:expr) => {
                match $given {
                    Given::Sges(&[sge]) => $request.sge(sge),
                    Given::Sges(list) => $request.sge_list(list),
                    Given::Inline(bytes) => $request.inline_data(bytes),
                }
            };
        }
        let wr = $batch.wr($wr_id, $flags);
        match $which {
            0 => data!(wr.send()),
            1 => data!(wr.send_imm(IMM)),
            2 => data!(wr.send_inv(INVALIDATED)),
            3 => data!(wr.rdma_write(REMOTE)),
            _ => data!(wr.rdma_write_imm(REMOTE, IMM)),
        }
    }};
}

/// Asserts that two queues have the same doorbell, doorbell record, request records and WQEs.
fn assert_same<T: mlx5_wqe::ListTransport>(one: &Bed<T>, other: &Bed<T>, what: &str) {
    assert!(one.uar.all()[..0x808] == other.uar.all()[..0x808], "doorbell: {what}");
    assert_eq!(one.record.all(), other.record.all(), "{what}");
    let (free, blocks) = (one.queue.free_blocks(), one.layout.blocks);
    assert_eq!(free, other.queue.free_blocks(), "{what}");
    let mut at = u32::from(one.queue.producer()).wrapping_sub(blocks - free);
    // The records: identifiers, sizes, operations.
    let pending = |bed: &Bed<T>| {
        let oldest = bed.queue.drain_point(at as u16).unwrap();
        bed.queue.pending(oldest).collect::<Vec<_>>()
    };
    assert_eq!(pending(one), pending(other), "{what}");
    while at as u16 != one.queue.producer() {
        let units = usize::from(one.at_block(at, 16)[7] & 0x3f);
        assert_eq!(one.at_block(at, units * 16), other.at_block(at, units * 16), "{what}");
        at += units.div_ceil(4) as u32;
    }
}

/// Every operation with every form of data, alone and in batches, at each place of the ring, on
/// queues that are empty and that are nearly full.
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
            Given::Inline(&bytes[..12]),
            Given::Inline(&bytes[..28]),
            Given::Inline(&bytes[..60]),
            Given::Inline(&[]),
            Given::Inline(&bytes),
        ];
        let mut begun = 0;
        for (start, which, free) in [0, 3, 5, 7].into_iter().flat_map(|start| {
            (0..5).flat_map(move |which| [1, 2, 4, 16].map(|free| (start, which, free)))
        }) {
            for (first, flags, count) in (0..givens.len()).flat_map(|first| {
                [(SIGNALED, 1), (UNSIGNALED, 1), (SIGNALED, 3)].map(|(f, c)| (first, f, c))
            }) {
                let spec = Spec { requests: 16, sges: 3, inline: 60, ..Spec::default() };
                let beds = || {
                    let mut bed = Bed::<$transport>::new(spec);
                    bed.advance_to(start * 4);
                    while bed.queue.free_blocks() > free * 2 {
                        bed.queue.post_send(&[least(9, flags)]).unwrap();
                    }
                    bed
                };
                let (mut one, mut other) = (beds(), beds());
                let mut at = other.queue.wr_start().pause();
                let mut batch = one.queue.wr_start();
                for wr_id in 0..count {
                    let given = givens[(first + wr_id as usize) % givens.len()];
                    typed!(batch, wr_id, flags, which, given);
                    let queue: &mut SendQueue<$transport> = &mut other.queue;
                    // SAFETY: `at` is of the batch of this queue that was paused last, and the
                    // queue was not used since.
                    let mut again = unsafe { queue.resume(at) };
                    let head = begin(&mut again, wr_id, flags, which);
                    at = again.pause();
                    // SAFETY: the batch of this queue was paused in the line above.
                    let mut again = unsafe { queue.resume(at) };
                    match head {
                        Some(head) => {
                            finish(&mut again, head, given);
                            begun += 1;
                        }
                        None => typed!(again, wr_id, flags, which, given),
                    }
                    at = again.pause();
                }
                let typed = batch.complete();
                // SAFETY: the loop above has paused the batch of this queue, which was not used
                // since.
                let finished = unsafe { other.queue.resume(at) }.complete();
                let what = format!("{which} {:?} {flags:?} {count} {start} {free}", givens[first]);
                assert_eq!(typed, finished, "{what}");
                assert_same(&one, &other, &what);
            }
        }
        assert!(begun > 1000, "{begun}");
    }};
}

#[test]
fn a_begun_request_of_a_reliable_connection_is_that_of_the_typed_builder() {
    compare!(Rc);
}

#[test]
fn a_begun_request_of_an_unreliable_connection_is_that_of_the_typed_builder() {
    compare!(Uc);
}

/// A request that must be checked, or that has an address, cannot be begun.
#[test]
fn a_request_that_must_be_checked_is_not_begun() {
    let mut bed = Bed::<Rc>::new(Spec { requests: 4, sges: 1, ..Spec::default() });
    let ring = bed.ring.all();
    assert!(bed.queue.wr_start().begin::<Send>(1, SendFlags::IP_CSUM, [0; 4], ()).is_none());
    bed.gate.gate.set_state(QueueState::Init);
    assert!(bed.queue.wr_start().begin::<Send>(1, SIGNALED, [0; 4], ()).is_none());
    bed.gate.gate.set_state(QueueState::ReadyToSend);
    let mut batch = bed.queue.wr_start();
    batch.wr(1, SIGNALED).send().sge_list(&sges(20));
    assert!(batch.begin::<Send>(1, SIGNALED, [0; 4], ()).is_none(), "the batch is refused");
    drop(batch);
    let mut batch = bed.queue.wr_start();
    let _ = batch.handle();
    assert!(batch.begin::<Send>(1, SIGNALED, [0; 4], ()).is_none(), "it gets a handle");
    drop(batch);
    assert!(bed.ring.all() == ring);
    let mut batch = bed.queue.wr_start();
    batch.wr(1, SIGNALED).local_inv(7);
    batch.complete().unwrap();
    assert!(bed.queue.wr_start().begin::<Send>(1, SIGNALED, [0; 4], ()).is_none(), "it waits");
    bed.queue.post_send(&[least(2, SIGNALED), least(3, SIGNALED)]).unwrap();
    let ring = bed.ring.all();
    assert!(bed.queue.wr_start().begin::<Send>(1, SIGNALED, [0; 4], ()).is_none(), "it is full");
    assert!(bed.ring.all() == ring);

    let mut bed = Bed::<Rc>::new(Spec::default());
    bed.queue.sign_requests();
    assert!(bed.queue.wr_start().begin::<Send>(1, SIGNALED, [0; 4], ()).is_none(), "it is signed");
    let mut bed = Bed::<Ud>::new(Spec::default());
    assert!(bed.queue.wr_start().begin::<Send>(1, SIGNALED, [0; 4], ()).is_none(), "an address");
    let mut bed = Bed::<XrcSend>::new(Spec::default());
    assert!(bed.queue.wr_start().begin::<Send>(1, SIGNALED, [0; 4], ()).is_none(), "an address");
}

/// A request that was begun and gets no data is not part of the batch, and the next one takes its
/// place.
#[test]
fn a_begun_request_without_data_is_not_posted() {
    let mut bed = Bed::<Rc>::new(Spec::default());
    let mut batch = bed.queue.wr_start();
    let _ = batch.begin::<Send>(1, SIGNALED, [0; 4], ()).unwrap();
    assert!(batch.is_empty());
    batch.wr(2, SIGNALED).send().sge(sges(1)[0]);
    assert_eq!(batch.len(), 1);
    batch.complete().unwrap();
    assert_eq!(bed.retire(0).unwrap().wr_id, 2);
    assert_eq!(bed.records.in_flight(), 0);
}

/// A gate that shuts while a batch is built stops it.
#[test]
fn a_begun_request_is_not_posted_after_the_gate_shut() {
    for count in [1, 3] {
        let mut bed = Bed::<Rc>::new(Spec::default());
        let (uar, gate) = (bed.uar.all(), bed.gate.gate);
        let mut batch = bed.queue.wr_start();
        for wr_id in 0..count {
            let begun = batch.begin::<Send>(wr_id, SIGNALED, [0; 4], ()).unwrap();
            finish(&mut batch, begun, Given::Sges(&sges(1)));
        }
        gate.set_state(QueueState::Reset);
        let refused = batch.complete().unwrap_err();
        assert_eq!((refused.index(), refused.error()), (0, PostError::State(QueueState::Reset)));
        assert_eq!((bed.producer(), bed.records.in_flight()), (0, 0));
        assert!(bed.uar.all() == uar);
    }
}

/// The same holds where the 16-bit counters wrap around.
#[test]
fn begun_requests_go_on_past_the_wrap_of_the_counters() {
    let mut bed = Bed::<Uc>::new(Spec::default());
    let sge = sges(1);
    for wr_id in 0..70_000_u64 {
        let first = bed.queue.producer();
        let mut batch = bed.queue.wr_start();
        let begun = batch.begin::<Send>(wr_id, SIGNALED, [0; 4], ()).unwrap();
        finish(&mut batch, begun, Given::Sges(&sge));
        batch.complete().unwrap();
        assert_eq!(bed.queue.producer(), first.wrapping_add(1));
        assert_eq!(bed.retire(u32::from(first)).map(|done| done.wr_id), Some(wr_id));
    }
}
