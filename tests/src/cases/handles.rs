//! The answers of handles, and their form when they are printed.

use super::cancel::rig::Rig;
use super::tag_rig::{RigOptions, TagRig};
use crate::prelude::*;
use mlx5::{AnyQueuePair, CancelMode, Data, ErrorKind};
use std::error::Error;

pub(crate) const CASES: &[Case] = cases![
    a_queue_pair_of_any_transport_posts_as_its_own_does,
    the_send_ring_is_what_the_device_reads,
    a_queue_pair_that_was_reset_in_halves_starts_over,
    a_key_has_one_entry_to_as_many_as_a_request_can_give_it: DEVX,
    a_key_is_printed_with_its_number_and_length: DEVX,
    a_shared_queue_takes_a_limit_of_all_that_it_holds,
    tm_queues_have_numbers_of_their_own: TAG_MATCHING,
    unknown_request_is_the_source_of_the_cancel_error: STEP,
];

fn a_queue_pair_of_any_transport_posts_as_its_own_does(bed: &Bed) -> Outcome {
    let Pair { a, b } = bed.pair::<Rc>(&PairOptions::default())?;
    let (mut qp, mut cq) = (AnyQueuePair::from(a.qp), a.send_cq);
    qp.post_send(&[SendWr {
        wr_id: 7,
        flags: SendFlags::SIGNALED,
        operation: mlx5::Operation::RdmaWrite(b.mr.remote(0..)?),
        data: Data::Inline(&[&pattern(7, 40)]),
        ..SendWr::default()
    }])?;
    assert_eq!(wr_ids(&bed.poll_good(&mut cq, 1)), [7]);
    verify(&b.mr, 0, 7, 40);
    Ok(())
}

fn the_send_ring_is_what_the_device_reads(bed: &Bed) -> Outcome {
    for (recv_wr, recv_sge) in [(1, 1), (64, 4), (100, 3)] {
        let options = PairOptions::default().recv_wr(recv_wr).recv_sge(recv_sge);
        let Pair { mut a, b } = bed.pair::<Rc>(&options)?;
        assert_eq!(a.qp.send_ring().len(), a.qp.caps().send_blocks as usize * 64);
        let mut batch = a.qp.wr_start();
        batch.wr(1, SendFlags::SIGNALED).rdma_write(b.mr.remote(0..)?).inline_data(b"to be found");
        batch.complete()?;
        let ring = a.qp.send_ring();
        // The control segment: opcode and block counter; number of the queue pair and size.
        assert_eq!(ring[..4], [0, 0, 0, 0x08]);
        assert_eq!(ring[4..7], a.qp.qp_num().to_be_bytes()[1..]);
        assert_eq!(&ring[36..47], b"to be found", "behind three segments and the inline header");
        assert!(ring[64..].iter().all(|byte| *byte == 0), "nothing else was ever posted");
        bed.poll_good(&mut a.send_cq, 1);
    }
    Ok(())
}

fn a_queue_pair_that_was_reset_in_halves_starts_over(bed: &Bed) -> Outcome {
    let mut end = bed.end::<Rc>(&PairOptions::default())?;
    let init = QpAttributes::new()
        .qp_state(QueueState::Init)
        .pkey_index(0)
        .port_num(end.port.port_num)
        .qp_access_flags(mlx5::AccessFlags::empty());
    end.qp.modify(&init)?;
    let capacity = end.qp.free_receives();
    end.recv(1, 0..8);
    end.recv(2, 8..16);
    assert_eq!(end.qp.free_receives(), capacity - 2);
    let number = end.qp.qp_num();
    let (send, receive, mut control) = end.qp.split();
    assert_eq!(receive.as_ref().map(|half| half.qp_num()), Some(number));
    control.modify(&QpAttributes::new().qp_state(QueueState::Reset))?;
    let mut whole = QueuePair::join(send, receive, control);
    whole.modify(&init)?;
    assert_eq!(whole.free_receives(), capacity, "nothing of the former life is left");
    Ok(())
}

fn a_key_has_one_entry_to_as_many_as_a_request_can_give_it(bed: &Bed) -> Outcome {
    let pd = bed.context().alloc_pd()?;
    let most = mlx5::mkey::MAX_MKEY_ENTRIES as u32;
    for entries in [0, most + 1, u32::MAX] {
        let error = pd.create_mkey(entries).build().expect_err("as many as cannot be");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{entries}");
        assert!(error.to_string().contains(&format!("1 to {most}")), "{error}");
    }
    for entries in [1, most] {
        pd.create_mkey(entries).build()?;
    }
    Ok(())
}

fn a_key_is_printed_with_its_number_and_length(bed: &Bed) -> Outcome {
    let key = bed.context().alloc_pd()?.create_mkey(3).build()?;
    let text = format!("{key:?}");
    assert!(text.contains(&format!("lkey: {:#x}", key.lkey())), "{text}");
    assert!(text.contains(&format!("max_entries: {}", key.max_entries())), "{text}");
    assert!(text.contains("length: "), "{text}");
    Ok(())
}

fn a_shared_queue_takes_a_limit_of_all_that_it_holds(bed: &Bed) -> Outcome {
    let pd = bed.context().alloc_pd()?;
    let holds = pd.create_srq(7).build()?.capacity();
    let srq = pd.create_srq(7).limit(holds).build()?;
    assert_eq!(srq.capacity(), holds);
    let error = pd.create_srq(7).limit(holds + 1).build().err().ok_or("more than it holds")?;
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    Ok(())
}

fn tm_queues_have_numbers_of_their_own(bed: &Bed) -> Outcome {
    let rigs = [TagRig::new(bed, RigOptions::default())?, TagRig::new(bed, RigOptions::default())?];
    let [one, other] = rigs.each_ref().map(|rig| rig.queue.srqn());
    assert_ne!(one, other);
    Ok(())
}

fn unknown_request_is_the_source_of_the_cancel_error(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    rig.send_all(0..2)?;
    let drained = rig.drain(0)?;
    let qp = &mut rig.pair.a.qp;
    let error = qp.cancel_set(&drained, &[0, 77], CancelMode::AllOrNothing).expect_err("77 is none");
    let source = error.source().ok_or("it has a source")?;
    assert_eq!(source.to_string(), error.to_string());
    assert!(source.to_string().contains("77"), "{source}");
    rig.resume()?;
    assert_eq!(rig.executed(), [0, 1]);
    Ok(())
}
