//! Threads that share a channel, and sleep until there are completions.

use crate::prelude::*;
use mlx5::{AsyncEvent, CompletionChannel, ConnectOptions, Data, Error, ErrorKind, Operation, PollError, Psn};
use std::sync::mpsc;
use std::thread::ScopedJoinHandle;
use std::time::Duration;

pub(crate) const CASES: &[Case] = cases![
    waiter_misses_no_completion,
    threads_on_one_channel_each_hear_of_their_own_queue,
    event_read_by_another_waiter_is_not_lost,
    a_time_ends_a_wait,
    failing_device_wakes_a_waiter_without_limit: EVERY_MODEL | SIMULATOR | DIRTY,
    a_queue_without_a_channel_cannot_be_waited_for,
    an_overrun_ends_a_wait_whether_its_event_is_read_or_not: SIMULATOR | DEVX,
];

const LONG: Option<Duration> = Some(Duration::from_secs(20));

/// A queue pair connected to itself.
pub(super) struct Lone {
    qp: QueuePair<Rc>,
    mr: MemoryRegion,
}

/// A queue pair connected to itself, and its completion queue.
pub(super) fn lone(
    bed: &Bed,
    context: &Context,
    channel: &CompletionChannel,
) -> Result<(Lone, CompletionQueue), Failed> {
    lone_from(bed, context, channel, 0)
}

/// The same with a completion queue that has had `consumed` completions.
pub(super) fn lone_from(
    bed: &Bed,
    context: &Context,
    channel: &CompletionChannel,
    consumed: u32,
) -> Result<(Lone, CompletionQueue), Failed> {
    let cq = context.create_cq(63).channel(channel).consumed(consumed).build()?;
    bed.count_on(&cq, consumed);
    Ok((lone_on(bed, context, &cq)?, cq))
}

/// A queue pair connected to itself that completes on `cq`.
fn lone_on(bed: &Bed, context: &Context, cq: &CompletionQueue) -> Result<Lone, Failed> {
    let pd = context.alloc_pd()?;
    let mut qp = pd.create_qp::<Rc>(cq, cq).build()?;
    let port = context.local_port(bed.port(), None)?;
    let options = ConnectOptions::default();
    let psn = Psn::wrapping(3);
    let itself = qp.endpoint(&port, psn, &options);
    qp.connect(&port, psn, &itself, &options)?;
    let mr = pd.memory(64).access(crate::pair::ALL_ACCESS).register()?;
    Ok(Lone { qp, mr })
}

impl Lone {
    pub(super) fn write(&mut self, wr_id: u64) -> Outcome {
        let sges = [self.mr.sge(0..8)?];
        let operation = Operation::RdmaWrite(self.mr.remote(..)?);
        let (flags, data) = (SendFlags::SIGNALED, Data::Sges(&sges));
        self.qp.post_send(&[SendWr { wr_id, flags, operation, data, ..SendWr::default() }])?;
        Ok(())
    }
}

/// Waits in the usual way, and returns the next completion.
fn next(cq: &mut CompletionQueue) -> Result<u64, Error> {
    loop {
        assert!(cq.wait(false, LONG)?, "in time");
        let mut found = None;
        cq.poll(1, |wc| found = Some(wc.wr_id())).expect("a queue that can be polled");
        if let Some(wr_id) = found {
            return Ok(wr_id);
        }
    }
}

/// Lets the device work until a thread is done.
fn join<T>(bed: &Bed, thread: ScopedJoinHandle<'_, T>) -> T {
    while !thread.is_finished() {
        if !bed.step() {
            std::thread::yield_now();
        }
    }
    thread.join().expect("no panic")
}

fn waiter_misses_no_completion(bed: &Bed) -> Outcome {
    let context = bed.context();
    let channel = context.create_comp_channel()?;
    let (mut lone, mut cq) = lone(bed, &context, &channel)?;
    // More rounds than the arm sequence has numbers. The completion comes before the thread sleeps,
    // or at about that time.
    for wr_id in 0..20 {
        if wr_id % 3 == 0 {
            lone.write(wr_id)?;
            bed.settle();
            assert_eq!(next(&mut cq)?, wr_id);
            continue;
        }
        std::thread::scope(|scope| -> Outcome {
            let waiter = scope.spawn(|| next(&mut cq));
            lone.write(wr_id)?;
            assert_eq!(join(bed, waiter)?, wr_id);
            Ok(())
        })?;
    }
    Ok(())
}

fn threads_on_one_channel_each_hear_of_their_own_queue(bed: &Bed) -> Outcome {
    const ROUNDS: u64 = 40;
    let context = bed.context();
    let channel = context.create_comp_channel()?;
    let (mut lones, mut cqs) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let (lone, cq) = lone(bed, &context, &channel)?;
        lones.push(lone);
        cqs.push(cq);
    }
    let (heard, hears) = mpsc::channel();
    std::thread::scope(|scope| -> Outcome {
        for mut cq in cqs {
            let heard = heard.clone();
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let found = next(&mut cq);
                    let good = found.as_ref().is_ok_and(|wr_id| *wr_id == round);
                    // The receiver is gone if another thread failed.
                    if heard.send(found).is_err() || !good {
                        break;
                    }
                }
            });
        }
        for round in 0..ROUNDS {
            // The order changes from round to round.
            for which in 0..3 {
                lones[(which + round as usize) % 3].write(round)?;
            }
            for _ in 0..3 {
                let found = loop {
                    bed.step();
                    match hears.try_recv() {
                        Ok(found) => break found,
                        Err(mpsc::TryRecvError::Empty) => std::thread::yield_now(),
                        Err(gone) => panic!("{gone}"),
                    }
                };
                assert_eq!(found?, round);
            }
        }
        Ok(())
    })
}

fn event_read_by_another_waiter_is_not_lost(bed: &Bed) -> Outcome {
    let context = bed.context();
    let channel = context.create_comp_channel()?;
    let (mut one, mut one_cq) = lone(bed, &context, &channel)?;
    let (mut other, mut other_cq) = lone(bed, &context, &channel)?;
    other_cq.arm(false)?;
    bed.settle();
    other.write(1)?;
    bed.until("the other's completion", || other_cq.is_ready());
    // The event of `other` is the first in the channel, so the thread that waits for `one` reads
    // it.
    std::thread::scope(|scope| -> Outcome {
        let waiter = scope.spawn(|| next(&mut one_cq));
        one.write(2)?;
        assert_eq!(join(bed, waiter)?, 2);
        Ok(())
    })?;
    bed.until("the other's event", || {
        channel.get_event().expect("an open channel") == Some(other_cq.id())
    });
    assert_eq!(next(&mut other_cq)?, 1);
    Ok(())
}

fn a_time_ends_a_wait(bed: &Bed) -> Outcome {
    let context = bed.context();
    let channel = context.create_comp_channel()?;
    let (_lone, mut cq) = lone(bed, &context, &channel)?;
    assert!(!cq.wait(false, Some(Duration::from_millis(5)))?);
    assert!(!cq.wait(true, Some(Duration::ZERO))?);
    Ok(())
}

fn failing_device_wakes_a_waiter_without_limit(bed: &Bed) -> Outcome {
    let context = bed.context();
    let channel = context.create_comp_channel()?;
    let (_lone, mut cq) = lone(bed, &context, &channel)?;
    let answers = std::thread::scope(|scope| {
        let by_queue = scope.spawn(|| cq.wait(false, None).map(drop));
        let by_channel = scope.spawn(|| channel.wait(None).map(drop));
        bed.simulator().inject(0, Fault::Fatal);
        [by_queue, by_channel].map(|waiter| waiter.join().expect("no panic"))
    });
    for answer in answers {
        if let Err(error) = answer {
            assert_eq!(error.kind(), ErrorKind::DeviceGone, "{error}");
        }
    }
    assert_eq!(cq.poll(1, |_| {}), Err(PollError::DeviceGone));
    Ok(())
}

fn a_queue_without_a_channel_cannot_be_waited_for(bed: &Bed) -> Outcome {
    let context = bed.context();
    let mut cq = context.create_cq(7).build()?;
    let refused = cq.wait(false, None).expect_err("it would sleep for ever");
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
    Ok(())
}

/// The queue completes nothing more, and no event of the channel reports that.
fn an_overrun_ends_a_wait_whether_its_event_is_read_or_not(bed: &Bed) -> Outcome {
    for is_read in [false, true] {
        let context = bed.context();
        let channel = context.create_comp_channel()?;
        let mut cq = context.create_cq(3).channel(&channel).build()?;
        let mut lone = lone_on(bed, &context, &cq)?;
        for wr_id in 0..6 {
            lone.write(wr_id)?;
        }
        bed.settle();
        assert_eq!(bed.poll_good(&mut cq, 4).len(), 4);
        let (events, expected) = (context.async_events(), AsyncEvent::CqError(cq.id()));
        let ended = std::thread::scope(|scope| {
            let waiter = scope.spawn(|| cq.wait(false, LONG));
            if is_read {
                bed.until("the event", || events.next().expect("there") == Some(expected));
            }
            join(bed, waiter)
        });
        assert!(ended?, "event read: {is_read}");
        assert_eq!(cq.poll(1, |_| {}), Err(PollError::Overrun));
    }
    Ok(())
}
