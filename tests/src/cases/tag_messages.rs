//! Messages to a tag-matching queue: the tags that they match, and their completions.

use super::tag_rig::{RigOptions, TagRig, eager, fields};
use crate::prelude::*;
use mlx5::{OpsWr, RendezvousData, TagAdd, TmInfo, TmMessage, mtu_bytes};

pub(crate) const CASES: &[Case] = cases![
    tm_message_of_one_packet_is_reported_once: TAG_MATCHING | EVERY_MODEL,
    tm_message_of_several_packets_is_reported_at_match_and_at_arrival:
        TAG_MATCHING | EVERY_MODEL,
    tm_messages_of_every_length_fill_the_tag_s_buffer: TAG_MATCHING,
    tm_an_empty_message_needs_no_buffer: TAG_MATCHING,
    tm_a_message_that_matches_nothing_goes_whole_to_a_request: TAG_MATCHING | EVERY_MODEL,
    tm_a_message_without_a_tag_goes_whole_to_a_request: TAG_MATCHING,
    tm_the_tag_that_was_added_first_matches_first: TAG_MATCHING,
    tm_only_the_bits_of_the_mask_are_compared: TAG_MATCHING,
    tm_immediate_data_comes_with_a_match: TAG_MATCHING,
    tm_a_message_that_is_not_understood_is_refused: SIMULATOR | TAG_MATCHING,
    tm_a_message_longer_than_its_buffer_is_cancelled: TAG_MATCHING,
    tm_a_buffer_that_may_not_be_written_cancels_the_message: TAG_MATCHING,
    tm_an_unexpected_message_waits_for_a_request: TAG_MATCHING,
    tm_several_senders_share_one_list: TAG_MATCHING,
    tm_messages_in_entries_are_handed_out: SIMULATOR | EVERY_MODEL | TAG_MATCHING,
    tm_the_device_fetches_the_data_of_a_rendezvous: TAG_MATCHING | EVERY_MODEL,
    tm_a_rendezvous_of_nothing_is_finished_too: TAG_MATCHING,
    tm_several_rendezvous_are_fetched_in_turn: TAG_MATCHING,
    tm_a_rendezvous_goes_on_behind_lost_packets: SIMULATOR | TAG_MATCHING,
    tm_a_rendezvous_too_large_for_its_tag_is_left_to_software: TAG_MATCHING,
    tm_a_rendezvous_is_left_to_software_where_the_queue_pair_has_a_send_queue: TAG_MATCHING,
    tm_a_long_request_for_a_rendezvous_is_left_to_software_in_two_completions: SIMULATOR | TAG_MATCHING,
    tm_an_unexpected_rendezvous_is_received_with_all_that_came_with_it: TAG_MATCHING,
    tm_a_rendezvous_whose_data_cannot_be_read_is_cancelled: TAG_MATCHING,
    tm_a_queue_pair_that_fails_cancels_what_was_matched: STEP | TAG_MATCHING,
    tm_end_of_a_rendezvous_is_reported_to_a_sender_with_its_own_list: TAG_MATCHING,
    tm_a_message_that_stops_in_the_middle_is_given_up_with_its_queue_pair: TAG_MATCHING,
];

const RECEIVE: CompletionOpcode = CompletionOpcode::TmReceive;

fn failure(completion: &OwnedCompletion) -> Option<CompletionErrorKind> {
    completion.as_completion().status().err().map(|error| error.kind)
}

fn tm_message_of_one_packet_is_reported_once(bed: &Bed) -> Outcome {
    let mut rig = TagRig::new(bed, RigOptions::default())?;
    let tag = 0x1122_3344_5566_7788;
    rig.add(tag, 5, 0..64);
    rig.send(bed, 0, &eager(tag, 0xdead_beef, b"in one packet"));
    let done = bed.poll_good(&mut rig.cq, 1);
    assert_eq!(fields(&done[0]), (RECEIVE, 5, true, true, false));
    let wc = done[0].as_completion();
    assert_eq!(wc.tm_info(), Some(TmInfo { tag, app_ctx: 0xdead_beef }));
    assert_eq!(wc.byte_len(), Some(13), "without the header");
    assert_eq!(wc.qp_num(), rig.receivers[0].qp_num());
    assert_eq!(wc.src_qp(), Some(rig.senders[0].qp.qp_num()));
    assert_eq!((wc.imm_data(), wc.cancelled()), (None, false));
    assert_eq!(rig.bytes(0..14), b"in one packet\0");
    bed.nothing(&mut rig.cq);
    Ok(())
}

fn tm_message_of_several_packets_is_reported_at_match_and_at_arrival(
    bed: &Bed,
) -> Outcome {
    let mut rig = TagRig::new(bed, RigOptions::default())?;
    rig.add(7, 5, 0..20_000);
    let payload = pattern(1, 20_000);
    rig.send(bed, 0, &eager(7, 9, &payload));
    let done = bed.poll_good(&mut rig.cq, 2);
    assert_eq!(fields(&done[0]), (RECEIVE, 5, true, false, false));
    assert_eq!(done[0].as_completion().tm_info(), Some(TmInfo { tag: 7, app_ctx: 9 }));
    assert_eq!(done[0].as_completion().byte_len(), None, "it is not there yet");
    assert_eq!(fields(&done[1]), (RECEIVE, 5, false, true, false));
    assert_eq!(done[1].as_completion().tm_info(), None, "it was reported");
    assert_eq!(done[1].as_completion().byte_len(), Some(20_000));
    assert!(rig.bytes(0..20_000) == payload);
    bed.nothing(&mut rig.cq);
    Ok(())
}

fn tm_messages_of_every_length_fill_the_tag_s_buffer(bed: &Bed) -> Outcome {
    let mut rig = TagRig::new(bed, RigOptions::default())?;
    let mtu = bed.context().query_port(bed.port())?.active_mtu.map_or(1024, mtu_bytes) as usize;
    // Lengths around the ends of packets, of which the first has the header.
    for length in [1, 15, 16, 17, mtu - 17, mtu - 16, mtu - 15, mtu, 2 * mtu - 16, 2 * mtu - 15, 3 * mtu - 15] {
        rig.add(3, 5, 100..100 + length);
        let payload = pattern(length as u64, length);
        rig.eager(bed, 3, &payload);
        let whole = if 16 + length <= mtu { 1 } else { 2 };
        let done = bed.poll_good(&mut rig.cq, whole);
        assert_eq!(done[whole - 1].as_completion().byte_len(), Some(length as u32));
        assert!(rig.bytes(100..100 + length) == payload, "{length} bytes");
        rig.memory.write_at(super::tag_rig::BUFFERS, &vec![0; 16_384])?;
    }
    Ok(())
}

fn tm_an_empty_message_needs_no_buffer(bed: &Bed) -> Outcome {
    let mut rig = TagRig::new(bed, RigOptions::default())?;
    let mut empty = rig.buffer(0..64);
    empty[0].length = 0;
    for sges in [&[][..], &empty] {
        rig.add_with(TagAdd { recv_wr_id: 4, sges, tag: 1, mask: u64::MAX });
        rig.eager(bed, 1, b"");
        let done = bed.poll_good(&mut rig.cq, 1);
        assert_eq!(fields(&done[0]), (RECEIVE, 4, true, true, false));
        assert_eq!(done[0].as_completion().byte_len(), Some(0));
    }
    Ok(())
}

fn tm_a_message_that_matches_nothing_goes_whole_to_a_request(bed: &Bed) -> Outcome {
    let mut rig = TagRig::new(bed, RigOptions::default())?;
    rig.post_requests(10..12);
    rig.add(1, 5, 0..64);
    let message = eager(2, 0x0a0b_0c0d, &pattern(2, 3000));
    rig.send(bed, 0, &message);
    let done = bed.poll_good(&mut rig.cq, 1);
    assert_eq!(fields(&done[0]), (RECEIVE, 10, false, false, false));
    let wc = done[0].as_completion();
    assert_eq!((wc.byte_len(), wc.tm_info()), (Some(3016), None));
    let received = rig.request(10, 3016);
    let (head, payload) = TmMessage::parse(&received).ok_or("a header")?;
    assert_eq!(head, TmMessage::Eager { tag: 2, app_ctx: 0x0a0b_0c0d });
    assert!(payload == pattern(2, 3000));
    // The tag is still on the list.
    rig.eager(bed, 1, b"x");
    assert_eq!(fields(&bed.poll_good(&mut rig.cq, 1)[0]), (RECEIVE, 5, true, true, false));
    Ok(())
}

fn tm_a_message_without_a_tag_goes_whole_to_a_request(bed: &Bed) -> Outcome {
    let mut rig = TagRig::new(bed, RigOptions::default())?;
    rig.post_requests(0..8);
    let sges = rig.buffer(0..64);
    // This entry would match any tag.
    rig.add_with(TagAdd { recv_wr_id: 9, sges: &sges, tag: 0, mask: 0 });
    let mut finished = rig.rendezvous(0, 4, 0..16).to_bytes();
    finished[0] = 2;
    let messages: [&[u8]; 4] = [&[0], &[0; 16], b"\0anything that follows is data", &finished];
    for (n, message) in messages.into_iter().enumerate() {
        rig.send(bed, 0, message);
        let done = bed.poll_good(&mut rig.cq, 1);
        let expected = (CompletionOpcode::TmNoTag, n as u64, false, false, false);
        assert_eq!(fields(&done[0]), expected, "{message:?}");
        assert_eq!(done[0].as_completion().byte_len(), Some(message.len() as u32));
        assert_eq!(rig.request(n as u64, message.len() as u32), message);
    }
    // These messages are not unexpected: tags still match without a synchronisation by software.
    let added = rig.run(bed, OpsWr::sync(1, 0));
    assert!(!added.as_completion().tm_sync_required());
    Ok(())
}

fn tm_the_tag_that_was_added_first_matches_first(bed: &Bed) -> Outcome {
    let mut rig = TagRig::new(bed, RigOptions::default())?;
    let sges = rig.buffer(0..64);
    let add = |recv_wr_id, tag, mask| TagAdd { recv_wr_id, sges: &sges, tag, mask };
    let mut tags = Vec::new();
    for (wr_id, tag, mask) in [(0, 5, !0), (1, 4, !1), (2, 5, !0), (3, 0, 0), (4, 5, !0)] {
        tags.push(rig.add_with(add(wr_id, tag, mask)));
    }
    rig.queue.del(9, tags[2], None)?;
    bed.poll_good(&mut rig.cq, 1);
    // Later tags take earlier slots of the list, and are still later in order.
    rig.add_with(add(5, 5, !0));
    for expected in [0, 1, 3, 4, 5] {
        rig.eager(bed, 5, b"x");
        assert_eq!(bed.poll_good(&mut rig.cq, 1)[0].as_completion().wr_id(), expected);
    }
    Ok(())
}

fn tm_only_the_bits_of_the_mask_are_compared(bed: &Bed) -> Outcome {
    let mut rig = TagRig::new(bed, RigOptions::default())?;
    rig.post_requests(100..110);
    let high = 0xffff_ffff_0000_0000;
    let cases = [
        // Tag and mask of the entry, tag of the message, and whether it matches.
        (0x1_0000_0000, high, 0x1_1234_5678, true),
        (0x1_0000_0000, high, 0x2_1234_5678, false),
        (1 << 63, 1 << 63, u64::MAX, true),
        (1 << 63, 1 << 63, u64::MAX >> 1, false),
        (0, 0, 0xdead_beef, true),
        // An entry whose tag has bits outside its mask matches no message.
        (3, 1, 3, false),
    ];
    for (n, (tag, mask, sent, matches)) in cases.into_iter().enumerate() {
        let sges = rig.buffer(0..64);
        let add = TagAdd { recv_wr_id: n as u64, sges: &sges, tag, mask };
        let handle = rig.add_with(add);
        rig.eager(bed, sent, b"x");
        let (_, _, matched, ..) = fields(&bed.poll_good(&mut rig.cq, 1)[0]);
        assert_eq!(matched, matches, "{sent:#x} & {mask:#x} == {tag:#x}");
        if !matches {
            rig.unexpected += 1;
            rig.queue.del(50, handle, None)?;
            bed.poll_good(&mut rig.cq, 1);
        }
    }
    Ok(())
}

fn tm_immediate_data_comes_with_a_match(bed: &Bed) -> Outcome {
    let mut rig = TagRig::new(bed, RigOptions::default())?;
    rig.post_requests(0..2);
    for length in [4, 9000] {
        rig.add(1, 5, 0..9000);
        let end = &mut rig.senders[0];
        let message = eager(1, 0, &pattern(3, length));
        end.mr.write_at(0, &message)?;
        let sge = end.mr.sge(0..message.len())?;
        let mut batch = end.qp.wr_start();
        batch.wr(1, SendFlags::SIGNALED).send_imm(*b"imm!").sge(sge);
        batch.complete()?;
        let count = if length == 4 { 1 } else { 2 };
        let done = bed.poll_good(&mut rig.cq, count);
        assert_eq!(done[count - 1].as_completion().imm_data(), Some(*b"imm!"));
        if count == 2 {
            assert_eq!(done[0].as_completion().imm_data(), None);
        }
        bed.poll_good(&mut rig.senders[0].send_cq, 1);
    }
    Ok(())
}

/// The error of the first sender's last request.
fn refusal(bed: &Bed, rig: &mut TagRig) -> Option<Syndrome> {
    syndrome(&bed.poll_one(&mut rig.senders[0].send_cq))
}

fn tm_a_message_that_is_not_understood_is_refused(bed: &Bed) -> Outcome {
    let short: [&[u8]; 4] = [&[4], &[0xff; 64], &[3; 15], &[1; 31]];
    for message in short {
        let mut rig = TagRig::new(bed, RigOptions::default())?;
        rig.post_requests(0..2);
        rig.send_later(0, message);
        assert_eq!(refusal(bed, &mut rig), Some(Syndrome::RemoteInvalidRequest), "{message:?}");
        bed.nothing(&mut rig.cq);
    }
    Ok(())
}

fn tm_a_message_longer_than_its_buffer_is_cancelled(bed: &Bed) -> Outcome {
    for (length, completions) in [(65, 1), (9000, 2)] {
        let mut rig = TagRig::new(bed, RigOptions { tags: 1, ..RigOptions::default() })?;
        rig.add(1, 5, 0..64);
        rig.send_later(0, &eager(1, 0, &vec![1; length]));
        assert_eq!(refusal(bed, &mut rig), Some(Syndrome::RemoteInvalidRequest));
        let done = bed.poll(&mut rig.cq, completions);
        let last = &done[completions - 1];
        assert_eq!(fields(last), (RECEIVE, 5, true, false, false));
        assert_eq!(failure(last), Some(CompletionErrorKind::MessageCanceled));
        rig.add(2, 6, 0..64);
        assert_eq!(rig.bytes(64..128), [0; 64]);
        bed.nothing(&mut rig.cq);
    }
    Ok(())
}

fn tm_a_buffer_that_may_not_be_written_cancels_the_message(bed: &Bed) -> Outcome {
    let mut rig = TagRig::new(bed, RigOptions { tags: 1, ..RigOptions::default() })?;
    let mut sges = rig.buffer(0..64);
    sges[0].lkey ^= 0xff;
    rig.add_with(TagAdd { recv_wr_id: 5, sges: &sges, tag: 1, mask: !0 });
    rig.send_later(0, &eager(1, 0, b"data"));
    assert_eq!(refusal(bed, &mut rig), Some(Syndrome::RemoteOperation));
    let done = bed.poll_one(&mut rig.cq);
    assert_eq!(failure(&done), Some(CompletionErrorKind::MessageCanceled));
    assert_eq!(done.as_completion().wr_id(), 5);
    rig.add(2, 6, 0..64);
    Ok(())
}

fn tm_an_unexpected_message_waits_for_a_request(bed: &Bed) -> Outcome {
    let mut rig = TagRig::new(bed, RigOptions::default())?;
    rig.add(1, 5, 0..64);
    rig.send_later(0, &eager(2, 0, b"unexpected"));
    bed.settle();
    // Until there is a request for it, the message has not arrived, and is not counted.
    let sync = rig.run(bed, OpsWr::sync(1, 0));
    assert!(!sync.as_completion().tm_sync_required());
    rig.post_requests(3..4);
    let done = bed.poll_good(&mut rig.cq, 1);
    assert_eq!(fields(&done[0]), (RECEIVE, 3, false, false, false));
    bed.poll_good(&mut rig.senders[0].send_cq, 1);
    let sync = rig.run(bed, OpsWr::sync(2, 0));
    assert!(sync.as_completion().tm_sync_required());
    Ok(())
}

fn tm_several_senders_share_one_list(bed: &Bed) -> Outcome {
    let mut rig = TagRig::new(bed, RigOptions { senders: 3, ..RigOptions::default() })?;
    rig.post_requests(0..3);
    for n in 0..3 {
        rig.add(n, 10 + n, n as usize * 64..n as usize * 64 + 64);
    }
    for (sender, tag) in [(0, 2), (1, 0), (2, 1), (0, 7)] {
        rig.send(bed, sender, &eager(tag, sender as u32, &[sender as u8 + 1; 8]));
        let done = bed.poll_good(&mut rig.cq, 1);
        let wc = done[0].as_completion();
        assert_eq!(wc.qp_num(), rig.receivers[sender].qp_num());
        if tag < 3 {
            assert_eq!((wc.wr_id(), wc.tm_match()), (10 + tag, true));
            let at = tag as usize * 64;
            assert_eq!(rig.bytes(at..at + 8), [sender as u8 + 1; 8]);
        }
    }
    Ok(())
}

fn tm_messages_in_entries_are_handed_out(bed: &Bed) -> Outcome {
    const OP_OWN: u8 = 63;
    // Opcode "send received", and the format: 32 bytes in the entry, or 64 before it.
    let (inline32, inline64) = (2 << 4 | 1 << 2, 2 << 4 | 2 << 2);
    let rig = || -> Result<TagRig, Failed> {
        let mut rig = TagRig::new(bed, RigOptions::default())?;
        rig.post_requests(0..4);
        rig.add(1, 5, 0..64);
        Ok(rig)
    };
    let patch = |rig: &TagRig, op_own| {
        let cqn = Some(rig.cq.cqn());
        bed.simulator().inject(0, Fault::CorruptCqe { cqn, patch: vec![(OP_OWN, op_own)] });
    };
    // A message that matched nothing may be in either part of the entry.
    let mut one = rig()?;
    patch(&one, inline32);
    one.eager(bed, 2, &[1; 10]);
    let done = bed.poll_one(&mut one.cq);
    let wc = done.as_completion();
    assert_eq!((wc.byte_len(), wc.wr_id()), (Some(26), 0));
    assert_eq!((wc.tm_match(), wc.inline_data().map(|data| data.len())), (false, Some(26)));
    // The completion of a match uses the entry's message field for its own fields, so only the part
    // before the entry has room for a message, in a long entry.
    patch(&one, inline64);
    one.send_later(0, &eager(1, 7, &[2; 60]));
    if bed.cqe_size() == mlx5::CqeSize::Bytes64 {
        assert!(matches!(bed.poll_err(&mut one.cq), mlx5::PollError::Corrupt(_)));
    } else {
        let done = bed.poll_good(&mut one.cq, 1);
        let wc = done[0].as_completion();
        assert_eq!(wc.tm_info(), Some(TmInfo { tag: 1, app_ctx: 7 }));
        assert_eq!(wc.inline_data().map(|data| data.len()), Some(60));
    }
    let mut other = rig()?;
    patch(&other, inline32);
    other.send_later(0, &eager(1, 0, b"data"));
    assert!(matches!(bed.poll_err(&mut other.cq), mlx5::PollError::Corrupt(_)));
    // Nor is there room for a message longer than this part.
    let mut third = rig()?;
    patch(&third, inline32);
    third.send_later(0, &eager(2, 0, &[1; 17]));
    assert!(matches!(bed.poll_err(&mut third.cq), mlx5::PollError::Corrupt(_)));
    bed.settle();
    Ok(())
}

/// Checks that a sender got the message that the rendezvous is finished.
fn expect_finished(bed: &Bed, rig: &mut TagRig, sender: usize, asked: TmMessage, at: usize) {
    let end = &mut rig.senders[sender];
    let done = bed.poll_good(end.recv_cq(), 1);
    assert_eq!(done[0].as_completion().opcode(), CompletionOpcode::Receive);
    assert_eq!(done[0].as_completion().byte_len(), Some(32));
    let mut bytes = [0; 32];
    end.mr.read_at(at, &mut bytes).expect("inside the memory");
    let TmMessage::Rendezvous { tag, app_ctx, data } = asked else { panic!("{asked:?}") };
    let finished = TmMessage::Finished { tag, app_ctx, data };
    assert_eq!(TmMessage::parse(&bytes), Some((finished, &[][..])));
}

/// Offset in a sender's memory to which the end of a rendezvous goes.
const FINISHED: usize = 200_000;

fn tm_the_device_fetches_the_data_of_a_rendezvous(bed: &Bed) -> Outcome {
    let mut rig = TagRig::new(bed, RigOptions::default())?;
    for (turn, length) in [1, 64, 4096, 4097, 100_000].into_iter().enumerate() {
        let seed = turn as u64;
        fill(&rig.senders[0].mr, 1000, seed, length)?;
        rig.senders[0].recv(1, FINISHED..FINISHED + 64);
        rig.add(0x77, 5, 0..length);
        let asked = rig.rendezvous(0, 0x77, 1000..1000 + length);
        rig.send(bed, 0, &asked.to_bytes());
        let done = bed.poll_good(&mut rig.cq, 2);
        assert_eq!(fields(&done[0]), (RECEIVE, 5, true, false, false));
        let info = TmInfo { tag: 0x77, app_ctx: 0x0102_0304 };
        assert_eq!(done[0].as_completion().tm_info(), Some(info));
        assert_eq!(fields(&done[1]), (RECEIVE, 5, false, true, false));
        assert_eq!(done[1].as_completion().byte_len(), Some(length as u32));
        assert!(rig.bytes(0..length) == pattern(seed, length));
        expect_finished(bed, &mut rig, 0, asked, FINISHED);
    }
    bed.nothing(&mut rig.cq);
    Ok(())
}

fn tm_a_rendezvous_of_nothing_is_finished_too(bed: &Bed) -> Outcome {
    let mut rig = TagRig::new(bed, RigOptions::default())?;
    rig.senders[0].recv(1, FINISHED..FINISHED + 64);
    rig.add(1, 5, 0..64);
    let asked = rig.rendezvous(0, 1, 1000..1000);
    rig.send(bed, 0, &asked.to_bytes());
    let done = bed.poll_good(&mut rig.cq, 2);
    assert_eq!(done[1].as_completion().byte_len(), Some(0));
    expect_finished(bed, &mut rig, 0, asked, FINISHED);
    Ok(())
}

fn tm_several_rendezvous_are_fetched_in_turn(bed: &Bed) -> Outcome {
    let mut rig = TagRig::new(bed, RigOptions { senders: 2, ..RigOptions::default() })?;
    let mut asked = Vec::new();
    for n in 0..8_usize {
        let (sender, at) = (n % 2, 1000 + n * 10_000);
        fill(&rig.senders[sender].mr, at, n as u64, 10_000)?;
        rig.senders[sender].recv(n as u64, FINISHED + n * 64..FINISHED + n * 64 + 64);
        rig.add(n as u64, n as u64, n * 10_000..(n + 1) * 10_000);
        asked.push(rig.rendezvous(sender, n as u64, at..at + 10_000));
    }
    for (n, asked) in asked.iter().enumerate() {
        rig.send(bed, n % 2, &asked.to_bytes());
    }
    let done = bed.poll_good(&mut rig.cq, 16);
    for n in 0..8 {
        let of: Vec<_> = done.iter().filter(|wc| wc.as_completion().wr_id() == n).collect();
        assert_eq!(of.len(), 2);
        assert!(of[0].as_completion().tm_match() && of[1].as_completion().tm_data_valid());
        let at = n as usize * 10_000;
        assert!(rig.bytes(at..at + 10_000) == pattern(n, 10_000));
    }
    for (n, asked) in asked.into_iter().enumerate() {
        expect_finished(bed, &mut rig, n % 2, asked, FINISHED + n * 64);
    }
    Ok(())
}

fn tm_a_rendezvous_goes_on_behind_lost_packets(bed: &Bed) -> Outcome {
    let bed = bed.configured(|config| config.step(true))?;
    for lost in 0..6 {
        let mut rig = TagRig::new(&bed, RigOptions::default())?;
        fill(&rig.senders[0].mr, 1000, 1, 9000)?;
        rig.senders[0].recv(1, FINISHED..FINISHED + 64);
        rig.add(1, 5, 0..9000);
        let asked = rig.rendezvous(0, 1, 1000..10_000);
        rig.send_later(0, &asked.to_bytes());
        // Loses the request, the read, or the final message, whichever comes next.
        for _ in 0..lost {
            bed.step();
        }
        bed.simulator().inject(0, Fault::DropPackets(1));
        let done = bed.poll_good(&mut rig.cq, 2);
        assert_eq!(fields(&done[1]), (RECEIVE, 5, false, true, false));
        assert!(rig.bytes(0..9000) == pattern(1, 9000));
        expect_finished(&bed, &mut rig, 0, asked, FINISHED);
        bed.nothing(&mut rig.cq);
    }
    Ok(())
}

/// A rendezvous that software fetches. Checks the completion, and the request in the buffer of the
/// tag.
fn left_to_software(
    bed: &Bed,
    rig: &mut TagRig,
    asked: TmMessage,
    length: usize,
) -> Result<(), Failed> {
    let mut request = asked.to_bytes();
    request.extend_from_slice(b"more");
    rig.add(1, 5, 0..length);
    rig.send(bed, 0, &request);
    let done = bed.poll_one(&mut rig.cq);
    assert_eq!(fields(&done), (RECEIVE, 5, true, true, false));
    assert_eq!(failure(&done), Some(CompletionErrorKind::RendezvousIncomplete));
    let wc = done.as_completion();
    assert_eq!((wc.byte_len(), wc.is_success()), (Some(36), false));
    assert_eq!(wc.tm_info(), Some(TmInfo { tag: 1, app_ctx: 0x0102_0304 }));
    assert_eq!(TmMessage::parse(&rig.bytes(0..36)), Some((asked, &b"more"[..])));
    bed.nothing(&mut rig.cq);
    Ok(())
}

fn tm_a_rendezvous_too_large_for_its_tag_is_left_to_software(bed: &Bed) -> Outcome {
    let mut rig = TagRig::new(bed, RigOptions { tags: 1, ..RigOptions::default() })?;
    let asked = rig.rendezvous(0, 1, 1000..1101);
    left_to_software(bed, &mut rig, asked, 100)?;
    // The tag is used up, and its slot free.
    rig.add(2, 6, 0..64);
    Ok(())
}

fn tm_a_rendezvous_is_left_to_software_where_the_queue_pair_has_a_send_queue(
    bed: &Bed,
) -> Outcome {
    let mut rig = TagRig::new(bed, RigOptions { keep_send_queue: true, ..RigOptions::default() })?;
    fill(&rig.senders[0].mr, 1000, 8, 5000)?;
    rig.senders[0].recv(1, FINISHED..FINISHED + 64);
    let asked = rig.rendezvous(0, 1, 1000..6000);
    left_to_software(bed, &mut rig, asked, 5000)?;
    // Software reads the data itself, through the queue pair's own send queue, and sends the final
    // message.
    let TmMessage::Rendezvous { tag, app_ctx, data } = asked else { panic!("{asked:?}") };
    let finished = TmMessage::Finished { tag, app_ctx, data }.to_bytes();
    rig.memory.write_at(0, &finished)?;
    let (to, report_sge) = (rig.buffer(0..5000)[0], rig.memory.sge(0..32)?);
    let mut batch = rig.receivers[0].wr_start();
    let from = RemoteAddress { addr: data.va, rkey: data.rkey };
    batch.wr(1, SendFlags::empty()).rdma_read(from).sge(to);
    batch.wr(2, SendFlags::SIGNALED).send().sge(report_sge);
    batch.complete()?;
    assert_eq!(bed.poll_good(&mut rig.cq, 1)[0].as_completion().wr_id(), 2);
    assert!(rig.bytes(0..5000) == pattern(8, 5000));
    expect_finished(bed, &mut rig, 0, asked, FINISHED);
    Ok(())
}

fn tm_a_long_request_for_a_rendezvous_is_left_to_software_in_two_completions(
    bed: &Bed,
) -> Outcome {
    let mut rig = TagRig::new(bed, RigOptions::default())?;
    rig.add(1, 5, 0..9000);
    let asked = rig.rendezvous(0, 1, 1000..1100);
    let mut request = asked.to_bytes();
    request.extend(pattern(4, 8000));
    rig.send(bed, 0, &request);
    let done = bed.poll(&mut rig.cq, 2);
    assert_eq!(fields(&done[0]), (RECEIVE, 5, true, false, false));
    assert_eq!(failure(&done[0]), Some(CompletionErrorKind::RendezvousIncomplete));
    assert_eq!(fields(&done[1]), (RECEIVE, 5, false, true, false));
    assert_eq!(failure(&done[1]), None);
    assert_eq!(done[1].as_completion().byte_len(), Some(8032));
    assert!(rig.bytes(0..8032) == request);
    Ok(())
}

fn tm_an_unexpected_rendezvous_is_received_with_all_that_came_with_it(bed: &Bed) -> Outcome {
    let mut rig = TagRig::new(bed, RigOptions::default())?;
    rig.post_requests(2..3);
    let asked = rig.rendezvous(0, 1, 1000..1100);
    let mut request = asked.to_bytes();
    request.extend_from_slice(b"for software");
    rig.send(bed, 0, &request);
    let done = bed.poll_good(&mut rig.cq, 1);
    assert_eq!(fields(&done[0]), (RECEIVE, 2, false, false, false));
    let length = done[0].as_completion().byte_len().ok_or("a length")?;
    let received = rig.request(2, length);
    assert_eq!(TmMessage::parse(&received), Some((asked, &b"for software"[..])));
    Ok(())
}

fn tm_a_rendezvous_whose_data_cannot_be_read_is_cancelled(bed: &Bed) -> Outcome {
    let mut rig = TagRig::new(bed, RigOptions { tags: 1, ..RigOptions::default() })?;
    let mut asked = rig.rendezvous(0, 1, 1000..1100);
    let TmMessage::Rendezvous { data, .. } = &mut asked else { panic!("{asked:?}") };
    data.rkey ^= 0xff;
    rig.add(1, 5, 0..100);
    rig.send_later(0, &asked.to_bytes());
    let done = bed.poll(&mut rig.cq, 2);
    assert_eq!((failure(&done[0]), failure(&done[1])), (
        None,
        Some(CompletionErrorKind::MessageCanceled),
    ));
    assert_eq!(fields(&done[1]), (RECEIVE, 5, true, false, false));
    bed.until("the queue pair to have failed", || {
        rig.receivers[0].query().is_ok_and(|info| info.qp_state == QueueState::Error)
    });
    rig.add(2, 6, 0..64);
    bed.nothing(&mut rig.cq);
    Ok(())
}

fn tm_a_queue_pair_that_fails_cancels_what_was_matched(bed: &Bed) -> Outcome {
    let error = QpAttributes::new().qp_state(QueueState::Error);
    let reset = QpAttributes::new().qp_state(QueueState::Reset);
    for end in [Some(error), Some(reset), None] {
        let mut rig = TagRig::new(bed, RigOptions { tags: 2, ..RigOptions::default() })?;
        rig.add(1, 5, 0..100);
        rig.add(2, 6, 0..100);
        // The sender has no receive for the final message of the first rendezvous, so the second
        // one waits.
        for (tag, completions) in [(1, 2), (2, 1)] {
            let asked = rig.rendezvous(0, tag, 1000..1100);
            rig.send_later(0, &asked.to_bytes());
            let done = bed.poll_good(&mut rig.cq, completions);
            assert_eq!(fields(&done[0]), (RECEIVE, 4 + tag, true, false, false));
        }
        match end {
            Some(attributes) => rig.receivers[0].modify(&attributes)?,
            None => drop(rig.receivers.pop()),
        }
        let done = bed.poll(&mut rig.cq, 1);
        assert_eq!(fields(&done[0]), (RECEIVE, 6, true, false, false));
        assert_eq!(failure(&done[0]), Some(CompletionErrorKind::MessageCanceled));
        rig.add(3, 7, 0..64);
        rig.add(4, 8, 0..64);
        bed.nothing(&mut rig.cq);
    }
    Ok(())
}

fn tm_end_of_a_rendezvous_is_reported_to_a_sender_with_its_own_list(bed: &Bed) -> Outcome {
    // Both ends have lists; the one that asks keeps its send queue.
    let options = RigOptions { keep_send_queue: true, ..RigOptions::default() };
    let mut asks = TagRig::new(bed, options)?;
    let mut serves = TagRig::new(bed, RigOptions::default())?;
    let (connect, psn) = (mlx5::ConnectOptions::default(), mlx5::Psn::wrapping(77));
    let (one, other) = (&mut asks.receivers[0], &mut serves.receivers[0]);
    let here = asks.context.local_port(bed.port(), None)?;
    let there = serves.context.local_port(bed.port(), None)?;
    let (at_one, at_other) =
        (one.endpoint(&here, psn, &connect), other.endpoint(&there, psn, &connect));
    for qp in [&mut *one, &mut *other] {
        qp.modify(&QpAttributes::new().qp_state(QueueState::Reset))?;
    }
    one.connect(&here, psn, &at_other, &connect)?;
    other.connect(&there, psn, &at_one, &connect)?;

    asks.post_requests(1..2);
    let at = super::tag_rig::BUFFERS;
    fill(&asks.memory, at, 6, 500)?;
    let remote = asks.memory.remote(at..)?;
    let data = RendezvousData { va: remote.addr, rkey: remote.rkey, len: 500 };
    let request = TmMessage::Rendezvous { tag: 9, app_ctx: 3, data }.to_bytes();
    asks.memory.write_at(at + 1000, &request)?;
    serves.add(9, 5, 0..500);
    let sge = asks.memory.sge(at + 1000..at + 1032)?;
    let mut batch = asks.receivers[0].wr_start();
    batch.wr(1, SendFlags::empty()).send().sge(sge);
    batch.complete()?;
    let done = bed.poll_good(&mut serves.cq, 2);
    assert_eq!(fields(&done[1]), (RECEIVE, 5, false, true, false));
    assert!(serves.bytes(0..500) == pattern(6, 500));
    // This message has no tag to match.
    let done = bed.poll_good(&mut asks.cq, 1);
    assert_eq!(fields(&done[0]), (CompletionOpcode::TmNoTag, 1, false, false, false));
    let finished = TmMessage::Finished { tag: 9, app_ctx: 3, data };
    assert_eq!(TmMessage::parse(&asks.request(1, 32)), Some((finished, &[][..])));
    Ok(())
}

fn tm_a_message_that_stops_in_the_middle_is_given_up_with_its_queue_pair(bed: &Bed) -> Outcome {
    for matches in [true, false] {
        let mut rig = TagRig::new(bed, RigOptions { tags: 1, ..RigOptions::default() })?;
        rig.post_requests(3..4);
        if matches {
            rig.add(1, 5, 0..9000);
        }
        let end = &mut rig.senders[0];
        end.mr.write_at(0, &eager(1, 0, &[1; 4096 - 16]))?;
        // The first packet is sent; the memory of the second cannot be read.
        let mut sges = [end.mr.sge(0..4096)?, end.mr.sge(0..100)?];
        sges[1].lkey ^= 0xff;
        let mut batch = end.qp.wr_start();
        batch.wr(1, SendFlags::SIGNALED).send().sge_list(&sges);
        batch.complete()?;
        assert_eq!(refusal(bed, &mut rig), Some(Syndrome::LocalProtection));
        if matches {
            let done = bed.poll_good(&mut rig.cq, 1);
            assert_eq!(fields(&done[0]), (RECEIVE, 5, true, false, false));
        }
        bed.nothing(&mut rig.cq);
        rig.receivers[0].modify(&QpAttributes::new().qp_state(QueueState::Error))?;
        let done = bed.poll_one(&mut rig.cq);
        if matches {
            assert_eq!(done.as_completion().wr_id(), 5);
            assert_eq!(failure(&done), Some(CompletionErrorKind::MessageCanceled));
        } else {
            assert_eq!(flushed(&[done]), [3]);
        }
        rig.add(2, 6, 0..64);
        rig.post_requests(4..5);
        bed.nothing(&mut rig.cq);
    }
    Ok(())
}
