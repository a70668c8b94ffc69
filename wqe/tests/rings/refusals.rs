//! Every reason to refuse a request.

use crate::bed::{Bed, Spec};
use crate::by_hand::{ADDRESS, Given, IMM, Kind, Op, QKEY, REMOTE, TO_QPN, least, of_sges, sges};
use mlx5_wqe::{
    Data, Gate, Interleaved, MkeyLayout, Operation, PostError, QueueState, Rc, SendFlags, SendWr,
    Sge, Uc, Ud, UdAddress, XrcSend,
};

const SIGNALED: SendFlags = SendFlags::SIGNALED;

fn sge(length: u32) -> Sge {
    Sge { addr: 0x1000, length, lkey: 1 }
}

/// Posts a request in the typed form.
fn post<T: Kind>(
    bed: &mut Bed<T>,
    flags: SendFlags,
    op: Op,
    given: Given<'_>,
) -> Result<(), PostError> {
    let (record, uar) = (bed.record.all(), bed.uar.all());
    let mut batch = bed.queue.wr_start();
    T::build(&mut batch, 1, flags, op, given);
    let result = batch.complete();
    if result.is_err() {
        assert_eq!(bed.record.all(), record);
        assert!(bed.uar.all() == uar);
    } else {
        let last = bed.queue.producer().wrapping_sub(1);
        // The first block of the request is not known here, so this tries the last 16.
        (0..16).find_map(|back| bed.records.retire(last.wrapping_sub(back))).unwrap();
    }
    result.map_err(|error| {
        assert_eq!(error.index(), 0);
        error.error()
    })
}

#[test]
fn an_entry_holds_at_most_two_gibibytes_less_one() {
    const MAX: u32 = (1 << 31) - 1;
    for max_message in [1 << 31, u32::MAX] {
        let mut bed = Bed::<Rc>::new(Spec { max_message, ..Spec::default() });
        let too_long = |index, length| Err(PostError::SgeTooLong { index, length });
        for op in [Op::Send, Op::Write, Op::Read] {
            assert_eq!(post(&mut bed, SIGNALED, op, Given::Sge(sge(MAX))), Ok(()));
            for length in [MAX + 1, MAX + 2, u32::MAX] {
                let result = post(&mut bed, SIGNALED, op, Given::Sge(sge(length)));
                assert_eq!(result, too_long(0, length));
                let list = [sge(1), sge(0), sge(length)];
                let result = post(&mut bed, SIGNALED, op, Given::List(&list));
                assert_eq!(result, too_long(2, length));
            }
        }
    }
}

#[test]
fn a_message_is_at_most_as_long_as_the_ports_largest() {
    let max = 1 << 30;
    let too_long = |length| Err(PostError::MessageTooLong { length, max });
    let mut bed = Bed::<Rc>::new(Spec { max_message: max, ..Spec::default() });
    assert_eq!(post(&mut bed, SIGNALED, Op::Send, Given::Sge(sge(max))), Ok(()));
    let result = post(&mut bed, SIGNALED, Op::Send, Given::Sge(sge(max + 1)));
    assert_eq!(result, too_long((1 << 30) + 1));
    let halves = [sge(max / 2), sge(0), sge(max / 2)];
    assert_eq!(post(&mut bed, SIGNALED, Op::Read, Given::List(&halves)), Ok(()));
    let more = [sge(max / 2), sge(max / 2), sge(1)];
    assert_eq!(post(&mut bed, SIGNALED, Op::Read, Given::List(&more)), too_long((1 << 30) + 1));
    // The sum of the lengths exceeds 32 bits.
    let most = [sge((1 << 31) - 1); 3];
    let result = post(&mut bed, SIGNALED, Op::Write, Given::List(&most));
    assert_eq!(result, too_long(u32::MAX));
    // An entry that is too long for any message is refused as an entry.
    let result = post(&mut bed, SIGNALED, Op::Send, Given::Sge(sge(1 << 31)));
    assert_eq!(result, Err(PostError::SgeTooLong { index: 0, length: 1 << 31 }));
}

#[test]
fn a_list_has_at_most_the_entries_that_the_queue_was_made_for() {
    fn check<T: Kind>() {
        let mut bed = Bed::<T>::new(Spec::default());
        let max = bed.layout.max_sge as usize;
        let data = sges(max + 1);
        let empty = vec![sge(0); max + 1];
        let refused = Err(PostError::TooManySges { given: max as u32 + 1, max: max as u32 });
        for &op in T::OPS {
            assert_eq!(post(&mut bed, SIGNALED, op, Given::List(&data[..max])), Ok(()));
            assert_eq!(post(&mut bed, SIGNALED, op, Given::List(&data)), refused);
            assert_eq!(post(&mut bed, SIGNALED, op, Given::List(&empty)), refused);
        }
    }
    check::<Rc>();
    check::<XrcSend>();
    check::<Uc>();
    check::<Ud>();
}

#[test]
fn a_queue_made_for_no_entries_takes_none() {
    // As if control segment and inline data left no room for an entry in the longest request.
    let spec = Spec { sges: 0, ..Spec::default() };
    let layout = mlx5_wqe::SendLayout { max_sge: 0, ..Bed::<Rc>::new(spec).layout };
    let mut bed = Bed::<Rc>::with_layout(spec, layout);
    let refused = Err(PostError::TooManySges { given: 1, max: 0 });
    assert_eq!(post(&mut bed, SIGNALED, Op::Send, Given::Sge(sge(1))), refused);
    assert_eq!(post(&mut bed, SIGNALED, Op::Send, Given::Sge(sge(0))), refused);
    assert_eq!(post(&mut bed, SIGNALED, Op::Send, Given::List(&[])), Ok(()));
}

#[test]
fn inline_data_is_at_most_as_long_as_the_queue_was_made_for() {
    fn check<T: Kind>() {
        let mut bed = Bed::<T>::new(Spec { inline: 100, ..Spec::default() });
        let max = bed.layout.max_inline as usize;
        let bytes = vec![7; max + 1];
        let refused = Err(PostError::InlineTooLong { length: max as u32 + 1, max: max as u32 });
        let pieces: &[&[u8]] = &[&bytes[..max], b"", b"x"];
        for &op in T::OPS.iter().filter(|&&op| op != Op::Read) {
            assert_eq!(post(&mut bed, SIGNALED, op, Given::Inline(&bytes[..max])), Ok(()));
            assert_eq!(post(&mut bed, SIGNALED, op, Given::Inline(&bytes)), refused);
            assert_eq!(post(&mut bed, SIGNALED, op, Given::Pieces(pieces)), refused);
        }
    }
    check::<Rc>();
    check::<XrcSend>();
    check::<Uc>();
    check::<Ud>();
}

#[test]
fn a_flag_that_operation_or_transport_does_not_have_is_refused() {
    fn check<T: Kind>() {
        let mut bed = Bed::<T>::new(Spec::default());
        for &op in T::OPS {
            let allowed = <T as Kind>::FLAGS.intersection(op.flags());
            for flag in [SendFlags::SIGNALED, SendFlags::SOLICITED, SendFlags::FENCE] {
                let flags = flag.union(SIGNALED);
                let result = post(&mut bed, flags, op, Given::Sge(sge(1)));
                if allowed.contains(flag) {
                    assert_eq!(result, Ok(()), "{op:?} {flag:?}");
                } else {
                    let refused = Err(PostError::Flags { refused: flag });
                    assert_eq!(result, refused, "{op:?} {flag:?}");
                }
            }
        }
    }
    check::<Rc>();
    check::<XrcSend>();
    check::<Uc>();
    check::<Ud>();
}

fn wr(operation: Operation) -> SendWr<'static> {
    SendWr { operation, ..least(1, SIGNALED) }
}

#[test]
fn the_list_form_refuses_what_the_typed_form_cannot_say() {
    let read = Operation::RdmaRead(REMOTE);
    let inline: &[&[u8]] = &[b"x"];

    let mut rc = Bed::<Rc>::new(Spec::default());
    let wr_inline = SendWr { data: Data::Inline(inline), ..wr(read) };
    assert_eq!(rc.queue.post_send(&[wr_inline]).unwrap_err().error(), PostError::InlineNotAllowed);
    let wr_inline = SendWr { data: Data::Inline(&[]), ..wr(read) };
    assert_eq!(rc.queue.post_send(&[wr_inline]).unwrap_err().error(), PostError::InlineNotAllowed);

    let mut uc = Bed::<Uc>::new(Spec::default());
    assert_eq!(uc.queue.post_send(&[wr(read)]).unwrap_err().error(), PostError::Unsupported);

    let mut ud = Bed::<Ud>::new(Spec::default());
    for operation in [read, Operation::RdmaWrite(REMOTE), Operation::RdmaWriteImm(REMOTE, IMM)] {
        assert_eq!(
            ud.queue.post_send(&[wr(operation)]).unwrap_err().error(),
            PostError::Unsupported
        );
    }
    let address = Some(UdAddress { vector: &ADDRESS, qp_num: TO_QPN, qkey: QKEY });
    for (address, result) in [(None, Some(PostError::AddressMissing)), (address, None)] {
        for operation in [Operation::Send, Operation::SendImm(IMM)] {
            let posted = ud.queue.post_send(&[SendWr { address, ..wr(operation) }]);
            assert_eq!(posted.err().map(|error| error.error()), result);
        }
    }
}

#[test]
fn the_gate_says_in_which_states_requests_are_taken() {
    use QueueState::*;
    let mut bed = Bed::<Rc>::new(Spec::default());
    for state in QueueState::ALL {
        bed.gate.gate.set_state(state);
        assert_eq!(bed.gate.gate.state(), Some(state));
        let result = post(&mut bed, SIGNALED, Op::Send, Given::Sge(sge(1)));
        // In the states of error the device flushes what is posted, in the drained one it waits.
        match state {
            ReadyToSend | SendQueueDrained | SendQueueError | Error => assert_eq!(result, Ok(())),
            Reset | Init | ReadyToReceive => assert_eq!(result, Err(PostError::State(state))),
        }
    }
}

#[test]
fn a_new_gate_is_shut() {
    let word = crate::bed::Memory::new(4);
    // SAFETY: `word` has four aligned bytes and outlives the gate.
    let gate = unsafe { Gate::new(word.at(0).cast()) };
    assert_eq!(gate.state(), Some(QueueState::Reset));
}

#[test]
fn nothing_is_posted_to_a_device_that_is_gone() {
    let mut bed = Bed::<Rc>::new(Spec::default());
    bed.gate.gate.set_gone();
    for state in QueueState::ALL {
        bed.gate.gate.set_state(state);
        assert_eq!(bed.gate.gate.state(), None);
        let result = post(&mut bed, SIGNALED, Op::Send, Given::Sge(sge(1)));
        assert_eq!(result, Err(PostError::DeviceGone));
    }
}

/// A fork zeroes the gate's memory in the child. The gate stays shut there, whatever state is set.
#[test]
fn nothing_is_posted_in_a_forked_child() {
    let mut bed = Bed::<Rc>::new(Spec::default());
    bed.gate.word.write(0, &[0; 4]);
    let steps: [fn(Gate); 3] =
        [|_| (), |gate| gate.set_state(QueueState::ReadyToSend), |gate| gate.set_gone()];
    for step in steps {
        step(bed.gate.gate);
        let result = post(&mut bed, SIGNALED, Op::Send, Given::Sge(sge(1)));
        assert_eq!(result, Err(PostError::Forked));
        assert_eq!(
            bed.queue.post_send(&[wr(Operation::Send)]).unwrap_err().error(),
            PostError::Forked
        );
    }
    assert_eq!(bed.gate.word.read(0, 4), [0; 4]);
}

#[test]
fn the_first_refusal_of_a_batch_is_the_one_that_is_told() {
    let mut bed = Bed::<Rc>::new(Spec::default());
    let mut batch = bed.queue.wr_start();
    batch.wr(1, SIGNALED).send().sge(sge(1));
    batch.wr(2, SIGNALED).send().sge_list(&sges(9));
    batch.wr(3, SIGNALED).send().sge(sge(u32::MAX));
    batch.wr(4, SIGNALED | SendFlags::SOLICITED).rdma_write(REMOTE).sge(sge(1));
    assert_eq!(batch.len(), 1);
    let error = batch.complete().unwrap_err();
    let max = bed.layout.max_sge;
    assert_eq!((error.index(), error.error()), (1, PostError::TooManySges { given: 9, max }));
    // The refusal does not affect the next batch.
    assert_eq!(post(&mut bed, SIGNALED, Op::Send, Given::Sge(sge(1))), Ok(()));
}

#[test]
fn refusals_say_what_was_wrong() {
    let mut bed = Bed::<Rc>::new(Spec::default());
    let error = bed.queue.post_send(&[least(1, SIGNALED), of_sges(2, SIGNALED, &sges(9))]);
    assert_eq!(
        error.unwrap_err().to_string(),
        "request 1 and those after it not posted: 9 SGEs, but the queue supports 6"
            .replace('6', &bed.layout.max_sge.to_string())
    );
    let mut batch = bed.queue.wr_start();
    batch.wr(1, SIGNALED).send().sge(sge(1 << 31));
    assert_eq!(
        batch.complete().unwrap_err().to_string(),
        "batch refused, nothing posted: request 0: SGE 0 has 2147483648 bytes; the maximum is 2147483647"
    );
}

/// A request refuses too many entries, but the driver computes their length before that.
#[test]
fn a_layout_that_is_longer_than_can_be_counted_has_a_length() {
    let entry = Interleaved { addr: 0, bytes: u16::MAX.into(), skip: 0, lkey: 1 };
    let entries = vec![entry; (1 << 16) + 3];
    let layout = MkeyLayout::Interleaved { repeat: u32::MAX, entries: &entries };
    assert_eq!(layout.length(), Ok(u64::MAX));
}
