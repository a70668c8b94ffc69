//! The list of tags of a tag-matching queue: its creation, and operations on it.

use super::tag_rig::{RigOptions, TagRig, eager, fields};
use crate::prelude::*;
use mlx5::{ErrorKind, OpsFlags, OpsWr, TagAdd, TagHandle, TagOperation};

pub(crate) const CASES: &[Case] = cases![
    tm_capabilities_are_reported: TAG_MATCHING,
    tm_device_without_tag_matching_is_recognized: SIMULATOR,
    tm_sizes_beyond_the_device_are_refused_with_the_limit: TAG_MATCHING,
    tm_objects_of_other_contexts_and_other_completion_queues_are_refused: TAG_MATCHING,
    tm_queue_reports_its_sizes_and_its_limit: TAG_MATCHING,
    tm_operations_complete_in_order_with_their_identifiers: TAG_MATCHING,
    tm_operations_without_the_flag_complete_unseen: TAG_MATCHING,
    tm_a_flood_of_unsignaled_operations_does_not_wedge_the_command_queue: TAG_MATCHING,
    tm_outstanding_operations_are_as_many_as_the_queue_has: STEP | TAG_MATCHING,
    tm_more_scatter_entries_than_the_device_takes_are_refused: TAG_MATCHING,
    tm_an_entry_that_is_too_long_is_refused: TAG_MATCHING,
    tm_a_list_is_posted_up_to_its_first_bad_operation: STEP | TAG_MATCHING,
    tm_the_doorbell_covers_the_good_operations_and_no_more: STEP | TAG_MATCHING,
    tm_a_full_list_refuses_the_next_tag: TAG_MATCHING,
    tm_a_handle_means_nothing_once_its_tag_is_gone: TAG_MATCHING,
    tm_a_handle_that_was_made_up_or_is_of_another_queue_is_refused: TAG_MATCHING,
    tm_places_are_used_again_under_another_handle: TAG_MATCHING,
    tm_a_removal_that_comes_too_late_says_so: STEP | TAG_MATCHING,
    tm_a_removal_that_comes_in_time_makes_the_message_unexpected: STEP | TAG_MATCHING,
    tm_an_unsignaled_removal_that_comes_too_late_frees_the_tag_once: STEP | TAG_MATCHING,
    tm_operations_of_a_failed_command_queue_fail_with_their_identifiers: SIMULATOR | TAG_MATCHING,
    tm_entries_that_no_device_writes_latch_an_error: SIMULATOR | TAG_MATCHING,
    tm_the_command_queue_pair_is_connected_on_every_kind_of_port: SIMULATOR | TAG_MATCHING,
    tm_a_queue_in_use_is_given_back: TAG_MATCHING,
    tm_a_queue_that_fails_to_be_made_leaves_nothing: SIMULATOR | TAG_MATCHING,
    tm_a_queue_of_a_device_that_is_gone_says_so: SIMULATOR | TAG_MATCHING,
];

const NO_SGE: &[Sge] = &[];

/// A tag without a buffer.
fn bare(tag: u64) -> TagAdd<'static> {
    TagAdd { recv_wr_id: tag, sges: NO_SGE, tag, mask: u64::MAX }
}

fn failure(completion: &OwnedCompletion) -> Option<CompletionErrorKind> {
    completion.as_completion().status().err().map(|error| error.kind)
}

fn tm_capabilities_are_reported(bed: &Bed) -> Outcome {
    let caps = bed.context().query_device().tag_matching;
    assert!(caps.max_num_tags >= 1 && caps.max_ops >= 1 && caps.max_sge >= 1, "{caps:?}");
    // Both headers of a rendezvous request.
    assert!(!caps.rc || caps.max_rndv_hdr_size >= 32, "{caps:?}");
    if bed.is_simulated() {
        assert_eq!((caps.max_num_tags, caps.max_sge, caps.max_rndv_hdr_size), (127, 1, 64));
        assert!(caps.rc);
    }
    Ok(())
}

fn tm_device_without_tag_matching_is_recognized(bed: &Bed) -> Outcome {
    let bed = bed.configured(|mut config| {
        config.limits.log_tags = 0;
        config
    })?;
    let context = bed.context();
    assert_eq!(context.query_device().tag_matching.max_num_tags, 0);
    let (pd, cq) = (context.alloc_pd()?, context.create_cq(16).build()?);
    let error = pd.create_tm_srq(&cq, 8).build().err().ok_or("refused")?;
    assert_eq!(error.kind(), ErrorKind::NotSupported);
    assert!(error.to_string().contains("does not support tag matching"), "{error}");
    Ok(())
}

fn tm_sizes_beyond_the_device_are_refused_with_the_limit(bed: &Bed) -> Outcome {
    let context = bed.context();
    let caps = context.query_device().tag_matching;
    let (pd, cq) = (context.alloc_pd()?, context.create_cq(16).build()?);
    let refused = [
        (pd.create_tm_srq(&cq, 8).max_num_tags(0), caps.max_num_tags),
        (pd.create_tm_srq(&cq, 8).max_num_tags(caps.max_num_tags + 1), caps.max_num_tags),
        (pd.create_tm_srq(&cq, 8).max_num_tags(u32::MAX), caps.max_num_tags),
        (pd.create_tm_srq(&cq, 8).max_ops(0), caps.max_ops),
        (pd.create_tm_srq(&cq, 8).max_ops(caps.max_ops + 1), caps.max_ops),
        (pd.create_tm_srq(&cq, 8).max_ops(u32::MAX), caps.max_ops),
        (pd.create_tm_srq(&cq, 0), context.query_device().queues.max_srq_recv_wr),
    ];
    for (builder, limit) in refused {
        let error = builder.build().err().ok_or("refused")?;
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(&limit.to_string()), "{error}");
    }
    pd.create_tm_srq(&cq, 8).max_num_tags(caps.max_num_tags).max_ops(1).build()?.destroy()?;
    Ok(())
}

fn tm_objects_of_other_contexts_and_other_completion_queues_are_refused(bed: &Bed) -> Outcome {
    let (here, there) = (bed.context(), bed.context());
    let (pd, cq) = (here.alloc_pd()?, here.create_cq(16).build()?);
    let other = there.create_cq(16).build()?;
    let error = pd.create_tm_srq(&other, 8).build().err().ok_or("another context's")?;
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let queue = pd.create_tm_srq(&cq, 8).build()?;
    // Messages complete on the queue's completion queue, so the queue pair has to name it.
    let second = here.create_cq(16).build()?;
    let error = pd.create_qp::<Rc>(&cq, &second).tm_srq(&queue).build().err();
    assert!(error.ok_or("refused")?.to_string().contains("its completion queue"));
    let foreign = there.alloc_pd()?;
    let error = foreign.create_qp::<Rc>(&other, &other).tm_srq(&queue).build().err();
    assert!(error.ok_or("refused")?.to_string().contains("different contexts"));
    let plain = pd.create_srq(8).build()?;
    let error = pd.create_qp::<Rc>(&cq, &cq).srq(&plain).tm_srq(&queue).build().err();
    assert!(error.ok_or("refused")?.to_string().contains("not both"));
    let mut qp = pd.create_qp::<Rc>(&second, &cq).tm_srq(&queue).build()?;
    assert_eq!((qp.caps().max_send_wr, qp.caps().max_recv_wr, qp.has_srq()), (0, 0, true));
    let mut batch = qp.wr_start();
    batch.wr(1, SendFlags::empty()).send().sge_list(&[]);
    let refused = batch.complete().expect_err("no queue");
    assert_eq!((refused.index(), refused.error()), (0, PostError::NoSendQueue));
    let kept = pd.create_qp::<Rc>(&second, &cq).tm_srq(&queue).keep_send_queue().build()?;
    assert!(kept.caps().max_send_wr >= 64);
    Ok(())
}

fn tm_queue_reports_its_sizes_and_its_limit(bed: &Bed) -> Outcome {
    let mut rig = TagRig::new(bed, RigOptions { tags: 9, ops: 5, ..RigOptions::default() })?;
    rig.post_requests(0..8);
    let queue = &mut rig.queue;
    assert_eq!((queue.max_num_tags(), queue.max_tag_sge()), (9, 1));
    assert!(queue.max_ops() >= 5 && queue.capacity() >= 32);
    assert_eq!(queue.query()?.max_wr, queue.capacity());
    queue.set_limit(3)?;
    assert_eq!(queue.query()?.limit, 3);
    assert!(queue.set_limit(queue.capacity() + 1).is_err());
    assert_ne!(queue.command_qp_num(), 0);
    Ok(())
}

fn tm_operations_complete_in_order_with_their_identifiers(bed: &Bed) -> Outcome {
    let mut rig = TagRig::new(bed, RigOptions::default())?;
    let first = rig.post(OpsWr::add(u64::MAX, bare(1)).signaled()).handle.ok_or("a handle")?;
    rig.post(OpsWr::sync(2, 0).signaled());
    rig.post(OpsWr::del(3, first).signaled());
    let expected = [
        (CompletionOpcode::TmAdd, u64::MAX, false, false, false),
        (CompletionOpcode::TmSync, 2, false, false, false),
        (CompletionOpcode::TmDel, 3, false, false, false),
    ];
    for (completion, expected) in bed.poll_good(&mut rig.cq, 3).iter().zip(expected) {
        assert_eq!(fields(completion), expected);
        let wc = completion.as_completion();
        assert_eq!((wc.tm_info(), wc.byte_len(), wc.src_qp()), (None, None, None));
        assert_eq!(wc.qp_num(), rig.queue.command_qp_num());
    }
    bed.nothing(&mut rig.cq);
    Ok(())
}

fn tm_operations_without_the_flag_complete_unseen(bed: &Bed) -> Outcome {
    let mut rig = TagRig::new(bed, RigOptions::default())?;
    let tag = rig.post(OpsWr::add(1, bare(1))).handle.ok_or("a handle")?;
    rig.post(OpsWr::del(2, tag));
    rig.post(OpsWr::sync(3, 0));
    let last = rig.run(bed, OpsWr::sync(4, 0));
    assert_eq!(last.as_completion().wr_id(), 4, "the removal's own completion is not reported");
    bed.nothing(&mut rig.cq);
    Ok(())
}

fn tm_a_flood_of_unsignaled_operations_does_not_wedge_the_command_queue(bed: &Bed) -> Outcome {
    for ops in [1, 2, 3, 8] {
        let mut rig = TagRig::new(bed, RigOptions { ops, ..RigOptions::default() })?;
        for turn in 0..200 {
            bed.until("room for an operation", || {
                rig.cq.poll(16, |wc| panic!("{wc:?} is unexpected")).expect("polled");
                match rig.queue.sync(turn) {
                    Ok(()) => true,
                    Err(PostError::QueueFull { .. }) => false,
                    Err(error) => panic!("{error}"),
                }
            });
        }
    }
    Ok(())
}

fn tm_outstanding_operations_are_as_many_as_the_queue_has(bed: &Bed) -> Outcome {
    let mut rig = TagRig::new(bed, RigOptions { ops: 4, ..RigOptions::default() })?;
    let max = rig.queue.max_ops();
    for n in 0..max {
        rig.post(OpsWr::sync(u64::from(n), 0).signaled());
    }
    assert_eq!(rig.queue.sync(0), Err(PostError::QueueFull { free: 0, needed: 1 }));
    bed.settle();
    assert_eq!(rig.queue.sync(0), Err(PostError::QueueFull { free: 0, needed: 1 }), "not polled");
    bed.poll_good(&mut rig.cq, 1);
    rig.queue.sync(0)?;
    Ok(())
}

fn tm_more_scatter_entries_than_the_device_takes_are_refused(bed: &Bed) -> Outcome {
    let mut rig = TagRig::new(bed, RigOptions::default())?;
    let max = rig.queue.max_tag_sge();
    let sges = vec![rig.buffer(0..64)[0]; max as usize + 1];
    let refused = rig.queue.add(TagAdd { sges: &sges, ..bare(1) }, None);
    assert_eq!(refused, Err(PostError::TooManySges { given: max + 1, max }));
    // Nothing was added: the list has room for all its tags.
    for tag in 0..rig.queue.max_num_tags() {
        rig.post(OpsWr::add(0, bare(tag.into())).signaled());
        bed.poll_good(&mut rig.cq, 1);
    }
    Ok(())
}

fn tm_an_entry_that_is_too_long_is_refused(bed: &Bed) -> Outcome {
    let mut rig = TagRig::new(bed, RigOptions::default())?;
    let mut sges = rig.buffer(0..64);
    sges[0].length = 1 << 31;
    let refused = rig.queue.add(TagAdd { sges: &sges, ..bare(1) }, None);
    assert_eq!(refused, Err(PostError::SgeTooLong { index: 0, length: 1 << 31 }));
    bed.nothing(&mut rig.cq);
    Ok(())
}

fn tm_a_list_is_posted_up_to_its_first_bad_operation(bed: &Bed) -> Outcome {
    let mut rig = TagRig::new(bed, RigOptions::default())?;
    let gone = rig.add(1, 1, 0..64);
    assert!(rig.run(bed, OpsWr::del(9, gone)).as_completion().is_success());
    let add = |wr_id| OpsWr::add(wr_id, bare(wr_id)).signaled();
    let mut list = [add(0), OpsWr::sync(1, 0).signaled(), add(2), OpsWr::del(3, gone), add(4)];
    let refused = rig.queue.post_srq_ops(&mut list).expect_err("a stale handle");
    assert_eq!((refused.index(), refused.error()), (3, PostError::StaleTag));
    assert!(list[0].handle.is_some() && list[2].handle.is_some() && list[4].handle.is_none());
    let done = bed.poll_good(&mut rig.cq, 3);
    assert_eq!(wr_ids(&done), [0, 1, 2]);
    bed.nothing(&mut rig.cq);
    // An empty list of operations, and one whose first operation is refused, ring no doorbell.
    rig.queue.post_srq_ops(&mut [])?;
    let refused = rig.queue.post_srq_ops(&mut [OpsWr::del(3, gone)]).expect_err("stale");
    assert_eq!(refused.index(), 0);
    bed.nothing(&mut rig.cq);
    Ok(())
}

fn tm_the_doorbell_covers_the_good_operations_and_no_more(bed: &Bed) -> Outcome {
    // This device looks only at operations that a doorbell announces, and compares the doorbell
    // with the record.
    let bed = bed.configured(|config| config.exact_doorbells(true))?;
    let mut rig = TagRig::new(&bed, RigOptions { ops: 4, ..RigOptions::default() })?;
    let gone = rig.add(1, 1, 0..64);
    rig.run(&bed, OpsWr::del(9, gone));
    let qpn = rig.queue.command_qp_num();
    let mut posted = bed.simulator().query_qp(0, qpn).ok_or("there")?.sw_sq_wqebb_counter;
    for good in [1_u16, 2, 3, 1] {
        let mut list = vec![OpsWr::sync(0, 0).signaled(); usize::from(good)];
        list.push(OpsWr::del(3, gone));
        list.push(OpsWr::sync(5, 0).signaled());
        let refused = rig.queue.post_srq_ops(&mut list).expect_err("a stale handle");
        assert_eq!(refused.index(), u32::from(good));
        bed.poll_good(&mut rig.cq, good.into());
        bed.nothing(&mut rig.cq);
        posted = posted.wrapping_add(good);
        let now = bed.simulator().query_qp(0, qpn).ok_or("there")?;
        assert_eq!((now.sw_sq_wqebb_counter, now.hw_sq_wqebb_counter), (posted, posted));
    }
    Ok(())
}

fn tm_a_full_list_refuses_the_next_tag(bed: &Bed) -> Outcome {
    let mut rig = TagRig::new(bed, RigOptions { tags: 3, ..RigOptions::default() })?;
    for turn in 0..10 {
        let tags: Vec<TagHandle> = (0..3).map(|tag| rig.add(tag, tag, 0..64)).collect();
        let refused = rig.queue.add(bare(9), None);
        assert_eq!(refused, Err(PostError::TagListFull { max: 3 }));
        rig.run(bed, OpsWr::del(7, tags[turn % 3]));
        let last = rig.add(9, 9, 0..64);
        assert_eq!(rig.queue.add(bare(9), None), Err(PostError::TagListFull { max: 3 }));
        for tag in tags.into_iter().chain([last]) {
            if rig.queue.del(8, tag, None).is_ok() {
                bed.poll_good(&mut rig.cq, 1);
            }
        }
    }
    Ok(())
}

fn tm_a_handle_means_nothing_once_its_tag_is_gone(bed: &Bed) -> Outcome {
    let mut rig = TagRig::new(bed, RigOptions::default())?;
    rig.post_requests(0..4);
    let removed = rig.add(1, 1, 0..64);
    rig.queue.del(2, removed, None)?;
    assert_eq!(rig.queue.del(3, removed, None), Err(PostError::StaleTag), "under way already");
    bed.poll_good(&mut rig.cq, 1);
    assert_eq!(rig.queue.del(3, removed, None), Err(PostError::StaleTag), "removed");
    let matched = rig.add(4, 4, 0..64);
    rig.eager(bed, 4, b"data");
    bed.poll_good(&mut rig.cq, 1);
    assert_eq!(rig.queue.del(5, matched, None), Err(PostError::StaleTag), "matched");
    // A message has two completions; the first one is enough to free the tag.
    let matched = rig.add(6, 6, 0..8192);
    rig.send_later(0, &eager(6, 0, &[7; 8192 - 16]));
    let first = bed.poll_one(&mut rig.cq);
    assert_eq!(fields(&first), (CompletionOpcode::TmReceive, 6, true, false, false));
    assert_eq!(rig.queue.del(5, matched, None), Err(PostError::StaleTag));
    bed.poll_good(&mut rig.cq, 1);
    assert_eq!(rig.queue.del(5, matched, None), Err(PostError::StaleTag));
    bed.nothing(&mut rig.cq);
    Ok(())
}

fn tm_a_handle_that_was_made_up_or_is_of_another_queue_is_refused(bed: &Bed) -> Outcome {
    let mut one = TagRig::new(bed, RigOptions { tags: 15, ..RigOptions::default() })?;
    let mut other = TagRig::new(bed, RigOptions { tags: 1, ..RigOptions::default() })?;
    let tags: Vec<TagHandle> = (0..15).map(|tag| one.add(tag, tag, 0..64)).collect();
    other.add(1, 1, 0..64);
    for tag in tags {
        // Most of these handles are beyond the end of the other list.
        assert_eq!(other.queue.del(1, tag, None), Err(PostError::ForeignTag), "{tag:?}");
    }
    bed.nothing(&mut other.cq);
    Ok(())
}

fn tm_places_are_used_again_under_another_handle(bed: &Bed) -> Outcome {
    let mut rig = TagRig::new(bed, RigOptions { tags: 2, ..RigOptions::default() })?;
    let mut old: Vec<TagHandle> = Vec::new();
    for turn in 0..30 {
        let tag = rig.add(turn, turn, 0..64);
        assert!(old.iter().all(|other| *other != tag), "{tag:?} again, among {old:?}");
        for stale in &old {
            assert_eq!(rig.queue.del(1, *stale, None), Err(PostError::StaleTag));
        }
        rig.queue.del(2, tag, None)?;
        assert_eq!(failure(&bed.poll_one(&mut rig.cq)), None);
        old.push(tag);
    }
    let places: std::collections::BTreeSet<u16> = old.iter().map(|tag| tag.place()).collect();
    assert_eq!(places.len(), 3, "one place beside those of the tags is always free");
    Ok(())
}

fn tm_a_removal_that_comes_too_late_says_so(bed: &Bed) -> Outcome {
    let mut rig = TagRig::new(bed, RigOptions::default())?;
    for length in [4, 8192 - 16] {
        let tag = rig.add(1, 11, 0..8192);
        rig.send_later(0, &eager(1, 0, &vec![3; length]));
        bed.settle();
        // The device has matched the tag, but the completion is not polled yet.
        rig.queue.del(12, tag, None)?;
        assert_eq!(rig.queue.del(13, tag, None), Err(PostError::StaleTag));
        bed.settle();
        let expected = if length == 4 { 2 } else { 3 };
        let mut done = bed.poll(&mut rig.cq, expected);
        let removal = done.pop().ok_or("the removal")?;
        assert_eq!(removal.as_completion().wr_id(), 12);
        assert_eq!(removal.as_completion().opcode(), CompletionOpcode::TmDel);
        assert_eq!(failure(&removal), Some(CompletionErrorKind::TagConsumed));
        assert!(removal.as_completion().timestamp().is_some(), "its entry is like any other");
        for message in &done {
            assert_eq!((failure(message), message.as_completion().wr_id()), (None, 11));
        }
        assert_eq!(rig.queue.del(14, tag, None), Err(PostError::StaleTag));
        bed.poll_good(&mut rig.senders[0].send_cq, 1);
    }
    // Both tags are free again, once each.
    for tag in 0..15 {
        rig.add(tag, tag, 0..64);
    }
    assert_eq!(rig.queue.add(bare(9), None), Err(PostError::TagListFull { max: 15 }));
    Ok(())
}

fn tm_a_removal_that_comes_in_time_makes_the_message_unexpected(bed: &Bed) -> Outcome {
    let mut rig = TagRig::new(bed, RigOptions::default())?;
    rig.post_requests(0..1);
    let tag = rig.add(1, 11, 0..64);
    rig.queue.del(12, tag, None)?;
    bed.settle();
    rig.send_later(0, &eager(1, 0, b"late"));
    let done = bed.poll_good(&mut rig.cq, 2);
    assert_eq!(fields(&done[0]), (CompletionOpcode::TmDel, 12, false, false, false));
    assert_eq!(fields(&done[1]), (CompletionOpcode::TmReceive, 0, false, false, false));
    Ok(())
}

fn tm_an_unsignaled_removal_that_comes_too_late_frees_the_tag_once(bed: &Bed) -> Outcome {
    let mut rig = TagRig::new(bed, RigOptions { tags: 1, ..RigOptions::default() })?;
    for turn in 0..20 {
        let tag = rig.add(1, turn, 0..64);
        rig.send_later(0, &eager(1, 0, b"data"));
        if turn % 2 == 0 {
            bed.settle();
        }
        // On the device, the removal comes before the message in some turns and after it in others.
        // If the message matched, its completion has all fields.
        rig.post(OpsWr::del(99, tag));
        rig.post_requests(turn..turn + 1);
        bed.settle();
        let done = bed.poll_good(&mut rig.cq, 1);
        let (_, wr_id, matched, ..) = fields(&done[0]);
        assert!(matched || turn % 2 == 1, "turn {turn}: {done:?}");
        assert!(!matched || wr_id == turn, "turn {turn}: {done:?}");
        bed.nothing(&mut rig.cq);
        bed.poll_good(&mut rig.senders[0].send_cq, 1);
        if !matched {
            rig.unexpected += 1;
            rig.queue.sync(rig.unexpected)?;
        }
        let again = rig.add(2, 2, 0..64);
        assert_eq!(rig.queue.add(bare(3), None), Err(PostError::TagListFull { max: 1 }));
        rig.queue.del(3, again, None)?;
        bed.poll_good(&mut rig.cq, 1);
    }
    Ok(())
}

fn tm_operations_of_a_failed_command_queue_fail_with_their_identifiers(bed: &Bed) -> Outcome {
    let bed = bed.configured(|config| config.step(true))?;
    let mut rig = TagRig::new(&bed, RigOptions::default())?;
    let kept = rig.add(1, 1, 0..64);
    bed.settle();
    let command = rig.queue.command_qp_num();
    let (qpn, syndrome, vendor) = (Some(command), Syndrome::LocalQpOperation, 0x77);
    bed.simulator().inject(0, Fault::FailRequest { qpn, syndrome, vendor });
    let added = rig.post(OpsWr::add(21, bare(2))).handle.ok_or("a handle")?;
    rig.queue.del(22, kept, None)?;
    rig.post(OpsWr::sync(23, 0));
    let failed = bed.poll(&mut rig.cq, 3);
    let expected = [
        (21, CompletionOpcode::TmAdd, Syndrome::LocalQpOperation),
        (22, CompletionOpcode::TmDel, Syndrome::WorkRequestFlushed),
        (23, CompletionOpcode::TmSync, Syndrome::WorkRequestFlushed),
    ];
    for (completion, (wr_id, opcode, syndrome)) in failed.iter().zip(expected) {
        let wc = completion.as_completion();
        assert_eq!((wc.wr_id(), wc.opcode()), (wr_id, opcode));
        assert_eq!(failure(completion), Some(CompletionErrorKind::Known(syndrome)));
    }
    // A handle whose tag was never added is refused.
    assert_eq!(rig.queue.del(24, added, None), Err(PostError::StaleTag));
    bed.nothing(&mut rig.cq);
    Ok(())
}

fn tm_entries_that_no_device_writes_latch_an_error(bed: &Bed) -> Outcome {
    // Offsets in an entry: the application, its operation, and the index on the list.
    const APP: u8 = 40;
    const APP_OP: u8 = 41;
    const PLACE: u8 = 43;
    const SUCCESS: u8 = 0;
    const OP_OWN: u8 = 63;
    type Patch = &'static [(u8, u8)];
    let hostile: [(&str, Patch); 9] = [
        ("a place beyond the list", &[(PLACE, 99), (APP_OP, 0xa)]),
        ("a place that is free", &[(PLACE, 5), (APP_OP, 0xa)]),
        ("a second completion without a first", &[(PLACE, 0), (APP_OP, 2)]),
        ("an operation of another kind", &[(APP_OP, 6)]),
        ("an event that is none", &[(APP_OP, 0xd)]),
        ("a request that is not posted", &[(APP_OP, 3)]),
        ("no event of tag matching", &[(APP, 0)]),
        ("a receive that is not posted", &[(APP, 0), (OP_OWN, 2 << 4)]),
        ("a failure of no operation", &[(OP_OWN, 13 << 4), (61, 9)]),
    ];
    for (what, patch) in hostile {
        let bed = bed.configured(|config| config)?;
        bed.leave_dirty();
        let mut rig = TagRig::new(&bed, RigOptions::default())?;
        let cqn = Some(rig.cq.cqn());
        bed.simulator().inject(0, Fault::CorruptCqe { cqn, patch: patch.to_vec() });
        rig.post(OpsWr::add(1, bare(1)).signaled());
        let error = bed.poll_err(&mut rig.cq);
        assert!(matches!(error, mlx5::PollError::Corrupt(_)), "{what}: {error}");
    }
    // A successful removal of a tag that was matched.
    let bed = bed.configured(|config| config.step(true))?;
    bed.leave_dirty();
    let mut rig = TagRig::new(&bed, RigOptions::default())?;
    let tag = rig.add(1, 1, 0..64);
    rig.send_later(0, &eager(1, 0, b"data"));
    bed.settle();
    rig.queue.del(2, tag, None)?;
    let cqn = Some(rig.cq.cqn());
    bed.simulator().inject(0, Fault::CorruptCqe { cqn, patch: vec![(SUCCESS, 0x80)] });
    bed.settle();
    bed.poll_good(&mut rig.cq, 1);
    assert!(matches!(bed.poll_err(&mut rig.cq), mlx5::PollError::Corrupt(_)));
    Ok(())
}

fn tm_the_command_queue_pair_is_connected_on_every_kind_of_port(bed: &Bed) -> Outcome {
    let (ib, roce) = (PortConfig::INFINIBAND, PortConfig::ROCE);
    let ports: [(&[PortConfig], Option<u8>); 6] = [
        (&[ib], None),
        (&[roce], None),
        (&[ib, ib], Some(2)),
        (&[roce, roce], Some(2)),
        (&[roce, roce], None),
        (&[ib, roce], Some(2)),
    ];
    for (ports, port) in ports {
        let bed = bed.configured(|config| config.ports(ports))?;
        if bed.config().log_tags() == 0 {
            // This model has lists on InfiniBand ports alone.
            continue;
        }
        let context = bed.context();
        let (pd, cq) = (context.alloc_pd()?, context.create_cq(64).build()?);
        if port.is_none() && ports.len() == 2 {
            // The queue uses the first active port.
            bed.simulator().set_port_active(0, 1, false);
        }
        let mut cq = cq;
        let mut builder = pd.create_tm_srq(&cq, 8);
        if let Some(port) = port {
            builder = builder.port(port);
        }
        let mut queue = builder.build()?;
        queue.post_srq_ops(&mut [OpsWr::add(5, bare(1)).signaled()])?;
        assert_eq!(bed.poll_good(&mut cq, 1)[0].as_completion().wr_id(), 5, "{ports:?} {port:?}");
        queue.destroy()?;
        bed.simulator().set_port_active(0, 1, false);
        if ports.len() == 1 || port == Some(1) {
            let error = pd.create_tm_srq(&cq, 8).build().err().ok_or("no port")?;
            assert_eq!(error.kind(), ErrorKind::NotFound);
            assert!(error.to_string().contains("no port is active"), "{error}");
        }
        let error = pd.create_tm_srq(&cq, 8).port(3).build().err().ok_or("no such port")?;
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
    Ok(())
}

fn tm_a_queue_in_use_is_given_back(bed: &Bed) -> Outcome {
    let TagRig { receivers, queue, cq, .. } = TagRig::new(bed, RigOptions::default())?;
    let (mut queue, error) = queue.destroy().err().ok_or("in use")?.into_parts();
    assert_eq!(error.kind(), ErrorKind::Busy);
    let mut cq = cq;
    queue.post_srq_ops(&mut [OpsWr::sync(6, 0).signaled()])?;
    assert_eq!(bed.poll_good(&mut cq, 1)[0].as_completion().wr_id(), 6, "as good as before");
    let (cq, error) = cq.destroy().err().ok_or("in use")?.into_parts();
    assert_eq!(error.kind(), ErrorKind::Busy);
    drop(receivers);
    queue.destroy()?;
    cq.destroy()?;
    Ok(())
}

fn tm_a_queue_that_fails_to_be_made_leaves_nothing(bed: &Bed) -> Outcome {
    let session = || -> Result<(), mlx5::Error> {
        let context = bed.device().open()?;
        let (pd, cq) = (context.alloc_pd()?, context.create_cq(16).build()?);
        pd.create_tm_srq(&cq, 8).build().map(drop)
    };
    let before = bed.simulator().calls();
    session()?;
    let calls = bed.simulator().calls() - before;
    assert!(calls > 8, "{calls} calls");
    let mut failures = 0;
    for k in 1..=calls {
        bed.simulator().fail_call(k, mlx5::Errno::ENOMEM);
        failures += u32::from(session().is_err());
        bed.simulator().fail_no_call();
        assert!(bed.simulator().violations().is_empty(), "call {k}");
        let left = bed.simulator().object_counts(0);
        if left != mlx5_sim::firmware::Counts::default() {
            // Even an object whose destruction failed must be gone, because the files are closed.
            return Err(Failed::new(format!("call {k} left {left:?}")));
        }
    }
    assert!(failures > 5);
    Ok(())
}

fn tm_a_queue_of_a_device_that_is_gone_says_so(bed: &Bed) -> Outcome {
    bed.leave_dirty();
    let mut rig = TagRig::new(bed, RigOptions::default())?;
    let tag = rig.add(1, 1, 0..64);
    bed.simulator().remove_device(0);
    bed.until("the device to be found gone", || {
        let _ = rig.context.query_port(1);
        rig.queue.sync(0) == Err(PostError::DeviceGone)
    });
    assert_eq!(rig.queue.del(2, tag, None), Err(PostError::DeviceGone));
    let mut list = [OpsWr {
        wr_id: 0,
        flags: OpsFlags::empty(),
        unexpected_cnt: 0,
        operation: TagOperation::Sync,
        handle: None,
    }];
    assert_eq!(rig.queue.post_srq_ops(&mut list).expect_err("gone").index(), 0);
    Ok(())
}
