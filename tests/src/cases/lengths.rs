//! A request that is too long is refused with its length and the limit, and nothing of it is
//! posted.

use crate::prelude::*;
use mlx5::{BatchError, Data, ListError};

pub(crate) const CASES: &[Case] = cases![
    an_empty_entry_is_dropped_and_does_not_mean_two_gibibytes,
    an_entry_of_two_gibibytes_is_refused_by_its_index,
    a_message_longer_than_the_port_takes_is_refused,
    entries_that_are_too_long_only_together_are_refused,
    the_longest_message_is_handed_to_the_device,
    more_entries_than_the_queue_was_made_for_are_refused,
    receive_entries_are_limited_one_by_one,
    a_read_cannot_have_inline_data_in_the_list_form,
    flags_that_mean_nothing_are_refused,
    a_datagram_without_an_address_is_refused,
    operations_that_a_transport_lacks_are_refused_in_the_list_form,
];

/// The longest message of the port.
fn max_message(bed: &Bed) -> Result<u32, Failed> {
    Ok(bed.context().query_port(bed.port())?.max_msg_sz)
}

/// Posts a send of `sges` in both forms; each is refused with `error`, and leaves no trace.
fn refused(bed: &Bed, end: &mut End<Rc>, sges: &[Sge], error: PostError) {
    let free = end.qp.free_send_blocks();
    for form in Form::ALL {
        let posted = end.post(form, Post::new(Op::Send, 1, Data::Sges(sges)));
        assert_eq!(posted, Err(error), "{form:?}");
    }
    assert_eq!(end.qp.free_send_blocks(), free, "nothing was posted");
    bed.nothing(&mut end.send_cq);
}

fn an_empty_entry_is_dropped_and_does_not_mean_two_gibibytes(bed: &Bed) -> Outcome {
    let Pair { mut a, mut b } = bed.pair::<Rc>(&PairOptions::default())?;
    let empty = Sge { addr: 0xdead_0000, length: 0, lkey: 0xbad };
    for form in Form::ALL {
        for sges in [&[][..], &[empty][..], &[empty, empty, empty][..]] {
            b.qp.post_recv(&[ReceiveWr { wr_id: 1, sges: &[empty, b.mr.sge(0..8)?] }])?;
            a.post(form, Post::new(Op::Send, 2, Data::Sges(sges)))?;
            bed.poll_good(&mut a.send_cq, 1);
            let received = bed.poll_good(b.recv_cq(), 1)[0];
            assert_eq!(received.as_completion().byte_len(), Some(0));
        }
    }
    Ok(())
}

fn an_entry_of_two_gibibytes_is_refused_by_its_index(bed: &Bed) -> Outcome {
    let Pair { mut a, b: _b } = bed.pair::<Rc>(&PairOptions::default())?;
    let good = a.mr.sge(0..16)?;
    for length in [1 << 31, (1 << 31) + 1, u32::MAX] {
        let long = Sge { length, ..good };
        refused(bed, &mut a, &[long], PostError::SgeTooLong { index: 0, length });
        refused(bed, &mut a, &[good, good, long], PostError::SgeTooLong { index: 2, length });
    }
    Ok(())
}

fn a_message_longer_than_the_port_takes_is_refused(bed: &Bed) -> Outcome {
    let max = max_message(bed)?;
    let Pair { mut a, b: _b } = bed.pair::<Rc>(&PairOptions::default())?;
    let good = a.mr.sge(0..16)?;
    for length in [max + 1, (1 << 31) - 1] {
        let error = PostError::MessageTooLong { length, max };
        refused(bed, &mut a, &[Sge { length, ..good }], error);
    }
    Ok(())
}

fn entries_that_are_too_long_only_together_are_refused(bed: &Bed) -> Outcome {
    let max = max_message(bed)?;
    let Pair { mut a, b: _b } = bed.pair::<Rc>(&PairOptions::default())?;
    let half = Sge { length: max / 2, ..a.mr.sge(0..16)? };
    let one = Sge { length: 1, ..half };
    let error = PostError::MessageTooLong { length: max + 1, max };
    refused(bed, &mut a, &[half, half, one], error);
    let longest = Sge { length: (1 << 31) - 1, ..half };
    let error = PostError::MessageTooLong { length: u32::MAX, max };
    refused(bed, &mut a, &[longest; 4], error);
    Ok(())
}

fn the_longest_message_is_handed_to_the_device(bed: &Bed) -> Outcome {
    let max = max_message(bed)?;
    for form in Form::ALL {
        let Pair { mut a, b } = bed.pair::<Rc>(&PairOptions::default())?;
        // No memory exists at these addresses; the device finds that out, not the driver.
        let long = Sge { length: max, ..a.mr.sge(0..16)? };
        let sges = [long];
        let write = Post::new(Op::Write, 5, Data::Sges(&sges)).remote(b.mr.remote(0..)?);
        a.post(form, write)?;
        let failed = bed.poll_one(&mut a.send_cq);
        assert_eq!(failed.as_completion().wr_id(), 5);
        assert!(!failed.as_completion().is_success());
    }
    Ok(())
}

fn more_entries_than_the_queue_was_made_for_are_refused(bed: &Bed) -> Outcome {
    let Pair { mut a, mut b } = bed.pair::<Rc>(&PairOptions::default())?;
    let max = a.qp.caps().max_send_sge;
    let mut sges = vec![a.mr.sge(0..1)?; max as usize + 1];
    refused(bed, &mut a, &sges, PostError::TooManySges { given: max + 1, max });
    // Empty entries count, too: the limit is checked against the list as the caller gives it.
    sges[0].length = 0;
    refused(bed, &mut a, &sges, PostError::TooManySges { given: max + 1, max });

    let max = b.qp.caps().max_recv_sge;
    let sges = vec![b.mr.sge(0..1)?; max as usize + 1];
    let free = b.qp.free_receives();
    let posted = b.qp.post_recv(&[ReceiveWr { wr_id: 1, sges: &sges }]);
    let error = PostError::TooManySges { given: max + 1, max };
    assert_eq!(posted, Err(ListError::new(0, error)));
    assert_eq!(b.qp.free_receives(), free);
    Ok(())
}

fn receive_entries_are_limited_one_by_one(bed: &Bed) -> Outcome {
    let Pair { a: _a, mut b } = bed.pair::<Rc>(&PairOptions::default())?;
    let good = b.mr.sge(0..16)?;
    let longest = Sge { length: (1 << 31) - 1, ..good };
    b.qp.post_recv(&[ReceiveWr { wr_id: 1, sges: &[longest] }])?;
    b.qp.post_recv(&[ReceiveWr { wr_id: 2, sges: &[longest, longest, good] }])?;
    let length = 1 << 31;
    let long = Sge { length, ..good };
    let free = b.qp.free_receives();
    let list = [
        ReceiveWr { wr_id: 3, sges: &[good] },
        ReceiveWr { wr_id: 4, sges: &[good, long] },
        ReceiveWr { wr_id: 5, sges: &[good] },
    ];
    let error = PostError::SgeTooLong { index: 1, length };
    assert_eq!(b.qp.post_recv(&list), Err(ListError::new(1, error)));
    assert_eq!(b.qp.free_receives(), free - 1, "the good prefix is posted");
    Ok(())
}

fn a_read_cannot_have_inline_data_in_the_list_form(bed: &Bed) -> Outcome {
    let Pair { mut a, b } = bed.pair::<Rc>(&PairOptions::default())?;
    let read = Post::new(Op::Read, 1, Data::Inline(&[b"x"])).remote(b.mr.remote(0..)?);
    assert_eq!(a.post(Form::List, read), Err(PostError::InlineNotAllowed));
    bed.nothing(&mut a.send_cq);
    Ok(())
}

fn flags_that_mean_nothing_are_refused(bed: &Bed) -> Outcome {
    let data = Data::Inline(&[b"x"]);
    let Pair { mut a, b } = bed.pair::<Rc>(&PairOptions::default())?;
    let solicited = SendFlags::SIGNALED | SendFlags::SOLICITED;
    for form in Form::ALL {
        let write = Post::new(Op::Write, 1, data).remote(b.mr.remote(0..)?).flags(solicited);
        let refused = SendFlags::SOLICITED;
        assert_eq!(a.post(form, write), Err(PostError::Flags { refused }));
    }
    let Pair { mut a, b: _b } = bed.pair::<Ud>(&PairOptions::default())?;
    for form in Form::ALL {
        let send = Post::new(Op::Send, 1, data).flags(SendFlags::SIGNALED | SendFlags::FENCE);
        assert_eq!(a.post(form, send), Err(PostError::Flags { refused: SendFlags::FENCE }));
    }
    bed.nothing(&mut a.send_cq);
    Ok(())
}

fn a_datagram_without_an_address_is_refused(bed: &Bed) -> Outcome {
    let Pair { mut a, b: _b } = bed.pair::<Ud>(&PairOptions::default())?;
    let wr = SendWr {
        wr_id: 1,
        flags: SendFlags::SIGNALED,
        operation: mlx5::Operation::Send,
        data: Data::Inline(&[b"x"]),
        ..SendWr::default()
    };
    let error = PostError::AddressMissing;
    assert_eq!(a.qp.post_send(&[wr]), Err(ListError::new(0, error)));
    bed.nothing(&mut a.send_cq);
    Ok(())
}

fn operations_that_a_transport_lacks_are_refused_in_the_list_form(bed: &Bed) -> Outcome {
    let Pair { mut a, b } = bed.pair::<Uc>(&PairOptions::default())?;
    let sges = [a.mr.sge(0..8)?];
    let read = Post::new(Op::Read, 1, Data::Sges(&sges)).remote(b.mr.remote(0..)?);
    assert_eq!(a.post(Form::List, read), Err(PostError::Unsupported));
    let Pair { mut a, b } = bed.pair::<Ud>(&PairOptions::default())?;
    for op in [Op::Write, Op::WriteImm, Op::Read] {
        let post = Post::new(op, 1, Data::Sges(&sges)).remote(b.mr.remote(0..)?);
        assert_eq!(a.post(Form::List, post), Err(PostError::Unsupported));
    }
    bed.nothing(&mut a.send_cq);
    // The builder works as before after the refusals.
    let batch = a.qp.wr_start();
    let done: Result<(), BatchError> = batch.complete();
    Ok(done?)
}
