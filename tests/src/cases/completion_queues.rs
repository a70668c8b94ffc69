//! Completion queues: sizes, events by channel, and the completions of destroyed queue pairs.

use crate::prelude::*;
use mlx5::{CompletionChannel, CqeSize, Data, Error, ErrorKind};
use mlx5_uapi::wait::wait_readable;
use std::os::fd::AsFd;
use std::time::Duration;

pub(crate) const CASES: &[Case] = cases![
    a_completion_queue_holds_at_least_what_was_asked_for,
    sizes_that_cannot_be_are_refused_with_the_limit,
    completion_vectors_end_where_the_context_says,
    a_channel_of_another_context_is_refused,
    a_queue_without_a_channel_cannot_be_armed,
    an_armed_queue_announces_the_next_completion_once,
    a_completion_that_came_before_arming_is_not_lost,
    a_consumer_that_arms_polls_and_waits_misses_nothing,
    a_queue_armed_for_solicited_ones_passes_over_the_others,
    a_failed_request_counts_as_solicited,
    events_of_queues_on_one_channel_name_their_queue,
    arming_goes_on_beyond_the_wrap_of_its_sequence,
    the_channels_descriptor_is_readable_while_an_event_waits,
    waiting_ends_with_its_time,
    a_queue_with_unread_events_goes_without_waiting,
    a_channel_outlives_its_handle_as_long_as_queues_need_it,
    a_queue_in_use_is_given_back_and_still_works,
    completions_of_a_destroyed_queue_pair_are_passed_over,
    a_user_index_is_used_again_only_after_its_completions_were_passed: SIMULATOR,
    queue_pairs_come_and_go_for_ever: SIMULATOR,
    a_queue_full_of_orphans_can_be_destroyed_unpolled,
    completions_are_taken_one_by_one_or_many_at_a_time,
    polling_for_nothing_takes_nothing,
];

#[track_caller]
fn invalid<T>(result: Result<T, Error>, hint: &str) {
    let error = result.err().expect("refused");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.to_string().contains(hint), "{error}");
}

fn a_completion_queue_holds_at_least_what_was_asked_for(bed: &Bed) -> Outcome {
    let context = bed.context();
    for entries in [1, 2, 3, 4, 7, 8, 255, 256, 1000, 65_535, 65_536] {
        for size in [CqeSize::Bytes64, CqeSize::Bytes128] {
            let cq = context.create_cq(entries).cqe_size(size).build()?;
            assert!(cq.capacity() >= entries, "{} for {entries}", cq.capacity());
            assert!((cq.capacity() + 1).is_power_of_two());
            cq.destroy()?;
        }
    }
    Ok(())
}

fn sizes_that_cannot_be_are_refused_with_the_limit(bed: &Bed) -> Outcome {
    let context = bed.context();
    let max = context.query_device().max_cqe;
    for entries in [0, max + 1, u32::MAX] {
        invalid(context.create_cq(entries).build(), &max.to_string());
    }
    Ok(())
}

fn completion_vectors_end_where_the_context_says(bed: &Bed) -> Outcome {
    let context = bed.context();
    let vectors = context.num_comp_vectors();
    assert!(vectors > 0);
    for vector in 0..vectors {
        context.create_cq(4).comp_vector(vector).build()?;
    }
    for vector in [vectors, u32::MAX] {
        invalid(context.create_cq(4).comp_vector(vector).build(), &format!("has {vectors}"));
    }
    Ok(())
}

fn a_channel_of_another_context_is_refused(bed: &Bed) -> Outcome {
    let (one, other) = (bed.context(), bed.context());
    let foreign = other.create_comp_channel()?;
    invalid(one.create_cq(4).channel(&foreign).build(), "another context");
    other.create_cq(4).channel(&foreign).build()?;
    Ok(())
}

fn a_queue_without_a_channel_cannot_be_armed(bed: &Bed) -> Outcome {
    let cq = bed.context().create_cq(4).build()?;
    invalid(cq.arm(false), "channel");
    Ok(())
}

/// A sender, and a receiver whose receives complete on a queue with a channel.
struct Announced {
    pair: Pair<Rc>,
    channel: CompletionChannel,
    qp: QueuePair<Rc>,
    cq: CompletionQueue,
}

impl Announced {
    fn new(bed: &Bed) -> Result<Self, Failed> {
        let options = PairOptions::default();
        let mut pair = bed.pair::<Rc>(&options)?;
        let channel = pair.b.context.create_comp_channel()?;
        let cq = pair.b.context.create_cq(256).channel(&channel).build()?;
        // A new receiver that completes on this queue replaces the pair's own.
        let mut qp = pair.b.pd.create_qp::<Rc>(&pair.b.send_cq, &cq).build()?;
        std::mem::swap(&mut pair.b.qp, &mut qp);
        pair.a.qp.modify(&QpAttributes::new().qp_state(QueueState::Reset))?;
        crate::pair::connect_ends(&mut pair.a, &mut pair.b, &options)?;
        Ok(Self { pair, channel, qp, cq })
    }

    /// Sends a message to the receive `wr_id`, and waits until it has arrived.
    fn send(&mut self, bed: &Bed, wr_id: u64, flags: SendFlags) -> Outcome {
        self.pair.b.recv(wr_id, 0..8);
        let post = Post::new(Op::Send, wr_id, Data::Inline(&[b"message!"]));
        self.pair.a.post(Form::Typed, post.flags(flags | SendFlags::SIGNALED))?;
        bed.poll_good(&mut self.pair.a.send_cq, 1);
        bed.settle();
        Ok(())
    }

    /// The identifiers of all completions in the queue.
    fn received(&mut self) -> Result<Vec<u64>, Failed> {
        let mut found = Vec::new();
        while self.cq.poll(16, |one| found.push(one.wr_id()))? > 0 {}
        Ok(found)
    }
}

fn an_armed_queue_announces_the_next_completion_once(bed: &Bed) -> Outcome {
    let mut it = Announced::new(bed)?;
    it.send(bed, 1, SendFlags::empty())?;
    assert_eq!(it.channel.get_event()?, None, "not armed");
    assert_eq!(it.received()?, [1]);
    it.cq.arm(false)?;
    bed.settle();
    assert_eq!(it.channel.get_event()?, None, "nothing came since");
    it.send(bed, 2, SendFlags::empty())?;
    it.send(bed, 3, SendFlags::empty())?;
    assert_eq!(it.channel.wait(Some(Duration::from_secs(10)))?, Some(it.cq.id()));
    assert_eq!(it.channel.get_event()?, None, "one event for one arming");
    assert_eq!(it.received()?, [2, 3]);
    Ok(())
}

fn a_completion_that_came_before_arming_is_not_lost(bed: &Bed) -> Outcome {
    let mut it = Announced::new(bed)?;
    for round in 0..10 {
        it.send(bed, round, SendFlags::empty())?;
        it.cq.arm(false)?;
        // The completion came before the queue was armed, so the poll finds it and no event comes.
        assert_eq!(it.received()?, [round]);
        bed.settle();
        while it.channel.get_event()?.is_some() {}
    }
    Ok(())
}

fn a_consumer_that_arms_polls_and_waits_misses_nothing(bed: &Bed) -> Outcome {
    const MESSAGES: u64 = 1000;
    let it = Announced::new(bed)?;
    let Announced { pair: Pair { a, b }, channel, qp: _spare, mut cq } = it;
    let (mut send, _rest, _control) = a.qp.split();
    let (mut send_cq, mut own) = (a.send_cq, b.qp);
    let sge = b.mr.sge(0..8)?;
    for wr_id in 0..32 {
        own.post_recv(&[ReceiveWr { wr_id, sges: &[sge] }])?;
    }
    std::thread::scope(|scope| -> Outcome {
        scope.spawn(move || {
            let (mut posted, mut done) = (0, 0);
            while done < MESSAGES {
                let mut batch = send.wr_start();
                batch.wr(posted, SendFlags::SIGNALED).send().inline_data(b"message!");
                if posted < MESSAGES && batch.complete().is_ok() {
                    posted += 1;
                }
                // At most eight are outstanding, so that the consumer often has to wait.
                while done < MESSAGES && (posted == MESSAGES || posted - done >= 8) {
                    done +=
                        send_cq.poll(16, |one| assert!(one.is_success())).expect("a poll") as u64;
                    std::thread::yield_now();
                }
            }
        });
        let mut next = 0;
        while next < MESSAGES {
            cq.arm(false)?;
            let mut found = Vec::new();
            cq.poll(64, |one| found.push(one.wr_id()))?;
            if found.is_empty() {
                let reported = channel.wait(Some(Duration::from_secs(10)))?;
                assert_eq!(reported, Some(cq.id()), "after {next} messages");
                continue;
            }
            for wr_id in found {
                assert_eq!(wr_id, next);
                next += 1;
                if wr_id + 32 < MESSAGES {
                    own.post_recv(&[ReceiveWr { wr_id: wr_id + 32, sges: &[sge] }])?;
                }
            }
        }
        Ok(())
    })
}

fn a_queue_armed_for_solicited_ones_passes_over_the_others(bed: &Bed) -> Outcome {
    let mut it = Announced::new(bed)?;
    it.cq.arm(true)?;
    for wr_id in 1..4 {
        it.send(bed, wr_id, SendFlags::empty())?;
        assert_eq!(it.channel.get_event()?, None, "message {wr_id} is not solicited");
    }
    it.send(bed, 4, SendFlags::SOLICITED)?;
    assert_eq!(it.channel.wait(Some(Duration::from_secs(10)))?, Some(it.cq.id()));
    assert_eq!(it.received()?, [1, 2, 3, 4]);
    Ok(())
}

fn a_failed_request_counts_as_solicited(bed: &Bed) -> Outcome {
    let mut it = Announced::new(bed)?;
    it.pair.b.recv(9, 0..8);
    it.cq.arm(true)?;
    it.pair.b.qp.modify(&QpAttributes::new().qp_state(QueueState::Error))?;
    assert_eq!(it.channel.wait(Some(Duration::from_secs(10)))?, Some(it.cq.id()));
    assert_eq!(it.received()?, [9]);
    Ok(())
}

/// A queue pair in INIT, with a receive that completes, flushed, when the queue pair fails.
fn about_to_fail(
    bed: &Bed,
    end: &End<Rc>,
    cq: &CompletionQueue,
    wr_id: u64,
) -> Result<QueuePair<Rc>, Failed> {
    let mut qp = end.pd.create_qp::<Rc>(cq, cq).build()?;
    qp.init(&end.context.local_port(bed.port(), None)?, &mlx5::ConnectOptions::default())?;
    qp.post_recv(&[ReceiveWr { wr_id, sges: &[] }])?;
    Ok(qp)
}

fn fail(qp: &mut QueuePair<Rc>) -> Outcome {
    Ok(qp.modify(&QpAttributes::new().qp_state(QueueState::Error))?)
}

fn events_of_queues_on_one_channel_name_their_queue(bed: &Bed) -> Outcome {
    let end = bed.end::<Rc>(&PairOptions::default().memory(64))?;
    let channel = end.context.create_comp_channel()?;
    let mut queues = Vec::new();
    for wr_id in 0..5 {
        let cq = end.context.create_cq(4).channel(&channel).build()?;
        let qp = about_to_fail(bed, &end, &cq, wr_id)?;
        queues.push((qp, cq));
    }
    for at in [3, 0, 4] {
        queues[at].1.arm(false)?;
    }
    // A doorbell must not overtake the state change that it waits for, so all queues are armed
    // first.
    bed.settle();
    for (qp, _) in &mut queues {
        fail(qp)?;
    }
    let mut reported = Vec::new();
    bed.until("three events", || {
        while let Some(id) = channel.get_event().expect("a channel") {
            reported.push(id);
        }
        reported.len() >= 3
    });
    for at in [0, 3, 4] {
        assert!(reported.contains(&queues[at].1.id()), "{reported:?}");
    }
    bed.settle();
    assert_eq!((reported.len(), channel.get_event()?), (3, None));
    for (wr_id, (_, cq)) in queues.iter_mut().enumerate() {
        assert_eq!(bed.poll_one(cq).as_completion().wr_id(), wr_id as u64);
    }
    Ok(())
}

fn arming_goes_on_beyond_the_wrap_of_its_sequence(bed: &Bed) -> Outcome {
    let mut it = Announced::new(bed)?;
    for round in 0..40 {
        it.cq.arm(round % 3 == 1)?;
        it.send(bed, round, SendFlags::SOLICITED)?;
        assert_eq!(it.channel.wait(Some(Duration::from_secs(10)))?, Some(it.cq.id()), "{round}");
        assert_eq!(it.channel.get_event()?, None, "{round}");
        assert_eq!(it.received()?, [round]);
    }
    // Arming twice before a completion comes is like arming once.
    it.cq.arm(false)?;
    it.cq.arm(false)?;
    it.send(bed, 40, SendFlags::empty())?;
    assert_eq!(it.channel.wait(Some(Duration::from_secs(10)))?, Some(it.cq.id()));
    assert_eq!(it.channel.get_event()?, None);
    Ok(())
}

fn the_channels_descriptor_is_readable_while_an_event_waits(bed: &Bed) -> Outcome {
    let mut it = Announced::new(bed)?;
    let readable = |channel: &CompletionChannel| {
        wait_readable(channel.as_fd(), Some(Duration::ZERO)).expect("poll(2)")
    };
    it.cq.arm(false)?;
    assert!(!readable(&it.channel));
    it.send(bed, 1, SendFlags::empty())?;
    bed.until("a readable descriptor", || readable(&it.channel));
    assert_eq!(it.channel.get_event()?, Some(it.cq.id()));
    assert!(!readable(&it.channel));
    Ok(())
}

fn waiting_ends_with_its_time(bed: &Bed) -> Outcome {
    let channel = bed.context().create_comp_channel()?;
    assert_eq!(channel.wait(Some(Duration::ZERO))?, None);
    assert_eq!(channel.wait(Some(Duration::from_millis(1)))?, None);
    Ok(())
}

fn a_queue_with_unread_events_goes_without_waiting(bed: &Bed) -> Outcome {
    let end = bed.end::<Rc>(&PairOptions::default().memory(64))?;
    let channel = end.context.create_comp_channel()?;
    let unread = end.context.create_cq(4).channel(&channel).build()?;
    let read = end.context.create_cq(4).channel(&channel).build()?;
    let mut one = about_to_fail(bed, &end, &unread, 1)?;
    let mut other = about_to_fail(bed, &end, &read, 2)?;
    unread.arm(false)?;
    read.arm(false)?;
    bed.settle();
    fail(&mut other)?;
    assert_eq!(channel.wait(Some(Duration::from_secs(10)))?, Some(read.id()));
    fail(&mut one)?;
    bed.until("an event", || {
        wait_readable(channel.as_fd(), Some(Duration::ZERO)).expect("poll(2)")
    });
    one.destroy()?;
    other.destroy()?;
    unread.destroy()?;
    read.destroy()?;
    assert_eq!(channel.get_event()?, None, "its queue is gone, and the event with it");
    Ok(())
}

fn a_channel_outlives_its_handle_as_long_as_queues_need_it(bed: &Bed) -> Outcome {
    let mut it = Announced::new(bed)?;
    drop(std::mem::replace(&mut it.channel, it.pair.b.context.create_comp_channel()?));
    it.cq.arm(false)?;
    it.send(bed, 1, SendFlags::empty())?;
    assert_eq!(it.channel.get_event()?, None, "it is another channel");
    assert_eq!(it.received()?, [1]);
    Ok(())
}

fn a_queue_in_use_is_given_back_and_still_works(bed: &Bed) -> Outcome {
    let end = bed.end::<Rc>(&PairOptions::default().memory(64))?;
    let cq = end.context.create_cq(4).build()?;
    let mut qp = about_to_fail(bed, &end, &cq, 6)?;
    let (mut cq, error) = cq.destroy().err().ok_or("a queue pair completes there")?.into_parts();
    assert_eq!(error.kind(), ErrorKind::Busy);
    fail(&mut qp)?;
    assert_eq!(bed.poll_one(&mut cq).as_completion().wr_id(), 6);
    qp.destroy()?;
    cq.destroy()?;
    Ok(())
}

fn completions_of_a_destroyed_queue_pair_are_passed_over(bed: &Bed) -> Outcome {
    let end = bed.end::<Rc>(&PairOptions::default().memory(64))?;
    let mut cq = end.context.create_cq(64).build()?;
    let mut doomed = Vec::new();
    let mut kept = Vec::new();
    // Their completions alternate in the queue.
    for wr_id in 0..20 {
        let mut qp = about_to_fail(bed, &end, &cq, wr_id)?;
        fail(&mut qp)?;
        bed.settle();
        if wr_id % 3 == 0 { kept.push(qp) } else { doomed.push(qp) }
    }
    for qp in doomed {
        qp.destroy()?;
    }
    let found: Vec<u64> =
        bed.poll(&mut cq, kept.len()).iter().map(|one| one.as_completion().wr_id()).collect();
    assert_eq!(found, [0, 3, 6, 9, 12, 15, 18]);
    bed.nothing(&mut cq);
    // Completions that come later are polled, too.
    let mut qp = about_to_fail(bed, &end, &cq, 77)?;
    fail(&mut qp)?;
    assert_eq!(bed.poll_one(&mut cq).as_completion().wr_id(), 77);
    Ok(())
}

fn a_user_index_is_used_again_only_after_its_completions_were_passed(bed: &Bed) -> Outcome {
    let index = |qp: &QueuePair<Rc>| {
        let engine = bed.simulator().fabric().lock();
        engine.device(0).qp(qp.qp_num()).map(|qp| qp.user_index).expect("it is there")
    };
    let end = bed.end::<Rc>(&PairOptions::default().memory(64))?;
    let mut cq = end.context.create_cq(16).build()?;
    let mut other = about_to_fail(bed, &end, &cq, 1)?;
    let mut doomed = about_to_fail(bed, &end, &cq, 2)?;
    let taken = index(&doomed);
    for qp in [&mut other, &mut doomed] {
        fail(qp)?;
        bed.settle();
    }
    doomed.destroy()?;
    // The poller advances, but not to the completion that still names the queue pair.
    assert_eq!(cq.poll(1, |one| assert_eq!(one.wr_id(), 1))?, 1);
    let second = about_to_fail(bed, &end, &cq, 3)?;
    assert_ne!(index(&second), taken, "a completion in the queue still names it");
    bed.nothing(&mut cq);
    bed.nothing(&mut cq);
    let mut third = about_to_fail(bed, &end, &cq, 4)?;
    assert_eq!(index(&third), taken, "nothing names it any more");
    fail(&mut third)?;
    assert_eq!(bed.poll_one(&mut cq).as_completion().wr_id(), 4);
    Ok(())
}

fn queue_pairs_come_and_go_for_ever(bed: &Bed) -> Outcome {
    let end = bed.end::<Rc>(&PairOptions::default().memory(64))?;
    let mut cq = end.context.create_cq(8).build()?;
    let mut highest = 0;
    for round in 0..300 {
        let mut qp = about_to_fail(bed, &end, &cq, round)?;
        let engine = bed.simulator().fabric().lock();
        let index = engine.device(0).qp(qp.qp_num()).map(|qp| qp.user_index);
        highest = highest.max(index.ok_or("it is there")?);
        drop(engine);
        fail(&mut qp)?;
        if round % 2 == 0 {
            assert_eq!(bed.poll_one(&mut cq).as_completion().wr_id(), round);
        } else {
            bed.settle();
        }
        qp.destroy()?;
        bed.nothing(&mut cq);
    }
    assert!(highest < 8, "indexes come back: the highest was {highest}");
    Ok(())
}

fn a_queue_full_of_orphans_can_be_destroyed_unpolled(bed: &Bed) -> Outcome {
    let end = bed.end::<Rc>(&PairOptions::default().memory(64))?;
    let cq = end.context.create_cq(8).build()?;
    for wr_id in 0..7 {
        let mut qp = about_to_fail(bed, &end, &cq, wr_id)?;
        fail(&mut qp)?;
        bed.settle();
        qp.destroy()?;
    }
    cq.destroy()?;
    Ok(())
}

fn completions_are_taken_one_by_one_or_many_at_a_time(bed: &Bed) -> Outcome {
    let mut end = bed.end::<Rc>(&PairOptions::default())?;
    end.qp.init(&end.port, &mlx5::ConnectOptions::default())?;
    for wr_id in 0..12 {
        end.recv(wr_id, 0..8);
    }
    fail(&mut end.qp)?;
    bed.settle();
    let cq = end.recv_cq();
    let mut completions = cq.completions()?;
    for wr_id in 0..3 {
        assert_eq!(completions.next().ok_or("there are more")?.wr_id(), wr_id);
    }
    // The next iterator returns the completions that the last one left.
    drop(completions);
    let mut out = vec![bed.poll_one(cq); 5];
    assert_eq!(out[0].as_completion().wr_id(), 3);
    assert_eq!(cq.poll_into(&mut out)?, 5);
    let ids: Vec<u64> = out.iter().map(|one| one.as_completion().wr_id()).collect();
    assert_eq!(ids, [4, 5, 6, 7, 8]);
    assert_eq!(cq.poll_into(&mut out)?, 3);
    let mut completions = cq.completions()?;
    assert!(completions.next().is_none());
    assert_eq!(completions.finish()?, 0);
    Ok(())
}

fn polling_for_nothing_takes_nothing(bed: &Bed) -> Outcome {
    let mut end = bed.end::<Rc>(&PairOptions::default())?;
    end.qp.init(&end.port, &mlx5::ConnectOptions::default())?;
    end.recv(5, 0..8);
    fail(&mut end.qp)?;
    bed.settle();
    assert_eq!(end.recv_cq().poll(0, |_| panic!("none was asked for"))?, 0);
    assert_eq!(end.recv_cq().poll_into(&mut [])?, 0);
    assert_eq!(bed.poll_one(end.recv_cq()).as_completion().wr_id(), 5);
    Ok(())
}
