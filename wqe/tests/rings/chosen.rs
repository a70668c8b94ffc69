//! Requests whose operation or transport is chosen at run time. Bytes, records and refusals are the
//! same as those of the list form.

use crate::bed::{Bed, Spec};
use crate::by_hand::{ADDRESS, IMM, INVALIDATED, QKEY, REMOTE, SRQN, TO_QPN, pattern, sges};
use mlx5_wqe::{
    AnyBatch, Batch, BindParts, Binding, Data, ListTransport, MaskedOperands, Operation, RawWqe,
    Rc, SendFlags, SendWr, Uc, Ud, UdAddress, WindowType, XrcSend,
};

/// Every operation but those that no transport has.
fn operations() -> Vec<Operation> {
    let remote = REMOTE;
    let operands = MaskedOperands { compare: 1, compare_mask: 2, swap: 3, swap_mask: 4 };
    let parts = BindParts {
        window_type: WindowType::Two,
        window: 0x1234_5600,
        rkey: 0x1234_5601,
        lkey: 0x42,
        addr: 0x1000,
        length: 64,
        access: 0,
        zero_based: false,
    };
    // SAFETY: no device reads the ring.
    let binding = unsafe { Binding::new(parts) };
    vec![
        Operation::Send,
        Operation::SendImm(IMM),
        Operation::SendInvalidate(INVALIDATED),
        Operation::RdmaWrite(remote),
        Operation::RdmaWriteImm(remote, IMM),
        Operation::RdmaRead(remote),
        Operation::CompareSwap { remote, compare: 5, swap: 6 },
        Operation::FetchAdd { remote, add: 7 },
        Operation::MaskedCompareSwap { remote, operands },
        Operation::MaskedFetchAdd { remote, add: 8, boundary: 1 << 31 },
        Operation::BindWindow(binding),
        Operation::LocalInvalidate(INVALIDATED),
        Operation::Nop,
        Operation::Raw,
    ]
}

/// Data of each form, and of lengths that are allowed and that are not.
fn with_each_data(mut each: impl FnMut(Data<'_>)) {
    let (four, bytes) = (sges(4), pattern(60));
    let mut eight = sges(1);
    eight[0].length = 8;
    for list in [&four[..0], &four[..1], &eight, &four[..3], &four] {
        each(Data::Sges(list));
    }
    for pieces in
        [&[][..], &[&bytes[..]], &[&bytes[..7]], &[&bytes[..3], &bytes[..9]], &[&[0; 500]]]
    {
        each(Data::Inline(pieces));
    }
    let mut wqe = [0; 32];
    (wqe[3], wqe[7]) = (0x0a, 2);
    // SAFETY: no device reads the ring.
    each(Data::Wqe(unsafe { RawWqe::new(&wqe) }.unwrap()));
}

/// The batch by which a request is posted.
#[derive(Clone, Copy, Debug)]
enum By {
    /// A batch of any transport.
    Any,
    /// A batch of its transport.
    Push,
}

fn check<T: ListTransport>()
where
    for<'q> AnyBatch<'q>: From<Batch<'q, T>>,
{
    let requests = 8;
    for by in [By::Any, By::Push] {
        for start in 0..requests {
            let spec = Spec { requests, inline: 100, ..Spec::default() };
            let (mut one, mut other) = (Bed::<T>::new(spec), Bed::<T>::new(spec));
            one.advance_to(start);
            other.advance_to(start);
            let mut seen = [0; 2];
            for operation in operations() {
                with_each_data(|data| {
                    let to = UdAddress { vector: &ADDRESS, qp_num: TO_QPN, qkey: QKEY };
                    for (flags, address, xrc_srqn) in [
                        (SendFlags::SIGNALED, Some(to), Some(SRQN)),
                        (SendFlags::SIGNALED | SendFlags::SOLICITED, Some(to), Some(SRQN)),
                        (SendFlags::SIGNALED, None, None),
                    ] {
                        let wr = SendWr { wr_id: 77, flags, operation, data, address, xrc_srqn };
                        let first = one.queue.producer();
                        let listed = one.queue.post_send(&[wr]);
                        let mut batch = other.queue.wr_start();
                        let built = match by {
                            By::Any => {
                                let mut batch = AnyBatch::from(batch);
                                let name = format!("transport: {},", T::NAME);
                                assert!(format!("{batch:?}").contains(&name), "{batch:?}");
                                let length = batch.len();
                                batch.push(&wr);
                                assert_eq!((length, batch.len()), (0, listed.is_ok().into()));
                                batch.complete()
                            }
                            By::Push => {
                                batch.push(&wr);
                                batch.complete()
                            }
                        };
                        let what = format!("{by:?} {wr:?}");
                        assert_eq!(built.map_err(Into::into), listed, "{what}");
                        assert!(one.ring.all() == other.ring.all(), "{what}");
                        assert_eq!(one.record.all(), other.record.all(), "{what}");
                        assert!(one.uar.all() == other.uar.all(), "{what}");
                        seen[usize::from(listed.is_ok())] += 1;
                        if listed.is_ok() {
                            let record = one.retire(first.into());
                            assert_eq!(other.retire(first.into()), record, "{what}");
                            assert_eq!(record.map(|record| record.wr_id), Some(77));
                        }
                    }
                });
            }
            assert!(seen[0] > 20 && seen[1] > 20, "some are refused, some are not: {seen:?}");
        }
    }
}

#[test]
fn a_request_chosen_at_run_time_is_that_of_the_list_form() {
    // Without optimization, all these functions inlined into one need more variables than a usual
    // stack holds.
    let stack = std::thread::Builder::new().stack_size(64 << 20);
    let thread = stack.spawn(|| {
        check::<Rc>();
        check::<Uc>();
        check::<Ud>();
        check::<XrcSend>();
    });
    if let Err(panic) = thread.expect("a thread").join() {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn a_batch_of_any_transport_is_posted_whole_or_not_at_all() {
    let mut bed = Bed::<Rc>::new(Spec::default());
    let before = (bed.queue.producer(), bed.uar.all());
    let aborted: [fn(AnyBatch<'_>); 2] = [|batch| batch.abort(), |batch| drop(batch)];
    for abort in aborted {
        let mut batch = AnyBatch::from(bed.queue.wr_start());
        batch.push(&inline(1, &[b"no"]));
        assert!(!batch.is_empty());
        abort(batch);
        assert!(before == (bed.queue.producer(), bed.uar.all()));
    }
    let mut batch = AnyBatch::from(bed.queue.wr_start());
    batch.push(&inline(1, &[b"yes"]));
    let handle = batch.handle();
    batch.push(&inline(2, &[b"yes"]));
    batch.complete().unwrap();
    assert_eq!(bed.queue.producer(), before.0 + 2);
    // The handle is that of the second request.
    let again = bed.queue.wr_start().handle();
    assert_ne!(format!("{handle:?}"), format!("{again:?}"));
    assert_eq!(bed.retire(0).unwrap().wr_id, 1);
    let drained = bed.queue.drain_point(1).unwrap();
    // SAFETY: no device reads the ring.
    let cancelled = unsafe { bed.queue.cancel_handle(drained, handle) };
    assert_eq!(cancelled.requests()[0].wr_id, 2, "a handle names the request that is pushed next");
    assert_eq!(bed.retire(1).unwrap().wr_id, 2);
}

fn inline<'a>(wr_id: u64, pieces: &'a [&'a [u8]]) -> SendWr<'a> {
    let data = Data::Inline(pieces);
    SendWr { wr_id, flags: SendFlags::SIGNALED, data, ..SendWr::default() }
}
