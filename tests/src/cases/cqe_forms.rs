//! Completions in the forms that a queue can ask for: compressed, with a message inside, with the
//! time of day. Also queues that are resized, moderated or overrun.

use crate::prelude::*;
use mlx5::{
    AsyncEvent, CqeCompression, CqeSize, Data, ErrorKind, InlineData, Operation, PollError, Timestamps,
    real_time_ns,
};
use std::time::Duration;

pub(crate) const CASES: &[Case] = cases![
    compressed_completions_say_what_plain_ones_do: SIMULATOR | STEP,
    short_messages_and_answers_lie_in_the_completion: SIMULATOR,
    a_message_is_in_memory_unless_it_was_asked_for_in_the_completion,
    clock_converts_timestamps_to_the_time_of_day,
    real_time_is_the_time_of_day: ROCE | REAL_TIME,
    missing_cqe_form_is_refused_by_name,
    a_queue_is_resized_with_completions_waiting,
    a_queue_whose_completions_were_taken_has_room_for_a_smaller_size,
    a_queue_too_full_for_its_new_size_keeps_the_old,
    an_overrun_is_an_event_and_an_error: SIMULATOR,
    an_overrun_is_found_without_reading_events: SIMULATOR | DEVX,
    moderation_joins_completions_in_one_event: SIMULATOR | STEP,
    moderation_waits_no_longer_than_its_period: SIMULATOR | STEP,
    answers_of_atomics_lie_in_the_completion: SIMULATOR,
    a_queue_is_resized_in_the_middle_of_a_run: SIMULATOR | STEP,
    panic_in_the_closure_loses_no_room,
];

/// Sends messages of these lengths, and polls both sides.
fn exchange(
    bed: &Bed,
    pair: &mut Pair<Rc>,
    lengths: &[usize],
) -> Result<(Vec<OwnedCompletion>, Vec<OwnedCompletion>), Failed> {
    for (wr_id, _) in (0..).zip(lengths) {
        pair.b.recv(wr_id, 0..4096);
    }
    let bytes: Vec<u8> = (0..4096).map(|n| (n * 7 + 3) as u8).collect();
    pair.a.mr.write_at(0, &bytes)?;
    for (wr_id, length) in (0..).zip(lengths) {
        let sges = [pair.a.mr.sge(0..*length)?];
        pair.a.post(Form::List, Post::new(Op::Send, wr_id, Data::Sges(&sges)))?;
    }
    // All completions are in the queue before the first poll, so that the device can compress them.
    bed.settle();
    let sent = bed.poll_good(&mut pair.a.send_cq, lengths.len());
    let received = bed.poll_good(pair.b.recv_cq(), lengths.len());
    Ok((sent, received))
}

/// Posts an RDMA write of a few bytes for each identifier.
fn write(pair: &mut Pair<Rc>, wr_ids: std::ops::Range<u64>) -> Outcome {
    let to = pair.b.mr.remote(..)?;
    for wr_id in wr_ids {
        let post = Post::new(Op::Write, wr_id, Data::Inline(&[b"something"])).remote(to);
        pair.a.post(Form::Typed, post)?;
    }
    Ok(())
}

fn bytes_at(mr: &MemoryRegion, at: usize, length: usize) -> Result<Vec<u8>, Failed> {
    let mut bytes = vec![0; length];
    mr.read_at(at, &mut bytes)?;
    Ok(bytes)
}

fn compressed_completions_say_what_plain_ones_do(bed: &Bed) -> Outcome {
    let lengths: Vec<usize> = (0..40).map(|n| n * 7 % 50 + 1).collect();
    let mut plain = bed.pair::<Rc>(&PairOptions::default())?;
    let (sent, received) = exchange(bed, &mut plain, &lengths)?;
    for format in [CqeCompression::Hash, CqeCompression::Checksum, CqeCompression::ChecksumStride]
    {
        let options = PairOptions::default().compression(Some(format));
        let mut pair = bed.pair::<Rc>(&options)?;
        let (sent_too, received_too) = exchange(bed, &mut pair, &lengths)?;
        for (one, other) in [(&sent, &sent_too), (&received, &received_too)] {
            let compressed = other.iter().filter(|wc| wc.as_completion().is_compressed());
            assert!(compressed.count() > 30, "a stepped device does many in a row");
            for (one, other) in one.iter().zip(other) {
                let (one, other) = (one.as_completion(), other.as_completion());
                assert_eq!(one.wr_id(), other.wr_id());
                assert_eq!((one.opcode(), one.byte_len()), (other.opcode(), other.byte_len()));
                assert_eq!(one.src_qp().is_some(), other.src_qp().is_some());
                assert_eq!(one.slid().is_some(), other.slid().is_some());
            }
        }
    }
    Ok(())
}

fn short_messages_and_answers_lie_in_the_completion(bed: &Bed) -> Outcome {
    let room = if bed.cqe_size() == CqeSize::Bytes128 { 64 } else { 32 };
    let mut pair = bed.pair::<Rc>(&PairOptions::default().scatter_to_cqe(true))?;
    let lengths = [1, 8, room - 1, room, room + 1, 500];
    let (_, received) = exchange(bed, &mut pair, &lengths)?;
    let sent = bytes_at(&pair.a.mr, 0, 4096)?;
    for (length, wc) in lengths.into_iter().zip(&received) {
        let wc = wc.as_completion();
        assert_eq!(wc.byte_len(), Some(length as u32));
        let message = wc.inline_data().map(|data| data.bytes().collect::<Vec<_>>());
        assert_eq!(message, (length <= room).then(|| sent[..length].to_vec()));
    }
    // The answer to a read.
    pair.b.mr.write_at(0, &sent[100..300])?;
    let read = |pair: &mut Pair<Rc>, length: usize| -> Result<OwnedCompletion, Failed> {
        let to = pair.b.mr.remote(..)?;
        let sges = [pair.a.mr.sge(1024..1024 + length)?];
        pair.a.post(Form::List, Post::new(Op::Read, 7, Data::Sges(&sges)).remote(to))?;
        Ok(bed.poll_good(&mut pair.a.send_cq, 1)[0])
    };
    let before = bytes_at(&pair.a.mr, 1024, room)?;
    let wc = read(&mut pair, room)?;
    let wc = wc.as_completion();
    let mut answer = [0; InlineData::MAX];
    assert_eq!(wc.inline_data().and_then(|data| data.copy_to(&mut answer)), Some(room));
    assert_eq!(answer[..room], sent[100..100 + room]);
    assert_eq!(bytes_at(&pair.a.mr, 1024, room)?, before, "and not in memory");
    let wc = read(&mut pair, room + 1)?;
    assert!(wc.as_completion().inline_data().is_none());
    assert_eq!(bytes_at(&pair.a.mr, 1024, room + 1)?, sent[100..=100 + room]);
    Ok(())
}

fn a_message_is_in_memory_unless_it_was_asked_for_in_the_completion(bed: &Bed) -> Outcome {
    let mut pair = bed.pair::<Rc>(&PairOptions::default())?;
    let (_, received) = exchange(bed, &mut pair, &[8])?;
    assert!(received[0].as_completion().inline_data().is_none());
    assert_eq!(bytes_at(&pair.a.mr, 0, 8)?, bytes_at(&pair.b.mr, 0, 8)?);
    Ok(())
}

/// Later than 2020.
const NOT_LONG_AGO: u64 = 1_577_836_800_000_000_000;

fn clock_converts_timestamps_to_the_time_of_day(bed: &Bed) -> Outcome {
    let mut pair = bed.pair::<Rc>(&PairOptions::default())?;
    let clock = pair.a.context.clock()?;
    let before = clock.now()?;
    let (sent, _) = exchange(bed, &mut pair, &[100; 8])?;
    let cycles: Vec<u64> =
        sent.iter().filter_map(|wc| wc.as_completion().timestamp()).collect();
    assert_eq!(cycles.len(), 8);
    if let Some(simulator) = bed.is_simulated().then(|| bed.simulator()) {
        simulator.update_clock_info(0);
    }
    for relation in [before, clock.now()?] {
        let day: Vec<u64> = cycles.iter().map(|time| relation.nanoseconds(*time)).collect();
        assert!(day.is_sorted(), "{day:?}");
        assert!(day[0] > NOT_LONG_AGO && day[7] - day[0] < 20_000_000_000, "{day:?}");
    }
    // No device's clock is so fast that the relation ends within a minute, or so slow that it lasts
    // a day.
    let (minute, day) = (Duration::from_secs(60), Duration::from_secs(86_400));
    let valid_for = before.valid_for();
    assert!((minute..day).contains(&valid_for), "{valid_for:?}");
    Ok(())
}

fn real_time_is_the_time_of_day(bed: &Bed) -> Outcome {
    let options = PairOptions::default().timestamps(Timestamps::RealTime);
    let mut pair = bed.pair::<Rc>(&options)?;
    assert_eq!(pair.a.send_cq.timestamps(), Timestamps::RealTime);
    let (sent, received) = exchange(bed, &mut pair, &[100; 4])?;
    for list in [sent, received] {
        let times = list.iter().filter_map(|wc| wc.as_completion().timestamp());
        let day: Vec<u64> = times.map(real_time_ns).collect();
        assert_eq!(day.len(), 4);
        assert!(day.is_sorted() && day[0] > NOT_LONG_AGO, "{day:?}");
    }
    Ok(())
}

fn missing_cqe_form_is_refused_by_name(bed: &Bed) -> Outcome {
    let context = bed.context();
    let refused = context.create_cq(8).padding(true).build().expect_err("refused");
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
    assert!(refused.to_string().contains("128-byte CQEs"), "{refused}");
    if let Err(refused) = context.create_cq(8).timestamps(Timestamps::RealTime).build() {
        assert_eq!(refused.kind(), ErrorKind::NotSupported, "{refused}");
        assert!(refused.to_string().contains("time of day"), "{refused}");
    }
    Ok(())
}

fn a_queue_is_resized_with_completions_waiting(bed: &Bed) -> Outcome {
    let mut pair = bed.pair::<Rc>(&PairOptions::default().cq_entries(31))?;
    let mut next = 0;
    for entries in [63, 20, 500, 15] {
        let first = next;
        write(&mut pair, next..next + 10)?;
        bed.settle();
        pair.a.send_cq.resize(entries)?;
        assert!(pair.a.send_cq.capacity() >= entries);
        write(&mut pair, next + 10..next + 13)?;
        next += 13;
        let found = bed.poll_good(&mut pair.a.send_cq, 13);
        assert_eq!(wr_ids(&found), (first..next).collect::<Vec<_>>());
        // The queue still works, across the end of the ring.
        for _ in 0..20 {
            write(&mut pair, next..next + 9)?;
            let found = bed.poll_good(&mut pair.a.send_cq, 9);
            assert_eq!(wr_ids(&found), (next..next + 9).collect::<Vec<_>>());
            next += 9;
        }
    }
    Ok(())
}

/// Completions that the caller has taken free their slots, even if the device does not know the
/// consumer index yet.
fn a_queue_whose_completions_were_taken_has_room_for_a_smaller_size(bed: &Bed) -> Outcome {
    let mut pair = bed.pair::<Rc>(&PairOptions::default().cq_entries(31))?;
    write(&mut pair, 0..12)?;
    bed.settle();
    let cq = &mut pair.a.send_cq;
    let mut completions = cq.completions()?;
    for wr_id in 0..10 {
        assert_eq!(completions.next().map(|one| one.wr_id()), Some(wr_id));
    }
    // Dropping it would write the consumer index for the device.
    std::mem::forget(completions);
    cq.resize(7)?;
    assert_eq!(cq.capacity(), 7);
    assert_eq!(wr_ids(&bed.poll_good(cq, 2)), [10, 11]);
    write(&mut pair, 12..18)?;
    assert_eq!(wr_ids(&bed.poll_good(&mut pair.a.send_cq, 6)), (12..18).collect::<Vec<_>>());
    Ok(())
}

fn a_queue_too_full_for_its_new_size_keeps_the_old(bed: &Bed) -> Outcome {
    let mut pair = bed.pair::<Rc>(&PairOptions::default().cq_entries(31))?;
    write(&mut pair, 0..12)?;
    bed.settle();
    let cq = &mut pair.a.send_cq;
    for entries in [7, 0, u32::MAX] {
        let refused = cq.resize(entries).expect_err("twelve do not fit, nor none, nor thousands");
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
    }
    assert_eq!(cq.capacity(), 31);
    assert_eq!(wr_ids(&bed.poll_good(cq, 12)), (0..12).collect::<Vec<_>>());
    Ok(())
}

/// Overruns the send queue of `a`, which has room for four completions.
fn overrun(bed: &Bed) -> Result<Pair<Rc>, Failed> {
    let mut pair = bed.pair::<Rc>(&PairOptions::default().cq_entries(3))?;
    write(&mut pair, 0..6)?;
    bed.settle();
    Ok(pair)
}

fn an_overrun_is_an_event_and_an_error(bed: &Bed) -> Outcome {
    let mut pair = overrun(bed)?;
    let events = pair.a.context.async_events();
    let event = events.wait(Some(std::time::Duration::from_secs(20)))?;
    assert_eq!(event, Some(AsyncEvent::CqError(pair.a.send_cq.id())));
    // The completions before the overrun come first, and then the error.
    assert_eq!(wr_ids(&bed.poll_good(&mut pair.a.send_cq, 4)), [0, 1, 2, 3]);
    for _ in 0..3 {
        assert_eq!(pair.a.send_cq.poll(16, |_| {}), Err(PollError::Overrun));
    }
    assert!(PollError::Overrun.to_string().contains("overran"));
    Ok(())
}

fn an_overrun_is_found_without_reading_events(bed: &Bed) -> Outcome {
    let mut pair = overrun(bed)?;
    assert_eq!(bed.poll_good(&mut pair.a.send_cq, 4).len(), 4);
    // The first poll that finds nothing asks the device, because the queue was full.
    let found = (0..2).find_map(|_| pair.a.send_cq.poll(16, |_| {}).err());
    assert_eq!(found, Some(PollError::Overrun));
    Ok(())
}

fn moderation_joins_completions_in_one_event(bed: &Bed) -> Outcome {
    let context = bed.context();
    let channel = context.create_comp_channel()?;
    let (mut lone, mut cq) = super::waiting::lone(bed, &context, &channel)?;
    cq.moderate(3, 4000)?;
    cq.arm(false)?;
    bed.settle();
    for wr_id in 0..3 {
        assert_eq!(channel.get_event()?, None, "before the third");
        lone.write(wr_id)?;
        assert_eq!(wr_ids(&bed.poll_good(&mut cq, 1)), [wr_id]);
    }
    assert_eq!(channel.get_event()?, Some(cq.id()));
    let too_long = cq.moderate(1, u16::MAX).expect_err("longer than the device can wait");
    assert_eq!(too_long.kind(), ErrorKind::InvalidArgument, "{too_long}");
    Ok(())
}

fn moderation_waits_no_longer_than_its_period(bed: &Bed) -> Outcome {
    let context = bed.context();
    let channel = context.create_comp_channel()?;
    let (mut lone, mut cq) = super::waiting::lone(bed, &context, &channel)?;
    cq.moderate(1000, 50)?;
    for wr_id in 0..3 {
        cq.arm(false)?;
        bed.settle();
        lone.write(wr_id)?;
        assert_eq!(wr_ids(&bed.poll_good(&mut cq, 1)), [wr_id]);
        assert_eq!(channel.get_event()?, None, "there may be more");
        // A stepped device advances its clock to the next timer.
        bed.settle();
        assert_eq!(channel.get_event()?, Some(cq.id()));
    }
    // Without moderation the event comes at once.
    cq.moderate(0, 0)?;
    cq.arm(false)?;
    bed.settle();
    lone.write(3)?;
    assert_eq!(wr_ids(&bed.poll_good(&mut cq, 1)), [3]);
    assert_eq!(channel.get_event()?, Some(cq.id()));
    Ok(())
}

fn answers_of_atomics_lie_in_the_completion(bed: &Bed) -> Outcome {
    let access = crate::pair::ALL_ACCESS | Access::REMOTE_ATOMIC;
    let options = PairOptions::default().access(access).scatter_to_cqe(true);
    let mut pair = bed.pair::<Rc>(&options)?;
    let Pair { a, b } = &mut pair;
    let mut value = 0x0123_4567_89ab_cdef_u64;
    b.mr.write_at(0, &value.to_ne_bytes())?;
    a.mr.write_at(64, &[0xee; 8])?;
    let (remote, result) = (b.mr.remote(0..8)?, a.mr.sge(64..72)?);
    let operations = [
        (Operation::FetchAdd { remote, add: 5 }, CompletionOpcode::FetchAdd),
        (
            Operation::CompareSwap { remote, compare: value + 5, swap: 9 },
            CompletionOpcode::CompareSwap,
        ),
        (Operation::FetchAdd { remote, add: 1 }, CompletionOpcode::FetchAdd),
    ];
    for ((operation, opcode), after) in operations.into_iter().zip([value + 5, 9, 10]) {
        let data = Data::Sges(std::slice::from_ref(&result));
        let flags = SendFlags::SIGNALED;
        a.qp.post_send(&[SendWr { wr_id: 3, flags, operation, data, ..SendWr::default() }])?;
        let wc = bed.poll_good(&mut a.send_cq, 1)[0];
        let wc = wc.as_completion();
        assert_eq!((wc.opcode(), wc.byte_len()), (opcode, Some(8)));
        let message: Vec<u8> = wc.inline_data().expect("the answer").bytes().collect();
        assert_eq!(message, value.to_ne_bytes(), "what was there before");
        assert_eq!(bytes_at(&a.mr, 64, 8)?, [0xee; 8], "and not in memory");
        value = after;
    }
    assert_eq!(bytes_at(&b.mr, 0, 8)?, value.to_ne_bytes());
    Ok(())
}

fn a_queue_is_resized_in_the_middle_of_a_run(bed: &Bed) -> Outcome {
    // The number of completions of a run that are polled before the resize, and of the device's
    // steps with more to come; it holds some of these back to compress them.
    for (polled, steps) in (0..20).flat_map(|polled| [(polled, 0), (polled, 9), (polled, 23)]) {
        for entries in [31, 127] {
            let options = PairOptions::default()
                .cq_entries(63)
                .compression(Some(CqeCompression::ChecksumStride));
            let mut pair = bed.pair::<Rc>(&options)?;
            write(&mut pair, 0..20)?;
            bed.settle();
            let mut found = bed.poll_good(&mut pair.a.send_cq, polled);
            write(&mut pair, 20..28)?;
            for _ in 0..steps {
                bed.step();
            }
            pair.a.send_cq.resize(entries)?;
            assert_eq!(pair.a.send_cq.capacity(), entries);
            bed.settle();
            found.extend(bed.poll_good(&mut pair.a.send_cq, 28 - polled));
            assert_eq!(wr_ids(&found), Vec::from_iter(0..28), "{polled} polled, {steps} steps");
            let compressed = found.iter().filter(|wc| wc.as_completion().is_compressed());
            assert!(compressed.count() >= 20);
            write(&mut pair, 28..50)?;
            let found = bed.poll_good(&mut pair.a.send_cq, 22);
            assert_eq!(wr_ids(&found), Vec::from_iter(28..50));
        }
    }
    Ok(())
}

fn panic_in_the_closure_loses_no_room(bed: &Bed) -> Outcome {
    let mut pair = bed.pair::<Rc>(&PairOptions::default().cq_entries(3))?;
    // Nothing else polls the queue, so a slot that is not freed would overrun it.
    for round in 0..6 {
        write(&mut pair, round * 3..round * 3 + 3)?;
        for wr_id in round * 3..round * 3 + 3 {
            bed.until("one more", || pair.a.send_cq.is_ready());
            let mut cq = std::panic::AssertUnwindSafe(&mut pair.a.send_cq);
            let panicked = std::panic::catch_unwind(move || {
                let cq = &mut *cq;
                cq.poll(1, |wc| std::panic::resume_unwind(Box::new(wc.wr_id())))
            });
            let panicked = panicked.expect_err("it panics").downcast::<u64>().expect("an identifier");
            assert_eq!(*panicked, wr_id);
        }
    }
    bed.nothing(&mut pair.a.send_cq);
    Ok(())
}
