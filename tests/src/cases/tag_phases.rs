//! Synchronisation. A message that the device does not expect may be one that software expects.
//! Software has to report the number of unexpected messages that it has handled before the device
//! matches the tags added since.

use super::tag_rig::{RigOptions, TagRig, eager, fields};
use crate::prelude::*;
use mlx5::{OpsWr, TagAdd};

pub(crate) const CASES: &[Case] = cases![
    tm_tags_added_behind_an_unexpected_message_match_once_it_was_handled: TAG_MATCHING,
    tm_tags_that_were_there_before_match_all_along: TAG_MATCHING,
    tm_operation_reports_that_the_device_is_ahead: TAG_MATCHING,
    tm_the_count_of_every_operation_counts_for_those_behind_it: TAG_MATCHING,
    tm_a_removal_does_not_make_the_tag_that_it_removes_match: STEP | TAG_MATCHING,
    tm_unexpected_messages_ask_for_a_word_when_the_device_is_far_ahead: STEP | TAG_MATCHING,
    tm_the_count_goes_on_where_it_wraps: STEP | TAG_MATCHING,
];

const RECEIVE: CompletionOpcode = CompletionOpcode::TmReceive;

/// Adds a tag without a new count of handled messages, and returns whether the device asks for one.
fn add_unsynchronised(bed: &Bed, rig: &mut TagRig, tag: u64) -> bool {
    let sges = rig.buffer(0..64);
    let add = TagAdd { recv_wr_id: tag, sges: &sges, tag, mask: u64::MAX };
    let done = rig.run(bed, OpsWr::add(0, add));
    assert_eq!(done.as_completion().opcode(), CompletionOpcode::TmAdd);
    done.as_completion().tm_sync_required()
}

/// Sends a message. Returns the identifier of its completion, and whether it matched.
fn message(bed: &Bed, rig: &mut TagRig, tag: u64) -> (u64, bool) {
    rig.eager(bed, tag, b"x");
    let (opcode, wr_id, matched, ..) = fields(&bed.poll_good(&mut rig.cq, 1)[0]);
    assert_eq!(opcode, RECEIVE);
    (wr_id, matched)
}

fn tm_tags_added_behind_an_unexpected_message_match_once_it_was_handled(bed: &Bed) -> Outcome {
    let mut rig = TagRig::new(bed, RigOptions::default())?;
    rig.post_requests(100..110);
    assert_eq!(message(bed, &mut rig, 1), (100, false));
    assert!(add_unsynchronised(bed, &mut rig, 1));
    // Otherwise the second message with this tag would overtake the first.
    assert_eq!(message(bed, &mut rig, 1), (101, false));
    let early = rig.run(bed, OpsWr::sync(0, 1));
    assert!(early.as_completion().tm_sync_required(), "there were two");
    assert_eq!(message(bed, &mut rig, 1), (102, false));
    let done = rig.run(bed, OpsWr::sync(0, 3));
    assert!(!done.as_completion().tm_sync_required());
    assert_eq!(message(bed, &mut rig, 1), (1, true));
    Ok(())
}

fn tm_tags_that_were_there_before_match_all_along(bed: &Bed) -> Outcome {
    let mut rig = TagRig::new(bed, RigOptions::default())?;
    rig.post_requests(100..110);
    assert!(!add_unsynchronised(bed, &mut rig, 1));
    assert_eq!(message(bed, &mut rig, 2), (100, false));
    assert!(add_unsynchronised(bed, &mut rig, 2));
    assert_eq!(message(bed, &mut rig, 1), (1, true));
    assert_eq!(message(bed, &mut rig, 2), (101, false));
    Ok(())
}

fn tm_operation_reports_that_the_device_is_ahead(bed: &Bed) -> Outcome {
    let mut rig = TagRig::new(bed, RigOptions::default())?;
    rig.post_requests(100..110);
    let kept = rig.add(5, 5, 0..64);
    assert_eq!(message(bed, &mut rig, 1), (100, false));
    let sges = rig.buffer(0..64);
    let add = TagAdd { recv_wr_id: 6, sges: &sges, tag: 6, mask: u64::MAX };
    for (behind, expected) in [(OpsWr::sync(0, 0), true), (OpsWr::add(0, add), true)] {
        let done = rig.run(bed, behind);
        assert_eq!(done.as_completion().tm_sync_required(), expected);
    }
    let done = rig.run(bed, OpsWr::del(0, kept).synchronised(1));
    assert!(!done.as_completion().tm_sync_required(), "whatever it was when the tag was added");
    let done = rig.run(bed, OpsWr::add(0, add).synchronised(1));
    assert!(!done.as_completion().tm_sync_required());
    Ok(())
}

fn tm_the_count_of_every_operation_counts_for_those_behind_it(bed: &Bed) -> Outcome {
    let mut rig = TagRig::new(bed, RigOptions::default())?;
    rig.post_requests(100..110);
    assert_eq!(message(bed, &mut rig, 1), (100, false));
    rig.queue.sync(1)?;
    assert!(!add_unsynchronised(bed, &mut rig, 2), "a synchronisation before it reported");
    assert_eq!(message(bed, &mut rig, 1), (101, false));
    let kept = rig.add_with(TagAdd { recv_wr_id: 3, sges: &[], tag: 3, mask: u64::MAX });
    rig.queue.del(0, kept, Some(2))?;
    bed.poll_good(&mut rig.cq, 1);
    assert!(!add_unsynchronised(bed, &mut rig, 4), "a removal before it reported");
    for tag in [2, 4] {
        rig.senders[0].mr.write_at(0, &eager(tag, 0, b""))?;
        let sge = rig.senders[0].mr.sge(0..16)?;
        let mut batch = rig.senders[0].qp.wr_start();
        batch.wr(0, SendFlags::SIGNALED).send().sge(sge);
        batch.complete()?;
        let done = bed.poll_good(&mut rig.cq, 1);
        assert_eq!(fields(&done[0]), (RECEIVE, tag, true, true, false));
        bed.poll_good(&mut rig.senders[0].send_cq, 1);
    }
    Ok(())
}

fn tm_a_removal_does_not_make_the_tag_that_it_removes_match(bed: &Bed) -> Outcome {
    let mut rig = TagRig::new(bed, RigOptions::default())?;
    rig.post_requests(100..110);
    assert_eq!(message(bed, &mut rig, 1), (100, false));
    // Software matches the message to a tag that the device has, and does not match yet. It removes
    // that from the list, and only then reports the message as handled.
    let sges = rig.buffer(0..64);
    let add = TagAdd { recv_wr_id: 1, sges: &sges, tag: 1, mask: u64::MAX };
    let tag = rig.run_add(bed, OpsWr::add(0, add));
    rig.send_later(0, &eager(1, 0, b"x"));
    rig.queue.del(7, tag, Some(1))?;
    let done = bed.poll_good(&mut rig.cq, 2);
    let mut found: Vec<_> = done.iter().map(fields).map(|(opcode, id, matched, ..)| (opcode, id, matched)).collect();
    found.sort_by_key(|one| one.1);
    assert_eq!(found, [(CompletionOpcode::TmDel, 7, false), (RECEIVE, 101, false)]);
    Ok(())
}

/// Sends `count` messages that match nothing, and counts those that ask for a synchronisation.
fn unexpected(bed: &Bed, rig: &mut TagRig, count: u32, asking: &mut u32) {
    let message = eager(9, 0, b"");
    for _ in 0..count {
        rig.post_requests(0..1);
        rig.send_later(0, &message);
        bed.settle();
        let done = bed.poll_good(&mut rig.cq, 1);
        let (opcode, wr_id, matched, _, asks) = fields(&done[0]);
        assert_eq!((opcode, wr_id, matched), (RECEIVE, 0, false));
        *asking += u32::from(asks);
        bed.poll_good(&mut rig.senders[0].send_cq, 1);
    }
}

fn tm_unexpected_messages_ask_for_a_word_when_the_device_is_far_ahead(bed: &Bed) -> Outcome {
    let mut rig = TagRig::new(bed, RigOptions::default())?;
    let mut asking = 0;
    unexpected(bed, &mut rig, 0x3fff, &mut asking);
    assert_eq!(asking, 0);
    unexpected(bed, &mut rig, 3, &mut asking);
    assert_eq!(asking, 3, "until it comes");
    rig.queue.sync(0x4002)?;
    unexpected(bed, &mut rig, 3, &mut asking);
    assert_eq!(asking, 3);
    Ok(())
}

fn tm_the_count_goes_on_where_it_wraps(bed: &Bed) -> Outcome {
    let mut rig = TagRig::new(bed, RigOptions::default())?;
    let (mut asking, mut count) = (0, 0_u32);
    while count < (1 << 16) + 100 {
        // Large steps up to the wrap, small ones across it.
        let step = if count < 0xff00 { 0x3fc0 } else { 1 };
        unexpected(bed, &mut rig, step, &mut asking);
        count += step;
        assert!(add_unsynchronised(bed, &mut rig, 1), "{count:#x}: the device is ahead");
        // More bits than the device counts.
        rig.queue.sync(count)?;
        let behind = add_unsynchronised(bed, &mut rig, 2);
        assert!(!behind, "{count:#x}");
        for tag in [1, 2] {
            assert_eq!(message(bed, &mut rig, tag), (tag, true), "{count:#x}");
        }
    }
    assert_eq!(asking, 0);
    Ok(())
}
